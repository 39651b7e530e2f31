// SPDX-License-Identifier: GPL-2.0

//! Receiving: taking received data piece by piece ([`Receive`]), and recv() into a program's
//! buffer, with one copy, directly from the memory that the device wrote.

#![deny(unsafe_code)]

use core::mem;

use kernel::alloc::Flags;
use kernel::iov::IovIterDest;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::ready::BusyLink;
use super::ring::Ring;
use super::{report_failure, try_lock, Inner, Sock};
use crate::kern::contig::Payload;
use crate::kern::errno::{ENOTCONN, EOPNOTSUPP};
use crate::kern::memcg::CHARGED;
use crate::kern::sock::msg::RecvMsg;
use crate::kern::trace::DataPath;
use crate::kern::wait::{Timeout, WaitError, WaitMode};
use crate::params;
use crate::pool::cache::Copied;
use crate::pool::window::Window;
use crate::pool::Held;
use crate::proto::channel::{Channel, Failure};
use crate::proto::readiness::Phase;
use crate::proto::rx_queue::{Freed, Moved, Segment};
use crate::proto::ChanId;
use crate::stats::STATS;

/// Initial room in a receive queue, in messages.
const RX_FIRST: u32 = 4;

/// The lock of a channel's receive side: its owner may consume received data.
struct RecvLock<'a>(&'a Sock);

impl Drop for RecvLock<'_> {
    fn drop(&mut self) {
        let wanted = self.0.inner.lock().unlock_recv();
        if wanted {
            self.0.wait.wake_all();
        }
    }
}

/// The location of the next bytes.
enum Next {
    /// In segment `index`, from byte `taken` on.
    Data {
        index: u32,
        taken: u32,
        len: u32,
        source: RxSource,
    },
    /// The end of the stream.
    End,
}

pub(super) enum RxSource {
    Window(Arc<Window>, u32),
    Held(Held),
    /// An area of the ring.
    Area(Arc<Ring>, u32),
}

/// One receive call, which takes received data piece by piece.
pub(super) struct Receive<'a> {
    sock: &'a Arc<Sock>,
    timeout: Timeout,
    /// Bytes to wait for.
    target: usize,
    /// Bytes that fit.
    want: usize,
    got: usize,
    /// MSG_PEEK: the segment to go on with.
    peeked: Option<u32>,
    /// The queue was empty after the last piece.
    empty: bool,
    /// The result of the first look at the queue.
    first: Option<First>,
}

/// The result of a call's first look at the queue.
enum First {
    /// Data, the end of the stream, or an error.
    Found(Result<Next>),
    /// Nothing yet: the link to wait on, and whether another call has the receive lock.
    Wait(BusyLink, bool),
}

/// A piece of received data. No other thread receives until [`Receive::consume`].
pub(super) struct RxPiece<'a> {
    lock: RecvLock<'a>,
    index: u32,
    pub(super) source: RxSource,
    /// The bytes of the source.
    whole: usize,
    /// The offset of the piece in the source.
    pub(super) from: usize,
    pub(super) len: usize,
}

impl RxPiece<'_> {
    /// The bytes of the piece. `EINVAL` if the source has fewer.
    pub(super) fn payload(&self) -> Result<Payload<'_>> {
        match &self.source {
            RxSource::Window(window, off) => window.payload(*off as usize + self.from, self.len),
            RxSource::Held(held) => held.payload(self.from, self.len),
            RxSource::Area(ring, off) => ring.area(*off as usize + self.from, self.len),
        }
    }
}

/// The bytes of a piece that a receive call has consumed or copied.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    /// Bytes that leave the stream.
    bytes: usize,
    /// Bytes that the program got as a copy.
    copied: usize,
    /// Of the bytes that leave the stream, those in pages that are now mapped by the program.
    mapped: usize,
}

impl Taken {
    pub(super) const NOTHING: Self = Self {
        bytes: 0,
        copied: 0,
        mapped: 0,
    };

    /// `bytes` were copied to the program.
    pub(super) fn copied(bytes: usize) -> Self {
        Self {
            bytes,
            copied: bytes,
            mapped: 0,
        }
    }

    /// `bytes` were thrown away.
    fn discarded(bytes: usize) -> Self {
        Self {
            bytes,
            ..Self::NOTHING
        }
    }

    /// The program got `bytes`, `mapped` of them in pages; as a copy if there are none.
    pub(super) fn mapped(bytes: usize, mapped: usize) -> Self {
        match mapped {
            0 => Self::copied(bytes),
            _ => Self {
                bytes,
                copied: 0,
                mapped,
            },
        }
    }
}

impl<'a> Receive<'a> {
    /// Waits for `target` bytes, and takes up to `want`.
    pub(super) fn new(sock: &'a Arc<Sock>, timeout: Timeout, target: usize, want: usize) -> Self {
        Self {
            sock,
            timeout,
            target,
            want,
            got: 0,
            peeked: None,
            empty: false,
            first: None,
        }
    }

    /// Number of bytes taken so far.
    pub(super) fn got(&self) -> usize {
        self.got
    }

    /// Limits the call to `want` bytes in all; `piece` is the first piece.
    pub(super) fn limit(&mut self, want: usize, piece: &mut RxPiece<'_>) {
        self.want = self.want.min(want);
        piece.len = piece.len.min(self.want);
    }

    /// The next piece; `None` at the end of the stream, and when there is enough. Errors as of
    /// [`Sock::recv`], if nothing was taken. Sleeps.
    pub(super) fn next(&mut self) -> Result<Option<RxPiece<'a>>> {
        if self.got >= self.want || self.empty && self.got >= self.target {
            return Ok(None);
        }
        let this = self.sock;
        let some = self.got > 0;
        let found = loop {
            let (found, locked) = self.look();
            match found {
                // A call that must not wait for data does wait for the receive lock, as one on a
                // TCP socket waits for the socket's: the data that poll() has shown may be there
                // still when its owner, which has peeked or found less room, is done. A call that
                // has its bytes returns.
                None if locked && self.got < self.target => {
                    if let Err(e) = this.await_recv_lock() {
                        break Err(e);
                    }
                }
                None => break Err(EAGAIN),
                Some(found) => break found,
            }
        };
        match found {
            Ok(Next::Data {
                index,
                taken,
                len,
                source,
            }) => Ok(Some(RxPiece {
                lock: RecvLock(this),
                index,
                whole: len as usize,
                from: taken as usize,
                len: (len.saturating_sub(taken) as usize).min(self.want - self.got),
                source,
            })),
            Ok(Next::End) => Ok(None),
            Err(_) if some => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Looks for the next piece, and waits for it if the call may. `None`: there is none yet, or,
    /// if true is returned as well, another call has the receive lock.
    fn look(&mut self) -> (Option<Result<Next>>, bool) {
        let this = self.sock;
        let (peeked, some) = (self.peeked, self.got > 0);
        let mut locked = false;
        let mut cond = || {
            let found;
            (found, locked) = this.next(peeked, some);
            found
        };
        let (mode, timeout) = (WaitMode::Interruptible, &mut self.timeout);
        let waited = match self.first.take() {
            Some(First::Found(found)) => return (Some(found), false),
            // Take more data if it has arrived, but do not wait.
            _ if self.got >= self.target => cond().ok_or(WaitError::TimedOut),
            Some(First::Wait(link, taken)) => {
                let waited = this.await_more(link, mode, timeout, cond);
                locked |= taken && *timeout == Some(0);
                waited
            }
            None => this.await_link(mode, timeout, cond),
        };
        match waited {
            Ok(found) => (Some(found), false),
            Err(WaitError::TimedOut) => (None, locked),
            Err(e) => (Some(Err(e.to_errno(*timeout))), false),
        }
    }

    /// Consumes `taken.bytes` of the piece.
    pub(super) fn consume(&mut self, piece: RxPiece<'_>, taken: Taken) {
        let RxPiece {
            lock,
            index,
            source,
            ..
        } = piece;
        self.got += taken.bytes;
        self.empty = self.sock.give_back(lock, index, source, taken);
    }

    /// The call has seen `n` bytes of the piece, `copied` of them as a copy, and leaves them for
    /// the next call.
    fn peek(&mut self, piece: RxPiece<'_>, n: usize, copied: usize) {
        let index = piece.index;
        self.consume(
            piece,
            Taken {
                copied,
                ..Taken::NOTHING
            },
        );
        self.got += n;
        self.peeked = Some(index.wrapping_add(1));
    }
}

impl Sock {
    /// recvmsg(): min(asked, arrived) bytes; 0 at the end of the stream. Waits for the first
    /// byte, with MSG_WAITALL for all of them. With MSG_TRUNC they are thrown away.
    ///
    /// Errors: ENOTCONN, EAGAIN, EINTR, EFAULT, EOPNOTSUPP (out-of-band data), ENOMEM (MSG_PEEK, or
    /// the program's memory is not present), and what SO_ERROR holds once all that had arrived is
    /// read. Sleeps.
    pub(super) fn recv(self: &Arc<Self>, msg: &mut RecvMsg<'_>) -> Result<usize> {
        if msg.oob() {
            return Err(EOPNOTSUPP);
        }
        let want = msg.len();
        if want == 0 {
            return self.require_connected().map(|()| 0);
        }
        let (timeout, target, first) = {
            let inner = &mut *self.inner.lock();
            let sk = inner.sk.as_ref().ok_or(ENOTCONN)?;
            let timeout = sk.rcvtimeo(msg.nonblock());
            let target = sk.rcvlowat(msg.waitall(), want);
            let first = match inner.next(None, false) {
                Some(found) => First::Found(found),
                None => First::Wait(inner.busy_link(), inner.rx_locked),
            };
            (timeout, target, first)
        };
        let mut recv = Receive {
            first: Some(first),
            ..Receive::new(self, timeout, target, want)
        };
        while let Some(mut piece) = recv.next()? {
            let discard = msg.truncate();
            let seen = if discard {
                Ok(piece.len)
            } else {
                let kept = match msg.peek() {
                    true => self.keep_peeked(&mut piece),
                    false => Ok(()),
                };
                kept.and_then(|()| self.copy_out(&mut piece, msg.iter()))
            };
            match seen {
                Ok(n) => {
                    let taken = match discard {
                        true => Taken::discarded(n),
                        false => Taken::copied(n),
                    };
                    if msg.peek() {
                        recv.peek(piece, n, taken.copied);
                    } else {
                        recv.consume(piece, taken);
                    }
                }
                Err(e) => {
                    recv.consume(piece, Taken::NOTHING);
                    if recv.got() == 0 {
                        return Err(e);
                    }
                    break;
                }
            }
        }
        Ok(recv.got())
    }

    /// Copies the bytes of a piece to the program's memory. No block of a receive queue waits for
    /// that memory, which may never come: where it is not present, the message is copied out of its
    /// block first. Sleeps. EFAULT, ENOMEM.
    fn copy_out(&self, piece: &mut RxPiece<'_>, iter: &mut IovIterDest<'_>) -> Result<usize> {
        let RxSource::Held(Held::Block(block)) = &piece.source else {
            return piece.payload()?.copy_to_iter(iter);
        };
        let done = piece.payload()?.copy_to_iter_nofault(iter)?;
        if done == piece.len {
            return Ok(done);
        }
        let payload = block.payload(0, piece.whole)?;
        let bytes = match self.promised(|flags| payload.copy_to_vec(flags)) {
            Ok(bytes) => bytes,
            // The next call has the error, if there is no memory then.
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(e),
        };
        let copy = Copied::new(bytes, block.cache().clone());
        let before = mem::replace(&mut piece.source, RxSource::Held(Held::Copy(copy)));
        if let RxSource::Held(block) = before {
            release_held(Some(block));
        }
        STATS.rx_spilled.add(piece.whole as u64);
        match piece.payload()?.behind(done)?.copy_to_iter(iter) {
            Ok(n) => Ok(done + n),
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(e),
        }
    }

    /// Moves the message of a piece out of the peer's reach, so that the next call finds the bytes
    /// that MSG_PEEK is about to show. Its room in the window stays taken until it is read. Sleeps.
    /// ENOMEM.
    fn keep_peeked(&self, piece: &mut RxPiece<'_>) -> Result {
        let RxSource::Window(window, off) = &piece.source else {
            return Ok(());
        };
        let payload = window.payload(*off as usize, piece.whole)?;
        let bytes = self.charge(|| payload.copy_to_vec(CHARGED))?;
        let copy = Copied::new(bytes, window.cache().clone());
        piece.source = RxSource::Held(Held::Copy(copy));
        Ok(())
    }

    fn require_connected(&self) -> Result {
        match self.inner.lock().phase {
            Phase::Connected | Phase::Connecting => Ok(()),
            _ => Err(ENOTCONN),
        }
    }

    /// See [`Inner::next`]; also returns whether another call has the receive lock.
    fn next(&self, from: Option<u32>, some: bool) -> (Option<Result<Next>>, bool) {
        let inner = &mut *self.inner.lock();
        let found = inner.next(from, some);
        let locked = found.is_none() && inner.rx_locked;
        (found, locked)
    }

    /// Returns a borrowed segment after a call consumed `taken` of its bytes. Unlocks the receive
    /// queue and returns credit to the peer. Returns whether the queue is empty.
    fn give_back(
        self: &Arc<Self>,
        lock: RecvLock<'_>,
        index: u32,
        source: RxSource,
        taken: Taken,
    ) -> bool {
        let (source, reaped, wanted, mut after, empty) = {
            let inner = &mut *self.inner.lock();
            inner.counters.received(taken.bytes, taken.copied);
            inner.rx.advance(&inner.ring, index, taken.bytes as u32);
            inner.rx.set_mapped(index, taken.mapped as u32);
            let mut source = Some(source);
            if let Some(seg) = inner.rx.get_mut(index).filter(|seg| seg.taken < seg.len) {
                if let Some(RxSource::Held(held)) = source.take() {
                    seg.held = Some(held);
                }
            }
            let wanted = inner.unlock_recv();
            let reaped = inner.reap_some();
            let empty = inner.rx.bytes() == 0;
            (source, reaped, wanted, inner.after_reap(), empty)
        };
        // `unlock_recv()` has released it.
        mem::forget(lock);
        if wanted {
            self.wait.wake_all();
        }
        // A Credit is queued before blocks are posted again, and sent afterwards: it tells the peer
        // of them as well, so that no LinkCredit has to.
        let link = if mem::take(&mut after.pending) {
            self.link()
        } else {
            None
        };
        if let Some(link) = &link {
            link.queue_control(self);
        }
        // The block can be used again even if the segments before this segment are lent or held.
        if let Some(RxSource::Held(held)) = source {
            release_held(Some(held));
        }
        let more = self.finish_reaped(reaped);
        if more {
            self.reap();
        }
        if more || after.mapped {
            self.release_mapped_window();
        }
        if let Some(link) = link {
            link.transmit();
        }
        if more {
            self.send_pending();
        } else {
            self.finish_after_reap(after);
        }
        empty
    }

    /// Releases consumed segments, in the order of the stream. Returns whether there were any; then
    /// [`Self::send_pending`] is due.
    pub(crate) fn reap(&self) -> bool {
        let mut any = false;
        // A segment that the program has consumed has set the bit before it could see it.
        if !self.word.may_have_unfreed() {
            return false;
        }
        loop {
            let reaped = self.inner.lock().reap_some();
            any |= reaped[0].is_some();
            if !self.finish_reaped(reaped) {
                break;
            }
        }
        any
    }

    /// Releases segments that have left the queue. Returns whether there may be more of them. Not
    /// under a socket's or link's lock.
    fn finish_reaped(&self, reaped: Reaped) -> bool {
        let more = reaped.iter().all(Option::is_some);
        for (freed, window) in reaped.into_iter().flatten() {
            if let (Some(window), Some(off)) = (window, freed.window_off) {
                window.left(off, freed.len, freed.born);
            }
            let n = freed.by_program as usize;
            if n > 0 {
                self.trace_received(n, &Ok(n), DataPath::Ring);
            }
            release_held(freed.held);
        }
        more
    }

    /// Lets the link send the channel's control messages, and releases the window if it is done.
    pub(super) fn send_pending(self: &Arc<Self>) {
        let after = self.inner.lock().after_reap();
        self.finish_after_reap(after);
    }

    fn finish_after_reap(self: &Arc<Self>, after: AfterReap) {
        if after.pending {
            self.kick();
        }
        if after.window_done {
            self.try_release_window();
        }
    }
}

/// Segments that have left the queue, each with the window that it was in.
type Reaped = [Option<(Freed<Held>, Option<Arc<Window>>)>; 2];

/// The work that follows when segments have left the queue.
struct AfterReap {
    /// The channel has a control message to send, and does not wait in the control class yet.
    pending: bool,
    /// See [`Inner::is_window_done`].
    window_done: bool,
    /// The program has mapped pages.
    mapped: bool,
}

impl Inner {
    /// Finds the next bytes for recv(), and takes the receive lock; `None` if there are none yet.
    /// With `some`, the call has some bytes already, and an error is left for the next call.
    fn next(&mut self, from: Option<u32>, some: bool) -> Option<Result<Next>> {
        if self.rx_locked {
            self.rx_contended = true;
            return None;
        }
        match self.phase {
            Phase::Connecting => return None,
            Phase::Connected => {}
            // The call goes on there.
            Phase::Carried => return Some(Err(ENOTCONN)),
            // The error of connect() is reported once; afterwards the socket is like a new one.
            _ => {
                let pending = self.sk.as_ref().and_then(|sk| sk.take_err());
                return Some(Err(pending.unwrap_or(ENOTCONN)));
            }
        }
        if let Some(index) = self.rx.claim_next(&self.ring, from) {
            let window = self.window.clone();
            let seg = self.rx.get_mut(index)?;
            let source = match (seg.held.take(), seg.window_off, seg.moved, window) {
                (Some(held), ..) => RxSource::Held(held),
                (None, Some(off), _, Some(window)) => RxSource::Window(window, off),
                (None, None, Moved::Area(off), _) => RxSource::Area(self.ring.clone()?, off),
                (None, None, Moved::Small(off), _) => {
                    let ring = self.ring.clone()?;
                    let off = ring.in_small(off);
                    RxSource::Area(ring, off)
                }
                (None, None, ..) => return None,
                (None, Some(_), _, None) => return Some(Err(EIO)),
            };
            let next = Next::Data {
                index,
                taken: seg.taken,
                len: seg.len,
                source,
            };
            try_lock(&mut self.rx_locked);
            return Some(Ok(next));
        }
        let ended = self.conn.chan.read_ended();
        // As with TCP, the end of the stream is read even if the connection has failed after it.
        let fin = ended && self.conn.chan.is_some_and(Channel::fin_received);
        if let Some(sk) = self.sk.as_ref().filter(|_| !fin) {
            let error = if some { sk.err() } else { sk.take_err() };
            if let Some(e) = error {
                return Some(Err(e));
            }
        }
        // A peer that stays silent does not keep the reader of a failed connection waiting.
        (ended || self.shut_read || self.reported).then_some(Ok(Next::End))
    }

    /// Unlocks the receive queue. Returns whether the caller must wake threads that wait for it.
    fn unlock_recv(&mut self) -> bool {
        self.rx_locked = false;
        mem::take(&mut self.rx_contended)
    }

    /// Whether the peer may send one more message than the queue has room for.
    pub(crate) fn rx_is_short(&self) -> bool {
        self.rx.is_full() && self.rx.len() < params::LIMITS.msgs
    }

    /// Removes the oldest segments that are consumed from the queue, and returns their credit to
    /// the peer.
    fn reap_some(&mut self) -> Reaped {
        let mut reaped: Reaped = [None, None];
        for place in &mut reaped {
            let window = &self.window;
            // After the peer's last WRITE, there is no need to wait for lent pages before giving
            // credit back.
            let quiet = self.conn.chan.peer_writes_done();
            let is_back = |seg: &Segment<Held>| match (window, seg.window_off) {
                (Some(window), Some(off)) => quiet || window.is_back(off, seg.len),
                _ => true,
            };
            let Some(freed) = self.rx.reap(&self.ring, is_back) else {
                break;
            };
            self.counters.received(freed.by_program as usize, 0);
            self.conn.chan.with(|c| c.freed(freed.window, freed.small));
            match (freed.moved, &self.ring) {
                (Moved::Area(off), Some(ring)) => {
                    self.escape_area.free(off, freed.len);
                    ring.holds_no_more(freed.len);
                }
                (Moved::Small(off), Some(_)) => self.small_area.free(off, freed.len),
                _ => {}
            }
            if self.rx.moved() == 0 {
                self.promise = None;
            }
            let window = self.window.clone().filter(|_| freed.window_off.is_some());
            *place = Some((freed, window));
        }
        reaped
    }

    fn after_reap(&self) -> AfterReap {
        AfterReap {
            pending: self.conn.chan.has_pending_control() && !self.conn.is_queued(),
            window_done: self.is_window_done(),
            mapped: self.rx.mapped() > 0,
        }
    }
}

impl Sock {
    /// Makes room in the queue for one more message on channel `id`; aborts the channel if there is
    /// no memory. Only for the receiving party, one thread at a time. Sleeps; without locks.
    ///
    /// The queue grows on demand: an unused channel needs none, and one that is read promptly a
    /// short one.
    pub(crate) fn make_room(&self, id: ChanId) {
        let have = {
            let inner = self.inner.lock();
            // The peer may not exceed the limit on messages.
            if !inner.rx_is_short() {
                return;
            }
            inner.rx.len()
        };
        let want = (have * 4).clamp(RX_FIRST, params::LIMITS.msgs);
        let Ok(slots) = self.promised(|flags| new_slots(want as usize, flags)) else {
            let inner = &mut *self.inner.lock();
            if inner.conn.chan.id() == Some(id) {
                let was = inner.state_before();
                inner.conn.chan.with(|c| c.break_off(Failure::NoResources));
                report_failure(inner);
                inner.trace_state_change(was);
                self.wake_state_in(inner);
            }
            return;
        };
        let old = self.inner.lock().rx.move_to(slots);
        drop(old);
    }
}

fn new_slots(n: usize, flags: Flags) -> Result<KVec<Option<Segment<Held>>>> {
    let mut slots = KVec::with_capacity(n, flags)?;
    for _ in 0..n {
        // Within capacity, so this cannot fail.
        let _ = slots.push_within_capacity(None);
    }
    Ok(slots)
}

/// Releases the memory of a segment. Not under a socket's or link's lock.
pub(super) fn release_held(held: Option<Held>) {
    if let Some(Held::Block(block)) = held {
        block.repost();
    }
}
