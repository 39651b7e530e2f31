// SPDX-License-Identifier: GPL-2.0

//! What a channel's program holds back (MSG_MORE, TCP_CORK): the beginning of a DATA that is not full yet.
//!
//! The bytes are the caller's to keep; the channel counts them, takes room for them when they come, and lets nothing of
//! the stream pass them, its end included. So they can leave whenever the link has room, whatever the peer does.

use super::super::wire::SMALL_MAX;
use super::{Channel, State};

impl Channel {
    /// Bytes that are held back; 0: none.
    pub fn corked(&self) -> u32 {
        self.corked
    }

    /// Whether `n` bytes more can be held back: the channel is open, they make no more than one DATA together with
    /// those before, and there is room for it.
    pub fn can_cork(&self, n: u32) -> bool {
        self.state == State::Open
            && !self.write_ended()
            && n <= SMALL_MAX.saturating_sub(self.corked)
            && self.has_room(n)
    }

    /// Holds back `n` bytes more. They leave by [`super::Plan::Corked`] of all that is held back. False, and nothing is
    /// done, unless [`Self::can_cork`].
    pub fn cork(&mut self, n: u32) -> bool {
        let can = self.can_cork(n);
        if can {
            self.corked = self.corked.wrapping_add(n);
        }
        can
    }

    /// The last `n` bytes that were held back did not come: they are not, any more. How many are.
    pub fn uncork(&mut self, n: u32) -> u32 {
        self.corked = self.corked.saturating_sub(n);
        self.corked
    }

    /// Whether `n` bytes of small data have room, behind what is held back.
    pub(super) fn has_room(&self, n: u32) -> bool {
        let msgs = self.tx.msgs.wrapping_sub(self.acked.msgs);
        let out = self.tx.small.wrapping_sub(self.acked.small);
        let all = u64::from(n).saturating_add(u64::from(self.corked));
        msgs < self.theirs.msgs && out.saturating_add(all) <= u64::from(self.theirs.small)
    }
}
