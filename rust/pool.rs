// SPDX-License-Identifier: GPL-2.0

//! Receive memory: the pool of each device, and its users.
//!
//! `context` has the state shared by all pools; `device` the RDMA devices; `cache` the budget of
//! the pools of a last-level cache, and the escape of old data from them; `extent` a contiguous
//! piece of a pool; `receives` the receive queues; `kept` the blocks that are lent; `lease` the
//! leases of windows (`window`); `quota` the shares of users and network namespaces; `reserve` the
//! main memory promised for escaped data; `reclaim` the pages that programs map; `lessee` the
//! traits that users of a pool implement. Nothing here knows links, channels or sockets.
//!
//! A pool begins as one physically contiguous area, its first extent.
//!
//! This extent begins with the headers and the blocks of the receive queues. They are posted ahead
//! of need: the number promised to the peers of links, and some more. The rest is leased, in
//! windows, to channels with bulk data. Each lease has a registration of exactly its pages; when it
//! ends, the registration does, then the pages are zeroed, then they are free. The memory
//! outlives the device for as long as a program maps some of it. The devices of a cache share the
//! budget for memory in use ([`Cache`]); a pool that may use more than it has grows by another
//! extent.
//!
//! Locks: `windows` (mutex), `growing` (mutex), `extents` (mutex), that of `MrPool`, then the
//! spinlocks `blocks`, `shared`, `Receives::shared`, those of [`Extent`], `Window::mr` and
//! `Window::holder`, never two of these at once. `verbs` and `Receives::open` are read under RCU.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::alloc::Flags;
use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::prelude::*;
use kernel::revocable::Revocable;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::time::Jiffies;
use kernel::workqueue::{impl_has_work, new_work, Work};

pub(crate) mod cache;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod extent;
pub(crate) mod kept;
pub(crate) mod lease;
pub(crate) mod lessee;
pub(crate) mod quota;
pub(crate) mod receives;
mod reclaim;
pub(crate) mod reserve;
mod unread;
pub(crate) mod window;

use crate::kern::contig::{ContigPages, Payload};
use crate::kern::net::Net;
use crate::kern::task;
use crate::params;
use crate::proto::returns::Returns;
use crate::proto::wire::{HEADER_LEN, SMALL_MAX};
use crate::proto::ChanId;
use cache::{Cache, Copied};
use context::Pools;
use device::Verbs;
use extent::Extent;
use lease::WindowWaiter;
use lessee::BlockUser;
use quota::{Quotas, Room};
use receives::Receives;
use unread::UnreadBlocks;
use window::Window;

/// Elements of a receive: a header and a block.
pub(crate) const RECV_SGE: u32 = 2;

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
    pub(crate) fn new(pages: usize, max_blocks: u32) -> Result<Self> {
        let blocks = (params::BLOCKS.get() as usize)
            .min(pages / 4)
            .min(max_blocks as usize);
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

    /// The links that there are blocks for.
    pub(crate) fn links_most(&self) -> u32 {
        let links = self.blocks.checked_div(params::LINK_CREDIT.get());
        links.unwrap_or(0)
    }

    /// The links that there are blocks for, and those of them for users: the reserve is not. A pool
    /// without a reserve has no shares.
    fn links(&self) -> Room {
        match self.links_most() {
            all @ RESERVE_FROM.. => Room {
                all,
                users: all - 1,
            },
            _ => Room {
                all: u32::MAX,
                users: u32::MAX,
            },
        }
    }
}

/// The blocks of a pool.
struct Blocks {
    /// Blocks that are not in use.
    idle: KVec<u32>,
    /// Blocks that are not kept any more, and may still be mapped into programs.
    lent: KVec<u32>,
    /// The next of these that is looked at.
    next_lent: usize,
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
    rate: Atomic<u32>,
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
    /// [`Returns`]: links whose blocks are about to come back.
    returns: Atomic<u64>,
    /// Links that this host makes and that have blocks, by the user and the namespace that have
    /// asked for them.
    #[pin]
    pub(crate) shares: Quotas,
    /// The unread data in blocks.
    unread: UnreadBlocks,
    /// Each link has a receive queue of its own: the device has no shared ones, or `own_receives`
    /// says so.
    pub(crate) own_queues: bool,
    /// The shared receive queue of new links. `None` without one, and once the device is gone.
    #[pin]
    shared: SpinLock<Option<Arc<Receives>>>,
    /// A shared receive queue has failed, and the worker has not seen that, or has no new one yet.
    queue_failed: Atomic<bool>,
    /// When the next queue may be made after a failure, in nanoseconds of the monotonic clock.
    renew_at: Atomic<u64>,
    /// When the worker has to set the limit of the shared receive queue, in nanoseconds of the
    /// monotonic clock; the greatest number if the queue has its limit.
    limit_at: Atomic<u64>,
    /// For each block, the serial number of the receive queue that it is posted to, or 0.
    posted: KVVec<Atomic<u32>>,
    /// The last of these numbers.
    next_queue: Atomic<u32>,
    /// The fewest blocks so far in the shared receive queue.
    ready_low: Atomic<i32>,
    #[pin]
    blocks: SpinLock<Blocks>,
    /// Blocks that are in use, in a receive queue or with data. Changes under `blocks`.
    blocks_used: Atomic<u32>,
    /// Blocks of them that are lent. Changes under `blocks`.
    lent: Atomic<u32>,
    /// Blocks of these that have unread data.
    kept_unread: Atomic<u32>,
    #[pin]
    work: Work<Pool>,
}

impl_has_work! {
    impl HasWork<Self> for Pool { self.work }
}

impl Pool {
    /// A pool with `layout` in `base`, of a device that can send `rate` bytes a microsecond; with
    /// `own_queues` each link has a receive queue of its own. ENOMEM; ENOBUFS without room in the
    /// budget. Sleeps.
    pub(crate) fn new(
        pools: &Arc<Pools>,
        layout: Layout,
        base: Arc<Extent>,
        verbs: Arc<Verbs>,
        cache: &Arc<Cache>,
        rate: u32,
        own_queues: bool,
    ) -> Result<Arc<Self>> {
        let mut idle = KVec::with_capacity(layout.blocks as usize, GFP_KERNEL)?;
        for block in (0..layout.blocks).rev() {
            idle.push(block, GFP_KERNEL)?;
        }
        let blocks = Blocks {
            idle,
            lent: KVec::with_capacity(layout.blocks as usize, GFP_KERNEL)?,
            next_lent: 0,
            gone: false,
        };
        let mut extents = KVec::new();
        extents.push(base.clone(), GFP_KERNEL)?;
        let unread = UnreadBlocks::new(layout.blocks)?;
        let mut posted = KVVec::with_capacity(layout.blocks as usize, GFP_KERNEL)?;
        for _ in 0..layout.blocks {
            posted.push(Atomic::new(0), GFP_KERNEL)?;
        }
        let pool = Arc::pin_init(
            try_pin_init!(Self {
                pools: pools.clone(),
                layout,
                cache: cache.clone(),
                rate: Atomic::new(rate),
                base,
                extents <- new_mutex!(extents, "zrs_pool::extents"),
                growing <- new_mutex!(task::jiffies().wrapping_sub(1), "zrs_pool::growing"),
                verbs <- Revocable::new(verbs),
                windows <- new_mutex!(KVec::new(), "zrs_pool::windows"),
                waiters <- new_mutex!(KVec::new(), "zrs_pool::waiters"),
                requests <- new_mutex!(KVec::new(), "zrs_pool::requests"),
                promised: Atomic::new(0),
                returns: Atomic::new(0),
                shares <- Quotas::new(layout.links()),
                unread,
                own_queues,
                shared <- new_spinlock!(None, "zrs_pool::shared"),
                queue_failed: Atomic::new(false),
                renew_at: Atomic::new(0),
                limit_at: Atomic::new(u64::MAX),
                posted,
                next_queue: Atomic::new(0),
                ready_low: Atomic::new(i32::MAX),
                blocks <- new_spinlock!(blocks, "zrs_pool::blocks"),
                blocks_used: Atomic::new(0),
                lent: Atomic::new(0),
                kept_unread: Atomic::new(0),
                work <- new_work!("zrs_pool::work"),
            }),
            GFP_KERNEL,
        )?;
        // The other devices of the cache may have used up the budget: then this device cannot be
        // used.
        if !own_queues {
            pool.open_shared(params::LINK_CREDIT.get())
                .inspect_err(|_| pool.give_blocks())?;
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

    /// Takes an unused block for a receive queue, unless it uses `want` blocks or the budget has no
    /// page left.
    fn take_idle(&self, rx: &Receives, want: u32) -> Option<u32> {
        let mut blocks = self.blocks.lock();
        if blocks.gone || rx.used.load(Relaxed) >= want || !self.cache.take_block() {
            return None;
        }
        let block = blocks.idle.pop();
        if block.is_some() {
            rx.used.fetch_add(1, Relaxed);
            self.blocks_used.fetch_add(1, Relaxed);
        } else {
            self.cache.give_block();
        }
        block
    }

    /// Puts a block back that a receive queue does not use any more.
    fn put_idle(&self, rx: &Receives, block: u32) {
        let mut blocks = self.blocks.lock();
        if !blocks.gone {
            // Within capacity.
            let _ = blocks.idle.push_within_capacity(block);
            rx.used.fetch_sub(1, Relaxed);
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

    /// Blocks that are in use, in a receive queue or with data.
    fn blocks_used(&self) -> u32 {
        self.blocks_used.load(Relaxed)
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
        let reserved = match self.layout.links_most() {
            RESERVE_FROM.. if reserve => params::LINK_CREDIT.get(),
            _ => 0,
        };
        self.layout.blocks - reserved
    }

    /// Whether [`Receives::promise`] has blocks for another link just now.
    pub(crate) fn may_promise(&self, reserve: bool) -> bool {
        let promised = self.promised.load(Relaxed);
        let taken = promised.saturating_add(self.lent());
        taken.saturating_add(params::LINK_CREDIT.get()) <= self.most_promised(reserve)
    }

    /// The links whose blocks are about to come back.
    pub(crate) fn returns(&self) -> Returns {
        Returns(self.returns.load(Acquire))
    }

    /// A link that has blocks has begun to end: [`Self::link_gave`] follows.
    pub(crate) fn link_ends(&self) {
        self.returns.fetch_add(Returns::ENDS, Full);
    }

    /// A link that was ending has given its blocks back. The caller continues the links that wait
    /// for blocks.
    pub(crate) fn link_gave(&self) {
        self.returns.fetch_add(Returns::GAVE, Full);
    }

    /// The device is being removed: its registrations and queues are destroyed, the memory stays.
    /// Sleeps.
    pub(crate) fn device_gone(&self) {
        let verbs = self.verbs();
        self.verbs.revoke();
        self.close_shared();
        for window in self.windows.lock().iter() {
            window.deregister(None);
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
        self.cache.leave(Some(self), self.rate());
    }

    /// The device's rate, in bytes a microsecond.
    fn rate(&self) -> u32 {
        self.rate.load(Relaxed)
    }

    /// The device can send `rate` bytes a microsecond now. Not called at the same time as
    /// [`Pool::device_gone`], or from two threads.
    fn set_rate(&self, rate: u32) {
        let was = self.rate.xchg(rate, Relaxed);
        if was != rate {
            self.cache.change_rate(was, rate);
        }
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

    /// The windows of the sockets of `net`, for statistics, with the size that the pool began with.
    /// Sleeps. ENOMEM.
    pub(crate) fn usage_in(&self, net: &Net) -> Result<Usage> {
        let mut leases = KVec::new();
        for window in self.windows.lock().iter() {
            leases.push((window.user(), window.bytes()), GFP_KERNEL)?;
        }
        let mut usage = Usage {
            bytes: self.layout.pages << PAGE_SHIFT,
            blocks: self.layout.first_window << PAGE_SHIFT,
            ..Default::default()
        };
        for (user, bytes) in leases {
            let lessee = self.pools.lessee(user);
            if lessee.is_some_and(|lessee| lessee.is_in(net)) {
                usage.leased += bytes;
                usage.windows += 1;
            }
        }
        Ok(usage)
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
            held: self.unread.held() + self.kept_unread.load(Relaxed),
            blocks_used: used,
            lent: self.lent(),
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
#[derive(Default)]
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
    /// Blocks of `blocks_used` that are lent.
    pub(crate) lent: u32,
}

/// The memory of received data that is not in a window.
pub(crate) enum Held {
    /// A block of a receive queue.
    Block(HeldBlock),
    /// A copy in main memory, made to free memory of the pool.
    Copy(Copied),
}

impl Held {
    /// The `len` bytes at `off`. `EINVAL` if they are not all there.
    pub(crate) fn payload(&self, off: usize, len: usize) -> Result<Payload<'_>> {
        match self {
            Self::Block(block) => block.payload(off, len),
            Self::Copy(copy) => {
                let bytes = copy.bytes().get(off..).and_then(|b| b.get(..len));
                Ok(Payload::Bytes(bytes.ok_or(EINVAL)?))
            }
        }
    }
}

/// A block of a receive queue whose payload is unread. It is returned by
/// [`HeldBlock::repost`], not by being dropped: that takes the link's lock.
pub(crate) struct HeldBlock {
    owner: Arc<dyn BlockUser>,
    rx: Arc<Receives>,
    block: u32,
    /// Bytes of the payload.
    len: usize,
    /// When it arrived, in nanoseconds of the monotonic clock.
    born: u64,
}

impl HeldBlock {
    /// `len` bytes for channel `user`, which came by `rx`.
    pub(crate) fn new(
        owner: Arc<dyn BlockUser>,
        rx: Arc<Receives>,
        block: u32,
        len: usize,
        user: ChanId,
    ) -> Self {
        owner.block_held();
        let born = task::now_ns();
        let pool = &rx.pool;
        let first = pool.unread.add(block, user, born);
        pool.cache.arrived(len, first);
        Self {
            owner,
            rx,
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
        let at = self.rx.pool.block_at(self.block);
        self.rx.pool.memory().copy_payload(at, &mut room)?;
        Ok(Copied::new(room, self.rx.pool.cache.clone()))
    }

    /// The cache of its pool.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.rx.pool.cache
    }

    /// The `len` bytes at `off` of the payload. `EINVAL` if they are not all in the block.
    pub(crate) fn payload(&self, off: usize, len: usize) -> Result<Payload<'_>> {
        match off.checked_add(len) {
            Some(end) if end <= SMALL_MAX as usize => {
                let at = self.rx.pool.block_at(self.block) + off;
                Ok(Payload::Pool(self.rx.pool.memory(), at, len))
            }
            _ => Err(EINVAL),
        }
    }

    /// Posts the block again, and returns its credit to the peer in time. Takes the link's lock.
    pub(crate) fn repost(self) {
        self.rx.pool.unread.left(self.block);
        self.rx.pool.cache.left(self.len);
        let stayed = task::now_ns().saturating_sub(self.born);
        self.rx.pool.cache.stayed(stayed);
        self.rx.repost(self.block);
        self.owner.block_released(&self.rx);
    }
}
