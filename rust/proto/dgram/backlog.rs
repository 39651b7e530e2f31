// SPDX-License-Identifier: GPL-2.0

//! Datagrams that wait while the link to their host is being made. There is room for a few; the
//! oldest go first, as with a neighbour whose address is being resolved.

use core::ops::DerefMut;

use super::fifo::Fifo;

/// The most bytes that wait for a link.
pub const BYTES_MAX: u32 = 64 * 1024;

/// A datagram that waits.
#[derive(Debug)]
pub struct Waiting<T> {
    len: u32,
    value: T,
}

/// The datagrams that wait for a link. `S`: their storage; its size bounds their number.
pub struct Backlog<S> {
    waiting: Fifo<S>,
    bytes: u32,
}

impl<T: 'static, S: DerefMut<Target = [Option<Waiting<T>>]>> Backlog<S> {
    /// An empty one.
    pub fn new(slots: S) -> Self {
        Self {
            waiting: Fifo::new(slots),
            bytes: 0,
        }
    }

    /// Takes the oldest datagram out, if one of `len` bytes has no room. Repeated until `None`,
    /// [`Self::push`] has room.
    pub fn evict(&mut self, len: u32) -> Option<T> {
        let full = self.waiting.len() >= self.waiting.slots();
        let over = self.bytes.saturating_add(len) > BYTES_MAX;
        if full || over {
            self.pop()
        } else {
            None
        }
    }

    /// Adds a datagram of `len` bytes; gives it back if there is no room.
    pub fn push(&mut self, len: u32, value: T) -> Result<(), T> {
        let bytes = self.bytes.saturating_add(len);
        if bytes > BYTES_MAX {
            return Err(value);
        }
        let added = self.waiting.push(Waiting { len, value });
        added.map_err(|waiting| waiting.value)?;
        self.bytes = bytes;
        Ok(())
    }

    /// The oldest datagram.
    pub fn first(&self) -> Option<&T> {
        self.waiting.first().map(|waiting| &waiting.value)
    }

    /// Takes the oldest datagram out.
    pub fn pop(&mut self) -> Option<T> {
        let waiting = self.waiting.pop()?;
        self.bytes = self.bytes.saturating_sub(waiting.len);
        Some(waiting.value)
    }

    /// Bytes that wait.
    #[cfg(not(MODULE))]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Datagrams that wait.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
