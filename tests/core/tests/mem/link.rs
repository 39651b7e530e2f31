// SPDX-License-Identifier: GPL-2.0

//! Which messages an end of a memory link takes.

use zrs_core::mem::link::{End, Limits, Link};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message, Op, Type};
use zrs_core::Violation;

fn one_of_each() -> [MemHeader; 5] {
    [
        MemHeader::hello(64, 1024, 48),
        MemHeader::ask(1, Op::Free),
        MemHeader::answer(1, Op::Free, Status::Ok),
        MemHeader::revoke(1),
        MemHeader::revoked(1),
    ]
}

/// An end of a link without a key.
fn plain(end: End) -> Link {
    let mut link = Link::new(end);
    link.says(false);
    link
}

fn arrives(link: &mut Link, h: &MemHeader) -> Result<(), Violation> {
    link.arrived(&Message::Mem(*h))
}

// rows: M4
#[test]
fn the_hello_comes_first_and_once() {
    for end in [End::Requester, End::Node] {
        let mut link = plain(end);
        for h in &one_of_each()[1..] {
            assert_eq!(
                arrives(&mut link, h),
                Err(Violation::State),
                "{end:?} {h:?}"
            );
        }
        assert_eq!(link.peer(), None);
        let hello = MemHeader::hello(5, 7, 0);
        assert_eq!(arrives(&mut link, &hello), Ok(()));
        let said = Limits { asks: 5, grants: 7 };
        assert_eq!(link.peer(), Some(said));
        assert_eq!(arrives(&mut link, &hello), Err(Violation::State), "{end:?}");
    }
}

// rows: M4
#[test]
fn each_end_takes_what_the_other_one_sends() {
    for (end, takes) in [
        (End::Requester, [Type::Answer, Type::Revoke]),
        (End::Node, [Type::Ask, Type::Revoked]),
    ] {
        let mut link = plain(end);
        arrives(&mut link, &MemHeader::hello(5, 7, 0)).unwrap();
        for h in one_of_each() {
            let want = if takes.contains(&h.kind) {
                Ok(())
            } else {
                Err(Violation::State)
            };
            assert_eq!(arrives(&mut link, &h), want, "{end:?} {h:?}");
        }
    }
}
