// SPDX-License-Identifier: GPL-2.0

//! The channels of a link and their lines, against lists; and who gets how much when many want to send.

mod common;

use std::collections::VecDeque;

use common::headers::id;
use common::{cases, Rng};
use proptest::prelude::*;
use zrs_core::roster::{Line, Roster, Seat, QUANTUM};
use zrs_core::ChanId;

type Table = Roster<Vec<Seat<u32>>>;

fn seats(n: usize) -> Vec<Seat<u32>> {
    (0..n).map(|_| Seat::new()).collect()
}

const LINES: [Line; 3] = [Line::Talk, Line::Small, Line::Bulk];

/// What a roster should hold.
#[derive(Default)]
struct Model {
    seated: Vec<(ChanId, u32)>,
    lines: [VecDeque<u32>; 3],
}

// rows: L3 L4
#[test]
fn seats_and_lines_are_those_of_a_model() {
    for seed in 0..u64::from(cases(2000)) {
        let mut rng = Rng::new(seed);
        let mut roster = Table::new(seats(rng.below(4) as usize));
        let mut model = Model::default();
        for n in 1..200 {
            let known = |rng: &mut Rng, model: &Model| {
                (!model.seated.is_empty())
                    .then(|| model.seated[rng.below(model.seated.len() as u64) as usize])
            };
            match rng.below(8) {
                0 | 1 => match roster.sit(id(n, 1), n) {
                    Ok(seat) => {
                        assert!(model.seated.iter().all(|(_, other)| *other != seat));
                        model.seated.push((id(n, 1), seat));
                    }
                    Err(back) => {
                        assert_eq!(back, n);
                        assert_eq!(model.seated.len(), roster.seats(), "there was a seat");
                    }
                },
                2 => {
                    let more = roster.seats() + rng.below(4) as usize;
                    roster.move_to(seats(more));
                }
                3 => {
                    if let Some((who, seat)) = known(&mut rng, &model) {
                        assert_eq!(roster.leave(id(who.q, 2), seat), None, "of another life");
                        assert_eq!(roster.leave(who, seat), Some(who.q));
                        assert_eq!(roster.leave(who, seat), None);
                        model.seated.retain(|(other, _)| *other != who);
                        for line in &mut model.lines {
                            line.retain(|other| *other != seat);
                        }
                    }
                }
                4 | 5 => {
                    if let Some((who, seat)) = known(&mut rng, &model) {
                        let line = rng.below(3) as usize;
                        assert!(roster.join(LINES[line], who, seat));
                        if !model.lines[line].contains(&seat) {
                            model.lines[line].push_back(seat);
                        }
                    }
                }
                _ => {
                    let line = rng.below(3) as usize;
                    let next = roster.next(LINES[line]).map(|(_, seat, _)| seat);
                    assert_eq!(next, model.lines[line].pop_front());
                }
            }
            assert_eq!(roster.len(), model.seated.len());
            for (line, list) in LINES.into_iter().zip(&model.lines) {
                assert_eq!(roster.waiting(line), list.len());
                let first = list.front().map(|seat| {
                    let at = model.seated.iter().find(|(_, other)| other == seat);
                    at.expect("who waits has a seat").0
                });
                assert_eq!(roster.first(line).map(|(who, _)| who), first);
            }
            for (who, seat) in &model.seated {
                assert_eq!(roster.get(*who, *seat), Some(&who.q));
                assert_eq!(roster.at(*seat as usize), Some(&who.q));
            }
            let taken = (0..roster.seats() + 2).filter(|seat| roster.at(*seat).is_some());
            assert_eq!(taken.count(), model.seated.len());
        }
        let mut left: Vec<_> = roster.drain().map(|(who, _)| who).collect();
        left.sort_by_key(|who| who.q);
        let mut seated: Vec<_> = model.seated.iter().map(|(who, _)| *who).collect();
        seated.sort_by_key(|who| who.q);
        assert_eq!(left, seated);
        assert!(roster.is_empty() && LINES.iter().all(|line| roster.waiting(*line) == 0));
    }
}

/// A link of so many bytes in flight, and senders who always have something: what each has sent when `rounds`
/// messages have been. `lazy` do not come when they are called.
fn share(sizes: &[u32], room: u32, rounds: u32, lazy: &[usize]) -> Vec<u64> {
    let mut roster = Table::new(seats(sizes.len()));
    let ids: Vec<_> = (1..).map(|q| id(q, 1)).take(sizes.len()).collect();
    let mut places = Vec::new();
    for (n, who) in ids.iter().enumerate() {
        places.push(roster.sit(*who, n as u32).expect("a seat"));
    }
    let mut sent = vec![0_u64; sizes.len()];
    let mut flying: VecDeque<u32> = VecDeque::new();
    let mut awake: VecDeque<usize> = (0..sizes.len()).collect();
    for _ in 0..rounds {
        // Who is awake sends until it is refused.
        while let Some(n) = awake.pop_front() {
            let used: u32 = flying.iter().sum();
            let fits = used + sizes[n].min(1 << 16) <= room;
            match roster.ask(Line::Bulk, ids[n], places[n], sizes[n], fits) {
                Some(bytes) => {
                    assert!((1..=sizes[n]).contains(&bytes));
                    roster.sent(Line::Bulk, ids[n], places[n], bytes);
                    sent[n] += u64::from(bytes);
                    flying.push_back(bytes);
                    awake.push_back(n);
                }
                None => assert!(
                    roster.waits(Line::Bulk, places[n]),
                    "refused, and not waiting"
                ),
            }
        }
        // Something lands; whoever is called then comes, or does not.
        if flying.pop_front().is_none() {
            assert_eq!(
                roster.waiting(Line::Bulk),
                0,
                "nothing flies, and somebody waits"
            );
        }
        if let Some(n) = roster.call(Line::Bulk).copied() {
            let n = n as usize;
            if lazy.contains(&n) {
                continue;
            }
            awake.push_back(n);
        }
    }
    sent
}

// rows: L3 L4
#[test]
fn bytes_are_shared_whatever_the_messages_are() {
    let sizes = [512, 4096, 60_000, 262_144, 100_000, 4096];
    let sent = share(&sizes, 1 << 19, 20_000, &[]);
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(*least > 0);
    assert!(
        most - least <= 4 * QUANTUM as u64,
        "somebody got more than the others: {sent:?}"
    );
}

// rows: L3
#[test]
fn who_does_not_come_keeps_nobody_waiting() {
    let sent = share(&[65_536; 5], 1 << 18, 5000, &[1, 3]);
    for n in [0, 2, 4] {
        assert!(sent[n] > 50 * QUANTUM as u64, "{sent:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    // rows: L3 L4
    #[test]
    fn nobody_starves(sizes in prop::collection::vec(64_u32..262_144, 2..12), room in 1_u32<<17..1<<20) {
        let sent = share(&sizes, room, 8000, &[]);
        let most = *sent.iter().max().unwrap();
        // What was sent before the link was full, nobody has counted.
        let uncounted = u64::from(room);
        for bytes in &sent {
            prop_assert!(most - bytes <= 4 * QUANTUM as u64 + uncounted, "{:?}", sent);
        }
    }
}

// rows: L3
#[test]
fn alone_nobody_is_counted() {
    let mut roster = Table::new(seats(2));
    let (a, b) = (id(1, 1), id(2, 1));
    let (at_a, at_b) = (roster.sit(a, 1).unwrap(), roster.sit(b, 2).unwrap());
    for _ in 0..100 {
        assert_eq!(
            roster.ask(Line::Bulk, a, at_a, 1 << 18, true),
            Some(1 << 18)
        );
        roster.sent(Line::Bulk, a, at_a, 1 << 18);
    }
    // Without room both wait, in the order in which they came; the first needs no call.
    assert_eq!(roster.ask(Line::Bulk, a, at_a, 1 << 18, false), None);
    assert_eq!(roster.ask(Line::Bulk, b, at_b, 1 << 18, false), None);
    assert_eq!(
        roster.ask(Line::Bulk, b, at_b, 1 << 18, true),
        None,
        "not b's turn"
    );
    assert_eq!(
        roster.ask(Line::Bulk, a, at_a, 1 << 18, true),
        Some(QUANTUM as u32)
    );
    roster.sent(Line::Bulk, a, at_a, QUANTUM as u32);
    assert_eq!(
        roster.ask(Line::Bulk, a, at_a, 1 << 18, true),
        None,
        "a has had its turn"
    );
    assert_eq!(
        roster.ask(Line::Small, b, at_b, 100, true),
        Some(100),
        "small messages pass those who wait with bulk"
    );
    assert_eq!(roster.call(Line::Bulk), Some(&2));
    assert_eq!(
        roster.ask(Line::Small, b, at_b, 100, true),
        Some(100),
        "as poll() asks before the program sends"
    );
    assert_eq!(
        roster.ask(Line::Bulk, b, at_b, 1 << 18, true),
        Some(QUANTUM as u32)
    );
}
