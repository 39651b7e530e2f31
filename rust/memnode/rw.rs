// SPDX-License-Identifier: GPL-2.0

//! Reading and writing regions: by messages up to 4096 bytes, by remote keys beyond that, and by
//! the processor where the node is of this host. All of it waits for the result. Small reads use a
//! remote key as well where there is one: a READ needs no thread of the node. Where the node's
//! device gives no remote key for the region, all goes by messages.

#![deny(unsafe_code)]

use kernel::iov::{IovIterDest, IovIterSource};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use super::context::HostRef;
use super::grants::{Granted, Pending};
use super::host::{errno_of, now_ms, Answer, Call, Host, Kind, Route, State};
use super::server::Reply;
use super::side::Moved;
use crate::ib::dma::{Direction, DmaRuns};
use crate::ib::memory::PinnedRuns;
use crate::kern::errno::EHWPOISON;
use crate::kern::folios::MemfdPages;
use crate::kern::pin::{self, Extracted, Pieces, PinnedPages, ProgramIter};
use crate::proto::mem::grant_cache::Found;
use crate::proto::mem::id::{NodeId, StorageId};
use crate::proto::mem::node::{Hold, Piece};
use crate::proto::mem::rights::Rights;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};
use crate::proto::wire::SMALL_MAX;

/// Bytes between two acknowledgements of a write.
const PART: usize = 4 << 20;

/// Small reads of a file without a grant that go by messages, before one opens a grant for those
/// that follow.
const GETS_BY_MESSAGE: u32 = 8;

/// How often a grant that was taken back before its use is asked for again.
const ATTEMPTS: u32 = 4;

/// Asks the node's host, and waits for the answer. EINTR for a task that is being killed; a COPY is
/// canceled then, and the effect of any other ask is undone.
pub(super) fn ask(
    host: &Arc<Host>,
    node: NodeId,
    ask: MemHeader,
    payload: KVec<u8>,
) -> Result<Answer> {
    let call = Call::new()?;
    let ask = MemHeader {
        len: payload.len() as u32,
        ..ask
    };
    // It is `Again` while the last link is being taken down.
    let begun = host.with_room(|st| begin(st, host, node, &call, &ask, &payload))?;
    begun.map_err(errno_of)?;
    let waited = wait_for(host, &call);
    if waited.is_err() {
        host.with(|st| match ask.op {
            Some(Op::Copy) => st.cancel_call(&call),
            _ => st.abandon(&call, node, &ask),
        });
    }
    waited
}

/// Waits for the answer of `call`. EINTR for a task that is being killed.
pub(super) fn wait_for(host: &Arc<Host>, call: &Arc<Call>) -> Result<Answer> {
    host.wait(|| call.with(|o| if o.left == 0 { o.answer.take() } else { None }))
}

/// Begins to ask the node's host. `Again` while the last link to it is being taken down.
pub(super) fn begin(
    st: &mut State,
    host: &Arc<Host>,
    node: NodeId,
    call: &Arc<Call>,
    ask: &MemHeader,
    payload: &[u8],
) -> Result<(), Status> {
    match st.route(host, node)? {
        Route::Here => {
            let h = MemHeader { id: 1, ..*ask };
            let served = st.serve(host, Reply::Local(call.clone()), &h, payload);
            served.map_err(|_| Status::Invalid)
        }
        Route::Link(slot) => {
            let mut bytes = KVec::new();
            let copied = bytes.extend_from_slice(payload, GFP_KERNEL);
            copied.map_err(|_| Status::NoMemory)?;
            st.ask_peer(slot, call.user, Kind::Call(call.clone()), *ask, bytes)
        }
    }
}

/// As [`ask`]; a result that is not a success is an error.
pub(super) fn ask_ok(
    host: &Arc<Host>,
    node: NodeId,
    h: MemHeader,
    payload: KVec<u8>,
) -> Result<Answer> {
    let answer = ask(host, node, h, payload)?;
    match answer.h.status {
        Status::Ok => Ok(answer),
        status => Err(errno_of(status)),
    }
}

/// Memory of a node, as an open file has it.
pub(super) struct Memory<'a> {
    pub(super) host: &'a HostRef,
    pub(super) node: NodeId,
    pub(super) storage: StorageId,
    /// Small reads that went by messages, up to [`GETS_BY_MESSAGE`].
    pub(super) small_gets: &'a Atomic<u32>,
}

/// The chunks of a part that were posted.
struct Posted {
    granted: Granted,
    /// Their bytes.
    sent: usize,
    end: PostEnd,
}

/// A grant for one operation, which is a whole call: it is kept for the call's next part.
struct Kept<'a> {
    host: &'a Arc<Host>,
    granted: Option<Granted>,
}

impl<'a> Kept<'a> {
    fn new(host: &'a Arc<Host>) -> Self {
        Self {
            host,
            granted: None,
        }
    }

    /// A part that has used the grant is over.
    fn leave(&mut self, granted: Granted) {
        match granted.once {
            true => self.granted = Some(granted),
            false => self.host.with(|st| st.finish_grant(granted)),
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(granted) = self.granted.take() {
            self.host.with(|st| st.finish_grant(granted));
        }
    }
}

/// Why no more chunks were posted.
enum PostEnd {
    /// These are all.
    Whole,
    Failed(Status),
    /// The program's memory is not there,
    Fault(Error),
    /// or is of a kind that a device cannot write.
    Unpinnable,
}

/// The hold, memory and pieces of a local operation.
type Begun = (Hold, Arc<MemfdPages>, KVec<Piece>);

/// The result of a call that has done `done` bytes when it met `e`.
fn partly(done: usize, e: Error) -> Result<usize> {
    if done == 0 {
        Err(e)
    } else {
        Ok(done)
    }
}

impl Memory<'_> {
    fn header(&self, op: Op, pos: u64) -> MemHeader {
        MemHeader {
            addr: self.storage.va + pos,
            key: self.storage.key,
            node: self.node,
            ..MemHeader::ask(0, op)
        }
    }

    fn is_here(&self) -> bool {
        let own = self.host.memory.own_domain(&self.host.net);
        self.host.state.lock().serves(self.node, own)
    }

    /// Writes up to `len` bytes of `iter` at `pos`; all of them are inside.
    pub(super) fn put(&self, pos: u64, len: usize, iter: &mut IovIterSource<'_>) -> Result<usize> {
        if self.is_here() {
            let put = self.put_local(pos, len, iter);
            return put.inspect(|n| self.host.counts.served(true, *n as u64));
        }
        let mut kept = Kept::new(self.host);
        let (mut done, mut by_message) = (0, false);
        while done < len {
            let here = pos + done as u64;
            let left = len - done;
            let by_key = !by_message && (left > SMALL_MAX as usize || kept.granted.is_some());
            let small = left.min(SMALL_MAX as usize);
            let put = match by_key {
                true => self.put_part(here, left.min(PART), iter, &mut kept),
                false => self.put_small(here, small, iter).map(Some),
            };
            match put {
                Ok(None) => by_message = true,
                Ok(Some(0)) => return partly(done, EFAULT),
                Ok(Some(n)) => done += n,
                Err(e) => return partly(done, e),
            }
        }
        Ok(done)
    }

    fn put_small(&self, pos: u64, len: usize, iter: &mut IovIterSource<'_>) -> Result<usize> {
        let mut bytes = KVec::from_elem(0_u8, len, GFP_KERNEL)?;
        let n = iter.copy_from_iter(&mut bytes);
        if n == 0 {
            return Err(EFAULT);
        }
        bytes.truncate(n);
        ask_ok(self.host, self.node, self.header(Op::Put, pos), bytes)?;
        Ok(n)
    }

    /// Waits for a grant. `None`: the node's device gives no remote key for the region.
    fn grant(&self, rights: Rights) -> Result<Option<Granted>> {
        let host: &Arc<Host> = self.host;
        let call = Call::new()?;
        let wanted = host.with_room(|st| match st.route(host, self.node)? {
            Route::Here => Err(Status::NoNode),
            Route::Link(slot) => {
                let pending = Pending::Call(call.clone());
                st.want_grant(slot, self.node, self.storage.key, rights, pending);
                Ok(())
            }
        });
        wanted?.map_err(errno_of)?;
        let grant = host.wait(|| call.with(|o| o.grant.take()));
        if grant.is_err() {
            host.with(|st| st.give_up_grant(&call));
        }
        match grant? {
            Ok(granted) => Ok(Some(granted)),
            Err(Status::Unsupported) => Ok(None),
            Err(why) => Err(errno_of(why)),
        }
    }

    /// Posts a chunk. `Stale`: the grant was given back.
    fn post(
        &self,
        granted: Granted,
        pos: u64,
        pages: PinnedPages,
        write: bool,
        call: &Arc<Call>,
    ) -> Result<(), Status> {
        let host: &Arc<Host> = self.host;
        let pd = {
            let st = &mut *host.state.lock();
            let side = st.live(granted.slot, granted.serial).ok_or(Status::Lost)?;
            side.queues.as_ref().map(|q| q.pd.clone())
        };
        let mapped = pd.ok_or(ENOMEM).and_then(|pd| {
            let runs = PinnedRuns::new(pages)?;
            let direction = match write {
                true => Direction::ToDevice,
                false => Direction::FromDevice,
            };
            Ok(Arc::new(DmaRuns::map(&pd, runs, direction)?, GFP_KERNEL)?)
        });
        let runs = mapped.map_err(|_| Status::NoMemory)?;
        let addr = self.storage.va + pos;
        let mut waits = false;
        let posted = host.with_room(|st| {
            let posted = post_now(st, granted, addr, &runs, write, call);
            if let Some(side) = st.live(granted.slot, granted.serial) {
                match (posted, waits) {
                    (Err(Status::Again), false) => side.call_room.wait(),
                    (Err(Status::Again), true) | (_, false) => {}
                    (_, true) => side.call_room.wait_over(),
                }
                waits = posted == Err(Status::Again);
            }
            posted
        });
        if waits {
            // The thread is being killed.
            host.with(|st| {
                if let Some(side) = st.live(granted.slot, granted.serial) {
                    side.call_room.wait_over();
                }
            });
        }
        posted.unwrap_or(Err(Status::Canceled))
    }

    /// Posts the pieces of `len` bytes; `None` if there is no remote key for them. Those that were
    /// not posted are in `pieces` still.
    fn post_all(
        &self,
        pos: u64,
        len: usize,
        rights: Rights,
        call: &Arc<Call>,
        mut pieces: Pieces<'_, '_>,
        kept: &mut Kept<'_>,
    ) -> Result<Option<Posted>> {
        let granted = match kept.granted.take() {
            Some(granted) => granted,
            None => match self.grant(rights)? {
                Some(granted) => granted,
                None => return Ok(None),
            },
        };
        let mut posted = Posted {
            granted,
            sent: 0,
            end: PostEnd::Whole,
        };
        let mut attempts = 0;
        while posted.sent < len {
            let pages = match pieces.next(len - posted.sent) {
                Ok(Extracted::Pages(pages)) => pages,
                Ok(Extracted::Copy) => {
                    posted.end = PostEnd::Unpinnable;
                    break;
                }
                Err(e) => {
                    posted.end = PostEnd::Fault(e);
                    break;
                }
            };
            let (n, write) = (pages.len(), rights == Rights::WRITE);
            let here = pos + posted.sent as u64;
            match self.post(posted.granted, here, pages, write, call) {
                Ok(()) => posted.sent += n,
                Err(why) => {
                    pieces.back();
                    // The grant was idle, and given back.
                    if why != Status::Stale || posted.sent != 0 || attempts == ATTEMPTS {
                        posted.end = PostEnd::Failed(why);
                        break;
                    }
                    attempts += 1;
                    self.host.with(|st| st.finish_grant(posted.granted));
                    match self.grant(rights)? {
                        Some(granted) => posted.granted = granted,
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(posted))
    }

    /// A part of a write: chunks, and behind them WROTE. `None`: there is no remote key for it.
    fn put_part(
        &self,
        pos: u64,
        len: usize,
        iter: &mut IovIterSource<'_>,
        kept: &mut Kept<'_>,
    ) -> Result<Option<usize>> {
        let call = Call::new()?;
        let pieces = Pieces::new(ProgramIter::Source(iter));
        let Some(posted) = self.post_all(pos, len, Rights::WRITE, &call, pieces, kept)? else {
            return Ok(None);
        };
        let (granted, sent) = (posted.granted, posted.sent);
        let acknowledged = match sent {
            0 => Ok(0),
            _ => self.wrote(granted, pos, sent, &call),
        };
        kept.leave(granted);
        match (acknowledged?, posted.end) {
            (0, PostEnd::Failed(why)) => Err(errno_of(why)),
            (0, PostEnd::Fault(e)) => Err(e),
            (n, _) => Ok(Some(n)),
        }
    }

    /// Asks for the acknowledgement of `len` bytes, and waits for it and for all chunks.
    fn wrote(&self, granted: Granted, pos: u64, len: usize, call: &Arc<Call>) -> Result<usize> {
        let host: &Arc<Host> = self.host;
        let addr = self.storage.va + pos;
        let asked = host.with(|st| {
            let asked = st.ask_wrote(granted, addr, len as u64, call);
            if asked.is_err() {
                st.fail_unacknowledged(granted);
            }
            asked
        });
        if asked.is_err() {
            host.wait(|| call.with(|o| (o.left == 0).then_some(())))?;
            return Err(errno_of(Status::Lost));
        }
        let waited = wait_for(host, call);
        if waited.is_err() {
            host.with(|st| st.cancel_call(call));
        }
        let answer = waited?;
        match (answer.h.status, call.with(|o| o.failed)) {
            (Status::Ok, None) => Ok(len),
            (Status::Ok, Some(status)) | (status, _) => Err(errno_of(status)),
        }
    }

    /// Reads up to `len` bytes at `pos` to `iter`; all of them are inside.
    pub(super) fn get(&self, pos: u64, len: usize, iter: &mut IovIterDest<'_>) -> Result<usize> {
        if self.is_here() {
            let got = self.get_local(pos, len, iter);
            return got.inspect(|n| self.host.counts.served(false, *n as u64));
        }
        let mut kept = Kept::new(self.host);
        let (mut done, mut by_message) = (0, false);
        while done < len {
            let here = pos + done as u64;
            let left = len - done;
            let big = left > SMALL_MAX as usize || kept.granted.is_some();
            let by_key = !by_message && (big || self.gets_by_key());
            let small = left.min(SMALL_MAX as usize);
            let got = match by_key {
                true => self.get_part(here, left.min(PART), iter, &mut kept),
                false => self.get_small(here, small, iter).map(Some),
            };
            match got {
                Ok(None) => by_message = true,
                Ok(Some(0)) => return partly(done, EFAULT),
                Ok(Some(n)) => done += n,
                Err(e) => return partly(done, e),
            }
        }
        Ok(done)
    }

    /// Whether a small read uses a remote key: there is one, or this file is read often enough to
    /// ask for one that is kept. Many files that are read in turn leave grants to the others.
    fn gets_by_key(&self) -> bool {
        let host: &Arc<Host> = self.host;
        let (key, rights) = (self.storage.key, Rights::READ);
        let seen = {
            let st = &mut *host.state.lock();
            match st.route(host, self.node) {
                Ok(Route::Link(slot)) => st.side(slot).map(|side| {
                    let found = side.cache.find(self.node, key, rights);
                    (found, side.cache.is_half_full())
                }),
                _ => None,
            }
        };
        match seen {
            Some((Found::Open { .. }, _)) => return true,
            Some((_, false)) => {}
            _ => return false,
        }
        // Threads of one file may miss one of several.
        let before = self.small_gets.load(Relaxed);
        let asks = before >= GETS_BY_MESSAGE;
        let now = if asks { 0 } else { before + 1 };
        self.small_gets.store(now, Relaxed);
        asks
    }

    fn get_small(&self, pos: u64, len: usize, iter: &mut IovIterDest<'_>) -> Result<usize> {
        let h = MemHeader {
            bytes: len as u64,
            ..self.header(Op::Get, pos)
        };
        let answer = ask_ok(self.host, self.node, h, KVec::new())?;
        Ok(iter.copy_to_iter(&answer.payload))
    }

    /// A part of a read: READs into the program's pages, or a message where those cannot be held.
    /// `None`: there is no remote key for it.
    fn get_part(
        &self,
        pos: u64,
        len: usize,
        iter: &mut IovIterDest<'_>,
        kept: &mut Kept<'_>,
    ) -> Result<Option<usize>> {
        let call = Call::new()?;
        let later = &self.host.memory.pages;
        let pieces = Pieces::new(ProgramIter::Dest(iter, later));
        let Some(posted) = self.post_all(pos, len, Rights::READ, &call, pieces, kept)? else {
            return Ok(None);
        };
        let waited = self
            .host
            .wait(|| call.with(|o| (o.left == 0).then_some(o.failed)));
        kept.leave(posted.granted);
        if let Some(status) = waited? {
            return Err(errno_of(status));
        }
        match (posted.sent, posted.end) {
            (0, PostEnd::Failed(why)) => Err(errno_of(why)),
            (0, PostEnd::Fault(e)) => Err(e),
            (0, PostEnd::Unpinnable) => {
                let len = len.min(SMALL_MAX as usize);
                self.get_small(pos, len, iter).map(Some)
            }
            (n, _) => Ok(Some(n)),
        }
    }

    /// Writes by the processor, where the node is of this host. While the region is held nothing
    /// waits for the program's memory, which may not come before the program is killed.
    fn put_local(&self, pos: u64, len: usize, iter: &mut IovIterSource<'_>) -> Result<usize> {
        // The call writes these at least, however soon the program's memory goes again.
        let mut head = KVec::from_elem(0_u8, len.min(SMALL_MAX as usize), GFP_KERNEL)?;
        let first = iter.copy_from_iter(&mut head);
        let rest = if first < head.len() { 0 } else { len - first };
        head.truncate(first);
        if first == 0 {
            return Err(EFAULT);
        }
        // The write ends at the first page that is not present.
        let _ = pin::fault_in(iter, rest);
        self.local(
            pos,
            first + rest,
            Rights::WRITE,
            |memory, at, part, done| {
                let early = head.get(done..).unwrap_or_default();
                let early = early.get(..part).unwrap_or(early);
                memory.write(at, early)?;
                let (at, part) = (at + early.len() as u64, part - early.len());
                Ok(early.len() + memory.copy_from_iter_nofault(at, part, iter)?)
            },
        )
    }

    /// As [`Self::put_local`], a read.
    fn get_local(&self, pos: u64, len: usize, iter: &mut IovIterDest<'_>) -> Result<usize> {
        pin::fault_in_dest(iter, len)?;
        // The call reads these at least.
        let mut head = KVec::from_elem(0_u8, len.min(SMALL_MAX as usize), GFP_KERNEL)?;
        let mut kept = 0;
        let got = self.local(pos, len, Rights::READ, |memory, at, part, done| {
            let n = memory.copy_to_iter_nofault(at, part, iter)?;
            if done + n == 0 {
                kept = part.min(head.len());
                memory.read(at, head.get_mut(..kept).ok_or(EINVAL)?)?;
            }
            Ok(n)
        });
        match (got, kept) {
            (Err(e), kept) if e == EFAULT && kept != 0 => {
                match iter.copy_to_iter(head.get(..kept).ok_or(EINVAL)?) {
                    0 => Err(EFAULT),
                    n => Ok(n),
                }
            }
            (got, _) => got,
        }
    }

    /// Copies bytes by the processor. `each` copies a piece (memory, position, length, bytes copied
    /// so far) and returns the number of copied bytes. The hold on the region lasts for all pieces.
    fn local(
        &self,
        pos: u64,
        len: usize,
        rights: Rights,
        mut each: impl FnMut(&MemfdPages, u64, usize, usize) -> Result<usize>,
    ) -> Result<usize> {
        let host: &Arc<Host> = self.host;
        let (hold, memory, pieces) = host
            .with(|st| self.begin_local(st, pos, len, rights))
            .map_err(errno_of)?;
        let (mut done, mut result) = (0, Ok(()));
        for piece in &pieces {
            match each(&memory, piece.at, piece.len as usize, done) {
                Ok(n) => {
                    done += n;
                    if n < piece.len as usize {
                        break;
                    }
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        let result = host.with(|st| {
            let failed = |e: Error| match st.node_at(hold.place() as usize) {
                Some(served) if e == EHWPOISON => errno_of(served.memory_error(&hold, e)),
                _ => e,
            };
            let result = result.map_err(failed);
            st.end_hold(hold);
            result
        });
        match result {
            Err(e) => partly(done, e),
            Ok(()) if done == 0 => Err(EFAULT),
            Ok(()) => Ok(done),
        }
    }

    fn begin_local(
        &self,
        st: &mut State,
        pos: u64,
        len: usize,
        rights: Rights,
    ) -> Result<Begun, Status> {
        let at = st.place_of(self.node, self.host.memory.own_domain(&self.host.net));
        let served = at.and_then(|at| st.node_at(at)).ok_or(Status::NoNode)?;
        let (key, addr) = (self.storage.key, self.storage.va + pos);
        let range = served.node.range_of(key, addr, len as u64)?;
        let hold = served.node.begin(key, rights, range, now_ms())?;
        let mut pieces = KVec::new();
        let mut full = false;
        for piece in served.node.pieces(&hold, range) {
            full |= pieces.push(piece, GFP_KERNEL).is_err();
        }
        if full {
            served.node.end(hold);
            return Err(Status::NoMemory);
        }
        Ok((hold, served.memory.clone(), pieces))
    }
}

/// Posts a chunk if there is room. `Again`: there is none, and nothing is changed.
fn post_now(
    st: &mut State,
    granted: Granted,
    addr: u64,
    runs: &Arc<DmaRuns<PinnedRuns>>,
    write: bool,
    call: &Arc<Call>,
) -> Result<(), Status> {
    let side = st.live(granted.slot, granted.serial).ok_or(Status::Lost)?;
    if !side.cache.begin(granted.lent, granted.number, now_ms()) {
        return Err(Status::Stale);
    }
    call.with(|o| o.left += 1);
    let what = Moved::Call(call.clone());
    let posted = side.post_data(granted.lent, addr, runs, write, what);
    if posted.is_ok() {
        return posted;
    }
    call.with(|o| o.left -= 1);
    // While it waits for room, the node may have the grant back.
    let leave = side.cache.end(granted.lent);
    let revoked = leave.is_some();
    st.leave(granted.slot, leave);
    match posted {
        Err(Status::Again) if revoked => Err(Status::Stale),
        posted => posted,
    }
}

impl State {
    /// Asks for the acknowledgement of bytes that were posted.
    pub(super) fn ask_wrote(
        &mut self,
        granted: Granted,
        addr: u64,
        len: u64,
        call: &Arc<Call>,
    ) -> Result<(), Status> {
        let ask = MemHeader {
            grant: granted.number,
            addr,
            bytes: len,
            ..MemHeader::ask(0, Op::Wrote)
        };
        self.live(granted.slot, granted.serial)
            .ok_or(Status::Lost)?;
        let kind = Kind::Call(call.clone());
        self.ask_peer(granted.slot, call.user, kind, ask, KVec::new())
    }
}
