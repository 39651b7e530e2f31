// SPDX-License-Identifier: GPL-2.0

//! SO_SNDBUF, if the program has set it: it limits the copies and pinned pages that the socket
//! holds until the device has completed their work requests. `proto/sndbuf.rs` decides how many
//! bytes that may be.

#![deny(unsafe_code)]

use kernel::sync::Arc;

use super::{Inner, Sock};
use crate::proto::sndbuf;
use crate::transport::conn::{Charge, SendBuffer};
use crate::transport::link::Link;

impl Inner {
    /// Charges `bytes` more to `sock`, whose `Inner` this is; the caller has checked that there is
    /// room.
    fn take_charge(&mut self, sock: &Arc<Sock>, limit: u32, bytes: usize) -> Charge {
        self.tx_held = self.tx_held.saturating_add(bytes as u64);
        let fills = !sndbuf::writable(limit, self.tx_held);
        Charge::new(sock.clone(), bytes, fills)
    }

    /// The limit; `None` if the program has not set SO_SNDBUF: then only the link's room limits it.
    fn send_limit(&self) -> Option<u32> {
        self.sk.as_ref().and_then(|sk| sk.sndbuf_set())
    }

    /// Whether SO_SNDBUF is set.
    pub(super) fn has_send_limit(&self) -> bool {
        self.send_limit().is_some()
    }

    /// How many of the next `want` bytes SO_SNDBUF admits; `None` if it is not set.
    fn send_room(&self, want: usize) -> Option<usize> {
        let limit = self.send_limit()?;
        Some(sndbuf::room(limit, self.tx_held, want))
    }

    /// Whether `want` bytes, a small message, may be copied; if not, notes that the caller waits
    /// for room.
    pub(super) fn may_copy(&mut self, want: usize) -> bool {
        let may = self.send_room(want) != Some(0);
        self.tx_full |= !may;
        may
    }

    /// As [`sndbuf::writable`]; if not, notes that the caller waits for room.
    pub(super) fn has_send_room(&mut self) -> bool {
        let limit = self.send_limit();
        let room = limit.is_none_or(|limit| sndbuf::writable(limit, self.tx_held));
        self.tx_full |= !room;
        room
    }

    /// Whether SO_SNDBUF admits `bytes` to be posted from a copy: other threads may have used the
    /// room since the last check.
    pub(super) fn may_hold(&self, bytes: usize) -> bool {
        self.send_room(bytes).is_none_or(|room| room >= bytes)
    }

    /// Charges `bytes`, which are posted from a copy, to `sock`, whose `Inner` this is. The caller
    /// has checked that there is room. `None` if SO_SNDBUF is not set.
    pub(super) fn charge_copy(&mut self, sock: &Arc<Sock>, bytes: usize) -> Option<Charge> {
        let limit = self.send_limit()?;
        let charge = self.take_charge(sock, limit, bytes);
        self.tx_unsignaled = !charge.fills();
        Some(charge)
    }

    /// As [`Self::charge_copy`], for the corked bytes, which were counted when they were corked.
    pub(super) fn charge_corked(&mut self, sock: &Arc<Sock>) -> Option<Charge> {
        let bytes = self.take_cork_held();
        if bytes == 0 {
            return None;
        }
        let limit = self.send_limit().unwrap_or(u32::MAX);
        self.tx_held = self.tx_held.saturating_sub(bytes as u64);
        let charge = self.take_charge(sock, limit, bytes);
        self.tx_unsignaled = !charge.fills();
        Some(charge)
    }

    /// The link and the sequence number of the last message, if that is unsignaled while bytes
    /// count against SO_SNDBUF: without a further signaled message its completion would not be
    /// known. (The limit may be lower than when the message was sent.)
    pub(super) fn unsignaled_message(&self) -> Option<(Arc<Link>, u64)> {
        let unsignaled = self.tx_unsignaled && self.tx_held > 0;
        let link = self.conn.link.as_ref().filter(|_| unsignaled)?;
        Some((link.clone(), self.conn.last_seq()))
    }
}

impl Sock {
    /// Charges up to `want` bytes that are about to be pinned; `Some(None)` if SO_SNDBUF is not
    /// set. `None` if there is no room: then it notes that the caller waits.
    pub(super) fn charge_pages(self: &Arc<Self>, want: usize) -> Option<Option<Charge>> {
        let unsignaled = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let Some(limit) = inner.send_limit() else {
                return Some(None);
            };
            let room = sndbuf::room(limit, inner.tx_held, want);
            if room > 0 {
                return Some(Some(inner.take_charge(self, limit, room)));
            }
            inner.tx_full = true;
            inner.unsignaled_message()
        };
        Sock::ask_done(unsignaled);
        // Corked bytes count as well, and make room only when they have been sent.
        self.flush();
        None
    }

    /// Asks the link for a signaled message, whose completion covers the unsignaled one. Takes the
    /// link's lock.
    pub(super) fn ask_done(unsignaled: Option<(Arc<Link>, u64)>) {
        if let Some((link, seq)) = unsignaled {
            link.done_with(seq);
        }
    }

    /// SO_SNDBUF has changed: wakes waiting threads, so that they check the new limit.
    pub(super) fn sndbuf_changed(&self) {
        // Threads that have to go on waiting set it again.
        let waited = core::mem::take(&mut self.inner.lock().tx_full);
        if waited {
            self.wake_write();
        }
    }
}

impl SendBuffer for Sock {
    fn uncharge(&self, bytes: usize) {
        let wakes = {
            let mut inner = self.inner.lock();
            inner.tx_held = inner.tx_held.saturating_sub(bytes as u64);
            inner.tx_full && {
                inner.tx_full = false;
                // This sets it again if there is no room.
                inner.has_send_room()
            }
        };
        if wakes {
            self.wake_write();
        }
    }
}
