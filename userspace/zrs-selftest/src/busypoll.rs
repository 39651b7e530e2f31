// SPDX-License-Identifier: GPL-2.0
//! SO_BUSY_POLL: calls that look for what they wait for before they sleep.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{SOL_SOCKET, SO_BUSY_POLL, SO_RCVTIMEO};

use crate::checks::Checks;
use crate::raw::{self, Result};
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
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 5] =
        [echoes, limits, sleeps, interrupted, neighbours];
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
