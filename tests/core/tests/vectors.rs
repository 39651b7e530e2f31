// SPDX-License-Identifier: GPL-2.0

//! Completion vectors of links.

use std::collections::BTreeSet;
use zrs_core::vectors::{vector, Kind};

// rows: B20
#[test]
fn links_take_turns() {
    let of = |kind, vectors| -> Vec<u32> { (0..6).map(|n| vector(kind, n, vectors)).collect() };
    assert_eq!(of(Kind::Stream, 4), [0, 1, 2, 3, 0, 1]);
    assert_eq!(of(Kind::Memory, 4), [3, 2, 1, 0, 3, 2]);
    assert_eq!(of(Kind::Stream, 1), [0; 6]);
    assert_eq!(of(Kind::Memory, 1), [0; 6]);
    // A device that reports none has one.
    assert_eq!(of(Kind::Stream, 0), [0; 6]);
    assert_eq!(of(Kind::Memory, 0), [0; 6]);
}

// rows: B20
#[test]
fn each_vector_has_its_share() {
    for kind in [Kind::Stream, Kind::Memory] {
        for vectors in 1..=70 {
            for first in [0, 1, u64::from(u32::MAX), u64::MAX / 2] {
                let turn = (0..u64::from(vectors)).map(|n| vector(kind, first + n, vectors));
                let seen: BTreeSet<u32> = turn.collect();
                assert_eq!(seen, (0..vectors).collect());
            }
        }
    }
}
