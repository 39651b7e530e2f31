// SPDX-License-Identifier: GPL-2.0

//! A link without room: for some time its datagrams wait, then they are dropped, until it has room
//! again. So a peer that takes nothing holds up a sender once, and not for each datagram, and long
//! before its link is known to be lost.
//!
//! Each length of a datagram has its own time: short datagrams, which find room meanwhile, do not
//! have a long one wait for ever.
//!
//! [`Progress`] recognizes a link on which no work request completes: a sender should not wait for
//! a completion there.

use super::wire::FRAGMENTS_MAX;

/// The decision on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is posted.
    Send,
    /// It waits for room, until this time at most: a blocking call sleeps, another is EAGAIN and
    /// the socket is not writable.
    Wait {
        /// In nanoseconds, as `now`.
        until: u64,
    },
    /// It is dropped.
    Drop,
}

/// How long a link has had no room for datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    /// Since when, in nanoseconds of the monotonic clock, for a datagram of one fragment and more.
    since: [Option<u64>; FRAGMENTS_MAX as usize],
    /// Datagrams dropped, wrapping.
    drops: u32,
}

impl Stall {
    /// Decides on a datagram of `n` fragments at `now`. `room`: the link has room for it; `limit`:
    /// the longest wait for room, in nanoseconds. Counts drops.
    pub fn decide(&mut self, n: u32, room: bool, now: u64, limit: u64) -> Verdict {
        if room {
            self.clear(n);
            return Verdict::Send;
        }
        // Nor is there room for longer ones.
        let longer = self.since.iter_mut().skip(n.saturating_sub(1) as usize);
        let mut since = now;
        for (i, of) in longer.enumerate() {
            let of = *of.get_or_insert(now);
            if i == 0 {
                since = of;
            }
        }
        let until = since.saturating_add(limit);
        if now < until {
            return Verdict::Wait { until };
        }
        self.drops = self.drops.wrapping_add(1);
        Verdict::Drop
    }

    /// Counts the drop of a datagram whose wait has timed out.
    pub fn give_up(&mut self) {
        self.drops = self.drops.wrapping_add(1);
    }

    /// The link has room again for a datagram of `n` fragments, and for shorter ones.
    pub fn clear(&mut self, n: u32) {
        for since in self.since.iter_mut().take(n as usize) {
            *since = None;
        }
    }

    /// Datagrams dropped so far, wrapping.
    pub fn drops(&self) -> u32 {
        self.drops
    }
}

/// Whether the messages of a link complete. All times are in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The last datagram whose completion will be seen.
    seq: u64,
    /// The last completed message when the first of the datagrams in flight was posted, or the
    /// first one after another completion.
    done: u64,
    /// When that was.
    since: u64,
}

impl Progress {
    /// A datagram was posted at `now`. `seq`: the link's sequence number of its last message, which
    /// is signaled; `done`: that of the last completed message.
    pub fn posted(&mut self, seq: u64, done: u64, now: u64) {
        if self.seq <= done || self.done != done {
            self.since = now;
        }
        (self.seq, self.done) = (seq, done);
    }

    /// Whether a datagram is in flight at `now`, and no message has completed for `limit` since it
    /// was posted. `done` is that of now.
    pub fn is_stuck(&self, done: u64, now: u64, limit: u64) -> bool {
        self.seq > done && self.done == done && now >= self.since.saturating_add(limit)
    }
}
