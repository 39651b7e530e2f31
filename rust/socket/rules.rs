// SPDX-License-Identifier: GPL-2.0

//! The rules of each network namespace: which sockets in mode AUTO stay with TCP.
//! `proto/rules.rs` has their meaning.

#![deny(unsafe_code)]

use super::tcp::TcpMode;
use super::Sock;
use crate::kern::net::Net;
use crate::proto::addr::Addr;
use crate::proto::fallback::Why;
use crate::proto::rules::{decide, Action, Call, Rule, RULES_MAX};
use crate::transport::net_table::NetTable;

/// The rules of all namespaces.
pub(crate) type Rules = NetTable<Rule, RULES_MAX>;

impl Rules {
    /// The decision of the rules of `net`; `None`: no rule applies. Sleeps.
    pub(super) fn decide(&self, net: &Net, call: Call, at: Addr) -> Option<Action> {
        self.with(net, |rules| decide(rules, call, at))?
    }
}

impl Sock {
    /// The decision of the rules on a socket in mode AUTO; TCP where ZRS is off. Sleeps.
    pub(super) fn rule_for(&self, call: Call, at: Addr) -> Option<Action> {
        if self.asked.lock().tcp_mode != TcpMode::Auto {
            return None;
        }
        if self.is_off() {
            return Some(Action::Tcp);
        }
        self.ctx.rules.decide(&self.net, call, at)
    }

    /// Why TCP carries the socket if [`Self::rule_for`] says so.
    pub(super) fn why_by_rule(&self) -> Why {
        match self.is_off() {
            true => Why::Off,
            false => Why::Rule,
        }
    }
}
