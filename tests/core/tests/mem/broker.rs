// SPDX-License-Identifier: GPL-2.0

//! A broker and the nodes that it asks: its quota is never exceeded there, and no region is left
//! that nobody knows.

use std::collections::BTreeMap;

use zrs_core::mem::admission::Admission;
use zrs_core::mem::broker::{Action, Broker, Entry, Request, Rule, GIVEN, RETRY_MS};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::rights::Rights;
use zrs_core::mem::slab::Slot;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op, FLAG_KEEP};

use crate::setup::slots;
use common::{cases, Rng};

type TestBroker = Broker<Vec<Option<Rule>>, Vec<Slot<Entry>>>;

const ORPHAN_MS: u64 = 5000;
const QUOTA: u64 = 1000;

fn node(n: u32) -> NodeId {
    NodeId { domain: 1, node: n }
}

fn rule(n: u32) -> Rule {
    Rule {
        node: node(n),
        quota: QUOTA,
        admission: Admission::Open,
    }
}

fn broker() -> TestBroker {
    let mut b = Broker::new(vec![None; 2], slots(6), ORPHAN_MS);
    assert!(b.set_rule(rule(1)));
    b
}

fn request(len: u64, requester: u32, token: u64) -> Request {
    Request {
        requester,
        token,
        node: node(1),
        len,
        va: 0x1000,
        keep: false,
        ttl_ms: 0,
        admission: Key::default(),
    }
}

fn key(region: u32, secret: u64) -> Key {
    Key {
        region,
        gen: 1,
        secret,
    }
}

/// Gives a region to a requester; its entry and key.
fn give(b: &mut TestBroker, req: Request, n: u32) -> (u32, Key) {
    assert_eq!(b.ask(req, 0), Ok(()));
    let Some(Action::Alloc { at }) = b.next_action(0) else {
        panic!("not allocated");
    };
    b.allocated(at, Ok(key(n, 1)));
    assert_eq!(b.next_action(0), Some(Action::Derive { at }));
    b.derived(at, Ok(key(n, 2)));
    let result = Ok(key(n, 2));
    assert_eq!(b.next_action(0), Some(Action::Answer { req, result }));
    assert_eq!(b.next_action(0), None);
    (at, key(n, 2))
}

// rows: M2 M3
#[test]
fn what_a_broker_asks_the_node_for() {
    let mut b = broker();
    let req = Request {
        keep: true,
        ttl_ms: 77,
        admission: key(8, 8),
        ..request(300, 3, 9)
    };
    b.ask(req, 0).unwrap();
    assert_eq!(b.next_action(0), Some(Action::Alloc { at: 0 }));
    let alloc = MemHeader {
        flags: FLAG_KEEP,
        addr: 0x1000,
        bytes: 300,
        key: key(5, 5),
        arg: 77,
        node: node(1),
        ..MemHeader::ask(0, Op::Alloc)
    };
    // Its own admission key, and no VIA: a broker asks no broker.
    assert_eq!(b.alloc_ask(0, key(5, 5)), Some(alloc));
    assert_eq!((b.key_ask(0), b.free_ask(0)), (None, None));
    b.allocated(0, Ok(key(1, 1)));
    assert_eq!(b.next_action(0), Some(Action::Derive { at: 0 }));
    let derive = MemHeader {
        addr: 0x1000,
        bytes: 300,
        key: key(1, 1),
        rights: 3,
        node: node(1),
        ..MemHeader::ask(0, Op::Key)
    };
    assert_eq!(b.key_ask(0), Some(derive));
    let data = Rights::READ | Rights::WRITE;
    assert_eq!(GIVEN, data, "neither GRANT nor FREE");
    let free = MemHeader {
        key: key(1, 1),
        node: node(1),
        ..MemHeader::ask(0, Op::Free)
    };
    assert_eq!(b.free_ask(0), Some(free));
    assert_eq!((b.alloc_ask(1, key(5, 5)), b.len()), (None, 1));
}

// rows: M2 M4
#[test]
fn who_gets_a_region() {
    let mut b = broker();
    let other = Request {
        node: node(2),
        ..request(1, 1, 1)
    };
    assert_eq!(b.ask(other, 0), Err(Status::Denied), "no rule");
    let own = Request {
        node: NodeId { domain: 0, node: 1 },
        ..request(1, 1, 1)
    };
    assert_eq!(b.ask(own, 0), Err(Status::Denied), "ids are whole here");
    for (va, len) in [(0, 0), (u64::MAX, 1)] {
        let req = Request {
            va,
            ..request(len, 1, 1)
        };
        assert_eq!(b.ask(req, 0), Err(Status::Invalid));
    }
    for len in [QUOTA + 1, u64::MAX - 0x1000] {
        assert_eq!(b.ask(request(len, 1, 1), 0), Err(Status::Quota));
    }
    assert_eq!((b.len(), b.next_action(0)), (0, None));
    let admission: [u8; 16] = std::array::from_fn(|n| n as u8 + 1);
    let closed = Rule {
        admission: Admission::Key(admission),
        ..rule(1)
    };
    assert!(b.set_rule(closed) && b.set_rule(rule(2)) && !b.set_rule(rule(3)));
    assert_eq!(b.ask(request(1, 1, 1), 0), Err(Status::Denied));
    let shown = Request {
        admission: Key::decode(admission),
        ..request(1, 1, 1)
    };
    assert_eq!(b.ask(shown, 0), Ok(()));
    assert!(b.end_rule(node(2)) && !b.end_rule(node(2)));
    assert_eq!(b.ask(other, 0), Err(Status::Denied));
    // A table that is full.
    for token in 2..7 {
        let req = Request { token, ..shown };
        assert_eq!(b.ask(req, 0), Ok(()));
    }
    assert_eq!(b.ask(shown, 0), Err(Status::Again));
}

// rows: M2 M4
#[test]
fn a_quota_counts_until_the_node_has_freed() {
    let mut b = broker();
    let (at, given) = give(&mut b, request(600, 1, 1), 1);
    assert_eq!(b.ask(request(401, 2, 2), 0), Err(Status::Quota));
    assert_eq!(b.ask(request(400, 2, 2), 0), Ok(()));
    assert_eq!(b.bytes_of(node(1)), 1000, "before the node was asked");
    assert_eq!(b.next_action(0), Some(Action::Alloc { at: 1 }));
    b.allocated(1, Err(Status::NoSpace));
    let answer = Action::Answer {
        req: request(400, 2, 2),
        result: Err(Status::NoSpace),
    };
    assert_eq!((b.next_action(0), b.next_action(0)), (Some(answer), None));
    assert_eq!(b.bytes_of(node(1)), 600);
    assert_eq!(b.give_back(1, given, 50), Ok(()));
    assert_eq!(b.next_action(0), Some(Action::Free { at }));
    assert_eq!(b.ask(request(500, 2, 2), 0), Err(Status::Quota));
    b.freed(at, Status::Ok, 0);
    let told = Action::AnswerFree {
        token: 50,
        status: Status::Ok,
    };
    assert_eq!((b.next_action(0), b.next_action(0)), (Some(told), None));
    assert!(b.is_empty());
}

// rows: M4
#[test]
fn who_may_give_a_region_back() {
    let mut b = broker();
    let (at, given) = give(&mut b, request(600, 1, 1), 1);
    let wrong = [key(1, 1), key(2, 2), key(1, 3), Key { gen: 2, ..given }];
    for key in wrong {
        assert_eq!(b.give_back(1, key, 50), Err(Status::Stale), "{key:?}");
    }
    assert_eq!(
        b.give_back(2, given, 50),
        Err(Status::Stale),
        "another host"
    );
    assert_eq!(b.next_action(0), None);
    assert_eq!(b.give_back(1, given, 50), Ok(()));
    assert_eq!(b.give_back(1, given, 51), Err(Status::Stale), "once");
    assert_eq!(b.next_action(0), Some(Action::Free { at }));
}

// rows: M5
#[test]
fn a_requester_that_is_lost() {
    // Before it has been told, at each step.
    for step in 0..4 {
        let mut b = broker();
        b.ask(request(600, 1, 1), 0).unwrap();
        let at = 0;
        if step > 0 {
            assert_eq!(b.next_action(0), Some(Action::Alloc { at }));
        }
        if step > 1 {
            b.allocated(at, Ok(key(1, 1)));
            assert_eq!(b.next_action(0), Some(Action::Derive { at }));
        }
        if step > 2 {
            b.derived(at, Ok(key(1, 2)));
        }
        b.link_lost(|token| token == 2);
        assert!(!b.is_empty(), "another link");
        b.link_lost(|token| token == 1);
        if step == 1 {
            assert_eq!(b.next_action(0), None, "the node has not answered");
            b.allocated(at, Ok(key(1, 1)));
        }
        if step == 2 {
            assert_eq!(b.next_action(0), None, "the node has not answered");
            b.derived(at, Ok(key(1, 2)));
        }
        if step > 0 {
            assert_eq!(b.next_action(0), Some(Action::Free { at }), "step {step}");
            b.freed(at, Status::Ok, 0);
        }
        assert_eq!(b.next_action(0), None, "nobody is answered");
        assert!(b.is_empty(), "step {step}");
    }
    // Afterwards: the region goes after a while, unless the host comes back.
    let mut b = broker();
    let (at, _) = give(&mut b, request(300, 1, 1), 1);
    let kept = Request {
        keep: true,
        ..request(300, 1, 2)
    };
    give(&mut b, kept, 2);
    give(&mut b, request(300, 2, 3), 3);
    b.requester_lost(1, 100);
    b.requester_back(1);
    assert_eq!(b.next_deadline_ms(), None);
    b.requester_lost(1, 200);
    b.requester_lost(1, 900);
    assert_eq!(b.next_deadline_ms(), Some(200 + ORPHAN_MS));
    assert_eq!(b.next_action(199 + ORPHAN_MS), None);
    let free = Some(Action::Free { at });
    assert_eq!(b.next_action(200 + ORPHAN_MS), free);
    b.freed(at, Status::Ok, 9000);
    assert_eq!((b.next_action(u64::MAX), b.len()), (None, 2));
    // The answer to its FREE reaches nobody either.
    let mut b = broker();
    let (at, given) = give(&mut b, request(300, 1, 1), 1);
    b.give_back(1, given, 50).unwrap();
    b.link_lost(|token| token == 50);
    assert_eq!(b.next_action(0), Some(Action::Free { at }));
    b.freed(at, Status::Ok, 0);
    assert_eq!((b.next_action(0), b.is_empty()), (None, true));
}

// rows: M5
#[test]
fn times_and_rules_that_end() {
    let mut b = broker();
    let short = Request {
        keep: true,
        ttl_ms: 70,
        ..request(300, 1, 1)
    };
    let (at, _) = give(&mut b, short, 1);
    assert_eq!(b.next_deadline_ms(), Some(70));
    assert_eq!(b.next_action(69), None);
    assert_eq!(b.next_action(70), Some(Action::Free { at }));
    b.freed(at, Status::Stale, 70);
    assert_eq!((b.next_action(70), b.is_empty()), (None, true));
    // The end of a rule: regions that are kept stay, and those that are on their way are not given.
    let (at, _) = give(&mut b, request(100, 1, 1), 1);
    let kept = Request {
        keep: true,
        ..request(100, 1, 2)
    };
    give(&mut b, kept, 2);
    b.ask(request(100, 1, 3), 0).unwrap();
    assert_eq!(b.next_action(0), Some(Action::Alloc { at: 2 }));
    b.ask(request(100, 1, 4), 0).unwrap();
    assert!(b.end_rule(node(1)));
    let mut actions = std::iter::from_fn(|| b.next_action(0)).collect::<Vec<_>>();
    let denied = |token| Action::Answer {
        req: request(100, 1, token),
        result: Err(Status::Denied),
    };
    let want = [Action::Free { at }, denied(3), denied(4)];
    actions.sort_by_key(|a| want.iter().position(|w| w == a));
    assert_eq!(actions, want);
    b.allocated(2, Ok(key(3, 1)));
    assert_eq!(b.next_action(0), Some(Action::Free { at: 2 }));
    b.freed(at, Status::Ok, 0);
    b.freed(2, Status::Ok, 0);
    assert_eq!((b.next_action(0), b.len()), (None, 1));
    assert!(b.is_idle());
}

// rows: M5
#[test]
fn a_node_that_cannot_be_reached() {
    let mut b = broker();
    let (at, given) = give(&mut b, request(300, 1, 1), 1);
    b.give_back(1, given, 50).unwrap();
    let mut now = 10;
    let end = now + ORPHAN_MS;
    while now < end {
        assert_eq!(b.next_action(now), Some(Action::Free { at }));
        b.freed(at, Status::Unreachable, now);
        assert_eq!(b.next_action(now), None, "not at once again");
        assert_eq!(
            (b.next_deadline_ms(), b.is_idle()),
            (Some(now + RETRY_MS), false)
        );
        now += RETRY_MS;
    }
    assert_eq!(b.next_action(now), Some(Action::Free { at }));
    b.freed(at, Status::Unreachable, now);
    let told = Action::AnswerFree {
        token: 50,
        status: Status::Unreachable,
    };
    assert_eq!(b.next_action(now), Some(told));
    assert!(b.is_empty());
}

/// Random requests, answers and losses: the node has no region that the broker does not know, and
/// never more bytes than the quota.
// rows: M2 M5
#[test]
fn no_region_is_left_and_no_quota_exceeded() {
    let mut given_in_all = 0;
    for seed in 0..u64::from(cases(1000)) {
        let mut rng = Rng::new(seed);
        let mut b = broker();
        // What the node has, by number; what it was asked and has not answered.
        let mut has = BTreeMap::<u32, u64>::new();
        let mut under_way: Vec<Action> = Vec::new();
        let (mut waits, mut given) = (BTreeMap::<u64, u32>::new(), Vec::new());
        let (mut regions, mut root_of) = (0, BTreeMap::new());
        for now in 0..300_u64 {
            let calm = now > 200;
            match rng.below(8) {
                0 | 1 if !calm => {
                    let req = Request {
                        keep: rng.chance(20),
                        ttl_ms: rng.pick(&[0, 30]),
                        ..request(rng.range(1, 500), rng.below(3) as u32, now)
                    };
                    if b.ask(req, now).is_ok() {
                        waits.insert(now, req.requester);
                    }
                }
                2 if rng.chance(20) && !calm => {
                    let lost = rng.below(3) as u32;
                    b.link_lost(|token| waits.get(&token) == Some(&lost));
                    waits.retain(|_, requester| *requester != lost);
                    b.requester_lost(lost, now);
                }
                3 if rng.chance(10) && !calm => {
                    b.end_rule(node(1));
                    b.set_rule(rule(1));
                }
                4 if !given.is_empty() => {
                    let (requester, key) = rng.pick(&given);
                    if b.give_back(requester, key, 1000 + now).is_ok() {
                        waits.insert(1000 + now, requester);
                    }
                }
                _ if !under_way.is_empty() => {
                    let n = rng.below(under_way.len() as u64) as usize;
                    let fails = rng.chance(15) && !calm;
                    match under_way.swap_remove(n) {
                        Action::Alloc { at } if fails => b.allocated(at, Err(Status::NoSpace)),
                        Action::Alloc { at } => {
                            regions += 1;
                            let ask = b.alloc_ask(at, Key::default()).unwrap();
                            has.insert(regions, ask.bytes);
                            root_of.insert(at, regions);
                            b.allocated(at, Ok(key(regions, 1)));
                        }
                        Action::Derive { at } if fails => b.derived(at, Err(Status::NoSpace)),
                        Action::Derive { at } => b.derived(at, Ok(key(root_of[&at], 2))),
                        Action::Free { at } if fails => b.freed(at, Status::Lost, now),
                        Action::Free { at } => {
                            let root = b.free_ask(at).unwrap().key;
                            let there = has.remove(&root.region).is_some();
                            assert!(there, "seed {seed}: freed twice");
                            b.freed(at, Status::Ok, now);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                _ => {}
            }
            while let Some(action) = b.next_action(now) {
                match action {
                    Action::Answer { req, result } => {
                        let known = waits.remove(&req.token);
                        assert_eq!(known, Some(req.requester), "seed {seed}: answered twice");
                        if let Ok(key) = result {
                            assert!(has.contains_key(&key.region), "seed {seed}");
                            given.push((req.requester, key));
                            given_in_all += 1;
                        }
                    }
                    Action::AnswerFree { token, .. } => assert!(waits.remove(&token).is_some()),
                    other => under_way.push(other),
                }
            }
            assert!(has.values().sum::<u64>() <= QUOTA, "seed {seed}");
            assert!(has.len() <= b.len(), "seed {seed}: a region is left");
        }
        // Everything ends: what is kept by the end of the requester's interest.
        let mut now = 300;
        for round in 0..2000 {
            now += RETRY_MS;
            given.retain(|(requester, key)| b.give_back(*requester, *key, now + round).is_err());
            while let Some(action) = b.next_action(now) {
                match action {
                    Action::Alloc { at } => b.allocated(at, Err(Status::NoSpace)),
                    Action::Derive { at } => b.derived(at, Err(Status::NoSpace)),
                    Action::Free { at } => {
                        let root = b.free_ask(at).unwrap().key;
                        has.remove(&root.region);
                        b.freed(at, Status::Ok, now);
                    }
                    Action::Answer { .. } | Action::AnswerFree { .. } => {}
                }
            }
            for action in std::mem::take(&mut under_way) {
                match action {
                    Action::Alloc { at } => b.allocated(at, Err(Status::NoSpace)),
                    Action::Derive { at } => b.derived(at, Err(Status::NoSpace)),
                    Action::Free { at } => {
                        let root = b.free_ask(at).unwrap().key;
                        has.remove(&root.region);
                        b.freed(at, Status::Ok, now);
                    }
                    other => panic!("{other:?}"),
                }
            }
            if b.is_empty() {
                break;
            }
        }
        assert!(b.is_empty() && has.is_empty(), "seed {seed}: {has:?}");
    }
    assert!(given_in_all > 500 || cfg!(miri));
}
