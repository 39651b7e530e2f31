// SPDX-License-Identifier: GPL-2.0
//! Many connections with requests and answers, together with a bulk sender.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use zrs_bench::percentile;

use super::{call, few_links, serve, stats, Ends};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno, Result};

/// Exchange requests over many connections, together with a bulk sender
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    ends: Ends,
    /// Connections that ask; both ends get the same number
    #[arg(long, default_value_t = 100)]
    conns: u64,
    /// Client: questions on each, at least
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Client: the most links that may carry them
    #[arg(long, default_value_t = 2)]
    most_links: u64,
}

/// Bytes of a question, and of its answer.
const QUESTION: usize = 64;
/// Bytes in one send of bulk data.
const PIECE: usize = 1 << 20;
/// The least number of bytes that the bulk sender moves while the others are answered.
const BULK: u64 = 4 << 20;

pub fn run(args: &Args, checks: &mut Checks) {
    match (args.ends.end.server, args.ends.end.client) {
        (Some(addr), _) => drop(server(args, addr, checks)),
        (None, Some(addr)) => drop(client(args, addr, checks)),
        (None, None) => {}
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, args.ends.ports, checks)?;
    let bulk = checks.need("accept", raw::accept(&listeners[0]))?;
    let conns = (0..args.conns)
        .map(|_| raw::accept(&listeners[listeners.len() - 1]))
        .collect::<Result<Vec<_>>>();
    let conns = checks.need("accept", conns)?;
    let (bytes, questions) = thread::scope(|s| {
        let sink = s.spawn(|| drain(&bulk));
        let questions = answer(conns);
        (
            sink.join().expect("the receiver of bulk data panicked"),
            questions,
        )
    });
    let bytes = checks.need("receive", bytes)?;
    checks.need("tell", control.tell(bytes))?;
    let questions = checks.need("answer", questions)?;
    checks.need("tell", control.tell(questions))?;
    checks.errno("the end", control.hear(), &[libc::EPIPE]);
    Some(())
}

/// Reads to the end. How many bytes there were.
fn drain(conn: &OwnedFd) -> Result<u64> {
    let mut buf = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        match raw::recv(conn, &mut buf, 0)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

/// The connections by their descriptors, and the epoll instance of all of them.
struct Watched {
    epoll: OwnedFd,
    conns: HashMap<RawFd, (usize, OwnedFd)>,
}

impl Watched {
    fn new(conns: Vec<OwnedFd>) -> Result<Self> {
        let epoll = raw::epoll()?;
        for conn in &conns {
            raw::epoll_ctl(&epoll, libc::EPOLL_CTL_ADD, conn, libc::EPOLLIN)?;
        }
        let numbered = conns.into_iter().enumerate();
        let conns = numbered.map(|(n, conn)| (conn.as_raw_fd(), (n, conn)));
        Ok(Self {
            epoll,
            conns: conns.collect(),
        })
    }

    /// Descriptors that something has come to.
    fn ready(&self) -> Result<Vec<RawFd>> {
        let ready = raw::epoll_wait_upto::<64>(&self.epoll, -1)?;
        Ok(ready.into_iter().map(|(fd, _)| fd).collect())
    }
}

/// Sends every question back, on all connections until they end. How many there were.
fn answer(conns: Vec<OwnedFd>) -> Result<u64> {
    let mut all = Watched::new(conns)?;
    let mut questions = 0;
    while !all.conns.is_empty() {
        for fd in all.ready()? {
            let (_, conn) = &all.conns[&fd];
            let mut question = [0; QUESTION];
            match raw::recv(conn, &mut question, libc::MSG_PEEK)? {
                0 => drop(all.conns.remove(&fd)),
                _ => {
                    raw::recv_all(conn, &mut question)?;
                    raw::send_all(conn, &question)?;
                    questions += 1;
                }
            }
        }
    }
    Ok(questions)
}

/// The bytes of a question, different in each round and on each connection.
fn question(conn: usize, round: u64) -> [u8; QUESTION] {
    let mut bytes = [conn as u8; QUESTION];
    bytes[..8].copy_from_slice(&round.to_be_bytes());
    bytes
}

/// Asks over all connections at once, each again as soon as it is answered: `rounds` times, and
/// until `enough`. How long each answer took, in microseconds.
fn ask(all: &Watched, rounds: u64, enough: impl Fn() -> bool) -> Result<Vec<f64>> {
    let mut asked = vec![(0, Instant::now()); all.conns.len()];
    let mut times = Vec::new();
    for (n, conn) in all.conns.values() {
        raw::send_all(conn, &question(*n, 0))?;
        asked[*n].1 = Instant::now();
    }
    let mut left = all.conns.len();
    while left > 0 {
        for fd in all.ready()? {
            let (n, conn) = &all.conns[&fd];
            let (round, since) = &mut asked[*n];
            let mut bytes = [0; QUESTION];
            raw::recv_all(conn, &mut bytes)?;
            times.push(since.elapsed().as_secs_f64() * 1e6);
            if bytes != question(*n, *round) {
                return Err(Errno(libc::EPROTO));
            }
            *round += 1;
            if *round < rounds || !enough() {
                *since = Instant::now();
                raw::send_all(conn, &question(*n, *round))?;
            } else {
                left -= 1;
            }
        }
    }
    Ok(times)
}

fn said(times: &[f64]) -> String {
    let us = |p| percentile(times, p);
    format!(
        "50% within {:.0} us, 99% within {:.0} us",
        us(0.5),
        us(0.99)
    )
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let bulk = checks.need("connect", raw::connected(addrs[0]))?;
    let conns = (0..args.conns)
        .map(|_| raw::connected(addrs[addrs.len() - 1]))
        .collect::<Result<Vec<_>>>();
    let all = checks.need("connect", conns.and_then(Watched::new))?;
    let errors = stats(checks).map(|stats| stats.protocol_errors);
    let least = args.conns * args.rounds;

    let alone = checks.need("alone", ask(&all, args.rounds, || true))?;
    say(&format!("alone: {}", said(&alone)));
    checks.eq("answers without the bulk sender", alone.len() as u64, least);

    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (beside, bytes, bulk_sent) = thread::scope(|s| {
        let sender = s.spawn(|| send_until(&bulk, &sent, &stop));
        while sent.load(Relaxed) == 0 && !sender.is_finished() {
            thread::yield_now();
        }
        let (start, before) = (Instant::now(), sent.load(Relaxed));
        let moved = || sent.load(Relaxed) - before;
        let beside = ask(&all, args.rounds, || {
            moved() >= BULK || sender.is_finished()
        });
        let bytes = moved();
        let rate = bytes as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64();
        say(&format!("beside them {rate:.0} MiB/s of bulk data"));
        stop.store(true, Relaxed);
        (
            beside,
            bytes,
            sender.join().expect("the bulk sender panicked"),
        )
    });
    let beside = checks.need("beside the bulk sender", beside)?;
    say(&format!("beside the bulk sender: {}", said(&beside)));
    let fine = beside.len() as u64 >= least;
    checks.yes("answers beside the bulk sender", fine, "too few");
    checks.yes("bulk data beside the answers", bytes >= BULK, "too little");
    let bulk_sent = checks.need("send", bulk_sent)?;
    few_links(checks, args.most_links);
    if let (Some(before), Some(after)) = (errors, stats(checks)) {
        checks.eq("links closed by errors", after.protocol_errors, before);
    }

    checks.need("shutdown", raw::shutdown(&bulk, libc::SHUT_WR))?;
    drop(all);
    let received = checks.need("hear", control.hear());
    checks.eq("bytes of bulk data", received, Some(bulk_sent));
    let questions = checks.need("hear", control.hear());
    let expected = Some((alone.len() + beside.len()) as u64);
    checks.eq("questions", questions, expected);
    Some(())
}

/// Sends until it is to stop. How many bytes that were.
fn send_until(bulk: &OwnedFd, sent: &AtomicU64, stop: &AtomicBool) -> Result<u64> {
    let piece = vec![0x5a; PIECE];
    while !stop.load(Relaxed) {
        raw::send_all(bulk, &piece)?;
        sent.fetch_add(PIECE as u64, Relaxed);
    }
    Ok(sent.load(Relaxed))
}
