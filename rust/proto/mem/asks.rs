// SPDX-License-Identifier: GPL-2.0

//! The open asks of a requester on one memory link: each is answered once, or fails with the link.

use core::ops::DerefMut;

use super::super::Violation;
use super::wire::{MemHeader, Op, Type};

/// Most open asks on a link.
pub const ASKS_MAX: usize = 64;

/// Fewest that a node may take at a time.
pub const ASKS_MIN: u32 = 4;

/// Most asks that are kept free for each class that others must not wait for, see [`Asks::room`].
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
    ///
    /// A COPY is answered when others have answered its source's OPEN and WROTE. FREE, SEAL, UNKEY and CANCEL are answered
    /// when copies and grants have ended. All other asks are answered by the node itself. If COPYs could use all places, then
    /// the sources of a ring of hosts would wait for each other's places for ever. So each of the three classes leaves some
    /// to those that it waits for.
    pub fn room(&self, op: Op) -> usize {
        let classes = match op {
            Op::Copy => 2,
            Op::Free | Op::Seal | Op::Unkey | Op::Cancel => 1,
            _ => 0,
        };
        let each = ASKS_RESERVED.min(self.most >> 2).max(1);
        let reserve = each.saturating_mul(classes);
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
