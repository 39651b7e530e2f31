// SPDX-License-Identifier: GPL-2.0

//! The UDP socket inside a datagram socket: `ZRS_DGRAM_UDP`.
//!
//! It is bound to the same address and port, has the same options, and connects to the same peer. A
//! datagram goes by UDP unless its destination is known to be reached by RDMA
//! (`proto/dgram/destinations.rs`). Receivers take from both
//! queues in turn.
//!
//! The UDP socket is made in the context of the program that sets the option. Its wake-ups go to
//! the queue of the outer socket, so that is where receivers wait.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::context::Dgrams;
use super::gather::{UDP_CORK, UDP_SEGMENT};
use super::recv::Found;
use super::send::Sent;
use super::DgramSock;
use crate::kern::sock::msg::{RecvMsg, SendMsg};
use crate::kern::sock::udp::Udp;
use crate::kern::sock::zerocopy::Notification;
use crate::kern::sock::{Call, Sk};
use crate::kern::task::now_ns;
use crate::kern::wait::WaitMode;
use crate::proto::addr::{Addr, Ip};
use crate::proto::dgram::destinations::{self, Ends, Path, Route};
use crate::proto::dgram::wire::{PortState, Ports};
use crate::proto::ports::hash;
use crate::proto::readiness::IN;
use crate::socket::tcp::may_have;
use crate::transport::dgram::Change;
use crate::transport::link::Link;

/// A queue of received datagrams.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// That of ZRS.
    Own,
    /// That of the UDP socket inside.
    Udp,
}

/// The datagrams that a receive may find in the queue of UDP.
#[derive(Clone, Copy)]
enum InUdp {
    /// Any datagram.
    Any,
    /// One that has come since: those of before, which [`Udp::queued`] counted, are before the
    /// offset of SO_PEEK_OFF.
    Since((i32, i32)),
    /// Nothing.
    Nothing,
}

impl Queue {
    fn other(self) -> Self {
        match self {
            Self::Own => Self::Udp,
            Self::Udp => Self::Own,
        }
    }
}

/// The readiness of the UDP socket inside, whose error becomes the outer socket's.
pub(super) fn events(udp: &Udp) -> u32 {
    let seen = udp.poll();
    udp.collect_error();
    seen
}

fn has_datagram(udp: &Udp) -> bool {
    udp.poll() & IN != 0
}

fn ends(link: &Link) -> Ends {
    Ends {
        net: link.net.cookie(),
        local: link.local_ip(),
        remote: link.remote_ip(),
    }
}

/// Properties of sent datagrams that only the UDP socket inside can provide.
#[derive(Default)]
pub(super) struct UdpHolds {
    /// UDP_SEGMENT is set: a call sends several datagrams.
    segment: bool,
    /// UDP_CORK is set: several calls make a datagram.
    cork: bool,
    /// MSG_MORE has begun a datagram, which the next call goes on with.
    pending: bool,
}

impl UdpHolds {
    fn any(&self) -> bool {
        self.segment || self.cork || self.pending
    }

    /// A splice() has ended: UDP sends what it has, unless it is corked.
    pub(super) fn spliced(&mut self) {
        self.pending &= self.cork;
    }

    /// An option of SOL_UDP was set.
    pub(super) fn set(&mut self, name: i32, value: i32) {
        match name {
            UDP_SEGMENT => self.segment = value != 0,
            UDP_CORK => {
                self.cork = value != 0;
                // UDP sends what it has.
                self.pending &= self.cork;
            }
            _ => {}
        }
    }
}

impl DgramSock {
    /// The UDP socket inside, if there is one.
    pub(super) fn udp(&self) -> Option<Udp> {
        if !self.has_udp.load(Relaxed) {
            return None;
        }
        self.inner.lock().udp.clone()
    }

    /// Whether the socket has a port, or UDP alone has one.
    pub(super) fn is_bound(&self) -> bool {
        let inner = self.inner.lock();
        inner.binding.is_some() || inner.udp_only
    }

    /// Sets ZRS_DGRAM_UDP. EINVAL: not 0 or 1, or the socket has a port. EACCES: the task has
    /// no_new_privs set, as for ZRS_TCP. The errors of socket(). Sleeps.
    pub(super) fn set_companion(&self, on: u32, call: &Call<'_>) -> Result {
        let _config = self.config.lock();
        if on > 1 || self.is_bound() {
            return Err(EINVAL);
        }
        let sk = self.sk()?;
        let had = self.udp().is_some();
        if (on == 1) == had {
            return Ok(());
        }
        if had {
            self.has_udp.store(false, Relaxed);
            let gone = self.inner.lock().udp.take();
            sk.drop_tcp();
            drop(gone);
            return Ok(());
        }
        may_have(&self.net)?;
        let udp = Udp::open(call)?;
        // No other thread sets SO_PEEK_OFF now: `config` is held.
        if self.inner.lock().peek_off.is_some() {
            udp.set_peek_off(0);
        }
        self.inner.lock().udp = Some(udp);
        self.has_udp.store(true, Relaxed);
        Ok(())
    }

    /// bind() to an address that only UDP can have: a multicast one, or one that is not this
    /// host's. Under `config`. Sleeps.
    pub(super) fn bind_udp(&self, sk: &Sk, udp: &Udp, addr: Addr) -> Result {
        may_have(&self.net)?;
        udp.bind(addr.into())?;
        let local = udp.name(false).map_or(addr, Addr::from);
        let mut inner = self.inner.lock();
        inner.udp_only = true;
        inner.local = local;
        inner.bound = (local.ip, true);
        sk.set_local(local.into());
        Ok(())
    }

    /// connect() with both. Under `config`. Sleeps.
    pub(super) fn connect_both(&self, sk: &Sk, udp: &Udp, addr: Addr) -> Result {
        udp.connect(addr.into())?;
        let name = |peer| udp.name(peer).map(Addr::from).ok_or(EINVAL);
        let connected = name(false).and_then(|local| {
            let peer = name(true)?;
            if self.inner.lock().udp_only {
                self.inner.lock().remote = Some(peer);
                return Ok(());
            }
            self.readdress(sk, local.ip, Some(peer))
        });
        connected.inspect_err(|_| {
            // UDP has the peer that the outer socket has still.
            let before = self.inner.lock().remote;
            if before.is_none_or(|peer| udp.connect(peer.into()).is_err()) {
                udp.disconnect();
            }
        })
    }

    /// sendmsg() by RDMA or by UDP, from port `src`. Sleeps.
    pub(super) fn send_beside(
        self: &Arc<Self>,
        sk: &Sk,
        udp: &Udp,
        src: u16,
        msg: &mut SendMsg<'_>,
    ) -> Result<usize> {
        udp.collect_error();
        Self::take_error(sk)?;
        let Some((link, to)) = self.link_for(sk, src, msg) else {
            let more = msg.more();
            let sent = udp.send(msg)?;
            self.inner.lock().udp_holds.pending = more;
            return Ok(sent);
        };
        let (len, ports) = (msg.len(), Ports { dst: to.port, src });
        let mut charge = Some(self.charge(sk, len, msg.nonblock())?);
        match self.send_on(&link, sk, ports, msg, &mut charge)? {
            Sent::Done | Sent::Pinned => Ok(len),
            Sent::LinkDown => {
                msg.rewind(0);
                udp.send(msg)
            }
        }
    }

    /// The link for the message, and its destination; `None`: it goes by UDP. Sleeps.
    fn link_for(
        self: &Arc<Self>,
        sk: &Sk,
        src: u16,
        msg: &mut SendMsg<'_>,
    ) -> Option<(Arc<Link>, Addr)> {
        // The notifications of both would have the same numbers.
        let told = Notification::wanted(sk, msg);
        let plain = !msg.has_control() && !msg.more() && !msg.oob() && !msg.probe() && !told;
        let (from, shut) = {
            let inner = self.inner.lock();
            let by_udp = inner.udp_only || inner.udp_holds.any();
            (inner.local.ip, inner.shut_write || by_udp)
        };
        if !plain || shut {
            return None;
        }
        // UDP has the errors.
        let given = msg.name(sk).ok()?.map(Addr::from);
        let sender = self.sender(sk);
        let mut to = sender.destination(given, msg.len()).ok()?;
        if given.is_some() {
            // UDP runs the programs once more if the datagram goes by it.
            let (left, source) = Self::redirected(sk, &sender, to, sender.local, msg.len()).ok()?;
            if source.is_some() {
                return None;
            }
            to = left;
        }
        to.ip = Self::on_interface(sk, to.ip).ok()?;
        let (path, hash) = self.path(from, 0, to);
        let sent = destinations::Sent {
            path,
            port: src,
            bytes: msg.len() as u32,
            hash,
        };
        let for_one = || !self.net.is_broadcast(to.ip.v6());
        let reachable = || for_one() && !self.net.is_own(to.ip.v6(), to.ip.scope());
        let now = now_ns();
        let route = self.ctx.destinations.lock().route(&sent, now, reachable);
        if route == Route::Udp {
            return None;
        }
        let link = self.link_to(sk, to, None);
        let goes = |link: &Link| match route {
            Route::Rdma => link.carries_dgrams(),
            Route::Answer => !link.lacks_dgrams(),
            Route::Udp | Route::UdpAndTry => false,
        };
        match (route, link) {
            (_, Ok(link)) if goes(&link) => {
                let local = Addr::new(link.local_ip(), src).into();
                let out = sk.cgroup_datagram(local, to.into(), msg.len() as u16, true);
                return out.is_ok().then_some((link, to));
            }
            // If it is up already, its coming up has not been told since.
            (Route::UdpAndTry, Ok(link)) if link.carries_dgrams() => self.ctx.probe(&link),
            // Nor has that been told.
            (Route::UdpAndTry, Ok(link)) if link.lacks_dgrams() => {
                self.ctx.destinations.lock().no_link(&ends(&link), now)
            }
            // It tells when it is up, or has failed.
            (Route::UdpAndTry, Ok(_)) => {}
            (Route::Answer, _) => {
                let (path, _) = self.path(from, src, to);
                self.ctx.destinations.lock().path_lost(&path, now)
            }
            _ => self.ctx.destinations.lock().path_lost(&path, now),
        }
        None
    }

    /// The path to `to` of sockets that are bound to `from`, of one `port` or all, and the hash by
    /// which it is kept.
    fn path(&self, from: Ip, port: u16, to: Addr) -> (Path, u32) {
        let from = if from.is_any() { Ip::ANY } else { from };
        let net = self.net.cookie();
        let hash = hash(self.ctx.secret, self.net.id(), Addr::new(from, 0), to);
        let path = Path {
            net,
            from,
            port,
            to,
        };
        (path, (hash >> 32) as u32)
    }

    /// A datagram from `from` has come by RDMA, which the program is going to have.
    fn heard(&self, from: Addr) {
        let local = self.inner.lock().local;
        let (path, hash) = self.path(local.ip, local.port, from);
        self.ctx.destinations.lock().heard(path, hash, now_ns());
    }

    /// recvmsg() from both queues. Sleeps.
    pub(super) fn recv_beside(
        self: &Arc<Self>,
        sk: &Sk,
        udp: &Udp,
        msg: &mut RecvMsg<'_>,
    ) -> Result<usize> {
        let peek = msg.peek();
        let mut timeout = sk.rcvtimeo(msg.nonblock());
        let mut in_udp = InUdp::Any;
        loop {
            let link = self.inner.lock().rx_link.clone();
            let queued = udp.queued();
            let look = || self.look_beside(udp, peek, in_udp);
            let found = msg.queue().wait_or_poll(
                WaitMode::Interruptible,
                &mut timeout,
                link.as_ref(),
                look,
            );
            let found = found.map_err(|e| e.to_errno(timeout))?;
            match found {
                Some(Found::Error(e)) => return Err(e),
                Some(Found::Datagram(datagram, from)) => {
                    self.heard(datagram.from);
                    return self.give(sk, msg, &datagram, from);
                }
                Some(Found::End) if msg.nonblock() => return Err(EAGAIN),
                Some(Found::End) => return Ok(0),
                None => match udp.recv(msg) {
                    // Another thread has taken it, its checksum was wrong, or it is before the
                    // offset of SO_PEEK_OFF. After shutdown() UDP is always readable.
                    Err(e) if e == EAGAIN => {
                        in_udp = match self.inner.lock().shut_read {
                            true => InUdp::Nothing,
                            false if peek && queued.0 >= 0 => InUdp::Since(queued),
                            false => InUdp::Any,
                        }
                    }
                    done => {
                        self.inner.lock().show_peek_off();
                        return done;
                    }
                },
            }
        }
    }

    /// Looks for a datagram: `Some(None)`: UDP has one. A queue that was looked at keeps its turn,
    /// so that the next receive takes the same datagram. `in_udp`: what UDP may have.
    fn look_beside(&self, udp: &Udp, peek: bool, in_udp: InUdp) -> Option<Option<Found>> {
        udp.collect_error();
        let in_udp = match in_udp {
            InUdp::Any => has_datagram(udp),
            InUdp::Since(queued) => udp.queued() != queued && has_datagram(udp),
            InUdp::Nothing => false,
        };
        let queue = self.next_queue(in_udp, peek);
        let mut inner = self.inner.lock();
        let found = match queue {
            Some(Queue::Udp) => {
                let error = inner.sk.as_ref().and_then(|sk| sk.take_err());
                error.map(Found::Error)
            }
            Some(Queue::Own) | None => {
                let own = inner.next(peek);
                let shut = inner.shut_read;
                Some(own.or_else(|| shut.then_some(Found::End))?)
            }
        };
        if let Some(queue) = queue.filter(|_| !peek) {
            if !matches!(found, Some(Found::Error(_) | Found::End)) {
                inner.turn = queue.other();
            }
        }
        Some(found)
    }

    /// The queue of the next datagram, whose turn it is then; `None`: both are empty.
    /// `in_udp`: that of UDP is not. With SO_PEEK_OFF the own one has all turns, so that datagrams
    /// are received in the order of the peeks.
    fn next_queue(&self, in_udp: bool, peek: bool) -> Option<Queue> {
        let mut inner = self.inner.lock();
        let off = inner.peek_off.filter(|_| peek);
        let queue = match (inner.rx.shows(off), in_udp) {
            (false, false) => return None,
            (true, true) if inner.peek_off.is_none() => inner.turn,
            (false, true) => Queue::Udp,
            (true, _) => Queue::Own,
        };
        inner.turn = queue;
        Some(queue)
    }

    /// Whether the next datagram is UDP's.
    pub(super) fn next_is_udp(&self, udp: &Udp) -> bool {
        self.next_queue(has_datagram(udp), false) == Some(Queue::Udp)
    }
}

impl Dgrams {
    /// Sends the probes that wait for `link`, which is up.
    fn probe(&self, link: &Arc<Link>) {
        let probes = self.destinations.lock().link_up(&ends(link));
        for ports in probes.into_iter().flatten() {
            link.probe_port(ports);
        }
    }

    /// A link that this host makes has changed.
    pub(super) fn link_changed(&self, link: &Arc<Link>, change: Change) {
        let now = now_ns();
        match change {
            Change::Up => self.probe(link),
            Change::Refused => self.destinations.lock().no_link(&ends(link), now),
            Change::Lost => self.destinations.lock().link_lost(&ends(link), now),
        }
    }

    /// The peer of `link` says whether its port `ports.dst` is open for ours.
    pub(super) fn port_answered(&self, link: &Link, ports: Ports, state: PortState) {
        let open = match state {
            PortState::Open => true,
            PortState::Closed => false,
            PortState::Unknown(_) => return,
        };
        let mut destinations = self.destinations.lock();
        destinations.answered(&ends(link), ports, open, now_ns());
    }
}
