// SPDX-License-Identifier: GPL-2.0

//! Our kernel sockets: the sock object, the fields that Rust code may read and set, and its
//! wake-ups.
//!
//! C: `include/net/sock.h`, `include/net/inet_sock.h`. `sock/family.rs` registers the protocol,
//! `sock/callbacks.rs` and `sock/data.rs` have the functions called by the socket layer,
//! `sock/dgram.rs` those of datagram sockets, `sock/cgroup_bpf.rs` the programs of control groups,
//! `sock/filter.rs` the filter of a datagram socket,
//! `sock/life.rs` the making and end of sockets, `sock/msg.rs` the messages, `sock/opt.rs` the
//! options, `sock/ip.rs` those of levels SOL_IP and SOL_IPV6, `sock/tcp.rs` a TCP socket inside one
//! of ours, `sock/carried.rs` the calls that go to it, `sock/udp.rs` a UDP socket inside one of
//! ours, `sock/v6.rs` the differences with IPv6,
//! `sock/zerocopy.rs` the notifications of `MSG_ZEROCOPY`. Addresses are those of IPv6 here; those
//! of IPv4 are v4-mapped.
//!
//! None of it takes `lock_sock`, except for the flags of `SO_ZEROCOPY` and `IPV6_V6ONLY`, and
//! around the programs of control groups: a
//! [`SocketOps`](family::SocketOps) type has its own locks, and the fields that both sides know
//! (`sk_err`, `sk_shutdown`, timeouts, addresses) are single words that the socket layer itself
//! reads without a lock.

mod callbacks;
mod carried;
mod cgroup_bpf;
mod data;
pub mod dgram;
pub mod family;
pub mod filter;
mod ip;
mod life;
pub mod msg;
pub mod opt;
pub mod pipe;
pub mod reach;
pub mod tcp;
pub mod udp;
mod v6;
pub mod zerocopy;

pub use cgroup_bpf::filters_packets;

use super::{
    net::Net,
    wait::{Timeout, WaitQueue, MAX_SCHEDULE_TIMEOUT},
};
use crate::bindings;
use core::{
    marker::PhantomData,
    net::{Ipv4Addr, SocketAddrV6},
    ptr::{self, NonNull},
};
use kernel::{
    ffi::{c_int, c_long, c_uint},
    prelude::*,
    sync::{
        aref::{ARef, AlwaysRefCounted},
        atomic::{Atomic, Relaxed},
        rcu,
    },
    task::Kuid,
    time::Jiffies,
    types::Opaque,
};

/// Asked for by poll() and select() while they may poll instead of sleeping: for
/// `net.core.busy_poll` microseconds.
pub const POLL_BUSY_LOOP: u32 = bindings::POLL_BUSY_LOOP;

/// A poll() or select() that looks at a socket.
#[derive(Clone, Copy)]
pub struct PollCall {
    /// No other call under way has this number.
    pub id: usize,
    /// It has not looked at this socket before.
    pub begins: bool,
}

/// The externally visible state of a socket (`TCP_*` in C).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Listening.
    Listen = bindings::TCP_LISTEN,
    /// Connected.
    Established = bindings::TCP_ESTABLISHED,
    /// A datagram socket without a peer.
    Closed = bindings::TCP_CLOSE,
}

/// Which directions a shutdown ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Receiving.
    Read,
    /// Sending.
    Write,
    /// Both.
    Both,
}

impl Shutdown {
    /// Whether receiving ends.
    pub fn read(self) -> bool {
        self != Self::Write
    }

    /// Whether sending ends.
    pub fn write(self) -> bool {
        self != Self::Read
    }

    fn mask(self) -> u8 {
        let mut mask = 0;
        if self.read() {
            mask |= bindings::RCV_SHUTDOWN;
        }
        if self.write() {
            mask |= bindings::SEND_SHUTDOWN;
        }
        mask as u8
    }
}

/// A sock of our protocol.
///
/// # Invariants
///
/// The object is the `struct sock` at the beginning of a [`Object`], counted, and initialised by
/// `sock_init_data`.
#[repr(transparent)]
pub struct Sk(Opaque<bindings::sock>);

/// A counted reference to a sock. It keeps the sock and its network namespace; it does not keep the
/// file open, nor the module loaded once the sock is gone.
pub type SkRef = ARef<Sk>;

// SAFETY: socks belong to no task; their fields are read and written as single words, or under
// the locks that C uses for them.
unsafe impl Send for Sk {}
// SAFETY: as above.
unsafe impl Sync for Sk {}

// SAFETY: the count is the sock's own. By the type invariant it is counted.
unsafe impl AlwaysRefCounted for Sk {
    fn inc_ref(&self) {
        // SAFETY: a shared reference says that the count is not zero.
        unsafe { bindings::sock_hold(self.as_ptr()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: the caller gives up a count.
        unsafe { bindings::sock_put(obj.cast::<bindings::sock>().as_ptr()) };
    }
}

type AddrPair = bindings::sock_common__bindgen_ty_1__bindgen_ty_1;
type PortPair = bindings::sock_common__bindgen_ty_3__bindgen_ty_1;

/// The object that the socket layer allocates for each of our sockets.
#[repr(C)]
struct Object {
    inet: bindings::inet_sock,
    /// The Rust side: from `Arc::into_raw`, or null before it is made and after the release.
    /// Written while no other code has the sock: at its making and at its release.
    this: *const core::ffi::c_void,
    /// The TCP socket inside it.
    tcp: tcp::Slot,
}

/// A call on a socket of ours, while it runs.
///
/// # Invariants
///
/// `sock` is a live socket with a sock of ours, and is not released before `'a` ends.
pub struct Call<'a> {
    sock: *mut bindings::socket,
    _runs: PhantomData<&'a ()>,
}

impl Call<'_> {
    /// # Safety
    ///
    /// `sock` must be a live socket with a sock of ours that is not released while the result is
    /// used.
    unsafe fn from_raw(sock: *mut bindings::socket) -> Self {
        // INVARIANT: the caller's promise.
        Self {
            sock,
            _runs: PhantomData,
        }
    }

    /// The queue of what waits for readiness; [`Sk::wake_readable`] wakes one exclusive waiter.
    pub fn queue(&self) -> &WaitQueue {
        // SAFETY: a live socket (type invariant), which has an initialised queue for all its life.
        unsafe { WaitQueue::from_raw(ptr::addr_of_mut!((*self.sock).wq.wait)) }
    }
}

impl Sk {
    /// # Safety
    ///
    /// `sk` must be a live sock of our protocol for all of `'a`.
    unsafe fn from_raw<'a>(sk: *mut bindings::sock) -> &'a Self {
        // SAFETY: the caller's promise; the type is transparent.
        unsafe { &*sk.cast::<Self>() }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// The sock's network namespace.
    pub(crate) fn net(&self) -> Net {
        // SAFETY: a sock has a namespace for all its life.
        let net = unsafe { bindings::sock_net(self.as_ptr()) };
        // SAFETY: the sock holds it.
        unsafe { Net::from_raw(net) }
    }

    /// The socket's inode number; 0 if it has none yet.
    pub fn ino(&self) -> u64 {
        // SAFETY: a live sock (type invariant); one word, as `sock_i_ino` reads it.
        unsafe { ptr::addr_of!((*self.as_ptr()).sk_ino).read_volatile() }
    }

    /// The number under which a socket is being made.
    pub fn protocol(&self) -> u16 {
        // SAFETY: a live sock (type invariant); one word.
        unsafe { (&raw const (*self.as_ptr()).sk_protocol).read_volatile() }
    }

    /// The owner's user, as the calling task's user namespace numbers it.
    pub fn uid(&self) -> u32 {
        // SAFETY: as in `ino`.
        let uid = unsafe { ptr::addr_of!((*self.as_ptr()).sk_uid).read_volatile() };
        Kuid::from_raw(uid).into_uid_in_current_ns()
    }

    /// The owner's user, the same number in all user namespaces.
    pub fn owner(&self) -> u32 {
        // SAFETY: as in `ino`.
        unsafe { ptr::addr_of!((*self.as_ptr()).sk_uid).read_volatile() }.val
    }

    /// The error that waits, without taking it.
    pub fn err(&self) -> Option<Error> {
        // SAFETY: as in `ino`.
        let err = unsafe { ptr::addr_of!((*self.as_ptr()).sk_err).read_volatile() };
        (err != 0).then(|| Error::from_errno(-err))
    }

    /// Takes the error that waits (`SO_ERROR` does the same). Any context.
    pub fn take_err(&self) -> Option<Error> {
        // SAFETY: `sk_err` is an aligned `int` in a live sock; the socket layer changes it by xchg
        // and single stores.
        let slot = unsafe { Atomic::from_ptr(ptr::addr_of_mut!((*self.as_ptr()).sk_err)) };
        if slot.load(Relaxed) == 0 {
            return None;
        }
        match slot.xchg(0, kernel::sync::atomic::Full) {
            0 => None,
            err => Some(Error::from_errno(-err)),
        }
    }

    /// Leaves an error for the next call or `SO_ERROR`, and wakes pollers with `EPOLLERR`. Any
    /// context.
    pub fn set_err(&self, err: Error) {
        // SAFETY: as in `take_err`.
        let slot = unsafe { Atomic::from_ptr(ptr::addr_of_mut!((*self.as_ptr()).sk_err)) };
        slot.store(-err.to_errno(), Relaxed);
        // SAFETY: a live sock (type invariant); its callback is the default one, for any context.
        unsafe { bindings::sk_error_report(self.as_ptr()) };
    }

    /// Sets the state that others see. The caller serialises. Any context.
    pub fn set_state(&self, state: State) {
        // SAFETY: a live sock (type invariant); a store with a tracepoint.
        unsafe { bindings::sk_state_store(self.as_ptr(), state as c_int) };
    }

    /// Adds to the directions that are shut down, as others see them. The caller serialises. Any
    /// context.
    pub fn set_shutdown(&self, how: Shutdown) {
        // SAFETY: a live sock (type invariant); one byte.
        unsafe {
            let slot = ptr::addr_of_mut!((*self.as_ptr()).sk_shutdown);
            slot.write_volatile(slot.read_volatile() | how.mask());
        }
    }

    /// Sets the local address that others see. The caller serialises.
    pub fn set_local(&self, addr: SocketAddrV6) {
        let ip = v6::v4_of(*addr.ip());
        let inet = self.as_ptr().cast::<bindings::inet_sock>();
        // SAFETY: our socks begin with an inet_sock (type invariant). Each field is a word that
        // others read at any time, and none is part of a hash of ours.
        unsafe {
            let (addrs, ports) = self.pairs();
            ptr::addr_of_mut!((*inet).inet_saddr).write_volatile(ip);
            ptr::addr_of_mut!((*addrs).skc_rcv_saddr).write_volatile(ip);
            ptr::addr_of_mut!((*inet).inet_sport).write_volatile(addr.port().to_be());
            ptr::addr_of_mut!((*ports).skc_num).write_volatile(addr.port());
        }
        self.set_local_v6(*addr.ip());
    }

    /// Sets the peer's address that others see. The caller serialises.
    pub fn set_remote(&self, addr: SocketAddrV6) {
        let ip = v6::v4_of(*addr.ip());
        // SAFETY: as in `set_local`.
        unsafe {
            let (addrs, ports) = self.pairs();
            ptr::addr_of_mut!((*addrs).skc_daddr).write_volatile(ip);
            ptr::addr_of_mut!((*ports).skc_dport).write_volatile(addr.port().to_be());
        }
        self.set_remote_v6(*addr.ip());
    }

    /// The interface that the socket is bound to (`SO_BINDTODEVICE`), by its number; 0: none.
    pub fn bound_dev_if(&self) -> u32 {
        // SAFETY: a live sock (type invariant); one word.
        let dev =
            unsafe { ptr::addr_of!((*self.as_ptr()).__sk_common.skc_bound_dev_if).read_volatile() };
        u32::try_from(dev).unwrap_or(0)
    }

    /// The places of the addresses and of the ports, for whole-word access only.
    fn pairs(&self) -> (*mut AddrPair, *mut PortPair) {
        // SAFETY: a live sock (type invariant); only places are computed. Both are unions of the
        // pair with its two halves in one word.
        unsafe {
            let common = ptr::addr_of_mut!((*self.as_ptr()).__sk_common);
            (
                ptr::addr_of_mut!((*common).__bindgen_anon_1).cast(),
                ptr::addr_of_mut!((*common).__bindgen_anon_3).cast(),
            )
        }
    }

    /// How long a receiving call (or accept) may wait.
    pub fn rcvtimeo(&self, nonblock: bool) -> Timeout {
        // SAFETY: a live sock (type invariant); one word.
        timeout(unsafe { bindings::sock_rcvtimeo(self.as_ptr(), nonblock) })
    }

    /// How long a sending call (or connect) may wait.
    pub fn sndtimeo(&self, nonblock: bool) -> Timeout {
        // SAFETY: as in `rcvtimeo`.
        timeout(unsafe { bindings::sock_sndtimeo(self.as_ptr(), nonblock) })
    }

    /// For how long a receiving call may look for data before it sleeps, in microseconds:
    /// `SO_BUSY_POLL`.
    pub fn busy_poll(&self) -> u32 {
        #[cfg(CONFIG_NET_RX_BUSY_POLL)]
        // SAFETY: as in `ino`.
        return unsafe { ptr::addr_of!((*self.as_ptr()).sk_ll_usec).read_volatile() };
        #[cfg(not(CONFIG_NET_RX_BUSY_POLL))]
        0
    }

    /// Whether `SO_KEEPALIVE` is set.
    pub fn keepalive(&self) -> bool {
        // SAFETY: a live sock (type invariant); looks at a bit.
        unsafe { bindings::sock_flag(self.as_ptr(), bindings::sock_flags_SOCK_KEEPOPEN) }
    }

    /// How long `close()` lingers, if `SO_LINGER` says so and the task lives on to see it.
    pub fn linger(&self) -> Option<Jiffies> {
        // SAFETY: a live sock (type invariant); looks at bits and at one word.
        unsafe {
            if !bindings::sock_flag(self.as_ptr(), bindings::sock_flags_SOCK_LINGER) {
                return None;
            }
            let time = ptr::addr_of!((*self.as_ptr()).sk_lingertime).read_volatile();
            // An exiting process does not wait.
            (time == 0 || !bindings::current_exiting()).then_some(time)
        }
    }

    /// How many bytes a receive of `len` waits for, as `SO_RCVLOWAT` and `MSG_WAITALL` say: at
    /// least 1.
    pub fn rcvlowat(&self, waitall: bool, len: usize) -> usize {
        let len = c_int::try_from(len).unwrap_or(c_int::MAX);
        // SAFETY: a live sock (type invariant); one word.
        let low = unsafe { bindings::sock_rcvlowat(self.as_ptr(), waitall.into(), len) };
        usize::try_from(low).unwrap_or(1).max(1)
    }

    /// `SO_RCVBUF` as the kernel keeps it (twice what the program set), if the program has set it.
    pub fn rcvbuf_set(&self) -> Option<u32> {
        // SAFETY: as in `ino`.
        let n = unsafe { ptr::addr_of!((*self.as_ptr()).sk_rcvbuf).read_volatile() };
        self.has_set(bindings::SOCK_RCVBUF_LOCK, n)
    }

    /// The same of `SO_SNDBUF`.
    pub fn sndbuf_set(&self) -> Option<u32> {
        // SAFETY: as in `ino`.
        let n = unsafe { ptr::addr_of!((*self.as_ptr()).sk_sndbuf).read_volatile() };
        self.has_set(bindings::SOCK_SNDBUF_LOCK, n)
    }

    /// The size `n` if the program has set the one that `lock` stands for.
    fn has_set(&self, lock: u32, n: c_int) -> Option<u32> {
        // SAFETY: as in `ino`.
        let locks = unsafe { ptr::addr_of!((*self.as_ptr()).sk_userlocks).read_volatile() };
        let set = u32::from(locks) & lock != 0;
        set.then(|| u32::try_from(n).unwrap_or(0))
    }

    /// Whether `SO_REUSEADDR` is set.
    pub fn reuse_addr(&self) -> bool {
        // SAFETY: a live sock (type invariant); reads a bitfield of one byte.
        unsafe { (*self.as_ptr()).__sk_common.skc_reuse() != 0 }
    }

    /// Whether `SO_REUSEPORT` is set.
    pub fn reuse_port(&self) -> bool {
        // SAFETY: as in `reuse_addr`.
        unsafe { (*self.as_ptr()).__sk_common.skc_reuseport() != 0 }
    }

    /// Whether the calling task may bind to `port`: low ports need `CAP_NET_BIND_SERVICE` in the
    /// namespace's owner (`ip_unprivileged_port_start` says which are low).
    pub fn may_bind_port(&self, port: u16) -> bool {
        // SAFETY: the sock holds its namespace, that its user namespace; both calls only look.
        unsafe {
            let net = bindings::sock_net(self.as_ptr());
            !bindings::inet_port_requires_bind_service(net, port)
                || bindings::ns_capable(
                    bindings::net_user_ns(net),
                    bindings::CAP_NET_BIND_SERVICE as c_int,
                )
        }
    }

    /// First and last port that may be chosen for the program: the namespace's
    /// `ip_local_port_range`.
    pub fn port_range(&self) -> (u16, u16) {
        let (mut low, mut high) = (0, 0);
        // SAFETY: our socks begin with an inet_sock (type invariant); it reads one word of that,
        // and another one of the namespace that the sock holds; writes two numbers.
        unsafe { bindings::inet_sk_get_local_port_range(self.as_ptr(), &mut low, &mut high) };
        // The kernel only accepts port numbers here.
        (low as u16, high as u16)
    }

    /// Wakes pollers for reading, and sends `SIGIO` where asked for. Any context.
    pub fn wake_readable(&self) {
        // SAFETY: a live sock (type invariant); its callback is the default one, for any context.
        unsafe { bindings::sk_data_ready(self.as_ptr()) };
    }

    /// Wakes pollers for writing, and sends `SIGIO` where asked for. Any context.
    ///
    /// `sk_write_space` is not used: it looks at `sk_wmem_alloc`, which means nothing here. Nor is
    /// SOCK_WAKE_SPACE, which sends the signal only if SOCKWQ_ASYNC_NOSPACE is set: the sockets
    /// keep their own note that a program has found no room, and call this only then.
    pub fn wake_writable(&self) {
        self.wake(bindings::POLLOUT | bindings::POLLWRNORM | bindings::POLLWRBAND);
        self.wake_async(bindings::SOCK_WAKE_IO, bindings::POLL_OUT);
    }

    /// Wakes all pollers after the state has changed: connected, failed, shut down. Any context.
    pub fn wake_state(&self) {
        // SAFETY: a live sock (type invariant); its callback is the default one, for any context.
        unsafe { bindings::sk_state_change(self.as_ptr()) };
        self.wake_async(bindings::SOCK_WAKE_IO, bindings::POLL_OUT);
    }

    fn wake(&self, events: c_uint) {
        let _rcu = rcu::read_lock();
        // SAFETY: `sk_wq` is changed by whole words, and its target is freed after a grace period
        // (`socket_wq` is in an inode freed by RCU), which this section holds off.
        unsafe {
            let wq = ptr::addr_of!((*self.as_ptr()).__bindgen_anon_1.sk_wq).read_volatile();
            if wq.is_null() {
                return;
            }
            let head = ptr::addr_of_mut!((*wq).wait);
            if bindings::wq_has_sleeper(head) {
                let key = ptr::without_provenance_mut(events as usize);
                bindings::__wake_up(head, bindings::TASK_INTERRUPTIBLE, 1, key);
            }
        }
    }

    fn wake_async(&self, how: c_uint, band: c_uint) {
        // SAFETY: a live sock (type invariant); takes the RCU lock itself.
        unsafe { bindings::sk_wake_async(self.as_ptr(), how as c_int, band as c_int) };
    }
}

/// A timeout as the kernel writes it.
fn timeout(jiffies: c_long) -> Timeout {
    (jiffies != MAX_SCHEDULE_TIMEOUT).then(|| Jiffies::try_from(jiffies).unwrap_or(0))
}

/// An address as C has it where it is one of IPv4; another one is 0.0.0.0.
fn sockaddr_in(addr: SocketAddrV6) -> bindings::sockaddr_in {
    let ip = addr.ip().to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
    bindings::sockaddr_in {
        sin_family: bindings::AF_INET as u16,
        sin_port: addr.port().to_be(),
        sin_addr: bindings::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        __pad: [0; 8],
    }
}

fn socket_addr(sin: &bindings::sockaddr_in) -> SocketAddrV6 {
    let ip = Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr));
    let port = u16::from_be(sin.sin_port);
    SocketAddrV6::new(ip.to_ipv6_mapped(), port, 0, 0)
}
