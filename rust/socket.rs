// SPDX-License-Identifier: GPL-2.0

//! Stream sockets: what a program's socket calls do to a channel.
//!
//! A [`Sock`] is the Rust side of a `struct sock` and lives on without one while its channel ends
//! in good order. Who owns what: the `struct sock` holds an `Arc<Sock>` until it is destroyed; the
//! `Sock` holds a counted `SkRef` until `release()`; the link and the channel table hold an
//! `Arc<Sock>` each while the channel is on the wire.
//!
//! Locks, in the order in which they may be taken:
//! 1. `config`: serialises bind, listen and connect. Sleeps.
//! 2. `Sockets::ports`, `Transport::links`, `RdmaDev` and `Link` mutexes. Sleep.
//! 3. `Link::tx` (spinlock).
//! 4. `Sock::inner` (spinlock). Never two at once, except that the link table, under its own lock,
//!    may try to lock another one.
//! 5. `Table` (spinlock, `transport/conn_table.rs`), and the wait queues.
//!
//! Copies to and from programs happen under none of them: `rx_locked` and `tx_locked` in [`Inner`]
//! are flags, waited for like data.

#![deny(unsafe_code)]

mod area;
mod close;
mod connect;
pub(crate) mod context;
mod cork;
mod escape;
mod info;
mod lessee;
mod linger;
mod listen;
mod mapped;
mod options;
mod owner;
mod ports;
mod ready;
mod recv;
mod ring;
mod send;
mod sndbuf;
mod splice;
mod tcp;
mod trace;
mod user_timeout;
mod window;

pub(crate) use info::be32;
use ports::Ports;
pub(crate) use recv::Held;
pub(crate) use sndbuf::Charge;

use core::net::SocketAddrV6;

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

use crate::kern::area::Area;
use crate::kern::errno::{
    ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH, ENOBUFS, ENOTCONN, EPROTO,
};
use crate::kern::lockdep::{self, HandMade};
use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::kern::sock::family::{Accepted, Incoming, SocketOps};
use crate::kern::sock::msg::{RecvMsg, SendMsg};
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::kern::sock::pipe::Pipe;
use crate::kern::sock::tcp::Tcp;
use crate::kern::sock::{Call, PollCall, Shutdown, Sk, SkRef};
use crate::kern::trace::{self as tracepoint, DataPath};
use crate::kern::vma::NewVma;
use crate::kern::wait::WaitQueue;
use crate::params;
use crate::pool::reserve::{Reserved, REFUSED};
use crate::pool::window::{Gone, Window};
use crate::proto::addr::{Addr, Ip};
use crate::proto::area_ring::AreaRing;
use crate::proto::channel::{Failure, Limits, Progress, WINDOW_MAX};
use crate::proto::connect_backoff::ConnectBackoff;
use crate::proto::options::Options;
use crate::proto::ports::Binding;
use crate::proto::readiness::Phase;
use crate::proto::rx_queue::{RxQueue, Segment};
use crate::proto::sizing;
use crate::proto::user_timeout::UserTimeout;
use crate::proto::wire::SMALL_MAX;
use crate::proto::ChanId;
use crate::stats::{Counter, Stat, STATS};
use crate::transport::conn_table::Chan;
use crate::transport::link::Link;
use crate::uapi;

use context::Sockets;
use cork::Cork;
use owner::Owner;
use ring::Ring;
use tcp::TcpMode;

/// Bytes and their copies, for one socket.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) tx_bytes: Atomic64,
    pub(crate) rx_bytes: Atomic64,
    pub(crate) tx_copied: Atomic64,
    pub(crate) rx_copied: Atomic64,
}

/// A counter of one socket.
pub(crate) struct Atomic64(Counter);

impl Default for Atomic64 {
    fn default() -> Self {
        Self(Counter::new())
    }
}

impl Atomic64 {
    /// Counts in the socket and in the whole module.
    fn add(&self, all: &Stat, n: usize) {
        self.0.add(n as u64);
        all.add(n as u64);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A stream socket.
#[pin_data]
pub(crate) struct Sock {
    pub(crate) ctx: Arc<Sockets>,
    pub(crate) net: Net,
    /// A socket of AF_INET6.
    v6: bool,
    pub(crate) counters: Counters,
    /// The link had no room when this socket wanted to send small messages, or bulk data: wake it when there is.
    tx_blocked: [Atomic<bool>; 2],
    /// What is held back waits for room on the link, or for the turn to send. Changes under `inner`.
    cork_blocked: Atomic<bool>,
    /// TCP_USER_TIMEOUT, in milliseconds; 0: none.
    user_ms: Atomic<u32>,
    /// There is, or was, a TCP socket inside.
    has_tcp: Atomic<bool>,
    #[pin]
    config: Mutex<()>,
    #[pin]
    pub(crate) inner: SpinLock<Inner>,
    #[pin]
    wait: WaitQueue,
}

/// What the spinlock of a socket guards.
pub(crate) struct Inner {
    pub(crate) phase: Phase,
    pub(crate) local: Addr,
    pub(crate) remote: Addr,
    /// The port that is ours in [`Ports`], and must be given back. Changes under `config`, and when the
    /// socket is closed.
    binding: Option<Binding>,
    /// bind() has given an address, and left the port to connect() or listen().
    bound_ip: Option<Ip>,
    pub(crate) sk: Option<SkRef>,
    /// Who pays for it.
    owner: Owner,
    /// Options of level IPPROTO_TCP; `None`: none was ever set.
    options: Option<Arc<Options>>,
    /// Whether it is to have TCP beside ZRS. Changes under `config`.
    tcp_mode: TcpMode,
    /// The TCP socket inside. Is set under `config`, and taken by the last close.
    tcp: Option<Arc<Tcp>>,
    /// accept() has taken a connection of ZRS last: if both have one, it is TCP's turn.
    tcp_turn: bool,
    /// The last file descriptor is closed.
    pub(crate) released: bool,
    shut_read: bool,
    /// The program has shut its writing direction.
    shut_write: bool,
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) chan: Chan,
    /// The channel is in its link's list of those with something to say.
    pub(crate) queued: bool,
    /// The failure of the channel has been put into SO_ERROR.
    reported: bool,
    pub(crate) rx: RxQueue<KVec<Option<Segment<Held>>>>,
    /// Segments that ever arrived.
    pub(crate) arrived: u64,
    ring: Option<Arc<Ring>>,
    /// What of its escape area is in use.
    escape_area: AreaRing,
    /// What the peer may have outstanding.
    limits: Limits,
    /// SO_RCVBUF of the listener, if that has set it, for a connection that waits for accept().
    rcvbuf: Option<u32>,
    /// Main memory that is promised to what small messages the peer may send,
    small_promise: Option<Reserved>,
    /// and to what has been moved out of a window.
    promise: Option<escape::Promise>,
    /// Where the program wants what is mapped.
    area: Option<Arc<Area>>,
    /// The host looks for pages that were lent.
    tracks_mapped: bool,
    pub(crate) window: Option<Arc<Window>>,
    /// A former window that the program may have pages of.
    kept: Option<Arc<Gone>>,
    rx_locked: bool,
    /// A receiver found `rx_locked` taken.
    rx_contended: bool,
    tx_locked: bool,
    /// Somebody found `tx_locked` taken,
    tx_contended: bool,
    /// or somebody who needs nothing else.
    cork_waiter: bool,
    /// Somebody found the channel without room to send.
    pub(crate) wants_room: bool,
    /// Position in the stream up to which the device is done with our memory.
    pub(crate) tx_done: u64,
    /// Position up to which chunks were posted.
    pub(crate) tx_posted: u64,
    /// Of it, up to where the last one ends that was sent from the program's pages.
    pub(crate) tx_pinned: u64,
    /// The last one's number on the link.
    pub(crate) tx_seq: u64,
    /// Number and end of one of them: when the device is known to be done with it, so it is with what
    /// was before.
    pub(crate) tx_mark: (u64, u64),
    /// Bytes that count against SO_SNDBUF; see `sndbuf.rs`.
    tx_held: u64,
    /// Somebody found no room for more of them.
    tx_full: bool,
    /// The last message that was copied has no completion of its own, as it left enough room.
    tx_unsignaled: bool,
    /// What is held back.
    cork: Cork,
    /// Listening: connections that wait for accept().
    queue: KVec<Arc<Sock>>,
    backlog: usize,
    /// When connect() gives up, in nanoseconds of the monotonic clock.
    pub(crate) deadline: Option<u64>,
    /// The channel of which the host watches the deadline.
    pub(crate) watched: Option<ChanId>,
    /// No connect() has said yet that the connection is open.
    connect_unreported: bool,
    /// The last poll() or select() that began to poll instead of sleeping, and when its time is over, in nanoseconds of
    /// the monotonic clock.
    busy_call: (usize, u64),
    /// Which of the program's connects this is.
    attempt: u32,
    /// How often CONNECT has been tried again because its link went down,
    retries: u8,
    /// and because the peer took the link for one of a former life of this host.
    stale_tries: u8,
    /// and because the peer's backlog was full.
    pub(crate) backoff: ConnectBackoff,
    /// For how long the peer has kept an open connection waiting.
    user_timeout: UserTimeout<Progress>,
}

impl Inner {
    /// The only place that changes the phase: Fresh -> Connecting, Listening or (by accept()) Connected; Connecting ->
    /// Connected or Failed, or Connecting once more; Failed -> Fresh or Connecting; Listening -> Fresh. Connected is final.
    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// The address of a socket that has no port.
    fn unbound(&self, v6: bool) -> Addr {
        let any = any(v6);
        self.bound_ip.map_or(any, |ip| Addr::new(ip, 0))
    }

    /// When its channel is to be looked at, in nanoseconds of the monotonic clock; `None`: there is no need.
    pub(crate) fn due(&self) -> Option<u64> {
        let cork = self.cork.until();
        let all = [
            self.deadline,
            self.backoff.at(),
            self.user_timeout.at(),
            cork,
        ];
        all.into_iter().flatten().min()
    }
}

/// The least that may be unread of small messages, in bytes: what the protocol asks for.
const LEAST_SMALL: u32 = 4 * SMALL_MAX;

/// Most connections that wait for accept(), whatever listen() asked for.
const MAX_BACKLOG: usize = 4096;

/// No address, in one of the families, and no port.
fn any(v6: bool) -> Addr {
    Addr::new(if v6 { Ip::ANY } else { Ip::ANY_V4 }, 0)
}

impl Sock {
    /// A socket of `owner`'s in network namespace `net`, of AF_INET6 if `v6` says so; the caller pays, or whom it
    /// charges. May sleep. ENOMEM.
    fn new(ctx: Arc<Sockets>, net: Net, v6: bool, owner: Owner) -> Result<Arc<Self>> {
        let none = any(v6);
        let sock = Arc::pin_init(
            try_pin_init!(Self {
                ctx,
                net,
                v6,
                counters: Counters::default(),
                tx_blocked: [Atomic::new(false), Atomic::new(false)],
                cork_blocked: Atomic::new(false),
                user_ms: Atomic::new(0),
                has_tcp: Atomic::new(false),
                config <- new_mutex!((), "zrs_sock::config"),
                inner <- new_spinlock!(Inner {
                    phase: Phase::Fresh,
                    local: none,
                    remote: none,
                    binding: None,
                    bound_ip: None,
                    sk: None,
                    owner,
                    options: None,
                    tcp_mode: TcpMode::of_module(),
                    tcp: None,
                    tcp_turn: false,
                    released: false,
                    shut_read: false,
                    shut_write: false,
                    link: None,
                    chan: Chan::none(),
                    queued: false,
                    reported: false,
                    rx: RxQueue::new(KVec::new()),
                    arrived: 0,
                    ring: None,
                    escape_area: AreaRing::default(),
                    limits: params::LIMITS,
                    rcvbuf: None,
                    small_promise: None,
                    promise: None,
                    area: None,
                    tracks_mapped: false,
                    window: None,
                    kept: None,
                    rx_locked: false,
                    rx_contended: false,
                    tx_locked: false,
                    tx_contended: false,
                    cork_waiter: false,
                    wants_room: false,
                    tx_done: 0,
                    tx_posted: 0,
                    tx_pinned: 0,
                    tx_seq: 0,
                    tx_mark: (0, 0),
                    tx_held: 0,
                    tx_full: false,
                    tx_unsignaled: false,
                    cork: Cork::default(),
                    queue: KVec::new(),
                    backlog: 0,
                    deadline: None,
                    watched: None,
                    connect_unreported: false,
                    busy_call: (0, 0),
                    attempt: 0,
                    retries: 0,
                    stale_tries: 0,
                    backoff: ConnectBackoff::default(),
                    user_timeout: UserTimeout::default(),
                }, "zrs_sock::inner"),
                wait <- crate::new_wait_queue!("zrs_sock::wait"),
            }),
            CHARGED,
        )?;
        Ok(sock)
    }

    /// What small messages the peer may send can be kept whatever happens. ENOBUFS if that cannot be promised.
    fn promise_small(&self) -> Result {
        loop {
            let small = {
                let inner = self.inner.lock();
                let small = u64::from(inner.limits.small);
                // Another attempt to connect may have had other limits.
                if inner.small_promise.as_ref().map(Reserved::bytes) == Some(small) {
                    return Ok(());
                }
                small
            };
            let promise = Reserved::new(small).inspect_err(|_| {
                REFUSED.add(1);
            })?;
            self.inner.lock().small_promise = Some(promise);
        }
    }

    /// The limits of a connection of `sk`'s, or of one that it takes: SO_RCVBUF, if set, bounds the small messages, too.
    fn limits_of(sk: &Sk) -> Limits {
        let mut limits = params::LIMITS;
        if let Some(bytes) = sk.rcvbuf_set() {
            limits.small = bytes.clamp(LEAST_SMALL, limits.small);
        }
        limits
    }

    /// The largest window that it may lease, in bytes: SO_RCVBUF, if set, bounds it.
    pub(crate) fn most_window(&self) -> usize {
        let rcvbuf = {
            let inner = self.inner.lock();
            match &inner.sk {
                Some(sk) => sk.rcvbuf_set(),
                None => inner.rcvbuf,
            }
        };
        rcvbuf.map_or(WINDOW_MAX, sizing::window_for) as usize
    }

    fn sk(&self) -> Option<SkRef> {
        self.inner.lock().sk.clone()
    }

    /// The link that carries the socket's channel.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.inner.lock().link.clone()
    }

    /// Lets the link send what the channel has to say. Takes the link's and the socket's lock.
    pub(crate) fn kick(self: &Arc<Self>) {
        if let Some(link) = self.link() {
            link.kick(self);
        }
    }

    /// The pending error, which is cleared by that, as SO_ERROR does.
    fn take_error(&self) -> Result {
        match self.sk().and_then(|sk| sk.take_err()) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// The channel has come to its end on the wire or its link is gone: lets go of everything
    /// that the wire needed. Does nothing while the channel lives. Does not sleep; without locks.
    pub(crate) fn try_finish(self: &Arc<Self>) {
        let (link, place, entry, unsignaled, lost, window_done) = {
            let inner = &mut *self.inner.lock();
            let window_done = inner.is_window_done();
            let over = inner.chan.is_over();
            // What is under way holds the socket.
            let unsignaled = inner.unsignaled_message().filter(|_| over);
            let link = if over { inner.link.take() } else { None };
            let place = inner.chan.flow();
            // A program that is there may still ask what has become of it.
            let entry = inner.released.then(|| inner.chan.take_ended());
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

    /// The device is done with the channel's memory up to `pos`.
    pub(crate) fn tx_complete(&self, pos: u64) {
        {
            let mut inner = self.inner.lock();
            inner.tx_done = inner.tx_done.max(pos);
        }
        self.wait.wake_all();
    }
}

/// Puts the channel's failure into SO_ERROR, once. Returns whether it was new.
pub(crate) fn report_failure(inner: &mut Inner) -> bool {
    let Some(failure) = inner.chan.with(|c| c.failure()).flatten() else {
        return false;
    };
    if core::mem::replace(&mut inner.reported, true) {
        return false;
    }
    if matches!(inner.phase, Phase::Connecting) {
        inner.set_phase(Phase::Failed);
        inner.deadline = None;
        tracepoint::connect(|| (inner.ends(), errno_of(failure).to_errno()));
    }
    if let Some(sk) = &inner.sk {
        sk.set_err(errno_of(failure));
    }
    true
}

/// The errno of a failure.
pub(crate) fn errno_of(failure: Failure) -> Error {
    use crate::proto::wire::Refusal;
    match failure {
        Failure::Refused(Refusal::NoListener | Refusal::BacklogFull) => ECONNREFUSED,
        Failure::Refused(Refusal::NoResources) => ENOBUFS,
        Failure::Reset | Failure::LinkLost => ECONNRESET,
        Failure::TimedOut => ETIMEDOUT,
        Failure::Unreachable => EHOSTUNREACH,
        Failure::NoRoute => ENETUNREACH,
        Failure::NoDevice => ENODEV,
        Failure::NoResources => ENOMEM,
        Failure::Protocol => EPROTO,
    }
}

impl SocketOps for Sock {
    const PROTOCOL: u16 = uapi::IPPROTO_ZRS;
    const NAME: &'static CStr = c"ZRS";
    const NAME_V6: &'static CStr = c"ZRSv6";
    const SUPPORT_ZC: bool = true;

    type Context = Sockets;

    fn init(ctx: &Arc<Sockets>, sk: &Sk) -> Result<Arc<Self>> {
        ctx.transport.pools.make_pools()?;
        let net = sk.net();
        let owner = Owner::of(sk, &net);
        let sock = Sock::new(ctx.clone(), net, sk.is_v6(), owner)?;
        sock.ctx.transport.socket_opened(&sock.net)?;
        Ok(sock)
    }

    fn attach(self: &Arc<Self>, sk: SkRef) {
        STATS.sockets.add(1);
        let owner = Owner::of(&sk, &self.net);
        let mut inner = self.inner.lock();
        inner.owner = owner;
        sk.set_local(inner.local.into());
        sk.set_remote(inner.remote.into());
        if inner.reported {
            // A connection that failed before it was accepted.
            if let Some(failure) = inner.chan.with(|c| c.failure()).flatten() {
                sk.set_err(errno_of(failure));
            }
        }
        inner.sk = Some(sk);
        drop(inner);
        self.keep_alive();
        // Of the listener it may be another one by now.
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

    fn connect(self: &Arc<Self>, addr: SocketAddrV6, nonblock: bool) -> Result {
        Sock::connect(self, addr.into(), nonblock)
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

    fn name(self: &Arc<Self>, peer: bool) -> Result<SocketAddrV6> {
        let inner = self.inner.lock();
        if !peer {
            return Ok(inner.local.into());
        }
        match inner.phase {
            Phase::Connected => Ok(inner.remote.into()),
            _ => Err(ENOTCONN),
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
        // As with TCP, TCP_CORK is stronger.
        if !self.inner.lock().corks() {
            self.flush();
        }
    }

    fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize, nonblock: bool) -> Result<i32> {
        Sock::ioctl(self, cmd, arg, nonblock)
    }

    fn inner_tcp(self: &Arc<Self>, call: &Call<'_>, carried: bool) -> Result<Option<Arc<Tcp>>> {
        self.inner_tcp_for(call, carried)
    }

    fn setsockopt(self: &Arc<Self>, level: i32, name: i32, val: OptIn<'_>) -> Result {
        self.set_option(level, name, val)
    }

    fn getsockopt(self: &Arc<Self>, level: i32, name: i32, out: OptOut<'_>) -> Result {
        self.get_option(level, name, out)
    }

    fn mmap(self: &Arc<Self>, vma: NewVma<'_>) -> Result {
        self.map(vma)
    }
}

/// Takes a turn, if it is free. Another thread may end it, so that lockdep is told of the acquisition alone.
fn try_lock(locked: &mut bool) -> bool {
    let free = !core::mem::replace(locked, true);
    if free {
        let _ = lockdep::acquired(HandMade::Turn);
    }
    free
}
