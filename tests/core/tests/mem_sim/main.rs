// SPDX-License-Identifier: GPL-2.0

//! A deterministic simulation of three hosts with memory nodes, which requesters, sources and targets of copies use at once.
//!
//! The core is the real one. The network, the devices with their remote keys and delayed DMA, the programs, and in some
//! worlds a hostile peer are played here ([`world::World`]). One seed decides everything. Every byte that lands in a node's
//! memory is checked against what has been promised: [`oracle`]. See `sim` for how seeds are run.

mod broker;
mod config;
mod device;
mod host;
mod hostile;
mod link;
mod oracle;
mod program;
mod requester;
#[path = "../sim/seeds.rs"]
mod seeds;
mod serve;
mod source;
mod stats;
mod trouble;
mod world;

use seeds::Plan;
use world::World;

/// The test that replays a seed.
pub const TEST: &str = "three_hosts";

/// What it takes of SIM_SECONDS.
pub const TIME_PERCENT: u64 = 25;

// rows: M1 M2 M3 M4 M5
#[test]
fn three_hosts() {
    let plan = Plan::from_env();
    let (count, stats) = seeds::run(&plan);
    // A simulation that never gets to the hard cases proves nothing.
    if count >= seeds::ENOUGH {
        stats.assert_all_seen();
    }
}

#[test]
fn same_seed_same_run() {
    for seed in 0..10 {
        let first = World::new(seed, false).run();
        assert_eq!(first, World::new(seed, false).run(), "seed {seed}");
    }
}
