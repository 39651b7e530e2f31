// SPDX-License-Identifier: GPL-2.0

//! Main memory that is promised to data that may have to leave the receive pools: a peer may not be
//! allowed to send more than can be kept if the program does not read. A promise is a number;
//! memory is allocated when data is moved.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::Arc;

use super::context::Pools;
use super::quota::{percent_of, Room};
use crate::kern::cpu;
use crate::kern::errno::{EDQUOT, ENOBUFS};
use crate::params;
use crate::proto::quota::Holder;
use crate::stats::Counter;

static PROMISED: Atomic<u64> = Atomic::new(0);

/// Connects that were refused because no memory could be promised.
pub(crate) static REFUSED: Counter = Counter::new();

/// Memory is shared among users in units of this many bytes.
const UNIT: u64 = 4096;

/// The part of the limit that is for the administrator's connections, in percent.
const ADMIN_PERCENT: u32 = 5;

/// A promise of this many bytes, until it is dropped.
pub(crate) struct Reserved(u64);

/// A promise to a connection, which counts for its user and network namespace.
pub(crate) struct ConnReserved {
    reserved: Reserved,
    pools: Arc<Pools>,
    holder: Holder,
}

impl ConnReserved {
    /// Promises `bytes` to a connection of `holder`. Sleeps.
    ///
    /// Errors: ENOBUFS if that is more than `escape_mib` allows, or than the share of the holder;
    /// ENOMEM.
    pub(crate) fn new(pools: &Arc<Pools>, holder: Holder, bytes: u64) -> Result<Self> {
        let most = units(most());
        let room = Room {
            all: most,
            users: most - percent_of(most, ADMIN_PERCENT),
        };
        let taken = pools
            .promises
            .take_units(holder, units(bytes), room, units(promised()));
        taken.map_err(|e| if e == EDQUOT { ENOBUFS } else { e })?;
        let this = Self {
            reserved: Reserved::kept(bytes),
            pools: pools.clone(),
            holder,
        };
        // Otherwise dropping it takes the promise back.
        (promised() <= self::most()).then_some(this).ok_or(ENOBUFS)
    }

    /// How many bytes it promises.
    pub(crate) fn bytes(&self) -> u64 {
        self.reserved.0
    }
}

impl Drop for ConnReserved {
    fn drop(&mut self) {
        let n = units(self.reserved.0);
        self.pools.promises.give_units(self.holder, n);
    }
}

/// How many units `bytes` are.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

impl Reserved {
    /// Promises `bytes` to a window. ENOBUFS if that is more than `escape_mib` allows, whose last
    /// quarter is reserved for connections. Any context.
    pub(crate) fn for_window(bytes: u64) -> Result<Self> {
        let reserved = Self::kept(bytes);
        // Otherwise dropping it takes the promise back.
        let fits = promised() <= most() / 4 * 3;
        fits.then_some(reserved).ok_or(ENOBUFS)
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
