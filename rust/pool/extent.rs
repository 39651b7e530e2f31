// SPDX-License-Identifier: GPL-2.0

//! A physically contiguous piece of a receive pool: its memory, its mapping for the device, its
//! leased pages, and the ages of its unread data. A pool begins with one extent, and grows by more.

#![deny(unsafe_code)]

use core::ops::Range;

use kernel::alloc::kvec::KVVec;
use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

use super::cache::Cache;
use crate::ib::dma::DmaRegion;
use crate::kern::contig::ContigPages;
use crate::kern::task::now_ns;
use crate::proto::age_list::{AgeList, Node};
use crate::proto::page_pool::PagePool;
use crate::proto::ChanId;

/// A piece of a pool.
#[pin_data]
pub(crate) struct Extent {
    mem: Arc<ContigPages>,
    cache: Arc<Cache>,
    /// `None` once the device is gone.
    #[pin]
    region: SpinLock<Option<Arc<DmaRegion>>>,
    /// The first page that can be leased.
    first: usize,
    #[pin]
    leased: SpinLock<PagePool<KVec<u64>>>,
    #[pin]
    unread: SpinLock<AgeList<KVVec<Node>>>,
}

impl Extent {
    /// An extent of `mem`, mapped by `region`. The pages from `first` on can be leased. ENOMEM.
    /// Sleeps.
    pub(crate) fn new(
        mem: Arc<ContigPages>,
        region: Arc<DmaRegion>,
        first: usize,
        cache: &Arc<Cache>,
    ) -> Result<Arc<Self>> {
        let leasable = mem.pages().saturating_sub(first);
        let words = KVec::from_elem(0_u64, PagePool::<KVec<u64>>::words(leasable), GFP_KERNEL)?;
        let nodes = KVVec::from_elem(Node::FREE, mem.pages(), GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                mem,
                cache: cache.clone(),
                region <- new_spinlock!(Some(region), "zrs_extent::region"),
                first,
                leased <- new_spinlock!(PagePool::new(words, leasable), "zrs_extent::leased"),
                unread <- new_spinlock!(AgeList::new(nodes), "zrs_extent::unread"),
            }),
            GFP_KERNEL,
        )
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> &ContigPages {
        &self.mem
    }

    /// Its mapping, while the device is there.
    pub(crate) fn region(&self) -> Option<Arc<DmaRegion>> {
        self.region.lock().clone()
    }

    /// The device is being removed. Sleeps.
    pub(crate) fn device_gone(&self) {
        let region = self.region.lock().take();
        drop(region);
    }

    /// Leases `count` pages in a row. Returns the first, counted from the start of the memory.
    pub(crate) fn lease(&self, count: usize) -> Option<usize> {
        let at = self.leased.lock().alloc(count)?;
        Some(self.first + at)
    }

    /// Frees `count` pages from `page` on.
    pub(crate) fn free(&self, page: usize, count: usize) {
        self.leased.lock().free(page - self.first, count);
    }

    /// Number of pages that can be leased, and how many of them are.
    pub(crate) fn leasable(&self) -> (usize, usize) {
        let leased = self.leased.lock();
        (leased.pages(), leased.used())
    }

    /// Records that `len` bytes for channel `user` arrived at `at`. Returns the time. Any context.
    pub(crate) fn arrived(&self, at: usize, len: usize, user: ChanId) -> u64 {
        let now = now_ns();
        let first = self
            .unread
            .lock()
            .add(at >> PAGE_SHIFT, user, len as u32, now);
        self.cache.arrived(len, first);
        now
    }

    /// `len` bytes that arrived at `at`, at the time `born`, were read or moved. Any context.
    pub(crate) fn left(&self, at: usize, len: u32, born: u64) {
        let len = self.unread.lock().left(at >> PAGE_SHIFT, len);
        self.cache.left(len as usize);
        self.cache.stayed(now_ns().saturating_sub(born));
    }

    /// Forgets unread data in `pages`: it will not be read. Any context.
    pub(crate) fn forget(&self, pages: Range<usize>) {
        for page in pages {
            let len = self.unread.lock().remove(page);
            self.cache.left(len as usize);
        }
    }

    /// Its oldest unread data: the page, the channel, and the time from which its age counts.
    pub(crate) fn oldest(&self) -> Option<(usize, ChanId, u64)> {
        self.unread.lock().oldest()
    }

    /// The data that begins in `page` cannot be moved now: other data comes first.
    pub(crate) fn defer(&self, page: usize) {
        self.unread.lock().defer(page);
    }

    /// Makes deferred data a candidate again.
    pub(crate) fn retry_deferred(&self) {
        self.unread.lock().retry_deferred(now_ns());
    }

    /// Whether there is deferred data.
    pub(crate) fn has_deferred(&self) -> bool {
        self.unread.lock().has_deferred()
    }
}
