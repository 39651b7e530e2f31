// SPDX-License-Identifier: GPL-2.0

//! A memory node: its regions, from allocation until their pages are zeroed, and the operations on
//! them.
//!
//! Every operation, grant and copy holds a [`Hold`] from its admission until its last byte has
//! landed. A region is *quiet* when it has no holds. Free, seal and revocation apply to new
//! operations at once; [`Node::next_quiet`] reports them when the holds that they concern have
//! ended. That is the promise: after the report, none of these operations touches the region.
//!
//! ```text
//! Live ─seal─► Sealing ─no writes─► Sealed
//! Live | Sealing | Sealed ─free, expiry, owner gone─► Closing ─quiet─► gone
//! ```

use core::ops::DerefMut;

use super::admission::Admission;
use super::arena::{Arena, Counts, Extent, Shortage};
use super::id::{Key, NodeId};
use super::keys::{KeyList, KeySlot, Keys};
use super::payload::EXTENTS_MAX;
use super::rights::{Range, Rights, Scope};
use super::slab::{Slab, Slot};
use super::status::Status;

pub mod admit;
mod close;
mod place;

pub use place::Piece;
#[cfg(not(MODULE))]
pub use place::Pieces;

/// Number of the owner of regions that the node's own host has allocated.
pub const OWNER_LOCAL: u32 = 0;

/// The state of a region: which operations it admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All operations.
    Live,
    /// No new writes; some are still in progress.
    Sealing,
    /// No writes.
    Sealed,
    /// No new operations; some are still in progress.
    Closing,
}

/// A region of the node.
pub struct Region {
    gen: u32,
    state: State,
    len: u64,
    va: u64,
    owner: u32,
    user: Option<u32>,
    keep: bool,
    expires_ms: Option<u64>,
    /// The region goes at this time unless its owner comes back.
    orphaned_ms: Option<u64>,
    first_extent: Option<u32>,
    extents: u32,
    keys: KeyList,
    reads: u32,
    writes: u32,
}

/// An extent in its region's list.
pub struct ExtentEntry {
    run: Extent,
    next: Option<u32>,
}

enum Until {
    Freed,
    Sealed,
    Revoked(u32),
}

/// A request that waits for a region or key to be quiet.
pub struct Drain {
    region: u32,
    gen: u32,
    until: Until,
    waiter: u64,
}

/// The tables of a node.
pub trait Storage {
    /// A bit for each page.
    type Bits: DerefMut<Target = [u64]>;
    /// As many as there may be regions.
    type Regions: DerefMut<Target = [Slot<Region>]>;
    /// As many as all regions may have extents.
    type Extents: DerefMut<Target = [Slot<ExtentEntry>]>;
    /// As many as all regions may have keys.
    type Keys: DerefMut<Target = [KeySlot]>;
    /// As many as may wait for frees, seals and revocations.
    type Drains: DerefMut<Target = [Slot<Drain>]>;
}

/// The configuration of a node.
pub struct Config {
    /// Its id.
    pub id: NodeId,
    /// The admission key that an ALLOC must show, if any.
    pub admission: Admission,
    /// Random, differs each time memory is served. The generations of regions begin with its low
    /// half, so keys of a former incarnation are stale.
    pub incarnation: u64,
    /// Size of a page as a power of two.
    pub page_shift: u32,
    /// Most pages of an extent: what one memory region of the device can have.
    pub run_max: u32,
    /// Most bytes in regions of one owner; the local host has no limit.
    pub owner_bytes_max: u64,
    /// Share of the regions, and of their extents and keys, that one other host can have, in
    /// percent; at least one region.
    pub owner_percent: u32,
    /// Share of the regions and keys that one user of the local host can have, in percent; at
    /// least one region.
    pub user_percent: u32,
    /// A region goes this long after its owner's host is lost.
    pub orphan_ms: u64,
}

/// A request for a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocRequest {
    /// Length in bytes.
    pub len: u64,
    /// Address of its first byte, as the owner has it.
    pub va: u64,
    /// Number of the host that owns it.
    pub owner: u32,
    /// The user of the local host whose share the region counts against; `None`: no share, or
    /// another host, whose users share what it may have.
    pub user: Option<u32>,
    /// The admission key that it has shown.
    pub admission: Key,
    /// It stays when its owner is gone.
    pub keep: bool,
    /// It goes at this time.
    pub expires_ms: Option<u64>,
    /// The time now.
    pub now_ms: u64,
    /// Secret of its first key; random.
    pub secret: u64,
}

/// Permission for one operation, grant or copy to use a region until [`Node::end`] takes it back.
#[derive(Debug)]
#[must_use = "the region is never quiet unless the hold is ended"]
pub struct Hold {
    region: u32,
    gen: u32,
    key: u32,
    write: bool,
    place: u32,
}

impl Hold {
    /// Place of the node among those of its host.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Number and generation of the region.
    pub fn number(&self) -> (u32, u32) {
        (self.region, self.gen)
    }

    /// Number of the region.
    #[cfg(not(MODULE))]
    pub fn region(&self) -> u32 {
        self.region
    }

    /// Whether the operation may write.
    pub fn writes(&self) -> bool {
        self.write
    }
}

/// The answer to INFO about a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Length in bytes.
    pub len: u64,
    /// Address of the first byte.
    pub va: u64,
    /// Rights of the key that was asked with.
    pub rights: Rights,
    /// The state of the region.
    pub state: State,
    /// Keys that are not revoked.
    pub keys: u32,
    /// Operations, grants and copies under way.
    pub holds: u32,
}

/// A region in the administrator's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The region's number.
    pub region: u32,
    /// The generation of that number.
    pub gen: u32,
    /// Length in bytes.
    pub len: u64,
    /// Number of the host that owns it.
    pub owner: u32,
    /// It stays when its owner is gone.
    pub keep: bool,
    /// The state of the region.
    pub state: State,
    /// Operations, grants and copies under way.
    pub holds: u32,
}

/// A memory node.
pub struct Node<S: Storage> {
    cfg: Config,
    arena: Arena<S::Bits>,
    regions: Slab<S::Regions>,
    extents: Slab<S::Extents>,
    keys: Keys<S::Keys>,
    drains: Slab<S::Drains>,
    next_gen: u32,
    no_more: bool,
    /// Place of the node among those of its host.
    place: u32,
    scratch: [Extent; EXTENTS_MAX],
}

impl<S: Storage> Node<S> {
    /// A node with no region and all of its pages dirty.
    pub fn new(
        cfg: Config,
        arena: Arena<S::Bits>,
        regions: S::Regions,
        extents: S::Extents,
        keys: S::Keys,
        drains: S::Drains,
    ) -> Self {
        Self {
            next_gen: cfg.incarnation as u32,
            cfg,
            arena,
            regions: Slab::new(regions),
            extents: Slab::new(extents),
            keys: Keys::new(keys),
            drains: Slab::new(drains),
            no_more: false,
            place: 0,
            scratch: [Extent::default(); EXTENTS_MAX],
        }
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        self.cfg.id
    }

    /// Its incarnation.
    pub fn incarnation(&self) -> u64 {
        self.cfg.incarnation
    }

    /// Pages by state.
    pub fn pages(&self) -> Counts {
        self.arena.counts()
    }

    /// Number of regions, closing ones included.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// The first region with number `from` or a higher one.
    pub fn list_from(&self, from: u32) -> Option<Listed> {
        let mut listed = self.regions.iter().skip_while(|(at, _)| *at < from);
        listed.next().map(|(region, r)| Listed {
            region,
            gen: r.gen,
            len: r.len,
            owner: r.owner,
            keep: r.keep,
            state: r.state,
            holds: r.reads.saturating_add(r.writes),
        })
    }

    /// Whether the node takes no new regions.
    pub fn draining(&self) -> bool {
        self.no_more
    }

    /// Gives the node its place among those of its host, which its holds have, before it has any.
    pub fn set_place(&mut self, place: u32) {
        self.place = place;
    }

    /// Lets the node take no new regions, or take them again.
    pub fn set_draining(&mut self, draining: bool) {
        self.no_more = draining;
    }

    /// Bytes of the regions of `owner`.
    pub fn owner_bytes(&self, owner: u32) -> u64 {
        let theirs = self.regions.iter().filter(|(_, r)| r.owner == owner);
        theirs.fold(0, |sum, (_, r)| sum.saturating_add(r.len))
    }

    /// Whether the host `owner` has its share of the regions or extents.
    fn owner_is_full(&self, owner: u32) -> bool {
        let theirs = self.regions.iter().filter(|(_, r)| r.owner == owner);
        let (regions, extents) = theirs.fold((0_usize, 0_usize), |(regions, extents), (_, r)| {
            let more = extents.saturating_add(r.extents as usize);
            (regions.saturating_add(1), more)
        });
        let percent = self.cfg.owner_percent as usize;
        let share = |room: usize| (room.saturating_mul(percent) / 100).max(1);
        regions >= share(self.regions.room()) || extents >= share(self.extents.room())
    }

    /// Makes room for another key of a region of `owner` and `user`, within their shares and in the
    /// table: drops one that can never be used again if it must. `Quota` or `NoSpace` if there is
    /// none.
    fn room_for_key(&mut self, owner: u32, user: Option<u32>, now_ms: u64) -> Result<(), Status> {
        let (host, user_percent) = (self.cfg.owner_percent, self.cfg.user_percent);
        if owner != OWNER_LOCAL {
            self.room_in_share(host, |r| r.owner == owner, now_ms)?;
        }
        if user.is_some() {
            self.room_in_share(user_percent, |r| r.user == user, now_ms)?;
        }
        if self.keys.is_full() && !self.drop_dead_key(|_| true, now_ms) {
            return Err(Status::NoSpace);
        }
        Ok(())
    }

    /// Room for a key in the share of the regions for which `theirs` is true; one key is always in
    /// the share.
    fn room_in_share(
        &mut self,
        percent: u32,
        theirs: impl Fn(&Region) -> bool,
        now_ms: u64,
    ) -> Result<(), Status> {
        let share = self.keys.room().saturating_mul(percent as usize) / 100;
        // Few keys in all need no count.
        if self.keys.len() < share.max(1) {
            return Ok(());
        }
        let keys = self.regions.iter().filter(|(_, r)| theirs(r));
        let keys = keys.fold(0_usize, |sum, (_, r)| {
            sum.saturating_add(r.keys.len() as usize)
        });
        if keys >= share.max(1) && !self.drop_dead_key(theirs, now_ms) {
            return Err(Status::Quota);
        }
        Ok(())
    }

    /// Drops a key that can never be used again, of a region for which `theirs` is true. False if
    /// there is none.
    fn drop_dead_key(&mut self, theirs: impl Fn(&Region) -> bool, now_ms: u64) -> bool {
        let Self { regions, keys, .. } = self;
        let mut theirs = regions.iter_mut().filter(|(_, r)| theirs(r));
        theirs.any(|(_, r)| keys.drop_dead(&mut r.keys, now_ms))
    }

    /// Whether the share of `user` of the regions is used up.
    fn share_is_full(&self, user: u32) -> bool {
        let theirs = self.regions.iter().filter(|(_, r)| r.user == Some(user));
        let percent = self.cfg.user_percent as usize;
        let share = self.regions.room().saturating_mul(percent) / 100;
        theirs.count() >= share.max(1)
    }

    /// Allocates a region, which is zero; returns its first key, with all rights.
    ///
    /// Errors: `Denied` for a wrong admission key; `Draining`; `Invalid` for no length or an end
    /// beyond the address space; `Quota`; `NoSpace` if pages or places in a table are missing;
    /// `Again` if pages must be zeroed first.
    pub fn alloc(&mut self, req: &AllocRequest) -> Result<Key, Status> {
        self.cfg.admission.check(req.admission)?;
        if self.no_more {
            return Err(Status::Draining);
        }
        if req.len == 0 || req.va.checked_add(req.len).is_none() {
            return Err(Status::Invalid);
        }
        let owned = self.owner_bytes(req.owner).saturating_add(req.len);
        if req.owner != OWNER_LOCAL && owned > self.cfg.owner_bytes_max {
            return Err(Status::Quota);
        }
        if req.owner != OWNER_LOCAL && self.owner_is_full(req.owner) {
            return Err(Status::Quota);
        }
        if req.user.is_some_and(|user| self.share_is_full(user)) {
            return Err(Status::Quota);
        }
        self.room_for_key(req.owner, req.user, req.now_ms)?;
        let page = 1_u64
            .checked_shl(self.cfg.page_shift)
            .ok_or(Status::Invalid)?;
        let pages = u32::try_from(req.len.div_ceil(page)).map_err(|_| Status::NoSpace)?;
        if self.regions.is_full() {
            return Err(Status::NoSpace);
        }
        let runs = self.arena.alloc(pages, self.cfg.run_max, &mut self.scratch);
        let runs = runs.map_err(|why| match why {
            Shortage::Full => Status::NoSpace,
            Shortage::Zeroing => Status::Again,
        })?;
        match self.enter(req, runs) {
            Some(key) => Ok(key),
            None => {
                // No bytes were written: but the arena knows only one way back.
                for run in self.scratch.iter().take(runs) {
                    self.arena.free(*run);
                }
                Err(Status::NoSpace)
            }
        }
    }

    /// Makes a region of the first `runs` extents of the scratch list; `None`, and nothing is kept,
    /// if a table is full.
    fn enter(&mut self, req: &AllocRequest, runs: usize) -> Option<Key> {
        let mut first = None;
        let mut entered = 0_u32;
        for run in self.scratch.iter().take(runs).rev() {
            let entry = ExtentEntry {
                run: *run,
                next: first,
            };
            let Some(at) = self.extents.insert(entry) else {
                self.drop_extents(first);
                return None;
            };
            first = Some(at);
            entered = entered.saturating_add(1);
        }
        let scope = Scope {
            rights: Rights::ALL,
            range: Range {
                off: 0,
                len: req.len,
            },
            expires_ms: None,
            uses: None,
        };
        let mut keys = KeyList::default();
        // No key of an empty list can make room, whatever the time.
        if self
            .keys
            .insert(&mut keys, scope, req.secret, None, 0)
            .is_err()
        {
            self.drop_extents(first);
            return None;
        }
        let gen = self.next_gen.max(1);
        let region = Region {
            gen,
            state: State::Live,
            len: req.len,
            va: req.va,
            owner: req.owner,
            user: req.user,
            keep: req.keep,
            expires_ms: req.expires_ms,
            orphaned_ms: None,
            first_extent: first,
            extents: entered,
            keys,
            reads: 0,
            writes: 0,
        };
        let Some(at) = self.regions.insert(region) else {
            self.keys.remove_all(&mut keys);
            self.drop_extents(first);
            return None;
        };
        self.next_gen = gen.wrapping_add(1);
        Some(Key {
            region: at,
            gen,
            secret: req.secret,
        })
    }

    fn drop_extents(&mut self, mut first: Option<u32>) {
        while let Some(entry) = first.and_then(|at| self.extents.remove(at)) {
            first = entry.next;
        }
    }

    /// A run of at most `most` dirty pages, for the caller to zero and give to [`Self::zeroed`].
    pub fn next_dirty(&mut self, most: u32) -> Option<Extent> {
        self.arena.next_dirty(most)
    }

    /// The caller has zeroed a run.
    pub fn zeroed(&mut self, run: Extent) -> bool {
        self.arena.zeroed(run)
    }
}
