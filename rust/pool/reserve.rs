// SPDX-License-Identifier: GPL-2.0

//! Main memory that is promised to data that may have to leave the receive pools: a peer may not be
//! allowed to send more than can be kept if the program does not read. A promise is a number;
//! memory is allocated when data is moved.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};

use crate::kern::cpu;
use crate::kern::errno::ENOBUFS;
use crate::params;
use crate::stats::Counter;

static PROMISED: Atomic<u64> = Atomic::new(0);

/// Connects that were refused because no memory could be promised.
pub(crate) static REFUSED: Counter = Counter::new();

/// A promise of this many bytes, until it is dropped.
pub(crate) struct Reserved(u64);

impl Reserved {
    /// Promises `bytes`. ENOBUFS if that is more than `escape_mib` allows. Any context.
    pub(crate) fn new(bytes: u64) -> Result<Self> {
        Self::within(bytes, most())
    }

    /// The same for a window: the last quarter of the limit is reserved for connections.
    pub(crate) fn for_window(bytes: u64) -> Result<Self> {
        Self::within(bytes, most() / 4 * 3)
    }

    fn within(bytes: u64, most: u64) -> Result<Self> {
        let reserved = Self::kept(bytes);
        if promised() > most {
            // Dropping `reserved` takes the promise back.
            return Err(ENOBUFS);
        }
        Ok(reserved)
    }

    /// How many bytes it promises.
    pub(crate) fn bytes(&self) -> u64 {
        self.0
    }

    /// Promises `bytes` without checking the limit: they are a part of a larger promise that ends
    /// now. Any context.
    pub(crate) fn kept(bytes: u64) -> Self {
        PROMISED.fetch_add(bytes, Full);
        Self(bytes)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Full);
    }
}

/// The most that may be promised, in bytes.
pub(crate) fn most() -> u64 {
    match params::ESCAPE_MIB.get() {
        0 => cpu::total_ram_bytes() / 4,
        mib => u64::from(mib) << 20,
    }
}

/// Promised bytes.
pub(crate) fn promised() -> u64 {
    PROMISED.load(Relaxed)
}
