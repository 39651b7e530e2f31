// SPDX-License-Identifier: GPL-2.0

//! Functions of datagram sockets: buffer sizes, the count of drops, the source address of a route,
//! and the control messages of a received datagram.
//!
//! C: `include/net/sock.h`, `include/net/route.h`, `include/uapi/linux/in.h`.

use super::{
    msg::RecvMsg,
    opt::OptIn,
    sockaddr_in,
    v6::{in6_addr, sockaddr_in6, v4_of},
    Sk,
};
use crate::bindings;
use core::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV6},
    ptr,
};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// The values for the control messages of a received datagram.
pub struct Arrival {
    /// The sender.
    pub from: SocketAddrV6,
    /// The address and port that it was sent to.
    pub to: SocketAddrV6,
    /// When it arrived, in nanoseconds of the real-time clock.
    pub time: u64,
    /// Datagrams that the socket had dropped before.
    pub drops: u32,
}

/// The options of level SOL_IP that ask for control messages, or for the error queue, and their
/// bits in `inet_flags`.
const IP_CMSGS: [(u32, u32); 5] = [
    (bindings::IP_RECVERR, bindings::INET_FLAGS_RECVERR),
    (bindings::IP_PKTINFO, bindings::INET_FLAGS_PKTINFO),
    (bindings::IP_RECVTTL, bindings::INET_FLAGS_TTL),
    (bindings::IP_RECVTOS, bindings::INET_FLAGS_TOS),
    (
        bindings::IP_RECVORIGDSTADDR,
        bindings::INET_FLAGS_ORIGDSTADDR,
    ),
];

/// The hop limit that a datagram seems to have arrived with; it never was an IP packet.
const HOPS: c_int = 64;

/// Two numbers of a control message, as C has them: a time, or the like.
fn pair(a: u64, b: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_ne_bytes());
    bytes[8..].copy_from_slice(&b.to_ne_bytes());
    bytes
}

impl RecvMsg<'_> {
    /// Adds the control messages that the program has asked for. May sleep. EFAULT.
    pub fn put_arrival(&mut self, sk: &Sk, a: &Arrival) -> Result {
        use bindings::{
            sock_flags_SOCK_RCVTSTAMP, sock_flags_SOCK_RCVTSTAMPNS, sock_flags_SOCK_RXQ_OVFL,
            sock_flags_SOCK_TSTAMP_NEW, SOL_IP, SOL_IPV6, SOL_SOCKET,
        };

        if sk.has_flag(sock_flags_SOCK_RXQ_OVFL) && a.drops != 0 {
            self.put_cmsg(SOL_SOCKET, bindings::SO_RXQ_OVFL, &a.drops.to_ne_bytes())?;
        }
        if sk.has_flag(sock_flags_SOCK_RCVTSTAMP) {
            let new = sk.has_flag(sock_flags_SOCK_TSTAMP_NEW);
            let nanos = sk.has_flag(sock_flags_SOCK_RCVTSTAMPNS);
            let kind = match (nanos, new) {
                (false, false) => bindings::SO_TIMESTAMP_OLD,
                (false, true) => bindings::SO_TIMESTAMP_NEW,
                (true, false) => bindings::SO_TIMESTAMPNS_OLD,
                (true, true) => bindings::SO_TIMESTAMPNS_NEW,
            };
            let rest = a.time % 1_000_000_000;
            let rest = if nanos { rest } else { rest / 1000 };
            self.put_cmsg(SOL_SOCKET, kind, &pair(a.time / 1_000_000_000, rest))?;
        }
        let v4 = a.to.ip().to_ipv4_mapped();
        let dev = || sk.interface_to(a.to, a.from);
        if let Some(to) = v4 {
            if sk.inet_flag(bindings::INET_FLAGS_PKTINFO) {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&dev().to_ne_bytes());
                info[4..8].copy_from_slice(&to.octets());
                info[8..].copy_from_slice(&to.octets());
                self.put_cmsg(SOL_IP, bindings::IP_PKTINFO, &info)?;
            }
            if sk.inet_flag(bindings::INET_FLAGS_TTL) {
                self.put_cmsg(SOL_IP, bindings::IP_TTL, &HOPS.to_ne_bytes())?;
            }
            if sk.inet_flag(bindings::INET_FLAGS_TOS) {
                self.put_cmsg(SOL_IP, bindings::IP_TOS, &[0])?;
            }
            if sk.inet_flag(bindings::INET_FLAGS_ORIGDSTADDR) {
                let to = sockaddr_in(a.to);
                let mut addr = [0; 16];
                addr[..2].copy_from_slice(&to.sin_family.to_ne_bytes());
                addr[2..4].copy_from_slice(&to.sin_port.to_ne_bytes());
                addr[4..8].copy_from_slice(&to.sin_addr.s_addr.to_ne_bytes());
                self.put_cmsg(SOL_IP, bindings::IP_ORIGDSTADDR, &addr)?;
            }
        }
        if sk.ipv6_dgram_option(bindings::IPV6_RECVPKTINFO as i32) == Some(1) {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&a.to.ip().octets());
            info[16..].copy_from_slice(&dev().to_ne_bytes());
            self.put_cmsg(SOL_IPV6, bindings::IPV6_PKTINFO, &info)?;
        }
        if v4.is_none() && sk.ipv6_dgram_option(bindings::IPV6_RECVHOPLIMIT as i32) == Some(1) {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_HOPLIMIT, &HOPS.to_ne_bytes())?;
        }
        if v4.is_none() && sk.ipv6_dgram_option(bindings::IPV6_RECVTCLASS as i32) == Some(1) {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_TCLASS, &0_i32.to_ne_bytes())?;
        }
        Ok(())
    }
}

impl Sk {
    fn has_flag(&self, flag: bindings::sock_flags) -> bool {
        // SAFETY: a live sock (type invariant); looks at a bit.
        unsafe { bindings::sock_flag(self.as_ptr(), flag) }
    }

    fn inet_flag(&self, bit: u32) -> bool {
        let inet = self.as_ptr().cast::<bindings::inet_sock>();
        // SAFETY: our socks begin with an inet_sock (type invariant); a word that may change at any
        // time.
        let flags = unsafe { ptr::addr_of!((*inet).inet_flags).read_volatile() };
        flags & (1 << bit) != 0
    }

    /// Sets an option of level SOL_IP, as [`set_ip_option`](Self::set_ip_option), or one that asks
    /// for control messages. May sleep.
    pub fn set_ip_dgram_option(&self, name: i32, value: &OptIn<'_>) -> Result {
        if !IP_CMSGS.iter().any(|(option, _)| *option == name as u32) {
            return self.set_ip_option(name, value);
        }
        let (value, len) = value.as_raw();
        let level = bindings::IPPROTO_IP as c_int;
        // SAFETY: a live sock (type invariant) that begins with an inet_sock; each of these options
        // changes a bit of it; the value came from the socket layer.
        to_result(unsafe { bindings::ip_setsockopt(self.as_ptr(), level, name, value, len as u32) })
    }

    /// An option of level SOL_IP; `None` for other options than those of
    /// [`set_ip_dgram_option`](Self::set_ip_dgram_option).
    pub fn ip_dgram_option(&self, name: i32) -> Option<i32> {
        let bit = IP_CMSGS.iter().find(|(option, _)| *option == name as u32);
        match bit {
            Some((_, bit)) => Some(self.inet_flag(*bit).into()),
            None => self.ip_option(name),
        }
    }

    /// Sets an option of level SOL_IPV6, as [`set_ipv6_option`](Self::set_ipv6_option), or one that
    /// asks for control messages. May sleep; without the sock's lock.
    pub fn set_ipv6_dgram_option(&self, name: i32, value: &OptIn<'_>) -> Result {
        match name as u32 {
            bindings::IPV6_RECVPKTINFO
            | bindings::IPV6_RECVHOPLIMIT
            | bindings::IPV6_RECVTCLASS
            | bindings::IPV6_RECVERR
                if self.is_v6() => {}
            _ => return self.set_ipv6_option(name, value),
        }
        let (value, len) = value.as_raw();
        let level = bindings::IPPROTO_IPV6 as c_int;
        // SAFETY: a live sock (type invariant) of AF_INET6, which has an ipv6_pinfo; each of these
        // options changes a bit of it; the value came from the socket layer.
        to_result(unsafe {
            bindings::ipv6_setsockopt(self.as_ptr(), level, name, value, len as u32)
        })
    }

    /// An option of level SOL_IPV6; `None` for other options than those of
    /// [`set_ipv6_dgram_option`](Self::set_ipv6_dgram_option).
    pub fn ipv6_dgram_option(&self, name: i32) -> Option<i32> {
        let pinfo = self.pinfo()?;
        // SAFETY: the part for IPv6 of a live sock (type invariant); bits of a word that may change
        // at any time.
        let bits = unsafe { (&raw const (*pinfo).rxopt.bits).read_volatile() };
        let bit = match name as u32 {
            bindings::IPV6_RECVPKTINFO => bits.rxinfo(),
            bindings::IPV6_RECVHOPLIMIT => bits.rxhlim(),
            bindings::IPV6_RECVTCLASS => bits.rxtclass(),
            bindings::IPV6_RECVERR => {
                return Some(self.inet_flag(bindings::INET_FLAGS_RECVERR6).into())
            }
            _ => return self.ipv6_option(name),
        };
        Some(bit.into())
    }

    /// `SO_RCVBUF`, as the kernel keeps it: twice what the program has set.
    pub fn rcvbuf(&self) -> u32 {
        // SAFETY: a live sock (type invariant); one word, which may change at any time.
        let bytes = unsafe { ptr::addr_of!((*self.as_ptr()).sk_rcvbuf).read_volatile() };
        u32::try_from(bytes).unwrap_or(0)
    }

    /// `SO_SNDBUF`, as the kernel keeps it.
    pub fn sndbuf(&self) -> u32 {
        // SAFETY: as in `rcvbuf`.
        let bytes = unsafe { ptr::addr_of!((*self.as_ptr()).sk_sndbuf).read_volatile() };
        u32::try_from(bytes).unwrap_or(0)
    }

    /// Whether errors of datagrams to an address of IPv4, or of IPv6, go to the error queue:
    /// `IP_RECVERR`, `IPV6_RECVERR`.
    pub fn queues_errors(&self, v4: bool) -> bool {
        self.inet_flag(match v4 {
            true => bindings::INET_FLAGS_RECVERR,
            false => bindings::INET_FLAGS_RECVERR6,
        })
    }

    /// Puts on the error queue that a datagram to `remote` was refused; with `so_error` it is the
    /// socket's error, too. May sleep. ENOMEM: also if the queues are full.
    pub fn queue_refused(&self, remote: SocketAddrV6, so_error: bool) -> Result {
        let remote = sockaddr_in6(remote);
        // SAFETY: a live sock (type invariant), which begins with an inet_sock; reads the address.
        to_result(unsafe {
            bindings::sock_queue_refused(self.as_ptr(), &raw const remote, so_error)
        })
    }

    /// Changes what `SO_MEMINFO` shows of the receive queue from `was` to `bytes`, and sets the
    /// number of datagrams that were dropped. The kernel counts the error queue there as well. The
    /// sock has no bytes any more when it is freed. Any context.
    pub fn set_queue(&self, was: i32, bytes: i32, drops: u32) {
        let sk = self.as_ptr();
        // SAFETY: a live sock (type invariant); an aligned word that others read at any time, and
        // that the kernel changes atomically, for skbs of the error queue.
        let queued =
            unsafe { Atomic::from_ptr(ptr::addr_of_mut!((*sk).sk_backlog.rmem_alloc.counter)) };
        queued.add(bytes.wrapping_sub(was), Relaxed);
        // SAFETY: a live sock (type invariant); an aligned word that others read at any time.
        let dropped = unsafe { Atomic::from_ptr(ptr::addr_of_mut!((*sk).sk_drops.counter)) };
        dropped.store(drops as c_int, Relaxed);
    }

    /// The local address that the route to `remote` has, with the interface that the socket is
    /// bound to, if it is. `None`: there is no route. May sleep.
    pub fn route_source(&self, remote: SocketAddrV6) -> Option<Ipv6Addr> {
        // SAFETY: a live sock (type invariant), which holds its namespace.
        let net = unsafe { bindings::sock_net(self.as_ptr()) };
        let oif = self.bound_dev_if() as c_int;
        match remote.ip().to_ipv4_mapped() {
            Some(_) => {
                let mut source = 0;
                let to = v4_of(*remote.ip());
                // SAFETY: the namespace is held; any address, in network order; fills `source`.
                let found = unsafe { bindings::route_source(net, to, oif, &mut source) };
                found.then(|| Ipv4Addr::from(u32::from_be(source)).to_ipv6_mapped())
            }
            None => {
                let to = in6_addr(*remote.ip());
                let oif = match remote.scope_id() {
                    0 => oif,
                    scope => scope as c_int,
                };
                let mut source = bindings::in6_addr::default();
                // SAFETY: as above.
                let found =
                    unsafe { bindings::route6_source(net, &raw const to, oif, &mut source) };
                // SAFETY: any bytes are an address.
                found.then(|| Ipv6Addr::from(unsafe { source.in6_u.u6_addr8 }))
            }
        }
    }
}
