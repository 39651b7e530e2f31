// SPDX-License-Identifier: GPL-2.0

//! A link without room: for some time its datagrams wait, then they are dropped, until it has room
//! again. So a peer that takes nothing holds up a sender once, and not for each datagram, and long
//! before its link is known to be lost.

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
    /// Since when, in nanoseconds of the monotonic clock.
    since: Option<u64>,
    /// Datagrams dropped, wrapping.
    drops: u32,
}

impl Stall {
    /// Decides on a datagram at `now`. `room`: the link has room for it; `limit`: the longest wait
    /// for room, in nanoseconds. Counts drops.
    pub fn decide(&mut self, room: bool, now: u64, limit: u64) -> Verdict {
        if room {
            self.since = None;
            return Verdict::Send;
        }
        let since = *self.since.get_or_insert(now);
        let until = since.saturating_add(limit);
        if now < until {
            return Verdict::Wait { until };
        }
        self.drops = self.drops.wrapping_add(1);
        Verdict::Drop
    }

    /// Whether a socket stays unwritable at `now` after [`Verdict::Wait`].
    #[cfg(not(MODULE))]
    pub fn is_withheld(&self, now: u64, limit: u64) -> bool {
        self.since
            .is_some_and(|since| now < since.saturating_add(limit))
    }

    /// Counts the drop of a datagram whose wait has timed out.
    pub fn give_up(&mut self) {
        self.drops = self.drops.wrapping_add(1);
    }

    /// The link has room again, or has failed.
    pub fn clear(&mut self) {
        self.since = None;
    }

    /// Datagrams dropped so far, wrapping.
    pub fn drops(&self) -> u32 {
        self.drops
    }
}
