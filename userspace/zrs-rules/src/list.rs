// SPDX-License-Identifier: GPL-2.0
//! The elements of the rules' lists: networks and ranges of ports.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, "192.0.2.0/24" or "2001:db8::/32", or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    addr: IpAddr,
    len: u8,
}

impl Net {
    /// The network of the address and its first `len` bits. `None`: an address has fewer bits.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let most = if addr.is_ipv4() { 32 } else { 128 };
        (len <= most).then_some(Self { addr, len })
    }

    /// The address that it was made with.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// How many bits have to match.
    pub fn bits(&self) -> u8 {
        self.len
    }

    /// The same network, with its first address.
    pub fn whole(self) -> Self {
        let rest = match self.addr {
            IpAddr::V4(_) => 32 - u32::from(self.len),
            IpAddr::V6(_) => 128 - u32::from(self.len),
        };
        let addr = match self.addr {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        Self { addr, ..self }
    }

    /// Whether the address lies in it.
    pub fn has(&self, ip: IpAddr) -> bool {
        match (self.addr, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                (net.to_bits() ^ ip.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.len))
                    .unwrap_or(0);
                (net.to_bits() ^ ip.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr: IpAddr = addr
            .parse()
            .map_err(|_| format!("'{addr}' is not an address"))?;
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => most,
            Some(len) => match len.parse() {
                Ok(len) if len <= most => len,
                _ => return Err(format!("'{len}' is not a length from 0 to {most}")),
            },
        };
        Ok(Self { addr, len })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// A port, "6379", or a range with both ends, "8000-8100".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// From `first` to `last`. `None`: it begins with 0 or ends before it begins.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first != 0 && first <= last).then_some(Self { first, last })
    }

    /// The first port and the last one.
    pub fn ends(&self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// Whether the port lies in it.
    pub fn has(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(format!("'{text}' is not a port from 1 to 65535")),
            Ok(port) => Ok(port),
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(text)?, port(text)?),
        };
        if first > last {
            return Err(format!("'{text}' ends before it begins"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}
