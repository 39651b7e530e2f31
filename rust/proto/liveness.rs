// SPDX-License-Identifier: GPL-2.0

//! Liveness of a link's peer: when to check for traffic, when to probe, and which connections to
//! fail. The link has a timeout after which it takes the peer for dead; connections with
//! SO_KEEPALIVE have their own, which end the connection alone. All of them share one probe.
//!
//! A peer that sends, but lets none of our messages arrive, is taken for dead as well. (A device
//! repeats a message without end while the peer posts no receive for it.)
//!
//! Traffic is noted at the first check after it, so that a silence seems shorter by the time
//! between two checks at most, and never longer. Times are in nanoseconds of one clock unless their
//! name says milliseconds.

/// How a link checks its peer.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// Interval of checks, in milliseconds; 0: none.
    pub every_ms: u32,
    /// How long the peer may leave a probe without an answer, in milliseconds.
    pub dead_ms: u32,
    /// How long the peer may leave our messages without an acknowledgement, in milliseconds.
    pub stalled_ms: u32,
}

/// The state of a link at a check.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// The link carries a user that needs a peer.
    pub needs_peer: bool,
    /// The device has yet to complete a message whose completion it signals.
    pub in_flight: bool,
    /// Number of the last message that has completed.
    pub completed: u64,
}

/// State of a peer.
#[derive(Debug)]
pub struct Liveness {
    /// A message has come since the last check.
    rx_seen: bool,
    /// A datagram was sent since the last message of the peer.
    dgram_sent: bool,
    /// The last check that found traffic.
    last_rx: u64,
    /// [`Carried::completed`] at the last check.
    completed: u64,
    /// The last check that found a new completion, if the device has had messages since.
    stalled_at: Option<u64>,
    /// When the first of the unanswered probes was sent.
    probed_at: Option<u64>,
    /// When the next check is due.
    due: u64,
    /// When the timeout of a connection may be over, as long as the peer does not answer.
    notify_at: u64,
    /// The shortest silence after which a connection wants a probe; `u64::MAX`: none does.
    idle: u64,
    /// The shortest timeout of a connection; `u64::MAX`: none has one.
    gone: u64,
}

/// A peer that was probed, and has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    last_rx: u64,
    probed_at: u64,
    now: u64,
}

impl Silence {
    /// The end of the timeout of a connection that wants a probe after `idle_ms` of silence, and
    /// waits `timeout_ms` for the answer; `None`: it is over.
    pub fn waits_until(&self, idle_ms: u32, timeout_ms: u32) -> Option<u64> {
        let end = end(self.last_rx, self.probed_at, idle_ms, timeout_ms);
        (end > self.now).then_some(end)
    }
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// No check is needed.
    Never,
    /// No action before this time.
    Wait(u64),
    /// Send a probe, and check again at this time.
    Probe(u64),
    /// Send a probe, and notify the connections, as the timeout of some may be over.
    /// [`Liveness::notified`] returns the time of the next check.
    Notify(Silence),
    /// The peer does not answer.
    Dead,
    /// No message to the peer completes, whether or not it sends.
    Stalled,
}

fn ns(ms: u32) -> u64 {
    u64::from(ms).saturating_mul(1_000_000)
}

/// The end of a connection's timeout: both for the silence and for the answer.
fn end(last_rx: u64, probed_at: u64, idle_ms: u32, timeout_ms: u32) -> u64 {
    let timeout = ns(timeout_ms);
    let silence = ns(idle_ms).saturating_add(timeout);
    let answer = probed_at.saturating_add(timeout);
    last_rx.saturating_add(silence).max(answer)
}

impl Liveness {
    /// The state of a link that is made at `now`.
    pub fn new(now: u64) -> Self {
        Self {
            rx_seen: true,
            dgram_sent: false,
            last_rx: now,
            completed: 0,
            stalled_at: None,
            probed_at: None,
            due: 0,
            notify_at: u64::MAX,
            idle: u64::MAX,
            gone: u64::MAX,
        }
    }

    /// A message has come from the peer.
    pub fn on_rx(&mut self) {
        self.rx_seen = true;
        self.dgram_sent = false;
    }

    /// A datagram was sent to the peer: until one of its messages comes, a peer is needed.
    pub fn on_dgram_sent(&mut self) {
        self.dgram_sent = true;
    }

    /// A connection wants a probe after `idle_ms` of silence, and to be notified after another
    /// `timeout_ms` without an answer. The shortest times ever requested hold for the life of the
    /// link. Returns whether the next check is due earlier than before; [`Self::check`] returns the
    /// time.
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
        // It joins a silence that other connections were notified of.
        let end = end(self.last_rx, probed_at, idle_ms, timeout_ms);
        self.notify_at = self.notify_at.min(end);
        let earlier = self.notify_at < self.due;
        self.due = self.due.min(self.notify_at);
        sooner || earlier
    }

    /// [`Carried::completed`] at the last check.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether no message has completed for `stalled_ms`, although the device has some.
    fn is_stalled(&mut self, now: u64, stalled_ms: u32, carried: Carried) -> bool {
        let progress = core::mem::replace(&mut self.completed, carried.completed);
        if !carried.in_flight {
            self.stalled_at = None;
        } else if self.stalled_at.is_none() || progress != carried.completed {
            self.stalled_at = Some(now);
        }
        let stalled = |at| now.saturating_sub(at) >= ns(stalled_ms);
        self.stalled_at.is_some_and(stalled)
    }

    /// Checks, if a check is due at `now`.
    pub fn check(&mut self, now: u64, pace: Intervals, carried: Carried) -> Action {
        let every = match ns(pace.every_ms) {
            0 => self.idle,
            every => every.min(self.idle),
        };
        if every == u64::MAX {
            return Action::Never;
        }
        let next = now.saturating_add(every);
        // Links that are due at about the same time are checked together; a check later than
        // `every` was set for a longer interval.
        if now.saturating_add(every >> 3) < self.due && self.due <= next {
            return Action::Wait(self.due);
        }
        self.due = next;
        if self.is_stalled(now, pace.stalled_ms, carried) {
            return Action::Stalled;
        }
        let needed = carried.needs_peer || self.dgram_sent;
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

    /// The connections were notified, and the next of their timeouts ends at `end`; `u64::MAX`:
    /// none. Returns the time of the next check.
    pub fn notified(&mut self, end: u64) -> u64 {
        self.notify_at = self.notify_at.min(end);
        self.due = self.due.min(self.notify_at);
        self.due
    }
}
