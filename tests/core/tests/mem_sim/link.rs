// SPDX-License-Identifier: GPL-2.0

//! A memory link: two queue pairs, what is on its way between them, and the core's tables at both ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zrs_core::mem::asks::{AskSlot, Asks, ASKS_MAX};
use zrs_core::mem::grant_cache::{GrantCache, Lent};
use zrs_core::mem::grants::{Grant, Grants};
use zrs_core::mem::id::{Key, NodeId};
use zrs_core::mem::link::{self, End};
use zrs_core::mem::payload::RemoteExtent;
use zrs_core::mem::rights::Rights;
use zrs_core::mem::server::{Server, ServerSlot};
use zrs_core::mem::slab::Slot;
use zrs_core::wire::HEADER_LEN;

use crate::config::Config;
use crate::host::slots;

/// Whose bytes they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// An operation of a requester.
    Op(u64),
    /// A copy of a source, by its serial number.
    Job(u64),
    /// The node's processor, at once.
    Processor,
    Hostile,
}

#[derive(Clone)]
pub enum Item {
    Send([u8; HEADER_LEN], Vec<u8>),
    /// Towards the node.
    Write {
        rkey: u32,
        iova: u64,
        data: Vec<u8>,
        from: Origin,
        tag: u64,
    },
    /// A WRITE that stops after these bytes, which are not all of it.
    HalfWrite {
        rkey: u32,
        iova: u64,
        data: Vec<u8>,
    },
    Read {
        rkey: u32,
        iova: u64,
        len: u64,
        tag: u64,
    },
    /// Towards the requester.
    Written(u64),
    ReadBack(u64, Vec<u8>),
}

/// Bytes that the node's device has acknowledged and not put into memory yet.
pub struct Dma {
    pub rkey: u32,
    pub at: u64,
    pub data: VecDeque<u8>,
    pub from: Origin,
}

/// A memory region of the node's device.
#[derive(Clone)]
pub struct Mr {
    pub grant: u32,
    pub key: Key,
    pub write: bool,
    pub read: bool,
    pub iova: u64,
    pub at: u64,
    pub len: u64,
}

/// What waits for a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    Op(u64),
    Job(u32),
}

pub struct Link {
    pub requester: usize,
    pub node: usize,
    /// Nothing is transmitted any more.
    pub broken: bool,
    /// The queue pair of the requester, and of the node.
    pub up: [bool; 2],
    pub to_node: VecDeque<Item>,
    pub to_requester: VecDeque<Item>,
    pub dma: VecDeque<Dma>,
    /// The remote key of a WRITE of which the node's device has received a part: nothing else arrives before the rest.
    pub stalled: Option<u32>,
    /// What each end has heard of the other one: the requester's, the node's.
    pub ends: [link::Link; 2],
    // The requester's end.
    pub asks: Asks<Vec<AskSlot>>,
    pub cache: GrantCache<Vec<Slot<Lent>>>,
    pub extents: BTreeMap<u32, Vec<RemoteExtent>>,
    pub waiting: Vec<(u32, Pending)>,
    /// What the grants at the places of the cache are.
    pub opens: BTreeMap<u32, (NodeId, Key, Rights)>,
    // The node's end.
    pub server: Server<Vec<ServerSlot>>,
    pub grants: Grants<Vec<Slot<Grant>>>,
    pub granted: BTreeMap<u32, GrantInfo>,
    pub registering: Vec<u32>,
    /// Grants whose remote keys are being made invalid, and those where they are.
    pub invalidating: Vec<u32>,
    pub invalid: BTreeSet<u32>,
    pub deregistering: Vec<u32>,
    pub mrs: BTreeMap<u32, Mr>,
}

/// What the node's host remembers of a grant.
#[derive(Clone, Copy)]
pub struct GrantInfo {
    pub key: Key,
    pub addr: u64,
    pub len: u64,
    pub rights: u32,
    pub once: bool,
}

impl Link {
    pub fn new(cfg: &Config, requester: usize, node: usize) -> Self {
        Self {
            requester,
            node,
            broken: false,
            up: [true; 2],
            to_node: VecDeque::new(),
            to_requester: VecDeque::new(),
            dma: VecDeque::new(),
            stalled: None,
            ends: [End::Requester, End::Node].map(|end| {
                let mut at = link::Link::new(end);
                at.says(false);
                at
            }),
            asks: Asks::new(vec![AskSlot::EMPTY; ASKS_MAX], cfg.asks, cfg.user_percent),
            cache: GrantCache::new(slots(cfg.grants)),
            extents: BTreeMap::new(),
            waiting: Vec::new(),
            opens: BTreeMap::new(),
            server: Server::new(vec![None; cfg.asks as usize]),
            grants: Grants::new(slots(cfg.grants)),
            granted: BTreeMap::new(),
            registering: Vec::new(),
            invalidating: Vec::new(),
            invalid: BTreeSet::new(),
            deregistering: Vec::new(),
            mrs: BTreeMap::new(),
        }
    }
}
