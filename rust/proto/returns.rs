// SPDX-License-Identifier: GPL-2.0

//! Blocks of a pool that are about to come back: a link that finds none waits for those of links
//! that are ending, and fails only where none is.
//!
//! A link that waits may miss none of them. It looks at the count, then for blocks, then marks that
//! it waits, and then asks for the [`Verdict`]. A link that has ended gives its blocks back, then
//! counts that, and then continues the links that wait. The caller keeps the count in an atomic,
//! and all these steps are in order for all threads.

/// How many links are ending, in the low half, and how often one has given its blocks back, which
/// wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Returns(pub u64);

/// The next step of a link that has found no blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Blocks have come back since: it looks again.
    LookAgain,
    /// It waits for blocks that are about to come back.
    Wait,
    /// None are.
    Full,
}

impl Returns {
    /// A link that begins to end adds this to the count.
    pub const ENDS: u64 = 1;
    /// A link that was ending and has given its blocks back adds this to the count, which wraps.
    pub const GAVE: u64 = (1 << 32) - 1;

    /// Whether links are ending.
    pub fn are_due(self) -> bool {
        self.0 as u32 != 0
    }

    /// The next step of a link that has found no blocks. `before`: the count when the link began to
    /// look.
    pub fn verdict(self, before: Self) -> Verdict {
        if self.0 >> 32 != before.0 >> 32 {
            Verdict::LookAgain
        } else if self.are_due() {
            Verdict::Wait
        } else {
            Verdict::Full
        }
    }
}
