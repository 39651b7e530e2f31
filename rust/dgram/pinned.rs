// SPDX-License-Identifier: GPL-2.0

//! Datagrams that are sent from the program's pages where they lie.
//!
//! By a blocking call, from `pin_threshold` bytes on: the call returns when the device is done with
//! the pages. A socket that sends to several hosts copies there: it would wait for one that has
//! died, until its link is lost. With MSG_ZEROCOPY, from 4097 bytes on: the call returns at once,
//! and a notification follows on the error queue. All other datagrams are copied, and those whose
//! pages cannot be pinned or mapped, or are in too many pieces for the device.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;

use super::DgramSock;
use crate::kern::pin::{Extracted, PinnedPages};
use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::zerocopy::Notification;
use crate::kern::sock::Sk;
use crate::kern::wait::{Timeout, WaitError, WaitMode};
use crate::params;
use crate::proto::channel::Failure;
use crate::proto::dgram::wire::FRAGMENT;
use crate::transport::conn::{Charge, SendBuffer};
use crate::transport::link::Link;
use crate::transport::pins::Pins;

/// The most pieces of a program's memory in a datagram that is not copied.
const PIECES_MAX: usize = 32;

/// Tells a sender that the device is done with its pages.
pub(super) struct Lent {
    sock: Arc<DgramSock>,
    done: Atomic<bool>,
}

impl SendBuffer for Lent {
    /// The pages are unpinned.
    fn uncharge(&self, _bytes: usize) {
        self.done.store(true, Release);
        self.sock.wait.wake_all();
    }
}

/// The pages of a datagram.
pub(super) struct Pinned {
    pub(super) pins: Arc<Pins>,
    /// `None`: the call does not wait for the device.
    pub(super) lent: Option<Arc<Lent>>,
}

impl DgramSock {
    /// Pins the pages of the call's datagram for `link`; `None`: it is copied. Sleeps.
    pub(super) fn pin(
        self: &Arc<Self>,
        link: &Link,
        sk: &Sk,
        msg: &mut SendMsg<'_>,
    ) -> Option<Pinned> {
        let len = msg.len();
        let detached = Notification::wanted(sk, msg);
        let large = len >= (params::PIN_THRESHOLD.get() as usize).max(1);
        let pins = match detached {
            true => len > FRAGMENT as usize,
            false => large && !msg.nonblock() && !self.several.load(Relaxed),
        };
        // While the link connects, datagrams are copied; and while its peer acknowledges nothing.
        if !pins || !link.may_pin(!detached) {
            return None;
        }
        let pinned = self.try_pin(link, msg, !detached).ok();
        if pinned.is_none() {
            msg.rewind(0);
        }
        pinned
    }

    fn try_pin(
        self: &Arc<Self>,
        link: &Link,
        msg: &mut SendMsg<'_>,
        waits: bool,
    ) -> Result<Pinned> {
        let first = Self::extract(msg)?;
        let mut more = KVec::new();
        // An iovec has ended, or the memory is not there: then the copy says so.
        while msg.len() > 0 {
            if more.len() + 1 >= PIECES_MAX {
                return Err(E2BIG);
            }
            more.push(Self::extract(msg)?, GFP_KERNEL)?;
        }
        let lent = match waits {
            true => Some(Arc::new(
                Lent {
                    sock: self.clone(),
                    done: Atomic::new(false),
                },
                GFP_KERNEL,
            )?),
            false => None,
        };
        let charge = lent.clone().map(|lent| Charge::new(lent, 0, false));
        let pins = link.map_dgram(first, more, charge)?;
        Ok(Pinned { pins, lent })
    }

    /// Pins the pages of the next bytes of the call, up to the end of the contiguous piece.
    fn extract(msg: &mut SendMsg<'_>) -> Result<PinnedPages> {
        let len = msg.len();
        match PinnedPages::extract(msg.iter(), len)? {
            Extracted::Pages(pages) => Ok(pages),
            Extracted::Copy => Err(EFAULT),
        }
    }

    /// Waits until the device is done with the pages. If no work request completes on the link for
    /// `dead_ms`, the link is ended, and the device is done with them. A task that is being killed
    /// does not wait: the messages in flight keep the pages.
    pub(super) fn await_device(&self, link: &Arc<Link>, lent: &Lent) {
        let done = || lent.done.load(Acquire).then_some(());
        let wait = |limit: &mut Timeout| {
            self.wait
                .wait_or_poll(WaitMode::Killable, limit, Some(link), done)
        };
        let dead = msecs_to_jiffies(params::DEAD_MS.get());
        let mut before = link.last_completed();
        while wait(&mut Some(dead)) == Err(WaitError::TimedOut) {
            let completed = link.last_completed();
            if completed == before {
                link.fail_and_log(Failure::TimedOut, "its peer acknowledges no datagram");
                // The teardown of the link is bounded.
                let _ = wait(&mut None);
                break;
            }
            before = completed;
        }
    }

    /// The notification of a MSG_ZEROCOPY call, whose datagram is about to be sent. ENOBUFS.
    /// Sleeps.
    pub(super) fn notification(sk: &Sk, msg: &SendMsg<'_>) -> Result<Option<Notification>> {
        match Notification::wanted(sk, msg) {
            true => Ok(Some(Notification::new(sk, msg, msg.total())?)),
            false => Ok(None),
        }
    }

    /// Sends the bytes of a call by a copy, and notifies the program of it if the call is one with
    /// MSG_ZEROCOPY and succeeds. ENOBUFS, and the errors of `send`. Sleeps.
    pub(super) fn told<'a, T>(
        sk: &Sk,
        msg: &mut SendMsg<'a>,
        send: impl FnOnce(&mut SendMsg<'a>) -> Result<T>,
    ) -> Result<T> {
        let notify = Self::notification(sk, msg)?;
        let sent = send(msg);
        if let Some(notify) = notify {
            match sent {
                Ok(_) => notify.set_copied(),
                Err(_) => notify.abort(),
            }
        }
        sent
    }
}
