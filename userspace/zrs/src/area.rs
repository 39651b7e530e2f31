// SPDX-License-Identifier: GPL-2.0
//! Mapped receives: bytes at addresses of the program's choice, in the pool's own pages.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use zrs_sys::abi::ZRS_RECV_MAP_SHIFT;
use zrs_sys::{Received, View};

use crate::error;
use crate::socket::Socket;

/// Addresses reserved for data that a stream receives; made by
/// [`Stream::area`](crate::Stream::area).
///
/// More than 16 KiB are not copied except for the partial pages at both ends: the pages that the
/// device wrote into are mapped here until they are given back. Data in an area can be written to
/// files by `O_DIRECT` and sent on without a copy. A program that keeps more than half of its
/// window gets copies.
#[derive(Debug)]
pub struct Area {
    area: zrs_sys::Area,
    socket: Arc<Socket>,
}

/// Bytes of the stream in an [`Area`]; dropping gives their pages back.
#[derive(Debug)]
pub struct Mapped<'a> {
    area: &'a mut Area,
    received: Received,
}

impl Mapped<'_> {
    /// Bytes that the CPU has copied.
    pub fn copied(&self) -> usize {
        self.received.copied
    }

    /// The bytes: memory that a hostile peer may still write.
    pub fn view(&self) -> View<'_> {
        self.area.bytes(self.received.range.clone())
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// Bytes; at least one.
    pub fn len(&self) -> usize {
        self.received.range.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.received.range.is_empty()
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.area.give_back(0..self.received.range.end);
    }
}

impl Area {
    pub(crate) fn reserve(socket: Arc<Socket>, len: usize) -> io::Result<Self> {
        let area = zrs_sys::Area::reserve(socket.as_fd(), len).map_err(error::area)?;
        socket.shut_down_at_end();
        Ok(Self { area, socket })
    }

    /// Bytes that are reserved.
    pub fn len(&self) -> usize {
        self.area.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// The arrived data, at most `max` bytes and at most the area; waits for the first byte. None:
    /// the end
    /// of the stream. Errors: as of recv().
    pub fn recv(&mut self, max: usize) -> io::Result<Option<Mapped<'_>>> {
        let received = self
            .area
            .recv(self.socket.as_fd(), 0, max, ZRS_RECV_MAP_SHIFT)?;
        Ok((!received.range.is_empty()).then_some(Mapped {
            area: self,
            received,
        }))
    }

    /// The arrived data, at most `max` bytes, to exactly `at`; an empty range at the end of the
    /// stream.
    /// The pages that begin in `at .. at + max` are given back first. Bytes whose place in their
    /// page is another than `at`'s are copied. Errors: as of recv(), and EFAULT if `at` is outside.
    pub fn recv_at(&mut self, at: usize, max: usize) -> io::Result<Received> {
        self.area.recv(self.socket.as_fd(), at, max, 0)
    }

    /// The bytes that [`Area::recv_at`] has delivered and that were not given back. Reading other
    /// addresses is SIGBUS.
    ///
    /// # Panics
    ///
    /// If the range is not inside of the area.
    pub fn bytes(&self, range: Range<usize>) -> View<'_> {
        self.area.bytes(range)
    }

    /// Gives back the pages that begin in `range`.
    ///
    /// # Panics
    ///
    /// If the range is not inside of the area.
    pub fn give_back(&mut self, range: Range<usize>) {
        self.area.give_back(range);
    }
}
