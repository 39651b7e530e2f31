// SPDX-License-Identifier: GPL-2.0

//! The transmitting party: turns chunks and control messages into work requests.
//!
//! A message takes a slot: room for its header in registered memory, a page for copied payload,
//! and a place for whatever must stay until the device is done with it. At most the SEND of a message
//! is signalled; its completion frees the slot, and with it the pins of the WRITEs before it. A message
//! that nobody waits for is signalled only now and then: requests complete in order, so that the next
//! completion frees the slots of those before it, and a completion costs both a wake-up and its share
//! of the queue.
//! Everything is posted under the link's spinlock, so that what a channel commits leaves in the
//! order of its positions.

#![deny(unsafe_code)]

use core::mem;

use kernel::iov::IovIterSource;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::link::{Link, LinkState, Queues, Tx};
use super::sched::FlowId;
use crate::ib::dma::{Direction, DmaRegion, DmaRuns, Sge};
use crate::ib::memory::PinnedRuns;
use crate::ib::mr::Access;
use crate::ib::pd::Pd;
use crate::ib::qp::{SendOp, SendWr};
use crate::kern::contig::ContigPages;
use crate::kern::errno::ENOTCONN;
use crate::kern::pin::PinnedPages;
use crate::kern::sock::zerocopy::Notification;
use crate::params;
use crate::pool::window::WindowUse;
use crate::proto::channel::{Plan, State};
use crate::proto::link_flow::LinkFlow;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::{Header, Type, HEADER_LEN, HEARTBEAT_ASKS, SMALL_MAX};
use crate::socket::{Charge, Sock};
use crate::stats::STATS;

/// Messages that may be under way on a link.
pub(super) const SLOTS: u16 = 128;
/// Slots that only control messages use.
pub(super) const CONTROL_SLOTS: usize = 8;
/// Work requests in a link's send queue.
pub(super) const SQ_DEPTH: u32 = 512;
/// Work requests of one message at most: WRITEs of a scattered chunk, a registration, the SEND.
pub(super) const MAX_WRS: usize = 6;
/// Elements of one chunk at most: a chunk of 4 KiB pages that begins within one, and the header.
const MAX_SGES: usize = 66;
/// Messages in a row that may go without a completion.
const SIGNAL_INTERVAL: u8 = 15;
/// Room for a header.
const HEADER_ROOM: usize = 128;

/// Registered memory to send from.
pub(super) struct TxBuffers {
    region: DmaRegion,
    mem: Arc<ContigPages>,
}

impl TxBuffers {
    /// Buffers for [`SLOTS`] messages. Sleeps.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        let headers = (usize::from(SLOTS) * HEADER_ROOM).div_ceil(PAGE_SIZE);
        let node = pd.device().numa_node();
        let mem = Arc::new(
            ContigPages::new(headers + usize::from(SLOTS), node)?,
            GFP_KERNEL,
        )?;
        let region = DmaRegion::map(pd, mem.clone(), Direction::ToDevice)?;
        Ok(Arc::new(Self { region, mem }, GFP_KERNEL)?)
    }

    fn header_at(slot: u16) -> usize {
        usize::from(slot) * HEADER_ROOM
    }

    fn payload_at(&self, slot: u16) -> usize {
        self.mem.bytes() - (usize::from(SLOTS - slot) * PAGE_SIZE)
    }

    fn put_header(&self, slot: u16, h: &Header) -> Result<Sge> {
        let at = Self::header_at(slot);
        self.mem.write(at, &h.encode())?;
        self.region.sync_for_device(at, HEADER_LEN)?;
        self.region.sge(at, HEADER_LEN)
    }

    fn payload(&self, slot: u16, len: usize) -> Result<Sge> {
        let at = self.payload_at(slot);
        self.region.sync_for_device(at, len)?;
        self.region.sge(at, len)
    }
}

/// Pages of a program, mapped for the link's device.
pub(crate) struct Pins {
    runs: DmaRuns<PinnedRuns>,
    /// What they count against their socket's SO_SNDBUF; given back after them.
    _charge: Option<Charge>,
}

/// A message under way.
#[derive(Default)]
pub(super) struct TxSlot {
    /// Work requests it takes in the send queue; 0: nothing is under way here.
    wrs: u32,
    /// Bytes that it writes into the peer's window.
    bulk: u32,
    /// Its place in the order of the link's messages.
    seq: u64,
    /// The message before it, if that has no completion of its own.
    unsignaled: Option<u16>,
    /// Whom to tell, and the position in the stream at which it ends.
    sock: Option<(Arc<Sock>, u64)>,
    /// What the device reads or changes until it completes.
    pins: Option<Arc<Pins>>,
    window: Option<WindowUse>,
    /// Whom to tell that the program may use these pages again, behind them.
    notify: Option<Notification>,
    /// What the copy in it counts against its socket's SO_SNDBUF.
    charge: Option<Charge>,
}

/// What a completed slot held; dropped outside of the lock.
pub(super) struct Done {
    pins: Option<Arc<Pins>>,
    window: Option<WindowUse>,
    sock: Option<(Arc<Sock>, u64)>,
    notify: Option<Notification>,
    charge: Option<Charge>,
    /// One before it that has completed with it, and holds something, too.
    before: Option<u16>,
}

impl Done {
    /// Lets go of the memory, then tells the program and the channel; returns what is to be done with next. Without
    /// spinlocks.
    pub(super) fn finish(self) -> Option<u16> {
        drop(self.pins);
        drop(self.window);
        drop(self.notify);
        drop(self.charge);
        if let Some((sock, pos)) = self.sock {
            sock.tx_complete(pos);
        }
        self.before
    }
}

/// Where the bytes of a chunk come from.
pub(crate) enum Payload {
    /// The slot's own page; see [`Reservation::fill`] and [`Reservation::put`].
    Copied,
    /// The program's pages, from this byte on, and what tells it that the device is done with them.
    Pinned(Arc<Pins>, usize, Option<Notification>),
}

/// The right to post one message: a slot, credit, and room in the send queue.
pub(crate) struct Reservation {
    link: Arc<Link>,
    buffers: Arc<TxBuffers>,
    place: FlowId,
    class: TrafficClass,
    slot: u16,
    wrs: u32,
    used: bool,
}

impl Reservation {
    /// Takes a slot and `wrs` work requests, for which there is room.
    pub(super) fn take(
        link: &Arc<Link>,
        tx: &mut Tx,
        place: FlowId,
        class: TrafficClass,
        wrs: u32,
    ) -> Option<Self> {
        let buffers = tx.buffers.clone()?;
        let slot = tx.free.pop()?;
        tx.reserved += 1;
        tx.sq_free -= wrs;
        Some(Self {
            link: link.clone(),
            buffers,
            place,
            class,
            slot,
            wrs,
            used: false,
        })
    }

    /// Copies up to `n` bytes, at most [`SMALL_MAX`], from the program into the slot, as far as
    /// they are present. Does not sleep.
    pub(crate) fn fill(&self, n: usize, from: &mut IovIterSource<'_>) -> usize {
        let n = n.min(SMALL_MAX as usize);
        let at = self.buffers.payload_at(self.slot);
        self.buffers
            .mem
            .copy_from_iter_nofault(at, n, from)
            .unwrap_or(0)
    }

    /// Copies what was held back into the slot, at most [`SMALL_MAX`] bytes. EINVAL if it is more.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result {
        if bytes.len() > SMALL_MAX as usize {
            return Err(EINVAL);
        }
        let at = self.buffers.payload_at(self.slot);
        self.buffers.mem.put_payload(at, bytes)
    }

    /// Commits the chunk `plan` of `sock`'s channel and posts it. Releases the send lock, except
    /// for a corked chunk: the next sender posts once the link's lock is free. Fails if the channel
    /// or the link has ended, or if there is no room for the chunk any more.
    pub(crate) fn post(
        mut self,
        sock: &Arc<Sock>,
        plan: Plan,
        payload: Payload,
    ) -> core::result::Result<Posted, Payload> {
        let link = self.link.clone();
        let mut guard = link.tx.lock();
        let tx = &mut *guard;
        if tx.state != LinkState::Up {
            return Err(payload);
        }
        let copied = matches!(payload, Payload::Copied);
        let corked = matches!(plan, Plan::Corked(_));
        let (chunk, end, charge, wanted) = {
            let mut inner = sock.inner.lock();
            if copied && !corked && !inner.may_hold(plan.len()) {
                return Err(payload);
            }
            let Some(chunk) = inner.chan.with(|c| c.commit(plan)).flatten() else {
                return Err(payload);
            };
            let charge = match (copied, corked) {
                (true, true) => inner.charge_corked(sock),
                (true, false) => inner.charge_copy(sock, plan.len()),
                (false, _) => None,
            };
            let end = chunk.header.pos.wrapping_add(u64::from(chunk.header.len));
            inner.tx_posted = end;
            inner.tx_seq = tx.seq + 1;
            let (seq, pos) = inner.tx_mark;
            if tx.done >= seq {
                inner.tx_done = inner.tx_done.max(pos);
                inner.tx_mark = (inner.tx_seq, end);
            }
            if !copied {
                inner.tx_pinned = end;
            }
            let wanted = !corked && inner.unlock_send();
            (chunk, end, charge, wanted)
        };
        self.used = true;
        tx.reserved = tx.reserved.saturating_sub(1);
        tx.sq_free += self.wrs;
        link.tx_bytes.add(u64::from(chunk.header.len));
        let bytes = chunk.header.len.saturating_add(HEADER_LEN as u32);
        let FlowId { id, flow } = self.place;
        tx.channels.sent(self.class, id, flow, bytes);
        let message = Message {
            header: chunk.header,
            write_to: chunk.write_to,
            // Nobody waits for the end of what was copied.
            sock: (!copied).then(|| (sock.clone(), end)),
            payload: match payload {
                Payload::Copied => Body::Slot,
                Payload::Pinned(pins, from, notify) => Body::Pinned(pins, from, notify),
            },
            window: None,
            charge,
            force_signal: false,
        };
        if post(tx, self.slot, message).is_err() {
            drop(guard);
            link.fail_link_lost("its send queue takes nothing");
        }
        Ok(Posted { wanted })
    }
}

/// A chunk was posted.
pub(crate) struct Posted {
    /// Threads wait for the send lock, which was released.
    pub(crate) wanted: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.used {
            let waited = {
                let mut tx = self.link.tx.lock();
                tx.reserved = tx.reserved.saturating_sub(1);
                tx.sq_free += self.wrs;
                let _ = tx.free.push_within_capacity(self.slot);
                tx.has_backlog()
            };
            if waited {
                // Somebody found no room while this held some.
                self.link.schedule_poll();
            }
        }
    }
}

/// What follows a header.
enum Body {
    None,
    Slot,
    Pinned(Arc<Pins>, usize, Option<Notification>),
}

struct Message {
    header: Header,
    write_to: Option<(u64, u32)>,
    payload: Body,
    /// A window to be registered before the message leaves.
    window: Option<WindowUse>,
    sock: Option<(Arc<Sock>, u64)>,
    charge: Option<Charge>,
    /// Its completion is wanted for what was before it.
    force_signal: bool,
}

/// Posts a message in slot `slot`. What the device needs of it stays in the slot, also on error:
/// part of it may have been taken. The link is to be ended then.
fn post(tx: &mut Tx, slot: u16, m: Message) -> Result {
    let posted = try_post(tx, slot, m);
    if posted.is_err() {
        tx.stuck += 1;
    }
    posted
}

fn try_post(tx: &mut Tx, slot: u16, m: Message) -> Result {
    let (Some(queues), Some(buffers), Some(flow)) = (&tx.queues, &tx.buffers, &mut tx.flow) else {
        return Err(EINVAL);
    };
    let mut header = m.header;
    header.link_credit = flow.sending();
    let len = header.len as usize;
    let place = tx.slots.get_mut(usize::from(slot)).ok_or(EINVAL)?;
    let bulk = if m.write_to.is_some() { header.len } else { 0 };
    let waited_for =
        m.sock.is_some() || m.window.is_some() || matches!(m.payload, Body::Pinned(..));
    // Those who wait for their turn hear of it by the completion.
    let crowded = bulk > 0 && tx.bulk >= tx.bulk_most / 2;
    let fills = m.charge.as_ref().is_some_and(Charge::fills);
    let signaled =
        waited_for || m.force_signal || crowded || fills || tx.unsignaled >= SIGNAL_INTERVAL;
    tx.bulk = tx.bulk.saturating_add(bulk);
    tx.seq += 1;
    *place = TxSlot {
        wrs: 0,
        bulk,
        seq: tx.seq,
        unsignaled: tx.last_unsignaled,
        sock: m.sock,
        pins: None,
        window: m.window,
        notify: None,
        charge: m.charge,
    };
    let mut sges = [Sge::default(); MAX_SGES];
    let count = match m.payload {
        Body::None => 0,
        Body::Slot => {
            sges[1] = buffers.payload(slot, len)?;
            1
        }
        Body::Pinned(pins, from, notify) => {
            let filled = pins.runs.fill_sges(from, len, &mut sges[1..]);
            place.pins = Some(pins);
            place.notify = notify;
            filled?.0
        }
    };
    sges[0] = buffers.put_header(slot, &header)?;
    let wrs = submit(queues, slot, signaled, &sges, count, m.write_to, place)?;
    place.wrs = wrs;
    tx.sq_free = tx.sq_free.saturating_sub(wrs);
    (tx.last_unsignaled, tx.unsignaled) = match signaled {
        true => (None, 0),
        false => (Some(slot), tx.unsignaled + 1),
    };
    tx.signal_wanted &= !signaled;
    Ok(())
}

/// Builds the chain: registration, WRITEs, SEND; and hands it to the device.
fn submit(
    queues: &Queues,
    slot: u16,
    signaled: bool,
    sges: &[Sge; MAX_SGES],
    count: usize,
    write_to: Option<(u64, u32)>,
    place: &TxSlot,
) -> Result<u32> {
    let wr_id = SENT | u64::from(slot);
    let mut wrs: [SendWr<'_>; MAX_WRS] = [SendWr {
        wr_id: wr_id | PART,
        op: SendOp::Send { sges: &[] },
        signaled: false,
    }; MAX_WRS];
    let mut n = 0;
    if let Some(window) = &place.window {
        wrs[n].op = SendOp::Reg {
            mr: window.mr(),
            access: Access::Write,
        };
        n += 1;
    }
    let payload = &sges[1..=count];
    let mut body = sges.get(..=count).ok_or(EINVAL)?;
    if let Some((mut raddr, rkey)) = write_to {
        for part in payload.chunks(queues.max_sge) {
            wrs.get_mut(n).ok_or(EINVAL)?.op = SendOp::Write {
                sges: part,
                raddr,
                rkey,
            };
            raddr += part.iter().map(|s| u64::from(s.len())).sum::<u64>();
            n += 1;
        }
        body = &sges[..1];
    }
    let send = wrs.get_mut(n).ok_or(EINVAL)?;
    send.wr_id = wr_id;
    send.op = SendOp::Send { sges: body };
    send.signaled = signaled;
    n += 1;
    queues.qp.post(&wrs[..n])?;
    STATS.work_requests.add(n as u64);
    STATS.signaled.add(signaled.into());
    Ok(n as u32)
}

/// Marks the work request ids of what we send; the rest is the slot. A receive's is its block.
pub(super) const SENT: u64 = 1 << 63;
/// Marks those of a message that go before its SEND.
pub(super) const PART: u64 = 1 << 62;

impl Tx {
    /// Whether [`Link::transmit`] may have something to send, or senders wait for room. Without a
    /// backlog neither it nor [`Link::wake_blocked_senders`] does anything.
    fn has_backlog(&self) -> bool {
        let waiting = [
            TrafficClass::Control,
            TrafficClass::Small,
            TrafficClass::Bulk,
        ]
        .into_iter()
        .any(|class| self.channels.waiting(class) > 0);
        waiting
            || self.draining
            || self.signal_wanted
            || !self.replies.is_empty()
            || self.probe_pending
            || self.ping_pending
            || self.pong_pending
            || self.flow.as_ref().is_some_and(LinkFlow::credit_due)
    }

    /// Whether the next message has to wait until nothing is under way, because a window is registered
    /// before it. Nothing else is sent meanwhile.
    ///
    /// Soft-RoCE begins again with the oldest request that is not acknowledged when it has to repeat one,
    /// registrations included, and a registration that is made twice fails the queue pair. One that is
    /// posted to an empty queue is done before anything can be repeated.
    fn drain_before_reg(&mut self) -> bool {
        let under_way = self.free.len() < self.slots.len() && self.seq != self.done;
        self.draining = under_way
            && self
                .channels
                .peek(TrafficClass::Control)
                .is_some_and(|(_, sock)| {
                    let inner = sock.inner.lock();
                    inner.chan.is_some_and(|c| c.grant_waits())
                });
        self.draining
    }
}

/// Answers that may wait on a link. One that is honest asks for fewer: once for each of its channels,
/// and, where channels that are gone here send by turns, once for each message that it has credit for,
/// which can double while none is answered. What a peer that never takes any can make us keep is bounded
/// by a size that the allocator has.
fn most_replies() -> usize {
    let messages = 2 * params::LINK_CREDIT.get();
    (params::MAX_CHANNELS.get() + messages).min(1 << 14) as usize
}

impl Link {
    /// Maps pinned pages, which count as `charge`, for the link's device. Sleeps. ENOMEM; ENOTCONN when the
    /// link has gone down, of which its channels will hear.
    pub(crate) fn map_pages(
        &self,
        pages: PinnedPages,
        charge: Option<Charge>,
    ) -> Result<Arc<Pins>> {
        let verbs = self.tx.lock().queues.as_ref().map(|q| q.verbs.clone());
        let runs = DmaRuns::map(
            &verbs.ok_or(ENOTCONN)?.pd,
            PinnedRuns::new(pages)?,
            Direction::ToDevice,
        )?;
        let pins = Pins {
            runs,
            _charge: charge,
        };
        Ok(Arc::new(pins, GFP_KERNEL)?)
    }

    /// Puts the socket's channel into the list of those with something to say, and says it.
    pub(crate) fn kick(self: &Arc<Self>, sock: &Arc<Sock>) {
        {
            let tx = &mut *self.tx.lock();
            let mut inner = sock.inner.lock();
            // It may have another channel by now, on another link.
            let ours = inner.link.as_ref().is_some_and(|l| Arc::ptr_eq(l, self));
            let pending = ours && inner.chan.has_pending_control() && tx.state != LinkState::Down;
            if let Some(FlowId { id, flow }) = inner.chan.flow().filter(|_| pending) {
                inner.queued = tx.channels.enqueue(TrafficClass::Control, id, flow);
            }
        }
        self.transmit();
    }

    /// Answers a message for a channel that is not there. Answers wait while the peer has no room
    /// for them: it may go on asking, as its questions hold no block. What a channel has on its way is
    /// answered once while the answer waits. When there is no memory, or more wait than an honest peer
    /// asks for, the answer is dropped: a connect then ends by its timeout, and a channel is answered
    /// again at its next message.
    pub(super) fn reply(self: &Arc<Self>, h: Header) {
        {
            let mut tx = self.tx.lock();
            let sent = tx.replies.last() == Some(&h);
            if tx.state != LinkState::Down && !sent && tx.replies.len() < most_replies() {
                let _ = tx.replies.push(h, GFP_NOWAIT);
            }
        }
        self.transmit();
    }

    /// Asks the peer for a sign of life, its acknowledgement of a message: without one the queue pair
    /// fails, and with it the link.
    pub(crate) fn probe(self: &Arc<Self>) {
        {
            let mut tx = self.tx.lock();
            if tx.state != LinkState::Up {
                return;
            }
            tx.probe_pending = true;
        }
        self.transmit();
    }

    /// A block of the shared queue is posted again.
    pub(super) fn block_reposted(self: &Arc<Self>) {
        let due = {
            let mut tx = self.tx.lock();
            match &mut tx.flow {
                Some(flow) => {
                    flow.reposted();
                    flow.credit_due()
                }
                None => false,
            }
        };
        if due {
            self.transmit();
        }
    }

    /// See [`Tx::has_backlog`].
    pub(super) fn has_backlog(&self) -> bool {
        self.tx.lock().has_backlog()
    }

    /// Sends what waits to be said, as far as there is room. Any context that may take the locks.
    pub(crate) fn transmit(self: &Arc<Self>) {
        while let Some(sent) = self.send_control() {
            let ControlSent {
                sock,
                closed,
                failed,
                accepted,
            } = sent;
            if let Some(sock) = sock {
                if accepted {
                    sock.wake_write();
                }
                if failed {
                    // Whoever waited for what comes next is told that nothing does.
                    sock.wake_state();
                }
                if closed {
                    sock.try_finish();
                }
            }
        }
    }

    /// Sends one message of the link or of the first channel in the list.
    fn send_control(self: &Arc<Self>) -> Option<ControlSent> {
        let mut guard = self.tx.lock();
        let tx = &mut *guard;
        if tx.state != LinkState::Up || tx.free.is_empty() || tx.sq_free < 2 {
            return None;
        }
        let drain = tx.drain_before_reg();
        let flow = tx.flow.as_ref()?;
        let may_send_control = flow.available(true) > tx.reserved;
        // The end of what has no completion of its own is told by that of a later message.
        let due = flow.credit_due() && flow.left_to_us() > tx.reserved;
        let force_signal =
            tx.unsignaled > 0 && (may_send_control && (drain || tx.signal_wanted) || due && drain);
        if drain && !force_signal {
            return None;
        }
        let mut sent = ControlSent::default();
        let mut window = None;
        // Answers are for different channels, so their order does not matter.
        let reply = if may_send_control && !force_signal {
            tx.replies.pop()
        } else {
            None
        };
        let header = if force_signal && may_send_control {
            Header::new(Type::Heartbeat, Default::default(), Default::default())
        } else if let Some(reply) = reply {
            reply
        } else if may_send_control && (tx.probe_pending || tx.ping_pending || tx.pong_pending) {
            let mut beat = Header::new(Type::Heartbeat, Default::default(), Default::default());
            if mem::take(&mut tx.ping_pending) {
                beat.arg0 = HEARTBEAT_ASKS;
            }
            tx.probe_pending = false;
            tx.pong_pending = false;
            beat
        } else if may_send_control && tx.channels.waiting(TrafficClass::Control) > 0 {
            let (id, flow, sock) = tx.channels.dequeue(TrafficClass::Control)?;
            let sock = sock.clone();
            let header = {
                let mut inner = sock.inner.lock();
                let inner = &mut *inner;
                // The socket may have another channel by now.
                let same = inner.chan.id() == Some(id);
                inner.queued &= !same;
                let (mut header, mut pending) = (None, false);
                if same {
                    let was = inner.state_before();
                    inner.chan.with(|c| {
                        header = c.next_control();
                        pending = c.has_pending_control();
                        sent.closed = c.state() == State::Closed;
                        sent.failed = sent.closed && c.failure().is_some();
                    });
                    inner.trace_state_change(was);
                }
                if let Some(h) = &header {
                    if h.kind == Type::WindowGrant && h.arg1 != 0 {
                        window = inner.window.as_ref().and_then(WindowUse::new);
                    }
                    sent.accepted = h.kind == Type::Accept;
                }
                if pending && header.is_some() {
                    inner.queued = tx.channels.enqueue(TrafficClass::Control, id, flow);
                }
                header
            };
            sent.sock = Some(sock);
            match header {
                Some(header) => header,
                None => return Some(sent),
            }
        } else if due {
            // The last credit is for this: without it both sides could wait for the other's, while they
            // settle, too.
            Header::new(Type::LinkCredit, Default::default(), Default::default())
        } else {
            return None;
        };
        let slot = tx.free.pop()?;
        let message = Message {
            header,
            write_to: None,
            payload: Body::None,
            window,
            sock: None,
            charge: None,
            force_signal,
        };
        if post(tx, slot, message).is_err() {
            drop(guard);
            self.fail_link_lost("its send queue takes nothing");
        }
        Some(sent)
    }

    /// A message has completed, and with it those before it that have no completion of their own:
    /// frees their slots, as far as they hold nothing, and says what it held.
    pub(super) fn slot_done(&self, slot: u16) -> Option<Done> {
        let tx = &mut *self.tx.lock();
        let mut done: Option<Done> = None;
        let mut next = Some(slot);
        while let Some(slot) = next {
            let place = tx.slots.get_mut(usize::from(slot))?;
            if place.wrs == 0 {
                // It failed, which has a completion in any case.
                break;
            }
            if let (Some(done), true) = (&mut done, place.charge.is_some()) {
                done.before = Some(slot);
                break;
            }
            let message = mem::take(place);
            tx.done = tx.done.max(message.seq);
            tx.sq_free += message.wrs;
            tx.bulk = tx.bulk.saturating_sub(message.bulk);
            let _ = tx.free.push_within_capacity(slot);
            next = message.unsignaled;
            // What holds more than a charge has a completion of its own.
            done.get_or_insert(Done {
                pins: message.pins,
                window: message.window,
                sock: message.sock,
                notify: message.notify,
                charge: message.charge,
                before: None,
            });
        }
        done
    }

    /// Whether all that was posted has been acknowledged by the peer's device: what channels said before
    /// they left the link may still be on its way. As [`Self::done_with`].
    pub(crate) fn has_delivered(self: &Arc<Self>) -> bool {
        let seq = self.tx.lock().seq;
        self.done_with(seq)
    }

    /// Whether the device is done with all messages up to number `seq`. If that cannot be known, it will
    /// be soon.
    pub(crate) fn done_with(self: &Arc<Self>, seq: u64) -> bool {
        {
            let mut tx = self.tx.lock();
            if tx.done >= seq {
                return true;
            }
            // The last message has a completion, or it gets one.
            tx.signal_wanted |= tx.unsignaled > 0;
        }
        self.transmit();
        false
    }
}

/// What [`Link::send_control`] did.
#[derive(Default)]
struct ControlSent {
    /// The channel that spoke.
    sock: Option<Arc<Sock>>,
    /// It has nothing more to say, ever.
    closed: bool,
    /// And that is a failure.
    failed: bool,
    /// It is open now.
    accepted: bool,
}
