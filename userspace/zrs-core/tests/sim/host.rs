// SPDX-License-Identifier: GPL-2.0

//! A host: its channel table, its receive pool with the memory in it, and its registrations.

use std::collections::BTreeMap;

use zrs_core::page_pool::PagePool;
use zrs_core::slot_table::{Slot, SlotTable};

use crate::world::{ActorId, SockId};

pub const PAGE: usize = 4096;

/// A registration of one window, of exactly its extent.
pub struct Mr {
    pub sock: SockId,
    pub addr: u64,
    pub size: u32,
    /// Offset of the window in the pool's memory.
    pub start: usize,
    pub valid: bool,
}

pub struct Host {
    pub table: SlotTable<Vec<Slot<SockId>>>,
    pub pool: PagePool<Vec<u64>>,
    pub mem: Vec<u8>,
    pub base: u64,
    mrs: Vec<Mr>,
    /// Who listens, by port.
    pub listeners: BTreeMap<u16, ActorId>,
    /// It lives.
    pub up: bool,
    /// Its processors stand still until then; its device does not.
    pub paused_until: u64,
    /// Allocations may fail.
    pub short: bool,
}

impl Host {
    pub fn new(slots: usize, pages: usize, base: u64) -> Self {
        let map = vec![u64::MAX; PagePool::<Vec<u64>>::words(pages)];
        Self {
            table: SlotTable::new((0..slots).map(|_| Slot::empty()).collect()),
            pool: PagePool::new(map, pages),
            mem: vec![0; pages * PAGE],
            base,
            mrs: Vec::new(),
            listeners: BTreeMap::new(),
            up: true,
            paused_until: 0,
            short: false,
        }
    }

    /// Registers `size` bytes from page `page` on; the key is never used again.
    pub fn register(&mut self, sock: SockId, page: usize, size: u32) -> (u64, u32) {
        let start = page * PAGE;
        let addr = self.base + start as u64;
        self.mrs.push(Mr {
            sock,
            addr,
            size,
            start,
            valid: true,
        });
        (addr, ((self.mrs.len() as u32) << 8) | 0x5a)
    }

    /// The registration that `key` opens.
    pub fn mr(&mut self, key: u32) -> Option<&mut Mr> {
        let index = ((key >> 8) as usize).checked_sub(1)?;
        self.mrs.get_mut(index).filter(|_| key & 0xff == 0x5a)
    }

    pub fn valid_mrs(&self) -> usize {
        self.mrs.iter().filter(|m| m.valid).count()
    }
}
