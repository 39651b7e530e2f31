// SPDX-License-Identifier: GPL-2.0

//! TCP beside ZRS. A ZRS socket may have an inner TCP socket, which has the same port and options
//! and accepts the connections of TCP clients.
//!
//! The inner socket is made when the socket gets a port by bind() or listen(), or earlier for an
//! option of level SOL_SOCKET, under `config`; the last close releases it. Its own lock comes after
//! `config`. No spinlock of ours is held across a call on it, except to read its readiness.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::Sock;

use crate::kern::net::Net;
use crate::kern::sock::tcp::Tcp;
use crate::kern::sock::Call;
use crate::kern::task;
use crate::params::NetSetting;
use crate::proto::fallback::Why;
use crate::proto::options::{SOL_IP, SOL_TCP, TCP_NODELAY};
use crate::proto::readiness::{self, Phase};
use crate::uapi;

/// `bind()` to port 0 leaves the choice of the port to `connect()`.
pub(super) const IP_BIND_ADDRESS_NO_PORT: i32 = 24;

/// Whether a socket has TCP beside ZRS: `ZRS_TCP_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpMode {
    /// No TCP socket.
    Never,
    /// The port is taken for TCP as well, and TCP clients are accepted.
    Auto,
    /// The port is taken for TCP as well, and TCP clients are refused.
    Required,
    /// TCP carries the socket.
    Only,
}

impl TcpMode {
    /// The mode of new sockets of `net`.
    pub(super) fn of_net(net: &Net) -> Self {
        Self::from_number(NetSetting::Tcp.get(net)).unwrap_or(Self::Never)
    }

    fn from_number(number: u32) -> Option<Self> {
        match number {
            uapi::ZRS_TCP_NEVER => Some(Self::Never),
            uapi::ZRS_TCP_AUTO => Some(Self::Auto),
            uapi::ZRS_TCP_REQUIRED => Some(Self::Required),
            uapi::ZRS_TCP_ONLY => Some(Self::Only),
            _ => None,
        }
    }

    /// The value of the socket option.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Never => uapi::ZRS_TCP_NEVER,
            Self::Auto => uapi::ZRS_TCP_AUTO,
            Self::Required => uapi::ZRS_TCP_REQUIRED,
            Self::Only => uapi::ZRS_TCP_ONLY,
        }
    }
}

/// Returns EACCES for a task that may have restricted itself. Landlock restricts the TCP ports that
/// a task may bind. But it checks system calls only, and only for tasks that loaded its policy; it
/// does not see the bind that we make. All such tasks have no_new_privs set. `net`: the socket's.
pub(crate) fn may_have(net: &Net) -> Result {
    if task::no_new_privs() && NetSetting::TcpNoNewPrivs.get(net) == 0 {
        return Err(EACCES);
    }
    Ok(())
}

impl Sock {
    /// Sets ZRS_TCP. EINVAL: the mode is unknown, or the socket is connected or has been; or it has
    /// a port or an inner TCP socket, and the mode is not ONLY. EACCES: the task has no_new_privs
    /// set. For ONLY also the errors of TCP's socket() and bind(); the mode is as before then.
    /// Sleeps.
    pub(super) fn set_tcp_mode(self: &Arc<Self>, number: u32, call: &Call<'_>) -> Result {
        let mode = TcpMode::from_number(number).ok_or(EINVAL)?;
        let _config = self.config.lock();
        if mode != TcpMode::Never {
            may_have(&self.net).inspect_err(|_| {
                if mode != TcpMode::Only {
                    let counts = &self.ctx.transport.counts;
                    counts.fallback(&self.net, Why::NoNewPrivs.number());
                }
            })?;
        }
        let before = {
            let inner = self.inner.lock();
            let mut asked = self.asked.lock();
            let unused = asked.binding.is_none() && asked.tcp.is_none();
            if !matches!(inner.phase, Phase::Fresh) || !(unused || mode == TcpMode::Only) {
                return Err(EINVAL);
            }
            core::mem::replace(&mut asked.tcp_mode, mode)
        };
        if mode != TcpMode::Only {
            return Ok(());
        }
        self.become_tcp(call)
            .inspect_err(|_| self.asked.lock().tcp_mode = before)
    }

    /// TCP carries the socket, which may be bound, from now on. Under `config`. Sleeps.
    fn become_tcp(self: &Arc<Self>, call: &Call<'_>) -> Result {
        let tcp = self.open_tcp(call)?.ok_or(EINVAL)?;
        let binding = self.asked.lock().binding;
        if let Some(binding) = binding.filter(|_| tcp.is_fresh()) {
            tcp.bind(binding.addr().into())?;
        }
        self.hand_over(&tcp, Why::Asked)
    }

    /// The inner TCP socket, made if the mode requires one and there is none. EACCES, and the
    /// errors of socket() and setsockopt(). Under `config`.
    pub(super) fn open_tcp(&self, call: &Call<'_>) -> Result<Option<Arc<Tcp>>> {
        let options = {
            let asked = self.asked.lock();
            if asked.tcp_mode == TcpMode::Never || asked.tcp.is_some() {
                return Ok(asked.tcp.clone());
            }
            asked.options.clone()
        };
        may_have(&self.net)?;
        let tcp = Tcp::open(call)?;
        // ZRS reports TCP_NODELAY as set, so TCP connections must have it set, too.
        tcp.set_number(SOL_TCP, TCP_NODELAY, 1)?;
        let options = options.as_deref().copied().unwrap_or_default();
        for (name, value) in options.changed() {
            tcp.set_number(SOL_TCP, name, value)?;
        }
        if self.sk().is_some_and(|sk| sk.bind_address_no_port()) {
            tcp.set_number(SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1)?;
        }
        self.asked.lock().tcp = Some(tcp.clone());
        self.has_tcp.store(true, Relaxed);
        Ok(Some(tcp))
    }

    /// The inner TCP socket, to which options of level SOL_SOCKET are applied as well; see
    /// [`SocketOps`](crate::kern::sock::family::SocketOps).
    pub(super) fn inner_tcp_for(&self, call: &Call<'_>, carried: bool) -> Result<Option<Arc<Tcp>>> {
        let (mode, tcp, fresh) = {
            let inner = self.inner.lock();
            let fresh = matches!(inner.phase, Phase::Fresh);
            let asked = self.asked.lock();
            (asked.tcp_mode, asked.tcp.clone(), fresh)
        };
        let wanted = !carried && mode != TcpMode::Never && fresh && may_have(&self.net).is_ok();
        if !wanted || tcp.is_some() {
            return Ok(tcp);
        }
        let _config = self.config.lock();
        self.open_tcp(call)
    }

    /// The inner TCP socket, if there is one.
    pub(super) fn tcp(&self) -> Option<Arc<Tcp>> {
        if !self.has_tcp.load(Relaxed) {
            return None;
        }
        self.asked.lock().tcp.clone()
    }

    /// The inner TCP socket, if it carries the socket.
    pub(super) fn carrier(&self) -> Option<Arc<Tcp>> {
        let inner = self.inner.lock();
        let carried = matches!(inner.phase, Phase::Carried);
        let tcp = self.asked.lock().tcp.clone();
        tcp.filter(|_| carried)
    }

    /// The inner TCP socket, if it accepts connections for this socket.
    pub(super) fn tcp_listener(&self) -> Option<Arc<Tcp>> {
        if !self.has_tcp.load(Relaxed) {
            return None;
        }
        let asked = self.asked.lock();
        asked
            .tcp
            .clone()
            .filter(|_| asked.tcp_mode == TcpMode::Auto)
    }

    /// The inner TCP socket is now bound to the port of this socket.
    pub(super) fn tcp_bound(&self, tcp: &Tcp) {
        if self.asked.lock().tcp_mode == TcpMode::Required {
            tcp.keep_port();
        }
    }

    /// Readiness for TCP connections that wait for accept().
    pub(super) fn tcp_events(&self) -> u32 {
        let listening = || matches!(self.inner.lock().phase, Phase::Listening { .. });
        match self.tcp_listener() {
            Some(tcp) if listening() => tcp.poll() & readiness::IN,
            _ => 0,
        }
    }
}
