// SPDX-License-Identifier: GPL-2.0

//! Ports of datagram sockets: the same rules as for streams, but that nothing listens, and
//! connecting changes the address of a socket that was bound to all addresses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops;

use zrs_core::addr::{Bound, Ip};
use zrs_core::ports::{Group, Map, NoMemory, PortSpace, Refused, Sharing, Tuple, Users};

struct Sorted<K, V>(BTreeMap<K, V>);

impl<K: Ord + Copy, V: Copy> Map<K, V> for Sorted<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)> {
        let mut from = self.0.range((from, ops::Bound::Unbounded));
        from.next().map(|(k, v)| (*k, *v))
    }

    fn insert(&mut self, key: K, value: V) -> Result<(), NoMemory> {
        assert!(self.0.insert(key, value).is_none(), "was there already");
        Ok(())
    }

    fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }
}

type Space = PortSpace<Sorted<Group, Users>, Sorted<Tuple, ()>>;

fn space() -> Space {
    PortSpace::new(Sorted(BTreeMap::new()), Sorted(BTreeMap::new()))
}

fn at(n: u8) -> Bound {
    Bound::new(Ipv4Addr::new(10, 0, 0, n).into(), false)
}

const NET: usize = 1;

// rows: Z7
#[test]
fn sharing_as_udp() {
    let kinds: Vec<Sharing> = [None, Some(1), Some(2)]
        .into_iter()
        .flat_map(|reuse_port| {
            [false, true].map(|reuse_addr| Sharing {
                reuse_addr,
                reuse_port,
            })
        })
        .collect();
    for first in &kinds {
        for second in &kinds {
            let mut s = space();
            s.bind(NET, at(1), 53, *first).unwrap();
            let both_addr = first.reuse_addr && second.reuse_addr;
            let both_port = first.reuse_port.is_some() && first.reuse_port == second.reuse_port;
            let bound = s.bind(NET, at(1), 53, *second);
            assert_eq!(
                bound.is_ok(),
                both_addr || both_port,
                "{first:?} {second:?}"
            );
            assert!(s.bind(NET, at(2), 53, *second).is_ok());
            let all = Bound::new(Ip::ANY_V4, false);
            assert_eq!(
                s.bind(NET, all, 53, Sharing::default()),
                Err(Refused::InUse)
            );
        }
    }
}

// rows: Z7
#[test]
fn connecting_fixes_the_address() {
    let mut s = space();
    let all = Bound::new(Ip::ANY_V4, false);
    let mut first = s.bind(NET, all, 53, Sharing::default()).unwrap();
    let other = |s: &mut Space| s.bind(NET, at(2), 53, Sharing::default());
    assert_eq!(other(&mut s), Err(Refused::InUse));
    s.readdress(&mut first, at(1)).unwrap();
    assert_eq!(first.bound(), at(1));
    let second = other(&mut s).unwrap();
    // Both have the port now, as with UDP.
    s.readdress(&mut first, all).unwrap();
    assert_eq!(
        s.bind(NET, at(3), 53, Sharing::default()),
        Err(Refused::InUse)
    );
    s.unbind(second);
    assert_eq!(other(&mut s), Err(Refused::InUse));
    s.readdress(&mut first, all).unwrap();
    s.unbind(first);
    let free = other(&mut s);
    assert!(free.is_ok());
}
