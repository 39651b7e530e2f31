// SPDX-License-Identifier: GPL-2.0

//! Every order in which the parties can run: submit, transmit, receive, complete and the sweep over
//! a table with fewer slots than entries. Each turn is one call of the table.

use std::collections::{HashSet, VecDeque};

use zrs_core::entry_word::Work;
use zrs_core::link_table::{Grant, GrantError};
use zrs_core::ChanId;

use crate::regs::{table, Count, Regs};
use common::table::{submit, Denied, Table, Tiers};

const SUBMIT: usize = 0;
const TRANSMIT: usize = 1;
const RECEIVE: usize = 2;
const COMPLETE: usize = 3;
const SWEEP: usize = 4;
const PARTIES: usize = 5;

/// The counts of the registers, in their value: messages to send, and messages received.
fn counts(r: &Regs) -> (u8, u8) {
    (r.value as u8, (r.value >> 8) as u8)
}

struct Parties {
    t: Table<Regs, usize>,
    count: Count,
    slots: usize,
    /// The entries of the messages that the program submits, in its order; an entry is made with
    /// its first.
    script: &'static [usize],
    at: usize,
    ids: Vec<Option<ChanId>>,
    /// Entries that are complete and freed.
    gone: Vec<bool>,
    /// An entry that is being freed.
    freeing: Option<usize>,
    held: [Option<Grant<Box<Regs>>>; 4],
    /// The next entry that a party looking for work asks for.
    cursor: [usize; 4],
    /// Answers on their way, one to each message, and one more that comes late.
    pipe: VecDeque<usize>,
    sent: Vec<u8>,
    late: Vec<bool>,
    resets: usize,
    /// As the table has it: used since the sweep came by.
    used: Vec<bool>,
    /// The last turn was denied this.
    denied: Option<(ChanId, GrantError)>,
}

impl Parties {
    fn new(tiers: Tiers, seed: u64, script: &'static [usize]) -> Self {
        let entries = script.iter().max().map_or(0, |m| m + 1);
        Self {
            count: Count::begin(),
            t: table(tiers, seed),
            slots: tiers.hot,
            script,
            at: 0,
            ids: vec![None; entries],
            gone: vec![false; entries],
            freeing: None,
            held: [None, None, None, None],
            cursor: [0; 4],
            pipe: VecDeque::new(),
            sent: vec![0; entries],
            late: vec![false; entries],
            resets: 0,
            used: vec![false; entries],
            denied: None,
        }
    }

    fn need(&self, e: usize) -> u8 {
        self.script.iter().filter(|s| **s == e).count() as u8
    }

    fn holder(&self, id: ChanId) -> Option<usize> {
        let has = |g: &Option<Grant<_>>| g.as_ref().is_some_and(|g| g.id() == id);
        self.held.iter().position(has)
    }

    fn entry_of(&self, id: ChanId) -> usize {
        let found = self.ids.iter().position(|i| *i == Some(id));
        found.expect("an entry that was made")
    }

    /// Asks for an entry; whether it is held now.
    fn ask(&mut self, party: usize, id: ChanId, work: Work) -> Result<(), Denied> {
        assert!(self.held[party].is_none(), "at most one");
        let (e, holder) = (self.entry_of(id), self.holder(id));
        let was_hot = self.count.of(id) == 0;
        let got = match work {
            Work::NONE => self.t.grant(id).map_err(Denied::By),
            work => self.t.grant_for(id, work),
        };
        match got {
            Ok(grant) => {
                assert_eq!(holder, None, "granted to two");
                assert!(!self.gone[e] && grant.id() == id && grant.regs().id == id);
                assert!((grant.regs().work | Work::SUBMITTED).has(work));
                self.used[e] = true;
                self.held[party] = Some(grant);
                Ok(())
            }
            Err(Denied::Idle) => {
                assert!(work != Work::NONE);
                Err(Denied::Idle)
            }
            Err(Denied::By(why)) => {
                match why {
                    GrantError::Unknown => assert!(self.gone[e]),
                    GrantError::Locked => {
                        assert!(holder.is_some());
                        self.used[e] = true;
                    }
                    GrantError::Crowded => {
                        assert!(!was_hot && holder.is_none());
                        assert_eq!(self.held.iter().flatten().count(), self.slots);
                    }
                }
                if matches!(why, GrantError::Locked | GrantError::Crowded) {
                    self.denied = Some((id, why));
                }
                Err(Denied::By(why))
            }
        }
    }

    /// The holder's work on its entry is done.
    fn back(&mut self, party: usize, f: impl FnOnce(&mut Self, usize, &mut Regs)) -> bool {
        let Some(mut grant) = self.held[party].take() else {
            return false;
        };
        let e = self.entry_of(grant.id());
        f(self, e, grant.regs_mut());
        let (to_send, received) = counts(grant.regs());
        let mut work = Work::NONE;
        if to_send != 0 {
            work = work | Work::TX;
        }
        if received != 0 {
            work = work | Work::RX;
        }
        if received >= self.need(e) && !self.gone[e] && self.freeing != Some(e) {
            work = work | Work::COMPLETE;
        }
        grant.regs_mut().work = work;
        self.t.write_back(grant);
        true
    }

    /// The next entry that a party looks at for work.
    fn look(&mut self, party: usize) -> Option<ChanId> {
        let e = self.cursor[party];
        self.cursor[party] = (e + 1) % self.ids.len();
        self.ids[e].filter(|_| !self.gone[e])
    }

    fn turn(&mut self, party: usize) {
        self.denied = None;
        match party {
            SUBMIT => self.submit(),
            TRANSMIT => {
                let sent = self.back(party, |all, e, r| {
                    assert_ne!(counts(r).0, 0, "verified: it has something to send");
                    r.value -= 1;
                    all.sent[e] += 1;
                    all.pipe.push_back(e);
                });
                if !sent {
                    if let Some(id) = self.look(party) {
                        let _ = self.ask(party, id, Work::TX);
                    }
                }
            }
            RECEIVE => self.receive(),
            COMPLETE => self.complete(),
            _ => {
                let held: Vec<_> = self.held.iter().flatten().map(Grant::id).collect();
                self.t.sweep(u32::MAX, |id, _| assert!(!held.contains(&id)));
                self.used.fill(false);
            }
        }
        self.check();
    }

    fn submit(&mut self) {
        let more = self.back(SUBMIT, |all, _, r| {
            r.value += 1;
            all.at += 1;
        });
        let Some(&e) = self.script.get(self.at).filter(|_| !more) else {
            return;
        };
        if let Some(id) = self.ids[e] {
            let _ = self.ask(SUBMIT, id, Work::NONE);
            return;
        }
        let id = submit(&mut self.t, e, |id| Regs::new(id, 1, Work::TX)).expect("a home");
        self.ids[e] = Some(id);
        self.used[e] = true;
        self.at += 1;
    }

    fn receive(&mut self) {
        let received = self.back(RECEIVE, |all, e, r| {
            all.pipe.pop_front();
            r.value += 1 << 8;
            if counts(r).1 == all.need(e) {
                all.pipe.push_back(e);
                all.late[e] = true;
            }
        });
        let first = self.pipe.front().filter(|_| !received);
        let Some(id) = first.and_then(|e| self.ids[*e]) else {
            return;
        };
        if self.ask(RECEIVE, id, Work::NONE) == Err(Denied::By(GrantError::Unknown)) {
            // Nobody knows it any more: RESET.
            self.pipe.pop_front();
            self.resets += 1;
        }
    }

    fn complete(&mut self) {
        let reported = self.back(COMPLETE, |all, e, r| {
            assert_eq!(counts(r).0, 0, "complete, but not all is sent");
            all.freeing = Some(e);
        });
        if reported {
            return;
        }
        let Some(e) = self.freeing else {
            if let Some(id) = self.look(COMPLETE) {
                let _ = self.ask(COMPLETE, id, Work::COMPLETE);
            }
            return;
        };
        let id = self.ids[e].expect("it was made");
        match self.t.remove(id) {
            Ok(owner) => {
                assert!(owner == e && self.holder(id).is_none());
                (self.gone[e], self.freeing) = (true, None);
            }
            Err(why) => {
                assert!(why == GrantError::Locked && self.holder(id).is_some());
                self.denied = Some((id, why));
            }
        }
    }

    fn check(&mut self) {
        let live = self.ids.iter().flatten().count() - self.gone.iter().filter(|g| **g).count();
        let stats = self.t.stats();
        assert_eq!(stats.entries as usize, live);
        assert_eq!(stats.entries - stats.hot, self.count.now());
        for (e, id) in self.ids.iter().enumerate() {
            let Some(id) = *id else { continue };
            let parked = self.count.of(id);
            let may = !self.gone[e] && self.holder(id).is_none();
            assert!(
                parked <= u32::from(may),
                "parked while it is locked, or twice"
            );
            if parked != 0 || self.gone[e] {
                self.used[e] = false;
            }
        }
    }

    fn done(&self) -> bool {
        let free = self.held.iter().all(Option::is_none);
        free && self.at == self.script.len() && self.gone.iter().all(|g| *g) && self.pipe.is_empty()
    }

    /// The visible state: all but the table's future random numbers.
    fn picture(&self) -> String {
        let held: Vec<_> = self.held.iter().flatten().map(|g| **g.regs()).collect();
        let holders = self.ids.iter().map(|id| id.and_then(|id| self.holder(id)));
        let entry = |id: &Option<ChanId>| id.map(|id| (self.count.of(id), self.t.work(id)));
        format!(
            "{} {:?} {:?} {:?} {held:?} {:?} {:?} {:?} {:?} {:?} {:?} {}",
            self.at,
            self.ids.iter().map(entry).collect::<Vec<_>>(),
            self.gone,
            self.freeing,
            holders.collect::<Vec<_>>(),
            self.cursor,
            self.pipe,
            self.sent,
            self.late,
            self.used,
            self.t.stats().l2,
        )
    }

    /// Everybody takes turns from here on: all that was submitted is sent, received, reported and
    /// freed.
    fn come_to_the_end(mut self, path: &[u8]) {
        let messages = self.script.len();
        for round in 0.. {
            if self.done() {
                break;
            }
            assert!(round < 40 * messages, "{path:?}: {}", self.picture());
            (0..PARTIES).for_each(|party| self.turn(party));
        }
        for e in 0..self.ids.len() {
            assert_eq!(self.sent[e], self.need(e), "{path:?}: lost work");
        }
        assert!(self.t.is_empty() && self.late.iter().all(|l| *l));
        assert!(self.resets <= self.ids.len());
    }

    /// A party that was denied an entry is granted it when its holder, or for a slot any holder,
    /// has written back.
    fn ask_again(mut self, holder: usize) {
        let Some((id, why)) = self.denied else { return };
        let stands = match why {
            GrantError::Locked => self.holder(id) == Some(holder),
            _ => self.held[holder].is_some(),
        };
        if stands {
            self.turn(holder);
            assert!(self.held[holder].is_none(), "it has written back");
            let grant = self.t.grant(id).expect("nobody is in its way any more");
            self.t.write_back(grant);
        }
    }
}

struct Case {
    tiers: Tiers,
    seed: u64,
    script: &'static [usize],
}

impl Case {
    fn after(&self, path: &[u8]) -> Parties {
        let mut p = Parties::new(self.tiers, self.seed, self.script);
        path.iter().for_each(|party| p.turn(usize::from(*party)));
        p
    }

    /// Visits every state that can be reached; how many there are, and how many of the turns were
    /// denied.
    fn explore(&self) -> (usize, usize) {
        let mut seen = HashSet::new();
        let mut todo = vec![Vec::new()];
        let mut denials = 0;
        while let Some(path) = todo.pop() {
            for party in 0..PARTIES {
                // Tables cannot be copied, so each state is reached again from the beginning.
                let mut path = path.clone();
                path.push(party as u8);
                let p = self.after(&path);
                let (picture, denied) = (p.picture(), p.denied.is_some());
                // Only one table is counted at a time.
                drop(p);
                if denied {
                    denials += 1;
                    (0..SWEEP).for_each(|holder| self.after(&path).ask_again(holder));
                }
                if seen.insert(picture) {
                    self.after(&path).come_to_the_end(&path);
                    todo.push(path);
                }
            }
        }
        (seen.len(), denials)
    }
}

fn tiers(hot: usize, sets: usize) -> Tiers {
    Tiers {
        hot,
        sets,
        ways: 1,
        chunks: 1,
    }
}

fn explore(script: &'static [usize], sizes: &[(usize, usize)], seed: u64) {
    let mut denials = 0;
    for &(hot, sets) in sizes {
        let tiers = tiers(hot, sets);
        let (states, denied) = Case {
            tiers,
            seed,
            script,
        }
        .explore();
        println!("{script:?} {hot} {sets}: {states} states, {denied} denied");
        denials += denied;
    }
    assert!(denials > 500, "nobody was in anybody's way");
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_two() {
    explore(&[0, 1], &[(1, 0), (1, 1), (2, 0)], 1);
    explore(&[0, 1, 0], &[(1, 0), (1, 1), (2, 1)], 1);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_three_in_a_slot() {
    explore(&[0, 1, 2], &[(1, 1)], 1);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_three_in_two_slots() {
    explore(&[0, 1, 2], &[(2, 0)], 2);
}

/// The same without merging equal states: all sequences of a few turns, from a state in which every
/// party has work.
// rows: L1 L2 L3
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_sequence_of_turns() {
    const TURNS: u32 = 6;
    let start = [SUBMIT, SUBMIT, TRANSMIT, TRANSMIT, TRANSMIT, SUBMIT];
    for (hot, sets) in [(1, 0), (2, 1)] {
        let case = Case {
            tiers: tiers(hot, sets),
            seed: 3,
            script: &[0, 1, 0, 1, 2],
        };
        for n in 0..(PARTIES as u32).pow(TURNS) {
            let turns = (0..TURNS).map(|i| (n / (PARTIES as u32).pow(i)) as usize % PARTIES);
            let path: Vec<u8> = start.into_iter().chain(turns).map(|p| p as u8).collect();
            let p = case.after(&path);
            if n % 16 == 0 {
                p.come_to_the_end(&path);
            }
        }
    }
}
