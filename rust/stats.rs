// SPDX-License-Identifier: GPL-2.0

//! Counters of the whole module, as ZRS_IOC_STATS reports them: exact, but not a consistent
//! snapshot of each other. Every message counts, so each processor has cache lines of its own;
//! reading adds them up.

#![deny(unsafe_code)]

use kernel::cpu::CpuId;
use kernel::sync::atomic::{Atomic, Relaxed};

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

    /// The value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed) as u64
    }
}

/// Sets of counters, a power of two; more processors share them.
const SHARDS: usize = 64;

/// Counters of the module.
const STAT_COUNT: usize = 19;

/// The counts of one or more processors.
#[repr(align(64))]
struct Shard([Counter; STAT_COUNT]);

static COUNTED: [Shard; SHARDS] = [const { Shard([const { Counter::new() }; STAT_COUNT]) }; SHARDS];

/// A counter of the whole module, or a gauge: its number in each [`Shard`].
pub(crate) struct Stat(usize);

impl Stat {
    fn mine(&self) -> Option<&'static Counter> {
        // If the task migrates here, two processors count in one shard for once.
        let cpu = CpuId::current().as_u32() as usize;
        COUNTED.get(cpu % SHARDS)?.0.get(self.0)
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
        let all = COUNTED.iter().filter_map(|shard| shard.0.get(self.0));
        all.fold(0, |sum, counter| sum.wrapping_add(counter.get()))
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
    pub(crate) tcp_known: Stat,
    pub(crate) tcp_no_zrs: Stat,
    pub(crate) tcp_slow: Stat,
    pub(crate) tcp_no_listener: Stat,
    pub(crate) tcp_no_resources: Stat,
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
    tcp_known: Stat(14),
    tcp_no_zrs: Stat(15),
    tcp_slow: Stat(16),
    tcp_no_listener: Stat(17),
    tcp_no_resources: Stat(18),
};
