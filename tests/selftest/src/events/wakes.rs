// SPDX-License-Identifier: GPL-2.0
//! Wake-ups, counted: the voluntary context switches of a sleeping process are its wake-ups.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use libc::{pid_t, EPOLLEXCLUSIVE, EPOLLIN, EPOLLRDHUP, EPOLL_CTL_ADD, POLLIN, POLLRDHUP, SIGKILL};

use crate::common::serve::{ask, DISCARD, ECHO};
use crate::support::calls;
use crate::support::checks::{say, Checks};
use crate::support::fds;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;

/// Check which events wake which threads
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum)]
    what: What,
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// An address of this host
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// `idle`: connections
    #[arg(long, default_value_t = 100)]
    conns: usize,
    /// `idle`: seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// `others`: bytes that go by
    #[arg(long, value_parser = crate::support::args::size, default_value = "8M")]
    bytes: usize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// One connection for many waiting threads
    Herd,
    /// Data of others
    Others,
    /// Nothing, for a while
    Idle,
}

/// Number of processes that wait for the same connection.
const HERD: usize = 6;
/// Nobody needs longer to fall asleep.
const SOON: Duration = Duration::from_secs(60);

pub fn run(args: &Args, checks: &mut Checks) {
    match args.what {
        What::Herd => {
            // Without EPOLLEXCLUSIVE all are woken: this shows that the count works.
            herd("blocking accept()", accepts, 1, args.local, checks);
            herd(
                "epoll",
                |fd, tell| epolls(fd, 0, tell),
                HERD,
                args.local,
                checks,
            );
            exclusive(args.local, checks);
        }
        What::Others => drop(others(args, checks)),
        What::Idle => drop(idle(args, checks)),
    }
}

/// A process: how often it has slept, and the ticks of processor time that it has used. `None`
/// while it is awake.
fn sleeps(pid: pid_t) -> Result<Option<(u64, u64)>> {
    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (status, stat) = (read("status")?, read("stat")?);
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|n| n.trim().parse().ok());
    // The name ends with the last bracket; then the state, and times are the 12th and 13th.
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .map(|rest| rest.split_whitespace().collect())
        .unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok());
    match (count, fields.first(), ticks(11), ticks(12)) {
        (Some(count), Some(&"S"), Some(user), Some(system)) => Ok(Some((count, user + system))),
        (Some(_), Some(_), ..) => Ok(None),
        _ => Err(Errno(libc::EPROTO)),
    }
}

/// Waits until all are asleep, and stay so for a while.
fn asleep(pids: &[pid_t]) -> Result<Vec<(u64, u64)>> {
    let begin = Instant::now();
    let look = || -> Result<Option<Vec<_>>> { pids.iter().map(|&pid| sleeps(pid)).collect() };
    let mut last = None;
    let mut same = 0;
    while same < 5 {
        if begin.elapsed() > SOON {
            return Err(Errno(libc::ETIMEDOUT));
        }
        thread::sleep(Duration::from_millis(20));
        let seen = look()?;
        same = if seen.is_some() && seen == last {
            same + 1
        } else {
            0
        };
        last = seen;
    }
    last.ok_or(Errno(libc::ETIMEDOUT))
}

/// Processes that end with this.
pub struct Children(pub Vec<pid_t>);

impl Drop for Children {
    fn drop(&mut self) {
        for &pid in &self.0 {
            let _ = wild::kill(pid, SIGKILL);
            let _ = process::wait(pid);
        }
    }
}

/// Takes connections, and says so for each.
fn accepts(listener: &OwnedFd, tell: &OwnedFd) -> Result<()> {
    loop {
        let _conn = raw::accept(listener)?;
        raw::send_all(tell, b"x")?;
    }
}

/// The same, each with a separate epoll; others may have been faster.
fn epolls(listener: &OwnedFd, mode: i32, tell: &OwnedFd) -> Result<()> {
    let epoll = raw::epoll()?;
    raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, listener, EPOLLIN | mode)?;
    loop {
        raw::epoll_wait(&epoll, -1)?;
        match raw::accept(listener) {
            Ok(_conn) => raw::send_all(tell, b"x")?,
            Err(Errno(libc::EAGAIN)) => {}
            Err(e) => return Err(e),
        }
    }
}

/// One of the waiters with EPOLLEXCLUSIVE is woken, not all.
pub fn exclusive(local: Ipv4Addr, checks: &mut Checks) {
    let waits = |fd: &_, tell: &_| epolls(fd, EPOLLEXCLUSIVE, tell);
    herd("epoll, exclusive", waits, 1, local, checks);
}

fn herd(
    name: &str,
    waits: impl Fn(&OwnedFd, &OwnedFd) -> Result<()>,
    expected: usize,
    local: Ipv4Addr,
    checks: &mut Checks,
) {
    let woken = || -> Result<Vec<usize>> {
        let (listener, addr) = raw::listener(SocketAddrV4::new(local, 0))?;
        raw::set_nonblocking(&listener, !name.starts_with("blocking"))?;
        let (hears, tell) = fds::unix_pair()?;
        let mut children = Children(vec![]);
        for _ in 0..HERD {
            let child = process::fork(|| u8::from(waits(&listener, &tell).is_err()))?;
            children.0.push(child);
        }
        // The first one makes the link.
        let connect = || -> Result<()> {
            let _conn = raw::connected(addr)?;
            raw::recv_all(&hears, &mut [0])
        };
        asleep(&children.0)?;
        connect()?;
        let one = || -> Result<usize> {
            let before = asleep(&children.0)?;
            connect()?;
            let after = asleep(&children.0)?;
            let pairs = before.iter().zip(&after);
            Ok(pairs.filter(|(a, b)| a.0 != b.0).count())
        };
        (0..5).map(|_| one()).collect()
    };
    let name = format!("{name}: of {HERD} who wait, woken by each of 5 connections");
    checks.eq(&name, woken(), Ok(vec![expected; 5]));
}

/// A way to wait for data on a connection: whether it says that there is some, or the end.
struct Way<'a> {
    name: &'static str,
    fd: &'a OwnedFd,
    wait: fn(&OwnedFd) -> Result<bool>,
    /// How often it may be woken by something else.
    most: u64,
}

/// A thread in recv() takes completions of others from the device, a few times, and leaves them to
/// the worker then. Each time it may sleep for a lock as well. Far more than that comes.
const HELPS: u64 = 8;

/// Processes that wait for data on a connection sleep through all other events on it and on others.
fn others(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    let beside = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let third = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    let way = |name, wait| Way {
        name,
        fd: &fd,
        wait,
        most: 0,
    };
    let ways = [
        way("poll()", |fd| {
            Ok(raw::poll(fd, POLLIN | POLLRDHUP, -1)? & POLLIN != 0)
        }),
        way("select()", calls::select_read),
        way("epoll_wait()", |fd| {
            let epoll = raw::epoll()?;
            raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP)?;
            Ok(!raw::epoll_wait(&epoll, -1)?.is_empty())
        }),
        // On the same connection recv() is woken with the senders, as over TCP.
        Way {
            name: "recv() on another connection",
            fd: &third,
            wait: |fd| Ok(raw::recv(fd, &mut [0], 0)? == 0),
            most: if raw::is_zrs() { HELPS } else { 0 },
        },
    ];
    let mut children = Children(vec![]);
    for way in &ways {
        let child = process::fork(|| u8::from((way.wait)(way.fd) != Ok(true)));
        children.0.push(checks.need("fork", child)?);
    }
    let before = checks.need("fall asleep", asleep(&children.0))?;
    let piece = vec![1; 256 << 10];
    for _ in 0..args.bytes / piece.len() {
        // Large ones take the window, small ones credits.
        checks.need("send", raw::send_all(&fd, &piece))?;
        checks.need("send", raw::send_all(&fd, &piece[..100]))?;
        for _ in 0..10 {
            checks.need("send", raw::send_all(&beside, &piece[..100]))?;
            checks.need("receive", raw::recv_all(&beside, &mut [0; 100]))?;
        }
    }
    let after = checks.need("stay asleep", asleep(&children.0))?;
    for (way, (before, after)) in ways.iter().zip(before.iter().zip(&after)) {
        let woken = after.0 - before.0;
        let name = format!(
            "{} for data: at most {} wake-ups while we send, and others are answered",
            way.name, way.most
        );
        checks.yes(&name, woken <= way.most, &format!("{woken}"));
    }
    checks.need("shutdown", raw::shutdown(&fd, libc::SHUT_WR))?;
    checks.need("shutdown", raw::shutdown(&third, libc::SHUT_WR))?;
    let ended: Result<Vec<_>> = children.0.drain(..).map(process::wait).collect();
    checks.eq(
        "then the end wakes all of them",
        ended,
        Ok(vec![0; ways.len()]),
    );
    Some(())
}

/// A process with many idle connections.
fn idle(args: &Args, checks: &mut Checks) -> Option<()> {
    let mut conns = vec![];
    for _ in 0..args.conns {
        let fd = checks.need("connect", ask(args.peer, &[ECHO, 7]))?;
        checks.need("an answer", raw::recv_all(&fd, &mut [0]))?;
        conns.push(fd);
    }
    let child = process::fork(|| {
        let all: Vec<_> = conns.iter().collect();
        u8::from(wild::poll_all(&all, POLLIN, -1).is_err())
    });
    let children = Children(vec![checks.need("fork", child)?]);
    let before = checks.need("fall asleep", asleep(&children.0))?;
    say("idle");
    thread::sleep(Duration::from_secs(args.seconds));
    let after = checks.need("stay asleep", asleep(&children.0))?;
    let name = format!(
        "{} connections, idle: wake-ups and ticks of processor time",
        args.conns
    );
    let used: Vec<_> = before
        .iter()
        .zip(&after)
        .map(|(a, b)| (b.0 - a.0, b.1 - a.1))
        .collect();
    checks.eq(&name, used, vec![(0, 0)]);
    say("idle no more");
    Some(())
}
