// SPDX-License-Identifier: GPL-2.0

//! The requester's end of links: asks, grants, and what has been posted with them.

use zrs_core::mem::asks::{AskSlot, Asks, ASKS_MAX};
use zrs_core::mem::grant_cache::{Found, GrantCache, Leave};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::payload::{extents, nodes};
use zrs_core::mem::rights::Rights;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as Wire, Type};
use zrs_core::Violation;

use crate::host::{node_of, slots};
use crate::link::{Origin, Pending};
use crate::program::{Kind, Op};
use crate::world::{trace, World};

/// What could not be sent because there were too many asks.
#[derive(Clone, Copy, Debug)]
pub enum Retry {
    Open {
        link: usize,
        slot: u32,
    },
    Mark {
        host: usize,
        job: u32,
        serial: u64,
        off: u64,
        len: u64,
    },
    PutMark {
        op: u64,
    },
    Close {
        link: usize,
        grant: u32,
    },
    Cancel {
        host: usize,
        op: u64,
    },
}

/// Work requests that complete together.
pub struct Tag {
    pub link: usize,
    left: usize,
    what: Tagged,
}

#[derive(Clone, Copy)]
enum Tagged {
    Chunk {
        host: usize,
        job: u32,
        len: u64,
        slot: u32,
    },
    Put {
        slot: u32,
    },
    Get {
        op: u64,
        slot: u32,
        number: u32,
    },
}

/// Why an ask was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    Room,
    Unreachable,
}

impl World {
    /// Asks the host `to`, which may be `host` itself.
    pub fn ask(
        &mut self,
        host: usize,
        to: usize,
        wire: Wire,
        op: u64,
        fill: impl Fn(MemHeader) -> MemHeader,
        payload: Vec<u8>,
    ) -> Result<(), Unsent> {
        let ask = MemHeader {
            len: payload.len() as u32,
            ..fill(MemHeader::ask(0, wire))
        };
        if host == to {
            let h = MemHeader { id: 1, ..ask };
            let served = self.serve(host, crate::serve::Reply::Local(op), &h, &payload);
            served.expect("an honest ask");
            return Ok(());
        }
        let link = self.connect(host, to).ok_or(Unsent::Unreachable)?;
        let user = self.user_of(op);
        let ask = self.links[link].asks.begin(ask, op, user);
        let ask = ask.ok_or(Unsent::Room)?;
        self.send(link, true, &ask, payload);
        Ok(())
    }

    /// The user whose operation it is; none if it is the host's own.
    pub fn user_of(&self, op: u64) -> Option<u32> {
        let kind = self.ops.get(&op).map(|o| &o.kind)?;
        let own = matches!(
            kind,
            Kind::Open { .. }
                | Kind::Close
                | Kind::Wrote { .. }
                | Kind::BrokerAlloc { .. }
                | Kind::BrokerKey { .. }
                | Kind::BrokerFree { .. }
        );
        (!own).then_some((op % 2) as u32)
    }

    pub fn requester_receives(
        &mut self,
        link: usize,
        h: &MemHeader,
        payload: &[u8],
    ) -> Result<(), Violation> {
        match h.kind {
            Type::Hello => {
                for info in nodes(payload)? {
                    assert_eq!(info?.node, node_of(self.links[link].node));
                }
            }
            Type::Answer => {
                if h.op == Some(Wire::Open) && h.status == Status::Ok {
                    drop(extents(payload, h.bytes)?);
                }
                let op = self.links[link].asks.answered(h)?;
                self.op_answered(op, Some(link), h, payload);
            }
            Type::Revoke => {
                if h.status == Status::Sealed {
                    let host = &mut self.hosts[self.links[link].requester];
                    let with_it = host.jobs.iter().filter(|(_, info)| {
                        info.grant
                            .is_some_and(|(l, _, number)| (l, number) == (link, h.grant))
                    });
                    for job in with_it.map(|(job, _)| *job).collect::<Vec<_>>() {
                        host.copies.cancel(job, Status::Sealed, self.now);
                    }
                }
                let leave = self.links[link].cache.revoke(h.grant);
                self.leave(link, leave);
            }
            Type::Ask | Type::Revoked => return Err(Violation::State),
        }
        Ok(())
    }

    pub fn leave(&mut self, link: usize, leave: Option<Leave>) {
        match leave {
            None => {}
            Some(Leave::Revoked(grant)) => {
                self.send(link, true, &MemHeader::revoked(grant), Vec::new())
            }
            Some(Leave::Close(grant)) => self.retry(Retry::Close { link, grant }),
        }
    }

    pub fn leave_idle(&mut self, link: usize) {
        while self.links[link].up[0] && !self.is_hostile(self.links[link].requester) {
            let leave = self.links[link].cache.leave_idle(self.now, 0);
            if leave.is_none() {
                return;
            }
            self.leave(link, leave);
        }
    }

    pub fn retry(&mut self, retry: Retry) {
        let sent = match retry {
            Retry::Open { link, slot } => self.ask_open(link, slot),
            Retry::Close { link, grant } => {
                let host = self.links[link].requester;
                let op = self.new_op(host, Kind::Close);
                let ask = MemHeader {
                    grant,
                    ..MemHeader::ask(0, Wire::Close)
                };
                let ask = self.links[link].asks.begin(ask, op, None);
                match ask {
                    Some(ask) => self.send(link, true, &ask, Vec::new()),
                    None => drop(self.ops.remove(&op)),
                }
                ask.is_some()
            }
            Retry::Mark {
                host,
                job,
                serial,
                off,
                len,
            } => self.mark_job(host, job, serial, off, len),
            Retry::PutMark { op } => self.mark_put(op),
            Retry::Cancel { host, op } => self.ask_cancel(host, op),
        };
        if !sent {
            self.retries.push(retry);
        }
    }

    /// Gets a grant for what is pending.
    pub fn want_grant(
        &mut self,
        link: usize,
        node: NodeId,
        key: Key,
        rights: Rights,
        pending: Pending,
    ) {
        let l = &mut self.links[link];
        let slot = match l.cache.find(node, key, rights) {
            Found::Open { at, number } => {
                self.granted_to(link, at, number, pending);
                return;
            }
            Found::Opening(slot) => slot,
            Found::None => {
                let mut slot = l.cache.begin_open(node, key, rights, self.now);
                if slot.is_none() {
                    let leave = l.cache.leave_idle(self.now, 0);
                    self.leave(link, leave);
                    slot = self.links[link]
                        .cache
                        .begin_open(node, key, rights, self.now);
                }
                let Some(slot) = slot else {
                    let host = self.links[link].requester;
                    self.grant_failed(host, pending, Status::Again);
                    return;
                };
                self.links[link].opens.insert(slot, (node, key, rights));
                if !self.ask_open(link, slot) {
                    self.retries.push(Retry::Open { link, slot });
                }
                slot
            }
        };
        self.links[link].waiting.push((slot, pending));
    }

    fn ask_open(&mut self, link: usize, slot: u32) -> bool {
        let host = self.links[link].requester;
        let (node, key, rights) = self.links[link].opens[&slot];
        let op = self.new_op(host, Kind::Open { slot });
        let ask = MemHeader {
            node,
            key,
            rights: rights.bits(),
            ..MemHeader::ask(0, Wire::Open)
        };
        let Some(ask) = self.links[link].asks.begin(ask, op, None) else {
            self.ops.remove(&op);
            return false;
        };
        self.send(link, true, &ask, Vec::new());
        true
    }

    /// OPEN is answered.
    pub fn opened(&mut self, link: usize, slot: u32, h: &MemHeader, payload: &[u8]) {
        let once = h.arg != 0;
        if h.status == Status::Ok {
            if let Err(v) = self.links[link].cache.opened(slot, h.grant, once) {
                self.node_violates(link, v);
                return;
            }
        }
        let of_it: Vec<_> = self.links[link]
            .waiting
            .iter()
            .filter(|w| w.0 == slot)
            .map(|w| w.1)
            .collect();
        self.links[link].waiting.retain(|w| w.0 != slot);
        if h.status != Status::Ok {
            self.links[link].cache.forget(slot);
            let host = self.links[link].requester;
            of_it
                .into_iter()
                .for_each(|p| self.grant_failed(host, p, h.status));
            return;
        }
        let all = extents(payload, h.bytes);
        let all = all.expect("it was looked at before").collect();
        let l = &mut self.links[link];
        let (node, key, rights) = l.opens[&slot];
        l.extents.insert(slot, all);
        if once && of_it.is_empty() {
            // Those that it was for wait no more.
            return self.finish_once(link, slot, h.grant);
        }
        let (now, later) = of_it.split_at(if once { 1 } else { of_it.len() });
        now.iter()
            .for_each(|p| self.granted_to(link, slot, h.grant, *p));
        later
            .iter()
            .for_each(|p| self.want_grant(link, node, key, rights, *p));
    }

    fn granted_to(&mut self, link: usize, slot: u32, number: u32, pending: Pending) {
        match pending {
            Pending::Job(job) => self.job_granted(link, slot, number, job),
            Pending::Op(op) => self.start_big(link, slot, number, op),
        }
    }

    fn grant_failed(&mut self, host: usize, pending: Pending, why: Status) {
        match pending {
            Pending::Op(op) => self.op_over(op, why),
            Pending::Job(job) => {
                let serial = self.hosts[host].jobs.get(&job).map_or(0, |i| i.serial);
                self.failed_jobs.push((host, job, serial, why));
            }
        }
    }

    /// Whether a grant reaches the bytes.
    pub fn reaches(&self, link: usize, slot: u32, addr: u64, len: u64) -> bool {
        let parts = self.split(link, slot, addr, len);
        parts.iter().map(|p| p.2.end - p.2.start).sum::<u64>() == len
    }

    /// A PUT or GET by remote keys.
    fn start_big(&mut self, link: usize, slot: u32, number: u32, op: u64) {
        let Some(kind) = self.ops.get(&op).map(|o| o.kind.clone()) else {
            return;
        };
        let (addr, len) = match &kind {
            Kind::BigPut { addr, data, .. } => (*addr, data.len() as u64),
            Kind::BigGet { addr, len, .. } => (*addr, *len),
            other => panic!("{other:?}"),
        };
        if !self.reaches(link, slot, addr, len) {
            if !self.is_hostile(self.links[link].node) {
                self.fail("the grant has not all of the key's range");
            }
            self.op_over(op, Status::Range);
            return;
        }
        if !self.links[link].cache.begin(slot, number, self.now) {
            self.op_over(op, Status::Stale);
            return;
        }
        let tag = self.number();
        let (left, what) = match &kind {
            Kind::BigPut { addr, data, .. } => {
                let n = self.post_writes(link, slot, *addr, data, Origin::Op(op), tag);
                (n, Tagged::Put { slot })
            }
            Kind::BigGet { addr, len, .. } => {
                let n = self.post_reads(link, slot, *addr, *len, tag);
                (n, Tagged::Get { op, slot, number })
            }
            other => panic!("{other:?}"),
        };
        self.tags.insert(tag, Tag { link, left, what });
        if let Some(Op {
            kind: Kind::BigPut { grant, .. },
            ..
        }) = self.ops.get_mut(&op)
        {
            *grant = Some((link, slot, number));
            if !self.mark_put(op) {
                self.retries.push(Retry::PutMark { op });
            }
        }
    }

    fn mark_put(&mut self, op: u64) -> bool {
        let Some(Kind::BigPut {
            grant: Some((link, _, grant)),
            addr,
            data,
            ..
        }) = self.ops.get(&op).map(|o| &o.kind)
        else {
            return true;
        };
        let (link, grant, addr, bytes) = (*link, *grant, *addr, data.len() as u64);
        let ask = MemHeader {
            grant,
            addr,
            bytes,
            ..MemHeader::ask(0, Wire::Wrote)
        };
        let user = self.user_of(op);
        let Some(ask) = self.links[link].asks.begin(ask, op, user) else {
            return false;
        };
        self.send(link, true, &ask, Vec::new());
        true
    }

    /// Posts a chunk of the copy `of`: its host, number and serial number.
    pub fn post_chunk(
        &mut self,
        link: usize,
        slot: u32,
        addr: u64,
        data: &[u8],
        of: (usize, u32, u64),
    ) {
        let (host, job, serial) = of;
        let tag = self.number();
        let left = self.post_writes(link, slot, addr, data, Origin::Job(serial), tag);
        let what = Tagged::Chunk {
            host,
            job,
            len: data.len() as u64,
            slot,
        };
        self.tags.insert(tag, Tag { link, left, what });
    }

    /// A work request has completed.
    pub fn completed(&mut self, tag: u64, data: Option<Vec<u8>>) {
        let t = self.tags.get_mut(&tag).expect("posted");
        t.left -= 1;
        let (link, what, last) = (t.link, t.what, t.left == 0);
        if let (Tagged::Get { op, .. }, Some(data)) = (what, data) {
            if let Some(Op {
                kind: Kind::BigGet { got, .. },
                ..
            }) = self.ops.get_mut(&op)
            {
                got.extend(data);
            }
        }
        if !last {
            return;
        }
        self.tags.remove(&tag);
        let slot = match what {
            Tagged::Chunk {
                host,
                job,
                len,
                slot,
            } => {
                self.hosts[host].copies.completed(job, len);
                slot
            }
            Tagged::Put { slot } => slot,
            Tagged::Get { op, slot, .. } => {
                self.op_over(op, Status::Ok);
                slot
            }
        };
        let leave = self.links[link].cache.end(slot);
        self.leave(link, leave);
        if let Tagged::Get { number, .. } = what {
            self.finish_once(link, slot, number);
        }
    }

    pub fn finish_once(&mut self, link: usize, slot: u32, number: u32) {
        if self.links[link].up[0] {
            let leave = self.links[link].cache.finish(slot, number);
            self.leave(link, leave);
        }
    }

    /// The requester's end of a link is down: its queue pair is destroyed.
    pub fn requester_end_down(&mut self, link: usize) {
        let (host, node) = (self.links[link].requester, self.links[link].node);
        let cfg_asks = self.cfg.asks;
        let grants = self.cfg.grants;
        let percent = self.cfg.user_percent;
        let l = &mut self.links[link];
        l.to_requester.clear();
        let waiting = std::mem::take(&mut l.waiting);
        let mut asks = std::mem::replace(
            &mut l.asks,
            Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], cfg_asks, percent),
        );
        l.cache = GrantCache::new(slots(grants));
        self.tags.retain(|_, t| t.link != link);
        let in_link = |r: &Retry| match r {
            Retry::Open { link: l, .. } | Retry::Close { link: l, .. } => *l == link,
            _ => false,
        };
        self.retries.retain(|r| !in_link(r));
        if self.is_hostile(host) {
            return;
        }
        for (_, pending) in waiting {
            self.grant_failed(host, pending, Status::Lost);
        }
        while let Some((wire, op)) = asks.fail_one() {
            self.stats.asks_lost += 1;
            trace!(self, "link {link}: {wire:?} {op} is lost");
            self.op_over(op, Status::Lost);
        }
        // PUTs and GETs that have posted something and wait for no answer.
        let posted: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, o)| o.link_of_big() == Some(link))
            .map(|(n, _)| *n)
            .collect();
        posted
            .into_iter()
            .for_each(|op| self.op_over(op, Status::Lost));
        self.hosts[host].copies.target_lost(node as u32);
    }
}
