// SPDX-License-Identifier: GPL-2.0

use proptest::prelude::*;
use zrs_core::dgram::assembly::{Arrived, Assembly};
use zrs_core::dgram::wire::{fragments, Fragment, Ports, FRAGMENT};
use zrs_core::Violation;

const PORTS: Ports = Ports { dst: 1, src: 2 };

fn all(id: u32, total: u32) -> Vec<Fragment> {
    fragments(PORTS, id, total).collect()
}

/// Notes the offsets of the fragments of a kept datagram.
type Offsets = Vec<u32>;

fn arrive(a: &mut Assembly<Offsets>, f: &Fragment, keep: bool) -> Result<&'static str, Violation> {
    Ok(match a.arrived(f, || keep.then(Vec::new))? {
        Arrived::Dropped => "dropped",
        Arrived::Part(kept) => {
            kept.push(f.offset);
            "part"
        }
        Arrived::Whole(mut kept) => {
            kept.push(f.offset);
            let expected: Offsets = all(f.id, f.total).iter().map(|f| f.offset).collect();
            assert_eq!(kept, expected, "each fragment once, and in order");
            "whole"
        }
    })
}

// rows: Z7
#[test]
fn datagrams_one_behind_the_other() {
    let mut a = Assembly::default();
    for (id, total) in [0, 1, 4096, 4097, 65_507, 0, 65_527]
        .into_iter()
        .enumerate()
    {
        for keep in [true, false] {
            for f in all(id as u32, total) {
                let expected = match (keep, f.is_last()) {
                    (false, _) => "dropped",
                    (true, false) => "part",
                    (true, true) => "whole",
                };
                assert_eq!(arrive(&mut a, &f, keep), Ok(expected));
            }
        }
    }
}

// rows: Z7
#[test]
fn one_that_is_not_kept_at_first_is_dropped_as_a_whole() {
    let mut a = Assembly::default();
    let f = all(1, 3 * FRAGMENT);
    assert_eq!(arrive(&mut a, &f[0], false), Ok("dropped"));
    assert_eq!(arrive(&mut a, &f[1], true), Ok("dropped"));
    assert_eq!(arrive(&mut a, &f[2], true), Ok("dropped"));
    assert_eq!(arrive(&mut a, &f[0], true), Ok("part"));
}

// rows: Z7
#[test]
fn given_up_on_the_way() {
    let mut a = Assembly::default();
    assert_eq!(a.give_up(), None);
    let f = all(1, 3 * FRAGMENT);
    assert_eq!(arrive(&mut a, &f[0], true), Ok("part"));
    assert_eq!(a.give_up(), Some(vec![0]));
    assert_eq!(a.give_up(), None);
    // The rest is still checked.
    assert_eq!(arrive(&mut a, &f[2], true), Err(Violation::Position));
    assert_eq!(arrive(&mut a, &f[1], true), Ok("dropped"));
    assert_eq!(arrive(&mut a, &f[2], true), Ok("dropped"));
    assert_eq!(arrive(&mut a, &all(2, 5)[0], true), Ok("whole"));
}

// rows: Z7 B11
#[test]
fn nothing_in_between_is_another_datagram() {
    let f = all(1, 3 * FRAGMENT);
    let other = |change: fn(&mut Fragment)| {
        let mut f = f[1];
        change(&mut f);
        f
    };
    let wrong = [
        f[0],
        f[2],
        all(1, 0)[0],
        all(2, 10)[0],
        other(|f| f.id = 2),
        other(|f| f.total -= 1),
        other(|f| f.total += FRAGMENT),
        other(|f| f.ports.src = 9),
        other(|f| f.ports.dst = 9),
    ];
    for wrong in wrong {
        for keep in [false, true] {
            let mut a = Assembly::default();
            arrive(&mut a, &f[0], keep).unwrap();
            assert_eq!(arrive(&mut a, &wrong, true), Err(Violation::Position));
            assert_eq!(
                a.give_up(),
                keep.then(|| vec![0]),
                "for the end of the link"
            );
        }
    }
    let mut idle = Assembly::default();
    assert_eq!(arrive(&mut idle, &f[1], true), Err(Violation::Position));
    assert_eq!(idle.give_up(), None);
}

proptest! {
    /// Any course of fragments against a list of the expected ones.
    // rows: Z7 B11
    #[test]
    fn against_a_list(steps in proptest::collection::vec((0..3_u32, 0..4_u32, any::<bool>()), 0..60)) {
        let mut a = Assembly::default();
        let mut rest: Vec<Fragment> = Vec::new();
        let mut kept = false;
        for (size, n, keep) in steps {
            let datagram = all(size, size * FRAGMENT + 1);
            // Mostly the right one.
            let f = match rest.first() {
                Some(next) if n != 0 => *next,
                _ => datagram[n as usize % datagram.len()],
            };
            let allowed = rest.first().map_or(f.is_first(), |next| *next == f);
            let arrived = arrive(&mut a, &f, keep);
            prop_assert_eq!(arrived.is_ok(), allowed);
            if !allowed {
                continue;
            }
            if rest.is_empty() {
                (rest, kept) = (all(f.id, f.total), keep);
            }
            rest.remove(0);
            let expected = match (kept, rest.is_empty()) {
                (false, _) => "dropped",
                (true, false) => "part",
                (true, true) => "whole",
            };
            prop_assert_eq!(arrived, Ok(expected));
        }
    }
}
