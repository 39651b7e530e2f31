// SPDX-License-Identifier: GPL-2.0

//! Addresses of both families in one type.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use proptest::prelude::*;
use zrs_core::addr::{Addr, Bound, Ip};

fn v6(text: &str) -> Ip {
    Ip::new(text.parse().unwrap(), 3)
}

// rows: B6
#[test]
fn kinds() {
    let v4 = Ip::from(Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(v6("::ffff:10.0.0.1"), v4);
    assert!(v4.is_v4() && !v4.is_any() && !v4.is_link_local() && !v4.is_for_many());
    assert_eq!(v4.any_of_family(), Ip::ANY_V4);
    assert_eq!(v4.loopback_of_family(), v6("::ffff:127.0.0.1"));
    for many in ["ff02::1", "::ffff:224.0.0.1", "::ffff:255.255.255.255"] {
        assert!(v6(many).is_for_many(), "{many}");
    }
    assert!(v6("::").is_any() && v6("::ffff:0.0.0.0").is_any() && !v6("::1").is_any());
    assert_eq!(v6("fd00::1").loopback_of_family(), v6("::1"));
    assert_eq!(v6("fd00::1").any_of_family(), Ip::ANY);
    // Not v4-mapped.
    assert!(!v6("::10.0.0.1").is_v4());
}

/// A scope counts for link-local addresses alone.
// rows: B6
#[test]
fn scopes() {
    let on = |ip: &str, scope| Ip::new(ip.parse().unwrap(), scope);
    assert_ne!(on("fe80::1", 1), on("fe80::1", 2));
    assert_eq!(on("fd00::1", 1), on("fd00::1", 2));
    assert_eq!((on("fe80::1", 9).scope(), on("fd00::1", 9).scope()), (9, 0));
    assert!(on("febf::1", 1).is_link_local() && !on("fec0::1", 1).is_link_local());
}

// rows: B6
#[test]
fn shown() {
    let show = |ip: Ip| format!("{ip:?}");
    assert_eq!(show(Ipv4Addr::new(10, 0, 0, 1).into()), "10.0.0.1");
    assert_eq!(show(v6("fe80::1")), "fe80::1%3");
    assert_eq!(show(v6("fd00::1")), "fd00::1");
}

proptest! {
    // rows: B6
    #[test]
    fn there_and_back(ip: u128, port: u16, scope: u32, flow: u32, local: bool) {
        let ip = if local { (ip >> 64) | (0xfe80 << 112) } else { ip };
        let from = SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope);
        let addr = Addr::from(from);
        let back = SocketAddrV6::from(addr);
        prop_assert_eq!((back.ip(), back.port(), back.flowinfo()), (from.ip(), port, 0));
        prop_assert_eq!(back.scope_id(), if addr.ip.is_link_local() { scope } else { 0 });
        prop_assert_eq!(Addr::from(back), addr);
    }

    /// Every overlapping binding is at one of the addresses that it lists.
    // rows: B6
    #[test]
    fn overlaps(a: u128, b: u128, only_a: bool, only_b: bool, kinds in (0_u8..4, 0_u8..4)) {
        let ip = |bits: u128, kind| match kind {
            0 => Ip::ANY,
            1 => Ip::ANY_V4,
            2 => Ipv4Addr::from((bits & 1) as u32 | 0x0a00_0000).into(),
            _ => Ip::new(Ipv6Addr::from((bits & 1) | (0xfd00 << 112)), 0),
        };
        let (a, b) = (Bound::new(ip(a, kinds.0), only_a), Bound::new(ip(b, kinds.1), only_b));
        prop_assert_eq!(a.overlaps(b), b.overlaps(a));
        prop_assert!(a.overlaps(a));
        if let Some(named) = a.overlapped() {
            prop_assert!(!a.overlaps(b) || named.contains(&Some(b.ip())));
            prop_assert_eq!(a.overlaps(b), b.takes(a.ip()));
        }
        prop_assert!(Bound::new(Ip::ANY, false).overlaps(a));
        let v6 = Bound::new(Ip::ANY, true);
        prop_assert_eq!(v6.overlaps(a), !a.ip().is_v4());
    }
}
