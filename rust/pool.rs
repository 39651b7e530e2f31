// SPDX-License-Identifier: GPL-2.0

//! Receive memory: the pool of each device, and its users.
//!
//! `context` has the state shared by all pools; `device` the RDMA devices; `cache` the budget of
//! the pools of a last-level cache, and the escape of old data from them; `extent` a contiguous
//! piece of a pool; `lease` the leases of windows (`window`); `reserve` the main memory promised
//! for escaped data; `reclaim` the pages that programs map; `lessee` the traits that users of a
//! pool implement. Nothing here knows links, channels or sockets.
//!
//! A pool begins as one physically contiguous area, its first extent.
//!
//! This extent begins with the headers and the blocks of the shared receive queue. They are posted
//! ahead of need: the number promised to the peers of links, and some more. The rest is leased, in
//! windows, to channels with bulk data. Each lease has a registration of exactly its pages; when it
//! ends, the registration is removed, then the pages are zeroed, then they are free. The memory
//! outlives the device for as long as a program maps some of it. The devices of a cache share the
//! budget for memory in use ([`Cache`]); a pool that may use more than it has grows by another
//! extent.
//!
//! Locks: `windows` (mutex), `growing` (mutex), `extents` (mutex), then the spinlocks `blocks`,
//! those of [`Extent`] and `Window::mr`, never two of these at once. `verbs` is read under RCU.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::alloc::Flags;
use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::revocable::Revocable;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::time::Jiffies;
use kernel::workqueue::{impl_has_work, new_work, Work};

pub(crate) mod cache;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod extent;
pub(crate) mod lease;
pub(crate) mod lessee;
mod reclaim;
pub(crate) mod reserve;
mod unread;
pub(crate) mod window;

use crate::ib::dma::Sge;
use crate::kern::contig::{ContigPages, Payload};
use crate::kern::errno::ENOBUFS;
use crate::kern::task;
use crate::params;
use crate::proto::wire::{HEADER_LEN, SMALL_MAX};
use crate::proto::ChanId;
use crate::stats::STATS;
use cache::{Cache, Copied};
use context::Pools;
use device::Verbs;
use extent::Extent;
use lease::WindowWaiter;
use lessee::BlockUser;
use unread::UnreadBlocks;
use window::Window;

/// Blocks that are posted in addition to the promised ones.
const SPARE: u32 = 32;

/// A pool with blocks for at least so many links keeps those of one in reserve.
const RESERVE_FROM: u32 = 4;

/// Bytes from one header to the next, so that no two share a cache line.
const HEADER_ROOM: usize = 128;

/// How a pool is divided, in pages.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) pages: usize,
    pub(crate) blocks: u32,
    first_block: usize,
    pub(crate) first_window: usize,
}

impl Layout {
    /// Divides `pages` pages as the parameters say, with at most a quarter in blocks. EINVAL if the
    /// pool is too small for one link.
    pub(crate) fn new(pages: usize, max_srq_wr: u32) -> Result<Self> {
        let blocks = (params::BLOCKS.get() as usize)
            .min(pages / 4)
            .min(max_srq_wr as usize);
        if blocks < params::LINK_CREDIT.get() as usize {
            return Err(EINVAL);
        }
        let first_block = (blocks * HEADER_ROOM).div_ceil(PAGE_SIZE);
        Ok(Self {
            pages,
            blocks: blocks as u32,
            first_block,
            first_window: first_block + blocks,
        })
    }
}

/// The blocks of a pool.
struct Blocks {
    /// Blocks that are not in use.
    idle: KVec<u32>,
    /// The device is gone.
    gone: bool,
}

/// A receive pool.
#[pin_data]
pub(crate) struct Pool {
    pub(crate) pools: Arc<Pools>,
    pub(crate) layout: Layout,
    pub(crate) cache: Arc<Cache>,
    /// The device's rate, in bytes a microsecond.
    pub(crate) rate: u32,
    /// The extent with the blocks.
    base: Arc<Extent>,
    /// All extents.
    #[pin]
    pub(crate) extents: Mutex<KVec<Arc<Extent>>>,
    /// Serialises growth. No new attempt to grow is made before this time, in jiffies.
    #[pin]
    pub(crate) growing: Mutex<Jiffies>,
    /// Revoked when the device is removed.
    #[pin]
    verbs: Revocable<Arc<Verbs>>,
    #[pin]
    pub(crate) windows: Mutex<KVec<Arc<Window>>>,
    /// Lessees that wait for a window, oldest first.
    #[pin]
    pub(crate) waiters: Mutex<KVec<WindowWaiter>>,
    /// Requests of peers that the worker has not handled yet.
    #[pin]
    requests: Mutex<KVec<WindowWaiter>>,
    /// Blocks promised to the peers of links.
    promised: Atomic<u32>,
    /// The unread data in blocks.
    unread: UnreadBlocks,
    /// Blocks in the shared receive queue now (`ready`), and the lowest number so far
    /// (`ready_low`).
    ready: Atomic<i32>,
    ready_low: Atomic<i32>,
    #[pin]
    blocks: SpinLock<Blocks>,
    /// Blocks that are in use, in the shared receive queue or with data. Changes under `blocks`.
    blocks_used: Atomic<u32>,
    #[pin]
    work: Work<Pool>,
}

impl_has_work! {
    impl HasWork<Self> for Pool { self.work }
}

impl Pool {
    /// A pool with `layout` in `base`, of a device that can send `rate` bytes a microsecond.
    /// ENOMEM; ENOBUFS without room in the budget. Sleeps.
    pub(crate) fn new(
        pools: &Arc<Pools>,
        layout: Layout,
        base: Arc<Extent>,
        verbs: Arc<Verbs>,
        cache: &Arc<Cache>,
        rate: u32,
    ) -> Result<Arc<Self>> {
        let mut idle = KVec::with_capacity(layout.blocks as usize, GFP_KERNEL)?;
        for block in (0..layout.blocks).rev() {
            idle.push(block, GFP_KERNEL)?;
        }
        let blocks = Blocks { idle, gone: false };
        let mut extents = KVec::new();
        extents.push(base.clone(), GFP_KERNEL)?;
        let unread = UnreadBlocks::new(layout.blocks)?;
        let mine = verbs.clone();
        let pool = Arc::pin_init(
            try_pin_init!(Self {
                pools: pools.clone(),
                layout,
                cache: cache.clone(),
                rate,
                base,
                extents <- new_mutex!(extents, "zrs_pool::extents"),
                growing <- new_mutex!(task::jiffies().wrapping_sub(1), "zrs_pool::growing"),
                verbs <- Revocable::new(mine),
                windows <- new_mutex!(KVec::new(), "zrs_pool::windows"),
                waiters <- new_mutex!(KVec::new(), "zrs_pool::waiters"),
                requests <- new_mutex!(KVec::new(), "zrs_pool::requests"),
                promised: Atomic::new(0),
                unread,
                ready: Atomic::new(0),
                ready_low: Atomic::new(i32::MAX),
                blocks <- new_spinlock!(blocks, "zrs_pool::blocks"),
                blocks_used: Atomic::new(0),
                work <- new_work!("zrs_pool::work"),
            }),
            GFP_KERNEL,
        )?;
        // The other devices of the cache may have used up the budget: then this device cannot be
        // used.
        if !pool.carve(&verbs, params::LINK_CREDIT.get()) {
            pool.give_blocks();
            return Err(ENOBUFS);
        }
        Ok(pool)
    }

    /// The memory that the blocks are in.
    fn memory(&self) -> &ContigPages {
        self.base.memory()
    }

    /// The verbs objects of the pool's device; `None` once the device is gone.
    pub(crate) fn verbs(&self) -> Option<Arc<Verbs>> {
        self.verbs.try_access_with(|verbs| verbs.clone())
    }

    fn header_at(block: u32) -> usize {
        block as usize * HEADER_ROOM
    }

    fn block_at(&self, block: u32) -> usize {
        (self.layout.first_block + block as usize) << PAGE_SHIFT
    }

    fn post(&self, verbs: &Verbs, block: u32) -> Result {
        verbs
            .region
            .sync_for_device(Self::header_at(block), HEADER_LEN)?;
        verbs
            .region
            .sync_for_device(self.block_at(block), SMALL_MAX as usize)?;
        let sges: [Sge; 2] = [
            verbs.region.sge(Self::header_at(block), HEADER_LEN)?,
            verbs.region.sge(self.block_at(block), SMALL_MAX as usize)?,
        ];
        // Counted before the device can use the block.
        self.ready.fetch_add(1, Relaxed);
        if let Err(e) = verbs.srq.post(u64::from(block), &sges) {
            self.ready.fetch_sub(1, Relaxed);
            return Err(e);
        }
        STATS.recv_requests.add(1);
        Ok(())
    }

    /// Posts more blocks to the shared receive queue until `least` are in use, and some more if
    /// there is room. False if fewer than `least` are. Does not sleep.
    fn carve(&self, verbs: &Verbs, least: u32) -> bool {
        let want = least.saturating_add(SPARE).min(self.layout.blocks);
        while let Some(block) = self.take_idle(want) {
            if self.post(verbs, block).is_err() {
                pr_warn_once!("the shared receive queue does not take a block\n");
                // It is tried again with the next one.
                self.put_idle(block);
                break;
            }
        }
        self.blocks_used() >= least
    }

    /// Takes an unused block, unless `want` blocks are in use or the budget has no page left.
    fn take_idle(&self, want: u32) -> Option<u32> {
        let mut blocks = self.blocks.lock();
        if blocks.gone || self.blocks_used() >= want || !self.cache.take_block() {
            return None;
        }
        let block = blocks.idle.pop();
        match block {
            Some(_) => _ = self.blocks_used.fetch_add(1, Relaxed),
            None => self.cache.give_block(),
        }
        block
    }

    /// Puts a block back that is not in use any more.
    fn put_idle(&self, block: u32) {
        let mut blocks = self.blocks.lock();
        if !blocks.gone {
            // Within capacity.
            let _ = blocks.idle.push_within_capacity(block);
            self.blocks_used.fetch_sub(1, Relaxed);
            self.cache.give_block();
        }
    }

    /// Gives the budget of all blocks back; no block is used from now on.
    pub(crate) fn give_blocks(&self) {
        let mut blocks = self.blocks.lock();
        blocks.gone = true;
        for _ in 0..self.blocks_used.xchg(0, Relaxed) {
            self.cache.give_block();
        }
    }

    /// Blocks that are in use, in the shared receive queue or with data.
    fn blocks_used(&self) -> u32 {
        self.blocks_used.load(Relaxed)
    }

    /// A block has come out of the shared receive queue.
    pub(crate) fn taken(&self) {
        let left = self.ready.fetch_sub(1, Relaxed) - 1;
        if left < self.ready_low.load(Relaxed) {
            self.ready_low.store(left, Relaxed);
        }
        if left <= 0 {
            self.cache.counts.dry.add(1);
        }
    }

    /// Posts a block to the shared receive queue again, if the device is still there and no more
    /// blocks are in use than are needed.
    pub(crate) fn repost(&self, block: u32) {
        // The RCU guard keeps the device.
        let Some(verbs) = self.verbs.try_access() else {
            return;
        };
        let promised = self.promised.load(Relaxed);
        let surplus = self.blocks_used() > promised.saturating_add(SPARE);
        if !surplus && self.post(&verbs, block).is_ok() {
            return;
        }
        self.put_idle(block);
        // This also retries a block that could not be posted.
        self.carve(&verbs, promised);
    }

    /// The header of a message that has arrived in `block`, with `payload` bytes behind the header.
    pub(crate) fn read_header(
        &self,
        verbs: &Verbs,
        block: u32,
        payload: usize,
    ) -> Result<[u8; HEADER_LEN]> {
        verbs
            .region
            .sync_for_cpu(Self::header_at(block), HEADER_LEN)?;
        if payload > 0 {
            verbs.region.sync_for_cpu(self.block_at(block), payload)?;
        }
        self.memory().read(Self::header_at(block))
    }

    /// Copies the payload of a block out of it, so that the block can be used again.
    pub(crate) fn copy_payload(&self, block: u32, len: usize, flags: Flags) -> Result<Copied> {
        let mut bytes = KVVec::from_elem(0_u8, len, flags)?;
        self.read_payload(block, &mut bytes)?;
        Ok(Copied::new(bytes, self.cache.clone()))
    }

    /// Copies the first bytes of a block's payload to `out`. EINVAL if they are more than a block
    /// has.
    pub(crate) fn read_payload(&self, block: u32, out: &mut [u8]) -> Result {
        self.memory().copy_payload(self.block_at(block), out)
    }

    /// How many blocks may be promised. With `reserve`, a pool with blocks for several links keeps
    /// those of one.
    fn most_promised(&self, reserve: bool) -> u32 {
        let credit = params::LINK_CREDIT.get();
        let reserved = match self.layout.blocks / credit {
            RESERVE_FROM.. if reserve => credit,
            _ => 0,
        };
        self.layout.blocks - reserved
    }

    /// Whether [`Self::promise`] has blocks for another link just now.
    pub(crate) fn may_promise(&self, reserve: bool) -> bool {
        let promised = self.promised.load(Relaxed);
        promised.saturating_add(params::LINK_CREDIT.get()) <= self.most_promised(reserve)
    }

    /// Promises `params::LINK_CREDIT` blocks to a link; false when all blocks are promised, or the
    /// budget has no room for more. With `reserve`, the blocks of one link are kept.
    pub(crate) fn promise(&self, reserve: bool) -> bool {
        let credit = params::LINK_CREDIT.get();
        let all = self.promised.fetch_add(credit, Full).saturating_add(credit);
        let verbs = self.verbs();
        let fits = all <= self.most_promised(reserve)
            && verbs.is_some_and(|verbs| self.carve(&verbs, all));
        if !fits {
            self.promised.fetch_sub(credit, Full);
        }
        fits
    }

    /// Takes the promise of `blocks` back when the link has ended.
    pub(crate) fn unpromise(&self, blocks: u32) {
        self.promised.fetch_sub(blocks, Full);
    }

    /// The device is being removed: its registrations and queues are destroyed, the memory stays.
    /// Sleeps.
    pub(crate) fn device_gone(&self) {
        let verbs = self.verbs();
        self.verbs.revoke();
        for window in self.windows.lock().iter() {
            window.deregister();
            // The device writes no more into the window, so it does not count in the budget.
            window.give_pages();
        }
        for extent in self.extents.lock().iter() {
            extent.device_gone();
        }
        drop(verbs);
        self.fail_waiters();
        self.reap();
        self.give_blocks();
        self.cache.leave(Some(self), self.rate);
    }

    /// The oldest data in its windows and blocks. Sleeps.
    pub(crate) fn oldest(&self) -> Option<Oldest<'_>> {
        let extents = self.extents.lock();
        let windows = extents.iter().filter_map(|extent| {
            let (page, user, since) = extent.oldest()?;
            Some((extent, page, user, since))
        });
        let window = windows.min_by_key(|(.., since)| *since);
        let window = window.map(|(extent, page, user, since)| Oldest {
            place: UnreadPlace::Window(extent.clone(), page),
            user,
            since,
        });
        let block = self.unread.oldest().map(|(block, user, since)| Oldest {
            place: UnreadPlace::Block(&self.unread, block),
            user,
            since,
        });
        [window, block]
            .into_iter()
            .flatten()
            .min_by_key(|o| o.since)
    }

    /// Makes deferred data, which could not be moved, a candidate again. Sleeps.
    pub(crate) fn retry_deferred(&self) {
        self.unread.retry_deferred(task::now_ns());
        self.extents.lock().iter().for_each(|e| e.retry_deferred());
    }

    /// Whether there is data that could not be moved. Sleeps.
    pub(crate) fn has_deferred(&self) -> bool {
        self.unread.has_deferred() || self.extents.lock().iter().any(|e| e.has_deferred())
    }

    /// Its current use, for statistics.
    pub(crate) fn usage(&self) -> Usage {
        let mut pages = self.layout.first_window;
        let mut leased = 0;
        for extent in self.extents.lock().iter() {
            let (all, used) = extent.leasable();
            pages += all;
            leased += used;
        }
        let used = self.blocks_used();
        Usage {
            bytes: pages << PAGE_SHIFT,
            blocks: self.layout.first_window << PAGE_SHIFT,
            leased: leased << PAGE_SHIFT,
            windows: self.windows.lock().len(),
            held: self.unread.held(),
            blocks_used: used,
            blocks_low: (self.ready_low.load(Relaxed).max(0) as u32).min(used),
        }
    }
}

/// Unread data of a pool.
pub(crate) struct Oldest<'a> {
    place: UnreadPlace<'a>,
    pub(crate) user: ChanId,
    /// Start of its age, in nanoseconds of the monotonic clock.
    pub(crate) since: u64,
}

/// Where unread data is: in a page of an extent, or in a block.
enum UnreadPlace<'a> {
    Window(Arc<Extent>, usize),
    Block(&'a UnreadBlocks, u32),
}

impl Oldest<'_> {
    /// The data cannot be moved now: other data comes first.
    pub(crate) fn defer(&self) {
        match &self.place {
            UnreadPlace::Window(extent, page) => extent.defer(*page),
            UnreadPlace::Block(blocks, block) => blocks.defer(*block, self.since),
        }
    }
}

/// The current use of a pool: memory in bytes, windows and blocks by number.
pub(crate) struct Usage {
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) leased: usize,
    pub(crate) windows: usize,
    pub(crate) held: u32,
    /// Blocks in use (`blocks_used`), and the fewest that were ever left in the shared receive
    /// queue (`blocks_low`).
    pub(crate) blocks_used: u32,
    pub(crate) blocks_low: u32,
}

/// The memory of received data that is not in a window.
pub(crate) enum Held {
    /// A block of the shared receive queue.
    Block(HeldBlock),
    /// A copy in main memory, made to free memory of the pool.
    Copy(Copied),
}

/// A block of the shared receive queue whose payload is unread. It is returned by
/// [`HeldBlock::repost`], not by being dropped: that takes the link's lock.
pub(crate) struct HeldBlock {
    owner: Arc<dyn BlockUser>,
    pool: Arc<Pool>,
    block: u32,
    /// Bytes of the payload.
    len: usize,
    /// When it arrived, in nanoseconds of the monotonic clock.
    born: u64,
}

impl HeldBlock {
    /// `len` bytes for channel `user`.
    pub(crate) fn new(
        owner: Arc<dyn BlockUser>,
        pool: Arc<Pool>,
        block: u32,
        len: usize,
        user: ChanId,
    ) -> Self {
        owner.block_held();
        let born = task::now_ns();
        let first = pool.unread.add(block, user, born);
        pool.cache.arrived(len, first);
        Self {
            owner,
            pool,
            block,
            len,
            born,
        }
    }

    /// When it arrived, in nanoseconds of the monotonic clock.
    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// Copies the payload to `room`, which has the payload's length.
    pub(crate) fn copy(&self, mut room: KVVec<u8>) -> Result<Copied> {
        let at = self.pool.block_at(self.block);
        self.pool.memory().copy_payload(at, &mut room)?;
        Ok(Copied::new(room, self.pool.cache.clone()))
    }

    /// The cache of its pool.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.pool.cache
    }

    /// The `len` bytes at `off` of the payload. `EINVAL` if they are not all in the block.
    pub(crate) fn payload(&self, off: usize, len: usize) -> Result<Payload<'_>> {
        match off.checked_add(len) {
            Some(end) if end <= SMALL_MAX as usize => {
                let at = self.pool.block_at(self.block) + off;
                Ok(Payload::Pool(self.pool.memory(), at, len))
            }
            _ => Err(EINVAL),
        }
    }

    /// Posts the block again, and returns its credit to the peer in time. Takes the link's lock.
    pub(crate) fn repost(self) {
        self.pool.unread.left(self.block);
        self.pool.cache.left(self.len);
        let stayed = task::now_ns().saturating_sub(self.born);
        self.pool.cache.stayed(stayed);
        self.pool.repost(self.block);
        self.owner.block_released(&self.pool);
    }
}
