// SPDX-License-Identifier: GPL-2.0

use std::collections::VecDeque;

use proptest::prelude::*;
use zrs_core::dgram::fifo::Fifo;

use super::slots;

proptest! {
    // rows: Z7
    #[test]
    fn as_a_deque(size in 0..6_usize, ops in proptest::collection::vec(0..9_u8, 0..200)) {
        let mut fifo = Fifo::new(slots::<u32>(size));
        let (mut model, mut size) = (VecDeque::new(), size);
        for (n, op) in (0_u32..).zip(ops) {
            match op {
                0..=3 if model.len() < size => {
                    prop_assert_eq!(fifo.push(n), Ok(()));
                    model.push_back(n);
                }
                0..=3 => prop_assert_eq!(fifo.push(n), Err(n)),
                4..=6 => prop_assert_eq!(fifo.pop(), model.pop_front()),
                7 if model.len() < size => {
                    prop_assert_eq!(fifo.push_front(n), Ok(()));
                    model.push_front(n);
                }
                7 => prop_assert_eq!(fifo.push_front(n), Err(n)),
                _ => {
                    let new = size * 2 % 17 + 1;
                    let old = fifo.move_to(slots(new));
                    prop_assert!(old.iter().all(Option::is_none));
                    prop_assert_eq!(old.len(), size.min(new));
                    size = size.max(new);
                }
            }
            prop_assert_eq!(fifo.slots(), size);
            prop_assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(fifo.first(), model.front());
        }
    }
}
