// SPDX-License-Identifier: GPL-2.0
//! Mapped receives: received bytes are at the addresses that the program chose, in the pool's
//! pages; they can be written to files and sent on; and the peer gets them back when they have no
//! user any more.

mod kept;
mod misuse;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use zrs::{Area, Stream};

use crate::support::args::{End, Side};
use crate::support::checks::Checks;
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::raw::{self, Errno, Result};
use crate::support::{verified, wild};

/// Receive by ZRS_IOC_RECV_MAP in many ways; all bytes are verified
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data and the sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A block device to write to by O_DIRECT
    #[arg(long)]
    device: Option<PathBuf>,
    /// The receiver pauses now and then, and its unread data may have left the window: then it is
    /// copied
    #[arg(long)]
    escape: bool,
}

impl Args {
    /// Looks at a number of bytes that were copied, where nothing leaves the window.
    fn copied<T: PartialEq + std::fmt::Debug>(
        &self,
        seen: T,
        expected: T,
        checks: &mut Checks,
    ) -> bool {
        self.escape || checks.eq("bytes copied", seen, expected)
    }

    /// Every eighth time, with `escape`, longer than anything may stay in the window.
    fn rest(&self, conn: &mut Conn) {
        if self.escape && conn.rng.below(8) == 0 {
            thread::sleep(REST);
        }
    }
}

/// Many times `residency_us`, and some ticks.
const REST: Duration = Duration::from_millis(20);

/// How long a peer that waits for its window has to get it.
const WINDOW_BACK: Duration = Duration::from_millis(300);

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

/// The test of one connection.
struct Case {
    name: &'static str,
    /// Bytes that the client sends.
    bytes: usize,
    /// Of the first send(); 0: as the others.
    first: usize,
    /// Of one send(); 0: any.
    chunk: usize,
    receive: fn(&Args, &mut Conn, &mut Checks) -> Option<()>,
    /// The server sends all of it back.
    echo: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "any sizes",
        bytes: 6_000_001,
        first: 0,
        chunk: 0,
        receive: anywhere,
        echo: false,
    },
    Case {
        name: "any sizes, one behind the other",
        bytes: 6_000_002,
        first: 0,
        chunk: 0,
        receive: exactly,
        echo: false,
    },
    Case {
        name: "64 KiB each",
        bytes: 8 << 20,
        first: 0,
        chunk: CHUNK,
        receive: uncopied,
        echo: false,
    },
    Case {
        name: "messages of uneven length, each from the beginning of the area",
        bytes: 60 * UNEVEN,
        first: 0,
        chunk: UNEVEN,
        receive: uneven,
        echo: false,
    },
    Case {
        name: "to a device by O_DIRECT",
        bytes: 2 << 20,
        first: 0,
        chunk: CHUNK,
        receive: to_device,
        echo: false,
    },
    Case {
        name: "sent on",
        bytes: 4 << 20,
        first: 0,
        chunk: CHUNK,
        receive: sent_on,
        echo: true,
    },
    Case {
        name: "a lot at once",
        bytes: 6 << 20,
        first: 0,
        chunk: CHUNK,
        receive: hoarded,
        echo: false,
    },
    Case {
        name: "kept in a pipe",
        bytes: 4 << 20,
        first: 0,
        chunk: CHUNK,
        receive: kept::in_pipe,
        echo: false,
    },
    Case {
        name: "small messages behind a page that is kept",
        bytes: CHUNK + 300 * 1000,
        first: CHUNK,
        chunk: 1000,
        receive: kept::before_small,
        echo: false,
    },
    Case {
        name: "misused",
        bytes: 2 << 20,
        first: 0,
        chunk: CHUNK,
        receive: misuse::all,
        echo: false,
    },
];

const CHUNK: usize = 64 << 10;
/// Not much more than whole pages.
const UNEVEN: usize = 70_001;

/// The server's end of a connection.
struct Conn {
    fd: OwnedFd,
    stream: Stream,
    seen: Verifier,
    rng: Rng,
}

impl Conn {
    /// Takes and verifies the received bytes.
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.seen.take(bytes)
    }

    /// Bytes that were copied to this end.
    fn copied(&self) -> Result<u64> {
        Ok(zrs_sys::sock::info(self.fd.as_fd())?.rx_copied)
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    let mut kept = None;
    for (index, case) in (0..).zip(CASES) {
        let fd = checks.need("accept", raw::accept(&listener))?;
        let dup = checks.need("dup", fd.try_clone().map_err(Errno::from))?;
        let mut conn = Conn {
            fd,
            stream: Stream::from(dup),
            seen: Verifier::new(Pattern::new(args.seed, 0, index)),
            rng: Rng::new(args.seed, index),
        };
        let before = kept.take();
        (case.receive)(args, &mut conn, checks)?;
        checks.need("answer", verified::answer(&conn.fd, &conn.seen))?;
        checks.yes(case.name, true, "");
        drop(before);
        kept = Some(conn);
    }
    Some(())
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    for (index, case) in (0..).zip(CASES) {
        let conn = checks.need("connect", raw::connected(addr))?;
        let pattern = Pattern::new(args.seed, 0, index);
        let mut rng = Rng::new(args.seed, !index);
        let mut bytes = zrs::PageBuf::new(case.bytes).ok()?;
        pattern.fill(0, &mut bytes);
        let mut back = vec![0; CHUNK];
        let mut at = 0;
        while at < bytes.len() {
            let n = match (case.first, case.chunk) {
                (first @ 1.., _) if at == 0 => first,
                (_, 0) => some_size(&mut rng),
                (_, n) => n,
            };
            let n = n.min(bytes.len() - at);
            checks.need("send", raw::send_all(&conn, &bytes[at..at + n]))?;
            if case.echo {
                checks.need("echo", raw::recv_all(&conn, &mut back[..n]))?;
                if pattern.mismatch(at as u64, &back[..n]).is_some() {
                    checks.fail("echo", &format!("wrong at {at}"));
                }
            }
            at += n;
        }
        verified::end(&conn, case.bytes as u64, checks)?;
    }
    Some(())
}

/// Around all boundaries: small messages, pages, copies, chunks, the window.
fn some_size(rng: &mut Rng) -> usize {
    let near = rng.pick(&[1, 4096, 16_384, 65_536, 262_144, 300_000]);
    let size = match rng.below(4) {
        0 => near,
        1 => near + 1 + rng.below(4096),
        2 => near - rng.below(near.min(4096)),
        _ => 1 + rng.below(near),
    };
    size.max(1)
}

fn area(conn: &Conn, len: usize, checks: &mut Checks) -> Option<Area> {
    checks.need("an area", conn.stream.area(len).map_err(Errno::from))
}

/// At whatever place in the first page.
fn anywhere(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut area = area(conn, 1 << 20, checks)?;
    loop {
        args.rest(conn);
        let most = some_size(&mut conn.rng) + conn.rng.below(100_000);
        let got = area.recv(most).map_err(Errno::from);
        let Some(got) = checks.need("receive", got)? else {
            return Some(());
        };
        let fits = got.len() <= most && got.copied() <= got.len();
        if !fits {
            checks.fail("receive", &format!("{} of {most} bytes", got.len()));
        }
        checks.need("verify", conn.take(&got.to_vec()))?;
    }
}

/// The stream lies in the area as in a file, from page to page, until that is full.
fn exactly(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let len = 512 << 10;
    let mut area = area(conn, len, checks)?;
    let (mut at, mut begin) = (0, 0);
    loop {
        args.rest(conn);
        if at == len {
            // Somewhere else each time.
            (at, begin) = (conn.rng.below(5000), conn.seen.pos);
            area.give_back(0..len);
        }
        let most = some_size(&mut conn.rng).min(len - at);
        let got = checks.need("receive", area.recv_at(at, most).map_err(Errno::from))?;
        if got.range.is_empty() {
            return Some(());
        }
        if got.range.start != at || got.range.end > at + most {
            let detail = format!("{:?}, not {most} from {at}", got.range);
            checks.fail("receive", &detail);
        }
        let bytes = area.bytes(got.range.clone()).to_vec();
        checks.need("verify", conn.take(&bytes))?;
        // Earlier bytes in the page are unchanged.
        let first = got.range.start & !4095;
        let before = got.range.start - first;
        let known = before.min((conn.seen.pos - begin) as usize - got.range.len());
        let from = conn.seen.pos - (got.range.len() + known) as u64;
        let bytes = area.bytes(got.range.start - known..got.range.end).to_vec();
        if conn.seen.pattern().mismatch(from, &bytes).is_some() {
            checks.fail("the page's beginning", &format!("lost at {at}"));
        }
        at = got.range.end;
    }
}

/// Nothing at all is copied.
fn uncopied(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut area = area(conn, CHUNK, checks)?;
    let (mut calls, mut copies) = (0, Vec::new());
    while let Some(got) = checks.need("receive", area.recv(CHUNK).map_err(Errno::from))? {
        if got.copied() > 0 {
            copies.push((calls, got.copied()));
        }
        calls += 1;
        checks.need("verify", conn.take(&got.to_vec()))?;
        args.rest(conn);
    }
    let copied = checks.need("ZRS_INFO", conn.copied())?;
    let detail = format!("{copied}, in calls {copies:?} of {calls}");
    checks.yes("nothing is copied", args.escape || copied == 0, &detail);
    Some(())
}

/// Each message begins at a page of the window, though the one before ended within one.
fn uneven(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut area = area(conn, UNEVEN.next_multiple_of(4096), checks)?;
    let mut at = 0;
    loop {
        args.rest(conn);
        let got = area.recv_at(at, UNEVEN - at).map_err(Errno::from);
        let got = checks.need("receive", got)?;
        if got.range.is_empty() {
            break;
        }
        at = got.range.end;
        if at == UNEVEN {
            checks.need("verify", conn.take(&area.bytes(0..at).to_vec()))?;
            at = 0;
        }
    }
    let copied = checks.need("ZRS_INFO", conn.copied())?;
    let detail = format!("{copied} bytes");
    let few = args.escape || copied < 6 * UNEVEN as u64;
    checks.yes("hardly copied", few, &detail);
    Some(())
}

/// From the pool to a file, by the file system's own zero-copy writes.
fn to_device(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut area = area(conn, CHUNK, checks)?;
    let Some(path) = &args.device else {
        while let Some(got) = checks.need("receive", area.recv(CHUNK).map_err(Errno::from))? {
            checks.need("verify", conn.take(&got.to_vec()))?;
        }
        return Some(());
    };
    let open = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path);
    let file = checks.need("open the device", open.map_err(Errno::from))?;
    let mut at = 0;
    while let Some(got) = checks.need("receive", area.recv(CHUNK).map_err(Errno::from))? {
        let written = file
            .write_all_at(wild::trusted(got.view()), at)
            .map_err(Errno::from);
        checks.need("write by O_DIRECT", written)?;
        at += got.len() as u64;
        args.rest(conn);
    }
    checks.need("sync", file.sync_all().map_err(Errno::from))?;
    let copied = checks.need("ZRS_INFO", conn.copied())?;
    args.copied(copied, 0, checks);
    let mut file = checks.need("open", File::open(path).map_err(Errno::from))?;
    let mut part = vec![0; CHUNK];
    for _ in 0..at / CHUNK as u64 {
        checks.need("read back", file.read_exact(&mut part).map_err(Errno::from))?;
        checks.need("verify", conn.take(&part))?;
    }
    Some(())
}

/// From the pool to the peer.
fn sent_on(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let mut area = area(conn, CHUNK, checks)?;
    while let Some(got) = checks.need("receive", area.recv(CHUNK).map_err(Errno::from))? {
        checks.need(
            "send on",
            raw::send_all(&conn.fd, wild::trusted(got.view())),
        )?;
        checks.need("verify", conn.take(&got.to_vec()))?;
        args.rest(conn);
    }
    let info = zrs_sys::sock::info(conn.fd.as_fd()).map_err(Errno::from);
    let info = checks.need("ZRS_INFO", info)?;
    args.copied((info.rx_copied, info.tx_copied), (0, 0), checks);
    Some(())
}

/// Nothing is given back: when a window is full of kept pages, the program gets copies, and the
/// stream does not stop. Once it has given its pages back, it gets pages again.
fn hoarded(args: &Args, conn: &mut Conn, checks: &mut Checks) -> Option<()> {
    let len = 2 << 20;
    let mut area = area(conn, len, checks)?;
    let (mut at, mut copied) = (0, 0);
    while at < len {
        let got = area.recv_at(at, CHUNK.min(len - at)).map_err(Errno::from);
        let got = checks.need("receive", got)?;
        (at, copied) = (got.range.end, copied + got.copied);
        args.rest(conn);
    }
    checks.need("verify", conn.take(&area.bytes(0..at).to_vec()))?;
    let info = zrs_sys::sock::info(conn.fd.as_fd()).map_err(Errno::from);
    let window = checks.need("ZRS_INFO", info)?.window as usize;
    let detail = format!("{copied} of {len} bytes");
    let some = args.escape || copied >= len - window && copied < len;
    checks.yes("what is above the share is copied", some, &detail);

    area.give_back(0..len);
    // The peer sends by messages until it has the window again: not all of the rest.
    thread::sleep(WINDOW_BACK);
    let (mut mapped, mut copied) = (0, 0);
    while let Some(got) = checks.need("receive", area.recv(CHUNK).map_err(Errno::from))? {
        checks.need("verify", conn.take(&got.to_vec()))?;
        copied += got.copied();
        mapped += got.len() - got.copied();
    }
    let detail = format!("{mapped} bytes in pages, {copied} copied");
    let again = args.escape || mapped > 0;
    checks.yes("pages again", again, &detail);
    Some(())
}
