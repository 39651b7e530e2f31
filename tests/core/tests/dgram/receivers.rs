// SPDX-License-Identifier: GPL-2.0

//! Which socket takes a datagram, against the score that UDP computes for each socket
//! (`compute_score()` of net/ipv4/udp.c and net/ipv6/udp.c).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops;

use proptest::prelude::*;
use zrs_core::addr::{Addr, Bound, Ip};
use zrs_core::dgram::receivers::{Place, Receiver, Receivers};
use zrs_core::ports::{Map, NoMemory};

/// A map with memory for `room` entries.
struct Sorted {
    map: BTreeMap<Place, Receiver<u32>>,
    room: usize,
}

impl Map<Place, Receiver<u32>> for Sorted {
    fn get_mut(&mut self, key: &Place) -> Option<&mut Receiver<u32>> {
        self.map.get_mut(key)
    }

    fn first(&self, from: ops::Bound<&Place>) -> Option<(Place, Receiver<u32>)> {
        let mut from = self.map.range((from, ops::Bound::Unbounded));
        from.next().map(|(k, v)| (*k, *v))
    }

    fn insert(&mut self, key: Place, value: Receiver<u32>) -> Result<(), NoMemory> {
        if self.map.len() >= self.room {
            return Err(NoMemory);
        }
        assert!(self.map.insert(key, value).is_none(), "was there already");
        Ok(())
    }

    fn remove(&mut self, key: &Place) {
        self.map.remove(key);
    }
}

fn table(room: usize) -> Receivers<Sorted, u32> {
    Receivers::new(Sorted {
        map: BTreeMap::new(),
        room,
    })
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
    let takes = |t: &Receivers<Sorted, u32>| t.find(NET, to, from, 0);
    let add = |t: &mut Receivers<Sorted, u32>, r| t.insert(NET, PORT, r).unwrap();
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
    let mut t = table(1);
    let (to, peer) = (Addr::new(v4(1), PORT), Addr::new(v4(9), 4000));
    let other = Addr::new(v4(8), 4000);
    let place = t.insert(NET, PORT, receiver(1, v4(1))).unwrap();
    // At the same address that needs no memory.
    let same = Bound::new(v4(1), false);
    let place = t.reconnect(&place, same, Some(peer)).unwrap();
    assert_eq!(t.find(NET, to, peer, 0), Some(1));
    assert_eq!(t.find(NET, to, other, 0), None);
    assert_eq!(t.reconnect(&place, same, None), Ok(place));
    assert_eq!(t.find(NET, to, other, 0), Some(1));
    // Without memory it stays as it was.
    let all = Bound::new(Ip::ANY_V4, false);
    assert_eq!(t.reconnect(&place, all, Some(peer)), Err(NoMemory));
    assert_eq!(t.find(NET, to, other, 0), Some(1));
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
}
