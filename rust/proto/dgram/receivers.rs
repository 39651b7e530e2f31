// SPDX-License-Identifier: GPL-2.0

//! The sockets that take datagrams, and which of them takes one: UDP's rules.
//!
//! A socket takes a datagram if its port and address are the destination's and, once it is
//! connected, its peer is the sender. Of several the best takes it: bound to the very address
//! before bound to all; then a connected one; then one of the datagram's own family; then the one
//! that was bound last. Sockets that share a port by SO_REUSEPORT take turns by a hash of the
//! addresses.
//!
//! Which sockets may have the same port is decided in [`super::super::ports`].

use core::marker::PhantomData;
use core::ops;

use super::super::addr::{Addr, Bound, Ip};
use super::super::ports::{Map, NoMemory};

/// Where a socket is in the table. In order, sockets of a port are together, and those of an
/// address, the last one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    net: usize,
    port: u16,
    ip: Ip,
    /// Less for a later socket.
    age: u64,
}

/// A socket in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver<T> {
    /// The socket.
    pub sock: T,
    /// The local address.
    pub bound: Bound,
    /// A socket of AF_INET6.
    pub v6: bool,
    /// The peer of a connected socket.
    pub remote: Option<Addr>,
    /// SO_REUSEPORT, and the user.
    pub reuse_port: Option<u32>,
}

impl<T> Receiver<T> {
    /// Its rank among those bound to the same address; `None`: it does not take the datagram.
    fn rank(&self, to: Ip, from: Addr) -> Option<u32> {
        let takes = self.bound.takes(to) && self.remote.is_none_or(|remote| remote == from);
        let connected = u32::from(self.remote.is_some());
        let own_family = u32::from(self.v6 != to.is_v4());
        takes.then(|| connected.wrapping_mul(2).wrapping_add(own_family))
    }

    /// Whether it takes turns with sockets like `other`.
    fn is_alike(&self, other: &Self) -> bool {
        let shares = self.reuse_port.is_some() && self.reuse_port == other.reuse_port;
        shares && self.bound == other.bound && self.v6 == other.v6 && self.remote.is_none()
    }
}

/// The table of sockets `T`. `M`: its storage.
pub struct Receivers<M, T> {
    map: M,
    /// The age of the last socket.
    age: u64,
    _sock: PhantomData<T>,
}

impl<T: Clone, M: Map<Place, Receiver<T>>> Receivers<M, T> {
    /// Without sockets; the map is empty.
    pub const fn new(map: M) -> Self {
        Self {
            map,
            age: u64::MAX,
            _sock: PhantomData,
        }
    }

    /// Adds a socket that is bound to `port`.
    pub fn insert(
        &mut self,
        net: usize,
        port: u16,
        receiver: Receiver<T>,
    ) -> Result<Place, NoMemory> {
        let place = Place {
            net,
            port,
            ip: receiver.bound.ip(),
            age: self.age.wrapping_sub(1),
        };
        self.map.insert(place, receiver)?;
        self.age = place.age;
        Ok(place)
    }

    /// Removes a socket.
    pub fn remove(&mut self, place: &Place) {
        self.map.remove(place);
    }

    /// A socket connects to `remote` from `bound`, or is not connected any more, and then is bound
    /// to `bound` again. Returns its new place. Without memory it stays as it was.
    pub fn reconnect(
        &mut self,
        place: &Place,
        bound: Bound,
        remote: Option<Addr>,
    ) -> Result<Place, NoMemory> {
        let Some(receiver) = self.map.get_mut(place) else {
            return Ok(*place);
        };
        if receiver.bound == bound {
            receiver.remote = remote;
            return Ok(*place);
        }
        let receiver = Receiver {
            bound,
            remote,
            ..receiver.clone()
        };
        let new = self.insert(place.net, place.port, receiver)?;
        self.map.remove(place);
        Ok(new)
    }

    /// The sockets of `port` that are bound to `ip`, with their ages; the last one first.
    fn at(&self, net: usize, port: u16, ip: Ip) -> impl Iterator<Item = (u64, Receiver<T>)> + '_ {
        let mut from = ops::Bound::Included(Place {
            net,
            port,
            ip,
            age: 0,
        });
        core::iter::from_fn(move || {
            let (place, receiver) = self.map.first(from.as_ref())?;
            from = ops::Bound::Excluded(place);
            let here = (place.net, place.port, place.ip) == (net, port, ip);
            here.then_some((place.age, receiver))
        })
    }

    /// The best of the sockets that are bound to one of `ips`.
    fn best(&self, net: usize, ips: &[Ip], to: Addr, from: Addr) -> Option<Receiver<T>> {
        let all = ips.iter().flat_map(|ip| self.at(net, to.port, *ip));
        let ranked = all.filter_map(|(age, receiver)| {
            let rank = receiver.rank(to.ip, from)?;
            Some(((rank, !age), receiver))
        });
        let best = ranked.max_by_key(|(rank, _)| *rank);
        best.map(|(_, receiver)| receiver)
    }

    /// The socket that takes a datagram for `to` from `from`, and the report that a datagram from
    /// `to` found `from` closed. `hash` depends on both addresses.
    pub fn find(&self, net: usize, to: Addr, from: Addr, hash: u32) -> Option<T> {
        let wild = [Ip::ANY, Ip::ANY_V4];
        let wild = wild.get(..if to.ip.is_v4() { 2 } else { 1 })?;
        let exact = self.best(net, &[to.ip], to, from);
        let receiver = exact.or_else(|| self.best(net, wild, to, from))?;
        if receiver.reuse_port.is_none() || receiver.remote.is_some() {
            return Some(receiver.sock);
        }
        let ip = receiver.bound.ip();
        let alike = || {
            let all = self.at(net, to.port, ip).map(|(_, other)| other);
            all.filter(|other| other.is_alike(&receiver))
        };
        let count = alike().count() as u64;
        // Scales the hash to the number of sockets.
        let chosen = (u64::from(hash).wrapping_mul(count) >> 32) as usize;
        let turn = alike().nth(chosen);
        Some(turn.unwrap_or(receiver).sock)
    }
}
