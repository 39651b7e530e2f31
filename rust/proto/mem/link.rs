// SPDX-License-Identifier: GPL-2.0

//! Which messages may arrive at which end of a memory link, and when. The host that made the link
//! is its requester; the other host is the node's. If the hosts have a key for each other, nothing
//! but their proof of it may arrive before that is done.

use super::super::proof::{Answer, Challenge, Failed, Keys, Proof, Side};
use super::super::wire::{self, Header};
use super::super::Violation;
use super::wire::{Message, Type};

/// An end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Sends Ask and Revoked.
    Requester,
    /// Sends Answer and Revoke.
    Node,
}

impl End {
    /// The side of a proof.
    pub fn side(self) -> Side {
        match self {
            Self::Requester => Side::Connector,
            Self::Node => Side::Acceptor,
        }
    }
}

/// The limits in the peer's hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most open asks that it takes.
    pub asks: u32,
    /// Most open grants.
    pub grants: u32,
}

/// An end of a memory link.
#[derive(Debug)]
pub struct Link {
    end: End,
    /// Whether this host's hello for the connection manager offers a proof; `None`: there is none
    /// yet.
    keyed: Option<bool>,
    /// From the peer's hello for the connection manager on.
    proof: Option<Proof>,
    peer: Option<Limits>,
}

impl Link {
    /// This host's end; no hello was sent, and none has arrived.
    pub fn new(end: End) -> Self {
        Self {
            end,
            keyed: None,
            proof: None,
            peer: None,
        }
    }

    /// This host's hello for the connection manager says whether there is a key for the peer.
    pub fn says(&mut self, keyed: bool) {
        self.keyed = Some(keyed);
    }

    /// Whether the link is not up without a proof.
    pub fn is_keyed(&self) -> bool {
        self.keyed == Some(true)
    }

    /// Whether this host's hello was sent and offers no proof.
    pub fn is_unproved(&self) -> bool {
        self.keyed == Some(false)
    }

    /// The peer's hello for the connection manager has arrived, and offers a proof as this host's
    /// does.
    pub fn prove(&mut self, proof: Proof) {
        self.proof = Some(proof);
    }

    /// The queue pair is connected at `now`, in nanoseconds, and the time of the proof begins.
    /// Returns this host's first message, if it has to send one: its challenge. `None`: no proof
    /// was agreed on.
    pub fn begin(&mut self, now: u64) -> Option<Option<Challenge>> {
        Some(self.proof.as_mut()?.begin(now))
    }

    /// Whether a proof comes first, and is not done.
    pub fn is_proving(&self) -> bool {
        self.is_keyed() && !self.proof.as_ref().is_some_and(Proof::is_done)
    }

    /// Whether the link ends at `now`, in nanoseconds, because its proof has taken too long.
    pub fn is_late(&self, now: u64) -> bool {
        self.proof.as_ref().is_some_and(|proof| proof.is_late(now))
    }

    /// The limits of the peer; `None`: its hello has not arrived, so no ask may be sent yet.
    pub fn peer(&self) -> Option<Limits> {
        self.peer
    }

    /// A message has arrived while the proof is under way. Returns the message to send.
    pub fn proves(
        &mut self,
        message: &Message,
        payload: &[u8],
        keys: &impl Keys,
    ) -> Result<Option<Answer>, Failed> {
        let Message::Link(h) = message else {
            return Err(Failed::Order);
        };
        let proof = self.proof.as_mut().filter(|_| self.keyed == Some(true));
        let read = |out: &mut [u8]| {
            let fits = out.len() == payload.len();
            fits.then(|| out.copy_from_slice(payload)).ok_or(())
        };
        proof.ok_or(Failed::Order)?.arrived(h.kind, read, keys)
    }

    /// A message has arrived. It is a violation before the proof is done, and if it is the proof's
    /// then; if it is not the hello and the hello has not arrived, if it is the second hello, and
    /// if the peer's end of a link does not send it.
    pub fn arrived(&mut self, message: &Message) -> Result<(), Violation> {
        if self.keyed.is_none() || self.is_proving() {
            return Err(Violation::State);
        }
        let h = match message {
            Message::Mem(h) => h,
            Message::Link(Header {
                kind: wire::Type::LinkCredit | wire::Type::Heartbeat,
                ..
            }) => return Ok(()),
            Message::Link(_) => return Err(Violation::State),
        };
        let from = match h.kind {
            Type::Hello => {
                let said = Limits {
                    asks: h.arg,
                    grants: h.grant,
                };
                return match self.peer.replace(said) {
                    None => Ok(()),
                    Some(_) => Err(Violation::State),
                };
            }
            Type::Ask | Type::Revoked => End::Requester,
            Type::Answer | Type::Revoke => End::Node,
        };
        let expected = self.peer.is_some() && from != self.end;
        expected.then_some(()).ok_or(Violation::State)
    }
}
