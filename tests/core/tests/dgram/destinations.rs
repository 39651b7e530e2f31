// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use zrs_core::addr::{Addr, Ip};
use zrs_core::dgram::destinations::{
    Destinations, Ends, Entry, Path, Route, Sent, ATTEMPTS_MAX, ATTEMPT_NS, DATAGRAMS, LOST_NS,
    PERIOD_NS, REFUSED_MAX_NS, REFUSED_NS, WAYS,
};
use zrs_core::dgram::wire::Ports;

use super::slots;
use common::mix;

type Cache = Destinations<Vec<Option<Entry>>>;

fn host(n: u16) -> Ip {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(10, 1, high, low).into()
}

fn hash(to: Addr) -> u32 {
    let [.., a, b] = to.ip.octets();
    mix((u64::from(a) << 32) | (u64::from(b) << 16) | u64::from(to.port)) as u32
}

const NET: u64 = 7;
const PORT: u16 = 999;

fn sent(to: Addr, bytes: u32) -> Sent {
    let path = Path {
        net: NET,
        from: Ip::ANY,
        port: 0,
        to,
    };
    Sent {
        path,
        port: PORT,
        bytes,
        hash: hash(to),
    }
}

fn send(c: &mut Cache, to: Addr, bytes: u32, now: u64) -> Route {
    c.route(&sent(to, bytes), now, || true)
}

/// A link to host `n`.
fn link(n: u16) -> Ends {
    Ends {
        net: NET,
        local: host(1000),
        remote: host(n),
    }
}

/// The ports that are probed when a link to host `n` is up.
fn probed(c: &mut Cache, n: u16) -> Vec<u16> {
    let probes = c.link_up(&link(n)).into_iter().flatten();
    probes
        .inspect(|p| assert_eq!(p.src, PORT))
        .map(|p| p.dst)
        .collect()
}

/// Host `n` says whether it has the port, to the port that asks.
fn answered(c: &mut Cache, n: u16, port: u16, open: bool, now: u64) {
    let ports = Ports {
        dst: port,
        src: PORT,
    };
    c.answered(&link(n), ports, open, now);
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
    // Nothing waits for RDMA.
    assert_eq!(send(&mut c, to, 1, 1), Route::Udp);
    assert!(probed(&mut c, 2).is_empty());
    assert!(c
        .link_up(&Ends {
            net: NET + 1,
            ..link(1)
        })
        .iter()
        .all(Option::is_none));
    assert_eq!(probed(&mut c, 1), [TO]);
    assert!(probed(&mut c, 1).is_empty(), "once");
    assert_eq!(send(&mut c, to, 1, 2), Route::Udp);
    answered(&mut c, 1, TO + 1, true, 2);
    assert_eq!(send(&mut c, to, 1, 2), Route::Udp);
    answered(&mut c, 1, TO, true, 3);
    assert_eq!(send(&mut c, to, 1, 4), Route::Rdma);
    assert_eq!(c.tried(), 0);
    // The port is closed.
    answered(&mut c, 1, TO, false, 5);
    assert_eq!(until_tried(&mut c, to, 5 + LOST_NS - 1), 0);
    assert_eq!(until_tried(&mut c, to, 5 + LOST_NS), DATAGRAMS);
    probed(&mut c, 1);
    answered(&mut c, 1, TO, true, 6);
    c.link_lost(&link(1), 7);
    assert_eq!(send(&mut c, to, 1, 8), Route::Udp);
}

// rows: Z7
#[test]
fn an_answer_that_never_comes_ends_the_attempt() {
    let mut c = Cache::new(slots(64));
    let to = Addr::new(host(1), TO);
    until_tried(&mut c, to, 0);
    assert_eq!(probed(&mut c, 1), [TO]);
    // The datagrams alone let the time pass: nothing else is tried.
    assert_eq!(until_tried(&mut c, to, ATTEMPT_NS - 1), 0);
    assert_eq!(c.tried(), 1);
    assert_eq!(send(&mut c, to, 1, ATTEMPT_NS), Route::Udp);
    assert_eq!(c.tried(), 0);
    let then = ATTEMPT_NS + LOST_NS;
    assert_eq!(until_tried(&mut c, to, then), DATAGRAMS);
    assert_eq!(probed(&mut c, 1), [TO]);
}

// rows: Z7
#[test]
fn paths_are_those_of_an_own_address() {
    let mut c = Cache::new(slots(64));
    let to = Addr::new(host(1), TO);
    let (ours, other) = (host(1000), host(1001));
    let path = |from| Path {
        net: NET,
        from,
        port: 0,
        to,
    };
    for from in [ours, other] {
        let path = path(from);
        let s = Sent {
            path,
            ..sent(to, 65536)
        };
        assert_eq!(c.route(&s, 0, || true), Route::UdpAndTry);
    }
    assert_eq!(probed(&mut c, 1), [TO]);
    answered(&mut c, 1, TO, true, 1);
    let route = |c: &mut Cache, from| {
        let path = path(from);
        c.route(
            &Sent {
                path,
                ..sent(to, 1)
            },
            2,
            || true,
        )
    };
    assert_eq!(route(&mut c, ours), Route::Rdma);
    assert_eq!(route(&mut c, other), Route::Udp);
    c.path_lost(&path(ours), 3);
    assert_eq!(route(&mut c, ours), Route::Udp);
}

// rows: Z7
#[test]
fn attempts_without_an_answer_end() {
    let mut c = Cache::new(slots(64));
    for n in 0..ATTEMPTS_MAX as u16 {
        until_tried(&mut c, Addr::new(host(n), TO), 0);
        // Half of them wait for the link, half for the answer.
        if n % 2 == 0 {
            assert_eq!(c.link_up(&link(n))[0], Some(Ports { dst: TO, src: PORT }));
        }
    }
    let other = Addr::new(host(100), TO);
    assert_eq!(until_tried(&mut c, other, ATTEMPT_NS - 1), 0);
    assert_eq!(
        until_tried(&mut c, other, ATTEMPT_NS + PERIOD_NS),
        DATAGRAMS
    );
    assert_eq!(c.tried(), 1);
}

// rows: Z7 B11
#[test]
fn an_answer_goes_by_the_way_of_the_question() {
    let mut c = Cache::new(slots(64));
    let to = Addr::new(host(1), TO);
    let heard = Path {
        port: PORT,
        ..sent(to, 1).path
    };
    assert_eq!(send(&mut c, to, 1, 0), Route::Udp);
    c.heard(heard, hash(to), 1);
    assert_eq!(send(&mut c, to, 1, 2), Route::Answer);
    // The port there may be another user's in UDP: the sockets of other ports go on as before.
    let other = Sent {
        port: PORT + 1,
        ..sent(to, 1)
    };
    assert_eq!(c.route(&other, 2, || true), Route::Udp);
    assert_eq!(c.tried(), 0);
    // The answer to another port's probe does not concern it.
    let of_other = Ports {
        dst: TO,
        src: PORT + 1,
    };
    c.answered(&link(1), of_other, false, 3);
    assert_eq!(send(&mut c, to, 1, 3), Route::Answer);
    // The port is closed, or the link lost or refused: what has come before ends that no sooner.
    let refusals: [fn(&mut Cache, u64) -> u64; 4] = [
        |c, now| {
            answered(c, 1, TO, false, now);
            LOST_NS
        },
        |c, now| {
            c.link_lost(&link(1), now);
            LOST_NS
        },
        |c, now| {
            let heard = Path {
                port: PORT,
                ..sent(Addr::new(host(1), TO), 1).path
            };
            c.path_lost(&heard, now);
            LOST_NS
        },
        |c, now| {
            c.no_link(&link(1), now);
            REFUSED_NS
        },
    ];
    let mut now = 4;
    for refuse in refusals {
        let time = refuse(&mut c, now);
        assert_eq!(send(&mut c, to, 1, now), Route::Udp);
        c.heard(heard, hash(to), now + time - 1);
        assert_eq!(send(&mut c, to, 1, now + time - 1), Route::Udp);
        now += time;
        c.heard(heard, hash(to), now);
        assert_eq!(send(&mut c, to, 1, now), Route::Answer);
    }
    assert_eq!(c.tried(), 0);
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
        let route = c.route(&sent(other, 50_000), now, || false);
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
        c.no_link(&link(1), now);
        assert_eq!(until_tried(&mut c, to, now + expected - 1), 0);
        now += expected;
        expected = (expected * 2).min(REFUSED_MAX_NS);
    }
    // ZRS came, but not to that port.
    assert_eq!(until_tried(&mut c, to, now), DATAGRAMS);
    probed(&mut c, 1);
    answered(&mut c, 1, TO, false, now);
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
        probed(&mut c, n);
        answered(&mut c, n, TO, true, n.into());
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
    for n in 0..ATTEMPTS_MAX as u16 {
        assert_eq!(probed(&mut c, n), [TO]);
    }
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
            // In all less than ATTEMPT_NS.
            now += later * PERIOD_NS / 10_000;
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
                    let mut probed = probed(&mut c, h);
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
                    c.link_lost(&link(h), now);
                    for (_, known) in model.iter_mut().filter(|(k, _)| k.0 == h) {
                        if !matches!(known, Known::Udp(_)) {
                            *known = Known::Udp(now + LOST_NS);
                        }
                    }
                }
                _ => {
                    let open = op == 5;
                    answered(&mut c, h, p, open, now);
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
