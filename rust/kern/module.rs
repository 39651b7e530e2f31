// SPDX-License-Identifier: GPL-2.0

//! This module, as the structures that keep it loaded name it.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use crate::bindings;

/// The `struct module` of this module, for `owner` fields and reference counts.
///
/// The kernel crate's own constant stands in the crate's root up to Linux 7.2 and in a trait from
/// 7.3 on.
pub(crate) const THIS_MODULE: *mut bindings::module =
    core::ptr::addr_of_mut!(kernel::bindings::__this_module);
