// SPDX-License-Identifier: GPL-2.0

//! The notification of a MSG_ZEROCOPY call while it sends.

#![deny(unsafe_code)]

use kernel::prelude::*;

use crate::kern::sock::msg::SendMsg;
use crate::kern::sock::zerocopy::Notification;
use crate::kern::sock::SkRef;

/// The notification of a MSG_ZEROCOPY call.
///
/// It is made, and aborted, with the send lock held for the call's first chunk. So ids are in the
/// order of the stream, and an aborted id is always the last one that was issued.
pub(super) struct Notify {
    /// The socket and the length of the call, if a notification is due.
    pub(super) due: Option<(SkRef, usize)>,
    pub(super) made: Option<Notification>,
}

impl Notify {
    /// That of a call without MSG_ZEROCOPY.
    pub(super) fn none() -> Self {
        Self {
            due: None,
            made: None,
        }
    }

    /// Makes the notification if it is due and not made yet. Returns whether this call made it.
    ///
    /// Errors: ENOBUFS.
    pub(super) fn begin(&mut self, msg: &SendMsg<'_>) -> Result<bool> {
        match &self.due {
            Some((sk, bytes)) if self.made.is_none() => {
                self.made = Some(Notification::new(sk, msg, *bytes)?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Makes and takes the notification, if it is due, of a call that uses nothing of the
    /// program's memory. Under the send lock. Errors: ENOBUFS.
    pub(super) fn copied(&mut self, msg: &SendMsg<'_>) -> Result<Option<Notification>> {
        self.begin(msg)?;
        let made = self.made.take();
        if let Some(made) = &made {
            made.set_copied();
        }
        Ok(made)
    }

    /// Takes the notification back, as its chunk was not sent.
    pub(super) fn abort(&mut self) {
        if let Some(made) = self.made.take() {
            made.abort();
        }
    }
}
