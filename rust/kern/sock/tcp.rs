// SPDX-License-Identifier: GPL-2.0

//! A TCP socket inside one of ours: it has its port and its options, and takes the connections of
//! TCP clients, which `accept()` on ours returns as the plain TCP sockets that they are. It may
//! also *carry* ours: all calls go to it then, as `carried.rs` has it.
//!
//! C: `net/ipv4/af_inet.c`, `net/ipv4/inet_connection_sock.c`. It is made in the context of the
//! calling program, as a program's own: its security module, memory cgroup and network namespace
//! are those of the program, and packet filters see its owner.
//!
//! Its wake-ups go to the wait queue of the outer socket: threads that wait there in `poll()` or
//! `accept()`, and `SIGIO`, need nothing else. No callback of it is replaced: a connection inherits
//! those of its listener. The kernel looks for `SO_ERROR` in the outer sock; so a waiter on that
//! queue, which sleeps on nothing, moves errors there before it wakes the others.
//!
//! `sock/udp.rs` has a UDP socket inside a datagram socket, which is one of these too.

use super::{
    life,
    opt::{OptIn, OptOut},
    v6, Call, Object, Sk,
};
use crate::{
    bindings,
    kern::{errno, module::THIS_MODULE},
};
use core::{
    ffi::c_void,
    net::SocketAddrV6,
    ptr::{self, NonNull},
};
use kernel::{
    error::to_result,
    ffi::{c_int, c_uint},
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed},
        Arc,
    },
    types::Opaque,
};

/// A TCP socket inside one of ours, or a UDP socket.
///
/// # Invariants
///
/// `sock` is a socket of TCP or UDP that is ours alone. Where it points to the outer socket's wait
/// queue and file, the outer sock's [`Object`] has a count of this, and [`detach`](Self::detach)es
/// it before they go. While `watches` is set, `waiter` is on that queue, and `outer` is live.
pub struct Tcp {
    pub(super) sock: NonNull<bindings::socket>,
    outer: *mut bindings::socket,
    waiter: Opaque<bindings::wait_queue_entry>,
    watches: Atomic<bool>,
    /// It carries the outer socket, and was not seen connected yet.
    connecting: Atomic<bool>,
    /// A number that the protocol gives it.
    tag: Atomic<u64>,
}

// SAFETY: sockets belong to no task; the calls on them take the sock's own lock.
unsafe impl Send for Tcp {}
// SAFETY: as above.
unsafe impl Sync for Tcp {}

/// The count that an [`Object`] has of the TCP socket inside it, as a number; 0: none. The lowest
/// bit says that it carries the outer socket; then it stays until [`clear`](Self::clear).
pub(super) struct Slot(Atomic<usize>);

/// See [`Slot`].
const CARRIES: usize = 1;

impl Slot {
    /// None.
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Puts `tcp` there in place of `old`, if that is there.
    fn replace(&self, old: usize, tcp: Option<Arc<Tcp>>) -> core::result::Result<(), usize> {
        let new = tcp.map_or(0, |tcp| Arc::into_raw(tcp).expose_provenance());
        let found = self.0.cmpxchg(old, new, Full);
        let gone = match found {
            Ok(old) => old & !CARRIES,
            Err(_) => new,
        };
        if gone != 0 {
            // SAFETY: every number but 0 came from `into_raw` here, and is taken out once; the new
            // one is not there.
            let gone = unsafe { Arc::from_raw(ptr::with_exposed_provenance::<Tcp>(gone)) };
            if found.is_ok() {
                gone.detach();
            }
        }
        found.map(drop)
    }

    /// Puts `tcp` there, unless what is there carries the outer socket. Sleeps.
    fn put(&self, tcp: &Option<Arc<Tcp>>) -> Result {
        let mut old = self.0.load(Relaxed);
        loop {
            if old & CARRIES != 0 {
                return Err(EBUSY);
            }
            match self.replace(old, tcp.clone()) {
                Ok(()) => return Ok(()),
                Err(found) => old = found,
            }
        }
    }

    /// The outer socket ends. Sleeps.
    pub(super) fn clear(&self) {
        let mut old = self.0.load(Relaxed);
        while let Err(found) = self.replace(old, None) {
            old = found;
        }
    }

    /// The TCP socket that carries the outer socket.
    ///
    /// # Safety
    ///
    /// The outer socket must not be released while the result is used.
    pub(super) unsafe fn carrier(&self) -> Option<&Tcp> {
        let number = self.0.load(Acquire);
        if number & CARRIES == 0 {
            return None;
        }
        // SAFETY: came from `into_raw`; a count that carries is only taken out by `clear`, at the
        // release of the outer socket.
        unsafe { ptr::with_exposed_provenance::<Tcp>(number & !CARRIES).as_ref() }
    }
}

impl Sk {
    /// The slot of the object that the sock is the beginning of.
    fn slot(&self) -> &Slot {
        // SAFETY: a sock of ours (type invariant).
        unsafe { &(*self.as_ptr().cast::<Object>()).tcp }
    }

    /// The TCP socket inside the sock's carries it from now on: all calls go there. `EINVAL` if
    /// there is none.
    pub fn carry(&self) -> Result {
        let mut old = self.slot().0.load(Relaxed);
        while old != 0 {
            match self.slot().0.cmpxchg(old, old | CARRIES, Full) {
                Ok(_) => return Ok(()),
                Err(found) => old = found,
            }
        }
        Err(EINVAL)
    }

    /// The sock's socket has no TCP socket inside it any more. Nothing happens if that carries it.
    /// The socket is not released during the call. Sleeps.
    pub fn drop_tcp(&self) {
        let _ = self.slot().put(&None);
    }
}

/// Where a TCP socket is in its life.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Not connected.
    Closed,
    /// Listening.
    Listening,
    /// Connecting.
    Connecting,
    /// Connected.
    Established,
    /// One direction or both have ended.
    Closing,
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
        let (kind, protocol) = (bindings::sock_type_SOCK_STREAM, bindings::IPPROTO_TCP);
        Self::open_as(call, kind as c_int, protocol as c_int)
    }

    /// As [`open`](Self::open), for any protocol of IP.
    pub(super) fn open_as(call: &Call<'_>, kind: c_int, protocol: c_int) -> Result<Arc<Self>> {
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
                kind,
                protocol,
                &mut sock,
                0,
            )
        })
        // The kernel's errno when it has no memory for the socket's inode.
        .map_err(|e| if e == ENFILE { ENOMEM } else { e })?;
        // INVARIANT: new, so that nothing else has it; it points to nothing of the outer one.
        let tcp = Arc::new(
            Self {
                sock: NonNull::new(sock).ok_or(ENOMEM)?,
                outer,
                waiter: Opaque::uninit(),
                watches: Atomic::new(false),
                connecting: Atomic::new(false),
                tag: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: the sock is live while the call runs.
        unsafe { Sk::from_raw(sk) }.slot().put(&Some(tcp.clone()))?;
        // SAFETY: both are live; the inner one is new, and its lock is taken by none of them.
        // INVARIANT: the object has a count of it since above.
        unsafe {
            carry_over(sk, tcp.sk());
            bindings::sock_set_flag(tcp.sk(), bindings::sock_flags_SOCK_FASYNC);
            bindings::sock_lend_queue(tcp.sk(), outer, file);
        }
        Ok(tcp)
    }

    /// Gives it a number, for [`tag`](Self::tag).
    pub fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Relaxed);
    }

    /// The number that it was given; 0: none.
    pub fn tag(&self) -> u64 {
        self.tag.load(Relaxed)
    }

    pub(super) fn sk(&self) -> *mut bindings::sock {
        // SAFETY: a live socket (type invariant), which has its sock until it is released.
        unsafe { self.sock.as_ref().sk.cast() }
    }

    /// Its operations, which `IPV6_ADDRFORM` and TLS may change.
    pub(super) fn ops(&self) -> &'static bindings::proto_ops {
        // SAFETY: a live socket (type invariant); its operations are static, in a module that it
        // holds.
        unsafe { &*ptr::addr_of!((*self.sock.as_ptr()).ops).read_volatile() }
    }

    /// It points to nothing of the outer socket any more.
    fn detach(&self) {
        if self.watches.xchg(false, Full) {
            // SAFETY: the outer socket is live, and the waiter on its queue (type invariant).
            unsafe {
                bindings::remove_wait_queue(&raw mut (*self.outer).wq.wait, self.waiter.get())
            };
        }
        // SAFETY: a live socket (type invariant), which has its own wait queue.
        unsafe { bindings::sock_lend_queue(self.sk(), self.sock.as_ptr(), ptr::null_mut()) };
    }

    /// Calls `f` with an address as C has it, and its length.
    pub(super) fn with_addr<R>(
        &self,
        addr: SocketAddrV6,
        f: impl FnOnce(*mut bindings::sockaddr_unsized, c_int) -> R,
    ) -> R {
        if self.ops().family == bindings::AF_INET6 as c_int {
            let mut addr = v6::sockaddr_in6(addr);
            return f((&raw mut addr).cast(), size_of_val(&addr) as c_int);
        }
        let mut addr = super::sockaddr_in(addr);
        f((&raw mut addr).cast(), size_of_val(&addr) as c_int)
    }

    /// `bind()`, with its errors. Sleeps.
    pub fn bind(&self, addr: SocketAddrV6) -> Result {
        let bind = self.ops().bind.ok_or(EINVAL)?;
        self.with_addr(addr, |addr, len| {
            // SAFETY: a live socket (type invariant), and an address that belongs to this call.
            to_result(unsafe { bind(self.sock.as_ptr(), addr, len) })
        })
    }

    /// Its errors become those of the outer sock from now on, where `SO_ERROR` finds them. To be
    /// called once, before it carries the outer socket, by a caller that keeps that from being
    /// released.
    pub fn move_errors(&self) {
        if self.watches.xchg(true, Full) {
            return;
        }
        self.connecting.store(true, Relaxed);
        let waiter = self.waiter.get();
        // SAFETY: the waiter is ours and on no queue; the outer socket is live. INVARIANT: it is on
        // the queue after this; `detach` takes it back.
        unsafe {
            waiter.write(bindings::wait_queue_entry {
                private: ptr::from_ref(self).cast_mut().cast(),
                func: Some(woken),
                ..Default::default()
            });
            bindings::add_wait_queue(&raw mut (*self.outer).wq.wait, waiter);
        }
    }

    /// The outer sock shows the sizes of its buffers, where the program has not set them. `watches`
    /// is set.
    pub fn show_buffers(&self) {
        let (ours, outer) = (self.sk(), self.outer_sk());
        // SAFETY: both socks are live (type invariant, `watches`); words that may change at any
        // time.
        unsafe {
            let set = u32::from((&raw const (*ours).sk_userlocks).read_volatile());
            if set & bindings::SOCK_RCVBUF_LOCK == 0 {
                let size = (&raw const (*ours).sk_rcvbuf).read_volatile();
                (&raw mut (*outer).sk_rcvbuf).write_volatile(size);
            }
            if set & bindings::SOCK_SNDBUF_LOCK == 0 {
                let size = (&raw const (*ours).sk_sndbuf).read_volatile();
                (&raw mut (*outer).sk_sndbuf).write_volatile(size);
            }
        }
    }

    /// The outer sock, which is live while the outer socket is not released.
    pub(super) fn outer_sk(&self) -> *mut bindings::sock {
        // SAFETY: the outer socket is live (type invariant, `watches`); it has its sock until its
        // release, which detaches this first.
        unsafe { (*self.outer).sk.cast() }
    }

    /// Moves an error that waits to the outer sock. When this returns, the outer sock has it, also
    /// where another thread is moving it. Any context. [`move_errors`](Self::move_errors) has been
    /// called.
    pub fn move_error(&self) {
        // SAFETY: both socks are live (type invariant, `watches`).
        unsafe { bindings::sock_move_error(self.sk(), self.outer_sk()) };
    }

    /// Starts to connect for a program that waits for the outer socket. An error is left here for
    /// [`move_error`](Self::move_error), and the state is that of an attempt which that error has
    /// ended. Sleeps.
    pub fn connect_behind(&self, addr: SocketAddrV6) {
        let started = match self.ops().connect {
            Some(connect) => self.with_addr(addr, |addr, len| {
                let flags = bindings::O_NONBLOCK as c_int;
                // SAFETY: a live socket (type invariant), and an address of this call.
                to_result(unsafe { connect(self.sock.as_ptr(), addr, len, flags) })
            }),
            None => Err(EINVAL),
        };
        // SAFETY: a live socket (type invariant); its state changes under its lock.
        unsafe {
            bindings::lock_sock(self.sk());
            (*self.sock.as_ptr()).state = bindings::socket_state_SS_CONNECTING;
            bindings::release_sock(self.sk());
        }
        match started {
            // SAFETY: as above.
            Err(e) if e != errno::EINPROGRESS => unsafe { (*self.sk()).sk_err = -e.to_errno() },
            _ => {}
        }
    }

    /// Whether it is connected, for the first caller that finds it so.
    pub(super) fn take_connected(&self) -> bool {
        if !self.connecting.load(Relaxed) {
            return false;
        }
        self.state() == bindings::TCP_ESTABLISHED && self.connecting.xchg(false, Full)
    }

    /// Where it is in its life.
    pub fn stage(&self) -> Stage {
        match self.state() {
            bindings::TCP_ESTABLISHED => Stage::Established,
            bindings::TCP_SYN_SENT | bindings::TCP_SYN_RECV => Stage::Connecting,
            bindings::TCP_LISTEN => Stage::Listening,
            bindings::TCP_CLOSE => Stage::Closed,
            _ => Stage::Closing,
        }
    }

    /// Its state, of `TCP_*`.
    fn state(&self) -> u32 {
        // SAFETY: a live socket (type invariant); one byte.
        unsafe { (&raw const (*self.sk()).__sk_common.skc_state).read_volatile() }.into()
    }

    /// Takes `port` at the address it has, as `listen()` takes one, or `sendto()` with UDP: no
    /// program of a control group is asked. `EADDRINUSE`; `EINVAL`: it has one. Sleeps.
    pub fn autobind(&self, port: u16) -> Result {
        // SAFETY: a live socket (type invariant), with a sock of TCP or UDP.
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
        let sock = self.sock.as_ptr();
        // SAFETY: a live socket (type invariant); without a table it only looks. UDP looks at the
        // flags of the file, which is the outer socket's and lives as long as calls on that.
        unsafe {
            poll(
                (&raw const (*sock).file).read_volatile(),
                sock,
                ptr::null_mut(),
            )
        }
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

    /// Gives the program an option above SOL_SOCKET, with the errors of that. Sleeps.
    pub fn get_option(&self, level: i32, name: i32, out: &OptOut) -> Result {
        let get = self.ops().getsockopt.ok_or(EINVAL)?;
        let (value, len) = out.as_raw();
        // SAFETY: a live socket (type invariant); takes any addresses of the program.
        to_result(unsafe { get(self.sock.as_ptr(), level, name, value, len) })
    }

    /// Whether it has no port. Any context.
    pub fn is_fresh(&self) -> bool {
        // SAFETY: a live socket (type invariant); one word.
        unsafe {
            (*self.sk())
                .__sk_common
                .__bindgen_anon_3
                .__bindgen_anon_1
                .skc_num
                == 0
        }
    }

    /// The name of it or of its peer, if it has that. Sleeps.
    pub fn name(&self, peer: bool) -> Option<SocketAddrV6> {
        let mut room = [0_u64; 16];
        let getname = self.ops().getname?;
        // SAFETY: a live socket (type invariant), and room for a sockaddr_storage.
        let len = unsafe {
            getname(
                self.sock.as_ptr(),
                room.as_mut_ptr().cast(),
                c_int::from(peer),
            )
        };
        let at = room.as_ptr();
        // SAFETY: the name is in `room`.
        unsafe {
            if len == size_of::<bindings::sockaddr_in>() as c_int {
                return Some(super::socket_addr(
                    &at.cast::<bindings::sockaddr_in>().read(),
                ));
            }
            v6::read_addr(at.cast(), usize::try_from(len).ok()?).ok()
        }
    }

    /// The program connects it again: what it is found to be then says nothing of the first peer,
    /// and an error of the first connection is gone, as with TCP. `watches` is set.
    pub(super) fn connects_again(&self) {
        // SAFETY: a live socket (type invariant); a word that is only looked at.
        let state = unsafe { (&raw const (*self.sock.as_ptr()).state).read_volatile() };
        if state == bindings::socket_state_SS_UNCONNECTED {
            self.connecting.store(false, Relaxed);
            self.move_error();
            // SAFETY: the outer sock is live (`watches`); a word that the socket layer changes by
            // single stores and xchg.
            unsafe { Atomic::from_ptr(&raw mut (*self.outer_sk()).sk_err) }.store(0, Relaxed);
        }
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
        let mut arg = bindings::proto_accept_arg {
            flags: bindings::O_NONBLOCK as c_int,
            ..Default::default()
        };
        // SAFETY: the caller's promise.
        unsafe { self.accept_as(newsock, &mut arg) }
    }

    /// `accept()`, as [`accept`](Self::accept), with the call's own argument.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn accept_as(
        &self,
        newsock: *mut bindings::socket,
        arg: &mut bindings::proto_accept_arg,
    ) -> Result {
        if arg.kern {
            // kernel_accept() sets the operations afterwards.
            return Err(errno::EOPNOTSUPP);
        }
        let ops = self.ops();
        let accept = ops.accept.ok_or(EINVAL)?;
        let arg = ptr::from_mut(arg).cast();
        // SAFETY: a live socket (type invariant), and the caller's promise.
        to_result(unsafe { accept(self.sock.as_ptr(), newsock, arg) })?;
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

/// The waiter of a [`Tcp`] on the outer socket's queue; it wakes none and does not count as one.
///
/// # Safety
///
/// Only the wait queue may call this, with a waiter of [`Tcp::move_errors`].
unsafe extern "C" fn woken(
    waiter: *mut bindings::wait_queue_entry,
    _mode: c_uint,
    _flags: c_int,
    _key: *mut c_void,
) -> c_int {
    // SAFETY: the waiter's owner is live while it is on a queue, whose lock is held.
    unsafe { &*(*waiter).private.cast::<Tcp>() }.move_error();
    0
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
