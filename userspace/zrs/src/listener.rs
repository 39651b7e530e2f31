// SPDX-License-Identifier: GPL-2.0
//! A listening ZRS socket.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::socket::Socket;
use crate::{addr, error, Stream};

/// A socket that accepts streams, used as [`std::net::TcpListener`] is.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// Connections waiting for accept(), at most.
    const BACKLOG: i32 = 128;

    /// Listens on the first address of `addr` that can be bound; port 0 chooses one.
    ///
    /// Errors: EADDRINUSE, EADDRNOTAVAIL, EPROTONOSUPPORT the module is not loaded. `[::]` takes
    /// connections of IPv4 too, unless `net.ipv6.bindv6only` is set.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_by(addr, Socket::new)
    }

    /// As [`Listener::bind`], but clients of TCP are never accepted, also where sockets have TCP
    /// beside ZRS by default (`zrs set --net tcp=auto`).
    pub fn bind_without_tcp<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::bind_by(addr, Socket::without_tcp)
    }

    fn bind_by<A: ToSocketAddrs>(
        addr: A,
        new: impl Fn(&SocketAddr) -> io::Result<Socket>,
    ) -> io::Result<Self> {
        addr::each(addr, |addr| {
            let socket = new(&addr)?;
            rustix::net::bind(&socket, &addr)
                .and_then(|()| rustix::net::listen(&socket, Self::BACKLOG))
                .map_err(|e| error::bind(addr, e.into()))?;
            Ok(Self { socket })
        })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for a connection. The stream is blocking, whatever the listener is.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            match rustix::net::acceptfrom_with(self, SocketFlags::CLOEXEC) {
                Ok((fd, Some(peer))) => return Ok((fd.into(), addr::from_any(peer)?)),
                Ok((fd, None)) => {
                    let stream = Stream::from(fd);
                    let peer = stream.peer_addr()?;
                    return Ok((stream, peer));
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Connections without end, each as [`Listener::accept`] gives it.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// With `true`, accept fails with WouldBlock when no connection waits.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)
    }

    /// The pending error (SO_ERROR), which is then no longer pending.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }
}

/// The iterator of [`Listener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a Listener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<Stream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

/// Of a socket that the caller knows to be a listening ZRS socket.
impl From<OwnedFd> for Listener {
    fn from(fd: OwnedFd) -> Self {
        Self { socket: fd.into() }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
