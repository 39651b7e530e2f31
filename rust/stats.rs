// SPDX-License-Identifier: GPL-2.0

//! Counters of the whole module, as ZRS_IOC_STATS returns them. They are plain atomics: each is
//! exact, but together they are no consistent snapshot.

#![deny(unsafe_code)]

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

/// See `struct zrs_ioc_stats` in `uapi/linux/zrs.h`.
#[allow(missing_docs)]
pub(crate) struct Stats {
    pub(crate) tx_bytes: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) tx_copied: Counter,
    pub(crate) rx_copied: Counter,
    pub(crate) rx_spilled: Counter,
    pub(crate) work_requests: Counter,
    pub(crate) signaled: Counter,
    pub(crate) recv_requests: Counter,
    pub(crate) completions: Counter,
    pub(crate) empty_events: Counter,
    pub(crate) resources_made: Counter,
    pub(crate) sockets: Counter,
    pub(crate) protocol_errors: Counter,
    pub(crate) windows_revoked: Counter,
}

/// The counters since the module was loaded.
pub(crate) static STATS: Stats = Stats {
    tx_bytes: Counter::new(),
    rx_bytes: Counter::new(),
    tx_copied: Counter::new(),
    rx_copied: Counter::new(),
    rx_spilled: Counter::new(),
    work_requests: Counter::new(),
    signaled: Counter::new(),
    recv_requests: Counter::new(),
    completions: Counter::new(),
    empty_events: Counter::new(),
    resources_made: Counter::new(),
    sockets: Counter::new(),
    protocol_errors: Counter::new(),
    windows_revoked: Counter::new(),
};
