// SPDX-License-Identifier: GPL-2.0

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use zrs_core::addr::Ip;
use zrs_core::dgram::control::{Control, Invalid};

/// A control message as CMSG_LEN and CMSG_SPACE lay it out.
fn cmsg(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + data.len()).to_ne_bytes().to_vec();
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0xee);
    bytes
}

fn v4(n: u8) -> Ip {
    Ipv4Addr::new(10, 0, 0, n).into()
}

fn v6(n: u16) -> Ip {
    Ip::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n), 0)
}

fn pktinfo(dev: u32, ip: Ip) -> Vec<u8> {
    let source = ip.v4().unwrap().octets();
    [&dev.to_ne_bytes()[..], &source, &[9; 4]].concat()
}

fn pktinfo6(dev: u32, ip: Ip) -> Vec<u8> {
    [&ip.octets()[..], &dev.to_ne_bytes()].concat()
}

// rows: Z7
#[test]
fn several_messages() {
    let to = v4(1);
    let mut all = cmsg(17, 103, &1200_u16.to_ne_bytes());
    all.extend(cmsg(0, 1, &[3]));
    all.extend(cmsg(0, 8, &pktinfo(5, v4(2))));
    all.extend(cmsg(1, 1, &[0; 4]));
    let want = Control {
        segment: Some(1200),
        source: Some(v4(2)),
        interface: 5,
    };
    assert_eq!(Control::parse(&all, to, false), Ok(want));
    // The last one may lack its padding, and what is shorter than a header is none.
    let short = cmsg(17, 103, &9_u16.to_ne_bytes());
    let segment = Some(9);
    for len in 18..=24 {
        let c = Control::parse(&short[..len], to, false);
        assert_eq!(
            c,
            Ok(Control {
                segment,
                ..Control::default()
            })
        );
    }
    assert_eq!(
        Control::parse(&short[..15], to, false),
        Ok(Control::default())
    );
    assert_eq!(Control::parse(&[], to, false), Ok(Control::default()));
}

// rows: Z7 E5
#[test]
fn as_udp_takes_them() {
    let int = |n: i32| n.to_ne_bytes().to_vec();
    let (to4, to6) = (v4(1), v6(1));
    let any6 = pktinfo6(0, Ip::ANY);
    // To, whether the socket is one of AF_INET6, level, type, value, whether it is taken.
    type Case = (Ip, bool, i32, i32, Vec<u8>, bool);
    let cases: &[Case] = &[
        (to4, false, 0, 2, int(0), false),
        (to4, false, 0, 2, int(1), true),
        (to4, false, 0, 2, int(255), true),
        (to4, false, 0, 2, int(256), false),
        (to4, false, 0, 2, vec![1], false),
        (to4, false, 0, 1, int(-1), false),
        (to4, false, 0, 1, int(255), true),
        (to4, false, 0, 1, vec![255], true),
        (to4, false, 0, 1, vec![1, 2], false),
        (to4, false, 0, 8, vec![0; 11], false),
        (to4, false, 0, 8, vec![0; 12], true),
        (to4, false, 0, 8, vec![0; 13], false),
        (to4, false, 0, 77, int(1), false),
        (to4, false, 41, 77, int(1), true),
        (to4, false, 41, 50, vec![0; 3], true),
        (to4, true, 41, 50, pktinfo6(0, v4(2)), true),
        (to4, true, 41, 50, pktinfo6(0, v6(2)), false),
        (to4, true, 41, 50, any6.clone(), false),
        (to6, true, 41, 50, any6, true),
        (to6, true, 41, 50, pktinfo6(0, v6(2)), true),
        (to6, true, 41, 50, pktinfo6(0, v4(2)), false),
        (to6, true, 41, 50, vec![0; 19], false),
        (to6, true, 41, 52, int(-1), true),
        (to6, true, 41, 52, int(-2), false),
        (to6, true, 41, 67, int(256), false),
        (to6, true, 41, 62, int(2), false),
        (to6, true, 41, 62, int(1), true),
        (to6, true, 41, 77, int(1), false),
        (to6, true, 0, 77, int(1), true),
        (to4, false, 17, 103, int(7), false),
        (to4, false, 17, 1, int(7), false),
        (to4, false, 1, 2, int(7), true),
        (to4, false, 1, 99, int(7), false),
        (to4, false, 6, 1, int(7), true),
    ];
    for (to, of_v6, level, kind, value, taken) in cases {
        let done = Control::parse(&cmsg(*level, *kind, value), *to, *of_v6);
        assert_eq!(
            done.is_ok(),
            *taken,
            "{to:?} {of_v6} {level} {kind} {value:?}"
        );
    }
}

// rows: Z7
#[test]
fn without_a_source() {
    let none = Control {
        interface: 7,
        ..Control::default()
    };
    let c = Control::parse(&cmsg(0, 8, &pktinfo(7, Ip::ANY_V4)), v4(1), false);
    assert_eq!(c, Ok(none));
    let c = Control::parse(&cmsg(41, 50, &pktinfo6(7, Ip::ANY)), v6(1), true);
    assert_eq!(c, Ok(none));
}

proptest! {
    // rows: Z7 E5
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), v6_to: bool, of_v6: bool) {
        let to = if v6_to { v6(1) } else { v4(1) };
        let _ = Control::parse(&bytes, to, of_v6);
    }

    // rows: Z7 E5
    #[test]
    fn a_length_that_is_wrong(len: usize, data in 0_usize..20) {
        let mut bytes = cmsg(6, 1, &vec![0; data]);
        bytes[..8].copy_from_slice(&len.to_ne_bytes());
        let good = (16..=bytes.len()).contains(&len);
        let seen = Control::parse(&bytes, v4(1), false);
        // A good length may leave a rest that is a message of its own.
        if !good {
            prop_assert_eq!(seen, Err(Invalid));
        }
    }
}
