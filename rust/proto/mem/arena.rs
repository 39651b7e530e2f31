// SPDX-License-Identifier: GPL-2.0

//! The pages of a node's memory: which are used, which are clean, and which must be zeroed before
//! they are used again.
//!
//! A page is *clean* (zero, and free), *used*, *dirty* (freed, with a former owner's bytes) or
//! being *zeroed*. [`Arena::alloc`] takes clean pages alone, so a new region is zero. The arena
//! counts pages of any size, 4 KiB or huge; the memory itself is not touched here.

use core::ops::DerefMut;

/// A run of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// The first page.
    pub page: u32,
    /// Number of pages.
    pub pages: u32,
}

/// Why pages were not allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// There are not enough, or they lie in too many places.
    Full,
    /// There may be enough when dirty pages have been zeroed.
    Zeroing,
}

/// Pages by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Free and zero.
    pub clean: u32,
    /// In regions.
    pub used: u32,
    /// Freed and not zeroed yet.
    pub dirty: u32,
    /// Taken by [`Arena::next_dirty`].
    pub zeroing: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Clean,
    Used,
    Dirty,
    Zeroing,
}

/// The allocator. `W` holds one bit a page, in two maps.
pub struct Arena<W> {
    /// Used or being zeroed.
    taken: W,
    /// Dirty or being zeroed.
    unclean: W,
    counts: Counts,
    pages: u32,
}

impl<W: DerefMut<Target = [u64]>> Arena<W> {
    /// Words of each map that `pages` pages need.
    pub const fn words(pages: u32) -> usize {
        pages.div_ceil(64) as usize
    }

    /// An arena of `pages` dirty pages, as far as both maps reach: what the memory was used for
    /// before is not known.
    pub fn new(mut taken: W, mut unclean: W, pages: u32) -> Self {
        let most = taken.len().min(unclean.len()).saturating_mul(64);
        let pages = pages.min(u32::try_from(most).unwrap_or(u32::MAX));
        taken.fill(0);
        unclean.fill(u64::MAX);
        Self {
            taken,
            unclean,
            counts: Counts {
                dirty: pages,
                ..Counts::default()
            },
            pages,
        }
    }

    /// Pages in all.
    #[cfg(not(MODULE))]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages by state.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A bit for each of 64 pages that is in `state`.
    fn word(&self, at: usize, state: State) -> u64 {
        let taken = self.taken.get(at).copied().unwrap_or(u64::MAX);
        let unclean = self.unclean.get(at).copied().unwrap_or(0);
        match state {
            State::Clean => !taken & !unclean,
            State::Used => taken & !unclean,
            State::Dirty => !taken & unclean,
            State::Zeroing => taken & unclean,
        }
    }

    /// The first page from `from` on that is in `state`, or is not; the number of pages if there is
    /// none.
    fn find(&self, from: u32, state: State, is: bool) -> u32 {
        let flip = if is { 0 } else { u64::MAX };
        let mut at = (from >> 6) as usize;
        let mut bits = (self.word(at, state) ^ flip) & (u64::MAX << (from & 63));
        while bits == 0 {
            at = at.saturating_add(1);
            if at >= Self::words(self.pages) {
                return self.pages;
            }
            bits = self.word(at, state) ^ flip;
        }
        let page = (at as u32).wrapping_mul(64);
        page.wrapping_add(bits.trailing_zeros()).min(self.pages)
    }

    /// The first run of pages in `state` that begins at `from` or later.
    fn next_run(&self, from: u32, state: State) -> Option<Extent> {
        let page = self.find(from, state, true);
        let end = self.find(page, state, false);
        (page < self.pages).then_some(Extent {
            page,
            pages: end.saturating_sub(page),
        })
    }

    fn count(&mut self, state: State) -> &mut u32 {
        match state {
            State::Clean => &mut self.counts.clean,
            State::Used => &mut self.counts.used,
            State::Dirty => &mut self.counts.dirty,
            State::Zeroing => &mut self.counts.zeroing,
        }
    }

    /// All pages of `run` are in `from`, and get into `to`.
    fn change(&mut self, run: Extent, from: State, to: State) {
        for page in run.page..run.page.saturating_add(run.pages) {
            let (at, bit) = ((page >> 6) as usize, 1_u64 << (page & 63));
            let put =
                |word: &mut u64, set: bool| *word = if set { *word | bit } else { *word & !bit };
            if let Some(word) = self.taken.get_mut(at) {
                put(word, matches!(to, State::Used | State::Zeroing));
            }
            if let Some(word) = self.unclean.get_mut(at) {
                put(word, matches!(to, State::Dirty | State::Zeroing));
            }
        }
        let count = self.count(from);
        *count = count.saturating_sub(run.pages);
        let count = self.count(to);
        *count = count.saturating_add(run.pages);
    }

    fn all_in(&self, run: Extent, state: State) -> bool {
        let end = run.page.checked_add(run.pages);
        run.pages != 0
            && end.is_some_and(|end| end <= self.pages && self.find(run.page, state, false) >= end)
    }

    /// Allocates `pages` clean pages in runs of at most `run_max`, the longest that there are
    /// first. Puts the runs into `out` and returns how many there are.
    pub fn alloc(
        &mut self,
        pages: u32,
        run_max: u32,
        out: &mut [Extent],
    ) -> Result<usize, Shortage> {
        if pages == 0 || run_max == 0 {
            return Err(Shortage::Full);
        }
        let (mut left, mut n) = (pages, 0_usize);
        let mut least = run_max.min(pages);
        while left != 0 && least != 0 && n < out.len() && left <= self.counts.clean {
            let mut from = 0;
            while let Some(run) = self.next_run(from, State::Clean) {
                from = run.page.saturating_add(run.pages);
                let mut page = run.page;
                while left != 0 && from.saturating_sub(page) >= least.min(left) {
                    let Some(place) = out.get_mut(n) else {
                        break;
                    };
                    let pages = from.saturating_sub(page).min(run_max).min(left);
                    *place = Extent { page, pages };
                    self.change(*place, State::Clean, State::Used);
                    n = n.saturating_add(1);
                    left = left.saturating_sub(pages);
                    page = page.saturating_add(pages);
                }
            }
            least >>= 1;
        }
        if left == 0 {
            return Ok(n);
        }
        for run in out.iter().take(n) {
            self.change(*run, State::Used, State::Clean);
        }
        let idle = self.counts.dirty.saturating_add(self.counts.zeroing);
        let enough = idle != 0 && idle.saturating_add(self.counts.clean) >= pages;
        Err(if enough {
            Shortage::Zeroing
        } else {
            Shortage::Full
        })
    }

    /// Frees a run, which is dirty then. False, and nothing is done, unless all of it is used.
    pub fn free(&mut self, run: Extent) -> bool {
        let used = self.all_in(run, State::Used);
        if used {
            self.change(run, State::Used, State::Dirty);
        }
        used
    }

    /// A run of at most `most` dirty pages, for the caller to zero.
    pub fn next_dirty(&mut self, most: u32) -> Option<Extent> {
        let mut run = self.next_run(0, State::Dirty)?;
        run.pages = run.pages.min(most);
        self.change(run, State::Dirty, State::Zeroing);
        (run.pages != 0).then_some(run)
    }

    /// The caller has zeroed a run that [`Self::next_dirty`] gave it. False, and nothing is done,
    /// for any other.
    pub fn zeroed(&mut self, run: Extent) -> bool {
        let taken = self.all_in(run, State::Zeroing);
        if taken {
            self.change(run, State::Zeroing, State::Clean);
        }
        taken
    }
}
