// SPDX-License-Identifier: GPL-2.0

//! The rules of a network namespace: which addresses and ports stay with TCP.
//!
//! The rules are in order, and the first that matches decides. A rule with a network matches no
//! wildcard address, and a rule with ports no port 0: a bind() to these does not say yet where the
//! socket will be.

use super::addr::{Addr, Ip};
use super::prefix::Prefix;

/// Most rules of a network namespace.
pub const RULES_MAX: usize = 1024;

/// The action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// TCP carries the socket.
    Tcp,
    /// ZRS is used, as where no rule matches; for an address of the own host, too.
    Zrs,
}

/// The call that gives the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// connect(), with the peer's address.
    Connect,
    /// bind() or listen(), with the own address.
    Bind,
}

/// A rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    action: Action,
    /// The one call that it is for; `None`: for both.
    call: Option<Call>,
    net: Option<Prefix>,
    ports: Option<(u16, u16)>,
}

impl Rule {
    /// A rule. `net`: an address and how many of its first bits have to match; `ports`: the first
    /// and the last port. `None` for these matches all. `None`: the number of bits is more than an
    /// address has, or the ports begin with 0 or end before they begin.
    pub fn new(
        action: Action,
        call: Option<Call>,
        net: Option<(Ip, u8)>,
        ports: Option<(u16, u16)>,
    ) -> Option<Self> {
        if ports.is_some_and(|(first, last)| first == 0 || first > last) {
            return None;
        }
        let net = match net {
            Some((ip, len)) => Some(Prefix::new(ip, len)?),
            None => None,
        };
        Some(Self {
            action,
            call,
            net,
            ports,
        })
    }

    /// The action.
    pub fn action(&self) -> Action {
        self.action
    }

    /// The one call that it is for.
    pub fn call(&self) -> Option<Call> {
        self.call
    }

    /// The first address of its network, and the number of bits.
    pub fn net(&self) -> Option<(Ip, u8)> {
        self.net.map(|net| (net.first(), net.bits()))
    }

    /// Its first and last port.
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.ports
    }

    fn matches(&self, call: Call, at: Addr) -> bool {
        let of_call = self.call.is_none_or(|only| only == call);
        let in_net = self.net.is_none_or(|net| !at.ip.is_any() && net.has(at.ip));
        let in_ports = self
            .ports
            .is_none_or(|(first, last)| (first..=last).contains(&at.port));
        of_call && in_net && in_ports
    }
}

/// The decision of the rules on a socket at the address `at`; `None`: no rule applies.
pub fn decide(rules: &[Rule], call: Call, at: Addr) -> Option<Action> {
    let first = rules.iter().find(|rule| rule.matches(call, at))?;
    Some(first.action)
}
