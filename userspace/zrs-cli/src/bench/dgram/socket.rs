// SPDX-License-Identifier: GPL-2.0
//! A datagram socket of each carrier.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, IoSlice};
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_timeout, Timeout,
};
use rustix::net::{
    recvfrom, send, sendmmsg, sendto, socket_with, AddressFamily, MMsgHdr, Protocol, RecvFlags,
    SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
};
use zrs_bench::Carrier;
use zrs_sys::sock;

use crate::{said, Result};

/// Room for datagrams that have not been read.
const BUFFER: usize = 4 << 20;
/// The number of datagrams in a call of sendmmsg().
pub const BATCH: u64 = 16;
/// How long a socket of ZRS polls in one call, in microseconds.
const SPIN_US: u32 = 100_000;

/// The number of MSG_ZEROCOPY calls whose pages the device may use at once.
const TURNS: u32 = 4;

/// A bound datagram socket.
pub struct Socket {
    fd: OwnedFd,
    /// Datagrams are sent by MSG_ZEROCOPY.
    zerocopy: bool,
}

fn open(carrier: Carrier, addr: SocketAddr, wait: Duration) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let protocol = match carrier.is_zrs() {
        true => NonZeroU32::new(zrs_sys::abi::IPPROTO_ZRS).map(Protocol::from_raw),
        false => None,
    };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol)?;
    // Root alone may have more than the system's limit.
    set_socket_recv_buffer_size_force(&fd, BUFFER)
        .or_else(|_| set_socket_recv_buffer_size(&fd, BUFFER))?;
    set_socket_timeout(&fd, Timeout::Recv, Some(wait))?;
    match carrier {
        Carrier::ZrsSpin => sock::set_busy_poll(fd.as_fd(), SPIN_US)?,
        Carrier::ZrsZerocopy => sock::set_zerocopy(fd.as_fd(), true)?,
        _ => {}
    }
    rustix::net::bind(&fd, &addr)?;
    Ok(fd)
}

impl Socket {
    /// A socket of `carrier`, bound to `addr`, whose calls wait for a datagram for `wait`.
    pub fn bind(carrier: Carrier, addr: SocketAddr, wait: Duration) -> Result<Self> {
        let fd = said(open(carrier, addr, wait), || {
            format!("no datagram socket with the address {addr}")
        })?;
        let zerocopy = carrier == Carrier::ZrsZerocopy;
        Ok(Self { fd, zerocopy })
    }

    /// The port that it is bound to.
    pub fn port(&self) -> Result<u16> {
        let addr = rustix::net::getsockname(&self.fd).map_err(io::Error::from);
        let addr = said(addr, || "cannot tell the own address".into())?;
        let addr = SocketAddr::try_from(addr).map_err(|_| "an address of another family")?;
        Ok(addr.port())
    }

    /// Sends to `addr` from now on.
    pub fn connect(&self, addr: SocketAddr) -> Result<()> {
        let done = rustix::net::connect(&self.fd, &addr).map_err(Into::into);
        said(done, || format!("cannot connect to {addr}"))
    }

    /// Sends one datagram to the connected address.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let call = || send(&self.fd, bytes, SendFlags::NOSIGNAL);
        whole(rustix::io::retry_on_intr(call)?, bytes)
    }

    /// Sends one datagram to `addr`.
    pub fn send_to(&self, bytes: &[u8], addr: SocketAddr) -> io::Result<()> {
        let call = || sendto(&self.fd, bytes, SendFlags::NOSIGNAL, &addr);
        whole(rustix::io::retry_on_intr(call)?, bytes)
    }

    /// Sends `count` datagrams to the connected address, several in a call where MSG_ZEROCOPY does not name each one.
    pub fn send_many(&self, bytes: &[u8], count: u64) -> io::Result<()> {
        if self.zerocopy {
            return self.send_many_in_place(bytes, count);
        }
        let slices = [IoSlice::new(bytes)];
        let mut controls: Vec<_> = (0..BATCH.min(count))
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let mut headers: Vec<_> = controls
            .iter_mut()
            .map(|control| MMsgHdr::new(&slices, control))
            .collect();
        let mut left = count;
        while left > 0 {
            let now = &mut headers[..left.min(BATCH) as usize];
            match sendmmsg(&self.fd, now, SendFlags::NOSIGNAL) {
                Ok(sent) => left -= sent as u64,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// By MSG_ZEROCOPY: at most [`TURNS`] calls are not complete. All are in the end.
    fn send_many_in_place(&self, bytes: &[u8], count: u64) -> io::Result<()> {
        let mut outstanding = 0;
        let mut left = count;
        while left > 0 || outstanding > 0 {
            if left == 0 || outstanding == TURNS {
                let done = sock::wait_completion(self.fd.as_fd(), None)?;
                let calls = done.map_or(0, |done| done.last.wrapping_sub(done.first) + 1);
                outstanding -= calls.min(outstanding);
                continue;
            }
            match sock::send_zerocopy(self.fd.as_fd(), bytes) {
                Ok(sent) => whole(sent, bytes)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            outstanding += 1;
            left -= 1;
        }
        Ok(())
    }

    /// Takes one datagram: its length, and its sender. None: there was none in time.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        loop {
            match recvfrom(&self.fd, &mut *buf, RecvFlags::empty()) {
                Ok((_, len, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let from = from.ok_or_else(|| io::Error::other("a datagram has no sender"))?;
                    return Ok(Some((len, from)));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn whole(sent: usize, bytes: &[u8]) -> io::Result<()> {
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{sent} bytes of a datagram of {} were sent",
            bytes.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_many_and_none() {
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let socket = || Socket::bind(Carrier::Udp, here, Duration::from_millis(20)).unwrap();
        let (a, b) = (socket(), socket());
        let addr = |s: &Socket| SocketAddr::new(here.ip(), s.port().unwrap());
        a.connect(addr(&b)).unwrap();
        let mut buf = [0; 100];
        assert!(b.recv(&mut buf).unwrap().is_none());
        a.send(&[7; 3]).unwrap();
        assert_eq!(b.recv(&mut buf).unwrap(), Some((3, addr(&a))));
        b.send_to(&[8; 2], addr(&a)).unwrap();
        assert_eq!(a.recv(&mut buf).unwrap(), Some((2, addr(&b))));
        let many = 2 * BATCH + 3;
        a.send_many(&[9; 5], many).unwrap();
        for _ in 0..many {
            assert_eq!(b.recv(&mut buf).unwrap().unwrap().0, 5);
        }
        assert!(b.recv(&mut buf).unwrap().is_none());
    }
}
