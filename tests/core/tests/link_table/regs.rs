// SPDX-License-Identifier: GPL-2.0

//! Registers that know whose they are, and are counted while they are parked.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use zrs_core::entry_word::{Ends, Word, Work};
use zrs_core::link_table::Registers;
use zrs_core::ChanId;

use common::table::{Owner, Table, Tiers, Worded};

thread_local! {
    /// How often each entry's registers are parked somewhere just now.
    static LYING: RefCell<BTreeMap<(u32, u32), u32>> = const { RefCell::new(BTreeMap::new()) };
    static EVER: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regs {
    pub id: ChanId,
    pub value: u64,
    pub work: Work,
    /// They cannot be parked.
    pub stay: bool,
}

impl Regs {
    pub fn new(id: ChanId, value: u64, work: Work) -> Self {
        Self {
            id,
            value,
            work,
            stay: false,
        }
    }
}

/// Parked registers: not to be copied, and gone when the table drops them.
pub struct Lying(Regs);

impl Drop for Lying {
    fn drop(&mut self) {
        LYING.with_borrow_mut(|l| {
            let key = (self.0.id.index, self.0.id.gen);
            let count = l.get_mut(&key).expect("it was parked");
            *count -= 1;
            if *count == 0 {
                l.remove(&key);
            }
        });
    }
}

impl Registers for Regs {
    type Parked = Lying;

    fn park(&self) -> Option<Lying> {
        if self.stay {
            return None;
        }
        LYING.with_borrow_mut(|l| *l.entry((self.id.index, self.id.gen)).or_default() += 1);
        EVER.set(EVER.get() + 1);
        Some(Lying(*self))
    }

    fn unpark(parked: &Lying, id: ChanId) -> Self {
        assert_eq!(parked.0.id, id, "somebody else's registers");
        parked.0
    }
}

impl Worded for Regs {
    fn word(&self, id: ChanId) -> Word {
        Word::new(id, self.work, Ends::default(), 0)
    }
}

/// Where parked registers are counted: one table at a time in each thread.
pub struct Count;

impl Count {
    pub fn begin() -> Self {
        EVER.set(0);
        LYING.with_borrow_mut(BTreeMap::clear);
        Self
    }

    /// How often the registers of `id` are parked.
    pub fn of(&self, id: ChanId) -> u32 {
        LYING.with_borrow(|l| l.get(&(id.index, id.gen)).copied().unwrap_or(0))
    }

    /// How many are parked.
    pub fn now(&self) -> u32 {
        LYING.with_borrow(|l| l.values().sum())
    }

    /// How often any were parked.
    pub fn ever(&self) -> u64 {
        EVER.get()
    }
}

pub fn table<O: Owner<Regs>>(tiers: Tiers, seed: u64) -> Table<Regs, O> {
    tiers.table(seed, || Regs::new(ChanId::default(), 0, Work::NONE))
}

/// Any of T, R and C.
pub fn work_of(bits: u8) -> Work {
    let all = [Work::TX, Work::RX, Work::COMPLETE].into_iter().enumerate();
    all.filter(|(n, _)| (bits >> n) & 1 != 0)
        .fold(Work::NONE, |sum, (_, bit)| sum | bit)
}
