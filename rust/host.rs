// SPDX-License-Identifier: GPL-2.0

//! What the module has once: devices, links, channels, ports, and the network namespaces in use.
//!
//! Locks: `opening`, then `nets`, then `links`, then `devices`, then `caches` (mutexes; `mapped_socks` comes after a link's `drain`); `table` is
//! a spinlock below all others.
//! See `socket.rs` for the whole order.

#![deny(unsafe_code)]

mod links;
mod reclaim;
mod table;
mod timers;

pub(crate) use table::{Chan, Table};

use timers::TimerList;

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

use crate::ib::device::Device;
use crate::kern::global::Global;
use crate::kern::net::Net;
use crate::kern::task::{now_ns, random_u64};
use crate::kern::work::{self, Queue};
use crate::proto::channel::Failure;
use crate::socket::{Ports, Sock};
use crate::transport::cache::Cache;
use crate::transport::cm::{Listener, Listening};
use crate::transport::device::RdmaDev;
use crate::transport::link::Link;
use crate::uapi::zrs_info;

/// Cursors of ZRS_IOC_SOCK from here on are for sockets that listen.
const LISTENERS: u64 = 1 << 32;

/// How often those who wait for a window are looked at.
const WAITERS_MS: u32 = 50;

/// Work item: checks the timers of connections.
const TIMERS: u64 = 0;
/// Work item: ends links without connections.
const IDLE_LINKS: u64 = 1;
/// Work item: has pools look at the connections that wait for a window.
const WINDOW_WAITERS: u64 = 2;
/// Work item: looks for mapped pages that programs have given back.
const MAPPED: u64 = 3;
/// Work item: checks whether peers are alive.
const KEEPALIVE: u64 = 4;
/// Work item: parks idle channels of the link table.
const SWEEP: u64 = 5;

/// The module's one host.
#[pin_data]
pub(crate) struct Host {
    pub(crate) nonce: u64,
    pub(crate) queue: Queue,
    #[pin]
    opening: Mutex<()>,
    #[pin]
    nets: Mutex<KVec<NetUse>>,
    /// When a group of links grew last, in nanoseconds of the monotonic clock.
    grown: Atomic<u64>,
    #[pin]
    links: Mutex<KVec<Arc<Link>>>,
    #[pin]
    pub(crate) devices: Mutex<KVec<Arc<RdmaDev>>>,
    #[pin]
    pub(crate) caches: Mutex<KVec<Arc<Cache>>>,
    #[pin]
    pub(crate) ports: Mutex<Ports>,
    #[pin]
    pub(crate) table: Table,
    #[pin]
    watched: Mutex<TimerList>,
    #[pin]
    timers: DelayedWork<Host, TIMERS>,
    #[pin]
    idle: DelayedWork<Host, IDLE_LINKS>,
    #[pin]
    window_waiters: DelayedWork<Host, WINDOW_WAITERS>,
    /// Sockets whose programs may have pages that were lent to them.
    #[pin]
    mapped_socks: Mutex<KVec<Arc<Sock>>>,
    #[pin]
    reclaim: DelayedWork<Host, MAPPED>,
    /// When links are looked after next, in nanoseconds of the monotonic clock; `u64::MAX`: never.
    #[pin]
    keepalive_at: Mutex<u64>,
    #[pin]
    keepalive: DelayedWork<Host, KEEPALIVE>,
    #[pin]
    sweep: DelayedWork<Host, SWEEP>,
    /// When they are looked at again, in milliseconds.
    reclaim_ms: Atomic<u32>,
}

/// A network namespace with sockets, or that had some a moment ago.
struct NetUse {
    net: Net,
    sockets: usize,
    listeners: usize,
    /// Takes connections while somebody listens.
    listener: Option<Listening>,
    /// When the last socket was closed.
    empty_since: u64,
}

static HOST: Global<Host> = Global::new();

impl Host {
    /// The host, between the module's start and its end.
    pub(crate) fn get() -> Option<Arc<Self>> {
        HOST.get()
    }

    /// Makes the host. Sleeps.
    pub(crate) fn start() -> Result<Arc<Self>> {
        let table = Table::new()?;
        let queue = Queue::new(
            kernel::c_str!("zrs"),
            work::Flags {
                unbound: true,
                mem_reclaim: true,
                ..Default::default()
            },
        )?;
        let host = Arc::pin_init(
            try_pin_init!(Self {
                nonce: random_u64(),
                queue,
                opening <- new_mutex!((), "zrs_host::opening"),
                nets <- new_mutex!(KVec::new(), "zrs_host::nets"),
                grown: Atomic::new(0),
                links <- new_mutex!(KVec::new(), "zrs_host::links"),
                devices <- new_mutex!(KVec::new(), "zrs_host::devices"),
                caches <- new_mutex!(KVec::new(), "zrs_host::caches"),
                ports <- new_mutex!(Ports::new(), "zrs_host::ports"),
                table <- table,
                watched <- new_mutex!(TimerList::new(), "zrs_host::watched"),
                timers <- new_delayed_work!("zrs_host::timers"),
                idle <- new_delayed_work!("zrs_host::idle"),
                window_waiters <- new_delayed_work!("zrs_host::window_waiters"),
                mapped_socks <- new_mutex!(KVec::new(), "zrs_host::mapped_socks"),
                reclaim <- new_delayed_work!("zrs_host::reclaim"),
                keepalive_at <- new_mutex!(u64::MAX, "zrs_host::keepalive_at"),
                keepalive <- new_delayed_work!("zrs_host::keepalive"),
                sweep <- new_delayed_work!("zrs_host::sweep"),
                reclaim_ms: Atomic::new(reclaim::RECLAIM_MS),
            }),
            GFP_KERNEL,
        )?;
        HOST.set(host.clone());
        Ok(host)
    }

    /// Ends everything; no socket is open and no device is there any more. Sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        let nets = core::mem::take(&mut *self.nets.lock());
        drop(nets);
        loop {
            let Some(link) = self.links.lock().first().cloned() else {
                break;
            };
            link.fail(Failure::LinkLost);
            self.queue.flush();
        }
        self.queue.flush();
        work::cancel_delayed::<Host, TIMERS>(self);
        work::cancel_delayed::<Host, IDLE_LINKS>(self);
        work::cancel_delayed::<Host, WINDOW_WAITERS>(self);
        work::cancel_delayed::<Host, MAPPED>(self);
        work::cancel_delayed::<Host, KEEPALIVE>(self);
        work::cancel_delayed::<Host, SWEEP>(self);
        let mapped_socks = core::mem::take(&mut *self.mapped_socks.lock());
        drop(mapped_socks);
        let caches = core::mem::take(&mut *self.caches.lock());
        caches.iter().for_each(|cache| cache.stop());
        drop(caches);
        self.queue.flush();
        HOST.clear();
    }

    /// The device object for `device`.
    pub(crate) fn device(&self, device: &Device) -> Option<Arc<RdmaDev>> {
        self.devices.lock().iter().find(|d| d.is(device)).cloned()
    }

    /// Makes the receive pools of all devices that have none yet (row Z2). ENOMEM.
    pub(crate) fn make_pools(&self) -> Result {
        for dev in self.devices.lock().iter() {
            match dev.pool() {
                Err(e) if e == ENOMEM => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// A parameter of the pools was written: each pool sees to it. Sleeps.
    pub(crate) fn pool_changed(&self) {
        for cache in self.caches.lock().iter() {
            cache.resize();
        }
    }

    /// The cursor by which ZRS_IOC_CACHE finds a cache.
    pub(crate) fn cache_index(&self, cache: &Arc<Cache>) -> u32 {
        let caches = self.caches.lock();
        let at = caches.iter().position(|c| Arc::ptr_eq(c, cache));
        at.unwrap_or(caches.len()) as u32
    }

    /// A socket is made in `net`. ENOMEM, but not while there is another one.
    pub(crate) fn socket_opened(&self, net: &Net) -> Result {
        let mut nets = self.nets.lock();
        if let Some(n) = nets.iter_mut().find(|n| n.net == *net) {
            n.sockets += 1;
            return Ok(());
        }
        let first = NetUse {
            net: net.clone(),
            sockets: 1,
            listeners: 0,
            listener: None,
            empty_since: 0,
        };
        Ok(nets.push(first, GFP_KERNEL)?)
    }

    /// A socket in `net` was closed.
    pub(crate) fn socket_closed(self: &Arc<Self>, net: &Net) {
        {
            let mut nets = self.nets.lock();
            let Some(n) = nets.iter_mut().find(|n| n.net == *net) else {
                return;
            };
            n.sockets = n.sockets.saturating_sub(1);
            if n.sockets > 0 {
                return;
            }
            n.empty_since = now_ns();
        }
        self.look_for_idle();
    }

    /// Somebody listens in `net`: connections are taken. Sleeps.
    pub(crate) fn start_listening(self: &Arc<Self>, net: &Net) -> Result {
        let _one = self.opening.lock();
        let listens = |made: Option<Listening>| -> Result<bool> {
            let mut nets = self.nets.lock();
            let n = nets.iter_mut().find(|n| n.net == *net).ok_or(ENOMEM)?;
            let has = n.listener.is_some() || made.is_some();
            n.listener = made.or(n.listener.take());
            n.listeners += usize::from(has);
            Ok(has)
        };
        // The work that makes one does not wait for those that need `nets`.
        if !listens(None)? {
            listens(Some(Listener::start(self, net)?))?;
        }
        Ok(())
    }

    /// One less listens in `net`. Sleeps.
    pub(crate) fn stop_listening(self: &Arc<Self>, net: &Net) {
        let _one = self.opening.lock();
        let ids = {
            let mut nets = self.nets.lock();
            let Some(n) = nets.iter_mut().find(|n| n.net == *net) else {
                return;
            };
            n.listeners = n.listeners.saturating_sub(1);
            if n.listeners > 0 {
                return;
            }
            n.listener.take()
        };
        // Waits for their handlers, which take `links`.
        drop(ids);
    }

    /// Somebody waits for a window from now on.
    pub(crate) fn watch_waiters(self: &Arc<Self>) {
        let _ = self.queue.enqueue_delayed::<Arc<Host>, WINDOW_WAITERS>(
            self.clone(),
            msecs_to_jiffies(WAITERS_MS),
        );
    }

    /// What the first socket of `net` from `cursor` on tells of itself, and where to go on: those
    /// with a channel first, then those that listen.
    pub(crate) fn next_socket(&self, net: &Net, cursor: u64) -> Option<(u64, zrs_info)> {
        let mut cursor = cursor;
        while let Ok(q) = u32::try_from(cursor) {
            let Some((at, sock)) = self.table.next_from(q) else {
                cursor = LISTENERS;
                break;
            };
            cursor = u64::from(at) + 1;
            if sock.net == *net {
                return Some((cursor, sock.info()));
            }
        }
        let serial = cursor.checked_sub(LISTENERS)?;
        let (serial, sock) = self.ports.lock().listener_from(net, serial)?;
        Some((LISTENERS + serial + 1, sock.info()))
    }

    fn take_unused_net(&self) -> Option<NetUse> {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.sockets == 0)?;
        nets.remove(at).ok()
    }
}

impl WorkItem<WINDOW_WAITERS> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        let mut waiting = false;
        for dev in host.devices.lock().iter() {
            if let Some(pool) = dev.existing_pool().filter(|pool| pool.wants_room()) {
                pool.look_after();
                waiting = true;
            }
        }
        if waiting {
            host.watch_waiters();
        }
    }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, TIMERS> for Host { self.timers }
    impl HasDelayedWork<Self, IDLE_LINKS> for Host { self.idle }
    impl HasDelayedWork<Self, WINDOW_WAITERS> for Host { self.window_waiters }
    impl HasDelayedWork<Self, MAPPED> for Host { self.reclaim }
    impl HasDelayedWork<Self, KEEPALIVE> for Host { self.keepalive }
    impl HasDelayedWork<Self, SWEEP> for Host { self.sweep }
}
