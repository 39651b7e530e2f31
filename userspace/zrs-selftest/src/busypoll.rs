// SPDX-License-Identifier: GPL-2.0
//! SO_BUSY_POLL: calls that look for what they wait for before they sleep. poll() and select() do if
//! net.core.busy_poll says so as well.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{SOL_SOCKET, SO_BUSY_POLL, SO_RCVTIMEO};

use crate::calls;
use crate::checks::Checks;
use crate::raw::{self, Errno, Result};
use crate::serve::{ask, ECHO};
use crate::wild;

/// Check calls that poll before they sleep
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
}

/// The longest there is, in microseconds.
const LONG: i32 = 100_000;
/// Nothing that has an end of its own takes as long.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 7] = [
        echoes,
        limits,
        sleeps,
        interrupted,
        neighbours,
        by_poll,
        by_select,
    ];
    for test in tests {
        test(args, checks);
    }
}

/// A connection to an echo, whose calls poll for `us`.
fn polling(args: &Args, us: i32) -> Result<OwnedFd> {
    let fd = ask(args.peer, &[ECHO])?;
    raw::setsockopt(&fd, SOL_SOCKET, SO_BUSY_POLL, &us.to_ne_bytes())?;
    Ok(fd)
}

/// Sends `len` bytes and takes them back.
fn echo(fd: &OwnedFd, len: usize, value: u8) -> Result<bool> {
    raw::send_all(fd, &vec![value; len])?;
    let mut back = vec![0; len];
    raw::recv_all(fd, &mut back)?;
    Ok(back.iter().all(|&b| b == value))
}

fn echoes(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    let seen = raw::getsockopt_int(&fd, SOL_SOCKET, SO_BUSY_POLL);
    checks.eq("SO_BUSY_POLL is kept", seen, Ok(LONG));
    let all: Result<Vec<bool>> = (0..200)
        .map(|n| echo(&fd, [1, 64, 4096, 50_000][n % 4], n as u8))
        .collect();
    checks.eq("questions and answers", all, Ok(vec![true; 200]));
    Some(())
}

/// Polling is part of the caller's time.
fn limits(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    let begin = Instant::now();
    let seen = raw::recv(&fd, &mut [0], libc::MSG_DONTWAIT);
    checks.errno("nothing there, MSG_DONTWAIT", seen, &[libc::EAGAIN]);
    checks.need("SO_RCVTIMEO", wild::set_timeout(&fd, SO_RCVTIMEO, 100))?;
    let wait = Instant::now();
    let seen = raw::recv(&fd, &mut [0], 0);
    checks.errno("nothing there, SO_RCVTIMEO", seen, &[libc::EAGAIN]);
    let (waited, all) = (wait.elapsed(), begin.elapsed());
    // The kernel counts ticks, of which a slow machine catches up some at once.
    let fine = waited >= Duration::from_millis(50) && all < PATIENCE;
    checks.yes("it took its time and no more", fine, &format!("{waited:?}"));
    checks.eq("and data comes as ever", echo(&fd, 64, 1), Ok(true));
    Some(())
}

/// What comes later than polling ends.
fn sleeps(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, 1000))?;
    let answers: Vec<_> = (0..5)
        .map(|n| {
            thread::scope(|s| {
                s.spawn(|| {
                    thread::sleep(Duration::from_millis(50));
                    raw::send_all(&fd, &[n])
                });
                let mut answer = [!n];
                raw::recv_all(&fd, &mut answer).map(|()| answer[0])
            })
        })
        .collect();
    checks.eq("an answer after polling", answers, (0..5).map(Ok).collect());
    Some(())
}

fn interrupted(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    checks.need("sigaction", wild::handle_signal(false, 0))?;
    let thread = wild::this_thread();
    let over = AtomicBool::new(false);
    let seen = thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                let _ = wild::signal_thread(thread);
            }
        });
        let seen = raw::recv(&fd, &mut [0], 0);
        over.store(true, Ordering::Relaxed);
        seen
    });
    checks.errno("a signal while it polls", seen, &[libc::EINTR]);
    Some(())
}

/// Who polls takes what comes for others on the link as well.
fn neighbours(args: &Args, checks: &mut Checks) -> Option<()> {
    let idle = checks.need("connect", polling(args, LONG))?;
    let busy = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let all = thread::scope(|s| {
        let other = s.spawn(|| raw::recv(&idle, &mut [0], 0));
        let all: Result<Vec<bool>> = (0..50).map(|n| echo(&busy, 100, n)).collect();
        let ended = raw::shutdown(&idle, libc::SHUT_WR);
        (all, ended, other.join().expect("the thread that polls"))
    });
    let (all, ended, other) = all;
    checks.eq("a neighbour's questions", all, Ok(vec![true; 50]));
    checks.eq("shutdown", ended, Ok(()));
    checks.eq("the end, to the one that polls", other, Ok(0));
    Some(())
}

/// Sends a byte and takes it back when `wait` says that it is there.
fn waited_echo(fd: &OwnedFd, value: u8, wait: impl Fn() -> Result<bool>) -> Result<bool> {
    raw::send_all(fd, &[value])?;
    let ready = wait()?;
    let mut back = [!value];
    match raw::recv(fd, &mut back, libc::MSG_DONTWAIT) {
        Ok(1) => Ok(ready && back == [value]),
        Ok(_) => Err(Errno(libc::EPIPE)),
        Err(e) => Err(e),
    }
}

fn by_poll(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    let wait = || Ok(raw::poll(&fd, libc::POLLIN, 60_000)? == libc::POLLIN);
    let all: Result<Vec<bool>> = (0..200).map(|n| waited_echo(&fd, n, wait)).collect();
    checks.eq("poll(), then the answer is there", all, Ok(vec![true; 200]));
    checks.eq(
        "poll() for nothing",
        raw::poll(&fd, libc::POLLIN, 50),
        Ok(0),
    );
    checks.eq(
        "poll() that does not wait",
        raw::poll(&fd, libc::POLLIN, 0),
        Ok(0),
    );
    // What comes to another descriptor is seen as well, also while this one polls.
    let (pipe, other) = checks.need("socketpair", raw::unix_pair())?;
    for ms in [0, 1, 100] {
        let seen = thread::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_millis(ms));
                raw::send_all(&other, b"x")
            });
            wild::poll_all(&[&fd, &pipe], libc::POLLIN, 60_000)
        });
        let name = format!("poll() with another descriptor, ready after {ms} ms");
        checks.eq(&name, seen, Ok(1));
        checks.need("recv", raw::recv_all(&pipe, &mut [0]))?;
    }
    let thread = wild::this_thread();
    let over = AtomicBool::new(false);
    let seen = thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                let _ = wild::signal_thread(thread);
            }
        });
        let seen = raw::poll(&fd, libc::POLLIN, -1);
        over.store(true, Ordering::Relaxed);
        seen
    });
    checks.errno("a signal ends poll()", seen, &[libc::EINTR]);
    Some(())
}

fn by_select(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    let wait = || calls::select_read(&fd);
    let all: Result<Vec<bool>> = (0..50).map(|n| waited_echo(&fd, n, wait)).collect();
    checks.eq(
        "select(), then the answer is there",
        all,
        Ok(vec![true; 50]),
    );
    let seen = calls::select(&fd, 50);
    checks.eq("select(): room to send", seen, Ok((false, true, false)));
    Some(())
}
