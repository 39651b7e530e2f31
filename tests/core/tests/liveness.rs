// SPDX-License-Identifier: GPL-2.0

//! Liveness of a link's peer: the times of probes and of notifications.

use common::cases;
use proptest::prelude::*;
use zrs_core::liveness::{Action, Carried, Intervals, Liveness};

const MS: u64 = 1_000_000;
const PACE: Intervals = Intervals {
    every_ms: 10_000,
    dead_ms: 30_000,
    stalled_ms: 40_000,
};
/// Only connections ask.
const NEVER: Intervals = Intervals {
    every_ms: 0,
    dead_ms: 86_400_000,
    stalled_ms: 86_400_000,
};

/// A link with a channel, and one without.
const NEEDED: Carried = Carried {
    needs_peer: true,
    in_flight: false,
    completed: 0,
};
const UNUSED: Carried = Carried {
    needs_peer: false,
    ..NEEDED
};

/// A connection with SO_KEEPALIVE.
#[derive(Clone, Copy, Debug)]
struct Conn {
    /// When it has asked for its times, which are in milliseconds.
    since: u64,
    idle: u32,
    timeout: u32,
    over: Option<u64>,
}

impl Conn {
    fn new(since: u64, idle: u32, timeout: u32) -> Self {
        Self {
            since,
            idle,
            timeout,
            over: None,
        }
    }
}

/// Events on a link.
#[derive(Debug, Default)]
struct Seen {
    probed_at: Vec<u64>,
    /// How often the connections were told.
    tells: usize,
    dead: Option<u64>,
}

/// A link from 0 to `until`. Its peer sends every 100 ms and answers, until `last`. Checks are late
/// by `late`.
fn run(
    pace: Intervals,
    conns: &mut [Conn],
    last: u64,
    until: u64,
    mut late: impl FnMut() -> u64,
) -> Seen {
    let mut liveness = Liveness::new(0);
    let mut seen = Seen::default();
    let mut due = match pace.every_ms {
        0 => u64::MAX,
        ms => u64::from(ms) * MS,
    };
    let mut joined = vec![false; conns.len()];
    let mut rx_seen = 0;
    loop {
        // The next connection that joins, if that is before the next check.
        let next = (0..conns.len())
            .filter(|&n| !joined[n])
            .min_by_key(|&n| conns[n].since);
        if let Some(n) = next.filter(|&n| conns[n].since <= due) {
            joined[n] = true;
            if liveness.request_keepalive(conns[n].idle, conns[n].timeout) {
                due = conns[n].since;
            }
            continue;
        }
        if due > until {
            return seen;
        }
        let now = due + late();
        if (now.min(last) / (100 * MS)) > rx_seen {
            rx_seen = now.min(last) / (100 * MS);
            liveness.on_rx();
        }
        let check = liveness.check(now, pace, NEEDED);
        if matches!(check, Action::Probe(_) | Action::Notify(_)) {
            seen.probed_at.push(now);
        }
        due = match check {
            Action::Never => u64::MAX,
            Action::Wait(at) | Action::Probe(at) => at,
            Action::Notify(silence) => {
                seen.tells += 1;
                let mut end = u64::MAX;
                for (conn, _) in conns.iter_mut().zip(&joined).filter(|(_, joined)| **joined) {
                    match silence.waits_until(conn.idle, conn.timeout) {
                        Some(at) => end = end.min(at),
                        None => conn.over = conn.over.or(Some(now)),
                    }
                }
                liveness.notified(end)
            }
            Action::Dead | Action::Stalled => {
                seen.dead = Some(now);
                return seen;
            }
        };
        assert!(
            due > now,
            "{check:?} at {now}: the next check is due at once"
        );
    }
}

// rows: B12
#[test]
fn nobody_looks_where_nobody_asks() {
    let mut liveness = Liveness::new(7);
    assert_eq!(liveness.check(8, NEVER, NEEDED), Action::Never);
    assert_eq!(liveness.check(u64::MAX, NEVER, NEEDED), Action::Never);
    assert!(liveness.request_keepalive(1000, 500));
    assert_eq!(
        liveness.check(9, NEVER, NEEDED),
        Action::Wait(9 + 1000 * MS)
    );
    assert!(
        !liveness.request_keepalive(1000, 500),
        "somebody has asked for that"
    );
    assert!(!liveness.request_keepalive(5000, 9000), "nor for more");
    assert!(liveness.request_keepalive(1000, 400), "for less patience");
    assert!(
        liveness.request_keepalive(999, 5000),
        "and for an earlier question"
    );
}

// rows: B12
#[test]
fn who_answers_is_asked_no_more_and_a_link_without_channels_asks_nobody() {
    let mut liveness = Liveness::new(0);
    let period = u64::from(PACE.every_ms) * MS;
    assert_eq!(
        liveness.check(period, PACE, NEEDED),
        Action::Wait(2 * period)
    );
    assert_eq!(
        liveness.check(2 * period, PACE, NEEDED),
        Action::Probe(3 * period)
    );
    assert_eq!(
        liveness.check(2 * period + 1, PACE, NEEDED),
        Action::Wait(3 * period),
        "it is early"
    );
    liveness.on_rx();
    assert_eq!(
        liveness.check(3 * period, PACE, NEEDED),
        Action::Wait(4 * period)
    );
    for n in 4..20 {
        let next = Action::Wait((n + 1) * period);
        assert_eq!(liveness.check(n * period, PACE, UNUSED), next);
    }
    assert_eq!(
        liveness.check(20 * period, PACE, NEEDED),
        Action::Probe(21 * period)
    );
}

// rows: B12
#[test]
fn who_never_answers_is_dead() {
    let seen = run(PACE, &mut [], 0, 1_000_000 * MS, || 0);
    assert_eq!(seen.probed_at, [20_000 * MS, 30_000 * MS, 40_000 * MS]);
    assert_eq!(seen.dead, Some(50_000 * MS));
    assert_eq!(seen.tells, 0);
}

// rows: B12 B17
#[test]
fn a_peer_that_sends_and_takes_nothing_is_dead() {
    let period = u64::from(PACE.every_ms) * MS;
    let in_flight = |completed| Carried {
        in_flight: true,
        completed,
        ..UNUSED
    };
    let mut liveness = Liveness::new(0);
    let mut check = |n: u64, carried| {
        liveness.on_rx();
        liveness.check(n * period, PACE, carried)
    };
    // Each time something is in flight, but other messages have completed.
    for n in 1..10 {
        let next = Action::Wait((n + 1) * period);
        assert_eq!(check(n, in_flight(n)), next);
    }
    // An empty queue does not count.
    for n in 10..20 {
        assert_eq!(check(n, UNUSED), Action::Wait((n + 1) * period));
    }
    for n in 20..24 {
        assert_eq!(check(n, in_flight(0)), Action::Wait((n + 1) * period));
    }
    assert_eq!(check(24, in_flight(0)), Action::Stalled);
}

// rows: B12 Z7
#[test]
fn a_datagram_needs_a_peer_until_one_comes_back() {
    let period = u64::from(PACE.every_ms) * MS;
    let mut liveness = Liveness::new(0);
    assert_eq!(
        liveness.check(period, PACE, UNUSED),
        Action::Wait(2 * period)
    );
    liveness.on_dgram_sent();
    assert_eq!(
        liveness.check(2 * period, PACE, UNUSED),
        Action::Probe(3 * period)
    );
    liveness.on_rx();
    for n in 3..10 {
        let next = Action::Wait((n + 1) * period);
        assert_eq!(liveness.check(n * period, PACE, UNUSED), next);
    }
    // A message that came before it does not count.
    liveness.on_rx();
    liveness.on_dgram_sent();
    let next = Action::Wait(11 * period);
    assert_eq!(liveness.check(10 * period, PACE, UNUSED), next);
    for n in 11..14 {
        let next = Action::Probe((n + 1) * period);
        assert_eq!(liveness.check(n * period, PACE, UNUSED), next);
    }
    assert_eq!(liveness.check(14 * period, PACE, UNUSED), Action::Dead);
}

// rows: B12
#[test]
fn a_shorter_time_does_not_wait_for_a_longer_one() {
    let mut liveness = Liveness::new(0);
    assert_eq!(
        liveness.check(1, PACE, NEEDED),
        Action::Wait(1 + 10_000 * MS)
    );
    let sooner = Intervals {
        every_ms: 100,
        ..PACE
    };
    assert_eq!(
        liveness.check(2, sooner, NEEDED),
        Action::Probe(2 + 100 * MS)
    );
}

// rows: B12
#[test]
fn all_times_are_long_but_the_last() {
    // Probed once a minute; the answer is waited for three seconds. The second connection waits
    // longer.
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
    let mut liveness = Liveness::new(u64::MAX);
    assert!(liveness.request_keepalive(u32::MAX, u32::MAX));
    liveness.check(u64::MAX, PACE, NEEDED);
    liveness.check(u64::MAX, PACE, NEEDED);
    assert_eq!(liveness.notified(u64::MAX), u64::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(512)))]

    /// A connection's time is over neither before it has passed, nor much later, whatever the
    /// others want.
    // rows: B12
    #[test]
    fn neither_early_nor_late(
        every_ms in prop_oneof![Just(0u32), 100..20_000u32],
        times in prop::collection::vec((0..200_000u64, 1000..60_000u32, 100..60_000u32), 1..5),
        last in 0..150_000u64,
        seed in any::<u64>(),
    ) {
        let pace = Intervals { every_ms, ..NEVER };
        let last = last * MS;
        let mut conns: Vec<Conn> = times.iter().map(|t| Conn::new(t.0 * MS, t.1, t.2)).collect();
        let mut rng = common::Rng::new(seed);
        const LATE: u64 = 12;
        let seen = run(pace, &mut conns, last, 2_000_000 * MS, || rng.below(LATE * MS));
        prop_assert_eq!(seen.dead, None);
        // Every walk over the connections has a reason: the end of a timeout, or the shortest times
        // of all.
        prop_assert!(seen.tells <= 4 * conns.len() + 2, "{:?}", seen);
        for conn in &conns {
            let over = conn.over.expect("its time is over");
            let (idle, timeout) = (u64::from(conn.idle) * MS, u64::from(conn.timeout) * MS);
            // The last message, as far as the checks can tell.
            let word = last / (100 * MS) * (100 * MS);
            prop_assert!(over >= word + idle + timeout, "{:?}", conn);
            // And it was asked, and had that time for its answer.
            let probed_at = |at: &u64| *at > word && at + timeout <= over;
            prop_assert!(seen.probed_at.iter().any(probed_at), "{:?}: {:?}", conn, seen.probed_at);
            // At most once in this time it is looked whether something has come.
            let check = idle.min(match every_ms { 0 => u64::MAX, ms => u64::from(ms) * MS });
            let first = word.max(conn.since) + check;
            let most = (first + idle + timeout).max(conn.since + idle + timeout + check);
            prop_assert!(over <= most + 5 * LATE * MS, "{:?} ended {} ms late", conn, (over - most) / MS);
        }
    }
}
