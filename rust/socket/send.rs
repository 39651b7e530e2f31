// SPDX-License-Identifier: GPL-2.0

//! Sending: from the program's pages where they lie, or through registered buffers.
//!
//! A blocking send of at least `pin_threshold` bytes pins its pages, chunk by chunk, and returns
//! when the device has read the last of them (row Z4). Anything else is copied into the link's
//! transmit buffers and returns at once. Either way the chunk is posted by the caller itself:
//! there is no queue behind a socket.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::{take_turn, Sock};
use crate::kern::errno::*;
use crate::kern::pin::{Extracted, PinnedPages};
use crate::kern::sock::msg::SendMsg;
use crate::kern::wait::{Timeout, WaitMode};
use crate::params;
use crate::proto::channel::{Channel, Plan};
use crate::proto::readiness::Phase;
use crate::proto::wire::{CHUNK_MAX, SMALL_MAX};
use crate::stats::STATS;
use crate::transport::link::Link;
use crate::transport::transmit::{Payload, Reservation};

/// The right to send the next chunk of a channel.
struct Turn<'a>(&'a Sock);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().tx_turn = false;
        self.0.wait.wake_all();
    }
}

/// How one call sends.
#[derive(Clone, Copy)]
struct Style {
    /// The call is above the small class.
    bulk: bool,
    /// Pages are pinned rather than copied.
    pin: bool,
    nonblock: bool,
}

impl Sock {
    /// sendmsg(). Returns how much was taken; less than asked for when room, time or the program's
    /// memory ran out or a signal came after the first bytes.
    ///
    /// Errors: EOPNOTSUPP (out-of-band data), EPIPE (not connected, or shut), ECONNRESET and
    /// others from SO_ERROR, EAGAIN, EINTR, EFAULT, ENOMEM. Sleeps.
    pub(super) fn send(this: &Arc<Self>, msg: &mut SendMsg<'_>) -> Result<usize> {
        if msg.oob() {
            return Err(EOPNOTSUPP());
        }
        let total = msg.len();
        let nonblock = msg.nonblock();
        let mut timeout = this.sk().and_then(|sk| sk.sndtimeo(nonblock));
        let mut style = Style {
            bulk: total > SMALL_MAX as usize,
            pin: !nonblock && total >= (params::PIN_THRESHOLD.get() as usize).max(1),
            nonblock,
        };
        let mut sent = 0;
        let mut pinned_to = None;
        let mut result = Ok(());
        while sent < total || total == 0 {
            match Sock::send_chunk(this, msg, total - sent, &mut style, &mut timeout) {
                Ok((n, pinned)) => {
                    sent += n;
                    pinned_to = pinned.or(pinned_to);
                    if total == 0 {
                        break;
                    }
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        if let Some(pos) = pinned_to {
            this.await_device(pos);
        }
        if sent > 0 {
            return Ok(sent);
        }
        result.map(|()| 0)
    }

    /// Sends one chunk of at most `want` bytes; returns its length and, if its pages are pinned,
    /// the position in the stream at which they are free again.
    fn send_chunk(
        this: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        want: usize,
        style: &mut Style,
        timeout: &mut Timeout,
    ) -> Result<(usize, Option<u64>)> {
        let want = want.min(CHUNK_MAX as usize) as u32;
        if want == 0 {
            return this.sendable().map(|()| (0, None));
        }
        let s = *style;
        let found = this.wait.wait(WaitMode::Interruptible, timeout, || {
            Sock::begin_chunk(this, want, s)
        });
        let (plan, reservation) = match found {
            Ok(begun) => begun?,
            Err(e) => return Err(e.to_errno(*timeout)),
        };
        let turn = Turn(this);
        let (mut plan, most) = match plan {
            Plan::Bulk(n) if !s.pin => (Plan::Bulk(n.min(SMALL_MAX)), n.min(SMALL_MAX)),
            Plan::Bulk(n) | Plan::Small(n) => (plan, n),
            Plan::Wait => return Err(EAGAIN),
        };
        let mut payload = Payload::Copied;
        let mut n = most as usize;
        if s.pin {
            match PinnedPages::extract(msg.iter(), n) {
                Ok(Extracted::Pages(pages)) => {
                    n = pages.len();
                    payload = Payload::Pinned(reservation.link().map_pages(pages)?);
                }
                // Memory that nobody may hold on to, or that cannot be pinned though it can be read
                // (a window of our own is such): the copy will tell.
                Ok(Extracted::Copy) | Err(EFAULT) => {
                    style.pin = false;
                    n = n.min(SMALL_MAX as usize);
                }
                Err(e) => return Err(e),
            }
        }
        let copied = matches!(payload, Payload::Copied);
        if copied {
            n = reservation.fill(n, msg.iter())?;
        }
        plan = match plan {
            Plan::Bulk(_) => Plan::Bulk(n as u32),
            _ => Plan::Small(n as u32),
        };
        let end = reservation.post(this, plan, payload).map_err(|_| {
            // The channel closed in between.
            this.sendable().err().unwrap_or(EPIPE)
        })?;
        drop(turn);
        this.counters.tx_bytes.add(&STATS.tx_bytes, n);
        if copied {
            this.counters.tx_copied.add(&STATS.tx_copied, n);
        }
        Ok((n, (!copied).then_some(end)))
    }

    /// Looks whether a chunk can go now: there is room on the channel, nobody else is sending on
    /// it, and the link has what a chunk needs. Then takes the turn and the reservation.
    fn begin_chunk(
        this: &Arc<Self>,
        want: u32,
        style: Style,
    ) -> Option<Result<(Plan, Reservation)>> {
        let (plan, link, ask) = {
            let mut inner = this.inner.lock();
            let inner = &mut *inner;
            if matches!(inner.phase, Phase::Connecting) {
                return None;
            }
            if let Err(e) = sendable(inner) {
                return Some(Err(e));
            }
            let (Some(c), Some(link)) = (&mut inner.chan, &inner.link) else {
                return Some(Err(EPIPE));
            };
            if inner.tx_turn {
                return None;
            }
            let mut plan = c.plan(want, style.bulk);
            if plan == Plan::Wait && style.bulk && style.nonblock {
                // What poll() promises is room for a small message.
                plan = c.plan(want, false);
            }
            let ask = c.has_control() && !inner.queued;
            if plan != Plan::Wait {
                take_turn(&mut inner.tx_turn);
            }
            (plan, link.clone(), ask)
        };
        if ask {
            link.kick(this);
        }
        if plan == Plan::Wait {
            return None;
        }
        match Link::reserve(&link, this, style.pin) {
            Some(reservation) => Some(Ok((plan, reservation))),
            None => {
                // No wake-up: whoever waits for the turn finds the link without room as well, and
                // all of them are woken when it has.
                this.inner.lock().tx_turn = false;
                None
            }
        }
    }

    /// Whether sending makes sense: the pending error, or EPIPE.
    fn sendable(&self) -> Result {
        sendable(&mut self.inner.lock())
    }

    /// Waits until the device is done with the channel's pages up to `pos`. A task that is being
    /// killed does not wait: the pins stay with the request.
    fn await_device(&self, pos: u64) {
        let _ = self.wait.wait(WaitMode::Killable, &mut None, || {
            (self.inner.lock().tx_done >= pos).then_some(())
        });
    }
}

fn sendable(inner: &mut super::Inner) -> Result {
    if let Some(sk) = &inner.sk {
        if let Some(e) = sk.take_err() {
            return Err(e);
        }
    }
    match inner.phase {
        Phase::Connected | Phase::Connecting => {}
        _ => return Err(EPIPE),
    }
    if inner.chan.as_ref().is_none_or(Channel::write_ended) {
        return Err(EPIPE);
    }
    Ok(())
}
