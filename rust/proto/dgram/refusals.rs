// SPDX-License-Identifier: GPL-2.0

//! How often a link answers that a port is closed: once in [`INTERVAL_NS`] for the same ports, and
//! for [`PORTS`] of them, so that a flood is not answered by a flood.

use super::wire::Ports;

/// Between two answers with the same ports, in nanoseconds.
pub const INTERVAL_NS: u64 = 100_000_000;

/// Pairs of ports that are answered in [`INTERVAL_NS`].
pub const PORTS: usize = 16;

/// The answers of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    /// The last ones: their ports, and when the next answer may be sent.
    recent: [Option<(Ports, u64)>; PORTS],
}

impl Refusals {
    /// Whether a datagram or probe with these ports is answered, at `now` in nanoseconds of the
    /// monotonic clock.
    pub fn may_answer(&mut self, ports: Ports, now: u64) -> bool {
        let mut recent = self.recent.iter().flatten();
        if recent.any(|(p, next)| *p == ports && now < *next) {
            return false;
        }
        let over = |slot: &Option<(Ports, u64)>| slot.is_none_or(|(_, next)| now >= next);
        match self.recent.iter_mut().find(|slot| over(slot)) {
            Some(slot) => {
                *slot = Some((ports, now.saturating_add(INTERVAL_NS)));
                true
            }
            None => false,
        }
    }
}
