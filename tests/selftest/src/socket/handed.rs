// SPDX-License-Identifier: GPL-2.0
//! A connection with data in flight in other hands: fork(), exec(), dup(), SCM_RIGHTS,
//! pidfd_getfd(), and the end of its holder. Both directions flow all the time, and every byte of
//! both is compared.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, ExitStatus};
use std::thread;

use libc::{pid_t, POLLERR, POLLIN, POLLRDHUP};

use crate::support::calls;
use crate::support::checks::{say, Checks};
use crate::support::fds;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::uring::Uring;
use crate::support::verified;
use crate::support::wild;

/// Hand connections from process to process
#[derive(clap::Args)]
pub struct Args {
    /// Be the other side, listening here
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: Option<SocketAddrV4>,
    /// Where the other side listens
    #[arg(long, value_name = "ADDR:PORT", required_unless_present_any = ["server", "go_on"])]
    pub client: Option<SocketAddrV4>,
    /// An address of this host that the other side reaches
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub local: Ipv4Addr,
    /// Go on with the connection that has this descriptor: for exec()
    #[arg(long, value_name = "FD")]
    pub go_on: Option<i32>,
    /// `go_on`: where in the stream, in turns
    #[arg(long, default_value_t = 0)]
    pub from: u64,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Bytes that one process moves each way before another one goes on.
const TURN: u64 = 1 << 19;
const TURNS: u64 = 4;
const PIECE: usize = 50_000;
/// Nothing takes longer, in milliseconds.
const SOON: i32 = 60_000;
/// `go_on` has no such descriptor.
const NO_FD: u8 = 3;

pub fn run(args: &Args, checks: &mut Checks) {
    if let Some(number) = args.go_on {
        std::process::exit(go_on(args, number).into());
    }
    if let Some(addr) = args.server {
        process::alarm(0);
        if let Some(listener) = checks.listener(addr) {
            serve(&listener, args.seed);
        }
        return;
    }
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 13] = [
        dup,
        fork,
        both_at_once,
        exec,
        passed,
        passed_unread,
        passed_listening,
        passed_zerocopy,
        taken,
        served_in_children,
        in_a_message,
        closed_by_exec,
        killed,
    ];
    for test in tests {
        test(args, checks);
    }
}

/// The other side of all connections.
pub fn serve(listener: &OwnedFd, seed: u64) {
    while let Ok(conn) = raw::accept(listener) {
        thread::spawn(move || {
            if let Err(e) = other_side(seed, conn) {
                say(&format!("# a connection ended with {e}"));
            }
        });
    }
}

/// Reads a port: if it is not 0, the stream continues there. Sends all turns, and receives to the
/// end at the same time; then reports the result.
fn other_side(seed: u64, conn: OwnedFd) -> Result<()> {
    let mut port = [0; 2];
    raw::recv_all(&conn, &mut port)?;
    let conn = match u16::from_be_bytes(port) {
        0 => conn,
        port => raw::connected(SocketAddrV4::new(*raw::getpeername(&conn)?.ip(), port))?,
    };
    let mut seen = Verifier::new(Pattern::new(seed, 0, 0));
    let sent = thread::scope(|s| {
        let sender = s.spawn(|| {
            let mut buf = vec![0; PIECE];
            for at in (0..TURN * TURNS).step_by(PIECE) {
                let n = PIECE.min((TURN * TURNS - at) as usize);
                Pattern::new(seed, 1, 0).fill(at, &mut buf[..n]);
                raw::send_all(&conn, &buf[..n])?;
            }
            Ok(())
        });
        let mut buf = vec![0; PIECE];
        loop {
            match raw::recv(&conn, &mut buf, 0) {
                Ok(0) => break,
                Ok(n) => seen.take(&buf[..n])?,
                Err(e) => return Err(e),
            }
        }
        sender.join().expect("the sending thread")
    });
    sent?;
    verified::answer(&conn, &seen)
}

fn called(port: u16, args: &Args) -> Result<OwnedFd> {
    let fd = raw::connected(args.client.ok_or(Errno(libc::EDESTADDRREQ))?)?;
    raw::send_all(&fd, &port.to_be_bytes())?;
    Ok(fd)
}

fn connect(args: &Args) -> Result<OwnedFd> {
    called(0, args)
}

fn send_turn(args: &Args, fd: &OwnedFd, at: u64, n: usize) -> Result<()> {
    let mut buf = vec![0; n];
    Pattern::new(args.seed, 0, 0).fill(at, &mut buf);
    raw::send_all(fd, &buf)
}

/// EILSEQ: other bytes.
fn recv_turn(args: &Args, fd: &OwnedFd, at: u64, n: usize) -> Result<()> {
    let mut buf = vec![0; n];
    raw::recv_all(fd, &mut buf)?;
    match Pattern::new(args.seed, 1, 0).mismatch(at, &buf) {
        None => Ok(()),
        Some(_) => Err(Errno(libc::EILSEQ)),
    }
}

/// Sends and receives the bytes of turns `from` to `to`.
fn turns(args: &Args, fd: &OwnedFd, from: u64, to: u64) -> Result<()> {
    for at in (from * TURN..to * TURN).step_by(PIECE) {
        let n = PIECE.min((to * TURN - at) as usize);
        send_turn(args, fd, at, n)?;
        recv_turn(args, fd, at, n)?;
    }
    Ok(())
}

/// The exit status that says how it went.
fn status(result: Result<()>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(e) => {
            say(&format!("# a child saw {e}"));
            1
        }
    }
}

/// A process that does it, and ends some time whatever happens.
fn child(what: impl FnOnce() -> Result<()>) -> Result<pid_t> {
    process::fork(|| {
        process::alarm(300);
        status(what())
    })
}

/// A process that does it, waited for. EIO: it says that it went wrong.
fn in_child(what: impl FnOnce() -> Result<()>) -> Result<()> {
    done(child(what)?)
}

fn done(pid: pid_t) -> Result<()> {
    match process::wait(pid)? {
        0 => Ok(()),
        _ => Err(Errno(libc::EIO)),
    }
}

/// The rest of the stream, and the other side's report on all of it. EILSEQ: the bytes differ.
fn finish(args: &Args, fd: &OwnedFd, from: u64) -> Result<()> {
    turns(args, fd, from, TURNS)?;
    match verified::ask(fd)? {
        [n, u64::MAX] if n == TURN * TURNS => Ok(()),
        _ => Err(Errno(libc::EILSEQ)),
    }
}

/// Both ends of a connection of this host with itself.
fn ends(args: &Args) -> Result<(OwnedFd, OwnedFd)> {
    let (listener, addr) = raw::listener(SocketAddrV4::new(args.local, 0))?;
    let fd = raw::connected(addr)?;
    Ok((fd, raw::accept(&listener)?))
}

/// The stream ends here, after nothing. EPROTO: it has not, or other than that.
fn ended(peer: &OwnedFd) -> Result<()> {
    if raw::poll(peer, POLLRDHUP, SOON)? & POLLRDHUP == 0 || raw::recv(peer, &mut [0], 0)? != 0 {
        return Err(Errno(libc::EPROTO));
    }
    Ok(())
}

/// The stream does not end for a while.
fn goes_on(peer: &OwnedFd) -> Result<()> {
    match raw::poll(peer, POLLIN | POLLRDHUP, 200)? {
        0 => Ok(()),
        _ => Err(Errno(libc::EPROTO)),
    }
}

fn ok(name: &str, seen: Result<()>, checks: &mut Checks) -> Option<()> {
    checks.eq(name, seen, Ok(())).then_some(())
}

pub fn dup(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let first = connect(args)?;
        turns(args, &first, 0, 1)?;
        let second = first.try_clone()?;
        drop(first);
        turns(args, &second, 1, 2)?;
        let third = calls::dup_to(&second, 200)?;
        drop(second);
        finish(args, &third, 2)
    })();
    ok("dup: by one duplicate after the other", seen, checks)
}

pub fn fork(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let fd = connect(args)?;
        turns(args, &fd, 0, 1)?;
        in_child(|| turns(args, &fd, 1, 2))?;
        turns(args, &fd, 2, 3)?;
        // A child's child, which outlives both.
        let pid = child(|| in_child(|| finish(args, &fd, 3)))?;
        drop(fd);
        done(pid)
    })();
    ok("fork: parent, child, parent, child's child", seen, checks)
}

fn both_at_once(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let fd = connect(args)?;
        let pid = child(|| recv_turn(args, &fd, 0, (TURN * TURNS) as usize))?;
        send_turn(args, &fd, 0, (TURN * TURNS) as usize)?;
        done(pid)?;
        finish(args, &fd, TURNS)
    })();
    ok(
        "fork: the child receives while the parent sends",
        seen,
        checks,
    )
}

/// The work of the program that exec() has started.
fn go_on(args: &Args, number: i32) -> u8 {
    match calls::inherited(number) {
        Ok(fd) => status(turns(args, &fd, args.from, args.from + 1)),
        Err(_) => NO_FD,
    }
}

/// Runs this program, as shells and servers do: vfork() and exec().
fn spawn(args: &Args, fd: &OwnedFd, from: u64) -> Result<ExitStatus> {
    let number = |n: u64| n.to_string();
    Ok(Command::new("/proc/self/exe")
        .args(["--protocol", &raw::protocol().to_string(), "handed"])
        .args(["--go-on", &fd.as_raw_fd().to_string()])
        .args(["--from", &number(from), "--seed", &number(args.seed)])
        .status()?)
}

pub fn exec(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", connect(args))?;
    let name = "exec: a program that is started goes on";
    ok(name, turns(args, &fd, 0, 1), checks)?;
    let seen = checks.need(name, spawn(args, &fd, 1))?;
    checks.eq(
        "exec: not with close-on-exec",
        seen.code(),
        Some(NO_FD.into()),
    );
    checks.need(name, calls::set_cloexec(&fd, false))?;
    let seen = checks.need(name, spawn(args, &fd, 1))?;
    checks.eq(name, seen.code(), Some(0));
    ok(
        "exec: and its parent afterwards",
        finish(args, &fd, 2),
        checks,
    )
}

pub fn passed(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let pid = child(|| {
            let fd = fds::recv_fd(&theirs)?;
            turns(args, &fd, 1, 2)?;
            // The next one by io_uring, where there is one.
            if let Ok(mut ring) = Uring::new() {
                let mut all = vec![0; TURN as usize];
                Pattern::new(args.seed, 0, 0).fill(2 * TURN, &mut all);
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                if ring.send_zc(&fd, &all, flags)? != all.len() {
                    return Err(Errno(libc::EPROTO));
                }
                recv_turn(args, &fd, 2 * TURN, TURN as usize)?;
            } else {
                say("# there is no io_uring here");
                turns(args, &fd, 2, 3)?;
            }
            fds::send_fd(&theirs, &fd)
        })?;
        drop(theirs);
        let fd = connect(args)?;
        turns(args, &fd, 0, 1)?;
        fds::send_fd(&ours, &fd)?;
        drop(fd);
        let fd = fds::recv_fd(&ours)?;
        done(pid)?;
        finish(args, &fd, 3)
    })();
    ok(
        "SCM_RIGHTS: there, by send() and io_uring, and back",
        seen,
        checks,
    )
}

fn passed_unread(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let pid = child(|| fds::recv_fd(&theirs).and_then(|fd| finish(args, &fd, 0)))?;
        let fd = connect(args)?;
        // More than goes in one small message.
        while (raw::ioctl_int(&fd, libc::FIONREAD)? as usize) < PIECE {
            raw::poll(&fd, POLLIN, SOON)?;
        }
        fds::send_fd(&ours, &fd)?;
        drop(fd);
        done(pid)
    })();
    ok("SCM_RIGHTS: a socket with unread data", seen, checks)
}

fn passed_listening(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let pid = child(|| {
            let listener = fds::recv_fd(&theirs)?;
            for _ in 0..2 {
                finish(args, &raw::accept(&listener)?, 0)?;
            }
            Ok(())
        })?;
        let (listener, addr) = raw::listener(SocketAddrV4::new(args.local, 0))?;
        // One connection waits when it is handed on, the other one comes afterwards.
        let _first = called(addr.port(), args)?;
        raw::poll(&listener, POLLIN, SOON)?;
        fds::send_fd(&ours, &listener)?;
        drop(listener);
        let _second = called(addr.port(), args)?;
        done(pid)
    })();
    ok(
        "SCM_RIGHTS: a listening socket, with a connection that waits",
        seen,
        checks,
    )
}

fn passed_zerocopy(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let pid = child(|| {
            let fd = fds::recv_fd(&theirs)?;
            if raw::poll(&fd, 0, SOON)? != POLLERR {
                return Err(Errno(libc::EPROTO));
            }
            match zrs_sys::sock::completion(fd.as_fd())? {
                Some(done) if (done.first, done.last) == (0, 0) => Ok(()),
                _ => Err(Errno(libc::EPROTO)),
            }
        })?;
        let (fd, peer) = ends(args)?;
        zrs_sys::sock::set_zerocopy(fd.as_fd(), true)?;
        let mut memory = zrs::PageBuf::new(64 << 10)?;
        let pattern = Pattern::new(args.seed, 0, 1);
        pattern.fill(0, &mut memory);
        let sent = zrs_sys::sock::send_zerocopy(fd.as_fd(), &memory)?;
        fds::send_fd(&ours, &fd)?;
        drop(fd);
        let mut back = vec![0; sent];
        raw::recv_all(&peer, &mut back)?;
        done(pid)?;
        match pattern.mismatch(0, &back) {
            None => ended(&peer),
            Some(_) => Err(Errno(libc::EILSEQ)),
        }
    })();
    ok(
        "SCM_RIGHTS: a socket with MSG_ZEROCOPY under way",
        seen,
        checks,
    )
}

/// pidfd_getfd(), and the process that it was taken from is killed.
fn taken(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let pid = child(|| {
            let fd = connect(args)?;
            turns(args, &fd, 0, 1)?;
            raw::send_all(&theirs, &fd.as_raw_fd().to_be_bytes())?;
            raw::recv(&theirs, &mut [0], 0).map(drop)
        })?;
        drop(theirs);
        let mut number = [0; 4];
        raw::recv_all(&ours, &mut number)?;
        let fd = calls::fd_of(pid, i32::from_be_bytes(number))?;
        turns(args, &fd, 1, 2)?;
        wild::kill(pid, libc::SIGKILL)?;
        process::wait(pid)?;
        finish(args, &fd, 2)
    })();
    ok(
        "pidfd_getfd: taken from a process that is killed then",
        seen,
        checks,
    )
}

fn served_in_children(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (listener, addr) = raw::listener(SocketAddrV4::new(args.local, 0))?;
        let calls: Result<Vec<_>> = (0..3).map(|_| called(addr.port(), args)).collect();
        let serve = || {
            let conn = raw::accept(&listener)?;
            child(|| finish(args, &conn, 0))
        };
        let children: Result<Vec<_>> = (0..3).map(|_| serve()).collect();
        let seen: Result<Vec<_>> = children?.into_iter().map(done).collect();
        drop(calls?);
        seen.map(drop)
    })();
    ok(
        "fork: accepted in the parent, served in children",
        seen,
        checks,
    )?;
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let (listener, addr) = raw::listener(SocketAddrV4::new(args.local, 0))?;
        let _call = called(addr.port(), args)?;
        in_child(|| fds::send_fd(&theirs, &raw::accept(&listener)?))?;
        finish(args, &fds::recv_fd(&ours)?, 0)
    })();
    ok(
        "fork: accepted in a child, served in the parent",
        seen,
        checks,
    )
}

/// A socket that only a message has: it lives, and its end is the message's.
fn in_a_message(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (ours, theirs) = fds::unix_pair()?;
        let (fd, peer) = ends(args)?;
        fds::send_fd(&ours, &fd)?;
        drop(fd);
        goes_on(&peer)?;
        raw::send_all(&peer, b"x")?;
        let fd = fds::recv_fd(&theirs)?;
        raw::recv_all(&fd, &mut [0])?;
        fds::send_fd(&ours, &fd)?;
        drop(fd);
        goes_on(&peer)?;
        drop((ours, theirs));
        ended(&peer)
    })();
    ok(
        "SCM_RIGHTS: it ends with a message that nobody reads",
        seen,
        checks,
    )
}

fn closed_by_exec(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (fd, peer) = ends(args)?;
        let (ours, theirs) = fds::unix_pair()?;
        let pid = child(|| {
            raw::recv(&theirs, &mut [0], 0)?;
            calls::exec_sleep()
        })?;
        drop(fd);
        let seen = goes_on(&peer)
            .and_then(|()| raw::send_all(&ours, b"x"))
            .and_then(|()| ended(&peer));
        wild::kill(pid, libc::SIGKILL)?;
        process::wait(pid)?;
        seen
    })();
    ok(
        "exec: the last one that has it, close-on-exec",
        seen,
        checks,
    )
}

fn killed(args: &Args, checks: &mut Checks) -> Option<()> {
    let seen = (|| {
        let (fd, peer) = ends(args)?;
        let one = child(|| raw::recv(&fd, &mut [0], 0).map(drop))?;
        let two = child(|| raw::poll(&fd, POLLIN, -1).map(drop))?;
        drop(fd);
        for pid in [one, two] {
            goes_on(&peer)?;
            wild::kill(pid, libc::SIGKILL)?;
            process::wait(pid)?;
        }
        ended(&peer)
    })();
    ok("killed: who has it last ends it", seen, checks)
}
