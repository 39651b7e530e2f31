// SPDX-License-Identifier: GPL-2.0

//! A deterministic simulation of two hosts that speak the protocol to each other.
//!
//! The core is the real one; what the module, the network, the device and the programs do around
//! it is played here ([`world::World`]). One seed decides everything. Every byte that a program
//! receives is checked, and so is every place a WRITE goes to. When nothing can happen any more,
//! everybody must have finished and everything must be back where it was.
//!
//! `SEED=n` replays one seed and `TRACE=1` prints what happens in it; `SEEDS=n` runs seeds 0 to
//! n - 1.

#[path = "../common/mod.rs"]
mod common;
mod config;
mod host;
mod link;
mod program;
mod ring;
mod sock;
mod stats;
mod world;

use std::panic::{catch_unwind, resume_unwind};
use std::time::Instant;

use stats::Stats;
use world::World;

const SEEDS: u64 = 1500;

fn number(name: &str) -> Option<u64> {
    // Set to nothing is not set: that is how make hands it on.
    let value = std::env::var(name).ok().filter(|v| !v.is_empty())?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: not a number")),
    )
}

// rows: Z3 Z5 Z6 E4 L2 C1 C3 C4 C6 B3 B4 B9 B11
#[test]
fn two_hosts() {
    let one = number("SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(SEEDS),
    };
    let many = seeds.end - seeds.start >= SEEDS;
    let trace = one.is_some() && std::env::var_os("TRACE").is_some();
    let begin = Instant::now();
    let mut stats = Stats::default();
    for seed in seeds.clone() {
        let run = catch_unwind(|| World::new(seed, trace).run());
        match run {
            Ok(s) => stats.add(&s),
            Err(cause) => {
                eprintln!("sim: seed {seed} failed; to replay it:");
                eprintln!("    SEED={seed} TRACE=1 cargo test --release -p zrs-core --test sim");
                resume_unwind(cause);
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "sim: seeds {} to {}: {:.1} s, {:.0} seeds/s\n{stats}",
        seeds.start,
        seeds.end - 1,
        seconds,
        (seeds.end - seeds.start) as f64 / seconds
    );
    if many {
        // A simulation that never gets to the hard cases proves nothing.
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
