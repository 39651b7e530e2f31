// SPDX-License-Identifier: GPL-2.0

//! The transmitting party: turns chunks and control messages into work requests.
//!
//! A message takes a slot: room for its header in registered memory, a page for copied payload, and
//! references to the objects that must live until the device is done with them. At most the SEND of
//! a message is signaled; its completion frees the slot, and with it the pins of the WRITEs before
//! it. A message that owns no resources is signaled only now and then: work requests complete in
//! order, so the next completion frees the slots of the unsignaled messages before it. Each
//! completion saved saves a wake-up and an entry of the completion queue. Where a device needs it
//! (`Device::needs_signals()`), all requests with data are signaled.
//!
//! Everything is posted under the link's spinlock, so chunks leave in the order of their
//! commits by the channel.

#![deny(unsafe_code)]

mod reservation;

use core::mem;

use kernel::iov::IovIterSource;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::backlog::Backlog;
use super::conn::{Charge, ConnOps};
use super::link::{Link, LinkState, Queues, Tx};
use super::pins::Pins;
use super::sched::FlowId;
use crate::ib::dma::{Direction, Sge};
use crate::ib::mr::Access;
use crate::ib::pd::Pd;
use crate::ib::qp::{SendOp, SendWr};
use crate::kern::sock::zerocopy::Notification;
use crate::params;
use crate::pool::window::WindowUse;
use crate::proto::dgram::wire::{DgramHeader, Message};
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::{Header, Type, HEADER_LEN, HEARTBEAT_ASKS, SMALL_MAX};
use crate::qp_link::buffers::Buffers;
use crate::stats::STATS;

pub(crate) use reservation::{Payload, Posted, Reservation};

/// Most messages in flight on a link.
pub(super) const SLOTS: u16 = 128;
/// Slots that data leaves to control messages.
pub(super) const CONTROL_SLOTS: usize = 8;
/// Work requests that data leaves to control messages: a control message has two at most.
pub(super) const CONTROL_WRS: u32 = 2 * CONTROL_SLOTS as u32;
/// Most WRITEs of one message, those of a chunk of scattered pages.
pub(super) const MAX_WRITES: usize = 5;
/// Most work requests of one message: a registration or WRITEs, then the SEND.
pub(super) const MAX_WRS: usize = MAX_WRITES + 1;
/// Most scatter-gather elements of one message: a chunk of 4 KiB pages that begins within a page,
/// and the header.
pub(super) const MAX_SGES: usize = 66;
/// Most unsignaled messages in a row.
const SIGNAL_INTERVAL: u8 = 15;
/// Room for a header.
const HEADER_ROOM: usize = 128;

/// The memory of a link's headers and copied payload.
pub(super) struct TxBuffers {
    headers: Buffers,
    payloads: Buffers,
}

impl TxBuffers {
    /// Buffers for [`SLOTS`] messages. Sleeps.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        let of = |len| Buffers::new(pd, SLOTS.into(), len, Direction::ToDevice);
        let (headers, payloads) = (of(HEADER_ROOM)?, of(PAGE_SIZE)?);
        Ok(Arc::new(Self { headers, payloads }, GFP_KERNEL)?)
    }

    fn put_header(&self, slot: u16, h: &Message) -> Result<Sge> {
        let (piece, at) = self.headers.get(slot.into())?;
        piece.mem.write(at, &h.encode())?;
        piece.sge(at, HEADER_LEN)
    }

    /// Copies up to `n` bytes, at most [`SMALL_MAX`], from the program into a slot. Stops at the
    /// first page that is not present. Does not sleep.
    pub(super) fn fill(&self, slot: u16, n: usize, from: &mut IovIterSource<'_>) -> usize {
        let n = n.min(SMALL_MAX as usize);
        let filled = self
            .payloads
            .get(slot.into())
            .and_then(|(piece, at)| piece.mem.copy_from_iter_nofault(at, n, from));
        filled.unwrap_or(0)
    }

    /// Copies bytes into a slot, at most [`SMALL_MAX`]. EINVAL if there are more.
    pub(super) fn put(&self, slot: u16, bytes: &[u8]) -> Result {
        if bytes.len() > SMALL_MAX as usize {
            return Err(EINVAL);
        }
        let (piece, at) = self.payloads.get(slot.into())?;
        piece.mem.put_payload(at, bytes)
    }

    fn payload(&self, slot: u16, len: usize) -> Result<Sge> {
        let (piece, at) = self.payloads.get(slot.into())?;
        piece.sge(at, len)
    }
}

/// A message in flight.
#[derive(Default)]
pub(super) struct TxSlot {
    /// Work requests of the message in the send queue; 0: no message is in flight in this slot.
    wrs: u32,
    /// Bytes that the message writes into the peer's window.
    bulk: u32,
    /// It is a control message, whose places count in [`Tx::control_slots`] and
    /// [`Tx::control_wrs`].
    control: bool,
    /// The message's sequence number on the link.
    seq: u64,
    /// The slot of the previous message, if that message is unsignaled.
    unsignaled: Option<u16>,
    /// The connection to notify, and the stream position of the message's end.
    conn: Option<(Arc<dyn ConnOps>, u64)>,
    /// The pinned pages that the device reads until the message completes. The window below is the
    /// one whose registration it changes.
    pins: Option<Arc<Pins>>,
    window: Option<WindowUse>,
    /// The window's key is made invalid, by a work request without a message.
    invalidates: bool,
    /// The MSG_ZEROCOPY notification, which is sent when no message uses the pages any more.
    /// Declared after the pins, so it is dropped after them.
    notify: Option<Notification>,
    /// The copied payload's charge against the connection's send buffer.
    charge: Option<Charge>,
}

/// The resources of a completed message; released without the link's lock.
pub(super) struct Done {
    pins: Option<Arc<Pins>>,
    window: Option<WindowUse>,
    invalidates: bool,
    conn: Option<(Arc<dyn ConnOps>, u64)>,
    notify: Option<Notification>,
    charge: Option<Charge>,
    /// The slot of an earlier message that has completed as well and owns a charge: it is next.
    before: Option<u16>,
}

impl Done {
    /// Releases the memory, then notifies the program and the channel. `ok`: the message has
    /// completed with success. Returns the slot to complete next. Not under a spinlock.
    pub(super) fn finish(self, ok: bool) -> Option<u16> {
        drop(self.pins);
        if let Some(window) = self.window.filter(|_| self.invalidates && ok) {
            window.invalidated();
        }
        drop(self.notify);
        drop(self.charge);
        if let Some((conn, pos)) = self.conn {
            conn.tx_complete(pos);
        }
        self.before
    }
}

/// The payload that follows a header.
pub(super) enum Body<'a> {
    None,
    Slot,
    /// Pages, from this byte of them on.
    Pinned(Arc<Pins>, usize, Option<Notification>),
    /// Pages that a later message keeps, which is posted under the same hold of the link's lock.
    Part(&'a Arc<Pins>, usize),
}

/// A message to be posted.
pub(super) struct Outgoing<'a> {
    header: Message,
    write_to: Option<(u64, u32)>,
    payload: Body<'a>,
    /// A window to be registered before the message leaves.
    window: Option<WindowUse>,
    conn: Option<(Arc<dyn ConnOps>, u64)>,
    charge: Option<Charge>,
    /// It is a control message.
    control: bool,
    /// Signal the message, because a completion of earlier messages is needed.
    force_signal: bool,
}

impl<'a> Outgoing<'a> {
    /// A message of the link itself, whose payload is in the slot.
    pub(super) fn of_link(header: Header) -> Self {
        Self {
            header: header.into(),
            write_to: None,
            payload: Body::Slot,
            window: None,
            conn: None,
            charge: None,
            control: true,
            force_signal: true,
        }
    }

    /// A fragment of a datagram, with the datagram's charge.
    pub(super) fn fragment(header: DgramHeader, payload: Body<'a>, charge: Option<Charge>) -> Self {
        Self {
            header: Message::Dgram(header),
            write_to: None,
            payload,
            window: None,
            conn: None,
            charge,
            control: false,
            force_signal: false,
        }
    }
}

/// Posts a message in slot `slot`. The slot owns the resources that the device needs, also on
/// error, because the device may have taken part of the chain. After an error the caller must end
/// the link.
pub(super) fn post(tx: &mut Tx, slot: u16, m: Outgoing<'_>) -> Result {
    let posted = try_post(tx, slot, m);
    if posted.is_err() {
        tx.stuck += 1;
    }
    posted
}

fn try_post(tx: &mut Tx, slot: u16, m: Outgoing<'_>) -> Result {
    let (Some(queues), Some(buffers), Some(flow)) = (&tx.queues, &tx.buffers, &mut tx.flow) else {
        return Err(EINVAL);
    };
    flow.reposted_many(tx.reposts.take());
    let credit = match m.control {
        true => flow.sending_control(),
        false => flow.sending(),
    };
    tx.reposts.set_due_at(flow.due_at());
    let header = m.header.with_credit(credit);
    let len = header.bytes() as usize;
    let place = tx.slots.get_mut(usize::from(slot)).ok_or(EINVAL)?;
    let bulk = if m.write_to.is_some() {
        header.bytes()
    } else {
        0
    };
    let waited_for =
        m.conn.is_some() || m.window.is_some() || matches!(m.payload, Body::Pinned(..));
    // Senders that wait for the bulk limit are woken by this completion.
    let crowded = bulk > 0 && tx.bulk >= tx.bulk_most / 2;
    let fills = m.charge.as_ref().is_some_and(Charge::fills);
    let signaled = queues.signals_all
        || waited_for
        || m.force_signal
        || crowded
        || fills
        || tx.unsignaled >= SIGNAL_INTERVAL;
    tx.bulk = tx.bulk.saturating_add(bulk);
    tx.seq += 1;
    *place = TxSlot {
        wrs: 0,
        bulk,
        control: m.control,
        seq: tx.seq,
        unsignaled: tx.last_unsignaled,
        conn: m.conn,
        pins: None,
        window: m.window,
        invalidates: false,
        notify: None,
        charge: m.charge,
    };
    let mut sges = [Sge::default(); MAX_SGES];
    let part = matches!(m.payload, Body::Part(..));
    let count = match m.payload {
        Body::None => 0,
        Body::Slot => {
            sges[1] = buffers.payload(slot, len)?;
            1
        }
        Body::Pinned(pins, from, notify) => {
            let filled = pins.fill_sges(from, len, &mut sges[1..]);
            place.pins = Some(pins);
            place.notify = notify;
            filled?
        }
        Body::Part(pins, from) => {
            place.pins = Some(pins.clone());
            pins.fill_sges(from, len, &mut sges[1..])?
        }
    };
    sges[0] = buffers.put_header(slot, &header)?;
    let wrs = submit(queues, slot, signaled, &sges, count, m.write_to, place)?;
    place.wrs = wrs;
    if m.control {
        tx.control_slots.take(1);
        tx.control_wrs.take(wrs);
    }
    if part {
        // Not the last reference: the caller has one.
        place.pins = None;
    }
    tx.sq_free = tx.sq_free.saturating_sub(wrs);
    (tx.last_unsignaled, tx.unsignaled) = match signaled {
        true => (None, 0),
        false => (Some(slot), tx.unsignaled + 1),
    };
    if signaled {
        (tx.signaled_seq, tx.signal_wanted) = (tx.seq, false);
    }
    Ok(())
}

/// Posts the invalidation of a window's key, in slot `slot`. As [`post`].
fn invalidate(tx: &mut Tx, slot: u16, window: WindowUse) -> Result {
    let queues = tx.queues.as_ref().ok_or(EINVAL)?;
    let place = tx.slots.get_mut(usize::from(slot)).ok_or(EINVAL)?;
    tx.seq += 1;
    *place = TxSlot {
        control: true,
        seq: tx.seq,
        unsignaled: tx.last_unsignaled,
        invalidates: true,
        ..TxSlot::default()
    };
    let window = place.window.insert(window);
    let posted = queues.qp.post(&[SendWr {
        wr_id: SENT | u64::from(slot),
        op: SendOp::Invalidate { mr: window.mr() },
        signaled: true,
    }]);
    if let Err(e) = posted {
        tx.stuck += 1;
        return Err(e.into());
    }
    STATS.work_requests.add(1);
    STATS.signaled.add(1);
    place.wrs = 1;
    tx.control_slots.take(1);
    tx.control_wrs.take(1);
    tx.sq_free -= 1;
    (tx.last_unsignaled, tx.unsignaled) = (None, 0);
    (tx.signaled_seq, tx.signal_wanted) = (tx.seq, false);
    Ok(())
}

/// Builds the chain of work requests (registration, WRITEs, SEND), and posts it to the device.
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
    let mut marked = u64::from(signaled);
    let mut body = sges.get(..=count).ok_or(EINVAL)?;
    if let Some((mut raddr, rkey)) = write_to {
        for part in payload.chunks(queues.max_sge) {
            let write = wrs.get_mut(n).ok_or(EINVAL)?;
            write.op = SendOp::Write {
                sges: part,
                raddr,
                rkey,
            };
            write.signaled = queues.signals_all;
            marked += u64::from(queues.signals_all);
            raddr += part.iter().map(|s| u64::from(s.length())).sum::<u64>();
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
    STATS.signaled.add(marked);
    Ok(n as u32)
}

/// Set in the work request ids of messages that are sent; the low bits are the slot. The id of a
/// receive is its block.
pub(super) const SENT: u64 = 1 << 63;
/// Set as well in the ids of a message's work requests before its SEND.
pub(super) const PART: u64 = 1 << 62;

impl Tx {
    /// Takes a slot and `wrs` work requests. The caller has checked that there is room.
    pub(super) fn take_slot(&mut self, wrs: u32) -> Option<(u16, Arc<TxBuffers>)> {
        let buffers = self.buffers.clone()?;
        let slot = self.free.pop()?;
        self.reserved += 1;
        self.sq_free -= wrs;
        Some((slot, buffers))
    }

    /// Whether [`Link::transmit`] may have a message to send, or senders wait for room. Without a
    /// backlog, neither `transmit()` nor [`Link::wake_blocked_senders`] has any work.
    pub(super) fn has_backlog(&self) -> bool {
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
            || self.dgrams.waits()
            || !self.replies.is_empty()
            || !self.ending.is_empty()
            || self.probe_pending
            || self.ping_pending
            || self.pong_pending
            || self.credit_due()
    }

    /// Whether new room should be announced to the peer, and a message may be posted for it.
    fn credit_due(&self) -> bool {
        let flow = self.flow.as_ref();
        flow.is_some_and(|flow| flow.credit_due_with(self.reposts.gathered()))
    }

    /// A Heartbeat, which asks for an answer if one is wanted.
    fn heartbeat(&mut self) -> Header {
        let mut beat = Header::new(Type::Heartbeat, Default::default(), Default::default());
        if mem::take(&mut self.ping_pending) {
            beat.arg0 = HEARTBEAT_ASKS;
        }
        beat
    }

    /// Whether the next message must wait until no message is in flight, because it registers a
    /// window and the device is Soft-RoCE. Nothing else is sent until then.
    ///
    /// To retransmit, Soft-RoCE repeats everything from the oldest unacknowledged request on,
    /// registrations included, and a repeated registration fails the queue pair. A registration
    /// that is posted to an empty queue is done before any retransmission.
    ///
    /// Other devices retransmit packets, and a registration has none. There the order of the send
    /// queue is enough: a registration is done before the requests behind it begin (InfiniBand,
    /// volume 1, ordering of send queues), and no peer knows the key before the SEND behind it.
    fn drain_before_reg(&mut self) -> bool {
        let repeats = self.queues.as_ref().is_some_and(|q| q.repeats_reg);
        let under_way = repeats && self.free.len() < self.slots.len() && self.seq != self.done;
        self.draining = under_way
            && self
                .channels
                .peek(TrafficClass::Control)
                .is_some_and(|(_, conn)| {
                    let mut waits = false;
                    conn.with(&mut |conn| waits = conn.chan.is_some_and(|c| c.grant_waits()));
                    waits
                });
        self.draining
    }
}

/// Most replies that may wait on a link. An honest peer causes fewer: one for each of its channels,
/// and, if messages of several ended channels alternate, one for each message that it has credit
/// for. The latter can double while none is sent. The limit bounds the memory that a peer can use
/// up by never taking a reply, to a size that the allocator can provide.
fn most_replies() -> usize {
    let messages = 2 * params::LINK_CREDIT.get();
    (params::MAX_CHANNELS.get() + messages).min(1 << 14) as usize
}

impl Link {
    /// Queues the connection's channel to send a control message, and sends what the link can.
    pub(crate) fn kick<C: ConnOps + ?Sized>(self: &Arc<Self>, conn: &Arc<C>) {
        self.queue_control(conn);
        self.transmit();
    }

    /// Queues the connection's channel to send a control message. The caller calls
    /// [`Self::transmit`] next.
    pub(crate) fn queue_control<C: ConnOps + ?Sized>(self: &Arc<Self>, conn: &Arc<C>) {
        let tx = &mut *self.tx.lock();
        if tx.state != LinkState::Down {
            conn.with(&mut |conn| conn.enqueue_control(self, &mut tx.channels));
        }
    }

    /// Replies to a message for a channel that does not exist. Replies wait while the peer has no
    /// room for them; the peer may go on sending then, because its messages hold no block.
    /// Several messages of one channel get one reply while that reply waits. The reply is dropped
    /// if there is no memory, or if more wait than an honest peer causes: a connect then times out,
    /// and an open channel gets a reply to its next message.
    pub(super) fn reply(self: &Arc<Self>, h: Message) {
        {
            let mut tx = self.tx.lock();
            let sent = tx.replies.last() == Some(&h);
            if tx.state != LinkState::Down && !sent && tx.replies.len() < most_replies() {
                let _ = tx.replies.push(h, GFP_NOWAIT);
            }
        }
        self.transmit();
    }

    /// Probes the peer: sends an empty message that its device must acknowledge. If it does not,
    /// the queue pair fails, and the link with it.
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

    /// A block with this link's data was posted to a receive queue again. Takes the link's
    /// lock only when the peer may have to be told.
    pub(super) fn block_reposted(self: &Arc<Self>) {
        if self.reposts.add() {
            self.transmit();
        }
    }

    /// Sends the control messages that wait, as far as there is room. Any context that may take the
    /// locks.
    pub(crate) fn transmit(self: &Arc<Self>) {
        while let Some(sent) = self.send_control() {
            let ControlSent {
                conn,
                closed,
                failed,
                accepted,
            } = sent;
            if let Some(conn) = conn {
                if accepted {
                    conn.write_space();
                }
                if failed {
                    // Threads that wait for the channel must see that it has failed.
                    conn.state_change();
                }
                if closed {
                    conn.try_finish();
                }
            }
        }
    }

    /// Sends one control message: of the link itself, or of the first channel in the queue.
    fn send_control(self: &Arc<Self>) -> Option<ControlSent> {
        let mut guard = self.tx.lock();
        let tx = &mut *guard;
        if tx.state != LinkState::Up || tx.free.is_empty() || tx.sq_free < 2 {
            return None;
        }
        // Some of the slots that are reserved for control messages stay.
        if tx.free.len() > CONTROL_SLOTS / 2 && tx.sq_free > CONTROL_SLOTS as u32 {
            if let Some(key) = tx.ending.pop() {
                let slot = tx.free.pop()?;
                if invalidate(tx, slot, key).is_err() {
                    drop(guard);
                    self.fail_link_lost("its send queue takes nothing");
                }
                return Some(ControlSent::default());
            }
        }
        let drain = tx.drain_before_reg();
        let flow = tx.flow.as_ref()?;
        let may_send_control = flow.available(true) > tx.reserved;
        // Unsignaled messages are known to be complete once a later signaled one completes.
        let due = tx.credit_due() && flow.left_to_us() > tx.reserved;
        let force_signal =
            tx.unsignaled > 0 && (may_send_control && (drain || tx.signal_wanted) || due && drain);
        if drain && !force_signal {
            return None;
        }
        let mut sent = ControlSent::default();
        let mut window = None;
        // Replies go to different channels, so their order does not matter.
        let reply = if may_send_control && !force_signal {
            tx.replies.pop()
        } else {
            None
        };
        let ping = tx.ping_pending;
        let header = if force_signal && may_send_control {
            tx.heartbeat().into()
        } else if let Some(reply) = reply {
            reply
        } else if may_send_control && (tx.probe_pending || tx.ping_pending || tx.pong_pending) {
            tx.probe_pending = false;
            tx.pong_pending = false;
            tx.heartbeat().into()
        } else if may_send_control && tx.channels.waiting(TrafficClass::Control) > 0 {
            let (id, flow, conn) = tx.channels.dequeue(TrafficClass::Control)?;
            let conn = conn.clone();
            let next = conn.next_control(FlowId { id, flow }, &mut tx.channels);
            sent = ControlSent {
                conn: Some(conn),
                closed: next.closed,
                failed: next.failed,
                accepted: next.header.is_some_and(|h| h.kind == Type::Accept),
            };
            window = next.window;
            match next.header {
                Some(header) => header.into(),
                None => return Some(sent),
            }
        } else if due {
            // The last credit is reserved for this message. Otherwise each side could wait for the
            // other's credit, also before a registration.
            Header::new(Type::LinkCredit, Default::default(), Default::default()).into()
        } else {
            return None;
        };
        let slot = tx.free.pop()?;
        let message = Outgoing {
            header,
            write_to: None,
            payload: Body::None,
            window,
            conn: None,
            charge: None,
            control: true,
            // Behind a Heartbeat that asks, the link is idle once it has completed.
            force_signal: force_signal || ping && !tx.ping_pending,
        };
        if post(tx, slot, message).is_err() {
            drop(guard);
            self.fail_link_lost("its send queue takes nothing");
        }
        Some(sent)
    }

    /// A message has completed, and with it the unsignaled ones before it. Frees their slots, up to
    /// the first one that owns a charge. Returns the resources of the message, if any.
    pub(super) fn slot_done(&self, slot: u16, backlog: &mut Backlog) -> Option<Done> {
        let tx = &mut *self.tx.lock();
        let mut done: Option<Done> = None;
        let mut next = Some(slot);
        while let Some(slot) = next {
            let place = tx.slots.get_mut(usize::from(slot))?;
            if place.wrs == 0 {
                // This message had failed, and so has completed already.
                break;
            }
            if let (Some(done), true) = (&mut done, place.charge.is_some()) {
                done.before = Some(slot);
                break;
            }
            let message = mem::take(place);
            tx.done = tx.done.max(message.seq);
            tx.sq_free += message.wrs;
            if message.control {
                tx.control_slots.give(1);
                tx.control_wrs.give(message.wrs);
            }
            tx.bulk = tx.bulk.saturating_sub(message.bulk);
            let _ = tx.free.push_within_capacity(slot);
            next = message.unsignaled;
            // An unsignaled message owns a charge at most, so only the first message has more to
            // return.
            done.get_or_insert(Done {
                pins: message.pins,
                window: message.window,
                invalidates: message.invalidates,
                conn: message.conn,
                notify: message.notify,
                charge: message.charge,
                before: None,
            });
        }
        backlog.check(tx);
        done
    }

    /// Whether the peer's device has acknowledged all posted messages. The last messages of
    /// channels that have left the link may still be in flight. As [`Self::done_with`].
    pub(crate) fn has_delivered(self: &Arc<Self>) -> bool {
        let seq = self.tx.lock().seq;
        self.done_with(seq)
    }

    /// Whether the device is known to be done with all messages up to sequence number `seq`.
    pub(crate) fn is_done_with(self: &Arc<Self>, seq: u64) -> bool {
        self.tx.lock().done >= seq
    }

    /// Whether the device is known to be done with all messages up to sequence number `seq`. If
    /// not, makes sure that a signaled message tells soon.
    pub(crate) fn done_with(self: &Arc<Self>, seq: u64) -> bool {
        {
            let mut tx = self.tx.lock();
            if tx.done >= seq {
                return true;
            }
            // The last message is signaled already, or the next one will be.
            tx.signal_wanted |= tx.unsignaled > 0;
        }
        self.transmit();
        false
    }
}

/// The result of [`Link::send_control`].
#[derive(Default)]
struct ControlSent {
    /// The connection whose channel was dequeued.
    conn: Option<Arc<dyn ConnOps>>,
    /// The channel is closed: it sends no more messages.
    closed: bool,
    /// The channel is closed because it has failed.
    failed: bool,
    /// The message was an ACCEPT: the channel is open.
    accepted: bool,
}
