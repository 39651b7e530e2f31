// SPDX-License-Identifier: GPL-2.0

//! Programs: listeners, clients, and for each connected socket one thread that sends and one that
//! receives. Each is an actor that does one step at a time and then thinks, waits, or is done.

use std::collections::VecDeque;

use zrs_core::channel::{Channel, Plan, State};
use zrs_core::wire::SMALL_MAX;

use crate::link::Source;
use crate::ring::{DONE, HELD, READY};
use crate::sock::Sock;
use crate::world::{trace, ActorId, Conn, Ev, SockId, World};

/// What an actor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Open,
    Accept,
    Read,
    Write,
}

#[derive(Debug)]
enum Next {
    /// Goes on after a while.
    Think,
    /// Goes on at once, as soon as anybody else could have done something.
    Soon,
    /// Goes on at this time, or when woken from this.
    Until(u64, Wait),
    Wait(Wait),
    Done,
}

/// What a sender does when it has sent everything.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Shut,
    Close,
    CloseLater,
}

#[derive(Debug)]
struct Writer {
    sid: SockId,
    /// Bytes of each call to come.
    calls: VecDeque<u32>,
    /// Bytes left of this call.
    left: u32,
    bulk: bool,
    nonblocking: bool,
    /// Room was there and pages are being pinned.
    planned: Option<Plan>,
    /// There was no room: it asks by poll() before it tries again.
    poll: bool,
    waits_for_window: bool,
    finish: Finish,
}

#[derive(Debug)]
struct Reader {
    sid: SockId,
    most: u64,
    /// Steps until it makes a ring.
    ring_in: Option<u64>,
    /// Segments that it holds, and until when.
    held: Vec<(u32, u64)>,
    hold_most: usize,
}

#[derive(Debug)]
enum Kind {
    Listener {
        host: usize,
        queue: VecDeque<SockId>,
    },
    Client {
        host: usize,
        port: u16,
        sid: Option<SockId>,
    },
    Writer(Writer),
    Reader(Reader),
    /// Taken out while it runs.
    Running,
    Done,
}

#[derive(Debug)]
pub struct Actor {
    kind: Kind,
    wait: Option<Wait>,
    scheduled: bool,
}

impl Actor {
    pub fn finished(&self) -> bool {
        matches!(self.kind, Kind::Done | Kind::Listener { .. })
    }
}

const PORTS: [u16; 2] = [80, 443];
const NOBODY: u16 = 9;

impl World {
    pub fn start_programs(&mut self) {
        for host in 0..2 {
            for port in PORTS {
                let queue = VecDeque::new();
                let id = self.spawn(Kind::Listener { host, queue });
                self.hosts[host].listeners.insert(port, id);
                if self.rng.chance(self.cfg.listener_closes) {
                    let most = 10 * (self.cfg.think + self.cfg.net_delay + 2);
                    self.within(most, Ev::StopListening(host, port));
                }
            }
        }
        for _ in 0..self.cfg.connections {
            let host = self.rng.below(2) as usize;
            let mut port = self.rng.pick(&PORTS);
            if self.rng.chance(self.cfg.nobody) {
                port = NOBODY;
            }
            let sid = None;
            self.spawn(Kind::Client { host, port, sid });
        }
    }

    fn spawn(&mut self, kind: Kind) -> ActorId {
        self.actors.push(Actor {
            kind,
            wait: None,
            scheduled: true,
        });
        let id = self.actors.len() - 1;
        // Some start together, some late.
        let most = self.rng.pick(&[0, 1, 4]) * (self.cfg.think + self.cfg.net_delay + 1);
        self.within(most, Ev::Step(id));
        id
    }

    /// Wakes an actor that waits for `what`; `None`: whatever it waits for.
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
        let mut kind = std::mem::replace(&mut a.kind, Kind::Running);
        let next = match &mut kind {
            Kind::Listener { host, queue } => self.listener(*host, queue),
            Kind::Client { host, port, sid } => self.client(id, *host, *port, sid),
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
                // A step too many does no harm: it finds what there is.
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
            Kind::Listener { queue, .. } => queue.len(),
            _ => 0,
        }
    }

    pub fn queue_for_accept(&mut self, listener: ActorId, sid: SockId) {
        if let Kind::Listener { queue, .. } = &mut self.actors[listener].kind {
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
        if let Kind::Listener { queue, .. } = kind {
            for sid in queue {
                self.conns[self.socks[sid].conn].unaccepted = true;
                self.socks[sid].ch.shut(true);
                self.close(sid);
            }
        }
    }

    // ---- connecting -------------------------------------------------------------------------

    fn client(&mut self, id: ActorId, host: usize, port: u16, sid: &mut Option<SockId>) -> Next {
        let Some(sid) = *sid else {
            *sid = self.connect(id, host, port);
            return match *sid {
                Some(_) => Next::Wait(Wait::Open),
                None => Next::Done,
            };
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
                self.start_threads(sid);
                Next::Done
            }
        }
    }

    fn connect(&mut self, actor: ActorId, host: usize, port: u16) -> Option<SockId> {
        let alive: Vec<usize> = (0..self.links.len())
            .filter(|l| self.links[*l].side[host].alive)
            .collect();
        if alive.is_empty() {
            return None;
        }
        let link = self.rng.pick(&alive);
        let ours = Sock::limits(self);
        let sid = self.socks.len();
        let id = self.hosts[host].table.insert(|_| sid)?;
        let conn = self.conns.len();
        self.conns.push(Conn {
            key: self.rng.next(),
            link,
            socks: [Some(sid), None],
            sent: [0; 2],
            read: [0; 2],
            ended: [false; 2],
            refused: None,
            timed_out: false,
            dropped: false,
            unaccepted: false,
        });
        self.conn_of.insert((host, id.q, id.gen), conn);
        let ch = Channel::connect(id, 50000, port, ours);
        let mut s = Sock::new(host, conn, 0, link, ch, ours.msgs);
        s.opener = Some(actor);
        self.socks.push(s);
        self.stats.channels += 1;
        self.kick(sid);
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

    /// The socket is connected: its program starts to send and to receive.
    fn start_threads(&mut self, sid: SockId) {
        let total = match self.rng.below(10) {
            0 => 0,
            1 => 1,
            _ => self.rng.below(self.cfg.most_bytes) + 1,
        };
        let mut calls = VecDeque::new();
        let mut rest = total;
        while rest > 0 {
            let n = if self.rng.chance(self.cfg.bulk) {
                let most = self.rng.pick(&[10_000, 600_000]);
                self.rng.range(4097, most)
            } else {
                self.rng.pick(&[1, 17, 500, 4095, 4096])
            };
            calls.push_back(n.min(rest) as u32);
            rest -= n.min(rest);
        }
        let finish = match self.rng.below(100) {
            n if n < self.cfg.early_close / 2 => Finish::Close,
            n if n < self.cfg.early_close => Finish::CloseLater,
            _ => Finish::Shut,
        };
        let writer = Writer {
            sid,
            calls,
            left: 0,
            bulk: false,
            nonblocking: self.rng.chance(self.cfg.nonblocking),
            planned: None,
            poll: false,
            waits_for_window: false,
            finish,
        };
        let writer = self.spawn(Kind::Writer(writer));
        let ring = self.rng.chance(self.cfg.rings);
        let ring_in = ring.then(|| self.rng.pick(&[0, 0, 3]));
        let reader = Reader {
            sid,
            most: self.rng.pick(&[1000, 4096, 65536, 1 << 20]),
            ring_in,
            held: Vec::new(),
            hold_most: self.rng.range(1, 12) as usize,
        };
        let reader = self.spawn(Kind::Reader(reader));
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
    fn thread_done(&mut self, sid: SockId, reads: bool) -> Next {
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

    // ---- sending ----------------------------------------------------------------------------

    fn writer(&mut self, w: &mut Writer) -> Next {
        let sid = w.sid;
        let s = &self.socks[sid];
        if s.closed || s.ch.write_ended() {
            return self.thread_done(sid, false);
        }
        if w.left == 0 {
            let Some(n) = w.calls.pop_front() else {
                return self.sent_all(w);
            };
            w.left = n;
            w.bulk = n > SMALL_MAX;
        }
        let s = &mut self.socks[sid];
        let link = &self.links[s.link].side[s.host];
        if w.poll && !s.ch.writable() {
            self.stats.polls_not_writable += 1;
            return Next::Wait(Wait::Write);
        }
        if link.flow.available(false) == 0 {
            return self.starve(sid);
        }
        let old = w.planned.is_some();
        let plan = match w.planned.take() {
            Some(plan) => plan,
            None => {
                let plan = self.plan(w);
                if plan == Plan::Wait {
                    if w.poll {
                        self.fail(&format!("sock {sid}: writable, but nothing can be sent"));
                    }
                    self.stats.writer_waits += 1;
                    w.poll = w.nonblocking;
                    return if w.poll {
                        Next::Soon
                    } else {
                        Next::Wait(Wait::Write)
                    };
                }
                if self.rng.chance(20) {
                    // Pinning takes its time.
                    w.planned = Some(plan);
                    return Next::Think;
                }
                plan
            }
        };
        w.poll = false;
        let plan = self.maybe_less(plan);
        self.send_chunk(w, plan, old)
    }

    fn plan(&mut self, w: &mut Writer) -> Plan {
        let s = &mut self.socks[w.sid];
        let had_window = s.ch.peer_window_size().is_some();
        let mut plan = s.ch.plan(w.left, w.bulk);
        if plan == Plan::Wait && w.bulk && w.nonblocking {
            plan = s.ch.plan(w.left, false);
        }
        if w.waits_for_window && !had_window {
            self.stats.bulk_writer_moved_on += 1;
        }
        w.waits_for_window = plan == Plan::Wait && had_window;
        self.kick(w.sid);
        plan
    }

    fn starve(&mut self, sid: SockId) -> Next {
        let s = &mut self.socks[sid];
        if !s.starved {
            s.starved = true;
            self.links[s.link].side[s.host].starved.push_back(sid);
        }
        self.stats.link_starved += 1;
        Next::Wait(Wait::Write)
    }

    /// The program's memory may have ended early, or not be pinned in one piece.
    fn maybe_less(&mut self, plan: Plan) -> Plan {
        if !self.rng.chance(10) {
            return plan;
        }
        match plan {
            Plan::Small(n) => Plan::Small(self.rng.range(1, u64::from(n)) as u32),
            Plan::Bulk(n) => Plan::Bulk(self.rng.range(1, u64::from(n)) as u32),
            Plan::Wait => Plan::Wait,
        }
    }

    fn send_chunk(&mut self, w: &mut Writer, plan: Plan, old: bool) -> Next {
        let s = &mut self.socks[w.sid];
        let Some(chunk) = s.ch.commit(plan) else {
            if !old {
                self.fail(&format!("sock {}: {plan:?}, but it does not fit", w.sid));
            }
            // The window is gone meanwhile; what is left is planned anew.
            self.stats.plans_outdated += 1;
            return Next::Soon;
        };
        let (link, host, side) = (s.link, s.host, s.side);
        let c = &mut self.conns[s.conn];
        let h = chunk.header;
        assert_eq!(h.pos, c.sent[side]);
        let from = Source {
            key: c.stream(side),
            pos: h.pos,
            len: h.len,
        };
        c.sent[side] += u64::from(h.len);
        match chunk.write_to {
            Some((addr, key)) => {
                self.stats.bulk_bytes += u64::from(h.len);
                self.post_write(link, host, addr, key, from);
                self.post_send(link, host, h, None);
            }
            None => {
                self.stats.small_bytes += u64::from(h.len);
                self.post_send(link, host, h, Some(from));
            }
        }
        w.left -= h.len;
        if w.left == 0 {
            Next::Think
        } else {
            Next::Soon
        }
    }

    fn sent_all(&mut self, w: &mut Writer) -> Next {
        let sid = w.sid;
        match w.finish {
            Finish::Shut => {
                self.socks[sid].ch.shut_write();
                self.kick(sid);
            }
            Finish::Close => self.close(sid),
            Finish::CloseLater => {
                let most = 10 * (self.cfg.net_delay + self.cfg.think + 1);
                self.within(most, Ev::Close(sid));
            }
        }
        self.thread_done(sid, false)
    }

    // ---- receiving --------------------------------------------------------------------------

    fn reader(&mut self, r: &mut Reader) -> Next {
        let sid = r.sid;
        if self.socks[sid].closed {
            return self.thread_done(sid, true);
        }
        match &mut r.ring_in {
            Some(0) => {
                r.ring_in = None;
                self.make_ring(sid);
            }
            Some(n) => *n -= 1,
            None => {}
        }
        let mut progress = false;
        if self.socks[sid].ring.0.is_some() {
            if self.socks[sid].scribbler && self.rng.chance(20) {
                self.scribble(sid);
            }
            progress |= self.give_back(r);
            progress |= self.take(r);
        }
        let s = &mut self.socks[sid];
        let ring_waits = s.ring.0.is_some()
            && s.rx.indices().any(|i| {
                let ring = s.ring.0.as_ref();
                ring.is_some_and(|ring| ring.cell(i).get() == READY)
            });
        // A program with a ring calls recv() for what the ring does not show, or just so.
        if !ring_waits || self.rng.chance(10) {
            let want = self.rng.range(1, r.most);
            progress |= self.recv(sid, want) > 0;
        }
        if progress {
            return Next::Think;
        }
        let s = &mut self.socks[sid];
        if let Some(first) = r.held.iter().map(|h| h.1).min() {
            return Next::Until(first.max(self.now + 1), Wait::Read);
        }
        if s.rx.readable(&s.ring) {
            return Next::Soon;
        }
        if s.ch.read_ended() || s.shut_read {
            if !s.rx.is_empty() && !s.scribbler {
                self.fail(&format!("sock {sid}: something is left in the queue"));
            }
            self.conns[s.conn].ended[s.side] = true;
            return self.thread_done(sid, true);
        }
        Next::Wait(Wait::Read)
    }

    /// Takes what the ring shows.
    fn take(&mut self, r: &mut Reader) -> bool {
        let s = &mut self.socks[r.sid];
        let Some(ring) = &s.ring.0 else {
            return false;
        };
        let ready: Vec<u32> =
            s.rx.indices()
                .filter(|i| ring.cell(*i).get() == READY)
                .take(r.hold_most.saturating_sub(r.held.len()))
                .collect();
        for index in &ready {
            ring.cell(*index).set(HELD);
            self.stats.ring_segments += 1;
        }
        for index in &ready {
            let until = self.now + self.rng.below(3 * self.cfg.think + 2);
            r.held.push((*index, until));
            if !self.socks[r.sid].scribbler {
                self.check_desc(r.sid, *index);
            }
        }
        !ready.is_empty()
    }

    /// Gives back what was held long enough, in any order.
    fn give_back(&mut self, r: &mut Reader) -> bool {
        let mut any = false;
        while let Some(at) = r.held.iter().rposition(|h| h.1 <= self.now) {
            let (index, _) = r.held.remove(at);
            self.stats.ring_released_out_of_order += u64::from(at != 0);
            let scribbler = self.socks[r.sid].scribbler;
            if !scribbler {
                // Nobody has touched it while it was held.
                self.check_desc(r.sid, index);
            }
            let s = &mut self.socks[r.sid];
            if let Some(ring) = &s.ring.0 {
                if !scribbler {
                    self.conns[s.conn].read[s.side] += u64::from(ring.desc(index).len);
                }
                ring.cell(index).set(DONE);
            }
            any = true;
        }
        if any {
            self.reap(r.sid);
        }
        any
    }

    /// A hostile program writes anything into the ring's state words.
    fn scribble(&mut self, sid: SockId) {
        self.stats.ring_scribbles += 1;
        if let Some(ring) = &self.socks[sid].ring.0 {
            for cell in &ring.state {
                if self.rng.chance(30) {
                    cell.set(self.rng.below(6) as u32);
                }
            }
        }
        self.reap(sid);
    }
}
