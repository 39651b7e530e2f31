// SPDX-License-Identifier: GPL-2.0

//! Shared state of all datagram sockets: their ports, and the table by which a datagram finds its
//! socket.

#![deny(unsafe_code)]

use core::ops;

use kernel::alloc::flags::GFP_NOWAIT;
use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNode};
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

use super::DgramSock;
use crate::kern::errno::ECONNREFUSED;
use crate::kern::net::Net;
use crate::kern::task::random_u64;
use crate::proto::addr::{Addr, Bound};
use crate::proto::dgram::destinations::{self, Destinations};
use crate::proto::dgram::receivers::{Entry, Place, Receiver, Receivers, Turn};
use crate::proto::dgram::wire::{PortState, Ports as DgramPorts};
use crate::proto::ports::{hash, Map, NoMemory};
use crate::socket::ports::Ports;
use crate::transport::context::Transport;
use crate::transport::dgram::{Begin, Blocks, Change, DgramReceiver};
use crate::transport::link::Link;

/// How many destinations are remembered.
const DESTINATIONS: usize = 4096;

/// The destinations of sockets that also speak UDP.
type Known = Destinations<KVVec<Option<destinations::Entry>>>;

/// The context of all datagram sockets.
#[pin_data]
pub(crate) struct Dgrams {
    pub(super) transport: Arc<Transport>,
    #[pin]
    pub(super) ports: Mutex<Ports>,
    /// A spinlock: each datagram that arrives takes it, and no thread that is preempted holds it.
    #[pin]
    table: SpinLock<Table>,
    /// How destinations of sockets that also speak UDP are reached.
    #[pin]
    pub(super) destinations: Mutex<Known>,
    pub(super) secret: u64,
    /// The number of the last socket.
    last: Atomic<u64>,
}

/// The bound sockets.
struct Table {
    receivers: Receivers<AtomicTree<Place, Entry<u64>>, AtomicTree<Turn, Place>, u64>,
    /// By number.
    socks: RBTree<u64, Arc<DgramSock>>,
}

/// A tree that is changed under a spinlock.
struct AtomicTree<K, V>(RBTree<K, V>);

impl<K: Ord + Copy, V: Copy> Map<K, V> for AtomicTree<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)> {
        self.0.first(from)
    }

    fn insert(&mut self, key: K, value: V) -> core::result::Result<(), NoMemory> {
        let added = self.0.try_create_and_insert(key, value, GFP_NOWAIT);
        added.map(drop).map_err(|_| NoMemory)
    }

    fn remove(&mut self, key: &K) {
        Map::remove(&mut self.0, key);
    }
}

impl Dgrams {
    /// A context without sockets. Sleeps. ENOMEM.
    pub(crate) fn new(transport: Arc<Transport>) -> Result<Arc<Self>> {
        let table = Table {
            receivers: Receivers::new(AtomicTree(RBTree::new()), AtomicTree(RBTree::new())),
            socks: RBTree::new(),
        };
        let known = KVVec::from_elem(None, DESTINATIONS, GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                transport,
                ports <- new_mutex!(Ports::new(), "zrs_dgrams::ports"),
                table <- new_spinlock!(table, "zrs_dgrams::table"),
                destinations <- new_mutex!(Known::new(known), "zrs_dgrams::destinations"),
                secret: random_u64(),
                last: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// A number for a socket.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// Adds a socket, which is bound to `port`. ENOMEM.
    pub(super) fn add(
        &self,
        sock: &Arc<DgramSock>,
        port: u16,
        bound: Bound,
        reuse_port: Option<u32>,
    ) -> Result<Place> {
        let receiver = Receiver {
            sock: sock.number,
            bound,
            v6: sock.v6,
            remote: None,
            reuse_port,
        };
        let node = RBTreeNode::new(sock.number, sock.clone(), GFP_KERNEL)?;
        let mut table = self.table.lock();
        table.socks.insert(node);
        let added = table.receivers.insert(sock.net.id(), port, receiver);
        added.map_err(|_| {
            let _ = table.socks.remove(&sock.number);
            ENOMEM
        })
    }

    /// Removes a socket.
    pub(super) fn remove(&self, sock: &DgramSock, place: &Place) {
        let gone = {
            let mut table = self.table.lock();
            table.receivers.remove(place);
            table.socks.remove(&sock.number)
        };
        drop(gone);
    }

    /// A socket gets another local address, and a peer, or none. Returns its place. ENOMEM.
    pub(super) fn reconnect(
        &self,
        place: &Place,
        bound: Bound,
        remote: Option<Addr>,
    ) -> Result<Place> {
        let new = self.table.lock().receivers.reconnect(place, bound, remote);
        new.map_err(|_| ENOMEM)
    }

    /// The socket that takes a datagram for `to` from `from`. Does not sleep.
    fn find(&self, net: &Net, to: Addr, from: Addr) -> Option<Arc<DgramSock>> {
        let hash = (hash(self.secret, net.id(), to, from) >> 32) as u32;
        let table = self.table.lock();
        let number = table.receivers.find(net.id(), to, from, hash)?;
        table.socks.get(&number).cloned()
    }

    /// The socket that takes a datagram from the peer of `link`, and both addresses.
    fn find_on(&self, link: &Link, ports: DgramPorts) -> Option<(Arc<DgramSock>, Addr, Addr)> {
        let to = Addr::new(link.local_ip(), ports.dst);
        let from = Addr::new(link.remote_ip(), ports.src);
        let sock = self.find(&link.net, to, from)?;
        // SO_BINDTODEVICE. None for a socket that is closed.
        let sk = sock.inner.lock().sk.clone()?;
        sk.device_allows(to.into(), from.into())
            .then_some((sock, to, from))
    }

    /// The first socket with a number of at least `number`. Does not sleep.
    pub(super) fn sock_from(&self, number: u64) -> Option<Arc<DgramSock>> {
        let table = self.table.lock();
        let cursor = table.socks.cursor_lower_bound(&number)?;
        let (_, sock) = cursor.current();
        Some(sock.clone())
    }
}

impl DgramReceiver for Dgrams {
    fn begin(&self, link: &Arc<Link>, blocks: Blocks<'_>, ports: DgramPorts, total: u32) -> Begin {
        let Some((sock, to, from)) = self.find_on(link, ports) else {
            return Begin::Closed;
        };
        let incoming = sock.begin(link, blocks, from, to.ip, total);
        incoming.map_or(Begin::Dropped, Begin::Kept)
    }

    fn is_open(&self, link: &Link, ports: DgramPorts) -> bool {
        let found = self.find_on(link, ports);
        found.is_some_and(|(sock, ..)| sock.has_udp.load(Relaxed))
    }

    fn answered(&self, link: &Link, ports: DgramPorts, state: PortState) {
        if state == PortState::Closed {
            if let Some((sock, _, from)) = self.find_on(link, ports) {
                sock.not_taken(from, ECONNREFUSED);
            }
        }
        self.port_answered(link, ports.reversed(), state);
    }

    fn changed(&self, link: &Arc<Link>, change: Change) {
        self.link_changed(link, change);
    }

    fn lost(&self, link: &Link, why: Error) {
        let mut next = 0;
        while let Some(sock) = self.sock_from(next) {
            next = sock.number + 1;
            if sock.net == link.net {
                sock.lost_on(link, why);
            }
        }
    }
}
