// SPDX-License-Identifier: GPL-2.0
//! Many connections with a small message each, all at once, while no program reads: all of them
//! arrive.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Instant;

use super::{cache, patience, said, LOOK};
use crate::scale::{call, each, part, serve, stats, Ends};
use crate::support::checks::{say, Checks};
use crate::support::pattern::Pattern;
use crate::support::raw::{self, Errno, Result};

/// Send a small message on each of many connections at once; both ends get the same arguments
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    ends: Ends,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 1000)]
    conns: u64,
}

/// Bytes of a message: the most that goes into a block.
const MESSAGE: usize = 4096;

pub fn run(args: &Args, checks: &mut Checks) {
    match (args.ends.end.server, args.ends.end.client) {
        (Some(addr), _) => drop(server(args, addr, checks)),
        (None, Some(addr)) => drop(client(args, addr, checks)),
        (None, None) => {}
    }
}

/// The first connection of the `index`-th of `ports`: they are numbered through.
fn first(conns: u64, ports: usize, index: usize) -> u64 {
    (0..index).map(|i| part(conns, ports, i)).sum()
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, args.ends.ports, checks)?;
    let ports = listeners.len();
    let conns = each(&listeners, checks, |index, listener| {
        (0..part(args.conns, ports, index))
            .map(|_| raw::accept(listener))
            .collect::<Result<Vec<_>>>()
    })?;
    checks.need("tell", control.tell(args.conns))?;
    // Nobody reads, and all is there.
    let arrived = checks.need("arrive", arrived(conns.iter().flatten(), args.conns))?;
    let expected = args.conns * MESSAGE as u64;
    checks.eq("bytes that arrive while nobody reads", arrived, expected);
    checks.need("tell", control.tell(arrived))?;
    let right = each(&conns, checks, |index, conns| {
        let first = first(args.conns, ports, index);
        let all = (first..).zip(conns);
        all.map(|(n, conn)| receive(args, n, conn))
            .sum::<Result<u64>>()
    })?;
    checks.need("tell", control.tell(right.iter().sum()))?;
    checks.errno("the end", control.hear(), &[libc::EPIPE]);
    Some(())
}

/// The number of unread bytes, once there are `MESSAGE` on each.
fn arrived<'a>(conns: impl Iterator<Item = &'a OwnedFd> + Clone, count: u64) -> Result<u64> {
    let start = Instant::now();
    loop {
        let bytes = conns.clone().map(|conn| {
            let bytes = raw::ioctl_int(conn, libc::FIONREAD)?;
            Ok(bytes as u64)
        });
        let bytes = bytes.sum::<Result<u64>>()?;
        if bytes >= count * MESSAGE as u64 || start.elapsed() > patience() {
            return Ok(bytes);
        }
        thread::sleep(LOOK);
    }
}

/// 1 if the message of connection `n` is right, and its last.
fn receive(args: &Args, n: u64, conn: &OwnedFd) -> Result<u64> {
    let mut message = [0; MESSAGE];
    raw::recv_all(conn, &mut message)?;
    let right = Pattern::new(args.seed, 0, n)
        .mismatch(0, &message)
        .is_none();
    match raw::recv(conn, &mut [0], 0)? {
        0 => Ok(u64::from(right)),
        _ => Err(Errno(libc::EPROTO)),
    }
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let ports = addrs.len();
    let conns = each(&addrs, checks, |index, &addr| {
        (0..part(args.conns, ports, index))
            .map(|_| raw::connected(addr))
            .collect::<Result<Vec<_>>>()
    })?;
    let accepted = checks.need("hear", control.hear());
    checks.eq("connections open at once", accepted, Some(args.conns));
    let errors = stats(checks).map(|stats| stats.protocol_errors);
    let before = cache(checks);

    let start = Instant::now();
    each(&conns, checks, |index, conns| {
        let first = first(args.conns, ports, index);
        (first..).zip(conns).try_for_each(|(n, conn)| {
            let mut message = [0; MESSAGE];
            Pattern::new(args.seed, 0, n).fill(0, &mut message);
            raw::send_all(conn, &message)?;
            raw::shutdown(conn, libc::SHUT_WR)
        })
    })?;
    let arrived = checks.need("hear", control.hear());
    let rate = args.conns as f64 / start.elapsed().as_secs_f64();
    say(&format!("{rate:.0} messages/s arrived while nobody read"));
    checks.eq("all arrives", arrived, Some(args.conns * MESSAGE as u64));
    if let Some(now) = cache(checks) {
        say(&format!("# nobody has read: {}", said(&now)));
    }
    let right = checks.need("hear", control.hear());
    checks.eq("right messages", right, Some(args.conns));
    if let (Some(before), Some(now)) = (errors, stats(checks)) {
        checks.eq("links closed by errors", now.protocol_errors, before);
    }
    if let (Some(before), Some(now)) = (before, cache(checks)) {
        checks.eq("times that the shared queue ran dry", now.dry, before.dry);
        // The peaks of both classes need not coincide: their sum is an upper bound.
        let most = (now.small_high + now.large_high).max(now.unread_high);
        let fine = most <= now.bytes && now.small_high > 0;
        let name = "never more than the pool is in use by both classes";
        checks.yes(name, fine, &format!("{most} bytes: {}", said(&now)));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbered_through() {
        assert_eq!(super::first(1000, 7, 0), 0);
        assert_eq!(super::first(1000, 7, 7), 1000);
        assert_eq!(super::first(10, 8, 2), 4);
    }
}
