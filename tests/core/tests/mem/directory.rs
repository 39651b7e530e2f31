// SPDX-License-Identifier: GPL-2.0

//! The directory against a map.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use zrs_core::addr::Ip;
use zrs_core::mem::directory::{Directory, Entry, NoEntry, ENTRIES_MAX};
use zrs_core::mem::id::NodeId;

use common::Rng;

fn ip(n: u16) -> Ip {
    Ip::new(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n), 0)
}

fn node(domain: u32, node: u32) -> NodeId {
    NodeId { domain, node }
}

// rows: M1
#[test]
fn as_a_map_has_it() {
    let mut rng = Rng::new(5);
    let mut dir = Directory::new(vec![Entry::EMPTY; 20], 3);
    let mut map = BTreeMap::new();
    for step in 0..20_000 {
        let id = node(rng.below(5) as u32, rng.below(8) as u32);
        let full = id.qualified(3);
        match rng.below(3) {
            0 => assert_eq!(dir.remove(id), map.remove(&full).is_some()),
            _ => {
                let room = map.len() < 20 || map.contains_key(&full);
                let addr = ip(step as u16 | 1);
                assert_eq!(
                    dir.set(id, addr),
                    if room { Ok(()) } else { Err(NoEntry::Full) }
                );
                if room {
                    map.insert(full, addr);
                }
            }
        }
        assert_eq!((dir.len(), dir.is_empty()), (map.len(), map.is_empty()));
        assert_eq!(dir.resolve(id), map.get(&full).copied());
        let mut at = None;
        let listed = std::iter::from_fn(|| {
            let e = dir.next_after(at)?;
            at = Some(e.node);
            Some((e.node, e.addr))
        });
        assert!(listed.eq(map.iter().map(|(n, a)| (*n, *a))), "in order");
    }
}

// rows: M1
#[test]
fn the_own_domain_need_not_be_named() {
    let mut dir = Directory::new(vec![Entry::EMPTY; 2], 7);
    assert_eq!(dir.set(node(0, 1), ip(1)), Ok(()));
    assert_eq!(dir.resolve(node(7, 1)), Some(ip(1)));
    assert_eq!(dir.resolve(node(0, 1)), Some(ip(1)));
    assert_eq!(dir.resolve(node(8, 1)), None);
}

// rows: M1
#[test]
fn what_is_not_one_host_is_no_address() {
    let mut dir = Directory::new(vec![Entry::EMPTY; 2], 1);
    let many = Ip::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 2);
    for addr in [Ip::ANY, Ip::ANY_V4, many] {
        assert_eq!(dir.set(node(1, 1), addr), Err(NoEntry::Address));
    }
    assert!(dir.is_empty());
}

// rows: M1
#[test]
fn there_is_a_limit_whatever_the_storage() {
    let mut dir = Directory::new(vec![Entry::EMPTY; ENTRIES_MAX + 1], 1);
    for n in 0..ENTRIES_MAX as u32 {
        assert_eq!(dir.set(node(1, n), ip(1)), Ok(()));
    }
    assert_eq!(dir.set(node(2, 0), ip(1)), Err(NoEntry::Full));
    assert_eq!(dir.set(node(1, 5), ip(2)), Ok(()), "a change needs no room");
}
