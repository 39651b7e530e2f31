// SPDX-License-Identifier: GPL-2.0

use std::collections::VecDeque;

use proptest::prelude::*;
use zrs_core::dgram::backlog::{Backlog, BYTES_MAX};
use zrs_core::dgram::wire::LEN_MAX;

use super::slots;

// rows: Z7
#[test]
fn the_longest_datagram_has_room() {
    const { assert!(LEN_MAX <= BYTES_MAX) };
    let mut b = Backlog::new(slots(4));
    for n in 0..3 {
        while let Some(old) = b.evict(LEN_MAX) {
            assert_eq!(old, n - 1);
        }
        assert_eq!(b.push(LEN_MAX, n), Ok(()));
        assert_eq!(b.len(), 1);
    }
    assert_eq!(b.pop(), Some(2));
    assert!(b.is_empty());
}

proptest! {
    // rows: Z7
    #[test]
    fn the_oldest_go(
        size in 1..9_usize,
        ops in proptest::collection::vec((0..4_u8, 0..=LEN_MAX), 0..100),
    ) {
        let mut b = Backlog::new(slots(size));
        let mut model: VecDeque<(u32, u32)> = VecDeque::new();
        for (n, (op, len)) in (0_u32..).zip(ops) {
            if op == 0 {
                prop_assert_eq!(b.pop(), model.pop_front().map(|m| m.1));
            } else {
                let len = if op == 1 { len } else { len % 9000 };
                let bytes = |m: &VecDeque<(u32, u32)>| m.iter().map(|m| m.0).sum::<u32>();
                let full = |m: &VecDeque<_>| m.len() >= size || bytes(m) + len > BYTES_MAX;
                if full(&model) {
                    prop_assert_eq!(b.push(len, n), Err(n));
                }
                while full(&model) {
                    prop_assert_eq!(b.evict(len), model.pop_front().map(|m| m.1));
                }
                prop_assert_eq!(b.evict(len), None);
                prop_assert_eq!(b.push(len, n), Ok(()));
                model.push_back((len, n));
            }
            prop_assert_eq!(b.len(), model.len());
            prop_assert_eq!(b.bytes(), model.iter().map(|m| m.0).sum::<u32>());
        }
    }
}
