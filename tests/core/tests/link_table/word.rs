// SPDX-License-Identifier: GPL-2.0

//! The word of an entry: its fields, and every order in which the parties that write it under the
//! entry's lock, and those that read it without the lock, can take their steps.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use zrs_core::entry_word::{Ends, EntryWord, Word, WordCell, Work};
use zrs_core::wire::SMALL_MAX;
use zrs_core::ChanId;

use crate::regs::work_of;
use common::cases;
use common::headers::id;

/// A cell that counts its stores.
#[derive(Default)]
struct Bits {
    bits: Cell<u64>,
    stores: Cell<u32>,
}

impl WordCell for &Bits {
    fn load(&self, _: Ordering) -> u64 {
        self.bits.get()
    }

    fn store(&self, bits: u64, _: Ordering) {
        self.bits.set(bits);
        self.stores.set(self.stores.get() + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(500)))]

    // rows: L2
    #[test]
    fn fields_do_not_touch(
        gen in any::<u32>(),
        bits in 0_u8..8,
        (read, write, peer_writes) in any::<(bool, bool, bool)>(),
        corked in 0..=SMALL_MAX,
    ) {
        let ends = Ends { read, write, peer_writes };
        let word = Word::new(id(7, gen), work_of(bits), ends, corked);
        prop_assert_eq!(word.work(), work_of(bits) | Work::SUBMITTED);
        prop_assert_eq!((word.ends(), word.corked()), (ends, corked));
        prop_assert!(word.is(id(7, gen)));
        prop_assert!(!word.is(id(7, gen.wrapping_add(1))));
        prop_assert!(!Word::FREE.is(id(7, gen)));
    }
}

// rows: L2
#[test]
fn an_unchanged_word_is_not_stored() {
    let bits = Bits::default();
    let word = EntryWord::new(&bits);
    let first = Word::new(id(1, 0), Work::TX, Ends::default(), 3);
    assert!(word.may_have_unfreed(), "without an entry it cannot tell");
    word.publish(Word::FREE);
    assert_eq!(bits.stores.get(), 0);
    word.publish(first);
    word.publish(first);
    assert_eq!((word.load(), bits.stores.get()), (first, 1));
    assert!(word.may_be(id(1, 0)) && !word.may_have_unfreed());
    word.publish(Word::FREE);
    assert!(!word.may_be(id(1, 0)) && word.may_have_unfreed());
}

/// The parties of one entry. Each turn is a step that others cannot divide: taking the lock, an
/// access to the word or to the ring, releasing the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Party {
    /// Delivers two messages, each under the lock: the registers and the word, then the descriptor.
    Receive,
    /// The program: consumes what the ring shows, then calls; the call reads the word without the
    /// lock, and frees what was consumed under it.
    Call,
    /// Ends the channel, frees the entry, and opens the next one.
    End,
    /// A late message for the first channel reads the word without the lock.
    Late,
}

const PARTIES: [Party; 4] = [Party::Receive, Party::Call, Party::End, Party::Late];
const MESSAGES: u8 = 2;
const FIRST: ChanId = ChanId { index: 1, gen: 1 };
const NEXT: ChanId = ChanId { index: 1, gen: 2 };

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct World {
    lock: Option<u8>,
    word: u64,
    /// Messages that the registers have received, and those that were freed.
    received: u8,
    freed: u8,
    /// Descriptors that the program sees, and those that it has consumed.
    shown: u8,
    consumed: u8,
    closed: bool,
    current: u8,
    /// The step that each party takes next.
    at: [u8; 4],
    /// The call has found that there is nothing to free.
    skipped: u8,
}

/// A cell that refers to the word of a world.
struct In<'a>(&'a Cell<u64>);

impl WordCell for In<'_> {
    fn load(&self, _: Ordering) -> u64 {
        self.0.get()
    }

    fn store(&self, bits: u64, _: Ordering) {
        self.0.set(bits);
    }
}

/// The order of the two steps of a delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    WordFirst,
    /// A fault: the descriptor is shown before the word is published.
    RingFirst,
}

impl World {
    fn word<T>(&mut self, f: impl FnOnce(&EntryWord<In<'_>>) -> T) -> T {
        let cell = Cell::new(self.word);
        let result = f(&EntryWord::new(In(&cell)));
        self.word = cell.get();
        result
    }

    /// Publishes the state of the registers. Under the lock.
    fn publish(&mut self) {
        let mut work = Work::NONE;
        if self.received != self.freed {
            work = work | Work::RX;
        }
        if self.closed {
            work = work | Work::COMPLETE;
        }
        let word = match self.current {
            0 => Word::new(FIRST, work, Ends::default(), 0),
            1 => Word::FREE,
            _ => Word::new(NEXT, Work::NONE, Ends::default(), 0),
        };
        self.word(|w| w.publish(word));
    }

    /// Takes a step of a party. Returns false if it waits for the lock, or is done.
    fn step(&mut self, party: Party, order: Order) -> bool {
        let me = PARTIES.iter().position(|p| *p == party).expect("is there");
        let at = self.at[me];
        let locks = |w: &mut Self| {
            let free = w.lock.is_none();
            if free {
                w.lock = Some(me as u8);
            }
            free
        };
        match party {
            Party::Receive if at >= 4 * MESSAGES => return false,
            Party::Receive => match (at % 4, order) {
                (0, _) => {
                    if !locks(self) {
                        return false;
                    }
                }
                (1, Order::WordFirst) | (2, Order::RingFirst) => {
                    // A channel that has ended takes nothing.
                    if self.current == 0 && !self.closed {
                        self.received += 1;
                        self.publish();
                    }
                }
                (1, _) | (2, _) => {
                    let next = match order {
                        Order::WordFirst => self.received,
                        Order::RingFirst if self.current == 0 && !self.closed => self.shown + 1,
                        Order::RingFirst => self.shown,
                    };
                    self.shown = next.max(self.shown);
                }
                _ => self.lock = None,
            },
            Party::Call => match at {
                // It consumes one segment, or sees that there is none, and calls.
                0 | 4 => self.consumed = self.shown,
                1 | 5 => {
                    if !self.word(|w| w.may_have_unfreed()) {
                        // What it has consumed was freed before. (A socket opens another channel
                        // only if nothing came by the first one.)
                        assert!(self.current != 0 || self.freed >= self.consumed, "{self:?}");
                        self.skipped += 1;
                        self.at[me] += 3;
                        return true;
                    }
                }
                2 | 6 => {
                    if !locks(self) {
                        return false;
                    }
                }
                3 | 7 => {
                    if self.current == 0 && self.freed < self.consumed {
                        self.freed = self.consumed;
                        self.publish();
                    }
                    self.lock = None;
                }
                _ => return false,
            },
            Party::End => match at {
                0 | 3 | 6 => {
                    if !locks(self) {
                        return false;
                    }
                }
                1 => {
                    self.closed = true;
                    self.publish();
                }
                4 => {
                    self.current = 1;
                    self.publish();
                }
                7 => {
                    self.current = 2;
                    self.publish();
                }
                2 | 5 | 8 => self.lock = None,
                _ => return false,
            },
            Party::Late => {
                if at > 0 {
                    return false;
                }
                let found = self.word(|w| w.may_be(FIRST));
                assert_eq!(found, self.current == 0, "{self:?}");
            }
        }
        self.at[me] += 1;
        true
    }

    /// Under the lock the word is the state of the registers.
    fn check(&mut self, order: Order) {
        if self.lock.is_some() || self.current == 1 || order == Order::RingFirst {
            return;
        }
        let (word, unfreed) = (self.word(|w| w.load()), self.received != self.freed);
        if self.current == 0 {
            assert_eq!(word.work().has(Work::RX), unfreed, "{self:?}");
            assert_eq!(word.work().has(Work::COMPLETE), self.closed);
        }
    }
}

/// Visits every state; how many there are, and in how many the call had found nothing to free.
fn explore(order: Order) -> (usize, usize) {
    let mut world = World::default();
    world.publish();
    let mut seen = HashSet::from([world.clone()]);
    let mut todo = vec![world];
    while let Some(world) = todo.pop() {
        for party in PARTIES {
            let mut next = world.clone();
            if next.step(party, order) {
                next.check(order);
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
    }
    let ends = seen
        .iter()
        .filter(|w| w.at[0] == 4 * MESSAGES && w.at[1] == 8);
    let ends = ends.filter(|w| w.at[2] == 9 && w.at[3] == 1);
    assert!(ends.count() > 0, "nobody comes to the end");
    (seen.len(), seen.iter().filter(|w| w.skipped > 0).count())
}

// rows: L1 L2
#[test]
#[cfg_attr(miri, ignore = "long")]
fn every_order_of_steps() {
    let (states, skipped) = explore(Order::WordFirst);
    println!("{states} states, {skipped} after a call without the lock");
    assert!(states > 1000 && skipped > 100);
}

/// The exploration finds a descriptor that is shown before the word is published.
// rows: L2
#[test]
#[should_panic(expected = "World")]
fn the_wrong_order_is_found() {
    explore(Order::RingFirst);
}
