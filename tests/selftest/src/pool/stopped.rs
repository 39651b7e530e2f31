// SPDX-License-Identifier: GPL-2.0
//! Stopped readers, together with running ones: where the unread data goes, and that all of it is
//! right when it is read.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use zrs::{RxRing, Segment, Stream};

use super::{becomes, cache, said, set_param};
use crate::scale::{call, serve, Control};
use crate::support::args::{size, End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;

/// Stop some readers while others go on; both ends get the same arguments
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections whose reader stops
    #[arg(long, default_value_t = 1)]
    stopped: u64,
    /// How the stopped reader reads
    #[arg(long, value_enum, default_value_t = How::Recv)]
    how: How,
    /// The expected place of its data
    #[arg(long, value_enum)]
    expect: Expect,
    /// Other connections, all at once
    #[arg(long, default_value_t = 16)]
    busy: u64,
    /// Bytes on each of them
    #[arg(long, value_parser = size, default_value = "1M")]
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum How {
    /// By recv()
    Recv,
    /// By recv(), messages of less than 4 KiB
    Small,
    /// By a ring that does not know of escaped data
    Ring,
    /// By a ring that does
    RingEscape,
    /// The same; it has taken the first segment in its window, and holds it. Data that must stay as
    /// long as the script says until then, so that there is one, may leave after 200 us from then
    /// on
    Hold,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Expect {
    /// It stays where it is, whatever others want
    Stays,
    /// It leaves the pool
    Leaves,
    /// It leaves the pool when others want the room
    LeavesForOthers,
}

/// Bytes for a stopped reader: more than can be sent without it.
const LARGE: usize = 4 << 20;
const SMALL: usize = 512 << 10;
/// Bytes in a message: of a large one, and of a small one.
const PIECE: usize = 300_000;
const LITTLE: usize = 2000;
/// Without a byte sent for this time, the senders wait.
const STILL: Duration = Duration::from_millis(600);

impl How {
    /// Bytes for such a reader, and in each message.
    fn amount(self) -> (usize, usize) {
        match self {
            Self::Small => (SMALL, LITTLE),
            _ => (LARGE, PIECE),
        }
    }

    fn receiver(self, conn: &OwnedFd) -> Result<Rx> {
        match self {
            Self::Recv | Self::Small => Rx::new(conn, false, 0),
            Self::Ring => Ok(Rx::Ring(ring(conn, false)?)),
            Self::RingEscape | Self::Hold => Ok(Rx::Ring(ring(conn, true)?)),
        }
    }
}

/// The library's rings know of escaped data, but for one that was made before without.
fn ring(conn: &OwnedFd, escape: bool) -> Result<RxRing> {
    if !escape {
        raw::make_ring(conn)?;
    }
    Ok(Stream::from(conn.try_clone()?).rx_ring()?)
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, 1, checks)?;
    let (stops, stopped) = mpsc::channel();
    let (mut readers, mut go) = (Vec::new(), Vec::new());
    for index in 0..args.stopped + args.busy {
        let conn = checks.need("accept", raw::accept(&listeners[0]))?;
        let seen = Verifier::new(Pattern::new(args.seed, 0, index));
        let stop = (index < args.stopped).then(|| {
            let (tell, hear) = mpsc::channel();
            go.push(tell);
            (stops.clone(), hear)
        });
        let how = args.how;
        readers.push(thread::spawn(move || match stop {
            Some((stopped, go)) => stop_and_go(&conn, how, seen, &stopped, &go),
            None => read(Rx::new(&conn, false, 0)?, &conn, seen),
        }));
    }
    drop(stops);
    let ready = stopped.iter().take(args.stopped as usize).count();
    checks.eq("readers that have stopped", ready as u64, args.stopped);
    checks.need("tell", control.tell(ready as u64))?;
    checks.need("hear", control.hear())?;
    // They go on.
    drop(go);
    for reader in readers {
        checks.need("receive", reader.join().expect("the reader panicked"))?;
    }
    Some(())
}

/// Stops before anything, or with the first segment in its hands, says so, and reads on when `go`
/// ends.
fn stop_and_go(
    conn: &OwnedFd,
    how: How,
    mut seen: Verifier,
    stopped: &Sender<()>,
    go: &Receiver<()>,
) -> Result<()> {
    let rx = how.receiver(conn)?;
    let held = match &rx {
        Rx::Ring(ring) if how == How::Hold => hold(ring, &mut seen)?,
        _ => None,
    };
    // The other side waits for all of them, or is gone.
    let _ = stopped.send(());
    let _ = go.recv();
    if let Some(segment) = held {
        // The bytes of the held segment, whatever has happened to its neighbours.
        seen.take(&segment.to_vec())?;
    }
    read(rx, conn, seen)
}

/// Takes the first segment that lies in the window. It has time for that: data stays in the pool
/// until then.
fn hold(ring: &RxRing, seen: &mut Verifier) -> Result<Option<Segment>> {
    while let Some(segment) = ring.recv()? {
        if segment.is_zero_copy() {
            if raw::is_zrs() {
                set_param("residency_us", "200")?;
            }
            return Ok(Some(segment));
        }
        seen.take(&segment.to_vec())?;
    }
    Ok(None)
}

fn read(mut rx: Rx, conn: &OwnedFd, mut seen: Verifier) -> Result<()> {
    rx.all(|bytes| seen.take(bytes))?;
    verified::answer(conn, &seen)
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let mut connect = |n| {
        (0..n)
            .map(|_| checks.need("connect", raw::connected(addrs[0])))
            .collect::<Option<Vec<_>>>()
    };
    let (stopped, mut busy) = (connect(args.stopped)?, connect(args.busy)?);
    let (total, piece) = args.how.amount();
    thread::scope(|scope| {
        let senders: Vec<_> = (0..)
            .zip(&stopped)
            .map(|(index, conn)| {
                let pattern = Pattern::new(args.seed, 0, index);
                scope.spawn(move || send(conn, pattern, total, piece))
            })
            .collect();
        let waiting = || senders.iter().filter(|s| !s.is_finished()).count();
        look(args, &control, &stopped, &mut busy, &waiting, checks);
        // In any case: the senders could wait for ever.
        checks.need("tell", control.tell(0));
        for sender in senders {
            checks.need("send", sender.join().expect("the sender panicked"));
        }
    });
    let stopped = stopped.into_iter().map(|conn| (conn, total as u64));
    verified::end_all(&stopped.collect::<Vec<_>>(), checks)?;
    becomes(
        "nothing is unread in the end",
        |c| c.unread == 0 && c.escaped == 0,
        checks,
    )
}

/// `total` bytes in messages of `piece`.
fn send(conn: &OwnedFd, pattern: Pattern, total: usize, piece: usize) -> Result<()> {
    let mut bytes = vec![0; piece];
    let mut sent = 0;
    while sent < total {
        let len = piece.min(total - sent);
        pattern.fill(sent as u64, &mut bytes[..len]);
        raw::send_all(conn, &bytes[..len])?;
        sent += len;
    }
    Ok(())
}

/// Checks while the readers have stopped.
fn look(
    args: &Args,
    control: &Control,
    stopped: &[OwnedFd],
    busy: &mut Vec<OwnedFd>,
    waiting: &dyn Fn() -> usize,
    checks: &mut Checks,
) -> Option<()> {
    let before = cache(checks).unwrap_or_default();
    checks.need("hear", control.hear())?;
    still(stopped, checks)?;
    if raw::is_zrs() {
        checks.eq("senders that wait for room", waiting(), stopped.len());
    }
    let there = cache(checks).unwrap_or_default();
    say(&format!("# stopped: {}", said(&there)));
    let stays = |name: &str, checks: &mut Checks| {
        if let Some(now) = cache(checks) {
            let fine = there.unread > 0 && now.unread >= there.unread;
            checks.yes(name, fine, &said(&now));
        }
    };
    match args.expect {
        Expect::Leaves => becomes(
            "what nobody reads leaves the pool",
            |c| c.unread == 0 && c.escaped > 0,
            checks,
        )?,
        _ => stays("what nobody reads stays", checks),
    }
    all_busy(args, busy, checks)?;
    if let Some(now) = cache(checks) {
        say(&format!("# afterwards: {}", said(&now)));
    }
    match args.expect {
        Expect::Leaves => {}
        Expect::Stays => stays("it stays beside the others", checks),
        Expect::LeavesForOthers => becomes(
            "it leaves the pool for the others",
            |c| c.escapes > before.escapes && c.escaped > 0,
            checks,
        )?,
    }
    if raw::is_zrs() {
        checks.eq("senders that wait on", waiting(), stopped.len());
    }
    Some(())
}

/// Waits until nothing goes out any more.
fn still(conns: &[OwnedFd], checks: &mut Checks) -> Option<()> {
    let sent = || -> Result<(u64, u64)> {
        conns.iter().try_fold((0, 0), |(sent, queued), conn| {
            let info = zrs_sys::sock::info(conn.as_fd()).map_err(Errno::from)?;
            Ok((sent + info.tx_bytes, queued + info.tx_queued))
        })
    };
    let mut last = None;
    while raw::is_zrs() {
        let now = checks.need("ZRS_INFO", sent())?;
        // The threads that send may begin late.
        if now.0 > 0 && now.1 == 0 && last == Some(now) {
            break;
        }
        last = Some(now);
        thread::sleep(STILL);
    }
    Some(())
}

/// All others send at once, and their data arrives. They are over then.
fn all_busy(args: &Args, busy: &mut Vec<OwnedFd>, checks: &mut Checks) -> Option<()> {
    let sent: Result<()> = thread::scope(|scope| {
        let senders: Vec<_> = (args.stopped..)
            .zip(&*busy)
            .map(|(index, conn)| {
                let pattern = Pattern::new(args.seed, 0, index);
                scope.spawn(move || send(conn, pattern, args.bytes, PIECE))
            })
            .collect();
        let ends = senders
            .into_iter()
            .map(|s| s.join().expect("the sender panicked"));
        ends.collect()
    });
    checks.need("send beside it", sent)?;
    let ended = busy.drain(..).map(|conn| (conn, args.bytes as u64));
    verified::end_all(&ended.collect::<Vec<_>>(), checks)
}
