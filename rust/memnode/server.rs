// SPDX-License-Identifier: GPL-2.0

//! The node's host: asks of peers and of local programs.

#![deny(unsafe_code)]

use core::net::{Ipv4Addr, SocketAddr};

use kernel::prelude::*;
use kernel::sync::Arc;

use super::grants::Pending;
use super::host::{now_ms, Call, Host, State};
use super::node::{Served, Tables};
use super::side::{Life, Moved, Side};
use crate::kern::task::random_u64;
use crate::kern::trace::{self, Ends};
use crate::proto::addr::{Addr, Ip};
use crate::proto::mem::id::NodeId;
use crate::proto::mem::link::End;
use crate::proto::mem::node::{AllocRequest, Node};
use crate::proto::mem::payload::NodeInfo;
use crate::proto::mem::rights::{Rights, Scope};
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op, Type, FLAG_KEEP, FLAG_VIA};
use crate::proto::Violation;

/// Where an answer goes.
#[derive(Clone)]
pub(super) enum Reply {
    /// To the peer of a link: its slot and serial number, and the place of the ask.
    Peer(usize, u64, u32),
    /// To a program of this host.
    Local(Arc<Call>),
    /// To this host's broker, by the place of its region.
    Broker(u32),
}

impl Reply {
    /// The user of this host whose share the operation counts against.
    fn user(&self) -> Option<u32> {
        match self {
            Self::Local(call) => call.user,
            Self::Peer(..) | Self::Broker(_) => None,
        }
    }
}

impl State {
    /// The descriptions of this host's nodes in a hello. ENOMEM.
    pub(super) fn node_infos(&self) -> Result<KVec<u8>> {
        let mut payload = KVec::new();
        for served in self.served.iter().flatten().filter(|s| !s.closing) {
            payload.extend_from_slice(&served.info().encode(), GFP_KERNEL)?;
        }
        Ok(payload)
    }

    /// The state of `node`, whose host is at `ip`: the current state of a local node, the state in
    /// the peer's hello of a remote node. `NoNode`: the host does not serve it; `Unreachable`:
    /// there is no link.
    pub(super) fn known(&self, node: NodeId, own: u32, ip: Ip) -> Result<NodeInfo, Status> {
        let here = self.place_of(node, own).and_then(|at| self.served.get(at));
        if let Some(served) = here.and_then(Option::as_ref) {
            return Ok(served.info());
        }
        let sides = self.sides.iter().flatten();
        let up = |s: &&KBox<Side>| s.ip == ip && s.life == Life::Up && s.proto.peer().is_some();
        let newest = sides.filter(up).max_by_key(|s| s.serial);
        let nodes = &newest.ok_or(Status::Unreachable)?.nodes;
        let is_it = |info: &&NodeInfo| info.node.qualified(own) == node.qualified(own);
        nodes.iter().find(is_it).copied().ok_or(Status::NoNode)
    }

    /// A message of a requester.
    pub(super) fn asked(
        &mut self,
        host: &Arc<Host>,
        slot: usize,
        h: &MemHeader,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let side = self.side(slot).ok_or(Violation::State)?;
        if h.kind == Type::Revoked {
            side.grants.revoked(h.grant, now_ms())?;
            return self.invalidate(slot, h.grant);
        }
        let place = side.server.accept(h)?;
        let reply = Reply::Peer(slot, side.serial, place);
        self.serve(host, reply, h, payload)
    }

    /// The requester, for trace events.
    fn ends(&self, reply: &Reply) -> Ends {
        let none = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let side = match reply {
            Reply::Peer(slot, ..) => self.sides.get(*slot).and_then(Option::as_ref),
            Reply::Local(_) | Reply::Broker(_) => None,
        };
        Ends {
            chan: (0, 0),
            local: none,
            remote: side.map_or(none, |side| Addr::new(side.ip, 0).into()),
        }
    }

    /// Answers with `h`; without effect if the link is gone.
    pub(super) fn answer(&mut self, reply: Reply, h: MemHeader, payload: KVec<u8>) {
        trace::mem_answer(|| {
            let err = match h.status {
                Status::Ok => 0,
                status => -status.errno(),
            };
            (self.ends(&reply), h.op.map_or(0, |op| op as u32), err)
        });
        let h = MemHeader {
            len: payload.len() as u32,
            ..h
        };
        match reply {
            Reply::Local(call) => {
                self.counts.request_served(h.op, h.status);
                self.tell(&call, h, payload);
            }
            Reply::Broker(at) => self.broker_answered(at, &h),
            Reply::Peer(slot, serial, place) => {
                let Some(side) = self.live(slot, serial) else {
                    return;
                };
                let Some(base) = side.server.answer(place, h.status) else {
                    return;
                };
                let said = side.say(MemHeader { id: base.id, ..h }, payload);
                self.counts.request_served(h.op, h.status);
                if said.is_err() {
                    self.fail(slot, Status::NoMemory);
                }
            }
        }
    }

    pub(super) fn answer_status(&mut self, reply: Reply, op: Op, status: Status) {
        self.answer(reply, MemHeader::answer(0, op, status), KVec::new());
    }

    /// The node's number of a requester; 0 is this host.
    pub(super) fn owner(&mut self, reply: &Reply) -> u32 {
        match reply {
            Reply::Local(_) | Reply::Broker(_) => 0,
            Reply::Peer(slot, ..) => self.side(*slot).map_or(u32::MAX, |s| s.peer as u32 + 1),
        }
    }

    /// Does what was asked, or begins it. An ask of a program of this host is honest.
    pub(super) fn serve(
        &mut self,
        host: &Arc<Host>,
        reply: Reply,
        h: &MemHeader,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let op = h.op.ok_or(Violation::State)?;
        let node = match op {
            Op::Close | Op::Wrote | Op::Cancel => None,
            Op::Copy => Some(h.source_node()),
            _ => Some(h.node),
        };
        let own = host.memory.own_domain(&host.net);
        let at = node.and_then(|node| self.place_of(node, own));
        let elsewhere = node.is_some() && at.is_none();
        let at = at.unwrap_or(usize::MAX);
        trace::mem_ask(|| {
            let node = node.unwrap_or_default();
            let bytes = h.bytes.max(payload.len() as u64);
            (self.ends(&reply), node.domain, node.node, op as u32, bytes)
        });
        match op {
            Op::Alloc if h.flags & FLAG_VIA != 0 => self.serve_via(host, reply, h),
            Op::Free if self.give_back(&reply, h) => {}
            _ if elsewhere => {
                // A broker is asked for regions that it has given.
                let given = op == Op::Free && self.broker.is_some();
                let status = if given { Status::Stale } else { Status::NoNode };
                self.answer_status(reply, op, status);
            }
            Op::Free | Op::Seal | Op::Unkey => self.begin_end(at, reply, op, h),
            Op::Open => self.open(at, reply, h)?,
            Op::Close => {
                let Reply::Peer(slot, ..) = reply else {
                    return Err(Violation::State);
                };
                let side = self.side(slot).ok_or(Violation::State)?;
                side.grants.closed(h.grant, now_ms())?;
                self.invalidate(slot, h.grant)?;
                self.answer_status(reply, op, Status::Ok);
            }
            Op::Wrote => {
                let Reply::Peer(slot, ..) = reply else {
                    return Err(Violation::State);
                };
                let side = self.side(slot).ok_or(Violation::State)?;
                let checked = side.grants.check_written(h.grant, h.addr, h.bytes);
                let status = match checked.err() {
                    None => Status::Ok,
                    Some(Status::Stale) => self.grant_status(slot, h.grant),
                    Some(why) => why,
                };
                if status == Status::Ok {
                    self.counts.served(true, h.bytes);
                }
                self.answer_status(reply, op, status);
            }
            Op::Copy => self.serve_copy(host, at, reply, h),
            Op::Cancel => self.serve_cancel(reply, h.arg),
            Op::Alloc | Op::Info | Op::Key | Op::Put | Op::Get => {
                let owner = (self.owner(&reply), reply.user());
                let done = match self.node_at(at) {
                    Some(served) => at_once(served, owner, op, h, payload),
                    None => Err(Status::NoNode),
                };
                match (op, &done) {
                    (Op::Put, Ok(_)) => self.counts.served(true, h.len.into()),
                    (Op::Get, Ok(_)) => self.counts.served(false, h.bytes),
                    _ => {}
                }
                match done {
                    Ok((h, payload)) => self.answer(reply, h, payload),
                    Err(status) => self.answer_status(reply, op, status),
                }
            }
        }
        Ok(())
    }

    /// Begins a free, seal or revocation at the node at that place.
    fn begin_end(&mut self, at: usize, reply: Reply, op: Op, h: &MemHeader) {
        let now = now_ms();
        self.begin_wait(at, reply, op, |node, waiter| match op {
            Op::Free => node.free(h.key, waiter, now),
            Op::Seal => node.seal(h.key, waiter, now),
            _ => node.revoke(h.key, h.key2, waiter, now),
        });
    }

    /// Begins to free a region of the node at that place for its administrator; `call` has the
    /// answer when it is quiet.
    pub(super) fn free_by_number(&mut self, at: usize, call: &Arc<Call>, region: u32, gen: u32) {
        let reply = Reply::Local(call.clone());
        self.begin_wait(at, reply, Op::Free, |node, waiter| {
            node.free_by_number(region, gen, waiter)
        });
    }

    /// Begins what is answered when something is quiet; `begin` is given the number of the waiter.
    fn begin_wait(
        &mut self,
        at: usize,
        reply: Reply,
        op: Op,
        begin: impl FnOnce(&mut Node<Tables>, u64) -> Result<(), Status>,
    ) {
        let waiter = self.number();
        if self.waiters.reserve(1, GFP_KERNEL).is_err() {
            return self.answer_status(reply, op, Status::NoMemory);
        }
        let Some(served) = self.node_at(at) else {
            return self.answer_status(reply, op, Status::NoNode);
        };
        match begin(&mut served.node, waiter) {
            Ok(()) => {
                let _ = self.waiters.push_within_capacity((waiter, op, reply));
            }
            Err(status) => self.answer_status(reply, op, status),
        }
    }

    /// Answers the frees, seals and revocations that are over.
    pub(super) fn tell_quiet(&mut self, host: &Arc<Host>) {
        let mut freed = false;
        loop {
            let mut nodes = self.served.iter_mut().flatten();
            let Some((waiter, status)) = nodes.find_map(|s| s.node.next_quiet()) else {
                break;
            };
            let at = self.waiters.iter().position(|w| w.0 == waiter);
            if let Some(Ok((_, op, reply))) = at.map(|at| self.waiters.remove(at)) {
                freed |= op == Op::Free;
                self.answer_status(reply, op, status);
            }
        }
        if freed {
            host.zero_pages();
        }
    }

    /// A link's queue pair is destroyed: nothing of its peer can land any more, and nothing that
    /// waits for it will come.
    pub(super) fn link_is_down(&mut self, host: &Arc<Host>, slot: usize, serial: u64) {
        let Some(side) = self.side(slot).filter(|s| s.serial == serial) else {
            return;
        };
        let (end, peer, why) = (side.end, side.peer, side.why);
        for data in side.data.iter_mut().filter_map(Option::take) {
            if let Moved::Call(call) = &data.what {
                call.with(|o| {
                    o.left = o.left.saturating_sub(1);
                    o.failed = Some(Status::Lost);
                });
            }
        }
        while let Some(pending) = self.next_waiting(slot) {
            match pending {
                Pending::Job(job, serial) => self.not_opened(job, serial, why),
                pending => self.grant_refused(pending, why),
            }
        }
        let failed = |op| MemHeader::answer(0, op, why);
        while let Some((op, token)) = self.side(slot).and_then(|s| s.asks.fail_one()) {
            let _ = self.answered(None, token, &failed(op), KVec::new());
        }
        while let Some(queued) = self.side(slot).and_then(|s| s.queue.pop()) {
            let (op, token) = queued.parts();
            let _ = self.answered(None, token, &failed(op), KVec::new());
        }
        // Those that were being registered are taken, too.
        loop {
            let side = self.side(slot);
            let number = side.and_then(|s| {
                let marked = s.grants.link_down_one();
                marked.or_else(|| s.registrations.first().map(|r| r.number))
            });
            let Some(number) = number else {
                break;
            };
            self.deregister(slot, number, false);
        }
        let now = now_ms();
        match end {
            End::Requester => self.copies.target_lost(peer as u32),
            End::Node => {
                self.copies.requester_lost(slot as u32 + 1, now);
                let other = self.sides.iter().flatten().any(|s| {
                    s.end == End::Node && s.peer == peer && s.serial != serial && s.life == Life::Up
                });
                for served in self.served.iter_mut().flatten().filter(|_| !other) {
                    served.node.owner_lost(peer as u32 + 1, now);
                }
                let lost = (!other).then_some(peer as u32 + 1);
                self.broker_link_lost(slot, serial, lost);
            }
        }
        if let Some(place) = self.sides.get_mut(slot) {
            *place = None;
        }
        host.zero_pages();
    }

    /// The descriptor of the node at that place is closed: its regions end.
    pub(super) fn unserve(&mut self, at: usize) {
        if let Some(served) = self.node_at(at) {
            served.closing = true;
            served.node.set_draining(true);
            let mut from = 0;
            while let Some(region) = served.node.list_from(from) {
                served.node.close_region(region.region, region.gen);
                from = region.region + 1;
            }
        }
    }

    /// A COPY is canceled by its requester; `arg` is the number of the ask.
    fn serve_cancel(&mut self, reply: Reply, arg: u32) {
        let Reply::Peer(slot, serial, _) = reply else {
            return;
        };
        let place = self.side(slot).and_then(|s| s.server.find(arg));
        let job = place.and_then(|place| self.job_of(slot, serial, place));
        self.cancel_job(job, reply);
    }
}

/// The asks that the node itself answers.
fn at_once(
    served: &mut Served,
    (owner, user): (u32, Option<u32>),
    op: Op,
    h: &MemHeader,
    payload: &[u8],
) -> Result<(MemHeader, KVec<u8>), Status> {
    let now = now_ms();
    let ends = |ttl: u32| (ttl != 0).then_some(now + u64::from(ttl));
    let ok = MemHeader::answer(0, op, Status::Ok);
    let node = &mut served.node;
    let answer = match op {
        Op::Alloc => {
            let key = node.alloc(&AllocRequest {
                len: h.bytes,
                va: h.addr,
                owner,
                user,
                admission: h.key,
                keep: h.flags & FLAG_KEEP != 0,
                expires_ms: ends(h.arg),
                now_ms: now,
                secret: random_u64(),
            })?;
            MemHeader {
                addr: h.addr,
                bytes: h.bytes,
                node: h.node,
                key2: key,
                ..ok
            }
        }
        Op::Info => {
            let info = node.info(h.key, now)?;
            MemHeader {
                addr: info.va,
                bytes: info.len,
                rights: info.rights.bits(),
                arg: info.keys,
                grant: info.holds,
                ..ok
            }
        }
        Op::Key => {
            let wanted = Scope {
                rights: Rights::from_bits(h.rights).ok_or(Status::Invalid)?,
                range: node.range_of(h.key, h.addr, h.bytes)?,
                expires_ms: ends(h.arg),
                uses: match h.addr2 {
                    0 => None,
                    uses => Some(u32::try_from(uses).map_err(|_| Status::Invalid)?),
                },
            };
            MemHeader {
                key2: node.derive(h.key, &wanted, random_u64(), now)?,
                ..ok
            }
        }
        _ => return small(served, op, h, payload).map(|payload| (ok, payload)),
    };
    Ok((answer, KVec::new()))
}

/// A PUT or GET of few bytes.
fn small(served: &mut Served, op: Op, h: &MemHeader, payload: &[u8]) -> Result<KVec<u8>, Status> {
    let (rights, len) = match op {
        Op::Put => (Rights::WRITE, u64::from(h.len)),
        _ => (Rights::READ, h.bytes),
    };
    let range = served.node.range_of(h.key, h.addr, len)?;
    let room = if op == Op::Get { len as usize } else { 0 };
    // Before the key is used, which may allow one use.
    let mut out = KVec::from_elem(0_u8, room, GFP_KERNEL).map_err(|_| Status::NoMemory)?;
    let hold = served.node.begin(h.key, rights, range, now_ms())?;
    let copied = match op {
        Op::Put => served.write(&hold, range, payload),
        _ => served.read(&hold, range, &mut out),
    };
    let copied = copied.map_err(|e| served.memory_error(&hold, e));
    served.node.end(hold);
    copied.map(|()| out)
}
