// SPDX-License-Identifier: GPL-2.0

//! Pages of the window that the program holds, by mapped receives or in a pipe: how many it may
//! hold, and how they are reclaimed.
//!
//! No event reports that a page was released; only its reference count shows it. Receive calls
//! check the counts, and so does a periodic work item ([`Pools`](crate::pool::context::Pools)). The
//! work item also covers programs that hold much data in their ring and do not ring the doorbell.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::Sock;
use crate::pool::window::Window;

/// A sender with less room in the window than this may wait for more, in bytes.
const LEAST_ROOM: u64 = 20 << 10;

impl Sock {
    /// Number of bytes of `window` that may be mapped now. A part of the window stays for the peer:
    /// above its share the program gets copies. It also gets copies while it holds pages of a
    /// former window, and when other programs have used up the mappable part of the pool. A window
    /// that a ring shows is not mapped. Sleeps.
    pub(super) fn mappable(&self, window: &Arc<Window>) -> usize {
        if !window.may_map() {
            return 0;
        }
        let inner = self.inner.lock();
        let kept = inner.kept.as_ref().is_some_and(|gone| !gone.is_set());
        if kept || inner.ring.is_some() {
            return 0;
        }
        match inner.conn.chan.peer_writes_done() {
            // The peer writes no more, so there is no share to keep for it; and one mapped page
            // keeps the window from the pool as well as all of them.
            true => window.bytes(),
            false => (window.bytes() / 2).saturating_sub(inner.rx.mapped() as usize),
        }
    }

    /// Adds the socket to the sockets that the periodic work item checks for released pages and
    /// segments. The caller owns the receive lock, or has found the ring crowded. ENOMEM. Sleeps.
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

    /// Revokes the window if mapped pages keep the peer out of most of it, or from sending small
    /// messages. The program keeps the window until it has released its pages, and the peer may get
    /// another one. Takes the link's and the socket's lock.
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
            // Credit for the last quarter of the window is not sent, and the peer waits until there
            // is room for a large chunk.
            let most = (room as u64 / 4 * 3).saturating_sub(LEAST_ROOM);
            let stuck = spent.window >= most
                || spent.segments >= limits.msgs / 2
                || spent.small >= u64::from(limits.small / 2);
            stuck && self.try_revoke(inner)
        };
        if asked {
            self.kick();
            self.arm_timer();
        }
    }

    /// Reclaims pages and segments that the program has released. Returns whether there were any,
    /// and whether to check this socket again: pages are mapped or being mapped, or the ring is
    /// crowded. Otherwise [`Self::watch_mapped`] adds the socket again when needed.
    pub(crate) fn reclaim_mapped(self: &Arc<Self>) -> (bool, bool) {
        let came = self.reap();
        if came {
            self.send_pending();
        }
        let mut inner = self.inner.lock();
        // A peer that sends no more needs no room.
        let goes_on = inner.conn.chan.is_some_and(|c| !c.read_ended());
        let holds = goes_on && inner.ring.is_some() && inner.is_crowded();
        inner.tracks_mapped = inner.rx_locked || inner.rx.mapped() > 0 || holds;
        (came, inner.tracks_mapped)
    }
}
