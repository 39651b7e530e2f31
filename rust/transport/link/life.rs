// SPDX-License-Identifier: GPL-2.0

//! A link comes up, on the terms that both hosts have agreed on, and ends.

#![deny(unsafe_code)]

use kernel::fmt;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::{Link, LinkState, Terms, Tx, TEARDOWN};
use crate::kern::task::now_ns;
use crate::kern::trace::{self, Ends};
use crate::net_warn_ratelimited;
use crate::proto::addr::{Addr, Ip};
use crate::proto::channel::Failure;
use crate::proto::Violation;
use crate::stats::STATS;
use crate::transport::cm::errno_of;

impl Tx {
    /// Takes over the peer's terms and moves from Connecting to Up; with `proves`, only once the
    /// proof is done. Returns false if the link is in another state.
    fn connected(&mut self, terms: Terms, proves: bool) -> bool {
        if self.state != LinkState::Connecting {
            return false;
        }
        self.flow = Some(terms.flow);
        self.dgrams.carries = terms.dgrams;
        self.agreed = Some(terms.agreed);
        self.peer_takes = terms.links;
        self.proving = proves;
        proves || self.go_up()
    }

    /// Moves from Connecting to Up. Returns false if the link is in another state.
    fn go_up(&mut self) -> bool {
        let connecting = self.state == LinkState::Connecting;
        if connecting {
            self.state = LinkState::Up;
            self.was_up = true;
            self.since = now_ns();
            self.proving = false;
            self.liveness.on_rx();
        }
        connecting
    }
}

impl Link {
    /// The queue pair is connected: the link can carry channels from now on, or the proof begins.
    pub(in crate::transport) fn up(self: &Arc<Self>, terms: Terms) {
        if self.lacks_proof() {
            return self.fail_stale();
        }
        self.features.store(terms.agreed.features, Relaxed);
        let proves = self.is_keyed();
        let changed = self.tx.lock().connected(terms, proves);
        if changed {
            self.is_connected(proves);
        }
    }

    fn is_connected(self: &Arc<Self>, proves: bool) {
        match proves {
            true => self.challenge(),
            false => self.is_up(),
        }
    }

    /// The proof is done: the link can carry channels from now on. Returns false if it has ended.
    pub(in crate::transport) fn up_on_proof(self: &Arc<Self>) -> bool {
        let changed = self.tx.lock().go_up();
        if changed {
            self.is_up();
        }
        changed
    }

    fn is_up(self: &Arc<Self>) {
        trace::link_up(|| {
            (
                self.id,
                self.ends(self.local_ip()),
                u32::from(self.accepted),
            )
        });
        // Messages that arrived before the peer's terms were known have waited in the queue, and
        // datagrams for the link to come up.
        self.schedule_poll();
        self.dgrams_up();
        self.transport.watch_keepalive();
        if let Some(pool) = self.pool() {
            self.transport.look_for_room(&pool);
        }
        if self.accepted {
            // The peer may have made more links than it may have.
            self.transport.look_for_idle();
        }
    }

    /// The two ends of the link for a tracepoint: `local` and the peer.
    fn ends(&self, local: Ip) -> Ends {
        Ends {
            chan: (0, 0),
            local: Addr::new(local, 0).into(),
            remote: Addr::new(self.remote, 0).into(),
        }
    }

    /// Stores the peer's terms, on the accepting side.
    pub(in crate::transport) fn set_terms(&self, terms: Terms) {
        self.tx.lock().terms = Some(terms);
    }

    /// Brings the link up on the terms stored before, or begins its proof; returns false if there
    /// were none. The connection manager's event and the first message of the peer both call this,
    /// in either order, possibly at the same time.
    pub(in crate::transport) fn up_on_terms(self: &Arc<Self>) -> bool {
        if self.accepted && self.lacks_proof() {
            self.fail_stale();
        }
        let proves = self.is_keyed();
        let changed = {
            let mut tx = self.tx.lock();
            match tx.terms.take() {
                Some(terms) => {
                    self.features.store(terms.agreed.features, Relaxed);
                    tx.connected(terms, proves)
                }
                None => return tx.state != LinkState::Connecting || tx.proving,
            }
        };
        if changed {
            self.is_connected(proves);
        }
        true
    }

    /// Ends the link. Only the first reason is kept. Does not sleep. Not in interrupts.
    pub(crate) fn fail(self: &Arc<Self>, why: Failure) {
        self.end(why);
    }

    /// As [`Self::fail`], because a working link was lost. Logs `cause` if the link carried
    /// channels.
    pub(crate) fn fail_link_lost(self: &Arc<Self>, cause: impl fmt::Display) {
        self.fail_and_log(Failure::LinkLost, cause);
    }

    /// As [`Self::fail`]. Logs `cause` if the link was up and carried channels.
    pub(crate) fn fail_and_log(self: &Arc<Self>, why: Failure, cause: impl fmt::Display) {
        if let Some((true, local)) = self.end(why) {
            net_warn_ratelimited!("link {:?} -> {:?} lost: {}\n", local, self.remote, cause);
        }
    }

    /// Ends the link. Returns `None` if it had ended before; else whether it was up and carried
    /// channels, and the local address.
    fn end(self: &Arc<Self>, why: Failure) -> Option<(bool, Ip)> {
        let ended = {
            let mut tx = self.tx.lock();
            if tx.state == LinkState::Down {
                return None;
            }
            tx.state = LinkState::Down;
            if let Some(queues) = tx.queues.as_ref().filter(|_| tx.promised) {
                queues.pool.link_ends();
            }
            let done = tx.done;
            tx.dgrams.ended(done);
            tx.why = match why {
                Failure::TimedOut => why,
                _ if tx.was_up => Failure::LinkLost,
                _ => why,
            };
            trace::link_down(|| {
                let (up, channels) = (u32::from(tx.was_up), tx.channels.len() as u32);
                let (made, err) = (u32::from(self.accepted), errno_of(why).to_errno());
                (self.id, self.ends(tx.local), made, up, channels, err)
            });
            (tx.was_up && !tx.channels.is_empty(), tx.local)
        };
        let _ = self
            .transport
            .queue
            .enqueue::<Arc<Self>, TEARDOWN>(self.clone());
        Some(ended)
    }

    /// Ends a link so that it is made again: the peer mistook it for one from before this host
    /// restarted, and so has ended its old one, or the address has changed. Connects that wait for
    /// the link are retried.
    pub(in crate::transport) fn fail_stale(self: &Arc<Self>) {
        self.tx.lock().stale = true;
        self.fail(Failure::LinkLost);
    }

    /// Ends the link, because the share of its holder is used. Waiting connects are retried: the
    /// connects of other users count against other shares.
    pub(in crate::transport) fn fail_quota(self: &Arc<Self>) {
        self.tx.lock().stale = true;
        self.fail(Failure::Quota);
    }

    /// Ends the link, whose peer has broken the rule `what` of the protocol.
    pub(in crate::transport) fn violated(self: &Arc<Self>, what: Violation) {
        self.distrusted.store(true, Relaxed);
        STATS.protocol_errors.add(1);
        net_warn_ratelimited!(
            "link to {:?} closed: protocol violation {:?}\n",
            self.remote,
            what
        );
        self.fail(Failure::Protocol);
    }
}
