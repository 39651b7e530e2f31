// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use zrs_core::dgram::sndbuf::{admits, charge, writable};

// rows: Z7 E1
#[test]
fn the_rule_of_udp() {
    // One of any length while there is room at all.
    assert!(admits(4608, 0) && admits(4608, 4607) && !admits(4608, 4608));
    // A third is not enough for poll(): half is.
    assert!(writable(4608, 2303) && !writable(4608, 2304));
    assert_eq!(charge(0), 256);
    assert_eq!(charge(65_507), 65_763);
    assert_eq!(charge(usize::MAX), usize::MAX);
    // A socket that is closed promises nothing.
    assert!(!admits(0, 0) && !writable(0, 0));
}

proptest! {
    // rows: Z7 E1
    #[test]
    fn what_poll_promises_is_admitted(limit: u32, held: u64) {
        prop_assert!(!writable(limit, held) || admits(limit, held));
        // Bytes that leave make room, never less of it.
        prop_assert!(!writable(limit, held) || writable(limit, held / 2));
    }
}
