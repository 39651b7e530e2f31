// SPDX-License-Identifier: GPL-2.0

//! Pages that were lent to programs: nothing tells when one is back, so somebody has to look. Likewise when
//! a program holds much in its ring, and does not tell when it has given it back.
//!
//! Locks: `lenders` (mutex), behind a link's `drain`; nothing is taken under it.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::{Host, MAPPED};
use crate::kern::fault;
use crate::socket::Sock;

/// How soon pages that were lent are looked for, in milliseconds: nothing tells when they are back.
pub(super) const LENT_MS: u32 = 4;

/// How often they are looked for when none has come back for long.
const LENT_MOST_MS: u32 = 256;

impl Host {
    /// The socket is about to lend pages to its program, or its ring is crowded. ENOMEM.
    pub(crate) fn watch_lender(self: &Arc<Self>, sock: &Arc<Sock>) -> Result {
        self.lenders.lock().push(sock.clone(), GFP_KERNEL)?;
        // Sooner, if the others have not been looked at for long; never later.
        if self.lent_ms.xchg(LENT_MS, Full) > LENT_MS {
            let delay = msecs_to_jiffies(LENT_MS);
            self.queue
                .enqueue_or_move::<Host, MAPPED>(self.clone(), delay);
        } else {
            self.look_for_lent();
        }
        Ok(())
    }

    /// Pages are lent that somebody has to look for, if nobody is going to already.
    pub(crate) fn look_for_lent(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(self.lent_ms.load(Relaxed));
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Host>, MAPPED>(self.clone(), delay);
    }

    /// The socket lends no more.
    pub(crate) fn forget_lender(&self, sock: &Arc<Sock>) {
        let gone = {
            let mut lenders = self.lenders.lock();
            let at = lenders.iter().position(|s| Arc::ptr_eq(s, sock));
            at.and_then(|i| lenders.remove(i).ok())
        };
        drop(gone);
    }

    /// Takes what has come back of what was lent; looks less often while nothing does. Sleeps.
    fn take_lent(self: &Arc<Self>) {
        let (mut again, mut any, mut n) = (false, false, 0);
        loop {
            let Some(sock) = self.lenders.lock().get(n).cloned() else {
                break;
            };
            let (came, more) = sock.look_for_lent();
            any |= came;
            if more {
                again = true;
                n += 1;
            } else {
                self.forget_lender(&sock);
            }
        }
        for dev in self.devices.lock().iter() {
            if let Some(pool) = dev.existing_pool().filter(|pool| pool.keeps_windows()) {
                pool.look_after();
                again = true;
            }
        }
        let ms = self.lent_ms.load(Relaxed);
        let next = if any {
            LENT_MS
        } else {
            (ms * 2).min(LENT_MOST_MS)
        };
        self.lent_ms.store(next, Relaxed);
        if again {
            self.look_for_lent();
        }
    }
}

impl WorkItem<MAPPED> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        fault::asynchronous(|| host.take_lent());
    }
}
