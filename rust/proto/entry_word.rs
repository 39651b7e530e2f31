// SPDX-License-Identifier: GPL-2.0

//! The word of an entry of the link table: what a party may know of a channel without its lock.
//!
//! A word holds the generation of the entry, its work bits, and properties of the channel that are
//! often asked for. The holder of the entry's lock publishes it after each change of the registers,
//! before it releases the lock, so under the lock the word is the present state, also while the
//! registers are parked. Without the lock it is the state after some earlier change; a reader sees
//! at least the changes before the event that made it look. It also sees all stores under the lock
//! before the word changed to the value that it reads.

use core::ops::{BitAnd, BitOr};
use core::sync::atomic::Ordering;

use super::ChanId;

/// Work bits of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work(u8);

impl Work {
    /// No work.
    pub const NONE: Self = Self(0);
    /// The entry is in use (W).
    pub const SUBMITTED: Self = Self(1);
    /// The channel has a message to transmit (T).
    pub const TX: Self = Self(2);
    /// The channel has received data that was not freed yet (R).
    pub const RX: Self = Self(4);
    /// The channel has ended: notify its owner; then the entry can be freed (C).
    pub const COMPLETE: Self = Self(8);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self & other == other
    }
}

impl BitOr for Work {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Work {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The ends of a channel's directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ends {
    /// The peer sends no more.
    pub read: bool,
    /// Nothing can be sent any more.
    pub write: bool,
    /// The peer's WRITEs have all arrived.
    pub peer_writes: bool,
}

const READ_ENDED: u64 = 1 << 8;
const WRITE_ENDED: u64 = 1 << 9;
const PEER_WRITES_DONE: u64 = 1 << 10;
const CORKED_SHIFT: u32 = 16;
const CORKED_MASK: u64 = 0xffff;
const GEN_SHIFT: u32 = 32;

/// The contents of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Word(u64);

impl Word {
    /// That of an entry that is not in use.
    pub const FREE: Self = Self(0);

    /// That of entry `id` in use, with the bits of `work`. `corked`: corked bytes, at most a small
    /// message.
    pub fn new(id: ChanId, work: Work, ends: Ends, corked: u32) -> Self {
        let flag = |is: bool, bit| if is { bit } else { 0 };
        Self(
            (u64::from(id.gen) << GEN_SHIFT)
                | (u64::from(corked).min(CORKED_MASK) << CORKED_SHIFT)
                | flag(ends.read, READ_ENDED)
                | flag(ends.write, WRITE_ENDED)
                | flag(ends.peer_writes, PEER_WRITES_DONE)
                | u64::from((work | Work::SUBMITTED).0),
        )
    }

    /// Whether the entry is in use, with the generation of `id`.
    pub fn is(self, id: ChanId) -> bool {
        self.work().has(Work::SUBMITTED) && (self.0 >> GEN_SHIFT) == u64::from(id.gen)
    }

    /// The work bits.
    pub fn work(self) -> Work {
        Work(self.0 as u8)
    }

    /// The ends of the channel's directions.
    pub fn ends(self) -> Ends {
        Ends {
            read: self.0 & READ_ENDED != 0,
            write: self.0 & WRITE_ENDED != 0,
            peer_writes: self.0 & PEER_WRITES_DONE != 0,
        }
    }

    /// The number of corked bytes.
    pub fn corked(self) -> u32 {
        ((self.0 >> CORKED_SHIFT) & CORKED_MASK) as u32
    }
}

/// The memory of a word: an atomic of 64 bits.
pub trait WordCell {
    /// Loads the bits; `order`: `Relaxed` or `Acquire`.
    fn load(&self, order: Ordering) -> u64;
    /// Stores the bits; `order`: `Relaxed` or `Release`.
    fn store(&self, bits: u64, order: Ordering);
}

/// A word that is published. Only the holder of the entry's lock writes it.
pub struct EntryWord<C>(C);

impl<C: WordCell> EntryWord<C> {
    /// A word of an entry that is not in use. `cell` is 0.
    pub const fn new(cell: C) -> Self {
        Self(cell)
    }

    /// The word as it was published last.
    pub fn load(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Publishes `word`. Under the entry's lock.
    pub fn publish(&self, word: Word) {
        // The lock orders the stores of its holders.
        if self.0.load(Ordering::Relaxed) != word.0 {
            self.0.store(word.0, Ordering::Release);
        }
    }

    /// Whether a message for channel `id` may find it here: if not, it has ended.
    pub fn may_be(&self, id: ChanId) -> bool {
        self.load().is(id)
    }

    /// Whether consumed data may have to be freed. An entry that is not in use does not tell.
    pub fn may_have_unfreed(&self) -> bool {
        let work = self.load().work();
        !work.has(Work::SUBMITTED) || work.has(Work::RX)
    }
}
