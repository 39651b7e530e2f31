// SPDX-License-Identifier: GPL-2.0

//! Segments that escape from the window to main memory, against a plain list and real bytes: with
//! recv() alone, with a ring that has an escape area, and with one that has none; with a program
//! that takes and gives back in any order, and with one that abuses it. A ring may have an area for
//! small messages, with room for all of them or not. The peer writes as far as
//! it has room and no further, so that room that comes back too early shows in the bytes.

mod moving;
mod program;
mod ring;
mod world;

use common::cases;
use world::{Seen, World};
use zrs_core::rx_queue::EscapeTarget;

fn run(escape_target: EscapeTarget, hostile: bool) {
    let mut sum = Seen::default();
    for seed in 0..cases(3000).into() {
        let caught = std::panic::catch_unwind(|| {
            let mut w = World::new(seed, escape_target, hostile);
            if w.rng.chance(60) {
                w.makes_ring();
            }
            for _ in 0..400 {
                w.step();
            }
            w.finish()
        });
        let seen = caught.unwrap_or_else(|e| {
            eprintln!("seed {seed}, {escape_target:?}, hostile {hostile}");
            std::panic::resume_unwind(e)
        });
        sum.to_area += seen.to_area;
        sum.held += seen.held;
        sum.blocks += seen.blocks;
        sum.late += seen.late;
        sum.given_in_part += seen.given_in_part;
        sum.windows_back += seen.windows_back;
        sum.area_full += seen.area_full;
        sum.wrapped += seen.wrapped;
        sum.small += seen.small;
        sum.small_full += seen.small_full;
        sum.small_by_recv += seen.small_by_recv;
    }
    // Miri runs too few.
    if cases(3000) == 3000 {
        let all = [
            sum.held,
            sum.blocks,
            sum.late,
            sum.given_in_part,
            sum.windows_back,
            sum.wrapped,
        ];
        assert!(all.iter().all(|n| *n > 0), "{sum:?}");
        let area = escape_target == EscapeTarget::Area;
        assert_eq!((sum.to_area > 0, sum.area_full > 0), (area, area));
        // There is a ring then.
        let ring = escape_target != EscapeTarget::Anywhere;
        let small = [sum.small, sum.small_full, sum.small_by_recv];
        assert!(small.iter().all(|n| (*n > 0) == ring), "{sum:?}");
    }
}

// rows: C5 Z6
#[test]
fn moves_from_under_recv() {
    run(EscapeTarget::Anywhere, false);
}

// rows: C5 C4 B3 Z6
#[test]
fn moves_to_the_area_of_a_ring() {
    run(EscapeTarget::Area, false);
}

// rows: C5 C4
#[test]
fn a_ring_without_an_area_keeps_what_it_shows() {
    run(EscapeTarget::Nowhere, false);
}

// rows: C5 B11
#[test]
fn moves_beside_a_hostile_program() {
    run(EscapeTarget::Area, true);
    run(EscapeTarget::Nowhere, true);
}
