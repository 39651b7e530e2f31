// SPDX-License-Identifier: GPL-2.0

//! The memory of a link's messages, mapped for its device.

#![deny(unsafe_code)]

use core::num::NonZeroUsize;

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::ib::dma::{Direction, DmaRegion, Sge};
use crate::ib::pd::Pd;
use crate::kern::contig::ContigPages;

/// Bytes of a piece of memory: what the kernel allocates without a search. Handlers of the
/// connection manager make links, and the connections of other drivers wait for these.
const PIECE: usize = ContigPages::CHEAP * PAGE_SIZE;

/// A piece of memory, and its mapping.
pub(crate) struct Piece {
    // Ends before the memory.
    pub(crate) region: DmaRegion,
    pub(crate) mem: Arc<ContigPages>,
}

impl Piece {
    /// The `len` bytes at `at`, which belong to the device from here on. EINVAL.
    pub(crate) fn sge(&self, at: usize, len: usize) -> Result<Sge> {
        self.region.sync_for_device(at, len)?;
        self.region.sge(at, len)
    }
}

/// Buffers of the same length, each in one piece of memory.
pub(crate) struct Buffers {
    pieces: KVec<Piece>,
    /// How many are in a piece.
    each: NonZeroUsize,
    len: usize,
}

impl Buffers {
    /// `count` buffers of `len` bytes. Sleeps. ENOMEM; EINVAL if a piece has no room for one.
    pub(crate) fn new(pd: &Arc<Pd>, count: usize, len: usize, dir: Direction) -> Result<Self> {
        let each = PIECE.checked_div(len).and_then(NonZeroUsize::new);
        let each = each.ok_or(EINVAL)?;
        let mut pieces = KVec::new();
        let mut left = count;
        while left > 0 {
            let held = left.min(each.get());
            let pages = (held * len).div_ceil(PAGE_SIZE);
            let mem = Arc::new(
                ContigPages::new(pages, pd.device().numa_node())?,
                GFP_KERNEL,
            )?;
            let region = DmaRegion::map(pd, mem.clone(), dir)?;
            pieces.push(Piece { region, mem }, GFP_KERNEL)?;
            left -= held;
        }
        Ok(Self { pieces, each, len })
    }

    /// The piece that a buffer is in, and where in it the buffer begins. EINVAL if there is none.
    pub(crate) fn get(&self, n: usize) -> Result<(&Piece, usize)> {
        let piece = self.pieces.get(n / self.each).ok_or(EINVAL)?;
        Ok((piece, n % self.each * self.len))
    }
}
