// SPDX-License-Identifier: GPL-2.0
//! Sockets that are closed, replaced and shut down while other threads use them, and several users
//! of one socket.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use zrs_sys::sock;

use super::{count, for_a_while, pause, still_works, Ctx, Tally};
use crate::common::serve::{ask, COUNT, DISCARD, STALL};
use crate::support::checks::Checks;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    replaced(ctx, checks)?;
    shut(ctx, checks)?;
    connecting(ctx, checks)?;
    reconnecting(ctx, checks)?;
    listeners(ctx, checks)?;
    shared(ctx, checks)?;
    still_works(ctx, "close", checks)
}

/// Descriptors that become others in the middle of send() and recv(). (They are replaced, not
/// closed, so that no thread of this program gets the number.)
fn replaced(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let nothing: OwnedFd = std::fs::File::open("/dev/null")?.into();
    let (sending, receiving) = (Tally::default(), Tally::default());
    let mut rng = ctx.rng(0);
    for_a_while(ctx.time / 5, || {
        let (out, inp) = (ask(ctx.peer, &[DISCARD])?, ctx.flood(2, 1 << 40)?);
        thread::scope(|s| {
            s.spawn(|| {
                let data = vec![1; 200_000];
                loop {
                    let result = raw::send(&out, &data, libc::MSG_NOSIGNAL);
                    sending.add(&result);
                    if result.is_err() {
                        return;
                    }
                }
            });
            s.spawn(|| {
                let mut data = vec![1; 200_000];
                loop {
                    let result = raw::recv(&inp, &mut data, 0);
                    receiving.add(&result);
                    if result.is_err() {
                        return;
                    }
                }
            });
            pause(rng.below(60) as u64);
            // The running call still has the socket; the next one finds no socket.
            wild::dup_over(&nothing, &out)?;
            wild::dup_over(&nothing, &inp)
        })
    })?;
    let errnos = [libc::ENOTSOCK];
    sending.report(checks, "closed while others send", &errnos);
    receiving.report(checks, "closed while others receive", &errnos);
    Ok(())
}

/// shutdown() wakes threads in send(), recv() and poll().
fn shut(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let (sending, receiving, polling) = (Tally::default(), Tally::default(), Tally::default());
    let mut rng = ctx.rng(1);
    for_a_while(ctx.time / 5, || {
        let fd = ask(ctx.peer, &[STALL])?;
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let data = vec![1; 300_000];
                    loop {
                        let result = raw::send(&fd, &data, libc::MSG_NOSIGNAL);
                        if result.is_err() {
                            return sending.add(&result);
                        }
                    }
                });
                s.spawn(|| {
                    let result = raw::recv(&fd, &mut [0; 10], 0);
                    receiving.add(&match result {
                        Ok(0) => Ok(()),
                        Ok(_) => Err(Errno(libc::EIO)),
                        Err(e) => Err(e),
                    });
                });
            }
            s.spawn(|| polling.add(&raw::poll(&fd, libc::POLLIN | libc::POLLRDHUP, -1)));
            pause(rng.below(40) as u64);
            raw::shutdown(&fd, libc::SHUT_RDWR)
        })
    })?;
    // ECONNRESET: the peer, which has not read anything, was faster.
    let errnos = [libc::EPIPE, libc::ECONNRESET];
    sending.report(checks, "shutdown() ends send()", &errnos);
    receiving.report(checks, "shutdown() ends recv(), with 0", &errnos[1..]);
    polling.report(checks, "shutdown() ends poll()", &[]);
    Ok(())
}

/// Closed, and shut down, while they connect; to a listener and to none.
fn connecting(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let nothing: OwnedFd = std::fs::File::open("/dev/null")?.into();
    let (tally, mut rng) = (Tally::default(), ctx.rng(2));
    let nobody = SocketAddrV4::new(*ctx.peer.ip(), 9);
    for_a_while(ctx.time / 5, || {
        let fd = raw::stream()?;
        let to = rng.pick(&[ctx.peer, ctx.peer, nobody]);
        let (close, wait) = (rng.one_in(2), rng.below(6) as u64);
        thread::scope(|s| {
            s.spawn(|| tally.add(&raw::connect(&fd, to)));
            s.spawn(|| tally.add(&raw::connect(&fd, to)));
            pause(wait);
            if close {
                return wild::dup_over(&nothing, &fd);
            }
            match raw::shutdown(&fd, libc::SHUT_RDWR) {
                Err(Errno(libc::ENOTCONN)) | Ok(()) => Ok(()),
                Err(e) => Err(e),
            }
        })
    })?;
    let errnos = [
        libc::ENOTSOCK,
        libc::ECONNREFUSED,
        libc::EISCONN,
        libc::EALREADY,
        libc::ECONNRESET,
        // TCP: shut down while it connects.
        libc::ECONNABORTED,
    ];
    tally.report(checks, "closed while connecting", &errnos);

    // Non-blocking, and closed at once or soon.
    let mut opened = 0;
    for_a_while(ctx.time / 10, || {
        let fd = raw::stream()?;
        raw::set_nonblocking(&fd, true)?;
        match raw::connect(&fd, ctx.peer) {
            Ok(()) | Err(Errno(libc::EINPROGRESS)) => {}
            Err(e) => return Err(e),
        }
        if rng.one_in(2) {
            pause(rng.below(4) as u64);
        }
        opened += 1;
        Ok(())
    })?;
    checks.yes("dropped while connecting", opened > 0, "none");
    Ok(())
}

/// A new attempt begins at the moment in which the last one failed.
fn reconnecting(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let tally = Tally::default();
    let nobody = SocketAddrV4::new(*ctx.peer.ip(), 9);
    for_a_while(ctx.time / 5, || {
        let fd = raw::stream()?;
        raw::set_nonblocking(&fd, true)?;
        let end = Instant::now() + ctx.time / 20;
        // Once in any case, however late the thread gets a processor.
        let again = || loop {
            tally.add(&raw::connect(&fd, nobody));
            if Instant::now() >= end {
                break;
            }
        };
        thread::scope(|s| {
            s.spawn(again);
            s.spawn(again);
        });
        Ok(())
    })?;
    let errnos = [libc::EINPROGRESS, libc::EALREADY, libc::ECONNREFUSED];
    tally.report(checks, "connected again as soon as it failed", &errnos);
    Ok(())
}

/// A listener whose backlog is full goes while threads wait in accept() and others connect.
fn listeners(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let (accepting, connecting) = (Tally::default(), Tally::default());
    let mut rng = ctx.rng(3);
    for_a_while(ctx.time / 4, || {
        let (fd, before) = (raw::stream()?, connecting.calls());
        raw::bind(&fd, SocketAddrV4::new(ctx.local, 0))?;
        raw::listen(&fd, 4)?;
        let addr = raw::getsockname(&fd)?;
        let over = AtomicBool::new(false);
        let (wait, acceptors) = (rng.below(50) as u64, rng.below(3));
        thread::scope(|s| {
            for _ in 0..acceptors {
                s.spawn(|| loop {
                    let result = raw::accept(&fd);
                    accepting.add(&result);
                    match result {
                        Ok(conn) => drop(raw::recv(&conn, &mut [0; 10], libc::MSG_DONTWAIT)),
                        Err(_) => return,
                    }
                });
            }
            for _ in 0..2 {
                s.spawn(|| {
                    let mut kept = Vec::new();
                    while !over.load(Relaxed) && kept.len() < 40 {
                        let Ok(conn) = raw::stream() else { return };
                        // While the backlog is full it goes on.
                        let _ = wild::set_timeout(&conn, libc::SO_SNDTIMEO, 200);
                        let result = raw::connect(&conn, addr);
                        connecting.add(&result);
                        kept.push(conn);
                    }
                    // Connections that were not accepted end as well.
                    for conn in kept {
                        let _ = raw::send(&conn, &[1], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
                    }
                });
            }
            // So that there are connections, and the backlog is full because none is accepted.
            for _ in 0..200 {
                if connecting.calls() >= before + 5 {
                    break;
                }
                pause(10);
            }
            pause(wait);
            let done = raw::shutdown(&fd, libc::SHUT_RD);
            over.store(true, Relaxed);
            done
        })
    })?;
    if !accepting.0.lock().unwrap().is_empty() {
        accepting.report(checks, "a listener goes under accept()", &[libc::EINVAL]);
    }
    let errnos = [
        libc::ECONNREFUSED,
        libc::ECONNRESET,
        // ZRS: the machine is busy.
        libc::ETIMEDOUT,
        // The backlog was full.
        libc::EINPROGRESS,
    ];
    connecting.report(checks, "a listener goes under connect()", &errnos);
    Ok(())
}

/// Two threads send and two receive on one socket, and a ring is made in the middle.
fn shared(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let mut rng = ctx.rng(4);
    let rings = Tally::default();
    let (mut wrong_count, mut wrong_bytes, mut rounds) = (None, None, 0);
    for_a_while(ctx.time / 4, || {
        rounds += 1;
        let len = 1 + rng.below(3 << 20) as u64;
        let (inp, out) = (ctx.flood(3, len)?, ask(ctx.peer, &[COUNT])?);
        let (got, bad) = (AtomicU64::new(0), AtomicBool::new(false));
        let (pieces, wait) = (1 + rng.below(30), rng.below(10) as u64);
        let sizes = [1 + rng.below(100_000), 1 + rng.below(3000)];
        thread::scope(|s| {
            for size in sizes {
                s.spawn(|| {
                    let mut buf = vec![0; 70_000];
                    loop {
                        match raw::recv(&inp, &mut buf, 0) {
                            Ok(0) => return,
                            Ok(n) => {
                                got.fetch_add(n as u64, Relaxed);
                                if buf[..n].iter().any(|b| *b != 3) {
                                    bad.store(true, Relaxed);
                                }
                            }
                            Err(_) => return bad.store(true, Relaxed),
                        }
                    }
                });
                let out = &out;
                s.spawn(move || {
                    for _ in 0..pieces {
                        if raw::send_all(out, &vec![4; size]).is_err() {
                            return;
                        }
                    }
                });
            }
            pause(wait);
            if raw::is_zrs() {
                for _ in 0..5 {
                    let result = sock::rx_ring(inp.as_fd(), 0);
                    rings.add(&result.map_err(Errno::from));
                }
            }
        });
        let sent = (pieces * (sizes[0] + sizes[1])) as u64;
        let (got, counted) = (got.into_inner(), count(&out)?);
        if got != len || counted.bytes != sent {
            wrong_count = Some((got, len, counted.bytes, sent));
        }
        if bad.into_inner() || counted.values != [4] {
            wrong_bytes = Some(counted.values);
        }
        Ok(())
    })?;
    checks.eq("two send, two receive: all bytes", wrong_count, None);
    checks.eq("two send, two receive: their values", wrong_bytes, None);
    if raw::is_zrs() {
        // ENOBUFS: no window is left.
        let errnos = [libc::EBUSY, libc::ENOBUFS];
        rings.report(checks, "a ring is made while others receive", &errnos);
    }
    checks.yes("two send, two receive: rounds", rounds > 0, "none");
    Ok(())
}
