// SPDX-License-Identifier: GPL-2.0
//! Small messages in the receive ring: where each one is found, that its block is free at once, and
//! that all bytes come in order, whatever else the program does.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use zrs::{RxRing, Segment, Stream};
use zrs_sys::abi::{zrs_info, ZRS_RX_RING_ESCAPE, ZRS_RX_RING_SMALL};
use zrs_sys::{sock, Device, Held, Look, Ring};

use crate::scale::{call, serve, Control};
use crate::support::args::{End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::process;
use crate::support::raw::{self, Errno, Result};
use crate::support::verified;

/// Read small messages by the ring; both ends get the same arguments
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of data and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, value_enum)]
    what: What,
    /// Messages of the mixture
    #[arg(long, default_value_t = 1000)]
    messages: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// Some messages that wait in the ring, and no block with them
    Waiting,
    /// The same after the peer has closed
    Ended,
    /// Rings made with each choice of flags
    Flags,
    /// A ring that is made when messages wait; MSG_PEEK beside it
    Late,
    /// A program that holds all, until the peer has no room
    Held,
    /// Small and large messages, held, given back in any order, and read by recv() in between
    Mixed,
    /// Large messages that escape beside small ones
    Escapes,
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

/// Bytes of each message of [`What::Waiting`]: less than the peer may have under way.
const SIZES: [usize; 12] = [1, 4096, 63, 64, 65, 4095, 2, 128, 4000, 1, 1000, 3];
/// A large message, of which the window has room for several.
const LARGE: usize = 100_000;
/// The most bytes of a small message, and of all that a peer has under way, and their number.
const SMALL: usize = 4096;
const SMALL_UNDER_WAY: usize = 64 << 10;
const UNDER_WAY: usize = 64;
/// The most segments that [`What::Mixed`] keeps: with the next one less than half of what small
/// messages may take.
const HELD: usize = 7;
/// Without a byte sent for this time, the sender waits.
const STILL: Duration = Duration::from_millis(1500);

impl Args {
    /// The length of each message, by [`What`].
    fn sizes(&self) -> Vec<usize> {
        let mut rng = Rng::new(self.seed, 7);
        let mut any = |_| match rng.below(8) {
            0 => 1 + rng.below(300_000),
            1 => 4096 + rng.below(3),
            2 => 1 + rng.below(8),
            _ => 1 + rng.below(SMALL),
        };
        match self.what {
            What::Waiting | What::Ended | What::Flags | What::Late => SIZES.to_vec(),
            What::Held => [[1000; 300], [SMALL; 300]].concat(),
            What::Mixed => (0..self.messages).map(&mut any).collect(),
            What::Escapes => [LARGE, 500, 20, LARGE, 4096, LARGE, 7].to_vec(),
        }
    }

    /// Connections, one after the other, each with all messages.
    fn connections(&self) -> u64 {
        match self.what {
            What::Flags => FLAGS.len() as u64,
            _ => 1,
        }
    }
}

const FLAGS: [u32; 4] = [
    0,
    ZRS_RX_RING_ESCAPE,
    ZRS_RX_RING_SMALL,
    ZRS_RX_RING_ESCAPE | ZRS_RX_RING_SMALL,
];

fn info(conn: &OwnedFd) -> Result<zrs_info> {
    Ok(sock::info(conn.as_fd())?)
}

/// Waits until `bytes` in all have come.
fn come(conn: &OwnedFd, bytes: u64, checks: &mut Checks) -> Option<()> {
    let start = Instant::now();
    loop {
        let info = checks.need("ZRS_INFO", info(conn))?;
        if info.rx_bytes + info.rx_queued >= bytes {
            return Some(());
        }
        if start.elapsed() > process::patience(20) {
            checks.fail("the messages come", &format!("{info:?}"));
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Blocks with unread data, of all devices.
fn blocks_held() -> Result<u64> {
    let device = Device::open()?;
    let (mut cursor, mut held) = (0, 0);
    while let Some(pool) = device.pool(cursor)? {
        held += pool.blocks_held;
        cursor = pool.cursor;
    }
    Ok(held)
}

/// A block goes back right after its message can be seen.
fn no_blocks(checks: &mut Checks) {
    let end = Instant::now() + process::patience(20);
    while blocks_held() != Ok(0) && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    checks.eq("blocks with unread data", blocks_held(), Ok(0));
}

/// Where the segments of a ring are found.
#[derive(Default, Debug, PartialEq, Eq)]
struct Found {
    /// Bytes in the window, in the escape area, and to be fetched by recv().
    window: u64,
    escape: u64,
    kernel: u64,
}

/// Takes all segments up to the ring's head, and verifies them. Those in memory are returned.
fn take_all(
    conn: &OwnedFd,
    ring: &Arc<Ring>,
    next: &mut u64,
    seen: &mut Verifier,
    found: &mut Found,
) -> Result<Vec<Held>> {
    let mut all = Vec::new();
    while *next < ring.head() {
        match ring.look(*next)? {
            Look::Held(held) => {
                seen.take(&held.view().to_vec())?;
                let bytes = held.view().len() as u64;
                match held.has_escaped() {
                    true => found.escape += bytes,
                    false => found.window += bytes,
                }
                all.push(held);
            }
            Look::Kernel(len) => {
                let mut bytes = vec![0; len];
                raw::recv_all(conn, &mut bytes)?;
                seen.take(&bytes)?;
                found.kernel += len as u64;
            }
            Look::Taken => {}
        }
        *next += 1;
    }
    Ok(all)
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, 1, checks)?;
    for index in 0..args.connections() {
        let conn = Arc::new(checks.need("accept", raw::accept(&listeners[0]))?);
        let seen = Verifier::new(Pattern::new(args.seed, 0, index));
        match args.what {
            What::Waiting | What::Ended => waiting(args, &control, &conn, seen, checks)?,
            What::Flags => flags(FLAGS[index as usize], &control, &conn, seen, checks)?,
            What::Late => late(&control, &conn, seen, checks)?,
            What::Held => held(&control, &conn, seen, checks)?,
            What::Mixed => mixed(args, &conn, seen, checks)?,
            What::Escapes => escapes(&control, &conn, seen, checks)?,
        }
    }
    Some(())
}

fn open(conn: &Arc<OwnedFd>, checks: &mut Checks) -> Option<Arc<Ring>> {
    let ring = Ring::open(conn).map_err(Errno::from);
    Some(Arc::new(checks.need("a ring", ring)?))
}

/// A ring, and the bytes that wait there: the peer was told to send, and all has arrived.
fn filled(control: &Control, conn: &Arc<OwnedFd>, checks: &mut Checks) -> Option<(Arc<Ring>, u64)> {
    let ring = open(conn, checks)?;
    checks.need("tell", control.tell(0))?;
    let bytes = checks.need("hear", control.hear())?;
    come(conn, bytes, checks)?;
    Some((ring, bytes))
}

fn waiting(
    args: &Args,
    control: &Control,
    conn: &Arc<OwnedFd>,
    mut seen: Verifier,
    checks: &mut Checks,
) -> Option<()> {
    let (ring, bytes) = filled(control, conn, checks)?;
    no_blocks(checks);
    let before = checks.need("ZRS_INFO", info(conn))?;
    checks.eq("unread bytes", before.rx_queued, bytes);
    let (mut next, mut found) = (ring.first(), Found::default());
    let all = take_all(conn, &ring, &mut next, &mut seen, &mut found);
    let all = checks.need("read", all)?;
    let expected = Found {
        escape: bytes,
        ..Found::default()
    };
    checks.eq("where the messages are", found, expected);
    let held = checks.need("ZRS_INFO", info(conn))?;
    checks.eq("unread while they are held", held.rx_queued, bytes);
    drop(all);
    let after = checks.need("ZRS_INFO", info(conn))?;
    let counted = (after.rx_bytes, after.rx_copied, after.rx_queued);
    checks.eq("delivered, copied and unread", counted, (bytes, bytes, 0));
    if args.what == What::Ended {
        checks.eq("the end", raw::recv(conn.as_ref(), &mut [0; 8], 0), Ok(0));
    }
    finish(args, control, conn, &seen, checks)
}

/// Answers; a peer that has closed gets the answer by the control connection.
fn finish(
    args: &Args,
    control: &Control,
    conn: &OwnedFd,
    seen: &Verifier,
    checks: &mut Checks,
) -> Option<()> {
    if args.what != What::Ended {
        return checks.need("answer", verified::answer(conn, seen));
    }
    checks.need("tell", control.tell(seen.pos))?;
    checks.need("tell", control.tell(seen.wrong.unwrap_or(u64::MAX)))
}

fn flags(
    flags: u32,
    control: &Control,
    conn: &Arc<OwnedFd>,
    mut seen: Verifier,
    checks: &mut Checks,
) -> Option<()> {
    let layout = sock::rx_ring(conn.as_fd(), flags).map_err(Errno::from);
    let layout = checks.need("a ring", layout)?;
    checks.eq("the flags that hold", layout.flags, flags);
    // The library takes it as it is.
    let (ring, bytes) = filled(control, conn, checks)?;
    let (mut next, mut found) = (ring.first(), Found::default());
    let all = take_all(conn, &ring, &mut next, &mut seen, &mut found);
    drop(checks.need("read", all)?);
    let expected = match flags & ZRS_RX_RING_SMALL {
        0 => Found {
            kernel: bytes,
            ..Found::default()
        },
        _ => Found {
            escape: bytes,
            ..Found::default()
        },
    };
    checks.eq(&format!("with flags {flags}, they are"), found, expected);
    checks.need("answer", verified::answer(conn, &seen))
}

fn late(
    control: &Control,
    conn: &Arc<OwnedFd>,
    mut seen: Verifier,
    checks: &mut Checks,
) -> Option<()> {
    checks.need("tell", control.tell(0))?;
    let early = checks.need("hear", control.hear())?;
    come(conn, early, checks)?;
    let (ring, bytes) = filled(control, conn, checks)?;
    let (mut next, mut found) = (ring.first(), Found::default());
    let all = take_all(conn, &ring, &mut next, &mut seen, &mut found);
    drop(checks.need("read", all)?);
    let expected = Found {
        kernel: early,
        escape: bytes - early,
        window: 0,
    };
    checks.eq("those before the ring, and later ones", found, expected);
    // MSG_PEEK claims what it sees, and recv() takes a part.
    checks.need("tell", control.tell(0))?;
    let all = checks.need("hear", control.hear())?;
    come(conn, all, checks)?;
    let mut some = [0; 100];
    let peeked = raw::recv(conn.as_ref(), &mut some, libc::MSG_PEEK);
    checks.eq("MSG_PEEK", peeked, Ok(some.len()));
    let wrong = seen.pattern().mismatch(seen.pos, &some);
    checks.eq("a wrong byte by MSG_PEEK", wrong, None);
    checks.need("recv", raw::recv_all(conn.as_ref(), &mut some))?;
    checks.need("verify", seen.take(&some))?;
    // The segments that recv() has begun with are KERNEL, and the ring does not offer them.
    let mut rest = vec![0; (all - seen.pos) as usize];
    checks.need("recv the rest", raw::recv_all(conn.as_ref(), &mut rest))?;
    checks.need("verify", seen.take(&rest))?;
    let mut found = Found::default();
    let none = take_all(conn, &ring, &mut next, &mut seen, &mut found);
    checks.eq("left in the ring", none.map(|all| all.len()), Ok(0));
    checks.need("answer", verified::answer(conn, &seen))
}

fn held(
    control: &Control,
    conn: &Arc<OwnedFd>,
    mut seen: Verifier,
    checks: &mut Checks,
) -> Option<()> {
    let ring = open(conn, checks)?;
    let (mut next, mut found) = (ring.first(), Found::default());
    checks.need("tell", control.tell(0))?;
    for round in 0..2 {
        // All that the peer can send before it waits.
        let bytes = checks.need("hear", control.hear())?;
        come(conn, bytes, checks)?;
        let all = take_all(conn, &ring, &mut next, &mut seen, &mut found);
        let mut all = checks.need("read", all)?;
        let sum: usize = all.iter().map(|held| held.view().len()).sum();
        let fine = all.len() <= UNDER_WAY && sum <= SMALL_UNDER_WAY;
        let full = all.len() > UNDER_WAY / 2 || sum > SMALL_UNDER_WAY / 2;
        let name = format!("{sum} bytes in {} messages are held", all.len());
        checks.yes(&name, fine && full, "too many, or too few");
        // In any order: by both ends in turn.
        while let Some(held) = all.pop() {
            drop(held);
            if !all.is_empty() {
                drop(all.remove(0));
            }
        }
        checks.need("tell", control.tell(round))?;
        // The rest of the round, as it comes.
        let end = checks.need("hear", control.hear())?;
        while seen.pos < end {
            let waited = ring.wait(next + 1, Some(process::patience(20)));
            checks.need("wait", waited.map_err(Errno::from))?;
            let all = take_all(conn, &ring, &mut next, &mut seen, &mut found);
            drop(checks.need("read", all)?);
        }
        checks.need("tell", control.tell(round))?;
    }
    checks.eq(
        "bytes by recv(), and in the window",
        (found.kernel, found.window),
        (0, 0),
    );
    checks.need("answer", verified::answer(conn, &seen))
}

fn mixed(args: &Args, conn: &Arc<OwnedFd>, mut seen: Verifier, checks: &mut Checks) -> Option<()> {
    let stream = Stream::from(checks.need("dup", conn.try_clone().map_err(Errno::from))?);
    let ring = checks.need("a ring", stream.rx_ring().map_err(Errno::from))?;
    let mut rng = Rng::new(args.seed, 8);
    let end: u64 = args.sizes().iter().map(|len| *len as u64).sum();
    // Segments, their bytes, the stream's position behind them, and their number.
    let mut held: Vec<(Segment, Vec<u8>, u64, usize)> = Vec::new();
    let (mut by_recv, mut count) = (0, 0);
    while seen.pos < end {
        if held.is_empty() && rng.one_in(10) {
            let mut some = vec![0; 1 + rng.below(9000)];
            let flags = if rng.one_in(3) { libc::MSG_PEEK } else { 0 };
            match raw::recv(conn.as_ref(), &mut some, flags | libc::MSG_DONTWAIT) {
                Ok(n) if flags != 0 => {
                    let wrong = seen.pattern().mismatch(seen.pos, &some[..n]);
                    checks.yes("MSG_PEEK", wrong.is_none(), &format!("{wrong:?}"));
                }
                Ok(n) => {
                    checks.need("verify", seen.take(&some[..n]))?;
                    by_recv += n;
                }
                Err(Errno(libc::EAGAIN)) => {}
                Err(e) => drop(checks.need("recv", Err::<(), _>(e))?),
            }
        }
        if seen.pos < end {
            let segment = checks.need("receive", next(&ring))?;
            let bytes = segment.to_vec();
            checks.need("verify", seen.take(&bytes))?;
            count += 1;
            held.push((segment, bytes, seen.pos, count));
        }
        if rng.one_in(40) {
            thread::sleep(Duration::from_millis(3));
        }
        // Room is given back in the stream's order: a program that keeps a segment while half of the
        // window, or half of what small messages may take, has come behind it may stop its peer.
        let most = ring.window_len() as u64 / 4;
        let late = |held: &[(Segment, Vec<u8>, u64, usize)]| {
            let first = held.first();
            first.is_some_and(|(.., pos, n)| seen.pos - pos > most || count - n >= HELD)
        };
        while held.len() > 1 + rng.below(HELD) || late(&held) {
            let at = if late(&held) {
                0
            } else {
                rng.below(held.len())
            };
            let (segment, bytes, ..) = held.remove(at);
            if segment.to_vec() != bytes {
                checks.fail("held bytes stay", &format!("{} bytes", bytes.len()));
            }
        }
    }
    say(&format!("# {by_recv} of {end} bytes by recv()"));
    drop(held);
    checks.need("answer", verified::answer(conn, &seen))
}

fn next(ring: &RxRing) -> Result<Segment> {
    // Now and then there is none.
    match ring.recv()? {
        Some(segment) => Ok(segment),
        None => Err(Errno(libc::EPIPE)),
    }
}

fn escapes(
    control: &Control,
    conn: &Arc<OwnedFd>,
    mut seen: Verifier,
    checks: &mut Checks,
) -> Option<()> {
    let (ring, bytes) = filled(control, conn, checks)?;
    let device = checks.need("device", Device::open().map_err(Errno::from))?;
    let large = 3 * LARGE as u64;
    let start = Instant::now();
    loop {
        let cache = checks.need("cache", device.cache(0).map_err(Errno::from))?;
        let escaped = cache.map_or(0, |cache| cache.escaped);
        if escaped >= large || start.elapsed() > process::patience(20) {
            checks.eq("bytes that have escaped: the large ones", escaped, large);
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let (mut next, mut found) = (ring.first(), Found::default());
    let all = take_all(conn, &ring, &mut next, &mut seen, &mut found);
    drop(checks.need("read", all)?);
    let expected = Found {
        escape: bytes,
        ..Found::default()
    };
    checks.eq("all is in the escape area", found, expected);
    let info = checks.need("ZRS_INFO", info(conn))?;
    let small = bytes - large;
    checks.eq("copied when it arrived", info.rx_copied, small);
    let cache = checks.need("cache", device.cache(0).map_err(Errno::from))?;
    checks.eq(
        "escaped when all is read",
        cache.map(|c| c.escaped),
        Some(0),
    );
    checks.need("answer", verified::answer(conn, &seen))
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    for index in 0..args.connections() {
        let conn = checks.need("connect", raw::connected(addrs[0]))?;
        let mut out = Out {
            conn,
            pattern: Pattern::new(args.seed, 0, index),
            pos: 0,
        };
        let sizes = args.sizes();
        if args.what != What::Mixed {
            checks.need("hear", control.hear())?;
        }
        match args.what {
            What::Mixed => checks.need("send", out.send(&sizes))?,
            What::Held => fill(&mut out, &control, &sizes, checks)?,
            What::Late => {
                for part in sizes.chunks(4) {
                    checks.need("send", out.send(part))?;
                    checks.need("tell", control.tell(out.pos))?;
                    if part.as_ptr_range().end != sizes.as_ptr_range().end {
                        checks.need("hear", control.hear())?;
                    }
                }
            }
            _ => {
                checks.need("send", out.send(&sizes))?;
                if args.what == What::Ended {
                    let pos = out.pos;
                    drop(out);
                    checks.need("tell", control.tell(pos))?;
                    let answer = [control.hear(), control.hear()];
                    checks.eq("what arrived", answer, [Ok(pos), Ok(u64::MAX)]);
                    continue;
                }
                checks.need("tell", control.tell(out.pos))?;
            }
        }
        verified::end(&out.conn, out.pos, checks)?;
    }
    Some(())
}

/// A stream that is sent.
struct Out {
    conn: OwnedFd,
    pattern: Pattern,
    pos: u64,
}

impl Out {
    fn send(&mut self, sizes: &[usize]) -> Result<()> {
        for len in sizes {
            let mut bytes = vec![0; *len];
            self.pattern.fill(self.pos, &mut bytes);
            raw::send_all(&self.conn, &bytes)?;
            self.pos += *len as u64;
        }
        Ok(())
    }

    /// Sends without waiting; returns how many messages, when nothing could be sent for a while.
    fn send_now(&mut self, sizes: &[usize]) -> Result<usize> {
        let (mut done, mut last) = (0, Instant::now());
        while done < sizes.len() && last.elapsed() < STILL {
            let mut bytes = vec![0; sizes[done]];
            self.pattern.fill(self.pos, &mut bytes);
            match raw::send(&self.conn, &bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
                Ok(n) => {
                    self.pos += n as u64;
                    if n < bytes.len() {
                        return Ok(done + 1);
                    }
                    (done, last) = (done + 1, Instant::now());
                }
                Err(Errno(libc::EAGAIN)) => thread::sleep(Duration::from_millis(5)),
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

/// Sends each kind of message: as many messages as find room without a reader, and the rest when the
/// peer reads.
fn fill(out: &mut Out, control: &Control, sizes: &[usize], checks: &mut Checks) -> Option<()> {
    for kind in sizes.chunk_by(|a, b| a == b) {
        let done = checks.need("send", out.send_now(kind))?;
        checks.yes("the peer's room ends", done < kind.len(), "all was sent");
        checks.need("tell", control.tell(out.pos))?;
        checks.need("hear", control.hear())?;
        let rest = &kind[done..];
        let end = out.pos + rest.iter().sum::<usize>() as u64;
        checks.need("tell", control.tell(end))?;
        checks.need("send", out.send(rest))?;
        checks.need("hear", control.hear())?;
    }
    Some(())
}
