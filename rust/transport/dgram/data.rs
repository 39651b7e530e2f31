// SPDX-License-Identifier: GPL-2.0

//! The bytes of a received datagram: of the first fragments in the blocks that they came in, of the
//! others in a copy.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::alloc::Flags;
use kernel::iov::IovIterDest;
use kernel::page::PAGE_MASK;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::kern::area::Area;
use crate::kern::contig::Payload;
use crate::pool::kept::KeptBlock;
use crate::pool::Pool;
use crate::proto::dgram::lend::{place, Place};
use crate::proto::dgram::wire::{Fragment, FRAGMENT};
use crate::transport::rx::Arrival;

/// The blocks that a datagram arrives in.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a>(&'a Arc<Pool>);

impl<'a> Blocks<'a> {
    /// Those of a pool.
    pub(super) fn of(pool: &'a Arc<Pool>) -> Self {
        Self(pool)
    }
}

/// The bytes.
pub(crate) struct Data {
    /// Each has [`FRAGMENT`] bytes once its fragment has arrived.
    blocks: KVec<KeptBlock>,
    /// What is behind them.
    rest: KVVec<u8>,
}

impl Data {
    /// Room for a datagram of `total` bytes that arrives in `blocks`; up to `most` of them are
    /// kept. Sleeps, unless `flags` forbid it. ENOMEM.
    pub(crate) fn new(blocks: Blocks<'_>, total: u32, most: u32, flags: Flags) -> Result<Self> {
        let mut kept = KVec::with_capacity(most as usize, flags)?;
        blocks.0.set_aside(most as usize, &mut kept);
        let rest = (total as usize).saturating_sub(kept.len() * FRAGMENT as usize);
        Ok(Self {
            blocks: kept,
            rest: KVVec::from_elem(0_u8, rest, flags)?,
        })
    }

    /// Takes the bytes of a fragment. EINVAL if they do not fit, which does not occur.
    pub(super) fn take(&mut self, f: &Fragment, arrival: &mut Arrival<'_>) -> Result {
        match place(f, self.blocks.len()).ok_or(EINVAL)? {
            Place::Block(at) => arrival.keep(self.blocks.get_mut(at).ok_or(EINVAL)?),
            Place::Rest(range) => arrival.read(self.rest.get_mut(range).ok_or(EINVAL)?),
        }
    }

    /// Cuts off what is behind the first `len` bytes, if there are more; a block that is cut is
    /// copied. ENOMEM.
    pub(crate) fn truncate(&mut self, len: usize, flags: Flags) -> Result {
        if len >= self.len() {
            return Ok(());
        }
        let whole = (len / FRAGMENT as usize).min(self.blocks.len());
        let mut rest = KVVec::new();
        // What is behind the blocks that stay is in one piece.
        let behind = whole * FRAGMENT as usize;
        self.for_each_piece(behind, len - behind, |piece| {
            rest = piece.copy_to_vec(flags)?;
            Ok(())
        })?;
        self.blocks.truncate(whole);
        self.rest = rest;
        Ok(())
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.in_blocks() + self.rest.len()
    }

    fn in_blocks(&self) -> usize {
        self.blocks.len() * FRAGMENT as usize
    }

    /// Whether some of them are in blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Takes blocks back that programs no longer use, of the pool that these bytes are in.
    pub(crate) fn reclaim_some(&self) {
        if let Some(block) = self.blocks.first() {
            block.reclaim_some();
        }
    }

    /// Calls `f` with `len` bytes, or all, from the byte `from` on, piece by piece.
    pub(crate) fn for_each_piece(
        &self,
        from: usize,
        len: usize,
        mut f: impl FnMut(&Payload<'_>) -> Result,
    ) -> Result {
        let end = from.saturating_add(len).min(self.len());
        let mut at = from;
        while at < end {
            let (number, off) = (at / FRAGMENT as usize, at % FRAGMENT as usize);
            let piece = match self.blocks.get(number) {
                Some(block) => block.payload(off..(off + end - at).min(FRAGMENT as usize))?,
                None => {
                    let behind = self.in_blocks();
                    let bytes = self.rest.get(at - behind..end - behind);
                    Payload::Bytes(bytes.ok_or(EINVAL)?)
                }
            };
            f(&piece)?;
            at += piece.len();
        }
        Ok(())
    }

    /// Copies `len` bytes from the byte `from` on to a program. Returns how many went: fewer if its
    /// memory faults. Sleeps.
    pub(crate) fn copy_to_iter(
        &self,
        iter: &mut IovIterDest<'_>,
        from: usize,
        len: usize,
    ) -> usize {
        let mut done = 0;
        let _ = self.for_each_piece(from, len, |piece| {
            let n = piece.copy_to_iter(iter)?;
            done += n;
            if n == piece.len() {
                Ok(())
            } else {
                Err(EFAULT)
            }
        });
        done
    }

    /// Lays the bytes out from `addr` on in the calling program: blocks are mapped if `addr` is the
    /// beginning of a page, the others are copied. Returns the number of copied bytes. Sleeps.
    ///
    /// Errors: as of [`Area::map_pages`] and [`Area::copy`]; some of the bytes may be there then.
    pub(crate) fn lay_out(&self, area: &Arc<Area>, addr: usize) -> Result<usize> {
        let mapped = match addr & !PAGE_MASK {
            0 => KeptBlock::map(&self.blocks, area, addr)? * FRAGMENT as usize,
            _ => 0,
        };
        let mut at = mapped;
        self.for_each_piece(mapped, usize::MAX, |piece| {
            let mut done = 0;
            while done < piece.len() {
                let to = addr.checked_add(at).ok_or(EFAULT)?;
                // A copy may end early; the next one has the error.
                let n = area.copy(to, piece.len() - done, &piece.behind(done)?)?;
                (at, done) = (at + n, done + n);
            }
            Ok(())
        })?;
        Ok(at - mapped)
    }
}
