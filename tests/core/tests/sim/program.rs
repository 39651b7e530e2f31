// SPDX-License-Identifier: GPL-2.0

//! Programs: listeners, clients, and for each connected socket one thread that sends and one that
//! receives. Each is an actor that does one step at a time and then thinks, waits, or is done.

use std::collections::VecDeque;

use zrs_core::channel::{Channel, Failure, State};

use crate::receiving::Reader;
use crate::sending::Writer;
use crate::sock::Sock;
use crate::world::{trace, ActorId, Conn, Ev, SockId, World};

/// The condition that an actor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Open,
    Accept,
    Read,
    Write,
    /// To go on at all.
    Resume,
}

#[derive(Debug)]
pub enum Next {
    /// Goes on after a while.
    Think,
    /// Goes on at once, as soon as another actor could have run.
    Soon,
    /// Goes on at this time, or when woken from this.
    Until(u64, Wait),
    Wait(Wait),
    Done,
}

/// A program that connects.
#[derive(Debug)]
struct Client {
    port: u16,
    sid: Option<SockId>,
    /// It tries again so often when there is no memory.
    tries: u32,
    failed: bool,
}

#[derive(Debug)]
enum Kind {
    Listener(VecDeque<SockId>),
    Client(Client),
    Writer(Writer),
    Reader(Reader),
    /// Taken out while it runs.
    Running,
    Done,
}

#[derive(Debug)]
pub struct Actor {
    pub host: usize,
    kind: Kind,
    wait: Option<Wait>,
    scheduled: bool,
}

impl Actor {
    pub fn finished(&self) -> bool {
        matches!(self.kind, Kind::Done | Kind::Listener(_))
    }

    /// Its host has died.
    pub fn die(&mut self) {
        self.kind = Kind::Done;
        self.wait = None;
    }
}

const PORTS: [u16; 2] = [80, 443];
const NOBODY: u16 = 9;

impl World {
    pub fn start_listeners(&mut self, host: usize) {
        for port in PORTS {
            let id = self.spawn(host, Kind::Listener(VecDeque::new()));
            self.hosts[host].listeners.insert(port, id);
            if self.rng.chance(self.cfg.listener_closes) {
                let most = 10 * (self.cfg.think + self.cfg.net_delay + 2);
                self.within(most, Ev::StopListening(host, port));
            }
        }
    }

    pub fn start_clients(&mut self) {
        for _ in 0..self.cfg.connections {
            let host = self.rng.below(2) as usize;
            self.start_client(host);
        }
    }

    pub fn start_client(&mut self, host: usize) {
        let mut port = self.rng.pick(&PORTS);
        if self.rng.chance(self.cfg.nobody) {
            port = NOBODY;
        }
        let client = Client {
            port,
            sid: None,
            tries: self.rng.below(6) as u32,
            failed: false,
        };
        self.spawn(host, Kind::Client(client));
    }

    fn spawn(&mut self, host: usize, kind: Kind) -> ActorId {
        self.actors.push(Actor {
            host,
            kind,
            wait: None,
            scheduled: true,
        });
        let id = self.actors.len() - 1;
        // Some start together, some late.
        let times = self.rng.pick(&[0, 1, 4, 20]);
        let most = times * (self.cfg.think + self.cfg.net_delay + 1);
        self.within(most, Ev::Step(id));
        id
    }

    /// Wakes an actor that waits for `what`; `None`: any wait.
    pub fn wake(&mut self, actor: Option<ActorId>, what: Option<Wait>) {
        let Some(id) = actor else {
            return;
        };
        let a = &mut self.actors[id];
        let waits = a.wait.is_some_and(|w| what.is_none_or(|what| what == w));
        if waits && !a.scheduled {
            a.scheduled = true;
            self.within(2, Ev::Step(id));
        }
    }

    pub fn step(&mut self, id: ActorId) {
        let a = &mut self.actors[id];
        a.scheduled = false;
        a.wait = None;
        let host = a.host;
        let mut kind = std::mem::replace(&mut a.kind, Kind::Running);
        let next = match &mut kind {
            Kind::Listener(queue) => self.listener(host, queue),
            Kind::Client(c) => self.client(id, host, c),
            Kind::Writer(w) => self.writer(w),
            Kind::Reader(r) => self.reader(r),
            Kind::Running | Kind::Done => Next::Done,
        };
        let a = &mut self.actors[id];
        a.kind = kind;
        match next {
            Next::Think => {
                a.scheduled = true;
                self.within(self.cfg.think, Ev::Step(id));
            }
            Next::Soon => {
                a.scheduled = true;
                self.within(2, Ev::Step(id));
            }
            Next::Until(when, wait) => {
                // A superfluous step does no harm.
                a.wait = Some(wait);
                let delay = when.saturating_sub(self.now);
                self.at(delay, Ev::Step(id));
            }
            Next::Wait(wait) => a.wait = Some(wait),
            Next::Done => a.kind = Kind::Done,
        }
    }

    // ---- listening --------------------------------------------------------------------------

    fn listener(&mut self, host: usize, queue: &mut VecDeque<SockId>) -> Next {
        let Some(sid) = queue.pop_front() else {
            return Next::Wait(Wait::Accept);
        };
        trace!(self, "host {host}: accept sock {sid}");
        self.start_threads(sid);
        Next::Think
    }

    pub fn backlog_of(&self, listener: ActorId) -> usize {
        match &self.actors[listener].kind {
            Kind::Listener(queue) => queue.len(),
            _ => 0,
        }
    }

    pub fn queue_for_accept(&mut self, listener: ActorId, sid: SockId) {
        if let Kind::Listener(queue) = &mut self.actors[listener].kind {
            queue.push_back(sid);
        }
        self.wake(Some(listener), Some(Wait::Accept));
    }

    pub fn listening(&self) -> Vec<(usize, u16)> {
        (0..2)
            .flat_map(|h| self.hosts[h].listeners.keys().map(move |p| (h, *p)))
            .collect()
    }

    pub fn stop_listening(&mut self, host: usize, port: u16) {
        let Some(id) = self.hosts[host].listeners.remove(&port) else {
            return;
        };
        self.stats.listeners_closed += 1;
        let kind = std::mem::replace(&mut self.actors[id].kind, Kind::Done);
        if let Kind::Listener(queue) = kind {
            for sid in queue {
                self.conns[self.socks[sid].conn].unaccepted = true;
                self.socks[sid].ch.shut(true);
                self.close(sid);
            }
        }
    }

    // ---- connecting -------------------------------------------------------------------------

    fn client(&mut self, id: ActorId, host: usize, c: &mut Client) -> Next {
        let Some(sid) = c.sid else {
            c.sid = self.connect(id, host, c.port);
            if c.sid.is_some() {
                // It may have failed already.
                return Next::Soon;
            }
            if c.tries == 0 {
                return Next::Done;
            }
            c.tries -= 1;
            c.failed = true;
            return Next::Think;
        };
        let s = &mut self.socks[sid];
        if s.closed {
            return Next::Done;
        }
        match (s.ch.state(), s.ch.failure()) {
            (State::Opening, None) => Next::Wait(Wait::Open),
            (_, Some(_)) => {
                self.close(sid);
                Next::Done
            }
            _ => {
                self.stats.opened_after_all += u64::from(c.failed);
                self.start_threads(sid);
                Next::Done
            }
        }
    }

    /// connect(): None when there is no memory or no number for the channel.
    fn connect(&mut self, actor: ActorId, host: usize, port: u16) -> Option<SockId> {
        if self.no_memory(host) {
            return None;
        }
        let ours = Sock::limits(self);
        let sid = self.socks.len();
        let connect = |id| Channel::connect(id, 50000, port, ours);
        let mut ch = self.hosts[host].submit(sid, connect)?;
        let Some(link) = self.link_for(host) else {
            ch.free();
            return None;
        };
        let key = self.rng.next_u64();
        let hostile = self.links[link].hostile.is_some();
        let conn = self.conns.len();
        self.conns
            .push(Conn::new(key, link, [Some(sid), None], hostile));
        let mut s = Sock::new(host, conn, 0, link, ch, ours);
        s.opener = Some(actor);
        s.port = port;
        self.socks.push(s);
        self.attach(sid);
        if self.rng.chance(self.cfg.timers) {
            let most = 4 * (self.cfg.net_delay + self.cfg.worker_delay + 2);
            self.within(most, Ev::ConnectTimer(sid));
        }
        if self.rng.chance(self.cfg.early_close / 4) {
            let most = 4 * (self.cfg.net_delay + 2);
            self.within(most, Ev::Close(sid));
        }
        Some(sid)
    }

    /// Puts a channel on its link to open it.
    fn attach(&mut self, sid: SockId) {
        let s = &self.socks[sid];
        let (host, conn, link, id) = (s.host, s.conn, s.link, s.id);
        if self.no_memory(host) {
            self.no_resources(sid);
            return;
        }
        self.conn_of.insert((link, host, id.index, id.gen), conn);
        self.stats.channels += 1;
        self.kick(sid);
    }

    /// The link of a socket that is connecting went down: once more on another one.
    pub fn connect_again(&mut self, sid: SockId) {
        self.stats.connects_again += 1;
        let s = &mut self.socks[sid];
        s.retried = true;
        let (host, port, old) = (s.host, s.port, s.conn);
        self.conns[old].socks[0] = None;
        let ours = Sock::limits(self);
        let connect = |id| Channel::connect(id, 50000, port, ours);
        let mut entry = self.hosts[host].submit(sid, connect);
        let link = match entry {
            Some(_) => self.link_for(host),
            None => None,
        };
        let (Some(_), Some(link)) = (&entry, link) else {
            if let Some(mut entry) = entry.take() {
                entry.free();
            }
            let s = &mut self.socks[sid];
            s.ch = s.ch.without(connect(s.id));
            self.conns[old].socks[0] = Some(sid);
            self.no_resources(sid);
            return;
        };
        let hostile = self.links[link].hostile.is_some();
        let key = self.rng.next_u64();
        let conn = self.conns.len();
        self.conns
            .push(Conn::new(key, link, [Some(sid), None], hostile));
        let s = &mut self.socks[sid];
        (s.conn, s.link) = (conn, link);
        if let Some(entry) = entry {
            s.id = entry.local();
            s.ch = entry;
        }
        s.new_rx(ours);
        s.in_table = true;
        self.attach(sid);
    }

    /// There is no memory for a channel that should open.
    fn no_resources(&mut self, sid: SockId) {
        let s = &mut self.socks[sid];
        s.ch.abort(Failure::NoResources);
        self.conns[s.conn].no_memory = true;
        self.stats.connects_without_memory += 1;
        self.settle(sid);
        self.wake_all(sid);
    }

    /// The socket is connected: its program starts to send and to receive.
    fn start_threads(&mut self, sid: SockId) {
        let writer = self.new_writer(sid);
        let host = self.socks[sid].host;
        let writer = self.spawn(host, Kind::Writer(writer));
        let reader = self.new_reader(sid);
        let ring = reader.has_ring();
        let reader = self.spawn(host, Kind::Reader(reader));
        self.socks[sid].writer = Some(writer);
        self.socks[sid].reader = Some(reader);
        self.socks[sid].scribbler = ring && self.rng.chance(self.cfg.scribblers);
        let most = 100 * (self.cfg.think + self.cfg.net_delay + 2);
        if self.socks[sid].scribbler || self.rng.chance(self.cfg.early_close / 4) {
            self.within(most, Ev::Close(sid));
        }
        if self.rng.chance(self.cfg.shut_read) {
            self.within(most, Ev::ShutRead(sid));
        }
    }

    /// One thread of a program has come to its end; with the other, the socket is closed.
    pub fn thread_done(&mut self, sid: SockId, reads: bool) -> Next {
        let s = &mut self.socks[sid];
        if reads {
            s.reader = None;
        } else {
            s.writer = None;
        }
        if s.reader.is_none() && s.writer.is_none() && !s.closed {
            self.within(self.cfg.think, Ev::Close(sid));
        }
        Next::Done
    }
}
