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

use core::ops::Range;

use kernel::iov::IovIterDest;
use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

use super::device::Verbs;
use super::link::Link;
use crate::host::Host;
use crate::ib::dma::Sge;
use crate::ib::mr::Mr;
use crate::kern::contig::ContigPages;
use crate::kern::fault;
use crate::kern::task::random_u64;
use crate::kern::vma;
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
    first_window: usize,
}

impl Layout {
    /// As the parameters say, with at most a quarter of the pool in blocks. EINVAL when the pool
    /// is too small for one link; ENOMEM when no machine could have it.
    pub(crate) fn new(max_srq_wr: u32) -> Result<Self> {
        let pages = (params::POOL_MIB.get() as usize) << (20 - PAGE_SHIFT);
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
    pages: SpinLock<PagePool<KVec<u64>>>,
    #[pin]
    windows: Mutex<KVec<Arc<Window>>>,
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

    /// Copies the payload of a block out of it, so that the block can be used again.
    pub(super) fn copy_payload(&self, block: u32, len: usize) -> Result<KVec<u8>> {
        let mut bytes = KVec::from_elem(0_u8, len, GFP_KERNEL)?;
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

    /// Leases a window. Sleeps. ENOMEM when none is left, EIO when the device is gone, and what
    /// registration says.
    pub(crate) fn lease(self: &Arc<Self>) -> Result<Arc<Window>> {
        let verbs = self.verbs().ok_or(EIO)?;
        let count = params::window_bytes() >> PAGE_SHIFT;
        let start = self.pages.lock().alloc(count).ok_or(ENOMEM)?;
        let window = self.register(&verbs, start, count);
        if window.is_err() {
            self.pages.lock().free(start, count);
        }
        window
    }

    fn register(
        self: &Arc<Self>,
        verbs: &Verbs,
        start: usize,
        count: usize,
    ) -> Result<Arc<Window>> {
        let page = self.layout.first_window + start;
        // Larger windows than the device can register page by page take larger pages.
        let most = verbs.pd.device().attrs().max_fast_reg_pages;
        let mut mr = Mr::new(&verbs.pd, (count as u32).min(most))?;
        // The peer's addresses begin anywhere: they tell nothing of where our memory is, and
        // whoever guesses another peer's key has to guess this too.
        let origin = random_u64() >> 2;
        mr.map(
            &verbs.region,
            page << PAGE_SHIFT,
            count << PAGE_SHIFT,
            origin,
        )?;
        STATS.resources_made.add(1);
        let mr = Arc::new(mr, GFP_KERNEL)?;
        let window = Arc::pin_init(
            try_pin_init!(Window {
                pool: self.clone(),
                start,
                pages: page..page + count,
                leased: Atomic::new(true),
                mapped: Atomic::new(0),
                mr <- new_spinlock!(Some(mr), "zrs_window::mr"),
            }),
            GFP_KERNEL,
        )?;
        self.windows.lock().push(window.clone(), GFP_KERNEL)?;
        if self.verbs().is_none() {
            // The device went, and did not see this registration. The caller frees the pages.
            self.windows.lock().retain(|w| !Arc::ptr_eq(w, &window));
            window.deregister();
            return Err(EIO);
        }
        Ok(window)
    }

    /// The device goes: registrations and queues go with it, the memory stays. Sleeps.
    pub(super) fn device_gone(&self) {
        let verbs = self.verbs.lock().take();
        for window in self.windows.lock().iter() {
            window.deregister();
        }
        drop(verbs);
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

    fn look_after(self: &Arc<Self>) {
        if let Some(host) = Host::get() {
            let _ = host.queue.enqueue(self.clone());
        }
    }

    /// Takes back the windows that nobody uses any more. Sleeps.
    pub(crate) fn reap(&self) {
        loop {
            let window = {
                let mut windows = self.windows.lock();
                match windows.iter().position(|w| w.is_unused()) {
                    Some(i) => windows.remove(i),
                    None => return,
                }
            };
            let Ok(window) = window else { return };
            // In this order: nobody can write, nothing is left to read, somebody else may have it.
            window.deregister();
            let at = window.pages.start << PAGE_SHIFT;
            let _ = self.mem.zero(at, window.bytes());
            if let Some(verbs) = self.verbs() {
                let _ = verbs.region.sync_for_device(at, window.bytes());
            }
            self.pages.lock().free(window.start, window.pages.len());
        }
    }
}

impl WorkItem for Pool {
    type Pointer = Arc<Pool>;

    fn run(pool: Arc<Pool>) {
        fault::asynchronous(|| pool.reap());
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

/// A lease of a part of a pool to a channel, and its registration.
#[pin_data]
pub(crate) struct Window {
    pool: Arc<Pool>,
    /// First page, as the pool's allocator counts.
    start: usize,
    /// Pages of the pool's memory.
    pages: Range<usize>,
    leased: Atomic<bool>,
    mapped: Atomic<i32>,
    #[pin]
    mr: SpinLock<Option<Arc<Mr>>>,
}

impl Window {
    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// The registration, while the device is there. Any context.
    pub(crate) fn mr(&self) -> Option<Arc<Mr>> {
        self.mr.lock().clone()
    }

    /// The channel needs it no more; when no program maps it either, it goes back to the pool.
    pub(crate) fn retire(&self) {
        self.leased.store(false, kernel::sync::atomic::Release);
        self.pool.look_after();
    }

    fn is_unused(&self) -> bool {
        !self.leased.load(kernel::sync::atomic::Acquire)
            && self.mapped.load(kernel::sync::atomic::Acquire) == 0
    }

    fn deregister(&self) {
        // Dropping sleeps, so not under the lock.
        let mr = self.mr.lock().take();
        drop(mr);
    }

    /// Makes what the device wrote at `off` visible to the CPU, before anybody is told of it.
    pub(super) fn arrived(&self, verbs: &Verbs, off: usize, len: usize) {
        let at = (self.pages.start << PAGE_SHIFT) + off;
        // Cannot fail: the channel has checked the range.
        let _ = verbs.region.sync_for_cpu(at, len);
    }

    /// Copies `len` bytes at `off` to the program: the one copy of a plain receive. Sleeps.
    pub(crate) fn copy_to_iter(
        &self,
        off: usize,
        len: usize,
        iter: &mut IovIterDest<'_>,
    ) -> Result<usize> {
        if off.checked_add(len).is_none_or(|end| end > self.bytes()) {
            return Err(EINVAL);
        }
        let at = (self.pages.start << PAGE_SHIFT) + off;
        self.pool.mem.copy_to_iter(at, len, iter)
    }
}

impl vma::MappedOwner for Window {
    fn mapped(&self) {
        self.mapped.fetch_add(1, Full);
    }

    fn unmapped(&self) {
        if self.mapped.fetch_sub(1, Full) == 1 {
            self.pool.look_after();
        }
    }
}

impl vma::Window for Window {
    fn memory(&self) -> &ContigPages {
        &self.pool.mem
    }

    fn range(&self) -> Range<usize> {
        self.pages.clone()
    }
}

/// Keeps a window from going back to the pool while a work request names its registration.
pub(super) struct WindowUse {
    window: Arc<Window>,
    mr: Arc<Mr>,
}

impl WindowUse {
    /// `None` when the device is gone.
    pub(super) fn new(window: &Arc<Window>) -> Option<Self> {
        let mr = window.mr()?;
        vma::MappedOwner::mapped(&**window);
        Some(Self {
            window: window.clone(),
            mr,
        })
    }

    /// The registration.
    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// What the peer has to know of it: size, address, key.
    pub(super) fn terms(&self) -> (u32, u64, u32) {
        (self.window.bytes() as u32, self.mr.iova(), self.mr.rkey())
    }
}

impl Drop for WindowUse {
    fn drop(&mut self) {
        vma::MappedOwner::unmapped(&*self.window);
    }
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

    /// Copies `len` bytes at `off` of the payload to the program. Sleeps.
    pub(crate) fn copy_to_iter(
        &self,
        off: usize,
        len: usize,
        iter: &mut IovIterDest<'_>,
    ) -> Result<usize> {
        if off
            .checked_add(len)
            .is_none_or(|end| end > SMALL_MAX as usize)
        {
            return Err(EINVAL);
        }
        let at = self.pool.block_at(self.block) + off;
        self.pool.mem.copy_to_iter(at, len, iter)
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
