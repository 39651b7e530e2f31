// SPDX-License-Identifier: GPL-2.0

//! How much of a blocking send is copied: its end, so that the device has data to send while the
//! call returns and the program's next call begins.

/// The part that is pinned has whole pages, so that the copied part also begins at a multiple of
/// this in the peer's window. A shorter tail is not worth a separate message.
const PAGE: usize = 4096;

/// A call with more bytes than this begins at a page in the peer's window, and a receiver can have
/// it mapped, if its first piece has more bytes than this as well.
const MAPPED_ABOVE: usize = 16 * 1024;

/// How many bytes at the end of a blocking call of `total` bytes are copied: at most `most`. 0: all
/// of them are pinned; `total`: none of them.
pub fn tail(total: usize, most: usize) -> usize {
    if total <= most {
        return total;
    }
    let least = match total > MAPPED_ABOVE {
        true => MAPPED_ABOVE.saturating_add(1),
        false => 0,
    };
    let head = total.saturating_sub(most).max(least);
    let whole = head.checked_next_multiple_of(PAGE).unwrap_or(total);
    match total.saturating_sub(whole) {
        short if short < PAGE => 0,
        tail => tail,
    }
}
