// SPDX-License-Identifier: GPL-2.0

//! SO_SNDBUF of a datagram socket, by the rule of UDP's: a datagram of any length is admitted while
//! less than the limit is held, and poll() promises room while less than half of it is.

use super::rx_queue::OVERHEAD;

/// The bytes that a datagram of `len` bytes is charged with.
pub fn charge(len: usize) -> usize {
    len.saturating_add(OVERHEAD as usize)
}

/// Whether a socket that holds `held` bytes may send another datagram.
pub fn admits(limit: u32, held: u64) -> bool {
    held < u64::from(limit)
}

/// Whether poll() says that such a socket can be sent to.
pub fn writable(limit: u32, held: u64) -> bool {
    held.saturating_mul(2) < u64::from(limit)
}
