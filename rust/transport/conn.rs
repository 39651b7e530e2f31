// SPDX-License-Identifier: GPL-2.0

//! A connection: [`Conn`], its state on the wire, and [`ConnOps`], the owner of that state. Nothing
//! in this folder knows a socket: the links and the connection table hold owners as trait objects.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::Arc;

use super::conn_table::{Chan, ConnWord};
use super::link::{Link, RetryPolicy};
use super::sched::{Channels, FlowId};
use super::tx::Payload;
use crate::kern::net::Net;
use crate::kern::sock::SkRef;
use crate::params;
use crate::pool::cache::Copied;
use crate::pool::lessee::Lessee;
use crate::pool::window::WindowUse;
use crate::pool::{Held, Pool};
use crate::proto::autocork::AutoCork;
use crate::proto::channel::{Channel, Chunk, Event, Failure, Plan, State};
use crate::proto::link_table::{Grant, Recall};
use crate::proto::liveness::Silence;
use crate::proto::quota::Holder;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::{Header, SMALL_MAX};
use crate::proto::{ChanId, Violation};
use crate::uapi::zrs_info;

/// The state of a connection on the wire; cf. `struct smc_connection`. It is part of what the lock
/// of its owner guards, which is the lock of the connection's entry in the table.
pub(crate) struct Conn {
    /// The link that carries the channel.
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) chan: Chan,
    /// The channel is queued on its link to send a control message.
    queued: bool,
    /// A sender found the channel without room.
    pub(crate) wants_room: bool,
    /// poll() has reported room to send, and nothing was sent since: the next non-blocking send
    /// takes at least a small message.
    pub(crate) promised: bool,
    /// The device is done with our memory up to this stream position.
    tx_done: u64,
    /// Chunks were posted up to this stream position.
    tx_posted: u64,
    /// End of the last chunk whose completion is waited for: see `Payload::is_awaited`.
    tx_pinned: u64,
    /// Sequence number, on the link, of the last chunk that was posted.
    tx_seq: u64,
    /// Sequence number and end of an earlier chunk: when the device is done with that message, it
    /// is done with the stream up to that position.
    tx_mark: (u64, u64),
    /// Which small messages wait for each other.
    autocork: AutoCork,
    /// The channel whose timers the transport checks.
    watched: Option<ChanId>,
}

impl Conn {
    /// Neither channel nor link.
    pub(crate) const fn none() -> Self {
        Self {
            link: None,
            chan: Chan::none(),
            queued: false,
            wants_room: false,
            promised: false,
            tx_done: 0,
            tx_posted: 0,
            tx_pinned: 0,
            tx_seq: 0,
            tx_mark: (0, 0),
            autocork: AutoCork::new(),
            watched: None,
        }
    }

    /// Starts again with a channel that `link` will carry. A former channel has ended, and has no
    /// link any more.
    pub(crate) fn open(&mut self, chan: Chan, link: &Arc<Link>) {
        *self = Self {
            link: Some(link.clone()),
            chan,
            wants_room: self.wants_room,
            watched: self.watched,
            ..Self::none()
        };
        self.chan.set_current();
    }

    /// Whether `link` carries the channel.
    pub(crate) fn is_on(&self, link: &Arc<Link>) -> bool {
        self.link.as_ref().is_some_and(|l| Arc::ptr_eq(l, link))
    }

    /// The channel has got its flow on `link`. Returns false if it has ended in between, or has
    /// moved to another link.
    pub(super) fn attached(&mut self, link: &Arc<Link>, flow: FlowId) -> bool {
        self.is_on(link) && self.chan.set_flow(flow)
    }

    /// Whether the channel is queued on its link to send a control message.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued
    }

    /// Queues the channel in `channels`, those of `link`, if it is on that link and has a control
    /// message to send.
    pub(super) fn enqueue_control(&mut self, link: &Arc<Link>, channels: &mut Channels) {
        let pending = self.is_on(link) && self.chan.has_pending_control();
        if let Some(FlowId { id, flow }) = self.chan.flow().filter(|_| pending) {
            self.queued = channels.enqueue(TrafficClass::Control, id, flow);
        }
    }

    /// The next control message, if `flow` is the channel's. Queues it again in `channels` if it
    /// has more.
    pub(crate) fn next_control(&mut self, flow: FlowId, channels: &mut Channels) -> NextControl {
        let mut next = NextControl::default();
        // The owner may have a new channel by now.
        if self.chan.id() != Some(flow.id) {
            return next;
        }
        let mut pending = false;
        self.chan.with(|c| {
            next.header = c.next_control();
            pending = c.has_pending_control();
            next.closed = c.state() == State::Closed;
            next.failed = next.closed && c.failure().is_some();
        });
        self.queued = pending
            && next.header.is_some()
            && channels.enqueue(TrafficClass::Control, flow.id, flow.flow);
        next
    }

    /// Commits the chunk `plan`, which becomes message `seq` of the link; the device is done with
    /// the link's messages up to `done`. `held`: the chunk's bytes were corked by
    /// [`Self::autocorks`]. `None` if the channel has ended, or if it has no room for the chunk any
    /// more.
    pub(crate) fn commit(
        &mut self,
        plan: Plan,
        payload: &Payload,
        held: bool,
        seq: u64,
        done: u64,
    ) -> Option<Commit> {
        let (chunk, received) = self
            .chan
            .with(|c| Some((c.commit(plan)?, c.received())))
            .flatten()?;
        let end = chunk.header.pos.wrapping_add(u64::from(chunk.header.len));
        let in_slot = matches!(payload, Payload::Copied);
        let small = in_slot && chunk.write_to.is_none() && params::AUTOCORKING.get() != 0;
        let may = small && (held || chunk.header.len < SMALL_MAX);
        let on_its_way = done < self.tx_seq;
        let marks = self.autocork.posted(end, received, may, on_its_way, held);
        self.tx_posted = end;
        self.tx_seq = seq;
        self.promised &= matches!(plan, Plan::Corked(_));
        let (mark, pos) = self.tx_mark;
        if done >= mark {
            self.tx_done = self.tx_done.max(pos);
            self.tx_mark = (seq, end);
        }
        if payload.is_awaited() {
            self.tx_pinned = end;
        }
        Some(Commit { chunk, end, marks })
    }

    /// Whether small messages are corked until the device has completed one on its way.
    pub(crate) fn autocorks(&self) -> bool {
        self.autocork.holds(self.tx_done)
    }

    /// The device is done with our memory up to stream position `pos`; `u64::MAX`: it will not
    /// access it again.
    pub(crate) fn completed(&mut self, pos: u64) {
        self.tx_done = self.tx_done.max(pos);
    }

    /// Whether the device is done with our memory up to stream position `pos`.
    pub(crate) fn is_completed(&self, pos: u64) -> bool {
        self.tx_done >= pos
    }

    /// Whether the device may still read pages of the program, or copied bytes of a call with
    /// MSG_ZEROCOPY.
    pub(crate) fn has_pinned(&self) -> bool {
        self.tx_done < self.tx_pinned
    }

    /// End of the last chunk that calls or notifications wait for.
    pub(crate) fn pinned_end(&self) -> u64 {
        self.tx_pinned
    }

    /// Sequence number, on the link, of the last chunk that was posted.
    pub(crate) fn last_seq(&self) -> u64 {
        self.tx_seq
    }

    /// Bytes that were posted, and are not known to be acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        // Without a link the channel has ended, and only pinned pages may still be in flight.
        let posted = match self.link {
            Some(_) => self.tx_posted,
            None => self.tx_pinned,
        };
        posted.saturating_sub(self.tx_done)
    }

    /// The transport's list of timers has the channel from now on. Returns the channel if it was
    /// not in the list yet.
    pub(crate) fn watch(&mut self) -> Option<ChanId> {
        let id = self.chan.id();
        let before = core::mem::replace(&mut self.watched, id);
        id.filter(|_| before != id)
    }

    /// `Some`: the channel stays in the transport's list of timers; `None`: it leaves the list.
    pub(crate) fn set_watched(&mut self, id: Option<ChanId>) {
        self.watched = id;
    }
}

/// The owner of a connection. Cf. `sk_data_ready`, `sk_write_space` and `sk_state_change` of a
/// `struct sock`.
///
/// Unless a method says otherwise it takes the owner's lock, does not sleep, and may be called
/// under the link's `tx`.
pub(crate) trait ConnOps: Send + Sync + 'static {
    /// The user and the network namespace whose quotas the channel counts against.
    fn holder(&self) -> Holder;

    /// A description for programs; `None` if the connection is not of `net`. Takes the link's lock.
    fn info(&self, net: &Net) -> Option<zrs_info>;

    /// The connection as the pool sees it. Takes no lock.
    fn lessee(self: Arc<Self>) -> Arc<dyn Lessee>;

    /// The word of the connection's entry. Takes no lock.
    fn word(&self) -> &Arc<ConnWord>;

    /// Calls `work` on the connection, under the owner's lock.
    fn with(&self, work: &mut dyn FnMut(&mut Conn));

    // For the connection table.

    /// Returns the grant of entry `id` to the table, unless `recall` declines it. Only tries the
    /// connection's lock: called under the table's.
    fn recall(&self, id: ChanId, recall: &mut Recall) -> Option<Grant<KBox<Channel>>>;

    /// The channel was idle and its state was parked. Takes the link's lock.
    fn parked(self: Arc<Self>);

    /// The link is gone: moves unread data out of blocks of the receive queue. Sleeps.
    fn vacate_blocks(self: Arc<Self>);

    // For the scheduler.

    /// The marks of senders that wait for room. Takes no lock.
    fn tx_blocked(&self) -> &TxBlocked;

    /// Wakes threads that wait to send.
    fn write_space(&self);

    /// Sends the corked bytes. Takes the link's lock.
    fn flush(self: Arc<Self>) -> bool;

    // For the transmitting party.

    /// As [`Conn::commit`]. Charges a payload in a slot against the send buffer; `None` also if
    /// that has no room any more. Releases the send lock and counts the bytes, except for a corked
    /// chunk.
    fn commit(
        self: &Arc<Self>,
        plan: Plan,
        payload: &Payload,
        seq: u64,
        done: u64,
    ) -> Option<Committed>
    where
        Self: Sized;

    /// The device is done with the channel's memory up to stream position `pos`. Wakes waiting
    /// threads, and sends the bytes that were corked until then. Takes the link's lock.
    fn tx_complete(self: Arc<Self>, pos: u64);

    /// As [`Conn::next_control`], with the window that the message grants.
    fn next_control(&self, flow: FlowId, channels: &mut Channels) -> NextControl;

    // For the receiving party.

    /// Whether [`ConnOps::deliver`] copies small messages to memory of the program, and needs their
    /// blocks no longer than that.
    fn copies_small(&self) -> bool;

    /// Copies the payload of a block of `pool`; the connection's owner is charged. Sleeps.
    fn copy_payload(&self, pool: &Pool, block: u32, len: usize) -> Result<Copied>;

    /// Delivers message `h`, which arrived on `link`, and takes its payload from `held`, or copies
    /// it. `may_grow`: the caller can enlarge the receive queue. Takes the link's lock first.
    fn deliver(
        &self,
        link: &Arc<Link>,
        h: &Header,
        held: &mut Option<Held>,
        may_grow: bool,
    ) -> Result<Delivery, Violation>;

    /// Makes room in the receive queue for one more message on channel `id`; aborts the channel if
    /// there is no memory. Sleeps.
    fn make_room(&self, id: ChanId);

    /// Data has arrived: wakes the threads that wait to read. `sk`: the struct sock, as it was when
    /// the data arrived.
    fn data_ready(&self, sk: Option<SkRef>);

    /// The peer may soon be out of room: asks the program to return segments. Sleeps.
    fn ask_for_doorbell(self: Arc<Self>);

    /// Releases consumed segments. Not under a spinlock.
    fn reap(&self);

    // For timers, and the end of links and channels.

    /// As [`Conn::watch`]; also returns when the channel's timers are due, in nanoseconds of the
    /// monotonic clock.
    fn watch(&self) -> (Option<ChanId>, Option<u64>);

    /// The same if a timer runs: returns the channel then.
    fn watch_if_due(&self) -> Option<ChanId>;

    /// Checks the timers of channel `id` at `now`. Returns when to check again; `None`: the channel
    /// leaves the list. Takes the link's lock. Sleeps.
    fn check_timers(self: Arc<Self>, id: ChanId, now: u64) -> Option<u64>;

    /// The peer of `link` does not answer. Returns when the connection's time limit for that ends,
    /// if it has one. Takes the link's lock. Sleeps.
    fn on_silence(self: Arc<Self>, link: &Arc<Link>, silence: Silence) -> Option<u64>;

    /// `link` has gone down. `retry`: whether a connect may be retried on a new link. Sleeps.
    fn link_lost(self: Arc<Self>, link: &Arc<Link>, why: Failure, retry: RetryPolicy);

    /// Wakes all waiting threads: the state has changed.
    fn state_change(&self);

    /// Releases what the connection holds if the channel has ended. Takes the link's lock.
    fn try_finish(self: Arc<Self>);

    /// Returns the window to the pool if nothing can come into it and nothing in it is unread.
    fn release_window(&self);
}

/// A chunk that was committed by [`Conn::commit`].
pub(crate) struct Commit {
    pub(crate) chunk: Chunk,
    /// The stream position of its end.
    pub(crate) end: u64,
    /// Corked bytes wait for its completion.
    pub(crate) marks: bool,
}

/// A chunk that was committed by the owner of a connection.
pub(crate) struct Committed {
    pub(crate) commit: Commit,
    pub(crate) charge: Option<Charge>,
    /// Threads wait for the send lock, which was released.
    pub(crate) wanted: bool,
}

/// A control message of a channel.
#[derive(Default)]
pub(crate) struct NextControl {
    pub(crate) header: Option<Header>,
    /// A window to be registered before the message leaves.
    pub(crate) window: Option<WindowUse>,
    /// The channel is closed: it sends no more messages.
    pub(crate) closed: bool,
    /// The channel is closed because it has failed.
    pub(crate) failed: bool,
}

/// The outcome of a message for a channel.
pub(crate) enum Delivery {
    /// No channel of the link has this number, or the channel has ended.
    NoChannel,
    /// The receive queue must be enlarged first.
    QueueFull,
    /// Delivered. The follow-up is done without the connection's lock.
    Done(Event, FollowUp),
}

/// The follow-up to a message that was delivered.
#[derive(Default)]
pub(crate) struct FollowUp {
    /// A sender waits for the room, or the window, that the message brought.
    pub(crate) room: bool,
    /// The channel has a control message to send.
    pub(crate) pending: bool,
    /// The channel has ended.
    pub(crate) over: bool,
    /// The window can go back to the pool.
    pub(crate) window_done: bool,
    /// The program has a ring, and the peer may soon be out of room.
    pub(crate) crowded: bool,
    /// The struct sock, if data arrived.
    pub(crate) sk: Option<SkRef>,
}

/// The owner of a send buffer: a connection, or a datagram socket.
pub(crate) trait SendBuffer: Send + Sync {
    /// `bytes` of a [`Charge`] no longer count against the send buffer. May wake threads that wait
    /// to send. Not under a spinlock.
    fn uncharge(&self, bytes: usize);
}

/// Bytes that count against a send buffer until this is dropped. The caller that drops it holds no
/// spinlock.
pub(crate) struct Charge {
    buffer: Arc<dyn SendBuffer>,
    bytes: usize,
    /// These bytes fill the send buffer: waiting threads need to know when the device has sent
    /// them.
    fills: bool,
}

impl Charge {
    /// A charge of `bytes`, which `buffer` has counted.
    pub(crate) fn new(buffer: Arc<dyn SendBuffer>, bytes: usize, fills: bool) -> Self {
        Self {
            buffer,
            bytes,
            fills,
        }
    }

    /// Charged bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reduces the charge to `bytes`, if that is less. Takes the connection's lock.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.buffer.uncharge(less);
    }

    /// Whether the message with these bytes needs a signaled completion.
    pub(crate) fn fills(&self) -> bool {
        self.fills
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.buffer.uncharge(self.bytes);
    }
}

/// Marks that senders of a connection wait for room on its link.
pub(crate) struct TxBlocked {
    /// For each data class, small and bulk: a sender found the link full, and is woken when there
    /// is room.
    classes: [Atomic<bool>; 2],
    /// Corked bytes wait for room on the link, or for the send lock. Changes under the connection's
    /// lock.
    cork: Atomic<bool>,
}

impl TxBlocked {
    /// No sender waits.
    pub(crate) fn new() -> Self {
        Self {
            classes: [Atomic::new(false), Atomic::new(false)],
            cork: Atomic::new(false),
        }
    }

    /// Clears the mark of a class, and returns it. Under the link's lock.
    pub(super) fn take(&self, class: TrafficClass) -> bool {
        self.is_set(class) && self.of_class(class).xchg(false, Full)
    }

    /// Whether a sender waits for room on the link.
    pub(crate) fn is_set(&self, class: TrafficClass) -> bool {
        self.of_class(class).load(Acquire)
    }

    /// Sets the mark of a class. Under the link's lock.
    pub(super) fn set(&self, class: TrafficClass) {
        self.of_class(class).store(true, Relaxed);
    }

    fn of_class(&self, class: TrafficClass) -> &Atomic<bool> {
        let [small, bulk] = &self.classes;
        match class {
            TrafficClass::Bulk => bulk,
            TrafficClass::Small | TrafficClass::Control => small,
        }
    }

    /// Whether corked bytes wait for room on the link, or for the send lock.
    pub(crate) fn cork(&self) -> bool {
        self.cork.load(Relaxed)
    }

    /// Sets whether corked bytes wait. Under the connection's lock.
    pub(crate) fn set_cork(&self, waits: bool) {
        self.cork.store(waits, Relaxed);
    }
}
