// SPDX-License-Identifier: GPL-2.0

//! The queue of a program against lists.

use std::collections::{BTreeMap, BTreeSet};

use zrs_core::mem::queue::{CancelAction, Completion, Entry, Queue};
use zrs_core::mem::slab::Slot;
use zrs_core::mem::status::Status;

use crate::setup::slots;
use common::{cases, Rng};

type TestQueue = Queue<Vec<Slot<Entry>>>;

fn names(q: &mut TestQueue) -> Vec<(u64, Status)> {
    let all = std::iter::from_fn(|| q.reap().map(|(_, done)| done));
    all.map(|c| (c.user_data, c.status)).collect()
}

// rows: M4
#[test]
fn drain_is_a_barrier() {
    let mut q: TestQueue = Queue::new(slots(8));
    let [a, b, c, d] = [(1, false), (2, false), (3, true), (4, false)]
        .map(|(n, drain)| q.submit(n, drain).unwrap());
    assert_eq!(
        q.issue(|at| at != a),
        Some(b),
        "one that cannot begin keeps no other"
    );
    assert_eq!(q.issue(|at| at != a), None, "but the drain waits for it");
    assert_eq!(q.issue(|_| true), Some(a));
    assert!(q.complete(b, Status::Ok, 5));
    assert_eq!(q.issue(|_| true), None);
    assert!(q.complete(a, Status::Io, 0));
    assert_eq!(q.issue(|_| true), Some(c));
    assert_eq!(q.issue(|_| true), None, "nothing beside it");
    assert!(q.complete(c, Status::Ok, 0) && !q.complete(c, Status::Ok, 0));
    assert_eq!(q.issue(|_| true), Some(d));
    let done = [(2, Status::Ok), (1, Status::Io), (3, Status::Ok)];
    assert_eq!(names(&mut q), done);
}

// rows: M4 M5
#[test]
fn cancel_completes_with_what_it_cancels() {
    let mut q: TestQueue = Queue::new(slots(8));
    let a = q.submit(1, false).unwrap();
    q.submit(2, false).unwrap();
    q.issue(|_| true).unwrap();
    assert_eq!(
        q.cancel(10, 2),
        Some(CancelAction::Done),
        "it has not begun"
    );
    assert_eq!(names(&mut q), [(2, Status::Canceled), (10, Status::Ok)]);
    assert_eq!(q.cancel(11, 1), Some(CancelAction::Cancel(a)));
    assert_eq!(q.cancel(12, 1), Some(CancelAction::Under));
    assert_eq!(q.completions(), 0, "something may still land");
    assert!(q.complete(a, Status::Canceled, 3));
    assert_eq!(q.completions(), 3);
    let done = q.reap().map(|(_, done)| done);
    let canceled = Completion {
        user_data: 1,
        status: Status::Canceled,
        done: 3,
    };
    assert_eq!(done, Some(canceled));
    assert_eq!(names(&mut q).len(), 2);
    assert_eq!(q.cancel(13, 1), Some(CancelAction::Done));
    assert_eq!(names(&mut q), [(13, Status::NotFound)]);
    assert!(q.is_empty());
}

// rows: M4
#[test]
fn as_lists_have_it() {
    for seed in 0..u64::from(cases(400)) {
        let mut rng = Rng::new(seed);
        let mut q: TestQueue = Queue::new(slots(12));
        let (mut waiting, mut under) = (Vec::new(), BTreeMap::new());
        let mut ready: Vec<u64> = Vec::new();
        let mut barrier = None;
        let mut cancels: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for name in 1..400_u64 {
            let all = waiting.len()
                + under.len()
                + ready.len()
                + cancels.values().map(Vec::len).sum::<usize>();
            assert_eq!(
                (q.len(), q.completions() as usize),
                (all, ready.len()),
                "seed {seed}"
            );
            assert_eq!(
                (q.has_room(), q.under_way() as usize),
                (all < 12, under.len())
            );
            match rng.below(5) {
                0 | 1 => {
                    let drain = rng.chance(20);
                    let at = q.submit(name, drain);
                    assert_eq!(at.is_some(), all < 12);
                    waiting.extend(at.map(|at| (at, name, drain)));
                }
                2 => {
                    let some = rng.next_u64();
                    let can = |at: u32| (some >> (at % 64)) & 1 != 0;
                    let first_drain = waiting.iter().position(|w| w.2);
                    let free = &waiting[..first_drain.unwrap_or(waiting.len())];
                    let mut want = free.iter().position(|w| can(w.0));
                    if first_drain == Some(0) && under.is_empty() && can(waiting[0].0) {
                        want = Some(0);
                    }
                    if barrier.is_some() {
                        want = None;
                    }
                    let got = q.issue(can);
                    assert_eq!(got, want.map(|w| waiting[w].0), "seed {seed}");
                    if let Some(w) = want {
                        let (at, name, drain) = waiting.remove(w);
                        under.insert(at, name);
                        barrier = drain.then_some(at);
                    }
                }
                3 => {
                    if let Some((&at, &name)) = under.iter().nth(rng.below(3) as usize) {
                        under.remove(&at);
                        assert!(q.complete(at, Status::Ok, 1));
                        barrier = barrier.filter(|b| *b != at);
                        ready.push(name);
                        ready.extend(cancels.remove(&name).unwrap_or_default());
                    }
                }
                _ => {
                    let target = rng.below(name);
                    let open = under.values().any(|n| *n == target);
                    let waits = waiting.iter().position(|w| w.1 == target);
                    let Some(did) = q.cancel(name, target) else {
                        assert_eq!(all, 12);
                        continue;
                    };
                    match waits {
                        Some(w) => {
                            waiting.remove(w);
                            ready.extend([target, name]);
                            assert_eq!(did, CancelAction::Done);
                        }
                        None if open => {
                            cancels.entry(target).or_default().push(name);
                            assert_ne!(did, CancelAction::Done);
                        }
                        None => ready.push(name),
                    }
                }
            }
            if rng.chance(30) {
                let got = names(&mut q)
                    .into_iter()
                    .map(|c| c.0)
                    .collect::<BTreeSet<_>>();
                assert_eq!(got, ready.drain(..).collect(), "seed {seed}");
            }
        }
        // The program closes it.
        let mut canceled = BTreeSet::new();
        while let Some(at) = q.close_one() {
            assert!(canceled.insert(at) && under.contains_key(&at));
        }
        for at in under.into_keys() {
            assert!(q.complete(at, Status::Canceled, 0));
        }
        while q.reap().is_some() {}
        assert!(q.is_empty(), "seed {seed}");
    }
}
