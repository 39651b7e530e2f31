// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a link: checks whether its peer is alive.
//!
//! `transport/links.rs` checks all links when one of them is due. [`Liveness`] decides, under `tx`,
//! what a check does.
//!
//! [`Liveness`]: crate::proto::liveness::Liveness

#![deny(unsafe_code)]

use kernel::sync::Arc;

use super::conn::ConnOps;
use super::link::{Link, LinkState};
use crate::params;
use crate::proto::channel::Failure;
use crate::proto::liveness::{Action, Carried, Intervals, Silence};

/// Flows that are read under one hold of `tx`.
const STEP: usize = 16;

impl Link {
    /// A connection requests that the peer is probed after `ms` milliseconds of silence, and that
    /// it is notified when there is no answer for another `timeout` milliseconds. The shortest
    /// times that were ever requested hold for the life of the link. Sleeps.
    pub(crate) fn request_keepalive(&self, ms: u32, timeout: u32) {
        let sooner = self.tx.lock().liveness.request_keepalive(ms, timeout);
        if sooner {
            self.transport.check_keepalive_now();
        }
    }

    /// Checks the peer, if a check is due at `now`. Probes it if nothing has arrived since the last
    /// check; notifies the connections when it has not answered for as long as one of them waits;
    /// ends the link when it has not answered, or taken a message, for too long. Returns when to
    /// check again, if at all. Times are in nanoseconds of the monotonic clock. Sleeps.
    pub(crate) fn check_keepalive(self: &Arc<Self>, now: u64) -> Option<u64> {
        let dead_ms = params::DEAD_MS.get();
        let pace = Intervals {
            every_ms: params::HEARTBEAT_MS.get(),
            dead_ms,
            // Not before the device has given up to repeat a lost packet.
            stalled_ms: dead_ms.max(params::give_up_ms()),
        };
        let (action, completed, flush) = {
            let tx = &mut *self.tx.lock();
            let carried = Carried {
                // No connection needs the peer of a link without channels.
                needs_peer: match tx.state {
                    LinkState::Connecting => false,
                    LinkState::Up => !tx.channels.is_empty(),
                    LinkState::Down => return None,
                },
                in_flight: tx.done < tx.signaled_seq,
                completed: tx.done,
            };
            // That unsignaled messages arrive is known by a signaled one behind them.
            let flush = tx.unsignaled > 0 && tx.done == tx.liveness.completed();
            tx.signal_wanted |= flush;
            let action = tx.liveness.check(now, pace, carried);
            tx.ping_pending |= matches!(action, Action::Probe(_) | Action::Notify(_));
            (action, tx.done, flush)
        };
        if flush {
            self.transmit();
        }
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
            Action::Stalled => {
                // Completions may wait for a processor.
                self.run_completions();
                if self.last_completed() != completed {
                    return Some(now);
                }
                self.fail_and_log(Failure::TimedOut, "its peer takes no messages");
                None
            }
        }
    }
    /// The peer does not answer: notifies the connections on the link. Returns when the next of
    /// their timeouts ends; `u64::MAX`: none. A flow that is added in between has passed its
    /// timeout to [`Self::request_keepalive`]. Takes the link's lock and the connections'. Sleeps.
    fn notify_silence(self: &Arc<Self>, silence: Silence) -> u64 {
        let (mut flow, mut next) = (0, u64::MAX);
        loop {
            let conns: [Option<Arc<dyn ConnOps>>; STEP] = {
                let tx = self.tx.lock();
                if flow >= tx.channels.flows() {
                    return next;
                }
                core::array::from_fn(|n| tx.channels.at(flow + n).cloned())
            };
            for conn in conns.into_iter().flatten() {
                let end = conn.on_silence(self, silence);
                next = next.min(end.unwrap_or(u64::MAX));
            }
            flow += STEP;
        }
    }
}
