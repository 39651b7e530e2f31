// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of a socket.

#![deny(unsafe_code)]

use kernel::prelude::*;

use super::{info, Inner, Sock};
use crate::kern::trace::{self, DataPath, Ends};

/// The state of a socket before an operation that may change it; `None` if its tracepoint is off.
#[must_use]
pub(crate) struct StateBefore(Option<u32>);

impl Inner {
    /// The channel and the addresses of an event.
    pub(crate) fn ends(&self) -> Ends {
        let id = self.conn.chan.id().unwrap_or_default();
        Ends {
            chan: (id.index, id.gen),
            local: self.local.into(),
            remote: self.remote.into(),
        }
    }

    /// Called before an operation that may change the state; [`Self::trace_state_change`] follows
    /// it.
    #[inline]
    pub(crate) fn state_before(&self) -> StateBefore {
        StateBefore(trace::state_on().then(|| info::state_of(self)))
    }

    /// Traces the new state, if it differs.
    #[inline]
    pub(crate) fn trace_state_change(&self, was: StateBefore) {
        if let StateBefore(Some(old)) = was {
            let new = info::state_of(self);
            if old != new {
                trace::state(|| (self.ends(), old, new));
            }
        }
    }
}

impl Sock {
    /// The channel and the addresses of an event. Takes the socket's lock.
    pub(super) fn ends(&self) -> Ends {
        self.inner.lock().ends()
    }

    /// A call to send `want` bytes has ended with `result`.
    pub(super) fn trace_sent(&self, want: usize, result: &Result<usize>, way: DataPath) {
        trace::send(|| (self.ends(), want as u64, outcome(result), way));
    }

    /// A call to receive up to `want` bytes has ended with `result`.
    pub(super) fn trace_received(&self, want: usize, result: &Result<usize>, way: DataPath) {
        trace::recv(|| (self.ends(), want as u64, outcome(result), way));
    }
}

/// The result as the system call returns it.
fn outcome(result: &Result<usize>) -> i64 {
    match result {
        Ok(n) => *n as i64,
        Err(e) => i64::from(e.to_errno()),
    }
}
