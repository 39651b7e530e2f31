// SPDX-License-Identifier: GPL-2.0

//! A connection as the transport sees it: [`ConnOps`], which sockets implement. Nothing in this
//! folder knows a socket: the links and the connection table hold connections as trait objects.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::Arc;

use super::link::{Link, RetryPolicy};
use super::sched::{Channels, FlowId};
use crate::kern::net::Net;
use crate::kern::sock::SkRef;
use crate::pool::cache::Copied;
use crate::pool::lessee::Lessee;
use crate::pool::window::WindowUse;
use crate::pool::{Held, Pool};
use crate::proto::channel::{Channel, Chunk, Event, Failure, Plan};
use crate::proto::link_table::{Grant, Recall};
use crate::proto::liveness::Silence;
use crate::proto::quota::Holder;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::Header;
use crate::proto::{ChanId, Violation};
use crate::uapi::zrs_info;

/// A connection: the owner of a channel. Cf. `sk_data_ready`, `sk_write_space` and
/// `sk_state_change` of a `struct sock`.
///
/// Every connection has a lock, the lock of its entry in the connection table. Unless a method says
/// otherwise it takes that lock, does not sleep, and may be called under the link's `tx`.
pub(crate) trait ConnOps: Send + Sync + 'static {
    /// The user and the network namespace whose quotas the channel counts against.
    fn holder(&self) -> Holder;

    /// A description for programs; `None` if the connection is not of `net`. Takes the link's lock.
    fn info(&self, net: &Net) -> Option<zrs_info>;

    /// The connection as the pool sees it. Takes no lock.
    fn lessee(self: Arc<Self>) -> Arc<dyn Lessee>;

    // For the connection table.

    /// Returns the grant of entry `id` to the table, unless `recall` declines it. Only tries the
    /// connection's lock: called under the table's.
    fn recall(&self, id: ChanId, recall: &mut Recall) -> Option<Grant<KBox<Channel>>>;

    /// The channel was idle and its state was parked. Takes the link's lock.
    fn parked(self: Arc<Self>);

    /// The link is gone: moves unread data out of blocks of the shared receive queue. Sleeps.
    fn vacate_blocks(self: Arc<Self>);

    // For the scheduler.

    /// The channel has got its flow on `link`. Returns false if it has ended in between, or has
    /// moved to another link.
    fn attached(&self, link: &Arc<Link>, flow: FlowId) -> bool;

    /// The channel's flow on its link.
    fn flow(&self) -> Option<FlowId>;

    /// What senders wait for. Takes no lock.
    fn tx_blocked(&self) -> &TxBlocked;

    /// Wakes threads that wait to send.
    fn write_space(&self);

    /// Sends the corked bytes. Takes the link's lock.
    fn flush(self: Arc<Self>) -> bool;

    // For the transmitting party.

    /// Commits the chunk `plan`, which becomes message `seq` of the link; the device is done with
    /// the link's messages up to `done`. Charges a `copied` payload against the send buffer.
    /// Releases the send lock, except for a corked chunk. `None` if the channel has ended, or if
    /// there is no room any more.
    fn commit(self: &Arc<Self>, plan: Plan, copied: bool, seq: u64, done: u64) -> Option<Committed>
    where
        Self: Sized;

    /// The device is done with the channel's memory up to stream position `pos`. Wakes waiting
    /// threads.
    fn tx_complete(&self, pos: u64);

    /// `bytes` of a [`Charge`] no longer count against the send buffer. May wake threads that wait
    /// to send. Not under a spinlock.
    fn uncharge(&self, bytes: usize);

    /// Queues the channel in `channels`, those of `link`, if it is on that link and has a control
    /// message to send.
    fn enqueue_control(&self, link: &Arc<Link>, channels: &mut Channels);

    /// The channel was dequeued from `channels`: its next control message. Queues it again if it
    /// has more.
    fn next_control(&self, flow: FlowId, channels: &mut Channels) -> NextControl;

    /// Whether the channel has a window to grant.
    fn grant_waits(&self) -> bool;

    // For the receiving party.

    /// Copies the payload of a block of `pool`; the connection's owner is charged. Sleeps.
    fn copy_payload(&self, pool: &Pool, block: u32, len: usize) -> Result<Copied>;

    /// Delivers message `h`, which arrived on `link`, and takes its payload from `held`.
    /// `may_grow`: the caller can enlarge the receive queue. Takes the link's lock first.
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

    /// The peer's request for a window is refused.
    fn deny_window(&self);

    // For timers, and the end of links and channels.

    /// The transport's list of timers has the channel from now on. Returns the channel if it was
    /// not in the list yet, and when its timers are due, in nanoseconds of the monotonic clock.
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

/// A chunk that was committed.
pub(crate) struct Committed {
    pub(crate) chunk: Chunk,
    /// The stream position of its end.
    pub(crate) end: u64,
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

/// Bytes that count against a connection's send buffer until this is dropped. The caller that
/// drops it holds no spinlock.
pub(crate) struct Charge {
    conn: Arc<dyn ConnOps>,
    bytes: usize,
    /// These bytes fill the send buffer: waiting threads need to know when the device has sent
    /// them.
    fills: bool,
}

impl Charge {
    /// A charge of `bytes`, which `conn` has counted.
    pub(crate) fn new(conn: Arc<dyn ConnOps>, bytes: usize, fills: bool) -> Self {
        Self { conn, bytes, fills }
    }

    /// Charged bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reduces the charge to `bytes`, if that is less. Takes the connection's lock.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.conn.uncharge(less);
    }

    /// Whether the message with these bytes needs a signaled completion.
    pub(crate) fn fills(&self) -> bool {
        self.fills
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.conn.uncharge(self.bytes);
    }
}

/// Marks that senders of a connection wait for room on its link.
pub(crate) struct TxBlocked {
    /// For each data class, small and bulk: a sender found the link full, and is to be woken when
    /// there is room.
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
