// SPDX-License-Identifier: GPL-2.0

//! A COPY as its requester makes it: its keys, its repetitions, and its end.

use zrs_core::mem::copying::{Copying, Left, Next, KEY_MS};
use zrs_core::mem::id::Key;
use zrs_core::mem::keys::KEYS_PER_REGION;
use zrs_core::mem::rights::{Range, Rights, Scope};
use zrs_core::mem::status::Status;

use crate::setup::{node, quiet, request, whole, Sizes, TestNode};
use common::Rng;

fn key(secret: u64) -> Key {
    Key {
        region: 1,
        gen: 1,
        secret,
    }
}

/// Derives the key that the copy wants.
fn derive(c: &mut Copying, now_ms: u64, secret: u64) -> (u64, u64, u64, u32) {
    let Next::Key {
        off,
        len,
        uses,
        ttl_ms,
    } = c.next(now_ms)
    else {
        panic!("no key is wanted");
    };
    c.asked(now_ms);
    assert!(c.is_deriving() && !c.is_asked() && c.next(now_ms) == Next::Wait);
    c.key_answered(Ok(key(secret)), false, now_ms);
    (off, len, uses, ttl_ms)
}

/// Asks the source: offset, bytes, key.
fn ask(c: &mut Copying, now_ms: u64) -> (u64, u64, Option<Key>) {
    let Next::Copy { off, len, key } = c.next(now_ms) else {
        panic!("the source is not asked: {:?}", c.next(now_ms));
    };
    c.asked(now_ms);
    assert!(c.is_asked() && c.next(now_ms) == Next::Wait);
    (off, len, key)
}

// rows: M2 M4
#[test]
fn only_a_key_that_is_used_up_is_not_revoked() {
    for status in Status::ALL {
        let mut c = Copying::new(1000, true);
        assert_eq!(derive(&mut c, 5, 7), (0, 1000, 1, KEY_MS as u32));
        assert_eq!(ask(&mut c, 5), (0, 1000, Some(key(7))));
        let done = if status == Status::Ok { 1000 } else { 10 };
        c.copied(status, done, 6);
        assert_eq!(c.next(6), Next::Over(status, done));
        let left = match status {
            Status::Ok => Left::Dead,
            _ => Left::Alive(key(7)),
        };
        assert_eq!((c.take_left(), c.take_left()), (Some(left), None));
    }
    // The program cancels it, or its thread is killed.
    let mut c = Copying::new(1000, true);
    derive(&mut c, 5, 7);
    c.end(Status::Canceled);
    assert_eq!(c.take_left(), Some(Left::Alive(key(7))));
    assert_eq!(c.next(6), Next::Over(Status::Canceled, 0));
    // The descriptor's key is the program's.
    let mut c = Copying::new(1000, false);
    assert_eq!(ask(&mut c, 5), (0, 1000, None));
    c.copied(Status::Stale, 0, u64::MAX);
    assert_eq!(
        (c.next(6), c.take_left()),
        (Next::Over(Status::Stale, 0), None)
    );
}

/// The target's part: KEY and UNKEY.
fn serve(
    n: &mut TestNode,
    c: &mut Copying,
    of: Key,
    others: bool,
    now_ms: u64,
    secret: u64,
) -> bool {
    let Next::Key {
        off,
        len,
        uses,
        ttl_ms,
    } = c.next(now_ms)
    else {
        return false;
    };
    let scope = Scope {
        rights: Rights::WRITE,
        range: Range { off, len },
        expires_ms: Some(now_ms + u64::from(ttl_ms)),
        uses: Some(uses as u32),
    };
    c.asked(now_ms);
    c.key_answered(n.derive(of, &scope, secret, now_ms), others, now_ms);
    true
}

// rows: M2 M4
#[test]
fn failed_copies_leave_no_key_in_the_region() {
    let mut n = node(&Sizes::default());
    let of = n.alloc(&request(1000, 1)).unwrap();
    for secret in 0..u64::from(2 * KEYS_PER_REGION) {
        let mut c = Copying::new(100, true);
        assert!(
            serve(&mut n, &mut c, of, false, 0, 100 + secret),
            "there is room"
        );
        ask(&mut c, 0);
        c.copied(Status::Stale, 0, 0);
        let Some(Left::Alive(victim)) = c.take_left() else {
            panic!("its key lives");
        };
        n.revoke(of, victim, 1, 0).unwrap();
        assert_eq!(quiet(&mut n), [(1, Status::Ok)]);
    }
}

// rows: M2 M4
#[test]
fn a_copy_waits_for_the_keys_of_others() {
    let mut n = node(&Sizes::default());
    let of = n.alloc(&request(1000, 1)).unwrap();
    // There is room for 63, beside the first key.
    let count = KEYS_PER_REGION as usize + 20;
    let mut copies: Vec<_> = (0..count).map(|_| Copying::new(100, true)).collect();
    let (mut rng, mut now, mut secret, mut over) = (Rng::new(1), 0, 100, 0);
    let mut at_once = 0;
    while over < count {
        now += 1;
        assert!(now < 100_000, "it ends");
        let deriving = |c: &mut Copying| matches!(c.next(now), Next::Copy { .. }) || c.is_asked();
        let holders = copies
            .iter_mut()
            .filter_map(|c| deriving(c).then_some(()))
            .count();
        at_once = at_once.max(holders);
        let c = &mut copies[rng.below(count as u64) as usize];
        match c.next(now) {
            Next::Key { .. } => {
                secret += 1;
                serve(&mut n, c, of, holders != 0, now, secret);
            }
            Next::Copy { .. } => c.asked(now),
            Next::Wait if rng.chance(5) => {
                let range = whole(1);
                let used = Key {
                    secret: secret_of(c),
                    ..of
                };
                let hold = n.begin(used, Rights::WRITE, range, now).unwrap();
                n.end(hold);
                c.copied(Status::Ok, 100, now);
                assert_eq!(c.take_left(), Some(Left::Dead));
                over += 1;
            }
            Next::Over(status, done) => assert_eq!((status, done), (Status::Ok, 100)),
            Next::Wait | Next::Later(_) => {}
        }
    }
    assert_eq!(at_once as u32, KEYS_PER_REGION - 1);
    // Where it does not wait for another copy, there is nothing to wait for.
    for why in [Status::NoSpace, Status::Quota] {
        let mut c = Copying::new(100, true);
        c.next(0);
        c.asked(0);
        c.key_answered(Err(why), false, 0);
        assert_eq!((c.next(0), c.take_left()), (Next::Over(why, 0), None));
    }
}

/// The secret of the derived key.
fn secret_of(c: &Copying) -> u64 {
    c.key().expect("it has one").secret
}

// rows: M2 M4 M5
#[test]
fn a_copy_waits_for_a_place_at_its_source() {
    let mut c = Copying::new(1000, true);
    derive(&mut c, 0, 7);
    let mut now = 0;
    let mut pauses = Vec::new();
    for _ in 0..10 {
        assert_eq!(ask(&mut c, now).2, Some(key(7)), "the same key");
        c.copied(Status::Again, 0, now);
        let Next::Later(at) = c.next(now) else {
            panic!("it waits");
        };
        assert!(matches!(c.next(at - 1), Next::Later(_)));
        pauses.push(at - now);
        now = at;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
    // It is too late for the key that it has.
    let late = KEY_MS;
    let (off, len, uses, ttl_ms) = derive(&mut c, late, 8);
    assert_eq!((off, len, uses), (0, 1000, 1));
    assert_eq!(u64::from(ttl_ms), 2 * KEY_MS, "longer than the last one");
    ask(&mut c, late);
    c.copied(Status::Ok, 1000, late);
    assert_eq!(c.next(late), Next::Over(Status::Ok, 1000));
}

// rows: M2 M4 M5
#[test]
fn a_key_lives_as_long_as_its_copy_takes() {
    let len = 1 << 30;
    let mut c = Copying::new(len, true);
    let ttl_ms = u64::from(derive(&mut c, 0, 7).3);
    assert_eq!(ttl_ms, KEY_MS + (1 << 20), "at a MiB a second");
    // One that takes longer goes on behind the bytes that have landed, with another key.
    ask(&mut c, 0);
    c.copied(Status::Stale, 100, ttl_ms);
    assert_eq!(c.take_left(), Some(Left::Dead));
    let (off, rest, ..) = derive(&mut c, ttl_ms, 8);
    assert_eq!((off, rest), (100, len - 100));
    assert_eq!(ask(&mut c, ttl_ms), (100, len - 100, Some(key(8))));
    // This time the region is gone.
    c.copied(Status::Stale, 50, ttl_ms + 1);
    assert_eq!(c.next(ttl_ms + 1), Next::Over(Status::Stale, 150));
    assert_eq!(c.take_left(), Some(Left::Alive(key(8))));
}

// rows: M2 M4
#[test]
fn messages_need_a_use_each() {
    let mut c = Copying::new(4097, true);
    derive(&mut c, 0, 7);
    ask(&mut c, 0);
    c.copied(Status::Unsupported, 0, 0);
    assert_eq!(c.take_left(), Some(Left::Dead), "OPEN was its use");
    let (_, _, uses, ttl_ms) = derive(&mut c, 0, 8);
    assert_eq!((uses, u64::from(ttl_ms)), (3, KEY_MS + 4 + 20));
    ask(&mut c, 0);
    c.copied(Status::Unsupported, 0, 0);
    assert_eq!(c.next(0), Next::Over(Status::Unsupported, 0), "once");
    assert_eq!(c.take_left(), Some(Left::Alive(key(8))));
}
