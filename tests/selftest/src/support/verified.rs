// SPDX-License-Identifier: GPL-2.0
//! Streams that the server verifies: its report on each at the end.

use std::os::fd::OwnedFd;

use crate::support::checks::Checks;
use crate::support::pattern::Verifier;
use crate::support::raw::{self, Result};

/// The server's report: the number of bytes that came, and the position of the first wrong one.
pub fn answer(conn: &OwnedFd, seen: &Verifier) -> Result<()> {
    let words = [seen.pos, seen.wrong.unwrap_or(u64::MAX)];
    let bytes: Vec<u8> = words.iter().flat_map(|n| n.to_le_bytes()).collect();
    raw::send_all(conn, &bytes)?;
    raw::shutdown(conn, libc::SHUT_WR)
}

/// Ends the stream after `sent` bytes: the server has all of them, and they are right.
pub fn end(conn: &OwnedFd, sent: u64, checks: &mut Checks) -> Option<()> {
    let seen = checks.need("the server's answer", ask(conn))?;
    checks.eq(
        "what arrived, and the first wrong byte",
        seen,
        [sent, u64::MAX],
    );
    Some(())
}

/// As [`end`], for many streams, each with the number of bytes sent on it: one result.
pub fn end_all(of: &[(OwnedFd, u64)], checks: &mut Checks) -> Option<()> {
    let seen: Result<Vec<_>> = of.iter().map(|(conn, _)| ask(conn)).collect();
    let seen = checks.need("the server's answers", seen)?;
    let sent: Vec<_> = of.iter().map(|(_, sent)| [*sent, u64::MAX]).collect();
    let name = format!("all that was sent on {} connections, and right", of.len());
    checks.eq(&name, seen, sent);
    Some(())
}

/// Ends the stream; returns the server's report.
pub fn ask(conn: &OwnedFd) -> Result<[u64; 2]> {
    raw::shutdown(conn, libc::SHUT_WR)?;
    let mut words = [[0; 8]; 2];
    raw::recv_all(conn, words.as_flattened_mut())?;
    Ok(words.map(u64::from_le_bytes))
}
