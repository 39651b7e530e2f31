// SPDX-License-Identifier: GPL-2.0

//! The context of memory nodes: the directory of each network namespace, and the hosts.
//!
//! A directory is kept for its namespace without keeping the namespace. A host, which has links and
//! so keeps it, exists while a region or node is open there, a little longer, and until the errands
//! of its regions are made or given up.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::time::{delay::fsleep, Delta};

use super::counts::Counts;
use super::host::Host;
use crate::ib::device::Device;
use crate::kern::net::Net;
use crate::kern::pernet::NetExit;
use crate::kern::task::{now_ns, random_u64};
use crate::kern::work::{self, Queue};
use crate::proto::addr::Ip;
use crate::proto::mem::directory::{Directory, Entry, NoEntry, ENTRIES_MAX};
use crate::proto::mem::id::NodeId;
use crate::transport::peers::Peers;

/// How long a host without open regions and nodes stays, in nanoseconds,
const LINGER_NS: u64 = 1_000_000_000;
/// and if its broker has given regions.
const LINGER_BROKER_NS: u64 = 60_000_000_000;

/// The directory of a namespace.
struct NetDirectory {
    net: usize,
    entries: Directory<KVVec<Entry>>,
}

/// A host and how many regions and nodes are open there.
struct HostUse {
    host: Arc<Host>,
    users: usize,
    idle_since: u64,
}

/// The context of memory nodes.
#[pin_data]
pub(crate) struct Memory {
    pub(super) nonce: u64,
    pub(super) queue: Queue,
    /// Lets go of pages of programs that have to be marked dirty first. These items may wait for a
    /// program's file system, so nothing else waits for them but the module's end.
    pub(super) pages: Arc<Queue>,
    pub(super) peers: Arc<Peers>,
    /// Hosts that exist, on the list or not.
    alive: Atomic<u32>,
    /// How often a device has failed.
    failures: Atomic<u32>,
    #[pin]
    directories: Mutex<KVec<NetDirectory>>,
    #[pin]
    hosts: Mutex<KVec<HostUse>>,
    /// The counters of namespaces that have had a host.
    #[pin]
    counts: Mutex<KVec<(usize, Arc<Counts>)>>,
}

/// A host that exists.
pub(super) struct Alive(Arc<Memory>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Relaxed);
    }
}

/// A use of a host.
pub(super) struct HostRef {
    host: Arc<Host>,
}

impl core::ops::Deref for HostRef {
    type Target = Arc<Host>;

    fn deref(&self) -> &Arc<Host> {
        &self.host
    }
}

impl Drop for HostRef {
    fn drop(&mut self) {
        let mut hosts = self.host.memory.hosts.lock();
        let of_it = |u: &&mut HostUse| Arc::ptr_eq(&u.host, &self.host);
        if let Some(used) = hosts.iter_mut().find(of_it) {
            used.users = used.users.saturating_sub(1);
            used.idle_since = now_ns();
        }
    }
}

impl Memory {
    /// A context without directories and hosts. Sleeps. ENOMEM.
    pub(crate) fn new(peers: Arc<Peers>) -> Result<Arc<Self>> {
        let queue = Queue::new(
            kernel::c_str!("zrs_mem"),
            work::Flags {
                unbound: true,
                mem_reclaim: true,
                ..Default::default()
            },
        )?;
        let unbound = work::Flags {
            unbound: true,
            ..Default::default()
        };
        let pages = Queue::new(kernel::c_str!("zrs_mem_pages"), unbound)?;
        let pages = Arc::new(pages, GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                nonce: random_u64(),
                queue,
                pages,
                peers,
                alive: Atomic::new(0),
                failures: Atomic::new(0),
                directories <- new_mutex!(KVec::new(), "zrs_memory::directories"),
                hosts <- new_mutex!(KVec::new(), "zrs_memory::hosts"),
                counts <- new_mutex!(KVec::new(), "zrs_memory::counts"),
            }),
            GFP_KERNEL,
        )
    }

    /// The module is being unloaded: no region and no node is open any more. Sleeps.
    pub(crate) fn stop(&self) {
        loop {
            let Some(used) = self.hosts.lock().pop() else {
                break;
            };
            used.host.stop();
        }
        // The work of the last links holds their hosts, and these the queue.
        while self.alive.load(Relaxed) != 0 {
            self.queue.flush();
            fsleep(Delta::from_millis(5));
        }
        // The last host was dropped by one of these items.
        self.queue.flush();
    }

    /// Counts a host.
    pub(super) fn host_made(self: &Arc<Self>) -> Alive {
        self.alive.fetch_add(1, Relaxed);
        Alive(self.clone())
    }

    /// The host of a namespace. Sleeps. ENOMEM.
    pub(super) fn host(self: &Arc<Self>, net: &Net) -> Result<HostRef> {
        let counts = self.counts(net)?;
        let mut hosts = self.hosts.lock();
        let host = match hosts.iter_mut().find(|u| u.host.net == *net) {
            Some(used) => {
                used.users += 1;
                used.host.clone()
            }
            None => {
                let host = Host::new(self, net, counts)?;
                let used = HostUse {
                    host: host.clone(),
                    users: 1,
                    idle_since: 0,
                };
                hosts.push(used, GFP_KERNEL)?;
                host.start();
                host
            }
        };
        Ok(HostRef { host })
    }

    /// The counters of a namespace, which begin at 0. Sleeps. ENOMEM.
    fn counts(&self, net: &Net) -> Result<Arc<Counts>> {
        let mut all = self.counts.lock();
        if let Some((_, counts)) = all.iter().find(|(id, _)| *id == net.id()) {
            return Ok(counts.clone());
        }
        let new = Arc::new(Counts::default(), GFP_KERNEL)?;
        all.push((net.id(), new.clone()), GFP_KERNEL)?;
        Ok(new)
    }

    /// The counters of a namespace; `None`: it has had no host.
    pub(super) fn counts_if_any(&self, net: &Net) -> Option<Arc<Counts>> {
        let all = self.counts.lock();
        let own = all.iter().find(|(id, _)| *id == net.id());
        own.map(|(_, counts)| counts.clone())
    }

    /// The host of a namespace if there is one; it is not kept from ending.
    pub(super) fn host_if_any(&self, net: &Net) -> Option<Arc<Host>> {
        let hosts = self.hosts.lock();
        let used = hosts.iter().find(|u| u.host.net == *net);
        used.map(|u| u.host.clone())
    }

    /// The list of peers or of keys of `net` has changed: ends the links that it does not allow.
    /// Sleeps.
    pub(crate) fn peers_changed(&self, net: &Net) {
        if let Some(host) = self.host_if_any(net) {
            host.with(|st| st.drop_denied(&self.peers, net));
        }
    }

    /// How often a device has failed.
    pub(super) fn times_failed(&self) -> u32 {
        self.failures.load(Acquire)
    }

    /// `device` has failed: ends the links on it. Sleeps.
    pub(crate) fn device_failed(&self, device: &Device) {
        self.failures.fetch_add(1, Full);
        let mut at = self.hosts.lock().len();
        // Backwards, so that no host is skipped when another one is removed from the list.
        while let Some(next) = at.checked_sub(1) {
            at = next;
            let host = self.hosts.lock().get(at).map(|u| u.host.clone());
            if let Some(host) = host {
                host.with(|st| st.fail_links_on(device));
            }
        }
    }

    /// Takes `host` off the list if it was not used for a while; the caller stops it then.
    /// `regions`: its broker has given some.
    pub(super) fn take_idle(&self, host: &Arc<Host>, regions: bool) -> bool {
        let linger = if regions { LINGER_BROKER_NS } else { LINGER_NS };
        let mut hosts = self.hosts.lock();
        let idle = |u: &HostUse| {
            let since = now_ns().saturating_sub(u.idle_since);
            Arc::ptr_eq(&u.host, host) && u.users == 0 && since >= linger
        };
        match hosts.iter().position(idle) {
            Some(at) => hosts.remove(at).is_ok(),
            None => false,
        }
    }

    fn with_directory<R>(
        &self,
        net: &Net,
        f: impl FnOnce(&mut Directory<KVVec<Entry>>) -> R,
    ) -> Result<R> {
        let mut directories = self.directories.lock();
        let at = match directories.iter().position(|d| d.net == net.id()) {
            Some(at) => at,
            None => {
                let entries = KVVec::from_elem(Entry::EMPTY, ENTRIES_MAX, GFP_KERNEL)?;
                let entries = Directory::new(entries, 0);
                let net = net.id();
                directories.push(NetDirectory { net, entries }, GFP_KERNEL)?;
                directories.len() - 1
            }
        };
        let directory = directories.get_mut(at).ok_or(ENOMEM)?;
        Ok(f(&mut directory.entries))
    }

    fn look<R>(&self, net: &Net, f: impl FnOnce(&Directory<KVVec<Entry>>) -> R) -> Option<R> {
        let directories = self.directories.lock();
        let known = directories.iter().find(|d| d.net == net.id());
        known.map(|d| f(&d.entries))
    }

    /// The host's own domain.
    pub(super) fn own_domain(&self, net: &Net) -> u32 {
        self.look(net, |d| d.own_domain()).unwrap_or(0)
    }

    /// Address of the host that serves `node`.
    pub(super) fn resolve(&self, net: &Net, node: NodeId) -> Option<Ip> {
        self.look(net, |d| d.resolve(node)).flatten()
    }

    /// The entry behind `node`, or the first one, and how many there are.
    pub(super) fn next_entry(&self, net: &Net, node: Option<NodeId>) -> Option<Entry> {
        self.look(net, |d| d.next_after(node)).flatten()
    }

    /// Adds a node, or changes its address.
    pub(super) fn set_entry(&self, net: &Net, node: NodeId, addr: Ip) -> Result {
        let set = self.with_directory(net, |d| d.set(node, addr))?;
        set.map_err(|why| match why {
            NoEntry::Full => ENOSPC,
            NoEntry::Address => EINVAL,
        })
    }

    /// Removes a node. ENOENT.
    pub(super) fn remove_entry(&self, net: &Net, node: NodeId) -> Result {
        let known = self.with_directory(net, |d| d.remove(node))?;
        known.then_some(()).ok_or(ENOENT)
    }

    /// Removes all nodes, and sets the host's own domain if one is given.
    pub(super) fn clear_entries(&self, net: &Net, domain: Option<u32>) -> Result {
        self.with_directory(net, |d| {
            let domain = domain.unwrap_or(d.own_domain());
            d.clear(domain);
        })
    }
}

impl NetExit for Memory {
    fn net_exit(&self, id: usize) {
        self.directories.lock().retain(|d| d.net != id);
        self.counts.lock().retain(|(net, _)| *net != id);
    }
}
