// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use zrs_core::dgram::segment::{cuts, segments, TooMany, SEGMENTS_MAX};

// rows: Z7
#[test]
fn an_empty_call_is_a_datagram() {
    for size in [0, 1, 9] {
        let all: Vec<_> = segments(&[], size).map(Iterator::collect).unwrap();
        assert_eq!(all, [&[]]);
        assert!(!cuts(0, size));
    }
}

// rows: Z7
#[test]
fn at_most_so_many() {
    let bytes = [0; SEGMENTS_MAX * 3 + 1];
    assert_eq!(
        segments(&bytes[..SEGMENTS_MAX * 3], 3).map(Iterator::count),
        Ok(SEGMENTS_MAX)
    );
    assert_eq!(segments(&bytes, 3).map(Iterator::count), Err(TooMany));
    assert_eq!(segments(&bytes, 0).map(Iterator::count), Ok(1));
}

proptest! {
    // rows: Z7
    #[test]
    fn all_bytes_in_order(len in 1_usize..5000, size in 0_u16..6000) {
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let Ok(parts) = segments(&bytes, size) else {
            prop_assert!(size > 0 && len.div_ceil(size.into()) > SEGMENTS_MAX);
            return Ok(());
        };
        let parts: Vec<_> = parts.collect();
        prop_assert_eq!(&parts.concat(), &bytes);
        prop_assert_eq!(parts.len() > 1, cuts(len, size));
        if size > 0 {
            let (last, full) = parts.split_last().unwrap();
            prop_assert!(full.iter().all(|p| p.len() == usize::from(size)));
            prop_assert!((1..=usize::from(size)).contains(&last.len()));
        }
    }
}
