// SPDX-License-Identifier: GPL-2.0

//! Mutual proof by a shared key: the first messages of a link between hosts that have one.
//!
//! Both sides send a challenge; with iWARP, where the connector has to send first, the acceptor
//! sends its challenge when it has the connector's. The connector then proves by each of its keys;
//! the acceptor, once the proofs are verified, by the keys that were right. So only a host with a
//! key gets the acceptor's proof, and the removal of a key in between does no harm where another
//! key is right as well. A proof is a MAC over the role of its sender, both challenges, both hellos
//! as they were sent, both addresses and both queue pairs: it is good for no other link, nor for
//! the other direction.

use core::hint::black_box;

use super::wire::{Type, Writer, HELLO_MOST};

/// The hello's feature bit: the host has a key for the other one, and proves it.
pub const FEATURE: u32 = 1 << 2;

/// Bytes of a challenge.
pub const CHALLENGE_LEN: usize = 32;

/// Bytes of a MAC, HMAC-SHA256.
pub const MAC_LEN: usize = 32;

/// Most keys of a network: the present one, and the next or the last one.
pub const KEYS_MAX: usize = 2;

/// Bytes of a proof: a MAC by each key.
pub const PROOF_LEN: usize = MAC_LEN * KEYS_MAX;

/// How long the proof of a link may take, in nanoseconds.
pub const WITHIN_NS: u64 = 5_000_000_000;

/// Every MAC's text begins with it: a key that another protocol uses as well is no oracle for this.
const LABEL: [u8; 16] = *b"ZRS link proof 1";

/// Bytes of a MAC's text.
pub const TEXT_LEN: usize = LABEL.len() + 1 + 2 * (CHALLENGE_LEN + HELLO_MOST + 16 + 4);

/// A challenge: random bytes, fresh for the link.
pub type Challenge = [u8; CHALLENGE_LEN];

/// The payload of a Proof.
pub type Macs = [u8; PROOF_LEN];

/// The keys for a peer, [`KEYS_MAX`] at most.
pub trait Keys {
    /// The MAC of `text` by key number `n`. `None`: there is no such key, or it may no longer be
    /// used.
    fn mac(&self, n: usize, text: &[u8; TEXT_LEN]) -> Option<[u8; MAC_LEN]>;
}

/// A side of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Side {
    /// It has made the link.
    Connector = 1,
    /// It has accepted the link.
    Acceptor = 2,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Connector => Self::Acceptor,
            Self::Acceptor => Self::Connector,
        }
    }
}

/// A host of a link: the hello, address and queue pair that its proof covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Its hello as it was sent, padded with zeros.
    pub hello: [u8; HELLO_MOST],
    /// Its address.
    pub addr: [u8; 16],
    /// The number of its queue pair; 0: it is not known, as with iWARP. Then neither end's counts,
    /// and the connector sends first.
    pub qp: u32,
}

/// A hello as it was sent or has arrived, padded with zeros.
pub fn padded(hello: &[u8]) -> [u8; HELLO_MOST] {
    let mut out = [0; HELLO_MOST];
    for (out, byte) in out.iter_mut().zip(hello) {
        *out = *byte;
    }
    out
}

/// A message that a side of the proof sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Its challenge.
    Challenge(Challenge),
    /// Its proof.
    Proof(Macs),
}

impl Answer {
    /// The type and the payload of the message.
    pub fn message(&self) -> (Type, &[u8]) {
        match self {
            Self::Challenge(challenge) => (Type::Challenge, challenge),
            Self::Proof(macs) => (Type::Proof, macs),
        }
    }
}

/// Why a link ends without a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// A message that does not come next.
    Order,
    /// No key of this host has made the MAC.
    Wrong,
    /// This host's keys are gone or no longer valid.
    NoKey,
}

/// The proof of one link, at one of its sides.
#[derive(Debug)]
pub struct Proof {
    side: Side,
    own: End,
    their: End,
    challenge: Challenge,
    /// Stands for the MACs of keys that there are not, so that a proof does not show their number.
    filler: Macs,
    theirs: Option<Challenge>,
    /// When the queue pair was connected.
    since: Option<u64>,
    done: bool,
}

impl Proof {
    /// The proof of a new link. `challenge` and `filler` are random bytes.
    pub fn new(
        side: Side,
        (mut own, their): (End, End),
        challenge: Challenge,
        filler: Macs,
    ) -> Self {
        if their.qp == 0 {
            own.qp = 0;
        }
        Self {
            side,
            own,
            their,
            challenge,
            filler,
            theirs: None,
            since: None,
            done: false,
        }
    }

    /// The queue pair of the link is connected at `now`, in nanoseconds, and the time of the proof
    /// begins. Returns the challenge to send, unless it is the answer to the connector's.
    pub fn begin(&mut self, now: u64) -> Option<Challenge> {
        self.since = Some(now);
        (!self.connector_first()).then_some(self.challenge)
    }

    /// Whether this is the acceptor's side of a link whose connector has to send first.
    fn connector_first(&self) -> bool {
        self.side == Side::Acceptor && self.their.qp == 0
    }

    /// Both sides have proved that they have a key: the link may be used. On the acceptor's side,
    /// once the proof that [`Self::on_proof`] returned is sent.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the link ends at `now` because its proof has taken too long.
    pub fn is_late(&self, now: u64) -> bool {
        let late = |since| now.saturating_sub(since) > WITHIN_NS;
        !self.done && self.since.is_some_and(late)
    }

    /// A message of type `kind` has arrived. `read` fills a buffer with the payload of the message,
    /// and fails if the payload has another length. Returns the message to send. A message of a
    /// type that a proof does not have is out of order.
    pub fn arrived<E>(
        &mut self,
        kind: Type,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
        keys: &impl Keys,
    ) -> Result<Option<Answer>, Failed> {
        let macs = match kind {
            Type::Challenge => {
                let mut theirs = [0; CHALLENGE_LEN];
                read(&mut theirs).map_err(|_| Failed::Order)?;
                let macs = self.on_challenge(theirs, keys)?;
                if self.connector_first() {
                    return Ok(Some(Answer::Challenge(self.challenge)));
                }
                macs
            }
            Type::Proof => {
                let mut macs = [0; PROOF_LEN];
                read(&mut macs).map_err(|_| Failed::Order)?;
                self.on_proof(&macs, keys)?
            }
            _ => return Err(Failed::Order),
        };
        Ok(macs.map(Answer::Proof))
    }

    /// The peer's challenge has arrived. Returns the proof to send, on the connector's side.
    pub fn on_challenge(
        &mut self,
        theirs: Challenge,
        keys: &impl Keys,
    ) -> Result<Option<Macs>, Failed> {
        if self.theirs.is_some() {
            return Err(Failed::Order);
        }
        self.theirs = Some(theirs);
        match self.side {
            Side::Connector => self.prove(keys, [true; KEYS_MAX]).map(Some),
            Side::Acceptor => Ok(None),
        }
    }

    /// The peer's proof has arrived. Returns the proof to send, on the acceptor's side.
    pub fn on_proof(&mut self, macs: &Macs, keys: &impl Keys) -> Result<Option<Macs>, Failed> {
        if self.theirs.is_none() || self.done {
            return Err(Failed::Order);
        }
        let right = self.verify(macs, keys)?;
        let proof = match self.side {
            Side::Connector => None,
            Side::Acceptor => Some(self.prove(keys, right)?),
        };
        self.done = true;
        Ok(proof)
    }

    /// The proof by each of the keys `by`.
    fn prove(&self, keys: &impl Keys, by: [bool; KEYS_MAX]) -> Result<Macs, Failed> {
        let text = self.text(self.side);
        let (mut out, mut any) = (self.filler, false);
        for (n, (out, by)) in out.chunks_exact_mut(MAC_LEN).zip(by).enumerate() {
            if let Some(mac) = by.then(|| keys.mac(n, &text)).flatten() {
                out.copy_from_slice(&mac);
                any = true;
            }
        }
        any.then_some(out).ok_or(Failed::NoKey)
    }

    /// The keys that have made one of the peer's MACs, one at least. Takes the same time whichever
    /// they are, and for a wrong one.
    fn verify(&self, macs: &Macs, keys: &impl Keys) -> Result<[bool; KEYS_MAX], Failed> {
        let text = self.text(self.side.other());
        let (mut right, mut any) = ([false; KEYS_MAX], false);
        for (n, right) in right.iter_mut().enumerate() {
            let Some(ours) = keys.mac(n, &text) else {
                continue;
            };
            any = true;
            for theirs in macs.chunks_exact(MAC_LEN) {
                *right |= same(&ours, theirs);
            }
        }
        let failed = if any { Failed::Wrong } else { Failed::NoKey };
        right.contains(&true).then_some(right).ok_or(failed)
    }

    /// The text of the MACs of `side`.
    fn text(&self, side: Side) -> [u8; TEXT_LEN] {
        let own = (self.challenge, &self.own);
        let their = (self.theirs.unwrap_or_default(), &self.their);
        let ends = match self.side {
            Side::Connector => [own, their],
            Side::Acceptor => [their, own],
        };
        let mut out = [0; TEXT_LEN];
        let mut w = Writer(&mut out);
        w.put(LABEL);
        w.put([side as u8]);
        for (challenge, end) in ends {
            w.put(challenge);
            w.put(end.hello);
            w.put(end.addr);
            w.put(end.qp.to_le_bytes());
        }
        out
    }
}

/// Whether two MACs are the same, in a time that does not depend on where they differ.
fn same(a: &[u8; MAC_LEN], b: &[u8]) -> bool {
    let differ = a
        .iter()
        .zip(b)
        .fold(0, |acc, (a, b)| black_box(acc | (a ^ b)));
    b.len() == MAC_LEN && differ == 0
}
