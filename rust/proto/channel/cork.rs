// SPDX-License-Identifier: GPL-2.0

//! Corked data (MSG_MORE, TCP_CORK): the beginning of a DATA message that is not full yet.
//!
//! The caller keeps the bytes. The channel counts them, reserves room for them when they come, and
//! lets nothing of the stream pass them, FIN and END included. So they can leave whenever the link
//! has room, whatever the peer does.

use super::super::wire::SMALL_MAX;
use super::{Channel, State};

impl Channel {
    /// Corked bytes; 0: none.
    pub fn corked(&self) -> u32 {
        self.corked
    }

    /// Whether `n` more bytes can be corked: the channel is open, they fit into one DATA together
    /// with the corked bytes, and there is room for it.
    pub fn can_cork(&self, n: u32) -> bool {
        self.state == State::Open
            && !self.write_ended()
            && n <= SMALL_MAX.saturating_sub(self.corked)
            && self.has_room(n)
    }

    /// Corks `n` more bytes. They are sent by [`super::Plan::Corked`], with all other corked bytes.
    /// Returns false, and does nothing, unless [`Self::can_cork`].
    pub fn cork(&mut self, n: u32) -> bool {
        let can = self.can_cork(n);
        if can {
            self.corked = self.corked.wrapping_add(n);
        }
        can
    }

    /// The last `n` corked bytes could not be copied: uncounts them. Returns the number of corked
    /// bytes.
    pub fn uncork(&mut self, n: u32) -> u32 {
        self.corked = self.corked.saturating_sub(n);
        self.corked
    }

    /// Whether there is room for `n` bytes of small data behind the corked bytes.
    pub(super) fn has_room(&self, n: u32) -> bool {
        let msgs = self.tx.msgs.wrapping_sub(self.acked.msgs);
        let out = self.tx.small.wrapping_sub(self.acked.small);
        let all = u64::from(n).saturating_add(u64::from(self.corked));
        msgs < self.theirs.msgs && out.saturating_add(all) <= u64::from(self.theirs.small)
    }
}
