// SPDX-License-Identifier: GPL-2.0

//! The parameters of a seed's world.

use common::Rng;

pub struct Config {
    pub clients: usize,
    /// Sockets of each client.
    pub socks: usize,
    /// Ports of the server; some are bound.
    pub ports: u16,
    /// Credit of the links in both directions.
    pub credit: u32,
    /// Blocks of the server's pool, and the part of them that unread datagrams may have, in percent.
    pub blocks: u32,
    pub lend_percent: u32,
    pub rcvbuf: u32,
    /// Slots of a receive queue at first.
    pub slots: usize,
    /// Percent of calls that block.
    pub blocking: u64,
    /// Percent of clients with a stream.
    pub streams: u64,
    /// Messages that a stream sends at a time, less than this, beside those that follow a datagram.
    pub pace: u64,
    /// How long a link may be without room, in steps of time.
    pub stall: u64,
    /// Slots of a backlog.
    pub backlog: usize,
    pub sizes: &'static [u32],
    pub steps: u64,
    /// Weights of what happens, by [`crate::world::What`].
    pub weights: [u64; 8],
    pub link_failures: u64,
    pub hostile: bool,
}

const SMALL: &[u32] = &[0, 1, 8, 100, 1000];
const ALL: &[u32] = &[
    0, 1, 100, 4095, 4096, 4097, 8192, 16_384, 16_385, 65_507, 65_527,
];
const LONG: &[u32] = &[4097, 40_000, 65_507, 65_527];

impl Config {
    pub fn new(rng: &mut Rng) -> Self {
        let (clients, credit) = (rng.range(1, 3), rng.pick(&[32, 33, 64, 200]));
        let more_links = rng.pick(&[0, 1, 1, 2]);
        Self {
            clients: clients as usize,
            socks: rng.range(1, 4) as usize,
            ports: rng.range(1, 4) as u16,
            credit,
            blocks: credit * (clients as u32 + more_links),
            lend_percent: rng.pick(&[0, 10, 25, 100]),
            rcvbuf: rng.pick(&[2304, 20_000, 212_992, 1 << 22]),
            slots: rng.pick(&[1, 4, 64]),
            blocking: rng.pick(&[0, 50, 100]),
            streams: rng.pick(&[0, 50, 100]),
            pace: rng.pick(&[1, 2, 100]),
            stall: rng.pick(&[20, 200, 1000]),
            backlog: rng.pick(&[1, 4, 64]),
            sizes: rng.pick(&[SMALL, ALL, ALL, LONG]),
            steps: rng.pick(&[300, 1000, 3000]),
            weights: [0; 8].map(|_| rng.pick(&[1, 5, 30])),
            link_failures: rng.pick(&[0, 0, 2, 6]),
            hostile: rng.chance(35),
        }
    }
}
