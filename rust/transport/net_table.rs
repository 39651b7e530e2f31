// SPDX-License-Identifier: GPL-2.0

//! Lists that network namespaces have, such as rules and peers. They are kept for a namespace
//! without keeping it.
//!
//! The mutex of a table is a leaf among the locks.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::alloc::AllocError;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Mutex};

use crate::kern::memcg::CHARGED;
use crate::kern::net::Net;
use crate::kern::pernet::NetExit;

/// The list of a namespace; never empty.
struct Listed<T> {
    net: usize,
    entries: KVVec<T>,
}

/// The lists of all namespaces, of up to `MOST` entries each.
#[pin_data]
pub(crate) struct NetTable<T, const MOST: usize> {
    /// There are some.
    any: Atomic<bool>,
    #[pin]
    nets: Mutex<KVec<Listed<T>>>,
}

/// Why a list was not changed.
pub(crate) enum Unchanged {
    /// There is no such entry.
    Missing,
    /// There would be too many.
    TooMany,
    /// There would be too many of one network.
    NetworkFull,
    /// No memory.
    Memory,
}

impl From<AllocError> for Unchanged {
    fn from(_: AllocError) -> Self {
        Self::Memory
    }
}

impl From<Unchanged> for Error {
    fn from(why: Unchanged) -> Self {
        match why {
            Unchanged::Missing => ENOENT,
            Unchanged::TooMany => ENOSPC,
            Unchanged::NetworkFull => EMLINK,
            Unchanged::Memory => ENOMEM,
        }
    }
}

impl<T: Clone, const MOST: usize> NetTable<T, MOST> {
    /// No lists.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            any: Atomic::new(false),
            nets <- new_mutex!(KVec::new(), "zrs_net_table::nets"),
        })
    }

    /// What `f` makes of the list of `net`; `None`: it has none. Sleeps.
    pub(crate) fn with<R>(&self, net: &Net, f: impl FnOnce(&[T]) -> R) -> Option<R> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let nets = self.nets.lock();
        let listed = nets.iter().find(|n| n.net == net.id())?;
        Some(f(&listed.entries))
    }

    /// Entry number `index` of `net`. Sleeps.
    pub(crate) fn nth(&self, net: &Net, index: usize) -> Option<T> {
        self.with(net, |entries| entries.get(index).cloned())?
    }

    /// Replaces the list of `net` by the entries that `change` puts into an empty one, which has
    /// room for one more than there were. Sleeps.
    pub(crate) fn change(
        &self,
        net: &Net,
        change: impl FnOnce(&[T], &mut KVVec<T>) -> Result<(), Unchanged>,
    ) -> Result<(), Unchanged> {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.net == net.id());
        let listed = at.and_then(|at| nets.get(at));
        let old: &[T] = match listed {
            Some(listed) => &listed.entries,
            None => &[],
        };
        let mut entries = KVVec::with_capacity(old.len() + 1, CHARGED)?;
        change(old, &mut entries)?;
        if entries.len() > MOST {
            return Err(Unchanged::TooMany);
        }
        let gone = match at {
            Some(at) if entries.is_empty() => nets.remove(at).ok().map(|n| n.entries),
            Some(at) => nets
                .get_mut(at)
                .map(|n| core::mem::replace(&mut n.entries, entries)),
            None if entries.is_empty() => None,
            None => {
                let net = net.id();
                nets.push(Listed { net, entries }, GFP_KERNEL)?;
                None
            }
        };
        self.any.store(!nets.is_empty(), Relaxed);
        drop(nets);
        drop(gone);
        Ok(())
    }
}

impl<T: Clone + Send + Sync + 'static, const MOST: usize> NetExit for NetTable<T, MOST> {
    fn net_exit(&self, id: usize) {
        let mut nets = self.nets.lock();
        let at = nets.iter().position(|n| n.net == id);
        let gone = at.and_then(|at| nets.remove(at).ok());
        self.any.store(!nets.is_empty(), Relaxed);
        drop(nets);
        drop(gone);
    }
}
