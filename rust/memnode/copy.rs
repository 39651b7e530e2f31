// SPDX-License-Identifier: GPL-2.0

//! Copies that this host makes as their source: what `proto/mem/copy` decides is done here.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::grants::{Granted, Pending};
use super::host::{now_ms, Call, Host, Kind, State};
use super::node::node_of_hold;
use super::server::Reply;
use super::side::Moved;
use crate::ib::dma::{Direction, DmaRuns};
use crate::ib::memory::NodeRuns;
use crate::proto::addr::Ip;
use crate::proto::mem::copy::{Action, CopyRequest, Target, STOP_MS};
use crate::proto::mem::id::{Key, NodeId};
use crate::proto::mem::link::End;
use crate::proto::mem::rights::{Range, Rights};
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};

/// Chunks that the processor copies in one hold of the host's lock, by COPY or by a queue.
pub(super) const LOCAL_CHUNKS: usize = 4;

/// Most PUTs of copies that are under way to one target.
const PUTS: u32 = 16;

/// Most copies at a time.
pub(super) const JOBS: usize = 256;

/// The part of a copy's state that the core does not have.
pub(super) struct JobInfo {
    serial: u64,
    node: NodeId,
    key: Key,
    addr: u64,
    /// Offset in the region of the destination, if that is here.
    local_off: u64,
    reply: Reply,
    grant: Option<Granted>,
}

impl State {
    /// A COPY from the node at that place.
    pub(super) fn serve_copy(&mut self, host: &Arc<Host>, at: usize, reply: Reply, h: &MemHeader) {
        if let Err(status) = self.begin_copy(host, at, &reply, h) {
            self.answer_status(reply, Op::Copy, status);
        }
    }

    fn begin_copy(
        &mut self,
        host: &Arc<Host>,
        at: usize,
        reply: &Reply,
        h: &MemHeader,
    ) -> Result<(), Status> {
        let (now, serial) = (now_ms(), self.number());
        let requester = match reply {
            Reply::Local(_) | Reply::Broker(_) => 0,
            Reply::Peer(slot, ..) => *slot as u32 + 1,
        };
        // Before a key is used, which may allow one use.
        if !self.copies.has_room(requester) {
            return Err(Status::Again);
        }
        let own = host.memory.own_domain(&host.net);
        let there = self.place_of(h.node, own);
        let peer = if there.is_some() {
            None
        } else {
            // Only this host's own directory says where the target is.
            let ip = host
                .memory
                .resolve(&host.net, h.node)
                .filter(|ip| !host.net.is_own(ip.v6(), ip.scope()))
                .ok_or(Status::NoNode)?;
            Some(self.peer(ip)? as u32)
        };
        let node = &mut self.node_at(at).ok_or(Status::NoNode)?.node;
        let range = node.range_of(h.key, h.addr, h.bytes)?;
        let to = match there {
            None => None,
            Some(there) => {
                let target = &self.node_at(there).ok_or(Status::NoNode)?.node;
                let to = target.range_of(h.key2, h.addr2, h.bytes)?;
                let same = (h.key.region, h.key.gen) == (h.key2.region, h.key2.gen);
                let same = same && there == at;
                if same && range.overlaps(to) {
                    return Err(Status::Invalid);
                }
                Some(to)
            }
        };
        let node = &mut self.node_at(at).ok_or(Status::NoNode)?.node;
        let source = node.begin(h.key, Rights::READ, range, now)?;
        let target = match (peer, there.and_then(|there| self.node_at(there)), to) {
            (Some(peer), ..) => Ok(Target::Peer(peer)),
            (None, Some(served), Some(to)) => served
                .node
                .begin(h.key2, Rights::WRITE, to, now)
                .map(Target::Local),
            _ => Err(Status::Invalid),
        };
        let target = match target {
            Ok(target) => target,
            Err(status) => {
                self.end_hold(source);
                return Err(status);
            }
        };
        let request = CopyRequest {
            requester,
            token: serial,
            source,
            range,
            target,
        };
        match self.copies.add(request) {
            Ok(job) => {
                if let Some(place) = self.jobs.get_mut(job as usize) {
                    *place = Some(JobInfo {
                        serial,
                        node: h.node,
                        key: h.key2,
                        addr: h.addr2,
                        local_off: to.map_or(0, |to| to.off),
                        reply: reply.clone(),
                        grant: None,
                    });
                }
                Ok(())
            }
            Err(back) => {
                self.end_holds(back);
                Err(Status::Again)
            }
        }
    }

    fn end_holds(&mut self, request: CopyRequest) {
        self.end_hold(request.source);
        if let Target::Local(hold) = request.target {
            self.end_hold(hold);
        }
    }

    fn job(&mut self, job: u32, serial: u64) -> Option<&mut JobInfo> {
        let info = self.jobs.get_mut(job as usize)?.as_mut();
        info.filter(|i| i.serial == serial)
    }

    fn serial_of(&self, job: u32) -> u64 {
        let info = self.jobs.get(job as usize).and_then(Option::as_ref);
        info.map_or(0, |i| i.serial)
    }

    fn find_job(&self, of: impl Fn(&Reply) -> bool) -> Option<u32> {
        let at = self
            .jobs
            .iter()
            .position(|j| j.as_ref().is_some_and(|j| of(&j.reply)))?;
        u32::try_from(at).ok()
    }

    /// The copy whose answer goes to that ask.
    pub(super) fn job_of(&self, slot: usize, serial: u64, place: u32) -> Option<u32> {
        self.find_job(|reply| match reply {
            Reply::Peer(a, b, c) => (*a, *b, *c) == (slot, serial, place),
            Reply::Local(_) | Reply::Broker(_) => false,
        })
    }

    /// The copy whose answer goes to that program.
    pub(super) fn local_job_of(&self, call: &Arc<Call>) -> Option<u32> {
        self.find_job(|reply| match reply {
            Reply::Peer(..) | Reply::Broker(_) => false,
            Reply::Local(c) => Arc::ptr_eq(c, call),
        })
    }

    /// Cancels a copy; `reply` is answered when it is over.
    pub(super) fn cancel_job(&mut self, job: Option<u32>, reply: Reply) {
        let Some(job) = job else {
            return self.answer_status(reply, Op::Cancel, Status::NotFound);
        };
        let serial = self.serial_of(job);
        if self.cancels.reserve(1, GFP_KERNEL).is_err() {
            return self.answer_status(reply, Op::Cancel, Status::NoMemory);
        }
        self.copies.cancel(job, Status::Canceled, now_ms());
        let _ = self.cancels.push_within_capacity((serial, reply));
    }

    /// The target has refused a grant, or its link has ended before there was one.
    pub(super) fn not_opened(&mut self, job: u32, serial: u64, why: Status) {
        if self.job(job, serial).is_none() {
            return;
        }
        if why != Status::Unsupported {
            return self.copies.opened(job, Err(why));
        }
        // The target's device gives no remote key for the region.
        let ip = self.target_of(job);
        let mut sides = self.sides.iter().flatten();
        let side = sides.find(|s| s.end == End::Requester && Some(s.ip) == ip);
        // A quarter of the asks leaves room to those of all classes.
        let puts_max = side.map_or(1, |s| s.asks.most() / 4).min(PUTS);
        self.copies.opened_for_puts(job, puts_max);
    }

    /// Takes the steps that are due. After [`LOCAL_CHUNKS`] chunks by the processor, a worker takes
    /// the others.
    pub(super) fn copy_actions(&mut self, host: &Arc<Host>) {
        let mut copied = 0;
        while copied < LOCAL_CHUNKS {
            while let Some((job, serial, why)) = self.failed_jobs.pop() {
                self.not_opened(job, serial, why);
            }
            let Some(action) = self.copies.next_action() else {
                return;
            };
            match action {
                Action::Open { job } => self.open_target(host, job),
                Action::GiveUp { job } => self.give_up_job_grant(job, self.serial_of(job)),
                Action::Write { job, off, len } => {
                    if let Err(why) = self.write_chunk(job, off, len) {
                        self.copies.not_posted(job, len, why);
                    }
                }
                Action::Put { job, off, len } => {
                    if let Err(why) = self.put_chunk(host, job, Range { off, len }) {
                        self.copies.not_posted(job, len, why);
                    }
                }
                Action::CopyLocal { job, off, len } => {
                    copied += 1;
                    match self.copy_local(job, off, len) {
                        Ok(()) => self.copies.completed(job, len),
                        Err(why) => self.copies.not_posted(job, len, why),
                    }
                }
                Action::Mark { job, off, len } => self.mark(job, off, len),
                Action::Finish {
                    job,
                    req,
                    status,
                    done,
                } => self.finish(job, req, status, done),
            }
        }
        host.step_again();
    }

    fn target_of(&self, job: u32) -> Option<Ip> {
        match self.copies.get(job).map(|r| &r.target) {
            Some(Target::Peer(peer)) => self.peers.get(*peer as usize).copied(),
            _ => None,
        }
    }

    fn open_target(&mut self, host: &Arc<Host>, job: u32) {
        let serial = self.serial_of(job);
        let ip = self.target_of(job).ok_or(Status::NoNode);
        let slot = ip.and_then(|ip| self.link_to(host, ip));
        let info = self.jobs.get(job as usize).and_then(Option::as_ref);
        match (slot, info.map(|i| (i.node, i.key))) {
            (Ok(slot), Some((node, key))) => {
                let pending = Pending::Job(job, serial);
                self.want_grant(slot, node, key, Rights::WRITE, pending);
            }
            (slot, _) => {
                let why = slot.err().unwrap_or(Status::Io);
                self.copies.opened(job, Err(why));
            }
        }
    }

    /// The target has granted what a copy needs.
    /// False if there is no such copy any more.
    pub(super) fn job_granted(&mut self, job: u32, serial: u64, granted: Granted) -> bool {
        let Some(info) = self.job(job, serial) else {
            return false;
        };
        info.grant = Some(granted);
        let addr = info.addr;
        let len = self.copies.get(job).map_or(0, |r| r.range.len);
        let side = self.live(granted.slot, granted.serial);
        let lending = side.and_then(|s| s.lent.get(granted.lent as usize));
        let reached = match lending {
            Some(Some(lending)) => lending.pieces(addr, len).map(|p| p.len).sum::<u64>(),
            _ => 0,
        };
        // The target says whether it is in the region.
        let fits = (reached == len).then_some(()).ok_or(Status::Denied);
        self.copies.opened(job, fits);
        true
    }

    fn write_chunk(&mut self, job: u32, off: u64, len: u64) -> Result<(), Status> {
        let serial = self.serial_of(job);
        let info = self.job(job, serial).ok_or(Status::Io)?;
        let (granted, addr) = (info.grant.ok_or(Status::Stale)?, info.addr + off);
        let request = self.copies.get(job).ok_or(Status::Io)?;
        let source = &request.source;
        let served = node_of_hold(&mut self.served, source).ok_or(Status::Stale)?;
        let range = Range {
            off: request.range.off + off,
            len,
        };
        let pieces = served.node.pieces(source, range);
        let runs = NodeRuns::new(&served.memory, pieces.map(|p| (p.at, p.len)));
        let runs = runs.map_err(|e| served.memory_error(source, e))?;
        let side = self
            .live(granted.slot, granted.serial)
            .ok_or(Status::Lost)?;
        let pd = side
            .queues
            .as_ref()
            .map(|q| q.pd.clone())
            .ok_or(Status::Lost)?;
        let mapped = DmaRuns::map(&pd, runs, Direction::ToDevice);
        let mapped = mapped.and_then(|m| Ok(Arc::new(m, GFP_KERNEL)?));
        let mapped = mapped.map_err(|_| Status::NoMemory)?;
        if mapped.bytes() as u64 != len {
            return Err(Status::Io);
        }
        if !side.cache.begin(granted.lent, granted.number, now_ms()) {
            return Err(Status::Stale);
        }
        let what = Moved::Chunk(job, serial, len);
        let posted = side.post_data(granted.lent, addr, &mapped, true, what);
        if posted.is_err() {
            let leave = side.cache.end(granted.lent);
            self.leave(granted.slot, leave);
        }
        posted
    }

    /// Asks the target to write a chunk, which one message has room for.
    fn put_chunk(&mut self, host: &Arc<Host>, job: u32, chunk: Range) -> Result<(), Status> {
        let serial = self.serial_of(job);
        let ip = self.target_of(job).ok_or(Status::NoNode)?;
        // It was there when the target refused the grant.
        let slot = self.link_to(host, ip).map_err(|_| Status::Lost)?;
        let info = self.jobs.get(job as usize).and_then(Option::as_ref);
        let info = info.ok_or(Status::Io)?;
        let ask = MemHeader {
            node: info.node,
            key: info.key,
            addr: info.addr + chunk.off,
            len: chunk.len as u32,
            ..MemHeader::ask(0, Op::Put)
        };
        let request = self.copies.get(job).ok_or(Status::Io)?;
        let source = &request.source;
        let served = node_of_hold(&mut self.served, source).ok_or(Status::Stale)?;
        let from = Range {
            off: request.range.off + chunk.off,
            len: chunk.len,
        };
        let bytes = KVec::from_elem(0_u8, chunk.len as usize, GFP_KERNEL);
        let mut bytes = bytes.map_err(|_| Status::NoMemory)?;
        let read = served.read(source, from, &mut bytes);
        read.map_err(|e| served.memory_error(source, e))?;
        self.ask_peer(slot, None, Kind::Put(job, serial, chunk.len), ask, bytes)
    }

    /// The target has answered a PUT of `len` bytes of a copy, or its link is down.
    pub(super) fn put_done(&mut self, job: u32, serial: u64, len: u64, status: Status) {
        if self.job(job, serial).is_some() {
            self.copies.put_answered(job, len, status);
        }
    }

    /// A chunk of a copy has completed.
    pub(super) fn chunk_done(&mut self, job: u32, serial: u64, len: u64) {
        if self.job(job, serial).is_some() {
            self.copies.completed(job, len);
        }
    }

    fn copy_local(&mut self, job: u32, off: u64, len: u64) -> Result<(), Status> {
        let info = self.jobs.get(job as usize).and_then(Option::as_ref);
        let info = info.ok_or(Status::Io)?;
        let request = self.copies.get(job).ok_or(Status::Io)?;
        let Target::Local(target) = &request.target else {
            return Err(Status::Io);
        };
        let source = &request.source;
        let served = node_of_hold(&mut self.served, source).ok_or(Status::Io)?;
        let bytes = KVVec::from_elem(0_u8, len as usize, GFP_KERNEL);
        let mut bytes = bytes.map_err(|_| Status::NoMemory)?;
        let from = Range {
            off: request.range.off + off,
            len,
        };
        let read = served.read(source, from, &mut bytes);
        read.map_err(|e| served.memory_error(source, e))?;
        let to = Range {
            off: info.local_off + off,
            len,
        };
        let served = node_of_hold(&mut self.served, target).ok_or(Status::Io)?;
        let wrote = served.write(target, to, &bytes);
        wrote.map_err(|e| served.memory_error(target, e))
    }

    /// Asks the target to acknowledge what was written.
    fn mark(&mut self, job: u32, off: u64, len: u64) {
        let serial = self.serial_of(job);
        let Some((granted, addr)) = self.job(job, serial).and_then(|i| Some((i.grant?, i.addr)))
        else {
            return;
        };
        // A link that is down tells the copy itself.
        if self.live(granted.slot, granted.serial).is_none() {
            return;
        }
        let ask = MemHeader {
            grant: granted.number,
            addr: addr + off,
            bytes: len,
            ..MemHeader::ask(0, Op::Wrote)
        };
        let kind = Kind::Wrote(job, serial);
        let asked = self.ask_peer(granted.slot, None, kind, ask, KVec::new());
        if asked.is_err() {
            self.fail(granted.slot, Status::NoMemory);
        }
    }

    /// The region that copies write to with that grant is sealed.
    pub(super) fn target_sealed(&mut self, slot: usize, number: u32) {
        let Some(serial) = self.side(slot).map(|side| side.serial) else {
            return;
        };
        for (job, info) in (0..).zip(self.jobs.iter()) {
            let grant = info.as_ref().and_then(|info| info.grant);
            if grant.is_some_and(|g| (g.slot, g.serial, g.number) == (slot, serial, number)) {
                self.copies.cancel(job, Status::Sealed, now_ms());
            }
        }
    }

    /// The target has answered a WROTE.
    pub(super) fn marked(&mut self, job: u32, serial: u64, status: Status) {
        if self.job(job, serial).is_some() {
            self.copies.answered(job, status);
        }
    }

    fn finish(&mut self, job: u32, request: CopyRequest, status: Status, done: u64) {
        let serial = request.token;
        match request.target {
            Target::Local(_) => self.counts.copied_within_bytes.add(done),
            Target::Peer(_) => self.counts.copied_out_bytes.add(done),
        }
        self.end_holds(request);
        let info = self.jobs.get_mut(job as usize).and_then(Option::take);
        let info = info.filter(|i| i.serial == serial);
        let Some(info) = info else {
            return;
        };
        if let Some(granted) = info.grant {
            self.finish_grant(granted);
        }
        let answer = MemHeader {
            bytes: done,
            ..MemHeader::answer(0, Op::Copy, status)
        };
        self.answer(info.reply, answer, KVec::new());
        while let Some(at) = self.cancels.iter().position(|c| c.0 == info.serial) {
            if let Ok((_, reply)) = self.cancels.remove(at) {
                self.answer_status(reply, Op::Cancel, Status::Ok);
            }
        }
    }

    /// Links to targets that do not answer for copies that have to end.
    pub(super) fn leave_stalled_targets(&mut self, now: u64) {
        let Some((at, peer)) = self.copies.overdue(STOP_MS) else {
            return;
        };
        if now < at {
            return;
        }
        let ours = |s: &Option<KBox<super::side::Side>>| {
            s.as_ref()
                .is_some_and(|s| s.end == End::Requester && s.peer == peer as usize)
        };
        match self.sides.iter().position(ours) {
            Some(slot) => self.silent(slot),
            None => self.copies.target_lost(peer),
        }
    }
}
