// SPDX-License-Identifier: GPL-2.0

//! A TCP socket inside one of ours: it has its port and its options, and takes the connections of
//! TCP clients, which `accept()` on ours returns as the plain TCP sockets that they are.
//!
//! C: `net/ipv4/af_inet.c`, `net/ipv4/inet_connection_sock.c`. It is made in the context of the
//! calling program, as a program's own: its security module, memory cgroup and network namespace
//! are those of the program, and packet filters see its owner.
//!
//! Its wake-ups go to the wait queue of the outer socket: threads that wait there in `poll()` or
//! `accept()`, and `SIGIO`, need nothing else. No callback of it is replaced: a connection inherits
//! those of its listener.

use super::{life, opt::OptIn, v6, Call, Object, Sk};
use crate::{bindings, kern::module::THIS_MODULE};
use core::{
    net::SocketAddrV6,
    ptr::{self, NonNull},
};
use kernel::{
    error::to_result,
    ffi::{c_int, c_uint},
    prelude::*,
    sync::{
        atomic::{Atomic, Full},
        Arc,
    },
};

/// A TCP socket inside one of ours.
///
/// # Invariants
///
/// `sock` is a socket of TCP that is ours alone. Where it points to the outer socket's wait queue
/// and file, the outer sock's [`Object`] has a count of this, and [`detach`](Self::detach)es it
/// before they go.
pub struct Tcp {
    sock: NonNull<bindings::socket>,
}

// SAFETY: sockets belong to no task; the calls on them take the sock's own lock.
unsafe impl Send for Tcp {}
// SAFETY: as above.
unsafe impl Sync for Tcp {}

/// The count that an [`Object`] has of the TCP socket inside it, as a number; 0: none.
pub(super) struct Slot(Atomic<usize>);

impl Slot {
    /// None.
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Puts `tcp` there, and takes what was there.
    fn replace(&self, tcp: Option<Arc<Tcp>>) -> Option<Arc<Tcp>> {
        let new = tcp.map_or(0, |tcp| Arc::into_raw(tcp).expose_provenance());
        let old = self.0.xchg(new, Full);
        // SAFETY: every number but 0 came from `into_raw` here, and is taken out once.
        (old != 0).then(|| unsafe { Arc::from_raw(ptr::with_exposed_provenance(old)) })
    }

    /// The outer socket ends. May sleep.
    pub(super) fn clear(&self) {
        if let Some(tcp) = self.replace(None) {
            tcp.detach();
        }
    }
}

/// The options of level SOL_SOCKET that [`Tcp::open`] carries over itself. Another one has to be
/// set on both.
pub(super) const CARRIED: [u32; 21] = [
    bindings::SO_REUSEADDR,
    bindings::SO_REUSEPORT,
    bindings::SO_KEEPALIVE,
    bindings::SO_OOBINLINE,
    bindings::SO_DONTROUTE,
    bindings::SO_LINGER,
    bindings::SO_PRIORITY,
    bindings::SO_MARK,
    bindings::SO_BINDTODEVICE,
    bindings::SO_BINDTOIFINDEX,
    bindings::SO_SNDBUF,
    bindings::SO_RCVBUF,
    bindings::SO_SNDBUFFORCE,
    bindings::SO_RCVBUFFORCE,
    bindings::SO_RCVLOWAT,
    bindings::SO_RCVTIMEO_NEW,
    bindings::SO_SNDTIMEO_NEW,
    bindings::SO_RCVTIMEO_OLD,
    bindings::SO_SNDTIMEO_OLD,
    bindings::SO_BUSY_POLL,
    bindings::SO_ZEROCOPY,
];

impl Tcp {
    /// Makes one inside the socket of `call`, with the options of levels SOL_SOCKET, SOL_IP and
    /// SOL_IPV6 that are set there. One that was made before gets no wake-ups to there any more.
    /// Sleeps. Errors: those of `socket()`.
    pub fn open(call: &Call<'_>) -> Result<Arc<Self>> {
        let outer = call.sock;
        // SAFETY: the socket is live while the call runs, and has a sock of ours.
        let (sk, file) = unsafe { ((*outer).sk.cast::<bindings::sock>(), (*outer).file) };
        // SAFETY: as above.
        let family = match unsafe { Sk::from_raw(sk) }.is_v6() {
            true => bindings::AF_INET6,
            false => bindings::AF_INET,
        };
        let mut sock = ptr::null_mut();
        // SAFETY: a live sock has a namespace; `sock` has room for the result.
        to_result(unsafe {
            bindings::__sock_create(
                bindings::sock_net(sk),
                family as c_int,
                bindings::sock_type_SOCK_STREAM as c_int,
                bindings::IPPROTO_TCP as c_int,
                &mut sock,
                0,
            )
        })?;
        // INVARIANT: new, so that nothing else has it; it points to nothing of the outer one.
        let tcp = Arc::new(
            Self {
                sock: NonNull::new(sock).ok_or(ENOMEM)?,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: a sock of ours is the beginning of an `Object`.
        let slot = unsafe { &(*sk.cast::<Object>()).tcp };
        if let Some(other) = slot.replace(Some(tcp.clone())) {
            other.detach();
        }
        // SAFETY: both are live; the inner one is new, and its lock is taken by none of them.
        // INVARIANT: the object has a count of it since above.
        unsafe {
            carry_over(sk, tcp.sk());
            bindings::sock_set_flag(tcp.sk(), bindings::sock_flags_SOCK_FASYNC);
            bindings::sock_lend_queue(tcp.sk(), outer, file);
        }
        Ok(tcp)
    }

    pub(super) fn sk(&self) -> *mut bindings::sock {
        // SAFETY: a live socket (type invariant), which has its sock until it is released.
        unsafe { self.sock.as_ref().sk.cast() }
    }

    /// Its operations, which `IPV6_ADDRFORM` and TLS may change.
    fn ops(&self) -> &'static bindings::proto_ops {
        // SAFETY: a live socket (type invariant); its operations are static, in a module that it
        // holds.
        unsafe { &*ptr::addr_of!((*self.sock.as_ptr()).ops).read_volatile() }
    }

    /// It points to nothing of the outer socket any more.
    fn detach(&self) {
        // SAFETY: a live socket (type invariant), which has a wait queue of its own.
        unsafe { bindings::sock_lend_queue(self.sk(), self.sock.as_ptr(), ptr::null_mut()) };
    }

    /// `bind()`, with its errors. Sleeps.
    pub fn bind(&self, addr: SocketAddrV6) -> Result {
        let bind = self.ops().bind.ok_or(EINVAL)?;
        if self.ops().family == bindings::AF_INET6 as c_int {
            let mut addr = v6::sockaddr_in6(addr);
            let len = size_of_val(&addr) as c_int;
            // SAFETY: a live socket (type invariant), and an address that belongs to this call.
            return to_result(unsafe { bind(self.sock.as_ptr(), (&raw mut addr).cast(), len) });
        }
        let mut addr = super::sockaddr_in(addr);
        let len = size_of_val(&addr) as c_int;
        // SAFETY: as above.
        to_result(unsafe { bind(self.sock.as_ptr(), (&raw mut addr).cast(), len) })
    }

    /// Takes `port` at all addresses, as `listen()` takes one: no program of a control group is
    /// asked. `EADDRINUSE`. Sleeps.
    pub fn autobind(&self, port: u16) -> Result {
        // SAFETY: a live socket (type invariant), with a sock of TCP.
        to_result(unsafe { bindings::tcp_autobind(self.sk(), port) })
    }

    /// `listen()`, with its errors. Sleeps.
    pub fn listen(&self, backlog: u32) -> Result {
        let listen = self.ops().listen.ok_or(EINVAL)?;
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: a live socket (type invariant).
        to_result(unsafe { listen(self.sock.as_ptr(), backlog) })
    }

    /// Listens no more; connections that wait for `accept()` are reset. It keeps its port. Sleeps.
    pub fn stop_listening(&self) {
        if let Some(shutdown) = self.ops().shutdown {
            // SAFETY: a live socket (type invariant). 0 is SHUT_RD.
            unsafe { shutdown(self.sock.as_ptr(), 0) };
        }
    }

    /// Readiness, as `EPOLL*` bits. Does not sleep.
    pub fn poll(&self) -> u32 {
        let Some(poll) = self.ops().poll else {
            return 0;
        };
        // SAFETY: a live socket (type invariant); without a table it only looks.
        unsafe { poll(ptr::null_mut(), self.sock.as_ptr(), ptr::null_mut()) }
    }

    /// Sets an option to the program's value, with the errors of that. Sleeps.
    pub fn set_option(&self, level: i32, name: i32, value: &OptIn<'_>) -> Result {
        let (value, len) = value.as_raw();
        let (sock, len) = (self.sock.as_ptr(), len as c_uint);
        if level as u32 == bindings::SOL_SOCKET {
            // SAFETY: a live socket (type invariant); the value came from the socket layer.
            return to_result(unsafe { bindings::sock_setsockopt(sock, level, name, value, len) });
        }
        let set = self.ops().setsockopt.ok_or(EINVAL)?;
        // SAFETY: as above.
        to_result(unsafe { set(sock, level, name, value, len) })
    }

    /// Sets an option above SOL_SOCKET to a number, with the errors of that. Sleeps.
    pub fn set_number(&self, level: i32, name: i32, value: i32) -> Result {
        // SAFETY: a live socket (type invariant).
        to_result(unsafe { bindings::sock_set_number(self.sock.as_ptr(), level, name, value) })
    }

    /// Others cannot share its port by SO_REUSEADDR any more. Sleeps.
    pub fn keep_port(&self) {
        // SAFETY: a live socket (type invariant). Its flags are changed under its lock.
        unsafe {
            bindings::lock_sock(self.sk());
            (*self.sk()).__sk_common.set_skc_reuse(0);
            bindings::release_sock(self.sk());
        }
    }

    /// Takes a connection, if one waits, into `newsock`, which becomes a plain TCP socket.
    /// `EAGAIN`.
    ///
    /// # Safety
    ///
    /// `newsock` must be a new socket without a sock, to which a program's `accept()` has given our
    /// operations, with a count of our module.
    pub(super) unsafe fn accept(&self, newsock: *mut bindings::socket) -> Result {
        let ops = self.ops();
        let accept = ops.accept.ok_or(EINVAL)?;
        let mut arg = bindings::proto_accept_arg {
            flags: bindings::O_NONBLOCK as c_int,
            ..Default::default()
        };
        // SAFETY: a live socket (type invariant), and the caller's promise.
        to_result(unsafe { accept(self.sock.as_ptr(), newsock, (&raw mut arg).cast()) })?;
        // SAFETY: the caller's promise: no other code uses `newsock` yet. The running code has a
        // count of our module by the listener's.
        unsafe {
            bindings::__module_get(ops.owner);
            (*newsock).ops = ops;
            bindings::module_put(THIS_MODULE);
        }
        Ok(())
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // Its file is another socket's.
        self.detach();
        // SAFETY: ours alone (type invariant), and no call on it runs.
        unsafe { bindings::sock_release(self.sock.as_ptr()) };
    }
}

/// Gives `to` the settings of `from`.
///
/// # Safety
///
/// `from` must be a live sock of ours, `to` a live, new one of TCP and the same family.
unsafe fn carry_over(from: *mut bindings::sock, to: *mut bindings::sock) {
    // SAFETY: the caller's promise; the settings of `from` may change at any time, and are words.
    unsafe {
        let (rcvbuf, sndbuf) = ((*to).sk_rcvbuf, (*to).sk_sndbuf);
        life::inherit(from, to);
        let set = u32::from((*to).sk_userlocks);
        // TCP has other defaults.
        if set & bindings::SOCK_RCVBUF_LOCK == 0 {
            (*to).sk_rcvbuf = rcvbuf;
        }
        if set & bindings::SOCK_SNDBUF_LOCK == 0 {
            (*to).sk_sndbuf = sndbuf;
        }
        if bindings::sock_flag(from, bindings::sock_flags_SOCK_URGINLINE) {
            bindings::sock_set_flag(to, bindings::sock_flags_SOCK_URGINLINE);
        }
        let common = &raw mut (*to).__sk_common;
        (*common).set_skc_reuse((*from).__sk_common.skc_reuse());
        (*common).set_skc_reuseport((*from).__sk_common.skc_reuseport());
        if let Some(theirs) = Sk::from_raw(from).pinfo() {
            (*common).set_skc_ipv6only((*from).__sk_common.skc_ipv6only());
            let ours = (*to.cast::<bindings::inet_sock>()).pinet6;
            (*ours).hop_limit = (&raw const (*theirs).hop_limit).read_volatile();
            (*ours).tclass = (&raw const (*theirs).tclass).read_volatile();
            (*ours).pmtudisc = (&raw const (*theirs).pmtudisc).read_volatile();
        }
    }
}
