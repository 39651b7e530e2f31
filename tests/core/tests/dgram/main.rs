// SPDX-License-Identifier: GPL-2.0

//! Datagrams: the parts of `rust/proto/dgram`, each against a model that is as simple as the
//! documentation. `tests/dgram_sim` has them all together.

mod assembly;
mod backlog;
mod control;
mod credit;
mod destination;
mod destinations;
mod fifo;
mod lend;
mod ports;
mod readiness;
mod receivers;
mod refusals;
mod rx_queue;
mod segment;
mod sndbuf;
mod stall;
mod wire;

/// Storage with `n` empty slots.
pub fn slots<T>(n: usize) -> Vec<Option<T>> {
    (0..n).map(|_| None).collect()
}
