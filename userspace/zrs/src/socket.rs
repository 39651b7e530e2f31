// SPDX-License-Identifier: GPL-2.0
//! The socket that a stream, its clones and its receive ring share.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::net::{AddressFamily, Protocol, Shutdown, SocketFlags, SocketType};

use crate::calls::Calls;
use crate::{addr, error};

const PROTOCOL: Protocol = Protocol::from_raw(match NonZeroU32::new(crate::IPPROTO_ZRS) {
    Some(number) => number,
    None => unreachable!(),
});

/// A socket whose mappings, if there are any, would keep it alive beyond close(): it is shut down
/// when the last stream or ring of it goes, though segments may still hold the descriptor.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: Arc<OwnedFd>,
    /// Shut down at the end: a ring was mapped.
    shut: AtomicBool,
    calls: Calls,
}

impl Socket {
    /// A new one that can have `addr`, or connect to it.
    pub(crate) fn new(addr: &SocketAddr) -> io::Result<Self> {
        let family = match addr {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let fd = rustix::net::socket_with(
            family,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            Some(PROTOCOL),
        )
        .map_err(|e| error::socket(e.into()))?;
        Ok(fd.into())
    }

    /// As [`Socket::new`], without TCP beside ZRS, whatever the network namespace's setting is.
    pub(crate) fn without_tcp(addr: &SocketAddr) -> io::Result<Self> {
        let socket = Self::new(addr)?;
        zrs_sys::sock::set_tcp(socket.as_fd(), zrs_sys::abi::ZRS_TCP_NEVER)?;
        Ok(socket)
    }

    pub(crate) fn shared_fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Its sends without a copy.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// A ring was mapped.
    pub(crate) fn shut_down_at_end(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }

    /// The descriptor, for a new owner, which also decides about the shutdown. A duplicate if it
    /// has other users.
    pub(crate) fn into_fd(self: Arc<Self>) -> io::Result<OwnedFd> {
        match Arc::try_unwrap(self) {
            Ok(socket) => {
                socket.shut.store(false, Ordering::Relaxed);
                let fd = socket.fd.clone();
                drop(socket);
                Arc::try_unwrap(fd).or_else(|fd| fd.try_clone())
            }
            Err(shared) => {
                shared.shut.store(false, Ordering::Relaxed);
                shared.fd.try_clone()
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        addr::from_any(rustix::net::getsockname(self)?)
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match rustix::net::getpeername(self)? {
            Some(peer) => addr::from_any(peer),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self, on)?)
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(rustix::net::sockopt::socket_error(self)?
            .err()
            .map(Into::into))
    }

    pub(crate) fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        let how = match how {
            std::net::Shutdown::Read => Shutdown::Read,
            std::net::Shutdown::Write => Shutdown::Write,
            std::net::Shutdown::Both => Shutdown::Both,
        };
        Ok(rustix::net::shutdown(self, how)?)
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd: Arc::new(fd),
            shut: AtomicBool::new(false),
            calls: Calls::default(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.shut.load(Ordering::Relaxed) {
            // ENOTCONN when the connection is gone already.
            let _ = self.shutdown(std::net::Shutdown::Both);
        }
    }
}
