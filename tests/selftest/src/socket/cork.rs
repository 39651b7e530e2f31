// SPDX-License-Identifier: GPL-2.0
//! MSG_MORE and TCP_CORK: a corked message joins the next one, leaves in time and in order, and is
//! never lost.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use libc::{IPPROTO_TCP, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, POLLOUT, TCP_CORK, TCP_NODELAY};

use crate::socket::calls::{pair, until, Pair};
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;
use zrs_sys::abi::zrs_ioc_stats;
use zrs_sys::Device;

/// Check corked messages, on connections of this host with itself
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Many connections that crowd their link, and nothing else
    #[arg(long)]
    crowd: bool,
}

/// Bytes of one message that is copied.
const SMALL: usize = 4096;

type Test = fn(&Pair, &mut Checks) -> Option<()>;

pub fn run(args: &Args, checks: &mut Checks) {
    let local = SocketAddrV4::new(args.local, 0);
    let Some((listener, addr)) = checks.need("listen", raw::listener(local)) else {
        return;
    };
    if args.crowd {
        crowd(&listener, addr, args.seed, checks);
        return;
    }
    let both: [(&str, Test); 6] = [
        ("MSG_MORE", more),
        ("TCP_CORK", cork),
        ("TCP_NODELAY", nodelay),
        ("sendfile()", file),
        ("shutdown()", shut),
        ("poll()", writable),
    ];
    let ours: [(&str, Test); 4] = [
        ("requests", requests),
        ("a full message", full),
        ("pages", pages),
        ("no room", no_room),
    ];
    let ours = if raw::is_zrs() { &ours[..] } else { &[] };
    for (name, test) in both.iter().chain(ours) {
        if let Some(pair) = checks.need(name, pair(&listener, addr)) {
            test(&pair, checks);
        }
    }
    inherited(&listener, addr, checks);
    for ends in [close, exit] {
        if let Some(pair) = checks.need("a connection", pair(&listener, addr)) {
            ends(pair, checks);
        }
    }
    if let Some(pair) = checks.need("a connection", pair(&listener, addr)) {
        mixed(&pair, args.seed, checks);
    }
    ended(&listener, addr, checks);
}

fn set(fd: &OwnedFd, option: i32, on: bool) -> Result<()> {
    raw::setsockopt(fd, IPPROTO_TCP, option, &i32::from(on).to_ne_bytes())
}

/// Sends `data` and holds it back, until that is seen: the time for it may be over before it is
/// looked at, and then `to` has it.
fn held_back(from: &OwnedFd, to: &OwnedFd, data: &[u8], flags: i32) -> Result<bool> {
    for _ in 0..20 {
        raw::send(from, data, flags | MSG_NOSIGNAL)?;
        let all = Ok(data.len() as i32);
        if raw::ioctl_int(from, raw::SIOCOUTQNSD) == all {
            return Ok(true);
        }
        raw::recv_all(to, &mut vec![0; data.len()])?;
    }
    Ok(false)
}

/// All of it arrives, and nothing else.
fn arrives(to: &OwnedFd, data: &[u8], name: &str, checks: &mut Checks) -> Option<()> {
    let all = Ok(data.len() as i32);
    checks.eq(
        name,
        until(&all, || raw::ioctl_int(to, libc::FIONREAD)),
        all,
    );
    let mut buf = vec![0; data.len()];
    checks.need("receive", raw::recv_all(to, &mut buf))?;
    checks.yes("the bytes, in order", buf == data, "others");
    Some(())
}

fn more(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let held = checks.need("send", held_back(from, to, b"head", MSG_MORE))?;
    checks.yes("a send with MSG_MORE is corked", held, "never seen");
    checks.eq(
        "the rest is sent",
        raw::send(from, b"body", MSG_NOSIGNAL),
        Ok(4),
    );
    arrives(to, b"headbody", "and with it the corked bytes", checks)?;
    checks.eq("nothing is", raw::ioctl_int(from, raw::SIOCOUTQNSD), Ok(0));
    checks.need("send", raw::send(from, b"alone", MSG_MORE | MSG_NOSIGNAL))?;
    arrives(
        to,
        b"alone",
        "what nothing follows leaves by itself",
        checks,
    )
}

fn cork(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    checks.need("TCP_CORK", set(from, TCP_CORK, true))?;
    let held = checks.need("send", held_back(from, to, b"some", 0))?;
    checks.yes("TCP_CORK holds back", held, "never seen");
    checks.need("send", raw::send(from, b"thing", MSG_NOSIGNAL))?;
    checks.need("TCP_CORK", set(from, TCP_CORK, false))?;
    arrives(to, b"something", "without it all of it is sent", checks)?;
    checks.need("send", raw::send(from, b"x", MSG_NOSIGNAL))?;
    arrives(to, b"x", "and nothing is corked any more", checks)
}

fn nodelay(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    checks.need("TCP_CORK", set(from, TCP_CORK, true))?;
    checks.need("send", raw::send(from, b"now", MSG_NOSIGNAL))?;
    checks.need("TCP_NODELAY", set(from, TCP_NODELAY, true))?;
    checks.eq(
        "TCP_NODELAY sends it",
        raw::ioctl_int(from, raw::SIOCOUTQNSD),
        Ok(0),
    );
    arrives(to, b"now", "it arrives", checks)
}

/// As servers do: a head with MSG_MORE, then sendfile() with a count beyond the end of the file.
fn file(pair: &Pair, checks: &mut Checks) -> Option<()> {
    const FILE: usize = 1000;
    let (from, to) = (&pair.client, &pair.server);
    let file = checks.need("a file", wild::memfd(FILE, false))?;
    checks.need("send", raw::send(from, b"head", MSG_MORE | MSG_NOSIGNAL))?;
    let sent = wild::sendfile(from, &file, 0, 100 * FILE);
    checks.eq("sendfile() to the end of the file", sent, Ok(FILE));
    let left = raw::ioctl_int(from, raw::SIOCOUTQNSD);
    checks.eq("nothing is corked behind it", left, Ok(0));
    arrives(
        to,
        &[&b"head"[..], &[0; FILE]].concat(),
        "head and file",
        checks,
    )
}

fn shut(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    checks.need("send", raw::send(from, b"last", MSG_MORE | MSG_NOSIGNAL))?;
    checks.need("shutdown", raw::shutdown(from, libc::SHUT_WR))?;
    ends_with(to, b"last", "shutdown() sends corked bytes", checks)?;
    checks.errno(
        "and then nothing can be",
        raw::send(from, b"x", MSG_MORE | MSG_NOSIGNAL),
        &[libc::EPIPE],
    );
    Some(())
}

/// That is the end of the stream.
fn ends_with(to: &OwnedFd, data: &[u8], name: &str, checks: &mut Checks) -> Option<()> {
    let mut buf = vec![0; data.len()];
    checks.need(name, raw::recv_all(to, &mut buf))?;
    checks.yes(name, buf == data, "other bytes");
    checks.eq("then the stream ends", raw::recv(to, &mut [0; 8], 0), Ok(0));
    Some(())
}

fn writable(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    checks.need("send", raw::send(from, b"a", MSG_MORE | MSG_NOSIGNAL))?;
    let seen = raw::poll(from, POLLOUT, 0);
    checks.eq("corked bytes leave the socket writable", seen, Ok(POLLOUT));
    arrives(to, b"a", "and poll() does not lose it", checks)
}

fn inherited(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    checks.need("TCP_CORK", set(listener, TCP_CORK, true))?;
    let pair = checks.need("a connection", pair(listener, addr))?;
    checks.need("TCP_CORK", set(listener, TCP_CORK, false))?;
    let held = checks.need("send", held_back(&pair.server, &pair.client, b"hello", 0))?;
    checks.yes("accepted connections inherit TCP_CORK", held, "never seen");
    Some(())
}

fn close(pair: Pair, checks: &mut Checks) {
    let Pair { client, server } = pair;
    let sent = raw::send(&client, b"last", MSG_MORE | MSG_NOSIGNAL);
    checks.eq("send", sent, Ok(4));
    checks.need("close", raw::close(client));
    ends_with(&server, b"last", "close() sends corked bytes", checks);
}

/// The program just ends.
fn exit(pair: Pair, checks: &mut Checks) {
    let Pair { client, server } = pair;
    let child = process::fork(|| match raw::send(&client, b"last", MSG_MORE) {
        Ok(4) => 0,
        _ => 1,
    });
    drop(client);
    if let Some(child) = checks.need("fork", child) {
        checks.eq("a child sends", process::wait(child), Ok(0));
        ends_with(&server, b"last", "and its end sends corked bytes", checks);
    }
}

/// Calls of all sizes, with and without MSG_MORE, TCP_CORK put on and taken off: the stream is
/// whole.
fn mixed(pair: &Pair, seed: u64, checks: &mut Checks) -> Option<()> {
    const CALLS: usize = 400;
    let pattern = Pattern::new(seed, 0, 0);
    let sent = thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&pair.server, pattern));
        let sent = send_mixed(&pair.client, pattern, &mut Rng::new(seed, 1), CALLS);
        let shut = raw::shutdown(&pair.client, libc::SHUT_WR);
        let read = reader.join().unwrap_or(Err(Errno(libc::EIO)));
        sent.and_then(|n| shut.map(|()| n)).map(|n| (n, read))
    });
    let (sent, read) = checks.need("sizes and flags of all kinds", sent)?;
    checks.eq("sizes and flags of all kinds: every byte", read, Ok(sent));
    Some(())
}

/// One thread corks, another one ends the stream at that moment: bytes accepted by send() arrive,
/// and no others.
fn ended(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    const ROUNDS: usize = 60;
    let mut rng = Rng::new(5, 0);
    for _ in 0..ROUNDS {
        let pair = checks.need("a connection", pair(listener, addr))?;
        let (from, to) = (&pair.client, &pair.server);
        let (spins, cork) = (rng.below(20_000), rng.below(2) == 0);
        let (sent, read) = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut sent = 0;
                while let Ok(n) = raw::send(from, &[7; 300], MSG_MORE | MSG_NOSIGNAL) {
                    sent += n;
                }
                sent
            });
            let reader = scope.spawn(|| {
                let (mut read, mut buf) = (0, [0; 65_536]);
                loop {
                    match raw::recv(to, &mut buf, 0)? {
                        0 => return Ok(read),
                        n => read += n,
                    }
                }
            });
            for _ in 0..spins {
                std::hint::spin_loop();
            }
            if cork {
                let _ = set(from, TCP_CORK, false);
            }
            let _ = raw::shutdown(from, libc::SHUT_WR);
            let sent = sender.join();
            let read: Result<usize> = reader.join().unwrap_or(Err(Errno(libc::EIO)));
            (sent.unwrap_or(0), read)
        });
        if read != Ok(sent) {
            checks.eq("shutdown() beside send()", read, Ok(sent));
            return None;
        }
    }
    checks.yes("shutdown() beside send()", true, "");
    Some(())
}

/// Sends `calls` calls; how many bytes.
fn send_mixed(from: &OwnedFd, pattern: Pattern, rng: &mut Rng, calls: usize) -> Result<u64> {
    let mut pos = 0;
    for _ in 0..calls {
        let most = rng.pick(&[1, 100, 3000, SMALL, SMALL + 1, 50_000]);
        let mut data = vec![0; 1 + rng.below(most)];
        pattern.fill(pos, &mut data);
        let more = rng.pick(&[0, MSG_MORE, MSG_MORE]);
        if rng.below(20) == 0 {
            set(from, TCP_CORK, rng.below(2) == 0)?;
        }
        let mut rest = &data[..];
        while !rest.is_empty() {
            let n = raw::send(from, rest, more | MSG_NOSIGNAL)?;
            rest = &rest[n..];
        }
        pos += data.len() as u64;
    }
    Ok(pos)
}

/// Reads to the end of the stream; how many bytes, if they are the right ones.
fn read_all(to: &OwnedFd, pattern: Pattern) -> Result<u64> {
    let mut verifier = Verifier::new(pattern);
    let mut buf = vec![0; 65_536];
    loop {
        match raw::recv(to, &mut buf, 0)? {
            0 => return Ok(verifier.pos),
            n => verifier.take(&buf[..n])?,
        }
    }
}

fn stats() -> Result<zrs_ioc_stats> {
    Ok(Device::open()?.stats()?)
}

/// How often senders found the links without room.
fn link_waits() -> Result<u64> {
    let device = Device::open()?;
    let (mut cursor, mut waits) = (0, 0);
    while let Some(link) = device.link(cursor)? {
        waits += link.waits;
        cursor = link.cursor;
    }
    Ok(waits)
}

/// Joined messages leave by few requests.
fn requests(pair: &Pair, checks: &mut Checks) -> Option<()> {
    const CALLS: u64 = 40;
    let (from, to) = (&pair.client, &pair.server);
    let before = checks.need("counters", stats())?.work_requests;
    for n in 1..=CALLS {
        let flags = if n < CALLS { MSG_MORE } else { 0 };
        checks.need("send", raw::send(from, b"some", flags | MSG_NOSIGNAL))?;
    }
    let all = Ok(4 * CALLS as i32);
    let seen = until(&all, || raw::ioctl_int(to, libc::FIONREAD));
    checks.eq("all of it comes", seen, all);
    let made = checks.need("counters", stats())?.work_requests - before;
    // Control messages may come in between, and on a slow machine the time limit of corking may end
    // first.
    checks.yes(
        "calls with MSG_MORE are one message",
        made < CALLS / 2,
        &format!("{made} requests for {CALLS} calls"),
    );
    Some(())
}

/// A call that does not fit into the corked message is corked as the next one.
fn full(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let part = [9; 1000];
    let mut held = false;
    for _ in 0..20 {
        for _ in 0..5 {
            checks.need("send", raw::send(from, &part, MSG_MORE | MSG_NOSIGNAL))?;
        }
        let left = checks.need("SIOCOUTQNSD", raw::ioctl_int(from, raw::SIOCOUTQNSD))?;
        checks.need("receive", raw::recv_all(to, &mut [0; 5000]))?;
        held = left == 1000;
        if held {
            break;
        }
    }
    checks.yes("four parts leave when there is a fifth", held, "never seen");
    let most = checks.need(
        "send",
        raw::send(from, &[1; SMALL], MSG_MORE | MSG_NOSIGNAL),
    )?;
    let left = raw::ioctl_int(from, raw::SIOCOUTQNSD);
    checks.eq("a full message does not wait", (most, left), (SMALL, Ok(0)));
    Some(())
}

/// A corked head is copied; the data behind it leaves from the program's pages.
fn pages(pair: &Pair, checks: &mut Checks) -> Option<()> {
    const BODY: usize = 256 << 10;
    let (from, to) = (&pair.client, &pair.server);
    let before = checks.need("counters", stats())?.tx_copied;
    let (sent, read) = thread::scope(|scope| {
        let reader = scope.spawn(|| raw::recv_all(to, &mut vec![0; 100 + BODY]));
        let head = raw::send(from, &[1; 100], MSG_MORE | MSG_NOSIGNAL);
        let body = raw::send_all(from, &vec![2; BODY]);
        (
            head.and(body),
            reader.join().unwrap_or(Err(Errno(libc::EIO))),
        )
    });
    checks.eq("a head, and a large body", (sent, read), (Ok(()), Ok(())));
    let copied = checks.need("counters", stats())?.tx_copied - before;
    checks.eq("the head alone is copied", copied, 100);
    Some(())
}

/// Without room at the peer, nothing is corked.
fn no_room(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let flags = MSG_MORE | MSG_NOSIGNAL | MSG_DONTWAIT;
    let mut sent = 0;
    let end = loop {
        match raw::send(from, &[3; 1000], flags) {
            Ok(n) => sent += n,
            // Some may come of its own accord.
            Err(Errno(libc::EAGAIN)) if raw::poll(from, POLLOUT, 1000) == Ok(POLLOUT) => {}
            Err(e) => break e,
        }
    };
    checks.eq("a reader that does not read", end, Errno(libc::EAGAIN));
    checks.eq("poll()", raw::poll(from, POLLOUT, 0), Ok(0));
    let all = Ok(sent as i32);
    let seen = until(&all, || raw::ioctl_int(to, libc::FIONREAD));
    checks.eq(
        "all that was taken arrives, with nothing behind it",
        seen,
        all,
    );
    checks.need("receive", raw::recv_all(to, &mut vec![0; sent]))?;
    checks.eq(
        "then there is room",
        raw::poll(from, POLLOUT, 20_000),
        Ok(POLLOUT),
    );
    Some(())
}

/// So many connections that the link has no room now and then: corked messages leave all the same,
/// sent by the thread that makes room, also if the program has closed its socket.
fn crowd(listener: &OwnedFd, addr: SocketAddrV4, seed: u64, checks: &mut Checks) {
    const CONNECTIONS: u64 = 48;
    let pairs: Result<Vec<_>> = (0..CONNECTIONS).map(|_| pair(listener, addr)).collect();
    let Some(pairs) = checks.need("connections", pairs) else {
        return;
    };
    let threads: Vec<_> = (0..)
        .zip(pairs)
        .map(|(index, pair)| thread::spawn(move || both_ends(pair, seed, index)))
        .collect();
    let results: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    let mut whole = 0;
    for result in results {
        let result = result.unwrap_or(Err(Errno(libc::EIO)));
        if let Some((sent, read)) = checks.need("a connection", result) {
            whole += u64::from(read == Ok(sent));
        }
    }
    let name = "connections that have brought every byte";
    checks.eq(name, whole, CONNECTIONS);
    if let Some(waits) = checks.need("the links", link_waits()) {
        checks.yes("the link had no room now and then", waits > 0, "never");
    }
}

/// Bytes sent by one end of a connection, and bytes read by the other one.
fn both_ends(pair: Pair, seed: u64, index: u64) -> Result<(u64, Result<u64>)> {
    let Pair { client, server } = pair;
    let pattern = Pattern::new(seed, 0, index);
    let reader = thread::spawn(move || read_all(&server, pattern));
    let sent = send_corked(client, pattern, &mut Rng::new(seed, index))?;
    Ok((sent, reader.join().unwrap_or(Err(Errno(libc::EIO)))))
}

/// Sets and clears TCP_CORK, without waiting, and closes the socket with a corked message; returns
/// how many bytes were taken.
fn send_corked(client: OwnedFd, pattern: Pattern, rng: &mut Rng) -> Result<u64> {
    let mut pos = 0;
    let flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    for _ in 0..300 {
        set(&client, TCP_CORK, true)?;
        for _ in 0..3 {
            let mut data = vec![0; 1 + rng.below(2000)];
            pattern.fill(pos, &mut data);
            match raw::send(&client, &data, flags) {
                Ok(n) => pos += n as u64,
                Err(Errno(libc::EAGAIN)) => {
                    if raw::poll(&client, POLLOUT, 60_000)? == 0 {
                        return Err(Errno(libc::ETIMEDOUT));
                    }
                }
                Err(e) => return Err(e),
            }
        }
        set(&client, TCP_CORK, false)?;
    }
    let mut data = [0; 10];
    pattern.fill(pos, &mut data);
    match raw::send(&client, &data, flags | MSG_MORE) {
        Ok(n) => pos += n as u64,
        Err(Errno(libc::EAGAIN)) => {}
        Err(e) => return Err(e),
    }
    raw::close(client)?;
    Ok(pos)
}
