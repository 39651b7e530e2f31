// SPDX-License-Identifier: GPL-2.0

//! Something that should move and does not: work requests that do not complete, asks that the peer
//! gives no credit for.

/// Since when something has not moved.
#[derive(Default)]
pub struct Stall(Option<u64>);

impl Stall {
    /// It has moved.
    pub fn moved(&mut self) {
        self.0 = None;
    }

    /// Looks at it; `waits`: there is something that should move. Whether it has waited for
    /// `patience_ms`, as the looks have seen it, and nothing has moved.
    pub fn look(&mut self, waits: bool, now_ms: u64, patience_ms: u64) -> bool {
        if !waits {
            self.0 = None;
            return false;
        }
        let since = *self.0.get_or_insert(now_ms);
        now_ms.saturating_sub(since) >= patience_ms
    }
}
