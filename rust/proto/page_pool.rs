// SPDX-License-Identifier: GPL-2.0

//! The leased pages of a receive pool: a first-fit allocator of runs of pages over a bitmap. The
//! pool's memory itself is not touched here.

use core::ops::DerefMut;

/// Allocator of runs of pages; `S` holds one bit a page, set when the page is leased.
pub struct PagePool<S> {
    map: S,
    pages: usize,
    used: usize,
}

impl<S: DerefMut<Target = [u64]>> PagePool<S> {
    /// Words of storage that `pages` pages need.
    pub const fn words(pages: usize) -> usize {
        pages.div_ceil(64)
    }

    /// A pool of `pages` free pages, as far as the storage reaches.
    pub fn new(mut map: S, pages: usize) -> Self {
        let pages = pages.min(map.len().saturating_mul(64));
        map.iter_mut().for_each(|w| *w = 0);
        Self {
            map,
            pages,
            used: 0,
        }
    }

    fn is_used(&self, page: usize) -> bool {
        self.map
            .get(page >> 6)
            .is_none_or(|w| w & (1 << (page & 63)) != 0)
    }

    fn set(&mut self, start: usize, count: usize, to: bool) {
        for page in start..start.saturating_add(count) {
            if let Some(w) = self.map.get_mut(page >> 6) {
                let bit = 1 << (page & 63);
                *w = if to { *w | bit } else { *w & !bit };
            }
        }
    }

    /// Leases `count` pages in a row; the index of the first.
    pub fn alloc(&mut self, count: usize) -> Option<usize> {
        if count == 0 {
            return None;
        }
        let mut run = 0_usize;
        for page in 0..self.pages {
            if self.is_used(page) {
                run = 0;
                continue;
            }
            run = run.wrapping_add(1);
            if run == count {
                let start = page.wrapping_sub(count).wrapping_add(1);
                self.set(start, count, true);
                self.used = self.used.wrapping_add(count);
                return Some(start);
            }
        }
        None
    }

    /// Takes back `count` pages from `start`. Returns false and does nothing unless all of them
    /// are leased.
    pub fn free(&mut self, start: usize, count: usize) -> bool {
        let Some(end) = start.checked_add(count) else {
            return false;
        };
        if count == 0 || end > self.pages || (start..end).any(|p| !self.is_used(p)) {
            return false;
        }
        self.set(start, count, false);
        self.used = self.used.wrapping_sub(count);
        true
    }

    /// Pages leased now.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Pages in all.
    pub fn pages(&self) -> usize {
        self.pages
    }
}
