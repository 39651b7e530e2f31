// SPDX-License-Identifier: GPL-2.0

//! Pages that were lent to programs: nothing tells when one is back, so somebody has to look. Likewise when
//! a program holds much in its ring, and does not tell when it has given it back.
//!
//! Locks: `mapped` (mutex), behind a link's `drain`; nothing is taken under it.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;

use super::context::{Pools, RECLAIM};
use super::lessee::{same, Lessee};

/// How soon pages that were lent are looked for, in milliseconds: nothing tells when they are back.
pub(crate) const RECLAIM_MS: u32 = 4;

/// How often they are looked for when none has come back for long.
const RECLAIM_MS_MAX: u32 = 256;

impl Pools {
    /// `user` is about to map pages to its program, or its ring is crowded. ENOMEM.
    pub(crate) fn track_mapped(self: &Arc<Self>, user: Arc<dyn Lessee>) -> Result {
        self.mapped.lock().push(user, GFP_KERNEL)?;
        // Sooner, if the others have not been looked at for long; never later.
        if self.reclaim_ms.xchg(RECLAIM_MS, Full) > RECLAIM_MS {
            let delay = msecs_to_jiffies(RECLAIM_MS);
            self.queue
                .enqueue_or_move::<Self, RECLAIM>(self.clone(), delay);
        } else {
            self.schedule_reclaim();
        }
        Ok(())
    }

    /// Pages are lent that somebody has to look for, if nobody is going to already.
    pub(crate) fn schedule_reclaim(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(self.reclaim_ms.load(Relaxed));
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Self>, RECLAIM>(self.clone(), delay);
    }

    /// The socket lends no more.
    pub(crate) fn untrack_mapped(&self, user: &Arc<dyn Lessee>) {
        let gone = {
            let mut mapped = self.mapped.lock();
            let at = mapped.iter().position(|other| same(other, user));
            at.and_then(|i| mapped.remove(i).ok())
        };
        drop(gone);
    }

    /// Takes what has come back of what was lent; looks less often while nothing does. Sleeps.
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
            if let Some(pool) = dev.existing_pool().filter(|pool| pool.keeps_windows()) {
                pool.look_after();
                again = true;
            }
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
