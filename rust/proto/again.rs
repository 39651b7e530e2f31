// SPDX-License-Identifier: GPL-2.0

//! When a connect that found the peer's backlog full is tried again. As TCP has it, the peer's program may
//! accept in a moment: the first try comes soon, later ones less and less often. When to give up is the
//! connect's deadline, which is not decided in this file.

/// The first delay, in milliseconds; each is twice the one before.
pub const FIRST_MS: u32 = 50;

/// The longest delay, in milliseconds.
pub const MOST_MS: u32 = 1000;

/// The tries of one connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Again {
    /// How often the backlog was full.
    refusals: u32,
    /// When to try again.
    at: Option<u64>,
}

impl Again {
    /// The backlog was full at `now`, in nanoseconds.
    pub fn refused(&mut self, now: u64) {
        let delay_ms = FIRST_MS
            .checked_shl(self.refusals)
            .map_or(MOST_MS, |ms| ms.min(MOST_MS));
        // So that no bit is ever shifted out.
        self.refusals = self.refusals.saturating_add(1).min(16);
        self.at = Some(now.saturating_add(u64::from(delay_ms).saturating_mul(1_000_000)));
    }

    /// When to try again, in nanoseconds; `None`: no try waits.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// Whether it is time, at `now`; once.
    pub fn due(&mut self, now: u64) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }
}
