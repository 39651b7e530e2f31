// SPDX-License-Identifier: GPL-2.0

//! A last-level cache: the budget that the receive pools of its devices share, and the escape of
//! old data from them.
//!
//! Each device has separate memory, so that it can reach only data that its own peers sent. The
//! devices of a NUMA node share a budget: together they use no more memory than the cache holds for
//! as long as data usually stays. A request that finds no room wakes the cache's worker
//! ([`Cache::press`]). Then, or always, as the escape policy says, the worker moves data that was
//! not read for `residency_us` to main memory, oldest first.
//!
//! Locks: `pools` (mutex), under which no other is taken; the spinlocks `budget` and `alarm`, below
//! all others.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::workqueue::{impl_has_work, new_work, Work, WorkItem};

use super::context::Pools;
use super::Pool;
use crate::kern::percpu::PerCpu;
use crate::kern::task::now_ns;
use crate::kern::timer::{Fire, OneShot};
use crate::kern::{cpu, fault};
use crate::params;
use crate::proto::budget::{Budget, Class};
use crate::proto::sizing::{self, Machine};
use crate::stats::{Counter, Gauge};
use crate::uapi::{zrs_ioc_cache, ZRS_ESCAPE_ALWAYS, ZRS_ESCAPE_NEVER};

/// Most messages that one run of the worker moves before other work gets its turn.
const BATCH: usize = 64;

/// First delay until data that could not be moved is tried again, in nanoseconds. It doubles while
/// nothing can be moved, up to [`MOST_STUCK_NS`].
const STUCK_NS: u64 = 10_000_000;
/// See [`STUCK_NS`].
const MOST_STUCK_NS: u64 = 1_000_000_000;

const BUCKETS: usize = crate::uapi::ZRS_RESIDENCY_BUCKETS;
const _: () = assert!(BUCKETS == sizing::BUCKETS);

/// Counters, as `struct zrs_ioc_cache` has them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) escapes: Counter,
    pub(crate) escaped_bytes: Counter,
    /// Bytes in main memory now.
    pub(crate) escaped: Counter,
    pub(crate) failures: Counter,
    pub(crate) waits: Counter,
    pub(crate) denied: Counter,
    pub(crate) dry: Counter,
}

/// A cache.
#[pin_data]
pub(crate) struct Cache {
    ctx: Arc<Pools>,
    node: Option<i32>,
    /// Sum of the devices' rates, in bytes a microsecond.
    rate: Atomic<u64>,
    devices: Atomic<u32>,
    #[pin]
    budget: SpinLock<Budget>,
    #[pin]
    pools: Mutex<KVec<Arc<Pool>>>,
    /// Data of this age is moved, in nanoseconds; 0: no data is moved.
    moves: Atomic<u64>,
    /// When data that could not be moved is tried again, in nanoseconds of the monotonic clock.
    again_at: Atomic<u64>,
    /// The delay from then until the next attempt, in nanoseconds.
    pause: Atomic<u64>,
    /// Unread bytes in the pools.
    unread: Gauge,
    /// How long data stayed: numbers of messages, by [`sizing::residency_bucket`].
    residency: PerCpu<BUCKETS>,
    pub(crate) counts: Counts,
    #[pin]
    work: Work<Cache>,
    /// Timer that queues the worker. It holds a reference to the cache, until [`Cache::stop`] drops
    /// it.
    #[pin]
    alarm: SpinLock<Option<Arc<OneShot<Alarm>>>>,
}

/// The timer's handler: queues the cache's worker.
pub(crate) struct Alarm {
    cache: Arc<Cache>,
}

impl Fire for Alarm {
    fn fire(&self, _: &OneShot<Self>) {
        // If the work is pending already, the reference dropped here is not the last one.
        let _ = self.cache.ctx.queue.enqueue(self.cache.clone());
    }
}

impl_has_work! {
    impl HasWork<Self> for Cache { self.work }
}

impl Cache {
    /// The cache of `node`. Sleeps. ENOMEM.
    pub(crate) fn of(ctx: &Arc<Pools>, node: Option<i32>) -> Result<Arc<Self>> {
        let mut caches = ctx.caches.lock();
        if let Some(cache) = caches.iter().find(|cache| cache.node == node) {
            return Ok(cache.clone());
        }
        let budget = Budget::new(0, params::SMALL_PERCENT.get());
        let cache = Arc::pin_init(
            try_pin_init!(Self {
                ctx: ctx.clone(),
                node,
                rate: Atomic::new(0),
                devices: Atomic::new(0),
                budget <- new_spinlock!(budget, "zrs_cache::budget"),
                pools <- new_mutex!(KVec::new(), "zrs_cache::pools"),
                moves: Atomic::new(0),
                again_at: Atomic::new(0),
                pause: Atomic::new(STUCK_NS),
                unread: Gauge::new()?,
                residency: PerCpu::new()?,
                counts: Counts::default(),
                work <- new_work!("zrs_cache::work"),
                alarm <- new_spinlock!(None, "zrs_cache::alarm"),
            }),
            GFP_KERNEL,
        )?;
        let alarm = OneShot::new(Alarm {
            cache: cache.clone(),
        });
        let alarm = Arc::pin_init(alarm, GFP_KERNEL)?;
        caches.push(cache.clone(), GFP_KERNEL)?;
        *cache.alarm.lock() = Some(alarm);
        Ok(cache)
    }

    /// Stops the timer: the module is being unloaded. Sleeps.
    pub(crate) fn stop(&self) {
        let alarm = self.alarm.lock().take();
        // Waits for a running handler.
        drop(alarm);
    }

    /// Queues the worker in `ns` nanoseconds, or sooner. Any context but an interrupt.
    fn look_in(&self, ns: u64) {
        let alarm = self.alarm.lock().clone();
        if let Some(alarm) = alarm {
            alarm.start_in(ns);
        }
    }

    /// Adds a device that can send `rate` bytes a microsecond, and will write into the cache.
    pub(crate) fn join(self: &Arc<Self>, rate: u32) {
        self.rate.fetch_add(u64::from(rate), Full);
        self.devices.fetch_add(1, Full);
        self.resize();
    }

    /// Adds the pool of such a device. Sleeps. ENOMEM.
    pub(crate) fn add(&self, pool: &Arc<Pool>) -> Result {
        Ok(self.pools.lock().push(pool.clone(), GFP_KERNEL)?)
    }

    /// Removes a device that is gone or got no pool. Sleeps.
    pub(crate) fn leave(self: &Arc<Self>, pool: Option<&Pool>, rate: u32) {
        if let Some(gone) = pool {
            self.pools.lock().retain(|p| !core::ptr::eq(&**p, gone));
        }
        self.rate.fetch_sub(u64::from(rate), Full);
        self.devices.fetch_sub(1, Full);
        self.resize();
    }

    /// A device that could send `was` bytes a microsecond can send `is` now.
    pub(super) fn change_rate(self: &Arc<Self>, was: u32, is: u32) {
        self.rate.fetch_add(u64::from(is), Full);
        self.rate.fetch_sub(u64::from(was), Full);
        self.resize();
    }

    /// The target size of all pools together, in bytes.
    fn size(&self) -> u64 {
        match params::POOL_MIB.get() {
            0 => sizing::pool_bytes(&Machine {
                rate: self.rate.load(Relaxed),
                residency_us: params::RESIDENCY_US.get(),
                percent: params::RESIDENT_PERCENT.get(),
                cache_bytes: Self::bytes_of_cache(),
            }),
            mib => u64::from(mib) << 20,
        }
    }

    fn bytes_of_cache() -> u64 {
        match params::CACHE_KIB.get() {
            0 => cpu::last_level_cache_bytes().unwrap_or(0) as u64,
            kib => u64::from(kib) << 10,
        }
    }

    /// Adapts the budget after a change of devices or parameters. If more than the new size is in
    /// use, windows are revoked. Any context.
    pub(crate) fn resize(self: &Arc<Self>) {
        self.budget
            .lock()
            .resize((self.size() >> PAGE_SHIFT) as usize);
        self.press();
    }

    /// The budget of all pools together, in pages.
    pub(crate) fn pages(&self) -> usize {
        self.budget.lock().total()
    }

    /// The part of the budget that blocks do not use, in pages.
    pub(crate) fn pages_for_windows(&self) -> usize {
        let budget = self.budget.lock();
        budget.total().saturating_sub(budget.used(Class::Small))
    }

    /// Pages in use above the budget.
    pub(crate) fn over(&self) -> usize {
        self.budget.lock().over()
    }

    /// Takes a page for a block. If windows have borrowed it from the small class's share, takes it
    /// all the same, and windows are revoked to make up for it. False if there is no page. Any
    /// context.
    pub(crate) fn take_block(self: &Arc<Self>) -> bool {
        let (taken, over) = {
            let mut budget = self.budget.lock();
            let taken = budget.take(Class::Small, 1) || budget.claim(Class::Small, 1);
            (taken, budget.over() > 0)
        };
        if taken && over {
            self.press();
        }
        taken
    }

    /// Takes a page for a block in addition to those that are needed: no window is revoked for it.
    /// False if there is none. Any context.
    pub(crate) fn borrow_block(&self) -> bool {
        self.budget.lock().take(Class::Small, 1)
    }

    /// Gives the page of a block back.
    pub(crate) fn give_block(&self) {
        self.budget.lock().give(Class::Small, 1);
    }

    /// Takes pages for a window: fewer than `most` if memory is scarce, but at least `least`.
    /// `None` if there are not that many.
    pub(crate) fn take_window(&self, least: usize, most: usize) -> Option<usize> {
        let mut budget = self.budget.lock();
        let pages = budget.lease(least, most)?;
        budget.take(Class::Large, pages).then_some(pages)
    }

    /// Number of pages that a window would get now; `None` if there are too few.
    pub(crate) fn pages_for_window(&self, least: usize, most: usize) -> Option<usize> {
        self.budget.lock().lease(least, most)
    }

    /// Gives the pages of a window back.
    pub(crate) fn give_window(&self, pages: usize) {
        self.budget.lock().give(Class::Large, pages);
    }

    /// The largest window of a device with this rate, in bytes.
    pub(crate) fn window_bytes(rate: u32) -> usize {
        match params::WINDOW_KIB.get() {
            0 => sizing::window(Self::chunk(rate)) as usize,
            kib => (kib as usize) << 10,
        }
    }

    /// The largest chunk that is sent by a device with this rate, in bytes.
    pub(crate) fn chunk(rate: u32) -> u32 {
        sizing::chunk(u64::from(rate), params::RESIDENCY_US.get())
    }

    /// Counts `len` bytes that have arrived; `first`: the extent, or the blocks of the pool, held
    /// no unread data before that may be moved. Any context.
    pub(crate) fn arrived(&self, len: usize, first: bool) {
        self.unread.change(len as i64);
        let age = self.moves.load(Relaxed);
        if first && age > 0 {
            self.look_in(age);
        }
    }

    /// Counts `len` bytes that were read, moved or dropped. Any context.
    pub(crate) fn left(&self, len: usize) {
        self.unread.change(-(len as i64));
    }

    /// Counts data that stayed in the pool for `ns`. Any context.
    pub(crate) fn stayed(&self, ns: u64) {
        self.residency.add(sizing::residency_bucket(ns), 1);
    }

    /// Counts `len` bytes that were moved to main memory. Any context.
    pub(crate) fn escaped(&self, len: usize) {
        self.counts.escaped_bytes.add(len as u64);
        self.counts.escaped.add(len as u64);
    }

    /// Counts `len` bytes that have left main memory. Any context.
    pub(crate) fn read_escaped(&self, len: usize) {
        self.counts.escaped.sub(len as u64);
    }

    /// Queues the worker: a request found no room, or parameters have changed. Any context.
    pub(crate) fn press(self: &Arc<Self>) {
        let _ = self.ctx.queue.enqueue(self.clone());
    }

    /// Whether more than one device writes into it.
    pub(crate) fn has_others(&self) -> bool {
        self.devices.load(Relaxed) > 1
    }

    /// The pools on it. Sleeps. ENOMEM.
    pub(crate) fn pools(&self) -> Result<KVec<Arc<Pool>>> {
        let mut pools = KVec::new();
        for pool in self.pools.lock().iter() {
            pools.push(pool.clone(), GFP_KERNEL)?;
        }
        Ok(pools)
    }

    /// Whether little is left for windows. Any context.
    pub(crate) fn is_crowded(&self) -> bool {
        self.budget.lock().crowded()
    }

    /// The age that data must have to be moved now, in nanoseconds; `None` if none is moved. When
    /// the budget runs short, but no request waits yet, only data older than `window_idle_ms` is
    /// moved: it is surely not being read.
    fn age_to_move(&self, pools: &[Arc<Pool>]) -> Option<u64> {
        let residency = u64::from(params::RESIDENCY_US.get()) * 1000;
        match params::ESCAPE.get() {
            ZRS_ESCAPE_NEVER => None,
            ZRS_ESCAPE_ALWAYS => Some(residency),
            _ if self.over() > 0 || pools.iter().any(|pool| pool.has_window_waiters()) => {
                Some(residency)
            }
            _ if self.is_crowded() => {
                let idle = u64::from(params::WINDOW_IDLE_MS.get()) * 1_000_000;
                Some(idle.max(residency))
            }
            _ => None,
        }
    }

    /// Moves old data, oldest first, for as long as the policy wants that. Sleeps.
    fn move_old(self: &Arc<Self>, pools: &[Arc<Pool>]) {
        let now = now_ns();
        let mut pause = self.pause.load(Relaxed);
        if now >= self.again_at.load(Relaxed) {
            self.again_at.store(now.saturating_add(pause), Relaxed);
            pause = (2 * pause).min(MOST_STUCK_NS);
            pools.iter().for_each(|pool| pool.retry_deferred());
        }
        for turn in 0.. {
            let age = self.age_to_move(pools);
            // Stored before looking for data, so that data which arrives afterwards starts the
            // timer.
            self.moves.xchg(age.unwrap_or(0), Full);
            let Some(age) = age else { return };
            if turn >= BATCH {
                self.press();
                return;
            }
            let now = now_ns();
            let oldest = pools.iter().flat_map(|pool| pool.oldest());
            let Some(oldest) = oldest.min_by_key(|oldest| oldest.since) else {
                break;
            };
            let due = oldest.since.saturating_add(age);
            if now < due {
                self.look_in(due - now);
                break;
            }
            let before = now.saturating_sub(age).saturating_add(1);
            let lessee = self.ctx.lessee(oldest.user);
            if lessee.is_some_and(|lessee| lessee.escape(before)) {
                pause = STUCK_NS;
            } else {
                oldest.defer();
            }
        }
        self.pause.store(pause, Relaxed);
        if pools.iter().any(|pool| pool.has_deferred()) {
            let again_at = self.again_at.load(Relaxed);
            self.look_in(again_at.saturating_sub(now_ns()).max(STUCK_NS));
        }
    }

    /// The answer to ZRS_IOC_CACHE.
    pub(crate) fn tell(&self, c: &mut zrs_ioc_cache) {
        let page = |n: usize| (n << PAGE_SHIFT) as u64;
        {
            let budget = self.budget.lock();
            c.bytes = page(budget.total());
            c.small_bytes = page(budget.used(Class::Small));
            c.large_bytes = page(budget.used(Class::Large));
            c.small_high = page(budget.high(Class::Small));
            c.large_high = page(budget.high(Class::Large));
            c.small_share = page(budget.own(Class::Small));
        }
        c.node = self.node.unwrap_or(-1);
        c.policy = params::ESCAPE.get();
        c.devices = self.devices.load(Relaxed);
        c.residency_us = params::RESIDENCY_US.get();
        c.cache_bytes = Self::bytes_of_cache();
        c.rate = self.rate.load(Relaxed);
        (c.unread, c.unread_high) = self.unread.get_with_high();
        let counts = &self.counts;
        c.escapes = counts.escapes.get();
        c.escaped_bytes = counts.escaped_bytes.get();
        c.escaped = counts.escaped.get();
        c.escape_failures = counts.failures.get();
        c.waits = counts.waits.get();
        c.denied = counts.denied.get();
        c.dry = counts.dry.get();
        for (bucket, to) in c.residency.iter_mut().enumerate() {
            *to = self.residency.sum(bucket) as u64;
        }
    }
}

/// Bytes in main memory that were moved out of a pool.
pub(crate) struct Copied {
    bytes: KVVec<u8>,
    cache: Arc<Cache>,
}

impl Copied {
    /// Takes `bytes`, which come from a pool of `cache`.
    pub(crate) fn new(bytes: KVVec<u8>, cache: Arc<Cache>) -> Self {
        cache.escaped(bytes.len());
        Self { bytes, cache }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.cache.read_escaped(self.bytes.len());
    }
}

impl WorkItem for Cache {
    type Pointer = Arc<Cache>;

    fn run(cache: Arc<Cache>) {
        fault::asynchronous(|| {
            let Ok(pools) = cache.pools() else {
                cache.look_in(STUCK_NS);
                return;
            };
            // Memory that the pool of one device returns is available to the other pools.
            for pool in pools.iter() {
                pool.look_after();
                if cache.over() > 0 || cache.is_crowded() || pool.wants_room() {
                    cache.ctx.watch_waiters();
                }
            }
            cache.move_old(&pools);
        });
    }
}
