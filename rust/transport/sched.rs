// SPDX-License-Identifier: GPL-2.0

//! The channels on a link, and their order of sending: adding and removing channels, reserving what
//! a data message needs, and waking senders when there is room. [`Scheduler`] decides the order.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::time::Jiffies;
use kernel::workqueue::WorkItem;

use super::conn::ConnOps;
use super::link::{Link, LinkState, Tx, RESCHEDULE};
use super::tx::{Reservation, MAX_WRS};
use crate::kern::{fault, task};
use crate::proto::scheduler::{Flow, Scheduler, TrafficClass};
use crate::proto::wire::{CHUNK_MAX, SMALL_MAX};
use crate::proto::ChanId;

/// The channels on a link.
pub(crate) type Channels = Scheduler<KVVec<Flow<Arc<dyn ConnOps>>>>;

/// A channel's flow on its link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowId {
    pub(crate) id: ChanId,
    pub(crate) flow: u32,
}

/// Delay until waiting senders are scheduled again although no message has completed, in jiffies:
/// senders that were scheduled before them have not sent.
const RESCHEDULE_DELAY: Jiffies = 2;

/// Most connections whose corked bytes are sent in one round.
const CORK_BATCH: usize = 8;

/// Assumed size of a bulk message, in bytes, when waiting senders are scheduled.
const USUAL: u32 = 64 * 1024;

/// Chunks are cut at multiples of this, so that the next one begins at a page.
const PAGE: u32 = 4096;

impl Link {
    /// Adds channel `id` of a connection to the link. Returns `None` if the channel has ended; or
    /// if the link is down, after [`ConnOps::link_lost`] was called. ENOMEM. Sleeps.
    pub(crate) fn attach(
        self: &Arc<Self>,
        conn: &Arc<impl ConnOps>,
        id: ChanId,
    ) -> Result<Option<FlowId>> {
        loop {
            let want = {
                let tx = &mut *self.tx.lock();
                if tx.state == LinkState::Down {
                    break;
                }
                if let Ok(flow) = tx.channels.add(id, conn.clone()) {
                    let place = FlowId { id, flow };
                    let mut ours = false;
                    conn.with(&mut |conn| ours = conn.attached(self, place));
                    if ours {
                        return Ok(Some(place));
                    }
                    // The channel has ended in between. This is not the last reference: the caller
                    // has one as well.
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
        ConnOps::link_lost(conn.clone(), self, why, retry);
        Ok(None)
    }

    /// Removes a channel from the link.
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

    /// Reserves what a chunk of up to `want` bytes needs, and returns how many bytes it may have.
    /// `None` if the link has no room, or other channels are scheduled first; then `conn` is woken
    /// when it may send.
    pub(crate) fn reserve(
        self: Arc<Self>,
        conn: &Arc<impl ConnOps>,
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
            conn.tx_blocked().set(class);
            tx.signal_wanted |= class == TrafficClass::Bulk;
            self.short.fetch_add(u32::from(!room), Relaxed);
            self.waits.add(u64::from(!room));
            if room {
                // There is room, but channels that wait longer go first.
                self.reschedule();
            }
            return None;
        };
        wake_others(&**conn, class);
        let most = match class {
            TrafficClass::Bulk => may.min(tx.bulk_room()).min(tx.bulk_chunk),
            _ => may,
        };
        // A chunk that is cut ends at a multiple of a page.
        let most = match most {
            n if n < want && n > PAGE => n / PAGE * PAGE,
            n => n,
        };
        let slot = tx.take_slot(wrs)?;
        drop(guard);
        let reservation = Reservation::new(self, slot, place, class, wrs);
        Some((reservation, most))
    }

    /// Whether the link has no room for bulk data now.
    pub(crate) fn is_full(&self) -> bool {
        let tx = self.tx.lock();
        tx.state == LinkState::Up && (!has_room(&tx, MAX_WRS as u32) || tx.bulk_room() == 0)
    }

    /// Whether the link has room for a small message, and for the bytes that `conn` has `corked`;
    /// if not, `conn` is woken when it has. A connection that waits with bulk data is woken when
    /// there is room for that: otherwise its program would send it in small messages.
    pub(crate) fn has_room_or_block(
        &self,
        conn: &Arc<impl ConnOps>,
        place: FlowId,
        corked: bool,
    ) -> bool {
        let tx = &mut *self.tx.lock();
        if tx.channels.waits(TrafficClass::Bulk, place.flow) {
            conn.tx_blocked().set(TrafficClass::Bulk);
            return false;
        }
        // A completion may send the corked bytes before the program's next send.
        let room = has_room_for(tx, 1 + u32::from(corked), MAX_WRS as u32);
        let may =
            tx.channels
                .try_dequeue(TrafficClass::Small, place.id, place.flow, SMALL_MAX, room);
        match may {
            Some(_) => wake_others(&**conn, TrafficClass::Small),
            None => conn.tx_blocked().set(TrafficClass::Small),
        }
        may.is_some()
    }

    /// Wakes the next waiting senders, as far as there is room, and sends the corked bytes of
    /// connections.
    pub(super) fn wake_blocked_senders(self: &Arc<Self>) {
        self.wake_dgram_senders();
        loop {
            let mut corked = [const { None }; CORK_BATCH];
            let crowded = self.wake_ready_senders(&mut corked);
            for conn in corked.into_iter().flatten() {
                conn.flush();
            }
            if !crowded {
                break;
            }
        }
    }

    /// Schedules flows of both data classes, as far as there is room. Connections with corked bytes
    /// are put into `corked`; returns true if there was no place for more of them.
    fn wake_ready_senders(
        self: &Arc<Self>,
        corked: &mut [Option<Arc<dyn ConnOps>>; CORK_BATCH],
    ) -> bool {
        let tx = &mut *self.tx.lock();
        // Corked bytes are sent before sleeping senders run. So half of the room is left to senders
        // of bulk data, if any wait; if there is room for only one message, they and corked bytes
        // get it in turn.
        let small = tx.room_in(TrafficClass::Small) as usize;
        tx.cork_had_last = !tx.cork_had_last;
        let spare = usize::from(tx.cork_had_last);
        let most = match tx.channels.waiting(TrafficClass::Bulk) {
            0 => small,
            _ => (small + spare) / 2,
        };
        let mut places = corked.iter_mut().take(most);
        let (mut left, mut crowded) = (false, false);
        // Both classes are offered the same room: the first sender that reserves it gets it.
        for class in [TrafficClass::Small, TrafficClass::Bulk] {
            for _ in 0..tx.room_in(class) {
                let Some(conn) = tx.channels.next_ready(class).cloned() else {
                    break;
                };
                let blocked = conn.tx_blocked();
                if blocked.cork() && class == TrafficClass::Small {
                    let Some(place) = places.next() else {
                        // The connection goes on waiting.
                        tx.wait_on(class, &*conn);
                        crowded = most > CORK_BATCH;
                        left = true;
                        break;
                    };
                    *place = Some(conn.clone());
                }
                if blocked.take(class) {
                    conn.write_space();
                }
            }
            left |= tx.channels.waiting(class) > 0 && tx.room_in(class) > 0;
        }
        if left && !crowded {
            self.reschedule();
        }
        crowded
    }

    /// Schedules waiting senders once more, soon. Called under `tx` while the link is up: the
    /// thread that takes the link down cancels this afterwards.
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
    /// Enqueues the flow of a scheduled connection again, behind the others.
    fn wait_on(&mut self, class: TrafficClass, conn: &dyn ConnOps) {
        let mut place = None;
        conn.with(&mut |conn| place = conn.chan.flow());
        if let Some(FlowId { id, flow }) = place {
            self.channels.enqueue(class, id, flow);
        }
    }

    /// Bytes of bulk data that may be posted now. Bulk data in flight is bounded, so that a small
    /// message never waits behind much of it.
    fn bulk_room(&self) -> u32 {
        match self.bulk_most.saturating_sub(self.bulk) {
            // Smaller room would cut the data into small pieces.
            n if n < self.bulk_chunk / 2 => 0,
            n => n,
        }
    }

    /// Approximate number of data messages of a class that there is room for.
    fn room_in(&self, class: TrafficClass) -> u32 {
        if !has_room(self, MAX_WRS as u32) {
            return 0;
        }
        let slots = (self.free.len() as u32).saturating_sub(self.control_slots.kept());
        let credit = self.flow.as_ref().map_or(0, |flow| flow.available(false));
        let messages = slots.min(credit.saturating_sub(self.reserved));
        match class {
            TrafficClass::Bulk => messages.min(self.bulk_room().div_ceil(USUAL)),
            _ => messages,
        }
    }

    /// Bounds the bulk data in flight, in bytes: what the device sends in `us` microseconds, but at
    /// least four times [`USUAL`], so that two chunks of a useful size fit. A chunk has at most
    /// `chunk` bytes.
    pub(super) fn bound_bulk(&mut self, bytes_per_us: u32, us: u32, chunk: u32) {
        let most = bytes_per_us.saturating_mul(us) / PAGE * PAGE;
        self.bulk_most = most.clamp(4 * USUAL, 64 * CHUNK_MAX);
        self.bulk_chunk = (self.bulk_most / 2 / PAGE * PAGE).min(chunk);
    }
}

/// A connection that waited for room has found some, and its flow is not queued any more: wakes the
/// other threads that wait on it, so that they check as well. Under `tx`.
fn wake_others(conn: &impl ConnOps, class: TrafficClass) {
    if conn.tx_blocked().take(class) {
        conn.write_space();
    }
}

/// Whether a data message of up to `wrs` work requests fits.
fn has_room(tx: &Tx, wrs: u32) -> bool {
    has_room_for(tx, 1, wrs)
}

/// Whether `messages` data messages of up to `wrs` work requests each fit.
fn has_room_for(tx: &Tx, messages: u32, wrs: u32) -> bool {
    tx.state == LinkState::Up
        && !tx.draining
        && tx.free.len() as u32 >= messages + tx.control_slots.kept()
        && tx.sq_free >= wrs * messages + tx.control_wrs.kept()
        && tx
            .flow
            .as_ref()
            .is_some_and(|f| f.available(false) >= tx.reserved + messages)
}
