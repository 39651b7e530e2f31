// SPDX-License-Identifier: GPL-2.0

//! The completion vectors of a device. Each interrupts a different processor, as a rule, so links
//! take turns: two links to a peer have their receive work on two processors.

/// The traffic that a link carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Channels and datagrams.
    Stream,
    /// Operations on memory nodes.
    Memory,
}

/// The completion vector of link number `n` of its kind, of a device with `vectors` of them: one
/// after the other, from the first on for streams, from the last back for memory. A host with few
/// links of each kind then has them on different processors.
pub fn vector(kind: Kind, n: u64, vectors: u32) -> u32 {
    let at = n.checked_rem(u64::from(vectors)).unwrap_or(0) as u32;
    match kind {
        Kind::Stream => at,
        Kind::Memory => vectors.saturating_sub(1).saturating_sub(at),
    }
}
