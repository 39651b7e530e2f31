// SPDX-License-Identifier: GPL-2.0

//! An adversary at the other end of a link. It plays the protocol, with the core's own channels, so
//! that it gets far; and now and then it sends false messages, or writes into windows that it was
//! given at unexpected places. The link's honest side must stay within its grants; in the end the
//! link is gone, and nothing of it is left.

use std::collections::VecDeque;

use zrs_core::channel::{Event, Limits, Plan};
use zrs_core::wire::{Header, Type, CHUNK_MAX, HEADER_LEN, SMALL_MAX};
use zrs_core::ChanId;

use crate::link::{Item, Link, Message, Source};
use crate::world::{trace, Ev, World};
use common::parking::Channel;

/// Writable memory: address, key and size.
type Place = (u64, u32, u32);

struct Theirs {
    ch: Channel,
    /// Arrived and not freed: bytes of window and of DATA.
    unread: VecDeque<(u32, u32)>,
}

#[derive(Default)]
pub struct Hostile {
    steps: u32,
    /// Links that it makes after this one.
    lives: u32,
    /// It does not give room back.
    stingy: bool,
    /// It takes more room than it was given.
    greedy: bool,
    numbers: u32,
    chans: Vec<Theirs>,
    /// Some messages of the honest side.
    heard: Vec<Header>,
    /// Windows that it offered, and those offered to it.
    offered: Vec<Place>,
    given: Vec<Place>,
}

impl World {
    /// The adversary connects to a host.
    pub fn make_hostile_link(&mut self, lives: u32) {
        let side = self.rng.below(2) as usize;
        let mut l = Link::new(&self.cfg, &mut self.rng);
        l.last_arrival = [self.now; 2];
        l.hostile = Some(side);
        let link = self.links.len();
        self.links.push(l);
        self.hostile = Some(Hostile {
            steps: self.cfg.hostile_steps,
            lives,
            stingy: self.rng.chance(20),
            greedy: self.rng.chance(30),
            ..Hostile::default()
        });
        if !self.hosts[1 - side].up {
            self.links[link].side[1 - side].alive = false;
            self.fail_link(link);
        }
        self.within(10 * self.cfg.net_delay, Ev::Hostile(link));
    }

    pub fn hostile_step(&mut self, link: usize) {
        let Some(mut hostile) = self.hostile.take() else {
            return;
        };
        if !self.links[link].up {
            if hostile.lives > 0 && self.busy() {
                self.make_hostile_link(hostile.lives - 1);
            }
            return;
        }
        hostile.steps -= 1;
        for _ in 0..self.rng.range(1, 4) {
            self.hostile_act(&mut hostile, link);
        }
        if hostile.steps == 0 {
            // It has had enough, or its host is switched off.
            self.fail_link(link);
        }
        self.within(self.cfg.net_delay.min(100) + 2, Ev::Hostile(link));
        self.hostile = Some(hostile);
    }

    fn hostile_act(&mut self, hostile: &mut Hostile, link: usize) {
        let Some(side) = self.links[link].hostile else {
            return;
        };
        let room = self.links[link].side[side].flow.left_to_us() > 1;
        if !room && !self.rng.chance(2) {
            return;
        }
        let what = self.rng.below(100);
        if what < 10 || hostile.chans.is_empty() {
            if hostile.chans.len() < 20 {
                let limits = self.hostile_limits();
                let id = hostile.new_id();
                let port = self.rng.pick(&[80, 443, 9]);
                let ch = Channel::connect(id, 1, port, limits);
                hostile.take(ch);
            }
            return;
        }
        let n = self.rng.below(hostile.chans.len() as u64) as usize;
        let size = self.rng.range(60_000, 300_000) as u32;
        let (addr, key) = (self.rng.next_u64() >> 1, self.rng.next_u64() as u32);
        let t = &mut hostile.chans[n];
        match what {
            10..45 => {
                let bulk = self.rng.chance(60);
                let most = self.rng.pick(&[100, SMALL_MAX, CHUNK_MAX]);
                let plan = match t.ch.plan(most, bulk) {
                    Plan::Wait => t.ch.plan(most, false),
                    plan => plan,
                };
                let Some(chunk) = t.ch.commit(plan) else {
                    return;
                };
                let from = Source {
                    key: 0,
                    pos: chunk.header.pos,
                    len: chunk.header.len,
                };
                if let Some((addr, key)) = chunk.write_to {
                    // Beyond a window's end the device would refuse; what is announced there is
                    // for the other side to find.
                    let end = addr + u64::from(from.len);
                    let inside = |p: &Place| p.1 == key && end <= p.0 + u64::from(p.2);
                    if hostile.given.iter().any(inside) {
                        self.post_write(link, side, addr, key, from);
                    }
                }
                let payload = chunk.write_to.is_none().then_some(from);
                self.hostile_send(hostile, link, chunk.header, payload);
            }
            45..70 => {
                if let Some(h) = t.ch.next_control() {
                    self.hostile_send(hostile, link, h, None);
                }
            }
            70..80 => {
                if let Some((window, small)) = t.unread.pop_front() {
                    t.ch.freed(window, small);
                }
            }
            80..84 => {
                t.ch.grant(size, addr, key);
            }
            84..86 => _ = t.ch.revoke(),
            86 => t.ch.shut_write(),
            87 => t.ch.shut(self.rng.chance(50)),
            88..90 => t.ch.deny(),
            90..93 => self.hostile_write(hostile, link, side),
            _ if !self.rng.chance(3 * self.cfg.malice) => {}
            93 => self.flood(hostile, link, side),
            94..97 if !hostile.heard.is_empty() => {
                // A message of the other side, reflected.
                let h = self.rng.pick(&hostile.heard);
                let back = Header {
                    dst: h.src,
                    src: h.dst,
                    ..h
                };
                self.hostile_send(hostile, link, back, None);
            }
            _ => {
                let h = self.false_header(hostile, n);
                self.hostile_send(hostile, link, h, None);
            }
        }
    }

    fn hostile_limits(&mut self) -> Limits {
        Limits {
            msgs: self.rng.pick(&[4, 16, 64]),
            small: self.rng.pick(&[16384, 65536]),
        }
    }

    /// A WRITE into a window that was given, at any place of it.
    fn hostile_write(&mut self, hostile: &Hostile, link: usize, side: usize) {
        if hostile.given.is_empty() {
            return;
        }
        let (addr, key, size) = self.rng.pick(&hostile.given);
        let len = self.rng.range(1, u64::from(size.min(CHUNK_MAX))) as u32;
        let off = self.rng.below(u64::from(size - len) + 1);
        let from = Source {
            key: self.rng.next_u64(),
            pos: 0,
            len,
        };
        self.stats.hostile_writes += 1;
        self.post_write(link, side, addr + off, key, from);
    }

    /// More messages than the other side has room for.
    fn flood(&mut self, hostile: &mut Hostile, link: usize, side: usize) {
        let (none, nobody) = (ChanId::default(), ChanId { index: 900, gen: 9 });
        let kind = self.rng.pick(&[Type::Heartbeat, Type::WindowRequest]);
        let h = match kind {
            Type::Heartbeat => Header::new(kind, none, none),
            _ => Header::new(kind, nobody, nobody),
        };
        let most = 2 * u64::from(self.links[link].side[1 - side].blocks);
        for _ in 0..self.rng.below(most) {
            self.hostile_send(hostile, link, h, None);
        }
    }

    /// Any message for a channel of this link.
    fn false_header(&mut self, hostile: &Hostile, n: usize) -> Header {
        let kinds = common::headers::TYPES;
        let kind = self.rng.pick(&kinds);
        let of = hostile.heard.iter().rev().map(|h| (h.src, h.dst));
        let ids: Vec<_> = of.take(8).collect();
        let (dst, src) = match ids.is_empty() {
            true => (ChanId { index: 1, gen: 1 }, hostile.chans[n].ch.local()),
            false => self.rng.pick(&ids),
        };
        let mut h = Header::new(kind, dst, src);
        h.len = match kind {
            Type::Data => self.rng.range(1, u64::from(SMALL_MAX)) as u32,
            Type::Written => self.rng.range(1, u64::from(CHUNK_MAX)) as u32,
            _ => 0,
        };
        let mut some = || self.rng.pick(&[0, 1, 2, 4096, 65536, 1 << 30, u64::MAX]);
        (h.pos, h.woff, h.arg2) = (some(), some(), some());
        (h.arg0, h.arg1, h.lease) = (some() as u32, some() as u32, some() as u32);
        (h.credit.window, h.credit.small) = (some(), some());
        h
    }

    /// Sends a message, as it is or changed.
    fn hostile_send(
        &mut self,
        hostile: &mut Hostile,
        link: usize,
        mut h: Header,
        payload: Option<Source>,
    ) {
        let Some(side) = self.links[link].hostile else {
            return;
        };
        h.link_credit = self.links[link].side[side].flow.sending();
        let mut m = Message {
            header: h.encode(),
            payload,
        };
        self.stats.hostile_messages += 1;
        if self.rng.chance(self.cfg.malice) {
            self.stats.hostile_changes += 1;
            self.change(&mut h, &mut m);
        }
        let header = Header::decode(&m.header, m.payload.map_or(0, |p| p.len));
        trace!(self, "link {link} {side}: the adversary sends {header:?}");
        if let Ok(h) = header {
            if h.kind == Type::WindowGrant {
                hostile.offered.push((h.arg2, h.arg0, h.arg1));
            }
        }
        self.post_raw(link, side, m);
    }

    /// Makes a message false in one of many ways.
    fn change(&mut self, h: &mut Header, m: &mut Message) {
        let near = self.rng.pick(&[1, u64::MAX, 1 << 20, 1 << 32]);
        match self.rng.below(13) {
            0 => {
                let bit = self.rng.below(8 * HEADER_LEN as u64) as usize;
                m.header[bit / 8] ^= 1 << (bit % 8);
                return;
            }
            1 => {
                m.header
                    .iter_mut()
                    .for_each(|b| *b = self.rng.next_u64() as u8);
                return;
            }
            2 => {
                let len = self.rng.below(u64::from(SMALL_MAX)) as u32;
                m.payload = Some(Source {
                    key: 0,
                    pos: 0,
                    len,
                });
                return;
            }
            // Version, type, flags; reserved bytes.
            12 => {
                let at = self.rng.pick(&[0, 1, 1, 2, 3, 84, 95]);
                m.header[at] = self.rng.below(64) as u8;
                return;
            }
            3 => h.pos = h.pos.wrapping_add(near),
            4 => h.woff = h.woff.wrapping_add(near),
            5 => h.credit.msgs = h.credit.msgs.wrapping_add(near as u32),
            6 => h.credit.small = h.credit.small.wrapping_add(near),
            7 => h.credit.window = h.credit.window.wrapping_add(near),
            8 => h.link_credit = h.link_credit.wrapping_add(near as u32),
            9 => h.kind = self.rng.pick(&common::headers::TYPES),
            10 => h.arg0 = h.arg0.wrapping_add(near as u32),
            // A channel of another peer.
            _ => {
                let sid = self.rng.below(self.socks.len().max(1) as u64) as usize;
                if let Some(s) = self.socks.get(sid) {
                    h.dst = s.id;
                }
            }
        }
        m.header = h.encode();
    }

    /// The honest side's messages and WRITEs: sound, and only where they were allowed.
    pub fn hostile_receives(&mut self, link: usize, item: Item) {
        let Some(mut hostile) = self.hostile.take() else {
            return;
        };
        match item {
            Item::Write { addr, key, from } => {
                let end = addr.checked_add(u64::from(from.len));
                let inside = hostile.offered.iter().any(|(at, k, size)| {
                    *k == key && addr >= *at && end.is_some_and(|e| e <= at + u64::from(*size))
                });
                if !inside {
                    self.fail("a WRITE to where nothing was granted");
                }
            }
            Item::Send(m) => match Header::decode(&m.header, m.payload.map_or(0, |p| p.len)) {
                Ok(h) => self.hostile_hears(&mut hostile, link, &h),
                Err(e) => self.fail(&format!("the honest side says nonsense: {e:?}")),
            },
        }
        self.hostile = Some(hostile);
    }

    fn hostile_hears(&mut self, hostile: &mut Hostile, link: usize, h: &Header) {
        let Some(side) = self.links[link].hostile else {
            return;
        };
        let flow = &mut self.links[link].side[side].flow;
        let _ = flow.arrived(h.link_credit);
        if !hostile.stingy {
            flow.reposted();
        }
        let due = flow.credit_due();
        if hostile.heard.len() < 100 {
            hostile.heard.push(*h);
        }
        if h.kind == Type::Connect {
            let limits = self.hostile_limits();
            match Channel::accept(hostile.new_id(), h, limits) {
                Ok(ch) if self.rng.chance(80) => hostile.take(ch),
                Ok(_) => {}
                Err(e) => self.fail(&format!("{h:?}: {e:?}")),
            }
        } else if h.kind == Type::WindowGrant && h.arg1 != 0 {
            hostile.given.push((h.arg2, h.arg0, h.arg1));
        }
        let mut h = *h;
        if hostile.greedy {
            match h.kind {
                Type::Accept | Type::Connect => {
                    h.arg1 += 1;
                    h.arg2 += 4096;
                }
                Type::WindowGrant if h.arg1 != 0 => h.arg1 += 4096,
                _ => {}
            }
        }
        if let Some(t) = hostile.chans.iter_mut().find(|t| t.ch.local() == h.dst) {
            match t.ch.on_message(&h) {
                Ok(Event::Data) => t.unread.push_back((0, h.len)),
                Ok(Event::Written { pad, .. }) => t.unread.push_back((h.len + pad, 0)),
                _ => {}
            }
        }
        if due && self.rng.chance(90) {
            let none = ChanId::default();
            let h = Header::new(Type::LinkCredit, none, none);
            self.hostile_send(hostile, link, h, None);
        }
    }
}

impl Hostile {
    fn new_id(&mut self) -> ChanId {
        self.numbers += 1;
        ChanId {
            index: self.numbers,
            gen: 7,
        }
    }

    fn take(&mut self, ch: Channel) {
        self.chans.push(Theirs {
            ch,
            unread: VecDeque::new(),
        });
    }
}
