// SPDX-License-Identifier: GPL-2.0

//! The protocols of AF_INET and AF_INET6, one for each type of socket: their registration, and the
//! trait that they implement.
//!
//! C: `include/net/protocol.h` (`inet_register_protosw`, `inet6_register_protosw`),
//! `include/net/sock.h` (`struct proto`), `include/linux/net.h` (`struct proto_ops`). The callbacks
//! that C calls are in `sock/callbacks.rs`.

use super::{
    callbacks::{CStatic, Callbacks},
    msg::{RecvMsg, SendMsg},
    opt::{OptIn, OptOut},
    pipe::Pipe,
    tcp::Tcp,
    udp::Udp,
    Call, Object, PollCall, Shutdown, Sk, SkRef,
};
use crate::{
    bindings,
    kern::{errno, vma::NewVma},
};
use core::{marker::PhantomData, net::SocketAddrV6, ptr};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    fs::file::{File, FileDescriptorReservation},
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Full, Relaxed, Release},
        Arc, ArcBorrow,
    },
    time::{delay::fsleep, Delta},
};

/// The type of a protocol's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_DGRAM`.
    Datagram,
}

impl Kind {
    /// As C has it.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Stream => bindings::sock_type_SOCK_STREAM as u16,
            Self::Datagram => bindings::sock_type_SOCK_DGRAM as u16,
        }
    }

    /// The place of the protocol of this type.
    pub(super) fn place(self) -> &'static Place {
        static STREAM: Place = Place::new();
        static DATAGRAM: Place = Place::new();

        match self {
            Self::Stream => &STREAM,
            Self::Datagram => &DATAGRAM,
        }
    }
}

/// The address that `getname` is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The socket's own: `getsockname()`.
    Local,
    /// The peer's, while there is one: `getpeername()`.
    Peer,
    /// The peer's, for `accept()` and `SO_PEERNAME`, also if the connection has ended since: the
    /// kernel makes any error of an `accept()` an ECONNABORTED, and the connection is lost.
    Accepted,
}

impl Name {
    /// From the argument `peer` of `getname`.
    pub(super) fn new(peer: c_int) -> Self {
        match peer {
            0 => Self::Local,
            1 => Self::Peer,
            _ => Self::Accepted,
        }
    }
}

/// The protocol of one address family, and its entry in that family's table: [`SocketFamily`] fills
/// and registers them.
pub(super) struct Registered {
    pub(super) proto: CStatic<bindings::proto>,
    pub(super) sw: CStatic<bindings::inet_protosw>,
}

impl Registered {
    const fn new() -> Self {
        Self {
            proto: CStatic::new(),
            sw: CStatic::new(),
        }
    }
}

/// No protocol is registered.
const NONE: i32 = 0;
/// It is, without the second number.
const OFF: i32 = 1;
/// The second number is being registered or taken out.
const BUSY: i32 = 2;
/// It is registered.
const ON: i32 = 3;

/// Where the one protocol of a type is registered.
pub(super) struct Place {
    pub(super) inet: Registered,
    pub(super) inet6: Registered,
    /// The entries for [`SocketOps::BESIDE`].
    beside: [CStatic<bindings::inet_protosw>; 2],
    /// Whether those are registered: [`NONE`], [`OFF`], [`BUSY`] or [`ON`].
    offered: Atomic<i32>,
    /// Whether a protocol is registered.
    taken: Atomic<i32>,
    /// The context of the registered protocol, an `Arc<T::Context>` that went through `into_raw`; 0
    /// while none is registered.
    context: Atomic<usize>,
}

impl Place {
    const fn new() -> Self {
        Self {
            inet: Registered::new(),
            inet6: Registered::new(),
            beside: [CStatic::new(), CStatic::new()],
            offered: Atomic::new(NONE),
            taken: Atomic::new(0),
            context: Atomic::new(0),
        }
    }

    /// Whether `proto` is one of the two here.
    pub(super) fn has(&self, proto: *const bindings::proto) -> bool {
        ptr::eq(proto, self.inet.proto.get()) || ptr::eq(proto, self.inet6.proto.get())
    }
}

/// The operations of a protocol; one object for each socket.
///
/// All of it is called in the context of the program that makes the call, may sleep, and holds no
/// lock of the socket layer: several calls run at the same time on one socket, and the
/// implementation does its own locking. `release` runs alone, after all others.
pub trait SocketOps: Send + Sync + Sized + 'static {
    /// The type of the sockets. Operations that only streams have are not called with datagrams.
    const KIND: Kind;
    /// The protocol number, for `socket(AF_INET, KIND, PROTOCOL)` and the same with `AF_INET6`.
    const PROTOCOL: u16;
    /// A second number, under which sockets are made while [`SocketFamily::offer_beside`] says so.
    /// [`init`](Self::init) sees it in the sock.
    const BESIDE: u16;
    /// The protocol's name in `/proc/net/protocols`; at most 31 bytes.
    const NAME: &'static CStr;
    /// That of the one of AF_INET6.
    const NAME_V6: &'static CStr;
    /// Whether `sendmsg` honours `MSG_ZEROCOPY`: `SO_ZEROCOPY` can be set then, and io_uring's
    /// zero-copy sends are let through.
    const SUPPORT_ZC: bool;

    /// The level of the protocol's own options. They are the protocol's where TCP carries a socket,
    /// too.
    const LEVEL: i32;

    /// State shared by all sockets of the protocol.
    type Context: Send + Sync + 'static;

    /// A new socket, for `socket()`, which fails with this error.
    fn init(context: &Arc<Self::Context>, sk: &Sk) -> Result<Arc<Self>>;

    /// `sk` belongs to this from now on: after `init`, or when a program accepts this.
    fn attach(self: &Arc<Self>, sk: SkRef);

    /// The last close. Must drop the [`SkRef`] that `attach` brought.
    fn release(self: &Arc<Self>);

    /// `bind()`.
    fn bind(self: &Arc<Self>, addr: SocketAddrV6, call: &Call<'_>) -> Result;

    /// `connect()`. `EINPROGRESS` for one that goes on in the background. If the inner TCP
    /// socket carries the connection when this fails, the call is made on the inner socket.
    fn connect(self: &Arc<Self>, addr: SocketAddrV6, nonblock: bool, call: &Call<'_>) -> Result;

    /// The connection that the inner TCP socket carries is open.
    fn tcp_connected(self: &Arc<Self>) {}

    /// `connect()` to `AF_UNSPEC`.
    fn disconnect(self: &Arc<Self>) -> Result {
        Err(errno::EOPNOTSUPP)
    }

    /// `listen()`; `backlog` is within the system's limit.
    fn listen(self: &Arc<Self>, _backlog: u32, _call: &Call<'_>) -> Result {
        Err(errno::EOPNOTSUPP)
    }

    /// Waits for a connection and takes it; the sock of one of this protocol is `attach`ed after
    /// this.
    fn accept(
        self: &Arc<Self>,
        _nonblock: bool,
        _incoming: &mut dyn Incoming,
    ) -> Result<Accepted<Self>> {
        Err(errno::EOPNOTSUPP)
    }

    /// `getsockname()`, `getpeername()`, or the peer's address for `accept()`.
    fn name(self: &Arc<Self>, which: Name) -> Result<SocketAddrV6>;

    /// Readiness, as `EPOLL*` bits. The caller is on the wait queue already. Room to send may be
    /// left out if `asked` does not contain it. `busy`: the poll() or select() that polls instead
    /// of sleeping, if the answer has [`POLL_BUSY_LOOP`](super::POLL_BUSY_LOOP). May sleep.
    fn poll(self: &Arc<Self>, asked: u32, busy: Option<PollCall>) -> u32;

    /// `shutdown()`.
    fn shutdown(self: &Arc<Self>, how: Shutdown) -> Result;

    /// Sends; how many bytes were taken. With a stream, `EPIPE` raises `SIGPIPE` unless
    /// `MSG_NOSIGNAL` is set.
    fn sendmsg(self: &Arc<Self>, msg: &mut SendMsg<'_>) -> Result<usize>;

    /// A call with `MSG_FASTOPEN` comes, which connects and sends: lets the TCP socket inside this
    /// one carry it, and then the call is made on that. `EOPNOTSUPP`. Streams only.
    fn fast_open(self: &Arc<Self>, _call: &Call<'_>) -> Result {
        Err(errno::EOPNOTSUPP)
    }

    /// Receives; how many bytes were given. `MSG_ERRQUEUE` does not come here.
    fn recvmsg(self: &Arc<Self>, msg: &mut RecvMsg<'_>) -> Result<usize>;

    /// `splice()` and `sendfile()` from the socket; returns the bytes put into the pipe: 0 if it is
    /// full. The pipe is locked: a call that waits keeps others from it, as over TCP. Streams only.
    fn splice_read(
        self: &Arc<Self>,
        _pipe: &mut Pipe<'_>,
        _len: usize,
        _nonblock: bool,
    ) -> Result<usize> {
        Err(EINVAL)
    }

    /// A `sendfile()` or `splice()` to the socket that has said `MSG_MORE` has come to its end:
    /// there is no more. Sleeps.
    fn splice_eof(self: &Arc<Self>);

    /// `ioctl()`; `cmd` and `arg` are the program's, unchecked. Unknown: `ENOIOCTLCMD`, and the
    /// socket layer handles it. The result must not be negative.
    /// `nonblock`: the descriptor is.
    fn ioctl(self: &Arc<Self>, _cmd: u32, _arg: usize, _nonblock: bool) -> Result<i32> {
        Err(ENOIOCTLCMD)
    }

    /// The number that `ioctl()` answers for `cmd`, for `io_uring`. `ENOIOCTLCMD`: there is none.
    fn queued(self: &Arc<Self>, _cmd: u32) -> Result<u64> {
        Err(ENOIOCTLCMD)
    }

    /// `SO_KEEPALIVE` was set or taken back.
    fn keepalive_changed(self: &Arc<Self>) {}

    /// `SO_SNDBUF`, `SO_RCVBUF`, or which of them the program has set, may have changed.
    fn buffers_changed(self: &Arc<Self>) {}

    /// Whether the calling task may bind and connect a TCP socket that carries one of ours, by
    /// `sendmsg()` as well. `EACCES`.
    fn may_use_tcp(self: &Arc<Self>) -> Result {
        Ok(())
    }

    /// An option of level `SOL_SOCKET` is about to be set: the inner socket that has to have it,
    /// too. `carried`: an inner socket that is made later gets it by [`Tcp::open`].
    fn inner_tcp(self: &Arc<Self>, _call: &Call<'_>, _carried: bool) -> Result<Option<Arc<Tcp>>> {
        Ok(None)
    }

    /// `SO_PEEK_OFF`. `EOPNOTSUPP`: the protocol has it not.
    fn set_peek_off(self: &Arc<Self>, _at: i32) -> Result {
        Err(errno::EOPNOTSUPP)
    }

    /// The inner UDP socket. `MSG_ERRQUEUE` reads its error queue after this socket's.
    fn inner_udp(self: &Arc<Self>) -> Option<Udp> {
        None
    }

    /// Calls `f`, which sets an option of `SOL_SOCKET` of this socket and of the inner socket,
    /// if there is one: no other thread makes an inner socket during the call. Sleeps.
    fn while_set<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// `setsockopt()` at level `SOL_SOCKET`, before the kernel keeps the option. `ENOPROTOOPT` for
    /// one that the protocol cannot honour.
    fn check_socket_option(self: &Arc<Self>, _name: i32) -> Result {
        Ok(())
    }

    /// `setsockopt()` at other levels than `SOL_SOCKET`.
    fn setsockopt(
        self: &Arc<Self>,
        _level: i32,
        _name: i32,
        _value: OptIn<'_>,
        _call: &Call<'_>,
    ) -> Result {
        Err(errno::ENOPROTOOPT)
    }

    /// `getsockopt()` at other levels than `SOL_SOCKET`.
    fn getsockopt(self: &Arc<Self>, _level: i32, _name: i32, _out: OptOut) -> Result {
        Err(errno::ENOPROTOOPT)
    }

    /// `mmap()`. Runs under the `mmap_lock`: no access to program memory.
    fn mmap(self: &Arc<Self>, _vma: NewVma<'_>) -> Result {
        Err(ENODEV)
    }
}

/// The socket that an `accept()` fills.
pub trait Incoming {
    /// Makes the sock for a connection of this protocol, in the accepting program's context: to be
    /// called when one is there and before it is taken, so that it stays where it is if this fails.
    fn prepare(&mut self) -> Result;

    /// Takes a connection of `tcp` instead. `EAGAIN`: none is there; `EOPNOTSUPP`: it is the
    /// kernel's own call, which cannot have one.
    fn take_tcp(&mut self, tcp: &Tcp) -> Result;

    /// The call.
    fn call(&self) -> &Call<'_>;
}

/// A connection that was taken.
pub struct Accepted<T> {
    /// `None`: by [`Incoming::take_tcp`].
    pub own: Option<Arc<T>>,
    /// There are more.
    pub more: bool,
}

/// Socks of ours that are not freed yet.
pub(super) static ALIVE: Atomic<i64> = Atomic::new(0);

/// Socks not freed yet, orphans included.
pub fn socks_alive() -> usize {
    usize::try_from(ALIVE.load(Relaxed)).unwrap_or(0)
}

/// The registered protocol; dropping it ends it.
///
/// # Examples
///
/// `socket(AF_INET, SOCK_STREAM, 253)` makes a `Stream` from then on, and also by `AF_INET6`:
///
/// ```ignore
/// impl SocketOps for Stream {
///     const KIND: Kind = Kind::Stream;
///     const PROTOCOL: u16 = 253;
///     type Context = Sockets;
///     // bind, connect, sendmsg, ...
/// }
///
/// let family = SocketFamily::<Stream>::register(sockets)?;
/// // Sockets hold the module, so that none is left when this ends:
/// drop(family);
/// ```
///
/// # Invariants
///
/// The place of `T::KIND` is taken, what is in it is registered and made for `T`, and its context
/// is a `T::Context`.
pub struct SocketFamily<T: SocketOps>(PhantomData<fn() -> T>);

impl<T: SocketOps> SocketFamily<T> {
    /// Registers `T`, whose sockets are made in `context`. From now on programs can make some.
    ///
    /// Context: may sleep. Errors: `EBUSY` if there is one already, `ENOBUFS`, `ENOMEM`, `EPERM`,
    /// `EINVAL` if the bindings do not fit this kernel.
    pub fn register(context: Arc<T::Context>) -> Result<Self> {
        // SAFETY: all four give constants.
        let fits = unsafe {
            bindings::sizeof_sock() == size_of::<bindings::sock>()
                && bindings::sizeof_inet_sock() == size_of::<bindings::inet_sock>()
                && bindings::sizeof_proto() == size_of::<bindings::proto>()
                && bindings::sizeof_proto_ops() == size_of::<bindings::proto_ops>()
        };
        if !fits {
            pr_err!("the socket structures are not what this was built for\n");
            return Err(EINVAL);
        }
        let place = T::KIND.place();
        if place.taken.cmpxchg(0, 1, Full).is_err() {
            return Err(EBUSY);
        }
        let context = Arc::into_raw(context).expose_provenance();
        place.context.store(context, Relaxed);
        let registered = Self::register_both();
        if let Err(e) = registered {
            Self::drop_context();
            place.taken.store(0, Release);
            return Err(e);
        }
        place.offered.store(OFF, Release);
        // INVARIANT: both are registered now.
        Ok(Self(PhantomData))
    }

    /// Whether sockets can be made under the number [`SocketOps::BESIDE`], too, from now on.
    ///
    /// Context: may sleep. `EBUSY` while another call changes it, or without a registered protocol;
    /// errors of the registration.
    pub fn offer_beside(wanted: bool) -> Result {
        let place = T::KIND.place();
        let (from, to) = if wanted { (OFF, ON) } else { (ON, OFF) };
        match place.offered.cmpxchg(from, BUSY, Full) {
            Ok(_) => {}
            Err(now) if now == to => return Ok(()),
            Err(_) => return Err(EBUSY),
        }
        let done = if wanted {
            // SAFETY: the protocol is registered while the state is not NONE, and its end waits
            // while it is BUSY; the entries were not registered.
            unsafe { Self::register_beside() }
        } else {
            // SAFETY: as above; they were registered.
            unsafe { Self::unregister_beside() };
            Ok(())
        };
        let now = if done.is_ok() { to } else { from };
        place.offered.store(now, Release);
        done
    }

    /// # Safety
    ///
    /// The protocol must be registered, and the entries of the second number not.
    unsafe fn register_beside() -> Result {
        let [inet, inet6] = &T::KIND.place().beside;
        // SAFETY: the caller's promise: no other thread uses the entries, which are static.
        unsafe {
            inet.get().write(Callbacks::<T>::proto_sw(T::BESIDE, false));
            inet6.get().write(Callbacks::<T>::proto_sw(T::BESIDE, true));
            to_result(bindings::inet6_register_protosw(inet6.get()))?;
            bindings::inet_register_protosw(inet.get());
        }
        Ok(())
    }

    /// Waits for concurrent lookups.
    ///
    /// # Safety
    ///
    /// The entries of the second number must be registered.
    unsafe fn unregister_beside() {
        let [inet, inet6] = &T::KIND.place().beside;
        // SAFETY: the caller's promise.
        unsafe {
            bindings::inet_unregister_protosw(inet.get());
            bindings::inet6_unregister_protosw(inet6.get());
        }
    }

    /// No call changes whether sockets can be made under the second number any more; they cannot.
    /// Sleeps.
    fn end_beside() {
        let offered = &T::KIND.place().offered;
        while offered.cmpxchg(OFF, NONE, Full).is_err() {
            if offered.cmpxchg(ON, BUSY, Full).is_ok() {
                // SAFETY: they were registered, and no other call changes that while it is BUSY.
                unsafe { Self::unregister_beside() };
                offered.store(OFF, Release);
                continue;
            }
            fsleep(Delta::from_millis(1));
        }
    }

    /// The context, for a socket that is being made.
    ///
    /// # Safety
    ///
    /// The protocol must be registered for `T`, and stay so for `'a`.
    pub(super) unsafe fn context<'a>() -> ArcBorrow<'a, T::Context> {
        let ptr = T::KIND.place().context.load(Relaxed);
        let ptr = ptr::with_exposed_provenance::<T::Context>(ptr);
        // SAFETY: the caller's promise: `register` has put it there, and it is not taken back.
        unsafe { ArcBorrow::from_raw(ptr) }
    }

    /// No socket is made any more, and none is there.
    fn drop_context() {
        let ptr = T::KIND.place().context.xchg(0, Full);
        let ptr = ptr::with_exposed_provenance::<T::Context>(ptr);
        // SAFETY: `register` has put it there, and it is taken back only once.
        drop(unsafe { Arc::from_raw(ptr) });
    }

    /// With the place taken. An error leaves nothing registered.
    fn register_both() -> Result {
        let Place { inet, inet6, .. } = T::KIND.place();
        // SAFETY: with the place taken, no other thread touches them, and none is registered.
        unsafe {
            inet.proto.get().write(Callbacks::<T>::proto(false));
            inet.sw
                .get()
                .write(Callbacks::<T>::proto_sw(T::PROTOCOL, false));
            inet6.proto.get().write(Callbacks::<T>::proto(true));
            inet6
                .sw
                .get()
                .write(Callbacks::<T>::proto_sw(T::PROTOCOL, true));
        }
        // SAFETY: just filled; static, so it stays.
        to_result(unsafe { bindings::proto_register(inet.proto.get(), 1) })?;
        // SAFETY: as above.
        let second = to_result(unsafe { bindings::proto_register(inet6.proto.get(), 1) });
        let second = second.and_then(|()| {
            // SAFETY: just filled; static, so it stays; the proto it names is registered.
            let entered = to_result(unsafe { bindings::inet6_register_protosw(inet6.sw.get()) });
            entered.inspect_err(|_| {
                // SAFETY: just registered, and it has no sock yet.
                unsafe { bindings::proto_unregister(inet6.proto.get()) }
            })
        });
        if let Err(e) = second {
            // SAFETY: as above.
            unsafe { bindings::proto_unregister(inet.proto.get()) };
            return Err(e);
        }
        // SAFETY: as above.
        unsafe { bindings::inet_register_protosw(inet.sw.get()) };
        Ok(())
    }

    /// A new socket and a file descriptor for it, as `socket(family, KIND | flags, PROTOCOL)` makes
    /// them in the calling task, with its rights, limits and namespace. `flags`: `SOCK_CLOEXEC`,
    /// `SOCK_NONBLOCK`.
    ///
    /// Errors: `EINVAL` for other flags, else those of `socket()`.
    pub fn create_fd(family: u32, flags: u32) -> Result<u32> {
        const _: () = assert!(bindings::SOCK_NONBLOCK == bindings::O_NONBLOCK);

        if flags & !(bindings::SOCK_NONBLOCK | bindings::O_CLOEXEC) != 0 {
            return Err(EINVAL);
        }
        let family = c_int::try_from(family).map_err(|_| EINVAL)?;
        let kind = c_int::from(T::KIND.number());
        let fd = FileDescriptorReservation::get_unused_fd_flags(flags & bindings::O_CLOEXEC)?;
        let mut sock = ptr::null_mut();
        // SAFETY: takes any numbers, and fills `sock` if it succeeds.
        to_result(unsafe {
            bindings::sock_create(family, kind, c_int::from(T::PROTOCOL), &mut sock)
        })?;
        // SAFETY: the socket is ours; the file takes it over, or it is released on failure.
        let file = unsafe {
            bindings::sock_alloc_file(sock, (flags & bindings::O_NONBLOCK) as c_int, ptr::null())
        };
        let file = from_err_ptr(file)?;
        let file = ptr::NonNull::new(file.cast::<File>()).ok_or(ENOMEM)?;
        // SAFETY: a new file, whose one count is ours; no other thread has it, so its position is
        // not used without a lock. `File` is transparent.
        let file = unsafe { ARef::from_raw(file) };
        let number = fd.reserved_fd();
        fd.fd_install(file);
        Ok(number)
    }
}

impl<T: SocketOps> Drop for SocketFamily<T> {
    /// Context: sleeps. Every sock holds the module, so that there are none when the module goes;
    /// if this is dropped earlier than that, the protocol stays half registered for them
    /// permanently.
    fn drop(&mut self) {
        Self::end_beside();
        let Place { inet, inet6, .. } = T::KIND.place();
        // SAFETY: registered by the type invariant. They wait for concurrent lookups.
        unsafe {
            bindings::inet_unregister_protosw(inet.sw.get());
            bindings::inet6_unregister_protosw(inet6.sw.get());
        }
        if ALIVE.load(Relaxed) != 0 {
            pr_err!(
                "the socket protocol ends with {} sockets alive\n",
                socks_alive()
            );
            return;
        }
        // SAFETY: registered by the type invariant, and no sock is left.
        unsafe {
            bindings::proto_unregister(inet6.proto.get());
            bindings::proto_unregister(inet.proto.get());
        }
        Self::drop_context();
        T::KIND.place().taken.store(0, Release);
    }
}

/// The size of the object that the socket layer allocates for a sock.
pub(super) const OBJECT_SIZE: usize = size_of::<Object>();
