// SPDX-License-Identifier: GPL-2.0

//! SO_LINGER: close() that breaks the connection off, or waits until the peer's device has everything.

#![deny(unsafe_code)]

use kernel::sync::Arc;
use kernel::time::{msecs_to_jiffies, Jiffies};

use super::Sock;
use crate::kern::wait::{WaitError, WaitMode};
use crate::proto::readiness::Phase;
use crate::transport::link::{Link, LinkState};

/// How often it is looked whether the peer's device has acknowledged what was copied: nobody is told.
const LOOK_MS: u32 = 20;

/// What close() does because of SO_LINGER.
pub(super) enum Linger {
    /// Nothing.
    No,
    /// The connection is broken off: the peer is to see ECONNRESET.
    Abort,
    /// It waits, for so long at most, until all that was sent by the link is acknowledged.
    Wait { link: Arc<Link>, most: Jiffies },
}

impl Sock {
    /// What SO_LINGER asks for; before the channel is shut.
    pub(super) fn linger(&self) -> Linger {
        let inner = self.inner.lock();
        let connected = matches!(inner.phase, Phase::Connected);
        match inner.sk.as_ref().and_then(|sk| sk.linger()) {
            Some(0) if connected => Linger::Abort,
            Some(most) if connected => match &inner.link {
                Some(link) => Linger::Wait {
                    link: link.clone(),
                    most,
                },
                None => Linger::No,
            },
            _ => Linger::No,
        }
    }

    /// The number of the last message on the link, unless something is held back still.
    fn last_sent(&self) -> Option<u64> {
        let inner = self.inner.lock();
        (inner.chan.corked() == 0).then_some(inner.tx_seq)
    }

    /// Waits as `linger` says; a signal ends that. After the channel is shut. Sleeps.
    pub(super) fn wait_linger(&self, linger: Linger) {
        let Linger::Wait { link, most } = linger else {
            return;
        };
        let look = msecs_to_jiffies(LOOK_MS).max(1);
        let mut left = most;
        loop {
            let slice = left.min(look);
            let mut timeout = Some(slice);
            let waited =
                self.wait
                    .wait_or_poll(WaitMode::Interruptible, &mut timeout, Some(&link), || {
                        let over = !matches!(link.state(), LinkState::Up)
                            || self.last_sent().is_some_and(|seq| link.done_with(seq));
                        over.then_some(())
                    });
            left = left.saturating_sub(slice);
            match waited {
                Err(WaitError::TimedOut) if left > 0 => {}
                _ => return,
            }
        }
    }
}
