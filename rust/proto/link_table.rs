// SPDX-License-Identifier: GPL-2.0

//! The link table: the state of every channel of a host, found by its number Q.
//!
//! The parties that work on a channel (a program's calls, the transmitter, the receiver, completion
//! and the sweep) have no own state for it. Each requests the entry, is granted it, and
//! writes it back. A grant moves the registers out of the table, so no other party can have them:
//! the entry is then *locked* (bit L). The table does not wait. A party that finds an entry locked
//! requests it again.
//!
//! An owner that has its own lock may keep a grant instead of writing the entry back: its lock
//! then protects the registers. Work on a hot entry needs neither the table nor the table's lock.
//! To reuse the slot, and for the sweep, the table asks the owner for the grant
//! ([`Storage::recall`]).
//!
//! Where the registers of an entry are, from near to far:
//!
//! - *hot*: a slot with the registers in working form. Grants are made from here.
//! - *near*: the second tier (L2), sets of a few ways, with parked registers.
//! - *home*: the entry's place in the backing store, for as long as the entry lives. It has room
//!   for the parked registers, so parking never fails for lack of room.
//!
//! A requested entry is faulted into a hot slot. If none is free, another entry is evicted: one of
//! a few picked at random, preferably one that was not used lately. It is evicted to its set in L2,
//! which may evict another entry to the backing store. [`LinkTable::sweep`] parks entries that were
//! not used since its last pass.
//!
//! Numbers start at 1. A number is reused only after its entry was removed, and with the next
//! generation, so a late message for the old channel finds no entry.

use core::ops::DerefMut;

use super::ChanId;

/// The state of a channel that the table stores.
pub trait Registers: Sized {
    /// The compact form of the state in the lower tiers.
    type Parked;

    /// Returns the parked form; `None`: the state must stay hot.
    fn park(&self) -> Option<Self::Parked>;
    /// Restores the registers of entry `id` from their parked form.
    fn unpark(parked: &Self::Parked, id: ChanId) -> Self;
}

/// The memory of a table, provided by its creator.
pub trait Storage {
    /// The registers of an entry.
    type Regs: Registers;
    /// The memory of hot registers, which are modified in place, also while they are granted.
    type Cell: DerefMut<Target = Self::Regs>;
    /// The owner of an entry.
    type Owner;
    /// Hot slots.
    type Hot: DerefMut<Target = [Slot<Self::Cell>]>;
    /// The second tier.
    type L2: DerefMut<Target = [Way<Parked<Self>>]>;
    /// [`CHUNK`] homes of the backing store.
    type Chunk: DerefMut<Target = [Backing<Parked<Self>, Self::Owner>]>;
    /// The array of all possible chunks.
    type Bulk: DerefMut<Target = [Option<Self::Chunk>]>;

    /// Asks `owner` for the grant of its entry `id`, if the owner keeps one. The owner returns the
    /// grant unless a thread works on the registers or [`Recall::wants`] declines it. Must not
    /// wait.
    fn recall(owner: &Self::Owner, id: ChanId, recall: &mut Recall) -> Option<Grant<Self::Cell>> {
        let _ = (owner, id, recall);
        None
    }
}

/// Which kept grants the table wants back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// None; only the hits are counted.
    None,
    /// Those that were not used since the last sweep.
    Unused,
    /// The same, asked by the sweep.
    Aged,
    /// All.
    Any,
}

/// A request to an owner for the grant that it keeps.
#[derive(Debug)]
pub struct Recall {
    wanted: Wanted,
    hits: u64,
}

impl Recall {
    /// Whether the owner must return `grant`.
    pub fn wants<B>(&mut self, grant: &mut Grant<B>) -> bool {
        self.hits = self.hits.wrapping_add(core::mem::take(&mut grant.hits));
        match self.wanted {
            Wanted::None => false,
            Wanted::Unused => !grant.used,
            Wanted::Aged => !core::mem::take(&mut grant.used),
            Wanted::Any => true,
        }
    }
}

/// Parked registers in storage `S`.
pub type Parked<S> = <<S as Storage>::Regs as Registers>::Parked;

/// Homes in a chunk of the backing store.
pub const CHUNK: usize = 64;

/// How many random slots an eviction checks for one that was not used lately.
const TRIES: u32 = 8;

/// A hot slot.
pub struct Slot<B> {
    /// The number of the entry in the slot; 0: the slot is free.
    q: u32,
    /// The registers, of any content if the slot is free; `None` while they are granted.
    cell: Option<B>,
    /// The entry was used since the last pass of the sweep.
    used: bool,
    next_free: u32,
}

impl<B> Slot<B> {
    /// A free slot with a place for registers, of any content.
    pub fn new(cell: B) -> Self {
        Self {
            q: 0,
            cell: Some(cell),
            used: false,
            next_free: 0,
        }
    }
}

/// A place in the second tier.
pub struct Way<P>(Option<(u32, P)>);

impl<P> Way<P> {
    /// A free place.
    pub const fn new() -> Self {
        Self(None)
    }
}

impl<P> Default for Way<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the registers of an entry are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// The number is free.
    Free { next: u32 },
    /// In this hot slot, or granted from it.
    Hot(u32),
    /// In this place of the second tier.
    L2(u32),
    /// At its home in the backing store.
    Backing,
}

/// An entry's home in the backing store.
pub struct Backing<P, C> {
    gen: u32,
    place: Tier,
    owner: Option<C>,
    parked: Option<P>,
}

impl<P, C> Backing<P, C> {
    /// A home that has never been used; new chunks are filled with these.
    pub const fn new() -> Self {
        Self {
            gen: 0,
            place: Tier::Free { next: 0 },
            owner: None,
            parked: None,
        }
    }
}

impl<P, C> Default for Backing<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Why an entry is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantError {
    /// No entry has this number and generation.
    Unknown,
    /// The entry is granted to another party. Try again.
    Locked,
    /// All hot slots are locked, each by a party that will write back soon. Try again.
    Crowded,
}

/// A granted entry. The owner must pass it to [`LinkTable::write_back`].
#[must_use = "an entry is locked until it is written back"]
pub struct Grant<B> {
    #[cfg(not(MODULE))]
    id: ChanId,
    slot: u32,
    cell: B,
    /// Used since the last sweep.
    used: bool,
    /// Uses since the table last collected the count.
    hits: u64,
}

impl<B> Grant<B> {
    /// The entry's id.
    #[cfg(not(MODULE))]
    pub fn id(&self) -> ChanId {
        self.id
    }

    /// Its registers.
    pub fn regs(&self) -> &B {
        &self.cell
    }

    /// Its registers.
    pub fn regs_mut(&mut self) -> &mut B {
        &mut self.cell
    }

    /// Its registers, for further work under a kept grant.
    pub fn regs_again(&mut self) -> &mut B {
        self.used = true;
        self.hits = self.hits.wrapping_add(1);
        &mut self.cell
    }
}

/// Counters of a table, and its present fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Entries in use.
    pub entries: u32,
    /// Entries in hot slots.
    pub hot: u32,
    /// Entries in L2.
    pub l2: u32,
    /// Grants of entries that were hot.
    pub hits: u64,
    /// Grants of entries that were faulted in from L2.
    pub l2_hits: u64,
    /// Grants of entries that were faulted in from the backing store.
    pub faults: u64,
    /// Entries that the sweep parked.
    pub parked: u64,
    /// Entries that were evicted to free a hot slot.
    pub evicted: u64,
    /// Requests that were denied because the entry, or every slot, was locked.
    pub contended: u64,
}

/// The table.
pub struct LinkTable<S: Storage> {
    hot: S::Hot,
    l2: S::L2,
    ways: u32,
    bulk: S::Bulk,
    /// 1 + index of the first free slot; 0: none.
    free_slot: u32,
    /// Hot slots from the first to the last that was ever used.
    reached: u32,
    /// The first free number that was used before; 0: none.
    free: u32,
    /// The highest number that was ever used.
    fresh: u32,
    /// Numbers that have a home.
    backings: u32,
    hand: u32,
    random: u64,
    stats: TableStats,
}

impl<S: Storage> LinkTable<S> {
    /// An empty table. `ways`: places in each set of the second tier; `l2` holds a whole number
    /// of sets; `seed`: for the random placement. `None` without a hot slot, or with a set that is
    /// not whole.
    pub fn new(mut hot: S::Hot, l2: S::L2, ways: u32, bulk: S::Bulk, seed: u64) -> Option<Self> {
        let whole = u32::try_from(l2.len()).ok()?.checked_rem(ways)? == 0;
        if hot.is_empty() || !whole || u32::try_from(hot.len()).is_err() {
            return None;
        }
        // The first slots are used first, so that few entries need a short sweep.
        let last = hot.len() as u32;
        for (slot, number) in hot.iter_mut().zip(1_u32..) {
            slot.next_free = number
                .wrapping_add(1)
                .checked_rem(last.wrapping_add(1))
                .unwrap_or(0);
        }
        Some(Self {
            hot,
            l2,
            ways,
            bulk,
            free_slot: 1,
            reached: 0,
            free: 0,
            fresh: 0,
            backings: 0,
            hand: 0,
            random: seed | 1,
            stats: TableStats::default(),
        })
    }

    /// The counters. Hits of kept grants are included once [`Self::count_hits`] or the sweep
    /// has collected them.
    pub fn stats(&self) -> TableStats {
        self.stats
    }

    /// Collects the hits of kept grants from `slots` hot slots, beginning at `first`. Returns
    /// whether there are more slots.
    pub fn count_hits(&mut self, first: u32, slots: u32) -> bool {
        let end = first.saturating_add(slots);
        for index in first..end.min(self.reached) {
            self.recall(index, Wanted::None);
        }
        end < self.reached
    }

    /// Hot slots that a pass of the sweep, or of [`Self::count_hits`], looks at.
    pub fn reached(&self) -> u32 {
        self.reached
    }

    /// Numbers that have a home.
    pub fn backings(&self) -> u32 {
        self.backings
    }

    /// Entries.
    pub fn len(&self) -> u32 {
        self.stats.entries
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the next entry needs a further chunk, and may have one.
    pub fn wants_chunk(&self) -> bool {
        let full = self.free == 0 && self.fresh >= self.backings;
        full && self.bulk.iter().any(Option::is_none)
    }

    /// Takes a chunk of [`CHUNK`] new homes; gives it back if no more may be had.
    pub fn add_chunk(&mut self, chunk: S::Chunk) -> Option<S::Chunk> {
        let place = self.bulk.iter_mut().find(|place| place.is_none());
        match place {
            Some(place) if chunk.len() == CHUNK => {
                *place = Some(chunk);
                self.backings = self.backings.wrapping_add(CHUNK as u32);
                None
            }
            _ => Some(chunk),
        }
    }

    /// Takes a free entry for `owner`, with the registers that `make` returns. Returns the owner as
    /// the error if there is no home for the entry (see [`Self::wants_chunk`]), or if no slot can
    /// be freed and the registers cannot be parked.
    pub fn submit(
        &mut self,
        owner: S::Owner,
        make: impl FnOnce(ChanId) -> S::Regs,
    ) -> Result<ChanId, S::Owner> {
        let q = match self.free {
            0 => self.fresh.wrapping_add(1),
            q => q,
        };
        let Some(backing) = self.backing(q) else {
            return Err(owner);
        };
        let next = match backing.place {
            Tier::Free { next } => next,
            _ => 0,
        };
        let id = ChanId {
            index: q,
            gen: backing.gen.wrapping_add(1),
        };
        let regs = make(id);
        let (place, parked) = match self.room() {
            Some(index) => {
                self.fill(index, q, regs);
                (Tier::Hot(index), None)
            }
            None => match regs.park() {
                Some(parked) => (Tier::Backing, Some(parked)),
                None => return Err(owner),
            },
        };
        if let Some(backing) = self.backing_mut(q) {
            backing.gen = id.gen;
            backing.owner = Some(owner);
            backing.parked = parked;
            backing.place = place;
        }
        if self.free == 0 {
            self.fresh = q;
        } else {
            self.free = next;
        }
        self.stats.entries = self.stats.entries.wrapping_add(1);
        Ok(id)
    }

    /// The owner of entry `id`.
    #[cfg(not(MODULE))]
    pub fn owner(&self, id: ChanId) -> Option<&S::Owner> {
        self.backing(id.index)?.of(id)?.owner.as_ref()
    }

    /// The first entry whose number is at least `q`: its number and its owner.
    #[cfg(not(MODULE))]
    pub fn next_from(&self, q: u32) -> Option<(u32, &S::Owner)> {
        let (at, owner) = self.look_from(q, u32::MAX)?;
        owner.map(|owner| (at, owner))
    }

    /// As `next_from`, but checks at most `most` numbers, to keep the hold of the lock short. If no
    /// owner is returned, there is no entry before the returned number. `None` at the end of the
    /// table.
    pub fn look_from(&self, q: u32, most: u32) -> Option<(u32, Option<&S::Owner>)> {
        let first = q.max(1);
        let end = first.saturating_add(most).min(self.fresh.saturating_add(1));
        if first >= end {
            return None;
        }
        let owner = |q| Some((q, Some(self.backing(q)?.owner.as_ref()?)));
        (first..end).find_map(owner).or(Some((end, None)))
    }

    /// Requests entry `id`.
    pub fn grant(&mut self, id: ChanId) -> Result<Grant<S::Cell>, GrantError> {
        let backing = self.backing(id.index).and_then(|backing| backing.of(id));
        let place = backing.ok_or(GrantError::Unknown)?.place;
        let index = match place {
            Tier::Free { .. } => return Err(GrantError::Unknown),
            Tier::Hot(index) => index,
            Tier::L2(_) | Tier::Backing => self.fault_in(id, place).ok_or_else(|| {
                self.count(|stats| &mut stats.contended);
                GrantError::Crowded
            })?,
        };
        let hit = matches!(place, Tier::Hot(_));
        let slot = self
            .hot
            .get_mut(index as usize)
            .ok_or(GrantError::Unknown)?;
        slot.used = true;
        let cell = slot.cell.take();
        if hit && cell.is_some() {
            self.count(|stats| &mut stats.hits);
        } else if hit {
            self.count(|stats| &mut stats.contended);
        }
        Ok(Grant {
            #[cfg(not(MODULE))]
            id,
            slot: index,
            cell: cell.ok_or(GrantError::Locked)?,
            used: true,
            hits: 0,
        })
    }

    /// Ends a grant: the registers become the entry's state.
    pub fn write_back(&mut self, grant: Grant<S::Cell>) {
        self.stats.hits = self.stats.hits.wrapping_add(grant.hits);
        if let Some(slot) = self.hot.get_mut(grant.slot as usize) {
            slot.cell = Some(grant.cell);
        }
    }

    /// Frees entry `id` and returns its owner. [`GrantError::Locked`] while the entry is granted.
    pub fn remove(&mut self, id: ChanId) -> Result<S::Owner, GrantError> {
        let backing = self.backing(id.index).and_then(|backing| backing.of(id));
        match backing.ok_or(GrantError::Unknown)?.place {
            Tier::Free { .. } => return Err(GrantError::Unknown),
            Tier::Hot(index) => {
                let slot = self.hot.get(index as usize).ok_or(GrantError::Unknown)?;
                if slot.cell.is_none() {
                    self.count(|stats| &mut stats.contended);
                    return Err(GrantError::Locked);
                }
                self.free_slot(index);
            }
            Tier::L2(index) => drop(self.take_l2(index)),
            Tier::Backing => {}
        }
        let next = self.free;
        let backing = self.backing_mut(id.index).ok_or(GrantError::Unknown)?;
        backing.place = Tier::Free { next };
        backing.parked = None;
        let owner = backing.owner.take().ok_or(GrantError::Unknown);
        self.free = id.index;
        self.stats.entries = self.stats.entries.wrapping_sub(1);
        owner
    }

    /// Checks the next `slots` hot slots, and parks each entry that is not locked and was not used
    /// since the last pass. Calls `parked` for each of them.
    pub fn sweep(&mut self, slots: u32, mut parked: impl FnMut(ChanId, &S::Owner)) {
        let all = self.reached;
        for _ in 0..slots.min(all) {
            let index = self.hand;
            self.hand = index.wrapping_add(1).checked_rem(all).unwrap_or(0);
            let Some(slot) = self.hot.get_mut(index as usize) else {
                return;
            };
            let q = slot.q;
            let used = core::mem::take(&mut slot.used);
            let idle = match slot.cell {
                Some(_) => !used && q != 0,
                None => self.recall(index, Wanted::Aged),
            };
            if idle && self.park(index) {
                self.count(|stats| &mut stats.parked);
                if let Some(backing) = self.backing(q) {
                    let id = ChanId {
                        index: q,
                        gen: backing.gen,
                    };
                    if let Some(owner) = &backing.owner {
                        parked(id, owner);
                    }
                }
            }
        }
    }

    fn count(&mut self, what: impl FnOnce(&mut TableStats) -> &mut u64) {
        let counter = what(&mut self.stats);
        *counter = counter.wrapping_add(1);
    }

    fn backing(&self, q: u32) -> Option<&Backing<Parked<S>, S::Owner>> {
        let index = usize::try_from(q.checked_sub(1)?).ok()?;
        let chunk = self.bulk.get(index / CHUNK)?.as_ref()?;
        chunk.get(index % CHUNK)
    }

    fn backing_mut(&mut self, q: u32) -> Option<&mut Backing<Parked<S>, S::Owner>> {
        let index = usize::try_from(q.checked_sub(1)?).ok()?;
        let chunk = self.bulk.get_mut(index / CHUNK)?.as_mut()?;
        chunk.get_mut(index % CHUNK)
    }

    /// A random number below `n` (xorshift64), so that evictions cannot be predicted without the
    /// seed.
    fn below(&mut self, n: usize) -> u32 {
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        (x >> 32).checked_rem(n as u64).unwrap_or(0) as u32
    }

    /// Moves entry `id` from `place` into a hot slot, and returns the slot. `None` if all are
    /// locked.
    fn fault_in(&mut self, id: ChanId, place: Tier) -> Option<u32> {
        let l2 = match place {
            Tier::L2(index) => Some(index),
            _ => None,
        };
        // Freeing a hot slot may put another entry into L2, and evict this one from there: take it
        // out first.
        let parked = match l2 {
            Some(index) => self.take_l2(index)?.1,
            None => self.backing_mut(id.index)?.parked.take()?,
        };
        let Some(index) = self.room() else {
            let backing = self.backing_mut(id.index)?;
            backing.parked = Some(parked);
            backing.place = Tier::Backing;
            return None;
        };
        self.fill(index, id.index, S::Regs::unpark(&parked, id));
        self.backing_mut(id.index)?.place = Tier::Hot(index);
        match l2 {
            Some(_) => self.count(|stats| &mut stats.l2_hits),
            None => self.count(|stats| &mut stats.faults),
        }
        Some(index)
    }

    /// Puts registers into a slot from [`Self::room`].
    fn fill(&mut self, index: u32, q: u32, regs: S::Regs) {
        if let Some(slot) = self.hot.get_mut(index as usize) {
            slot.q = q;
            slot.used = true;
            if let Some(cell) = &mut slot.cell {
                **cell = regs;
            }
            self.reached = self.reached.max(index.wrapping_add(1));
            self.stats.hot = self.stats.hot.wrapping_add(1);
        }
    }

    /// Takes a free slot; evicts an entry if there is none.
    fn room(&mut self) -> Option<u32> {
        if self.free_slot == 0 {
            self.evict()?;
        }
        let index = self.free_slot.checked_sub(1)?;
        let slot = self.hot.get_mut(index as usize)?;
        self.free_slot = slot.next_free;
        Some(index)
    }

    /// Parks an entry that is not locked: the first of a few random ones that was not used lately,
    /// or else the next possible one after the last of them.
    fn evict(&mut self) -> Option<()> {
        let slots = self.hot.len();
        let mut at = 0;
        for _ in 0..TRIES {
            at = self.below(slots);
            let slot = self.hot.get(at as usize)?;
            let idle = match slot.cell {
                Some(_) => !slot.used,
                None => self.recall(at, Wanted::Unused),
            };
            if idle && self.park(at) {
                self.count(|stats| &mut stats.evicted);
                return Some(());
            }
        }
        for _ in 0..slots {
            at = at.wrapping_add(1).checked_rem(slots as u32)?;
            let here = self.hot.get(at as usize)?.cell.is_some();
            if (here || self.recall(at, Wanted::Any)) && self.park(at) {
                self.count(|stats| &mut stats.evicted);
                return Some(());
            }
        }
        None
    }

    /// Asks the owner of the entry in hot slot `index` for its grant, if it keeps one. Returns
    /// whether the registers are in the slot now.
    fn recall(&mut self, index: u32, wanted: Wanted) -> bool {
        let slot = self.hot.get(index as usize);
        let Some(q) = slot.filter(|slot| slot.cell.is_none()).map(|slot| slot.q) else {
            return false;
        };
        let mut recall = Recall { wanted, hits: 0 };
        let back = self.backing(q).and_then(|backing| {
            let id = ChanId {
                index: q,
                gen: backing.gen,
            };
            S::recall(backing.owner.as_ref()?, id, &mut recall)
        });
        self.stats.hits = self.stats.hits.wrapping_add(recall.hits);
        match back {
            Some(grant) => {
                self.write_back(grant);
                true
            }
            None => false,
        }
    }

    /// Parks the entry in hot slot `index`, unless it is locked, and frees the slot.
    fn park(&mut self, index: u32) -> bool {
        let Some(slot) = self.hot.get(index as usize) else {
            return false;
        };
        let (q, parked) = match &slot.cell {
            Some(cell) if slot.q != 0 => (slot.q, cell.park()),
            _ => return false,
        };
        let Some(parked) = parked else { return false };
        self.free_slot(index);
        self.put_l2(q, parked);
        true
    }

    fn free_slot(&mut self, index: u32) {
        let next = self.free_slot;
        if let Some(slot) = self.hot.get_mut(index as usize) {
            slot.q = 0;
            slot.used = false;
            slot.next_free = next;
            self.free_slot = index.wrapping_add(1);
            self.stats.hot = self.stats.hot.wrapping_sub(1);
        }
    }

    /// Puts parked registers into their set of L2; evicts another entry to the backing store if the
    /// set is full.
    fn put_l2(&mut self, q: u32, parked: Parked<S>) {
        let sets = (self.l2.len() as u32).checked_div(self.ways).unwrap_or(0);
        if sets == 0 {
            self.put_backing(q, parked);
            return;
        }
        let first = spread(q, sets).wrapping_mul(self.ways);
        let mut set = self.l2.iter().skip(first as usize);
        let free = set
            .by_ref()
            .take(self.ways as usize)
            .position(|way| way.0.is_none());
        let index = match free {
            Some(way) => first.wrapping_add(way as u32),
            None => first.wrapping_add(self.below(self.ways as usize)),
        };
        if let Some((other, parked)) = self.take_l2(index) {
            self.put_backing(other, parked);
        }
        if let Some(way) = self.l2.get_mut(index as usize) {
            way.0 = Some((q, parked));
            self.stats.l2 = self.stats.l2.wrapping_add(1);
        }
        if let Some(backing) = self.backing_mut(q) {
            backing.place = Tier::L2(index);
        }
    }

    fn put_backing(&mut self, q: u32, parked: Parked<S>) {
        if let Some(backing) = self.backing_mut(q) {
            backing.parked = Some(parked);
            backing.place = Tier::Backing;
        }
    }

    fn take_l2(&mut self, index: u32) -> Option<(u32, Parked<S>)> {
        let taken = self.l2.get_mut(index as usize)?.0.take()?;
        self.stats.l2 = self.stats.l2.wrapping_sub(1);
        Some(taken)
    }
}

impl<P, C> Backing<P, C> {
    /// Returns this home if it belongs to a live entry of this generation.
    fn of(&self, id: ChanId) -> Option<&Self> {
        (self.gen == id.gen && self.owner.is_some()).then_some(self)
    }
}

/// The set of number `q`, of `sets` sets. Consecutive numbers are in different sets, and so,
/// mostly, are numbers with a constant stride: the set is the high bits of a product with the
/// golden ratio.
fn spread(q: u32, sets: u32) -> u32 {
    let part = u64::from(q.wrapping_mul(0x9e37_79b1));
    (part.wrapping_mul(u64::from(sets)) >> 32) as u32
}
