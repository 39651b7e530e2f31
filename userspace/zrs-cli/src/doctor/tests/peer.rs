// SPDX-License-Identifier: GPL-2.0
//! The way to a host.

use super::*;

/// The steps alone.
fn to(mock: &Mock, host: &str, port: Option<u16>) -> Vec<Check> {
    crate::doctor::peer::checks(mock, host, port)
}

#[test]
fn a_host_that_is_reached() {
    let names = |checks: &[Check]| checks.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    for connect in [(0, Some(LinkState::Up)), (111, Some(LinkState::Up))] {
        let mut mock = well();
        mock.connect = connect;
        let checks = to(&mock, "hostb", None);
        let steps = ["address", "route", "device to there", "link", "round trip"];
        assert_eq!(names(&checks), steps);
        assert!(checks.iter().all(|c| c.status == Status::Ok), "{checks:#?}");
        assert_eq!(checks[0].text, "hostb is 192.0.2.2");
        assert_eq!(checks[4].text, "0.12 ms to connect again");
    }
    let checks = to(&well(), "192.0.2.2", Some(7000));
    has(
        &checks,
        "port",
        Status::Ok,
        "7000 of 192.0.2.2 takes connections",
    );
}

#[test]
fn the_step_that_fails() {
    let host = "192.0.2.2";
    only(
        &to(&well(), "nowhere", None),
        "address",
        Failure,
        "nowhere has no address",
    );
    only(
        &to(&well(), "198.51.100.1", None),
        "route",
        Failure,
        "no route",
    );
    let other = well().command(
        "ip -o route get 192.0.2.2",
        "192.0.2.2 dev eth0 src 192.0.2.9\n",
    );
    only(
        &to(&other, host, None),
        "device to there",
        Failure,
        "no RDMA device belongs to eth0",
    );

    let with = |errno: i32, link: Option<LinkState>| {
        let mut mock = well();
        mock.connect = (errno, link);
        mock
    };
    let up = Some(LinkState::Up);
    for (errno, text) in [
        (111, "ZRS does not answer there"),
        (110, "does not answer, after 2.00 ms"),
        (113, "connection manager does not reach"),
        (19, "cannot be used"),
        (101, "no RDMA route"),
        (71, "no common version"),
        (12, "no room"),
        (105, "no room"),
        (104, "went down"),
        (93, "rotocol not supported"),
    ] {
        only(&to(&with(errno, None), host, None), "link", Failure, text);
    }
    for errno in [110, 113] {
        let lost =
            with(errno, None).command("ip neigh show to 192.0.2.2", "192.0.2.2 dev eth1 FAILED\n");
        only(
            &to(&lost, host, None),
            "neighbour",
            Failure,
            "does not answer ARP",
        );
    }
    only(
        &to(&with(111, up), host, Some(7)),
        "port",
        Failure,
        "refuses connections to port 7",
    );
    only(
        &to(&with(110, up), host, Some(7)),
        "port",
        Failure,
        "backlog is full",
    );
    only(
        &to(&with(111, None), host, Some(7)),
        "link",
        Failure,
        "ZRS does not answer",
    );
}

#[test]
fn this_host_needs_no_device_on_the_way() {
    let here = well().command(
        "ip -o route get 192.0.2.1",
        "local 192.0.2.1 dev lo src 192.0.2.1 uid 0\n",
    );
    let checks = to(&here, "192.0.2.1", None);
    assert!(checks.iter().all(|c| c.name != "device to there"));
    assert!(checks.iter().any(|c| c.name == "link"));
}

#[test]
fn addresses_with_an_interface() {
    let mock = well().command("ip -o route get fe80::2", "fe80::2 dev eth1 src fe80::1\n");
    has(
        &to(&mock, "fe80::2%2", None),
        "address",
        Status::Ok,
        "fe80::2%2",
    );
    has(&to(&mock, "fe80::2%2", None), "link", Status::Ok, "up");
}
