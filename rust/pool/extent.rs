// SPDX-License-Identifier: GPL-2.0

//! A physically contiguous piece of a receive pool: its memory, its mapping for the device, which of its pages
//! are leased, and what in it nobody has read yet. A pool begins with one, and grows by more of them.

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
    /// Gone with the device.
    #[pin]
    region: SpinLock<Option<Arc<DmaRegion>>>,
    /// Its first page that can be leased.
    first: usize,
    #[pin]
    leased: SpinLock<PagePool<KVec<u64>>>,
    #[pin]
    unread: SpinLock<AgeList<KVVec<Node>>>,
}

impl Extent {
    /// `mem`, mapped by `region`, of which the pages from `first` on can be leased. ENOMEM. Sleeps.
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

    /// The device goes. Sleeps.
    pub(crate) fn device_gone(&self) {
        let region = self.region.lock().take();
        drop(region);
    }

    /// Leases `count` pages in a row: the first, as the memory counts.
    pub(crate) fn lease(&self, count: usize) -> Option<usize> {
        let at = self.leased.lock().alloc(count)?;
        Some(self.first + at)
    }

    /// Takes `count` pages from `page` on back.
    pub(crate) fn free(&self, page: usize, count: usize) {
        self.leased.lock().free(page - self.first, count);
    }

    /// Pages that can be leased, and of them those that are.
    pub(crate) fn leasable(&self) -> (usize, usize) {
        let leased = self.leased.lock();
        (leased.pages(), leased.used())
    }

    /// `len` bytes for channel `user` have arrived at `at`. Returns when. Any context.
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

    /// Whatever is in `pages` will be read by nobody. Any context.
    pub(crate) fn forget(&self, pages: Range<usize>) {
        for page in pages {
            let len = self.unread.lock().remove(page);
            self.cache.left(len as usize);
        }
    }

    /// What is oldest in it: its page, whose it is, and when it is to be looked at.
    pub(crate) fn oldest(&self) -> Option<(usize, ChanId, u64)> {
        self.unread.lock().oldest()
    }

    /// What begins in `page` cannot be moved now.
    pub(crate) fn defer(&self, page: usize) {
        self.unread.lock().defer(page);
    }

    /// What could not be moved may be now.
    pub(crate) fn retry_deferred(&self) {
        self.unread.lock().retry_deferred(now_ns());
    }

    /// Whether something could not be moved.
    pub(crate) fn has_deferred(&self) -> bool {
        self.unread.lock().has_deferred()
    }
}
