// SPDX-License-Identifier: GPL-2.0

//! TCP beside ZRS: the TCP socket that a socket may have inside, which has its port and its options and takes the
//! connections of TCP clients.
//!
//! It is made when the socket gets a port by bind() or listen(), under `config`, and goes with the last close. Its own
//! lock comes after `config`; no spinlock of ours is held over a call on it, but for a look at its readiness.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::Sock;
use crate::kern::sock::tcp::Tcp;
use crate::kern::sock::Call;
use crate::kern::task;
use crate::params;
use crate::proto::options::{SOL_TCP, TCP_NODELAY};
use crate::proto::readiness::{self, Phase};
use crate::uapi;

/// Whether a socket has TCP beside ZRS: `ZRS_TCP_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TcpMode {
    /// It has not.
    Never,
    /// Its port is its own with TCP as well, and TCP clients are accepted.
    Auto,
    /// Its port is its own with TCP as well, and TCP clients are refused.
    Required,
}

impl TcpMode {
    /// That of new sockets.
    pub(super) fn of_module() -> Self {
        Self::from_number(params::TCP.get()).unwrap_or(Self::Never)
    }

    fn from_number(number: u32) -> Option<Self> {
        match number {
            uapi::ZRS_TCP_NEVER => Some(Self::Never),
            uapi::ZRS_TCP_AUTO => Some(Self::Auto),
            uapi::ZRS_TCP_REQUIRED => Some(Self::Required),
            _ => None,
        }
    }

    /// As programs know it.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Never => uapi::ZRS_TCP_NEVER,
            Self::Auto => uapi::ZRS_TCP_AUTO,
            Self::Required => uapi::ZRS_TCP_REQUIRED,
        }
    }
}

/// EACCES for a task that may have restricted itself: Landlock says which TCP ports it may bind, but is asked about
/// system calls alone, and by those that load its policy, not by us. All such tasks have no_new_privs.
fn may_have() -> Result {
    if task::no_new_privs() && params::TCP_NO_NEW_PRIVS.get() == 0 {
        return Err(EACCES);
    }
    Ok(())
}

impl Sock {
    /// ZRS_TCP. EINVAL: an unknown mode, or the socket has a port, a connection or a TCP socket already. EACCES: the
    /// task has no_new_privs. Sleeps.
    pub(super) fn set_tcp_mode(&self, number: u32) -> Result {
        let mode = TcpMode::from_number(number).ok_or(EINVAL)?;
        let _config = self.config.lock();
        if mode != TcpMode::Never {
            may_have()?;
        }
        let mut inner = self.inner.lock();
        let fresh = matches!(inner.phase, Phase::Fresh) && inner.binding.is_none();
        if !fresh || inner.tcp.is_some() {
            return Err(EINVAL);
        }
        inner.tcp_mode = mode;
        Ok(())
    }

    /// The TCP socket inside, made if the mode wants one and there is none. EACCES, and the errors of socket() and
    /// setsockopt(). Under `config`.
    pub(super) fn open_tcp(&self, call: &Call<'_>) -> Result<Option<Arc<Tcp>>> {
        let options = {
            let inner = self.inner.lock();
            if inner.tcp_mode == TcpMode::Never || inner.tcp.is_some() {
                return Ok(inner.tcp.clone());
            }
            inner.options.clone()
        };
        may_have()?;
        let tcp = Tcp::open(call)?;
        // A socket of ours says that it has TCP_NODELAY, and all of its connections do.
        tcp.set_number(SOL_TCP, TCP_NODELAY, 1)?;
        let options = options.as_deref().copied().unwrap_or_default();
        for (name, value) in options.changed() {
            tcp.set_number(SOL_TCP, name, value)?;
        }
        self.inner.lock().tcp = Some(tcp.clone());
        self.has_tcp.store(true, Relaxed);
        Ok(Some(tcp))
    }

    /// The TCP socket that gets the options of level SOL_SOCKET, too; see
    /// [`SocketOps`](crate::kern::sock::family::SocketOps).
    pub(super) fn inner_tcp_for(&self, call: &Call<'_>, carried: bool) -> Result<Option<Arc<Tcp>>> {
        let (mode, tcp, fresh) = {
            let inner = self.inner.lock();
            let fresh = matches!(inner.phase, Phase::Fresh);
            (inner.tcp_mode, inner.tcp.clone(), fresh)
        };
        let wanted = !carried && mode != TcpMode::Never && fresh && may_have().is_ok();
        if !wanted || tcp.is_some() {
            return Ok(tcp);
        }
        let _config = self.config.lock();
        self.open_tcp(call)
    }

    /// The TCP socket inside, if there is one.
    pub(super) fn tcp(&self) -> Option<Arc<Tcp>> {
        if !self.has_tcp.load(Relaxed) {
            return None;
        }
        self.inner.lock().tcp.clone()
    }

    /// The TCP socket that takes connections for this one, if it does.
    pub(super) fn tcp_listener(&self) -> Option<Arc<Tcp>> {
        if !self.has_tcp.load(Relaxed) {
            return None;
        }
        let inner = self.inner.lock();
        inner
            .tcp
            .clone()
            .filter(|_| inner.tcp_mode == TcpMode::Auto)
    }

    /// The TCP socket has the port of this one now.
    pub(super) fn tcp_bound(&self, tcp: &Tcp) {
        if self.inner.lock().tcp_mode == TcpMode::Required {
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
