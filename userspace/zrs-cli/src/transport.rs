// SPDX-License-Identifier: GPL-2.0
//! The transports behind one face, for side-by-side measurements.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, ToSocketAddrs};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clap::ValueEnum;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    recv, send, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use zrs_peers::{RListener, RStream};

use crate::Result;

/// The transport of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// ZRS, and never TCP in its place.
    Zrs,
    /// The kernel's TCP.
    Tcp,
    /// rsockets of librdmacm.
    Rsockets,
    /// The kernel's SMC, with its fallback to TCP.
    Smc,
}

/// A connected stream.
pub enum Conn {
    Zrs(zrs::Stream),
    /// SMC's, too: its descriptors take the same calls.
    Tcp(TcpStream),
    Rsockets(RStream),
}

/// A listening socket.
pub enum Listener {
    Zrs(zrs::Listener),
    Tcp(TcpListener),
    Rsockets(RListener),
}

impl Transport {
    /// Connects to HOST:PORT.
    pub fn connect(self, addr: &str) -> Result<Conn> {
        let addr = resolve(addr)?;
        match self {
            Self::Zrs => {
                return zrs::Stream::connect_without_tcp(addr)
                    .and_then(by_zrs)
                    .map_err(|e| e.to_string())
            }
            Self::Tcp => TcpStream::connect(addr).map(Conn::Tcp),
            Self::Rsockets => v4(addr).and_then(RStream::connect).map(Conn::Rsockets),
            Self::Smc => smc_connect(addr).map(Conn::Tcp),
        }
        .map_err(|e| {
            let hint = match e.kind() {
                io::ErrorKind::ConnectionRefused => "; is a receiver listening there?",
                _ => "",
            };
            format!("cannot connect to {addr}: {}{hint}", zrs::reason(&e))
        })
    }

    /// Listens on HOST:PORT.
    pub fn listen(self, addr: &str) -> Result<Listener> {
        let addr = resolve(addr)?;
        match self {
            Self::Zrs => {
                return zrs::Listener::bind_without_tcp(addr)
                    .map(Listener::Zrs)
                    .map_err(|e| e.to_string())
            }
            Self::Tcp => TcpListener::bind(addr).map(Listener::Tcp),
            Self::Rsockets => v4(addr).and_then(RListener::bind).map(Listener::Rsockets),
            Self::Smc => smc_listen(addr).map(Listener::Tcp),
        }
        .map_err(|e| format!("cannot listen on {addr}: {}", zrs::reason(&e)))
    }
}

/// The stream, which ZRS has to carry: what is measured or sent by TCP must not pass for ZRS.
fn by_zrs(stream: zrs::Stream) -> io::Result<Conn> {
    match stream.info() {
        Ok(info) if !info.tcp => Ok(Conn::Zrs(stream)),
        _ => Err(io::Error::other("the connection is not carried by ZRS")),
    }
}

/// The address that `addr` means: of IPv4 if it has one.
fn resolve(addr: &str) -> Result<SocketAddr> {
    let found = addr.to_socket_addrs().map_err(|e| {
        format!(
            "{addr} is not an address: {}; give HOST:PORT",
            zrs::reason(&e)
        )
    })?;
    let first = found.min_by_key(SocketAddr::is_ipv6);
    first.ok_or_else(|| format!("cannot use {addr}: it has no address"))
}

/// AF_SMC, which rustix has no name for.
const AF_SMC: AddressFamily = AddressFamily::from_raw(43);
/// The backlog of std's listeners.
const BACKLOG: i32 = 128;

/// An SMC socket that can have `addr`, or connect to it.
fn smc_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    // SMCPROTO_SMC and SMCPROTO_SMC6.
    let protocol = NonZeroU32::new(addr.is_ipv6().into()).map(Protocol::from_raw);
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    rustix::net::socket_with(AF_SMC, kind, flags, protocol).map_err(|e| match e {
        Errno::AFNOSUPPORT => io::Error::new(io::ErrorKind::Unsupported, "the kernel has no SMC"),
        other => other.into(),
    })
}

fn smc_connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = smc_socket(addr)?;
    rustix::net::connect(&socket, &addr)?;
    Ok(socket.into())
}

fn smc_listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = smc_socket(addr)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// rsockets are used with IPv4 alone.
fn v4(addr: SocketAddr) -> io::Result<SocketAddrV4> {
    match addr {
        SocketAddr::V4(addr) => Ok(addr),
        SocketAddr::V6(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "rsockets are used with IPv4 only",
        )),
    }
}

impl Listener {
    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Zrs(l) => l.local_addr(),
            Self::Tcp(l) => l.local_addr(),
            Self::Rsockets(l) => l.local_addr().map(Into::into),
        }
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<Conn> {
        match self {
            Self::Zrs(l) => l.accept().and_then(|(s, _)| by_zrs(s)),
            Self::Tcp(l) => l.accept().map(|(s, _)| Conn::Tcp(s)),
            Self::Rsockets(l) => l.accept().map(Conn::Rsockets),
        }
    }
}

impl Conn {
    /// Ends our direction: the peer reads what was sent, then the end.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Zrs(s) => s.shutdown(Shutdown::Write),
            Self::Tcp(s) => s.shutdown(Shutdown::Write),
            Self::Rsockets(s) => s.shutdown(Shutdown::Write),
        }
    }

    /// Counters of the socket, where there are any.
    pub fn info(&self) -> io::Result<Option<zrs::Info>> {
        match self {
            Self::Zrs(s) => s.info().map(Some),
            Self::Tcp(_) | Self::Rsockets(_) => Ok(None),
        }
    }

    /// Reads what has arrived; WouldBlock if that is nothing.
    pub fn recv_now(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Zrs(s) => Ok(recv(s, buf, RecvFlags::DONTWAIT)?.0),
            Self::Tcp(s) => Ok(recv(s, buf, RecvFlags::DONTWAIT)?.0),
            Self::Rsockets(s) => s.recv_now(buf),
        }
    }

    /// Sends all of `buf` by calls that do not block; polls while there is no room.
    pub fn send_polling(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.send_now(buf) {
                Ok(sent) => buf = &buf[sent..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_room()?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends what there is room for; WouldBlock if that is nothing.
    fn send_now(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match self {
            Self::Zrs(s) => Ok(send(s, buf, flags)?),
            Self::Tcp(s) => Ok(send(s, buf, flags)?),
            Self::Rsockets(s) => s.send_now(buf),
        }
    }

    /// Waits until there is room to send.
    fn wait_room(&self) -> io::Result<()> {
        let fd = match self {
            Self::Zrs(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
            Self::Rsockets(s) => return s.wait_room(),
        };
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
        Ok(())
    }

    /// The descriptor to poll for received data; None for rsockets, whose descriptors are not the kernel's.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Zrs(s) => Some(s.as_fd()),
            Self::Tcp(s) => Some(s.as_fd()),
            Self::Rsockets(_) => None,
        }
    }

    /// Sends no waiting for more: for request and answer.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_nodelay(true),
            Self::Zrs(_) | Self::Rsockets(_) => Ok(()),
        }
    }
}

/// One thread may read while another one writes.
impl Read for &Conn {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match *self {
            Conn::Zrs(s) => (&mut &*s).read(buf),
            Conn::Tcp(s) => (&mut &*s).read(buf),
            Conn::Rsockets(s) => (&mut &*s).read(buf),
        }
    }
}

impl Write for &Conn {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match *self {
            Conn::Zrs(s) => (&mut &*s).write(buf),
            Conn::Tcp(s) => (&mut &*s).write(buf),
            Conn::Rsockets(s) => (&mut &*s).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Conn {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(buf)
    }
}

impl Write for Conn {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
