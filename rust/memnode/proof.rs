// SPDX-License-Identifier: GPL-2.0

//! The proof of a memory link whose hosts have a key for each other, as that of a stream link
//! (`transport/proof.rs`). It is done before the link is up, so nothing is asked, answered or
//! registered until then: what programs ask waits as while the link is made.
//!
//! Locks: all of it under `Host::state`, with the mutex of the list of keys inside.

#![deny(unsafe_code)]

use kernel::prelude::*;

use super::host::{Host, State};
use super::side::{Life, Side};
use crate::kern::errno::ENOTCONN;
use crate::kern::net::Net;
use crate::kern::task::{now_ns, random_bytes};
use crate::proto::addr::Ip;
use crate::proto::link_flow::LinkFlow;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::Message;
use crate::proto::proof::{padded, Answer, End, Proof};
use crate::proto::wire::Header;
use crate::proto::Violation;
use crate::transport::keys::Unproved;
use crate::transport::peers::Peers;

/// The other end of a link, once its hello has arrived.
pub(super) struct Theirs<'a> {
    /// Credit that both sides have agreed on.
    pub(super) flow: LinkFlow,
    /// Its hello.
    pub(super) hello: &'a [u8],
    /// The address of this host that it is connected with.
    pub(super) local: Ip,
    /// The number of its queue pair; 0: it is not known.
    pub(super) qp: u32,
}

impl Side {
    /// This host is about to send `hello`, which says whether there is a key.
    pub(super) fn says(&mut self, keyed: bool, hello: &[u8]) {
        self.proto.says(keyed);
        self.hello = padded(hello);
    }

    /// The peer's hello has arrived. Begins the proof if there is a key. ENOTCONN.
    pub(super) fn hears(&mut self, theirs: Theirs<'_>) -> Result {
        self.flow = Some(theirs.flow);
        if !self.proto.is_keyed() {
            return Ok(());
        }
        let queues = self.queues.as_ref().ok_or(ENOTCONN)?;
        let own = End {
            hello: self.hello,
            addr: theirs.local.octets(),
            qp: queues.qp.number(),
        };
        let their = End {
            hello: padded(theirs.hello),
            addr: self.ip.octets(),
            qp: theirs.qp,
        };
        let (challenge, filler) = (random_bytes(), random_bytes());
        let side = self.end.side();
        let proof = Proof::new(side, (own, their), challenge, filler);
        self.proto.prove(proof);
        Ok(())
    }

    /// Has a message of the proof posted. ENOMEM.
    fn say_proof(&mut self, answer: &Answer) -> Result {
        let (kind, bytes) = answer.message();
        let mut payload = KVec::new();
        payload.extend_from_slice(bytes, GFP_KERNEL)?;
        let mut h = Header::new(kind, Default::default(), Default::default());
        h.len = bytes.len() as u32;
        self.post_later(Message::Link(h), payload)
    }
}

impl State {
    /// The queue pair of a link is connected: the link is up, or its proof begins. ENOMEM,
    /// ENOTCONN.
    pub(super) fn connected(&mut self, slot: usize) -> Result {
        let side = self.side(slot).ok_or(ENOTCONN)?;
        if !side.proto.is_proving() {
            return self.link_up(slot);
        }
        let challenge = side.proto.begin(now_ns()).ok_or(ENOTCONN)?;
        side.life = Life::Proving;
        match challenge {
            Some(challenge) => side.say_proof(&Answer::Challenge(challenge)),
            // The peer's comes first.
            None => Ok(()),
        }
    }

    /// A message has arrived before the proof is done.
    pub(super) fn proof_arrived(
        &mut self,
        host: &Host,
        slot: usize,
        message: &Message,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let peers = &host.memory.peers;
        let side = self.side(slot).ok_or(Violation::State)?;
        let keys = peers.keys.of(&host.net, side.ip);
        match side.proto.proves(message, payload, &keys) {
            Ok(Some(answer)) => {
                if side.say_proof(&answer).is_err() {
                    self.fail(slot, Status::NoMemory);
                    return Ok(());
                }
            }
            Ok(None) => {}
            Err(failed) => {
                self.unproved(peers, slot, Unproved::of(failed)?);
                return Ok(());
            }
        }
        if self.side(slot).is_some_and(|s| !s.proto.is_proving()) {
            peers.keys.proved.add(1);
            if self.link_up(slot).is_err() {
                self.fail(slot, Status::NoMemory);
            }
        }
        Ok(())
    }

    /// Ends a link whose proof has failed. Only the first reason is counted.
    pub(super) fn unproved(&mut self, peers: &Peers, slot: usize, why: Unproved) {
        let Some(side) = self.side(slot).filter(|s| s.life != Life::Down) else {
            return;
        };
        peers.keys.refused(side.ip, why);
        let status = match why {
            Unproved::Silent => Status::Unreachable,
            _ => Status::Denied,
        };
        self.fail(slot, status);
    }

    /// Looks whether the peer has been silent for too long.
    pub(super) fn look_at_proof(&mut self, host: &Host, slot: usize) {
        let late = |side: &mut Side| side.proto.is_late(now_ns());
        if self.side(slot).is_some_and(late) {
            self.unproved(&host.memory.peers, slot, Unproved::Silent);
        } else if self.side(slot).is_some_and(|side| side.link.is_broken()) {
            self.fail(slot, Status::Lost);
        }
    }

    /// Ends the links that the list of peers does not allow, and those without a proof that need
    /// one now.
    pub(super) fn drop_denied(&mut self, peers: &Peers, net: &Net) {
        for slot in 0..self.sides.len() {
            let Some(side) = self.side(slot) else {
                continue;
            };
            let (ip, unproved) = (side.ip, side.proto.is_unproved());
            if !peers.allow(net, ip) {
                self.fail(slot, Status::Denied);
            } else if unproved && peers.keys.has(net, ip) {
                // The next one brings a proof.
                self.fail(slot, Status::Lost);
            }
        }
    }
}
