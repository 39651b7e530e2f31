// SPDX-License-Identifier: GPL-2.0

//! A deterministic simulation of hosts that send datagrams to a host, over links that carry
//! streams as well.
//!
//! The core is the real one. The network, the receive blocks, the programs, and in some worlds a
//! hostile host are played here ([`world::World`]). One seed decides everything. Each datagram
//! that was sent has exactly one fate ([`oracle`]). See `sim` for how seeds are run.

mod client;
mod config;
mod hostile;
mod oracle;
#[path = "../sim/seeds.rs"]
mod seeds;
mod server;
mod stats;
mod world;

use seeds::Plan;
use world::World;

/// The test that replays a seed.
pub const TEST: &str = "datagrams";

/// Its share of SIM_SECONDS.
pub const TIME_PERCENT: u64 = 15;

// rows: Z7 B11
#[test]
fn datagrams() {
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
