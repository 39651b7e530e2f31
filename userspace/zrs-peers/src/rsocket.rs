// SPDX-License-Identifier: GPL-2.0
//! Blocking rsockets over IPv4. Their descriptors are librdmacm's own numbers: nothing but its
//! functions may be called on them.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4};
use std::ptr;

use libc::{c_int, sockaddr, sockaddr_in, socklen_t};

use crate::api::{api, Api};

/// An rsocket, closed when dropped.
struct RSocket {
    fd: c_int,
    api: &'static Api,
}

impl RSocket {
    fn new() -> io::Result<Self> {
        let api = api()?;
        // SAFETY: no pointers.
        let fd = check(unsafe { (api.rsocket)(libc::AF_INET, libc::SOCK_STREAM, 0) } as isize)?;
        Ok(Self {
            fd: fd as c_int,
            api,
        })
    }
}

impl Drop for RSocket {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours, and used no more.
        unsafe { (self.api.rclose)(self.fd) };
    }
}

fn check(r: isize) -> io::Result<usize> {
    usize::try_from(r).map_err(|_| io::Error::last_os_error())
}

fn sockaddr_of(addr: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(addr.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

/// The length of a sockaddr_in.
const ADDR_LEN: socklen_t = size_of::<sockaddr_in>() as socklen_t;

/// A listening rsocket.
pub struct RListener(RSocket);

impl RListener {
    /// Listens on `addr`.
    pub fn bind(addr: SocketAddrV4) -> io::Result<Self> {
        let socket = RSocket::new()?;
        let addr = sockaddr_of(addr);
        // SAFETY: the address lives across the call and is of the length given.
        let r = unsafe {
            (socket.api.rbind)(socket.fd, (&raw const addr).cast::<sockaddr>(), ADDR_LEN)
        };
        check(r as isize)?;
        // SAFETY: no pointers.
        check(unsafe { (socket.api.rlisten)(socket.fd, 16) } as isize)?;
        Ok(Self(socket))
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddrV4> {
        let mut addr = sockaddr_of(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let mut len = ADDR_LEN;
        // SAFETY: the address has room for the length given; both live across the call.
        let r = unsafe {
            (self.0.api.rgetsockname)(self.0.fd, (&raw mut addr).cast::<sockaddr>(), &raw mut len)
        };
        check(r as isize)?;
        let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
        Ok(SocketAddrV4::new(ip, u16::from_be(addr.sin_port)))
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<RStream> {
        let api = self.0.api;
        // SAFETY: null pointers mean that the peer's address is not asked for.
        let fd = unsafe { (api.raccept)(self.0.fd, ptr::null_mut(), ptr::null_mut()) };
        let fd = check(fd as isize)? as c_int;
        Ok(RStream(RSocket { fd, api }))
    }
}

/// A connected rsocket.
pub struct RStream(RSocket);

impl RStream {
    /// Connects to `addr`. Blocks until then.
    pub fn connect(addr: SocketAddrV4) -> io::Result<Self> {
        let socket = RSocket::new()?;
        let addr = sockaddr_of(addr);
        // SAFETY: the address lives across the call and is of the length given.
        let r = unsafe {
            (socket.api.rconnect)(socket.fd, (&raw const addr).cast::<sockaddr>(), ADDR_LEN)
        };
        check(r as isize)?;
        Ok(Self(socket))
    }

    /// Ends a direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        // SAFETY: no pointers.
        check(unsafe { (self.0.api.rshutdown)(self.0.fd, how) } as isize)?;
        Ok(())
    }
}

impl RStream {
    fn recv(&self, buf: &mut [u8], flags: c_int) -> io::Result<usize> {
        // SAFETY: the buffer has room for its length.
        check(unsafe { (self.0.api.rrecv)(self.0.fd, buf.as_mut_ptr().cast(), buf.len(), flags) })
    }

    /// Reads the data that has arrived; WouldBlock if there is none.
    pub fn recv_now(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf, libc::MSG_DONTWAIT)
    }

    fn send(&self, buf: &[u8], flags: c_int) -> io::Result<usize> {
        // SAFETY: the buffer is of its length; rsend copies it.
        check(unsafe { (self.0.api.rsend)(self.0.fd, buf.as_ptr().cast(), buf.len(), flags) })
    }

    /// Sends as much as there is room for; WouldBlock if there is none.
    pub fn send_now(&self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf, libc::MSG_DONTWAIT)
    }

    /// Waits until there is room to send.
    pub fn wait_room(&self) -> io::Result<()> {
        let mut poll = libc::pollfd {
            fd: self.0.fd,
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one entry, which lives across the call.
        check(unsafe { (self.0.api.rpoll)(&raw mut poll, 1, -1) } as isize)?;
        Ok(())
    }
}

/// One thread may read while another one writes.
impl Read for &RStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv(buf, 0)
    }
}

impl Write for &RStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.send(buf, 0)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for RStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(buf)
    }
}

impl Write for RStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_network_order() {
        let addr = sockaddr_of("10.0.0.2:7000".parse().unwrap());
        assert_eq!(addr.sin_addr.s_addr.to_ne_bytes(), [10, 0, 0, 2]);
        assert_eq!(addr.sin_port.to_ne_bytes(), [0x1b, 0x58]);
    }

    #[test]
    fn a_missing_library_is_said() {
        // Where librdmacm is installed this is a distinct error, without RDMA hardware.
        if let Err(e) = RListener::bind("127.0.0.1:0".parse().unwrap()) {
            assert!(!e.to_string().is_empty());
        }
    }
}
