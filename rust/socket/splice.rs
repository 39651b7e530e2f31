// SPDX-License-Identifier: GPL-2.0

//! splice() from a socket: data in the window is moved to the pipe by reference to its pages; all
//! other data is copied.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::recv::{Receive, RxPiece, RxSource, Taken};
use super::Sock;
use crate::kern::errno::ENOTCONN;
use crate::kern::sock::pipe::Pipe;

impl Sock {
    /// Fills the pipe with at most `len` bytes of received data; waits for the first byte. Returns
    /// 0 at the end of the stream. Errors: as of [`Sock::recv`], and EPIPE when the pipe has no
    /// reader. Sleeps.
    pub(super) fn splice(
        self: &Arc<Self>,
        pipe: &mut Pipe<'_>,
        len: usize,
        nonblock: bool,
    ) -> Result<usize> {
        let timeout = self.sk().ok_or(ENOTCONN)?.rcvtimeo(nonblock);
        if self.reap() {
            self.send_pending();
        }
        let mut recv = Receive::new(self, timeout, 1, len);
        while let Some(piece) = recv.next()? {
            let all = piece.len;
            match self.pipe_in(pipe, &piece) {
                Ok((n, mapped)) => {
                    recv.consume(piece, Taken::mapped(n, mapped));
                    if n < all {
                        // The pipe is full.
                        break;
                    }
                }
                Err(e) => {
                    recv.consume(piece, Taken::NOTHING);
                    if recv.got() == 0 {
                        return Err(e);
                    }
                    break;
                }
            }
        }
        Ok(recv.got())
    }

    /// Puts the beginning of `piece` into the pipe. Returns the number of bytes, and how many of
    /// them are in mapped pages: all or none. Sleeps.
    fn pipe_in(
        self: &Arc<Self>,
        pipe: &mut Pipe<'_>,
        piece: &RxPiece<'_>,
    ) -> Result<(usize, usize)> {
        if let RxSource::Window(window, off) = &piece.source {
            if self.mappable(window) >= piece.len && self.watch_mapped().is_ok() {
                let n = window.map_to_pipe(*off as usize + piece.from, piece.len, pipe)?;
                return Ok((n, n));
            }
        }
        Ok((pipe.copy(&piece.payload()?)?, 0))
    }
}
