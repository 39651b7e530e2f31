// SPDX-License-Identifier: GPL-2.0

//! `/dev/zrs`: requests to the module as a whole. All users may open it; it shows links and sockets
//! in the caller's network namespace only.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::{peers, rules};
use crate::dgram::context::Dgrams;
use crate::dgram::DgramSock;
use crate::ib::device::DeviceName;
use crate::kern::chardev::DeviceOps;
use crate::kern::errno::{EAFNOSUPPORT, ESOCKTNOSUPPORT};
use crate::kern::net::Net;
use crate::kern::pin;
use crate::kern::sock::family::SocketFamily;
use crate::kern::task;
use crate::memnode::admin;
use crate::memnode::context::Memory;
use crate::params;
use crate::pool::context::Pools;
use crate::pool::reserve;
use crate::proto::fallback::Why;
use crate::socket::context::{Sockets, KNOWN};
use crate::socket::{be32, Sock};
use crate::stats::{Counter, FALLBACKS, STATS};
use crate::transport::context::Transport;
use crate::transport::link::LinkState;
use crate::uapi::*;

/// The device.
pub(crate) struct Control;

/// The contexts that the calls work on.
#[derive(Clone)]
pub(crate) struct Contexts {
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) dgrams: Arc<Dgrams>,
    pub(crate) memory: Arc<Memory>,
}

impl DeviceOps for Control {
    type State = Contexts;

    fn ioctl(contexts: &Contexts, cmd: u32, arg: usize) -> Result<isize> {
        let sockets = &contexts.sockets;
        let transport = &sockets.transport;
        match cmd {
            ZRS_IOC_VERSION => answer(arg, version),
            ZRS_IOC_SOCKET => socket(arg),
            ZRS_IOC_STATS => answer(arg, |s| stats(transport, s)),
            ZRS_IOC_POOL => answer(arg, |p| pool(&transport.pools, p)),
            ZRS_IOC_LINK => answer(arg, |l| link(transport, l)),
            ZRS_IOC_SOCK => answer(arg, |s| sock(sockets, s)),
            ZRS_IOC_DGRAM => answer(arg, |s| dgram(&contexts.dgrams, s)),
            ZRS_IOC_TABLE => answer(arg, |t| table(transport, t)),
            ZRS_IOC_CACHE => answer(arg, |c| cache(&transport.pools, c)),
            ZRS_IOC_RULES => answer(arg, |r| rules::rules(sockets, r)),
            ZRS_IOC_PEERS => answer(arg, |p| peers::peers(contexts, p)),
            ZRS_IOC_FALLBACK => answer(arg, |f| fallback(sockets, f)),
            // What an administrator calls is not in question.
            ZRS_IOC_MEM_ALLOC | ZRS_IOC_MEM_OPEN | ZRS_IOC_MEM_QUEUE
                if !params::may_use(&Net::current()) =>
            {
                Err(EACCES)
            }
            _ => admin::ioctl(&contexts.memory, cmd, arg),
        }
    }
}

fn version(v: &mut zrs_ioc_version) -> Result {
    zero(&[u64::from(v.reserved)])?;
    v.version = ZRS_UAPI_VERSION;
    v.features = ZRS_FEATURES;
    Ok(())
}

fn socket(arg: usize) -> Result<isize> {
    let slice = UserSlice::new(UserPtr::from_addr(arg), size_of::<zrs_ioc_socket>());
    let s: zrs_ioc_socket = slice.reader().read()?;
    zero(&[u64::from(s.reserved)])?;
    // A seccomp filter that forbids a task to make sockets mostly judges socket(), and does not see
    // this call.
    if task::is_filtered() {
        return Err(EPERM);
    }
    // The families and the types that socket() has for ZRS, and no others.
    if s.family != AF_INET && s.family != AF_INET6 {
        return Err(EAFNOSUPPORT);
    }
    let fd = match s.type_ {
        SOCK_STREAM => SocketFamily::<Sock>::create_fd(s.family, s.flags)?,
        SOCK_DGRAM => SocketFamily::<DgramSock>::create_fd(s.family, s.flags)?,
        _ => return Err(ESOCKTNOSUPPORT),
    };
    Ok(fd as isize)
}

fn stats(transport: &Arc<Transport>, s: &mut zrs_ioc_stats) -> Result {
    let (mut bytes, mut used) = (0, 0);
    for dev in transport.pools.devices.lock().iter() {
        if let Some(pool) = dev.existing_pool() {
            let u = pool.usage();
            bytes += u.bytes as u64;
            used += u.leased as u64 + (u64::from(u.held) << kernel::page::PAGE_SHIFT);
        }
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
        pool_bytes: bytes,
        pool_used: used,
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

/// How often TCP has come to carry a socket for this reason.
fn fallbacks(why: Why) -> u64 {
    let counter = FALLBACKS.get(why.number() as usize);
    counter.map_or(0, Counter::get)
}

fn fallback(sockets: &Arc<Sockets>, f: &mut zrs_ioc_fallback) -> Result {
    zero(&f.reserved)?;
    *f = zrs_ioc_fallback {
        known: sockets.hosts_known() as u32,
        known_max: KNOWN as u32,
        ..Default::default()
    };
    for (out, counter) in f.by_why.iter_mut().zip(&FALLBACKS) {
        *out = counter.get();
    }
    Ok(())
}

fn put_name(out: &mut [u8; ZRS_NAME_LEN], name: &DeviceName) {
    for (o, b) in out
        .iter_mut()
        .zip(name.as_bytes().iter().take(ZRS_NAME_LEN - 1))
    {
        *o = *b;
    }
}

fn pool(pools: &Arc<Pools>, p: &mut zrs_ioc_pool) -> Result {
    zero(&[u64::from(p.reserved0)])?;
    zero(&p.reserved)?;
    let mut index = usize::try_from(p.cursor).map_err(|_| ENOENT)?;
    let devices = pools.devices.lock();
    loop {
        let dev = devices.get(index).ok_or(ENOENT)?;
        index += 1;
        let Some(pool) = dev.existing_pool() else {
            continue;
        };
        let u = pool.usage();
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
            ..Default::default()
        };
        put_name(&mut p.device, &dev.name);
        return Ok(());
    }
}

fn cache(pools: &Arc<Pools>, c: &mut zrs_ioc_cache) -> Result {
    zero(&c.reserved)?;
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

fn link(transport: &Arc<Transport>, l: &mut zrs_ioc_link) -> Result {
    zero(&[u64::from(l.reserved1)])?;
    let net = Net::current();
    let links = transport.snapshot()?;
    let first = usize::try_from(l.cursor).map_err(|_| ENOENT)?;
    let (index, link) = links
        .iter()
        .enumerate()
        .skip(first)
        .find(|(_, link)| link.net == net)
        .ok_or(ENOENT)?;
    let sending = link.sending();
    let (local, remote) = (link.local_ip(), link.remote_ip());
    *l = zrs_ioc_link {
        cursor: index as u64 + 1,
        local_addr: be32(local),
        remote_addr: be32(remote),
        state: match link.state() {
            LinkState::Connecting => ZRS_LINK_CONNECTING,
            LinkState::Up => ZRS_LINK_UP,
            LinkState::Down => ZRS_LINK_DOWN,
        },
        channels: link.channels() as u32,
        tx_bytes: link.tx_bytes.get(),
        rx_bytes: link.rx_bytes.get(),
        flags: if link.accepted {
            ZRS_LINK_F_ACCEPTED
        } else {
            0
        },
        waiting: sending.waiting,
        bulk: sending.bulk,
        bulk_max: sending.bulk_most,
        waits: link.waits.get(),
        id: link.id,
        dgram_drops: link.dgram_drops(),
        local_addr6: local.octets(),
        remote_addr6: remote.octets(),
        scope_id: local.scope().max(remote.scope()),
        ..Default::default()
    };
    if let Some(name) = link.device_name() {
        put_name(&mut l.device, &name);
    }
    Ok(())
}

fn sock(sockets: &Arc<Sockets>, s: &mut zrs_ioc_sock) -> Result {
    zero(&s.info.reserved)?;
    let net = Net::current();
    let (cursor, info) = sockets.next_socket(&net, s.cursor).ok_or(ENOENT)?;
    s.cursor = cursor;
    s.info = info;
    Ok(())
}

fn dgram(dgrams: &Arc<Dgrams>, s: &mut zrs_ioc_dgram) -> Result {
    zero(&[u64::from(s.info.reserved0)])?;
    zero(&s.info.reserved)?;
    let (cursor, info) = dgrams
        .next_socket(&Net::current(), s.cursor)
        .ok_or(ENOENT)?;
    s.cursor = cursor;
    s.info = info;
    Ok(())
}

fn table(transport: &Arc<Transport>, t: &mut zrs_ioc_table) -> Result {
    zero(&[u64::from(t.reserved0)])?;
    zero(&t.reserved)?;
    let sizes = transport.table.sizes();
    let stats = transport.table.stats();
    *t = zrs_ioc_table {
        hot_slots: sizes.hot,
        near_places: sizes.near,
        ways: sizes.ways,
        most: sizes.most,
        entries: stats.entries,
        hot: stats.hot,
        near: stats.l2,
        hits: stats.hits,
        near_hits: stats.l2_hits,
        faults: stats.faults,
        parked: stats.parked,
        evicted: stats.evicted,
        contended: stats.contended,
        ..Default::default()
    };
    Ok(())
}
