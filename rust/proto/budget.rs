// SPDX-License-Identifier: GPL-2.0

//! The budget of a cache: how many pages of the receive pools that write into it may be in use, and
//! how many of them each class gets.
//!
//! Each class has a share. The other class may borrow the unused part of it, except for a quarter
//! of the share. So the owner, as long as it is below its share, finds at least that quarter at
//! once, and the rest as borrowed pages return. The budget only counts pages; it does not know
//! which pages they are.

/// The use of pages.
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

/// Pages of a class in use.
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
    /// `total` pages, none in use; `small_percent` of them are the small class's share, the rest
    /// the large class's. More than 100 counts as 100.
    pub fn new(total: usize, small_percent: u32) -> Self {
        Self {
            total,
            small_percent: small_percent.min(100) as usize,
            small: Count::default(),
            large: Count::default(),
        }
    }

    /// Sets the total. No page is taken back: more than the total may be in use ([`Budget::over`]).
    pub fn resize(&mut self, total: usize) {
        self.total = total;
    }

    /// Takes `pages` more, if they are admitted. Else returns false and takes none.
    pub fn take(&mut self, class: Class, pages: usize) -> bool {
        if self.room(class).is_none_or(|room| pages > room) {
            return false;
        }
        let count = self.count_mut(class);
        count.used = count.used.saturating_add(pages);
        count.high = count.high.max(count.used);
        true
    }

    /// Takes `pages` of the class's share even if the other class has borrowed them: then more than
    /// the total is in use until these return. Returns false and takes none if the share is used
    /// up.
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

    /// `pages` of the class are not used any more. Returns false and does nothing unless that many
    /// were in use: it is better to admit too little than to admit pages that are in use.
    pub fn give(&mut self, class: Class, pages: usize) -> bool {
        let count = self.count_mut(class);
        let left = count.used.checked_sub(pages);
        count.used = left.unwrap_or(count.used);
        left.is_some()
    }

    /// The number of pages for a window: `most` while four times that is free for windows, less
    /// where it is crowded, but never less than `least`, even if that is more than `most`. `None`
    /// when `least` are not admitted. Takes no pages.
    pub fn lease(&self, least: usize, most: usize) -> Option<usize> {
        let room = self.room(Class::Large)?;
        (least <= room).then(|| (room / 4).min(most).max(least))
    }

    /// Whether less than half of the room for windows is free: their share, or more if they can
    /// borrow it. Then some get less than they request, unless the largest is much smaller than
    /// that.
    pub fn crowded(&self) -> bool {
        let room = self.room(Class::Large).unwrap_or(0);
        let most = self.used(Class::Large).saturating_add(room);
        room.saturating_mul(2) < most.max(self.own(Class::Large))
    }

    /// Pages in use above the total, which was more when they were taken.
    pub fn over(&self) -> usize {
        self.used_total().saturating_sub(self.total)
    }

    /// Pages in use by this class above its share, which it returns when the other class needs
    /// them.
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
        // In two parts, as total x percent might overflow.
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

    /// The number of pages that the class may still take. `None`: not even 0, as more than the
    /// total is in use, or the class has borrowed too much.
    fn room(&self, class: Class) -> Option<usize> {
        let free = self.total.checked_sub(self.used_total())?;
        let of_its_own = self.own(class).checked_sub(self.used(class));
        let borrowed = free.checked_sub(self.headroom(class.other()));
        Some(of_its_own.max(borrowed)?.min(free))
    }

    /// Pages of this class that the other must not borrow.
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
