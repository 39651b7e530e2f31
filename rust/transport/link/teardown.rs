// SPDX-License-Identifier: GPL-2.0

//! The end of a link: its last completions, its queue pair and memory, and what becomes of its
//! channels and of the blocks that hold their unread data.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Full, Relaxed};
use kernel::sync::Arc;
use kernel::workqueue::WorkItem;

use super::{Link, LinkState, Queues, BACKSTOP, RESCHEDULE, TEARDOWN};
use crate::kern::fault;
use crate::kern::work::cancel_delayed;
use crate::params;
use crate::pool::lessee::{BlockUser, KeyHolder};
use crate::pool::receives::Receives;
use crate::pool::window::WindowUse;
use crate::proto::receives::Ending;
use crate::qp_link::{break_off, drain};
use crate::transport::backlog::Backlog;
use crate::transport::dgram::DGRAM_STALL;
use crate::transport::sched::Channels;

/// Flag in the count of a link's blocks: the link receives no more data.
pub(super) const ENDED: u32 = 1 << 31;

impl Link {
    /// Blocks that hold unread data of this link.
    pub(in crate::transport) fn blocks_held(&self) -> u32 {
        self.held.load(Relaxed) & !ENDED
    }

    /// No more data arrives in the link's blocks: returns its promise. A block with unread data
    /// stays promised until it is released.
    fn end_promise(&self, rx: &Receives) {
        let held = self.held.fetch_add(ENDED, Full);
        rx.unpromise(params::LINK_CREDIT.get().saturating_sub(held));
    }

    /// Takes completions until all requests of the queue pair, which is in error, have completed:
    /// the sends, and the receives of its own receive queue or the receives that it took out of a
    /// shared queue. Messages that had arrived are delivered. Bounded, for devices that lose
    /// completions. Sleeps.
    fn await_last(self: &Arc<Self>, queues: &Queues) -> Ending {
        // Receives are taken only by a queue pair that is connected.
        let used = self.accepted || self.tx.lock().was_up;
        let rx = &queues.rx;
        let ending = drain(|| {
            // Before the completions are taken: none comes after it.
            let last = self.last_receive.load(Acquire);
            self.drain(usize::MAX, &mut Backlog::default());
            let sent = {
                let tx = self.tx.lock();
                // An unsignaled message completes only on error, and owns no resources.
                tx.free.len() + tx.stuck + usize::from(tx.unsignaled) >= tx.slots.len()
            };
            let received = match rx.is_shared() {
                true => last || !used,
                false => rx.is_empty(),
            };
            let soft_roce = queues.verbs.pd.device().is_soft_roce();
            (sent && received).then_some(match (used, soft_roce) {
                (false, _) => Ending::Unused,
                (true, true) => Ending::InMessage,
                (true, false) => Ending::Complete,
            })
        });
        ending.unwrap_or(Ending::Silent)
    }

    /// Tears down a link whose state is Down. Sleeps.
    fn take_down(self: &Arc<Self>) {
        let queues = self.tx.lock().queues.clone();
        if let Some(queues) = &queues {
            break_off(&self.cm, &queues.qp);
            let ending = self.await_last(queues);
            if let Some(receives) = &mut self.tx.lock().receives {
                receives.ended(ending);
            }
        }
        let (why, retry) = self.reason();
        let (promised, share, receives, slots, ending, mut channels, buffers) = {
            let tx = &mut *self.tx.lock();
            tx.free.clear();
            (
                tx.promised,
                tx.share.take(),
                tx.receives.take(),
                core::mem::take(&mut tx.slots),
                core::mem::take(&mut tx.ending),
                core::mem::replace(&mut tx.channels, Channels::new(KVVec::new())),
                tx.buffers.take(),
            )
        };
        // A thread that is still draining finishes before this lock is taken; after it, `queues` is
        // `None`, and no thread starts to drain.
        let mut drained = self.drain.lock();
        let kept = drained.take();
        let own = self.tx.lock().queues.take();
        drop((own, kept));
        drop(drained);
        let id = self.cm.end();
        // The last references to the queue pair but those of `receives`. Dropping both destroys it,
        // after which the device accesses none of the link's memory. The id goes next; its
        // destruction waits for its handlers.
        let rx = queues.as_ref().map(|q| q.rx.clone());
        let pool = queues.as_ref().map(|q| q.pool.clone());
        drop(queues);
        cancel_delayed::<Self, BACKSTOP>(self);
        cancel_delayed::<Self, RESCHEDULE>(self);
        cancel_delayed::<Self, DGRAM_STALL>(self);
        // The last reference to the link's own receive queue, if the link has one.
        drop(receives);
        drop(id);
        drop((slots, ending));
        drop(buffers);
        if let Some(rx) = rx.filter(|_| promised) {
            self.end_promise(&rx);
        }
        if let (Some(pool), Some(holder)) = (&pool, share) {
            pool.shares.give(holder);
        }
        self.dgrams_lost(why);
        self.transport.forget_link(self);
        self.transport.probe_links(&self.net, self.remote);
        for (_, conn) in channels.drain() {
            conn.clone().link_lost(self, why, retry);
            conn.vacate_blocks();
        }
        // Unread data of channels that ended before the link did.
        if self.blocks_held() > 0 {
            self.transport.vacate_blocks();
        }
        if let Some(pool) = pool.filter(|_| promised) {
            pool.link_gave();
            self.transport.continue_links();
        }
    }
}

impl KeyHolder for Link {
    fn key_stays(self: Arc<Self>, why: &'static str) {
        self.fail_link_lost(format_args!("its peer keeps a remote key: {why}"));
    }

    fn invalidate(self: Arc<Self>, key: WindowUse) {
        {
            // Without room `key` is dropped, after the lock.
            let mut tx = self.tx.lock();
            if tx.state != LinkState::Up || tx.ending.reserve(1, GFP_NOWAIT).is_err() {
                return;
            }
            let _ = tx.ending.push_within_capacity(key);
        }
        self.schedule_poll();
    }
}

impl BlockUser for Link {
    fn block_held(&self) {
        self.held.fetch_add(1, Relaxed);
    }

    fn block_released(self: Arc<Self>, rx: &Receives) {
        let before = self.held.fetch_sub(1, Full);
        self.block_reposted();
        if before & ENDED != 0 {
            rx.unpromise(1);
        }
    }
}

impl WorkItem<TEARDOWN> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        fault::asynchronous(|| link.take_down());
    }
}
