// SPDX-License-Identifier: GPL-2.0

//! The list of keys of each network namespace: which hosts have to prove that they have a key
//! before they have a link with it. `proto/keys.rs` has the meaning of the entries.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::context::Transport;
use super::link::LinkState;
use super::net_table::NetTable;
use crate::kern::keys::Key;
use crate::kern::net::Net;
use crate::net_warn_ratelimited;
use crate::proto::addr::Ip;
use crate::proto::channel::Failure;
use crate::proto::keys::{network_of, Name, ENTRIES_MAX};
use crate::proto::prefix::Prefix;
use crate::proto::proof::{self, Failed, KEYS_MAX, MAC_LEN, TEXT_LEN};
use crate::proto::wire::{Denial, Hello};
use crate::proto::Violation;
use crate::stats::Counter;

/// A key of a network. A list has [`KEYS_MAX`] at most for each network, with different names.
#[derive(Clone)]
pub(crate) struct Entry {
    /// The hosts that have to prove that they have it.
    pub(crate) net: Prefix,
    /// Its name.
    pub(crate) name: Name,
    /// The key.
    pub(crate) key: Arc<Key>,
}

/// Why there is no link with a host that has to prove that it has a key, or this host to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unproved {
    /// There is a key for the peer, which offers no proof.
    Unoffered,
    /// The peer has a key for this host, and there is none for the peer.
    Keyless,
    /// The peer's proof is by another key.
    Wrong,
    /// The keys for the peer were removed or revoked, or have expired.
    Unusable,
    /// The peer has not sent its proof in time.
    Silent,
    /// The peer has ended the link during the proof.
    RefusedThere,
}

impl Unproved {
    /// The reason why a proof has failed, or the rule that the peer has broken.
    pub(crate) fn of(failed: Failed) -> Result<Self, Violation> {
        match failed {
            Failed::Order => Err(Violation::State),
            Failed::Wrong => Ok(Self::Wrong),
            Failed::NoKey => Ok(Self::Unusable),
        }
    }

    /// The cause and the remedy, for the log.
    fn text(self) -> &'static str {
        match self {
            Self::Unoffered => "it has no key for this host: zrs key add there",
            Self::Keyless => "a key is missing here, it has one for this host: zrs key add",
            Self::Wrong => "its key is another one: compare zrs key list on both hosts",
            Self::Unusable => "the key for it was removed or revoked, or has expired: zrs key add",
            Self::Silent => "it does not send its proof",
            Self::RefusedThere => "it ended the proof: its log says why, and zrs key list there",
        }
    }
}

/// The lists of keys, and counters of the links that needed a proof.
#[pin_data]
pub(crate) struct Keys {
    #[pin]
    pub(crate) lists: NetTable<Entry, ENTRIES_MAX>,
    /// Links that came up with a proof.
    pub(crate) proved: Counter,
    /// Links that did not come up because the peer has no key for this host.
    pub(crate) unoffered: Counter,
    /// The same, because this host has no key for the peer.
    pub(crate) keyless: Counter,
    /// The same, because the peer's key is another one.
    pub(crate) wrong: Counter,
    /// The same, because the key of this host was revoked or has expired.
    pub(crate) unusable: Counter,
    /// The same, because the peer did not send its proof in time.
    pub(crate) silent: Counter,
    /// The same, because the peer has ended the link.
    pub(crate) refused_there: Counter,
}

impl Keys {
    /// No lists.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            lists <- NetTable::new(),
            proved: Counter::new(),
            unoffered: Counter::new(),
            keyless: Counter::new(),
            wrong: Counter::new(),
            unusable: Counter::new(),
            silent: Counter::new(),
            refused_there: Counter::new(),
        })
    }

    /// Whether links of `net` with `remote` need a proof. Sleeps.
    pub(crate) fn has(&self, net: &Net, remote: Ip) -> bool {
        let any = |entries: &[Entry]| entries.iter().any(|entry| entry.net.has(remote));
        self.lists.with(net, any).unwrap_or(false)
    }

    /// The keys for links of `net` with `remote`. Sleeps.
    pub(crate) fn of(&self, net: &Net, remote: Ip) -> PeerKeys {
        let find = |entries: &[Entry]| {
            let mut keys = [const { None }; KEYS_MAX];
            let net = network_of(entries.iter().map(|entry| entry.net), remote);
            let right = entries.iter().filter(|entry| Some(entry.net) == net);
            for (out, entry) in keys.iter_mut().zip(right) {
                *out = Some(entry.key.clone());
            }
            PeerKeys(keys)
        };
        let found = self.lists.with(net, find);
        found.unwrap_or(PeerKeys([const { None }; KEYS_MAX]))
    }

    /// Whether a host's hello offers a proof, if there is a key for the host, and only then; counts
    /// and logs it if not. The reason in `Err` is for the peer.
    pub(crate) fn check_offer(
        &self,
        remote: Ip,
        keyed: bool,
        private_data: &[u8],
    ) -> Result<(), Denial> {
        let hello = Hello::decode_with_role(private_data);
        let offered = hello.map_or(0, |(_, hello)| hello.features) & proof::FEATURE;
        let (why, denial) = match (keyed, offered != 0) {
            (true, false) => (Unproved::Unoffered, Denial::Unproved),
            (false, true) => (Unproved::Keyless, Denial::Keyless),
            _ => return Ok(()),
        };
        self.refused(remote, why);
        Err(denial)
    }

    /// There is no link with `remote`: counts and logs why.
    pub(crate) fn refused(&self, remote: Ip, why: Unproved) {
        let counter = match why {
            Unproved::Unoffered => &self.unoffered,
            Unproved::Keyless => &self.keyless,
            Unproved::Wrong => &self.wrong,
            Unproved::Unusable => &self.unusable,
            Unproved::Silent => &self.silent,
            Unproved::RefusedThere => &self.refused_there,
        };
        counter.add(1);
        net_warn_ratelimited!("no link with {remote:?}: {}\n", why.text());
    }
}

/// The keys for a peer.
pub(crate) struct PeerKeys([Option<Arc<Key>>; KEYS_MAX]);

impl proof::Keys for PeerKeys {
    fn mac(&self, n: usize, text: &[u8; TEXT_LEN]) -> Option<[u8; MAC_LEN]> {
        self.0.get(n)?.as_ref()?.hmac_sha256(text).ok()
    }
}

impl Transport {
    /// The list of keys of `net` has changed: ends the links without a proof that need one now.
    /// Sleeps. ENOMEM.
    pub(crate) fn keys_changed(&self, net: &Net) -> Result {
        for link in self.snapshot()? {
            let needs = link.net == *net && self.peers.keys.has(net, link.remote_ip());
            if !needs || link.is_keyed() {
                continue;
            }
            match link.state() {
                LinkState::Connecting => link.fail_stale(),
                _ => link.fail_and_log(Failure::Unproved, "there is a key for its peer now"),
            }
        }
        self.ways_changed();
        Ok(())
    }
}
