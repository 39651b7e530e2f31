// SPDX-License-Identifier: GPL-2.0
//! SO_RCVBUF: the window that a socket leases to its peer, and the limit of unread data that the
//! peer can send.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libc::{MSG_NOSIGNAL, SOL_SOCKET, SO_RCVBUF};

use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Check the limits of SO_RCVBUF, on connections of this host with itself
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
}

/// Bytes to send so that a window is requested.
const BULK: usize = 500_000;
/// Small messages that may be unread in addition to a window.
const SMALL: u64 = 64 * 1024;
/// The time limit of waits.
fn soon() -> Duration {
    process::patience(20)
}
/// The time for which a sender tries, at least.
const FILLING: Duration = Duration::from_secs(2);

pub fn run(args: &Args, checks: &mut Checks) {
    let addr = SocketAddrV4::new(args.local, 0);
    for test in [before, after, rings, unread] {
        let _ = test(addr, checks);
    }
}

/// The sending and the receiving socket.
struct Pair {
    from: OwnedFd,
    to: OwnedFd,
    pattern: Pattern,
    pos: u64,
}

fn set(fd: &OwnedFd, bytes: u32) -> Result<()> {
    raw::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes.to_ne_bytes())
}

impl Pair {
    /// The receiver has accepted, or connected, and its SO_RCVBUF is `bytes`, from before that.
    fn new(addr: SocketAddrV4, accepts: bool, bytes: Option<u32>) -> Result<Self> {
        let (listener, addr) = raw::listener(addr)?;
        let client = raw::stream()?;
        if let Some(bytes) = bytes {
            set(if accepts { &listener } else { &client }, bytes)?;
        }
        raw::connect(&client, addr)?;
        let server = raw::accept(&listener)?;
        let (from, to) = if accepts {
            (client, server)
        } else {
            (server, client)
        };
        raw::set_recv_timeout(&to, process::patience_ms(20))?;
        Ok(Self {
            from,
            to,
            pattern: Pattern::new(1, 0, 0),
            pos: 0,
        })
    }

    /// Sends bulk data while it is read; returns the size of the window that it was sent through.
    /// EBADMSG: other bytes came.
    fn bulk(&mut self) -> Result<u64> {
        let mut bytes = vec![0; BULK];
        self.pattern.fill(self.pos, &mut bytes);
        let sender = self.from.try_clone()?;
        let sent = thread::spawn(move || raw::send_all(&sender, &bytes));
        let mut seen = Verifier::new(self.pattern);
        seen.pos = self.pos;
        let mut buf = vec![0; BULK];
        raw::recv_all(&self.to, &mut buf)?;
        seen.take(&buf)?;
        self.pos += BULK as u64;
        sent.join().unwrap_or(Err(Errno(libc::EIO)))?;
        match seen.wrong {
            Some(_) => Err(Errno(libc::EBADMSG)),
            None => self.window(),
        }
    }

    /// The window that the receiver has leased.
    fn window(&self) -> Result<u64> {
        Ok(zrs_sys::sock::info(self.to.as_fd())?.window)
    }
}

/// Set before the connection is made.
fn before(addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    for (accepts, who) in [(true, "accepted"), (false, "connected")] {
        for (bytes, window) in [(1, 65_536), (100_000, 65_536), (200_000, 196_608)] {
            let mut pair = checks.need("a connection", Pair::new(addr, accepts, Some(bytes)))?;
            let name = format!("SO_RCVBUF {bytes}, {who}: the window");
            checks.eq(&name, pair.bulk(), Ok(window));
        }
        let mut pair = checks.need("a connection", Pair::new(addr, accepts, None))?;
        let window = checks.need("bulk data", pair.bulk())?;
        let name = format!("without SO_RCVBUF, {who}: a larger window");
        checks.yes(&name, window > 196_608, &format!("{window} bytes"));
    }
    Some(())
}

/// Set when there is a window.
fn after(addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let mut pair = checks.need("a connection", Pair::new(addr, true, None))?;
    let first = checks.need("bulk data", pair.bulk())?;
    checks.need("SO_RCVBUF", set(&pair.to, 2 * first as u32))?;
    thread::sleep(Duration::from_millis(100));
    checks.eq("a window that fits stays", pair.window(), Ok(first));
    checks.need("SO_RCVBUF", set(&pair.to, 131_072))?;
    let begin = Instant::now();
    while pair.window() == Ok(first) && begin.elapsed() < soon() {
        thread::sleep(Duration::from_millis(5));
    }
    checks.eq("one that is too large is given back", pair.window(), Ok(0));
    checks.eq("the next one is not", pair.bulk(), Ok(131_072));
    Some(())
}

/// A ring shows the window.
fn rings(addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let mut pair = checks.need("a connection", Pair::new(addr, true, None))?;
    let first = checks.need("bulk data", pair.bulk())?;
    checks.need("SO_RCVBUF", set(&pair.to, 150_000))?;
    checks.need("a ring", raw::make_ring(&pair.to))?;
    checks.eq("the window of a ring", pair.window(), Ok(131_072));
    let mut pair = checks.need("a connection", Pair::new(addr, true, None))?;
    checks.need("a ring", raw::make_ring(&pair.to))?;
    checks.need("SO_RCVBUF", set(&pair.to, 150_000))?;
    checks.eq("what a ring shows stays", pair.bulk(), Ok(first));
    Some(())
}

/// Without a reader: data that has left the pool is in main memory, and counts.
fn unread(addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    const SET: u32 = 200_000;
    const WINDOW: u64 = 196_608;
    const MOST: u64 = 400_000 + SMALL;
    let mut seen = [0; 2];
    for (bytes, seen) in [Some(SET), None].into_iter().zip(&mut seen) {
        let pair = checks.need("a connection", Pair::new(addr, true, bytes))?;
        // From pages: the number of small pieces is limited.
        checks.need("SO_SNDTIMEO", raw::set_send_timeout(&pair.from, 200))?;
        let piece = vec![5; 1 << 20];
        let least = bytes.map_or(MOST + 1, |_| WINDOW);
        let begin = Instant::now();
        // On a slow machine until there is as much as must be.
        while begin.elapsed() < FILLING || *seen < least && begin.elapsed() < soon() {
            match raw::send(&pair.from, &piece, MSG_NOSIGNAL) {
                Ok(n) => *seen += n as u64,
                Err(Errno(libc::EAGAIN)) => {}
                Err(e) => {
                    checks.fail("send", &e.to_string());
                    return None;
                }
            }
        }
    }
    let [bound, free] = seen;
    let detail = format!("{bound} bytes, {free} without it");
    checks.yes("SO_RCVBUF bounds what nobody reads", bound <= MOST, &detail);
    checks.yes("and lets a window be filled", bound >= WINDOW, &detail);
    checks.yes("without it there is more", free > MOST, &detail);
    Some(())
}
