// SPDX-License-Identifier: GPL-2.0

//! The host that receives: its sockets, and its ends of the links.

use std::net::Ipv4Addr;
use std::ops;

use std::collections::BTreeMap;

use zrs_core::addr::{Addr, Bound, Ip};
use zrs_core::dgram::assembly::{Arrived, Assembly};
use zrs_core::dgram::credit::held_most;
use zrs_core::dgram::lend::{place, whole_blocks, Lending, Place as Where};
use zrs_core::dgram::receivers::{Entry, Place, Receiver, Receivers, Turn};
use zrs_core::dgram::refusals::Refusals;
use zrs_core::dgram::rx_queue::{Datagram, RxQueue, OVERHEAD};
use zrs_core::dgram::wire::{
    Body, DgramHeader, Fragment, Message, PortState, Ports, FEATURE, FRAGMENT, LEN_MAX,
};
use zrs_core::link_flow::LinkFlow;
use zrs_core::ports::{Map, NoMemory};
use zrs_core::wire::{Header, Type, HEARTBEAT_ASKS};
use zrs_core::{ChanId, Violation};

use crate::config::Config;
use crate::oracle::{Fate, Tag};
use crate::world::{slots, trace, Packet, World, FIRST_PORT};

/// The address of a client, and that of the server.
pub fn client_ip(c: usize) -> Ip {
    Ipv4Addr::new(10, 0, 0, c as u8 + 1).into()
}

pub fn server_ip() -> Ip {
    Ipv4Addr::new(10, 0, 0, 100).into()
}

pub struct Sorted<K, V>(BTreeMap<K, V>);

impl<K: Ord + Copy, V: Copy> Map<K, V> for Sorted<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    fn first(&self, from: ops::Bound<&K>) -> Option<(K, V)> {
        let mut from = self.0.range((from, ops::Bound::Unbounded));
        from.next().map(|(k, v)| (*k, *v))
    }

    fn insert(&mut self, key: K, value: V) -> Result<(), NoMemory> {
        assert!(self.0.insert(key, value).is_none());
        Ok(())
    }

    fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }
}

type Table = Receivers<Sorted<Place, Entry<usize>>, Sorted<Turn, Place>, usize>;

/// The bytes of a datagram: those in blocks that are lent, and what is behind them.
pub struct Held {
    tag: Option<Tag>,
    blocks: Vec<Vec<u8>>,
    rest: Vec<u8>,
}

impl Held {
    /// A fragment has arrived.
    fn add(&mut self, f: &Fragment, payload: &[u8]) {
        match place(f, self.blocks.len()).expect("it has a place") {
            Where::Block(at) => {
                assert_eq!(payload.len(), FRAGMENT as usize, "older bytes show");
                assert!(self.blocks[at].is_empty(), "it has bytes");
                self.blocks[at] = payload.to_vec();
            }
            Where::Rest(range) => self.rest[range].copy_from_slice(payload),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        [self.blocks.concat(), self.rest.clone()].concat()
    }
}

/// A datagram that is not whole.
pub struct Partial {
    sock: usize,
    held: Held,
}

type Queue = RxQueue<Vec<Option<Datagram<Held>>>>;

pub struct Sock {
    pub port: u16,
    /// `None`: it is closed.
    pub queue: Option<Queue>,
    place: Place,
    /// Its program has mapped receives.
    maps: bool,
}

/// The server's end of a link.
pub struct End {
    pub flow: LinkFlow,
    assembly: Assembly<Partial>,
    refusals: Refusals,
    replies: Vec<DgramHeader>,
    /// The client has asked for credit.
    asked: bool,
    /// Blocks that hold unread bytes of a stream.
    pub held: u32,
}

pub struct Server {
    pub table: Table,
    pub socks: Vec<Sock>,
    pub ends: Vec<Option<End>>,
    lending: Lending,
    /// Blocks that unread datagrams have.
    pub lent: u32,
    /// Drops that closed sockets had counted.
    pub drops: u64,
}

impl Server {
    pub fn new(cfg: &Config) -> Self {
        Self {
            table: Receivers::new(Sorted(BTreeMap::new()), Sorted(BTreeMap::new())),
            socks: Vec::new(),
            ends: (0..cfg.clients).map(|_| None).collect(),
            lending: Lending {
                blocks: cfg.blocks,
                percent: cfg.lend_percent,
                link: cfg.credit,
            },
            lent: 0,
            drops: 0,
        }
    }

    pub fn up(&mut self, c: usize, credit: u32, at: u32) {
        self.ends[c] = Some(End {
            flow: LinkFlow::starting_at(credit, credit, at).expect("enough credit"),
            assembly: Assembly::default(),
            refusals: Refusals::default(),
            replies: Vec::new(),
            asked: false,
            held: 0,
        });
    }

    /// Takes blocks for a datagram, at most `most`.
    fn lend(&mut self, most: u32) -> u32 {
        let Lending {
            blocks,
            percent,
            link,
        } = self.lending;
        let promised = link * self.ends.iter().flatten().count() as u32;
        let got = most.min(self.lending.more(self.lent, promised));
        if got > 0 {
            self.lent += got;
            assert!(100 * self.lent <= blocks * percent, "too many are lent");
            let taken = promised + self.lent;
            assert!(taken + link <= blocks, "no blocks for another link");
        }
        got
    }

    fn is_open(&self, port: u16) -> bool {
        let mut socks = self.socks.iter();
        socks.any(|s| s.port == port && s.queue.is_some())
    }
}

impl World {
    /// A program opens or closes a socket at a port.
    pub fn toggle_port(&mut self) {
        let port = self.rng.below(self.cfg.ports.into()) as u16;
        let server = &mut self.server;
        if !server.is_open(port) {
            let sock = server.socks.len();
            let wild = self.rng.chance(50);
            let ip = if wild { Ip::ANY_V4 } else { server_ip() };
            let receiver = Receiver {
                sock,
                bound: Bound::new(ip, false),
                v6: false,
                remote: None,
                reuse_port: None,
            };
            let place = server.table.insert(0, port, receiver).expect("memory");
            let maps = self.rng.chance(50);
            server.socks.push(Sock {
                port,
                queue: Some(RxQueue::new(slots(self.cfg.slots))),
                place,
                maps,
            });
            return;
        }
        let open = |s: &&mut Sock| s.port == port && s.queue.is_some();
        let sock = server.socks.iter_mut().find(open).expect("it is open");
        server.table.remove(&sock.place);
        let mut queue = sock.queue.take().expect("it is open");
        server.drops += u64::from(queue.drops());
        while let Some(datagram) = queue.pop() {
            if let Some(tag) = datagram.data.tag {
                self.oracle.decided(tag, Fate::Closed);
            }
            self.stats.closed_with_queue += 1;
            self.server.lent -= datagram.data.blocks.len() as u32;
        }
    }

    /// Sends answers and credit, as far as there is room.
    fn server_sends(&mut self, c: usize) {
        let Some(end) = &mut self.server.ends[c] else {
            return;
        };
        let mut post = |header| {
            self.clients[c].to_client.push_back(Packet {
                header,
                payload: Vec::new(),
                tag: None,
            });
        };
        while end.flow.available(true) > 0 {
            let Some(mut reply) = end.replies.pop() else {
                break;
            };
            reply.link_credit = end.flow.sending_control();
            post(reply.encode());
        }
        if end.asked && end.flow.available(true) > 0 {
            end.asked = false;
            let mut h = Header::new(Type::Heartbeat, ChanId::default(), ChanId::default());
            h.link_credit = end.flow.sending_control();
            post(h.encode());
            self.stats.asked += 1;
        }
        while end.flow.credit_due() {
            let mut h = Header::new(Type::LinkCredit, ChanId::default(), ChanId::default());
            h.link_credit = end.flow.sending_control();
            post(h.encode());
        }
    }

    /// A program receives a datagram.
    pub fn program_receives(&mut self) {
        let open: Vec<usize> = (0..self.server.socks.len())
            .filter(|n| self.server.socks[*n].queue.is_some())
            .collect();
        if open.is_empty() {
            return;
        }
        let sock = &mut self.server.socks[self.rng.pick(&open)];
        let (queue, port) = (sock.queue.as_mut().expect("it is open"), sock.port);
        let Some(datagram) = queue.pop() else {
            return;
        };
        if let Some(tag) = datagram.data.tag {
            let from = (
                (0..self.clients.len())
                    .find(|c| client_ip(*c) == datagram.from.ip)
                    .expect("a client"),
                usize::from(datagram.from.port - FIRST_PORT),
            );
            self.oracle
                .received(tag, from, port, &datagram.data.bytes());
            self.stats.received += 1;
            self.stats.received_empty += u64::from(datagram.len == 0);
            self.stats.received_longest += u64::from(datagram.len == LEN_MAX);
        }
        assert_eq!(datagram.to, server_ip());
        assert_eq!(datagram.data.bytes().len(), datagram.len as usize);
        self.server.lent -= datagram.data.blocks.len() as u32;
    }

    /// A program reads a message of a stream.
    pub fn stream_is_read(&mut self, c: usize) {
        if let Some(end) = self.server.ends[c].as_mut().filter(|e| e.held > 0) {
            end.held -= 1;
            end.flow.reposted();
        }
        self.server_sends(c);
    }

    /// A message has arrived at the server.
    pub fn serve_server(&mut self, c: usize) {
        let Some(packet) = self.clients[c].to_server.pop_front() else {
            return;
        };
        if let Err(violation) = self.server_takes(c, &packet) {
            assert!(self.is_hostile(c), "{violation:?} of an honest host");
            trace!(self, "{c}: {violation:?}");
            self.stats.hostile_violations += 1;
            self.link_lost(c);
            return;
        }
        self.server_sends(c);
    }

    fn server_takes(&mut self, c: usize, p: &Packet) -> Result<(), Violation> {
        let message = Message::decode(&p.header, p.payload.len() as u32, FEATURE, true)?;
        let Some(end) = &mut self.server.ends[c] else {
            return Ok(());
        };
        end.flow.arrived(message.link_credit())?;
        let h = match message {
            Message::Stream(h) if h.kind == Type::Data && end.held < held_most(self.cfg.credit) => {
                end.held += 1;
                return Ok(());
            }
            Message::Stream(h) => {
                self.stats.copied += u64::from(h.kind == Type::Data);
                end.asked |= h.kind == Type::Heartbeat && h.arg0 == HEARTBEAT_ASKS;
                end.flow.reposted();
                return Ok(());
            }
            Message::Dgram(h) => h,
        };
        match h.body {
            Body::Datagram(f) => self.fragment_arrived(c, &f, p),
            Body::Probe(ports) => {
                end.flow.reposted();
                self.answer(c, ports);
                Ok(())
            }
            Body::Port(..) => panic!("the decoder takes it for a violation"),
        }
    }

    /// Answers whether a port is open.
    fn answer(&mut self, c: usize, ports: Ports) {
        let state = if self.server.is_open(ports.dst) {
            PortState::Open
        } else {
            PortState::Closed
        };
        let now = self.now * 1_000_000;
        let end = self.server.ends[c].as_mut().expect("its link is up");
        if end.refusals.may_answer(ports, now) {
            end.replies.push(DgramHeader {
                link_credit: 0,
                body: Body::Port(ports.reversed(), state),
            });
            self.stats.hostile_answers += u64::from(self.clients[c].socks.is_empty());
        }
    }

    /// Whether a socket takes the datagram that begins with this fragment.
    fn begin(&mut self, c: usize, f: &Fragment, tag: Option<Tag>) -> Option<Partial> {
        let to = Addr::new(server_ip(), f.ports.dst);
        let from = Addr::new(client_ip(c), f.ports.src);
        let Some(sock) = self.server.table.find(0, to, from, 0) else {
            assert!(!self.server.is_open(f.ports.dst));
            self.stats.nobody += 1;
            if let Some(tag) = tag {
                self.oracle.decided(tag, Fate::Nobody);
            }
            self.answer(c, f.ports);
            return None;
        };
        let receiver = &mut self.server.socks[sock];
        assert_eq!(receiver.port, f.ports.dst);
        let queue = receiver
            .queue
            .as_mut()
            .expect("those in the table are open");
        if !queue.has_room(f.total, self.cfg.rcvbuf) {
            queue.count_drop();
            self.dropped_full(tag);
            return None;
        }
        let whole = if receiver.maps {
            whole_blocks(f.total)
        } else {
            0
        };
        let lent = self.server.lend(whole);
        self.stats.blocks_lent += u64::from(lent);
        self.stats.blocks_short += u64::from(lent < whole);
        Some(Partial {
            sock,
            held: Held {
                tag,
                blocks: vec![Vec::new(); lent as usize],
                rest: vec![0; (f.total - lent * FRAGMENT) as usize],
            },
        })
    }

    fn dropped_full(&mut self, tag: Option<Tag>) {
        if let Some(tag) = tag {
            self.oracle.decided(tag, Fate::DroppedFull);
        }
        self.stats.dropped_full += 1;
    }

    fn fragment_arrived(&mut self, c: usize, f: &Fragment, p: &Packet) -> Result<(), Violation> {
        // The table and the queues are the world's, and so is the link's end.
        let end = self.server.ends[c].as_mut().expect("its link is up");
        let mut assembly = std::mem::take(&mut end.assembly);
        let arrived = assembly.arrived(f, || self.begin(c, f, p.tag));
        let end = self.server.ends[c].as_mut().expect("its link is up");
        // The block is posted again, or an unused one if it is kept.
        end.flow.reposted();
        let add = |held: &mut Held| {
            assert_eq!(held.tag, p.tag, "fragments of one datagram");
            held.add(f, &p.payload);
        };
        let whole = match arrived {
            Ok(Arrived::Whole(mut partial)) => {
                add(&mut partial.held);
                Ok(Some(partial))
            }
            Ok(Arrived::Part(partial)) => {
                add(&mut partial.held);
                Ok(None)
            }
            Ok(Arrived::Dropped) => Ok(None),
            Err(violation) => Err(violation),
        };
        end.assembly = assembly;
        if let Some(partial) = whole? {
            self.datagram_arrived(c, f, partial);
        }
        Ok(())
    }

    fn datagram_arrived(&mut self, c: usize, f: &Fragment, partial: Partial) {
        let Partial { sock, held } = partial;
        let Some(queue) = &mut self.server.socks[sock].queue else {
            self.closed_in_part(held);
            return;
        };
        // Without memory the queue stays as it is.
        if queue.is_short_of_slots() && self.rng.chance(80) {
            queue.move_to(slots(queue.slots() * 2 + 1));
        }
        let datagram = Datagram {
            from: Addr::new(client_ip(c), f.ports.src),
            to: server_ip(),
            len: f.total,
            born: self.now,
            drops: 0,
            peeked: false,
            data: held,
        };
        let before = queue.charged();
        let over = before + u64::from(f.total + OVERHEAD) > self.cfg.rcvbuf.into();
        let full = over && before != 0 || queue.is_short_of_slots();
        let pushed = queue.push(datagram, self.cfg.rcvbuf);
        assert_eq!(pushed.is_err(), full, "SO_RCVBUF");
        if let Err(Datagram { data: held, .. }) = pushed {
            self.stats.full_at_last += 1;
            self.server.lent -= held.blocks.len() as u32;
            self.dropped_full(held.tag);
        }
    }

    fn closed_in_part(&mut self, held: Held) {
        if let Some(tag) = held.tag {
            self.oracle.decided(tag, Fate::Closed);
        }
        self.stats.closed_in_part += 1;
        self.server.lent -= held.blocks.len() as u32;
    }

    /// The server's end of a link is gone, and the partial datagram with it.
    pub fn server_lost_link(&mut self, c: usize, lost: &mut Vec<Tag>) {
        let Some(mut end) = self.server.ends[c].take() else {
            return;
        };
        if let Some(Partial { held, .. }) = end.assembly.give_up() {
            self.stats.lost_in_part += 1;
            self.server.lent -= held.blocks.len() as u32;
            lost.extend(held.tag);
        }
    }
}
