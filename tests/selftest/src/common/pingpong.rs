// SPDX-License-Identifier: GPL-2.0
//! Questions and answers of random sizes after random pauses, on several connections at once: a
//! wake-up that gets lost shows as a stall.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::args::{size, End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::Pattern;
use crate::support::raw::{self, Errno, Result};
use crate::support::rx::Rx;

/// Ask and answer with random sizes after random pauses; both ends get the same numbers
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Connections at once
    #[arg(long, default_value_t = 4)]
    conns: u64,
    /// Questions on each
    #[arg(long, default_value_t = 500)]
    rounds: u64,
    /// Of sizes, pauses and data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The largest message
    #[arg(long, value_parser = size, default_value = "8k")]
    most: usize,
    /// The longest pause before a message, in microseconds; most are much shorter
    #[arg(long, default_value_t = 3000)]
    pause_us: u64,
    /// The server receives by the ring
    #[arg(long)]
    ring: bool,
    /// Non-blocking sockets, with poll()
    #[arg(long)]
    nonblock: bool,
    /// Client: the longest that a question and its answer may take
    #[arg(long, value_name = "MS")]
    round_ms: Option<u64>,
    /// Client: the module makes no RDMA resource from the second round of all connections on
    #[arg(long)]
    steady: bool,
    /// With --steady: this command prints the same from the second round on
    #[arg(long, value_name = "CMD", requires = "steady")]
    same: Option<String>,
}

/// Numbers that both ends draw alike.
struct Numbers(Pattern, u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        let mut word = [0; 8];
        self.0.fill(self.1 * 8, &mut word);
        self.1 += 1;
        u64::from_le_bytes(word)
    }

    /// Mostly small, now and then up to `most`.
    fn upto(&mut self, most: u64) -> u64 {
        let shift = self.next() % 12;
        self.next() % ((most >> shift) + 1)
    }
}

pub fn run(args: &Args, checks: &mut Checks) {
    let done = match args.end.side() {
        Side::Server(addr) => server(args, addr, checks),
        Side::Client(addr) => client(args, addr, checks),
    };
    if done.is_some() {
        let all = args.conns * args.rounds;
        checks.yes(
            &format!("{all} questions and answers"),
            checks.fine(),
            "see above",
        );
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let listener = checks.listener(addr)?;
    let mut conns = Vec::new();
    for _ in 0..args.conns {
        conns.push(checks.need("accept", raw::accept(&listener))?);
    }
    each(&conns, checks, |conn, index| {
        let mut ends = Ends::new(args, conn, index, true, args.ring)?;
        for _ in 0..args.rounds {
            ends.take()?;
            ends.give()?;
        }
        ends.rx.all(|_| Err(Errno(libc::EPROTO)))
    })
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let mut conns = Vec::new();
    for _ in 0..args.conns {
        conns.push(checks.need("connect", raw::connected(addr))?);
    }
    let mut ends = Vec::new();
    for (index, conn) in conns.iter().enumerate() {
        ends.push(checks.need(
            "receiver",
            Ends::new(args, conn, index as u64, false, false),
        )?);
    }
    if args.steady {
        // The first large message of each direction leases a window.
        for ends in &mut ends {
            checks.need("first round", ends.give().and_then(|()| ends.take()))?;
        }
    }
    let (made, said) = (resources(), ask(args));
    let rounds = args.rounds - u64::from(args.steady);
    let longest = AtomicU64::new(0);
    thread::scope(|s| {
        let all: Vec<_> = ends
            .iter_mut()
            .map(|ends| {
                let longest = &longest;
                s.spawn(move || {
                    for round in 0..rounds {
                        let start = Instant::now();
                        ends.give().and_then(|()| ends.take()).inspect_err(|e| {
                            let ms = start.elapsed().as_millis();
                            say(&format!(
                                "# connection {}, round {round}: {e} after {ms} ms",
                                ends.index
                            ));
                        })?;
                        longest.fetch_max(start.elapsed().as_millis() as u64, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        for one in all {
            checks.need("rounds", one.join().expect("a connection panicked"));
        }
    });
    if let Some(most) = args.round_ms {
        let longest = longest.into_inner();
        say(&format!("# the longest round took {longest} ms"));
        let name = format!("no round takes more than {most} ms");
        checks.yes(&name, longest <= most, &format!("{longest} ms"));
    }
    if args.steady {
        let name = "RDMA resources made by the messages";
        match (made, resources()) {
            (Some(before), Some(after)) => drop(checks.eq(name, after - before, 0)),
            _ => checks.fail(name, "the counters cannot be read"),
        }
    }
    if let Some(before) = said {
        let name = "RDMA resources and the calls that make them, as the kernel counts";
        let after = ask(args).unwrap_or_default();
        checks.yes(
            name,
            before == after && !before.is_empty(),
            &format!("{before}then {after}"),
        );
    }
    for conn in &conns {
        checks.need("shutdown", raw::shutdown(conn, libc::SHUT_WR));
    }
    Some(())
}

/// The output of the command of --same; empty if it fails.
fn ask(args: &Args) -> Option<String> {
    let out = Command::new("sh")
        .arg("-c")
        .arg(args.same.as_ref()?)
        .output();
    let fine = out.ok().filter(|out| out.status.success());
    Some(fine.map_or(String::new(), |out| {
        String::from_utf8_lossy(&out.stdout).into_owned()
    }))
}

/// How many RDMA resources the module has ever made.
fn resources() -> Option<u64> {
    Some(zrs_sys::Device::open().ok()?.stats().ok()?.resources_made)
}

fn each(
    conns: &[OwnedFd],
    checks: &mut Checks,
    serve: impl Fn(&OwnedFd, u64) -> Result<()> + Sync,
) -> Option<()> {
    thread::scope(|s| {
        let serve = &serve;
        let all: Vec<_> = conns
            .iter()
            .enumerate()
            .map(|(index, conn)| {
                s.spawn(move || {
                    // At once: the client waits for this one, and the others for the client.
                    serve(conn, index as u64)
                        .inspect_err(|e| say(&format!("# connection {index}: {e}")))
                })
            })
            .collect();
        for (index, one) in all.into_iter().enumerate() {
            let result = one.join().expect("a connection panicked");
            checks.need(&format!("connection {index}"), result);
        }
    });
    Some(())
}

/// One connection.
struct Ends<'a> {
    args: &'a Args,
    conn: &'a OwnedFd,
    index: u64,
    rx: Rx,
    /// The ring is still to be made.
    lacks_ring: bool,
    /// Sizes of questions and answers, in turn.
    sizes: Numbers,
    pauses: Numbers,
    tx: Pattern,
    tx_pos: u64,
    rx_pattern: Pattern,
    rx_pos: u64,
}

impl<'a> Ends<'a> {
    fn new(
        args: &'a Args,
        conn: &'a OwnedFd,
        index: u64,
        server: bool,
        ring: bool,
    ) -> Result<Self> {
        raw::set_nonblocking(conn, args.nonblock)?;
        let (ours, theirs) = if server { (1, 0) } else { (0, 1) };
        let made = Rx::new(conn, ring, 0);
        // The first question was faster, and its window went back to the pool: it is read first.
        let lacks_ring = ring && matches!(made, Err(Errno(libc::EBUSY)));
        Ok(Self {
            args,
            conn,
            index,
            rx: if lacks_ring {
                say(&format!("# connection {index}: the ring is made later"));
                Rx::new(conn, false, 0)?
            } else {
                made?
            },
            lacks_ring,
            sizes: Numbers(Pattern::new(args.seed, 2, index), 0),
            pauses: Numbers(Pattern::new(args.seed, 3 + ours, index), 0),
            tx: Pattern::new(args.seed, ours, index),
            tx_pos: 0,
            rx_pattern: Pattern::new(args.seed, theirs, index),
            rx_pos: 0,
        })
    }

    /// The size of the next message, in either direction.
    fn size(&mut self) -> usize {
        if self.tx_pos == 0 || self.rx_pos == 0 {
            // The first of each direction is large.
            return self.args.most.max(1);
        }
        self.sizes.upto(self.args.most as u64).max(1) as usize
    }

    fn give(&mut self) -> Result<()> {
        let pause = self.pauses.upto(self.args.pause_us);
        if pause > 0 {
            thread::sleep(Duration::from_micros(pause));
        }
        let mut message = vec![0; self.size()];
        self.tx.fill(self.tx_pos, &mut message);
        raw::send_all(self.conn, &message)?;
        self.tx_pos += message.len() as u64;
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let mut left = self.size();
        let (pattern, mut pos) = (self.rx_pattern, self.rx_pos);
        while left > 0 {
            let limit = left;
            let mut got = 0;
            let more = self.rx.next_upto(limit, |bytes| {
                got = bytes.len();
                match pattern.mismatch(pos, bytes) {
                    Some(at) => {
                        say(&format!("# byte {at} is wrong"));
                        Err(Errno(libc::EIO))
                    }
                    None if got > limit => Err(Errno(libc::EOVERFLOW)),
                    None => Ok(()),
                }
            })?;
            if !more {
                return Err(Errno(libc::EPIPE));
            }
            pos += got as u64;
            left -= got;
        }
        self.rx_pos = pos;
        if self.lacks_ring {
            self.rx = Rx::new(self.conn, true, 0)?;
            self.lacks_ring = false;
        }
        Ok(())
    }
}
