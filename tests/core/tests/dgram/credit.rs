// SPDX-License-Identifier: GPL-2.0

use std::collections::VecDeque;

use proptest::prelude::*;
use zrs_core::dgram::credit::CreditShare;
use zrs_core::dgram::wire::FRAGMENTS_MAX;
use zrs_core::link_flow::{LinkFlow, CONTROL_RESERVE, MIN_CREDIT};

use super::slots;

type Share = CreditShare<Vec<Option<u32>>>;

fn share(flow: &LinkFlow, credit: u32) -> Share {
    CreditShare::new(slots(Share::slots_for(credit) as usize), flow)
}

// rows: Z7
#[test]
fn half_of_the_credit() {
    for credit in [MIN_CREDIT, 33, 64, 1000] {
        // Numbers wrap on the way.
        let mut flow = LinkFlow::starting_at(1 << 20, credit, u32::MAX - 10).unwrap();
        let mut share = share(&flow, credit);
        let mut sent = 0;
        while share.has_room(&flow, 1) {
            share.sending(&mut flow);
            sent += 1;
        }
        assert_eq!(sent, credit / 2);
        assert_eq!(share.in_flight() as u32, sent);
        assert!(
            flow.available(false) >= credit / 2 - CONTROL_RESERVE,
            "for streams"
        );
        // Each SEND that the peer frees makes room for another one.
        let start = (u32::MAX - 10).wrapping_add(credit);
        for freed in 1..=sent {
            flow.arrived(start.wrapping_add(freed)).unwrap();
            assert!(share.has_room(&flow, freed));
            assert!(freed == sent || !share.has_room(&flow, freed + 1));
        }
    }
}

// rows: Z7
#[test]
fn the_longest_datagram_fits_the_least_credit() {
    let mut flow = LinkFlow::new(64, MIN_CREDIT).unwrap();
    let mut share = share(&flow, MIN_CREDIT);
    assert!(share.has_room(&flow, FRAGMENTS_MAX));
    share.sending(&mut flow);
    assert!(
        !share.has_room(&flow, FRAGMENTS_MAX),
        "all of it, or nothing"
    );
}

// rows: Z7
#[test]
fn a_number_that_was_freed_long_ago_is_not_in_flight() {
    // Streams send most of the numbers, and nobody looks meanwhile.
    for between in [100, 1 << 31, (1 << 31) + 5, u32::MAX - 200] {
        let mut flow = LinkFlow::new(64, 64).unwrap();
        let mut share = share(&flow, 64);
        assert!(share.has_room(&flow, 1));
        share.sending(&mut flow);
        let flow = LinkFlow::starting_at(1 << 20, 64, between).unwrap();
        assert!(share.has_room(&flow, 32), "{between} SENDs later");
        assert_eq!(share.in_flight(), 0);
    }
}

// rows: Z7
#[test]
fn streams_are_not_counted_but_keep_their_reserve() {
    let mut flow = LinkFlow::new(64, 64).unwrap();
    let mut share = share(&flow, 64);
    for _ in 0..40 {
        flow.sending();
    }
    assert!(share.has_room(&flow, 64 - 40 - CONTROL_RESERVE));
    assert!(!share.has_room(&flow, 64 - 40 - CONTROL_RESERVE + 1));
    assert_eq!(share.in_flight(), 0);
}

// rows: Z7
#[test]
fn a_peer_that_grants_more() {
    // Elastic link credit: the allowance grows without anything having been freed.
    let mut flow = LinkFlow::new(64, 32).unwrap();
    let mut share = share(&flow, 32);
    flow.arrived(1000).unwrap();
    let mut sent = 0;
    while sent < 500 && share.has_room(&flow, 1) {
        share.sending(&mut flow);
        sent += 1;
    }
    assert_eq!(sent, 500);
}

proptest! {
    /// A peer that frees in order: what is in flight is known exactly, and never more than half.
    // rows: Z7
    #[test]
    fn against_a_list(
        credit in MIN_CREDIT..200,
        at in prop_oneof![Just(0), Just(u32::MAX - 50), any::<u32>()],
        ops in proptest::collection::vec((0..3_u8, 1..17_u32), 0..300),
    ) {
        let mut flow = LinkFlow::starting_at(1 << 20, credit, at).unwrap();
        let mut share = share(&flow, credit);
        let mut in_flight: VecDeque<bool> = VecDeque::new();
        let mut told = at.wrapping_add(credit);
        for (op, n) in ops {
            let ours = in_flight.iter().filter(|dgram| **dgram).count() as u32;
            match op {
                0 => {
                    let fits = ours + n <= credit / 2
                        && in_flight.len() as u32 + n + CONTROL_RESERVE <= credit;
                    prop_assert_eq!(share.has_room(&flow, n), fits);
                    for _ in 0..if fits { n } else { 0 } {
                        share.sending(&mut flow);
                        in_flight.push_back(true);
                    }
                }
                1 if flow.available(false) > 0 => {
                    flow.sending();
                    in_flight.push_back(false);
                }
                _ => {
                    let n = n.min(in_flight.len() as u32);
                    in_flight.drain(..n as usize);
                    told = told.wrapping_add(n);
                    prop_assert_eq!(flow.arrived(told), Ok(()));
                }
            }
        }
    }
}
