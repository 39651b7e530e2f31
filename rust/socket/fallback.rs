// SPDX-License-Identifier: GPL-2.0

//! connect() in mode AUTO: by ZRS or by TCP. `proto/fallback.rs` has the reasons.
//!
//! The inner TCP socket is made in connect(), in the program's context, before the attempt to
//! connect with ZRS. That attempt has a [`Decision`]. The context that ends it records the
//! outcome there and hands it to the queue of decisions. The worker then releases the inner TCP
//! socket, or connects it and lets it carry the socket; until then the socket is connecting. So
//! there is never more than one connection under way. The link, though, goes on being made: the
//! next connect has it.
//!
//! The inner TCP socket is handed over under `config`, which the last close takes as well before it
//! takes that socket away.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

use super::carried::Place;
use super::tcp::{may_have, TcpMode, IP_BIND_ADDRESS_NO_PORT};
use super::{report_failure, Inner, Sock};
use crate::kern::errno::{EDQUOT, EINPROGRESS, ENOBUFS, EOPNOTSUPP};
use crate::kern::sock::opt::OptIn;
use crate::kern::sock::tcp::Tcp;
use crate::kern::sock::Call as SockCall;
use crate::kern::{fault, task, trace};
use crate::params::{self, NetSetting};
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::{Channel, Failure};
use crate::proto::fallback::{after_failure, Answer, Cache, EndedBy, Entry, Peer, Why};
use crate::proto::options::{is_tcp_only, SOL_IP};
use crate::proto::readiness::Phase;
use crate::proto::rules::{Action, Call};
use crate::transport::context::Acceptor;
use crate::transport::link::LinkState;
use crate::transport::links::Asker;

/// How many hosts and ports without ZRS are remembered.
pub(crate) const KNOWN: usize = 1024;

/// The hosts and ports without ZRS.
pub(super) type Known = Cache<KVVec<Option<Entry>>>;

/// None. ENOMEM.
pub(super) fn nothing_known() -> Result<Known> {
    let slots = KVVec::from_elem(None, KNOWN, GFP_KERNEL)?;
    Ok(Cache::new(slots, task::random_u64()))
}

/// The outcome of an attempt to connect with ZRS.
#[derive(Clone, Copy)]
enum Outcome {
    /// The connection is open.
    Open,
    /// It has failed; TCP is tried.
    Tcp(Why),
}

/// An attempt to connect with ZRS that may be followed by one with TCP.
#[pin_data]
pub(super) struct Decision {
    sock: Arc<Sock>,
    /// The number of the program's connect.
    attempt: u32,
    /// The address that the program gave. TCP's connect() runs the control groups' programs
    /// itself.
    given: Addr,
    /// The number of the reason for TCP; 0: the connection is open.
    why: Atomic<u32>,
    #[pin]
    work: Work<Decision>,
}

impl_has_work! {
    impl HasWork<Self> for Decision { self.work }
}

impl WorkItem for Decision {
    type Pointer = Arc<Decision>;

    fn run(this: Arc<Decision>) {
        fault::asynchronous(|| {
            let outcome =
                Why::from_number(this.why.load(Relaxed)).map_or(Outcome::Open, Outcome::Tcp);
            this.sock.settle(&this, outcome);
        });
    }
}

impl Inner {
    /// The attempt to connect with ZRS has failed. Returns whether TCP is tried; the socket stays
    /// connecting then.
    pub(super) fn falls_back(&mut self, failure: Failure) -> bool {
        let Some(decision) = self.decision.take() else {
            return false;
        };
        self.fall_at = None;
        // Else the inner TCP socket stays for the next attempt. The caller has the socket, so that
        // the decision does not drop the last reference.
        let Some(why) = after_failure(failure, self.ended_by) else {
            return false;
        };
        self.deadline = None;
        decision.hand_over(why.number());
        true
    }

    /// The connection with ZRS is open.
    pub(super) fn needs_no_tcp(&mut self) {
        self.fall_at = None;
        if let Some(decision) = self.decision.take() {
            decision.hand_over(0);
        }
    }
}

impl Decision {
    /// Hands the outcome to the queue of decisions. Any context.
    fn hand_over(self: Arc<Self>, why: u32) {
        self.why.store(why, Relaxed);
        let ctx = self.sock.ctx.clone();
        let _ = ctx.decisions.enqueue(self);
    }
}

/// The reason for TCP after a call of ours has failed before the peer was asked; `None`: the error
/// is the program's.
fn after_error(e: Error) -> Option<Why> {
    if e == EMLINK {
        return Some(Why::Asking);
    }
    (e == ENOMEM || e == ENOBUFS || e == EDQUOT).then_some(Why::NoResources)
}

impl Sock {
    /// Whether connect() may use TCP. Tasks with no_new_privs have ZRS alone; see [`may_have`].
    fn may_fall_back(&self) -> bool {
        self.asked.lock().tcp_mode == TcpMode::Auto && may_have(&self.net).is_ok()
    }

    /// Starts an attempt to connect, with ZRS if nothing speaks for TCP. If TCP carries the socket
    /// when this fails, the caller connects with TCP. Under `config`. Sleeps.
    pub(super) fn begin_attempt(self: &Arc<Self>, addr: Addr, call: &SockCall<'_>) -> Result {
        // The cache is keyed by the address that the control groups' programs leave.
        let to = self.destination(addr)?;
        if !self.may_fall_back() {
            return self.begin_zrs(to);
        }
        let tcp = self.open_tcp(call)?.ok_or(EINVAL)?;
        let (at_once, link) = self.look_at_peer(to);
        self.inner.lock().remote = to;
        if let Some(why) = at_once {
            self.hand_over(&tcp, why)?;
            return Err(EINPROGRESS);
        }
        self.bind_without_port(&tcp)?;
        self.arm_decision(addr, !link)?;
        let Err(e) = self.begin_zrs(to) else {
            return Ok(());
        };
        let decision = {
            let mut inner = self.inner.lock();
            if matches!(inner.phase, Phase::Connecting) {
                // The worker has the decision.
                return Ok(());
            }
            inner.fall_at = None;
            inner.decision.take()
        };
        drop(decision);
        if let Some(why) = after_error(e) {
            self.hand_over(&tcp, why)?;
        }
        Err(e)
    }

    /// Looks up the peer of a new connection: the reason to use TCP at once; whether a link to it
    /// is up. Sleeps.
    fn look_at_peer(self: &Arc<Self>, to: Addr) -> (Option<Why>, bool) {
        if params::DRAIN.get() != 0 {
            return (Some(Why::Drain), false);
        }
        match self.rule_for(Call::Connect, to) {
            Some(Action::Tcp) => return (Some(self.why_by_rule()), false),
            Some(Action::Zrs) => {}
            None if self.net.is_own(to.ip.v6(), to.ip.scope()) => return (Some(Why::Local), false),
            None => {}
        }
        let transport = &self.ctx.transport;
        if transport.peers.may_connect(&self.net, to.ip).is_err() {
            return (Some(Why::Peer), false);
        }
        let (local, sk) = {
            let inner = self.inner.lock();
            (inner.local.ip, inner.sk.clone())
        };
        // This says nothing about the host: sockets that are not bound to a device may reach it.
        if sk.is_some_and(|sk| !sk.device_allows(Addr::new(local, 0).into(), to.into())) {
            return (Some(Why::Asked), false);
        }
        let bind_to = (!local.is_any()).then_some(local);
        let link = transport.has_link_to(&self.net, bind_to, to.ip);
        let answer = self
            .ctx
            .known
            .lock()
            .look(self.peer(to), task::now_ns(), link);
        match answer {
            Answer::Unknown => (None, link),
            Answer::NoZrs => (Some(Why::Known), link),
            Answer::AskAgain => {
                // The next connect has it if it comes up.
                let _ = transport.link_to(&self.net, bind_to, to.ip, self.asker(true));
                (Some(Why::Known), link)
            }
        }
    }

    /// On whose behalf a link is made; `falls_back`: for a connect that may use TCP.
    pub(super) fn asker(&self, falls_back: bool) -> Asker {
        let holder = self.holder();
        Asker {
            for_admin: holder.is_admin(),
            limited: holder.user.filter(|_| falls_back),
            holder,
            by_dgram: false,
        }
    }

    /// The port of a host, as it is remembered.
    fn peer(&self, to: Addr) -> Peer {
        let bound = self.asked.lock().address();
        Peer {
            net: self.net.cookie(),
            from: bound.filter(|ip| !ip.is_any()).unwrap_or(Ip::ANY),
            ip: to.ip,
            port: to.port,
        }
    }

    /// The attempt with ZRS that follows may end with TCP. `given`: the address that the program
    /// gave. `limited`: also if no link to the host is up in time.
    fn arm_decision(self: &Arc<Self>, given: Addr, limited: bool) -> Result {
        let attempt = self.inner.lock().attempt.wrapping_add(1);
        let decision = Arc::pin_init(
            pin_init!(Decision {
                sock: self.clone(),
                attempt,
                given,
                why: Atomic::new(0),
                work <- new_work!("zrs_decision::work"),
            }),
            GFP_KERNEL,
        )?;
        // A link that is not up by then says nothing about the program there.
        let ms = NetSetting::FallbackMs
            .get(&self.net)
            .min(NetSetting::ConnectTimeoutMs.get(&self.net));
        let ns = u64::from(ms) * 1_000_000;
        let old = {
            let mut inner = self.inner.lock();
            inner.ended_by = EndedBy::Peer;
            inner.fall_at = limited.then(|| task::now_ns().saturating_add(ns));
            inner.decision.replace(decision)
        };
        drop(old);
        Ok(())
    }

    /// Ends the attempt with ZRS at `now` if the link to the host was not up in time. Sleeps.
    pub(super) fn check_fallback(self: &Arc<Self>, now: u64) {
        let link = {
            let mut inner = self.inner.lock();
            if inner.fall_at.take_if(|at| *at <= now).is_none() {
                return;
            }
            inner.conn.link.clone()
        };
        if link.is_some_and(|link| link.state() == LinkState::Up) {
            return;
        }
        {
            let inner = &mut *self.inner.lock();
            if !matches!(inner.phase, Phase::Connecting) {
                return;
            }
            let was = inner.state_before();
            inner.ended_by = EndedBy::Timer;
            inner.conn.chan.with(Channel::time_out);
            report_failure(inner);
            inner.trace_state_change(was);
        }
        self.try_finish();
        self.wake_state();
    }

    /// The end of an attempt with ZRS. In a kernel thread. Sleeps.
    fn settle(self: &Arc<Self>, decision: &Decision, outcome: Outcome) {
        let _config = self.config.lock();
        let (tcp, remote, bound) = {
            let inner = self.inner.lock();
            let asked = self.asked.lock();
            let Some(tcp) = asked.tcp.clone() else {
                // The socket was closed.
                return;
            };
            let connecting = matches!(inner.phase, Phase::Connecting);
            if matches!(outcome, Outcome::Tcp(_))
                && (!connecting || inner.attempt != decision.attempt)
            {
                return;
            }
            (tcp, inner.remote, asked.address().is_some())
        };
        match outcome {
            Outcome::Open => {
                self.ctx.known.lock().forget(self.peer(remote));
                // One that is bound keeps the port, as over TCP.
                if !bound {
                    self.drop_tcp();
                }
            }
            Outcome::Tcp(why) => self.connect_behind(&tcp, decision.given, why),
        }
    }

    /// Connects to the `given` address by TCP, which carries the socket from now on, for a program
    /// that waits. Under `config`. Sleeps.
    fn connect_behind(self: &Arc<Self>, tcp: &Arc<Tcp>, given: Addr, why: Why) {
        // All that may fail comes first: a connection is made only if it can be handed over.
        let place = match self.may_hand_over(tcp) {
            Ok(place) => place,
            Err(e) => return self.fail_connecting(e),
        };
        // The answer may be there at once. So the carrier is known before; but the program gets an
        // error only when its calls go to TCP.
        self.asked.lock().why = Some(why);
        tcp.connect_behind(given.into());
        match self.hand_over_to(tcp, why, place) {
            Ok(()) => {
                tcp.move_error();
                self.wake_state();
            }
            Err(e) => self.fail_connecting(e),
        }
    }

    /// The attempt to connect has failed with `e`, after that with ZRS had, or was ended by the
    /// program. Sleeps.
    pub(super) fn fail_connecting(self: &Arc<Self>, e: Error) {
        {
            let inner = &mut *self.inner.lock();
            if !matches!(inner.phase, Phase::Connecting) {
                return;
            }
            let was = inner.state_before();
            self.asked.lock().why = None;
            inner.set_phase(Phase::Failed);
            if let Some(sk) = &inner.sk {
                sk.set_err(e);
            }
            inner.trace_state_change(was);
            trace::connect(|| (inner.ends(), e.to_errno()));
        }
        self.try_finish();
        self.wake_state();
    }

    /// Releases the inner TCP socket, which does not carry this socket. Under `config`. Sleeps.
    fn drop_tcp(&self) {
        let (tcp, sk) = {
            let inner = self.inner.lock();
            let tcp = self.asked.lock().tcp.take();
            (tcp, inner.sk.clone())
        };
        if let Some(sk) = sk {
            sk.drop_tcp();
        }
        drop(tcp);
    }

    /// TCP carries the socket from now on: it gives its ZRS port and its connection back. Under
    /// `config`. Sleeps.
    pub(super) fn hand_over(self: &Arc<Self>, tcp: &Arc<Tcp>, why: Why) -> Result {
        let place = self.may_hand_over(tcp)?;
        self.hand_over_to(tcp, why, place)
    }

    /// What [`hand_over_to`](Self::hand_over_to) needs. Under `config`. Sleeps.
    fn may_hand_over(self: &Arc<Self>, tcp: &Tcp) -> Result<Place> {
        let place = self.place_as_carried()?;
        self.bind_without_port(tcp)?;
        Ok(place)
    }

    /// As [`hand_over`](Self::hand_over). EINVAL: the socket was closed.
    fn hand_over_to(self: &Arc<Self>, tcp: &Arc<Tcp>, why: Why, place: Place) -> Result {
        let sk = self.sk().ok_or(EINVAL)?;
        tcp.move_errors();
        tcp.show_buffers();
        {
            // The cache remembers the peer with the local address, which `unbind` forgets.
            let mut asked = self.asked.lock();
            asked.bound_ip = asked.address();
        }
        self.unbind();
        // First: a call that finds the phase is made on TCP then.
        sk.carry()?;
        // The channel of the attempt has ended; the thread that ended it may still be at work.
        self.try_finish();
        let rest = {
            let mut inner = self.inner.lock();
            let was = inner.state_before();
            inner.set_phase(Phase::Carried);
            self.asked.lock().why = Some(why);
            inner.trace_state_change(was);
            trace::fallback(|| (inner.ends(), why.number()));
            (inner.conn.chan.take_ended(), inner.small_promise.take())
        };
        drop(rest);
        self.list_as_carried(tcp, place);
        self.ctx.transport.counts.fallback(&self.net, why.number());
        Ok(())
    }

    /// bind() to an address that a rule leaves to TCP. Under `config`. Sleeps.
    pub(super) fn bind_by_rule(self: &Arc<Self>, addr: Addr, call: &SockCall<'_>) -> Result {
        let tcp = self.open_tcp(call)?.ok_or(EINVAL)?;
        // First: a socket whose bind() has failed may use ZRS at another address.
        tcp.bind(addr.into())?;
        self.hand_over(&tcp, self.why_by_rule())
    }

    /// Lets TCP carry a socket without a port that listens, if a rule says so. Under `config`.
    /// Sleeps.
    pub(super) fn listen_by_rule(self: &Arc<Self>, call: &SockCall<'_>) -> Result<bool> {
        let (port, addr) = {
            let asked = self.asked.lock();
            (asked.binding.is_some(), asked.unbound(self.v6))
        };
        if port || self.rule_for(Call::Bind, addr) != Some(Action::Tcp) {
            return Ok(false);
        }
        let tcp = self.open_tcp(call)?.ok_or(EINVAL)?;
        self.hand_over(&tcp, self.why_by_rule())?;
        Ok(true)
    }

    /// Binds the inner TCP socket to the address of a bind() that has left the choice of the port
    /// to connect(). Under `config`. Sleeps.
    fn bind_without_port(&self, tcp: &Tcp) -> Result {
        let address = self.asked.lock().bound_ip;
        let Some(ip) = address.filter(|_| tcp.is_fresh()) else {
            return Ok(());
        };
        // A program of a control group may have chosen the address.
        tcp.set_number(SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1)?;
        tcp.bind(Addr::new(ip, 0).into())
    }

    /// The connection that TCP carries is open: remembers that the peer has no ZRS, if that is why.
    pub(super) fn tcp_is_connected(&self) {
        let (why, remote) = {
            let inner = self.inner.lock();
            (self.asked.lock().why, inner.remote)
        };
        if let Some(why) = why {
            let peer = self.peer(remote);
            self.ctx.known.lock().confirm(peer, why, task::now_ns());
            // A link that has come up just before has had nothing to be forgotten.
            if self.ctx.transport.has_link_to(&self.net, None, remote.ip) {
                Acceptor::peer_has_zrs(&*self.ctx, &self.net, remote.ip);
            }
        }
    }

    /// A call with MSG_FASTOPEN connects and sends, which only TCP can: it carries the socket from
    /// now on. EOPNOTSUPP: the socket is not in mode AUTO, or not fresh. Sleeps.
    pub(super) fn fast_open(self: &Arc<Self>, call: &SockCall<'_>) -> Result {
        if !self.may_fall_back() {
            return Err(EOPNOTSUPP);
        }
        let _config = self.config.lock();
        if !matches!(self.inner.lock().phase, Phase::Fresh) {
            return Err(EOPNOTSUPP);
        }
        let tcp = self.open_tcp(call)?.ok_or(EINVAL)?;
        self.hand_over(&tcp, Why::Asked)
    }

    /// An option of TCP or IP that ZRS does not have: the inner TCP socket gets it, and carries the
    /// socket if the option changes what is sent. `unknown`: the error where there is none. Sleeps.
    pub(super) fn set_foreign_option(
        self: &Arc<Self>,
        level: i32,
        name: i32,
        value: &OptIn<'_>,
        call: &SockCall<'_>,
        unknown: Error,
    ) -> Result {
        if !self.may_fall_back() {
            return Err(unknown);
        }
        let _config = self.config.lock();
        let fresh = match self.inner.lock().phase {
            Phase::Fresh => true,
            Phase::Listening { .. } => false,
            _ => return Err(unknown),
        };
        let tcp_only = is_tcp_only(level, name);
        if tcp_only && !fresh {
            return Err(unknown);
        }
        let tcp = self.open_tcp(call)?.ok_or(EINVAL)?;
        tcp.set_option(level, name, value)?;
        if tcp_only {
            self.hand_over(&tcp, Why::Asked)?;
        }
        Ok(())
    }
}
