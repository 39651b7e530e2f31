// SPDX-License-Identifier: GPL-2.0

//! Our own kinds of memory, as [`dma`](super::dma) maps them: the receive pool and the transmit
//! buffers ([`ContigPages`]), the pinned pages of programs ([`PinnedRuns`]), and the memory of a
//! memory node ([`NodeRuns`]).

use super::dma::{DmaMemory, Run, RunSource};
use crate::{
    bindings,
    kern::{contig::ContigPages, folios::MemfdPages, pin::PinnedPages},
};
use core::ptr::NonNull;
use kernel::{prelude::*, sync::Arc};

// SAFETY: `ContigPages` is one physically contiguous allocation, of a size that never changes, and
// owned by the object until it is dropped.
unsafe impl DmaMemory for ContigPages {
    fn first_page(&self) -> NonNull<bindings::page> {
        // An allocation has at least one page; were it not so, nothing could be mapped.
        self.page(0)
            .and_then(|p| NonNull::new(p.as_ptr()))
            .unwrap_or(NonNull::dangling())
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// Pinned pages of a program and their physically contiguous runs.
pub(crate) struct PinnedRuns {
    runs: KVec<Run>,
    _pages: PinnedPages,
    /// The pages of [`Self::add`].
    more: KVec<PinnedPages>,
}

impl PinnedRuns {
    /// Finds the runs. Sleeps. ENOMEM.
    pub(crate) fn new(pages: PinnedPages) -> Result<Self> {
        let mut runs = KVec::with_capacity(pages.count(), GFP_KERNEL)?;
        Self::append(&mut runs, &pages)?;
        Ok(Self {
            runs,
            _pages: pages,
            more: KVec::new(),
        })
    }

    /// Adds the pages of the bytes that follow. Sleeps. ENOMEM.
    pub(crate) fn add(mut self, pages: PinnedPages) -> Result<Self> {
        Self::append(&mut self.runs, &pages)?;
        self.more.push(pages, GFP_KERNEL)?;
        Ok(self)
    }

    fn append(runs: &mut KVec<Run>, pages: &PinnedPages) -> Result {
        for (page, offset, len) in pages.runs() {
            runs.push(
                Run {
                    page: NonNull::new(page.as_ptr()).ok_or(EFAULT)?,
                    offset: offset as u32,
                    len: len as u32,
                },
                GFP_KERNEL,
            )?;
        }
        Ok(())
    }
}

// SAFETY: The pointers in `runs` name pinned pages, which belong to no task.
unsafe impl Send for PinnedRuns {}
// SAFETY: Nothing changes after the making.
unsafe impl Sync for PinnedRuns {}

// SAFETY: The runs do not change once the making is done, and are of pages that `_pages` and `more`
// keep pinned, and so in place, until they are dropped.
unsafe impl RunSource for PinnedRuns {
    fn runs(&self) -> &[Run] {
        &self.runs
    }
}

/// Physically contiguous runs of a memory node's memory.
pub(crate) struct NodeRuns {
    runs: KVec<Run>,
    _memory: Arc<MemfdPages>,
}

impl NodeRuns {
    /// The runs of `pieces`, each an offset and a length in `memory`. Sleeps. ENOMEM; EINVAL if
    /// they are not all inside; EHWPOISON if a page is defective.
    pub(crate) fn new(
        memory: &Arc<MemfdPages>,
        pieces: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Self> {
        let mut runs = KVec::new();
        for (at, len) in pieces {
            let mut left = len;
            memory.check(at, len)?;
            for (page, offset, len) in memory.runs(at, len) {
                let run = Run {
                    page: NonNull::new(page.as_ptr()).ok_or(EINVAL)?,
                    offset: u32::try_from(offset).map_err(|_| EINVAL)?,
                    len: u32::try_from(len).map_err(|_| EINVAL)?,
                };
                runs.push(run, GFP_KERNEL)?;
                left = left.saturating_sub(len as u64);
            }
            if left != 0 {
                return Err(EINVAL);
            }
        }
        Ok(Self {
            runs,
            _memory: memory.clone(),
        })
    }
}

// SAFETY: The pointers in `runs` name pinned pages, which belong to no task.
unsafe impl Send for NodeRuns {}
// SAFETY: Nothing changes after the making.
unsafe impl Sync for NodeRuns {}

// SAFETY: The runs are computed once, of pages that `_memory` keeps pinned, and so in place, until
// it is dropped.
unsafe impl RunSource for NodeRuns {
    const SHARED: bool = true;

    fn runs(&self) -> &[Run] {
        &self.runs
    }
}
