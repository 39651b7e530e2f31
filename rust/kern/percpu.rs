// SPDX-License-Identifier: GPL-2.0

//! Per-CPU counters: counting excludes only migration and interrupts, which on x86 takes one
//! instruction that is not atomic, and touches no cache line of another CPU. Reading adds them up.
//!
//! C: `include/linux/percpu-defs.h`; `rust/helpers/percpu.c`.

use crate::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;

/// `N` counters, at zero in the beginning. They wrap around.
///
/// # Invariants
///
/// The pointer is to memory of each possible CPU (`__percpu`) with `N` counters, which this owns.
pub struct PerCpu<const N: usize>(NonNull<i64>);

// SAFETY: the memory belongs to no task. Only this_cpu operations write to it, which exclude
// migration and interrupts; other CPUs only read, whole words.
unsafe impl<const N: usize> Send for PerCpu<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for PerCpu<N> {}

impl<const N: usize> PerCpu<N> {
    /// Counters at zero. Sleeps. ENOMEM.
    pub fn new() -> Result<Self> {
        // SAFETY: any size may be asked for. The memory is zeroed.
        let base = unsafe { bindings::alloc_counters(N) };
        // INVARIANT: just allocated for this, with room for `N` counters.
        Ok(Self(NonNull::new(base).ok_or(ENOMEM)?))
    }

    /// Counter `at`; `None` if there are fewer.
    fn counter(&self, at: usize) -> Option<CpuCounter> {
        // INVARIANT: within the memory, as `at` is less than `N`.
        (at < N).then(|| CpuCounter(self.0.as_ptr().wrapping_add(at)))
    }

    /// Adds `n` to the calling CPU's counter `at`. Any context.
    pub fn add(&self, at: usize, n: i64) {
        if let Some(counter) = self.counter(at) {
            counter.add(n);
        }
    }

    /// As [`add`](Self::add), and returns the calling CPU's new value.
    pub fn add_return(&self, at: usize, n: i64) -> i64 {
        self.counter(at).map_or(0, |counter| counter.add_return(n))
    }

    /// The sum of all CPUs' counters `at`. Any context.
    pub fn sum(&self, at: usize) -> i64 {
        self.counter(at).map_or(0, |counter| counter.sum())
    }
}

impl<const N: usize> Drop for PerCpu<N> {
    fn drop(&mut self) {
        // SAFETY: the counters own the memory (type invariant), and no thread uses it any more.
        unsafe { bindings::free_percpu(self.0.as_ptr().cast()) };
    }
}

/// The number of one of the module's own counters, which are at zero when it is loaded.
///
/// # Invariants
///
/// The module has that many counters, and one more.
pub struct ModuleCounter(usize);

/// How many counters the module has.
const MODULE_COUNTERS: usize = bindings::ZRS_HELPER_COUNTERS as usize;

impl ModuleCounter {
    /// Counter `at`. Panics if there are fewer: in a constant, when that is compiled.
    pub const fn new(at: usize) -> Self {
        assert!(at < MODULE_COUNTERS);
        // INVARIANT: just checked.
        Self(at)
    }

    fn counter(&self) -> CpuCounter {
        // SAFETY: only returns an address.
        let base = unsafe { bindings::counters() };
        // INVARIANT: within the module's static per-CPU memory (type invariant).
        CpuCounter(base.wrapping_add(self.0))
    }

    /// Adds `n` to the calling CPU's counter. Any context.
    pub fn add(&self, n: i64) {
        self.counter().add(n);
    }

    /// The sum of all CPUs' counters. Any context.
    pub fn sum(&self) -> i64 {
        self.counter().sum()
    }
}

/// A counter of each CPU.
///
/// # Invariants
///
/// The pointer is to a counter of each possible CPU (`__percpu`), which exists as long as this.
struct CpuCounter(*mut i64);

impl CpuCounter {
    fn add(&self, n: i64) {
        // SAFETY: by the type invariant.
        unsafe { bindings::this_cpu_add(self.0, n) }
    }

    fn add_return(&self, n: i64) -> i64 {
        // SAFETY: by the type invariant.
        unsafe { bindings::this_cpu_add_return(self.0, n) }
    }

    fn sum(&self) -> i64 {
        // SAFETY: by the type invariant.
        unsafe { bindings::percpu_sum(self.0) }
    }
}
