// SPDX-License-Identifier: GPL-2.0
//! Addresses: IPv4 only for now, and said so.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

use rustix::net::SocketAddrAny;

/// Tries `f` on each address until one succeeds, as std::net does.
pub(crate) fn each<A: ToSocketAddrs, T>(
    addr: A,
    mut f: impl FnMut(SocketAddrV4) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match v4(&addr).and_then(&mut f) {
            Ok(t) => return Ok(t),
            // An error of an address that was tried says more than that V6 is not supported.
            Err(e) if last.is_some() && e.kind() == io::ErrorKind::Unsupported => {}
            Err(e) => last = Some(e),
        }
    }
    Err(last
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
}

pub(crate) fn v4(addr: &SocketAddr) -> io::Result<SocketAddrV4> {
    match addr {
        SocketAddr::V4(addr) => Ok(*addr),
        SocketAddr::V6(addr) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("cannot use {addr}: ZRS speaks IPv4 only, give an IPv4 address"),
        )),
    }
}

pub(crate) fn from_any(addr: SocketAddrAny) -> io::Result<SocketAddr> {
    SocketAddr::try_from(addr)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not an IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v6_is_refused_in_words() {
        let error = each("[::1]:7000", |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("[::1]:7000") && error.to_string().contains("IPv4"));
    }

    #[test]
    fn v4_is_preferred_and_the_real_error_reported() {
        let both = [
            "[::1]:7".parse().unwrap(),
            "10.0.0.1:7".parse::<SocketAddr>().unwrap(),
        ];
        assert_eq!(each(&both[..], |a| Ok(a.port())).unwrap(), 7);
        let reversed = [both[1], both[0]];
        let error = each(&reversed[..], |_| {
            Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
