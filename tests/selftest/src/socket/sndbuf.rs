// SPDX-License-Identifier: GPL-2.0
//! SO_SNDBUF: the bytes that a socket holds while the peer's device acknowledges nothing, waiting
//! senders and their wake-ups; and that every byte arrives, however little it may hold.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_ZEROCOPY, POLLOUT, SOL_SOCKET, SO_SNDBUF};
use zrs::PageBuf;

use crate::events::poll::Bits;
use crate::support::args::End;
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;
use crate::support::wild;

/// Check the limits of SO_SNDBUF; the server verifies every byte
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The command that cuts the server off: check the held bytes while it is cut off; without it,
    /// check the received bytes
    #[arg(long, requires = "mend")]
    cut: Option<String>,
    /// And the one that ends that
    #[arg(long)]
    mend: Option<String>,
}

/// SO_BUF_LOCK and its bit for SO_SNDBUF.
const SO_BUF_LOCK: i32 = 72;
/// Up to here a call is copied.
const SMALL: usize = 4096;
/// The time limit of waits.
const SOON: Duration = Duration::from_secs(30);

pub fn run(args: &Args, checks: &mut Checks) {
    match (args.end.server, args.end.client) {
        (Some(addr), _) => drop(server(args, addr, checks)),
        (None, Some(addr)) => {
            let wire = match (&args.cut, &args.mend) {
                (Some(cut), Some(mend)) => Some(Wire { cut, mend }),
                _ => None,
            };
            client(args, addr, wire.as_ref(), checks);
        }
        (None, None) => {}
    }
}

/// Verifies one connection after another, until one brings nothing.
fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (listener, addr) = checks.need("listen", raw::listener(addr))?;
    say(&format!("listening on {addr}"));
    for index in 0.. {
        let conn = checks.need("accept", raw::accept(&listener))?;
        let mut rx = checks.need("receiver", Rx::new(&conn, false, 0))?;
        let mut verifier = Verifier::new(Pattern::new(args.seed, 0, index));
        checks.need("receive", rx.all(|bytes| verifier.take(bytes)))?;
        if verifier.pos == 0 {
            break;
        }
        checks.need("answer", verified::answer(&conn, &verifier))?;
    }
    Some(())
}

fn client(args: &Args, addr: SocketAddrV4, wire: Option<&Wire<'_>>, checks: &mut Checks) {
    let mut streams = Streams {
        seed: args.seed,
        addr,
        made: 0,
    };
    let done = match wire {
        Some(wire) => held(&mut streams, wire, checks),
        None => flows(&mut streams, checks),
    };
    if done.is_some() {
        drop(checks.need("the last connection", raw::connected(addr)));
    }
}

/// How the server is cut off.
struct Wire<'a> {
    cut: &'a str,
    mend: &'a str,
}

impl Wire<'_> {
    fn run(command: &str, checks: &mut Checks) -> Option<()> {
        let status = Command::new("sh").arg("-c").arg(command).status();
        let fine = status.is_ok_and(|s| s.success());
        let said = if fine { Ok(()) } else { Err(Errno(libc::EIO)) };
        checks.need(command, said)
    }
}

/// The connections to the server, one after the other.
struct Streams {
    seed: u64,
    addr: SocketAddrV4,
    made: u64,
}

impl Streams {
    /// A connection whose socket may hold twice `half` bytes, if that is given.
    fn open(&mut self, half: Option<usize>, checks: &mut Checks) -> Option<Stream> {
        let fd = checks.need("connect", raw::connected(self.addr))?;
        let pattern = Pattern::new(self.seed, 0, self.made);
        self.made += 1;
        let mut stream = Stream {
            fd,
            pattern,
            pos: 0,
            limit: usize::MAX,
        };
        if let Some(half) = half {
            stream.limit = checks.need("SO_SNDBUF", set(&stream.fd, half))?;
        }
        Some(stream)
    }
}

/// Sets SO_SNDBUF; returns its value afterwards.
fn set(fd: &impl AsFd, half: usize) -> Result<usize> {
    raw::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(half as i32).to_ne_bytes())?;
    Ok(raw::getsockopt_int(fd, SOL_SOCKET, SO_SNDBUF)? as usize)
}

/// A connection, and the stream that goes there.
struct Stream {
    fd: OwnedFd,
    pattern: Pattern,
    pos: u64,
    limit: usize,
}

impl Stream {
    /// One call with the next `len` bytes, in newly allocated memory.
    fn call(&mut self, len: usize, flags: i32) -> Result<usize> {
        let mut memory = PageBuf::new(len)?;
        self.pattern.fill(self.pos, &mut memory);
        let n = raw::send(&self.fd, &memory, flags | MSG_NOSIGNAL)?;
        self.pos += n as u64;
        Ok(n)
    }

    /// Sends `total` bytes in calls of `len` until there is no room; how many went.
    fn fill(&mut self, len: usize, total: usize, flags: i32) -> Result<usize> {
        let mut sent = 0;
        while sent < total {
            match self.call(len.min(total - sent), flags | MSG_DONTWAIT) {
                Ok(n) => sent += n,
                Err(Errno(libc::EAGAIN)) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    fn poll(&self, ms: i32) -> Result<Bits> {
        raw::poll(&self.fd, POLLOUT, ms).map(Bits)
    }

    /// Waits until the device is done with all that was sent.
    fn delivered(&self) -> Result<()> {
        let begin = Instant::now();
        while raw::ioctl_int(&self.fd, libc::TIOCOUTQ)? > 0 {
            if begin.elapsed() > SOON {
                return Err(Errno(libc::ETIMEDOUT));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn end(self, checks: &mut Checks) -> Option<()> {
        verified::end(&self.fd, self.pos, checks)
    }
}

/// Bytes held while nothing is acknowledged.
fn held(streams: &mut Streams, wire: &Wire<'_>, checks: &mut Checks) -> Option<()> {
    copies(streams, wire, checks)?;
    pages(streams, wire, checks)?;
    waiters(streams, wire, checks)
}

fn copies(streams: &mut Streams, wire: &Wire<'_>, checks: &mut Checks) -> Option<()> {
    let mut bound = streams.open(Some(8192), checks)?;
    let mut free = streams.open(None, checks)?;
    checks.eq("SO_SNDBUF reads as twice what was set", bound.limit, 16_384);
    checks.need("SO_SNDTIMEO", raw::set_send_timeout(&bound.fd, 50))?;
    Wire::run(wire.cut, checks)?;
    // In few messages: there are not many slots for them on a link.
    let mut sent = 0;
    for len in [3000, 100, 7] {
        sent += checks.need("send", bound.fill(len, 1 << 20, 0))?;
    }
    let polled = bound.poll(0);
    let late = bound.call(10, 0);
    let others = free.fill(4000, 40_000, 0);
    Wire::run(wire.mend, checks)?;
    checks.eq("copies that may be held", sent, bound.limit);
    checks.eq("then poll() says no OUT", polled, Ok(Bits(0)));
    checks.errno(
        "a send that waits ends with SO_SNDTIMEO",
        late,
        &[libc::EAGAIN],
    );
    checks.eq("a socket without SO_SNDBUF holds more", others, Ok(40_000));
    checks.eq(
        "poll(), when they have left",
        bound.poll(30_000),
        Ok(Bits(POLLOUT)),
    );
    checks.eq(
        "then there is room",
        bound.call(SMALL, MSG_DONTWAIT),
        Ok(SMALL),
    );
    bound.end(checks)?;
    free.end(checks)
}

fn pages(streams: &mut Streams, wire: &Wire<'_>, checks: &mut Checks) -> Option<()> {
    const FILE: usize = 1 << 20;
    for (name, zerocopy) in [("MSG_ZEROCOPY", true), ("sendfile()", false)] {
        let mut stream = streams.open(Some(65_536), checks)?;
        checks.eq("SO_SNDBUF for pages", stream.limit, 131_072);
        let option = zrs_sys::sock::set_zerocopy(stream.fd.as_fd(), true);
        checks.need("SO_ZEROCOPY", option.map_err(Errno::from))?;
        // From now on it has a window.
        checks.need("send", stream.call(200_000, 0))?;
        checks.need("delivered", stream.delivered())?;
        let file = checks.need("a file", wild::memfd(FILE, false))?;
        let mut bytes = vec![0; FILE];
        stream.pattern.fill(stream.pos, &mut bytes);
        let written = std::io::Write::write_all(
            &mut std::fs::File::from(checks.need("dup", file.try_clone().map_err(Errno::from))?),
            &bytes,
        );
        checks.need("write", written.map_err(Errno::from))?;
        checks.need("non-blocking", raw::set_nonblocking(&stream.fd, true))?;
        Wire::run(wire.cut, checks)?;
        let sent = if zerocopy {
            stream.fill(FILE, FILE, MSG_ZEROCOPY)
        } else {
            let mut at = 0;
            loop {
                match wild::sendfile(&stream.fd, &file, at, FILE - at) {
                    Ok(n) => at += n,
                    Err(Errno(libc::EAGAIN)) => break Ok(at),
                    Err(e) => break Err(e),
                }
            }
        };
        let in_flight = raw::ioctl_int(&stream.fd, libc::TIOCOUTQ);
        let polled = stream.poll(0).map(|bits| Bits(bits.0 & POLLOUT));
        Wire::run(wire.mend, checks)?;
        let sent = checks.need(name, sent)?;
        if !zerocopy {
            stream.pos += sent as u64;
        }
        checks.eq(&format!("{name}: bytes of pages held"), sent, stream.limit);
        checks.eq(&format!("{name}: under way"), in_flight, Ok(sent as i32));
        checks.eq(&format!("{name}: poll() says no OUT"), polled, Ok(Bits(0)));
        let polled = stream.poll(30_000).map(|bits| Bits(bits.0 & POLLOUT));
        checks.eq(&format!("{name}: but then"), polled, Ok(Bits(POLLOUT)));
        checks.need("blocking", raw::set_nonblocking(&stream.fd, false))?;
        stream.end(checks)?;
    }
    Some(())
}

/// A waiting sender continues when SO_SNDBUF is made larger, and when it counts no more.
fn waiters(streams: &mut Streams, wire: &Wire<'_>, checks: &mut Checks) -> Option<()> {
    type Change = fn(&OwnedFd) -> Result<()>;
    let changes: [(&str, Change); 2] = [
        ("SO_SNDBUF is made larger", |fd| set(fd, 32_768).map(drop)),
        ("SO_BUF_LOCK takes it back", |fd| {
            raw::setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &0_i32.to_ne_bytes())
        }),
    ];
    for (name, change) in changes {
        let mut stream = streams.open(Some(4096), checks)?;
        Wire::run(wire.cut, checks)?;
        let sent = checks.need("send", stream.fill(512, 1 << 20, 0))?;
        let sender = waiting(&mut stream, 3000);
        let epoll = checks.need("epoll", edge(&stream.fd))?;
        thread::sleep(Duration::from_millis(200));
        let early = sender.is_finished();
        let changed = change(&stream.fd);
        let told = raw::epoll_wait(&epoll, SOON.as_millis() as i32).map(|events| events.len());
        let woken = within(SOON, || sender.is_finished());
        Wire::run(wire.mend, checks)?;
        checks.eq(&format!("{name}: full before"), sent, stream.limit);
        checks.eq(&format!("{name}: a sender waits"), early, false);
        checks.need(name, changed)?;
        checks.eq(&format!("{name}: epoll tells"), told, Ok(1));
        checks.eq(&format!("{name}: the sender goes on"), woken, true);
        let seen = sender.join().unwrap_or(Err(Errno(libc::EIO)));
        checks.eq(&format!("{name}: and has sent"), seen, Ok(3000));
        stream.end(checks)?;
    }
    Some(())
}

/// A thread that sends the next `len` bytes.
fn waiting(stream: &mut Stream, len: usize) -> JoinHandle<Result<usize>> {
    let mut bytes = vec![0; len];
    stream.pattern.fill(stream.pos, &mut bytes);
    stream.pos += len as u64;
    let fd = stream.fd.try_clone();
    thread::spawn(move || raw::send(&fd?, &bytes, MSG_NOSIGNAL))
}

fn edge(fd: &OwnedFd) -> Result<OwnedFd> {
    let epoll = raw::epoll()?;
    raw::epoll_ctl(
        &epoll,
        libc::EPOLL_CTL_ADD,
        fd,
        libc::EPOLLOUT | libc::EPOLLET,
    )?;
    Ok(epoll)
}

fn within(most: Duration, mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + most;
    while !so() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

type Sender = fn(&mut Stream, &mut Rng) -> Result<()>;

/// Everything arrives, whatever is sent how, and whatever may be held.
fn flows(streams: &mut Streams, checks: &mut Checks) -> Option<()> {
    let senders: [(&str, Sender); 5] = [
        ("blocking", blocking),
        ("from pages", pinned),
        ("non-blocking, by poll()", polled),
        ("non-blocking, by epoll's edges", edges),
        ("MSG_ZEROCOPY", zerocopy),
    ];
    for half in [1, 5000, 65_536] {
        for (name, send) in senders {
            let mut rng = Rng::new(streams.seed, streams.made);
            let mut stream = streams.open(Some(half), checks)?;
            let name = format!("SO_SNDBUF {}: {name}", stream.limit);
            let sent = send(&mut stream, &mut rng);
            if !checks.eq(&name, sent, Ok(())) {
                return None;
            }
            stream.end(checks)?;
        }
    }
    // It may change at any time.
    let mut rng = Rng::new(streams.seed, streams.made);
    let mut stream = streams.open(None, checks)?;
    for _ in 0..200 {
        let half = rng.pick(&[1, 3000, 20_000, 200_000]);
        checks.need("SO_SNDBUF", set(&stream.fd, half))?;
        let len = 1 + rng.below(40_000);
        checks.need("send", stream.call(len, 0))?;
    }
    stream.end(checks)
}

fn blocking(stream: &mut Stream, rng: &mut Rng) -> Result<()> {
    for _ in 0..300 {
        let most = rng.pick(&[1, 100, SMALL, 16_000]);
        let len = 1 + rng.below(most);
        // It waits for all of it.
        if stream.call(len, 0)? != len {
            return Err(Errno(libc::EIO));
        }
    }
    Ok(())
}

fn pinned(stream: &mut Stream, rng: &mut Rng) -> Result<()> {
    for _ in 0..20 {
        let len = 16_384 + rng.below(300_000);
        if stream.call(len, 0)? != len {
            return Err(Errno(libc::EIO));
        }
    }
    Ok(())
}

/// After poll() has said OUT there is room for a small message, or for the first part of a larger
/// one, which may be a few bytes at the end of the window: EPROTO if not. Meanwhile completions send
/// the corked messages, on another processor: many turns, to meet that moment.
fn polled(stream: &mut Stream, rng: &mut Rng) -> Result<()> {
    raw::set_nonblocking(&stream.fd, true)?;
    for _ in 0..6000 {
        if raw::poll(&stream.fd, POLLOUT, 30_000)? != POLLOUT {
            return Err(Errno(libc::ETIMEDOUT));
        }
        let len = rng.pick(&[1, 200, SMALL, 5000, 50_000]);
        match stream.call(len, 0) {
            Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::EPROTO)),
            Ok(n) if n == 0 || len <= SMALL && n < len => return Err(Errno(libc::EPROTO)),
            other => drop(other?),
        }
    }
    raw::set_nonblocking(&stream.fd, false)
}

fn edges(stream: &mut Stream, rng: &mut Rng) -> Result<()> {
    let epoll = edge(&stream.fd)?;
    for _ in 0..60 {
        let total = 1 + rng.below(100_000);
        let len = rng.pick(&[300, 3000, 100_000]);
        let mut sent = 0;
        while sent < total {
            sent += stream.fill(len.min(total - sent), total - sent, 0)?;
            if sent < total && raw::epoll_wait(&epoll, 30_000)?.is_empty() {
                return Err(Errno(libc::ETIMEDOUT));
            }
        }
    }
    Ok(())
}

fn zerocopy(stream: &mut Stream, rng: &mut Rng) -> Result<()> {
    zrs_sys::sock::set_zerocopy(stream.fd.as_fd(), true)?;
    for _ in 0..20 {
        let len = 1 + rng.below(300_000);
        if stream.call(len, MSG_ZEROCOPY)? != len {
            return Err(Errno(libc::EIO));
        }
        while zrs_sys::sock::completion(stream.fd.as_fd())?.is_some() {}
    }
    Ok(())
}
