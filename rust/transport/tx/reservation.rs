// SPDX-License-Identifier: GPL-2.0

//! A sender's turn: the right to post one message, and the message that it posts with it.

#![deny(unsafe_code)]

use kernel::iov::IovIterSource;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{post, Body, Outgoing, TxBuffers};
use crate::kern::sock::zerocopy::Notification;
use crate::proto::channel::Plan;
use crate::proto::dgram::wire::Message;
use crate::proto::scheduler::TrafficClass;
use crate::proto::wire::HEADER_LEN;
use crate::transport::conn::{Commit, Committed, ConnOps};
use crate::transport::link::{Link, LinkState};
use crate::transport::pins::Pins;
use crate::transport::sched::FlowId;

/// The source of a chunk's bytes.
pub(crate) enum Payload {
    /// The slot's own page; see [`Reservation::fill`] and [`Reservation::put`].
    Copied,
    /// Pages: the program's, or a copy in pages of the socket.
    Pinned {
        pins: Arc<Pins>,
        /// The first byte in them.
        from: usize,
        /// Sent when the device is done with them.
        notify: Option<Notification>,
        /// They are a copy.
        copied: bool,
    },
}

impl Payload {
    /// Whether the bytes were copied.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self, Self::Copied | Self::Pinned { copied: true, .. })
    }

    /// Whether a call, or a notification, waits until the device is done with the bytes: they are
    /// in the program's pages, or are part of a call with MSG_ZEROCOPY.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Copied => false,
            Self::Pinned { copied, notify, .. } => !copied || notify.is_some(),
        }
    }
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
    /// The right to post a message of the flow `place` on `link`, with what [`Tx::take_slot`] has
    /// taken.
    pub(in crate::transport) fn new(
        link: Arc<Link>,
        (slot, buffers): (u16, Arc<TxBuffers>),
        place: FlowId,
        class: TrafficClass,
        wrs: u32,
    ) -> Self {
        Self {
            link,
            buffers,
            place,
            class,
            slot,
            wrs,
            used: false,
        }
    }

    /// Copies up to `n` bytes, at most [`SMALL_MAX`], from the program into the slot. Stops at the
    /// first page that is not present. Does not sleep.
    pub(crate) fn fill(&self, n: usize, from: &mut IovIterSource<'_>) -> usize {
        self.buffers.fill(self.slot, n, from)
    }

    /// Copies corked bytes into the slot, at most [`SMALL_MAX`]. EINVAL if there are more.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result {
        self.buffers.put(self.slot, bytes)
    }

    /// Commits the chunk `plan` of `conn`'s channel and posts it. Releases the send lock, except
    /// for a corked chunk: the next sender posts once the link's lock is free. Fails if the channel
    /// or the link has ended, or if there is no room for the chunk any more.
    pub(crate) fn post(
        mut self,
        conn: &Arc<impl ConnOps>,
        plan: Plan,
        payload: Payload,
    ) -> core::result::Result<Posted, Payload> {
        let link = &self.link;
        let mut guard = link.tx.lock();
        let tx = &mut *guard;
        if tx.state != LinkState::Up {
            return Err(payload);
        }
        let copied = matches!(payload, Payload::Copied);
        let Some(committed) = conn.commit(plan, &payload, tx.seq + 1, tx.done) else {
            return Err(payload);
        };
        let Committed {
            commit: Commit { chunk, end, marks },
            charge,
            wanted,
        } = committed;
        self.used = true;
        tx.reserved = tx.reserved.saturating_sub(1);
        tx.sq_free += self.wrs;
        link.tx_bytes.add_alone(u64::from(chunk.header.len));
        let bytes = chunk.header.len.saturating_add(HEADER_LEN as u32);
        let FlowId { id, flow } = self.place;
        tx.channels.sent(self.class, id, flow, bytes);
        let message = Outgoing {
            header: Message::Stream(chunk.header),
            write_to: chunk.write_to,
            // No thread and no corked byte waits for the completion of other copied chunks.
            conn: (!copied || marks).then(|| (conn.clone() as Arc<dyn ConnOps>, end)),
            payload: match payload {
                Payload::Copied => Body::Slot,
                Payload::Pinned {
                    pins, from, notify, ..
                } => Body::Pinned(pins, from, notify),
            },
            window: None,
            charge,
            control: false,
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
                // A sender may have found the link full because of this reservation.
                self.link.schedule_poll();
            }
        }
    }
}
