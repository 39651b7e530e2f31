// SPDX-License-Identifier: GPL-2.0
//! How much SO_SNDBUF lets a socket take.

use zrs_core::sndbuf::{room, writable};
use zrs_core::wire::SMALL_MAX;

const SMALL: usize = SMALL_MAX as usize;

/// Limits from the least that the kernel sets, and below it, to the most.
const LIMITS: [u32; 9] = [0, 1, 4096, 4608, 8192, 10_001, 131_072, 8 << 20, u32::MAX];

fn helds(limit: u32) -> impl Iterator<Item = u64> {
    let limit = u64::from(limit);
    (0..=64)
        .map(move |n| limit * n / 64)
        .chain([
            limit.saturating_sub(4096),
            limit.saturating_sub(4095),
            limit + 1,
        ])
        .chain([u64::MAX])
}

#[test]
fn never_more_than_the_limit() {
    for limit in LIMITS {
        for held in helds(limit) {
            for want in [1, 100, SMALL, SMALL + 1, 65_536, 1 << 20, usize::MAX] {
                let n = room(limit, held, want);
                assert!(n <= want);
                let most = u64::from(limit.max(SMALL_MAX));
                assert!(
                    n == 0 || held + n as u64 <= most,
                    "{limit} {held} {want}: {n}"
                );
            }
        }
    }
}

#[test]
fn a_small_message_goes_whole() {
    for limit in LIMITS {
        for held in helds(limit) {
            for want in [1, 100, SMALL] {
                let n = room(limit, held, want);
                assert!(n == 0 || n == want, "{limit} {held} {want}: {n}");
            }
        }
    }
}

#[test]
fn what_poll_promises_is_so() {
    for limit in LIMITS {
        for held in helds(limit) {
            for want in [1, SMALL, SMALL + 1, 1 << 20] {
                let taken = room(limit, held, want);
                assert!(
                    !writable(limit, held) || taken >= want.min(SMALL),
                    "{limit} {held} {want}: {taken}"
                );
            }
        }
    }
}

#[test]
fn whoever_waits_gets_room_when_nothing_is_held() {
    for limit in LIMITS {
        assert!(writable(limit, 0), "{limit}");
        for want in [1, SMALL, SMALL + 1, 1 << 20] {
            assert!(room(limit, 0, want) >= want.min(SMALL));
        }
    }
}

#[test]
fn poll_waits_for_a_third() {
    assert!(writable(96 << 10, 64 << 10));
    assert!(!writable(96 << 10, (64 << 10) + 2));
    assert_eq!(room(96 << 10, (64 << 10) + 2, SMALL), SMALL);
}

#[test]
fn a_long_call_goes_by_halves_in_whole_pages() {
    assert_eq!(room(128 << 10, 0, 1 << 20), 64 << 10);
    assert_eq!(room(128 << 10, 64 << 10, 1 << 20), 64 << 10);
    assert_eq!(room(100_000, 0, 1 << 20), 49_152);
    assert_eq!(room(100_000, 49_152, 1 << 20), 49_152);
    assert_eq!(room(100_000, 98_304, 1 << 20), 0);
    // The rest of a call need not end with a page.
    assert_eq!(room(128 << 10, 0, 50_001), 50_001);
}
