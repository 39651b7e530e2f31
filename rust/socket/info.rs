// SPDX-License-Identifier: GPL-2.0

//! Information about a socket: ioctls and `struct zrs_info`.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::tcp::TcpMode;
use super::{Asked, Sock};
use crate::kern::sock::tcp::{Stage, Tcp};
use crate::kern::task;
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::{Channel, State};
use crate::proto::fallback::Why;
use crate::proto::readiness::Phase;
use crate::transport::link::Link;
use crate::uapi;

/// FIONREAD and SIOCOUTQ (TIOCOUTQ), as <asm-generic/ioctls.h> has them.
const FIONREAD: u32 = 0x541b;
const SIOCOUTQ: u32 = 0x5411;
/// As <asm-generic/sockios.h> and <linux/sockios.h> have them.
const SIOCATMARK: u32 = 0x8905;
const SIOCOUTQNSD: u32 = 0x894b;

impl Sock {
    /// ioctl() on the socket.
    pub(super) fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize, nonblock: bool) -> Result<i32> {
        match cmd {
            uapi::ZRS_IOC_DOORBELL => {
                self.doorbell();
                Ok(0)
            }
            uapi::ZRS_IOC_RING_WAIT => {
                let ptr = UserPtr::from_addr(arg);
                let mut reader = UserSlice::new(ptr, size_of::<uapi::zrs_ioc_ring_wait>()).reader();
                self.await_ring(&reader.read()?)?;
                Ok(0)
            }
            uapi::ZRS_IOC_RECV_MAP => self.recv_map_user(arg, nonblock),
            _ => put_int(arg, self.queued(cmd)?),
        }
    }

    /// The number that an ioctl of TCP's gives. `ENOIOCTLCMD`: `cmd` is none of these.
    pub(super) fn queued(&self, cmd: u32) -> Result<u64> {
        match cmd {
            FIONREAD | SIOCOUTQ | SIOCOUTQNSD if self.is_listening() => Err(EINVAL),
            // There is no urgent data.
            SIOCATMARK => Ok(0),
            SIOCOUTQNSD => Ok(self.tx_corked()),
            FIONREAD => Ok(self.inner.lock().rx.bytes()),
            SIOCOUTQ => Ok(self.tx_queued()),
            _ => Err(ENOIOCTLCMD),
        }
    }

    fn is_listening(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Listening { .. })
    }

    /// Corked bytes.
    pub(super) fn tx_corked(&self) -> u64 {
        self.inner.lock().conn.chan.corked().into()
    }

    /// Bytes that are corked, or posted and not acknowledged. Bytes that are posted during the call
    /// may count twice. Takes the link's lock and the socket's.
    fn tx_queued(&self) -> u64 {
        let corked = self.tx_corked();
        corked + self.tx_in_flight()
    }

    /// Bytes that were posted and that the peer has not acknowledged. If that is not known, sends a
    /// message that will tell. Takes the link's lock and the socket's.
    pub(super) fn tx_in_flight(&self) -> u64 {
        self.in_flight_by(Link::done_with)
    }

    fn in_flight_by(&self, done_with: fn(&Arc<Link>, u64) -> bool) -> u64 {
        let (bytes, seq, link) = {
            let inner = self.inner.lock();
            let conn = &inner.conn;
            (conn.in_flight(), conn.last_seq(), conn.link.clone())
        };
        match link {
            Some(link) if bytes > 0 && done_with(&link, seq) => 0,
            _ => bytes,
        }
    }

    /// `struct zrs_info` for a list. The link asks for a completion only if the calling task owns
    /// the socket, or may administer its network namespace: other users must not cause messages.
    /// Takes the link's lock and the socket's.
    pub(crate) fn listed_info(&self) -> uapi::zrs_info {
        let owner = self.sk().map(|sk| sk.owner());
        let tx_queued = match owner == Some(task::uid()) || self.net.is_administered() {
            true => self.tx_queued(),
            false => self.tx_corked() + self.in_flight_by(Link::is_done_with),
        };
        self.info_with(tx_queued)
    }

    /// `struct zrs_info`. Takes the link's lock and the socket's.
    pub(super) fn info(&self) -> uapi::zrs_info {
        self.info_with(self.tx_queued())
    }

    fn info_with(&self, tx_queued: u64) -> uapi::zrs_info {
        let sk = self.sk();
        let carrier = self.carrier();
        let (local, remote) = match &carrier {
            Some(tcp) => (
                tcp.name(false).map(Addr::from),
                tcp.name(true).map(Addr::from),
            ),
            None => (None, None),
        };
        let inner = self.inner.lock();
        let asked = self.asked.lock();
        let of_channel = |c: &mut Channel| {
            let live = c.state() != State::Closed;
            let q = if live { c.local().index } else { 0 };
            (q, c.window_size(), c.peer_window_size())
        };
        let (channel, window, peer_window) = inner.conn.chan.with(of_channel).unwrap_or_default();
        let local = local.unwrap_or(inner.local);
        let remote = remote.unwrap_or(inner.remote);
        uapi::zrs_info {
            state: match &carrier {
                Some(tcp) => state_of_tcp(tcp),
                None => state_of(&inner),
            },
            why: asked.why.map_or(0, Why::number),
            channel,
            local_addr: be32(local.ip),
            remote_addr: be32(remote.ip),
            local_port: local.port.to_be(),
            remote_port: remote.port.to_be(),
            uid: sk.as_ref().map_or(0, |sk| sk.uid()),
            inode: sk.as_ref().map_or(0, |sk| sk.ino()),
            tx_bytes: inner.counters.tx_bytes,
            rx_bytes: inner.counters.rx_bytes,
            tx_copied: inner.counters.tx_copied,
            rx_copied: inner.counters.rx_copied,
            tx_queued,
            rx_queued: inner.rx.bytes(),
            window: u64::from(window.unwrap_or(0)),
            peer_window: u64::from(peer_window.unwrap_or(0)),
            backlog: asked.queue.len() as u32,
            error: sk
                .as_ref()
                .and_then(|sk| sk.err())
                .map_or(0, |e| e.to_errno().unsigned_abs()),
            link: inner.conn.link.as_ref().map_or(0, |link| link.id),
            backlog_max: match inner.phase {
                Phase::Listening { .. } => asked.backlog as u32,
                _ => 0,
            },
            local_addr6: local.ip.octets(),
            remote_addr6: remote.ip.octets(),
            family: if self.v6 {
                uapi::AF_INET6
            } else {
                uapi::AF_INET
            },
            local_scope_id: local.ip.scope(),
            remote_scope_id: remote.ip.scope(),
            tcp: asked.tcp_mode.number(),
            carriers: carriers_of(inner.phase, &asked),
            ..Default::default()
        }
    }
}

/// Writes an `int` to the program's memory.
fn put_int(arg: usize, value: u64) -> Result<i32> {
    let value = i32::try_from(value).unwrap_or(i32::MAX);
    UserSlice::new(UserPtr::from_addr(arg), size_of::<i32>())
        .writer()
        .write(&value)?;
    Ok(0)
}

/// An address as `struct sockaddr_in` has it; 0 if it is not one of IPv4.
pub(crate) fn be32(ip: Ip) -> u32 {
    ip.v4().map_or(0, |v4| u32::from_ne_bytes(v4.octets()))
}

/// `ZRS_CARRIER_*`.
fn carriers_of(phase: Phase, asked: &Asked) -> u32 {
    match phase {
        Phase::Listening { .. } if asked.tcp.is_some() && asked.tcp_mode == TcpMode::Auto => {
            uapi::ZRS_CARRIER_ZRS | uapi::ZRS_CARRIER_TCP
        }
        // It is being handed over.
        Phase::Connecting if asked.why.is_some() => uapi::ZRS_CARRIER_TCP,
        Phase::Listening { .. } | Phase::Connecting | Phase::Connected => uapi::ZRS_CARRIER_ZRS,
        Phase::Carried => uapi::ZRS_CARRIER_TCP,
        Phase::Fresh | Phase::Failed => 0,
    }
}

/// `ZRS_STATE_*` of a TCP socket.
fn state_of_tcp(tcp: &Tcp) -> u32 {
    match tcp.stage() {
        Stage::Closed if tcp.is_fresh() => uapi::ZRS_STATE_CLOSED,
        Stage::Closed => uapi::ZRS_STATE_BOUND,
        Stage::Listening => uapi::ZRS_STATE_LISTEN,
        Stage::Connecting => uapi::ZRS_STATE_CONNECTING,
        Stage::Established => uapi::ZRS_STATE_ESTABLISHED,
        Stage::Closing => uapi::ZRS_STATE_CLOSING,
    }
}

/// `ZRS_STATE_*`.
pub(super) fn state_of(inner: &super::Inner) -> u32 {
    match inner.phase {
        Phase::Fresh if inner.has_port => uapi::ZRS_STATE_BOUND,
        Phase::Fresh | Phase::Failed | Phase::Carried => uapi::ZRS_STATE_CLOSED,
        Phase::Listening { .. } => uapi::ZRS_STATE_LISTEN,
        Phase::Connecting => uapi::ZRS_STATE_CONNECTING,
        Phase::Connected if !inner.conn.chan.is_some() || inner.conn.chan.is_over() => {
            uapi::ZRS_STATE_CLOSED
        }
        Phase::Connected if inner.conn.chan.read_ended() || inner.conn.chan.write_ended() => {
            uapi::ZRS_STATE_CLOSING
        }
        Phase::Connected => uapi::ZRS_STATE_ESTABLISHED,
    }
}
