// SPDX-License-Identifier: GPL-2.0

//! ZRS_IOC_RULES: lists and changes the rules of the caller's network namespace.

#![deny(unsafe_code)]

use kernel::prelude::*;

use super::list::{net_of, net_to_user, read_list};
use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::proto::rules::{Action, Call, Rule};
use crate::socket::context::Sockets;
use crate::transport::net_table::Unchanged;
use crate::uapi::*;

pub(super) fn rules(sockets: &Sockets, r: &mut zrs_ioc_rules) -> Result {
    zero(&r.reserved)?;
    zero(&[u64::from(r.reserved0)])?;
    let net = Net::current();
    if r.op == ZRS_RULES_LIST {
        let index = usize::try_from(r.cursor).map_err(|_| ENOENT)?;
        let rule = sockets.rules.nth(&net, index).ok_or(ENOENT)?;
        r.rule = to_user(&rule);
        r.cursor += 1;
        return Ok(());
    }
    if !net.may_administer() {
        return Err(EPERM);
    }
    let changed = match r.op {
        ZRS_RULES_SET => {
            let new = read_list(r.rules, r.count, ZRS_RULES_MAX, of_user)?;
            sockets.rules.change(&net, |_, rules| {
                *rules = new;
                Ok(())
            })
        }
        ZRS_RULES_ADD => {
            let new = of_user(&r.rule)?;
            sockets.rules.change(&net, |old, rules| {
                let at = old.len().min(r.at as usize);
                let (before, after) = old.split_at(at);
                rules.extend_from_slice(before, CHARGED)?;
                rules.push(new, CHARGED)?;
                Ok(rules.extend_from_slice(after, CHARGED)?)
            })
        }
        ZRS_RULES_DEL => {
            let gone = of_user(&r.rule)?;
            sockets.rules.change(&net, |old, rules| {
                let at = old.iter().position(|rule| *rule == gone);
                let (before, rest) = old.split_at(at.ok_or(Unchanged::Missing)?);
                rules.extend_from_slice(before, CHARGED)?;
                let after = rest.get(1..).unwrap_or_default();
                Ok(rules.extend_from_slice(after, CHARGED)?)
            })
        }
        _ => return Err(EINVAL),
    };
    Ok(changed?)
}

fn of_user(r: &zrs_rule) -> Result<Rule> {
    zero(&[u64::from(r.reserved)])?;
    let action = match r.action {
        ZRS_RULE_TCP => Action::Tcp,
        ZRS_RULE_ZRS => Action::Zrs,
        _ => return Err(EINVAL),
    };
    let call = match r.calls {
        ZRS_RULE_CONNECT => Some(Call::Connect),
        ZRS_RULE_BIND => Some(Call::Bind),
        calls if calls == ZRS_RULE_CONNECT | ZRS_RULE_BIND => None,
        _ => return Err(EINVAL),
    };
    let net = match r.family {
        0 if r.addr == [0; 16] && r.prefix_len == 0 => None,
        _ => Some(net_of(r.family, r.addr, r.prefix_len)?),
    };
    let ports = match (r.first_port, r.last_port) {
        (0, 0) => None,
        ports => Some(ports),
    };
    Rule::new(action, call, net, ports).ok_or(EINVAL)
}

fn to_user(rule: &Rule) -> zrs_rule {
    let (first_port, last_port) = rule.ports().unwrap_or((0, 0));
    let (family, addr, prefix_len) = match rule.net() {
        None => (0, [0; 16], 0),
        Some((ip, len)) => net_to_user(ip, len),
    };
    zrs_rule {
        action: match rule.action() {
            Action::Tcp => ZRS_RULE_TCP,
            Action::Zrs => ZRS_RULE_ZRS,
        },
        calls: match rule.call() {
            Some(Call::Connect) => ZRS_RULE_CONNECT,
            Some(Call::Bind) => ZRS_RULE_BIND,
            None => ZRS_RULE_CONNECT | ZRS_RULE_BIND,
        },
        family,
        prefix_len,
        addr,
        first_port,
        last_port,
        ..Default::default()
    }
}
