// SPDX-License-Identifier: GPL-2.0
//! A connected ZRS stream socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use zrs_sys::sock::MOST_SLICES;

use crate::socket::Socket;
use crate::{addr, error, Area, Completion, Info, Outgoing, PageBuf, RxRing};

/// A stream to a peer, used as [`std::net::TcpStream`] is.
///
/// Reading copies once into the caller's buffer; [`Stream::rx_ring`] avoids that. A write of more
/// than [`crate::ZERO_COPY_SEND`] bytes on a blocking stream goes out from the caller's pages, but
/// for its last so many, and returns when the device is done with these pages.
///
/// Dropping the last clone closes the socket; if a ring was made, it is shut down first, both
/// ways, since segments that are still held keep the socket open.
#[derive(Debug)]
pub struct Stream {
    socket: Arc<Socket>,
}

impl Stream {
    /// Connects to the first address of `addr` that answers. Blocks until then.
    ///
    /// Errors: ECONNREFUSED no listener there; ENODEV, ENETUNREACH no RDMA device reaches it;
    /// ETIMEDOUT no answer; EPROTONOSUPPORT the module is not loaded.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::connect_by(addr, Socket::new)
    }

    /// As [`Stream::connect`], but TCP never carries the stream, also where sockets have TCP beside
    /// ZRS by default (`zrs set --net tcp=auto`).
    pub fn connect_without_tcp<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::connect_by(addr, Socket::without_tcp)
    }

    fn connect_by<A: ToSocketAddrs>(
        addr: A,
        new: impl Fn(&SocketAddr) -> io::Result<Socket>,
    ) -> io::Result<Self> {
        addr::each(addr, |addr| {
            let socket = new(&addr)?;
            // A signal handler interrupted us: the connecting goes on, wait for its end.
            match rustix::net::connect(&socket, &addr) {
                Ok(()) => Ok(()),
                Err(Errno::INTR) => wait_connected(&socket, None),
                Err(e) => Err(e.into()),
            }
            .map_err(|e| error::connect(addr, e))?;
            Ok(socket.into())
        })
    }

    /// As [`Stream::connect`], with ETIMEDOUT after `timeout`, which must not be zero.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of zero",
            ));
        }
        let socket = Socket::new(addr)?;
        socket.set_nonblocking(true)?;
        match rustix::net::connect(&socket, addr) {
            Ok(()) => Ok(()),
            Err(Errno::INPROGRESS) => wait_connected(&socket, Some(timeout)),
            Err(e) => Err(e.into()),
        }
        .map_err(|e| error::connect(addr, e))?;
        socket.set_nonblocking(false)?;
        Ok(socket.into())
    }

    /// The address of this side.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The address of the peer. ENOTCONN when the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Ends a direction or both. After `Write` the peer reads the sent data, then the end.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// With `true`, calls that would wait fail with WouldBlock. For all clones.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)
    }

    /// The longest that a read waits; None is for ever, zero is refused. WouldBlock is its end.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_timeout(Timeout::Recv, timeout)
    }

    /// The longest that a write waits, as [`Stream::set_read_timeout`].
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_timeout(Timeout::Send, timeout)
    }

    fn set_timeout(&self, id: Timeout, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some_and(|t| t.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of zero",
            ));
        }
        Ok(sockopt::set_socket_timeout(self, id, timeout)?)
    }

    /// For how long a waiting call polls, using the processor, before it sleeps (SO_BUSY_POLL), a
    /// tenth of a second at most. Zero: as the module's parameter `busy_poll_us` says.
    pub fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        let us = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        zrs_sys::sock::set_busy_poll(self.as_fd(), us)
    }

    /// The timeout of [`Stream::set_read_timeout`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_timeout(self, Timeout::Recv)?)
    }

    /// The timeout of [`Stream::set_write_timeout`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_timeout(self, Timeout::Send)?)
    }

    /// The pending error (SO_ERROR), which is then no longer pending.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Another handle of the same socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.clone(),
        })
    }

    /// Reads without taking: the next read gives the same bytes again.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, buf, RecvFlags::PEEK)?.0)
    }

    /// Allows [`Stream::send_zero_copy`] (SO_ZEROCOPY).
    pub fn set_zero_copy(&self, on: bool) -> io::Result<()> {
        self.socket.calls().enable(self.as_fd(), on)
    }

    /// Sends from the caller's pages and does not wait until the device is done with them
    /// (MSG_ZEROCOPY): a [`Completion`] tells. Until then the bytes must stay as they are, else
    /// what is written over them may be sent; [`Stream::outgoing`] sees to that. Without
    /// [`Stream::set_zero_copy`] as a write.
    ///
    /// Errors: those of a write, and ENOBUFS (`RLIMIT_MEMLOCK`, or too many completions
    /// outstanding).
    pub fn send_zero_copy(&self, buf: &[u8]) -> io::Result<usize> {
        self.send_zero_copy_vectored(&[IoSlice::new(buf)])
    }

    /// As [`Stream::send_zero_copy`], of several buffers; what is sent of all of them is one call.
    /// Takes no more than 1024 buffers at once.
    pub fn send_zero_copy_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.socket.calls().send(self.as_fd(), most(bufs))?.0)
    }

    /// The next completion of [`Stream::send_zero_copy`], if one has come and no other thread waits
    /// for it. Does not wait.
    pub fn completion(&self) -> io::Result<Option<Completion>> {
        self.socket.calls().completion(self.as_fd())
    }

    /// Waits for the next completion. One must be outstanding; if the connection ends, it comes
    /// too.
    pub fn wait_completion(&self) -> io::Result<Completion> {
        self.socket.calls().wait_completion(self.as_fd())
    }

    /// The first `len` bytes of `pages`, to be sent without a copy; the pages come back when the
    /// device is done with them. Panics if there are fewer.
    ///
    /// The stream, its clones and these together count the numbers of the calls: no other code may
    /// send by MSG_ZEROCOPY on the socket, or read its error queue. Waiting for one takes
    /// completions of others, so use these or [`Stream::completion`] on a stream, not both.
    pub fn outgoing(&self, pages: PageBuf, len: usize) -> Outgoing {
        Outgoing::new(self.socket.clone(), pages, len)
    }

    /// State, counters and window of this socket (ZRS_INFO).
    pub fn info(&self) -> io::Result<Info> {
        Ok(zrs_sys::sock::info(self.as_fd())?.into())
    }

    /// Maps the window that the peer writes into: from then on receive by the ring.
    ///
    /// Errors: ENOBUFS the pool has no window to lease, ENOMEM, ENOTCONN, EBUSY.
    pub fn rx_ring(&self) -> io::Result<RxRing> {
        RxRing::open(self.socket.clone())
    }

    /// Reserves `len` bytes, a multiple of the page size, at which this stream can receive. It is
    /// shut down when its last clone and its last area are gone.
    ///
    /// Errors: ENOMEM, EINVAL.
    pub fn area(&self, len: usize) -> io::Result<Area> {
        Area::reserve(self.socket.clone(), len)
    }
}

/// Waits for the end of a connect that is in progress.
fn wait_connected(socket: &Socket, timeout: Option<Duration>) -> io::Result<()> {
    let deadline = timeout.map(|t| Instant::now() + t);
    if !wait(socket.as_fd(), PollFlags::OUT, deadline)?.is_empty() {
        return socket.take_error()?.map_or(Ok(()), Err);
    }
    Err(Errno::TIMEDOUT.into())
}

/// Polls `fd` until `deadline`; signals do not end it. Empty: the deadline has passed.
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    events: PollFlags,
    deadline: Option<Instant>,
) -> io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        // Too long for a timespec is for ever.
        let left = left.and_then(|l| Timespec::try_from(l).ok());
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(_) => return Ok(fds[0].revents()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// As many as one call takes: more are for the next one, as a short count is.
fn most<'a, 'b>(bufs: &'a [IoSlice<'b>]) -> &'a [IoSlice<'b>] {
    &bufs[..bufs.len().min(MOST_SLICES)]
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, buf, RecvFlags::empty())?.0)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(rustix::io::readv(self, bufs)?)
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, buf, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        // Not writev(), which would raise SIGPIPE.
        let mut none = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(
            self,
            most(bufs),
            &mut none,
            SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&mut &*self).read_vectored(bufs)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        Self {
            socket: Arc::new(socket),
        }
    }
}

/// Of a socket that the caller knows to be a connected ZRS stream socket.
impl From<OwnedFd> for Stream {
    fn from(fd: OwnedFd) -> Self {
        Socket::from(fd).into()
    }
}

/// The descriptor, or a duplicate of it when clones or a ring are still in use. The new owner is
/// to shut the socket down before closing it if there is a ring.
impl TryFrom<Stream> for OwnedFd {
    type Error = io::Error;

    fn try_from(stream: Stream) -> io::Result<Self> {
        stream.socket.into_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
