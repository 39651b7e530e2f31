// SPDX-License-Identifier: GPL-2.0

//! Whether the calling task may reach another host, for calls that do so without a socket of the
//! program's: what is said of its sockets of TCP counts for them, too.
//!
//! C: `net/socket.c`, `include/linux/bpf-cgroup.h`.

use super::{cgroup_bpf::on_name, filters_packets, v6};
use crate::bindings;
use core::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV6},
    ptr::{self, NonNull},
};
use kernel::{error::to_result, ffi::c_int, prelude::*};

/// A socket of TCP that the calling task has made, without a file.
///
/// # Invariants
///
/// The socket is live, has a sock of IPv4 or IPv6, and is ours alone.
struct Probe(NonNull<bindings::socket>);

impl Probe {
    fn new(v6: bool) -> Result<Self> {
        let family = match v6 {
            true => bindings::AF_INET6,
            false => bindings::AF_INET,
        };
        let (kind, protocol) = (bindings::sock_type_SOCK_STREAM, bindings::IPPROTO_TCP);
        let mut sock = ptr::null_mut();
        // SAFETY: takes any numbers, and fills `sock` if it succeeds.
        to_result(unsafe {
            bindings::sock_create(family as c_int, kind as c_int, protocol as c_int, &mut sock)
        })?;
        // INVARIANT: new, and of these families.
        NonNull::new(sock).map(Self).ok_or(ENOMEM)
    }

    fn sk(&self) -> *mut bindings::sock {
        // SAFETY: a live socket, with a sock (type invariant).
        unsafe { (*self.0.as_ptr()).sk.cast() }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: ours alone (type invariant).
        unsafe { bindings::sock_release(self.0.as_ptr()) };
    }
}

/// Whether the calling task may connect to the address `to`: it may make a socket of TCP, and the
/// BPF programs of its control group allow `connect()` and the packets that open a connection.
///
/// Context: may sleep. Errors: `EPERM`, also if a program wants another address; those of
/// `socket()`, of the programs and of the route.
pub fn may_reach(to: SocketAddrV6) -> Result {
    let is_v6 = to.ip().to_ipv4_mapped().is_none();
    let probe = Probe::new(is_v6)?;
    // SAFETY: a live sock and an address of its family, which the programs may change.
    let left = on_name(is_v6, to, |name| unsafe {
        bindings::cgroup_connect(probe.sk(), name)
    })?;
    if (left.ip(), left.port()) != (to.ip(), to.port()) {
        return Err(EPERM);
    }
    if !filters_packets() {
        return Ok(());
    }
    let own = match is_v6 {
        true => Ipv6Addr::UNSPECIFIED,
        false => Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(),
    };
    let own = v6::sockaddr_in6(SocketAddrV6::new(own, 0, 0, 0));
    // SAFETY: a live sock; both addresses are only read.
    to_result(unsafe { bindings::cgroup_packets(probe.sk(), &own, &v6::sockaddr_in6(to), true) })
}
