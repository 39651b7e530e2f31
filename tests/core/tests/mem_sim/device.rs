// SPDX-License-Identifier: GPL-2.0

//! The devices: remote keys, WRITEs and READs. A WRITE is acknowledged before its bytes are in memory; those are before the
//! next SEND of its queue pair is delivered, before its remote key is invalidated, and before the queue pair is destroyed.

use zrs_core::mem::wire::{MemHeader, Message, Type};
use zrs_core::wire::HEARTBEAT_ASKS;
use zrs_core::Violation;

use crate::link::{Dma, Item, Mr, Origin};
use crate::world::{trace, World};

impl World {
    /// The memory region for an access of the peer of a link.
    fn mr(&self, link: usize, rkey: u32, iova: u64, len: u64) -> Option<&Mr> {
        let mr = self.links[link].mrs.get(&rkey)?;
        let valid = !self.links[link].invalid.contains(&mr.grant);
        let inside = iova >= mr.iova && iova.checked_add(len)? <= mr.iova + mr.len;
        (valid && inside).then_some(mr)
    }

    pub fn arrive_at_node(&mut self, link: usize) {
        let Some(item) = self.links[link].to_node.pop_front() else {
            return;
        };
        if self.is_hostile(self.links[link].node) {
            self.hostile_node_receives(link, item);
            return;
        }
        let hostile = self.is_hostile(self.links[link].requester);
        match item {
            Item::Send(bytes, payload) => {
                self.land_all(link, None);
                self.heard(link);
                let result = match Message::decode(&bytes, payload.len() as u32) {
                    Ok(message @ Message::Mem(h)) => {
                        let expected = self.links[link].ends[1].arrived(&message);
                        expected.and_then(|()| self.node_receives(link, &h, &payload))
                    }
                    Ok(Message::Link(_)) => Ok(()),
                    Err(v) => Err(v),
                };
                if let Err(v) = result {
                    self.violation(link, v);
                }
            }
            Item::Write {
                rkey,
                iova,
                data,
                from,
                tag,
            } => match self
                .mr(link, rkey, iova, data.len() as u64)
                .filter(|m| m.write)
            {
                Some(mr) => {
                    let at = mr.at + (iova - mr.iova);
                    self.links[link].dma.push_back(Dma {
                        rkey,
                        at,
                        data: data.into(),
                        from,
                    });
                    self.push(link, false, Item::Written(tag));
                }
                None if hostile => self.device_error(link),
                None => self.fail(&format!(
                    "link {link}: the device refuses an honest WRITE, {from:?}"
                )),
            },
            Item::HalfWrite { rkey, iova, data } => {
                let mr = self.mr(link, rkey, iova, data.len() as u64);
                let mr = mr.filter(|m| m.write);
                let Some((at, grant)) = mr.map(|m| (m.at + (iova - m.iova), m.grant)) else {
                    self.device_error(link);
                    return;
                };
                let late = self.links[link].invalidating.contains(&grant);
                self.stats.hostile_stalls += 1;
                self.stats.hostile_late_stalls += u64::from(late);
                self.links[link].stalled = Some(rkey);
                self.links[link].dma.push_back(Dma {
                    rkey,
                    at,
                    data: data.into(),
                    from: Origin::Hostile,
                });
            }
            Item::Read {
                rkey,
                iova,
                len,
                tag,
            } => match self.mr(link, rkey, iova, len).filter(|m| m.read) {
                Some(mr) => {
                    let at = (mr.at + (iova - mr.iova)) as usize;
                    let memory = &self.hosts[self.links[link].node].memory;
                    let data = memory[at..at + len as usize].to_vec();
                    self.push(link, false, Item::ReadBack(tag, data));
                }
                None if hostile => self.device_error(link),
                None => self.fail(&format!("link {link}: the device refuses an honest READ")),
            },
            Item::Written(_) | Item::ReadBack(..) => unreachable!(),
        }
    }

    fn device_error(&mut self, link: usize) {
        self.stats.hostile_refused_by_device += 1;
        self.end_down(link, 1);
    }

    fn violation(&mut self, link: usize, v: Violation) {
        if !self.is_hostile(self.links[link].requester) {
            self.fail(&format!(
                "link {link}: an honest peer violates the protocol: {v:?}"
            ));
        }
        trace!(self, "link {link}: violation {v:?}");
        self.stats.hostile_violations += 1;
        self.end_down(link, 1);
    }

    pub fn node_violates(&mut self, link: usize, v: Violation) {
        if !self.is_hostile(self.links[link].node) {
            self.fail(&format!(
                "link {link}: an honest node violates the protocol: {v:?}"
            ));
        }
        trace!(self, "link {link}: the node's violation {v:?}");
        self.stats.hostile_nodes_cut += 1;
        self.end_down(link, 0);
    }

    pub fn arrive_at_requester(&mut self, link: usize) {
        let Some(item) = self.links[link].to_requester.pop_front() else {
            return;
        };
        if self.is_hostile(self.links[link].requester) {
            self.hostile_receives(link, &item);
            return;
        }
        match item {
            Item::Send(bytes, payload) => {
                let result = match Message::decode(&bytes, payload.len() as u32) {
                    Ok(message @ Message::Mem(h)) => {
                        let expected = self.links[link].ends[0].arrived(&message);
                        expected.and_then(|()| self.requester_receives(link, &h, &payload))
                    }
                    Ok(Message::Link(h)) => {
                        if h.arg0 == HEARTBEAT_ASKS {
                            self.beat(link, true, false);
                        }
                        Ok(())
                    }
                    Err(v) => Err(v),
                };
                if let Err(v) = result {
                    self.node_violates(link, v);
                }
            }
            Item::Written(tag) => self.completed(tag, None),
            Item::ReadBack(tag, data) => self.completed(tag, Some(data)),
            Item::Write { .. } | Item::HalfWrite { .. } | Item::Read { .. } => unreachable!(),
        }
    }

    /// A few bytes that were acknowledged get into memory.
    pub fn dma_step(&mut self, link: usize) {
        let n = self.rng.below(self.links[link].dma.len() as u64) as usize;
        let most = self.rng.range(1, 16) as usize;
        self.stats.landed_late += 1;
        self.dma(link, n, most);
    }

    fn dma(&mut self, link: usize, n: usize, most: usize) {
        let node = self.links[link].node;
        let l = &mut self.links[link];
        let dma = &mut l.dma[n];
        let key = l.mrs[&dma.rkey].key;
        let len = most.min(dma.data.len());
        let (at, from) = (dma.at, dma.from);
        let data: Vec<u8> = dma.data.drain(..len).collect();
        dma.at += len as u64;
        if dma.data.is_empty() {
            l.dma.remove(n);
        }
        self.land(node, key, at, &data, from);
    }

    /// All that was acknowledged gets into memory, of one remote key or of the queue pair.
    pub fn land_all(&mut self, link: usize, rkey: Option<u32>) {
        let of = |d: &Dma| rkey.is_none_or(|k| k == d.rkey);
        while let Some(n) = self.links[link].dma.iter().position(of) {
            self.dma(link, n, usize::MAX);
        }
    }

    /// Posts WRITEs of `data` to `addr` by the remote keys of a grant; returns how many.
    pub fn post_writes(
        &mut self,
        link: usize,
        grant: u32,
        addr: u64,
        data: &[u8],
        from: Origin,
        tag: u64,
    ) -> usize {
        let mut n = 0;
        for (rkey, iova, part) in self.split(link, grant, addr, data.len() as u64) {
            let data = data[part.start as usize..part.end as usize].to_vec();
            let item = Item::Write {
                rkey,
                iova,
                data,
                from,
                tag,
            };
            self.push(link, true, item);
            n += 1;
        }
        n
    }

    pub fn post_reads(&mut self, link: usize, grant: u32, addr: u64, len: u64, tag: u64) -> usize {
        let parts = self.split(link, grant, addr, len);
        for (rkey, iova, part) in &parts {
            let item = Item::Read {
                rkey: *rkey,
                iova: *iova,
                len: part.end - part.start,
                tag,
            };
            self.push(link, true, item);
        }
        parts.len()
    }

    /// The remote extents of a range; all of it, unless a node lies.
    pub fn split(
        &self,
        link: usize,
        grant: u32,
        addr: u64,
        len: u64,
    ) -> Vec<(u32, u64, std::ops::Range<u64>)> {
        let mut parts = Vec::new();
        for e in &self.links[link].extents[&grant] {
            // Here RDMA addresses are the owner's.
            let (from, to) = (addr.max(e.iova), (addr + len).min(e.iova + e.len));
            if from < to {
                parts.push((e.rkey, from, from - addr..to - addr));
            }
        }
        parts
    }

    pub fn hello(&mut self, link: usize) {
        let h = MemHeader::hello(self.cfg.asks, self.cfg.grants as u32, 0);
        self.send(link, true, &h, Vec::new());
        let host = &self.hosts[self.links[link].node];
        let pages = host.node.pages();
        let info = zrs_core::mem::payload::NodeInfo {
            node: crate::host::node_of(self.links[link].node),
            incarnation: host.incarnation,
            bytes: u64::from(self.cfg.pages) * crate::host::PAGE,
            free: u64::from(pages.clean + pages.dirty + pages.zeroing) * crate::host::PAGE,
            state: 0,
            page_shift: crate::host::PAGE.trailing_zeros(),
        };
        assert_eq!(h.kind, Type::Hello);
        self.send(link, false, &h, info.encode().to_vec());
    }
}
