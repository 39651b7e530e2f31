// SPDX-License-Identifier: GPL-2.0

//! How many blocks a receive queue has in addition to the promised ones, and when links that have
//! ended make it worth replacing. See `pool/receives.rs`.

/// Blocks that are posted to a shared receive queue in addition to the promised ones.
pub const SPARE: u32 = 32;

/// The device tells when fewer blocks than this are left in a shared receive queue. Peers that keep
/// to their credit leave it all of its spare blocks.
pub const LOW: u32 = SPARE / 2;

/// A queue is replaced while links use it when ended links may have left at least this number of
/// blocks in it: before all of its spare blocks are lost.
const WORN: u32 = SPARE / 2;

/// How a link's use of a shared receive queue has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Its queue pair was never connected.
    Unused,
    /// The device has said that it has completed all receives of the queue pair.
    Complete,
    /// As [`Ending::Complete`], but the device drops the receive of a message that has arrived in
    /// part (Soft-RoCE).
    InMessage,
    /// The device has not said so in time.
    Silent,
}

impl Ending {
    /// Blocks that may be lost.
    pub fn doubtful(self) -> u32 {
        match self {
            Self::Unused | Self::Complete => 0,
            Self::InMessage => 1,
            Self::Silent => WORN,
        }
    }
}

/// How many blocks to post in addition to the promised ones, if `doubtful` blocks may be lost. Only
/// the shared queue of new links has some to spare: a peer has no more credit than was promised.
pub fn spare(current: bool, doubtful: u32) -> u32 {
    match current {
        true => SPARE.saturating_add(doubtful),
        false => doubtful,
    }
}

/// Whether another queue takes the place of a shared one in which `doubtful` blocks may be lost,
/// and that `links` links use. `room`: there are unused blocks for a link on the new queue. The
/// blocks of the old one come back only with its last link, so as long as there are no others, it
/// stays until all that it has to spare may be lost.
pub fn is_worn(doubtful: u32, links: u32, room: bool) -> bool {
    match (links, room) {
        (0, _) => doubtful > 0,
        (_, true) => doubtful >= WORN,
        (_, false) => doubtful >= SPARE,
    }
}
