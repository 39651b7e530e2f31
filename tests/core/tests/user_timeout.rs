// SPDX-License-Identifier: GPL-2.0

//! TCP_USER_TIMEOUT of an open connection: the waits that count, and their time.

use common::cases;
use proptest::prelude::*;
use zrs_core::user_timeout::UserTimeout;

const MS: u64 = 1_000_000;
const LIMIT: u64 = 1000 * MS;

/// Checks when due, from `now` on, until the timeout is over; returns its time. `peer` returns the
/// unacknowledged message, given the message that is waited for, and the room.
fn run(
    p: &mut UserTimeout<u32>,
    mut now: u64,
    until: u64,
    peer: impl Fn(u64, Option<u64>) -> (Option<u64>, Option<u32>),
) -> Option<u64> {
    loop {
        now = p.at().filter(|at| *at <= until)?.max(now);
        let (unacked, room) = peer(now, p.unacked());
        if p.check(now, LIMIT, unacked, room) {
            assert_eq!(p.at(), None);
            return Some(now);
        }
    }
}

// rows: B12
#[test]
fn nobody_looks_while_nothing_is_sent() {
    let mut p = UserTimeout::<u32>::default();
    assert_eq!(p.at(), None);
    assert!(p.begin(5, LIMIT), "somebody is to look");
    assert_eq!(p.at(), Some(5 + LIMIT / 4));
    assert!(!p.begin(6, LIMIT), "somebody looks already");
    p.end();
    // One is still sending, whatever it is about to wait for.
    assert_eq!(run(&mut p, 0, 10 * LIMIT, |_, _| (None, None)), None);
    assert!(p.at().is_some());
    p.end();
    assert!(!p.check(10 * LIMIT, LIMIT, None, None));
    assert_eq!(p.at(), None);
    p.end();
    assert!(p.begin(0, 4 * MS));
    assert_eq!(p.at(), Some(10 * MS), "not too often");
    p.reset();
    assert_eq!(p.at(), None);
    assert!(p.begin(0, LIMIT));
}

// rows: B12
#[test]
fn what_is_not_acknowledged_ends_it() {
    let mut p = UserTimeout::<u32>::default();
    p.begin(0, LIMIT);
    p.end();
    let end = run(&mut p, 0, 10 * LIMIT, |_, _| (Some(7), None));
    // The first look found it, a quarter after it was sent.
    assert_eq!(end, Some(LIMIT / 4 + LIMIT));
    // One message after the other is acknowledged in time.
    p.begin(0, LIMIT);
    let acked = |now: u64, waits: Option<u64>| {
        let (sent, acked) = (now / MS, (now / MS).saturating_sub(800));
        (waits.filter(|seq| *seq > acked).or(Some(sent)), None)
    };
    assert_eq!(run(&mut p, 0, 20 * LIMIT, acked), None);
}

// rows: B12
#[test]
fn no_room_ends_it() {
    let mut p = UserTimeout::default();
    p.begin(0, LIMIT);
    let stuck = |now, _| {
        (
            None,
            Some(if now < 2 * LIMIT {
                now / (LIMIT / 2)
            } else {
                4
            } as u32),
        )
    };
    let end = run(&mut p, 0, 10 * LIMIT, stuck).expect("over");
    assert!((3 * LIMIT..=3 * LIMIT + LIMIT / 4).contains(&end), "{end}");
    // A little room in time is enough.
    p.begin(0, LIMIT);
    let slow = |now, _| (None, Some((now / (LIMIT / 2)) as u32));
    assert_eq!(run(&mut p, 0, 20 * LIMIT, slow), None);
    // Room without a waiting sender does not count.
    let full = |now: u64, _| (None, (now % LIMIT < LIMIT / 2).then_some(1));
    assert_eq!(run(&mut p, 20 * LIMIT, 40 * LIMIT, full), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    /// Never before the limit, and in time after it, from whenever the peer stops.
    // rows: B12
    #[test]
    fn neither_early_nor_late(limit_ms in 1..100_000u64, begin in any::<u32>(), progress in 0..50u32, every in 1..20_000u64) {
        let limit = limit_ms * MS;
        let mut p = UserTimeout::default();
        p.begin(begin.into(), limit);
        let stops = u64::from(begin) + u64::from(progress) * every * MS;
        let mut now = u64::from(begin);
        let mut last = None;
        let end = loop {
            now = p.at().expect("somebody sends").max(now);
            let room = (now.min(stops) - u64::from(begin)) / (every * MS);
            if last.is_none_or(|(seen, _)| seen != room) {
                last = Some((room, now));
            }
            if p.check(now, limit, None, Some(room as u32)) {
                break now;
            }
        };
        let (_, since) = last.unwrap();
        prop_assert_eq!(end, since + limit.max(end - since));
        let step = (limit / 4).max(10 * MS);
        prop_assert!(end - since >= limit && end - since <= limit + step);
    }
}
