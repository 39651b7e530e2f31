// SPDX-License-Identifier: GPL-2.0
//! Readiness in every state, as TCP has it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};

use crate::common::serve::{ask, CALL, DATA, DATA_LEN, DISCARD, ECHO, SHUT};
use crate::support::checks::Checks;
use crate::support::raw::{self, Errno};

/// Check the events of poll() in every state of a socket
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// An address of this host that the peer reaches
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// An address without a listener
    #[arg(long, value_name = "ADDR:PORT")]
    refused: SocketAddrV4,
}

/// Bits of poll(), by name.
#[derive(PartialEq)]
pub struct Bits(pub i16);

impl std::fmt::Debug for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            ("IN", POLLIN),
            ("OUT", POLLOUT),
            ("RDHUP", POLLRDHUP),
            ("ERR", POLLERR),
            ("HUP", POLLHUP),
            ("NVAL", libc::POLLNVAL),
        ];
        let set: Vec<_> = names.iter().filter(|(_, bit)| self.0 & bit != 0).collect();
        let names: Vec<_> = set.iter().map(|(name, _)| *name).collect();
        f.write_str(if names.is_empty() { "nothing" } else { "" })?;
        f.write_str(&names.join("|"))
    }
}

pub const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;

/// The expected answer of poll(), at once or after a while: `wait` for any of these bits first.
fn expect(checks: &mut Checks, name: &str, fd: &OwnedFd, wait: i16, asked: i16, expected: i16) {
    if wait != 0 && checks.need(name, raw::poll(fd, wait, 60_000)).is_none() {
        return;
    }
    checks.eq(name, raw::poll(fd, asked, 0).map(Bits), Ok(Bits(expected)));
}

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 5] = [fresh, listening, data, ends, failed];
    for test in tests {
        test(args, checks);
    }
}

fn fresh(_: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("socket", raw::stream())?;
    expect(checks, "fresh socket", &fd, 0, ALL, POLLOUT | POLLHUP);
    expect(
        checks,
        "fresh socket, only IN asked for",
        &fd,
        0,
        POLLIN,
        POLLHUP,
    );
    Some(())
}

fn listening(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, addr) = checks.need("listen", raw::listener(SocketAddrV4::new(args.local, 0)))?;
    expect(checks, "listening, nobody there", &fd, 0, ALL, 0);
    let command = [&[CALL], &addr.port().to_be_bytes()[..]].concat();
    let call = checks.need("ask for a call", ask(args.peer, &command))?;
    expect(
        checks,
        "listening, a connection waits",
        &fd,
        POLLIN,
        ALL,
        POLLIN,
    );
    let accepted = checks.need("accept", raw::accept(&fd))?;
    expect(checks, "listening, the connection accepted", &fd, 0, ALL, 0);
    expect(checks, "accepted connection", &accepted, 0, ALL, POLLOUT);
    drop(call);
    expect(
        checks,
        "accepted, then the peer closed",
        &accepted,
        POLLRDHUP,
        ALL,
        ALL,
    );
    Some(())
}

fn data(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    expect(checks, "connected, idle", &fd, POLLOUT, ALL, POLLOUT);
    checks.need("send", raw::send_all(&fd, b"12345"))?;
    expect(checks, "data arrived", &fd, POLLIN, ALL, POLLIN | POLLOUT);
    expect(
        checks,
        "data arrived, only OUT asked for",
        &fd,
        0,
        POLLOUT,
        POLLOUT,
    );
    let mut buf = [0; 5];
    checks.need("recv", raw::recv_all(&fd, &mut buf[..3]))?;
    expect(checks, "a part of it read", &fd, 0, ALL, POLLIN | POLLOUT);
    checks.need("recv", raw::recv_all(&fd, &mut buf[3..]))?;
    expect(checks, "all of it read", &fd, 0, ALL, POLLOUT);
    Some(())
}

fn ends(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[SHUT]))?;
    expect(
        checks,
        "peer shut its direction down",
        &fd,
        POLLRDHUP,
        ALL,
        ALL,
    );
    expect(
        checks,
        "the same, only OUT asked for",
        &fd,
        0,
        POLLOUT,
        POLLOUT,
    );
    checks.need("shutdown", raw::shutdown(&fd, libc::SHUT_WR))?;
    expect(
        checks,
        "both directions down",
        &fd,
        POLLHUP,
        ALL,
        ALL | POLLHUP,
    );
    expect(checks, "both down, nothing asked for", &fd, 0, 0, POLLHUP);

    let fd = checks.need("connect", ask(args.peer, &[DATA]))?;
    expect(checks, "data and the end arrived", &fd, POLLRDHUP, ALL, ALL);
    checks.need("shutdown", raw::shutdown(&fd, libc::SHUT_WR))?;
    expect(
        checks,
        "both down, data unread",
        &fd,
        POLLHUP,
        ALL,
        ALL | POLLHUP,
    );
    let mut buf = [0; DATA_LEN];
    checks.need(
        "what had arrived stays readable",
        raw::recv_all(&fd, &mut buf),
    )?;
    checks.eq("then the end", raw::recv(&fd, &mut buf, 0), Ok(0));
    expect(checks, "the end stays", &fd, 0, ALL, ALL | POLLHUP);

    let fd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    checks.need("shutdown", raw::shutdown(&fd, libc::SHUT_RD))?;
    expect(checks, "our reading shut down", &fd, 0, ALL, ALL);
    Some(())
}

fn failed(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("socket", raw::stream())?;
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&fd, true))?;
    checks.errno(
        "connect",
        raw::connect(&fd, args.refused),
        &[libc::EINPROGRESS],
    );
    checks.need("poll", raw::poll(&fd, POLLOUT, 60_000))?;
    let asked = POLLIN | POLLOUT;
    let seen = raw::poll(&fd, asked, 0).map(|bits| Bits(bits & (asked | POLLERR)));
    checks.eq("failed connect", seen, Ok(Bits(asked | POLLERR)));
    checks.eq(
        "its SO_ERROR",
        raw::so_error(&fd),
        Ok(Errno(libc::ECONNREFUSED)),
    );
    checks.eq("its SO_ERROR again", raw::so_error(&fd), Ok(Errno(0)));
    let seen = raw::poll(&fd, asked, 0).map(|bits| Bits(bits & POLLERR));
    checks.eq("no ERR when it has been fetched", seen, Ok(Bits(0)));
    Some(())
}
