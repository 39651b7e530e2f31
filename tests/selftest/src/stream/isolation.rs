// SPDX-License-Identifier: GPL-2.0
//! Ownership of a window's memory: while a program maps it, it has no other owner, and the next
//! owner finds zeros in it.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use zrs::Stream;
use zrs_sys::Map;

use crate::support::args::{End, Side};
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Result};
use crate::support::verified;
use crate::support::wild;

/// Look into one window after another
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// More than there are windows
    #[arg(long, default_value_t = 12)]
    conns: u64,
}

/// Bytes of each connection: most of a window, and more than is sent in small messages.
const BULK: usize = 900_000;

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

/// A second mapping of the window of a socket's ring.
fn window(conn: &OwnedFd) -> Result<Map> {
    let layout = zrs_sys::sock::rx_ring(conn.as_fd(), 0)?;
    let len = layout.window_bytes as usize;
    Ok(Map::shared_read(conn.as_fd(), layout.window_offset, len)?)
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    let mut kept = None;
    for index in 0..args.conns {
        let conn = checks.need("accept", raw::accept(&listener))?;
        let ring =
            Stream::from(checks.need("dup", conn.try_clone().map_err(Into::into))?).rx_ring();
        let ring = checks.need("a ring", ring.map_err(Into::into))?;
        let window = checks.need("the window", window(&conn))?;
        let clean = wild::snapshot(&window).iter().all(|b| *b == 0);
        checks.yes("a window has nothing of others in it", clean, "something");
        // Only now: the bytes checked above are from before.
        checks.need("go on", raw::send_all(&conn, b"!"))?;
        let (held, seen) = checks.need("receive", read(args, index, &ring))?;
        let most = held > BULK / 2;
        checks.yes("data is in the window", most, &format!("{held} bytes"));
        checks.need("answer", verified::answer(&conn, &seen))?;
        // The first outlives its ring and its connection.
        kept = kept.or_else(|| Some((wild::snapshot(&window), window)));
    }
    let (then, window) = kept?;
    let now = wild::snapshot(&window);
    checks.yes(
        "what a program maps is nobody else's",
        now == then,
        "changed",
    );
    let some = now.iter().any(|b| *b != 0);
    checks.yes("and there is something in it", some, "zeros");
    Some(())
}

/// Reads to the end; how many bytes of it were in the window.
fn read(args: &Args, index: u64, ring: &zrs::RxRing) -> Result<(usize, Verifier)> {
    let mut seen = Verifier::new(Pattern::new(args.seed, 0, index));
    let mut held = 0;
    while let Some(segment) = ring.recv()? {
        seen.take(&segment.to_vec())?;
        held += usize::from(segment.is_zero_copy()) * segment.len();
    }
    Ok((held, seen))
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    for index in 0..args.conns {
        let conn = checks.need("connect", raw::connected(addr))?;
        checks.need("wait", raw::recv_all(&conn, &mut [0]))?;
        let mut bulk = vec![0; BULK];
        Pattern::new(args.seed, 0, index).fill(0, &mut bulk);
        checks.need("send", raw::send_all(&conn, &bulk))?;
        verified::end(&conn, BULK as u64, checks)?;
    }
    Some(())
}
