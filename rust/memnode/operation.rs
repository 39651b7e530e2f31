// SPDX-License-Identifier: GPL-2.0

//! A queued operation: its steps. The host's lock is held during each step.
//!
//! ```text
//! COPY:          as `copying` says
//! up to 4 KiB:   Begin ─► Asked ─► over
//! WRITE, READ:   Begin ─► Grant ─► Moving: chunks, WROTE behind each part of a WRITE ─► over
//! of this host:  Begin ─► Local, up to a MiB in each step ─► over
//! ```
//!
//! An operation is over when none of its bytes can land any more: when its asks are answered and
//! its chunks have completed, or the link to the node is down. A canceled one begins no step.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::copy::LOCAL_CHUNKS;
use super::copying::{Due, ProgramCopy};
use super::grants::{Granted, Pending};
use super::host::{now_ms, Call, Host, Kind, Route, State};
use super::queue::Shared;
use super::region::Place;
use super::rw::begin;
use super::side::Moved;
use crate::ib::dma::{Direction, DmaRuns};
use crate::ib::memory::PinnedRuns;
use crate::kern::pin::{LockedPages, PinnedPages};
use crate::proto::mem::id::NodeId;
use crate::proto::mem::node::Hold;
use crate::proto::mem::rights::Rights;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};
use crate::proto::wire::SMALL_MAX;

/// Most bytes between two acknowledgements of a WRITE.
const PART: u64 = 4 << 20;
/// How often a grant that was taken back before its use is asked for again.
const ATTEMPTS: u32 = 4;

/// The state of an operation after a step.
pub(super) enum Outlook {
    /// Something must happen to the operation.
    Waits,
    /// It goes on at the next look.
    Again,
    /// It is over: the result, and the bytes from the first on that have landed.
    Over(Status, u64),
}

/// Pages of a WRITE or READ.
enum Chunk {
    Pinned(PinnedPages),
    Mapped(Arc<DmaRuns<PinnedRuns>>),
    /// The work requests have them, or they have failed.
    Gone,
}

enum Work {
    /// It was refused when it was queued.
    Refused(Status),
    Copy(ProgramCopy),
    Move(Transfer),
}

/// The step of a WRITE or READ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    Asked,
    Grant,
    Moving,
    Local,
}

/// A queued operation.
pub(super) struct Operation {
    work: Work,
    step: Step,
    call: Arc<Call>,
    canceled_ms: Option<u64>,
    /// The operation has been canceled at the node, as far as that is possible.
    cancel_sent: bool,
}

/// A WRITE or READ.
struct Transfer {
    place: Place,
    write: bool,
    len: u64,
    chunks: KVec<Chunk>,
    /// The chunk that is next.
    next: usize,
    /// Bytes: of posted chunks; announced by a WROTE (`told`); and known to have landed (`done`).
    posted: u64,
    told: u64,
    done: u64,
    granted: Option<Granted>,
    attempts: u32,
    /// The node's device gives no remote key for the region.
    by_message: bool,
    /// A WROTE is under way.
    marked: bool,
    failed: Option<Status>,
    /// Of a node of this host.
    hold: Option<Hold>,
}

impl Operation {
    fn new(queue: Arc<Shared>, work: Work) -> Result<Self> {
        Ok(Self {
            work,
            step: Step::Begin,
            call: Call::of(Some(queue))?,
            canceled_ms: None,
            cancel_sent: false,
        })
    }

    /// An operation that completes with `why`. ENOMEM.
    pub(super) fn refused(queue: Arc<Shared>, why: Status) -> Result<Self> {
        Self::new(queue, Work::Refused(why))
    }

    /// A COPY of `len` bytes; `derives`: keys can be derived from that of `to`. ENOMEM.
    pub(super) fn copy(
        queue: Arc<Shared>,
        from: Place,
        to: Place,
        derives: bool,
        len: u64,
    ) -> Result<Self> {
        let copy = ProgramCopy::new(from, to, derives, len);
        Self::new(queue, Work::Copy(copy))
    }

    /// A WRITE or READ of `len` bytes, which are in `pages`; these count against `locked`. ENOMEM.
    pub(super) fn moving(
        queue: Arc<Shared>,
        place: Place,
        write: bool,
        pages: KVec<PinnedPages>,
        len: u64,
        locked: LockedPages,
    ) -> Result<Self> {
        let mut chunks = KVec::with_capacity(pages.len(), GFP_KERNEL)?;
        let locked = Arc::new(locked, GFP_KERNEL)?;
        for mut pages in pages {
            pages.count_against(&locked);
            chunks.push(Chunk::Pinned(pages), GFP_KERNEL)?;
        }
        let transfer = Transfer {
            place,
            write,
            len,
            chunks,
            next: 0,
            posted: 0,
            told: 0,
            done: 0,
            granted: None,
            attempts: 0,
            by_message: false,
            marked: false,
            failed: None,
            hold: None,
        };
        Self::new(queue, Work::Move(transfer))
    }

    /// The program cancels the operation.
    pub(super) fn cancel(&mut self, now_ms: u64) {
        self.canceled_ms.get_or_insert(now_ms);
    }

    /// How long ago it was canceled, in milliseconds; 0 if it was not.
    pub(super) fn canceled_since(&self, now_ms: u64) -> u64 {
        self.canceled_ms.map_or(0, |at| now_ms.saturating_sub(at))
    }

    /// The link that the operation waits for.
    pub(super) fn link(&self, st: &State) -> Option<usize> {
        let granted = match &self.work {
            Work::Move(transfer) => transfer.granted.map(|granted| granted.slot),
            _ => None,
        };
        granted.or_else(|| st.link_of_call(&self.call))
    }

    /// Takes the steps that are due.
    pub(super) fn advance(&mut self, st: &mut State, host: &Arc<Host>) -> Outlook {
        let outlook = self.take_steps(st, host);
        if let (Work::Move(transfer), Outlook::Over(_, done)) = (&self.work, &outlook) {
            host.counts.used(transfer.write, *done);
        }
        outlook
    }

    fn take_steps(&mut self, st: &mut State, host: &Arc<Host>) -> Outlook {
        let canceled = self.canceled_ms.is_some();
        let asked = match &self.work {
            Work::Copy(copy) => copy.is_asked(),
            _ => self.step == Step::Asked,
        };
        if canceled && !self.cancel_sent {
            self.cancel_sent = true;
            if asked {
                st.cancel_call(&self.call);
            }
        }
        let (call, step) = (&self.call, &mut self.step);
        let outlook = match &mut self.work {
            Work::Refused(why) => return Outlook::Over(*why, 0),
            Work::Copy(copy) => {
                // It does not wait for the target's answer about a key.
                if canceled && !asked {
                    copy.end(st, host, call, Status::Canceled);
                }
                return advance_copy(st, host, call, copy, canceled);
            }
            // Before any of its bytes was posted.
            Work::Move(_) if canceled && matches!(step, Step::Begin | Step::Grant) => {
                st.give_up_grant(call);
                Err(Status::Canceled)
            }
            Work::Move(transfer) => transfer.advance(st, host, call, step, canceled),
        };
        match outlook {
            Ok(outlook) => outlook,
            Err(why) => self.end(st, why),
        }
    }

    /// The operation has failed, with nothing under way.
    fn end(&mut self, st: &mut State, why: Status) -> Outlook {
        let done = match &mut self.work {
            Work::Move(transfer) => transfer.end(st),
            _ => 0,
        };
        Outlook::Over(why, done)
    }
}

/// Asks a node's host for an operation. `None`: it goes on at the next look.
fn ask(
    st: &mut State,
    host: &Arc<Host>,
    call: &Arc<Call>,
    node: NodeId,
    h: MemHeader,
    payload: &[u8],
) -> Result<Option<()>, Status> {
    let h = MemHeader {
        len: payload.len() as u32,
        ..h
    };
    match begin(st, host, node, call, &h, payload) {
        Ok(()) => Ok(Some(())),
        // The last link is being taken down.
        Err(Status::Again) => Ok(None),
        Err(why) => Err(why),
    }
}

fn advance_copy(
    st: &mut State,
    host: &Arc<Host>,
    call: &Arc<Call>,
    copy: &mut ProgramCopy,
    canceled: bool,
) -> Outlook {
    loop {
        match copy.due(st, host) {
            Due::Ask(node, h) => match ask(st, host, call, node, h, &[]) {
                Ok(Some(())) => copy.asked(),
                Ok(None) => return Outlook::Again,
                Err(why) => copy.end(st, host, call, why),
            },
            Due::Wait => match call.look(|o| o.answer.take()) {
                None => return Outlook::Waits,
                Some(answer) => {
                    copy.answered(st, host, &answer.h);
                    // It does not ask once more.
                    if canceled && !copy.is_over() {
                        copy.end(st, host, call, Status::Canceled);
                    }
                }
            },
            // The host's tick comes back to it.
            Due::Later(_) => return Outlook::Again,
            Due::Over(status, done) => return Outlook::Over(status, done),
        }
    }
}

impl Transfer {
    /// All that the operation has of others is given back; the bytes that have landed.
    fn end(&mut self, st: &mut State) -> u64 {
        if let Some(granted) = self.granted.take() {
            st.finish_grant(granted);
        }
        if let Some(hold) = self.hold.take() {
            st.end_hold(hold);
        }
        self.chunks.clear();
        self.done
    }

    fn over(&mut self, st: &mut State, status: Status) -> Outlook {
        Outlook::Over(status, self.end(st))
    }

    fn rights(&self) -> Rights {
        match self.write {
            true => Rights::WRITE,
            false => Rights::READ,
        }
    }

    fn advance(
        &mut self,
        st: &mut State,
        host: &Arc<Host>,
        call: &Arc<Call>,
        step: &mut Step,
        canceled: bool,
    ) -> Result<Outlook, Status> {
        loop {
            match *step {
                Step::Begin => match st.route(host, self.place.node) {
                    // It was served elsewhere a moment ago.
                    Ok(Route::Here) if self.done != 0 => return Err(Status::Lost),
                    Ok(Route::Here) => {
                        self.begin_local(st, host)?;
                        *step = Step::Local;
                    }
                    Ok(Route::Link(_)) if self.by_message || self.len <= u64::from(SMALL_MAX) => {
                        let (h, payload) = self.small_ask()?;
                        if ask(st, host, call, self.place.node, h, &payload)?.is_none() {
                            return Ok(Outlook::Again);
                        }
                        *step = Step::Asked;
                    }
                    Ok(Route::Link(slot)) => {
                        let pending = Pending::Call(call.clone());
                        let (node, key) = (self.place.node, self.place.key);
                        st.want_grant(slot, node, key, self.rights(), pending);
                        *step = Step::Grant;
                    }
                    Err(Status::Again) => return Ok(Outlook::Again),
                    Err(why) => return Err(why),
                },
                Step::Asked => {
                    let Some(answer) = call.look(|o| o.answer.take()) else {
                        return Ok(Outlook::Waits);
                    };
                    if answer.h.status != Status::Ok {
                        return Err(answer.h.status);
                    }
                    if !self.write {
                        self.put_small(&answer.payload)?;
                    }
                    self.done += self.small_len();
                    if self.done == self.len {
                        return Ok(self.over(st, Status::Ok));
                    }
                    if canceled {
                        return Err(Status::Canceled);
                    }
                    *step = Step::Begin;
                }
                Step::Grant => match call.look(|o| o.grant.take()) {
                    None => return Ok(Outlook::Waits),
                    Some(Err(Status::Unsupported)) if self.next == 0 => {
                        self.by_message = true;
                        *step = Step::Begin;
                    }
                    Some(Err(why)) => return Err(why),
                    Some(Ok(granted)) => {
                        self.granted = Some(granted);
                        *step = Step::Moving;
                    }
                },
                Step::Moving => {
                    if let Some(outlook) = self.go_on(st, call, canceled) {
                        return Ok(outlook);
                    }
                    // With another grant.
                    *step = Step::Begin;
                }
                Step::Local => return self.move_local(st, host, canceled),
            }
        }
    }

    /// Bytes of the next message.
    fn small_len(&self) -> u64 {
        (self.len - self.done).min(SMALL_MAX.into())
    }

    /// The pages of the next message's bytes: the first and how many of each.
    fn small_parts(&self) -> impl Iterator<Item = Result<(&PinnedPages, usize, usize), Status>> {
        let (from, to) = (self.done, self.done + self.small_len());
        let mut begin = 0;
        self.chunks.iter().filter_map(move |chunk| {
            let Chunk::Pinned(pages) = chunk else {
                return Some(Err(Status::Io));
            };
            let at = begin;
            begin += pages.len() as u64;
            let (first, last) = (from.max(at), to.min(begin));
            let here = (first < last).then(|| ((first - at) as usize, (last - first) as usize))?;
            Some(Ok((pages, here.0, here.1)))
        })
    }

    fn small_ask(&self) -> Result<(MemHeader, KVec<u8>), Status> {
        let op = if self.write { Op::Put } else { Op::Get };
        let h = MemHeader {
            addr: self.place.addr + self.done,
            bytes: if self.write { 0 } else { self.small_len() },
            key: self.place.key,
            node: self.place.node,
            ..MemHeader::ask(0, op)
        };
        let mut payload = KVec::new();
        if self.write {
            for part in self.small_parts() {
                let (pages, off, len) = part?;
                let at = payload.len();
                payload
                    .resize(at + len, 0, GFP_KERNEL)
                    .map_err(|_| Status::NoMemory)?;
                let part = payload.get_mut(at..).unwrap_or_default();
                pages.read(off, part).map_err(|_| Status::Io)?;
            }
        }
        Ok((h, payload))
    }

    fn put_small(&self, bytes: &[u8]) -> Result<(), Status> {
        let mut left = bytes;
        for part in self.small_parts() {
            let (pages, off, len) = part?;
            let (part, rest) = left.split_at_checked(len).ok_or(Status::Io)?;
            pages.write(off, part).map_err(|_| Status::Io)?;
            left = rest;
        }
        Ok(())
    }

    /// Bytes of the next chunk; 0 if there is none.
    fn next_len(&self) -> u64 {
        match self.chunks.get(self.next) {
            Some(Chunk::Pinned(pages)) => pages.len() as u64,
            Some(Chunk::Mapped(runs)) => runs.bytes() as u64,
            _ => 0,
        }
    }

    /// Goes on with chunks and acknowledgements. `None`: another grant is needed.
    fn go_on(&mut self, st: &mut State, call: &Arc<Call>, canceled: bool) -> Option<Outlook> {
        let granted = self.granted?;
        loop {
            let (left, failed) = call.look(|o| (o.left, o.failed));
            if let Some(why) = failed {
                self.failed.get_or_insert(why);
            }
            if self.marked {
                let answer = call.look(|o| o.answer.take_if(|_| left == 0));
                let Some(answer) = answer else {
                    return Some(Outlook::Waits);
                };
                self.marked = false;
                match answer.h.status {
                    Status::Ok if failed.is_none() => self.done = self.posted,
                    Status::Ok => {}
                    // Why the grant was taken back.
                    why if self.failed == Some(Status::Stale) => self.failed = Some(why),
                    why => {
                        self.failed.get_or_insert(why);
                    }
                }
                continue;
            }
            let stop = canceled || self.failed.is_some() || self.next_len() == 0;
            let full = self.write && self.posted - self.told + self.next_len() > PART;
            if !stop && !full {
                match self.post(st, granted, call) {
                    Ok(()) => {}
                    Err(Status::Again) => return Some(Outlook::Again),
                    Err(why) => self.failed = Some(why),
                }
                continue;
            }
            // The completion of a WRITE does not prove that its bytes have arrived.
            if self.write && self.posted > self.told {
                let (addr, len) = (self.place.addr + self.told, self.posted - self.told);
                self.told = self.posted;
                match st.ask_wrote(granted, addr, len, call) {
                    Ok(()) => {
                        self.marked = true;
                        continue;
                    }
                    Err(_) => {
                        self.failed = Some(Status::Lost);
                        st.fail_unacknowledged(granted);
                    }
                }
            }
            if left != 0 {
                return Some(Outlook::Waits);
            }
            if !self.write && self.failed.is_none() {
                self.done = self.posted;
            }
            let again = self.failed == Some(Status::Stale)
                && self.posted == self.done
                && self.attempts < ATTEMPTS;
            if again && !canceled {
                // The grant was idle, and given back.
                self.attempts += 1;
                self.failed = None;
                if let Some(granted) = self.granted.take() {
                    st.finish_grant(granted);
                }
                return None;
            }
            let status = match self.failed {
                Some(why) => why,
                None if self.done == self.len => Status::Ok,
                None => Status::Canceled,
            };
            return Some(self.over(st, status));
        }
    }

    /// Posts the next chunk. `Again` if the send queue has no room.
    fn post(&mut self, st: &mut State, granted: Granted, call: &Arc<Call>) -> Result<(), Status> {
        let side = st.live(granted.slot, granted.serial).ok_or(Status::Lost)?;
        let pd = side.queues.as_ref().map(|q| q.pd.clone());
        let pd = pd.ok_or(Status::Lost)?;
        let chunk = self.chunks.get_mut(self.next).ok_or(Status::Io)?;
        let runs = match core::mem::replace(chunk, Chunk::Gone) {
            Chunk::Pinned(pages) => {
                let direction = match self.write {
                    true => Direction::ToDevice,
                    false => Direction::FromDevice,
                };
                let runs = PinnedRuns::new(pages);
                let runs = runs.and_then(|runs| DmaRuns::map(&pd, runs, direction));
                let runs = runs.and_then(|runs| Ok(Arc::new(runs, GFP_KERNEL)?));
                runs.map_err(|_| Status::NoMemory)?
            }
            Chunk::Mapped(runs) => runs,
            Chunk::Gone => return Err(Status::Io),
        };
        if !side.cache.begin(granted.lent, granted.number, now_ms()) {
            *chunk = Chunk::Mapped(runs);
            return Err(Status::Stale);
        }
        let addr = self.place.addr + self.posted;
        call.look(|o| o.left += 1);
        let what = Moved::Call(call.clone());
        let posted = side.post_data(granted.lent, addr, &runs, self.write, what);
        match posted {
            Ok(()) => {
                self.posted += runs.bytes() as u64;
                self.next += 1;
                st.posted += 1;
            }
            Err(why) => {
                call.look(|o| o.left -= 1);
                if why == Status::Again {
                    *chunk = Chunk::Mapped(runs);
                }
                let leave = side.cache.end(granted.lent);
                st.leave(granted.slot, leave);
            }
        }
        posted
    }

    fn begin_local(&mut self, st: &mut State, host: &Arc<Host>) -> Result<(), Status> {
        let at = st.place_of(self.place.node, host.memory.own_domain(&host.net));
        let served = at.and_then(|at| st.node_at(at)).ok_or(Status::NoNode)?;
        let (key, addr) = (self.place.key, self.place.addr);
        let range = served.node.range_of(key, addr, self.len)?;
        let hold = served.node.begin(key, self.rights(), range, now_ms())?;
        self.hold = Some(hold);
        Ok(())
    }

    /// Moves some bytes by the processor.
    fn move_local(
        &mut self,
        st: &mut State,
        host: &Arc<Host>,
        canceled: bool,
    ) -> Result<Outlook, Status> {
        if canceled {
            return Ok(self.over(st, Status::Canceled));
        }
        for _ in 0..LOCAL_CHUNKS {
            let Some(Chunk::Pinned(pages)) = self.chunks.get(self.next) else {
                break;
            };
            let hold = self.hold.as_ref().ok_or(Status::Io)?;
            let served = st.node_at(hold.place() as usize).ok_or(Status::NoNode)?;
            let now = now_ms();
            if served.node.must_stop(hold, now) {
                return Err(served.node.stop_status(hold, now));
            }
            let range = served.node.range_of(
                self.place.key,
                self.place.addr + self.done,
                pages.len() as u64,
            );
            let mut at = 0;
            let mut bytes: KVec<u8> = KVec::new();
            let moved = (|| {
                for piece in served.node.pieces(hold, range.map_err(|_| EIO)?) {
                    let len = piece.len as usize;
                    bytes.resize(len, 0, GFP_KERNEL)?;
                    if self.write {
                        pages.read(at, &mut bytes)?;
                        served.memory.write(piece.at, &bytes)?;
                    } else {
                        served.memory.read(piece.at, &mut bytes)?;
                        pages.write(at, &bytes)?;
                    }
                    at += len;
                }
                Ok::<_, Error>(())
            })();
            moved.map_err(|e| served.memory_error(hold, e))?;
            self.done += pages.len() as u64;
            host.counts.served(self.write, pages.len() as u64);
            if let Some(chunk) = self.chunks.get_mut(self.next) {
                *chunk = Chunk::Gone;
            }
            self.next += 1;
        }
        if self.done == self.len {
            return Ok(self.over(st, Status::Ok));
        }
        host.step_again();
        Ok(Outlook::Again)
    }
}

impl State {
    /// The link whose peer has to answer an operation's ask.
    fn link_of_call(&self, call: &Arc<Call>) -> Option<usize> {
        let ours = |o: &&(u64, Kind)| matches!(&o.1, Kind::Call(c) if Arc::ptr_eq(c, call));
        let token = self.ops.iter().find(ours)?.0;
        let of_it = |side: &Option<KBox<super::side::Side>>| {
            side.as_ref().is_some_and(|s| s.asks.id_of(token).is_some())
        };
        self.sides.iter().position(of_it)
    }
}
