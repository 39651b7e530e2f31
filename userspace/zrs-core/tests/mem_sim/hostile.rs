// SPDX-License-Identifier: GPL-2.0

//! A hostile requester. It knows all keys, asks for grants with them as everybody does, and then does with its queue pairs
//! whatever it likes.

use zrs_core::mem::id::Key;
use zrs_core::mem::payload::extents;
use zrs_core::mem::rights::Rights;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as Wire, Type};
use zrs_core::wire::HEADER_LEN;

use crate::host::{node_of, HOSTS};
use crate::link::{Item, Origin};
use crate::serve::Reply;
use crate::world::World;

#[derive(Default)]
pub struct Hostile {
    /// Remote keys that it was ever given: link, key, address, length, grant.
    rkeys: Vec<(usize, u32, u64, u64, u32)>,
}

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
        match self.rng.below(24) {
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
                    self.rng.next() as u32
                } else {
                    rkey
                };
                let beyond = u64::from(self.rng.chance(4));
                let n = self.rng.range(1, len);
                let iova = iova + self.rng.below(len - n + 1) + beyond * len;
                let data = (0..n).map(|_| self.rng.next() as u8).collect();
                let item = if self.rng.chance(80) {
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
                    bytes[self.rng.below(HEADER_LEN as u64) as usize] = self.rng.next() as u8;
                }
                let payload = vec![0; self.rng.below(3) as usize];
                self.raw(link, bytes, payload);
            }
            _ => {}
        }
    }

    fn raw(&mut self, link: usize, bytes: [u8; HEADER_LEN], payload: Vec<u8>) {
        self.push(link, true, Item::Send(bytes, payload));
    }

    pub fn hostile_receives(&mut self, link: usize, item: &Item) {
        let Item::Send(bytes, payload) = item else {
            return;
        };
        let h = MemHeader::decode(bytes, payload.len() as u32).expect("nodes are honest");
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
