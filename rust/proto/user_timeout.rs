// SPDX-License-Identifier: GPL-2.0

//! TCP_USER_TIMEOUT of an open connection: for how long its peer has kept it waiting, for an
//! acknowledgement of sent data or for room to send more. It is checked at intervals while the
//! connection sends, so that it costs nothing otherwise; a timeout is found late by a quarter of
//! the limit, never early.

/// The shortest time between two checks, in nanoseconds.
const LEAST_STEP: u64 = 10_000_000;

/// A wait, and its start.
#[derive(Clone, Copy, Debug)]
struct Wait<T> {
    what: T,
    since: u64,
}

/// The waits of one connection. `T`: the room that its peer has given so far. Times are in
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct UserTimeout<T> {
    /// Calls that are sending: they may still have to wait.
    senders: u32,
    /// The number of a message without an acknowledgement.
    unacked: Option<Wait<u64>>,
    /// The peer has given no room.
    room: Option<Wait<T>>,
    /// When to check.
    at: Option<u64>,
}

impl<T> Default for UserTimeout<T> {
    fn default() -> Self {
        Self {
            senders: 0,
            unacked: None,
            room: None,
            at: None,
        }
    }
}

/// The interval of checks, for a limit.
fn step(limit: u64) -> u64 {
    (limit >> 2).max(LEAST_STEP)
}

impl<T: PartialEq> UserTimeout<T> {
    /// A call begins to send at `now`. Returns whether no check was pending, so that the caller has
    /// to start the timer for [`Self::at`].
    pub fn begin(&mut self, now: u64, limit: u64) -> bool {
        self.senders = self.senders.saturating_add(1);
        let first = self.at.is_none();
        if first {
            self.at = Some(now.saturating_add(step(limit)));
        }
        first
    }

    /// A sending call has ended.
    pub fn end(&mut self) {
        self.senders = self.senders.saturating_sub(1);
    }

    /// There is no limit any more, or it is another connection.
    pub fn reset(&mut self) {
        *self = Self {
            senders: self.senders,
            ..Self::default()
        };
    }

    /// When to check; `None`: there is no need.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// The message whose acknowledgement is pending; once it has come, the last message sent.
    pub fn unacked(&self) -> Option<u64> {
        self.unacked.as_ref().map(|wait| wait.what)
    }

    /// A check at `now`: `unacked`, a message without acknowledgement, and `room`, the room given
    /// by the peer if a sender finds none. Returns whether one of them has been the same for
    /// `limit`.
    pub fn check(&mut self, now: u64, limit: u64, unacked: Option<u64>, room: Option<T>) -> bool {
        self.unacked = still(self.unacked.take(), unacked, now);
        self.room = still(self.room.take(), room, now);
        let unacked = self.unacked.as_ref().map(|wait| wait.since);
        let room = self.room.as_ref().map(|wait| wait.since);
        let next = now.saturating_add(step(limit));
        let Some(since) = unacked.into_iter().chain(room).min() else {
            self.at = (self.senders > 0).then_some(next);
            return false;
        };
        let end = since.saturating_add(limit);
        let over = now >= end;
        self.at = (!over).then_some(next.min(end));
        over
    }
}

/// A wait that goes on, or another one from `now` on.
fn still<T: PartialEq>(before: Option<Wait<T>>, what: Option<T>, now: u64) -> Option<Wait<T>> {
    let what = what?;
    let since = before.filter(|wait| wait.what == what);
    let since = since.map_or(now, |wait| wait.since);
    Some(Wait { what, since })
}
