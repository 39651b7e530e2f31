// SPDX-License-Identifier: GPL-2.0

//! Reclaims pages of windows and blocks that were mapped into programs. No event reports that a
//! page was released, so the pages are checked periodically. So are the rings of programs that hold
//! much data in them and do not ring the doorbell when they give it back.
//!
//! Locks: `mapped` (mutex), behind a link's `drain`; nothing is taken under it.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;

use super::context::{Pools, RECLAIM};
use super::lessee::{same, Lessee};

/// The shortest delay between two checks of mapped pages, in milliseconds.
pub(crate) const RECLAIM_MS: u32 = 4;

/// The longest delay between two checks, while no page is released, in milliseconds.
const RECLAIM_MS_MAX: u32 = 256;

impl Pools {
    /// `user` is about to map pages to its program, or its ring is crowded. ENOMEM.
    pub(crate) fn track_mapped(self: &Arc<Self>, user: Arc<dyn Lessee>) -> Result {
        self.mapped.lock().push(user, GFP_KERNEL)?;
        self.hasten_reclaim();
        Ok(())
    }

    /// Schedules a check of mapped pages soon: more of them are mapped. Does not sleep.
    pub(super) fn hasten_reclaim(self: &Arc<Self>) {
        // The check comes sooner if the delay has grown; never later.
        if self.reclaim_ms.xchg(RECLAIM_MS, Full) > RECLAIM_MS {
            let delay = msecs_to_jiffies(RECLAIM_MS);
            self.queue
                .enqueue_or_move::<Self, RECLAIM>(self.clone(), delay);
        } else {
            self.schedule_reclaim();
        }
    }

    /// Schedules a check of mapped pages, if none is scheduled.
    pub(crate) fn schedule_reclaim(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(self.reclaim_ms.load(Relaxed));
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Self>, RECLAIM>(self.clone(), delay);
    }

    /// The lessee's program has no mapped pages any more.
    pub(crate) fn untrack_mapped(&self, user: &Arc<dyn Lessee>) {
        let gone = {
            let mut mapped = self.mapped.lock();
            let at = mapped.iter().position(|other| same(other, user));
            at.and_then(|i| mapped.remove(i).ok())
        };
        drop(gone);
    }

    /// Reclaims the pages that were released. Doubles the delay while there are none. Sleeps.
    pub(crate) fn reclaim_mapped(self: &Arc<Self>) {
        let (mut again, mut any, mut n) = (false, false, 0);
        loop {
            let Some(user) = self.mapped.lock().get(n).cloned() else {
                break;
            };
            let (came, more) = user.clone().reclaim_mapped();
            any |= came;
            if more {
                again = true;
                n += 1;
            } else {
                self.untrack_mapped(&user);
            }
        }
        for dev in self.devices.lock().iter() {
            let Some(pool) = dev.existing_pool() else {
                continue;
            };
            if pool.keeps_windows() {
                pool.look_after();
                again = true;
            }
            let (came, more) = pool.reclaim_lent();
            any |= came;
            again |= more;
        }
        let ms = self.reclaim_ms.load(Relaxed);
        let next = if any {
            RECLAIM_MS
        } else {
            (ms * 2).min(RECLAIM_MS_MAX)
        };
        self.reclaim_ms.store(next, Relaxed);
        if again {
            self.schedule_reclaim();
        }
    }
}
