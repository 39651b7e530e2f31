// SPDX-License-Identifier: GPL-2.0

//! A link table in ordinary memory, and the words of its entries.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use zrs_core::channel::Channel;
use zrs_core::entry_word::{EntryWord, Word, WordCell, Work};
use zrs_core::link_table::{
    Backing, Grant, GrantError, LinkTable, Parked, Recall, Registers, Slot, Storage, Way, CHUNK,
};
use zrs_core::ChanId;

/// The owner of an entry.
pub trait Owner<R> {
    /// Returns the grant that it keeps, as [`Storage::recall`] wants it.
    fn recall(&self, _: ChanId, _: &mut Recall) -> Option<Grant<Box<R>>> {
        None
    }
}

// These keep none.
impl<R> Owner<R> for u32 {}
impl<R> Owner<R> for u64 {}
impl<R> Owner<R> for usize {}

/// Storage for registers of any type.
pub struct Mem<R, O>(PhantomData<(R, O)>);

impl<R: Registers, O: Owner<R>> Storage for Mem<R, O> {
    type Regs = R;
    type Cell = Box<R>;
    type Owner = O;
    type Hot = Vec<Slot<Box<R>>>;
    type L2 = Vec<Way<R::Parked>>;
    type Chunk = Vec<Backing<R::Parked, O>>;
    type Bulk = Vec<Option<Self::Chunk>>;

    fn recall(owner: &O, id: ChanId, recall: &mut Recall) -> Option<Grant<Box<R>>> {
        owner.recall(id, recall)
    }
}

/// The memory of a word.
#[derive(Default)]
pub struct Shared(AtomicU64);

impl WordCell for Shared {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, bits: u64, order: Ordering) {
        self.0.store(bits, order);
    }
}

/// Registers that have a word.
pub trait Worded: Registers {
    fn word(&self, id: ChanId) -> Word;
}

impl Worded for Channel {
    fn word(&self, _: ChanId) -> Word {
        Channel::word(self)
    }
}

/// Why a party that looks for work does not get an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// Its word does not have the work.
    Idle,
    By(GrantError),
}

impl From<GrantError> for Denied {
    fn from(why: GrantError) -> Self {
        Self::By(why)
    }
}

/// A table, and the words of its entries, which are published as the module publishes them: when an
/// entry is made, with each change, and when it is freed.
pub struct Table<R: Registers, O: Owner<R>> {
    table: LinkTable<Mem<R, O>>,
    words: BTreeMap<u32, EntryWord<Shared>>,
}

impl<R: Registers, O: Owner<R>> Deref for Table<R, O> {
    type Target = LinkTable<Mem<R, O>>;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl<R: Registers, O: Owner<R>> DerefMut for Table<R, O> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.table
    }
}

impl<R: Worded, O: Owner<R>> Table<R, O> {
    fn publish(&mut self, id: ChanId, word: Word) {
        let new = || EntryWord::new(Shared::default());
        self.words.entry(id.index).or_insert_with(new).publish(word);
    }

    pub fn submit(&mut self, owner: O, make: impl FnOnce(ChanId) -> R) -> Result<ChanId, O> {
        let mut word = Word::FREE;
        let id = self.table.submit(owner, |id| {
            let regs = make(id);
            word = regs.word(id);
            regs
        })?;
        self.publish(id, word);
        Ok(id)
    }

    pub fn write_back(&mut self, grant: Grant<Box<R>>) {
        self.publish_of(&grant);
        self.table.write_back(grant);
    }

    /// Publishes the word of registers that stay granted.
    pub fn publish_of(&mut self, grant: &Grant<Box<R>>) {
        self.publish(grant.id(), grant.regs().word(grant.id()));
    }

    pub fn remove(&mut self, id: ChanId) -> Result<O, GrantError> {
        let owner = self.table.remove(id)?;
        self.publish(id, Word::FREE);
        Ok(owner)
    }

    fn word(&self, id: ChanId) -> Option<Word> {
        let word = self.words.get(&id.index)?;
        word.may_be(id).then(|| word.load())
    }

    /// The work bits of entry `id`.
    pub fn work(&self, id: ChanId) -> Work {
        self.word(id).map_or(Work::NONE, Word::work)
    }

    /// Requests entry `id` if its word has all of `work`.
    pub fn grant_for(&mut self, id: ChanId, work: Work) -> Result<Grant<Box<R>>, Denied> {
        if self.word(id).is_some_and(|word| !word.work().has(work)) {
            return Err(Denied::Idle);
        }
        Ok(self.table.grant(id)?)
    }
}

/// The sizes of a table.
#[derive(Clone, Copy, Debug)]
pub struct Tiers {
    pub hot: usize,
    pub sets: usize,
    pub ways: usize,
    pub chunks: usize,
}

impl Tiers {
    /// An empty table; free slots hold the result of `blank`.
    pub fn table<R: Registers, O: Owner<R>>(
        self,
        seed: u64,
        mut blank: impl FnMut() -> R,
    ) -> Table<R, O> {
        let table = LinkTable::new(
            (0..self.hot)
                .map(|_| Slot::new(Box::new(blank())))
                .collect(),
            (0..self.sets * self.ways).map(|_| Way::new()).collect(),
            self.ways as u32,
            (0..self.chunks).map(|_| None).collect(),
            seed,
        );
        Table {
            table: table.expect("a hot slot and whole sets"),
            words: BTreeMap::new(),
        }
    }
}

pub fn chunk<P, O>() -> Vec<Backing<P, O>> {
    (0..CHUNK).map(|_| Backing::new()).collect()
}

/// Takes an entry, with a further chunk if it needs one.
pub fn submit<R: Worded, O: Owner<R>>(
    t: &mut Table<R, O>,
    owner: O,
    make: impl FnOnce(ChanId) -> R,
) -> Result<ChanId, O> {
    if t.wants_chunk() {
        let back = t.add_chunk(chunk::<Parked<Mem<R, O>>, O>());
        assert!(back.is_none(), "it was wanted");
    }
    t.submit(owner, make)
}
