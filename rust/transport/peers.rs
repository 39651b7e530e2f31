// SPDX-License-Identifier: GPL-2.0

//! The list of peers of each network namespace: which hosts may have links with it, streams and
//! memory alike. `proto/peers.rs` has the meaning of the entries.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::context::Transport;
use super::keys::{Keys, Unproved};
use super::net_table::NetTable;
use crate::kern::net::Net;
use crate::net_warn_ratelimited;
use crate::params;
use crate::proto::addr::Ip;
use crate::proto::channel::Failure;
use crate::proto::peers::{allows, Entry, PEERS_MAX};
use crate::proto::wire::Denial;
use crate::stats::Counter;

/// The lists, and the counts of their refusals.
#[pin_data]
pub(crate) struct Peers {
    #[pin]
    pub(crate) lists: NetTable<Entry, PEERS_MAX>,
    /// The keys that hosts have to prove.
    #[pin]
    pub(crate) keys: Keys,
    /// Links that other hosts asked for.
    pub(crate) refused: Counter,
    /// Links that this host was not to make.
    pub(crate) unasked: Counter,
    /// Links that the other host's list has refused.
    pub(crate) refused_there: Counter,
}

impl Peers {
    /// No lists. ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let new = try_pin_init!(Self {
            lists <- NetTable::new(),
            keys <- Keys::new(),
            refused: Counter::new(),
            unasked: Counter::new(),
            refused_there: Counter::new(),
        });
        Arc::pin_init::<Error>(new, GFP_KERNEL)
    }

    /// Whether `remote` may have links with `net`, where ZRS has to be on. Sleeps.
    pub(crate) fn allow(&self, net: &Net, remote: Ip) -> bool {
        if !params::is_on(net) {
            return false;
        }
        let allowed = self.lists.with(net, |entries| allows(entries, remote));
        allowed.unwrap_or(true)
    }

    /// Refuses a link that `remote` asks for if the list does not allow it. Sleeps. EACCES.
    pub(crate) fn may_accept(&self, net: &Net, remote: Ip) -> Result {
        if self.allow(net, remote) {
            return Ok(());
        }
        self.refused.add(1);
        let why = match params::is_on(net) {
            true => "not in the list of peers",
            false => "ZRS is off in the network namespace",
        };
        net_warn_ratelimited!("link from {remote:?} refused: {why}\n");
        Err(EACCES)
    }

    /// Whether this host may make a link to `remote`. Sleeps. EACCES.
    pub(crate) fn may_connect(&self, net: &Net, remote: Ip) -> Result {
        if self.allow(net, remote) {
            return Ok(());
        }
        self.unasked.add(1);
        Err(EACCES)
    }

    /// `remote` has rejected a link, and says why: counts it.
    pub(crate) fn rejected(&self, remote: Ip, why: Denial) {
        match why {
            Denial::Listed => self.refused_there.add(1),
            Denial::Unproved => self.keys.refused(remote, Unproved::Keyless),
            Denial::Keyless => self.keys.refused(remote, Unproved::Unoffered),
        }
    }
}

impl Transport {
    /// The list of peers of `net` has changed: ends the links that it does not allow. A link that
    /// is being made looks at the list once more when it comes up. Sleeps. ENOMEM.
    pub(crate) fn peers_changed(&self, net: &Net) -> Result {
        for link in self.snapshot()? {
            if link.net == *net && !self.peers.allow(net, link.remote_ip()) {
                link.fail_and_log(Failure::Denied, "the list of peers no longer allows it");
            }
        }
        self.ways_changed();
        Ok(())
    }
}
