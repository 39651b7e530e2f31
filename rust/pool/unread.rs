// SPDX-License-Identifier: GPL-2.0

//! The unread data in the blocks of a pool, with its age. Each block has a word of its own, so that
//! a small message takes no lock that other links and processors use; the oldest data is found by
//! a search, which only the cache's worker makes. The data in windows is in the lists of
//! [`AgeList`](crate::proto::age_list::AgeList).

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};

use crate::proto::ChanId;

/// A block.
struct UnreadBlock {
    /// Start of the age of its data, in nanoseconds of the monotonic clock, and the flag
    /// [`DEFERRED`]; 0: it has no unread data.
    since: Atomic<u64>,
    /// The data's channel: number and generation. Written before `since`.
    user: Atomic<u64>,
}

/// The data could not be moved: other data comes first.
const DEFERRED: u64 = 1 << 63;

/// The blocks of a pool.
pub(super) struct UnreadBlocks {
    blocks: KVVec<UnreadBlock>,
    /// Blocks that hold unread data.
    held: Atomic<u32>,
    /// Blocks whose data is deferred.
    deferred: Atomic<u32>,
}

impl UnreadBlocks {
    /// `n` blocks without unread data. ENOMEM. Sleeps.
    pub(super) fn new(n: u32) -> Result<Self> {
        let mut blocks = KVVec::with_capacity(n as usize, GFP_KERNEL)?;
        for _ in 0..n {
            let block = UnreadBlock {
                since: Atomic::new(0),
                user: Atomic::new(0),
            };
            blocks.push(block, GFP_KERNEL)?;
        }
        Ok(Self {
            blocks,
            held: Atomic::new(0),
            deferred: Atomic::new(0),
        })
    }

    fn block(&self, block: u32) -> Option<&UnreadBlock> {
        self.blocks.get(block as usize)
    }

    /// Blocks that hold unread data.
    pub(super) fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    /// Data for channel `user` has arrived in `block`, at `now`. Returns true if no other block had
    /// data that may be moved: the caller looks whether data is moved now, and sets the timer of
    /// the cache then. Any context.
    ///
    /// No data is without a timer. A block is counted after its word was written, and is not
    /// counted any more before its word is cleared. So if this counts another block, either that
    /// block's data has a timer, at which the worker searches again; or the worker is about to
    /// search, and finds this data.
    pub(super) fn add(&self, block: u32, user: ChanId, now: u64) -> bool {
        let Some(place) = self.block(block) else {
            return false;
        };
        let user = u64::from(user.gen) << 32 | u64::from(user.index);
        place.user.store(user, Relaxed);
        place.since.store(now.max(1) & !DEFERRED, Release);
        // Also orders the word before the caller's look at whether data is moved: the worker
        // searches after it has changed that.
        let held = self.held.fetch_add(1, Full);
        held <= self.deferred.load(Relaxed)
    }

    /// The data in `block` was read or moved. Any context.
    pub(super) fn left(&self, block: u32) {
        let Some(place) = self.block(block) else {
            return;
        };
        self.held.fetch_sub(1, Full);
        if place.since.xchg(0, Full) & DEFERRED != 0 {
            self.deferred.fetch_sub(1, Full);
        }
    }

    /// The oldest data that is not deferred: the block, its channel, and the start of its age.
    pub(super) fn oldest(&self) -> Option<(u32, ChanId, u64)> {
        let all = self.blocks.iter().zip(0..).filter_map(|(place, block)| {
            let since = place.since.load(Acquire);
            (since != 0 && since & DEFERRED == 0).then_some((place, block, since))
        });
        let (place, block, since) = all.min_by_key(|(.., since)| *since)?;
        // If the block has other data by now, the caller finds nothing to move, at worst.
        let user = place.user.load(Relaxed);
        let user = ChanId {
            index: user as u32,
            gen: (user >> 32) as u32,
        };
        Some((block, user, since))
    }

    /// The data that has been in `block` since `since` is deferred, if it is still there.
    pub(super) fn defer(&self, block: u32, since: u64) {
        let Some(place) = self.block(block) else {
            return;
        };
        if place.since.cmpxchg(since, since | DEFERRED, Full).is_ok() {
            self.deferred.fetch_add(1, Full);
        }
    }

    /// Makes deferred data a candidate again, as if it had arrived at `now`.
    pub(super) fn retry_deferred(&self, now: u64) {
        if !self.has_deferred() {
            return;
        }
        for place in self.blocks.iter() {
            let since = place.since.load(Relaxed);
            if since & DEFERRED != 0 && place.since.cmpxchg(since, now.max(1), Full).is_ok() {
                self.deferred.fetch_sub(1, Full);
            }
        }
    }

    /// Whether data is deferred.
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.load(Relaxed) > 0
    }
}
