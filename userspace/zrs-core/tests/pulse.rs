// SPDX-License-Identifier: GPL-2.0

//! Whether the peer of a link is still there: who is asked, and who is told, when.

mod common;

use common::cases;
use proptest::prelude::*;
use zrs_core::pulse::{Look, Pace, Pulse};

const MS: u64 = 1_000_000;
const PACE: Pace = Pace {
    every_ms: 10_000,
    dead_ms: 30_000,
};
/// Only connections ask.
const NEVER: Pace = Pace {
    every_ms: 0,
    dead_ms: 86_400_000,
};

/// A connection with SO_KEEPALIVE.
#[derive(Clone, Copy, Debug)]
struct Conn {
    /// When it has asked for its times, which are in milliseconds.
    since: u64,
    idle: u32,
    patience: u32,
    over: Option<u64>,
}

impl Conn {
    fn new(since: u64, idle: u32, patience: u32) -> Self {
        Self {
            since,
            idle,
            patience,
            over: None,
        }
    }
}

/// What has happened on a link.
#[derive(Debug, Default)]
struct Seen {
    asked: Vec<u64>,
    /// How often the connections were told.
    tells: usize,
    dead: Option<u64>,
}

/// A link from 0 to `until`. Its peer is heard of every 100 ms and answers, until `last`. Looks are late by what `late` says.
fn run(
    pace: Pace,
    conns: &mut [Conn],
    last: u64,
    until: u64,
    mut late: impl FnMut() -> u64,
) -> Seen {
    let mut pulse = Pulse::new(0);
    let mut seen = Seen::default();
    let mut due = match pace.every_ms {
        0 => u64::MAX,
        ms => u64::from(ms) * MS,
    };
    let mut joined = vec![false; conns.len()];
    let mut heard = 0;
    loop {
        // Who joins next, if that is before the next look.
        let next = (0..conns.len())
            .filter(|&n| !joined[n])
            .min_by_key(|&n| conns[n].since);
        if let Some(n) = next.filter(|&n| conns[n].since <= due) {
            joined[n] = true;
            if pulse.ask_after(conns[n].idle, conns[n].patience) {
                due = conns[n].since;
            }
            continue;
        }
        if due > until {
            return seen;
        }
        let now = due + late();
        if (now.min(last) / (100 * MS)) > heard {
            heard = now.min(last) / (100 * MS);
            pulse.hear();
        }
        let look = pulse.look(now, pace, true);
        if matches!(look, Look::Ask(_) | Look::Tell(_)) {
            seen.asked.push(now);
        }
        due = match look {
            Look::Never => u64::MAX,
            Look::Wait(at) | Look::Ask(at) => at,
            Look::Tell(silence) => {
                seen.tells += 1;
                let mut end = u64::MAX;
                for (conn, _) in conns.iter_mut().zip(&joined).filter(|(_, joined)| **joined) {
                    match silence.waits_until(conn.idle, conn.patience) {
                        Some(at) => end = end.min(at),
                        None => conn.over = conn.over.or(Some(now)),
                    }
                }
                pulse.told(end)
            }
            Look::Dead => {
                seen.dead = Some(now);
                return seen;
            }
        };
        assert!(due > now, "{look:?} at {now}: it is looked again at once");
    }
}

// rows: B12
#[test]
fn nobody_looks_where_nobody_asks() {
    let mut pulse = Pulse::new(7);
    assert_eq!(pulse.look(8, NEVER, true), Look::Never);
    assert_eq!(pulse.look(u64::MAX, NEVER, true), Look::Never);
    assert!(pulse.ask_after(1000, 500));
    assert_eq!(pulse.look(9, NEVER, true), Look::Wait(9 + 1000 * MS));
    assert!(!pulse.ask_after(1000, 500), "somebody has asked for that");
    assert!(!pulse.ask_after(5000, 9000), "nor for more");
    assert!(pulse.ask_after(1000, 400), "for less patience");
    assert!(pulse.ask_after(999, 5000), "and for an earlier question");
}

// rows: B12
#[test]
fn who_answers_is_asked_no_more_and_a_link_without_channels_asks_nobody() {
    let mut pulse = Pulse::new(0);
    let period = u64::from(PACE.every_ms) * MS;
    assert_eq!(pulse.look(period, PACE, true), Look::Wait(2 * period));
    assert_eq!(pulse.look(2 * period, PACE, true), Look::Ask(3 * period));
    assert_eq!(
        pulse.look(2 * period + 1, PACE, true),
        Look::Wait(3 * period),
        "it is early"
    );
    pulse.hear();
    assert_eq!(pulse.look(3 * period, PACE, true), Look::Wait(4 * period));
    for n in 4..20 {
        let next = Look::Wait((n + 1) * period);
        assert_eq!(pulse.look(n * period, PACE, false), next);
    }
    assert_eq!(pulse.look(20 * period, PACE, true), Look::Ask(21 * period));
}

// rows: B12
#[test]
fn who_never_answers_is_dead() {
    let seen = run(PACE, &mut [], 0, 1_000_000 * MS, || 0);
    assert_eq!(seen.asked, [20_000 * MS, 30_000 * MS, 40_000 * MS]);
    assert_eq!(seen.dead, Some(50_000 * MS));
    assert_eq!(seen.tells, 0);
}

// rows: B12
#[test]
fn a_shorter_time_does_not_wait_for_a_longer_one() {
    let mut pulse = Pulse::new(0);
    assert_eq!(pulse.look(1, PACE, true), Look::Wait(1 + 10_000 * MS));
    let sooner = Pace {
        every_ms: 100,
        ..PACE
    };
    assert_eq!(pulse.look(2, sooner, true), Look::Ask(2 + 100 * MS));
}

// rows: B12
#[test]
fn all_times_are_long_but_the_last() {
    // Asked once a minute; the answer is waited for three seconds. The second one has more patience.
    let mut conns = [Conn::new(0, 60_000, 3000), Conn::new(0, 60_000, 10_000)];
    let mut lates = [1, 7, 0, 0, 5, 0].into_iter().cycle();
    let late = || lates.next().unwrap_or(0) * MS;
    let seen = run(NEVER, &mut conns, 0, 400_000 * MS, late);
    let over = conns.map(|conn| conn.over.expect("its time is over"));
    assert!((63_000 * MS..63_050 * MS).contains(&over[0]), "{over:?}");
    assert!((70_000 * MS..70_050 * MS).contains(&over[1]), "{over:?}");
    assert!(seen.tells <= 4, "{seen:?}");
}

// rows: B12
#[test]
fn who_comes_to_a_silence_is_told_in_time() {
    let late = Conn::new(61_000 * MS, 60_000, 8000);
    let mut conns = [Conn::new(0, 60_000, 30_000), late];
    let seen = run(NEVER, &mut conns, 0, 200_000 * MS, || 0);
    assert_eq!(conns[1].over, Some(68_000 * MS));
    assert_eq!(conns[0].over, Some(90_000 * MS));
    assert_eq!(seen.tells, 2);
}

// rows: B12
#[test]
fn the_end_of_time() {
    let mut pulse = Pulse::new(u64::MAX);
    assert!(pulse.ask_after(u32::MAX, u32::MAX));
    pulse.look(u64::MAX, PACE, true);
    pulse.look(u64::MAX, PACE, true);
    assert_eq!(pulse.told(u64::MAX), u64::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(512)))]

    /// A connection's time is over neither before it has passed, nor much later, whatever the others want.
    // rows: B12
    #[test]
    fn neither_early_nor_late(
        every_ms in prop_oneof![Just(0u32), 100..20_000u32],
        times in prop::collection::vec((0..200_000u64, 1000..60_000u32, 100..60_000u32), 1..5),
        last in 0..150_000u64,
        seed in any::<u64>(),
    ) {
        let pace = Pace { every_ms, ..NEVER };
        let last = last * MS;
        let mut conns: Vec<Conn> = times.iter().map(|t| Conn::new(t.0 * MS, t.1, t.2)).collect();
        let mut rng = common::Rng::new(seed);
        const LATE: u64 = 12;
        let seen = run(pace, &mut conns, last, 2_000_000 * MS, || rng.below(LATE * MS));
        prop_assert_eq!(seen.dead, None);
        // Every walk over them has a reason: what somebody said, or the shortest times of all.
        prop_assert!(seen.tells <= 4 * conns.len() + 2, "{:?}", seen);
        for conn in &conns {
            let over = conn.over.expect("its time is over");
            let (idle, patience) = (u64::from(conn.idle) * MS, u64::from(conn.patience) * MS);
            // The last word, as far as anybody can tell.
            let word = last / (100 * MS) * (100 * MS);
            prop_assert!(over >= word + idle + patience, "{:?}", conn);
            // And it was asked, and had that time for its answer.
            let asked = |at: &u64| *at > word && at + patience <= over;
            prop_assert!(seen.asked.iter().any(asked), "{:?}: {:?}", conn, seen.asked);
            // At most once in this time it is looked whether something has come.
            let look = idle.min(match every_ms { 0 => u64::MAX, ms => u64::from(ms) * MS });
            let first = word.max(conn.since) + look;
            let most = (first + idle + patience).max(conn.since + idle + patience + look);
            prop_assert!(over <= most + 5 * LATE * MS, "{:?} ended {} ms late", conn, (over - most) / MS);
        }
    }
}
