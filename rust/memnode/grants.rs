// SPDX-License-Identifier: GPL-2.0

//! The remote keys that this host was given: opening, use and return.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{now_ms, Call, Kind, State};
use super::side::{Data, Life, Moved};
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
}

/// A waiter for a grant.
pub(super) enum Pending {
    Call(Arc<Call>),
    Job(u32, u64),
}

/// A grant that this host has, or has asked for.
pub(super) struct Lending {
    node: NodeId,
    key: Key,
    rights: Rights,
    /// Address of the first byte.
    addr: u64,
    extents: KVec<RemoteExtent>,
    waiting: KVec<Pending>,
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
    pub(super) fn want_grant(
        &mut self,
        slot: usize,
        node: NodeId,
        key: Key,
        rights: Rights,
        pending: Pending,
    ) {
        let Some(side) = self.side(slot).filter(|s| s.life != Life::Down) else {
            return self.grant_refused(pending, Status::Lost);
        };
        let lent = match side.cache.find(node, key, rights) {
            Found::Open { at, number } => {
                let granted = Granted {
                    slot,
                    serial: side.serial,
                    lent: at,
                    number,
                };
                return self.granted(granted, pending);
            }
            Found::Opening(lent) => lent,
            Found::None => match self.open_grant(slot, node, key, rights) {
                Ok(lent) => lent,
                Err(why) => return self.grant_refused(pending, why),
            },
        };
        let lending = self.side(slot).and_then(|s| s.lent.get_mut(lent as usize));
        let Some(Some(lending)) = lending else {
            return self.grant_refused(pending, Status::Again);
        };
        if lending.waiting.reserve(1, GFP_KERNEL).is_err() {
            return self.grant_refused(pending, Status::NoMemory);
        }
        let _ = lending.waiting.push_within_capacity(pending);
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
        let token = self.op(Kind::Open(lent))?;
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
        let asked = side.ask(ask, KVec::new(), token);
        asked.map_err(|_| Status::NoMemory)?;
        if let Some(place) = side.lent.get_mut(lent as usize) {
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
        let place = side.lent.get_mut(lent as usize);
        let mut lending = place.and_then(Option::take).ok_or(Violation::State)?;
        let waiting = core::mem::take(&mut lending.waiting);
        let mut status = h.status;
        if status == Status::Ok {
            side.cache.opened(lent, h.grant, h.arg != 0)?;
            lending.addr = h.addr;
            for extent in extents(payload, h.bytes)? {
                if lending.extents.push(extent, GFP_KERNEL).is_err() {
                    status = Status::NoMemory;
                }
            }
        } else {
            side.cache.forget(lent);
        }
        let (node, key, rights) = (lending.node, lending.key, lending.rights);
        if let Some(place) = side.lent.get_mut(lent as usize) {
            *place = Some(lending);
        }
        let granted = Granted {
            slot,
            serial,
            lent,
            number: h.grant,
        };
        for (i, pending) in waiting.into_iter().enumerate() {
            match status {
                Status::Ok if i == 0 || h.arg == 0 => self.granted(granted, pending),
                // That one was for one operation.
                Status::Ok => self.want_grant(slot, node, key, rights, pending),
                why => self.grant_refused(pending, why),
            }
        }
        Ok(())
    }

    fn granted(&mut self, granted: Granted, pending: Pending) {
        match pending {
            Pending::Call(call) => call.with(|o| o.grant = Some(Ok(granted))),
            Pending::Job(job, serial) => self.job_granted(job, serial, granted),
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
        let mut lent = self.side(slot)?.lent.iter_mut().flatten();
        lent.find_map(|lending| lending.waiting.pop())
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
                let token = self.op(Kind::Nothing).map_err(|_| ENOMEM);
                match (token, self.side(slot)) {
                    (Ok(token), Some(side)) => side.ask(ask, KVec::new(), token),
                    (token, _) => token.map(|_| ()),
                }
            }
        };
        // The node would wait for it: without the link it does not.
        if said.is_err() {
            self.fail(slot, Status::Lost);
        }
    }

    /// The operation that a grant was for is over.
    pub(super) fn finish_once(&mut self, granted: Granted) {
        if let Some(side) = self.live(granted.slot, granted.serial) {
            let leave = side.cache.finish_once(granted.lent, granted.number);
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
