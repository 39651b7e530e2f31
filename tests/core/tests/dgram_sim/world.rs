// SPDX-License-Identifier: GPL-2.0

//! The world: what there is, and the choice of what happens next.

use zrs_core::dgram::credit::has_room;
use zrs_core::dgram::wire::FRAGMENTS_MAX;
use zrs_core::wire::HEADER_LEN;

use crate::client::{Client, LinkState};
use crate::config::Config;
use crate::oracle::{Fate, Oracle, Tag};
use crate::server::Server;
use crate::stats::Stats;
use common::Rng;

/// The port of a client's first socket.
pub const FIRST_PORT: u16 = 4000;

/// A message on its way.
#[derive(Debug)]
pub struct Packet {
    pub header: [u8; HEADER_LEN],
    pub payload: Vec<u8>,
    /// The datagram that it belongs to; none of a hostile host.
    pub tag: Option<Tag>,
}

/// Storage with `n` empty slots.
pub fn slots<T>(n: usize) -> Vec<Option<T>> {
    (0..n).map(|_| None).collect()
}

pub struct World {
    pub trace: bool,
    pub rng: Rng,
    pub now: u64,
    pub cfg: Config,
    pub clients: Vec<Client>,
    pub server: Server,
    pub oracle: Oracle,
    pub stats: Stats,
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

/// The kinds of events.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Send,
    ToServer,
    ToClient,
    Receive,
    StreamRead,
    LinkUp,
    TogglePort,
    Time,
}

const ALL: [What; 8] = [
    What::Send,
    What::ToServer,
    What::ToClient,
    What::Receive,
    What::StreamRead,
    What::LinkUp,
    What::TogglePort,
    What::Time,
];

impl World {
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let cfg = Config::new(&mut rng);
        let clients = (0..cfg.clients)
            .map(|c| {
                let stream = rng.chance(cfg.streams);
                let hostile = cfg.hostile && c == 0;
                let socks = if hostile { 0 } else { cfg.socks };
                Client::new(socks, cfg.backlog, stream && !hostile)
            })
            .collect();
        Self {
            trace,
            rng,
            now: 0,
            server: Server::new(&cfg),
            cfg,
            clients,
            oracle: Oracle::default(),
            stats: Stats::default(),
        }
    }

    pub fn run(mut self) -> Stats {
        for _ in 0..self.cfg.ports {
            if self.rng.chance(70) {
                self.toggle_port();
            }
        }
        let mut failures: Vec<u64> = (0..self.cfg.link_failures)
            .map(|_| self.rng.below(self.cfg.steps))
            .collect();
        failures.sort_unstable();
        for step in 0..self.cfg.steps {
            self.step();
            while failures.first() == Some(&step) {
                failures.remove(0);
                let c = self.rng.below(self.clients.len() as u64) as usize;
                if matches!(self.clients[c].link, LinkState::Up(_)) {
                    self.stats.links_lost += 1;
                    self.link_lost(c);
                }
            }
        }
        self.settle();
        self.check();
        self.stats
    }

    fn choose(&mut self) -> What {
        let all: u64 = self.cfg.weights.iter().sum();
        let mut at = self.rng.below(all);
        for (what, weight) in ALL.into_iter().zip(self.cfg.weights) {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return what,
            }
        }
        What::Time
    }

    fn step(&mut self) {
        self.stats.events += 1;
        let c = self.rng.below(self.clients.len() as u64) as usize;
        match self.choose() {
            What::Send if self.is_hostile(c) => self.hostile_sends(),
            What::Send => self.program_sends(c),
            What::ToServer => self.serve_server(c),
            What::ToClient => self.serve_client(c),
            What::Receive => self.program_receives(),
            What::StreamRead => self.stream_is_read(c),
            What::LinkUp => self.link_up(c),
            // Rarely, so that datagrams arrive.
            What::TogglePort if self.rng.chance(5) => self.toggle_port(),
            What::TogglePort => {}
            What::Time => self.now += self.rng.below(self.cfg.stall / 4 + 1),
        }
        self.now += 1;
        self.pump_all();
    }

    fn pump_all(&mut self) {
        for c in 0..self.clients.len() {
            self.pump(c);
        }
    }

    fn link_up(&mut self, c: usize) {
        if matches!(self.clients[c].link, LinkState::Making) {
            // Counters wrap.
            let at = self.rng.pick(&[0, u32::MAX - 20]);
            let until = self.now + self.cfg.stall;
            self.clients[c].up(self.cfg.credit, at, until);
            self.server.up(c, self.cfg.credit, at);
        }
    }

    /// Lets everything come to its end.
    fn settle(&mut self) {
        for client in &mut self.clients {
            client.stream = false;
        }
        if self.cfg.hostile {
            // Its messages prove nothing more.
            self.link_lost(0);
        }
        for round in 0.. {
            assert!(round < 20_000, "something never ends");
            let mut busy = false;
            self.program_receives();
            for c in 0..self.clients.len() {
                self.link_up(c);
                self.serve_server(c);
                self.serve_client(c);
                self.stream_is_read(c);
                let client = &self.clients[c];
                let waits = match &client.link {
                    LinkState::Up(up) => !up.line.is_empty(),
                    LinkState::Making => true,
                    LinkState::Down => false,
                };
                let stream_held = self.server.ends[c].as_ref().map_or(0, |e| e.held);
                busy |= waits || stream_held > 0;
                busy |= !client.to_server.is_empty() || !client.to_client.is_empty();
            }
            let mut queues = self.server.socks.iter().flat_map(|s| &s.queue);
            busy |= queues.any(|q| !q.is_empty());
            self.now += 1;
            self.pump_all();
            if !busy {
                break;
            }
        }
        // The next datagram may be a long one.
        for c in 0..self.clients.len() {
            self.clients[c].wants_room(FRAGMENTS_MAX);
            for _ in 0..self.cfg.credit {
                self.serve_server(c);
                self.serve_client(c);
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(self.oracle.open(), 0, "each datagram has a fate");
        let fates = [
            (Fate::DroppedBacklog, &mut self.stats.dropped_backlog),
            (Fate::DroppedStalled, &mut self.stats.dropped_stalled),
        ];
        for (fate, count) in fates {
            *count += self.oracle.count(fate);
        }
        let stalled: u64 = self
            .clients
            .iter()
            .map(|c| u64::from(c.stall.drops()))
            .sum();
        assert_eq!(stalled, self.oracle.count(Fate::DroppedStalled));
        let queues = self.server.socks.iter().flat_map(|s| &s.queue);
        let drops: u64 = queues.clone().map(|q| u64::from(q.drops())).sum();
        // Those of the hostile host are in the statistics alone.
        assert_eq!(drops + self.server.drops, self.stats.dropped_full);
        assert!(self.oracle.count(Fate::DroppedFull) <= self.stats.dropped_full);
        for queue in queues {
            assert_eq!((queue.charged(), queue.len()), (0, 0));
        }
        assert_eq!(self.server.lent, 0, "all blocks are back");
        for (c, client) in self.clients.iter().enumerate() {
            let (LinkState::Up(up), Some(end)) = (&client.link, &self.server.ends[c]) else {
                continue;
            };
            assert_eq!(end.held, 0, "all blocks are posted again");
            let left = up.flow.left_to_us();
            assert!(left >= self.cfg.credit * 3 / 4, "{left} credits");
            assert!(has_room(&up.flow, FRAGMENTS_MAX));
        }
    }
}
