// SPDX-License-Identifier: GPL-2.0

//! Many hosts, each with thousands of channels, some used much more often than others (Zipf): no
//! channel starves, however few slots there are, and how often an entry is found in a slot or in
//! the second tier.
//!
//! With ZRS_TABLE_OUT naming a file, the results are written there (`make table-hits` draws them).

use std::collections::VecDeque;
use std::fmt::Write as _;

use zrs_core::entry_word::{Ends, Word, Work};
use zrs_core::link_table::{Grant, GrantError, Registers, TableStats, CHUNK};
use zrs_core::ChanId;

use common::table::{submit, Denied, Table, Tiers, Worded};
use common::Rng;

const HOSTS: usize = 16;
const CHANNELS: usize = 4096;
const WAYS: usize = 4;

/// A channel between two hosts, with the same number on both.
#[derive(Clone, Copy)]
struct Regs {
    to_send: u32,
    unread: u32,
}

impl Registers for Regs {
    type Parked = (u32, u32);

    fn park(&self) -> Option<(u32, u32)> {
        Some((self.to_send, self.unread))
    }

    fn unpark(parked: &(u32, u32), _: ChanId) -> Self {
        let (to_send, unread) = *parked;
        Self { to_send, unread }
    }
}

impl Worded for Regs {
    fn word(&self, id: ChanId) -> Word {
        let bit = |set: bool, bit| if set { bit } else { Work::NONE };
        let work = bit(self.to_send != 0, Work::TX) | bit(self.unread != 0, Work::RX);
        Word::new(id, work, Ends::default(), 0)
    }
}

/// Channels by how often they are used: the n-th most used one 1/n as often as the first.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize) -> Self {
        let mut sum = 0.0;
        let weights = (1..=n).map(|k| {
            sum += 1.0 / k as f64;
            sum
        });
        Self(weights.collect())
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let unit = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let at = unit * self.0.last().expect("not empty");
        self.0
            .partition_point(|sum| *sum <= at)
            .min(self.0.len() - 1)
    }
}

/// A party, which may hold an entry from one turn to the next.
#[derive(Default)]
struct Party {
    held: Option<Grant<Box<Regs>>>,
    /// Channels with work, in their order.
    fifo: VecDeque<usize>,
    /// Turns since the first of them has been the first.
    waits: u32,
    /// Where its entries were found: in a slot, in the second tier, at home.
    found: [u64; 3],
}

impl Party {
    /// Requests the first entry of the queue; or applies `f` to the held entry, and writes it back.
    fn turn(
        &mut self,
        t: &mut Table<Regs, usize>,
        ids: &[ChanId],
        work: Work,
        f: impl FnOnce(&mut Regs),
    ) -> Option<usize> {
        if let Some(mut grant) = self.held.take() {
            f(grant.regs_mut());
            t.write_back(grant);
            self.waits = 0;
            return self.fifo.pop_front();
        }
        let n = *self.fifo.front()?;
        self.waits += 1;
        let places = |s: TableStats| [s.hits, s.l2_hits, s.faults];
        let before = places(t.stats());
        match t.grant_for(ids[n], work) {
            Ok(grant) => {
                self.held = Some(grant);
                let after = places(t.stats());
                let one = (0..3).find(|p| after[*p] == before[*p] + 1);
                self.found[one.expect("a grant is counted once")] += 1;
            }
            Err(why) => assert!(
                matches!(why, Denied::By(GrantError::Locked | GrantError::Crowded)),
                "{why:?}"
            ),
        }
        None
    }
}

struct Host {
    t: Table<Regs, usize>,
    ids: Vec<ChanId>,
    /// Its channels, the most used one first.
    rank: Vec<usize>,
    /// Submits, transmits, receives, and takes the received messages.
    party: [Party; 4],
    /// When each channel that waits to transmit got into line, and behind how many.
    since: Vec<Option<(u64, usize)>>,
}

struct World {
    host: Vec<Host>,
    zipf: Zipf,
    rng: Rng,
    /// The longest that a party had to ask for one entry, in turns.
    longest: u32,
    sent: u64,
}

/// The most turns for which an entry may be denied: each of the other three parties holds one for a
/// turn.
const PATIENCE: u32 = 8;

impl World {
    fn new(seed: u64, hot: usize, near: usize) -> Self {
        let mut rng = Rng::new(seed);
        let host = (0..HOSTS).map(|_| {
            let tiers = Tiers {
                hot,
                sets: near / WAYS,
                ways: WAYS,
                chunks: CHANNELS / CHUNK,
            };
            let none = Regs {
                to_send: 0,
                unread: 0,
            };
            let mut t = tiers.table(rng.next_u64(), || none);
            let ids = (0..CHANNELS).map(|n| submit(&mut t, n, |_| none).expect("a home"));
            let ids = ids.collect();
            let mut rank: Vec<usize> = (0..CHANNELS).collect();
            for last in (1..CHANNELS).rev() {
                rank.swap(last, rng.below(last as u64 + 1) as usize);
            }
            Host {
                t,
                ids,
                rank,
                party: Default::default(),
                since: vec![None; CHANNELS],
            }
        });
        Self {
            host: host.collect(),
            zipf: Zipf::new(CHANNELS),
            rng,
            longest: 0,
            sent: 0,
        }
    }

    /// The other end of channel `n` of host `h`: channels are dealt out among pairs of hosts.
    fn peer(h: usize, n: usize) -> usize {
        h ^ (1 + n % (HOSTS - 1))
    }

    /// The programs of a host send something, now and then much at once.
    fn programs(&mut self, h: usize) {
        let messages = match self.rng.below(2000) {
            0 => 200,
            1..600 => 1,
            _ => 0,
        };
        for _ in 0..messages {
            let n = self.host[h].rank[self.zipf.draw(&mut self.rng)];
            self.host[h].party[0].fifo.push_back(n);
        }
    }

    fn turn(&mut self, h: usize, now: u64) {
        let Host {
            t,
            ids,
            party: [submits, transmits, receives, takes],
            since,
            ..
        } = &mut self.host[h];
        if let Some(n) = submits.turn(t, ids, Work::SUBMITTED, |r| r.to_send += 1) {
            if since[n].is_none() {
                since[n] = Some((now, transmits.fifo.len()));
                transmits.fifo.push_back(n);
            }
        }
        let mut left = 0;
        let sent = transmits.turn(t, ids, Work::TX, |r| {
            r.to_send -= 1;
            left = r.to_send;
        });
        if let Some(n) = sent {
            let (from, ahead) = since[n].take().expect("it was in line");
            let bound = (ahead as u64 + 1) * u64::from(PATIENCE + 1);
            assert!(now - from <= bound, "channel {n} starves: {}", now - from);
            if left != 0 {
                // One message, then it is the others' turn.
                since[n] = Some((now, transmits.fifo.len()));
                transmits.fifo.push_back(n);
            }
        }
        if let Some(n) = receives.turn(t, ids, Work::SUBMITTED, |r| r.unread += 1) {
            takes.fifo.push_back(n);
        }
        takes.turn(t, ids, Work::RX, |r| r.unread -= 1);
        if now % 4 == 0 {
            t.sweep(1, |_, _| {});
        }
        for party in &self.host[h].party {
            self.longest = self.longest.max(party.waits);
            assert!(
                party.waits <= PATIENCE,
                "asked {} times in vain",
                party.waits
            );
        }
        if let Some(n) = sent {
            self.sent += 1;
            self.host[Self::peer(h, n)].party[2].fifo.push_back(n);
        }
    }

    /// Where the entries were found by the parties that begin work on a channel: the sending
    /// program, and the first party on the other host. The second one on each finds it hot almost
    /// always.
    fn found(&self) -> [u64; 3] {
        let begin = |h: &Host| [h.party[0].found, h.party[2].found];
        let all = self.host.iter().flat_map(begin);
        all.fold([0; 3], |sum, f| std::array::from_fn(|i| sum[i] + f[i]))
    }

    /// The counts between the first `before` turns and the end, when everything submitted is taken.
    fn run(mut self, before: u64, turns: u64) -> Found {
        let mut first = [0; 3];
        for now in 0.. {
            if now == before {
                first = self.found();
            }
            let mut busy = now < turns;
            for h in 0..HOSTS {
                if now < turns {
                    self.programs(h);
                }
                self.turn(h, now);
                busy |= self.host[h].party.iter().any(|p| !p.fifo.is_empty());
            }
            if !busy {
                break;
            }
            assert!(now < 4 * turns, "it does not come to an end");
        }
        for host in &self.host {
            let idle = |id: &ChanId| host.t.work(*id) == Work::SUBMITTED;
            assert!(host.ids.iter().all(idle), "work was lost");
            assert!(host.since.iter().all(Option::is_none));
        }
        let last = self.found();
        let found: [f64; 3] = std::array::from_fn(|i| (last[i] - first[i]) as f64);
        let all: f64 = found.iter().sum();
        Found {
            hit_rate: found[0] / all,
            near_hit_rate: found[1] / all,
            contended: self.host.iter().map(|h| h.t.stats().contended).sum(),
            longest: self.longest,
            sent: self.sent,
        }
    }
}

#[derive(PartialEq, Debug)]
struct Found {
    hit_rate: f64,
    near_hit_rate: f64,
    contended: u64,
    longest: u32,
    sent: u64,
}

/// Slots, and places of the second tier, for each host.
const HOT: [usize; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const NEAR: [usize; 3] = [0, 512, 2048];

// rows: L3 L4
#[test]
#[cfg_attr(miri, ignore = "long")]
fn hit_rates() {
    let out = std::env::var_os("ZRS_TABLE_OUT").filter(|path| !path.is_empty());
    // A short run shows whether a channel starves; for the plot, a longer one.
    let (before, turns, step) = match out {
        Some(_) => (20_000, 60_000, 1),
        None => (2_000, 5_000, 2),
    };
    let mut rows = Vec::new();
    for near in NEAR {
        let mut last = 0.0;
        for hot in HOT.into_iter().step_by(step) {
            let found = World::new(1, hot, near).run(before, turns);
            println!("{hot:>5} {near:>5} {found:?}");
            assert!(found.contended > 0, "nobody was in anybody's way");
            assert!(found.hit_rate > last - 0.01, "more slots, fewer hits");
            assert!(near != 0 || found.near_hit_rate == 0.0);
            last = found.hit_rate;
            rows.push((hot, near, found));
        }
        assert!(last > 0.9, "all would fit: {last}");
    }
    for (hot, near, found) in &rows {
        // The second tier takes nothing from the first, and a larger one finds more.
        let same = |n: usize| rows.iter().find(|r| (r.0, r.1) == (*hot, n)).map(|r| &r.2);
        let without = same(0).expect("it was run");
        assert!(
            (found.hit_rate - without.hit_rate).abs() < 0.02,
            "{hot} {near}"
        );
        if *near == 2048 {
            let smaller = same(512).expect("it was run");
            let sum = |f: &Found| f.hit_rate + f.near_hit_rate;
            assert!(sum(found) > sum(smaller) - 0.01, "{hot}");
            assert!(sum(smaller) > sum(without) - 0.01, "{hot}");
        }
    }
    if let Some(path) = out {
        let mut text = String::new();
        for (hot, near, f) in &rows {
            let comma = if text.is_empty() { "[\n" } else { ",\n" };
            let _ = write!(
                text,
                "{comma}  {{\"hot\": {hot}, \"near\": {near}, \"hit_rate\": {:.5}, \
                 \"near_hit_rate\": {:.5}}}",
                f.hit_rate, f.near_hit_rate
            );
        }
        std::fs::write(&path, text + "\n]\n").expect("ZRS_TABLE_OUT can be written");
    }
}

/// The fewest possible slots: no channel starves there either.
// rows: L2 L3
#[test]
#[cfg_attr(miri, ignore = "long")]
fn few_slots() {
    for (hot, near) in [(1, 0), (2, 0), (2, 64), (3, 4), (4, 0)] {
        for seed in 0..2 {
            let found = World::new(seed, hot, near).run(0, 1500);
            println!("{hot} {near}: {found:?}");
            assert!(found.sent > 1000);
            assert_eq!(
                found,
                World::new(seed, hot, near).run(0, 1500),
                "the same seed"
            );
        }
    }
}
