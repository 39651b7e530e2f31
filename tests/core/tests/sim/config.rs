// SPDX-License-Identifier: GPL-2.0

//! The properties of a seed's world. Each seed draws its mixture, so that some worlds are short of
//! everything and others of nothing.

use crate::escape::Policy;
use crate::link::CONTROL_SLOTS;
use common::Rng;

pub struct Config {
    pub links: usize,
    /// Blocks of the shared receive queue per link, by side.
    pub link_credit: [u32; 2],
    pub table_slots: usize,
    /// Slots, and sets and ways of the second tier of each host's link table.
    pub table_tiers: (usize, usize, usize),
    /// Pages in each host's pool.
    pub pool_pages: [usize; 2],
    /// Windows that are not a whole number of pages.
    pub odd_windows: bool,
    pub connections: u64,
    /// Most bytes that one side of a connection sends.
    pub most_bytes: u64,
    pub limits_msgs: &'static [u32],
    pub limits_small: &'static [u32],
    /// Longest time from one thing to the next.
    pub net_delay: u64,
    pub worker_delay: u64,
    pub think: u64,
    pub backlog: usize,
    /// In percent of all cases.
    pub timers: u64,
    pub early_close: u64,
    pub shut_read: u64,
    pub rings: u64,
    pub scribblers: u64,
    pub nonblocking: u64,
    /// Programs that hold back small calls.
    pub corks: u64,
    pub bulk: u64,
    pub nobody: u64,
    pub listener_closes: u64,
    /// Mean time between revocations, 0: none, and how many there are: when nothing else moves
    /// any more, they must not keep the world going.
    pub revoke_every: u64,
    pub revocations: u32,
    pub link_failure: bool,
    /// How often a host dies, stands still, has no memory, and a link is slow.
    pub crashes: u32,
    pub pauses: u32,
    pub shortages: u32,
    pub stalls: u32,
    /// Hosts make a new link now and then though they have one.
    pub more_links: bool,
    /// Messages that may be in flight from one side of a link.
    pub tx_slots: usize,
    /// There is a link whose other end is an adversary's.
    pub hostile: bool,
    /// Violations that an adversary sends, in percent, and its steps.
    pub malice: u64,
    pub hostile_steps: u32,
    pub hostile_lives: u32,
    /// Answers that may wait on a link, which are more than an honest peer has channels.
    pub most_answers: usize,
    /// Data in shared blocks is copied out when they run short.
    pub spill: bool,
    /// Channels whose program is gone are dropped after a while.
    pub drop_orphans: bool,
    /// Data older than this may move to main memory; the policy of each host, and how often that
    /// changes.
    pub residency: u64,
    pub policy: [Policy; 2],
    pub policy_switches: u32,
    /// Longest time that a copy takes.
    pub move_delay: u64,
    /// Rings with an escape area, in percent of all rings, and the areas' size.
    pub areas: u64,
    pub area_bytes: u32,
    /// Rings that small messages are copied to, in percent of all rings.
    pub smalls: u64,
    /// Programs that stop reading until all others have finished, and that read slowly, in percent.
    pub stoppers: u64,
    pub dawdlers: u64,
    /// How long a request for a window waits for one; 0: it is denied at once.
    pub wish_time: u64,
}

impl Config {
    pub fn new(rng: &mut Rng) -> Self {
        let size = rng.below(100);
        // A few connections that send much, or many that send little.
        let (connections, most_bytes) = match size {
            0..=4 => (rng.range(1, 2), 3 << 20),
            5..=39 => (rng.range(1, 6), 512 << 10),
            40..=79 => (rng.range(4, 16), 128 << 10),
            80..=94 => (rng.range(12, 48), 16 << 10),
            _ => (rng.range(80, 200), 100),
        };
        // So many connections that there is hardly anything but control messages.
        let storm = connections >= 80;
        let credit = if storm {
            &[32, 40, 512][..]
        } else {
            &[32, 33, 40, 64, 129, 512]
        };
        let slots = if storm { &[300][..] } else { &[3, 8, 64, 64] };
        Self {
            links: if storm { 1 } else { rng.range(1, 3) as usize },
            link_credit: [0; 2].map(|_| rng.pick(credit)),
            table_slots: rng.pick(slots),
            table_tiers: rng.pick(&[
                (1, 0, 1),
                (1, 1, 1),
                (2, 1, 2),
                (3, 0, 1),
                (8, 2, 2),
                (400, 0, 1),
            ]),
            pool_pages: [0; 2].map(|_| rng.pick(&[0, 15, 16, 33, 64, 64, 100, 300])),
            odd_windows: rng.chance(30),
            connections,
            most_bytes,
            limits_msgs: rng.pick(&[&[4, 5][..], &[4, 7, 16, 64], &[64, 256]]),
            limits_small: rng.pick(&[&[16384, 16385][..], &[16384, 20001, 65536], &[1 << 20]]),
            net_delay: rng.pick(&[0, 3, 50, 1000]),
            worker_delay: rng.pick(&[0, 0, 5, 200]),
            think: rng.pick(&[0, 2, 30, 1000]),
            backlog: rng.range(1, 6) as usize,
            timers: rng.pick(&[0, 0, 30, 90]),
            early_close: rng.pick(&[0, 0, 20, 80]),
            shut_read: rng.pick(&[0, 0, 40]),
            rings: rng.pick(&[0, 30, 100]),
            scribblers: rng.pick(&[0, 0, 0, 20]),
            nonblocking: rng.pick(&[0, 50, 100]),
            corks: rng.pick(&[0, 30, 100]),
            bulk: rng.pick(&[0, 50, 90]),
            nobody: rng.pick(&[0, 10]),
            listener_closes: rng.pick(&[0, 0, 20]),
            revoke_every: rng.pick(&[0, 0, 20, 300, 3000]),
            revocations: rng.pick(&[3, 30, 300]),
            link_failure: rng.chance(20),
            crashes: rng.pick(&[0, 0, 0, 1, 3]),
            pauses: rng.pick(&[0, 0, 1, 5]),
            shortages: rng.pick(&[0, 0, 0, 1, 4]),
            stalls: rng.pick(&[0, 0, 1, 5]),
            more_links: rng.chance(20),
            tx_slots: rng.pick(&[CONTROL_SLOTS + 1, CONTROL_SLOTS + 3, 16, 40, 128, 128]),
            hostile: rng.chance(20),
            malice: rng.pick(&[1, 1, 5, 30]),
            hostile_steps: rng.range(50, 500) as u32,
            hostile_lives: rng.pick(&[0, 3, 10]),
            most_answers: if storm { 300 } else { 64 },
            spill: rng.chance(60),
            drop_orphans: rng.chance(20),
            residency: rng.pick(&[0, 5, 50, 500, 5000]),
            policy: [0; 2]
                .map(|_| rng.pick(&[Policy::Never, Policy::UnderPressure, Policy::Always])),
            policy_switches: rng.pick(&[0, 0, 2, 10]),
            move_delay: rng.pick(&[0, 3, 30, 300]),
            areas: rng.pick(&[0, 70, 100]),
            area_bytes: rng.pick(&[8 << 10, 64 << 10, 1 << 20]),
            stoppers: rng.pick(&[0, 0, 10, 50]),
            dawdlers: rng.pick(&[0, 20]),
            wish_time: rng.pick(&[0, 100, 10_000]),
            smalls: rng.pick(&[0, 70, 100]),
        }
    }

    /// Nothing disturbs the connections that follow.
    pub fn calm_down(&mut self) {
        self.most_bytes = self.most_bytes.min(128 << 10);
        self.backlog = 6;
        for percent in [
            &mut self.timers,
            &mut self.early_close,
            &mut self.shut_read,
            &mut self.scribblers,
            &mut self.nobody,
            &mut self.listener_closes,
            &mut self.stoppers,
        ] {
            *percent = 0;
        }
        self.more_links = false;
        self.drop_orphans = false;
    }
}
