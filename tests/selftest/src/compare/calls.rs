// SPDX-License-Identifier: GPL-2.0
//! The rows that are a matter of socket calls, which TCP must pass too.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use libc::{AF_INET, AF_INET6, POLLIN, SOCK_STREAM};

use super::{carry, pair, peer, Args};
use crate::common::serve;
use crate::events::epoll;
use crate::events::states;
use crate::events::wakes;
use crate::socket::calls as sockcalls;
use crate::socket::handed;
use crate::socket::scatter;
use crate::stream::splice::{self, Sender, Source};
use crate::support::calls;
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::uring::Uring;

/// In every state of a socket; and data wakes a waiting process.
pub fn poll_and_select(args: &Args, checks: &mut Checks) -> Option<()> {
    let every = states::Args {
        local: args.local,
        nowhere: None,
    };
    states::run(&every, checks);
    let pair = checks.need("connect", pair(args))?;
    let mut woken = |name: &str, wait: fn(&OwnedFd) -> Result<bool>| {
        let seen = thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(&pair.server));
            thread::sleep(Duration::from_millis(30));
            raw::send_all(&pair.client, b"x")?;
            waiter.join().expect("who waits")
        });
        let seen = seen.and_then(|seen| raw::recv_all(&pair.server, &mut [0]).map(|()| seen));
        checks.eq(name, seen, Ok(true));
    };
    woken("poll() that waits", |fd| {
        raw::poll(fd, POLLIN, -1).map(|bits| bits == POLLIN)
    });
    woken("select() that waits", calls::select_read);
    Some(())
}

type Modes = [fn(&epoll::Args, &mut Checks) -> Option<()>];

/// Some of epoll's tests, with an echo as the peer.
fn epolls(args: &Args, modes: &Modes, checks: &mut Checks) -> Option<()> {
    let serve = |listener: &OwnedFd| serve::on(listener, &mut Checks::of_parts());
    let (_echo, peer) = checks.need("an echo", peer(args, serve))?;
    for test in modes {
        test(&epoll::Args { peer }, checks)?;
    }
    Some(())
}

pub fn level(args: &Args, checks: &mut Checks) -> Option<()> {
    epolls(args, &[epoll::level], checks)
}

pub fn edge_and_oneshot(args: &Args, checks: &mut Checks) -> Option<()> {
    epolls(args, &[epoll::edge, epoll::oneshot], checks)
}

/// Of several processes that wait, one is woken.
pub fn exclusive_and_nested(args: &Args, checks: &mut Checks) -> Option<()> {
    wakes::exclusive(args.local, checks);
    epolls(args, &[epoll::nested], checks)
}

type Hands = [fn(&handed::Args, &mut Checks) -> Option<()>];

/// Some of the tests of connections in other hands; every byte of both directions is compared.
fn hand(args: &Args, tests: &Hands, checks: &mut Checks) -> Option<()> {
    let serve = |listener: &OwnedFd| handed::serve(listener, args.seed);
    let (_other, addr) = checks.need("the other side", peer(args, serve))?;
    let args = handed::Args {
        server: None,
        client: Some(addr),
        local: args.local,
        go_on: None,
        from: 0,
        seed: args.seed,
    };
    for test in tests {
        test(&args, checks)?;
    }
    Some(())
}

pub fn fork(args: &Args, checks: &mut Checks) -> Option<()> {
    hand(args, &[handed::fork], checks)
}

pub fn exec_and_pass(args: &Args, checks: &mut Checks) -> Option<()> {
    hand(args, &[handed::exec, handed::passed], checks)
}

pub fn dup(args: &Args, checks: &mut Checks) -> Option<()> {
    hand(args, &[handed::dup], checks)
}

pub fn flags(args: &Args, checks: &mut Checks) -> Option<()> {
    let pair = checks.need("connect", pair(args))?;
    sockcalls::waiting(&pair, checks)
}

fn scattered(args: &Args) -> scatter::Args {
    scatter::Args {
        local: args.local,
        seed: args.seed,
    }
}

pub fn scatter(args: &Args, checks: &mut Checks) -> Option<()> {
    scatter::few(&scattered(args), checks)?;
    scatter::many(&scattered(args), checks)
}

pub fn messages(args: &Args, checks: &mut Checks) -> Option<()> {
    scatter::messages(&scattered(args), checks)?;
    scatter::received(&scattered(args), checks)
}

pub fn uring(args: &Args, checks: &mut Checks) -> Option<()> {
    // Without it nothing would be tested.
    checks.need("io_uring_setup()", Uring::new())?;
    scatter::uring(&scattered(args), checks)
}

/// A file goes out by sendfile(), and through a pipe; it is received into a pipe.
pub fn files(args: &Args, checks: &mut Checks) -> Option<()> {
    let ways: [(&str, Sender); 3] = [
        ("sendfile()", splice::send_file),
        ("splice() of mapped memory", splice::splice_memory),
        ("splice() of what was written", splice::splice_written),
    ];
    for (index, (name, send)) in (0..).zip(ways) {
        let pair = checks.need(name, pair(args))?;
        let pattern = Pattern::new(args.seed, 0, index);
        let source = checks.need(name, Source::new(pattern))?;
        let (sent, read) = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = Verifier::new(pattern);
                splice::receive_spliced(&pair.server, &mut seen)?;
                Ok((seen.pos, seen.wrong))
            });
            let sent = send(&pair.client, &source);
            let sent = sent.and_then(|()| raw::shutdown(&pair.client, libc::SHUT_WR));
            (sent, reader.join().expect("the reader"))
        });
        let all: Result<_> = Ok((splice::FILE as u64, None));
        checks.eq(name, (sent, read), (Ok(()), all));
    }
    Some(())
}

/// A listener for both families, and a client of each kind.
pub fn ipv6(args: &Args, checks: &mut Checks) -> Option<()> {
    let place = |ip, port| SocketAddrV6::new(ip, port, 0, 0);
    let socket = |family| raw::socket(family, SOCK_STREAM, raw::protocol());
    let listener = checks.need("socket", socket(AF_INET6))?;
    let any = place(Ipv6Addr::UNSPECIFIED, 0);
    checks.need("bind", raw::bind6_as(&listener, any, raw::ADDR6_LEN))?;
    checks.need("listen", raw::listen(&listener, 4))?;
    let port = checks.need("getsockname", raw::name_any(&listener, false))?;
    let port = port.port();
    let mapped = args.local.to_ipv6_mapped();
    let ways: [(&str, i32, SocketAddr, Ipv6Addr); 3] = [
        ("IPv6", AF_INET6, place(args.v6, port).into(), args.v6),
        ("v4-mapped", AF_INET6, place(mapped, port).into(), mapped),
        (
            "IPv4",
            AF_INET,
            SocketAddrV4::new(args.local, port).into(),
            mapped,
        ),
    ];
    for (name, family, to, seen) in ways {
        let client = checks.need(name, socket(family))?;
        checks.need(name, raw::connect_any(&client, to))?;
        let server = checks.need(name, raw::accept(&listener))?;
        checks.eq(name, raw::name_any(&client, true), Ok(to));
        let local = raw::name_any(&server, false);
        checks.eq(name, local, Ok(place(seen, port).into()));
        let ours = checks.need(name, raw::name_any(&client, false))?;
        let theirs = raw::name_any(&server, true);
        let expected: Result<_> = Ok((seen, ours.port()));
        let theirs = theirs.and_then(|addr| match addr {
            SocketAddr::V6(addr) => Ok((*addr.ip(), addr.port())),
            SocketAddr::V4(_) => Err(Errno(libc::EAFNOSUPPORT)),
        });
        checks.eq(name, theirs, expected);
        for (from, to) in [(&client, &server), (&server, &client)] {
            checks.need(name, carry(args, from, to, 300_000))?;
        }
    }
    Some(())
}
