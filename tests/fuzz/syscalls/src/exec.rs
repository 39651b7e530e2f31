// SPDX-License-Identifier: GPL-2.0
//! Runs a program in a child, and sees it dead.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::prog::{Program, MAX_CALLS};
use crate::sys::{self, Kcov, Memory};
use crate::worker::{self, World, IDLE, RUNNING, WORKERS};

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Done,
    /// It broke itself by a signal: its memory or its code was taken away.
    Signal(i32),
    /// With a status of this program's own: a bug in it.
    Bug(i32),
    /// It had to be killed.
    Killed,
    /// It does not die: the state and kernel stack of each of its threads.
    Stuck(String),
}

/// The result of a program.
pub struct Ran {
    pub end: End,
    /// The result of each call; `RUNNING`, `IDLE`.
    pub results: Vec<i64>,
    /// The covered points of the module.
    pub pcs: BTreeSet<u64>,
}

/// Runs programs.
pub struct Exec {
    world: &'static World,
    /// How long a program may take.
    limit: Duration,
    /// A socket in each host, or none: while there is one, the links stay.
    keepers: Vec<OwnedFd>,
}

impl Exec {
    /// `scale`: by how much slower this machine is than a usual one. From now on this process is in
    /// host A.
    pub fn new(scale: u32) -> io::Result<Self> {
        // Whatever programs leave behind is our child then, and can be killed and waited for.
        sys::check(
            libc::SYS_prctl,
            &[libc::PR_SET_CHILD_SUBREAPER as u64, 1, 0, 0, 0],
        )?;
        let mut namespaces: Vec<OwnedFd> = Vec::new();
        for name in ["zrsA", "zrsB"] {
            let path = format!("/run/netns/{name}");
            let file = File::open(&path);
            let file = file.map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
            namespaces.push(file.into());
        }
        // A program may take away what it runs on: not worth a line in the kernel log.
        let _ = fs::write("/proc/sys/debug/exception-trace", "0");
        let kcov: io::Result<Vec<Kcov>> = (0..WORKERS).map(|_| Kcov::new()).collect();
        let world = World {
            memory: Memory::new(WORKERS)?,
            results: sys::shared(MAX_CALLS + 1)?,
            kcov: kcov.unwrap_or_default(),
            namespaces,
            patience: Duration::from_millis(15) * scale,
        };
        let mut this = Self {
            world: Box::leak(Box::new(world)),
            limit: Duration::from_secs(5) * scale,
            keepers: Vec::new(),
        };
        this.keep_links(true)?;
        Ok(this)
    }

    /// Whether the links stay when no program has a socket: most programs are quicker then, and
    /// without it links come and go.
    pub fn keep_links(&mut self, yes: bool) -> io::Result<()> {
        self.keepers.clear();
        for ns in self.world.namespaces.iter().rev() {
            enter(ns)?;
            if yes {
                let zrs = u64::from(zrs_sys::abi::IPPROTO_ZRS);
                let stream = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
                let fd = sys::check(libc::SYS_socket, &[libc::AF_INET as u64, stream, zrs])?;
                self.keepers.push(sys::own(fd));
            }
        }
        Ok(())
    }

    /// How many sockets are open for that.
    pub fn keepers(&self) -> u64 {
        self.keepers.len() as u64
    }

    /// Whether the kernel reports coverage.
    pub fn has_coverage(&self) -> bool {
        !self.world.kcov.is_empty()
    }

    /// Runs a program.
    pub fn run(&self, program: &Program) -> io::Result<Ran> {
        for result in self.world.results {
            result.store(IDLE, Ordering::Relaxed);
        }
        self.world.kcov.iter().for_each(Kcov::reset);
        let Some(pid) = sys::fork()? else {
            worker::run(self.world, program.clone());
        };
        let end = self.wait(pid);
        let results = self.world.results.iter().skip(1).take(program.calls.len());
        Ok(Ran {
            end,
            results: results.map(|r| r.load(Ordering::Relaxed)).collect(),
            pcs: self.world.kcov.iter().flat_map(Kcov::pcs).collect(),
        })
    }

    fn wait(&self, pid: i32) -> End {
        let mut end = None;
        let deadline = Instant::now() + self.limit;
        while end.is_none() && Instant::now() < deadline {
            end = ended(pid);
        }
        // The group: its forked children are killed with it.
        sys::call(
            libc::SYS_kill,
            &[-i64::from(pid) as u64, libc::SIGKILL as u64],
        );
        sys::call(libc::SYS_kill, &[pid as u64, libc::SIGKILL as u64]);
        let killed = end.is_none();
        let deadline = Instant::now() + self.limit * 4;
        loop {
            match sys::reap(-1) {
                // No child is left.
                Err(_) => break,
                Ok(Some(_)) => {}
                Ok(None) if Instant::now() > deadline => return End::Stuck(stacks(pid)),
                Ok(None) => sleep(Duration::from_millis(1)),
            }
        }
        match end {
            _ if killed => End::Killed,
            Some(status) if libc::WIFSIGNALED(status) => End::Signal(libc::WTERMSIG(status)),
            Some(status) if libc::WEXITSTATUS(status) != 0 => End::Bug(libc::WEXITSTATUS(status)),
            _ => End::Done,
        }
    }
}

/// The status of child `pid`, if it ends within some milliseconds.
fn ended(pid: i32) -> Option<i32> {
    let fd = sys::check(libc::SYS_pidfd_open, &[pid as u64, 0]);
    if let Ok(fd) = fd {
        let fd = sys::own(fd);
        let mut poll = Poll(fd.as_raw_fd(), libc::POLLIN, 0);
        let at = std::ptr::from_mut(&mut poll) as u64;
        sys::call(libc::SYS_poll, &[at, 1, 100]);
    }
    match sys::reap(pid) {
        Ok(Some((_, status))) => Some(status),
        _ => None,
    }
}

/// `struct pollfd`.
#[repr(C)]
struct Poll(i32, i16, i16);

/// This thread goes to a network namespace.
fn enter(ns: &OwnedFd) -> io::Result<()> {
    let args = [ns.as_raw_fd() as u64, libc::CLONE_NEWNET as u64];
    sys::check(libc::SYS_setns, &args).map(drop)
}

/// The stacks of the threads of a process.
fn stacks(pid: i32) -> String {
    let mut all = String::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return format!("process {pid} is gone, a child of it is not");
    };
    for task in tasks.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status
            .lines()
            .find(|l| l.starts_with("State"))
            .unwrap_or("");
        let id = task.file_name();
        all += &format!(
            "thread {}: {state}\n{}",
            id.to_string_lossy(),
            read("stack")
        );
    }
    all
}

/// A call's result in words.
pub fn result_text(result: i64) -> String {
    match result {
        RUNNING => "does not return".into(),
        IDLE => "not made".into(),
        -4095..=-1 => io::Error::from_raw_os_error(-result as i32).to_string(),
        _ => format!("{result:#x}"),
    }
}
