// SPDX-License-Identifier: GPL-2.0

//! A host: its memory and node, its copies as a source, and the queue of its program.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use zrs_core::addr::Ip;
use zrs_core::mem::admission::Admission;
use zrs_core::mem::arena::Arena;
use zrs_core::mem::broker::{self, Broker, Rule};
use zrs_core::mem::copy::{Copies, Job, TargetLoad};
use zrs_core::mem::directory::{Directory, Entry};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::keys::KeySlot;
use zrs_core::mem::node::{self, Drain, ExtentEntry, Node, Region, Storage};
use zrs_core::mem::queue::{self, Queue};
use zrs_core::mem::sched::Flow;
use zrs_core::mem::slab::Slot;

use crate::config::Config;
use crate::serve::Reply;
use common::Rng;

pub const PAGE: u64 = 64;
pub const HOSTS: usize = 3;
pub const LINKS_MAX: usize = 400;
/// The admission key of all nodes.
pub const ADMISSION: [u8; 16] = *b"let me in, node!";

pub struct Vecs;

impl Storage for Vecs {
    type Bits = Vec<u64>;
    type Regions = Vec<Slot<Region>>;
    type Extents = Vec<Slot<ExtentEntry>>;
    type Keys = Vec<KeySlot>;
    type Drains = Vec<Slot<Drain>>;
}

pub fn slots<T>(n: usize) -> Vec<Slot<T>> {
    (0..n).map(|_| Slot::EMPTY).collect()
}

/// What the source of a copy knows of it beside the core.
#[derive(Clone)]
pub struct JobInfo {
    pub serial: u64,
    pub dst_node: NodeId,
    pub dst_key: Key,
    pub dst_addr: u64,
    pub reply: Reply,
    /// The link to the target, the place of the grant in its cache, and the number of the grant.
    pub grant: Option<(usize, u32, u32)>,
}

pub struct Host {
    pub up: bool,
    pub incarnation: u64,
    pub memory: Vec<u8>,
    pub node: Node<Vecs>,
    pub copies: Copies<Vec<Slot<Job>>, Vec<TargetLoad>, Vec<Flow>>,
    pub jobs: BTreeMap<u32, JobInfo>,
    pub directory: Directory<Vec<Entry>>,
    pub queue: Queue<Vec<Slot<queue::Entry>>>,
    /// Operations of the queue by their places.
    pub queued: BTreeMap<u32, u64>,
    /// Asks that wait until a region or key is quiet, by waiter.
    pub waiters: BTreeMap<u64, Reply>,
    /// CANCELs that wait for the end of a job, by its serial number.
    pub cancels: Vec<(u64, Reply)>,
    pub broker: Broker<Vec<Option<Rule>>, Vec<Slot<broker::Entry>>>,
    /// Asks of others that the broker answers, by its tokens.
    pub brokered: BTreeMap<u64, Reply>,
}

pub fn node_of(host: usize) -> NodeId {
    NodeId {
        domain: 1,
        node: host as u32,
    }
}

pub fn address_of(host: usize) -> Ip {
    Ip::new(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host as u16 + 1), 0)
}

impl Host {
    pub fn new(cfg: &Config, rng: &mut Rng) -> Self {
        let incarnation = rng.next_u64();
        let words = Arena::<Vec<u64>>::words(cfg.pages);
        let mut directory = Directory::new(vec![Entry::EMPTY; 8], 1);
        for host in (0..HOSTS).filter(|_| !rng.chance(cfg.unknown)) {
            directory.set(node_of(host), address_of(host)).unwrap();
        }
        let mut broker = Broker::new(vec![None; HOSTS], slots(4), cfg.orphan_ms);
        for host in (0..HOSTS).filter(|_| rng.chance(70)) {
            let rule = Rule {
                node: node_of(host),
                quota: cfg.region_bytes * 2,
                admission: Admission::Open,
            };
            assert!(broker.set_rule(rule));
        }
        Self {
            up: true,
            incarnation,
            // What was there before is anything.
            memory: (0..u64::from(cfg.pages) * PAGE)
                .map(|_| rng.next_u64() as u8 | 1)
                .collect(),
            node: Node::new(
                node::Config {
                    id: NodeId { domain: 1, node: 0 },
                    admission: Admission::Key(ADMISSION),
                    incarnation,
                    page_shift: PAGE.trailing_zeros(),
                    run_max: cfg.run_max,
                    owner_bytes_max: 20 * PAGE,
                    owner_percent: 100,
                    user_percent: cfg.user_percent,
                    orphan_ms: cfg.orphan_ms,
                },
                Arena::new(vec![0; words], vec![0; words], cfg.pages),
                slots(cfg.regions),
                slots(100),
                slots(cfg.keys),
                slots(10),
            ),
            copies: Copies::new(
                cfg.limits,
                slots(cfg.jobs),
                vec![TargetLoad::default(); HOSTS],
                vec![Flow::default(); LINKS_MAX + 1],
            ),
            jobs: BTreeMap::new(),
            directory,
            queue: Queue::new(slots(cfg.entries)),
            queued: BTreeMap::new(),
            waiters: BTreeMap::new(),
            cancels: Vec::new(),
            broker,
            brokered: BTreeMap::new(),
        }
    }

    /// The host that the directory has for a node.
    pub fn find(&self, node: NodeId) -> Option<usize> {
        let addr = self.directory.resolve(node)?;
        (0..HOSTS).find(|h| address_of(*h) == addr)
    }
}
