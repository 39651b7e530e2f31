// SPDX-License-Identifier: GPL-2.0

//! The targets fuzzed on the host. Each target turns bytes into a course of events for a part of
//! ZRS and compares it with a reference that is as simple as the documentation; it panics where
//! they differ. `tests/corpus.rs` runs the targets on the kept inputs and on random ones, `fuzz/`
//! makes libFuzzer programs of them (`tests/fuzz/host`).

#![deny(unsafe_code)]

mod channel;
mod channel_model;
mod dgram;
mod link_table;
mod mem_wire;
mod ring;
mod wire;

pub use channel::channel;
pub use dgram::dgram;
pub use link_table::link_table;
pub use mem_wire::mem_wire;
pub use ring::ring;
pub use wire::wire;

/// A target's function.
pub type Target = fn(&[u8]);

/// The targets and their names.
pub const TARGETS: [(&str, Target); 6] = [
    ("wire", wire),
    ("channel", channel),
    ("link_table", link_table),
    ("ring", ring),
    ("mem_wire", mem_wire),
    ("dgram", dgram),
];

/// Takes numbers from an input, from its beginning on; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let n = N.min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        let mut out = [0; N];
        out[..n].copy_from_slice(head);
        out
    }

    fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// Below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.u16()) % n
    }
}
