// SPDX-License-Identifier: GPL-2.0

//! The text forms of node ids and storage ids, for commands and configuration files.
//!
//! ```text
//! 1:2             node 2 of domain 1
//! 2               node 2 of the host's own domain
//! zrs:1:2/BASE32  a storage id and its node: its 32 bytes as 52 digits of base32
//! ```
//!
//! Base32 is that of RFC 4648 without padding. The text of a storage id contains the secret of its
//! key.

use core::fmt::{self, Write};
use core::str::FromStr;

use super::id::{NodeId, StorageId, STORAGE_ID_LEN};

/// The prefix of the text of a storage id.
pub const SCHEME: &str = "zrs:";

/// Digits of base32 in the text of a storage id.
pub const DIGITS_LEN: usize = (STORAGE_ID_LEN * 8).div_ceil(5);

const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why a text is not an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextError {
    /// The storage id does not begin with [`SCHEME`].
    Scheme,
    /// The node id is neither a number nor two numbers with a colon between them, or a number
    /// exceeds 32 bits.
    Node,
    /// The storage id does not have [`DIGITS_LEN`] digits behind a slash.
    Length,
    /// A character is not a digit of base32, or the last digit has bits that are not in use.
    Digit,
    /// The bytes are not a storage id: its end is beyond the address space, or its generation is 0.
    Storage,
}

/// A storage id and the node that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteStorage {
    /// The node.
    pub node: NodeId,
    /// The memory.
    pub storage: StorageId,
}

/// A number in decimal digits, without a sign or leading zeros.
fn number(text: &str) -> Result<u32, TextError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let canonical = text == "0" || !text.starts_with('0');
    if !digits || !canonical {
        return Err(TextError::Node);
    }
    text.parse().map_err(|_| TextError::Node)
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.domain != 0 {
            write!(f, "{}:", self.domain)?;
        }
        write!(f, "{}", self.node)
    }
}

impl FromStr for NodeId {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (domain, node) = match text.split_once(':') {
            Some((domain, node)) => (number(domain)?, node),
            None => (0, text),
        };
        Ok(Self {
            domain,
            node: number(node)?,
        })
    }
}

impl fmt::Display for RemoteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", self.node)?;
        let mut digit = |v: u32| {
            let digit = DIGITS.get((v & 31) as usize).copied().unwrap_or_default();
            f.write_char(char::from(digit))
        };
        // The lowest `n` bits of `bits` are not printed yet.
        let (mut bits, mut n) = (0_u32, 0_u32);
        for byte in self.storage.encode() {
            bits = (bits << 8) | u32::from(byte);
            n = n.wrapping_add(8);
            while n >= 5 {
                n = n.wrapping_sub(5);
                digit(bits.wrapping_shr(n))?;
            }
        }
        if n != 0 {
            digit(bits.wrapping_shl(5_u32.wrapping_sub(n)))?;
        }
        Ok(())
    }
}

fn decode(text: &str) -> Result<[u8; STORAGE_ID_LEN], TextError> {
    if text.len() != DIGITS_LEN {
        return Err(TextError::Length);
    }
    let mut out = [0; STORAGE_ID_LEN];
    let mut bytes = out.iter_mut();
    // The lowest `n` bits of `bits` are in no byte yet.
    let (mut bits, mut n) = (0_u32, 0_u32);
    for digit in text.bytes().map(|b| b.to_ascii_lowercase()) {
        let mut values = (0_u32..).zip(DIGITS);
        let (value, _) = values.find(|(_, d)| **d == digit).ok_or(TextError::Digit)?;
        bits = (bits << 5) | value;
        n = n.wrapping_add(5);
        if n >= 8 {
            n = n.wrapping_sub(8);
            if let Some(byte) = bytes.next() {
                *byte = bits.wrapping_shr(n) as u8;
            }
        }
    }
    let unused = bits & !u32::MAX.wrapping_shl(n);
    (unused == 0).then_some(out).ok_or(TextError::Digit)
}

impl FromStr for RemoteStorage {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let text = text.strip_prefix(SCHEME).ok_or(TextError::Scheme)?;
        let (node, digits) = text.split_once('/').ok_or(TextError::Length)?;
        let node = node.parse()?;
        let storage = StorageId::decode(&decode(digits)?).ok_or(TextError::Storage)?;
        Ok(Self { node, storage })
    }
}
