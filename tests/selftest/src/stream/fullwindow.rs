// SPDX-License-Identifier: GPL-2.0
//! A sender that fills the window of a receiver that does not read.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use crate::support::args::{size, End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno};
use crate::support::rx::Rx;

/// Fill the peer's window without blocking, then have it drained
///
/// The server does not read until the client, when everything is full, makes a second connection.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server drains by the ring
    #[arg(long)]
    ring: bool,
    /// Bytes to send on after the window was full
    #[arg(long, value_parser = size, default_value = "8M")]
    more: usize,
    /// It must be full after at most so much
    #[arg(long, value_parser = size, default_value = "512M")]
    most: usize,
}

/// Bytes in one send.
const PIECE: usize = 1 << 20;

/// Without room for this time, in milliseconds, the window counts as full.
const STILL_MS: i32 = 500;

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    let data = checks.need("accept", raw::accept(&listener))?;
    // With the ring there must be one before the window is full.
    let mut rx = checks.need("receiver", Rx::new(&data, args.ring, 0))?;
    let control = checks.need("accept the second connection", raw::accept(&listener))?;
    let mut verifier = Verifier::new(Pattern::new(args.seed, 0, 0));
    checks.need("drain", rx.all(|bytes| verifier.take(bytes)))?;
    checks.eq("wrong byte", verifier.wrong, None);
    checks.need(
        "report",
        raw::send_all(&control, &verifier.pos.to_le_bytes()),
    )?;
    checks.need("shutdown", raw::shutdown(&control, libc::SHUT_WR))
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let data = checks.need("connect", raw::connected(addr))?;
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&data, true))?;
    let mut tx = Tx {
        pattern: Pattern::new(args.seed, 0, 0),
        sent: 0,
        piece: vec![0; PIECE],
    };

    let mut short = 0;
    // TCP takes a little more now and then before poll() says so: full is EAGAIN twice, with a
    // while of no POLLOUT between.
    let mut quiet = false;
    loop {
        match tx.send(&data, PIECE) {
            Ok(PIECE) => quiet = false,
            Ok(_) => (short, quiet) = (short + 1, false),
            Err(Errno(libc::EAGAIN)) if quiet => break,
            Err(Errno(libc::EAGAIN)) => {
                quiet = checks.need("poll", raw::poll(&data, libc::POLLOUT, STILL_MS))? == 0;
            }
            Err(e) => {
                checks.fail("fill", &format!("saw {e}, expected a count or EAGAIN"));
                return None;
            }
        }
        if tx.sent > args.most as u64 {
            checks.fail("fill", &format!("{} bytes taken and nobody reads", tx.sent));
            return None;
        }
    }
    say(&format!(
        "# full after {} bytes, {short} short counts",
        tx.sent
    ));
    if raw::is_zrs() {
        checks.yes("a short count before that", short > 0, "none");
    }
    checks.eq(
        "poll when full",
        raw::poll(&data, libc::POLLOUT | libc::POLLIN, 0),
        Ok(0),
    );

    let control = checks.need("second connection", raw::connected(addr))?;
    let ready = raw::poll(&data, libc::POLLOUT, 30_000);
    checks.eq("poll while it is drained", ready, Ok(libc::POLLOUT));
    let end = tx.sent + args.more as u64;
    while tx.sent < end {
        let len = PIECE.min((end - tx.sent) as usize);
        match tx.send(&data, len) {
            Ok(_) => {}
            Err(Errno(libc::EAGAIN)) => {
                checks.need("poll", raw::poll(&data, libc::POLLOUT, -1))?;
            }
            Err(e) => {
                checks.fail("the rest", &format!("saw {e}, expected a count or EAGAIN"));
                return None;
            }
        }
    }
    checks.need("shutdown", raw::shutdown(&data, libc::SHUT_WR))?;
    let mut count = [0; 8];
    checks.need("the server's count", raw::recv_all(&control, &mut count))?;
    checks.eq("bytes that arrived", u64::from_le_bytes(count), tx.sent);
    Some(())
}

struct Tx {
    pattern: Pattern,
    sent: u64,
    piece: Vec<u8>,
}

impl Tx {
    /// One send of the next `len` bytes.
    fn send(&mut self, fd: &OwnedFd, len: usize) -> raw::Result<usize> {
        let piece = &mut self.piece[..len];
        self.pattern.fill(self.sent, piece);
        let n = raw::send(fd, piece, libc::MSG_NOSIGNAL)?;
        self.sent += n as u64;
        Ok(n)
    }
}
