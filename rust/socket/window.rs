// SPDX-License-Identifier: GPL-2.0

//! The window that a socket's peer writes into: how it is requested, revoked and returned to the
//! pool.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::{msecs_to_jiffies, Jiffies};

use super::escape::Promise;
use super::{Inner, Sock};
use crate::kern::errno::{ENOBUFS, ENOTCONN};
use crate::kern::task::now_ns;
use crate::kern::wait::{WaitError, WaitMode};
use crate::params;
use crate::pool::lease::Requester;
use crate::pool::lessee::Lessee;
use crate::pool::reserve::Reserved;
use crate::pool::window::Window;
use crate::proto::channel::Channel;
use crate::stats::STATS;

/// How long a peer may take to give a revoked window back, in nanoseconds. After that its link is
/// ended: nothing else invalidates the remote key.
const GIVE_BACK_NS: u64 = 10_000_000_000;

/// How long a thread that makes a ring waits before it checks the socket's state again, in
/// milliseconds.
const SLICE_MS: u64 = 50;

/// Whether the socket has a window that is not being revoked.
pub(super) fn has_lasting(inner: &Inner) -> bool {
    let lasts = |c: &Channel| c.read_ended() || c.window_size().is_some() && !c.revoking();
    inner.window.is_some() && inner.conn.chan.is_some_and(lasts)
}

impl Inner {
    /// Whether the window can go back to the pool: the peer writes no more into it, it holds no
    /// unread data, and no ring shows it.
    pub(crate) fn is_window_done(&self) -> bool {
        self.window.is_some()
            && self.rx.in_window() == 0
            && (self.released || self.ring.is_none())
            && self.conn.chan.peer_writes_done()
    }
}

impl Sock {
    /// Revokes `window`, unless a ring shows it or it is in use. With `least`, only if it holds no
    /// unread data and nothing was written into it for that many jiffies. Returns whether it was
    /// revoked by this call. Takes the link's and the socket's lock.
    pub(crate) fn revoke_window(
        self: &Arc<Self>,
        window: &Arc<Window>,
        least: Option<Jiffies>,
    ) -> bool {
        {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let ours = inner
                .window
                .as_ref()
                .is_some_and(|w| Arc::ptr_eq(w, window));
            let idle = window.idle_user(least.unwrap_or(0)).is_some();
            // Data that was moved out of the window no longer needs it.
            let unread = least.is_some() && inner.rx.in_window() > 0;
            if !ours || !idle || unread || inner.ring.is_some() || inner.released {
                return false;
            }
            if !self.try_revoke(inner) {
                return false;
            }
        }
        self.kick();
        self.arm_timer();
        true
    }

    /// The channel was idle and its state was parked: revokes the window for other channels, if it
    /// is not needed here.
    pub(crate) fn on_parked(self: &Arc<Self>) {
        let window = self.inner.lock().window.clone();
        let least = msecs_to_jiffies(params::WINDOW_IDLE_MS.get());
        if window.is_some_and(|window| self.revoke_window(&window, Some(least))) {
            STATS.windows_revoked.add(1);
        }
    }

    /// SO_RCVBUF may have changed: revokes a window that is now too large, whether used or not,
    /// unless a program maps it. The next window will be smaller. This includes a window that was
    /// not granted to the peer yet. Takes the link's and the socket's lock. Sleeps.
    pub(crate) fn rcvbuf_changed(self: &Arc<Self>) {
        let most = self.most_window();
        {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let larger = |w: &Arc<Window>| w.bytes() > most && !w.is_in_use();
            let goes = inner.ring.is_none() && !inner.released;
            if !goes || !inner.window.as_ref().is_some_and(larger) || !self.revoke(inner) {
                return;
            }
        }
        STATS.windows_revoked.add(1);
        self.kick();
        self.arm_timer();
    }

    /// Revokes the window, with a deadline for the peer. Returns false if it was not revoked now,
    /// for example because it was not granted to the peer yet: a peer that asked for a window can
    /// use it first.
    pub(super) fn try_revoke(&self, inner: &mut Inner) -> bool {
        !inner.conn.chan.is_some_and(Channel::grant_waits) && self.revoke(inner)
    }

    fn revoke(&self, inner: &mut Inner) -> bool {
        let asked = inner.conn.chan.with(Channel::revoke).unwrap_or(false);
        if asked {
            inner.deadline = Some(now_ns().saturating_add(GIVE_BACK_NS));
        }
        asked
    }

    /// The peer has given the window back, which may still hold unread data.
    pub(crate) fn on_revoked(&self, inner: &mut Inner) {
        if !inner.released {
            inner.deadline = None;
        }
        // A thread that makes a ring may wait for this.
        self.wait.wake_all();
    }

    /// Makes sure that the socket has a window that is not being revoked, for a ring. Sleeps, until
    /// `until` at most, in nanoseconds of the monotonic clock.
    ///
    /// Errors: ENOTCONN without a pool, ENOBUFS if there is no window, EBUSY while a window that
    /// the peer has given back holds unread data, EINTR.
    pub(super) fn need_window(self: &Arc<Self>, until: u64) -> Result {
        loop {
            let (has, lasts, unread, link) = {
                let inner = self.inner.lock();
                let revoking = inner.conn.chan.is_some_and(Channel::revoking);
                let moved = inner.rx.moved() > 0 && inner.window.is_none();
                let unread = !revoking && inner.rx.in_window() > 0 || moved;
                let lasts = has_lasting(&inner);
                (
                    inner.window.is_some(),
                    lasts,
                    unread,
                    inner.conn.link.clone(),
                )
            };
            if lasts {
                return Ok(());
            }
            if unread {
                return Err(EBUSY);
            }
            if !has {
                let pool = link
                    .and_then(|link| link.pool())
                    .or_else(|| self.any_pool());
                let pool = pool.ok_or(ENOTCONN)?;
                let lessee: Arc<dyn Lessee> = self.clone();
                let may_get =
                    pool.admit_ring(None) && pool.want_window(&lessee, Requester::RING, until);
                if !may_get && self.lacks_window() {
                    return Err(ENOBUFS);
                }
            }
            let left = until.saturating_sub(now_ns()) / 1_000_000;
            let mut timeout = Some(msecs_to_jiffies(left.min(SLICE_MS) as u32));
            let waited = self.await_link(WaitMode::Interruptible, &mut timeout, || {
                let inner = self.inner.lock();
                // Or the revoked window has been released.
                (has_lasting(&inner) || has && inner.window.is_none()).then_some(())
            });
            match waited {
                // Check again: a window may have been granted and released in between.
                Err(WaitError::TimedOut) if left > SLICE_MS => {}
                Err(WaitError::TimedOut) => return Err(ENOBUFS),
                Err(e) => return Err(e.to_errno(timeout)),
                Ok(()) => {}
            }
        }
    }

    /// Making a ring has failed: withdraws the requests for its window. Sleeps.
    pub(super) fn withdraw_ring(self: &Arc<Self>) {
        let lessee: Arc<dyn Lessee> = self.clone();
        for dev in self.ctx.transport.pools.devices.lock().iter() {
            if let Some(pool) = dev.existing_pool() {
                pool.withdraw_ring(&lessee);
            }
        }
        // A window that was leased for the ring after the end of the stream has no further use.
        self.try_release_window();
    }

    /// Returns the window to the pool if no WRITE can arrive any more, it holds no unread data, and
    /// no ring of an open socket shows it.
    pub(crate) fn try_release_window(&self) {
        let window = {
            let mut inner = self.inner.lock();
            if inner.is_window_done() {
                let window = inner.window.take();
                // The room of moved data does not count in this window any more.
                let room = inner.rx.give(u64::MAX);
                inner.conn.chan.with(|c| c.moved(room));
                // Nothing more arrives in the window, so only the moved bytes still need a promise.
                if inner.rx.moved() > 0 {
                    inner.promise = Some(Promise::Moved(Reserved::kept(inner.rx.moved())));
                }
                let mapped = window.as_ref().filter(|window| !window.is_whole());
                if let Some(gone) = mapped.map(|window| window.gone()) {
                    inner.kept = Some(gone);
                }
                window
            } else {
                None
            }
        };
        if let Some(window) = window {
            window.retire();
            // A thread that makes a ring may wait for this.
            self.wait.wake_all();
        }
    }
}
