// SPDX-License-Identifier: GPL-2.0

//! The receive queue against a plain list, with recv(), with a program that uses the ring, and
//! with one that abuses it.

use std::cell::Cell;
use std::collections::VecDeque;

use common::{cases, Rng};
use zrs_core::rx_queue::{Descriptors, EscapeTarget, Moved, NoRing, RxQueue, Segment};
use zrs_core::Violation;

const FREE: u32 = 0;
const READY: u32 = 1;
const HELD: u32 = 2;
const DONE: u32 = 3;
const KERNEL: u32 = 4;

/// State words as a program sees them.
struct Ring(Vec<Cell<u32>>);

impl Ring {
    fn new(entries: usize) -> Self {
        Self(vec![Cell::new(FREE); entries])
    }

    fn cell(&self, index: u32) -> &Cell<u32> {
        &self.0[index as usize % self.0.len()]
    }
}

impl Descriptors for Ring {
    fn claim(&self, index: u32) -> bool {
        let ready = self.cell(index).get() == READY;
        if ready {
            self.cell(index).set(KERNEL);
        }
        ready
    }
    fn is_done(&self, index: u32) -> bool {
        self.cell(index).get() == DONE
    }
    fn is_waiting(&self, index: u32) -> bool {
        self.cell(index).get() == READY
    }
    fn set_done(&self, index: u32) {
        self.cell(index).set(DONE);
    }
    fn clear(&self, index: u32) {
        self.cell(index).set(FREE);
    }
    fn escape_target(&self) -> EscapeTarget {
        EscapeTarget::Nowhere
    }
    fn escape(&self, _: u32, _: u32) -> bool {
        false
    }
}

type Queue = RxQueue<Vec<Option<Segment<u64>>>>;

fn queue(capacity: usize, first: u32) -> Queue {
    RxQueue::starting_at((0..capacity).map(|_| None).collect(), first)
}

fn seg(pos: u64, len: u32, window_off: Option<u32>) -> Segment<u64> {
    Segment {
        pos,
        len,
        window_off,
        held: window_off.is_none().then_some(pos),
        taken: 0,
        claimed: window_off.is_none(),
        mapped: 0,
        born: pos,
        moved: Moved::No,
        pad: window_off.map_or(0, |off| off % 3),
    }
}

/// A message that was peeked at, and then leaves the window, keeps the bytes that were shown.
// rows: B11
#[test]
fn what_was_peeked_at_is_not_copied_again() {
    const SHOWN: u64 = 77;
    let mut q = queue(4, 0);
    for (pos, off) in [(0, 0), (100, 100)] {
        q.push(seg(pos, 100, Some(off))).unwrap();
    }
    // MSG_PEEK: a copy of the first one, whose room stays taken.
    let index = q.claim_next(&NoRing, None).unwrap();
    q.get_mut(index).unwrap().held = Some(SHOWN);
    assert_eq!((q.in_window(), q.moved()), (201, 0));
    for (late, held, unneeded) in [(1, SHOWN, Some(1)), (2, 2, None)] {
        let what = q.next_to_move(&NoRing, u64::MAX, true, |_| false).unwrap();
        assert_eq!(q.move_held(&NoRing, &what, late), Ok(unneeded));
        assert_eq!(q.get_mut(what.index).unwrap().held, Some(held));
    }
    assert_eq!((q.in_window(), q.moved()), (0, 201));
}

/// recv(): consumes at most `most` bytes; returns (position, length) of each piece.
fn recv(q: &mut Queue, ring: &impl Descriptors, mut most: u32) -> Vec<(u64, u32)> {
    let mut got = Vec::new();
    while most > 0 {
        let Some(index) = q.claim_next(ring, None) else {
            break;
        };
        let s = q.get_mut(index).expect("claimed");
        assert!(s.claimed && s.taken < s.len);
        let n = most.min(s.len - s.taken);
        got.push((s.pos + u64::from(s.taken), n));
        q.advance(ring, index, n);
        most -= n;
    }
    got
}

// rows: Z6
#[test]
fn capacity_is_a_power_of_two() {
    for (storage, capacity) in [(0, 0), (1, 1), (2, 2), (3, 2), (7, 4), (8, 8), (1000, 512)] {
        let mut q = queue(storage, 0);
        for n in 0..capacity {
            assert_eq!(q.push(seg(n, 1, None)), Ok(n as u32));
        }
        // The peer has sent more than it was granted.
        assert_eq!(q.push(seg(9, 1, None)), Err(Violation::Credit));
        assert_eq!((u64::from(q.len()), q.bytes()), (capacity, capacity));
        for n in 0..capacity {
            assert_eq!(q.discard(&NoRing), Some(Some(n)));
            assert_eq!(q.bytes(), capacity - n - 1);
        }
        assert!(
            q.discard(&NoRing).is_none()
                && q.reap(&NoRing, |_| unreachable!()).is_none()
                && q.is_empty()
        );
    }
}

/// Segments keep their indices when the storage grows, wherever in it they are, and smaller storage
/// is not taken.
// rows: B5 Z6
#[test]
fn storage_grows() {
    for first in [0, 1, 3, u32::MAX - 1] {
        let mut q = queue(0, first);
        assert!(q.is_full());
        let (mut next, mut had) = (0, 0);
        for storage in [2, 2, 1, 7, 16] {
            let old = q.move_to((0..storage).map(|_| None).collect());
            assert_eq!(old.len(), storage.min(had), "the smaller one comes back");
            assert!(old.iter().all(Option::is_none));
            if storage <= had {
                continue;
            }
            had = storage;
            while !q.is_full() {
                let index = first.wrapping_add(next);
                assert_eq!(q.push(seg(next.into(), 1, None)), Ok(index));
                next += 1;
            }
            // The oldest stays: moved segments begin at some index.
            while q.len() > 1 {
                assert!(q.discard(&NoRing).is_some());
            }
            let index = first.wrapping_add(next - 1);
            assert_eq!(q.get_mut(index).map(|s| s.pos), Some(u64::from(next - 1)));
        }
        assert_eq!((q.len(), q.bytes()), (1, 1));
    }
}

// rows: Z5 Z6
#[test]
fn room_goes_back_in_order() {
    let ring = Ring::new(4);
    let mut q = queue(4, 0);
    for (n, len) in [10, 20, 30].into_iter().enumerate() {
        let index = q
            .push(seg(n as u64 * 100, len, Some(n as u32 * 64)))
            .expect("room");
        ring.cell(index).set(READY);
    }
    ring.cell(0).set(HELD);
    ring.cell(2).set(HELD);
    ring.cell(2).set(DONE);
    assert!(
        q.reap(&ring, |_| unreachable!()).is_none(),
        "the oldest is held"
    );
    assert!(q.readable(&ring));
    assert_eq!(recv(&mut q, &ring, 100), [(100, 20)]);
    assert!(!q.readable(&ring));
    assert_eq!(ring.cell(1).get(), DONE);
    assert!(q.reap(&ring, |_| unreachable!()).is_none());
    assert_eq!(q.bytes(), 40, "what is held counts until it is given back");
    ring.cell(0).set(DONE);
    let freed: Vec<_> = std::iter::from_fn(|| q.reap(&ring, |_| unreachable!()))
        .map(|f| (f.window, f.small, f.by_program, f.held))
        .collect();
    assert_eq!(
        freed,
        [(10, 0, 10, None), (21, 0, 0, None), (32, 0, 30, None)],
        "with what was left out before them"
    );
    assert!(q.is_empty() && q.bytes() == 0);
    assert!(ring.0.iter().all(|c| c.get() == FREE));
}

/// A segment in a block is freed as such, with the block, and only when all of it is read.
// rows: Z6 C1
#[test]
fn small_segments() {
    let mut q = queue(2, 0);
    let index = q.push(seg(7, 100, None)).expect("room");
    assert_eq!(recv(&mut q, &NoRing, 99), [(7, 99)]);
    assert!(q.reap(&NoRing, |_| unreachable!()).is_none() && q.bytes() == 1 && q.readable(&NoRing));
    // More than there is does not count.
    q.advance(&NoRing, index, 50);
    let f = q.reap(&NoRing, |_| unreachable!()).expect("consumed");
    assert_eq!(
        (f.window, f.small, f.by_program, f.held),
        (0, 100, 0, Some(7))
    );
    assert_eq!(q.bytes(), 0);
    q.advance(&NoRing, index, 50);
    assert!(q.get_mut(index).is_none() && q.claim_next(&NoRing, None).is_none());
}

// rows: Z6
#[test]
fn peeking() {
    let mut q = queue(4, u32::MAX);
    for n in 0..3 {
        q.push(seg(n, 1, None)).expect("room");
    }
    // By index, over the wrap, without consuming.
    assert_eq!(q.claim_next(&NoRing, None), Some(u32::MAX));
    assert_eq!(q.claim_next(&NoRing, Some(0)), Some(0));
    assert_eq!(q.claim_next(&NoRing, Some(1)), Some(1));
    assert_eq!(q.claim_next(&NoRing, Some(2)), None, "behind the last");
    assert_eq!(q.bytes(), 3);
    // An index that has left the queue in between: from the beginning.
    assert_eq!(recv(&mut q, &NoRing, 1), [(0, 1)]);
    assert!(q.reap(&NoRing, |_| unreachable!()).is_some());
    assert_eq!(q.claim_next(&NoRing, Some(u32::MAX)), Some(0));
    // Consumed but still behind something: passed over.
    q.advance(&NoRing, 1, 1);
    assert_eq!(q.claim_next(&NoRing, Some(1)), None);
    assert_eq!(q.claim_next(&NoRing, None), Some(0));
}

/// A segment begun by recv() is the kernel's, whatever the program writes; and states that the
/// program writes for segments that were never offered to it only cause its own loss.
// rows: B11 C4
#[test]
fn hostile_states() {
    let ring = Ring::new(4);
    let mut q = queue(4, 0);
    let window = q.push(seg(0, 100, Some(0))).expect("room");
    ring.cell(window).set(READY);
    assert_eq!(recv(&mut q, &ring, 40), [(0, 40)]);
    for state in [DONE, FREE, READY, HELD, 77] {
        ring.cell(window).set(state);
        assert!(q.reap(&ring, |_| unreachable!()).is_none(), "state {state}");
        assert!(q.readable(&ring));
        assert_eq!(q.bytes(), 60);
    }
    assert_eq!(recv(&mut q, &ring, 100), [(40, 60)]);
    ring.cell(window).set(HELD);
    let f = q
        .reap(&ring, |_| unreachable!())
        .expect("consumed by recv()");
    assert_eq!((f.window, f.by_program), (100, 0));

    // A block that a reader may have borrowed.
    let block = q.push(seg(100, 10, None)).expect("room");
    ring.cell(block).set(DONE);
    assert!(q.reap(&ring, |_| unreachable!()).is_none());
    assert_eq!(recv(&mut q, &ring, 10), [(100, 10)]);
    assert_eq!(
        q.reap(&ring, |_| unreachable!()).map(|f| f.held),
        Some(Some(100))
    );

    // Garbage keeps the program from its own data, and nothing else.
    let lost = q.push(seg(110, 10, Some(0))).expect("room");
    for state in [FREE, 5, u32::MAX] {
        ring.cell(lost).set(state);
        assert!(q.claim_next(&ring, None).is_none() && q.reap(&ring, |_| unreachable!()).is_none());
        assert!(!q.readable(&ring));
    }
    // Done without having been taken: given up.
    ring.cell(lost).set(DONE);
    assert_eq!(
        q.reap(&ring, |_| unreachable!())
            .map(|f| (f.window, f.by_program)),
        Some((10, 10))
    );
    assert_eq!((q.bytes(), q.len()), (0, 0));
}

struct ModelSeg {
    index: u32,
    pos: u64,
    len: u32,
    window: bool,
    taken: u32,
    claimed: bool,
    mapped: u32,
}

impl ModelSeg {
    fn state<'a>(&self, ring: &'a Ring) -> &'a Cell<u32> {
        ring.cell(self.index)
    }
}

/// Random use, compared with a list after each step. `hostile`: the program writes any state.
fn run(seed: u64, with_ring: bool, hostile: bool) {
    let mut rng = Rng::new(seed);
    let capacity = rng.pick(&[1, 2, 4, 8, 32]);
    let first = rng.pick(&[0, u32::MAX - 20, u32::MAX, 0x7fff_fff0]);
    let mut q = queue(capacity, first);
    let ring = Ring::new(capacity);
    // The expected states.
    let shadow = Ring::new(capacity);
    let mut model: VecDeque<ModelSeg> = VecDeque::new();
    let (mut pos, mut next) = (0, first);
    // Without a ring all is the kernel's.
    let claim = |m: &mut ModelSeg| {
        let state = m.state(&shadow);
        if with_ring && !m.claimed && state.get() != READY {
            return false;
        }
        if with_ring && !m.claimed {
            state.set(KERNEL);
        }
        m.claimed = true;
        true
    };
    for _ in 0..300 {
        match rng.below(if with_ring { 9 } else { 5 }) {
            0 | 1 => {
                let len = rng.range(1, 50) as u32;
                let window = rng.chance(60);
                let pushed = q.push(seg(pos, len, window.then_some(pos as u32)));
                if model.len() == capacity {
                    assert_eq!(pushed, Err(Violation::Credit), "seed {seed}");
                    continue;
                }
                assert_eq!(pushed, Ok(next), "seed {seed}");
                if with_ring {
                    let state = if window { READY } else { KERNEL };
                    ring.cell(next).set(state);
                    shadow.cell(next).set(state);
                }
                model.push_back(ModelSeg {
                    index: next,
                    pos,
                    len,
                    window,
                    taken: 0,
                    claimed: !window,
                    mapped: 0,
                });
                pos += u64::from(len);
                next = next.wrapping_add(1);
            }
            2 => {
                let mut most = rng.range(1, 120) as u32;
                let got = if with_ring {
                    recv(&mut q, &ring, most)
                } else {
                    recv(&mut q, &NoRing, most)
                };
                let mut want = Vec::new();
                for m in &mut model {
                    if most == 0 {
                        break;
                    }
                    if m.taken == m.len || !claim(m) {
                        continue;
                    }
                    let n = most.min(m.len - m.taken);
                    want.push((m.pos + u64::from(m.taken), n));
                    m.taken += n;
                    if m.window && rng.chance(20) {
                        // More than there is counts as all of it.
                        let lent = rng.range(1, 60) as u32;
                        q.set_mapped(m.index, lent);
                        m.mapped = m.len.min(m.mapped + lent);
                    }
                    most -= n;
                    if with_ring && m.taken == m.len {
                        m.state(&shadow).set(DONE);
                    }
                }
                assert_eq!(got, want, "seed {seed}");
            }
            3 => {
                let back = rng.chance(50);
                let is_back = |seg: &Segment<u64>| seg.mapped > 0 && back;
                let freed = if with_ring {
                    q.reap(&ring, is_back)
                } else {
                    q.reap(&NoRing, is_back)
                };
                let goes = model.front().is_some_and(|m| {
                    let done = with_ring && !m.claimed && m.state(&shadow).get() == DONE;
                    (m.taken == m.len || done) && (m.mapped == 0 || back)
                });
                assert_eq!(freed.is_some(), goes, "seed {seed}");
                if let (Some(f), Some(m)) = (freed, goes.then(|| model.pop_front()).flatten()) {
                    let (window, small) = if m.window {
                        (m.len + m.pos as u32 % 3, 0)
                    } else {
                        (0, m.len)
                    };
                    assert_eq!(
                        (f.window, f.small, f.by_program),
                        (window, small, m.len - m.taken)
                    );
                    assert_eq!(f.held, (!m.window).then_some(m.pos));
                    m.state(&shadow).set(FREE);
                }
            }
            4 if rng.chance(10) => {
                let held = if with_ring {
                    q.discard(&ring)
                } else {
                    q.discard(&NoRing)
                };
                let want = model.pop_front().map(|m| {
                    m.state(&shadow).set(FREE);
                    (!m.window).then_some(m.pos)
                });
                assert_eq!(held, want, "seed {seed}");
            }
            4 => {
                // MSG_PEEK from somewhere.
                let skip = rng.below(capacity as u64 + 1) as usize;
                let from = model.front().map(|m| m.index.wrapping_add(skip as u32));
                let got = if with_ring {
                    q.claim_next(&ring, from)
                } else {
                    q.claim_next(&NoRing, from)
                };
                // Beyond the end is as good as an index that has left: from the beginning.
                let skip = if skip > model.len() { 0 } else { skip };
                let want = model
                    .iter_mut()
                    .skip(skip)
                    .find_map(|m| (m.taken < m.len && claim(m)).then_some(m.index));
                assert_eq!(got, want, "seed {seed}");
            }
            5 | 6 => {
                // The program takes one, whichever.
                let ready: Vec<&ModelSeg> = model
                    .iter()
                    .filter(|m| m.state(&ring).get() == READY)
                    .collect();
                if !ready.is_empty() {
                    let at = rng.below(ready.len() as u64) as usize;
                    ready[at].state(&ring).set(HELD);
                    ready[at].state(&shadow).set(HELD);
                }
            }
            7 => {
                // And gives one back.
                let held: Vec<&ModelSeg> = model
                    .iter()
                    .filter(|m| m.state(&ring).get() == HELD)
                    .collect();
                if !held.is_empty() {
                    let at = rng.below(held.len() as u64) as usize;
                    held[at].state(&ring).set(DONE);
                    held[at].state(&shadow).set(DONE);
                }
            }
            _ if hostile => {
                let at = rng.below(capacity as u64) as usize;
                let state = rng.pick(&[FREE, READY, HELD, DONE, KERNEL, 5, u32::MAX]);
                ring.0[at].set(state);
                shadow.0[at].set(state);
            }
            _ => {}
        }
        if with_ring {
            assert_eq!(ring.0, shadow.0, "seed {seed}");
        }
        assert_eq!(q.len() as usize, model.len());
        assert_eq!(q.is_empty(), model.is_empty());
        let spent = q.spent();
        let done = || model.iter().filter(|m| m.taken == m.len);
        let room = |m: &ModelSeg| u64::from(m.len) + m.pos % 3;
        let window: u64 = done().filter(|m| m.window).map(room).sum();
        let small: u64 = done().filter(|m| !m.window).map(|m| u64::from(m.len)).sum();
        let segments = done().count() as u32;
        assert_eq!(
            (spent.segments, spent.window, spent.small),
            (segments, window, small)
        );
        let lent = |m: &ModelSeg| u64::from(m.mapped);
        assert_eq!(
            q.mapped(),
            model.iter().map(lent).sum::<u64>(),
            "seed {seed}"
        );
        let left = |m: &ModelSeg| u64::from(m.len - m.taken);
        assert_eq!(
            q.bytes(),
            model.iter().map(left).sum::<u64>(),
            "seed {seed}"
        );
        let indices: Vec<u32> = model.iter().map(|m| m.index).collect();
        assert_eq!(q.indices().collect::<Vec<_>>(), indices);
        let waits = |m: &ModelSeg| !with_ring || m.claimed || m.state(&ring).get() == READY;
        let readable = model.iter().any(|m| m.taken < m.len && waits(m));
        let says = if with_ring {
            q.readable(&ring)
        } else {
            q.readable(&NoRing)
        };
        assert_eq!(says, readable, "seed {seed}");
        for m in &model {
            let s = q.get_mut(m.index).expect("is there");
            assert_eq!(
                (s.pos, s.len, s.taken, s.claimed),
                (m.pos, m.len, m.taken, m.claimed)
            );
        }
        for outside in [first.wrapping_sub(1), next, next.wrapping_add(7)] {
            assert!(q.get_mut(outside).is_none());
        }
    }
}

// rows: Z6
#[test]
fn as_a_list() {
    (0..cases(2000).into()).for_each(|seed| run(seed, false, false));
}

// rows: Z6 B3 C4
#[test]
fn as_a_list_with_a_ring() {
    (0..cases(4000).into()).for_each(|seed| run(seed, true, false));
}

// rows: B11 B3
#[test]
fn as_a_list_with_a_hostile_program() {
    (0..cases(4000).into()).for_each(|seed| run(seed, true, true));
}
