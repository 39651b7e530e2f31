// SPDX-License-Identifier: GPL-2.0
//! A cache, and its use by the receive pools of the devices that write into it: `ZRS_IOC_CACHE`.

use std::fmt;

use zrs_sys::abi;

/// A last-level cache, and the pools that share it. Sizes in bytes; counters count since the module
/// was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its number, as in [`Pool::cache`](crate::Pool::cache).
    pub number: u64,
    /// The NUMA node; None: the machine has none.
    pub node: Option<u32>,
    /// When data escapes.
    pub policy: Escape,
    /// Devices whose pools share it.
    pub devices: u32,
    /// Data older than this may escape, microseconds.
    pub residency_us: u32,
    /// The cache's size, 0: not known.
    pub cache_bytes: u64,
    /// Rate of these devices together, bytes in a microsecond.
    pub rate: u64,
    /// The size that the pools may use now.
    pub bytes: u64,
    /// In use by blocks of the shared receive queues.
    pub small: u64,
    /// In use by windows.
    pub large: u64,
    /// The most that blocks have used.
    pub small_high: u64,
    /// The most that windows have used.
    pub large_high: u64,
    /// The share of the blocks.
    pub small_share: u64,
    /// Unread data.
    pub unread: u64,
    /// The maximum of it.
    pub unread_high: u64,
    /// Messages that were moved to main memory.
    pub escapes: u64,
    /// Bytes of them.
    pub escaped_bytes: u64,
    /// Data in main memory now.
    pub escaped: u64,
    /// Messages that stayed, as there was no memory to move them to.
    pub escape_failures: u64,
    /// Main memory that is promised to connections, of all caches.
    pub escape_reserved: u64,
    /// How much may be.
    pub escape_max: u64,
    /// Requests for a window that had to wait.
    pub waits: u64,
    /// Requests for a window that were refused.
    pub denied: u64,
    /// Connects that were refused for lack of escape memory.
    pub refused: u64,
    /// How often a shared receive queue was empty.
    pub dry: u64,
    /// How long data stayed, in messages: `[0]` less than a microsecond, `[n]` less than 2^n, the
    /// last all that stayed longer.
    pub residency: [u64; Self::BUCKETS],
}

impl Cache {
    /// Places of [`Cache::residency`].
    pub const BUCKETS: usize = abi::ZRS_RESIDENCY_BUCKETS;
}

/// When data that is not read moves to main memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// Never.
    Never,
    /// When it is old and others want the room.
    UnderPressure,
    /// When it is old.
    Always,
    /// A policy this library does not know.
    Other(u32),
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Never => "never",
            Self::UnderPressure => "under-pressure",
            Self::Always => "always",
            Self::Other(_) => "?",
        })
    }
}

impl From<abi::zrs_ioc_cache> for Cache {
    fn from(c: abi::zrs_ioc_cache) -> Self {
        Self {
            // The cursor has gone on to the next place.
            number: c.cursor.saturating_sub(1),
            node: u32::try_from(c.node).ok(),
            policy: match c.policy {
                abi::ZRS_ESCAPE_NEVER => Escape::Never,
                abi::ZRS_ESCAPE_PRESSURE => Escape::UnderPressure,
                abi::ZRS_ESCAPE_ALWAYS => Escape::Always,
                other => Escape::Other(other),
            },
            devices: c.devices,
            residency_us: c.residency_us,
            cache_bytes: c.cache_bytes,
            rate: c.rate,
            bytes: c.bytes,
            small: c.small_bytes,
            large: c.large_bytes,
            small_high: c.small_high,
            large_high: c.large_high,
            small_share: c.small_share,
            unread: c.unread,
            unread_high: c.unread_high,
            escapes: c.escapes,
            escaped_bytes: c.escaped_bytes,
            escaped: c.escaped,
            escape_failures: c.escape_failures,
            escape_reserved: c.escape_reserved,
            escape_max: c.escape_max,
            waits: c.waits,
            denied: c.denied,
            refused: c.refused,
            dry: c.dry,
            residency: c.residency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_headers() {
        let cache = Cache::from(abi::zrs_ioc_cache {
            cursor: 4,
            node: -1,
            policy: abi::ZRS_ESCAPE_PRESSURE,
            small_bytes: 5,
            large_bytes: 6,
            ..Default::default()
        });
        assert_eq!((cache.number, cache.node), (3, None));
        assert_eq!((cache.small, cache.large), (5, 6));
        assert_eq!(cache.policy.to_string(), "under-pressure");
        let on_a_node = Cache::from(abi::zrs_ioc_cache {
            node: 1,
            policy: 9,
            ..Default::default()
        });
        assert_eq!(on_a_node.node, Some(1));
        assert_eq!(on_a_node.policy, Escape::Other(9));
    }
}
