// SPDX-License-Identifier: GPL-2.0

//! The functions called by C: those of `struct proto` and `struct proto_ops`, for one
//! [`SocketOps`](super::family::SocketOps) type.
//!
//! They convert and hand on, nothing else. Those for data and options are in `data.rs`; how socks
//! begin and end is in `life.rs`.

use super::{
    family::{Accepted, Incoming, Kind, Name, SocketOps, OBJECT_SIZE},
    msg::Named,
    sockaddr_in, socket_addr,
    tcp::Tcp,
    v6, Call, Object, PollCall, Shutdown, Sk, POLL_BUSY_LOOP,
};
use crate::{
    bindings,
    kern::{errno, module::THIS_MODULE},
};
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomData,
    mem::{ManuallyDrop, MaybeUninit},
    net::SocketAddrV6,
    ptr,
};
use kernel::{
    error::from_result,
    ffi::{c_int, c_uint, c_ulong},
    prelude::*,
    sync::Arc,
};

/// A static that C writes to once it is registered.
pub(super) struct CStatic<V>(UnsafeCell<MaybeUninit<V>>);

// SAFETY: only raw pointers come out of it; their users document why the accesses are sound.
unsafe impl<V> Sync for CStatic<V> {}

impl<V> CStatic<V> {
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    pub(super) const fn get(&self) -> *mut V {
        self.0.get().cast()
    }
}

/// The functions for a `T`.
///
/// Safety of all functions called by C: only the socket layer may call them, through the tables
/// registered in the place of `T::KIND`, with the arguments that it gives to such functions:
/// sockets and socks are live and of this protocol, and messages, addresses and options belong to
/// the call.
pub(super) struct Callbacks<T>(PhantomData<T>);

/// The Rust side of a sock, borrowed.
pub(super) struct Borrowed<T>(ManuallyDrop<Arc<T>>);

impl<T> core::ops::Deref for Borrowed<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: SocketOps> Callbacks<T> {
    /// The protocol of AF_INET6, or of AF_INET.
    pub(super) fn proto(v6: bool) -> bindings::proto {
        let (size, offset, name) = match v6 {
            true => (v6::OBJECT_SIZE, v6::PINFO_OFFSET, T::NAME_V6),
            false => (OBJECT_SIZE, 0, T::NAME),
        };
        let mut proto = bindings::proto {
            owner: THIS_MODULE,
            init: Some(Self::proto_init),
            destroy: Some(Self::proto_destroy),
            get_port: Some(Self::proto_get_port),
            ioctl: Some(Self::proto_ioctl),
            unhash: Some(Self::proto_unhash),
            obj_size: size as c_uint,
            ipv6_pinfo_offset: offset,
            ..Default::default()
        };
        // The last byte stays 0.
        let room = proto.name.len() - 1;
        for (to, &from) in proto.name[..room].iter_mut().zip(name.to_bytes()) {
            *to = from as kernel::ffi::c_char;
        }
        proto
    }

    /// Its entry in the family's table, under a number.
    pub(super) fn proto_sw(protocol: u16, v6: bool) -> bindings::inet_protosw {
        bindings::inet_protosw {
            type_: T::KIND.number(),
            protocol,
            prot: if v6 {
                T::KIND.place().inet6.proto.get()
            } else {
                T::KIND.place().inet.proto.get()
            },
            ops: if v6 { &Self::OPS_V6 } else { &Self::OPS },
            ..Default::default()
        }
    }

    const OPS_V6: bindings::proto_ops = bindings::proto_ops {
        family: bindings::AF_INET6 as c_int,
        ..Self::OPS
    };

    const OPS: bindings::proto_ops = bindings::proto_ops {
        family: bindings::AF_INET as c_int,
        owner: THIS_MODULE,
        release: Some(Self::release),
        bind: Some(Self::bind),
        connect: Some(Self::connect),
        socketpair: Some(bindings::sock_no_socketpair),
        accept: Some(Self::accept),
        getname: Some(Self::getname),
        poll: Some(Self::poll),
        ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: Some(Self::compat_ioctl),
        gettstamp: Some(Self::gettstamp),
        listen: Some(Self::listen),
        shutdown: Some(Self::shutdown),
        setsockopt: Some(Self::setsockopt),
        getsockopt: Some(Self::getsockopt),
        sendmsg: Some(Self::sendmsg),
        recvmsg: Some(Self::recvmsg),
        mmap: Some(Self::mmap),
        splice_read: match T::KIND {
            Kind::Stream => Some(Self::splice_read),
            // The kernel's own, by recvmsg().
            Kind::Datagram => None,
        },
        splice_eof: Some(Self::splice_eof),
        set_peek_off: Some(Self::set_peek_off),
        ..pin_init::zeroed()
    };

    /// Whether a socket's file is non-blocking; one without a file is not.
    ///
    /// # Safety
    ///
    /// `sock` must be a live socket, whose file stays while this runs, if it has one.
    pub(super) unsafe fn nonblock(sock: *mut bindings::socket) -> bool {
        // SAFETY: the caller's promise.
        let file = unsafe { (*sock).file };
        // SAFETY: as above. The flags may change at any time.
        !file.is_null() && unsafe { (*file).f_flags } & bindings::O_NONBLOCK != 0
    }

    /// The sock of a socket.
    ///
    /// # Safety
    ///
    /// `sock` must be a live socket.
    pub(super) unsafe fn sk(sock: *mut bindings::socket) -> *mut bindings::sock {
        // SAFETY: the caller's promise.
        unsafe { (*sock).sk.cast() }
    }

    /// Whether the sock of a socket, if it has one, is of this protocol.
    ///
    /// # Safety
    ///
    /// `sock` must be a live socket.
    unsafe fn is_ours(sock: *mut bindings::socket) -> bool {
        // SAFETY: the caller's promise.
        let sk = unsafe { Self::sk(sock) };
        if sk.is_null() {
            return true;
        }
        // SAFETY: a live socket's sock is live; a word that may change, but not to one of ours.
        let proto = unsafe { (&raw const (*sk).__sk_common.skc_prot).read_volatile() };
        T::KIND.place().has(proto)
    }

    /// The Rust side of a socket.
    ///
    /// # Safety
    ///
    /// `sock` must be a live socket of this protocol that is not released while the result is used.
    pub(super) unsafe fn borrow(sock: *mut bindings::socket) -> Result<Borrowed<T>> {
        // SAFETY: the caller's promise.
        let sk = unsafe { Self::sk(sock) };
        if sk.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: a sock of ours is the beginning of an `Object`.
        let this = unsafe { (*sk.cast::<Object>()).this };
        if this.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: came from `Arc::<T>::into_raw`, whose count the object keeps until the release.
        // The result never drops it.
        Ok(Borrowed(ManuallyDrop::new(unsafe {
            Arc::from_raw(this.cast())
        })))
    }

    /// The TCP socket that carries a socket.
    ///
    /// # Safety
    ///
    /// `sock` must be a live socket of this protocol that is not released while the result is used.
    pub(super) unsafe fn carrier<'a>(sock: *mut bindings::socket) -> Option<&'a Tcp> {
        // SAFETY: the caller's promise.
        let sk = unsafe { Self::sk(sock) };
        if sk.is_null() {
            return None;
        }
        // SAFETY: a sock of ours is the beginning of an `Object`; the caller's promise.
        unsafe { (*sk.cast::<Object>()).tcp.carrier() }
    }

    /// Whether the calling task may bind and connect the TCP socket that carries a socket.
    ///
    /// # Safety
    ///
    /// As for [`carrier`](Self::carrier).
    pub(super) unsafe fn may_use_tcp(sock: *mut bindings::socket) -> Result {
        // SAFETY: the caller's promise.
        let this = unsafe { Self::borrow(sock)? };
        T::may_use_tcp(&this)
    }

    /// The protocol learns that the connection of a socket that `tcp` carries is open.
    ///
    /// # Safety
    ///
    /// As for [`carrier`](Self::carrier).
    pub(super) unsafe fn tell_connected(sock: *mut bindings::socket, tcp: &Tcp) {
        if tcp.take_connected() {
            // SAFETY: the caller's promise.
            if let Ok(this) = unsafe { Self::borrow(sock) } {
                T::tcp_connected(&this);
            }
        }
    }

    // struct proto_ops

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn release(sock: *mut bindings::socket) -> c_int {
        // SAFETY: the socket is live until this returns.
        let sk = unsafe { Self::sk(sock) };
        if sk.is_null() {
            // An accept() that failed, or a socket() that did.
            return 0;
        }
        // SAFETY: the socket layer releases a socket once, when no call on it runs any more.
        unsafe {
            if !(*sk.cast::<Object>()).this.is_null() {
                Sk::from_raw(sk).cgroup_release();
            }
            Self::take(sk);
            bindings::sk_state_store(sk, bindings::TCP_CLOSE as c_int);
            (*sk).sk_shutdown = (bindings::RCV_SHUTDOWN | bindings::SEND_SHUTDOWN) as u8;
            bindings::sock_orphan(sk);
            (*sock).sk = ptr::null_mut();
            bindings::sock_put(sk);
        }
        0
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn bind(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
    ) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: as above.
            return match unsafe { Self::may_use_tcp(sock) } {
                // SAFETY: the arguments are handed on as they came.
                Ok(()) => unsafe { tcp.carry_bind(addr, len) },
                Err(e) => e.to_errno(),
            };
        }
        from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: the socket is live and has a sock; the socket layer gives `len` bytes at
            // `addr`.
            let addr = unsafe { read_addr(Self::sk(sock), addr, len, Named::Bound)? };
            // SAFETY: as above.
            T::bind(&this, addr, &unsafe { Call::from_raw(sock) })?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn connect(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
        flags: c_int,
    ) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            tcp.connects_again();
            // SAFETY: the arguments are handed on as they came.
            return unsafe { Self::connect_carried(sock, tcp, addr, len, flags) };
        }
        let done = from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            if usize::try_from(len).map_err(|_| EINVAL)? < size_of::<u16>() {
                return Err(EINVAL);
            }
            // SAFETY: the socket layer gives `len` bytes at `addr`: the family is among them.
            let family = u32::from(unsafe { (*addr).sa_family });
            if family == bindings::AF_UNSPEC {
                T::disconnect(&this)?;
                return Ok(0);
            }
            let named = match T::KIND {
                Kind::Stream => Named::Peer,
                Kind::Datagram => Named::Destination,
            };
            // SAFETY: the socket is live and has a sock; for the rest as above.
            let addr = unsafe { read_addr(Self::sk(sock), addr, len, named)? };
            let nonblock = flags as u32 & bindings::O_NONBLOCK != 0;
            // SAFETY: as above.
            T::connect(&this, addr, nonblock, &unsafe { Call::from_raw(sock) })?;
            if T::KIND == Kind::Stream {
                // SAFETY: the socket is live; a word that is only looked at.
                unsafe { (*sock).state = bindings::socket_state_SS_CONNECTED };
            }
            Ok(0)
        });
        // SAFETY: as above.
        match unsafe { Self::carrier(sock) } {
            // The call has found that TCP is to carry the socket.
            Some(tcp) if done < 0 => {
                // SAFETY: as above.
                let carried = unsafe { Self::connect_carried(sock, tcp, addr, len, flags) };
                // It may have begun since.
                let begun = done == errno::EINPROGRESS.to_errno();
                if begun && carried == errno::EALREADY.to_errno() {
                    return done;
                }
                carried
            }
            _ => done,
        }
    }

    /// `connect()` of a socket that `tcp` carries.
    ///
    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe fn connect_carried(
        sock: *mut bindings::socket,
        tcp: &Tcp,
        addr: *mut bindings::sockaddr_unsized,
        len: c_int,
        flags: c_int,
    ) -> c_int {
        // SAFETY: the caller's promise.
        if let Err(e) = unsafe { Self::may_use_tcp(sock) } {
            return e.to_errno();
        }
        // SAFETY: the caller's promise; the arguments are handed on as they came.
        let done = unsafe { tcp.carry_connect(addr, len, flags) };
        // SAFETY: as above; a word that is only looked at.
        unsafe {
            Self::tell_connected(sock, tcp);
            if done == 0 {
                (*sock).state = bindings::socket_state_SS_CONNECTED;
            }
        }
        done
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn accept(
        sock: *mut bindings::socket,
        newsock: *mut bindings::socket,
        arg: *mut kernel::bindings::proto_accept_arg,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the argument belongs to this call. (The kernel crate has the type opaque.)
            let arg = unsafe { &mut *arg.cast::<bindings::proto_accept_arg>() };
            // SAFETY: the socket is live, and not released while a call on it runs.
            if let Some(tcp) = unsafe { Self::carrier(sock) } {
                // SAFETY: `newsock` is new, without a sock, and has our operations and a count of
                // the module where it is a program's call.
                unsafe { tcp.accept_as(newsock, arg)? };
                return Ok(0);
            }
            let nonblock = arg.flags as u32 & bindings::O_NONBLOCK != 0;
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // INVARIANT: `newsock` is new and has no sock.
            let mut incoming = NewSocket::<T> {
                // SAFETY: as above.
                call: unsafe { Call::from_raw(sock) },
                newsock,
                kern: arg.kern,
                sk: ptr::null_mut(),
                _protocol: PhantomData,
            };
            let accepted = T::accept(&this, nonblock, &mut incoming);
            let sk = incoming.sk;
            match accepted {
                Ok(Accepted { own: None, more }) => arg.is_empty = (!more).into(),
                Ok(_) if sk.is_null() => return Err(EINVAL),
                Ok(Accepted {
                    own: Some(child),
                    more,
                }) => {
                    // SAFETY: it is new, and `newsock` has no file descriptor yet.
                    unsafe { Self::give(sk, child) };
                    arg.is_empty = (!more).into();
                }
                Err(e) => {
                    // The unused sock is released.
                    // SAFETY: no other code knows `newsock` yet.
                    unsafe { Self::release(newsock) };
                    return Err(e);
                }
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn getname(
        sock: *mut bindings::socket,
        addr: *mut bindings::sockaddr,
        peer: c_int,
    ) -> c_int {
        // SAFETY: the socket is live.
        if !unsafe { Self::is_ours(sock) } {
            // Of a connection that accept() took from TCP the kernel asks the listener's protocol.
            // SAFETY: the arguments are handed on as they came, to the socket's own operations.
            return match unsafe { (*(*sock).ops).getname } {
                // SAFETY: as above.
                Some(getname) => unsafe { getname(sock, addr, peer) },
                None => EINVAL.to_errno(),
            };
        }
        // SAFETY: the socket is of this protocol, live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_getname(addr, peer) };
        }
        from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            let name: SocketAddrV6 = T::name(&this, Name::new(peer))?;
            // SAFETY: the socket is live, and has a sock.
            let sk = unsafe { Sk::from_raw(Self::sk(sock)) };
            let name = sk.cgroup_name(name, peer != 0);
            if sk.is_v6() {
                let name = v6::sockaddr_in6(name);
                // SAFETY: the socket layer has room for a sockaddr_storage at `addr`.
                unsafe { addr.cast::<bindings::sockaddr_in6>().write_unaligned(name) };
                return Ok(size_of::<bindings::sockaddr_in6>() as c_int);
            }
            let name = sockaddr_in(name);
            // SAFETY: as above.
            unsafe { addr.cast::<bindings::sockaddr_in>().write_unaligned(name) };
            Ok(size_of::<bindings::sockaddr_in>() as c_int)
        })
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        sock: *mut bindings::socket,
        wait: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: all three belong to this call. First on the queue, then look: no wake-up is lost.
        unsafe { bindings::sock_poll_wait(file, sock, wait) };
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: as above.
            unsafe { Self::tell_connected(sock, tcp) };
            // SAFETY: as above; the caller is on the queue.
            return unsafe { tcp.carry_poll() };
        }
        // SAFETY: the socket is live, and not released while a call on it runs.
        match unsafe { Self::borrow(sock) } {
            Ok(this) => {
                // SAFETY: as above; it may be null, and then every event is asked for.
                let Some(table) = (unsafe { wait.as_ref() }) else {
                    return T::poll(&this, !POLL_BUSY_LOOP, None);
                };
                let call = PollCall {
                    id: wait as usize,
                    begins: table._qproc.is_some(),
                };
                let busy = table._key & POLL_BUSY_LOOP != 0;
                T::poll(&this, table._key, busy.then_some(call))
            }
            Err(_) => bindings::POLLERR,
        }
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn ioctl(sock: *mut bindings::socket, cmd: c_uint, arg: c_ulong) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_ioctl(cmd, arg) };
        }
        from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: the socket is live; its file, if it has one, stays while a call on it runs.
            let nonblock = unsafe { Self::nonblock(sock) };
            T::ioctl(&this, cmd, arg, nonblock)
        })
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    #[cfg(CONFIG_COMPAT)]
    unsafe extern "C" fn compat_ioctl(
        sock: *mut bindings::socket,
        cmd: c_uint,
        arg: c_ulong,
    ) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_compat_ioctl(cmd, arg) };
        }
        // A 32-bit program's pointer; our structures are the same for both.
        // SAFETY: this function's own promise.
        unsafe { Self::ioctl(sock, cmd, arg as u32 as c_ulong) }
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn gettstamp(
        sock: *mut bindings::socket,
        stamp: *mut c_void,
        timeval: bool,
        time32: bool,
    ) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_gettstamp(stamp, timeval, time32) };
        }
        // SAFETY: as above.
        unsafe { bindings::sock_gettstamp(sock, stamp, timeval, time32) }
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn listen(sock: *mut bindings::socket, backlog: c_int) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_listen(backlog) };
        }
        let done = from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            // SAFETY: as above.
            let call = unsafe { Call::from_raw(sock) };
            T::listen(&this, u32::try_from(backlog).unwrap_or(0), &call)?;
            Ok(0)
        });
        // SAFETY: as above.
        match unsafe { Self::carrier(sock) } {
            // The call has found that TCP is to carry the socket.
            // SAFETY: the arguments are handed on as they came.
            Some(tcp) if done < 0 => unsafe { tcp.carry_listen(backlog) },
            _ => done,
        }
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    unsafe extern "C" fn shutdown(sock: *mut bindings::socket, how: c_int) -> c_int {
        // SAFETY: the socket is live, and not released while a call on it runs.
        if let Some(tcp) = unsafe { Self::carrier(sock) } {
            // SAFETY: the arguments are handed on as they came.
            return unsafe { tcp.carry_shutdown(how) };
        }
        let done = from_result(|| {
            // SAFETY: the socket is live, and not released while a call on it runs.
            let this = unsafe { Self::borrow(sock)? };
            let how = match how as u32 {
                bindings::sock_shutdown_cmd_SHUT_RD => Shutdown::Read,
                bindings::sock_shutdown_cmd_SHUT_WR => Shutdown::Write,
                bindings::sock_shutdown_cmd_SHUT_RDWR => Shutdown::Both,
                _ => return Err(EINVAL),
            };
            T::shutdown(&this, how)?;
            Ok(0)
        });
        // SAFETY: as above.
        match unsafe { Self::carrier(sock) } {
            // TCP carries the socket since this call began.
            // SAFETY: the arguments are handed on as they came.
            Some(tcp) if done < 0 => unsafe { tcp.carry_shutdown(how) },
            _ => done,
        }
    }
}

/// The socket that a program's or the kernel's `accept()` fills.
///
/// # Invariants
///
/// No other code uses `newsock` yet; its sock is `sk`, made by `child_sk`, if that is not null.
struct NewSocket<'a, T> {
    /// On the listener.
    call: Call<'a>,
    newsock: *mut bindings::socket,
    kern: bool,
    sk: *mut bindings::sock,
    _protocol: PhantomData<T>,
}

impl<T: SocketOps> Incoming for NewSocket<'_, T> {
    fn prepare(&mut self) -> Result {
        if self.sk.is_null() {
            // SAFETY: the listener is live, and `newsock` has no sock (type invariant).
            self.sk = unsafe { Callbacks::<T>::child_sk(self.call.sock, self.newsock, self.kern)? };
        }
        Ok(())
    }

    fn take_tcp(&mut self, tcp: &Tcp) -> Result {
        if self.kern {
            // kernel_accept() sets the operations afterwards.
            return Err(errno::EOPNOTSUPP);
        }
        if !self.sk.is_null() {
            self.sk = ptr::null_mut();
            // SAFETY: no other code uses `newsock` (type invariant), and it has one of our socks.
            unsafe {
                Callbacks::<T>::release(self.newsock);
                (*self.newsock).state = bindings::socket_state_SS_UNCONNECTED;
                (*self.newsock).flags = 0;
            }
        }
        // SAFETY: it has no sock now (type invariant), and a program's call has given it our
        // operations, and a count of the module.
        unsafe { tcp.accept(self.newsock) }
    }

    fn call(&self) -> &Call<'_> {
        &self.call
    }
}

/// Reads an address of the sock's family. `EINVAL` if it is too short, `EAFNOSUPPORT` if it is of
/// another family.
///
/// # Safety
///
/// `sk` must be a live sock of ours, and `len` bytes readable at `addr`.
pub(super) unsafe fn read_addr(
    sk: *mut bindings::sock,
    addr: *const bindings::sockaddr_unsized,
    len: c_int,
    named: Named,
) -> Result<SocketAddrV6> {
    let len = usize::try_from(len).map_err(|_| EINVAL)?;
    let room = size_of::<bindings::sockaddr_in>();
    // SAFETY: the caller's promise.
    if unsafe { Sk::from_raw(sk) }.is_v6() {
        // As UDP does.
        let v4_too = named == Named::Destination && len >= room;
        // SAFETY: the caller's promise, and long enough.
        let sin = v4_too.then(|| unsafe { addr.cast::<bindings::sockaddr_in>().read_unaligned() });
        if let Some(sin) = sin.filter(|sin| u32::from(sin.sin_family) == bindings::AF_INET) {
            return Ok(socket_addr(&sin));
        }
        // SAFETY: as above.
        return unsafe { v6::read_addr(addr.cast(), len) };
    }
    if len < room {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise, and long enough.
    let sin = unsafe { addr.cast::<bindings::sockaddr_in>().read_unaligned() };
    match u32::from(sin.sin_family) {
        bindings::AF_INET => {}
        // As TCP does, for old programs.
        bindings::AF_UNSPEC if named == Named::Bound && sin.sin_addr.s_addr == 0 => {}
        // As UDP does.
        bindings::AF_UNSPEC if named == Named::Destination => {}
        _ => return Err(errno::EAFNOSUPPORT),
    }
    Ok(socket_addr(&sin))
}
