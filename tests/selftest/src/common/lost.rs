// SPDX-License-Identifier: GPL-2.0
//! An idle connection, until it is lost.

use std::net::SocketAddrV4;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};

use crate::common::serve::{ask, DISCARD};
use crate::events::poll::{Bits, ALL};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno};

/// Wait in poll() until an idle connection is lost; prints "waiting" before
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(value_name = "ADDR:PORT")]
    addr: SocketAddrV4,
    /// The value that SO_ERROR must have then
    #[arg(long, value_parser = Errno::parse, default_value = "ECONNRESET")]
    errno: Errno,
    /// Set SO_KEEPALIVE, and TCP_KEEPIDLE to this number of seconds
    #[arg(long, value_name = "SECONDS")]
    keepalive: Option<i32>,
}

pub fn run(args: &Args, checks: &mut Checks) {
    let Some(fd) = checks.need("connect", ask(args.addr, &[DISCARD])) else {
        return;
    };
    if let Some(seconds) = args.keepalive {
        let set = |level, name, value: i32| raw::setsockopt(&fd, level, name, &value.to_ne_bytes());
        let idle = set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds);
        checks.need("TCP_KEEPIDLE", idle);
        checks.need("SO_KEEPALIVE", set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1));
    }
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
