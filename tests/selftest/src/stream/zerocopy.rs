// SPDX-License-Identifier: GPL-2.0
//! MSG_ZEROCOPY, compared with TCP: which calls have a notification, and its contents.

use std::io::IoSlice;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use libc::{MSG_NOSIGNAL, MSG_ZEROCOPY, POLLERR, POLLIN, POLLOUT, SOL_SOCKET, SO_ZEROCOPY};
use zrs::{PageBuf, Stream};
use zrs_sys::sock::Completion;

use crate::events::poll::Bits;
use crate::support::args::{End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::uring::Uring;
use crate::support::{verified, wild};

/// Send with MSG_ZEROCOPY and look at the notifications; the server verifies every byte
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server receives by the ring
    #[arg(long)]
    ring: bool,
}

/// Up to here a call is copied.
const SMALL: usize = 4096;
/// Bytes of one call, where the size does not matter.
const CALL: usize = 20_000;
/// The client's test in which the server sends this number of bytes first.
const WINDOW_TEST: u64 = 3;
const WINDOW_BYTES: usize = 300_000;
/// The time limit of waits.
fn soon() -> Duration {
    process::patience(20)
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => client(args, addr, checks),
    }
}

/// Verifies one connection after another, until one brings nothing. Reports for each the number of
/// bytes, and the position of the first wrong one.
fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (listener, addr) = checks.need("listen", raw::listener(addr))?;
    checks.need(
        "set SO_ZEROCOPY",
        zrs_sys::sock::set_zerocopy(listener.as_fd(), true).map_err(Into::into),
    )?;
    say(&format!("listening on {addr}"));
    for index in 0.. {
        let conn = checks.need("accept", raw::accept(&listener))?;
        let inherited = raw::getsockopt_int(&conn, SOL_SOCKET, SO_ZEROCOPY);
        if inherited != Ok(1) {
            checks.eq("SO_ZEROCOPY of an accepted socket", inherited, Ok(1));
        }
        let mut rx = checks.need("receiver", Rx::new(&conn, args.ring, 0))?;
        let mut verifier = Verifier::new(Pattern::new(args.seed, 0, index));
        if index == WINDOW_TEST {
            let mut bytes = vec![0; WINDOW_BYTES];
            verifier.pattern().fill(0, &mut bytes);
            checks.need("send what comes back", raw::send_all(&conn, &bytes))?;
        }
        checks.need("receive", rx.all(|bytes| verifier.take(bytes)))?;
        if verifier.pos == 0 {
            break;
        }
        checks.need("answer", verified::answer(&conn, &verifier))?;
    }
    Some(())
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) {
    type Test = fn(&mut Conn, &mut Checks) -> Option<()>;
    // The last one gives up its rights.
    let tests: [Test; 10] = [
        off,
        ids,
        copied,
        window,
        contents,
        vectored,
        nonblocking,
        polled,
        uring,
        locked,
    ];
    for (index, test) in tests.into_iter().enumerate() {
        let pattern = Pattern::new(args.seed, 0, index as u64);
        let Some(mut conn) = Conn::new(addr, pattern, checks) else {
            return;
        };
        if test(&mut conn, checks).is_none() || conn.end(checks).is_none() {
            return;
        }
    }
    drop(checks.need("the last connection", raw::connected(addr)));
}

/// A sender with MSG_ZEROCOPY that counts its calls and notifications.
#[derive(Default)]
pub struct Zerocopy {
    /// Calls that sent something.
    pub calls: u32,
    /// Ids that notifications were about.
    pub told: u32,
    /// Notifications.
    notes: u32,
    /// The last one.
    pub last: Option<Completion>,
}

impl Zerocopy {
    /// Sets the option.
    pub fn open(&mut self, fd: &OwnedFd) -> Result<()> {
        Ok(zrs_sys::sock::set_zerocopy(fd.as_fd(), true)?)
    }

    /// One call.
    pub fn send(&mut self, fd: &OwnedFd, buf: &[u8]) -> Result<usize> {
        let n = zrs_sys::sock::send_zerocopy(fd.as_fd(), buf)?;
        self.calls += 1;
        Ok(n)
    }

    /// Sends all of `buf` from memory that is unmapped when the last call returns, and reads the
    /// notifications that have come.
    pub fn send_all(&mut self, fd: &OwnedFd, buf: &[u8]) -> Result<()> {
        let mut own = PageBuf::new(buf.len())?;
        own.copy_from_slice(buf);
        let mut left = &own[..];
        while !left.is_empty() {
            match self.send(fd, left) {
                Ok(n) => left = &left[n..],
                // ENOBUFS of the socket's option memory, when many notifications are in flight or
                // unread.
                Err(Errno(libc::ENOBUFS)) => drop(raw::poll(fd, 0, 1000)?),
                Err(Errno(libc::EAGAIN)) => drop(raw::poll(fd, POLLOUT, 1000)?),
                Err(Errno(libc::EINTR)) => {}
                Err(e) => return Err(e),
            }
            while self.reap(fd)? {}
        }
        Ok(())
    }

    /// Reads a notification if there is one. EPROTO: not of the ids that come next.
    fn reap(&mut self, fd: &OwnedFd) -> Result<bool> {
        let Some(done) = zrs_sys::sock::completion(fd.as_fd())? else {
            return Ok(false);
        };
        self.notes += 1;
        self.last = Some(done);
        if done.first != self.told || done.last < done.first || done.last >= self.calls {
            say(&format!(
                "# {done:?} after {} of {} calls",
                self.told, self.calls
            ));
            return Err(Errno(libc::EPROTO));
        }
        self.told = done.last + 1;
        Ok(true)
    }

    /// Reads notifications until all calls were in one.
    pub fn reap_all(&mut self, fd: &OwnedFd) -> Result<()> {
        let begin = Instant::now();
        while self.told < self.calls {
            if !self.reap(fd)? {
                raw::poll(fd, 0, 100)?;
                if begin.elapsed() > soon() {
                    return Err(Errno(libc::ETIMEDOUT));
                }
            }
        }
        Ok(())
    }
}

/// A connection to the server, and the stream that goes there.
struct Conn {
    fd: OwnedFd,
    pattern: Pattern,
    pos: u64,
    out: Zerocopy,
}

impl Conn {
    fn new(addr: SocketAddrV4, pattern: Pattern, checks: &mut Checks) -> Option<Self> {
        let fd = checks.need("connect", raw::connected(addr))?;
        Some(Self {
            fd,
            pattern,
            pos: 0,
            out: Zerocopy::default(),
        })
    }

    fn enable(&mut self, checks: &mut Checks) -> Option<()> {
        checks.need("set SO_ZEROCOPY", self.out.open(&self.fd))
    }

    /// The next `len` bytes, at offset `align` of a page, in newly allocated memory.
    fn next(&self, len: usize, align: usize) -> Result<PageBuf> {
        let mut memory = PageBuf::new(align + len)?;
        self.pattern.fill(self.pos, &mut memory[align..]);
        Ok(memory)
    }

    /// One call of `len` bytes; the memory is gone when this returns.
    fn call(&mut self, len: usize, align: usize) -> Result<usize> {
        let memory = self.next(len, align)?;
        let n = self.out.send(&self.fd, &memory[align..])?;
        self.pos += n as u64;
        Ok(n)
    }

    /// The bytes that the module counted as copied.
    fn copied(&self) -> Result<u64> {
        Ok(zrs_sys::sock::info(self.fd.as_fd())?.tx_copied)
    }

    /// Nothing is on the error queue.
    fn none(&mut self, name: &str, checks: &mut Checks) -> Option<()> {
        let seen = checks.need(name, self.out.reap(&self.fd))?;
        checks.eq(name, (seen, self.out.told), (false, self.out.calls));
        Some(())
    }

    /// The server has all of it, and it is right.
    fn end(self, checks: &mut Checks) -> Option<()> {
        verified::end(&self.fd, self.pos, checks)
    }
}

fn off(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let option = |fd: &OwnedFd| raw::getsockopt_int(fd, SOL_SOCKET, SO_ZEROCOPY);
    let set = |fd: &OwnedFd, value: &[u8]| raw::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, value);
    checks.eq("SO_ZEROCOPY at first", option(&conn.fd), Ok(0));
    for bad in [2_i32, -1] {
        let name = format!("SO_ZEROCOPY set to {bad}");
        checks.errno(&name, set(&conn.fd, &bad.to_ne_bytes()), &[libc::EINVAL]);
    }
    checks.errno(
        "SO_ZEROCOPY of three bytes",
        set(&conn.fd, &[1, 0, 0]),
        &[libc::EINVAL],
    );
    for value in [1_i32, 0] {
        checks.need("set SO_ZEROCOPY", set(&conn.fd, &value.to_ne_bytes()))?;
        checks.eq("SO_ZEROCOPY as it was set", option(&conn.fd), Ok(value));
    }
    for len in [100, 100_000] {
        let name = format!("option off: {len} bytes");
        let sent = checks.need(&name, conn.call(len, 0))?;
        checks.eq(&name, sent, len);
    }
    // These do not count: they have no notification.
    conn.out.calls = 0;
    if raw::is_zrs() {
        checks.eq("option off: copied as ever", conn.copied(), Ok(100));
    }
    let quiet = raw::poll(&conn.fd, 0, 300).map(Bits);
    checks.eq("option off: no ERR", quiet, Ok(Bits(0)));
    conn.none("option off: no notification", checks)
}

fn ids(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    const CALLS: u32 = 8;
    conn.enable(checks)?;
    for _ in 0..CALLS {
        checks.need("send", conn.call(CALL, 1))?;
    }
    let begin = Instant::now();
    while checks.need("SIOCOUTQ", raw::ioctl_int(&conn.fd, libc::TIOCOUTQ))? > 0
        && begin.elapsed() < soon()
    {
        thread::sleep(Duration::from_millis(10));
    }
    checks.need(
        "each call has one id, in order",
        conn.out.reap_all(&conn.fd),
    )?;
    checks.eq("ids of eight calls", conn.out.told, CALLS);
    // The last one may come while the queue is being read.
    let notes = conn.out.notes;
    checks.yes(
        "notifications are joined",
        notes <= 2,
        &format!("{notes} of them"),
    );
    conn.none("no more than that", checks)?;

    let empty = raw::send(&conn.fd, &[], MSG_ZEROCOPY | MSG_NOSIGNAL);
    checks.eq("no bytes", empty, Ok(0));
    for len in [1, 4096] {
        let bad = raw::send_bad(&conn.fd, len, MSG_ZEROCOPY | MSG_NOSIGNAL);
        checks.errno(
            &format!("{len} bytes that are not there"),
            bad,
            &[libc::EFAULT],
        );
    }
    checks.need("send", conn.call(CALL, 0))?;
    checks.need("these took no id", conn.out.reap_all(&conn.fd))?;
    conn.none("nor a notification", checks)
}

fn copied(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    conn.enable(checks)?;
    let mut small = 0;
    for len in [1, 100, SMALL, SMALL + 1, 16 << 10, 100_001, 1 << 20] {
        let name = format!("{len} bytes");
        checks.need(&name, conn.call(len, 7))?;
        checks.need(&name, conn.out.reap_all(&conn.fd))?;
        if raw::is_zrs() {
            let said = conn.out.last.map(|c| c.copied);
            checks.eq(&format!("{name}: copied"), said, Some(len <= SMALL));
            small += if len <= SMALL { len } else { 0 };
            checks.eq(
                &format!("{name}: tx_copied"),
                conn.copied(),
                Ok(small as u64),
            );
        }
    }
    Some(())
}

/// The window of a ring is memory that cannot be pinned.
fn window(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    conn.enable(checks)?;
    if !raw::is_zrs() {
        let mut bytes = vec![0; WINDOW_BYTES];
        checks.need("recv", raw::recv_all(&conn.fd, &mut bytes))?;
        checks.need("send", conn.call(WINDOW_BYTES, 0))?;
        return checks.need("notification", conn.out.reap_all(&conn.fd));
    }
    let fd = checks.need("dup", conn.fd.try_clone().map_err(Into::into))?;
    let ring = checks.need("ring", Stream::from(fd).rx_ring().map_err(Into::into))?;
    let mut large = 0;
    while conn.pos < WINDOW_BYTES as u64 {
        let segment = checks.need("segment", ring.recv().map_err(Into::into))?;
        let segment = checks.need("segment", segment.ok_or(Errno(libc::EPIPE)))?;
        let sent = checks.need(
            "send it back",
            conn.out.send(&conn.fd, wild::trusted(segment.view())),
        )?;
        conn.pos += sent as u64;
        large += u32::from(sent > SMALL);
        checks.need("notification", conn.out.reap_all(&conn.fd))?;
        let said = conn.out.last.map(|c| c.copied);
        if (sent, said) != (segment.len(), Some(true)) {
            let expected = (segment.len(), Some(true));
            checks.eq("a segment of the window", (sent, said), expected);
        }
    }
    checks.yes("large segments sent from the window", large > 0, "none");
    checks.eq("all of them copied", conn.copied(), Ok(WINDOW_BYTES as u64));
    // The end of the ring would shut the socket down; the end of the process is soon enough.
    std::mem::forget(ring);
    Some(())
}

fn contents(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    conn.enable(checks)?;
    let sizes = [
        1,
        4095,
        4097,
        8191,
        65_537,
        262_144,
        262_145,
        1_048_577,
        4 << 20,
    ];
    let mut small = 0;
    for align in [0, 1, 13, 4095] {
        for len in sizes {
            let name = format!("{len} bytes, {align} into a page");
            let sent = checks.need(&name, conn.call(len, align))?;
            if sent != len {
                checks.eq(&name, sent, len);
            }
            small += if len <= SMALL { len } else { 0 };
            // One that was copied has its notification at once, before those of earlier calls.
            checks.need(&name, conn.out.reap_all(&conn.fd))?;
        }
    }
    if raw::is_zrs() {
        checks.eq("all sizes: copied", conn.copied(), Ok(small as u64));
    }
    Some(())
}

/// Several buffers in one call: one id, and nothing is copied, however small some of them are.
fn vectored(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    conn.enable(checks)?;
    let lens = [1, 4095, 0, 20_000, 100, 300_001];
    let total = lens.iter().sum();
    let memory = checks.need("several buffers", conn.next(total, 7))?;
    let mut left = &memory[7..];
    let mut parts = Vec::new();
    for len in lens {
        let (part, rest) = left.split_at(len);
        parts.push(IoSlice::new(part));
        left = rest;
    }
    let sent = zrs_sys::sock::send_zerocopy_vectored(conn.fd.as_fd(), &parts);
    let sent = checks.need("several buffers", sent.map_err(Into::into))?;
    checks.eq("several buffers", sent, total);
    conn.pos += sent as u64;
    conn.out.calls += 1;
    checks.need("several buffers have one id", conn.out.reap_all(&conn.fd))?;
    if raw::is_zrs() {
        checks.eq("several buffers: copied", conn.copied(), Ok(0));
    }
    conn.none("no more than that", checks)
}

fn nonblocking(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    const LEAST: u64 = 4 << 20;
    conn.enable(checks)?;
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&conn.fd, true))?;
    let mut full = 0;
    while full == 0 || conn.pos < LEAST {
        match conn.call(100_000, 5) {
            Ok(_) => {}
            Err(Errno(libc::EAGAIN)) => {
                full += 1;
                checks.need("poll", raw::poll(&conn.fd, POLLOUT, -1))?;
            }
            Err(e) => {
                checks.need::<()>("a non-blocking call", Err(e))?;
            }
        }
        while checks.need("notifications", conn.out.reap(&conn.fd))? {}
    }
    say(&format!(
        "# {} calls sent something, {full} did not",
        conn.out.calls
    ));
    checks.need("one id for each that did", conn.out.reap_all(&conn.fd))?;
    checks.eq("ids of non-blocking calls", conn.out.told, conn.out.calls);
    if raw::is_zrs() {
        checks.eq("non-blocking: copied", conn.copied(), Ok(0));
    }
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&conn.fd, false))?;
    conn.none("no more than that", checks)
}

fn polled(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    conn.enable(checks)?;
    let fd = checks.need("dup", conn.fd.try_clone().map_err(Into::into))?;
    let woken = thread::scope(|s| {
        let sleeper = s.spawn(|| raw::poll(&fd, POLLIN, 20_000).map(Bits));
        thread::sleep(Duration::from_millis(300));
        checks.need("send", conn.call(CALL, 0));
        sleeper.join().expect("the poller panicked")
    });
    checks.eq(
        "poll() sleeps until the notification",
        woken,
        Ok(Bits(POLLERR)),
    );
    checks.eq(
        "poll() with a notification",
        raw::poll(&conn.fd, 0, 0).map(Bits),
        Ok(Bits(POLLERR)),
    );
    checks.eq("it is no error", raw::so_error(&conn.fd), Ok(Errno(0)));
    checks.need("notification", conn.out.reap_all(&conn.fd))?;
    checks.eq(
        "poll() when it was read",
        raw::poll(&conn.fd, 0, 0).map(Bits),
        Ok(Bits(0)),
    );
    Some(())
}

fn uring(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut ring = match Uring::new() {
        Ok(ring) => ring,
        Err(e) => {
            say(&format!("# there is no io_uring here: {e}"));
            checks.need("send", conn.call(CALL, 0))?;
            return Some(());
        }
    };
    for len in [100, CALL, 3 << 20] {
        let name = format!("io_uring: {len} bytes");
        let memory = checks.need(&name, conn.next(len, 3))?;
        let flags = MSG_NOSIGNAL | libc::MSG_WAITALL;
        let sent = checks.need(&name, ring.send_zc(&conn.fd, &memory[3..], flags))?;
        checks.eq(&name, sent, len);
        conn.pos += sent as u64;
    }
    if raw::is_zrs() {
        // It goes on after a short count, and the rest may be small.
        let copied = checks.need("ZRS_INFO", conn.copied())?;
        let detail = format!("{copied} bytes");
        checks.yes(
            "io_uring: hardly copied",
            copied <= (100 + SMALL) as u64,
            &detail,
        );
    }
    conn.none("io_uring: nothing on the error queue", checks)
}

fn locked(conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    conn.enable(checks)?;
    checks.need("limit", process::limit_locked(0))?;
    checks.need("setresuid", process::become_nobody())?;
    for len in [1, CALL] {
        let name = format!("{len} bytes, and none may be locked");
        checks.errno(&name, conn.call(len, 0), &[libc::ENOBUFS]);
    }
    let plain = checks.need("plain send", conn.next(CALL, 0))?;
    let sent = checks.need("plain send", raw::send(&conn.fd, &plain, MSG_NOSIGNAL))?;
    checks.eq("a plain send needs none", sent, CALL);
    conn.pos += sent as u64;
    checks.need("limit", process::limit_locked(1 << 20))?;
    checks.errno(
        "more than may be locked",
        conn.call(2 << 20, 0),
        &[libc::ENOBUFS],
    );
    for _ in 0..10 {
        let sent = checks.need("half of it", conn.call(1 << 19, 0))?;
        checks.need("half of it, once more", conn.out.reap_all(&conn.fd))?;
        if sent != 1 << 19 {
            checks.eq("half of it", sent, 1 << 19);
        }
    }
    checks.eq("calls that took an id", conn.out.told, 10);
    conn.none("no more than that", checks)
}
