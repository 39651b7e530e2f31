// SPDX-License-Identifier: GPL-2.0

//! The open asks of a requester on one memory link: each is answered once, or fails with the link.

use core::ops::DerefMut;

use super::super::Violation;
use super::wire::{MemHeader, Op, Type};

/// Most open asks on a link.
pub const ASKS_MAX: usize = 64;

/// Asks that are kept free of COPY, PUT and GET, so that a cancel or free never waits for what it is to end.
pub const ASKS_RESERVED: usize = 8;

/// A place for an ask.
#[derive(Clone, Copy)]
pub struct AskSlot(Option<Open>);

#[derive(Clone, Copy)]
struct Open {
    id: u32,
    op: Op,
    token: u64,
}

impl AskSlot {
    /// What storage is filled with.
    pub const EMPTY: Self = Self(None);
}

/// The open asks.
pub struct Asks<S> {
    slots: S,
    /// Most at a time: ours or the node's limit.
    most: usize,
    open: usize,
    /// Makes numbers that were not used lately.
    seq: u32,
}

const SLOT_BITS: u32 = 6;
const _: () = assert!(ASKS_MAX == 1 << SLOT_BITS);

impl<S: DerefMut<Target = [AskSlot]>> Asks<S> {
    /// No ask; the node takes `most` at a time.
    pub fn new(slots: S, most: u32) -> Self {
        let most = usize::try_from(most).unwrap_or(ASKS_MAX);
        Self {
            most: most.min(ASKS_MAX).min(slots.len()),
            slots,
            open: 0,
            seq: 0,
        }
    }

    /// Asks that are open.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Asks like `op` that may be begun now.
    pub fn room(&self, op: Op) -> usize {
        let bulk = matches!(op, Op::Copy | Op::Put | Op::Get | Op::Wrote | Op::Open);
        // A node that takes few asks leaves no room for a reserve.
        let reserve = if bulk {
            ASKS_RESERVED.min(self.most >> 1)
        } else {
            0
        };
        self.most.saturating_sub(self.open).saturating_sub(reserve)
    }

    /// Begins an ask; the caller is told `token` when it is over. `None`: there are too many.
    pub fn begin(&mut self, op: Op, token: u64) -> Option<MemHeader> {
        if self.room(op) == 0 {
            return None;
        }
        let (at, slot) = (0_u32..)
            .zip(self.slots.iter_mut())
            .find(|(_, s)| s.0.is_none())?;
        self.seq = self.seq.wrapping_add(1);
        if self.seq >> (32_u32.saturating_sub(SLOT_BITS)) != 0 {
            self.seq = 1;
        }
        let id = (self.seq << SLOT_BITS) | at;
        slot.0 = Some(Open { id, op, token });
        self.open = self.open.saturating_add(1);
        Some(MemHeader::ask(id, op))
    }

    /// An answer has arrived; returns the ask's token. The answer to no open ask is a violation.
    pub fn answered(&mut self, h: &MemHeader) -> Result<u64, Violation> {
        let at = h.id & (ASKS_MAX as u32).wrapping_sub(1);
        let slot = self.slots.get_mut(at as usize).ok_or(Violation::State)?;
        let open = slot.0.ok_or(Violation::State)?;
        if h.kind != Type::Answer || open.id != h.id || Some(open.op) != h.op {
            return Err(Violation::State);
        }
        slot.0 = None;
        self.open = self.open.saturating_sub(1);
        Ok(open.token)
    }

    /// Number of the open ask with that token.
    pub fn id_of(&self, token: u64) -> Option<u32> {
        let mut open = self.slots.iter().filter_map(|s| s.0);
        open.find(|o| o.token == token).map(|o| o.id)
    }

    /// The link is lost: takes one of the open asks, which has failed.
    pub fn fail_one(&mut self) -> Option<(Op, u64)> {
        let slot = self.slots.iter_mut().find(|s| s.0.is_some())?;
        let open = slot.0.take()?;
        self.open = self.open.saturating_sub(1);
        Some((open.op, open.token))
    }
}
