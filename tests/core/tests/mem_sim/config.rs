// SPDX-License-Identifier: GPL-2.0

//! What a seed's world is like.

use zrs_core::mem::copy::Limits;

use common::Rng;

pub struct Config {
    /// Pages of each node, and pages of an extent at most.
    pub pages: u32,
    pub run_max: u32,
    pub regions: usize,
    pub keys: usize,
    pub limits: Limits,
    pub jobs: usize,
    /// Most open asks on a link.
    pub asks: u32,
    /// Grants of a link.
    pub grants: usize,
    pub entries: usize,
    pub region_bytes: u64,
    pub steps: u64,
    /// Percent of steps in which a program does something.
    pub busy: u64,
    /// Weights of what else may happen, by [`crate::world::What`].
    pub weights: [u64; 8],
    pub link_failures: u64,
    pub crashes: u64,
    pub hostile: bool,
    /// Percent of nodes that are missing in a directory.
    pub unknown: u64,
    /// Percent of keys with uses, and with a time to live.
    pub limited: u64,
    pub orphan_ms: u64,
    /// Percent of a link's asks that a user may have.
    pub user_percent: u32,
}

impl Config {
    pub fn new(rng: &mut Rng) -> Self {
        let troubles = rng.below(3);
        Self {
            pages: rng.pick(&[16, 40, 100]),
            run_max: rng.pick(&[1, 3, 16]),
            regions: rng.pick(&[3, 8, 20]),
            keys: rng.pick(&[8, 40, 200]),
            limits: Limits {
                chunk: rng.pick(&[7, 32, 100]),
                put: 16,
                part: rng.pick(&[40, 100, 1000]),
                jobs_per_target: rng.pick(&[1, 2, 16]),
                in_flight_max: rng.pick(&[1, 100, 10_000]),
            },
            jobs: rng.pick(&[2, 10, 60]),
            asks: rng.pick(&[4, 6, 64]),
            grants: rng.pick(&[1, 3, 20]),
            entries: rng.pick(&[2, 8, 40]),
            region_bytes: rng.pick(&[60, 300, 1000]),
            steps: rng.pick(&[500, 1500, 4000]),
            busy: rng.pick(&[3, 10, 30]),
            weights: [0; 8].map(|_| rng.pick(&[1, 5, 30])),
            link_failures: if troubles == 1 { rng.range(1, 8) } else { 0 },
            crashes: if troubles == 2 { rng.range(1, 3) } else { 0 },
            hostile: rng.chance(35),
            unknown: rng.pick(&[0, 0, 20]),
            limited: rng.pick(&[0, 30]),
            orphan_ms: rng.pick(&[50, 1000]),
            user_percent: rng.pick(&[25, 50, 100]),
        }
    }
}
