// SPDX-License-Identifier: GPL-2.0

//! Half-made links: which request is granted, and which link ends for it.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use zrs_core::addr::Ip;
use zrs_core::half_made::{judge, network_of, Bounds, HalfMade, Network, Verdict};

/// A host of a network.
fn ip(net: u8, host: u8) -> Ip {
    Ip::from(Ipv4Addr::new(10, 1, net, host))
}

fn link(net: u8, host: u8) -> HalfMade<Network> {
    let ip = ip(net, host);
    HalfMade {
        net: network_of(ip),
        ip,
        to: self::ip(0, 1),
        ends: false,
    }
}

/// Bounds in which an address may have any number.
fn bounds(most: usize) -> Bounds {
    let one = usize::MAX;
    Bounds { most, one }
}

fn ending(net: u8, host: u8) -> HalfMade<Network> {
    HalfMade {
        ends: true,
        ..link(net, host)
    }
}

use Verdict::{Granted, Refused};

// rows: B11 E5
#[test]
fn another_network_finds_room() {
    // A flood from addresses of network 7.
    let links = [
        link(1, 1),
        link(7, 1),
        link(2, 1),
        link(7, 2),
        link(7, 3),
        link(3, 1),
    ];
    assert_eq!(
        judge(&links, &link(7, 4), bounds(7)),
        Granted(None),
        "there is room"
    );
    for net in [1, 4] {
        assert_eq!(judge(&links, &link(net, 9), bounds(6)), Granted(Some(1)));
    }
    assert_eq!(judge(&links, &link(7, 4), bounds(6)), Refused(Some(1)));
}

// rows: B11 E5
#[test]
fn another_address_of_the_network_finds_room() {
    let links = [link(7, 2), link(7, 1), link(7, 1), link(7, 1)];
    assert_eq!(judge(&links, &link(7, 3), bounds(4)), Granted(Some(1)));
    assert_eq!(judge(&links, &link(7, 2), bounds(4)), Granted(Some(1)));
    assert_eq!(judge(&links, &link(7, 1), bounds(4)), Refused(Some(1)));
}

// rows: B11 E5
#[test]
fn a_link_that_ends_counts_and_does_not_end_again() {
    let links = [ending(7, 1), ending(7, 2), link(7, 3), link(1, 1)];
    assert_eq!(judge(&links, &link(7, 4), bounds(4)), Refused(Some(2)));
    assert_eq!(judge(&links, &link(1, 2), bounds(4)), Granted(Some(2)));
    let links = [ending(7, 1), ending(7, 1)];
    assert_eq!(judge(&links, &link(7, 1), bounds(2)), Refused(None));
    assert_eq!(judge(&links, &link(1, 1), bounds(2)), Granted(None));
}

fn of_net(links: &[HalfMade<Network>], net: Network) -> usize {
    links.iter().filter(|l| l.net == net).count()
}

proptest! {
    /// A request is refused only if no network would have more links than its own, and no address of that more than
    /// its own; a link that ends is of the network with most, and of an address with most in it.
    // rows: B11 E5
    #[test]
    fn who_has_fewer_is_granted(
        links in prop::collection::vec((0..4_u8, 0..3_u8, any::<bool>()), 0..30),
        new in (0..5_u8, 0..4_u8),
        most in 1..30_usize,
    ) {
        let links: Vec<_> = links
            .into_iter()
            .map(|(net, host, ends)| HalfMade { ends, ..link(net, host) })
            .collect();
        let new = link(new.0, new.1);
        let verdict = judge(&links, &new, bounds(most));
        if links.len() < most {
            prop_assert_eq!(verdict, Granted(None));
            return Ok(());
        }
        let nets = links.iter().map(|l| of_net(&links, l.net) + usize::from(l.net == new.net));
        let fullest = nets.max().unwrap_or(0);
        let mine = of_net(&links, new.net) + 1;
        let of_ip = |ip: Ip| links.iter().filter(|l| l.ip == ip).count();
        let (end, refused) = match verdict {
            Granted(end) => (end, false),
            Refused(end) => (end, true),
        };
        if mine < fullest {
            prop_assert!(!refused);
        } else {
            let one = links.iter().filter(|l| l.net == new.net).map(|l| of_ip(l.ip)).max().unwrap_or(0);
            prop_assert_eq!(refused, of_ip(new.ip) + 1 >= one);
        }
        if let Some(end) = end {
            let gone = links[end];
            prop_assert!(!gone.ends);
            prop_assert!(of_net(&links, gone.net) + usize::from(gone.net == new.net) >= fullest);
            prop_assert!(links.iter().filter(|l| l.net == gone.net).all(|l| of_ip(l.ip) <= of_ip(gone.ip)));
            let alike = |l: &&HalfMade<Network>| l.ip == gone.ip && !l.ends;
            prop_assert!(!links[..end].iter().any(|l| alike(&l)), "the oldest");
        }
    }
}

// rows: B11
#[test]
fn networks_are_those_of_a_host() {
    assert_eq!(network_of(ip(2, 1)), network_of(ip(2, 254)));
    assert_ne!(network_of(ip(2, 1)), network_of(ip(3, 1)));
    let v6 = |net, last, scope| {
        network_of(Ip::new(
            Ipv6Addr::new(0xfe80, 0, 0, net, 1, 2, 3, last),
            scope,
        ))
    };
    assert_eq!(v6(0, 1, 2), v6(0, 2, 2));
    assert_ne!(
        v6(0, 1, 2),
        v6(0, 1, 3),
        "link-local ones of another interface"
    );
    assert_ne!(v6(0, 1, 2), v6(1, 1, 2));
    assert!(network_of(ip(2, 1)).0.is_some() && v6(0, 1, 2).0.is_some());
}

// rows: B11
#[test]
fn a_single_address_may_have_its_links() {
    assert_eq!(Bounds::new(128, 3).most, 64);
    assert_eq!(Bounds::new(4, 3).most, 3);
    assert_eq!(Bounds::new(0, 3).most, 3);
}

// rows: B11 E5
#[test]
fn beyond_its_number_an_address_ends_its_own() {
    let links = [ending(7, 1), link(7, 2), link(7, 1), link(7, 1), link(1, 1)];
    let judge = |new: &HalfMade<Network>, most| judge(&links, new, Bounds { most, one: 2 });
    assert_eq!(judge(&link(7, 1), 6), Granted(Some(2)));
    assert_eq!(
        judge(&link(7, 1), 5),
        Refused(Some(2)),
        "the budget is used up"
    );
    assert_eq!(judge(&link(7, 2), 6), Granted(None));
    let elsewhere = HalfMade {
        to: ip(0, 2),
        ..link(7, 1)
    };
    assert_eq!(judge(&elsewhere, 6), Granted(None), "another address here");
}
