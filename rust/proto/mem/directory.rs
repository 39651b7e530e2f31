// SPDX-License-Identifier: GPL-2.0

//! Which host serves which node: the only source of addresses that memory links are made to. A peer
//! names nodes, never addresses, so it cannot make this host connect anywhere else.

use core::ops::DerefMut;

use super::super::addr::Ip;
use super::id::NodeId;

/// Most entries in a directory.
pub const ENTRIES_MAX: usize = 4096;

/// One line of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The node; its domain is not 0 unless the local domain is.
    pub node: NodeId,
    /// RDMA address of its host.
    pub addr: Ip,
}

impl Entry {
    /// Filler for unused storage.
    pub const EMPTY: Self = Self {
        node: NodeId { domain: 0, node: 0 },
        addr: Ip::ANY,
    };
}

/// Why a directory does not take an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoEntry {
    /// There is no room.
    Full,
    /// The address is not that of one host.
    Address,
}

/// The directory of a network namespace. To replace all entries at once, build another one and swap
/// them.
pub struct Directory<S> {
    /// The first `len` are in use, in the order of their nodes.
    entries: S,
    len: usize,
    own_domain: u32,
}

impl<S: DerefMut<Target = [Entry]>> Directory<S> {
    /// An empty directory of a host in domain `own_domain`.
    pub fn new(entries: S, own_domain: u32) -> Self {
        Self {
            entries,
            len: 0,
            own_domain,
        }
    }

    /// The host's own domain.
    pub fn own_domain(&self) -> u32 {
        self.own_domain
    }

    fn used(&self) -> &[Entry] {
        self.entries.get(..self.len).unwrap_or_default()
    }

    fn find(&self, node: NodeId) -> Result<usize, usize> {
        let node = node.qualified(self.own_domain);
        self.used().binary_search_by_key(&node, |e| e.node)
    }

    /// Address of the host that serves `node`.
    pub fn resolve(&self, node: NodeId) -> Option<Ip> {
        let at = self.find(node).ok()?;
        self.used().get(at).map(|e| e.addr)
    }

    /// Adds an entry, or changes that of its node.
    pub fn set(&mut self, node: NodeId, addr: Ip) -> Result<(), NoEntry> {
        if addr.is_any() || addr.is_for_many() {
            return Err(NoEntry::Address);
        }
        let entry = Entry {
            node: node.qualified(self.own_domain),
            addr,
        };
        match self.find(node) {
            Ok(at) => {
                if let Some(e) = self.entries.get_mut(at) {
                    *e = entry;
                }
            }
            Err(at) => {
                let more = self.len.saturating_add(1);
                if more > ENTRIES_MAX {
                    return Err(NoEntry::Full);
                }
                let moved = self.entries.get_mut(at..more).ok_or(NoEntry::Full)?;
                moved.rotate_right(1);
                if let Some(first) = moved.first_mut() {
                    *first = entry;
                }
                self.len = more;
            }
        }
        Ok(())
    }

    /// Removes the entry of `node`; false if there is none.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let Ok(at) = self.find(node) else {
            return false;
        };
        if let Some(moved) = self.entries.get_mut(at..self.len) {
            moved.rotate_left(1);
        }
        self.len = self.len.saturating_sub(1);
        true
    }

    /// Removes all entries; the host's own domain is `own_domain` from now on.
    pub fn clear(&mut self, own_domain: u32) {
        self.len = 0;
        self.own_domain = own_domain;
    }

    /// The first entry behind `node`, or the first of all: a cursor that survives changes.
    pub fn next_after(&self, node: Option<NodeId>) -> Option<Entry> {
        let from = match node {
            None => 0,
            Some(node) => self.used().partition_point(|e| e.node <= node),
        };
        self.used().get(from).copied()
    }

    /// Entries.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
