// SPDX-License-Identifier: GPL-2.0

//! The sizes of the receive pools of a cache, of their windows and of a sender's chunks, and of the
//! link table's first tier; the histogram of residency times.
//!
//! The pools must have room for the data that arrives within the target residency time. All
//! arithmetic saturates: for any value of a parameter the result is within the bounds.

use super::channel::{WINDOW_MAX, WINDOW_MIN};

/// The least that the pools of a cache have, in bytes.
pub const FLOOR: u64 = 8 << 20;

/// Sizes of pools are multiples of this, in bytes: the smallest window.
const UNIT: u64 = WINDOW_MIN as u64;

/// The smallest and the largest chunk, in bytes.
const CHUNK_MIN: u32 = 16 * 1024;
const CHUNK_MAX: u32 = 256 * 1024;

/// Chunks in a window.
const CHUNKS: u32 = 4;

/// The smallest pages that a program's memory consists of, in bytes.
const PAGE: u32 = 4096;

/// Least number of scatter/gather elements of a send: the header, and 4 KiB of a program's memory,
/// which may lie in two pages. Chunks are as short as a device's elements ask for.
pub const MIN_SGE: u32 = 3;

/// Receives of a link of memory nodes.
pub const MEM_RECEIVES: u32 = 64;

/// Work requests that a queue pair's send queue takes.
pub const SQ_DEPTH: u32 = 512;

/// Number of buckets of [`residency_bucket`]; the same as in `struct zrs_ioc_cache`.
pub const BUCKETS: usize = 24;

/// A last-level cache, and the devices that write into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The receive rate of all its devices together, bytes a microsecond.
    pub rate: u64,
    /// How long data may wait until it is read, microseconds.
    pub residency_us: u32,
    /// The part of the data arriving in that time that there is room for, percent.
    pub percent: u32,
    /// Its size in bytes, 0: not known.
    pub cache_bytes: u64,
}

/// The size of all pools of a cache together, in bytes, a multiple of 64 KiB: rate x time x
/// percent, no more than half of the cache, and no less than [`FLOOR`], whatever the cache has.
/// Where its size is not known it is [`FLOOR`].
pub fn pool_bytes(machine: &Machine) -> u64 {
    let arrives = machine.rate.saturating_mul(machine.residency_us.into());
    let fits = arrives.saturating_mul(machine.percent.into()) / 100;
    let bytes = fits.div_ceil(UNIT).saturating_mul(UNIT);
    let half = (machine.cache_bytes / 2 / UNIT).saturating_mul(UNIT);
    bytes.min(half).max(FLOOR)
}

/// How many bytes a sender should write at once to a device that receives `rate` bytes a
/// microsecond (0: not known): the bytes that arrive in `residency_us` microseconds, as a power of
/// two between 16 and 256 KiB.
pub fn chunk(rate: u64, residency_us: u32) -> u32 {
    if rate == 0 {
        return CHUNK_MAX;
    }
    let arrives = rate.saturating_mul(residency_us.into());
    let most = u32::try_from(arrives).unwrap_or(CHUNK_MAX);
    most.clamp(CHUNK_MIN, CHUNK_MAX).next_power_of_two()
}

/// The most bytes that `writes` work requests of at most `max_sge` elements each can gather,
/// whatever pages the bytes lie in: an element for each page, and one more, as the first page may
/// begin anywhere. A power of two, so that windows and messages consist of whole chunks, and no
/// more than the largest chunk.
pub fn gathered(max_sge: u32, writes: u32) -> u32 {
    let pages = max_sge.saturating_mul(writes).saturating_sub(1);
    let bytes = pages.saturating_mul(PAGE).min(CHUNK_MAX);
    bytes.checked_ilog2().map_or(0, |log| 1 << log)
}

/// The size of a window for chunks of this size, in bytes: four of them, within the bounds of a
/// window.
pub fn window(chunk: u32) -> u32 {
    chunk.saturating_mul(CHUNKS).clamp(WINDOW_MIN, WINDOW_MAX)
}

/// The largest window that a socket may lease whose SO_RCVBUF is `rcvbuf` bytes as the kernel keeps
/// it, in bytes: a half of it, since as much again may be in main memory while the data is unread;
/// in multiples of the smallest window, which any socket may have.
pub fn window_for(rcvbuf: u32) -> u32 {
    let half = rcvbuf / 2;
    half.saturating_sub(half % WINDOW_MIN)
        .clamp(WINDOW_MIN, WINDOW_MAX)
}

/// The most hot slots of the link table.
pub const HOT_MOST: u32 = 1 << 16;

/// The least that [`hot_slots`] returns for a table with that many entries.
const HOT_LEAST: u32 = 256;

/// Hot slots have no more than this part of the memory. They are taken when the module is loaded,
/// used or not. A channel in use costs more than its slot: at this part, the full table of a
/// machine with 8 GiB, 16,384 slots, is hot.
const HOT_PART: u64 = 1024;

/// How many hot slots a table for `most` entries has, if a slot takes `slot` bytes and the machine
/// has `ram` bytes of memory: one for each entry, so that no active channel waits for the table, or
/// the number that fits into a small part of the memory.
pub fn hot_slots(most: u32, slot: usize, ram: u64) -> u32 {
    let fit = (ram / HOT_PART).checked_div(slot as u64).unwrap_or(0);
    let fit = u32::try_from(fit).unwrap_or(HOT_MOST);
    most.min(fit.clamp(HOT_LEAST, HOT_MOST))
}

/// Where data that stayed for `ns` nanoseconds is counted: 0 is less than a microsecond, n less
/// than 2^n, and the last of the [`BUCKETS`] all that stayed longer.
pub fn residency_bucket(ns: u64) -> usize {
    let us = ns / 1000;
    let bits = u64::BITS.saturating_sub(us.leading_zeros());
    (bits as usize).min(BUCKETS.saturating_sub(1))
}
