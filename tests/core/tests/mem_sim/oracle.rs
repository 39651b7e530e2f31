// SPDX-License-Identifier: GPL-2.0

//! An onlooker who knows every region, key and operation, and holds all parties to what they have promised.

use std::collections::{BTreeMap, BTreeSet};

use zrs_core::mem::id::Key;

use crate::link::Origin;
use crate::world::World;

/// A region: host, incarnation of its node, number, generation.
pub type RegionId = (usize, u64, u32, u32);

pub struct RegionInfo {
    /// Pieces of the host's memory.
    pub pieces: Vec<(u64, u64)>,
    pub va: u64,
    /// Writers that may be at work. Those whose end is not known stay.
    pub writers: BTreeSet<Origin>,
    /// Grows whenever a writer begins or ends.
    pub changes: u64,
}

/// A key that a program knows.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub host: usize,
    pub incarnation: u64,
    pub key: Key,
    pub va: u64,
    pub len: u64,
    /// The broker that has allocated it.
    pub via: Option<usize>,
}

impl Known {
    pub fn region(&self) -> RegionId {
        (self.host, self.incarnation, self.key.region, self.key.gen)
    }
}

#[derive(Default)]
pub struct Oracle {
    pub regions: BTreeMap<RegionId, RegionInfo>,
    /// The key that each key was derived from, by their secrets.
    pub parents: BTreeMap<u64, u64>,
    freed: BTreeSet<RegionId>,
    sealed: BTreeSet<RegionId>,
    revoked: BTreeSet<u64>,
    over: BTreeSet<Origin>,
}

impl Oracle {
    pub fn line(&self, secret: u64) -> Vec<u64> {
        let up = |s: &u64| self.parents.get(s).copied();
        std::iter::successors(Some(secret), up).collect()
    }

    /// An operation has been reported as over: no byte of it lands from now on.
    pub fn is_over(&mut self, from: Origin) {
        self.over.insert(from);
    }

    pub fn is_freed(&mut self, region: RegionId) {
        self.freed.insert(region);
        self.regions.remove(&region);
    }

    pub fn is_sealed(&mut self, region: RegionId) {
        self.sealed.insert(region);
    }

    pub fn is_revoked(&mut self, secret: u64) {
        self.revoked.insert(secret);
    }

    pub fn writer(&mut self, region: RegionId, who: Origin, begins: bool) {
        if let Some(r) = self.regions.get_mut(&region) {
            r.changes += 1;
            if begins {
                r.writers.insert(who);
            } else {
                r.writers.remove(&who);
            }
        }
    }

    /// The number of changes, if nobody but `who` writes.
    pub fn alone(&self, region: RegionId, who: Option<Origin>) -> Option<u64> {
        let r = self.regions.get(&region)?;
        r.writers
            .iter()
            .all(|w| Some(*w) == who)
            .then_some(r.changes)
    }
}

impl World {
    /// Bytes land in the memory of a host, in the region of a key.
    pub fn land(&mut self, host: usize, key: Key, at: u64, data: &[u8], from: Origin) {
        let region = (host, self.hosts[host].incarnation, key.region, key.gen);
        let o = &self.oracle;
        let why = match () {
            () if o.freed.contains(&region) => "after the free",
            () if o.sealed.contains(&region) => "after the seal",
            () if o.line(key.secret).iter().any(|s| o.revoked.contains(s)) => {
                "after the revocation"
            }
            () if o.over.contains(&from) => "after the end of its operation",
            () => match o.regions.get(&region) {
                None => "in no region",
                Some(r) if inside(r, at, data.len() as u64) => "",
                Some(_) => "outside its region",
            },
        };
        if !why.is_empty() {
            self.fail(&format!("a byte of {from:?} lands {why}: {region:?}"));
        }
        self.stats.bytes_landed += data.len() as u64;
        if from == Origin::Hostile {
            self.stats.hostile_writes_landed += 1;
        }
        let at = at as usize;
        self.hosts[host].memory[at..at + data.len()].copy_from_slice(data);
    }

    /// The bytes of a region.
    pub fn contents(&self, region: RegionId, off: u64, len: u64) -> Vec<u8> {
        let all = self.oracle.regions[&region]
            .pieces
            .iter()
            .flat_map(|(at, len)| *at..at + len);
        let memory = &self.hosts[region.0].memory;
        all.skip(off as usize)
            .take(len as usize)
            .map(|at| memory[at as usize])
            .collect()
    }

    /// A region has been allocated: it must be zero.
    pub fn new_region(&mut self, host: usize, key: Key, va: u64, len: u64) {
        let incarnation = self.hosts[host].incarnation;
        let node = &mut self.hosts[host].node;
        let range = zrs_core::mem::rights::Range { off: 0, len };
        let hold = node.begin(key, zrs_core::mem::rights::Rights::READ, range, self.now);
        let hold = hold.expect("a new region can be read");
        let pieces: Vec<_> = node.pieces(&hold, range).map(|p| (p.at, p.len)).collect();
        node.end(hold);
        let id = (host, incarnation, key.region, key.gen);
        for r in self
            .oracle
            .regions
            .iter()
            .filter(|r| r.0 .0 == host && r.0 .1 == incarnation)
        {
            let meet =
                r.1.pieces
                    .iter()
                    .any(|a| pieces.iter().any(|b| a.0 < b.0 + b.1 && b.0 < a.0 + a.1));
            assert!(!meet, "regions {id:?} and {:?} meet", r.0);
        }
        let info = RegionInfo {
            pieces,
            va,
            writers: BTreeSet::new(),
            changes: 0,
        };
        self.oracle.regions.insert(id, info);
        let zero = self.contents(id, 0, len).iter().all(|b| *b == 0);
        if !zero {
            self.fail(&format!("the new region {id:?} is not zero"));
        }
    }

    /// The picture of the world, and the end.
    pub fn fail(&self, why: &str) -> ! {
        eprintln!("seed {} at {}: {why}", self.seed, self.now);
        for (n, l) in self.links.iter().enumerate() {
            eprintln!(
                "  link {n} {}->{}: up {:?} broken {} asks {} unanswered {} cached {} granted {} way {}/{} dma {}",
                l.requester,
                l.node,
                l.up,
                l.broken,
                l.asks.open(),
                l.server.open(),
                l.cache.len(),
                l.grants.len(),
                l.to_node.len(),
                l.to_requester.len(),
                l.dma.len()
            );
        }
        for (n, h) in self.hosts.iter().enumerate() {
            eprintln!(
                "  host {n}: up {} regions {} pages {:?} copies {} queue {}",
                h.up,
                h.node.regions(),
                h.node.pages(),
                h.copies.len(),
                h.queue.len()
            );
        }
        panic!("{why}");
    }
}

fn inside(r: &RegionInfo, at: u64, len: u64) -> bool {
    r.pieces.iter().any(|p| p.0 <= at && at + len <= p.0 + p.1)
}
