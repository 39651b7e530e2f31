// SPDX-License-Identifier: GPL-2.0

//! A hostile host. As a requester it knows all keys, asks for grants with them as everybody does, and then does with its
//! queue pairs whatever it likes; it stops in the middle of a WRITE, and sends again what it has sent before. As a node it
//! answers with lies, twice, or not at all, and sends what nobody has asked for.

use zrs_core::mem::id::Key;
use zrs_core::mem::payload::{extents, RemoteExtent};
use zrs_core::mem::rights::Rights;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message, Op as Wire, Type};
use zrs_core::wire::HEADER_LEN;

use crate::host::{node_of, HOSTS};
use crate::link::{Item, Origin};
use crate::oracle::Known;
use crate::serve::Reply;
use crate::world::World;

#[derive(Default)]
pub struct Hostile {
    /// Remote keys that it was ever given: link, key, address, length, grant.
    rkeys: Vec<(usize, u32, u64, u64, u32)>,
    /// What it has sent, to nodes and to requesters.
    sent: [Vec<(Bytes, Vec<u8>)>; 2],
}

type Bytes = [u8; HEADER_LEN];

impl World {
    pub fn hostile_step(&mut self) {
        let me = HOSTS - 1;
        let to = self.honest();
        if !self.hosts[to].up {
            return;
        }
        let Some(link) = self.connect(me, to) else {
            return;
        };
        self.stats.hostile_steps += 1;
        for l in self.links.iter_mut().filter(|l| l.stalled.is_some()) {
            if self.rng.chance(5) {
                l.stalled = None;
            }
        }
        if self.rng.chance(20) {
            self.hostile_node_step();
            return;
        }
        let k = self.known[..]
            .iter()
            .filter(|k| k.host == to)
            .copied()
            .collect::<Vec<_>>();
        let k = if k.is_empty() {
            None
        } else {
            Some(self.rng.pick(&k))
        };
        let id = self.rng.range(1, 1000) as u32;
        let rkeys = &self.hostile.as_ref().unwrap().rkeys;
        let some = if rkeys.is_empty() {
            None
        } else {
            Some(self.rng.pick(rkeys))
        };
        let here = rkeys.iter().rev().find(|r| r.0 == link).copied();
        let grant = here.map_or(7, |r| r.4);
        match self.rng.below(28) {
            0..=7 => {
                let Some(k) = k else {
                    return;
                };
                let h = MemHeader {
                    key: k.key,
                    rights: self.rng.pick(&[1, 2, 2, 3]),
                    node: node_of(to),
                    ..MemHeader::ask(id, Wire::Open)
                };
                self.raw(link, h.encode(), Vec::new());
            }
            8..=11 => {
                // Somewhere near one that it has or had, on this link or another.
                let r = if self.rng.chance(90) { here } else { some };
                let Some((_, rkey, iova, len, _)) = r else {
                    return;
                };
                let rkey = if self.rng.chance(4) {
                    self.rng.next_u64() as u32
                } else {
                    rkey
                };
                let beyond = u64::from(self.rng.chance(4));
                let n = self.rng.range(1, len);
                let iova = iova + self.rng.below(len - n + 1) + beyond * len;
                let data: Vec<u8> = (0..n).map(|_| self.rng.next_u64() as u8).collect();
                let item = if self.rng.chance(8) {
                    let data = data[..data.len().div_ceil(2)].to_vec();
                    Item::HalfWrite { rkey, iova, data }
                } else if self.rng.chance(80) {
                    Item::Write {
                        rkey,
                        iova,
                        data,
                        from: Origin::Hostile,
                        tag: 0,
                    }
                } else {
                    Item::Read {
                        rkey,
                        iova,
                        len: n,
                        tag: 0,
                    }
                };
                self.push(link, true, item);
            }
            12 if self.rng.chance(30) => {
                self.raw(link, MemHeader::revoked(grant).encode(), Vec::new())
            }
            13 => {
                let h = MemHeader {
                    grant,
                    ..MemHeader::ask(id, Wire::Close)
                };
                self.raw(link, h.encode(), Vec::new());
            }
            14 | 15 => {
                let (addr, len) = here.map_or((0, 1), |r| (r.2, r.3));
                let h = MemHeader {
                    grant,
                    addr: addr + self.rng.below(2) * len,
                    bytes: self.rng.range(1, 2 * len),
                    ..MemHeader::ask(id, Wire::Wrote)
                };
                self.raw(link, h.encode(), Vec::new());
            }
            16..=20 => {
                let Some(k) = k else {
                    return;
                };
                let wire = self.rng.pick(&[
                    Wire::Free,
                    Wire::Seal,
                    Wire::Info,
                    Wire::Get,
                    Wire::Put,
                    Wire::Copy,
                ]);
                let dst = self.known[self.rng.below(self.known.len() as u64) as usize];
                let mut h = MemHeader {
                    key: k.key,
                    node: node_of(to),
                    ..MemHeader::ask(id, wire)
                };
                let mut payload = Vec::new();
                match wire {
                    Wire::Get => (h.addr, h.bytes) = (k.va, self.rng.range(1, k.len.min(4096))),
                    Wire::Put => {
                        h.addr = k.va + self.rng.below(k.len);
                        payload = vec![0xee; self.rng.range(1, 60) as usize];
                    }
                    Wire::Copy => {
                        (h.addr, h.bytes, h.node) =
                            (k.va, self.rng.below(k.len), node_of(dst.host));
                        (h.addr2, h.key2) = (dst.va, dst.key);
                    }
                    _ => {}
                }
                h.len = payload.len() as u32;
                self.raw(link, h.encode(), payload);
            }
            21 if self.rng.chance(20) => {
                for id in 0..70 {
                    let key = k.map_or(Key::default(), |k| k.key);
                    let h = MemHeader {
                        key,
                        ..MemHeader::ask(2000 + id, Wire::Free)
                    };
                    self.raw(link, h.encode(), Vec::new());
                }
            }
            22 if self.rng.chance(20) => {
                let mut bytes = MemHeader::ask(id, self.rng.pick(&Wire::ALL)).encode();
                for _ in 0..self.rng.range(1, 4) {
                    bytes[self.rng.below(HEADER_LEN as u64) as usize] = self.rng.next_u64() as u8;
                }
                let payload = vec![0; self.rng.below(3) as usize];
                self.raw(link, bytes, payload);
            }
            23 if self.rng.chance(30) => self.replay(link, true),
            24 | 25 => {
                let h = MemHeader {
                    flags: self.rng.below(4) as u16,
                    addr: self.rng.below(1 << 40),
                    bytes: self.rng.below(500),
                    arg: self.rng.range(1, 500) as u32,
                    node: node_of(self.rng.below(HOSTS as u64) as usize),
                    ..MemHeader::ask(id, Wire::Alloc)
                };
                self.raw(link, h.encode(), Vec::new());
            }
            26 if self.rng.chance(5) => {
                let h = MemHeader::hello(4, 4, 0);
                self.raw(link, h.encode(), Vec::new());
            }
            _ => {}
        }
    }

    fn raw(&mut self, link: usize, bytes: Bytes, payload: Vec<u8>) {
        self.hostile_sends(link, true, bytes, payload);
    }

    fn hostile_sends(&mut self, link: usize, to_node: bool, bytes: Bytes, payload: Vec<u8>) {
        let sent = &mut self.hostile.as_mut().unwrap().sent[usize::from(to_node)];
        sent.push((bytes, payload.clone()));
        if sent.len() > 20 {
            sent.remove(0);
        }
        self.push(link, to_node, Item::Send(bytes, payload));
    }

    fn replay(&mut self, link: usize, to_node: bool) {
        let sent = &self.hostile.as_ref().unwrap().sent[usize::from(to_node)];
        if !sent.is_empty() {
            let n = self.rng.below(sent.len() as u64) as usize;
            let (bytes, payload) = sent[n].clone();
            self.stats.hostile_replays += 1;
            self.push(link, to_node, Item::Send(bytes, payload));
        }
    }

    /// The programs know some regions of the hostile node, as it has told them.
    pub fn know_hostile_regions(&mut self) {
        let host = HOSTS - 1;
        for _ in 0..if self.is_hostile(host) { 3 } else { 0 } {
            let key = self.hostile_key();
            let known = Known {
                host,
                incarnation: self.hosts[host].incarnation,
                key,
                va: self.rng.below(1 << 40),
                len: self.rng.range(1, self.cfg.region_bytes),
                via: None,
            };
            self.known.push(known);
        }
    }

    fn hostile_key(&mut self) -> Key {
        Key {
            region: self.rng.below(4) as u32,
            gen: self.rng.range(1, 5) as u32,
            secret: self.rng.next_u64(),
        }
    }

    /// The hostile node says something that nobody has asked for.
    fn hostile_node_step(&mut self) {
        let mine = |l: &crate::link::Link| l.node == HOSTS - 1 && l.up[0];
        let links: Vec<_> = (0..self.links.len())
            .filter(|n| mine(&self.links[*n]))
            .collect();
        if links.is_empty() {
            return;
        }
        let link = self.rng.pick(&links);
        let n = self.rng.range(1, 20) as u32;
        let h = match self.rng.below(12) {
            0..=6 => MemHeader::revoke(n),
            7 => MemHeader::hello(n + 4, n, 0),
            8 => MemHeader::answer(n << 6, self.rng.pick(&Wire::ALL), Status::Ok),
            9 => MemHeader::revoked(n),
            10 => MemHeader::ask(n, self.rng.pick(&Wire::ALL)),
            _ => {
                self.replay(link, false);
                return;
            }
        };
        self.hostile_sends(link, false, h.encode(), Vec::new());
    }

    /// Something has arrived at the hostile node.
    pub fn hostile_node_receives(&mut self, link: usize, item: Item) {
        match item {
            Item::Send(bytes, payload) => {
                let h = MemHeader::decode(&bytes, payload.len() as u32);
                let h = h.expect("its requesters are honest");
                if h.kind == Type::Ask {
                    self.hostile_node_answers(link, &h);
                }
            }
            Item::Write { tag, .. } if self.rng.chance(95) => {
                self.push(link, false, Item::Written(tag));
            }
            Item::Read { len, tag, .. } if self.rng.chance(95) => {
                let data = (0..len).map(|_| self.rng.next_u64() as u8).collect();
                self.push(link, false, Item::ReadBack(tag, data));
            }
            _ => self.stats.hostile_nodes_stall += 1,
        }
    }

    fn hostile_node_answers(&mut self, link: usize, ask: &MemHeader) {
        self.stats.hostile_nodes_asked += 1;
        let (mut h, mut payload) = self.likely_answer(ask);
        match self.rng.below(40) {
            0..=3 => {
                self.stats.hostile_nodes_stall += 1;
                return;
            }
            4..=7 => {
                h = MemHeader::answer(h.id, h.op.unwrap(), self.rng.pick(&Status::ALL));
                if h.op == Some(Wire::Copy) {
                    h.bytes = self.rng.below(2 * ask.bytes + 2);
                }
                payload.clear();
            }
            8 => h.bytes = self.rng.below(2 * ask.bytes + 2),
            9 => payload.truncate(payload.len() / 2),
            10 => h.op = Some(self.rng.pick(&Wire::ALL)),
            11 => h.key2 = self.hostile_key(),
            12 => (h.addr, h.grant) = (self.rng.below(1 << 40), 0),
            13 => h.rights = self.rng.below(16) as u32,
            14 => {
                let h = MemHeader {
                    len: payload.len() as u32,
                    ..h
                };
                self.hostile_sends(link, false, h.encode(), payload.clone());
            }
            _ => {}
        }
        h.len = payload.len() as u32 + u32::from(self.rng.chance(1));
        self.hostile_sends(link, false, h.encode(), payload);
    }

    /// What an honest node might say.
    fn likely_answer(&mut self, ask: &MemHeader) -> (MemHeader, Vec<u8>) {
        let op = ask.op.unwrap();
        let mut h = MemHeader::answer(ask.id, op, Status::Ok);
        let mut payload = Vec::new();
        match op {
            Wire::Alloc => {
                (h.addr, h.bytes, h.node) = (ask.addr, ask.bytes, ask.node);
                h.key2 = self.hostile_key();
            }
            Wire::Info => (h.bytes, h.rights) = (ask.bytes, 3),
            Wire::Key => {
                let secret = self.rng.next_u64();
                h.key2 = Key { secret, ..ask.key };
            }
            Wire::Open => {
                let known = self.known.iter().find(|k| k.key == ask.key);
                let (va, len) = known.map_or((0, 100), |k| (k.va, k.len));
                let first = self.rng.range(1, len);
                (h.addr, h.bytes, h.rights) = (va, len, ask.rights);
                h.grant = self.rng.range(1, 200) as u32;
                h.arg = u32::from(self.rng.chance(20));
                let off = u64::from(self.rng.chance(5));
                for (iova, len) in [(va, first), (va + first + off, len - first)] {
                    let rkey = self.rng.next_u64() as u32;
                    let e = RemoteExtent { iova, len, rkey };
                    if len != 0 {
                        payload.extend(e.encode());
                    }
                }
            }
            Wire::Get => payload = vec![0x55; ask.bytes as usize],
            Wire::Copy => h.bytes = ask.bytes,
            _ => {}
        }
        (h, payload)
    }

    pub fn hostile_receives(&mut self, link: usize, item: &Item) {
        let Item::Send(bytes, payload) = item else {
            return;
        };
        let h = match Message::decode(bytes, payload.len() as u32).expect("nodes are honest") {
            Message::Mem(h) => h,
            Message::Link(_) => {
                if self.rng.chance(80) {
                    self.beat(link, true, false);
                }
                return;
            }
        };
        match (h.kind, h.op) {
            (Type::Answer, Some(Wire::Open)) if h.status == Status::Ok => {
                for e in extents(payload, h.bytes).expect("nodes are honest") {
                    let new = (link, e.rkey, e.iova, e.len, h.grant);
                    self.hostile.as_mut().unwrap().rkeys.push(new);
                }
            }
            // It may say so and go on all the same, or not say so.
            (Type::Revoke, _) if self.rng.chance(40) => {
                self.raw(link, MemHeader::revoked(h.grant).encode(), Vec::new());
                let rkeys = &self.hostile.as_ref().unwrap().rkeys;
                let lent = rkeys.iter().find(|r| (r.0, r.4) == (link, h.grant));
                if let Some((_, rkey, iova, ..)) = lent.copied() {
                    if self.rng.chance(50) {
                        let data = vec![0xdd];
                        self.push(link, true, Item::HalfWrite { rkey, iova, data });
                    }
                }
            }
            _ => {}
        }
    }

    /// Where a hostile requester may write, nobody can tell what is there.
    pub fn note_hostile(&mut self, host: usize, reply: Reply, h: &MemHeader) {
        let Reply::Peer { link, .. } = reply else {
            return;
        };
        if !self.is_hostile(self.links[link].requester) {
            return;
        }
        let writes = match h.op {
            Some(Wire::Open) => h.rights & Rights::WRITE.bits() != 0,
            Some(Wire::Put) => true,
            _ => false,
        };
        let (at, key) = match h.op {
            Some(Wire::Copy) => (h.node.node as usize, h.key2),
            _ if writes => (host, h.key),
            _ => return,
        };
        if at < HOSTS {
            let id = (at, self.hosts[at].incarnation, key.region, key.gen);
            self.oracle.writer(id, Origin::Hostile, true);
        }
    }
}
