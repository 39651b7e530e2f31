// SPDX-License-Identifier: GPL-2.0

//! Datagrams on a link: `Documentation/protocol.rst` has their rules, `dgram/` the sockets.
//!
//! Sending: a datagram takes a slot for each fragment, or none ([`Link::reserve_dgram`]), and all
//! of them are posted under one hold of the link's lock. While the link connects, datagrams wait in
//! a backlog. On a link without room, a thread waits, or a socket is withheld POLLOUT, for
//! `dgram_stall_ms` at most.
//!
//! Receiving: each fragment is copied out of its block at once, into memory that the owner of the
//! receiving socket pays for. So unread datagrams hold no blocks.

#![deny(unsafe_code)]

use core::mem;

use kernel::alloc::kvec::KVVec;
use kernel::iov::IovIterSource;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::{Arc, UniqueArc};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::conn::Charge;
use super::link::{Link, LinkState, Terms, Tx};
use super::tx::{post, Outgoing, TxBuffers, CONTROL_SLOTS};
use crate::kern::errno::{ECONNREFUSED, EHOSTUNREACH, ENETUNREACH};
use crate::kern::fault;
use crate::kern::task::{now_ns, real_ns};
use crate::params;
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::Failure;
use crate::proto::dgram::assembly::{Arrived, Assembly};
use crate::proto::dgram::backlog::{self, Waiting};
use crate::proto::dgram::credit;
use crate::proto::dgram::refusals::Refusals;
use crate::proto::dgram::rx_queue::{Datagram, Reservation};
use crate::proto::dgram::stall::{Stall, Verdict};
use crate::proto::dgram::wire::{
    fragment_count, fragments, Body, DgramHeader, Fragment, Message, PortState, Ports, FEATURE,
    FRAGMENT, FRAGMENTS_MAX,
};
use crate::proto::wire::Refusal;
use crate::proto::Violation;

/// Work item: the sockets that were withheld POLLOUT have waited for `dgram_stall_ms`.
pub(super) const DGRAM_STALL: u64 = 5;

/// Slots of a link that datagrams leave to streams and control messages.
const SPARE_SLOTS: usize = 32;
const _: () = assert!(SPARE_SLOTS > CONTROL_SLOTS);

/// Most datagrams that wait for a link to come up.
const BACKLOG_SLOTS: usize = 128;

/// The datagrams' share of a link's credit.
pub(super) type CreditShare = credit::CreditShare<KVVec<Option<u32>>>;
type Backlog = backlog::Backlog<KVec<Option<Waiting<HeldDgram>>>>;

/// The bytes of a received datagram.
pub(crate) type Bytes = Arc<KVVec<u8>>;

/// Takes the datagrams of all links.
pub(crate) trait DgramReceiver: Send + Sync {
    /// A datagram of `total` bytes begins to arrive on `link`. Sleeps.
    fn begin(&self, link: &Arc<Link>, ports: Ports, total: u32) -> Begin;

    /// Whether a socket takes datagrams with these ports from the peer of `link`. Sleeps.
    fn is_open(&self, link: &Link, ports: Ports) -> bool;

    /// Datagrams that were sent on `link` are lost. Sleeps.
    fn lost(&self, link: &Link, why: Error);

    /// `link`, which this host makes, has changed. Sleeps.
    fn changed(&self, link: &Arc<Link>, change: Change);

    /// The peer of `link` says whether it has a socket that datagrams with these ports reach. They
    /// are reversed. Sleeps.
    fn answered(&self, link: &Link, ports: Ports, state: PortState);
}

/// A change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It is up, and carries datagrams.
    Up,
    /// It could not be made, or carries no datagrams.
    Refused,
    /// It was up, and has ended.
    Lost,
}

/// The decision on a datagram that begins to arrive.
pub(crate) enum Begin {
    /// No socket takes it.
    Closed,
    /// The socket has no room. It has counted the datagram.
    Dropped,
    /// It is kept.
    Kept(Incoming),
}

/// A socket for datagrams.
pub(crate) trait DgramSocket: Send + Sync {
    /// A datagram is whole.
    fn deliver(&self, room: Reservation, datagram: Datagram<Bytes>);

    /// A datagram does not become whole: releases the room that was reserved for it.
    fn release(&self, room: Reservation);

    /// POLLOUT is not withheld any more; `late`: because it has been for `dgram_stall_ms`, or the
    /// link has ended.
    fn may_send(&self, late: bool);

    /// A link without room has dropped a datagram of the socket.
    fn link_dropped(&self);
}

/// A datagram that arrives.
pub(crate) struct Incoming {
    sock: Arc<dyn DgramSocket>,
    from: Addr,
    to: Ip,
    /// `None` once it is delivered.
    kept: Option<(Reservation, UniqueArc<KVVec<u8>>)>,
}

impl Incoming {
    /// A datagram for `sock`, whose bytes go to `bytes`, which has their number.
    pub(crate) fn new(
        sock: Arc<dyn DgramSocket>,
        from: Addr,
        to: Ip,
        room: Reservation,
        bytes: UniqueArc<KVVec<u8>>,
    ) -> Self {
        Self {
            sock,
            from,
            to,
            kept: Some((room, bytes)),
        }
    }

    /// Copies the bytes of a fragment. EINVAL if they do not fit, which does not occur.
    fn copy(&mut self, f: &Fragment, copy: impl FnOnce(&mut [u8]) -> Result) -> Result {
        let place = f.offset as usize..f.end() as usize;
        let (_, bytes) = self.kept.as_mut().ok_or(EINVAL)?;
        copy(bytes.get_mut(place).ok_or(EINVAL)?)
    }

    fn deliver(mut self) {
        if let Some((room, bytes)) = self.kept.take() {
            let datagram = Datagram {
                from: self.from,
                to: self.to,
                len: bytes.len() as u32,
                born: real_ns(),
                drops: 0,
                data: bytes.into(),
            };
            self.sock.deliver(room, datagram);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some((room, _)) = self.kept.take() {
            self.sock.release(room);
        }
    }
}

/// The datagrams that arrive on a link.
#[derive(Default)]
pub(super) struct DgramRx {
    assembly: Assembly<Incoming>,
    refusals: Refusals,
}

/// A datagram that waits for its link to come up.
struct HeldDgram {
    sock: Arc<dyn DgramSocket>,
    ports: Ports,
    bytes: KVVec<u8>,
}

/// The datagrams that a link sends; guarded by its lock.
#[derive(Default)]
pub(super) struct DgramTx {
    /// `None` until the link is up, and if it carries no datagrams of this side.
    pub(super) share: Option<CreditShare>,
    /// Fragments that [`DgramSlots`] may still post.
    reserved: u32,
    /// The number of the last datagram.
    id: u32,
    /// The link's sequence number of the last fragment.
    seq: u64,
    /// Datagrams were not acknowledged when the link ended.
    unacked: bool,
    stall: Stall,
    /// The most fragments of a datagram that found no room; 0: none has.
    wanted: u32,
    backlog: Option<Backlog>,
    /// Sockets that are withheld POLLOUT.
    starved: KVec<Arc<dyn DgramSocket>>,
}

impl DgramTx {
    fn has_held(&self) -> bool {
        self.backlog.as_ref().is_some_and(|b| !b.is_empty())
    }

    /// Whether [`Link::wake_dgram_senders`] may have work.
    pub(super) fn waits(&self) -> bool {
        self.wanted > 0 || self.has_held()
    }

    /// The link ends; `done`: the device is done with all messages up to this sequence number.
    pub(super) fn ended(&mut self, done: u64) {
        self.unacked = self.seq > done || self.has_held();
    }
}

/// The outcome of [`Link::reserve_dgram`].
pub(crate) enum Room {
    /// There is room.
    Taken(DgramSlots),
    /// The datagram waits for the link to come up: see [`Link::hold_dgram`].
    Held,
    /// There is no room; after this time, in nanoseconds of the monotonic clock, datagrams are
    /// dropped.
    Full(u64),
    /// There has been no room for too long: the datagram is dropped, and counted.
    Dropped,
    /// The peer takes no datagrams.
    Unsupported,
    /// The link has ended.
    Down,
}

type Slots = [u16; FRAGMENTS_MAX as usize];

/// The right to post a datagram: a slot, credit, and room in the send queue for each fragment.
pub(crate) struct DgramSlots {
    link: Arc<Link>,
    buffers: Arc<TxBuffers>,
    slots: Slots,
    count: usize,
}

impl DgramSlots {
    fn slots(&self) -> &[u16] {
        &self.slots[..self.count]
    }

    /// Copies the `len` bytes of the datagram from the program, as far as they are present. Returns
    /// the number of bytes. Does not sleep.
    pub(crate) fn fill(&self, len: usize, from: &mut IovIterSource<'_>) -> usize {
        let mut done = 0;
        for slot in self.slots() {
            let n = (len - done).min(FRAGMENT as usize);
            let filled = self.buffers.fill(*slot, n, from);
            done += filled;
            if filled < n {
                break;
            }
        }
        done
    }

    /// Copies the datagram. EINVAL if it has more fragments than this.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result {
        let mut slots = self.slots().iter();
        for part in bytes.chunks(FRAGMENT as usize) {
            self.buffers.put(*slots.next().ok_or(EINVAL)?, part)?;
        }
        Ok(())
    }

    /// Posts the datagram, of `total` bytes, which have the `charge`. If the link has ended, the
    /// datagram is lost.
    pub(crate) fn post(mut self, ports: Ports, total: u32, mut charge: Option<Charge>) {
        let link = self.link.clone();
        let posted = {
            let tx = &mut *link.tx.lock();
            if tx.state != LinkState::Up {
                return;
            }
            tx.take_back(mem::take(&mut self.count) as u32);
            tx.post_dgram(&self.slots, ports, total, &mut charge)
        };
        link.dgram_passed();
        link.tx_bytes.add(u64::from(total));
        if posted.is_err() {
            link.fail_link_lost("its send queue takes nothing");
        }
    }
}

impl Drop for DgramSlots {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let waited = {
            let tx = &mut *self.link.tx.lock();
            tx.take_back(self.count as u32);
            for slot in self.slots() {
                let _ = tx.free.push_within_capacity(*slot);
            }
            tx.has_backlog()
        };
        if waited {
            self.link.schedule_poll();
        }
    }
}

impl Tx {
    /// Whether a datagram of `n` fragments may be posted.
    fn has_dgram_room(&mut self, n: u32) -> bool {
        let (Some(flow), Some(share)) = (&self.flow, &mut self.dgrams.share) else {
            return false;
        };
        self.state == LinkState::Up
            && !self.draining
            && self.free.len() >= SPARE_SLOTS + n as usize
            && self.sq_free >= n + 2 * CONTROL_SLOTS as u32
            && flow.available(false) >= self.reserved + n
            && share.has_room(flow, self.dgrams.reserved + n)
    }

    /// A datagram of `n` fragments has found no room.
    fn want_dgram_room(&mut self, n: u32) {
        self.dgrams.wanted = self.dgrams.wanted.max(n);
        self.signal_wanted |= self.unsignaled > 0;
    }

    /// Takes a slot for each of `n` fragments. There is room.
    fn pop_slots(&mut self, n: u32) -> Option<Slots> {
        let mut slots = [0; FRAGMENTS_MAX as usize];
        for slot in slots.get_mut(..n as usize)? {
            *slot = self.free.pop()?;
        }
        Some(slots)
    }

    /// Takes what a datagram of `n` fragments needs. There is room.
    fn take_slots(&mut self, link: &Arc<Link>, n: u32) -> Option<DgramSlots> {
        let buffers = self.buffers.clone()?;
        let slots = self.pop_slots(n)?;
        self.reserved += n;
        self.dgrams.reserved += n;
        self.sq_free -= n;
        Some(DgramSlots {
            link: link.clone(),
            buffers,
            slots,
            count: n as usize,
        })
    }

    /// Undoes [`Self::take_slots`], except for the slots.
    fn take_back(&mut self, n: u32) {
        self.reserved = self.reserved.saturating_sub(n);
        self.dgrams.reserved = self.dgrams.reserved.saturating_sub(n);
        self.sq_free += n;
    }

    /// Posts the fragments of a datagram, whose bytes are in `slots`; the last one takes the
    /// `charge`. After an error the caller must end the link.
    fn post_dgram(
        &mut self,
        slots: &[u16],
        ports: Ports,
        total: u32,
        charge: &mut Option<Charge>,
    ) -> Result {
        self.dgrams.id = self.dgrams.id.wrapping_add(1);
        let mut result = Ok(());
        for (f, slot) in fragments(ports, self.dgrams.id, total).zip(slots) {
            if result.is_err() {
                let _ = self.free.push_within_capacity(*slot);
                continue;
            }
            let header = DgramHeader {
                link_credit: 0,
                body: Body::Datagram(f),
            };
            let charge = if f.is_last() { charge.take() } else { None };
            result = post(self, *slot, Outgoing::fragment(header, charge));
        }
        self.dgrams.seq = self.seq;
        result
    }

    /// Has `sock` called in `dgram_stall_ms`, or when the link has room. Returns false without
    /// memory, or if the link has ended.
    fn withhold(&mut self, link: &Arc<Link>, sock: &Arc<dyn DgramSocket>) -> bool {
        let starved = &mut self.dgrams.starved;
        if self.state == LinkState::Down || starved.push(sock.clone(), GFP_NOWAIT).is_err() {
            return false;
        }
        // Under `tx` while the link is not down: the teardown cancels it.
        let delay = msecs_to_jiffies(params::DGRAM_STALL_MS.get()) + 1;
        let queue = &link.transport.queue;
        let _ = queue.enqueue_delayed::<Arc<Link>, DGRAM_STALL>(link.clone(), delay);
        true
    }

    /// Posts the oldest datagram that has waited for the link to come up. `None`: there is none, or
    /// no room for it. After an error the caller must end the link.
    fn post_held(&mut self) -> Option<(HeldDgram, Result)> {
        let first = self.dgrams.backlog.as_ref()?.first()?;
        let (ports, len) = (first.ports, first.bytes.len() as u32);
        let n = fragment_count(len);
        if !self.has_dgram_room(n) {
            self.want_dgram_room(n);
            return None;
        }
        let buffers = self.buffers.clone()?;
        let held = self.dgrams.backlog.as_mut()?.pop()?;
        let slots = self.pop_slots(n)?;
        for (slot, part) in slots.iter().zip(held.bytes.chunks(FRAGMENT as usize)) {
            // A part is never too long for a slot.
            let _ = buffers.put(*slot, part);
        }
        let posted = self.post_dgram(&slots, ports, len, &mut None);
        Some((held, posted))
    }
}

impl Terms {
    /// The connector's share of the credit for datagrams, if the link carries some. ENOMEM.
    pub(super) fn share_for_dgrams(&mut self) -> Result {
        if self.agreed.features & FEATURE != 0 {
            let slots = CreditShare::slots_for(self.flow.left_to_us()) as usize;
            let slots = KVVec::from_elem(None, slots, GFP_KERNEL)?;
            self.dgrams = Some(CreditShare::new(slots, &self.flow));
        }
        Ok(())
    }
}

/// How long a datagram waits for room, in nanoseconds.
fn stall_ns() -> u64 {
    u64::from(params::DGRAM_STALL_MS.get()) * 1_000_000
}

/// The error of a socket whose datagrams were lost with a link.
fn errno_of(why: Failure) -> Error {
    match why {
        Failure::Refused(Refusal::NoListener) => ECONNREFUSED,
        Failure::NoRoute => ENETUNREACH,
        Failure::Denied => EACCES,
        _ => EHOSTUNREACH,
    }
}

impl Link {
    /// A datagram was sent or has arrived: the link is in use.
    fn dgram_passed(&self) {
        self.empty_since.store(now_ns(), Relaxed);
    }

    /// Reserves what a datagram of `n` fragments needs. `starve`: if there is no room, this socket
    /// is withheld POLLOUT until [`DgramSocket::may_send`] is called. Does not sleep.
    pub(crate) fn reserve_dgram(
        self: &Arc<Self>,
        n: u32,
        starve: Option<&Arc<dyn DgramSocket>>,
    ) -> Room {
        let until = {
            let tx = &mut *self.tx.lock();
            match tx.state {
                LinkState::Down => return Room::Down,
                LinkState::Connecting => return Room::Held,
                LinkState::Up if tx.dgrams.share.is_none() => return Room::Unsupported,
                LinkState::Up if tx.dgrams.has_held() => return Room::Held,
                LinkState::Up => {}
            }
            let room = tx.has_dgram_room(n);
            match tx.dgrams.stall.decide(room, now_ns(), stall_ns()) {
                Verdict::Send => {
                    return tx.take_slots(self, n).map_or(Room::Down, Room::Taken);
                }
                Verdict::Drop => return Room::Dropped,
                Verdict::Wait { until } => {
                    tx.want_dgram_room(n);
                    if starve.is_some_and(|sock| !tx.withhold(self, sock)) {
                        // It would not be called.
                        tx.dgrams.stall.give_up();
                        return Room::Dropped;
                    }
                    until
                }
            }
        };
        self.transmit();
        Room::Full(until)
    }

    /// The send buffer of `sock` is full: has it called as [`Tx::withhold`] says.
    pub(crate) fn call_in_time(self: &Arc<Self>, sock: &Arc<dyn DgramSocket>) -> bool {
        self.tx.lock().withhold(self, sock)
    }

    /// Datagrams that the link has dropped because it had no room, wrapping.
    pub(crate) fn dgram_drops(&self) -> u32 {
        self.tx.lock().dgrams.stall.drops()
    }

    /// Counts the drop of a datagram whose wait has timed out.
    pub(crate) fn give_up_dgram(&self) {
        self.tx.lock().dgrams.stall.give_up();
    }

    /// Keeps a datagram of `sock` until the link is up. The oldest ones are dropped, and counted,
    /// if there are too many. Sleeps. ENOMEM.
    pub(crate) fn hold_dgram(
        self: &Arc<Self>,
        sock: Arc<dyn DgramSocket>,
        ports: Ports,
        bytes: KVVec<u8>,
    ) -> Result {
        let len = bytes.len() as u32;
        let mut held = Some(HeldDgram { sock, ports, bytes });
        let mut slots = KVec::new();
        while held.is_some() {
            let mut short = false;
            let evicted = {
                let tx = &mut *self.tx.lock();
                if tx.state == LinkState::Down {
                    // Lost with the link.
                    break;
                }
                match &mut tx.dgrams.backlog {
                    Some(backlog) => match backlog.evict(len) {
                        Some(evicted) => {
                            tx.dgrams.stall.give_up();
                            Some(evicted)
                        }
                        None => held.take().and_then(|new| backlog.push(len, new).err()),
                    },
                    none => {
                        short = slots.is_empty();
                        if !short {
                            *none = Some(Backlog::new(mem::take(&mut slots)));
                        }
                        None
                    }
                }
            };
            // Freed without the lock.
            if let Some(evicted) = evicted {
                evicted.sock.link_dropped();
            }
            if short {
                for _ in 0..BACKLOG_SLOTS {
                    slots.push(None, GFP_KERNEL)?;
                }
            }
        }
        // The link may have come up meanwhile.
        self.wake_dgram_senders();
        Ok(())
    }

    /// The link may have room for datagrams: posts those that have waited for it to come up, then
    /// wakes senders.
    pub(super) fn wake_dgram_senders(self: &Arc<Self>) {
        let unsupported = {
            let tx = &mut *self.tx.lock();
            if !tx.dgrams.waits() || tx.state != LinkState::Up {
                return;
            }
            let none = tx.dgrams.share.is_none();
            none.then(|| tx.dgrams.backlog.take())
        };
        if let Some(dropped) = unsupported {
            drop(dropped);
            self.tell_lost(EHOSTUNREACH);
            return;
        }
        loop {
            let sent = self.tx.lock().post_held();
            let Some((held, posted)) = sent else { break };
            // Freed without the lock.
            drop(held);
            if posted.is_err() {
                self.fail_link_lost("its send queue takes nothing");
                return;
            }
        }
        let starved = {
            let tx = &mut *self.tx.lock();
            let wanted = tx.dgrams.wanted;
            if wanted == 0 || tx.dgrams.has_held() || !tx.has_dgram_room(wanted) {
                return;
            }
            tx.dgrams.wanted = 0;
            tx.dgrams.stall.clear();
            mem::take(&mut tx.dgrams.starved)
        };
        self.dgram_wait.wake_all();
        for sock in starved {
            sock.may_send(false);
        }
    }

    /// Datagrams of ours are lost with the link, or the peer takes none.
    fn tell_lost(&self, why: Error) {
        if let Some(receiver) = self.transport.dgram_receiver() {
            receiver.lost(self, why);
        }
    }

    /// A link of this host changes for the senders that also speak UDP. Sleeps.
    fn tell_change(self: &Arc<Self>, change: Change) {
        if self.accepted {
            return;
        }
        if let Some(receiver) = self.transport.dgram_receiver() {
            receiver.changed(self, change);
        }
    }

    /// The link is up. Sleeps.
    pub(super) fn dgrams_up(self: &Arc<Self>) {
        self.tell_change(match self.carries_dgrams() {
            true => Change::Up,
            false => Change::Refused,
        });
    }

    /// Whether the link is up and carries datagrams.
    pub(crate) fn carries_dgrams(&self) -> bool {
        let tx = self.tx.lock();
        tx.state == LinkState::Up && tx.dgrams.share.is_some()
    }

    /// Asks the peer whether it has a socket that datagrams with these ports reach.
    pub(crate) fn probe_port(self: &Arc<Self>, ports: Ports) {
        self.reply(Message::Dgram(DgramHeader {
            link_credit: 0,
            body: Body::Probe(ports),
        }));
    }

    /// The link is being taken down: drops what it has of datagrams. Sleeps.
    pub(super) fn dgrams_lost(self: &Arc<Self>, why: Failure) {
        let (backlog, starved, unacked, was_up) = {
            let tx = &mut *self.tx.lock();
            let dgrams = mem::take(&mut tx.dgrams);
            (dgrams.backlog, dgrams.starved, dgrams.unacked, tx.was_up)
        };
        self.dgram_wait.wake_all();
        for sock in starved {
            sock.may_send(true);
        }
        drop(backlog);
        let partial = self.dgram_rx.lock().assembly.give_up();
        drop(partial);
        if unacked {
            self.tell_lost(errno_of(why));
        }
        self.tell_change(match was_up {
            true => Change::Lost,
            false => Change::Refused,
        });
    }

    /// A message for datagrams has arrived; `copy` copies its first bytes. Sleeps.
    pub(super) fn dgram_arrived(
        self: &Arc<Self>,
        h: &DgramHeader,
        copy: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<(), Violation> {
        let receiver = self.transport.dgram_receiver();
        let receiver = receiver.as_deref();
        let answer = match &h.body {
            Body::Datagram(f) => {
                self.dgram_passed();
                self.rx_bytes.add(u64::from(f.len()));
                let closed = self.fragment_arrived(receiver, f, copy)?;
                closed.then_some((f.ports, PortState::Closed))
            }
            Body::Probe(ports) => {
                let open = receiver.is_some_and(|r| r.is_open(self, *ports));
                let state = if open {
                    PortState::Open
                } else {
                    PortState::Closed
                };
                Some((*ports, state))
            }
            Body::Port(ports, state) => {
                if let Some(receiver) = receiver {
                    receiver.answered(self, *ports, *state);
                }
                None
            }
        };
        if let Some((ports, state)) = answer {
            let may = self.dgram_rx.lock().refusals.may_answer(ports, now_ns());
            if may {
                let h = DgramHeader {
                    link_credit: 0,
                    body: Body::Port(ports.reversed(), state),
                };
                self.reply(Message::Dgram(h));
            }
        }
        Ok(())
    }

    /// Returns whether no socket takes the datagram.
    fn fragment_arrived(
        self: &Arc<Self>,
        receiver: Option<&dyn DgramReceiver>,
        f: &Fragment,
        copy: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<bool, Violation> {
        let mut rx = self.dgram_rx.lock();
        let mut closed = false;
        let begin = || {
            let begin = receiver.map(|r| r.begin(self, f.ports, f.total));
            match begin {
                Some(Begin::Kept(incoming)) => return Some(incoming),
                Some(Begin::Dropped) => {}
                Some(Begin::Closed) | None => closed = true,
            }
            None
        };
        match rx.assembly.arrived(f, begin)? {
            Arrived::Dropped => {}
            Arrived::Part(incoming) => {
                if incoming.copy(f, copy).is_err() {
                    drop(rx.assembly.give_up());
                }
            }
            Arrived::Whole(mut incoming) => {
                if incoming.copy(f, copy).is_ok() {
                    incoming.deliver();
                }
            }
        }
        Ok(closed)
    }
}

impl WorkItem<DGRAM_STALL> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        fault::asynchronous(|| {
            let starved = mem::take(&mut link.tx.lock().dgrams.starved);
            for sock in starved {
                sock.may_send(true);
            }
        });
    }
}
