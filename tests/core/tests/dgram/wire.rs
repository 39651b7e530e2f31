// SPDX-License-Identifier: GPL-2.0

//! The messages against the tables of `Documentation/protocol.rst`.

use proptest::prelude::*;
use zrs_core::dgram::wire::{
    fragment_count, fragments, Body, DgramHeader, Fragment, Message, PortState, Ports, FEATURE,
    FRAGMENT, FRAGMENTS_MAX, LEN_MAX, LEN_MAX_V4,
};
use zrs_core::wire::{Header, Type, FEATURES, HEADER_LEN};
use zrs_core::{ChanId, Violation};

type Bytes = [u8; HEADER_LEN];

const PORTS: Ports = Ports { dst: 53, src: 4000 };

fn encode(body: Body) -> Bytes {
    let link_credit = 0x0102_0304;
    DgramHeader { link_credit, body }.encode()
}

fn fragment(total: u32, offset: u32) -> Fragment {
    Fragment {
        ports: PORTS,
        id: 7,
        total,
        offset,
    }
}

/// A header with these fields, written by hand.
fn by_hand(kind: u8, len: u32, pos: u64, woff: u64, arg0: u32, arg1: u32) -> Bytes {
    let mut b = [0; HEADER_LEN];
    b[..2].copy_from_slice(&[1, kind]);
    b[4..8].copy_from_slice(&len.to_le_bytes());
    b[24..32].copy_from_slice(&pos.to_le_bytes());
    b[32..40].copy_from_slice(&woff.to_le_bytes());
    b[60..64].copy_from_slice(&[4, 3, 2, 1]);
    b[64..68].copy_from_slice(&arg0.to_le_bytes());
    b[68..72].copy_from_slice(&arg1.to_le_bytes());
    b
}

// rows: Z7
#[test]
fn layout() {
    let ports = (53 << 16) | 4000;
    let messages = [
        (
            Body::Datagram(fragment(5000, 4096)),
            by_hand(32, 904, 5000, 4096, ports, 7),
        ),
        (
            Body::Datagram(fragment(0, 0)),
            by_hand(32, 0, 0, 0, ports, 7),
        ),
        (Body::Probe(PORTS), by_hand(33, 0, 0, 0, ports, 0)),
        (
            Body::Port(PORTS, PortState::Closed),
            by_hand(34, 0, 0, 0, ports, 0),
        ),
        (
            Body::Port(PORTS, PortState::Open),
            by_hand(34, 0, 0, 0, ports, 1),
        ),
        (
            Body::Port(PORTS, PortState::Unknown(9)),
            by_hand(34, 0, 0, 0, ports, 9),
        ),
    ];
    for (body, bytes) in messages {
        assert_eq!(encode(body), bytes, "{body:?}");
        let payload = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let link_credit = 0x0102_0304;
        let header = DgramHeader { link_credit, body };
        assert_eq!(DgramHeader::decode(&bytes, payload), Ok(header));
    }
    let reversed = Ports { dst: 4000, src: 53 };
    assert_eq!(PORTS.reversed(), reversed);
    assert_eq!(Ports::from_u32(PORTS.to_u32()), PORTS);
}

// rows: Z7
#[test]
fn limits_are_those_of_udp() {
    // 65535 less the headers of UDP, and of IPv4.
    assert_eq!(LEN_MAX, 65_535 - 8);
    assert_eq!(LEN_MAX_V4, 65_535 - 8 - 20);
    assert_eq!(FRAGMENTS_MAX, 16);
    assert_eq!(fragment_count(0), 1);
    assert_eq!(fragment_count(4096), 1);
    assert_eq!(fragment_count(4097), 2);
}

// rows: Z7
#[test]
fn fragments_are_the_datagram() {
    let mut totals: Vec<u32> = vec![0, 1, 65_507, LEN_MAX];
    totals.extend((1..=15).flat_map(|n| [n * FRAGMENT - 1, n * FRAGMENT, n * FRAGMENT + 1]));
    for total in totals {
        let all: Vec<Fragment> = fragments(PORTS, 3, total).collect();
        assert_eq!(all.len(), fragment_count(total) as usize);
        let mut at = 0;
        for (n, f) in all.iter().enumerate() {
            assert_eq!((f.offset, f.total, f.id, f.ports), (at, total, 3, PORTS));
            assert_eq!(f.is_first(), n == 0);
            assert_eq!(f.is_last(), n + 1 == all.len());
            assert!(f.is_last() || f.len() == FRAGMENT);
            assert_eq!(f.is_empty(), total == 0);
            at = f.end();
            let bytes = encode(Body::Datagram(*f));
            assert!(DgramHeader::decode(&bytes, f.len()).is_ok(), "{f:?}");
        }
        assert_eq!(at, total);
    }
}

/// The documentation's rules for the fields of a fragment.
fn is_good(total: u64, offset: u64, len: u64) -> bool {
    let ends = offset + len == total;
    total <= 65_527
        && offset % 4096 == 0
        && offset + len <= total
        && (len == 4096 || ends && len < 4096)
        && (len != 0 || total == 0)
}

proptest! {
    // rows: Z7 B11
    #[test]
    fn fragment_rules(
        total in prop_oneof![0..70_000_u64, Just(0), Just(65_527), Just(65_528), any::<u64>()],
        blocks in 0..20_u64,
        ragged in prop_oneof![9 => Just(0), 1 => any::<u64>()],
        len in prop_oneof![
            2 => Just(4096), 2 => Just(0), 1 => 0..5000_u32, 1 => any::<u32>()
        ],
        fitting in any::<bool>(),
        payload_off in prop_oneof![9 => Just(0_u32), 1 => any::<u32>()],
    ) {
        let offset = (blocks * 4096).wrapping_add(ragged);
        let rest = total.saturating_sub(offset).min(4096) as u32;
        let len = if fitting { rest } else { len };
        let bytes = by_hand(32, len, total, offset, 0x0001_0002, 3);
        let payload = len.wrapping_add(payload_off);
        let decoded = DgramHeader::decode(&bytes, payload);
        let unwrapped = offset.checked_add(len.into()).is_some();
        let good = payload == len && unwrapped && is_good(total, offset, len.into());
        prop_assert_eq!(decoded.is_ok(), good, "{:?}", decoded);
        if let Ok(h) = decoded {
            prop_assert_eq!(h.encode(), bytes);
        }
    }
}

// rows: Z7 B11
#[test]
fn each_rule_of_a_header() {
    let good = encode(Body::Datagram(fragment(100, 0)));
    let with = |at: usize, v: u8| {
        let mut b = good;
        b[at] = v;
        DgramHeader::decode(&b, 100).err()
    };
    assert_eq!(with(0, 1), None);
    assert_eq!(with(0, 2), Some(Violation::Version));
    for kind in (0..32).chain(35..=255) {
        assert_eq!(with(1, kind), Some(Violation::Type), "{kind}");
    }
    for flags in [2, 3] {
        assert_eq!(with(flags, 1), Some(Violation::Type));
    }
    for id in 8..24 {
        assert_eq!(with(id, 1), Some(Violation::Channel), "byte {id}");
    }
    for high in 28..32 {
        assert_eq!(with(high, 1), Some(Violation::Length), "byte {high}");
    }
    for high in 32..40 {
        assert_eq!(with(high, 1), Some(Violation::Position), "byte {high}");
    }
    for reserved in 84..96 {
        assert_eq!(with(reserved, 1), Some(Violation::Reserved));
    }
    // Without meaning, and ignored.
    for unused in (40..60).chain(72..84) {
        assert_eq!(with(unused, 1), None, "byte {unused}");
    }
    for payload in [0, 99, 101] {
        let decoded = DgramHeader::decode(&good, payload);
        assert_eq!(decoded, Err(Violation::Length));
    }
    for body in [Body::Probe(PORTS), Body::Port(PORTS, PortState::Open)] {
        let mut b = encode(body);
        assert_eq!(DgramHeader::decode(&b, 1), Err(Violation::Length));
        b[4] = 1;
        assert_eq!(DgramHeader::decode(&b, 1), Err(Violation::Length));
    }
}

// rows: Z7 B11
#[test]
fn only_with_the_feature_and_in_its_direction() {
    assert_eq!(FEATURES & FEATURE, FEATURE, "this host takes datagrams");
    let bodies = [
        (Body::Datagram(fragment(0, 0)), true),
        (Body::Probe(PORTS), true),
        (Body::Port(PORTS, PortState::Closed), false),
    ];
    for (body, connectors) in bodies {
        let bytes = encode(body);
        for from_connector in [false, true] {
            let without = Message::decode(&bytes, 0, !FEATURE, from_connector);
            assert_eq!(without, Err(Violation::Type));
            let with = Message::decode(&bytes, 0, FEATURE, from_connector);
            if from_connector == connectors {
                assert_eq!(with.map(|m| m.link_credit()), Ok(0x0102_0304));
            } else {
                assert_eq!(with, Err(Violation::State));
            }
        }
    }
    let mut reserved = encode(Body::Probe(PORTS));
    for kind in 35..=47 {
        reserved[1] = kind;
        let decoded = Message::decode(&reserved, 0, FEATURE, true);
        assert_eq!(decoded, Err(Violation::Type), "{kind}");
    }
}

// rows: Z7
#[test]
fn streams_are_as_they_were() {
    let chan = |index| ChanId { index, gen: 1 };
    let mut h = Header::new(Type::Credit, chan(3), chan(4));
    h.link_credit = 99;
    for features in [0, FEATURE, u32::MAX] {
        let decoded = Message::decode(&h.encode(), 0, features, false);
        assert_eq!(decoded, Ok(Message::Stream(h)));
        assert_eq!(decoded.map(|m| m.link_credit()), Ok(99));
    }
}
