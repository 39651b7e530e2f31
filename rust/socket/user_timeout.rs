// SPDX-License-Identifier: GPL-2.0

//! Timeouts of a peer that does not answer: SO_KEEPALIVE, TCP_USER_TIMEOUT and, for connect(),
//! TCP_SYNCNT.
//!
//! The link probes its peer for all of its sockets. Each socket has its own limit: when the peer
//! has not answered for that long, the connection ends. Whether sent data was acknowledged is
//! checked only while the socket sends or has unacknowledged data.

#![deny(unsafe_code)]

use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::{report_failure, Inner, Sock};
use crate::kern::task::now_ns;
use crate::proto::channel::Failure;
use crate::proto::liveness::Silence;
use crate::proto::options::Options;
use crate::proto::readiness::Phase;
use crate::proto::ChanId;
use crate::transport::link::Link;

/// A call that sends on a socket with TCP_USER_TIMEOUT.
pub(super) struct SendGuard<'a>(&'a Sock);

impl Drop for SendGuard<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().user_timeout.end();
    }
}

impl Inner {
    fn keeps_alive(&self) -> bool {
        self.sk.as_ref().is_some_and(|sk| sk.keepalive())
    }
}

impl Sock {
    /// Options of level IPPROTO_TCP.
    pub(super) fn tcp_options(&self) -> Options {
        let asked = self.asked.lock();
        asked.options.as_deref().copied().unwrap_or_default()
    }

    /// TCP_USER_TIMEOUT in nanoseconds; `None`: there is none.
    pub(super) fn user_timeout_ns(&self) -> Option<u64> {
        let ms = self.user_ms.load(Relaxed);
        (ms > 0).then(|| u64::from(ms) * 1_000_000)
    }

    /// Whether the program has set a time limit for a peer that does not answer.
    pub(super) fn has_time_limit(&self, inner: &Inner) -> bool {
        inner.keeps_alive() || self.user_ms.load(Relaxed) > 0
    }

    /// With SO_KEEPALIVE, tells the link after how long a silence to probe its peer, and how long
    /// to wait for the answer. Sleeps.
    pub(super) fn keep_alive(&self) {
        let (link, (idle, timeout)) = {
            let inner = self.inner.lock();
            if !inner.keeps_alive() {
                return;
            }
            (inner.conn.link.clone(), self.tcp_options().keep_alive_ms())
        };
        if let Some(link) = link {
            link.request_keepalive(idle, timeout);
        }
    }

    /// The peer of `link` does not answer. Ends the connection if the time that SO_KEEPALIVE allows
    /// is over; else returns when it will be.
    pub(crate) fn on_silence(self: &Arc<Self>, link: &Arc<Link>, silence: Silence) -> Option<u64> {
        let id = {
            let inner = self.inner.lock();
            if !inner.conn.is_on(link) || !inner.keeps_alive() {
                return None;
            }
            let (idle, timeout) = self.tcp_options().keep_alive_ms();
            if let Some(end) = silence.waits_until(idle, timeout) {
                return Some(end);
            }
            inner.conn.chan.id()
        };
        if let Some(id) = id {
            self.time_out(id);
        }
        None
    }

    /// A call begins to send; it ends when the returned guard is dropped. With TCP_USER_TIMEOUT the
    /// timer then checks whether the peer acknowledges the data, also after the call. Sleeps.
    pub(super) fn sending(self: &Arc<Self>) -> Option<SendGuard<'_>> {
        let limit = self.user_timeout_ns()?;
        let first = {
            let mut inner = self.inner.lock();
            if !matches!(inner.phase, Phase::Connected) {
                return None;
            }
            inner.user_timeout.begin(now_ns(), limit)
        };
        if first {
            self.arm_timer();
        }
        Some(SendGuard(self))
    }

    /// If a check is due at `now`, checks whether the peer of channel `id` has acknowledged all
    /// sent data, and has given room. Ends the connection if either has been outstanding for as
    /// long as TCP_USER_TIMEOUT. Takes the link's lock and the socket's.
    pub(super) fn check_user_timeout(self: &Arc<Self>, id: ChanId, now: u64) {
        let (limit, link, first, last) = {
            let mut inner = self.inner.lock();
            let due = inner.user_timeout.at().is_some_and(|at| at <= now);
            if inner.conn.chan.id() != Some(id) || !due {
                return;
            }
            let Some(limit) = self.user_timeout_ns() else {
                inner.user_timeout.reset();
                return;
            };
            let first = inner.user_timeout.unacked();
            (
                limit,
                inner.conn.link.clone(),
                first,
                Some(inner.conn.last_seq()),
            )
        };
        let unacked = link.and_then(|link| {
            let mut seqs = [first, last].into_iter().flatten();
            seqs.find(|seq| !link.done_with(*seq))
        });
        let over = {
            let mut inner = self.inner.lock();
            if inner.conn.chan.id() != Some(id) {
                return;
            }
            let room = match inner.conn.wants_room {
                true => inner.conn.chan.with(|c| c.progress()),
                false => None,
            };
            // Messages sent since `last` was read have not been checked; and corked bytes that wait
            // for room are late.
            let late = self.tx_blocked.cork();
            let newer = Some(inner.conn.last_seq()).filter(|seq| Some(*seq) != last || late);
            let over = inner
                .user_timeout
                .check(now, limit, unacked.or(newer), room);
            if inner.conn.chan.corked() > 0 {
                // Corked bytes will need an acknowledgement once they are sent.
                inner.user_timeout.begin(now, limit);
                inner.user_timeout.end();
            }
            over
        };
        if over {
            self.time_out(id);
        }
    }

    /// The peer has kept the connection of channel `id` waiting for too long: ends it with
    /// ETIMEDOUT. Data that had arrived can still be read. The peer is sent a Reset, in case it is
    /// alive.
    fn time_out(self: &Arc<Self>, id: ChanId) {
        {
            let inner = &mut *self.inner.lock();
            let connected = matches!(inner.phase, Phase::Connected) && !inner.released;
            if !connected || inner.conn.chan.id() != Some(id) || inner.conn.chan.is_over() {
                return;
            }
            let was = inner.state_before();
            inner.conn.chan.with(|c| c.break_off(Failure::TimedOut));
            // Also if the Reset cannot be sent.
            inner.shut_read = true;
            inner.shut_write = true;
            report_failure(inner);
            inner.trace_state_change(was);
        }
        self.wake_state();
        self.kick();
        self.try_finish();
    }
}
