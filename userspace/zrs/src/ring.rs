// SPDX-License-Identifier: GPL-2.0
//! Receiving by the ring: bytes where the device put them, or where the kernel copied small
//! messages, and bytes that stayed unread for long.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use zrs_sys::{Held, Look, Ring, View};

use crate::socket::Socket;
use crate::{error, stream};

/// The receiving end of a stream, by segments in the stream's order. Made by
/// [`Stream::rx_ring`](crate::Stream::rx_ring).
///
/// Each segment holds room of the window until it is dropped, in any order; a reader that keeps
/// more than half of the window ([`RxRing::window_len`]), more than 32 segments, or small messages
/// of more than 8 KiB in all, may stop its peer. Threads may share the ring: each segment goes to
/// one of them. Plain reads may alternate with the ring, not run at the same time. A forked child
/// must not touch segments: its copy of the mapping is gone.
#[derive(Debug)]
pub struct RxRing {
    ring: Arc<Ring>,
    cursor: Mutex<Cursor>,
    socket: Arc<Socket>,
}

#[derive(Debug)]
struct Cursor {
    /// The next segment.
    next: u64,
    /// Of the next segment, which waits in the kernel: bytes not yet fetched.
    left: Option<usize>,
}

/// Bytes of the stream; dropping gives their room back to the peer.
#[derive(Debug)]
pub struct Segment(Bytes);

#[derive(Debug)]
enum Bytes {
    /// In the window, or in the escape area.
    Mapped(Held),
    /// Fetched by recv(): it had begun with them; or they were small, and the kernel had not copied
    /// them to the ring.
    Copied(Vec<u8>),
}

impl Segment {
    /// Whether the bytes lie where the device put them. If not, they were copied once.
    pub fn is_zero_copy(&self) -> bool {
        matches!(&self.0, Bytes::Mapped(held) if !held.has_escaped())
    }

    /// The bytes: if they are not a copy, memory that a hostile peer may still write.
    pub fn view(&self) -> View<'_> {
        match &self.0 {
            Bytes::Mapped(held) => held.view(),
            Bytes::Copied(bytes) => View::from(&bytes[..]),
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// Bytes; at least one.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.view().is_empty()
    }
}

/// The result of one look at the ring.
enum Found {
    Segment(Segment),
    End,
    Nothing,
}

/// Bytes that one recv() fetches when the ring does not have the number.
const FETCH: usize = 64 * 1024;

impl RxRing {
    pub(crate) fn open(socket: Arc<Socket>) -> io::Result<Self> {
        let ring = Ring::open(socket.shared_fd()).map_err(error::rx_ring)?;
        socket.shut_down_at_end();
        Ok(Self::new(Arc::new(ring), socket))
    }

    /// Of a ring that a test has made; `fd` stands in for the socket.
    #[cfg(feature = "fake")]
    pub fn fake(ring: Arc<Ring>, fd: std::os::fd::OwnedFd) -> Self {
        Self::new(ring, Arc::new(fd.into()))
    }

    fn new(ring: Arc<Ring>, socket: Arc<Socket>) -> Self {
        let cursor = Cursor {
            next: ring.first(),
            left: None,
        };
        Self {
            ring,
            cursor: Mutex::new(cursor),
            socket,
        }
    }

    /// Bytes in the window: the limit of data that the peer has sent and that was not given back.
    pub fn window_len(&self) -> usize {
        self.ring.window_len()
    }

    /// The next segment; waits for it, for ever. None: the end of the stream.
    ///
    /// Errors: ECONNRESET and others as recv(); data that had arrived before is delivered first.
    pub fn recv(&self) -> io::Result<Option<Segment>> {
        self.recv_until(None)
    }

    /// As [`RxRing::recv`], with TimedOut after `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> io::Result<Option<Segment>> {
        self.recv_until(Some(Instant::now() + timeout))
    }

    /// Whether a segment is in the ring, by a look at memory and no system call: for programs that
    /// poll. Neither the end of the stream nor an error makes it true; ask [`RxRing::try_recv`] now
    /// and then.
    pub fn has_segment(&self) -> bool {
        let next = self.lock().next;
        self.ring.head() > next
    }

    /// As [`RxRing::recv`], with WouldBlock instead of waiting.
    pub fn try_recv(&self) -> io::Result<Option<Segment>> {
        let mut cursor = self.lock();
        if let Found::Segment(segment) = self.look(&mut cursor)? {
            return Ok(Some(segment));
        }
        let wanted = PollFlags::IN | PollFlags::RDHUP;
        let ready = stream::wait(self.as_fd(), wanted, Some(Instant::now()))?;
        if ready.is_empty() {
            return Err(Errno::WOULDBLOCK.into());
        }
        // Segments that came before the end are in the ring by now.
        let found = match self.look(&mut cursor)? {
            Found::Nothing => self.ask(&mut cursor)?,
            found => found,
        };
        match found {
            Found::Segment(segment) => Ok(Some(segment)),
            Found::End => Ok(None),
            Found::Nothing => Err(Errno::WOULDBLOCK.into()),
        }
    }

    fn recv_until(&self, deadline: Option<Instant>) -> io::Result<Option<Segment>> {
        // Of the segment that was waited for.
        let mut awaited = None;
        loop {
            let next = {
                let mut cursor = self.lock();
                let found = match self.look(&mut cursor)? {
                    // The end and errors are not in the ring. If another thread has taken what was
                    // waited for, there need be none.
                    Found::Nothing if awaited == Some(cursor.next) => self.ask(&mut cursor)?,
                    found => found,
                };
                match found {
                    Found::Segment(segment) => return Ok(Some(segment)),
                    Found::End => return Ok(None),
                    Found::Nothing => cursor.next,
                }
            };
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return match self.try_recv() {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Errno::TIMEDOUT.into()),
                    result => result,
                };
            }
            // Not under the lock: another thread may take new segments.
            awaited = match self.ring.wait(next + 1, left) {
                Ok(()) => Some(next),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => None,
                    _ => return Err(error::ring_wait(e)),
                },
            };
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cursor> {
        // The cursor is sound at every step, so a panic elsewhere does not matter.
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, cursor: &mut Cursor) -> io::Result<Found> {
        loop {
            let head = self.ring.head();
            if cursor.next >= head {
                return Ok(Found::Nothing);
            }
            // Plain reads took more than the length of the ring: overwritten entries were taken.
            let oldest = head.saturating_sub(self.ring.entries().into());
            if cursor.next < oldest {
                *cursor = Cursor {
                    next: oldest,
                    left: None,
                };
            }
            let taken = Cursor {
                next: cursor.next + 1,
                left: None,
            };
            let bytes = match self.ring.look(cursor.next)? {
                Look::Held(held) => {
                    *cursor = taken;
                    Bytes::Mapped(held)
                }
                Look::Taken => {
                    *cursor = taken;
                    continue;
                }
                Look::Kernel(len) => {
                    let left = cursor.left.unwrap_or(len);
                    let Some(bytes) = self.fetch(left)? else {
                        return Ok(Found::Nothing);
                    };
                    if bytes.is_empty() {
                        return Ok(Found::End);
                    }
                    match left - bytes.len() {
                        0 => *cursor = taken,
                        rest => cursor.left = Some(rest),
                    }
                    Bytes::Copied(bytes)
                }
            };
            return Ok(Found::Segment(Segment(bytes)));
        }
    }

    /// Asks the socket, which knows of the end and of errors; the ring is empty.
    fn ask(&self, cursor: &mut Cursor) -> io::Result<Found> {
        match self.fetch(FETCH)? {
            // Bytes that have come since have a place in the ring, which was taken with them.
            Some(bytes) if !bytes.is_empty() => Ok(Found::Segment(Segment(Bytes::Copied(bytes)))),
            Some(_) => Ok(Found::End),
            None => self.look(cursor),
        }
    }

    /// At most `len` bytes by recv(); None when none are there, an empty buffer at the end.
    fn fetch(&self, len: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; len];
        loop {
            match rustix::net::recv(self, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((got, _)) => {
                    bytes.truncate(got);
                    return Ok(Some(bytes));
                }
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for RxRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
