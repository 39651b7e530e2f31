// SPDX-License-Identifier: GPL-2.0

//! Shared state of the pools of all devices: the lists of devices and caches, and the periodic
//! work.
//!
//! Locks: `devices`, then `caches` (mutexes); `mapped`, see `reclaim.rs`.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

use super::cache::Cache;
use super::device::RdmaDev;
use super::lessee::{DeviceLinks, Directory, Lessee};
use super::quota::{Quotas, Room};
use super::reclaim::RECLAIM_MS;
use crate::ib::device::Device;
use crate::kern::fault;
use crate::kern::net::Net;
use crate::kern::task::now_ns;
use crate::kern::wait::{WaitMode, WaitQueue};
use crate::kern::work::{self, Queue};
use crate::proto::quota::Holder;
use crate::proto::ChanId;

/// Interval at which pools look at the lessees that wait for a window, in milliseconds.
const WAITERS_MS: u32 = 50;

/// Work item: has pools look at the lessees that wait for a window.
const WINDOW_WAITERS: u64 = 0;
/// Work item: takes mapped pages back that programs no longer use.
pub(crate) const RECLAIM: u64 = 1;
/// Work item: makes the pools of devices that have none.
const MAKE_POOLS: u64 = 2;

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
    make_pools: DelayedWork<Pools, MAKE_POOLS>,
    /// Number of devices whose pool the worker has not tried to make yet: the condition of a wait
    /// takes no mutex, and so cannot ask the devices.
    untried: Atomic<u32>,
    /// Number of devices with a pool.
    made: Atomic<u32>,
    /// Threads that wait until `untried` is 0, or there is a pool.
    #[pin]
    tried: WaitQueue,
    #[pin]
    pub(crate) caches: Mutex<KVec<Arc<Cache>>>,
    #[pin]
    window_waiters: DelayedWork<Pools, WINDOW_WAITERS>,
    /// Memory that is promised to connections. Its room is set with each promise: it follows a
    /// parameter.
    #[pin]
    pub(super) promises: Quotas,
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
    impl HasDelayedWork<Self, MAKE_POOLS> for Pools { self.make_pools }
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
                make_pools <- new_delayed_work!("zrs_pools::make_pools"),
                untried: Atomic::new(0),
                made: Atomic::new(0),
                tried <- crate::new_wait_queue!("zrs_pools::tried"),
                caches <- new_mutex!(KVec::new(), "zrs_pools::caches"),
                promises <- Quotas::new(Room { all: 0, users: 0 }),
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
        work::cancel_delayed::<Self, MAKE_POOLS>(self);
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

    /// Queues the worker that makes pools: a device waits for its own.
    pub(super) fn make_pools_soon(self: &Arc<Self>) {
        self.queue
            .enqueue_or_move::<Self, MAKE_POOLS>(self.clone(), 0);
    }

    /// The number of devices that the worker has not looked at has changed by `by`.
    pub(super) fn count_untried(&self, by: i32) {
        self.untried.fetch_add(by as u32, Full);
        if by < 0 {
            self.tried.wake_all();
        }
    }

    /// The number of devices with a pool has changed by `by`.
    pub(super) fn count_made(&self, by: i32) {
        self.made.fetch_add(by as u32, Full);
        if by > 0 {
            self.tried.wake_all();
        }
    }

    /// Waits until the worker has looked at each device. Errors: EINTR if the task is being killed.
    pub(super) fn await_tries(&self) -> Result {
        let tried = || (self.untried.load(Acquire) == 0).then_some(());
        let waited = self.tried.wait(WaitMode::Killable, &mut None, tried);
        waited.map_err(|_| EINTR)
    }

    /// Waits until a device has a pool, or the worker has tried to make the pools of all. Sleeps.
    ///
    /// Errors: ENOMEM if there was no memory for any of them; EINTR if the task is being killed.
    pub(crate) fn await_pools(&self) -> Result {
        let tried = || {
            let some = self.made.load(Acquire) != 0;
            (some || self.untried.load(Acquire) == 0).then_some(())
        };
        let waited = self.tried.wait(WaitMode::Killable, &mut None, tried);
        waited.map_err(|_| EINTR)?;
        let (mut some, mut short) = (false, false);
        for dev in self.devices.lock().iter() {
            match dev.made_pool() {
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
    pub(crate) fn resize(self: &Arc<Self>) {
        for dev in self.devices.lock().iter() {
            dev.try_again(self);
        }
        self.make_pools_soon();
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

impl WorkItem<MAKE_POOLS> for Pools {
    type Pointer = Arc<Pools>;

    /// Makes the pool of each device that needs one now; looks again when the next one does.
    fn run(pools: Arc<Pools>) {
        loop {
            let now = now_ns();
            let devices = pools.devices.lock();
            let Some(dev) = devices.iter().find(|dev| dev.needs_pool(now)).cloned() else {
                break;
            };
            drop(devices);
            fault::asynchronous(|| dev.make_pool(&pools));
        }
        let next = {
            let devices = pools.devices.lock();
            devices.iter().filter_map(|dev| dev.next_try()).min()
        };
        if let Some(at) = next {
            let ms = at.saturating_sub(now_ns()).div_ceil(1_000_000);
            let delay = msecs_to_jiffies(ms.try_into().unwrap_or(u32::MAX));
            // Not a later time than that of a device that came in between.
            let queue = pools.queue.clone();
            let _ = queue.enqueue_delayed::<Arc<Self>, MAKE_POOLS>(pools, delay);
        }
    }
}

impl WorkItem<RECLAIM> for Pools {
    type Pointer = Arc<Pools>;

    fn run(pools: Arc<Pools>) {
        fault::asynchronous(|| pools.reclaim_mapped());
    }
}
