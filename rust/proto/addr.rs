// SPDX-License-Identifier: GPL-2.0

//! Addresses: IPv4 and IPv6 in one type, and the overlap of bound addresses.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IP address. An IPv4 address is kept as its v4-mapped IPv6 address. A link-local address
/// belongs to an interface, its scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ip {
    addr: Ipv6Addr,
    /// 0 except for link-local addresses.
    scope: u32,
}

impl Ip {
    /// `::`, all addresses of IPv6 and perhaps of IPv4. It is the first in order.
    pub const ANY: Self = Self {
        addr: Ipv6Addr::UNSPECIFIED,
        scope: 0,
    };

    /// `0.0.0.0`, all addresses of IPv4.
    pub const ANY_V4: Self = Self {
        addr: Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(),
        scope: 0,
    };

    /// `addr` on the interface `scope`, which is used for link-local addresses only.
    pub fn new(addr: Ipv6Addr, scope: u32) -> Self {
        let local = addr.is_unicast_link_local();
        Self {
            addr,
            scope: if local { scope } else { 0 },
        }
    }

    /// The 16 bytes.
    pub fn octets(self) -> [u8; 16] {
        self.addr.octets()
    }

    /// The interface of a link-local address; 0: not known, or another kind of address.
    pub fn scope(self) -> u32 {
        self.scope
    }

    /// The IPv4 address, if it is one.
    pub fn v4(self) -> Option<Ipv4Addr> {
        self.addr.to_ipv4_mapped()
    }

    /// The address without its scope.
    pub fn v6(self) -> Ipv6Addr {
        self.addr
    }

    /// Whether it is one of IPv4.
    pub fn is_v4(self) -> bool {
        self.v4().is_some()
    }

    /// Whether it stands for all addresses, of one family or of both.
    pub fn is_any(self) -> bool {
        self == Self::ANY || self == Self::ANY_V4
    }

    /// Whether it is a link-local address, whose scope has to be known.
    pub fn is_link_local(self) -> bool {
        self.addr.is_unicast_link_local()
    }

    /// Whether it is a multicast address, or the broadcast address of IPv4. Those of networks
    /// depend on the host: see `Net::is_broadcast`.
    pub fn is_for_many(self) -> bool {
        match self.v4() {
            Some(v4) => v4.is_multicast() || v4.is_broadcast(),
            None => self.addr.is_multicast(),
        }
    }

    /// All addresses of the same family.
    pub fn any_of_family(self) -> Self {
        if self.is_v4() {
            Self::ANY_V4
        } else {
            Self::ANY
        }
    }

    /// This host, in the same family.
    pub fn loopback_of_family(self) -> Self {
        if self.is_v4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Self::new(Ipv6Addr::LOCALHOST, 0)
        }
    }
}

impl From<Ipv4Addr> for Ip {
    fn from(v4: Ipv4Addr) -> Self {
        Self::new(v4.to_ipv6_mapped(), 0)
    }
}

impl fmt::Debug for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.v4() {
            Some(v4) => fmt::Debug::fmt(&v4, f),
            None if self.scope != 0 => write!(f, "{:?}%{}", self.addr, self.scope),
            None => fmt::Debug::fmt(&self.addr, f),
        }
    }
}

/// An address and a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Addr {
    /// The address.
    pub ip: Ip,
    /// The port; 0: none.
    pub port: u16,
}

impl Addr {
    /// `ip` with `port`.
    pub const fn new(ip: Ip, port: u16) -> Self {
        Self { ip, port }
    }
}

impl From<Addr> for SocketAddr {
    /// An IPv4 address is converted to `SocketAddr::V4`.
    fn from(addr: Addr) -> Self {
        match addr.ip.v4() {
            Some(v4) => SocketAddrV4::new(v4, addr.port).into(),
            None => SocketAddrV6::from(addr).into(),
        }
    }
}

impl From<SocketAddrV6> for Addr {
    fn from(addr: SocketAddrV6) -> Self {
        Self::new(Ip::new(*addr.ip(), addr.scope_id()), addr.port())
    }
}

impl From<Addr> for SocketAddrV6 {
    fn from(addr: Addr) -> Self {
        Self::new(addr.ip.v6(), addr.port, 0, addr.ip.scope())
    }
}

/// The local address of a socket's binding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bound {
    ip: Ip,
    /// All addresses of IPv6 and none of IPv4.
    only_v6: bool,
}

impl Bound {
    /// Bound to `ip`; `only_v6`: as IPV6_V6ONLY says.
    pub fn new(ip: Ip, only_v6: bool) -> Self {
        Self {
            ip,
            only_v6: only_v6 && ip == Ip::ANY,
        }
    }

    /// The address.
    pub fn ip(self) -> Ip {
        self.ip
    }

    /// Whether it receives connections to `ip`.
    pub fn takes(self, ip: Ip) -> bool {
        if self.ip == Ip::ANY {
            return !self.only_v6 || !ip.is_v4();
        }
        self.ip == ip || (self.ip == Ip::ANY_V4 && ip.is_v4())
    }

    /// Whether there is an address that both receive connections for.
    pub fn overlaps(self, other: Self) -> bool {
        let both = self.ip == Ip::ANY && other.ip == Ip::ANY;
        both || self.takes(other.ip) || other.takes(self.ip)
    }

    /// The addresses of all bindings that can overlap this binding; `None` if they are too many to
    /// list.
    pub fn overlapped(self) -> Option<[Option<Ip>; 3]> {
        let v4 = Some(Ip::ANY_V4).filter(|_| self.ip.is_v4());
        (!self.ip.is_any()).then_some([Some(self.ip), Some(Ip::ANY), v4])
    }
}
