// SPDX-License-Identifier: GPL-2.0
//! Pages that are in a pipe when the program has given them back: they are not written to before
//! they are out of it, neither by the peer nor by another connection.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use libc::{MADV_DONTNEED, MAP_SHARED, PROT_READ};
use zrs_sys::abi::{zrs_ioc_recv_map, ZRS_AREA_OFFSET, ZRS_IOC_RECV_MAP};

use super::{Args, Conn, CHUNK};
use crate::support::checks::Checks;
use crate::support::pattern::Verifier;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild::{self, Area};

/// A receive to `off` in the area. Returns how many bytes came.
pub fn receive(conn: &OwnedFd, area: &Area, off: usize, len: usize) -> Result<usize> {
    let mut call = raw::bytes_of(&zrs_ioc_recv_map {
        addr: area.addr(off),
        len: len as u64,
        ..Default::default()
    });
    raw::ioctl(conn, ZRS_IOC_RECV_MAP, &mut call)?;
    let words: Vec<u64> = call
        .chunks_exact(8)
        .map(|w| u64::from_ne_bytes(w.try_into().expect("8 bytes")))
        .collect();
    if words[0] != area.addr(off) {
        return Err(Errno(libc::EBADMSG));
    }
    Ok(words[1] as usize)
}

/// All of `len` bytes to the beginning of the area.
fn fill(conn: &OwnedFd, area: &Area, len: usize) -> Result<()> {
    let mut at = 0;
    while at < len {
        match receive(conn, area, at, len - at)? {
            0 => return Err(Errno(libc::EPIPE)),
            n => at += n,
        }
    }
    Ok(())
}

/// The first chunk goes into a pipe, and out of the program. The peer, which has no room then, gets
/// another window, and all of the rest comes. Only then is the pipe emptied.
pub fn in_pipe(_: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let map = Area::map(
        CHUNK,
        PROT_READ,
        MAP_SHARED,
        Some(&conn.fd),
        ZRS_AREA_OFFSET,
    );
    let area = checks.need("an area", map)?;
    checks.need("receive", fill(&conn.fd, &area, CHUNK))?;
    let (from, to) = checks.need("a pipe", wild::pipe())?;
    let n = checks.need("vmsplice", wild::vmsplice(&to, &area, 0, CHUNK))?;
    checks.eq("all of it is in the pipe", n, CHUNK);
    checks.need("give back", area.advise(0, CHUNK, MADV_DONTNEED))?;

    let mut rest = Verifier::new(conn.seen.pattern());
    rest.pos = CHUNK as u64;
    let mut bytes = vec![0; CHUNK];
    loop {
        match checks.need("receive", raw::recv(&conn.fd, &mut bytes, 0))? {
            0 => break,
            n => checks.need("verify", rest.take(&bytes[..n]))?,
        }
    }
    let piped = File::from(from).read_exact(&mut bytes);
    checks.need("read the pipe", piped.map_err(Errno::from))?;
    checks.need("verify", conn.take(&bytes))?;
    conn.seen.wrong = conn.seen.wrong.or(rest.wrong);
    conn.seen.pos = rest.pos;
    Some(())
}

/// The first chunk stays mapped while small messages are received: they do not wait for it.
pub fn before_small(_: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut area = super::area(conn, CHUNK, checks)?;
    let mut at = 0;
    while at < CHUNK {
        let got = area.recv_at(at, CHUNK - at).map_err(Errno::from);
        at = checks.need("receive", got)?.range.end;
    }
    let mut rest = Verifier::new(conn.seen.pattern());
    rest.pos = CHUNK as u64;
    let mut bytes = vec![0; 700];
    loop {
        match checks.need("receive", raw::recv(&conn.fd, &mut bytes, 0))? {
            0 => break,
            n => checks.need("verify", rest.take(&bytes[..n]))?,
        }
    }
    checks.need("verify", conn.take(&area.bytes(0..CHUNK).to_vec()))?;
    conn.seen.wrong = conn.seen.wrong.or(rest.wrong);
    conn.seen.pos = rest.pos;
    Some(())
}
