// SPDX-License-Identifier: GPL-2.0

//! MSG_MORE and TCP_CORK: the beginning of a message that is not full waits for the next call.
//!
//! What is held back is at most one small message, for which the channel has taken room (`proto/channel/cork.rs`). It
//! leaves with the call that fills it or does not want it to wait; before anything else that is sent; when the option is
//! taken back; with the end of the stream, also if the program is gone; and after [`MOST_NS`]. It is sent there and
//! then, or, when the link has no room, by whoever makes some, in the socket's turn.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::close::ORPHAN_NS;
use super::send::{sendable, SendLock, SendResult, Style};
use super::{try_lock, Inner, Sock};
use crate::kern::memcg::CHARGED;
use crate::kern::pin;
use crate::kern::sock::msg::SendMsg;
use crate::kern::task::{fatal_signal_pending, now_ns};
use crate::kern::trace::Stall;
use crate::kern::wait::{Timeout, WaitMode};
use crate::proto::channel::Plan;
use crate::proto::options::TCP_CORK;
use crate::proto::readiness::Phase;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::SMALL_MAX;
use crate::stats::STATS;
use crate::transport::link::Link;
use crate::transport::sched::FlowId;
use crate::transport::tx::Payload;

/// How long anything is held back, in nanoseconds: TCP's 200 ms.
const MOST_NS: u64 = 200_000_000;

/// Those that are to leave at about the same time are looked at together, in nanoseconds.
const ROUND_NS: u64 = 50_000_000;

/// What a socket holds back.
#[derive(Default)]
pub(super) struct Cork {
    /// As many as the channel counts, unless that has ended. Whoever has the turn to send may have taken them; nobody
    /// else changes either.
    bytes: KVec<u8>,
    /// When they leave in any case, in nanoseconds of the monotonic clock.
    until: Option<u64>,
    /// How many of them count against SO_SNDBUF.
    held: usize,
}

impl Cork {
    /// When it leaves in any case, in nanoseconds of the monotonic clock; `None`: nothing is held back.
    pub(super) fn until(&self) -> Option<u64> {
        self.until
    }
}

impl Inner {
    /// Gives the turn to send back. Whether somebody waits for it, who is to be woken.
    pub(crate) fn unlock_send(&mut self) -> bool {
        self.tx_locked = false;
        mem::take(&mut self.tx_contended) | mem::take(&mut self.cork_waiter)
    }

    /// Whether TCP_CORK is set.
    pub(super) fn corks(&self) -> bool {
        let options = self.options.as_deref();
        options.is_some_and(|options| options.get(TCP_CORK) == Some(1))
    }

    /// The channel has ended: what is held back is lost. What is returned is to be dropped without the lock.
    pub(super) fn lose_cork(&mut self) -> KVec<u8> {
        let cork = mem::take(&mut self.cork);
        self.tx_held = self.tx_held.saturating_sub(cork.held as u64);
        cork.bytes
    }

    /// A closed socket's channel has not ended at `now`. If what it held back has found no room on the link in all this
    /// time, so that End could not be said either, the stream is broken off, and the peer has as long again to end it.
    pub(super) fn gives_up_cork(&mut self, now: u64) -> bool {
        let waits = self.released && self.chan.corked() > 0;
        if waits {
            self.deadline = Some(now.saturating_add(ORPHAN_NS));
            self.chan.with(|c| c.shut(true));
        }
        waits
    }

    /// Bytes of what is held back that count against SO_SNDBUF; from now on the caller counts them.
    pub(super) fn take_cork_held(&mut self) -> usize {
        mem::take(&mut self.cork.held)
    }
}

impl Sock {
    /// Takes the rest of a call, at most a small message, to what is held back, or holds it back as the first; and
    /// sends all of it if it is full or no more is to come.
    pub(super) fn send_corked(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: Style,
        timeout: &mut Timeout,
    ) -> Joined {
        let more = msg.more();
        let want = msg.len() as u32;
        // The program's memory is made present first: who has the turn does not wait for it.
        if let Err(e) = pin::fault_in(msg.iter(), want as usize) {
            return Joined::SendResult(SendResult::none(Err(e)));
        }
        let mut told = false;
        let found = self.await_link(WaitMode::Interruptible, timeout, || {
            self.begin_corked(want, more, style, &mut told)
        });
        let lock = match found {
            Ok(Ok(Some(lock))) => lock,
            Ok(Ok(None)) => return Joined::No,
            Ok(Err(e)) => return Joined::SendResult(SendResult::none(Err(e))),
            Err(e) => return Joined::SendResult(SendResult::none(Err(e.to_errno(*timeout)))),
        };
        // The turn is ours, and with it the bytes.
        let mut bytes = mem::take(&mut self.inner.lock().cork.bytes);
        let copied = pin::copy_present(msg.iter(), &mut bytes, want as usize, CHARGED);
        let n = copied.unwrap_or(0);
        let room;
        let joined = {
            let inner = &mut *self.inner.lock();
            let less = want.saturating_sub(n as u32);
            let all = inner.chan.with(|c| c.uncork(less)).unwrap_or(0);
            room = less > 0 && mem::take(&mut inner.wants_room);
            let first = all > 0 && inner.cork.until.is_none();
            if all > 0 {
                inner.cork.bytes = mem::take(&mut bytes);
                if inner.has_send_limit() {
                    inner.cork.held += n;
                    inner.tx_held = inner.tx_held.saturating_add(n as u64);
                }
            }
            if first {
                inner.cork.until = Some(next_round(now_ns().saturating_add(MOST_NS)));
            }
            let waits = (more || inner.corks()) && all < SMALL_MAX;
            (all > 0).then_some((waits, first))
        };
        drop(lock);
        drop(bytes);
        if room {
            self.wake_write();
        }
        let Some((waits, first)) = joined else {
            // The end of the stream may have waited for it.
            self.kick();
            return match (copied, n) {
                // Without memory each call is a message.
                (Err(_), _) => Joined::No,
                (Ok(_), 0) => Joined::SendResult(SendResult::none(not_present())),
                // The channel has ended.
                _ => Joined::SendResult(SendResult::none(self.sendable(style.some))),
            };
        };
        if n > 0 {
            self.counters.tx_bytes.add(&STATS.tx_bytes, n);
            self.counters.tx_copied.add(&STATS.tx_copied, n);
        }
        let waits = waits || !self.flush();
        if waits && first {
            self.ctx.transport.arm_timer(self);
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

    /// Looks whether `want` bytes can be held back, and takes their room and the turn to send for that; `None` inside:
    /// there is nothing for them to join, or to wait for.
    fn begin_corked<'a>(
        self: &'a Arc<Self>,
        want: u32,
        more: bool,
        style: Style,
        told: &mut bool,
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
            let before = inner.chan.corked();
            let waits = (more || inner.corks()) && want < SMALL_MAX;
            if before == 0 && !waits {
                return Some(Ok(None));
            }
            let fits = want <= SMALL_MAX.saturating_sub(before);
            let room = fits && inner.chan.is_some_and(|c| c.can_cork(want));
            let buffer = room && inner.may_copy(want as usize);
            if buffer && inner.tx_locked {
                inner.cork_waiter = true;
                return None;
            }
            if buffer && inner.chan.with(|c| c.cork(want)).unwrap_or(false) {
                try_lock(&mut inner.tx_locked);
                return Some(Ok(Some(SendLock(self))));
            }
            if before == 0 {
                inner.wants_room |= !room;
                let unsignaled = inner.unsignaled_message().filter(|_| room);
                drop(guard);
                Sock::ask_done(unsignaled);
                let what = if room { Stall::Buffer } else { Stall::Channel };
                self.stalled(want, what, told);
                return None;
            }
            drop(guard);
            // What is there makes room for it.
            if !self.flush() {
                self.stalled(want, Stall::Link, told);
                return None;
            }
        }
    }

    /// Sends what is held back, if anything is. False: the link has no room, or a call is about to send; then it is
    /// sent as soon as that is over. Takes the link's lock and the socket's; does not sleep.
    pub(crate) fn flush(self: &Arc<Self>) -> bool {
        loop {
            let (link, place, bytes) = match self.begin_flush() {
                Flush::Done(lost) => {
                    drop(lost);
                    return true;
                }
                Flush::Busy => return false,
                Flush::Go(link, place, bytes) => (link, place, bytes),
            };
            let n = bytes.len() as u32;
            let reserved = link.reserve(self, place, TrafficClass::Small, n, false);
            let sent = reserved.is_some_and(|(reservation, _)| {
                let put = reservation.put(&bytes);
                let plan = Plan::Corked(n);
                put.is_ok() && reservation.post(self, plan, Payload::Copied).is_ok()
            });
            if sent {
                let (wanted, pending) = {
                    let inner = &mut *self.inner.lock();
                    inner.cork.until = None;
                    self.cork_blocked.store(false, Relaxed);
                    (inner.unlock_send(), inner.chan.has_pending_control())
                };
                if wanted {
                    self.wake_write();
                }
                if pending {
                    // The end of the stream has waited for it.
                    link.kick(self);
                }
                return true;
            }
            let wanted = {
                let inner = &mut *self.inner.lock();
                inner.cork.bytes = bytes;
                inner.tx_locked = false;
                mem::take(&mut inner.cork_waiter)
            };
            if wanted {
                self.wait.wake_all();
            }
            // Who waits for the turn to send finds no room either; it is woken when this has been sent.
            if self.is_tx_blocked(TrafficClass::Small) {
                return false;
            }
            // The room came just now, and whoever was to send found the turn taken; or the channel has ended.
        }
    }

    /// Takes the turn to send what is held back, and the bytes.
    fn begin_flush(&self) -> Flush {
        let inner = &mut *self.inner.lock();
        let waits = inner.chan.corked() > 0;
        self.cork_blocked.store(waits, Relaxed);
        if !waits {
            return Flush::Done(inner.lose_cork());
        }
        let (Some(link), Some(place)) = (inner.link.clone(), inner.chan.flow()) else {
            return Flush::Busy;
        };
        if !try_lock(&mut inner.tx_locked) {
            inner.tx_contended = true;
            return Flush::Busy;
        }
        Flush::Go(link, place, mem::take(&mut inner.cork.bytes))
    }

    /// As [`Self::flush`], for whoever has made room: if that is what it waits for.
    pub(crate) fn flush_blocked_cork(self: &Arc<Self>) {
        if self.is_cork_blocked() {
            self.flush();
        }
    }

    /// Whether what is held back is to be sent as soon as there is room on the link.
    pub(crate) fn is_cork_blocked(&self) -> bool {
        self.cork_blocked.load(Relaxed)
    }

    /// Sends what has been held back for long enough at `now`.
    pub(super) fn check_cork(self: &Arc<Self>, now: u64) {
        let over = {
            let mut inner = self.inner.lock();
            let over = inner.cork.until.is_some_and(|until| until <= now);
            if over {
                // Should there be no room now, it is looked at again.
                inner.cork.until = Some(next_round(now.saturating_add(MOST_NS)));
            }
            over
        };
        if over {
            self.flush();
        }
    }
}

/// The next time after `at` that is looked at.
fn next_round(at: u64) -> u64 {
    at.checked_next_multiple_of(ROUND_NS).unwrap_or(at)
}

/// The bytes of a call, which were present a moment ago, are so no more: it looks at them anew.
fn not_present() -> Result {
    if fatal_signal_pending() {
        Err(EINTR)
    } else {
        Ok(())
    }
}

/// What [`Sock::begin_flush`] has found.
enum Flush {
    /// Nothing is held back. What was, of a channel that has ended, is to be dropped without the lock.
    Done(KVec<u8>),
    /// Whoever has the turn does it.
    Busy,
    /// These bytes, by this link.
    Go(Arc<Link>, FlowId, KVec<u8>),
}

/// What has become of a call's last bytes.
pub(super) enum Joined {
    /// They are held back or sent, or not, and why.
    SendResult(SendResult),
    /// They are to be sent as those of any other call: nothing is held back for them to join.
    No,
}
