// SPDX-License-Identifier: GPL-2.0
//! Connections that are open all at once: made, left idle, used, ended.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use zrs_bench::Used;

use super::{call, channels_end, each, few_links, part, serve, stats, Control, Ends};
use crate::support::checks::{say, Checks};
use crate::support::pattern::Rng;
use crate::support::raw::{self, Errno, Result};

/// Hold many connections open at once
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    ends: Ends,
    /// Connections; both ends get the same number
    #[arg(long, default_value_t = 5000)]
    conns: u64,
    /// Client: which connections are used first
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Client: the most bytes of memory that an idle endpoint may take; without it they are only
    /// said
    #[arg(long)]
    most_bytes: Option<f64>,
    /// Client: the most links that may carry them
    #[arg(long, default_value_t = 8)]
    most_links: u64,
}

/// How many are open when the speed of connecting is said.
const STAGES: [u64; 5] = [1000, 5000, 10_000, 20_000, u64::MAX];
/// Connections that are used one by one, and the same number that is used at once.
const SAMPLE: u64 = 1000;
const BATCH: usize = 256;

pub fn run(args: &Args, checks: &mut Checks) {
    match (args.ends.end.server, args.ends.end.client) {
        (Some(addr), _) => drop(server(args, addr, checks)),
        (None, Some(addr)) => drop(client(args, addr, checks)),
        (None, None) => {}
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, args.ends.ports, checks)?;
    let conns = each(&listeners, checks, |index, listener| {
        let own = part(args.conns, listeners.len(), index);
        (0..own)
            .map(|_| raw::accept(listener))
            .collect::<Result<Vec<_>>>()
    })?;
    let conns: Vec<OwnedFd> = conns.into_iter().flatten().collect();
    checks.need("tell", control.tell(conns.len() as u64))?;
    checks.need("hear", control.hear())?;
    let bytes = checks.need("answer", answer(conns))?;
    checks.need("tell", control.tell(bytes))?;
    // The client ends it when it has checked the remaining objects.
    checks.errno("the end", control.hear(), &[libc::EPIPE]);
    Some(())
}

/// Answers each byte by the next one, on all connections until they end. How many bytes there were.
fn answer(conns: Vec<OwnedFd>) -> Result<u64> {
    let epoll = raw::epoll()?;
    for conn in &conns {
        raw::epoll_ctl(&epoll, libc::EPOLL_CTL_ADD, conn, libc::EPOLLIN)?;
    }
    let mut open: HashMap<_, _> = conns.into_iter().map(|c| (c.as_raw_fd(), c)).collect();
    let mut bytes = 0;
    while !open.is_empty() {
        for (fd, _) in raw::epoll_wait_upto::<64>(&epoll, -1)? {
            let conn = open.get(&fd).ok_or(Errno(libc::EBADF))?;
            let mut buf = [0; 16];
            match raw::recv(conn, &mut buf, libc::MSG_DONTWAIT) {
                Ok(0) => drop(open.remove(&fd)),
                Ok(n) => {
                    let answers: Vec<u8> = buf[..n].iter().map(|b| b.wrapping_add(1)).collect();
                    raw::send_all(conn, &answers)?;
                    bytes += n as u64;
                }
                Err(Errno(libc::EAGAIN)) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(bytes)
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let before = memory(checks)?;
    let conns = connect_all(args.conns, &addrs, checks)?;
    let accepted = checks.need("hear", control.hear());
    checks.eq("connections open at once", accepted, Some(args.conns));
    if let Some(stats) = stats(checks) {
        checks.eq("channels", stats.channels, 2 * (args.conns + 1));
    }
    few_links(checks, args.most_links);
    memory_check(args, "that was never used", before, checks)?;

    checks.need("tell", control.tell(0))?;
    let used = use_all(args, &conns, checks)?;
    memory_check(args, "that was used", before, checks)?;
    few_links(checks, args.most_links);
    end_all(conns, &control, used, checks)
}

fn memory(checks: &mut Checks) -> Option<Used> {
    match Used::at_rest() {
        Ok(used) => Some(used),
        Err(reason) => {
            checks.fail("memory", &reason);
            None
        }
    }
}

/// The memory of each endpoint since `before`, all told: both ends are in one kernel.
fn memory_check(args: &Args, which: &str, before: Used, checks: &mut Checks) -> Option<()> {
    let more = memory(checks)?.since(before);
    let each = |bytes: f64| bytes / (2 * args.conns) as f64;
    let (all, slab) = (each(more.all), each(more.slab));
    say(&format!(
        "an idle endpoint {which}: {all:.0} bytes, {slab:.0} of them slab"
    ));
    if let Some(most) = args.most_bytes {
        let detail = format!("{all:.0} bytes");
        checks.yes(
            &format!("memory of an idle endpoint {which}, at most {most} bytes"),
            all <= most,
            &detail,
        );
    }
    Some(())
}

/// Connects, with a separate thread for each port.
fn connect_all(conns: u64, addrs: &[SocketAddrV4], checks: &mut Checks) -> Option<Vec<OwnedFd>> {
    let mut all = Vec::new();
    for stage in STAGES {
        let (open, wanted) = (all.len() as u64, stage.min(conns));
        if open == wanted {
            break;
        }
        let start = Instant::now();
        let more = each(addrs, checks, |index, &addr| {
            let (from, to) = (
                part(open, addrs.len(), index),
                part(wanted, addrs.len(), index),
            );
            (from..to)
                .map(|_| raw::connected(addr))
                .collect::<Result<Vec<_>>>()
        });
        // How far it came tells more than how it ended.
        if more.is_none() {
            say(&format!("between {open} and {wanted} connections"));
        }
        all.extend(more?.into_iter().flatten());
        let rate = (wanted - open) as f64 / start.elapsed().as_secs_f64();
        say(&format!(
            "from {open} to {wanted} open: {rate:.0} connections/s"
        ));
    }
    Some(all)
}

/// A byte to and fro over some connections, one by one, and then over all. How many bytes there
/// were.
fn use_all(args: &Args, conns: &[OwnedFd], checks: &mut Checks) -> Option<u64> {
    let mut rng = Rng::new(args.seed, 0);
    let sample = SAMPLE.min(args.conns);
    let one_by_one = (0..sample).try_for_each(|n| {
        let conn = &conns[rng.below(conns.len())];
        raw::send_all(conn, &[n as u8])?;
        answered(conn, n as u8)
    });
    let name = format!("{sample} connections by chance answer, one by one");
    checks.eq(&name, one_by_one, Ok(()));
    let start = Instant::now();
    let together = conns.chunks(BATCH).try_for_each(|batch| {
        for (n, conn) in batch.iter().enumerate() {
            raw::send_all(conn, &[n as u8])?;
        }
        let mut answers = batch.iter().enumerate();
        answers.try_for_each(|(n, conn)| answered(conn, n as u8))
    });
    let rate = conns.len() as f64 / start.elapsed().as_secs_f64();
    say(&format!(
        "{rate:.0} bytes/s to and fro, over all connections in turn"
    ));
    checks.eq("all connections answer", together, Ok(()));
    Some(sample + conns.len() as u64)
}

fn answered(conn: &OwnedFd, question: u8) -> Result<()> {
    let mut answer = [0];
    raw::recv_all(conn, &mut answer)?;
    match answer[0] == question.wrapping_add(1) {
        true => Ok(()),
        false => Err(Errno(libc::EPROTO)),
    }
}

fn end_all(conns: Vec<OwnedFd>, control: &Control, used: u64, checks: &mut Checks) -> Option<()> {
    let (start, count) = (Instant::now(), conns.len());
    drop(conns);
    let seen = checks.need("hear", control.hear())?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    say(&format!("{rate:.0} connections/s ended"));
    checks.eq("bytes that the server has answered", seen, used);
    // Those of the control.
    channels_end(checks, 2);
    Some(())
}
