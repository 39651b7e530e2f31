// SPDX-License-Identifier: GPL-2.0

//! ZRS_IOC_KEYS: lists and changes the keys of the caller's network namespace.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;

use super::chardev::Contexts;
use super::figures::may_see_machine;
use super::list::{net_of, net_to_user};
use crate::kern::keys::Key;
use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::proto::keys::{Name, BYTES_MIN, NAME_LEN};
use crate::proto::prefix::Prefix;
use crate::proto::proof::KEYS_MAX;
use crate::transport::keys::Entry;
use crate::transport::net_table::Unchanged;
use crate::uapi::*;

pub(super) fn keys(contexts: &Contexts, r: &mut zrs_ioc_keys) -> Result {
    zero(&r.reserved)?;
    zero(&[u64::from(r.error)])?;
    let transport = &contexts.sockets.transport;
    let keys = &transport.peers.keys;
    let net = Net::current();
    match r.op {
        ZRS_KEYS_LIST => {
            let index = usize::try_from(r.cursor).map_err(|_| ENOENT)?;
            let entry = keys.lists.nth(&net, index).ok_or(ENOENT)?;
            r.key = to_user(&entry);
            let usable = entry.key.validate();
            r.error = usable.map_or_else(|e| e.to_errno().unsigned_abs(), |()| 0);
            r.cursor += 1;
            return Ok(());
        }
        ZRS_KEYS_COUNTS => {
            may_see_machine()?;
            r.proved = keys.proved.get();
            r.unoffered = keys.unoffered.get();
            r.keyless = keys.keyless.get();
            r.wrong = keys.wrong.get();
            r.unusable = keys.unusable.get();
            r.silent = keys.silent.get();
            r.refused_there = keys.refused_there.get();
            return Ok(());
        }
        _ => {}
    }
    if !net.may_administer() {
        return Err(EPERM);
    }
    let network = network_of_user(&r.key)?;
    match r.op {
        ZRS_KEYS_PUT => {
            let name = Name::new(r.key.name).ok_or(EINVAL)?;
            let new = Entry {
                net: network,
                name,
                key: find(name)?,
            };
            keys.lists.change(&net, |old, entries| {
                let others = old.iter().filter(|e| e.net == network && e.name != name);
                if others.count() >= KEYS_MAX {
                    return Err(Unchanged::NetworkFull);
                }
                for entry in old.iter().filter(|e| e.net != network || e.name != name) {
                    entries.push(entry.clone(), CHARGED)?;
                }
                Ok(entries.push(new, CHARGED)?)
            })?;
        }
        ZRS_KEYS_DEL => {
            let name = match r.key.name {
                [0, ..] if r.key.name == [0; NAME_LEN] => None,
                name => Some(Name::new(name).ok_or(EINVAL)?),
            };
            let gone = |e: &&Entry| e.net == network && name.is_none_or(|name| e.name == name);
            keys.lists.change(&net, |old, entries| {
                for entry in old.iter().filter(|e| !gone(e)) {
                    entries.push(entry.clone(), CHARGED)?;
                }
                match entries.len() == old.len() {
                    true => Err(Unchanged::Missing),
                    false => Ok(()),
                }
            })?;
        }
        _ => return Err(EINVAL),
    }
    contexts.memory.peers_changed(&net);
    transport.keys_changed(&net)
}

/// The kernel's key of this name, in the caller's keyrings. Sleeps.
fn find(name: Name) -> Result<Arc<Key>> {
    let text = core::str::from_utf8(name.bytes()).map_err(|_| EINVAL)?;
    let description = CString::try_from_fmt(fmt!("zrs:{text}"))?;
    let key = Key::find(&description)?;
    if key.bytes() < BYTES_MIN {
        // One that was revoked has no bytes.
        key.validate()?;
        return Err(ERANGE);
    }
    Ok(Arc::new(key, CHARGED)?)
}

fn network_of_user(key: &zrs_key) -> Result<Prefix> {
    let (ip, len) = net_of(key.family, key.addr, key.prefix_len)?;
    Prefix::new(ip, len).ok_or(EINVAL)
}

fn to_user(entry: &Entry) -> zrs_key {
    let (family, addr, prefix_len) = net_to_user(entry.net.first(), entry.net.bits());
    zrs_key {
        family,
        prefix_len,
        addr,
        name: entry.name.padded(),
    }
}
