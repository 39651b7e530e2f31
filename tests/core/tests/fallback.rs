// SPDX-License-Identifier: GPL-2.0

//! Fallback to TCP: the reasons for it, and the memory of hosts and ports without ZRS.

use std::net::Ipv4Addr;

use zrs_core::addr::Ip;
use zrs_core::channel::Failure;
use zrs_core::fallback::{
    after_failure, Answer, Cache, EndedBy, Entry, Peer, Why, HOST_MS, PORT_MS, WAYS,
};
use zrs_core::wire::Refusal;

const MS: u64 = 1_000_000;

fn peer(last: u8, port: u16) -> Peer {
    Peer {
        net: 1,
        from: Ip::ANY,
        ip: Ip::from(Ipv4Addr::new(192, 0, 2, last)),
        port,
    }
}

fn cache(slots: usize) -> Cache<Vec<Option<Entry>>> {
    Cache::new(vec![None; slots], 7)
}

#[test]
fn failures() {
    use EndedBy::{Link, Timer};
    let all = [
        Failure::Refused(Refusal::NoListener),
        Failure::Refused(Refusal::BacklogFull),
        Failure::Refused(Refusal::NoResources),
        Failure::Reset,
        Failure::LinkLost,
        Failure::TimedOut,
        Failure::Unreachable,
        Failure::NoRoute,
        Failure::NoDevice,
        Failure::NoResources,
        Failure::Quota,
        Failure::Protocol,
        Failure::Denied,
        Failure::Unproved,
    ];
    for failure in all {
        assert_eq!(after_failure(failure, Timer), Some(Why::Slow));
        let by_peer = match failure {
            Failure::Refused(Refusal::NoListener) => Some(Why::NoListener),
            Failure::NoResources | Failure::Quota | Failure::Refused(Refusal::NoResources) => {
                Some(Why::NoResources)
            }
            _ => None,
        };
        assert_eq!(
            after_failure(failure, EndedBy::Peer),
            by_peer,
            "{failure:?}"
        );
        let by_link = match failure {
            Failure::Refused(Refusal::BacklogFull) => None,
            Failure::NoResources
            | Failure::Quota
            | Failure::Refused(Refusal::NoResources)
            | Failure::LinkLost
            | Failure::Reset => Some(Why::NoResources),
            Failure::Denied => Some(Why::Peer),
            Failure::Unproved => Some(Why::Key),
            _ => Some(Why::NoZrs),
        };
        assert_eq!(after_failure(failure, Link), by_link, "{failure:?}");
    }
}

#[test]
fn a_host_is_asked_again_after_ever_longer_times() {
    let mut cache = cache(64);
    let (at, other) = (peer(1, 80), peer(1, 443));
    assert_eq!(cache.look(at, 0, false), Answer::Unknown);
    cache.confirm(at, Why::NoZrs, 0);
    assert_eq!(cache.look(peer(2, 80), 0, false), Answer::Unknown);
    assert_eq!(cache.look(Peer { net: 2, ..at }, 0, false), Answer::Unknown);
    let (mut now, mut ms) = (0, HOST_MS.0);
    for _ in 0..10 {
        let end = now + u64::from(ms) * MS;
        assert_eq!(cache.look(other, end - 1, false), Answer::NoZrs);
        assert_eq!(cache.look(at, end, false), Answer::AskAgain);
        // Only one connection asks.
        assert_eq!(cache.look(other, end, false), Answer::NoZrs);
        cache.confirm(at, Why::Known, end);
        cache.confirm(other, Why::Known, end + 1);
        (now, ms) = (end, (ms * 2).min(HOST_MS.1));
    }
    assert_eq!(ms, HOST_MS.1);
    assert_eq!(cache.look(at, now, true), Answer::Unknown);
    cache.forget(other);
    assert_eq!(cache.look(at, now, false), Answer::Unknown);
}

#[test]
fn a_device_without_rdma_says_nothing_of_the_others() {
    let mut cache = cache(64);
    let at = peer(1, 80);
    let from = Ip::from(Ipv4Addr::new(198, 51, 100, 1));
    cache.confirm(Peer { from, ..at }, Why::NoZrs, 0);
    assert_eq!(cache.look(Peer { from, ..at }, 0, false), Answer::NoZrs);
    assert_eq!(cache.look(at, 0, false), Answer::Unknown);
    cache.confirm(at, Why::NoZrs, 0);
    assert_eq!(cache.look(at, 0, false), Answer::NoZrs);
    assert_eq!(cache.remembered(None), 2);
    assert_eq!(cache.remembered(Some(at.net)), 2);
    assert_eq!(cache.remembered(Some(at.net + 1)), 0);
    // But a host that has made a link has ZRS.
    cache.forget(at);
    assert_eq!(cache.remembered(None), 0);
}

#[test]
fn a_host_that_tcp_does_not_reach_either_is_not_asked_less_often() {
    let mut cache = cache(64);
    let at = peer(1, 80);
    cache.confirm(at, Why::Slow, 0);
    for n in 1..5 {
        let now = n * u64::from(HOST_MS.0) * MS;
        assert_eq!(cache.look(at, now, false), Answer::AskAgain);
    }
}

#[test]
fn a_port_says_nothing_of_the_others() {
    let mut cache = cache(64);
    let at = peer(1, 80);
    let (mut now, mut ms) = (0, PORT_MS.0);
    for _ in 0..5 {
        cache.confirm(at, Why::NoListener, now);
        assert_eq!(cache.look(peer(1, 81), now, false), Answer::Unknown);
        let end = now + u64::from(ms) * MS;
        assert_eq!(cache.look(at, end - 1, false), Answer::NoZrs);
        assert_eq!(cache.look(at, end, false), Answer::Unknown);
        (now, ms) = (end, (ms * 2).min(PORT_MS.1));
    }
    cache.confirm(at, Why::NoListener, now);
    assert_eq!(cache.look(at, now, true), Answer::NoZrs);
    cache.forget(at);
    assert_eq!(cache.look(at, now, false), Answer::Unknown);
}

#[test]
fn some_reasons_say_nothing() {
    let mut cache = cache(64);
    for why in [
        Why::Asked,
        Why::Local,
        Why::Drain,
        Why::NoResources,
        Why::Known,
        Why::Rule,
        Why::Asking,
    ] {
        cache.confirm(peer(1, 80), why, 0);
        assert_eq!(cache.look(peer(1, 80), 0, false), Answer::Unknown);
    }
}

#[test]
fn all_is_forgotten_when_the_ways_change() {
    let mut cache = cache(64);
    cache.confirm(peer(1, 80), Why::Slow, 0);
    cache.confirm(peer(2, 80), Why::NoListener, 0);
    assert_eq!(cache.remembered(None), 2);
    cache.clear();
    assert_eq!(cache.remembered(None), 0);
    for n in [1, 2] {
        assert_eq!(cache.look(peer(n, 80), 1, false), Answer::Unknown);
    }
}

#[test]
fn a_link_of_a_host_says_nothing_of_its_ports() {
    let mut cache = cache(64);
    let at = peer(1, 80);
    cache.confirm(at, Why::NoZrs, 0);
    cache.confirm(at, Why::NoListener, 0);
    cache.forget(peer(1, 0));
    assert_eq!(cache.look(at, 1, false), Answer::NoZrs);
    assert_eq!(cache.look(peer(1, 81), 1, false), Answer::Unknown);
}

#[test]
fn bounded_and_the_least_recently_used_goes() {
    let mut cache = cache(WAYS);
    for n in 0..WAYS as u8 {
        cache.confirm(peer(n, 80), Why::NoZrs, 0);
    }
    assert_eq!(cache.look(peer(0, 80), 1, false), Answer::NoZrs);
    for n in 100..103 {
        cache.confirm(peer(n, 80), Why::NoZrs, 2);
        assert_eq!(cache.look(peer(n, 80), 3, false), Answer::NoZrs);
    }
    assert_eq!(cache.look(peer(0, 80), 4, false), Answer::NoZrs);
    assert_eq!(cache.look(peer(1, 80), 4, false), Answer::Unknown);
    let mut none: Cache<Vec<Option<Entry>>> = Cache::new(Vec::new(), 1);
    none.confirm(peer(1, 1), Why::NoZrs, 0);
    assert_eq!(none.look(peer(1, 1), 0, false), Answer::Unknown);
}
