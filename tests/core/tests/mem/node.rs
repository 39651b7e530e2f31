// SPDX-License-Identifier: GPL-2.0

//! Regions: allocation, admission, and the promise that what was reported as over is over.

use std::collections::BTreeSet;

use zrs_core::mem::admission::Admission;
use zrs_core::mem::id::Key;
use zrs_core::mem::keys::KEYS_PER_REGION;
use zrs_core::mem::node::{AllocRequest, Hold, Piece, State};
use zrs_core::mem::rights::{Range, Rights, Scope};
use zrs_core::mem::status::Status;

use crate::setup::{node, quiet, request, scope, unzeroed, whole, with_secret, zero_all};
use crate::setup::{Sizes, TestNode, ORPHAN_MS, PAGE};
use common::Rng;

fn alloc(n: &mut TestNode, len: u64, secret: u64) -> Key {
    n.alloc(&request(len, secret)).unwrap()
}

fn read(n: &mut TestNode, key: Key) -> Result<Hold, Status> {
    n.begin(key, Rights::READ, whole(1), 0)
}

fn write(n: &mut TestNode, key: Key) -> Result<Hold, Status> {
    n.begin(key, Rights::WRITE, whole(1), 0)
}

fn status<T>(r: Result<T, Status>) -> Status {
    r.err().unwrap_or(Status::Ok)
}

// rows: M1 M5
#[test]
fn a_region_is_all_of_its_bytes() {
    let mut n = node(&Sizes::default());
    let len = 19 * PAGE + 5;
    let key = alloc(&mut n, len, 1);
    let hold = n.begin(key, Rights::READ, whole(len), 0).unwrap();
    let all: Vec<_> = n.pieces(&hold, whole(len)).collect();
    assert_eq!(all.iter().map(|p| p.len).sum::<u64>(), len);
    assert_eq!(all.len(), 3, "extents of at most 8 pages");
    // The bytes of any range are those of the whole.
    let bytes: Vec<u64> = all.iter().flat_map(|p| p.at..p.at + p.len).collect();
    let mut rng = Rng::new(1);
    for _ in 0..300 {
        let off = rng.below(len);
        let range = Range {
            off,
            len: rng.below(len - off + 1),
        };
        let part = n.pieces(&hold, range).flat_map(|p| p.at..p.at + p.len);
        assert!(part.eq(bytes[off as usize..(off + range.len) as usize]
            .iter()
            .copied()));
    }
    let beyond = Range { off: 1, len };
    assert_eq!(n.pieces(&hold, beyond).count(), 0);
    // Addresses are the owner's.
    assert_eq!(n.range_of(key, 0x1000 + 7, 9), Ok(Range { off: 7, len: 9 }));
    for (addr, bytes) in [
        (0xfff, 1),
        (0x1000, len + 1),
        (0x1000 + len, 1),
        (u64::MAX, 2),
    ] {
        assert_eq!(n.range_of(key, addr, bytes), Err(Status::Range));
    }
    n.end(hold);
}

// rows: M4
#[test]
fn every_right_in_every_state() {
    let rights = |bits| Rights::from_bits(bits).unwrap();
    for state in [State::Live, State::Sealing, State::Sealed, State::Closing] {
        for has in 1..16 {
            for needs in 1..4 {
                let mut n = node(&Sizes::default());
                let root = alloc(&mut n, PAGE, 1);
                let key = n
                    .derive(root, &scope(rights(has), whole(PAGE)), 2, 0)
                    .unwrap();
                let held = match state {
                    State::Live => None,
                    State::Sealing => {
                        let held = write(&mut n, root).ok();
                        n.seal(root, 1, 0).unwrap();
                        held
                    }
                    State::Sealed => {
                        n.seal(root, 1, 0).unwrap();
                        None
                    }
                    State::Closing => {
                        let held = read(&mut n, root).ok();
                        n.free(root, 1, 0).unwrap();
                        held
                    }
                };
                let want = match state {
                    State::Closing => Status::Stale,
                    _ if has & needs != needs => Status::Denied,
                    State::Sealing | State::Sealed if needs & 2 != 0 => Status::Sealed,
                    _ => Status::Ok,
                };
                let got = n.begin(key, rights(needs), whole(1), 0);
                assert_eq!(status(got), want, "{state:?} {has} {needs}");
                let got = n.begin_grant(key, rights(needs), 0).map(|g| g.0);
                assert_eq!(status(got), want, "{state:?} {has} {needs}");
                if let Some(hold) = held {
                    n.end(hold);
                }
            }
        }
    }
}

// rows: M4
#[test]
fn a_wrong_key_is_refused_as_what_it_is() {
    let mut n = node(&Sizes::default());
    let key = alloc(&mut n, PAGE, 7);
    assert_eq!(status(read(&mut n, with_secret(key, 8))), Status::Denied);
    let other = Key {
        gen: key.gen + 1,
        ..key
    };
    assert_eq!(status(read(&mut n, other)), Status::Stale);
    for region in [1, 15, 16, u32::MAX] {
        let other = Key { region, ..key };
        assert_eq!(status(read(&mut n, other)), Status::Stale, "{region}");
    }
    let beyond = Range { off: PAGE, len: 1 };
    assert_eq!(status(n.begin(key, Rights::READ, beyond, 0)), Status::Range);
    let wraps = Range {
        off: u64::MAX,
        len: 2,
    };
    assert_eq!(status(n.begin(key, Rights::READ, wraps, 0)), Status::Range);
    assert_eq!(
        status(n.begin(key, Rights::READ, whole(0), 0)),
        Status::Invalid
    );
    let part = scope(Rights::READ, Range { off: 8, len: 8 });
    let part = n.derive(key, &part, 9, 0).unwrap();
    assert_eq!(
        status(n.begin(part, Rights::READ, whole(9), 0)),
        Status::Denied
    );
    let no_data = n.begin_grant(key, Rights::READ | Rights::FREE, 0);
    assert_eq!(status(no_data.map(|g| g.0)), Status::Invalid);
    // The next region of that number is another one.
    n.free(key, 1, 0).unwrap();
    zero_all(&mut n);
    let next = alloc(&mut n, PAGE, 7);
    assert_eq!(next.region, key.region);
    assert_eq!(status(read(&mut n, key)), Status::Stale);
    assert_eq!(n.info(next, 0).unwrap().holds, 0);
}

// rows: M4
#[test]
fn a_key_of_a_former_incarnation_is_stale() {
    let s = Sizes::default();
    let mut first = unzeroed(&s, 0xaaaa_0000_1234_5678);
    zero_all(&mut first);
    let key = alloc(&mut first, PAGE, 7);
    let mut second = unzeroed(&s, 0xaaaa_0000_9999_0000);
    zero_all(&mut second);
    assert_eq!(alloc(&mut second, PAGE, 7).region, key.region);
    assert_eq!(status(read(&mut second, key)), Status::Stale);
    // Generation 0 is no region's.
    let mut wraps = unzeroed(&s, u64::from(u32::MAX));
    zero_all(&mut wraps);
    let gens = [1, 2, 3].map(|secret| alloc(&mut wraps, PAGE, secret).gen);
    assert_eq!(gens, [u32::MAX, 1, 2]);
}

// rows: M5
#[test]
fn free_returns_when_nothing_is_under_way() {
    let mut n = node(&Sizes::default());
    let key = alloc(&mut n, 3 * PAGE, 1);
    let (r, w) = (read(&mut n, key).unwrap(), write(&mut n, key).unwrap());
    let (g, _) = n.begin_grant(key, Rights::READ, 0).unwrap();
    n.free(key, 42, 0).unwrap();
    assert!([&r, &w, &g].iter().all(|h| n.must_stop(h, 0)));
    assert_eq!(status(read(&mut n, key)), Status::Stale);
    assert_eq!(status(n.free(key, 43, 0)), Status::Stale);
    for hold in [r, w, g] {
        assert_eq!(
            (quiet(&mut n), n.pages().used),
            (vec![], 3),
            "pages are kept"
        );
        n.end(hold);
    }
    assert_eq!(quiet(&mut n), [(42, Status::Ok)]);
    let pages = n.pages();
    assert_eq!((pages.used, pages.dirty, n.regions()), (0, 3, 0));
}

// rows: M5
#[test]
fn an_administrator_frees_by_number_and_waits_as_a_key_does() {
    let mut n = node(&Sizes::default());
    let key = alloc(&mut n, 3 * PAGE, 1);
    let (r, w) = (read(&mut n, key).unwrap(), write(&mut n, key).unwrap());
    let free = |n: &mut TestNode, gen, waiter| n.free_by_number(key.region, gen, waiter);
    assert_eq!(free(&mut n, key.gen + 1, 40), Err(Status::Stale));
    assert_eq!(
        n.free_by_number(key.region + 1, key.gen, 40),
        Err(Status::Stale)
    );
    assert!(!n.must_stop(&r, 0), "nothing has changed");
    free(&mut n, key.gen, 41).unwrap();
    assert!([&r, &w].iter().all(|h| n.must_stop(h, 0)));
    assert_eq!(status(read(&mut n, key)), Status::Stale);
    // Once more, while it is being closed.
    free(&mut n, key.gen, 42).unwrap();
    for hold in [r, w] {
        assert_eq!((quiet(&mut n), n.pages().used), (vec![], 3));
        n.end(hold);
    }
    assert_eq!(quiet(&mut n), [(41, Status::Ok), (42, Status::Ok)]);
    let pages = n.pages();
    assert_eq!((pages.used, pages.dirty, n.regions()), (0, 3, 0));
    assert_eq!(free(&mut n, key.gen, 43), Err(Status::Stale));
}

// rows: M5
#[test]
fn an_operation_is_told_why_it_is_stopped() {
    let mut n = node(&Sizes::default());
    let key = alloc(&mut n, PAGE, 1);
    let short = Scope {
        expires_ms: Some(50),
        ..scope(Rights::WRITE, whole(PAGE))
    };
    let short = n.derive(key, &short, 2, 0).unwrap();
    let holds = [write(&mut n, key).unwrap(), write(&mut n, short).unwrap()];
    n.seal(key, 1, 0).unwrap();
    let told = |n: &TestNode, now| [0, 1].map(|at: usize| n.stop_status(&holds[at], now));
    assert_eq!(told(&n, 49), [Status::Sealed, Status::Sealed]);
    assert_eq!(told(&n, 50), [Status::Sealed, Status::Stale], "expired");
    n.free(key, 2, 0).unwrap();
    assert_eq!(told(&n, 49), [Status::Stale, Status::Stale]);
    holds.into_iter().for_each(|hold| n.end(hold));
}

// rows: M5
#[test]
fn seal_waits_for_writes_and_not_for_reads() {
    let mut n = node(&Sizes::default());
    let key = alloc(&mut n, PAGE, 1);
    let (r, w) = (read(&mut n, key).unwrap(), write(&mut n, key).unwrap());
    n.seal(key, 1, 0).unwrap();
    n.seal(key, 2, 0).unwrap();
    assert!(n.must_stop(&w, 0) && !n.must_stop(&r, 0));
    assert_eq!(n.stop_status(&w, 0), Status::Sealed);
    assert_eq!(status(write(&mut n, key)), Status::Sealed);
    assert_eq!(
        (quiet(&mut n), n.info(key, 0).unwrap().state),
        (vec![], State::Sealing)
    );
    n.end(w);
    assert_eq!(quiet(&mut n), [(1, Status::Ok), (2, Status::Ok)]);
    n.seal(key, 3, 0).unwrap();
    assert_eq!(quiet(&mut n), [(3, Status::Ok)], "at once");
    n.end(r);
    assert_eq!(status(write(&mut n, key)), Status::Sealed);
    // Free in the middle of a seal.
    let key = alloc(&mut n, PAGE, 1);
    let w = write(&mut n, key).unwrap();
    n.seal(key, 4, 0).unwrap();
    n.free(key, 5, 0).unwrap();
    assert_eq!(quiet(&mut n), []);
    n.end(w);
    let mut told = quiet(&mut n);
    told.sort_unstable_by_key(|t| t.0);
    assert_eq!(told, [(4, Status::Stale), (5, Status::Ok)]);
}

// rows: M4 M5
#[test]
fn revocation_waits_for_what_the_key_let_in_and_for_nothing_else() {
    let mut n = node(&Sizes::default());
    let root = alloc(&mut n, PAGE, 1);
    let all = scope(Rights::ALL, whole(PAGE));
    let middle = n.derive(root, &all, 2, 0).unwrap();
    let leaf = n.derive(middle, &all, 3, 0).unwrap();
    let beside = n.derive(root, &all, 4, 0).unwrap();
    let holds = [root, middle, leaf, beside].map(|k| write(&mut n, k).unwrap());
    n.revoke(root, middle, 9, 0).unwrap();
    let stop: Vec<_> = holds.iter().map(|h| n.must_stop(h, 0)).collect();
    assert_eq!(
        stop,
        [false, true, true, false],
        "the key and what is derived from it"
    );
    let can = [root, middle, leaf, beside].map(|k| status(read(&mut n, k)));
    assert_eq!(can, [Status::Ok, Status::Stale, Status::Stale, Status::Ok]);
    let [_root, m, l, _beside] = holds;
    n.end(m);
    assert_eq!(quiet(&mut n), []);
    n.end(l);
    assert_eq!(quiet(&mut n), [(9, Status::Ok)]);
    // By whom: not by a key beside, not by one that is derived from it, not without the right.
    let child = n.derive(beside, &all, 5, 0).unwrap();
    assert_eq!(n.revoke(child, beside, 1, 0), Err(Status::Denied));
    let other = n.derive(root, &all, 6, 0).unwrap();
    assert_eq!(n.revoke(other, child, 1, 0), Err(Status::Denied));
    let reader = n
        .derive(root, &scope(Rights::READ, whole(1)), 7, 0)
        .unwrap();
    assert_eq!(n.revoke(reader, reader, 1, 0), Err(Status::Denied));
    assert_eq!(
        n.revoke(root, with_secret(root, 99), 1, 0),
        Err(Status::Stale)
    );
    let foreign = alloc(&mut n, PAGE, 1);
    assert_eq!(n.revoke(root, foreign, 1, 0), Err(Status::Invalid));
    // A key may revoke itself.
    n.revoke(child, child, 11, 0).unwrap();
    assert_eq!(quiet(&mut n), [(11, Status::Ok)]);
}

// rows: M4
#[test]
fn expiry_and_uses() {
    let mut n = node(&Sizes::default());
    let root = alloc(&mut n, PAGE, 1);
    let mut soon = scope(Rights::READ, whole(PAGE));
    soon.expires_ms = Some(50);
    let key = n.derive(root, &soon, 2, 0).unwrap();
    let hold = n.begin(key, Rights::READ, whole(1), 49).unwrap();
    assert_eq!(n.next_deadline_ms(), Some(50));
    assert!(!n.must_stop(&hold, 49) && n.must_stop(&hold, 50));
    assert_eq!(
        status(n.begin(key, Rights::READ, whole(1), 50)),
        Status::Stale
    );
    n.end(hold);
    assert_eq!(n.next_deadline_ms(), None);
    let mut twice = scope(Rights::READ, whole(PAGE));
    twice.uses = Some(2);
    let key = n.derive(root, &twice, 3, 0).unwrap();
    assert_eq!(
        status(n.begin(key, Rights::WRITE, whole(1), 0)),
        Status::Denied
    );
    assert_eq!(
        status(n.begin(key, Rights::READ, whole(PAGE + 1), 0)),
        Status::Range
    );
    let (first, grant) = n.begin_grant(key, Rights::READ, 0).unwrap();
    assert!(grant.once, "what was refused is no use");
    let second = read(&mut n, key).unwrap();
    assert_eq!(status(read(&mut n, key)), Status::Stale);
    assert!(!n.must_stop(&first, 0), "the last use goes on");
    n.end(first);
    n.end(second);
    assert_eq!(status(read(&mut n, key)), Status::Stale, "ended ones count");
}

// rows: M5
#[test]
fn owners_that_are_gone() {
    let mut n = node(&Sizes::default());
    let with = |owner, keep| AllocRequest {
        owner,
        keep,
        ..request(PAGE, 1)
    };
    let [lost, kept, other] =
        [(5, false), (5, true), (6, false)].map(|(o, k)| n.alloc(&with(o, k)).unwrap());
    n.owner_lost(5, 100);
    n.owner_lost(5, 500);
    assert_eq!(
        n.next_deadline_ms(),
        Some(100 + ORPHAN_MS),
        "the first time counts"
    );
    assert!(!n.expire_one(99 + ORPHAN_MS));
    n.owner_back(5);
    assert!(!n.expire_one(100 + ORPHAN_MS));
    n.owner_lost(5, 3000);
    let hold = read(&mut n, lost).unwrap();
    assert!(n.expire_one(3000 + ORPHAN_MS) && !n.expire_one(u64::MAX));
    assert_eq!(
        (status(read(&mut n, lost)), n.regions()),
        (Status::Stale, 3)
    );
    n.end(hold);
    assert_eq!(n.regions(), 2);
    assert!(read(&mut n, kept).is_ok() && read(&mut n, other).is_ok());
    // A kept one goes with its time.
    let short = AllocRequest {
        expires_ms: Some(10),
        ..with(5, true)
    };
    let short = n.alloc(&short).unwrap();
    assert!(n.expire_one(10));
    assert_eq!(status(read(&mut n, short)), Status::Stale);
    assert!(
        !n.close_region(other.region, other.gen + 1) && n.close_region(other.region, other.gen)
    );
}

// rows: M4
#[test]
fn a_host_leaves_regions_and_extents_to_the_others() {
    let s = Sizes {
        pages: 32,
        run_max: 1,
        regions: 8,
        extents: 20,
        owner_percent: 50,
        ..Sizes::default()
    };
    let mut n = node(&s);
    let of = |owner, len| AllocRequest {
        owner,
        ..request(len, 1)
    };
    for _ in 0..4 {
        n.alloc(&of(3, PAGE)).unwrap();
    }
    assert_eq!(n.alloc(&of(3, PAGE)), Err(Status::Quota), "regions");
    let other = n.alloc(&of(4, 10 * PAGE)).unwrap();
    assert_eq!(n.alloc(&of(4, PAGE)), Err(Status::Quota), "extents");
    // The node's own host has no share, but for what its users have.
    n.alloc(&of(0, PAGE)).unwrap();
    n.alloc(&of(0, PAGE)).unwrap();
    n.free(other, 1, 0).unwrap();
    n.alloc(&of(4, PAGE)).unwrap();
    // One region is never too many.
    let mut n = node(&Sizes {
        owner_percent: 0,
        ..s
    });
    n.alloc(&of(3, PAGE)).unwrap();
    assert_eq!(n.alloc(&of(3, PAGE)), Err(Status::Quota));
}

// rows: M4
#[test]
fn a_host_and_a_user_leave_keys_to_the_others() {
    let part = scope(Rights::ALL, whole(PAGE));
    let of = |owner, user, secret| AllocRequest {
        owner,
        user,
        ..request(PAGE, secret)
    };
    for (owner, user) in [(3, None), (0, Some(7))] {
        let mut n = node(&Sizes {
            keys: 12,
            owner_percent: 50,
            ..Sizes::default()
        });
        let first = n.alloc(&of(owner, user, 1)).unwrap();
        let second = n.alloc(&of(owner, user, 2)).unwrap();
        let mut derived: Vec<_> = (3..7)
            .map(|secret| n.derive(first, &part, secret, 0).unwrap())
            .collect();
        assert_eq!(n.derive(second, &part, 9, 0), Err(Status::Quota));
        assert_eq!(n.alloc(&of(owner, user, 9)), Err(Status::Quota));
        // Those that can never be used again make room, of whatever region they are.
        n.revoke(first, derived.pop().unwrap(), 1, 0).unwrap();
        assert_eq!(n.next_quiet(), Some((1, Status::Ok)));
        n.derive(second, &part, 9, 0).unwrap();
        assert_eq!(n.derive(second, &part, 10, 0), Err(Status::Quota));
        n.free(second, 2, 0).unwrap();
        n.derive(first, &part, 11, 0).unwrap();
        // The others have the other half.
        let other = n.alloc(&of(4, Some(8), 20)).unwrap();
        for secret in 21..26 {
            n.derive(other, &part, secret, 0).unwrap();
        }
    }
}

// rows: M4
#[test]
fn keys_that_have_ended_make_room_in_all_regions() {
    let mut n = node(&Sizes {
        keys: 8,
        ..Sizes::default()
    });
    let first = alloc(&mut n, PAGE, 1);
    let once = Scope {
        uses: Some(1),
        ..scope(Rights::READ, whole(PAGE))
    };
    let soon = Scope {
        expires_ms: Some(50),
        ..once
    };
    let keys: Vec<_> = (2..7)
        .map(|secret| n.derive(first, &once, secret, 0).unwrap())
        .collect();
    let parent = n.derive(first, &soon, 7, 0).unwrap();
    let held = read(&mut n, keys[0]).unwrap();
    let second = alloc(&mut n, PAGE, 8);
    for (now_ms, why) in [(0, Err(Status::NoSpace)), (60, Ok(()))] {
        let more = AllocRequest {
            now_ms,
            ..request(PAGE, 9)
        };
        assert_eq!(
            n.alloc(&more).map(|_| ()),
            why,
            "one is used up, but in use"
        );
    }
    let at = |n: &TestNode, key| n.info(key, 0).map(|i| i.len);
    assert_eq!(at(&n, parent), Err(Status::Denied), "its place was needed");
    n.end(held);
    n.derive(second, &once, 10, 0).unwrap();
    assert_eq!(at(&n, keys[0]), Err(Status::Denied));
    assert_eq!(at(&n, keys[1]), Ok(PAGE));
    assert_eq!(n.derive(second, &once, 11, 0), Err(Status::NoSpace));
}

// rows: M1 B17
#[test]
fn parts_of_a_piece_have_room_in_registrations() {
    for (at, len) in [
        (0, 1),
        (0, 64),
        (5, 64),
        (15, 2),
        (16, 100),
        (63, 1),
        (100, 300),
    ] {
        for (pages, shift) in [(1, 4), (4, 4), (5, 4), (1000, 4), (3, 0)] {
            let (piece, page) = (Piece { at, len }, 1 << shift);
            let parts: Vec<_> = piece.parts(pages, shift).collect();
            let mut next = at;
            for (i, part) in parts.iter().enumerate() {
                assert!(part.at == next && part.len != 0, "{piece:?}: {parts:?}");
                assert!(i == 0 || part.at % page == 0, "{piece:?}: {parts:?}");
                let touched = (part.at + part.len - 1) / page - part.at / page + 1;
                assert_eq!(part.pages(shift), touched);
                assert!(touched <= u64::from(pages), "{piece:?}: {parts:?}");
                next += part.len;
            }
            assert_eq!(next, at + len);
            let least = piece.pages(shift).div_ceil(u64::from(pages));
            assert_eq!(parts.len() as u64, least, "{piece:?}: {parts:?}");
        }
        assert_eq!(Piece { at, len }.parts(0, 4).count(), 0);
    }
}

// rows: M4
#[test]
fn a_wrong_secret_learns_nothing_of_the_region() {
    let mut n = node(&Sizes::default());
    let key = n.alloc(&request(PAGE, 1)).unwrap();
    let wrong = Key { secret: 2, ..key };
    for addr in [0x1000, 0x1000 + PAGE] {
        assert_eq!(n.range_of(wrong, addr, 1), Err(Status::Denied));
    }
    assert_eq!(n.range_of(key, 0x1000 + PAGE, 1), Err(Status::Range));
}

// rows: M4
#[test]
fn what_there_is_no_room_for_changes_nothing() {
    let s = Sizes {
        pages: 8,
        run_max: 1,
        regions: 4,
        extents: 6,
        keys: 3,
        drains: 1,
        owner_bytes_max: 2 * PAGE,
        ..Sizes::default()
    };
    let mut n = unzeroed(&s, 1);
    assert_eq!(n.alloc(&request(PAGE, 1)), Err(Status::Again), "not zeroed");
    zero_all(&mut n);
    for (len, why) in [
        (0, Status::Invalid),
        (9 * PAGE, Status::NoSpace),
        (u64::MAX, Status::Invalid),
    ] {
        assert_eq!(n.alloc(&request(len, 1)), Err(why));
    }
    assert_eq!(
        n.alloc(&request(7 * PAGE, 1)),
        Err(Status::NoSpace),
        "extents"
    );
    let pages = n.pages();
    assert_eq!((pages.used, n.regions()), (0, 0));
    zero_all(&mut n);
    let peers = |len| AllocRequest {
        owner: 3,
        ..request(len, 1)
    };
    assert_eq!(n.alloc(&peers(3 * PAGE)), Err(Status::Quota));
    let first = n.alloc(&peers(2 * PAGE)).unwrap();
    assert_eq!(n.alloc(&peers(1)), Err(Status::Quota));
    let second = alloc(&mut n, PAGE, 2);
    alloc(&mut n, PAGE, 3);
    assert_eq!(n.alloc(&request(PAGE, 4)), Err(Status::NoSpace), "keys");
    let read_only = scope(Rights::READ, whole(1));
    assert_eq!(n.derive(second, &read_only, 9, 0), Err(Status::NoSpace));
    let hold = read(&mut n, second).unwrap();
    n.free(second, 1, 0).unwrap();
    assert_eq!(n.free(first, 2, 0), Err(Status::Again), "too many wait");
    assert!(read(&mut n, first).is_ok(), "and nothing has happened");
    n.end(hold);
    n.set_draining(true);
    assert!(n.draining());
    assert_eq!(n.alloc(&request(PAGE, 4)), Err(Status::Draining));
}

// rows: M4
#[test]
fn users_have_shares_of_the_regions() {
    let mut n = node(&Sizes {
        regions: 7,
        ..Sizes::default()
    });
    let of = |user, secret| AllocRequest {
        user,
        keep: true,
        ..request(1, secret)
    };
    let mut keys: Vec<_> = (1..4)
        .map(|secret| n.alloc(&of(Some(5), secret)).unwrap())
        .collect();
    assert_eq!(n.alloc(&of(Some(5), 9)), Err(Status::Quota), "half of 7");
    let other = n.alloc(&of(Some(6), 4)).unwrap();
    let exempt = n.alloc(&of(None, 5)).unwrap();
    // A region counts until it is quiet.
    let hold = read(&mut n, keys[0]).unwrap();
    n.free(keys.remove(0), 1, 0).unwrap();
    assert_eq!(n.alloc(&of(Some(5), 9)), Err(Status::Quota));
    n.end(hold);
    zero_all(&mut n);
    assert!(n.alloc(&of(Some(5), 9)).is_ok());
    n.free(other, 2, 0).unwrap();
    n.free(exempt, 3, 0).unwrap();
    // One in any case.
    let mut n = node(&Sizes {
        regions: 1,
        ..Sizes::default()
    });
    let key = n.alloc(&of(Some(5), 1)).unwrap();
    n.free(key, 1, 0).unwrap();
}

// rows: M4
#[test]
fn admission() {
    let key: [u8; 16] = std::array::from_fn(|n| n as u8 + 1);
    let mut n = node(&Sizes {
        admission: Admission::Key(key),
        ..Sizes::default()
    });
    let with = |admission, owner| AllocRequest {
        admission,
        owner,
        ..request(PAGE, 1)
    };
    let good = Key::decode(key);
    for owner in [0, 5] {
        for bit in 0..128 {
            let mut wrong = key;
            wrong[bit / 8] ^= 1 << (bit % 8);
            let wrong = with(Key::decode(wrong), owner);
            assert_eq!(n.alloc(&wrong), Err(Status::Denied), "bit {bit}");
        }
        assert_eq!(n.alloc(&with(Key::default(), owner)), Err(Status::Denied));
        assert!(n.alloc(&with(good, owner)).is_ok());
    }
    // What a node without room says is not for everybody.
    n.set_draining(true);
    assert_eq!(n.alloc(&with(Key::default(), 5)), Err(Status::Denied));
    assert_eq!(n.alloc(&with(good, 5)), Err(Status::Draining));
    // An open node asks for no key.
    let mut n = node(&Sizes::default());
    assert!(n.alloc(&with(good, 5)).is_ok());
}

// rows: M4
#[test]
fn sixty_four_keys() {
    let mut n = node(&Sizes::default());
    let root = alloc(&mut n, PAGE, 0);
    let all = scope(Rights::ALL, whole(PAGE));
    let keys: Vec<_> = (1..u64::from(KEYS_PER_REGION))
        .map(|secret| n.derive(root, &all, secret, 0).unwrap())
        .collect();
    assert_eq!(n.derive(root, &all, 999, 0), Err(Status::NoSpace));
    assert_eq!(
        n.derive(root, &all, 5, 0),
        Err(Status::Again),
        "a secret that there is"
    );
    let busy = read(&mut n, keys[3]).unwrap();
    n.revoke(root, keys[3], 1, 0).unwrap();
    assert_eq!(
        n.derive(root, &all, 999, 0),
        Err(Status::NoSpace),
        "it is not over"
    );
    n.end(busy);
    assert_eq!(
        n.derive(root, &all, 999, 0),
        Err(Status::NoSpace),
        "nor reported"
    );
    assert_eq!(quiet(&mut n), [(1, Status::Ok)]);
    assert_eq!(
        status(read(&mut n, keys[3])),
        Status::Stale,
        "as long as it is known"
    );
    assert!(n.derive(root, &all, 999, 0).is_ok());
    assert_eq!(status(read(&mut n, keys[3])), Status::Denied);
    assert_eq!(n.info(root, 0).unwrap().keys, KEYS_PER_REGION);
}

// rows: M4
#[test]
fn a_key_that_is_used_up_makes_room() {
    let mut n = node(&Sizes::default());
    let root = alloc(&mut n, PAGE, 0);
    let once = Scope {
        uses: Some(1),
        ..scope(Rights::READ, whole(PAGE))
    };
    for secret in 1..=3 * u64::from(KEYS_PER_REGION) {
        let key = n.derive(root, &once, secret, 0).unwrap();
        let hold = read(&mut n, key).unwrap();
        assert_eq!(status(read(&mut n, key)), Status::Stale, "used up");
        n.end(hold);
    }
}

// rows: M4
#[test]
fn a_key_that_has_expired_makes_room() {
    let mut n = node(&Sizes::default());
    let root = alloc(&mut n, PAGE, 0);
    let short = Scope {
        expires_ms: Some(60),
        uses: Some(1),
        ..scope(Rights::READ, whole(PAGE))
    };
    // As copies make them, which fail before they use them.
    for secret in 1..u64::from(KEYS_PER_REGION) {
        n.derive(root, &short, secret, 0).unwrap();
    }
    assert_eq!(n.derive(root, &short, 999, 59), Err(Status::NoSpace));
    let later = Scope {
        expires_ms: Some(120),
        ..short
    };
    for secret in 1000..1000 + u64::from(KEYS_PER_REGION) - 1 {
        assert!(n.derive(root, &later, secret, 60).is_ok());
    }
    assert_eq!(n.derive(root, &later, 2000, 60), Err(Status::NoSpace));
}

/// Random operations against lists of what is under way. A waiter is told when its operations are over, not before and not
/// later.
fn promise(seed: u64) -> u32 {
    struct Under {
        hold: Hold,
        region: u32,
        gen: u32,
        line: Vec<u64>,
    }
    let mut rng = Rng::new(seed);
    let mut n = node(&Sizes::default());
    // Keys with the secrets that they descend from, themselves among them.
    let mut keys: Vec<(Key, Vec<u64>)> = Vec::new();
    let mut under: Vec<Under> = Vec::new();
    let mut waiting: Vec<(u64, BTreeSet<usize>)> = Vec::new();
    let (mut next, mut told, mut ids) = (1_u64, 0, Vec::new());
    for _ in 0..400 {
        next += 1;
        let some = |rng: &mut Rng, keys: &[(Key, Vec<u64>)]| {
            let at = rng.below(keys.len().max(1) as u64) as usize;
            keys.get(at).cloned()
        };
        let pick = some(&mut rng, &keys);
        let concerns = |which: &dyn Fn(&Under) -> bool| -> Vec<usize> {
            (0..under.len()).filter(|at| which(&under[*at])).collect()
        };
        match (rng.below(20), pick) {
            (0..=2, _) | (_, None) => {
                zero_all(&mut n);
                if let Ok(key) = n.alloc(&request(rng.range(1, 4 * PAGE), next)) {
                    keys.push((key, vec![next]));
                }
            }
            (3..=4, Some((key, line))) => {
                let some = [Rights::ALL, Rights::READ | Rights::GRANT, Rights::WRITE];
                let wanted = scope(rng.pick(&some), whole(1));
                if let Ok(new) = n.derive(key, &wanted, next, 0) {
                    keys.push((new, [&line[..], &[next]].concat()));
                }
            }
            (5..=9, Some((key, line))) => {
                let rights = rng.pick(&[Rights::READ, Rights::WRITE]);
                if let Ok(hold) = n.begin(key, rights, whole(1), 0) {
                    ids.push(next as usize);
                    let (region, gen) = (key.region, key.gen);
                    under.push(Under {
                        hold,
                        region,
                        gen,
                        line,
                    });
                }
            }
            (10, Some((key, _))) => {
                let mine = concerns(&|u| (u.region, u.gen) == (key.region, key.gen));
                if n.free(key, next, 0).is_ok() {
                    waiting.push((next, mine.iter().map(|at| ids[*at]).collect()));
                }
            }
            (11, Some((key, _))) => {
                let mine =
                    concerns(&|u| (u.region, u.gen) == (key.region, key.gen) && u.hold.writes());
                if n.seal(key, next, 0).is_ok() {
                    waiting.push((next, mine.iter().map(|at| ids[*at]).collect()));
                }
            }
            (12, Some((key, _))) => {
                if let Some((victim, line)) = some(&mut rng, &keys) {
                    let secret = *line.last().unwrap();
                    let mine = concerns(&|u| {
                        (u.region, u.gen) == (victim.region, victim.gen) && u.line.contains(&secret)
                    });
                    if n.revoke(key, victim, next, 0).is_ok() {
                        waiting.push((next, mine.iter().map(|at| ids[*at]).collect()));
                    }
                }
            }
            _ if !under.is_empty() => {
                let at = rng.below(under.len() as u64) as usize;
                n.end(under.swap_remove(at).hold);
                let id = ids.swap_remove(at);
                for (_, left) in &mut waiting {
                    left.remove(&id);
                }
            }
            _ => {}
        }
        let over: BTreeSet<u64> = quiet(&mut n)
            .into_iter()
            .map(|(waiter, _)| waiter)
            .collect();
        for (waiter, left) in &waiting {
            // A region that is freed while it is sealed is reported when it is gone.
            if over.contains(waiter) {
                assert!(left.is_empty(), "seed {seed}: {waiter} is told too early");
            }
        }
        told += over.len() as u32;
        waiting.retain(|w| !over.contains(&w.0));
    }
    for u in under {
        n.end(u.hold);
    }
    let over = quiet(&mut n);
    assert_eq!(over.len(), waiting.len(), "seed {seed}: everybody is told");
    told
}

// rows: M5
#[test]
fn the_promise_with_random_operations() {
    let told: u32 = (0..common::cases(600).into()).map(promise).sum();
    assert!(told > 100 || cfg!(miri));
}
