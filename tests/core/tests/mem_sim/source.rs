// SPDX-License-Identifier: GPL-2.0

//! The source of copies: what the core decides is done here.

use zrs_core::mem::copy::{Action, CopyRequest, Target, STOP_MS};
use zrs_core::mem::rights::{Range, Rights};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as Wire};

use crate::host::JobInfo;
use crate::link::{Origin, Pending};
use crate::program::Kind;
use crate::requester::Retry;
use crate::serve::Reply;
use crate::world::{trace, World};

impl World {
    pub fn serve_copy(&mut self, host: usize, reply: Reply, h: &MemHeader) {
        match self.begin_copy(host, reply, h) {
            Ok(()) => {}
            Err(status) => {
                self.stats.copies_refused += 1;
                let answer = MemHeader::answer(0, Wire::Copy, status);
                self.answer_with(host, reply, answer, Vec::new());
            }
        }
    }

    fn begin_copy(&mut self, host: usize, reply: Reply, h: &MemHeader) -> Result<(), Status> {
        let now = self.now;
        let serial = self.number();
        let dst = self.hosts[host].find(h.node).ok_or(Status::NoNode)?;
        let node = &mut self.hosts[host].node;
        let range = node.range_of(h.key, h.addr, h.bytes)?;
        let to = if dst == host {
            let to = node.range_of(h.key2, h.addr2, h.bytes)?;
            let same = (h.key.region, h.key.gen) == (h.key2.region, h.key2.gen);
            if same && range.overlaps(to) {
                return Err(Status::Invalid);
            }
            Some(to)
        } else {
            None
        };
        let source = node.begin(h.key, Rights::READ, range, now)?;
        let target = match to {
            None => Target::Peer(dst as u32),
            Some(to) => match node.begin(h.key2, Rights::WRITE, to, now) {
                Ok(hold) => Target::Local(hold),
                Err(status) => {
                    node.end(source);
                    return Err(status);
                }
            },
        };
        let requester = match reply {
            Reply::Local(_) => 0,
            Reply::Peer { link, .. } => link as u32 + 1,
        };
        let req = CopyRequest {
            requester,
            token: serial,
            source,
            range,
            target,
        };
        match self.hosts[host].copies.add(req) {
            Ok(job) => {
                let info = JobInfo {
                    serial,
                    dst_node: h.node,
                    dst_key: h.key2,
                    dst_addr: h.addr2,
                    reply,
                    grant: None,
                };
                self.hosts[host].jobs.insert(job, info);
                Ok(())
            }
            Err(back) => {
                self.end_holds(host, back);
                Err(Status::Again)
            }
        }
    }

    fn end_holds(&mut self, host: usize, req: CopyRequest) {
        let node = &mut self.hosts[host].node;
        node.end(req.source);
        if let Target::Local(hold) = req.target {
            node.end(hold);
        }
    }

    pub fn serve_cancel(&mut self, host: usize, reply: Reply, target: Option<Reply>) {
        let of = |i: &JobInfo| Some(i.reply) == target;
        let job = self.hosts[host]
            .jobs
            .iter()
            .find(|j| of(j.1))
            .map(|(n, i)| (*n, i.serial));
        match job {
            Some((job, serial)) => {
                let now = self.now;
                self.hosts[host].copies.cancel(job, Status::Canceled, now);
                self.hosts[host].cancels.push((serial, reply));
            }
            None => {
                let answer = MemHeader::answer(0, Wire::Cancel, Status::NotFound);
                self.answer_with(host, reply, answer, Vec::new());
            }
        }
    }

    fn target_of(&self, host: usize, job: u32) -> usize {
        match self.hosts[host].copies.get(job).map(|r| &r.target) {
            Some(Target::Peer(to)) => *to as usize,
            other => panic!("{other:?}"),
        }
    }

    pub fn copy_actions(&mut self, host: usize) {
        loop {
            for (at, job, serial, why) in std::mem::take(&mut self.failed_jobs) {
                if self.hosts[at]
                    .jobs
                    .get(&job)
                    .is_some_and(|i| i.serial == serial)
                {
                    self.hosts[at].copies.opened(job, Err(why));
                }
            }
            let Some(action) = self.hosts[host].copies.next_action() else {
                return;
            };
            trace!(self, "host {host}: {action:?}");
            match action {
                Action::Open { job } => {
                    let info = self.hosts[host].jobs[&job].clone();
                    let to = self.target_of(host, job);
                    match self.connect(host, to) {
                        None => self.hosts[host]
                            .copies
                            .opened(job, Err(Status::Unreachable)),
                        Some(link) => {
                            let pending = Pending::Job(job);
                            self.want_grant(
                                link,
                                info.dst_node,
                                info.dst_key,
                                Rights::WRITE,
                                pending,
                            );
                        }
                    }
                }
                Action::GiveUp { job } => {
                    for link in self.links.iter_mut().filter(|l| l.requester == host) {
                        link.waiting.retain(|w| w.1 != Pending::Job(job));
                    }
                }
                Action::Write { job, off, len } => self.write_chunk(host, job, off, len),
                Action::Put { .. } => panic!("nodes here give remote keys"),
                Action::CopyLocal { job, off, len } => self.copy_local(host, job, off, len),
                Action::Mark { job, off, len } => {
                    let serial = self.hosts[host].jobs[&job].serial;
                    let retry = Retry::Mark {
                        host,
                        job,
                        serial,
                        off,
                        len,
                    };
                    self.retry(retry);
                }
                Action::Finish {
                    job,
                    req,
                    status,
                    done,
                } => self.finish_copy(host, job, req, status, done),
            }
        }
    }

    /// The target has granted what a copy needs.
    pub fn job_granted(&mut self, link: usize, slot: u32, number: u32, job: u32) {
        let host = self.links[link].requester;
        let Some(len) = self.hosts[host].copies.get(job).map(|r| r.range.len) else {
            return;
        };
        let info = self.hosts[host].jobs.get_mut(&job).expect("a copy");
        info.grant = Some((link, slot, number));
        let addr = info.dst_addr;
        let fits = self.reaches(link, slot, addr, len);
        self.hosts[host]
            .copies
            .opened(job, fits.then_some(()).ok_or(Status::Range));
    }

    /// Links to targets that do not answer for copies that have to end.
    pub fn leave_stalled_targets(&mut self, host: usize) {
        loop {
            let overdue = self.hosts[host].copies.overdue(STOP_MS);
            let Some((_, to)) = overdue.filter(|o| self.now >= o.0) else {
                return;
            };
            trace!(self, "host {host}: the target {to} does not answer");
            self.stats.stalled_targets += 1;
            let mut links = self.links.iter();
            match links.position(|l| (l.requester, l.node, l.up[0]) == (host, to as usize, true)) {
                Some(link) => self.end_down(link, 0),
                None => self.hosts[host].copies.target_lost(to),
            }
        }
    }

    fn source_bytes(&self, host: usize, job: u32, off: u64, len: u64) -> Vec<u8> {
        let h = &self.hosts[host];
        let req = h.copies.get(job).expect("a copy");
        let range = Range {
            off: req.range.off + off,
            len,
        };
        let pieces = h.node.pieces(&req.source, range);
        pieces
            .flat_map(|p| h.memory[p.at as usize..(p.at + p.len) as usize].to_vec())
            .collect()
    }

    fn write_chunk(&mut self, host: usize, job: u32, off: u64, len: u64) {
        let info = self.hosts[host].jobs[&job].clone();
        let (link, slot, number) = info.grant.expect("a grant");
        let l = &mut self.links[link];
        if !l.up[0] || !l.cache.begin(slot, number, self.now) {
            self.hosts[host].copies.not_posted(job, len, Status::Stale);
            return;
        }
        let data = self.source_bytes(host, job, off, len);
        assert_eq!(data.len() as u64, len);
        self.post_chunk(
            link,
            slot,
            info.dst_addr + off,
            &data,
            (host, job, info.serial),
        );
    }

    fn copy_local(&mut self, host: usize, job: u32, off: u64, len: u64) {
        let info = self.hosts[host].jobs[&job].clone();
        let data = self.source_bytes(host, job, off, len);
        let h = &self.hosts[host];
        let Some(Target::Local(hold)) = h.copies.get(job).map(|r| &r.target) else {
            panic!("a local copy");
        };
        let to = h.node.range_of(info.dst_key, info.dst_addr, 1);
        let region = (host, h.incarnation, info.dst_key.region, info.dst_key.gen);
        let va = self.oracle.regions[&region].va;
        let range = Range {
            off: info.dst_addr - va + off,
            len,
        };
        // A region that is being closed has no address any more, and is still there.
        assert!(to.is_err() || to.map(|r| r.off + off) == Ok(range.off));
        let pieces: Vec<_> = h.node.pieces(hold, range).collect();
        let mut from = 0;
        for p in pieces {
            let part = &data[from..from + p.len as usize];
            self.land(host, info.dst_key, p.at, part, Origin::Job(info.serial));
            from += part.len();
        }
        assert_eq!(from as u64, len);
        self.hosts[host].copies.completed(job, len);
    }

    pub fn mark_job(&mut self, host: usize, job: u32, serial: u64, off: u64, len: u64) -> bool {
        let Some(info) = self.hosts[host]
            .jobs
            .get(&job)
            .filter(|i| i.serial == serial)
        else {
            return true;
        };
        let (link, _, grant) = info.grant.expect("a grant");
        let addr = info.dst_addr + off;
        if !self.links[link].up[0] {
            return true;
        }
        let op = self.new_op(host, Kind::Wrote { job, serial });
        let ask = MemHeader {
            grant,
            addr,
            bytes: len,
            ..MemHeader::ask(0, Wire::Wrote)
        };
        let Some(ask) = self.links[link].asks.begin(ask, op, None) else {
            self.ops.remove(&op);
            return false;
        };
        self.send(link, true, &ask, Vec::new());
        true
    }

    fn finish_copy(&mut self, host: usize, job: u32, req: CopyRequest, status: Status, done: u64) {
        let info = self.hosts[host].jobs.remove(&job).expect("a copy");
        // Of a lost link nobody knows what still lands.
        if status == Status::Lost {
            self.stats.copies_lost += 1;
        } else {
            self.oracle.is_over(Origin::Job(info.serial));
        }
        self.stats.copies_canceled += u64::from(status == Status::Canceled);
        self.stats.copies_in_part += u64::from(status != Status::Ok && done != 0);
        self.stats.copies_whole += u64::from(status == Status::Ok);
        let local = matches!(req.target, Target::Local(_));
        self.stats.copies_local += u64::from(local && status == Status::Ok);
        self.end_holds(host, req);
        if let Some((link, slot, number)) = info.grant {
            self.finish_once(link, slot, number);
        }
        let answer = MemHeader {
            bytes: done,
            ..MemHeader::answer(0, Wire::Copy, status)
        };
        self.answer_with(host, info.reply, answer, Vec::new());
        let (mine, others) = std::mem::take(&mut self.hosts[host].cancels)
            .into_iter()
            .partition(|c| c.0 == info.serial);
        self.hosts[host].cancels = others;
        let mine: Vec<(u64, Reply)> = mine;
        for (_, reply) in mine {
            let answer = MemHeader::answer(0, Wire::Cancel, Status::Ok);
            self.answer_with(host, reply, answer, Vec::new());
        }
    }
}
