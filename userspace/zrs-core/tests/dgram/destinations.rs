// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use zrs_core::addr::{Addr, Ip};
use zrs_core::dgram::destinations::{
    Destinations, Entry, Route, ATTEMPTS_MAX, DATAGRAMS, LOST_NS, PERIOD_NS, REFUSED_MAX_NS,
    REFUSED_NS, WAYS,
};

use super::common::mix;
use super::slots;

type Cache = Destinations<Vec<Option<Entry>>>;

fn host(n: u16) -> Ip {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, 1, high, low).into()
}

fn hash(to: Addr) -> u32 {
    let [.., a, b] = to.ip.octets();
    mix((u64::from(a) << 32) | (u64::from(b) << 16) | u64::from(to.port)) as u32
}

fn send(c: &mut Cache, to: Addr, bytes: u32, now: u64) -> Route {
    c.route(to, hash(to), bytes, now, true)
}

/// Sends until the destination is tried; how many datagrams that took.
fn until_tried(c: &mut Cache, to: Addr, now: u64) -> u32 {
    (1..100)
        .find(|_| send(c, to, 1, now) == Route::UdpAndTry)
        .unwrap_or(0)
}

const TO: u16 = 53;

// rows: Z7
#[test]
fn tried_probed_and_reached() {
    let mut c = Cache::new(slots(64));
    let to = Addr::new(host(1), TO);
    assert_eq!(until_tried(&mut c, to, 0), DATAGRAMS);
    let mut probed = Vec::new();
    // Nothing waits for RDMA.
    assert_eq!(send(&mut c, to, 1, 1), Route::Udp);
    c.link_up(host(2), |to| probed.push(to));
    assert!(probed.is_empty());
    c.link_up(host(1), |to| probed.push(to));
    assert_eq!(probed, [to]);
    assert_eq!(send(&mut c, to, 1, 2), Route::Udp);
    c.answered(Addr::new(host(1), TO + 1), true, 2);
    assert_eq!(send(&mut c, to, 1, 2), Route::Udp);
    c.answered(to, true, 3);
    assert_eq!(send(&mut c, to, 1, 4), Route::Rdma);
    assert_eq!(c.tried(), 0);
    // The port is closed.
    c.answered(to, false, 5);
    assert_eq!(until_tried(&mut c, to, 5 + LOST_NS - 1), 0);
    assert_eq!(until_tried(&mut c, to, 5 + LOST_NS), DATAGRAMS);
    c.link_up(host(1), |_| {});
    c.answered(to, true, 6);
    c.link_lost(host(1), 7);
    assert_eq!(send(&mut c, to, 1, 8), Route::Udp);
}

// rows: Z7
#[test]
fn few_datagrams_make_no_link() {
    let mut c = Cache::new(slots(64));
    let to = Addr::new(host(1), TO);
    for n in 0..1000 {
        let now = n * PERIOD_NS / u64::from(DATAGRAMS - 1);
        assert_eq!(send(&mut c, to, 1000, now), Route::Udp, "{n}");
    }
    // Many bytes are worth it as well.
    let now = 2000 * PERIOD_NS;
    assert_eq!(send(&mut c, to, 40_000, now), Route::Udp);
    assert_eq!(send(&mut c, to, 40_000, now), Route::UdpAndTry);
    // Not without an RDMA device.
    let other = Addr::new(host(2), TO);
    for _ in 0..100 {
        let route = c.route(other, hash(other), 50_000, now, false);
        assert_eq!(route, Route::Udp);
    }
}

// rows: Z7
#[test]
fn a_server_with_many_clients_makes_few_links() {
    let mut c = Cache::new(slots(4096));
    let mut tried = 0;
    for round in 0..20 {
        for n in 0..1000 {
            let to = Addr::new(host(n), 4000);
            let route = send(&mut c, to, 100, round);
            tried += u32::from(route == Route::UdpAndTry);
        }
    }
    assert_eq!(tried, ATTEMPTS_MAX);
    assert_eq!(c.tried(), ATTEMPTS_MAX);
}

// rows: Z7
#[test]
fn hosts_without_zrs_are_tried_less_and_less() {
    let mut c = Cache::new(slots(64));
    let to = Addr::new(host(1), TO);
    let (mut now, mut expected) = (0, REFUSED_NS);
    for _ in 0..100 {
        assert_eq!(until_tried(&mut c, to, now), DATAGRAMS);
        c.no_link(host(1), now);
        assert_eq!(until_tried(&mut c, to, now + expected - 1), 0);
        now += expected;
        expected = (expected * 2).min(REFUSED_MAX_NS);
    }
    // ZRS came, but not to that port.
    assert_eq!(until_tried(&mut c, to, now), DATAGRAMS);
    c.link_up(host(1), |_| {});
    c.answered(to, false, now);
    assert_eq!(until_tried(&mut c, to, now + REFUSED_NS - 1), 0);
    assert_eq!(until_tried(&mut c, to, now + REFUSED_NS), DATAGRAMS);
}

// rows: Z7
#[test]
fn the_least_recently_used_is_forgotten() {
    let mut c = Cache::new(slots(WAYS));
    let at = |n: u16| Addr::new(host(n), TO);
    let all = WAYS as u16;
    for n in 0..all {
        until_tried(&mut c, at(n), n.into());
        c.link_up(host(n), |_| {});
        c.answered(at(n), true, n.into());
    }
    assert_eq!(send(&mut c, at(0), 1, 100), Route::Rdma);
    assert_eq!(send(&mut c, at(all), 1, 101), Route::Udp);
    assert_eq!(send(&mut c, at(0), 1, 102), Route::Rdma);
    assert_eq!(send(&mut c, at(1), 1, 103), Route::Udp, "forgotten");
    // Those that are tried are not.
    let mut c = Cache::new(slots(WAYS));
    for n in 0..ATTEMPTS_MAX as u16 {
        until_tried(&mut c, at(n), 0);
    }
    for n in 0..100 {
        send(&mut c, at(1000 + n), 1, 1);
    }
    let mut probed = 0;
    for n in 0..ATTEMPTS_MAX as u16 {
        c.link_up(host(n), |_| probed += 1);
    }
    assert_eq!(probed, ATTEMPTS_MAX);
    // Without storage all goes by UDP.
    let mut none = Cache::new(Vec::new());
    assert_eq!(until_tried(&mut none, at(1), 0), 0);
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Known {
    Trying,
    Probing,
    Rdma,
    Udp(u64),
}

proptest! {
    /// Any course of events, with room for all destinations: by RDMA goes only what a host has
    /// said to be open since its link came up.
    // rows: Z7
    #[test]
    fn against_a_map(
        steps in proptest::collection::vec((0..7_u8, 0..3_u16, 0..2_u16, 0..200_u64), 0..300),
    ) {
        let mut c = Cache::new(slots(WAYS * 64));
        let mut model: BTreeMap<(u16, u16), Known> = BTreeMap::new();
        let mut now = 0;
        for (op, h, p, later) in steps {
            now += later * PERIOD_NS / 100;
            let to = Addr::new(host(h), p);
            match op {
                0..=2 => {
                    let known = model.get(&(h, p)).copied();
                    let mut routes = (0..DATAGRAMS).map(|_| send(&mut c, to, 1, now));
                    let route = match known {
                        Some(Known::Rdma) => Route::Rdma,
                        _ => Route::Udp,
                    };
                    prop_assert!(routes.all(|r| r == route || r == Route::UdpAndTry));
                    let free = match known {
                        Some(Known::Udp(until)) => now >= until,
                        known => known.is_none(),
                    };
                    let tried = model.values().filter(|k| matches!(k, Known::Trying | Known::Probing));
                    if free && (tried.count() as u32) < ATTEMPTS_MAX {
                        model.insert((h, p), Known::Trying);
                    }
                }
                3 => {
                    let mut probed = Vec::new();
                    c.link_up(host(h), |to| probed.push(to.port));
                    let mut expected = Vec::new();
                    for (key, known) in model.iter_mut().filter(|(k, _)| k.0 == h) {
                        if *known == Known::Trying {
                            *known = Known::Probing;
                            expected.push(key.1);
                        }
                    }
                    probed.sort_unstable();
                    prop_assert_eq!(probed, expected);
                }
                4 => {
                    c.link_lost(host(h), now);
                    for (_, known) in model.iter_mut().filter(|(k, _)| k.0 == h) {
                        if !matches!(known, Known::Udp(_)) {
                            *known = Known::Udp(now + LOST_NS);
                        }
                    }
                }
                _ => {
                    let open = op == 5;
                    c.answered(to, open, now);
                    if let Some(known) = model.get_mut(&(h, p)) {
                        *known = match (*known, open) {
                            (Known::Probing, true) => Known::Rdma,
                            (Known::Probing, false) => Known::Udp(now + REFUSED_NS),
                            (Known::Rdma, false) => Known::Udp(now + LOST_NS),
                            (known, _) => known,
                        };
                    }
                }
            }
            let tried = model.values().filter(|k| matches!(k, Known::Trying | Known::Probing));
            prop_assert_eq!(c.tried() as usize, tried.count());
        }
    }
}
