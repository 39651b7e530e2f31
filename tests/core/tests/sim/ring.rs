// SPDX-License-Identifier: GPL-2.0

//! The ring of shared descriptors, as `uapi/linux/zrs.h` has it.

use std::cell::Cell;

use zrs_core::area_ring::AreaRing;
use zrs_core::rx_queue::{Descriptors, EscapeTarget, Moved, Segment};

pub const FREE: u32 = 0;
pub const READY: u32 = 1;
pub const HELD: u32 = 2;
pub const DONE: u32 = 3;
pub const KERNEL: u32 = 4;
pub const ESCAPED: u32 = 5;

#[derive(Clone, Debug)]
pub struct Desc {
    pub pos: u64,
    pub off: u32,
    pub len: u32,
    pub escape_off: Cell<u32>,
}

pub struct Ring {
    desc: Vec<Desc>,
    pub state: Vec<Cell<u32>>,
    /// The escape area, if it has one, and its used part.
    pub area: AreaRing,
    pub area_mem: Vec<u8>,
    /// There was no room in it, and nothing has become free since.
    pub area_full: bool,
    /// The area for small messages, if it has one, behind the other in the same memory.
    pub small: AreaRing,
    small_from: u32,
    pub takes_small: bool,
}

impl Ring {
    /// A ring with an escape area of `area` bytes, and one of `small` bytes for small messages, or
    /// none.
    pub fn new(entries: usize, area: u32, small: u32) -> Self {
        let none = Desc {
            pos: 0,
            off: 0,
            len: 0,
            escape_off: Cell::new(0),
        };
        Self {
            desc: vec![none; entries],
            state: vec![Cell::new(FREE); entries],
            area: AreaRing::new(area),
            area_mem: vec![0; (area + small) as usize],
            // An area of no bytes is full.
            area_full: area == 0,
            small: AreaRing::new(small),
            small_from: area,
            takes_small: small > 0,
        }
    }

    fn at(&self, index: u32) -> usize {
        index as usize % self.desc.len()
    }

    pub fn desc(&self, index: u32) -> &Desc {
        &self.desc[self.at(index)]
    }

    pub fn cell(&self, index: u32) -> &Cell<u32> {
        &self.state[self.at(index)]
    }

    /// Whether the segment shown there has not been taken.
    pub fn waits(&self, index: u32) -> bool {
        matches!(self.cell(index).get(), READY | ESCAPED)
    }

    /// Whether the escaped segment shown there was small.
    pub fn is_small(&self, index: u32) -> bool {
        self.desc(index).escape_off.get() >= self.small_from
    }

    /// Whether anything may move to its escape area.
    pub fn has_room(&self) -> bool {
        self.small_from > 0 && !self.area_full
    }

    /// Where a piece of the small area lies in the areas' memory.
    pub fn in_small(&self, off: u32) -> u32 {
        self.small_from + off
    }

    /// Copies a small message that has just arrived; returns where it is, `None` without room.
    pub fn copy_small(&mut self, bytes: &[u8]) -> Option<u32> {
        let off = self.small.alloc(bytes.len() as u32)?;
        let at = self.in_small(off) as usize;
        self.area_mem[at..at + bytes.len()].copy_from_slice(bytes);
        Some(off)
    }

    /// Shows a segment to the program.
    pub fn publish<T>(&mut self, index: u32, seg: &Segment<T>) {
        let at = self.at(index);
        let (state, escape_off) = match (seg.claimed, seg.moved) {
            (true, _) => (KERNEL, 0),
            (false, Moved::Small(off)) => (ESCAPED, self.in_small(off)),
            (false, _) => (READY, 0),
        };
        self.desc[at] = Desc {
            pos: seg.pos + u64::from(seg.taken),
            off: seg.window_off.unwrap_or(0) + seg.taken,
            len: seg.len - seg.taken,
            escape_off: Cell::new(escape_off),
        };
        self.state[at].set(state);
    }
}

/// A socket has a ring or none.
pub struct MaybeRing(pub Option<Ring>);

impl Descriptors for MaybeRing {
    fn claim(&self, index: u32) -> bool {
        self.0.as_ref().is_none_or(|r| {
            let waits = r.waits(index);
            if waits {
                r.cell(index).set(KERNEL);
            }
            waits
        })
    }

    fn is_done(&self, index: u32) -> bool {
        self.0.as_ref().is_some_and(|r| r.cell(index).get() == DONE)
    }

    fn is_waiting(&self, index: u32) -> bool {
        self.0.as_ref().is_none_or(|r| r.waits(index))
    }

    fn set_done(&self, index: u32) {
        if let Some(r) = &self.0 {
            r.cell(index).set(DONE);
        }
    }

    fn clear(&self, index: u32) {
        if let Some(r) = &self.0 {
            r.cell(index).set(FREE);
        }
    }

    fn escape_target(&self) -> EscapeTarget {
        match &self.0 {
            None => EscapeTarget::Anywhere,
            Some(r) if r.has_room() => EscapeTarget::Area,
            Some(_) => EscapeTarget::Nowhere,
        }
    }

    fn escape(&self, index: u32, off: u32) -> bool {
        self.0.as_ref().is_some_and(|r| {
            let ready = r.cell(index).get() == READY;
            if ready {
                r.desc(index).escape_off.set(off);
                r.cell(index).set(ESCAPED);
            }
            ready
        })
    }
}
