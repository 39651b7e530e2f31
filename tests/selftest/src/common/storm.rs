// SPDX-License-Identifier: GPL-2.0
//! Connects that are never answered.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use crate::support::checks::say;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Begin many connects without waiting for them, and begin each again when it has failed
///
/// Prints "began N", or "began N, then CALL: ERRNO" if a call fails at once, and goes on until it is
/// killed.
#[derive(clap::Args)]
pub struct Args {
    /// Where to connect, one after the other
    #[arg(required = true, value_name = "ADDR:PORT")]
    to: Vec<SocketAddrV4>,
    /// Connects at a time, of all addresses together
    #[arg(long, default_value_t = 16)]
    conns: usize,
}

pub fn run(args: &Args) {
    process::alarm(0);
    let targets: Vec<_> = args.to.iter().cycle().take(args.conns).collect();
    let mut conns = Vec::new();
    let mut failed = String::new();
    for to in &targets {
        match begin(**to) {
            Ok(conn) => conns.push(conn),
            Err((call, e)) => {
                failed = format!(", then {call}: {e}");
                break;
            }
        }
    }
    say(&format!("began {}{failed}", conns.len()));
    loop {
        for (conn, to) in conns.iter_mut().zip(&targets) {
            let failed = raw::poll(conn, libc::POLLOUT, 0).is_ok_and(|events| events != 0);
            if let (true, Ok(next)) = (failed, begin(**to)) {
                *conn = next;
            }
        }
        sleep(Duration::from_millis(20));
    }
}

fn begin(to: SocketAddrV4) -> std::result::Result<OwnedFd, (&'static str, Errno)> {
    let fd = raw::stream().map_err(|e| ("socket", e))?;
    let begun: Result<()> = raw::set_nonblocking(&fd, true).and_then(|()| raw::connect(&fd, to));
    match begun {
        Err(e) if e.0 != libc::EINPROGRESS => Err(("connect", e)),
        _ => Ok(fd),
    }
}
