// SPDX-License-Identifier: GPL-2.0

//! Credit: the limits of data in flight, how credit comes back, and claims that a peer must not
//! make.

use zrs_core::channel::{Event, Limits, Plan};
use zrs_core::wire::{Header, Type, SMALL_MAX};
use zrs_core::Violation;

use super::*;

// rows: Z5 C1
#[test]
fn small_room() {
    let limits = Limits {
        msgs: 64,
        small: 4 * SMALL_MAX + 10,
    };
    let (mut a, mut b) = pair_with(LIMITS, limits);
    assert_eq!(a.plan(0, false), Plan::Wait);
    assert_eq!(a.plan(u32::MAX, false), Plan::Small(SMALL_MAX));
    for n in 0..4 {
        assert!(a.writable());
        let data = small(&mut a, SMALL_MAX);
        assert_eq!(data.pos, u64::from(n * SMALL_MAX));
        assert_eq!(b.on_message(&data), Ok(Event::Data));
    }
    // poll() promises a full message; a shorter one still goes.
    assert!(!a.writable());
    assert_eq!(a.plan(11, false), Plan::Wait);
    assert_eq!(a.plan(10, false), Plan::Small(10));
    assert_eq!(a.commit(Plan::Small(11)), None);
    assert_eq!(a.commit(Plan::Small(0)), None);
    let data = small(&mut a, 10);
    assert_eq!(b.on_message(&data), Ok(Event::Data));
    assert_eq!(a.plan(1, false), Plan::Wait);
    // And no further.
    let mut over = Header::new(Type::Data, b.local(), a.local());
    (over.len, over.pos) = (1, u64::from(limits.small));
    assert_eq!(b.on_message(&over), Err(Violation::Credit));
}

// rows: Z5
#[test]
fn message_room() {
    let limits = Limits {
        msgs: 5,
        small: 65536,
    };
    let (mut a, mut b) = pair_with(LIMITS, limits);
    lease(&mut b, &mut a, 65536, 0, 1);
    for n in 0..5 {
        assert!(a.writable());
        let h = if n % 2 == 0 {
            small(&mut a, 1)
        } else {
            bulk(&mut a, 1).1
        };
        assert!(b.on_message(&h).is_ok());
    }
    assert!(!a.writable());
    assert_eq!(
        (a.plan(1, false), a.plan(5000, true)),
        (Plan::Wait, Plan::Wait)
    );
    assert_eq!(
        (a.commit(Plan::Small(1)), a.commit(Plan::Bulk(1))),
        (None, None)
    );
    let mut over = Header::new(Type::Data, b.local(), a.local());
    (over.len, over.pos) = (1, 5);
    assert_eq!(b.on_message(&over), Err(Violation::Credit));
    // One is read, which is a quarter of five.
    b.freed(0, 1);
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert_eq!(a.plan(1, false), Plan::Small(1));
}

// rows: Z5 B11
#[test]
fn positions_must_be_the_next() {
    for bad in [0, 99, 101, u64::MAX] {
        let (mut a, mut b) = pair();
        let first = small(&mut a, 100);
        assert_eq!(b.on_message(&first), Ok(Event::Data));
        let mut next = small(&mut a, 1);
        assert_eq!(next.pos, 100);
        next.pos = bad;
        assert_eq!(b.on_message(&next), Err(Violation::Position));
        for kind in [Type::Fin, Type::End] {
            let (mut a, mut b) = pair();
            let first = small(&mut a, 100);
            assert_eq!(b.on_message(&first), Ok(Event::Data));
            let mut end = Header::new(kind, b.local(), a.local());
            end.pos = bad;
            assert_eq!(b.on_message(&end), Err(Violation::Position));
        }
    }
}

/// The peer's freed counters lie between its former ones and the amount sent.
// rows: Z5 B11
#[test]
fn credit_bounds() {
    let base = || {
        let (mut a, mut b) = pair();
        lease(&mut b, &mut a, 65536, 0, 1);
        for _ in 0..10 {
            small(&mut a, 100);
            bulk(&mut a, 100);
        }
        let mut h = Header::new(Type::Credit, a.local(), b.local());
        h.lease = 1;
        (h.credit.msgs, h.credit.small, h.credit.window) = (10, 500, 500);
        assert_eq!(a.on_message(&h), Ok(Event::Room));
        (a, h)
    };
    type Change = fn(&mut Header);
    let good: [(Event, Change); 6] = [
        (Event::None, |_| {}),
        (Event::Room, |h| h.credit.msgs = 20),
        (Event::Room, |h| h.credit.small = 1000),
        (Event::Room, |h| h.credit.window = 1000),
        // Not of the current lease: of no account.
        (Event::None, |h| (h.lease, h.credit.window) = (2, 7)),
        (Event::None, |h| (h.lease, h.credit.window) = (0, 0)),
    ];
    for (event, change) in good {
        let (mut a, mut h) = base();
        change(&mut h);
        assert_eq!(a.on_message(&h), Ok(event), "{h:?}");
    }
    let bad: [Change; 12] = [
        |h| h.credit.msgs = 9,
        |h| h.credit.msgs = 21,
        |h| h.credit.msgs = 0,
        |h| h.credit.msgs = u32::MAX,
        |h| h.credit.small = 499,
        |h| h.credit.small = 1001,
        |h| h.credit.small = 0,
        |h| h.credit.small = u64::MAX,
        |h| h.credit.window = 499,
        |h| h.credit.window = 1001,
        |h| h.credit.window = 0,
        |h| h.credit.window = u64::MAX,
    ];
    for change in bad {
        let (mut a, mut h) = base();
        change(&mut h);
        assert_eq!(a.on_message(&h), Err(Violation::Credit), "{h:?}");
    }
}

/// Room that comes with a message of another meaning is not overlooked, and told once.
// rows: Z5 E4
#[test]
fn room_with_other_news() {
    let (mut a, mut b) = pair();
    assert!(!a.take_room());
    let data = small(&mut a, 1);
    assert_eq!(b.on_message(&data), Ok(Event::Data));
    assert!(!b.take_room());
    b.freed(0, 1);
    assert!(!b.has_pending_control(), "too little to speak of");
    let back = small(&mut b, 1);
    assert_eq!(back.credit.msgs, 1);
    assert_eq!(a.on_message(&back), Ok(Event::Data));
    assert!(a.take_room() && !a.take_room());
    lease(&mut b, &mut a, 65536, 0, 1);
    assert!(a.take_room() && !a.take_room());
    b.revoke();
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert!(a.take_room());
}

/// A separate Credit message is due when a quarter of any limit has gathered.
// rows: Z5 E3
#[test]
fn credit_is_due() {
    let limits = Limits {
        msgs: 64,
        small: 65536,
    };
    // Messages.
    let (mut a, mut b) = pair_with(LIMITS, limits);
    for n in 1..=16 {
        let data = small(&mut a, 1);
        b.on_message(&data).expect("in order");
        b.freed(0, 1);
        assert_eq!(b.has_pending_control(), n == 16);
    }
    assert_eq!(say_a(&mut b, Type::Credit).credit.msgs, 16);
    assert!(!b.has_pending_control());
    // Bytes of DATA.
    let (mut a, mut b) = pair_with(LIMITS, limits);
    for n in 1..=4 {
        let data = small(&mut a, 4096);
        b.on_message(&data).expect("in order");
        b.freed(0, 4096);
        assert_eq!(b.has_pending_control(), n == 4);
    }
    assert_eq!(say_a(&mut b, Type::Credit).credit.small, 16384);
    // Bytes of the window.
    let (mut a, mut b) = pair_with(LIMITS, limits);
    lease(&mut b, &mut a, 65536, 0, 1);
    for n in 1..=2 {
        let (_, written) = bulk(&mut a, 8192);
        b.on_message(&written).expect("in order");
        b.freed(8192, 0);
        assert_eq!(b.has_pending_control(), n == 2);
    }
    let credit = say_a(&mut b, Type::Credit);
    assert_eq!((credit.credit.window, credit.lease), (16384, 1));
    // Any other message takes it along.
    let (mut a, mut b) = pair_with(LIMITS, limits);
    for _ in 0..16 {
        let data = small(&mut a, 1);
        b.on_message(&data).expect("in order");
        b.freed(0, 1);
    }
    assert!(b.has_pending_control());
    assert_eq!(small(&mut b, 1).credit.msgs, 16);
    assert!(!b.has_pending_control());
    // The peer that has said FIN needs none.
    let (mut a, mut b) = pair_with(LIMITS, limits);
    let data: Vec<Header> = (0..16).map(|_| small(&mut a, 4096)).collect();
    data.iter().for_each(|h| assert!(b.on_message(h).is_ok()));
    a.shut_write();
    tell(&mut a, &mut b);
    data.iter().for_each(|_| b.freed(0, 4096));
    assert!(!b.has_pending_control());
}

/// When everything that arrived is read, the sender has room for the next piece, whatever the
/// limits: no sender waits for a Credit that is not due.
// rows: Z5
#[test]
fn never_stuck_when_all_is_read() {
    let mut rng = common::Rng::new(1);
    for _ in 0..300 {
        let limits = Limits {
            msgs: rng.range(4, 40) as u32,
            small: rng.range(16384, 70000) as u32,
        };
        let (mut a, mut b) = pair_with(LIMITS, limits);
        let size = rng.range(65536, 300_000) as u32;
        if rng.chance(50) {
            lease(&mut b, &mut a, size, 0, 1);
        }
        for _ in 0..200 {
            let want = rng.range(1, 40000) as u32;
            let with_window = a.peer_window_size().is_some();
            let chunk = match a.plan(want, want > SMALL_MAX && with_window) {
                Plan::Wait => panic!("no room for {want}: {a:?} {b:?}"),
                plan => a.commit(plan).expect("as planned"),
            };
            let h = over_the_wire(&chunk.header);
            b.on_message(&h).expect("within credit");
            match chunk.write_to {
                Some(_) => b.freed(h.len, 0),
                None => b.freed(0, h.len),
            }
            tell(&mut b, &mut a);
        }
    }
}

/// A program may keep half of the room and wait for more: the sender has room for the next piece.
// rows: Z5 B3
#[test]
fn never_stuck_while_half_is_kept() {
    let mut rng = common::Rng::new(2);
    for round in 0..300 {
        let limits = Limits {
            msgs: rng.range(4, 40) as u32,
            small: rng.range(16384, 70000) as u32,
        };
        let (mut a, mut b) = pair_with(LIMITS, limits);
        let size = rng.range(65536, 300_000) as u32;
        let with_window = rng.chance(70);
        if with_window {
            lease(&mut b, &mut a, size, 0, 1);
        }
        let mut kept = std::collections::VecDeque::new();
        for _ in 0..200 {
            let want = rng.range(1, 100_000) as u32;
            let chunk = match a.plan(want, want > SMALL_MAX && with_window) {
                Plan::Wait => panic!("round {round}: no room for {want}: {a:?} {b:?}"),
                plan => a.commit(plan).expect("as planned"),
            };
            let h = over_the_wire(&chunk.header);
            let taken = match b.on_message(&h).expect("within credit") {
                Event::Written { pad, .. } => (h.len + pad, 0),
                _ => (0, h.len),
            };
            kept.push_back(taken);
            let (mut window, mut small) = kept
                .iter()
                .fold((0, 0), |sum, k| (sum.0 + k.0, sum.1 + k.1));
            while window > size / 2
                || small > limits.small / 2
                || kept.len() > limits.msgs as usize / 2
            {
                let (w, s) = kept.pop_front().expect("something");
                (window, small) = (window - w, small - s);
                b.freed(w, s);
            }
            tell(&mut b, &mut a);
        }
    }
}

/// Without a reader, room returns all the same, but only behind the unread data.
// rows: Z5 Z1
#[test]
fn no_reader() {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 65536, 0, 1);
    let (_, unread) = bulk(&mut a, 30000);
    assert_eq!(b.on_message(&unread), Ok(Event::Written { off: 0, pad: 0 }));
    let unread = small(&mut a, 4096);
    assert_eq!(b.on_message(&unread), Ok(Event::Data));
    b.shut_read();
    let (_, unwanted) = bulk(&mut a, 20000);
    assert_eq!(b.on_message(&unwanted), Ok(Event::Unwanted));
    for _ in 0..4 {
        let unwanted = small(&mut a, 4096);
        assert_eq!(b.on_message(&unwanted), Ok(Event::Unwanted));
    }
    assert!(!b.has_pending_control(), "what lies before it is not free");
    b.freed(30000, 0);
    let credit = say_a(&mut b, Type::Credit).credit;
    assert_eq!((credit.window, credit.small, credit.msgs), (30000, 0, 1));
    b.freed(0, 4096);
    let credit = say_a(&mut b, Type::Credit);
    assert_eq!(
        (
            credit.credit.window,
            credit.credit.small,
            credit.credit.msgs
        ),
        (50000, 5 * 4096, 7)
    );
    assert_eq!(a.on_message(&credit), Ok(Event::Room));
    // From here on at once.
    for n in 0..1000_u32 {
        let h = if n % 3 == 0 {
            small(&mut a, 4000)
        } else {
            bulk(&mut a, 16).1
        };
        assert_eq!(b.on_message(&h), Ok(Event::Unwanted), "{n}");
        tell(&mut b, &mut a);
    }
    assert_eq!(
        (a.failure(), b.failure()),
        (None, None),
        "the peer may go on sending"
    );
}

/// The counts of messages wrap, and nothing else changes.
// rows: Z5
#[test]
fn message_count_wraps() {
    let limits = Limits {
        msgs: 1 << 16,
        small: 1 << 24,
    };
    let (mut a, mut b) = pair_with(limits, limits);
    a.count_messages_from(u32::MAX - (1 << 17));
    b.count_messages_from(u32::MAX - (1 << 17));
    let mut n = 0_u64;
    while n < 1 << 18 {
        while a.plan(1, false) == Plan::Small(1) {
            let h = a.commit(Plan::Small(1)).expect("room").header;
            assert_eq!(h.pos, n);
            assert_eq!(b.on_message(&h), Ok(Event::Data));
            n += 1;
        }
        for _ in 0..1 << 16 {
            b.freed(0, 1);
        }
        assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    }
    let h: Channel = b;
    assert_eq!(h.failure(), None);
}
