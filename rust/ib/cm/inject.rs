// SPDX-License-Identifier: GPL-2.0

//! Fault injection: events with other contents than the real ones, or without a cause.

use super::{event::own_event, CmId, Id};
use crate::bindings;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};

/// Replaces an event for the handlers. Numbers of `enum rdma_cm_event_type`.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    /// For the accepting side. Before it is up, it has one event only: ESTABLISHED.
    pub(crate) accepting: bool,
    /// The event to be replaced.
    pub(crate) at: u32,
    /// The event that the handlers get instead; [`NOTHING`].
    pub(crate) event: u32,
    /// Its status.
    pub(crate) status: i32,
}

/// No event at all.
pub(crate) const NOTHING: u32 = u32::MAX;

/// The one order there is, and how often it is still to be followed.
static ACCEPTING: Atomic<bool> = Atomic::new(false);
static AT: Atomic<u32> = Atomic::new(NOTHING);
static EVENT: Atomic<u32> = Atomic::new(NOTHING);
static STATUS: Atomic<i32> = Atomic::new(0);
static LEFT: Atomic<u32> = Atomic::new(0);

impl Order {
    /// Has it followed the next `times` that the event comes; an older one ends.
    pub(crate) fn arm(self, times: u32) {
        LEFT.store(0, Relaxed);
        ACCEPTING.store(self.accepting, Relaxed);
        AT.store(self.at, Relaxed);
        EVENT.store(self.event, Relaxed);
        STATUS.store(self.status, Relaxed);
        LEFT.store(times, Release);
    }

    /// How often the order is still to be followed.
    pub(crate) fn left() -> u32 {
        LEFT.load(Relaxed)
    }

    /// The order, if it is about `ev`.
    fn take(ev: &bindings::rdma_cm_event) -> Option<Self> {
        let left = LEFT.load(Acquire);
        if left == 0 || ev.event != AT.load(Relaxed) {
            return None;
        }
        let order = Self {
            accepting: ACCEPTING.load(Relaxed),
            at: ev.event,
            event: EVENT.load(Relaxed),
            status: STATUS.load(Relaxed),
        };
        let established = ev.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED;
        // SAFETY: This event has connection parameters, or zeroes for them. Those who connect have
        // the peer's data.
        let accepting = established && unsafe { ev.param.conn.private_data_len } == 0;
        let ours = order.accepting == accepting;
        let taken = ours && LEFT.cmpxchg(left, left - 1, Full).is_ok();
        taken.then_some(order)
    }
}

/// Calls `tell` with the event, or with its replacement. The replacement has the parameters of the
/// event that came: for a refusal, say, the data of a peer that accepts.
pub(super) fn instead(ev: &bindings::rdma_cm_event, tell: impl FnOnce(&bindings::rdma_cm_event)) {
    match Order::take(ev) {
        None => tell(ev),
        Some(order) if order.event == NOTHING => {}
        Some(order) => {
            // SAFETY: It is plain data, valid as the reference is; the core keeps what it points
            // to.
            let mut told = unsafe { core::ptr::read(ev) };
            told.event = order.event;
            told.status = order.status;
            tell(&told);
        }
    }
}

impl CmId {
    /// Tells the handler of an event, as the core would. Sleeps; not in a handler, nor under a lock
    /// that the handler takes.
    pub(crate) fn tell(&self, event: u32, status: i32) {
        let ev = bindings::rdma_cm_event {
            event,
            status,
            ..Default::default()
        };
        let id: &Id = self;
        id.locked(|raw, _| {
            // SAFETY: The id is valid with its context, its handler mutex is held, and the event's
            // parameters are zeroes. It is not dropped during the call: its owner is `self`.
            unsafe { own_event(raw, id.ctx, &ev) }
        });
    }
}
