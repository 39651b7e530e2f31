// SPDX-License-Identifier: GPL-2.0

//! The programs of a host: what they ask for, and what they find.

use zrs_core::mem::id::Key;
use zrs_core::mem::queue::CancelAction;
use zrs_core::mem::rights::Rights;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as Wire, FLAG_KEEP, FLAG_VIA};

use crate::host::{node_of, ADMISSION, HOSTS};
use crate::link::{Origin, Pending};
use crate::oracle::Known;
use crate::requester::{Retry, Unsent};
use crate::serve::Reply;
use crate::world::{trace, World};

#[derive(Clone, Debug)]
pub struct CopyOp {
    pub src: Known,
    pub src_off: u64,
    pub dst: Known,
    pub dst_off: u64,
    pub len: u64,
    /// Place in the queue.
    pub place: u32,
    /// Changes of source and destination, if nobody else wrote to them when it was asked for.
    alone: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Alloc {
        at: usize,
        via: Option<usize>,
        admitted: bool,
    },
    /// What a broker asks of nodes, for the entry with that number.
    BrokerAlloc {
        at: u32,
    },
    BrokerKey {
        at: u32,
    },
    BrokerFree {
        at: u32,
    },
    Derive {
        from: Known,
        off: u64,
        len: u64,
    },
    /// FREE, SEAL, UNKEY, INFO, CANCEL.
    Plain,
    /// With a wrong key, which has to be refused as that.
    Wrong {
        want: Status,
    },
    Put {
        k: Known,
        off: u64,
        data: Vec<u8>,
        alone: Option<u64>,
    },
    Get {
        k: Known,
        off: u64,
        alone: Option<u64>,
    },
    BigPut {
        k: Known,
        addr: u64,
        data: Vec<u8>,
        alone: Option<u64>,
        grant: Option<(usize, u32, u32)>,
    },
    BigGet {
        k: Known,
        addr: u64,
        len: u64,
        got: Vec<u8>,
        alone: Option<u64>,
        link: usize,
    },
    Copy(Box<CopyOp>),
    Open {
        slot: u32,
    },
    /// WROTE of a copy.
    Wrote {
        job: u32,
        serial: u64,
    },
    Close,
}

#[derive(Clone, Debug)]
pub struct Op {
    pub host: usize,
    pub kind: Kind,
}

impl Op {
    /// The link by which a PUT or GET has posted work requests.
    pub fn link_of_big(&self) -> Option<usize> {
        match self.kind {
            Kind::BigPut { grant, .. } => grant.map(|g| g.0),
            Kind::BigGet { link, .. } => Some(link),
            _ => None,
        }
    }
}

impl World {
    pub fn new_op(&mut self, host: usize, kind: Kind) -> u64 {
        let n = self.number();
        self.ops.insert(n, Op { host, kind });
        n
    }

    fn any_key(&mut self) -> Option<Known> {
        let n = self.known.len() as u64;
        (n > 0).then(|| self.known[self.rng.below(n) as usize])
    }

    fn some_range(&mut self, k: &Known, most: u64) -> (u64, u64) {
        // Sometimes it ends beyond the region.
        let beyond = u64::from(self.rng.chance(3));
        let off = self.rng.below(k.len);
        let len = self.rng.range(1, most.min(k.len - off));
        (off, if beyond == 1 { k.len - off + 1 } else { len })
    }

    /// A program does something. `host` is honest.
    pub fn program_step(&mut self, host: usize) {
        if !self.hosts[host].up {
            if self.rng.chance(10) {
                self.boot(host);
            }
            return;
        }
        let Some(k) = self.any_key().filter(|_| self.rng.chance(93)) else {
            self.alloc(host);
            return;
        };
        match self.rng.below(40) {
            0..=5 => self.derive(host, k),
            6 => self.end_something(host, Wire::Free, k, k.key),
            7 => self.end_something(host, Wire::Seal, k, k.key),
            8 | 9 => {
                let victim = self
                    .any_key()
                    .map_or(k, |v| if v.region() == k.region() { v } else { k });
                self.end_something(host, Wire::Unkey, k, victim.key);
            }
            10..=12 => self.put(host, k),
            13..=14 => self.get(host, k),
            15..=18 => self.big(host, k, true),
            19..=21 => self.big(host, k, false),
            22..=24 => self.wrong_key(host, k),
            25..=28 => self.cancel(host),
            _ => self.copy(host, k),
        }
    }

    fn unsent(&mut self, op: u64, why: Unsent) {
        let status = match why {
            Unsent::Room => Status::Again,
            Unsent::Unreachable => Status::Unreachable,
        };
        self.op_over(op, status);
    }

    fn alloc(&mut self, host: usize) {
        let at = match self.hostile {
            Some(_) if self.rng.chance(10) => HOSTS - 1,
            _ => self.honest(),
        };
        let via = self.rng.chance(25).then(|| self.honest());
        let via = via.filter(|via| *via != host);
        let admitted = via.is_some() || self.rng.chance(95);
        let bytes = self.rng.range(1, self.cfg.region_bytes);
        let addr = self.rng.below(1 << 40);
        let keep = self.rng.chance(40);
        let ttl = if self.rng.chance(self.cfg.limited / 3) || (keep && via.is_some()) {
            self.rng.range(1, 2000)
        } else {
            0
        };
        let kind = Kind::Alloc { at, via, admitted };
        let op = self.new_op(host, kind);
        let key = Key::decode(if admitted { ADMISSION } else { [7; 16] });
        let fill = |h| MemHeader {
            flags: if keep { FLAG_KEEP } else { 0 } | via.map_or(0, |_| FLAG_VIA),
            addr,
            bytes,
            key,
            arg: ttl as u32,
            node: node_of(at),
            ..h
        };
        if let Err(why) = self.ask(host, via.unwrap_or(at), Wire::Alloc, op, fill, Vec::new()) {
            self.unsent(op, why);
        }
    }

    fn derive(&mut self, host: usize, k: Known) {
        let (off, len) = self.some_range(&k, u64::MAX);
        let (off, len) = if self.rng.chance(60) {
            (0, k.len)
        } else {
            (off, len)
        };
        let limited = self.rng.chance(self.cfg.limited);
        let uses = if limited { self.rng.range(1, 2) } else { 0 };
        let rights = self.rng.pick(&[1, 2, 3, 3, if limited { 3 } else { 15 }]);
        let ttl = if self.rng.chance(self.cfg.limited) {
            self.rng.range(1, 2000)
        } else {
            0
        };
        let op = self.new_op(host, Kind::Derive { from: k, off, len });
        let fill = |h| MemHeader {
            addr: k.va + off,
            bytes: len,
            key: k.key,
            rights,
            arg: ttl as u32,
            node: node_of(k.host),
            addr2: uses,
            ..h
        };
        if let Err(why) = self.ask(host, k.host, Wire::Key, op, fill, Vec::new()) {
            self.unsent(op, why);
        }
    }

    fn end_something(&mut self, host: usize, wire: Wire, k: Known, victim: Key) {
        let op = self.new_op(host, Kind::Plain);
        let fill = |h| MemHeader {
            key: k.key,
            key2: if wire == Wire::Unkey {
                victim
            } else {
                Key::default()
            },
            node: node_of(k.host),
            ..h
        };
        // What a broker has given goes back to it.
        let to = match k.via {
            Some(via) if wire == Wire::Free && k.host != via => via,
            _ => k.host,
        };
        if let Err(why) = self.ask(host, to, wire, op, fill, Vec::new()) {
            self.unsent(op, why);
        }
    }

    fn wrong_key(&mut self, host: usize, k: Known) {
        if self.is_hostile(k.host) {
            return;
        }
        let (key, want) = if self.rng.chance(50) {
            let gen = k.key.gen.wrapping_add(1000).max(1);
            (Key { gen, ..k.key }, Status::Stale)
        } else {
            let secret = k.key.secret ^ (1 << self.rng.below(64));
            // Unless the region is gone.
            (Key { secret, ..k.key }, Status::Denied)
        };
        let op = self.new_op(host, Kind::Wrong { want });
        let fill = |h| MemHeader {
            key,
            node: node_of(k.host),
            ..h
        };
        if let Err(why) = self.ask(host, k.host, Wire::Info, op, fill, Vec::new()) {
            self.unsent(op, why);
        }
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.rng.next_u64() as u8).collect()
    }

    fn put(&mut self, host: usize, k: Known) {
        let (off, len) = self.some_range(&k, 100);
        let data = self.bytes(len);
        let kind = Kind::Put {
            k,
            off,
            data: data.clone(),
            alone: None,
        };
        let op = self.new_op(host, kind);
        self.oracle.writer(k.region(), Origin::Op(op), true);
        let now_alone = self.oracle.alone(k.region(), Some(Origin::Op(op)));
        if let Some(Op {
            kind: Kind::Put { alone, .. },
            ..
        }) = self.ops.get_mut(&op)
        {
            *alone = now_alone;
        }
        let fill = |h| MemHeader {
            addr: k.va + off,
            key: k.key,
            node: node_of(k.host),
            ..h
        };
        if let Err(why) = self.ask(host, k.host, Wire::Put, op, fill, data) {
            self.unsent(op, why);
        }
    }

    fn get(&mut self, host: usize, k: Known) {
        let (off, bytes) = self.some_range(&k, 100);
        let alone = self.oracle.alone(k.region(), None);
        let op = self.new_op(host, Kind::Get { k, off, alone });
        let fill = |h| MemHeader {
            addr: k.va + off,
            bytes,
            key: k.key,
            node: node_of(k.host),
            ..h
        };
        if let Err(why) = self.ask(host, k.host, Wire::Get, op, fill, Vec::new()) {
            self.unsent(op, why);
        }
    }

    /// PUT or GET by remote keys.
    fn big(&mut self, host: usize, k: Known, put: bool) {
        if host == k.host {
            return;
        }
        let Some(link) = self.connect(host, k.host) else {
            return;
        };
        let off = self.rng.below(k.len);
        let len = self.rng.range(1, k.len - off);
        let addr = k.va + off;
        let (kind, rights) = if put {
            let data = self.bytes(len);
            let kind = Kind::BigPut {
                k,
                addr,
                data,
                alone: None,
                grant: None,
            };
            (kind, Rights::WRITE)
        } else {
            let alone = self.oracle.alone(k.region(), None);
            let kind = Kind::BigGet {
                k,
                addr,
                len,
                got: Vec::new(),
                alone,
                link,
            };
            (kind, Rights::READ)
        };
        let op = self.new_op(host, kind);
        if put {
            self.oracle.writer(k.region(), Origin::Op(op), true);
            let now_alone = self.oracle.alone(k.region(), Some(Origin::Op(op)));
            if let Some(Op {
                kind: Kind::BigPut { alone, .. },
                ..
            }) = self.ops.get_mut(&op)
            {
                *alone = now_alone;
            }
        }
        self.want_grant(link, node_of(k.host), k.key, rights, Pending::Op(op));
    }

    fn copy(&mut self, host: usize, src: Known) {
        let Some(dst) = self.any_key() else {
            return;
        };
        let (src_off, len) = self.some_range(&src, dst.len);
        let dst_off = self.rng.below(dst.len.saturating_sub(len).max(1));
        let drain = self.rng.chance(10);
        self.stats.drains += u64::from(drain);
        let name = self.number();
        let Some(place) = self.hosts[host].queue.submit(name, drain) else {
            return;
        };
        let copy = CopyOp {
            src,
            src_off,
            dst,
            dst_off,
            len,
            place,
            alone: None,
        };
        self.ops.insert(
            name,
            Op {
                host,
                kind: Kind::Copy(Box::new(copy)),
            },
        );
        self.hosts[host].queued.insert(place, name);
        self.names.insert(name);
    }

    fn cancel(&mut self, host: usize) {
        let n = self.hosts[host].queued.len() as u64;
        let target = match n {
            0 => 12,
            n => *self.hosts[host]
                .queued
                .values()
                .nth(self.rng.below(n) as usize)
                .unwrap(),
        };
        let name = self.number();
        let action = self.hosts[host].queue.cancel(name, target);
        if action.is_some() {
            self.names.insert(name);
        }
        match action {
            Some(CancelAction::Cancel(place)) => {
                let op = self.hosts[host].queued[&place];
                self.retry(Retry::Cancel { host, op });
            }
            // It had not begun.
            Some(CancelAction::Done)
                if self.hosts[host].queued.values().any(|op| *op == target) =>
            {
                self.ops.remove(&target);
                self.hosts[host].queued.retain(|_, op| *op != target);
            }
            _ => {}
        }
    }

    pub fn ask_cancel(&mut self, host: usize, target: u64) -> bool {
        let Some(Kind::Copy(copy)) = self.ops.get(&target).map(|o| o.kind.clone()) else {
            return true;
        };
        let at = copy.src.host;
        let op = self.new_op(host, Kind::Plain);
        if at == host {
            self.serve_cancel(host, Reply::Local(op), Some(Reply::Local(target)));
            return true;
        }
        let links = self.links.iter();
        let id = links
            .filter(|l| l.requester == host && l.node == at && l.up[0])
            .find_map(|l| l.asks.id_of(target));
        let Some(id) = id else {
            self.ops.remove(&op);
            return true;
        };
        let sent = self.ask(
            host,
            at,
            Wire::Cancel,
            op,
            |h| MemHeader { arg: id, ..h },
            Vec::new(),
        );
        if sent.is_err() {
            self.ops.remove(&op);
        }
        sent != Err(Unsent::Room)
    }

    /// Begins queued copies, and takes completions.
    pub fn pump_queue(&mut self, host: usize) {
        loop {
            let mut can = Vec::new();
            for (place, op) in &self.hosts[host].queued {
                let Some(Kind::Copy(copy)) = self.ops.get(op).map(|o| &o.kind) else {
                    panic!("a copy");
                };
                let at = copy.src.host;
                let room = |l: &crate::link::Link| {
                    let of_it = l.requester == host && l.node == at && l.up[0];
                    !of_it || l.asks.room(Wire::Copy, self.user_of(*op)) > 0
                };
                if at == host || self.links.iter().all(room) {
                    can.push(*place);
                }
            }
            let Some(place) = self.hosts[host].queue.issue(|p| can.contains(&p)) else {
                break;
            };
            self.issue_copy(host, place);
        }
        while self.calm || self.rng.chance(20) {
            let Some((_, done)) = self.hosts[host].queue.reap() else {
                break;
            };
            if !self.names.remove(&done.user_data) {
                self.fail("an operation completes twice");
            }
        }
    }

    fn issue_copy(&mut self, host: usize, place: u32) {
        let op = self.hosts[host].queued[&place];
        let Some(Kind::Copy(copy)) = self.ops.get(&op).map(|o| o.kind.clone()) else {
            panic!("a copy");
        };
        let me = Some(Origin::Op(op));
        self.oracle.writer(copy.dst.region(), Origin::Op(op), true);
        let src = self.oracle.alone(copy.src.region(), me);
        let both = src.zip(self.oracle.alone(copy.dst.region(), me));
        if let Some(Op {
            kind: Kind::Copy(copy),
            ..
        }) = self.ops.get_mut(&op)
        {
            copy.alone = both;
        }
        let fill = |h: MemHeader| {
            let h = MemHeader {
                addr: copy.src.va + copy.src_off,
                bytes: copy.len,
                key: copy.src.key,
                node: node_of(copy.dst.host),
                addr2: copy.dst.va + copy.dst_off,
                key2: copy.dst.key,
                ..h
            };
            h.with_source_node(node_of(copy.src.host))
        };
        if let Err(why) = self.ask(host, copy.src.host, Wire::Copy, op, fill, Vec::new()) {
            assert_eq!(why, Unsent::Unreachable);
            self.op_over(op, Status::Unreachable);
        }
    }

    /// An operation is over without an answer, or with one that has nothing but its status.
    pub fn op_over(&mut self, op: u64, status: Status) {
        let h = MemHeader::answer(0, Wire::Info, status);
        self.op_answered(op, None, &h, &[]);
    }

    fn learn(&mut self, k: Known) {
        self.known.push(k);
        if self.known.len() > 40 {
            let n = self.rng.below(40) as usize;
            self.known.swap_remove(n);
        }
    }

    fn count(&mut self, status: Status) {
        let s = &mut self.stats;
        *match status {
            Status::Denied => &mut s.denied,
            Status::Stale => &mut s.stale,
            Status::Sealed => &mut s.sealed_refused,
            Status::Range => &mut s.range,
            Status::NoNode => &mut s.no_node,
            Status::NoSpace | Status::Again => &mut s.no_room,
            _ => return,
        } += 1;
    }

    /// An operation of a requester is over.
    pub fn op_answered(&mut self, n: u64, link: Option<usize>, h: &MemHeader, payload: &[u8]) {
        let Some(op) = self.ops.remove(&n) else {
            self.fail(&format!("operation {n} is answered twice"));
        };
        let (host, status) = (op.host, h.status);
        trace!(self, "host {host}: {n} {status:?} {:?}", op.kind);
        self.count(status);
        let s = &self.stats;
        let cut = s.hostile_nodes_cut + s.stalled_targets + u64::from(self.left_hostile);
        // A hostile node says so of any operation.
        let lied = self.hostile.is_some();
        let troubled = lied || s.links_failed + s.crashes + s.overdue + cut > 0;
        if status == Status::Lost && !troubled {
            self.fail("an operation is lost, and no link was");
        }
        let ok = status == Status::Ok;
        let me = Origin::Op(n);
        match op.kind {
            Kind::Alloc { at, via, admitted } if ok => {
                if !admitted && !self.is_hostile(at) {
                    self.fail("a region without admission");
                }
                self.learn(Known {
                    host: at,
                    incarnation: self.hosts[at].incarnation,
                    key: h.key2,
                    va: h.addr,
                    len: h.bytes,
                    via,
                });
            }
            Kind::Alloc {
                admitted: false, ..
            } => self.stats.not_admitted += u64::from(status == Status::Denied),
            Kind::BrokerAlloc { at } => {
                let result = if ok { Ok(h.key2) } else { Err(status) };
                self.hosts[host].broker.allocated(at, result);
            }
            Kind::BrokerKey { at } => {
                let result = if ok { Ok(h.key2) } else { Err(status) };
                self.hosts[host].broker.derived(at, result);
            }
            Kind::BrokerFree { at } => self.hosts[host].broker.freed(at, status, self.now),
            Kind::Derive { from, off, len } if ok => self.learn(Known {
                key: h.key2,
                va: from.va + off,
                len,
                ..from
            }),
            Kind::Wrong { want } => {
                let expected = [
                    want,
                    Status::Stale,
                    Status::Lost,
                    Status::Unreachable,
                    Status::Again,
                ];
                assert!(expected.contains(&status), "{status:?}");
            }
            Kind::Alloc { .. } | Kind::Derive { .. } | Kind::Plain | Kind::Close => {}
            Kind::Put {
                k,
                off,
                data,
                alone,
            } => {
                self.stats.puts += u64::from(ok);
                if ok && alone.is_some() && self.oracle.alone(k.region(), Some(me)) == alone {
                    let at = k.va + off - self.oracle.regions[&k.region()].va;
                    self.compare(k, at, &data);
                }
                self.wrote(k, me, status);
            }
            Kind::BigPut {
                k,
                addr,
                data,
                alone,
                grant,
            } => {
                self.stats.big_puts += u64::from(ok);
                if ok && alone.is_some() && self.oracle.alone(k.region(), Some(me)) == alone {
                    let at = addr - self.oracle.regions[&k.region()].va;
                    self.compare(k, at, &data);
                }
                self.wrote(k, me, status);
                if let Some((link, slot, number)) = grant {
                    self.finish_once(link, slot, number);
                }
            }
            Kind::Get { k, off, alone } => {
                self.stats.gets += u64::from(ok);
                if ok && alone.is_some() && self.oracle.alone(k.region(), None) == alone {
                    let at = k.va + off - self.oracle.regions[&k.region()].va;
                    self.compare(k, at, payload);
                }
            }
            Kind::BigGet {
                k,
                addr,
                len,
                got,
                alone,
                ..
            } => {
                self.stats.big_gets += u64::from(ok);
                assert!(!ok || got.len() as u64 == len);
                if ok && alone.is_some() && self.oracle.alone(k.region(), None) == alone {
                    let at = addr - self.oracle.regions[&k.region()].va;
                    self.compare(k, at, &got);
                }
            }
            Kind::Copy(copy) => self.copy_over(host, me, &copy, status, h.bytes),
            Kind::Open { slot } => {
                if let Some(link) = link {
                    self.opened(link, slot, h, payload);
                }
            }
            Kind::Wrote { job, serial } => {
                if self.hosts[host]
                    .jobs
                    .get(&job)
                    .is_some_and(|i| i.serial == serial)
                {
                    self.hosts[host].copies.answered(job, status);
                }
            }
        }
    }

    /// A PUT is over.
    fn wrote(&mut self, k: Known, me: Origin, status: Status) {
        if status != Status::Lost {
            self.oracle.is_over(me);
            self.oracle.writer(k.region(), me, false);
        }
    }

    fn copy_over(&mut self, host: usize, me: Origin, copy: &CopyOp, status: Status, done: u64) {
        assert!(done <= copy.len && (status != Status::Ok || done == copy.len));
        let (src, dst) = (copy.src.region(), copy.dst.region());
        let now = self
            .oracle
            .alone(src, Some(me))
            .zip(self.oracle.alone(dst, Some(me)));
        if copy.alone.is_some() && now == copy.alone && done > 0 {
            let at = |k: &Known, off| k.va + off - self.oracle.regions[&k.region()].va;
            let data = self.contents(src, at(&copy.src, copy.src_off), done);
            self.compare(copy.dst, at(&copy.dst, copy.dst_off), &data);
        }
        // After a lost link somebody may still write.
        if status != Status::Lost {
            self.oracle.writer(dst, me, false);
        }
        self.hosts[host].queued.remove(&copy.place);
        if !self.hosts[host].queue.complete(copy.place, status, done) {
            self.fail("a copy completes twice");
        }
    }

    fn compare(&mut self, k: Known, at: u64, data: &[u8]) {
        self.stats.contents_checked += 1;
        if self.contents(k.region(), at, data.len() as u64) != data {
            self.fail(&format!("wrong bytes in {:?} at {at}", k.region()));
        }
    }
}
