// SPDX-License-Identifier: GPL-2.0
//! A line of the directory file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use zrs_core::mem::id::NodeId;

use crate::NODES_MAX;

/// The interface of a link-local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// By its number.
    Index(u32),
    /// By its name.
    Name(String),
}

/// A node and the RDMA address of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node; domain 0 stands for the host's own.
    pub node: NodeId,
    /// The address of one host.
    pub addr: IpAddr,
    /// The interface, for link-local addresses of IPv6 alone.
    pub scope: Option<Scope>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.node, self.addr)?;
        match &self.scope {
            None => Ok(()),
            Some(Scope::Index(n)) => write!(f, "%{n}"),
            Some(Scope::Name(name)) => write!(f, "%{name}"),
        }
    }
}

/// Why a line is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The first word is not a node id.
    Node(String),
    /// There is no address behind the node id.
    NoAddress(NodeId),
    /// There is something behind the address.
    More(String),
    /// It is not an IP address.
    Address(String),
    /// It is an address with a port or the length of a network behind it.
    Behind(String, IpAddr),
    /// It is not the address of one host.
    Many(IpAddr),
    /// A link-local address without its interface.
    NoScope(IpAddr),
    /// An interface behind an address that is not link-local.
    Scope(IpAddr),
    /// It is not an interface.
    BadScope(String),
    /// The node is in a line before, which has that number.
    Twice(NodeId, usize),
    /// There are [`NODES_MAX`] nodes in the lines before.
    TooMany,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(text) => write!(
                f,
                "'{text}' is not a node id; write its domain and number as '1:2', or the number alone"
            ),
            Self::NoAddress(node) => write!(
                f,
                "node {node} has no address; write the RDMA address of its host, as '{node} 192.0.2.12'"
            ),
            Self::More(text) => write!(
                f,
                "'{text}' is behind the address; a line has one node and one address, a comment begins with '#'"
            ),
            Self::Address(text) => write!(
                f,
                "'{text}' is not an IP address; names are not looked up, write what 'getent hosts {text}' prints"
            ),
            Self::Behind(text, addr) => write!(
                f,
                "'{text}' is more than an address; write '{addr}' alone"
            ),
            Self::Many(addr) => write!(
                f,
                "{addr} is not the address of one host; write the address of the host's RDMA interface"
            ),
            Self::NoScope(addr) => write!(
                f,
                "{addr} is link-local; append the interface of this host, as '{addr}%eth0'"
            ),
            Self::Scope(addr) => write!(
                f,
                "{addr} is not link-local; leave out the interface behind '%'"
            ),
            Self::BadScope(text) => write!(
                f,
                "'{text}' is not an interface; 'ip link' lists those of this host"
            ),
            Self::Twice(node, line) => write!(
                f,
                "node {node} is in line {line} already; leave one of the two"
            ),
            Self::TooMany => write!(
                f,
                "there are {NODES_MAX} nodes before; leave out those that this host does not use"
            ),
        }
    }
}

/// The entry in a line; `None` if the line is empty or a comment.
pub(crate) fn parse(line: &str) -> Result<Option<Entry>, Problem> {
    let text = line.split_once('#').map_or(line, |(text, _)| text);
    let mut words = text.split_ascii_whitespace();
    let Some(node) = words.next() else {
        return Ok(None);
    };
    let node = node.parse().map_err(|_| Problem::Node(node.to_owned()))?;
    let addr = words.next().ok_or(Problem::NoAddress(node))?;
    if let Some(more) = words.next() {
        return Err(Problem::More(more.to_owned()));
    }
    let (addr, scope) = address(addr)?;
    Ok(Some(Entry { node, addr, scope }))
}

fn address(text: &str) -> Result<(IpAddr, Option<Scope>), Problem> {
    let (addr, scope) = match text.split_once('%') {
        Some((addr, scope)) => (addr, Some(scope)),
        None => (text, None),
    };
    let Ok(addr) = addr.parse::<IpAddr>() else {
        return Err(no_address(text));
    };
    let addr = addr.to_canonical();
    let many = match addr {
        IpAddr::V4(v4) => v4.is_multicast() || v4 == Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if many || addr.is_unspecified() {
        return Err(Problem::Many(addr));
    }
    let local = matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
    match scope {
        None if local => Err(Problem::NoScope(addr)),
        Some(_) if !local => Err(Problem::Scope(addr)),
        scope => Ok((addr, scope.map(interface).transpose()?)),
    }
}

/// An interface as the kernel names them: 1 to 15 bytes, neither "/" nor ":" among them.
fn interface(text: &str) -> Result<Scope, Problem> {
    let bad = || Problem::BadScope(text.to_owned());
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.parse() {
            Ok(0) | Err(_) => Err(bad()),
            Ok(index) => Ok(Scope::Index(index)),
        };
    }
    let named = text.len() < 16 && !text.contains(['/', ':', '%']) && text != "." && text != "..";
    named.then(|| Scope::Name(text.to_owned())).ok_or_else(bad)
}

/// The problem of a text that is no address.
fn no_address(text: &str) -> Problem {
    let before = |end: char| text.rsplit_once(end).map(|(addr, _)| addr);
    let bracketed = before(':').and_then(|addr| addr.strip_prefix('[')?.strip_suffix(']'));
    let whole = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let parts = [before('/'), bracketed, whole, before(':')];
    let addr = parts.into_iter().flatten().find_map(|a| a.parse().ok());
    match addr {
        Some(addr) => Problem::Behind(text.to_owned(), addr),
        None => Problem::Address(text.to_owned()),
    }
}
