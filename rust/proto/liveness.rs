// SPDX-License-Identifier: GPL-2.0

//! Whether the peer of a link is still there: when it is looked whether something has come of it, when it is asked, and
//! who hears that it does not answer. The link takes it for dead after a time of its own; connections with SO_KEEPALIVE have
//! theirs, which end the connection alone. All of them share one question.
//!
//! Something is heard of a peer at the look after it has come, so that a silence seems shorter by the time between two looks at
//! most, and never longer. Times are in nanoseconds of one clock where they are not in milliseconds by name.

/// How a link looks after its peer.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// How often, in milliseconds; 0: not at all.
    pub every_ms: u32,
    /// How long the peer may leave a question without an answer, in milliseconds.
    pub dead_ms: u32,
}

/// What is known of a peer.
#[derive(Debug)]
pub struct Liveness {
    /// Something has come since the last look.
    rx_seen: bool,
    /// The last look that something had come before.
    last_rx: u64,
    /// When the peer was first asked of all times that it has not answered.
    probed_at: Option<u64>,
    /// When the next look is due.
    due: u64,
    /// When somebody's time may be over, as long as the peer does not answer.
    notify_at: u64,
    /// The shortest silence after which a connection wants the peer to be asked; `u64::MAX`: none does.
    idle: u64,
    /// The shortest after which one takes it for gone; `u64::MAX`: none does.
    gone: u64,
}

/// A peer that was asked, and has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    last_rx: u64,
    probed_at: u64,
    now: u64,
}

impl Silence {
    /// Until when a connection waits that wants the peer to be asked after `idle_ms` without a word, and for `timeout_ms`
    /// for the answer; `None`: that is over.
    pub fn waits_until(&self, idle_ms: u32, timeout_ms: u32) -> Option<u64> {
        let end = end(self.last_rx, self.probed_at, idle_ms, timeout_ms);
        (end > self.now).then_some(end)
    }
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nobody wants to know.
    Never,
    /// There is nothing to do before this time.
    Wait(u64),
    /// The peer is to be asked, and looked after again at this time.
    Probe(u64),
    /// The peer is to be asked, and the connections are to be told, as the time of some may be over.
    /// [`Liveness::notified`] says when to look again.
    Notify(Silence),
    /// The peer is dead.
    Dead,
}

fn ns(ms: u32) -> u64 {
    u64::from(ms).saturating_mul(1_000_000)
}

/// When the time of a connection is over: both for the silence and for the answer.
fn end(last_rx: u64, probed_at: u64, idle_ms: u32, timeout_ms: u32) -> u64 {
    let timeout = ns(timeout_ms);
    let silence = ns(idle_ms).saturating_add(timeout);
    let answer = probed_at.saturating_add(timeout);
    last_rx.saturating_add(silence).max(answer)
}

impl Liveness {
    /// Of a link that is being made at `now`.
    pub fn new(now: u64) -> Self {
        Self {
            rx_seen: true,
            last_rx: now,
            probed_at: None,
            due: 0,
            notify_at: u64::MAX,
            idle: u64::MAX,
            gone: u64::MAX,
        }
    }

    /// Something has come from the peer.
    pub fn on_rx(&mut self) {
        self.rx_seen = true;
    }

    /// A connection wants the peer to be asked after `idle_ms` without a word, and to be told when it has not answered for
    /// another `timeout_ms`. The shortest times that were ever asked for hold as long as the link. Whether the next look is due
    /// earlier than before; [`Self::check`] says when.
    pub fn request_keepalive(&mut self, idle_ms: u32, timeout_ms: u32) -> bool {
        let idle = ns(idle_ms);
        let gone = idle.saturating_add(ns(timeout_ms));
        let sooner = idle < self.idle || gone < self.gone;
        if sooner {
            self.idle = self.idle.min(idle);
            self.gone = self.gone.min(gone);
            self.due = 0;
        }
        let Some(probed_at) = self.probed_at else {
            return sooner;
        };
        // It comes to a silence that others have been told of.
        let end = end(self.last_rx, probed_at, idle_ms, timeout_ms);
        self.notify_at = self.notify_at.min(end);
        let earlier = self.notify_at < self.due;
        self.due = self.due.min(self.notify_at);
        sooner || earlier
    }

    /// Looks, if it is time for that at `now`. `needed`: the link carries somebody who needs a peer.
    pub fn check(&mut self, now: u64, pace: Intervals, needed: bool) -> Action {
        let every = match ns(pace.every_ms) {
            0 => self.idle,
            every => every.min(self.idle),
        };
        if every == u64::MAX {
            return Action::Never;
        }
        let next = now.saturating_add(every);
        // Links that are due at about the same time are looked at together; what is later than `every` was set for
        // a longer time.
        if now.saturating_add(every >> 3) < self.due && self.due <= next {
            return Action::Wait(self.due);
        }
        self.due = next;
        if core::mem::take(&mut self.rx_seen) || !needed {
            self.probed_at = None;
            self.last_rx = now;
            return Action::Wait(next);
        }
        let probed_at = match self.probed_at {
            Some(probed_at) => probed_at,
            None => {
                self.notify_at = self.last_rx.saturating_add(self.gone);
                *self.probed_at.insert(now)
            }
        };
        if now.saturating_sub(probed_at) >= ns(pace.dead_ms) {
            return Action::Dead;
        }
        if now < self.notify_at {
            self.due = next.min(self.notify_at);
            return Action::Probe(self.due);
        }
        self.notify_at = u64::MAX;
        Action::Notify(Silence {
            last_rx: self.last_rx,
            probed_at,
            now,
        })
    }

    /// The connections were told, and the next of them waits until `end`; `u64::MAX`: there is none. When to look again.
    pub fn notified(&mut self, end: u64) -> u64 {
        self.notify_at = self.notify_at.min(end);
        self.due = self.due.min(self.notify_at);
        self.due
    }
}
