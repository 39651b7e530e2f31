// SPDX-License-Identifier: GPL-2.0
//! The effect of flags, options and ioctls of a connection, seen from both of its ends.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use libc::{
    IPPROTO_TCP, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, SOL_SOCKET,
};

use crate::common::serve::{ask, DISCARD};
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Check the effect of flags, options and ioctls on a connection of this host with itself
#[derive(clap::Args)]
pub struct Args {
    /// An address of this host that has an RDMA device
    #[arg(long, value_name = "ADDR")]
    local: Ipv4Addr,
}

/// Check that close() with SO_LINGER waits while a peer is cut off
#[derive(clap::Args)]
pub struct LingerArgs {
    /// Where `serve` runs
    #[arg(value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// The command that cuts it off
    #[arg(long)]
    cut: String,
}

/// Both ends of a connection: the connecting and the accepting one.
pub struct Pair {
    pub client: OwnedFd,
    pub server: OwnedFd,
}

type Test = fn(&Pair, &mut Checks) -> Option<()>;

pub fn run(args: &Args, checks: &mut Checks) {
    let tests: [(&str, Test); 8] = [
        ("MSG_TRUNC", trunc),
        ("MSG_PEEK, MSG_WAITALL", waiting),
        ("MSG_MORE, TCP_CORK", more),
        ("ioctls", ioctls),
        ("pieces", pieces),
        ("messages", messages),
        ("SIGIO", sigio),
        ("TCP_INFO", states),
    ];
    let Some((listener, addr)) =
        checks.need("listen", raw::listener(SocketAddrV4::new(args.local, 0)))
    else {
        return;
    };
    for (name, test) in tests {
        if let Some(pair) = checks.need(name, pair(&listener, addr)) {
            test(&pair, checks);
        }
    }
    listening(&listener, addr, checks);
    inherited(&listener, addr, checks);
    if let Some(pair) = checks.need("SO_LINGER", pair(&listener, addr)) {
        abort(pair, checks);
    }
    if let Some(pair) = checks.need("SO_LINGER", pair(&listener, addr)) {
        linger(pair, checks);
    }
    if raw::is_zrs() {
        // Over TCP an address of the host's own is on the interface that has it.
        devices(&listener, addr, checks);
        joined(&listener, addr, checks);
        copied(&listener, addr, checks);
        small_buffer(&listener, addr, checks);
    }
}

pub fn pair(listener: &OwnedFd, addr: SocketAddrV4) -> Result<Pair> {
    let client = raw::connected(addr)?;
    let server = raw::accept(listener)?;
    // So that a mistake ends.
    raw::set_recv_timeout(&server, process::patience_ms(20))?;
    raw::set_recv_timeout(&client, process::patience_ms(20))?;
    Ok(Pair { client, server })
}

/// Tries until it says `expected`, for some seconds.
pub fn until<T: PartialEq>(expected: &T, mut look: impl FnMut() -> T) -> T {
    let end = Instant::now() + process::patience(20);
    loop {
        let seen = look();
        if seen == *expected || Instant::now() > end {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn trunc(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let mut buf = [0; 16];
    checks.need("send", raw::send_all(from, b"0123456789"))?;
    let all = Ok(10);
    checks.eq(
        "FIONREAD",
        until(&all, || raw::ioctl_int(to, libc::FIONREAD)),
        all,
    );
    let seen = raw::recv_nowhere(to, 100, MSG_TRUNC | MSG_PEEK);
    checks.eq("MSG_TRUNC | MSG_PEEK counts", seen, Ok(10));
    let seen = raw::recv_nowhere(to, 4, MSG_TRUNC);
    checks.eq("MSG_TRUNC throws as much away as is asked for", seen, Ok(4));
    checks.eq("and writes nothing", raw::recv(to, &mut buf, 0), Ok(6));
    checks.eq("what follows is read", &buf[..6], b"456789");
    let big = vec![7; 100_000];
    checks.need("send", raw::send_all(from, &big))?;
    let seen = raw::recv_nowhere(to, big.len(), MSG_TRUNC | MSG_WAITALL);
    checks.eq(
        "MSG_TRUNC | MSG_WAITALL throws it all away",
        seen,
        Ok(big.len()),
    );
    let seen = raw::recv_nowhere(to, 1, MSG_TRUNC | MSG_DONTWAIT);
    checks.errno("and then nothing is there", seen, &[libc::EAGAIN]);
    Some(())
}

pub fn waiting(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let mut buf = [0; 8];
    let seen = raw::recv(to, &mut buf, MSG_PEEK | MSG_DONTWAIT);
    checks.errno(
        "MSG_PEEK | MSG_DONTWAIT, nothing there",
        seen,
        &[libc::EAGAIN],
    );
    checks.need("send", raw::send_all(from, b"abc"))?;
    checks.need("poll", raw::poll(to, libc::POLLIN, 20_000))?;
    let seen = raw::recv(to, &mut buf, MSG_WAITALL | MSG_DONTWAIT);
    checks.eq(
        "MSG_WAITALL | MSG_DONTWAIT takes what is there",
        seen,
        Ok(3),
    );
    // The rest comes when the call has begun to wait.
    let in_parts = |flags| {
        let mut buf = [0; 5];
        raw::send_all(from, b"de")?;
        raw::poll(to, libc::POLLIN, 20_000)?;
        std::thread::scope(|scope| {
            let rest = scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(200));
                raw::send_all(from, b"fgh")
            });
            let seen = raw::recv(to, &mut buf, flags);
            rest.join().map_err(|_| Errno(libc::EPROTO))??;
            seen
        })
    };
    checks.eq("MSG_WAITALL waits for all", in_parts(MSG_WAITALL), Ok(5));
    let seen = in_parts(MSG_PEEK | MSG_WAITALL);
    checks.eq("MSG_PEEK | MSG_WAITALL waits for all", seen, Ok(5));
    checks.eq(
        "and leaves it",
        raw::recv(to, &mut buf[..5], MSG_WAITALL),
        Ok(5),
    );
    checks.eq("what came", &buf[..5], b"defgh");
    let seen = raw::recv(to, &mut buf, libc::MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    checks.errno("MSG_CMSG_CLOEXEC", seen, &[libc::EAGAIN]);
    Some(())
}

fn more(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let mut buf = [0; 4];
    let on = 1_i32.to_ne_bytes();
    checks.eq(
        "send MSG_MORE",
        raw::send(from, b"ab", MSG_MORE | MSG_NOSIGNAL),
        Ok(2),
    );
    checks.need(
        "TCP_CORK",
        raw::setsockopt(from, IPPROTO_TCP, libc::TCP_CORK, &on),
    )?;
    checks.eq("send, corked", raw::send(from, b"c", MSG_NOSIGNAL), Ok(1));
    checks.eq("send, the last", raw::send(from, b"d", MSG_NOSIGNAL), Ok(1));
    let off = 0_i32.to_ne_bytes();
    checks.need(
        "TCP_CORK",
        raw::setsockopt(from, IPPROTO_TCP, libc::TCP_CORK, &off),
    )?;
    checks.eq(
        "all of it comes",
        raw::recv(to, &mut buf, MSG_WAITALL),
        Ok(4),
    );
    checks.eq("in order", &buf, b"abcd");
    Some(())
}

/// Whether calls in a row are joined.
fn autocorking(on: bool) -> Result<()> {
    let value = if on { "1" } else { "0" };
    std::fs::write("/sys/module/zrs/parameters/autocorking", value).map_err(Errno::from)
}

/// Pieces of one call are one message.
fn joined(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    const CALLS: u64 = 20;
    let pair = checks.need("a connection", pair(listener, addr))?;
    let (from, to) = (&pair.client, &pair.server);
    let device = zrs_sys::Device::open().map_err(Errno::from);
    let device = checks.need("/dev/zrs", device)?;
    let requests = || Ok(device.stats()?.work_requests);
    checks.need("autocorking", autocorking(false))?;
    let before = checks.need("counters", requests())?;
    for _ in 0..CALLS {
        let sent = raw::send_pieces(from, &[b"head", b"body"], MSG_NOSIGNAL);
        checks.need("several pieces", sent)?;
    }
    let made = checks.need("counters", requests())? - before;
    checks.need("autocorking", autocorking(true))?;
    let all = Ok(8 * CALLS as i32);
    let seen = until(&all, || raw::ioctl_int(to, libc::FIONREAD));
    checks.eq("several pieces: all of it comes", seen, all);
    // Control messages may come in between.
    checks.yes(
        "the pieces of one call are one message",
        (CALLS..2 * CALLS).contains(&made),
        &format!("{made} requests"),
    );
    Some(())
}

/// Data that is copied because the call does not block, or is slightly below the pin threshold,
/// goes in few messages too.
fn copied(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    const CALLS: u64 = 20;
    let pair = checks.need("a connection", pair(listener, addr))?;
    let (from, to) = (&pair.client, &pair.server);
    let device = zrs_sys::Device::open().map_err(Errno::from);
    let device = checks.need("/dev/zrs", device)?;
    for (name, len, flags) in [
        ("64 KiB that do not wait", 65_536, MSG_DONTWAIT),
        ("16,000 bytes", 16_000, 0),
    ] {
        let pattern = Pattern::new(len as u64, 0, 0);
        let mut seen = Verifier::new(pattern);
        let mut data = vec![0; len];
        let mut buf = vec![0; len];
        // From the second one on there is a window.
        let mut before = None;
        for call in 0..=CALLS {
            if call == 1 {
                before = Some(checks.need(name, device.stats().map_err(Errno::from))?);
            }
            pattern.fill(seen.pos, &mut data);
            let flags = if call == 0 { 0 } else { flags };
            let sent = checks.need(name, raw::send(from, &data, flags | MSG_NOSIGNAL))?;
            let got = checks.need(name, raw::recv(to, &mut buf[..sent], MSG_WAITALL))?;
            if got != sent || seen.take(&buf[..got]).is_err() {
                break;
            }
        }
        let (before, after) = (
            before?,
            checks.need(name, device.stats().map_err(Errno::from))?,
        );
        checks.eq(&format!("{name}: every byte"), seen.wrong, None);
        let want = (CALLS + 1) * len as u64;
        checks.eq(&format!("{name}: each call takes all"), seen.pos, want);
        // WRITE and SEND, one more of each where the window ends, and the receiver's messages.
        let made = after.work_requests - before.work_requests;
        checks.yes(
            &format!("{name}: a few requests for each call"),
            made <= CALLS * 6,
            &format!("{made} requests for {CALLS} calls"),
        );
        let bytes = after.tx_copied - before.tx_copied;
        let least = CALLS * len as u64;
        checks.yes(
            &format!("{name}: counted as copied"),
            (least..least + least / 10).contains(&bytes),
            &format!("{bytes} bytes"),
        );
    }
    Some(())
}

fn ioctls(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    checks.need("send", raw::send_all(from, &[1; 5000]))?;
    let all = Ok(5000);
    checks.eq(
        "FIONREAD",
        until(&all, || raw::ioctl_int(to, libc::FIONREAD)),
        all,
    );
    let none = Ok(0);
    let seen = until(&none, || raw::ioctl_int(from, libc::TIOCOUTQ));
    checks.eq("SIOCOUTQ, when it has arrived", seen, none);
    checks.eq("SIOCOUTQNSD", raw::ioctl_int(from, raw::SIOCOUTQNSD), Ok(0));
    checks.eq("SIOCATMARK", raw::ioctl_int(to, raw::SIOCATMARK), Ok(0));
    Some(())
}

fn pieces(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let parts = [vec![1; 10], vec![2; 30_000], vec![], vec![3; 5]];
    let all = parts.concat();
    let refs: Vec<_> = parts.iter().map(Vec::as_slice).collect();
    let seen = raw::send_pieces(from, &refs, MSG_NOSIGNAL);
    checks.eq("pieces are sent", seen, Ok(all.len()));
    let (mut one, mut two) = (vec![0; 12], vec![0; all.len() - 12]);
    let seen = raw::recv_pieces(to, &mut one, &mut two, MSG_WAITALL);
    checks.eq("and received into other pieces", seen, Ok(all.len()));
    checks.yes("what came", [one, two].concat() == all, "other bytes");
    Some(())
}

fn messages(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let (from, to) = (&pair.client, &pair.server);
    let parts = [vec![1; 1], vec![2; 5000], vec![3; 20_000]];
    let refs: Vec<_> = parts.iter().map(Vec::as_slice).collect();
    let lens: Vec<_> = parts.iter().map(Vec::len).collect();
    let seen = raw::send_messages(from, &refs, MSG_NOSIGNAL);
    checks.eq("sendmmsg", seen, Ok(lens.clone()));
    let mut got = lens.iter().map(|&n| vec![0; n]).collect::<Vec<_>>();
    let mut places: Vec<_> = got.iter_mut().map(Vec::as_mut_slice).collect();
    let seen = raw::recv_messages(to, &mut places, MSG_WAITALL);
    checks.eq("recvmmsg", seen, Ok(lens));
    checks.yes("what came", got == parts, "other bytes");
    let mut buf = [0; 4];
    let seen = raw::recv_messages(to, &mut [&mut buf], MSG_DONTWAIT);
    checks.errno("recvmmsg of nothing", seen, &[libc::EAGAIN]);
    Some(())
}

fn sigio(pair: &Pair, checks: &mut Checks) -> Option<()> {
    checks.need("O_ASYNC", process::count_sigios(&pair.server))?;
    process::take_sigios();
    checks.need("send", raw::send_all(&pair.client, b"x"))?;
    let some = until(&true, || process::take_sigios() > 0);
    checks.yes("SIGIO when data comes", some, "none");
    checks.need("recv", raw::recv(&pair.server, &mut [0], 0))?;
    process::take_sigios();
    checks.need("shutdown", raw::shutdown(&pair.client, libc::SHUT_WR))?;
    let some = until(&true, || process::take_sigios() > 0);
    checks.yes("SIGIO at the end of the stream", some, "none");
    checks.need("O_ASYNC", process::count_sigios(&pair.server))?;
    let block = vec![0; 1 << 16];
    // Room that comes before the last call has a signal of its own, which is taken; the last call asks for another.
    let full = loop {
        process::take_sigios();
        let sent = raw::send(&pair.server, &block, MSG_DONTWAIT);
        if sent.is_err() {
            break sent;
        }
    };
    checks.errno("what ends the sends", full, &[libc::EAGAIN]);
    let mut buf = vec![0; 1 << 16];
    let some = until(&true, || {
        let _ = raw::recv(&pair.client, &mut buf, MSG_DONTWAIT);
        process::take_sigios() > 0
    });
    checks.yes("SIGIO when there is room again", some, "none");
    let again = until(&true, || {
        let _ = raw::recv(&pair.client, &mut buf, MSG_DONTWAIT);
        raw::send(&pair.server, b"x", MSG_DONTWAIT) == Ok(1)
    });
    checks.yes("which there is", again, "none");
    Some(())
}

/// The state that TCP_INFO tells of.
fn state(fd: &OwnedFd) -> Result<u8> {
    let mut buf = [0; 256];
    raw::getsockopt(fd, IPPROTO_TCP, libc::TCP_INFO, &mut buf).map(|_| buf[0])
}

fn states(pair: &Pair, checks: &mut Checks) -> Option<()> {
    let fresh = checks.need("socket", raw::stream())?;
    checks.eq("TCP_INFO of a fresh socket", state(&fresh), Ok(7));
    checks.eq("of one that has connected", state(&pair.client), Ok(1));
    checks.eq("of one that was accepted", state(&pair.server), Ok(1));
    checks.need("shutdown", raw::shutdown(&pair.client, libc::SHUT_WR))?;
    let (shut, heard) = (Ok(5), Ok(8));
    let seen = until(&heard, || state(&pair.server));
    checks.eq("of one whose peer has shut its writing", seen, heard);
    checks.eq(
        "of one that has",
        until(&shut, || state(&pair.client)),
        shut,
    );
    Some(())
}

fn listening(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    for (name, request) in [
        ("FIONREAD", libc::FIONREAD),
        ("SIOCOUTQ", libc::TIOCOUTQ),
        ("SIOCOUTQNSD", raw::SIOCOUTQNSD),
    ] {
        let seen = raw::ioctl_int(listener, request);
        checks.errno(
            &format!("{name} of a listening socket"),
            seen,
            &[libc::EINVAL],
        );
    }
    checks.eq("TCP_INFO of a listening socket", state(listener), Ok(10));
    let _client = checks.need("connect", raw::connected(addr))?;
    let waits = || -> Result<u32> {
        let mut buf = [0; 256];
        raw::getsockopt(listener, IPPROTO_TCP, libc::TCP_INFO, &mut buf)?;
        Ok(u32::from_ne_bytes([buf[24], buf[25], buf[26], buf[27]]))
    };
    let one = Ok(1);
    checks.eq("tcpi_unacked of it: how many wait", until(&one, waits), one);
    checks.need("accept", raw::accept(listener)).map(drop)
}

/// Options that accepted sockets inherit from the listening one.
fn inherited(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let options = [
        ("SO_KEEPALIVE", SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        ("TCP_KEEPIDLE", IPPROTO_TCP, libc::TCP_KEEPIDLE, 33),
        ("TCP_KEEPINTVL", IPPROTO_TCP, libc::TCP_KEEPINTVL, 7),
        ("TCP_KEEPCNT", IPPROTO_TCP, libc::TCP_KEEPCNT, 5),
        (
            "TCP_USER_TIMEOUT",
            IPPROTO_TCP,
            libc::TCP_USER_TIMEOUT,
            60_000,
        ),
        ("TCP_LINGER2", IPPROTO_TCP, libc::TCP_LINGER2, 11),
        ("IP_TTL", libc::IPPROTO_IP, libc::IP_TTL, 17),
        ("SO_RCVLOWAT", SOL_SOCKET, libc::SO_RCVLOWAT, 1),
    ];
    for (name, level, option, value) in options {
        let set = raw::setsockopt(listener, level, option, &i32::to_ne_bytes(value));
        checks.need(name, set)?;
    }
    let pair = checks.need("a connection", pair(listener, addr))?;
    for (name, level, option, value) in options {
        let seen = raw::getsockopt_int(&pair.server, level, option);
        checks.eq(&format!("{name} is inherited"), seen, Ok(value));
    }
    let seen = raw::getsockopt_int(&pair.client, IPPROTO_TCP, libc::TCP_KEEPIDLE);
    checks.eq("and the peer does not have it", seen, Ok(7200));
    Some(())
}

/// SO_LINGER with no time: the connection is broken off.
fn abort(pair: Pair, checks: &mut Checks) -> Option<()> {
    let Pair { client, server } = pair;
    checks.need("send", raw::send_all(&client, b"x"))?;
    checks.need("SO_LINGER", raw::set_linger(&client, 0))?;
    checks.need("close", raw::close(client))?;
    let mut buf = [0; 4];
    checks.need("poll", raw::poll(&server, libc::POLLHUP, 20_000))?;
    checks.eq(
        "what had come is read",
        raw::recv(&server, &mut buf, 0),
        Ok(1),
    );
    let seen = raw::recv(&server, &mut buf, 0);
    checks.errno("SO_LINGER 0: the peer's", seen, &[libc::ECONNRESET]);
    Some(())
}

/// SO_LINGER with a time: the sent bytes have arrived when close() returns.
fn linger(pair: Pair, checks: &mut Checks) -> Option<()> {
    let Pair { client, server } = pair;
    let bytes = vec![9; 60_000];
    checks.need("O_NONBLOCK", raw::set_nonblocking(&client, true))?;
    let sent = checks.need("send", raw::send(&client, &bytes, MSG_NOSIGNAL))?;
    checks.need("SO_LINGER", raw::set_linger(&client, 20))?;
    checks.need("close", raw::close(client))?;
    let mut buf = vec![0; sent];
    let seen = raw::recv_all(&server, &mut buf);
    checks.eq("SO_LINGER 20: all of it comes", seen, Ok(()));
    checks.eq("and then the end", raw::recv(&server, &mut [0], 0), Ok(0));
    Some(())
}

/// SO_BINDTODEVICE: the way must lead over that interface.
fn devices(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let bind = |name: &[u8]| -> Result<OwnedFd> {
        let fd = raw::stream()?;
        raw::setsockopt(&fd, SOL_SOCKET, libc::SO_BINDTODEVICE, name)?;
        Ok(fd)
    };
    checks.errno("SO_BINDTODEVICE of none", bind(b"nosuch"), &[libc::ENODEV]);
    // This host's way to itself is the loopback interface.
    let fd = checks.need("SO_BINDTODEVICE", bind(b"lo"))?;
    checks.eq(
        "connect over that interface",
        raw::connect(&fd, addr),
        Ok(()),
    );
    checks.need("accept", raw::accept(listener)).map(drop)
}

/// SO_RCVBUF bounds unread small messages.
fn small_buffer(listener: &OwnedFd, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let set = raw::setsockopt(listener, SOL_SOCKET, libc::SO_RCVBUF, &1_i32.to_ne_bytes());
    checks.need("SO_RCVBUF", set)?;
    let pair = checks.need("a connection", pair(listener, addr))?;
    let (mut to, mut back) = (0, 0);
    let piece = [5; 4096];
    for (fd, sent) in [(&pair.client, &mut to), (&pair.server, &mut back)] {
        loop {
            match raw::send(fd, &piece, MSG_NOSIGNAL | MSG_DONTWAIT) {
                Ok(n) => *sent += n,
                Err(Errno(libc::EAGAIN)) => break,
                Err(e) => {
                    checks.fail("send", &e.to_string());
                    return None;
                }
            }
        }
    }
    checks.eq("SO_RCVBUF bounds what may be unread", to, 16 * 1024);
    checks.yes(
        "and a socket that has not set it has more",
        back > 16 * 1024,
        &format!("{back} bytes"),
    );
    Some(())
}

/// close() with SO_LINGER, of a connection whose peer cannot be reached.
pub fn run_linger(args: &LingerArgs, checks: &mut Checks) {
    linger_cut(args, checks);
}

fn linger_cut(args: &LingerArgs, checks: &mut Checks) -> Option<()> {
    let fd = checks.need("connect", ask(args.peer, &[DISCARD]))?;
    checks.need("SO_LINGER", raw::set_linger(&fd, 1))?;
    let cut = Command::new("sh").arg("-c").arg(&args.cut).status();
    checks.eq("the peer is cut off", cut.is_ok_and(|s| s.success()), true);
    checks.need("send", raw::send_all(&fd, b"x"))?;
    let start = Instant::now();
    checks.eq("close", raw::close(fd), Ok(()));
    let ms = start.elapsed().as_millis();
    // The kernel counts ticks, and a slow machine catches up several at once.
    checks.yes(
        "it has waited as long as SO_LINGER says",
        ms >= 500,
        &format!("{ms} ms"),
    );
    Some(())
}
