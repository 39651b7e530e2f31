// SPDX-License-Identifier: GPL-2.0

//! The time limits of a connect, and its retries after a full backlog. As with TCP, the peer's
//! program may accept soon: the first retry comes early, later ones less and less often. A peer
//! that answers so is alive, and its program has as long as TCP gives it; but each answer of the
//! peer must come soon.
//!
//! All times are in nanoseconds of one clock, but where they are said to be in milliseconds.

/// The first delay, in milliseconds; each is twice the one before.
pub const FIRST_MS: u32 = 50;

/// The longest delay, in milliseconds.
pub const MOST_MS: u32 = 1000;

/// The tries of one connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectBackoff {
    /// How often the backlog was full.
    refusals: u32,
    /// When to try again; `None`: an answer is waited for.
    at: Option<u64>,
    /// How long an answer may take.
    answer: u64,
    /// When the connect is over in any case.
    end: u64,
    /// When it is over unless something happens before.
    deadline: u64,
}

/// `ms` milliseconds after `now`.
fn after(now: u64, ms: u32) -> u64 {
    now.saturating_add(u64::from(ms).saturating_mul(1_000_000))
}

impl ConnectBackoff {
    /// A connect begins at `now`: each answer may take `answer_ms` milliseconds, and all of it
    /// `most_ms`.
    pub fn new(now: u64, answer_ms: u32, most_ms: u32) -> Self {
        let mut new = Self {
            answer: after(0, answer_ms),
            end: after(now, most_ms),
            ..Self::default()
        };
        new.await_answer(now);
        new
    }

    fn await_answer(&mut self, now: u64) {
        self.at = None;
        self.deadline = now.saturating_add(self.answer).min(self.end);
    }

    /// The backlog was full at `now`.
    pub fn refused(&mut self, now: u64) {
        let delay_ms = FIRST_MS
            .checked_shl(self.refusals)
            .map_or(MOST_MS, |ms| ms.min(MOST_MS));
        // So that no bit is ever shifted out.
        self.refusals = self.refusals.saturating_add(1).min(16);
        self.at = Some(after(now, delay_ms));
        self.deadline = self.end;
    }

    /// When to try again; `None`: no try waits.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// Whether it is time, at `now`; once.
    pub fn due(&mut self, now: u64) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.await_answer(now);
        }
        due
    }

    /// The link went down, and the CONNECT is sent on another one from `now` on. That counts as the
    /// retry if one was pending; a try that waits for its answer gets no more time.
    pub fn link_changed(&mut self, now: u64) {
        if self.at.is_some() {
            self.await_answer(now);
        }
    }

    /// When the connect is over, as it is now.
    pub fn deadline(&self) -> u64 {
        self.deadline
    }
}
