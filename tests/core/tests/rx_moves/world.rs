// SPDX-License-Identifier: GPL-2.0

//! A receive queue, the plain list that it is compared with, the peer that fills it, and recv().

use std::collections::VecDeque;

use zrs_core::area_ring::AreaRing;
use zrs_core::rx_queue::{Descriptors, EscapeTarget, Moved, RxQueue, Segment, ToMove};

use crate::ring::{Ring, DONE, ESCAPED, FREE, KERNEL, READY, SMALL};
use common::{fill_stream, is_stream, Rng};

pub const STREAM: u64 = 7;

pub fn stream(pos: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fill_stream(STREAM, pos, &mut bytes);
    bytes
}

/// The holder of bytes outside of the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Held {
    Block(Vec<u8>),
    Copy(Vec<u8>),
}

impl Held {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Held::Block(b) | Held::Copy(b) => b,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Window(u32),
    Block,
    /// A copy of a block.
    Spilled,
    /// A copy of bytes from the window.
    Copy,
    Area(u32),
    /// The small area, since it arrived.
    Small(u32),
}

/// A segment as the plain list has it.
pub struct Seg {
    pub index: u32,
    pub pos: u64,
    pub len: u32,
    pub pad: u32,
    pub place: Place,
    pub taken: u32,
    pub claimed: bool,
    pub mapped: u32,
    pub born: u64,
}

impl Seg {
    /// Bytes of the window that it takes or took.
    pub fn room(&self) -> u64 {
        match self.place {
            Place::Block | Place::Spilled | Place::Small(_) => 0,
            _ => u64::from(self.len + self.pad),
        }
    }

    pub fn in_window(&self) -> bool {
        matches!(self.place, Place::Window(_))
    }

    pub fn is_moved(&self) -> bool {
        matches!(self.place, Place::Copy | Place::Area(_))
    }
}

/// A move between its two steps.
pub struct Flying {
    pub what: ToMove,
    pub bytes: Vec<u8>,
    pub area_off: u32,
}

/// A segment that the program has taken, and where it found it.
pub struct Taken {
    pub index: u32,
    pub pos: u64,
    pub len: u32,
    pub place: Place,
}

#[derive(Default, Debug)]
pub struct Seen {
    pub to_area: u64,
    pub held: u64,
    pub blocks: u64,
    pub late: u64,
    pub given_in_part: u64,
    pub windows_back: u64,
    pub area_full: u64,
    pub small: u64,
    pub small_full: u64,
    pub small_by_recv: u64,
    pub wrapped: u64,
}

pub struct World {
    pub rng: Rng,
    pub q: RxQueue<Vec<Option<Segment<Held>>>>,
    pub ring: Ring,
    pub model: VecDeque<Seg>,
    pub window: Vec<u8>,
    /// Bytes that the peer has written into the window, and bytes that it has got back.
    pub written: u64,
    pub freed: u64,
    /// Of the moved segments in the queue: room that the peer has got back.
    pub given: u64,
    pub area: AreaRing,
    pub area_mem: Vec<u8>,
    pub small: AreaRing,
    pub small_mem: Vec<u8>,
    pub flying: Option<Flying>,
    pub program: Vec<Taken>,
    pub hostile: bool,
    pub capacity: usize,
    pub next: u32,
    pub pos: u64,
    pub now: u64,
    pub seen: Seen,
}

impl World {
    pub fn new(seed: u64, escape_target: EscapeTarget, hostile: bool) -> Self {
        let mut rng = Rng::new(seed);
        let capacity = rng.pick(&[1, 2, 4, 8, 32]);
        let first = rng.pick(&[0, u32::MAX - 20, u32::MAX, 0x7fff_fff0]);
        let window = rng.pick(&[64, 100, 400]);
        let area = rng.pick(&[128, 512, 8192]);
        let small = rng.pick(&[0, 128, 8192]);
        Self {
            q: RxQueue::starting_at((0..capacity).map(|_| None).collect(), first),
            ring: Ring::new(capacity, escape_target),
            model: VecDeque::new(),
            window: vec![0; window],
            written: 0,
            freed: 0,
            given: 0,
            area: AreaRing::new(area),
            area_mem: vec![0; area as usize],
            small: AreaRing::new(small),
            small_mem: vec![0; small as usize],
            flying: None,
            program: Vec::new(),
            hostile,
            capacity,
            next: first,
            pos: 0,
            now: 0,
            seen: Seen::default(),
            rng,
        }
    }

    pub fn moved(&self) -> u64 {
        let moved = self.model.iter().filter(|m| m.is_moved());
        moved.map(Seg::room).sum()
    }

    pub fn in_window(&self) -> u64 {
        let there = self.model.iter().filter(|m| m.in_window());
        there.map(Seg::room).sum()
    }

    /// The bytes of a segment, wherever it lies.
    pub fn bytes(&mut self, index: u32, pos: u64, len: u32, place: Place) -> Vec<u8> {
        let piece = |mem: &[u8], off: u32| mem[off as usize..(off + len) as usize].to_vec();
        match place {
            Place::Window(off) => piece(&self.window, off),
            Place::Area(off) => piece(&self.area_mem, off),
            Place::Small(off) => piece(&self.small_mem, off),
            _ => {
                let held = self.q.get_mut(index).and_then(|s| s.held.as_ref());
                let held = held.unwrap_or_else(|| panic!("nothing holds {pos}"));
                held.bytes().to_vec()
            }
        }
    }

    /// The peer sends, into the window if it has room there.
    pub fn arrives(&mut self) {
        let len = self.rng.range(1, 50) as u32;
        let size = self.window.len() as u64;
        let pad = self.rng.below(3);
        let off = (self.written + pad) % size;
        let end = self.written + pad + u64::from(len);
        // No new lease while something of the former one is unread.
        let leased = self.written != 0 || self.moved() == 0;
        let fits = off + u64::from(len) <= size && end - self.freed <= size && leased;
        let window = fits && self.rng.chance(70);
        let mut pad = pad as u32;
        let mut seg = Segment {
            pos: self.pos,
            len,
            window_off: Some(off as u32),
            held: None,
            taken: 0,
            claimed: false,
            mapped: 0,
            born: self.now,
            moved: Moved::No,
            pad,
        };
        let mut place = Place::Window(off as u32);
        if !window {
            pad = 0;
            (seg.pad, seg.window_off, seg.claimed) = (0, None, true);
            let bytes = stream(self.pos, len);
            if let Some(off) = self.copies_small(&bytes) {
                place = Place::Small(off);
                (seg.moved, seg.claimed) = (Moved::Small(off), false);
            } else {
                (place, seg.held) = match self.rng.chance(70) {
                    true => (Place::Block, Some(Held::Block(bytes))),
                    false => (Place::Spilled, Some(Held::Copy(bytes))),
                };
            }
        }
        let claimed = seg.claimed;
        if self.q.push(seg).is_err() {
            assert_eq!(self.model.len(), self.capacity);
            if let Place::Small(off) = place {
                self.small.undo(off);
            }
            return;
        }
        if window {
            self.seen.wrapped += u64::from(self.written / size != end / size);
            self.written = end;
            let to = &mut self.window[off as usize..][..len as usize];
            fill_stream(STREAM, self.pos, to);
        }
        if self.ring.made.get() {
            let state = match place {
                Place::Small(off) => {
                    let at = self.ring.at(self.next);
                    self.ring.escape_off.borrow_mut()[at] = SMALL + off;
                    ESCAPED
                }
                _ if claimed => KERNEL,
                _ => READY,
            };
            self.ring.cell(self.next).set(state);
        }
        self.model.push_back(Seg {
            index: self.next,
            pos: self.pos,
            len,
            pad,
            place,
            taken: 0,
            claimed,
            mapped: 0,
            born: self.now,
        });
        self.pos += u64::from(len);
        self.next = self.next.wrapping_add(1);
        self.now += self.rng.below(3);
    }

    /// A ring that has a small area with room takes a small message when it arrives. Returns where
    /// it is.
    fn copies_small(&mut self, bytes: &[u8]) -> Option<u32> {
        if !self.ring.made.get() || self.small_mem.is_empty() {
            return None;
        }
        let Some(off) = self.small.alloc(bytes.len() as u32) else {
            self.seen.small_full += 1;
            return None;
        };
        self.small_mem[off as usize..][..bytes.len()].copy_from_slice(bytes);
        self.seen.small += 1;
        Some(off)
    }

    /// recv() reads some of its next bytes, or only peeks.
    pub fn reads(&mut self) {
        let ring = &self.ring;
        let can = |m: &&mut Seg| m.taken < m.len && (m.claimed || ring.waits(m.index));
        let first = self.model.iter_mut().find(can);
        let index = self.q.claim_next(&self.ring, None);
        assert_eq!(index, first.as_ref().map(|m| m.index));
        let (Some(index), Some(m)) = (index, first) else {
            return;
        };
        m.claimed = true;
        let (pos, len, taken, place) = (m.pos, m.len, m.taken, m.place);
        let bytes = self.bytes(index, pos, len, place);
        assert!(is_stream(STREAM, pos, &bytes), "wrong bytes at {pos}");
        let n = match self.rng.below(4) {
            0 => 0,
            1 => self.rng.range(1, u64::from(len - taken)) as u32,
            _ => len - taken,
        };
        self.q.advance(&self.ring, index, n);
        self.seen.small_by_recv += u64::from(matches!(place, Place::Small(_)));
        let lent = match place {
            Place::Window(_) if self.rng.chance(15) => n,
            _ => 0,
        };
        self.q.set_mapped(index, lent);
        if let Some(m) = self.model.iter_mut().find(|m| m.index == index) {
            m.taken += n;
            m.mapped += lent;
        }
    }

    pub fn reap(&mut self) {
        let back = self.rng.chance(50);
        let freed = self.q.reap(&self.ring, |_| back);
        let goes = self.model.front().is_some_and(|m| {
            let done = m.taken == m.len || !m.claimed && self.ring.is_done(m.index);
            done && (m.mapped == 0 || back)
        });
        // The state is cleared by then.
        let Some(freed) = freed else {
            assert!(!goes);
            return;
        };
        let m = self.model.pop_front().expect("there was one");
        assert_eq!(self.ring.cell(m.index).get(), FREE);
        let had = match m.is_moved() {
            true => self.given.min(m.room()),
            false => 0,
        };
        self.given -= had;
        assert_eq!(u64::from(freed.window), m.room() - had);
        let small = if m.room() == 0 { m.len } else { 0 };
        assert_eq!((freed.small, freed.by_program), (small, m.len - m.taken));
        assert_eq!((freed.born, freed.len), (m.born, m.len));
        let (off, moved) = match m.place {
            Place::Window(off) => (Some(off), Moved::No),
            Place::Block | Place::Spilled => (None, Moved::No),
            Place::Copy => (None, Moved::Copy),
            Place::Area(off) => (None, Moved::Area(off)),
            Place::Small(off) => (None, Moved::Small(off)),
        };
        assert_eq!((freed.window_off, freed.moved), (off, moved));
        let held = matches!(m.place, Place::Block | Place::Spilled | Place::Copy);
        assert_eq!(freed.held.is_some(), held);
        match m.place {
            Place::Area(off) => self.area.free(off, m.len),
            Place::Small(off) => self.small.free(off, m.len),
            _ => {}
        }
        self.freed += u64::from(freed.window);
    }

    /// The peer gets room back, never more than `most` of the room of unread data in main memory.
    pub fn gives(&mut self) {
        let most = match self.rng.below(3) {
            0 => self.rng.below(100),
            _ => self.window.len() as u64,
        };
        let owed = self.moved() - self.given;
        let now = owed.min(most.saturating_sub(self.given));
        assert_eq!(self.q.give(most), now);
        self.seen.given_in_part += u64::from(now < owed);
        self.given += now;
        self.freed += now;
    }

    /// The empty window is returned, and leased to another channel.
    pub fn window_goes(&mut self) {
        let size = self.window.len() as u64;
        if self.written == 0 || self.q.in_window() != 0 {
            return;
        }
        let last = self.q.give(u64::MAX);
        assert_eq!(last, self.moved() - self.given);
        self.given += last;
        self.freed += last;
        assert_eq!(self.freed, self.written, "all the room is back");
        assert!(self.moved() <= 2 * size);
        (self.written, self.freed) = (0, 0);
        self.window.fill(0xaa);
        self.seen.windows_back += 1;
    }

    pub fn invariants(&mut self) {
        assert_eq!(self.q.in_window(), self.in_window());
        assert_eq!(self.q.moved(), self.moved());
        assert!(self.given <= self.moved());
        // Every byte of room is the peer's, or a segment's that has not given it.
        let owed = self.moved() - self.given;
        assert_eq!(self.written - self.freed, self.in_window_since() + owed);
        let left = |m: &Seg| u64::from(m.len - m.taken);
        assert_eq!(self.q.bytes(), self.model.iter().map(left).sum::<u64>());
        let lent = |m: &Seg| u64::from(m.mapped);
        assert_eq!(self.q.mapped(), self.model.iter().map(lent).sum::<u64>());
        // Moved segments are older than all that are in the window.
        let windows = self.model.iter().filter(|m| m.room() > 0);
        let moved: Vec<bool> = windows.map(Seg::is_moved).collect();
        assert!(moved.is_sorted_by(|a, b| a >= b), "{moved:?}");
        let mut pos = self.model.front().map_or(self.pos, |m| m.pos);
        let indices: Vec<u32> = self.q.indices().collect();
        assert_eq!(indices.len(), self.model.len());
        for (m, index) in self.model.iter().zip(indices) {
            let s = self.q.get_mut(index).expect("is there");
            assert_eq!((m.index, m.pos), (index, pos));
            assert_eq!(
                (s.pos, s.len, s.taken, s.claimed, s.mapped),
                (m.pos, m.len, m.taken, m.claimed, m.mapped)
            );
            let off = match m.place {
                Place::Window(off) => Some(off),
                _ => None,
            };
            assert_eq!(s.window_off, off);
            pos += u64::from(m.len);
        }
    }

    /// Without a window, no segment is in one.
    pub fn in_window_since(&self) -> u64 {
        assert!(self.written != 0 || self.in_window() == 0);
        self.in_window()
    }

    pub fn step(&mut self) {
        match self.rng.below(20) {
            0..=4 => self.arrives(),
            5..=6 => self.reads(),
            7..=8 => self.reap(),
            9..=11 => self.copies(),
            12..=14 => self.moves(),
            15 => self.gives(),
            16 => self.window_goes(),
            17 if self.rng.chance(5) => self.makes_ring(),
            _ => self.program(),
        }
        self.invariants();
    }

    /// All readers read on and give back: all room must come back.
    pub fn finish(mut self) -> Seen {
        if let Some(f) = self.flying.take().filter(|f| f.what.to_area) {
            self.area.undo(f.area_off);
        }
        for m in &self.model {
            if !m.claimed && self.ring.made.get() && !self.ring.waits(m.index) {
                self.ring.cell(m.index).set(DONE);
            }
        }
        while !self.model.is_empty() {
            self.reads();
            self.reap();
            self.invariants();
        }
        assert!(self.area.is_empty() && self.small.is_empty());
        assert_eq!((self.q.in_window(), self.q.moved(), self.given), (0, 0, 0));
        assert_eq!(self.freed, self.written);
        assert_eq!(self.q.give(u64::MAX), 0);
        self.seen
    }
}
