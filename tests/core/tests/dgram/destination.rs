// SPDX-License-Identifier: GPL-2.0

use std::net::{Ipv4Addr, Ipv6Addr};

use zrs_core::addr::{Addr, Ip};
use zrs_core::dgram::destination::{len_max, report, Refused, Report, Sender};

fn v4(n: u8) -> Ip {
    Ipv4Addr::new(10, 0, 0, n).into()
}

fn v6(n: u16) -> Ip {
    Ip::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n), 0)
}

fn sender(local: Ip) -> Sender {
    Sender {
        local,
        only_v6: false,
        remote: None,
    }
}

// rows: Z7
#[test]
fn given_or_connected() {
    let (peer, other) = (Addr::new(v4(1), 7), Addr::new(v4(2), 8));
    let open = sender(Ip::ANY_V4);
    assert_eq!(open.destination(Some(other), 5), Ok(other));
    assert_eq!(open.destination(None, 5), Err(Refused::NoAddress));
    let connected = Sender {
        remote: Some(peer),
        ..open
    };
    assert_eq!(connected.destination(None, 5), Ok(peer));
    assert_eq!(connected.destination(Some(other), 5), Ok(other));
    let no_port = Some(Addr::new(v4(2), 0));
    assert_eq!(connected.destination(no_port, 5), Err(Refused::NoPort));
}

// rows: Z7
#[test]
fn lengths() {
    let s = sender(Ip::ANY);
    for (ip, most) in [(v4(1), 65_507), (v6(1), 65_527)] {
        assert_eq!(len_max(ip), most);
        let to = Addr::new(ip, 7);
        let most = most as usize;
        assert_eq!(s.destination(Some(to), most), Ok(to));
        for long in [most + 1, 65_535, 65_536, usize::MAX] {
            assert_eq!(s.destination(Some(to), long), Err(Refused::TooLong));
        }
    }
    // Too long for any address is found before the address is looked at.
    assert_eq!(s.destination(None, 65_536), Err(Refused::TooLong));
    assert_eq!(s.destination(None, 65_535), Err(Refused::NoAddress));
}

// rows: Z7 B6
#[test]
fn families() {
    let to4 = Addr::new(v4(1), 7);
    let to6 = Addr::new(v6(1), 7);
    let table = [
        (sender(Ip::ANY_V4), true, false),
        (sender(v4(9)), true, false),
        (sender(Ip::ANY), true, true),
        (sender(v6(9)), false, true),
        (
            Sender {
                only_v6: true,
                ..sender(Ip::ANY)
            },
            false,
            true,
        ),
    ];
    for (s, takes4, takes6) in table {
        for (to, takes) in [(to4, takes4), (to6, takes6)] {
            let expected = match takes {
                true => Ok(to),
                false if to == to6 => Err(Refused::WrongFamily),
                false => Err(Refused::Unreachable),
            };
            assert_eq!(s.destination(Some(to), 1), expected, "{s:?} {to:?}");
            assert_eq!(s.reachable(to), expected);
        }
    }
}

// rows: Z7
#[test]
fn no_multicast_and_no_broadcast() {
    let many: [Ip; 3] = [
        Ipv4Addr::new(224, 0, 0, 1).into(),
        Ipv4Addr::BROADCAST.into(),
        Ip::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 3),
    ];
    for ip in many {
        let to = Addr::new(ip, 7);
        assert_eq!(
            sender(Ip::ANY).destination(Some(to), 1),
            Err(Refused::Unreachable)
        );
    }
}

// rows: Z7
#[test]
fn unspecified_is_this_host() {
    let s = sender(Ip::ANY);
    let to = |ip| s.destination(Some(Addr::new(ip, 7)), 1).map(|a| a.ip);
    assert_eq!(to(Ip::ANY_V4), Ok(Ipv4Addr::LOCALHOST.into()));
    assert_eq!(to(Ip::ANY), Ok(Ip::new(Ipv6Addr::LOCALHOST, 0)));
}

// rows: Z7
#[test]
fn reports_are_those_of_udp() {
    let table = [
        (false, false, false, false),
        (true, false, true, false),
        (false, true, true, true),
        (true, true, true, true),
    ];
    for (connected, recverr, so_error, queued) in table {
        let report = |refused| report(connected, recverr, refused);
        assert_eq!(report(true), Report { so_error, queued });
        // A local error without a peer is on the queue alone.
        let so_error = connected;
        assert_eq!(report(false), Report { so_error, queued });
    }
}
