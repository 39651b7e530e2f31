// SPDX-License-Identifier: GPL-2.0

//! Memory cgroups: charging kernel memory that one thread allocates on behalf of another's socket.
//!
//! C: `include/linux/memcontrol.h`, `set_active_memcg()` in `include/linux/sched/mm.h`,
//! `mem_cgroup_from_sk()` in `include/net/sock.h`.

use crate::{bindings, kern::sock::Sk};
use kernel::alloc::{flags::GFP_KERNEL_ACCOUNT, Flags};

/// How memory is allocated that a cgroup pays for: as [`GFP_KERNEL_ACCOUNT`], but a limit that is
/// reached makes the allocation fail after one try to reclaim, instead of ending a program of the
/// cgroup: the thread that allocates may be needed by others. May sleep.
pub const CHARGED: Flags = or_fail(GFP_KERNEL_ACCOUNT);

/// `flags` plus those that make an allocation fail quietly. The kernel crate has no names for them.
const fn or_fail(flags: Flags) -> Flags {
    // SAFETY: `Flags` is a struct with one `u32` in it and of its size (checked here), so that the
    // number is all of it; every number is a valid one.
    let bits = unsafe { core::mem::transmute::<Flags, u32>(flags) };
    let bits = bits | bindings::__GFP_NORETRY | bindings::__GFP_NOWARN;
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

    /// Runs `f`, whose allocations with [`CHARGED`] this cgroup pays for, whichever task calls.
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
