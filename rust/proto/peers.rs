// SPDX-License-Identifier: GPL-2.0

//! The list of peers of a network namespace: which hosts may have links with it.
//!
//! The entry with the longest network that has the address decides, so the order does not matter. A
//! host that no entry has is allowed.

use super::addr::Ip;
use super::prefix::Prefix;

/// Most entries of a network namespace.
pub const PEERS_MAX: usize = 1024;

/// The verdict of an entry on the hosts in its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They may have links.
    Allow,
    /// They may not.
    Deny,
}

/// An entry. A list has one at most for each network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The verdict.
    pub verdict: Verdict,
    /// The hosts.
    pub net: Prefix,
}

/// Whether the host `ip` may have links.
pub fn allows(entries: &[Entry], ip: Ip) -> bool {
    let of_ip = entries.iter().filter(|entry| entry.net.has(ip));
    of_ip
        .max_by_key(|entry| entry.net.bits())
        .is_none_or(|entry| entry.verdict == Verdict::Allow)
}
