// SPDX-License-Identifier: GPL-2.0

//! Networks: the addresses of one family that begin with the same bits.

use core::net::Ipv6Addr;

use super::addr::Ip;

/// A network: the addresses of one family that have this prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    first: Ip,
    /// Of the 128 bits, those before an IPv4 address included.
    len: u8,
}

/// The first bit of an IPv4 address in its v4-mapped form.
const V4_BITS: u8 = 96;

/// A mask of the first `len` of 128 bits.
fn mask(len: u8) -> u128 {
    let rest = 128_u32.saturating_sub(len.into());
    u128::MAX.checked_shl(rest).unwrap_or(0)
}

impl Prefix {
    /// The network of `ip` with `len` bits of its family; the other bits of `ip` do not count.
    /// `None`: the family has fewer bits.
    pub fn new(ip: Ip, len: u8) -> Option<Self> {
        let len = match ip.v4() {
            Some(_) => len.checked_add(V4_BITS)?,
            None => len,
        };
        if len > 128 {
            return None;
        }
        let first = Ip::new(Ipv6Addr::from_bits(ip.v6().to_bits() & mask(len)), 0);
        Some(Self { first, len })
    }

    /// Its first address.
    pub fn first(self) -> Ip {
        self.first
    }

    /// The number of bits, of its family.
    pub fn bits(self) -> u8 {
        let before = if self.first.is_v4() { V4_BITS } else { 0 };
        self.len.saturating_sub(before)
    }

    /// Whether `ip` is in it.
    pub fn has(self, ip: Ip) -> bool {
        let differ = self.first.v6().to_bits() ^ ip.v6().to_bits();
        self.first.is_v4() == ip.is_v4() && differ & mask(self.len) == 0
    }
}
