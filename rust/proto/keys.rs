// SPDX-License-Identifier: GPL-2.0

//! The list of keys of a network namespace: which hosts have to prove that they have which key.
//!
//! The longest network that has a host's address decides: any of its keys, and no other, is right
//! for the host.

use super::addr::Ip;
use super::prefix::Prefix;

/// Most entries of a network namespace, ZRS_KEYS_MAX.
pub const ENTRIES_MAX: usize = 1024;

/// The least length of a key, in bytes.
pub const BYTES_MIN: usize = 16;

/// Room for a name and the NUL behind it, ZRS_KEY_NAME_LEN.
pub const NAME_LEN: usize = 64;

/// The name of a key: letters, digits, `.`, `_` and `-`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name([u8; NAME_LEN]);

impl Name {
    /// The name that is followed by NULs up to the end. `None`: there is none, or it has other
    /// characters.
    pub fn new(bytes: [u8; NAME_LEN]) -> Option<Self> {
        let this = Self(bytes);
        let (name, rest) = bytes.split_at_checked(this.bytes().len())?;
        let good = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
        let valid = !name.is_empty() && name.iter().all(good);
        (valid && !rest.is_empty() && rest.iter().all(|b| *b == 0)).then_some(this)
    }

    /// The characters.
    pub fn bytes(&self) -> &[u8] {
        self.0.split(|b| *b == 0).next().unwrap_or_default()
    }

    /// The name and the NULs.
    pub fn padded(self) -> [u8; NAME_LEN] {
        self.0
    }
}

/// The longest of these networks that has the host `ip`: its keys are those for the host.
pub fn network_of(nets: impl Iterator<Item = Prefix>, ip: Ip) -> Option<Prefix> {
    nets.filter(|net| net.has(ip)).max_by_key(|net| net.bits())
}
