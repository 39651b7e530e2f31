// SPDX-License-Identifier: GPL-2.0

//! ZRS_IOC_RULES: lists and changes the rules of the caller's network namespace.

#![deny(unsafe_code)]

use core::net::Ipv6Addr;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};

use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::proto::addr::Ip;
use crate::proto::rules::{Action, Call, Rule};
use crate::socket::context::Sockets;
use crate::socket::rules::Unchanged;
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
            let new = read_rules(r)?;
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
    changed.map_err(|why| match why {
        Unchanged::Missing => ENOENT,
        Unchanged::TooMany => ENOSPC,
        Unchanged::Memory => ENOMEM,
    })
}

/// The rules of ZRS_RULES_SET.
fn read_rules(r: &zrs_ioc_rules) -> Result<KVVec<Rule>> {
    let count = r.count as usize;
    if count > ZRS_RULES_MAX {
        return Err(ENOSPC);
    }
    let mut rules = KVVec::with_capacity(count, CHARGED)?;
    let at = usize::try_from(r.rules).map_err(|_| EFAULT)?;
    let bytes = count * size_of::<zrs_rule>();
    let mut reader = UserSlice::new(UserPtr::from_addr(at), bytes).reader();
    for _ in 0..count {
        rules.push(of_user(&reader.read()?)?, CHARGED)?;
    }
    Ok(rules)
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
    let ip = Ip::new(Ipv6Addr::from(r.addr), 0);
    let len = u8::try_from(r.prefix_len).map_err(|_| EINVAL)?;
    let net = match r.family {
        0 if r.addr == [0; 16] && len == 0 => None,
        AF_INET if ip.is_v4() => Some((ip, len)),
        AF_INET6 if !ip.is_v4() => Some((ip, len)),
        _ => return Err(EINVAL),
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
        Some((ip, len)) if ip.is_v4() => (AF_INET, ip.octets(), len),
        Some((ip, len)) => (AF_INET6, ip.octets(), len),
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
        prefix_len: prefix_len.into(),
        addr,
        first_port,
        last_port,
        ..Default::default()
    }
}
