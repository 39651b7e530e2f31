// SPDX-License-Identifier: GPL-2.0

//! The receive ring, from both ends: the program's side against a kernel that writes what it likes
//! into descriptors, and the core's queue against a program that does so with the state words.

mod queue;

use std::mem::{align_of, size_of};
use std::sync::atomic::Ordering;
use std::sync::Arc;

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
            ZRS_RING_VERSION
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
        && head.version == ZRS_RING_VERSION
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

/// The expected contents of a descriptor.
#[derive(Clone, Copy)]
struct Desc {
    off: usize,
    len: usize,
    /// The byte that fills it, while the kernel keeps its rules.
    byte: Option<u8>,
}

struct Consumer {
    kernel: Kernel,
    ring: Arc<Ring>,
    bell: Bell,
    window: usize,
    head: u64,
    desc: Vec<Desc>,
    /// Held segments: number, handle, and the bytes when it was taken.
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
                assert_eq!((held.view().len(), held.has_escaped()), (len, escaped));
                assert_eq!(self.kernel.state_of(n), ZRS_DESC_HELD);
                let bytes = held.view().to_vec();
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
                        assert_eq!(held.view().to_vec(), bytes, "changed while it was held");
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

/// A ring's head, the program's side of a ring, or the core's.
pub fn ring(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 8 {
        0 => head(&mut input),
        1..=4 => consumer(&mut input),
        _ => queue::queue(&mut input),
    }
}
