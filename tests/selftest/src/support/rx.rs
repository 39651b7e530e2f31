// SPDX-License-Identifier: GPL-2.0
//! Receiving to the end: by recv(), by the ring, or mapped.

use std::os::fd::OwnedFd;

use zrs::{Area, PageBuf, RxRing, Stream};

use crate::support::raw::{self, Errno, Result};

/// How a stream is received.
pub enum Rx {
    Plain(OwnedFd, PageBuf, usize),
    Ring(RxRing),
    Mapped(Area),
}

/// Bytes of one recv().
const BUFFER: usize = 256 * 1024;

impl Rx {
    /// `align`: recv() buffers begin this many bytes into a page.
    pub fn new(fd: &OwnedFd, ring: bool, align: usize) -> Result<Self> {
        let fd = fd.try_clone()?;
        if ring {
            return Ok(Self::Ring(Stream::from(fd).rx_ring()?));
        }
        Ok(Self::Plain(fd, PageBuf::new(BUFFER + align)?, align))
    }

    /// By mapped receives.
    pub fn mapped(fd: &OwnedFd) -> Result<Self> {
        Ok(Self::Mapped(Stream::from(fd.try_clone()?).area(BUFFER)?))
    }

    /// Gives the next bytes to `take`; false at the end.
    pub fn next(&mut self, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<bool> {
        self.next_upto(BUFFER, take)
    }

    /// As [`Rx::next`]; at most `most` bytes, but by the ring a whole segment.
    pub fn next_upto(
        &mut self,
        most: usize,
        take: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        match self {
            Self::Plain(fd, buf, align) => loop {
                let end = *align + most.min(BUFFER);
                match raw::recv(fd, &mut buf[*align..end], 0) {
                    Ok(0) => return Ok(false),
                    Ok(n) => return take(&buf[*align..*align + n]).map(|()| true),
                    Err(Errno(libc::EAGAIN)) => drop(raw::poll(fd, libc::POLLIN, -1)?),
                    Err(Errno(libc::EINTR)) => {}
                    Err(e) => return Err(e),
                }
            },
            Self::Ring(ring) => match ring.recv()? {
                Some(segment) => take(&segment.to_vec()).map(|()| true),
                None => Ok(false),
            },
            Self::Mapped(area) => match area.recv(most)? {
                Some(bytes) => take(&bytes.to_vec()).map(|()| true),
                None => Ok(false),
            },
        }
    }

    /// Gives everything up to the end to `take`.
    pub fn all(&mut self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while self.next(&mut take)? {}
        Ok(())
    }
}
