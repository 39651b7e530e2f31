// SPDX-License-Identifier: GPL-2.0

//! Datagram sockets: UDP's calls, over the links that streams use.
//!
//! A [`DgramSock`] is the Rust side of a `struct sock`, which holds it until it is closed. The
//! table of [`Dgrams`] holds the bound ones, and a link those whose datagram is arriving, or that
//! are withheld POLLOUT. `transport/dgram.rs` has the sending and receiving of a link.
//!
//! Lock order:
//! 1. `config`: serialises bind, connect, close and options of SOL_SOCKET. Sleeps. Then the locks
//!    of links, as those of streams (`socket.rs`). `Link::drain` and `Link::dgram_rx` are taken
//!    without `config`.
//! 2. `DgramSock::gathered` (mutex), with no lock of a link below it.
//! 3. `Dgrams::ports` (mutex), `Dgrams::table` (spinlock).
//! 4. `DgramSock::inner` (spinlock), with no other lock below it than those of the wait queues.
//!
//! No lock is held while data is copied to or from a program, but `config` for an option's value.
//!
//! A socket may have a UDP socket inside (`companion.rs`), whose own lock comes after `config`.

#![deny(unsafe_code)]

mod bind;
mod companion;
pub(crate) mod context;
mod gather;
mod info;
mod lend;
mod options;
mod pinned;
mod recv;
mod send;
mod sndbuf;

use core::net::SocketAddrV6;

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

use companion::{Queue, UdpHolds};
use context::Dgrams;
use gather::{Gathered, UdpOptions};
use info::Counters;
use sndbuf::InFlight;

use crate::kern::area::Area;
use crate::kern::errno::ENOTCONN;
use crate::kern::memcg::{Memcg, CHARGED};
use crate::kern::net::Net;
use crate::kern::sock::family::{Kind, Name, SocketOps};
use crate::kern::sock::msg::{RecvMsg, SendMsg};
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::kern::sock::tcp::Tcp;
use crate::kern::sock::udp::Udp;
use crate::kern::sock::{Call, PollCall, Shutdown, Sk, SkRef};
use crate::kern::task;
use crate::kern::vma::NewVma;
use crate::kern::wait::WaitQueue;
use crate::params;
use crate::proto::addr::{Addr, Ip};
use crate::proto::dgram::readiness::{events, with_companion, View};
use crate::proto::dgram::receivers::Place;
use crate::proto::dgram::rx_queue::{Datagram, RxQueue};
use crate::proto::ports::Binding;
use crate::proto::quota::Holder;
use crate::socket::owner::holder_of;
use crate::stats::STATS;
use crate::transport::dgram::Bytes;
use crate::transport::link::Link;
use crate::uapi;

/// A datagram socket.
#[pin_data]
pub(crate) struct DgramSock {
    ctx: Arc<Dgrams>,
    net: Net,
    /// Whether the socket's family is AF_INET6.
    v6: bool,
    /// Its number in the table; not reused.
    number: u64,
    /// The cgroup that pays for received datagrams.
    memcg: Memcg,
    /// The user and the namespace whose quota of links the socket's datagrams count against.
    holder: Holder,
    /// The owner may administer the network: its links may use the pool's reserve of blocks.
    for_admin: bool,
    /// A link withholds POLLOUT.
    starved: Atomic<bool>,
    /// There is a UDP socket inside.
    has_udp: Atomic<bool>,
    /// The program has attached a filter, which may be gone again.
    filters: Atomic<bool>,
    /// Without a peer, datagrams have gone to several hosts: none may hold up the others.
    several: Atomic<bool>,
    /// A link calls the socket when its send buffer has been full for too long.
    called: Atomic<bool>,
    counters: Counters,
    udp_options: UdpOptions,
    /// The datagram that is not whole.
    #[pin]
    gathered: Mutex<Option<Gathered>>,
    #[pin]
    config: Mutex<()>,
    #[pin]
    inner: SpinLock<Inner>,
    #[pin]
    wait: WaitQueue,
}

/// The data that the spinlock of a socket guards.
struct Inner {
    /// `None` once the socket is closed.
    sk: Option<SkRef>,
    /// The port. Changes under `config`.
    binding: Option<Binding>,
    /// The place in the table, while the socket has a port.
    place: Option<Place>,
    /// The address given to bind(), and whether it had a port; without a port, AF_UNSPEC gives the
    /// port back.
    bound: (Ip, bool),
    local: Addr,
    remote: Option<Addr>,
    shut_read: bool,
    shut_write: bool,
    rx: RxQueue<KVVec<Option<Datagram<Bytes>>>>,
    /// The bytes that SO_MEMINFO shows of `rx`.
    shown: i32,
    /// SO_PEEK_OFF, as far as it is in `rx`.
    peek_off: Option<u32>,
    /// The bytes that count against SO_SNDBUF; `None` before the first datagram, and after they
    /// were forgotten.
    in_flight: Option<Arc<InFlight>>,
    /// A thread waits for room in the send buffer.
    tx_full: bool,
    /// Since when the send buffer has had no room, and no datagram in flight has completed, in
    /// nanoseconds; `None`: it has some.
    full_since: Option<u64>,
    /// Where the last datagram was sent, its local address, and the link for both addresses.
    tx_link: Option<(Addr, Ip, Arc<Link>)>,
    /// The link that the last datagram has arrived on.
    rx_link: Option<Arc<Link>>,
    /// The addresses for mapped receives that the program has reserved.
    area: Option<Arc<Area>>,
    /// It has some, or had: datagrams that begin to arrive may stay in their blocks.
    maps: bool,
    /// The UDP socket inside.
    udp: Option<Udp>,
    /// The port and the address are UDP's alone: ZRS cannot have the address.
    udp_only: bool,
    /// Why datagrams stay with the UDP socket inside for now.
    udp_holds: UdpHolds,
    /// The queue that the next datagram is taken from, if both have one.
    turn: Queue,
}

/// The unspecified address of a family, without a port.
fn any(v6: bool) -> Addr {
    Addr::new(if v6 { Ip::ANY } else { Ip::ANY_V4 }, 0)
}

impl DgramSock {
    fn sk(&self) -> Result<SkRef> {
        self.inner.lock().sk.clone().ok_or(EINVAL)
    }

    /// Returns the pending error and clears it, as SO_ERROR does.
    fn take_error(sk: &Sk) -> Result {
        match sk.take_err() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Leaves an error for the next call.
    fn fail(&self, why: Error) {
        let sk = self.inner.lock().sk.clone();
        if let Some(sk) = sk {
            sk.set_err(why);
            self.wait.wake_all();
        }
    }
}

impl SocketOps for DgramSock {
    const KIND: Kind = Kind::Datagram;
    const PROTOCOL: u16 = uapi::IPPROTO_ZRS;
    // Never offered.
    const BESIDE: u16 = uapi::IPPROTO_ZRS_AUTO;
    const NAME: &'static CStr = c"ZRSDGRAM";
    const NAME_V6: &'static CStr = c"ZRSDGRAMv6";
    const SUPPORT_ZC: bool = true;
    const LEVEL: i32 = uapi::SOL_ZRS;

    type Context = Dgrams;

    fn init(ctx: &Arc<Dgrams>, sk: &Sk) -> Result<Arc<Self>> {
        let net = sk.net();
        if !params::is_on(&net) || !params::may_use(&net) {
            return Err(EACCES);
        }
        ctx.transport.pools.await_pools()?;
        let v6 = sk.is_v6();
        let local = any(v6);
        let sock = Arc::pin_init(
            try_pin_init!(Self {
                ctx: ctx.clone(),
                net: sk.net(),
                v6,
                number: ctx.number(),
                holder: holder_of(sk, &sk.net()),
                memcg: Memcg::of(sk),
                for_admin: sk.owner() == 0 || task::may_administer_net(),
                starved: Atomic::new(false),
                has_udp: Atomic::new(false),
                filters: Atomic::new(false),
                several: Atomic::new(false),
                called: Atomic::new(false),
                counters: Counters::default(),
                udp_options: UdpOptions::new(),
                gathered <- new_mutex!(None, "zrs_dgram::gathered"),
                config <- new_mutex!((), "zrs_dgram::config"),
                inner <- new_spinlock!(Inner {
                    sk: None,
                    binding: None,
                    place: None,
                    bound: (local.ip, false),
                    local,
                    remote: None,
                    shut_read: false,
                    shut_write: false,
                    rx: RxQueue::new(KVVec::new()),
                    shown: 0,
                    peek_off: None,
                    in_flight: None,
                    tx_full: false,
                    full_since: None,
                    tx_link: None,
                    rx_link: None,
                    area: None,
                    maps: false,
                    udp: None,
                    udp_only: false,
                    udp_holds: UdpHolds::default(),
                    turn: Queue::Own,
                }, "zrs_dgram::inner"),
                wait <- crate::new_wait_queue!("zrs_dgram::wait"),
            }),
            CHARGED,
        )?;
        ctx.transport.socket_opened(&sock.net)?;
        Ok(sock)
    }

    fn attach(self: &Arc<Self>, sk: SkRef) {
        STATS.sockets.add(1);
        self.inner.lock().sk = Some(sk);
    }

    fn release(self: &Arc<Self>) {
        self.unbind();
        let (sk, queue, links, flight, udp) = {
            let mut inner = self.inner.lock();
            let queue = core::mem::replace(&mut inner.rx, RxQueue::new(KVVec::new()));
            let links = (inner.tx_link.take(), inner.rx_link.take());
            inner.show_queue();
            let flight = inner.in_flight.take();
            (inner.sk.take(), queue, links, flight, inner.udp.take())
        };
        drop((queue, links, flight, udp));
        if sk.is_some() {
            STATS.sockets.sub(1);
            self.ctx.transport.socket_closed(&self.net);
        }
    }

    fn bind(self: &Arc<Self>, addr: SocketAddrV6, _call: &Call<'_>) -> Result {
        DgramSock::bind(self, addr.into())
    }

    fn connect(self: &Arc<Self>, addr: SocketAddrV6, _nonblock: bool, _call: &Call<'_>) -> Result {
        DgramSock::connect(self, addr.into())
    }

    fn disconnect(self: &Arc<Self>) -> Result {
        DgramSock::disconnect(self)
    }

    fn name(self: &Arc<Self>, which: Name) -> Result<SocketAddrV6> {
        if let Some(udp) = self.udp() {
            return udp.name(which != Name::Local).ok_or(ENOTCONN);
        }
        let inner = self.inner.lock();
        if which == Name::Local {
            return Ok(inner.local.into());
        }
        Ok(inner.remote.ok_or(ENOTCONN)?.into())
    }

    fn poll(self: &Arc<Self>, _asked: u32, _busy: Option<PollCall>) -> u32 {
        let udp = self.udp();
        let beside = udp.as_ref().map(companion::events);
        let room = self.poll_send_room();
        let inner = self.inner.lock();
        let own = events(&View {
            readable: !inner.rx.is_empty(),
            writable: room && !self.starved.load(Relaxed),
            shut_read: inner.shut_read,
            shut_write: inner.shut_write,
            error: inner
                .sk
                .as_ref()
                .is_some_and(|sk| sk.err().is_some() || sk.has_notifications()),
            selects_errors: inner.sk.as_ref().is_some_and(|sk| sk.selects_errors()),
        });
        beside.map_or(own, |beside| with_companion(own, beside))
    }

    fn splice_eof(self: &Arc<Self>) {
        self.end_of_splice();
    }

    fn shutdown(self: &Arc<Self>, how: Shutdown) -> Result {
        let (sk, connected) = {
            let mut inner = self.inner.lock();
            inner.shut_read |= how.read();
            inner.shut_write |= how.write();
            (inner.sk.clone(), inner.remote.is_some())
        };
        if let Some(udp) = self.udp() {
            udp.shutdown(how);
        }
        if let Some(sk) = sk {
            sk.set_shutdown(how);
            self.wait.wake_all();
            sk.wake_state();
        }
        // As UDP: it takes effect all the same.
        if connected {
            Ok(())
        } else {
            Err(ENOTCONN)
        }
    }

    fn buffers_changed(self: &Arc<Self>) {
        self.send_room_changed();
    }

    fn sendmsg(self: &Arc<Self>, msg: &mut SendMsg<'_>) -> Result<usize> {
        self.send(msg)
    }

    fn recvmsg(self: &Arc<Self>, msg: &mut RecvMsg<'_>) -> Result<usize> {
        self.recv(msg)
    }

    fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize, nonblock: bool) -> Result<i32> {
        DgramSock::ioctl(self, cmd, arg, nonblock)
    }

    fn mmap(self: &Arc<Self>, vma: NewVma<'_>) -> Result {
        self.map_area(vma)
    }

    fn setsockopt(
        self: &Arc<Self>,
        level: i32,
        name: i32,
        val: OptIn<'_>,
        call: &Call<'_>,
    ) -> Result {
        self.set_option(level, name, &val, call)
    }

    fn while_set<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let _config = self.config.lock();
        f()
    }

    fn check_socket_option(self: &Arc<Self>, name: i32) -> Result {
        DgramSock::check_socket_option(self, name)
    }

    fn inner_tcp(self: &Arc<Self>, _call: &Call<'_>, _carried: bool) -> Result<Option<Arc<Tcp>>> {
        Ok(self.udp().map(|udp| (*udp).clone()))
    }

    fn set_peek_off(self: &Arc<Self>, at: i32) -> Result {
        DgramSock::set_peek_off(self, at)
    }

    fn inner_udp(self: &Arc<Self>) -> Option<Udp> {
        self.udp()
    }

    fn getsockopt(self: &Arc<Self>, level: i32, name: i32, out: OptOut) -> Result {
        self.get_option(level, name, out)
    }
}

impl DgramSock {
    /// The link that the last datagram was sent on.
    fn tx_link(&self) -> Option<Arc<Link>> {
        let inner = self.inner.lock();
        inner.tx_link.as_ref().map(|(_, _, link)| link.clone())
    }

    /// Marks the socket as withheld POLLOUT; returns whether it was not.
    fn starve(&self) -> bool {
        !self.starved.xchg(true, Full)
    }
}
