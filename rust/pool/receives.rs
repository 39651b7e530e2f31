// SPDX-License-Identifier: GPL-2.0

//! The receive queues that a pool's blocks are posted to: the shared one of the device, or, where
//! the device has none, or with `own_receives`, one for each link, which is that of its queue pair.
//!
//! The pool records for each block the queue that it is posted to. When a queue is destroyed, the
//! blocks that are still posted to it are unused again: no device can write to them. So a link
//! with a receive queue of its own loses no block.
//!
//! A block that is lent (`kept.rs`) leaves its queue, and another one takes its place.
//!
//! A shared queue lives on when a link ends. The receives that the link's queue pair had taken
//! complete before LAST_WQE_REACHED, by the specification; but Soft-RoCE drops the one of a message
//! that has arrived in part, and a device may fail without the event. Such blocks count as posted,
//! and no message arrives in them. As many spare blocks are posted instead, and before the queue
//! could run out of them, a new queue takes its place: new links use the new one, and the old one
//! is destroyed, which brings its blocks back, when its last link has ended.
//!
//! The device tells when few blocks are left in the shared queue (IB_EVENT_SRQ_LIMIT_REACHED): a
//! peer has sent more than its credit, or blocks were lost. The worker then posts unused blocks, as
//! many as a peer could use up until its messages are looked at and its link ends.

#![deny(unsafe_code)]

use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::revocable::Revocable;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::{new_mutex, Arc, ArcBorrow, Mutex};

use super::device::Verbs;
use super::{Pool, RECV_SGE};
use crate::ib::dma::{DmaRegion, Sge};
use crate::ib::qp::Qp;
use crate::ib::srq::{Srq, SrqHandler};
use crate::kern::errno::ENOBUFS;
use crate::kern::task::now_ns;
use crate::net_warn_ratelimited;
use crate::params;
use crate::proto::receives::{self, Ending, LOW, SPARE};
use crate::proto::wire::{HEADER_LEN, SMALL_MAX};
use crate::stats::STATS;

/// The next queue after one that has failed is made no sooner than this after the last one, in
/// nanoseconds.
const RENEW_NS: u64 = 1_000_000_000;

/// The device tells no more often than this that few blocks are left, in nanoseconds: to set the
/// limit is a command of its firmware.
const LIMIT_NS: u64 = 1_000_000_000;

/// The queue itself.
enum Queue {
    Shared(Arc<Srq>),
    Own(Arc<Qp>),
}

/// The handler of a shared queue's events.
struct QueueEvents {
    pool: Arc<Pool>,
    /// The device has said that the queue has failed.
    failed: Atomic<bool>,
    /// The device has said that few blocks are left.
    low: Atomic<bool>,
}

impl SrqHandler for QueueEvents {
    fn failed(this: ArcBorrow<'_, Self>) {
        this.failed.store(true, Release);
        this.pool.queue_failed.store(true, Release);
        this.pool.look_after();
    }

    fn low(this: ArcBorrow<'_, Self>) {
        this.low.store(true, Release);
        this.pool.look_after();
    }
}

/// What posting needs, until the queue is closed.
struct Open {
    // Destroyed before the mapping of the memory that the queue's requests name.
    queue: Queue,
    region: Arc<DmaRegion>,
}

/// A receive queue.
#[pin_data]
pub(crate) struct Receives {
    pub(crate) pool: Arc<Pool>,
    /// Marks the blocks that are posted to it; never 0.
    serial: u32,
    /// The queue is shared; `None` when it was closed, or is a link's own.
    #[pin]
    shared: Mutex<Option<Arc<Srq>>>,
    /// `None` for a link's own.
    events: Option<Arc<QueueEvents>>,
    #[pin]
    open: Revocable<Open>,
    /// Blocks that are posted to it, or have data that came by it. Changes under `Pool::blocks`.
    pub(super) used: Atomic<u32>,
    /// Blocks promised to the peers of its links.
    promised: Atomic<u32>,
    /// Blocks that are posted to it, less those that have completed.
    ready: Atomic<i32>,
    /// Links that use it. Changes under `Pool::shared`.
    links: Atomic<u32>,
    /// Blocks that ended links may have left in it.
    doubtful: Atomic<u32>,
    /// Another queue has taken its place.
    replaced: Atomic<bool>,
    closed: Atomic<bool>,
}

impl Receives {
    fn new(
        pool: &Arc<Pool>,
        verbs: &Verbs,
        queue: Queue,
        shared: Option<(Arc<Srq>, Arc<QueueEvents>)>,
    ) -> Result<Arc<Self>> {
        let region = verbs.region.clone();
        let (shared, events) = shared.unzip();
        Arc::pin_init(
            try_pin_init!(Self {
                pool: pool.clone(),
                serial: pool.next_queue.fetch_add(1, Relaxed).wrapping_add(1).max(1),
                shared <- new_mutex!(shared, "zrs_pool::srq"),
                events,
                open <- Revocable::new(Open { queue, region }),
                used: Atomic::new(0),
                promised: Atomic::new(0),
                ready: Atomic::new(0),
                links: Atomic::new(0),
                doubtful: Atomic::new(0),
                replaced: Atomic::new(false),
                closed: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether links share it.
    pub(crate) fn is_shared(&self) -> bool {
        self.events.is_some()
    }

    /// Whether the device has said that the queue has failed. A link that is being made asks when
    /// it has its queue and is on the list of links: either the worker that ends the queue's links
    /// finds the link, or the link finds the failure.
    pub(crate) fn has_failed(&self) -> bool {
        let events = self.events.as_ref();
        events.is_some_and(|events| events.failed.load(Acquire))
    }

    /// Whether no block is posted to it, as far as completions have told.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.load(Relaxed) <= 0
    }

    /// Whether `shared` is this queue.
    fn is(&self, shared: &Option<Arc<Self>>) -> bool {
        let shared = shared.as_ref();
        shared.is_some_and(|shared| shared.serial == self.serial)
    }

    /// Blocks that may be posted without being promised.
    fn spare(&self) -> u32 {
        let current = self.is_shared() && !self.replaced.load(Relaxed);
        receives::spare(current, self.doubtful.load(Relaxed))
    }

    fn post(&self, open: &Open, block: u32) -> Result {
        let (header, data) = (Pool::header_at(block), self.pool.block_at(block));
        let region = &open.region;
        region.sync_for_device(header, HEADER_LEN)?;
        region.sync_for_device(data, SMALL_MAX as usize)?;
        let sges: [Sge; RECV_SGE as usize] = [
            region.sge(header, HEADER_LEN)?,
            region.sge(data, SMALL_MAX as usize)?,
        ];
        let posted = self.pool.posted_to(block).ok_or(EINVAL)?;
        // Counted before the device can use the block.
        posted.store(self.serial, Relaxed);
        self.ready.fetch_add(1, Relaxed);
        let result = match &open.queue {
            Queue::Shared(srq) => srq.post(u64::from(block), &sges),
            Queue::Own(qp) => qp.post_recv(u64::from(block), &sges),
        };
        if let Err(e) = result {
            posted.store(0, Relaxed);
            self.ready.fetch_sub(1, Relaxed);
            return Err(e);
        }
        STATS.recv_requests.add(1);
        Ok(())
    }

    /// Posts more blocks until `least` are in use, and some more if there is room. False if fewer
    /// than `least` are. Does not sleep.
    fn carve(&self, open: &Open, least: u32) -> bool {
        let want = least.saturating_add(self.spare());
        while let Some(block) = self.pool.take_idle(self, want) {
            if self.post(open, block).is_err() {
                pr_warn_once!("the receive queue does not take a block\n");
                // It is tried again with the next one.
                self.pool.put_idle(self, block);
                break;
            }
        }
        self.used.load(Relaxed) >= least
    }

    /// Posts blocks until `least` are in use at least, or as many as are promised. False if there
    /// are not that many. Does not sleep.
    pub(super) fn fill(&self, least: u32) -> bool {
        let least = least.max(self.promised.load(Relaxed));
        let open = self.open.try_access();
        open.is_some_and(|open| self.carve(&open, least))
    }

    /// A block has come out of the queue.
    pub(crate) fn taken(&self, block: u32) {
        if let Some(posted) = self.pool.posted_to(block) {
            posted.store(0, Relaxed);
        }
        let left = self.ready.fetch_sub(1, Relaxed) - 1;
        // A link's own queue is empty when its peer has used its credit.
        if self.is_shared() {
            self.pool.left_ready(left);
        }
    }

    /// Posts a block again, if the queue is still there and no more blocks are in use than are
    /// needed.
    pub(crate) fn repost(&self, block: u32) {
        // The RCU guard keeps the queue.
        if let Some(open) = self.open.try_access() {
            let promised = self.promised.load(Relaxed);
            let most = promised.saturating_add(self.spare());
            if self.used.load(Relaxed) <= most && self.post(&open, block).is_ok() {
                return;
            }
            self.pool.put_idle(self, block);
            // This also retries a block that could not be posted.
            self.carve(&open, promised);
            return;
        }
        self.pool.put_idle(self, block);
        self.pool.refill();
    }

    /// A receive has failed. A queue pair in error fails whatever is posted to its own queue, so
    /// the block is not posted to that again.
    pub(crate) fn failed(&self, block: u32) {
        if self.is_shared() {
            self.repost(block);
        } else {
            self.pool.put_idle(self, block);
        }
    }

    /// Promises `params::LINK_CREDIT` blocks to a link; false when all blocks are promised, or the
    /// budget has no room for more. With `reserve`, the blocks of one link are kept.
    pub(crate) fn promise(&self, reserve: bool) -> bool {
        let credit = params::LINK_CREDIT.get();
        let (pool, mine) = (&self.pool, &self.promised);
        let all = pool.promised.fetch_add(credit, Full).saturating_add(credit);
        let least = mine.fetch_add(credit, Full).saturating_add(credit);
        let fits = all.saturating_add(pool.lent()) <= pool.most_promised(reserve)
            && self
                .open
                .try_access()
                .is_some_and(|open| self.carve(&open, least));
        if !fits {
            self.unpromise(credit);
        }
        fits
    }

    /// Takes the promise of `blocks` back when the link has ended.
    pub(crate) fn unpromise(&self, blocks: u32) {
        self.promised.fetch_sub(blocks, Full);
        self.pool.promised.fetch_sub(blocks, Full);
    }

    /// Nothing is posted from now on. Sleeps.
    fn close(&self) {
        self.closed.store(true, Relaxed);
        self.open.revoke();
    }

    /// The queue was destroyed: the blocks that are still posted to it are unused. Sleeps.
    fn reclaim(&self) {
        for block in 0..self.pool.layout.blocks {
            let posted = self.pool.posted_to(block);
            if let Some(posted) = posted.filter(|p| p.load(Relaxed) == self.serial) {
                posted.store(0, Relaxed);
                self.ready.fetch_sub(1, Relaxed);
                self.pool.put_idle(self, block);
            }
        }
        self.pool.refill();
    }

    /// Closes a shared queue without links, and destroys it. Sleeps.
    fn end(&self) {
        self.close();
        let srq = self.shared.lock().take();
        match srq.and_then(Arc::into_unique_or_drop) {
            Some(srq) => {
                drop(srq);
                self.reclaim();
            }
            None => pr_warn!("a shared receive queue is in use after its end\n"),
        }
    }
}

/// A link's place at a receive queue. Dropped after all other references to the link's queue pair.
/// Dropping it sleeps.
pub(crate) struct LinkReceives {
    rx: Arc<Receives>,
    /// The queue pair whose own queue it is.
    own: Option<Arc<Qp>>,
    ending: Ending,
}

impl LinkReceives {
    /// The queue.
    pub(crate) fn queue(&self) -> &Arc<Receives> {
        &self.rx
    }

    /// The shared queue; `None` if it was closed, or is the link's own. Sleeps.
    pub(crate) fn srq(&self) -> Option<Arc<Srq>> {
        self.rx.shared.lock().clone()
    }

    /// The link's queue pair could have taken receives, and has ended in this way.
    pub(crate) fn ended(&mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for LinkReceives {
    fn drop(&mut self) {
        let Some(qp) = self.own.take() else {
            self.rx.pool.link_left(&self.rx, self.ending);
            return;
        };
        self.rx.close();
        match Arc::into_unique_or_drop(qp) {
            Some(qp) => {
                // Destroys the queue pair.
                drop(qp);
                self.rx.reclaim();
            }
            None => pr_warn!("a queue pair is in use after its link's end\n"),
        }
    }
}

impl Pool {
    /// Makes a shared receive queue. Sleeps.
    fn new_shared(self: &Arc<Self>) -> Result<Arc<Receives>> {
        let verbs = self.verbs().ok_or(ENODEV)?;
        let events = QueueEvents {
            pool: self.clone(),
            failed: Atomic::new(false),
            low: Atomic::new(false),
        };
        let events = Arc::new(events, GFP_KERNEL)?;
        let srq = Srq::new(&verbs.pd, self.layout.blocks, RECV_SGE, events.clone())?;
        STATS.resources_made.add(1);
        let shared = Some((srq.clone(), events));
        Receives::new(self, &verbs, Queue::Shared(srq), shared)
    }

    /// Opens the shared receive queue, with `least` blocks. Sleeps. ENOBUFS if the budget has no
    /// room for them.
    pub(super) fn open_shared(self: &Arc<Self>, least: u32) -> Result {
        let rx = self.new_shared()?;
        *self.shared.lock() = Some(rx.clone());
        if rx.fill(least) {
            self.set_limit_soon();
            return Ok(());
        }
        self.close_shared();
        Err(ENOBUFS)
    }

    /// The device is being removed, and its links are gone: closes the shared receive queue.
    /// Sleeps.
    pub(super) fn close_shared(&self) {
        let rx = self.shared.lock().take();
        if let Some(rx) = rx.filter(|rx| !rx.closed.xchg(true, Full)) {
            rx.end();
        }
    }

    /// The place of a new link at the shared receive queue. `None` if each link has its own.
    /// ENODEV when it is being removed; ENOBUFS when it has failed and there is no other one yet.
    pub(crate) fn enter_shared(self: &Arc<Self>) -> Result<Option<LinkReceives>> {
        if self.own_queues {
            return Ok(None);
        }
        let shared = self.shared.lock();
        let rx = shared.as_ref().ok_or(ENODEV)?.clone();
        if rx.has_failed() {
            // A queue that failed before it was in its place was not seen by the worker.
            self.queue_failed.store(true, Release);
            self.look_after();
            return Err(ENOBUFS);
        }
        rx.links.fetch_add(1, Relaxed);
        Ok(Some(LinkReceives {
            rx,
            own: None,
            ending: Ending::Unused,
        }))
    }

    /// The place of a new link whose queue pair has a receive queue of its own. Sleeps. ENODEV,
    /// ENOMEM.
    pub(crate) fn enter_own(self: &Arc<Self>, qp: &Arc<Qp>) -> Result<LinkReceives> {
        let verbs = self.verbs().ok_or(ENODEV)?;
        let rx = Receives::new(self, &verbs, Queue::Own(qp.clone()), None)?;
        Ok(LinkReceives {
            rx,
            own: Some(qp.clone()),
            ending: Ending::Unused,
        })
    }

    /// A link has left a shared queue, and its queue pair is gone. Sleeps.
    fn link_left(self: &Arc<Self>, rx: &Arc<Receives>, ending: Ending) {
        let due = {
            let shared = self.shared.lock();
            let links = rx.links.fetch_sub(1, Relaxed) - 1;
            let doubtful = rx.doubtful.fetch_add(ending.doubtful(), Relaxed);
            let doubtful = doubtful.saturating_add(ending.doubtful());
            let unused = self.layout.blocks.saturating_sub(self.blocks_used());
            let room = unused >= params::LINK_CREDIT.get();
            rx.is(&shared) && receives::is_worn(doubtful, links, room)
        };
        if due {
            self.replace(rx);
        }
        self.end_if_left(rx);
        self.refill();
        if due {
            self.set_limit_soon();
        }
    }

    /// Puts a new queue in the place of `rx`, if that is the shared queue still. Without a new one,
    /// it stays. Sleeps.
    fn replace(self: &Arc<Self>, rx: &Arc<Receives>) {
        let fresh = self.new_shared().ok();
        let unused = {
            let mut shared = self.shared.lock();
            match fresh {
                Some(fresh) if rx.is(&shared) => {
                    rx.replaced.store(true, Relaxed);
                    shared.replace(fresh)
                }
                other => other,
            }
        };
        drop(unused);
    }

    /// Destroys a shared queue that another one has replaced, if no link uses it any more. Sleeps.
    fn end_if_left(&self, rx: &Arc<Receives>) {
        let over = {
            let shared = self.shared.lock();
            let left = rx.links.load(Relaxed) != 0 || rx.is(&shared);
            !left && !rx.closed.xchg(true, Full)
        };
        if over {
            rx.end();
        }
    }

    /// If a shared receive queue has failed, ends its links; new ones use a new queue. Sleeps.
    pub(super) fn leave_failed_queue(self: &Arc<Self>) {
        if !self.queue_failed.xchg(false, Full) {
            return;
        }
        let rx = self.shared.lock().clone();
        let failed = rx.filter(|rx| rx.has_failed());
        let now = now_ns();
        if let Some(rx) = failed
            .as_ref()
            .filter(|_| now >= self.renew_at.load(Relaxed))
        {
            self.renew_at.store(now.saturating_add(RENEW_NS), Relaxed);
            self.replace(rx);
        }
        self.pools.end_failed_links();
        let Some(rx) = failed else { return };
        if rx.is(&self.shared.lock()) {
            // There is no new one yet.
            self.queue_failed.store(true, Release);
            self.pools.watch_waiters();
        } else {
            self.end_if_left(&rx);
            self.refill();
            self.set_limit_soon();
        }
    }

    /// If few blocks are left in the shared receive queue, posts unused ones. Has the device tell
    /// of that again, when it is time. Sleeps.
    pub(super) fn fill_low_queue(&self) {
        let now = now_ns();
        // Before the queue is looked up: a queue that comes later is not missed.
        let due = now >= self.limit_at.load(Relaxed);
        if due {
            self.limit_at.xchg(u64::MAX, Full);
        }
        let Some(rx) = self.shared.lock().clone() else {
            return;
        };
        let events = rx.events.as_ref();
        if events.is_some_and(|events| events.low.xchg(false, Full)) {
            if let Some(verbs) = self.verbs() {
                let name = verbs.pd.device().name();
                net_warn_ratelimited!("{name}: few blocks left in the shared receive queue\n");
            }
            rx.fill(rx.promised.load(Relaxed).saturating_add(SPARE));
            self.limit_at.store(now.saturating_add(LIMIT_NS), Relaxed);
            self.pools.watch_waiters();
        }
        if !due {
            return;
        }
        let shared = rx.shared.lock();
        if let Some(srq) = &*shared {
            // A driver may have no such limit.
            let _ = srq.set_limit(LOW);
        }
    }

    /// There is another shared receive queue: the worker sets its limit. Does not sleep.
    fn set_limit_soon(self: &Arc<Self>) {
        self.limit_at.store(0, Relaxed);
        self.look_after();
    }

    /// Whether the worker has to set the limit of the shared receive queue, now or later.
    pub(super) fn lacks_limit(&self) -> bool {
        self.limit_at.load(Relaxed) != u64::MAX
    }

    /// Whether a shared receive queue has failed, and there is no other one yet.
    pub(super) fn lacks_queue(&self) -> bool {
        self.queue_failed.load(Acquire)
    }

    /// Posts blocks to the shared queue, as many as are promised, and some more. Does not sleep.
    pub(super) fn refill(&self) {
        let rx = self.shared.lock().clone();
        if let Some(rx) = rx {
            rx.fill(0);
        }
    }

    /// The record of the queue that a block is posted to: its serial number, or 0.
    fn posted_to(&self, block: u32) -> Option<&Atomic<u32>> {
        self.posted.get(block as usize)
    }

    /// So many blocks are left in a shared receive queue.
    fn left_ready(&self, left: i32) {
        if left < self.ready_low.load(Relaxed) {
            self.ready_low.store(left, Relaxed);
        }
        if left <= 0 {
            self.cache.counts.dry.add(1);
        }
    }
}
