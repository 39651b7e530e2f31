// SPDX-License-Identifier: GPL-2.0

//! Calls that wait for their turn: for the send lock or the receive lock of a socket, which a call,
//! or the thread that sends the corked bytes, has for a moment.
//!
//! A non-blocking call waits as well, as one on a TCP socket waits for the socket's lock. Else it
//! would depend on the moment whether what `poll()` has promised holds. No owner of a lock waits
//! for the peer.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::cork::Flushed;
use super::Sock;
use crate::kern::trace::Stall;
use crate::kern::wait::{Timeout, WaitError, WaitMode};

/// The state of a call across its attempts to send or cork its bytes.
#[derive(Default)]
pub(super) struct Attempts {
    /// The stall of the call was traced already.
    pub(super) told: bool,
    /// The last attempt found the send lock taken.
    pub(super) locked: bool,
}

impl Sock {
    /// Waits until `begin` returns something, for as long as the call may wait for room. A call
    /// whose time is over goes on as long as its attempts find the send lock taken.
    ///
    /// Errors: EAGAIN, EINTR, ERESTARTSYS.
    pub(super) fn await_room<R>(
        &self,
        timeout: &mut Timeout,
        mut begin: impl FnMut(&mut Attempts) -> Option<R>,
    ) -> Result<R> {
        let mut attempts = Attempts::default();
        loop {
            let found = self.await_link(WaitMode::Interruptible, timeout, || {
                attempts.locked = false;
                begin(&mut attempts)
            });
            match found {
                Err(WaitError::TimedOut) if attempts.locked => self.await_send_lock()?,
                found => return found.map_err(|e| e.to_errno(*timeout)),
            }
        }
    }

    /// Sends the corked bytes, which go before the `want` bytes of a call. Returns false if the
    /// call has to wait.
    pub(super) fn flush_first(self: &Arc<Self>, want: u32, attempts: &mut Attempts) -> bool {
        match self.try_flush() {
            Flushed::Sent => return true,
            Flushed::Locked => attempts.locked = true,
            Flushed::Blocked => self.stalled(want, Stall::Link, &mut attempts.told),
        }
        false
    }

    /// Waits until no thread owns the send lock. Errors: EINTR if the task is being killed.
    pub(super) fn await_send_lock(&self) -> Result {
        let free = self.wait.wait(WaitMode::Killable, &mut None, || {
            let inner = &mut *self.inner.lock();
            inner.lock_waiter |= inner.tx_locked;
            (!inner.tx_locked).then_some(())
        });
        free.map_err(|_| EINTR)
    }

    /// Waits until no call has the receive lock. Errors: EINTR if the task is being killed.
    pub(super) fn await_recv_lock(&self) -> Result {
        let free = self.wait.wait(WaitMode::Killable, &mut None, || {
            let inner = &mut *self.inner.lock();
            inner.rx_contended |= inner.rx_locked;
            (!inner.rx_locked).then_some(())
        });
        free.map_err(|_| EINTR)
    }
}
