// SPDX-License-Identifier: GPL-2.0

//! Where the bytes of a region are in the node's memory.

use super::super::rights::Range;
use super::{Hold, Node, Storage};

/// Contiguous bytes of the node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset from the beginning of the memory.
    pub at: u64,
    /// Length in bytes; not 0.
    pub len: u64,
}

impl Piece {
    /// The parts of it that registrations of up to `pages` pages of 2^`shift` bytes have room for.
    /// Each part but the first begins on a page. None without room.
    pub fn parts(self, pages: u32, shift: u32) -> impl Iterator<Item = Self> {
        let most = u64::from(pages).checked_shl(shift).unwrap_or(u64::MAX);
        let page = 1_u64.checked_shl(shift).unwrap_or(u64::MAX);
        let mut rest = self;
        core::iter::from_fn(move || {
            let before = rest.at.checked_rem(page)?;
            let len = most.saturating_sub(before).min(rest.len);
            let part = Self { at: rest.at, len };
            rest.at = rest.at.saturating_add(len);
            rest.len = rest.len.saturating_sub(len);
            (len != 0).then_some(part)
        })
    }

    /// The pages of 2^`shift` bytes that it touches.
    pub fn pages(self, shift: u32) -> u64 {
        let page = 1_u64.checked_shl(shift).unwrap_or(u64::MAX);
        let before = self.at.checked_rem(page).unwrap_or(0);
        before.saturating_add(self.len).div_ceil(page.max(1))
    }
}

/// The pieces of a range of a region, in order; made by [`Node::pieces`].
pub struct Pieces<'a, S: Storage> {
    node: &'a Node<S>,
    next: Option<u32>,
    /// Extents still to come.
    extents: u32,
    skip: u64,
    left: u64,
}

impl<S: Storage> Node<S> {
    /// The pieces of `range` of the region that is held; none unless the region has all of the
    /// range.
    pub fn pieces(&self, hold: &Hold, range: Range) -> Pieces<'_, S> {
        let region = self.regions.get(hold.region);
        let region = region.filter(|r| {
            let whole = Range { off: 0, len: r.len };
            r.gen == hold.gen && whole.contains(range)
        });
        Pieces {
            node: self,
            next: region.and_then(|r| r.first_extent),
            extents: region.map_or(0, |r| r.extents),
            skip: range.off,
            left: range.len,
        }
    }
}

impl<S: Storage> Iterator for Pieces<'_, S> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while self.left != 0 {
            self.extents = self.extents.checked_sub(1)?;
            let entry = self.next.and_then(|at| self.node.extents.get(at))?;
            self.next = entry.next;
            let shift = self.node.cfg.page_shift;
            let len = u64::from(entry.run.pages).wrapping_shl(shift);
            if self.skip >= len {
                self.skip = self.skip.saturating_sub(len);
                continue;
            }
            let page = u64::from(entry.run.page).wrapping_shl(shift);
            let piece = Piece {
                at: page.saturating_add(self.skip),
                len: len.saturating_sub(self.skip).min(self.left),
            };
            self.skip = 0;
            self.left = self.left.saturating_sub(piece.len);
            return Some(piece);
        }
        None
    }
}
