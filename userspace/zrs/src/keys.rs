// SPDX-License-Identifier: GPL-2.0
//! The keys of this network namespace: which hosts have to prove that they have which key.

use std::ffi::CString;
use std::io;

use zrs_rules::keys::{Entry, Name};
use zrs_rules::Net;
use zrs_sys::{abi, keyring};

use crate::rules::family_of;
use crate::{addr, Zrs};

/// A key of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its network and its name.
    pub entry: Entry,
    /// Why it can no longer be used: an errno (EKEYREVOKED, EKEYEXPIRED).
    pub unusable: Option<i32>,
}

/// Links of hosts with keys since the module was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proofs {
    /// That came up.
    pub proved: u64,
    /// That did not: the other host has no key for this one.
    pub unoffered: u64,
    /// The other host has a key for this one, which has none.
    pub keyless: u64,
    /// The other host's key is another one.
    pub wrong: u64,
    /// The key here was revoked or has expired.
    pub unusable: u64,
    /// The other host did not send its proof.
    pub silent: u64,
    /// The other host has ended the proof.
    pub refused_there: u64,
}

fn listed(found: &abi::zrs_ioc_keys) -> io::Result<Listed> {
    let strange = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "a key that this library does not know",
        )
    };
    let key = &found.key;
    let len = u8::try_from(key.prefix_len).map_err(|_| strange())?;
    let name = key.name.split(|b| *b == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| strange())?;
    Ok(Listed {
        entry: Entry {
            net: Net::new(addr::ip(key.addr), len).ok_or_else(strange)?,
            name: name.parse().map_err(|_| strange())?,
        },
        unusable: i32::try_from(found.error).ok().filter(|errno| *errno != 0),
    })
}

fn to_abi(net: Net, name: Option<&Name>) -> abi::zrs_key {
    let (family, addr) = family_of(net.addr());
    let mut key = abi::zrs_key {
        family,
        prefix_len: net.bits().into(),
        addr,
        ..Default::default()
    };
    let name = name.map_or("", Name::as_str);
    for (out, byte) in key.name.iter_mut().zip(name.bytes()) {
        *out = byte;
    }
    key
}

/// Puts a secret into the kernel's keyrings, where no program can read it: that of the process, in
/// which [`Zrs::put_key`] finds it, and that of the user, if there is room.
pub fn add_secret(name: &Name, secret: &[u8]) -> io::Result<()> {
    let description = CString::new(format!("zrs:{name}"))?;
    let key = keyring::add_logon_key(&description, secret, keyring::PROCESS)?;
    // It is used all the same.
    let _ = keyring::link_key(key, keyring::USER);
    Ok(())
}

impl Zrs {
    /// The keys of this network namespace.
    pub fn keys(&self) -> io::Result<Vec<Listed>> {
        let (mut keys, mut cursor) = (Vec::new(), 0);
        while let Some(found) = self.device.key(cursor)? {
            cursor = found.cursor;
            keys.push(listed(&found)?);
        }
        Ok(keys)
    }

    /// The hosts of a network have to prove that they have the key of this name, or the other one
    /// of the network. ENOKEY: it is in no keyring of the caller. Needs CAP_NET_ADMIN, as the next
    /// one.
    pub fn put_key(&self, entry: &Entry) -> io::Result<()> {
        self.device.put_key(to_abi(entry.net, Some(&entry.name)))
    }

    /// Removes a key of a network, or all. ENOENT: there is none.
    pub fn remove_key(&self, net: Net, name: Option<&Name>) -> io::Result<()> {
        self.device.remove_key(to_abi(net, name))
    }

    /// Numbers of links of hosts with keys, by the results of their proofs, in all network namespaces. EPERM without
    /// CAP_NET_ADMIN in the first user namespace.
    pub fn proofs(&self) -> io::Result<Proofs> {
        let counts = self.device.key_counts()?;
        Ok(Proofs {
            proved: counts.proved,
            unoffered: counts.unoffered,
            keyless: counts.keyless,
            wrong: counts.wrong,
            unusable: counts.unusable,
            silent: counts.silent,
            refused_there: counts.refused_there,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_pass_through_the_interface() {
        for text in ["192.0.2.0/24 rack-2026", "2001:db8::/32 a.b_c"] {
            let [entry] = &zrs_rules::keys::parse_all(text).unwrap()[..] else {
                panic!("{text}");
            };
            let mut found = abi::zrs_ioc_keys {
                key: to_abi(entry.net, Some(&entry.name)),
                ..Default::default()
            };
            assert_eq!(listed(&found).unwrap().entry, *entry);
            assert_eq!(listed(&found).unwrap().unusable, None);
            found.error = 128;
            assert_eq!(listed(&found).unwrap().unusable, Some(128));
            assert_eq!(to_abi(entry.net, None).name, [0; 64]);
        }
    }
}
