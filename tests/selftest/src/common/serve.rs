// SPDX-License-Identifier: GPL-2.0
//! The other side for `errno`, `poll`, `hold` and `hostile`: the first byte of a connection
//! selects its action.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::thread;

use crate::support::checks::{say, Checks};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Serve the commands of errno, poll, hold and hostile, until killed
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "ADDR:PORT")]
    addr: SocketAddrV4,
}

/// Read to the end, then close.
pub const DISCARD: u8 = b'D';
/// Close at once.
pub const CLOSE: u8 = b'C';
/// Shut our direction down at once, then read to the end.
pub const SHUT: u8 = b'S';
/// Send [`DATA_LEN`] bytes, shut our direction down, then read to the end.
pub const DATA: u8 = b'R';
/// Send [`LEAVE_LEN`] bytes, then close.
pub const LEAVE: u8 = b'L';
/// Echo.
pub const ECHO: u8 = b'E';
/// Then a byte and a number (8 bytes, big endian): send that byte this number of times, shut our
/// direction down, then read to the end.
pub const FLOOD: u8 = b'F';
/// Read to the end, then say how many bytes came (8 bytes, big endian) and which values they had
/// (32 bytes, a bit for each value).
pub const COUNT: u8 = b'N';
/// Do not read, until the connection ends.
pub const STALL: u8 = b'T';
/// Then a port: connect to it, and keep that connection until this one ends.
pub const CALL: u8 = b'K';

pub const DATA_LEN: usize = 4096;
pub const LEAVE_LEN: usize = 100_000;

pub fn run(args: &Args, checks: &mut Checks) {
    process::alarm(0);
    if let Some(listener) = checks.listener(args.addr) {
        on(&listener, checks);
    }
}

/// Serves all clients.
pub fn on(listener: &OwnedFd, checks: &mut Checks) {
    loop {
        match raw::accept(listener) {
            Ok(conn) => drop(thread::spawn(move || {
                if let Err(e) = obey(&conn) {
                    say(&format!("# a connection ended with {e}"));
                }
            })),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return checks.fail("accept", &e.to_string()),
        }
    }
}

/// A connection to a server, told `command`.
pub fn ask(addr: SocketAddrV4, command: &[u8]) -> Result<OwnedFd> {
    let fd = raw::connected(addr)?;
    raw::send_all(&fd, command)?;
    Ok(fd)
}

fn obey(conn: &OwnedFd) -> Result<()> {
    let mut command = [0];
    raw::recv_all(conn, &mut command)?;
    match command[0] {
        DISCARD => discard(conn),
        CLOSE => Ok(()),
        SHUT => {
            raw::shutdown(conn, libc::SHUT_WR)?;
            discard(conn)
        }
        DATA => {
            raw::send_all(conn, &[command[0]; DATA_LEN])?;
            raw::shutdown(conn, libc::SHUT_WR)?;
            discard(conn)
        }
        LEAVE => raw::send_all(conn, &[command[0]; LEAVE_LEN]),
        ECHO => {
            let mut buf = vec![0; 64 * 1024];
            loop {
                match raw::recv(conn, &mut buf, 0)? {
                    0 => return Ok(()),
                    n => raw::send_all(conn, &buf[..n])?,
                }
            }
        }
        FLOOD => {
            let mut what = [0; 9];
            raw::recv_all(conn, &mut what)?;
            let (tag, mut left) = (what[0], number(&what[1..]));
            let piece = vec![tag; 128 * 1024];
            while left > 0 {
                let n = left.min(piece.len() as u64);
                raw::send_all(conn, &piece[..n as usize])?;
                left -= n;
            }
            raw::shutdown(conn, libc::SHUT_WR)?;
            discard(conn)
        }
        COUNT => {
            let (mut count, mut values) = (0_u64, [0_u8; 32]);
            let mut buf = vec![0; 64 * 1024];
            loop {
                let n = raw::recv(conn, &mut buf, 0)?;
                if n == 0 {
                    break;
                }
                count += n as u64;
                for &b in &buf[..n] {
                    values[usize::from(b) / 8] |= 1 << (b % 8);
                }
            }
            raw::send_all(conn, &count.to_be_bytes())?;
            raw::send_all(conn, &values)
        }
        STALL => {
            while raw::poll(conn, libc::POLLRDHUP, -1)? & (libc::POLLRDHUP | libc::POLLHUP) == 0 {}
            Ok(())
        }
        CALL => {
            let mut port = [0; 2];
            raw::recv_all(conn, &mut port)?;
            let ip = *raw::getpeername(conn)?.ip();
            let _call = raw::connected(SocketAddrV4::new(ip, u16::from_be_bytes(port)))?;
            discard(conn)
        }
        other => {
            say(&format!("# unknown command {other}"));
            Ok(())
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, &b| (n << 8) | u64::from(b))
}

fn discard(conn: &OwnedFd) -> Result<()> {
    let mut buf = vec![0; 64 * 1024];
    while raw::recv(conn, &mut buf, 0)? > 0 {}
    Ok(())
}
