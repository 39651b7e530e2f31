// SPDX-License-Identifier: GPL-2.0
//! The list of peers of a network namespace as text, as `zrs peers` and /etc/zrs/peers have it.
//!
//! ```text
//! # allow|deny any | NET...
//! allow 192.0.2.0/24 2001:db8::/32
//! deny any
//! ```
//!
//! The entry with the longest network that has a host decides. A host that no entry has is allowed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Net;

/// Where the file of peers is unless another one is named.
pub const PATH: &str = "/etc/zrs/peers";

/// Most entries of a network namespace.
pub const PEERS_MAX: usize = 1024;

/// Verdict of an entry on the hosts in its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They may have links.
    Allow,
    /// They may not.
    Deny,
}

/// An entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether the hosts are allowed.
    pub verdict: Verdict,
    /// The hosts.
    pub net: Net,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
        };
        write!(f, "{verdict} {}", self.net)
    }
}

/// All addresses of each family.
fn everybody() -> impl Iterator<Item = Net> {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    all.into_iter().filter_map(|ip| Net::new(ip, 0))
}

/// The networks that these words are: "any", or addresses with or without a length.
pub fn networks<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Vec<Net>, String> {
    let mut nets = Vec::new();
    for word in words {
        match word {
            "any" => nets.extend(everybody()),
            word => {
                let net: Net = word.parse()?;
                // The module knows a network by its first bits.
                nets.push(net.whole());
            }
        }
    }
    match nets.is_empty() {
        true => Err("say which hosts: networks, addresses, or any".into()),
        false => Ok(nets),
    }
}

/// The entries of a line.
pub fn parse(line: &str) -> Result<Vec<Entry>, String> {
    let text = line.split('#').next().unwrap_or_default();
    let mut words = text.split_whitespace();
    let verdict = match words.next() {
        None => return Ok(Vec::new()),
        Some("allow") => Verdict::Allow,
        Some("deny") => Verdict::Deny,
        Some(other) => return Err(format!("'{other}' is not allow or deny")),
    };
    let nets = networks(words)?;
    let entry = |net| Entry { verdict, net };
    Ok(nets.into_iter().map(entry).collect())
}

/// The entries of a file's text; or what is wrong with it, a line for each mistake.
pub fn parse_all(text: &str) -> Result<Vec<Entry>, String> {
    let (mut entries, mut bad) = (Vec::<Entry>::new(), Vec::new());
    for (n, line) in (1..).zip(text.lines()) {
        match parse(line) {
            Ok(more) => {
                for entry in more {
                    if entries.iter().any(|e| e.net == entry.net) {
                        bad.push(format!("line {n}: {} comes twice", entry.net));
                    }
                    entries.push(entry);
                }
            }
            Err(why) => bad.push(format!("line {n}: {why}")),
        }
    }
    if entries.len() > PEERS_MAX {
        bad.push(format!(
            "there are {} entries, and {PEERS_MAX} at most can be",
            entries.len()
        ));
    }
    match bad.is_empty() {
        true => Ok(entries),
        false => Err(bad.join("\n")),
    }
}
