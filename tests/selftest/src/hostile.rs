// SPDX-License-Identifier: GPL-2.0
//! Programs that do what no program should, each for a short time. `serve` is the other side.

mod close;
mod exhaust;
mod fetch;
mod kill;
mod lent;
mod mapping;
mod memory;
mod ring;
mod signals;
mod unmap;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::common::serve::{ask, COUNT, FLOOD};
use crate::support::checks::{say, Checks};
use crate::support::pattern::Rng;
use crate::support::raw::{self, Errno, Result};

/// Programs that do what no program should, for a short time each
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    what: Vec<What>,
    /// Where `serve` runs
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddrV4,
    /// An address of this host, for listeners
    #[arg(long, value_name = "ADDR")]
    local: std::net::Ipv4Addr,
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long each program goes on, about
    #[arg(long, default_value_t = 2000)]
    ms: u64,
    /// How many descriptors a program may have that takes all
    #[arg(long, default_value_t = 100)]
    many: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Arguments of ioctls, options and messages change while the kernel reads them
    Fetch,
    /// The shared descriptors are scribbled on while data arrives
    Ring,
    /// The pages of a send change, and are unmapped, while it runs
    Unmap,
    /// Sends from, and receives into, all kinds of memory
    Memory,
    /// The mappings of ring and window are unmapped, moved, protected and inherited
    Mapping,
    /// Lent pages are given back, kept and spliced while other threads receive them
    Lent,
    /// Sockets are closed and shut down while other threads use them
    Close,
    /// Signals in every call that waits
    Signals,
    /// SIGKILL in every state
    Kill,
    /// As much as there is of everything
    Exhaust,
}

pub fn run(args: &Args, checks: &mut Checks) {
    for &what in &args.what {
        let name = what.to_possible_value().expect("a name");
        let name = name.get_name().to_string();
        say(&format!(
            "# {name}: replay with --what {name} --seed {}",
            args.seed
        ));
        let ctx = Ctx {
            peer: args.peer,
            local: args.local,
            seed: args.seed,
            time: Duration::from_millis(args.ms),
            many: args.many,
        };
        let before = open_files();
        let done = match what {
            What::Fetch => fetch::run(&ctx, checks),
            What::Ring => ring::run(&ctx, checks),
            What::Unmap => unmap::run(&ctx, checks),
            What::Memory => memory::run(&ctx, checks),
            What::Mapping => mapping::run(&ctx, checks),
            What::Lent => lent::run(&ctx, checks),
            What::Close => close::run(&ctx, checks),
            What::Signals => signals::run(&ctx, checks),
            What::Kill => kill::run(&ctx, checks),
            What::Exhaust => exhaust::run(&ctx, checks),
        };
        if let Err(e) = done {
            checks.fail(&name, &format!("a step that must not fail: {e}"));
        }
        checks.eq(
            &format!("{name}: no descriptor is left open"),
            open_files(),
            before,
        );
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The arguments of each program.
struct Ctx {
    peer: SocketAddrV4,
    local: std::net::Ipv4Addr,
    seed: u64,
    time: Duration,
    many: u64,
}

impl Ctx {
    fn rng(&self, stream: u64) -> Rng {
        Rng::new(self.seed, stream)
    }

    /// A connection whose peer sends `len` bytes of value `tag`.
    fn flood(&self, tag: u8, len: u64) -> Result<OwnedFd> {
        let mut command = vec![FLOOD, tag];
        command.extend(len.to_be_bytes());
        ask(self.peer, &command)
    }

    /// A connection whose peer counts the received bytes.
    fn counted(&self) -> Result<OwnedFd> {
        ask(self.peer, &[COUNT])
    }
}

/// The report of the peer of [`Ctx::counted`].
#[derive(Debug, PartialEq)]
struct Counted {
    bytes: u64,
    values: Vec<u8>,
}

/// Ends the direction to the peer and asks.
fn count(fd: &OwnedFd) -> Result<Counted> {
    raw::shutdown(fd, libc::SHUT_WR)?;
    let mut answer = [0; 40];
    raw::recv_all(fd, &mut answer)?;
    let (bytes, values) = answer.split_at(8);
    Ok(Counted {
        bytes: u64::from_be_bytes(bytes.try_into().expect("8 bytes")),
        values: (0..=255)
            .filter(|&b: &u8| values[usize::from(b) / 8] & (1 << (b % 8)) != 0)
            .collect(),
    })
}

/// Some bytes go both ways on a new connection: the peer and the link are fine.
fn still_works(ctx: &Ctx, name: &str, checks: &mut Checks) -> Result<()> {
    let fd = ctx.counted()?;
    raw::send_all(&fd, &vec![7; 100_000])?;
    let expected = Counted {
        bytes: 100_000,
        values: vec![7],
    };
    checks.eq(
        &format!("{name}: a new connection works"),
        count(&fd)?,
        expected,
    );
    Ok(())
}

/// The number of times that a call had each result.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<i32, u64>>);

impl Tally {
    fn add<T>(&self, result: &Result<T>) {
        let errno = result.as_ref().err().map_or(0, |e| e.0);
        *self.0.lock().unwrap().entry(errno).or_default() += 1;
    }

    fn calls(&self) -> u64 {
        self.0.lock().unwrap().values().sum()
    }

    /// All calls must have succeeded, or failed with one of `allowed`; there must have been some.
    fn report(&self, checks: &mut Checks, name: &str, allowed: &[i32]) {
        let seen = self.0.lock().unwrap();
        let list: Vec<_> = seen
            .iter()
            .map(|(&e, n)| match e {
                0 => format!("{n} fine"),
                e => format!("{n} {}", Errno(e)),
            })
            .collect();
        let list = list.join(", ");
        let strange = seen.keys().any(|e| *e != 0 && !allowed.contains(e));
        if checks.yes(name, !seen.is_empty() && !strange, &list) {
            say(&format!("#   {list}"));
        }
    }
}

/// Runs `main` while `others` threads run `other` again and again.
fn beside<T>(others: usize, other: impl Fn(usize) + Sync, main: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|s| {
        for n in 0..others {
            let (stop, other) = (&stop, &other);
            s.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    other(n);
                }
            });
        }
        let _stop = Stop(&stop);
        main()
    })
}

/// Calls `step` until the time is over, and at least once.
fn for_a_while(time: Duration, mut step: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        step()?;
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}
