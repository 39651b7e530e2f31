// SPDX-License-Identifier: GPL-2.0

//! The grants of a node to one peer: remote keys that the peer's device may use, until the node has
//! them back.
//!
//! ```text
//! Registering ─registered─► Open ─revoke─► Revoking ─Revoked or CLOSE─► Invalidating
//!      │ │ revoked meanwhile, registered                                   ▲ │ invalidated
//!      │ └─────────────────────────────────────────────────────────────────┘ ▼
//!      │ registration fails                                                Fenced
//!      └─► gone ◄── Deregistering ◄──next message of the peer────────────────┘
//! ```
//!
//! A grant holds its region from its beginning until its memory is deregistered. A peer that lies
//! may begin a WRITE behind its Revoked and stop in the middle of it. So the device first makes the
//! remote keys invalid: no WRITE begins any more. The next message of the peer then proves that
//! none is half done, and the memory can be deregistered.
//!
//! A peer that answers neither a Revoke nor the Heartbeat that follows the invalidation in time
//! loses its memory link. So does one that holds up the device: the invalidation, or the
//! registration of a grant that is revoked meanwhile, comes behind messages that the peer's device
//! must take. When the queue pair is destroyed, grants in any state are deregistered.

use core::ops::DerefMut;

use super::super::Violation;
use super::node::Hold;
use super::rights::Range;
use super::slab::{Slab, Slot};
use super::status::Status;

/// Most grants of a link.
pub const GRANTS_MAX: usize = 1024;

/// Milliseconds that a peer has to answer a Revoke, then to take the messages in front of the
/// invalidation, and then to answer the Heartbeat.
pub const REVOKE_MS: u64 = 2000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// With the time at which it was revoked, in milliseconds.
    Registering(Option<u64>),
    Open,
    Revoking {
        since_ms: u64,
    },
    Invalidating {
        since_ms: u64,
    },
    Fenced {
        since_ms: u64,
    },
    Deregistering,
}

/// A grant.
pub struct Grant {
    number: u32,
    state: State,
    hold: Hold,
    /// The bytes that the remote keys reach, as addresses of the region's owner.
    reach: Range,
    /// Where the answer to OPEN goes.
    ask: u32,
}

/// The step that follows a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registered {
    /// Answer the ask at that place: the grant is open.
    Answer(u32),
    /// The grant was revoked in the meantime. Answer the ask at that place with the reason, and
    /// make the remote keys invalid: the peer was not told them, but may have guessed one.
    Stale(u32),
}

/// The grants of a link.
pub struct Grants<S> {
    slab: Slab<S>,
    seq: u32,
}

const SLOT_BITS: u32 = 10;
const _: () = assert!(GRANTS_MAX == 1 << SLOT_BITS);

impl<S: DerefMut<Target = [Slot<Grant>]>> Grants<S> {
    /// None; `slots` are at most [`GRANTS_MAX`].
    pub fn new(slots: S) -> Self {
        Self {
            slab: Slab::new(slots),
            seq: 0,
        }
    }

    /// Grants that are not gone.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Whether there is room for another one.
    pub fn has_room(&self) -> bool {
        !self.slab.is_full() && self.slab.len() < GRANTS_MAX
    }

    /// Begins a grant for the ask at place `ask`: the caller registers memory for `reach`. Gives
    /// the hold back if there is no room.
    pub fn begin(&mut self, hold: Hold, reach: Range, ask: u32) -> Result<u32, (Hold, Status)> {
        if !self.has_room() {
            return Err((hold, Status::NoSpace));
        }
        self.seq = self.seq.wrapping_add(1) & (u32::MAX >> SLOT_BITS);
        self.seq = self.seq.max(1);
        let grant = Grant {
            number: self.seq << SLOT_BITS,
            state: State::Registering(None),
            hold,
            reach,
            ask,
        };
        let number = grant.number;
        let Some(at) = self.slab.insert(grant) else {
            // There was room.
            return Ok(0);
        };
        let number = number | at;
        if let Some(grant) = self.slab.get_mut(at) {
            grant.number = number;
        }
        Ok(number)
    }

    fn at(number: u32) -> u32 {
        number & (GRANTS_MAX as u32).wrapping_sub(1)
    }

    fn get(&self, number: u32) -> Option<&Grant> {
        self.slab
            .get(Self::at(number))
            .filter(|g| g.number == number)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Grant> {
        self.slab
            .get_mut(Self::at(number))
            .filter(|g| g.number == number)
    }

    /// The hold of a grant that is not gone.
    pub fn hold(&self, number: u32) -> Option<&Hold> {
        self.get(number).map(|g| &g.hold)
    }

    /// The memory is registered. `None`: there is no such grant, or it was registered before.
    pub fn registered(&mut self, number: u32, now_ms: u64) -> Option<Registered> {
        let grant = self.get_mut(number)?;
        match grant.state {
            State::Registering(None) => {
                grant.state = State::Open;
                Some(Registered::Answer(grant.ask))
            }
            State::Registering(Some(_)) => {
                grant.state = State::Invalidating { since_ms: now_ms };
                Some(Registered::Stale(grant.ask))
            }
            _ => None,
        }
    }

    /// The memory could not be registered, or is deregistered: the grant is gone. Ends with its
    /// hold.
    pub fn gone(&mut self, number: u32) -> Option<Hold> {
        let grant = self.get(number)?;
        let over = matches!(grant.state, State::Registering(_) | State::Deregistering);
        if !over {
            return None;
        }
        self.slab.remove(Self::at(number)).map(|g| g.hold)
    }

    /// Revokes one of the open grants for which `must_stop` is true: the caller sends a Revoke for
    /// it. Marks those that are being registered.
    pub fn revoke_one(&mut self, now_ms: u64, must_stop: impl Fn(&Hold) -> bool) -> Option<u32> {
        for (_, grant) in self.slab.iter_mut() {
            match grant.state {
                State::Registering(None) if must_stop(&grant.hold) => {
                    grant.state = State::Registering(Some(now_ms));
                }
                State::Open if must_stop(&grant.hold) => {
                    grant.state = State::Revoking { since_ms: now_ms };
                    return Some(grant.number);
                }
                _ => {}
            }
        }
        None
    }

    /// Revoked has arrived: the caller makes the grant's remote keys invalid. It is a violation
    /// unless a Revoke was sent.
    pub fn revoked(&mut self, number: u32, now_ms: u64) -> Result<(), Violation> {
        let grant = self.get_mut(number).ok_or(Violation::State)?;
        if !matches!(grant.state, State::Revoking { .. }) {
            return Err(Violation::State);
        }
        grant.state = State::Invalidating { since_ms: now_ms };
        Ok(())
    }

    /// CLOSE has arrived: the caller makes the grant's remote keys invalid. A Revoke may have
    /// crossed it. It is a violation for a grant that the peer does not have.
    pub fn closed(&mut self, number: u32, now_ms: u64) -> Result<(), Violation> {
        let grant = self.get_mut(number).ok_or(Violation::State)?;
        if !matches!(grant.state, State::Open | State::Revoking { .. }) {
            return Err(Violation::State);
        }
        grant.state = State::Invalidating { since_ms: now_ms };
        Ok(())
    }

    /// The grant's remote keys are invalid: the caller sends a Heartbeat that asks for an answer.
    /// False if nothing is to be done, as the link is down.
    ///
    /// The completion of the invalidation and the link's receives come by one completion queue, and
    /// are told here in its order: a message that arrived before is not taken for one that arrived
    /// afterwards.
    pub fn invalidated(&mut self, number: u32, now_ms: u64) -> bool {
        match self.get_mut(number) {
            Some(grant) if matches!(grant.state, State::Invalidating { .. }) => {
                grant.state = State::Fenced { since_ms: now_ms };
                true
            }
            _ => false,
        }
    }

    /// A message of the peer has arrived, of any kind: takes one of the grants whose memory the
    /// caller deregisters now. Call it until there is none, before the message is looked at.
    pub fn heard_one(&mut self) -> Option<u32> {
        let mut grants = self.slab.iter_mut().map(|(_, grant)| grant);
        let grant = grants.find(|g| matches!(g.state, State::Fenced { .. }))?;
        grant.state = State::Deregistering;
        Some(grant.number)
    }

    /// The grant may be written to, and `bytes` at `addr` are in its reach: so what the peer says
    /// it has written may have landed, and the region still takes it.
    ///
    /// Errors: `Stale` if it is being revoked or unknown; `Denied` if it does not let write;
    /// `Range`.
    pub fn check_written(&self, number: u32, addr: u64, bytes: u64) -> Result<&Hold, Status> {
        let grant = self.get(number).ok_or(Status::Stale)?;
        if grant.state != State::Open {
            return Err(Status::Stale);
        }
        if !grant.hold.writes() {
            return Err(Status::Denied);
        }
        let written = Range {
            off: addr,
            len: bytes,
        };
        if !grant.reach.contains(written) {
            return Err(Status::Range);
        }
        Ok(&grant.hold)
    }

    /// When the peer is late with a Revoked, with taking what is in front of an invalidation, or
    /// with a message after it: then its link must be taken down.
    pub fn overdue_ms(&self, patience_ms: u64) -> Option<u64> {
        let since = self.slab.iter().filter_map(|(_, g)| match g.state {
            State::Revoking { since_ms }
            | State::Invalidating { since_ms }
            | State::Fenced { since_ms }
            | State::Registering(Some(since_ms)) => Some(since_ms.saturating_add(patience_ms)),
            _ => None,
        });
        since.min()
    }

    /// The link's queue pair is destroyed, so nothing of the peer can land any more: takes one of
    /// the grants whose memory the caller deregisters now, and then calls [`Self::gone`]. Those
    /// that are being registered stay until that is over.
    pub fn link_down_one(&mut self) -> Option<u32> {
        for (_, grant) in self.slab.iter_mut() {
            match grant.state {
                State::Registering(revoked_ms) => {
                    grant.state = State::Registering(revoked_ms.or(Some(u64::MAX)));
                }
                State::Open
                | State::Revoking { .. }
                | State::Invalidating { .. }
                | State::Fenced { .. } => {
                    grant.state = State::Deregistering;
                    return Some(grant.number);
                }
                State::Deregistering => {}
            }
        }
        None
    }
}
