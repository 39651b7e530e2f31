// SPDX-License-Identifier: GPL-2.0

//! A socket as the pool sees it: it holds a window, or waits for one.

#![deny(unsafe_code)]

use kernel::sync::Arc;
use kernel::time::Jiffies;

use super::Sock;
use crate::kern::net::Net;
use crate::pool::lease::Requester;
use crate::pool::lessee::{KeyHolder, Lessee};
use crate::pool::window::Window;
use crate::proto::channel::Channel;

impl Lessee for Sock {
    fn is_in(&self, net: &Net) -> bool {
        self.net == *net
    }

    fn max_window(&self) -> usize {
        self.most_window()
    }

    fn lacks_window(&self) -> bool {
        let inner = self.inner.lock();
        inner.conn.chan.is_some() && inner.window.is_none()
    }

    fn reads_window(&self) -> bool {
        let inner = self.inner.lock();
        let gone = inner
            .conn
            .chan
            .is_some_and(|c| c.window_size().is_none() && !c.read_ended());
        gone && inner.window.is_some() && inner.rx.moved() == 0
    }

    fn has_moved(&self) -> bool {
        self.inner.lock().rx.moved() > 0
    }

    fn take_window(
        self: Arc<Self>,
        window: &Arc<Window>,
        (size, addr, key): (u32, u64, u32),
        requester: Requester,
    ) -> bool {
        let takes = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            // Data that was moved out of a former window still needs that window's promise.
            let free = inner.window.is_none() && inner.rx.moved() == 0 && !inner.released;
            let offer =
                |c: &mut Channel| c.grant(size, addr, key) || requester.ring && c.read_ended();
            let takes = free && inner.conn.chan.with(offer).unwrap_or(false);
            if takes {
                let link = inner.conn.link.clone();
                let holder = link.map(|link| -> Arc<dyn KeyHolder> { link });
                window.set_user(inner.conn.chan.id().unwrap_or_default(), holder);
                inner.window = Some(window.clone());
            }
            takes
        };
        if takes {
            // A concurrent setsockopt(SO_RCVBUF) found no window.
            self.rcvbuf_changed();
        }
        takes
    }

    fn window_answered(self: Arc<Self>, granted: bool, requester: Requester) {
        if !granted && requester.peer {
            self.inner.lock().conn.chan.with(Channel::deny);
        }
        self.wait.wake_all();
        self.kick();
    }

    fn try_release_window(&self) {
        Sock::try_release_window(self);
    }

    fn revoke_window(self: Arc<Self>, window: &Arc<Window>, idle: Option<Jiffies>) -> bool {
        Sock::revoke_window(&self, window, idle)
    }

    fn escape(self: Arc<Self>, before: u64) -> bool {
        // Blocks are moved even if nothing in the window can be.
        self.escape_one(before, true) || self.escape_one(before, false)
    }

    fn reclaim_mapped(self: Arc<Self>) -> (bool, bool) {
        Sock::reclaim_mapped(&self)
    }
}
