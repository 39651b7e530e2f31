// SPDX-License-Identifier: GPL-2.0
//! epoll(): level, edge, one-shot, exclusive, nested, and select() with ordinary descriptors in the
//! sets.

use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP,
    EPOLL_CTL_ADD, EPOLL_CTL_MOD,
};

use crate::common::serve::{ask, ECHO, SHUT};
use crate::support::calls;
use crate::support::checks::Checks;
use crate::support::fds;
use crate::support::raw;
use crate::support::wild;

/// Check epoll in all its modes
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    pub peer: SocketAddrV4,
}

/// Long enough for anything that comes.
const LONG: i32 = 60_000;
/// Long enough to see that nothing comes.
const SHORT: i32 = 100;

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 6] =
        [level, edge, oneshot, nested, ends, mixed];
    for test in tests {
        test(args, checks);
    }
}

/// A connection to an echo, and an epoll that watches it for `events`.
fn watched(args: &Args, checks: &mut Checks, events: i32) -> Option<(OwnedFd, OwnedFd)> {
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let epoll = checks.need("epoll", raw::epoll())?;
    let added = raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, &fd, events);
    checks.need("EPOLL_CTL_ADD", added)?;
    Some((fd, epoll))
}

/// epoll_wait() must report `bits` for `fd` alone; no bits: nothing.
fn expect(checks: &mut Checks, name: &str, epoll: &OwnedFd, fd: &OwnedFd, bits: i32) {
    let timeout = if bits == 0 { SHORT } else { LONG };
    let expected = match bits {
        0 => vec![],
        bits => vec![(fd.as_raw_fd(), bits)],
    };
    checks.eq(name, raw::epoll_wait(epoll, timeout), Ok(expected));
}

/// Sends a byte and waits until its echo is there.
fn echo(checks: &mut Checks, fd: &OwnedFd) -> Option<()> {
    checks.need("send", raw::send_all(fd, b"x"))?;
    checks
        .need("poll", raw::poll(fd, libc::POLLIN, LONG))
        .map(drop)
}

pub fn level(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, epoll) = watched(args, checks, EPOLLIN)?;
    expect(checks, "level: nothing there", &epoll, &fd, 0);
    checks.need("send", raw::send_all(&fd, b"xy"))?;
    expect(checks, "level: data", &epoll, &fd, EPOLLIN);
    let mut buf = [0];
    checks.need("recv", raw::recv_all(&fd, &mut buf))?;
    expect(checks, "level: still data", &epoll, &fd, EPOLLIN);
    checks.need("recv", raw::recv_all(&fd, &mut buf))?;
    expect(checks, "level: all read", &epoll, &fd, 0);
    let both = EPOLLIN | EPOLLOUT;
    let changed = raw::epoll_ctl(&epoll, EPOLL_CTL_MOD, &fd, both);
    checks.need("EPOLL_CTL_MOD", changed)?;
    expect(checks, "level: room to send", &epoll, &fd, EPOLLOUT);
    expect(checks, "level: and again", &epoll, &fd, EPOLLOUT);
    Some(())
}

pub fn edge(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, epoll) = watched(args, checks, EPOLLIN | EPOLLOUT | EPOLLET)?;
    expect(
        checks,
        "edge: what holds when it is added",
        &epoll,
        &fd,
        EPOLLOUT,
    );
    expect(checks, "edge: nothing new", &epoll, &fd, 0);
    echo(checks, &fd)?;
    expect(checks, "edge: data", &epoll, &fd, EPOLLIN | EPOLLOUT);
    expect(checks, "edge: the same data is not new", &epoll, &fd, 0);
    echo(checks, &fd)?;
    expect(
        checks,
        "edge: more data is",
        &epoll,
        &fd,
        EPOLLIN | EPOLLOUT,
    );
    checks.need("recv", raw::recv_all(&fd, &mut [0; 2]))?;
    expect(checks, "edge: all read", &epoll, &fd, 0);
    Some(())
}

pub fn oneshot(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, epoll) = watched(args, checks, EPOLLIN | EPOLLONESHOT)?;
    checks.need("send", raw::send_all(&fd, b"x"))?;
    expect(checks, "one-shot: data", &epoll, &fd, EPOLLIN);
    echo(checks, &fd)?;
    expect(checks, "one-shot: no second time", &epoll, &fd, 0);
    let again = raw::epoll_ctl(&epoll, EPOLL_CTL_MOD, &fd, EPOLLIN | EPOLLONESHOT);
    checks.need("EPOLL_CTL_MOD", again)?;
    expect(checks, "one-shot: armed again", &epoll, &fd, EPOLLIN);
    Some(())
}

pub fn nested(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, inner) = watched(args, checks, EPOLLIN | EPOLLEXCLUSIVE)?;
    let outer = checks.need("epoll", raw::epoll())?;
    let added = raw::epoll_ctl(&outer, EPOLL_CTL_ADD, &inner, EPOLLIN);
    checks.need("EPOLL_CTL_ADD", added)?;
    let (pipe, _other) = checks.need("socketpair", fds::unix_pair())?;
    let added = raw::epoll_ctl(&outer, EPOLL_CTL_ADD, &pipe, EPOLLIN);
    checks.need("EPOLL_CTL_ADD", added)?;
    expect(checks, "nested: nothing there", &outer, &inner, 0);
    checks.need("send", raw::send_all(&fd, b"x"))?;
    expect(checks, "nested: data", &outer, &inner, EPOLLIN);
    expect(checks, "exclusive: data", &inner, &fd, EPOLLIN);
    checks.need("recv", raw::recv_all(&fd, &mut [0]))?;
    expect(checks, "nested: all read", &outer, &inner, 0);
    Some(())
}

fn ends(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[SHUT]))?;
    let epoll = checks.need("epoll", raw::epoll())?;
    let added = raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, &fd, EPOLLRDHUP | EPOLLET);
    checks.need("EPOLL_CTL_ADD", added)?;
    expect(checks, "the peer's end", &epoll, &fd, EPOLLRDHUP);
    checks.need("shutdown", raw::shutdown(&fd, libc::SHUT_WR))?;
    expect(checks, "both ends", &epoll, &fd, EPOLLRDHUP | EPOLLHUP);

    let fresh = checks.need("socket", raw::stream())?;
    let epoll = checks.need("epoll", raw::epoll())?;
    let added = raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, &fresh, EPOLLIN);
    checks.need("EPOLL_CTL_ADD", added)?;
    expect(checks, "a fresh socket", &epoll, &fresh, EPOLLHUP);
    drop(fresh);
    checks.eq(
        "closed: reported no more",
        raw::epoll_wait(&epoll, SHORT),
        Ok(vec![]),
    );
    checks.eq(
        "no error on the way",
        raw::poll(&fd, libc::POLLERR, 0).map(|b| i32::from(b) & EPOLLERR),
        Ok(0),
    );
    Some(())
}

/// One epoll for a socket, a pipe, a TCP connection and a timer: each is reported for itself, and
/// all at once.
fn mixed(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, epoll) = watched(args, checks, EPOLLIN)?;
    let (from, to) = checks.need("pipe", wild::pipe())?;
    let tcp = libc::IPPROTO_TCP;
    let listener = checks.need("TCP", raw::socket(libc::AF_INET, libc::SOCK_STREAM, tcp))?;
    checks.need("listen", raw::listen(&listener, 1))?;
    let addr = checks.need("its address", raw::getsockname(&listener))?;
    let ours = checks.need("TCP", raw::socket(libc::AF_INET, libc::SOCK_STREAM, tcp))?;
    let addr = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, addr.port());
    checks.need("connect", raw::connect(&ours, addr))?;
    let theirs = checks.need("accept", raw::accept(&listener))?;
    let timer = checks.need("timer", calls::timer(u32::MAX))?;
    for other in [&from, &ours, &timer] {
        let added = raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, other, EPOLLIN);
        checks.need("EPOLL_CTL_ADD", added)?;
    }
    expect(checks, "mixed: nothing there", &epoll, &fd, 0);
    checks.need("write", calls::write(&to, b"x"))?;
    expect(checks, "mixed: the pipe", &epoll, &from, EPOLLIN);
    checks.need("read", calls::read(&from, &mut [0; 8]))?;
    checks.need("send", raw::send_all(&theirs, b"x"))?;
    expect(checks, "mixed: TCP", &epoll, &ours, EPOLLIN);
    checks.need("recv", raw::recv_all(&ours, &mut [0]))?;
    checks.need("timer", calls::set_timer(&timer, 1))?;
    expect(checks, "mixed: the timer", &epoll, &timer, EPOLLIN);
    checks.need("read", calls::read(&timer, &mut [0; 8]))?;
    checks.need("send", raw::send_all(&fd, b"x"))?;
    expect(checks, "mixed: the socket", &epoll, &fd, EPOLLIN);
    checks.need("write", calls::write(&to, b"x"))?;
    checks.need("send", raw::send_all(&theirs, b"x"))?;
    checks.need("timer", calls::set_timer(&timer, 1))?;
    let all = [&fd, &from, &ours, &timer];
    for other in all {
        checks.need("poll", raw::poll(other, libc::POLLIN, LONG))?;
    }
    let seen = raw::epoll_wait(&epoll, LONG).map(|mut seen| {
        seen.sort_unstable();
        seen
    });
    let mut expected = all.map(|fd| (fd.as_raw_fd(), EPOLLIN)).to_vec();
    expected.sort_unstable();
    checks.eq("mixed: all at once", seen, Ok(expected));
    checks.eq(
        "mixed: by poll()",
        wild::poll_all(&all, libc::POLLIN, LONG),
        Ok(4),
    );
    Some(())
}
