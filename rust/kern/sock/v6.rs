// SPDX-License-Identifier: GPL-2.0

//! The differences of sockets of AF_INET6.
//!
//! C: `include/linux/ipv6.h`, `include/net/ipv6.h`.

use super::{Object, Sk};
use crate::bindings;
use core::{
    mem::offset_of,
    net::{Ipv6Addr, SocketAddrV6},
    ptr,
};
use kernel::{
    ffi::{c_int, c_uint},
    prelude::*,
};

/// The object of a socket of AF_INET6.
#[repr(C)]
struct Object6 {
    object: Object,
    pinfo: bindings::ipv6_pinfo,
}

/// Its size, and where C finds its own part.
pub(super) const OBJECT_SIZE: usize = size_of::<Object6>();
pub(super) const PINFO_OFFSET: c_uint = offset_of!(Object6, pinfo) as c_uint;

/// The shortest `sockaddr_in6`, one without a scope (`SIN6_LEN_RFC2133`).
const SHORTEST: usize = 24;

/// The value of the IPv4 fields if the address is one of IPv6 (`LOOPBACK4_IPV6`).
const NO_V4: u32 = 0x7f00_0006;

/// An address as the fields for IPv4 have it.
pub(super) fn v4_of(ip: Ipv6Addr) -> u32 {
    let v4 = if ip.is_unspecified() {
        0
    } else {
        ip.to_ipv4_mapped().map_or(NO_V4, u32::from)
    };
    v4.to_be()
}

pub(super) fn in6_addr(ip: Ipv6Addr) -> bindings::in6_addr {
    let mut addr = bindings::in6_addr::default();
    addr.in6_u.u6_addr8 = ip.octets();
    addr
}

/// An address as C has it.
pub(super) fn sockaddr_in6(addr: SocketAddrV6) -> bindings::sockaddr_in6 {
    bindings::sockaddr_in6 {
        sin6_family: bindings::AF_INET6 as u16,
        sin6_port: addr.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: in6_addr(*addr.ip()),
        sin6_scope_id: addr.scope_id(),
    }
}

/// Reads an address of `len` bytes. `EINVAL` if that is too short, `EAFNOSUPPORT` if it is of
/// another family.
///
/// # Safety
///
/// `len` bytes must be readable at `addr`.
pub(super) unsafe fn read_addr(addr: *const u8, len: usize) -> Result<SocketAddrV6> {
    if len < SHORTEST {
        return Err(EINVAL);
    }
    let mut sin6 = bindings::sockaddr_in6::default();
    if len < size_of::<bindings::sockaddr_in6>() {
        // SAFETY: the caller's promise, and at least so long; there is room, and any bytes are an
        // address.
        unsafe { ptr::copy_nonoverlapping(addr, (&raw mut sin6).cast(), SHORTEST) };
    } else {
        // SAFETY: the caller's promise, and long enough; any bytes are an address.
        sin6 = unsafe { addr.cast::<bindings::sockaddr_in6>().read_unaligned() };
    }
    if u32::from(sin6.sin6_family) != bindings::AF_INET6 {
        return Err(super::super::errno::EAFNOSUPPORT);
    }
    // SAFETY: any bytes are an address.
    let ip = Ipv6Addr::from(unsafe { sin6.sin6_addr.in6_u.u6_addr8 });
    let port = u16::from_be(sin6.sin6_port);
    Ok(SocketAddrV6::new(ip, port, 0, sin6.sin6_scope_id))
}

/// Sets up the part for IPv6 of a sock that `accept()` makes, as `inet6_create` does, and gives it
/// the settings of its listener.
///
/// # Safety
///
/// Both must be live socks of ours of AF_INET6, and `to` new.
pub(super) unsafe fn set_up(from: *mut bindings::sock, to: *mut bindings::sock) {
    // SAFETY: the caller's promise: both are in an `Object6`; the listener's settings may change at
    // any time, and are words.
    unsafe {
        let theirs = &raw const (*from.cast::<Object6>()).pinfo;
        let ours = &raw mut (*to.cast::<Object6>()).pinfo;
        (*to.cast::<bindings::inet_sock>()).pinet6 = ours;
        (*ours).hop_limit = (&raw const (*theirs).hop_limit).read_volatile();
        (*ours).tclass = (&raw const (*theirs).tclass).read_volatile();
        (*ours).mcast_hops = bindings::IPV6_DEFAULT_MCASTHOPS as u8;
        (*ours).pmtudisc = bindings::IPV6_PMTUDISC_WANT as u8;
        let only = (*from).__sk_common.skc_ipv6only();
        (*to).__sk_common.set_skc_ipv6only(only);
    }
}

impl Sk {
    /// Whether it is a socket of AF_INET6.
    pub fn is_v6(&self) -> bool {
        // SAFETY: a live sock (type invariant), whose family does not change.
        let family = unsafe { (*self.as_ptr()).__sk_common.skc_family };
        u32::from(family) == bindings::AF_INET6
    }

    /// Its part for IPv6, if it is a socket of AF_INET6.
    pub(super) fn pinfo(&self) -> Option<*const bindings::ipv6_pinfo> {
        if !self.is_v6() {
            return None;
        }
        // SAFETY: a live sock (type invariant), and one of AF_INET6 is in an `Object6`.
        Some(unsafe { &raw const (*self.as_ptr().cast::<Object6>()).pinfo })
    }

    /// Whether the way from `local` (an unspecified address: any) to `remote` leads over the
    /// interface that `SO_BINDTODEVICE` says, if it says one. May sleep.
    pub fn device_allows(&self, local: SocketAddrV6, remote: SocketAddrV6) -> bool {
        let bound = self.bound_dev_if();
        bound == 0 || self.interface_to(local, remote) == bound
    }

    /// The number of the interface over which the way from `local` (an unspecified address: any) to
    /// `remote` leads; 0 if there is no way. May sleep.
    pub fn interface_to(&self, local: SocketAddrV6, remote: SocketAddrV6) -> u32 {
        // SAFETY: a live sock (type invariant), which holds its namespace.
        let net = unsafe { bindings::sock_net(self.as_ptr()) };
        let way = match remote.ip().to_ipv4_mapped() {
            Some(to) => {
                let (to, from) = (u32::from(to).to_be(), v4_of(*local.ip()));
                // SAFETY: the namespace is held; any addresses, in network order.
                unsafe { bindings::route_ifindex(net, to, from) }
            }
            None => {
                let (to, from) = (in6_addr(*remote.ip()), in6_addr(*local.ip()));
                let scope = remote.scope_id() as c_int;
                // SAFETY: as above; it reads both addresses.
                unsafe { bindings::route6_ifindex(net, &raw const to, &raw const from, scope) }
            }
        };
        u32::try_from(way).unwrap_or(0)
    }

    /// Whether `IPV6_V6ONLY` is set; not with a socket of AF_INET.
    pub fn is_v6only(&self) -> bool {
        // SAFETY: a live sock (type invariant); reads a bitfield of one byte.
        self.is_v6() && unsafe { (*self.as_ptr()).__sk_common.skc_ipv6only() != 0 }
    }

    /// Sets `IPV6_V6ONLY`. Context: may sleep; without the sock's lock.
    pub fn set_v6only(&self, on: bool) {
        // SAFETY: a live sock (type invariant). Its flags are changed under its lock, as
        // `ipv6_setsockopt` does.
        unsafe {
            bindings::lock_sock(self.as_ptr());
            (*self.as_ptr()).__sk_common.set_skc_ipv6only(on.into());
            bindings::release_sock(self.as_ptr());
        }
    }

    /// Sets the local address of a socket of AF_INET6.
    pub(super) fn set_local_v6(&self, ip: Ipv6Addr) {
        if !self.is_v6() {
            return;
        }
        let sk = self.as_ptr();
        // SAFETY: a live sock (type invariant), and one of AF_INET6 is in an `Object6`. Others may
        // read the addresses at any time, as they may with TCP, which writes them without a lock of
        // theirs too.
        unsafe {
            (&raw mut (*sk).__sk_common.skc_v6_rcv_saddr).write_volatile(in6_addr(ip));
            (&raw mut (*sk.cast::<Object6>()).pinfo.saddr).write_volatile(in6_addr(ip));
        }
    }

    /// Sets the peer's address of a socket of AF_INET6.
    pub(super) fn set_remote_v6(&self, ip: Ipv6Addr) {
        if self.is_v6() {
            // SAFETY: as in `set_local_v6`.
            unsafe {
                (&raw mut (*self.as_ptr()).__sk_common.skc_v6_daddr).write_volatile(in6_addr(ip))
            };
        }
    }
}
