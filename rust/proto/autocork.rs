// SPDX-License-Identifier: GPL-2.0

//! Automatic corking: while a connection's last message is on its way, small messages wait for each
//! other and leave together, as with TCP's autocorking and SMC's.
//!
//! A message that is on its way when the next one comes shows a stream of them. That next message
//! is the mark: it asks for a completion, and what the program sends until the device has completed
//! it is corked. A message that answers one of the peer is no mark, so request and response wait
//! for nothing.

/// Automatic corking of what one side of a connection sends. Positions are those of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AutoCork {
    /// The end of the last mark; 0: there was none.
    mark: u64,
    /// What had been received when the last message was posted.
    received: u64,
}

impl AutoCork {
    /// No message was posted yet.
    pub const fn new() -> Self {
        Self {
            mark: 0,
            received: 0,
        }
    }

    /// Whether small messages are corked now: the device is done with the stream up to `done` only.
    pub fn holds(&self, done: u64) -> bool {
        done < self.mark
    }

    /// A message that ends at `end` is posted, when `received` bytes have come from the peer.
    /// `may`: it is a small copied one; `on_its_way`: the message before it is not known to be
    /// complete; `held`: it carries bytes that were corked here. Returns whether it is a mark, and
    /// has to be signaled.
    pub fn posted(
        &mut self,
        end: u64,
        received: u64,
        may: bool,
        on_its_way: bool,
        held: bool,
    ) -> bool {
        let answers = received != self.received;
        self.received = received;
        let marks = may && (held || on_its_way && !answers);
        if marks {
            self.mark = end;
        }
        marks
    }
}
