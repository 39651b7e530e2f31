// SPDX-License-Identifier: GPL-2.0

//! The remote keys that this host was given: opening, use and return.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{now_ms, Call, Kind, State};
use super::side::{Data, Life, Moved};
use crate::params;
use crate::proto::mem::grant_cache::{Found, Leave};
use crate::proto::mem::id::{Key, NodeId};
use crate::proto::mem::payload::{extents, RemoteExtent};
use crate::proto::mem::rights::Rights;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};
use crate::proto::Violation;

/// A grant that may be used.
#[derive(Clone, Copy)]
pub(super) struct Granted {
    pub(super) slot: usize,
    /// Serial number of the link.
    pub(super) serial: u64,
    /// Its place, and the node's number of it.
    pub(super) lent: u32,
    pub(super) number: u32,
    /// It is for one operation.
    pub(super) once: bool,
}

/// How long a node that has no room for another grant is not asked for one, in milliseconds.
const REFUSED_MS: u64 = 50;

/// A waiter for a grant.
pub(super) enum Pending {
    Call(Arc<Call>),
    Job(u32, u64),
}

/// A waiter for a grant, and since when it waits.
pub(super) struct Waiter {
    pending: Pending,
    since_ms: u64,
}

/// A waiter for room for a grant.
pub(super) struct Wanting {
    waiter: Waiter,
    node: NodeId,
    key: Key,
    rights: Rights,
}

/// A grant that this host has, or has asked for.
pub(super) struct Lending {
    node: NodeId,
    key: Key,
    rights: Rights,
    /// Address of the first byte.
    addr: u64,
    extents: KVec<RemoteExtent>,
    waiting: KVec<Waiter>,
}

impl Lending {
    /// The pieces of the `len` bytes from `addr` on, as far as the grant has them.
    pub(super) fn pieces(&self, addr: u64, len: u64) -> impl Iterator<Item = RemoteExtent> + '_ {
        let before = addr < self.addr;
        let (mut skip, mut left) = (addr.wrapping_sub(self.addr), if before { 0 } else { len });
        self.extents.iter().filter_map(move |e| {
            if skip >= e.len {
                skip -= e.len;
                return None;
            }
            let part = left.min(e.len - skip);
            let piece = RemoteExtent {
                iova: e.iova + skip,
                len: part,
                rkey: e.rkey,
            };
            skip = 0;
            left -= part;
            (part != 0).then_some(piece)
        })
    }
}

impl State {
    /// Gets a grant for a waiter, which is told when the grant can be used, or why there is none.
    /// If the link has the maximum of grants, all of them in use, the waiter waits for its turn.
    pub(super) fn want_grant(
        &mut self,
        slot: usize,
        node: NodeId,
        key: Key,
        rights: Rights,
        pending: Pending,
    ) {
        let waiter = Waiter {
            pending,
            since_ms: now_ms(),
        };
        let wanting = Wanting {
            waiter,
            node,
            key,
            rights,
        };
        let Some(side) = self.side(slot).filter(|s| s.life != Life::Down) else {
            return self.grant_refused(wanting.waiter.pending, Status::Lost);
        };
        let first = side.wanting.is_empty();
        if let Some(wanting) = self.get_grant(slot, wanting, first) {
            self.want_later(slot, wanting);
        }
    }

    fn want_later(&mut self, slot: usize, wanting: Wanting) {
        let Some(side) = self.side(slot) else {
            return self.grant_refused(wanting.waiter.pending, Status::Lost);
        };
        if side.wanting.reserve(1, GFP_KERNEL).is_err() {
            return self.grant_refused(wanting.waiter.pending, Status::NoMemory);
        }
        let _ = side.wanting.push_within_capacity(wanting);
    }

    /// Gets a grant for a waiter; returns the waiter if there is no room. `may_open`: the waiter is
    /// first in the queue, and may ask for another grant.
    fn get_grant(&mut self, slot: usize, wanting: Wanting, may_open: bool) -> Option<Wanting> {
        let (node, key, rights) = (wanting.node, wanting.key, wanting.rights);
        let side = self.side(slot)?;
        let lent = match side.cache.find(node, key, rights) {
            Found::Open { at, number } => {
                let granted = Granted {
                    slot,
                    serial: side.serial,
                    lent: at,
                    number,
                    once: false,
                };
                self.granted(granted, wanting.waiter.pending);
                return None;
            }
            Found::Opening(lent) => lent,
            Found::None if !may_open => return Some(wanting),
            Found::None => match self.open_grant(slot, node, key, rights) {
                Ok(lent) => lent,
                Err(Status::Again) => return Some(wanting),
                Err(why) => {
                    self.grant_refused(wanting.waiter.pending, why);
                    return None;
                }
            },
        };
        let lending = self.side(slot).and_then(|s| s.lent.get_mut(lent as usize));
        let waiting = lending.and_then(Option::as_mut).map(|l| &mut l.waiting);
        let room = waiting.and_then(|w| w.reserve(1, GFP_KERNEL).ok().map(|()| w));
        match room {
            Some(waiting) => {
                let _ = waiting.push_within_capacity(wanting.waiter);
            }
            None => self.grant_refused(wanting.waiter.pending, Status::NoMemory),
        }
        None
    }

    /// Gets grants for waiters in the queue, in their order. True if a waiter has left the queue.
    pub(super) fn grant_turns(&mut self) -> bool {
        let (now, mut changed) = (now_ms(), false);
        for slot in 0..self.sides.len() {
            while let Some(side) = self.side(slot).filter(|s| s.life != Life::Down) {
                let full = |at: u64| now.saturating_sub(at) < REFUSED_MS;
                if side.wanting.is_empty() || side.refused_ms.is_some_and(full) {
                    break;
                }
                let Ok(wanting) = side.wanting.remove(0) else {
                    break;
                };
                if let Some(back) = self.get_grant(slot, wanting, true) {
                    if let Some(side) = self.side(slot) {
                        // Its place was left just now.
                        let _ = side.wanting.insert_within_capacity(0, back);
                    }
                    break;
                }
                changed = true;
            }
        }
        changed
    }

    /// Refuses grants to waiters whose time in the queue has expired.
    pub(super) fn refuse_late(&mut self, slot: usize, now: u64) {
        let patience = u64::from(params::DEAD_MS.get());
        while let Some(side) = self.side(slot) {
            let late = |w: &Wanting| now.saturating_sub(w.waiter.since_ms) >= patience;
            let Some(at) = side.wanting.iter().position(late) else {
                return;
            };
            if let Ok(wanting) = side.wanting.remove(at) {
                self.grant_refused(wanting.waiter.pending, Status::Again);
            }
        }
    }

    /// A program waits for a grant no more, whether it has come by now or not.
    pub(super) fn give_up_grant(&mut self, call: &Arc<Call>) {
        self.forget_waiters(|w| matches!(w, Pending::Call(c) if Arc::ptr_eq(c, call)));
        if let Some(Ok(granted)) = call.look(|o| o.grant.take()) {
            self.finish_grant(granted);
        }
    }

    /// A copy that waits for a grant needs it no more.
    pub(super) fn give_up_job_grant(&mut self, job: u32, serial: u64) {
        self.forget_waiters(|w| matches!(w, Pending::Job(j, s) if (*j, *s) == (job, serial)));
    }

    fn forget_waiters(&mut self, gone: impl Fn(&Pending) -> bool) {
        for side in self.sides.iter_mut().flatten() {
            side.wanting.retain(|w| !gone(&w.waiter.pending));
            for lending in side.lent.iter_mut().flatten() {
                lending.waiting.retain(|w| !gone(&w.pending));
            }
        }
    }

    fn open_grant(
        &mut self,
        slot: usize,
        node: NodeId,
        key: Key,
        rights: Rights,
    ) -> Result<u32, Status> {
        let now = now_ms();
        let side = self.side(slot).ok_or(Status::Lost)?;
        let mut lent = side.cache.begin_open(node, key, rights, now);
        if lent.is_none() {
            let leave = side.cache.leave_idle(now, 0);
            self.leave(slot, leave);
            let side = self.side(slot).ok_or(Status::Lost)?;
            lent = side.cache.begin_open(node, key, rights, now);
        }
        let lent = lent.ok_or(Status::Again)?;
        let opened = self.ask_open(slot, lent, node, key, rights);
        if opened.is_err() {
            if let Some(side) = self.side(slot) {
                side.cache.forget(lent);
            }
        }
        opened.map(|()| lent)
    }

    fn ask_open(
        &mut self,
        slot: usize,
        lent: u32,
        node: NodeId,
        key: Key,
        rights: Rights,
    ) -> Result<(), Status> {
        let side = self.side(slot).ok_or(Status::Lost)?;
        while side.lent.len() <= lent as usize {
            let grown = side.lent.push(None, GFP_KERNEL);
            grown.map_err(|_| Status::NoMemory)?;
        }
        let ask = MemHeader {
            node,
            key,
            rights: rights.bits(),
            ..MemHeader::ask(0, Op::Open)
        };
        self.ask_peer(slot, None, Kind::Open(lent), ask, KVec::new())?;
        let lent = self.side(slot).map(|s| s.lent.get_mut(lent as usize));
        if let Some(Some(place)) = lent {
            *place = Some(Lending {
                node,
                key,
                rights,
                addr: 0,
                extents: KVec::new(),
                waiting: KVec::new(),
            });
        }
        Ok(())
    }

    /// OPEN is answered.
    pub(super) fn opened(
        &mut self,
        slot: usize,
        lent: u32,
        h: &MemHeader,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let side = self.side(slot).ok_or(Violation::State)?;
        let serial = side.serial;
        let mut status = h.status;
        // A violation ends the link, and its end fails the waiters: they stay in `lent` for that.
        let given = match status {
            Status::Ok => {
                let given = extents(payload, h.bytes)?;
                side.cache.opened(lent, h.grant, h.arg != 0)?;
                Some(given)
            }
            _ => {
                side.cache.forget(lent);
                None
            }
        };
        let place = side.lent.get_mut(lent as usize);
        let mut lending = place.and_then(Option::take).ok_or(Violation::State)?;
        let waiting = core::mem::take(&mut lending.waiting);
        if let Some(given) = given {
            lending.addr = h.addr;
            for extent in given {
                if lending.extents.push(extent, GFP_KERNEL).is_err() {
                    status = Status::NoMemory;
                }
            }
        }
        let (node, key, rights) = (lending.node, lending.key, lending.rights);
        if let Some(place) = side.lent.get_mut(lent as usize) {
            *place = Some(lending);
        }
        let once = status == Status::Ok && h.arg != 0;
        let granted = Granted {
            slot,
            serial,
            lent,
            number: h.grant,
            once,
        };
        if status != h.status {
            // With some of its extents it is of no use.
            let leave = self.side(slot).and_then(|s| s.cache.give_back(lent));
            self.leave(slot, leave);
        }
        let mut used = false;
        for waiter in waiting {
            let wanting = |waiter| Wanting {
                waiter,
                node,
                key,
                rights,
            };
            match status {
                Status::Ok if !once || !used => {
                    self.granted(granted, waiter.pending);
                    used = true;
                }
                // That one was for one operation.
                Status::Ok => self.want_later(slot, wanting(waiter)),
                // The node still ends others.
                Status::NoSpace => {
                    if let Some(side) = self.side(slot) {
                        side.refused_ms = Some(now_ms());
                    }
                    self.want_later(slot, wanting(waiter));
                }
                why => self.grant_refused(waiter.pending, why),
            }
        }
        if once && !used {
            // Those that it was for wait no more.
            self.finish_grant(granted);
        }
        Ok(())
    }

    fn granted(&mut self, granted: Granted, pending: Pending) {
        if let Some(side) = self.side(granted.slot) {
            side.cache.tell(granted.lent, granted.number, now_ms());
        }
        match pending {
            Pending::Call(call) => call.with(|o| o.grant = Some(Ok(granted))),
            Pending::Job(job, serial) => {
                if !self.job_granted(job, serial, granted) {
                    self.finish_grant(granted);
                }
            }
        }
    }

    pub(super) fn grant_refused(&mut self, pending: Pending, why: Status) {
        match pending {
            Pending::Call(call) => call.with(|o| o.grant = Some(Err(why))),
            Pending::Job(job, serial) => {
                // There is room for all jobs.
                let _ = self.failed_jobs.push_within_capacity((job, serial, why));
            }
        }
    }

    /// Takes a waiter for a grant of a link that is down.
    pub(super) fn next_waiting(&mut self, slot: usize) -> Option<Pending> {
        let side = self.side(slot)?;
        if let Some(wanting) = side.wanting.pop() {
            return Some(wanting.waiter.pending);
        }
        let mut lent = side.lent.iter_mut().flatten();
        lent.find_map(|lending| lending.waiting.pop().map(|w| w.pending))
    }

    /// Sends what the end of a grant needs.
    pub(super) fn leave(&mut self, slot: usize, leave: Option<Leave>) {
        let said = match leave {
            None => Ok(()),
            Some(Leave::Revoked(grant)) => match self.side(slot) {
                Some(side) => side.say(MemHeader::revoked(grant), KVec::new()),
                None => Ok(()),
            },
            Some(Leave::Close(grant)) => {
                let ask = MemHeader {
                    grant,
                    ..MemHeader::ask(0, Op::Close)
                };
                match self.ask_peer(slot, None, Kind::Nothing, ask, KVec::new()) {
                    Err(Status::NoMemory) => Err(ENOMEM),
                    _ => Ok(()),
                }
            }
        };
        // The node would wait for it: without the link it does not.
        if said.is_err() {
            self.fail(slot, Status::Lost);
        }
    }

    /// An operation that was told of a grant is over.
    pub(super) fn finish_grant(&mut self, granted: Granted) {
        if let Some(side) = self.live(granted.slot, granted.serial) {
            let leave = side.cache.finish(granted.lent, granted.number);
            self.leave(granted.slot, leave);
        }
    }

    /// Bytes have moved.
    pub(super) fn moved(&mut self, slot: usize, data: Data) {
        match &data.what {
            Moved::Call(call) => call.with(|o| o.left = o.left.saturating_sub(1)),
            Moved::Chunk(job, serial, len) => self.chunk_done(*job, *serial, *len),
        }
        let leave = self.side(slot).and_then(|side| side.cache.end(data.lent));
        self.leave(slot, leave);
    }
}
