// SPDX-License-Identifier: GPL-2.0
//! Peers that take too long: SO_KEEPALIVE with its times and TCP_USER_TIMEOUT on open connections.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libc::{
    EAGAIN, ECONNRESET, EPIPE, ETIMEDOUT, IPPROTO_TCP, MSG_NOSIGNAL, POLLERR, POLLHUP, POLLIN,
    POLLOUT, POLLRDHUP, SOL_SOCKET, SO_KEEPALIVE, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL,
    TCP_USER_TIMEOUT,
};

use crate::common::serve::{ask, DISCARD, ECHO};
use crate::events::poll::{Bits, ALL};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno, Result};

/// Check TCP_USER_TIMEOUT while a peer does not read
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host: both ends are here
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
}

/// Check that connections end in their own time while a peer is cut off
#[derive(clap::Args)]
pub struct CutArgs {
    /// Where `serve` runs
    #[arg(value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// The command that cuts it off
    #[arg(long)]
    cut: String,
    /// The one that mends it
    #[arg(long)]
    mend: String,
}

/// Nothing takes longer, in milliseconds.
const SOON: i32 = 60_000;
/// TCP_USER_TIMEOUT, in milliseconds.
const LIMIT: i32 = 1500;

fn set(fd: &OwnedFd, level: i32, name: i32, value: i32) -> Result<()> {
    raw::setsockopt(fd, level, name, &value.to_ne_bytes())
}

/// The same where it must not be over: a busy machine may make any thread late by seconds.
const LONGER: i32 = 4 * LIMIT;

/// A connection whose client has TCP_USER_TIMEOUT, and its other end.
fn pair(args: &Args) -> Result<(OwnedFd, OwnedFd)> {
    let (listener, addr) = raw::listener(SocketAddrV4::new(args.local, 0))?;
    let client = raw::connected(addr)?;
    let server = raw::accept(&listener)?;
    set(&client, IPPROTO_TCP, TCP_USER_TIMEOUT, LIMIT)?;
    raw::set_recv_timeout(&server, SOON as u32)?;
    Ok((client, server))
}

/// Sends until that fails; how much went, and why it ended.
fn fill(fd: &OwnedFd, piece: usize) -> (usize, Errno) {
    let (data, mut sent) = (vec![7; piece], 0);
    loop {
        match raw::send(fd, &data, MSG_NOSIGNAL) {
            Ok(n) => sent += n,
            Err(e) => return (sent, e),
        }
    }
}

/// Reads until that fails or ends; how much came, and why it ended.
fn read(fd: &OwnedFd) -> (usize, Result<()>) {
    let (mut buf, mut got) = (vec![0; 65_536], 0);
    loop {
        match raw::recv(fd, &mut buf, 0) {
            Ok(0) => return (got, Ok(())),
            Ok(n) => got += n,
            Err(e) => return (got, Err(e)),
        }
    }
}

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 5] =
        [blocking, bulk, nonblocking, slow_reader, quiet];
    for test in tests {
        test(args, checks);
    }
}

/// How a connection is whose error has been fetched.
fn ended(name: &str, fd: &OwnedFd, checks: &mut Checks) {
    let bits = POLLIN | POLLOUT | POLLRDHUP | POLLHUP;
    let seen = raw::poll(fd, ALL, 0).map(Bits);
    checks.eq(&format!("{name}: poll"), seen, Ok(Bits(bits)));
    let seen = raw::recv(fd, &mut [0; 16], 0);
    checks.eq(&format!("{name}: recv"), seen, Ok(0));
    let seen = raw::send(fd, &[0; 16], MSG_NOSIGNAL);
    checks.errno(&format!("{name}: send"), seen, &[EPIPE]);
}

fn blocking(args: &Args, checks: &mut Checks) -> Option<()> {
    let (client, server) = checks.need("connect", pair(args))?;
    checks.need("send", raw::send_all(&server, b"before"))?;
    let (sent, why) = fill(&client, 4000);
    checks.eq("send() to who does not read", why, Errno(ETIMEDOUT));
    let mut before = [0; 6];
    let got = raw::recv_all(&client, &mut before).map(|()| before);
    checks.eq("what had come can be read", got, Ok(*b"before"));
    ended("after that", &client, checks);
    if raw::is_zrs() {
        // TCP says nothing to the peer.
        let (got, why) = read(&server);
        checks.eq("the peer reads what was sent", got, sent);
        checks.errno("and then it is told", why, &[ECONNRESET]);
    }
    Some(())
}

fn bulk(args: &Args, checks: &mut Checks) -> Option<()> {
    let (client, server) = checks.need("connect", pair(args))?;
    let (sent, why) = fill(&client, 1 << 20);
    let name = "send() of much at a time to who does not read";
    checks.eq(name, why, Errno(ETIMEDOUT));
    if raw::is_zrs() {
        let (got, why) = read(&server);
        checks.eq("the peer reads all of that", got, sent);
        checks.errno("and is told", why, &[ECONNRESET]);
    }
    Some(())
}

fn nonblocking(args: &Args, checks: &mut Checks) -> Option<()> {
    let (client, server) = checks.need("connect", pair(args))?;
    checks.need("do not wait", raw::set_nonblocking(&client, true))?;
    let (_, why) = fill(&client, 4000);
    checks.eq("send() without room", why, Errno(EAGAIN));
    let seen = raw::poll(&client, POLLIN, SOON);
    checks.eq("poll() is told", seen.map(|e| e & POLLERR), Ok(POLLERR));
    let error = raw::so_error(&client);
    checks.eq("SO_ERROR", error, Ok(Errno(ETIMEDOUT)));
    ended("without waiting", &client, checks);
    drop(server);
    Some(())
}

/// A reader that reads now and then keeps the connection, however long a send() takes.
fn slow_reader(args: &Args, checks: &mut Checks) -> Option<()> {
    let (client, server) = checks.need("connect", pair(args))?;
    let longer = set(&client, IPPROTO_TCP, TCP_USER_TIMEOUT, LONGER);
    checks.need("TCP_USER_TIMEOUT", longer)?;
    let reader = thread::spawn(move || {
        // Each time more than a quarter of a window.
        let mut buf = vec![0; 300_000];
        while raw::recv(&server, &mut buf, 0)? > 0 {
            thread::sleep(Duration::from_millis(LIMIT as u64 / 5));
        }
        Ok::<(), Errno>(())
    });
    let begin = Instant::now();
    let data = vec![7; 20_000];
    let mut sent = Ok(());
    while sent.is_ok() && begin.elapsed() < Duration::from_millis(2 * LONGER as u64) {
        sent = raw::send_all(&client, &data);
    }
    checks.eq("send() to who reads slowly", sent, Ok(()));
    drop(client);
    let read = reader.join().expect("no panic");
    checks.eq("which reads all of it", read, Ok(()));
    Some(())
}

/// An idle connection, or one without unacknowledged data, has no limit.
fn quiet(args: &Args, checks: &mut Checks) -> Option<()> {
    let (client, server) = checks.need("connect", pair(args))?;
    for round in 0..3 {
        checks.need("send", raw::send_all(&client, b"ping"))?;
        if round == 1 {
            // Nor while it is not read: its peer's host has it.
            thread::sleep(Duration::from_millis(3 * LIMIT as u64));
        }
        let mut ping = [0; 4];
        let got = raw::recv_all(&server, &mut ping).map(|()| ping);
        checks.eq("what was sent comes", got, Ok(*b"ping"));
        let events = raw::poll(&client, ALL, 2 * LIMIT).map(Bits);
        checks.eq("nothing ends it", events, Ok(Bits(POLLOUT)));
    }
    Some(())
}

fn sh(command: &str) -> bool {
    let status = Command::new("sh").arg("-c").arg(command).status();
    status.is_ok_and(|s| s.success())
}

pub fn run_cut(args: &CutArgs, checks: &mut Checks) {
    cut(args, checks);
}

fn cut(args: &CutArgs, checks: &mut Checks) -> Option<()> {
    let open = |what| ask(args.peer, &[what]);
    let kept = checks.need("connect", open(DISCARD))?;
    for (name, value) in [(TCP_KEEPIDLE, 1), (TCP_KEEPINTVL, 1), (TCP_KEEPCNT, 2)] {
        checks.need("keep-alive times", set(&kept, IPPROTO_TCP, name, value))?;
    }
    checks.need("SO_KEEPALIVE", set(&kept, SOL_SOCKET, SO_KEEPALIVE, 1))?;
    let limited = checks.need("connect", open(DISCARD))?;
    let ms = set(&limited, IPPROTO_TCP, TCP_USER_TIMEOUT, LIMIT);
    checks.need("TCP_USER_TIMEOUT", ms)?;
    let patient = checks.need("connect", open(DISCARD))?;
    checks.need("SO_KEEPALIVE", set(&patient, SOL_SOCKET, SO_KEEPALIVE, 1))?;
    let other = checks.need("connect", open(ECHO))?;
    // While the peer is there, all of them live.
    thread::sleep(Duration::from_secs(6));
    for fd in [&kept, &limited, &patient, &other] {
        let seen = raw::poll(fd, ALL, 0).map(Bits);
        checks.eq("lives while the peer answers", seen, Ok(Bits(POLLOUT)));
    }
    checks.yes("the peer is cut off", sh(&args.cut), "it is not");
    checks.need("send", raw::send_all(&limited, b"unheard"))?;
    checks.need("send", raw::send_all(&other, b"heard late"))?;
    for (name, fd) in [("TCP_USER_TIMEOUT", &limited), ("SO_KEEPALIVE", &kept)] {
        let seen = raw::poll(fd, POLLIN, SOON).map(|e| e & POLLERR);
        checks.eq(&format!("{name}: it is over"), seen, Ok(POLLERR));
        let error = raw::so_error(fd);
        checks.eq(&format!("{name}: SO_ERROR"), error, Ok(Errno(ETIMEDOUT)));
        ended(name, fd, checks);
    }
    for fd in [&patient, &other] {
        let seen = raw::poll(fd, ALL, 0).map(Bits);
        let name = "who has more patience, or none of the options, waits";
        checks.eq(name, seen, Ok(Bits(POLLOUT)));
    }
    checks.yes("the peer is back", sh(&args.mend), "it is not");
    let mut late = [0; 10];
    let got = raw::recv_all(&other, &mut late).map(|()| late);
    checks.eq("what was sent meanwhile comes", got, Ok(*b"heard late"));
    let seen = raw::poll(&patient, ALL, 0).map(Bits);
    checks.eq("the other lives as well", seen, Ok(Bits(POLLOUT)));
    say("done");
    Some(())
}
