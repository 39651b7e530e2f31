// SPDX-License-Identifier: GPL-2.0
//! A pipe that keeps a page of each of many connections: it does not keep the windows from others.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use crate::support::args::{End, Side};
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;
use crate::support::wild;

/// Keep a page of each connection in a pipe
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// More than there are windows, fewer than fit into a pipe
    #[arg(long, default_value_t = 10)]
    conns: u64,
}

/// Bytes of each connection: more than goes without a window.
const BULK: usize = 300_000;

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    let (_from, to) = checks.need("a pipe", wild::pipe())?;
    for index in 0..args.conns {
        let conn = checks.need("accept", raw::accept(&listener))?;
        let pattern = Pattern::new(args.seed, 0, index);
        checks.need("receive", receive(&conn, &to, pattern))?;
    }
    Some(())
}

/// The first byte into the pipe.
fn receive(conn: &OwnedFd, pipe: &OwnedFd, pattern: Pattern) -> Result<()> {
    let n = wild::splice(conn, pipe, 1)?;
    let mut seen = Verifier::new(pattern);
    seen.pos = n as u64;
    Rx::new(conn, false, 0)?.all(|bytes| seen.take(bytes))?;
    verified::answer(conn, &seen)
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let mut with = 0;
    for index in 0..args.conns {
        let conn = checks.need("connect", raw::connected(addr))?;
        let mut bulk = vec![0; BULK];
        Pattern::new(args.seed, 0, index).fill(0, &mut bulk);
        checks.need("send", raw::send_all(&conn, &bulk))?;
        let info = zrs_sys::sock::info(conn.as_fd()).map_err(Errno::from);
        with += u64::from(checks.need("ZRS_INFO", info)?.peer_window != 0);
        verified::end(&conn, BULK as u64, checks)?;
    }
    // The last one may be on its way back just when the next connection wants it.
    let fine = with + 3 >= args.conns;
    checks.yes("bulk data found a window", fine, &format!("{with} times"));
    Some(())
}
