// SPDX-License-Identifier: GPL-2.0

//! The budget of a cache: how many pages of the receive pools that write into it may be in use, and which class of
//! them gets how many (rows C2, C3).
//!
//! Each class has a share of its own. What one does not use the other may borrow, except for a quarter of that share:
//! as long as the owner has more of it to take, it finds so much free at once, and the rest as it is given back.
//! Only the numbers are here, not which pages they are.

/// What pages are used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Blocks of shared receive queues.
    Small,
    /// Windows.
    Large,
}

impl Class {
    fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// What of a class is in use.
#[derive(Clone, Copy, Default)]
struct Count {
    used: usize,
    high: usize,
}

/// How many pages there are, and how many of them each class uses.
pub struct Budget {
    total: usize,
    small_percent: usize,
    small: Count,
    large: Count,
}

impl Budget {
    /// `total` pages, none in use; so many percent of them are the small class's own, the others the large one's. More
    /// than 100 counts as 100.
    pub fn new(total: usize, small_percent: u32) -> Self {
        Self {
            total,
            small_percent: small_percent.min(100) as usize,
            small: Count::default(),
            large: Count::default(),
        }
    }

    /// There are `total` pages from here on. Nothing is taken from anybody: more than that may be in use
    /// ([`Budget::over`]).
    pub fn resize(&mut self, total: usize) {
        self.total = total;
    }

    /// Uses so many pages more, if that is admitted. False, and nothing is done, if it is not.
    pub fn take(&mut self, class: Class, pages: usize) -> bool {
        if self.room(class).is_none_or(|room| pages > room) {
            return false;
        }
        let count = self.count_mut(class);
        count.used = count.used.saturating_add(pages);
        count.high = count.high.max(count.used);
        true
    }

    /// Uses so many pages of the class's own share, though the other has borrowed them: then more is in use than may be
    /// until it gives them back. False, and nothing is done, if the share is used up.
    pub fn claim(&mut self, class: Class, pages: usize) -> bool {
        let own = self.own(class);
        let count = self.count_mut(class);
        match count.used.checked_add(pages) {
            Some(used) if used <= own => {
                count.used = used;
                count.high = count.high.max(used);
                true
            }
            _ => false,
        }
    }

    /// So many pages of the class are not used any more. False, and nothing is done, unless so many were: it is better
    /// to lend too little than to lend what is in use.
    pub fn give(&mut self, class: Class, pages: usize) -> bool {
        let count = self.count_mut(class);
        let left = count.used.checked_sub(pages);
        count.used = left.unwrap_or(count.used);
        left.is_some()
    }

    /// How many pages a window may have: `most` while there are four times as many for windows, less where it is
    /// crowded, but never less than `least`, also if that is more than `most`. `None` when `least` are not admitted.
    /// Nothing is taken.
    pub fn lease(&self, least: usize, most: usize) -> Option<usize> {
        let room = self.room(Class::Large)?;
        (least <= room).then(|| (room / 4).min(most).max(least))
    }

    /// Whether less than half is free of what windows may have: their own share, or more if they can borrow it. Then
    /// some get less than they would like, unless the largest is much smaller than that.
    pub fn crowded(&self) -> bool {
        let room = self.room(Class::Large).unwrap_or(0);
        let most = self.used(Class::Large).saturating_add(room);
        room.saturating_mul(2) < most.max(self.own(Class::Large))
    }

    /// Pages in use above the total, which was more when they were taken.
    pub fn over(&self) -> usize {
        self.used_total().saturating_sub(self.total)
    }

    /// Pages in use by this class above its own share: what it gives back when the other wants them.
    #[cfg(not(MODULE))]
    pub fn overdrawn(&self, class: Class) -> usize {
        self.used(class).saturating_sub(self.own(class))
    }

    /// Pages in use by this class.
    pub fn used(&self, class: Class) -> usize {
        self.count(class).used
    }

    /// The most that were ever in use by this class at a time.
    pub fn high(&self, class: Class) -> usize {
        self.count(class).high
    }

    /// Pages in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Pages of this class's own share.
    pub fn own(&self, class: Class) -> usize {
        // In two parts, as total x percent might be too much for a number.
        let (hundreds, rest) = (self.total / 100, self.total % 100);
        let part = rest.saturating_mul(self.small_percent) / 100;
        let small = hundreds
            .saturating_mul(self.small_percent)
            .saturating_add(part);
        match class {
            Class::Small => small,
            Class::Large => self.total.saturating_sub(small),
        }
    }

    /// How many pages more the class may take. `None`: not even none, it has more than it should.
    fn room(&self, class: Class) -> Option<usize> {
        let free = self.total.checked_sub(self.used_total())?;
        let of_its_own = self.own(class).checked_sub(self.used(class));
        let borrowed = free.checked_sub(self.headroom(class.other()));
        Some(of_its_own.max(borrowed)?.min(free))
    }

    /// Pages that nobody borrows from this class.
    fn headroom(&self, class: Class) -> usize {
        let own = self.own(class);
        own.saturating_sub(self.used(class)).min(own / 4)
    }

    fn used_total(&self) -> usize {
        self.small.used.saturating_add(self.large.used)
    }

    fn count(&self, class: Class) -> &Count {
        match class {
            Class::Small => &self.small,
            Class::Large => &self.large,
        }
    }

    fn count_mut(&mut self, class: Class) -> &mut Count {
        match class {
            Class::Small => &mut self.small,
            Class::Large => &mut self.large,
        }
    }
}
