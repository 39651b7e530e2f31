// SPDX-License-Identifier: GPL-2.0

//! The scope of a key: rights, range, expiry and number of uses; and which keys may be derived from
//! it.

use core::ops::{BitAnd, BitOr};

use super::status::Status;

/// A set of rights. The bits are those on the wire and of the UAPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights(u32);

impl Rights {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Read the region.
    pub const READ: Self = Self(1);
    /// Write the region.
    pub const WRITE: Self = Self(2);
    /// Derive and revoke keys, and seal the region.
    pub const GRANT: Self = Self(4);
    /// Free the region.
    pub const FREE: Self = Self(8);
    /// All of them.
    pub const ALL: Self = Self(15);
    /// Those that a remote key can give.
    pub const DATA: Self = Self(3);

    /// Reads a set; `None` if it has unknown bits.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all rights of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is no right in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Bytes of a region, counted from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// Offset of the first byte.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Range {
    /// Offset behind the last byte; `None` if there is no such number.
    pub fn end(self) -> Option<u64> {
        self.off.checked_add(self.len)
    }

    /// Whether all of `other` is inside. A range that wraps is inside no other.
    pub fn contains(self, other: Self) -> bool {
        match (self.end(), other.end()) {
            (Some(end), Some(other_end)) => self.off <= other.off && other_end <= end,
            _ => false,
        }
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(self, other: Self) -> bool {
        let begins_in = |a: Self, b: Self| a.off >= b.off && a.off.wrapping_sub(b.off) < b.len;
        let empty = self.len == 0 || other.len == 0;
        !empty && (begins_in(self, other) || begins_in(other, self))
    }
}

/// The scope of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The operations.
    pub rights: Rights,
    /// The bytes.
    pub range: Range,
    /// From this time on the key is expired, in milliseconds; `None`: it never is.
    pub expires_ms: Option<u64>,
    /// Operations that may still begin with it; `None`: any number.
    pub uses: Option<u32>,
}

impl Scope {
    /// The scope of a key that is derived from one of this scope, for `wanted`. The derived key
    /// expires no later than this one.
    ///
    /// Errors: `Denied` if this key may not derive keys or `wanted` is more than it allows;
    /// `Invalid` for a key that allows nothing, or with uses beside the right to derive: the uses
    /// of a key do not count for keys derived from it.
    pub fn derive(&self, wanted: &Scope) -> Result<Scope, Status> {
        if !self.rights.contains(Rights::GRANT) {
            return Err(Status::Denied);
        }
        let limited = wanted.uses.is_some();
        if wanted.rights.is_empty()
            || wanted.range.len == 0
            || wanted.uses == Some(0)
            || (limited && wanted.rights.contains(Rights::GRANT))
        {
            return Err(Status::Invalid);
        }
        if !self.rights.contains(wanted.rights) || !self.range.contains(wanted.range) {
            return Err(Status::Denied);
        }
        let expires_ms = match (self.expires_ms, wanted.expires_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Ok(Scope {
            expires_ms,
            ..*wanted
        })
    }

    /// Whether the key has expired.
    pub fn expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at| now_ms >= at)
    }
}
