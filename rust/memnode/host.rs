// SPDX-License-Identifier: GPL-2.0

//! A host: what it serves, its memory links, and the operations of its programs. One mutex guards
//! all of it; it is held for posting and for copying up to a chunk, and never while something waits
//! for a peer, a program's memory, or an event of the connection manager.
//!
//! Lock order: the connection manager's handler mutex, then `Host::state`, then the context's
//! directories, or the lists of peers and keys; `Call` is a leaf.

#![deny(unsafe_code)]

use core::convert::Infallible;

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork, Work, WorkItem,
};

use super::asynchronous::Asyncs;
use super::broker::HostBroker;
use super::context::{Alive, Memory};
use super::copy::{JobInfo, JOBS};
use super::copying::RegionName;
use super::counts::Counts;
use super::grants::Granted;
use super::node::{slots, Nodes, Served};
use super::queue::{OpQueue, Shared};
use super::server::Reply;
use super::side::{Life, Side};
use crate::kern::fault;
use crate::kern::net::Net;
use crate::kern::task::{self, now_ns};
use crate::kern::wait::{WaitError, WaitMode, WaitQueue};
use crate::kern::work;
use crate::proto::addr::Ip;
use crate::proto::mem::arena::Extent;
use crate::proto::mem::copy::{Copies, Job, Limits, TargetLoad};
use crate::proto::mem::errands::{Errand, Errands};
use crate::proto::mem::id::NodeId;
use crate::proto::mem::link::End;
use crate::proto::mem::sched::Flow;
use crate::proto::mem::slab::Slot;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op, PART_MAX};
use crate::proto::wire::SMALL_MAX;
use crate::qp_link::Listening;

/// Most memory links of a host, both directions together.
pub(super) const LINKS: usize = 256;
/// Maximum number of known peers: peers with links, with regions, or as targets of copies.
const PEERS: usize = 512;
/// Maximum number of errands: asks without a waiting caller, which are repeated if they do not
/// reach the node.
const ERRANDS: usize = 1024;
/// How often times are looked at, in milliseconds.
const TICK_MS: u32 = 100;
/// Bytes of one WRITE of a copy.
const CHUNK: u64 = 256 << 10;
/// Bytes in flight to one target.
const IN_FLIGHT: u64 = 1 << 20;

/// Work item: looks at times.
const TICK: u64 = 0;
/// Work item: zeroes pages.
const ZERO: u64 = 1;
/// Work item: goes on with what takes several steps.
const STEP: u64 = 2;

/// Milliseconds of the monotonic clock.
pub(super) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// The errno of a result that is not a success.
pub(super) fn errno_of(status: Status) -> Error {
    Error::from_errno(-status.errno())
}

/// The answer to an ask.
pub(super) struct Answer {
    pub(super) h: MemHeader,
    pub(super) payload: KVec<u8>,
}

/// The outcome that a thread waits for.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) answer: Option<Answer>,
    /// Chunks that have not completed.
    pub(super) left: u32,
    /// Of a chunk.
    pub(super) failed: Option<Status>,
    pub(super) grant: Option<Result<Granted, Status>>,
    /// Nobody waits for the answer: the node that was asked, and what for.
    pub(super) abandoned: Option<(NodeId, MemHeader)>,
}

/// An operation of a program, for the thread or queue that waits and for what ends it.
#[pin_data]
pub(super) struct Call {
    /// The queue that waits.
    queue: Option<Arc<Shared>>,
    /// The user whose share it counts against.
    pub(super) user: Option<u32>,
    #[pin]
    outcome: SpinLock<Outcome>,
}

impl Call {
    pub(super) fn new() -> Result<Arc<Self>> {
        Self::of(None)
    }

    /// An operation of a queue, or one that a thread waits for. Context: the program's.
    pub(super) fn of(queue: Option<Arc<Shared>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                queue,
                user: task::user(),
                outcome <- new_spinlock!(Outcome::default(), "zrs_mem_call"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether it is one of a queue, or of calls that do not wait.
    pub(super) fn is_queued(&self) -> bool {
        self.queue.is_some()
    }

    /// Changes or looks at the outcome.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Outcome) -> R) -> R {
        if let Some(queue) = &self.queue {
            queue.touch();
        }
        self.look(f)
    }

    /// As [`Self::with`], by the waiter itself.
    pub(super) fn look<R>(&self, f: impl FnOnce(&mut Outcome) -> R) -> R {
        f(&mut self.outcome.lock())
    }
}

/// The operation that an answer ends.
pub(super) enum Kind {
    /// An operation of a program.
    Call(Arc<Call>),
    /// The opening of a grant, by its place.
    Open(u32),
    /// WROTE of a copy: number and serial number of the job.
    Wrote(u32, u64),
    /// PUT of a copy: number and serial number of the job, bytes.
    Put(u32, u64, u64),
    /// A step of the broker, by its place.
    Broker(u32),
    /// An errand, by its place.
    Errand(u32),
    /// Nothing waits for it.
    Nothing,
}

/// The host that serves a node.
pub(super) enum Route {
    /// This host.
    Here,
    /// The host at the other end of that link.
    Link(usize),
}

/// The state that a host's lock guards.
pub(super) struct State {
    pub(super) counts: Arc<Counts>,
    pub(super) served: Nodes,
    pub(super) listening: Option<Listening>,
    pub(super) sides: KVec<Option<KBox<Side>>>,
    /// Peers by place. A peer keeps its place while something refers to that.
    pub(super) peers: KVec<Ip>,
    pub(super) ops: KVec<(u64, Kind)>,
    pub(super) copies: Copies<KVVec<Slot<Job>>, KVec<TargetLoad>, KVec<Flow>>,
    pub(super) jobs: KVec<Option<JobInfo>>,
    /// Jobs that have failed before they began: number, serial number.
    pub(super) failed_jobs: KVec<(u32, u64, Status)>,
    /// Cancels that wait for the end of a job.
    pub(super) cancels: KVec<(u64, Reply)>,
    /// The region of each key that a copy of this host's programs has derived, and not left yet.
    pub(super) copy_keys: KVec<RegionName>,
    /// Frees, seals and revocations under way.
    pub(super) waiters: KVec<(u64, Op, Reply)>,
    pub(super) broker: Option<KBox<HostBroker>>,
    /// Asks without a waiting caller.
    pub(super) errands: Errands<KVVec<Slot<Errand>>>,
    /// Queues of programs.
    pub(super) queues: KVec<KBox<OpQueue>>,
    /// Calls of programs that do not wait.
    pub(super) asyncs: Asyncs,
    /// How often queued operations have posted a chunk.
    pub(super) posted: u64,
    serial: u64,
    pub(super) stopped: bool,
}

/// A host.
#[pin_data]
pub(super) struct Host {
    pub(super) memory: Arc<Memory>,
    pub(super) net: Net,
    pub(super) counts: Arc<Counts>,
    /// Counts what may end a wait for room.
    pub(super) turns: Atomic<u32>,
    /// Links that were given a completion vector.
    pub(super) links: Atomic<u64>,
    #[pin]
    pub(super) state: Mutex<State>,
    #[pin]
    pub(super) waits: WaitQueue,
    #[pin]
    tick: DelayedWork<Host, TICK>,
    #[pin]
    zero: Work<Host, ZERO>,
    #[pin]
    step: Work<Host, STEP>,
    /// The last field: the host is counted until all others have ended.
    _alive: Alive,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, TICK> for Host { self.tick }
}

impl_has_work! {
    impl HasWork<Self, ZERO> for Host { self.zero }
    impl HasWork<Self, STEP> for Host { self.step }
}

fn filled<T: Default>(count: usize) -> Result<KVec<T>> {
    let mut all = KVec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        all.push(T::default(), GFP_KERNEL)?;
    }
    Ok(all)
}

impl Host {
    /// A host that serves nothing. Sleeps. ENOMEM.
    pub(super) fn new(memory: &Arc<Memory>, net: &Net, counts: Arc<Counts>) -> Result<Arc<Self>> {
        let limits = Limits {
            chunk: CHUNK,
            put: SMALL_MAX.into(),
            part: PART_MAX,
            jobs_per_target: 8,
            in_flight_max: IN_FLIGHT,
        };
        let copies = Copies::new(limits, slots(JOBS)?, filled(PEERS)?, filled(LINKS + 1)?);
        let state = State {
            counts: counts.clone(),
            served: Default::default(),
            listening: None,
            sides: filled(LINKS)?,
            peers: KVec::new(),
            ops: KVec::new(),
            copies,
            jobs: filled(JOBS)?,
            failed_jobs: KVec::with_capacity(JOBS, GFP_KERNEL)?,
            cancels: KVec::new(),
            copy_keys: KVec::new(),
            waiters: KVec::new(),
            broker: None,
            errands: Errands::new(slots(ERRANDS)?),
            queues: KVec::new(),
            asyncs: Asyncs::new()?,
            posted: 0,
            serial: 0,
            stopped: false,
        };
        Arc::pin_init(
            try_pin_init!(Self {
                memory: memory.clone(),
                net: net.clone(),
                counts,
                turns: Atomic::new(0),
                links: Atomic::new(0),
                state <- new_mutex!(state, "zrs_mem_host"),
                waits <- crate::new_wait_queue!("zrs_mem_host::waits"),
                tick <- new_delayed_work!("zrs_mem_host::tick"),
                zero <- new_work!("zrs_mem_host::zero"),
                step <- new_work!("zrs_mem_host::step"),
                _alive: memory.host_made(),
            }),
            GFP_KERNEL,
        )
    }

    /// Looks at times from now on.
    pub(super) fn start(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(TICK_MS);
        self.memory
            .queue
            .enqueue_or_move::<Self, TICK>(self.clone(), delay);
    }

    /// Ends the host: nothing of it is open any more. Sleeps; not in an item of the queue.
    pub(super) fn stop(self: &Arc<Self>) {
        self.wind_up();
        work::cancel_delayed::<Self, TICK>(self);
        self.memory.queue.flush();
    }

    /// Ends links and listeners, in the background. Sleeps.
    fn wind_up(self: &Arc<Self>) {
        let listening = {
            let st = &mut *self.state.lock();
            st.stopped = true;
            for slot in 0..LINKS {
                st.fail(slot, Status::Lost);
            }
            st.listening.take()
        };
        // Dropping it waits for its handlers, which take the lock.
        drop(listening);
    }

    /// Does something with the state, and then all that follows from it.
    pub(super) fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut State) -> R) -> R {
        let (out, gone) = {
            let st = &mut *self.state.lock();
            let out = f(st);
            (out, st.progress(self))
        };
        // The memory of a node is unpinned without the lock.
        drop(gone);
        self.turns.fetch_add(1, Relaxed);
        self.waits.wake_all();
        out
    }

    /// As [`Self::with`], again and again after something has happened, while `f` says `Again`; it
    /// has changed nothing then. EINTR for a task that is being killed.
    pub(super) fn with_room<R>(
        self: &Arc<Self>,
        mut f: impl FnMut(&mut State) -> Result<R, Status>,
    ) -> Result<Result<R, Status>> {
        loop {
            let (out, turn, gone) = {
                let st = &mut *self.state.lock();
                match f(st) {
                    // Under the lock: a later change increments `turns`.
                    Err(Status::Again) => (None, self.turns.load(Relaxed), None),
                    out => (Some(out), 0, Some(st.progress(self))),
                }
            };
            drop(gone);
            if let Some(out) = out {
                self.turns.fetch_add(1, Relaxed);
                self.waits.wake_all();
                return Ok(out);
            }
            if task::fatal_signal_pending() {
                return Err(EINTR);
            }
            self.wait(|| (self.turns.load(Relaxed) != turn).then_some(()))?;
        }
    }

    /// Waits until `cond` gives something; it must not sleep. EINTR for a task that is being
    /// killed.
    pub(super) fn wait<R>(&self, cond: impl FnMut() -> Option<R>) -> Result<R> {
        let waited = self.waits.wait(WaitMode::Killable, &mut None, cond);
        waited.map_err(|_| EINTR)
    }

    /// Waits for `ms` milliseconds. EINTR for a task that is being killed.
    pub(super) fn pause(&self, ms: u32) -> Result {
        let mut timeout = Some(msecs_to_jiffies(ms));
        let waited = self
            .waits
            .wait(WaitMode::Killable, &mut timeout, || None::<Infallible>);
        match waited {
            Err(WaitError::Interrupted) => Err(EINTR),
            _ => Ok(()),
        }
    }

    /// Zeroes pages, in the background.
    pub(super) fn zero_pages(self: &Arc<Self>) {
        let _ = self.memory.queue.enqueue::<Arc<Self>, ZERO>(self.clone());
    }

    /// Calls [`Self::with`] again, in the background: so the lock is not held for long.
    pub(super) fn step_again(self: &Arc<Self>) {
        let _ = self.memory.queue.enqueue::<Arc<Self>, STEP>(self.clone());
    }
}

impl WorkItem<TICK> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        let (errands, regions) = host.with(|st| {
            st.look_at_times(&host);
            let broker = st.broker.as_ref();
            (
                st.errands.any(now_ms()),
                broker.is_some_and(|b| b.has_regions()),
            )
        });
        // The last user has left its errands before it is gone. The broker's regions wait for its
        // next daemon: not for long, as they keep the network namespace.
        if !errands && host.memory.take_idle(&host, regions) {
            host.wind_up();
            return;
        }
        // Under the lock: `stop` cancels the item behind the one that has set `stopped`.
        let st = host.state.lock();
        if !st.stopped {
            host.start();
        }
    }
}

impl WorkItem<STEP> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        fault::asynchronous(|| host.with(|_| ()));
    }
}

impl WorkItem<ZERO> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        loop {
            let next = {
                let st = &mut *host.state.lock();
                let mut served = st.served.iter_mut().flatten();
                served.find_map(|s| Some((s.next_dirty()?, s.memory.clone())))
            };
            let Some(((run, at, len), memory)) = next else {
                return;
            };
            let zeroed = |run: Extent| {
                host.with(|st| {
                    let same = |s: &&mut Served| Arc::ptr_eq(&s.memory, &memory);
                    if let Some(served) = st.served.iter_mut().flatten().find(same) {
                        served.node.zeroed(run);
                    }
                })
            };
            if memory.zero(at, len).is_ok() {
                zeroed(run);
                continue;
            }
            // Pages that cannot be zeroed are never used again.
            let size = len / run.pages.max(1) as usize;
            for n in 0..run.pages {
                if memory.zero(at + u64::from(n) * size as u64, size).is_ok() {
                    let page = run.page + n;
                    zeroed(Extent { page, pages: 1 });
                }
            }
        }
    }
}

impl State {
    /// A number that was not used before; never 0.
    pub(super) fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Has the peer of the link at that slot asked, for `user` or for the host itself; `kind` is
    /// ended by the answer. `Lost` without a link, `NoMemory`: nothing is kept then.
    pub(super) fn ask_peer(
        &mut self,
        slot: usize,
        user: Option<u32>,
        kind: Kind,
        ask: MemHeader,
        payload: KVec<u8>,
    ) -> Result<(), Status> {
        let token = self.number();
        self.ops
            .reserve(1, GFP_KERNEL)
            .map_err(|_| Status::NoMemory)?;
        let side = self.side(slot).ok_or(Status::Lost)?;
        side.ask(user, ask, payload, token)
            .map_err(|_| Status::NoMemory)?;
        let _ = self.ops.push_within_capacity((token, kind));
        Ok(())
    }

    pub(super) fn take_op(&mut self, token: u64) -> Option<Kind> {
        let at = self.ops.iter().position(|o| o.0 == token)?;
        self.ops.remove(at).ok().map(|o| o.1)
    }

    pub(super) fn side(&mut self, slot: usize) -> Option<&mut Side> {
        self.sides.get_mut(slot)?.as_deref_mut()
    }

    /// The side at `slot`, if it is still that of the link with this serial number, and up.
    pub(super) fn live(&mut self, slot: usize, serial: u64) -> Option<&mut Side> {
        let side = self.side(slot)?;
        (side.serial == serial && side.life == Life::Up).then_some(side)
    }

    /// The place of a peer in `peers`; it is entered if it is new. `NoSpace` if all are in use.
    pub(super) fn peer(&mut self, ip: Ip) -> Result<usize, Status> {
        if let Some(at) = self.peers.iter().position(|p| *p == ip) {
            return Ok(at);
        }
        if self.peers.len() >= PEERS {
            let unused = (0..PEERS).find(|at| !self.is_known(*at));
            let at = unused.ok_or(Status::NoSpace)?;
            *self.peers.get_mut(at).ok_or(Status::NoSpace)? = ip;
            return Ok(at);
        }
        let entered = self.peers.push(ip, GFP_KERNEL);
        entered.map_err(|_| Status::NoMemory)?;
        Ok(self.peers.len() - 1)
    }

    /// Whether something refers to the peer at that place.
    fn is_known(&self, at: usize) -> bool {
        let owner = at as u32 + 1;
        let mut nodes = self.served.iter().flatten();
        self.sides.iter().flatten().any(|s| s.peer == at)
            || nodes.any(|s| s.node.owner_bytes(owner) != 0)
            || self.copies.has_target(at as u32)
            || self.broker.as_ref().is_some_and(|b| b.knows(owner))
    }

    /// Finds out who serves `node`, and makes a link to it if there is none.
    pub(super) fn route(&mut self, host: &Arc<Host>, node: NodeId) -> Result<Route, Status> {
        let own = host.memory.own_domain(&host.net);
        let node = node.qualified(own);
        if self.serves(node, own) {
            return Ok(Route::Here);
        }
        let ip = host.memory.resolve(&host.net, node).ok_or(Status::NoNode)?;
        if host.net.is_own(ip.v6(), ip.scope()) {
            return Err(Status::NoNode);
        }
        self.link_to(host, ip).map(Route::Link)
    }

    /// Whether this host serves `node`.
    pub(super) fn serves(&self, node: NodeId, own: u32) -> bool {
        self.place_of(node, own).is_some()
    }

    /// The place of `node` among the nodes that this host serves.
    pub(super) fn place_of(&self, node: NodeId, own: u32) -> Option<usize> {
        let is_it = |s: &Served| !s.closing && s.node.id().qualified(own) == node.qualified(own);
        let mut places = self.served.iter();
        places.position(|s| s.as_ref().is_some_and(is_it))
    }

    /// A place for a node that is not served yet. EBUSY if it is, ENOSPC if there are too many.
    pub(super) fn place_for(&self, id: NodeId, own: u32) -> Result<usize> {
        if self.serves(id, own) {
            return Err(EBUSY);
        }
        self.served.iter().position(Option::is_none).ok_or(ENOSPC)
    }

    /// Takes a node to a place that is free.
    pub(super) fn enter_node(&mut self, at: usize, node: &mut Option<Served>) -> usize {
        if let (Some(place), Some(mut served)) = (self.served.get_mut(at), node.take()) {
            served.node.set_place(at as u32);
            *place = Some(served);
        }
        at
    }

    /// The node at a place.
    pub(super) fn node_at(&mut self, place: usize) -> Option<&mut Served> {
        self.served.get_mut(place)?.as_mut()
    }

    /// The link for this host's asks to the host at `ip`; it is made if there is none. `Again`
    /// while the last one is being taken down, `Denied` if the list of peers does not allow it.
    pub(super) fn link_to(&mut self, host: &Arc<Host>, ip: Ip) -> Result<usize, Status> {
        let ours = |s: &Option<KBox<Side>>| {
            s.as_ref()
                .is_some_and(|s| s.end == End::Requester && s.ip == ip)
        };
        if let Some(slot) = self.sides.iter().position(ours) {
            let down = self.side(slot).is_none_or(|s| s.life == Life::Down);
            return if down { Err(Status::Again) } else { Ok(slot) };
        }
        let allowed = host.memory.peers.may_connect(&host.net, ip);
        allowed.map_err(|_| Status::Denied)?;
        let slot = self.enter(host, End::Requester, ip)?;
        if let Some(side) = self.side(slot) {
            side.link.start();
        }
        Ok(slot)
    }

    /// A place for a new link.
    pub(super) fn enter(&mut self, host: &Arc<Host>, end: End, ip: Ip) -> Result<usize, Status> {
        if self.stopped {
            return Err(Status::Unreachable);
        }
        let free = self.sides.iter().position(Option::is_none);
        let slot = free.ok_or(Status::NoSpace)?;
        let peer = self.peer(ip)?;
        let serial = self.number();
        let side = Side::new(host, slot, serial, end, ip, peer);
        let side = side.map_err(|_| Status::NoMemory)?;
        if let Some(place) = self.sides.get_mut(slot) {
            *place = Some(side);
        }
        Ok(slot)
    }

    /// The consequences of a change: grants and copies that must stop are stopped, other copies go
    /// on, operations whose region is quiet are answered, messages are posted. Returns the node if
    /// it has ended.
    #[must_use = "it is dropped without the lock"]
    fn progress(&mut self, host: &Arc<Host>) -> Option<Served> {
        self.revoke_what_ended();
        loop {
            self.copy_actions(host);
            self.tell_quiet(host);
            self.errand_actions(host);
            let changed = self.broker_actions(host) | self.grant_turns();
            if !(changed | self.queue_actions(host)) {
                break;
            }
        }
        for slot in 0..LINKS {
            self.flush(slot);
        }
        let over = |s: &mut Served| s.closing && s.node.regions() == 0;
        self.served.iter_mut().find_map(|s| s.take_if(over))
    }

    fn look_at_times(&mut self, host: &Arc<Host>) {
        let now = now_ms();
        for served in self.served.iter_mut().flatten() {
            while served.node.expire_one(now) {}
            let pages = served.node.pages();
            if pages.dirty != 0 {
                host.zero_pages();
            }
        }
        for slot in 0..LINKS {
            self.look_at_link(host, slot, now);
        }
        self.leave_stalled_targets(now);
        self.leave_stalled_nodes(now);
    }
}
