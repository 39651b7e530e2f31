// SPDX-License-Identifier: GPL-2.0
//! A connect that must fail.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::support::checks::Checks;
use crate::support::raw::{self, Errno, Result};

/// Connect, expecting an errno, in time, blocking and non-blocking
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "ADDR:PORT")]
    addr: SocketAddrV4,
    /// The errno's name; several, comma separated: one of them
    #[arg(long, value_delimiter = ',', value_parser = Errno::parse, required = true)]
    errno: Vec<Errno>,
    /// The longest it may take, each way: in one of several tries, as a busy machine makes some
    /// longer
    #[arg(long, value_name = "MS")]
    within_ms: Option<u64>,
    /// The shortest it may take, in each of them
    #[arg(long, value_name = "MS", default_value_t = 0)]
    least_ms: u64,
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

/// Tries; one has to keep `within_ms`.
const TRIES: usize = 5;

/// A connect() that fails, and how.
type Way = fn(&OwnedFd, SocketAddrV4, &mut Checks) -> Result<()>;

pub fn run(args: &Args, checks: &mut Checks) {
    let ways: [(_, Way); 2] = [("blocking", blocking), ("non-blocking", nonblocking)];
    for (name, way) in ways {
        try_all(args, name, way, checks);
    }
}

fn try_all(args: &Args, name: &str, way: Way, checks: &mut Checks) -> Option<()> {
    let expected: Vec<i32> = args.errno.iter().map(|e| e.0).collect();
    let most = args.within_ms.unwrap_or(u64::MAX);
    let (mut took, mut parts, mut seen) = (vec![], Checks::of_parts(), Ok(()));
    while took.len() < TRIES {
        let fd = checks.need("socket", args.socket())?;
        let start = Instant::now();
        seen = way(&fd, args.addr, &mut parts);
        let ms = start.elapsed().as_millis() as u64;
        took.push(ms);
        let late = match seen {
            Err(e) if expected.contains(&e.0) => ms > most,
            // The answer came after the decision time.
            Err(Errno(libc::ETIMEDOUT)) => args.within_ms.is_some(),
            _ => false,
        };
        if !late {
            break;
        }
    }
    checks.errno(&format!("{name} connect"), seen, &expected);
    checks.yes(
        &format!("{name} connect: its events"),
        parts.fine(),
        "see above",
    );
    if args.within_ms.is_some() {
        let (least, all) = (args.least_ms, format!("took {took:?} ms"));
        let fine = took.iter().all(|&ms| ms >= least) && took.last().is_some_and(|&ms| ms <= most);
        let name = format!("{name} connect answers after {least} to {most} ms");
        checks.yes(&name, fine, &all);
    }
    Some(())
}

fn blocking(fd: &OwnedFd, addr: SocketAddrV4, _checks: &mut Checks) -> Result<()> {
    raw::connect(fd, addr)
}

fn nonblocking(fd: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Result<()> {
    raw::set_nonblocking(fd, true)?;
    match raw::connect(fd, addr) {
        Err(Errno(libc::EINPROGRESS)) => {
            let ready = raw::poll(fd, libc::POLLOUT, 30_000);
            let both = libc::POLLOUT | libc::POLLERR;
            checks.eq(
                "poll after it failed, OUT and ERR",
                ready.map(|r| r & both),
                Ok(both),
            );
            match raw::so_error(fd) {
                Ok(Errno(0)) => Ok(()),
                Ok(e) | Err(e) => Err(e),
            }
        }
        other => other,
    }
}
