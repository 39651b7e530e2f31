// SPDX-License-Identifier: GPL-2.0

//! Events that make room on a link: blocks that were posted again, which a message has to tell the
//! peer, and completions, after which messages that wait may be sent.

#![deny(unsafe_code)]

use kernel::sync::atomic::{Atomic, Full, Relaxed};

use super::link::{Link, Tx};

/// The blocks of a link's messages that were posted to a receive queue again, and that the
/// peer was not told of yet. They are counted without the link's lock.
pub(super) struct Reposts {
    gathered: Atomic<u32>,
    /// The number of blocks at which a message tells the peer; see `LinkFlow::due_at`.
    /// Changes under the link's lock.
    due_at: Atomic<u32>,
}

impl Reposts {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            gathered: Atomic::new(0),
            due_at: Atomic::new(1),
        }
    }

    /// A block was posted again. Returns whether a message to the peer may be due.
    ///
    /// Pairs with [`Self::set_due_at`]: either this sees the new limit, or the thread that lowers
    /// it sees the block in [`Self::gathered`] afterwards.
    pub(super) fn add(&self) -> bool {
        let gathered = self.gathered.fetch_add(1, Full).wrapping_add(1);
        gathered >= self.due_at.load(Relaxed)
    }

    pub(super) fn gathered(&self) -> u32 {
        self.gathered.load(Relaxed)
    }

    /// Takes the blocks that have gathered: a message tells the peer of them. The caller sets the
    /// new limit afterwards.
    pub(super) fn take(&self) -> u32 {
        match self.gathered() {
            // The next message tells the peer of a block that is added now; `add` sees
            // whether a message is due.
            0 => 0,
            _ => self.gathered.xchg(0, Full),
        }
    }

    /// Sets the limit. After a lower one, the caller checks [`Self::gathered`]. Under the link's
    /// lock.
    pub(super) fn set_due_at(&self, due_at: u32) {
        if self.due_at.load(Relaxed) != due_at {
            self.due_at.xchg(due_at, Full);
        }
    }
}

/// Whether a link had a backlog when a thread that takes completions last made room on it.
///
/// A sender that finds no room queues itself under the link's lock. So if it did before the room
/// was made, the backlog is seen in the same section under the lock; and if it did afterwards, it
/// has not found the room that was made.
#[derive(Default)]
pub(super) struct Backlog {
    /// What [`Tx::has_backlog`] has returned; `None`: it was not called.
    seen: Option<bool>,
}

impl Backlog {
    /// Room was made. Called before the link's lock is released.
    pub(super) fn check(&mut self, tx: &Tx) {
        let before = self.seen.unwrap_or(false);
        self.seen = Some(before || tx.has_backlog());
    }

    /// See [`Tx::has_backlog`].
    pub(super) fn is_on(&self, link: &Link) -> bool {
        self.seen.unwrap_or_else(|| link.tx.lock().has_backlog())
    }
}
