// SPDX-License-Identifier: GPL-2.0

//! Memory cgroups: charging kernel memory that a thread allocates for the socket of another one.
//!
//! C: `include/linux/memcontrol.h`, `set_active_memcg()` in `include/linux/sched/mm.h`,
//! `mem_cgroup_from_sk()` in `include/net/sock.h`.

use crate::{bindings, kern::sock::Sk};
use kernel::alloc::{
    flags::{GFP_KERNEL_ACCOUNT, GFP_NOWAIT},
    Flags, //
};
use kernel::error::Result;

/// How memory is allocated that a cgroup pays for: as [`GFP_KERNEL_ACCOUNT`], but a limit that is
/// reached makes the allocation fail after one try to reclaim, instead of ending a program of the
/// cgroup: the thread that allocates may be needed by others. May sleep.
pub const CHARGED: Flags = with(
    GFP_KERNEL_ACCOUNT,
    bindings::__GFP_NORETRY | bindings::__GFP_NOWARN,
);

/// How memory is allocated for data that has arrived, as socket buffers are: a cgroup pays for it,
/// also beyond its limit (`try_charge_memcg()` in `mm/memcontrol.c`), and the allocation reclaims
/// no memory. It leaves the page allocator's reserves alone. Does not sleep.
const ARRIVED: Flags = with(
    GFP_NOWAIT,
    bindings::__GFP_HIGH
        | bindings::__GFP_ACCOUNT
        | bindings::__GFP_NOMEMALLOC
        | bindings::__GFP_NOWARN,
);

/// As [`ARRIVED`], where the kernel has no memory at hand: reclaims some, but ends no program. May
/// sleep.
const ARRIVED_LATER: Flags = with(
    GFP_KERNEL_ACCOUNT,
    bindings::__GFP_HIGH
        | bindings::__GFP_RETRY_MAYFAIL
        | bindings::__GFP_NOMEMALLOC
        | bindings::__GFP_NOWARN,
);

/// `flags` plus the flags that have no names in the kernel crate.
const fn with(flags: Flags, more: u32) -> Flags {
    // SAFETY: `Flags` is a struct with one `u32` in it and of its size (checked here), so that the
    // number is all of it; every number is a valid one.
    let bits = unsafe { core::mem::transmute::<Flags, u32>(flags) };
    let bits = bits | more;
    // SAFETY: as above.
    unsafe { core::mem::transmute::<u32, Flags>(bits) }
}

/// A counted reference to a memory cgroup.
///
/// # Invariants
///
/// `ptr` is a memory cgroup with one reference owned by the object, or null in a kernel without
/// them.
pub struct Memcg {
    ptr: *mut bindings::mem_cgroup,
}

// SAFETY: cgroups belong to no task, and their reference count may be changed from any.
unsafe impl Send for Memcg {}
// SAFETY: as above.
unsafe impl Sync for Memcg {}

impl Memcg {
    /// The one that pays for the sock; the root, if none does (`cgroup.memory=nosocket` on the
    /// kernel's command line among others). Any context.
    pub fn of(sk: &Sk) -> Self {
        // INVARIANT: the reference just taken is ours.
        Self {
            // SAFETY: a live sock, which holds its cgroup.
            ptr: unsafe { bindings::sk_memcg_get(sk.as_ptr()) },
        }
    }

    /// Runs `f`, whose charged allocations this cgroup pays for, whichever task calls.
    ///
    /// Context: a task's; `f` may sleep. Scopes may be nested.
    pub fn charge<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: the cgroup lives until the scope ends, at the end of this function: by the type
        // invariant we hold it, and `self` is borrowed.
        let before = unsafe { bindings::set_active_memcg(self.ptr) };
        let result = f();
        // SAFETY: the outer scope continues, and its caller holds its cgroup.
        unsafe { bindings::set_active_memcg(before) };
        result
    }

    /// Runs the allocation `f` for data that has arrived: this cgroup pays, also beyond its limit.
    ///
    /// Context: a task's; may sleep if the kernel has no memory at hand. Errors: those of `f`.
    pub fn charge_arrived<R>(&self, mut f: impl FnMut(Flags) -> Result<R>) -> Result<R> {
        self.charge(|| f(ARRIVED).or_else(|_| f(ARRIVED_LATER)))
    }
}

impl Clone for Memcg {
    fn clone(&self) -> Self {
        // SAFETY: by the type invariant we hold it, or it is null, which is ignored.
        unsafe { bindings::mem_cgroup_get(self.ptr) };
        // INVARIANT: the reference just taken is the new one's.
        Self { ptr: self.ptr }
    }
}

impl Drop for Memcg {
    /// Any context.
    fn drop(&mut self) {
        // SAFETY: by the type invariant the reference is ours, and given up here.
        unsafe { bindings::mem_cgroup_put(self.ptr) };
    }
}
