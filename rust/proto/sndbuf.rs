// SPDX-License-Identifier: GPL-2.0

//! SO_SNDBUF: how many sent bytes a socket may hold until the device is done with them.
//!
//! A small message goes whole or waits. Where poll() promises room there is enough for one, and
//! more than that while much is held, so that a waiting sender is not woken for each byte.

use super::wire::SMALL_MAX;

/// The largest part of a call is half of the limit, so that a part is filled while another is in
/// flight; in whole pages.
const PAGE: u64 = 4096;

/// A socket that could not hold a small message could send nothing.
fn at_least(limit: u32) -> u64 {
    u64::from(limit.max(SMALL_MAX))
}

/// How many of the next `want` bytes a socket may take that holds `held` bytes and may hold
/// `limit`; 0: it has to wait, until [`writable`] at the latest.
pub fn room(limit: u32, held: u64, want: usize) -> usize {
    let (limit, want) = (at_least(limit), want as u64);
    let free = limit.saturating_sub(held);
    if free < want.min(u64::from(SMALL_MAX)) {
        return 0;
    }
    let part = want.min(free).min((limit / 2).max(u64::from(SMALL_MAX)));
    let whole = match part {
        n if n < want && n > PAGE => n.saturating_sub(n % PAGE),
        n => n,
    };
    whole as usize
}

/// Whether poll() says that such a socket can be sent to: a third is free, as TCP has it, and room
/// for a small message.
pub fn writable(limit: u32, held: u64) -> bool {
    let free = at_least(limit).saturating_sub(held);
    free >= u64::from(SMALL_MAX) && free >= held / 2
}
