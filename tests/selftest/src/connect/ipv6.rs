// SPDX-License-Identifier: GPL-2.0
//! Sockets of AF_INET6 on one host, compared with TCP's: both are asked the same, and the answers
//! must be equal.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use libc::{c_int, AF_INET, AF_INET6};

use crate::support::checks::Checks;
use crate::support::raw::{self, Errno, Result};

/// Check sockets of AF_INET6 against TCP's
#[derive(clap::Args)]
pub struct Args {
    /// An IPv4 address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    v4: Ipv4Addr,
    /// An IPv6 address of the same interface
    #[arg(long, value_name = "ADDR")]
    v6: Ipv6Addr,
    /// Another one
    #[arg(long, value_name = "ADDR")]
    other: Ipv6Addr,
    /// Its link-local address
    #[arg(long, value_name = "ADDR")]
    link: Ipv6Addr,
    /// The interface's number
    #[arg(long, value_name = "INDEX")]
    interface: u32,
}

/// The first attempt binds this port, and each further one the next.
const FIRST: u16 = 20_000;

pub fn run(args: &Args, checks: &mut Checks) {
    let [tcp, zrs] = [libc::IPPROTO_TCP, raw::IPPROTO_ZRS].map(|protocol| Tried {
        args,
        protocol,
        port: FIRST,
        said: Vec::new(),
    });
    let [tcp, zrs] = [tcp, zrs].map(Tried::all);
    checks.eq("as many answers", zrs.len(), tcp.len());
    for ((name, zrs), (_, tcp)) in zrs.into_iter().zip(tcp) {
        checks.eq(&name, zrs, tcp);
    }
}

/// Where a socket may be bound.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    ip: SocketAddr,
    only_v6: bool,
}

/// How a port is shared.
const SHARING: [(&str, &[c_int], bool); 4] = [
    ("", &[], false),
    (", both with SO_REUSEADDR", &[libc::SO_REUSEADDR], false),
    (
        ", the first one listening, both with SO_REUSEADDR",
        &[libc::SO_REUSEADDR],
        true,
    ),
    (", both with SO_REUSEPORT", &[libc::SO_REUSEPORT], true),
];

/// The answers of one protocol.
struct Tried<'a> {
    args: &'a Args,
    protocol: c_int,
    port: u16,
    said: Vec<(String, String)>,
}

impl Tried<'_> {
    fn all(mut self) -> Vec<(String, String)> {
        self.conflicts();
        self.errors();
        self.only_v6();
        self.connections();
        self.said
    }

    fn say(&mut self, name: impl Into<String>, what: impl std::fmt::Debug) {
        self.said.push((name.into(), format!("{what:?}")));
    }

    fn socket(&self, family: c_int) -> Result<OwnedFd> {
        raw::socket(family, libc::SOCK_STREAM, self.protocol)
    }

    fn next_port(&mut self) -> u16 {
        self.port += 1;
        self.port
    }

    fn at6(&self, ip: Ipv6Addr, port: u16) -> SocketAddr {
        SocketAddrV6::new(ip, port, 0, 0).into()
    }

    fn link(&self, port: u16) -> SocketAddr {
        SocketAddrV6::new(self.args.link, port, 0, self.args.interface).into()
    }

    fn mapped(&self) -> Ipv6Addr {
        self.args.v4.to_ipv6_mapped()
    }

    fn places(&self) -> [Place; 11] {
        let v4 = |ip| SocketAddrV4::new(ip, 0).into();
        let place = |name, ip| Place {
            name,
            ip,
            only_v6: false,
        };
        let only = |name, ip| Place {
            name,
            ip,
            only_v6: true,
        };
        let any = self.at6(Ipv6Addr::UNSPECIFIED, 0);
        [
            place("0.0.0.0", v4(Ipv4Addr::UNSPECIFIED)),
            place("an IPv4 address", v4(self.args.v4)),
            place("127.0.0.1", v4(Ipv4Addr::LOCALHOST)),
            place("::", any),
            only(":: with IPV6_V6ONLY", any),
            place("an IPv6 address", self.at6(self.args.v6, 0)),
            only(
                "an IPv6 address with IPV6_V6ONLY",
                self.at6(self.args.v6, 0),
            ),
            place("::1", self.at6(Ipv6Addr::LOCALHOST, 0)),
            place("a v4-mapped address", self.at6(self.mapped(), 0)),
            place(
                "::ffff:0.0.0.0",
                self.at6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 0),
            ),
            place("a link-local address", self.link(0)),
        ]
    }

    fn bound(&self, place: Place, port: u16, options: &[c_int]) -> Result<OwnedFd> {
        let mut addr = place.ip;
        addr.set_port(port);
        let fd = self.socket(if addr.is_ipv6() { AF_INET6 } else { AF_INET })?;
        for &option in options {
            set(&fd, libc::SOL_SOCKET, option, 1)?;
        }
        if place.only_v6 {
            set(&fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        raw::bind_any(&fd, addr)?;
        Ok(fd)
    }

    /// Each place after each other one at the same port.
    fn conflicts(&mut self) {
        for first in self.places() {
            for second in self.places() {
                for (how, options, listens) in SHARING {
                    let port = self.next_port();
                    let one = self.bound(first, port, options);
                    if let (Ok(one), true) = (&one, listens) {
                        let _ = raw::listen(one, 1);
                    }
                    let two = self.bound(second, port, options);
                    let name = format!("{} after {}{how}", second.name, first.name);
                    self.say(name, (one.err(), two.err()));
                }
            }
        }
    }

    fn errors(&mut self) {
        let (v4, v6) = (self.args.v4, self.args.v6);
        let plain = |ip: Ipv6Addr, port| SocketAddrV6::new(ip, port, 0, 0);
        let link = SocketAddrV6::new(self.args.link, 0, 0, 0);
        let far: Ipv6Addr = "2001:db8::77".parse().unwrap();
        let many: Ipv6Addr = "ff02::1".parse().unwrap();
        let nowhere = SocketAddrV6::new(self.args.link, 0, 0, 9999);
        let short = 24;
        for (name, addr, len) in [
            ("too short", plain(v6, 0), short - 1),
            ("without a scope", plain(v6, 0), short),
            (
                "link-local, on an interface",
                SocketAddrV6::new(self.args.link, 0, 0, self.args.interface),
                raw::ADDR6_LEN,
            ),
            ("link-local", link, raw::ADDR6_LEN),
            ("link-local, cut before the scope", nowhere, short),
            ("link-local, on no interface", nowhere, raw::ADDR6_LEN),
            ("not of this host", plain(far, 0), raw::ADDR6_LEN),
            (
                "v4-mapped, not of this host",
                plain(Ipv4Addr::new(203, 0, 113, 7).to_ipv6_mapped(), 0),
                raw::ADDR6_LEN,
            ),
            ("multicast", plain(many, 0), raw::ADDR6_LEN),
        ] {
            let bound = self
                .socket(AF_INET6)
                .and_then(|fd| raw::bind6_as(&fd, addr, len));
            self.say(format!("bind() to an address {name}"), bound);
        }
        let nobody = 9;
        for (name, addr, len) in [
            ("too short", plain(v6, nobody), short - 1),
            (
                "link-local",
                SocketAddrV6::new(self.args.link, nobody, 0, 0),
                raw::ADDR6_LEN,
            ),
            ("multicast", plain(many, nobody), raw::ADDR6_LEN),
            ("without a route", plain(far, nobody), raw::ADDR6_LEN),
            (
                "v4-mapped broadcast",
                plain(Ipv4Addr::BROADCAST.to_ipv6_mapped(), nobody),
                raw::ADDR6_LEN,
            ),
        ] {
            let connected = self
                .socket(AF_INET6)
                .and_then(|fd| raw::connect6_as(&fd, addr, len));
            self.say(format!("connect() to an address {name}"), connected);
        }
        // Addresses of the other family.
        let of_v4 = SocketAddrV4::new(v4, nobody);
        let fd = self.socket(AF_INET6);
        let bound = fd.and_then(|fd| raw::bind(&fd, of_v4));
        self.say("a sockaddr_in for AF_INET6: bind()", bound);
        let fd = self.socket(AF_INET6);
        let connected = fd.and_then(|fd| raw::connect(&fd, of_v4));
        self.say("connect()", connected);
        let fd = self.socket(AF_INET);
        let bound = fd.and_then(|fd| raw::bind_any(&fd, self.at6(v6, 0)));
        self.say("a sockaddr_in6 for AF_INET: bind()", bound);
        let fd = self.socket(AF_INET);
        let connected = fd.and_then(|fd| raw::connect_any(&fd, self.at6(v6, nobody)));
        self.say("connect()", connected);
        // Bound to one family, connecting to the other.
        let pairs = [
            ("an IPv6 address", self.at6(v6, 0), self.mapped()),
            ("a v4-mapped address", self.at6(self.mapped(), 0), v6),
        ];
        for (name, from, to) in pairs {
            let fd = self.socket(AF_INET6);
            let connected = fd.and_then(|fd| {
                raw::bind_any(&fd, from)?;
                raw::connect_any(&fd, self.at6(to, nobody))
            });
            self.say(
                format!("from {name} to one of the other family"),
                connected.is_err(),
            );
        }
    }

    fn only_v6(&mut self) {
        let get = |fd: &OwnedFd| raw::getsockopt_int(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY);
        let set = |fd: &OwnedFd, on| set(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, on);
        let tried = |t: &Self| -> Result<Vec<String>> {
            let fd = t.socket(AF_INET6)?;
            let mut all = vec![format!("{:?}", get(&fd))];
            for on in [1, 0, 7] {
                all.push(format!("{:?} {:?}", set(&fd, on), get(&fd)));
            }
            let short = raw::setsockopt(&fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, &[1]);
            all.push(format!("{short:?}"));
            let mapped = t.at6(t.mapped(), 0);
            all.push(format!("{:?}", raw::bind_any(&fd, mapped)));
            all.push(format!("{:?}", raw::connect_any(&fd, mapped)));
            raw::bind_any(&fd, t.at6(Ipv6Addr::UNSPECIFIED, 0))?;
            all.push(format!("{:?} {:?}", set(&fd, 0), get(&fd)));
            let v4 = t.socket(AF_INET)?;
            all.push(format!("{:?} {}", set(&v4, 1), get(&v4).is_err()));
            Ok(all)
        };
        let tried = tried(self);
        self.say("IPV6_V6ONLY", tried);
    }

    /// The addresses of both ends of a connection, without ports that the kernel chose.
    fn names(
        &self,
        listener: &OwnedFd,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<String> {
        let fd = self.socket(if to.is_ipv6() { AF_INET6 } else { AF_INET })?;
        if let Some(from) = from {
            raw::bind_any(&fd, from)?;
        }
        raw::connect_any(&fd, to)?;
        let peer = raw::accept(listener)?;
        let chosen = raw::name_any(&fd, false)?.port();
        let name = |fd: &OwnedFd, peer| -> Result<String> {
            let mut addr = raw::name_any(fd, peer)?;
            if addr.port() == chosen {
                addr.set_port(0);
            }
            Ok(addr.to_string())
        };
        let mut all = Vec::new();
        for end in [&fd, &peer] {
            let domain = raw::getsockopt_int(end, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
            let only = match domain {
                AF_INET6 => raw::getsockopt_int(end, libc::SOL_IPV6, libc::IPV6_V6ONLY)?,
                _ => -1,
            };
            all.push(format!(
                "{} -> {} domain {domain} only {only}",
                name(end, false)?,
                name(end, true)?
            ));
        }
        // The bytes go both ways.
        for (a, b) in [(&fd, &peer), (&peer, &fd)] {
            let sent: Vec<u8> = (0..=255).cycle().take(10_000).collect();
            let mut got = vec![0; sent.len()];
            raw::send_all(a, &sent)?;
            raw::recv_all(b, &mut got)?;
            if sent != got {
                return Err(Errno(libc::EIO));
            }
        }
        Ok(all.join("; "))
    }

    fn connections(&mut self) {
        for listens in self.places() {
            let port = self.next_port();
            let listener = self.bound(listens, port, &[]).and_then(|fd| {
                raw::listen(&fd, 10)?;
                Ok(fd)
            });
            let Ok(listener) = listener else {
                continue;
            };
            // TCP has a device for 127.0.0.1 and ::1.
            let to: [(&str, SocketAddr); 4] = [
                ("IPv4", SocketAddrV4::new(self.args.v4, port).into()),
                ("v4-mapped", self.at6(self.mapped(), port)),
                ("IPv6", self.at6(self.args.v6, port)),
                ("link-local", self.link(port)),
            ];
            for (name, to) in to {
                let seen = self.names(&listener, None, to);
                let name = format!("a listener on {}, a connection by {name}", listens.name);
                self.say(name, seen);
            }
            let from = self.at6(self.args.other, 0);
            let seen = self.names(&listener, Some(from), self.at6(self.args.v6, port));
            let name = format!("a listener on {}, from a bound IPv6 address", listens.name);
            self.say(name, seen);
            let from = self.at6(self.mapped(), 0);
            let seen = self.names(&listener, Some(from), self.at6(self.mapped(), port));
            let name = format!("a listener on {}, from a bound v4-mapped one", listens.name);
            self.say(name, seen);
        }
    }
}

fn set(fd: &OwnedFd, level: c_int, option: c_int, value: c_int) -> Result<()> {
    raw::setsockopt(fd, level, option, &value.to_ne_bytes())
}
