// SPDX-License-Identifier: GPL-2.0

//! The asks of one peer that its node has not answered yet. Each is copied out of its receive block
//! into a place that the link has had from its beginning, so that taking an ask never needs memory.
//!
//! An answer that waits for credit counts as an open ask: the peer does not have it, so it cannot
//! ask anew. So the answers that wait are bounded, however little credit the peer gives.

use core::ops::DerefMut;

use super::super::Violation;
use super::asks::ASKS_MAX;
use super::status::Status;
use super::wire::{MemHeader, Op, Type};

/// A place for an ask.
pub type ServerSlot = Option<MemHeader>;

/// The unanswered asks of a peer.
pub struct Server<S> {
    slots: S,
    open: usize,
    /// Answers that are not posted.
    unposted: usize,
}

impl<S: DerefMut<Target = [ServerSlot]>> Server<S> {
    /// None; `slots` are empty, and as many as the peer was told in the hello.
    pub fn new(slots: S) -> Self {
        Self {
            slots,
            open: 0,
            unposted: 0,
        }
    }

    /// Asks that are not answered.
    #[cfg(not(MODULE))]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Takes an ask; returns its place. More than the peer may have open, and a number that is
    /// open, are violations.
    pub fn accept(&mut self, h: &MemHeader) -> Result<u32, Violation> {
        if h.kind != Type::Ask {
            return Err(Violation::State);
        }
        if self.find(h.id).is_some() {
            return Err(Violation::State);
        }
        if self.open.saturating_add(self.unposted) >= ASKS_MAX {
            return Err(Violation::Credit);
        }
        let mut slots = (0_u32..).zip(self.slots.iter_mut()).take(ASKS_MAX);
        let (at, slot) = slots.find(|(_, s)| s.is_none()).ok_or(Violation::Credit)?;
        *slot = Some(*h);
        self.open = self.open.saturating_add(1);
        Ok(at)
    }

    /// The place of the unanswered ask with that number.
    pub fn find(&self, id: u32) -> Option<u32> {
        let mut slots = (0_u32..).zip(self.slots.iter());
        slots
            .find(|(_, s)| s.is_some_and(|h| h.id == id))
            .map(|(at, _)| at)
    }

    /// The ask at a place.
    #[cfg(not(MODULE))]
    pub fn get(&self, at: u32) -> Option<&MemHeader> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// Begins the answer to the ask at a place, which is free then; [`Self::posted`] follows.
    /// `None`: there is none, so it is answered already.
    pub fn answer(&mut self, at: u32, status: Status) -> Option<MemHeader> {
        let slot = self.slots.get_mut(at as usize)?;
        let ask = slot.take()?;
        self.open = self.open.saturating_sub(1);
        self.unposted = self.unposted.saturating_add(1);
        Some(MemHeader::answer(
            ask.id,
            ask.op.unwrap_or(Op::Cancel),
            status,
        ))
    }

    /// An answer is posted.
    pub fn posted(&mut self) {
        self.unposted = self.unposted.saturating_sub(1);
    }
}
