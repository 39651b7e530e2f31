// SPDX-License-Identifier: GPL-2.0

//! A link: one queue pair between two hosts, for all channels between them. `blocks`: the blocks
//! of a link that is being made. `life`: how a link comes up, and ends. `poll`: the thread or
//! worker that takes its completions. `teardown`: the release of its objects.
//!
//! Connecting -> Up -> Down, or Connecting -> Down; a link never goes back. Where the hosts have a
//! key for each other, a link stays Connecting until they have proved it. [`Link::fail`] sets the
//! state to Down and records the first reason. It may be called anywhere but in interrupts. A work
//! item does the rest: it drains the completion queue, notifies the channels, and destroys the
//! queue pair, the id and the memory. So a handler never destroys an object that it is working on.
//!
//! Locks: `drain` (mutex) is taken before `tx`. For the order with the locks of sockets see
//! `socket.rs`.

#![deny(unsafe_code)]

mod blocks;
mod life;
mod poll;
mod teardown;

use kernel::alloc::kvec::KVVec;
use kernel::fmt;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::workqueue::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork, Work, WorkItem,
};

use super::backlog::Reposts;
use super::connects::{ConnectRequest, CONNECTS};
use super::context::Transport;
use super::dgram::{DgramReceiver, DgramRx, DgramTx, DGRAM_STALL};
use super::links::Asker;
use super::proof::LinkProof;
use super::sched::Channels;
use super::tx::{TxBuffers, TxSlot, CONTROL_SLOTS, CONTROL_WRS};
use crate::ib::cq::Cq;
use crate::ib::qp::Qp;
use crate::kern::fault;
use crate::kern::net::Net;
use crate::kern::task;
use crate::kern::wait::WaitQueue;
use crate::params;
use crate::pool::device::Verbs;
use crate::pool::receives::{LinkReceives, Receives};
use crate::pool::window::WindowUse;
use crate::pool::Pool;
use crate::proto::addr::Ip;
use crate::proto::channel::Failure;
use crate::proto::control_reserve::ControlReserve;
use crate::proto::dgram::wire::Message;
use crate::proto::link_flow::LinkFlow;
use crate::proto::liveness::Liveness;
use crate::proto::proof;
use crate::proto::quota::Holder;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::{Agreed, Hello, Versions, FEATURES};
use crate::qp_link::LinkId;
use crate::stats::Counter;

/// The number of a user that no user has.
const NO_USER: u32 = u32::MAX;

/// Where a link is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkState {
    /// The queue pair is being connected.
    Connecting,
    /// The link can carry channels.
    Up,
    /// The link has failed or was ended; teardown is running or done.
    Down,
}

/// A link.
#[pin_data]
pub(crate) struct Link {
    /// The link's number. Never 0, and not reused while the module is loaded.
    pub(crate) id: u32,
    pub(crate) transport: Arc<Transport>,
    /// Takes the datagrams that arrive. `None` if the module was being unloaded when the link was
    /// made.
    pub(super) dgram_receiver: Option<Arc<dyn DgramReceiver>>,
    pub(crate) net: Net,
    remote: Ip,
    /// Blocks that hold unread data of this link, and the flag [`ENDED`](teardown::ENDED).
    held: Atomic<u32>,
    /// Blocks that were posted again.
    pub(super) reposts: Arc<Reposts>,
    /// The peer has made the link. Such a link carries none of our connects: the address that the
    /// peer gave for itself is not verified.
    pub(crate) accepted: bool,
    /// The holder whose quota the link counts against, if datagrams have made it.
    pub(super) charged: Option<Holder>,
    /// The holder that has asked for the link; `None` if the peer makes it.
    pub(super) holder: Option<Holder>,
    /// The administrator has asked for the link.
    for_admin: Atomic<bool>,
    /// The user whose connect has asked for the link, if the number of those is limited; else
    /// [`NO_USER`].
    asked_by: Atomic<u32>,
    /// The peer has violated the protocol: its messages are discarded.
    pub(super) distrusted: Atomic<bool>,
    /// This host's hello offers and demands a proof.
    pub(super) keyed: Atomic<bool>,
    /// The feature bits that both hosts have; set before the link is up.
    pub(super) features: Atomic<u32>,
    /// When the last channel left or a datagram passed, in nanoseconds of the monotonic clock.
    pub(super) empty_since: Atomic<u64>,
    /// The completion queue has signalled an event and has not been armed again since.
    pub(super) event: Atomic<bool>,
    /// Threads that busy-poll the completion queue, and need no wake-up.
    pub(super) spinning: Atomic<u32>,
    /// When a busy-polling thread last polled the completion queue, in jiffies.
    pub(super) looked: Atomic<usize>,
    /// How often a thread has drained the completion queue, or armed it after busy-polling. Changes
    /// under `drain`.
    pub(super) drained: Atomic<usize>,
    /// The value of `drained` when a thread was last woken to poll.
    watched: Atomic<usize>,
    /// The backstop is queued, or about to be, and has not looked for an event yet.
    backstopped: Atomic<bool>,
    /// Until this time, in jiffies, every event goes to the worker: a thread that was woken to poll
    /// was too slow, or was preempted while it polled.
    barred: Atomic<usize>,
    /// How long the next bar lasts, in milliseconds.
    bar_ms: Atomic<u32>,
    /// The completion queue or the queue pair has failed.
    pub(super) broken: Atomic<bool>,
    /// The queue pair, in error, takes no more receives out of a shared receive queue.
    last_receive: Atomic<bool>,
    /// How often a sender found the link full since [`Self::is_short`] last returned true.
    pub(super) short: Atomic<u32>,
    /// The route is known, and the work item that connects asks the peer.
    pub(super) routed: Atomic<bool>,
    /// It waits for blocks; see [`Link::await_blocks`]. The thread that clears this lets it go on.
    awaits_blocks: Atomic<bool>,
    /// The work item that connects looks for blocks again.
    pub(super) tries_again: Atomic<bool>,
    /// Changes under `tx`.
    pub(crate) tx_bytes: Counter,
    /// Changes under `drain`.
    pub(crate) rx_bytes: Counter,
    /// How often a sender found the link full.
    pub(crate) waits: Counter,
    #[pin]
    pub(super) tx: SpinLock<Tx>,
    #[pin]
    pub(super) cm: LinkId,
    /// Serialises polling of the completion queue. Guards a copy of `Tx::queues`, which is made
    /// when the link is up.
    #[pin]
    pub(super) drain: Mutex<Option<Queues>>,
    /// Used before the link is up.
    #[pin]
    pub(super) proof: Mutex<LinkProof>,
    /// Threads that wait for messages or completions of this link.
    #[pin]
    pub(super) pollers: WaitQueue,
    /// Threads that wait for room for a datagram.
    #[pin]
    pub(crate) dgram_wait: WaitQueue,
    /// Used under `drain`, and by the teardown.
    #[pin]
    pub(super) dgram_rx: Mutex<DgramRx>,
    #[pin]
    dgram_stall: DelayedWork<Link, DGRAM_STALL>,
    #[pin]
    work: Work<Link, POLL>,
    #[pin]
    start: Work<Link, CONNECT>,
    #[pin]
    down: Work<Link, TEARDOWN>,
    #[pin]
    backstop: DelayedWork<Link, BACKSTOP>,
    #[pin]
    reschedule: DelayedWork<Link, RESCHEDULE>,
    /// CONNECTs that the work item has not handled yet.
    #[pin]
    pub(super) connects: SpinLock<KVec<ConnectRequest>>,
    #[pin]
    accept: Work<Link, CONNECTS>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, BACKSTOP> for Link { self.backstop }
    impl HasDelayedWork<Self, RESCHEDULE> for Link { self.reschedule }
    impl HasDelayedWork<Self, DGRAM_STALL> for Link { self.dgram_stall }
}

impl_has_work! {
    impl HasWork<Self, POLL> for Link { self.work }
    impl HasWork<Self, CONNECT> for Link { self.start }
    impl HasWork<Self, TEARDOWN> for Link { self.down }
    impl HasWork<Self, CONNECTS> for Link { self.accept }
}

/// Work item: polls the completion queue.
const POLL: u64 = 0;
/// Work item: starts connecting.
const CONNECT: u64 = 1;
/// Work item: tears the link down.
const TEARDOWN: u64 = 2;
/// Work item: polls the completion queue if the thread that was woken for it has not.
const BACKSTOP: u64 = 3;
/// Work item: wakes the next senders if the senders that were woken have not sent.
pub(super) const RESCHEDULE: u64 = 4;

/// Whether a connect may be retried on another link when its own link is down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// No.
    None,
    /// The link had been up. Its loss says nothing about whether the peer can be reached now.
    Lost,
    /// The peer mistook the link for one from before this host restarted, and has ended its old
    /// one.
    Stale,
}

impl RetryPolicy {
    /// How many retries are allowed.
    pub(crate) fn max_retries(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lost => 1,
            // The peer may still have this many links from before this host restarted.
            Self::Stale => 4,
        }
    }
}

/// The state that the link's spinlock guards.
pub(super) struct Tx {
    pub(super) state: LinkState,
    pub(super) was_up: bool,
    /// When it came up; before that, when it was made.
    since: u64,
    /// The queue pair is connected, and the hosts prove that they have a key.
    pub(super) proving: bool,
    /// The link must be replaced; see [`Link::fail_stale`].
    stale: bool,
    why: Failure,
    pub(super) local: Ip,
    pub(super) queues: Option<Queues>,
    /// Kept until the queue pair is gone.
    pub(super) receives: Option<LinkReceives>,
    /// The pool has promised blocks to the link.
    pub(super) promised: bool,
    /// The holder whose share of the device's links it is in.
    pub(super) share: Option<Holder>,
    pub(super) flow: Option<LinkFlow>,
    /// Blocks that were posted again; the same as the link's.
    pub(super) reposts: Arc<Reposts>,
    /// The peer's terms, which the accepting side knows before the link is up.
    terms: Option<Terms>,
    pub(super) buffers: Option<Arc<TxBuffers>>,
    pub(super) slots: KVec<TxSlot>,
    pub(super) free: KVec<u16>,
    /// Slots of messages whose post failed, in whole or in part. They never complete.
    pub(super) stuck: usize,
    /// Messages posted so far; the sequence number of the last one.
    pub(super) seq: u64,
    /// The sequence number of the last signaled one.
    pub(super) signaled_seq: u64,
    /// The device is done with all messages up to this sequence number, at least.
    pub(super) done: u64,
    /// Number of unsignaled messages since the last signaled one.
    pub(super) unsignaled: u8,
    /// The slot of the last of them.
    pub(super) last_unsignaled: Option<u16>,
    /// A thread needs the completion of the unsignaled messages: signal the next message.
    pub(super) signal_wanted: bool,
    /// Room in the send queue, in work requests.
    pub(super) sq_free: u32,
    /// Slots, and work requests, that data messages leave free for control messages.
    pub(super) control_slots: ControlReserve,
    pub(super) control_wrs: ControlReserve,
    /// Messages that outstanding reservations may still post.
    pub(super) reserved: u32,
    /// The channels of the link, and the queues of flows that wait to send.
    pub(super) channels: Channels,
    /// Bytes of bulk data in flight.
    pub(super) bulk: u32,
    /// Limit for `bulk`, in bytes.
    pub(super) bulk_most: u32,
    /// Limit for the bulk data of one message, in bytes.
    pub(super) bulk_chunk: u32,
    /// Replies to messages for channels that do not exist.
    pub(super) replies: KVec<Message>,
    /// Windows whose keys wait for their invalidation.
    pub(super) ending: KVec<WindowUse>,
    /// Datagrams that this side sends.
    pub(super) dgrams: DgramTx,
    /// Version and features; set when the link comes up.
    agreed: Option<Agreed>,
    /// How many links from this host the peer accepts.
    peer_takes: u32,
    /// Tracks whether the peer is alive.
    pub(super) liveness: Liveness,
    /// Send an empty message, so that the peer's device must acknowledge it.
    pub(super) probe_pending: bool,
    /// Send a heartbeat that asks the peer for a heartbeat in return.
    pub(super) ping_pending: bool,
    /// Send a heartbeat in return: the peer has asked for it.
    pub(super) pong_pending: bool,
    /// When there was last room for only one message, a corked socket got it; the next time it goes
    /// to bulk data.
    pub(super) cork_had_last: bool,
    /// A registration waits until no message is in flight; see [`Tx::drain_before_reg`].
    pub(super) draining: bool,
}

/// The amount of data that waits on a link or is in flight.
pub(crate) struct TxBacklog {
    /// Channels that wait to be scheduled.
    pub(crate) waiting: u32,
    /// Bytes of bulk data in flight.
    pub(crate) bulk: u32,
    /// Limit for `bulk`, in bytes; 0 before the device is known.
    pub(crate) bulk_most: u32,
}

/// The terms of a link, from the peer's hello and ours.
pub(super) struct Terms {
    pub(super) agreed: Agreed,
    pub(super) flow: LinkFlow,
    /// Whether this side sends datagrams.
    pub(super) dgrams: bool,
    /// Links that the peer accepts from this host.
    pub(super) links: u32,
}

/// The device's objects that a link uses.
#[derive(Clone)]
pub(super) struct Queues {
    pub(super) qp: Arc<Qp>,
    pub(super) cq: Arc<Cq>,
    pub(super) verbs: Arc<Verbs>,
    pub(super) pool: Arc<Pool>,
    pub(super) rx: Arc<Receives>,
    /// The most scatter-gather elements in one work request.
    pub(super) max_sge: usize,
    /// The device repeats registrations; see [`Tx::drain_before_reg`].
    pub(super) repeats_reg: bool,
    /// The device is done with the memory of signaled requests alone: all are signaled.
    pub(super) signals_all: bool,
}

impl Link {
    /// Makes a link to `remote` and does not start it. `local`: the source address, if the caller
    /// requires one. `asker`: on whose behalf; `None` if the peer makes the link.
    pub(crate) fn new(
        transport: &Arc<Transport>,
        net: &Net,
        local: Option<Ip>,
        remote: Ip,
        asker: Option<Asker>,
    ) -> Result<Arc<Self>> {
        static LAST: Atomic<u32> = Atomic::new(0);

        let gathered = Arc::new(Reposts::new(), GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                id: LAST.fetch_add(1, Relaxed).wrapping_add(1),
                transport: transport.clone(),
                dgram_receiver: transport.dgram_receiver(),
                net: net.clone(),
                remote,
                held: Atomic::new(0),
                reposts: gathered.clone(),
                accepted: asker.is_none(),
                charged: asker.and_then(|asker| asker.charged()),
                holder: asker.map(|asker| asker.holder),
                for_admin: Atomic::new(asker.is_some_and(|asker| asker.for_admin)),
                asked_by: Atomic::new(NO_USER),
                distrusted: Atomic::new(false),
                keyed: Atomic::new(false),
                features: Atomic::new(0),
                empty_since: Atomic::new(task::now_ns()),
                event: Atomic::new(false),
                spinning: Atomic::new(0),
                looked: Atomic::new(0),
                drained: Atomic::new(0),
                watched: Atomic::new(0),
                backstopped: Atomic::new(false),
                barred: Atomic::new(task::jiffies() as usize),
                bar_ms: Atomic::new(poll::BAR_LEAST_MS),
                broken: Atomic::new(false),
                last_receive: Atomic::new(false),
                short: Atomic::new(0),
                routed: Atomic::new(false),
                awaits_blocks: Atomic::new(false),
                tries_again: Atomic::new(false),
                tx_bytes: Counter::new(),
                rx_bytes: Counter::new(),
                waits: Counter::new(),
                tx <- new_spinlock!(Tx {
                    state: LinkState::Connecting,
                    was_up: false,
                    since: task::now_ns(),
                    proving: false,
                    stale: false,
                    why: Failure::LinkLost,
                    local: local.unwrap_or(remote.any_of_family()),
                    queues: None,
                    receives: None,
                    promised: false,
                    share: None,
                    flow: None,
                    reposts: gathered,
                    terms: None,
                    buffers: None,
                    slots: KVec::new(),
                    free: KVec::new(),
                    stuck: 0,
                    seq: 0,
                    signaled_seq: 0,
                    done: 0,
                    unsignaled: 0,
                    last_unsignaled: None,
                    signal_wanted: false,
                    sq_free: 0,
                    control_slots: ControlReserve::new(CONTROL_SLOTS as u32),
                    control_wrs: ControlReserve::new(CONTROL_WRS),
                    reserved: 0,
                    channels: Channels::new(KVVec::new()),
                    bulk: 0,
                    bulk_most: 0,
                    bulk_chunk: 0,
                    replies: KVec::new(),
                    ending: KVec::new(),
                    dgrams: DgramTx::default(),
                    agreed: None,
                    peer_takes: 1,
                    liveness: Liveness::new(task::now_ns()),
                    probe_pending: false,
                    ping_pending: false,
                    pong_pending: false,
                    cork_had_last: false,
                    draining: false,
                }, "zrs_link::tx"),
                cm <- LinkId::new(),
                drain <- new_mutex!(None, "zrs_link::drain"),
                proof <- new_mutex!(LinkProof::new(), "zrs_link::proof"),
                pollers <- crate::new_wait_queue!("zrs_link::pollers"),
                dgram_wait <- crate::new_wait_queue!("zrs_link::dgram_wait"),
                dgram_rx <- new_mutex!(DgramRx::default(), "zrs_link::dgram_rx"),
                dgram_stall <- new_delayed_work!("zrs_link::dgram_stall"),
                backstop <- new_delayed_work!("zrs_link::backstop"),
                reschedule <- new_delayed_work!("zrs_link::reschedule"),
                connects <- new_spinlock!(KVec::new(), "zrs_link::connects"),
                accept <- new_work!("zrs_link::accept"),
                work <- new_work!("zrs_link::work"),
                start <- new_work!("zrs_link::start"),
                down <- new_work!("zrs_link::down"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts connecting, in a kernel thread: binding a source port below 1024 needs the privilege
    /// of the kernel, which the program may not have.
    pub(crate) fn start(self: &Arc<Self>) {
        let _ = self
            .transport
            .queue
            .enqueue::<Arc<Self>, CONNECT>(self.clone());
    }

    /// The state.
    pub(crate) fn state(&self) -> LinkState {
        self.tx.lock().state
    }

    /// The peer's address.
    pub(crate) fn remote_ip(&self) -> Ip {
        self.remote
    }

    /// Our address; unspecified while it is not known yet.
    pub(crate) fn local_ip(&self) -> Ip {
        self.tx.lock().local
    }

    /// Whether the link is between these addresses in `net`.
    pub(super) fn is_from(&self, net: &Net, local: Ip, remote: Ip) -> bool {
        self.net == *net && self.remote == remote && self.local_ip() == local
    }

    /// Whether the same peer has made both links, to the same local address.
    pub(super) fn is_sibling(&self, other: &Self) -> bool {
        self.accepted && other.accepted && self.is_from(&other.net, other.local_ip(), other.remote)
    }

    /// Whether the link has been made, or has come up, within the last `ns` nanoseconds.
    pub(super) fn is_younger(&self, ns: u64, now: u64) -> bool {
        now.saturating_sub(self.tx.lock().since) < ns
    }

    /// Whether the link, which a peer makes, has not come up, and whether it is ending. `None`: it
    /// has, or its receives go to another pool than `pool`.
    pub(super) fn half_made_on(&self, pool: &Arc<Pool>) -> Option<bool> {
        let tx = self.tx.lock();
        let queues = tx.queues.as_ref();
        let here = queues.is_none_or(|q| Arc::ptr_eq(&q.pool, pool));
        (self.accepted && !tx.was_up && here).then_some(tx.state == LinkState::Down)
    }

    /// The administrator asks for the link.
    pub(super) fn set_for_admin(&self) {
        self.for_admin.store(true, Relaxed);
    }

    /// A connect of `user` that may use TCP asks for the link.
    pub(super) fn set_asked_by(&self, user: u32) {
        self.asked_by.store(user, Relaxed);
    }

    /// Whether a connect of `user` that may use TCP has asked for the link.
    pub(super) fn is_asked_by(&self, user: u32) -> bool {
        self.asked_by.load(Relaxed) == user
    }

    /// Whether the link must leave the pool's reserve of blocks to links that the administrator or
    /// a peer asks for.
    pub(super) fn leaves_reserve(&self) -> bool {
        !self.accepted && !self.for_admin.load(Relaxed)
    }

    /// The holder whose share of the device's links it counts against, if it is not for the
    /// administrator.
    pub(super) fn shares(&self) -> Option<Holder> {
        self.holder.filter(|_| self.leaves_reserve())
    }

    /// For how long the link has carried no channel and no datagram at `now`, in nanoseconds;
    /// `None` while it carries a channel.
    pub(crate) fn idle_for(&self, now: u64) -> Option<u64> {
        let empty = self.channels() == 0;
        empty.then(|| now.saturating_sub(self.empty_since.load(Relaxed)))
    }

    /// How many channels are on the link.
    pub(crate) fn channels(&self) -> usize {
        self.tx.lock().channels.len()
    }

    /// The amount of data that waits or is in flight now.
    pub(crate) fn sending(&self) -> TxBacklog {
        let tx = self.tx.lock();
        TxBacklog {
            waiting: tx.channels.waiting(TrafficClass::Small) as u32
                + tx.channels.waiting(TrafficClass::Bulk) as u32,
            bulk: tx.bulk,
            bulk_most: tx.bulk_most,
        }
    }

    /// The pool that the link's receives go to.
    pub(crate) fn pool(&self) -> Option<Arc<Pool>> {
        self.tx.lock().queues.as_ref().map(|q| q.pool.clone())
    }

    /// Whether its shared receive queue has failed.
    pub(super) fn queue_has_failed(&self) -> bool {
        let tx = self.tx.lock();
        let queues = tx.queues.as_ref();
        queues.is_some_and(|queues| queues.rx.has_failed())
    }

    /// Whether `pool` has promised blocks to the link.
    pub(super) fn is_promised_by(&self, pool: &Arc<Pool>) -> bool {
        let tx = self.tx.lock();
        let queues = tx.queues.as_ref();
        tx.promised && queues.is_some_and(|q| Arc::ptr_eq(&q.pool, pool))
    }

    /// The name of the link's device.
    pub(crate) fn device_name(&self) -> Option<crate::ib::device::DeviceName> {
        let verbs = self.tx.lock().queues.as_ref().map(|q| q.verbs.clone());
        verbs.map(|v| v.pd.device().name())
    }

    /// A line for debugfs: addresses, state, queues and free resources.
    pub(crate) fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tx = self.tx.lock();
        let credit = tx.flow.as_ref().map_or(0, |flow| flow.left_to_us());
        let (version, features) = tx.agreed.map_or((0, 0), |a| (a.version, a.features));
        writeln!(
            f,
            "{:?} -> {:?}: {:?} accepted={} version={version} features={features:#x} channels={} pending={} replies={} credit={} slots={}/{} \
             sq_free={} reserved={} waiting={}+{} bulk={}/{} held={} stuck={} sent={} done={} quiet={} asked={} event={} \
             polled={} barred={}",
            tx.local,
            self.remote,
            tx.state,
            self.accepted,
            tx.channels.len(),
            tx.channels.waiting(TrafficClass::Control),
            tx.replies.len(),
            credit,
            tx.free.len(),
            tx.slots.len(),
            tx.sq_free,
            tx.reserved,
            tx.channels.waiting(TrafficClass::Small),
            tx.channels.waiting(TrafficClass::Bulk),
            tx.bulk,
            tx.bulk_most,
            self.blocks_held(),
            tx.stuck,
            tx.seq,
            tx.done,
            tx.unsignaled,
            tx.signal_wanted,
            self.event.load(Relaxed),
            self.spinning.load(Relaxed),
            self.is_barred(),
        )
    }

    /// Why the link is down, and whether connects that waited for it may be retried.
    pub(super) fn reason(&self) -> (Failure, RetryPolicy) {
        let tx = self.tx.lock();
        let retry = match (tx.stale, tx.was_up) {
            (true, _) => RetryPolicy::Stale,
            (false, true) => RetryPolicy::Lost,
            (false, false) => RetryPolicy::None,
        };
        (tx.why, retry)
    }

    /// How many links from this host the peer accepts; 1 until it has said so.
    pub(crate) fn peer_takes(&self) -> u32 {
        self.tx.lock().peer_takes
    }

    /// Whether senders have found the link full so often that another link may help. Resets the
    /// count if so.
    pub(crate) fn is_short(&self) -> bool {
        let short = self.short.load(Relaxed) >= params::LINK_WAITS.get();
        if short {
            self.short.store(0, Relaxed);
        }
        short
    }
}

impl WorkItem<CONNECT> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        fault::asynchronous(|| super::cm::connect(&link));
    }
}

/// The hello that this host sends when it makes or accepts a link. `keyed`: there is a key for the
/// peer.
pub(super) fn hello(transport: &Transport, keyed: bool) -> Hello {
    let proof = if keyed { proof::FEATURE } else { 0 };
    Hello {
        versions: Versions::OURS,
        nonce: transport.nonce,
        features: FEATURES | proof,
        link_credit: params::LINK_CREDIT.get(),
        links: params::LINKS_PER_PEER.get(),
    }
}
