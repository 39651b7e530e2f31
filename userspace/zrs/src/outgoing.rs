// SPDX-License-Identifier: GPL-2.0
//! Sending buffers that come back when the device is done with them.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::socket::Socket;
use crate::PageBuf;

/// A buffer on its way to the peer from where it lies. Made by
/// [`Stream::outgoing`](crate::Stream::outgoing).
///
/// It owns the pages while the device reads them, so that they cannot be overwritten before they
/// are sent; [`Outgoing::wait`] gives them back. If it is dropped instead they are unmapped, and
/// their contents are sent all the same: the kernel keeps them for as long as that takes.
#[derive(Debug)]
#[must_use = "nothing is sent before send() is called"]
pub struct Outgoing {
    socket: Arc<Socket>,
    pages: PageBuf,
    /// Bytes to send, and the number already sent.
    len: usize,
    sent: usize,
    /// The calls that sent them.
    calls: Vec<u64>,
}

impl Outgoing {
    pub(crate) fn new(socket: Arc<Socket>, pages: PageBuf, len: usize) -> Self {
        assert!(
            len <= pages.len(),
            "{len} bytes of a buffer of {}",
            pages.len()
        );
        Self {
            socket,
            pages,
            len,
            sent: 0,
            calls: Vec::new(),
        }
    }

    /// Bytes that have not been sent yet.
    pub fn left(&self) -> usize {
        self.len - self.sent
    }

    /// Sends as much of the rest as one call takes, and returns the number of bytes; 0 when nothing
    /// is left. Errors as [`Stream::send_zero_copy`](crate::Stream::send_zero_copy): they change
    /// nothing.
    pub fn send(&mut self) -> io::Result<usize> {
        if self.left() == 0 {
            return Ok(0);
        }
        let rest = IoSlice::new(&self.pages[self.sent..self.len]);
        let (sent, call) = self.socket.calls().send(self.socket.as_fd(), &[rest])?;
        self.sent += sent;
        self.calls.extend(call);
        Ok(sent)
    }

    /// Sends all that is left. After an error it can be called again.
    pub fn send_all(&mut self) -> io::Result<()> {
        while self.left() > 0 {
            match self.send() {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether the device is done with all that has been sent. Does not wait.
    pub fn is_complete(&self) -> io::Result<bool> {
        for &call in &self.calls {
            if !self.socket.calls().is_complete(self.socket.as_fd(), call)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until the device is done with all that has been sent, and gives the buffer back.
    ///
    /// Sent without [`Stream::set_zero_copy`](crate::Stream::set_zero_copy), it is done already.
    pub fn wait(self) -> io::Result<PageBuf> {
        for &call in &self.calls {
            self.socket.calls().wait(self.socket.as_fd(), call)?;
        }
        Ok(self.pages)
    }
}

#[cfg(test)]
mod tests;
