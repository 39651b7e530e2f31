// SPDX-License-Identifier: GPL-2.0

//! Sending: from the program's pages where they lie, or through registered buffers.
//!
//! A blocking send of at least `pin_threshold` bytes pins its pages, chunk by chunk, and returns
//! when the device has read the last of them. Its tail, the last `copy_tail_kib`, is copied, and it
//! does not wait for that (`proto/copy_tail.rs`); a call that is all tail does not wait at all.
//! With MSG_ZEROCOPY all pages are pinned, the call returns when they are posted, the socket may be
//! non-blocking, and a notification follows on the error queue. Pages that sendfile() and splice()
//! bring are sent in the same way, without a notification. Anything else is copied, and the call
//! returns at once. A small message is copied into the link's transmit buffers; a larger one into
//! new pages (`pages.rs`). In all cases the caller's thread posts the chunk itself: a socket has no
//! send queue. Corked bytes are in `cork.rs`.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::Arc;

use super::cork::Joined;
use super::notify::Notify;
use super::turns::Attempts;
use super::{try_lock, Sock};
use crate::kern::errno::EOPNOTSUPP;
use crate::kern::pin;
use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::zerocopy::Notification;
use crate::kern::task::fatal_signal_pending;
use crate::kern::trace::{self, DataPath, Stall};
use crate::kern::wait::{Timeout, WaitMode};
use crate::params;
use crate::proto::channel::Plan;
use crate::proto::copy_tail;
use crate::proto::readiness::Phase;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::{CHUNK_MAX, SMALL_MAX};
use crate::transport::link::Link;
use crate::transport::sched::FlowId;
use crate::transport::tx::{Payload, Posted, Reservation};

/// The lock of a channel's send side: its owner may post the next chunk, or add to the corked
/// bytes.
pub(super) struct SendLock<'a>(pub(super) &'a Arc<Sock>);

impl Drop for SendLock<'_> {
    fn drop(&mut self) {
        let wanted = {
            let mut inner = self.0.inner.lock();
            inner.unlock_send()
        };
        self.0.send_unlocked(wanted);
    }
}

impl SendLock<'_> {
    /// [`Reservation::post`] has posted the chunk, and released the lock with that.
    pub(super) fn posted(self, posted: Posted) {
        self.0.send_unlocked(posted.wanted);
        mem::forget(self);
    }
}

/// The memory that the device reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TxSource {
    /// The program's own pages, but for [`Style::tail`].
    Program,
    /// A copy in newly allocated pages.
    Pages,
    /// A copy in the link's transmit buffers.
    Buffers,
}

/// How one call sends.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// The call sends more than a small message.
    pub(super) bulk: bool,
    pub(super) from: TxSource,
    /// How many bytes at the end of a call that sends the program's pages are copied.
    pub(super) tail: usize,
    pub(super) nonblock: bool,
    /// The call has sent some bytes already: an error is left for the next call.
    pub(super) some: bool,
}

/// The caller's knowledge of the socket.
#[derive(Clone, Copy)]
enum Look {
    /// Nothing: this is its first look.
    First,
    /// There are no bytes to cork, and the caller waits.
    Waits,
}

/// A chunk that can be sent.
pub(super) type Begun<'a> = (SendLock<'a>, Plan, Reservation);

/// Whether a blocking call pins pages for `bytes`.
fn is_large(bytes: usize) -> bool {
    bytes >= (params::PIN_THRESHOLD.get() as usize).max(1)
}

/// The result of one part of a call.
pub(super) struct SendResult {
    /// Bytes that were posted or corked.
    pub(super) sent: usize,
    /// The error that ended the part early, if any.
    pub(super) result: Result,
}

impl SendResult {
    pub(super) fn none(result: Result) -> Self {
        Self { sent: 0, result }
    }
}

impl Sock {
    /// sendmsg(). Returns the number of bytes taken. That is less than was asked for when, after
    /// the first bytes, the room, the timeout or the program's memory ran out, or a signal arrived.
    /// `way`: how the last bytes were sent.
    ///
    /// Errors: EOPNOTSUPP (out-of-band data), EPIPE (not connected, or shut),
    /// ECONNRESET and others from SO_ERROR, EAGAIN, EINTR, EFAULT, ENOMEM; with MSG_ZEROCOPY
    /// ENOBUFS. Sleeps.
    pub(super) fn send(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        way: &mut DataPath,
    ) -> Result<usize> {
        if msg.oob() {
            return Err(EOPNOTSUPP);
        }
        let total = msg.len();
        let nonblock = msg.nonblock();
        let mut sent = 0;
        if let Some(piece) = self.send_at_once(msg) {
            *way = DataPath::Copy;
            match piece.result {
                Ok(()) if piece.sent == total => return Ok(total),
                Ok(()) => sent = piece.sent,
                Err(e) => return self.sent_nothing(e, msg, total, &mut Notify::none()),
            }
            // Paged out again in the meantime.
            msg.rewind(sent);
        }
        let (sk, more, connecting, mut corked) = {
            let inner = self.inner.lock();
            (
                inner.sk.clone(),
                msg.more() || self.corks(),
                matches!(inner.phase, Phase::Connecting),
                // Used by the first iteration below; later ones check again.
                Some(inner.joins_cork()),
            )
        };
        let sk = sk.ok_or(EPIPE)?;
        let mut timeout = sk.sndtimeo(nonblock);
        let bulk = total > SMALL_MAX as usize;
        let large = is_large(total);
        let zerocopy = Notification::wanted(&sk, msg);
        // The caller does not wait for the device.
        let detached = zerocopy || msg.splice_pages();
        let tail = match detached || nonblock {
            true => 0,
            false => copy_tail::tail(total, (params::COPY_TAIL_KIB.get() as usize) << 10),
        };
        let mut style = Style {
            bulk,
            from: match (detached, bulk) {
                (true, _) if bulk || large => TxSource::Program,
                (false, _) if large && !nonblock && tail < total => TxSource::Program,
                (_, true) => TxSource::Pages,
                _ => TxSource::Buffers,
            },
            tail,
            nonblock,
            some: false,
        };
        let mut notify = Notify {
            due: zerocopy.then_some((sk, total)),
            made: None,
        };
        if total == 0 {
            return match self.sendable(false) {
                Err(EPIPE) if self.inner.lock().takes_in_vain() => Ok(0),
                result => result.map(|()| 0),
            };
        }
        if connecting {
            self.await_connection(&mut timeout)?;
        }
        let _watched = self.sending();
        let mut pinned = false;
        let mut result = Ok(());
        while sent < total && result.is_ok() {
            style.some = sent > 0;
            *way = match style.from {
                TxSource::Program => DataPath::Pin,
                TxSource::Pages | TxSource::Buffers => DataPath::Copy,
            };
            pinned |= style.from == TxSource::Program;
            let joins = style.from == TxSource::Buffers && !bulk && !zerocopy;
            let corked = corked.take();
            let corked = || corked.unwrap_or_else(|| self.inner.lock().joins_cork());
            let piece = match style.from {
                TxSource::Buffers if joins && (more || corked()) => {
                    match self.send_corked(msg, style, &mut timeout) {
                        Joined::SendResult(piece) => piece,
                        Joined::No => self.send_copied(msg, style, &mut notify, &mut timeout),
                    }
                }
                TxSource::Buffers => self.send_copied(msg, style, &mut notify, &mut timeout),
                _ => self.send_pages(msg, &mut style, &mut notify, &mut timeout),
            };
            sent += piece.sent;
            result = piece.result;
            // Bytes that were read from the iterator but not sent are still to be sent.
            msg.rewind(sent);
        }
        if pinned && !detached {
            self.await_device();
        }
        if sent > 0 {
            return Ok(sent);
        }
        match result {
            Err(e) => self.sent_nothing(e, msg, total, &mut notify),
            Ok(()) => Ok(0),
        }
    }

    /// The result of a call that could send nothing because of error `e`.
    fn sent_nothing(
        self: &Arc<Self>,
        e: Error,
        msg: &SendMsg<'_>,
        total: usize,
        notify: &mut Notify,
    ) -> Result<usize> {
        match e {
            EPIPE => self.send_in_vain(msg, total, notify)?.ok_or(EPIPE),
            e => Err(e),
        }
    }

    /// Sends a small message at the first look at the socket, as most calls can. `None`: nothing
    /// has changed, and the call is of another kind, or has to wait.
    fn send_at_once(self: &Arc<Self>, msg: &mut SendMsg<'_>) -> Option<SendResult> {
        let (len, nonblock) = (msg.len(), msg.nonblock());
        let plain = !msg.more() && !msg.zerocopy() && !msg.splice_pages();
        let copied = len <= SMALL_MAX as usize && (nonblock || !is_large(len));
        if len == 0 || !plain || !copied || self.user_timeout_ns().is_some() {
            return None;
        }
        // The other way has the same error again.
        pin::fault_in(msg.iter(), len).ok()?;
        let style = Style {
            bulk: false,
            from: TxSource::Buffers,
            tail: 0,
            nonblock,
            some: false,
        };
        // A stall is traced when the call waits.
        let mut attempts = Attempts {
            told: true,
            locked: false,
        };
        match self.begin_chunk(len as u32, style, Look::First, &mut attempts)? {
            Ok((plan, reservation)) => {
                let begun = (SendLock(self), plan, reservation);
                Some(self.send_begun(msg, style, &mut Notify::none(), begun))
            }
            Err(e) => Some(SendResult::none(Err(e))),
        }
    }

    /// Copies and sends the next bytes, at most a slot full.
    pub(super) fn send_copied(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: Style,
        notify: &mut Notify,
        timeout: &mut Timeout,
    ) -> SendResult {
        let want = msg.len().min(SMALL_MAX as usize);
        // Fault in the program's memory first. The copy itself never faults, because it is made
        // with a slot and the send lock taken, which other threads need.
        if let Err(e) = pin::fault_in(msg.iter(), want) {
            return SendResult::none(Err(e));
        }
        match self.begin(want, style, timeout) {
            Ok(begun) => self.send_begun(msg, style, notify, begun),
            Err(e) => SendResult::none(Err(e)),
        }
    }

    /// Copies and sends the next bytes, for which [`Self::begin`] has found room.
    fn send_begun(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: Style,
        notify: &mut Notify,
        (lock, plan, reservation): Begun<'_>,
    ) -> SendResult {
        let n = reservation.fill(plan.len(), msg.iter());
        if n == 0 {
            // Paged out again in the meantime.
            let killed = fatal_signal_pending();
            return SendResult::none(if killed { Err(EINTR) } else { Ok(()) });
        }
        let first = match notify.begin(msg) {
            Ok(first) => first,
            Err(e) => return SendResult::none(Err(e)),
        };
        let plan = plan.shortened(n as u32);
        let posted = reservation.post(self, plan, Payload::Copied).ok();
        let Some(posted) = posted else {
            if first {
                notify.abort();
            }
            // The channel has ended, or a revoked window has made the plan invalid: check again.
            return SendResult::none(self.sendable(style.some));
        };
        lock.posted(posted);
        if let Some(made) = &notify.made {
            made.set_copied();
        }
        SendResult {
            sent: n,
            result: Ok(()),
        }
    }

    /// The send lock was released. `wanted`: threads wait for it.
    fn send_unlocked(self: &Arc<Self>, wanted: bool) {
        if wanted {
            self.wake_write();
            self.flush_blocked_cork();
        }
    }

    /// Waits until a chunk of up to `want` bytes can be sent, and takes the send lock and a
    /// reservation.
    pub(super) fn begin<'a>(
        self: &'a Arc<Self>,
        want: usize,
        style: Style,
        timeout: &mut Timeout,
    ) -> Result<Begun<'a>> {
        let want = want.min(CHUNK_MAX as usize) as u32;
        let found = self.await_room(timeout, |attempts| {
            self.begin_chunk(want, style, Look::Waits, attempts)
        });
        found?.map(|(plan, reservation)| (SendLock(self), plan, reservation))
    }

    /// Checks whether a chunk can be sent now: the channel has room, the send lock is free, and the
    /// link can give a reservation. If so, takes the lock and the reservation. `None`: it cannot,
    /// or, at a first look, the bytes may have to be corked, or corked ones to be sent before them.
    fn begin_chunk(
        self: &Arc<Self>,
        want: u32,
        style: Style,
        look: Look,
        attempts: &mut Attempts,
    ) -> Option<Result<(Plan, Reservation)>> {
        let first = matches!(look, Look::First);
        let (plan, link, place, ask) = {
            let mut guard = loop {
                let guard = self.inner.lock();
                if first && (guard.sk.is_none() || self.corks() || guard.conn.autocorks()) {
                    return None;
                }
                if guard.conn.chan.corked() == 0 {
                    break guard;
                }
                drop(guard);
                if first {
                    return None;
                }
                // Corked bytes are sent first.
                if !self.flush_first(want, attempts) {
                    return None;
                }
            };
            let inner = &mut *guard;
            if matches!(inner.phase, Phase::Connecting) {
                return None;
            }
            if let Err(e) = sendable(inner, style.some) {
                return Some(Err(e));
            }
            let (Some(link), Some(place)) = (inner.conn.link.clone(), inner.conn.chan.flow())
            else {
                return Some(Err(EPIPE));
            };
            if inner.tx_locked {
                inner.tx_contended = true;
                attempts.locked = true;
                return None;
            }
            if style.from == TxSource::Buffers
                && !inner.may_copy((want as usize).min(SMALL_MAX as usize))
            {
                let unsignaled = inner.unsignaled_message();
                drop(guard);
                Sock::ask_done(unsignaled);
                self.stalled(want, Stall::Buffer, &mut attempts.told);
                return None;
            }
            let planned = inner.conn.chan.with(|c| {
                let mut plan = c.plan(want, style.bulk);
                if plan == Plan::Wait && style.bulk && style.nonblock {
                    // poll() promises room for a small message.
                    plan = c.plan(want, false);
                }
                (plan, c.has_pending_control())
            });
            let Some((plan, pending)) = planned else {
                return Some(Err(EPIPE));
            };
            let ask = pending && !inner.conn.is_queued();
            match plan {
                Plan::Wait => inner.conn.wants_room = true,
                _ => _ = try_lock(&mut inner.tx_locked),
            }
            (plan, link, place, ask)
        };
        if plan == Plan::Wait {
            if ask {
                link.kick(self);
            }
            self.stalled(want, Stall::Channel, &mut attempts.told);
            return None;
        }
        let kicked = ask.then(|| link.clone());
        let reserved = self.reserve(link, place, plan, style);
        if let Some(link) = kicked {
            // After the reservation: the request for a window is no reason to refuse the data.
            link.kick(self);
        }
        if reserved.is_none() {
            self.stalled(want, Stall::Link, &mut attempts.told);
            let wanted = {
                let inner = &mut *self.inner.lock();
                inner.tx_locked = false;
                mem::take(&mut inner.lock_waiter)
            };
            // Threads queued for the send lock would also find the link full; they are woken
            // together when space frees up. If it just did, wake them here.
            if wanted || !self.tx_blocked.is_set(class_of(plan)) {
                self.wait.wake_all();
            }
        }
        reserved.map(Ok)
    }

    /// Takes a reservation for `plan`, or for a part of it, with the send lock taken. Where the
    /// link has no room for bulk data, but poll() has promised room since the last message, a
    /// non-blocking call sends a small part.
    fn reserve(
        self: &Arc<Self>,
        link: Arc<Link>,
        place: FlowId,
        plan: Plan,
        style: Style,
    ) -> Option<(Plan, Reservation)> {
        let pinned = style.from != TxSource::Buffers;
        let try_reserve = |plan: Plan| {
            let (class, want) = (class_of(plan), plan.len() as u32);
            let (reservation, most) = link.clone().reserve(self, place, class, want, pinned)?;
            Some((plan.shortened(most), reservation))
        };
        try_reserve(plan).or_else(|| {
            let part = {
                let conn = &mut self.inner.lock().conn;
                let may = conn.promised && style.nonblock && class_of(plan) == TrafficClass::Bulk;
                let want = plan.len() as u32;
                may.then(|| conn.chan.with(|c| c.plan(want, false)))
            };
            match part.flatten() {
                Some(Plan::Wait) | None => None,
                Some(part) => try_reserve(part),
            }
        })
    }

    /// Traces that a call with `want` bytes waits for `what`, once; `told`: whether that was done
    /// already.
    pub(super) fn stalled(&self, want: u32, what: Stall, told: &mut bool) {
        if !mem::replace(told, true) {
            trace::stall(|| (self.ends(), want, what));
        }
    }

    /// How many of the next `want` bytes, which are more than a small message, could be sent now;
    /// at least the size of a small message.
    pub(super) fn room(self: &Arc<Self>, want: usize) -> usize {
        // Corked bytes are sent first; if they cannot be sent now, `begin` waits for that.
        self.flush();
        let want = want.min(CHUNK_MAX as usize) as u32;
        let plan = self.inner.lock().conn.chan.with(|c| c.plan(want, true));
        plan.map_or(0, Plan::len).max(SMALL_MAX as usize)
    }

    /// Whether the socket can send: the pending error, or EPIPE. If the call has sent `some` bytes
    /// already, it does not report the error, which is kept.
    pub(super) fn sendable(&self, some: bool) -> Result {
        sendable(&mut self.inner.lock(), some)
    }

    /// Waits while connect() is under way: until then it is not known which device will send.
    fn await_connection(&self, timeout: &mut Timeout) -> Result {
        let settled = self.await_link(WaitMode::Interruptible, timeout, || {
            let phase = self.inner.lock().phase;
            (!matches!(phase, Phase::Connecting)).then_some(())
        });
        settled.map_err(|e| e.to_errno(*timeout))
    }
}

/// The class of a planned chunk of data.
fn class_of(plan: Plan) -> TrafficClass {
    match plan {
        Plan::Bulk(_) | Plan::Aligned(_) => TrafficClass::Bulk,
        _ => TrafficClass::Small,
    }
}

pub(super) fn sendable(inner: &mut super::Inner, some: bool) -> Result {
    if matches!(inner.phase, Phase::Carried) {
        // The call goes on there.
        return Err(EPIPE);
    }
    if let Some(sk) = &inner.sk {
        let error = if some { sk.err() } else { sk.take_err() };
        if let Some(e) = error {
            return Err(e);
        }
    }
    match inner.phase {
        Phase::Connected | Phase::Connecting => {}
        _ => return Err(EPIPE),
    }
    if inner.conn.chan.write_ended() {
        return Err(EPIPE);
    }
    Ok(())
}
