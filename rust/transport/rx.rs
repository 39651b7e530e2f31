// SPDX-License-Identifier: GPL-2.0

//! The receiving party: takes completions, verifies the messages that arrived, and delivers them to
//! their channels.
//!
//! The completion queue is drained in process context, under the link's `drain` mutex, so messages
//! are handled in their order of arrival. A thread that waits on the link drains it if
//! there is one (see [`InlinePoll`] for [`Link`]), else the link's work item does. The order is:
//! drain, arm, poll again. So an event may find an empty queue, which is normal, and no completion
//! is lost.
//!
//! A thread here has the `drain` mutex and may sleep, but the link stands still then: long work (a
//! window's memory, the end of a link) is left to workers. A message is delivered
//! under the connection's lock alone, after `Link::tx` was released; `kick()` and `transmit()` take
//! a connection's lock under `Link::tx`. Documentation/locking.rst has the order of all locks, and
//! tests/lib/structure.py the folders that this folder may use. This file knows connections as
//! [`ConnOps`] and receive memory as [`Pool`], and no socket. Documentation/protocol.rst, Credit,
//! says who counts and tells credit.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;

use super::backlog::Backlog;
use super::conn::{ConnOps, Delivery};
use super::link::{Link, LinkState, Queues};
use super::tx::{PART, SENT};
use crate::ib::cq::{Wc, WcOpcode, WcStatus};
use crate::kern::wait::{InlinePoll, WaitQueue};
use crate::kern::{fault, task};
use crate::params;
use crate::pool::kept::KeptBlock;
use crate::pool::{Held, HeldBlock, Pool};
use crate::proto::channel::{Event, Failure};
use crate::proto::dgram::credit::held_most;
use crate::proto::dgram::wire::Message;
use crate::proto::wire::{Header, Type, HEADER_LEN, HEARTBEAT_ASKS, SMALL_MAX};
use crate::proto::{ChanId, Violation};
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

/// A block of a receive queue that contains a message. Posted again when dropped, unless the block
/// is held.
pub(super) struct Arrival<'a> {
    link: &'a Arc<Link>,
    queues: &'a Queues,
    block: Option<u32>,
    payload: usize,
}

impl Arrival<'_> {
    /// The pool that the block is in.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.queues.pool
    }

    /// Copies the first bytes of the payload to `out`. EINVAL if they are more than a block has.
    pub(super) fn read(&self, out: &mut [u8]) -> Result {
        let block = self.block.ok_or(EINVAL)?;
        self.queues.pool.read_payload(block, out)
    }

    /// Leaves the payload, which fills the block, to `kept`; another block is posted again in its
    /// place. Errors: as [`KeptBlock::fill`].
    pub(super) fn keep(&mut self, kept: &mut KeptBlock) -> Result {
        let block = self.block.ok_or(EINVAL)?;
        self.block = Some(kept.fill(&self.queues.pool, block, self.payload)?);
        Ok(())
    }

    /// Keeps the payload until it is read. It stays in its block, or is copied if this link holds
    /// enough blocks to starve other links, and delivery would not copy it. The owner of `conn` is
    /// charged for the copy. Sleeps.
    fn hold(&mut self, conn: &dyn ConnOps, user: ChanId) -> Option<Held> {
        let block = self.block?;
        let crowded = self.link.blocks_held() >= held_most(params::LINK_CREDIT.get());
        if crowded && !conn.copies_small() {
            // Without memory for a copy, the payload stays in the block.
            let pool = &self.queues.pool;
            match conn.copy_payload(pool, block, self.payload) {
                Ok(copy) => {
                    STATS.rx_spilled.add(self.payload as u64);
                    pool.cache.counts.escapes.add(1);
                    return Some(Held::Copy(copy));
                }
                Err(_) => pool.cache.counts.failures.add(1),
            }
        }
        self.block = None;
        let (link, rx) = (self.link.clone(), self.queues.rx.clone());
        Some(Held::Block(HeldBlock::new(
            link,
            rx,
            block,
            self.payload,
            user,
        )))
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            self.queues.rx.repost(block);
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
        let mut backlog = Backlog::default();
        let taken = self.drain(budget, &mut backlog);
        if backlog.is_on(self) {
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
        while found.is_none() && !self.is_barred() {
            let last = task::signal_pending() || over();
            if self.by_program(|| self.look(if last { 1 } else { LOOKS })) {
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
            self.count_drain();
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
    /// whether there were any, and messages may have room now.
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
        let (mut wcs, mut backlog) = (new_wcs::<4>(), Backlog::default());
        self.looked.store(task::jiffies() as usize, Relaxed);
        for turn in 1.. {
            if fault::asynchronous(|| self.take_some(queues, &mut wcs, &mut backlog)) > 0 {
                return backlog.is_on(self);
            }
            if turn >= times || task::cpu_wanted() {
                break;
            }
            task::cpu_relax();
        }
        false
    }

    /// Takes completions until it has at least `budget`, or the queue is empty; arms an empty
    /// queue. Returns the number taken; `backlog`: whether messages may have room now. Sleeps.
    pub(super) fn drain(self: &Arc<Self>, budget: usize, backlog: &mut Backlog) -> usize {
        let mut kept = self.drain.lock();
        self.event.xchg(false, Full);
        self.count_drain();
        let Some(queues) = self.drain_queues(&mut kept) else {
            return 0;
        };
        let mut wcs = new_wcs::<16>();
        let mut taken = 0;
        while taken < budget {
            let n = self.take_some(queues, &mut wcs, backlog);
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

    /// The completion queue was drained or armed. The caller has the drain lock.
    fn count_drain(&self) {
        let before = self.drained.load(Relaxed);
        self.drained.store(before.wrapping_add(1), Relaxed);
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

    fn take_some(
        self: &Arc<Self>,
        queues: &Queues,
        wcs: &mut [Wc],
        backlog: &mut Backlog,
    ) -> usize {
        let taken = queues.cq.poll(wcs);
        for wc in wcs.iter().take(taken) {
            self.completed(queues, wc, backlog);
        }
        STATS.completions.add(taken as u64);
        taken
    }

    fn completed(self: &Arc<Self>, queues: &Queues, wc: &Wc, backlog: &mut Backlog) {
        let id = wc.wr_id();
        if id & SENT != 0 {
            if !wc.is_ok() {
                let why = match wc.status() {
                    WcStatus::RetryExceeded => Failure::TimedOut,
                    _ => Failure::LinkLost,
                };
                self.fail_and_log(why, format_args!("a request: {:?}", wc.status()));
            }
            // A message's work requests before its SEND complete only on error, or where all are
            // signaled.
            if id & PART == 0 {
                let mut next = Some((id & !SENT) as u16);
                while let Some(done) = next.and_then(|slot| self.slot_done(slot, backlog)) {
                    next = done.finish(wc.is_ok());
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
        queues.rx.taken(id as u32);
        if !wc.is_ok() {
            if let Some(block) = arrival.block.take() {
                queues.rx.failed(block);
            }
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
        if let Err(violation) = self.arrived(&mut arrival, wc.byte_len() as usize, backlog) {
            self.violated(violation);
        }
    }

    fn arrived(
        self: &Arc<Self>,
        arrival: &mut Arrival<'_>,
        bytes: usize,
        backlog: &mut Backlog,
    ) -> Result<(), Violation> {
        if bytes < HEADER_LEN {
            return Err(Violation::Length);
        }
        let block = arrival.block.ok_or(Violation::State)?;
        let queues = arrival.queues;
        let header = queues
            .pool
            .read_header(&queues.verbs, block, arrival.payload)
            .map_err(|_| Violation::Length)?;
        let features = self.features.load(Relaxed);
        let message = Message::decode(&header, arrival.payload as u32, features, self.accepted)?;
        let (conn, proving) = {
            let tx = &mut *self.tx.lock();
            let Some(flow) = tx.flow.as_mut() else {
                // The link failed before it was up: that is not the peer's fault.
                return Ok(());
            };
            flow.arrived(message.link_credit())?;
            tx.reposts.set_due_at(flow.due_at());
            tx.pong_pending |= matches!(&message, Message::Stream(h)
                if h.kind == Type::Heartbeat && h.arg0 == HEARTBEAT_ASKS);
            tx.liveness.on_rx();
            backlog.check(tx);
            let conn = match &message {
                Message::Stream(h) => self.transport.table.find(h.dst, &tx.channels),
                Message::Dgram(_) => None,
            };
            (conn, tx.proving)
        };
        if proving {
            return self.proof_arrived(&message, |out| queues.pool.read_payload(block, out));
        }
        let h = match message {
            Message::Stream(h) => h,
            Message::Dgram(h) => return self.dgram_arrived(&h, arrival),
        };
        match h.kind {
            Type::LinkCredit | Type::Heartbeat => {}
            Type::Challenge | Type::Proof => return Err(Violation::State),
            // Only the side that made the link opens channels on it.
            Type::Connect if !self.accepted => return Err(Violation::State),
            Type::Connect => self.connect_arrived(h)?,
            _ => self.for_channel(arrival, &h, conn)?,
        }
        Ok(())
    }

    /// Handles a message for a channel; `conn`: the channel's connection, if the link has it.
    fn for_channel(
        self: &Arc<Self>,
        arrival: &mut Arrival<'_>,
        h: &Header,
        conn: Option<Arc<dyn ConnOps>>,
    ) -> Result<(), Violation> {
        // The word of an ended channel spares a late message the copy. Else delivery verifies it.
        let Some(conn) = conn.filter(|conn| conn.word().may_be(h.dst)) else {
            self.no_channel(h);
            return Ok(());
        };
        let mut held = match h.kind {
            Type::Data => arrival.hold(&*conn, h.dst),
            _ => None,
        };
        let mut result = conn.deliver(self, h, &mut held, true);
        if matches!(result, Ok(Delivery::QueueFull)) {
            conn.make_room(h.dst);
            result = conn.deliver(self, h, &mut held, false);
        }
        if let Some(Held::Block(block)) = held {
            block.repost();
        }
        let Delivery::Done(event, follow) = result? else {
            self.no_channel(h);
            return Ok(());
        };
        if follow.room {
            conn.write_space();
        }
        let (mut pending, mut window_done) = (follow.pending, follow.window_done);
        match event {
            Event::None | Event::Unwanted => {}
            // The threads that wait were woken under the connection's lock.
            Event::Opened | Event::Failed => {}
            Event::Busy => self.transport.arm_timer(&*conn),
            Event::Data | Event::Written { .. } => {
                // The caller has the drain lock.
                self.rx_bytes.add_alone(u64::from(h.len));
                if follow.crowded {
                    conn.clone().ask_for_doorbell();
                    pending = true;
                }
                conn.data_ready(follow.sk);
            }
            Event::WindowWanted => {
                arrival.queues.pool.request_window(conn.clone().lessee());
            }
            Event::Fin => conn.state_change(),
            // Room was handled above, as for every message.
            Event::Room => {}
            // Segments that stayed in the queue only because their pages are lent leave it now.
            // They may have been the last ones.
            Event::Revoked => {
                conn.reap();
                (pending, window_done) = (true, true);
            }
        }
        if pending {
            self.kick(&conn);
        }
        if follow.over {
            conn.try_finish();
        } else if window_done {
            conn.release_window();
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
            self.reply(Header::new(Type::Reset, h.src, h.dst).into());
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
        if self.is_barred() {
            return self.schedule_poll();
        }
        let take = || fault::asynchronous(|| self.take_completions(INLINE_BUDGET));
        self.by_program(take);
    }

    fn defer(&self) {
        self.schedule_poll();
    }
}
