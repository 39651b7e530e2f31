// SPDX-License-Identifier: GPL-2.0

//! Fault injection: places that fail when they are told to.
//!
//! C: `include/linux/fault-inject.h`, `Documentation/fault-injection/fault-injection.rst`. Each
//! [`Point`] has a directory of the kernel's knobs in debugfs. A call counts as size 1: with
//! `probability` 100, `times` 1 and `space` N the Nth call from then on fails, and no other. A
//! task's `fail-nth` counts points like allocations.
//!
//! In a kernel without `CONFIG_FAULT_INJECTION_DEBUG_FS` nothing of this is left in the module.

pub mod points;

#[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
mod inject;
#[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
pub use inject::{asynchronous, Knobs, Latch, Point};

#[cfg(not(CONFIG_FAULT_INJECTION_DEBUG_FS))]
pub use nothing::{asynchronous, Knobs, Latch, Point};

/// State of a [`Latch`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Latched {
    /// No fault.
    No,
    /// The fault strikes now.
    #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
    Now,
    /// It has struck before.
    #[cfg(CONFIG_FAULT_INJECTION_DEBUG_FS)]
    Before,
}

/// The same without fault injection: nothing ever fails here, and nothing is stored.
#[cfg(not(CONFIG_FAULT_INJECTION_DEBUG_FS))]
mod nothing {
    use super::Latched;
    use kernel::prelude::*;

    /// A place that can be told to fail.
    pub struct Point(());

    impl Point {
        pub(super) const fn new(_name: &'static CStr, _errno: u32) -> Self {
            Self(())
        }

        /// Nothing.
        #[inline(always)]
        pub fn check(&self) -> Result {
            Ok(())
        }

        /// Nothing.
        #[inline(always)]
        pub fn check_alone(&self) -> Result {
            Ok(())
        }
    }

    /// A fault that lasts.
    pub struct Latch(());

    impl Latch {
        /// Nothing has failed yet.
        pub const fn new() -> Self {
            Self(())
        }

        /// Nothing.
        #[inline(always)]
        pub fn check(&self, _point: &Point) -> Latched {
            Latched::No
        }
    }

    /// The knobs in debugfs.
    pub struct Knobs(());

    impl Knobs {
        /// Nothing.
        pub fn new(_parent: &CStr) -> Self {
            Self(())
        }
    }

    /// Runs `f`.
    #[inline(always)]
    pub fn asynchronous<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}
