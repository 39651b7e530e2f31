// SPDX-License-Identifier: GPL-2.0
//! Receives that lend pages, with faults: to an area, and into a pipe.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use zrs_sys::Area;

use super::calls::Calls;
use super::errnos;
use super::pair::Pair;
use crate::support::raw;
use crate::support::wild;

/// More than 16 KiB, with a last page that is not full; and a small message.
const SIZES: [(&str, usize); 2] = [("70,000", 70_000), ("100", 100)];

/// The room of a pipe.
const PIPE: usize = 64 << 10;

fn area(pair: &Pair) -> Result<Area, String> {
    Area::reserve(pair.ends[1].as_fd(), 128 << 10).map_err(|e| format!("area: {e}"))
}

/// The bytes read from the pipe.
fn empty(pipe: &(OwnedFd, OwnedFd), n: usize) -> Result<Vec<u8>, String> {
    let from = pipe.0.try_clone().map_err(|e| e.to_string())?;
    let mut bytes = vec![0; n];
    File::from(from)
        .read_exact(&mut bytes)
        .map_err(|e| format!("pipe: {e}"))?;
    Ok(bytes)
}

impl Calls<'_> {
    /// Mapped receives, and splice() from a socket.
    pub fn lending(&mut self) {
        self.on_pair(
            "mmap() of an area",
            errnos::MMAP,
            |_| Ok(()),
            |pair| Area::reserve(pair.ends[1].as_fd(), 128 << 10).map_err(Into::into),
            |_, _| Ok(()),
        );
        for (name, size) in SIZES {
            let kept = RefCell::new(None);
            self.on_pair(
                &format!("ioctl(ZRS_IOC_RECV_MAP) of {name} bytes"),
                errnos::RECV,
                |pair| {
                    *kept.borrow_mut() = Some(area(pair)?);
                    pair.arrive(size)
                },
                |pair| {
                    let mut kept = kept.borrow_mut();
                    let area = kept.as_mut().expect("made before");
                    area.recv(pair.ends[1].as_fd(), 0, size, 0)
                        .map_err(Into::into)
                },
                |pair, result| {
                    let area = kept.take().expect("made before");
                    if let Ok(got) = result {
                        pair.lanes[0].take(&area.bytes(got.range).to_vec())?;
                    }
                    drop(area);
                    pair.drain(1)
                },
            );
            let pipe = match wild::pipe() {
                Ok(pipe) => pipe,
                Err(e) => return self.checks.fail("pipe", &e.to_string()),
            };
            self.on_pair(
                &format!("splice() from a socket of {name} bytes"),
                // Where pages are lent nothing needs memory.
                if size > PIPE {
                    errnos::NONE
                } else {
                    errnos::RECV
                },
                |pair| pair.arrive(size),
                |pair| wild::splice(&pair.ends[1], &pipe.1, size.min(PIPE)),
                |pair, result: raw::Result<usize>| {
                    let bytes = empty(&pipe, result.unwrap_or(0))?;
                    pair.lanes[0].take(&bytes)?;
                    pair.drain(1)
                },
            );
        }
    }
}
