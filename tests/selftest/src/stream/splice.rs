// SPDX-License-Identifier: GPL-2.0
//! sendfile() and splice(): pages of files and of pipes are sent in place, and received data can be
//! spliced into a pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use libc::{MAP_SHARED, POLLOUT, PROT_READ};

use crate::support::args::{End, Side};
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;
use crate::support::wild::{self, Area};

/// Send pages of files and pipes; the server verifies every byte
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Bytes of a file: more than a window has room for. The last call has more than a small message.
pub const FILE: usize = (3 << 20) + 12_345;
/// Where in the file the data begins.
const SKIP: usize = 1_001;
/// The most bytes of one splice(): the room of a pipe.
const PIPE: usize = 64 << 10;

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

pub type Sender = fn(&OwnedFd, &Source) -> Result<()>;

/// Each on a separate connection; the server receives every other one by splice().
const SENDERS: [(&str, bool, Sender); 8] = [
    ("sendfile()", false, send_file),
    ("sendfile(), spliced", false, send_file),
    ("sendfile(), non-blocking", true, send_file),
    ("sendfile(), non-blocking, spliced", true, send_file),
    ("splice() of mapped memory", false, splice_memory),
    ("splice() of mapped memory, spliced", false, splice_memory),
    ("splice() of what was written", false, splice_written),
    (
        "splice() of what was written, spliced",
        true,
        splice_written,
    ),
];

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    for index in 0..SENDERS.len() {
        let conn = checks.need("accept", raw::accept(&listener))?;
        let mut seen = Verifier::new(Pattern::new(args.seed, 0, index as u64));
        let got = if index % 2 == 0 {
            Rx::new(&conn, false, 0).and_then(|mut rx| rx.all(|bytes| seen.take(bytes)))
        } else {
            receive_spliced(&conn, &mut seen)
        };
        checks.need("receive", got)?;
        if raw::is_zrs() && index % 2 == 1 {
            let info = zrs_sys::sock::info(conn.as_fd()).map_err(Errno::from);
            let copied = checks.need("ZRS_INFO", info)?.rx_copied;
            // Data that came in small messages, for lack of room, as on a busy machine. If a splice()
            // copied, it would be all.
            let fine = copied <= FILE as u64 / 2;
            checks.yes(
                "hardly copied to the pipe",
                fine,
                &format!("{copied} bytes"),
            );
        }
        checks.need("answer", verified::answer(&conn, &seen))?;
    }
    Some(())
}

pub fn receive_spliced(conn: &OwnedFd, seen: &mut Verifier) -> Result<()> {
    let (from, to) = wild::pipe()?;
    let (mut from, mut bytes) = (File::from(from), vec![0; PIPE]);
    loop {
        match wild::splice(conn, &to, PIPE)? {
            0 => return Ok(()),
            n => {
                from.read_exact(&mut bytes[..n])?;
                seen.take(&bytes[..n])?;
            }
        }
    }
}

/// A file with the stream behind [`SKIP`].
pub struct Source {
    file: OwnedFd,
    bytes: Vec<u8>,
}

impl Source {
    pub fn new(pattern: Pattern) -> Result<Self> {
        let mut bytes = vec![0; SKIP + FILE];
        pattern.fill(0, &mut bytes[SKIP..]);
        let file = wild::memfd(bytes.len(), false)?;
        File::from(file.try_clone()?).write_all(&bytes)?;
        Ok(Self { file, bytes })
    }
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    for (index, (name, nonblocking, send)) in SENDERS.into_iter().enumerate() {
        let pattern = Pattern::new(args.seed, 0, index as u64);
        let source = checks.need(name, Source::new(pattern))?;
        let conn = checks.need(name, raw::connected(addr))?;
        checks.need(name, raw::set_nonblocking(&conn, nonblocking))?;
        checks.need(name, send(&conn, &source))?;
        checks.need(name, raw::set_nonblocking(&conn, false))?;
        // The pages are the connection's until they are sent.
        drop(source);
        if raw::is_zrs() {
            let info = zrs_sys::sock::info(conn.as_fd()).map_err(Errno::from);
            let copied = checks.need(name, info)?.tx_copied;
            // Without room a call may send a part, and leave less than is worth it.
            let most = if nonblocking { FILE as u64 / 10 } else { 0 };
            let detail = format!("{copied} bytes");
            checks.yes(&format!("{name}: hardly copied"), copied <= most, &detail);
        }
        verified::end(&conn, FILE as u64, checks)?;
        checks.yes(name, true, "");
    }
    Some(())
}

/// Does it again when there is no room.
fn patiently(conn: &OwnedFd, call: impl Fn() -> Result<usize>) -> Result<usize> {
    loop {
        match call() {
            Err(Errno(libc::EAGAIN)) => drop(raw::poll(conn, POLLOUT, -1)?),
            Err(Errno(libc::EINTR)) => {}
            other => return other,
        }
    }
}

pub fn send_file(conn: &OwnedFd, source: &Source) -> Result<()> {
    let (mut at, end) = (SKIP, SKIP + FILE);
    while at < end {
        match patiently(conn, || wild::sendfile(conn, &source.file, at, end - at))? {
            0 => return Err(Errno(libc::EPIPE)),
            n => at += n,
        }
    }
    Ok(())
}

/// All that is in the pipe, `len` bytes.
fn drain(from: &OwnedFd, conn: &OwnedFd, mut len: usize) -> Result<()> {
    while len > 0 {
        match patiently(conn, || wild::splice(from, conn, len))? {
            0 => return Err(Errno(libc::EPIPE)),
            n => len -= n,
        }
    }
    Ok(())
}

pub fn splice_memory(conn: &OwnedFd, source: &Source) -> Result<()> {
    let (from, to) = wild::pipe()?;
    let memory = Area::map(SKIP + FILE, PROT_READ, MAP_SHARED, Some(&source.file), 0)?;
    let mut at = SKIP;
    while at < SKIP + FILE {
        let n = wild::vmsplice(&to, &memory, at, (SKIP + FILE - at).min(PIPE))?;
        drain(&from, conn, n)?;
        at += n;
    }
    Ok(())
}

pub fn splice_written(conn: &OwnedFd, source: &Source) -> Result<()> {
    let (from, to) = wild::pipe()?;
    let mut to = File::from(to);
    for part in source.bytes[SKIP..].chunks(PIPE) {
        to.write_all(part)?;
        drain(&from, conn, part.len())?;
    }
    Ok(())
}
