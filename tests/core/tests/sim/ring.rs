// SPDX-License-Identifier: GPL-2.0

//! The ring of shared descriptors, as `uapi/linux/zrs.h` has it.

use std::cell::Cell;

use zrs_core::area_ring::AreaRing;
use zrs_core::rx_queue::{Descriptors, EscapeTarget, Segment};

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
}

impl Ring {
    /// A ring with an escape area of `area` bytes, or none.
    pub fn new(entries: usize, area: u32) -> Self {
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
            area_mem: vec![0; area as usize],
            area_full: false,
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

    /// Whether anything may move to its escape area.
    pub fn has_room(&self) -> bool {
        !self.area_mem.is_empty() && !self.area_full
    }

    /// Shows a segment to the program.
    pub fn publish<T>(&mut self, index: u32, seg: &Segment<T>) {
        let at = self.at(index);
        self.desc[at] = Desc {
            pos: seg.pos + u64::from(seg.taken),
            off: seg.window_off.unwrap_or(0) + seg.taken,
            len: seg.len - seg.taken,
            escape_off: Cell::new(0),
        };
        self.state[at].set(if seg.claimed { KERNEL } else { READY });
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
