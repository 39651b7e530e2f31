// SPDX-License-Identifier: GPL-2.0

//! Timers of channels: the deadline of connect(), and the retry when the peer's backlog was full;
//! the deadline for a revoked window; the deadline for the end of a channel whose socket is closed;
//! TCP_USER_TIMEOUT; and the deadline of corked bytes. Channels with a timer are in a list, so that
//! the others cost nothing.
//!
//! Locks: `timers` (mutex), a leaf.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::conn::ConnOps;
use super::context::{Transport, TIMERS};
use crate::kern::fault;
use crate::kern::task::now_ns;
use crate::proto::ChanId;

/// The longest time between two checks of timers, while there are any, in nanoseconds.
const DEADLINES_NS: u64 = 1_000_000_000;

/// The channels that have a timer.
pub(super) struct TimerList {
    list: KVVec<ChanId>,
    /// Adding a channel failed for lack of memory: the next check adds them by a scan of all
    /// channels.
    all: bool,
    /// When the next check is due, in nanoseconds of the monotonic clock; `u64::MAX`: none is.
    due: u64,
}

impl TimerList {
    /// An empty list.
    pub(super) const fn new() -> Self {
        Self {
            list: KVVec::new(),
            all: false,
            due: u64::MAX,
        }
    }

    fn add(&mut self, id: ChanId) {
        self.all |= self.list.push(id, GFP_KERNEL).is_err();
    }
}

impl Transport {
    /// The channel of a connection has a timer from now on, or an earlier one. Sleeps.
    pub(crate) fn arm_timer(self: &Arc<Self>, conn: &dyn ConnOps) {
        let (id, due) = conn.watch();
        let mut timers = self.timers.lock();
        if let Some(id) = id {
            timers.add(id);
        }
        self.look_at(&mut timers, due.unwrap_or(u64::MAX));
    }

    /// Schedules a check of the timers at `due`, in nanoseconds of the monotonic clock, if none is
    /// due before; the time is limited by [`DEADLINES_NS`].
    fn look_at(self: &Arc<Self>, timers: &mut TimerList, due: u64) {
        let now = now_ns();
        let due = due.min(now.saturating_add(DEADLINES_NS));
        if due >= timers.due {
            return;
        }
        timers.due = due;
        let ms = (due.saturating_sub(now) / 1_000_000 + 1) as u32;
        let delay = msecs_to_jiffies(ms);
        self.queue
            .enqueue_or_move::<Transport, TIMERS>(self.clone(), delay);
    }

    /// Fallback after an allocation failure: scans all channels for timers.
    fn note_all(self: &Arc<Self>) {
        let mut q = 0;
        while let Some((at, conn)) = self.table.next_from(q) {
            if let Some(id) = conn.watch_if_due() {
                // A duplicate in the list does no harm.
                self.timers.lock().add(id);
            }
            q = at + 1;
        }
    }

    fn run_timers(self: &Arc<Self>) {
        let now = now_ns();
        let mut next = u64::MAX;
        let (mut list, all) = {
            let mut timers = self.timers.lock();
            timers.due = u64::MAX;
            let all = core::mem::take(&mut timers.all);
            (core::mem::replace(&mut timers.list, KVVec::new()), all)
        };
        list.retain(|id| {
            let conn = self.table.owner(*id);
            let due = conn.and_then(|conn| conn.check_timers(*id, now));
            next = next.min(due.unwrap_or(u64::MAX));
            due.is_some()
        });
        if all {
            self.note_all();
        }
        // Other threads may have added channels in between.
        let mut timers = self.timers.lock();
        core::mem::swap(&mut timers.list, &mut list);
        for id in list {
            timers.add(id);
        }
        if !timers.list.is_empty() || timers.all {
            self.look_at(&mut timers, next);
        }
    }
}

impl WorkItem<TIMERS> for Transport {
    type Pointer = Arc<Transport>;

    fn run(transport: Arc<Transport>) {
        fault::asynchronous(|| transport.run_timers());
    }
}
