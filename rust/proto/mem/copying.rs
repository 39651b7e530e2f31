// SPDX-License-Identifier: GPL-2.0

//! A COPY as its requester makes it: the key of the destination that it derives for the source, the
//! asks that it repeats, and the end of that key.
//!
//! ```text
//! Begin ─► Key ─derived─► Begin ─► Asked ─answer─► over
//!   ▲       │ no place               │ source's table full, key expired, messages need more uses
//!   └───────┴────────────────────────┘
//! ```
//!
//! A derived key that is not used up must not stay in the region's list until it expires:
//! [`Copying::take_left`] has the caller revoke it.

use super::super::wire::SMALL_MAX;
use super::id::Key;
use super::status::Status;

/// Lifetime of a derived key, in milliseconds, besides the time that the bytes take.
pub const KEY_MS: u64 = 60_000;
/// The bytes that a copy moves in a millisecond at least; each adds one to the key's lifetime.
const BYTES_PER_MS: u64 = 1 << 10;
/// Added to the lifetime for each use of the key but the first, in milliseconds.
const PUT_MS: u64 = 10;
/// Longest lifetime, in milliseconds.
const KEY_MOST_MS: u64 = 1 << 31;
/// How long a copy waits, in milliseconds, before it asks again where there was no room: at first,
/// and at most.
const AGAIN_MS: core::ops::Range<u64> = 1..64;
/// How long it asks again without any progress, in milliseconds.
const PATIENCE_MS: u64 = KEY_MS;
/// How many keys may expire before a copy is over.
const EXPIRED_MOST: u32 = 8;

/// The next step of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Derive a key for these bytes of the destination, then call [`Copying::asked`].
    Key {
        /// Offset from the beginning of the copy.
        off: u64,
        /// Bytes.
        len: u64,
        /// Number of uses.
        uses: u64,
        /// Lifetime in milliseconds.
        ttl_ms: u32,
    },
    /// Ask the source for these bytes, then call [`Copying::asked`].
    Copy {
        /// Offset from the beginning of the copy.
        off: u64,
        /// Bytes.
        len: u64,
        /// The derived key; `None`: the descriptor's.
        key: Option<Key>,
    },
    /// Wait for the answer.
    Wait,
    /// Wait until that time, in milliseconds.
    Later(u64),
    /// The copy is over: the result, and the bytes from the first on that have landed.
    Over(Status, u64),
}

/// The state of a derived key that a copy has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// It is used up, or has expired.
    Dead,
    /// It may live: the caller revokes it.
    Alive(Key),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    Key,
    Asked,
    Over(Status),
}

/// A COPY of a program.
pub struct Copying {
    len: u64,
    /// Bytes that earlier asks have copied.
    done: u64,
    /// Keys are derived from that of the destination.
    derives: bool,
    /// The target gives no remote key for the range, so that the key needs a use for each PUT.
    by_messages: bool,
    key: Option<Key>,
    /// When the key that was asked for last has expired.
    expires_ms: u64,
    /// Keys that have expired before the copy was over.
    expired: u32,
    left: Option<Left>,
    state: State,
    not_before_ms: u64,
    pause_ms: u64,
    /// The pauses since the last progress.
    paused_ms: u64,
}

impl Copying {
    /// A copy of `len` bytes; `derives`: the descriptor of the destination can derive keys.
    pub fn new(len: u64, derives: bool) -> Self {
        Self {
            len,
            done: 0,
            derives,
            by_messages: false,
            key: None,
            expires_ms: 0,
            expired: 0,
            left: None,
            state: State::Begin,
            not_before_ms: 0,
            pause_ms: AGAIN_MS.start,
            paused_ms: 0,
        }
    }

    fn rest(&self) -> u64 {
        self.len.saturating_sub(self.done)
    }

    /// One use, or, if the target's device gives no remote key, one that finds this out and one for
    /// each PUT.
    fn uses(&self) -> u64 {
        match self.by_messages {
            false => 1,
            true => self.rest().div_ceil(u64::from(SMALL_MAX)).saturating_add(1),
        }
    }

    fn ttl_ms(&self) -> u32 {
        let puts = self.uses().saturating_sub(1);
        let ms = KEY_MS
            .saturating_add(self.rest() / BYTES_PER_MS)
            .saturating_add(puts.saturating_mul(PUT_MS));
        // One that has expired in the source's queue is too short for that queue.
        let longer = ms.checked_shl(self.expired.min(16)).unwrap_or(KEY_MOST_MS);
        longer.min(KEY_MOST_MS) as u32
    }

    /// The next step.
    pub fn next(&mut self, now_ms: u64) -> Next {
        match self.state {
            State::Over(status) => return Next::Over(status, self.done),
            State::Key | State::Asked => return Next::Wait,
            State::Begin if now_ms < self.not_before_ms => return Next::Later(self.not_before_ms),
            State::Begin => {}
        }
        if self.has_expired(now_ms) {
            self.renew();
        }
        let (off, len) = (self.done, self.rest());
        if self.derives && self.key.is_none() {
            return Next::Key {
                off,
                len,
                uses: self.uses(),
                ttl_ms: self.ttl_ms(),
            };
        }
        Next::Copy {
            off,
            len,
            key: self.key,
        }
    }

    /// What [`Self::next`] has said is asked.
    pub fn asked(&mut self, now_ms: u64) {
        if self.derives && self.key.is_none() {
            // The node counts from a later time on.
            self.expires_ms = now_ms.saturating_add(self.ttl_ms().into());
            self.state = State::Key;
        } else {
            self.state = State::Asked;
        }
    }

    /// Whether the source is asked.
    pub fn is_asked(&self) -> bool {
        self.state == State::Asked
    }

    /// Whether the copy is over.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// The derived key.
    #[cfg(not(MODULE))]
    pub fn key(&self) -> Option<Key> {
        self.key
    }

    /// Whether the target is asked for a key.
    pub fn is_deriving(&self) -> bool {
        self.state == State::Key
    }

    /// The target has answered KEY. `others`: copies of this host have derived keys of the region,
    /// so that there is room when one of them ends.
    pub fn key_answered(&mut self, key: Result<Key, Status>, others: bool, now_ms: u64) {
        match key {
            Ok(key) => {
                self.key = Some(key);
                self.state = State::Begin;
                self.pause_ms = AGAIN_MS.start;
            }
            Err(Status::NoSpace | Status::Quota) if others => self.later(now_ms),
            Err(Status::Again) => self.later(now_ms),
            Err(why) => self.end(why),
        }
    }

    /// The source has answered COPY: the result, and the bytes that have landed.
    pub fn copied(&mut self, status: Status, bytes: u64, now_ms: u64) {
        self.done = self.done.saturating_add(bytes.min(self.rest()));
        if bytes != 0 {
            self.paused_ms = 0;
        }
        let expired = self.has_expired(now_ms);
        match status {
            // The source's table is full; the key was not used.
            Status::Again if bytes == 0 => self.later(now_ms),
            Status::Unsupported if bytes == 0 && self.derives && !self.by_messages => {
                self.by_messages = true;
                // OPEN has used it up.
                self.left = self.key.take().map(|_| Left::Dead);
                self.state = State::Begin;
            }
            // The source tells Unsupported of a key that ends before the first PUT.
            Status::Stale | Status::Denied | Status::Unsupported
                if expired && self.rest() != 0 && self.expired < EXPIRED_MOST =>
            {
                self.renew();
                self.state = State::Begin;
            }
            why => self.end(why),
        }
    }

    /// The copy ends with `why`; the asks that are under way are the caller's to take back.
    pub fn end(&mut self, why: Status) {
        match why {
            Status::Ok => self.left = self.key.take().map(|_| Left::Dead),
            _ => self.leave(),
        }
        self.state = State::Over(why);
    }

    /// A derived key that the copy has left. Call it after each other call.
    pub fn take_left(&mut self) -> Option<Left> {
        self.left.take()
    }

    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            self.left = Some(Left::Alive(key));
        }
    }

    fn has_expired(&self, now_ms: u64) -> bool {
        self.key.is_some() && now_ms >= self.expires_ms
    }

    fn renew(&mut self) {
        self.expired = self.expired.saturating_add(1);
        self.left = self.key.take().map(|_| Left::Dead);
    }

    fn later(&mut self, now_ms: u64) {
        if self.paused_ms >= PATIENCE_MS {
            return self.end(Status::Again);
        }
        self.paused_ms = self.paused_ms.saturating_add(self.pause_ms);
        self.state = State::Begin;
        self.not_before_ms = now_ms.saturating_add(self.pause_ms);
        self.pause_ms = self.pause_ms.saturating_mul(2).min(AGAIN_MS.end);
    }
}
