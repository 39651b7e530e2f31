// SPDX-License-Identifier: GPL-2.0
//! The maximum of sockets, listeners, connections and windows, twice: beyond it calls fail, and all
//! of it can be used again.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use zrs_sys::sock;

use super::{pause, still_works, Ctx};
use crate::common::serve::{ask, DISCARD, STALL};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let before = wild::limit_files(ctx.many)?;
    let done = descriptors(ctx, checks);
    wild::limit_files(before)?;
    done?;
    backlog(ctx, checks)?;
    if raw::is_zrs() {
        windows(ctx, checks)?;
    }
    still_works(ctx, "exhaust", checks)
}

/// Until it fails: all that it gave, and why it failed. A connect() that takes too long on a busy
/// machine is tried again.
fn all<T>(mut one: impl FnMut() -> Result<T>) -> (Vec<T>, Errno) {
    let (mut kept, mut late) = (Vec::new(), 0);
    loop {
        match one() {
            Ok(new) => kept.push(new),
            Err(Errno(libc::ETIMEDOUT)) if late < 10 => late += 1,
            Err(e) => return (kept, e),
        }
    }
}

fn descriptors(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let any = SocketAddrV4::new(ctx.local, 0);
    let listener = || raw::listener(any).map(|l| l.0);
    let connection = || ask(ctx.peer, &[DISCARD]);
    let kinds: [(&str, &dyn Fn() -> Result<OwnedFd>); 3] = [
        ("sockets", &raw::stream),
        ("listeners", &listener),
        ("connections", &connection),
    ];
    for (name, one) in kinds {
        let (first, why) = all(one);
        checks.eq(&format!("{name}: no more"), why, Errno(libc::EMFILE));
        let n = first.len();
        let many = n as u64 > ctx.many / 2;
        checks.yes(&format!("{name}: many"), many, &format!("{n}"));
        drop(first);
        let (second, why) = all(one);
        checks.eq(&format!("{name}: no more again"), why, Errno(libc::EMFILE));
        checks.eq(&format!("{name}: as many again"), second.len(), n);
    }
    // accept() without a descriptor left: the connection waits on, or ends, but nothing leaks.
    let (listener, addr) = raw::listener(any)?;
    let conn = raw::connected(addr)?;
    let (full, _) = all(raw::stream);
    let result = raw::accept(&listener).map(drop);
    checks.errno("accept() with no descriptor left", result, &[libc::EMFILE]);
    drop(full);
    let again = raw::connected(addr)?;
    let result = raw::accept(&listener).map(drop);
    checks.eq("accept() when there are some again", result, Ok(()));
    drop((conn, again));
    Ok(())
}

fn backlog(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let listener = raw::stream()?;
    raw::bind(&listener, SocketAddrV4::new(ctx.local, 0))?;
    const ROOM: usize = 8;
    raw::listen(&listener, ROOM as i32)?;
    let addr = raw::getsockname(&listener)?;
    for round in ["", " again"] {
        let mut made = 0;
        let (kept, why) = all(|| {
            let fd = raw::stream()?;
            // Only where no room is expected: a busy machine may need longer for a connection.
            if made >= ROOM || !raw::is_zrs() {
                wild::set_timeout(&fd, libc::SO_SNDTIMEO, 300)?;
            }
            raw::connect(&fd, addr)?;
            made += 1;
            Ok(fd)
        });
        // It goes on until there is room.
        let name = format!("a full backlog{round}");
        checks.eq(&name, why, Errno(libc::EINPROGRESS));
        if raw::is_zrs() {
            checks.eq(&format!("{name}: how many"), kept.len(), ROOM);
        }
        for _ in 0..kept.len() {
            raw::accept(&listener)?;
        }
        drop(kept);
        if !raw::is_zrs() {
            return Ok(());
        }
    }
    Ok(())
}

fn windows(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let ring = || {
        let fd = ask(ctx.peer, &[STALL])?;
        let window = sock::rx_ring(fd.as_fd(), 0)?.window_bytes;
        Ok((fd, window))
    };
    // How large they are depends on how much was free.
    let mut sums: Vec<u64> = Vec::new();
    for round in ["", " again"] {
        // Pages that others have just given back are zeroed later.
        let end = Instant::now() + Duration::from_secs(20);
        let (kept, why) = loop {
            let (kept, why) = all(ring);
            let sum = kept.iter().map(|(_, window)| *window).sum::<u64>();
            let enough = sums.first().is_none_or(|first| sum >= first / 4 * 3);
            if enough && !kept.is_empty() || Instant::now() > end {
                sums.push(sum);
                break (kept, why);
            }
            drop(kept);
            pause(200);
        };
        let name = format!("windows{round}");
        checks.eq(&format!("{name}: no more"), why, Errno(libc::ENOBUFS));
        let n = kept.len();
        checks.yes(&format!("{name}: some"), n > 0, "none");
        // Data goes without a window as well, both ways.
        still_works(ctx, &format!("{name}: none left"), checks)?;
        let fd = ctx.flood(1, 200_000)?;
        let mut buf = vec![0; 200_000];
        raw::recv_all(&fd, &mut buf)?;
        checks.yes(
            &format!("{name}: none left, receiving"),
            buf.iter().all(|b| *b == 1),
            "other bytes",
        );
    }
    say(&format!("#   {sums:?} bytes of windows"));
    checks.yes(
        "windows: about as much again",
        sums[1] >= sums[0] / 4 * 3,
        &format!("{sums:?}"),
    );
    Ok(())
}
