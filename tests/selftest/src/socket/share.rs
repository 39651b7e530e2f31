// SPDX-License-Identifier: GPL-2.0
//! One socket in several hands (row B1): dup(), fork(), SCM_RIGHTS.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use crate::common::serve::{ask, ECHO};
use crate::support::checks::Checks;
use crate::support::fds;
use crate::support::process;
use crate::support::raw::{self, Result};

/// Use a socket by duplicates, in a child and in another process's hands
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
}

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 4] = [dup, fork, pass, passed_and_closed];
    for test in tests {
        test(args, checks);
    }
}

/// Whether `text` comes back.
fn echo(fd: &OwnedFd, text: &[u8]) -> Result<bool> {
    raw::send_all(fd, text)?;
    let mut back = vec![0; text.len()];
    raw::recv_all(fd, &mut back)?;
    Ok(back == text)
}

/// The exit status that says whether `text` came back.
fn status(fd: &OwnedFd, text: &[u8]) -> u8 {
    u8::from(echo(fd, text) != Ok(true))
}

fn dup(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let second = checks.need("dup", fd.try_clone().map_err(Into::into))?;
    checks.eq("echo by the first", echo(&fd, b"one"), Ok(true));
    drop(fd);
    checks.eq(
        "echo by the duplicate, the first closed",
        echo(&second, b"two"),
        Ok(true),
    );
    Some(())
}

fn fork(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let child = checks.need("fork", process::fork(|| status(&fd, b"child")))?;
    checks.eq("echo in the child", process::wait(child), Ok(0));
    checks.eq(
        "echo in the parent, the child gone",
        echo(&fd, b"parent"),
        Ok(true),
    );
    // A listening socket that a child accepts on.
    let any = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
    let (listener, addr) = checks.need("listen", raw::listener(any))?;
    let command = [
        &[crate::common::serve::CALL],
        &addr.port().to_be_bytes()[..],
    ]
    .concat();
    let child = process::fork(|| match raw::accept(&listener) {
        // It ends when the parent closes the other connection.
        Ok(conn) => u8::from(raw::recv(&conn, &mut [0], 0) != Ok(0)),
        Err(_) => 2,
    });
    let child = checks.need("fork", child)?;
    let call = checks.need("ask for a call", ask(args.peer, &command))?;
    let (conn, _) = checks
        .need("shutdown", raw::shutdown(&call, libc::SHUT_WR))
        .map(|()| (call, ()))?;
    checks.eq("accept in the child", process::wait(child), Ok(0));
    drop(conn);
    Some(())
}

fn pass(args: &Args, checks: &mut Checks) -> Option<()> {
    let (ours, theirs) = checks.need("socketpair", fds::unix_pair())?;
    let child = process::fork(|| match fds::recv_fd(&theirs) {
        Ok(fd) => status(&fd, &[7; 100_000]),
        Err(_) => 2,
    });
    let child = checks.need("fork", child)?;
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    checks.need("send the socket", fds::send_fd(&ours, &fd))?;
    drop(fd);
    checks.eq("echo where it was sent", process::wait(child), Ok(0));
    Some(())
}

/// A socket held by a message only: it ends with the message.
fn passed_and_closed(args: &Args, checks: &mut Checks) -> Option<()> {
    let (ours, theirs) = checks.need("socketpair", fds::unix_pair())?;
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    checks.need("send the socket", fds::send_fd(&ours, &fd))?;
    drop(fd);
    drop((ours, theirs));
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    checks.eq("another socket lives on", echo(&fd, b"three"), Ok(true));
    Some(())
}
