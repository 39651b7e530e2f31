// SPDX-License-Identifier: GPL-2.0

//! The thread that takes a link's completions: one that waits for a channel of the link, woken by
//! the device's event, or a worker if no thread waits or the thread is too slow.

#![deny(unsafe_code)]

use kernel::sync::atomic::{Full, Relaxed, Release};
use kernel::sync::Arc;
use kernel::time::{msecs_to_jiffies, Jiffies};
use kernel::workqueue::WorkItem;

use super::{Link, BACKSTOP, POLL};
use crate::ib::cq::CompHandler;
use crate::kern::fault;
use crate::kern::task;

/// How long a thread that was woken to take completions may leave them in the queue, in jiffies;
/// then the worker takes them.
const INLINE_POLL_WITHIN: Jiffies = 2;

/// For how long a thread may have no processor while it takes completions, in nanoseconds.
const PREEMPTED_NS: u64 = 20_000_000;

/// After a thread had no processor for so long: for how long only the worker polls, in
/// milliseconds. The others of a busy processor will be there for a while.
const PREEMPTED_BAR_MS: u32 = 10_000;

/// After a woken thread was too slow: for how long only the worker polls at first, in milliseconds.
/// Each time it is twice as long, until a woken thread is in time again.
pub(super) const BAR_LEAST_MS: u32 = 16;
/// The longest such time.
const BAR_MOST_MS: u32 = 1024;

impl Link {
    /// A thread that was woken to take completions was too slow: for a while only the worker polls.
    fn bar_inline_poll(&self) {
        let ms = self.bar_ms.load(Relaxed);
        self.bar_ms.store((ms * 2).min(BAR_MOST_MS), Relaxed);
        if !self.is_barred() {
            self.bar_for(ms);
        }
    }

    /// Only the worker polls for `ms` milliseconds.
    fn bar_for(&self, ms: u32) {
        let until = task::jiffies().wrapping_add(msecs_to_jiffies(ms));
        self.barred.store(until as usize, Relaxed);
    }

    /// Runs `f`, in which the thread of a program takes completions. If the thread was preempted in
    /// `f` and got no processor for long, only the worker polls for a while: while the thread has
    /// the `drain` mutex, no other thread takes the link's completions.
    pub(in crate::transport) fn by_program<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = task::waited_ns();
        let result = f();
        let waited = task::waited_ns().wrapping_sub(before);
        if waited > PREEMPTED_NS {
            self.bar_for(PREEMPTED_BAR_MS);
        }
        result
    }

    pub(in crate::transport) fn is_barred(&self) -> bool {
        let left = (self.barred.load(Relaxed) as Jiffies).wrapping_sub(task::jiffies());
        (1..=msecs_to_jiffies(PREEMPTED_BAR_MS)).contains(&left)
    }

    /// Queues the worker that polls the completion queue. Any context.
    pub(in crate::transport) fn schedule_poll(self: &Arc<Self>) {
        let _ = self
            .transport
            .queue
            .enqueue::<Arc<Self>, POLL>(self.clone());
    }
}

impl CompHandler for Link {
    fn completion(this: kernel::sync::ArcBorrow<'_, Self>) {
        // Pairs with `Link::spin`: either it sees the event when it stops, or this sees it in
        // `spinning`.
        this.event.xchg(true, Full);
        let queue = &this.transport.queue;
        let spinning = this.spinning.load(Relaxed) != 0;
        if this.is_barred() || !spinning && !this.pollers.wake_poller() {
            let _ = queue.enqueue::<Arc<Self>, POLL>(Arc::from(this));
            return;
        }
        // That thread may not be scheduled for a long time. If the backstop is queued already, it
        // sees the event: it clears the flag before it looks for one.
        if this.backstopped.load(Relaxed) {
            return;
        }
        // Set first, as the work clears it.
        this.backstopped.store(true, Relaxed);
        let watch =
            queue.enqueue_delayed::<Arc<Self>, BACKSTOP>(Arc::from(this), INLINE_POLL_WITHIN);
        if watch.is_ok() {
            let drained = this.drained.load(Relaxed);
            this.watched.store(drained, Relaxed);
        }
    }

    fn failed(this: kernel::sync::ArcBorrow<'_, Self>) {
        // The link's locks cannot be taken in interrupts: the worker ends the link.
        this.broken.store(true, Relaxed);
        Arc::from(this).schedule_poll();
    }

    fn last_receive(this: kernel::sync::ArcBorrow<'_, Self>) {
        this.last_receive.store(true, Release);
        Self::failed(this);
    }
}

impl WorkItem<POLL> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        fault::asynchronous(|| link.run_completions());
    }
}

impl WorkItem<BACKSTOP> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        // If the queue was drained since, an event that is pending now may be a new one.
        let drained = link.drained.load(Relaxed);
        let others = link.watched.xchg(drained, Relaxed) != drained;
        // Pairs with `completion`: either this sees the event, or that sees the flag cleared.
        link.backstopped.xchg(false, Full);
        if !link.event.load(Relaxed) {
            // A thread was in time, unless the worker took the completions.
            if !link.is_barred() {
                link.bar_ms.store(BAR_LEAST_MS, Relaxed);
            }
            return;
        }
        let idle = task::jiffies().wrapping_sub(link.looked.load(Relaxed) as Jiffies);
        if others {
            link.bar_ms.store(BAR_LEAST_MS, Relaxed);
        }
        if others || link.spinning.load(Relaxed) != 0 && idle <= INLINE_POLL_WITHIN {
            link.backstopped.store(true, Relaxed);
            let queue = &link.transport.queue;
            let _ = queue.enqueue_delayed::<Arc<Self>, BACKSTOP>(link.clone(), INLINE_POLL_WITHIN);
            return;
        }
        link.bar_inline_poll();
        fault::asynchronous(|| link.run_completions());
    }
}
