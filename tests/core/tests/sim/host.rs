// SPDX-License-Identifier: GPL-2.0

//! A host: its link table, its receive pool with the memory in it, and its registrations.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use zrs_core::channel::{Channel, Limits};
use zrs_core::link_table::{TableStats, CHUNK};
use zrs_core::page_pool::PagePool;
use zrs_core::ChanId;

use crate::config::Config;
use crate::entry::{ChannelTable, Entry};
use crate::escape::Policy;
use crate::world::{ActorId, SockId};
use common::table::{submit, Tiers};

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
    table: Rc<RefCell<ChannelTable>>,
    /// Entries that it may have.
    slots: u32,
    pub pool: PagePool<Vec<u64>>,
    pub mem: Vec<u8>,
    pub base: u64,
    mrs: Vec<Mr>,
    /// The listeners, by port.
    pub listeners: BTreeMap<u16, ActorId>,
    /// It lives.
    pub up: bool,
    /// Its processors stand still until then; its device does not.
    pub paused_until: u64,
    /// Allocations may fail.
    pub short: bool,
    /// When data moves to main memory; whether the mover is going to look.
    pub policy: Policy,
    pub watching: bool,
    /// The sockets that wait for a window.
    pub wishes: VecDeque<SockId>,
}

impl Host {
    pub fn new(cfg: &Config, host: usize, base: u64) -> Self {
        let pages = cfg.pool_pages[host];
        let (hot, sets, ways) = cfg.table_tiers;
        let tiers = Tiers {
            hot,
            sets,
            ways,
            chunks: cfg.table_slots.div_ceil(CHUNK),
        };
        let blank = || Channel::connect(ChanId::default(), 0, 0, Limits { msgs: 0, small: 0 });
        let map = vec![u64::MAX; PagePool::<Vec<u64>>::words(pages)];
        Self {
            table: Rc::new(RefCell::new(tiers.table(base, blank))),
            slots: cfg.table_slots as u32,
            pool: PagePool::new(map, pages),
            mem: vec![0; pages * PAGE],
            base,
            mrs: Vec::new(),
            listeners: BTreeMap::new(),
            up: true,
            paused_until: 0,
            short: false,
            policy: cfg.policy[host],
            watching: false,
            wishes: VecDeque::new(),
        }
    }

    /// Takes an entry for a socket; `None` when the table is full.
    pub fn submit(&mut self, sid: SockId, make: impl FnOnce(ChanId) -> Channel) -> Option<Entry> {
        let mut t = self.table.borrow_mut();
        if t.len() == self.slots {
            return None;
        }
        let id = submit(&mut t, sid, make).ok()?;
        Some(Entry::new(&self.table, id))
    }

    /// Whose channel it is.
    pub fn owner(&self, id: ChanId) -> Option<SockId> {
        self.table.borrow().owner(id).copied()
    }

    /// Parks channels that were not used lately.
    pub fn sweep(&mut self, slots: u32) {
        self.table.borrow_mut().sweep(slots, |_, _| {});
    }

    pub fn table_stats(&self) -> TableStats {
        self.table.borrow().stats()
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
