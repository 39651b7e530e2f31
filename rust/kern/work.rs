// SPDX-License-Identifier: GPL-2.0

//! Our work queues, and an addition to the kernel crate's work items: cancelling them.
//!
//! C: `include/linux/workqueue.h`. Items are the kernel crate's (`Work`, `DelayedWork`,
//! `impl_has_work!`); a [`Queue`] is its `Queue`, by `Deref`, so `queue.enqueue(arc)` works in any
//! context, also under a spinlock and in interrupts.

use crate::bindings;
use core::{ops::Deref, ptr::NonNull};
use kernel::{
    container_of,
    prelude::*,
    str::CStr,
    sync::Arc,
    time::Jiffies,
    workqueue::{self, HasDelayedWork, Work, WorkItem},
};

/// How a [`Queue`] runs its items.
#[derive(Clone, Copy, Default)]
pub struct Flags {
    /// Not bound to the CPU that queued the item.
    pub unbound: bool,
    /// Has a thread in reserve, so that it makes progress when memory is short.
    pub mem_reclaim: bool,
    /// Before ordinary tasks.
    pub high_priority: bool,
    /// One item at a time, in the order of queueing (implies `unbound`).
    pub ordered: bool,
}

/// A work queue.
///
/// # Invariants
///
/// The pointer is a live work queue, ours to destroy.
pub struct Queue(NonNull<bindings::workqueue_struct>);

// SAFETY: a work queue belongs to no task.
unsafe impl Send for Queue {}
// SAFETY: it has its own locks.
unsafe impl Sync for Queue {}

impl Queue {
    /// A new queue. Context: may sleep. Errors: `ENOMEM`.
    pub fn new(name: &CStr, flags: Flags) -> Result<Self> {
        let mut bits = 0;
        if flags.ordered {
            bits |= bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags___WQ_ORDERED;
        } else if flags.unbound {
            bits |= bindings::wq_flags_WQ_UNBOUND;
        } else {
            bits |= bindings::wq_flags_WQ_PERCPU;
        }
        if flags.mem_reclaim {
            bits |= bindings::wq_flags_WQ_MEM_RECLAIM;
        }
        if flags.high_priority {
            bits |= bindings::wq_flags_WQ_HIGHPRI;
        }
        let max_active = i32::from(flags.ordered);
        // SAFETY: the name is a C string, and copied.
        let wq = unsafe { bindings::alloc_workqueue(name.as_char_ptr(), bits, max_active) };
        // INVARIANT: just made.
        Ok(Self(NonNull::new(wq).ok_or(ENOMEM)?))
    }

    /// Waits until all that is queued now has run. Delayed items whose time has not come are not
    /// waited for. Context: sleeps; not from an item of this queue.
    pub fn flush(&self) {
        // SAFETY: live by the type invariant.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }

    /// Queues a delayed item, or moves its time if it waits already. Any context. Not while
    /// [`cancel_delayed`] waits for the item: it is not queued then, and its count of `item` is
    /// lost.
    ///
    /// If it waited already, its count of `item` is kept and this one dropped.
    pub fn enqueue_or_move<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies)
    where
        T: HasDelayedWork<T, ID> + WorkItem<ID, Pointer = Arc<T>> + Send + Sync + 'static,
    {
        let raw = Arc::into_raw(item).cast_mut();
        // SAFETY: `raw` points to a live `T`, as `raw_get_work` wants.
        let dwork = unsafe { delayed_work(raw) };
        // SAFETY: `dwork` was initialised by `DelayedWork::new` (which is the only way to have
        // one), and the count in `raw` keeps it alive until it has run or is taken back.
        let waited = unsafe {
            bindings::mod_delayed_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32,
                self.0.as_ptr(),
                dwork,
                delay,
            )
        };
        if waited {
            // SAFETY: the item holds one count from when it was queued first, and it has not run:
            // the one from above is too many.
            drop(unsafe { Arc::from_raw(raw) });
        }
    }
}

impl Deref for Queue {
    type Target = workqueue::Queue;

    fn deref(&self) -> &workqueue::Queue {
        // SAFETY: live by the type invariant for as long as `self` is.
        unsafe { workqueue::Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for Queue {
    /// Runs queued items and the items that these queue, and ends. Delayed items must have been
    /// cancelled
    /// ([`cancel_delayed`]): their timers know nothing of this.
    ///
    /// Context: sleeps; not from an item of this queue.
    fn drop(&mut self) {
        // SAFETY: live and ours by the type invariant, and this is the end of it.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// Takes an item back if it is queued, also while its time has not come, and waits for it if it
/// runs. Whether it was queued; the count it held then is dropped.
///
/// It may be queued again as soon as this returns; the caller must prevent that if necessary.
///
/// Context: sleeps; not from the item itself.
pub fn cancel_delayed<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: HasDelayedWork<T, ID> + WorkItem<ID, Pointer = Arc<T>>,
{
    let raw = Arc::as_ptr(item).cast_mut();
    // SAFETY: `raw` points to a live `T`.
    let dwork = unsafe { delayed_work(raw) };
    // SAFETY: the item is initialised (`DelayedWork::new` is the only way to have one), and alive.
    let queued = unsafe { bindings::cancel_delayed_work_sync(dwork) };
    reclaim(raw, queued)
}

/// Drops the count that a queued item held.
fn reclaim<T>(raw: *const T, queued: bool) -> bool {
    if queued {
        // SAFETY: enqueueing put one count of an `Arc<T>` away by `into_raw`; the item has been
        // cancelled, so that `run` will not fetch it. The caller has another count.
        drop(unsafe { Arc::from_raw(raw) });
    }
    queued
}

/// The C item in `raw`.
///
/// # Safety
///
/// `raw` must point to a live `T`.
unsafe fn delayed_work<T: HasDelayedWork<T, ID>, const ID: u64>(
    raw: *mut T,
) -> *mut bindings::delayed_work {
    // SAFETY: the caller's promise.
    let work = unsafe { Work::raw_get(T::raw_get_work(raw)) };
    // SAFETY: `HasDelayedWork` promises that the item is inside a `delayed_work`.
    unsafe { container_of!(work, bindings::delayed_work, work) }
}
