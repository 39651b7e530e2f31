// SPDX-License-Identifier: GPL-2.0
//! Messages one way, one at a time, so that the cost of each can be counted: the receiver sleeps
//! when a message comes, and acknowledges it through an AF_UNIX socket. With `--unix` messages go
//! by that socket, too, so that the cost of the acknowledgment can be subtracted. Sender and
//! receiver have a processor each.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::events::wakes::Children;
use crate::support::checks::{say, Checks};
use crate::support::fds;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// Send messages one way, one at a time
#[derive(clap::Args)]
pub struct Args {
    /// Where the receiver listens
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddrV4,
    /// The receiver's network namespace
    #[arg(long, value_name = "PATH")]
    netns: PathBuf,
    /// Messages
    #[arg(long, default_value_t = 256)]
    messages: u32,
    /// Bytes in each
    #[arg(long, value_parser = crate::support::args::size, default_value = "64")]
    size: usize,
    /// Send the messages through the AF_UNIX socket, too: twice the cost of the acknowledgments
    #[arg(long)]
    unix: bool,
    /// Make sockets as a preload of rsockets knows them
    #[arg(long)]
    preload: bool,
    /// Write 1 into this file before the first message, and 0 after the last one
    #[arg(long, value_name = "PATH")]
    switch: Option<PathBuf>,
    /// Where the emulator's plugin counts instructions: print the number for the messages, atomic
    /// ones, and context switches. Batches of that number of messages and of twice that number are
    /// sent, several times
    #[arg(long, value_name = "PATH")]
    insns: Option<PathBuf>,
}

/// Messages before the counted ones: afterwards queues have grown, and paths are known.
const WARM: u32 = 64;
/// Batches of each length that are counted. Other work of the machine, and a processor that spins
/// while the emulator has no time for the one that it waits for, only add to a batch.
const BATCHES: usize = 16;

pub fn run(args: &Args, checks: &mut Checks) {
    if args.preload {
        raw::without_flags();
    }
    let name = format!("{} messages of {} bytes", args.messages, args.size);
    let sent = send(args);
    checks.eq(&name, sent, Ok(()));
}

fn send(args: &Args) -> Result<()> {
    let (here, there) = fds::unix_pair()?;
    let child = process::fork(|| u8::from(receive(args, &there).is_err()))?;
    let _child = Children(vec![child]);
    drop(there);
    process::run_on(0)?;
    // It listens.
    raw::recv_all(&here, &mut [0])?;
    let conn = raw::connected(args.to)?;
    let way = if args.unix { &here } else { &conn };
    let message = vec![0x5a; args.size];
    let some = |count| -> Result<()> {
        for _ in 0..count {
            raw::send_all(way, &message)?;
            raw::recv_all(&here, &mut [0])?;
        }
        Ok(())
    };
    some(WARM)?;
    switch(args, b"1")?;
    match &args.insns {
        Some(path) => print(&counted(path, args.messages, some)?),
        None => some(args.messages)?,
    }
    switch(args, b"0")
}

/// The cost of `messages` messages: the difference between batches of twice the number and of the
/// number, the least of each length. So reading the counters is no part of it.
fn counted(path: &Path, messages: u32, some: impl Fn(u32) -> Result<()>) -> Result<[i64; 4]> {
    let mut least = [[i64::MAX; 4]; 2];
    for _ in 0..BATCHES {
        for (count, least) in [messages, 2 * messages].into_iter().zip(&mut least) {
            let before = counts(path)?;
            some(count)?;
            let after = counts(path)?;
            for ((least, after), before) in least.iter_mut().zip(after).zip(before) {
                *least = (*least).min(after - before);
            }
        }
    }
    let [one, two] = least;
    Ok(std::array::from_fn(|i| two[i] - one[i]))
}

/// The names of counters of the machine. Moved atomic instructions are those on cache lines that
/// another processor has changed.
const NAMES: [&str; 4] = ["instructions", "atomics", "moved_atomics", "switches"];

fn print(counts: &[i64; 4]) {
    for (name, count) in NAMES.iter().zip(counts) {
        say(&format!("{name} {count}"));
    }
}

fn switch(args: &Args, state: &[u8]) -> Result<()> {
    match &args.switch {
        Some(path) => Ok(File::options().write(true).open(path)?.write_all(state)?),
        None => Ok(()),
    }
}

/// The counters now.
fn counts(path: &Path) -> Result<[i64; 4]> {
    let stat = fs::read_to_string("/proc/stat")?;
    let switches = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
    let switches = switches.and_then(|n| n.parse().ok());
    let switches = switches.ok_or(Errno(libc::EPROTO))?;
    let first = line(path)?;
    loop {
        thread::sleep(Duration::from_millis(5));
        let [instructions, atomics, moved_atomics, number] = line(path)?;
        // The line in between may have been begun before.
        if number >= first[3] + 2 {
            return Ok([instructions, atomics, moved_atomics, switches]);
        }
    }
}

/// The plugin's last line.
fn line(path: &Path) -> Result<[i64; 4]> {
    let text = fs::read_to_string(path)?;
    let numbers: Vec<i64> = text.split_whitespace().flat_map(str::parse).collect();
    numbers.try_into().map_err(|_| Errno(libc::EPROTO))
}

/// Until the sender ends.
fn receive(args: &Args, unix: &OwnedFd) -> Result<Infallible> {
    process::set_network(&File::open(&args.netns)?)?;
    process::run_on(1)?;
    let (listener, _) = raw::listener(args.to)?;
    raw::send_all(unix, b"!")?;
    let conn = raw::accept(&listener)?;
    let way = if args.unix { unix } else { &conn };
    let mut message = vec![0; args.size];
    loop {
        raw::recv_all(way, &mut message)?;
        raw::send_all(unix, b"!")?;
    }
}
