// SPDX-License-Identifier: GPL-2.0
//! The work requests of a send: exactly the bytes of the call, from the program's pages, in as few
//! SGEs and requests as the pages allow; how long the pages stay pinned; and that no message tells
//! where they are, or where the receiver's window is. Driver and kernel answer all of it.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use zrs::Stream;

use crate::common::probe::{self, merged, physical, posts, Pins, Post, Sge};
use crate::scale::{call, serve, Control};
use crate::stream::zerocopy::Zerocopy;
use crate::support::args::{End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;
use crate::support::verified;
use crate::support::wild::{self, Area, PAGE};

/// Check the work requests and pins of sends from memory of all kinds
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

/// The memory that is sent from.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A huge page: one run.
    Huge,
    /// No page is next to the one before.
    Scattered,
    /// As the kernel gives it.
    Any,
    /// The same, write-protected.
    ReadOnly,
}

/// The call that sends.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Send,
    Zerocopy,
    DontWait,
    Sendfile,
}

impl Way {
    /// The number of pins for a buffer of `pages` pages; consecutive parts may share a page.
    fn pins(self, pages: u64, parts: u64) -> std::ops::RangeInclusive<u64> {
        match self {
            Self::Send | Self::Zerocopy => pages..=pages + parts,
            // References, or a copy.
            Self::Sendfile | Self::DontWait => 0..=0,
        }
    }
}

struct Case {
    name: &'static str,
    kind: Kind,
    way: Way,
    /// Where in the memory the bytes are.
    off: usize,
    len: usize,
    /// They leave from the program's pages rather than from a copy.
    own: bool,
}

const fn case(name: &'static str, kind: Kind, way: Way, off: usize, len: usize, own: bool) -> Case {
    Case {
        name,
        kind,
        way,
        off,
        len,
        own,
    }
}

const MIB: usize = 1 << 20;
/// Bytes of the memory of each case: a huge page.
const MEMORY: usize = 2 * MIB;

const CASES: &[Case] = &[
    case("a huge page", Kind::Huge, Way::Send, 0, MIB / 2, true),
    case(
        "a part of one",
        Kind::Huge,
        Way::Send,
        12_411,
        300_001,
        true,
    ),
    case("scattered pages", Kind::Scattered, Way::Send, 0, MIB, true),
    case(
        "parts of such",
        Kind::Scattered,
        Way::Send,
        100,
        300_001,
        true,
    ),
    case("any pages", Kind::Any, Way::Send, 4095, 777_777, true),
    case(
        "the least that is pinned",
        Kind::Any,
        Way::Send,
        1,
        16_384,
        true,
    ),
    case(
        "read-only memory",
        Kind::ReadOnly,
        Way::Send,
        77,
        100_000,
        true,
    ),
    case(
        "MSG_ZEROCOPY",
        Kind::Scattered,
        Way::Zerocopy,
        4090,
        5000,
        true,
    ),
    case(
        "MSG_ZEROCOPY, much",
        Kind::Huge,
        Way::Zerocopy,
        5,
        200_000,
        true,
    ),
    case("sendfile()", Kind::Any, Way::Sendfile, 4096, 100_000, true),
    case(
        "less than is pinned",
        Kind::Any,
        Way::Send,
        5,
        16_383,
        false,
    ),
    case("a small message", Kind::Any, Way::Send, 0, 4096, false),
    case("MSG_DONTWAIT", Kind::Huge, Way::DontWait, 3, 200_000, false),
];

/// Bytes that go before, so that the connection has its window.
const WARM: usize = 300_000;
/// Elements of a work request at most, on Soft-RoCE.
const MOST_SGES: usize = 32;
/// Bytes of a work request that carries data, at most.
const CHUNK: usize = 256 << 10;
/// Pages that a call pins while it waits for room: a chunk that begins within a page.
const MOST_HELD: u64 = 65;
/// Bytes for a reader that waits: more than the peer has room for.
const STALLED: usize = 4 * MIB;

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, 1, checks)?;
    for index in 0..=CASES.len() {
        let conn = checks.need("accept", raw::accept(&listeners[0]))?;
        let mut warm = vec![0; WARM];
        checks.need("receive", raw::recv_all(&conn, &mut warm))?;
        let mut seen = Verifier::new(Pattern::new(args.seed, 0, index as u64));
        checks.need("verify", seen.take(&warm))?;
        checks.need("tell", control.tell(1))?;
        if index == CASES.len() {
            // The client says when.
            checks.need("hear", control.hear())?;
        }
        let rx = Rx::new(&conn, false, 0).and_then(|mut rx| rx.all(|bytes| seen.take(bytes)));
        checks.need("receive", rx)?;
        checks.need("answer", verified::answer(&conn, &seen))?;
    }
    let map = checks.need("hear", control.hear())?;
    windows(&listeners[0], &control, map, checks)
}

/// Memory with the stream's bytes behind [`WARM`] at `off`.
fn memory(kind: Kind, pattern: Pattern, off: usize, len: usize) -> Result<(Area, OwnedFd)> {
    let file = wild::memfd(MEMORY, kind == Kind::Huge)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let area = Area::map(MEMORY, prot, libc::MAP_SHARED, Some(&file), 0)?;
    let mut bytes = vec![0; len];
    pattern.fill(WARM as u64, &mut bytes);
    area.fill(0xee);
    if kind == Kind::Scattered {
        // Highest frame first.
        let pages = physical(area.addr(0), MEMORY as u64)?;
        let mut order: Vec<usize> = (0..pages.len()).collect();
        order.sort_by_key(|page| u64::MAX - pages[*page].addr);
        for (to, from) in order.into_iter().enumerate() {
            area.show(to * PAGE, &file, from * PAGE)?;
        }
        area.fill(0xee);
    }
    area.put(off, &bytes);
    if kind == Kind::ReadOnly {
        area.protect(0, MEMORY, libc::PROT_READ)?;
    }
    Ok((area, file))
}

/// As [`memory`], but a file for sendfile(), with a mapping of it.
fn file(pattern: Pattern, off: usize, len: usize) -> Result<(Area, OwnedFd)> {
    let file = wild::memfd(MEMORY, false)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let area = Area::map(MEMORY, prot, libc::MAP_SHARED, Some(&file), 0)?;
    let mut bytes = vec![0; len];
    pattern.fill(WARM as u64, &mut bytes);
    area.fill(0xee);
    area.put(off, &bytes);
    Ok((area, file))
}

/// A connection that has its window, at rest.
fn warmed(addr: SocketAddrV4, control: &Control, pattern: Pattern) -> Result<OwnedFd> {
    let conn = raw::connected(addr)?;
    let mut warm = vec![0; WARM];
    pattern.fill(0, &mut warm);
    raw::send_all(&conn, &warm)?;
    control.hear()?;
    Ok(conn)
}

fn send(case: &Case, conn: &OwnedFd, area: &Area, file: &OwnedFd) -> Result<()> {
    let (mut at, end) = (case.off, case.off + case.len);
    let mut out = Zerocopy::default();
    if case.way == Way::Zerocopy {
        out.open(conn)?;
    }
    while at < end {
        let sent = match case.way {
            Way::Send => wild::send(conn, area, at, end - at, 0),
            Way::Zerocopy => wild::send(conn, area, at, end - at, libc::MSG_ZEROCOPY),
            Way::DontWait => wild::send(conn, area, at, end - at, libc::MSG_DONTWAIT),
            Way::Sendfile => wild::sendfile(conn, file, at, end - at),
        };
        match sent {
            Ok(n) => {
                at += n;
                out.calls += u32::from(case.way == Way::Zerocopy);
            }
            Err(Errno(libc::EAGAIN)) => drop(raw::poll(conn, libc::POLLOUT, -1)?),
            Err(e) => return Err(e),
        }
    }
    out.reap_all(conn)
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    // The base of the direct map: Soft-RoCE's addresses are virtual ones.
    let mut map = None;
    for (index, case) in CASES.iter().enumerate() {
        let pattern = Pattern::new(args.seed, 0, index as u64);
        let conn = checks.need("warm up", warmed(addrs[0], &control, pattern))?;
        let made = match case.way {
            Way::Sendfile => file(pattern, case.off, case.len),
            _ => memory(case.kind, pattern, case.off, case.len),
        };
        let (area, file) = checks.need(case.name, made)?;
        let pages = physical(area.addr(case.off), case.len as u64);
        let pages = checks.need("the page frames", pages)?;
        let before = checks.need("pins", Pins::now())?;
        let sent = posts(|| send(case, &conn, &area, &file));
        let ((), seen) = checks.need(case.name, sent)?;
        let after = checks.need("pins", Pins::now())?;
        judge(case, &pages, &seen, &mut map, checks);
        let parts = (seen.len() + case.len.div_ceil(CHUNK)) as u64;
        let pins = case
            .way
            .pins(pages.len() as u64 * u64::from(case.own), parts);
        let acquired = after.acquired - before.acquired;
        let name = format!("{}: pages that were pinned", case.name);
        checks.yes(
            &name,
            pins.contains(&acquired),
            &format!("{acquired}, not {pins:?}"),
        );
        let name = format!("{}: pages that stay pinned", case.name);
        checks.eq(&name, after.held(), before.held());
        let name = format!("{}: addresses of its pages in messages", case.name);
        checks.eq(&name, probe::told(&seen, &pages, map.unwrap_or(0)), vec![]);
        verified::end(&conn, (WARM + case.len) as u64, checks)?;
    }
    stalled(args, addrs[0], &control, checks)?;
    checks.need("tell", control.tell(map.unwrap_or(0)))?;
    into_windows(addrs[0], &control, checks)
}

/// For each post with payload, its number of work requests with payload and their SGEs. Control
/// messages have a header only.
fn payload(posts: &[Post]) -> Vec<(usize, Vec<Sge>)> {
    let data = posts.iter().map(|post| {
        let parts = post.iter().map(|wr| match wr.opcode {
            probe::WRITE => &wr.sges[..],
            probe::SEND if wr.sges.len() > 1 => &wr.sges[1..],
            _ => &[],
        });
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        (parts.len(), parts.concat())
    });
    data.filter(|(requests, _)| *requests > 0).collect()
}

fn judge(case: &Case, pages: &[Sge], posts: &[Post], map: &mut Option<u64>, checks: &mut Checks) {
    let data = payload(posts);
    let all: Vec<Sge> = data.iter().flat_map(|(_, sges)| sges.clone()).collect();
    let requests: usize = data.iter().map(|(requests, _)| requests).sum();
    say(&format!(
        "# {}: {} bytes in {} runs of pages: {} messages, {requests} requests, {} elements",
        case.name,
        case.len,
        merged(pages).len(),
        data.len(),
        all.len(),
    ));
    let bytes: u64 = all.iter().map(|sge| sge.len).sum();
    checks.eq(
        &format!("{}: bytes that leave", case.name),
        bytes,
        case.len as u64,
    );
    if !case.own {
        let map = map.unwrap_or(0);
        let touched = |sge: &Sge| {
            pages
                .iter()
                .any(|page| page.addr / probe::PAGE == sge.addr.wrapping_sub(map) / probe::PAGE)
        };
        let theirs = all.iter().filter(|sge| touched(sge)).count();
        checks.eq(
            &format!("{}: elements in the program's pages", case.name),
            theirs,
            0,
        );
        return;
    }
    let (Some(first), Some(page)) = (all.first(), pages.first()) else {
        return;
    };
    let map = *map.get_or_insert(first.addr.wrapping_sub(page.addr));
    let there: Vec<Sge> = all
        .iter()
        .map(|sge| Sge {
            addr: sge.addr.wrapping_sub(map),
            len: sge.len,
        })
        .collect();
    let same = map % (1 << 30) == 0 && merged(&there) == merged(pages);
    let name = format!("{}: they are the program's, from its pages", case.name);
    checks.yes(
        &name,
        same,
        &format!("{there:x?}, not {pages:x?}, map {map:x}"),
    );
    let apart = data
        .iter()
        .all(|(_, sges)| merged(sges).len() == sges.len());
    checks.yes(
        &format!("{}: an element is a whole run", case.name),
        apart,
        "neighbours",
    );
    let few = data
        .iter()
        .all(|(requests, sges)| *requests == sges.len().div_ceil(MOST_SGES));
    checks.yes(
        &format!("{}: no more requests than that takes", case.name),
        few,
        "more",
    );
    if case.kind == Kind::Huge {
        // One for each chunk; one more where the window's end divides one.
        let most = case.len.div_ceil(CHUNK) + 1;
        let name = format!("{}: requests", case.name);
        checks.yes(
            &name,
            requests <= most,
            &format!("{requests}, not {most} at most"),
        );
    }
}

/// Pages stay pinned while a call waits for room, no longer.
fn stalled(args: &Args, addr: SocketAddrV4, control: &Control, checks: &mut Checks) -> Option<()> {
    let pattern = Pattern::new(args.seed, 0, CASES.len() as u64);
    let conn = checks.need("warm up", warmed(addr, control, pattern))?;
    let mut bytes = vec![0; STALLED];
    pattern.fill(WARM as u64, &mut bytes);
    let before = checks.need("pins", Pins::now())?;
    let sent = thread::scope(|s| {
        let sender = s.spawn(|| raw::send_all(&conn, &bytes));
        let held = at_rest(before.held());
        let waits = !sender.is_finished();
        checks.need("tell", control.tell(1))?;
        let held = checks.need("pins", held)?.wrapping_sub(before.held());
        let detail = format!("{held} pages, the call waits: {waits}");
        let name = "the pages of a chunk are pinned while it waits for room";
        checks.yes(name, waits && (1..=MOST_HELD).contains(&held), &detail);
        checks.need("send", sender.join().expect("the sender panicked"))
    });
    sent?;
    let after = checks.need("pins", Pins::now())?;
    checks.eq(
        "and not when the call has returned",
        after.held(),
        before.held(),
    );
    verified::end(&conn, (WARM + STALLED) as u64, checks)
}

/// The number of pinned pages, once it is not `before` and has not changed for a second.
fn at_rest(before: u64) -> Result<u64> {
    let start = Instant::now();
    let (mut last, mut since) = (Pins::now()?, Instant::now());
    let rests = |last: &Pins, since: Instant| {
        last.held() != before && since.elapsed() >= Duration::from_secs(1)
    };
    while !rests(&last, since) && start.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
        let now = Pins::now()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last.held())
}

/// Connections that have a window at the same time. The program keeps pages of all of them: no more
/// than it may.
const WINDOWS: usize = 4;
/// Bytes for each: one WRITE, and enough to be mapped.
const ONE_WRITE: usize = 32 << 10;

/// The client's part of [`windows`].
fn into_windows(addr: SocketAddrV4, control: &Control, checks: &mut Checks) -> Option<()> {
    let (area, _file) = checks.need("memory", {
        let pattern = Pattern::new(0, 0, 0);
        memory(Kind::Huge, pattern, 0, ONE_WRITE)
    })?;
    let mut conns = Vec::new();
    for _ in 0..WINDOWS {
        checks.need("hear", control.hear())?;
        let conn = checks.need("connect", raw::connected(addr))?;
        let sent = wild::send(&conn, &area, 0, ONE_WRITE, 0);
        checks.eq("send", sent, Ok(ONE_WRITE));
        conns.push(conn);
    }
    // Until the server has seen all of them.
    checks.need("hear", control.hear())?;
    Some(())
}

/// No message has an address of a window's memory; and the addresses that the peer gets are not at
/// one distance from where the windows are, so that one does not reveal the other.
fn windows(listener: &OwnedFd, control: &Control, map: u64, checks: &mut Checks) -> Option<()> {
    let (mut held, mut origins) = (Vec::new(), Vec::new());
    for n in 0..WINDOWS {
        let seen = posts(|| {
            control.tell(1)?;
            let stream = Stream::from(raw::accept(listener)?);
            let mut area = stream.area(ONE_WRITE)?;
            let (mut at, mut copied) = (0, 0);
            while at < ONE_WRITE {
                let got = area.recv_at(at, ONE_WRITE - at)?;
                if got.range.is_empty() {
                    return Err(Errno(libc::EPIPE));
                }
                (at, copied) = (got.range.end, copied + got.copied);
            }
            Ok((stream, area, copied))
        });
        let ((stream, area, copied), seen) = checks.need("a window", seen)?;
        checks.eq("bytes that are not in the window", copied, 0);
        // The window's own pages are mapped there.
        let bytes = area.bytes(0..ONE_WRITE);
        let pages = physical(bytes.as_ptr() as u64, bytes.len() as u64);
        let pages = checks.need("the page frames", pages)?;
        let write = seen.iter().flatten().find(|wr| wr.opcode == probe::WRITE);
        let (Some(first), Some(write)) = (pages.first(), write) else {
            checks.fail("a WRITE into a window", &format!("{seen:x?}"));
            return None;
        };
        let name = format!("window {n}: its addresses in messages");
        checks.eq(&name, probe::told(&seen, &pages, map), vec![]);
        origins.push(write.remote.wrapping_sub(first.addr));
        held.push((area, stream));
    }
    let mut different = origins.clone();
    different.sort_unstable();
    different.dedup();
    checks.yes(
        "addresses for the peer are at distances of their own from the windows",
        different.len() == WINDOWS,
        &format!("{origins:x?}"),
    );
    checks.need("tell", control.tell(1))
}
