// SPDX-License-Identifier: GPL-2.0

//! The world: time, the events in it, and the rules that must hold at its end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use zrs_core::channel::{Failure, State};
use zrs_core::wire::{Header, Refusal, Type};
use zrs_core::ChanId;

use crate::common::Rng;
use crate::config::Config;
use crate::host::Host;
use crate::link::{Item, Link, Source};
use crate::program::Actor;
use crate::sock::Sock;
use crate::stats::Stats;

pub type SockId = usize;
pub type ActorId = usize;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ev {
    /// The first thing in the pipe of a link arrives at a side.
    Arrive(usize, usize),
    /// The transmit worker of a link's side runs.
    Transmit(usize, usize),
    /// A part of a program goes on.
    Step(ActorId),
    /// The time for connecting is over.
    ConnectTimer(SockId),
    /// The program closes its socket, wherever it is.
    Close(SockId),
    ShutRead(SockId),
    /// A worker answers the peer's wish for a window.
    AnswerWindow(SockId),
    /// A host takes a window away.
    Revoke(usize),
    LinkFails(usize),
    /// A side of a link learns of its failure.
    LinkLost(usize, usize),
    DropOrphan(SockId),
    StopListening(usize, u16),
}

/// A connection as an onlooker sees it who knows both ends. Side 0 connects.
pub struct Conn {
    pub key: u64,
    pub link: usize,
    pub socks: [Option<SockId>; 2],
    /// Bytes that each side has committed.
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
}

impl Conn {
    /// Key of the stream that `side` sends.
    pub fn stream(&self, side: usize) -> u64 {
        crate::common::mix(self.key + side as u64)
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
    pub socks: Vec<Sock>,
    pub conns: Vec<Conn>,
    /// Connections by the host and channel that opened them.
    pub conn_of: BTreeMap<(usize, u32, u32), usize>,
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
const MOST_EVENTS: u64 = 2_000_000;

impl World {
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let cfg = Config::new(&mut rng);
        let hosts = [0, 1].map(|h: usize| {
            let base = (rng.next() >> 8) & !0xfff;
            Host::new(cfg.table_slots, cfg.pool_pages[h], base)
        });
        let links = (0..cfg.links)
            .map(|_| Link::new(cfg.link_credit, rng.below(cfg.net_delay + 1)))
            .collect();
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
            socks: Vec::new(),
            conns: Vec::new(),
            conn_of: BTreeMap::new(),
            actors: Vec::new(),
            stats: Stats::default(),
        };
        w.start_programs();
        for host in 0..2 {
            w.at(w.cfg.revoke_every, Ev::Revoke(host));
        }
        if w.cfg.link_failure {
            let link = w.rng.below(w.cfg.links as u64) as usize;
            let when = w.rng.below(20 * (w.cfg.net_delay + w.cfg.think + 10));
            w.at(when, Ev::LinkFails(link));
        }
        w
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
        self.run_until_quiet();
        if let Some(a) = self.actors.iter().position(|a| !a.finished()) {
            self.fail(&format!("deadlock: actor {a} waits for ever"));
        }
        for (host, port) in self.listening() {
            self.at(0, Ev::StopListening(host, port));
        }
        self.run_until_quiet();
        self.check_end();
        self.stats.clone()
    }

    fn run_until_quiet(&mut self) {
        while let Some(Reverse((time, _, ev))) = self.heap.pop() {
            self.now = time;
            self.stats.events += 1;
            if self.stats.events > MOST_EVENTS {
                self.fail("livelock: too many events");
            }
            match ev {
                Ev::Arrive(link, side) => self.arrive(link, side),
                Ev::Transmit(link, side) => self.transmit(link, side),
                Ev::Step(actor) => self.step(actor),
                Ev::ConnectTimer(sid) => self.connect_timer(sid),
                Ev::Close(sid) => self.close(sid),
                Ev::ShutRead(sid) => self.shut_read(sid),
                Ev::AnswerWindow(sid) => self.answer_window(sid),
                Ev::Revoke(host) => self.revoke_some(host),
                Ev::LinkFails(link) => self.link_fails(link),
                Ev::LinkLost(link, side) => self.link_lost(link, side),
                Ev::DropOrphan(sid) => self.drop_orphan(sid),
                Ev::StopListening(host, port) => self.stop_listening(host, port),
            }
        }
    }

    /// Whether anything else than the world's own disturbances is still to come.
    pub fn busy(&self) -> bool {
        self.actors.iter().any(|a| !a.finished()) || self.socks.iter().any(|s| s.in_table)
    }

    // ---- links ------------------------------------------------------------------------------

    fn post(&mut self, link: usize, to: usize, item: Item) {
        let l = &mut self.links[link];
        if !l.up {
            return;
        }
        let delay = self.rng.below(l.delay + 1);
        let when = l.last_arrival[to].max(self.now + delay);
        l.last_arrival[to] = when;
        l.pipe[to].push_back((when, item));
        if l.pipe[to].len() == 1 {
            let delay = when - self.now;
            self.at(delay, Ev::Arrive(link, to));
        }
    }

    /// Posts a WRITE from `side`.
    pub fn post_write(&mut self, link: usize, side: usize, addr: u64, key: u32, from: Source) {
        self.post(link, 1 - side, Item::Write { addr, key, from });
    }

    /// Posts a SEND from `side`. The caller has made sure that there is credit for it.
    pub fn post_send(&mut self, link: usize, side: usize, mut h: Header, payload: Option<Source>) {
        let s = &mut self.links[link].side[side];
        h.link_credit = s.flow.sending();
        if h.kind == Type::LinkCredit {
            s.lone += 1;
            self.stats.lone_link_credits += 1;
        } else {
            self.links[link].side.iter_mut().for_each(|s| s.lone = 0);
        }
        trace!(self, "link {link} {side}: send {h:?}");
        let header = h.encode();
        self.post(link, 1 - side, Item::Send { header, payload });
    }

    fn arrive(&mut self, link: usize, side: usize) {
        let Some((_, item)) = self.links[link].pipe[side].pop_front() else {
            return; // The link has failed.
        };
        if let Some((when, _)) = self.links[link].pipe[side].front() {
            let delay = when - self.now;
            self.at(delay, Ev::Arrive(link, side));
        }
        match item {
            Item::Write { addr, key, from } => self.write_lands(side, addr, key, from),
            Item::Send { header, payload } => {
                let s = &mut self.links[link].side[side];
                if s.posted == 0 {
                    self.fail("the shared receive queue is overrun");
                }
                s.posted -= 1;
                let h = match Header::decode(&header, payload.map_or(0, |p| p.len)) {
                    Ok(h) => h,
                    Err(e) => self.fail(&format!("undecodable: {e:?}")),
                };
                if let Err(e) = s.flow.arrived(h.link_credit) {
                    self.fail(&format!("link credit of {h:?}: {e:?}"));
                }
                self.deliver(link, side, &h, payload);
                self.link_room(link, side);
            }
        }
    }

    /// A WRITE lands: it must stay inside a live lease and off everything that is unread.
    fn write_lands(&mut self, host: usize, addr: u64, key: u32, from: Source) {
        let Some(mr) = self.hosts[host].mr(key).filter(|m| m.valid) else {
            self.fail(&format!(
                "a WRITE with the key {key:#x}, which is not valid"
            ));
        };
        let off = addr.wrapping_sub(mr.addr);
        if off
            .checked_add(u64::from(from.len))
            .is_none_or(|end| end > u64::from(mr.size))
        {
            self.fail(&format!(
                "a WRITE of {} bytes at {off} leaves the lease",
                from.len
            ));
        }
        let (sid, start) = (mr.sock, mr.start + off as usize);
        let off = off as u32;
        let Some(window) = &mut self.socks[sid].window else {
            self.fail("a WRITE into a window that was given back");
        };
        let hit = window.unread.iter().chain(&window.landed).any(|(o, len)| {
            u64::from(*o) < u64::from(off) + u64::from(from.len)
                && u64::from(off) < u64::from(*o) + u64::from(*len)
        });
        window.landed.push_back((off, from.len));
        if hit {
            self.fail(&format!(
                "sock {sid}: a WRITE onto bytes that are not read yet"
            ));
        }
        let to = &mut self.hosts[host].mem[start..start + from.len as usize];
        crate::common::fill_stream(from.key, from.pos, to);
    }

    /// A block is posted again.
    pub fn repost(&mut self, link: usize, side: usize) {
        let s = &mut self.links[link].side[side];
        s.posted += 1;
        assert!(s.posted <= s.blocks);
        s.flow.reposted();
        self.poke(link, side);
    }

    /// There may be more room on the link than before.
    fn link_room(&mut self, link: usize, side: usize) {
        self.poke(link, side);
        if self.links[link].side[side].flow.available(false) > 0 {
            for sid in std::mem::take(&mut self.links[link].side[side].starved) {
                self.socks[sid].starved = false;
                self.wake_writer(sid);
            }
        }
    }

    /// Lets the transmit worker run if it can do anything.
    pub fn poke(&mut self, link: usize, side: usize) {
        let s = &mut self.links[link].side[side];
        let says = !s.pending.is_empty() || !s.answers.is_empty();
        let can = (says && s.flow.available(true) > 0) || s.flow.credit_due();
        if can && s.alive && !s.scheduled {
            s.scheduled = true;
            self.within(self.cfg.worker_delay, Ev::Transmit(link, side));
        }
    }

    fn transmit(&mut self, link: usize, side: usize) {
        self.links[link].side[side].scheduled = false;
        if !self.links[link].side[side].alive {
            return;
        }
        let mut budget = self.rng.range(1, 8);
        while budget > 0 && self.links[link].side[side].flow.available(true) > 0 {
            budget -= 1;
            if let Some(h) = self.links[link].side[side].answers.pop_front() {
                self.post_send(link, side, h, None);
                continue;
            }
            let Some(sid) = self.links[link].side[side].pending.pop_front() else {
                break;
            };
            let s = &mut self.socks[sid];
            s.queued = false;
            if let Some(h) = s.ch.next_control() {
                s.said(&h, &mut self.stats);
                self.post_send(link, side, h, None);
            }
            self.kick(sid);
            self.settle(sid);
        }
        let s = &mut self.links[link].side[side];
        if s.flow.credit_due() {
            if s.flow.available(true) == 0 {
                self.stats.last_credit_used += 1;
            }
            let none = ChanId::default();
            self.post_send(link, side, Header::new(Type::LinkCredit, none, none), None);
            if self.links[link].side[side].lone > 64 {
                self.fail("link credit goes to and fro for ever");
            }
        }
        self.poke(link, side);
    }

    fn link_fails(&mut self, link: usize) {
        if !self.links[link].up || !self.busy() {
            return;
        }
        trace!(self, "link {link} fails");
        self.stats.link_failures += 1;
        let l = &mut self.links[link];
        l.up = false;
        l.pipe.iter_mut().for_each(|p| p.clear());
        let most = 2 * l.delay + 10;
        for side in 0..2 {
            self.within(most, Ev::LinkLost(link, side));
        }
    }

    fn link_lost(&mut self, link: usize, side: usize) {
        trace!(self, "link {link} is lost to side {side}");
        let s = &mut self.links[link].side[side];
        s.alive = false;
        s.pending.clear();
        s.answers.clear();
        s.starved.clear();
        for sid in 0..self.socks.len() {
            let s = &mut self.socks[sid];
            if s.host == side && s.link == link && s.in_table {
                match s.ch.state() {
                    State::Opening => self.stats.connects_lost += 1,
                    _ => self.stats.channels_lost += 1,
                }
                s.queued = false;
                s.starved = false;
                s.ch.abort(Failure::LinkLost);
                self.wake_all(sid);
                self.settle(sid);
            }
        }
    }

    // ---- the end ----------------------------------------------------------------------------

    fn check_end(&mut self) {
        for host in 0..2 {
            if !self.hosts[host].table.is_empty() {
                self.fail(&format!("channels left in the table of host {host}"));
            }
            if self.hosts[host].pool.used() != 0 || self.hosts[host].valid_mrs() != 0 {
                self.fail(&format!("windows left in the pool of host {host}"));
            }
        }
        for link in 0..self.links.len() {
            let l = &self.links[link];
            let quiet = l.pipe.iter().all(|p| p.is_empty())
                && l.side
                    .iter()
                    .all(|s| s.pending.is_empty() && s.answers.is_empty());
            if !quiet {
                self.fail(&format!("link {link} still has something to say"));
            }
            for side in 0..2 {
                let (s, peer) = (&l.side[side], &l.side[1 - side]);
                if s.posted != s.blocks {
                    self.fail(&format!("link {link}: blocks of side {side} are lost"));
                }
                // What the peer may send is what is posted, but for what it is not told yet.
                let known = peer.flow.available(true) + 1;
                let least = s.blocks - (s.blocks / 4).max(1) + 1;
                if l.up && !(least..=s.blocks).contains(&known) {
                    self.fail(&format!("link {link}: credit of side {side}: {known}"));
                }
            }
        }
        for conn in 0..self.conns.len() {
            self.check_conn(conn);
        }
    }

    fn check_conn(&mut self, conn: usize) {
        let c = &self.conns[conn];
        for side in 0..2 {
            let Some(sid) = c.socks[side] else {
                continue;
            };
            let s = &self.socks[sid];
            let peer = c.socks[1 - side].map(|p| &self.socks[p]);
            let reason = match s.ch.failure() {
                None => true,
                Some(Failure::Refused(why)) => side == 0 && c.refused == Some(why),
                Some(Failure::TimedOut) => (side == 0 && c.timed_out) || c.dropped,
                Some(Failure::LinkLost) => !self.links[c.link].up,
                // Only a peer that closed before it had it all breaks the stream.
                Some(Failure::Reset) => {
                    c.dropped
                        || c.unaccepted
                        || c.timed_out
                        || peer.is_some_and(|p| {
                            p.gave_up
                                || p.closed_unread
                                || p.closed_at.is_some_and(|at| at < c.sent[side])
                        })
                }
                Some(_) => false,
            };
            if !reason {
                let why = s.ch.failure();
                self.fail(&format!(
                    "conn {conn} side {side}: no reason to fail: {why:?}"
                ));
            }
            let whole = c.ended[side] && s.ch.failure().is_none();
            if whole && !s.shut_read && !s.scribbler && c.read[side] != c.sent[1 - side] {
                self.fail(&format!(
                    "conn {conn} side {side}: the stream ended at {} of {}",
                    c.read[side],
                    c.sent[1 - side]
                ));
            }
            if c.read[side] > c.sent[1 - side] {
                self.fail(&format!("conn {conn} side {side}: read more than was sent"));
            }
        }
    }

    /// Ends the run with a picture of the world.
    pub fn fail(&self, why: &str) -> ! {
        eprintln!("sim: seed {} at {}: {why}", self.seed, self.now);
        for (n, l) in self.links.iter().enumerate() {
            eprintln!("link {n}: up {} delay {}", l.up, l.delay);
            for (side, s) in l.side.iter().enumerate() {
                eprintln!(
                    "  side {side}: {:?} posted {}/{} pending {:?} answers {} starved {:?} on its way {}",
                    s.flow,
                    s.posted,
                    s.blocks,
                    s.pending,
                    s.answers.len(),
                    s.starved,
                    l.pipe[side].len()
                );
            }
        }
        for (n, h) in self.hosts.iter().enumerate() {
            eprintln!(
                "host {n}: {} channels, {}/{} pages leased",
                h.table.len(),
                h.pool.used(),
                h.pool.pages()
            );
        }
        for (n, a) in self
            .actors
            .iter()
            .enumerate()
            .filter(|(_, a)| !a.finished())
        {
            eprintln!("actor {n}: {a:?}");
        }
        for (n, s) in self.socks.iter().enumerate().filter(|(_, s)| s.in_table) {
            eprintln!(
                "sock {n}: host {} conn {} link {} closed {} queued {} starved {} waits {} segments\n  {:?}",
                s.host, s.conn, s.link, s.closed, s.queued, s.starved, s.rx.len(), s.ch
            );
        }
        panic!("seed {} at {}: {why}", self.seed, self.now);
    }
}
