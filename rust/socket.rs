// SPDX-License-Identifier: GPL-2.0

//! Stream sockets: the socket calls of programs, on top of a channel.
//!
//! A [`Sock`] is the Rust side of a `struct sock`. It outlives the `struct sock` while its channel
//! closes in good order. References: the `struct sock` holds an `Arc<Sock>` until it is destroyed;
//! the `Sock` holds a counted `SkRef` until `release()`; the link and the channel table each hold
//! an `Arc<Sock>` while the channel is on the wire.
//!
//! Lock order:
//! 1. `config`: serialises bind, listen and connect. Sleeps.
//! 2. `Sockets::ports`, `Transport::links`, `RdmaDev` and `Link` mutexes. Sleep.
//! 3. `Link::tx` (spinlock).
//! 4. `Sock::inner` (spinlock), the lock of the connection. Never two at once, except that the link
//!    table, under its own lock, may try to lock another one.
//! 5. `Table` (spinlock, `transport/conn_table.rs`); `Sock::asked` (spinlock), the program's
//!    settings; the wait queues.
//!
//! No lock is held while data is copied to or from a program. `rx_locked` and `tx_locked` in
//! [`Inner`] are flags instead, and threads sleep on them as they sleep on data.

#![deny(unsafe_code)]

mod area;
mod carried;
mod close;
mod conn_ops;
mod connect;
pub(crate) mod context;
mod cork;
mod deliver;
mod escape;
mod fallback;
mod info;
mod lessee;
mod linger;
mod listen;
mod mapped;
mod notify;
mod options;
pub(crate) mod owner;
mod pages;
pub(crate) mod ports;
mod ready;
mod recv;
mod ring;
pub(crate) mod rules;
mod send;
mod sndbuf;
mod splice;
pub(crate) mod tcp;
mod trace;
mod turns;
mod user_timeout;
mod window;

pub(crate) use info::be32;
use ports::Ports;

use core::net::SocketAddrV6;

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

use crate::kern::area::Area;
use crate::kern::errno::{ECONNRESET, ENOTCONN, EPROTONOSUPPORT};
use crate::kern::lockdep::{self, HandMade};
use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::kern::sock::family::{Accepted, Incoming, Kind, Name, SocketOps};
use crate::kern::sock::msg::{RecvMsg, SendMsg};
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::kern::sock::pipe::Pipe;
use crate::kern::sock::tcp::Tcp;
use crate::kern::sock::zerocopy::Notification;
use crate::kern::sock::{Call, PollCall, Shutdown, Sk, SkRef};
use crate::kern::trace::{self as tracepoint, DataPath};
use crate::kern::vma::NewVma;
use crate::kern::wait::WaitQueue;
use crate::params;
use crate::pool::reserve::{ConnReserved, REFUSED};
use crate::pool::window::{Gone, Window};
use crate::pool::Held;
use crate::proto::addr::{Addr, Ip};
use crate::proto::area_ring::AreaRing;
use crate::proto::channel::{Channel, Failure, Limits, Progress, WINDOW_MAX};
use crate::proto::connect_backoff::ConnectBackoff;
use crate::proto::fallback::{EndedBy, Why};
use crate::proto::options::Options;
use crate::proto::ports::Binding;
use crate::proto::readiness::Phase;
use crate::proto::rx_queue::{RxQueue, Segment};
use crate::proto::sizing;
use crate::proto::user_timeout::UserTimeout;
use crate::proto::wire::SMALL_MAX;
use crate::stats::{Stat, STATS};
use crate::transport::cm::errno_of;
use crate::transport::conn::{Conn, TxBlocked};
use crate::transport::conn_table::{free_word, ConnWord};
use crate::transport::link::Link;
use crate::uapi;

use context::Sockets;
use cork::Cork;
use fallback::Decision;
use owner::Owner;
use ring::Ring;
use tcp::TcpMode;

/// Bytes sent, received and copied by one socket.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) tx_bytes: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_copied: u64,
    pub(crate) rx_copied: u64,
}

impl Counters {
    /// Counts `n` bytes that were sent, `copied` of them copies, here and in the module's counters.
    fn sent(&mut self, n: usize, copied: usize) {
        add(&mut self.tx_bytes, &STATS.tx_bytes, n);
        add(&mut self.tx_copied, &STATS.tx_copied, copied);
    }

    /// Counts `n` bytes that a program has received, and `copied` bytes that it got as a copy.
    fn received(&mut self, n: usize, copied: usize) {
        add(&mut self.rx_bytes, &STATS.rx_bytes, n);
        add(&mut self.rx_copied, &STATS.rx_copied, copied);
    }
}

/// Counts `n` more in a socket's counter and in the module's.
fn add(to: &mut u64, all: &Stat, n: usize) {
    if n > 0 {
        *to = to.wrapping_add(n as u64);
        all.add(n as u64);
    }
}

/// A stream socket.
#[pin_data]
pub(crate) struct Sock {
    pub(crate) ctx: Arc<Sockets>,
    pub(crate) net: Net,
    /// Whether the socket's family is AF_INET6.
    v6: bool,
    tx_blocked: TxBlocked,
    /// TCP_USER_TIMEOUT, in milliseconds; 0: none.
    user_ms: Atomic<u32>,
    /// TCP_CORK.
    corks: Atomic<bool>,
    /// The socket has or had an inner TCP socket.
    has_tcp: Atomic<bool>,
    #[pin]
    config: Mutex<()>,
    /// The word of the connection's entry.
    word: Arc<ConnWord>,
    /// The connection. Its lock is the lock of its entry in the link table.
    #[pin]
    pub(crate) inner: SpinLock<Inner>,
    #[pin]
    asked: SpinLock<Asked>,
    #[pin]
    wait: WaitQueue,
}

/// The program's settings and requests, which sending and receiving do not need. The lock may be
/// taken under that of the connection.
struct Asked {
    /// The port that the socket holds in [`Ports`], and must give back. Changes under `config`, and
    /// when the socket is closed. [`Inner::has_port`] tells whether there is one.
    binding: Option<Binding>,
    /// The address given to bind(), if it left the choice of a port to connect() or listen().
    bound_ip: Option<Ip>,
    /// The owner, to whom the socket's memory is charged.
    owner: Owner,
    /// Options of level IPPROTO_TCP; `None`: none was ever set.
    options: Option<Arc<Options>>,
    /// Whether the socket gets an inner TCP socket. Changes under `config`.
    tcp_mode: TcpMode,
    /// The inner TCP socket. Set under `config`; taken by the last close.
    tcp: Option<Arc<Tcp>>,
    /// Why TCP carries the socket.
    why: Option<Why>,
    /// The last accept() took a ZRS connection: if both kinds wait, a TCP connection is next.
    tcp_turn: bool,
    /// The connections of a listener that wait for accept(). Grows only under the listener's
    /// `inner` as well, while its phase is Listening.
    queue: KVec<Arc<Sock>>,
    backlog: usize,
    /// For a connection that waits for accept(): the SO_RCVBUF of its listener, if it was set.
    rcvbuf: Option<u32>,
    /// The address range into which the program wants received pages to be mapped.
    area: Option<Arc<Area>>,
    /// No connect() has reported the open connection yet.
    connect_unreported: bool,
    /// The last poll() or select() call that busy-polled, and when its time for that ends, in
    /// nanoseconds of the monotonic clock.
    busy_call: (usize, u64),
}

/// The connection of a socket, and those properties of the socket that sending and receiving need.
pub(crate) struct Inner {
    pub(crate) phase: Phase,
    pub(crate) local: Addr,
    pub(crate) remote: Addr,
    /// The socket has a port, [`Asked::binding`]. Changes under both locks.
    has_port: bool,
    pub(crate) sk: Option<SkRef>,
    /// The attempt to connect with ZRS that may be followed by one with TCP. Set under `config`.
    decision: Option<Arc<Decision>>,
    /// When that is if there is no link, in nanoseconds of the monotonic clock.
    fall_at: Option<u64>,
    /// The event that ends that attempt if it fails.
    ended_by: EndedBy,
    /// The last file descriptor was closed.
    pub(crate) released: bool,
    shut_read: bool,
    /// The program has shut its writing direction.
    shut_write: bool,
    /// A call has sent bytes to a peer that had closed.
    sent_in_vain: bool,
    /// The MSG_ZEROCOPY notification of that call, while the device reads pages of earlier calls.
    last_notice: Option<Notification>,
    conn: Conn,
    pub(crate) counters: Counters,
    /// The channel's failure was put into SO_ERROR.
    reported: bool,
    pub(crate) rx: RxQueue<KVec<Option<Segment<Held>>>>,
    /// Number of segments that have arrived on this socket.
    pub(crate) arrived: u64,
    ring: Option<Arc<Ring>>,
    /// The parts of the ring's escape area that are in use.
    escape_area: AreaRing,
    /// The parts of its small area that are in use.
    small_area: AreaRing,
    /// Limits on the data that the peer may send before it is read.
    limits: Limits,
    /// Main memory that is promised for the small messages that the peer may send.
    small_promise: Option<ConnReserved>,
    /// Main memory that is promised for data moved out of a window.
    promise: Option<escape::Promise>,
    /// The module watches for lent pages that the program gives back.
    tracks_mapped: bool,
    pub(crate) window: Option<Arc<Window>>,
    /// A former window; the program may still have some of its pages.
    kept: Option<Arc<Gone>>,
    rx_locked: bool,
    /// A receiver found `rx_locked` taken.
    rx_contended: bool,
    tx_locked: bool,
    /// A sender found `tx_locked` taken.
    tx_contended: bool,
    /// A sender that waits for nothing but `tx_locked` found it taken.
    lock_waiter: bool,
    /// Bytes that count against SO_SNDBUF; see `sndbuf.rs`.
    tx_held: u64,
    /// A sender found SO_SNDBUF used up.
    tx_full: bool,
    /// The last copied message was sent unsignaled, because it left enough room in SO_SNDBUF.
    tx_unsignaled: bool,
    /// Corked bytes.
    cork: Cork,
    /// When the present wait (for connect(), for a window that the peer must give back, or for the
    /// channel of a closed socket to end) times out, in nanoseconds of the monotonic clock.
    pub(crate) deadline: Option<u64>,
    /// Counts the program's connects; identifies the present one.
    attempt: u32,
    /// How often the connect was retried because its link went down.
    retries: u8,
    /// How often the connect was retried because its link was stale.
    stale_tries: u8,
    /// Retries because the peer's backlog was full.
    pub(crate) backoff: ConnectBackoff,
    /// TCP_USER_TIMEOUT: how long the peer has kept an open connection waiting.
    user_timeout: UserTimeout<Progress>,
}

impl Inner {
    /// The only place that changes the phase. Fresh -> Connecting, Listening or (by accept())
    /// Connected. Connecting -> Connected or Failed, or Connecting again. Failed -> Fresh or
    /// Connecting. Listening -> Fresh. Fresh or Connecting -> Carried. Connected and Carried are
    /// final.
    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// When the timers of the socket must be checked next, in nanoseconds of the monotonic clock;
    /// `None`: no timer runs.
    pub(crate) fn due(&self) -> Option<u64> {
        let cork = self.cork.until();
        let all = [
            self.deadline,
            self.fall_at,
            self.backoff.at(),
            self.user_timeout.at(),
            cork,
        ];
        all.into_iter().flatten().min()
    }
}

impl Asked {
    /// The address given to bind(), also with a port of its choice.
    fn address(&self) -> Option<Ip> {
        let binding = self.binding.filter(|b| !b.chosen());
        binding.map(|b| b.addr().ip).or(self.bound_ip)
    }

    /// The local address of a socket without a port.
    fn unbound(&self, v6: bool) -> Addr {
        let any = any(v6);
        self.bound_ip.map_or(any, |ip| Addr::new(ip, 0))
    }
}

/// Lower limit for unread small messages, in bytes: the minimum of the protocol.
const LEAST_SMALL: u32 = 4 * SMALL_MAX;

/// Upper limit for the backlog of listen().
const MAX_BACKLOG: usize = 4096;

/// The unspecified address of a family, without a port.
fn any(v6: bool) -> Addr {
    Addr::new(if v6 { Ip::ANY } else { Ip::ANY_V4 }, 0)
}

impl Sock {
    /// Makes a socket of `owner` in network namespace `net`, of AF_INET6 if `v6` is set. Charged to
    /// the task, or to the owner that the caller has made current. May sleep. ENOMEM.
    fn new(ctx: Arc<Sockets>, net: Net, v6: bool, owner: Owner) -> Result<Arc<Self>> {
        let none = any(v6);
        let tcp_mode = TcpMode::of_net(&net);
        let word = Arc::new(free_word(), CHARGED)?;
        let sock = Arc::pin_init(
            try_pin_init!(Self {
                ctx,
                net,
                v6,
                tx_blocked: TxBlocked::new(),
                user_ms: Atomic::new(0),
                corks: Atomic::new(false),
                word,
                has_tcp: Atomic::new(false),
                config <- new_mutex!((), "zrs_sock::config"),
                inner <- new_spinlock!(Inner {
                    phase: Phase::Fresh,
                    local: none,
                    remote: none,
                    has_port: false,
                    sk: None,
                    decision: None,
                    fall_at: None,
                    ended_by: EndedBy::Peer,
                    released: false,
                    shut_read: false,
                    shut_write: false,
                    sent_in_vain: false,
                    last_notice: None,
                    conn: Conn::none(),
                    counters: Counters::default(),
                    reported: false,
                    rx: RxQueue::new(KVec::new()),
                    arrived: 0,
                    ring: None,
                    escape_area: AreaRing::default(),
                    small_area: AreaRing::default(),
                    limits: params::LIMITS,
                    small_promise: None,
                    promise: None,
                    tracks_mapped: false,
                    window: None,
                    kept: None,
                    rx_locked: false,
                    rx_contended: false,
                    tx_locked: false,
                    tx_contended: false,
                    lock_waiter: false,
                    tx_held: 0,
                    tx_full: false,
                    tx_unsignaled: false,
                    cork: Cork::default(),
                    deadline: None,
                    attempt: 0,
                    retries: 0,
                    stale_tries: 0,
                    backoff: ConnectBackoff::default(),
                    user_timeout: UserTimeout::default(),
                }, "zrs_sock::inner"),
                asked <- new_spinlock!(Asked {
                    binding: None,
                    bound_ip: None,
                    owner,
                    options: None,
                    tcp_mode,
                    tcp: None,
                    why: None,
                    tcp_turn: false,
                    queue: KVec::new(),
                    backlog: 0,
                    rcvbuf: None,
                    area: None,
                    connect_unreported: false,
                    busy_call: (0, 0),
                }, "zrs_sock::asked"),
                wait <- crate::new_wait_queue!("zrs_sock::wait"),
            }),
            CHARGED,
        )?;
        Ok(sock)
    }

    /// Promises main memory for all small messages that the peer may send. ENOBUFS if there is not
    /// enough.
    fn promise_small(&self) -> Result {
        loop {
            let small = {
                let inner = self.inner.lock();
                let small = u64::from(inner.limits.small);
                // An earlier attempt to connect may have had other limits.
                if inner.small_promise.as_ref().map(ConnReserved::bytes) == Some(small) {
                    return Ok(());
                }
                small
            };
            let pools = &self.ctx.transport.pools;
            let promise = ConnReserved::new(pools, self.holder(), small).inspect_err(|_| {
                REFUSED.add(1);
            })?;
            self.inner.lock().small_promise = Some(promise);
        }
    }

    /// The limits of a connection of `sk`, or of one that it accepts. SO_RCVBUF, if set, also
    /// bounds the small messages.
    fn limits_of(sk: &Sk) -> Limits {
        let mut limits = params::LIMITS;
        if let Some(bytes) = sk.rcvbuf_set() {
            limits.small = bytes.clamp(LEAST_SMALL, limits.small);
        }
        limits
    }

    /// The largest window that the socket may lease, in bytes: SO_RCVBUF, if set, bounds it.
    pub(crate) fn most_window(&self) -> usize {
        let rcvbuf = {
            let inner = self.inner.lock();
            match &inner.sk {
                Some(sk) => sk.rcvbuf_set(),
                None => self.asked.lock().rcvbuf,
            }
        };
        rcvbuf.map_or(WINDOW_MAX, sizing::window_for) as usize
    }

    fn sk(&self) -> Option<SkRef> {
        self.inner.lock().sk.clone()
    }

    /// The link that carries the socket's channel.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.inner.lock().conn.link.clone()
    }

    /// Lets the link send the channel's control messages. Takes the link's and the socket's lock.
    pub(crate) fn kick(self: &Arc<Self>) {
        if let Some(link) = self.link() {
            link.kick(self);
        }
    }

    /// The channel has a timer from now on, or an earlier one. Sleeps.
    fn arm_timer(&self) {
        self.ctx.transport.arm_timer(self);
    }

    /// Returns the pending error and clears it, as SO_ERROR does.
    fn take_error(&self) -> Result {
        match self.sk().and_then(|sk| sk.take_err()) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Releases the channel's place on the link, and other resources, if the channel has ended or
    /// its link is gone. Does nothing while the channel lives. Does not sleep. The caller holds no
    /// locks.
    pub(crate) fn try_finish(self: &Arc<Self>) {
        let (link, place, entry, unsignaled, lost, window_done) = {
            let inner = &mut *self.inner.lock();
            let window_done = inner.is_window_done();
            let over = inner.conn.chan.is_over();
            // Messages in flight hold references to the socket.
            let unsignaled = inner.unsignaled_message().filter(|_| over);
            let link = if over { inner.conn.link.take() } else { None };
            let place = inner.conn.chan.flow();
            // While the socket is open, the program may still ask for the channel's state.
            let entry = inner.released.then(|| inner.conn.chan.take_ended());
            let lost = over.then(|| inner.lose_cork());
            (link, place, entry.flatten(), unsignaled, lost, window_done)
        };
        drop(lost);
        Sock::ask_done(unsignaled);
        if let (Some(link), Some(place)) = (link, place) {
            link.detach(place);
        }
        if window_done {
            self.try_release_window();
        }
        drop(entry);
    }

    /// The device is done with the channel's memory up to `pos`. Threads wait for pinned pages
    /// only, so the completion of a copied message behind these pages wakes no thread.
    pub(crate) fn tx_complete(self: &Arc<Self>, pos: u64) {
        let (notice, flush, wake) = {
            let inner = &mut *self.inner.lock();
            inner.conn.completed(pos);
            let notice = match inner.conn.has_pinned() {
                true => None,
                false => inner.last_notice.take(),
            };
            let wake = pos <= inner.conn.pinned_end();
            (notice, inner.autocork_ends(), wake)
        };
        drop(notice);
        if wake {
            self.wait.wake_all();
        }
        if flush {
            self.flush();
        }
    }
}

/// Puts the channel's failure into SO_ERROR, once, unless it is followed by an attempt to connect
/// with TCP. Returns whether it was new.
pub(crate) fn report_failure(inner: &mut Inner) -> bool {
    let Some(failure) = inner.conn.chan.with(|c| c.failure()).flatten() else {
        return false;
    };
    if core::mem::replace(&mut inner.reported, true) {
        return false;
    }
    if matches!(inner.phase, Phase::Connecting) {
        if inner.falls_back(failure) {
            return true;
        }
        inner.set_phase(Phase::Failed);
        inner.deadline = None;
        tracepoint::connect(|| (inner.ends(), errno_of(failure).to_errno()));
    }
    let error = error_of(inner, failure);
    if let Some(sk) = &inner.sk {
        sk.set_err(error);
    }
    true
}

/// The error number that a failure of the connection leaves in SO_ERROR; as with TCP, that of a
/// reset in state CLOSE-WAIT is EPIPE.
fn error_of(inner: &Inner, failure: Failure) -> Error {
    let closing = !inner.shut_write && inner.conn.chan.is_some_and(Channel::fin_received);
    match errno_of(failure) {
        ECONNRESET if closing => EPIPE,
        error => error,
    }
}

impl SocketOps for Sock {
    const KIND: Kind = Kind::Stream;
    const PROTOCOL: u16 = uapi::IPPROTO_ZRS;
    const BESIDE: u16 = uapi::IPPROTO_ZRS_AUTO;
    const NAME: &'static CStr = c"ZRS";
    const NAME_V6: &'static CStr = c"ZRSv6";
    const SUPPORT_ZC: bool = true;
    const LEVEL: i32 = uapi::SOL_ZRS;

    type Context = Sockets;

    fn init(ctx: &Arc<Sockets>, sk: &Sk) -> Result<Arc<Self>> {
        // TCP carries the connections of a program that did not ask for ZRS.
        let beside = sk.protocol() == uapi::IPPROTO_ZRS_AUTO;
        if params::DRAIN.get() != 0 && !beside {
            return Err(EPROTONOSUPPORT);
        }
        match ctx.transport.pools.await_pools() {
            // Connections that need a pool use TCP.
            Err(_) if beside => {}
            made => made?,
        }
        let net = sk.net();
        let owner = Owner::of(sk, &net);
        let sock = Sock::new(ctx.clone(), net, sk.is_v6(), owner)?;
        if beside {
            sock.asked.lock().tcp_mode = TcpMode::Auto;
        }
        sock.ctx.transport.socket_opened(&sock.net)?;
        Ok(sock)
    }

    fn attach(self: &Arc<Self>, sk: SkRef) {
        STATS.sockets.add(1);
        let owner = Owner::of(&sk, &self.net);
        let before = core::mem::replace(&mut self.asked.lock().owner, owner);
        drop(before);
        let mut inner = self.inner.lock();
        sk.set_local(inner.local.into());
        sk.set_remote(inner.remote.into());
        if inner.reported {
            // A connection that failed before it was accepted.
            if let Some(failure) = inner.conn.chan.with(|c| c.failure()).flatten() {
                sk.set_err(error_of(&inner, failure));
            }
        }
        inner.sk = Some(sk);
        drop(inner);
        self.keep_alive();
        // The listener's SO_RCVBUF may have changed since.
        self.rcvbuf_changed();
    }

    fn keepalive_changed(self: &Arc<Self>) {
        self.keep_alive();
    }

    fn buffers_changed(self: &Arc<Self>) {
        self.sndbuf_changed();
        self.rcvbuf_changed();
    }

    fn release(self: &Arc<Self>) {
        self.close();
    }

    fn bind(self: &Arc<Self>, addr: SocketAddrV6, call: &Call<'_>) -> Result {
        Sock::bind(self, addr.into(), call)
    }

    fn connect(self: &Arc<Self>, addr: SocketAddrV6, nonblock: bool, call: &Call<'_>) -> Result {
        Sock::connect(self, addr.into(), nonblock, call)
    }

    fn tcp_connected(self: &Arc<Self>) {
        self.tcp_is_connected();
    }

    fn listen(self: &Arc<Self>, backlog: u32, call: &Call<'_>) -> Result {
        Sock::listen(self, (backlog as usize).min(MAX_BACKLOG), call)
    }

    fn accept(
        self: &Arc<Self>,
        nonblock: bool,
        incoming: &mut dyn Incoming,
    ) -> Result<Accepted<Self>> {
        Sock::accept(self, nonblock, incoming)
    }

    fn name(self: &Arc<Self>, which: Name) -> Result<SocketAddrV6> {
        let inner = self.inner.lock();
        match which {
            Name::Local => Ok(inner.local.into()),
            _ if !matches!(inner.phase, Phase::Connected) => Err(ENOTCONN),
            Name::Peer if inner.is_disconnected() => Err(ENOTCONN),
            Name::Peer | Name::Accepted => Ok(inner.remote.into()),
        }
    }

    fn poll(self: &Arc<Self>, asked: u32, busy: Option<PollCall>) -> u32 {
        self.poll_events(asked, busy) | self.tcp_events()
    }

    fn shutdown(self: &Arc<Self>, how: Shutdown) -> Result {
        Sock::shutdown(self, how)
    }

    fn sendmsg(self: &Arc<Self>, msg: &mut SendMsg<'_>) -> Result<usize> {
        let (want, mut way) = (msg.len(), DataPath::Copy);
        let result = self.send(msg, &mut way);
        self.trace_sent(want, &result, way);
        result
    }

    fn fast_open(self: &Arc<Self>, call: &Call<'_>) -> Result {
        Sock::fast_open(self, call)
    }

    fn recvmsg(self: &Arc<Self>, msg: &mut RecvMsg<'_>) -> Result<usize> {
        let want = msg.len();
        let result = self.recv(msg);
        self.trace_received(want, &result, DataPath::Copy);
        result
    }

    fn splice_read(
        self: &Arc<Self>,
        pipe: &mut Pipe<'_>,
        len: usize,
        nonblock: bool,
    ) -> Result<usize> {
        let result = self.splice(pipe, len, nonblock);
        self.trace_received(len, &result, DataPath::Splice);
        result
    }

    fn splice_eof(self: &Arc<Self>) {
        // As with TCP, TCP_CORK takes precedence.
        if !self.corks() {
            self.flush();
        }
    }

    fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize, nonblock: bool) -> Result<i32> {
        Sock::ioctl(self, cmd, arg, nonblock)
    }

    fn queued(self: &Arc<Self>, cmd: u32) -> Result<u64> {
        Sock::queued(self, cmd)
    }

    fn may_use_tcp(self: &Arc<Self>) -> Result {
        tcp::may_have(&self.net)
    }

    fn inner_tcp(self: &Arc<Self>, call: &Call<'_>, carried: bool) -> Result<Option<Arc<Tcp>>> {
        self.inner_tcp_for(call, carried)
    }

    fn setsockopt(
        self: &Arc<Self>,
        level: i32,
        name: i32,
        val: OptIn<'_>,
        call: &Call<'_>,
    ) -> Result {
        self.set_option(level, name, val, call)
    }

    fn getsockopt(self: &Arc<Self>, level: i32, name: i32, out: OptOut) -> Result {
        self.get_option(level, name, out)
    }

    fn mmap(self: &Arc<Self>, vma: NewVma<'_>) -> Result {
        self.map(vma)
    }
}

/// Takes a lock flag if it is free. Another thread may release it, so lockdep is told of the
/// acquisition only.
fn try_lock(locked: &mut bool) -> bool {
    let free = !core::mem::replace(locked, true);
    if free {
        let _ = lockdep::acquired(HandMade::Turn);
    }
    free
}
