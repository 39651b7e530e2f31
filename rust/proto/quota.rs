// SPDX-License-Identifier: GPL-2.0

//! Quota of the link table: how many channels each user and each network namespace has, and whether
//! it may have one more.
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
    /// The administrator, who has no share of a user.
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
    user_most: u32,
    net_most: u32,
}

impl<S: DerefMut<Target = [QuotaCount]>> Quota<S> {
    /// No counts. A user may have `user_most` channels, a namespace `net_most`.
    pub fn new(counts: S, user_most: u32, net_most: u32) -> Self {
        Self {
            counts,
            len: 0,
            user_most,
            net_most,
        }
    }

    /// Counts a channel for `holder`.
    pub fn take(&mut self, holder: Holder) -> Result<(), QuotaError> {
        // At most one count for each of the two.
        if self.counts.len().saturating_sub(self.len) < 2 {
            return Err(QuotaError::Crowded);
        }
        let user = holder.user.map(Key::User);
        if user.is_some_and(|key| self.of(key) >= self.user_most) {
            return Err(QuotaError::User);
        }
        let net = holder.net.map(Key::Net);
        if net.is_some_and(|key| self.of(key) >= self.net_most) {
            return Err(QuotaError::Net);
        }
        for key in user.into_iter().chain(net) {
            self.add(key);
        }
        Ok(())
    }

    /// A channel that was counted for `holder` is gone.
    pub fn give(&mut self, holder: Holder) {
        let (user, net) = (holder.user.map(Key::User), holder.net.map(Key::Net));
        for key in user.into_iter().chain(net) {
            self.sub(key);
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

    /// Adds 1 to the count of `key`. The caller has checked that the storage has room for a new
    /// count.
    fn add(&mut self, key: Key) {
        match self.find(key) {
            Ok(at) => {
                if let Some(c) = self.counts.get_mut(at) {
                    c.n = c.n.saturating_add(1);
                }
            }
            Err(at) => {
                // Those behind it move up, into the free place that follows them.
                if let Some(behind) = self.counts.get_mut(at..=self.len) {
                    let mut moving = QuotaCount { key, n: 1 };
                    for count in behind {
                        mem::swap(count, &mut moving);
                    }
                    self.len = self.len.saturating_add(1);
                }
            }
        }
    }

    fn sub(&mut self, key: Key) {
        let Ok(at) = self.find(key) else {
            return;
        };
        if let Some(c) = self.counts.get_mut(at) {
            c.n = c.n.saturating_sub(1);
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
