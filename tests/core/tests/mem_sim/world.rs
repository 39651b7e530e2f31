// SPDX-License-Identifier: GPL-2.0

//! The world: what there is, and the choice of what happens next.

use std::collections::BTreeMap;

use zrs_core::mem::id::Key;
use zrs_core::mem::wire::MemHeader;
use zrs_core::wire::{Header, HEARTBEAT_ASKS};
use zrs_core::ChanId;

use crate::config::Config;
use crate::host::{Host, HOSTS, LINKS_MAX};
use crate::hostile::Hostile;
use crate::link::Link;
use crate::oracle::{Known, Oracle};
use crate::program::Op;
use crate::requester::{Retry, Tag};
use crate::stats::Stats;
use common::Rng;

pub struct World {
    pub seed: u64,
    pub trace: bool,
    pub rng: Rng,
    pub now: u64,
    pub cfg: Config,
    pub hosts: Vec<Host>,
    pub links: Vec<Link>,
    pub ops: BTreeMap<u64, Op>,
    pub tags: BTreeMap<u64, Tag>,
    pub retries: Vec<Retry>,
    /// Copies that got no grant; told to the core when it is not at work.
    pub failed_jobs: Vec<(usize, u32, u64, zrs_core::mem::status::Status)>,
    /// What the programs know; they tell each other everything.
    pub known: Vec<Known>,
    pub oracle: Oracle,
    /// What the waiters of frees, seals and revocations wait for.
    pub ends: BTreeMap<u64, (zrs_core::mem::wire::Op, Key, Key)>,
    /// Host 2 is hostile as a requester.
    pub hostile: Option<Hostile>,
    pub stats: Stats,
    next: u64,
    /// No program begins anything, and nothing goes wrong.
    pub calm: bool,
    /// The hostile node cannot be reached any more.
    pub left_hostile: bool,
    /// What the programs have queued and not taken back.
    pub names: std::collections::BTreeSet<u64>,
}

/// Prints what happens when one seed is traced.
macro_rules! trace {
    ($w:expr, $($arg:tt)*) => {
        if $w.trace {
            eprintln!("{:>6} {}", $w.now, format_args!($($arg)*));
        }
    };
}
pub(crate) use trace;

/// What can happen, besides what programs do.
#[derive(Clone, Copy, Debug)]
pub enum What {
    ToNode(usize),
    ToRequester(usize),
    Dma(usize),
    Registered(usize),
    Invalidated(usize),
    Deregistered(usize),
    Zero(usize),
    Retry(usize),
    /// An end of a broken link learns of it.
    Learn(usize, usize),
}

impl What {
    fn weight(self, w: &[u64; 8]) -> u64 {
        match self {
            Self::ToNode(link) => w[link % 2],
            Self::ToRequester(link) => w[2 + link % 2],
            Self::Dma(_) => w[4],
            Self::Registered(_) | Self::Invalidated(_) | Self::Deregistered(_) => w[5],
            Self::Zero(_) => w[6],
            Self::Retry(_) => 5,
            Self::Learn(..) => w[7].min(5),
        }
    }
}

impl World {
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let cfg = Config::new(&mut rng);
        let hosts = (0..HOSTS).map(|_| Host::new(&cfg, &mut rng)).collect();
        let mut world = Self {
            seed,
            trace,
            rng,
            now: 0,
            hostile: cfg.hostile.then(Hostile::default),
            cfg,
            hosts,
            links: Vec::new(),
            ops: BTreeMap::new(),
            tags: BTreeMap::new(),
            retries: Vec::new(),
            failed_jobs: Vec::new(),
            known: Vec::new(),
            oracle: Oracle::default(),
            ends: BTreeMap::new(),
            stats: Stats::default(),
            next: 0,
            calm: false,
            left_hostile: false,
            names: Default::default(),
        };
        world.know_hostile_regions();
        world
    }

    /// A number that was not used before.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn is_hostile(&self, host: usize) -> bool {
        self.hostile.is_some() && host == HOSTS - 1
    }

    /// Hosts that follow the protocol and serve memory.
    pub fn honest(&mut self) -> usize {
        let n = HOSTS - usize::from(self.hostile.is_some());
        self.rng.below(n as u64) as usize
    }

    pub fn run(mut self) -> Stats {
        for _ in 0..self.cfg.steps {
            self.step();
        }
        self.calm = true;
        self.leave_hostile_node();
        self.come_to_an_end();
        self.check_end();
        self.stats
    }

    fn step(&mut self) {
        self.now += 1;
        self.stats.events += 1;
        if self.rng.chance(self.cfg.busy) {
            match self.rng.below(20) {
                0 => self.trouble(),
                1..=4 if self.hostile.is_some() => self.hostile_step(),
                _ => {
                    let host = self.honest();
                    self.program_step(host);
                }
            }
        } else {
            self.something();
        }
        (0..HOSTS).for_each(|host| self.look_after(host));
    }

    /// One of the things that can happen; false if there is none.
    fn something(&mut self) -> bool {
        let mut can = Vec::new();
        for (n, l) in self.links.iter().enumerate() {
            let all = [
                (
                    l.up[1] && !l.to_node.is_empty() && l.stalled.is_none(),
                    What::ToNode(n),
                ),
                (l.up[0] && !l.to_requester.is_empty(), What::ToRequester(n)),
                (!l.dma.is_empty(), What::Dma(n)),
                (!l.registering.is_empty(), What::Registered(n)),
                (!l.invalidating.is_empty(), What::Invalidated(n)),
                (!l.deregistering.is_empty(), What::Deregistered(n)),
                (l.broken && l.up[0], What::Learn(n, 0)),
                (l.broken && l.up[1], What::Learn(n, 1)),
            ];
            can.extend(all.into_iter().filter(|a| a.0).map(|a| a.1));
        }
        for (n, h) in self.hosts.iter().enumerate() {
            if h.up && h.node.pages().dirty > 0 {
                can.push(What::Zero(n));
            }
        }
        can.extend((0..self.retries.len()).map(What::Retry));
        let total: u64 = can.iter().map(|c| c.weight(&self.cfg.weights)).sum();
        if total == 0 {
            return false;
        }
        let mut at = self.rng.below(total);
        for what in can {
            let weight = what.weight(&self.cfg.weights);
            if at < weight {
                self.happens(what);
                return true;
            }
            at -= weight;
        }
        true
    }

    fn happens(&mut self, what: What) {
        match what {
            What::ToNode(link) => self.arrive_at_node(link),
            What::ToRequester(link) => self.arrive_at_requester(link),
            What::Dma(link) => self.dma_step(link),
            What::Registered(link) => self.registered(link),
            What::Invalidated(link) => self.invalidated(link),
            What::Deregistered(link) => self.deregistered(link),
            What::Zero(host) => self.zero(host),
            What::Retry(n) => {
                let retry = self.retries.swap_remove(n);
                self.retry(retry);
            }
            What::Learn(link, end) => self.end_down(link, end),
        }
    }

    fn zero(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        if let Some(run) = h.node.next_dirty(self.rng.range(1, 8) as u32) {
            let page = crate::host::PAGE as usize;
            let at = run.page as usize * page;
            h.memory[at..at + run.pages as usize * page].fill(0);
            assert!(h.node.zeroed(run));
        }
    }

    /// What a host does by itself: copies, its queue, its timers.
    fn look_after(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        while self.hosts[host].node.expire_one(self.now) {
            self.stats.expired += 1;
        }
        self.revoke_what_ended(host);
        self.tell_quiet(host);
        self.copy_actions(host);
        self.tell_quiet(host);
        self.broker_actions(host);
        self.pump_queue(host);
        self.take_down_overdue(host);
        self.leave_stalled_targets(host);
    }

    /// Programs begin nothing any more; all that is under way ends.
    fn come_to_an_end(&mut self) {
        let revoking = |w: &Self| {
            let mut late = w.links.iter();
            late.any(|l| l.up[1] && l.grants.overdue_ms(0).is_some())
        };
        self.go_on_until(|w| {
            let idle = |h: &Host| h.copies.is_empty() && h.broker.is_idle();
            w.ops.is_empty() && w.hosts.iter().all(idle) && !revoking(w)
        });
    }

    /// Frees of source regions end though a target does not answer. Then nobody waits for a hostile node any more.
    fn leave_hostile_node(&mut self) {
        if self.hostile.is_none() {
            return;
        }
        self.go_on_until(|w| w.hosts.iter().all(|h| h.node.regions() == 0));
        self.left_hostile = true;
        for link in 0..self.links.len() {
            if self.is_hostile(self.links[link].node) {
                self.end_down(link, 0);
            }
        }
    }

    fn close_all(&mut self) {
        for host in 0..HOSTS {
            let mut from = 0;
            while let Some(r) = self.hosts[host].node.list_from(from) {
                self.hosts[host].node.close_region(r.region, r.gen);
                from = r.region + 1;
            }
        }
    }

    fn go_on_until(&mut self, over: impl Fn(&Self) -> bool) {
        for round in 0.. {
            if round > 400 {
                self.fail("it never comes to an end");
            }
            let stalls = self.hostile.is_some() && !self.left_hostile;
            if stalls {
                self.close_all();
            }
            for host in 0..HOSTS {
                self.boot(host);
            }
            let mut steps = 0_u64;
            loop {
                (0..HOSTS).for_each(|host| self.look_after(host));
                if !self.something() {
                    break;
                }
                self.now += 1;
                steps += 1;
                // Whoever has no room for asks to a node that is silent tries again and again.
                if stalls && steps > 2000 {
                    break;
                }
                if steps > 200_000 {
                    self.fail("something goes on for ever");
                }
            }
            if over(self) {
                return;
            }
            // Whoever waits for a peer that does not answer waits no longer.
            self.now += 3000;
        }
    }

    fn check_end(&mut self) {
        // Requesters leave what they have not used for long.
        for link in 0..self.links.len() {
            self.leave_idle(link);
        }
        self.come_to_an_end();
        self.close_all();
        self.come_to_an_end();
        // Kept regions of brokers have a time to live.
        self.now += 10_000;
        self.come_to_an_end();
        for host in 0..HOSTS {
            for node in 0..HOSTS {
                self.hosts[host].broker.end_rule(crate::host::node_of(node));
            }
        }
        self.come_to_an_end();
        for host in 0..HOSTS {
            let h = &self.hosts[host];
            let pages = h.node.pages();
            if h.node.regions() != 0 || pages.clean != self.cfg.pages {
                self.fail(&format!("host {host}: regions or pages are left"));
            }
            if h.memory.iter().any(|b| *b != 0) {
                self.fail(&format!("host {host}: its free memory is not zero"));
            }
            let waiters = h.waiters.len() + h.cancels.len() + h.brokered.len();
            if !h.jobs.is_empty() || waiters != 0 || !h.broker.is_empty() {
                self.fail(&format!("host {host}: something waits for ever"));
            }
            if !h.queue.is_empty() {
                self.fail(&format!("host {host}: operations of the queue are left"));
            }
        }
        for (n, l) in self.links.iter().enumerate() {
            let left = l.grants.len() + l.server.open() * usize::from(l.up[1]);
            if left != 0 || (l.up[0] && l.asks.open() != 0) || !l.waiting.is_empty() {
                self.fail(&format!("link {n}: something is left"));
            }
        }
        if !self.tags.is_empty() {
            self.fail("work requests never completed");
        }
    }

    /// The link from `requester` to the node of `node`, made if there is none.
    pub fn connect(&mut self, requester: usize, node: usize) -> Option<usize> {
        let fits = |l: &Link| l.requester == requester && l.node == node && l.up[0];
        if let Some(link) = self.links.iter().position(fits) {
            return Some(link);
        }
        if !self.hosts[node].up || !self.hosts[requester].up || self.links.len() >= LINKS_MAX {
            return None;
        }
        if self.left_hostile && self.is_hostile(node) {
            return None;
        }
        self.links.push(Link::new(&self.cfg, requester, node));
        let link = self.links.len() - 1;
        trace!(self, "link {link}: {requester} -> {node}");
        self.hosts[node].node.owner_back(requester as u32 + 1);
        self.hosts[node].broker.requester_back(requester as u32 + 1);
        self.hello(link);
        Some(link)
    }

    /// Puts a message into a link, whose sender is honest: it must be well-formed.
    pub fn send(&mut self, link: usize, to_node: bool, h: &MemHeader, payload: Vec<u8>) {
        let h = MemHeader {
            len: payload.len() as u32,
            ..*h
        };
        let bytes = h.encode();
        assert_eq!(MemHeader::decode(&bytes, h.len), Ok(h));
        trace!(
            self,
            "link {link}: {} {h:?}",
            if to_node { "->" } else { "<-" }
        );
        self.push(link, to_node, crate::link::Item::Send(bytes, payload));
    }

    /// Sends a Heartbeat, or the answer to one.
    pub fn beat(&mut self, link: usize, to_node: bool, asks: bool) {
        let none = ChanId::default();
        let mut h = Header::new(zrs_core::wire::Type::Heartbeat, none, none);
        h.arg0 = u32::from(asks) * HEARTBEAT_ASKS;
        self.push(
            link,
            to_node,
            crate::link::Item::Send(h.encode(), Vec::new()),
        );
    }

    pub fn push(&mut self, link: usize, to_node: bool, item: crate::link::Item) {
        let l = &mut self.links[link];
        if !l.broken && l.up[usize::from(!to_node)] {
            let way = if to_node {
                &mut l.to_node
            } else {
                &mut l.to_requester
            };
            way.push_back(item);
        }
    }
}
