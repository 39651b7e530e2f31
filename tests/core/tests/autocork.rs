// SPDX-License-Identifier: GPL-2.0

//! Automatic corking: which messages are marks, and how long small ones wait.

use common::cases;
use proptest::prelude::*;
use zrs_core::autocork::{AutoCork, IN_A_ROW};

// rows: C1 Z5
#[test]
fn request_and_response_wait_for_nothing() {
    let mut c = AutoCork::new();
    for round in 1..100 {
        // The message before is unsignaled, so it is not known to be complete.
        assert!(!c.posted(round * 64, round, true, true, false));
        assert!(!c.holds(0));
    }
}

// rows: C1 Z5
#[test]
fn messages_in_a_row_wait_for_the_last_of_them() {
    let mut c = AutoCork::new();
    assert!(!c.posted(64, 7, true, false, false), "the first one");
    for n in 2..u64::from(IN_A_ROW) {
        assert!(!c.posted(n * 64, 7, true, true, false));
        assert!(!c.holds(0));
    }
    assert!(c.posted(1000, 7, true, true, false));
    assert!(c.holds(0) && c.holds(999));
    assert!(!c.holds(1000), "the device is done with it");
    // A message of corked bytes is a mark, also a full message, and after bytes from the peer.
    assert!(c.posted(1000 + 4096, 8, true, false, true));
    assert!(c.holds(1000));
    // Others behind it change nothing.
    assert!(!c.posted(100_000, 8, false, true, false));
    assert!(!c.holds(1000 + 4096));
}

// rows: C1 Z5
#[test]
fn a_row_of_large_ones_is_none() {
    let mut c = AutoCork::new();
    for n in 1..100 {
        assert!(!c.posted(n * 100_000, 0, false, true, false));
    }
    assert!(
        c.posted(10_000_001, 0, true, true, false),
        "a small one behind them"
    );
}

// rows: C1 Z5
#[test]
fn one_now_and_then_waits_for_nothing() {
    let mut c = AutoCork::new();
    for n in 1..10 {
        assert!(!c.posted(n * 64, 0, true, false, false));
        assert!(!c.holds(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    // A stream of small messages, and the device that completes them in order at any time: bytes
    // wait only while a signaled message is on its way, whose completion sends them.
    // rows: Z5 C1
    #[test]
    fn what_waits_is_sent(steps in proptest::collection::vec((0..5u8, 1..2000u32), 1..200)) {
        let mut c = AutoCork::new();
        let (mut end, mut done, mut received, mut corked) = (0u64, 0u64, 0u64, 0u64);
        // Ends of messages that the device has not completed, and whether it tells.
        let mut flying: Vec<(u64, bool)> = Vec::new();
        let post = |c: &mut AutoCork, flying: &mut Vec<(u64, bool)>, end: u64, rx: u64, held: bool| {
            let on_its_way = !flying.is_empty();
            let marks = c.posted(end, rx, true, on_its_way, held);
            flying.push((end, marks));
        };
        for (what, n) in steps {
            match what {
                0 | 1 if c.holds(done) || corked > 0 => corked += u64::from(n),
                0 | 1 => {
                    end += u64::from(n);
                    post(&mut c, &mut flying, end, received, false);
                }
                2 => received += 1,
                _ if flying.is_empty() => {}
                _ => {
                    let (pos, tells) = flying.remove(0);
                    if tells {
                        done = pos;
                        if corked > 0 && !c.holds(done) {
                            end += std::mem::take(&mut corked);
                            post(&mut c, &mut flying, end, received, true);
                        }
                    }
                }
            }
            prop_assert!(corked == 0 || flying.iter().any(|(_, tells)| *tells), "nothing sends the rest");
        }
    }
}
