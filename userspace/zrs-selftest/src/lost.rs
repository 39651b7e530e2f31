// SPDX-License-Identifier: GPL-2.0
//! A connection on which nothing happens until it is lost.

use std::net::SocketAddrV4;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};

use crate::checks::{say, Checks};
use crate::poll::{Bits, ALL};
use crate::raw::{self, Errno};
use crate::serve::{ask, DISCARD};

/// Wait in poll() until an idle connection is lost; prints "waiting" before
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(value_name = "ADDR:PORT")]
    addr: SocketAddrV4,
    /// What SO_ERROR must say then
    #[arg(long, value_parser = Errno::parse, default_value = "ECONNRESET")]
    errno: Errno,
}

pub fn run(args: &Args, checks: &mut Checks) {
    let Some(fd) = checks.need("connect", ask(args.addr, &[DISCARD])) else {
        return;
    };
    say("waiting");
    if checks
        .need("poll", raw::poll(&fd, POLLIN | POLLRDHUP, -1))
        .is_none()
    {
        return;
    }
    let broken = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    checks.eq(
        "poll of a lost connection",
        raw::poll(&fd, ALL, 0).map(Bits),
        Ok(Bits(broken | POLLERR)),
    );
    checks.eq("SO_ERROR", raw::so_error(&fd), Ok(args.errno));
    checks.eq(
        "poll when the error has been fetched",
        raw::poll(&fd, ALL, 0).map(Bits),
        Ok(Bits(broken)),
    );
    checks.eq("recv", raw::recv(&fd, &mut [0; 16], 0), Ok(0));
    checks.errno(
        "send",
        raw::send(&fd, &[0; 16], libc::MSG_NOSIGNAL),
        &[libc::EPIPE],
    );
}
