// SPDX-License-Identifier: GPL-2.0

//! The control messages of sendmsg(): UDP's rules of which are taken and which are refused. Those
//! about fields of IP packets are checked and have no effect.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::super::addr::Ip;

const SOL_IP: i32 = 0;
const SOL_SOCKET: i32 = 1;
const SOL_UDP: i32 = 17;
const SOL_IPV6: i32 = 41;

const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
const IP_TOS: i32 = 1;
const IP_TTL: i32 = 2;
const IP_PKTINFO: i32 = 8;
const IPV6_2292PKTINFO: i32 = 2;
const IPV6_2292HOPLIMIT: i32 = 8;
const IPV6_PKTINFO: i32 = 50;
const IPV6_HOPLIMIT: i32 = 52;
const IPV6_DONTFRAG: i32 = 62;
const IPV6_TCLASS: i32 = 67;
const UDP_SEGMENT: i32 = 103;

/// Bytes of a `struct cmsghdr`: a length, which counts them too, a level and a type. Each begins at
/// a multiple of a word.
const HEADER: usize = WORD + 8;
const WORD: usize = size_of::<usize>();

/// What the control messages of a call say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Control {
    /// UDP_SEGMENT, in place of the socket's.
    pub segment: Option<u16>,
    /// The local address to send from, of the destination's family.
    pub source: Option<Ip>,
    /// The number of the interface to send by; 0: any.
    pub interface: u32,
}

/// A control message that UDP refuses. EINVAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid;

/// The C int that is all of `data`, if it is in the range.
fn number(data: &[u8], from: i32, to: i32) -> Result<(), Invalid> {
    let bytes = data.try_into().map_err(|_| Invalid)?;
    let value = i32::from_ne_bytes(bytes);
    let fits = (from..=to).contains(&value);
    fits.then_some(()).ok_or(Invalid)
}

/// A `struct in_pktinfo`: the interface, the source, an address without a meaning here.
fn pktinfo(data: &[u8]) -> Result<(u32, Ip), Invalid> {
    let info: &[u8; 12] = data.try_into().map_err(|_| Invalid)?;
    let (dev, rest) = info.split_first_chunk().ok_or(Invalid)?;
    let source: &[u8; 4] = rest.first_chunk().ok_or(Invalid)?;
    Ok((u32::from_ne_bytes(*dev), Ipv4Addr::from(*source).into()))
}

/// A `struct in6_pktinfo`: the source, and the interface. It may be longer.
fn pktinfo6(data: &[u8]) -> Result<(u32, Ip), Invalid> {
    let (source, rest) = data.split_first_chunk::<16>().ok_or(Invalid)?;
    let dev = u32::from_ne_bytes(*rest.first_chunk().ok_or(Invalid)?);
    Ok((dev, Ip::new(Ipv6Addr::from(*source), dev)))
}

impl Control {
    /// Reads all control messages of a datagram to `to`; `v6`: of a socket of AF_INET6.
    pub fn parse(mut bytes: &[u8], to: Ip, v6: bool) -> Result<Self, Invalid> {
        let mut control = Self::default();
        while bytes.len() >= HEADER {
            let (len, rest) = bytes.split_first_chunk().ok_or(Invalid)?;
            let (level, rest) = rest.split_first_chunk().ok_or(Invalid)?;
            let (kind, rest) = rest.split_first_chunk().ok_or(Invalid)?;
            let len = usize::from_ne_bytes(*len);
            let data = len.checked_sub(HEADER).and_then(|n| rest.get(..n));
            let what = (i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind));
            control.take(what, data.ok_or(Invalid)?, to, v6)?;
            let next = len.checked_next_multiple_of(WORD).ok_or(Invalid)?;
            bytes = bytes.get(next..).unwrap_or_default();
        }
        Ok(control)
    }

    fn take(
        &mut self,
        (level, kind): (i32, i32),
        data: &[u8],
        to: Ip,
        v6: bool,
    ) -> Result<(), Invalid> {
        match (level, kind) {
            (SOL_UDP, UDP_SEGMENT) => {
                let bytes = data.try_into().map_err(|_| Invalid)?;
                self.segment = Some(u16::from_ne_bytes(bytes));
                Ok(())
            }
            (SOL_UDP, _) => Err(Invalid),
            (SOL_SOCKET, SCM_RIGHTS | SCM_CREDENTIALS) => Ok(()),
            (SOL_SOCKET, _) => Err(Invalid),
            (SOL_IPV6, IPV6_PKTINFO) if to.is_v4() && v6 => self.from(pktinfo6(data)?, to),
            (SOL_IP, kind) if to.is_v4() => self.take_v4(kind, data, to),
            (SOL_IPV6, kind) if !to.is_v4() => self.take_v6(kind, data, to),
            // Another family's, or another protocol's.
            _ => Ok(()),
        }
    }

    fn take_v4(&mut self, kind: i32, data: &[u8], to: Ip) -> Result<(), Invalid> {
        match kind {
            IP_PKTINFO => self.from(pktinfo(data)?, to),
            IP_TTL => number(data, 1, 255),
            IP_TOS if data.len() == 1 => Ok(()),
            IP_TOS => number(data, 0, 255),
            _ => Err(Invalid),
        }
    }

    fn take_v6(&mut self, kind: i32, data: &[u8], to: Ip) -> Result<(), Invalid> {
        match kind {
            IPV6_PKTINFO | IPV6_2292PKTINFO => self.from(pktinfo6(data)?, to),
            IPV6_HOPLIMIT | IPV6_2292HOPLIMIT | IPV6_TCLASS => number(data, -1, 255),
            IPV6_DONTFRAG => number(data, 0, 1),
            _ => Err(Invalid),
        }
    }

    fn from(&mut self, (interface, source): (u32, Ip), to: Ip) -> Result<(), Invalid> {
        if interface != 0 {
            self.interface = interface;
        }
        if source == to.any_of_family() {
            self.source = None;
            return Ok(());
        }
        if source.is_v4() != to.is_v4() {
            return Err(Invalid);
        }
        self.source = Some(source);
        Ok(())
    }
}
