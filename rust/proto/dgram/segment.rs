// SPDX-License-Identifier: GPL-2.0

//! UDP_SEGMENT: the bytes of one call are several datagrams.

/// The most datagrams of a call.
pub const SEGMENTS_MAX: usize = 128;

/// There would be more than [`SEGMENTS_MAX`] datagrams. EINVAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

/// Whether a call with `len` bytes is cut.
pub fn cuts(len: usize, size: u16) -> bool {
    size != 0 && len > usize::from(size)
}

/// The datagrams: of `size` bytes each, but for the last one; 0: a single one with all bytes.
pub fn segments(bytes: &[u8], size: u16) -> Result<impl Iterator<Item = &[u8]>, TooMany> {
    let size = match cuts(bytes.len(), size) {
        true => usize::from(size),
        false => bytes.len().max(1),
    };
    if bytes.len() > size.saturating_mul(SEGMENTS_MAX) {
        return Err(TooMany);
    }
    // An empty datagram is one as well.
    let empty = bytes.is_empty().then_some(bytes);
    Ok(empty.into_iter().chain(bytes.chunks(size)))
}
