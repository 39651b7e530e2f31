// SPDX-License-Identifier: GPL-2.0

//! The receiving party: takes completions, verifies the messages that arrived, and delivers them to
//! their channels.
//!
//! The completion queue is drained in process context, under the link's `drain` mutex, so messages
//! are handled in the order in which they arrived. A thread that waits on the link drains it if
//! there is one (see [`InlinePoll`] for [`Link`]), else the link's work item does. The order is:
//! drain, arm, poll again. So an event may find an empty queue, which is normal, and no completion
//! is lost.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;

use super::link::{Link, LinkState, Queues};
use super::tx::{PART, SENT};
use crate::ib::cq::{Wc, WcOpcode, WcStatus};
use crate::kern::sock::SkRef;
use crate::kern::trace;
use crate::kern::wait::{InlinePoll, WaitQueue};
use crate::kern::{fault, task};
use crate::params;
use crate::pool::lease::{peer_waits_until, Requester};
use crate::pool::lessee::Lessee;
use crate::pool::HeldBlock;
use crate::proto::channel::{Channel, Event, Failure, State};
use crate::proto::rx_queue::{Moved, Segment};
use crate::proto::wire::{Header, Type, HEADER_LEN, HEARTBEAT_ASKS, SMALL_MAX};
use crate::proto::{ChanId, Violation};
use crate::socket::{report_failure, Held, Inner, Sock};
use crate::stats::STATS;

/// Completions that the worker takes before other work items run.
const BUDGET: usize = 512;
/// Completions that a waiting thread takes in one go.
const INLINE_BUDGET: usize = 64;
/// A busy-polling thread polls the completion queue this often before it checks its condition.
const LOOKS: u32 = 16;

fn new_wcs<const N: usize>() -> [Wc; N] {
    core::array::from_fn(|_| Wc::default())
}

/// A block of the shared receive queue that contains a message. Posted again when dropped, unless
/// the block is held.
struct Arrival<'a> {
    link: &'a Arc<Link>,
    queues: &'a Queues,
    block: Option<u32>,
    payload: usize,
}

impl Arrival<'_> {
    /// Keeps the payload until it is read. It stays in its block, or is copied if this link holds
    /// so many blocks that other links would run out of them. The owner of `sock` is charged for
    /// the copy. Sleeps.
    fn hold(&mut self, sock: &Sock, user: ChanId) -> Option<Held> {
        let block = self.block?;
        let crowded = self.link.blocks_held() >= params::LINK_CREDIT.get() / 2;
        if crowded {
            // Without memory for a copy, the payload stays in the block.
            let pool = &self.queues.pool;
            let copy = sock.promised(|flags| pool.copy_payload(block, self.payload, flags));
            match copy {
                Ok(copy) => {
                    STATS.rx_spilled.add(self.payload as u64);
                    pool.cache.counts.escapes.add(1);
                    sock.trace_escape(self.payload as u32, None, trace::EscapedFrom::Block);
                    return Some(Held::Copy(copy));
                }
                Err(_) => pool.cache.counts.failures.add(1),
            }
        }
        self.block = None;
        let (link, pool) = (self.link.clone(), self.queues.pool.clone());
        Some(Held::Block(HeldBlock::new(
            link,
            pool,
            block,
            self.payload,
            user,
        )))
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            self.queues.pool.repost(block);
            self.link.block_reposted();
        }
    }
}

impl Link {
    /// Runs the worker: takes completions, then sends messages that have room now. Sleeps.
    pub(super) fn run_completions(self: &Arc<Self>) {
        self.take_completions(BUDGET);
    }

    fn take_completions(self: &Arc<Self>, budget: usize) {
        let taken = self.drain_and_send(budget);
        // While the link connects, the connection manager reports the reason; later, a completion
        // may.
        if self.broken.load(Relaxed) && self.state() != LinkState::Connecting {
            self.fail_link_lost("its queue pair has failed");
        }
        if taken == 0 {
            STATS.empty_events.add(1);
        }
    }

    /// Takes completions until the queue is empty and armed, or the budget is used up. Then sends
    /// messages that have room now. Returns the number of completions.
    fn drain_and_send(self: &Arc<Self>, budget: usize) -> usize {
        let taken = self.drain(budget);
        if self.has_backlog() {
            self.transmit();
            self.wake_blocked_senders();
        }
        if taken >= budget {
            self.schedule_poll();
        }
        taken
    }

    /// Busy-polls the completion queue, at least once, until `cond` returns a value, `over` returns
    /// true, a signal is pending, or another task needs the processor (if the device is software,
    /// it yields instead). As with KVM's halt polling, the thread then sleeps, and is woken on an
    /// idle processor, or soon. Sleeps.
    pub(crate) fn spin<R>(
        self: &Arc<Self>,
        over: impl Fn() -> bool,
        mut cond: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        self.spinning.fetch_add(1, Full);
        let mut found = cond();
        while found.is_none() {
            let last = task::signal_pending() || over();
            if self.look(if last { 1 } else { LOOKS }) {
                self.transmit();
                self.wake_blocked_senders();
            }
            // Another thread may have taken the completions that `cond` waits for.
            found = cond();
            if last || found.is_some() {
                break;
            }
            task::relax();
            if task::cpu_wanted() {
                // With a software device, that task may be the one that produces the completions.
                if !self.is_software() {
                    break;
                }
                task::give_way();
            }
        }
        self.spinning.fetch_sub(1, Full);
        if self.event.load(Relaxed) {
            fault::asynchronous(|| self.stop_looking());
        }
        found
    }

    /// Arms the completion queue after busy-polling, so that it signals events again. Sleeps.
    fn stop_looking(self: &Arc<Self>) {
        let armed = {
            // The mutex also excludes the teardown of the link, which takes `queues` under it.
            let kept = self.drain.lock();
            let queues = kept.clone().or_else(|| self.tx.lock().queues.clone());
            self.event.xchg(false, Full);
            self.drained.fetch_add(1, Relaxed);
            queues.is_some_and(|q| matches!(q.cq.arm(), Ok(false)))
        };
        // Poll again if the queue could not be armed cleanly: completions were missed, or the
        // driver cannot tell.
        if !armed {
            self.drain_and_send(INLINE_BUDGET);
        }
    }

    /// Whether the link's device is implemented in software, by kernel threads.
    fn is_software(&self) -> bool {
        let tx = self.tx.lock();
        let queues = tx.queues.as_ref();
        queues.is_some_and(|q| q.verbs.pd.device().is_software())
    }

    /// Polls up to `times` times for completions and handles them, unless another thread is
    /// draining. Does not arm the queue. Stops early if another task needs the processor. Returns
    /// whether there were any.
    fn look(self: &Arc<Self>, times: u32) -> bool {
        let Some(mut kept) = self.drain.try_lock() else {
            return false;
        };
        if kept.is_none() && self.state() == LinkState::Connecting {
            return false;
        }
        let Some(queues) = self.drain_queues(&mut kept) else {
            return false;
        };
        let mut wcs = new_wcs::<4>();
        self.looked.store(task::jiffies() as usize, Relaxed);
        for turn in 1.. {
            if fault::asynchronous(|| self.take_some(queues, &mut wcs)) > 0 {
                return true;
            }
            if turn >= times || task::cpu_wanted() {
                break;
            }
            task::cpu_relax();
        }
        false
    }

    /// Takes completions until it has at least `budget`, or the queue is empty; arms an empty
    /// queue. Returns the number taken. Sleeps.
    pub(super) fn drain(self: &Arc<Self>, budget: usize) -> usize {
        let mut kept = self.drain.lock();
        self.event.xchg(false, Full);
        self.drained.fetch_add(1, Relaxed);
        let Some(queues) = self.drain_queues(&mut kept) else {
            return 0;
        };
        let mut wcs = new_wcs::<16>();
        let mut taken = 0;
        while taken < budget {
            let n = self.take_some(queues, &mut wcs);
            taken += n;
            if n == wcs.len() {
                // More completions are likely. Messages that can be sent now do not wait for them.
                self.transmit();
                continue;
            }
            match queues.cq.arm() {
                // Completions may have arrived before the queue was armed.
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    // There would be no event for the next completion.
                    self.fail_link_lost("its completion queue cannot be armed");
                    break;
                }
            }
        }
        taken
    }

    /// The queues to poll; `kept`: the data of `drain`. `None` while the link connects, and after
    /// its teardown.
    fn drain_queues<'a>(self: &Arc<Self>, kept: &'a mut Option<Queues>) -> Option<&'a Queues> {
        if kept.is_none() {
            let (queues, state) = {
                let tx = self.tx.lock();
                (tx.queues.clone(), tx.state)
            };
            let queues = queues?;
            if state == LinkState::Connecting && !self.up_on_terms() {
                // The peer's messages came before the connection manager's event: they wait for the
                // terms.
                return None;
            }
            *kept = Some(queues);
        }
        kept.as_ref()
    }

    fn take_some(self: &Arc<Self>, queues: &Queues, wcs: &mut [Wc]) -> usize {
        let taken = queues.cq.poll(wcs);
        for wc in wcs.iter().take(taken) {
            self.completed(queues, wc);
        }
        STATS.completions.add(taken as u64);
        taken
    }

    fn completed(self: &Arc<Self>, queues: &Queues, wc: &Wc) {
        let id = wc.wr_id();
        if id & SENT != 0 {
            if !wc.is_ok() {
                let why = match wc.status() {
                    WcStatus::RetryExceeded => Failure::TimedOut,
                    _ => Failure::LinkLost,
                };
                self.fail_and_log(why, format_args!("a request: {:?}", wc.status()));
            }
            // A message's work requests before its SEND complete only on error.
            if id & PART == 0 {
                let mut next = Some((id & !SENT) as u16);
                while let Some(done) = next.and_then(|slot| self.slot_done(slot)) {
                    next = done.finish();
                }
            }
            return;
        }
        let mut arrival = Arrival {
            link: self,
            queues,
            block: Some(id as u32),
            payload: (wc.byte_len() as usize).saturating_sub(HEADER_LEN),
        };
        queues.pool.taken();
        if !wc.is_ok() {
            self.fail_link_lost(format_args!("a receive: {:?}", wc.status()));
            return;
        }
        // After a protocol violation, the peer's messages are discarded.
        if self.distrusted.load(Relaxed) {
            return;
        }
        // A WRITE with immediate would consume a block without writing to it: the block would be
        // read with its old contents.
        let plain = wc.opcode() == WcOpcode::Recv
            && wc.imm().is_none()
            && wc.invalidated_rkey().is_none()
            && wc.byte_len() as usize <= HEADER_LEN + SMALL_MAX as usize;
        if !plain {
            self.violated(Violation::Type);
            return;
        }
        if let Err(violation) = self.arrived(&mut arrival, wc.byte_len() as usize) {
            self.violated(violation);
        }
    }

    fn arrived(self: &Arc<Self>, arrival: &mut Arrival<'_>, bytes: usize) -> Result<(), Violation> {
        if bytes < HEADER_LEN {
            return Err(Violation::Length);
        }
        let block = arrival.block.ok_or(Violation::State)?;
        let queues = arrival.queues;
        let header = queues
            .pool
            .read_header(&queues.verbs, block, arrival.payload)
            .map_err(|_| Violation::Length)?;
        let h = Header::decode(&header, arrival.payload as u32)?;
        {
            let mut tx = self.tx.lock();
            let Some(flow) = tx.flow.as_mut() else {
                // The link failed before it was up: that is not the peer's fault.
                return Ok(());
            };
            flow.arrived(h.link_credit)?;
            tx.pong_pending |= h.kind == Type::Heartbeat && h.arg0 == HEARTBEAT_ASKS;
            tx.liveness.on_rx();
        }
        match h.kind {
            Type::LinkCredit | Type::Heartbeat => {}
            // Only the side that made the link opens channels on it.
            Type::Connect if !self.accepted => return Err(Violation::State),
            Type::Connect => {
                if let Err(why) = self.transport.connect_request(self, &h)? {
                    let mut no = Header::new(Type::Reject, h.src, ChanId::default());
                    no.arg0 = why as u32;
                    self.reply(no);
                }
            }
            _ => self.for_channel(arrival, &h)?,
        }
        Ok(())
    }

    fn for_channel(
        self: &Arc<Self>,
        arrival: &mut Arrival<'_>,
        h: &Header,
    ) -> Result<(), Violation> {
        let Some(sock) = self.transport.table.owner(h.dst) else {
            self.no_channel(h);
            return Ok(());
        };
        let mut held = match h.kind {
            Type::Data => arrival.hold(&sock, h.dst),
            _ => None,
        };
        let mut result = deliver(self, &sock, h, &mut held, true);
        if matches!(result, Ok(Delivery::QueueFull)) {
            sock.make_room(h.dst);
            result = deliver(self, &sock, h, &mut held, false);
        }
        if let Some(Held::Block(block)) = held {
            block.repost();
        }
        let Delivery::Done(event, follow) = result? else {
            self.no_channel(h);
            return Ok(());
        };
        if follow.room {
            sock.wake_write();
        }
        let (mut pending, mut window_done) = (follow.pending, follow.window_done);
        match event {
            Event::None | Event::Unwanted => {}
            // The threads that wait were woken under the socket's lock.
            Event::Opened | Event::Failed => {}
            Event::Busy => self.transport.arm_timer(&sock),
            Event::Data | Event::Written { .. } => {
                self.rx_bytes.add(u64::from(h.len));
                if follow.crowded {
                    sock.ask_for_doorbell();
                    pending = true;
                }
                sock.wake_read(follow.sk);
            }
            Event::WindowWanted => {
                let lessee: Arc<dyn Lessee> = sock.clone();
                if !arrival
                    .queues
                    .pool
                    .want_window(&lessee, Requester::PEER, peer_waits_until())
                {
                    sock.inner.lock().chan.with(Channel::deny);
                }
                pending = true;
            }
            Event::Fin => sock.wake_state(),
            // Room was handled above, as for every message.
            Event::Room => {}
            // Segments that stayed in the queue only because their pages are lent leave it now.
            // They may have been the last ones.
            Event::Revoked => {
                sock.reap();
                (pending, window_done) = (true, true);
            }
        }
        if pending {
            self.kick(&sock);
        }
        if follow.over {
            sock.try_finish();
        } else if window_done {
            sock.try_release_window();
        }
        Ok(())
    }

    /// Handles a message for a channel that does not exist.
    fn no_channel(self: &Arc<Self>, h: &Header) {
        // FIN, END, RESET, CREDIT and REJECT may cross with the channel's last message. Any other
        // message shows that the peer believes the channel to be open.
        let late = matches!(
            h.kind,
            Type::Fin | Type::End | Type::Reset | Type::Credit | Type::Reject
        );
        if !late {
            self.reply(Header::new(Type::Reset, h.src, h.dst));
        }
    }
}

/// A thread that waits on the link takes completions while it waits.
impl InlinePoll for Arc<Link> {
    fn queue(&self) -> &WaitQueue {
        &self.pollers
    }

    fn pending(&self) -> bool {
        self.event.load(Relaxed)
    }

    fn poll(&self) {
        fault::asynchronous(|| self.take_completions(INLINE_BUDGET));
    }

    fn defer(&self) {
        self.schedule_poll();
    }
}

/// The outcome of a message for a channel.
enum Delivery {
    /// No channel of the link has this number, or the channel has ended.
    NoChannel,
    /// The socket's queue must be enlarged first.
    QueueFull,
    /// Delivered. The follow-up is done without the socket's lock.
    Done(Event, FollowUp),
}

/// The follow-up to a message that was delivered.
#[derive(Default)]
struct FollowUp {
    /// A sender waits for the room, or the window, that the message brought.
    room: bool,
    /// The channel has a control message to send.
    pending: bool,
    /// The channel has ended.
    over: bool,
    /// The window can go back to the pool.
    window_done: bool,
    /// The socket has a ring, and the peer may soon be out of room.
    crowded: bool,
    /// The struct sock, if data arrived.
    sk: Option<SkRef>,
}

/// Delivers a message to its channel, under the socket's lock. `may_grow`: the caller can enlarge
/// the socket's queue.
fn deliver(
    link: &Arc<Link>,
    sock: &Arc<Sock>,
    h: &Header,
    held: &mut Option<Held>,
    may_grow: bool,
) -> Result<Delivery, Violation> {
    // Only an ACCEPT opens a connection.
    let local = (h.kind == Type::Accept).then(|| link.local_ip());
    let mut inner = sock.inner.lock();
    let inner = &mut *inner;
    let ours = inner.link.as_ref().is_some_and(|l| Arc::ptr_eq(l, link));
    if !ours || inner.chan.id() != Some(h.dst) {
        return Ok(Delivery::NoChannel);
    }
    if may_grow && matches!(h.kind, Type::Data | Type::Written) && inner.rx_is_short() {
        return Ok(Delivery::QueueFull);
    }
    let was = inner.state_before();
    let heard = inner.chan.with(|chan| {
        let closed = chan.state() == State::Closed;
        (!closed).then(|| (chan.on_message(h), chan.take_room()))
    });
    let Some((event, room)) = heard.flatten() else {
        return Ok(Delivery::NoChannel);
    };
    let event = event?;
    let mut follow = FollowUp {
        // As TCP: only a sender that found the channel full is woken.
        room: room && mem::take(&mut inner.wants_room),
        ..Default::default()
    };
    match event {
        // Woken under the lock: a thread that sees the connection open and then waits for new
        // events must not get this one later.
        Event::Opened => {
            if let Some(local) = local {
                Sock::opened(inner, local);
            }
            sock.wake_state_in(inner);
        }
        Event::Busy => {
            inner.backoff.refused(task::now_ns());
            inner.deadline = Some(inner.backoff.deadline());
        }
        Event::Failed => {
            report_failure(inner);
            sock.wake_state_in(inner);
        }
        Event::Data => {
            let born = match held {
                Some(Held::Block(block)) => block.born(),
                _ => task::now_ns(),
            };
            push(inner, h, None, 0, held.take(), born)?;
        }
        Event::Written { off, pad } => {
            let window = inner.window.as_ref();
            let born = window.map(|w| w.arrived(off as usize, h.len as usize, h.dst));
            push(inner, h, Some(off), pad, None, born.unwrap_or(0))?;
        }
        Event::Revoked => sock.on_revoked(inner),
        _ => {}
    }
    if matches!(event, Event::Data | Event::Written { .. }) {
        follow.crowded = inner.has_crowded_ring();
        follow.sk = inner.sk.clone();
    }
    follow.pending = inner.chan.has_pending_control();
    follow.over = inner.chan.is_over();
    follow.window_done = inner.is_window_done();
    inner.trace_state_change(was);
    Ok(Delivery::Done(event, follow))
}

/// Appends received data to the socket's queue, and to its ring if it has one.
fn push(
    inner: &mut Inner,
    h: &Header,
    window_off: Option<u32>,
    pad: u32,
    held: Option<Held>,
    born: u64,
) -> Result<(), Violation> {
    let segment = Segment {
        pos: h.pos,
        len: h.len,
        window_off,
        pad,
        // Blocks are never mapped: their data is read by recv().
        claimed: window_off.is_none(),
        held,
        taken: 0,
        mapped: 0,
        born,
        moved: Moved::No,
    };
    let index = inner.rx.push(segment)?;
    inner.arrived += 1;
    inner.publish(index);
    Ok(())
}
