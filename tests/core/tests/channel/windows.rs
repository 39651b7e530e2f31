// SPDX-License-Identifier: GPL-2.0

//! Windows: exact positions, leases that come and go, and a peer's violations of them.

use zrs_core::channel::{Event, Limits, Plan, WINDOW_MAX, WINDOW_MIN};
use zrs_core::wire::{Header, Type, CHUNK_MAX, SMALL_MAX};
use zrs_core::Violation;

use super::*;
use common::Rng;

const KIB: u32 = 1024;

/// Each WRITE begins where the one before ended, none crosses the window's end, and the announced
/// bytes are the written ones.
// rows: Z5 C1
#[test]
fn exact_positions() {
    for (size, addr) in [
        (65536, 0),
        (70001, 0xdead_0000),
        (WINDOW_MIN + 1, u64::MAX - 70000),
    ] {
        let mut rng = Rng::new(u64::from(size));
        let (mut a, mut b) = pair();
        lease(&mut b, &mut a, size, addr, 77);
        let (mut pos, mut written) = (0, 0_u64);
        let mut unread = std::collections::VecDeque::new();
        for _ in 0..2000 {
            let want = rng.range(1, 30000) as u32;
            let mut plan = a.plan(want, true);
            if plan != Plan::Wait {
                if rng.chance(30) {
                    plan = plan.shortened(rng.range(1, plan.len() as u64) as u32);
                }
                let n = plan.len() as u32;
                let aligned = matches!(plan, Plan::Aligned(_));
                assert!(!aligned || want > 16 * KIB && size % 4096 == 0);
                let chunk = a.commit(plan).expect("room");
                let (h, (to, key)) = (chunk.header, chunk.write_to.expect("a WRITE"));
                let pad = match aligned {
                    true => written.next_multiple_of(4096) - written,
                    false => 0,
                };
                written += pad;
                let off = written % u64::from(size);
                assert_eq!((to, key), (addr + off, 77));
                assert!(off + u64::from(n) <= u64::from(size));
                assert_eq!(
                    (h.kind, h.len, h.pos, h.woff, h.arg0),
                    (Type::Written, n, pos, written, 1)
                );
                assert_eq!(
                    b.on_message(&h),
                    Ok(Event::Written {
                        off: off as u32,
                        pad: pad as u32
                    })
                );
                pos += u64::from(n);
                written += u64::from(n);
                unread.push_back(pad as u32 + n);
            } else {
                assert!(!unread.is_empty());
                for n in unread.drain(..) {
                    b.freed(n, 0);
                }
                assert_eq!(tell(&mut b, &mut a), [Event::Room]);
            }
        }
        assert!(written > 20 * u64::from(size));
    }
}

// rows: Z5
#[test]
fn plans() {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 1024 * KIB, 0, 1);
    assert_eq!(a.plan(5000, true), Plan::Bulk(5000));
    assert_eq!(
        a.plan(u32::MAX, true),
        Plan::Bulk(CHUNK_MAX),
        "no longer than a chunk"
    );
    // A small call does not go into the window.
    assert_eq!(a.plan(4096, false), Plan::Small(4096));
    for _ in 0..3 {
        bulk(&mut a, CHUNK_MAX);
    }
    bulk(&mut a, CHUNK_MAX - 16 * KIB);
    assert_eq!(a.plan(u32::MAX, true), Plan::Bulk(16 * KIB));
    bulk(&mut a, 1);
    // Less than 16 KiB are not worth a WRITE, unless that is all.
    assert_eq!(a.plan(u32::MAX, true), Plan::Wait);
    assert_eq!(a.plan(16 * KIB, true), Plan::Wait);
    assert_eq!(a.plan(16 * KIB - 1, true), Plan::Bulk(16 * KIB - 1));
    assert_eq!(a.commit(Plan::Bulk(16 * KIB)), None);
    bulk(&mut a, 16 * KIB - 1);
    assert_eq!(
        (a.plan(1, true), a.commit(Plan::Bulk(1))),
        (Plan::Wait, None)
    );
    // The room is at the beginning again.
    let mut credit = Header::new(Type::Credit, a.local(), b.local());
    (credit.lease, credit.credit.window) = (1, u64::from(100 * KIB));
    assert_eq!(a.on_message(&credit), Ok(Event::Room));
    assert_eq!(a.commit(Plan::Bulk(100 * KIB + 1)), None);
    assert_eq!(a.plan(u32::MAX, true), Plan::Bulk(100 * KIB));
    // Longer than a chunk or over the end is refused even if there were room.
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 1024 * KIB, 0, 1);
    assert_eq!(
        (a.commit(Plan::Bulk(CHUNK_MAX + 1)), a.commit(Plan::Bulk(0))),
        (None, None)
    );
    assert_eq!(a.commit(Plan::Small(SMALL_MAX + 1)), None);
    for n in [CHUNK_MAX, CHUNK_MAX, CHUNK_MAX, CHUNK_MAX - 100] {
        bulk(&mut a, n);
    }
    let mut credit = Header::new(Type::Credit, a.local(), b.local());
    (credit.lease, credit.credit.window) = (1, u64::from(512 * KIB));
    assert_eq!(a.on_message(&credit), Ok(Event::Room));
    assert_eq!(a.commit(Plan::Bulk(101)), None);
    assert_eq!(a.plan(5000, true), Plan::Bulk(100), "up to the end");
    bulk(&mut a, 100);
    assert_eq!(a.plan(5000, true), Plan::Bulk(5000));
    // No window, no WRITE.
    let (mut a, _) = pair();
    assert_eq!(a.commit(Plan::Bulk(1)), None);
}

/// A Written that is not exactly the next bytes of the lease, or more than fits.
// rows: Z5 B11
#[test]
fn written_wrongly() {
    let next = || {
        let (mut a, mut b) = pair();
        lease(&mut b, &mut a, 65536, 0, 1);
        let (_, first) = bulk(&mut a, 60000);
        assert_eq!(b.on_message(&first), Ok(Event::Written { off: 0, pad: 0 }));
        let (_, h) = bulk(&mut a, 5536);
        (b, h)
    };
    let (mut b, h) = next();
    assert_eq!(b.on_message(&h), Ok(Event::Written { off: 60000, pad: 0 }));
    type Change = fn(&mut Header);
    let bad: [(Violation, Change); 9] = [
        (Violation::Position, |h| h.woff -= 1),
        (Violation::Position, |h| h.woff += 65536),
        (Violation::Position, |h| h.woff = 0),
        (Violation::Position, |h| h.woff = u64::MAX),
        (Violation::Position, |h| h.arg0 = 2),
        (Violation::Position, |h| h.arg0 = 0),
        (Violation::Position, |h| h.len = 5537),
        (Violation::Position, |h| h.pos += 1),
        (Violation::Position, |h| h.len = CHUNK_MAX),
    ];
    for (violation, change) in bad {
        let (mut b, mut h) = next();
        change(&mut h);
        assert_eq!(b.on_message(&h), Err(violation), "{h:?}");
    }
    // In place, but the data there is not read yet.
    let (mut b, h) = next();
    assert!(b.on_message(&h).is_ok());
    let mut over = h;
    (over.pos, over.woff, over.len) = (65536, 65536, 1);
    assert_eq!(b.on_message(&over), Err(Violation::Credit));
    let (mut b, h) = next();
    assert!(b.on_message(&h).is_ok());
    b.freed(60000, 0);
    say_a(&mut b, Type::Credit);
    over.len = 60001;
    assert_eq!(b.on_message(&over), Err(Violation::Credit));
    over.len = 60000;
    assert_eq!(b.on_message(&over), Ok(Event::Written { off: 0, pad: 0 }));
}

// rows: Z3 B11
#[test]
fn grants_that_make_no_sense() {
    let grant = |size, addr| {
        let (mut a, b) = pair();
        let mut h = Header::new(Type::WindowGrant, a.local(), b.local());
        (h.arg1, h.arg2, h.lease) = (size, addr, 1);
        a.on_message(&over_the_wire(&h))
    };
    for (size, addr) in [
        (WINDOW_MIN, 0),
        (WINDOW_MAX, u64::MAX - u64::from(WINDOW_MAX)),
        (0, u64::MAX), // none
    ] {
        assert_eq!(grant(size, addr), Ok(Event::Room));
    }
    for (size, addr) in [
        (1, 0),
        (WINDOW_MIN - 1, 0),
        (WINDOW_MAX + 1, 0),
        (u32::MAX, 0),
        (WINDOW_MIN, u64::MAX),
        (WINDOW_MAX, u64::MAX - u64::from(WINDOW_MAX) + 1),
    ] {
        assert_eq!(grant(size, addr), Err(Violation::Length));
    }
    let (mut a, b) = pair();
    let mut unnumbered = Header::new(Type::WindowGrant, a.local(), b.local());
    unnumbered.arg1 = WINDOW_MIN;
    assert_eq!(
        a.on_message(&unnumbered),
        Err(Violation::Length),
        "lease 0 is none"
    );
    // Nor do we make such.
    for size in [0, WINDOW_MIN - 1, WINDOW_MAX + 1] {
        let (mut a, _) = pair();
        assert!(!a.grant(size, 0, 1) && !a.has_pending_control());
    }
}

/// Asked for, denied, the small way for a mebibyte, asked for again, granted.
// rows: C3 Z5
#[test]
fn denied_and_asked_again() {
    let (mut a, mut b) = pair();
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    assert!(a.has_pending_control());
    assert_eq!(a.plan(1 << 20, true), Plan::Wait, "asked once");
    // Small data of another call need not wait for the answer.
    assert!(a.writable());
    assert_eq!(a.plan(100, false), Plan::Small(100));
    assert_eq!(tell(&mut a, &mut b), [Event::WindowWanted]);
    b.deny();
    let denial = say_a(&mut b, Type::WindowGrant);
    assert_eq!((denial.arg1, denial.lease), (0, 0));
    assert_eq!(a.on_message(&denial), Ok(Event::Room));
    assert_eq!(a.peer_window_size(), None);
    let mut sent = 0;
    while sent < 1 << 20 {
        assert_eq!(
            a.plan(1 << 20, true),
            Plan::Small(SMALL_MAX),
            "after {sent}"
        );
        let data = small(&mut a, SMALL_MAX);
        sent += SMALL_MAX;
        assert_eq!(b.on_message(&data), Ok(Event::Data));
        b.freed(0, SMALL_MAX);
        tell(&mut b, &mut a);
    }
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    assert_eq!(tell(&mut a, &mut b), [Event::WindowWanted]);
    lease(&mut b, &mut a, 65536, 0, 1);
    assert_eq!(a.plan(1 << 20, true), Plan::Bulk(65536));
}

/// A side that has ended its stream needs no window, whether it has one or not.
// rows: B11
#[test]
fn no_wish_after_fin() {
    for leased in [false, true] {
        let (mut a, mut b) = pair();
        if leased {
            lease(&mut b, &mut a, 65536, 0, 1);
        }
        let wish = over_the_wire(&Header::new(Type::WindowRequest, b.local(), a.local()));
        if leased {
            assert_eq!(b.on_message(&wish), Ok(Event::None));
        }
        a.shut_write();
        assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
        assert_eq!(b.on_message(&wish), STATE);
    }
}

/// An offer crosses a request: it is the answer.
// rows: C3
#[test]
fn offer_crosses_request() {
    let (mut a, mut b) = pair();
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    let request = say_a(&mut a, Type::WindowRequest);
    lease(&mut b, &mut a, 65536, 0, 1);
    assert_eq!(b.on_message(&request), Ok(Event::None));
    assert!(!b.has_pending_control());
    assert_eq!(a.plan(1 << 20, true), Plan::Bulk(65536));

    // The offer arrives before the request has left: it need not be sent any more.
    let (mut a, mut b) = pair();
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    lease(&mut b, &mut a, 65536, 0, 1);
    assert!(!a.has_pending_control());

    // Denied, but granted before that is said: one answer.
    let (mut a, mut b) = pair();
    b.deny();
    assert!(b.grant(65536, 0, 1));
    b.deny();
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert_eq!(a.peer_window_size(), Some(65536));
    assert!(!b.grant(65536, 0, 1), "one at a time");
}

/// The grant names the lease; nothing of it is said before.
// rows: Z3
#[test]
fn nothing_of_a_lease_before_its_grant() {
    let (_, mut b) = pair();
    assert!(b.grant(65536, 5, 6));
    let early = small(&mut b, 1);
    assert_eq!((early.lease, early.credit.window), (0, 0));
    let grant = say_a(&mut b, Type::WindowGrant);
    assert_eq!(
        (grant.arg0, grant.arg1, grant.arg2, grant.lease),
        (6, 65536, 5, 1)
    );
    assert_eq!(small(&mut b, 1).lease, 1);
}

/// A revocation ends the lease only when the peer says so; then another may follow.
// rows: Z3 C5
#[test]
fn revocation() {
    let (mut a, mut b) = pair();
    assert!(!b.revoke() && !b.revoking());
    assert!(!b.has_pending_control(), "there is nothing to revoke");
    lease(&mut b, &mut a, 65536, 0, 1);
    let (_, first) = bulk(&mut a, 65536);
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    assert_eq!(b.on_message(&first), Ok(Event::Written { off: 0, pad: 0 }));
    assert!(b.revoke() && b.revoking());
    assert!(!b.revoke());
    let revoke = say_a(&mut b, Type::WindowRevoke);
    assert_eq!(revoke.lease, 1);
    // Once, however often it is asked for.
    assert!(!b.revoke() && b.revoking());
    assert!(!b.has_pending_control());
    assert!(!b.peer_writes_done() && !b.grant(65536, 0, 1));
    // The peer's sender waits for room that will never come: it must look again.
    assert_eq!(a.on_message(&revoke), Ok(Event::Room));
    assert_eq!(a.peer_window_size(), None);
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    assert_eq!(
        a.commit(Plan::Bulk(1)),
        None,
        "an old plan does not fit any more"
    );
    let revoked = say_a(&mut a, Type::Revoked);
    assert_eq!(revoked.arg0, 1);
    assert_eq!(b.on_message(&revoked), Ok(Event::Revoked));
    assert!(b.peer_writes_done() && b.window_size().is_none());
    assert_eq!(b.on_message(&revoked), STATE, "twice");
    let request = say_a(&mut a, Type::WindowRequest);
    assert_eq!(b.on_message(&request), Ok(Event::WindowWanted));
    // Not while something of the old one is unread: it would be counted to the new one.
    assert!(b.window_unread() == 65536 && !b.grant(65536, 0, 2));
    b.freed(65536, 0);
    assert_eq!(b.window_unread(), 0);
    lease(&mut b, &mut a, 70000, 0x7000, 2);
    let ((to, key), h) = bulk(&mut a, 10);
    assert_eq!((to, key, h.woff, h.arg0, h.pos), (0x7000, 2, 0, 2, 65536));
    assert_eq!(b.on_message(&h), Ok(Event::Written { off: 0, pad: 0 }));
    // The credit of the old lease says nothing about the new one.
    let mut old = small(&mut b, 1);
    (old.lease, old.credit.window) = (1, 65536);
    assert_eq!(a.on_message(&old), Ok(Event::Data));
}

// rows: Z5
#[test]
fn each_lease_counts_from_nothing() {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 65536, 0, 1);
    let (_, h) = bulk(&mut a, 40000);
    assert!(b.on_message(&h).is_ok());
    b.freed(40000, 0);
    b.revoke();
    tell(&mut b, &mut a);
    assert_eq!(tell(&mut a, &mut b), [Event::Revoked]);
    lease(&mut b, &mut a, 65536, 0, 2);
    let h = small(&mut b, 1);
    assert_eq!((h.lease, h.credit.window), (2, 0));
    assert_eq!(a.on_message(&h), Ok(Event::Data));
    assert_eq!(a.plan(1 << 20, true), Plan::Bulk(65536));
}

/// A window that the peer has not used is revoked; and one whose grant it has not received yet,
/// behind the grant.
// rows: Z3 C5
#[test]
fn revoked_at_once() {
    let (mut a, mut b) = pair();
    for (size, lease, waits) in [(131_072, 1, false), (65_536, 2, true), (65_536, 3, false)] {
        assert!(b.grant(size, 0, 1) && b.grant_waits());
        if !waits {
            assert_eq!(tell(&mut b, &mut a), [Event::Room]);
            assert_eq!(a.peer_window_size(), Some(size));
        }
        assert_eq!(b.grant_waits(), waits);
        assert!(b.revoke() && b.revoking());
        assert!(!b.revoke(), "once");
        assert!(!b.grant(65_536, 0, 1), "it is the peer's");
        if waits {
            let grant = say_a(&mut b, Type::WindowGrant);
            assert_eq!((grant.arg1, grant.lease), (size, lease));
            assert_eq!(a.on_message(&grant), Ok(Event::Room));
            assert_eq!(a.peer_window_size(), Some(size));
        }
        let revoke = say_a(&mut b, Type::WindowRevoke);
        assert_eq!(revoke.lease, lease);
        assert_eq!(a.on_message(&revoke), Ok(Event::Room));
        assert_eq!(a.peer_window_size(), None);
        assert_eq!(tell(&mut a, &mut b), [Event::Revoked]);
    }
}

/// A peer that sends no more returns no window: there is no wait for that.
// rows: Z3 E4
#[test]
fn not_revoking_after_the_end() {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 65536, 0, 1);
    assert!(b.revoke());
    let fin = {
        a.shut_write();
        say_a(&mut a, Type::Fin)
    };
    assert!(b.on_message(&fin).is_ok());
    assert!(!b.revoking() && b.peer_writes_done());
}

// rows: Z3 B11
#[test]
fn revoked_wrongly() {
    // Another lease than the current one.
    for lease_no in [0, 2, u32::MAX] {
        let (mut a, mut b) = pair();
        lease(&mut b, &mut a, 65536, 0, 1);
        let mut h = Header::new(Type::WindowRevoke, a.local(), b.local());
        h.lease = lease_no;
        assert_eq!(a.on_message(&h), STATE);
        b.revoke();
        say_a(&mut b, Type::WindowRevoke);
        let mut h = Header::new(Type::Revoked, b.local(), a.local());
        h.arg0 = lease_no;
        assert_eq!(b.on_message(&h), STATE);
    }
}

/// Nobody reads: no window for that, but an answer, so that the peer does not wait.
// rows: Z5 C3
#[test]
fn no_window_without_a_reader() {
    let (mut a, mut b) = pair();
    b.shut_read();
    assert_eq!(a.plan(1 << 20, true), Plan::Wait);
    assert_eq!(tell(&mut a, &mut b), [Event::None]);
    assert!(!b.grant(65536, 0, 1));
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert_eq!(a.plan(1 << 20, true), Plan::Small(SMALL_MAX));
}

/// No lease for a peer that sends no more, nor on a channel that has ended or not begun.
// rows: Z2 Z3
#[test]
fn no_window_without_use() {
    let (mut a, mut b) = pair();
    a.shut_write();
    tell(&mut a, &mut b);
    assert!(!b.grant(65536, 0, 1));
    b.deny();
    b.revoke();
    assert!(!b.has_pending_control());
    let mut c = connecting(LIMITS);
    assert!(!c.grant(65536, 0, 1));
    let (mut c, _) = pair();
    c.shut(false);
    assert!(!c.grant(65536, 0, 1));
}

/// No WRITE after FIN, END or RESET: its receiver may take the window away.
// rows: Z3 B11
#[test]
fn quiet_after_the_end() {
    for how in 0..3 {
        let (mut a, mut b) = pair();
        lease(&mut b, &mut a, 65536, 0, 1);
        assert!(!b.peer_writes_done());
        match how {
            0 => a.shut_write(),
            1 => a.shut(false),
            _ => a.shut(true),
        }
        assert_eq!(a.plan(10, true), Plan::Wait);
        assert_eq!(
            (a.commit(Plan::Bulk(10)), a.commit(Plan::Small(10))),
            (None, None)
        );
        assert!(!b.peer_writes_done());
        tell(&mut a, &mut b);
        assert!(b.peer_writes_done());
    }
    // Our own end says nothing about the peer's WRITEs.
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 65536, 0, 1);
    b.shut(true);
    let reset = say_a(&mut b, Type::Reset);
    assert!(!b.peer_writes_done());
    let (_, h) = bulk(&mut a, 10);
    assert_eq!(b.on_message(&h), Ok(Event::Unwanted));
    assert_eq!(a.on_message(&reset), Ok(Event::Failed));
    assert_eq!(
        (a.peer_window_size(), a.commit(Plan::Bulk(10))),
        (None, None)
    );
    assert_eq!(tell(&mut a, &mut b), [Event::Fin]);
    assert!(b.peer_writes_done());
}

/// More than 16 KiB begin at a page, wherever the bytes before them ended; what is left out is
/// given back with them, and may be no more than it takes to get there.
// rows: Z5 Z6 C1
#[test]
fn large_chunks_begin_at_pages() {
    let (mut a, mut b) = pair();
    lease(&mut b, &mut a, 128 * KIB, 0, 77);
    let (_, h) = bulk(&mut a, 5000);
    b.on_message(&h).expect("the next bytes");
    // No more than 16 KiB go on where the last bytes ended.
    assert_eq!(a.plan(16 * KIB, true), Plan::Bulk(16 * KIB));
    assert_eq!(a.plan(16 * KIB + 1, true), Plan::Aligned(16 * KIB + 1));
    // A chunk that does not fit is cut at the end of a page: the rest goes on at the beginning of
    // the next.
    assert_eq!(a.plan(u32::MAX, true), Plan::Aligned(120 * KIB));
    let chunk = a.commit(Plan::Aligned(30_001)).expect("room");
    let h = chunk.header;
    assert_eq!((h.woff, h.len, h.pos), (8192, 30_001, 5000));
    assert_eq!(chunk.write_to, Some((8192, 77)));
    for (woff, seen) in [
        (8192 + 4096, Err(Violation::Position)),
        (8191, Err(Violation::Position)),
        (4096, Err(Violation::Position)),
        (
            8192,
            Ok(Event::Written {
                off: 8192,
                pad: 3192,
            }),
        ),
    ] {
        assert_eq!(b.on_message(&Header { woff, ..h }), seen);
    }
    // The room of both comes back.
    b.freed(5000, 0);
    b.freed(3192 + 30_001, 0);
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert_eq!(b.window_unread(), 0);
    assert_eq!(
        a.plan(u32::MAX, true),
        Plan::Aligned(88 * KIB),
        "to the end"
    );
    let chunk = a.commit(Plan::Aligned(88 * KIB)).expect("room");
    assert_eq!(chunk.header.woff, 40 * u64::from(KIB));
    b.on_message(&chunk.header).expect("the next bytes");
    // At the end the window begins again.
    assert_eq!(a.plan(u32::MAX, true), Plan::Bulk(36 * KIB));
}

/// The largest limits and the largest window, all of it unread, and then all of it freed and not
/// told: the counters are as far apart as they may be, and the channel can be parked all the same.
// rows: L3 Z5
#[test]
fn the_most_that_can_be_under_way() {
    let most = Limits {
        msgs: 1 << 16,
        small: 1 << 24,
    };
    let (mut a, mut b) = pair_with(most, most);
    lease(&mut b, &mut a, WINDOW_MAX, 0, 1);
    let (chunks, smalls) = (WINDOW_MAX / CHUNK_MAX, most.small / SMALL_MAX);
    for _ in 0..chunks {
        let (_, h) = bulk(&mut a, CHUNK_MAX);
        assert!(b.on_message(&h).is_ok());
    }
    for _ in 0..smalls {
        let h = small(&mut a, SMALL_MAX);
        assert_eq!(b.on_message(&h), Ok(Event::Data));
    }
    assert_eq!(
        (a.plan(1, false), a.plan(1, true)),
        (Plan::Wait, Plan::Wait)
    );
    assert_eq!(b.window_unread(), u64::from(WINDOW_MAX));
    (0..chunks).for_each(|_| b.freed(CHUNK_MAX, 0));
    (0..smalls).for_each(|_| b.freed(0, SMALL_MAX));
    assert_eq!(tell(&mut b, &mut a), [Event::Room]);
    assert_eq!(a.plan(CHUNK_MAX, true), Plan::Bulk(CHUNK_MAX));
}
