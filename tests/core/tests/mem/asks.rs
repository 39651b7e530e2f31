// SPDX-License-Identifier: GPL-2.0

//! Open asks, at the requester and at the node.

use std::collections::BTreeMap;

use zrs_core::mem::asks::{
    AskSlot, Asks, ASKS_MAX, ASKS_MIN, ASKS_RESERVED, ENDING_MS, USER_ASKS_MIN,
};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::server::Server;
use zrs_core::mem::stall::Stall;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op, FLAG_VIA};
use zrs_core::Violation;

use common::Rng;

type TestAsks = Asks<Vec<AskSlot>>;

fn begin(asks: &mut TestAsks, op: Op, token: u64, user: Option<u32>) -> Option<MemHeader> {
    asks.begin(MemHeader::ask(0, op), token, user)
}

// rows: M4
#[test]
fn every_ask_is_answered_once() {
    let mut rng = Rng::new(2);
    let mut asks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], 64, 100);
    let mut server = Server::new(vec![None; ASKS_MAX]);
    let mut open = BTreeMap::new();
    let mut old = MemHeader::answer(1, Op::Get, Status::Ok);
    for token in 0..50_000 {
        if rng.chance(55) {
            let op = rng.pick(&Op::ALL);
            if let Some(ask) = asks.begin(MemHeader::ask(0, op), token, None) {
                let at = server.accept(&ask).unwrap();
                assert_eq!(
                    (server.find(ask.id), server.get(at)),
                    (Some(at), Some(&ask))
                );
                assert_eq!(asks.id_of(token), Some(ask.id));
                assert!(open.insert(at, token).is_none());
            }
        } else if let Some((at, token)) = open.pop_first() {
            let answer = server.answer(at, Status::Stale).unwrap();
            assert_eq!(server.answer(at, Status::Ok), None, "not twice");
            server.posted();
            // Another operation, another number, no answer at all.
            let wrong = MemHeader {
                op: Op::ALL.into_iter().find(|op| Some(*op) != answer.op),
                ..answer
            };
            assert_eq!(asks.answered(&wrong), Err(Violation::State));
            assert_eq!(asks.answered(&old), Err(Violation::State), "an old one");
            let ask = MemHeader::ask(answer.id, answer.op.unwrap());
            assert_eq!(asks.answered(&ask), Err(Violation::State));
            assert_eq!(asks.answered(&answer), Ok(token));
            old = answer;
        }
        assert_eq!((asks.open(), server.open()), (open.len(), open.len()));
    }
    let mut failed: Vec<_> = std::iter::from_fn(|| asks.fail_one())
        .map(|f| f.1)
        .collect();
    failed.sort_unstable();
    let mut left: Vec<_> = open.into_values().collect();
    left.sort_unstable();
    assert_eq!(failed, left);
}

// rows: M4
#[test]
fn no_ask_takes_the_place_of_those_that_it_waits_for() {
    for most in ASKS_MIN..80 {
        let mut asks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], most, 25);
        let mut fill = |op| (0..).map_while(|n| begin(&mut asks, op, n, None)).count();
        let [copies, cancels, opens] = [Op::Copy, Op::Cancel, Op::Open].map(&mut fill);
        let each = (most as usize / 4).clamp(1, ASKS_RESERVED);
        assert_eq!((cancels, opens), (each, each), "{most}");
        assert_eq!(copies + cancels + opens, ASKS_MAX.min(most as usize));
        let mut none = Op::ALL.into_iter().filter(|op| asks.room(*op, None) != 0);
        assert_eq!(none.next(), None);
    }
}

// rows: M4
#[test]
fn a_peer_that_asks_too_much() {
    let mut server = Server::new(vec![None; ASKS_MAX]);
    for id in 1..=64 {
        assert!(server.accept(&MemHeader::ask(id, Op::Copy)).is_ok());
    }
    assert_eq!(
        server.accept(&MemHeader::ask(65, Op::Copy)),
        Err(Violation::Credit)
    );
    assert_eq!(
        server.accept(&MemHeader::ask(7, Op::Info)),
        Err(Violation::State)
    );
    let at = server.find(7).unwrap();
    server.answer(at, Status::Ok).unwrap();
    assert_eq!(
        server.accept(&MemHeader::ask(7, Op::Info)),
        Err(Violation::Credit),
        "the peer does not have the answer"
    );
    server.posted();
    assert!(
        server.accept(&MemHeader::ask(7, Op::Info)).is_ok(),
        "answered: free again"
    );
    let answer = MemHeader::answer(1, Op::Copy, Status::Ok);
    assert_eq!(server.accept(&answer), Err(Violation::State));
}

// rows: M4
#[test]
fn a_user_leaves_room_to_the_others() {
    for most in ASKS_MIN..80 {
        for percent in [0, 1, 25, 50, 99] {
            let mut asks: TestAsks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], most, percent);
            let limit = ASKS_MAX.min(most as usize);
            let share = (limit * percent as usize).div_ceil(100).max(USER_ASKS_MIN);
            // Each class of the user's own asks is left room, too: a user can cancel what it has begun.
            let each = (share / 4).clamp(1, ASKS_RESERVED);
            let mut fill = |op, user| (0..).map_while(|n| begin(&mut asks, op, n, user)).count();
            assert_eq!(
                fill(Op::Copy, Some(7)),
                share - 2 * each,
                "{most} {percent}"
            );
            assert_eq!(fill(Op::Cancel, Some(7)), each);
            assert_eq!(fill(Op::Get, Some(7)), each);
            assert_eq!(fill(Op::Wrote, Some(7)), 0);
            // Another user and the host itself have what is left of the link.
            let others = share.min(limit - share);
            assert_eq!(fill(Op::Get, Some(8)), others);
            assert_eq!(fill(Op::Get, None), limit - share - others);
            assert_eq!((asks.open_of(7), asks.open_of(8)), (share, others));
            assert_eq!(asks.open(), limit);
        }
    }
}

/// An ask, its answer, and the answers that do not fit it.
fn answers(op: Op) -> (MemHeader, MemHeader, Vec<MemHeader>) {
    let key = |region, gen| Key {
        region,
        gen,
        secret: 5,
    };
    let node = NodeId { domain: 1, node: 2 };
    let ask = MemHeader {
        addr: 0x1000,
        bytes: 100,
        key: key(3, 4),
        rights: 2,
        node,
        ..MemHeader::ask(0, op)
    };
    let plain = MemHeader::answer(0, op, Status::Ok);
    match op {
        Op::Alloc => {
            let good = MemHeader {
                addr: 0x1000,
                bytes: 100,
                node,
                key2: key(9, 9),
                ..plain
            };
            let bad = vec![
                MemHeader { bytes: 99, ..good },
                MemHeader { bytes: 101, ..good },
                MemHeader { addr: 0, ..good },
                MemHeader {
                    node: NodeId { domain: 1, node: 3 },
                    ..good
                },
            ];
            (ask, good, bad)
        }
        Op::Key => {
            let good = MemHeader {
                key2: Key {
                    secret: 77,
                    ..key(3, 4)
                },
                ..plain
            };
            let bad = [key(3, 5), key(4, 4)].map(|key2| MemHeader { key2, ..good });
            (ask, good, bad.into())
        }
        Op::Open => {
            let good = MemHeader { rights: 2, ..plain };
            let bad = [1, 3].map(|rights| MemHeader { rights, ..good });
            (ask, good, bad.into())
        }
        Op::Get => {
            let good = MemHeader { len: 100, ..plain };
            let bad = [0, 99, 101, 4096].map(|len| MemHeader { len, ..good });
            (ask, good, bad.into())
        }
        Op::Copy => {
            let good = MemHeader {
                bytes: 100,
                ..plain
            };
            let bad = [0, 99, 101, u64::MAX].map(|bytes| MemHeader { bytes, ..good });
            let failed = MemHeader {
                status: Status::Lost,
                bytes: 101,
                ..good
            };
            (ask, good, [&bad[..], &[failed]].concat())
        }
        _ => (ask, plain, Vec::new()),
    }
}

// rows: M4
#[test]
fn an_answer_gives_what_was_asked_for() {
    for op in Op::ALL {
        let (ask, good, bad) = answers(op);
        let mut asks: TestAsks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], 64, 100);
        let sent = asks.begin(ask, 1, None).unwrap();
        assert_eq!(MemHeader { id: 0, ..sent }, ask);
        for answer in bad {
            let answer = MemHeader {
                id: sent.id,
                ..answer
            };
            assert_eq!(asks.answered(&answer), Err(Violation::Length), "{answer:?}");
        }
        let good = MemHeader {
            id: sent.id,
            ..good
        };
        assert_eq!(asks.answered(&good), Ok(1), "{op:?}");
        assert_eq!(asks.answered(&good), Err(Violation::State), "not twice");
        // What failed says nothing of the rest.
        let sent = asks.begin(ask, 2, None).unwrap();
        let failed = MemHeader::answer(sent.id, op, Status::Stale);
        assert_eq!(asks.answered(&failed), Ok(2));
        let no_ask = MemHeader::answer(0, op, Status::Ok);
        assert_eq!(asks.begin(no_ask, 3, None), None);
    }
}

// rows: M4 M5
#[test]
fn a_node_that_does_not_answer_is_late() {
    for op in Op::ALL {
        let mut asks: TestAsks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], 64, 100);
        let late = |asks: &TestAsks, now| asks.is_late(now, 3000);
        let ask = begin(&mut asks, op, 1, None).unwrap();
        assert!(!late(&asks, u64::MAX), "{op:?} is not at the node's yet");
        asks.sent(ask.id + 64, 0);
        assert!(!late(&asks, u64::MAX), "another ask is");
        asks.sent(ask.id, 500);
        let most = match op {
            Op::Copy | Op::Free => None,
            Op::Seal | Op::Unkey | Op::Cancel => Some(3000 + ENDING_MS),
            _ => Some(3000),
        };
        let is = |now| (late(&asks, now), most.is_some());
        assert!(!is(500 + most.unwrap_or(0) - 1).0);
        let at = 500 + most.unwrap_or(1 << 40);
        assert_eq!(is(at).0, is(at).1, "{op:?}");
        // Others that are answered change nothing.
        let other = begin(&mut asks, Op::Info, 2, None).unwrap();
        asks.sent(other.id, at);
        let answer = MemHeader::answer(other.id, Op::Info, Status::Stale);
        assert_eq!(asks.answered(&answer), Ok(2));
        assert_eq!(late(&asks, at), most.is_some());
        let answer = MemHeader::answer(ask.id, op, Status::Stale);
        assert_eq!(asks.answered(&answer), Ok(1));
        assert!(!late(&asks, u64::MAX));
        asks.sent(ask.id, 0);
        assert!(!late(&asks, u64::MAX), "{op:?} is answered");
    }
}

// rows: M4 M5
#[test]
fn a_broker_may_have_to_ask_another_host() {
    let mut asks: TestAsks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], 64, 100);
    let via = MemHeader {
        flags: FLAG_VIA,
        ..MemHeader::ask(0, Op::Alloc)
    };
    let ask = asks.begin(via, 1, None).unwrap();
    asks.sent(ask.id, 0);
    assert!(!asks.is_late(u64::MAX, 3000));
}

// rows: M5
#[test]
fn what_does_not_move_is_stalled() {
    let mut stall = Stall::default();
    assert!(!stall.look(true, 100, 50) && !stall.look(true, 149, 50));
    assert!(stall.look(true, 150, 50));
    stall.moved();
    assert!(!stall.look(true, 150, 50) && stall.look(true, 200, 50));
    assert!(!stall.look(false, 300, 50), "nothing waits");
    assert!(!stall.look(true, 301, 50));
}
