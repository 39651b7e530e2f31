// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;

use proptest::prelude::*;
use zrs_core::dgram::refusals::{Refusals, INTERVAL_NS, PORTS};
use zrs_core::dgram::wire::Ports;

fn ports(dst: u16, src: u16) -> Ports {
    Ports { dst, src }
}

// rows: Z7 B11
#[test]
fn one_for_the_same_ports() {
    let mut r = Refusals::default();
    assert!(r.may_answer(ports(1, 2), 5));
    assert!(!r.may_answer(ports(1, 2), 5));
    assert!(!r.may_answer(ports(1, 2), 4 + INTERVAL_NS));
    // Another socket of the peer is told as well.
    assert!(r.may_answer(ports(1, 3), 6));
    assert!(r.may_answer(ports(1, 2), 5 + INTERVAL_NS));
}

// rows: Z7 B11
#[test]
fn a_flood_of_ports_is_answered_by_few() {
    let mut r = Refusals::default();
    let answers = (0..60_000)
        .filter(|p| r.may_answer(ports(*p, 1), 0))
        .count();
    assert_eq!(answers, PORTS);
    let answers = (0..60_000)
        .filter(|p| r.may_answer(ports(*p, 1), INTERVAL_NS))
        .count();
    assert_eq!(answers, PORTS);
}

proptest! {
    // rows: Z7 B11
    #[test]
    fn against_a_map(steps in proptest::collection::vec((0..24_u16, 0..INTERVAL_NS / 8), 0..200)) {
        let mut r = Refusals::default();
        let mut model: BTreeMap<u16, u64> = BTreeMap::new();
        let mut now = 0;
        for (port, later) in steps {
            now += later;
            model.retain(|_, at| now < *at + INTERVAL_NS);
            let expected = !model.contains_key(&port) && model.len() < PORTS;
            prop_assert_eq!(r.may_answer(ports(port, 9), now), expected);
            if expected {
                model.insert(port, now);
            }
        }
    }
}
