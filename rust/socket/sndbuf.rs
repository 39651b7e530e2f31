// SPDX-License-Identifier: GPL-2.0

//! SO_SNDBUF, where it was set: what the socket holds of copies and pinned pages that the device has not done with.
//! How much that may be is decided in `proto/sndbuf.rs`.

#![deny(unsafe_code)]

use kernel::sync::Arc;

use super::{Inner, Sock};
use crate::proto::sndbuf;
use crate::transport::link::Link;

/// Bytes that a socket holds, until this is dropped. Dropping takes the socket's lock, and wakes whoever waits for
/// room: without spinlocks.
pub(crate) struct Charge {
    sock: Arc<Sock>,
    bytes: usize,
    /// The socket is full with it: whoever waits is to be told when the device is done.
    fills: bool,
}

impl Charge {
    /// `bytes` more, for which there is room; `inner` is `sock`'s.
    fn take(sock: &Arc<Sock>, inner: &mut Inner, limit: u32, bytes: usize) -> Self {
        inner.tx_held = inner.tx_held.saturating_add(bytes as u64);
        Self {
            sock: sock.clone(),
            bytes,
            fills: !sndbuf::writable(limit, inner.tx_held),
        }
    }

    /// How many bytes it stands for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stands for `bytes` from now on, if that is less. Takes the socket's lock.
    pub(super) fn shorten(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.sock.give_held(less);
    }

    /// Whether the message that brings it is to have a completion of its own.
    pub(crate) fn fills(&self) -> bool {
        self.fills
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sock.give_held(self.bytes);
    }
}

impl Inner {
    /// How much the socket may hold; `None`: as much as the link has room for, as the program has set nothing.
    fn send_limit(&self) -> Option<u32> {
        self.sk.as_ref().and_then(|sk| sk.sndbuf_set())
    }

    /// Whether SO_SNDBUF is set.
    pub(super) fn has_send_limit(&self) -> bool {
        self.send_limit().is_some()
    }

    /// How many of the next `want` bytes may be taken as far as SO_SNDBUF goes; `None`: it is not set.
    fn send_room(&self, want: usize) -> Option<usize> {
        let limit = self.send_limit()?;
        Some(sndbuf::room(limit, self.tx_held, want))
    }

    /// Whether `want` bytes, a small message, may be copied; if not, whoever asks waits.
    pub(super) fn may_copy(&mut self, want: usize) -> bool {
        let may = self.send_room(want) != Some(0);
        self.tx_full |= !may;
        may
    }

    /// As [`sndbuf::writable`]; if it is not, whoever asks waits.
    pub(super) fn has_send_room(&mut self) -> bool {
        let limit = self.send_limit();
        let room = limit.is_none_or(|limit| sndbuf::writable(limit, self.tx_held));
        self.tx_full |= !room;
        room
    }

    /// Whether SO_SNDBUF lets `bytes` be posted from a copy: others may have been faster.
    pub(crate) fn may_hold(&self, bytes: usize) -> bool {
        self.send_room(bytes).is_none_or(|room| room >= bytes)
    }

    /// Takes `bytes`, for which there is room, that are posted from a copy, for `sock`, whose this is: `None` where
    /// SO_SNDBUF is not set.
    pub(crate) fn charge_copy(&mut self, sock: &Arc<Sock>, bytes: usize) -> Option<Charge> {
        let limit = self.send_limit()?;
        let charge = Charge::take(sock, self, limit, bytes);
        self.tx_unsignaled = !charge.fills();
        Some(charge)
    }

    /// As [`Self::charge_copy`], of what was held back, and has been counted since.
    pub(crate) fn charge_corked(&mut self, sock: &Arc<Sock>) -> Option<Charge> {
        let bytes = self.take_cork_held();
        if bytes == 0 {
            return None;
        }
        let limit = self.send_limit().unwrap_or(u32::MAX);
        self.tx_held = self.tx_held.saturating_sub(bytes as u64);
        let charge = Charge::take(sock, self, limit, bytes);
        self.tx_unsignaled = !charge.fills();
        Some(charge)
    }

    /// The link and the message whose completion is to be asked for, since nobody tells when the device is done with it
    /// (the limit may be less than it was when it was sent).
    pub(super) fn unsignaled_message(&self) -> Option<(Arc<Link>, u64)> {
        let unsignaled = self.tx_unsignaled && self.tx_held > 0;
        let link = self.link.as_ref().filter(|_| unsignaled)?;
        Some((link.clone(), self.tx_seq))
    }
}

impl Sock {
    /// Takes up to `want` bytes that are about to be pinned, `None` where SO_SNDBUF is not set. Without room whoever
    /// asks waits.
    pub(super) fn charge_pages(self: &Arc<Self>, want: usize) -> Option<Option<Charge>> {
        let unsignaled = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let Some(limit) = inner.send_limit() else {
                return Some(None);
            };
            let room = sndbuf::room(limit, inner.tx_held, want);
            if room > 0 {
                return Some(Some(Charge::take(self, inner, limit, room)));
            }
            inner.tx_full = true;
            inner.unsignaled_message()
        };
        Sock::ask_done(unsignaled);
        // What is held back counts, too, and makes room only when it has been sent.
        self.flush();
        None
    }

    /// Asks for the completion of what nobody would tell of. Takes the link's lock.
    pub(super) fn ask_done(unsignaled: Option<(Arc<Link>, u64)>) {
        if let Some((link, seq)) = unsignaled {
            link.done_with(seq);
        }
    }

    fn give_held(&self, bytes: usize) {
        let wakes = {
            let mut inner = self.inner.lock();
            inner.tx_held = inner.tx_held.saturating_sub(bytes as u64);
            inner.tx_full && {
                inner.tx_full = false;
                // Sets it again if there is none.
                inner.has_send_room()
            }
        };
        if wakes {
            self.wake_write();
        }
    }

    /// SO_SNDBUF has changed: whoever waits looks again.
    pub(super) fn sndbuf_changed(&self) {
        // Sets it again for those who have to go on waiting.
        let waited = core::mem::take(&mut self.inner.lock().tx_full);
        if waited {
            self.wake_write();
        }
    }
}
