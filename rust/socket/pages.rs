// SPDX-License-Identifier: GPL-2.0

//! Sending from pages: those of the program, or new ones with a copy.
//!
//! A call waits for its turn, and for room, with its pages pinned or copied. At its end it waits
//! for the device as far as it has sent pages of the program. The pages of a copy are released by
//! the completion, whether or not a thread waits.
//!
//! A blocking call that sends pages of the program copies its tail. As messages complete in order,
//! and each such call waits for a message behind the tail of the call before, its tails add at most
//! one for each thread that sends, and one more, to what is in flight. The copies of calls that are
//! all tail, as those of non-blocking calls, are bounded by the room of the window and of the link,
//! and by SO_SNDBUF.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::notify::Notify;
use super::send::{SendResult, Style, TxSource};
use super::Sock;
use crate::kern::errno::ENOTCONN;
use crate::kern::pin::{Extracted, PinnedPages};
use crate::kern::sock::msg::SendMsg;
use crate::kern::trace::Stall;
use crate::kern::wait::{Timeout, WaitMode};
use crate::proto::channel::Plan;
use crate::proto::wire::{CHUNK_MAX, SMALL_MAX};
use crate::transport::conn::Charge;
use crate::transport::pins::Pins;
use crate::transport::tx::Payload;

/// The most bytes that are copied to pages at a time. They are copied before it is known whether
/// the link has room for all of them; the copy of bytes that find no room by the end of the call is
/// wasted.
const COPY_MOST: usize = 64 << 10;

/// Pages that were mapped for the device.
struct Mapped {
    pins: Arc<Pins>,
    bytes: usize,
    /// They are a copy.
    copied: bool,
}

impl Style {
    /// Whether the next of the remaining `left` bytes are copied to pages.
    fn copies_pages(&self, left: usize) -> bool {
        self.from == TxSource::Pages || left <= self.tail
    }

    /// There is no memory for a copy, or it cannot be mapped: the tail of a call is pinned as well,
    /// other bytes use the link's buffers, which are always there.
    fn without_copy(&mut self) {
        if self.from == TxSource::Pages {
            self.from = TxSource::Buffers;
        }
        self.tail = 0;
    }

    /// The program's memory cannot be pinned.
    fn without_pins(&mut self) {
        self.from = match self.bulk {
            true => TxSource::Pages,
            false => TxSource::Buffers,
        };
    }
}

impl Sock {
    /// Pins the next bytes, at most a chunk, or copies some, and sends them as room becomes
    /// available. Pins pages and takes page faults before it waits for anything that other threads
    /// also need.
    pub(super) fn send_pages(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        style: &mut Style,
        notify: &mut Notify,
        timeout: &mut Timeout,
    ) -> SendResult {
        let copied = style.copies_pages(msg.len());
        let most = match (style.nonblock, copied) {
            (true, _) => self.room(msg.len()),
            (false, true) => COPY_MOST,
            (false, false) => (msg.len() - style.tail).min(CHUNK_MAX as usize),
        };
        let most = if copied { most.min(COPY_MOST) } else { most };
        let mut small = copied && style.nonblock && most <= SMALL_MAX as usize;
        if !small && copied && style.nonblock && self.link().is_some_and(|link| link.is_full()) {
            // The link is full: a copy would be wasted. Taking part in the wait for room makes sure
            // that the caller is notified of it.
            match self.begin(most, *style, timeout).map(|(_, plan, _)| plan) {
                Ok(plan) => small = matches!(plan, Plan::Small(_)),
                Err(e) => return SendResult::none(Err(e)),
            }
        }
        if small {
            let style = Style {
                from: TxSource::Buffers,
                ..*style
            };
            return self.send_copied(msg, style, notify, timeout);
        }
        match self.take_pages(msg, most, style, timeout) {
            Ok(Some(mapped)) => self.post_pages(msg, mapped, style, notify, timeout),
            Ok(None) => SendResult::none(Ok(())),
            Err(e) => SendResult::none(Err(e)),
        }
    }

    /// Pins or copies up to `most` of the next bytes, and maps them for the device. `None`: that
    /// cannot be done, and `style` has changed to another way.
    fn take_pages(
        self: &Arc<Self>,
        msg: &mut SendMsg<'_>,
        most: usize,
        style: &mut Style,
        timeout: &mut Timeout,
    ) -> Result<Option<Mapped>> {
        let copied = style.copies_pages(msg.len());
        let mut charge = self.await_charge(msg.len().min(most), *style, timeout)?;
        let most = charge.as_ref().map_or(most, Charge::bytes);
        let extracted = if copied {
            PinnedPages::copy(msg.iter(), most).map(Extracted::Pages)
        } else {
            PinnedPages::extract(msg.iter(), most)
        };
        let pages = match extracted {
            Ok(Extracted::Pages(pages)) => pages,
            // Memory that must not be pinned, or that can be read but not pinned (such as this
            // socket's own window, mapped by the program). If it cannot be read either, the copy
            // returns EFAULT.
            Ok(Extracted::Copy) | Err(EFAULT) if !copied => {
                style.without_pins();
                return Ok(None);
            }
            Ok(Extracted::Copy) => return Err(EFAULT),
            Err(e) if copied && e != EFAULT => {
                style.without_copy();
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let bytes = pages.len();
        if let Some(charge) = &mut charge {
            charge.shorten(bytes);
        }
        let link = self.link().ok_or(EPIPE);
        match link.and_then(|l| l.map_pages(pages, charge)) {
            Ok(pins) => Ok(Some(Mapped {
                pins,
                bytes,
                copied,
            })),
            Err(e) if e == ENOTCONN => {
                // The channel is about to be told that its link is down, and why.
                let some = style.some;
                let told = self.await_link(WaitMode::Interruptible, timeout, || {
                    self.sendable(some).err()
                });
                Err(told.unwrap_or_else(|e| e.to_errno(*timeout)))
            }
            Err(e) => {
                self.sendable(style.some)?;
                if !copied {
                    return Err(e);
                }
                style.without_copy();
                Ok(None)
            }
        }
    }

    /// Sends the bytes of pages as room becomes available.
    fn post_pages(
        self: &Arc<Self>,
        msg: &SendMsg<'_>,
        mapped: Mapped,
        style: &mut Style,
        notify: &mut Notify,
        timeout: &mut Timeout,
    ) -> SendResult {
        let mut sent = 0;
        while sent < mapped.bytes {
            style.some |= sent > 0;
            match self.post_chunk(msg, &mapped, sent, *style, notify, timeout) {
                Ok(n) => sent += n,
                Err(e) => {
                    return SendResult {
                        sent,
                        result: Err(e),
                    }
                }
            }
        }
        SendResult {
            sent,
            result: Ok(()),
        }
    }

    /// Waits for room, and posts a chunk of the bytes from `from` on. Returns its length; 0: the
    /// caller tries again.
    fn post_chunk(
        self: &Arc<Self>,
        msg: &SendMsg<'_>,
        mapped: &Mapped,
        from: usize,
        style: Style,
        notify: &mut Notify,
        timeout: &mut Timeout,
    ) -> Result<usize> {
        let (lock, plan, reservation) = self.begin(mapped.bytes - from, style, timeout)?;
        let first = notify.begin(msg)?;
        let payload = Payload::Pinned {
            pins: mapped.pins.clone(),
            from,
            notify: notify.made.clone(),
            copied: mapped.copied,
        };
        let posted = reservation.post(self, plan, payload).ok();
        let Some(posted) = posted else {
            if first {
                notify.abort();
            }
            drop(lock);
            // The channel has ended, or a revoked window has made the plan invalid: check again.
            self.sendable(style.some)?;
            return Ok(0);
        };
        lock.posted(posted);
        if let Some(made) = notify.made.as_ref().filter(|_| mapped.copied) {
            made.set_copied();
        }
        Ok(plan.len())
    }

    /// Waits until SO_SNDBUF, if it is set, has room for some of the next `want` bytes in pages,
    /// and charges them.
    fn await_charge(
        self: &Arc<Self>,
        want: usize,
        style: Style,
        timeout: &mut Timeout,
    ) -> Result<Option<Charge>> {
        if !self.inner.lock().has_send_limit() {
            return Ok(None);
        }
        let mut told = false;
        let found = self.await_link(WaitMode::Interruptible, timeout, || {
            if let Err(e) = self.sendable(style.some) {
                return Some(Err(e));
            }
            let charge = self.charge_pages(want);
            if charge.is_none() {
                self.stalled(want as u32, Stall::Buffer, &mut told);
            }
            charge.map(Ok)
        });
        found.unwrap_or_else(|e| Err(e.to_errno(*timeout)))
    }

    /// Waits until the device is done with all pages of programs that the channel has posted so
    /// far. A task that is being killed does not wait: the messages in flight keep the pins.
    pub(super) fn await_device(&self) {
        let pos = self.inner.lock().conn.pinned_end();
        let _ = self.await_link(WaitMode::Killable, &mut None, || {
            self.inner.lock().conn.is_completed(pos).then_some(())
        });
    }
}
