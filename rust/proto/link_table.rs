// SPDX-License-Identifier: GPL-2.0

//! The link table: the state of every channel of a host, found by its number Q (rows L1 to L3).
//!
//! The parties that work on a channel (the program's calls submit, the link transmits and receives,
//! completion reports, the sweep parks) have no state of a channel of their own. Each asks for the entry, is
//! granted it, and writes it back. A grant moves the registers out of the table, so that nobody else can
//! have them: an entry whose registers are out is *locked* (bit L). The table waits on nobody; who finds an entry
//! locked asks again.
//!
//! An owner with a lock of its own may keep a grant instead of writing the entry back: its lock
//! then protects the registers. Work on a hot entry needs neither the table nor the table's lock.
//! To reuse the slot, and for the sweep, the table asks the owner for the grant
//! ([`Storage::recall`]).
//!
//! Where the registers of an entry are, from near to far:
//!
//! - *hot*: a slot with the registers as they are worked on. What is granted comes from here.
//! - *near*: the second tier, sets of a few ways, with parked registers.
//! - *home*: the entry's place in bulk memory, which it has as long as it lives. There is room for its parked
//!   registers, so that parking never fails for want of it.
//!
//! An entry that is asked for comes back into a hot slot; when there is no free one, another entry goes out:
//! one of a few picked at random, better one that was not used lately. It goes to its set in the second tier, and
//! from there somebody goes home. [`LinkTable::sweep`] parks what was not used since it came by last.
//!
//! Numbers start at 1. A number is handed out again only after its entry was removed, and with the next
//! generation, so that a late message for the old channel finds nothing.

use core::ops::{BitAnd, BitOr, DerefMut};

use super::ChanId;

/// What the table keeps of a channel.
pub trait Registers: Sized {
    /// The same, as the lower tiers keep it.
    type Parked;

    /// Parks; `None`: stays hot.
    fn park(&self) -> Option<Self::Parked>;
    /// Brings back what was parked of entry `id`.
    fn unpark(parked: &Self::Parked, id: ChanId) -> Self;
    /// What is to be done about it: any of [`Work::TX`], [`Work::RX`] and [`Work::COMPLETE`].
    fn work(&self) -> Work;
}

/// Work bits of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work(u8);

impl Work {
    /// Nothing is to be done.
    pub const NONE: Self = Self(0);
    /// Submitted: the entry is somebody's.
    pub const SUBMITTED: Self = Self(1);
    /// It has something to transmit.
    pub const TX: Self = Self(2);
    /// Something was received that nobody has consumed.
    pub const RX: Self = Self(4);
    /// It is complete: its owner is to be told, then it can be freed.
    pub const COMPLETE: Self = Self(8);

    /// Whether all bits of `other` are set.
    #[cfg(not(MODULE))]
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

/// The memory of a table, which whoever makes it brings along.
pub trait Storage {
    /// What an entry keeps.
    type Regs: Registers;
    /// Where hot registers lie: they are worked on in place, also while they are granted.
    type Cell: DerefMut<Target = Self::Regs>;
    /// Whose entry it is.
    type Owner;
    /// Hot slots.
    type Hot: DerefMut<Target = [Slot<Self::Cell>]>;
    /// The second tier.
    type L2: DerefMut<Target = [Way<Parked<Self>>]>;
    /// Homes, [`CHUNK`] at a time.
    type Chunk: DerefMut<Target = [Backing<Parked<Self>, Self::Owner>]>;
    /// All chunks that there can be.
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

/// Homes in a chunk of bulk memory.
pub const CHUNK: usize = 64;

/// How many slots are looked at for one that was not used lately.
const TRIES: u32 = 8;

/// A hot slot.
pub struct Slot<B> {
    /// Whose; 0: nobody's.
    q: u32,
    /// Its registers, or free ones; absent while they are granted.
    cell: Option<B>,
    /// Used since the sweep came by.
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
    /// A free one.
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
    /// Nowhere: the number is free.
    Free { next: u32 },
    /// In this hot slot, or granted from there.
    Hot(u32),
    /// In this place of the second tier.
    L2(u32),
    /// At home.
    Backing,
}

/// An entry's place in bulk memory.
pub struct Backing<P, C> {
    gen: u32,
    place: Tier,
    work: Work,
    owner: Option<C>,
    parked: Option<P>,
}

impl<P, C> Backing<P, C> {
    /// One that has never been used; chunks are filled with these.
    pub const fn new() -> Self {
        Self {
            gen: 0,
            place: Tier::Free { next: 0 },
            work: Work::NONE,
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
    /// There is none of that number and generation.
    Unknown,
    /// It has no such work.
    #[cfg(not(MODULE))]
    Idle,
    /// Somebody has it. Ask again.
    Locked,
    /// All hot slots are locked, each by a party that is about to write back. Ask again.
    Crowded,
}

/// An entry that is granted. Must be given to [`LinkTable::write_back`].
#[must_use = "an entry is locked until it is written back"]
pub struct Grant<B> {
    id: ChanId,
    slot: u32,
    cell: B,
    /// Used since the last sweep.
    used: bool,
    /// Uses since the table last asked for it.
    hits: u64,
}

impl<B> Grant<B> {
    /// Which.
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

/// What has happened in a table, and what is in it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Entries that there are.
    pub entries: u32,
    /// Of them in hot slots,
    pub hot: u32,
    /// and in the second tier.
    pub l2: u32,
    /// Grants of entries that were hot,
    pub hits: u64,
    /// that came back from the second tier,
    pub l2_hits: u64,
    /// and that came back from home.
    pub faults: u64,
    /// Entries that were parked by the sweep,
    pub parked: u64,
    /// and because slots ran short.
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
    /// 1 + index of the first free slot, 0: none.
    free_slot: u32,
    /// The first free number that was used before, 0: none.
    free: u32,
    /// Numbers up to here have been used.
    fresh: u32,
    /// Numbers that have a home.
    backings: u32,
    hand: u32,
    random: u64,
    stats: TableStats,
}

impl<S: Storage> LinkTable<S> {
    /// An empty table. `ways`: places in each set of the second tier, of which `l2` holds a whole number;
    /// `seed`: for the random placement. `None` without a hot slot, or with a set that is not whole.
    pub fn new(mut hot: S::Hot, l2: S::L2, ways: u32, bulk: S::Bulk, seed: u64) -> Option<Self> {
        let whole = u32::try_from(l2.len()).ok()?.checked_rem(ways)? == 0;
        if hot.is_empty() || !whole || u32::try_from(hot.len()).is_err() {
            return None;
        }
        let mut free_slot = 0;
        for (slot, number) in hot.iter_mut().zip(1..) {
            slot.next_free = free_slot;
            free_slot = number;
        }
        Some(Self {
            hot,
            l2,
            ways,
            bulk,
            free_slot,
            free: 0,
            fresh: 0,
            backings: 0,
            hand: 0,
            random: seed | 1,
            stats: TableStats::default(),
        })
    }

    /// What has happened. Hits of kept grants are included once [`Self::count_hits`] or the sweep
    /// has collected them.
    pub fn stats(&self) -> TableStats {
        self.stats
    }

    /// Collects the hits of kept grants from `slots` hot slots, beginning at `first`. Returns
    /// whether there are more slots.
    pub fn count_hits(&mut self, first: u32, slots: u32) -> bool {
        let end = first.saturating_add(slots);
        for index in first..end.min(self.hot.len() as u32) {
            self.recall(index, Wanted::None);
        }
        (end as usize) < self.hot.len()
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

    /// Takes a free entry for `owner`, with the registers that `make` gives it: W and what they want.
    /// Gives the owner back when there is no home for it (see [`Self::wants_chunk`]).
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
        let work = Work::SUBMITTED | regs.work();
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
            backing.work = work;
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

    /// Whose entry `id` is.
    #[cfg(not(MODULE))]
    pub fn owner(&self, id: ChanId) -> Option<&S::Owner> {
        self.backing(id.index)?.of(id)?.owner.as_ref()
    }

    /// The work bits of entry `id`, as they were last written back.
    #[cfg(not(MODULE))]
    pub fn work(&self, id: ChanId) -> Work {
        let backing = self.backing(id.index).and_then(|backing| backing.of(id));
        backing.map_or(Work::NONE, |backing| backing.work)
    }

    /// The first entry whose number is at least `q`: its number, and whose it is.
    #[cfg(not(MODULE))]
    pub fn next_from(&self, q: u32) -> Option<(u32, &S::Owner)> {
        let (at, owner) = self.look_from(q, u32::MAX)?;
        owner.map(|owner| (at, owner))
    }

    /// The same, but looks at `most` numbers only, so that the lock is not held for long: without an owner,
    /// there is none before the number that is returned. `None` at the end.
    pub fn look_from(&self, q: u32, most: u32) -> Option<(u32, Option<&S::Owner>)> {
        let first = q.max(1);
        let end = first.saturating_add(most).min(self.fresh.saturating_add(1));
        if first >= end {
            return None;
        }
        let owner = |q| Some((q, Some(self.backing(q)?.owner.as_ref()?)));
        (first..end).find_map(owner).or(Some((end, None)))
    }

    /// Asks for entry `id`.
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
            id,
            slot: index,
            cell: cell.ok_or(GrantError::Locked)?,
            used: true,
            hits: 0,
        })
    }

    /// Asks for entry `id` if it has all of `work`.
    #[cfg(not(MODULE))]
    pub fn grant_for(&mut self, id: ChanId, work: Work) -> Result<Grant<S::Cell>, GrantError> {
        if self.owner(id).is_some() && !self.work(id).has(work) {
            return Err(GrantError::Idle);
        }
        self.grant(id)
    }

    /// Ends a grant: what the registers say now is the entry's state.
    pub fn write_back(&mut self, grant: Grant<S::Cell>) {
        self.stats.hits = self.stats.hits.wrapping_add(grant.hits);
        let work = Work::SUBMITTED | grant.cell.work();
        if let Some(backing) = self.backing_mut(grant.id.index) {
            backing.work = work;
        }
        if let Some(slot) = self.hot.get_mut(grant.slot as usize) {
            slot.cell = Some(grant.cell);
        }
    }

    /// Frees entry `id` and gives back whose it was. [`GrantError::Locked`] while somebody has it.
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
        backing.work = Work::NONE;
        let owner = backing.owner.take().ok_or(GrantError::Unknown);
        self.free = id.index;
        self.stats.entries = self.stats.entries.wrapping_sub(1);
        owner
    }

    /// Looks at the next `slots` hot slots, and parks what was neither used since the last time nor is
    /// locked; `parked` is told whose.
    pub fn sweep(&mut self, slots: u32, mut parked: impl FnMut(ChanId, &S::Owner)) {
        let all = self.hot.len() as u32;
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

    /// xorshift64: which slot makes room is nobody's to foresee who does not know the seed.
    fn below(&mut self, n: usize) -> u32 {
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        (x >> 32).checked_rem(n as u64).unwrap_or(0) as u32
    }

    /// Brings entry `id` into a hot slot from `place`; the slot. `None` when all are locked.
    fn fault_in(&mut self, id: ChanId, place: Tier) -> Option<u32> {
        let l2 = match place {
            Tier::L2(index) => Some(index),
            _ => None,
        };
        // What is put into the second tier for it may need the place of this one.
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
            self.stats.hot = self.stats.hot.wrapping_add(1);
        }
    }

    /// A slot that is free, or made free.
    fn room(&mut self) -> Option<u32> {
        if self.free_slot == 0 {
            self.evict()?;
        }
        let index = self.free_slot.checked_sub(1)?;
        let slot = self.hot.get_mut(index as usize)?;
        self.free_slot = slot.next_free;
        Some(index)
    }

    /// Parks an entry that is not locked: the first of a few at random that was not used lately, or else the
    /// next one behind the last of them.
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

    /// Parks what is in hot slot `index`, which is not locked; frees the slot.
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

    /// Puts parked registers into their set of the second tier; who is in the way goes home.
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
    /// This home, if it is that of a live entry of this generation.
    fn of(&self, id: ChanId) -> Option<&Self> {
        (self.gen == id.gen && self.owner.is_some()).then_some(self)
    }
}

/// Which of `sets` is that of number `q`. Numbers that follow each other are in different sets, and so are mostly
/// those with a stride between them: the high bits of a product with the golden ratio.
fn spread(q: u32, sets: u32) -> u32 {
    let part = u64::from(q.wrapping_mul(0x9e37_79b1));
    (part.wrapping_mul(u64::from(sets)) >> 32) as u32
}
