// SPDX-License-Identifier: GPL-2.0

//! The table of channels against a map.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::headers::id;
use proptest::prelude::*;
use zrs_core::slot_table::{Slot, SlotTable};
use zrs_core::ChanId;

fn table<T>(slots: usize) -> SlotTable<Vec<Slot<T>>> {
    SlotTable::new((0..slots).map(|_| Slot::empty()).collect())
}

// rows: L2
#[test]
fn numbers_and_generations() {
    let mut t = table(2);
    assert!(t.is_empty());
    assert_eq!(t.insert(|id| id.q), Some(id(1, 1)), "make sees the number");
    assert_eq!(t.get(id(1, 1)), Some(&1));
    assert_eq!(t.insert(|_| 20), Some(id(2, 1)));
    assert_eq!(t.insert(|_| unreachable!()), None, "full");
    assert_eq!(t.len(), 2);

    assert_eq!(t.remove(id(1, 1)), Some(1));
    assert_eq!(
        (t.remove(id(1, 1)), t.get(id(1, 1)), t.len()),
        (None, None, 1)
    );
    assert_eq!(
        t.insert(|_| 30),
        Some(id(1, 2)),
        "the same number, another generation"
    );
    assert_eq!((t.remove(id(1, 1)), t.get(id(1, 1))), (None, None));
    assert_eq!((t.get(id(1, 2)), t.get(id(2, 1))), (Some(&30), Some(&20)));
}

// rows: L2 B11
#[test]
fn what_is_not_there() {
    let mut t = table(3);
    let one = t.insert(|_| ()).expect("free");
    let strange = [
        ChanId::default(),
        id(0, 1),
        id(1, 0),
        id(1, 2),
        id(2, 0),
        id(2, 1),
        id(3, 0),
        id(4, 0),
        id(4, 1),
        id(u32::MAX, 1),
    ];
    for id in strange {
        assert_eq!((t.remove(id), t.get(id)), (None, None), "{id:?}");
    }
    assert_eq!(t.get(one), Some(&()));
    let mut none = table::<()>(0);
    assert_eq!((none.insert(|_| ()), none.next_from(0)), (None, None));
}

// rows: B8
#[test]
fn walking() {
    let mut t = table(8);
    let ids: Vec<ChanId> = (0..6).map(|n| t.insert(|_| n).expect("free")).collect();
    for gone in [0, 3, 5] {
        t.remove(ids[gone]);
    }
    let mut seen = Vec::new();
    let mut cursor = 0;
    while let Some((q, v)) = t.next_from(cursor) {
        seen.push((q, *v));
        cursor = q + 1;
    }
    assert_eq!(seen, [(2, 1), (3, 2), (5, 4)]);
    assert_eq!(t.next_from(1), t.next_from(0));
    assert_eq!((t.next_from(6), t.next_from(u32::MAX)), (None, None));
}

proptest! {
    // rows: L2
    #[test]
    fn as_a_map(
        slots in 0_usize..20,
        ops in prop::collection::vec((0_u8..4, any::<prop::sample::Index>(), any::<u64>()), 0..300),
    ) {
        let mut t = table(slots);
        let mut model: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut ever: BTreeSet<(u32, u32)> = BTreeSet::new();
        for (op, which, value) in ops {
            if op < 2 {
                let got = t.insert(|_| value);
                prop_assert_eq!(got.is_some(), model.len() < slots);
                if let Some(id) = got {
                    prop_assert!((1..=slots).contains(&(id.q as usize)));
                    prop_assert!(ever.insert((id.q, id.gen)), "a pair twice: {:?}", id);
                    prop_assert!(model.keys().all(|k| k.0 != id.q), "a number twice");
                    model.insert((id.q, id.gen), value);
                }
            } else if !ever.is_empty() {
                let (q, gen) = *ever.iter().nth(which.index(ever.len())).expect("is there");
                if op == 2 {
                    prop_assert_eq!(t.remove(id(q, gen)), model.remove(&(q, gen)));
                }
                prop_assert_eq!(t.get(id(q, gen)), model.get(&(q, gen)));
            }
            prop_assert_eq!(t.len() as usize, model.len());
            prop_assert_eq!(t.is_empty(), model.is_empty());
            let first = which.index(slots + 2) as u32;
            let next = model.range((first, 0)..).next().map(|((q, _), v)| (*q, v));
            prop_assert_eq!(t.next_from(first), next);
        }
    }
}
