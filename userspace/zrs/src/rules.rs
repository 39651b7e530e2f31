// SPDX-License-Identifier: GPL-2.0
//! The rules of this network namespace, and how often TCP has carried a socket instead of ZRS.

use std::io;
use std::net::IpAddr;

use zrs_rules::line::{Action, Call, Rule};
use zrs_rules::why::is_why;
use zrs_rules::{Net, Ports};
use zrs_sys::abi;

use crate::{addr, Zrs};

/// The family of an address, as <sys/socket.h> has it, and its bytes.
pub(crate) fn family_of(ip: IpAddr) -> (u32, [u8; 16]) {
    match ip {
        IpAddr::V4(v4) => (2, v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => (10, v6.octets()),
    }
}

/// How often TCP has come to carry a socket since the module was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallbacks {
    by_why: [u64; abi::ZRS_WHY_MAX],
    /// Hosts and ports that are remembered to have no ZRS.
    pub known: u32,
    /// As many can be.
    pub known_max: u32,
}

impl Fallbacks {
    /// The numbers of the reasons that there were, with how often.
    pub fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let all = (0..).zip(self.by_why);
        all.filter(|(why, times)| *times > 0 || is_why(*why))
    }
}

fn rule_of(r: abi::zrs_rule) -> io::Result<Rule> {
    let strange = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "a rule that this library does not know",
        )
    };
    let len = u8::try_from(r.prefix_len).map_err(|_| strange())?;
    Ok(Rule {
        action: match r.action {
            abi::ZRS_RULE_TCP => Action::Tcp,
            abi::ZRS_RULE_ZRS => Action::Zrs,
            _ => return Err(strange()),
        },
        call: match r.calls {
            abi::ZRS_RULE_CONNECT => Some(Call::Connect),
            abi::ZRS_RULE_BIND => Some(Call::Bind),
            _ => None,
        },
        net: match r.family {
            0 => None,
            _ => Some(Net::new(addr::ip(r.addr), len).ok_or_else(strange)?),
        },
        ports: match (r.first_port, r.last_port) {
            (0, 0) => None,
            (first, last) => Some(Ports::new(first, last).ok_or_else(strange)?),
        },
    })
}

fn to_abi(rule: &Rule) -> abi::zrs_rule {
    let (first_port, last_port) = rule.ports.map_or((0, 0), |ports| ports.ends());
    let (family, addr) = rule.net.map_or((0, [0; 16]), |net| family_of(net.addr()));
    abi::zrs_rule {
        action: match rule.action {
            Action::Tcp => abi::ZRS_RULE_TCP,
            Action::Zrs => abi::ZRS_RULE_ZRS,
        },
        calls: match rule.call {
            None => abi::ZRS_RULE_CONNECT | abi::ZRS_RULE_BIND,
            Some(Call::Connect) => abi::ZRS_RULE_CONNECT,
            Some(Call::Bind) => abi::ZRS_RULE_BIND,
        },
        family,
        prefix_len: rule.net.map_or(0, |net| net.bits().into()),
        addr,
        first_port,
        last_port,
        reserved: 0,
    }
}

impl Zrs {
    /// The rules of this network namespace, in order.
    pub fn rules(&self) -> io::Result<Vec<Rule>> {
        let (mut rules, mut cursor) = (Vec::new(), 0);
        while let Some(entry) = self.device.rule(cursor)? {
            cursor = entry.cursor;
            rules.push(rule_of(entry.rule)?);
        }
        Ok(rules)
    }

    /// Replaces all rules at once. Needs CAP_NET_ADMIN, as the next ones.
    pub fn set_rules(&self, rules: &[Rule]) -> io::Result<()> {
        let rules: Vec<_> = rules.iter().map(to_abi).collect();
        self.device.set_rules(&rules)
    }

    /// Adds a rule behind `at` others; behind all if there are fewer.
    pub fn add_rule(&self, rule: &Rule, at: u32) -> io::Result<()> {
        self.device.add_rule(to_abi(rule), at)
    }

    /// Removes the first rule that is like this one. ENOENT: there is none.
    pub fn remove_rule(&self, rule: &Rule) -> io::Result<()> {
        self.device.remove_rule(to_abi(rule))
    }

    /// How often TCP has come to carry a socket, by the reason.
    pub fn fallbacks(&self) -> io::Result<Fallbacks> {
        let seen = self.device.fallback()?;
        Ok(Fallbacks {
            by_why: seen.by_why,
            known: seen.known,
            known_max: seen.known_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_pass_through_the_interface() {
        let text = "tcp any\nzrs bind port 1-9\ntcp connect net 10.0.0.0/8,::/0 port 7\n";
        for rule in zrs_rules::line::parse_all(text).unwrap() {
            assert_eq!(rule_of(to_abi(&rule)).unwrap(), rule);
        }
    }
}
