// SPDX-License-Identifier: GPL-2.0

//! The ring of descriptors as the queue and the program see it.

use std::cell::{Cell, RefCell};

use zrs_core::rx_queue::{Descriptors, EscapeTarget};

pub const FREE: u32 = 0;
pub const READY: u32 = 1;
pub const HELD: u32 = 2;
pub const DONE: u32 = 3;
pub const KERNEL: u32 = 4;
pub const ESCAPED: u32 = 5;

/// Where the small area begins, as the program sees it.
pub const SMALL: u32 = 1 << 20;

/// A ring that may be made in the middle of the stream; until then there is none.
pub struct Ring {
    pub made: Cell<bool>,
    pub escape_target: EscapeTarget,
    pub state: Vec<Cell<u32>>,
    pub escape_off: RefCell<Vec<u32>>,
}

impl Ring {
    pub fn new(entries: usize, escape_target: EscapeTarget) -> Self {
        Self {
            made: Cell::new(false),
            escape_target,
            state: vec![Cell::new(FREE); entries],
            escape_off: RefCell::new(vec![0; entries]),
        }
    }

    pub fn at(&self, index: u32) -> usize {
        index as usize % self.state.len()
    }

    pub fn cell(&self, index: u32) -> &Cell<u32> {
        &self.state[self.at(index)]
    }

    /// Nobody has taken it.
    pub fn waits(&self, index: u32) -> bool {
        !self.made.get() || matches!(self.cell(index).get(), READY | ESCAPED)
    }
}

impl Descriptors for Ring {
    fn claim(&self, index: u32) -> bool {
        let waits = self.waits(index);
        if self.made.get() && waits {
            self.cell(index).set(KERNEL);
        }
        waits
    }
    fn is_done(&self, index: u32) -> bool {
        self.made.get() && self.cell(index).get() == DONE
    }
    fn is_waiting(&self, index: u32) -> bool {
        self.waits(index)
    }
    fn set_done(&self, index: u32) {
        self.cell(index).set(DONE);
    }
    fn clear(&self, index: u32) {
        self.cell(index).set(FREE);
    }
    fn escape_target(&self) -> EscapeTarget {
        match self.made.get() {
            true => self.escape_target,
            false => EscapeTarget::Anywhere,
        }
    }
    fn escape(&self, index: u32, off: u32) -> bool {
        // The offset first, as the program may look as soon as the state says so.
        let ready = self.cell(index).get() == READY;
        if ready {
            let at = self.at(index);
            self.escape_off.borrow_mut()[at] = off;
            self.cell(index).set(ESCAPED);
        }
        ready
    }
}
