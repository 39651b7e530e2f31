// SPDX-License-Identifier: GPL-2.0

//! Sizes of pools, chunks and windows: by hand, and against the same in numbers that cannot
//! overflow.

use common::cases;
use proptest::prelude::*;
use zrs_core::channel::{WINDOW_MAX, WINDOW_MIN};
use zrs_core::sizing::{
    chunk, gathered, hot_slots, pool_bytes, residency_bucket, window, window_for, Machine, BUCKETS,
    FLOOR, HOT_MOST,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn pool(rate: u64, residency_us: u32, percent: u32, cache_bytes: u64) -> u64 {
    pool_bytes(&Machine {
        rate,
        residency_us,
        percent,
        cache_bytes,
    })
}

// rows: B17 Z4
#[test]
fn chunks_fit_the_elements_of_a_device() {
    let kib = |n: u32| n * 1024;
    // In five requests: mlx5, irdma (E810), bnxt_re and siw, qedr, irdma (X722).
    for (max_sge, most) in [(30, 256), (13, 256), (6, 64), (4, 64), (3, 32)] {
        assert_eq!(gathered(max_sge, 5), kib(most), "{max_sge} elements");
    }
    assert_eq!(gathered(0, 5), 0);
    assert_eq!(gathered(u32::MAX, u32::MAX), kib(256));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    // rows: B17 Z4
    #[test]
    fn gathered_bytes_have_their_elements(
        max_sge in 1_u32..64, writes in 1_u32..16, first in 0_u32..4096, at_most in 0_u32..=4096,
    ) {
        let bytes = gathered(max_sge, writes).saturating_sub(at_most);
        prop_assert!((first + bytes).div_ceil(4096) <= max_sge * writes);
        prop_assert!(gathered(max_sge, writes) >= (max_sge * writes - 1).min(64) * 4096 / 2);
    }
}

// rows: C2
#[test]
fn pools_follow_rate_and_time() {
    // 400 Gbit/s in 200 us are 10 MB: 153 x 64 KiB.
    assert_eq!(pool(50_000, 200, 100, 64 * MIB), 153 * 64 * KIB);
    assert_eq!(pool(100_000, 200, 100, 64 * MIB), 306 * 64 * KIB);
    assert_eq!(pool(100_000, 200, 50, 64 * MIB), 153 * 64 * KIB);
    assert_eq!(pool(50_000, 200, 200, 64 * MIB), 306 * 64 * KIB);
    // Up to the next 64 KiB.
    assert_eq!(pool(9 * MIB, 1, 100, 64 * MIB), 9 * MIB);
    assert_eq!(pool(9 * MIB + 1, 1, 100, 64 * MIB), 9 * MIB + 64 * KIB);
}

// rows: C2
#[test]
fn pools_have_a_floor_and_a_cap() {
    // 100 Gbit/s would need 2.5 MB.
    assert_eq!(pool(12_500, 200, 100, 64 * MIB), FLOOR);
    assert_eq!(FLOOR, 8 * MIB);
    for (rate, residency_us, percent) in [(0, 200, 100), (50_000, 0, 100), (50_000, 200, 0)] {
        assert_eq!(pool(rate, residency_us, percent, 64 * MIB), FLOOR);
    }
    // No more than half of the cache, down to the last 64 KiB.
    assert_eq!(pool(1_000_000, 200, 100, 64 * MIB), 32 * MIB);
    assert_eq!(pool(1_000_000, 200, 100, 64 * MIB + 127 * KIB), 32 * MIB);
    assert_eq!(
        pool(1_000_000, 200, 100, 64 * MIB + 128 * KIB),
        32 * MIB + 64 * KIB
    );
    // A small cache, and one of unknown size.
    for cache in [0, 1, 4 * MIB, 16 * MIB, 16 * MIB + 127 * KIB] {
        assert_eq!(pool(1_000_000, 200, 100, cache), FLOOR);
    }
}

// rows: C1 C3
#[test]
fn chunks_are_powers_of_two() {
    for (rate, residency_us, bytes) in [
        (0, 200, 256 * KIB),      // not known
        (0, 0, 256 * KIB),        // neither
        (12_500, 200, 256 * KIB), // 100 Gbit/s
        (1250, 200, 256 * KIB),   // 10 Gbit/s: 250,000 bytes
        (125, 200, 32 * KIB),     // 1 Gbit/s: 25,000 bytes
        (12, 200, 16 * KIB),      // 100 Mbit/s
        (12_500, 0, 16 * KIB),
        (1, 16_384, 16 * KIB),
        (1, 16_385, 32 * KIB),
        (1, 131_072, 128 * KIB),
        (1, 131_073, 256 * KIB),
        (1 << 32, 1, 256 * KIB),
        (u64::MAX, u32::MAX, 256 * KIB),
    ] {
        let got = u64::from(chunk(rate, residency_us));
        assert_eq!(got, bytes, "{rate} bytes/us, {residency_us} us");
    }
}

// rows: C3
#[test]
fn windows_are_four_chunks() {
    assert_eq!(window(256 * 1024), 1 << 20);
    assert_eq!(window(16 * 1024), WINDOW_MIN);
    assert_eq!(window(16 * 1024 + 1), WINDOW_MIN + 4);
    assert_eq!((window(0), window(1)), (WINDOW_MIN, WINDOW_MIN));
    assert_eq!(window(u32::MAX), WINDOW_MAX);
}

// rows: C5
#[test]
fn times_are_counted_in_powers_of_two() {
    assert_eq!((residency_bucket(0), residency_bucket(999)), (0, 0));
    assert_eq!((residency_bucket(1000), residency_bucket(1999)), (1, 1));
    for n in 1..BUCKETS - 1 {
        let limit = 1000 << n;
        assert_eq!(residency_bucket(limit - 1), n);
        assert_eq!(residency_bucket(limit), n + 1);
    }
    assert_eq!(BUCKETS, 24);
    assert_eq!(residency_bucket(1000 << (BUCKETS - 1)), BUCKETS - 1);
    assert_eq!(residency_bucket(u64::MAX), BUCKETS - 1);
}

/// Numbers of all magnitudes.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(n, shift)| n >> shift)
}

fn short() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32_u32).prop_map(|(n, shift)| n >> shift)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2000)))]

    // rows: C2
    #[test]
    fn pools_as_long_numbers_have_it(
        rate in number(), residency_us in short(), percent in short(), cache in number(),
    ) {
        let bytes = pool(rate, residency_us, percent, cache);
        let unit = u128::from(WINDOW_MIN);
        prop_assert_eq!(u128::from(bytes) % unit, 0);
        let half = u128::from(cache) / 2 / unit * unit;
        // A product beyond 128 bits exceeds any cache.
        let product = (u128::from(rate) * u128::from(residency_us)).checked_mul(percent.into());
        let fits = product.map_or(half, |p| (p / 100).div_ceil(unit) * unit);
        let expected = fits.min(half).max(FLOOR.into());
        // Beyond 64 bits the product saturates; no cache is that large.
        if product.is_some_and(|p| p <= u64::MAX.into()) || cache < 1 << 56 {
            prop_assert_eq!(u128::from(bytes), expected);
        }
        prop_assert!(u128::from(bytes) <= half.max(FLOOR.into()));
        // More of anything is never less.
        let more = |n: u64| n.saturating_add(n / 3).saturating_add(1);
        let more32 = |n: u32| n.saturating_add(n / 3).saturating_add(1);
        prop_assert!(pool(more(rate), residency_us, percent, cache) >= bytes);
        prop_assert!(pool(rate, more32(residency_us), percent, cache) >= bytes);
        prop_assert!(pool(rate, residency_us, more32(percent), cache) >= bytes);
        prop_assert!(pool(rate, residency_us, percent, more(cache)) >= bytes);
    }

    // rows: C1 C3
    #[test]
    fn chunks_fit_what_arrives(rate in 1..=1_u64 << 40, residency_us in short()) {
        let bytes = chunk(rate, residency_us);
        let arrives = u128::from(rate) * u128::from(residency_us);
        prop_assert!(bytes.is_power_of_two());
        prop_assert!((16 * 1024..=256 * 1024).contains(&bytes));
        prop_assert!(bytes == 256 * 1024 || u128::from(bytes) >= arrives);
        prop_assert!(bytes == 16 * 1024 || u128::from(bytes / 2) < arrives);
        prop_assert_eq!(window(bytes), 4 * bytes);
    }

    // rows: C5
    #[test]
    fn each_time_has_its_bucket(ns in number()) {
        let n = residency_bucket(ns);
        prop_assert!(n < BUCKETS);
        let limit = |n: usize| 1000_u128 << n;
        prop_assert!(n == BUCKETS - 1 || u128::from(ns) < limit(n));
        prop_assert!(n == 0 || u128::from(ns) >= limit(n - 1));
    }
}

// rows: Z1
#[test]
fn windows_follow_the_receive_buffer() {
    // The kernel keeps twice the value that the program set.
    assert_eq!(window_for(2 * 200_000), 196_608);
    assert_eq!(window_for(2 * 65_536), 65_536);
    assert_eq!(window_for(2 * 131_071), 65_536);
    assert_eq!(window_for(0), WINDOW_MIN);
    assert_eq!(window_for(u32::MAX), WINDOW_MAX);
}

proptest! {
    #[test]
    fn a_window_and_as_much_again_fit_the_receive_buffer(rcvbuf: u32) {
        let window = window_for(rcvbuf);
        prop_assert_eq!(window % WINDOW_MIN, 0);
        prop_assert!((WINDOW_MIN..=WINDOW_MAX).contains(&window));
        prop_assert!(window == WINDOW_MIN || 2 * u64::from(window) <= u64::from(rcvbuf));
    }
}

// rows: L3
#[test]
fn each_channel_has_a_hot_slot_if_memory_allows() {
    assert_eq!(hot_slots(16_384, 512, 8 << 30), 16_384);
    assert_eq!(hot_slots(16_384, 512, 2 << 30), 4096);
    assert_eq!(hot_slots(100, 512, 8 << 30), 100);
    // Little memory, and unbelievable values.
    assert_eq!(hot_slots(16_384, 512, 16 << 20), 256);
    assert_eq!(hot_slots(16_384, 0, 8 << 30), 256);
    assert_eq!(hot_slots(1 << 24, 512, u64::MAX), HOT_MOST);
}
