// SPDX-License-Identifier: GPL-2.0

//! Two hosts with their channels in small tables. Whatever is done to a channel by a grant is done
//! to another one too that is never parked, and nothing may ever tell them apart.

use std::collections::VecDeque;
use std::fmt::Debug;

use zrs_core::channel::{Channel, Event, Limits, Plan, State};
use zrs_core::entry_word::Work;
use zrs_core::link_table::{Grant, GrantError, TableStats};
use zrs_core::wire::{Header, Type};
use zrs_core::ChanId;

use common::headers::over_the_wire;
use common::table::{submit, Table, Tiers};
use common::{cases, Rng};

const LIMITS: Limits = Limits {
    msgs: 16,
    small: 16384,
};

/// One channel, seen from one host.
struct End {
    id: ChanId,
    /// The one that is never parked.
    twin: Channel,
    /// Bytes of window and of DATA.
    unread: VecDeque<(u32, u32)>,
    sent: u64,
    got: u64,
}

struct Host {
    t: Table<Channel, usize>,
    ends: Vec<Option<End>>,
    held: Vec<(usize, Grant<Box<Channel>>)>,
    /// The messages in flight to each channel.
    pipe: Vec<VecDeque<Header>>,
}

struct Hosts {
    host: [Host; 2],
    rng: Rng,
    denied: [u64; 2],
}

impl Hosts {
    fn new(seed: u64, pairs: usize) -> Self {
        let mut rng = Rng::new(seed);
        let host = [0, 1].map(|_| {
            let tiers = Tiers {
                hot: rng.range(1, 3) as usize,
                sets: rng.below(3) as usize,
                ways: rng.range(1, 3) as usize,
                chunks: 1,
            };
            let blank = || Channel::connect(ChanId::default(), 0, 0, LIMITS);
            Host {
                t: tiers.table(seed, blank),
                ends: (0..pairs).map(|_| None).collect(),
                held: Vec::new(),
                pipe: vec![VecDeque::new(); pairs],
            }
        });
        let mut all = Self {
            host,
            rng,
            denied: [0; 2],
        };
        for n in 0..pairs {
            all.open(0, n, |id| Channel::connect(id, 50000, 80, LIMITS));
        }
        all
    }

    fn open(&mut self, side: usize, n: usize, make: impl Fn(ChanId) -> Channel) {
        let host = &mut self.host[side];
        let id = submit(&mut host.t, n, &make).expect("there are few");
        host.ends[n] = Some(End {
            id,
            twin: make(id),
            unread: VecDeque::new(),
            sent: 0,
            got: 0,
        });
    }

    /// Does something to channel `n` of a host, when it is granted, and to its twin.
    fn with<T: PartialEq + Debug>(
        &mut self,
        side: usize,
        n: usize,
        f: impl Fn(&mut Channel) -> T,
    ) -> Option<T> {
        let id = self.host[side].ends[n].as_ref()?.id;
        let mut grant = loop {
            let host = &mut self.host[side];
            match host.t.grant(id) {
                Ok(grant) => break grant,
                Err(GrantError::Locked) => {
                    assert!(host.held.iter().any(|h| h.0 == n));
                    self.denied[0] += 1;
                }
                Err(GrantError::Crowded) => {
                    assert!(host.held.iter().all(|h| h.0 != n) && !host.held.is_empty());
                    self.denied[1] += 1;
                }
                Err(other) => panic!("{other:?}"),
            }
            // Its holder writes back, and it is asked for again.
            let (_, first) = host.held.remove(0);
            host.t.write_back(first);
        };
        let host = &mut self.host[side];
        let end = host.ends[n].as_mut()?;
        assert_eq!(host.t.owner(id), Some(&n));
        assert_eq!(grant.regs().local(), id);
        let got = f(grant.regs_mut());
        assert_eq!(got, f(&mut end.twin), "channel {n} of {side}");
        assert_eq!(grant.regs().failure(), end.twin.failure());
        if self.rng.chance(10) {
            host.held.push((n, grant));
            return Some(got);
        }
        host.t.write_back(grant);
        assert_eq!(host.t.work(id), end.twin.work() | Work::SUBMITTED);
        Some(got)
    }

    fn say(&mut self, side: usize, n: usize) -> bool {
        let said = self.with(side, n, |c| c.next_control()).flatten();
        self.host[1 - side].pipe[n].extend(said.map(|h| over_the_wire(&h)));
        said.is_some()
    }

    fn deliver(&mut self, side: usize, n: usize) -> bool {
        let Some(h) = self.host[side].pipe[n].pop_front() else {
            return false;
        };
        if self.host[side].ends[n].is_none() {
            assert_eq!(h.kind, Type::Connect);
            self.open(side, n, |id| Channel::accept(id, &h, LIMITS).expect("good"));
            return true;
        }
        let closed = self.with(side, n, |c| c.state() == State::Closed);
        if closed == Some(true) {
            if !matches!(h.kind, Type::Fin | Type::End | Type::Reset | Type::Credit) {
                let reset = Header::new(Type::Reset, h.src, h.dst);
                self.host[1 - side].pipe[n].push_back(reset);
            }
            return true;
        }
        let event = self.with(side, n, |c| c.on_message(&h));
        let event = event.expect("it is there").expect("an honest peer");
        self.with(side, n, |c| c.take_room());
        if let Some(end) = &mut self.host[side].ends[n] {
            end.got += u64::from(h.len);
            match event {
                Event::Data => end.unread.push_back((0, h.len)),
                Event::Written { pad, .. } => end.unread.push_back((h.len + pad, 0)),
                _ => {}
            }
        }
        if event == Event::WindowWanted {
            let size = self.rng.range(65536, 200_000) as u32;
            let deny = self.rng.chance(20);
            self.with(side, n, |c| {
                if deny || !c.grant(size, 0x10_0000, 9) {
                    c.deny();
                }
            });
        }
        true
    }

    fn read(&mut self, side: usize, n: usize) -> bool {
        let end = self.host[side].ends[n].as_mut();
        let first = end.and_then(|e| e.unread.pop_front());
        if let Some((window, small)) = first {
            self.with(side, n, |c| c.freed(window, small));
        }
        first.is_some()
    }

    fn send(&mut self, side: usize, n: usize) {
        let bulk = self.rng.chance(40);
        let most = if bulk { 100_000 } else { 4096 };
        let want = self.rng.range(1, most) as u32;
        let plan = self.with(side, n, |c| c.plan(want, bulk));
        let plan = plan.unwrap_or(Plan::Wait);
        let chunk = self.with(side, n, |c| c.commit(plan)).flatten();
        if let (Some(chunk), Some(end)) = (chunk, &mut self.host[side].ends[n]) {
            end.sent += u64::from(chunk.header.len);
            let h = over_the_wire(&chunk.header);
            self.host[1 - side].pipe[n].push_back(h);
        }
    }

    /// A step of any party; `ends`: channels may end, too.
    fn step(&mut self, ends: bool) {
        let side = self.rng.below(2) as usize;
        let n = self.rng.below(self.host[0].pipe.len() as u64) as usize;
        match self.rng.below(100) {
            0..20 => self.send(side, n),
            20..45 => _ = self.say(side, n),
            45..70 => _ = self.deliver(side, n),
            70..85 => _ = self.read(side, n),
            85..88 => _ = self.with(side, n, |c| c.grant(70_000, 0x20_0000, 3)),
            88..91 => _ = self.with(side, n, |c| c.revoke()),
            91..97 => self.sweep(side),
            97 if ends => _ = self.with(side, n, |c| c.shut_write()),
            98 if ends => _ = self.with(side, n, |c| c.shut_read()),
            99 if ends => self.close(side, n),
            _ => {}
        }
    }

    fn sweep(&mut self, side: usize) {
        let slots = self.rng.below(4) as u32;
        let host = &mut self.host[side];
        let (held, ends) = (&host.held, &host.ends);
        host.t.sweep(slots, |id, n| {
            assert!(held.iter().all(|h| h.0 != *n), "it is locked");
            assert_eq!(ends[*n].as_ref().map(|e| e.id), Some(id));
        });
    }

    fn close(&mut self, side: usize, n: usize) {
        if let Some(end) = &mut self.host[side].ends[n] {
            let unread = !end.unread.is_empty();
            end.unread.clear();
            self.with(side, n, |c| c.shut(unread));
        }
    }

    fn settle(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for n in 0..self.host[0].pipe.len() {
                for side in 0..2 {
                    while self.say(side, n) | self.deliver(side, n) | self.read(side, n) {
                        moved = true;
                    }
                }
            }
        }
    }

    /// All messages in flight arrive, all channels are closed, and nothing is left.
    fn end(mut self, orderly: bool) -> (TableStats, [u64; 2]) {
        self.settle();
        let pairs = self.host[0].pipe.len();
        if orderly {
            for n in 0..pairs {
                let ends = [0, 1].map(|side| self.host[side].ends[n].as_ref().expect("open"));
                assert_eq!((ends[0].sent, ends[1].sent), (ends[1].got, ends[0].got));
                assert_eq!(
                    (ends[0].twin.failure(), ends[1].twin.failure()),
                    (None, None)
                );
            }
        }
        for n in 0..pairs {
            self.close(0, n);
            self.close(1, n);
        }
        self.settle();
        let [a, b] = self.host;
        let mut sum = TableStats::default();
        for mut host in [a, b] {
            host.held
                .into_iter()
                .for_each(|(_, g)| host.t.write_back(g));
            let stats = host.t.stats();
            sum.hits += stats.hits;
            sum.l2_hits += stats.l2_hits;
            sum.faults += stats.faults;
            sum.parked += stats.parked;
            for (n, end) in host.ends.iter().enumerate() {
                let Some(End { id, .. }) = *end else {
                    assert!(!orderly, "{n} was not opened");
                    continue;
                };
                assert!(host.t.work(id).has(Work::SUBMITTED | Work::COMPLETE), "{n}");
                assert_eq!(host.t.remove(id), Ok(n));
            }
            assert!(host.t.is_empty());
        }
        (sum, self.denied)
    }
}

// rows: L1 L2 L3 L5
#[test]
fn nothing_tells_them_apart() {
    let mut all = (TableStats::default(), [0; 2]);
    for seed in 0..u64::from(cases(400)) {
        let orderly = seed % 2 == 0;
        let mut hosts = Hosts::new(seed, 1 + seed as usize % 7);
        for _ in 0..1000 {
            hosts.step(!orderly);
        }
        let (stats, denied) = hosts.end(orderly);
        let sum = &mut all.0;
        sum.hits += stats.hits;
        sum.l2_hits += stats.l2_hits;
        sum.faults += stats.faults;
        sum.parked += stats.parked;
        all.1 = [all.1[0] + denied[0], all.1[1] + denied[1]];
    }
    // It did go out and come back, and holders were in the way.
    let (stats, denied) = all;
    println!("{stats:?} locked {} crowded {}", denied[0], denied[1]);
    let seen = [stats.hits, stats.l2_hits, stats.faults, stats.parked];
    assert!(seen.iter().chain(&denied).all(|n| *n > 0));
}
