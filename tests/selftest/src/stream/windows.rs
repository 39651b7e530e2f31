// SPDX-License-Identifier: GPL-2.0
//! More connections than windows: an unused window goes to a waiting connection, and rings leave
//! some to others. A small window is exchanged for a larger one when there is room.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::args::{End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;

/// Bulk data in turn on more connections than there are windows
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 12)]
    conns: u64,
    /// The server makes rings, the maximum that it gets
    #[arg(long)]
    rings: bool,
    /// All connections send at the same time; every other receiver makes a ring when it can, in the
    /// middle of the data
    #[arg(long)]
    at_once: bool,
    /// All but the last connection send for a while, and end; the last one goes on until its window
    /// is larger
    #[arg(long, conflicts_with = "at_once")]
    wider: bool,
    /// The time after which a window counts as not used, and as much again
    #[arg(long, value_name = "MS", default_value_t = 250)]
    pause: u64,
}

/// Bytes sent each time: no more than a window has room for.
const BULK: usize = 300_000;
const TURNS: u64 = 3;
/// Bulk data that may be sent without a window, since none came back in time.
const MISSES: u64 = 3;
/// Sends within which a larger window should have come.
const MOST_TURNS: u64 = 400;
/// The time limit of waits.
fn soon() -> Duration {
    process::patience(20)
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    let mut readers = Vec::new();
    let mut rings = 0;
    for index in 0..args.conns {
        let conn = checks.need("accept", raw::accept(&listener))?;
        let rx = match args.rings.then(|| Rx::new(&conn, true, 0)) {
            Some(Err(Errno(libc::ENOBUFS))) | None => Rx::new(&conn, false, 0),
            Some(ring) => {
                rings += 1;
                ring
            }
        };
        let rx = checks.need("receiver", rx)?;
        let seen = Verifier::new(Pattern::new(args.seed, 0, index));
        let ring = args.at_once && index % 2 == 1;
        readers.push(thread::spawn(move || read(rx, &conn, seen, ring)));
    }
    if args.rings {
        say(&format!("# {rings} rings"));
        let some = (1..args.conns).contains(&rings);
        checks.yes("rings leave windows to others", some, &format!("{rings}"));
    }
    for reader in readers {
        checks.need("receive", reader.join().expect("the reader panicked"))?;
    }
    Some(())
}

/// Reads all; with `ring`, by a ring as soon as one is available.
fn read(mut rx: Rx, conn: &OwnedFd, mut seen: Verifier, mut ring: bool) -> Result<()> {
    while rx.next(|bytes| seen.take(bytes))? {
        if ring {
            match Rx::new(conn, true, 0) {
                Ok(made) => (rx, ring) = (made, false),
                // None left, or unread data in one that was given back.
                Err(Errno(libc::ENOBUFS | libc::EBUSY)) => {}
                Err(e) => return Err(e),
            }
        }
    }
    verified::answer(conn, &seen)
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let mut conns = Vec::new();
    for _ in 0..args.conns {
        conns.push(checks.need("connect", raw::connected(addr))?);
    }
    if args.at_once {
        return at_once(args, conns, checks);
    }
    if args.wider {
        return wider(args, conns, checks);
    }
    let mut with = 0;
    for turn in 0..TURNS {
        for (index, conn) in conns.iter().enumerate() {
            let bulk = bulk(args, index as u64, turn);
            checks.need("send", raw::send_all(conn, &bulk))?;
            if raw::is_zrs() {
                let info = zrs_sys::sock::info(conn.as_fd()).map_err(Errno::from);
                with += u64::from(checks.need("ZRS_INFO", info)?.peer_window != 0);
            }
            thread::sleep(Duration::from_millis(args.pause));
        }
    }
    if raw::is_zrs() {
        // On a busy machine another channel may give its window back too late for a waiting one.
        let most = TURNS * args.conns;
        checks.yes(
            "bulk data found a window",
            with + MISSES >= most,
            &format!("{with} times of {most}"),
        );
    }
    for conn in conns {
        verified::end(&conn, TURNS * BULK as u64, checks)?;
    }
    Some(())
}

/// The bytes that connection `index` sends in turn `turn`.
fn bulk(args: &Args, index: u64, turn: u64) -> Vec<u8> {
    let mut bulk = vec![0; BULK];
    Pattern::new(args.seed, 0, index).fill(turn * BULK as u64, &mut bulk);
    bulk
}

/// A thread for each connection; with pauses, in which its window may go to another.
fn at_once(args: &Args, conns: Vec<OwnedFd>, checks: &mut Checks) -> Option<()> {
    let turns = 2 * TURNS;
    let sent: Result<()> = thread::scope(|scope| {
        let send = |(index, conn)| {
            for turn in 0..turns {
                raw::send_all(conn, &bulk(args, index, turn))?;
                let pause = (index * 7 + turn * 13) % 20;
                thread::sleep(Duration::from_millis(pause));
            }
            Ok(())
        };
        let senders: Vec<_> = (0..)
            .zip(&conns)
            .map(|one| scope.spawn(move || send(one)))
            .collect();
        let ends = senders
            .into_iter()
            .map(|s| s.join().expect("the sender panicked"));
        ends.collect()
    });
    checks.need("send", sent)?;
    for conn in conns {
        verified::end(&conn, turns * BULK as u64, checks)?;
    }
    Some(())
}

/// Whether there is a window for what this connection sends; always on TCP.
fn has_window(conn: &OwnedFd) -> bool {
    !raw::is_zrs() || zrs_sys::sock::info(conn.as_fd()).is_ok_and(|info| info.peer_window != 0)
}

/// Sends the last connection's next bulk data: the window it has for that then.
fn send_last(args: &Args, conn: &OwnedFd, turn: &mut u64) -> Result<u64> {
    raw::send_all(conn, &bulk(args, args.conns - 1, *turn))?;
    *turn += 1;
    match raw::is_zrs() {
        true => Ok(zrs_sys::sock::info(conn.as_fd())?.peer_window),
        false => Ok(*turn),
    }
}

/// The last connection gets the room that the others, which are busy, have left; when they have
/// ended it gets more.
fn wider(args: &Args, mut others: Vec<OwnedFd>, checks: &mut Checks) -> Option<()> {
    let last = &others.pop()?;
    let stop = &AtomicBool::new(false);
    let mut turn = 0;
    let (first, turns) = thread::scope(|scope| {
        let send = move |index: u64, conn| {
            let mut turn = 0;
            while !stop.load(Relaxed) {
                raw::send_all(conn, &bulk(args, index, turn))?;
                turn += 1;
            }
            Ok::<u64, Errno>(turn)
        };
        let senders: Vec<_> = (0..)
            .zip(&others)
            .map(|(index, conn)| scope.spawn(move || send(index, conn)))
            .collect();
        thread::sleep(Duration::from_millis(args.pause));
        // On a busy machine some of them begin later.
        let begun = Instant::now();
        while !others.iter().all(has_window) && begun.elapsed() < soon() {
            thread::sleep(Duration::from_millis(10));
        }
        let first = send_last(args, last, &mut turn).and(send_last(args, last, &mut turn));
        stop.store(true, Relaxed);
        let turns: Result<Vec<u64>> = senders
            .into_iter()
            .map(|s| s.join().expect("the sender panicked"))
            .collect();
        (first, turns)
    });
    let first = checks.need("beside the others", first)?;
    for (conn, turns) in others.iter().zip(checks.need("the others", turns)?) {
        verified::end(conn, turns * BULK as u64, checks)?;
    }
    drop(others);
    let mut now = first;
    while now < 2 * first && turn < MOST_TURNS {
        now = checks.need("alone", send_last(args, last, &mut turn))?;
    }
    say(&format!(
        "# a window of {first} bytes, and of {now} after {turn} sends"
    ));
    checks.yes("a small window", first > 0, "none");
    checks.yes(
        "a larger one when there is room",
        now >= 2 * first,
        &format!("{now}"),
    );
    verified::end(last, turn * BULK as u64, checks)
}
