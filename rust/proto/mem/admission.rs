// SPDX-License-Identifier: GPL-2.0

//! Admission to a node or a broker: all hosts may allocate, or only hosts that show its admission
//! key.

use super::id::{secrets_match, Key};
use super::status::Status;

/// The condition for an ALLOC.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// All hosts may allocate.
    Open,
    /// The ALLOC must show these 16 bytes.
    Key([u8; 16]),
}

impl Admission {
    /// Checks the admission key of an ALLOC. `Denied` for another one; at an open node any key will
    /// do.
    pub fn check(&self, shown: Key) -> Result<(), Status> {
        match self {
            Self::Open => Ok(()),
            Self::Key(key) => secrets_match(key, &shown.encode())
                .then_some(())
                .ok_or(Status::Denied),
        }
    }
}
