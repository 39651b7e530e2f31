// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a link: whether its peer is still there.
//!
//! `host/links.rs` looks at all links when one of them is due. A peer of which nothing has arrived is asked for a sign
//! of life, and the link ends when it gives none for long; sockets with times of their own hear of the silence before.

#![deny(unsafe_code)]

use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::Arc;

use super::link::{Link, LinkState};
use crate::kern::task;
use crate::params;
use crate::proto::channel::Failure;

/// What a link knows of its peer's life.
pub(super) struct Pulse {
    /// Something has arrived since the last beat.
    heard: Atomic<bool>,
    /// When the peer was first asked of all times that it has not answered, in nanoseconds of the monotonic clock;
    /// 0: it has answered.
    asked_since: Atomic<u64>,
    /// When the next beat is due, in nanoseconds of the monotonic clock.
    due: Atomic<u64>,
    /// After how many milliseconds of silence sockets with SO_KEEPALIVE want the peer to be asked; 0: there was
    /// none.
    keep_ms: Atomic<u32>,
    /// After how many the least patient of them takes the peer for gone; 0: there was none.
    gone_ms: Atomic<u32>,
    /// The last beat that something had arrived before, in nanoseconds of the monotonic clock.
    heard_at: Atomic<u64>,
}

/// For how long nothing has come from a peer, in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Silence {
    /// In all.
    pub(crate) ns: u64,
    /// Since it was asked whether it is there.
    pub(crate) asked: u64,
}

impl Pulse {
    /// Of a link that is being made.
    pub(super) fn new() -> Self {
        Self {
            heard: Atomic::new(true),
            asked_since: Atomic::new(0),
            due: Atomic::new(0),
            keep_ms: Atomic::new(0),
            gone_ms: Atomic::new(0),
            heard_at: Atomic::new(task::now_ns()),
        }
    }

    /// Something has arrived. Any context.
    pub(super) fn hear(&self) {
        self.heard.store(true, Relaxed);
    }

    /// How often it is looked whether the peer is there, in milliseconds; 0: never.
    fn every_ms(&self) -> u32 {
        match (params::HEARTBEAT_MS.get(), self.keep_ms.load(Relaxed)) {
            (all, 0) => all,
            (0, keep) => keep,
            (all, keep) => all.min(keep),
        }
    }
}

impl Link {
    /// A socket wants the peer to be asked whether it is there after `ms` milliseconds of silence, and to hear when
    /// there is no answer for another `patience` milliseconds. The shortest times that were ever asked for hold as
    /// long as the link. Sleeps.
    pub(crate) fn ask_after(&self, ms: u32, patience: u32) {
        let pulse = &self.pulse;
        let sooner = lower(&pulse.gone_ms, ms.saturating_add(patience));
        if lower(&pulse.keep_ms, ms) || sooner {
            pulse.due.store(0, Relaxed);
            self.host.watch_links_now();
        }
    }

    /// Looks whether the peer is there, if it is time for that at `now`: asks it if nothing has arrived since the
    /// last time, and ends the link if it has not answered for long. When to look again, if at all; all in
    /// nanoseconds of the monotonic clock.
    pub(crate) fn beat(self: &Arc<Self>, now: u64) -> Option<u64> {
        let pulse = &self.pulse;
        let every = pulse.every_ms();
        let state = self.state();
        if every == 0 || matches!(state, LinkState::Down) {
            return None;
        }
        let period = u64::from(every) * 1_000_000;
        let due = pulse.due.load(Relaxed);
        // Links that are due at about the same time are looked at together; what is later than a period was set for
        // a longer one.
        if now.saturating_add(period / 8) < due && due <= now.saturating_add(period) {
            return Some(due);
        }
        let due = now.saturating_add(period);
        pulse.due.store(due, Relaxed);
        if matches!(state, LinkState::Connecting) {
            return Some(due);
        }
        // Nobody needs a peer on a link without channels, which is about to end.
        if pulse.heard.xchg(false, Full) || self.channels() == 0 {
            pulse.asked_since.store(0, Relaxed);
            pulse.heard_at.store(now, Relaxed);
            return Some(due);
        }
        let since = match pulse.asked_since.load(Relaxed) {
            0 => now,
            since => since,
        };
        pulse.asked_since.store(since, Relaxed);
        let asked = now.saturating_sub(since);
        if asked >= u64::from(params::DEAD_MS.get()) * 1_000_000 {
            self.fail_loud(Failure::TimedOut, "its peer does not answer");
            return None;
        }
        self.tx.lock().asking = true;
        self.transmit();
        let gone = u64::from(pulse.gone_ms.load(Relaxed)) * 1_000_000;
        if gone == 0 {
            return Some(due);
        }
        let heard = pulse.heard_at.load(Relaxed);
        let silence = now.saturating_sub(heard);
        if silence >= gone {
            let silence = Silence { ns: silence, asked };
            self.host.tell_silence(self, silence);
        }
        // When the next one may be told: the peer of a link that was silent for long may just have been asked.
        let ends = [heard, since].map(|from| from.saturating_add(gone));
        let due = ends
            .into_iter()
            .filter(|end| *end > now)
            .fold(due, u64::min);
        pulse.due.store(due, Relaxed);
        Some(due)
    }
}

/// Makes `least` `ms` if it was 0 or more than that; whether it was.
fn lower(least: &Atomic<u32>, ms: u32) -> bool {
    let mut now = least.load(Relaxed);
    while now == 0 || ms < now {
        match least.cmpxchg(now, ms, Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}
