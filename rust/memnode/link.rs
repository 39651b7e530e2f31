// SPDX-License-Identifier: GPL-2.0

//! The life of a memory link: *Connecting → Up → Down*, never back, and *Down* from anywhere; where
//! the hosts have a key for each other, *Proving* comes before *Up*. The messages are in `side`.
//!
//! The end: the queue pair goes to error, all that was posted completes, the queue pair is
//! destroyed, and only then is the memory that it could reach given up.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, ArcBorrow};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

use super::cm;
use super::host::Host;
use super::side::{wr_id, WR_LAST};
use crate::ib::cq::CompHandler;
use crate::ib::qp::{SendOp, SendWr};
use crate::kern::fault;
use crate::proto::addr::Ip;
use crate::qp_link::{break_off, drain, LinkId};

/// Work item: takes completions.
const POLL: u64 = 0;
/// Work item: starts connecting.
const CONNECT: u64 = 1;
/// Work item: takes the link down.
const DOWN: u64 = 2;

/// The handler of a link's events.
#[pin_data]
pub(super) struct MemLink {
    pub(super) host: Arc<Host>,
    pub(super) slot: usize,
    pub(super) serial: u64,
    pub(super) ip: Ip,
    broken: Atomic<bool>,
    #[pin]
    pub(super) id: LinkId,
    #[pin]
    poll: Work<MemLink, POLL>,
    #[pin]
    connect: Work<MemLink, CONNECT>,
    #[pin]
    down: Work<MemLink, DOWN>,
}

impl_has_work! {
    impl HasWork<Self, POLL> for MemLink { self.poll }
    impl HasWork<Self, CONNECT> for MemLink { self.connect }
    impl HasWork<Self, DOWN> for MemLink { self.down }
}

impl MemLink {
    pub(super) fn new(host: &Arc<Host>, slot: usize, serial: u64, ip: Ip) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                host: host.clone(),
                slot,
                serial,
                ip,
                broken: Atomic::new(false),
                id <- LinkId::new(),
                poll <- new_work!("zrs_mem_link::poll"),
                connect <- new_work!("zrs_mem_link::connect"),
                down <- new_work!("zrs_mem_link::down"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts connecting, or tries again to resolve the address, in a kernel thread: a source port
    /// below 1024 needs the privilege of the kernel.
    pub(super) fn start(self: &Arc<Self>) {
        let queue = &self.host.memory.queue;
        let _ = queue.enqueue::<Arc<Self>, CONNECT>(self.clone());
    }

    /// Takes completions, in a kernel thread. Any context.
    pub(super) fn schedule_poll(self: &Arc<Self>) {
        let queue = &self.host.memory.queue;
        let _ = queue.enqueue::<Arc<Self>, POLL>(self.clone());
    }

    /// Takes the link down, in a kernel thread.
    pub(super) fn take_down(self: &Arc<Self>) {
        let queue = &self.host.memory.queue;
        let _ = queue.enqueue::<Arc<Self>, DOWN>(self.clone());
    }

    /// The link must end; the next look at it sees that. Any context.
    pub(super) fn broken(self: &Arc<Self>) {
        self.broken.store(true, Relaxed);
        self.schedule_poll();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    fn end(self: &Arc<Self>) {
        let queues = {
            let st = &mut *self.host.state.lock();
            let side = st.side(self.slot).filter(|s| s.serial == self.serial);
            side.and_then(|s| s.queues.clone())
        };
        if let Some(queues) = queues {
            break_off(&self.id, &queues.qp);
            let last = SendWr {
                wr_id: wr_id(WR_LAST, 0),
                op: SendOp::Send { sges: &[] },
                signaled: true,
            };
            let posted = queues.qp.post(&[last]).is_ok();
            drain(|| {
                let drained = self.host.with(|st| {
                    st.poll(&self.host, self.slot, self.serial);
                    st.side(self.slot).is_none_or(|s| s.drained)
                });
                (drained || !posted).then_some(())
            });
            // Drops the last reference but `queues`: no other thread can use the queue pair now.
            let kept = {
                let st = &mut *self.host.state.lock();
                st.side(self.slot).and_then(|s| s.queues.take())
            };
            drop(kept);
            // Destroys the queue pair.
            drop(queues);
        }
        // Waits for its handlers.
        drop(self.id.end());
        self.host
            .with(|st| st.link_is_down(&self.host, self.slot, self.serial));
    }
}

impl CompHandler for MemLink {
    fn completion(this: ArcBorrow<'_, Self>) {
        Arc::from(this).schedule_poll();
    }

    fn failed(this: ArcBorrow<'_, Self>) {
        Arc::from(this).broken();
    }
}

impl WorkItem<POLL> for MemLink {
    type Pointer = Arc<MemLink>;

    fn run(link: Arc<MemLink>) {
        fault::asynchronous(|| {
            link.host.with(|st| {
                st.poll(&link.host, link.slot, link.serial);
                st.end_if_broken(link.slot, link.serial);
            });
        });
    }
}

impl WorkItem<CONNECT> for MemLink {
    type Pointer = Arc<MemLink>;

    fn run(link: Arc<MemLink>) {
        fault::asynchronous(|| cm::connect(&link));
    }
}

impl WorkItem<DOWN> for MemLink {
    type Pointer = Arc<MemLink>;

    fn run(link: Arc<MemLink>) {
        fault::asynchronous(|| link.end());
    }
}
