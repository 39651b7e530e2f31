// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices of the host, and the objects that ZRS has on each: one protection domain, one
//! shared receive queue, one receive pool. They are made with the first socket, and destroyed with
//! the device.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};

use super::cache::Cache;
use super::context::Pools;
use super::extent::Extent;
use super::{Layout, Pool};
use crate::ib::device::{Attrs, Device, DeviceName};
use crate::ib::dma::{Direction, DmaRegion};
use crate::ib::pd::Pd;
use crate::ib::srq::Srq;
use crate::kern::contig::ContigPages;
use crate::kern::errno::EOPNOTSUPP;
use crate::net_warn_ratelimited;
use crate::params;
use crate::stats::STATS;

/// A device, from its appearance to its removal.
#[pin_data]
pub(crate) struct RdmaDev {
    pub(crate) name: DeviceName,
    /// Links that were given a completion vector.
    links: Atomic<u64>,
    #[pin]
    state: Mutex<State>,
}

struct State {
    /// None once the device is being removed.
    device: Option<Device>,
    pool: Option<Arc<Pool>>,
    /// The device lacks what ZRS needs; this was logged once.
    unfit: bool,
}

/// The objects that are destroyed with the device; the memory of its pool may live on with programs
/// that map it.
pub(crate) struct Verbs {
    // Destroyed before the mapping of the memory that the queue's requests name.
    pub(crate) srq: Arc<Srq>,
    /// The mapping of the extent with the blocks.
    pub(crate) region: Arc<DmaRegion>,
    pub(crate) pd: Arc<Pd>,
}

impl RdmaDev {
    /// Whether this is the object of `device`.
    pub(crate) fn is(&self, device: &Device) -> bool {
        self.state.lock().device.as_ref() == Some(device)
    }

    /// The pool, made now if it is not there yet. Sleeps.
    ///
    /// Errors: ENOMEM, with a line in the log; ENODEV for a device that is being removed or that
    /// ZRS cannot use.
    pub(crate) fn pool(&self, pools: &Arc<Pools>) -> Result<Arc<Pool>> {
        let mut state = self.state.lock();
        if let Some(pool) = &state.pool {
            return Ok(pool.clone());
        }
        if state.unfit {
            return Err(ENODEV);
        }
        let device = state.device.clone().ok_or(ENODEV)?;
        match make_pool(pools, &device) {
            Ok(pool) => {
                state.pool = Some(pool.clone());
                Ok(pool)
            }
            Err(e) if e == ENOMEM => {
                net_warn_ratelimited!(
                    "{}: no contiguous memory for the receive pool; is pool_mib too large?\n",
                    self.name
                );
                Err(e)
            }
            // A device will not gain what it lacks; other errors may not occur next time.
            Err(e) => {
                match lacking(&device.attrs()) {
                    Some(Lack { what, has, needs }) => {
                        net_warn_ratelimited!(
                            "{}: cannot be used: {} is {}, {} needed\n",
                            self.name,
                            what,
                            has,
                            needs
                        );
                    }
                    None => net_warn_ratelimited!("{}: cannot be used: {:?}\n", self.name, e),
                }
                state.unfit = e == EOPNOTSUPP;
                Err(ENODEV)
            }
        }
    }

    /// The number of a new stream link, which decides on the completion vector.
    pub(crate) fn next_link(&self) -> u64 {
        self.links.fetch_add(1, Relaxed)
    }

    /// The pool, if it has been made.
    pub(crate) fn existing_pool(&self) -> Option<Arc<Pool>> {
        self.state.lock().pool.clone()
    }
}

/// Least number of scatter/gather elements of a send: the header, and 4 KiB of a program's memory,
/// which may lie in two pages. Chunks are as short as a device's elements ask for.
const MIN_SGE: u32 = 3;

/// Elements of a receive: a header and a block.
const RECV_SGE: u32 = 2;

/// A limit of a device that is less than what ZRS needs.
struct Lack {
    what: &'static str,
    has: u32,
    needs: u32,
}

/// The first limit of a device that keeps ZRS from using it.
fn lacking(attrs: &Attrs) -> Option<Lack> {
    let limits = [
        (
            "IB_DEVICE_MEM_MGT_EXTENSIONS",
            attrs.fast_registration.into(),
            1,
        ),
        ("max_srq", attrs.max_srq, 1),
        ("max_srq_sge", attrs.max_srq_sge, RECV_SGE),
        ("max_srq_wr", attrs.max_srq_wr, params::LINK_CREDIT.get()),
        ("max_send_sge", attrs.max_send_sge, MIN_SGE),
    ];
    let short = limits.into_iter().find(|(_, has, needs)| has < needs);
    short.map(|(what, has, needs)| Lack { what, has, needs })
}

fn make_pool(pools: &Arc<Pools>, device: &Device) -> Result<Arc<Pool>> {
    if lacking(&device.attrs()).is_some() {
        return Err(EOPNOTSUPP);
    }
    let cache = Cache::of(pools, device.numa_node())?;
    let rate = device.rate();
    cache.join(rate);
    let pool = fill_pool(pools, device, &cache, rate).and_then(|pool| {
        cache.add(&pool).inspect_err(|_| pool.give_blocks())?;
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
    let layout = Layout::new(cache.pages(), device.attrs().max_srq_wr)?;
    let mem = Arc::new(
        ContigPages::new(layout.pages, device.numa_node())?,
        GFP_KERNEL,
    )?;
    let pd = Pd::new(device)?;
    let srq = Srq::new(&pd, layout.blocks, RECV_SGE)?;
    let region = Arc::new(
        DmaRegion::map(&pd, mem.clone(), Direction::FromDevice)?,
        GFP_KERNEL,
    )?;
    STATS.resources_made.add(2);
    let base = Extent::new(mem, region.clone(), layout.first_window, cache)?;
    let verbs = Arc::new(Verbs { region, srq, pd }, GFP_KERNEL)?;
    Pool::new(pools, layout, base, verbs, cache, rate)
}

impl Pools {
    /// A device has appeared. ENOMEM.
    pub(crate) fn add_device(&self, device: &Device) -> Result<Arc<RdmaDev>> {
        let dev = Arc::pin_init(
            try_pin_init!(RdmaDev {
                name: device.name(),
                links: Atomic::new(0),
                state <- new_mutex!(State {
                    device: Some(device.clone()),
                    pool: None,
                    unfit: false,
                }, "zrs_device"),
            }),
            GFP_KERNEL,
        )?;
        self.devices.lock().push(dev.clone(), GFP_KERNEL)?;
        Ok(dev)
    }

    /// The device is being removed: its pool is not found any more. The caller calls
    /// [`Pool::device_gone`] for the returned pool once nothing uses it any more.
    pub(crate) fn remove_device(&self, dev: &Arc<RdmaDev>) -> Option<Arc<Pool>> {
        let pool = {
            let mut state = dev.state.lock();
            state.device = None;
            state.pool.take()
        };
        self.devices.lock().retain(|d| !Arc::ptr_eq(d, dev));
        pool
    }
}
