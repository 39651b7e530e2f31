// SPDX-License-Identifier: GPL-2.0
//! How much of a blocking send is copied.

use zrs_core::copy_tail::tail;

const PAGE: usize = 4096;
const MAPPED_ABOVE: usize = 16 * 1024;

fn totals() -> impl Iterator<Item = usize> {
    let near = (0..=80).flat_map(|pages| [pages * PAGE, pages * PAGE + 1, pages * PAGE + 4095]);
    near.chain([
        777_777,
        1 << 20,
        (1 << 20) + 100,
        i32::MAX as usize,
        usize::MAX,
    ])
}

#[test]
fn no_more_than_is_set() {
    for total in totals() {
        for most in [0, 1, PAGE, 12_345, 65_536, 262_144, usize::MAX] {
            let t = tail(total, most);
            assert!(t <= most && t <= total, "{total} {most}: {t}");
            assert!(t == 0 || t >= PAGE.min(total), "{total} {most}: {t}");
        }
    }
}

#[test]
fn calls_of_what_is_set_are_copied_whole() {
    for total in totals() {
        assert_eq!(tail(total, total), total);
        assert_eq!(tail(total, usize::MAX), total);
    }
}

#[test]
fn the_pinned_part_has_whole_pages() {
    for total in totals() {
        for most in [PAGE, 12_345, 65_536] {
            let t = tail(total, most);
            assert!(t == 0 || (total - t) % PAGE == 0, "{total} {most}: {t}");
        }
    }
}

/// What a receiver could have mapped as one piece begins with a piece that it can have mapped.
#[test]
fn the_pinned_part_of_a_long_call_can_be_mapped() {
    for total in totals().filter(|t| *t > MAPPED_ABOVE) {
        for most in [PAGE, 65_536, 262_144] {
            let t = tail(total, most);
            assert!(t == total || total - t > MAPPED_ABOVE, "{total} {most}");
        }
    }
}

#[test]
fn what_calls_copy() {
    let kib = |total: usize, most: usize| tail(total << 10, most << 10) >> 10;
    assert_eq!(tail(16_384, 0), 0);
    assert_eq!(kib(16, 64), 16);
    assert_eq!(kib(64, 64), 64);
    assert_eq!(kib(68, 64), 48);
    assert_eq!(kib(80, 64), 60);
    assert_eq!(kib(84, 64), 64);
    assert_eq!(kib(128, 64), 64);
    assert_eq!(kib(1024, 64), 64);
    assert_eq!(kib(1024, 8), 8);
    assert_eq!(kib(16, 8), 8);
    assert_eq!(kib(20, 8), 0);
    assert_eq!(kib(24, 8), 4);
    // Not a whole number of pages: the tail is shorter.
    assert_eq!(tail(300_001, 65_536), 300_001 - 237_568);
}
