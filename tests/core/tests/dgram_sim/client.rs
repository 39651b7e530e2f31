// SPDX-License-Identifier: GPL-2.0

//! The hosts that send: their sockets, and their ends of the links.

use std::collections::VecDeque;

use zrs_core::dgram::backlog::{Backlog, Waiting};
use zrs_core::dgram::credit::{has_room, Asking};
use zrs_core::dgram::stall::{Stall, Verdict};
use zrs_core::dgram::wire::{
    fragment_count, fragments, Body, DgramHeader, Message, PortState, Ports, FEATURE, FRAGMENTS_MAX,
};
use zrs_core::link_flow::LinkFlow;
use zrs_core::wire::{Header, Type, HEARTBEAT_ASKS};
use zrs_core::ChanId;

use crate::oracle::{Fate, Oracle, Tag};
use crate::world::{slots, trace, Packet, World, FIRST_PORT};

/// A datagram before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pub tag: Tag,
    pub sock: usize,
    pub port: u16,
    pub len: u32,
}

/// A socket.
#[derive(Default)]
pub struct Sock {
    /// Not writable until this time, unless its link calls.
    pub starved_until: Option<u64>,
    /// In a call that blocks, until this time at most.
    pub blocked_until: Option<u64>,
}

/// A client's end of its link that is up.
pub struct Up {
    pub flow: LinkFlow,
    pub asking: Asking,
    pub next_id: u32,
    /// Datagrams that wait for room, in order, and until when.
    pub line: VecDeque<(Outgoing, u64)>,
    /// SENDs that the last message has allowed to a stream that had none left; 0: it had some.
    fresh: u32,
    /// How many of them were posted for datagrams.
    taken: u32,
}

pub enum LinkState {
    Down,
    Making,
    Up(Up),
}

pub struct Client {
    pub socks: Vec<Sock>,
    pub link: LinkState,
    pub backlog: Backlog<Vec<Option<Waiting<Outgoing>>>>,
    pub stall: Stall,
    /// There is a stream.
    pub stream: bool,
    pub to_server: VecDeque<Packet>,
    pub to_client: VecDeque<Packet>,
}

impl Client {
    pub fn new(socks: usize, backlog: usize, stream: bool) -> Self {
        Self {
            socks: (0..socks).map(|_| Sock::default()).collect(),
            link: LinkState::Down,
            backlog: Backlog::new(slots(backlog)),
            stall: Stall::default(),
            stream,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    /// The link is up.
    pub fn up(&mut self, credit: u32, at: u32, until: u64) {
        let flow = LinkFlow::starting_at(credit, credit, at).expect("enough credit");
        let mut up = Up {
            flow,
            asking: Asking::default(),
            next_id: at,
            line: VecDeque::new(),
            fresh: 0,
            taken: 0,
        };
        while let Some(waiting) = self.backlog.pop() {
            up.line.push_back((waiting, until));
        }
        self.link = LinkState::Up(up);
    }

    fn post(up: &mut Up, to_server: &mut VecDeque<Packet>, out: Outgoing) {
        if up.fresh > 0 {
            up.taken += fragment_count(out.len);
            // An eighth of the credit, which is half of what a peer tells of at a time.
            let rest = up.fresh.checked_sub(up.taken).expect("credit");
            assert!(rest >= up.flow.initial() / 8, "{rest} are left to a stream");
        }
        let ports = Ports {
            dst: out.port,
            src: FIRST_PORT + out.sock as u16,
        };
        let bytes = Oracle::bytes(out.tag, out.len);
        let id = up.next_id;
        up.next_id = id.wrapping_add(1);
        for f in fragments(ports, id, out.len) {
            let header = DgramHeader {
                link_credit: up.flow.sending(),
                body: Body::Datagram(f),
            };
            to_server.push_back(Packet {
                header: header.encode(),
                payload: bytes[f.offset as usize..f.end() as usize].to_vec(),
                tag: Some(out.tag),
            });
        }
    }

    /// The next datagram has `n` fragments.
    pub fn wants_room(&mut self, n: u32) {
        if let LinkState::Up(up) = &mut self.link {
            Self::ask(up, &mut self.to_server, n);
        }
    }

    /// A datagram of `n` fragments has found no room: asks for credit, if that is due.
    fn ask(up: &mut Up, to_server: &mut VecDeque<Packet>, n: u32) {
        let lacks = !has_room(&up.flow, n);
        if lacks && up.flow.available(true) > 0 && up.asking.is_due(&up.flow, true) {
            let mut h = Header::new(Type::Heartbeat, ChanId::default(), ChanId::default());
            h.arg0 = HEARTBEAT_ASKS;
            h.link_credit = up.flow.sending_control();
            to_server.push_back(Packet {
                header: h.encode(),
                payload: Vec::new(),
                tag: None,
            });
        }
    }

    fn post_stream(up: &mut Up, to_server: &mut VecDeque<Packet>) {
        let chan = ChanId { index: 1, gen: 1 };
        let mut h = Header::new(Type::Data, chan, chan);
        h.len = 8;
        h.link_credit = up.flow.sending();
        to_server.push_back(Packet {
            header: h.encode(),
            payload: vec![7; 8],
            tag: None,
        });
    }
}

impl World {
    /// A program sends a datagram.
    pub fn program_sends(&mut self, c: usize) {
        let s = self.rng.below(self.cfg.socks as u64) as usize;
        let now = self.now;
        let sock = &mut self.clients[c].socks[s];
        if sock.blocked_until.is_some() || sock.starved_until.is_some_and(|until| now < until) {
            return;
        }
        sock.starved_until = None;
        let blocking = self.rng.chance(self.cfg.blocking);
        let (port, len) = (
            self.rng.below(self.cfg.ports.into()) as u16,
            self.rng.pick(self.cfg.sizes),
        );
        let tag = self.oracle.sent(c, s, port, len);
        let out = Outgoing {
            tag,
            sock: s,
            port,
            len,
        };
        let client = &mut self.clients[c];
        if matches!(client.link, LinkState::Down) {
            client.link = LinkState::Making;
        }
        let stall = self.cfg.stall;
        let LinkState::Up(up) = &mut client.link else {
            while let Some(old) = client.backlog.evict(len) {
                self.oracle.decided(old.tag, Fate::DroppedBacklog);
            }
            client.backlog.push(len, out).expect("room was made");
            self.stats.sent += 1;
            return;
        };
        // Those that wait go first.
        let room = up.line.is_empty() && has_room(&up.flow, fragment_count(len));
        let verdict = client.stall.decide(fragment_count(len), room, now, stall);
        trace!(self, "{c}: {out:?} {verdict:?}");
        if verdict != Verdict::Send {
            Client::ask(up, &mut client.to_server, fragment_count(len));
        }
        match verdict {
            Verdict::Send => {
                self.stats.beside_stream += u64::from(up.fresh > 0);
                Client::post(up, &mut client.to_server, out);
            }
            Verdict::Drop => self.oracle.decided(tag, Fate::DroppedStalled),
            Verdict::Wait { until } if blocking => {
                assert!(until <= now + stall, "no call waits longer");
                up.line.push_back((out, until));
                client.socks[s].blocked_until = Some(until);
                self.stats.waited += 1;
            }
            Verdict::Wait { until } => {
                client.socks[s].starved_until = Some(until);
                // EAGAIN: it was not sent.
                self.oracle.unsend(tag);
                self.stats.would_block += 1;
                return;
            }
        }
        self.stats.sent += 1;
    }

    /// The program of a stream sends: `pace` messages, and as many as there is room for while
    /// datagrams wait.
    fn stream_sends(&mut self, c: usize, pace: &mut u64) {
        let client = &mut self.clients[c];
        let LinkState::Up(up) = &mut client.link else {
            return;
        };
        while client.stream && (*pace > 0 || !up.line.is_empty()) && up.flow.available(false) > 0 {
            Client::post_stream(up, &mut client.to_server);
            *pace = pace.saturating_sub(1);
            self.stats.stream_messages += 1;
        }
    }

    /// Sends what waits, as far as there is room. A datagram that has waited long enough is
    /// dropped.
    pub fn pump(&mut self, c: usize) {
        let now = self.now;
        let mut pace = self.rng.below(self.cfg.pace);
        let stream_first = self.rng.chance(50);
        let client = &mut self.clients[c];
        if let LinkState::Up(up) = &mut client.link {
            let over = |(_, until): &(Outgoing, u64)| now >= *until;
            for (out, _) in up.line.iter().filter(|waiting| over(waiting)) {
                client.stall.give_up();
                client.socks[out.sock].blocked_until = None;
                self.oracle.decided(out.tag, Fate::DroppedStalled);
            }
            up.line.retain(|waiting| !over(waiting));
        }
        // Whose thread runs first has the room.
        if stream_first {
            self.stream_sends(c, &mut pace);
        }
        self.line_sends(c);
        self.stream_sends(c, &mut pace);
        let client = &mut self.clients[c];
        // The link has room again: its starved sockets become writable.
        if let LinkState::Up(up) = &mut client.link {
            let starved = client.socks.iter().any(|s| s.starved_until.is_some());
            if starved && up.line.is_empty() {
                Client::ask(up, &mut client.to_server, FRAGMENTS_MAX);
            }
            if up.line.is_empty() && has_room(&up.flow, FRAGMENTS_MAX) {
                for sock in &mut client.socks {
                    sock.starved_until = None;
                }
            }
        }
        for sock in &client.socks {
            let late = sock.blocked_until.is_some_and(|until| now >= until);
            assert!(!late, "a call waits for too long");
        }
    }

    /// The datagrams that wait are sent, as far as there is room.
    fn line_sends(&mut self, c: usize) {
        let (now, stall) = (self.now, self.cfg.stall);
        let client = &mut self.clients[c];
        let LinkState::Up(up) = &mut client.link else {
            return;
        };
        while let Some((first, _)) = up.line.front().copied() {
            let room = has_room(&up.flow, fragment_count(first.len));
            let n = fragment_count(first.len);
            match client.stall.decide(n, room, now, stall) {
                Verdict::Send => {
                    self.stats.beside_stream += u64::from(up.fresh > 0);
                    Client::post(up, &mut client.to_server, first);
                }
                Verdict::Drop => self.oracle.decided(first.tag, Fate::DroppedStalled),
                Verdict::Wait { .. } => {
                    Client::ask(up, &mut client.to_server, fragment_count(first.len));
                    break;
                }
            }
            up.line.pop_front();
            client.socks[first.sock].blocked_until = None;
        }
    }

    /// A message has arrived at a client.
    pub fn serve_client(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let Some(p) = client.to_client.pop_front() else {
            return;
        };
        let LinkState::Up(up) = &mut client.link else {
            return;
        };
        let decoded = Message::decode(&p.header, p.payload.len() as u32, FEATURE, false);
        let message = decoded.expect("the server keeps the rules");
        let hostile = self.cfg.hostile && c == 0;
        let had_none = client.stream && up.flow.available(false) == 0;
        if up.flow.arrived(message.link_credit()).is_err() {
            // It has sent more than it may.
            assert!(hostile, "the server keeps the credit, too");
            return;
        }
        let fresh = if had_none {
            up.flow.available(false)
        } else {
            0
        };
        (up.fresh, up.taken) = (fresh, 0);
        up.flow.reposted();
        if let (Message::Dgram(h), false) = (message, hostile) {
            let Body::Port(ports, PortState::Closed) = h.body else {
                panic!("{h:?} was not asked for");
            };
            assert!(usize::from(ports.dst - FIRST_PORT) < self.cfg.socks);
            self.stats.refused += 1;
        }
        self.client_credit(c);
        self.pump(c);
    }

    /// Tells the server of room, if that is due.
    fn client_credit(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let LinkState::Up(up) = &mut client.link else {
            return;
        };
        while up.flow.credit_due() {
            let mut h = Header::new(Type::LinkCredit, ChanId::default(), ChanId::default());
            h.link_credit = up.flow.sending_control();
            client.to_server.push_back(Packet {
                header: h.encode(),
                payload: Vec::new(),
                tag: None,
            });
        }
    }

    /// The link is lost, which both ends learn at once; what was on its way is lost with it.
    pub fn link_lost(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let LinkState::Up(up) = &client.link else {
            return;
        };
        let mut lost: Vec<Tag> = up.line.iter().map(|(out, _)| out.tag).collect();
        lost.extend(client.to_server.drain(..).filter_map(|p| p.tag));
        client.to_client.clear();
        client.link = LinkState::Down;
        client.stall.clear(FRAGMENTS_MAX);
        for sock in &mut client.socks {
            *sock = Sock::default();
        }
        self.server_lost_link(c, &mut lost);
        // Several fragments of one datagram may be in the list.
        lost.sort_unstable();
        lost.dedup();
        for tag in lost {
            if self.oracle.sent[&tag].fate == Fate::Open {
                self.oracle.decided(tag, Fate::Lost);
                self.stats.lost_with_link += 1;
            }
        }
    }
}
