// SPDX-License-Identifier: GPL-2.0
//! SIGKILL, at random moments, for processes in each state. That nothing is left of them is for the
//! module's counters to show.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Instant;

use super::{pause, still_works, Ctx, Tally};
use crate::common::serve::{ask, DISCARD, STALL};
use crate::support::checks::{say, Checks};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::wild::{self, Area, Userfault};

type State = (&'static str, fn(&Ctx) -> Result<()>);

/// None of these ends unless it is killed.
const STATES: &[State] = &[
    ("sending", |ctx| send(&ask(ctx.peer, &[DISCARD])?, 300_000)),
    ("sending little pieces", |ctx| {
        send(&ask(ctx.peer, &[DISCARD])?, 700)
    }),
    ("waiting for room", |ctx| {
        send(&ask(ctx.peer, &[STALL])?, 1 << 20)
    }),
    ("receiving", |ctx| recv(&ctx.flood(1, 1 << 40)?)),
    ("waiting for data", |ctx| recv(&ask(ctx.peer, &[STALL])?)),
    ("not reading", |ctx| {
        let _fd = ctx.flood(1, 1 << 40)?;
        forever()
    }),
    ("connecting", |ctx| {
        // Over and over, to the peer and to hosts that are not there.
        let mut rng = ctx.rng(1);
        loop {
            let fd = raw::stream()?;
            let last = rng.pick(&[ctx.peer.ip().octets()[3], 77, 78]);
            let [a, b, c, _] = ctx.peer.ip().octets();
            let ip = Ipv4Addr::from([a, b, c, last]);
            let _ = raw::connect(&fd, SocketAddrV4::new(ip, ctx.peer.port()));
        }
    }),
    ("waiting in accept()", |ctx| {
        let listener = listen(ctx)?;
        loop {
            raw::accept(&listener)?;
        }
    }),
    ("not accepting", |ctx| {
        let listener = listen(ctx)?;
        let addr = raw::getsockname(&listener)?;
        let mut kept = Vec::new();
        for _ in 0..4 {
            kept.push(raw::connected(addr)?);
            raw::send_all(&kept[0], &[1; 3000])?;
        }
        forever()
    }),
    ("in poll()", |ctx| {
        let (a, b) = (ask(ctx.peer, &[STALL])?, ctx.flood(1, 10)?);
        while wild::poll_all(&[&a, &b], libc::POLLPRI, -1).is_ok() {}
        forever()
    }),
    ("with a ring", |ctx| {
        if !raw::is_zrs() {
            return recv(&ctx.flood(1, 1 << 40)?);
        }
        let ring = zrs::Stream::from(ctx.flood(1, 1 << 40)?).rx_ring()?;
        while ring.recv()?.is_some() {}
        forever()
    }),
    ("holding segments", |ctx| {
        if !raw::is_zrs() {
            return recv(&ctx.flood(1, 1 << 40)?);
        }
        let ring = zrs::Stream::from(ctx.flood(1, 1 << 40)?).rx_ring()?;
        let mut kept = Vec::new();
        for _ in 0..3 {
            kept.push(ring.recv()?);
        }
        forever()
    }),
    ("in a page fault", |ctx| {
        let fd = ask(ctx.peer, &[DISCARD])?;
        let area = Area::anonymous(1 << 20)?;
        // Nobody answers.
        let _faults = match Userfault::new(&area) {
            Ok(faults) => faults,
            Err(_) => return forever(),
        };
        wild::send(&fd, &area, 0, area.len(), 0)?;
        forever()
    }),
    ("with many threads", |ctx| {
        thread::scope(|s| {
            for (_, state) in &STATES[..5] {
                s.spawn(|| state(ctx));
            }
        });
        forever()
    }),
    ("with a child that has the sockets too", |ctx| {
        let fd = ctx.flood(1, 1 << 40)?;
        let child = wild::fork_idle(100)?;
        let end = recv(&fd);
        process::wait(child)?;
        end
    }),
];

fn send(fd: &std::os::fd::OwnedFd, len: usize) -> Result<()> {
    let data = vec![1; len];
    loop {
        raw::send(fd, &data, libc::MSG_NOSIGNAL)?;
    }
}

fn recv(fd: &std::os::fd::OwnedFd) -> Result<()> {
    let mut buf = vec![0; 100_000];
    while raw::recv(fd, &mut buf, 0)? > 0 {}
    Err(Errno(libc::EPIPE))
}

fn listen(ctx: &Ctx) -> Result<std::os::fd::OwnedFd> {
    let fd = raw::stream()?;
    raw::bind(&fd, SocketAddrV4::new(ctx.local, 0))?;
    raw::listen(&fd, 8)?;
    Ok(fd)
}

fn forever() -> Result<()> {
    loop {
        thread::park();
    }
}

pub fn run(ctx: &Ctx, checks: &mut Checks) -> Result<()> {
    let mut rng = ctx.rng(0);
    let (end, mut killed) = (Instant::now() + ctx.time * 2, 0);
    let tallies: Vec<_> = STATES.iter().map(|_| Tally::default()).collect();
    'rounds: for round in 0.. {
        for ((_, state), tally) in STATES.iter().zip(&tallies) {
            // Each state at least once.
            if round > 0 && Instant::now() > end {
                break 'rounds;
            }
            let child = process::fork(|| match state(ctx) {
                Ok(()) => 0,
                Err(e) => e.0 as u8,
            })?;
            pause(rng.below(if round == 0 { 150 } else { 40 }) as u64);
            wild::kill(child, libc::SIGKILL)?;
            killed += 1;
            tally.add(&match process::wait(child)? {
                137 => Ok(()),
                status => Err(Errno(status)),
            });
        }
    }
    for ((name, _), tally) in STATES.iter().zip(&tallies) {
        tally.report(checks, &format!("killed {name}"), &[]);
    }
    say(&format!("#   {killed} killed"));
    still_works(ctx, "kill", checks)
}
