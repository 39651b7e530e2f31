// SPDX-License-Identifier: GPL-2.0

//! Every order in which the parties can run: submit, transmit, receive, complete and the sweep over
//! a table with fewer slots than entries. Each turn is one call of the table. Parties write entries
//! back, or owners keep the grants, as the module's sockets do.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use zrs_core::entry_word::Work;
use zrs_core::link_table::{Grant, GrantError, Recall};
use zrs_core::ChanId;

use crate::regs::{table, Count, Regs};
use common::table::{submit, Denied, Owner, Table, Tiers};

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

/// The socket of an entry.
struct Sock {
    entry: usize,
    id: Cell<Option<ChanId>>,
    /// A party has its lock.
    locked: Cell<bool>,
    /// The grant that it keeps while no party works on the registers.
    grant: RefCell<Option<Grant<Box<Regs>>>>,
    seen: Rc<Seen>,
}

/// Counts of the events of kept grants.
#[derive(Default)]
struct Seen {
    /// Uses of a kept grant.
    again: Cell<usize>,
    /// Kept grants that the table got back, and kept grants that it did not want.
    recalled: Cell<usize>,
    declined: Cell<usize>,
    /// The table asked while a party had the lock.
    busy: Cell<usize>,
}

fn count(counter: &Cell<usize>) {
    counter.set(counter.get() + 1);
}

impl Owner<Regs> for Rc<Sock> {
    fn recall(&self, id: ChanId, recall: &mut Recall) -> Option<Grant<Box<Regs>>> {
        if self.locked.get() {
            count(&self.seen.busy);
            return None;
        }
        let mut kept = self.grant.borrow_mut();
        if self.id.get() != Some(id) || kept.is_none() {
            return None;
        }
        if !recall.wants(kept.as_mut()?) {
            count(&self.seen.declined);
            return None;
        }
        count(&self.seen.recalled);
        kept.take()
    }
}

struct Parties {
    t: Table<Regs, Rc<Sock>>,
    socks: Vec<Rc<Sock>>,
    /// Sockets keep the grants; a party works under the lock of the socket.
    keep: bool,
    seen: Rc<Seen>,
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
    /// The entry whose socket's lock a party has while it asks the table for the grant.
    waits: [Option<ChanId>; 4],
    /// The next entry that a party looking for work asks for.
    cursor: [usize; 4],
    /// Answers on their way, one to each message, and one more that comes late.
    pipe: VecDeque<usize>,
    sent: Vec<u8>,
    late: Vec<bool>,
    resets: usize,
    /// As the table, or the kept grant, has it: used since the sweep came by.
    used: Vec<bool>,
    /// The last turn was denied this.
    denied: Option<(ChanId, GrantError)>,
}

impl Parties {
    fn new(tiers: Tiers, seed: u64, script: &'static [usize], keep: bool) -> Self {
        let entries = script.iter().max().map_or(0, |m| m + 1);
        let seen = Rc::new(Seen::default());
        let sock = |entry| {
            Rc::new(Sock {
                entry,
                id: Cell::new(None),
                locked: Cell::new(false),
                grant: RefCell::new(None),
                seen: seen.clone(),
            })
        };
        Self {
            socks: (0..entries).map(sock).collect(),
            keep,
            seen: seen.clone(),
            count: Count::begin(),
            t: table(tiers, seed),
            slots: tiers.hot,
            script,
            at: 0,
            ids: vec![None; entries],
            gone: vec![false; entries],
            freeing: None,
            held: [None, None, None, None],
            waits: [None; 4],
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

    /// The party that has the entry, or the lock of its socket.
    fn holder(&self, id: ChanId) -> Option<usize> {
        let has = |g: &Option<Grant<_>>| g.as_ref().is_some_and(|g| g.id() == id);
        let waits = || self.waits.iter().position(|w| *w == Some(id));
        self.held.iter().position(has).or_else(waits)
    }

    /// Whether the registers are out of the table: a party has them, or the socket keeps them.
    fn is_granted(&self, e: usize, id: ChanId) -> bool {
        let held = self.held.iter().flatten().any(|g| g.id() == id);
        held || self.socks[e].grant.borrow().is_some()
    }

    fn entry_of(&self, id: ChanId) -> usize {
        let found = self.ids.iter().position(|i| *i == Some(id));
        found.expect("an entry that was made")
    }

    /// Asks for an entry; whether it is held now.
    fn ask(&mut self, party: usize, id: ChanId, work: Work) -> Result<(), Denied> {
        assert!(self.held[party].is_none(), "at most one");
        let (e, holder) = (self.entry_of(id), self.holder(id));
        if self.keep && !self.gone[e] {
            return self.lock(party, id, work);
        }
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

    /// As `ask()`, of a socket that keeps its grant.
    fn lock(&mut self, party: usize, id: ChanId, work: Work) -> Result<(), Denied> {
        let (e, holder) = (self.entry_of(id), self.holder(id));
        if !self.t.work(id).has(work) {
            return Err(Denied::Idle);
        }
        let sock = self.socks[e].clone();
        assert_eq!(sock.locked.get(), holder.is_some());
        if sock.locked.replace(true) {
            self.denied = Some((id, GrantError::Locked));
            return Err(Denied::By(GrantError::Locked));
        }
        let Some(mut grant) = sock.grant.take() else {
            self.waits[party] = Some(id);
            return self.fault_in(party, id);
        };
        count(&self.seen.again);
        let regs = **grant.regs_again();
        assert!(grant.id() == id && regs.id == id && (regs.work | Work::SUBMITTED).has(work));
        self.used[e] = true;
        self.held[party] = Some(grant);
        Ok(())
    }

    /// Asks the table for an entry, with the lock of its socket, which keeps no grant.
    fn fault_in(&mut self, party: usize, id: ChanId) -> Result<(), Denied> {
        let e = self.entry_of(id);
        let was_hot = self.count.of(id) == 0;
        match self.t.grant(id) {
            Ok(grant) => {
                assert!(grant.id() == id && grant.regs().id == id);
                self.used[e] = true;
                self.waits[party] = None;
                self.held[party] = Some(grant);
                Ok(())
            }
            Err(why) => {
                assert!(why == GrantError::Crowded && !was_hot);
                let held = self.held.iter().flatten().count();
                assert_eq!(held, self.slots, "a kept grant makes room");
                self.denied = Some((id, why));
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
        if self.keep {
            self.t.publish_of(&grant);
            let sock = &self.socks[e];
            assert!(sock.grant.replace(Some(grant)).is_none() && sock.locked.replace(false));
        } else {
            self.t.write_back(grant);
        }
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
            _ if party < SWEEP && self.waits[party].is_some() => {
                let _ = self.waits[party].map(|id| self.fault_in(party, id));
            }
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
                let is_kept = |sock: &Rc<Sock>| sock.grant.borrow().is_some();
                let kept: Vec<_> = self.socks.iter().map(is_kept).collect();
                self.t.sweep(u32::MAX, |id, _| assert!(!held.contains(&id)));
                for (e, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                    let stays = is_kept(&self.socks[e]);
                    assert_eq!(stays, self.used[e], "parked if not used");
                }
                for (used, sock) in self.used.iter_mut().zip(&self.socks) {
                    // The sweep does not see what is noted in a grant that a party has.
                    *used &= sock.locked.get();
                }
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
        let owner = self.socks[e].clone();
        let id = submit(&mut self.t, owner, |id| Regs::new(id, 1, Work::TX));
        let id = id.ok().expect("a home");
        self.ids[e] = Some(id);
        self.socks[e].id.set(Some(id));
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
        let locked = self.keep && self.holder(id).is_some();
        if let Some(grant) = self.socks[e].grant.take() {
            assert!(!locked);
            self.t.write_back(grant);
        }
        let freed = match locked {
            true => Err(GrantError::Locked),
            false => self.t.remove(id),
        };
        match freed {
            Ok(owner) => {
                assert!(owner.entry == e && self.holder(id).is_none());
                assert_eq!(self.socks[e].id.take(), Some(id));
                (self.gone[e], self.freeing) = (true, None);
            }
            Err(why) => {
                assert!(
                    !self.keep || locked,
                    "a socket that is not locked can be freed"
                );
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
            let may = !self.gone[e] && !self.is_granted(e, id);
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
        let free = free && self.waits.iter().all(Option::is_none);
        free && self.at == self.script.len() && self.gone.iter().all(|g| *g) && self.pipe.is_empty()
    }

    /// The visible state: all but the table's future random numbers.
    fn picture(&self) -> String {
        let held: Vec<_> = self.held.iter().flatten().map(|g| **g.regs()).collect();
        let holders = self.ids.iter().map(|id| id.and_then(|id| self.holder(id)));
        let kept = self.socks.iter().map(|s| s.grant.borrow().is_some());
        let entry = |id: &Option<ChanId>| id.map(|id| (self.count.of(id), self.t.work(id)));
        format!(
            "{} {:?} {:?} {:?} {held:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {}",
            self.at,
            self.ids.iter().map(entry).collect::<Vec<_>>(),
            self.gone,
            self.freeing,
            holders.collect::<Vec<_>>(),
            self.waits.map(|id| id.is_some()),
            kept.collect::<Vec<_>>(),
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
            _ => true,
        };
        if !stands || self.held[holder].is_none() {
            return;
        }
        self.turn(holder);
        assert!(self.held[holder].is_none(), "it has written back");
        let waits = self.waits.iter().position(|w| *w == Some(id));
        match waits {
            Some(party) => assert_eq!(self.fault_in(party, id), Ok(()), "there is room"),
            None if self.keep => {
                let sock = &self.socks[self.entry_of(id)];
                assert!(!sock.locked.get() && sock.grant.borrow().is_some());
            }
            None => {
                let grant = self.t.grant(id).expect("nobody is in its way any more");
                self.t.write_back(grant);
            }
        }
    }
}

struct Case {
    tiers: Tiers,
    seed: u64,
    script: &'static [usize],
    keep: bool,
}

/// Counts of an exploration.
#[derive(Default, Debug)]
struct Visited {
    states: usize,
    /// Turns that were denied.
    denied: usize,
    /// Of kept grants: see [`Seen`].
    again: usize,
    recalled: usize,
    declined: usize,
    busy: usize,
}

impl Case {
    fn after(&self, path: &[u8]) -> Parties {
        let mut p = Parties::new(self.tiers, self.seed, self.script, self.keep);
        path.iter().for_each(|party| p.turn(usize::from(*party)));
        p
    }

    /// Visits every state that can be reached.
    fn explore(&self, visited: &mut Visited) {
        let mut seen = HashSet::new();
        let mut todo = vec![Vec::new()];
        while let Some(path) = todo.pop() {
            for party in 0..PARTIES {
                // Tables cannot be copied, so each state is reached again from the beginning.
                let mut path = path.clone();
                path.push(party as u8);
                let p = self.after(&path);
                let (picture, denied) = (p.picture(), p.denied.is_some());
                visited.again += p.seen.again.get();
                visited.recalled += p.seen.recalled.get();
                visited.declined += p.seen.declined.get();
                visited.busy += p.seen.busy.get();
                // Only one table is counted at a time.
                drop(p);
                if denied {
                    visited.denied += 1;
                    (0..SWEEP).for_each(|holder| self.after(&path).ask_again(holder));
                }
                if seen.insert(picture) {
                    self.after(&path).come_to_the_end(&path);
                    todo.push(path);
                }
            }
        }
        visited.states += seen.len();
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

fn explore(script: &'static [usize], sizes: &[(usize, usize)], seed: u64, keep: bool) {
    let mut visited = Visited::default();
    for &(hot, sets) in sizes {
        let tiers = tiers(hot, sets);
        let case = Case {
            tiers,
            seed,
            script,
            keep,
        };
        case.explore(&mut visited);
        println!("{script:?} {hot} {sets}: up to here {visited:?}");
    }
    let Visited {
        denied,
        again,
        recalled,
        declined,
        busy,
        ..
    } = visited;
    assert!(denied > 500, "nobody was in anybody's way");
    let kept = [again, recalled, declined, busy];
    assert!(kept.iter().all(|n| (*n > 500) == keep), "{kept:?}");
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_two() {
    explore(&[0, 1], &[(1, 0), (1, 1), (2, 0)], 1, false);
    explore(&[0, 1, 0], &[(1, 0), (1, 1), (2, 1)], 1, false);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_three_in_a_slot() {
    explore(&[0, 1, 2], &[(1, 1)], 1, false);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_three_in_two_slots() {
    explore(&[0, 1, 2], &[(2, 0)], 2, false);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_two_that_keep_grants() {
    explore(&[0, 1], &[(1, 0), (1, 1), (2, 0)], 1, true);
    explore(&[0, 1, 0], &[(1, 0), (1, 1), (2, 1)], 1, true);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_three_that_keep_grants_in_a_slot() {
    explore(&[0, 1, 2], &[(1, 1)], 1, true);
}

// rows: L1 L2 L3 L5
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_turns_of_three_that_keep_grants_in_two_slots() {
    explore(&[0, 1, 2], &[(2, 0)], 2, true);
}

/// The same without merging equal states: all sequences of a few turns, from a state in which every
/// party has work.
// rows: L1 L2 L3
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_sequence_of_turns() {
    const TURNS: u32 = 6;
    let start = [SUBMIT, SUBMIT, TRANSMIT, TRANSMIT, TRANSMIT, SUBMIT];
    for (hot, sets, keep) in [(1, 0, false), (2, 1, false), (1, 0, true), (2, 1, true)] {
        let case = Case {
            tiers: tiers(hot, sets),
            seed: 3,
            script: &[0, 1, 0, 1, 2],
            keep,
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
