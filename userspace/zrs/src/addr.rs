// SPDX-License-Identifier: GPL-2.0
//! Addresses, as programs give them and as the module does.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use rustix::net::SocketAddrAny;

/// Tries `f` on each address until one succeeds, as std::net does.
pub(crate) fn each<A: ToSocketAddrs, T>(
    addr: A,
    mut f: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match f(addr) {
            Ok(t) => return Ok(t),
            Err(e) => last = Some(e),
        }
    }
    Err(last
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
}

pub(crate) fn from_any(addr: SocketAddrAny) -> io::Result<SocketAddr> {
    SocketAddr::try_from(addr)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not an IP address"))
}

/// An address of the module's: of IPv4 if it is v4-mapped.
pub(crate) fn ip(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// The address of a socket of AF_INET6, if `v6` says so; `port` as the network has it.
pub(crate) fn socket_addr(v6: bool, octets: [u8; 16], port: u16, scope: u32) -> SocketAddr {
    let port = u16::from_be(port);
    match v6 {
        true => SocketAddrV6::new(octets.into(), port, 0, scope).into(),
        false => SocketAddr::new(ip(octets), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_tried_and_the_last_error_reported() {
        let both = [
            "[::1]:7".parse().unwrap(),
            "10.0.0.1:7".parse::<SocketAddr>().unwrap(),
        ];
        let v4 = |a: SocketAddr| match a.is_ipv4() {
            true => Ok(a.port()),
            false => Err(io::Error::from(io::ErrorKind::AddrNotAvailable)),
        };
        assert_eq!(each(&both[..], v4).unwrap(), 7);
        let mut tried = Vec::new();
        let error = each(&both[..], |a| {
            tried.push(a);
            Err::<(), _>(io::Error::from(match a.is_ipv4() {
                true => io::ErrorKind::ConnectionRefused,
                false => io::ErrorKind::AddrNotAvailable,
            }))
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(tried, both);
    }

    #[test]
    fn of_the_module() {
        let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let port = 7000_u16.to_be();
        let show = |v6, text, scope| socket_addr(v6, octets(text), port, scope).to_string();
        assert_eq!(show(false, "::ffff:10.0.0.2", 0), "10.0.0.2:7000");
        assert_eq!(show(true, "::ffff:10.0.0.2", 0), "[::ffff:10.0.0.2]:7000");
        assert_eq!(show(true, "fe80::1", 3), "[fe80::1%3]:7000");
        assert_eq!(ip(octets("::ffff:10.0.0.2")).to_string(), "10.0.0.2");
        assert_eq!(ip(octets("fd00::2")).to_string(), "fd00::2");
    }
}
