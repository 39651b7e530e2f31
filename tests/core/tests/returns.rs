// SPDX-License-Identifier: GPL-2.0

//! Blocks that are about to come back: what a link does that has found none, and that it misses none.

use zrs_core::returns::{Returns, Verdict};

fn after(count: Returns, add: u64) -> Returns {
    Returns(count.0.wrapping_add(add))
}

// rows: C3 B4
#[test]
fn verdicts() {
    for start in [0, 7 << 32, u64::MAX << 32] {
        let none = Returns(start);
        assert!(!none.are_due());
        assert_eq!(none.verdict(none), Verdict::Full);
        let one = after(none, Returns::ENDS);
        assert!(one.are_due());
        assert_eq!(one.verdict(none), Verdict::Wait);
        assert_eq!(one.verdict(one), Verdict::Wait);
        let two = after(one, Returns::ENDS);
        let gave = after(two, Returns::GAVE);
        assert!(gave.are_due());
        assert_eq!(gave.verdict(two), Verdict::LookAgain);
        assert_eq!(gave.verdict(gave), Verdict::Wait);
        let all = after(gave, Returns::GAVE);
        assert!(!all.are_due());
        assert_eq!(all.verdict(gave), Verdict::LookAgain);
        assert_eq!(all.verdict(all), Verdict::Full);
    }
}

/// A link that looks for blocks, and others that are ending, step by step.
#[derive(Clone)]
struct World {
    count: Returns,
    free: u32,
    waits: bool,
    /// The steps that each ending link has done.
    ended: [u8; 2],
    /// The next step of the link that looks, and what it has seen.
    step: u8,
    before: Returns,
    found: Option<bool>,
}

impl World {
    fn end(&mut self, link: usize) {
        match self.ended[link] {
            0 => self.free += 1,
            1 => self.count = after(self.count, Returns::GAVE),
            _ if std::mem::take(&mut self.waits) => self.step = 0,
            _ => {}
        }
        self.ended[link] += 1;
    }

    /// It needs `want` blocks. Returns false if it waits, or is done.
    fn look(&mut self, want: u32) -> bool {
        if self.found.is_some() || self.step == 4 {
            return false;
        }
        self.step += 1;
        match self.step {
            1 => self.before = self.count,
            2 if self.free >= want => self.found = Some(true),
            2 => {}
            3 => self.waits = true,
            _ => match self.count.verdict(self.before) {
                Verdict::Wait => {}
                // Another thread has cleared the mark already: it lets the link go on.
                _ if !std::mem::take(&mut self.waits) => self.step = 0,
                Verdict::LookAgain => self.step = 0,
                Verdict::Full => self.found = Some(false),
            },
        }
        true
    }

    /// Every order of the steps from here on. Returns how many there are.
    fn run(self, want: u32) -> u32 {
        let mut orders = 0;
        for link in 0..2 {
            if self.ended[link] < 3 {
                let mut next = self.clone();
                next.end(link);
                orders += next.run(want);
            }
        }
        let mut next = self.clone();
        if next.look(want) {
            orders += next.run(want);
        }
        if orders == 0 {
            assert_eq!(
                self.found,
                Some(want <= 2),
                "it waits for ever, or has missed some"
            );
            orders = 1;
        }
        orders
    }
}

/// In every order in which two links give blocks back while another one looks for some, that one
/// gets them when there are enough, and fails when there are not.
// rows: C3 B4
#[test]
fn none_is_missed() {
    for want in 1..=3 {
        let world = World {
            count: Returns(2 * Returns::ENDS),
            free: 0,
            waits: false,
            ended: [0; 2],
            step: 0,
            before: Returns::default(),
            found: None,
        };
        assert!(world.run(want) > 100);
    }
}
