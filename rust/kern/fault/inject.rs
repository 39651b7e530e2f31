// SPDX-License-Identifier: GPL-2.0

//! Fault injection for kernels that have it.

use super::{points, Latched};
use crate::bindings;
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr::{self, NonNull},
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    str::CStr,
    sync::atomic::{Atomic, Full, Relaxed},
    task::Task,
};

/// Root may read and write.
const RW: bindings::umode_t = 0o600;
/// Root may read.
const RO: bindings::umode_t = 0o400;

/// A place that can be told to fail.
///
/// # Invariants
///
/// `attr` is all zeroes, and so never fails, until [`Knobs::new`] has initialised it, and
/// initialised from then on. Points are statics, as the lock in `attr` needs.
pub struct Point {
    name: &'static CStr,
    errno: u32,
    attr: UnsafeCell<MaybeUninit<bindings::fault_attr>>,
    /// How often it was asked.
    calls: Atomic<u64>,
    /// How often it failed.
    failed: Atomic<u64>,
}

// SAFETY: `should_fail` may be called in any context and by several at a time.
unsafe impl Sync for Point {}

impl Point {
    pub(super) const fn new(name: &'static CStr, errno: u32) -> Self {
        // INVARIANT: All zeroes.
        Self {
            name,
            errno,
            attr: UnsafeCell::new(MaybeUninit::zeroed()),
            calls: Atomic::new(0),
            failed: Atomic::new(0),
        }
    }

    fn attr(&self) -> *mut bindings::fault_attr {
        self.attr.get().cast()
    }

    /// Fails with the point's error if it has been told to. Any context.
    pub fn check(&self) -> Result {
        self.calls.fetch_add(1, Relaxed);
        // SAFETY: By the type invariants it is all zeroes or initialised, and stays where it is.
        if unsafe { bindings::should_fail(self.attr(), 1) } {
            self.failed.fetch_add(1, Relaxed);
            return Err(Error::from_errno(-(self.errno as i32)));
        }
        Ok(())
    }

    /// As [`check`](Self::check), but the task's `fail-nth` does not count it: what fails here
    /// cannot be undone. In process context.
    pub fn check_alone(&self) -> Result {
        let nth = swap_fail_nth(0);
        let result = self.check();
        swap_fail_nth(nth);
        result
    }
}

/// A fault that lasts: once a point has failed here, all that follows is as good as failed.
pub struct Latch(Atomic<bool>);

impl Latch {
    /// Nothing has failed yet.
    pub const fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Asks `point`, unless it has failed here before. Any context.
    pub fn check(&self, point: &Point) -> Latched {
        if self.0.load(Relaxed) {
            return Latched::Before;
        }
        if point.check().is_ok() {
            return Latched::No;
        }
        self.0.store(true, Relaxed);
        Latched::Now
    }
}

/// The `fail-nth` for the work items and handlers of this module: the next one takes it, counts
/// allocations and points with it, and puts the rest back. 0: it has struck, or none was set.
static BUDGET: Atomic<i32> = Atomic::new(0);
/// [`BUDGET`] while a work item or handler has it.
const LENT: i32 = -1;
/// How many work items and handlers ran with it.
static RUNS: Atomic<u64> = Atomic::new(0);

/// The budget, with the running task until it is dropped.
struct Loan {
    /// There was one.
    lent: bool,
    /// The task's previous `fail-nth`.
    own: u32,
}

impl Loan {
    fn take() -> Self {
        let nth = BUDGET.load(Relaxed);
        let lent = nth > 0 && BUDGET.cmpxchg(nth, LENT, Full).is_ok();
        if lent {
            RUNS.fetch_add(1, Relaxed);
        }
        // Work that a program's thread does for others does not count against its `fail-nth`.
        Self {
            lent,
            own: swap_fail_nth(if lent { nth as u32 } else { 0 }),
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let left = swap_fail_nth(self.own);
        if self.lent {
            // A write to the file in the meantime takes precedence.
            let _ = BUDGET.cmpxchg(LENT, i32::try_from(left).unwrap_or(i32::MAX), Full);
        }
    }
}

/// Sets the running task's `fail-nth` and returns the old one.
fn swap_fail_nth(nth: u32) -> u32 {
    // SAFETY: The running task is there, and its `fail_nth` is a word that may change at any time.
    unsafe {
        let at = &raw mut (*Task::current_raw()).fail_nth;
        let old = at.read_volatile();
        at.write_volatile(nth);
        old
    }
}

/// Runs `f`, the body of a work item or handler, in process context: with the budget of
/// `fail_async_nth` if that is there.
pub fn asynchronous<R>(f: impl FnOnce() -> R) -> R {
    let _loan = Loan::take();
    f()
}

/// The knobs in debugfs; gone with the object. There is one at a time.
///
/// # Invariants
///
/// The directories are in debugfs, ours, and removed by this object alone; `dirs[n]` has the knobs
/// of the nth point.
pub struct Knobs {
    dirs: [Option<NonNull<bindings::dentry>>; points::ALL.len()],
    asynchronous: Option<NonNull<bindings::dentry>>,
}

// SAFETY: Entries of debugfs belong to no task.
unsafe impl Send for Knobs {}
// SAFETY: Nothing can be done with a shared reference.
unsafe impl Sync for Knobs {}

impl Knobs {
    /// Makes a directory for each point, and `fail_async` with `nth` and `runs`, in the directory
    /// `parent` at debugfs's root. Without debugfs nothing can be told to fail, which is no error.
    pub fn new(parent: &CStr) -> Self {
        // SAFETY: The name is a C string, and null the root.
        let parent = unsafe { bindings::debugfs_lookup(parent.as_char_ptr(), ptr::null_mut()) };
        if parent.is_null() {
            return Self {
                dirs: [None; points::ALL.len()],
                asynchronous: None,
            };
        }
        // INVARIANT: All of them were just made.
        let this = Self {
            dirs: core::array::from_fn(|n| point_dir(parent, points::ALL[n])),
            asynchronous: async_dir(parent),
        };
        // SAFETY: `debugfs_lookup` took a reference for us.
        unsafe { bindings::dput(parent) };
        this
    }
}

/// Converts the result of making a directory.
fn made(dir: *mut bindings::dentry) -> Option<NonNull<bindings::dentry>> {
    from_err_ptr(dir).ok().and_then(NonNull::new)
}

/// The directory of a point in `parent`, a directory of debugfs.
fn point_dir(
    parent: *mut bindings::dentry,
    point: &'static Point,
) -> Option<NonNull<bindings::dentry>> {
    // INVARIANT: Initialised from here on. A concurrent query of the point finds a probability of
    // 0, which never fails, before and after.
    // SAFETY: The attribute is a static's, and has no knobs yet.
    unsafe { bindings::fault_attr_init(point.attr()) };
    // SAFETY: Name and parent are valid, and the attribute is a static's.
    let dir = unsafe {
        bindings::fault_create_debugfs_attr(point.name.as_char_ptr(), parent, point.attr())
    };
    let dir = made(dir)?;
    // SAFETY: The directory was made just now; the counters are words of a static.
    unsafe {
        let (calls, failed) = (point.calls.as_ptr(), point.failed.as_ptr());
        bindings::debugfs_create_u64(c"calls".as_char_ptr(), RO, dir.as_ptr(), calls);
        bindings::debugfs_create_u64(c"failed".as_char_ptr(), RO, dir.as_ptr(), failed);
    }
    Some(dir)
}

/// The directory of the asynchronous contexts in `parent`, a directory of debugfs.
fn async_dir(parent: *mut bindings::dentry) -> Option<NonNull<bindings::dentry>> {
    // SAFETY: Name and parent are valid.
    let dir = made(unsafe { bindings::debugfs_create_dir(c"fail_async".as_char_ptr(), parent) })?;
    let (nth, runs) = (BUDGET.as_ptr().cast(), RUNS.as_ptr());
    // SAFETY: The directory was made just now. Both are statics; an `atomic_t` is an `int`.
    unsafe {
        bindings::debugfs_create_atomic_t(c"nth".as_char_ptr(), RW, dir.as_ptr(), nth);
        bindings::debugfs_create_u64(c"runs".as_char_ptr(), RO, dir.as_ptr(), runs);
    }
    Some(dir)
}

impl Drop for Knobs {
    fn drop(&mut self) {
        for (dir, point) in self.dirs.iter().zip(points::ALL) {
            if let Some(dir) = dir {
                // SAFETY: By the type invariants the directory is ours, and the attribute has kept
                // it for its messages.
                unsafe {
                    bindings::debugfs_remove(dir.as_ptr());
                    bindings::fault_attr_put(point.attr());
                }
            }
        }
        if let Some(dir) = self.asynchronous {
            // SAFETY: By the type invariants the directory is ours.
            unsafe { bindings::debugfs_remove(dir.as_ptr()) };
        }
        BUDGET.store(0, Relaxed);
    }
}
