// SPDX-License-Identifier: GPL-2.0

//! Every type of message in every state, and opening.

use zrs_core::channel::{Event, Failure, Limits, Plan, State};
use zrs_core::wire::{Header, Refusal, Type};
use zrs_core::{ChanId, Violation};

use super::*;
use common::headers::TYPES;

/// A plain message of the type for the channel with `pair()`'s numbers, first of its kind.
fn plain(kind: Type, to: ChanId, from: ChanId) -> Header {
    let mut h = Header::new(kind, to, from);
    match kind {
        Type::Accept => (h.arg1, h.arg2) = (64, 65536),
        Type::Data => h.len = 1,
        Type::Written => (h.len, h.arg0) = (1, 1),
        Type::WindowGrant => (h.arg0, h.arg1, h.arg2, h.lease) = (9, 65536, 0x1000, 1),
        Type::WindowRevoke => h.lease = 1,
        Type::Revoked => h.arg0 = 1,
        _ => {}
    }
    h
}

type Case = (
    &'static str,
    fn() -> Channel,
    [Result<Event, Violation>; 15],
);

fn sent() -> Channel {
    let mut c = connecting(LIMITS);
    say_a(&mut c, Type::Connect);
    c
}

fn accepting() -> Channel {
    let connect = say_a(&mut connecting(LIMITS), Type::Connect);
    Channel::accept(id(20, 2), &connect, LIMITS).expect("accepted")
}

fn open() -> Channel {
    pair().0
}

/// An open channel after `f`.
fn after(f: impl FnOnce(&mut Channel, &mut Channel)) -> Channel {
    let (mut a, mut b) = pair();
    f(&mut a, &mut b);
    a
}

// rows: L2 B11
#[test]
fn every_message_in_every_state() {
    use Event::*;
    const S: Result<Event, Violation> = STATE;
    const OFF: Result<Event, Violation> = Ok(Written { off: 0, pad: 0 });
    // Connect Accept Reject | Data Written | Fin End Reset | Credit |
    // WindowRequest WindowGrant WindowRevoke Revoked | LinkCredit Heartbeat
    #[rustfmt::skip]
    let table: [Case; 21] = [
        ("CONNECT not sent yet", || connecting(LIMITS),
            [S; 15]),
        ("connecting", sent,
            [S, Ok(Opened), Ok(Failed), S, S, S, S, Ok(Failed), S, S, S, S, S, S, S]),
        ("the backlog was full", || {
            let mut c = sent();
            let mut reject = Header::new(Type::Reject, id(10, 1), ChanId::default());
            reject.arg0 = Refusal::BacklogFull as u32;
            assert_eq!(c.on_message(&reject), Ok(Busy));
            c
        },
            [S; 15]),
        ("given up", || {
            let mut c = sent();
            c.shut(false);
            c
        },
            [Ok(None); 15]),
        ("ACCEPT not sent yet", accepting,
            [S; 15]),
        ("open", open,
            [S, S, S, Ok(Data), S, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(WindowWanted), Ok(Room), S, S, S, S]),
        ("FIN said", || after(|a, _| {
            a.shut_write();
            say_a(a, Type::Fin);
        }),
            [S, S, S, Ok(Data), S, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(WindowWanted), Ok(Room), S, S, S, S]),
        ("FIN heard", || after(|a, b| {
            b.shut_write();
            tell(b, a);
        }),
            [S, S, S, S, S, S, Ok(Fin), Ok(Failed), Ok(None),
             S, Ok(Room), S, S, S, S]),
        ("END to be said", || after(|a, _| a.shut(false)),
            [S, S, S, Ok(Unwanted), S, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, S, S, S]),
        ("END said", || after(|a, _| {
            a.shut(false);
            say_a(a, Type::End);
        }),
            [Ok(None); 15]),
        ("END said, window leased", || after(|a, b| {
            lease(a, b, 65536, 0, 1);
            a.shut(false);
            say_a(a, Type::End);
        }),
            [S, S, S, Ok(Unwanted), Ok(Unwanted), Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, S, S, S]),
        ("RESET said, revoking", || after(|a, b| {
            lease(a, b, 65536, 0, 1);
            a.revoke();
            say_a(a, Type::WindowRevoke);
            a.shut(true);
            say_a(a, Type::Reset);
        }),
            [S, S, S, Ok(Unwanted), Ok(Unwanted), Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, Ok(Revoked), S, S]),
        ("END heard", || after(|a, b| {
            b.shut(false);
            tell(b, a);
        }),
            [Ok(None); 15]),
        ("END heard, peer's window", || after(|a, b| {
            lease(b, a, 65536, 0, 1);
            b.shut(false);
            tell(b, a);
        }),
            [S, S, S, S, S, S, S, Ok(None), Ok(None),
             S, Ok(Room), S, S, S, S]),
        ("closed", || after(|a, _| a.abort(Failure::LinkLost)),
            [Ok(None); 15]),
        ("reading is shut", || after(|a, _| a.shut_read()),
            [S, S, S, Ok(Unwanted), S, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, S, S, S]),
        ("window granted, not told", || after(|a, _| assert!(a.grant(65536, 0, 1))),
            [S, S, S, Ok(Data), S, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, S, S, S]),
        ("window leased", || after(|a, b| lease(a, b, 65536, 0, 1)),
            [S, S, S, Ok(Data), OFF, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, S, S, S]),
        ("to be revoked", || after(|a, b| {
            lease(a, b, 65536, 0, 1);
            a.revoke();
        }),
            [S, S, S, Ok(Data), OFF, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, S, S, S]),
        ("revoking", || after(|a, b| {
            lease(a, b, 65536, 0, 1);
            a.revoke();
            say_a(a, Type::WindowRevoke);
        }),
            [S, S, S, Ok(Data), OFF, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(None), Ok(Room), S, Ok(Revoked), S, S]),
        ("peer's window", || after(|a, b| lease(b, a, 65536, 0, 1)),
            [S, S, S, Ok(Data), S, Ok(Fin), Ok(Fin), Ok(Failed), Ok(None),
             Ok(WindowWanted), S, Ok(Room), S, S, S]),
    ];
    for (what, make, want) in table {
        for (kind, want) in TYPES.into_iter().zip(want) {
            let mut c = make();
            let from = if what.starts_with("ACCEPT") {
                id(10, 1)
            } else {
                id(20, 2)
            };
            let h = plain(kind, c.local(), from);
            assert_eq!(c.on_message(&h), want, "{what}: {kind:?}");
            // Whatever came, the link may go now, and that is the end.
            c.abort(Failure::LinkLost);
            assert_eq!(c.state(), State::Closed);
            assert!(!c.has_pending_control() && say(&mut c).is_none());
            assert_eq!(c.plan(1, false), Plan::Wait);
            assert!(c.read_ended() && c.write_ended() && c.peer_writes_done());
        }
    }
}

// rows: L2 B11
#[test]
fn only_from_the_peer() {
    for kind in TYPES {
        for from in [id(21, 2), id(20, 1), id(20, 3), ChanId::default()] {
            let mut c = open();
            let h = plain(kind, c.local(), from);
            let got = c.on_message(&h);
            match kind {
                Type::Accept | Type::Reject => assert_eq!(got, STATE),
                // An answer of a host that does not know the channel.
                Type::Reset if from == ChanId::default() => assert_eq!(got, Ok(Event::Failed)),
                _ => assert_eq!(got, Err(Violation::Channel), "{kind:?} {from:?}"),
            }
        }
    }
}

// rows: Z3 C6
#[test]
fn connect_and_accept_say_what_they_must() {
    let (ours, theirs) = (
        Limits {
            msgs: 4,
            small: 16384,
        },
        Limits {
            msgs: 1 << 16,
            small: 1 << 24,
        },
    );
    let mut a = Channel::connect(id(10, 1), 50000, 443, ours);
    assert!(a.has_pending_control());
    let connect = say_a(&mut a, Type::Connect);
    assert_eq!((connect.dst, connect.src), (ChanId::default(), id(10, 1)));
    assert_eq!(Channel::ports_of(&connect), (443, 50000));
    assert_eq!((connect.arg1, connect.arg2), (4, 16384));
    let mut b = Channel::accept(id(20, 2), &connect, theirs).expect("accepted");
    assert_eq!(
        (b.state(), b.plan(1, false)),
        (State::Accepting, Plan::Wait)
    );
    let accept = say_a(&mut b, Type::Accept);
    assert_eq!((accept.dst, accept.src), (id(10, 1), id(20, 2)));
    assert_eq!((accept.arg1, accept.arg2), (1 << 16, 1 << 24));
    assert_eq!(a.on_message(&accept), Ok(Event::Opened));
    for c in [&mut a, &mut b] {
        assert_eq!((c.state(), c.failure()), (State::Open, None));
        assert!(!c.has_pending_control() && !c.read_ended() && !c.write_ended() && !c.write_shut());
    }
    // Each keeps to the other's limits.
    let mut count = 0;
    while b.plan(1, false) != Plan::Wait {
        small(&mut b, 1);
        count += 1;
    }
    assert_eq!(count, 4);
    assert_eq!(a.plan(4096, false), Plan::Small(4096));
}

// rows: B11 Z3
#[test]
fn limits_that_make_no_sense() {
    let cases = [
        (4, 16384, true),
        (3, 16384, false),
        (0, 16384, false),
        (4, 16383, false),
        (4, 0, false),
        (1 << 16, 1 << 24, true),
        ((1 << 16) + 1, 1 << 24, false),
        (4, (1 << 24) + 1, false),
        (4, (1 << 32) + 16384, false),
        (u32::MAX, u64::MAX, false),
    ];
    for (msgs, small, good) in cases {
        let mut connect = say_a(&mut connecting(LIMITS), Type::Connect);
        (connect.arg1, connect.arg2) = (msgs, small);
        let got = Channel::accept(id(20, 2), &connect, LIMITS);
        assert_eq!(got.err(), (!good).then_some(Violation::Length));

        let mut a = sent();
        let mut accept = say_a(&mut accepting(), Type::Accept);
        (accept.arg1, accept.arg2) = (msgs, small);
        let want = if good {
            Ok(Event::Opened)
        } else {
            Err(Violation::Length)
        };
        assert_eq!(a.on_message(&accept), want);
    }
}

// rows: E5 C3 Z3
#[test]
fn refused() {
    for why in [Refusal::NoListener, Refusal::NoResources] {
        for src in [ChanId::default(), id(20, 2)] {
            let mut a = sent();
            let mut reject = Header::new(Type::Reject, id(10, 1), src);
            reject.arg0 = why as u32;
            assert_eq!(a.on_message(&over_the_wire(&reject)), Ok(Event::Failed));
            assert_eq!(a.failure(), Some(Failure::Refused(why)));
            assert_eq!(a.state(), State::Closed);
        }
    }
    let mut a = sent();
    let reset = Header::new(Type::Reset, id(10, 1), ChanId::default());
    assert_eq!(a.on_message(&over_the_wire(&reset)), Ok(Event::Failed));
    assert_eq!(a.failure(), Some(Failure::Refused(Refusal::NoListener)));
}

/// A Reject because the backlog is full: CONNECT is said again when that is asked for, with the
/// same words, and until then nothing can be an answer.
// rows: E5 Z1
#[test]
fn busy() {
    let mut reject = Header::new(Type::Reject, id(10, 1), ChanId::default());
    reject.arg0 = Refusal::BacklogFull as u32;
    let reject = over_the_wire(&reject);
    let mut a = connecting(LIMITS);
    let first = say_a(&mut a, Type::Connect);
    assert!(!a.try_again(), "it waits for an answer");
    for _ in 0..3 {
        assert_eq!(a.on_message(&reject), Ok(Event::Busy));
        assert_eq!((a.state(), a.failure()), (State::Opening, None));
        assert!(!a.has_pending_control() && say(&mut a).is_none());
        assert!(a.try_again());
        assert!(!a.try_again(), "once");
        assert_eq!(say_a(&mut a, Type::Connect), first);
    }
    let mut b = Channel::accept(id(20, 2), &first, LIMITS).expect("accepted");
    assert_eq!(
        a.on_message(&say_a(&mut b, Type::Accept)),
        Ok(Event::Opened)
    );
    assert!(!a.try_again(), "open");
    // Whatever ends the wait.
    type End = (fn(&mut Channel), Option<Failure>);
    let ends: [End; 4] = [
        (|c| assert!(c.time_out()), Some(Failure::TimedOut)),
        (|c| assert!(c.cancel()), Some(Failure::Reset)),
        (|c| c.shut(false), None),
        (|c| c.abort(Failure::LinkLost), Some(Failure::LinkLost)),
    ];
    for (end, why) in ends {
        let mut a = sent();
        assert_eq!(a.on_message(&reject), Ok(Event::Busy));
        end(&mut a);
        assert_eq!((a.state(), a.failure()), (State::Closed, why));
        assert!(!a.try_again() && !a.has_pending_control());
    }
    // That reason of a Reset's is none.
    let mut a = sent();
    let mut reset = Header::new(Type::Reset, id(10, 1), ChanId::default());
    reset.arg0 = Refusal::BacklogFull as u32;
    assert_eq!(a.on_message(&over_the_wire(&reset)), Ok(Event::Failed));
    assert_eq!(a.failure(), Some(Failure::Refused(Refusal::NoListener)));
}

/// The program gives up: that is the channel's end, whether CONNECT has left or not.
// rows: E3 B9
#[test]
fn giving_up() {
    for make in [sent, || connecting(LIMITS)] {
        let mut a = make();
        assert!(a.time_out());
        assert_eq!(
            (a.state(), a.failure()),
            (State::Closed, Some(Failure::TimedOut))
        );
        assert!(!a.has_pending_control() && say(&mut a).is_none());
        assert!(!a.time_out(), "once");
        a.shut(false);
        a.abort(Failure::LinkLost);
        assert_eq!(a.failure(), Some(Failure::TimedOut), "the first sticks");

        let mut a = make();
        a.shut(false);
        assert!(!a.time_out() && !a.cancel(), "given up already");
        assert_eq!((a.state(), a.failure()), (State::Closed, None));
        assert!(!a.has_pending_control() && say(&mut a).is_none());
    }
}

/// The answer comes after the program gave up. The host knows of no such channel and says so to
/// whatever comes, and that is the end of the peer's side too.
// rows: E3 B9 L2
#[test]
fn accepted_too_late() {
    let mut b = accepting();
    say_a(&mut b, Type::Accept);
    small(&mut b, 100);
    let nobody = over_the_wire(&Header::new(Type::Reset, b.local(), id(10, 1)));
    assert_eq!(b.on_message(&nobody), Ok(Event::Failed));
    assert_eq!(b.on_message(&nobody), Ok(Event::None));
    assert!(!b.has_pending_control());
    assert_eq!(
        (b.state(), b.failure()),
        (State::Closed, Some(Failure::Reset))
    );
}

// rows: E3
#[test]
fn no_time_out_when_open() {
    for mut c in [open(), accepting()] {
        assert!(!c.time_out());
        assert_eq!(c.failure(), None);
    }
}

/// Shutting a direction while connecting is not giving up.
// rows: Z1
#[test]
fn shut_while_connecting() {
    let mut a = sent();
    a.shut_read();
    a.shut_write();
    assert!(
        !a.has_pending_control(),
        "nothing but CONNECT can be said before the answer"
    );
    let mut b = accepting();
    assert_eq!(tell(&mut b, &mut a), [Event::Opened]);
    let data = small(&mut b, 1);
    assert_eq!(a.on_message(&data), Ok(Event::Unwanted));
    assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
    assert_eq!((a.failure(), b.failure()), (None, None));

    let mut a = sent();
    a.shut_read();
    assert!(a.time_out(), "and time runs on");
}

/// Control messages of an accepting side wait behind the ACCEPT.
// rows: L2 C6
#[test]
fn accept_goes_first() {
    let mut b = accepting();
    assert!(b.grant(65536, 0, 1));
    b.shut(false);
    let said: Vec<Type> = std::iter::from_fn(|| say(&mut b)).map(|h| h.kind).collect();
    assert_eq!(said, [Type::Accept, Type::WindowGrant, Type::End]);

    let mut b = accepting();
    b.shut(true);
    let said: Vec<Type> = std::iter::from_fn(|| say(&mut b)).map(|h| h.kind).collect();
    assert_eq!(said, [Type::Accept, Type::Reset]);
}

/// Several things at once leave in an order that the peer can follow, each once. A window that is
/// offered and asked back is offered first.
// rows: L2 C6
#[test]
fn order_of_control() {
    for window in [false, true] {
        order_of_control_with(window);
    }
}

fn order_of_control_with(window: bool) {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 65536, 0, 1);
    if window {
        lease(&mut a, &mut b, 65536, 0, 1);
    }
    b.revoke();
    tell(&mut b, &mut a); // a: Revoked
    assert_eq!(a.plan(1 << 20, true), Plan::Wait); // a: WindowRequest
    assert_eq!(a.grant(65536, 0, 1), !window); // a: WindowGrant
    assert!(a.revoke()); // a: WindowRevoke
    for _ in 0..LIMITS.msgs / 4 {
        let data = small(&mut b, 1);
        assert_eq!(a.on_message(&data), Ok(Event::Data));
        a.freed(0, 1); // a: Credit
    }
    a.shut_write(); // a: Fin
    a.shut(false); // a: End
    let said: Vec<Header> = std::iter::from_fn(|| say(&mut a)).collect();
    let kinds: Vec<Type> = said.iter().map(|h| h.kind).collect();
    // The credit went with the first of them.
    let order = [
        Type::Revoked,
        Type::WindowGrant,
        Type::WindowRevoke,
        Type::WindowRequest,
        Type::Fin,
        Type::End,
    ];
    let order = order.into_iter();
    let order: Vec<Type> = order
        .filter(|kind| *kind != Type::WindowGrant || !window)
        .collect();
    assert_eq!(kinds, order);
    assert!(said.iter().all(|h| h.credit.msgs == LIMITS.msgs / 4));
    for h in &said {
        assert!(b.on_message(h).is_ok(), "{h:?}");
    }
}
