// SPDX-License-Identifier: GPL-2.0
//! A connect that must fail.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::checks::Checks;
use crate::raw::{self, Errno, Result};

/// Connect, expecting an errno, in time, blocking and non-blocking
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "ADDR:PORT")]
    addr: SocketAddrV4,
    /// The errno's name; several, comma separated: one of them
    #[arg(long, value_delimiter = ',', value_parser = Errno::parse, required = true)]
    errno: Vec<Errno>,
    /// The longest it may take, each way
    #[arg(long, value_name = "MS")]
    within_ms: Option<u64>,
    /// TCP_SYNCNT, the number of tries
    #[arg(long, value_name = "N")]
    syncnt: Option<i32>,
}

impl Args {
    fn socket(&self) -> Result<OwnedFd> {
        let fd = raw::stream()?;
        if let Some(n) = self.syncnt {
            raw::setsockopt(&fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT, &n.to_ne_bytes())?;
        }
        Ok(fd)
    }
}

pub fn run(args: &Args, checks: &mut Checks) {
    let expected: Vec<i32> = args.errno.iter().map(|e| e.0).collect();
    let in_time = |checks: &mut Checks, what: &str, start: Instant| {
        let ms = start.elapsed().as_millis() as u64;
        if let Some(most) = args.within_ms {
            checks.yes(
                &format!("{what} connect answers within {most} ms"),
                ms <= most,
                &format!("took {ms} ms"),
            );
        }
    };

    let Some(fd) = checks.need("socket", args.socket()) else {
        return;
    };
    let start = Instant::now();
    checks.errno("blocking connect", raw::connect(&fd, args.addr), &expected);
    in_time(checks, "blocking", start);

    let Some(fd) = checks.need("socket", args.socket()) else {
        return;
    };
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&fd, true));
    let start = Instant::now();
    let seen = match raw::connect(&fd, args.addr) {
        Err(Errno(libc::EINPROGRESS)) => {
            let ready = raw::poll(&fd, libc::POLLOUT, 30_000);
            let both = libc::POLLOUT | libc::POLLERR;
            checks.eq(
                "poll after it failed, OUT and ERR",
                ready.map(|r| r & both),
                Ok(both),
            );
            match raw::so_error(&fd) {
                Ok(Errno(0)) => Ok(()),
                Ok(e) | Err(e) => Err(e),
            }
        }
        other => other,
    };
    checks.errno("non-blocking connect", seen, &expected);
    in_time(checks, "non-blocking", start);
}
