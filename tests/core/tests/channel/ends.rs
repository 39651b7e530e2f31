// SPDX-License-Identifier: GPL-2.0

//! The ends of a channel: FIN, END, RESET, a lost link.

use zrs_core::channel::{Event, Failure, Plan, State};
use zrs_core::wire::{Header, Type};
use zrs_core::ChanId;

use super::*;

// rows: Z1 E4
#[test]
fn half_close() {
    let (mut a, mut b) = pair();
    let data = small(&mut a, 10);
    a.shut_write();
    assert!(a.write_ended() && a.write_shut() && !a.read_ended());
    a.shut_write();
    assert_eq!(b.on_message(&data), Ok(Event::Data));
    let fin = say_a(&mut a, Type::Fin);
    assert_eq!(fin.pos, 10);
    a.shut_write();
    assert!(!a.has_pending_control(), "said once");
    assert_eq!(b.on_message(&fin), Ok(Event::Fin));
    assert!(b.read_ended() && !b.write_ended() && !b.write_shut());
    // The other direction goes on.
    let back = small(&mut b, 20);
    assert_eq!(a.on_message(&back), Ok(Event::Data));
    b.shut_write();
    assert_eq!(tell(&mut b, &mut a), [Event::Fin]);
    for c in [&a, &b] {
        assert!(c.read_ended() && c.write_ended() && c.write_shut());
        assert_eq!((c.state(), c.failure()), (State::Open, None));
    }
    a.shut(false);
    assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
    b.shut(false);
    for c in [&mut a, &mut b] {
        assert_eq!((c.state(), c.failure()), (State::Closed, None));
        assert!(!c.has_pending_control());
    }
}

/// close() with nothing unread ends both directions by one message: both numbers are free, what the
/// peer had received it may still read, and it cannot send.
// rows: Z1 E4 B9 L2
#[test]
fn end_needs_no_answer() {
    let (mut a, mut b) = pair();
    let data = small(&mut a, 10);
    // The peer's window does not matter to the side that ends.
    lease(&mut b, &mut a, 65536, 0, 1);
    a.shut(false);
    assert_eq!(b.on_message(&data), Ok(Event::Data));
    assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
    assert!(b.read_ended() && b.write_ended() && b.peer_writes_done());
    assert_eq!(b.plan(1, false), Plan::Wait);
    assert_eq!((a.state(), b.state()), (State::Closed, State::Closed));
    b.freed(0, 10);
    assert!(!b.has_pending_control());
    assert_eq!((a.failure(), b.failure()), (None, None));
}

/// A side that has leased a window learns that no WRITE into it follows, before the number is free.
// rows: L2 Z3 B9
#[test]
fn a_window_needs_an_answer() {
    for unread in [false, true] {
        let (mut a, mut b) = pair();
        lease(&mut a, &mut b, 65536, 0, 1);
        a.shut(unread);
        let word = say(&mut a).expect("the last word");
        assert!(!a.peer_writes_done() && a.state() == State::Open);
        let event = if unread { Event::Failed } else { Event::Fin };
        assert_eq!(b.on_message(&word), Ok(event));
        assert_eq!((b.state(), b.plan(1, true)), (State::Open, Plan::Wait));
        assert_eq!(tell(&mut b, &mut a), [Event::Fin]);
        assert_eq!((a.state(), b.state()), (State::Closed, State::Closed));
    }
    // Both at once: each one's message is the other's answer.
    let (mut a, mut b) = pair();
    lease(&mut a, &mut b, 65536, 0, 1);
    a.shut(false);
    b.shut(false);
    let ends = [say_a(&mut a, Type::End), say_a(&mut b, Type::End)];
    assert_eq!((a.state(), b.state()), (State::Open, State::Closed));
    assert_eq!(b.on_message(&ends[0]), Ok(Event::None));
    assert_eq!(a.on_message(&ends[1]), Ok(Event::Fin));
    assert_eq!((a.state(), b.state()), (State::Closed, State::Closed));
}

/// A revoked window is not the peer's any more when it has sent REVOKED; the end may come between.
// rows: L2 Z3 C6
#[test]
fn an_end_behind_a_revoke() {
    for answered in [false, true] {
        let (mut a, mut b) = pair();
        lease(&mut a, &mut b, 65536, 0, 1);
        assert!(a.revoke());
        let revoke = say_a(&mut a, Type::WindowRevoke);
        a.shut(false);
        let end = say_a(&mut a, Type::End);
        assert_eq!(a.state(), State::Open);
        assert_eq!(b.on_message(&revoke), Ok(Event::Room));
        let revoked = answered.then(|| say_a(&mut b, Type::Revoked));
        assert_eq!(b.on_message(&end), Ok(Event::Fin));
        match revoked {
            Some(revoked) => {
                assert_eq!(b.state(), State::Closed);
                assert_eq!(a.on_message(&revoked), Ok(Event::Revoked));
            }
            None => assert_eq!(tell(&mut b, &mut a), [Event::Fin]),
        }
        assert_eq!((a.state(), b.state()), (State::Closed, State::Closed));
    }
}

/// close() with something unread, or something that arrives after it, breaks the stream.
// rows: Z1 B9
#[test]
fn reset() {
    for late in [false, true] {
        let (mut a, mut b) = pair();
        let data = small(&mut a, 10);
        if !late {
            assert_eq!(b.on_message(&data), Ok(Event::Data));
        }
        b.shut(!late);
        if late {
            assert_eq!(b.on_message(&data), Ok(Event::Unwanted));
        }
        // Whatever the module calls again changes nothing.
        b.shut(false);
        assert_eq!(tell(&mut b, &mut a), [Event::Failed]);
        assert_eq!(a.failure(), Some(Failure::Reset));
        assert!(a.read_ended() && a.write_ended() && !a.has_pending_control());
        assert_eq!((a.state(), b.state()), (State::Closed, State::Closed));
        assert_eq!(b.failure(), None);
    }
}

/// A Reset after the peer's Fin is a failure, and the end of its stream stays readable; after both
/// sides' Fin it is none. Without a Fin nothing says that the stream was whole.
// rows: Z1 E4 B3
#[test]
fn reset_after_fin() {
    for fins in 0..=2 {
        let (mut a, mut b) = pair();
        if fins > 0 {
            b.shut_write();
            assert_eq!(tell(&mut b, &mut a), [Event::Fin]);
        }
        if fins > 1 {
            a.shut_write();
            assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
        }
        b.shut(true);
        let (event, failure) = match fins {
            2 => (Event::Fin, None),
            _ => (Event::Failed, Some(Failure::Reset)),
        };
        assert_eq!(tell(&mut b, &mut a), [event], "after {fins}");
        assert_eq!(a.failure(), failure, "after {fins}");
        assert_eq!(a.fin_received(), fins > 0, "after {fins}");
        assert!(a.read_ended() && a.write_ended() && a.peer_writes_done());
        assert_eq!(a.state(), State::Closed);
    }
}

/// A Reset after both sides' Fin is a failure if the peer's program has not read everything.
// rows: Z1 E4 B9
#[test]
fn reset_after_both_fins_with_data_unread() {
    for read in [false, true] {
        let (mut a, mut b) = pair();
        let data = small(&mut a, 10);
        assert_eq!(b.on_message(&data), Ok(Event::Data));
        if read {
            b.freed(0, 10);
        }
        b.shut_write();
        tell(&mut b, &mut a);
        a.shut_write();
        tell(&mut a, &mut b);
        b.shut(true);
        tell(&mut b, &mut a);
        let failure = (!read).then_some(Failure::Reset);
        assert_eq!(a.failure(), failure, "read: {read}");
    }
}

/// A side that cannot keep an arrived message breaks the stream off: nothing of it is kept, and the
/// peer is notified.
// rows: B9 E4
#[test]
fn broken_off() {
    let (mut a, mut b) = pair();
    let data = small(&mut a, 10);
    b.break_off(Failure::NoResources);
    b.break_off(Failure::LinkLost);
    assert_eq!(b.failure(), Some(Failure::NoResources));
    assert_eq!(b.on_message(&data), Ok(Event::Unwanted));
    assert!(b.write_ended() && b.plan(1, false) == Plan::Wait);
    // It was not received in whole: its end does not count.
    a.shut_write();
    tell(&mut a, &mut b);
    assert!(!b.fin_received());
    assert_eq!(say_a(&mut b, Type::Reset).kind, Type::Reset);
    b.shut(false);
    assert!(!b.has_pending_control());
    assert_eq!(b.state(), State::Closed);
}

/// END and RESET are the last message: nothing is sent after them.
// rows: L2 B9
#[test]
fn the_last_word() {
    for unread in [false, true] {
        let (mut a, mut b) = pair();
        lease(&mut b, &mut a, 65536, 0, 1);
        lease(&mut a, &mut b, 65536, 0, 1);
        let data: Vec<Header> = (0..32).map(|_| small(&mut a, 1000)).collect();
        data.iter()
            .for_each(|h| assert_eq!(b.on_message(h), Ok(Event::Data)));
        a.revoke();
        let revoke = say_a(&mut a, Type::WindowRevoke);
        b.shut(unread);
        let last = say(&mut b).expect("the last word");
        assert_eq!(last.kind, if unread { Type::Reset } else { Type::End });
        assert!(b.write_ended() && b.write_shut());
        data.iter().for_each(|_| b.freed(0, 1000));
        b.revoke();
        b.shut_write();
        assert_eq!(b.on_message(&revoke), Ok(Event::Room));
        let more = bulk(&mut a, 20000).1;
        assert_eq!(b.on_message(&more), Ok(Event::Unwanted));
        assert!(!b.has_pending_control() && say(&mut b).is_none());
        assert!(a.on_message(&last).is_ok());
        assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
        assert_eq!((a.state(), b.state()), (State::Closed, State::Closed));
    }
    // A request for a window that comes too late.
    let (mut a, mut b) = pair();
    b.shut(false);
    let end = say_a(&mut b, Type::End);
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    assert_eq!(tell(&mut a, &mut b), [Event::None]);
    b.deny();
    assert!(!b.has_pending_control());
    assert_eq!(a.on_message(&end), Ok(Event::Fin));
}

/// The peer's host has forgotten the channel: it answers each message with a Reset that knows
/// nothing of it.
// rows: L2 B9
#[test]
fn resets_from_nowhere() {
    let (mut a, mut b) = pair();
    for n in 0..20 {
        let h = small(&mut b, 1);
        assert_eq!(a.on_message(&h), Ok(Event::Data));
        a.freed(0, 1);
        if n == 10 {
            tell(&mut a, &mut b);
        }
    }
    let h = small(&mut a, 1);
    assert_eq!(b.on_message(&h), Ok(Event::Data));
    let reset = over_the_wire(&Header::new(Type::Reset, b.local(), ChanId::default()));
    assert_eq!(b.on_message(&reset), Ok(Event::Failed));
    assert_eq!(b.on_message(&reset), Ok(Event::None));
    assert_eq!(b.on_message(&reset), Ok(Event::None));
    assert_eq!(b.failure(), Some(Failure::Reset));
    assert!(!b.has_pending_control());
    assert_eq!(b.state(), State::Closed);
}

// rows: E5 B9
#[test]
fn lost_link() {
    let lost = |f: fn(&mut Channel, &mut Channel)| {
        let (mut a, mut b) = pair();
        f(&mut a, &mut b);
        a.abort(Failure::LinkLost);
        a.abort(Failure::TimedOut);
        assert_eq!(a.state(), State::Closed);
        assert!(
            a.read_ended() && a.write_ended() && a.peer_writes_done() && !a.has_pending_control()
        );
        assert_eq!(a.peer_window_size(), None);
        a.failure()
    };
    let failed = Some(Failure::LinkLost);
    assert_eq!(lost(|_, _| {}), failed);
    assert_eq!(lost(|a, _| a.shut_write()), failed);
    assert_eq!(lost(|a, b| drop((a.shut_write(), tell(a, b)))), failed);
    assert_eq!(lost(|a, b| drop((b.shut_write(), tell(b, a)))), failed);
    // Both directions are at their end, and both sides know.
    let both = |a: &mut Channel, b: &mut Channel| {
        a.shut_write();
        b.shut_write();
        tell(a, b);
        tell(b, a);
    };
    assert_eq!(lost(both), None);
    // The first failure stays.
    assert_eq!(
        lost(|a, b| {
            b.shut(true);
            tell(b, a);
        }),
        Some(Failure::Reset)
    );
    let mut c = connecting(LIMITS);
    c.abort(Failure::Unreachable);
    assert_eq!(
        (c.state(), c.failure()),
        (State::Closed, Some(Failure::Unreachable))
    );
}
