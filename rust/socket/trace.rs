// SPDX-License-Identifier: GPL-2.0

//! What the tracepoints tell of a socket.

#![deny(unsafe_code)]

use kernel::prelude::*;

use super::{info, Inner, Sock};
use crate::kern::trace::{self, DataPath, Ends};

/// The state of a socket before something that may change it, if somebody wants to know of that.
#[must_use]
pub(crate) struct StateBefore(Option<u32>);

impl Inner {
    /// Whom an event is about.
    pub(crate) fn ends(&self) -> Ends {
        let id = self.chan.id().unwrap_or_default();
        Ends {
            chan: (id.index, id.gen),
            local: self.local.into(),
            remote: self.remote.into(),
        }
    }

    /// Something follows that may change the state, and then [`Self::trace_state_change`].
    #[inline]
    pub(crate) fn state_before(&self) -> StateBefore {
        StateBefore(trace::state_on().then(|| info::state_of(self)))
    }

    /// Tells of the new state, if it is another one.
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
    /// Whom an event is about. Takes the socket's lock.
    pub(super) fn ends(&self) -> Ends {
        self.inner.lock().ends()
    }

    /// A call that was to send `want` bytes has ended with `result`.
    pub(super) fn trace_sent(&self, want: usize, result: &Result<usize>, way: DataPath) {
        trace::send(|| (self.ends(), want as u64, outcome(result), way));
    }

    /// A call that was to receive up to `want` bytes has ended with `result`.
    pub(super) fn trace_received(&self, want: usize, result: &Result<usize>, way: DataPath) {
        trace::recv(|| (self.ends(), want as u64, outcome(result), way));
    }
}

/// As the call returns it.
fn outcome(result: &Result<usize>) -> i64 {
    match result {
        Ok(n) => *n as i64,
        Err(e) => i64::from(e.to_errno()),
    }
}
