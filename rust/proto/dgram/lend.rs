// SPDX-License-Identifier: GPL-2.0

//! Datagrams that stay in the blocks that they came in, until they are read, or mapped into the
//! program: which fragments, how many blocks, and where in the program's area they are mapped.
//!
//! Only a block that a fragment has filled is kept. So a program that a block is mapped into sees
//! bytes of its own datagram, and none that the block had before.

use core::ops::Range;

use super::wire::{Fragment, FRAGMENT};

/// Up to this many bytes, copying is cheaper than changing page tables.
pub const COPY_MAX: u32 = 16 << 10;

/// How many fragments of a datagram of `total` bytes may stay in their blocks, from the first one
/// on: those that fill them, or none of a datagram that is cheap to copy.
pub fn whole_blocks(total: u32) -> u32 {
    match total > COPY_MAX {
        true => total / FRAGMENT,
        false => 0,
    }
}

/// Where the bytes of a fragment go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// They stay in their block, which is that of this number.
    Block(usize),
    /// They are copied to these of the bytes that are behind the blocks.
    Rest(Range<usize>),
}

/// The place of a fragment, if the first `blocks` fragments of its datagram stay in their blocks.
/// `None` if the fragment does not fill its block, which does not occur.
pub fn place(f: &Fragment, blocks: usize) -> Option<Place> {
    let number = (f.offset / FRAGMENT) as usize;
    if number < blocks {
        return (f.len() == FRAGMENT).then_some(Place::Block(number));
    }
    let before = blocks.saturating_mul(FRAGMENT as usize);
    let begin = (f.offset as usize).checked_sub(before)?;
    Some(Place::Rest(begin..begin.checked_add(f.len() as usize)?))
}

/// The blocks of a pool, and how many of them may be lent: kept for unread datagrams, or mapped
/// into programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lending {
    /// All blocks.
    pub blocks: u32,
    /// The part of them that may be lent, in percent.
    pub percent: u32,
    /// The blocks that are promised to the peer of one link.
    pub link: u32,
}

impl Lending {
    /// The most blocks that may be lent.
    pub fn most(&self) -> u32 {
        let percent = u64::from(self.percent.min(100));
        (u64::from(self.blocks).saturating_mul(percent) / 100) as u32
    }

    /// How many more may be lent while `lent` are, and `promised` are promised to the peers of
    /// links. The blocks of one more link are left, so that lent blocks keep no host away.
    pub fn more(&self, lent: u32, promised: u32) -> u32 {
        let of_most = self.most().saturating_sub(lent);
        let taken = promised.saturating_add(lent).saturating_add(self.link);
        of_most.min(self.blocks.saturating_sub(taken))
    }
}

/// How far behind `addr` a datagram of `len` bytes begins in the `room` bytes there. With
/// `to_page`, it begins at a page, so that blocks can be mapped; or at `addr` if there is too
/// little room for that. `None` if it does not fit.
pub fn begin(addr: usize, room: usize, len: usize, to_page: bool) -> Option<usize> {
    let page = match to_page {
        true => addr.checked_next_multiple_of(FRAGMENT as usize),
        false => None,
    };
    let by = page.map_or(0, |page| page.saturating_sub(addr));
    if by.checked_add(len).is_some_and(|end| end <= room) {
        return Some(by);
    }
    (len <= room).then_some(0)
}
