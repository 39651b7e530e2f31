// SPDX-License-Identifier: GPL-2.0

//! A pool of memory regions of a protection domain.
//!
//! To allocate a region and to deregister it are commands that a device's firmware executes, and
//! may take it milliseconds. A region that was invalidated is as good as a new one.
//!
//! Compare `include/rdma/mr_pool.h`, whose regions are of one size and belong to a queue pair.

use super::{mr::Mr, pd::Pd};
use kernel::{
    prelude::*,
    sync::{new_mutex, Arc, Mutex, UniqueArc},
};

/// The most regions that are kept.
const MOST: usize = 64;

/// Regions of a domain that describe nothing, to be used again.
#[pin_data]
pub(crate) struct MrPool {
    pd: Arc<Pd>,
    /// The region that has been here longest is the first.
    #[pin]
    free: Mutex<KVec<UniqueArc<Mr>>>,
}

impl MrPool {
    /// An empty pool.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                pd: pd.clone(),
                free <- new_mutex!(KVec::new(), "zrs_mr_pool::free"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes `count` regions for `pages` pages each, for later. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Mr::new`]; the regions made before stay.
    pub(crate) fn fill(&self, count: usize, pages: u32) -> Result {
        for _ in 0..count {
            let mr = self.make(pages)?;
            self.free.lock().push(mr, GFP_KERNEL)?;
        }
        Ok(())
    }

    fn make(&self, pages: u32) -> Result<UniqueArc<Mr>> {
        // So that it fits more often.
        let most = self.pd.device().attrs().max_fast_reg_pages;
        let room = pages.checked_next_power_of_two().unwrap_or(pages);
        let mr = Mr::new(&self.pd, room.min(most).max(pages))?;
        Ok(UniqueArc::new(mr, GFP_KERNEL)?)
    }

    /// A region for `pages` pages: the smallest kept region that is large enough, or a new region.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Mr::new`].
    pub(crate) fn take(&self, pages: u32) -> Result<UniqueArc<Mr>> {
        let kept = {
            let mut free = self.free.lock();
            let fitting = free.iter().enumerate();
            let fitting = fitting.filter(|(_, mr)| mr.max_pages() >= pages);
            let least = fitting.min_by_key(|(_, mr)| mr.max_pages());
            let at = least.map(|(at, _)| at);
            at.and_then(|at| free.remove(at).ok())
        };
        match kept {
            Some(mr) => Ok(mr),
            None => self.make(pages),
        }
    }

    /// Takes back a region that no outstanding work request names: keeps a region that was
    /// invalidated or never registered, and deregisters any other. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`Mr::deregister`].
    pub(crate) fn give(&self, mut mr: UniqueArc<Mr>) -> Result {
        if !mr.recycle() {
            return mr.deregister();
        }
        let mut free = self.free.lock();
        let oldest = match free.len() >= MOST {
            true => free.remove(0).ok(),
            false => None,
        };
        // Without memory for the list the region is dropped, and so deregistered: no peer has
        // access to its memory.
        let _ = free.push(mr, GFP_KERNEL);
        drop(free);
        drop(oldest);
        Ok(())
    }
}
