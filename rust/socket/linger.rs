// SPDX-License-Identifier: GPL-2.0

//! SO_LINGER: close() resets the connection, or waits until the peer's device has acknowledged all
//! data.

#![deny(unsafe_code)]

use kernel::sync::Arc;
use kernel::time::{msecs_to_jiffies, Jiffies};

use super::Sock;
use crate::kern::wait::{WaitError, WaitMode};
use crate::proto::readiness::Phase;
use crate::transport::link::{Link, LinkState};

/// Interval of close()'s checks whether the peer's device has acknowledged copied data, in
/// milliseconds: no event reports that.
const LOOK_MS: u32 = 20;

/// The effect of SO_LINGER on close().
pub(super) enum Linger {
    /// Nothing.
    No,
    /// Reset the connection: the peer gets ECONNRESET.
    Abort,
    /// Wait until all data sent on the link is acknowledged, for at most this time.
    Wait { link: Arc<Link>, most: Jiffies },
}

impl Sock {
    /// What SO_LINGER requests. Called before the channel is shut.
    pub(super) fn linger(&self) -> Linger {
        let inner = self.inner.lock();
        let connected = matches!(inner.phase, Phase::Connected);
        match inner.sk.as_ref().and_then(|sk| sk.linger()) {
            Some(0) if connected => Linger::Abort,
            Some(most) if connected => match &inner.conn.link {
                Some(link) => Linger::Wait {
                    link: link.clone(),
                    most,
                },
                None => Linger::No,
            },
            _ => Linger::No,
        }
    }

    /// Sequence number of the last message on the link; `None` while bytes are corked.
    fn last_sent(&self) -> Option<u64> {
        let inner = self.inner.lock();
        (inner.conn.chan.corked() == 0).then(|| inner.conn.last_seq())
    }

    /// Waits as `linger` says, or until a signal. Called after the channel is shut. Sleeps.
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
