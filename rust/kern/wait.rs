// SPDX-License-Identifier: GPL-2.0

//! Sleeping until something is so, with a time limit, without losing a wake-up.
//!
//! C: `include/linux/wait.h`.

use super::task;
use crate::bindings;
use core::{pin::Pin, ptr};
use kernel::{
    ffi::{c_int, c_long},
    prelude::*,
    str::CStr,
    sync::LockClassKey,
    time::Jiffies,
    types::Opaque,
};

/// The events that end a wait early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Any signal.
    Interruptible,
    /// Only a signal that kills the task.
    Killable,
    /// Nothing.
    Uninterruptible,
}

impl WaitMode {
    fn task_state(self) -> c_int {
        let state = match self {
            Self::Interruptible => bindings::TASK_INTERRUPTIBLE,
            Self::Killable => bindings::TASK_WAKEKILL | bindings::TASK_UNINTERRUPTIBLE,
            Self::Uninterruptible => bindings::TASK_UNINTERRUPTIBLE,
        };
        state as c_int
    }
}

/// The reason why a wait ended without its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// A signal.
    Interrupted,
    /// The time is over.
    TimedOut,
}

/// The remaining time of waits; each wait subtracts its duration.
///
/// `None`: for ever. `Some(0)`: look once, do not sleep.
pub type Timeout = Option<Jiffies>;

impl WaitError {
    /// The errno of a socket call whose wait ended so: `EAGAIN` when the time is over; after a
    /// signal `ERESTARTSYS` (the call may be restarted) if it would have waited for ever, else
    /// `EINTR`.
    pub fn to_errno(self, timeout: Timeout) -> Error {
        match (self, timeout) {
            (Self::TimedOut, _) => EAGAIN,
            (Self::Interrupted, None) => ERESTARTSYS,
            (Self::Interrupted, Some(_)) => EINTR,
        }
    }
}

/// Tasks that wait for something.
///
/// # Invariants
///
/// `head` is an initialised `wait_queue_head`, pinned.
#[pin_data]
#[repr(transparent)]
pub struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: a wait queue belongs to no task; its own lock guards it.
unsafe impl Send for WaitQueue {}
// SAFETY: as above: every operation takes the queue's lock.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// An empty queue. Use [`new_wait_queue!`](crate::new_wait_queue).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: initialised here, in its final place.
            head <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is the queue's final place, name and key live for ever.
                unsafe { bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr()) }
            }),
        })
    }

    /// A queue of C's.
    ///
    /// # Safety
    ///
    /// `head` must be initialised, and stay where it is for `'a`.
    pub(super) unsafe fn from_raw<'a>(head: *mut bindings::wait_queue_head) -> &'a Self {
        // SAFETY: the caller's promise; the type is transparent.
        unsafe { &*head.cast::<Self>() }
    }

    /// The queue for C, which may use it while this exists.
    pub(super) fn as_raw(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }

    /// Wakes all waiters; each looks at its condition again.
    ///
    /// Any context. Cheap without waiters. Writes before the call are seen by the condition of
    /// every woken and every later waiter.
    pub fn wake_all(&self) {
        // SAFETY: the queue is initialised (type invariant); `wq_has_sleeper` has the barrier that
        // pairs with the one in `prepare_to_wait_event`.
        if unsafe { bindings::wq_has_sleeper(self.head.get()) } {
            let normal = bindings::TASK_INTERRUPTIBLE | bindings::TASK_UNINTERRUPTIBLE;
            // SAFETY: as above; 0 means all of them.
            unsafe { bindings::__wake_up(self.head.get(), normal, 0, ptr::null_mut()) };
        }
    }

    /// Wakes the waiter that has waited longest in [`wait_in_line`](Self::wait_in_line), and all
    /// other waiters. Any context. Writes before the call are seen as with
    /// [`wake_all`](Self::wake_all).
    pub fn wake_one(&self) {
        let normal = bindings::TASK_INTERRUPTIBLE | bindings::TASK_UNINTERRUPTIBLE;
        // SAFETY: as in `wake_all`; 1 is how many of the exclusive waiters are woken.
        unsafe {
            if bindings::wq_has_sleeper(self.head.get()) {
                bindings::__wake_up(self.head.get(), normal, 1, ptr::null_mut());
            }
        }
    }

    /// Wakes one waiter in [`wait_or_poll`](Self::wait_or_poll) to do the work, and returns whether
    /// there was one. Any context. Writes that a full barrier orders before the call, such as an
    /// exchange with `Full`, are seen by [`InlinePoll::pending`] of every woken and every later
    /// waiter.
    pub fn wake_poller(&self) -> bool {
        let normal = bindings::TASK_INTERRUPTIBLE | bindings::TASK_UNINTERRUPTIBLE;
        // SAFETY: as in `wake_all`, with the caller's barrier; the result is how many of the
        // exclusive waiters it has woken.
        unsafe {
            bindings::waitqueue_active(self.head.get())
                && bindings::__wake_up(self.head.get(), normal, 1, ptr::null_mut()) > 0
        }
    }

    /// Waits until `cond` gives something.
    ///
    /// `cond` is called at once, after each wake-up, and when the time is over, so that a result
    /// that comes together with a signal or the end of the time is not lost. It may take
    /// spinlocks; it must not sleep. `timeout` is left with the time that remains.
    ///
    /// Context: process context, may sleep, no spinlock held.
    pub fn wait<R>(
        &self,
        mode: WaitMode,
        timeout: &mut Timeout,
        cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        self.wait_or_poll(mode, timeout, None::<&Nothing>, cond)
    }

    /// As [`wait`](Self::wait), as an exclusive waiter: [`wake_one`](Self::wake_one) wakes one of
    /// them. A woken thread that leaves the resource unused must wake the next one. (A thread that
    /// is woken with a signal pending or no time left looks at `cond` once more.)
    pub fn wait_in_line<R>(
        &self,
        mode: WaitMode,
        timeout: &mut Timeout,
        cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        let flags = bindings::WQ_FLAG_EXCLUSIVE as c_int;
        self.wait_as(flags, mode, timeout, None::<&Nothing>, cond)
    }

    /// As [`wait`](Self::wait), and does the work on which the condition depends, instead of
    /// leaving it to a thread that must be woken first: the source of the work wakes one waiter, by
    /// [`wake_poller`](Self::wake_poller) on [`InlinePoll::queue`], and that thread does it. A
    /// thread that has done it a few times without meeting its condition leaves it to others from
    /// then on: the work is for others.
    pub fn wait_or_poll<R, H: InlinePoll>(
        &self,
        mode: WaitMode,
        timeout: &mut Timeout,
        inline: Option<&H>,
        cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        self.wait_as(0, mode, timeout, inline, cond)
    }

    /// As [`wait_or_poll`](Self::wait_or_poll), for a caller that has just called `cond` itself:
    /// `cond` is called next when the task is on the queue.
    pub fn sleep_or_poll<R, H: InlinePoll>(
        &self,
        mode: WaitMode,
        timeout: &mut Timeout,
        inline: Option<&H>,
        cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        if *timeout == Some(0) {
            return Err(WaitError::TimedOut);
        }
        self.sleep_as(0, mode, timeout, inline, cond)
    }

    /// `flags` are those of the entry on this queue.
    fn wait_as<R, H: InlinePoll>(
        &self,
        flags: c_int,
        mode: WaitMode,
        timeout: &mut Timeout,
        inline: Option<&H>,
        mut cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        if let Some(r) = cond() {
            return Ok(r);
        }
        if *timeout == Some(0) {
            return Err(WaitError::TimedOut);
        }
        self.sleep_as(flags, mode, timeout, inline, cond)
    }

    fn sleep_as<R, H: InlinePoll>(
        &self,
        flags: c_int,
        mode: WaitMode,
        timeout: &mut Timeout,
        mut inline: Option<&H>,
        mut cond: impl FnMut() -> Option<R>,
    ) -> core::result::Result<R, WaitError> {
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        let poller = Opaque::<bindings::wait_queue_entry>::uninit();
        let mut attempts = 4;
        // Other threads must not depend on one that gets no processor.
        inline = inline.filter(|_| task::eager());
        // SAFETY: both have room for one, and do not move until `finish_wait` has taken them off.
        unsafe {
            bindings::init_wait_entry(entry.get(), flags);
            bindings::init_wait_entry(poller.get(), 0);
        }
        let out = loop {
            if let Some(work) = inline.filter(|h| h.pending()) {
                // SAFETY: both are initialised; takes them off if they are on their queues.
                unsafe {
                    bindings::finish_wait(self.head.get(), entry.get());
                    bindings::finish_wait(work.queue().head.get(), poller.get());
                }
                work.poll();
                attempts -= 1;
                if attempts == 0 {
                    inline = None;
                }
                match cond() {
                    Some(r) => break Ok(r),
                    None => continue,
                }
            }
            if let Some(inline) = inline {
                let queue = inline.queue().head.get();
                // SAFETY: queue and entry are initialised; from here until `finish_wait` this task
                // may be on the queue, and `poller` lives on its stack all that time.
                unsafe {
                    bindings::prepare_to_wait_exclusive(queue, poller.get(), mode.task_state())
                };
            }
            // The queue whose wake-up must not be missed comes last. A woken thread leaves the
            // queue, and the next `prepare_to_wait` makes it sleep all the same: on the other queue
            // that only costs an offer of work, which another thread then gets.
            // SAFETY: as above, with `entry`.
            let signal = unsafe {
                bindings::prepare_to_wait_event(self.head.get(), entry.get(), mode.task_state())
            };
            if let Some(r) = cond() {
                break Ok(r);
            }
            if signal != 0 {
                break Err(WaitError::Interrupted);
            }
            if inline.is_some_and(H::pending) {
                continue;
            }
            match timeout {
                Some(0) => break Err(WaitError::TimedOut),
                Some(left) => {
                    let limit = c_long::try_from(*left).unwrap_or(MAX_SCHEDULE_TIMEOUT - 1);
                    // SAFETY: the task is on the queue and its state is set; sleeping is its
                    // purpose here.
                    let rest = unsafe { bindings::schedule_timeout(limit) };
                    *left = Jiffies::try_from(rest).unwrap_or(0);
                }
                None => {
                    // SAFETY: as above.
                    unsafe { bindings::schedule_timeout(MAX_SCHEDULE_TIMEOUT) };
                }
            }
        };
        // SAFETY: as above; after this the queue no longer knows `entry`.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        if let Some(inline) = inline {
            // SAFETY: as above.
            unsafe { bindings::finish_wait(inline.queue().head.get(), poller.get()) };
            if inline.pending() {
                // It may be this task that was woken for it.
                inline.defer();
            }
        }
        match out {
            // Until it left the queue it may have been the one in line that was woken.
            Err(WaitError::TimedOut) if flags != 0 => cond().ok_or(WaitError::TimedOut),
            out => out,
        }
    }
}

/// Work that a waiting thread can do itself.
pub trait InlinePoll {
    /// The queue of threads that would do it.
    fn queue(&self) -> &WaitQueue;

    /// Whether there is some. Must not sleep.
    fn pending(&self) -> bool;

    /// Does it; afterwards none is [`pending`](Self::pending) until more comes. May sleep, not for
    /// long.
    fn poll(&self);

    /// Leaves it to another thread. Any context.
    fn defer(&self);
}

/// No work. It has no value.
enum Nothing {}

impl InlinePoll for Nothing {
    fn queue(&self) -> &WaitQueue {
        match *self {}
    }

    fn pending(&self) -> bool {
        match *self {}
    }

    fn poll(&self) {
        match *self {}
    }

    fn defer(&self) {
        match *self {}
    }
}

/// The kernel's "for ever".
pub(super) const MAX_SCHEDULE_TIMEOUT: c_long = c_long::MAX;

/// A [`WaitQueue`](crate::kern::wait::WaitQueue) with its own lock class, for `pin_init!`.
#[macro_export]
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::kern::wait::WaitQueue::new(::kernel::c_str!($name), ::kernel::static_lock_class!())
    };
}
