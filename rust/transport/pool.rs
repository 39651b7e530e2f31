// SPDX-License-Identifier: GPL-2.0

//! The receive pool of a device: one physically contiguous area (row Z2).
//!
//! It begins with the headers and the blocks of the shared receive queue; the rest is leased, in
//! windows, to channels with bulk data. Each lease has a registration of exactly its extent; on
//! its return the registration goes, then the pages are zeroed, then they are free. The memory
//! outlives the device for as long as a program maps some of it.
//!
//! Locks: `windows` (mutex), then the spinlocks `pages`, `verbs`, `unposted` and `Window::mr`,
//! never two of these at once.

#![deny(unsafe_code)]

use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::workqueue::{impl_has_work, new_work, Work};

use super::device::Verbs;
use super::lease::Wish;
use super::link::Link;
use super::window::Window;
use crate::ib::dma::Sge;
use crate::kern::contig::{ContigPages, Payload};
use crate::kern::memcg::CHARGED;
use crate::params;
use crate::proto::page_pool::PagePool;
use crate::proto::wire::{HEADER_LEN, SMALL_MAX};
use crate::stats::STATS;

/// Each header has this much room, so that it never shares a cache line with another.
const HEADER_ROOM: usize = 128;

/// How a pool is divided, in pages.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) pages: usize,
    pub(crate) blocks: u32,
    first_block: usize,
    pub(super) first_window: usize,
}

impl Layout {
    /// As the parameters say, with at most a quarter of the pool in blocks. EINVAL when the pool
    /// is too small for one link; ENOMEM when no machine could have it.
    pub(crate) fn new(max_srq_wr: u32) -> Result<Self> {
        let mib = match params::POOL_MIB.get() {
            0 => 8,
            mib => mib as usize,
        };
        let pages = mib << (20 - PAGE_SHIFT);
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

/// A receive pool.
#[pin_data]
pub(crate) struct Pool {
    pub(crate) layout: Layout,
    mem: Arc<ContigPages>,
    #[pin]
    verbs: SpinLock<Option<Arc<Verbs>>>,
    #[pin]
    pub(super) pages: SpinLock<PagePool<KVec<u64>>>,
    #[pin]
    pub(super) windows: Mutex<KVec<Arc<Window>>>,
    /// Who waits for a window, in the order in which they came.
    #[pin]
    pub(super) wishes: Mutex<KVec<Wish>>,
    /// Blocks promised to the peers of links.
    promised: Atomic<u32>,
    /// Blocks that hold data nobody has read.
    held: Atomic<u32>,
    /// Blocks that the shared receive queue did not take.
    #[pin]
    unposted: SpinLock<KVec<u32>>,
    #[pin]
    work: Work<Pool>,
}

impl_has_work! {
    impl HasWork<Self> for Pool { self.work }
}

impl Pool {
    pub(super) fn new(
        layout: Layout,
        mem: Arc<ContigPages>,
        verbs: Arc<Verbs>,
    ) -> Result<Arc<Self>> {
        let leasable = layout.pages.saturating_sub(layout.first_window);
        let words = KVec::from_elem(0_u64, PagePool::<KVec<u64>>::words(leasable), GFP_KERNEL)?;
        let unposted = KVec::with_capacity(layout.blocks as usize, GFP_KERNEL)?;
        let mine = verbs.clone();
        let pool = Arc::pin_init(
            try_pin_init!(Self {
                layout,
                mem,
                verbs <- new_spinlock!(Some(mine), "zrs_pool::verbs"),
                pages <- new_spinlock!(PagePool::new(words, leasable), "zrs_pool::pages"),
                windows <- new_mutex!(KVec::new(), "zrs_pool::windows"),
                wishes <- new_mutex!(KVec::new(), "zrs_pool::wishes"),
                promised: Atomic::new(0),
                held: Atomic::new(0),
                unposted <- new_spinlock!(unposted, "zrs_pool::unposted"),
                work <- new_work!("zrs_pool::work"),
            }),
            GFP_KERNEL,
        )?;
        for block in 0..layout.blocks {
            pool.post(&verbs, block)?;
        }
        Ok(pool)
    }

    /// All of the pool.
    pub(super) fn memory(&self) -> &ContigPages {
        &self.mem
    }

    /// What the pool has of its device, while that is there.
    pub(crate) fn verbs(&self) -> Option<Arc<Verbs>> {
        self.verbs.lock().clone()
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
        verbs.srq.post(u64::from(block), &sges)?;
        STATS.recv_requests.add(1);
        Ok(())
    }

    /// Puts a block back into the shared receive queue, if the device is still there.
    pub(crate) fn repost(&self, block: u32) {
        let Some(verbs) = self.verbs() else { return };
        let mut next = Some(block);
        while let Some(block) = next {
            if self.post(&verbs, block).is_err() {
                pr_warn_once!("the shared receive queue does not take a block\n");
                // Within capacity. It is tried again with the next one.
                let _ = self.unposted.lock().push_within_capacity(block);
                return;
            }
            next = self.unposted.lock().pop();
        }
    }

    /// The header of a block that has arrived, with `payload` bytes behind it.
    pub(super) fn read_header(
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
        self.mem.read(Self::header_at(block))
    }

    /// Copies the payload of a block out of it, so that the block can be used again; for whoever is charged.
    pub(super) fn copy_payload(&self, block: u32, len: usize) -> Result<KVec<u8>> {
        let mut bytes = KVec::from_elem(0_u8, len, CHARGED)?;
        self.mem.copy_payload(self.block_at(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Promises blocks to a link, as many as `params::LINK_CREDIT`; false when they are all
    /// promised.
    pub(super) fn promise(&self) -> bool {
        let credit = params::LINK_CREDIT.get();
        let before = self.promised.fetch_add(credit, Full);
        let fits = before.saturating_add(credit) <= self.layout.blocks;
        if !fits {
            self.promised.fetch_sub(credit, Full);
        }
        fits
    }

    /// Takes the promise back: the link is gone.
    pub(super) fn unpromise(&self) {
        self.promised.fetch_sub(params::LINK_CREDIT.get(), Full);
    }

    /// The device goes: registrations and queues go with it, the memory stays. Sleeps.
    pub(super) fn device_gone(&self) {
        let verbs = self.verbs.lock().take();
        for window in self.windows.lock().iter() {
            window.deregister();
        }
        drop(verbs);
        self.forget_wishes();
        self.reap();
    }

    /// Bytes of the pool, bytes in blocks, bytes leased, leases, blocks held.
    pub(crate) fn usage(&self) -> Usage {
        let leased = self.pages.lock().used() << PAGE_SHIFT;
        Usage {
            bytes: self.layout.pages << PAGE_SHIFT,
            blocks: self.layout.first_window << PAGE_SHIFT,
            leased,
            windows: self.windows.lock().len(),
            held: self.held.load(Relaxed),
        }
    }
}

/// What a pool is used for now.
pub(crate) struct Usage {
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
    pub(crate) leased: usize,
    pub(crate) windows: usize,
    pub(crate) held: u32,
}

/// A block of the shared receive queue whose payload waits to be read. Given back by
/// [`HeldBlock::repost`], not by being dropped: that takes the link's lock.
pub(crate) struct HeldBlock {
    link: Arc<Link>,
    pool: Arc<Pool>,
    block: u32,
}

impl HeldBlock {
    pub(super) fn new(link: Arc<Link>, pool: Arc<Pool>, block: u32) -> Self {
        pool.held.fetch_add(1, Relaxed);
        link.held.fetch_add(1, Relaxed);
        Self { link, pool, block }
    }

    /// The `len` bytes at `off` of the payload. `EINVAL` if they are not all in the block.
    pub(crate) fn payload(&self, off: usize, len: usize) -> Result<Payload<'_>> {
        match off.checked_add(len) {
            Some(end) if end <= SMALL_MAX as usize => {
                let at = self.pool.block_at(self.block) + off;
                Ok(Payload::Pool(&self.pool.mem, at, len))
            }
            _ => Err(EINVAL),
        }
    }

    /// Posts the block again and lets the peer know in time. Takes the link's lock.
    pub(crate) fn repost(self) {
        self.pool.held.fetch_sub(1, Relaxed);
        self.pool.repost(self.block);
        self.link.held.fetch_sub(1, Full);
        self.link.block_reposted();
        self.link.keep_promise(&self.pool);
    }
}
