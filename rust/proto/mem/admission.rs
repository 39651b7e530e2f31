// SPDX-License-Identifier: GPL-2.0

//! Who may allocate at a node or a broker: everybody, or whoever shows its admission key.

use super::id::{secrets_match, Key};
use super::status::Status;

/// What a node or broker asks of those who allocate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Nothing.
    Open,
    /// These 16 bytes.
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
