// SPDX-License-Identifier: GPL-2.0
//! Many processes and threads that do everything with sockets at once, and are killed at random.
//!
//! The actions of an actor (a thread) follow from the seed, its number, and the number of starts of
//! its process; their interleaving is up to the scheduler. All actors keep their counters and their
//! current call in one table of shared memory, so that nothing is lost with a killed process, and
//! so that the parent, which starts, kills and watches them, sees an actor without progress.

mod actor;
mod pump;
mod table;

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::args::size;
use crate::support::checks::{say, Checks};
use crate::support::fds;
use crate::support::pattern::Rng;
use crate::support::process;
use crate::support::raw::{self, Result};
use crate::support::wild;
use table::{Count, Table};

/// Many processes and threads that do everything with sockets, and are killed at random
#[derive(clap::Args)]
pub struct Args {
    /// Of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long it goes on
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Threads of each process, half of them accepting and half connecting
    #[arg(long, default_value_t = 4)]
    threads: usize,
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// Where the first process listens; the next ones at the ports behind
    #[arg(long, value_name = "ADDR:PORT")]
    local: SocketAddrV4,
    /// The same for all hosts, this one too
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', required = true)]
    peers: Vec<SocketAddrV4>,
    /// Most bytes one way on one connection
    #[arg(long, value_parser = size, default_value = "1M")]
    most: usize,
    /// Kill a process about this often; 0: never
    #[arg(long, default_value_t = 0)]
    kill_ms: u64,
    /// The peers' processes are killed too
    #[arg(long)]
    peers_killed: bool,
    /// Links and devices go during the run, and memory is short: connections may break at any time
    #[arg(long)]
    disturbed: bool,
    /// At the end go on accepting until this file is there, as the clients of other hosts may still
    /// connect; "clients ended" is said when ours do not any more
    #[arg(long, value_name = "FILE")]
    serve_until: Option<PathBuf>,
    /// An actor without progress for this number of seconds hangs
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Command to run while it hangs, for its output
    #[arg(long, value_name = "SHELL COMMAND")]
    when_hung: Option<String>,
}

/// State shared by all actors.
struct Shared<'a> {
    args: &'a Args,
    table: Table,
    /// A socket pair of each process: a descriptor written into it is given to the process.
    inboxes: Vec<(OwnedFd, OwnedFd)>,
}

impl Shared<'_> {
    /// Whether the actor with this slot is one that connects.
    fn connects(&self, slot: usize) -> bool {
        actor::connects(slot % (self.args.threads + 1))
    }
}

/// Waits until it is so, as long as the patience lasts.
fn wait_for(args: &Args, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(args.patience);
    while !so() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Args {
    /// Whether connections may end before their time.
    fn rough(&self) -> bool {
        self.kill_ms > 0 || self.peers_killed || self.disturbed
    }
}

struct Process {
    pid: libc::pid_t,
    starts: u64,
}

pub fn run(args: &Args, checks: &mut Checks) {
    process::alarm(0);
    if let Err(e) = stress(args, checks) {
        checks.fail("stress", &e.to_string());
    }
}

fn stress(args: &Args, checks: &mut Checks) -> Result<()> {
    say(&format!(
        "# replay with --seed {} --threads {} --processes {}",
        args.seed, args.threads, args.processes
    ));
    let mut inboxes = Vec::new();
    for _ in 0..args.processes {
        inboxes.push(fds::unix_pair()?);
    }
    let shared = Shared {
        args,
        // One slot more of each process: the keeper.
        table: Table::new(args.processes * (args.threads + 1))?,
        inboxes,
    };
    let mut processes = Vec::new();
    for index in 0..args.processes {
        processes.push(start(&shared, index, 0)?);
    }
    let mut rng = Rng::new(args.seed, 1 << 32);
    let mut next_kill = Instant::now();
    let mut watch = Watch::new(&shared);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut hung = Vec::new();
    while Instant::now() < end && hung.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        if args.kill_ms > 0 && Instant::now() > next_kill {
            next_kill +=
                Duration::from_millis(args.kill_ms / 2 + rng.below(args.kill_ms as usize) as u64);
            let index = rng.below(args.processes);
            let process = &mut processes[index];
            wild::kill(process.pid, libc::SIGKILL)?;
            if process::wait(process.pid)? != 128 + libc::SIGKILL {
                checks.fail("a process ended by itself", &format!("process {index}"));
                break;
            }
            shared.table.count(Count::Kills, 1);
            *process = start(&shared, index, process.starts + 1)?;
        }
        hung = watch.hung(&processes);
    }
    shared.table.stop_connecting();
    if let Some(file) = &args.serve_until {
        let clients_end =
            || (0..shared.table.slots()).all(|s| !shared.connects(s) || shared.table.ended(s));
        wait_for(args, clients_end);
        say("# clients ended");
        wait_for(args, || file.exists());
    }
    shared.table.stop();
    let end = Instant::now() + Duration::from_secs(args.patience);
    let mut ended = Vec::new();
    while ended.len() < processes.len() && Instant::now() < end && hung.is_empty() {
        // Descriptors given to a process that has gone already.
        for (_, inbox) in &shared.inboxes {
            while raw::poll(inbox, libc::POLLIN, 0)? != 0 && fds::recv_fd(inbox).is_ok() {}
        }
        while ended.len() < processes.len() {
            match wild::wait_any()? {
                Some(end) => ended.push(end),
                None => break,
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if hung.is_empty() && ended.len() < processes.len() {
        hung = watch.all(&processes);
    }
    if let (Some(command), false) = (&args.when_hung, hung.is_empty()) {
        // Its own exit status would tell nothing more.
        let _ = Command::new("sh").args(["-c", command]).status();
    }
    checks.yes(
        "every actor makes progress, and ends",
        hung.is_empty(),
        &hung.join("; "),
    );
    for process in &processes {
        if !ended.iter().any(|(pid, _)| *pid == process.pid) {
            wild::kill(process.pid, libc::SIGKILL)?;
            process::wait(process.pid)?;
        }
    }
    let bad: Vec<_> = ended.iter().filter(|(_, status)| *status != 0).collect();
    checks.yes(
        "every process ends well",
        bad.is_empty(),
        &format!("{bad:?}"),
    );
    shared.table.report(checks, args);
    Ok(())
}

fn start(shared: &Shared<'_>, index: usize, starts: u64) -> Result<Process> {
    // The parent has one thread.
    let pid = process::fork(|| match actor::process(shared, index, starts) {
        Ok(()) => 0,
        Err(e) => {
            say(&format!("# process {index}: {e}"));
            1
        }
    })?;
    Ok(Process { pid, starts })
}

/// The last progress of each actor.
struct Watch<'a> {
    shared: &'a Shared<'a>,
    seen: Vec<(u64, Instant)>,
}

impl<'a> Watch<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        let now = Instant::now();
        let seen = vec![(0, now); shared.table.slots()];
        Self { shared, seen }
    }

    /// Those that have made no progress for too long.
    fn hung(&mut self, processes: &[Process]) -> Vec<String> {
        let patience = Duration::from_secs(self.shared.args.patience);
        let mut hung = Vec::new();
        for slot in 0..self.shared.table.slots() {
            let Some(progress) = self.shared.table.progress(slot) else {
                continue;
            };
            let seen = &mut self.seen[slot];
            if seen.0 != progress {
                *seen = (progress, Instant::now());
            } else if seen.1.elapsed() > patience {
                hung.push(self.picture(slot, processes));
            }
        }
        hung
    }

    fn all(&self, processes: &[Process]) -> Vec<String> {
        (0..self.shared.table.slots())
            .filter(|slot| !self.shared.table.ended(*slot))
            .map(|slot| self.picture(slot, processes))
            .collect()
    }

    /// The call of an actor, and the kernel stack of its thread; for a keeper, which has several
    /// threads, of all in the process.
    fn picture(&self, slot: usize, processes: &[Process]) -> String {
        let per = self.shared.args.threads + 1;
        let (op, tid) = self.shared.table.doing(slot);
        let tasks = PathBuf::from(format!("/proc/{}/task", processes[slot / per].pid));
        let mut threads = vec![tid.to_string()];
        if slot % per == 0 {
            threads = std::fs::read_dir(&tasks)
                .map(|dir| {
                    dir.flatten()
                        .map(|e| e.file_name().into_string().unwrap_or_default())
                })
                .map_or(threads, Iterator::collect);
        }
        let waits: Vec<_> = threads
            .iter()
            .map(|thread| {
                let read = |what| {
                    std::fs::read_to_string(tasks.join(thread).join(what)).unwrap_or_default()
                };
                let (wchan, stack) = (read("wchan"), read("stack"));
                let stack: Vec<_> = stack
                    .lines()
                    .map(|l| l.split_whitespace().last().unwrap_or(""))
                    .collect();
                format!("thread {thread} waits in {wchan} [{}]", stack.join(" "))
            })
            .collect();
        format!("actor {slot} in {op:?}, {}", waits.join(", "))
    }
}
