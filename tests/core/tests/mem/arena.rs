// SPDX-License-Identifier: GPL-2.0

//! The arena against a list of page states.

use proptest::prelude::*;
use zrs_core::mem::arena::{Arena, Counts, Extent, Shortage};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Page {
    Clean,
    Used,
    Dirty,
    Zeroing,
}

struct Model {
    arena: Arena<Vec<u64>>,
    pages: Vec<Page>,
}

impl Model {
    fn new(pages: u32) -> Self {
        let words = Arena::<Vec<u64>>::words(pages);
        Self {
            arena: Arena::new(vec![7; words], vec![7; words], pages),
            pages: vec![Page::Dirty; pages as usize],
        }
    }

    fn set(&mut self, run: Extent, from: Page, to: Page) {
        for page in &mut self.pages[run.page as usize..(run.page + run.pages) as usize] {
            assert_eq!(*page, from);
            *page = to;
        }
    }

    fn has(&self, run: Extent, state: Page) -> bool {
        let end = u64::from(run.page) + u64::from(run.pages);
        run.pages > 0
            && end <= self.pages.len() as u64
            && self.pages[run.page as usize..end as usize]
                .iter()
                .all(|p| *p == state)
    }

    fn count(&self, state: Page) -> u32 {
        self.pages.iter().filter(|p| **p == state).count() as u32
    }

    fn check(&self) {
        let counts = Counts {
            clean: self.count(Page::Clean),
            used: self.count(Page::Used),
            dirty: self.count(Page::Dirty),
            zeroing: self.count(Page::Zeroing),
        };
        assert_eq!(self.arena.counts(), counts, "pages are conserved");
    }

    fn zero_all(&mut self) {
        while let Some(run) = self.arena.next_dirty(u32::MAX) {
            self.set(run, Page::Dirty, Page::Zeroing);
            assert!(self.arena.zeroed(run));
            self.set(run, Page::Zeroing, Page::Clean);
        }
    }

    fn alloc(&mut self, pages: u32, run_max: u32, most: usize) -> Result<Vec<Extent>, Shortage> {
        let mut out = vec![Extent::default(); most];
        let n = self.arena.alloc(pages, run_max, &mut out)?;
        out.truncate(n);
        for run in &out {
            assert!((1..=run_max).contains(&run.pages));
            // Clean pages alone, and none twice.
            self.set(*run, Page::Clean, Page::Used);
        }
        assert_eq!(out.iter().map(|r| r.pages).sum::<u32>(), pages);
        Ok(out)
    }
}

// rows: M5
#[test]
fn nothing_is_allocated_before_it_is_zeroed() {
    let mut m = Model::new(70);
    assert_eq!(m.alloc(1, 8, 9), Err(Shortage::Zeroing));
    let run = m.arena.next_dirty(64).unwrap();
    m.set(run, Page::Dirty, Page::Zeroing);
    assert_eq!(m.alloc(1, 8, 9), Err(Shortage::Zeroing));
    assert!(m.arena.zeroed(run));
    m.set(run, Page::Zeroing, Page::Clean);
    assert_eq!(m.alloc(64, 64, 1).unwrap().len(), 1);
    assert_eq!(m.alloc(7, 8, 9), Err(Shortage::Full), "more than there are");
    m.check();
}

// rows: M5
#[test]
fn every_pattern_of_ten_pages() {
    for pattern in 0..1_u32 << 10 {
        for (pages, run_max) in [(1, 1), (2, 4), (3, 2), (4, 4), (7, 16)] {
            let mut m = Model::new(10);
            m.zero_all();
            for at in 0..10 {
                m.alloc(1, 1, 1).unwrap();
                assert_eq!(m.pages[at], Page::Used, "the first one that is free");
            }
            for at in (0..10).filter(|at| pattern & (1 << at) != 0) {
                let run = Extent { page: at, pages: 1 };
                assert!(m.arena.free(run));
                m.set(run, Page::Used, Page::Dirty);
            }
            m.zero_all();
            let clean = m.count(Page::Clean);
            let longest = m
                .pages
                .split(|p| *p != Page::Clean)
                .map(<[_]>::len)
                .max()
                .unwrap();
            match m.alloc(pages, run_max, 10) {
                Ok(runs) => {
                    assert!(clean >= pages);
                    let best = (longest as u32).min(run_max).min(pages);
                    assert!(
                        runs[0].pages * 2 >= best,
                        "long runs first: {runs:?} of {pattern:#b}"
                    );
                }
                Err(why) => assert_eq!((clean < pages, why), (true, Shortage::Full)),
            }
            m.check();
        }
    }
}

// rows: M5
#[test]
fn too_many_places_are_no_room() {
    let mut m = Model::new(16);
    m.zero_all();
    let all: Vec<_> = (0..16).map(|_| m.alloc(1, 1, 1).unwrap()[0]).collect();
    for run in all.iter().step_by(2) {
        assert!(m.arena.free(*run));
        m.set(*run, Page::Used, Page::Dirty);
    }
    m.zero_all();
    assert_eq!(m.alloc(8, 8, 7), Err(Shortage::Full));
    m.check();
    assert_eq!(m.alloc(8, 8, 8).unwrap().len(), 8);
}

proptest! {
    // rows: M5
    #[test]
    fn as_a_list_has_it(
        pages in 1u32..200,
        steps in prop::collection::vec((0u8..5, 0u32..220, 1u32..40, 1u32..20), 1..300),
    ) {
        let mut m = Model::new(pages);
        let mut runs = Vec::new();
        let mut zeroing = Vec::new();
        for (what, a, b, c) in steps {
            match what {
                0 | 1 => {
                    let clean = m.count(Page::Clean);
                    match m.alloc(b, c, 40) {
                        Ok(new) => runs.extend(new),
                        Err(Shortage::Full) => {
                            let idle = m.count(Page::Dirty) + m.count(Page::Zeroing);
                            prop_assert!(clean + idle < b || idle == 0);
                            prop_assert!(clean < b);
                        }
                        Err(Shortage::Zeroing) => prop_assert!(clean < b),
                    }
                }
                2 if !runs.is_empty() => {
                    let run: Extent = runs.swap_remove(a as usize % runs.len());
                    prop_assert!(m.arena.free(run));
                    m.set(run, Page::Used, Page::Dirty);
                }
                3 => if let Some(run) = m.arena.next_dirty(c) {
                    prop_assert!(run.pages <= c);
                    m.set(run, Page::Dirty, Page::Zeroing);
                    zeroing.push(run);
                },
                _ => {
                    // Any run: refused unless it is in the right state.
                    let run = Extent { page: a, pages: b };
                    let known = zeroing.pop().filter(|_| a % 2 == 0);
                    let run = known.unwrap_or(run);
                    let fits = m.has(run, Page::Zeroing);
                    prop_assert_eq!(m.arena.zeroed(run), fits);
                    if fits {
                        m.set(run, Page::Zeroing, Page::Clean);
                    }
                    let run = Extent { page: b, pages: a };
                    if !m.has(run, Page::Used) {
                        prop_assert!(!m.arena.free(run));
                    }
                }
            }
            m.check();
        }
    }
}
