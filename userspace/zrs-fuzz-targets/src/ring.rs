// SPDX-License-Identifier: GPL-2.0

//! The receive ring, from both ends: the program's side against a kernel that writes what it likes
//! into descriptors, and the core's queue against a program that does so with the state words.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::{align_of, size_of};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use zrs_core::rx_queue::{Descriptors, Moved, Refuge, RxQueue, Segment};
use zrs_sys::abi::*;
use zrs_sys::fake::{from_head, pair_from, Bell, Kernel};
use zrs_sys::{Held, Look, Ring};

use crate::Input;

/// A head as a kernel of another version, or a broken one, might make it.
fn head(input: &mut Input<'_>) {
    let bytes = 1 + input.below(9000);
    let some = input.u32();
    let head = zrs_ring {
        version: if some % 8 == 0 {
            some
        } else {
            ZRS_UAPI_VERSION
        },
        entries: match input.u8() {
            0 => input.u32(),
            n => 1 << (n % 10),
        },
        desc_offset: match input.u8() {
            0 => input.u32(),
            n => u32::from(n) * 8,
        },
        first: input.u64(),
        head: input.u64(),
        ..Default::default()
    };
    let end = u64::from(head.desc_offset) + u64::from(head.entries) * size_of::<zrs_desc>() as u64;
    let good = bytes >= size_of::<zrs_ring>()
        && head.version == ZRS_UAPI_VERSION
        && head.entries.is_power_of_two()
        && head.desc_offset as usize % align_of::<zrs_desc>() == 0
        && end <= bytes as u64;
    let ring = from_head(head, bytes, 4096);
    assert_eq!(ring.is_ok(), good, "{bytes} {head:?}");
    let Ok(ring) = ring else {
        return;
    };
    assert_eq!((ring.first(), ring.entries()), (head.first, head.entries));
    // Descriptors are inside, whatever is asked for.
    for _ in 0..8 {
        let _ = ring.look(input.u64());
    }
}

/// What the program should find at a place.
#[derive(Clone, Copy)]
struct Desc {
    off: usize,
    len: usize,
    /// What it is filled with, where the kernel keeps its rules.
    byte: Option<u8>,
}

struct Consumer {
    kernel: Kernel,
    ring: Arc<Ring>,
    bell: Bell,
    window: usize,
    head: u64,
    desc: Vec<Desc>,
    /// What is held, its number, and its bytes when it was taken.
    held: Vec<(u64, Held, Vec<u8>)>,
    /// The kernel has broken its own rules: bytes may change while they are held.
    broken: bool,
}

impl Consumer {
    fn new(input: &mut Input<'_>) -> Self {
        let entries = 1_u32 << (input.u8() % 6);
        let window = 64 + input.below(4000);
        // Numbers that wrap the 32 bits of the kernel's.
        let first = match input.u8() % 3 {
            0 => 0,
            1 => u64::from(u32::MAX) - 5,
            _ => u64::from(input.u32()),
        };
        let bell = Bell::default();
        let (kernel, ring) =
            pair_from(first, entries, window, bell.clone()).expect("memory for a ring");
        assert_eq!(ring.window_len(), window);
        let nothing = Desc {
            off: 0,
            len: 0,
            byte: None,
        };
        let desc = vec![nothing; entries as usize];
        Self {
            kernel,
            ring,
            bell,
            window,
            head: first,
            desc,
            held: Vec::new(),
            broken: false,
        }
    }

    fn at(&self, n: u64) -> usize {
        (n % self.desc.len() as u64) as usize
    }

    /// The kernel has published what it holds of the place `off`.
    fn published(&mut self, off: usize, len: usize, byte: Option<u8>) {
        let at = self.at(self.head);
        self.desc[at] = Desc { off, len, byte };
        self.head += 1;
        assert_eq!(self.ring.head(), self.head);
    }

    fn look(&mut self, n: u64) {
        let state = self.kernel.state_of(n);
        let Desc { off, len, byte } = self.desc[self.at(n)];
        let escaped = state == ZRS_DESC_ESCAPED;
        let off = match escaped {
            true => self.kernel.escape_off_of(n) as usize,
            false => off,
        };
        // The escape area is as long as the window.
        let inside = off + len <= self.window;
        match (state, self.ring.look(n)) {
            (ZRS_DESC_READY | ZRS_DESC_ESCAPED, Ok(Look::Held(held))) => {
                assert!(inside);
                assert_eq!((held.len(), held.has_escaped()), (len, escaped));
                assert_eq!(self.kernel.state_of(n), ZRS_DESC_HELD);
                let bytes = held.to_vec();
                if let (false, Some(byte)) = (self.broken, byte) {
                    assert!(bytes.iter().all(|b| *b == byte), "other bytes");
                }
                self.held.push((n, held, bytes));
            }
            (ZRS_DESC_READY | ZRS_DESC_ESCAPED, Err(e)) => {
                assert!(!inside, "{e}");
                assert_eq!(self.kernel.state_of(n), ZRS_DESC_DONE, "given back at once");
            }
            (ZRS_DESC_KERNEL, Ok(Look::Kernel(n))) => assert_eq!(n, len),
            (ZRS_DESC_READY | ZRS_DESC_ESCAPED | ZRS_DESC_KERNEL, other) => {
                panic!("{state}: {other:?}")
            }
            (_, Ok(Look::Taken)) => {}
            (_, other) => panic!("{state}: {other:?}"),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let some = input.u16();
        let wants = self.kernel.wants_credit();
        let rung = self.bell.0.load(Ordering::SeqCst);
        let mut given_back = false;
        // A segment of those in the ring, or one that has been in it.
        let n = self
            .head
            .saturating_sub(u64::from(some) % (self.desc.len() as u64 + 2) + 1);
        match what % 12 {
            0..=2 => {
                let data = vec![what; usize::from(some) % 300 + 1];
                if let Some(off) = self.kernel.put_at(&data) {
                    self.published(off, data.len(), Some(what));
                }
            }
            3 => {
                if self.kernel.put_kernel(some.into()) {
                    self.published(0, some.into(), None);
                }
            }
            4 if what > 128 => {
                self.broken = true;
                let far = [0, 1, 64, 4000, 1 << 31, u32::MAX as usize];
                let off = usize::from(some) + far[input.below(6)];
                let len = usize::from(input.u16()) + far[input.below(6)];
                let (off, len) = (off & u32::MAX as usize, len & u32::MAX as usize);
                self.kernel.publish(off, len, u32::from(input.u8() % 7));
                self.published(off, len, None);
            }
            5 if what > 128 => {
                self.broken = true;
                self.kernel.set_state(n, u32::from(input.u8() % 7));
            }
            4..=7 => {
                let before = self.kernel.state_of(n);
                self.look(n);
                given_back = matches!(before, ZRS_DESC_READY | ZRS_DESC_ESCAPED)
                    && self.kernel.state_of(n) == ZRS_DESC_DONE;
            }
            8 | 9 => {
                if !self.held.is_empty() {
                    let at = usize::from(some) % self.held.len();
                    let (n, held, bytes) = self.held.remove(at);
                    if !self.broken {
                        assert_eq!(*held, *bytes, "changed while it was held");
                    }
                    drop(held);
                    assert_eq!(self.kernel.state_of(n), ZRS_DESC_DONE);
                    given_back = true;
                }
            }
            10 => {
                self.kernel.want_credit();
                return;
            }
            _ if some % 4 == 0 => {
                if let Some((n, to)) = self.kernel.escape() {
                    assert_eq!(self.kernel.state_of(n), ZRS_DESC_ESCAPED);
                    assert_eq!(self.kernel.escape_off_of(n) as usize, to);
                }
            }
            _ => {
                self.kernel.reclaim();
            }
        }
        // The bell rings once, when something is given back that the kernel waits for.
        let rings = u64::from(wants && given_back);
        assert_eq!(self.bell.0.load(Ordering::SeqCst), rung + rings);
        assert_eq!(self.kernel.wants_credit(), wants && !given_back);
    }
}

fn consumer(input: &mut Input<'_>) {
    let mut c = Consumer::new(input);
    while !input.is_empty() {
        c.step(input);
    }
}

/// The state words, where a program writes what it likes.
struct Words(Vec<Cell<u32>>);

impl Words {
    fn at(&self, index: u32) -> &Cell<u32> {
        &self.0[index as usize % self.0.len()]
    }
}

impl Descriptors for Words {
    fn claim(&self, index: u32) -> bool {
        let ready = self.at(index).get() == ZRS_DESC_READY;
        if ready {
            self.at(index).set(ZRS_DESC_KERNEL);
        }
        ready
    }
    fn is_done(&self, index: u32) -> bool {
        self.at(index).get() == ZRS_DESC_DONE
    }
    fn is_waiting(&self, index: u32) -> bool {
        self.at(index).get() == ZRS_DESC_READY
    }
    fn set_done(&self, index: u32) {
        self.at(index).set(ZRS_DESC_DONE);
    }
    fn clear(&self, index: u32) {
        self.at(index).set(ZRS_DESC_FREE);
    }
    fn refuge(&self) -> Refuge {
        Refuge::Nowhere
    }
    fn escape(&self, _: u32, _: u32) -> bool {
        false
    }
}

/// A segment as the kernel alone knows it.
struct Kept {
    index: u32,
    len: u32,
    taken: u32,
    claimed: bool,
    in_window: bool,
    lent: u32,
}

fn queue(input: &mut Input<'_>) {
    let entries = 1_usize << (input.u8() % 5);
    let first = input.u32();
    let words = Words(vec![Cell::new(ZRS_DESC_FREE); entries]);
    let slots: Vec<Option<Segment<u32>>> = (0..entries).map(|_| None).collect();
    let mut q = RxQueue::starting_at(slots, first);
    let mut model: VecDeque<Kept> = VecDeque::new();
    let (mut next, mut pos) = (first, 0);
    while !input.is_empty() {
        let what = input.u8();
        let some = input.u16();
        match what % 8 {
            0 | 1 => {
                let len = 1 + u32::from(some % 50);
                let in_window = what & 8 != 0;
                let claimed = !in_window;
                let pushed = q.push(Segment {
                    pos,
                    len,
                    window_off: in_window.then_some(0),
                    held: claimed.then_some(next),
                    taken: 0,
                    claimed,
                    lent: 0,
                    born: pos,
                    moved: Moved::No,
                    pad: len % 3,
                });
                assert_eq!(pushed.is_ok(), model.len() < entries);
                if let Ok(index) = pushed {
                    assert_eq!(index, next);
                    let state = if claimed {
                        ZRS_DESC_KERNEL
                    } else {
                        ZRS_DESC_READY
                    };
                    words.at(index).set(state);
                    model.push_back(Kept {
                        index,
                        len,
                        taken: 0,
                        claimed,
                        in_window,
                        lent: 0,
                    });
                    next = next.wrapping_add(1);
                    pos += u64::from(len);
                }
            }
            2 | 3 => {
                let from = match what & 8 {
                    0 => None,
                    _ => Some(first.wrapping_add(u32::from(some))),
                };
                let head = next.wrapping_sub(model.len() as u32);
                let skip = from.map_or(0, |f| f.wrapping_sub(head) as usize);
                let skip = if skip <= model.len() { skip } else { 0 };
                let expected = model
                    .iter_mut()
                    .skip(skip)
                    .find(|s| {
                        let ready = words.at(s.index).get() == ZRS_DESC_READY;
                        s.taken < s.len && (s.claimed || ready)
                    })
                    .map(|s| {
                        s.claimed = true;
                        s.index
                    });
                let got = q.claim_next(&words, from);
                assert_eq!(got, expected);
                if let (Some(index), true) = (got, what & 16 != 0) {
                    let n = u32::from(some) % 60;
                    q.advance(&words, index, n);
                    if let Some(s) = model.iter_mut().find(|s| s.index == index) {
                        s.taken = s.len.min(s.taken + n);
                        if what & 32 != 0 && s.in_window {
                            q.lend(index, n);
                            s.lent = s.len.min(s.lent + n);
                        }
                    }
                }
            }
            4 => {
                let done = model.front().is_some_and(|s| {
                    let by_program = words.is_done(s.index) && !s.claimed;
                    (s.taken == s.len || by_program) && (s.lent == 0 || what & 8 != 0)
                });
                let freed = q.reap(&words, |_| what & 8 != 0);
                assert_eq!(freed.is_some(), done);
                if let Some(freed) = freed {
                    let s = model.pop_front().expect("it was at the head");
                    let (window, small) = if s.in_window {
                        (s.len + s.len % 3, 0)
                    } else {
                        (0, s.len)
                    };
                    assert_eq!((freed.window, freed.small), (window, small));
                    assert_eq!(freed.by_program, s.len - s.taken);
                    assert_eq!(freed.held, (!s.in_window).then_some(s.index));
                }
            }
            5 => words.at(u32::from(some)).set(u32::from(some >> 8) % 6),
            6 if what > 200 => {
                let held = q.discard(&words);
                assert_eq!(held.is_some(), !model.is_empty());
                model.pop_front();
            }
            _ => {
                let readable = model.iter().any(|s| {
                    s.taken < s.len && (s.claimed || words.at(s.index).get() == ZRS_DESC_READY)
                });
                assert_eq!(q.readable(&words), readable);
                let index = first.wrapping_add(u32::from(some));
                let known = model.iter().any(|s| s.index == index);
                assert_eq!(q.get_mut(index).is_some(), known);
            }
        }
        assert_eq!(q.len() as usize, model.len());
        assert!(q.indices().eq(model.iter().map(|s| s.index)));
        let waits: u64 = model.iter().map(|s| u64::from(s.len - s.taken)).sum();
        assert_eq!(q.bytes(), waits);
        let lent: u64 = model.iter().map(|s| u64::from(s.lent)).sum();
        assert_eq!(q.lent(), lent);
    }
}

/// A ring's head, the program's side of a ring, or the core's.
pub fn ring(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 8 {
        0 => head(&mut input),
        1..=4 => consumer(&mut input),
        _ => queue(&mut input),
    }
}
