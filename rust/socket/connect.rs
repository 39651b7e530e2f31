// SPDX-License-Identifier: GPL-2.0

//! bind() and connect().

#![deny(unsafe_code)]

use core::net::SocketAddrV6;

use kernel::prelude::*;
use kernel::sync::Arc;

use super::{ports, report_failure, Sock};
use crate::kern::errno::{
    EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EALREADY, ECONNREFUSED, EDQUOT, EINPROGRESS, EISCONN,
    ENETUNREACH,
};
use crate::kern::sock::{Call, Sk, State as SkState};
use crate::kern::task::now_ns;
use crate::kern::trace;
use crate::kern::wait::{WaitError, WaitMode};
use crate::params::NetSetting;
use crate::proto::addr::{Addr, Bound, Ip};
use crate::proto::channel::{Channel, Failure, State};
use crate::proto::connect_backoff::ConnectBackoff;
use crate::proto::fallback::EndedBy;
use crate::proto::ports::Binding;
use crate::proto::readiness::Phase;
use crate::proto::rules::{Action, Call as RuleCall};
use crate::proto::ChanId;
use crate::transport::conn_table::Chan;
use crate::transport::link::{Link, RetryPolicy};

/// How often another port is chosen when a TCP socket is bound to the chosen one.
const PORT_TRIES: u32 = 64;

impl Sock {
    /// bind(). EINVAL: bound or connected already, or an unusable address. EADDRINUSE.
    /// EADDRNOTAVAIL: not an address of this host. ENODEV: a link-local address on an interface
    /// that does not exist. EACCES: a privileged port. Sleeps.
    pub(super) fn bind(self: &Arc<Self>, addr: Addr, call: &Call<'_>) -> Result {
        let sk = self.sk().ok_or(EINVAL)?;
        let (addr, low_ports) = sk.cgroup_bind(addr.into())?;
        let mut addr = Addr::from(addr);
        let _config = self.config.lock();
        {
            let inner = self.inner.lock();
            if inner.has_port || !matches!(inner.phase, Phase::Fresh) {
                return Err(EINVAL);
            }
        }
        self.check_use()?;
        if addr.port != 0 && !low_ports && !sk.may_bind_port(addr.port) {
            return Err(EACCES);
        }
        if addr.ip.is_link_local() && addr.ip.scope() == 0 {
            addr.ip = on_interface(addr.ip, sk.bound_dev_if())?;
        }
        match addr.ip.v4() {
            Some(_) if self.v6 && sk.is_v6only() => return Err(EINVAL),
            None if addr.ip.is_for_many() => return Err(EINVAL),
            _ if addr.ip.is_any() => {}
            _ if self.net.is_local(addr.ip.v6(), addr.ip.scope())? => {}
            _ => return Err(EADDRNOTAVAIL),
        }
        if self.rule_for(RuleCall::Bind, addr) == Some(Action::Tcp) {
            self.bind_by_rule(addr, call)?;
        } else if addr.port == 0 && sk.bind_address_no_port() {
            let mut inner = self.inner.lock();
            self.asked.lock().bound_ip = Some(addr.ip);
            inner.local = addr;
            sk.set_local(addr.into());
        } else {
            self.bind_port(addr, call, true)?;
            self.asked.lock().bound_ip = None;
        }
        if self.v6 && !addr.ip.is_any() && !addr.ip.is_v4() {
            // As TCP has it.
            sk.set_v6only(true);
        }
        Ok(())
    }

    /// Binds a port if none is bound yet, and the same port of the inner TCP socket if the socket
    /// gets one. `asked`: the program has called bind(). Under `config`.
    pub(super) fn bind_port(&self, addr: Addr, call: &Call<'_>, asked: bool) -> Result {
        if self.inner.lock().has_port {
            return Ok(());
        }
        let sk = self.sk().ok_or(EINVAL)?;
        let bound = Bound::new(addr.ip, sk.is_v6only());
        let tcp = self.open_tcp(call)?;
        for _ in 0..PORT_TRIES {
            let binding = ports::bind(&self.ctx.ports, &self.net, bound, addr.port, &sk)?;
            if asked {
                sk.set_local(binding.addr().into());
                if let Err(e) = sk.cgroup_post_bind() {
                    self.ctx.ports.lock().unbind(binding);
                    sk.set_local(self.inner.lock().local.into());
                    return Err(e);
                }
            }
            let both = match &tcp {
                Some(tcp) => {
                    let at = Addr::new(addr.ip, binding.addr().port);
                    let both = match asked || !at.ip.is_any() {
                        true => tcp
                            .bind(at.into())
                            .and_then(|()| tcp.check_bound(at.into())),
                        false => tcp.autobind(at.port),
                    };
                    both.inspect(|()| self.tcp_bound(tcp))
                }
                None => Ok(()),
            };
            match both {
                Ok(()) => {
                    self.set_binding(&sk, binding);
                    return Ok(());
                }
                Err(e) => {
                    self.ctx.ports.lock().unbind(binding);
                    sk.set_local(self.inner.lock().local.into());
                    if addr.port != 0 || e != EADDRINUSE {
                        return Err(e);
                    }
                }
            }
        }
        Err(EADDRINUSE)
    }

    fn set_binding(&self, sk: &Sk, binding: Binding) {
        let addr = binding.addr();
        let mut inner = self.inner.lock();
        let was = inner.state_before();
        self.asked.lock().binding = Some(binding);
        inner.has_port = true;
        inner.local = addr;
        sk.set_local(addr.into());
        inner.trace_state_change(was);
    }

    /// Reserves the connection to `remote` for the bound port, or for a port that it chooses. Under
    /// `config`.
    fn take_connection(&self, remote: Addr) -> Result {
        let sk = self.sk().ok_or(EINVAL)?;
        let (bound, own) = {
            let asked = self.asked.lock();
            (asked.binding, asked.bound_ip)
        };
        let binding = match bound {
            Some(mut binding) => {
                self.ctx.ports.lock().reconnect(&mut binding, remote)?;
                binding
            }
            None => ports::connect(&self.ctx.ports, &self.net, own, remote, &sk)?,
        };
        self.set_binding(&sk, binding);
        Ok(())
    }

    /// Releases the connection, and the port if it was chosen for the connection. Under `config`.
    fn leave_connection(&self) {
        let Some(mut binding) = self.asked.lock().binding else {
            return;
        };
        if binding.chosen() {
            self.unbind();
            let mut inner = self.inner.lock();
            // The next connection may use another address family.
            inner.local = self.asked.lock().unbound(self.v6);
            if let Some(sk) = &inner.sk {
                sk.set_local(inner.local.into());
            }
            return;
        }
        self.ctx.ports.lock().disconnect(&mut binding);
        self.asked.lock().binding = Some(binding);
    }

    /// Releases the port. Sleeps.
    pub(super) fn unbind(&self) {
        let bound = {
            let mut inner = self.inner.lock();
            let was = inner.state_before();
            let bound = self.asked.lock().binding.take();
            inner.has_port = false;
            inner.trace_state_change(was);
            bound
        };
        if let Some(binding) = bound {
            self.ctx.ports.lock().unbind(binding);
        }
    }

    /// connect(). EISCONN, EALREADY, EINPROGRESS (non-blocking), or the reason of the failure.
    /// Sleeps.
    pub(super) fn connect(self: &Arc<Self>, addr: Addr, nonblock: bool, call: &Call<'_>) -> Result {
        let goes_on;
        {
            let _config = self.config.lock();
            let (phase, connect_unreported) = {
                let inner = self.inner.lock();
                (inner.phase, self.asked.lock().connect_unreported)
            };
            goes_on = matches!(phase, Phase::Connecting);
            match phase {
                Phase::Fresh => self.begin_attempt(addr, call)?,
                Phase::Connecting if nonblock => return Err(EALREADY),
                Phase::Connecting => {}
                // The connect() that began this attempt was interrupted, perhaps to be restarted,
                // or did not block. As with TCP, the next call reports success.
                Phase::Connected if connect_unreported => {}
                Phase::Connected | Phase::Listening { .. } => return Err(EISCONN),
                Phase::Failed => {
                    // The error of the last attempt is reported once; then a new attempt may be
                    // made.
                    let error = self.take_error();
                    self.forget_attempt();
                    error?;
                    self.begin_attempt(addr, call)?;
                }
                // The inner TCP socket gives the answer.
                Phase::Carried => return Err(EINPROGRESS),
            }
        }
        if nonblock {
            let inner = self.inner.lock();
            return match inner.phase {
                Phase::Connected => {
                    self.asked.lock().connect_unreported = false;
                    Ok(())
                }
                _ => Err(EINPROGRESS),
            };
        }
        let mut timeout = self.sk().and_then(|sk| sk.sndtimeo(false));
        let done = self.await_link(WaitMode::Interruptible, &mut timeout, || {
            let inner = self.inner.lock();
            (!matches!(inner.phase, Phase::Connecting)).then_some(inner.phase)
        });
        match done {
            Ok(Phase::Connected) => {
                self.asked.lock().connect_unreported = false;
                Ok(())
            }
            Ok(Phase::Carried) => Err(EINPROGRESS),
            Ok(_) => {
                let error = self.take_error();
                let _config = self.config.lock();
                self.forget_attempt();
                Err(error.err().unwrap_or(ECONNREFUSED))
            }
            // As with TCP.
            Err(WaitError::TimedOut) if goes_on => Err(EALREADY),
            Err(WaitError::TimedOut) => Err(EINPROGRESS),
            Err(e) => Err(e.to_errno(timeout)),
        }
    }

    /// Resets the socket after a failed attempt to its state before it. Under `config`.
    pub(super) fn forget_attempt(self: &Arc<Self>) {
        {
            let mut inner = self.inner.lock();
            if !matches!(inner.phase, Phase::Failed) {
                return;
            }
            let was = inner.state_before();
            inner.set_phase(Phase::Fresh);
            inner.trace_state_change(was);
            inner.reported = false;
            inner.retries = 0;
            inner.stale_tries = 0;
            inner.small_promise = None;
        }
        self.leave_connection();
    }

    /// The address that connect() to `addr` uses: that which the control groups' programs leave,
    /// and this host for an unspecified one. Errors of [`redirected`](Self::redirected) and
    /// [`reachable`](Self::reachable).
    pub(super) fn destination(&self, addr: Addr) -> Result<Addr> {
        let addr = self.redirected(addr)?;
        Ok(Addr::new(self.reachable(addr.ip)?, addr.port))
    }

    /// Starts an attempt with ZRS to a [`destination`](Self::destination). An immediate failure is
    /// returned, and not left in SO_ERROR.
    pub(super) fn begin_zrs(self: &Arc<Self>, addr: Addr) -> Result {
        if self.is_off() {
            return Err(EACCES);
        }
        let started = self.start_connect(addr);
        if started.is_err() && matches!(self.inner.lock().phase, Phase::Failed) {
            let _ = self.take_error();
            self.forget_attempt();
        }
        started
    }

    fn start_connect(self: &Arc<Self>, addr: Addr) -> Result {
        if addr.port == 0 {
            return Err(ECONNREFUSED);
        }
        let sk = self.sk().ok_or(EINVAL)?;
        let local = self.inner.lock().local.ip;
        if !sk.device_allows(Addr::new(local, 0).into(), addr.into()) {
            return Err(ENETUNREACH);
        }
        // An earlier attempt may have just failed, before the failing thread could release its
        // channel.
        self.try_finish();
        self.take_connection(addr)?;
        let local = self.inner.lock().local;
        sk.cgroup_packets(local.into(), addr.into(), true)
            .inspect_err(|_| self.leave_connection())?;
        let limits = Sock::limits_of(&sk);
        let connect_ms = self.tcp_options().connect_ms();
        let answer_ms = NetSetting::ConnectTimeoutMs.get(&self.net);
        let promise = {
            let mut inner = self.inner.lock();
            inner.remote = addr;
            self.asked.lock().connect_unreported = true;
            inner.attempt = inner.attempt.wrapping_add(1);
            inner.backoff = ConnectBackoff::new(now_ns(), answer_ms, connect_ms);
            let before = core::mem::replace(&mut inner.limits, limits);
            // A promise for other limits may be left over.
            (before != limits).then(|| inner.small_promise.take())
        };
        drop(promise);
        let opened = self.open_channel(None);
        if opened.is_err() && matches!(self.inner.lock().phase, Phase::Fresh) {
            self.leave_connection();
        }
        opened
    }

    /// Runs the control groups' programs for connect() to `addr`, and returns the address that they
    /// leave. They may also set the socket's own address. EPERM.
    fn redirected(&self, addr: Addr) -> Result<Addr> {
        let sk = self.sk().ok_or(EINVAL)?;
        let (addr, own) = sk.cgroup_connect(addr.into())?;
        if let Some(own) = own {
            let own = Addr::from(SocketAddrV6::new(own, 0, 0, sk.bound_dev_if()));
            let mut inner = self.inner.lock();
            self.asked.lock().bound_ip = Some(own.ip);
            inner.local = own;
        }
        Ok(addr.into())
    }

    /// The address that connect() uses to reach `ip`. EINVAL: link-local, and without an interface,
    /// or with another one than the socket is bound to; or the socket is bound to IPv6, and `ip` is
    /// IPv4. EAFNOSUPPORT: bound to IPv4, and `ip` is IPv6. ENETUNREACH: a multicast or broadcast
    /// address, also of a network of this host; or IPv4, and the socket is IPv6-only.
    fn reachable(&self, mut ip: Ip) -> Result<Ip> {
        let sk = self.sk().ok_or(EINVAL)?;
        let bound = self.asked.lock().address().filter(|ip| *ip != Ip::ANY);
        if ip.is_for_many() || self.net.is_broadcast(ip.v6()) {
            return Err(ENETUNREACH);
        }
        if ip.is_any() {
            // As with TCP, the unspecified address means this host.
            ip = bound.filter(|ip| ip.is_v4()).unwrap_or(ip);
            ip = ip.loopback_of_family();
        }
        if ip.is_link_local() {
            let own = bound.map_or(0, Ip::scope);
            let own = if own == 0 { sk.bound_dev_if() } else { own };
            ip = on_interface(ip, own)?;
        }
        if ip.is_v4() && self.v6 && sk.is_v6only() {
            return Err(ENETUNREACH);
        }
        match bound {
            Some(own) if own.is_v4() && !ip.is_v4() => Err(EAFNOSUPPORT),
            Some(own) if !own.is_v4() && ip.is_v4() => Err(EINVAL),
            _ => Ok(ip),
        }
    }

    /// Makes the channel and asks for it to be opened on a link to `remote`. `again`: the number of
    /// the program's connect that this attempt retries.
    fn open_channel(self: &Arc<Self>, again: Option<u32>) -> Result {
        let (local, remote, attempt) = {
            let inner = self.inner.lock();
            (inner.local, inner.remote, again.unwrap_or(inner.attempt))
        };
        self.promise_small()?;
        let limits = self.inner.lock().limits;
        let chan = Chan::submit(&self.ctx.transport, self, |id| {
            Channel::connect(id, local.port, remote.port, limits)
        })?;
        let id = chan.id().unwrap_or_default();
        let bind_to = (!local.ip.is_any()).then_some(local.ip);
        let transport = &self.ctx.transport;
        let falls_back = self.inner.lock().decision.is_some();
        let asker = self.asker(falls_back);
        let link = transport.link_to(&self.net, bind_to, remote.ip, asker)?;
        let released = {
            let mut inner = self.inner.lock();
            let given_up = again.is_some() && !matches!(inner.phase, Phase::Connecting);
            if inner.released || given_up || inner.attempt != attempt {
                true
            } else {
                // Replaces the channel of a failed attempt.
                let was = inner.state_before();
                inner.conn.open(chan, &link);
                inner.set_phase(Phase::Connecting);
                inner.trace_state_change(was);
                inner.reported = false;
                inner.user_timeout.reset();
                inner.deadline = Some(inner.backoff.deadline());
                false
            }
        };
        if released {
            // The socket was closed, or the connect given up, while it was being retried.
            return Ok(());
        }
        let place = match link.attach(self, id) {
            Ok(place) => place,
            Err(e) => {
                self.fail_attempt(attempt, Failure::NoResources);
                return Err(e);
            }
        };
        if self.link().is_none_or(|l| !Arc::ptr_eq(&l, &link)) {
            // The attempt failed or timed out before the channel was on the link.
            if let Some(place) = place {
                link.detach(place);
            }
            return Ok(());
        }
        self.arm_timer();
        link.kick(self);
        self.keep_alive();
        Ok(())
    }

    fn fail_attempt(self: &Arc<Self>, attempt: u32, why: Failure) {
        {
            let mut inner = self.inner.lock();
            if inner.attempt != attempt {
                return;
            }
            let was = inner.state_before();
            inner.conn.chan.with(|c| c.abort(why));
            report_failure(&mut inner);
            inner.trace_state_change(was);
        }
        self.try_finish();
        self.wake_state();
    }

    /// Checks the timers of channel `id` at `now`, in nanoseconds of the monotonic clock. If
    /// `deadline` has passed, gives up: the connect, or the link of a peer that does not give a
    /// window back or does not end a closed channel. Also retries a connect that found the backlog
    /// full, sends bytes that were corked for too long, and ends a connection whose peer exceeds
    /// TCP_USER_TIMEOUT. Returns when to check again; `None`: the socket is not watched any more.
    /// Sleeps.
    pub(crate) fn check_timers(self: &Arc<Self>, id: ChanId, now: u64) -> Option<u64> {
        self.check_fallback(now);
        self.check_user_timeout(id, now);
        self.check_cork(now);
        let next;
        {
            let mut inner = self.inner.lock();
            if inner.conn.chan.id() != Some(id) {
                return None;
            }
            let again =
                inner.backoff.due(now) && inner.conn.chan.with(Channel::try_again).unwrap_or(false);
            if again {
                inner.deadline = Some(inner.backoff.deadline());
            }
            let over = inner
                .deadline
                .take_if(|deadline| *deadline <= now)
                .is_some();
            let gave_up = over && inner.gives_up_cork(now);
            next = inner.due();
            inner.conn.set_watched(next.and(Some(id)));
            if !over || gave_up {
                drop(inner);
                if again || gave_up {
                    self.kick();
                }
                return next;
            }
            if inner.released {
                // The peer has not sent END in all this time. Only ending the link invalidates the
                // remote key that it has.
                let silent = inner.conn.chan.is_some_and(|c| c.state() != State::Closed);
                let link = inner.conn.link.clone().filter(|_| silent);
                drop(inner);
                if let Some(link) = link {
                    link.fail_link_lost("a channel does not end");
                }
                return next;
            }
            if matches!(inner.phase, Phase::Connected) {
                let kept = inner.conn.chan.is_some_and(Channel::revoking);
                let link = inner.conn.link.clone().filter(|_| kept);
                drop(inner);
                if let Some(link) = link {
                    link.fail_link_lost("a window is not given back");
                }
                return next;
            }
            let was = inner.state_before();
            inner.conn.chan.with(Channel::time_out);
            report_failure(&mut inner);
            inner.trace_state_change(was);
        }
        self.try_finish();
        self.wake_state();
        next
    }

    /// The link has gone down, for the reason `why`. `retry`: whether a connect may be retried on a
    /// new link. Sleeps.
    pub(crate) fn link_lost(self: &Arc<Self>, link: &Arc<Link>, why: Failure, retry: RetryPolicy) {
        let (again, attempt, notice) = {
            let mut inner = self.inner.lock();
            if !inner.conn.is_on(link) {
                // The channel is not on that link any more.
                return;
            }
            let opening = inner.conn.chan.is_some_and(|c| c.state() == State::Opening);
            // The loss of the link says nothing about whether the peer listens.
            let inner = &mut *inner;
            let tries = match retry {
                RetryPolicy::Stale => &mut inner.stale_tries,
                _ => &mut inner.retries,
            };
            let again = opening && *tries < retry.max_retries() && !inner.released;
            *tries += u8::from(again);
            if again {
                inner.backoff.link_changed(now_ns());
            }
            // Report ETIMEDOUT only to sockets with a keepalive or user timeout; the rest get
            // ECONNRESET.
            let why = match why {
                Failure::TimedOut if !opening && !self.has_time_limit(inner) => Failure::LinkLost,
                why => why,
            };
            let was = inner.state_before();
            inner.conn.chan.with(|c| c.abort(why));
            // The device will not access the channel's memory again: the queue pair is destroyed.
            inner.conn.completed(u64::MAX);
            if !again {
                inner.ended_by = EndedBy::Link;
                report_failure(inner);
            }
            inner.trace_state_change(was);
            (again, inner.attempt, inner.last_notice.take())
        };
        drop(notice);
        self.wait.wake_all();
        self.try_finish();
        if again {
            if let Err(e) = self.open_channel(Some(attempt)) {
                let why = match e {
                    e if e == EDQUOT => Failure::Quota,
                    _ => Failure::NoResources,
                };
                self.fail_attempt(attempt, why);
            }
            return;
        }
        self.wake_state();
    }

    /// The channel of connect() has been opened. Called under `inner`.
    pub(crate) fn opened(inner: &mut super::Inner, local_ip: Ip) {
        inner.set_phase(Phase::Connected);
        inner.deadline = None;
        inner.needs_no_tcp();
        inner.local.ip = local_ip;
        if let Some(sk) = &inner.sk {
            sk.set_local(inner.local.into());
            sk.set_remote(inner.remote.into());
            sk.set_state(SkState::Established);
        }
        trace::connect(|| (inner.ends(), 0));
    }
}

/// Returns a link-local address with its own interface, or, if it names none, with `own`, that of
/// the socket. EINVAL if there is neither, or if they differ.
fn on_interface(ip: Ip, own: u32) -> Result<Ip> {
    match (ip.scope(), own) {
        (0, 0) => Err(EINVAL),
        (0, own) => Ok(Ip::new(ip.v6(), own)),
        (given, own) if own != 0 && given != own => Err(EINVAL),
        _ => Ok(ip),
    }
}
