// SPDX-License-Identifier: GPL-2.0

//! The allocator of the areas that a ring shows beside the window: contiguous pieces, which are
//! freed in the order of their allocation. Data that moves out of the window, and small messages,
//! have an area each, as only among themselves they are freed in this order.

/// Pieces begin at multiples of this.
const ALIGN: u32 = 64;

/// The used part of an area: from `head` to `tail`, around its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AreaRing {
    size: u32,
    head: u32,
    tail: u32,
    pieces: u32,
}

impl AreaRing {
    /// An area of `size` bytes, empty.
    pub fn new(size: u32) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// The size of an area that has room for any `pieces` pieces of at most `most` bytes each and
    /// `bytes` bytes in all. A piece that does not fit before the end leaves less than its length
    /// there, and as much may be free in front of the oldest one.
    pub fn enough_for(bytes: u32, pieces: u32, most: u32) -> u32 {
        let rounded = bytes.saturating_add(pieces.saturating_mul(ALIGN));
        let unusable = most.checked_next_multiple_of(ALIGN).unwrap_or(u32::MAX);
        rounded.saturating_add(unusable.saturating_mul(2))
    }

    /// Whether nothing is in it.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// Room for `len` bytes, or `None`.
    pub fn alloc(&mut self, len: u32) -> Option<u32> {
        if self.pieces == 0 {
            (self.head, self.tail) = (0, 0);
        }
        let len = len.max(1).checked_next_multiple_of(ALIGN)?;
        // Up to the end, or up to the oldest piece; full and empty look alike.
        let wraps = self.tail < self.head || self.tail == self.head && self.pieces > 0;
        let until = if wraps { self.head } else { self.size };
        let at = if until.saturating_sub(self.tail) >= len {
            self.tail
        } else if !wraps && self.head >= len {
            0
        } else {
            return None;
        };
        self.tail = at.saturating_add(len);
        self.pieces = self.pieces.saturating_add(1);
        Some(at)
    }

    /// Frees the piece that was allocated last.
    pub fn undo(&mut self, at: u32) {
        self.tail = at;
        self.pieces = self.pieces.saturating_sub(1);
    }

    /// The oldest piece, `len` bytes at `at`, is free again.
    pub fn free(&mut self, at: u32, len: u32) {
        self.head = at.saturating_add(len.max(1).next_multiple_of(ALIGN));
        self.pieces = self.pieces.saturating_sub(1);
    }
}
