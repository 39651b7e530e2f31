// SPDX-License-Identifier: GPL-2.0

//! Where a datagram goes, and which sockets are told that it could not: UDP's rules.

use super::super::addr::{Addr, Ip};
use super::wire::{LEN_MAX, LEN_MAX_V4};

/// Why a datagram cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The socket is not connected, and the call has no address. EDESTADDRREQ.
    NoAddress,
    /// Port 0. EINVAL.
    NoPort,
    /// A multicast address, or the broadcast address of all networks, or one of IPv4 that the
    /// socket's address does not reach. ENETUNREACH.
    Unreachable,
    /// An address of IPv6, and the socket has one of IPv4. EAFNOSUPPORT.
    WrongFamily,
    /// The datagram is too long. EMSGSIZE.
    TooLong,
}

/// The addresses of a sending socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// The local address.
    pub local: Ip,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// The peer of a connected socket.
    pub remote: Option<Addr>,
}

/// The longest datagram to `ip`, in bytes.
pub fn len_max(ip: Ip) -> u32 {
    if ip.is_v4() {
        LEN_MAX_V4
    } else {
        LEN_MAX
    }
}

impl Sender {
    /// Where a datagram of `len` bytes goes, if the call names `given`. An unspecified address is
    /// this host.
    pub fn destination(&self, given: Option<Addr>, len: usize) -> Result<Addr, Refused> {
        // UDP checks the limit of all addresses before it reads the address.
        if len > usize::from(u16::MAX) {
            return Err(Refused::TooLong);
        }
        let to = match given {
            Some(to) if to.port == 0 => return Err(Refused::NoPort),
            Some(to) => self.reachable(to)?,
            None => self.remote.ok_or(Refused::NoAddress)?,
        };
        if len > len_max(to.ip) as usize {
            return Err(Refused::TooLong);
        }
        Ok(to)
    }

    /// The address that connect() to `to` connects with.
    pub fn reachable(&self, to: Addr) -> Result<Addr, Refused> {
        let ip = if to.ip.is_any() {
            to.ip.loopback_of_family()
        } else {
            to.ip
        };
        if !ip.is_v4() && self.local.is_v4() {
            return Err(Refused::WrongFamily);
        }
        let reaches_v4 = !self.only_v6 && (self.local == Ip::ANY || self.local.is_v4());
        if ip.is_v4() && !reaches_v4 || ip.is_for_many() {
            return Err(Refused::Unreachable);
        }
        Ok(Addr::new(ip, to.port))
    }
}

/// How a socket is told that a datagram of its was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// In SO_ERROR, so that the next call fails.
    pub so_error: bool,
    /// On the error queue.
    pub queued: bool,
}

/// The report to a socket that is `connected`, or not, and has set IP_RECVERR, or not. The datagram
/// was `refused`, as by ICMP, or lost with its link, which is a local error.
pub fn report(connected: bool, recverr: bool, refused: bool) -> Report {
    Report {
        so_error: connected || recverr && refused,
        queued: recverr,
    }
}
