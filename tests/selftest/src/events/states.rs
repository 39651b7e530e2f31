// SPDX-License-Identifier: GPL-2.0
//! The table of states and events (`uapi.rst`, Readiness): a row for each state, in which poll(),
//! select() and epoll in three modes must return the events of the table. With `--protocol 6` the
//! same of TCP.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::{
    EPOLLET, EPOLLONESHOT, EPOLL_CTL_ADD, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDBAND,
    POLLRDHUP, POLLRDNORM, POLLWRNORM,
};

use crate::events::poll::Bits;
use crate::support::calls;
use crate::support::checks::Checks;
use crate::support::raw::{self, Errno, Result};

/// Check the events of poll(), select() and epoll in every state of a socket
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host: both ends are here
    #[arg(long, value_name = "ADDR")]
    pub local: Ipv4Addr,
    /// An address without a host; without it no connect() stays in progress
    #[arg(long, value_name = "ADDR:PORT")]
    pub nowhere: Option<SocketAddrV4>,
}

const IN: i16 = POLLIN | POLLRDNORM;
const OUT: i16 = POLLOUT | POLLWRNORM;
const ENDED: i16 = IN | OUT | POLLRDHUP;
/// All events that can be requested, except the one that no protocol here reports for writing
/// (POLLWRBAND, which TCP reports with OUT).
const ALL: i16 = IN | OUT | POLLPRI | POLLRDHUP | POLLRDBAND;
/// No state is waited for longer.
const SOON: Duration = Duration::from_secs(30);
/// Nothing comes any more after so many milliseconds.
const STILL: i32 = 3000;
/// More than a small message: sent from the program's pages.
const LARGE: usize = 64 << 10;

/// A socket in some state, and the objects that keep it there.
type Made = Result<(OwnedFd, Vec<OwnedFd>)>;

/// A state, how to get there, and its events, which are those of TCP.
type Row = (&'static str, fn(&Args) -> Made, i16);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("fresh", fresh, OUT | POLLHUP),
    ("bound", bound, OUT | POLLHUP),
    ("listening", |a| listening(a, 0), 0),
    ("listening, a connection waits", |a| listening(a, 1), IN),
    ("listening, two wait", |a| listening(a, 2), IN),
    ("listening, one that waits was ended by its peer", ended_early, IN),
    ("listening, all taken", all_taken, 0),
    ("listening, then shut down", unlistened, OUT | POLLHUP),
    ("connecting", connecting, 0),
    ("connecting failed", refused, ENDED | POLLHUP | POLLERR),
    ("connecting failed, the error fetched", refused_fetched, ENDED | POLLHUP),
    ("connected", |a| pair(a, |_, _| Ok(())), OUT),
    ("accepted", accepted, OUT),
    ("data waits", |a| pair(a, |_, p| raw::send_all(p, b"xy")), IN | OUT),
    ("data waits, looked at with MSG_PEEK", |a| pair(a, peeked), IN | OUT),
    ("data waits, a part read", |a| pair(a, part_read), IN | OUT),
    ("all data read", |a| pair(a, all_read), OUT),
    ("much data waits", |a| pair(a, |_, p| raw::send_all(p, &[1; LARGE])), IN | OUT),
    ("no room to send", |a| pair(a, |f, _| fill(f)), 0),
    ("no room to send, data waits", |a| pair(a, full_and_data), IN),
    ("no room to send, the peer ended its direction", |a| pair(a, full_and_ended), IN | POLLRDHUP),
    ("no room to send, then the peer read all", |a| pair(a, drained), OUT),
    ("the peer ended its direction", |a| pair(a, peer_shut), ENDED),
    ("the same, data unread", |a| pair(a, peer_said_and_shut), ENDED),
    ("we shut our reading", |a| pair(a, |f, _| raw::shutdown(f, libc::SHUT_RD)), ENDED),
    ("we shut our writing", |a| pair(a, |f, _| raw::shutdown(f, libc::SHUT_WR)), OUT),
    ("the same, data waits", |a| pair(a, shut_and_data), IN | OUT),
    ("we shut both", |a| pair(a, |f, _| raw::shutdown(f, libc::SHUT_RDWR)), ENDED | POLLHUP),
    ("we shut reading, then writing", |a| pair(a, shut_one_by_one), ENDED | POLLHUP),
    ("both ended their directions", |a| pair(a, both_shut), ENDED | POLLHUP),
    ("the peer closed", |a| closed(a, |_, _| Ok(())), ENDED),
    ("the peer closed, data unread", |a| closed(a, |_, p| raw::send_all(p, b"xy")), ENDED),
    ("the peer closed, we shut our writing", closed_and_shut, ENDED | POLLHUP),
    ("the peer closed, then a send was lost", closed_and_sent, ENDED | POLLHUP | POLLERR),
    ("the same, the error fetched", closed_sent_fetched, ENDED | POLLHUP),
    ("the peer reset: it closed with data of ours unread", reset, ENDED | POLLHUP | POLLERR),
    ("the same, the error fetched", reset_fetched, ENDED | POLLHUP),
    ("the same, data of its own unread", reset_data, ENDED | POLLHUP | POLLERR),
    ("a notification of MSG_ZEROCOPY waits", |a| pair(a, |f, p| noted(f, p).map(drop)), OUT | POLLERR),
    ("the same, data waits", |a| pair(a, noted_and_data), IN | OUT | POLLERR),
    ("the same, the peer ended its direction", |a| pair(a, noted_and_ended), ENDED | POLLERR),
    ("the notification read", |a| pair(a, note_read), OUT),
];

pub fn run(args: &Args, checks: &mut Checks) {
    for (name, make, expected) in TABLE {
        let expected = *expected;
        if args.nowhere.is_none() && *name == "connecting" {
            continue;
        }
        if let Some((fd, rest)) = checks.need(name, make(args)) {
            let seen = settled(&fd, expected).and_then(|()| every_way(&fd, expected));
            match seen {
                Ok(None) => drop(checks.eq(name, Bits(expected), Bits(expected))),
                Ok(Some(wrong)) => checks.fail(name, &wrong),
                Err(e) => checks.fail(name, &e.to_string()),
            }
            drop(rest);
        }
    }
}

/// Waits until poll() says `expected`.
fn settled(fd: &OwnedFd, expected: i16) -> Result<()> {
    let begin = Instant::now();
    while raw::poll(fd, ALL, 0)? != expected && begin.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The difference from the expected events, if any, by each of the ways.
fn every_way(fd: &OwnedFd, expected: i16) -> Result<Option<String>> {
    let differs = |way: &str, seen: i16, expected: i16| {
        (seen != expected)
            .then(|| format!("{way} says {:?}, expected {:?}", Bits(seen), Bits(expected)))
    };
    // The events that are always reported, and each event asked for alone.
    for asked in [
        ALL, 0, POLLIN, POLLRDNORM, POLLOUT, POLLWRNORM, POLLRDHUP, POLLPRI,
    ] {
        let expected = expected & (asked | POLLERR | POLLHUP);
        let seen = raw::poll(fd, asked, 0)?;
        if let Some(wrong) = differs(&format!("poll() for {:?}", Bits(asked)), seen, expected) {
            return Ok(Some(wrong));
        }
    }
    let (read, write, except) = calls::select(fd, 0)?;
    let sets = (
        expected & (IN | POLLHUP | POLLERR) != 0,
        expected & (OUT | POLLERR) != 0,
        false,
    );
    if (read, write, except) != sets {
        let seen = (read, write, except);
        return Ok(Some(format!("select() says {seen:?}, expected {sets:?}")));
    }
    for (way, mode, times) in [
        ("level", 0, 2),
        ("edge", EPOLLET, 1),
        ("one-shot", EPOLLONESHOT, 1),
    ] {
        let epoll = raw::epoll()?;
        raw::epoll_ctl(&epoll, EPOLL_CTL_ADD, fd, i32::from(ALL) | mode)?;
        // As often as it must be reported, and once more.
        for n in 0..3 {
            let expected = if n < times || mode == 0 { expected } else { 0 };
            let seen = raw::epoll_wait(&epoll, 0)?;
            let seen = match seen[..] {
                [] => 0,
                [(number, bits)] if number == fd.as_raw_fd() => bits as i16,
                _ => return Ok(Some(format!("epoll, {way}: {seen:?}"))),
            };
            if let Some(wrong) = differs(&format!("epoll, {way}, look {n}"), seen, expected) {
                return Ok(Some(wrong));
            }
        }
    }
    Ok(differs(
        "poll() in the end",
        raw::poll(fd, ALL, 0)?,
        expected,
    ))
}

fn any(args: &Args) -> SocketAddrV4 {
    SocketAddrV4::new(args.local, 0)
}

fn fresh(_: &Args) -> Made {
    Ok((raw::stream()?, vec![]))
}

fn bound(args: &Args) -> Made {
    let fd = raw::stream()?;
    raw::bind(&fd, any(args))?;
    Ok((fd, vec![]))
}

fn listening(args: &Args, waiting: usize) -> Made {
    let (fd, addr) = raw::listener(any(args))?;
    let peers: Result<_> = (0..waiting).map(|_| raw::connected(addr)).collect();
    Ok((fd, peers?))
}

fn ended_early(args: &Args) -> Made {
    let (fd, peers) = listening(args, 1)?;
    drop(peers);
    Ok((fd, vec![]))
}

fn all_taken(args: &Args) -> Made {
    let (fd, mut rest) = listening(args, 2)?;
    for _ in 0..2 {
        rest.push(raw::accept(&fd)?);
    }
    Ok((fd, rest))
}

fn unlistened(args: &Args) -> Made {
    let (fd, _) = listening(args, 1)?;
    raw::shutdown(&fd, libc::SHUT_RD)?;
    Ok((fd, vec![]))
}

/// A connect() that did not wait.
fn begun(addr: SocketAddrV4) -> Made {
    let fd = raw::stream()?;
    raw::set_nonblocking(&fd, true)?;
    match raw::connect(&fd, addr) {
        Err(Errno(libc::EINPROGRESS)) => Ok((fd, vec![])),
        Err(e) => Err(e),
        Ok(()) => Err(Errno(libc::EISCONN)),
    }
}

fn connecting(args: &Args) -> Made {
    begun(args.nowhere.ok_or(Errno(libc::EDESTADDRREQ))?)
}

fn refused(args: &Args) -> Made {
    // Nobody listens where a socket is only bound.
    let (bound, _) = bound(args)?;
    let addr = raw::getsockname(&bound)?;
    let fd = raw::stream()?;
    raw::set_nonblocking(&fd, true)?;
    match raw::connect(&fd, addr) {
        Err(Errno(libc::EINPROGRESS)) => {}
        Err(e) => return Err(e),
        Ok(()) => return Err(Errno(libc::EISCONN)),
    }
    Ok((fd, vec![bound]))
}

fn refused_fetched(args: &Args) -> Made {
    let (fd, rest) = refused(args)?;
    fetched(fd, rest, libc::ECONNREFUSED)
}

/// Waits for an error and fetches it.
fn fetched(fd: OwnedFd, rest: Vec<OwnedFd>, expected: i32) -> Made {
    raw::poll(&fd, 0, SOON.as_millis() as i32)?;
    match raw::so_error(&fd)? {
        Errno(e) if e == expected => Ok((fd, rest)),
        Errno(0) => Err(Errno(libc::ETIMEDOUT)),
        e => Err(e),
    }
}

/// Both ends of a connection.
fn ends(args: &Args) -> Result<(OwnedFd, OwnedFd)> {
    let (listener, addr) = raw::listener(any(args))?;
    let fd = raw::connected(addr)?;
    let peer = raw::accept(&listener)?;
    Ok((fd, peer))
}

/// A connection after `then`, which gets the socket and its peer; the peer stays.
fn pair(args: &Args, then: impl FnOnce(&OwnedFd, &OwnedFd) -> Result<()>) -> Made {
    let (fd, peer) = ends(args)?;
    then(&fd, &peer)?;
    Ok((fd, vec![peer]))
}

/// As [`pair`], and the peer closes then.
fn closed(args: &Args, then: impl FnOnce(&OwnedFd, &OwnedFd) -> Result<()>) -> Made {
    let (fd, peer) = ends(args)?;
    then(&fd, &peer)?;
    drop(peer);
    Ok((fd, vec![]))
}

fn accepted(args: &Args) -> Made {
    let (fd, peer) = ends(args)?;
    Ok((peer, vec![fd]))
}

fn peeked(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::send_all(peer, b"xy")?;
    raw::recv(fd, &mut [0; 2], libc::MSG_PEEK).map(drop)
}

fn part_read(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::send_all(peer, b"xy")?;
    raw::recv_all(fd, &mut [0])
}

fn all_read(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::send_all(peer, b"xy")?;
    raw::recv_all(fd, &mut [0; 2])
}

/// Sends until there is no room, and none comes for a while.
fn fill(fd: &OwnedFd) -> Result<()> {
    raw::set_nonblocking(fd, true)?;
    loop {
        match raw::send(fd, &[0; LARGE], libc::MSG_NOSIGNAL) {
            Ok(_) => {}
            Err(Errno(libc::EAGAIN)) => {
                if raw::poll(fd, POLLOUT, STILL)? == 0 {
                    return Ok(());
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn full_and_data(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    fill(fd)?;
    raw::send_all(peer, b"x")
}

fn full_and_ended(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    fill(fd)?;
    raw::shutdown(peer, libc::SHUT_WR)
}

fn drained(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    fill(fd)?;
    let mut buf = vec![0; LARGE];
    while raw::poll(peer, POLLIN, STILL)? != 0 {
        raw::recv(peer, &mut buf, 0)?;
    }
    Ok(())
}

fn peer_shut(_: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::shutdown(peer, libc::SHUT_WR)
}

fn peer_said_and_shut(_: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::send_all(peer, b"xy")?;
    raw::shutdown(peer, libc::SHUT_WR)
}

fn shut_and_data(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::shutdown(fd, libc::SHUT_WR)?;
    raw::send_all(peer, b"xy")
}

fn shut_one_by_one(fd: &OwnedFd, _: &OwnedFd) -> Result<()> {
    raw::shutdown(fd, libc::SHUT_RD)?;
    raw::shutdown(fd, libc::SHUT_WR)
}

fn both_shut(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::shutdown(fd, libc::SHUT_WR)?;
    raw::shutdown(peer, libc::SHUT_WR)
}

fn closed_and_shut(args: &Args) -> Made {
    let (fd, rest) = closed(args, |_, _| Ok(()))?;
    raw::poll(&fd, POLLRDHUP, SOON.as_millis() as i32)?;
    raw::shutdown(&fd, libc::SHUT_WR)?;
    Ok((fd, rest))
}

/// The first send after the peer's close is taken; the answer to it is a reset.
fn closed_and_sent(args: &Args) -> Made {
    let (fd, rest) = closed(args, |_, _| Ok(()))?;
    raw::poll(&fd, POLLRDHUP, SOON.as_millis() as i32)?;
    match raw::send(&fd, b"x", libc::MSG_NOSIGNAL)? {
        1 => Ok((fd, rest)),
        _ => Err(Errno(libc::EPROTO)),
    }
}

fn closed_sent_fetched(args: &Args) -> Made {
    let (fd, rest) = closed_and_sent(args)?;
    fetched(fd, rest, libc::EPIPE)
}

/// The peer has unread data from us when it goes.
fn unread(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    raw::send_all(fd, b"xy")?;
    raw::poll(peer, POLLIN, SOON.as_millis() as i32).map(drop)
}

fn reset(args: &Args) -> Made {
    closed(args, unread)
}

fn reset_fetched(args: &Args) -> Made {
    let (fd, rest) = reset(args)?;
    fetched(fd, rest, libc::ECONNRESET)
}

fn reset_data(args: &Args) -> Made {
    closed(args, |fd, peer| {
        raw::send_all(peer, b"xy")?;
        raw::poll(fd, POLLIN, SOON.as_millis() as i32)?;
        unread(fd, peer)
    })
}

/// A call with MSG_ZEROCOPY whose notification has come: the peer has read all.
fn noted(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    zrs_sys::sock::set_zerocopy(fd.as_fd(), true)?;
    let sent = zrs_sys::sock::send_zerocopy(fd.as_fd(), &[1; LARGE])?;
    raw::recv_all(peer, &mut vec![0; sent])?;
    match raw::poll(fd, 0, SOON.as_millis() as i32)? {
        POLLERR => Ok(()),
        _ => Err(Errno(libc::ETIMEDOUT)),
    }
}

fn noted_and_data(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    noted(fd, peer)?;
    raw::send_all(peer, b"x")
}

fn noted_and_ended(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    noted(fd, peer)?;
    raw::shutdown(peer, libc::SHUT_WR)
}

fn note_read(fd: &OwnedFd, peer: &OwnedFd) -> Result<()> {
    noted(fd, peer)?;
    zrs_sys::sock::completion(fd.as_fd())?
        .map(drop)
        .ok_or(Errno(libc::EAGAIN))
}
