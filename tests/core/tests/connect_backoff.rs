// SPDX-License-Identifier: GPL-2.0

//! How long a connect goes on, and when it is tried again where the peer's backlog was full.

use proptest::prelude::*;
use zrs_core::connect_backoff::{ConnectBackoff, FIRST_MS, MOST_MS};

const MS: u64 = 1_000_000;
const ANSWER: u32 = 1000;
const MOST: u32 = 127_000;

// rows: E5 Z1
#[test]
fn delays_grow_up_to_a_bound() {
    let mut now = 12_345;
    let mut again = ConnectBackoff::new(now, ANSWER, MOST);
    assert_eq!(again.at(), None);
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
    let mut again = ConnectBackoff::new(u64::MAX - 2, ANSWER, MOST);
    assert_eq!(again.deadline(), u64::MAX);
    again.refused(u64::MAX - 1);
    assert_eq!(again.at(), Some(u64::MAX));
    assert!(!again.due(u64::MAX - 1));
    // A later refusal counts, not the one before.
    again.refused(0);
    assert_eq!(again.at(), Some(100 * MS));
}

// A peer whose backlog stays full, and that answers at once, is waited for as long as it may be in
// all.
// rows: E5 Z1
#[test]
fn who_answers_has_time() {
    let begin = 5_000 * MS;
    let mut now = begin;
    let mut again = ConnectBackoff::new(now, ANSWER, MOST);
    let end = begin + u64::from(MOST) * MS;
    while now < end {
        assert!(now < again.deadline());
        again.refused(now);
        assert_eq!(again.deadline(), end);
        now = again.at().expect("a time").min(end);
        again.due(now);
    }
    assert_eq!(again.deadline(), end);
}

// One that stops answering is not, whether it did at once, at a later try, or when the link had
// gone.
// rows: E5 B12
#[test]
fn who_does_not_answer_has_not() {
    let answer = u64::from(ANSWER) * MS;
    let mut again = ConnectBackoff::new(0, ANSWER, MOST);
    assert_eq!(again.deadline(), answer);
    again.refused(900 * MS);
    let at = again.at().expect("a time");
    assert!(again.due(at + 3));
    assert_eq!(again.deadline(), at + 3 + answer);

    again.refused(at + 10);
    again.link_changed(at + 20);
    assert_eq!((again.at(), again.deadline()), (None, at + 20 + answer));
    // Nor does it have more for each link that goes down.
    again.link_changed(at + 30);
    assert_eq!((again.at(), again.deadline()), (None, at + 20 + answer));
}

proptest! {
    /// It always ends: in time after the last answer, and within its total time.
    // rows: E5
    #[test]
    fn it_ends(
        begin in 0..u64::MAX / 2,
        answer in 1_u32..600_000,
        most in 1_u32..15_000_000,
        events in prop::collection::vec((0_u64..2_000 * MS, 0..3), 0..200),
    ) {
        let mut now = begin;
        let mut again = ConnectBackoff::new(now, answer, most);
        let mut asked = Some(now);
        let end = begin + u64::from(most) * MS;
        for (step, event) in events {
            now += step;
            match event {
                0 => {
                    again.refused(now);
                    asked = None;
                }
                1 => if again.due(now) {
                    prop_assert_eq!(asked, None);
                    asked = Some(now);
                },
                _ => {
                    again.link_changed(now);
                    asked = asked.or(Some(now));
                }
            }
            prop_assert_eq!(asked.is_none(), again.at().is_some());
            let alone = asked.map_or(end, |at| at + u64::from(answer) * MS);
            prop_assert_eq!(again.deadline(), alone.min(end));
        }
    }
}
