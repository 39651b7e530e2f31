// SPDX-License-Identifier: GPL-2.0

//! Asks that nobody waits for.

use zrs_core::mem::errands::{undoing, Errand, Errands, GIVES_UP_MS, RETRY_MS};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::slab::Slot;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op};

use crate::setup::slots;

const NODE: NodeId = NodeId { domain: 1, node: 2 };

// rows: M4
#[test]
fn an_errand_is_made_until_the_node_answers() {
    let ask = MemHeader::ask(0, Op::Free);
    for status in Status::ALL {
        let mut errands: Errands<Vec<Slot<Errand>>> = Errands::new(slots(1));
        assert!(
            errands.add(NODE, ask, 0) && !errands.add(NODE, ask, 0),
            "no room"
        );
        let mut now = 0;
        loop {
            let (at, to, h) = errands.next_due(now).expect("it is due");
            assert_eq!((to, h.op), (NODE, Some(Op::Free)));
            assert_eq!(
                errands.next_due(u64::MAX),
                None,
                "it is asked once at a time"
            );
            errands.answered(at, status, now);
            errands.answered(at, Status::Ok, now);
            if errands.is_empty() {
                break;
            }
            assert_eq!(errands.next_due(now + RETRY_MS - 1), None);
            now += RETRY_MS;
        }
        let again = [
            Status::Lost,
            Status::Unreachable,
            Status::Refused,
            Status::Again,
            Status::NoMemory,
        ];
        let ends = if again.contains(&status) {
            GIVES_UP_MS
        } else {
            0
        };
        assert_eq!((now, errands.len()), (ends, 0), "{status:?}");
    }
}

// rows: M4
#[test]
fn an_errand_that_is_never_answered_keeps_nothing() {
    let mut errands: Errands<Vec<Slot<Errand>>> = Errands::new(slots(2));
    assert!(!errands.any(0));
    let ask = MemHeader::ask(0, Op::Free);
    errands.add(NODE, ask, 7);
    let (at, ..) = errands.next_due(7).unwrap();
    assert!(errands.any(7 + GIVES_UP_MS - 1) && !errands.any(7 + GIVES_UP_MS));
    errands.answered(at, Status::Ok, 8);
    assert!(!errands.any(9) && errands.is_empty());
}

// rows: M4
#[test]
fn what_nobody_waited_for_is_undone() {
    let key = |secret| Key {
        region: 3,
        gen: 4,
        secret,
    };
    for op in Op::ALL {
        let ask = MemHeader {
            key: key(1),
            node: NODE,
            ..MemHeader::ask(7, op)
        };
        let answer = MemHeader {
            key2: key(2),
            ..MemHeader::answer(7, op, Status::Ok)
        };
        let undone = match op {
            Op::Alloc => Some(MemHeader {
                key: key(2),
                node: NODE,
                ..MemHeader::ask(0, Op::Free)
            }),
            Op::Key => Some(MemHeader {
                key: key(1),
                key2: key(2),
                node: NODE,
                ..MemHeader::ask(0, Op::Unkey)
            }),
            _ => None,
        };
        assert_eq!(undoing(&ask, &answer), undone, "{op:?}");
        let refused = MemHeader::answer(7, op, Status::NoSpace);
        assert_eq!(undoing(&ask, &refused), None);
    }
}
