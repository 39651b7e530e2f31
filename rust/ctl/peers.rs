// SPDX-License-Identifier: GPL-2.0

//! ZRS_IOC_PEERS: lists and changes the list of peers of the caller's network namespace.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;

use super::chardev::Contexts;
use super::figures::may_see_machine;
use super::list::{net_of, net_to_user, read_list};
use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::proto::peers::{Entry, Verdict};
use crate::proto::prefix::Prefix;
use crate::transport::net_table::Unchanged;
use crate::uapi::*;

pub(super) fn peers(contexts: &Contexts, r: &mut zrs_ioc_peers) -> Result {
    zero(&r.reserved)?;
    let transport = &contexts.sockets.transport;
    let peers = &transport.peers;
    let net = Net::current();
    match r.op {
        ZRS_PEERS_LIST => {
            let index = usize::try_from(r.cursor).map_err(|_| ENOENT)?;
            r.peer = to_user(&peers.lists.nth(&net, index).ok_or(ENOENT)?);
            r.cursor += 1;
            return Ok(());
        }
        ZRS_PEERS_COUNTS => {
            may_see_machine()?;
            r.refused = peers.refused.get();
            r.unasked = peers.unasked.get();
            r.refused_there = peers.refused_there.get();
            return Ok(());
        }
        _ => {}
    }
    if !net.may_administer() {
        return Err(EPERM);
    }
    let changed = match r.op {
        ZRS_PEERS_SET => {
            let new: KVVec<Entry> = read_list(r.peers, r.count, ZRS_PEERS_MAX, of_user)?;
            let twice = |(n, entry): (usize, &Entry)| {
                let mut before = new.iter().take(n);
                before.any(|other| other.net == entry.net)
            };
            if new.iter().enumerate().any(twice) {
                return Err(EINVAL);
            }
            peers.lists.change(&net, |_, entries| {
                *entries = new;
                Ok(())
            })
        }
        ZRS_PEERS_PUT => {
            let new = of_user(&r.peer)?;
            peers.lists.change(&net, |old, entries| {
                for entry in old.iter().filter(|entry| entry.net != new.net) {
                    entries.push(*entry, CHARGED)?;
                }
                Ok(entries.push(new, CHARGED)?)
            })
        }
        ZRS_PEERS_DEL => {
            let gone = net_of_user(&r.peer)?;
            if r.peer.action != 0 {
                return Err(EINVAL);
            }
            peers.lists.change(&net, |old, entries| {
                for entry in old.iter().filter(|entry| entry.net != gone) {
                    entries.push(*entry, CHARGED)?;
                }
                match entries.len() == old.len() {
                    true => Err(Unchanged::Missing),
                    false => Ok(()),
                }
            })
        }
        _ => return Err(EINVAL),
    };
    changed?;
    contexts.memory.peers_changed(&net);
    transport.peers_changed(&net)
}

fn net_of_user(r: &zrs_peer) -> Result<Prefix> {
    zero(&[u64::from(r.reserved)])?;
    let (ip, len) = net_of(r.family, r.addr, r.prefix_len)?;
    Prefix::new(ip, len).ok_or(EINVAL)
}

fn of_user(r: &zrs_peer) -> Result<Entry> {
    let verdict = match r.action {
        ZRS_PEER_ALLOW => Verdict::Allow,
        ZRS_PEER_DENY => Verdict::Deny,
        _ => return Err(EINVAL),
    };
    let net = net_of_user(r)?;
    Ok(Entry { verdict, net })
}

fn to_user(entry: &Entry) -> zrs_peer {
    let (family, addr, prefix_len) = net_to_user(entry.net.first(), entry.net.bits());
    zrs_peer {
        action: match entry.verdict {
            Verdict::Allow => ZRS_PEER_ALLOW,
            Verdict::Deny => ZRS_PEER_DENY,
        },
        family,
        prefix_len,
        addr,
        ..Default::default()
    }
}
