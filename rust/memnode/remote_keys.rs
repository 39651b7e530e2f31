// SPDX-License-Identifier: GPL-2.0

//! Remote keys that peers are given for the memory of this host's nodes: grants, from OPEN to the
//! end of their memory regions.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::{Arc, UniqueArc};

use super::host::{now_ms, State};
use super::node::{must_stop, stop_status, RUN_MAX};
use super::server::Reply;
use super::side::Life;
use crate::ib::dma::{Direction, DmaRuns};
use crate::ib::memory::NodeRuns;
use crate::ib::mr::{Access, Mr};
use crate::kern::errno::{EHWPOISON, EOPNOTSUPP};
use crate::net_warn_ratelimited;
use crate::proto::mem::grants::Registered;
use crate::proto::mem::node::{Hold, Piece};
use crate::proto::mem::payload::{RemoteExtent, EXTENTS_MAX};
use crate::proto::mem::rights::{Range, Rights};
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};
use crate::proto::Violation;

/// The memory regions of a grant.
pub(super) struct Registration {
    pub(super) number: u32,
    pub(super) mrs: KVec<UniqueArc<Mr>>,
    pub(super) access: Access,
    lens: KVec<u64>,
    addr: u64,
    len: u64,
    rights: u32,
    once: bool,
}

impl State {
    /// Has the remote keys of a grant made invalid, when it is their turn. Without memory the link
    /// ends.
    pub(super) fn invalidate(&mut self, slot: usize, number: u32) -> Result<(), Violation> {
        let side = self.side(slot).ok_or(Violation::State)?;
        if side.to_register.push((number, true), GFP_KERNEL).is_err() {
            self.fail(slot, Status::NoMemory);
        }
        Ok(())
    }

    /// Takes back the grants, and ends the copies, whose region or key has ended.
    pub(super) fn revoke_what_ended(&mut self) {
        let now = now_ms();
        let nodes = &self.served;
        for side in self.sides.iter_mut().flatten() {
            if side.life != Life::Up {
                continue;
            }
            let over = |hold: &Hold| must_stop(nodes, hold, now);
            while let Some(number) = side.grants.revoke_one(now, over) {
                let hold = side.grants.hold(number);
                let why = hold.map_or(Status::Stale, |hold| stop_status(nodes, hold, now));
                let revoke = MemHeader::revoke(number).because(why);
                if side.say(revoke, KVec::new()).is_err() {
                    side.link.broken();
                    break;
                }
            }
        }
        let over = |hold: &Hold| must_stop(nodes, hold, now);
        let sealed = |hold: &Hold| over(hold) && stop_status(nodes, hold, now) == Status::Sealed;
        self.copies.cancel_if(Status::Sealed, now, sealed);
        self.copies.cancel_if(Status::Stale, now, over);
    }

    /// The result of operations with a grant that is being taken back.
    pub(super) fn grant_status(&self, slot: usize, number: u32) -> Status {
        let side = self.sides.get(slot).and_then(Option::as_ref);
        let hold = side.and_then(|side| side.grants.hold(number));
        hold.map_or(Status::Stale, |hold| {
            stop_status(&self.served, hold, now_ms())
        })
    }

    /// Begins a grant of the node at that place.
    pub(super) fn open(&mut self, at: usize, reply: Reply, h: &MemHeader) -> Result<(), Violation> {
        let Reply::Peer(slot, _, place) = reply else {
            return Err(Violation::State);
        };
        let rights = Rights::from_bits(h.rights).ok_or(Violation::Type)?;
        // Before the key is used, which may allow one use.
        if !self.side(slot).ok_or(Violation::State)?.grants.has_room() {
            self.answer_status(reply, Op::Open, Status::NoSpace);
            return Ok(());
        }
        let Some(served) = self.node_at(at) else {
            self.answer_status(reply, Op::Open, Status::NoNode);
            return Ok(());
        };
        let granted = served.node.begin_grant(h.key, rights, now_ms());
        let (hold, scope) = match granted {
            Ok(granted) => granted,
            Err(status) => {
                self.answer_status(reply, Op::Open, status);
                return Ok(());
            }
        };
        let pieces = collect(served.node.pieces(&hold, scope.range));
        let reach = Range {
            off: scope.addr,
            len: scope.range.len,
        };
        let side = self.side(slot).ok_or(Violation::State)?;
        let begun = side.grants.begin(hold, reach, place);
        let number = match begun {
            Ok(number) => number,
            Err((hold, status)) => {
                self.end_hold(hold);
                self.answer_status(reply, Op::Open, status);
                return Ok(());
            }
        };
        let template = Registration {
            number,
            mrs: KVec::new(),
            access: match (
                rights.contains(Rights::READ),
                rights.contains(Rights::WRITE),
            ) {
                (true, true) => Access::ReadWrite,
                (true, false) => Access::Read,
                _ => Access::Write,
            },
            lens: KVec::new(),
            addr: scope.addr,
            len: scope.range.len,
            rights: h.rights,
            once: scope.once,
        };
        let described = pieces.and_then(|pieces| self.describe(at, slot, template, &pieces));
        if let Err(e) = described {
            let side = self.side(slot).ok_or(Violation::State)?;
            let hold = side.grants.gone(number);
            let mut status = match e {
                e if e == EOPNOTSUPP => Status::Unsupported,
                _ => Status::NoMemory,
            };
            if let Some(hold) = hold {
                match self.node_at(at) {
                    Some(served) if e == EHWPOISON => status = served.memory_error(&hold, e),
                    _ => {}
                }
                self.end_hold(hold);
            }
            self.answer_status(reply, Op::Open, status);
        }
        Ok(())
    }

    /// Describes memory to the device, and has it registered. EOPNOTSUPP: the device would need
    /// more registrations than a grant has, or its DMA is not coherent. EHWPOISON: a page is
    /// defective.
    fn describe(
        &mut self,
        at: usize,
        slot: usize,
        mut r: Registration,
        pieces: &[Piece],
    ) -> Result {
        let served = self.node_at(at).ok_or(ENODEV)?;
        let (memory, shift) = (served.memory.clone(), served.page_shift);
        let side = self.side(slot).ok_or(EINVAL)?;
        let queues = side.queues.clone().ok_or(EINVAL)?;
        let most = RUN_MAX.min(queues.pd.device().attrs().max_fast_reg_pages);
        let parts = || pieces.iter().flat_map(|piece| piece.parts(most, shift));
        if most == 0 || parts().take(EXTENTS_MAX + 1).count() > EXTENTS_MAX {
            return Err(EOPNOTSUPP);
        }
        let map = |at, len| {
            let runs = NodeRuns::new(&memory, core::iter::once((at, len)))?;
            let runs = DmaRuns::map(&queues.pd, runs, Direction::Both)?;
            // The processor, and peers by other mappings, use the memory as well: there is no time
            // at which it could be synchronized.
            if runs.need_sync() {
                let device = queues.pd.device().name();
                net_warn_ratelimited!(
                    "{device}: its DMA is not coherent: regions go by messages\n"
                );
                return Err(EOPNOTSUPP);
            }
            Ok(runs)
        };
        for (i, part) in (1_u64..).zip(parts()) {
            // Bounce pages may be too few for all of it.
            let runs = map(part.at, part.len).or_else(|e| map(part.at, 1).and(Err(e)))?;
            let mut mr = queues.mrs.take(part.pages(shift) as u32)?;
            // The addresses say nothing of where the memory is.
            mr.map_runs(Arc::new(runs, GFP_KERNEL)?, shift, i << 40)?;
            r.mrs.push(mr, GFP_KERNEL)?;
            r.lens.push(part.len, GFP_KERNEL)?;
        }
        side.registrations.reserve(1, GFP_KERNEL)?;
        side.to_register.push((r.number, false), GFP_KERNEL)?;
        let _ = side.registrations.push_within_capacity(r);
        Ok(())
    }

    /// The device has registered the memory of a grant, or made its keys invalid.
    pub(super) fn registered(&mut self, slot: usize, number: u32, invalidated: bool) {
        let Some(side) = self.side(slot) else {
            return;
        };
        if invalidated {
            if side.grants.invalidated(number, now_ms()) {
                side.beat();
            }
            return;
        }
        let serial = side.serial;
        match side.grants.registered(number, now_ms()) {
            Some(Registered::Answer(place)) => {
                let of_it = |r: &&Registration| r.number == number;
                let answer = side.registrations.iter().find(of_it).map(grant_answer);
                let reply = Reply::Peer(slot, serial, place);
                match answer {
                    Some(Ok((h, payload))) => self.answer(reply, h, payload),
                    _ => self.fail(slot, Status::NoMemory),
                }
            }
            Some(Registered::Stale(place)) => {
                let reply = Reply::Peer(slot, serial, place);
                let why = self.grant_status(slot, number);
                self.answer_status(reply, Op::Open, why);
                // Without memory for it the link ends.
                let _ = self.invalidate(slot, number);
            }
            None => {}
        }
    }

    /// Takes the memory of a grant from the peer. `over`: its keys are invalid, and nothing of the
    /// peer's that had begun before goes on.
    pub(super) fn deregister(&mut self, slot: usize, number: u32, over: bool) {
        let Some(side) = self.side(slot) else {
            return;
        };
        let at = side.registrations.iter().position(|r| r.number == number);
        let registration = at.and_then(|at| side.registrations.remove(at).ok());
        let pool = side.queues.as_ref().map(|q| q.mrs.clone());
        let mut lost = false;
        for mut mr in registration.into_iter().flat_map(|r| r.mrs) {
            if over {
                mr.invalidated();
            }
            let ended = match &pool {
                Some(pool) => pool.give(mr),
                None => mr.deregister(),
            };
            lost |= ended.is_err();
        }
        match side.grants.gone(number) {
            // The peer may write there for ever: the region is never quiet, and its memory never
            // free.
            Some(hold) if lost => drop(hold),
            Some(hold) => self.end_hold(hold),
            None => {}
        }
        if lost {
            self.fail(slot, Status::Lost);
        }
    }

    pub(super) fn end_hold(&mut self, hold: Hold) {
        if let Some(served) = self.node_at(hold.place() as usize) {
            served.node.end(hold);
        }
    }

    /// Something of the peer has arrived: no WRITE before it is half done.
    pub(super) fn heard(&mut self, slot: usize) {
        while let Some(number) = self.side(slot).and_then(|s| s.grants.heard_one()) {
            self.deregister(slot, number, true);
        }
    }
}

fn collect(pieces: impl Iterator<Item = Piece>) -> Result<KVec<Piece>> {
    let mut all = KVec::new();
    for piece in pieces {
        all.push(piece, GFP_KERNEL)?;
    }
    Ok(all)
}

fn grant_answer(r: &Registration) -> Result<(MemHeader, KVec<u8>)> {
    let mut payload = KVec::new();
    for (mr, len) in r.mrs.iter().zip(r.lens.iter()) {
        let extent = RemoteExtent {
            iova: mr.iova(),
            len: *len,
            rkey: mr.rkey(),
        };
        payload.extend_from_slice(&extent.encode(), GFP_KERNEL)?;
    }
    let h = MemHeader {
        addr: r.addr,
        bytes: r.len,
        grant: r.number,
        rights: r.rights,
        arg: u32::from(r.once),
        ..MemHeader::answer(0, Op::Open, Status::Ok)
    };
    Ok((h, payload))
}
