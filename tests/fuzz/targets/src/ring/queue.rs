// SPDX-License-Identifier: GPL-2.0

//! The core's receive queue: segments that recv() and the program take, and that move to main
//! memory.

use std::cell::Cell;
use std::collections::VecDeque;

use zrs_core::rx_queue::{Descriptors, EscapeTarget, Moved, RxQueue, Segment, ToMove};
use zrs_sys::abi::*;

use crate::Input;

/// The state words, where a program writes what it likes.
struct Words {
    state: Vec<Cell<u32>>,
    escape_target: EscapeTarget,
}

impl Words {
    fn at(&self, index: u32) -> &Cell<u32> {
        &self.state[index as usize % self.state.len()]
    }
}

impl Descriptors for Words {
    fn claim(&self, index: u32) -> bool {
        let waits = self.is_waiting(index);
        if waits {
            self.at(index).set(ZRS_DESC_KERNEL);
        }
        waits
    }
    fn is_done(&self, index: u32) -> bool {
        self.at(index).get() == ZRS_DESC_DONE
    }
    fn is_waiting(&self, index: u32) -> bool {
        matches!(self.at(index).get(), ZRS_DESC_READY | ZRS_DESC_ESCAPED)
    }
    fn set_done(&self, index: u32) {
        self.at(index).set(ZRS_DESC_DONE);
    }
    fn clear(&self, index: u32) {
        self.at(index).set(ZRS_DESC_FREE);
    }
    fn escape_target(&self) -> EscapeTarget {
        self.escape_target
    }
    fn escape(&self, index: u32, _: u32) -> bool {
        let ready = self.at(index).get() == ZRS_DESC_READY;
        if ready {
            self.at(index).set(ZRS_DESC_ESCAPED);
        }
        ready
    }
}

/// A segment as the kernel alone knows it.
struct Kept {
    index: u32,
    pos: u64,
    len: u32,
    taken: u32,
    claimed: bool,
    /// It came into the window.
    window: bool,
    moved: Moved,
    mapped: u32,
}

impl Kept {
    fn room(&self) -> u64 {
        u64::from(self.len + self.len % 3)
    }

    fn in_window(&self) -> bool {
        self.window && self.moved == Moved::No
    }

    fn has_moved(&self) -> bool {
        self.window && self.moved != Moved::No
    }
}

/// A copy that was made: of the segment's number, twice.
const COPY: u64 = 1 << 40;

/// The core's queue, and its expected contents.
struct Core {
    words: Words,
    q: RxQueue<Vec<Option<Segment<u64>>>>,
    model: VecDeque<Kept>,
    entries: usize,
    first: u32,
    next: u32,
    pos: u64,
    /// The segment being moved.
    what: Option<ToMove>,
    /// Of the moved segments: bytes that were given to the peer.
    given: u64,
}

impl Core {
    fn new(input: &mut Input<'_>) -> Self {
        let shape = input.u8();
        let entries = 1_usize << (shape % 5);
        let first = input.u32();
        let slots = (0..entries).map(|_| None).collect();
        Self {
            words: Words {
                state: vec![Cell::new(ZRS_DESC_FREE); entries],
                escape_target: match shape / 5 % 3 {
                    0 => EscapeTarget::Anywhere,
                    1 => EscapeTarget::Area,
                    _ => EscapeTarget::Nowhere,
                },
            },
            q: RxQueue::starting_at(slots, first),
            model: VecDeque::new(),
            entries,
            first,
            next: first,
            pos: 0,
            what: None,
            given: 0,
        }
    }

    fn push(&mut self, len: u32, window: bool) {
        // Some are copied to the ring when they arrive.
        let small = !window && len % 5 == 0 && self.words.escape_target == EscapeTarget::Area;
        let claimed = !window && !small;
        let moved = if small { Moved::Small(len) } else { Moved::No };
        let pushed = self.q.push(Segment {
            pos: self.pos,
            len,
            window_off: window.then_some(0),
            held: claimed.then_some(self.pos),
            taken: 0,
            claimed,
            mapped: 0,
            born: self.pos,
            moved,
            pad: len % 3,
        });
        assert_eq!(pushed.is_ok(), self.model.len() < self.entries);
        let Ok(index) = pushed else {
            return;
        };
        assert_eq!(index, self.next);
        let state = match (claimed, small) {
            (true, _) => ZRS_DESC_KERNEL,
            (_, true) => ZRS_DESC_ESCAPED,
            _ => ZRS_DESC_READY,
        };
        self.words.at(index).set(state);
        self.model.push_back(Kept {
            index,
            pos: self.pos,
            len,
            taken: 0,
            claimed,
            window,
            moved,
            mapped: 0,
        });
        self.next = self.next.wrapping_add(1);
        self.pos += u64::from(len);
    }

    /// recv(), or MSG_PEEK.
    fn recv(&mut self, what: u8, some: u16) {
        let from = match what & 1 {
            0 => None,
            _ => Some(self.first.wrapping_add(u32::from(some))),
        };
        let head = self.next.wrapping_sub(self.model.len() as u32);
        let skip = from.map_or(0, |f| f.wrapping_sub(head) as usize);
        let skip = if skip <= self.model.len() { skip } else { 0 };
        let words = &self.words;
        let expected = self
            .model
            .iter_mut()
            .skip(skip)
            .find(|s| s.taken < s.len && (s.claimed || words.is_waiting(s.index)))
            .map(|s| {
                s.claimed = true;
                s.index
            });
        let got = self.q.claim_next(&self.words, from);
        assert_eq!(got, expected);
        if let (Some(index), true) = (got, what & 2 != 0) {
            let n = u32::from(some) % 60;
            self.q.advance(&self.words, index, n);
            if let Some(s) = self.model.iter_mut().find(|s| s.index == index) {
                s.taken = s.len.min(s.taken + n);
                if what & 4 != 0 && s.in_window() {
                    self.q.set_mapped(index, n);
                    s.mapped = s.len.min(s.mapped + n);
                }
            }
        }
    }

    fn reap(&mut self, back: bool) {
        let done = self.model.front().is_some_and(|s| {
            let by_program = self.words.is_done(s.index) && !s.claimed;
            (s.taken == s.len || by_program) && (s.mapped == 0 || back)
        });
        let freed = self.q.reap(&self.words, |_| back);
        assert_eq!(freed.is_some(), done);
        let Some(freed) = freed else {
            return;
        };
        let s = self.model.pop_front().expect("it was at the head");
        let (window, small) = match s.window {
            true => (s.room() - self.take_given(&s), 0),
            false => (0, s.len),
        };
        assert_eq!((u64::from(freed.window), freed.small), (window, small));
        assert_eq!(freed.by_program, s.len - s.taken);
        assert_eq!((freed.moved, freed.len), (s.moved, s.len));
        assert_eq!(freed.window_off, s.in_window().then_some(0));
        let held = !s.window && s.moved == Moved::No || s.moved == Moved::Copy;
        assert_eq!(
            freed.held.map(|held| held % COPY),
            held.then_some(s.pos % COPY)
        );
    }

    /// The part of a segment's room that was given to the peer already.
    fn take_given(&mut self, s: &Kept) -> u64 {
        let given = match s.has_moved() {
            true => self.given.min(s.room()),
            false => 0,
        };
        self.given -= given;
        given
    }

    fn discard(&mut self) {
        let held = self.q.discard(&self.words);
        assert_eq!(held.is_some(), !self.model.is_empty());
        if let Some(s) = self.model.pop_front() {
            self.take_given(&s);
        }
    }

    /// Begins to move the oldest segment.
    fn choose(&mut self, before: u64, blocks: bool) {
        let what = self
            .q
            .next_to_move(&self.words, before, true, |held| blocks && *held < COPY);
        if let Some(what) = what {
            let at = self.model.iter().position(|s| s.pos == what.pos);
            let at = at.expect("it is there");
            let s = &self.model[at];
            assert!(s.pos < before && s.taken < s.len);
            assert_eq!((s.index, s.len), (what.index, what.len));
            assert_eq!(what.window_off, s.in_window().then_some(0));
            if s.in_window() {
                assert!(s.mapped == 0 && self.model.iter().take(at).all(|s| !s.in_window()));
                assert!(s.claimed || self.words.is_waiting(s.index));
                assert!(s.claimed || self.words.escape_target != EscapeTarget::Nowhere);
                let to_area = !s.claimed && self.words.escape_target == EscapeTarget::Area;
                assert_eq!(what.to_area, to_area);
            } else {
                assert!(blocks && !s.window && !what.to_area);
            }
        }
        self.what = what;
    }

    /// Completes the move, if no other step came between.
    fn commit(&mut self, to_area: bool, off: u32) {
        let Some(what) = self.what.take() else {
            return;
        };
        let escape_target = self.words.escape_target;
        let seg = self.model.iter_mut().find(|s| s.pos == what.pos);
        let seg = seg.filter(|s| s.taken < s.len && s.mapped == 0);
        let same = seg.filter(|s| s.in_window() == what.window_off.is_some());
        let words = &self.words;
        if to_area {
            let ready = |s: &&mut Kept| !s.claimed && words.at(s.index).get() == ZRS_DESC_READY;
            let seg = same.filter(|s| s.in_window()).filter(ready);
            let done = self.q.move_to_area(&self.words, &what, off);
            assert_eq!(done, seg.is_some());
            if let Some(s) = seg {
                s.moved = Moved::Area(off);
            }
            return;
        }
        let free = |s: &&mut Kept| {
            let whole = escape_target == EscapeTarget::Anywhere && words.is_waiting(s.index);
            !s.window || s.claimed || whole
        };
        let seg = same.filter(free);
        let copy = COPY + what.pos;
        let done = self.q.move_held(&self.words, &what, copy);
        match seg {
            Some(s) if s.window => {
                assert_eq!(done, Ok(None));
                (s.moved, s.claimed) = (Moved::Copy, true);
            }
            Some(s) => assert_eq!(done.map(|held| held.map(|h| h % COPY)), Ok(Some(s.pos))),
            None => assert_eq!(done, Err(copy)),
        }
    }

    fn give(&mut self, most: u64) {
        let owed = self.moved() - self.given;
        let now = owed.min(most.saturating_sub(self.given));
        assert_eq!(self.q.give(most), now);
        self.given += now;
    }

    fn moved(&self) -> u64 {
        let moved = self.model.iter().filter(|s| s.has_moved());
        moved.map(Kept::room).sum()
    }

    fn check(&mut self) {
        let model = &self.model;
        assert_eq!(self.q.len() as usize, model.len());
        assert!(self.q.indices().eq(model.iter().map(|s| s.index)));
        let waits: u64 = model.iter().map(|s| u64::from(s.len - s.taken)).sum();
        assert_eq!(self.q.bytes(), waits);
        let mapped: u64 = model.iter().map(|s| u64::from(s.mapped)).sum();
        assert_eq!(self.q.mapped(), mapped);
        let there = model.iter().filter(|s| s.in_window());
        assert_eq!(self.q.in_window(), there.map(Kept::room).sum::<u64>());
        assert_eq!(self.q.moved(), self.moved());
        // Moved segments are older than all that are in the window.
        let window = model.iter().filter(|s| s.window).map(Kept::has_moved);
        assert!(window.is_sorted_by(|a, b| a >= b));
    }
}

pub(super) fn queue(input: &mut Input<'_>) {
    let mut c = Core::new(input);
    while !input.is_empty() {
        let what = input.u8();
        let some = input.u16();
        match what % 11 {
            0 | 1 => c.push(1 + u32::from(some % 50), what / 11 % 2 != 0),
            2 | 3 => c.recv(what / 11, some),
            4 => c.reap(what / 11 % 2 != 0),
            5 => c.words.at(u32::from(some)).set(u32::from(some >> 8) % 7),
            6 if what > 200 => c.discard(),
            7 => {
                let before = match some {
                    0..0x8000 => u64::MAX,
                    _ => c.pos.saturating_sub(u64::from(some % 300)),
                };
                c.choose(before, what / 11 % 2 != 0);
            }
            8 => {
                // Now and then to the wrong destination.
                let to_area = c.what.is_some_and(|w| w.to_area) != (some % 16 == 0);
                c.commit(to_area, u32::from(some));
            }
            9 => c.give(u64::from(some % 200)),
            10 if what > 200 => {
                // A ring is made, or another one.
                c.words.escape_target = match some % 3 {
                    0 => EscapeTarget::Anywhere,
                    1 => EscapeTarget::Area,
                    _ => EscapeTarget::Nowhere,
                };
            }
            _ => {
                let words = &c.words;
                let readable = c
                    .model
                    .iter()
                    .any(|s| s.taken < s.len && (s.claimed || words.is_waiting(s.index)));
                assert_eq!(c.q.readable(&c.words), readable);
                let index = c.first.wrapping_add(u32::from(some));
                let known = c.model.iter().any(|s| s.index == index);
                assert_eq!(c.q.get_mut(index).is_some(), known);
            }
        }
        c.check();
    }
}
