// SPDX-License-Identifier: GPL-2.0

//! The blocks of a link that this host makes. Before the link's queues are made, it waits for
//! blocks that links which are ending are about to give back; when the peer has replied, it claims
//! them.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;

use super::{Link, LinkState};
use crate::kern::errno::{EDQUOT, ENOBUFS, ENOTCONN};
use crate::params;
use crate::pool::Pool;
use crate::proto::quota::Holder;
use crate::proto::returns::Verdict;
use crate::transport::context::Transport;
use crate::transport::links::Evicted;

impl Link {
    /// Whether `pool` has blocks for this link, which this host makes. If not, an unused link is
    /// ended. False: the link waits, and [`Transport::continue_links`] lets it try again.
    ///
    /// Errors: EDQUOT, the share of its holder is used; ENOBUFS, no link on the pool is ending;
    /// ENOTCONN, this link is down. Sleeps.
    pub(in crate::transport) fn await_blocks(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<bool> {
        if self.state() != LinkState::Connecting {
            return Err(ENOTCONN);
        }
        if let Some(holder) = self.shares() {
            pool.shares.may_take(holder).then_some(()).ok_or(EDQUOT)?;
        }
        loop {
            let before = pool.returns();
            if pool.may_promise(self.leaves_reserve()) {
                return Ok(true);
            }
            let evicted = match before.are_due() {
                true => Evicted::None,
                false => self.transport.evict_idle_link(pool, 0),
            };
            self.awaits_blocks.xchg(true, Full);
            let verdict = match (pool.returns().verdict(before), evicted) {
                (Verdict::Full, Evicted::Soon) => {
                    self.transport.look_for_delivered();
                    Verdict::Wait
                }
                (verdict, _) => verdict,
            };
            if verdict == Verdict::Wait || !self.awaits_blocks.xchg(false, Full) {
                return Ok(false);
            }
            if verdict == Verdict::Full {
                return Err(ENOBUFS);
            }
        }
    }

    /// The peer has replied to our request: promises it the number of blocks that our hello
    /// announced. Until they are posted, its messages may use other links' blocks or wait for a
    /// free one. The link counts in the share of its holder from now on. ENOBUFS, EDQUOT, ENOMEM,
    /// ENOTCONN.
    pub(in crate::transport) fn claim_blocks(self: &Arc<Self>) -> Result {
        let queues = self
            .tx
            .lock()
            .queues
            .as_ref()
            .map(|q| (q.pool.clone(), q.rx.clone()));
        let (pool, rx) = queues.ok_or(ENOTCONN)?;
        let share = self.shares();
        if let Some(holder) = share {
            pool.shares.take(holder)?;
        }
        let claimed = match rx.promise(self.leaves_reserve()) {
            true => self.keep_blocks(share).inspect_err(|_| {
                rx.unpromise(params::LINK_CREDIT.get());
            }),
            false => {
                // Another link was faster, or was refused at this moment. Where blocks are there or
                // about to come back, connects that wait for this link are retried: the next link
                // waits for the blocks.
                let again = pool.returns().are_due()
                    || pool.may_promise(self.leaves_reserve())
                    || self.transport.evict_idle_link(&pool, 0) != Evicted::None;
                self.tx.lock().stale |= again;
                Err(ENOBUFS)
            }
        };
        if let (Err(_), Some(holder)) = (claimed, share) {
            pool.shares.give(holder);
        }
        claimed
    }

    /// Stores what was claimed until the teardown. ENOTCONN if the link is down already.
    fn keep_blocks(&self, share: Option<Holder>) -> Result {
        let mut tx = self.tx.lock();
        if tx.state != LinkState::Connecting {
            return Err(ENOTCONN);
        }
        (tx.promised, tx.share) = (true, share);
        Ok(())
    }
}

impl Transport {
    /// Blocks have come back, or links can be ended now: links that wait for blocks try again.
    pub(in crate::transport) fn continue_links(&self) {
        for link in self.links.lock().iter() {
            if link.awaits_blocks.xchg(false, Full) {
                link.tries_again.xchg(true, Full);
                link.start();
            }
        }
    }
}
