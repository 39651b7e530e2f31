// SPDX-License-Identifier: GPL-2.0

//! Counters of the whole module, as ZRS_IOC_STATS reports them: exact, but not a consistent
//! snapshot of each other. Every message counts, so each processor has cache lines of its own;
//! reading adds them up. [`PerCpu`] and [`Gauge`] are the same for other objects that all
//! processors use.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::cpu::{self, CpuId};
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

    /// Counts `n` more, and returns the new value. Any context.
    fn add_return(&self, n: i64) -> i64 {
        self.0.fetch_add(n, Relaxed).wrapping_add(n)
    }

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed) as u64
    }
}

/// Sets of counters, a power of two; more processors share them.
const SHARDS: usize = 64;

/// Counters of the module.
const STAT_COUNT: usize = 14;

/// The counts of one or more processors.
#[repr(align(64))]
struct Shard<const N: usize>([Counter; N]);

impl<const N: usize> Shard<N> {
    const fn new() -> Self {
        Self([const { Counter::new() }; N])
    }
}

/// The number of the shard, of `all`, that the current processor counts in. If the task migrates
/// afterwards, two processors count in one shard for once.
fn shard(all: usize) -> usize {
    let cpu = CpuId::current().as_u32() as usize;
    cpu.checked_rem(all).unwrap_or(0)
}

/// `N` counters that every message counts in.
pub(crate) struct PerCpu<const N: usize>(KVVec<Shard<N>>);

impl<const N: usize> PerCpu<N> {
    /// Counters at zero. Sleeps. ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        let all = (cpu::nr_cpu_ids() as usize).clamp(1, SHARDS);
        let mut shards = KVVec::with_capacity(all, GFP_KERNEL)?;
        for _ in 0..all {
            shards.push(Shard::new(), GFP_KERNEL)?;
        }
        Ok(Self(shards))
    }

    fn mine(&self, at: usize) -> Option<&Counter> {
        self.0.get(shard(self.0.len()))?.0.get(at)
    }

    /// Counts `n` more in counter `at`. Any context.
    pub(crate) fn add(&self, at: usize, n: u64) {
        if let Some(counter) = self.mine(at) {
            counter.add(n);
        }
    }

    /// The value of counter `at`.
    pub(crate) fn get(&self, at: usize) -> u64 {
        sum(&self.0, at) as u64
    }
}

/// The sum of the counters `at` of all shards.
fn sum<const N: usize>(shards: &[Shard<N>], at: usize) -> i64 {
    let all = shards.iter().filter_map(|shard| shard.0.get(at));
    all.fold(0, |sum, counter| sum.wrapping_add(counter.0.load(Relaxed)))
}

/// A gauge of bytes that every message changes, with the highest value that was seen.
///
/// Each processor counts for itself until it has [`GAUGE_BATCH`] bytes to tell (cf. `struct
/// percpu_counter`). The value is exact when it is read. A peak may be missed that is higher by
/// less than a batch for each processor.
pub(crate) struct Gauge {
    parts: PerCpu<1>,
    /// What the processors have told.
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
        let Some(part) = self.parts.mine(0) else {
            return;
        };
        let n = part.add_return(n);
        if n.unsigned_abs() < GAUGE_BATCH {
            return;
        }
        // Between the steps the sum is too low, never too high.
        if n < 0 {
            self.told.0.fetch_add(n, Full);
            part.0.fetch_add(n.wrapping_neg(), Full);
            return;
        }
        part.0.fetch_add(n.wrapping_neg(), Full);
        let told = self.told.0.fetch_add(n, Full).wrapping_add(n);
        // What other processors take back may not be in it yet: look at all of them first.
        if told > self.high.load(Relaxed) {
            self.raise();
        }
    }

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        let told = self.told.0.load(Relaxed);
        // Below 0 if a change came between the looks at two processors.
        sum(&self.parts.0, 0).wrapping_add(told).max(0) as u64
    }

    /// The value, and the highest that was seen.
    pub(crate) fn get_with_high(&self) -> (u64, u64) {
        let now = self.raise();
        (now, (self.high.load(Relaxed) as u64).max(now))
    }

    /// Looks at the value, and notes it if it is the highest, and no processor told something
    /// meanwhile. If two threads do so at once, the lower may stay: a peak was missed.
    fn raise(&self) -> u64 {
        let before = self.told.0.load(Acquire);
        let now = self.get();
        let same = self.told.0.load(Acquire) == before;
        if same && now as i64 > self.high.load(Relaxed) {
            self.high.store(now as i64, Relaxed);
        }
        now
    }
}

static COUNTED: [Shard<STAT_COUNT>; SHARDS] = [const { Shard::new() }; SHARDS];

/// A counter of the whole module, or a gauge: its number in each [`Shard`].
pub(crate) struct Stat(usize);

impl Stat {
    fn mine(&self) -> Option<&'static Counter> {
        COUNTED.get(shard(SHARDS))?.0.get(self.0)
    }

    /// Counts `n` more. Any context.
    pub(crate) fn add(&self, n: u64) {
        if let Some(counter) = self.mine() {
            counter.add(n);
        }
    }

    /// Takes `n` back from a gauge. Any context.
    pub(crate) fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        sum(&COUNTED, self.0) as u64
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
    tx_bytes: Stat(0),
    rx_bytes: Stat(1),
    tx_copied: Stat(2),
    rx_copied: Stat(3),
    rx_spilled: Stat(4),
    work_requests: Stat(5),
    signaled: Stat(6),
    recv_requests: Stat(7),
    completions: Stat(8),
    empty_events: Stat(9),
    resources_made: Stat(10),
    sockets: Stat(11),
    protocol_errors: Stat(12),
    windows_revoked: Stat(13),
};

/// One more than the highest number of a reason why TCP carries a socket.
const REASONS: usize = 13;

/// How often TCP has come to carry a socket, by the number of the reason.
pub(crate) static FALLBACKS: [Counter; REASONS] = [const { Counter::new() }; REASONS];
