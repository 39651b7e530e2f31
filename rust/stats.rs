// SPDX-License-Identifier: GPL-2.0

//! Counters of the whole module, as ZRS_IOC_STATS reports them: exact, but not a consistent
//! snapshot of each other. Every message counts, so each processor has its own ([`kern::percpu`]);
//! reading adds them up. [`Gauge`] is the same for other objects that all processors use.
//!
//! [`kern::percpu`]: crate::kern::percpu

#![deny(unsafe_code)]

use crate::kern::barrier::smp_mb;
use crate::kern::percpu::{ModuleCounter, PerCpu};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};

/// A counter, or a gauge when it also goes down.
pub(crate) struct Counter(Atomic<i64>);

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
    /// A counter at zero.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts `n` more. Any context.
    pub(crate) fn add(&self, n: u64) {
        self.0.add(n as i64, Relaxed);
    }

    /// Takes `n` back from a gauge. Any context.
    pub(crate) fn sub(&self, n: u64) {
        self.0.add((n as i64).wrapping_neg(), Relaxed);
    }

    /// As [`add`](Self::add), without an atomic instruction: the caller excludes all others that
    /// count here.
    pub(crate) fn add_alone(&self, n: u64) {
        let now = self.0.load(Relaxed);
        self.0.store(now.wrapping_add(n as i64), Relaxed);
    }

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed) as u64
    }
}

/// A gauge of bytes that every message changes, with the highest value that was seen.
///
/// Each processor counts for itself until it has [`GAUGE_BATCH`] bytes to tell (cf. `struct
/// percpu_counter`). The value is exact when it is read. A peak may be missed that is higher by
/// less than a batch for each processor.
pub(crate) struct Gauge {
    parts: PerCpu<1>,
    /// The sum of the batches that the processors have flushed.
    told: Counter,
    high: Atomic<i64>,
}

/// The bytes that a processor counts for itself, at most.
const GAUGE_BATCH: u64 = 32 << 10;

impl Gauge {
    /// A gauge at zero. Sleeps. ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            parts: PerCpu::new()?,
            told: Counter::new(),
            high: Atomic::new(0),
        })
    }

    /// Changes the value by `n`. Any context.
    pub(crate) fn change(&self, n: i64) {
        let n = self.parts.add_return(0, n);
        if n.unsigned_abs() < GAUGE_BATCH {
            return;
        }
        // Between the steps the sum is too low, never too high. If the task has migrated, the
        // counter of another processor falls: the sum is the same.
        if n < 0 {
            self.told.0.fetch_add(n, Full);
            self.parts.add(0, n.wrapping_neg());
            return;
        }
        self.parts.add(0, n.wrapping_neg());
        let told = self.told.0.fetch_add(n, Full).wrapping_add(n);
        // Decreases of other processors may not be flushed yet: sum all of them first.
        if told > self.high.load(Relaxed) {
            self.raise();
        }
    }

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        let told = self.told.0.load(Acquire);
        // Below 0 if a change came between the looks at two processors.
        self.parts.sum(0).wrapping_add(told).max(0) as u64
    }

    /// The value, and the highest that was seen.
    pub(crate) fn get_with_high(&self) -> (u64, u64) {
        let now = self.raise();
        (now, (self.high.load(Relaxed) as u64).max(now))
    }

    /// Sums the value, and stores it if it is the highest, and no processor has flushed a batch
    /// during the sum. If two threads do so at once, the lower may stay: a peak was missed.
    fn raise(&self) -> u64 {
        let before = self.told.0.load(Acquire);
        let now = self.get();
        // Not before the looks at the parts.
        smp_mb();
        let same = self.told.0.load(Acquire) == before;
        if same && now as i64 > self.high.load(Relaxed) {
            self.high.store(now as i64, Relaxed);
        }
        now
    }
}

/// A counter of the whole module, or a gauge.
pub(crate) struct Stat(ModuleCounter);

impl Stat {
    const fn new(at: usize) -> Self {
        Self(ModuleCounter::new(at))
    }

    /// Counts `n` more. Any context.
    pub(crate) fn add(&self, n: u64) {
        self.0.add(n as i64);
    }

    /// Takes `n` back from a gauge. Any context.
    pub(crate) fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        self.0.sum() as u64
    }
}

/// See `struct zrs_ioc_stats` in `uapi/linux/zrs.h`.
#[allow(missing_docs)]
pub(crate) struct Stats {
    pub(crate) tx_bytes: Stat,
    pub(crate) rx_bytes: Stat,
    pub(crate) tx_copied: Stat,
    pub(crate) rx_copied: Stat,
    pub(crate) rx_spilled: Stat,
    pub(crate) work_requests: Stat,
    pub(crate) signaled: Stat,
    pub(crate) recv_requests: Stat,
    pub(crate) completions: Stat,
    pub(crate) empty_events: Stat,
    pub(crate) resources_made: Stat,
    pub(crate) sockets: Stat,
    pub(crate) protocol_errors: Stat,
    pub(crate) windows_revoked: Stat,
}

/// The counters since the module was loaded.
pub(crate) static STATS: Stats = Stats {
    tx_bytes: Stat::new(0),
    rx_bytes: Stat::new(1),
    tx_copied: Stat::new(2),
    rx_copied: Stat::new(3),
    rx_spilled: Stat::new(4),
    work_requests: Stat::new(5),
    signaled: Stat::new(6),
    recv_requests: Stat::new(7),
    completions: Stat::new(8),
    empty_events: Stat::new(9),
    resources_made: Stat::new(10),
    sockets: Stat::new(11),
    protocol_errors: Stat::new(12),
    windows_revoked: Stat::new(13),
};

/// One more than the highest number of a reason why TCP carries a socket.
pub(crate) const REASONS: usize = 15;

/// How often TCP has come to carry a socket, by the number of the reason.
pub(crate) static FALLBACKS: [Counter; REASONS] = [const { Counter::new() }; REASONS];

/// TCP has come to carry a socket, or to take its place, for the reason of this number. Any
/// context.
pub(crate) fn count_fallback(why: u32) {
    if let Some(counter) = FALLBACKS.get(why as usize) {
        counter.add(1);
    }
}
