// SPDX-License-Identifier: GPL-2.0

//! MSG_MORE, TCP_CORK and automatic corking: a message that is not full yet waits (is corked) for
//! the bytes of the next call.
//!
//! At most one small message is corked, and the channel has reserved room for it
//! (`proto/channel/cork.rs`). It is sent by the call that fills it; before any other data; when
//! TCP_CORK is cleared or TCP_NODELAY set; and with the end of the stream, also if the program has
//! exited. If the program announced more, it is also sent by a call without MSG_MORE, and after
//! [`MOST_NS`]. If it waits for an earlier message only (`proto/autocork.rs`), the completion of
//! that message sends it, and no timer is needed. If the link has no room at that time, the thread
//! that frees room sends it, under the socket's send lock.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::close::ORPHAN_NS;
use super::send::{sendable, SendLock, SendResult, Style};
use super::turns::Attempts;
use super::{try_lock, Inner, Sock};
use crate::kern::memcg::CHARGED;
use crate::kern::pin;
use crate::kern::sock::msg::SendMsg;
use crate::kern::task::{fatal_signal_pending, now_ns};
use crate::kern::trace::Stall;
use crate::kern::wait::Timeout;
use crate::proto::channel::Plan;
use crate::proto::readiness::Phase;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::SMALL_MAX;
use crate::transport::link::Link;
use crate::transport::sched::FlowId;
use crate::transport::tx::Payload;

/// The longest that bytes stay corked, in nanoseconds: TCP's 200 ms.
const MOST_NS: u64 = 200_000_000;

/// Deadlines are rounded up to a multiple of this, in nanoseconds, so that several sockets share a
/// run of the timer.
const ROUND_NS: u64 = 50_000_000;

/// The corked bytes of a socket.
#[derive(Default)]
pub(super) struct Cork {
    /// The bytes. [`Channel::corked`](crate::proto::channel::Channel::corked) counts the same
    /// number, unless the channel has ended. Only the owner of the send lock changes either, and
    /// may have taken the bytes out.
    bytes: KVec<u8>,
    /// When the bytes are sent at the latest, in nanoseconds of the monotonic clock; `None`:
    /// nothing is corked, or only until an earlier message has completed.
    until: Option<u64>,
    /// The last of the bytes came from a call that announced no more: they wait only for the
    /// completion of an earlier message.
    auto: bool,
    /// Number of the bytes that count against SO_SNDBUF.
    held: usize,
}

impl Cork {
    /// When the bytes are sent at the latest, in nanoseconds of the monotonic clock; `None`:
    /// nothing is corked, or only until an earlier message has completed.
    pub(super) fn until(&self) -> Option<u64> {
        self.until
    }

    /// Whether the bytes wait only for the completion of an earlier message.
    pub(super) fn is_auto(&self) -> bool {
        self.auto
    }
}

impl Inner {
    /// Releases the send lock. Returns whether threads wait for it and must be woken.
    pub(crate) fn unlock_send(&mut self) -> bool {
        self.tx_locked = false;
        mem::take(&mut self.tx_contended) | mem::take(&mut self.lock_waiter)
    }

    /// The channel has ended, so the corked bytes are lost. The caller drops the returned bytes
    /// after releasing the lock.
    pub(super) fn lose_cork(&mut self) -> KVec<u8> {
        let cork = mem::take(&mut self.cork);
        self.tx_held = self.tx_held.saturating_sub(cork.held as u64);
        cork.bytes
    }

    /// The deadline of a closed socket has passed at `now`, and its channel has not ended. If bytes
    /// are still corked because the link had no room in all this time, END could not be sent
    /// either: aborts the stream, and gives the peer the same time again to end it. Returns whether
    /// it did so.
    pub(super) fn gives_up_cork(&mut self, now: u64) -> bool {
        let waits = self.released && self.conn.chan.corked() > 0;
        if waits {
            self.deadline = Some(now.saturating_add(ORPHAN_NS));
            self.conn.chan.with(|c| c.shut(true));
        }
        waits
    }

    /// Whether the bytes of a small message are corked: others are, or an earlier message is waited
    /// for.
    pub(super) fn joins_cork(&self) -> bool {
        self.conn.chan.corked() > 0 || self.conn.autocorks()
    }

    /// Whether corked bytes waited for the completion of a message, and that message is complete.
    pub(super) fn autocork_ends(&self) -> bool {
        self.cork.auto && self.conn.chan.corked() > 0 && !self.conn.autocorks()
    }

    /// Corked bytes that count against SO_SNDBUF; from now on the caller counts them.
    pub(super) fn take_cork_held(&mut self) -> usize {
        mem::take(&mut self.cork.held)
    }
}

impl Sock {
    /// Whether TCP_CORK is set.
    pub(super) fn corks(&self) -> bool {
        self.corks.load(Relaxed)
    }

    /// Adds the rest of a call, at most a small message, to the corked bytes, or corks it as the
    /// first. Sends all of them if they fill a message, or if the program announced no more and no
    /// earlier message is waited for.
    pub(super) fn send_corked(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: Style,
        timeout: &mut Timeout,
    ) -> Joined {
        let more = msg.more();
        let want = msg.len() as u32;
        // Fault the program's memory in first: the owner of the send lock must not wait for page
        // faults.
        if let Err(e) = pin::fault_in(msg.iter(), want as usize) {
            return Joined::SendResult(SendResult::none(Err(e)));
        }
        let found = self.await_room(timeout, |attempts| {
            self.begin_corked(want, more, style, attempts)
        });
        let lock = match found {
            Ok(Ok(Some(lock))) => lock,
            Ok(Ok(None)) => return Joined::No,
            Ok(Err(e)) | Err(e) => return Joined::SendResult(SendResult::none(Err(e))),
        };
        // This thread owns the send lock, and so the bytes.
        let mut bytes = mem::take(&mut self.inner.lock().cork.bytes);
        let copied = pin::copy_present(msg.iter(), &mut bytes, want as usize, CHARGED);
        let n = copied.unwrap_or(0);
        let room;
        let joined = {
            let inner = &mut *self.inner.lock();
            let less = want.saturating_sub(n as u32);
            let all = inner.conn.chan.with(|c| c.uncork(less)).unwrap_or(0);
            room = less > 0 && mem::take(&mut inner.conn.wants_room);
            let announced = more || self.corks();
            let first = all > 0 && announced && inner.cork.until.is_none();
            if all > 0 {
                inner.counters.sent(n, n);
                inner.cork.bytes = mem::take(&mut bytes);
                if inner.has_send_limit() {
                    inner.cork.held += n;
                    inner.tx_held = inner.tx_held.saturating_add(n as u64);
                }
            }
            inner.cork.auto = !announced;
            if first {
                inner.cork.until = Some(next_round(now_ns().saturating_add(MOST_NS)));
            }
            let waits = (announced || inner.conn.autocorks()) && all < SMALL_MAX;
            (all > 0).then_some((waits, first))
        };
        drop(lock);
        drop(bytes);
        if room {
            self.wake_write();
        }
        let Some((waits, first)) = joined else {
            // FIN or END may have waited for the corked bytes.
            self.kick();
            return match (copied, n) {
                // Without memory to cork them, the bytes of each call are sent as a message.
                (Err(_), _) => Joined::No,
                (Ok(_), 0) => Joined::SendResult(SendResult::none(not_present())),
                // The channel has ended.
                _ => Joined::SendResult(SendResult::none(self.sendable(style.some))),
            };
        };
        let waits = waits || !self.flush();
        if waits && first {
            self.arm_timer();
        }
        match (copied, n) {
            (Err(_), _) => Joined::No,
            (Ok(_), 0) => Joined::SendResult(SendResult::none(not_present())),
            _ => Joined::SendResult(SendResult {
                sent: n,
                result: Ok(()),
            }),
        }
    }

    /// If `want` bytes can be corked, reserves room for them on the channel and takes the send
    /// lock. Returns `Some(Ok(None))` if the bytes should not wait and there are no corked bytes to
    /// join; `None` if the caller has to wait.
    fn begin_corked<'a>(
        self: &'a Arc<Self>,
        want: u32,
        more: bool,
        style: Style,
        attempts: &mut Attempts,
    ) -> Option<Result<Option<SendLock<'a>>>> {
        loop {
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            if matches!(inner.phase, Phase::Connecting) {
                return None;
            }
            if let Err(e) = sendable(inner, style.some) {
                return Some(Err(e));
            }
            let before = inner.conn.chan.corked();
            let waits = (more || self.corks() || inner.conn.autocorks()) && want < SMALL_MAX;
            if before == 0 && !waits {
                return Some(Ok(None));
            }
            let fits = want <= SMALL_MAX.saturating_sub(before);
            let room = fits && inner.conn.chan.is_some_and(|c| c.can_cork(want));
            let buffer = room && inner.may_copy(want as usize);
            if buffer && inner.tx_locked {
                inner.lock_waiter = true;
                attempts.locked = true;
                return None;
            }
            if buffer && inner.conn.chan.with(|c| c.cork(want)).unwrap_or(false) {
                try_lock(&mut inner.tx_locked);
                return Some(Ok(Some(SendLock(self))));
            }
            if before == 0 {
                inner.conn.wants_room |= !room;
                let unsignaled = inner.unsignaled_message().filter(|_| room);
                drop(guard);
                Sock::ask_done(unsignaled);
                let what = if room { Stall::Buffer } else { Stall::Channel };
                self.stalled(want, what, &mut attempts.told);
                return None;
            }
            drop(guard);
            // Sending the corked bytes makes room for the new ones.
            if !self.flush_first(want, attempts) {
                return None;
            }
        }
    }

    /// Sends the corked bytes, if there are any. Returns false if the link has no room, or a thread
    /// owns the send lock: then they are sent as soon as that is over. Takes the link's lock and
    /// the socket's; does not sleep.
    pub(crate) fn flush(self: &Arc<Self>) -> bool {
        matches!(self.try_flush(), Flushed::Sent)
    }

    /// As [`Self::flush`]; tells why the bytes wait.
    pub(super) fn try_flush(self: &Arc<Self>) -> Flushed {
        loop {
            let (link, place, bytes) = match self.begin_flush() {
                Flush::Done(lost) => {
                    drop(lost);
                    return Flushed::Sent;
                }
                Flush::NoLink => return Flushed::Blocked,
                Flush::Locked => return Flushed::Locked,
                Flush::Go(link, place, bytes) => (link, place, bytes),
            };
            let n = bytes.len() as u32;
            let reserved = link
                .clone()
                .reserve(self, place, TrafficClass::Small, n, false);
            let sent = reserved.is_some_and(|(reservation, _)| {
                let put = reservation.put(&bytes);
                let plan = Plan::Corked(n);
                put.is_ok() && reservation.post(self, plan, Payload::Copied).is_ok()
            });
            if sent {
                let (wanted, pending) = {
                    let inner = &mut *self.inner.lock();
                    inner.cork.until = None;
                    self.tx_blocked.set_cork(false);
                    (inner.unlock_send(), inner.conn.chan.has_pending_control())
                };
                if wanted {
                    self.wake_write();
                }
                if pending {
                    // FIN or END has waited for the corked bytes.
                    link.kick(self);
                }
                return Flushed::Sent;
            }
            let wanted = {
                let inner = &mut *self.inner.lock();
                inner.cork.bytes = bytes;
                inner.tx_locked = false;
                mem::take(&mut inner.lock_waiter)
            };
            if wanted {
                self.wait.wake_all();
            }
            // Other waiters for the send lock would find no room either; they are woken when the
            // corked bytes have been sent.
            if self.tx_blocked.is_set(TrafficClass::Small) {
                return Flushed::Blocked;
            }
            // Room was freed just now, and the thread that freed it found the send lock taken; or
            // the channel has ended. Try again.
        }
    }

    /// Takes the send lock and the corked bytes.
    fn begin_flush(&self) -> Flush {
        let inner = &mut *self.inner.lock();
        let waits = inner.conn.chan.corked() > 0;
        self.tx_blocked.set_cork(waits);
        if !waits {
            return Flush::Done(inner.lose_cork());
        }
        let (Some(link), Some(place)) = (inner.conn.link.clone(), inner.conn.chan.flow()) else {
            return Flush::NoLink;
        };
        if !try_lock(&mut inner.tx_locked) {
            inner.tx_contended = true;
            return Flush::Locked;
        }
        Flush::Go(link, place, mem::take(&mut inner.cork.bytes))
    }

    /// Calls [`Self::flush`] if the corked bytes wait for room on the link or for the send lock.
    /// For callers that have just freed one of these.
    pub(crate) fn flush_blocked_cork(self: &Arc<Self>) {
        if self.tx_blocked.cork() {
            self.flush();
        }
    }

    /// Sends the corked bytes if their time has come at `now`.
    pub(super) fn check_cork(self: &Arc<Self>, now: u64) {
        let over = {
            let mut inner = self.inner.lock();
            let over = inner.cork.until.is_some_and(|until| until <= now);
            if over {
                // If the link has no room now, try again after this time.
                inner.cork.until = Some(next_round(now.saturating_add(MOST_NS)));
            }
            over
        };
        if over {
            self.flush();
        }
    }
}

/// The first multiple of [`ROUND_NS`] that is not before `at`.
fn next_round(at: u64) -> u64 {
    at.checked_next_multiple_of(ROUND_NS).unwrap_or(at)
}

/// The program's memory was faulted in, but has been paged out again: the call starts over, unless
/// the task is being killed.
fn not_present() -> Result {
    if fatal_signal_pending() {
        Err(EINTR)
    } else {
        Ok(())
    }
}

/// Result of [`Sock::begin_flush`].
enum Flush {
    /// Nothing is corked. The bytes are those of a channel that has ended; the caller drops them
    /// without holding the lock.
    Done(KVec<u8>),
    /// The channel has no link.
    NoLink,
    /// The owner of the send lock sends them.
    Locked,
    /// Send these bytes on this link.
    Go(Arc<Link>, FlowId, KVec<u8>),
}

/// Result of [`Sock::try_flush`].
pub(super) enum Flushed {
    /// No corked bytes are left.
    Sent,
    /// The link has no room, or there is no link.
    Blocked,
    /// Another thread owns the send lock.
    Locked,
}

/// Result of [`Sock::send_corked`].
pub(super) enum Joined {
    /// The bytes were corked or sent; or not, for the reason given.
    SendResult(SendResult),
    /// The caller sends the bytes as a message: none are corked that they could join.
    No,
}
