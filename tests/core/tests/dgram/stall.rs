// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use zrs_core::dgram::stall::{Progress, Stall, Verdict};

const LIMIT: u64 = 20;

// rows: Z7
#[test]
fn waits_once_then_drops_until_there_is_room() {
    let mut s = Stall::default();
    assert_eq!(s.decide(1, true, 100, LIMIT), Verdict::Send);
    let wait = Verdict::Wait { until: 220 };
    assert_eq!(s.decide(1, false, 200, LIMIT), wait);
    // The second sender waits until the same time.
    assert_eq!(s.decide(1, false, 219, LIMIT), wait);
    assert_eq!(s.decide(1, false, 220, LIMIT), Verdict::Drop);
    assert_eq!(s.decide(1, false, 1000, LIMIT), Verdict::Drop);
    assert_eq!(s.drops(), 2);
    // Room ends the stall; the next one has the full time again.
    assert_eq!(s.decide(1, true, 1001, LIMIT), Verdict::Send);
    let wait = Verdict::Wait { until: 1022 };
    assert_eq!(s.decide(1, false, 1002, LIMIT), wait);
    s.clear(1);
    let wait = Verdict::Wait { until: 1024 };
    assert_eq!(s.decide(1, false, 1004, LIMIT), wait);
    assert_eq!(s.drops(), 2);
    s.give_up();
    assert_eq!(s.drops(), 3);
}

// rows: Z7
#[test]
fn a_link_is_stuck_while_nothing_completes() {
    let mut p = Progress::default();
    assert!(!p.is_stuck(0, 1000, LIMIT));
    p.posted(4, 0, 1000);
    assert!(!p.is_stuck(0, 1019, LIMIT));
    // The time is that of the first one.
    p.posted(8, 0, 1019);
    assert!(p.is_stuck(0, 1020, LIMIT));
    // Any completion is progress, and the last one leaves nothing in flight.
    assert!(!p.is_stuck(1, 2000, LIMIT));
    p.posted(12, 4, 2000);
    assert!(!p.is_stuck(4, 2019, LIMIT));
    assert!(p.is_stuck(4, 2020, LIMIT));
    assert!(!p.is_stuck(12, 3000, LIMIT));
    // The next one has the full time, though nothing has completed in between.
    p.posted(16, 12, 4000);
    assert!(!p.is_stuck(12, 4019, LIMIT));
    assert!(p.is_stuck(12, 4020, LIMIT));
    p.posted(20, 16, 5000);
    assert!(!p.is_stuck(20, 6000, LIMIT));
    p.posted(24, 20, 6000);
    assert!(!p.is_stuck(20, 6019, LIMIT));
    assert!(p.is_stuck(20, u64::MAX, u64::MAX - 6000));
}

// rows: Z7
#[test]
fn without_waiting() {
    let mut s = Stall::default();
    assert_eq!(s.decide(1, false, 5, 0), Verdict::Drop);
    assert_eq!(s.decide(1, false, u64::MAX, 0), Verdict::Drop);
    s.clear(1);
    // A clock near its end.
    let wait = Verdict::Wait { until: u64::MAX };
    assert_eq!(s.decide(1, false, u64::MAX - 1, LIMIT), wait);
}

// rows: Z7
#[test]
fn short_datagrams_do_not_have_a_long_one_wait() {
    let mut s = Stall::default();
    let wait = Verdict::Wait { until: 120 };
    assert_eq!(s.decide(16, false, 100, LIMIT), wait);
    for now in 101..120 {
        assert_eq!(s.decide(1, true, now, LIMIT), Verdict::Send);
        assert_eq!(s.decide(16, false, now, LIMIT), wait);
    }
    assert_eq!(s.decide(16, false, 120, LIMIT), Verdict::Drop);
    // A short one has its own time.
    let wait = Verdict::Wait { until: 145 };
    assert_eq!(s.decide(1, false, 125, LIMIT), wait);
    // Where there is room for a long one, there is for others.
    assert_eq!(s.decide(16, true, 130, LIMIT), Verdict::Send);
    let wait = Verdict::Wait { until: 151 };
    assert_eq!(s.decide(1, false, 131, LIMIT), wait);
    // Where there is none for a short one, there is none for others.
    let wait = Verdict::Wait { until: 151 };
    assert_eq!(s.decide(16, false, 140, LIMIT), wait);
    assert_eq!(s.drops(), 1);
}

proptest! {
    // rows: Z7
    #[test]
    fn nothing_is_dropped_early_and_nothing_waits_long(
        limit in 0..50_u64,
        steps in proptest::collection::vec((1..=16_u32, any::<bool>(), 0..30_u64), 0..100),
    ) {
        let mut s = Stall::default();
        let (mut now, mut drops) = (0, 0);
        // All that was decided: length, room, time.
        let mut past: Vec<(u32, bool, u64)> = Vec::new();
        for (n, room, later) in steps {
            now += later;
            let verdict = s.decide(n, room, now, limit);
            past.push((n, room, now));
            if room {
                prop_assert_eq!(verdict, Verdict::Send);
                continue;
            }
            // Since the last room for one as long, the first lack for one no longer.
            let begin = past.iter().rposition(|p| p.1 && p.0 >= n).map_or(0, |i| i + 1);
            let lack = past[begin..].iter().find(|p| !p.1 && p.0 <= n);
            let since = lack.map_or(now, |p| p.2);
            if now - since >= limit {
                drops += 1;
                prop_assert_eq!(verdict, Verdict::Drop);
            } else {
                prop_assert_eq!(verdict, Verdict::Wait { until: since + limit });
            }
            prop_assert_eq!(s.drops(), drops);
        }
    }
}
