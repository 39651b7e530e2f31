// SPDX-License-Identifier: GPL-2.0
//! The list of peers of this network namespace: which hosts may have links with it.

use std::io;

use zrs_rules::peers::{Entry, Verdict};
use zrs_rules::Net;
use zrs_sys::abi;

use crate::rules::family_of;
use crate::{addr, Zrs};

/// Links that lists of peers have refused since the module was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Hosts that are not allowed have asked for them.
    pub here: u64,
    /// This host has not asked for them: the other one is not allowed.
    pub unasked: u64,
    /// The other host's list has refused them.
    pub there: u64,
}

fn entry_of(p: abi::zrs_peer) -> io::Result<Entry> {
    let strange = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "an entry that this library does not know",
        )
    };
    let len = u8::try_from(p.prefix_len).map_err(|_| strange())?;
    Ok(Entry {
        verdict: match p.action {
            abi::ZRS_PEER_ALLOW => Verdict::Allow,
            abi::ZRS_PEER_DENY => Verdict::Deny,
            _ => return Err(strange()),
        },
        net: Net::new(addr::ip(p.addr), len).ok_or_else(strange)?,
    })
}

fn to_abi(entry: &Entry) -> abi::zrs_peer {
    let action = match entry.verdict {
        Verdict::Allow => abi::ZRS_PEER_ALLOW,
        Verdict::Deny => abi::ZRS_PEER_DENY,
    };
    abi::zrs_peer {
        action,
        ..network(entry.net)
    }
}

fn network(net: Net) -> abi::zrs_peer {
    let (family, addr) = family_of(net.addr());
    abi::zrs_peer {
        family,
        prefix_len: net.bits().into(),
        addr,
        ..Default::default()
    }
}

impl Zrs {
    /// The list of peers of this network namespace.
    pub fn peers(&self) -> io::Result<Vec<Entry>> {
        let (mut entries, mut cursor) = (Vec::new(), 0);
        while let Some(found) = self.device.peer(cursor)? {
            cursor = found.cursor;
            entries.push(entry_of(found.peer)?);
        }
        Ok(entries)
    }

    /// Replaces all entries at once. Needs CAP_NET_ADMIN, as the next ones.
    pub fn set_peers(&self, entries: &[Entry]) -> io::Result<()> {
        let entries: Vec<_> = entries.iter().map(to_abi).collect();
        self.device.set_peers(&entries)
    }

    /// Adds an entry, instead of that of the same network if there is one.
    pub fn put_peer(&self, entry: &Entry) -> io::Result<()> {
        self.device.put_peer(to_abi(entry))
    }

    /// Removes the entry of a network. ENOENT: there is none.
    pub fn remove_peer(&self, net: Net) -> io::Result<()> {
        self.device.remove_peer(network(net))
    }

    /// How many links lists of peers have refused, in all network namespaces. EPERM without CAP_NET_ADMIN in the first
    /// user namespace.
    pub fn refused_links(&self) -> io::Result<Refused> {
        let counts = self.device.peer_counts()?;
        Ok(Refused {
            here: counts.refused,
            unasked: counts.unasked,
            there: counts.refused_there,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_pass_through_the_interface() {
        let text = "allow 10.0.0.0/8 2001:db8::/32\ndeny any\n";
        for entry in zrs_rules::peers::parse_all(text).unwrap() {
            assert_eq!(entry_of(to_abi(&entry)).unwrap(), entry);
        }
    }
}
