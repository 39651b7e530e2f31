// SPDX-License-Identifier: GPL-2.0

//! Counters, pools, caches and the link table.
//!
//! A caller with `CAP_NET_ADMIN` in the first user namespace is shown those of the machine. They
//! reveal the activity of other network namespaces. So other callers are shown the figures of their
//! own namespace: of its sockets, its links, and the devices that it can use. `nldev` shows keys
//! and protection domains by the same rule (`has_cap_net_admin`).

#![deny(unsafe_code)]

use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::chardev::put_name;
use crate::kern::net::Net;
use crate::kern::{pin, task};
use crate::pool::context::Pools;
use crate::pool::device::RdmaDev;
use crate::pool::{reserve, Pool, Usage};
use crate::proto::fallback::Why;
use crate::socket::context::{Sockets, KNOWN};
use crate::stats::{Counter, FALLBACKS, STATS};
use crate::transport::context::Transport;
use crate::transport::link::Link;
use crate::uapi::*;

/// The network namespace that the caller is shown; `None`: the machine.
fn shown() -> Option<Net> {
    (!task::may_administer_net()).then(Net::current)
}

/// EPERM for a caller that is not shown the machine.
pub(super) fn may_see_machine() -> Result {
    task::may_administer_net().then_some(()).ok_or(EPERM)
}

/// The use of a pool, of the machine or by one namespace.
fn usage(pool: &Pool, net: Option<&Net>) -> Result<Usage> {
    match net {
        None => Ok(pool.usage()),
        Some(net) => pool.usage_in(net),
    }
}

/// The size of all pools, and the part of it that is in use.
fn pools_usage(pools: &Pools, net: Option<&Net>) -> Result<(u64, u64)> {
    let mut shown = KVec::new();
    for dev in pools.devices.lock().iter().filter(|dev| sees(dev, net)) {
        if let Some(pool) = dev.existing_pool() {
            shown.push(pool, GFP_KERNEL)?;
        }
    }
    let (mut bytes, mut used) = (0, 0);
    for pool in &shown {
        let u = usage(pool, net)?;
        bytes += u.bytes as u64;
        used += u.leased as u64 + (u64::from(u.held) << PAGE_SHIFT);
    }
    Ok((bytes, used))
}

/// Whether a caller that is shown `net` sees the device.
fn sees(dev: &RdmaDev, net: Option<&Net>) -> bool {
    net.is_none_or(|net| dev.is_in(net))
}

pub(super) fn stats(transport: &Arc<Transport>, s: &mut zrs_ioc_stats) -> Result {
    let net = shown();
    let (pool_bytes, pool_used) = pools_usage(&transport.pools, net.as_ref())?;
    if let Some(net) = net {
        *s = zrs_ioc_stats {
            pool_bytes,
            pool_used,
            ..stats_of(transport, &net)?
        };
        return Ok(());
    }
    // Each lock is released before the next is taken.
    let channels = u64::from(transport.table.len());
    let links = transport.link_count() as u64;
    *s = zrs_ioc_stats {
        tx_bytes: STATS.tx_bytes.get(),
        rx_bytes: STATS.rx_bytes.get(),
        tx_copied: STATS.tx_copied.get(),
        rx_copied: STATS.rx_copied.get(),
        rx_spilled: STATS.rx_spilled.get(),
        work_requests: STATS.work_requests.get(),
        recv_requests: STATS.recv_requests.get(),
        completions: STATS.completions.get(),
        empty_events: STATS.empty_events.get(),
        resources_made: STATS.resources_made.get(),
        pages_pinned: pin::pages_held(),
        sockets: STATS.sockets.get(),
        channels,
        links,
        pool_bytes,
        pool_used,
        protocol_errors: STATS.protocol_errors.get(),
        signaled: STATS.signaled.get(),
        windows_revoked: STATS.windows_revoked.get(),
        tcp_known: fallbacks(Why::Known),
        tcp_no_zrs: fallbacks(Why::NoZrs),
        tcp_slow: fallbacks(Why::Slow),
        tcp_no_listener: fallbacks(Why::NoListener),
        tcp_no_resources: fallbacks(Why::NoResources),
    };
    Ok(())
}

/// The counters of a namespace, without those of its pools.
fn stats_of(transport: &Transport, net: &Net) -> Result<zrs_ioc_stats> {
    let links = transport.snapshot()?;
    let own = || links.iter().filter(|link| link.net == *net);
    let ended = transport.counts.of(net);
    let by_why = |why: Why| ended.by_why.get(why.number() as usize).copied();
    let bytes = |of: fn(&Link) -> &Counter| own().map(|link| of(link).get()).sum::<u64>();
    Ok(zrs_ioc_stats {
        tx_bytes: ended.tx_bytes.wrapping_add(bytes(|link| &link.tx_bytes)),
        rx_bytes: ended.rx_bytes.wrapping_add(bytes(|link| &link.rx_bytes)),
        sockets: transport.sockets_in(net) as u64,
        channels: own().map(|link| link.channels() as u64).sum(),
        links: own().count() as u64,
        tcp_known: by_why(Why::Known).unwrap_or(0),
        tcp_no_zrs: by_why(Why::NoZrs).unwrap_or(0),
        tcp_slow: by_why(Why::Slow).unwrap_or(0),
        tcp_no_listener: by_why(Why::NoListener).unwrap_or(0),
        tcp_no_resources: by_why(Why::NoResources).unwrap_or(0),
        ..Default::default()
    })
}

/// How often TCP has come to carry a socket for this reason.
fn fallbacks(why: Why) -> u64 {
    let counter = FALLBACKS.get(why.number() as usize);
    counter.map_or(0, Counter::get)
}

pub(super) fn fallback(sockets: &Arc<Sockets>, f: &mut zrs_ioc_fallback) -> Result {
    zero(&f.reserved)?;
    let net = shown();
    *f = zrs_ioc_fallback {
        known: sockets.hosts_known(net.as_ref()) as u32,
        known_max: KNOWN as u32,
        ..Default::default()
    };
    match net {
        None => {
            for (out, counter) in f.by_why.iter_mut().zip(&FALLBACKS) {
                *out = counter.get();
            }
        }
        Some(net) => {
            let counts = sockets.transport.counts.of(&net);
            for (out, count) in f.by_why.iter_mut().zip(counts.by_why) {
                *out = count;
            }
        }
    }
    Ok(())
}

pub(super) fn pool(pools: &Arc<Pools>, p: &mut zrs_ioc_pool) -> Result {
    zero(&[u64::from(p.reserved)])?;
    let all = match p.lack {
        0 => false,
        ZRS_POOL_ALL => true,
        _ => return Err(EINVAL),
    };
    let net = shown();
    let mut index = usize::try_from(p.cursor).map_err(|_| ENOENT)?;
    let (dev, pool) = loop {
        let dev = pools.devices.lock().get(index).cloned().ok_or(ENOENT)?;
        index += 1;
        if !sees(&dev, net.as_ref()) {
            continue;
        }
        if let Some(pool) = dev.existing_pool() {
            break (dev, pool);
        }
        let Some(lack) = dev.lack().filter(|_| all) else {
            continue;
        };
        *p = zrs_ioc_pool {
            cursor: index as u64,
            lack: lack.limit,
            lack_has: lack.has,
            lack_needs: lack.needs,
            ..Default::default()
        };
        put_name(&mut p.device, &dev.name);
        return Ok(());
    };
    let u = usage(&pool, net.as_ref())?;
    *p = zrs_ioc_pool {
        cursor: index as u64,
        bytes: u.bytes as u64,
        block_bytes: u.blocks as u64,
        window_bytes: u.leased as u64,
        windows: u.windows as u64,
        blocks_held: u64::from(u.held),
        cache: pools.cache_index(&pool.cache),
        blocks: u.blocks_used,
        blocks_low: u.blocks_low,
        blocks_lent: u.lent,
        ..Default::default()
    };
    put_name(&mut p.device, &dev.name);
    Ok(())
}

pub(super) fn cache(pools: &Arc<Pools>, c: &mut zrs_ioc_cache) -> Result {
    zero(&c.reserved)?;
    // A cache is of no namespace.
    may_see_machine().map_err(|_| ENOENT)?;
    let index = usize::try_from(c.cursor).map_err(|_| ENOENT)?;
    let cache = pools.caches.lock().get(index).cloned().ok_or(ENOENT)?;
    *c = zrs_ioc_cache {
        cursor: index as u64 + 1,
        escape_reserved: reserve::promised(),
        escape_max: reserve::most(),
        refused: reserve::REFUSED.get(),
        ..Default::default()
    };
    cache.tell(c);
    Ok(())
}

pub(super) fn table(transport: &Arc<Transport>, t: &mut zrs_ioc_table) -> Result {
    zero(&[u64::from(t.reserved0)])?;
    zero(&t.reserved)?;
    let sizes = transport.table.sizes();
    *t = zrs_ioc_table {
        hot_slots: sizes.hot,
        near_places: sizes.near,
        ways: sizes.ways,
        most: sizes.most,
        ..Default::default()
    };
    if let Some(net) = shown() {
        let links = transport.snapshot()?;
        let own = links.iter().filter(|link| link.net == net);
        t.entries = own.map(|link| link.channels() as u32).sum();
        return Ok(());
    }
    let stats = transport.table.stats();
    *t = zrs_ioc_table {
        entries: stats.entries,
        hot: stats.hot,
        near: stats.l2,
        hits: stats.hits,
        near_hits: stats.l2_hits,
        faults: stats.faults,
        parked: stats.parked,
        evicted: stats.evicted,
        contended: stats.contended,
        ..*t
    };
    Ok(())
}
