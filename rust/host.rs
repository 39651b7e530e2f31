// SPDX-License-Identifier: GPL-2.0

//! What the module has once: devices, links, channels, ports, and the network namespaces in use.
//!
//! Locks: `nets`, then `links`, then `devices` (mutexes; `lenders` comes after a link's `drain`); `table` is
//! a spinlock below all others.
//! See `socket.rs` for the whole order.

#![deny(unsafe_code)]

mod lent;
mod table;

pub(crate) use table::{Chan, Table};

use core::net::Ipv4Addr;

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem};

use crate::ib::cm::CmId;
use crate::ib::device::Device;
use crate::kern::fault;
use crate::kern::global::Global;
use crate::kern::net::Net;
use crate::kern::task::{now_ns, random_u64};
use crate::kern::work::{self, Queue};
use crate::params;
use crate::proto::channel::Failure;
use crate::socket::{Ports, Sock};
use crate::transport::cm::Listener;
use crate::transport::device::RdmaDev;
use crate::transport::link::{Link, LinkState};
use crate::transport::pool::Pool;
use crate::uapi::zrs_info;

/// How long a link without channels lives on in a namespace without sockets.
const IDLE_MS: u32 = 1000;
/// When a link without channels is looked at again whose last words are not acknowledged, in milliseconds.
const DELIVERED_MS: u32 = 20;

/// How long a link without channels lives on in a namespace with sockets, in nanoseconds.
const UNUSED_NS: u64 = 60_000_000_000;

/// Cursors of ZRS_IOC_SOCK from here on are for sockets that listen.
const LISTENERS: u64 = 1 << 32;

/// How often such a link is looked at.
const UNUSED_MS: u32 = 5000;

/// How long channels without sockets may take to end in good order, in nanoseconds.
const ORPHAN_NS: u64 = 10_000_000_000;

/// How often deadlines are looked at, at least, while there are some.
const DEADLINES_MS: u32 = 1000;

/// How often those who wait for a window are looked at.
const WISHES_MS: u32 = 50;

/// Links that one peer may make.
const ACCEPTED_MAX: usize = 2;

/// Links of one peer at a time, with those that are being taken down: these still have their blocks.
const ACCEPTED_BUSY: usize = 4;

/// The module's one host.
#[pin_data]
pub(crate) struct Host {
    pub(crate) nonce: u64,
    pub(crate) queue: Queue,
    #[pin]
    nets: Mutex<KVec<NetUse>>,
    #[pin]
    links: Mutex<KVec<Arc<Link>>>,
    #[pin]
    pub(crate) devices: Mutex<KVec<Arc<RdmaDev>>>,
    #[pin]
    pub(crate) ports: Mutex<Ports>,
    #[pin]
    pub(crate) table: Table,
    #[pin]
    deadlines: DelayedWork<Host, 0>,
    #[pin]
    idle: DelayedWork<Host, 1>,
    #[pin]
    wishes: DelayedWork<Host, 2>,
    /// Sockets whose programs may have pages that were lent to them.
    #[pin]
    lenders: Mutex<KVec<Arc<Sock>>>,
    #[pin]
    lent: DelayedWork<Host, 3>,
    /// When they are looked at again, in milliseconds.
    lent_ms: Atomic<u32>,
}

/// A network namespace with sockets, or that had some a moment ago.
struct NetUse {
    net: Net,
    sockets: usize,
    listeners: usize,
    /// Takes connections while somebody listens.
    listener: Option<CmId>,
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
                nets <- new_mutex!(KVec::new(), "zrs_host::nets"),
                links <- new_mutex!(KVec::new(), "zrs_host::links"),
                devices <- new_mutex!(KVec::new(), "zrs_host::devices"),
                ports <- new_mutex!(Ports::new(), "zrs_host::ports"),
                table <- table,
                deadlines <- new_delayed_work!("zrs_host::deadlines"),
                idle <- new_delayed_work!("zrs_host::idle"),
                wishes <- new_delayed_work!("zrs_host::wishes"),
                lenders <- new_mutex!(KVec::new(), "zrs_host::lenders"),
                lent <- new_delayed_work!("zrs_host::lent"),
                lent_ms: Atomic::new(lent::LENT_MS),
            }),
            GFP_KERNEL,
        )?;
        HOST.set(host.clone());
        Ok(host)
    }

    /// Ends everything; no socket is open and no device is there any more. Sleeps.
    pub(crate) fn stop(this: &Arc<Self>) {
        let nets = core::mem::take(&mut *this.nets.lock());
        drop(nets);
        loop {
            let Some(link) = this.links.lock().first().cloned() else {
                break;
            };
            link.fail(Failure::LinkLost);
            this.queue.flush();
        }
        this.queue.flush();
        work::cancel_delayed::<Host, 0>(this);
        work::cancel_delayed::<Host, 1>(this);
        work::cancel_delayed::<Host, 2>(this);
        work::cancel_delayed::<Host, 3>(this);
        let lenders = core::mem::take(&mut *this.lenders.lock());
        drop(lenders);
        this.queue.flush();
        HOST.clear();
    }

    /// The links as they are now. ENOMEM.
    pub(crate) fn snapshot(&self) -> Result<KVec<Arc<Link>>> {
        let mut out = KVec::new();
        for link in self.links.lock().iter() {
            out.push(link.clone(), GFP_KERNEL)?;
        }
        Ok(out)
    }

    /// How many links there are.
    pub(crate) fn link_count(&self) -> usize {
        self.links.lock().len()
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

    /// The link to `remote`, made if there is none. `local`: the address to speak from.
    pub(crate) fn link_to(
        this: &Arc<Self>,
        net: &Net,
        local: Option<Ipv4Addr>,
        remote: Ipv4Addr,
    ) -> Result<Arc<Link>> {
        let mut links = this.links.lock();
        let found = links.iter().find(|l| {
            l.net == *net
                && !l.accepted
                && l.remote_ip() == remote
                && l.state() != LinkState::Down
                && local.is_none_or(|ip| l.local_ip() == ip)
        });
        if let Some(link) = found {
            return Ok(link.clone());
        }
        let link = Link::new(this, net, local, remote, false)?;
        links.push(link.clone(), GFP_KERNEL)?;
        drop(links);
        link.start();
        Ok(link)
    }

    /// Whether `remote` may make another link now. One that makes links faster than they can be taken
    /// down would have all blocks of the device, and others none.
    pub(crate) fn may_make_link(&self, net: &Net, local: Ipv4Addr, remote: Ipv4Addr) -> bool {
        let links = self.links.lock();
        let theirs = links.iter().filter(|l| {
            l.accepted && l.net == *net && l.remote_ip() == remote && l.local_ip() == local
        });
        theirs.count() < ACCEPTED_BUSY
    }

    /// A link that the peer has made. Of a peer that makes one after the other, the oldest go: it
    /// was restarted, or it wants more than its share.
    pub(crate) fn add_link(&self, link: &Arc<Link>) -> Result {
        let mut links = self.links.lock();
        let theirs = |l: &&Arc<Link>| {
            l.accepted
                && l.net == link.net
                && l.remote_ip() == link.remote_ip()
                && l.local_ip() == link.local_ip()
                && l.state() != LinkState::Down
        };
        if links.iter().filter(theirs).count() >= ACCEPTED_MAX {
            if let Some(oldest) = links.iter().find(theirs) {
                oldest.lost("its peer has made too many");
            }
        }
        Ok(links.push(link.clone(), GFP_KERNEL)?)
    }

    /// A link to `remote` has ended, or a new one is being made by it: the other links to it may be
    /// to a host that is gone, and nothing would tell that as long as nothing is sent.
    pub(crate) fn probe_links(&self, net: &Net, remote: Ipv4Addr) {
        // Without memory for the list they find out later.
        for link in self.snapshot().into_iter().flatten() {
            if link.net == *net && link.remote_ip() == remote {
                link.probe();
            }
        }
    }

    /// The link is down and done with.
    pub(crate) fn forget_link(&self, link: &Arc<Link>) {
        let gone = {
            let mut links = self.links.lock();
            let at = links.iter().position(|l| Arc::ptr_eq(l, link));
            at.and_then(|i| links.remove(i).ok())
        };
        drop(gone);
    }

    /// Ends the links on a device that goes, and waits until they are gone. Sleeps.
    pub(crate) fn drop_links_of(&self, pool: &Arc<Pool>) {
        let on_it = |l: &&Arc<Link>| l.pool().is_some_and(|p| Arc::ptr_eq(&p, pool));
        loop {
            let Some(link) = self.links.lock().iter().find(on_it).cloned() else {
                break;
            };
            link.fail_loud(Failure::NoDevice, "its device goes");
            self.queue.flush();
        }
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

    /// A link has lost its last channel, or a namespace its last socket.
    pub(crate) fn look_for_idle(self: &Arc<Self>) {
        self.look_for_idle_in(IDLE_MS);
    }

    fn look_for_idle_in(self: &Arc<Self>, ms: u32) {
        let delay = msecs_to_jiffies(ms);
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Host>, 1>(self.clone(), delay);
    }

    /// Somebody listens in `net`: connections are taken. Sleeps.
    pub(crate) fn start_listening(this: &Arc<Self>, net: &Net) -> Result {
        let mut nets = this.nets.lock();
        let n = nets.iter_mut().find(|n| n.net == *net).ok_or(ENOMEM)?;
        if n.listener.is_none() {
            n.listener = Some(Listener::start(this, net)?);
        }
        n.listeners += 1;
        Ok(())
    }

    /// One less listens in `net`. Sleeps.
    pub(crate) fn stop_listening(this: &Arc<Self>, net: &Net) {
        let id = {
            let mut nets = this.nets.lock();
            let Some(n) = nets.iter_mut().find(|n| n.net == *net) else {
                return;
            };
            n.listeners = n.listeners.saturating_sub(1);
            if n.listeners > 0 {
                return;
            }
            n.listener.take()
        };
        // Waits for its handler, which takes `links`: not under a lock.
        drop(id);
    }

    /// A connect() has a deadline from now on.
    pub(crate) fn watch_deadlines(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(params::CONNECT_TIMEOUT_MS.get().min(DEADLINES_MS));
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Host>, 0>(self.clone(), delay);
    }

    /// Somebody waits for a window from now on.
    pub(crate) fn watch_wishes(self: &Arc<Self>) {
        let _ = self
            .queue
            .enqueue_delayed::<Arc<Host>, 2>(self.clone(), msecs_to_jiffies(WISHES_MS));
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
        let index = usize::try_from(cursor.checked_sub(LISTENERS)?).ok()?;
        let (index, sock) = self.ports.lock().listener_from(net, index)?;
        Some((LISTENERS + index as u64 + 1, sock.info()))
    }

    fn check_deadlines(self: &Arc<Self>) {
        let now = now_ns();
        let mut next = u64::MAX;
        let mut q = 0;
        loop {
            let Some((at, sock)) = self.table.next_from(q) else {
                break;
            };
            if let Some(deadline) = Sock::check_deadline(&sock, now) {
                next = next.min(deadline);
            }
            q = at + 1;
        }
        if next != u64::MAX {
            let ms = next.saturating_sub(now) / 1_000_000 + 1;
            // One that comes meanwhile may be earlier.
            let most = params::CONNECT_TIMEOUT_MS.get().min(DEADLINES_MS);
            let delay = msecs_to_jiffies(u32::try_from(ms).unwrap_or(u32::MAX).min(most));
            self.queue.enqueue_or_move::<Host, 0>(self.clone(), delay);
        }
    }

    /// Ends the links of namespaces without sockets, so that a namespace (which a link pins) can
    /// go away.
    fn end_idle(self: &Arc<Self>) {
        let now = now_ns();
        let (mut again, mut unused) = (None, false);
        let Ok(links) = self.snapshot() else {
            // No memory just now.
            self.look_for_idle();
            return;
        };
        for link in links {
            if link.state() == LinkState::Down {
                continue;
            }
            let nets = self.nets.lock();
            let used = nets.iter().find(|n| n.net == link.net);
            let (sockets, since) = used.map_or((0, 0), |n| (n.sockets, n.empty_since));
            drop(nets);
            if sockets > 0 {
                match link.idle_for(now) {
                    Some(idle) if idle > UNUSED_NS && link.has_delivered() => {
                        link.fail(Failure::LinkLost)
                    }
                    Some(_) => unused = true,
                    None => {}
                }
                continue;
            }
            let ended = link.channels() == 0;
            if ended && link.has_delivered() || now.saturating_sub(since) > ORPHAN_NS {
                link.lost("channels do not end");
            } else {
                let ms = if ended { DELIVERED_MS } else { IDLE_MS };
                again = Some(ms.min(again.unwrap_or(IDLE_MS)));
            }
        }
        if let Some(ms) = again {
            self.look_for_idle_in(ms);
            return;
        }
        // The reference to the namespace goes outside of the lock.
        while let Some(gone) = self.take_unused_net() {
            drop(gone);
        }
        if unused {
            let delay = msecs_to_jiffies(UNUSED_MS);
            let _ = self
                .queue
                .enqueue_delayed::<Arc<Host>, 1>(self.clone(), delay);
        }
    }

    fn take_unused_net(&self) -> Option<NetUse> {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.sockets == 0)?;
        nets.remove(at).ok()
    }

    /// A pool has promised all of its blocks: ends a link on it that carries nothing, so that the
    /// next link can be made.
    pub(crate) fn make_way(&self, pool: &Arc<Pool>) {
        let now = now_ns();
        let Ok(links) = self.snapshot() else { return };
        let unused = links
            .into_iter()
            .filter(|l| l.pool().is_some_and(|p| Arc::ptr_eq(&p, pool)))
            .filter_map(|l| Some((l.idle_for(now)?, l)))
            .filter(|(_, l)| l.has_delivered())
            .max_by_key(|(idle, _)| *idle);
        if let Some((_, link)) = unused {
            link.fail(Failure::LinkLost);
        }
    }
}

impl WorkItem<0> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        fault::asynchronous(|| host.check_deadlines());
    }
}

impl WorkItem<1> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        fault::asynchronous(|| host.end_idle());
    }
}

impl WorkItem<2> for Host {
    type Pointer = Arc<Host>;

    fn run(host: Arc<Host>) {
        let mut waiting = false;
        for dev in host.devices.lock().iter() {
            if let Some(pool) = dev.existing_pool().filter(|pool| pool.has_wishes()) {
                pool.look_after();
                waiting = true;
            }
        }
        if waiting {
            host.watch_wishes();
        }
    }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Host { self.deadlines }
    impl HasDelayedWork<Self, 1> for Host { self.idle }
    impl HasDelayedWork<Self, 2> for Host { self.wishes }
    impl HasDelayedWork<Self, 3> for Host { self.lent }
}
