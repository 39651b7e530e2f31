// SPDX-License-Identifier: GPL-2.0

//! The channels on a link, and whose turn it is to send: joining and leaving the link, what a data
//! message needs of it, and who is woken when there is room. The order is [`Scheduler`]'s.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::time::Jiffies;
use kernel::workqueue::WorkItem;

use super::link::{Link, LinkState, Tx, RESCHEDULE};
use super::tx::{Reservation, CONTROL_SLOTS, MAX_WRS};
use crate::kern::{fault, task};
use crate::proto::scheduler::{Flow, Scheduler, TrafficClass};
use crate::proto::wire::{CHUNK_MAX, SMALL_MAX};
use crate::proto::ChanId;
use crate::socket::Sock;

/// The channels on a link.
pub(super) type Channels = Scheduler<KVVec<Flow<Arc<Sock>>>>;

/// A channel's flow on its link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowId {
    pub(crate) id: ChanId,
    pub(crate) flow: u32,
}

/// When those who wait are looked at again though nothing has completed, in jiffies: others were called before
/// them, and did not come.
const RESCHEDULE_DELAY: Jiffies = 2;

/// Of how many sockets what they hold back is sent in one go.
const CORK_BATCH: usize = 8;

/// Bytes of bulk data that one message is counted as when others are called.
const USUAL: u32 = 64 * 1024;

/// Chunks are cut at multiples of this, so that the next one begins at a page.
const PAGE: u32 = 4096;

impl Link {
    /// Puts channel `id` of a socket on the link. Sleeps. ENOMEM. On a link that is down already, the
    /// channel is told so, and has no place; nor has one that has ended.
    pub(crate) fn attach(self: &Arc<Self>, sock: &Arc<Sock>, id: ChanId) -> Result<Option<FlowId>> {
        loop {
            let want = {
                let tx = &mut *self.tx.lock();
                if tx.state == LinkState::Down {
                    break;
                }
                if let Ok(flow) = tx.channels.add(id, sock.clone()) {
                    let place = FlowId { id, flow };
                    let inner = &mut *sock.inner.lock();
                    let ours = inner.link.as_ref().is_some_and(|l| Arc::ptr_eq(l, self));
                    if ours && inner.chan.set_flow(place) {
                        return Ok(Some(place));
                    }
                    // It has ended meanwhile. The caller has a reference as well.
                    drop(tx.channels.remove(id, flow));
                    return Ok(None);
                }
                (tx.channels.flows() * 2).max(16)
            };
            // More flows are made outside of the lock.
            let mut flows = KVVec::with_capacity(want, GFP_KERNEL)?;
            for _ in 0..want {
                flows.push(Flow::new(), GFP_KERNEL)?;
            }
            let old = self.tx.lock().channels.move_to(flows);
            drop(old);
        }
        let (why, retry) = self.reason();
        sock.link_lost(self, why, retry);
        Ok(None)
    }

    /// Takes a channel off the link.
    pub(crate) fn detach(self: &Arc<Self>, place: FlowId) {
        let (gone, empty) = {
            let tx = &mut *self.tx.lock();
            let gone = tx.channels.remove(place.id, place.flow);
            (gone, tx.channels.is_empty())
        };
        drop(gone);
        if empty {
            self.empty_since.store(task::now_ns(), Relaxed);
            self.transport.look_for_idle();
        }
    }

    /// Reserves what a chunk of up to `want` bytes needs, and says how many it may have. `None` when the link has
    /// no room, or it is not the channel's turn; then `sock` is woken when it is.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        sock: &Arc<Sock>,
        place: FlowId,
        class: TrafficClass,
        want: u32,
        pinned: bool,
    ) -> Option<(Reservation, u32)> {
        let wrs = if pinned { MAX_WRS as u32 } else { 2 };
        let mut guard = self.tx.lock();
        let tx = &mut *guard;
        let room = has_room(tx, wrs) && (class == TrafficClass::Small || tx.bulk_room() > 0);
        let Some(may) = tx
            .channels
            .try_dequeue(class, place.id, place.flow, want, room)
        else {
            sock.set_tx_blocked(class);
            tx.signal_wanted |= class == TrafficClass::Bulk;
            self.short.fetch_add(u32::from(!room), Relaxed);
            self.waits.add(u64::from(!room));
            if room {
                // Others wait longer.
                self.reschedule();
            }
            return None;
        };
        wake_others(sock, class);
        let most = match class {
            TrafficClass::Bulk => may.min(tx.bulk_room()).min(tx.bulk_chunk),
            _ => may,
        };
        // What is cut is cut at a page.
        let most = match most {
            n if n < want && n > PAGE => n / PAGE * PAGE,
            n => n,
        };
        let reservation = Reservation::take(self, tx, place, class, wrs)?;
        Some((reservation, most))
    }

    /// Whether there is no room for bulk data just now.
    pub(crate) fn is_full(&self) -> bool {
        let tx = self.tx.lock();
        tx.state == LinkState::Up && (!has_room(&tx, MAX_WRS as u32) || tx.bulk_room() == 0)
    }

    /// Whether a small message can go, as far as the link is concerned; if not, `sock` is woken when it can. Who
    /// waits with bulk data is not told of room for less: what poll() says is true of what the program sends next.
    pub(crate) fn has_room_or_block(&self, sock: &Sock, place: FlowId) -> bool {
        let tx = &mut *self.tx.lock();
        if tx.channels.waits(TrafficClass::Bulk, place.flow) {
            sock.set_tx_blocked(TrafficClass::Bulk);
            return false;
        }
        let room = has_room(tx, MAX_WRS as u32);
        let may =
            tx.channels
                .try_dequeue(TrafficClass::Small, place.id, place.flow, SMALL_MAX, room);
        match may {
            Some(_) => wake_others(sock, TrafficClass::Small),
            None => sock.set_tx_blocked(TrafficClass::Small),
        }
        may.is_some()
    }

    /// Wakes those whose turn it is to send, as many as there is room for, and sends what others hold back.
    pub(super) fn wake_blocked_senders(self: &Arc<Self>) {
        loop {
            let mut corked = [const { None }; CORK_BATCH];
            let crowded = self.wake_ready_senders(&mut corked);
            for sock in corked.into_iter().flatten() {
                sock.flush();
            }
            if !crowded {
                break;
            }
        }
    }

    /// Calls as many in both lines as there is room for. Who has something held back is put into `corked`; true: there was
    /// no place for more of them.
    fn wake_ready_senders(self: &Arc<Self>, corked: &mut [Option<Arc<Sock>>; CORK_BATCH]) -> bool {
        let tx = &mut *self.tx.lock();
        // What is held back is sent before anybody comes who was asleep: half of the room is left to those with bulk
        // data, and of room for one message every other one.
        let small = tx.room_in(TrafficClass::Small) as usize;
        tx.cork_had_last = !tx.cork_had_last;
        let spare = usize::from(tx.cork_had_last);
        let most = match tx.channels.waiting(TrafficClass::Bulk) {
            0 => small,
            _ => (small + spare) / 2,
        };
        let mut places = corked.iter_mut().take(most);
        let (mut left, mut crowded) = (false, false);
        // Both lines are told of the same room: whoever comes first has it.
        for class in [TrafficClass::Small, TrafficClass::Bulk] {
            for _ in 0..tx.room_in(class) {
                let Some(sock) = tx.channels.next_ready(class).cloned() else {
                    break;
                };
                if sock.is_cork_blocked() && class == TrafficClass::Small {
                    let Some(place) = places.next() else {
                        // It goes on waiting.
                        tx.wait_on(class, &sock);
                        crowded = most > CORK_BATCH;
                        left = true;
                        break;
                    };
                    *place = Some(sock.clone());
                }
                if sock.take_tx_blocked(class) {
                    sock.wake_write();
                }
            }
            left |= tx.channels.waiting(class) > 0 && tx.room_in(class) > 0;
        }
        if left && !crowded {
            self.reschedule();
        }
        crowded
    }

    /// Looks soon whether those who were called have come. Under `tx`, while the link is up: whoever takes it down
    /// cancels this afterwards.
    fn reschedule(self: &Arc<Self>) {
        let queue = &self.transport.queue;
        let _ = queue.enqueue_delayed::<Arc<Self>, RESCHEDULE>(self.clone(), RESCHEDULE_DELAY);
    }
}

impl WorkItem<RESCHEDULE> for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        fault::asynchronous(|| {
            link.transmit();
            link.wake_blocked_senders();
        });
    }
}

impl Tx {
    /// A socket that was called out of a line is in it again, behind the others.
    fn wait_on(&mut self, class: TrafficClass, sock: &Arc<Sock>) {
        let place = sock.inner.lock().chan.flow();
        if let Some(FlowId { id, flow }) = place {
            self.channels.enqueue(class, id, flow);
        }
    }

    /// Bytes of bulk data that may be posted now: what is on its way is bounded, so that a small message never
    /// waits behind much of it.
    fn bulk_room(&self) -> u32 {
        match self.bulk_most.saturating_sub(self.bulk) {
            // The rest would be cut into small pieces.
            n if n < self.bulk_chunk / 2 => 0,
            n => n,
        }
    }

    /// How many data messages of a line there is room for, about.
    fn room_in(&self, class: TrafficClass) -> u32 {
        if !has_room(self, MAX_WRS as u32) {
            return 0;
        }
        let slots = self.free.len().saturating_sub(CONTROL_SLOTS) as u32;
        let credit = self.flow.as_ref().map_or(0, |flow| flow.available(false));
        let messages = slots.min(credit.saturating_sub(self.reserved));
        match class {
            TrafficClass::Bulk => messages.min(self.bulk_room().div_ceil(USUAL)),
            _ => messages,
        }
    }

    /// Sets how much bulk data may be on its way, in bytes: what the device sends in so many microseconds, but
    /// enough for two chunks of a size that is worth its message. A chunk is no more than `chunk` bytes.
    pub(super) fn bound_bulk(&mut self, bytes_per_us: u32, us: u32, chunk: u32) {
        let most = bytes_per_us.saturating_mul(us) / PAGE * PAGE;
        self.bulk_most = most.clamp(4 * USUAL, 64 * CHUNK_MAX);
        self.bulk_chunk = (self.bulk_most / 2 / PAGE * PAGE).min(chunk);
    }
}

/// A socket that waited in a line has found room, and is in the line no more: others who wait for the same are to look,
/// too. Under `tx`.
fn wake_others(sock: &Sock, class: TrafficClass) {
    if sock.take_tx_blocked(class) {
        sock.wake_write();
    }
}

/// Whether a data message of up to `wrs` work requests fits.
fn has_room(tx: &Tx, wrs: u32) -> bool {
    tx.state == LinkState::Up
        && !tx.draining
        && tx.free.len() > CONTROL_SLOTS
        && tx.sq_free >= wrs + 2 * CONTROL_SLOTS as u32
        && tx
            .flow
            .as_ref()
            .is_some_and(|f| f.available(false) > tx.reserved)
}
