// SPDX-License-Identifier: GPL-2.0
//! Which sockets of an unmodified program become ZRS sockets.
//!
//! `zrs run` turns its options into environment variables and `libzrs_preload.so` reads them; both
//! know the format from here. `Documentation/run.rst` describes it for users.
#![deny(unsafe_code)]

pub mod keys;
pub mod line;
mod list;
pub mod peers;
pub mod why;

use std::net::{IpAddr, SocketAddr};

pub use list::{Net, Ports};

/// Networks whose sockets stay TCP, separated by commas.
pub const TCP_NETS: &str = "ZRS_RUN_TCP_NETS";
/// Ports whose sockets stay TCP.
pub const TCP_PORTS: &str = "ZRS_RUN_TCP_PORTS";
/// Programs whose sockets stay TCP.
pub const TCP_PROGRAMS: &str = "ZRS_RUN_TCP_PROGRAMS";
/// If set: sockets at all other addresses stay TCP.
pub const ONLY_NETS: &str = "ZRS_RUN_ONLY_NETS";
/// If set: sockets at all other ports stay TCP.
pub const ONLY_PORTS: &str = "ZRS_RUN_ONLY_PORTS";
/// If set: the sockets of all other programs stay TCP.
pub const ONLY_PROGRAMS: &str = "ZRS_RUN_ONLY_PROGRAMS";
/// Where each decision is written: the path of a file that lines are appended to, or "stderr".
pub const LOG: &str = "ZRS_RUN_LOG";
/// Whether the program's servers take TCP clients as well: a [`Beside`].
pub const TCP: &str = "ZRS_RUN_TCP";
/// If set: UDP sockets become datagram sockets of ZRS with a UDP socket inside.
pub const UDP: &str = "ZRS_RUN_UDP";
/// All of them.
pub const VARIABLES: [&str; 9] = [
    TCP_NETS,
    TCP_PORTS,
    TCP_PROGRAMS,
    ONLY_NETS,
    ONLY_PORTS,
    ONLY_PROGRAMS,
    LOG,
    TCP,
    UDP,
];

/// Use of TCP by a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// None.
    #[default]
    Never,
    /// Its port, and it accepts TCP clients.
    Auto,
    /// Its port, and TCP clients are refused.
    Required,
    /// TCP alone.
    Only,
}

impl Beside {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Never, Self::Auto, Self::Required, Self::Only];

    /// Its `ZRS_TCP_*`.
    pub fn number(self) -> u32 {
        match self {
            Self::Never => 0,
            Self::Auto => 1,
            Self::Required => 2,
            Self::Only => 3,
        }
    }

    /// As a user writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Only => "only",
        }
    }
}

impl std::str::FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| format!("'{text}' is not never, auto, required or only"))
    }
}

/// The decision about a socket, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A ZRS socket: no rule is against it.
    Zrs,
    /// The kernel's own socket: the reason in a few words.
    Tcp(&'static str),
}

/// The rules; without any, only loopback stays TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    tcp_nets: Vec<Net>,
    tcp_ports: Vec<Ports>,
    only_nets: Option<Vec<Net>>,
    only_ports: Option<Vec<Ports>>,
    program: Option<&'static str>,
    tcp: Beside,
    udp: bool,
}

impl Rules {
    /// From the variables, which `var` looks up, for a program that has these `names`. A variable
    /// that is not as it should be counts as not set, and is told to `bad`.
    pub fn new(
        var: impl Fn(&str) -> Option<String>,
        names: &[&str],
        mut bad: impl FnMut(&str),
    ) -> Self {
        let named = |list: &str| list.split(',').any(|n| names.contains(&n.trim()));
        let program = if var(TCP_PROGRAMS).is_some_and(|list| named(&list)) {
            Some("listed program")
        } else if var(ONLY_PROGRAMS).is_some_and(|list| !named(&list)) {
            Some("not a listed program")
        } else {
            None
        };
        Self {
            tcp_nets: read(&var, TCP_NETS, &mut bad).unwrap_or_default(),
            tcp_ports: read(&var, TCP_PORTS, &mut bad).unwrap_or_default(),
            only_nets: read(&var, ONLY_NETS, &mut bad),
            only_ports: read(&var, ONLY_PORTS, &mut bad),
            program,
            tcp: read(&var, TCP, &mut bad)
                .and_then(|list| list.first().copied())
                .unwrap_or_default(),
            udp: var(UDP).is_some(),
        }
    }

    /// Use of TCP by the servers of this program.
    pub fn tcp(&self) -> Beside {
        self.tcp
    }

    /// For any new datagram socket of this program. They reach all that UDP reaches, so the lists of
    /// ports and networks are not for them.
    /// `None`: the user has not asked for them.
    pub fn dgram_socket(&self) -> Option<Verdict> {
        let verdict = self.program.map_or(Verdict::Zrs, Verdict::Tcp);
        self.udp.then_some(verdict)
    }

    /// For any new stream socket of this program.
    pub fn socket(&self) -> Verdict {
        if self.tcp == Beside::Only {
            return Verdict::Tcp("--tcp=only");
        }
        self.program.map_or(Verdict::Zrs, Verdict::Tcp)
    }

    /// For a socket that connects to `to`.
    pub fn connect(&self, to: SocketAddr) -> Verdict {
        let ip = to.ip().to_canonical();
        // 0.0.0.0 as a destination is this host.
        if ip.is_unspecified() {
            return Verdict::Tcp("loopback");
        }
        self.at(ip, to.port())
    }

    /// For a socket that binds to `at`. Port 0 and the wildcard address do not say yet where it
    /// will be, so the lists of ports or networks do not apply.
    pub fn bind(&self, at: SocketAddr) -> Verdict {
        self.at(at.ip().to_canonical(), at.port())
    }

    fn at(&self, ip: IpAddr, port: u16) -> Verdict {
        let net = |list: &[Net]| list.iter().any(|n| n.has(ip));
        let ports = |list: &[Ports]| list.iter().any(|p| p.has(port));
        if ip.is_loopback() {
            return Verdict::Tcp("loopback");
        }
        if port != 0 {
            if ports(&self.tcp_ports) {
                return Verdict::Tcp("listed port");
            }
            if self.only_ports.as_deref().is_some_and(|l| !ports(l)) {
                return Verdict::Tcp("not a listed port");
            }
        }
        if !ip.is_unspecified() {
            if net(&self.tcp_nets) {
                return Verdict::Tcp("listed network");
            }
            if self.only_nets.as_deref().is_some_and(|l| !net(l)) {
                return Verdict::Tcp("not a listed network");
            }
        }
        Verdict::Zrs
    }
}

fn read<T: std::str::FromStr>(
    var: impl Fn(&str) -> Option<String>,
    name: &str,
    bad: &mut impl FnMut(&str),
) -> Option<Vec<T>> {
    let text = var(name)?;
    let items = text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    let list: Option<Vec<T>> = items.map(|item| item.parse().ok()).collect();
    if list.is_none() {
        bad(name);
    }
    list
}

/// A list as a variable has it.
pub fn joined<T: std::fmt::Display>(list: &[T]) -> String {
    let items: Vec<String> = list.iter().map(T::to_string).collect();
    items.join(",")
}
