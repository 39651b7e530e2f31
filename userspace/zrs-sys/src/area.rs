// SPDX-License-Identifier: GPL-2.0
//! Mapped receives: addresses at which the kernel maps received data.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::abi::*;
use crate::map::Map;
use crate::View;

/// The smallest possible page size: where it is larger, giving back less is refused.
const PAGE: usize = 4096;

/// Addresses reserved for data that one socket receives.
#[derive(Debug)]
pub struct Area(Map);

/// Data delivered by a receive, from a stream or a datagram socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where in the area; empty at the end of the stream, and for an empty datagram.
    pub range: Range<usize>,
    /// Bytes of it that the CPU has copied.
    pub copied: usize,
}

impl Area {
    /// Reserves `len` bytes, a multiple of the page size, for socket `fd`. Until the area is
    /// dropped the socket lives.
    pub fn reserve(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Map::shared_read(fd, ZRS_AREA_OFFSET, len).map(Self)
    }

    /// Bytes that are reserved.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Receives at most `max` bytes of a stream, or one datagram, from socket `fd` to `at`
    /// (ZRS_IOC_RECV_MAP; `flags` are ZRS_RECV_MAP_*). The pages that begin in `at .. at + max` are
    /// given back first. Errors: those of recv(); EFAULT if the area is another socket's, or `at` is
    /// not in it; EMSGSIZE if a datagram is longer than the room.
    pub fn recv(
        &mut self,
        fd: BorrowedFd<'_>,
        at: usize,
        max: usize,
        flags: u32,
    ) -> io::Result<Received> {
        let base = self.0.base().as_ptr() as usize;
        let room = self.len().checked_sub(at).filter(|room| *room > 0);
        let room = room.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let mut call = zrs_ioc_recv_map {
            addr: (base + at) as u64,
            len: max.min(room) as u64,
            flags,
            ..Default::default()
        };
        // SAFETY: the request reads and writes one `zrs_ioc_recv_map`, and changes pages of this
        // area, to which there are no references: it is borrowed mutably.
        let r = unsafe { libc::ioctl(fd.as_raw_fd(), ZRS_IOC_RECV_MAP as _, &raw mut call) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        let start = call.addr as usize - base;
        Ok(Received {
            range: start..start + r as usize,
            copied: call.copied as usize,
        })
    }

    /// Bytes that were received and not given back since. Where there are none, reading the view is
    /// SIGBUS.
    ///
    /// # Panics
    ///
    /// If the range is not inside of the area.
    pub fn bytes(&self, range: Range<usize>) -> View<'_> {
        assert!(range.start <= range.end && range.end <= self.len());
        // SAFETY: inside of the mapping. `recv` and `give_back`, which change it, borrow mutably.
        unsafe { View::new(self.0.base().add(range.start), range.len()) }
    }

    /// Gives back the pages that begin in `range`.
    ///
    /// # Panics
    ///
    /// If the range is not inside of the area.
    pub fn give_back(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len());
        let first = range.start.next_multiple_of(PAGE);
        let end = range.end.next_multiple_of(PAGE).min(self.len());
        if first < end {
            // SAFETY: whole pages of our mapping, which is only read; there are no references into
            // it, as it is borrowed mutably. Cannot fail: it is an ordinary mapping.
            unsafe {
                let at = self.0.base().as_ptr().add(first);
                libc::madvise(at.cast(), end - first, libc::MADV_DONTNEED)
            };
        }
    }
}
