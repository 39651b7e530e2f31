// SPDX-License-Identifier: GPL-2.0

//! The table against a map, with any number of entries held at the same time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;
use zrs_core::entry_word::Work;
use zrs_core::link_table::{Grant, GrantError, CHUNK};
use zrs_core::ChanId;

use crate::regs::{table, work_of, Count, Regs};
use common::cases;
use common::headers::id;
use common::table::{chunk, Denied, Table, Tiers};

#[derive(Clone, Debug)]
enum Op {
    Submit {
        value: u64,
        work: u8,
        stay: bool,
    },
    Chunk {
        whole: bool,
    },
    Ask {
        which: Index,
        what: Option<u8>,
    },
    /// Ends one of the grants with these registers.
    Back {
        which: Index,
        value: u64,
        work: u8,
        stay: bool,
    },
    Remove {
        which: Index,
    },
    Sweep {
        slots: u32,
    },
    Look {
        from: u32,
    },
}

/// `staying`: in percent, registers that cannot be parked.
fn op(staying: u32) -> impl Strategy<Value = Op> {
    let stay = move || (0..100_u32).prop_map(move |n| n < staying);
    let which = any::<Index>;
    prop_oneof![
        8 => (any::<u64>(), 0..8_u8, stay())
            .prop_map(|(value, work, stay)| Op::Submit { value, work, stay }),
        1 => (0..10_u8).prop_map(|n| Op::Chunk { whole: n != 0 }),
        8 => (which(), prop::option::of(0..8_u8)).prop_map(|(which, what)| Op::Ask { which, what }),
        8 => (which(), any::<u64>(), 0..8_u8, stay())
            .prop_map(|(which, value, work, stay)| Op::Back { which, value, work, stay }),
        2 => which().prop_map(|which| Op::Remove { which }),
        2 => (0..12_u32).prop_map(|slots| Op::Sweep { slots }),
        1 => (0..140_u32).prop_map(|from| Op::Look { from }),
    ]
}

fn tiers() -> impl Strategy<Value = Tiers> {
    (1..7_usize, 0..4_usize, 1..5_usize, 0..3_usize).prop_map(|(hot, sets, ways, chunks)| Tiers {
        hot,
        sets,
        ways,
        chunks,
    })
}

struct Entry {
    owner: u64,
    regs: Regs,
}

struct Course {
    tiers: Tiers,
    t: Table<Regs, u64>,
    count: Count,
    /// By number and generation.
    live: BTreeMap<(u32, u32), Entry>,
    ever: BTreeSet<(u32, u32)>,
    held: Vec<Grant<Box<Regs>>>,
    chunks: usize,
    hits: u64,
    misses: u64,
    contended: u64,
    swept: u64,
    /// Registers that were parked at once, since there was no slot for them.
    straight_home: u64,
}

type Checked<T = ()> = Result<T, TestCaseError>;

impl Course {
    fn new(tiers: Tiers, seed: u64) -> Self {
        Self {
            tiers,
            count: Count::begin(),
            t: table(tiers, seed),
            live: BTreeMap::new(),
            ever: BTreeSet::new(),
            held: Vec::new(),
            chunks: 0,
            hits: 0,
            misses: 0,
            contended: 0,
            swept: 0,
            straight_home: 0,
        }
    }

    fn locked(&self, id: ChanId) -> bool {
        self.held.iter().any(|g| g.id() == id)
    }

    /// Whether there is a slot for one more: a free one, or one that can be made free.
    fn has_room(&self) -> bool {
        let goes = |(&(q, gen), e): (&(u32, u32), &Entry)| {
            let id = id(q, gen);
            self.count.of(id) == 0 && !self.locked(id) && !e.regs.stay
        };
        (self.t.stats().hot as usize) < self.tiers.hot || self.live.iter().any(goes)
    }

    fn submit(&mut self, value: u64, work: u8, stay: bool) -> Checked {
        let home = self.live.len() < CHUNK * self.chunks;
        let room = self.has_room();
        let mut made = None;
        let got = self.t.submit(value, |id| {
            *made.insert(Regs {
                stay,
                ..Regs::new(id, value, work_of(work))
            })
        });
        prop_assert_eq!(got.is_ok(), home && (room || !stay));
        let Ok(id) = got else {
            prop_assert_eq!(got, Err(value), "the owner comes back");
            return Ok(());
        };
        self.straight_home += u64::from(!room);
        let regs = made.expect("it was made");
        prop_assert_eq!(regs.id, id, "make sees the number");
        prop_assert!((1..=CHUNK * self.chunks).contains(&(id.index as usize)));
        prop_assert!(
            self.ever.insert((id.index, id.gen)),
            "a pair twice: {:?}",
            id
        );
        prop_assert!(id.gen == 1 || self.ever.contains(&(id.index, id.gen - 1)));
        prop_assert!(self.live.keys().all(|k| k.0 != id.index), "a number twice");
        self.live
            .insert((id.index, id.gen), Entry { owner: value, regs });
        Ok(())
    }

    fn ask(&mut self, id: ChanId, what: Option<u8>) -> Checked {
        let known = self.live.get(&(id.index, id.gen)).map(|e| e.regs);
        let hot = self.count.of(id) == 0;
        let wanted = what.map_or(Work::NONE, work_of);
        let expected = match known {
            None => Err(Denied::By(GrantError::Unknown)),
            Some(r) if !(r.work | Work::SUBMITTED).has(wanted) => Err(Denied::Idle),
            Some(_) if self.locked(id) => Err(Denied::By(GrantError::Locked)),
            Some(_) if !hot && !self.has_room() => Err(Denied::By(GrantError::Crowded)),
            Some(r) => Ok((id, r)),
        };
        let got = match what {
            None => self.t.grant(id).map_err(Denied::By),
            Some(_) => self.t.grant_for(id, wanted),
        };
        let said = got.as_ref().map(|g| (g.id(), **g.regs()));
        prop_assert_eq!(said.map_err(|e| *e), expected);
        match got {
            Ok(grant) => {
                *(if hot {
                    &mut self.hits
                } else {
                    &mut self.misses
                }) += 1;
                self.held.push(grant);
            }
            Err(Denied::By(GrantError::Locked | GrantError::Crowded)) => self.contended += 1,
            Err(_) => {}
        }
        Ok(())
    }

    fn back(&mut self, which: usize, change: impl FnOnce(&mut Regs)) {
        let mut grant = self.held.swap_remove(which);
        change(grant.regs_mut());
        let regs = **grant.regs();
        let entry = self.live.get_mut(&(regs.id.index, regs.id.gen));
        entry.expect("an entry that is held is there").regs = regs;
        self.t.write_back(grant);
    }

    fn remove(&mut self, id: ChanId) -> Checked {
        let locked = self.locked(id);
        let expected = match self.live.get(&(id.index, id.gen)) {
            None => Err(GrantError::Unknown),
            Some(_) if locked => Err(GrantError::Locked),
            Some(e) => Ok(e.owner),
        };
        prop_assert_eq!(self.t.remove(id), expected);
        self.contended += u64::from(expected == Err(GrantError::Locked));
        if expected.is_ok() {
            self.live.remove(&(id.index, id.gen));
        }
        Ok(())
    }

    fn sweep(&mut self, slots: u32) -> Checked {
        let before = self.t.stats().hot;
        let mut told = Vec::new();
        self.t.sweep(slots, |id, owner| told.push((id, *owner)));
        prop_assert!(told.len() <= slots as usize);
        prop_assert_eq!(self.t.stats().hot as usize, before as usize - told.len());
        for (id, owner) in told {
            let entry = self.live.get(&(id.index, id.gen)).expect("it is there");
            prop_assert_eq!((owner, entry.regs.stay), (entry.owner, false));
            prop_assert_eq!(self.count.of(id), 1);
            self.swept += 1;
        }
        Ok(())
    }

    fn take(&mut self, op: Op) -> Checked {
        let any = |which: Index| match self.ever.len() {
            0 => ChanId::default(),
            n => {
                let (q, gen) = *self.ever.iter().nth(which.index(n)).expect("is there");
                id(q, gen)
            }
        };
        match op {
            Op::Submit { value, work, stay } => self.submit(value, work, stay)?,
            Op::Chunk { whole } => {
                let mut chunk = chunk();
                chunk.truncate(if whole { CHUNK } else { CHUNK - 1 });
                let taken = whole && self.chunks < self.tiers.chunks;
                prop_assert_eq!(self.t.add_chunk(chunk).is_none(), taken);
                self.chunks += usize::from(taken);
            }
            Op::Ask { which, what } => self.ask(any(which), what)?,
            Op::Back {
                which,
                value,
                work,
                stay,
            } if !self.held.is_empty() => {
                self.back(which.index(self.held.len()), |r| {
                    (r.value, r.work, r.stay) = (value, work_of(work), stay);
                });
            }
            Op::Back { .. } => {}
            Op::Remove { which } => self.remove(any(which))?,
            Op::Sweep { slots } => self.sweep(slots)?,
            Op::Look { from } => {
                let next = self.live.range((from, 0)..).next();
                let next = next.map(|((q, _), e)| (*q, e.owner));
                prop_assert_eq!(self.t.next_from(from).map(|(q, o)| (q, *o)), next);
            }
        }
        self.check()
    }

    fn check(&self) -> Checked {
        let stats = self.t.stats();
        prop_assert_eq!(self.t.len() as usize, self.live.len());
        prop_assert_eq!(stats.entries as usize, self.live.len());
        prop_assert_eq!(self.t.is_empty(), self.live.is_empty());
        let full = self.live.len() == CHUNK * self.chunks;
        prop_assert_eq!(
            self.t.wants_chunk(),
            full && self.chunks < self.tiers.chunks
        );
        for &(q, gen) in &self.ever {
            let (id, entry) = (id(q, gen), self.live.get(&(q, gen)));
            prop_assert_eq!(self.t.owner(id), entry.map(|e| &e.owner));
            let work = entry.map_or(Work::NONE, |e| e.regs.work | Work::SUBMITTED);
            prop_assert_eq!(self.t.work(id), work);
            // It is in one place: hot, or parked once; and not parked while it is locked.
            let parked = self.count.of(id);
            prop_assert!(parked <= u32::from(entry.is_some() && !self.locked(id)));
        }
        // Every entry is in one place, and there are no others.
        prop_assert_eq!(stats.entries - stats.hot, self.count.now());
        prop_assert!(stats.hot as usize <= self.tiers.hot);
        prop_assert!(stats.hot as usize >= self.held.len());
        prop_assert!(stats.l2 as usize <= self.tiers.sets * self.tiers.ways);
        prop_assert!(stats.l2 <= self.count.now());
        prop_assert_eq!(stats.hits, self.hits);
        prop_assert_eq!(stats.l2_hits + stats.faults, self.misses);
        prop_assert!(self.tiers.sets != 0 || stats.l2_hits == 0);
        prop_assert_eq!(stats.contended, self.contended);
        prop_assert_eq!(stats.parked, self.swept);
        let sent_out = self.count.ever() - self.straight_home;
        prop_assert_eq!(stats.parked + stats.evicted, sent_out);
        Ok(())
    }

    /// All grants end; every entry still has its last contents; then all are freed.
    fn end(mut self) -> Checked {
        while !self.held.is_empty() {
            self.back(0, |r| r.stay = false);
        }
        let all: Vec<_> = self.live.iter().map(|(k, e)| (*k, e.regs.stay)).collect();
        for ((q, gen), _) in all.iter().filter(|(_, stay)| *stay) {
            self.ask(id(*q, *gen), None)?;
            self.back(0, |r| r.stay = false);
        }
        for ((q, gen), _) in &all {
            self.ask(id(*q, *gen), None)?;
            prop_assert_eq!(self.held.len(), 1, "nobody is in its way");
            self.back(0, |_| {});
            self.check()?;
        }
        for ((q, gen), _) in all {
            self.remove(id(q, gen))?;
        }
        self.check()?;
        let stats = self.t.stats();
        prop_assert_eq!((stats.entries, stats.hot, stats.l2), (0, 0, 0));
        Ok(())
    }
}

fn run(tiers: Tiers, seed: u64, chunks: usize, ops: Vec<Op>) -> Checked {
    let mut c = Course::new(tiers, seed);
    for _ in 0..chunks {
        c.take(Op::Chunk { whole: true })?;
    }
    for op in ops {
        c.take(op)?;
    }
    c.end()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(500)))]

    // rows: L1 L2 L3
    #[test]
    fn as_a_map(
        tiers in tiers(), seed in any::<u64>(), chunks in 0..3_usize,
        ops in prop::collection::vec(op(0), 0..300),
    ) {
        run(tiers, seed, chunks, ops)?;
    }

    /// Some registers cannot be parked: they keep their slots, and nothing else changes.
    // rows: L2 L3
    #[test]
    fn as_a_map_with_some_that_stay(
        tiers in tiers(), seed in any::<u64>(), chunks in 0..3_usize,
        ops in prop::collection::vec(op(20), 0..300),
    ) {
        run(tiers, seed, chunks, ops)?;
    }

    /// Many entries, few slots.
    // rows: L2 L3 B5
    #[test]
    fn as_a_map_when_full(
        hot in 1..4_usize, sets in 0..3_usize, ways in 1..5_usize, seed in any::<u64>(),
        ops in prop::collection::vec(op(1), 0..200),
    ) {
        let tiers = Tiers { hot, sets, ways, chunks: 2 };
        let fill = (0..130).map(|value| Op::Submit { value, work: value as u8 & 7, stay: false });
        run(tiers, seed, 2, fill.chain(ops).collect())?;
    }
}
