// SPDX-License-Identifier: GPL-2.0

//! Automatic corking: while a stream of small messages is on its way, further small messages wait
//! and leave together, as with TCP's autocorking and SMC's.
//!
//! [`IN_A_ROW`] messages, each posted while the message before it is on its way, show a stream. The
//! last of these messages is the mark: its work request is signaled, and the bytes that the program
//! sends until the device has completed it are corked. A message that answers the peer begins a new
//! row, so requests and responses leave at once and unsignaled.

/// Length of the row of messages whose last message is a mark. Sparse messages form rows, too,
/// because unsignaled messages are not known to be complete: each such row costs a completion. The
/// length is about half of the number of unsignaled messages that a link posts in a row.
pub const IN_A_ROW: u8 = 8;

/// Automatic corking of the stream that one side of a connection sends. Positions are bytes of that
/// stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AutoCork {
    /// The end of the last mark; 0: there was none.
    mark: u64,
    /// Bytes of the peer's stream that had arrived when the last message was posted.
    received: u64,
    /// Messages in the row so far, at most [`IN_A_ROW`].
    row: u8,
}

impl AutoCork {
    /// No message was posted yet.
    pub const fn new() -> Self {
        Self {
            mark: 0,
            received: 0,
            row: 0,
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
        let follows = on_its_way && received == self.received;
        self.received = received;
        self.row = match follows {
            true => self.row.saturating_add(1).min(IN_A_ROW),
            false => 1,
        };
        let marks = may && (held || self.row == IN_A_ROW);
        if marks {
            self.mark = end;
        }
        marks
    }
}
