// SPDX-License-Identifier: GPL-2.0

//! Which socket takes a datagram, against the score that UDP computes for each socket
//! (`compute_score()` of net/ipv4/udp.c and net/ipv6/udp.c).

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops;
use std::rc::Rc;

use proptest::prelude::*;
use zrs_core::addr::{Addr, Bound, Ip};
use zrs_core::dgram::receivers::{Entry, Place, Receiver, Receivers, Turn};
use zrs_core::ports::{Map, NoMemory};

/// A key, each comparison of which is counted.
struct Counted<K> {
    key: K,
    count: Rc<Cell<u64>>,
}

impl<K: Ord> Ord for Counted<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.count.set(self.count.get() + 1);
        self.key.cmp(&other.key)
    }
}

impl<K: Ord> PartialOrd for Counted<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> Eq for Counted<K> {}

impl<K: Ord> PartialEq for Counted<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

/// A map with memory for `room` entries.
struct Sorted<K, V> {
    map: BTreeMap<Counted<K>, V>,
    room: usize,
    compared: Rc<Cell<u64>>,
}

impl<K: Ord + Copy, V> Sorted<K, V> {
    fn new(room: usize, compared: &Rc<Cell<u64>>) -> Self {
        Self {
            map: BTreeMap::new(),
            room,
            compared: compared.clone(),
        }
    }

    fn key(&self, key: &K) -> Counted<K> {
        Counted {
            key: *key,
            count: self.compared.clone(),
        }
    }
}

impl<K: Ord + Copy, V: Copy> Map<K, V> for Sorted<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let key = self.key(key);
        self.map.get_mut(&key)
    }

    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)> {
        let from = from.map(|key| self.key(key));
        let mut from = self.map.range((from, ops::Bound::Unbounded));
        from.next().map(|(k, v)| (k.key, *v))
    }

    fn insert(&mut self, key: K, value: V) -> Result<(), NoMemory> {
        if self.map.len() >= self.room {
            return Err(NoMemory);
        }
        let key = self.key(&key);
        assert!(self.map.insert(key, value).is_none(), "was there already");
        Ok(())
    }

    fn remove(&mut self, key: &K) {
        let key = self.key(key);
        assert!(self.map.remove(&key).is_some(), "was not there");
    }
}

type Table = Receivers<Sorted<Place, Entry<u32>>, Sorted<Turn, Place>, u32>;

fn table(room: usize) -> Table {
    counting(room, room).0
}

/// A table, and its count of comparisons.
fn counting(room: usize, turns: usize) -> (Table, Rc<Cell<u64>>) {
    let compared = Rc::default();
    let map = Sorted::new(room, &compared);
    (Receivers::new(map, Sorted::new(turns, &compared)), compared)
}

fn v4(n: u8) -> Ip {
    Ipv4Addr::new(10, 0, 0, n).into()
}

fn v6(n: u16) -> Ip {
    Ip::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n), 0)
}

fn receiver(sock: u32, ip: Ip) -> Receiver<u32> {
    Receiver {
        sock,
        bound: Bound::new(ip, false),
        v6: !ip.is_v4(),
        remote: None,
        reuse_port: None,
    }
}

const NET: usize = 3;
const PORT: u16 = 53;

// rows: Z7
#[test]
fn address_then_peer_then_family_then_the_last() {
    let mut t = table(20);
    let (to, from) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    let takes = |t: &Table| t.find(NET, to, from, 0);
    let add = |t: &mut Table, r| t.insert(NET, PORT, r).unwrap();
    assert_eq!(takes(&t), None);
    add(&mut t, receiver(1, Ip::ANY));
    assert_eq!(takes(&t), Some(1));
    add(&mut t, receiver(2, Ip::ANY_V4));
    assert_eq!(takes(&t), Some(2), "its own family");
    add(&mut t, receiver(3, Ip::ANY));
    assert_eq!(takes(&t), Some(2));
    add(&mut t, receiver(4, Ip::ANY_V4));
    assert_eq!(takes(&t), Some(4), "the last one");
    add(&mut t, receiver(5, v4(1)));
    assert_eq!(takes(&t), Some(5), "the very address");
    let connected = Receiver {
        remote: Some(from),
        ..receiver(6, v4(1))
    };
    let place = add(&mut t, connected);
    add(&mut t, receiver(7, v4(1)));
    assert_eq!(takes(&t), Some(6), "connected");
    let others = Addr::new(v4(9), 4001);
    assert_eq!(t.find(NET, to, others, 0), Some(7), "connected to another");
    t.remove(&place);
    assert_eq!(takes(&t), Some(7));
    // Elsewhere.
    assert_eq!(t.find(NET + 1, to, from, 0), None);
    assert_eq!(t.find(NET, Addr::new(v4(1), PORT + 1), from, 0), None);
    let elsewhere = Addr::new(v4(2), PORT);
    assert_eq!(t.find(NET, elsewhere, from, 0), Some(4));
}

// rows: Z7
#[test]
fn connecting_and_dissolving() {
    let mut t = table(2);
    let (to, peer) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    let other = Addr::new(v4(8), 4000);
    let place = t.insert(NET, PORT, receiver(1, v4(1))).unwrap();
    let same = Bound::new(v4(1), false);
    let there = t.reconnect(&place, same, Some(peer)).unwrap();
    assert_eq!(t.find(NET, to, peer, 0), Some(1));
    assert_eq!(t.find(NET, to, other, 0), None);
    assert_eq!(t.reconnect(&there, same, Some(peer)), Ok(there));
    assert_eq!(t.reconnect(&there, same, None), Ok(place));
    assert_eq!(t.find(NET, to, other, 0), Some(1));
    // Without memory it stays as it was.
    let mut t = table(1);
    let place = t.insert(NET, PORT, receiver(1, v4(1))).unwrap();
    let all = Bound::new(Ip::ANY_V4, false);
    for bound in [same, all] {
        assert_eq!(t.reconnect(&place, bound, Some(peer)), Err(NoMemory));
        assert_eq!(t.find(NET, to, other, 0), Some(1));
    }
    let mut t = table(2);
    let place = t.insert(NET, PORT, receiver(1, Ip::ANY_V4)).unwrap();
    let there = t.reconnect(&place, same, Some(peer)).unwrap();
    let elsewhere = Addr::new(v4(2), PORT);
    assert_eq!(t.find(NET, elsewhere, peer, 0), None);
    assert_eq!(t.find(NET, to, peer, 0), Some(1));
    let back = t.reconnect(&there, all, None).unwrap();
    assert_eq!(t.find(NET, elsewhere, peer, 0), Some(1));
    t.remove(&back);
    assert_eq!(t.find(NET, to, peer, 0), None);
    assert_eq!(t.insert(NET, PORT, receiver(1, v4(1))).map(|_| ()), Ok(()));
}

// rows: Z7
#[test]
fn sockets_that_share_a_port_take_turns() {
    let mut t = table(100);
    let (to, from) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    for sock in 0..8 {
        let shared = Receiver {
            reuse_port: Some(1000),
            ..receiver(sock, v4(1))
        };
        t.insert(NET, PORT, shared).unwrap();
        // Those of another user, or of another address, are apart.
        let other = Receiver {
            reuse_port: Some(1001),
            ..receiver(100 + sock, v4(2))
        };
        t.insert(NET, PORT, other).unwrap();
    }
    let mut count = [0; 8];
    for n in 0..800_u32 {
        let hash = n.wrapping_mul(0x9e37_79b9);
        let sock = t.find(NET, to, from, hash).unwrap();
        assert_eq!(t.find(NET, to, from, hash), Some(sock), "always the same");
        count[sock as usize] += 1;
    }
    assert!(count.iter().all(|n| (80..=120).contains(n)), "{count:?}");
}

fn sharing(sock: u32, ip: Ip) -> Receiver<u32> {
    Receiver {
        reuse_port: Some(1000),
        ..receiver(sock, ip)
    }
}

// rows: Z7
#[test]
fn turns_are_even_and_stay_with_the_flow() {
    const STEP: usize = 1 << 16;
    let (to, from) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    for size in [1, 2, 3, 7, 100, 1000] {
        let mut t = table(2000);
        for sock in 0..size {
            t.insert(NET, PORT, sharing(sock, v4(1))).unwrap();
        }
        let takes = |t: &Table, hash: usize| t.find(NET, to, from, hash as u32).unwrap();
        let hashes = || (0..1_usize << 32).step_by(STEP);
        let seen: Vec<u32> = hashes().map(|hash| takes(&t, hash)).collect();
        // Other sockets of the port, even those that share it, change nothing.
        t.insert(NET, PORT, sharing(9999, v4(2))).unwrap();
        let theirs = Receiver {
            remote: Some(Addr::new(v4(8), 1)),
            ..sharing(9998, v4(1))
        };
        let place = t.insert(NET, PORT, theirs).unwrap();
        t.remove(&place);
        let again: Vec<u32> = hashes().map(|hash| takes(&t, hash)).collect();
        assert_eq!(seen, again);
        let mut count = vec![0_usize; size as usize];
        seen.iter().for_each(|sock| count[*sock as usize] += 1);
        let even = seen.len() / size as usize;
        assert!(count.iter().all(|n| n.abs_diff(even) <= 1), "{count:?}");
    }
}

// rows: Z7
#[test]
fn without_memory_for_a_turn_it_is_not_there() {
    let (mut t, _) = counting(10, 1);
    let (to, from) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    let first = t.insert(NET, PORT, sharing(1, v4(1))).unwrap();
    assert_eq!(t.insert(NET, PORT, sharing(2, v4(1))), Err(NoMemory));
    assert_eq!(t.find(NET, to, from, u32::MAX), Some(1));
    t.remove(&first);
    assert_eq!(t.find(NET, to, from, 0), None);
    assert!(t.insert(NET, PORT, sharing(3, v4(1))).is_ok());
    assert_eq!(t.find(NET, to, from, u32::MAX), Some(3));
}

/// The most comparisons of a search among `size` sockets of a port, as `make` makes them.
fn cost(size: u32, make: fn(u32) -> Receiver<u32>) -> u64 {
    let (mut t, compared) = counting(usize::MAX, usize::MAX);
    for sock in 0..size {
        t.insert(NET, PORT, make(sock)).unwrap();
    }
    let (to, from) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    let costs = (0..100_u32).map(|n| {
        let before = compared.get();
        assert!(t.find(NET, to, from, n.wrapping_mul(0x9e37_79b9)).is_some());
        compared.get() - before
    });
    costs.max().unwrap()
}

// rows: Z7
#[test]
fn a_search_is_logarithmic() {
    let own = |sock| sharing(sock, v4(1));
    let all = |sock| sharing(sock, Ip::ANY);
    let connected = |sock: u32| Receiver {
        remote: (sock != 7).then(|| Addr::new(v4(8), sock as u16)),
        ..sharing(sock, v4(1))
    };
    for make in [own, all, connected] {
        let few = cost(64, make);
        for size in [1 << 10, 1 << 12, 1 << 14] {
            let many = cost(size, make);
            // Twice as many for the square of the number; a node of the map has up to 11 keys.
            let most = few * u64::from(size.ilog2()) / 6 + 100;
            assert!(many <= most, "{size} sockets: {many}, 64: {few}");
        }
    }
}

#[derive(Clone, Debug)]
struct Sock {
    ip: Ip,
    only_v6: bool,
    v6: bool,
    remote: Option<Addr>,
    port: u16,
}

/// UDP's score for a socket; `None`: it does not take the datagram.
fn score(s: &Sock, exact: bool, to: Addr, from: Addr) -> Option<u32> {
    if s.port != to.port || (!to.ip.is_v4() && !s.v6) || (to.ip.is_v4() && s.only_v6) {
        return None;
    }
    let all = if to.ip.is_v4() {
        s.ip == Ip::ANY_V4 || s.ip == Ip::ANY
    } else {
        s.ip == Ip::ANY
    };
    let here = if exact { s.ip == to.ip } else { all };
    if !here {
        return None;
    }
    let mut score = if to.ip.is_v4() && !s.v6 { 2 } else { 1 };
    if let Some(remote) = s.remote {
        if remote != from {
            return None;
        }
        score += 8;
    }
    Some(score)
}

fn udp_takes(socks: &[Sock], to: Addr, from: Addr) -> Option<u32> {
    for exact in [true, false] {
        let mut best = None;
        // New sockets are at the head of UDP's lists.
        for (n, s) in socks.iter().enumerate().rev() {
            let score = score(s, exact, to, from);
            if score.is_some_and(|s| best.is_none_or(|(most, _)| s > most)) {
                best = score.map(|s| (s, n as u32));
            }
        }
        if let Some((_, n)) = best {
            return Some(n);
        }
    }
    None
}

fn any_ip() -> impl Strategy<Value = Ip> {
    prop_oneof![Just(v4(1)), Just(v4(2)), Just(v6(1)), Just(v6(2))]
}

prop_compose! {
    fn any_sock()(
        ip in prop_oneof![any_ip(), Just(Ip::ANY), Just(Ip::ANY_V4)],
        only in any::<bool>(),
        mapped in any::<bool>(),
        remote in prop_oneof![Just(None), (any_ip(), 1..3_u16).prop_map(Some)],
        port in prop_oneof![3 => Just(PORT), 1 => Just(PORT + 1)],
    ) -> Sock {
        Sock {
            ip,
            only_v6: only && ip == Ip::ANY,
            // A socket of AF_INET6 may be bound to a v4-mapped address.
            v6: !ip.is_v4() || mapped,
            remote: remote.map(|(ip, port)| Addr::new(ip, port)),
            port,
        }
    }
}

proptest! {
    // rows: Z7 B6
    #[test]
    fn as_udp_chooses(
        socks in proptest::collection::vec(any_sock(), 0..12),
        datagrams in proptest::collection::vec((any_ip(), any_ip(), 1..3_u16, any::<u32>()), 1..12),
    ) {
        let mut t = table(100);
        for (n, s) in (0..).zip(&socks) {
            let receiver = Receiver {
                sock: n,
                bound: Bound::new(s.ip, s.only_v6),
                v6: s.v6,
                remote: s.remote,
                reuse_port: None,
            };
            t.insert(NET, s.port, receiver).unwrap();
        }
        for (to, from, port, hash) in datagrams {
            let (to, from) = (Addr::new(to, PORT), Addr::new(from, port));
            prop_assert_eq!(t.find(NET, to, from, hash), udp_takes(&socks, to, from));
        }
    }

    /// Sockets of two users and two addresses come, go, connect and dissolve; the model is a list of
    /// each group, in which the last one takes the place of one that leaves.
    // rows: Z7
    #[test]
    fn turns_against_lists(
        ops in proptest::collection::vec((0..5_u8, any::<u32>(), 0..2_u32, 1..3_u8), 1..60),
    ) {
        let from = Addr::new(v4(9), 4000);
        let peer = Addr::new(v4(8), 4000);
        let mut t = table(100);
        let mut socks: Vec<(u32, Place, (u8, u32), bool)> = Vec::new();
        let mut groups: BTreeMap<(u8, u32), Vec<u32>> = BTreeMap::new();
        for (n, (op, which, user, ip)) in (0_u32..).zip(ops) {
            let at = which as usize % socks.len().max(1);
            if op < 3 || socks.is_empty() {
                // One user for each address, as with UDP.
                let user = user.min(u32::from(ip) - 1);
                let r = Receiver { reuse_port: Some(user), ..receiver(n, v4(ip)) };
                socks.push((n, t.insert(NET, PORT, r).unwrap(), (ip, user), false));
                groups.entry((ip, user)).or_default().push(n);
                continue;
            }
            let (sock, place, group, connected) = socks[at];
            let members = groups.get_mut(&group).unwrap();
            if !connected {
                members.swap_remove(members.iter().position(|s| *s == sock).unwrap());
            }
            if op == 3 {
                t.remove(&place);
                socks.swap_remove(at);
            } else {
                let remote = (!connected).then_some(peer);
                let bound = Bound::new(v4(group.0), false);
                let place = t.reconnect(&place, bound, remote).unwrap();
                socks[at] = (sock, place, group, !connected);
                if connected {
                    members.push(sock);
                }
            }
            for ip in 1..3 {
                let to = Addr::new(v4(ip), PORT);
                // The group of the last one that is not connected.
                let last = socks.iter().filter(|s| s.2.0 == ip && !s.3).max_by_key(|s| s.0);
                let members = last.map_or(&[][..], |s| &groups[&s.2]);
                for hash in [0, which, u32::MAX] {
                    let number = (u64::from(hash) * members.len() as u64) >> 32;
                    let expected = members.get(number as usize).copied();
                    prop_assert_eq!(t.find(NET, to, from, hash), expected);
                }
            }
        }
    }
}
