// SPDX-License-Identifier: GPL-2.0

//! The memory that this host serves.

#![deny(unsafe_code)]

use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::kern::errno::EHWPOISON;
use crate::kern::folios::MemfdPages;
use crate::kern::task::random_u64;
use crate::net_warn_ratelimited;
use crate::params;
use crate::proto::mem::admission::Admission;
use crate::proto::mem::arena::{Arena, Extent};
use crate::proto::mem::id::NodeId;
use crate::proto::mem::keys::KeySlot;
use crate::proto::mem::node::{Config, Drain, ExtentEntry, Hold, Node, Region, Storage};
use crate::proto::mem::payload::{NodeInfo, NODE_DRAINING};
use crate::proto::mem::rights::Range;
use crate::proto::mem::slab::Slot;
use crate::proto::mem::status::Status;

/// Most nodes of a host.
pub(super) const NODES: usize = 16;
/// Most regions.
const REGIONS: usize = 4096;
/// Most extents of all regions together.
const EXTENTS: usize = 32768;
/// Most keys of all regions together.
const KEYS: usize = 16384;
/// Most frees, seals and revocations that may wait.
const DRAINS: usize = 256;
/// Most pages of an extent: what a memory region of the device has room for; Soft-RoCE's have the
/// least of all devices.
pub(super) const RUN_MAX: u32 = 512;
/// How long regions of a lost host stay, in milliseconds.
const ORPHAN_MS: u64 = 60_000;
/// Pages that are zeroed at a time.
const ZERO_PAGES: u32 = 256;

/// The tables of a node in the kernel's memory.
pub(super) struct Tables;

impl Storage for Tables {
    type Bits = KVVec<u64>;
    type Regions = KVVec<Slot<Region>>;
    type Extents = KVVec<Slot<ExtentEntry>>;
    type Keys = KVVec<KeySlot>;
    type Drains = KVVec<Slot<Drain>>;
}

/// A table of empty slots. Sleeps. ENOMEM.
pub(super) fn slots<T>(count: usize) -> Result<KVVec<Slot<T>>> {
    let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        slots.push(Slot::EMPTY, GFP_KERNEL)?;
    }
    Ok(slots)
}

/// A node as the administrator wants it.
pub(super) struct Offer {
    pub(super) id: NodeId,
    pub(super) admission: Admission,
    pub(super) host_percent: u32,
}

/// The nodes of a host, by place.
pub(super) type Nodes = [Option<Served>; NODES];

/// The node of an operation. There is one while the operation has its hold.
pub(super) fn of_hold<'a>(nodes: &'a Nodes, hold: &Hold) -> Option<&'a Served> {
    nodes.get(hold.place() as usize)?.as_ref()
}

/// As [`of_hold`], to change it.
pub(super) fn node_of_hold<'a>(nodes: &'a mut Nodes, hold: &Hold) -> Option<&'a mut Served> {
    nodes.get_mut(hold.place() as usize)?.as_mut()
}

/// Whether an operation must end: its region or key has.
pub(super) fn must_stop(nodes: &Nodes, hold: &Hold, now_ms: u64) -> bool {
    of_hold(nodes, hold).is_none_or(|s| s.node.must_stop(hold, now_ms))
}

/// The result of such an operation.
pub(super) fn stop_status(nodes: &Nodes, hold: &Hold, now_ms: u64) -> Status {
    of_hold(nodes, hold).map_or(Status::Stale, |s| s.node.stop_status(hold, now_ms))
}

/// A node of this host.
pub(super) struct Served {
    pub(super) node: KBox<Node<Tables>>,
    pub(super) memory: Arc<MemfdPages>,
    pub(super) page_shift: u32,
    /// Its descriptor is closed: it goes when its last region is quiet.
    pub(super) closing: bool,
}

impl Served {
    /// A node without regions. Sleeps. ENOMEM; EINVAL for memory that is not of whole pages, or of
    /// too many.
    pub(super) fn new(offer: Offer, memory: Arc<MemfdPages>) -> Result<Self> {
        // Huge pages count as one, if all are.
        let huge = memory.contiguous_pages().trailing_zeros();
        let shift = PAGE_SHIFT as u32 + if huge >= 9 { 9 } else { 0 };
        let pages = u32::try_from(memory.bytes() >> shift).map_err(|_| EINVAL)?;
        if pages == 0 || u64::from(pages) << shift != memory.bytes() {
            return Err(EINVAL);
        }
        let words = Arena::<KVVec<u64>>::words(pages);
        let bits = || KVVec::from_elem(0_u64, words, GFP_KERNEL);
        let config = Config {
            id: offer.id,
            admission: offer.admission,
            incarnation: random_u64(),
            page_shift: shift,
            run_max: RUN_MAX,
            owner_bytes_max: memory.bytes() / 100 * u64::from(offer.host_percent),
            owner_percent: offer.host_percent,
            user_percent: params::MEM_USER_PERCENT.get(),
            orphan_ms: ORPHAN_MS,
        };
        let node = Node::new(
            config,
            Arena::new(bits()?, bits()?, pages),
            slots(REGIONS)?,
            slots(EXTENTS)?,
            slots(KEYS)?,
            slots(DRAINS)?,
        );
        Ok(Self {
            node: KBox::new(node, GFP_KERNEL)?,
            memory,
            page_shift: shift,
            closing: false,
        })
    }

    /// Some pages that must be zeroed, and where they are: offset and length.
    pub(super) fn next_dirty(&mut self) -> Option<(Extent, u64, usize)> {
        let most = (ZERO_PAGES >> (self.page_shift - PAGE_SHIFT as u32)).max(1);
        let run = self.node.next_dirty(most)?;
        let at = u64::from(run.page) << self.page_shift;
        Some((run, at, (run.pages as usize) << self.page_shift))
    }

    /// Its description.
    pub(super) fn info(&self) -> NodeInfo {
        let (bytes, free) = self.bytes();
        let draining = self.node.draining();
        NodeInfo {
            node: self.node.id(),
            incarnation: self.node.incarnation(),
            bytes,
            free,
            state: if draining { NODE_DRAINING } else { 0 },
            page_shift: self.page_shift,
        }
    }

    /// The result of an operation whose access to the memory has failed. A region that has a
    /// defective page ends: no new operation of it begins, and those under way stop.
    pub(super) fn memory_error(&mut self, hold: &Hold, e: Error) -> Status {
        if e == EHWPOISON {
            let (region, gen) = hold.number();
            net_warn_ratelimited!("a page of region {region} is defective: the region ends\n");
            self.node.close_region(region, gen);
        }
        match e {
            e if e == ENOMEM => Status::NoMemory,
            _ => Status::Io,
        }
    }

    /// Reads a range of the held region. EIO if it is not as long as `bytes`, or not in memory.
    pub(super) fn read(&self, hold: &Hold, range: Range, bytes: &mut [u8]) -> Result {
        let mut done = 0;
        for piece in self.node.pieces(hold, range) {
            let here = done..done + piece.len as usize;
            done = here.end;
            self.memory
                .read(piece.at, bytes.get_mut(here).ok_or(EIO)?)?;
        }
        (done == bytes.len()).then_some(()).ok_or(EIO)
    }

    /// Writes a range of the held region. EIO if it is not as long as `bytes`, or not in memory.
    pub(super) fn write(&self, hold: &Hold, range: Range, bytes: &[u8]) -> Result {
        let mut done = 0;
        for piece in self.node.pieces(hold, range) {
            let here = done..done + piece.len as usize;
            done = here.end;
            self.memory.write(piece.at, bytes.get(here).ok_or(EIO)?)?;
        }
        (done == bytes.len()).then_some(()).ok_or(EIO)
    }

    /// Bytes in all, and those in no region.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let pages = self.node.pages();
        let free = u64::from(pages.clean) + u64::from(pages.dirty) + u64::from(pages.zeroing);
        (self.memory.bytes(), free << self.page_shift)
    }
}
