// SPDX-License-Identifier: GPL-2.0

//! The BPF programs of a sock's control groups, run where TCP and UDP run them: when a program
//! binds, connects, asks for a name and closes, when a connection begins, and for each datagram.
//!
//! C: `include/linux/bpf-cgroup.h`. The kernel itself runs those of `socket()`, `setsockopt()` and
//! `getsockopt()`. A program sees protocol 253 in its context. It must not see 6: it could then set
//! options of TCP, which our socks have no room for.

use super::{sockaddr_in, socket_addr, tcp::Tcp, v6, PortPair, Sk};
use crate::{bindings, kern::errno};
use core::{
    ffi::c_void,
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV6},
};
use kernel::{error::to_result, ffi::c_int, prelude::*};

/// Whether programs that look at packets are attached anywhere.
pub fn filters_packets() -> bool {
    // SAFETY: looks at two words.
    unsafe { bindings::cgroup_filters_packets() }
}

/// Runs `hook` on an address as C has it for a sock of IPv6 or IPv4; the address that the programs
/// leave.
pub(super) fn on_name(
    is_v6: bool,
    addr: SocketAddrV6,
    hook: impl FnOnce(*mut c_void) -> c_int,
) -> Result<SocketAddrV6> {
    if is_v6 {
        let mut name = v6::sockaddr_in6(addr);
        to_result(hook((&raw mut name).cast()))?;
        // SAFETY: that many bytes are there.
        return unsafe { v6::read_addr((&raw const name).cast(), size_of_val(&name)) };
    }
    let mut name = sockaddr_in(addr);
    to_result(hook((&raw mut name).cast()))?;
    Ok(socket_addr(&name))
}

impl Sk {
    /// As [`on_name`], for this sock.
    fn with_name(
        &self,
        addr: SocketAddrV6,
        hook: impl FnOnce(*mut c_void) -> c_int,
    ) -> Result<SocketAddrV6> {
        on_name(self.is_v6(), addr, hook)
    }

    /// `bind()` to `addr`: the address that the programs leave, and whether they allow a low port
    /// to a task without the capability. Errors: `EPERM`, or what a program says.
    ///
    /// Context: may sleep; without the sock's lock.
    pub fn cgroup_bind(&self, addr: SocketAddrV6) -> Result<(SocketAddrV6, bool)> {
        let mut low_ports = false;
        // SAFETY: a live sock (type invariant), and an address of its family.
        let addr = self.with_name(addr, |name| unsafe {
            bindings::cgroup_bind(self.as_ptr(), name, &mut low_ports)
        })?;
        Ok((addr, low_ports))
    }

    /// `bind()` has given the sock its port, which others do not see yet. Errors and context as
    /// [`cgroup_bind`](Self::cgroup_bind).
    pub fn cgroup_post_bind(&self) -> Result {
        // SAFETY: a live sock (type invariant), of IPv4 or IPv6.
        to_result(unsafe { bindings::cgroup_post_bind(self.as_ptr()) })
    }

    /// `connect()` to `addr`: the address that the programs leave, and the own one if they have
    /// set that. Errors and context as [`cgroup_bind`](Self::cgroup_bind).
    pub fn cgroup_connect(&self, addr: SocketAddrV6) -> Result<(SocketAddrV6, Option<Ipv6Addr>)> {
        // By `set_local`, or by `bpf_bind()` of a program.
        // SAFETY: a live sock (type invariant), of IPv4 or IPv6.
        let own_ip = || unsafe { own_ip(self.as_ptr()) };
        let before = own_ip();
        // SAFETY: a live sock (type invariant), and an address of its family.
        let addr = self.with_name(addr, |name| unsafe {
            bindings::cgroup_connect(self.as_ptr(), name)
        })?;
        let own = own_ip();
        Ok((addr, (own != before).then_some(own)))
    }

    /// `sendmsg()` to `addr`, which the call names, from `source`, which may be unspecified: the
    /// address that the programs leave, and the source if they have changed it. Errors: `EINVAL`
    /// (they have left no port), `EOPNOTSUPP` (an address of IPv4 in place of one of IPv6),
    /// otherwise as [`cgroup_bind`](Self::cgroup_bind), whose context it has.
    pub fn cgroup_sendmsg(
        &self,
        addr: SocketAddrV6,
        source: Ipv6Addr,
    ) -> Result<(SocketAddrV6, Option<Ipv6Addr>)> {
        let run = |name: *mut c_void, from: *mut c_void| {
            // SAFETY: a live sock (type invariant), an address, and a source of its family.
            to_result(unsafe { bindings::cgroup_sendmsg(self.as_ptr(), name, from) })
        };
        let (to, from) = if addr.ip().to_ipv4_mapped().is_some() {
            let mut name = sockaddr_in(addr);
            let mut from = v6::v4_of(source);
            run((&raw mut name).cast(), (&raw mut from).cast())?;
            let changed = from != v6::v4_of(source);
            let from = Ipv4Addr::from(u32::from_be(from)).to_ipv6_mapped();
            (socket_addr(&name), changed.then_some(from))
        } else {
            let mut name = v6::sockaddr_in6(addr);
            let mut from = v6::in6_addr(source);
            run((&raw mut name).cast(), (&raw mut from).cast())?;
            // SAFETY: that many bytes are there.
            let to = unsafe { v6::read_addr((&raw const name).cast(), size_of_val(&name)) }?;
            if to.ip().to_ipv4_mapped().is_some() {
                return Err(errno::EOPNOTSUPP);
            }
            // SAFETY: any bytes are an address.
            let from = Ipv6Addr::from(unsafe { from.in6_u.u6_addr8 });
            (to, (from != source).then_some(from))
        };
        match to.port() {
            0 => Err(EINVAL),
            _ => Ok((to, from)),
        }
    }

    /// `recvmsg()` of a datagram from `addr`: the address that the programs leave. Context as
    /// [`cgroup_bind`](Self::cgroup_bind).
    pub fn cgroup_recvmsg(&self, addr: SocketAddrV6) -> SocketAddrV6 {
        // SAFETY: a live sock (type invariant), and an address of its family.
        let name = self.with_name(addr, |name| unsafe {
            bindings::cgroup_recvmsg(self.as_ptr(), name)
        });
        // These programs cannot fail.
        name.unwrap_or(addr)
    }

    /// `getsockname()`, or `getpeername()` for `peer`: the address that the programs leave. Context
    /// as [`cgroup_bind`](Self::cgroup_bind).
    pub(super) fn cgroup_name(&self, addr: SocketAddrV6, peer: bool) -> SocketAddrV6 {
        // SAFETY: a live sock (type invariant), and an address of its family.
        let name = self.with_name(addr, |name| unsafe {
            bindings::cgroup_name(self.as_ptr(), name, peer)
        });
        // These programs cannot fail.
        name.unwrap_or(addr)
    }

    /// The last close.
    pub(super) fn cgroup_release(&self) {
        // SAFETY: a live sock (type invariant), of IPv4 or IPv6.
        unsafe { bindings::cgroup_release(self.as_ptr()) };
    }

    /// Whether the programs that look at packets let a connection between these addresses begin:
    /// `outgoing`, or one that a listener is asked for. Errors: `EPERM`, `ENOMEM`, those of the
    /// route. May sleep.
    pub fn cgroup_packets(
        &self,
        local: SocketAddrV6,
        remote: SocketAddrV6,
        outgoing: bool,
    ) -> Result {
        if !filters_packets() {
            return Ok(());
        }
        let (local, remote) = (v6::sockaddr_in6(local), v6::sockaddr_in6(remote));
        // SAFETY: a live sock (type invariant); both addresses are only read.
        to_result(unsafe { bindings::cgroup_packets(self.as_ptr(), &local, &remote, outgoing) })
    }

    /// Whether the programs that look at packets let a datagram of `len` bytes pass: `outgoing`, or
    /// one that has arrived. Errors and context as [`cgroup_packets`](Self::cgroup_packets).
    pub fn cgroup_datagram(
        &self,
        local: SocketAddrV6,
        remote: SocketAddrV6,
        len: u16,
        outgoing: bool,
    ) -> Result {
        // SAFETY: a live sock (type invariant).
        if !unsafe { bindings::cgroup_filters_datagrams(self.as_ptr(), outgoing) } {
            return Ok(());
        }
        let (local, remote) = (v6::sockaddr_in6(local), v6::sockaddr_in6(remote));
        // SAFETY: a live sock (type invariant); both addresses are only read.
        to_result(unsafe {
            bindings::cgroup_datagram(self.as_ptr(), &local, &remote, len, outgoing)
        })
    }
}

impl Tcp {
    /// The address that [`bind`](Self::bind) has left; the kernel has run the programs there once
    /// more. `EADDRNOTAVAIL`: they have made another one of `addr`.
    pub fn check_bound(&self, addr: SocketAddrV6) -> Result {
        // SAFETY: it has a live sock, of IPv4 or IPv6; the port is one word.
        let (ip, port) = unsafe {
            let ports = (&raw const (*self.sk()).__sk_common.__bindgen_anon_3).cast::<PortPair>();
            (own_ip(self.sk()), (*ports).skc_num)
        };
        if (ip, port) != (*addr.ip(), addr.port()) {
            return Err(errno::EADDRNOTAVAIL);
        }
        Ok(())
    }
}

/// The address that a sock is bound to.
///
/// # Safety
///
/// `sk` must be a live sock of IPv4 or IPv6.
unsafe fn own_ip(sk: *mut bindings::sock) -> Ipv6Addr {
    // SAFETY: the caller's promise; such socks begin with an inet_sock.
    unsafe {
        if u32::from((*sk).__sk_common.skc_family) == bindings::AF_INET6 {
            // Any bytes are an address.
            return Ipv6Addr::from((*sk).__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8);
        }
        let ip = (*sk.cast::<bindings::inet_sock>()).inet_saddr;
        Ipv4Addr::from(u32::from_be(ip)).to_ipv6_mapped()
    }
}
