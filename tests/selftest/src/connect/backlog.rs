// SPDX-License-Identifier: GPL-2.0
//! A listener whose backlog is full: a connecting socket waits, as with TCP, until there is room,
//! the listener is gone, or its time is over.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use libc::{
    c_int, EAGAIN, ECONNREFUSED, EINPROGRESS, ETIMEDOUT, IPPROTO_TCP, POLLERR, POLLOUT, TCP_SYNCNT,
    TCP_USER_TIMEOUT,
};

use crate::support::checks::Checks;
use crate::support::raw::{self, Errno, Result};

/// Connect to listeners whose backlog is full
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host: both ends are here
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// The least time for which a connect waits for room, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = FULL)]
    waits: u32,
}

/// Nothing takes longer, in milliseconds.
const SOON: i32 = 60_000;
/// After this time without an answer a backlog counts as full, in milliseconds.
const FULL: u32 = 500;
/// How many connections wait where no more may.
const BACKLOG: usize = 2;

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [fn(&Args, &mut Checks) -> Option<()>; 6] =
        [blocking, nonblocking, refused, timed_out, given_up, crowd];
    for test in tests {
        test(args, checks);
    }
}

/// A listener with a full backlog, its address, and the sockets that wait there.
struct Full {
    listener: OwnedFd,
    addr: SocketAddrV4,
    waiting: Vec<OwnedFd>,
}

impl Full {
    fn new(args: &Args) -> Result<Self> {
        let listener = raw::stream()?;
        raw::bind(&listener, SocketAddrV4::new(args.local, 0))?;
        raw::listen(&listener, BACKLOG as i32)?;
        let addr = raw::getsockname(&listener)?;
        let mut waiting = Vec::new();
        loop {
            let fd = raw::stream()?;
            // Only where no room is expected: a busy machine may need longer for a connection.
            if waiting.len() >= BACKLOG || !raw::is_zrs() {
                raw::set_send_timeout(&fd, FULL)?;
            }
            match raw::connect(&fd, addr) {
                Ok(()) => waiting.push(fd),
                Err(Errno(EINPROGRESS)) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(Self {
            listener,
            addr,
            waiting,
        })
    }

    /// Accepts all waiting connections.
    fn accept(&self) -> Result<Vec<OwnedFd>> {
        let one = |_| raw::accept(&self.listener);
        self.waiting.iter().map(one).collect()
    }
}

/// A connect that does not wait, and is to find the backlog full.
fn starting(addr: SocketAddrV4) -> Result<OwnedFd> {
    let fd = raw::stream()?;
    raw::set_nonblocking(&fd, true)?;
    match raw::connect(&fd, addr) {
        Err(Errno(EINPROGRESS)) => Ok(fd),
        Err(e) => Err(e),
        Ok(()) => Err(Errno(0)),
    }
}

/// Bytes go both ways.
fn talk(one: &OwnedFd, other: &OwnedFd) -> Result<bool> {
    let (mut here, mut there) = ([0; 4], [0; 4]);
    raw::send_all(one, b"ping")?;
    raw::send_all(other, b"pong")?;
    raw::recv_all(other, &mut there)?;
    raw::recv_all(one, &mut here)?;
    Ok((&here, &there) == (b"pong", b"ping"))
}

fn blocking(args: &Args, checks: &mut Checks) -> Option<()> {
    let full = checks.need("a full backlog", Full::new(args))?;
    if raw::is_zrs() {
        let n = full.waiting.len();
        checks.eq("as many wait as listen() says", n, BACKLOG);
    }
    let addr = full.addr;
    let caller = thread::spawn(move || raw::connected(addr));
    thread::sleep(Duration::from_millis(u64::from(FULL)));
    checks.yes("connect() waits", !caller.is_finished(), "it does not");
    let accepted = checks.need("accept", full.accept())?;
    let called = caller.join().expect("no panic");
    let called = checks.need("connect() when there is room again", called)?;
    let served = checks.need("accept", raw::accept(&full.listener))?;
    let talked = talk(&called, &served);
    checks.eq("it is a connection as any other", talked, Ok(true));
    drop(accepted);
    Some(())
}

fn nonblocking(args: &Args, checks: &mut Checks) -> Option<()> {
    let full = checks.need("a full backlog", Full::new(args))?;
    let fd = checks.need("connect without waiting", starting(full.addr))?;
    let events = raw::poll(&fd, POLLOUT, args.waits as i32);
    checks.eq("poll() sees nothing while it is full", events, Ok(0));
    let accepted = checks.need("accept", full.accept())?;
    let events = raw::poll(&fd, POLLOUT, SOON);
    checks.eq("poll() sees the connection", events, Ok(POLLOUT));
    checks.eq("and SO_ERROR nothing", raw::so_error(&fd), Ok(Errno(0)));
    let served = checks.need("accept", raw::accept(&full.listener))?;
    checks.need("wait", raw::set_nonblocking(&fd, false))?;
    let talked = talk(&fd, &served);
    checks.eq("it is a connection, too", talked, Ok(true));
    drop(accepted);
    Some(())
}

fn refused(args: &Args, checks: &mut Checks) -> Option<()> {
    let full = checks.need("a full backlog", Full::new(args))?;
    let fd = checks.need("connect without waiting", starting(full.addr))?;
    let events = raw::poll(&fd, POLLOUT, FULL as i32);
    checks.eq("it waits", events, Ok(0));
    drop(full);
    let events = raw::poll(&fd, POLLOUT, SOON).map(|e| e & (POLLOUT | POLLERR));
    let ended = Ok(POLLOUT | POLLERR);
    checks.eq("the listener goes: the wait is over", events, ended);
    let error = raw::so_error(&fd);
    checks.eq("nobody listens", error, Ok(Errno(ECONNREFUSED)));
    Some(())
}

fn timed_out(args: &Args, checks: &mut Checks) -> Option<()> {
    let full = checks.need("a full backlog", Full::new(args))?;
    let first = over(checks, &full, "TCP_USER_TIMEOUT", TCP_USER_TIMEOUT, 1500)?;
    // Two tries, for a second and for two.
    over(checks, &full, "TCP_SYNCNT", TCP_SYNCNT, 1)?;
    // The socket can be used again; now it has time.
    let none = raw::setsockopt(&first, IPPROTO_TCP, TCP_USER_TIMEOUT, &0_i32.to_ne_bytes());
    checks.need("no limit", none)?;
    let accepted = checks.need("accept", full.accept())?;
    let again = raw::connect(&first, full.addr);
    checks.eq("connect() of the same socket", again, Ok(()));
    drop(accepted);
    Some(())
}

/// The time of sockets with `option`, which is called `name`, is over. One that has waited for that
/// comes back.
fn over(
    checks: &mut Checks,
    full: &Full,
    name: &str,
    option: c_int,
    value: i32,
) -> Option<OwnedFd> {
    let limited = || {
        let fd = raw::stream()?;
        raw::setsockopt(&fd, IPPROTO_TCP, option, &value.to_ne_bytes())?;
        Ok(fd)
    };
    let first = checks.need(name, limited())?;
    let result = raw::connect(&first, full.addr);
    let what = format!("{name}: connect() when the time is over");
    checks.errno(&what, result, &[ETIMEDOUT]);
    let fd = checks.need(name, limited())?;
    checks.need("do not wait", raw::set_nonblocking(&fd, true))?;
    let result = raw::connect(&fd, full.addr);
    let what = format!("{name}: connect() without waiting");
    checks.errno(&what, result, &[EINPROGRESS]);
    let events = raw::poll(&fd, POLLOUT, SOON).map(|e| e & (POLLOUT | POLLERR));
    let what = format!("{name}: its time is over");
    checks.eq(&what, events, Ok(POLLOUT | POLLERR));
    let error = raw::so_error(&fd);
    checks.eq(&format!("{name}: SO_ERROR"), error, Ok(Errno(ETIMEDOUT)));
    Some(first)
}

/// A socket that stops waiting leaves no connection.
fn given_up(args: &Args, checks: &mut Checks) -> Option<()> {
    let full = checks.need("a full backlog", Full::new(args))?;
    let some: Result<Vec<OwnedFd>> = (0..20).map(|_| starting(full.addr)).collect();
    let some = checks.need("20 that wait", some)?;
    thread::sleep(Duration::from_millis(u64::from(FULL)));
    drop(some);
    let accepted = checks.need("accept", full.accept())?;
    // Longer than the longest delay.
    thread::sleep(Duration::from_millis(1500));
    checks.need("do not wait", raw::set_nonblocking(&full.listener, true))?;
    let none = raw::accept(&full.listener).map(drop);
    checks.errno("what was closed never comes", none, &[EAGAIN]);
    drop(accepted);
    Some(())
}

/// More come at once than there is room for, and one after the other is served.
fn crowd(args: &Args, checks: &mut Checks) -> Option<()> {
    const CALLERS: usize = 24;
    if !raw::is_zrs() {
        // With TCP's first delay of a second, and no bound but a minute, it takes too long.
        return None;
    }
    let full = checks.need("a full backlog", Full::new(args))?;
    let addr = full.addr;
    let call = move || {
        let fd = raw::connected(addr)?;
        let mut hello = [0; 5];
        raw::recv_all(&fd, &mut hello).map(|()| hello == *b"hello")
    };
    let callers: Vec<_> = (0..CALLERS).map(|_| thread::spawn(call)).collect();
    let serve = || {
        for _ in 0..CALLERS + full.waiting.len() {
            let fd = raw::accept(&full.listener)?;
            raw::send_all(&fd, b"hello")?;
        }
        Ok(())
    };
    checks.need("serve", serve())?;
    let results = callers.into_iter().map(|c| c.join().expect("no panic"));
    let bad: Vec<_> = results.filter(|r| *r != Ok(true)).collect();
    checks.eq(
        "each of many callers at once is served",
        bad,
        Vec::<Result<bool>>::new(),
    );
    Some(())
}
