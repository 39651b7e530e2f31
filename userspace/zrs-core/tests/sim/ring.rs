// SPDX-License-Identifier: GPL-2.0

//! The ring of shared descriptors, as `uapi/linux/zrs.h` has it.

use std::cell::Cell;

use zrs_core::rx_queue::{Descriptors, Refuge, Segment};

pub const FREE: u32 = 0;
pub const READY: u32 = 1;
pub const HELD: u32 = 2;
pub const DONE: u32 = 3;
pub const KERNEL: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub struct Desc {
    pub pos: u64,
    pub off: u32,
    pub len: u32,
}

pub struct Ring {
    desc: Vec<Desc>,
    pub state: Vec<Cell<u32>>,
}

impl Ring {
    pub fn new(entries: usize) -> Self {
        let none = Desc {
            pos: 0,
            off: 0,
            len: 0,
        };
        Self {
            desc: vec![none; entries],
            state: vec![Cell::new(FREE); entries],
        }
    }

    fn at(&self, index: u32) -> usize {
        index as usize % self.desc.len()
    }

    pub fn desc(&self, index: u32) -> Desc {
        self.desc[self.at(index)]
    }

    pub fn cell(&self, index: u32) -> &Cell<u32> {
        &self.state[self.at(index)]
    }

    /// Shows a segment to the program.
    pub fn publish<T>(&mut self, index: u32, seg: &Segment<T>) {
        let at = self.at(index);
        self.desc[at] = Desc {
            pos: seg.pos + u64::from(seg.taken),
            off: seg.window_off.unwrap_or(0) + seg.taken,
            len: seg.len - seg.taken,
        };
        self.state[at].set(if seg.claimed { KERNEL } else { READY });
    }
}

/// A socket has a ring or none.
pub struct MaybeRing(pub Option<Ring>);

impl Descriptors for MaybeRing {
    fn claim(&self, index: u32) -> bool {
        self.0.as_ref().is_none_or(|r| {
            let cell = r.cell(index);
            let ready = cell.get() == READY;
            if ready {
                cell.set(KERNEL);
            }
            ready
        })
    }

    fn is_done(&self, index: u32) -> bool {
        self.0.as_ref().is_some_and(|r| r.cell(index).get() == DONE)
    }

    fn is_waiting(&self, index: u32) -> bool {
        self.0.as_ref().is_none_or(|r| r.cell(index).get() == READY)
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

    fn refuge(&self) -> Refuge {
        match self.0 {
            None => Refuge::Anywhere,
            Some(_) => Refuge::Nowhere,
        }
    }

    fn escape(&self, _: u32, _: u32) -> bool {
        false
    }
}
