// SPDX-License-Identifier: GPL-2.0

//! Places that data leaves to control messages.

use zrs_core::control_reserve::ControlReserve;

/// A control message takes places of the reserve, so data may use as many as before it; only when
/// the reserve is used up, data has less.
// rows: E4 Z5
#[test]
fn data_keeps_its_places() {
    for size in [1, 8, 16] {
        let (mut free, mut reserve) = (100, ControlReserve::new(size));
        let room = |free: u32, reserve: &ControlReserve| free - reserve.kept();
        let before = room(free, &reserve);
        for taken in 1..=size + 5 {
            free -= 1;
            reserve.take(1);
            assert_eq!(before - room(free, &reserve), taken.saturating_sub(size));
        }
        for left in (0..size + 5).rev() {
            free += 1;
            reserve.give(1);
            assert_eq!(before - room(free, &reserve), left.saturating_sub(size));
        }
        assert_eq!(reserve.kept(), size);
    }
}

/// Work requests are taken and given back several at once.
// rows: E4
#[test]
fn several_at_once() {
    let mut reserve = ControlReserve::new(16);
    for kept in [14, 12, 10, 8, 6, 4, 2, 0, 0] {
        reserve.take(2);
        assert_eq!(reserve.kept(), kept);
    }
    reserve.give(1);
    assert_eq!(reserve.kept(), 0);
    reserve.give(2);
    assert_eq!(reserve.kept(), 1);
}
