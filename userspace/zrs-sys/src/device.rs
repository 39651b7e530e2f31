// SPDX-License-Identifier: GPL-2.0
//! `/dev/zrs`: one method for each ioctl.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::abi::*;
use crate::queue::MemQueue;

/// An open `/dev/zrs`.
#[derive(Debug)]
pub struct Device(File);

mod sealed {
    /// # Safety
    ///
    /// `REQUEST` reads and writes at most one `Self`, and every bit pattern is a valid `Self`.
    pub unsafe trait Argument {
        const REQUEST: u32;
    }
}
use sealed::Argument;

// SAFETY: the ioctl number carries the size of the structure; it is integers only.
unsafe impl Argument for zrs_ioc_version {
    const REQUEST: u32 = ZRS_IOC_VERSION;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_socket {
    const REQUEST: u32 = ZRS_IOC_SOCKET;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_stats {
    const REQUEST: u32 = ZRS_IOC_STATS;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_pool {
    const REQUEST: u32 = ZRS_IOC_POOL;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_link {
    const REQUEST: u32 = ZRS_IOC_LINK;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_sock {
    const REQUEST: u32 = ZRS_IOC_SOCK;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_dgram {
    const REQUEST: u32 = ZRS_IOC_DGRAM;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_table {
    const REQUEST: u32 = ZRS_IOC_TABLE;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_cache {
    const REQUEST: u32 = ZRS_IOC_CACHE;
}

// SAFETY: as above. The array of ZRS_RULES_SET is only read.
unsafe impl Argument for zrs_ioc_rules {
    const REQUEST: u32 = ZRS_IOC_RULES;
}
// SAFETY: as above. The array of ZRS_PEERS_SET is only read.
unsafe impl Argument for zrs_ioc_peers {
    const REQUEST: u32 = ZRS_IOC_PEERS;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_keys {
    const REQUEST: u32 = ZRS_IOC_KEYS;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_fallback {
    const REQUEST: u32 = ZRS_IOC_FALLBACK;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_serve {
    const REQUEST: u32 = ZRS_IOC_MEM_SERVE;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_nodes {
    const REQUEST: u32 = ZRS_IOC_MEM_NODES;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_alloc {
    const REQUEST: u32 = ZRS_IOC_MEM_ALLOC;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_open {
    const REQUEST: u32 = ZRS_IOC_MEM_OPEN;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_broker {
    const REQUEST: u32 = ZRS_IOC_MEM_BROKER;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_drain {
    const REQUEST: u32 = ZRS_IOC_MEM_DRAIN;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_queue {
    const REQUEST: u32 = ZRS_IOC_MEM_QUEUE;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_region {
    const REQUEST: u32 = ZRS_IOC_MEM_REGION;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_free {
    const REQUEST: u32 = ZRS_IOC_MEM_FREE;
}
// SAFETY: as above.
unsafe impl Argument for zrs_ioc_mem_stats {
    const REQUEST: u32 = ZRS_IOC_MEM_STATS;
}

impl Device {
    /// Where the module puts its device.
    pub const PATH: &'static str = "/dev/zrs";

    /// Opens `/dev/zrs`. ENOENT: the module is not loaded.
    pub fn open() -> io::Result<Self> {
        File::options()
            .read(true)
            .write(true)
            .open(Self::PATH)
            .map(Self)
    }

    fn call<T: Argument>(&self, arg: &mut T) -> io::Result<libc::c_int> {
        // SAFETY: `arg` is one `T`; by `Argument` the request reads and writes only that.
        let r = unsafe { libc::ioctl(self.0.as_raw_fd(), T::REQUEST as _, &raw mut *arg) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(r)
    }

    /// ZRS_IOC_VERSION.
    pub fn version(&self) -> io::Result<zrs_ioc_version> {
        let mut arg = zrs_ioc_version::default();
        self.call(&mut arg)?;
        Ok(arg)
    }

    /// ZRS_IOC_SOCKET: the same as `socket(family, type_ | flags, IPPROTO_ZRS)`, but EPERM under a
    /// seccomp filter.
    pub fn socket(&self, family: u32, type_: u32, flags: u32) -> io::Result<OwnedFd> {
        let mut arg = zrs_ioc_socket {
            family,
            type_,
            flags,
            reserved: 0,
        };
        let fd = self.call(&mut arg)?;
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// ZRS_IOC_STATS.
    pub fn stats(&self) -> io::Result<zrs_ioc_stats> {
        let mut arg = zrs_ioc_stats::default();
        self.call(&mut arg)?;
        Ok(arg)
    }

    /// ZRS_IOC_POOL: the pool at or after `cursor`; its own cursor is the next. None at the end.
    pub fn pool(&self, cursor: u64) -> io::Result<Option<zrs_ioc_pool>> {
        self.entry(zrs_ioc_pool {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_POOL, as [`Device::pool`], with devices that ZRS cannot use. EINVAL from modules that
    /// do not list them.
    pub fn pool_or_lack(&self, cursor: u64) -> io::Result<Option<zrs_ioc_pool>> {
        self.entry(zrs_ioc_pool {
            cursor,
            lack: crate::abi::ZRS_POOL_ALL,
            ..Default::default()
        })
    }

    /// ZRS_IOC_CACHE, as [`Device::pool`].
    pub fn cache(&self, cursor: u64) -> io::Result<Option<zrs_ioc_cache>> {
        self.entry(zrs_ioc_cache {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_LINK, as [`Device::pool`].
    pub fn link(&self, cursor: u64) -> io::Result<Option<zrs_ioc_link>> {
        self.entry(zrs_ioc_link {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_SOCK, as [`Device::pool`].
    pub fn sock(&self, cursor: u64) -> io::Result<Option<zrs_ioc_sock>> {
        self.entry(zrs_ioc_sock {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_DGRAM, as [`Device::pool`].
    pub fn dgram(&self, cursor: u64) -> io::Result<Option<zrs_ioc_dgram>> {
        self.entry(zrs_ioc_dgram {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_TABLE.
    pub fn table(&self) -> io::Result<zrs_ioc_table> {
        let mut arg = zrs_ioc_table::default();
        self.call(&mut arg)?;
        Ok(arg)
    }

    /// ZRS_RULES_LIST, as [`Device::pool`].
    pub fn rule(&self, cursor: u64) -> io::Result<Option<zrs_ioc_rules>> {
        self.entry(zrs_ioc_rules {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_RULES_SET: these rules replace all.
    pub fn set_rules(&self, rules: &[zrs_rule]) -> io::Result<()> {
        let count =
            u32::try_from(rules.len()).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
        let mut arg = zrs_ioc_rules {
            op: ZRS_RULES_SET,
            rules: rules.as_ptr() as u64,
            count,
            ..Default::default()
        };
        self.call(&mut arg).map(drop)
    }

    /// ZRS_RULES_ADD: a rule behind `at` others, or behind all.
    pub fn add_rule(&self, rule: zrs_rule, at: u32) -> io::Result<()> {
        let mut arg = zrs_ioc_rules {
            op: ZRS_RULES_ADD,
            rule,
            at,
            ..Default::default()
        };
        self.call(&mut arg).map(drop)
    }

    /// ZRS_RULES_DEL: the first that equals `rule`.
    pub fn remove_rule(&self, rule: zrs_rule) -> io::Result<()> {
        let mut arg = zrs_ioc_rules {
            op: ZRS_RULES_DEL,
            rule,
            ..Default::default()
        };
        self.call(&mut arg).map(drop)
    }

    /// ZRS_PEERS_LIST, as [`Device::pool`].
    pub fn peer(&self, cursor: u64) -> io::Result<Option<zrs_ioc_peers>> {
        self.entry(zrs_ioc_peers {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_PEERS_SET: these entries replace all.
    pub fn set_peers(&self, peers: &[zrs_peer]) -> io::Result<()> {
        let count =
            u32::try_from(peers.len()).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
        let mut arg = zrs_ioc_peers {
            op: ZRS_PEERS_SET,
            peers: peers.as_ptr() as u64,
            count,
            ..Default::default()
        };
        self.call(&mut arg).map(drop)
    }

    /// ZRS_PEERS_PUT: an entry, instead of that of the same network.
    pub fn put_peer(&self, peer: zrs_peer) -> io::Result<()> {
        let mut arg = zrs_ioc_peers {
            op: ZRS_PEERS_PUT,
            peer,
            ..Default::default()
        };
        self.call(&mut arg).map(drop)
    }

    /// ZRS_PEERS_DEL: the entry of this network.
    pub fn remove_peer(&self, peer: zrs_peer) -> io::Result<()> {
        let mut arg = zrs_ioc_peers {
            op: ZRS_PEERS_DEL,
            peer: zrs_peer { action: 0, ..peer },
            ..Default::default()
        };
        self.call(&mut arg).map(drop)
    }

    /// ZRS_PEERS_COUNTS. EPERM without CAP_NET_ADMIN in the first user namespace.
    pub fn peer_counts(&self) -> io::Result<zrs_ioc_peers> {
        let mut arg = zrs_ioc_peers {
            op: ZRS_PEERS_COUNTS,
            ..Default::default()
        };
        self.call(&mut arg)?;
        Ok(arg)
    }

    /// ZRS_KEYS_LIST, as [`Device::pool`].
    pub fn key(&self, cursor: u64) -> io::Result<Option<zrs_ioc_keys>> {
        self.entry(zrs_ioc_keys {
            cursor,
            ..Default::default()
        })
    }

    fn keys(&self, op: u32, key: zrs_key) -> io::Result<zrs_ioc_keys> {
        let mut arg = zrs_ioc_keys {
            op,
            key,
            ..Default::default()
        };
        self.call(&mut arg)?;
        Ok(arg)
    }

    /// ZRS_KEYS_PUT: the key of this network and name, from the caller's keyrings.
    pub fn put_key(&self, key: zrs_key) -> io::Result<()> {
        self.keys(ZRS_KEYS_PUT, key).map(drop)
    }

    /// ZRS_KEYS_DEL: the key of this network and name; without a name, all of the network.
    pub fn remove_key(&self, key: zrs_key) -> io::Result<()> {
        self.keys(ZRS_KEYS_DEL, key).map(drop)
    }

    /// ZRS_KEYS_COUNTS. EPERM without CAP_NET_ADMIN in the first user namespace.
    pub fn key_counts(&self) -> io::Result<zrs_ioc_keys> {
        self.keys(ZRS_KEYS_COUNTS, zrs_key::default())
    }

    /// ZRS_IOC_FALLBACK.
    pub fn fallback(&self) -> io::Result<zrs_ioc_fallback> {
        let mut arg = zrs_ioc_fallback::default();
        self.call(&mut arg)?;
        Ok(arg)
    }

    fn make<T: Argument>(&self, arg: &mut T) -> io::Result<OwnedFd> {
        let fd = self.call(arg)?;
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// ZRS_IOC_MEM_SERVE: the node ends with the descriptor.
    pub fn mem_serve(&self, mut arg: zrs_ioc_mem_serve) -> io::Result<OwnedFd> {
        self.make(&mut arg)
    }

    /// ZRS_IOC_MEM_NODES, but for its list.
    pub fn mem_nodes(&self, mut arg: zrs_ioc_mem_nodes) -> io::Result<()> {
        self.call(&mut arg).map(drop)
    }

    /// The list of ZRS_IOC_MEM_NODES, as [`Device::pool`].
    pub fn mem_node(&self, cursor: u64) -> io::Result<Option<zrs_ioc_mem_nodes>> {
        self.entry(zrs_ioc_mem_nodes {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_MEM_ALLOC: the region's descriptor and storage id.
    pub fn mem_alloc(&self, mut arg: zrs_ioc_mem_alloc) -> io::Result<(OwnedFd, zrs_mem_storage)> {
        let fd = self.make(&mut arg)?;
        Ok((fd, arg.storage))
    }

    /// ZRS_IOC_MEM_BROKER: the rule ends with the descriptor.
    pub fn mem_broker(&self, mut arg: zrs_ioc_mem_broker) -> io::Result<OwnedFd> {
        self.make(&mut arg)
    }

    /// ZRS_IOC_MEM_DRAIN.
    pub fn mem_drain(&self, mut arg: zrs_ioc_mem_drain) -> io::Result<()> {
        self.call(&mut arg).map(drop)
    }

    /// ZRS_IOC_MEM_QUEUE, of that many entries.
    pub fn mem_queue(&self, entries: u32) -> io::Result<MemQueue> {
        let mut arg = zrs_ioc_mem_queue {
            entries,
            ..Default::default()
        };
        self.make(&mut arg).map(MemQueue::from)
    }

    /// ZRS_IOC_MEM_QUEUE, for [`submit`](crate::queue::submit) and [`reap`](crate::queue::reap):
    /// reads of it do not wait.
    pub fn mem_queue_fd(&self, entries: u32) -> io::Result<OwnedFd> {
        let mut arg = zrs_ioc_mem_queue {
            entries,
            ..Default::default()
        };
        let fd: OwnedFd = self.make(&mut arg)?;
        // SAFETY: the call takes an integer.
        let r = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(fd)
    }

    /// ZRS_IOC_MEM_OPEN.
    pub fn mem_open(&self, mut arg: zrs_ioc_mem_open) -> io::Result<OwnedFd> {
        self.make(&mut arg)
    }

    /// ZRS_IOC_MEM_REGION, as [`Device::pool`].
    pub fn mem_region(&self, cursor: u64) -> io::Result<Option<zrs_ioc_mem_region>> {
        self.entry(zrs_ioc_mem_region {
            cursor,
            ..Default::default()
        })
    }

    /// ZRS_IOC_MEM_STATS.
    pub fn mem_stats(&self) -> io::Result<zrs_ioc_mem_stats> {
        let mut arg = zrs_ioc_mem_stats::default();
        self.call(&mut arg)?;
        Ok(arg)
    }

    /// ZRS_IOC_MEM_FREE.
    pub fn mem_free(&self, mut arg: zrs_ioc_mem_free) -> io::Result<()> {
        self.call(&mut arg).map(drop)
    }

    fn entry<T: Argument>(&self, mut arg: T) -> io::Result<Option<T>> {
        match self.call(&mut arg) {
            Ok(_) => Ok(Some(arg)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl From<File> for Device {
    /// Of a file that was opened before, or elsewhere.
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
