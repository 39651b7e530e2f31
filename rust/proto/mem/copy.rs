// SPDX-License-Identifier: GPL-2.0

//! The copies that a node makes as their source. They are queued by requester, written in chunks
//! into the target node, and their results are reported to the requesters.
//!
//! ```text
//! Queued ─turn─► Opening (grant at the target) ─► Active ─► Finished
//!
//! Active, for each part: chunks, WROTE, answer
//! ```
//!
//! A copy that is canceled or fails posts no further chunk. It is finished when its last chunk has
//! completed *and* the target has answered a WROTE that follows it, or the link to the target is
//! down: the completion of a WRITE alone does not prove that its bytes have arrived in memory.
//! `done` counts the bytes that the target has acknowledged, a lower bound of the bytes that have
//! landed.
//!
//! A target that does not answer must not block such a copy, and the source's region, without
//! limit: when [`Copies::overdue`] says so, the caller takes the link to the target down.
//!
//! Where the target gives no remote key, a chunk is a PUT, whose answer is the acknowledgement: no
//! WROTE follows. Few PUTs are under way at a time, as they share the asks of the link with those
//! of others.

use core::ops::DerefMut;

use super::node::Hold;
use super::rights::Range;
use super::sched::{Flow, Scheduler, QUANTUM};
use super::slab::{Slab, Slot};
use super::status::Status;

/// Time that a target has to answer after a copy was canceled or its region closed, in
/// milliseconds.
pub const STOP_MS: u64 = 2000;

/// Limits of the copies of a node.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of one WRITE.
    pub chunk: u64,
    /// Most bytes of one PUT.
    pub put: u64,
    /// Most bytes of one WROTE.
    pub part: u64,
    /// Most copies at work for one target.
    pub jobs_per_target: u32,
    /// Bytes that may be in flight to one target.
    pub in_flight_max: u64,
}

/// Where a copy goes.
#[derive(Debug)]
pub enum Target {
    /// To a node of the same host, by the processor.
    Local(Hold),
    /// To the host at the other end of the link with this number.
    Peer(u32),
}

/// A copy that a requester has asked for.
#[derive(Debug)]
pub struct CopyRequest {
    /// Number of the requester.
    pub requester: u32,
    /// Identifies the requester's answer.
    pub token: u64,
    /// Permission to read the source.
    pub source: Hold,
    /// The bytes of the source's region to copy.
    pub range: Range,
    /// Where the copy goes.
    pub target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Queued,
    Opening,
    Active,
}

/// A copy under way.
pub struct Job {
    req: CopyRequest,
    order: u64,
    state: State,
    /// The bytes go as PUTs, of which so many may be under way to the target.
    puts_max: Option<u32>,
    /// The first failure.
    failed: Option<Status>,
    /// When the job was stopped; its end is waited for since then.
    stopped_ms: Option<u64>,
    /// Bytes of chunks that were posted.
    posted: u64,
    /// Bytes of chunks that have completed.
    completed: u64,
    /// Bytes that a WROTE was sent for.
    marked: u64,
    /// A WROTE is not answered yet.
    marking: bool,
    /// Bytes that the target has acknowledged.
    done: u64,
    /// The link to the target is down.
    lost: bool,
}

impl Job {
    fn len(&self) -> u64 {
        self.req.range.len
    }

    fn peer(&self) -> Option<u32> {
        match self.req.target {
            Target::Local(_) => None,
            Target::Peer(link) => Some(link),
        }
    }

    /// No further chunk is posted.
    fn ended(&self) -> bool {
        self.failed.is_some() || self.posted >= self.len()
    }

    /// End of the part that is being written.
    fn part_end(&self, part: u64) -> u64 {
        match self.puts_max {
            Some(_) => self.len(),
            None => self.marked.saturating_add(part).min(self.len()),
        }
    }

    /// Whether a WROTE must be sent after the chunks that were posted.
    fn marker_due(&self, part: u64) -> bool {
        let due = self.ended() || self.posted >= self.part_end(part);
        self.is_marked() && due && self.posted > self.marked && !self.marking && !self.lost
    }

    /// Whether WROTEs follow the chunks.
    fn is_marked(&self) -> bool {
        self.peer().is_some() && self.puts_max.is_none()
    }

    /// Whether no byte of the job can land any more.
    fn over(&self) -> bool {
        let told = !self.is_marked() || self.lost || (self.marked == self.posted && !self.marking);
        self.ended() && self.state != State::Opening && self.completed == self.posted && told
    }

    fn fail(&mut self, why: Status) {
        if !self.ended() {
            self.failed = Some(why);
        }
    }

    fn stop(&mut self, why: Status, now_ms: u64) {
        self.stopped_ms.get_or_insert(now_ms);
        self.fail(why);
    }
}

/// A step that the caller must take now.
#[derive(Debug)]
pub enum Action {
    /// Get a grant for the target of the job, then call [`Copies::opened`].
    Open {
        /// The job.
        job: u32,
    },
    /// The job was stopped while it waits for a grant: take its wait back.
    GiveUp {
        /// The job.
        job: u32,
    },
    /// Post a WRITE of these bytes of the source, then call [`Copies::completed`].
    Write {
        /// The job.
        job: u32,
        /// Offset of the first byte from the beginning of the copy.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// Ask the target to write these bytes of the source, then call [`Copies::put_answered`].
    Put {
        /// The job.
        job: u32,
        /// Offset of the first byte from the beginning of the copy.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// Copy these bytes by the processor, then call [`Copies::completed`].
    CopyLocal {
        /// The job.
        job: u32,
        /// Offset of the first byte from the beginning of the copy.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// Send a WROTE for these bytes behind the WRITEs, then call [`Copies::answered`].
    Mark {
        /// The job.
        job: u32,
        /// Offset of the first byte from the beginning of the copy.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// The copy is over: answer the requester, and end the holds.
    Finish {
        /// The job, whose number is free.
        job: u32,
        /// The request.
        req: CopyRequest,
        /// The result.
        status: Status,
        /// Bytes from the beginning that have landed for sure.
        done: u64,
    },
}

/// The jobs and bytes in flight to one target.
#[derive(Clone, Copy, Default)]
pub struct TargetLoad {
    jobs: u32,
    in_flight: u64,
    /// PUTs under way.
    puts: u32,
}

impl TargetLoad {
    /// A chunk of `job` is under way no more.
    fn leave(&mut self, job: &Job, len: u64) {
        self.in_flight = self.in_flight.saturating_sub(len);
        if job.puts_max.is_some() {
            self.puts = self.puts.saturating_sub(1);
        }
    }
}

/// The copies of a node's host.
pub struct Copies<J, T, F> {
    limits: Limits,
    jobs: Slab<J>,
    targets: T,
    sched: Scheduler<F>,
    order: u64,
}

impl<J, T, F> Copies<J, T, F>
where
    J: DerefMut<Target = [Slot<Job>]>,
    T: DerefMut<Target = [TargetLoad]>,
    F: DerefMut<Target = [Flow]>,
{
    /// An empty table. `targets` and `flows` have an entry for each possible link.
    pub fn new(limits: Limits, jobs: J, targets: T, flows: F) -> Self {
        Self {
            limits: Limits {
                chunk: limits.chunk.clamp(1, u64::from(QUANTUM)),
                put: limits.put.clamp(1, u64::from(QUANTUM)),
                part: limits.part.max(1),
                ..limits
            },
            jobs: Slab::new(jobs),
            targets,
            sched: Scheduler::new(flows),
            order: 0,
        }
    }

    /// Copies under way.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether there is room for another copy of `requester`: it has no more than are left, so that
    /// one requester leaves half of the places to the others, and two a quarter.
    pub fn has_room(&self, requester: u32) -> bool {
        let left = self.jobs.room().saturating_sub(self.jobs.len());
        left != 0 && self.sched.jobs(requester) as usize <= left
    }

    /// Adds a copy; its number. Gives the request back if there is no room.
    pub fn add(&mut self, req: CopyRequest) -> Result<u32, CopyRequest> {
        let known = match req.target {
            Target::Local(_) => true,
            Target::Peer(link) => self.targets.get(link as usize).is_some(),
        };
        if !self.has_room(req.requester) || !known || !self.sched.enter(req.requester) {
            return Err(req);
        }
        self.order = self.order.wrapping_add(1);
        let job = Job {
            req,
            order: self.order,
            state: State::Queued,
            puts_max: None,
            failed: None,
            stopped_ms: None,
            posted: 0,
            completed: 0,
            marked: 0,
            marking: false,
            done: 0,
            lost: false,
        };
        // There is room.
        Ok(self.jobs.insert(job).unwrap_or_default())
    }

    /// The next step; call it until it returns `None`.
    pub fn next_action(&mut self) -> Option<Action> {
        let part = self.limits.part;
        self.sched.clear();
        let mut over = None;
        for (at, job) in self.jobs.iter_mut() {
            if job.over() {
                over = Some(at);
                break;
            }
            if job.state == State::Opening && job.failed.is_some() {
                job.state = State::Active;
                return Some(Action::GiveUp { job: at });
            }
            if job.marker_due(part) {
                let (off, len) = (job.marked, job.posted.saturating_sub(job.marked));
                job.marked = job.posted;
                job.marking = true;
                return Some(Action::Mark { job: at, off, len });
            }
            let target = job.peer().and_then(|link| self.targets.get(link as usize));
            let ready = match (job.state, target) {
                _ if job.ended() || job.state == State::Opening => false,
                // A local copy takes one step at a time.
                (_, None) => job.completed == job.posted,
                (State::Queued, Some(t)) => t.jobs < self.limits.jobs_per_target,
                (_, Some(t)) => {
                    let room = self.limits.in_flight_max.saturating_sub(t.in_flight);
                    let rest = job.part_end(part).saturating_sub(job.posted);
                    let next = self.limits.chunk.min(rest);
                    match job.puts_max {
                        // The first PUT shows whether the key is good for more.
                        Some(_) if job.posted != 0 && job.completed == 0 => false,
                        Some(max) => rest != 0 && t.puts < max,
                        None => next != 0 && (room >= next || t.in_flight == 0),
                    }
                }
            };
            if ready {
                self.sched.offer(job.req.requester, job.order, at);
            }
        }
        match over {
            Some(at) => self.finish(at),
            None => self.take_turn(),
        }
    }

    fn finish(&mut self, at: u32) -> Option<Action> {
        let job = self.jobs.remove(at)?;
        self.sched.leave(job.req.requester);
        if let (Some(link), State::Active | State::Opening) = (job.peer(), job.state) {
            if let Some(t) = self.targets.get_mut(link as usize) {
                t.jobs = t.jobs.saturating_sub(1);
            }
        }
        Some(Action::Finish {
            job: at,
            status: job.failed.unwrap_or(Status::Ok),
            done: job.done,
            req: job.req,
        })
    }

    fn take_turn(&mut self) -> Option<Action> {
        let at = self.sched.pick()?;
        let job = self.jobs.get_mut(at)?;
        let peer = job.peer();
        let target = peer.and_then(|link| self.targets.get_mut(link as usize));
        match (job.state, target) {
            (State::Queued, Some(target)) => {
                job.state = State::Opening;
                target.jobs = target.jobs.saturating_add(1);
                Some(Action::Open { job: at })
            }
            (_, target) => {
                let end = if peer.is_some() {
                    job.part_end(self.limits.part)
                } else {
                    job.len()
                };
                let off = job.posted;
                let most = match job.puts_max {
                    Some(_) => self.limits.put,
                    None => self.limits.chunk,
                };
                let len = most.min(end.saturating_sub(off));
                job.state = State::Active;
                job.posted = off.saturating_add(len);
                self.sched.charge(job.req.requester, len);
                match target {
                    None => Some(Action::CopyLocal { job: at, off, len }),
                    Some(target) => {
                        target.in_flight = target.in_flight.saturating_add(len);
                        if job.puts_max.is_some() {
                            target.puts = target.puts.saturating_add(1);
                            return Some(Action::Put { job: at, off, len });
                        }
                        Some(Action::Write { job: at, off, len })
                    }
                }
            }
        }
    }

    /// The target has granted what a job needs, or has refused, or cannot be reached.
    pub fn opened(&mut self, at: u32, result: Result<(), Status>) {
        let Some(job) = self.jobs.get_mut(at) else {
            return;
        };
        if job.state == State::Opening {
            job.state = State::Active;
            if let Err(why) = result {
                job.fail(why);
            }
        }
    }

    /// The target gives no remote key for what a job needs: its bytes go as PUTs, of which no more
    /// than `puts_max` are under way to the target.
    pub fn opened_for_puts(&mut self, at: u32, puts_max: u32) {
        if let Some(job) = self.jobs.get_mut(at) {
            job.puts_max = Some(puts_max.max(1));
        }
        self.opened(at, Ok(()));
    }

    /// A chunk of `len` bytes has completed. An error takes the link down instead: see
    /// [`Self::target_lost`].
    pub fn completed(&mut self, at: u32, len: u64) {
        let Some(job) = self.jobs.get_mut(at) else {
            return;
        };
        let len = len.min(job.posted.saturating_sub(job.completed));
        job.completed = job.completed.saturating_add(len);
        match job.peer() {
            None => job.done = job.completed,
            Some(link) => {
                if let Some(t) = self.targets.get_mut(link as usize) {
                    t.leave(job, len);
                }
            }
        }
    }

    /// The target has answered a PUT of `len` bytes, the oldest one of the job. A job stops at the
    /// first refusal. A key that has no use behind the refused grant, or whose place another key
    /// has by now, is `Unsupported`, not `Stale` or `Denied`: with more uses the copy is possible.
    pub fn put_answered(&mut self, at: u32, len: u64, status: Status) {
        self.completed(at, len);
        let Some(job) = self.jobs.get_mut(at) else {
            return;
        };
        match status {
            Status::Ok if job.failed.is_none() => job.done = job.completed,
            Status::Ok => {}
            Status::Stale | Status::Denied if job.done == 0 => {
                job.failed.get_or_insert(Status::Unsupported);
            }
            why => {
                job.failed.get_or_insert(why);
            }
        }
    }

    /// A chunk could not be posted or copied, for a reason that is the job's own.
    pub fn not_posted(&mut self, at: u32, len: u64, why: Status) {
        if let Some(job) = self.jobs.get_mut(at) {
            job.failed.get_or_insert(why);
            let len = len.min(job.posted.saturating_sub(job.marked));
            job.posted = job.posted.saturating_sub(len);
            if let Some(t) = job
                .peer()
                .and_then(|link| self.targets.get_mut(link as usize))
            {
                t.leave(job, len);
            }
        }
    }

    /// The target has answered the job's WROTE.
    pub fn answered(&mut self, at: u32, status: Status) {
        let Some(job) = self.jobs.get_mut(at) else {
            return;
        };
        if !job.marking {
            return;
        }
        job.marking = false;
        match status {
            Status::Ok => job.done = job.marked,
            // Not all of it may have landed, even if all was posted.
            why => {
                job.failed.get_or_insert(why);
            }
        }
    }

    /// Stops a job: it posts no more chunks. It finishes with `why`, or with success if all was
    /// posted.
    pub fn cancel(&mut self, at: u32, why: Status, now_ms: u64) {
        if let Some(job) = self.jobs.get_mut(at) {
            job.stop(why, now_ms);
        }
    }

    /// Cancels the jobs whose hold `stop` selects.
    pub fn cancel_if(&mut self, why: Status, now_ms: u64, stop: impl Fn(&Hold) -> bool) {
        for (_, job) in self.jobs.iter_mut() {
            let target = match &job.req.target {
                Target::Local(hold) => stop(hold),
                Target::Peer(_) => false,
            };
            if target || stop(&job.req.source) {
                job.stop(why, now_ms);
            }
        }
    }

    /// The link of a requester is down: its jobs are canceled.
    pub fn requester_lost(&mut self, requester: u32, now_ms: u64) {
        for (_, job) in self.jobs.iter_mut() {
            if job.req.requester == requester {
                job.stop(Status::Canceled, now_ms);
            }
        }
    }

    /// Of the targets that stopped jobs wait for: the one whose answer is due first, and the time.
    /// The caller must take the link to it down then.
    pub fn overdue(&self, patience_ms: u64) -> Option<(u64, u32)> {
        let waits = self.jobs.iter().filter_map(|(_, job)| {
            let since = job.stopped_ms.filter(|_| !job.over())?;
            Some((since.saturating_add(patience_ms), job.peer()?))
        });
        waits.min()
    }

    /// The link to a target is down and its queue pair destroyed: no chunk completes any more.
    pub fn target_lost(&mut self, link: u32) {
        for (_, job) in self.jobs.iter_mut() {
            // A queued job makes a new link.
            if job.peer() == Some(link) && job.state != State::Queued {
                // Whether its last chunks have landed, or still will, is not known: no other result
                // may hide that.
                if job.posted > job.done || !job.ended() {
                    job.failed = Some(Status::Lost);
                }
                job.state = State::Active;
                job.completed = job.posted;
                job.marking = false;
                job.lost = true;
            }
        }
        if let Some(t) = self.targets.get_mut(link as usize) {
            (t.in_flight, t.puts) = (0, 0);
        }
    }

    /// The number of the job that was added with this requester and token.
    #[cfg(not(MODULE))]
    pub fn find(&self, requester: u32, token: u64) -> Option<u32> {
        let mut jobs = self.jobs.iter();
        jobs.find(|(_, j)| (j.req.requester, j.req.token) == (requester, token))
            .map(|(at, _)| at)
    }

    /// Whether a job has that target.
    pub fn has_target(&self, link: u32) -> bool {
        self.jobs.iter().any(|(_, job)| job.peer() == Some(link))
    }

    /// The request of a job.
    pub fn get(&self, at: u32) -> Option<&CopyRequest> {
        self.jobs.get(at).map(|j| &j.req)
    }
}
