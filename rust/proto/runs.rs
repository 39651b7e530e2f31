// SPDX-License-Identifier: GPL-2.0

//! Physically contiguous runs of a list of page frames: which neighbours are one piece of memory.
//!
//! Pure arithmetic. A buffer is a list of page frame numbers in its order, the offset of its
//! first byte in the first page, and its length; the runs of it cover exactly those bytes.

use core::iter::Peekable;

/// One physically contiguous piece of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Index in the list of the run's first page.
    pub page: usize,
    /// Frame number of that page.
    pub pfn: u64,
    /// Offset of the run's first byte in that page; less than the page size.
    pub offset: usize,
    /// Bytes in the run; never 0. They may reach over many pages.
    pub len: usize,
}

/// The runs of a buffer, in its order; made by [`runs`].
pub struct Runs<I: Iterator<Item = u64>> {
    pfns: Peekable<I>,
    page_size: usize,
    page: usize,
    offset: usize,
    left: usize,
}

/// The runs of the buffer whose pages have the frame numbers `pfns`, which begins `first_offset`
/// bytes into the first page and is `len` bytes long.
///
/// Ends early where the list of pages does. Nothing is yielded if `first_offset` is not inside the
/// first page.
pub fn runs<I: IntoIterator<Item = u64>>(
    pfns: I,
    page_size: usize,
    first_offset: usize,
    len: usize,
) -> Runs<I::IntoIter> {
    Runs {
        pfns: pfns.into_iter().peekable(),
        page_size,
        page: 0,
        offset: first_offset,
        left: if first_offset < page_size { len } else { 0 },
    }
}

impl<I: Iterator<Item = u64>> Iterator for Runs<I> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let first = self.pfns.next()?;
        let run_page = self.page;
        let run_offset = self.offset;
        // Bytes from the run's first byte to the end of the last page taken so far.
        let mut reach = self.page_size.saturating_sub(run_offset);
        let mut last = first;
        self.page = self.page.saturating_add(1);
        while reach < self.left {
            let next = last.checked_add(1);
            let Some(pfn) = self.pfns.next_if(|&pfn| Some(pfn) == next) else {
                break;
            };
            last = pfn;
            self.page = self.page.saturating_add(1);
            reach = reach.saturating_add(self.page_size);
        }
        let len = reach.min(self.left);
        self.left = self.left.saturating_sub(len);
        self.offset = 0;
        Some(Run {
            page: run_page,
            pfn: first,
            offset: run_offset,
            len,
        })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const PAGE: usize = 4096;

    fn all(pfns: &[u64], off: usize, len: usize) -> Vec<(usize, u64, usize, usize)> {
        runs(pfns.iter().copied(), PAGE, off, len)
            .map(|r| (r.page, r.pfn, r.offset, r.len))
            .collect()
    }

    #[test]
    fn one_page_is_cut_at_both_ends() {
        assert_eq!(all(&[7], 100, 10), [(0, 7, 100, 10)]);
        assert_eq!(all(&[7], 0, PAGE), [(0, 7, 0, PAGE)]);
        assert_eq!(all(&[7], PAGE - 1, 1), [(0, 7, PAGE - 1, 1)]);
    }

    #[test]
    fn neighbours_merge() {
        assert_eq!(all(&[7, 8, 9], 100, 2 * PAGE), [(0, 7, 100, 2 * PAGE)]);
    }

    #[test]
    fn scattered_pages_do_not() {
        assert_eq!(
            all(&[7, 9, 8], 100, 2 * PAGE),
            [(0, 7, 100, PAGE - 100), (1, 9, 0, PAGE), (2, 8, 0, 100)]
        );
    }

    #[test]
    fn descending_and_equal_frames_stay_apart() {
        assert_eq!(all(&[8, 7], 0, 2 * PAGE).len(), 2);
        assert_eq!(all(&[8, 8], 0, 2 * PAGE).len(), 2);
    }

    #[test]
    fn mixed() {
        assert_eq!(
            all(&[1, 2, 5, 6, 7, 3], 4000, 96 + 4 * PAGE + 5),
            [(0, 1, 4000, 96 + PAGE), (2, 5, 0, 3 * PAGE), (5, 3, 0, 5)]
        );
    }

    #[test]
    fn pages_beyond_the_length_are_left_out() {
        assert_eq!(all(&[1, 2, 3], 0, PAGE), [(0, 1, 0, PAGE)]);
    }

    #[test]
    fn a_short_list_ends_early() {
        assert_eq!(all(&[1, 2], 10, 100 * PAGE), [(0, 1, 10, 2 * PAGE - 10)]);
        assert_eq!(all(&[], 10, 100), []);
    }

    #[test]
    fn nothing_for_nothing() {
        assert_eq!(all(&[1, 2], 0, 0), []);
        assert_eq!(all(&[1, 2], PAGE, 10), []);
    }

    #[test]
    fn the_last_frame_number_does_not_wrap() {
        assert_eq!(all(&[u64::MAX, 0], 0, 2 * PAGE).len(), 2);
    }

    // Every run list covers exactly the bytes, in order, whatever the pages are.
    #[test]
    fn bytes_are_covered_once_in_order() {
        let mut seed = 0x9e37_79b9_u64;
        let mut rand = move |n: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..2000 {
            let n = rand(6) as usize + 1;
            let pfns: Vec<u64> = (0..n).map(|_| rand(4)).collect();
            let off = rand(PAGE as u64) as usize;
            let len = rand((n * PAGE - off) as u64 + 1) as usize;
            let mut at = off;
            for r in runs(pfns.iter().copied(), PAGE, off, len) {
                assert_eq!(r.page * PAGE + r.offset, at);
                assert_eq!(r.pfn, pfns[r.page]);
                let pages = (r.offset + r.len).div_ceil(PAGE);
                for k in 0..pages {
                    assert_eq!(pfns[r.page + k], r.pfn + k as u64);
                }
                at += r.len;
            }
            assert_eq!(at - off, len);
        }
    }
}
