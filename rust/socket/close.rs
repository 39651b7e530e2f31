// SPDX-License-Identifier: GPL-2.0

//! The end of a socket: shutdown(), a send after the peer's close, and the last descriptor's
//! close().

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::linger::Linger;
use super::notify::Notify;
use super::send::SendLock;
use super::{recv, try_lock, Counters, Inner, Sock};
use crate::kern::errno::{ECONNRESET, ENOTCONN};
use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::Shutdown;
use crate::kern::task::now_ns;
use crate::kern::trace;
use crate::pool::lessee::Lessee;
use crate::proto::channel::Channel;
use crate::proto::readiness::Phase;
use crate::proto::wire::CHUNK_MAX;
use crate::stats::STATS;

/// How long the peer may take to end a closed socket's channel, in nanoseconds.
pub(super) const ORPHAN_NS: u64 = 10_000_000_000;

impl Sock {
    /// shutdown(). ENOTCONN. Sleeps.
    pub(super) fn shutdown(self: &Arc<Self>, how: Shutdown) -> Result {
        let (read, write) = (how.read(), how.write());
        {
            let mut inner = self.inner.lock();
            match inner.phase {
                Phase::Connected if !inner.is_disconnected() => {}
                Phase::Listening { .. } => {
                    drop(inner);
                    if read {
                        let _config = self.config.lock();
                        self.stop_listening();
                    }
                    return Ok(());
                }
                Phase::Connecting => {
                    drop(inner);
                    return self.cancel_connect();
                }
                _ => return Err(ENOTCONN),
            }
            let was = inner.state_before();
            if read {
                inner.shut_read = true;
                inner.conn.chan.with(Channel::shut_read);
            }
            if write {
                inner.shut_write = true;
                inner.conn.chan.with(Channel::shut_write);
            }
            inner.trace_state_change(was);
            if let Some(sk) = &inner.sk {
                sk.set_shutdown(how);
            }
        }
        if write {
            self.flush();
        }
        self.kick();
        self.wake_state();
        Ok(())
    }

    /// shutdown() of a connecting socket: as with TCP, the attempt ends, ECONNRESET waits in
    /// SO_ERROR, and the socket may connect again. ENOTCONN: it is not connecting any more. Sleeps.
    fn cancel_connect(self: &Arc<Self>) -> Result {
        // The worker that lets TCP connect instead holds it.
        let _config = self.config.lock();
        let decision = {
            let inner = &mut *self.inner.lock();
            if !matches!(inner.phase, Phase::Connecting) {
                return Err(ENOTCONN);
            }
            inner.fall_at = None;
            inner.deadline = None;
            inner.conn.chan.with(Channel::cancel);
            // The attempt may have failed already, and TCP be about to follow.
            inner.reported = true;
            inner.decision.take()
        };
        drop(decision);
        self.fail_connecting(ECONNRESET);
        self.forget_attempt();
        Ok(())
    }

    /// Takes the bytes of `msg` for a peer that has closed the connection, once, and loses them; as
    /// with TCP, whose peer answers them by a reset, the connection is disconnected then, and EPIPE
    /// waits in SO_ERROR. Returns how many bytes; `None`: the send fails with EPIPE.
    ///
    /// Errors: ENOBUFS, for the notification of MSG_ZEROCOPY; EINTR if the task is being killed.
    /// May sleep.
    pub(super) fn send_in_vain(
        self: &Arc<Self>,
        msg: &SendMsg<'_>,
        total: usize,
        notify: &mut Notify,
    ) -> Result<Option<usize>> {
        let lock = loop {
            {
                let inner = &mut *self.inner.lock();
                if !inner.takes_in_vain() {
                    return Ok(None);
                }
                if try_lock(&mut inner.tx_locked) {
                    break SendLock(self);
                }
            }
            self.await_send_lock()?;
        };
        let mut notice = notify.copied(msg)?;
        {
            let inner = &mut *self.inner.lock();
            inner.sent_in_vain = true;
            if let Some(sk) = &inner.sk {
                sk.set_err(EPIPE);
            }
            // Notifications are queued in the order of their calls.
            if inner.conn.has_pinned() {
                inner.last_notice = notice.take();
            }
        }
        drop(notice);
        drop(lock);
        self.wake_state();
        Ok(Some(total.min(CHUNK_MAX as usize)))
    }

    /// The last descriptor is closed. May sleep.
    pub(super) fn close(self: &Arc<Self>) {
        self.stop_listening();
        // Segments that the program has given back do not count as unread.
        self.reap();
        let (tcp, decision) = {
            // The worker hands the inner TCP socket over under it.
            let _config = self.config.lock();
            let mut inner = self.inner.lock();
            inner.fall_at = None;
            (self.asked.lock().tcp.take(), inner.decision.take())
        };
        if let Some(tcp) = &tcp {
            self.unlist(tcp);
        }
        drop((tcp, decision));
        let linger = self.linger();
        let (sk, ring, tracks_mapped, broken) = {
            let mut inner = self.inner.lock();
            inner.released = true;
            inner.deadline = Some(now_ns().saturating_add(ORPHAN_NS));
            // Mapped data counts as read.
            let unread = inner.rx.bytes();
            trace::close(|| {
                let Counters {
                    tx_bytes, rx_bytes, ..
                } = inner.counters;
                (inner.ends(), tx_bytes, rx_bytes, unread)
            });
            let was = inner.state_before();
            let broken = unread > 0 || matches!(linger, Linger::Abort);
            inner.conn.chan.with(|c| c.shut(broken));
            inner.trace_state_change(was);
            (
                inner.sk.take(),
                inner.ring.take(),
                inner.tracks_mapped,
                broken,
            )
        };
        self.discard_received();
        if tracks_mapped {
            let lessee: Arc<dyn Lessee> = self.clone();
            self.ctx.transport.pools.untrack_mapped(&lessee);
        }
        drop(ring);
        // If the link has no room for the corked bytes, END waits for them.
        self.flush();
        self.kick();
        // Messages in flight may hold the socket.
        let unsignaled = self.inner.lock().unsignaled_message();
        Sock::ask_done(unsignaled);
        self.try_finish();
        self.arm_orphan_timer();
        if !broken {
            self.wait_linger(linger);
        }
        self.unbind();
        if sk.is_some() {
            STATS.sockets.sub(1);
            self.ctx.transport.socket_closed(&self.net);
        }
        // Last: this may free the module's last reference but one.
        drop(sk);
    }

    /// Starts the timer that ends a closed socket's channel.
    pub(super) fn arm_orphan_timer(&self) {
        if self.link().is_some() {
            self.arm_timer();
        }
    }

    /// Discards the received data of a socket that no program reads any more.
    pub(super) fn discard_received(&self) {
        loop {
            let held = {
                let mut inner = self.inner.lock();
                let inner = &mut *inner;
                match inner.rx.discard(&inner.ring) {
                    Some(held) => held,
                    None => break,
                }
            };
            recv::release_held(held);
        }
    }
}

impl Inner {
    /// Whether the peer has closed the connection, and the program may send once more: it has
    /// neither shut its writing direction, nor sent anything since.
    pub(super) fn takes_in_vain(&self) -> bool {
        matches!(self.phase, Phase::Connected)
            && !self.shut_write
            && !self.sent_in_vain
            && self.conn.chan.is_some_and(Channel::peer_closed)
    }

    /// Whether the connection has ended in both directions, and is not in state CLOSE-WAIT or
    /// FIN-WAIT of TCP: it failed, both sides have ended their directions, or bytes were sent to a
    /// peer that had closed.
    pub(super) fn is_disconnected(&self) -> bool {
        self.reported || self.sent_in_vain || self.shut_write && self.conn.chan.read_ended()
    }
}

impl Drop for Inner {
    /// The channel has ended on the wire; otherwise the table would hold a reference to the socket.
    fn drop(&mut self) {
        while let Some(held) = self.rx.discard(&self.ring) {
            recv::release_held(held);
        }
        if let Some(window) = self.window.take() {
            window.retire();
        }
    }
}
