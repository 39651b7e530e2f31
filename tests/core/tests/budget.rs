// SPDX-License-Identifier: GPL-2.0

//! The budget of a cache against its rule, written down as it is said.

use common::cases;
use proptest::prelude::*;
use zrs_core::budget::{Budget, Class};

use Class::{Large, Small};

const CLASSES: [Class; 2] = [Small, Large];

fn other(class: Class) -> Class {
    match class {
        Small => Large,
        Large => Small,
    }
}

/// The expected contents of a budget.
struct Model {
    total: u128,
    percent: u128,
    used: [u128; 2],
    high: [u128; 2],
}

impl Model {
    fn new(total: usize, percent: u32) -> Self {
        Self {
            total: total as u128,
            percent: u128::from(percent).min(100),
            used: [0; 2],
            high: [0; 2],
        }
    }

    fn own(&self, class: Class) -> u128 {
        let small = self.total * self.percent / 100;
        match class {
            Small => small,
            Large => self.total - small,
        }
    }

    fn used(&self, class: Class) -> u128 {
        self.used[class as usize]
    }

    fn all(&self) -> u128 {
        self.used.iter().sum()
    }

    fn admits(&self, class: Class, pages: usize) -> bool {
        let (pages, other) = (pages as u128, other(class));
        let unused = self.own(other).saturating_sub(self.used(other));
        let left = unused.min(self.own(other) / 4);
        self.all() + pages <= self.total
            && (self.used(class) + pages <= self.own(class)
                || self.all() + pages + left <= self.total)
    }

    fn take(&mut self, class: Class, pages: usize) -> bool {
        let admitted = self.admits(class, pages);
        if admitted {
            let n = class as usize;
            self.used[n] += pages as u128;
            self.high[n] = self.high[n].max(self.used[n]);
        }
        admitted
    }

    fn give(&mut self, class: Class, pages: usize) -> bool {
        let had = self.used(class) >= pages as u128;
        if had {
            self.used[class as usize] -= pages as u128;
        }
        had
    }

    fn same_as(&self, budget: &Budget) -> Result<(), TestCaseError> {
        prop_assert_eq!(budget.total() as u128, self.total);
        prop_assert_eq!(budget.over() as u128, self.all().saturating_sub(self.total));
        for class in CLASSES {
            let (own, used) = (self.own(class), self.used(class));
            prop_assert_eq!(budget.own(class) as u128, own);
            prop_assert_eq!(budget.used(class) as u128, used);
            prop_assert_eq!(budget.high(class) as u128, self.high[class as usize]);
            prop_assert_eq!(budget.overdrawn(class) as u128, used.saturating_sub(own));
        }
        Ok(())
    }
}

// rows: C2
#[test]
fn shares() {
    for (total, percent, small, large) in [
        (100, 25, 25, 75),
        (2048, 25, 512, 1536),
        (99, 50, 49, 50),
        (7, 0, 0, 7),
        (7, 100, 7, 0),
        (7, 101, 7, 0),
        (7, u32::MAX, 7, 0),
        (0, 25, 0, 0),
        (usize::MAX, 100, usize::MAX, 0),
    ] {
        let budget = Budget::new(total, percent);
        assert_eq!((budget.own(Small), budget.own(Large)), (small, large));
    }
}

// rows: C2
#[test]
fn what_is_idle_is_lent_except_for_a_quarter() {
    for (class, most) in [(Small, 100 - 75 / 4), (Large, 100 - 25 / 4)] {
        let mut budget = Budget::new(100, 25);
        assert!(!budget.take(class, most + 1));
        assert!(budget.take(class, most));
        assert!(!budget.take(class, 1));
        assert_eq!(budget.overdrawn(class), most - budget.own(class));
        // The quarter is the other's, and no more of it than that.
        let quarter = 100 - most;
        assert!(!budget.take(other(class), quarter + 1));
        assert!(budget.take(other(class), quarter));
        assert_eq!(budget.over(), 0);
        // Returned pages go to the other class, up to its share.
        let owed = budget.overdrawn(class);
        assert!(budget.give(class, owed));
        assert!(budget.take(other(class), owed));
        assert_eq!(
            (budget.overdrawn(class), budget.overdrawn(other(class))),
            (0, 0)
        );
        assert!(!budget.take(class, 1) && !budget.take(other(class), 1));
    }
}

/// The unused part of a share is not lent while it is less than a quarter; once it is used, the
/// other class may have all free pages.
// rows: C2
#[test]
fn both_busy() {
    let mut budget = Budget::new(100, 25);
    assert!(budget.take(Small, 25));
    assert!(!budget.take(Large, 76) && budget.take(Large, 70));
    assert!(!budget.take(Small, 1), "the large class's last five");
    assert!(budget.take(Large, 5));
    assert_eq!((budget.used(Small), budget.used(Large)), (25, 75));
    assert!(budget.give(Small, 10));
    assert!(
        !budget.take(Large, 5),
        "what leaves the small class its six"
    );
    assert!(budget.take(Large, 4) && budget.take(Small, 6));
    assert_eq!((budget.overdrawn(Large), budget.over()), (4, 0));
}

// rows: C2
#[test]
fn what_was_not_taken_is_not_given() {
    let mut budget = Budget::new(100, 25);
    assert!(!budget.give(Large, 1));
    assert!(budget.take(Small, 10));
    assert!(!budget.give(Large, 10), "the other's");
    assert!(!budget.give(Small, 11) && !budget.give(Small, usize::MAX));
    assert_eq!((budget.used(Small), budget.used(Large)), (10, 0));
    assert!(budget.give(Small, 10));
    assert!(!budget.give(Small, 10), "twice");
    assert_eq!((budget.used(Small), budget.high(Small)), (0, 10));
}

// rows: C2
#[test]
fn shrinking_takes_nothing_away() {
    let mut budget = Budget::new(1000, 25);
    assert!(budget.take(Large, 750) && budget.take(Small, 100));
    budget.resize(400);
    assert_eq!((budget.over(), budget.total()), (450, 400));
    assert_eq!((budget.overdrawn(Large), budget.overdrawn(Small)), (450, 0));
    assert!(!budget.take(Small, 1) && !budget.take(Large, 1));
    assert!(budget.crowded());
    assert_eq!(budget.lease(1, 256), None);
    assert!(budget.give(Large, 449));
    assert!(!budget.take(Small, 1), "still one too many");
    assert!(budget.give(Large, 2));
    assert_eq!(budget.over(), 0);
    assert!(!budget.take(Small, 1), "it has its share");
    assert!(budget.take(Large, 1));
    budget.resize(1000);
    assert!(budget.take(Large, 400) && budget.take(Small, 150));
    assert_eq!((budget.high(Large), budget.high(Small)), (750, 250));
}

// rows: C3
#[test]
fn leases_get_smaller_where_it_is_crowded() {
    let mut budget = Budget::new(1600, 0);
    assert_eq!(budget.lease(16, 256), Some(256));
    let mut sizes = Vec::new();
    while let Some(pages) = budget.lease(16, 256) {
        assert!(budget.take(Large, pages));
        sizes.push(pages);
    }
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_eq!((sizes.first(), sizes.last()), (Some(&256), Some(&16)));
    assert!(budget.total() - budget.used(Large) < 16);
    assert!(budget.crowded());
    // Pages that blocks have borrowed make windows smaller.
    let mut budget = Budget::new(1000, 50);
    assert!(budget.take(Small, 875));
    assert_eq!(budget.lease(16, 256), Some(31), "a quarter of 125");
    assert_eq!(budget.lease(125, 256), Some(125));
    assert_eq!(budget.lease(126, 256), None);
    // The most is less than the least.
    assert_eq!(budget.lease(20, 10), Some(20));
    assert_eq!(budget.lease(0, 0), Some(0));
}

// rows: C2 C5
#[test]
fn crowded_is_less_than_half() {
    let mut budget = Budget::new(400, 0);
    assert!(!budget.crowded());
    assert!(budget.take(Large, 200));
    assert!(!budget.crowded());
    assert!(budget.take(Large, 1));
    assert!(budget.crowded());
    // Blocks that use all of their room crowd windows out, also when there are none yet.
    let mut budget = Budget::new(400, 50);
    assert!(budget.take(Small, 300));
    assert!(!budget.crowded(), "100 of 200 are free");
    assert!(budget.take(Small, 1));
    assert!(budget.crowded());
    let mut budget = Budget::new(400, 50);
    assert!(budget.take(Small, 200));
    budget.resize(100);
    assert!(budget.crowded());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(Class, usize),
    Give(Class, usize),
    Resize(usize),
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(&CLASSES[..])
}

/// Steps with a drawn number of pages; the total changes rarely.
fn steps(
    pages: impl Strategy<Value = usize> + Clone,
    totals: impl Strategy<Value = usize>,
) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (class(), pages.clone()).prop_map(|(class, n)| Step::Take(class, n)),
        4 => (class(), pages).prop_map(|(class, n)| Step::Give(class, n)),
        1 => totals.prop_map(Step::Resize),
    ];
    prop::collection::vec(step, 1..100)
}

fn percent() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..=100_u32, 1 => Just(25), 1 => any::<u32>()]
}

/// Plays a step with both; they agree on whether it is admitted.
fn play(budget: &mut Budget, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Take(class, n) => {
            prop_assert_eq!(budget.take(class, n), model.take(class, n));
        }
        Step::Give(class, n) => {
            prop_assert_eq!(budget.give(class, n), model.give(class, n));
        }
        Step::Resize(total) => {
            budget.resize(total);
            model.total = total as u128;
        }
    }
    model.same_as(budget)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(1000)))]

    // rows: C2 C3
    #[test]
    fn as_the_rule_says(
        total in 0..400_usize, percent in percent(), steps in steps(0..60_usize, 0..400_usize),
        least in 0..50_usize, most in 0..120_usize,
    ) {
        let (mut budget, mut model) = (Budget::new(total, percent), Model::new(total, percent));
        let mut before = 0;
        for step in steps {
            play(&mut budget, &mut model, step)?;
            // Only a smaller total leaves more in use than there may be, and then it only gets
            // less.
            match step {
                Step::Resize(_) => {}
                _ => prop_assert!(budget.over() <= before),
            }
            before = budget.over();
            // The pages that windows could have, found by trying.
            let room = (0..=400).rev().find(|&n| model.admits(Large, n));
            let expected = room.filter(|room| *room >= least);
            let expected = expected.map(|room| if most < least { least } else { (room / 4).clamp(least, most) });
            prop_assert_eq!(budget.lease(least, most), expected);
            let room = room.unwrap_or(0) as u128;
            let may_have = model.own(Large).max(model.used(Large) + room);
            prop_assert_eq!(budget.crowded(), room * 2 < may_have);
            // A lease is admitted; without one, not even the least is admitted.
            match budget.lease(least, most) {
                Some(pages) => {
                    prop_assert!(budget.take(Large, pages));
                    prop_assert!(pages >= least && budget.over() == 0);
                    prop_assert!(budget.give(Large, pages));
                    model.high[1] = model.high[1].max(budget.high(Large) as u128);
                }
                None => prop_assert!(!budget.take(Large, least)),
            }
        }
    }

    // rows: C2
    #[test]
    fn each_gets_a_quarter_of_its_share_at_once(
        total in 0..400_usize, percent in 0..=100_u32, steps in steps(0..60_usize, 0..400_usize),
        shrinks in any::<bool>(),
    ) {
        let mut budget = Budget::new(total, percent);
        for step in steps {
            match step {
                Step::Take(class, n) => {
                    budget.take(class, n);
                }
                Step::Give(class, n) => {
                    budget.give(class, n);
                }
                Step::Resize(total) if shrinks || total > budget.total() => budget.resize(total),
                Step::Resize(_) => {}
            }
            prop_assert!(shrinks || budget.over() == 0);
            for class in CLASSES {
                // After shrinking that holds again when the other has returned its borrowed pages.
                let missing = (budget.own(class) / 4).saturating_sub(budget.used(class));
                if missing > 0 && (!shrinks || budget.overdrawn(other(class)) == 0) {
                    prop_assert!(budget.take(class, missing));
                    prop_assert!(budget.give(class, missing));
                }
            }
        }
    }

    // rows: C2
    #[test]
    fn what_is_overdrawn_is_what_the_other_lacks(
        total in 0..400_usize, percent in 0..=100_u32, steps in steps(0..60_usize, 0..400_usize),
        class in class(),
    ) {
        let mut budget = Budget::new(total, percent);
        for step in steps {
            match step {
                Step::Take(class, n) => {
                    budget.take(class, n);
                }
                Step::Give(class, n) => {
                    budget.give(class, n);
                }
                Step::Resize(total) => budget.resize(total),
            }
        }
        let owed = budget.overdrawn(other(class));
        prop_assert!(budget.give(other(class), owed));
        let missing = budget.own(class).saturating_sub(budget.used(class));
        if missing > 0 {
            prop_assert!(budget.take(class, missing));
        }
        // When both have returned theirs, no more is in use than the total.
        let owed = budget.overdrawn(class);
        prop_assert!(budget.give(class, owed));
        prop_assert_eq!(budget.over(), 0);
    }

    // rows: C2
    #[test]
    fn nothing_overflows(
        total in any::<usize>(), percent in any::<u32>(), steps in steps(any::<usize>(), any::<usize>()),
        least in any::<usize>(), most in any::<usize>(),
    ) {
        let (mut budget, mut model) = (Budget::new(total, percent), Model::new(total, percent));
        for step in steps {
            play(&mut budget, &mut model, step)?;
            if let Some(pages) = budget.lease(least, most) {
                prop_assert!(model.admits(Large, pages));
            }
        }
    }
}

/// A class gets its share even if the other has borrowed it, and no more; then more is in use than
/// the total, until the borrowed pages are returned.
// rows: C2 C3
#[test]
fn what_is_lent_is_claimed() {
    let mut b = Budget::new(1000, 25);
    assert!(b.take(Class::Large, 938) && !b.take(Class::Large, 1));
    assert!(b.take(Class::Small, 62) && !b.take(Class::Small, 1));
    assert!(!b.claim(Class::Small, 189) && b.claim(Class::Small, 188));
    assert_eq!((b.used(Class::Small), b.high(Class::Small)), (250, 250));
    assert_eq!((b.over(), b.overdrawn(Class::Large)), (188, 188));
    assert!(!b.claim(Class::Small, 1) && !b.take(Class::Large, 1));
    assert!(b.give(Class::Large, 188));
    assert_eq!(b.over(), 0);
}
