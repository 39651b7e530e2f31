// SPDX-License-Identifier: GPL-2.0

//! Pages of the window that a program has: by mapped receives, or in a pipe. How many it may have, and how
//! they come back.
//!
//! Nothing tells when a page is back: its reference count does. Whoever receives looks at it, and the host
//! now and then. So it does for programs that hold much in their ring, should they not tell.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::Sock;
use crate::pool::window::Window;

/// A sender with less room in a window than this may wait for more.
const LEAST_ROOM: u64 = 20 << 10;

impl Sock {
    /// How many bytes of `window` may be lent now. A part of it stays for the peer: over its share the
    /// program gets copies, also while it has pages of a former window, and if others have their part of the
    /// pool already. What a ring shows is not lent. Sleeps.
    pub(super) fn mappable(&self, window: &Arc<Window>) -> usize {
        if !window.may_map() {
            return 0;
        }
        let inner = self.inner.lock();
        let kept = inner.kept.as_ref().is_some_and(|gone| !gone.is_set());
        if kept || inner.ring.is_some() {
            return 0;
        }
        match inner.chan.peer_writes_done() {
            // The peer has no use for it any more, and one page of it is as good as all.
            true => window.bytes(),
            false => (window.bytes() / 2).saturating_sub(inner.rx.mapped() as usize),
        }
    }

    /// Somebody is to look whether pages are back, or segments. ENOMEM. Sleeps; the caller has the turn to
    /// receive, or has found the ring crowded.
    pub(super) fn watch_mapped(self: &Arc<Self>) -> Result {
        if core::mem::replace(&mut self.inner.lock().tracks_mapped, true) {
            return Ok(());
        }
        let watched = self.ctx.transport.pools.track_mapped(self.clone());
        if watched.is_err() {
            self.inner.lock().tracks_mapped = false;
        }
        watched
    }

    /// When what the program was lent keeps the peer out of most of the window, or from sending small
    /// messages, the window is the program's: the peer gives it back, and may have another. Takes the
    /// link's and the socket's lock.
    pub(super) fn release_mapped_window(self: &Arc<Self>) {
        let asked = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            if inner.rx.mapped() == 0 {
                return;
            }
            let room = inner.window.as_ref().map_or(0, |window| window.bytes());
            let spent = inner.rx.spent();
            let limits = &inner.limits;
            // The peer does not hear of the last quarter, and waits for room for a large chunk.
            let most = (room as u64 / 4 * 3).saturating_sub(LEAST_ROOM);
            let stuck = spent.window >= most
                || spent.segments >= limits.msgs / 2
                || spent.small >= u64::from(limits.small / 2);
            stuck && self.try_revoke(inner)
        };
        if asked {
            self.kick();
            self.ctx.transport.arm_timer(self);
        }
    }

    /// Takes what has come back. Returns whether there was something, and whether something is lent still,
    /// or is being lent now, or held in a ring that is crowded; if not, whoever needs it says so again.
    pub(crate) fn reclaim_mapped(self: &Arc<Self>) -> (bool, bool) {
        let came = self.reap();
        if came {
            self.send_pending();
        }
        let mut inner = self.inner.lock();
        // Who has nothing to come needs no room.
        let goes_on = inner.chan.is_some_and(|c| !c.read_ended());
        let holds = goes_on && inner.ring.is_some() && inner.is_crowded();
        inner.tracks_mapped = inner.rx_locked || inner.rx.mapped() > 0 || holds;
        (came, inner.tracks_mapped)
    }
}
