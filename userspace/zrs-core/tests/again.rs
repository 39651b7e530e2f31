// SPDX-License-Identifier: GPL-2.0

//! When a connect is tried again whose peer's backlog was full.

use zrs_core::again::{Again, FIRST_MS, MOST_MS};

const MS: u64 = 1_000_000;

// rows: E5 Z1
#[test]
fn delays_grow_up_to_a_bound() {
    let mut again = Again::default();
    assert_eq!(again.at(), None);
    let mut now = 12_345;
    let mut delays = Vec::new();
    for _ in 0..40 {
        again.refused(now);
        let at = again.at().expect("a time");
        delays.push((at - now) / MS);
        assert!(!again.due(at - 1));
        assert!(again.due(at));
        assert_eq!(again.at(), None);
        assert!(!again.due(u64::MAX), "once");
        now = at;
    }
    assert_eq!(delays[..7], [50, 100, 200, 400, 800, 1000, 1000]);
    assert_eq!((FIRST_MS, MOST_MS), (50, 1000));
    assert!(delays[7..].iter().all(|ms| *ms == u64::from(MOST_MS)));
}

// rows: E5
#[test]
fn the_end_of_time() {
    let mut again = Again::default();
    again.refused(u64::MAX - 1);
    assert_eq!(again.at(), Some(u64::MAX));
    assert!(!again.due(u64::MAX - 1));
    // A later refusal counts, not the one before.
    again.refused(0);
    assert_eq!(again.at(), Some(100 * MS));
}
