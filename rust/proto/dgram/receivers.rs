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
//!
//! A search looks at a fixed number of places of the sorted maps, however many sockets share a port
//! or are connected there.

use core::marker::PhantomData;
use core::ops;

use super::super::addr::{Addr, Bound, Ip};
use super::super::ports::{Map, NoMemory};

/// Where a socket is in the table. In order, sockets that are alike for the search are together,
/// the last one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    net: usize,
    port: u16,
    bound: Bound,
    remote: Option<Addr>,
    v6: bool,
    /// Less for a later socket.
    age: u64,
}

impl Place {
    /// The first place of those like this one.
    fn lowest(self) -> Self {
        Self { age: 0, ..self }
    }

    /// The group of sockets without a peer at this place, of a user.
    fn group(&self, user: u32) -> Group {
        Group {
            net: self.net,
            port: self.port,
            bound: self.bound,
            v6: self.v6,
            user,
        }
    }
}

/// Sockets that share a port by SO_REUSEPORT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Group {
    net: usize,
    port: u16,
    bound: Bound,
    v6: bool,
    user: u32,
}

/// A number in a group. In order, the highest number of a group is the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Turn {
    group: Group,
    /// The complement of the number.
    inverse: u32,
}

impl Turn {
    fn new(group: Group, number: u32) -> Self {
        let inverse = !number;
        Self { group, inverse }
    }

    fn number(&self) -> u32 {
        !self.inverse
    }
}

/// A socket to be added.
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

/// A socket in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<T> {
    sock: T,
    reuse_port: Option<u32>,
    /// Its number in its group; without a meaning if it is in none.
    number: u32,
}

impl<T> Entry<T> {
    /// The group that the socket takes turns in. Connected ones take none.
    fn group(&self, place: &Place) -> Option<Group> {
        let user = self.reuse_port.filter(|_| place.remote.is_none())?;
        Some(place.group(user))
    }
}

/// The table of sockets `T`. `M` and `G`: its storage, by place, and by number in a group.
pub struct Receivers<M, G, T> {
    map: M,
    /// A group of n sockets has the numbers 0 to n - 1.
    turns: G,
    /// The age of the last socket.
    age: u64,
    _sock: PhantomData<T>,
}

impl<T: Clone, M: Map<Place, Entry<T>>, G: Map<Turn, Place>> Receivers<M, G, T> {
    /// Without sockets; the maps are empty.
    pub const fn new(map: M, turns: G) -> Self {
        Self {
            map,
            turns,
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
            bound: receiver.bound,
            remote: receiver.remote,
            v6: receiver.v6,
            age: self.age.wrapping_sub(1),
        };
        self.insert_at(place, receiver.sock, receiver.reuse_port)?;
        self.age = place.age;
        Ok(place)
    }

    fn insert_at(
        &mut self,
        place: Place,
        sock: T,
        reuse_port: Option<u32>,
    ) -> Result<(), NoMemory> {
        let mut entry = Entry {
            sock,
            reuse_port,
            number: 0,
        };
        let group = entry.group(&place);
        entry.number = group.map_or(0, |group| self.size(group));
        let turn = group.map(|group| Turn::new(group, entry.number));
        self.map.insert(place, entry)?;
        let numbered = turn.map_or(Ok(()), |turn| self.turns.insert(turn, place));
        if numbered.is_err() {
            self.map.remove(&place);
        }
        numbered
    }

    /// Removes a socket.
    pub fn remove(&mut self, place: &Place) {
        let Some(entry) = self.get(place) else {
            return;
        };
        self.map.remove(place);
        let Some(group) = entry.group(place) else {
            return;
        };
        // The last one of the group takes its number.
        let last = Turn::new(group, self.size(group).saturating_sub(1));
        let turn = Turn::new(group, entry.number);
        if let Some(moved) = self.turns.get_mut(&last).copied() {
            if let Some(entry) = self.map.get_mut(&moved) {
                entry.number = turn.number();
            }
            if let Some(at) = self.turns.get_mut(&turn) {
                *at = moved;
            }
        }
        self.turns.remove(&last);
    }

    /// A socket connects to `remote` from `bound`, or is not connected any more, and then is bound
    /// to `bound` again. Returns its new place. Without memory it stays as it was.
    pub fn reconnect(
        &mut self,
        place: &Place,
        bound: Bound,
        remote: Option<Addr>,
    ) -> Result<Place, NoMemory> {
        let Some(entry) = self.get(place) else {
            return Ok(*place);
        };
        // With another address it is the last one there.
        let age = match place.bound == bound {
            true => place.age,
            false => self.age.wrapping_sub(1),
        };
        let new = Place {
            bound,
            remote,
            age,
            ..*place
        };
        if new != *place {
            self.insert_at(new, entry.sock, entry.reuse_port)?;
            self.age = self.age.min(age);
            self.remove(place);
        }
        Ok(new)
    }

    fn get(&self, place: &Place) -> Option<Entry<T>> {
        let (found, entry) = self.map.first(ops::Bound::Included(place))?;
        (found == *place).then_some(entry)
    }

    /// How many sockets a group has.
    fn size(&self, group: Group) -> u32 {
        let highest = Turn::new(group, u32::MAX);
        let last = self.turns.first(ops::Bound::Included(&highest));
        let last = last.filter(|(turn, _)| turn.group == group);
        last.map_or(0, |(turn, _)| turn.number().saturating_add(1))
    }

    /// The best of the sockets at the port and address of `lowest`, which take datagrams for `to`,
    /// and its rank.
    fn best_at(&self, lowest: Place, to: Ip, from: Addr) -> Option<(u32, Place, Entry<T>)> {
        let (there, _) = self.map.first(ops::Bound::Included(&lowest))?;
        let here = |place: &Place| {
            (place.net, place.port, place.bound) == (lowest.net, lowest.port, lowest.bound)
        };
        if !here(&there) {
            return None;
        }
        // Connected before not connected, and then the datagram's own family before the other.
        (0..4).rev().find_map(|rank| {
            let lowest = Place {
                remote: (rank & 2 != 0).then_some(from),
                v6: (rank & 1 != 0) != to.is_v4(),
                ..lowest
            };
            let (place, entry) = self.map.first(ops::Bound::Included(&lowest))?;
            (place.lowest() == lowest).then_some((rank, place, entry))
        })
    }

    /// The best of the sockets that are bound to one of `all`.
    fn best(&self, net: usize, all: &[Bound], to: Addr, from: Addr) -> Option<(Place, Entry<T>)> {
        let found = all.iter().filter_map(|bound| {
            let lowest = Place {
                net,
                port: to.port,
                bound: *bound,
                remote: None,
                v6: false,
                age: 0,
            };
            self.best_at(lowest, to.ip, from)
        });
        let best = found.max_by_key(|(rank, place, _)| (*rank, !place.age));
        best.map(|(_, place, entry)| (place, entry))
    }

    /// The socket that takes a datagram for `to` from `from`, and the report that a datagram from
    /// `to` found `from` closed. `hash` depends on both addresses.
    pub fn find(&self, net: usize, to: Addr, from: Addr, hash: u32) -> Option<T> {
        let other = match to.ip.is_v4() {
            true => Bound::new(Ip::ANY_V4, false),
            false => Bound::new(Ip::ANY, true),
        };
        let wild = [Bound::new(Ip::ANY, false), other];
        let exact = self.best(net, &[Bound::new(to.ip, false)], to, from);
        let (place, entry) = exact.or_else(|| self.best(net, &wild, to, from))?;
        let turn = entry.group(&place).and_then(|group| {
            // Scales the hash to the number of sockets.
            let number = (u64::from(hash).wrapping_mul(self.size(group).into()) >> 32) as u32;
            let turn = Turn::new(group, number);
            let (found, place) = self.turns.first(ops::Bound::Included(&turn))?;
            (found == turn).then(|| self.get(&place)).flatten()
        });
        Some(turn.unwrap_or(entry).sock)
    }
}
