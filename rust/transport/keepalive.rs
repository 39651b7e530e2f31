// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a link: whether its peer is still there.
//!
//! `transport/links.rs` looks at all links when one of them is due. What a look finds is decided by [`Liveness`], under `tx`.
//!
//! [`Liveness`]: crate::proto::liveness::Liveness

#![deny(unsafe_code)]

use kernel::sync::Arc;

use super::link::{Link, LinkState};
use crate::params;
use crate::proto::channel::Failure;
use crate::proto::liveness::{Action, Intervals, Silence};
use crate::socket::Sock;

/// Seats that are looked at under one hold of `tx`.
const STEP: usize = 16;

impl Link {
    /// A socket wants the peer to be asked whether it is there after `ms` milliseconds of silence, and to hear when
    /// there is no answer for another `timeout` milliseconds. The shortest times that were ever asked for hold as
    /// long as the link. Sleeps.
    pub(crate) fn request_keepalive(&self, ms: u32, timeout: u32) {
        let sooner = self.tx.lock().liveness.request_keepalive(ms, timeout);
        if sooner {
            self.transport.check_keepalive_now();
        }
    }

    /// Looks whether the peer is there, if it is time for that at `now`: asks it if nothing has arrived since the
    /// last time, tells the sockets when it has not answered for as long as one of them waits, and ends the link if that
    /// is for too long. When to look again, if at all; all in nanoseconds of the monotonic clock. Sleeps.
    pub(crate) fn check_keepalive(self: &Arc<Self>, now: u64) -> Option<u64> {
        let pace = Intervals {
            every_ms: params::HEARTBEAT_MS.get(),
            dead_ms: params::DEAD_MS.get(),
        };
        let action = {
            let tx = &mut *self.tx.lock();
            // Nobody needs a peer on a link without channels, which is about to end.
            let needed = match tx.state {
                LinkState::Connecting => false,
                LinkState::Up => !tx.channels.is_empty(),
                LinkState::Down => return None,
            };
            let action = tx.liveness.check(now, pace, needed);
            tx.ping_pending |= matches!(action, Action::Probe(_) | Action::Notify(_));
            action
        };
        match action {
            Action::Never => None,
            Action::Wait(due) => Some(due),
            Action::Probe(due) => {
                self.transmit();
                Some(due)
            }
            Action::Notify(silence) => {
                self.transmit();
                let end = self.notify_silence(silence);
                Some(self.tx.lock().liveness.notified(end))
            }
            Action::Dead => {
                self.fail_and_log(Failure::TimedOut, "its peer does not answer");
                None
            }
        }
    }
    /// The peer does not answer: tells the sockets on the link. Until when the next of them waits; `u64::MAX`: none
    /// does. Who sits down meanwhile has said by [`Self::request_keepalive`] for how long it waits. Takes the link's lock and the
    /// sockets'. Sleeps.
    fn notify_silence(self: &Arc<Self>, silence: Silence) -> u64 {
        let (mut flow, mut next) = (0, u64::MAX);
        loop {
            let socks: [Option<Arc<Sock>>; STEP] = {
                let tx = self.tx.lock();
                if flow >= tx.channels.flows() {
                    return next;
                }
                core::array::from_fn(|n| tx.channels.at(flow + n).cloned())
            };
            for sock in socks.iter().flatten() {
                let end = sock.on_silence(self, silence);
                next = next.min(end.unwrap_or(u64::MAX));
            }
            flow += STEP;
        }
    }
}
