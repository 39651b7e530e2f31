// SPDX-License-Identifier: GPL-2.0

//! Counters of network namespaces, for callers that are not shown those of the machine. They are
//! kept for a namespace without keeping it, and count what is rare: a message counts on its link.
//!
//! The mutex is a leaf among the locks.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::{new_mutex, Mutex};

use crate::kern::net::Net;
use crate::kern::pernet::NetExit;
use crate::stats::{count_fallback, REASONS};

/// Events in a namespace.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Payload of links that have ended, in bytes.
    pub(crate) tx_bytes: u64,
    pub(crate) rx_bytes: u64,
    /// How often TCP has come to carry a socket, by the number of the reason.
    pub(crate) by_why: [u64; REASONS],
}

/// The counters of all namespaces that have had such events.
#[pin_data]
pub(crate) struct NetCounts {
    #[pin]
    nets: Mutex<KVec<(usize, Counts)>>,
}

impl NetCounts {
    /// No counters.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            nets <- new_mutex!(KVec::new(), "zrs_net_counts::nets"),
        })
    }

    /// Counts something in `net`, whose counters begin at 0. Without memory it is not counted.
    /// Sleeps.
    pub(crate) fn count(&self, net: &Net, change: impl FnOnce(&mut Counts)) {
        let mut nets = self.nets.lock();
        if !nets.iter().any(|(id, _)| *id == net.id()) {
            let _ = nets.push((net.id(), Counts::default()), GFP_KERNEL);
        }
        if let Some((_, counts)) = nets.iter_mut().find(|(id, _)| *id == net.id()) {
            change(counts);
        }
    }

    /// TCP has come to carry a socket of `net`, or to take its place, for the reason of this
    /// number. Sleeps.
    pub(crate) fn fallback(&self, net: &Net, why: u32) {
        count_fallback(why);
        self.count(net, |counts| {
            if let Some(n) = counts.by_why.get_mut(why as usize) {
                *n = n.wrapping_add(1);
            }
        });
    }

    /// The counters of `net`. Sleeps.
    pub(crate) fn of(&self, net: &Net) -> Counts {
        let nets = self.nets.lock();
        let counted = nets.iter().find(|(id, _)| *id == net.id());
        counted.map_or(Counts::default(), |(_, counts)| *counts)
    }
}

impl NetExit for NetCounts {
    fn net_exit(&self, id: usize) {
        self.nets.lock().retain(|(net, _)| *net != id);
    }
}
