// SPDX-License-Identifier: GPL-2.0

//! Names of memory: node ids, keys, and storage ids.

use core::fmt;

/// Identifies a memory node. The domain is a numbering domain of the administrator's, not a
/// protection domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct NodeId {
    /// Protection-domain number; 0 means the local host's own domain.
    pub domain: u32,
    /// Number of the node in its domain.
    pub node: u32,
}

impl NodeId {
    /// The same id with `own` for domain 0.
    pub fn qualified(self, own: u32) -> Self {
        let domain = if self.domain == 0 { own } else { self.domain };
        Self { domain, ..self }
    }
}

/// Size of an encoded [`StorageId`].
#[cfg(not(MODULE))]
pub const STORAGE_ID_LEN: usize = 32;

/// A capability: any holder of these 128 bits may use the region, within the key's rights. Their
/// meaning is private to the node.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Key {
    /// Number of the region in its node's table.
    pub region: u32,
    /// Generation of that number; never 0 in a key of a region.
    pub gen: u32,
    /// Random.
    pub secret: u64,
}

/// Keys appear in traces; their secrets do not.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}.{})", self.region, self.gen)
    }
}

impl Key {
    /// The 16 bytes, little-endian.
    pub fn encode(self) -> [u8; 16] {
        let secret = u128::from(self.secret);
        let word = u128::from(self.region) | (u128::from(self.gen) << 32) | (secret << 64);
        word.to_le_bytes()
    }

    /// Reads a key; every value is one.
    pub fn decode(bytes: [u8; 16]) -> Self {
        let word = u128::from_le_bytes(bytes);
        Self {
            region: word as u32,
            gen: (word >> 32) as u32,
            secret: (word >> 64) as u64,
        }
    }
}

/// Identifies memory of a node: an address in the space of its owner, a length, and a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StorageId {
    /// Address of the first byte; the owner chooses it, the node translates it.
    pub va: u64,
    /// Length in bytes.
    pub len: u64,
    /// The capability.
    pub key: Key,
}

impl StorageId {
    /// Encodes the id as 32 bytes, the form in which programs pass it on.
    #[cfg(not(MODULE))]
    pub fn encode(&self) -> [u8; STORAGE_ID_LEN] {
        let head = u128::from(self.va) | (u128::from(self.len) << 64);
        let mut out = [0; STORAGE_ID_LEN];
        let (first, last) = out.split_at_mut(16);
        first.copy_from_slice(&head.to_le_bytes());
        last.copy_from_slice(&self.key.encode());
        out
    }

    /// Reads a storage id; `None` if its end is beyond the address space or its generation is 0.
    #[cfg(not(MODULE))]
    pub fn decode(bytes: &[u8; STORAGE_ID_LEN]) -> Option<Self> {
        let (head, key) = bytes.split_first_chunk::<16>()?;
        let head = u128::from_le_bytes(*head);
        let id = Self {
            va: head as u64,
            len: (head >> 64) as u64,
            key: Key::decode(*key.first_chunk::<16>()?),
        };
        (id.va.checked_add(id.len).is_some() && id.key.gen != 0).then_some(id)
    }
}

/// Compares two secrets of 16 bytes in time that does not depend on where they differ.
pub fn secrets_match(a: &[u8; 16], b: &[u8; 16]) -> bool {
    let (a, b) = (u128::from_le_bytes(*a), u128::from_le_bytes(*b));
    core::hint::black_box(a ^ b) == 0
}
