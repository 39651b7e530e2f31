// SPDX-License-Identifier: GPL-2.0

//! Moving data to main memory: the order of candidates, the escape area, and room that returns to
//! the peer, against plain models.

use std::collections::VecDeque;

use proptest::prelude::*;
use zrs_core::age_list::{AgeList, Node};
use zrs_core::area_ring::AreaRing;
use zrs_core::ChanId;

fn chan(q: u32) -> ChanId {
    ChanId { index: q, gen: 1 }
}

/// A page, and the number of messages that begin in it.
struct Place {
    page: usize,
    user: ChanId,
    since: u64,
    count: u32,
}

impl Place {
    fn told(&self) -> (usize, ChanId, u64) {
        (self.page, self.user, self.since)
    }
}

#[derive(Clone, Debug)]
enum Age {
    Add(usize, u32),
    Left(usize),
    Remove(usize),
    SetAside,
    TryAgain,
}

fn age() -> impl Strategy<Value = Age> {
    prop_oneof![
        3 => (0_usize..9, 1_u32..3).prop_map(|(page, user)| Age::Add(page, user)),
        2 => (0_usize..9).prop_map(Age::Left),
        2 => (0_usize..9).prop_map(Age::Remove),
        2 => Just(Age::SetAside),
        1 => Just(Age::TryAgain),
    ]
}

proptest! {
    /// The oldest is always found first, whatever came and went; a message that begins where
    /// another one of its channel does is still known when that has left; pages that are not there
    /// are nothing.
    // rows: C5
    #[test]
    fn the_oldest_is_first(ops in prop::collection::vec(age(), 0..200)) {
        let mut list = AgeList::new(vec![Node::FREE; 8]);
        let mut line: VecDeque<Place> = VecDeque::new();
        let mut aside: VecDeque<Place> = VecDeque::new();
        for (now, op) in ops.into_iter().enumerate() {
            let now = now as u64;
            let at = |page: usize| move |p: &&mut Place| p.page == page;
            match op {
                Age::Add(page, user) => {
                    let user = chan(user);
                    let len = page as u32 + 1;
                    let first = list.add(page, user, len, now);
                    let mut known = line.iter_mut().chain(&mut aside).filter(at(page));
                    if let Some(place) = known.find(|p| p.user == user) {
                        place.count += 1;
                        prop_assert!(!first);
                    } else if page < 8 {
                        line.retain(|p| p.page != page);
                        aside.retain(|p| p.page != page);
                        prop_assert_eq!(first, line.is_empty());
                        line.push_back(Place { page, user, since: now, count: 1 });
                    }
                }
                Age::Left(page) => {
                    let place = line.iter_mut().chain(&mut aside).find(at(page));
                    let there = place.is_some();
                    if let Some(place) = place {
                        place.count -= 1;
                    }
                    let len = page as u32 + 1;
                    prop_assert_eq!(list.left(page, len), if there { len } else { 0 });
                    line.retain(|p| p.count > 0);
                    aside.retain(|p| p.count > 0);
                }
                Age::Remove(page) => {
                    let count = line.iter_mut().chain(&mut aside).find(at(page)).map_or(0, |p| p.count);
                    prop_assert_eq!(list.remove(page), count * (page as u32 + 1));
                    line.retain(|p| p.page != page);
                    aside.retain(|p| p.page != page);
                }
                Age::SetAside => {
                    if let Some(oldest) = line.pop_front() {
                        list.defer(oldest.page);
                        aside.push_back(oldest);
                    }
                }
                Age::TryAgain => {
                    prop_assert_eq!(list.retry_deferred(now), !aside.is_empty());
                    line.extend(aside.drain(..).map(|p| Place { since: now, ..p }));
                }
            }
            prop_assert_eq!(list.oldest(), line.front().map(Place::told));
            prop_assert_eq!(list.has_deferred(), !aside.is_empty());
        }
        while let Some(p) = line.pop_front() {
            prop_assert_eq!(list.oldest(), Some(p.told()));
            prop_assert_eq!(list.left(p.page, u32::MAX), p.count * (p.page as u32 + 1));
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

    /// An area of the size that is enough has room for each message within the limits, whatever
    /// came and went before.
    // rows: C4 C5
    #[test]
    fn messages_within_the_limits_find_room(
        (msgs, small) in prop_oneof![Just((64, 65536)), Just((64, 16384)), (1_u32..9, 100_u32..700)],
        ops in prop::collection::vec((any::<bool>(), any::<u32>()), 0..600),
    ) {
        let most = small.min(4096);
        let mut area = AreaRing::new(AreaRing::enough_for(small, msgs, most));
        let mut pieces: VecDeque<(u32, u32)> = VecDeque::new();
        for (comes, any) in ops {
            let used: u32 = pieces.iter().map(|p| p.1).sum();
            // Often lengths that waste the most.
            let len = match any % 4 {
                0 => any % most + 1,
                1 => most,
                2 => 1,
                _ => 65.min(most),
            };
            if comes && pieces.len() < msgs as usize && used + len <= small {
                let at = area.alloc(len);
                prop_assert!(at.is_some(), "no room for {len} beside {pieces:?}");
                pieces.extend(at.map(|at| (at, len)));
            } else if let Some((at, len)) = pieces.pop_front() {
                area.free(at, len);
            }
        }
    }
}
