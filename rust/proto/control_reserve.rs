// SPDX-License-Identifier: GPL-2.0

//! Places that data leaves to control messages: slots of a link, or work requests in its send
//! queue.
//!
//! A control message takes its places from the reserve as long as that has some: then what data may
//! use, and poll() has promised, stays the same.

/// A reserve of places.
#[derive(Debug)]
pub struct ControlReserve {
    size: u32,
    /// Places that control messages in flight have; more than `size` if they have some of data's.
    used: u32,
}

impl ControlReserve {
    /// A reserve of `size` places.
    pub const fn new(size: u32) -> Self {
        Self { size, used: 0 }
    }

    /// A control message takes `n` places.
    pub fn take(&mut self, n: u32) {
        self.used = self.used.saturating_add(n);
    }

    /// A control message has completed, and gives its `n` places back.
    pub fn give(&mut self, n: u32) {
        self.used = self.used.saturating_sub(n);
    }

    /// Free places that data must leave free.
    pub fn kept(&self) -> u32 {
        self.size.saturating_sub(self.used)
    }
}
