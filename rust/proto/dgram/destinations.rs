// SPDX-License-Identifier: GPL-2.0

//! Which destinations of sockets that also speak UDP get their datagrams by RDMA.
//!
//! All are reached by UDP at first. A destination that gets many datagrams is tried: a link to its
//! host is made, and the port is probed; meanwhile UDP goes on. So no datagram waits for RDMA, a
//! server with many clients makes no links, and hosts without ZRS are reached all the same. A
//! destination that failed is left to UDP for some time.
//!
//! Where a datagram came from by RDMA, the receiver's port answers by RDMA: the sender may have no
//! UDP. That is known for this port alone, since another user's program may have the sender's port
//! in UDP, which other sockets want to reach.
//!
//! The cache has sets of [`WAYS`] entries; of a set the least recently used one is replaced.

use core::ops::DerefMut;

use super::super::addr::{Addr, Ip};
use super::wire::Ports;

/// Entries of a set.
pub const WAYS: usize = 8;

/// A destination is tried after so many datagrams within [`PERIOD_NS`].
pub const DATAGRAMS: u32 = 8;
/// A destination is tried after so many bytes within [`PERIOD_NS`].
pub const BYTES: u32 = 64 * 1024;
/// The period of [`DATAGRAMS`] and [`BYTES`], in nanoseconds.
pub const PERIOD_NS: u64 = 1_000_000_000;

/// Destinations that are tried at a time.
pub const ATTEMPTS_MAX: u32 = 4;

/// How long a port is left to UDP that no socket of ZRS has, and a host without ZRS at first.
pub const REFUSED_NS: u64 = 60 * PERIOD_NS;
/// The longest that a host is left to UDP; the time doubles with each attempt.
pub const REFUSED_MAX_NS: u64 = 600 * PERIOD_NS;
/// How long a destination is left to UDP that was reached by RDMA before.
pub const LOST_NS: u64 = PERIOD_NS;
/// How long an attempt may take; the host answers probes at a limited rate, so that an answer may
/// never come.
pub const ATTEMPT_NS: u64 = 10 * PERIOD_NS;

/// The way of datagrams to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The network namespace, as a number.
    pub net: u64,
    /// The address that the sending socket is bound to.
    pub from: Ip,
    /// The port of the sending sockets; 0: those of all ports.
    pub port: u16,
    /// The destination.
    pub to: Addr,
}

/// A link that this host has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The network namespace, as a number.
    pub net: u64,
    /// The address on this host.
    pub local: Ip,
    /// The address of the other host.
    pub remote: Ip,
}

impl Ends {
    /// Whether the link is one for this path.
    fn carries(&self, path: &Path) -> bool {
        let own = path.from.is_any() || path.from == self.local;
        own && path.net == self.net && path.to.ip == self.remote
    }
}

/// A datagram to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Where it goes, from all ports.
    pub path: Path,
    /// The sender's port.
    pub port: u16,
    /// Its length.
    pub bytes: u32,
    /// Depends on the path.
    pub hash: u32,
}

/// How a datagram is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// By UDP.
    Udp,
    /// By UDP, and the caller begins to make a link to the host, or calls
    /// [`Destinations::link_up`] if there is one.
    UdpAndTry,
    /// By RDMA.
    Rdma,
    /// By RDMA, as something came from there to the sender's port. It may wait for a link.
    Answer,
}

/// The state of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its datagrams are counted.
    Unknown,
    /// A link to its host is being made.
    Trying,
    /// The port is being probed.
    Probing,
    /// A socket of ZRS has the port.
    Rdma,
    /// It is left to UDP until then.
    Udp(u64),
}

/// A destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    path: Path,
    /// The port of the socket that has begun the attempt.
    port: u16,
    state: State,
    /// When it was last used.
    used: u64,
    /// Since when datagrams are counted, or the destination is tried.
    since: u64,
    /// Datagrams since then, and their bytes.
    datagrams: u32,
    bytes: u32,
    /// Attempts that have found no ZRS.
    failures: u32,
}

impl Entry {
    fn new(path: Path, now: u64) -> Self {
        Self {
            path,
            port: 0,
            state: State::Unknown,
            used: now,
            since: now,
            datagrams: 0,
            bytes: 0,
            failures: 0,
        }
    }

    fn is_tried(&self) -> bool {
        matches!(self.state, State::Trying | State::Probing)
    }

    /// Counts a datagram; whether the destination is worth trying.
    fn count(&mut self, bytes: u32, now: u64) -> bool {
        if now.saturating_sub(self.since) >= PERIOD_NS {
            (self.since, self.datagrams, self.bytes) = (now, 0, 0);
        }
        self.datagrams = self.datagrams.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.datagrams >= DATAGRAMS || self.bytes >= BYTES
    }

    /// Ends an attempt that has taken too long.
    fn expire(&mut self, now: u64) {
        if self.is_tried() && now.saturating_sub(self.since) >= ATTEMPT_NS {
            self.leave_to_udp(now.saturating_add(LOST_NS));
        }
    }

    fn leave_to_udp(&mut self, until: u64) {
        self.state = State::Udp(until);
        (self.since, self.datagrams, self.bytes) = (until, 0, 0);
    }
}

/// The destinations of the sockets. `S`: storage for them, of a multiple of [`WAYS`].
pub struct Destinations<S> {
    entries: S,
    /// Those that are tried.
    tried: u32,
    /// When attempts that took too long were last looked for.
    looked: u64,
}

impl<S: DerefMut<Target = [Option<Entry>]>> Destinations<S> {
    /// None is known.
    pub fn new(entries: S) -> Self {
        Self {
            entries,
            tried: 0,
            looked: 0,
        }
    }

    /// Destinations that are tried.
    #[cfg(not(MODULE))]
    pub fn tried(&self) -> u32 {
        self.tried
    }

    /// The set of a destination; `hash` depends on it.
    fn set(&mut self, hash: u32) -> &mut [Option<Entry>] {
        let sets = self.entries.len() / WAYS;
        let set = (hash as usize).checked_rem(sets).unwrap_or(0);
        let (first, end) = (
            set.saturating_mul(WAYS),
            set.saturating_add(1).saturating_mul(WAYS),
        );
        self.entries.get_mut(first..end).unwrap_or(&mut [])
    }

    /// The entry of a destination. If there is none, one is made, instead of the one that has not
    /// been used for longest and is not being tried.
    fn entry(&mut self, path: Path, hash: u32, now: u64) -> Option<&mut Entry> {
        let set = self.set(hash);
        let known = set
            .iter()
            .position(|e| e.as_ref().is_some_and(|e| e.path == path));
        let at = match known {
            Some(at) => at,
            None => {
                let free = |e: &Option<Entry>| e.as_ref().is_none_or(|e| !e.is_tried());
                let age = |e: &Option<Entry>| e.as_ref().map(|e| e.used);
                let usable = set.iter().enumerate().filter(|(_, e)| free(e));
                let (at, _) = usable.min_by_key(|(_, e)| age(e))?;
                *set.get_mut(at)? = Some(Entry::new(path, now));
                at
            }
        };
        let entry = set.get_mut(at)?.as_mut()?;
        entry.used = now;
        Some(entry)
    }

    /// Chooses the route of a datagram, at `now` in nanoseconds of the monotonic clock.
    /// `reachable`: whether RDMA may reach the destination; it is asked before an attempt.
    pub fn route(&mut self, sent: &Sent, now: u64, reachable: impl FnOnce() -> bool) -> Route {
        if self.tried >= ATTEMPTS_MAX && now.saturating_sub(self.looked) >= PERIOD_NS {
            self.looked = now;
            self.each(|entry| entry.expire(now));
        }
        let answer = Path {
            port: sent.port,
            ..sent.path
        };
        let mut set = self.set(sent.hash).iter_mut().flatten();
        if let Some(heard) = set.find(|e| e.path == answer && e.state == State::Rdma) {
            heard.used = now;
            return Route::Answer;
        }
        let may_try = self.tried < ATTEMPTS_MAX;
        let Some(entry) = self.entry(sent.path, sent.hash, now) else {
            return Route::Udp;
        };
        let tried = entry.is_tried();
        entry.expire(now);
        if tried && !entry.is_tried() {
            self.tried = self.tried.saturating_sub(1);
            return Route::Udp;
        }
        match entry.state {
            State::Rdma => return Route::Rdma,
            State::Trying | State::Probing => return Route::Udp,
            State::Udp(until) if now < until => return Route::Udp,
            State::Udp(_) => entry.state = State::Unknown,
            State::Unknown => {}
        }
        if !entry.count(sent.bytes, now) || !may_try {
            return Route::Udp;
        }
        if !reachable() {
            entry.leave_to_udp(now.saturating_add(REFUSED_NS));
            return Route::Udp;
        }
        entry.state = State::Trying;
        entry.since = now;
        entry.port = sent.port;
        self.tried = self.tried.saturating_add(1);
        Route::UdpAndTry
    }

    /// A datagram has come by RDMA from the destination of `path`, to the port of `path`. `hash`
    /// as in [`Sent`]. It may have come long ago: a path that has failed since is left to UDP.
    pub fn heard(&mut self, path: Path, hash: u32, now: u64) {
        if let Some(entry) = self.entry(path, hash, now) {
            match entry.state {
                State::Udp(until) if now < until => {}
                _ => entry.state = State::Rdma,
            }
        }
    }

    fn each(&mut self, mut change: impl FnMut(&mut Entry)) {
        let mut tried: u32 = 0;
        for entry in self.entries.iter_mut().flatten() {
            change(entry);
            tried = tried.saturating_add(entry.is_tried().into());
        }
        self.tried = tried;
    }

    /// A link is up. Returns the probes to be sent on it, one for each of its destinations that is
    /// tried.
    pub fn link_up(&mut self, link: &Ends) -> [Option<Ports>; ATTEMPTS_MAX as usize] {
        let mut probes = [None; ATTEMPTS_MAX as usize];
        if self.tried == 0 {
            return probes;
        }
        let mut free = probes.iter_mut();
        self.each(|entry| {
            if !link.carries(&entry.path) || entry.state != State::Trying {
                return;
            }
            if let Some(probe) = free.next() {
                entry.state = State::Probing;
                *probe = Some(Ports {
                    dst: entry.path.to.port,
                    src: entry.port,
                });
            }
        });
        probes
    }

    /// The link cannot be made, or carries no datagrams: there is no ZRS, or no room for the link.
    pub fn no_link(&mut self, link: &Ends, now: u64) {
        self.each(|entry| {
            let answers = entry.path.port != 0 && entry.state == State::Rdma;
            if link.carries(&entry.path) && (entry.is_tried() || answers) {
                let doubled = 1_u64.checked_shl(entry.failures).unwrap_or(u64::MAX);
                let time = REFUSED_NS.saturating_mul(doubled).min(REFUSED_MAX_NS);
                entry.failures = entry.failures.saturating_add(1);
                entry.leave_to_udp(now.saturating_add(time));
            }
        });
    }

    /// The link is lost.
    pub fn link_lost(&mut self, link: &Ends, now: u64) {
        self.each(|entry| {
            let used = entry.is_tried() || entry.state == State::Rdma;
            if link.carries(&entry.path) && used {
                entry.leave_to_udp(now.saturating_add(LOST_NS));
            }
        });
    }

    /// The path of a datagram has no link after all.
    pub fn path_lost(&mut self, path: &Path, now: u64) {
        self.each(|entry| {
            if entry.path == *path && (entry.is_tried() || entry.state == State::Rdma) {
                entry.leave_to_udp(now.saturating_add(LOST_NS));
            }
        });
    }

    /// The host at the other end of the link says whether a socket of ZRS has the port `ports.dst`:
    /// the answer to a probe, or to a datagram, of our port `ports.src`.
    pub fn answered(&mut self, link: &Ends, ports: Ports, open: bool, now: u64) {
        self.each(|entry| {
            let ours = [0, ports.src].contains(&entry.path.port);
            if !link.carries(&entry.path) || entry.path.to.port != ports.dst || !ours {
                return;
            }
            match (entry.state, open) {
                (State::Probing, true) => {
                    entry.state = State::Rdma;
                    entry.failures = 0;
                }
                (State::Probing, false) => entry.leave_to_udp(now.saturating_add(REFUSED_NS)),
                (State::Rdma, false) => entry.leave_to_udp(now.saturating_add(LOST_NS)),
                _ => {}
            }
        });
    }
}
