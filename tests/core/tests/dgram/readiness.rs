// SPDX-License-Identifier: GPL-2.0

use zrs_core::dgram::readiness::{events, View};

/// As `datagram_poll()` of the kernel computes it.
fn udp(v: &View) -> u32 {
    let mut mask = 0;
    if v.error {
        mask |= 0x8 | if v.selects_errors { 0x2 } else { 0 };
    }
    if v.shut_read {
        mask |= 0x2000 | 0x1 | 0x40;
    }
    if v.shut_read && v.shut_write {
        mask |= 0x10;
    }
    if v.readable {
        mask |= 0x1 | 0x40;
    }
    if v.writable {
        mask |= 0x4 | 0x100 | 0x200;
    }
    mask
}

// rows: Z7 E4
#[test]
fn every_state() {
    for bits in 0..64_u32 {
        let bit = |n: u32| bits & (1 << n) != 0;
        let v = View {
            readable: bit(0),
            writable: bit(1),
            shut_read: bit(2),
            shut_write: bit(3),
            error: bit(4),
            selects_errors: bit(5),
        };
        assert_eq!(events(&v), udp(&v), "{v:?}");
    }
}
