// SPDX-License-Identifier: GPL-2.0

//! listen() and accept(), and the handling of a CONNECT from a peer.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::close::ORPHAN_NS;
use super::context::Sockets;
use super::{Asked, Sock};
use crate::kern::errno::EADDRINUSE;
use crate::kern::memcg::CHARGED;
use crate::kern::sock::family::{Accepted, Incoming};
use crate::kern::sock::{Call, Sk, State as SkState};
use crate::kern::task::now_ns;
use crate::kern::trace;
use crate::kern::wait::WaitMode;
use crate::params;
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::Channel;
use crate::proto::fallback::{Peer, Why};
use crate::proto::readiness::{Phase, IN};
use crate::proto::wire::Refusal;
use crate::transport::conn::Conn;
use crate::transport::conn_table::Chan;
use crate::transport::connects::ConnectRequest;
use crate::transport::link::Link;

/// The next step of accept().
enum Next {
    /// Make a `struct sock` first.
    Prepare,
    /// Return this connection.
    Own(Arc<Sock>),
    /// Take a connection from the inner TCP socket.
    Tcp,
}

impl Asked {
    /// Whether the backlog of a listener in phase `phase` has room for one more connection.
    fn takes_one(&self, phase: Phase) -> core::result::Result<(), Refusal> {
        match phase {
            Phase::Listening { .. } if self.queue.len() < self.backlog => Ok(()),
            Phase::Listening { .. } => Err(Refusal::BacklogFull),
            _ => Err(Refusal::NoListener),
        }
    }
}

impl Sock {
    /// listen(): binds a port if none is bound, and accepts connections from then on. A second call
    /// changes the backlog. EINVAL on a connected socket, EADDRINUSE if another socket listens on
    /// the port. If TCP carries the socket when this fails, TCP gives the answer. Sleeps.
    pub(super) fn listen(self: &Arc<Self>, backlog: usize, call: &Call<'_>) -> Result {
        let _config = self.config.lock();
        let phase = self.inner.lock().phase;
        match phase {
            Phase::Fresh => {}
            Phase::Listening { .. } => {
                self.set_backlog(backlog)?;
                return self.listen_tcp(backlog);
            }
            _ => return Err(EINVAL),
        }
        self.check_use()?;
        if self.listen_by_rule(call)? {
            // The inner TCP socket gives the answer.
            return Err(EINVAL);
        }
        self.set_backlog(backlog)?;
        let addr = self.asked.lock().unbound(self.v6);
        self.bind_port(addr, call, false)?;
        self.listen_tcp(backlog)?;
        let (sk, mut binding) = {
            let inner = self.inner.lock();
            (
                inner.sk.clone().ok_or(EINVAL)?,
                self.asked.lock().binding.ok_or(EINVAL)?,
            )
        };
        let mut started = self.ctx.ports.lock().listen(self, &mut binding, &sk);
        // TCP would refuse that, too.
        let conflict = started == Err(EADDRINUSE);
        if started.is_ok() {
            // CONNECTs find the socket from here on, and are refused until the phase is Listening.
            started = self.ctx.transport.start_listening(&self.net);
            if started.is_err() {
                self.ctx.ports.lock().unlisten(self, &mut binding);
            }
        }
        self.asked.lock().binding = Some(binding);
        if let Err(e) = started {
            if conflict || !self.leave_to_tcp(&sk) {
                self.stop_tcp();
            }
            return Err(e);
        }
        {
            let mut inner = self.inner.lock();
            let was = inner.state_before();
            inner.set_phase(Phase::Listening { queued: false });
            inner.trace_state_change(was);
            sk.set_state(SkState::Listen);
        }
        if self.tcp_events() != 0 {
            // The wake-up for a connection that came earlier was not seen.
            sk.wake_readable();
        }
        Ok(())
    }

    /// Lets the inner TCP socket listen as well, if TCP clients are accepted.
    fn listen_tcp(&self, backlog: usize) -> Result {
        match self.tcp_listener() {
            Some(tcp) => tcp.listen(backlog as u32),
            None => Ok(()),
        }
    }

    /// ZRS cannot listen: lets TCP carry the socket, which listens already, if TCP clients are
    /// accepted. Returns whether it does. Under `config`. Sleeps.
    fn leave_to_tcp(self: &Arc<Self>, sk: &Sk) -> bool {
        let Some(tcp) = self.tcp_listener() else {
            return false;
        };
        if self.hand_over(&tcp, Why::NoResources).is_err() {
            return false;
        }
        if tcp.poll() & IN != 0 {
            // The wake-up for a connection that came earlier was not seen.
            sk.wake_readable();
        }
        true
    }

    fn stop_tcp(&self) {
        if let Some(tcp) = self.tcp_listener() {
            tcp.stop_listening();
        }
    }

    /// Allocates room for `backlog` connections, so that none is lost for lack of memory.
    fn set_backlog(&self, backlog: usize) -> Result {
        let backlog = backlog.max(1);
        let mut room = backlog;
        loop {
            let mut queue = KVec::with_capacity(room, CHARGED)?;
            let mut asked = self.asked.lock();
            let asked = &mut *asked;
            if asked.queue.len() > queue.capacity() {
                // Connections that wait beyond the new backlog keep their place.
                room = asked.queue.len();
                continue;
            }
            core::mem::swap(&mut queue, &mut asked.queue);
            for child in queue.drain_all() {
                // Cannot fail: there is room for all.
                let _ = asked.queue.push_within_capacity(child);
            }
            asked.backlog = backlog;
            return Ok(());
        }
    }

    /// Stops listening, and resets the connections that wait for accept(). Sleeps.
    pub(super) fn stop_listening(self: &Arc<Self>) {
        let binding = {
            let mut inner = self.inner.lock();
            if !matches!(inner.phase, Phase::Listening { .. }) {
                return;
            }
            let was = inner.state_before();
            inner.set_phase(Phase::Fresh);
            inner.trace_state_change(was);
            let binding = self.asked.lock().binding;
            binding
        };
        if let Some(mut binding) = binding {
            self.ctx.ports.lock().unlisten(self, &mut binding);
            self.asked.lock().binding = Some(binding);
        }
        self.ctx.transport.stop_listening(&self.net);
        self.stop_tcp();
        let queue = core::mem::take(&mut self.asked.lock().queue);
        for child in queue {
            child.close_child();
        }
        self.wake_state();
    }

    /// Closes a connection that was never accepted.
    fn close_child(self: &Arc<Self>) {
        {
            let mut inner = self.inner.lock();
            inner.released = true;
            inner.deadline = Some(now_ns().saturating_add(ORPHAN_NS));
            let was = inner.state_before();
            inner.conn.chan.with(|c| c.shut(true));
            inner.trace_state_change(was);
        }
        self.discard_received();
        self.kick();
        self.try_finish();
        self.arm_orphan_timer();
    }

    /// accept(): EINVAL when not listening, EAGAIN. The `struct sock` is made before a connection
    /// is taken, so the connection stays in the queue if that fails. If connections of TCP clients
    /// wait as well, both kinds are taken in turn. Sleeps.
    pub(super) fn accept(
        self: &Arc<Self>,
        nonblock: bool,
        incoming: &mut dyn Incoming,
    ) -> Result<Accepted<Self>> {
        let mut timeout = self.sk().and_then(|sk| sk.rcvtimeo(nonblock));
        let tcp = self.tcp_listener();
        let mut prepared = false;
        loop {
            let mut looks = 0;
            let look = || {
                looks += 1;
                let more = tcp.as_ref().is_some_and(|tcp| tcp.poll() & IN != 0);
                self.next_connection(more, prepared)
            };
            let mode = WaitMode::Interruptible;
            let found = match &tcp {
                None => self.wait.wait_in_line(mode, &mut timeout, look),
                // TCP wakes the threads that wait for readiness of the struct sock.
                Some(_) => {
                    let queue = incoming.call().queue();
                    queue.wait_in_line(mode, &mut timeout, look)
                }
            };
            let queued = looks > 1;
            let own = match found.map_err(|e| e.to_errno(timeout))?? {
                Next::Own(child) => {
                    trace::accept(|| {
                        let waiting = self.asked.lock().queue.len() as u32;
                        (child.ends(), waiting)
                    });
                    // The CONNECT's thread may not have sent the ACCEPT yet: before it, the program
                    // could not send.
                    if child.inner.lock().conn.chan.has_pending_control() {
                        child.kick();
                    }
                    // Cannot fail: the listening socket is in the same namespace.
                    let _ = self.ctx.transport.socket_opened(&self.net);
                    Some(child)
                }
                Next::Tcp => {
                    let taken = match &tcp {
                        Some(tcp) => incoming.take_tcp(tcp),
                        None => Err(EINVAL),
                    };
                    match taken {
                        Ok(()) => None,
                        // Another thread took the connection first.
                        Err(e) if e == EAGAIN => {
                            prepared = false;
                            continue;
                        }
                        Err(e) => {
                            self.wake_next_accept();
                            return Err(e);
                        }
                    }
                }
                Next::Prepare => {
                    // Another thread may succeed where this thread failed.
                    incoming
                        .prepare()
                        .inspect_err(|_| self.wake_next_accept())?;
                    prepared = true;
                    continue;
                }
            };
            let theirs = tcp.as_ref().is_some_and(|tcp| tcp.poll() & IN != 0);
            let more = theirs || !self.asked.lock().queue.is_empty();
            if more && (queued || tcp.is_none()) {
                // The wake-up of this thread may have been meant for the next connection, too.
                self.wake_next_accept();
            }
            return Ok(Accepted { own, more });
        }
    }

    /// The next step of accept(); `None`: wait. `theirs`: a TCP connection waits.
    fn next_connection(&self, theirs: bool, prepared: bool) -> Option<Result<Next>> {
        let inner = self.inner.lock();
        if !matches!(inner.phase, Phase::Listening { .. }) {
            return Some(Err(EINVAL));
        }
        let mut asked = self.asked.lock();
        if theirs && (asked.tcp_turn || asked.queue.is_empty()) {
            asked.tcp_turn = false;
            return Some(Ok(Next::Tcp));
        }
        if asked.queue.is_empty() {
            return None;
        }
        if !prepared {
            return Some(Ok(Next::Prepare));
        }
        asked.tcp_turn = true;
        asked.queue.remove(0).ok().map(|child| Ok(Next::Own(child)))
    }

    /// Wakes one more thread in accept().
    fn wake_next_accept(&self) {
        self.wait.wake_one();
        if self.tcp_listener().is_some() {
            if let Some(sk) = self.sk() {
                sk.wake_readable();
            }
        }
    }

    /// Handles a CONNECT that arrived on `link`: makes the socket that accept() will return, or
    /// returns the reason of the refusal. Sleeps.
    pub(super) fn on_connect(
        ctx: &Arc<Sockets>,
        link: &Arc<Link>,
        request: &ConnectRequest,
    ) -> core::result::Result<(), Refusal> {
        let h = &request.header;
        let (dst, src) = Channel::ports_of(h);
        // Takes the link's lock, which must be taken before a socket's.
        let local = Addr::new(link.local_ip(), dst);
        let remote = Addr::new(link.remote_ip(), src);
        let listener = ctx.ports.lock().listener(&link.net, local, remote);
        ctx.known.lock().forget(Peer {
            net: link.net.cookie(),
            from: Ip::ANY,
            ip: link.remote_ip(),
            port: 0,
        });
        let Some(listener) = listener.filter(|_| params::DRAIN.get() == 0) else {
            return Err(Refusal::NoListener);
        };
        let room;
        let (owner, options, sk) = {
            let inner = listener.inner.lock();
            let asked = listener.asked.lock();
            room = asked.takes_one(inner.phase);
            (asked.owner.clone(), asked.options.clone(), inner.sk.clone())
        };
        let sk = sk.filter(|sk| {
            let (local, remote) = (local.into(), remote.into());
            sk.device_allows(local, remote) && sk.cgroup_packets(local, remote, false).is_ok()
        });
        let Some((limits, rcvbuf)) = sk.map(|sk| (Sock::limits_of(&sk), sk.rcvbuf_set())) else {
            return Err(Refusal::NoListener);
        };
        // Refused before anything is allocated.
        room?;
        let child =
            listener.charge(|| Sock::new(ctx.clone(), link.net.clone(), listener.v6, owner));
        let Ok(child) = child else {
            return Err(Refusal::NoResources);
        };
        child.inner.lock().limits = limits;
        {
            let mut asked = child.asked.lock();
            asked.rcvbuf = rcvbuf;
            asked.options = options;
        }
        child.user_ms.store(listener.user_ms.load(Relaxed), Relaxed);
        child.corks.store(listener.corks.load(Relaxed), Relaxed);
        if child.promise_small().is_err() {
            return Err(Refusal::NoResources);
        }
        let chan = Chan::submit(&link.transport, &child, |id| {
            Channel::accepting(id, h.src, request.limits, limits)
        });
        let Ok(chan) = chan else {
            return Err(Refusal::NoResources);
        };
        let id = chan.id().unwrap_or_default();
        {
            let mut inner = child.inner.lock();
            let was = inner.state_before();
            inner.conn.open(chan, link);
            inner.set_phase(Phase::Connected);
            inner.local = local;
            inner.remote = remote;
            inner.trace_state_change(was);
        }
        let place = link.attach(&child, id);
        let mut refused = place.is_err().then_some(Refusal::NoResources);
        if refused.is_none() {
            let inner = listener.inner.lock();
            let mut asked = listener.asked.lock();
            refused = asked.takes_one(inner.phase).err();
            if refused.is_none() && asked.queue.push_within_capacity(child.clone()).is_err() {
                refused = Some(Refusal::NoResources);
            }
        }
        if let Some(why) = refused {
            if let Ok(Some(place)) = place {
                link.detach(place);
            }
            let mut inner = child.inner.lock();
            inner.conn = Conn::none();
            return Err(why);
        }
        link.kick(&child);
        listener.wake_accept();
        Ok(())
    }
}
