// SPDX-License-Identifier: GPL-2.0

//! A deterministic simulation of two hosts that are connected by the protocol.
//!
//! The core is the real one, and all channels are in its link tables; the module, the network, the
//! device, the programs and an adversary around it are simulated ([`world::World`]). One seed
//! decides everything. Every byte that a program receives is checked, and so is every place a WRITE
//! goes to. When nothing can happen any more, every program must have finished, everything must be
//! back where it was, and both hosts must be able to connect as if nothing had been.
//! [`seeds::Plan`] selects the seeds.

mod config;
mod cork;
mod end;
mod entry;
mod escape;
mod host;
mod hostile;
mod link;
mod module;
mod net;
mod program;
mod reading;
mod receiving;
mod ring;
mod seeds;
mod sending;
mod sock;
mod stats;
mod trouble;
mod world;

use seeds::Plan;
use world::World;

/// The test that replays a seed.
pub const TEST: &str = "two_hosts";

/// Its share of SIM_SECONDS.
pub const TIME_PERCENT: u64 = 100;

// rows: Z3 Z5 Z6 E4 L2 C1 C3 C4 C5 C6 B3 B4 B9 B11
#[test]
fn two_hosts() {
    let plan = Plan::from_env();
    let (count, stats) = seeds::run(&plan);
    // A simulation that never gets to the hard cases proves nothing.
    if count >= seeds::ENOUGH {
        stats.assert_all_seen();
    }
}

#[test]
fn same_seed_same_run() {
    for seed in 0..20 {
        let first = World::new(seed, false).run();
        assert_eq!(first, World::new(seed, false).run(), "seed {seed}");
    }
}
