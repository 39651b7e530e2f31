// SPDX-License-Identifier: GPL-2.0
//! The rules of a network namespace as text: a line each, as `zrs rules` and /etc/zrs/rules have them.
//!
//! ```text
//! # ACTION [connect|bind] any | [net NET,...] [port PORTS,...]
//! tcp port 22,8000-8100
//! zrs connect net 192.0.2.0/24
//! tcp connect any
//! ```
//!
//! The first line that matches decides. A line with several networks or ports gives one rule for each combination:
//!
//! ```
//! let rules = zrs_rules::line::parse_all("tcp port 22,8000-8100\nzrs connect net 192.0.2.0/24")?;
//! assert_eq!(rules.len(), 3);
//! assert_eq!(rules[2].to_string(), "zrs connect net 192.0.2.0/24");
//! # Ok::<(), String>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::{Net, Ports};

/// Where the file of rules is unless another one is named.
pub const PATH: &str = "/etc/zrs/rules";

/// Most rules of a network namespace.
pub const RULES_MAX: usize = 1024;

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The socket stays TCP.
    Tcp,
    /// ZRS is used, as where no rule matches.
    Zrs,
}

/// The call that gives the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// connect(), with the peer's address.
    Connect,
    /// bind() or listen(), with the own address.
    Bind,
}

/// A rule of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The protocol of sockets that match.
    pub action: Action,
    /// The one call that it is for.
    pub call: Option<Call>,
    /// The addresses that match; without it, all.
    pub net: Option<Net>,
    /// The ports that match; without it, all.
    pub ports: Option<Ports>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            Action::Tcp => "tcp",
            Action::Zrs => "zrs",
        })?;
        match self.call {
            None => {}
            Some(Call::Connect) => f.write_str(" connect")?,
            Some(Call::Bind) => f.write_str(" bind")?,
        }
        if let Some(net) = self.net {
            write!(f, " net {net}")?;
        }
        if let Some(ports) = self.ports {
            write!(f, " port {ports}")?;
        }
        if self.net.is_none() && self.ports.is_none() {
            f.write_str(" any")?;
        }
        Ok(())
    }
}

/// The rules of a line, one for each of its networks and ports, in order.
pub fn parse(line: &str) -> Result<Vec<Rule>, String> {
    let text = line.split('#').next().unwrap_or_default();
    let mut words = text.split_whitespace().peekable();
    let action = match words.next() {
        None => return Ok(Vec::new()),
        Some("tcp") => Action::Tcp,
        Some("zrs") => Action::Zrs,
        Some(other) => {
            return Err(format!(
                "'{other}' is not tcp or zrs, with which a rule begins"
            ))
        }
    };
    let call = match words.peek() {
        Some(&"connect") => Some(Call::Connect),
        Some(&"bind") => Some(Call::Bind),
        _ => None,
    };
    if call.is_some() {
        words.next();
    }
    let (mut nets, mut ports, mut any) = (Vec::<Net>::new(), Vec::<Ports>::new(), false);
    while let Some(word) = words.next() {
        match word {
            "any" => any = true,
            "net" if nets.is_empty() => nets = list(words.next(), "net")?,
            "port" if ports.is_empty() => ports = list(words.next(), "port")?,
            "net" | "port" => {
                return Err(format!(
                    "'{word}' comes twice: write the values as one list, with commas"
                ))
            }
            _ => return Err(format!("'{word}' is not connect, bind, net, port or any")),
        }
    }
    let all = nets.is_empty() && ports.is_empty();
    if any != all {
        return Err(match any {
            true => "'any' stands alone, without net and port".into(),
            false => "say what it is for: net, port, or any".into(),
        });
    }
    let nets = some_or_none(nets);
    let ports = some_or_none(ports);
    let of_net = |net: &Option<Net>| {
        let net = *net;
        let ports = ports.clone();
        ports.into_iter().map(move |ports| Rule {
            action,
            call,
            net,
            ports,
        })
    };
    Ok(nets.iter().flat_map(of_net).collect())
}

/// The elements, or `None` once.
fn some_or_none<T>(list: Vec<T>) -> Vec<Option<T>> {
    match list.is_empty() {
        true => vec![None],
        false => list.into_iter().map(Some).collect(),
    }
}

fn list<T: FromStr<Err = String>>(text: Option<&str>, word: &str) -> Result<Vec<T>, String> {
    let text = text.ok_or_else(|| format!("there is nothing after '{word}'"))?;
    text.split(',').map(str::parse).collect()
}

/// The rules of a file's text; or what is wrong with it, a line for each mistake.
pub fn parse_all(text: &str) -> Result<Vec<Rule>, String> {
    let (mut rules, mut bad) = (Vec::new(), Vec::new());
    for (n, line) in (1..).zip(text.lines()) {
        match parse(line) {
            Ok(more) => rules.extend(more),
            Err(why) => bad.push(format!("line {n}: {why}")),
        }
    }
    if rules.len() > RULES_MAX {
        bad.push(format!(
            "there are {} rules, and {RULES_MAX} at most can be",
            rules.len()
        ));
    }
    match bad.is_empty() {
        true => Ok(rules),
        false => Err(bad.join("\n")),
    }
}
