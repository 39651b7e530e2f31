// SPDX-License-Identifier: GPL-2.0

//! Deadlines of channels: of connect(), of a window that the peer is to give back, of the end of a channel whose
//! socket is closed. The channels that have one are in a list, so that the others cost nothing.
//!
//! Locks: `watched` (mutex), a leaf.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::Host;
use crate::kern::fault;
use crate::kern::task::now_ns;
use crate::params;
use crate::proto::ChanId;
use crate::socket::Sock;

/// How often deadlines are looked at, at least, while there are some.
const DEADLINES_MS: u32 = 1000;

/// The channels that have a deadline.
pub(super) struct Watched {
    list: KVVec<ChanId>,
    /// There was no memory for one of them: all channels are looked at once.
    all: bool,
}

impl Watched {
    /// None.
    pub(super) const fn new() -> Self {
        Self {
            list: KVVec::new(),
            all: false,
        }
    }

    fn add(&mut self, id: ChanId) {
        self.all |= self.list.push(id, GFP_KERNEL).is_err();
    }
}

impl Host {
    /// The channel of a socket has a deadline from now on. Sleeps.
    pub(crate) fn watch_deadline(self: &Arc<Self>, sock: &Sock) {
        let id = {
            let mut inner = sock.inner.lock();
            let id = inner.chan.id();
            let before = core::mem::replace(&mut inner.watched, id);
            id.filter(|_| before != id)
        };
        if let Some(id) = id {
            self.watched.lock().add(id);
        }
        let delay = msecs_to_jiffies(params::CONNECT_TIMEOUT_MS.get().min(DEADLINES_MS));
        let queue = &self.queue;
        let _ = queue.enqueue_delayed::<Arc<Host>, 0>(self.clone(), delay);
    }

    /// Those who had no memory to be noted are looked for among all channels.
    fn note_all(self: &Arc<Self>) {
        let mut q = 0;
        while let Some((at, sock)) = self.table.next_from(q) {
            let id = {
                let mut inner = sock.inner.lock();
                let id = inner.deadline.and_then(|_| inner.chan.id());
                inner.watched = id.or(inner.watched);
                id
            };
            if let Some(id) = id {
                // Once too often does no harm.
                self.watched.lock().add(id);
            }
            q = at + 1;
        }
    }

    fn check_deadlines(self: &Arc<Self>) {
        let now = now_ns();
        let mut next = u64::MAX;
        let (mut list, all) = {
            let mut watched = self.watched.lock();
            let all = core::mem::take(&mut watched.all);
            (core::mem::replace(&mut watched.list, KVVec::new()), all)
        };
        list.retain(|id| {
            let sock = self.table.owner(*id);
            let deadline = sock.and_then(|sock| Sock::check_deadline(&sock, *id, now));
            next = next.min(deadline.unwrap_or(u64::MAX));
            deadline.is_some()
        });
        {
            // Others may have come meanwhile.
            let mut watched = self.watched.lock();
            core::mem::swap(&mut watched.list, &mut list);
            for id in list {
                watched.add(id);
            }
            if !watched.list.is_empty() {
                next = next.min(now.saturating_add(u64::from(DEADLINES_MS) * 1_000_000));
            }
        }
        if all {
            self.note_all();
            next = next.min(now.saturating_add(u64::from(DEADLINES_MS) * 1_000_000));
        }
        if next != u64::MAX {
            let ms = next.saturating_sub(now) / 1_000_000 + 1;
            // One that comes meanwhile may be earlier.
            let most = params::CONNECT_TIMEOUT_MS.get().min(DEADLINES_MS);
            let delay = msecs_to_jiffies(u32::try_from(ms).unwrap_or(u32::MAX).min(most));
            self.queue.enqueue_or_move::<Host, 0>(self.clone(), delay);
        }
    }
}

impl WorkItem<0> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        fault::asynchronous(|| host.check_deadlines());
    }
}
