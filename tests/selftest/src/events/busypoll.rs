// SPDX-License-Identifier: GPL-2.0
//! SO_BUSY_POLL: calls that poll for their condition before they sleep. poll() and select() do if
//! net.core.busy_poll says so as well.
//!
//! Whether a call polls is seen by the processor time that it takes, whether it sleeps by its
//! voluntary context switches. A slow or busy machine makes single calls longer, or ends their
//! polling early: so a bound must be kept in one of several tries.

use std::fs;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libc::{SOL_SOCKET, SO_BUSY_POLL, SO_RCVTIMEO, SO_SNDTIMEO};
use zrs_sys::Ring;

use crate::common::serve::{ask, ECHO, STALL};
use crate::support::calls;
use crate::support::checks::{say, Checks};
use crate::support::fds;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;

/// Check calls that poll before they sleep
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// The value of net.core.busy_poll now; if it is not 0, only poll() and select() are checked
    #[arg(long, value_name = "US", default_value_t = 0)]
    busy_poll: u64,
}

/// The longest there is, in microseconds.
const LONG: i32 = 100_000;
/// Tries; one has to keep the bound.
const TRIES: usize = 8;
/// Questions and answers whose sleeps are counted.
const ROUNDS: usize = 200;

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: &[fn(&Args, &mut Checks) -> Option<()>] = match args.busy_poll {
        0 => &[
            echoes,
            limits,
            spins,
            sleeps,
            interrupted,
            neighbours,
            by_poll,
            by_select,
        ],
        _ => &[poll_limits, without_time, poll_spins, by_poll, by_select],
    };
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
    let all: Result<Vec<bool>> = (0..ROUNDS)
        .map(|n| echo(&fd, [1, 64, 4096, 50_000][n % 4], n as u8))
        .collect();
    checks.eq("questions and answers", all, Ok(vec![true; ROUNDS]));
    // A thread that does not poll sleeps for each answer.
    let slept = |fd: &OwnedFd| -> Result<u64> {
        let (_, before) = wild::thread_usage()?;
        for n in 0..ROUNDS {
            echo(fd, 64, n as u8)?;
        }
        Ok(wild::thread_usage()?.1 - before)
    };
    let plain = checks.need("connect", polling(args, 0))?;
    let counts = checks.need("sleeps", slept(&plain).and_then(|n| Ok((n, slept(&fd)?))))?;
    say(&format!(
        "# sleeps in {ROUNDS} round trips: {}, with SO_BUSY_POLL {}",
        counts.0, counts.1
    ));
    let name = "a thread that polls sleeps for less than half of the answers";
    let fine = best(|| slept(&fd).map(Some), |n| *n < ROUNDS as u64 / 2);
    let (fine, seen) = checks.need("sleeps", fine)?;
    checks.yes(name, fine, &format!("{seen:?}"));
    Some(())
}

/// Tries until a result is `fine`; whether one was, and all results. Tries without a result are not
/// counted.
fn best<T>(
    mut one: impl FnMut() -> Result<Option<T>>,
    fine: impl Fn(&T) -> bool,
) -> Result<(bool, Vec<T>)> {
    let mut seen = vec![];
    for _ in 0..TRIES {
        let Some(it) = one()? else {
            continue;
        };
        let enough = fine(&it);
        seen.push(it);
        if enough {
            return Ok((true, seen));
        }
    }
    Ok((false, seen))
}

/// A call that waits; `false`: it got something.
type Call<'a> = (&'static str, Box<dyn FnMut() -> Result<bool> + 'a>);

/// Whether the call has said `errno`.
fn in_vain<T>(seen: Result<T>, errno: i32) -> Result<bool> {
    match seen {
        Err(Errno(e)) if e == errno => Ok(true),
        Err(e) => Err(e),
        Ok(_) => Ok(false),
    }
}

/// Bytes in a send that finds no room.
const PIECE: usize = 64 << 10;

/// Sends until there has been no room for half a second.
fn fill(fd: &OwnedFd) -> Result<()> {
    raw::set_nonblocking(fd, true)?;
    loop {
        match raw::send(fd, &[0; PIECE], 0) {
            Ok(_) => {}
            Err(Errno(libc::EAGAIN)) if raw::poll(fd, libc::POLLOUT, 500)? == 0 => break,
            Err(Errno(libc::EAGAIN)) => {}
            Err(e) => return Err(e),
        }
    }
    raw::set_nonblocking(fd, false)
}

/// Waiting calls of a connection, and accept(), each on a socket that polls for `us` and has `ms`
/// milliseconds.
fn calls_in_vain(args: &Args, us: i32, ms: u32) -> Result<Vec<Call<'static>>> {
    let reads = polling(args, us)?;
    wild::set_timeout(&reads, SO_RCVTIMEO, ms)?;
    let sends = ask(args.peer, &[STALL])?;
    fill(&sends)?;
    raw::setsockopt(&sends, SOL_SOCKET, SO_BUSY_POLL, &us.to_ne_bytes())?;
    wild::set_timeout(&sends, SO_SNDTIMEO, ms)?;
    let here = SocketAddrV4::new(*raw::getsockname(&reads)?.ip(), 0);
    let (full, addr) = raw::listener(here)?;
    raw::listen(&full, 1)?;
    let waits = raw::connected(addr)?;
    let (accepts, _) = raw::listener(here)?;
    raw::setsockopt(&accepts, SOL_SOCKET, SO_BUSY_POLL, &us.to_ne_bytes())?;
    wild::set_timeout(&accepts, SO_RCVTIMEO, ms)?;
    let rings = Arc::new(polling(args, us)?);
    let ring = Ring::open(&rings)?;
    let time = Duration::from_millis(ms.into());
    Ok(vec![
        (
            "recv()",
            Box::new(move || in_vain(raw::recv(&reads, &mut [0], 0), libc::EAGAIN)),
        ),
        (
            "send()",
            Box::new(move || {
                let waited = in_vain(raw::send(&sends, &[0; PIECE], 0), libc::EAGAIN)?;
                if !waited {
                    // The peer had a larger window for us.
                    fill(&sends)?;
                }
                Ok(waited)
            }),
        ),
        (
            "connect()",
            Box::new(move || {
                let _both = (&full, &waits);
                let fd = raw::stream()?;
                raw::setsockopt(&fd, SOL_SOCKET, SO_BUSY_POLL, &us.to_ne_bytes())?;
                wild::set_timeout(&fd, SO_SNDTIMEO, ms)?;
                in_vain(raw::connect(&fd, addr), libc::EINPROGRESS)
            }),
        ),
        (
            "accept()",
            Box::new(move || in_vain(raw::accept(&accepts), libc::EAGAIN)),
        ),
        (
            "a wait for the ring",
            Box::new(move || {
                let waited = ring.wait(ring.head() + 1, Some(time)).map_err(Errno::from);
                in_vain(waited, libc::EAGAIN)
            }),
        ),
    ])
}

/// The call takes `ms` milliseconds, in one try at least hardly more. (For some calls the kernel
/// counts ticks, and a slow machine catches up several at once: half of the time must be over.)
fn takes(ms: u32, (name, call): &mut Call<'_>, checks: &mut Checks) -> Option<()> {
    let time = Duration::from_millis(ms.into());
    let most = time + (time / 2).max(Duration::from_millis(50));
    let timed = || {
        let begin = Instant::now();
        Ok(call()?.then(|| begin.elapsed()))
    };
    let (fine, seen) = checks.need(name, best(timed, |t| *t < most))?;
    let early = seen.iter().any(|t| *t < time / 2);
    let name = format!("{name} in vain for {ms} ms: polling and sleeping together");
    checks.yes(&name, fine && !early, &format!("{seen:?}"));
    Some(())
}

/// Polling is part of the caller's time: here all of it could be spent so.
fn limits(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    let seen = raw::recv(&fd, &mut [0], libc::MSG_DONTWAIT);
    checks.errno("nothing there, MSG_DONTWAIT", seen, &[libc::EAGAIN]);
    let mut calls = checks.need("calls", calls_in_vain(args, LONG, 100))?;
    for call in &mut calls {
        takes(100, call, checks)?;
    }
    checks.eq("and data comes as ever", echo(&fd, 64, 1), Ok(true));
    Some(())
}

/// The ways to wait for data on a descriptor, for a time.
type Way = (&'static str, fn(&OwnedFd, Duration) -> Result<bool>);
const WAYS: [Way; 4] = [
    ("poll()", |fd, time| {
        Ok(raw::poll(fd, libc::POLLIN, time.as_millis() as i32)? != 0)
    }),
    ("ppoll()", |fd, time| calls::ppoll_read_within(fd, time)),
    ("select()", |fd, time| calls::select_read_within(fd, time)),
    ("pselect()", |fd, time| calls::pselect_read_within(fd, time)),
];

/// The same of poll() and select(), whatever net.core.busy_poll says.
fn poll_limits(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", polling(args, LONG))?;
    // More connections for one call, one of them without polling.
    let other = checks.need("connect", polling(args, LONG))?;
    let plain = checks.need("connect", polling(args, 0))?;
    for ms in [100, 5] {
        let time = Duration::from_millis(ms.into());
        for (name, way) in WAYS {
            let call = || way(&fd, time).map(|ready| !ready);
            takes(ms, &mut (name, Box::new(call)), checks)?;
        }
    }
    let call = || Ok(wild::poll_all(&[&plain, &fd, &other, &plain], libc::POLLIN, 100)? == 0);
    takes(100, &mut ("poll() of several", Box::new(call)), checks)?;
    // TCP's sockets, for comparison.
    if raw::is_zrs() {
        let time = checks.need("TCP", tcp_poll(&fd, 100))?;
        say(&format!("# TCP: poll() in vain for 100 ms took {time:?}"));
    }
    Some(())
}

/// Calls of poll() without time.
const LOOKS: u64 = 2000;

/// A call without time does not go through the scheduler to end polling: it has not begun to.
fn without_time(args: &Args, checks: &mut Checks) -> Option<()> {
    if !Path::new(SCHEDSTATS).exists() {
        say("# this kernel does not count calls of its scheduler");
        return Some(());
    }
    let fd = checks.need("connect", polling(args, LONG))?;
    let scheduled = || {
        let before = schedules()?;
        for _ in 0..LOOKS {
            raw::poll(&fd, libc::POLLIN, 0)?;
        }
        Ok(Some(schedules()? - before))
    };
    let seen = thread::scope(|s| {
        let looks = s.spawn(|| {
            process::run_on(0)?;
            best(scheduled, |n| *n < LOOKS / 2)
        });
        looks.join().expect("the thread that looks")
    });
    let (fine, seen) = checks.need("poll() without time", seen)?;
    let name = "poll() without time does not call the scheduler";
    checks.yes(name, fine, &format!("{LOOKS} times: {seen:?}"));
    Some(())
}

/// Where the scheduler's statistics are switched on.
const SCHEDSTATS: &str = "/proc/sys/kernel/sched_schedstats";

/// How often the scheduler was called on the first processor.
fn schedules() -> Result<u64> {
    let text = fs::read_to_string("/proc/schedstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu0 "));
    let count = line.and_then(|line| line.split(' ').nth(2)?.parse().ok());
    count.ok_or(Errno(libc::EPROTO))
}

fn tcp_poll(fd: &OwnedFd, ms: i32) -> Result<Duration> {
    let tcp = || raw::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);
    let (listener, conn) = (tcp()?, tcp()?);
    raw::bind(&listener, SocketAddrV4::new(*raw::getsockname(fd)?.ip(), 0))?;
    raw::listen(&listener, 1)?;
    raw::connect(&conn, raw::getsockname(&listener)?)?;
    raw::setsockopt(&conn, SOL_SOCKET, SO_BUSY_POLL, &LONG.to_ne_bytes())?;
    let begin = Instant::now();
    raw::poll(&conn, libc::POLLIN, ms)?;
    Ok(begin.elapsed())
}

/// How long a call waits until it times out, in milliseconds, and polls before, in microseconds.
const WAITS_MS: u32 = 400;
const POLLS_US: i32 = 100_000;

/// A call that waits polls for `us` microseconds, which takes a processor, and sleeps for the rest.
fn uses(call: &mut Call<'_>, us: i32, checks: &mut Checks) {
    let most = Duration::from_millis(WAITS_MS.into()) / 2;
    let least = Duration::from_micros(POLLS_US as u64) / 2;
    let used = || {
        let before = wild::thread_usage()?;
        let in_vain = (call.1)()?;
        let after = wild::thread_usage()?;
        Ok(in_vain.then(|| (after.0 - before.0, after.1 - before.1)))
    };
    let name = match us {
        0 => format!("{} sleeps", call.0),
        _ => format!("{} polls for {us} us, then sleeps", call.0),
    };
    let fine =
        |(cpu, sleeps): &(Duration, u64)| (*cpu >= least) == (us > 0) && *cpu < most && *sleeps > 0;
    if let Some((fine, seen)) = checks.need(&name, best(used, fine)) {
        checks.yes(&name, fine, &format!("{seen:?}"));
    }
}

fn spins(args: &Args, checks: &mut Checks) -> Option<()> {
    for us in [POLLS_US, 0] {
        for call in &mut checks.need("calls", calls_in_vain(args, us, WAITS_MS))? {
            // A listener has nothing to look at.
            if call.0 != "accept()" {
                uses(call, us, checks);
            }
        }
    }
    Some(())
}

/// The same of poll() and select(), which poll for as long as the kernel's setting says.
fn poll_spins(args: &Args, checks: &mut Checks) -> Option<()> {
    if args.busy_poll != POLLS_US as u64 {
        return Some(());
    }
    let time = Duration::from_millis(WAITS_MS.into());
    for us in [POLLS_US, 0] {
        let fd = checks.need("connect", polling(args, us))?;
        for (name, way) in WAYS {
            let call = || way(&fd, time).map(|ready| !ready);
            uses(&mut (name, Box::new(call)), us, checks);
        }
    }
    Some(())
}

/// Data that comes after the end of polling.
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

/// A polling thread takes completions of other connections on the link as well.
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
    checks.need("sigaction", wild::handle_signal(false, 0))?;
    let wait = || Ok(raw::poll(&fd, libc::POLLIN, 60_000)? == libc::POLLIN);
    let all: Result<Vec<bool>> = (0..200).map(|n| waited_echo(&fd, n, wait)).collect();
    checks.eq("poll(), then the answer is there", all, Ok(vec![true; 200]));
    checks.eq(
        "poll() that does not wait",
        raw::poll(&fd, libc::POLLIN, 0),
        Ok(0),
    );
    // Events of another descriptor are seen as well, also while this one polls.
    let (pipe, other) = checks.need("socketpair", fds::unix_pair())?;
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
