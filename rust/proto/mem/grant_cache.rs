// SPDX-License-Identifier: GPL-2.0

//! The grants that a requester has on one memory link: which remote keys it may use now, and when
//! it has stopped to.
//!
//! ```text
//! Opening ─answer─► Open ─Revoke, or idle─► Leaving ─nothing in flight─► gone
//!                                                           (Revoked or CLOSE is sent)
//! ```
//!
//! After a Revoke, no work request with the grant's remote keys is posted. Revoked is sent when all
//! earlier ones have completed. The caller stores the remote keys, by the grant's place.

use core::ops::DerefMut;

use super::super::Violation;
use super::id::{Key, NodeId};
use super::rights::Rights;
use super::slab::{Slab, Slot};

/// Milliseconds after which a grant that is not used is closed.
pub const IDLE_MS: u64 = 10_000;

/// Milliseconds for which an operation that moves nothing keeps its grant from the others: one may
/// wait for the memory of its program for ever.
pub const KEPT_MS: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Opening,
    Open,
    /// The node wants it back.
    Revoking,
    /// It was for one operation, or idle.
    Closing,
}

/// A grant that the requester has, or has asked for.
pub struct Lent {
    node: NodeId,
    key: Key,
    rights: Rights,
    state: State,
    /// The node's number of it; 0 while it is being opened.
    number: u32,
    /// It is for one operation.
    once: bool,
    /// Operations that have been told of it, and are not over.
    users: u32,
    in_flight: u32,
    used_ms: u64,
}

/// The result of a lookup of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The grant can be used.
    Open {
        /// Its place.
        at: u32,
        /// The node's number of it.
        number: u32,
    },
    /// OPEN was sent and is not answered yet.
    Opening(u32),
    /// There is no such grant: send OPEN.
    None,
}

/// The message to send when a requester leaves a grant. The grant's place is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Revoked, for that grant.
    Revoked(u32),
    /// CLOSE, for that grant.
    Close(u32),
}

/// The grants.
pub struct GrantCache<S>(Slab<S>);

impl<S: DerefMut<Target = [Slot<Lent>]>> GrantCache<S> {
    /// None.
    pub fn new(slots: S) -> Self {
        Self(Slab::new(slots))
    }

    /// Grants that are known or asked for.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether half of the places are taken: the rest is for operations that need a grant.
    pub fn is_half_full(&self) -> bool {
        self.0.len() >= self.0.room() / 2
    }

    /// Looks for a grant by `key` that gives `rights`.
    pub fn find(&self, node: NodeId, key: Key, rights: Rights) -> Found {
        let mut fitting = self.0.iter().filter(|(_, g)| {
            (g.node, g.key) == (node, key) && g.rights.contains(rights) && !g.once
        });
        let usable = |g: &Lent| matches!(g.state, State::Opening | State::Open);
        match fitting.find(|(_, g)| usable(g)) {
            Some((at, g)) if g.state == State::Open => Found::Open {
                at,
                number: g.number,
            },
            Some((at, _)) => Found::Opening(at),
            None => Found::None,
        }
    }

    /// Begins to open a grant. `None` if there is no room: leave an idle one first
    /// ([`Self::leave_idle`]).
    pub fn begin_open(
        &mut self,
        node: NodeId,
        key: Key,
        rights: Rights,
        now_ms: u64,
    ) -> Option<u32> {
        self.0.insert(Lent {
            node,
            key,
            rights,
            state: State::Opening,
            number: 0,
            once: false,
            users: 0,
            in_flight: 0,
            used_ms: now_ms,
        })
    }

    /// The node has answered OPEN with grant `number`; `once`: it is for one operation, which
    /// [`Self::begin`] begins. A number that is open already is a violation.
    pub fn opened(&mut self, at: u32, number: u32, once: bool) -> Result<(), Violation> {
        if number == 0 || self.by_number(number).is_some() {
            return Err(Violation::State);
        }
        let lent = self.0.get_mut(at).ok_or(Violation::State)?;
        if lent.state != State::Opening {
            return Err(Violation::State);
        }
        lent.number = number;
        lent.once = once;
        lent.state = State::Open;
        Ok(())
    }

    /// Leaves a grant that was opened just now. No operation has been told of it.
    pub fn give_back(&mut self, at: u32) -> Option<Leave> {
        self.0.get_mut(at)?.state = State::Closing;
        self.leave(at)
    }

    /// The node has refused OPEN, or the link is lost.
    pub fn forget(&mut self, at: u32) {
        self.0.remove(at);
    }

    fn by_number(&self, number: u32) -> Option<u32> {
        let mut known = self.0.iter().filter(|(_, g)| g.number == number);
        known.next().map(|(at, _)| at)
    }

    /// An operation is told of grant `number`, and going to use it, until [`Self::finish`].
    pub fn tell(&mut self, at: u32, number: u32, now_ms: u64) {
        if let Some(lent) = self.0.get_mut(at).filter(|g| g.number == number) {
            lent.users = lent.users.saturating_add(1);
            lent.used_ms = now_ms;
        }
    }

    /// A work request with the remote keys of grant `number` is going to be posted. False if it
    /// must not: the node wants the grant back, or its place has another one by now.
    pub fn begin(&mut self, at: u32, number: u32, now_ms: u64) -> bool {
        let Some(lent) = self.0.get_mut(at) else {
            return false;
        };
        if lent.state != State::Open || lent.number != number {
            return false;
        }
        lent.in_flight = lent.in_flight.saturating_add(1);
        lent.used_ms = now_ms;
        true
    }

    /// Such a work request has completed, or was not posted.
    pub fn end(&mut self, at: u32) -> Option<Leave> {
        let lent = self.0.get_mut(at)?;
        lent.in_flight = lent.in_flight.saturating_sub(1);
        self.leave(at)
    }

    /// An operation that was told of grant `number` is over. Leaves the grant if it was for that
    /// operation alone.
    pub fn finish(&mut self, at: u32, number: u32) -> Option<Leave> {
        let lent = self.0.get_mut(at).filter(|g| g.number == number)?;
        lent.users = lent.users.saturating_sub(1);
        if !lent.once {
            return None;
        }
        if lent.state == State::Open {
            lent.state = State::Closing;
        }
        self.leave(at)
    }

    /// Revoke has arrived. If CLOSE was sent for the grant, no Revoked follows: CLOSE says the
    /// same.
    pub fn revoke(&mut self, number: u32) -> Option<Leave> {
        let at = self.by_number(number)?;
        self.0.get_mut(at)?.state = State::Revoking;
        self.leave(at)
    }

    fn leave(&mut self, at: u32) -> Option<Leave> {
        let lent = self.0.get(at).filter(|g| g.in_flight == 0)?;
        let leave = match lent.state {
            State::Opening | State::Open => return None,
            State::Revoking => Leave::Revoked(lent.number),
            State::Closing => Leave::Close(lent.number),
        };
        self.0.remove(at);
        Some(leave)
    }

    /// Leaves the grant that was used longest ago, if that is at least `idle_ms` ago and nothing is
    /// in flight. One that an operation is going to use is left after [`KEPT_MS`] at the earliest.
    pub fn leave_idle(&mut self, now_ms: u64, idle_ms: u64) -> Option<Leave> {
        let idle = self.0.iter().filter(|(_, g)| {
            g.state == State::Open
                && g.in_flight == 0
                && !g.once
                && now_ms.saturating_sub(g.used_ms)
                    >= if g.users == 0 {
                        idle_ms
                    } else {
                        idle_ms.max(KEPT_MS)
                    }
        });
        let (at, _) = idle.min_by_key(|(_, g)| g.used_ms)?;
        self.0.get_mut(at)?.state = State::Closing;
        self.leave(at)
    }
}
