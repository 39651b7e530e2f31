// SPDX-License-Identifier: GPL-2.0

//! Quotas: how many channels each user and each network namespace has, and whether it may have one
//! more. Links, those of them that datagrams make, and the memory that is promised to connections
//! are counted in the same way.
//!
//! A user's share is a part of what other users leave, as the dynamic thresholds of shared buffers
//! (Choudhury and Hahne) have it: with 80 percent of 100 channels the first user may have 80, a
//! second one then 16, a third one 4. If all grow alike, two users may have 44 each.
//!
//! A user or namespace without channels has no entry, so that there are at most two counts for each
//! channel. They are sorted; the storage is passed in and grows with them.

use core::mem;
use core::ops::DerefMut;

/// The user and namespace that a channel counts for; `None`: for neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holder {
    /// The user.
    pub user: Option<u32>,
    /// The network namespace.
    pub net: Option<u32>,
}

impl Holder {
    /// The administrator, for whom no user's share applies.
    pub fn is_admin(self) -> bool {
        self.user.is_none()
    }
}

/// Why a channel was not counted. Then nothing is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaError {
    /// The user's quota is used up.
    User,
    /// The namespace's quota is used up.
    Net,
    /// The storage may not have room: give it more ([`Quota::wanted`]).
    Crowded,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    User(u32),
    Net(u32),
}

/// The count of one user or namespace.
#[derive(Clone, Copy, Debug)]
pub struct QuotaCount {
    key: Key,
    n: u32,
}

impl QuotaCount {
    /// No holder's; fills the storage.
    pub const NONE: Self = Self {
        key: Key::User(0),
        n: 0,
    };
}

/// The counts of all users and namespaces with channels.
pub struct Quota<S> {
    /// The first `len` counts are in use, sorted by key; none of them is 0.
    counts: S,
    len: usize,
    shares: Shares,
    /// Channels of all users.
    users: u32,
}

/// How many channels there are to share.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// All that users may have,
    pub most: u32,
    /// and the part of them for a single user, in percent; at least one.
    pub user_percent: u32,
    /// Those that a namespace may have.
    pub net_most: u32,
}

impl Shares {
    /// Whether a user with `n` of the `all` channels of users may have one more.
    pub fn gives(&self, n: u32, all: u32) -> bool {
        let (n, left) = (u64::from(n), u64::from(self.most.saturating_sub(all)));
        let percent = u64::from(self.user_percent);
        let others = 100_u64.saturating_sub(percent);
        left > 0 && (n == 0 || n.saturating_mul(others) < left.saturating_mul(percent))
    }
}

impl<S: DerefMut<Target = [QuotaCount]>> Quota<S> {
    /// No counts.
    pub fn new(counts: S, shares: Shares) -> Self {
        Self {
            counts,
            len: 0,
            shares,
            users: 0,
        }
    }

    /// Other shares from now on. Those who have more than theirs keep it, and get no more.
    pub fn set_shares(&mut self, shares: Shares) {
        self.shares = shares;
    }

    /// Whether `holder` may have one more channel: the user's or the namespace's quota may be used
    /// up.
    pub fn may_take(&self, holder: Holder) -> Result<(), QuotaError> {
        self.may_take_beside(holder, self.users)
    }

    /// The same where `all` are used, those without a count here among them.
    fn may_take_beside(&self, holder: Holder, all: u32) -> Result<(), QuotaError> {
        let user = holder.user.map(Key::User);
        if user.is_some_and(|key| !self.shares.gives(self.of(key), all)) {
            return Err(QuotaError::User);
        }
        let net = holder.net.map(Key::Net);
        if net.is_some_and(|key| self.of(key) >= self.shares.net_most) {
            return Err(QuotaError::Net);
        }
        Ok(())
    }

    /// Counts a channel for `holder`.
    pub fn take(&mut self, holder: Holder) -> Result<(), QuotaError> {
        self.take_units(holder, 1, self.users)
    }

    /// Counts `units` for `holder` where `all` are used, those without a count here among them. A
    /// share may be exceeded by the last units that are taken.
    pub fn take_units(&mut self, holder: Holder, units: u32, all: u32) -> Result<(), QuotaError> {
        // At most one count for each of the two.
        if self.counts.len().saturating_sub(self.len) < 2 {
            return Err(QuotaError::Crowded);
        }
        self.may_take_beside(holder, all)?;
        let user = holder.user.map(Key::User);
        for key in user.into_iter().chain(holder.net.map(Key::Net)) {
            self.add(key, units);
        }
        if user.is_some() {
            self.users = self.users.saturating_add(units);
        }
        Ok(())
    }

    /// A channel that was counted for `holder` is gone.
    pub fn give(&mut self, holder: Holder) {
        self.give_units(holder, 1);
    }

    /// `units` that were counted for `holder` are gone.
    pub fn give_units(&mut self, holder: Holder, units: u32) {
        let (user, net) = (holder.user.map(Key::User), holder.net.map(Key::Net));
        for key in user.into_iter().chain(net) {
            self.sub(key, units);
        }
    }

    /// The counts of the user and the namespace of `holder`.
    #[cfg(not(MODULE))]
    pub fn has(&self, holder: Holder) -> (u32, u32) {
        let of = |key: Option<Key>| key.map_or(0, |key| self.of(key));
        (of(holder.user.map(Key::User)), of(holder.net.map(Key::Net)))
    }

    /// Number of counts.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no counts.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How large the storage should be when it is [`QuotaError::Crowded`].
    pub fn wanted(&self) -> usize {
        self.len.saturating_mul(2).max(8)
    }

    /// Moves to `counts` if that is larger; returns the unused storage.
    pub fn move_to(&mut self, counts: S) -> S {
        if counts.len() <= self.counts.len() {
            return counts;
        }
        let old = mem::replace(&mut self.counts, counts);
        for (to, from) in self.counts.iter_mut().zip(old.iter().take(self.len)) {
            *to = *from;
        }
        old
    }

    /// Where `key` is, or would be.
    fn find(&self, key: Key) -> Result<usize, usize> {
        let used = self.counts.get(..self.len).unwrap_or_default();
        used.binary_search_by_key(&key, |c| c.key)
    }

    fn of(&self, key: Key) -> u32 {
        let at = self.find(key).ok().and_then(|at| self.counts.get(at));
        at.map_or(0, |c| c.n)
    }

    /// Adds `n` to the count of `key`. The caller has checked that the storage has room for a new
    /// count.
    fn add(&mut self, key: Key, n: u32) {
        match self.find(key) {
            Ok(at) => {
                if let Some(c) = self.counts.get_mut(at) {
                    c.n = c.n.saturating_add(n);
                }
            }
            Err(at) => {
                // Those behind it move up, into the free place that follows them.
                if let Some(behind) = self.counts.get_mut(at..=self.len) {
                    let mut moving = QuotaCount { key, n };
                    for count in behind {
                        mem::swap(count, &mut moving);
                    }
                    self.len = self.len.saturating_add(1);
                }
            }
        }
    }

    fn sub(&mut self, key: Key, n: u32) {
        let Ok(at) = self.find(key) else {
            return;
        };
        if matches!(key, Key::User(_)) {
            self.users = self.users.saturating_sub(n);
        }
        if let Some(c) = self.counts.get_mut(at) {
            c.n = c.n.saturating_sub(n);
            if c.n > 0 {
                return;
            }
        }
        // Those behind it move down.
        if let Some(behind) = self.counts.get_mut(at..self.len) {
            let mut moving = QuotaCount::NONE;
            for count in behind.iter_mut().rev() {
                mem::swap(count, &mut moving);
            }
            self.len = self.len.saturating_sub(1);
        }
    }
}
