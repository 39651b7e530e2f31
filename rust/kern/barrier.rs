// SPDX-License-Identifier: GPL-2.0

//! The full memory barrier.
//!
//! C header: [`include/asm-generic/barrier.h`](srctree/include/asm-generic/barrier.h). The kernel
//! crate's `smp_mb()` takes an argument from Linux 7.3 on.

use crate::bindings;

/// Orders all memory accesses before it against all accesses after it, on all processors.
///
/// Context: any.
pub fn smp_mb() {
    // SAFETY: a barrier has no preconditions.
    unsafe { bindings::smp_mb() }
}
