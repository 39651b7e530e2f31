// SPDX-License-Identifier: GPL-2.0

//! Admission: which operations a key allows, and the holds of the operations that have begun.

use super::super::id::Key;
use super::super::rights::{Range, Rights, Scope};
use super::super::status::Status;
use super::{Hold, Info, Node, Region, State, Storage};

/// The scope of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantScope {
    /// The bytes of the region.
    pub range: Range,
    /// Address of the first byte.
    pub addr: u64,
    /// The key allows a limited number of uses, and this grant is one: it must not be kept for
    /// other operations.
    pub once: bool,
}

impl<S: Storage> Node<S> {
    /// The region of a key, if it is not being closed.
    fn region(&self, key: Key) -> Result<&Region, Status> {
        let region = self.regions.get(key.region).ok_or(Status::Stale)?;
        if region.gen != key.gen || region.state == State::Closing {
            return Err(Status::Stale);
        }
        Ok(region)
    }

    /// Number and scope of a key, if it can be used.
    pub(super) fn key(&self, key: Key, now_ms: u64) -> Result<(u32, Scope), Status> {
        let region = self.region(key)?;
        let at = self.keys.find(region.keys, key.secret);
        let at = at.ok_or(Status::Denied)?;
        Ok((at, self.keys.check(at, now_ms)?))
    }

    /// Number of a key, whatever its state.
    pub(super) fn any_key(&self, key: Key) -> Result<u32, Status> {
        let region = self.region(key)?;
        self.keys.find(region.keys, key.secret).ok_or(Status::Stale)
    }

    /// Offset in the region of the `len` bytes at `addr`. `Range` unless all of them are in the
    /// region; `Denied` for a wrong secret, whose holder is told nothing of the region.
    pub fn range_of(&self, key: Key, addr: u64, len: u64) -> Result<Range, Status> {
        let region = self.region(key)?;
        let known = self.keys.find(region.keys, key.secret);
        known.ok_or(Status::Denied)?;
        let off = addr.checked_sub(region.va).ok_or(Status::Range)?;
        let range = Range { off, len };
        let whole = Range {
            off: 0,
            len: region.len,
        };
        whole.contains(range).then_some(range).ok_or(Status::Range)
    }

    /// Lets an operation in that needs `rights` to `range`.
    ///
    /// Errors: `Stale`, `Denied`, `Sealed` as [`Status`] says; `Range` beyond the region; `Invalid`
    /// for no bytes.
    pub fn begin(
        &mut self,
        key: Key,
        rights: Rights,
        range: Range,
        now_ms: u64,
    ) -> Result<Hold, Status> {
        let (at, scope) = self.key(key, now_ms)?;
        if range.len == 0 {
            return Err(Status::Invalid);
        }
        let len = self.region(key)?.len;
        if !(Range { off: 0, len }).contains(range) {
            return Err(Status::Range);
        }
        if !scope.rights.contains(rights) || !scope.range.contains(range) {
            return Err(Status::Denied);
        }
        self.hold(key, at, rights)
    }

    /// Lets a peer in, to whose device remote keys with `rights` to all of the key's range are
    /// given.
    ///
    /// Errors: as [`Self::begin`]; `Invalid` for rights that remote keys do not give.
    pub fn begin_grant(
        &mut self,
        key: Key,
        rights: Rights,
        now_ms: u64,
    ) -> Result<(Hold, GrantScope), Status> {
        let (at, scope) = self.key(key, now_ms)?;
        if rights.is_empty() || !Rights::DATA.contains(rights) {
            return Err(Status::Invalid);
        }
        if !scope.rights.contains(rights) {
            return Err(Status::Denied);
        }
        let va = self.region(key)?.va;
        let hold = self.hold(key, at, rights)?;
        let grant = GrantScope {
            range: scope.range,
            addr: va.wrapping_add(scope.range.off),
            once: scope.uses.is_some(),
        };
        Ok((hold, grant))
    }

    fn hold(&mut self, key: Key, at: u32, rights: Rights) -> Result<Hold, Status> {
        let write = rights.contains(Rights::WRITE);
        let region = self.regions.get_mut(key.region).ok_or(Status::Stale)?;
        if write && region.state != State::Live {
            return Err(Status::Sealed);
        }
        let count = if write {
            &mut region.writes
        } else {
            &mut region.reads
        };
        *count = count.checked_add(1).ok_or(Status::Again)?;
        self.keys.begin(at, write);
        Ok(Hold {
            region: key.region,
            gen: key.gen,
            key: at,
            write,
            place: self.place,
        })
    }

    /// An operation is over: none of its bytes lands from now on.
    pub fn end(&mut self, hold: Hold) {
        let Some(region) = self.regions.get_mut(hold.region) else {
            return;
        };
        // A region stays until its last hold has ended.
        if region.gen != hold.gen {
            return;
        }
        let count = if hold.write {
            &mut region.writes
        } else {
            &mut region.reads
        };
        *count = count.saturating_sub(1);
        self.keys.end(hold.key, hold.write);
        self.settle(hold.region);
    }

    /// Whether the operation must stop as soon as it can: its region is being closed, or sealed
    /// while it may write, or its key is revoked or expired.
    pub fn must_stop(&self, hold: &Hold, now_ms: u64) -> bool {
        let Some(region) = self.regions.get(hold.region) else {
            return true;
        };
        let ended = match region.state {
            State::Live => false,
            State::Sealing | State::Sealed => hold.write,
            State::Closing => true,
        };
        ended || region.gen != hold.gen || self.keys.must_stop(hold.key, now_ms)
    }

    /// The result of an operation that [`Self::must_stop`] has stopped: `Sealed` if only the seal
    /// of its region did, else `Stale`.
    pub fn stop_status(&self, hold: &Hold, now_ms: u64) -> Status {
        let region = self.regions.get(hold.region);
        let sealed = region.is_some_and(|r| {
            let sealed = matches!(r.state, State::Sealing | State::Sealed);
            sealed && hold.write && r.gen == hold.gen
        });
        match sealed && !self.keys.must_stop(hold.key, now_ms) {
            true => Status::Sealed,
            false => Status::Stale,
        }
    }

    /// Derives a key from `key`, for `wanted`, with a random secret.
    ///
    /// Errors: as [`Scope::derive`]; `Range` beyond the region; `NoSpace` if the region has all the
    /// keys that it may have; `Quota` if the regions of its owner's host, or user, have.
    pub fn derive(
        &mut self,
        key: Key,
        wanted: &Scope,
        secret: u64,
        now_ms: u64,
    ) -> Result<Key, Status> {
        let (at, scope) = self.key(key, now_ms)?;
        let len = self.region(key)?.len;
        if !(Range { off: 0, len }).contains(wanted.range) {
            return Err(Status::Range);
        }
        let scope = scope.derive(wanted)?;
        let region = self.region(key)?;
        let (owner, user) = (region.owner, region.user);
        self.room_for_key(owner, user, now_ms)?;
        let region = self.regions.get_mut(key.region).ok_or(Status::Stale)?;
        if self.keys.find(region.keys, secret).is_some() {
            return Err(Status::Again);
        }
        self.keys
            .insert(&mut region.keys, scope, secret, Some(at), now_ms)?;
        Ok(Key { secret, ..key })
    }

    /// The properties of a region that the holder of a key may know.
    pub fn info(&self, key: Key, now_ms: u64) -> Result<Info, Status> {
        let (at, _) = self.key(key, now_ms)?;
        let region = self.region(key)?;
        Ok(Info {
            len: region.len,
            va: region.va,
            rights: self.keys.rights(at),
            state: region.state,
            keys: self.keys.live(region.keys),
            holds: region.reads.saturating_add(region.writes),
        })
    }
}
