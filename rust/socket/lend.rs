// SPDX-License-Identifier: GPL-2.0

//! Pages of the window that a program has: by mapped receives, or in a pipe. How many it may have, and how
//! they come back.
//!
//! Nothing tells when a page is back: its reference count does. Whoever receives looks at it, and the host
//! now and then.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::Sock;
use crate::proto::channel::Channel;
use crate::transport::window::Window;

impl Sock {
    /// How many bytes of `window` may be lent now. A part of it stays for the peer: over its share the
    /// program gets copies, also while it has pages of a former window. What a ring shows is not lent.
    pub(super) fn lending_share(&self, window: &Window) -> usize {
        let inner = self.inner.lock();
        let kept = inner.kept.as_ref().is_some_and(|w| !w.is_gone());
        if kept || inner.ring.is_some() {
            return 0;
        }
        match inner.chan.as_ref().is_none_or(Channel::window_quiet) {
            // The peer has no use for it any more, and one page of it is as good as all.
            true => window.bytes(),
            false => (window.bytes() / 2).saturating_sub(inner.rx.lent() as usize),
        }
    }

    /// Somebody is to look whether pages are back. ENOMEM. Sleeps; the caller has the turn to receive.
    pub(super) fn will_lend(self: &Arc<Self>) -> Result {
        if core::mem::replace(&mut self.inner.lock().lender, true) {
            return Ok(());
        }
        let watched = self.host.watch_lent(Some(self));
        if watched.is_err() {
            self.inner.lock().lender = false;
        }
        watched
    }

    /// When what the program was lent keeps the peer out of most of the window, the window is the
    /// program's: the peer gives it back, and may have another. Takes the link's and the socket's lock.
    pub(super) fn let_go_of_lent(this: &Arc<Self>) {
        let asked = {
            let mut inner = this.inner.lock();
            let inner = &mut *inner;
            let room = inner.window.as_ref().map_or(0, |w| w.bytes()) as u64;
            let in_window = inner.chan.as_ref().map_or(0, Channel::window_unread);
            let held = in_window.saturating_sub(inner.rx.bytes());
            inner.rx.lent() > 0 && held >= room / 4 * 3 && this.take_window_back(inner)
        };
        if asked {
            Sock::kick(this);
            this.host.watch_deadlines();
        }
    }

    /// Takes what has come back. False if nothing is lent, and nothing is being lent now. Then whoever
    /// lends says so again.
    pub(crate) fn lends(this: &Arc<Self>) -> bool {
        if this.reap() {
            Sock::talk(this);
        }
        let mut inner = this.inner.lock();
        inner.lender = inner.rx_turn || inner.rx.lent() > 0;
        inner.lender
    }
}
