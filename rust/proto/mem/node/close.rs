// SPDX-License-Identifier: GPL-2.0

//! The ends of keys and regions: revocation, seal, free, expiry, and the wait until they are quiet.

use super::super::id::Key;
use super::super::rights::Rights;
use super::super::status::Status;
use super::{Drain, Node, State, Storage, Until};

impl<S: Storage> Node<S> {
    /// Frees the region of `key`. No operation begins from now on; [`Self::next_quiet`] returns
    /// `waiter` when none is under way any more.
    ///
    /// Errors, and then nothing is changed: `Stale`, `Denied`; `Again` if too many already wait.
    pub fn free(&mut self, key: Key, waiter: u64, now_ms: u64) -> Result<(), Status> {
        let (_, scope) = self.key(key, now_ms)?;
        if !scope.rights.contains(Rights::FREE) {
            return Err(Status::Denied);
        }
        self.wait_until(key, Until::Freed, waiter)?;
        self.close(key.region);
        Ok(())
    }

    /// Lets nothing write to the region of `key` from now on; [`Self::next_quiet`] returns `waiter`
    /// when no write is under way any more. Errors as [`Self::free`].
    pub fn seal(&mut self, key: Key, waiter: u64, now_ms: u64) -> Result<(), Status> {
        let (_, scope) = self.key(key, now_ms)?;
        if !scope.rights.contains(Rights::GRANT) {
            return Err(Status::Denied);
        }
        self.wait_until(key, Until::Sealed, waiter)?;
        if let Some(region) = self.regions.get_mut(key.region) {
            if region.state == State::Live {
                region.state = State::Sealing;
            }
        }
        self.settle(key.region);
        Ok(())
    }

    /// Revokes the key `victim` and all that are derived from it, at the word of `key`;
    /// [`Self::next_quiet`] returns `waiter` when nothing that they let in is under way any more.
    ///
    /// Errors: as [`Self::free`]; `Denied` also if `victim` is neither `key` nor derived from it;
    /// `Stale` if there is no such key; `Invalid` if it is of another region or generation.
    pub fn revoke(
        &mut self,
        key: Key,
        victim: Key,
        waiter: u64,
        now_ms: u64,
    ) -> Result<(), Status> {
        let (at, scope) = self.key(key, now_ms)?;
        if !scope.rights.contains(Rights::GRANT) {
            return Err(Status::Denied);
        }
        if (victim.region, victim.gen) != (key.region, key.gen) {
            return Err(Status::Invalid);
        }
        let victim = self.any_key(victim)?;
        let list = self.regions.get(key.region).ok_or(Status::Stale)?.keys;
        if !self.keys.descends(list, victim, at) {
            return Err(Status::Denied);
        }
        self.wait_until(key, Until::Revoked(victim), waiter)?;
        self.keys.wait(victim, true);
        self.keys.revoke(list, victim);
        Ok(())
    }

    fn wait_until(&mut self, key: Key, until: Until, waiter: u64) -> Result<(), Status> {
        let drain = Drain {
            region: key.region,
            gen: key.gen,
            until,
            waiter,
        };
        self.drains.insert(drain).map(|_| ()).ok_or(Status::Again)
    }

    /// Frees a region without a key, as the node's administrator may, also one that is being closed
    /// already. As [`Self::free`] otherwise.
    pub fn free_by_number(&mut self, region: u32, gen: u32, waiter: u64) -> Result<(), Status> {
        let known = self.regions.get(region).is_some_and(|r| r.gen == gen);
        known.then_some(()).ok_or(Status::Stale)?;
        let id = Key {
            region,
            gen,
            secret: 0,
        };
        self.wait_until(id, Until::Freed, waiter)?;
        self.close(region);
        Ok(())
    }

    /// Closes a region without a key, and without anybody who waits for that.
    pub fn close_region(&mut self, region: u32, gen: u32) -> bool {
        let known = self.regions.get(region).is_some_and(|r| r.gen == gen);
        if known {
            self.close(region);
        }
        known
    }

    fn close(&mut self, at: u32) {
        if let Some(region) = self.regions.get_mut(at) {
            region.state = State::Closing;
        }
        self.settle(at);
    }

    /// A hold of the region has ended, or its state has changed.
    pub(super) fn settle(&mut self, at: u32) {
        let Some(region) = self.regions.get_mut(at) else {
            return;
        };
        match region.state {
            State::Sealing if region.writes == 0 => region.state = State::Sealed,
            State::Closing if region.writes == 0 && region.reads == 0 => self.release(at),
            _ => {}
        }
    }

    /// The region is quiet: its pages are dirty from now on, its number is free.
    fn release(&mut self, at: u32) {
        let Some(mut region) = self.regions.remove(at) else {
            return;
        };
        self.keys.remove_all(&mut region.keys);
        let mut next = region.first_extent;
        while let Some(entry) = next.and_then(|at| self.extents.remove(at)) {
            self.arena.free(entry.run);
            next = entry.next;
        }
    }

    /// Takes the next waiter whose region or key is quiet now, with the result.
    pub fn next_quiet(&mut self) -> Option<(u64, Status)> {
        let done = |d: &Drain| -> Option<Status> {
            let region = self.regions.get(d.region).filter(|r| r.gen == d.gen);
            match (&d.until, region) {
                (Until::Freed | Until::Revoked(_), None) => Some(Status::Ok),
                (Until::Freed, Some(_)) => None,
                // The region was freed in the meantime, and no write can land either.
                (Until::Sealed, None) => Some(Status::Stale),
                (Until::Sealed, Some(r)) => (r.state == State::Sealed).then_some(Status::Ok),
                (Until::Revoked(key), Some(r)) => {
                    self.keys.is_quiet(r.keys, *key).then_some(Status::Ok)
                }
            }
        };
        let find = |(at, d): (u32, &Drain)| done(d).map(|status| (at, status));
        let found = self.drains.iter().find_map(find);
        let (at, status) = found?;
        let drain = self.drains.remove(at)?;
        if let Until::Revoked(key) = drain.until {
            let known = self.regions.get(drain.region);
            if known.is_some_and(|r| r.gen == drain.gen) {
                self.keys.wait(key, false);
            }
        }
        Some((drain.waiter, status))
    }

    /// The link to the host `owner` is lost, or it has left: its regions that are not kept go after
    /// a while, unless it comes back.
    pub fn owner_lost(&mut self, owner: u32, now_ms: u64) {
        let at = now_ms.saturating_add(self.cfg.orphan_ms);
        let theirs = self
            .regions
            .iter_mut()
            .filter(|(_, r)| r.owner == owner && !r.keep);
        for (_, region) in theirs {
            region.orphaned_ms.get_or_insert(at);
        }
    }

    /// The host `owner` is back.
    pub fn owner_back(&mut self, owner: u32) {
        for (_, region) in self.regions.iter_mut().filter(|(_, r)| r.owner == owner) {
            region.orphaned_ms = None;
        }
    }

    /// Closes one region whose time is over; false if there is none.
    pub fn expire_one(&mut self, now_ms: u64) -> bool {
        let over = |t: Option<u64>| t.is_some_and(|t| now_ms >= t);
        let expired = self.regions.iter().find(|(_, r)| {
            r.state != State::Closing && (over(r.expires_ms) || over(r.orphaned_ms))
        });
        let Some(at) = expired.map(|(at, _)| at) else {
            return false;
        };
        self.close(at);
        true
    }

    /// When the next region expires, or the next key with operations in progress.
    #[cfg(not(MODULE))]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let live = self
            .regions
            .iter()
            .filter(|(_, r)| r.state != State::Closing);
        let of = |r: &super::Region| {
            let times = [r.expires_ms, r.orphaned_ms, self.keys.next_expiry(r.keys)];
            times.into_iter().flatten().min()
        };
        live.filter_map(|(_, r)| of(r)).min()
    }
}
