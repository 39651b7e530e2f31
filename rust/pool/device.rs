// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices of the host, and the objects that ZRS has on each: one protection domain, one
//! receive pool, a shared receive queue. A worker makes them when the device comes, and again later
//! where there was no memory; they are destroyed with the device.

#![deny(unsafe_code)]

use core::mem;

use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};

use super::cache::Cache;
use super::context::Pools;
use super::extent::Extent;
use super::{Layout, Pool, RECV_SGE};
use crate::ib::device::{Attrs, Device, DeviceName};
use crate::ib::dma::{Direction, DmaRegion};
use crate::ib::mr_pool::MrPool;
use crate::ib::pd::Pd;
use crate::kern::contig::ContigPages;
use crate::kern::errno::EOPNOTSUPP;
use crate::kern::net::Net;
use crate::kern::task::now_ns;
use crate::net_warn_ratelimited;
use crate::params;
use crate::proto::sizing::{MEM_RECEIVES, MIN_SGE, SQ_DEPTH};
use crate::stats::STATS;
use crate::uapi::{
    ZRS_LACK_CQE, ZRS_LACK_OTHER, ZRS_LACK_QP_WR, ZRS_LACK_RECV_SGE, ZRS_LACK_REG,
    ZRS_LACK_SEND_SGE,
};

/// Time until the second attempt to make a pool, in nanoseconds: the search for memory moves other
/// pages. The time doubles with each further failure, up to this often.
const AGAIN_NS: u64 = 1_000_000_000;
const AGAIN_SHIFT: u32 = 6;

/// How many memory regions the worker makes with a pool, if the pool has room for as many windows.
const READY_MRS: usize = 8;

/// A device, from its appearance to its removal.
#[pin_data]
pub(crate) struct RdmaDev {
    pub(crate) name: DeviceName,
    /// Links that were given a completion vector.
    links: Atomic<u64>,
    /// How often the device has said that it has failed.
    failed: Atomic<u32>,
    /// Held while the worker makes the pool. Comes before `state`.
    #[pin]
    making: Mutex<()>,
    #[pin]
    state: Mutex<State>,
}

struct State {
    /// None once the device is being removed.
    device: Option<Device>,
    pool: Option<Arc<Pool>>,
    /// The device cannot be used, and why; this was logged once.
    unfit: Option<Lack>,
    /// The worker has tried to make the pool since the device came, or a parameter was written.
    tried: bool,
    /// A parameter was written since the worker's attempt has begun.
    asked: bool,
    /// Why there is no pool.
    error: Error,
    /// How often in a row there was none, and when the worker tries again, in nanoseconds of the
    /// monotonic clock.
    failures: u32,
    again_at: u64,
}

impl State {
    /// Whether the device could have a pool, and has none.
    fn lacks_pool(&self) -> bool {
        self.device.is_some() && self.pool.is_none() && self.unfit.is_none()
    }

    /// The worker has tried to make the pool, or the device goes: no thread waits for it any more.
    fn set_tried(&mut self, pools: &Pools) {
        if !mem::replace(&mut self.tried, true) {
            pools.count_untried(-1);
        }
    }

    /// An attempt has failed. Returns whether the log should say so: not for ever.
    fn put_off(&mut self, error: Error) -> bool {
        self.error = error;
        let shift = self.failures.min(AGAIN_SHIFT);
        self.failures = self.failures.saturating_add(1);
        self.again_at = now_ns().saturating_add(AGAIN_NS << shift);
        shift < AGAIN_SHIFT
    }
}

/// The objects that are destroyed with the device; the memory of its pool may live on with programs
/// that map it.
pub(crate) struct Verbs {
    /// The mapping of the extent with the blocks.
    pub(crate) region: Arc<DmaRegion>,
    /// For the windows.
    pub(crate) mrs: Arc<MrPool>,
    pub(crate) pd: Arc<Pd>,
}

impl RdmaDev {
    /// Whether this is the object of `device`.
    pub(crate) fn is(&self, device: &Device) -> bool {
        self.state.lock().device.as_ref() == Some(device)
    }

    /// The pool, as soon as the worker has tried to make it. Sleeps.
    ///
    /// Errors: ENOMEM; ENODEV for a device that is being removed or that ZRS cannot use; EINTR if
    /// the task is being killed.
    pub(crate) fn pool(&self, pools: &Pools) -> Result<Arc<Pool>> {
        if let Some(pool) = self.existing_pool() {
            return Ok(pool);
        }
        pools.await_tries()?;
        self.made_pool()
    }

    /// The pool; if there is none, why. Sleeps. Errors: ENOMEM, ENODEV.
    pub(crate) fn made_pool(&self) -> Result<Arc<Pool>> {
        let state = self.state.lock();
        state.pool.clone().ok_or(state.error)
    }

    /// Whether the worker has to make the pool, at `now`, in nanoseconds of the monotonic clock.
    pub(super) fn needs_pool(&self, now: u64) -> bool {
        self.next_try().is_some_and(|at| at <= now)
    }

    /// When the worker has to make the pool, in nanoseconds of the monotonic clock.
    pub(super) fn next_try(&self) -> Option<u64> {
        let state = self.state.lock();
        state.lacks_pool().then_some(state.again_at)
    }

    /// The worker's attempt to make the pool. Sleeps.
    pub(super) fn make_pool(&self, pools: &Arc<Pools>) {
        let _making = self.making.lock();
        let device = {
            let mut state = self.state.lock();
            state.asked = false;
            state.device.clone()
        };
        let Some(device) = device else {
            return;
        };
        // Without the lock: the search for memory takes its time.
        let outside = device.is_outside();
        let made = if outside {
            Err(EOPNOTSUPP)
        } else {
            make_pool(pools, &device)
        };
        let made = {
            let mut state = self.state.lock();
            let made = made.map(|pool| {
                state.pool = Some(pool);
                pools.count_made(1);
            });
            if let Err(e) = made {
                let lack = match e {
                    EOPNOTSUPP if outside => Some(Lack::OTHER),
                    EOPNOTSUPP => Some(lacking(&device.attrs()).unwrap_or(Lack::OTHER)),
                    _ => None,
                };
                self.failed_to_make(&mut state, e, lack, outside);
            }
            if state.asked && state.lacks_pool() {
                (state.failures, state.again_at) = (0, 0);
            } else {
                state.set_tried(pools);
            }
            made
        };
        if made.is_ok() {
            // It may have come up since the pool's rate was read.
            self.port_active();
        }
    }

    /// There is no pool, because of `e`; `lack`: the device cannot be used. A device will not gain
    /// what it lacks; other errors may not occur next time. `outside`: siw, in another network
    /// namespace than the first one.
    fn failed_to_make(&self, state: &mut State, e: Error, lack: Option<Lack>, outside: bool) {
        state.unfit = lack;
        let log = state.put_off(if e == ENOMEM { ENOMEM } else { ENODEV });
        match (e, lack) {
            _ if outside => net_warn_ratelimited!(
                "{}: cannot be used: siw works in the first network namespace only\n",
                self.name
            ),
            (_, Some(lack)) if lack.limit != ZRS_LACK_OTHER => net_warn_ratelimited!(
                "{}: cannot be used: {} is {}, {} needed\n",
                self.name,
                lack.name(),
                lack.has,
                lack.needs
            ),
            (ENOMEM, _) if log => net_warn_ratelimited!(
                "{}: no contiguous memory for the receive pool; is pool_mib too large?\n",
                self.name
            ),
            _ if log => net_warn_ratelimited!("{}: cannot be used: {:?}\n", self.name, e),
            _ => {}
        }
    }

    /// A port of the device has come up, or has another rate: the pool goes by its rate from then
    /// on. (A port that was down when the pool was made has reported none.) Sleeps.
    pub(crate) fn port_active(&self) {
        let (device, pool) = {
            let state = self.state.lock();
            (state.device.clone(), state.pool.clone())
        };
        let (Some(device), Some(pool)) = (device, pool) else {
            return;
        };
        // Without the lock: for many devices the core asks the network interface.
        let rate = device.rate();
        let state = self.state.lock();
        let same = |p: &Arc<Pool>| Arc::ptr_eq(p, &pool);
        if rate != 0 && state.pool.as_ref().is_some_and(same) {
            pool.set_rate(rate);
        }
    }

    /// The device has failed: links that are being made on it end, too. Returns the device and its
    /// pool, if there is one.
    pub(crate) fn device_failed(&self) -> (Option<Device>, Option<Arc<Pool>>) {
        self.failed.fetch_add(1, Full);
        let state = self.state.lock();
        (state.device.clone(), state.pool.clone())
    }

    /// How often the device has failed.
    pub(crate) fn times_failed(&self) -> u32 {
        self.failed.load(Acquire)
    }

    /// The worker, which the caller queues, tries to make the pool again if there is none. Sleeps.
    pub(super) fn try_again(&self, pools: &Pools) {
        let mut state = self.state.lock();
        if state.lacks_pool() {
            (state.failures, state.again_at, state.asked) = (0, 0, true);
            if mem::replace(&mut state.tried, false) {
                pools.count_untried(1);
            }
        }
    }

    /// The number of a new stream link, which decides on the completion vector.
    pub(crate) fn next_link(&self) -> u64 {
        self.links.fetch_add(1, Relaxed)
    }

    /// Why it cannot be used, if that was tried.
    pub(crate) fn lack(&self) -> Option<Lack> {
        self.state.lock().unfit
    }

    /// Whether connections of `net` can be on it. Sleeps.
    pub(crate) fn is_in(&self, net: &Net) -> bool {
        let state = self.state.lock();
        state
            .device
            .as_ref()
            .is_some_and(|device| device.is_in(net))
    }

    /// Whether the worker has still to try to make the pool, since the device came or a parameter
    /// was written.
    pub(crate) fn is_untried(&self) -> bool {
        let state = self.state.lock();
        state.lacks_pool() && !state.tried
    }

    /// The pool, if it has been made.
    pub(crate) fn existing_pool(&self) -> Option<Arc<Pool>> {
        self.state.lock().pool.clone()
    }
}

/// Least number of work requests of a queue: those of a send queue, and the last one of a link of
/// memory nodes.
const MIN_WR: u32 = SQ_DEPTH + 1;

/// Completions of a link that has `receives` posted: those, all of the send queue, the last ones.
fn beside_receives(receives: u32) -> u32 {
    receives + MIN_WR + 1
}

/// A limit of a device that is less than what ZRS needs.
#[derive(Clone, Copy)]
pub(crate) struct Lack {
    /// Its number in the UAPI.
    pub(crate) limit: u32,
    pub(crate) has: u32,
    pub(crate) needs: u32,
}

impl Lack {
    /// Another reason, which is in the log.
    const OTHER: Self = Self {
        limit: ZRS_LACK_OTHER,
        has: 0,
        needs: 0,
    };

    /// The name of the limit in the RDMA core.
    fn name(&self) -> &'static str {
        match self.limit {
            ZRS_LACK_REG => "IB_DEVICE_MEM_MGT_EXTENSIONS",
            ZRS_LACK_SEND_SGE => "max_send_sge",
            ZRS_LACK_RECV_SGE => "max_recv_sge",
            ZRS_LACK_QP_WR => "max_qp_wr",
            ZRS_LACK_CQE => "max_cqe",
            _ => "a limit",
        }
    }
}

/// Whether links share a receive queue of the device; else each has its own.
fn shares_receives(attrs: &Attrs) -> bool {
    params::OWN_RECEIVES.get() == 0
        && attrs.max_srq > 0
        && attrs.max_srq_sge >= RECV_SGE
        && attrs.max_srq_wr >= params::LINK_CREDIT.get()
}

/// The first limit of a device that keeps ZRS from using it.
fn lacking(attrs: &Attrs) -> Option<Lack> {
    let credit = params::LINK_CREDIT.get();
    let limits = [
        (ZRS_LACK_REG, attrs.fast_registration.into(), 1),
        (ZRS_LACK_SEND_SGE, attrs.max_send_sge, MIN_SGE),
        (ZRS_LACK_RECV_SGE, attrs.max_recv_sge, RECV_SGE),
        (ZRS_LACK_QP_WR, attrs.max_qp_wr, credit.max(MIN_WR)),
        (
            ZRS_LACK_CQE,
            attrs.max_cqe,
            beside_receives(credit.max(MEM_RECEIVES)),
        ),
    ];
    let short = limits.into_iter().find(|(_, has, needs)| has < needs);
    short.map(|(limit, has, needs)| Lack { limit, has, needs })
}

fn make_pool(pools: &Arc<Pools>, device: &Device) -> Result<Arc<Pool>> {
    if lacking(&device.attrs()).is_some() {
        return Err(EOPNOTSUPP);
    }
    let cache = Cache::of(pools, device.numa_node())?;
    let rate = device.rate();
    cache.join(rate);
    let pool = fill_pool(pools, device, &cache, rate).and_then(|pool| {
        cache.add(&pool).inspect_err(|_| {
            pool.close_shared();
            pool.give_blocks();
        })?;
        Ok(pool)
    });
    if pool.is_err() {
        cache.leave(None, rate);
    }
    pool
}

fn fill_pool(
    pools: &Arc<Pools>,
    device: &Device,
    cache: &Arc<Cache>,
    rate: u32,
) -> Result<Arc<Pool>> {
    let attrs = device.attrs();
    let shares = shares_receives(&attrs);
    let most = match shares {
        // A link's completion queue has room for all receives of the queue.
        true => attrs.max_srq_wr.min(attrs.max_cqe - beside_receives(0)),
        false => u32::MAX,
    };
    let layout = Layout::new(cache.pages(), most)?;
    let mem = Arc::new(
        ContigPages::new(layout.pages, device.numa_node())?,
        GFP_KERNEL,
    )?;
    let pd = Pd::new(device)?;
    let region = Arc::new(
        DmaRegion::map(&pd, mem.clone(), Direction::FromDevice)?,
        GFP_KERNEL,
    )?;
    STATS.resources_made.add(1);
    let base = Extent::new(mem, region.clone(), layout.first_window, cache)?;
    let mrs = MrPool::new(&pd)?;
    // So that the first windows wait for no command of the device's firmware. Without these
    // regions they do, or find no memory then.
    let window = Cache::window_bytes(rate) >> PAGE_SHIFT;
    let windows = layout.pages.saturating_sub(layout.first_window) / window.max(1);
    let pages = (window as u32).clamp(1, attrs.max_fast_reg_pages.max(1));
    let _ = mrs.fill(windows.min(READY_MRS), pages);
    let verbs = Arc::new(Verbs { region, mrs, pd }, GFP_KERNEL)?;
    Pool::new(pools, layout, base, verbs, cache, rate, !shares)
}

impl Pools {
    /// A device has appeared. Its pool is made by the worker. ENOMEM.
    pub(crate) fn add_device(self: &Arc<Self>, device: &Device) -> Result<Arc<RdmaDev>> {
        let dev = Arc::pin_init(
            try_pin_init!(RdmaDev {
                name: device.name(),
                links: Atomic::new(0),
                failed: Atomic::new(0),
                making <- new_mutex!((), "zrs_device::making"),
                state <- new_mutex!(State {
                    device: Some(device.clone()),
                    pool: None,
                    unfit: None,
                    tried: false,
                    asked: false,
                    error: ENODEV,
                    failures: 0,
                    again_at: 0,
                }, "zrs_device"),
            }),
            GFP_KERNEL,
        )?;
        // Before the worker can find it.
        self.count_untried(1);
        let added = self.devices.lock().push(dev.clone(), GFP_KERNEL);
        if added.is_err() {
            self.count_untried(-1);
        }
        added?;
        self.make_pools_soon();
        Ok(dev)
    }

    /// The device is being removed: its pool is not found any more. The caller calls
    /// [`Pool::device_gone`] for the returned pool once nothing uses it any more.
    pub(crate) fn remove_device(self: &Arc<Self>, dev: &Arc<RdmaDev>) -> Option<Arc<Pool>> {
        dev.state.lock().device = None;
        // No attempt for this device begins any more; waits for one that has begun.
        drop(dev.making.lock());
        let pool = {
            let mut state = dev.state.lock();
            state.error = ENODEV;
            state.set_tried(self);
            let pool = state.pool.take();
            if pool.is_some() {
                self.count_made(-1);
            }
            pool
        };
        self.devices.lock().retain(|d| !Arc::ptr_eq(d, dev));
        pool
    }
}
