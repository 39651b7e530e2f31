// SPDX-License-Identifier: GPL-2.0

//! The list of peers of a network namespace: the longest network decides.
// rows: B16

use std::net::{IpAddr, Ipv6Addr};

use common::Rng;
use zrs_core::addr::Ip;
use zrs_core::peers::{allows, Entry, Verdict};
use zrs_core::prefix::Prefix;

fn ip(text: &str) -> Ip {
    match text.parse().unwrap() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ip::new(v6, 0),
    }
}

fn entry(verdict: Verdict, text: &str, len: u8) -> Entry {
    let net = Prefix::new(ip(text), len).unwrap();
    Entry { verdict, net }
}

#[test]
fn a_host_without_an_entry_is_allowed() {
    assert!(allows(&[], ip("192.0.2.1")));
    let list = [entry(Verdict::Deny, "192.0.2.0", 24)];
    assert!(!allows(&list, ip("192.0.2.1")));
    assert!(allows(&list, ip("192.0.3.1")));
    assert!(allows(&list, ip("2001:db8::1")));
}

#[test]
fn the_longest_network_decides() {
    let list = [
        entry(Verdict::Allow, "192.0.2.0", 24),
        entry(Verdict::Deny, "0.0.0.0", 0),
        entry(Verdict::Deny, "192.0.2.128", 25),
        entry(Verdict::Allow, "192.0.2.200", 32),
        entry(Verdict::Deny, "::", 0),
        entry(Verdict::Allow, "2001:db8::", 32),
    ];
    let mut back = list;
    back.reverse();
    for (host, allowed) in [
        ("192.0.2.1", true),
        ("192.0.2.129", false),
        ("192.0.2.200", true),
        ("192.0.3.1", false),
        ("2001:db8:ffff::1", true),
        ("2001:db9::1", false),
        ("fe80::1", false),
        ("::ffff:192.0.2.1", true),
    ] {
        assert_eq!(allows(&list, ip(host)), allowed, "{host}");
        assert_eq!(allows(&back, ip(host)), allowed, "{host}, in another order");
    }
}

/// A link-local address is looked at without its interface.
#[test]
fn interfaces_do_not_count() {
    let list = [entry(Verdict::Deny, "fe80::", 64)];
    let host: Ipv6Addr = "fe80::7".parse().unwrap();
    assert!(!allows(&list, Ip::new(host, 2)) && !allows(&list, Ip::new(host, 3)));
}

/// Bit by bit: the verdict of the entry that agrees in most bits.
fn model(entries: &[(Verdict, u32, u8)], host: u32) -> bool {
    let bit = |of: u32, n: u8| (of >> (31 - n)) & 1;
    let agrees = |net: u32, len: u8| (0..len).all(|n| bit(net, n) == bit(host, n));
    let mut found = (0, Verdict::Allow);
    for (verdict, net, len) in entries {
        if agrees(*net, *len) && (*len > found.0 || *len == 0 && found.0 == 0) {
            found = (*len, *verdict);
        }
    }
    found.1 == Verdict::Allow
}

#[test]
fn as_the_model() {
    let mut rng = Rng::new(25);
    for _ in 0..2000 {
        let mut raw: Vec<(Verdict, u32, u8)> = Vec::new();
        for _ in 0..rng.below(12) {
            let len = rng.below(33) as u8;
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            // Few different bits, so that networks are in each other.
            let net = (0x0a00_0000 | rng.below(4) as u32) & mask;
            let verdict = if rng.below(2) == 0 {
                Verdict::Allow
            } else {
                Verdict::Deny
            };
            if !raw.iter().any(|(_, n, l)| (*n, *l) == (net, len)) {
                raw.push((verdict, net, len));
            }
        }
        let of = |host: u32| Ip::from(std::net::Ipv4Addr::from(host));
        let list: Vec<Entry> = raw
            .iter()
            .map(|(verdict, net, len)| Entry {
                verdict: *verdict,
                net: Prefix::new(of(*net), *len).unwrap(),
            })
            .collect();
        for host in [
            0x0a00_0000,
            0x0a00_0001,
            0x0a00_0003,
            0x0a80_0000,
            0xc000_0201,
        ] {
            assert_eq!(
                allows(&list, of(host)),
                model(&raw, host),
                "{raw:?} {host:x}"
            );
        }
    }
}

#[test]
fn networks() {
    assert!(Prefix::new(ip("192.0.2.1"), 33).is_none());
    assert!(Prefix::new(ip("2001:db8::1"), 129).is_none());
    let net = Prefix::new(ip("192.0.2.77"), 24).unwrap();
    assert_eq!((net.first(), net.bits()), (ip("192.0.2.0"), 24));
    let net = Prefix::new(ip("2001:db8::77"), 128).unwrap();
    assert_eq!((net.first(), net.bits()), (ip("2001:db8::77"), 128));
}
