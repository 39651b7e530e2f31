// SPDX-License-Identifier: GPL-2.0

//! The channels of a link and their queues, against lists; and the shares of many senders.

use std::collections::VecDeque;

use common::headers::id;
use common::{cases, Rng};
use proptest::prelude::*;
use zrs_core::scheduler::{Flow, Scheduler, TrafficClass, QUANTUM};
use zrs_core::ChanId;

type Table = Scheduler<Vec<Flow<u32>>>;

fn flows(n: usize) -> Vec<Flow<u32>> {
    (0..n).map(|_| Flow::new()).collect()
}

const CLASSES: [TrafficClass; 3] = [
    TrafficClass::Control,
    TrafficClass::Small,
    TrafficClass::Bulk,
];

/// The expected contents of a scheduler.
#[derive(Default)]
struct Model {
    seated: Vec<(ChanId, u32)>,
    queues: [VecDeque<u32>; 3],
}

// rows: L3 L4
#[test]
fn seats_and_lines_are_those_of_a_model() {
    for seed in 0..u64::from(cases(2000)) {
        let mut rng = Rng::new(seed);
        let mut scheduler = Table::new(flows(rng.below(4) as usize));
        let mut model = Model::default();
        for n in 1..200 {
            let known = |rng: &mut Rng, model: &Model| {
                (!model.seated.is_empty())
                    .then(|| model.seated[rng.below(model.seated.len() as u64) as usize])
            };
            match rng.below(8) {
                0 | 1 => match scheduler.add(id(n, 1), n) {
                    Ok(flow) => {
                        assert!(model.seated.iter().all(|(_, other)| *other != flow));
                        model.seated.push((id(n, 1), flow));
                    }
                    Err(back) => {
                        assert_eq!(back, n);
                        assert_eq!(model.seated.len(), scheduler.flows(), "there was a seat");
                    }
                },
                2 => {
                    let more = scheduler.flows() + rng.below(4) as usize;
                    scheduler.move_to(flows(more));
                }
                3 => {
                    if let Some((who, flow)) = known(&mut rng, &model) {
                        assert_eq!(
                            scheduler.remove(id(who.index, 2), flow),
                            None,
                            "of another life"
                        );
                        assert_eq!(scheduler.remove(who, flow), Some(who.index));
                        assert_eq!(scheduler.remove(who, flow), None);
                        model.seated.retain(|(other, _)| *other != who);
                        for class in &mut model.queues {
                            class.retain(|other| *other != flow);
                        }
                    }
                }
                4 | 5 => {
                    if let Some((who, flow)) = known(&mut rng, &model) {
                        let class = rng.below(3) as usize;
                        assert!(scheduler.enqueue(CLASSES[class], who, flow));
                        if !model.queues[class].contains(&flow) {
                            model.queues[class].push_back(flow);
                        }
                    }
                }
                _ => {
                    let class = rng.below(3) as usize;
                    let next = scheduler.dequeue(CLASSES[class]).map(|(_, flow, _)| flow);
                    assert_eq!(next, model.queues[class].pop_front());
                }
            }
            assert_eq!(scheduler.len(), model.seated.len());
            for (class, list) in CLASSES.into_iter().zip(&model.queues) {
                assert_eq!(scheduler.waiting(class), list.len());
                let first = list.front().map(|flow| {
                    let at = model.seated.iter().find(|(_, other)| other == flow);
                    at.expect("who waits has a seat").0
                });
                assert_eq!(scheduler.peek(class).map(|(who, _)| who), first);
            }
            for (who, flow) in &model.seated {
                assert_eq!(scheduler.get(*who, *flow), Some(&who.index));
                assert_eq!(scheduler.at(*flow as usize), Some(&who.index));
            }
            let taken = (0..scheduler.flows() + 2).filter(|flow| scheduler.at(*flow).is_some());
            assert_eq!(taken.count(), model.seated.len());
        }
        let mut left: Vec<_> = scheduler.drain().map(|(who, _)| who).collect();
        left.sort_by_key(|who| who.index);
        let mut seated: Vec<_> = model.seated.iter().map(|(who, _)| *who).collect();
        seated.sort_by_key(|who| who.index);
        assert_eq!(left, seated);
        assert!(scheduler.is_empty() && CLASSES.iter().all(|class| scheduler.waiting(*class) == 0));
    }
}

/// A link with `room` bytes in flight, and senders that always have data: the bytes that each has
/// sent after `rounds` messages. `lazy` senders do not send when they are scheduled.
fn share(sizes: &[u32], room: u32, rounds: u32, lazy: &[usize]) -> Vec<u64> {
    let mut scheduler = Table::new(flows(sizes.len()));
    let ids: Vec<_> = (1..).map(|q| id(q, 1)).take(sizes.len()).collect();
    let mut places = Vec::new();
    for (n, who) in ids.iter().enumerate() {
        places.push(scheduler.add(*who, n as u32).expect("a seat"));
    }
    let mut sent = vec![0_u64; sizes.len()];
    let mut flying: VecDeque<u32> = VecDeque::new();
    let mut awake: VecDeque<usize> = (0..sizes.len()).collect();
    for _ in 0..rounds {
        // Awake senders send until they are refused.
        while let Some(n) = awake.pop_front() {
            let used: u32 = flying.iter().sum();
            let fits = used + sizes[n].min(1 << 16) <= room;
            match scheduler.try_dequeue(TrafficClass::Bulk, ids[n], places[n], sizes[n], fits) {
                Some(bytes) => {
                    assert!((1..=sizes[n]).contains(&bytes));
                    scheduler.sent(TrafficClass::Bulk, ids[n], places[n], bytes);
                    sent[n] += u64::from(bytes);
                    flying.push_back(bytes);
                    awake.push_back(n);
                }
                None => assert!(
                    scheduler.waits(TrafficClass::Bulk, places[n]),
                    "refused, and not waiting"
                ),
            }
        }
        // A message lands; the scheduled sender sends, or does not.
        if flying.pop_front().is_none() {
            assert_eq!(
                scheduler.waiting(TrafficClass::Bulk),
                0,
                "nothing flies, and somebody waits"
            );
        }
        if let Some(n) = scheduler.next_ready(TrafficClass::Bulk).copied() {
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
        // Bytes sent before the link was full are not counted.
        let uncounted = u64::from(room);
        for bytes in &sent {
            prop_assert!(most - bytes <= 4 * QUANTUM as u64 + uncounted, "{:?}", sent);
        }
    }
}

// rows: L3
#[test]
fn alone_nobody_is_counted() {
    let mut scheduler = Table::new(flows(2));
    let (a, b) = (id(1, 1), id(2, 1));
    let (at_a, at_b) = (scheduler.add(a, 1).unwrap(), scheduler.add(b, 2).unwrap());
    for _ in 0..100 {
        assert_eq!(
            scheduler.try_dequeue(TrafficClass::Bulk, a, at_a, 1 << 18, true),
            Some(1 << 18)
        );
        scheduler.sent(TrafficClass::Bulk, a, at_a, 1 << 18);
    }
    // Without room both wait, in order of arrival; the first one need not be scheduled.
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Bulk, a, at_a, 1 << 18, false),
        None
    );
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Bulk, b, at_b, 1 << 18, false),
        None
    );
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Bulk, b, at_b, 1 << 18, true),
        None,
        "not b's turn"
    );
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Bulk, a, at_a, 1 << 18, true),
        Some(QUANTUM as u32)
    );
    scheduler.sent(TrafficClass::Bulk, a, at_a, QUANTUM as u32);
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Bulk, a, at_a, 1 << 18, true),
        None,
        "a has had its turn"
    );
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Small, b, at_b, 100, true),
        Some(100),
        "small messages pass those who wait with bulk"
    );
    assert_eq!(scheduler.next_ready(TrafficClass::Bulk), Some(&2));
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Small, b, at_b, 100, true),
        Some(100),
        "as poll() asks before the program sends"
    );
    assert_eq!(
        scheduler.try_dequeue(TrafficClass::Bulk, b, at_b, 1 << 18, true),
        Some(QUANTUM as u32)
    );
}
