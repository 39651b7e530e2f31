// SPDX-License-Identifier: GPL-2.0

//! Open asks, at the requester and at the node.

use std::collections::BTreeMap;

use zrs_core::mem::asks::{AskSlot, Asks, ASKS_MAX, ASKS_MIN, ASKS_RESERVED};
use zrs_core::mem::server::Server;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op};
use zrs_core::Violation;

use crate::common::Rng;

// rows: M4
#[test]
fn every_ask_is_answered_once() {
    let mut rng = Rng::new(2);
    let mut asks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], 64);
    let mut server = Server::new(vec![None; ASKS_MAX]);
    let mut open = BTreeMap::new();
    let mut old = MemHeader::answer(1, Op::Get, Status::Ok);
    for token in 0..50_000 {
        if rng.chance(55) {
            let op = rng.pick(&Op::ALL);
            if let Some(ask) = asks.begin(op, token) {
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
        let mut asks = Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], most);
        let mut fill = |op| (0..).map_while(|n| asks.begin(op, n)).count();
        let [copies, cancels, opens] = [Op::Copy, Op::Cancel, Op::Open].map(&mut fill);
        let each = (most as usize / 4).clamp(1, ASKS_RESERVED);
        assert_eq!((cancels, opens), (each, each), "{most}");
        assert_eq!(copies + cancels + opens, ASKS_MAX.min(most as usize));
        let mut none = Op::ALL.into_iter().filter(|op| asks.room(*op) != 0);
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
    assert!(
        server.accept(&MemHeader::ask(7, Op::Info)).is_ok(),
        "answered: free again"
    );
    let answer = MemHeader::answer(1, Op::Copy, Status::Ok);
    assert_eq!(server.accept(&answer), Err(Violation::State));
}
