// SPDX-License-Identifier: GPL-2.0

//! Posting datagrams: what a datagram needs on its link is reserved at once, and its fragments are
//! posted under one hold of the link's lock.

#![deny(unsafe_code)]

use core::mem;

use kernel::iov::IovIterSource;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;

use super::held::Backlog;
use super::{DgramSocket, DGRAM_STALL};
use crate::kern::sock::zerocopy::Notification;
use crate::kern::task::now_ns;
use crate::params;
use crate::proto::dgram::credit::{self, Asking};
use crate::proto::dgram::stall::{Progress, Stall, Verdict};
use crate::proto::dgram::wire::{fragments, Body, DgramHeader, Ports, FRAGMENT, FRAGMENTS_MAX};
use crate::transport::conn::Charge;
use crate::transport::link::{Link, LinkState, Tx};
use crate::transport::pins::Pins;
use crate::transport::tx::{post, Body as Payload, Outgoing, TxBuffers, CONTROL_SLOTS};

/// Slots of a link that datagrams leave to streams and control messages.
const SPARE_SLOTS: usize = 32;
const _: () = assert!(SPARE_SLOTS > CONTROL_SLOTS);

/// The datagrams that a link sends; guarded by its lock.
#[derive(Default)]
pub(in crate::transport) struct DgramTx {
    /// The link is up, and carries datagrams of this side.
    pub(in crate::transport) carries: bool,
    /// The number of the last datagram.
    id: u32,
    /// The link's sequence number of the last fragment.
    seq: u64,
    /// Datagrams were not acknowledged when the link ended.
    pub(super) unacked: bool,
    pub(super) stall: Stall,
    progress: Progress,
    /// The most fragments of a datagram that found no room; 0: none has.
    pub(super) wanted: u32,
    asking: Asking,
    pub(super) backlog: Option<Backlog>,
    /// Sockets that are withheld POLLOUT.
    pub(super) starved: KVec<Arc<dyn DgramSocket>>,
}

impl DgramTx {
    pub(super) fn has_held(&self) -> bool {
        self.backlog.as_ref().is_some_and(|b| !b.is_empty())
    }

    /// Whether [`Link::wake_dgram_senders`] may have work.
    pub(in crate::transport) fn waits(&self) -> bool {
        self.wanted > 0 || self.has_held()
    }

    /// The link ends; `done`: the device is done with all messages up to this sequence number.
    pub(in crate::transport) fn ended(&mut self, done: u64) {
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

pub(super) type Slots = [u16; FRAGMENTS_MAX as usize];

/// The bytes of a datagram.
pub(crate) enum Source {
    /// They are in its slots: see [`DgramSlots::fill`] and [`DgramSlots::put`].
    Slots,
    /// They are in the program's pages. The notification is sent when the device is done with them.
    Pages(Arc<Pins>, Option<Notification>),
}

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

    /// Posts the datagram, of `total` bytes from `source`, which have the `charge`. If the link has
    /// ended, the datagram is lost.
    pub(crate) fn post(
        mut self,
        ports: Ports,
        total: u32,
        source: Source,
        mut charge: Option<Charge>,
    ) {
        let link = self.link.clone();
        let posted = {
            let tx = &mut *link.tx.lock();
            if tx.state != LinkState::Up {
                return;
            }
            tx.take_back(mem::take(&mut self.count) as u32);
            link.tx_bytes.add_alone(u64::from(total));
            tx.post_dgram(&self.slots, ports, total, &source, &mut charge)
        };
        link.dgram_passed();
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
    pub(super) fn has_dgram_room(&self, n: u32) -> bool {
        let Some(flow) = &self.flow else {
            return false;
        };
        self.state == LinkState::Up
            && self.dgrams.carries
            && !self.draining
            && self.free.len() >= SPARE_SLOTS + n as usize
            && self.sq_free >= n + self.control_wrs.kept()
            && credit::has_room(flow, self.reserved + n)
    }

    /// A datagram of `n` fragments has found no room. The caller calls [`Link::transmit`].
    pub(super) fn want_dgram_room(&mut self, n: u32) {
        self.dgrams.wanted = self.dgrams.wanted.max(n);
        self.signal_wanted |= self.unsignaled > 0;
        self.ask_for_credit(n);
    }

    /// A datagram of `n` fragments finds no room: has the peer asked for credit, if that is what
    /// it lacks. The caller calls [`Link::transmit`].
    pub(super) fn ask_for_credit(&mut self, n: u32) {
        let Some(flow) = &self.flow else {
            return;
        };
        if !credit::has_room(flow, self.reserved + n) {
            let idle = self.seq == self.done;
            self.ping_pending |= self.dgrams.asking.is_due(flow, idle);
        }
    }

    /// Takes a slot for each of `n` fragments. There is room.
    pub(super) fn pop_slots(&mut self, n: u32) -> Option<Slots> {
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
        self.sq_free += n;
    }

    /// Posts the fragments of a datagram in `slots`, with bytes from `source`; the last one takes
    /// the `charge`, and keeps the pages: the device is done with them when it completes. After an
    /// error the caller must end the link. The caller drops `source` without the lock.
    pub(super) fn post_dgram(
        &mut self,
        slots: &[u16],
        ports: Ports,
        total: u32,
        source: &Source,
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
            let (payload, charge) = match source {
                Source::Slots if f.is_last() => (Payload::Slot, charge.take()),
                Source::Slots => (Payload::Slot, None),
                Source::Pages(pins, notify) if f.is_last() => {
                    let body = Payload::Pinned(pins.clone(), f.offset as usize, notify.clone());
                    (body, charge.take())
                }
                Source::Pages(pins, _) => (Payload::Part(pins, f.offset as usize), None),
            };
            result = post(self, *slot, Outgoing::fragment(header, payload, charge));
        }
        self.dgrams.seq = self.seq;
        self.liveness.on_dgram_sent();
        if self.unsignaled == 0 {
            self.dgrams.progress.posted(self.seq, self.done, now_ns());
        }
        result
    }

    /// Has `sock` called in `dgram_stall_ms`, or when the link has room. Returns false without
    /// memory, or if the link has ended.
    pub(super) fn withhold(&mut self, link: &Arc<Link>, sock: &Arc<dyn DgramSocket>) -> bool {
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
}

/// How long a datagram waits for room, in nanoseconds.
pub(crate) fn stall_ns() -> u64 {
    u64::from(params::DGRAM_STALL_MS.get()) * 1_000_000
}

impl Link {
    /// Reserves what a datagram of `n` fragments needs. `starve`: if there is no room, this socket
    /// is withheld POLLOUT until [`DgramSocket::may_send`] is called. Does not sleep.
    pub(crate) fn reserve_dgram(
        self: &Arc<Self>,
        n: u32,
        starve: Option<&Arc<dyn DgramSocket>>,
    ) -> Room {
        let full = {
            let tx = &mut *self.tx.lock();
            match tx.state {
                LinkState::Down => return Room::Down,
                LinkState::Connecting => return Room::Held,
                LinkState::Up if !tx.dgrams.carries => return Room::Unsupported,
                LinkState::Up => {}
            }
            // Those that have waited for the link to come up are first.
            let room = !tx.dgrams.has_held() && tx.has_dgram_room(n);
            let verdict = tx.dgrams.stall.decide(n, room, now_ns(), stall_ns());
            if verdict == Verdict::Send {
                return tx.take_slots(self, n).map_or(Room::Down, Room::Taken);
            }
            // Also for the next datagram, if this one is dropped.
            tx.want_dgram_room(n);
            match verdict {
                Verdict::Wait { until } => {
                    if starve.is_some_and(|sock| !tx.withhold(self, sock)) {
                        // It would not be called.
                        tx.dgrams.stall.give_up();
                        Room::Dropped
                    } else {
                        Room::Full(until)
                    }
                }
                _ => Room::Dropped,
            }
        };
        self.transmit();
        full
    }

    /// Whether the pages of a datagram may be given to the link's device: it is up and carries
    /// datagrams. `waits`: the sender waits for the device then, so it must not be stuck: no
    /// datagram in flight for `dgram_stall_ms` while nothing completes.
    pub(crate) fn may_pin(&self, waits: bool) -> bool {
        let tx = self.tx.lock();
        let carries = tx.state == LinkState::Up && tx.dgrams.carries;
        let stuck = || tx.dgrams.progress.is_stuck(tx.done, now_ns(), stall_ns());
        carries && !(waits && stuck())
    }

    /// The sequence number of the last message that has completed.
    pub(crate) fn last_completed(&self) -> u64 {
        self.tx.lock().done
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
}
