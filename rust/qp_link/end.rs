// SPDX-License-Identifier: GPL-2.0

//! The end of a link's queue pair.

#![deny(unsafe_code)]

use kernel::time::{delay::fsleep, Delta};

use super::LinkId;
use crate::ib::qp::Qp;

/// How often [`drain`] looks for the last completion, and how long it sleeps in between.
const DRAIN_ATTEMPTS: u32 = 200;
const DRAIN_INTERVAL: Delta = Delta::from_millis(5);

/// Ends the connection, and has all that was posted to `qp` complete. Sleeps.
pub(crate) fn break_off(id: &LinkId, qp: &Qp) {
    if let Some(id) = id.get() {
        let _ = id.disconnect();
    }
    let _ = qp.set_error();
}

/// Calls `last`, which takes completions of a queue pair in error, until it returns a value: then
/// the device has completed all. `None` if that has not come within a second, as some devices lose
/// completions. Sleeps.
pub(crate) fn drain<T>(mut last: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..DRAIN_ATTEMPTS {
        let ended = last();
        if ended.is_some() {
            return ended;
        }
        fsleep(DRAIN_INTERVAL);
    }
    None
}
