// SPDX-License-Identifier: GPL-2.0

//! Functions of datagram sockets: options, buffer sizes, the count of drops, the source address of
//! a route, and the control messages of a received datagram.
//!
//! C: `include/net/sock.h`, `include/net/route.h`, `include/uapi/linux/in.h`.

use super::{
    msg::RecvMsg,
    opt::{OptIn, OptOut},
    sockaddr_in,
    v6::{in6_addr, sockaddr_in6, v4_of},
    Sk,
};
use crate::{bindings, kern::errno::ENOPROTOOPT};
use core::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV6},
    ptr,
};
use kernel::{
    error::to_result,
    ffi::{c_int, c_uint},
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

/// The options of level SOL_IP that a datagram socket has: the kernel's own code keeps them in the
/// `inet_sock`, and answers as for UDP.
const IP_OPTIONS: [u32; 19] = [
    bindings::IP_TOS,
    bindings::IP_TTL,
    bindings::IP_MTU_DISCOVER,
    bindings::IP_BIND_ADDRESS_NO_PORT,
    bindings::IP_LOCAL_PORT_RANGE,
    bindings::IP_RECVERR,
    bindings::IP_PKTINFO,
    bindings::IP_RECVTTL,
    bindings::IP_RECVTOS,
    bindings::IP_RECVORIGDSTADDR,
    // They ask for what only some IP packets have.
    bindings::IP_RECVOPTS,
    bindings::IP_RETOPTS,
    bindings::IP_RECVFRAGSIZE,
    bindings::IP_RECVERR_RFC4884,
    // UDP keeps them without effect, or refuses to set them.
    bindings::IP_MINTTL,
    bindings::IP_HDRINCL,
    bindings::IP_ROUTER_ALERT,
    bindings::IP_NODEFRAG,
    bindings::IP_PROTOCOL,
];

/// The same of level SOL_IPV6, for sockets of AF_INET6; all of them are in the `inet_sock` or the
/// `ipv6_pinfo`.
const IPV6_OPTIONS: [u32; 24] = [
    bindings::IPV6_V6ONLY,
    bindings::IPV6_UNICAST_HOPS,
    bindings::IPV6_MTU_DISCOVER,
    bindings::IPV6_TCLASS,
    bindings::IPV6_DONTFRAG,
    bindings::IPV6_RECVERR,
    bindings::IPV6_RECVPKTINFO,
    bindings::IPV6_RECVHOPLIMIT,
    bindings::IPV6_RECVTCLASS,
    bindings::IPV6_RECVORIGDSTADDR,
    bindings::IPV6_2292PKTINFO,
    bindings::IPV6_2292HOPLIMIT,
    // They ask for what only some IP packets have.
    bindings::IPV6_RECVHOPOPTS,
    bindings::IPV6_RECVRTHDR,
    bindings::IPV6_RECVDSTOPTS,
    bindings::IPV6_2292HOPOPTS,
    bindings::IPV6_2292RTHDR,
    bindings::IPV6_2292DSTOPTS,
    bindings::IPV6_RECVPATHMTU,
    bindings::IPV6_RECVFRAGSIZE,
    bindings::IPV6_RECVERR_RFC4884,
    // UDP keeps them without effect, or refuses to set them.
    bindings::IPV6_MINHOPCOUNT,
    bindings::IPV6_ROUTER_ALERT,
    bindings::IPV6_ROUTER_ALERT_ISOLATE,
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
        // It never was a packet, which could have them.
        if sk.has_flag(bindings::sock_flags_SOCK_RCVMARK) {
            self.put_cmsg(SOL_SOCKET, bindings::SO_MARK, &0_u32.to_ne_bytes())?;
        }
        if sk.has_flag(bindings::sock_flags_SOCK_RCVPRIORITY) {
            self.put_cmsg(SOL_SOCKET, bindings::SO_PRIORITY, &0_u32.to_ne_bytes())?;
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
        let Some(pinfo) = sk.pinfo() else {
            return Ok(());
        };
        // SAFETY: the part for IPv6 of a live sock (type invariant); bits of a word that may change
        // at any time.
        let asked = unsafe { (&raw const (*pinfo).rxopt.bits).read_volatile() };
        let info = || {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&a.to.ip().octets());
            info[16..].copy_from_slice(&dev().to_ne_bytes());
            info
        };
        if asked.rxinfo() != 0 {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_PKTINFO, &info())?;
        }
        if v4.is_some() {
            return Ok(());
        }
        if asked.rxhlim() != 0 {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_HOPLIMIT, &HOPS.to_ne_bytes())?;
        }
        if asked.rxtclass() != 0 {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_TCLASS, &0_i32.to_ne_bytes())?;
        }
        if asked.rxoinfo() != 0 {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_2292PKTINFO, &info())?;
        }
        if asked.rxohlim() != 0 {
            self.put_cmsg(SOL_IPV6, bindings::IPV6_2292HOPLIMIT, &HOPS.to_ne_bytes())?;
        }
        if asked.rxorigdstaddr() != 0 {
            let to = sockaddr_in6(a.to);
            let mut addr = [0; 28];
            addr[..2].copy_from_slice(&to.sin6_family.to_ne_bytes());
            addr[2..4].copy_from_slice(&to.sin6_port.to_ne_bytes());
            addr[8..24].copy_from_slice(&a.to.ip().octets());
            addr[24..].copy_from_slice(&to.sin6_scope_id.to_ne_bytes());
            self.put_cmsg(SOL_IPV6, bindings::IPV6_ORIGDSTADDR, &addr)?;
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

    /// Whether `SO_SELECT_ERR_QUEUE` is set.
    pub fn selects_errors(&self) -> bool {
        self.has_flag(bindings::sock_flags_SOCK_SELECT_ERR_QUEUE)
    }

    /// Whether a datagram socket has the option.
    fn has_dgram_option(&self, level: i32, name: i32) -> bool {
        match level as u32 {
            bindings::SOL_IP => IP_OPTIONS.contains(&(name as u32)),
            bindings::SOL_IPV6 => self.is_v6() && IPV6_OPTIONS.contains(&(name as u32)),
            _ => false,
        }
    }

    /// Sets an option of level SOL_IP or SOL_IPV6, with UDP's errors; ENOPROTOOPT for one that a
    /// datagram socket does not have. May sleep; without the sock's lock.
    pub fn set_ip_dgram_option(&self, level: i32, name: i32, value: &OptIn<'_>) -> Result {
        if !self.has_dgram_option(level, name) {
            return Err(ENOPROTOOPT);
        }
        let (value, len) = value.as_raw();
        let set = match level as u32 {
            bindings::SOL_IPV6 => bindings::ipv6_setsockopt,
            _ => bindings::ip_setsockopt,
        };
        // SAFETY: a live sock (type invariant) that begins with an inet_sock, and has an
        // ipv6_pinfo if it is of AF_INET6, as one has to be for SOL_IPV6; each of these options
        // changes these two alone; the value came from the socket layer.
        to_result(unsafe { set(self.as_ptr(), level, name, value, len as c_uint) })
    }

    /// Gives the program an option of level SOL_IP or SOL_IPV6; errors as those of
    /// [`set_ip_dgram_option`](Self::set_ip_dgram_option). May sleep.
    pub fn ip_dgram_option(&self, level: i32, name: i32, out: &OptOut) -> Result {
        if !self.has_dgram_option(level, name) {
            return Err(ENOPROTOOPT);
        }
        let (value, len) = out.as_raw();
        let get = match level as u32 {
            bindings::SOL_IPV6 => bindings::ipv6_getsockopt,
            _ => bindings::ip_getsockopt,
        };
        // SAFETY: as in `set_ip_dgram_option`: each of them reads these two alone; takes any
        // addresses of the program.
        to_result(unsafe { get(self.as_ptr(), level, name, value, len) })
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

    /// Puts on the error queue that a datagram to `remote` was refused, or was lost for another
    /// reason; with `so_error` it is the socket's error, too. May sleep. ENOMEM: also if the queues
    /// are full.
    pub fn queue_error(&self, remote: SocketAddrV6, why: Error, so_error: bool) -> Result {
        let (remote, why) = (sockaddr_in6(remote), -why.to_errno());
        // SAFETY: a live sock (type invariant), which begins with an inet_sock; reads the address.
        to_result(unsafe {
            bindings::sock_queue_error(self.as_ptr(), &raw const remote, why, so_error)
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

    /// Shows a value of `SO_PEEK_OFF`, which the kernel reads for `getsockopt()`. Any context.
    pub fn show_peek_off(&self, at: i32) {
        // SAFETY: a live sock (type invariant); a word that others read at any time.
        unsafe { ptr::addr_of_mut!((*self.as_ptr()).sk_peek_off).write_volatile(at) };
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
