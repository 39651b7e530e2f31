// SPDX-License-Identifier: GPL-2.0

//! A link table in ordinary memory.

use std::marker::PhantomData;

use zrs_core::link_table::{Backing, LinkTable, Parked, Registers, Slot, Storage, Way, CHUNK};
use zrs_core::ChanId;

/// Storage for registers of any type.
pub struct Mem<R, O>(PhantomData<(R, O)>);

impl<R: Registers, O> Storage for Mem<R, O> {
    type Regs = R;
    type Cell = Box<R>;
    type Owner = O;
    type Hot = Vec<Slot<Box<R>>>;
    type L2 = Vec<Way<R::Parked>>;
    type Chunk = Vec<Backing<R::Parked, O>>;
    type Bulk = Vec<Option<Self::Chunk>>;
}

pub type Table<R, O> = LinkTable<Mem<R, O>>;

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
    pub fn table<R: Registers, O>(self, seed: u64, mut blank: impl FnMut() -> R) -> Table<R, O> {
        let table = LinkTable::new(
            (0..self.hot)
                .map(|_| Slot::new(Box::new(blank())))
                .collect(),
            (0..self.sets * self.ways).map(|_| Way::new()).collect(),
            self.ways as u32,
            (0..self.chunks).map(|_| None).collect(),
            seed,
        );
        table.expect("a hot slot and whole sets")
    }
}

pub fn chunk<P, O>() -> Vec<Backing<P, O>> {
    (0..CHUNK).map(|_| Backing::new()).collect()
}

/// Takes an entry, with a further chunk if it needs one.
pub fn submit<R: Registers, O>(
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
