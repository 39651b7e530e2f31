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
