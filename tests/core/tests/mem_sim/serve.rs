// SPDX-License-Identifier: GPL-2.0

//! A node's host: asks of peers and of its own programs, grants, and what is told when it is quiet.

use zrs_core::mem::grants::{Registered, REVOKE_MS};
use zrs_core::mem::node::AllocRequest;
use zrs_core::mem::payload::RemoteExtent;
use zrs_core::mem::rights::{Range, Rights, Scope};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op, Type, FLAG_KEEP, FLAG_VIA};
use zrs_core::Violation;

use crate::host::node_of;
use crate::link::{GrantInfo, Mr, Origin};
use crate::world::{trace, World};

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    Peer { link: usize, slot: u32 },
    Local(u64),
}

impl World {
    pub fn node_receives(
        &mut self,
        link: usize,
        h: &MemHeader,
        payload: &[u8],
    ) -> Result<(), Violation> {
        match h.kind {
            Type::Hello => Ok(()),
            Type::Ask => {
                let slot = self.links[link].server.accept(h)?;
                self.serve(
                    self.links[link].node,
                    Reply::Peer { link, slot },
                    h,
                    payload,
                )
            }
            Type::Revoked => {
                self.links[link].grants.revoked(h.grant, self.now)?;
                self.links[link].invalidating.push(h.grant);
                Ok(())
            }
            _ => Err(Violation::State),
        }
    }

    /// An answer without fields.
    pub fn answer(&mut self, host: usize, reply: Reply, op: Op, status: Status) {
        self.answer_with(host, reply, MemHeader::answer(0, op, status), Vec::new());
    }

    pub fn answer_with(&mut self, _host: usize, reply: Reply, h: MemHeader, payload: Vec<u8>) {
        match reply {
            Reply::Local(op) => {
                let h = MemHeader {
                    len: payload.len() as u32,
                    ..h
                };
                self.op_answered(op, None, &h, &payload);
            }
            Reply::Peer { link, slot } => {
                if !self.links[link].up[1] {
                    return;
                }
                let Some(base) = self.links[link].server.answer(slot, h.status) else {
                    self.fail(&format!("link {link}: {:?} is answered twice", h.op));
                };
                let h = MemHeader { id: base.id, ..h };
                self.send(link, false, &h, payload);
                self.links[link].server.posted();
            }
        }
    }

    /// The number by which a node's host knows a requester: 0 is itself.
    pub fn owner(&self, reply: Reply) -> u32 {
        match reply {
            Reply::Local(_) => 0,
            Reply::Peer { link, .. } => self.links[link].requester as u32 + 1,
        }
    }

    pub fn serve(
        &mut self,
        host: usize,
        reply: Reply,
        h: &MemHeader,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let now = self.now;
        let op = h.op.ok_or(Violation::State)?;
        self.note_hostile(host, reply, h);
        let fail = |status| MemHeader::answer(0, op, status);
        match op {
            Op::Alloc if h.flags & FLAG_VIA != 0 => self.serve_via(host, reply, h),
            // The node is another host's: so the region is one of the broker.
            Op::Free if h.node != node_of(host) => self.serve_give_back(host, reply, h),
            Op::Alloc => {
                let secret = self.rng.next_u64();
                let req = AllocRequest {
                    len: h.bytes,
                    va: h.addr,
                    owner: self.owner(reply),
                    user: None,
                    admission: h.key,
                    keep: h.flags & FLAG_KEEP != 0,
                    expires_ms: (h.arg != 0).then_some(now + u64::from(h.arg)),
                    now_ms: now,
                    secret,
                };
                let answer = match self.hosts[host].node.alloc(&req) {
                    Err(status) => fail(status),
                    Ok(key) => {
                        self.new_region(host, key, h.addr, h.bytes);
                        MemHeader {
                            addr: h.addr,
                            bytes: h.bytes,
                            node: h.node,
                            key2: key,
                            ..fail(Status::Ok)
                        }
                    }
                };
                self.answer_with(host, reply, answer, Vec::new());
            }
            Op::Free | Op::Seal | Op::Unkey => {
                let waiter = self.number();
                let node = &mut self.hosts[host].node;
                let begun = match op {
                    Op::Free => node.free(h.key, waiter, now),
                    Op::Seal => node.seal(h.key, waiter, now),
                    _ => node.revoke(h.key, h.key2, waiter, now),
                };
                match begun {
                    Ok(()) => {
                        self.hosts[host].waiters.insert(waiter, reply);
                        self.ends.insert(waiter, (op, h.key, h.key2));
                    }
                    Err(status) => self.answer(host, reply, op, status),
                }
            }
            Op::Info => {
                let answer = match self.hosts[host].node.info(h.key, now) {
                    Err(status) => fail(status),
                    Ok(i) => MemHeader {
                        addr: i.va,
                        bytes: i.len,
                        rights: i.rights.bits(),
                        arg: i.keys,
                        grant: i.holds,
                        ..fail(Status::Ok)
                    },
                };
                self.answer_with(host, reply, answer, Vec::new());
            }
            Op::Key => {
                let secret = self.rng.next_u64();
                let node = &mut self.hosts[host].node;
                let made = node.range_of(h.key, h.addr, h.bytes).and_then(|range| {
                    let wanted = Scope {
                        rights: Rights::from_bits(h.rights).ok_or(Status::Invalid)?,
                        range,
                        expires_ms: (h.arg != 0).then_some(now + u64::from(h.arg)),
                        uses: (h.addr2 != 0).then_some(h.addr2 as u32),
                    };
                    node.derive(h.key, &wanted, secret, now)
                });
                let answer = match made {
                    Err(status) => fail(status),
                    Ok(key2) => {
                        self.oracle.parents.insert(secret, h.key.secret);
                        MemHeader {
                            key2,
                            ..fail(Status::Ok)
                        }
                    }
                };
                self.answer_with(host, reply, answer, Vec::new());
            }
            Op::Open => self.open(host, reply, h)?,
            Op::Close => {
                let Reply::Peer { link, .. } = reply else {
                    return Err(Violation::State);
                };
                self.links[link].grants.closed(h.grant, self.now)?;
                self.stats.grants_closed += 1;
                self.links[link].invalidating.push(h.grant);
                self.answer(host, reply, op, Status::Ok);
            }
            Op::Put | Op::Get => {
                let (rights, len) = if op == Op::Put {
                    (Rights::WRITE, u64::from(h.len))
                } else {
                    (Rights::READ, h.bytes)
                };
                let node = &mut self.hosts[host].node;
                let begun = node.range_of(h.key, h.addr, len);
                let begun =
                    begun.and_then(|range| Ok((range, node.begin(h.key, rights, range, now)?)));
                let (range, hold) = match begun {
                    Ok(b) => b,
                    Err(status) => {
                        self.answer(host, reply, op, status);
                        return Ok(());
                    }
                };
                let pieces: Vec<_> = self.hosts[host].node.pieces(&hold, range).collect();
                let (mut out, mut from) = (Vec::new(), 0);
                for p in pieces {
                    let (at, len) = (p.at as usize, p.len as usize);
                    if op == Op::Put {
                        let data = &payload[from..from + len];
                        self.land(host, h.key, p.at, data, Origin::Processor);
                    } else {
                        out.extend_from_slice(&self.hosts[host].memory[at..at + len]);
                    }
                    from += len;
                }
                self.hosts[host].node.end(hold);
                self.answer_with(host, reply, fail(Status::Ok), out);
            }
            Op::Wrote => {
                let Reply::Peer { link, .. } = reply else {
                    return Err(Violation::State);
                };
                let found = self.links[link]
                    .grants
                    .check_written(h.grant, h.addr, h.bytes);
                let status = match found.err() {
                    Some(Status::Stale) => self.grant_status(link, h.grant),
                    found => found.unwrap_or(Status::Ok),
                };
                self.answer(host, reply, op, status);
            }
            Op::Copy => self.serve_copy(host, reply, h),
            Op::Cancel => {
                let Reply::Peer { link, .. } = reply else {
                    return Err(Violation::State);
                };
                let slot = self.links[link].server.find(h.arg);
                self.serve_cancel(host, reply, slot.map(|slot| Reply::Peer { link, slot }));
            }
        }
        Ok(())
    }

    fn open(&mut self, host: usize, reply: Reply, h: &MemHeader) -> Result<(), Violation> {
        let Reply::Peer { link, slot } = reply else {
            return Err(Violation::State);
        };
        let rights = Rights::from_bits(h.rights).ok_or(Violation::Type)?;
        let (hold, scope) = match self.hosts[host].node.begin_grant(h.key, rights, self.now) {
            Ok(granted) => granted,
            Err(status) => {
                self.answer(host, reply, Op::Open, status);
                return Ok(());
            }
        };
        let reach = Range {
            off: scope.addr,
            len: scope.range.len,
        };
        match self.links[link].grants.begin(hold, reach, slot) {
            Ok(number) => {
                let info = GrantInfo {
                    key: h.key,
                    addr: scope.addr,
                    len: scope.range.len,
                    rights: h.rights,
                    once: scope.once,
                };
                self.stats.grants += 1;
                self.links[link].granted.insert(number, info);
                self.links[link].registering.push(number);
            }
            Err((hold, status)) => {
                self.hosts[host].node.end(hold);
                self.answer(host, reply, Op::Open, status);
            }
        }
        Ok(())
    }

    /// The memory of a grant has been registered.
    pub fn registered(&mut self, link: usize) {
        let n = self.rng.below(self.links[link].registering.len() as u64) as usize;
        let number = self.links[link].registering.swap_remove(n);
        let host = self.links[link].node;
        let info = self.links[link].granted[&number];
        let region = (
            host,
            self.hosts[host].incarnation,
            info.key.region,
            info.key.gen,
        );
        let r = &self.oracle.regions[&region];
        let (mut at, end) = (info.addr - r.va, info.addr - r.va + info.len);
        let (mut extents, mut skipped) = (Vec::new(), 0);
        for (page, len) in r.pieces.clone() {
            if at < end && at < skipped + len {
                let part = (end - at).min(skipped + len - at);
                let rkey = self.number() as u32;
                let mr = Mr {
                    grant: number,
                    key: info.key,
                    write: info.rights & 2 != 0,
                    read: info.rights & 1 != 0,
                    iova: self.oracle.regions[&region].va + at,
                    at: page + (at - skipped),
                    len: part,
                };
                extents.push(RemoteExtent {
                    iova: mr.iova,
                    len: part,
                    rkey,
                });
                self.links[link].mrs.insert(rkey, mr);
                at += part;
            }
            skipped += len;
        }
        match self.links[link].grants.registered(number, self.now) {
            Some(Registered::Answer(slot)) => {
                let h = MemHeader {
                    addr: info.addr,
                    bytes: info.len,
                    grant: number,
                    rights: info.rights,
                    arg: u32::from(info.once),
                    ..MemHeader::answer(0, Op::Open, Status::Ok)
                };
                let payload = extents.iter().flat_map(RemoteExtent::encode).collect();
                self.answer_with(host, Reply::Peer { link, slot }, h, payload);
            }
            Some(Registered::Stale(slot)) => {
                self.stats.grants_raced += 1;
                let l = &mut self.links[link];
                match l.up[1] {
                    true => l.invalidating.push(number),
                    false => l.deregistering.extend(l.grants.link_down_one()),
                }
                let why = self.grant_status(link, number);
                self.answer(host, Reply::Peer { link, slot }, Op::Open, why);
            }
            None => self.fail("registered twice"),
        }
    }

    /// The result of operations with a grant that is being taken back.
    fn grant_status(&self, link: usize, number: u32) -> Status {
        let node = &self.hosts[self.links[link].node].node;
        let hold = self.links[link].grants.hold(number);
        hold.map_or(Status::Stale, |hold| node.stop_status(hold, self.now))
    }

    /// The device refuses the remote keys of a grant from now on.
    pub fn invalidated(&mut self, link: usize) {
        let n = self.rng.below(self.links[link].invalidating.len() as u64) as usize;
        let number = self.links[link].invalidating.swap_remove(n);
        self.links[link].invalid.insert(number);
        if self.links[link].grants.invalidated(number, self.now) {
            self.beat(link, false, true);
        }
    }

    /// Something has arrived from the peer: no WRITE before it is half done.
    pub fn heard(&mut self, link: usize) {
        while let Some(number) = self.links[link].grants.heard_one() {
            self.stats.grants_fenced += 1;
            self.links[link].deregistering.push(number);
        }
    }

    /// The memory of a grant has been deregistered.
    pub fn deregistered(&mut self, link: usize) {
        let n = self.rng.below(self.links[link].deregistering.len() as u64) as usize;
        let number = self.links[link].deregistering.swap_remove(n);
        let host = self.links[link].node;
        let of = |m: &Mr| m.grant == number;
        let keys: Vec<u32> = self.links[link]
            .mrs
            .iter()
            .filter(|m| of(m.1))
            .map(|m| *m.0)
            .collect();
        for rkey in keys {
            if self.links[link].up[1] && self.links[link].stalled == Some(rkey) {
                self.fail("memory is deregistered in the middle of a WRITE");
            }
            self.land_all(link, Some(rkey));
            self.links[link].mrs.remove(&rkey);
        }
        self.links[link].granted.remove(&number);
        self.links[link].invalid.remove(&number);
        match self.links[link].grants.gone(number) {
            Some(hold) => self.hosts[host].node.end(hold),
            None => self.fail("a grant is gone that is not"),
        }
    }

    /// Grants and copies whose region or key has ended.
    pub fn revoke_what_ended(&mut self, host: usize) {
        let now = self.now;
        for link in 0..self.links.len() {
            if self.links[link].node != host || !self.links[link].up[1] {
                continue;
            }
            loop {
                let node = &self.hosts[host].node;
                let revoked = self.links[link]
                    .grants
                    .revoke_one(now, |h| node.must_stop(h, now));
                let Some(number) = revoked else {
                    break;
                };
                self.stats.grants_revoked += 1;
                let revoke = MemHeader::revoke(number).because(self.grant_status(link, number));
                self.send(link, false, &revoke, Vec::new());
            }
        }
        let h = &mut self.hosts[host];
        h.copies.cancel_if(Status::Sealed, now, |hold| {
            h.node.must_stop(hold, now) && h.node.stop_status(hold, now) == Status::Sealed
        });
        h.copies
            .cancel_if(Status::Stale, now, |hold| h.node.must_stop(hold, now));
    }

    /// Frees, seals and revocations that are over.
    pub fn tell_quiet(&mut self, host: usize) {
        self.forget_released(host);
        while let Some((waiter, status)) = self.hosts[host].node.next_quiet() {
            self.forget_released(host);
            let (op, key, key2) = self.ends.remove(&waiter).expect("it waits");
            let region = (host, self.hosts[host].incarnation, key.region, key.gen);
            trace!(self, "host {host}: {op:?} of {key:?} is quiet, {status:?}");
            match (op, status) {
                (Op::Free, Status::Ok) => {
                    self.stats.freed += 1;
                    if self.oracle.regions.contains_key(&region) {
                        self.fail("a region is freed and still there");
                    }
                }
                (Op::Seal, Status::Ok) => {
                    self.stats.sealed += 1;
                    self.oracle.is_sealed(region);
                }
                (Op::Unkey, Status::Ok) => {
                    self.stats.revoked_keys += 1;
                    self.oracle.is_revoked(key2.secret);
                }
                _ => {}
            }
            let reply = self.hosts[host].waiters.remove(&waiter);
            let reply = reply.expect("each waiter is told once");
            self.answer(host, reply, op, status);
        }
        let busy = self.hosts[host].waiters.len() as u64;
        self.stats.freed_busy += u64::from(busy > 0);
    }

    /// The onlooker learns which regions are gone.
    fn forget_released(&mut self, host: usize) {
        let h = &self.hosts[host];
        let mut there = Vec::new();
        let mut from = 0;
        while let Some(r) = h.node.list_from(from) {
            there.push((host, h.incarnation, r.region, r.gen));
            from = r.region + 1;
        }
        let gone: Vec<_> = self
            .oracle
            .regions
            .keys()
            .filter(|r| (r.0, r.1) == (host, h.incarnation) && !there.contains(r))
            .copied()
            .collect();
        gone.into_iter().for_each(|r| self.oracle.is_freed(r));
    }

    /// Peers that do not answer Revoke in time lose their links.
    pub fn take_down_overdue(&mut self, host: usize) {
        for link in 0..self.links.len() {
            let l = &self.links[link];
            let at = l.grants.overdue_ms(REVOKE_MS);
            if l.node == host && l.up[1] && at.is_some_and(|at| self.now >= at) {
                trace!(self, "link {link}: Revoke is not answered");
                self.stats.overdue += 1;
                self.end_down(link, 1);
            }
        }
    }

    /// The node's end of a link is down: its queue pair is destroyed.
    pub fn node_end_down(&mut self, link: usize) {
        let (host, requester) = (self.links[link].node, self.links[link].requester);
        self.land_all(link, None);
        self.links[link].to_node.clear();
        self.links[link].stalled = None;
        self.links[link].invalidating.clear();
        while let Some(number) = self.links[link].grants.link_down_one() {
            self.links[link].deregistering.push(number);
        }
        let h = &mut self.hosts[host];
        let now = self.now;
        h.copies.requester_lost(link as u32 + 1, now);
        let brokered = &mut h.brokered;
        h.broker
            .link_lost(|token| of_link(brokered.get(&token), link));
        brokered.retain(|_, reply| !of_link(Some(reply), link));
        // The peer may have another link by now.
        let other = self
            .links
            .iter()
            .any(|l| (l.requester, l.node, l.up[1]) == (requester, host, true));
        if !other {
            self.stats.orphans += 1;
            self.hosts[host].node.owner_lost(requester as u32 + 1, now);
            self.hosts[host]
                .broker
                .requester_lost(requester as u32 + 1, now);
        }
    }
}

/// Whether the answer goes by that link.
fn of_link(reply: Option<&Reply>, link: usize) -> bool {
    matches!(reply, Some(Reply::Peer { link: l, .. }) if *l == link)
}
