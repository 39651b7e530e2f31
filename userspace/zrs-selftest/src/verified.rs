// SPDX-License-Identifier: GPL-2.0
//! Streams that the server verifies: what it says of each when it has all of it.

use std::os::fd::OwnedFd;

use crate::checks::Checks;
use crate::pattern::Verifier;
use crate::raw::{self, Result};

/// The server's word: how many bytes came, and at which one the first wrong one was.
pub fn answer(conn: &OwnedFd, seen: &Verifier) -> Result<()> {
    let words = [seen.pos, seen.wrong.unwrap_or(u64::MAX)];
    let bytes: Vec<u8> = words.iter().flat_map(|n| n.to_le_bytes()).collect();
    raw::send_all(conn, &bytes)?;
    raw::shutdown(conn, libc::SHUT_WR)
}

/// Ends the stream after `sent` bytes: the server has all of them, and they are right.
pub fn end(conn: &OwnedFd, sent: u64, checks: &mut Checks) -> Option<()> {
    checks.need("shutdown", raw::shutdown(conn, libc::SHUT_WR))?;
    let mut words = [[0; 8]; 2];
    checks.need(
        "the server's answer",
        raw::recv_all(conn, words.as_flattened_mut()),
    )?;
    checks.eq(
        "what arrived, and the first wrong byte",
        words.map(u64::from_le_bytes),
        [sent, u64::MAX],
    );
    Some(())
}
