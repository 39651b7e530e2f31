// SPDX-License-Identifier: GPL-2.0
//! The counters of all actors of all processes, and their current calls: words of shared memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Args;
use crate::support::checks::{say, Checks};
use crate::support::raw::{Errno, Result};
use crate::support::wild::{self, Area};

/// The call of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Op {
    Nothing,
    Ended,
    Socket,
    Bind,
    Listen,
    Accept,
    Connect,
    Send,
    Recv,
    Ring,
    RingRecv,
    Poll,
    Epoll,
    Shutdown,
    Close,
    Name,
    Pass,
    Fork,
}

const OPS: [Op; 18] = [
    Op::Nothing,
    Op::Ended,
    Op::Socket,
    Op::Bind,
    Op::Listen,
    Op::Accept,
    Op::Connect,
    Op::Send,
    Op::Recv,
    Op::Ring,
    Op::RingRecv,
    Op::Poll,
    Op::Epoll,
    Op::Shutdown,
    Op::Close,
    Op::Name,
    Op::Pass,
    Op::Fork,
];

/// The counters.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Count {
    Connected,
    Served,
    Complete,
    Bytes,
    RingBytes,
    Kills,
    Forks,
    Passed,
    /// Connections that broke without a reason that their ends knew.
    Broken,
    /// Streams that ended in good order, too early.
    Cut,
    /// Bytes that were wrong.
    Wrong,
}

const COUNTS: [Count; 11] = [
    Count::Connected,
    Count::Served,
    Count::Complete,
    Count::Bytes,
    Count::RingBytes,
    Count::Kills,
    Count::Forks,
    Count::Passed,
    Count::Broken,
    Count::Cut,
    Count::Wrong,
];

/// Numbers of errno.
const ERRNOS: usize = 160;
const STOP: usize = 0;
const COUNT: usize = 8;
const ERROR: usize = 32;
const SLOT: usize = ERROR + OPS.len() * ERRNOS;
/// Progress, operation, thread.
const SLOT_WORDS: usize = 4;

pub struct Table {
    area: Area,
    slots: usize,
}

impl Table {
    pub fn new(slots: usize) -> Result<Self> {
        let len = (SLOT + slots * SLOT_WORDS) * 8;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let area = Area::map(len.next_multiple_of(wild::PAGE), prot, flags, None, 0)?;
        Ok(Self { area, slots })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.area.word64(index * 8)
    }

    /// Nobody is to connect any more.
    pub fn stop_connecting(&self) {
        self.word(STOP).store(1, Relaxed);
    }

    /// Nobody is to do anything any more.
    pub fn stop(&self) {
        self.word(STOP).store(2, Relaxed);
    }

    pub fn connecting(&self) -> bool {
        self.word(STOP).load(Relaxed) == 0
    }

    pub fn stopped(&self) -> bool {
        self.word(STOP).load(Relaxed) == 2
    }

    pub fn count(&self, what: Count, n: u64) {
        self.word(COUNT + what as usize).fetch_add(n, Relaxed);
    }

    fn counted(&self, what: Count) -> u64 {
        self.word(COUNT + what as usize).load(Relaxed)
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// This thread begins `op`.
    pub fn begin(&self, slot: usize, op: Op) {
        let at = SLOT + slot * SLOT_WORDS;
        self.word(at + 1).store(op as u64, Relaxed);
        self.word(at).fetch_add(1, Relaxed);
    }

    /// This thread is the actor of `slot`.
    pub fn enter(&self, slot: usize) {
        self.word(SLOT + slot * SLOT_WORDS + 2)
            .store(wild::this_thread().number(), Relaxed);
        self.begin(slot, Op::Nothing);
    }

    /// The progress of an actor; `None` if it has ended.
    pub fn progress(&self, slot: usize) -> Option<u64> {
        let done = self.word(SLOT + slot * SLOT_WORDS).load(Relaxed);
        (!self.ended(slot)).then_some(done)
    }

    pub fn ended(&self, slot: usize) -> bool {
        self.word(SLOT + slot * SLOT_WORDS + 1).load(Relaxed) == Op::Ended as u64
    }

    /// The current call of an actor, and the number of its thread.
    pub fn doing(&self, slot: usize) -> (Op, u64) {
        let at = SLOT + slot * SLOT_WORDS;
        let op = self.word(at + 1).load(Relaxed) as usize;
        (OPS[op.min(OPS.len() - 1)], self.word(at + 2).load(Relaxed))
    }

    /// Records the result of a call.
    pub fn saw<T>(&self, op: Op, result: &Result<T>) {
        let errno = result.as_ref().err().map_or(0, |e| e.0) as usize;
        let at = ERROR + op as usize * ERRNOS + errno.min(ERRNOS - 1);
        self.word(at).fetch_add(1, Relaxed);
    }

    /// Prints the counts and checks what must hold of them.
    pub fn report(&self, checks: &mut Checks, args: &Args) {
        let counts: Vec<_> = COUNTS
            .iter()
            .map(|c| format!("{c:?} {}", self.counted(*c)))
            .collect();
        say(&format!("# {}", counts.join(", ").to_lowercase()));
        let mut strange = Vec::new();
        for op in OPS {
            let seen: Vec<_> = (0..ERRNOS)
                .map(|e| {
                    (
                        e as i32,
                        self.word(ERROR + op as usize * ERRNOS + e).load(Relaxed),
                    )
                })
                .filter(|(_, n)| *n > 0)
                .collect();
            if seen.is_empty() {
                continue;
            }
            let list: Vec<_> = seen
                .iter()
                .map(|(e, n)| match e {
                    0 => format!("{n} fine"),
                    e => format!("{n} {}", Errno(*e)),
                })
                .collect();
            say(&format!("#   {op:?}: {}", list.join(", ")));
            let allowed = allowed(op, args);
            for (e, _) in seen {
                if e != 0 && !allowed.contains(&e) {
                    strange.push(format!("{op:?}: {}", Errno(e)));
                }
            }
        }
        checks.yes(
            "only documented errors",
            strange.is_empty(),
            &strange.join(", "),
        );
        checks.eq("no byte was wrong", self.counted(Count::Wrong), 0);
        if !args.rough() {
            let ends = (self.counted(Count::Broken), self.counted(Count::Cut));
            checks.eq("no connection ended before its time", ends, (0, 0));
            let complete = self.counted(Count::Complete);
            checks.yes("connections did what they were for", complete > 0, "none");
        }
    }
}

/// The documented errors of a call.
fn allowed(op: Op, args: &Args) -> Vec<i32> {
    let mut list = match op {
        Op::Bind => vec![libc::EADDRINUSE],
        Op::Accept => vec![libc::EAGAIN, libc::EINVAL],
        // ETIMEDOUT: the machine is busy.
        Op::Connect => vec![
            libc::ECONNREFUSED,
            libc::EINPROGRESS,
            libc::ETIMEDOUT,
            libc::ENOBUFS,
            // After that: links that were not made in time have blocks until they have ended, and
            // none are left for a further one.
            libc::ENOMEM,
            // It was open, and its peer was gone before it was asked for.
            libc::ECONNRESET,
        ],
        Op::Send => vec![libc::EAGAIN, libc::EPIPE, libc::ECONNRESET],
        Op::Recv => vec![libc::EAGAIN, libc::ECONNRESET],
        // Unread data has left the pool, and its window with it.
        Op::Ring => vec![libc::ENOBUFS, libc::EBUSY],
        Op::Pass => vec![libc::EAGAIN],
        Op::RingRecv => vec![libc::EAGAIN, libc::ECONNRESET],
        _ => vec![],
    };
    if args.disturbed {
        list.push(libc::ENOMEM);
        if matches!(op, Op::Connect | Op::Send | Op::Recv | Op::RingRecv) {
            list.extend([
                libc::ENODEV,
                libc::EHOSTUNREACH,
                libc::ENETUNREACH,
                libc::ETIMEDOUT,
            ]);
        }
        if op == Op::Connect || op == Op::Fork {
            list.extend([libc::EADDRNOTAVAIL, libc::EAGAIN]);
        }
        if op == Op::Listen {
            list.extend([libc::EADDRINUSE, libc::EADDRNOTAVAIL]);
        }
        // The link has ended, and no device is left whose pool has a window.
        if op == Op::Ring {
            list.push(libc::ENOTCONN);
        }
    }
    // Both directions have ended.
    if matches!(op, Op::Shutdown | Op::Name) {
        list.push(libc::ENOTCONN);
    }
    list
}
