// SPDX-License-Identifier: GPL-2.0

//! The proof of a link whose hosts have a key for each other; `proto/proof.rs` decides. It is done
//! before the link is up, so the link carries nothing else until then.
//!
//! Locks: `proof` (mutex) after `drain`; no other lock is taken under it.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::keys::Unproved;
use super::link::{Link, LinkState};
use super::tx::{post, Outgoing};
use crate::kern::errno::{ENOBUFS, ENOTCONN};
use crate::kern::task::{now_ns, random_bytes};
use crate::proto::channel::Failure;
use crate::proto::dgram::wire::Message;
use crate::proto::proof::{padded, Answer, End, Proof, Side};
use crate::proto::wire::{Header, HELLO_MOST};
use crate::proto::{ChanId, Violation};

/// The proof of a link, and the hello that it covers.
pub(super) struct LinkProof {
    /// This host's hello as it was sent.
    sent: [u8; HELLO_MOST],
    /// From the peer's hello on.
    state: Option<Proof>,
}

impl LinkProof {
    /// That of a new link.
    pub(super) fn new() -> Self {
        Self {
            sent: [0; HELLO_MOST],
            state: None,
        }
    }
}

impl Link {
    /// Whether this host's hello says that there is a key for the peer: the link is not up without
    /// a proof.
    pub(crate) fn is_keyed(&self) -> bool {
        self.keyed.load(Relaxed)
    }

    /// Whether there has come to be a key for the peer since this host's hello was made. Sleeps.
    pub(super) fn lacks_proof(&self) -> bool {
        let remote = self.remote_ip();
        !self.is_keyed() && self.transport.peers.keys.has(&self.net, remote)
    }

    /// Whether the proof is under way.
    pub(super) fn is_proving(&self) -> bool {
        let tx = self.tx.lock();
        tx.proving && tx.state == LinkState::Connecting
    }

    /// This host is about to send `hello`, which says whether there is a key. Sleeps.
    pub(super) fn says(&self, keyed: bool, hello: &[u8]) {
        self.keyed.store(keyed, Relaxed);
        self.proof.lock().sent = padded(hello);
    }

    /// The peer's hello has arrived, with the number of its queue pair; 0: it is not known. Begins
    /// the proof if there is a key. Sleeps. ENOTCONN.
    pub(super) fn heard(&self, hello: &[u8], qp: u32) -> Result {
        if !self.is_keyed() {
            return Ok(());
        }
        let (own_qp, local) = {
            let tx = self.tx.lock();
            let queues = tx.queues.as_ref().ok_or(ENOTCONN)?;
            (queues.qp.number(), tx.local)
        };
        let mut slot = self.proof.lock();
        let own = End {
            hello: slot.sent,
            addr: local.octets(),
            qp: own_qp,
        };
        let their = End {
            hello: padded(hello),
            addr: self.remote_ip().octets(),
            qp,
        };
        let side = match self.accepted {
            true => Side::Acceptor,
            false => Side::Connector,
        };
        let (challenge, filler) = (random_bytes(), random_bytes());
        slot.state = Some(Proof::new(side, (own, their), challenge, filler));
        Ok(())
    }

    /// The queue pair is connected: sends the challenge, unless the peer's has to come first.
    /// Sleeps.
    pub(super) fn challenge(self: &Arc<Self>) {
        let challenge = {
            let mut slot = self.proof.lock();
            slot.state.as_mut().map(|proof| proof.begin(now_ns()))
        };
        let sent = match challenge {
            Some(Some(challenge)) => self.post_proof(&Answer::Challenge(challenge)),
            // The peer's comes first.
            Some(None) => Ok(()),
            None => Err(ENOTCONN),
        };
        if sent.is_err() {
            self.fail_link_lost("its challenge cannot be sent");
        }
        // The peer's may have arrived.
        self.schedule_poll();
        self.transport.look_for_idle();
    }

    /// A message has arrived before the link is up; `read` reads its payload. Sleeps.
    pub(super) fn proof_arrived(
        self: &Arc<Self>,
        message: &Message,
        read: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<(), Violation> {
        let Message::Stream(h) = message else {
            return Err(Violation::State);
        };
        let keys = self.transport.peers.keys.of(&self.net, self.remote_ip());
        let mut slot = self.proof.lock();
        let proof = slot.state.as_mut().ok_or(Violation::State)?;
        let answer = proof.arrived(h.kind, read, &keys);
        let done = proof.is_done();
        drop(slot);
        match answer {
            Ok(Some(answer)) => {
                if self.post_proof(&answer).is_err() {
                    self.fail_link_lost("its proof cannot be sent");
                    return Ok(());
                }
            }
            Ok(None) => {}
            Err(failed) => self.unproved(Unproved::of(failed)?),
        }
        if done && self.up_on_proof() {
            self.transport.peers.keys.proved.add(1);
            self.transport.peer_has_zrs(&self.net, self.remote_ip());
        }
        Ok(())
    }

    /// Ends the link, whose proof has failed. Only the first reason is counted.
    pub(super) fn unproved(self: &Arc<Self>, why: Unproved) {
        if self.state() == LinkState::Down {
            return;
        }
        self.distrusted.store(true, Relaxed);
        self.transport.peers.keys.refused(self.remote_ip(), why);
        self.fail(match why {
            Unproved::Silent => Failure::TimedOut,
            _ => Failure::Unproved,
        });
    }

    /// Ends the link if the peer has been silent for too long at `now`. Returns whether the proof
    /// is under way.
    pub(super) fn check_proof(self: &Arc<Self>, now: u64) -> bool {
        if !self.is_proving() {
            return false;
        }
        let late = {
            let slot = self.proof.lock();
            slot.state.as_ref().is_some_and(|proof| proof.is_late(now))
        };
        if late {
            self.unproved(Unproved::Silent);
        }
        !late
    }

    /// Posts a message of the proof. ENOTCONN, ENOBUFS, EINVAL.
    fn post_proof(&self, answer: &Answer) -> Result {
        let (kind, bytes) = answer.message();
        let tx = &mut *self.tx.lock();
        if !tx.proving || tx.state != LinkState::Connecting {
            return Err(ENOTCONN);
        }
        let buffers = tx.buffers.clone().ok_or(ENOTCONN)?;
        let slot = *tx.free.last().ok_or(ENOBUFS)?;
        buffers.put(slot, bytes)?;
        let _ = tx.free.pop();
        let mut header = Header::new(kind, ChanId::default(), ChanId::default());
        header.len = bytes.len() as u32;
        post(tx, slot, Outgoing::of_link(header))
    }
}
