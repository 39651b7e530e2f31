// SPDX-License-Identifier: GPL-2.0

//! Sending: from the program's pages where they lie, or through registered buffers.
//!
//! A blocking send of at least `pin_threshold` bytes pins its pages, chunk by chunk, and returns
//! when the device has read the last of them (row Z4). With MSG_ZEROCOPY it returns when they are
//! posted, the socket may be non-blocking, and a notification follows on the error queue (row B2).
//! Pages that sendfile() and splice() bring are sent in the same way, without a notification.
//! Anything else is copied and returns at once: a small message into the link's transmit buffers, more than that to
//! pages of its own, up to [`COPY_MOST`] bytes at a time. In any case the chunk is posted by the caller itself: there is
//! no queue behind a socket. What a program wants held back is in `cork.rs`.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::Arc;

use super::cork::Joined;
use super::{try_lock, Charge, Sock};
use crate::kern::errno::{ENOTCONN, EOPNOTSUPP};
use crate::kern::pin::{self, Extracted, PinnedPages};
use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::zerocopy::Notification;
use crate::kern::sock::SkRef;
use crate::kern::task::fatal_signal_pending;
use crate::kern::trace::{self, DataPath, Stall};
use crate::kern::wait::{Timeout, WaitMode};
use crate::params;
use crate::proto::channel::Plan;
use crate::proto::readiness::Phase;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::{CHUNK_MAX, SMALL_MAX};
use crate::stats::STATS;
use crate::transport::tx::{Payload, Posted, Reservation};

/// The right to send the next chunk of a channel, or to add to what is held back.
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
    fn posted(self, posted: Posted) {
        self.0.send_unlocked(posted.wanted);
        mem::forget(self);
    }
}

/// The most bytes that are copied to pages at a time. They are copied before it is known whether the link has room for all
/// of them; what has none by the end of the call was copied in vain.
const COPY_MOST: usize = 64 << 10;

/// Where the device takes bytes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TxSource {
    /// The program's own pages.
    Program,
    /// New pages with a copy.
    Pages,
    /// The transmit buffers of the link.
    Buffers,
}

/// How one call sends.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// The call is above the small class.
    bulk: bool,
    from: TxSource,
    nonblock: bool,
    /// The call has sent something already: an error is left for the next call.
    pub(super) some: bool,
}

/// The notification that a MSG_ZEROCOPY call gets.
///
/// It is made, and given back, in the turn of its call's first chunk: so ids are in the order of the
/// stream, and one that is given back is the last one that was taken.
struct Notify {
    /// The socket, if a notification is due, and the bytes of the call.
    due: Option<(SkRef, usize)>,
    made: Option<Notification>,
}

impl Notify {
    /// Makes the notification if it is due and not there yet; says whether it was made now.
    ///
    /// Errors: ENOBUFS.
    fn begin(&mut self, msg: &SendMsg<'_>) -> Result<bool> {
        match &self.due {
            Some((sk, bytes)) if self.made.is_none() => {
                self.made = Some(Notification::new(sk, msg, *bytes)?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The chunk for which it was made was not sent.
    fn abort(&mut self) {
        if let Some(made) = self.made.take() {
            made.abort();
        }
    }
}

/// What came of a part of a call.
pub(super) struct SendResult {
    /// Bytes that were posted, or are held back.
    pub(super) sent: usize,
    /// Why it ended, when it did not end because it was done.
    pub(super) result: Result,
}

impl SendResult {
    pub(super) fn none(result: Result) -> Self {
        Self { sent: 0, result }
    }
}

impl Sock {
    /// sendmsg(). Returns how much was taken; less than asked for when room, time or the program's
    /// memory ran out or a signal came after the first bytes. `way`: how the last of them left.
    ///
    /// Errors: EOPNOTSUPP (out-of-band data, MSG_FASTOPEN), EPIPE (not connected, or shut), ECONNRESET and
    /// others from SO_ERROR, EAGAIN, EINTR, EFAULT, ENOMEM; with MSG_ZEROCOPY ENOBUFS. Sleeps.
    pub(super) fn send(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        way: &mut DataPath,
    ) -> Result<usize> {
        if msg.oob() || msg.fast_open() {
            return Err(EOPNOTSUPP);
        }
        let total = msg.len();
        let nonblock = msg.nonblock();
        let (sk, more, connecting, mut corked) = {
            let inner = self.inner.lock();
            (
                inner.sk.clone(),
                msg.more() || inner.corks(),
                matches!(inner.phase, Phase::Connecting),
                // For the first iteration below; later ones look again.
                Some(inner.chan.corked() > 0),
            )
        };
        let sk = sk.ok_or(EPIPE)?;
        let mut timeout = sk.sndtimeo(nonblock);
        let bulk = total > SMALL_MAX as usize;
        let large = total >= (params::PIN_THRESHOLD.get() as usize).max(1);
        let zerocopy = Notification::wanted(&sk, msg);
        // The caller does not wait for the device.
        let detached = zerocopy || msg.splice_pages();
        let mut style = Style {
            bulk,
            from: match (detached, bulk) {
                (true, _) if bulk || large => TxSource::Program,
                (false, _) if large && !nonblock => TxSource::Program,
                (_, true) => TxSource::Pages,
                _ => TxSource::Buffers,
            },
            nonblock,
            some: false,
        };
        let mut notify = Notify {
            due: zerocopy.then_some((sk, total)),
            made: None,
        };
        if total == 0 {
            return self.sendable(false).map(|()| 0);
        }
        if connecting {
            self.await_connection(&mut timeout)?;
        }
        let _watched = self.sending();
        let mut sent = 0;
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
            let corked = || corked.unwrap_or_else(|| self.inner.lock().chan.corked() > 0);
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
            // What was looked at and not sent is still to be sent.
            msg.rewind(sent);
        }
        if pinned && !detached {
            self.await_device();
        }
        if sent > 0 {
            return Ok(sent);
        }
        result.map(|()| 0)
    }

    /// Pins the next bytes, at most a chunk of them, or copies some, and sends them as the room comes. Pins, and
    /// faults, before it waits for anything that others need too.
    fn send_pages(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: &mut Style,
        notify: &mut Notify,
        timeout: &mut Timeout,
    ) -> SendResult {
        let copied = style.from == TxSource::Pages;
        let most = match (style.nonblock, copied) {
            (true, _) => self.room(msg.len()),
            (false, true) => COPY_MOST,
            (false, false) => CHUNK_MAX as usize,
        };
        if copied && most <= SMALL_MAX as usize {
            let style = Style {
                from: TxSource::Buffers,
                ..*style
            };
            return self.send_copied(msg, style, notify, timeout);
        }
        let most = if copied { most.min(COPY_MOST) } else { most };
        if copied && style.nonblock && self.link().is_some_and(|link| link.is_full()) {
            // Nothing would become of a copy; and who waits is to be told of room.
            if let Err(e) = self.begin(most, *style, timeout) {
                return SendResult::none(Err(e));
            }
        }
        let mut charge = match self.await_charge(msg.len().min(most), *style, timeout) {
            Ok(charge) => charge,
            Err(e) => return SendResult::none(Err(e)),
        };
        let most = charge.as_ref().map_or(most, Charge::bytes);
        let extracted = if copied {
            PinnedPages::copy(msg.iter(), most).map(Extracted::Pages)
        } else {
            PinnedPages::extract(msg.iter(), most)
        };
        let pages = match extracted {
            Ok(Extracted::Pages(pages)) => pages,
            // Memory that nobody may hold on to, or that cannot be pinned though it can be read (a
            // window of our own is such): the copy will tell.
            Ok(Extracted::Copy) | Err(EFAULT) if !copied => {
                style.from = if style.bulk {
                    TxSource::Pages
                } else {
                    TxSource::Buffers
                };
                return SendResult::none(Ok(()));
            }
            Ok(Extracted::Copy) => return SendResult::none(Err(EFAULT)),
            Err(e) if copied && e != EFAULT => {
                // There is no memory for it now: the link's buffers are there all the time.
                style.from = TxSource::Buffers;
                return SendResult::none(Ok(()));
            }
            Err(e) => return SendResult::none(Err(e)),
        };
        let total = pages.len();
        if let Some(charge) = &mut charge {
            charge.shorten(total);
        }
        let link = self.link().ok_or(EPIPE);
        let pins = match link.and_then(|l| l.map_pages(pages, charge)) {
            Ok(pins) => pins,
            Err(e) if e == ENOTCONN => {
                // The channel is told in a moment that its link is down, and why.
                let some = style.some;
                let told = self.await_link(WaitMode::Interruptible, timeout, || {
                    self.sendable(some).err()
                });
                return SendResult::none(Err(told.unwrap_or_else(|e| e.to_errno(*timeout))));
            }
            Err(e) => {
                let ended = self.sendable(style.some).err();
                if copied && ended.is_none() {
                    style.from = TxSource::Buffers;
                    return SendResult::none(Ok(()));
                }
                return SendResult::none(Err(ended.unwrap_or(e)));
            }
        };
        let mut sent = 0;
        while sent < total {
            style.some |= sent > 0;
            let (lock, plan, reservation) = match self.begin(total - sent, *style, timeout) {
                Ok(begun) => begun,
                Err(e) => {
                    return SendResult {
                        sent,
                        result: Err(e),
                    }
                }
            };
            let n = plan.len();
            let first = match notify.begin(msg) {
                Ok(first) => first,
                Err(e) => {
                    return SendResult {
                        sent,
                        result: Err(e),
                    }
                }
            };
            let payload = Payload::Pinned(pins.clone(), sent, notify.made.clone());
            let posted = reservation.post(self, plan, payload).ok();
            let Some(posted) = posted else {
                if first {
                    notify.abort();
                }
                drop(lock);
                // The channel has ended, or the plan was overtaken by a revoked window: look anew.
                match self.sendable(style.some) {
                    Ok(()) => continue,
                    Err(e) => {
                        return SendResult {
                            sent,
                            result: Err(e),
                        }
                    }
                }
            };
            lock.posted(posted);
            sent += n;
            self.counters.tx_bytes.add(&STATS.tx_bytes, n);
            if copied {
                self.counters.tx_copied.add(&STATS.tx_copied, n);
                if let Some(made) = &notify.made {
                    made.set_copied();
                }
            }
        }
        SendResult {
            sent,
            result: Ok(()),
        }
    }

    /// Waits until SO_SNDBUF, if it is set, lets some of the next `want` bytes be held in pages, and takes them.
    fn await_charge(
        self: &Arc<Self>,
        want: usize,
        style: Style,
        timeout: &mut Timeout,
    ) -> Result<Option<Charge>> {
        if !self.inner.lock().has_send_limit() {
            return Ok(None);
        }
        let mut told = false;
        let found = self.await_link(WaitMode::Interruptible, timeout, || {
            if let Err(e) = self.sendable(style.some) {
                return Some(Err(e));
            }
            let charge = self.charge_pages(want);
            if charge.is_none() {
                self.stalled(want as u32, Stall::Buffer, &mut told);
            }
            charge.map(Ok)
        });
        found.unwrap_or_else(|e| Err(e.to_errno(*timeout)))
    }

    /// Copies and sends the next bytes, at most a slot's worth.
    fn send_copied(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: Style,
        notify: &mut Notify,
        timeout: &mut Timeout,
    ) -> SendResult {
        let want = msg.len().min(SMALL_MAX as usize);
        // The program's memory is made present first; the copy itself never faults, because what it
        // is made into is wanted by others.
        if let Err(e) = pin::fault_in(msg.iter(), want) {
            return SendResult::none(Err(e));
        }
        let (lock, plan, reservation) = match self.begin(want, style, timeout) {
            Ok(begun) => begun,
            Err(e) => return SendResult::none(Err(e)),
        };
        let n = reservation.fill(plan.len(), msg.iter());
        if n == 0 {
            // Paged out again meanwhile.
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
            // The channel has ended, or the plan was overtaken by a revoked window: look anew.
            return SendResult::none(self.sendable(style.some));
        };
        lock.posted(posted);
        if let Some(made) = &notify.made {
            made.set_copied();
        }
        self.counters.tx_bytes.add(&STATS.tx_bytes, n);
        self.counters.tx_copied.add(&STATS.tx_copied, n);
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

    /// Waits until a chunk of up to `want` bytes can go, and takes what it needs.
    fn begin<'a>(
        self: &'a Arc<Self>,
        want: usize,
        style: Style,
        timeout: &mut Timeout,
    ) -> Result<(SendLock<'a>, Plan, Reservation)> {
        let want = want.min(CHUNK_MAX as usize) as u32;
        let mut told = false;
        let found = self.await_link(WaitMode::Interruptible, timeout, || {
            self.begin_chunk(want, style, &mut told)
        });
        match found {
            Ok(begun) => begun.map(|(plan, reservation)| (SendLock(self), plan, reservation)),
            Err(e) => Err(e.to_errno(*timeout)),
        }
    }

    /// Looks whether a chunk can go now: there is room on the channel, nobody else is sending on
    /// it, and the link has what a chunk needs. Then takes the turn and the reservation. `told`: whether the
    /// tracepoint has been told that there is no room.
    fn begin_chunk(
        self: &Arc<Self>,
        want: u32,
        style: Style,
        told: &mut bool,
    ) -> Option<Result<(Plan, Reservation)>> {
        let (plan, link, place, ask) = {
            let mut guard = loop {
                let guard = self.inner.lock();
                if guard.chan.corked() == 0 {
                    break guard;
                }
                drop(guard);
                // What is held back goes first.
                if !self.flush() {
                    self.stalled(want, Stall::Link, told);
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
            let (Some(link), Some(place)) = (inner.link.clone(), inner.chan.flow()) else {
                return Some(Err(EPIPE));
            };
            if inner.tx_locked {
                inner.tx_contended = true;
                return None;
            }
            if style.from == TxSource::Buffers
                && !inner.may_copy((want as usize).min(SMALL_MAX as usize))
            {
                let unsignaled = inner.unsignaled_message();
                drop(guard);
                Sock::ask_done(unsignaled);
                self.stalled(want, Stall::Buffer, told);
                return None;
            }
            let planned = inner.chan.with(|c| {
                let mut plan = c.plan(want, style.bulk);
                if plan == Plan::Wait && style.bulk && style.nonblock {
                    // What poll() promises is room for a small message.
                    plan = c.plan(want, false);
                }
                (plan, c.has_pending_control())
            });
            let Some((plan, pending)) = planned else {
                return Some(Err(EPIPE));
            };
            let ask = pending && !inner.queued;
            match plan {
                Plan::Wait => inner.wants_room = true,
                _ => _ = try_lock(&mut inner.tx_locked),
            }
            (plan, link, place, ask)
        };
        if ask {
            link.kick(self);
        }
        if plan == Plan::Wait {
            self.stalled(want, Stall::Channel, told);
            return None;
        }
        let class = match plan {
            Plan::Bulk(_) | Plan::Aligned(_) => TrafficClass::Bulk,
            _ => TrafficClass::Small,
        };
        match link.reserve(
            self,
            place,
            class,
            plan.len() as u32,
            style.from != TxSource::Buffers,
        ) {
            Some((reservation, most)) => Some(Ok((plan.shortened(most), reservation))),
            None => {
                self.stalled(want, Stall::Link, told);
                let wanted = {
                    let inner = &mut *self.inner.lock();
                    inner.tx_locked = false;
                    mem::take(&mut inner.cork_waiter)
                };
                // Who waits for the turn to send finds the link without room as well, and all are woken
                // when it has some; unless that has happened just now.
                if wanted || !self.is_tx_blocked(class) {
                    self.wait.wake_all();
                }
                None
            }
        }
    }

    /// A call begins to wait for `what`, with `want` bytes: `told` says whether the tracepoint knows.
    pub(super) fn stalled(&self, want: u32, what: Stall, told: &mut bool) {
        if !mem::replace(told, true) {
            trace::stall(|| (self.ends(), want, what));
        }
    }

    /// How many of the next `want` bytes, more than a small message, could go now; that of a small
    /// message at least.
    fn room(self: &Arc<Self>, want: usize) -> usize {
        // What is held back goes first; if it cannot now, `begin` waits for that.
        self.flush();
        let want = want.min(CHUNK_MAX as usize) as u32;
        let plan = self.inner.lock().chan.with(|c| c.plan(want, true));
        plan.map_or(0, Plan::len).max(SMALL_MAX as usize)
    }

    /// Whether sending makes sense: the pending error, or EPIPE. The error stays if the call has sent
    /// `some` already, and so does not report it.
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

    /// Waits until the device is done with all pages that the channel has posted so far. A task that is
    /// being killed does not wait: the pins stay with the request.
    fn await_device(&self) {
        let pos = self.inner.lock().tx_pinned;
        let _ = self.await_link(WaitMode::Killable, &mut None, || {
            (self.inner.lock().tx_done >= pos).then_some(())
        });
    }
}

pub(super) fn sendable(inner: &mut super::Inner, some: bool) -> Result {
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
    if inner.chan.write_ended() {
        return Err(EPIPE);
    }
    Ok(())
}
