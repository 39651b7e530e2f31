// SPDX-License-Identifier: GPL-2.0

//! Derivation: a key never allows more than the one it comes from.

use zrs_core::mem::rights::{Range, Rights, Scope};
use zrs_core::mem::status::Status;

use crate::setup::{scope, whole};
use common::Rng;

// rows: M4
#[test]
fn every_pair_of_rights() {
    for has in 0..16 {
        for wants in 0..16 {
            let of = |bits| scope(Rights::from_bits(bits).unwrap(), whole(8));
            let want = match () {
                () if has & Rights::GRANT.bits() == 0 => Err(Status::Denied),
                () if wants == 0 => Err(Status::Invalid),
                () if wants & !has != 0 => Err(Status::Denied),
                () => Ok(of(wants)),
            };
            assert_eq!(of(has).derive(&of(wants)), want, "{has} {wants}");
        }
    }
    assert_eq!(Rights::from_bits(16), None);
}

// rows: M4
#[test]
fn every_small_range() {
    let in_it = |off, len| Range { off, len };
    let parent = scope(Rights::ALL, in_it(3, 4));
    for off in 0..10 {
        for len in 0..10 {
            let wanted = scope(Rights::READ, in_it(off, len));
            let want = match len {
                0 => Err(Status::Invalid),
                _ if off >= 3 && off + len <= 7 => Ok(wanted),
                _ => Err(Status::Denied),
            };
            assert_eq!(parent.derive(&wanted), want, "{off} {len}");
        }
    }
    let wraps = scope(Rights::READ, in_it(u64::MAX, 5));
    assert_eq!(parent.derive(&wraps), Err(Status::Denied));
}

// rows: M4
#[test]
fn expiry_is_never_later() {
    let with = |expires_ms| Scope {
        expires_ms,
        ..scope(Rights::ALL, whole(8))
    };
    for (parent, wanted, gets) in [
        (None, None, None),
        (None, Some(5), Some(5)),
        (Some(5), None, Some(5)),
        (Some(5), Some(9), Some(5)),
        (Some(9), Some(5), Some(5)),
    ] {
        assert_eq!(with(parent).derive(&with(wanted)).unwrap().expires_ms, gets);
    }
    assert!(with(Some(5)).expired(5) && !with(Some(5)).expired(4) && !with(None).expired(u64::MAX));
}

// rows: M4
#[test]
fn uses_are_not_passed_on() {
    let parent = scope(Rights::ALL, whole(8));
    let with = |rights, uses| Scope {
        uses,
        ..scope(rights, whole(8))
    };
    assert!(parent.derive(&with(Rights::WRITE, Some(1))).is_ok());
    assert_eq!(
        parent.derive(&with(Rights::WRITE, Some(0))),
        Err(Status::Invalid)
    );
    assert_eq!(
        parent.derive(&with(Rights::ALL, Some(1))),
        Err(Status::Invalid)
    );
}

// rows: M2
#[test]
fn ranges_overlap_as_their_bytes_do() {
    let mut rng = Rng::new(3);
    for _ in 0..10_000 {
        let mut some = || Range {
            off: rng.below(12),
            len: rng.below(6),
        };
        let (a, b) = (some(), some());
        let bytes = |r: Range| r.off..r.off + r.len;
        let common = bytes(a).any(|at| bytes(b).contains(&at));
        assert_eq!(
            (a.overlaps(b), b.overlaps(a)),
            (common, common),
            "{a:?} {b:?}"
        );
        let inside = b.off >= a.off && b.off + b.len <= a.off + a.len;
        assert_eq!(a.contains(b), inside);
    }
    let last = Range {
        off: u64::MAX,
        len: 1,
    };
    assert!(last.overlaps(last) && !last.overlaps(whole(u64::MAX)));
}
