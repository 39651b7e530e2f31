// SPDX-License-Identifier: GPL-2.0

//! What moves to main memory: the order in which it is looked at, the escape area, and room that goes back to
//! the peer, against plain models.

use std::collections::VecDeque;

use proptest::prelude::*;
use zrs_core::ageing::{Ageing, Node};
use zrs_core::area_ring::AreaRing;
use zrs_core::ChanId;

fn chan(q: u32) -> ChanId {
    ChanId { q, gen: 1 }
}

#[derive(Clone, Debug)]
enum Age {
    Add(usize),
    Remove(usize),
    SetAside,
    TryAgain,
}

fn age() -> impl Strategy<Value = Age> {
    prop_oneof![
        3 => (0_usize..9).prop_map(Age::Add),
        2 => (0_usize..9).prop_map(Age::Remove),
        2 => Just(Age::SetAside),
        1 => Just(Age::TryAgain),
    ]
}

proptest! {
    /// The oldest is always found first, whatever came and went; pages that are not there are nothing.
    // rows: C5
    #[test]
    fn the_oldest_is_first(ops in prop::collection::vec(age(), 0..200)) {
        let mut list = Ageing::new(vec![Node::FREE; 8]);
        let mut model: VecDeque<(usize, ChanId, u64)> = VecDeque::new();
        let mut aside: VecDeque<(usize, ChanId, u64)> = VecDeque::new();
        for (now, op) in ops.into_iter().enumerate() {
            let now = now as u64;
            match op {
                Age::Add(page) => {
                    let user = chan(now as u32 + 1);
                    let was = model.is_empty() || model.len() == 1 && model[0].0 == page;
                    let first = list.add(page, user, page as u32 + 1, now);
                    if page < 8 {
                        model.retain(|m| m.0 != page);
                        aside.retain(|m| m.0 != page);
                        model.push_back((page, user, now));
                        prop_assert_eq!(first, was);
                    }
                }
                Age::Remove(page) => {
                    let there = model.iter().chain(&aside).any(|m| m.0 == page);
                    prop_assert_eq!(list.remove(page), if there { page as u32 + 1 } else { 0 });
                    model.retain(|m| m.0 != page);
                    aside.retain(|m| m.0 != page);
                }
                Age::SetAside => {
                    if let Some(oldest) = model.pop_front() {
                        list.set_aside(oldest.0);
                        aside.push_back(oldest);
                    }
                }
                Age::TryAgain => {
                    prop_assert_eq!(list.try_again(now), !aside.is_empty());
                    model.extend(aside.drain(..).map(|(page, user, _)| (page, user, now)));
                }
            }
            prop_assert_eq!(list.oldest(), model.front().copied());
            prop_assert_eq!(list.has_aside(), !aside.is_empty());
        }
        while let Some(m) = model.pop_front() {
            prop_assert_eq!(list.oldest(), Some(m));
            prop_assert_eq!(list.remove(m.0), m.0 as u32 + 1);
        }
        prop_assert_eq!(list.oldest(), None);
    }

    /// Pieces never overlap, lie inside, and an empty area takes whatever fits into it.
    // rows: C5
    #[test]
    fn pieces_lie_apart(
        size in 64_u32..5000,
        ops in prop::collection::vec((any::<bool>(), 0_u32..1500, any::<bool>()), 0..200),
    ) {
        let mut area = AreaRing::new(size);
        let mut pieces: VecDeque<(u32, u32)> = VecDeque::new();
        for (makes, len, undo) in ops {
            if makes {
                match area.alloc(len) {
                    Some(at) => {
                        prop_assert!(at % 64 == 0 && at + len.max(1).next_multiple_of(64) <= size);
                        let clear = |&(a, l): &(u32, u32)| a + l <= at || at + len <= a;
                        prop_assert!(pieces.iter().all(clear), "{at}+{len} in {pieces:?}");
                        if undo {
                            area.undo(at);
                        } else {
                            pieces.push_back((at, len));
                        }
                    }
                    None => prop_assert!(!pieces.is_empty() || len.max(1).next_multiple_of(64) > size),
                }
            } else if let Some((at, len)) = pieces.pop_front() {
                area.free(at, len);
            }
            prop_assert_eq!(area.is_empty(), pieces.is_empty());
        }
    }
}
