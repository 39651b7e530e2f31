// SPDX-License-Identifier: GPL-2.0

//! Binding and connecting of ports: TCP's rules, without TIME_WAIT.
//!
//! Sockets that are alike for these rules are counted together, so that the cost of a decision does
//! not depend on the number of sockets: it looks at the kinds of sockets at one port, and at one
//! connection.
//! The sorted maps that hold all this are passed in.

use core::ops;

use super::addr::{Addr, Bound, Ip};

/// No memory for another entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

/// A sorted map.
pub trait Map<K, V> {
    /// The value at `key`, to be changed.
    fn get_mut(&mut self, key: &K) -> Option<&mut V>;
    /// The first entry at or after `from`; after it if it is excluded.
    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)>;
    /// Adds an entry that is not there yet.
    fn insert(&mut self, key: K, value: V) -> Result<(), NoMemory>;
    /// Removes an entry, if it is there.
    fn remove(&mut self, key: &K);
}

/// Why a port cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Another socket has the port and does not share it.
    InUse,
    /// There is such a connection already.
    Connected,
    /// No memory.
    NoMemory,
}

impl From<NoMemory> for Refused {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// The sharing that a socket's program permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    /// SO_REUSEADDR: other sockets with this option may have the port, while none listens there.
    pub reuse_addr: bool,
    /// SO_REUSEPORT: other sockets of this user with this option may have the port.
    pub reuse_port: Option<u32>,
}

/// A group of sockets that are alike: bound in namespace `net` to the same address, with the same
/// sharing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Group {
    net: usize,
    port: u16,
    /// connect() chose the port.
    chosen: bool,
    bound: Bound,
    reuse_addr: bool,
    reuse_port: Option<u32>,
}

impl Group {
    fn new(net: usize, bound: Bound, port: u16, sharing: Sharing, chosen: bool) -> Self {
        Self {
            net,
            port,
            chosen,
            bound,
            reuse_addr: sharing.reuse_addr,
            reuse_port: sharing.reuse_port,
        }
    }

    /// The group that sorts before all others at an address.
    fn lowest(net: usize, port: u16, chosen: bool, ip: Ip) -> Self {
        Self::new(net, Bound::new(ip, false), port, Sharing::default(), chosen)
    }
}

/// How many sockets of a group there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Users {
    idle: u32,
    listening: u32,
}

impl Users {
    fn total(self) -> u32 {
        self.idle.saturating_add(self.listening)
    }
}

/// A connection that was made here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tuple {
    net: usize,
    port: u16,
    remote: Ip,
    remote_port: u16,
    /// `::`: not known.
    ip: Ip,
}

/// A socket's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    group: Group,
    listening: bool,
    remote: Option<Addr>,
}

impl Binding {
    /// The address and the port.
    pub fn addr(&self) -> Addr {
        Addr::new(self.group.bound.ip(), self.group.port)
    }

    /// The address that it is bound to.
    pub fn bound(&self) -> Bound {
        self.group.bound
    }

    /// Whether connect() chose the port, not the program.
    pub fn chosen(&self) -> bool {
        self.group.chosen
    }

    fn tuple(&self, remote: Addr) -> Tuple {
        let ip = self.group.bound.ip();
        Tuple {
            net: self.group.net,
            port: self.group.port,
            remote: remote.ip,
            remote_port: remote.port,
            ip: if ip.is_any() { Ip::ANY } else { ip },
        }
    }
}

/// The ports of all namespaces.
pub struct PortSpace<G, T> {
    groups: G,
    tuples: T,
}

impl<G: Map<Group, Users>, T: Map<Tuple, ()>> PortSpace<G, T> {
    /// No ports are bound. Both maps are empty.
    pub const fn new(groups: G, tuples: T) -> Self {
        Self { groups, tuples }
    }

    /// Whether any group at `port` overlaps `bound` and satisfies `refuses`.
    fn refuses(
        &self,
        net: usize,
        bound: Bound,
        port: u16,
        refuses: impl Fn(&Group, Users) -> bool,
    ) -> bool {
        let places = bound.overlapped();
        // A binding to all addresses looks at all groups.
        let places = places.map_or([Some(None), None, None], |ips| ips.map(|ip| ip.map(Some)));
        [false, true].into_iter().any(|chosen| {
            places.into_iter().flatten().any(|place| {
                let lowest = Group::lowest(net, port, chosen, place.unwrap_or(Ip::ANY));
                let mut next = self.groups.first(ops::Bound::Included(&lowest));
                while let Some((group, users)) = next {
                    let here = (group.net, group.port, group.chosen) == (net, port, chosen);
                    if !here || place.is_some_and(|ip| group.bound.ip() != ip) {
                        return false;
                    }
                    if group.bound.overlaps(bound) && refuses(&group, users) {
                        return true;
                    }
                    next = self.groups.first(ops::Bound::Excluded(&group));
                }
                false
            })
        })
    }

    /// Whether an overlapping socket does not share the port; `but`: one socket of that group is
    /// the caller's.
    fn conflicts(
        &self,
        net: usize,
        bound: Bound,
        port: u16,
        sharing: Sharing,
        but: Option<Group>,
    ) -> bool {
        self.refuses(net, bound, port, |group, users| {
            if but == Some(*group) && users.total() == 1 {
                return false;
            }
            let by_addr = sharing.reuse_addr && group.reuse_addr && users.listening == 0;
            let by_port = sharing.reuse_port.is_some() && sharing.reuse_port == group.reuse_port;
            !by_addr && !by_port
        })
    }

    fn join(&mut self, group: Group) -> Result<Binding, Refused> {
        match self.groups.get_mut(&group) {
            Some(users) => users.idle = users.idle.saturating_add(1),
            None => self.groups.insert(
                group,
                Users {
                    idle: 1,
                    listening: 0,
                },
            )?,
        }
        Ok(Binding {
            group,
            listening: false,
            remote: None,
        })
    }

    fn leave(&mut self, group: Group) {
        let left = self.groups.get_mut(&group).map(|users| {
            users.idle = users.idle.saturating_sub(1);
            users.total()
        });
        if left == Some(0) {
            self.groups.remove(&group);
        }
    }

    /// bind() to `bound` and `port`.
    pub fn bind(
        &mut self,
        net: usize,
        bound: Bound,
        port: u16,
        sharing: Sharing,
    ) -> Result<Binding, Refused> {
        if self.conflicts(net, bound, port, sharing, None) {
            return Err(Refused::InUse);
        }
        self.join(Group::new(net, bound, port, sharing, false))
    }

    /// bind() to `bound` and `port` if the port is unused, whether its sockets would share it or
    /// not: the port is a candidate of bind() to port 0.
    pub fn bind_free(
        &mut self,
        net: usize,
        bound: Bound,
        port: u16,
        sharing: Sharing,
    ) -> Result<Binding, Refused> {
        if self.refuses(net, bound, port, |_, _| true) {
            return Err(Refused::InUse);
        }
        self.join(Group::new(net, bound, port, sharing, false))
    }

    /// The socket is bound to `bound` from now on, whatever others have: connect() of a datagram
    /// socket that was bound to all addresses fixes its address, and dissolving the connection
    /// gives it back.
    pub fn readdress(&mut self, binding: &mut Binding, bound: Bound) -> Result<(), Refused> {
        let old = binding.group;
        let new = Group { bound, ..old };
        if new != old {
            binding.group = self.join(new)?.group;
            self.leave(old);
        }
        Ok(())
    }

    /// listen(): from now on the port is shared by SO_REUSEPORT only, as `sharing` says.
    pub fn listen(&mut self, binding: &mut Binding, sharing: Sharing) -> Result<(), Refused> {
        let old = binding.group;
        if self.conflicts(old.net, old.bound, old.port, sharing, Some(old)) {
            return Err(Refused::InUse);
        }
        let new = Group {
            reuse_addr: sharing.reuse_addr,
            reuse_port: sharing.reuse_port,
            ..old
        };
        if new != old {
            self.join(new)?;
            self.leave(old);
            binding.group = new;
        }
        if let Some(users) = self.groups.get_mut(&new) {
            users.idle = users.idle.saturating_sub(1);
            users.listening = users.listening.saturating_add(1);
        }
        binding.listening = true;
        Ok(())
    }

    /// Listens no more.
    pub fn unlisten(&mut self, binding: &mut Binding) {
        if !core::mem::replace(&mut binding.listening, false) {
            return;
        }
        if let Some(users) = self.groups.get_mut(&binding.group) {
            users.listening = users.listening.saturating_sub(1);
            users.idle = users.idle.saturating_add(1);
        }
    }

    /// Whether there is such a connection, or may be one: an unknown address may be any.
    fn connected(&self, tuple: Tuple) -> bool {
        let is = |ip| {
            let wanted = Tuple { ip, ..tuple };
            let first = self.tuples.first(ops::Bound::Included(&wanted));
            first.is_some_and(|(found, ())| match tuple.ip {
                Ip::ANY => {
                    Tuple {
                        ip: Ip::ANY,
                        ..found
                    } == wanted
                }
                _ => found == wanted,
            })
        };
        is(Ip::ANY) || (tuple.ip != Ip::ANY && is(tuple.ip))
    }

    /// connect() of a socket that has a port.
    pub fn connect(&mut self, binding: &mut Binding, remote: Addr) -> Result<(), Refused> {
        self.disconnect(binding);
        let tuple = binding.tuple(remote);
        if self.connected(tuple) {
            return Err(Refused::Connected);
        }
        self.tuples.insert(tuple, ())?;
        binding.remote = Some(remote);
        Ok(())
    }

    /// connect() of a socket without a port, from a candidate port: one that no program has bound.
    /// The local address is not known yet; only that it is of `remote`'s family.
    pub fn connect_from(
        &mut self,
        net: usize,
        port: u16,
        sharing: Sharing,
        remote: Addr,
    ) -> Result<Binding, Refused> {
        let bound = Bound::new(remote.ip.any_of_family(), true);
        self.connect_at(net, bound, port, sharing, remote)
    }

    /// The same, for a socket that is bound to an address, or to all of them.
    pub fn connect_at(
        &mut self,
        net: usize,
        bound: Bound,
        port: u16,
        sharing: Sharing,
        remote: Addr,
    ) -> Result<Binding, Refused> {
        let lowest = Group::lowest(net, port, false, Ip::ANY);
        let first = self.groups.first(ops::Bound::Included(&lowest));
        if first.is_some_and(|(g, _)| (g.net, g.port, g.chosen) == (net, port, false)) {
            return Err(Refused::InUse);
        }
        let group = Group::new(net, bound, port, sharing, true);
        let mut binding = Binding {
            group,
            listening: false,
            remote: None,
        };
        self.connect(&mut binding, remote)?;
        if let Err(e) = self.join(group) {
            self.disconnect(&mut binding);
            return Err(e);
        }
        Ok(binding)
    }

    /// The connection is over, or was never made. The port stays.
    pub fn disconnect(&mut self, binding: &mut Binding) {
        if let Some(remote) = binding.remote.take() {
            self.tuples.remove(&binding.tuple(remote));
        }
    }

    /// Gives the port back.
    pub fn unbind(&mut self, mut binding: Binding) {
        self.unlisten(&mut binding);
        self.disconnect(&mut binding);
        self.leave(binding.group);
    }
}

/// The ports of a range, each once, in the order of a search: every second port and then those
/// between, cyclically from some start on.
pub struct Search {
    low: u16,
    /// Number of ports at an even distance from `low` (`even`), and of all ports (`all`).
    even: u32,
    all: u32,
    start: u32,
    at: u32,
}

impl Search {
    fn new(low: u16, high: u16) -> Self {
        let above = u32::from(high.saturating_sub(low));
        Self {
            low,
            even: (above / 2).wrapping_add(1),
            all: above.wrapping_add(1),
            start: 0,
            at: 0,
        }
    }

    /// For connect(): the range `low` to `high`, ports at an even distance first. `hash` chooses
    /// the start. `tried` is the number of ports tried in all earlier searches with that hash: this
    /// search continues there, beyond the connections that they have made.
    pub fn for_connect(low: u16, high: u16, hash: u32, tried: u32) -> Self {
        let mut new = Self::new(low, high);
        let start = hash.checked_rem(new.even).unwrap_or(0);
        new.start = start.wrapping_add(tried);
        new
    }

    /// For bind(): the range `low` to `high`, ports at an odd distance first, so that bind() does
    /// not first take the ports that connect() takes first.
    pub fn for_bind(low: u16, high: u16, random: u32) -> Self {
        let mut new = Self::new(low, high);
        let odd = new.all.wrapping_sub(new.even);
        new.start = new.even.wrapping_add(random.checked_rem(odd).unwrap_or(0));
        new
    }

    /// How many have been tried.
    pub fn tried(&self) -> u32 {
        self.at
    }
}

impl Iterator for Search {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        if self.at >= self.all {
            return None;
        }
        let index = self.start.wrapping_add(self.at).checked_rem(self.all)?;
        self.at = self.at.wrapping_add(1);
        let offset = match index.checked_sub(self.even) {
            None => index.wrapping_mul(2),
            Some(odd) => odd.wrapping_mul(2).wrapping_add(1),
        };
        u16::try_from(u32::from(self.low).checked_add(offset)?).ok()
    }
}

/// A number that depends on both ends of a connection and cannot be guessed without `secret`.
pub fn hash(secret: u64, net: usize, local: Addr, remote: Addr) -> u64 {
    let ports = (u64::from(local.port) << 16) | u64::from(remote.port);
    let scopes = (u64::from(local.ip.scope()) << 32) | u64::from(remote.ip.scope());
    let halves = |ip: Ip| {
        let all = u128::from_be_bytes(ip.octets());
        [(all >> 64) as u64, all as u64]
    };
    let ([a, b], [c, d]) = (halves(local.ip), halves(remote.ip));
    // splitmix64's output function.
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    [a, b, c, d, scopes, ports, net as u64]
        .into_iter()
        .fold(mix(secret), |h, word| {
            mix((h ^ word).wrapping_add(secret.rotate_left(32)))
        })
}
