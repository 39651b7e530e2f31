// SPDX-License-Identifier: GPL-2.0

//! Room for the peer: windows that are leased to it, and credit for consumed data.

use super::{
    Channel, Count, OwnWindow, State, WANT_CREDIT, WANT_GRANT, WANT_REVOKE, WINDOW_MAX, WINDOW_MIN,
};

impl Channel {
    /// Leases a window of `size` bytes to the peer, requested or not. Returns false if there is one
    /// already, if data in a former one is not freed yet, or if there is no use for one.
    pub fn grant(&mut self, size: u32, addr: u64, key: u32) -> bool {
        if self.window.is_some()
            || self.window_unread != 0
            || self.read_ended()
            || self.no_reader
            || !matches!(self.state, State::Open | State::Accepting)
            || !(WINDOW_MIN..=WINDOW_MAX).contains(&size)
        {
            return false;
        }
        // 0 means no lease.
        self.leases = self.leases.wrapping_add(1).max(1);
        self.window = Some(OwnWindow {
            lease: self.leases,
            addr,
            key,
            size,
            arrived: 0,
            freed: 0,
            advertised: 0,
            revoking: false,
        });
        self.queue_control(WANT_GRANT);
        true
    }

    /// Answers the peer's request for a window: there is none now.
    pub fn deny(&mut self) {
        if self.window.is_none() && !self.read_ended() {
            self.queue_control(WANT_GRANT);
        }
    }

    /// Asks the peer to stop writing into this side's window; [`Event::Revoked`] reports when it
    /// has. Returns false if there is no window, if the peer was asked already, or if it writes no
    /// more in any case. While a grant waits to be sent ([`Channel::grant_waits`]), WindowRevoke is
    /// sent after it.
    ///
    /// [`Event::Revoked`]: super::Event::Revoked
    pub fn revoke(&mut self) -> bool {
        let asks = self.window.is_some() && !self.revoking() && !self.read_ended();
        if asks {
            self.queue_control(WANT_REVOKE);
        }
        asks && self.revoking()
    }

    /// Whether this side's window was revoked and the peer has not given it back.
    pub fn revoking(&self) -> bool {
        let asked = |w: OwnWindow| w.revoking || self.want & WANT_REVOKE != 0;
        !self.read_ended() && self.window.is_some_and(asked)
    }

    /// A segment was consumed: one message, and `window` bytes of the window or `small` bytes of
    /// DATA. Queues a Credit message when a quarter of any limit has gathered.
    pub fn freed(&mut self, window: u32, small: u32) {
        let sum = Count {
            small: u64::from(small),
            msgs: 1,
        };
        self.count_freed(sum, u64::from(window));
        self.free_unwanted();
    }

    /// `window` bytes of unread data were moved out of the window. Their room is the peer's again,
    /// or the pool's if the window is released. The caller moves data in the order of the stream,
    /// before data that is still in the window.
    pub fn moved(&mut self, window: u64) {
        self.count_freed(Count::default(), window);
    }

    fn count_freed(&mut self, sum: Count, window: u64) {
        self.freed.msgs = self.freed.msgs.wrapping_add(sum.msgs);
        self.freed.small = self.freed.small.wrapping_add(sum.small);
        self.window_unread = self.window_unread.saturating_sub(window);
        let mut due = false;
        if let Some(w) = &mut self.window {
            w.freed = w.freed.wrapping_add(window);
            due = w.freed.wrapping_sub(w.advertised) >= u64::from(w.size >> 2);
        }
        due |= self.freed.msgs.wrapping_sub(self.advertised.msgs) >= self.ours.msgs >> 2;
        due |=
            self.freed.small.wrapping_sub(self.advertised.small) >= u64::from(self.ours.small >> 2);
        if due && !self.read_ended() {
            self.queue_control(WANT_CREDIT);
        }
    }

    /// Frees the room of discarded data, so that the peer does not wait; in the order of the
    /// stream, as the peer would otherwise overwrite unread data that came before.
    pub(super) fn free_unwanted(&mut self) {
        if self.rx.msgs.wrapping_sub(self.freed.msgs) == self.unwanted.msgs {
            let sum = core::mem::take(&mut self.unwanted);
            let window = core::mem::take(&mut self.unwanted_window);
            if sum.msgs != 0 {
                self.count_freed(sum, window);
            }
        }
    }
}
