// SPDX-License-Identifier: GPL-2.0
//! Arguments that several programs take.

use std::net::SocketAddrV4;

/// A number of bytes: 4096, 64k, 64M, 1G.
pub fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|e| format!("{text}: {e}"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large"))
}

/// Which end of a test this process is.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct End {
    /// Listen here
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: Option<SocketAddrV4>,
    /// Connect to the server
    #[arg(long, value_name = "ADDR:PORT")]
    pub client: Option<SocketAddrV4>,
}

/// The same, with its address.
pub enum Side {
    Server(SocketAddrV4),
    Client(SocketAddrV4),
}

impl End {
    pub fn side(&self) -> Side {
        match (self.server, self.client) {
            (Some(addr), _) => Side::Server(addr),
            (None, Some(addr)) => Side::Client(addr),
            (None, None) => unreachable!("one of them is required"),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes() {
        assert_eq!(super::size("64M"), Ok(64 << 20));
        assert_eq!(super::size("17"), Ok(17));
        assert!(
            super::size("M").is_err() && super::size("").is_err() && super::size("-1").is_err()
        );
        assert!(super::size("99999999999999G").is_err());
    }
}
