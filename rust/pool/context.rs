// SPDX-License-Identifier: GPL-2.0

//! Shared state of the pools of all devices: the lists of devices and caches, and the periodic
//! work.
//!
//! Locks: `devices`, then `caches` (mutexes); `mapped`, see `reclaim.rs`.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

use super::cache::Cache;
use super::device::RdmaDev;
use super::lessee::{DeviceLinks, Directory, Lessee};
use super::reclaim::RECLAIM_MS;
use crate::ib::device::Device;
use crate::kern::fault;
use crate::kern::net::Net;
use crate::kern::work::{self, Queue};
use crate::proto::quota::Holder;
use crate::proto::ChanId;

/// Interval at which pools look at the lessees that wait for a window, in milliseconds.
const WAITERS_MS: u32 = 50;

/// Work item: has pools look at the lessees that wait for a window.
const WINDOW_WAITERS: u64 = 0;
/// Work item: takes mapped pages back that programs no longer use.
pub(crate) const RECLAIM: u64 = 1;

/// The context of all pools.
#[pin_data]
pub(crate) struct Pools {
    pub(crate) queue: Arc<Queue>,
    directory: Arc<dyn Directory>,
    /// `None` before the first device comes, and at the module's end.
    #[pin]
    links: Mutex<Option<Arc<dyn DeviceLinks>>>,
    #[pin]
    pub(crate) devices: Mutex<KVec<Arc<RdmaDev>>>,
    #[pin]
    pub(crate) caches: Mutex<KVec<Arc<Cache>>>,
    #[pin]
    window_waiters: DelayedWork<Pools, WINDOW_WAITERS>,
    /// Lessees whose programs may have mapped pages.
    #[pin]
    pub(crate) mapped: Mutex<KVec<Arc<dyn Lessee>>>,
    #[pin]
    reclaim: DelayedWork<Pools, RECLAIM>,
    /// Delay until mapped pages are checked again, in milliseconds.
    pub(crate) reclaim_ms: Atomic<u32>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, WINDOW_WAITERS> for Pools { self.window_waiters }
    impl HasDelayedWork<Self, RECLAIM> for Pools { self.reclaim }
}

impl Pools {
    /// A context without devices. Its work runs on `queue`; `directory` finds lessees. Sleeps.
    /// ENOMEM.
    pub(crate) fn new(queue: Arc<Queue>, directory: Arc<dyn Directory>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                queue,
                directory,
                links <- new_mutex!(None, "zrs_pools::links"),
                devices <- new_mutex!(KVec::new(), "zrs_pools::devices"),
                caches <- new_mutex!(KVec::new(), "zrs_pools::caches"),
                window_waiters <- new_delayed_work!("zrs_pools::window_waiters"),
                mapped <- new_mutex!(KVec::new(), "zrs_pools::mapped"),
                reclaim <- new_delayed_work!("zrs_pools::reclaim"),
                reclaim_ms: Atomic::new(RECLAIM_MS),
            }),
            GFP_KERNEL,
        )
    }

    /// The module is being unloaded and no device is left: stops all work. Sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        work::cancel_delayed::<Self, WINDOW_WAITERS>(self);
        work::cancel_delayed::<Self, RECLAIM>(self);
        let mapped = core::mem::take(&mut *self.mapped.lock());
        drop(mapped);
        let caches = core::mem::take(&mut *self.caches.lock());
        caches.iter().for_each(|cache| cache.stop());
        let links = self.links.lock().take();
        drop(links);
    }

    /// `links` are those on the devices from now on.
    pub(crate) fn set_links(&self, links: Arc<dyn DeviceLinks>) {
        *self.links.lock() = Some(links);
    }

    /// Ends the links whose shared receive queue has failed.
    pub(super) fn end_failed_links(&self) {
        let links = self.links.lock().clone();
        if let Some(links) = links {
            links.end_failed_links();
        }
    }

    /// The lessee whose channel is `user`.
    pub(crate) fn lessee(&self, user: ChanId) -> Option<Arc<dyn Lessee>> {
        self.directory.lessee(user)
    }

    /// The device object for `device`.
    pub(crate) fn device(&self, device: &Device) -> Option<Arc<RdmaDev>> {
        self.devices.lock().iter().find(|d| d.is(device)).cloned()
    }

    /// Makes the receive pools of all devices that have none yet. ENOMEM if there is no memory for
    /// any of them.
    pub(crate) fn make_pools(self: &Arc<Self>) -> Result {
        let (mut some, mut short) = (false, false);
        for dev in self.devices.lock().iter() {
            match dev.pool(self) {
                Ok(_) => some = true,
                Err(e) => short |= e == ENOMEM,
            }
        }
        if short && !some {
            return Err(ENOMEM);
        }
        Ok(())
    }

    /// A parameter of the pools was written. Sleeps.
    pub(crate) fn resize(&self) {
        for dev in self.devices.lock().iter() {
            dev.try_again();
        }
        for cache in self.caches.lock().iter() {
            cache.resize();
        }
    }

    /// The parameters of the shares of users and network namespaces have changed. Sleeps.
    pub(crate) fn set_shares(&self) {
        for dev in self.devices.lock().iter() {
            if let Some(pool) = dev.existing_pool() {
                pool.shares.set_shares();
            }
        }
    }

    /// Whether `holder` may have another link on a device of `net`; if there is no pool yet, also.
    /// Sleeps.
    pub(crate) fn may_share(&self, net: &Net, holder: Holder) -> bool {
        let devices = self.devices.lock();
        let own = devices.iter().filter(|dev| dev.is_in(net));
        let mut pools = own.filter_map(|dev| dev.existing_pool()).peekable();
        pools.peek().is_none() || pools.any(|pool| pool.shares.may_take(holder))
    }

    /// The cursor by which ZRS_IOC_CACHE finds a cache.
    pub(crate) fn cache_index(&self, cache: &Arc<Cache>) -> u32 {
        let caches = self.caches.lock();
        let at = caches.iter().position(|c| Arc::ptr_eq(c, cache));
        at.unwrap_or(caches.len()) as u32
    }

    /// Schedules a look at waiting lessees: there is one now.
    pub(crate) fn watch_waiters(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(WAITERS_MS);
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Self>, WINDOW_WAITERS>(self.clone(), delay);
    }
}

impl WorkItem<WINDOW_WAITERS> for Pools {
    type Pointer = Arc<Pools>;

    fn run(pools: Arc<Pools>) {
        let mut waiting = false;
        for dev in pools.devices.lock().iter() {
            if let Some(pool) = dev.existing_pool().filter(|pool| pool.wants_room()) {
                pool.look_after();
                waiting = true;
            }
        }
        if waiting {
            pools.watch_waiters();
        }
    }
}

impl WorkItem<RECLAIM> for Pools {
    type Pointer = Arc<Pools>;

    fn run(pools: Arc<Pools>) {
        fault::asynchronous(|| pools.reclaim_mapped());
    }
}
