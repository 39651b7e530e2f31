// SPDX-License-Identifier: GPL-2.0

//! The keys of a node's regions: lookup, derivation, revocation, and the operations that each key
//! has let in.
//!
//! Revoking a key revokes all keys derived from it. A revoked key stays in the table while an
//! operation or grant that it let in is under way: that is how the node knows when revocation is
//! complete. After that it stays until a place is needed, so that its holder is told that it is
//! stale rather than wrong.

use core::ops::DerefMut;

use super::rights::{Rights, Scope};
use super::slab::{Slab, Slot};
use super::status::Status;

/// Most keys of a region, revoked ones among them.
pub const KEYS_PER_REGION: u32 = 64;

/// A key as the node has it.
pub struct KeyEntry {
    secret: u64,
    scope: Scope,
    parent: Option<u32>,
    /// Keys in the table that were derived from it directly.
    children: u32,
    revoked: bool,
    /// Operations and grants under way that only read.
    reads: u32,
    /// Those that may write.
    writes: u32,
    /// Revocations that wait for these.
    waiters: u32,
    next: Option<u32>,
}

/// The keys of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyList {
    first: Option<u32>,
    len: u32,
}

impl KeyList {
    /// Keys in the list, revoked ones among them.
    pub fn len(self) -> u32 {
        self.len
    }

    /// Whether there is no key.
    #[cfg(not(MODULE))]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Storage for one key.
pub type KeySlot = Slot<KeyEntry>;

/// The keys of all regions of a node.
pub struct Keys<S>(Slab<S>);

impl<S: DerefMut<Target = [KeySlot]>> Keys<S> {
    /// An empty table.
    pub fn new(slots: S) -> Self {
        Self(Slab::new(slots))
    }

    fn list(&self, list: KeyList) -> impl Iterator<Item = (u32, &KeyEntry)> {
        let entry = |at: Option<u32>| at.and_then(|at| self.0.get(at).map(|k| (at, k)));
        core::iter::successors(entry(list.first), move |(_, k)| entry(k.next))
            .take(list.len as usize)
    }

    /// The key with that secret. The time depends on the number of keys alone.
    pub fn find(&self, list: KeyList, secret: u64) -> Option<u32> {
        let mut found = None;
        for (at, key) in self.list(list) {
            let differ = core::hint::black_box(key.secret ^ secret);
            found = if differ == 0 { Some(at) } else { found };
        }
        found
    }

    /// What the key allows. `Stale` if it is revoked, expired or used up.
    pub fn check(&self, at: u32, now_ms: u64) -> Result<Scope, Status> {
        let key = self.0.get(at).ok_or(Status::Stale)?;
        if key.revoked || key.scope.expired(now_ms) || key.scope.uses == Some(0) {
            return Err(Status::Stale);
        }
        Ok(key.scope)
    }

    /// Whether operations that the key let in must stop: it is revoked or expired. Being used up
    /// ends none.
    pub fn must_stop(&self, at: u32, now_ms: u64) -> bool {
        let key = self.0.get(at);
        key.is_none_or(|k| k.revoked || k.scope.expired(now_ms))
    }

    /// Adds a key to a region's list. `NoSpace` if there is no place for it in the list, or none in
    /// the table: see [`Self::drop_dead`].
    pub fn insert(
        &mut self,
        list: &mut KeyList,
        scope: Scope,
        secret: u64,
        parent: Option<u32>,
        now_ms: u64,
    ) -> Result<u32, Status> {
        if list.len >= KEYS_PER_REGION && !self.drop_dead(list, now_ms) {
            return Err(Status::NoSpace);
        }
        let entry = KeyEntry {
            secret,
            scope,
            parent,
            children: 0,
            revoked: false,
            reads: 0,
            writes: 0,
            waiters: 0,
            next: list.first,
        };
        let at = self.0.insert(entry).ok_or(Status::NoSpace)?;
        if let Some(parent) = parent.and_then(|at| self.0.get_mut(at)) {
            parent.children = parent.children.saturating_add(1);
        }
        list.first = Some(at);
        list.len = list.len.saturating_add(1);
        Ok(at)
    }

    /// Drops one key of a region that is revoked, used up or expired, idle, and no key's parent.
    /// False if there is none.
    pub fn drop_dead(&mut self, list: &mut KeyList, now_ms: u64) -> bool {
        let ended = |k: &KeyEntry| k.revoked || k.scope.uses == Some(0) || k.scope.expired(now_ms);
        let unused = |k: &KeyEntry| k.reads == 0 && k.writes == 0 && k.waiters == 0;
        let dead = self
            .list(*list)
            .find(|(_, k)| ended(k) && unused(k) && k.children == 0);
        let Some((dead, next, parent)) = dead.map(|(at, k)| (at, k.next, k.parent)) else {
            return false;
        };
        let before = self.list(*list).find(|(_, k)| k.next == Some(dead));
        match before.map(|(at, _)| at).and_then(|at| self.0.get_mut(at)) {
            Some(before) => before.next = next,
            None => list.first = next,
        }
        list.len = list.len.saturating_sub(1);
        if let Some(parent) = parent.and_then(|at| self.0.get_mut(at)) {
            parent.children = parent.children.saturating_sub(1);
        }
        self.0.remove(dead).is_some()
    }

    /// Drops all keys of a region.
    pub fn remove_all(&mut self, list: &mut KeyList) {
        while let Some(key) = list.first.and_then(|at| self.0.remove(at)) {
            list.first = key.next;
        }
        *list = KeyList::default();
    }

    /// Whether `at` is `from`, or derived from it in any number of steps.
    pub fn descends(&self, list: KeyList, at: u32, from: u32) -> bool {
        let parent = |at: &u32| self.0.get(*at).and_then(|k| k.parent);
        let mut line = core::iter::successors(Some(at), parent).take(list.len as usize);
        line.any(|at| at == from)
    }

    /// Revokes the key `from` and all that descend from it.
    pub fn revoke(&mut self, list: KeyList, from: u32) {
        let mut at = list.first;
        while let Some(this) = at {
            let revoked = self.descends(list, this, from);
            let Some(key) = self.0.get_mut(this) else {
                return;
            };
            key.revoked |= revoked;
            at = key.next;
        }
    }

    /// Whether nothing is under way by the key `from` or one that descends from it.
    pub fn is_quiet(&self, list: KeyList, from: u32) -> bool {
        let mut under_way = self
            .list(list)
            .filter(|(_, k)| k.reads != 0 || k.writes != 0);
        !under_way.any(|(at, _)| self.descends(list, at, from))
    }

    /// A revocation of the key begins or ends to wait.
    pub fn wait(&mut self, at: u32, begin: bool) {
        if let Some(key) = self.0.get_mut(at) {
            let one = |n: u32| {
                if begin {
                    n.checked_add(1)
                } else {
                    n.checked_sub(1)
                }
            };
            key.waiters = one(key.waiters).unwrap_or(key.waiters);
        }
    }

    /// An operation begins, which counts as one use.
    pub fn begin(&mut self, at: u32, write: bool) {
        if let Some(key) = self.0.get_mut(at) {
            key.scope.uses = key.scope.uses.map(|n| n.saturating_sub(1));
            let count = if write {
                &mut key.writes
            } else {
                &mut key.reads
            };
            *count = count.saturating_add(1);
        }
    }

    /// An operation that [`Self::begin`] counted has ended.
    pub fn end(&mut self, at: u32, write: bool) {
        if let Some(key) = self.0.get_mut(at) {
            let count = if write {
                &mut key.writes
            } else {
                &mut key.reads
            };
            *count = count.saturating_sub(1);
        }
    }

    /// The next time at which a key of the list that has operations under way expires.
    #[cfg(not(MODULE))]
    pub fn next_expiry(&self, list: KeyList) -> Option<u64> {
        let busy = self
            .list(list)
            .filter(|(_, k)| k.reads != 0 || k.writes != 0);
        busy.filter(|(_, k)| !k.revoked)
            .filter_map(|(_, k)| k.scope.expires_ms)
            .min()
    }

    /// Keys of the list that are not revoked.
    pub fn live(&self, list: KeyList) -> u32 {
        let live = self.list(list).filter(|(_, k)| !k.revoked).count();
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// Whether the table is full.
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Most keys in the table.
    pub fn room(&self) -> usize {
        self.0.room()
    }

    /// Keys in the table.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table is empty.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rights of a key, whatever its state.
    pub fn rights(&self, at: u32) -> Rights {
        self.0.get(at).map_or(Rights::NONE, |k| k.scope.rights)
    }
}
