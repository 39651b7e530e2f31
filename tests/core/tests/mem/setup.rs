// SPDX-License-Identifier: GPL-2.0

//! A small node for tests.

use zrs_core::mem::admission::Admission;
use zrs_core::mem::arena::Arena;
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::keys::KeySlot;
use zrs_core::mem::node::{AllocRequest, Config, Drain, ExtentEntry, Node, Region, Storage};
use zrs_core::mem::rights::{Range, Rights, Scope};
use zrs_core::mem::slab::Slot;
use zrs_core::mem::status::Status;

pub struct Vecs;

impl Storage for Vecs {
    type Bits = Vec<u64>;
    type Regions = Vec<Slot<Region>>;
    type Extents = Vec<Slot<ExtentEntry>>;
    type Keys = Vec<KeySlot>;
    type Drains = Vec<Slot<Drain>>;
}

pub type TestNode = Node<Vecs>;

pub fn slots<T>(n: usize) -> Vec<Slot<T>> {
    (0..n).map(|_| Slot::EMPTY).collect()
}

pub struct Sizes {
    pub pages: u32,
    pub run_max: u32,
    pub regions: usize,
    pub extents: usize,
    pub keys: usize,
    pub drains: usize,
    pub owner_bytes_max: u64,
    pub owner_percent: u32,
    pub admission: Admission,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            pages: 64,
            run_max: 8,
            regions: 16,
            extents: 64,
            keys: 200,
            drains: 16,
            owner_bytes_max: u64::MAX,
            owner_percent: 100,
            admission: Admission::Open,
        }
    }
}

pub const PAGE: u64 = 256;
pub const ORPHAN_MS: u64 = 1000;

/// A node whose pages are all dirty.
pub fn unzeroed(s: &Sizes, incarnation: u64) -> TestNode {
    let words = Arena::<Vec<u64>>::words(s.pages);
    Node::new(
        Config {
            id: NodeId { domain: 1, node: 2 },
            admission: s.admission,
            incarnation,
            page_shift: PAGE.trailing_zeros(),
            run_max: s.run_max,
            owner_bytes_max: s.owner_bytes_max,
            owner_percent: s.owner_percent,
            user_percent: 50,
            orphan_ms: ORPHAN_MS,
        },
        Arena::new(vec![0; words], vec![0; words], s.pages),
        slots(s.regions),
        slots(s.extents),
        slots(s.keys),
        slots(s.drains),
    )
}

/// Zeroes all that is dirty.
pub fn zero_all(node: &mut TestNode) {
    while let Some(run) = node.next_dirty(7) {
        assert!(node.zeroed(run));
    }
}

pub fn node(s: &Sizes) -> TestNode {
    let mut node = unzeroed(s, 1);
    zero_all(&mut node);
    node
}

pub fn request(len: u64, secret: u64) -> AllocRequest {
    AllocRequest {
        len,
        va: 0x1000,
        owner: 0,
        user: None,
        admission: Key::default(),
        keep: false,
        expires_ms: None,
        now_ms: 0,
        secret,
    }
}

pub fn whole(len: u64) -> Range {
    Range { off: 0, len }
}

pub fn scope(rights: Rights, range: Range) -> Scope {
    Scope {
        rights,
        range,
        expires_ms: None,
        uses: None,
    }
}

/// What `next_quiet` returns until there is nothing.
pub fn quiet(node: &mut TestNode) -> Vec<(u64, Status)> {
    std::iter::from_fn(|| node.next_quiet()).collect()
}

pub fn with_secret(key: Key, secret: u64) -> Key {
    Key { secret, ..key }
}
