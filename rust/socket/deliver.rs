// SPDX-License-Identifier: GPL-2.0

//! A message for a socket's channel: changes the state of the channel, and puts received data into
//! the socket's queue.

#![deny(unsafe_code)]

use core::mem;

use kernel::prelude::*;
use kernel::sync::Arc;

use super::{report_failure, Inner, Sock};
use crate::kern::task;
use crate::pool::Held;
use crate::proto::channel::{Event, State};
use crate::proto::rx_queue::{Moved, Segment};
use crate::proto::wire::{Header, Type};
use crate::proto::Violation;
use crate::transport::conn::{Delivery, FollowUp};
use crate::transport::link::Link;

/// Delivers message `h`, which arrived on `link`, under the socket's lock. `may_grow`: the caller
/// can enlarge the socket's queue.
pub(super) fn deliver(
    sock: &Sock,
    link: &Arc<Link>,
    h: &Header,
    held: &mut Option<Held>,
    may_grow: bool,
) -> Result<Delivery, Violation> {
    // Only an ACCEPT opens a connection.
    let local = (h.kind == Type::Accept).then(|| link.local_ip());
    let mut inner = sock.inner.lock();
    let inner = &mut *inner;
    if !inner.conn.is_on(link) || inner.conn.chan.id() != Some(h.dst) {
        return Ok(Delivery::NoChannel);
    }
    if may_grow && matches!(h.kind, Type::Data | Type::Written) && inner.rx_is_short() {
        return Ok(Delivery::QueueFull);
    }
    let was = inner.state_before();
    let heard = inner.conn.chan.with(|chan| {
        let closed = chan.state() == State::Closed;
        (!closed).then(|| (chan.on_message(h), chan.take_room()))
    });
    let Some((event, room)) = heard.flatten() else {
        return Ok(Delivery::NoChannel);
    };
    let event = event?;
    let mut follow = FollowUp {
        // As TCP: only a sender that found the channel full is woken.
        room: room && mem::take(&mut inner.conn.wants_room),
        ..Default::default()
    };
    match event {
        // Woken under the lock: a thread that sees the connection open and then waits for new
        // events must not get this event later.
        Event::Opened => {
            if let Some(local) = local {
                Sock::opened(inner, local);
            }
            sock.wake_state_in(inner);
        }
        Event::Busy => {
            inner.backoff.refused(task::now_ns());
            inner.deadline = Some(inner.backoff.deadline());
        }
        Event::Failed => {
            report_failure(inner);
            sock.wake_state_in(inner);
        }
        Event::Data => {
            let born = match held {
                Some(Held::Block(block)) => block.born(),
                _ => task::now_ns(),
            };
            push(inner, h, None, 0, held, born)?;
        }
        Event::Written { off, pad } => {
            let window = inner.window.as_ref();
            let born = window.map(|w| w.arrived(off as usize, h.len as usize, h.dst));
            push(inner, h, Some(off), pad, &mut None, born.unwrap_or(0))?;
        }
        Event::Revoked => sock.on_revoked(inner),
        _ => {}
    }
    if matches!(event, Event::Data | Event::Written { .. }) {
        follow.crowded = inner.has_crowded_ring();
        follow.sk = inner.sk.clone();
    }
    follow.pending = inner.conn.chan.has_pending_control();
    follow.over = inner.conn.chan.is_over();
    follow.window_done = inner.is_window_done();
    inner.trace_state_change(was);
    Ok(Delivery::Done(event, follow))
}

/// Appends received data to the socket's queue, and to its ring if it has one. Takes `held`, but
/// for a message that is copied to the ring.
fn push(
    inner: &mut Inner,
    h: &Header,
    window_off: Option<u32>,
    pad: u32,
    held: &mut Option<Held>,
    born: u64,
) -> Result<(), Violation> {
    let moved = match &*held {
        Some(held) => inner.copy_small(held, h.len),
        None => Moved::No,
    };
    let segment = Segment {
        pos: h.pos,
        len: h.len,
        window_off,
        pad,
        // Blocks are never mapped: their data is read by recv().
        claimed: window_off.is_none() && moved == Moved::No,
        held: match moved {
            Moved::No => held.take(),
            _ => None,
        },
        taken: 0,
        mapped: 0,
        born,
        moved,
    };
    let index = inner.rx.push(segment)?;
    inner.arrived += 1;
    inner.publish(index);
    Ok(())
}
