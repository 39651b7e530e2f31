// SPDX-License-Identifier: GPL-2.0

//! Blocks that are lent: kept for the fragments of unread datagrams that have filled them, and then
//! mapped into programs.
//!
//! A block that is kept leaves its receive queue, and an unused block takes its place there, so
//! that the queue has as many as before. Unused blocks for a datagram are set aside when it begins
//! to arrive ([`Pool::set_aside`]); each is exchanged for the block of a fragment
//! ([`KeptBlock::fill`]). Kept blocks belong to no link and no queue: they outlive both. No device
//! writes into them, as they are posted nowhere.
//!
//! A block is used again when its [`KeptBlock`] was dropped and its page has no other reference: no
//! program maps it, no file, device or pipe uses it. As with windows only the reference count shows
//! that, so the blocks of dropped ones are checked periodically (`reclaim.rs`), and some of them
//! whenever a program receives.

#![deny(unsafe_code)]

use core::ops::Range;

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;

use super::{Blocks, Pool};
use crate::kern::area::Area;
use crate::kern::contig::Payload;
use crate::kern::task::now_ns;
use crate::params;
use crate::proto::dgram::lend::Lending;
use crate::proto::dgram::wire::FRAGMENTS_MAX;
use crate::proto::wire::SMALL_MAX;

/// A block is a page, which a full message fills.
const _: () = assert!(SMALL_MAX as usize == PAGE_SIZE);

/// The most blocks that are set aside, or looked at, under one hold of the lock.
const BATCH: usize = 64;
const _: () = assert!(FRAGMENTS_MAX as usize <= BATCH);

/// A block that is lent.
pub(crate) struct KeptBlock {
    pool: Arc<Pool>,
    block: u32,
    /// When the data arrived, in nanoseconds of the monotonic clock; `None`: the block is unused.
    born: Option<u64>,
}

impl KeptBlock {
    /// Keeps `block`, which a message has filled, and returns the unused block that is to be posted
    /// in its place. EINVAL, and no change: it is a block of another pool, or has not been filled.
    pub(crate) fn fill(&mut self, pool: &Arc<Pool>, block: u32, payload: usize) -> Result<u32> {
        let whole = payload == PAGE_SIZE && self.born.is_none();
        if !whole || !Arc::ptr_eq(pool, &self.pool) {
            return Err(EINVAL);
        }
        self.born = Some(now_ns());
        pool.cache.arrived(payload, false);
        pool.kept_unread.fetch_add(1, Relaxed);
        Ok(core::mem::replace(&mut self.block, block))
    }

    /// The bytes in `range`. EINVAL if they are not all inside.
    pub(crate) fn payload(&self, range: Range<usize>) -> Result<Payload<'_>> {
        if self.born.is_none() || range.start > range.end || range.end > PAGE_SIZE {
            return Err(EINVAL);
        }
        let at = self.pool.block_at(self.block) + range.start;
        Ok(Payload::Pool(self.pool.memory(), at, range.len()))
    }

    /// The page in the pool's memory.
    fn page(&self) -> usize {
        self.pool.layout.first_block + self.block as usize
    }

    /// Maps the pages of `blocks` one behind the other into the calling program, from the page at
    /// `addr` on. Returns their number, which may be less. Sleeps. Errors: as
    /// [`Area::map_pages`]; EINVAL if they are not filled, or of several pools.
    pub(crate) fn map(blocks: &[Self], area: &Arc<Area>, addr: usize) -> Result<usize> {
        let Some(first) = blocks.first() else {
            return Ok(0);
        };
        let pool = &first.pool;
        let good = |b: &Self| b.born.is_some() && Arc::ptr_eq(&b.pool, pool);
        if !blocks.iter().all(good) {
            return Err(EINVAL);
        }
        area.map_pages(addr, pool.memory(), blocks.iter().map(Self::page))
    }

    /// Takes blocks of the same pool back that programs no longer use. Does not sleep.
    pub(crate) fn reclaim_some(&self) {
        self.pool.reclaim_batch();
    }
}

impl Drop for KeptBlock {
    fn drop(&mut self) {
        let pool = &self.pool;
        if let Some(born) = self.born {
            pool.cache.left(PAGE_SIZE);
            pool.cache.stayed(now_ns().saturating_sub(born));
            pool.kept_unread.fetch_sub(1, Relaxed);
        }
        if pool.let_go(self.block) {
            pool.pools.hasten_reclaim();
        }
    }
}

impl Pool {
    /// Blocks that are lent: set aside, kept, or mapped into programs.
    pub(super) fn lent(&self) -> u32 {
        self.lent.load(Relaxed)
    }

    /// Adds unused blocks to `aside`, at most `n`: fewer if the blocks or the budget run short, or
    /// `dgram_lend_percent` of the blocks are lent. Does not sleep, if `aside` has room for them.
    pub(crate) fn set_aside(self: &Arc<Self>, n: usize, aside: &mut KVec<KeptBlock>) {
        let room = aside.capacity().saturating_sub(aside.len());
        let mut taken = [0; BATCH];
        let mut got = 0;
        {
            let mut blocks = self.blocks.lock();
            if blocks.gone {
                return;
            }
            let lending = Lending {
                blocks: self.layout.blocks,
                percent: params::DGRAM_LEND_PERCENT.get(),
                link: params::LINK_CREDIT.get(),
            };
            let more = lending.more(self.lent(), self.promised.load(Relaxed));
            for place in taken.iter_mut().take(n.min(room).min(more as usize)) {
                if !self.cache.borrow_block() {
                    break;
                }
                let Some(block) = blocks.idle.pop() else {
                    self.cache.give_block();
                    break;
                };
                *place = block;
                got += 1;
            }
            self.blocks_used.fetch_add(got as u32, Relaxed);
            self.lent.fetch_add(got as u32, Full);
        }
        for block in taken.into_iter().take(got) {
            let kept = KeptBlock {
                pool: self.clone(),
                block,
                born: None,
            };
            // There is room.
            let _ = aside.push_within_capacity(kept);
        }
    }

    /// A block is not kept any more. Returns whether it is still mapped, or used otherwise.
    fn let_go(&self, block: u32) -> bool {
        let mut blocks = self.blocks.lock();
        // The memory lives on for what uses it.
        if blocks.gone {
            return false;
        }
        if self.is_back(block) {
            self.end_loan(&mut blocks, block);
            return false;
        }
        // Within capacity.
        let _ = blocks.lent.push_within_capacity(block);
        true
    }

    /// Whether no program has the page of a block.
    fn is_back(&self, block: u32) -> bool {
        let page = self.layout.first_block + block as usize;
        self.memory().is_sole_owner(page..page + 1)
    }

    fn end_loan(&self, blocks: &mut Blocks, block: u32) {
        // Within capacity.
        let _ = blocks.idle.push_within_capacity(block);
        self.blocks_used.fetch_sub(1, Relaxed);
        self.lent.fetch_sub(1, Full);
        self.cache.give_block();
    }

    /// Takes some blocks back that programs no longer use: looks at those that were not looked at
    /// for the longest time. Returns whether there were any, and the number of those that are lent
    /// still. Does not sleep.
    fn reclaim_batch(&self) -> (bool, usize) {
        let mut blocks = self.blocks.lock();
        if blocks.gone {
            return (false, 0);
        }
        let mut any = false;
        for _ in 0..BATCH.min(blocks.lent.len()) {
            let at = match blocks.next_lent {
                at if at < blocks.lent.len() => at,
                _ => 0,
            };
            let Some(block) = blocks.lent.get(at).copied() else {
                break;
            };
            if !self.is_back(block) {
                blocks.next_lent = at + 1;
                continue;
            }
            let last = blocks.lent.pop();
            if let (Some(last), Some(place)) = (last, blocks.lent.get_mut(at)) {
                *place = last;
            }
            self.end_loan(&mut blocks, block);
            any = true;
        }
        (any, blocks.lent.len())
    }

    /// Takes the blocks back that programs no longer use. Returns whether there were any, and
    /// whether some are lent still. Sleeps.
    pub(super) fn reclaim_lent(&self) -> (bool, bool) {
        let (mut any, mut left) = self.reclaim_batch();
        for _ in 0..left.div_ceil(BATCH) {
            let (more, now) = self.reclaim_batch();
            (any, left) = (any | more, now);
        }
        if any {
            self.refill();
        }
        (any, left > 0)
    }
}
