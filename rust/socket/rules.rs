// SPDX-License-Identifier: GPL-2.0

//! The rules of each network namespace: which sockets in mode AUTO stay with TCP.
//! `proto/rules.rs` has their meaning.
//!
//! They are kept for a namespace without keeping it. `nets` is a leaf among the locks.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::alloc::AllocError;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Mutex};

use super::tcp::TcpMode;
use super::Sock;
use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::kern::pernet::NetExit;
use crate::proto::addr::Addr;
use crate::proto::rules::{decide, Action, Call, Rule, RULES_MAX};

/// The rules of a namespace, of which there is one at least.
struct NetRules {
    net: usize,
    rules: KVVec<Rule>,
}

/// The rules of all namespaces.
#[pin_data]
pub(crate) struct Rules {
    /// There are some.
    any: Atomic<bool>,
    #[pin]
    nets: Mutex<KVec<NetRules>>,
}

/// Why a list of rules was not changed.
pub(crate) enum Unchanged {
    /// There is no such rule.
    Missing,
    /// There would be too many.
    TooMany,
    /// No memory.
    Memory,
}

impl From<AllocError> for Unchanged {
    fn from(_: AllocError) -> Self {
        Self::Memory
    }
}

impl Rules {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            any: Atomic::new(false),
            nets <- new_mutex!(KVec::new(), "zrs_rules::nets"),
        })
    }

    /// What the rules of `net` say; `None`: nothing. Sleeps.
    pub(super) fn decide(&self, net: &Net, call: Call, at: Addr) -> Option<Action> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let nets = self.nets.lock();
        let of_net = nets.iter().find(|n| n.net == net.id())?;
        decide(&of_net.rules, call, at)
    }

    /// Rule number `index` of `net`.
    pub(crate) fn nth(&self, net: &Net, index: usize) -> Option<Rule> {
        let nets = self.nets.lock();
        let of_net = nets.iter().find(|n| n.net == net.id())?;
        of_net.rules.get(index).copied()
    }

    /// Replaces the rules of `net` by those that `change` puts into an empty list, which has room
    /// for one more than there were. Sleeps.
    pub(crate) fn change(
        &self,
        net: &Net,
        change: impl FnOnce(&[Rule], &mut KVVec<Rule>) -> Result<(), Unchanged>,
    ) -> Result<(), Unchanged> {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.net == net.id());
        let of_net = at.and_then(|at| nets.get(at));
        let old: &[Rule] = match of_net {
            Some(of_net) => &of_net.rules,
            None => &[],
        };
        let mut rules = KVVec::with_capacity(old.len() + 1, CHARGED)?;
        change(old, &mut rules)?;
        if rules.len() > RULES_MAX {
            return Err(Unchanged::TooMany);
        }
        let gone = match at {
            Some(at) if rules.is_empty() => nets.remove(at).ok().map(|n| n.rules),
            Some(at) => nets
                .get_mut(at)
                .map(|n| core::mem::replace(&mut n.rules, rules)),
            None if rules.is_empty() => None,
            None => {
                let net = net.id();
                nets.push(NetRules { net, rules }, GFP_KERNEL)?;
                None
            }
        };
        self.any.store(!nets.is_empty(), Relaxed);
        drop(nets);
        drop(gone);
        Ok(())
    }
}

impl NetExit for Rules {
    fn net_exit(&self, id: usize) {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.net == id);
        let gone = at.and_then(|at| nets.remove(at).ok());
        self.any.store(!nets.is_empty(), Relaxed);
        drop(nets);
        drop(gone);
    }
}

impl Sock {
    /// What the rules say of a socket in mode AUTO. Sleeps.
    pub(super) fn rule_for(&self, call: Call, at: Addr) -> Option<Action> {
        if self.asked.lock().tcp_mode != TcpMode::Auto {
            return None;
        }
        self.ctx.rules.decide(&self.net, call, at)
    }
}
