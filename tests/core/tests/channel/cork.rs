// SPDX-License-Identifier: GPL-2.0

//! Corked messages: they leave whole, before anything else, and have their room whatever the peer
//! does.

use zrs_core::channel::{Event, Limits, Plan, State};
use zrs_core::wire::{Header, Type, SMALL_MAX};

use super::*;

/// The corked message leaves.
fn flush(c: &mut Channel) -> Header {
    let n = c.corked();
    let chunk = c.commit(Plan::Corked(n)).expect("room");
    assert_eq!((chunk.header.len, chunk.write_to, c.corked()), (n, None, 0));
    over_the_wire(&chunk.header)
}

// rows: Z1
#[test]
fn pieces_leave_as_one() {
    let (mut a, mut b) = pair();
    assert!(a.cork(100) && a.cork(1) && a.cork(SMALL_MAX - 101));
    assert_eq!(a.corked(), SMALL_MAX);
    assert!(!a.can_cork(1), "one DATA is full");
    assert!(!a.cork(1));
    assert!(!a.has_pending_control(), "nothing is said of it");
    let data = flush(&mut a);
    assert_eq!((data.kind, data.pos, data.len), (Type::Data, 0, SMALL_MAX));
    assert_eq!(b.on_message(&data), Ok(Event::Data));
    assert_eq!(small(&mut a, 1).pos, u64::from(SMALL_MAX));
}

// rows: Z1 Z5
#[test]
fn nothing_passes_it() {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 65536, 0, 1);
    assert!(a.cork(10));
    assert_eq!(
        (a.plan(1, false), a.plan(9000, true)),
        (Plan::Wait, Plan::Wait)
    );
    let plans = [Plan::Small(1), Plan::Bulk(1), Plan::Aligned(1)];
    assert!(plans.into_iter().all(|plan| a.commit(plan).is_none()));
    // Not a part of it either.
    assert_eq!(
        (a.commit(Plan::Corked(9)), a.commit(Plan::Corked(11))),
        (None, None)
    );
    assert!(a.writable(), "it does not keep the program from more");
    assert_eq!(b.on_message(&flush(&mut a)), Ok(Event::Data));
    assert_eq!(a.plan(9000, true), Plan::Bulk(9000));
    assert_eq!(a.commit(Plan::Corked(0)), None);
}

// rows: Z5
#[test]
fn its_room_is_taken_when_it_comes() {
    let limits = Limits {
        msgs: 4,
        small: 4 * SMALL_MAX,
    };
    let (mut a, mut b) = pair_with(LIMITS, limits);
    for _ in 0..2 {
        let data = small(&mut a, SMALL_MAX);
        assert_eq!(b.on_message(&data), Ok(Event::Data));
    }
    assert!(a.cork(SMALL_MAX - 1));
    // Behind it there is room for one full message, and no second one.
    assert!(a.writable());
    assert!(a.can_cork(1) && !a.can_cork(2));
    let data = flush(&mut a);
    assert_eq!(b.on_message(&data), Ok(Event::Data));
    assert!(a.cork(1));
    assert!(
        !a.writable(),
        "it would be the fourth message, and the next one the fifth"
    );
    assert_eq!(b.on_message(&flush(&mut a)), Ok(Event::Data));
    assert!(!a.can_cork(1) && !a.cork(1));
    b.freed(0, SMALL_MAX);
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert!(a.cork(1));
}

// rows: Z1
#[test]
fn the_end_waits_for_it() {
    for close in [false, true] {
        let (mut a, mut b) = pair();
        assert!(a.cork(7));
        match close {
            false => a.shut_write(),
            true => a.shut(false),
        }
        assert!(a.write_ended() && !a.has_pending_control() && say(&mut a).is_none());
        assert!(!a.can_cork(1));
        let data = flush(&mut a);
        assert_eq!(b.on_message(&data), Ok(Event::Data));
        assert!(a.has_pending_control());
        assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
    }
}

// While a call copies to a corked message, another thread shuts the socket.
// rows: Z1
#[test]
fn what_did_not_come() {
    for (came, before) in [(10, 7), (3, 7), (0, 7), (0, 0)] {
        let (mut a, mut b) = pair();
        assert!(before == 0 || a.cork(before));
        assert!(a.cork(10));
        a.shut_write();
        assert!(!a.has_pending_control());
        assert_eq!(a.uncork(10 - came), before + came);
        if before + came > 0 {
            let data = flush(&mut a);
            assert_eq!(data.len, before + came);
            assert_eq!(b.on_message(&data), Ok(Event::Data));
        }
        assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
    }
    // The channel may have ended in between.
    let (mut a, _) = pair();
    assert!(a.cork(10));
    a.abort(zrs_core::channel::Failure::LinkLost);
    assert_eq!(a.uncork(10), 0);
}

// rows: Z1 B11
#[test]
fn what_is_broken_off_loses_it() {
    // By its own program, which had not read all,
    let (mut a, mut b) = pair();
    assert!(a.cork(7));
    a.shut(true);
    assert_eq!(a.corked(), 0);
    assert_eq!(tell(&mut a, &mut b), [Event::Failed]);
    // by the peer's, also when that waits for the window,
    for window in [false, true] {
        let (mut a, mut b) = pair();
        if window {
            lease(&mut b, &mut a, 65536, 0, 1);
        }
        assert!(a.cork(7));
        b.shut(false);
        assert_eq!(tell(&mut b, &mut a), [Event::Fin]);
        assert_eq!((a.corked(), a.commit(Plan::Corked(7))), (0, None));
        tell(&mut a, &mut b);
        assert_eq!(a.state(), State::Closed);
    }
    // and with the link.
    let (mut a, _) = pair();
    assert!(a.cork(7));
    a.abort(zrs_core::channel::Failure::LinkLost);
    assert_eq!((a.corked(), a.commit(Plan::Corked(7))), (0, None));
}

// rows: Z1
#[test]
fn only_an_open_channel_holds_back() {
    let mut a = connecting(LIMITS);
    assert!(!a.can_cork(1));
    let connect = say_a(&mut a, Type::Connect);
    let mut b = Channel::accept(id(20, 2), &connect, LIMITS).expect("accepted");
    assert!(!b.cork(1), "ACCEPT has not been said");
    say_a(&mut b, Type::Accept);
    assert!(b.cork(1));
    b.shut_write();
    assert!(!b.cork(1));
}
