// SPDX-License-Identifier: GPL-2.0

//! The open asks of a requester on one memory link: each is answered once, with an answer that fits
//! it, or fails with the link. No user of the requesting host has more than its share of them.

use core::ops::DerefMut;

use super::super::Violation;
use super::id::Key;
use super::status::Status;
use super::wire::{MemHeader, Op, Type, FLAG_VIA};

/// Most open asks on a link.
pub const ASKS_MAX: usize = 64;

/// Fewest that a node may take at a time.
pub const ASKS_MIN: u32 = 4;

/// Fewest asks that a user may have open: one of each class.
pub const USER_ASKS_MIN: usize = 3;

/// Most asks that are kept free for each class that others must not wait for, see [`Asks::room`].
pub const ASKS_RESERVED: usize = 8;

/// How much longer than for other answers a node has for those to SEAL, UNKEY and CANCEL, in
/// milliseconds: grants that are taken back by force, and targets of copies that do not answer, are
/// waited for.
pub const ENDING_MS: u64 = 10_000;

/// How long a node has to answer `ask`, if `patience_ms` is the time for what it answers by itself.
/// `None`: as long as it takes, as COPY does, and what a broker asks another host for; a thread
/// that can be killed waits for that, or nobody.
pub fn patience_of(ask: &MemHeader, patience_ms: u64) -> Option<u64> {
    match ask.op {
        Some(Op::Copy | Op::Free) => None,
        Some(Op::Alloc) if ask.flags & FLAG_VIA != 0 => None,
        Some(Op::Seal | Op::Unkey | Op::Cancel) => Some(patience_ms.saturating_add(ENDING_MS)),
        _ => Some(patience_ms),
    }
}

/// A place for an ask.
#[derive(Clone, Copy)]
pub struct AskSlot(Option<Open>);

#[derive(Clone, Copy)]
struct Open {
    ask: MemHeader,
    op: Op,
    token: u64,
    user: Option<u32>,
    /// When the node's device had it.
    sent_ms: Option<u64>,
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
    /// Most of one user at a time.
    user_most: usize,
    open: usize,
    /// Makes numbers that were not used lately.
    seq: u32,
}

const SLOT_BITS: u32 = 6;
const _: () = assert!(ASKS_MAX == 1 << SLOT_BITS);

impl<S: DerefMut<Target = [AskSlot]>> Asks<S> {
    /// No ask; the node takes `most` at a time, of which a user may have `user_percent`.
    pub fn new(slots: S, most: u32, user_percent: u32) -> Self {
        let most = usize::try_from(most).unwrap_or(ASKS_MAX);
        let most = most.min(ASKS_MAX).min(slots.len());
        let percent = usize::try_from(user_percent.min(100)).unwrap_or(100);
        let share = most.saturating_mul(percent).div_ceil(100);
        Self {
            most,
            user_most: share.max(USER_ASKS_MIN).min(most),
            slots,
            open: 0,
            seq: 0,
        }
    }

    /// Most asks that may be open.
    pub fn most(&self) -> u32 {
        u32::try_from(self.most).unwrap_or(u32::MAX)
    }

    /// Asks that are open.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Asks like `op` that may be begun now.
    ///
    /// A COPY is answered when others have answered its source's OPEN and WROTE. FREE, SEAL, UNKEY
    /// and CANCEL are answered when copies and grants have ended. All other asks are answered by
    /// the node itself. If COPYs could use all places, then the sources of a ring of hosts would
    /// wait for each other's places for ever. So each of the three classes leaves some to those
    /// that it waits for.
    ///
    /// The asks of `user` are counted in the same way within the user's share; without a user, an
    /// ask is the host's own and only the link's limit counts.
    pub fn room(&self, op: Op, user: Option<u32>) -> usize {
        let classes = match op {
            Op::Copy => 2,
            Op::Free | Op::Seal | Op::Unkey | Op::Cancel => 1,
            _ => 0,
        };
        let left = |most: usize, open: usize| {
            let each = ASKS_RESERVED.min(most >> 2).max(1);
            let reserve = each.saturating_mul(classes);
            most.saturating_sub(open).saturating_sub(reserve)
        };
        let room = left(self.most, self.open);
        match user {
            None => room,
            Some(user) => room.min(left(self.user_most, self.open_of(user))),
        }
    }

    /// Asks of a user that are open.
    pub fn open_of(&self, user: u32) -> usize {
        let open = self.slots.iter().filter_map(|s| s.0);
        open.filter(|o| o.user == Some(user)).count()
    }

    /// Begins an ask with the fields of `ask`, whose number is chosen here; the caller is told
    /// `token` when it is over. `None`: there are too many, on the link or of the user, or it is no
    /// ask.
    pub fn begin(&mut self, ask: MemHeader, token: u64, user: Option<u32>) -> Option<MemHeader> {
        let op = ask.op.filter(|_| ask.kind == Type::Ask)?;
        if self.room(op, user) == 0 {
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
        let ask = MemHeader { id, ..ask };
        slot.0 = Some(Open {
            ask,
            op,
            token,
            user,
            sent_ms: None,
        });
        self.open = self.open.saturating_add(1);
        Some(ask)
    }

    /// The message with ask `id` has completed: the node's device has it, and the time for the
    /// answer begins. Without effect if it is answered already.
    pub fn sent(&mut self, id: u32, now_ms: u64) {
        let mut open = self.slots.iter_mut().filter_map(|s| s.0.as_mut());
        if let Some(open) = open.find(|o| o.ask.id == id) {
            open.sent_ms = Some(now_ms);
        }
    }

    /// Whether the node has had an ask for longer than [`patience_of`] it: its link must be taken
    /// down.
    pub fn is_late(&self, now_ms: u64, patience_ms: u64) -> bool {
        let mut open = self.slots.iter().filter_map(|s| s.0);
        open.any(|o| {
            let since = o.sent_ms.map(|at| now_ms.saturating_sub(at));
            let most = patience_of(&o.ask, patience_ms);
            since.zip(most).is_some_and(|(since, most)| since >= most)
        })
    }

    /// An answer has arrived; returns the ask's token. An answer to no open ask, and one that does
    /// not fit its ask, are violations; the ask stays open then, and fails with the link.
    pub fn answered(&mut self, h: &MemHeader) -> Result<u64, Violation> {
        let at = h.id & (ASKS_MAX as u32).wrapping_sub(1);
        let slot = self.slots.get_mut(at as usize).ok_or(Violation::State)?;
        let open = slot.0.ok_or(Violation::State)?;
        if h.kind != Type::Answer || open.ask.id != h.id || Some(open.op) != h.op {
            return Err(Violation::State);
        }
        if !fits(&open.ask, h) {
            return Err(Violation::Length);
        }
        slot.0 = None;
        self.open = self.open.saturating_sub(1);
        Ok(open.token)
    }

    /// Number of the open ask with that token.
    pub fn id_of(&self, token: u64) -> Option<u32> {
        let mut open = self.slots.iter().filter_map(|s| s.0);
        open.find(|o| o.token == token).map(|o| o.ask.id)
    }

    /// The link is lost: takes one of the open asks, which has failed.
    pub fn fail_one(&mut self) -> Option<(Op, u64)> {
        let slot = self.slots.iter_mut().find(|s| s.0.is_some())?;
        let open = slot.0.take()?;
        self.open = self.open.saturating_sub(1);
        Some((open.op, open.token))
    }
}

/// Whether an answer gives what was asked for, neither more nor less. What else it says is the
/// node's to decide.
fn fits(ask: &MemHeader, answer: &MemHeader) -> bool {
    let ok = answer.status == Status::Ok;
    match ask.op {
        // What has landed is told of a COPY that failed, too.
        Some(Op::Copy) => answer.bytes <= ask.bytes && (!ok || answer.bytes == ask.bytes),
        _ if !ok => true,
        Some(Op::Alloc) => {
            let asked = (ask.addr, ask.bytes, ask.node);
            (answer.addr, answer.bytes, answer.node) == asked
        }
        Some(Op::Key) => {
            let of = |key: Key| (key.region, key.gen);
            of(answer.key2) == of(ask.key)
        }
        Some(Op::Open) => answer.rights == ask.rights,
        Some(Op::Get) => u64::from(answer.len) == ask.bytes,
        _ => true,
    }
}
