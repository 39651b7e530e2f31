// SPDX-License-Identifier: GPL-2.0

//! The bound ports of each network namespace, and the sockets that listen at them.
//!
//! ZRS ports are separate from TCP's; `proto/ports.rs` has their rules. A namespace is a number
//! here: the sockets that own the ports hold the reference to it.
//!
//! Locks: `Sockets::ports`, a mutex taken after `config`, guards [`Ports`]; no other lock is taken
//! under it. A long search for a free port releases it at intervals.

#![deny(unsafe_code)]

use core::ops;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::{Arc, Mutex};

use super::Sock;
use crate::kern::errno::{EADDRINUSE, EADDRNOTAVAIL};
use crate::kern::net::Net;
use crate::kern::sock::Sk;
use crate::kern::task::{cond_resched, random_u64};
use crate::proto::addr::{Addr, Bound, Ip};
use crate::proto::ports::{
    hash, Binding, Group, Map, NoMemory, PortSpace, Refused, Search, Sharing, Tuple, Users,
};

/// Ports that are tried before the lock is released for other threads.
const TRIES: usize = 256;

/// Counters of tries, each for a share of the destinations (RFC 6056, algorithm 4).
const COUNTERS: usize = 256;

impl<K: Ord + Copy, V: Copy> Map<K, V> for RBTree<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        RBTree::get_mut(self, key)
    }

    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)> {
        let (key, excluded) = match from {
            ops::Bound::Included(key) => (key, false),
            ops::Bound::Excluded(key) => (key, true),
            ops::Bound::Unbounded => return self.iter().next().map(|(k, v)| (*k, *v)),
        };
        let cursor = self.cursor_lower_bound(key)?;
        let (k, v) = match cursor.current() {
            (k, _) if excluded && k == key => cursor.peek_next()?,
            found => found,
        };
        Some((*k, *v))
    }

    fn insert(&mut self, key: K, value: V) -> core::result::Result<(), NoMemory> {
        match self.try_create_and_insert(key, value, GFP_KERNEL) {
            Ok(_) => Ok(()),
            Err(_) => Err(NoMemory),
        }
    }

    fn remove(&mut self, key: &K) {
        let _ = RBTree::remove(self, key);
    }
}

/// The key of a listener: namespace, port, and bound address.
type Place = (usize, u16, Bound);

/// The bound ports of the host.
pub(crate) struct Ports {
    space: PortSpace<RBTree<Group, Users>, RBTree<Tuple, ()>>,
    /// The sockets that listen at an address, each with the serial number of its listen().
    listeners: RBTree<Place, KVVec<(u64, Arc<Sock>)>>,
    /// The same sockets by namespace and serial number.
    in_order: RBTree<(usize, u64), Arc<Sock>>,
    /// The last serial number.
    serial: u64,
    secret: u64,
    counters: [u32; COUNTERS],
}

fn place(net: &Net, binding: &Binding) -> Place {
    (net.id(), binding.addr().port, binding.bound())
}

fn sharing(sk: &Sk) -> Sharing {
    Sharing {
        reuse_addr: sk.reuse_addr(),
        reuse_port: sk.reuse_port().then(|| sk.owner()),
    }
}

fn errno_of(refused: Refused) -> Error {
    match refused {
        Refused::InUse => EADDRINUSE,
        Refused::Connected => EADDRNOTAVAIL,
        Refused::NoMemory => ENOMEM,
    }
}

/// Binds `port` at `bound`, or a free port when it is 0. EADDRINUSE (also when no port is free),
/// ENOMEM. Sleeps.
pub(crate) fn bind(
    ports: &Mutex<Ports>,
    net: &Net,
    bound: Bound,
    port: u16,
    sk: &Sk,
) -> Result<Binding> {
    let sharing = sharing(sk);
    if port != 0 {
        let binding = ports.lock().space.bind(net.id(), bound, port, sharing);
        return binding.map_err(errno_of);
    }
    let (low, high) = sk.port_range();
    let search = Search::for_bind(low, high, random_u64() as u32);
    let found = find(ports, net, search, |ports, port, _| {
        ports.space.bind_free(net.id(), bound, port, sharing)
    });
    found?.ok_or(EADDRINUSE)
}

/// A port for a connection from address `own`, if that is known, to `remote`. The port may be
/// shared with connections to other addresses (`proto/ports.rs`). EADDRNOTAVAIL (no port is free),
/// ENOMEM. Sleeps.
pub(super) fn connect(
    ports: &Mutex<Ports>,
    net: &Net,
    own: Option<Ip>,
    remote: Addr,
    sk: &Sk,
) -> Result<Binding> {
    let sharing = sharing(sk);
    let own = own.filter(|ip| !ip.is_any());
    let from = Addr::new(own.unwrap_or(Ip::ANY), 0);
    let (low, high) = sk.port_range();
    let (search, counter) = {
        let ports = ports.lock();
        let hash = hash(ports.secret, net.id(), from, remote);
        let counter = (hash >> 32) as usize % COUNTERS;
        let tried = ports.counters[counter];
        let search = Search::for_connect(low, high, hash as u32, tried);
        (search, counter)
    };
    let found = find(ports, net, search, |ports, port, tried| {
        let space = &mut ports.space;
        let found = match own {
            Some(ip) => space.connect_at(net.id(), Bound::new(ip, true), port, sharing, remote)?,
            None => space.connect_from(net.id(), port, sharing, remote)?,
        };
        ports.counters[counter] = ports.counters[counter].wrapping_add(tried);
        Ok(found)
    });
    found?.ok_or(EADDRNOTAVAIL)
}

/// The first port of `search` for which `take` succeeds. `take` also gets the number of ports
/// tried.
fn find(
    ports: &Mutex<Ports>,
    net: &Net,
    mut search: Search,
    mut take: impl FnMut(&mut Ports, u16, u32) -> core::result::Result<Binding, Refused>,
) -> Result<Option<Binding>> {
    loop {
        {
            let mut ports = ports.lock();
            for _ in 0..TRIES {
                let Some(port) = search.next() else {
                    return Ok(None);
                };
                if net.reserves(port) {
                    continue;
                }
                match take(&mut ports, port, search.tried()) {
                    Ok(binding) => return Ok(Some(binding)),
                    Err(Refused::NoMemory) => return Err(ENOMEM),
                    Err(_) => {}
                }
            }
        }
        cond_resched();
    }
}

impl Ports {
    /// No port is bound.
    pub(crate) fn new() -> Self {
        Self {
            space: PortSpace::new(RBTree::new(), RBTree::new()),
            listeners: RBTree::new(),
            in_order: RBTree::new(),
            serial: 0,
            secret: random_u64(),
            counters: [0; COUNTERS],
        }
    }

    /// A socket with a port connects to `remote`. EADDRNOTAVAIL (another connection has the same
    /// port and destination), ENOMEM.
    pub(super) fn reconnect(&mut self, binding: &mut Binding, remote: Addr) -> Result {
        self.space.connect(binding, remote).map_err(errno_of)
    }

    /// Undoes [`Self::reconnect`]: the port's connection is closed.
    pub(super) fn disconnect(&mut self, binding: &mut Binding) {
        self.space.disconnect(binding);
    }

    /// A datagram socket is bound to another address from now on. ENOMEM.
    pub(crate) fn readdress(&mut self, binding: &mut Binding, bound: Bound) -> Result {
        self.space.readdress(binding, bound).map_err(errno_of)
    }

    /// Gives a port back.
    pub(crate) fn unbind(&mut self, binding: Binding) {
        self.space.unbind(binding);
    }

    /// `sock` listens at its bound port. EADDRINUSE (the port is shared with other sockets),
    /// ENOMEM.
    pub(super) fn listen(&mut self, sock: &Arc<Sock>, binding: &mut Binding, sk: &Sk) -> Result {
        self.space.listen(binding, sharing(sk)).map_err(errno_of)?;
        let entered = self.enter(sock, place(&sock.net, binding));
        if entered.is_err() {
            self.unlisten(sock, binding);
        }
        entered
    }

    fn enter(&mut self, sock: &Arc<Sock>, place: Place) -> Result {
        if self.listeners.get(&place).is_none() {
            self.listeners
                .try_create_and_insert(place, KVVec::new(), GFP_KERNEL)?;
        }
        self.serial += 1;
        if let Some(here) = self.listeners.get_mut(&place) {
            here.push((self.serial, sock.clone()), GFP_KERNEL)?;
        }
        let numbered = (sock.net.id(), self.serial);
        self.in_order
            .try_create_and_insert(numbered, sock.clone(), GFP_KERNEL)?;
        Ok(())
    }

    /// `sock` stops listening.
    pub(super) fn unlisten(&mut self, sock: &Arc<Sock>, binding: &mut Binding) {
        self.space.unlisten(binding);
        let place = place(&sock.net, binding);
        let Some(here) = self.listeners.get_mut(&place) else {
            return;
        };
        let at = here.iter().position(|(_, s)| Arc::ptr_eq(s, sock));
        let left = at.and_then(|i| here.remove(i).ok());
        if here.is_empty() {
            let _ = self.listeners.remove(&place);
        }
        if let Some((serial, _)) = left {
            let _ = self.in_order.remove(&(sock.net.id(), serial));
        }
    }

    /// The first listener in `net` with a serial number of at least `serial`, and that number.
    /// Serial numbers only grow.
    pub(crate) fn listener_from(&self, net: &Net, serial: u64) -> Option<(u64, Arc<Sock>)> {
        let cursor = self.in_order.cursor_lower_bound(&(net.id(), serial))?;
        let ((of, serial), sock) = cursor.current();
        (*of == net.id()).then(|| (*serial, sock.clone()))
    }

    /// The listener for a connection from `remote` to `local`: one bound to this address; else one
    /// bound to all addresses of its family; else one bound to all addresses. Among several, a hash
    /// selects the same one for the same remote address.
    pub(crate) fn listener(&self, net: &Net, local: Addr, remote: Addr) -> Option<Arc<Sock>> {
        let all = Bound::new(local.ip.any_of_family(), true);
        let places = [Bound::new(local.ip, false), all, Bound::new(Ip::ANY, false)];
        let here = places
            .into_iter()
            .find_map(|bound| self.listeners.get(&(net.id(), local.port, bound)))?;
        let hash = hash(self.secret, net.id(), local, remote) >> 32;
        let index = (hash * here.len() as u64) >> 32;
        here.get(index as usize).map(|(_, sock)| sock.clone())
    }
}
