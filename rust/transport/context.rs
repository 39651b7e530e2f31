// SPDX-License-Identifier: GPL-2.0

//! Shared state of the links of all devices: lists of links and network namespaces, the connection
//! table, timers.
//!
//! Locks: `opening`, then `nets`, then `links` (mutexes), then those of `pool/`. The mutexes
//! `timers` and `keepalive_at` are leaves. The connection table is a spinlock below all others. See
//! `socket.rs` for the whole order.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork};

use super::cm::Listener;
use super::conn_table::Table;
use super::connects::ConnectRequest;
use super::dgram::DgramReceiver;
use super::link::Link;
use super::net_counts::NetCounts;
use super::peers::Peers;
use super::timers::TimerList;
use crate::kern::net::Net;
use crate::kern::task::{now_ns, random_u64};
use crate::kern::work::{self, Queue};
use crate::params;
use crate::pool::context::Pools;
use crate::pool::quota::{Quotas, Room};
use crate::proto::addr::Ip;
use crate::proto::channel::Failure;
use crate::proto::wire::Refusal;
use crate::qp_link::Listening;

/// Work item: checks the timers of connections.
pub(super) const TIMERS: u64 = 0;
/// Work item: ends links without connections.
pub(super) const IDLE_LINKS: u64 = 1;
/// Work item: checks whether peers are alive.
pub(super) const KEEPALIVE: u64 = 2;
/// Work item: parks idle channels of the connection table.
pub(super) const SWEEP: u64 = 3;

/// Answers a CONNECT of a peer.
pub(crate) trait Acceptor: Send + Sync {
    /// `request` arrived on `link`. Makes the connection, or returns why not. Sleeps.
    fn connect_request(
        self: Arc<Self>,
        link: &Arc<Link>,
        request: &ConnectRequest,
    ) -> Result<(), Refusal>;

    /// Host `ip` has made a link: it has ZRS. Sleeps.
    fn peer_has_zrs(&self, net: &Net, ip: Ip);

    /// The ways to other hosts have changed. Sleeps.
    fn ways_changed(&self);
}

/// The context of all links.
#[pin_data]
pub(crate) struct Transport {
    pub(super) nonce: u64,
    pub(crate) queue: Arc<Queue>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) table: Arc<Table>,
    pub(crate) peers: Arc<Peers>,
    #[pin]
    pub(crate) counts: NetCounts,
    /// `None` once the module is being unloaded. Without an acceptor every CONNECT is refused.
    #[pin]
    acceptor: Mutex<Option<Arc<dyn Acceptor>>>,
    /// `None` once the module is being unloaded. Without a receiver no port takes datagrams.
    #[pin]
    dgram_receiver: Mutex<Option<Arc<dyn DgramReceiver>>>,
    #[pin]
    opening: Mutex<()>,
    #[pin]
    pub(super) nets: Mutex<KVec<NetUse>>,
    /// When a group of links last grew, in nanoseconds of the monotonic clock.
    pub(super) grown: Atomic<u64>,
    #[pin]
    pub(super) links: Mutex<KVec<Arc<Link>>>,
    /// Links that datagrams have made, by the user and namespace of the sender.
    #[pin]
    pub(super) dgram_links: Quotas,
    #[pin]
    pub(super) timers: Mutex<TimerList>,
    #[pin]
    timers_work: DelayedWork<Transport, TIMERS>,
    #[pin]
    idle: DelayedWork<Transport, IDLE_LINKS>,
    /// When links without channels are checked next, in nanoseconds of the monotonic clock;
    /// `u64::MAX`: never.
    pub(super) idle_at: Atomic<u64>,
    /// When links are checked next, in nanoseconds of the monotonic clock; `u64::MAX`: never.
    #[pin]
    pub(super) keepalive_at: Mutex<u64>,
    #[pin]
    keepalive: DelayedWork<Transport, KEEPALIVE>,
    #[pin]
    sweep: DelayedWork<Transport, SWEEP>,
}

/// A network namespace that has sockets, or had some a moment ago.
pub(super) struct NetUse {
    pub(super) net: Net,
    pub(super) sockets: usize,
    listeners: usize,
    /// The connection manager's listeners, while a socket listens.
    listener: Option<Listening>,
    /// When the last socket was closed.
    pub(super) empty_since: u64,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, TIMERS> for Transport { self.timers_work }
    impl HasDelayedWork<Self, IDLE_LINKS> for Transport { self.idle }
    impl HasDelayedWork<Self, KEEPALIVE> for Transport { self.keepalive }
    impl HasDelayedWork<Self, SWEEP> for Transport { self.sweep }
}

impl Transport {
    /// A context without links. Sleeps. ENOMEM.
    pub(crate) fn new(
        queue: Arc<Queue>,
        pools: Arc<Pools>,
        table: Arc<Table>,
        peers: Arc<Peers>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                nonce: random_u64(),
                queue,
                pools,
                table,
                peers,
                counts <- NetCounts::new(),
                acceptor <- new_mutex!(None, "zrs_transport::acceptor"),
                dgram_receiver <- new_mutex!(None, "zrs_transport::dgram_receiver"),
                opening <- new_mutex!((), "zrs_transport::opening"),
                nets <- new_mutex!(KVec::new(), "zrs_transport::nets"),
                grown: Atomic::new(0),
                links <- new_mutex!(KVec::new(), "zrs_transport::links"),
                dgram_links <- Quotas::new(Room {
                    all: params::DGRAM_LINKS.get(),
                    users: params::DGRAM_LINKS.get(),
                }),
                timers <- new_mutex!(TimerList::new(), "zrs_transport::timers"),
                timers_work <- new_delayed_work!("zrs_transport::timers_work"),
                idle <- new_delayed_work!("zrs_transport::idle"),
                idle_at: Atomic::new(u64::MAX),
                keepalive_at <- new_mutex!(u64::MAX, "zrs_transport::keepalive_at"),
                keepalive <- new_delayed_work!("zrs_transport::keepalive"),
                sweep <- new_delayed_work!("zrs_transport::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// The module is being unloaded: no socket is open and there is no device any more. Sleeps.
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
        work::cancel_delayed::<Self, TIMERS>(self);
        work::cancel_delayed::<Self, IDLE_LINKS>(self);
        work::cancel_delayed::<Self, KEEPALIVE>(self);
        work::cancel_delayed::<Self, SWEEP>(self);
        let acceptor = self.acceptor.lock().take();
        drop(acceptor);
        let receiver = self.dgram_receiver.lock().take();
        drop(receiver);
    }

    /// The parameters of the shares of users and network namespaces have changed.
    pub(crate) fn set_shares(&self) {
        self.table.set_shares();
        self.dgram_links.set_shares();
        self.pools.set_shares();
    }

    /// `acceptor` answers CONNECTs from now on.
    pub(crate) fn set_acceptor(&self, acceptor: Arc<dyn Acceptor>) {
        *self.acceptor.lock() = Some(acceptor);
    }

    /// `receiver` takes the datagrams of links that are made from now on.
    pub(crate) fn set_dgram_receiver(&self, receiver: Arc<dyn DgramReceiver>) {
        *self.dgram_receiver.lock() = Some(receiver);
    }

    /// The receiver of the datagrams of a new link.
    pub(super) fn dgram_receiver(&self) -> Option<Arc<dyn DgramReceiver>> {
        self.dgram_receiver.lock().clone()
    }

    /// A CONNECT arrived on `link`. Sleeps.
    pub(super) fn connect_request(
        &self,
        link: &Arc<Link>,
        request: &ConnectRequest,
    ) -> Result<(), Refusal> {
        let acceptor = self.acceptor.lock().clone();
        match acceptor {
            Some(acceptor) => acceptor.connect_request(link, request),
            None => Err(Refusal::NoListener),
        }
    }

    /// Host `ip` has made a link. Sleeps.
    pub(super) fn peer_has_zrs(&self, net: &Net, ip: Ip) {
        let acceptor = self.acceptor.lock().clone();
        if let Some(acceptor) = acceptor {
            acceptor.peer_has_zrs(net, ip);
        }
    }

    /// A device or an address has changed: hosts that could not be reached may be now. Sleeps.
    pub(crate) fn ways_changed(&self) {
        let acceptor = self.acceptor.lock().clone();
        if let Some(acceptor) = acceptor {
            acceptor.ways_changed();
        }
    }

    /// A socket is made in `net`. ENOMEM, but only for the first socket of a namespace.
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

    /// How many sockets are open in `net`.
    pub(crate) fn sockets_in(&self, net: &Net) -> usize {
        let nets = self.nets.lock();
        let used = nets.iter().find(|n| n.net == *net);
        used.map_or(0, |n| n.sockets)
    }

    /// A socket starts to listen in `net`. The first one makes the connection manager's listeners.
    /// Sleeps.
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
        // Called without `nets`: it waits for a work item, and other threads need `nets` at the
        // same time.
        if !listens(None)? {
            listens(Some(Listener::start(self, net)?))?;
        }
        Ok(())
    }

    /// A socket in `net` stops listening. Sleeps.
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
        // Dropping them waits for their handlers, which take `links`.
        drop(ids);
    }

    pub(super) fn take_unused_net(&self) -> Option<NetUse> {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.sockets == 0)?;
        nets.remove(at).ok()
    }
}
