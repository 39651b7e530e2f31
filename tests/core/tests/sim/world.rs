// SPDX-License-Identifier: GPL-2.0

//! The world: time and the events in it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use zrs_core::wire::Refusal;

use crate::config::Config;
use crate::host::Host;
use crate::hostile::Hostile;
use crate::link::Link;
use crate::program::Actor;
use crate::sock::Sock;
use crate::stats::Stats;
use common::Rng;

pub type SockId = usize;
pub type ActorId = usize;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ev {
    /// The first thing in the pipe of a link arrives at a side's device.
    Arrive(usize, usize),
    /// The worker of a link's side looks at arrived messages.
    Drain(usize, usize),
    /// A message that a side of a link has posted is done.
    Sent(usize, usize),
    /// The transmit worker of a link's side runs.
    Transmit(usize, usize),
    /// A part of a program goes on.
    Step(ActorId),
    /// The time for connecting is over.
    ConnectTimer(SockId),
    /// A connect that found the backlog full is tried again.
    ConnectBackoff(SockId),
    /// A corked message leaves in any case.
    Uncork(SockId),
    /// The program closes its socket, wherever it is.
    Close(SockId),
    ShutRead(SockId),
    /// A worker answers the peer's request for a window.
    AnswerWindow(SockId),
    /// Nobody waits for a window any longer than this.
    WishOver(SockId),
    /// A host's mover looks at old messages, and a copy that it made is done.
    Age(usize),
    Moved(SockId),
    SwitchPolicy(usize),
    /// A host takes a window away.
    Revoke(usize),
    LinkFails(usize),
    /// A side of a link learns of its failure.
    LinkLost(usize, usize),
    DropOrphan(SockId),
    StopListening(usize, u16),
    /// A host dies, and comes back.
    Crash(usize),
    Boot(usize),
    /// A host's processors stand still for a while.
    Pause(usize),
    /// A host's allocations may fail from now on, or not any more.
    Shortage(usize, bool),
    /// A link delivers nothing for a while.
    Stall(usize),
    /// The adversary at the end of a link does something.
    Hostile(usize),
}

/// A connection, seen from outside: both ends. Side 0 connects.
pub struct Conn {
    pub key: u64,
    pub link: usize,
    pub socks: [Option<SockId>; 2],
    /// Bytes that the program of each side has given to its channel,
    pub given: [u64; 2],
    /// and that the channel has committed.
    pub sent: [u64; 2],
    /// Bytes that the program of each side has read.
    pub read: [u64; 2],
    /// The program of each side read to the end of the stream.
    pub ended: [bool; 2],
    pub refused: Option<Refusal>,
    pub timed_out: bool,
    /// A side's host gave the channel up as an orphan.
    pub dropped: bool,
    /// The listener closed before it accepted.
    pub unaccepted: bool,
    /// The host that connects had no memory for it.
    pub no_memory: bool,
    /// The other end is an adversary.
    pub hostile: bool,
}

impl Conn {
    pub fn new(key: u64, link: usize, socks: [Option<SockId>; 2], hostile: bool) -> Self {
        Self {
            key,
            link,
            socks,
            given: [0; 2],
            sent: [0; 2],
            read: [0; 2],
            ended: [false; 2],
            refused: None,
            timed_out: false,
            dropped: false,
            unaccepted: false,
            no_memory: false,
            hostile,
        }
    }

    /// Key of the stream that `side` sends.
    pub fn stream(&self, side: usize) -> u64 {
        common::mix(self.key + side as u64)
    }
}

pub struct World {
    pub seed: u64,
    pub trace: bool,
    pub rng: Rng,
    pub now: u64,
    number: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Ev)>>,
    pub cfg: Config,
    pub hosts: [Host; 2],
    pub links: Vec<Link>,
    /// The adversary, if there is one.
    pub hostile: Option<Hostile>,
    pub socks: Vec<Sock>,
    pub conns: Vec<Conn>,
    /// Connections by the link, its side, and the channel that opened them.
    pub conn_of: BTreeMap<(usize, usize, u32, u32), usize>,
    pub actors: Vec<Actor>,
    pub stats: Stats,
}

/// Prints what happens when one seed is traced.
macro_rules! trace {
    ($w:expr, $($arg:tt)*) => {
        if $w.trace {
            eprintln!("{:>8} {}", $w.now, format_args!($($arg)*));
        }
    };
}
pub(crate) use trace;

/// A run that takes longer than this goes round in circles.
const MOST_EVENTS: u64 = 3_000_000;

impl World {
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let cfg = Config::new(&mut rng);
        let hosts = [0, 1].map(|h| Host::new(&cfg, h, base(&mut rng)));
        let links = (0..cfg.links).map(|_| Link::new(&cfg, &mut rng)).collect();
        let mut w = Self {
            seed,
            trace,
            rng,
            now: 0,
            number: 0,
            heap: BinaryHeap::new(),
            cfg,
            hosts,
            links,
            hostile: None,
            socks: Vec::new(),
            conns: Vec::new(),
            conn_of: BTreeMap::new(),
            actors: Vec::new(),
            stats: Stats::default(),
        };
        if w.cfg.hostile {
            w.make_hostile_link(w.cfg.hostile_lives);
        }
        for host in 0..2 {
            w.start_listeners(host);
        }
        w.start_clients();
        w.plan_troubles();
        w
    }

    /// A host's receive memory begins anywhere.
    pub fn fresh_host(&mut self, host: usize) -> Host {
        let base = base(&mut self.rng);
        Host::new(&self.cfg, host, base)
    }

    /// Lets `ev` happen `delay` from now.
    pub fn at(&mut self, delay: u64, ev: Ev) {
        self.number += 1;
        self.heap.push(Reverse((self.now + delay, self.number, ev)));
    }

    /// As [`Self::at`], at some time up to `most` from now.
    pub fn within(&mut self, most: u64, ev: Ev) {
        let delay = self.rng.below(most + 1);
        self.at(delay, ev);
    }

    pub fn run(mut self) -> Stats {
        self.run_to_the_end();
        // Whatever happened, both hosts must be as good as new.
        self.cfg.calm_down();
        for host in 0..2 {
            self.hosts[host].short = false;
            if !self.hosts[host].up {
                self.boot(host);
            }
            self.start_listeners(host);
        }
        let first = self.conns.len();
        for host in 0..2 {
            self.start_client(host);
        }
        self.run_to_the_end();
        self.check_whole(first);
        (0..2).for_each(|host| self.count_table(host));
        self.stats.clone()
    }

    /// Adds the counters of a host's table.
    pub fn count_table(&mut self, host: usize) {
        let stats = self.hosts[host].table_stats();
        self.stats.table_hits += stats.hits;
        self.stats.table_near_hits += stats.l2_hits;
        self.stats.table_faults += stats.faults;
        self.stats.table_evicted += stats.evicted;
        self.stats.table_swept += stats.parked;
    }

    fn run_to_the_end(&mut self) {
        self.run_until_quiet();
        while self.resume() {
            self.run_until_quiet();
        }
        if let Some(a) = self.actors.iter().position(|a| !a.finished()) {
            self.fail(&format!("deadlock: actor {a} waits for ever"));
        }
        for (host, port) in self.listening() {
            self.at(0, Ev::StopListening(host, port));
        }
        self.run_until_quiet();
        self.check_end();
    }

    fn run_until_quiet(&mut self) {
        while let Some(Reverse((time, _, ev))) = self.heap.pop() {
            self.now = time;
            self.stats.events += 1;
            if self.stats.events > MOST_EVENTS {
                self.fail("livelock: too many events");
            }
            // A paused host does nothing, but its device goes on.
            let until = self.host_of(ev).map_or(0, |h| self.hosts[h].paused_until);
            if until > time {
                self.stats.events_late += 1;
                self.at(until - time, ev);
                continue;
            }
            self.happens(ev);
        }
    }

    fn happens(&mut self, ev: Ev) {
        match ev {
            Ev::Arrive(link, side) => self.arrive(link, side),
            Ev::Drain(link, side) => self.drain(link, side),
            Ev::Sent(link, side) => self.sent(link, side),
            Ev::Transmit(link, side) => self.transmit(link, side),
            Ev::Step(actor) => self.step(actor),
            Ev::ConnectTimer(sid) => self.connect_timer(sid),
            Ev::ConnectBackoff(sid) => self.try_again(sid),
            Ev::Uncork(sid) => self.uncork(sid),
            Ev::Close(sid) => self.close(sid),
            Ev::ShutRead(sid) => self.shut_read(sid),
            Ev::AnswerWindow(sid) => self.answer_window(sid),
            Ev::WishOver(sid) => self.wish_over(sid),
            Ev::Age(host) => self.age(host),
            Ev::Moved(sid) => self.moved(sid),
            Ev::SwitchPolicy(host) => self.switch_policy(host),
            Ev::Revoke(host) => self.revoke_some(host),
            Ev::LinkFails(link) => self.link_fails(link),
            Ev::LinkLost(link, side) => self.link_lost(link, side),
            Ev::DropOrphan(sid) => self.drop_orphan(sid),
            Ev::StopListening(host, port) => self.stop_listening(host, port),
            Ev::Crash(host) => self.crash(host),
            Ev::Boot(host) => self.boot(host),
            Ev::Pause(host) => self.pause(host),
            Ev::Shortage(host, short) => self.shortage(host, short),
            Ev::Stall(link) => self.stall(link),
            Ev::Hostile(link) => self.hostile_step(link),
        }
    }

    /// The host whose processors an event needs.
    fn host_of(&self, ev: Ev) -> Option<usize> {
        match ev {
            Ev::Drain(_, host)
            | Ev::Sent(_, host)
            | Ev::Transmit(_, host)
            | Ev::LinkLost(_, host)
            | Ev::Revoke(host)
            | Ev::Age(host)
            | Ev::SwitchPolicy(host)
            | Ev::StopListening(host, _) => Some(host),
            Ev::Step(actor) => Some(self.actors[actor].host),
            Ev::ConnectTimer(sid)
            | Ev::ConnectBackoff(sid)
            | Ev::Uncork(sid)
            | Ev::Close(sid)
            | Ev::ShutRead(sid)
            | Ev::AnswerWindow(sid)
            | Ev::WishOver(sid)
            | Ev::Moved(sid)
            | Ev::DropOrphan(sid) => Some(self.socks[sid].host),
            _ => None,
        }
    }

    /// Whether anything else than the world's own disturbances is still to come.
    pub fn busy(&self) -> bool {
        self.actors.iter().any(|a| !a.finished()) || self.socks.iter().any(|s| s.in_table)
    }
}

fn base(rng: &mut Rng) -> u64 {
    (rng.next_u64() >> 8) & !0xfff
}
