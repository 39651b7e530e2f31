// SPDX-License-Identifier: GPL-2.0

//! Timers of the monotonic clock that fire once, and are set again from anywhere.
//!
//! C: `include/linux/hrtimer.h`. The kernel crate's `HrTimer` cancels with each handle that is
//! dropped, so that it cannot be set again while it waits without being stopped first.

use crate::{bindings, kern::task::now_ns};
use kernel::{
    container_of,
    prelude::*,
    sync::atomic::{Atomic, Full, Relaxed},
    types::Opaque,
};

/// The action of a timer.
pub trait Fire: Sized + Send + Sync + 'static {
    /// The time has come. `timer` may be set again.
    ///
    /// Context: a hard interrupt: does not sleep, takes no lock that is not taken with interrupts
    /// off, and drops nothing that must not end here, above all not `timer`. It is meant for
    /// queueing work.
    fn fire(&self, timer: &OneShot<Self>);
}

/// A timer, and its action.
///
/// # Invariants
///
/// `timer` was set up for [`Self::expired`], and is started only while the object, pinned, is
/// alive.
#[pin_data(PinnedDrop)]
pub struct OneShot<T: Fire> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    /// When it fires; 0: not at all. A thread that changes it also starts the timer.
    due: Atomic<u64>,
    target: T,
}

// SAFETY: a timer belongs to no task, and `T` may be sent.
unsafe impl<T: Fire> Send for OneShot<T> {}
// SAFETY: timers have their own lock; `T` may be shared.
unsafe impl<T: Fire> Sync for OneShot<T> {}

impl<T: Fire> OneShot<T> {
    /// A timer that is not set.
    pub fn new(target: T) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: set up here.
            timer <- Opaque::ffi_init(|place| {
                // SAFETY: `place` is room for a timer, which stays where it is.
                unsafe {
                    bindings::hrtimer_setup(
                        place,
                        Some(Self::expired),
                        bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS,
                    )
                }
            }),
            due: Atomic::new(0),
            target,
        })
    }

    /// Has it fire in `ns` nanoseconds, or when it is set to already if that is sooner. Any context
    /// but NMI.
    pub fn start_in(&self, ns: u64) {
        self.start_at(now_ns().saturating_add(ns));
    }

    /// Has it fire when the monotonic clock is at `at` nanoseconds, or when it is set to already if
    /// that is sooner. Not before [`fire`](Fire::fire) has begun is it no longer set. Any context
    /// but NMI.
    pub fn start_at(&self, at: u64) {
        let mut at = at.clamp(1, i64::MAX as u64);
        let mut due = self.due.load(Relaxed);
        loop {
            if due != 0 && due <= at {
                return;
            }
            match self.due.cmpxchg(due, at, Full) {
                Ok(_) => break,
                Err(other) => due = other,
            }
        }
        loop {
            // SAFETY: the timer is set up, and lives until `drop` has cancelled it (type
            // invariant).
            unsafe {
                bindings::hrtimer_start_range_ns(
                    self.timer.get(),
                    at as bindings::ktime_t,
                    0,
                    bindings::hrtimer_mode_HRTIMER_MODE_ABS,
                )
            };
            // A concurrent change may have started the timer before us.
            match self.due.load(Relaxed) {
                0 => return,
                due if due == at => return,
                due => at = due,
            }
        }
    }

    /// Cancels it, and waits for [`fire`](Fire::fire) to return if that runs. It may be set again
    /// as soon as this returns; the caller must prevent that if necessary.
    ///
    /// Context: a task's, with no lock that `fire` takes; not from `fire`.
    pub fn cancel(&self) {
        // SAFETY: as in `start_at`.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
        // After that: a concurrent set may be cancelled, but is never lost permanently.
        self.due.store(0, Relaxed);
    }

    /// The timer has expired.
    ///
    /// # Safety
    ///
    /// Only for a timer inside a live object of this type.
    unsafe extern "C" fn expired(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let timer = Opaque::cast_from(timer);
        // SAFETY: the caller's promise.
        let this: &Self = unsafe { &*container_of!(timer, Self, timer) };
        let due = this.due.load(Relaxed);
        // Not if it was cancelled, or a concurrent set is about to start it.
        let begun = due != 0 && due <= now_ns() && this.due.cmpxchg(due, 0, Full).is_ok();
        if begun {
            this.target.fire(this);
        }
        // SAFETY: returns a constant.
        unsafe { bindings::HRTIMER_NORESTART() }
    }
}

#[pinned_drop]
impl<T: Fire> PinnedDrop for OneShot<T> {
    /// Context: as [`OneShot::cancel`].
    fn drop(self: Pin<&mut Self>) {
        self.cancel();
    }
}
