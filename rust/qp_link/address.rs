// SPDX-License-Identifier: GPL-2.0

//! Addresses of the connection manager, and what can be checked of those that a peer claims.

#![deny(unsafe_code)]

use core::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use kernel::prelude::*;

use super::RESERVED_PORTS;
use crate::ib::cm::Id;
use crate::kern::errno::{EADDRNOTAVAIL, EAFNOSUPPORT};
use crate::kern::net::Net;
use crate::net_warn_ratelimited;
use crate::proto::addr::{Addr, Ip};
use crate::stats::STATS;

/// Converts an address to the connection manager's type.
pub(crate) fn to_cm(ip: Ip, port: u16) -> SocketAddr {
    match ip.v4() {
        Some(v4) => SocketAddrV4::new(v4, port).into(),
        None => SocketAddrV6::from(Addr::new(ip, port)).into(),
    }
}

/// Converts an address of `id`. The peer may have chosen it, so only IPv6 addresses that a remote
/// host can have are accepted. A v4-mapped address, for example, or the loopback address would pass
/// for one that was verified in another way.
pub(crate) fn of_cm(id: &Id, addr: Option<SocketAddr>) -> Option<Addr> {
    let addr = addr?;
    let ip = match addr.ip() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => {
            let mapped = v6.to_ipv4_mapped().is_some();
            if mapped || v6.is_loopback() || v6.is_multicast() || v6.is_unspecified() {
                return None;
            }
            Ip::new(v6, id.interface())
        }
    };
    Some(Addr::new(ip, addr.port()))
}

/// The address of a peer that asks `id` for a connection, and the local address that it asked: both
/// checked as far as that can be done. EACCES, EADDRNOTAVAIL, EAFNOSUPPORT.
pub(crate) fn peer_of(net: &Net, id: &Id) -> Result<(Ip, Ip)> {
    let from = of_cm(id, id.remote_addr()).ok_or(EAFNOSUPPORT)?;
    let to = of_cm(id, id.local_addr()).ok_or(EAFNOSUPPORT)?;
    let (remote, local) = (from.ip, to.ip);
    if !RESERVED_PORTS.contains(&from.port) {
        net_warn_ratelimited!("connection from {remote:?} refused: not from a reserved port\n");
        return Err(EACCES);
    }
    // The peer claims this address. The GID is that of the path on which replies go.
    if id.peer_gid().is_some_and(|gid| gid != remote.v6()) {
        STATS.protocol_errors.add(1);
        net_warn_ratelimited!("connection from {remote:?} refused: another host's address\n");
        return Err(EACCES);
    }
    // The peer chooses the local address, and the core does not check it.
    if !net.is_local(local.v6(), local.scope())? {
        return Err(EADDRNOTAVAIL);
    }
    Ok((remote, local))
}
