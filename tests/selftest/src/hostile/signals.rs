// SPDX-License-Identifier: GPL-2.0
//! A storm of signals in each call that waits: EINTR or a restart, and no byte lost or doubled.

use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use super::{beside, count, for_a_while, pause, still_works, Ctx, Tally};
use crate::common::serve::{ask, DISCARD, ECHO, STALL};
use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Errno, Result};
use crate::support::wild;

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    for restart in [false, true] {
        waiting(ctx, checks, restart)?;
        connecting(ctx, checks, restart)?;
        counting(ctx, checks, restart)?;
    }
    say(&format!("#   {} signals", wild::signals()));
    still_works(ctx, "signals", checks)
}

/// Runs `main` on this thread while it gets signals all the time: in between it has `every_us`, for
/// a thread that has the next one waiting when its handler returns would never come to anything
/// else.
fn storm<T>(restart: bool, every_us: u64, dwell_us: u32, main: impl FnOnce() -> T) -> Result<T> {
    wild::handle_signal(restart, dwell_us)?;
    let thread = wild::this_thread();
    let pause = Duration::from_micros(every_us + u64::from(dwell_us));
    let signal = |_| {
        let _ = wild::signal_thread(thread);
        thread::sleep(pause);
    };
    Ok(beside(1, signal, main))
}

fn named(restart: bool) -> &'static str {
    if restart {
        "SA_RESTART"
    } else {
        "no SA_RESTART"
    }
}

/// Calls in which only the signal occurs, or something later.
fn waiting(ctx: &Ctx, checks: &mut Checks, restart: bool) -> Result<()> {
    let with = named(restart);
    let idle = ask(ctx.peer, &[STALL])?;
    let polled = storm(restart, 20_000, 0, || raw::poll(&idle, libc::POLLIN, -1))?;
    checks.errno(&format!("poll, {with}"), polled, &[libc::EINTR]);
    wild::set_timeout(&idle, libc::SO_RCVTIMEO, 60_000)?;
    let received = storm(restart, 20_000, 0, || raw::recv(&idle, &mut [0], 0))?;
    let name = format!("recv with a timeout, {with}");
    checks.errno(&name, received, &[libc::EINTR]);
    wild::set_timeout(&idle, libc::SO_RCVTIMEO, 0)?;

    let echo = ask(ctx.peer, &[ECHO])?;
    let listener = raw::stream()?;
    raw::bind(&listener, SocketAddrV4::new(ctx.local, 0))?;
    raw::listen(&listener, 1)?;
    let addr = raw::getsockname(&listener)?;
    let (received, accepted, full) = thread::scope(|s| {
        let later = s.spawn(|| {
            if !restart {
                return Ok(None);
            }
            pause(200);
            raw::send_all(&echo, b"x")?;
            pause(200);
            raw::connected(addr).map(Some)
        });
        let received = storm(restart, 20_000, 0, || raw::recv(&echo, &mut [0], 0));
        let accepted = storm(restart, 20_000, 0, || raw::accept(&listener));
        // Until no more can be sent: the bytes sent before are reported first.
        let full = storm(restart, 20_000, 0, || {
            let data = vec![1; 64 << 10];
            wild::set_timeout(&idle, libc::SO_SNDTIMEO, 1000)?;
            loop {
                match raw::send(&idle, &data, libc::MSG_NOSIGNAL) {
                    Ok(n) if n > data.len() => return Err(Errno(libc::EIO)),
                    Ok(_) => {}
                    Err(e) => return Err::<(), _>(e),
                }
            }
        });
        later.join().expect("a connection").map(drop)?;
        Ok::<_, Errno>((received?, accepted?, full?))
    })?;
    if restart {
        checks.eq(&format!("recv, {with}"), received, Ok(1));
        let accepted = accepted.map(drop);
        checks.eq(&format!("accept, {with}"), accepted, Ok(()));
    } else {
        checks.errno(&format!("recv, {with}"), received, &[libc::EINTR]);
        checks.errno(&format!("accept, {with}"), accepted, &[libc::EINTR]);
    }
    let name = format!("send that finds no room, with a timeout, {with}");
    checks.errno(&name, full, &[libc::EINTR, libc::EAGAIN]);
    Ok(())
}

/// connect(): restarted it succeeds, whenever the signal came; else it continues in the background.
fn connecting(ctx: &Ctx, checks: &mut Checks, restart: bool) -> Result<()> {
    let tally = Tally::default();
    let mut unfinished = None;
    // The handler takes longer than a connection, so that many are done when it returns.
    storm(restart, 500, 4000, || {
        for_a_while(ctx.time / 4, || {
            let fd = raw::stream()?;
            let result = raw::connect(&fd, ctx.peer);
            tally.add(&result);
            if result == Err(Errno(libc::EINTR)) {
                let end = std::time::Instant::now() + Duration::from_secs(60);
                while !matches!(raw::poll(&fd, libc::POLLOUT, 1000), Ok(n) if n & libc::POLLOUT != 0)
                {
                    if std::time::Instant::now() > end {
                        unfinished = Some("still connecting".to_string());
                        return Ok(());
                    }
                }
                let error = raw::so_error(&fd)?;
                if error != Errno(0) {
                    unfinished = Some(error.to_string());
                }
            }
            raw::send_all(&fd, &[DISCARD])
        })
    })??;
    let errnos: &[i32] = if restart { &[] } else { &[libc::EINTR] };
    let name = format!("connect, {}", named(restart));
    tally.report(checks, &name, errnos);
    checks.eq(
        &format!("{name}: what was interrupted goes on"),
        unfinished,
        None,
    );
    Ok(())
}

/// Calls that move data: their results equal the bytes moved.
fn counting(ctx: &Ctx, checks: &mut Checks, restart: bool) -> Result<()> {
    let with = named(restart);
    for (what, piece) in [("copied", 3000), ("pinned", 1 << 20)] {
        let (fd, tally) = (ctx.counted()?, Tally::default());
        let data = vec![1; piece];
        let mut sent = 0;
        storm(restart, 1000, 0, || {
            for_a_while(ctx.time / 8, || {
                let result = raw::send(&fd, &data, libc::MSG_NOSIGNAL);
                tally.add(&result);
                sent += result.unwrap_or(0) as u64;
                Ok(())
            })
        })??;
        tally.report(checks, &format!("send, {what}, {with}"), &[libc::EINTR]);
        let name = format!("send, {what}, {with}: as much arrives as it said");
        checks.eq(&name, count(&fd)?.bytes, sent);
    }
    for (what, flags) in [("", 0), (", MSG_WAITALL", libc::MSG_WAITALL)] {
        let len = 4_000_001;
        let (fd, tally) = (ctx.flood(1, len)?, Tally::default());
        let mut got = 0;
        let mut buf = vec![0; 500_000];
        storm(restart, 1000, 0, || loop {
            let result = raw::recv(&fd, &mut buf, flags);
            tally.add(&result);
            match result {
                Ok(0) => return,
                Ok(n) => got += n as u64,
                Err(Errno(libc::EINTR)) => {}
                Err(_) => return,
            }
        })?;
        let name = format!("recv{what}, {with}");
        tally.report(checks, &name, &[libc::EINTR]);
        checks.eq(&format!("{name}: as much as was sent"), got, len);
    }
    Ok(())
}
