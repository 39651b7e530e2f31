// SPDX-License-Identifier: GPL-2.0
//! Errors of the socket calls, each by its errno.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_WAITALL};
use zrs_sys::abi::{self, zrs_rx_ring, SOL_ZRS, ZRS_RX_RING};

use crate::common::serve::{ask, CALL, DATA, DATA_LEN, DISCARD, ECHO, LEAVE, LEAVE_LEN, SHUT};
use crate::support::checks::Checks;
use crate::support::process;
use crate::support::raw::{self, bytes_of, Errno};

/// Check the errno of every misuse of a socket, and of its ring
#[derive(clap::Args)]
pub struct Args {
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
}

pub fn run(args: &Args, checks: &mut Checks) {
    let mut tests: Vec<fn(&Args, &mut Checks) -> Option<()>> = vec![
        unconnected,
        binding,
        listening,
        connecting,
        connected,
        names,
        interrupted,
        shut,
        flags,
    ];
    if raw::is_zrs() {
        tests.extend([
            options as fn(&Args, &mut Checks) -> Option<()>,
            ring,
            late_ring,
            mappings,
            escape_area,
        ]);
    }
    for test in tests {
        test(args, checks);
    }
}

fn unconnected(_: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("socket", raw::stream())?;
    process::count_sigpipes();
    checks.errno(
        "send on a fresh socket, quietly",
        raw::send(&fd, b"x", MSG_NOSIGNAL),
        &[libc::EPIPE],
    );
    checks.eq("its SIGPIPEs", process::sigpipes(), 0);
    checks.errno(
        "send on a fresh socket",
        raw::send(&fd, b"x", 0),
        &[libc::EPIPE],
    );
    checks.eq("its SIGPIPEs", process::take_sigpipes(), 1);
    checks.errno(
        "recv on a fresh socket",
        raw::recv(&fd, &mut [0], 0),
        &[libc::ENOTCONN],
    );
    checks.errno(
        "getpeername of a fresh socket",
        raw::getpeername(&fd),
        &[libc::ENOTCONN],
    );
    checks.errno(
        "shutdown of a fresh socket",
        raw::shutdown(&fd, libc::SHUT_RDWR),
        &[libc::ENOTCONN],
    );
    checks.errno(
        "accept on a fresh socket",
        raw::accept(&fd),
        &[libc::EINVAL],
    );
    let unbound = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    checks.eq(
        "getsockname of a fresh socket",
        raw::getsockname(&fd),
        Ok(unbound),
    );
    checks.eq(
        "SO_ERROR of a fresh socket",
        raw::so_error(&fd),
        Ok(Errno(0)),
    );
    let seen = raw::getsockopt_int(&fd, libc::SOL_SOCKET, libc::SO_PROTOCOL);
    checks.eq("SO_PROTOCOL", seen, Ok(raw::protocol()));
    Some(())
}

fn binding(args: &Args, checks: &mut Checks) -> Option<()> {
    let any = SocketAddrV4::new(args.local, 0);
    let fd = checks.need("socket", raw::stream())?;
    checks.errno(
        "bind of a short address",
        raw::bind_as(&fd, any, libc::AF_INET, raw::ADDR_LEN - 9),
        &[libc::EINVAL],
    );
    checks.errno(
        "bind of another family",
        raw::bind_as(&fd, any, libc::AF_UNIX, raw::ADDR_LEN),
        &[libc::EAFNOSUPPORT],
    );
    let foreign = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 77), 0);
    checks.errno(
        "bind of another host's address",
        raw::bind(&fd, foreign),
        &[libc::EADDRNOTAVAIL],
    );
    checks.need("bind", raw::bind(&fd, any))?;
    checks.errno("bind a second time", raw::bind(&fd, any), &[libc::EINVAL]);
    let bound = checks.need("getsockname", raw::getsockname(&fd))?;
    checks.eq("bind chose the address", *bound.ip(), args.local);
    checks.yes("bind chose a port", bound.port() != 0, "port 0");

    let other = checks.need("socket", raw::stream())?;
    checks.errno(
        "bind of a port in use",
        raw::bind(&other, bound),
        &[libc::EADDRINUSE],
    );
    let all = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, bound.port());
    checks.errno(
        "bind of it on all addresses",
        raw::bind(&other, all),
        &[libc::EADDRINUSE],
    );
    drop(fd);
    checks.eq("bind when it is closed", raw::bind(&other, bound), Ok(()));
    Some(())
}

fn listening(args: &Args, checks: &mut Checks) -> Option<()> {
    let (fd, addr) = checks.need("listen", raw::listener(SocketAddrV4::new(args.local, 0)))?;
    checks.eq("listen a second time", raw::listen(&fd, 4), Ok(()));
    let seen = raw::getsockopt_int(&fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    checks.eq("SO_ACCEPTCONN", seen, Ok(1));
    checks.errno(
        "connect of a listening socket",
        raw::connect(&fd, args.peer),
        &[libc::EISCONN],
    );
    checks.errno(
        "recv on a listening socket",
        raw::recv(&fd, &mut [0], 0),
        &[libc::ENOTCONN],
    );
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&fd, true))?;
    checks.errno(
        "accept when nobody is there",
        raw::accept(&fd),
        &[libc::EAGAIN],
    );
    let other = checks.need("socket", raw::stream())?;
    checks.errno(
        "bind where one listens",
        raw::bind(&other, addr),
        &[libc::EADDRINUSE],
    );
    Some(())
}

fn connecting(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("socket", raw::stream())?;
    checks.errno(
        "connect to a short address",
        raw::connect_as(&fd, args.peer, libc::AF_INET, raw::ADDR_LEN - 9),
        &[libc::EINVAL],
    );
    checks.errno(
        "connect to another family",
        raw::connect_as(&fd, args.peer, libc::AF_UNIX, raw::ADDR_LEN),
        &[libc::EAFNOSUPPORT],
    );
    checks.need("set O_NONBLOCK", raw::set_nonblocking(&fd, true))?;
    // ZRS may be connected by the time that it looks.
    let seen = raw::connect(&fd, args.peer);
    checks.yes(
        "non-blocking connect",
        seen == Err(Errno(libc::EINPROGRESS)) || raw::is_zrs() && seen == Ok(()),
        &format!("saw {seen:?}, expected EINPROGRESS"),
    );
    let seen = raw::poll(&fd, libc::POLLOUT, 60_000);
    checks.eq("poll after it", seen, Ok(libc::POLLOUT));
    checks.eq("SO_ERROR after it", raw::so_error(&fd), Ok(Errno(0)));
    checks.eq("getpeername after it", raw::getpeername(&fd), Ok(args.peer));
    let seen = raw::connect(&fd, args.peer);
    checks.yes(
        "connect again once connected",
        matches!(seen, Ok(()) | Err(Errno(libc::EISCONN))),
        &format!("saw {seen:?}, expected success or EISCONN"),
    );
    checks.errno("and again", raw::connect(&fd, args.peer), &[libc::EISCONN]);
    Some(())
}

fn connected(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    checks.errno(
        "connect when connected",
        raw::connect(&fd, args.peer),
        &[libc::EISCONN],
    );
    checks.errno(
        "listen when connected",
        raw::listen(&fd, 4),
        &[libc::EINVAL],
    );
    checks.errno("accept when connected", raw::accept(&fd), &[libc::EINVAL]);
    let any = SocketAddrV4::new(args.local, 0);
    checks.errno("bind when connected", raw::bind(&fd, any), &[libc::EINVAL]);
    let seen = checks.need("getsockname", raw::getsockname(&fd))?;
    checks.eq(
        "own address",
        (*seen.ip(), seen.port() != 0),
        (args.local, true),
    );
    checks.eq("peer's address", raw::getpeername(&fd), Ok(args.peer));
    checks.errno(
        "send from a bad pointer",
        raw::send_bad_pointer(&fd),
        &[libc::EFAULT],
    );
    checks.eq("send of nothing", raw::send(&fd, &[], MSG_NOSIGNAL), Ok(0));
    checks.errno(
        "recv of nothing there",
        raw::recv(&fd, &mut [0], MSG_DONTWAIT),
        &[libc::EAGAIN],
    );
    checks.need("SO_RCVTIMEO", raw::set_recv_timeout(&fd, 100))?;
    let start = Instant::now();
    checks.errno(
        "recv after SO_RCVTIMEO",
        raw::recv(&fd, &mut [0], 0),
        &[libc::EAGAIN],
    );
    let ms = start.elapsed().as_millis();
    // The kernel counts ticks, and a slow machine catches up several at once.
    checks.yes(
        "SO_RCVTIMEO is kept",
        (50..30_000).contains(&ms),
        &format!("took {ms} ms"),
    );
    checks.errno(
        "shutdown of a direction that is none",
        raw::shutdown(&fd, 7),
        &[libc::EINVAL],
    );
    Some(())
}

/// Both ends of a connection, as each of them names them.
fn names(args: &Args, checks: &mut Checks) -> Option<()> {
    let all = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let (fd, bound) = checks.need("listen on all addresses", raw::listener(all))?;
    checks.eq("its address", *bound.ip(), Ipv4Addr::UNSPECIFIED);
    let command = [&[CALL], &bound.port().to_be_bytes()[..]].concat();
    let asked = checks.need("ask for a call", ask(args.peer, &command))?;
    let (accepted, from) = checks.need("accept", raw::accept_from(&fd))?;
    let ours = SocketAddrV4::new(args.local, bound.port());
    checks.eq("accepted: own name", raw::getsockname(&accepted), Ok(ours));
    checks.eq(
        "accepted: peer's name",
        raw::getpeername(&accepted),
        Ok(from),
    );
    checks.eq("accepted: the caller's address", from.ip(), args.peer.ip());
    checks.yes("accepted: the caller's port", from.port() != 0, "port 0");
    let own = checks.need("getsockname", raw::getsockname(&asked))?;
    checks.eq("connected: own address", *own.ip(), args.local);

    let bound = checks.need("socket", raw::stream())?;
    let name = SocketAddrV4::new(args.local, 0);
    checks.need("bind", raw::bind(&bound, name))?;
    let name = checks.need("getsockname", raw::getsockname(&bound))?;
    checks.need("connect", raw::connect(&bound, args.peer))?;
    checks.eq(
        "bound, connected: own name",
        raw::getsockname(&bound),
        Ok(name),
    );
    let fd = checks.need("socket", raw::stream())?;
    checks.errno(
        "connect to port 0",
        raw::connect(&fd, SocketAddrV4::new(*args.peer.ip(), 0)),
        &[libc::ECONNREFUSED],
    );
    Some(())
}

/// A signal ends a call that waits.
fn interrupted(args: &Args, checks: &mut Checks) -> Option<()> {
    let mut eintr = |name: &str, call: &dyn Fn() -> raw::Result<()>| {
        let seen = process::interrupted(call);
        if let Some(seen) = checks.need(name, seen) {
            checks.errno(&format!("{name}, interrupted"), seen, &[libc::EINTR]);
        }
    };
    let fd = ask(args.peer, &[DISCARD]);
    let listener = raw::listener(SocketAddrV4::new(args.local, 0));
    if let (Ok(fd), Ok((listener, _))) = (&fd, &listener) {
        eintr("recv", &|| raw::recv(fd, &mut [0], 0).map(drop));
        eintr("accept", &|| raw::accept(listener).map(drop));
        eintr("poll", &|| raw::poll(fd, libc::POLLIN, 10_000).map(drop));
    }
    checks.need("connect", fd)?;
    checks.need("listen", listener).map(drop)
}

fn shut(args: &Args, checks: &mut Checks) -> Option<()> {
    process::count_sigpipes();
    let fd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    checks.eq(
        "shutdown for reading",
        raw::shutdown(&fd, libc::SHUT_RD),
        Ok(()),
    );
    checks.eq("recv after it", raw::recv(&fd, &mut [0], 0), Ok(0));
    checks.eq("send after it", raw::send(&fd, b"x", MSG_NOSIGNAL), Ok(1));
    checks.eq(
        "shutdown for writing",
        raw::shutdown(&fd, libc::SHUT_WR),
        Ok(()),
    );
    checks.errno(
        "send after it, quietly",
        raw::send(&fd, b"x", MSG_NOSIGNAL),
        &[libc::EPIPE],
    );
    checks.eq("SIGPIPEs", process::sigpipes(), 0);
    checks.errno("send after it", raw::send(&fd, b"x", 0), &[libc::EPIPE]);
    checks.eq("SIGPIPEs", process::take_sigpipes(), 1);

    let fd = checks.need("connect", ask(args.peer, &[SHUT]))?;
    checks.eq(
        "recv after the peer's shutdown",
        raw::recv(&fd, &mut [0], 0),
        Ok(0),
    );
    checks.eq("and again", raw::recv(&fd, &mut [0], 0), Ok(0));
    checks.eq(
        "send to a peer that reads on",
        raw::send(&fd, b"x", MSG_NOSIGNAL),
        Ok(1),
    );
    Some(())
}

fn flags(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    if raw::is_zrs() {
        checks.errno(
            "send MSG_OOB",
            raw::send(&fd, b"x", MSG_OOB | MSG_NOSIGNAL),
            &[libc::EOPNOTSUPP],
        );
        checks.errno(
            "recv MSG_OOB",
            raw::recv(&fd, &mut [0], MSG_OOB),
            &[libc::EOPNOTSUPP],
        );
    }
    checks.need("send", raw::send_all(&fd, b"hello"))?;
    let mut buf = [0; 5];
    // MSG_WAITALL waits for all five, MSG_PEEK leaves them.
    checks.eq(
        "recv MSG_WAITALL",
        raw::recv(&fd, &mut buf[..2], MSG_WAITALL),
        Ok(2),
    );
    checks.need("poll", raw::poll(&fd, libc::POLLIN, 60_000))?;
    checks.eq(
        "recv MSG_PEEK",
        raw::recv(&fd, &mut buf[2..3], MSG_PEEK),
        Ok(1),
    );
    checks.eq(
        "recv after it",
        raw::recv(&fd, &mut buf[2..], MSG_WAITALL),
        Ok(3),
    );
    checks.eq("what came", buf, *b"hello");
    Some(())
}

const LEVEL: i32 = SOL_ZRS as i32;
const RX_RING: i32 = ZRS_RX_RING as i32;

fn options(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("socket", raw::stream())?;
    let fresh = bytes_of(&zrs_rx_ring::default());
    checks.errno(
        "ring of a fresh socket",
        raw::setsockopt(&fd, LEVEL, RX_RING, &fresh),
        &[libc::ENOTCONN],
    );
    checks.errno(
        "unknown option, set",
        raw::setsockopt(&fd, LEVEL, 99, &fresh),
        &[libc::ENOPROTOOPT],
    );
    let mut buf = [0; 512];
    checks.errno(
        "unknown option, get",
        raw::getsockopt(&fd, LEVEL, 99, &mut buf),
        &[libc::ENOPROTOOPT],
    );
    checks.errno(
        "unknown ioctl",
        raw::ioctl(&fd, 0xe77f, &mut buf),
        &[libc::ENOTTY],
    );
    let seen = raw::getsockopt(&fd, LEVEL, abi::ZRS_INFO as i32, &mut buf);
    checks.eq("length of ZRS_INFO", seen, Ok(size_of::<abi::zrs_info>()));

    let fd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    let len = fresh.len();
    for (name, flags) in [
        ("an unknown flag", 4),
        (
            "an unknown flag beside a known one",
            (1 << 31) | abi::ZRS_RX_RING_ESCAPE,
        ),
    ] {
        let value = zrs_rx_ring {
            flags,
            ..Default::default()
        };
        let seen = raw::setsockopt(&fd, LEVEL, RX_RING, &bytes_of(&value));
        checks.errno(&format!("ring with {name}"), seen, &[libc::EINVAL]);
    }
    for (name, escape_offset, escape_bytes) in
        [("escape_offset", 4096, 0), ("escape_bytes", 0, 4096)]
    {
        let value = zrs_rx_ring {
            flags: abi::ZRS_RX_RING_ESCAPE,
            escape_offset,
            escape_bytes,
            ..Default::default()
        };
        let seen = raw::setsockopt(&fd, LEVEL, RX_RING, &bytes_of(&value));
        checks.errno(&format!("ring with {name} not zero"), seen, &[libc::EINVAL]);
    }
    let short = raw::setsockopt(&fd, LEVEL, RX_RING, &fresh[..len - 1]);
    checks.errno("ring with a short value", short, &[libc::EINVAL]);
    let seen = raw::setsockopt_bad_pointer(&fd, LEVEL, RX_RING, len);
    checks.errno("ring with a bad pointer", seen, &[libc::EFAULT]);
    Some(())
}

fn ring(args: &Args, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[ECHO]))?;
    let first = zrs_sys::sock::rx_ring(fd.as_fd(), 0).map_err(Into::into);
    let first = checks.need("ring", first)?;
    checks.yes(
        "entries are a power of two",
        first.entries.is_power_of_two(),
        "they are not",
    );
    checks.eq(
        "lengths are whole pages",
        (first.ring_bytes % 4096, first.window_bytes % 4096),
        (0, 0),
    );
    checks.eq(
        "without an escape area, which was not asked for",
        (first.flags, first.escape_bytes),
        (0, 0),
    );
    let flags = abi::ZRS_RX_RING_ESCAPE;
    let again = zrs_sys::sock::rx_ring(fd.as_fd(), flags).map_err(Into::into);
    let again = checks.need("ring a second time", again)?;
    // It stays as it was made.
    checks.eq("it is the same ring", bytes_of(&again), bytes_of(&first));

    let data: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
    let stream = zrs::Stream::from(checks.need("dup", fd.try_clone().map_err(Into::into))?);
    let ring = checks.need("mapped ring", stream.rx_ring().map_err(Into::into))?;
    checks.need("send", raw::send_all(&fd, &data))?;
    let mut got = Vec::new();
    while got.len() < data.len() {
        match checks.need("recv by the ring", ring.recv().map_err(Into::into))? {
            Some(segment) => got.extend(segment.to_vec()),
            None => break,
        }
    }
    checks.yes("the echo by the ring", got == data, "other bytes came back");
    // The rings' drop shut the socket down, so the peer's end comes.
    drop((ring, stream));
    checks.eq("the end", raw::recv(&fd, &mut [0], 0), Ok(0));
    Some(())
}

/// A ring that is made when the stream is at its end: the arrived data is read by it all the same.
fn late_ring(args: &Args, checks: &mut Checks) -> Option<()> {
    for (name, command, len) in [
        ("small data and the peer's shutdown", DATA, DATA_LEN),
        ("bulk data and the peer's close", LEAVE, LEAVE_LEN),
        ("the peer's shutdown alone", SHUT, 0),
    ] {
        let fd = checks.need("connect", ask(args.peer, &[command]))?;
        checks.need("poll", raw::poll(&fd, libc::POLLRDHUP, 60_000))?;
        let stream = zrs::Stream::from(fd);
        let name = format!("a ring after {name}");
        let ring = checks.need(&name, stream.rx_ring().map_err(Into::into))?;
        let mut got = 0;
        while let Some(segment) = checks.need(&name, ring.recv().map_err(Into::into))? {
            got += segment.to_vec().iter().filter(|&&b| b == command).count();
        }
        checks.eq(&name, got, len);
    }
    Some(())
}

fn mappings(args: &Args, checks: &mut Checks) -> Option<()> {
    use libc::{MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
    let both = PROT_READ | PROT_WRITE;
    let refused = [libc::EINVAL, libc::EACCES];
    let fresh = checks.need("socket", raw::stream())?;
    let none = [libc::EINVAL, libc::ENODEV, libc::ENXIO, libc::ENOTCONN];
    checks.errno(
        "mmap of a fresh socket",
        raw::try_mmap(&fresh, 0, 4096, PROT_READ, MAP_SHARED, None),
        &none,
    );
    let fd: OwnedFd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    checks.errno(
        "mmap without a ring",
        raw::try_mmap(&fd, 0, 4096, PROT_READ, MAP_SHARED, None),
        &none,
    );

    let r = checks.need(
        "ring",
        zrs_sys::sock::rx_ring(fd.as_fd(), 0).map_err(Into::into),
    )?;
    let (ring, window) = (r.ring_bytes as usize, r.window_bytes as usize);
    let map = |offset, len, prot, flags, then| raw::try_mmap(&fd, offset, len, prot, flags, then);
    checks.eq(
        "the ring",
        map(r.ring_offset, ring, both, MAP_SHARED, None),
        Ok(()),
    );
    checks.eq(
        "the window",
        map(r.window_offset, window, PROT_READ, MAP_SHARED, None),
        Ok(()),
    );
    for (name, seen) in [
        (
            "window, private",
            map(r.window_offset, window, PROT_READ, MAP_PRIVATE, None),
        ),
        (
            "window, writable",
            map(r.window_offset, window, both, MAP_SHARED, None),
        ),
        (
            "window, writable later",
            map(r.window_offset, window, PROT_READ, MAP_SHARED, Some(both)),
        ),
        (
            "window, too long",
            map(r.window_offset, window + 4096, PROT_READ, MAP_SHARED, None),
        ),
        (
            "ring, private",
            map(r.ring_offset, ring, both, MAP_PRIVATE, None),
        ),
        (
            "ring, too long",
            map(r.ring_offset, ring + 4096, both, MAP_SHARED, None),
        ),
        (
            "some other offset",
            map(1 << 40, 4096, PROT_READ, MAP_SHARED, None),
        ),
    ] {
        checks.errno(&format!("mmap refused: {name}"), seen, &refused);
    }
    Some(())
}

/// The escape area of a ring that asks for it.
fn escape_area(args: &Args, checks: &mut Checks) -> Option<()> {
    use libc::{MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
    let both = PROT_READ | PROT_WRITE;
    let fd: OwnedFd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    let (escape, small) = (abi::ZRS_RX_RING_ESCAPE, abi::ZRS_RX_RING_SMALL);
    let r = zrs_sys::sock::rx_ring(fd.as_fd(), escape).map_err(Into::into);
    let r = checks.need("ring with an escape area", r)?;
    checks.eq("it says that it has one", r.flags, escape);
    checks.yes(
        "the escape area is whole pages, and has room for what the window has",
        r.escape_bytes % 4096 == 0 && r.escape_bytes >= r.window_bytes,
        &format!("{r:?}"),
    );
    for flags in [small, escape | small] {
        let other = checks.need("connect", ask(args.peer, &[DISCARD]))?;
        let seen = zrs_sys::sock::rx_ring(other.as_fd(), flags).map_err(Into::into);
        let seen = checks.need("ring that takes small messages", seen)?;
        checks.eq("it says that it takes them", seen.flags, flags);
        let more = if flags & escape != 0 {
            r.escape_bytes
        } else {
            0
        };
        let room = seen.escape_bytes.wrapping_sub(more);
        checks.yes(
            "whole pages for them, and room for 64 KiB",
            room % 4096 == 0 && (64 << 10..128 << 10).contains(&room),
            &format!("{seen:?}"),
        );
    }
    let (at, len) = (r.escape_offset, r.escape_bytes as usize);
    let map = |len, prot, flags, then| raw::try_mmap(&fd, at, len, prot, flags, then);
    checks.eq(
        "the escape area is mapped",
        map(len, PROT_READ, MAP_SHARED, None),
        Ok(()),
    );
    for (name, seen) in [
        ("private", map(len, PROT_READ, MAP_PRIVATE, None)),
        ("writable", map(len, both, MAP_SHARED, None)),
        (
            "writable later",
            map(len, PROT_READ, MAP_SHARED, Some(both)),
        ),
        ("too long", map(len + 4096, PROT_READ, MAP_SHARED, None)),
    ] {
        checks.errno(
            &format!("mmap of the escape area refused: {name}"),
            seen,
            &[libc::EINVAL, libc::EACCES],
        );
    }
    Some(())
}
