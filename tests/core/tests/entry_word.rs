// SPDX-License-Identifier: GPL-2.0

//! The word of an entry with the memory orders of the module, under loom: each order in which
//! threads can run, and each value that a load may return.

use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};
use loom::thread;
use zrs_core::entry_word::{Ends, EntryWord, Word, WordCell, Work};
use zrs_core::ChanId;

const FIRST: ChanId = ChanId { index: 1, gen: 1 };
const NEXT: ChanId = ChanId { index: 1, gen: 2 };

/// The memory of a word. The word chooses the orders.
struct Bits(AtomicU64);

impl WordCell for Bits {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, bits: u64, order: Ordering) {
        self.0.store(bits, order);
    }
}

/// The registers of a channel, which the lock guards.
struct Regs {
    id: Option<ChanId>,
    /// Messages that were received, and those that were freed.
    received: u32,
    freed: u32,
}

impl Regs {
    fn word(&self) -> Word {
        let Some(id) = self.id else {
            return Word::FREE;
        };
        let work = match self.received != self.freed {
            true => Work::RX,
            false => Work::NONE,
        };
        Word::new(id, work, Ends::default(), 0)
    }
}

/// An entry, and what threads see of it without its lock.
struct Entry {
    regs: Mutex<Regs>,
    word: EntryWord<Bits>,
    /// Messages that the ring shows to the program.
    shown: AtomicU32,
    /// Messages whose places in the ring are free again.
    places: AtomicU32,
    /// The first channel has ended.
    ended: AtomicU32,
    /// The next channel is known to the peer.
    opened: AtomicU32,
}

impl Entry {
    fn new() -> Arc<Self> {
        let entry = Self {
            regs: Mutex::new(Regs {
                id: Some(FIRST),
                received: 0,
                freed: 0,
            }),
            word: EntryWord::new(Bits(AtomicU64::new(0))),
            shown: AtomicU32::new(0),
            places: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            opened: AtomicU32::new(0),
        };
        entry.with(|_| ());
        Arc::new(entry)
    }

    /// As the module's `Chan::with()`: changes the registers and publishes the word, under the lock.
    fn with(&self, change: impl FnOnce(&mut Regs)) {
        let mut regs = self.regs.lock().unwrap();
        change(&mut regs);
        self.word.publish(regs.word());
    }

    /// A delivery: the registers and the word, then the descriptor, whose store releases.
    fn deliver(&self) {
        let mut regs = self.regs.lock().unwrap();
        regs.received += 1;
        self.word.publish(regs.word());
        self.shown.store(regs.received, Ordering::Release);
    }

    /// The first step of a call of a program that has consumed `consumed` messages. Returns whether
    /// the lock was taken.
    fn reap(&self, consumed: u32) -> bool {
        if !self.word.may_have_unfreed() {
            // All of them were freed, and their places are seen to be free.
            assert!(
                self.places.load(Ordering::Relaxed) >= consumed,
                "a consumed message is not free"
            );
            return false;
        }
        self.with(|regs| {
            if regs.freed < consumed {
                self.places.store(consumed, Ordering::Relaxed);
                regs.freed = consumed;
            }
        });
        true
    }

    /// A thread of the program consumes what the ring shows, and calls. Returns whether it had
    /// consumed something and the call took no lock.
    fn call(&self) -> bool {
        let consumed = self.shown.load(Ordering::Acquire);
        !self.reap(consumed) && consumed > 0
    }
}

/// A delivery, and two threads of the program that consume the message and call: a call that does
/// not take the lock has nothing to free.
// rows: L1 L2
#[test]
fn a_call_without_the_lock_misses_nothing() {
    // How the calls went is not a part of what loom explores.
    static SKIPPED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loom::model(|| {
        let entry = Entry::new();
        let threads = [0, 1].map(|_| {
            let entry = entry.clone();
            thread::spawn(move || entry.call())
        });
        entry.deliver();
        for thread in threads {
            if thread.join().unwrap() {
                SKIPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(
        SKIPPED.load(Ordering::Relaxed) > 0,
        "each call took the lock"
    );
}

/// The entry ends and is used again: a late message that is discarded without the lock was for a
/// channel that is seen to have ended. A message for the next channel, which the peer sends once it
/// knows that channel, is never discarded.
// rows: L2
#[test]
fn only_a_message_for_an_ended_channel_is_discarded() {
    loom::model(|| {
        let entry = Entry::new();
        let receiver = {
            let entry = entry.clone();
            thread::spawn(move || {
                if !entry.word.may_be(FIRST) {
                    assert_eq!(
                        entry.ended.load(Ordering::Relaxed),
                        1,
                        "discarded too early"
                    );
                }
                if entry.opened.load(Ordering::Acquire) == 1 {
                    assert!(entry.word.may_be(NEXT), "the next channel is not found");
                    assert!(
                        !entry.word.may_be(FIRST),
                        "the first channel is found again"
                    );
                }
            })
        };
        entry.with(|regs| {
            entry.ended.store(1, Ordering::Relaxed);
            regs.id = None;
        });
        entry.with(|regs| regs.id = Some(NEXT));
        entry.opened.store(1, Ordering::Release);
        receiver.join().unwrap();
    });
}

/// Two threads change the registers, each under the lock: a third one that takes the lock finds the
/// word to be the state of the registers, and sees no word of a former state after a later one.
// rows: L1 L2
#[test]
fn under_the_lock_the_word_is_the_state() {
    loom::model(|| {
        let entry = Entry::new();
        let threads = [0, 1].map(|n| {
            let entry = entry.clone();
            thread::spawn(move || match n {
                0 => entry.with(|regs| regs.received += 1),
                _ => entry.with(|regs| regs.id = None),
            })
        });
        {
            let regs = entry.regs.lock().unwrap();
            assert_eq!(entry.word.load(), regs.word());
        }
        let ended = !entry.word.may_be(FIRST);
        assert!(!(ended && entry.word.may_be(FIRST)), "an earlier word");
        threads.map(|thread| thread.join().unwrap());
        assert_eq!(entry.word.load(), Word::FREE);
    });
}
