// SPDX-License-Identifier: GPL-2.0
//! Memory nodes: RAM that hosts serve to each other, and copies between them.
//!
//! A [`Region`] is a regular file: it is read and written at positions, and
//! `copy_file_range(2)` between regions of two nodes has the first node write to the second one, so
//! that no byte passes this host. `File::from(OwnedFd::from(region))` makes it a [`std::fs::File`],
//! whose `std::io::copy()` does the same.
//!
//! Nodes have numbers, in a domain if they are of several:
//!
//! ```
//! use zrs::mem::NodeId;
//!
//! let node: NodeId = "1:2".parse().unwrap();
//! assert_eq!((node.domain, node.node), (1, 2));
//! assert_eq!(node.to_string(), "1:2");
//! assert!("1:2:3".parse::<NodeId>().is_err());
//! ```

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

pub use zrs_core::mem::id::{Key, NodeId, StorageId};
pub use zrs_core::mem::rights::Rights;
pub use zrs_core::mem::text::RemoteStorage;
use zrs_sys::{abi, region};

use crate::{addr, Zrs};

mod queue;

pub use queue::{Completed, Queue};

/// The key that a node is served with, and that allocations show.
pub type Admission = [u8; 16];

/// A node that this process serves, until it is dropped.
#[derive(Debug)]
pub struct Serving(OwnedFd);

impl AsFd for Serving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Of a descriptor that was served before, and kept elsewhere.
impl From<OwnedFd> for Serving {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

/// A rule of this host's broker, until it is dropped.
#[derive(Debug)]
pub struct Broking(OwnedFd);

impl AsFd for Broking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A region of the node that this host serves.
#[derive(Clone, Copy, Debug)]
pub struct ServedRegion {
    /// Number and generation.
    pub id: (u32, u32),
    /// Its length in bytes.
    pub len: u64,
    /// Number of the host that has allocated it; 0 is this one.
    pub owner: u32,
    /// `ZRS_REGION_*`.
    pub state: u32,
    /// It stays when its owner is gone.
    pub keep: bool,
    /// Operations and grants under way.
    pub holds: u32,
    /// The node's bytes, and those in no region.
    pub node: (NodeId, u64, u64),
}

/// What this host knows of a node: of one that it serves itself as it is now, of another one as its
/// host said when the link that is up was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: there is no link with its host.
    Nothing,
    /// Its host does not serve it.
    Absent,
    /// It is served.
    Served {
        /// It takes no new regions.
        draining: bool,
        /// Another one each time that it is served.
        incarnation: u64,
        /// Bytes that are in no region.
        free: u64,
    },
}

/// A node and the RDMA address of its host.
#[derive(Clone, Copy, Debug)]
pub struct NodeEntry {
    /// The node.
    pub node: NodeId,
    /// The address.
    pub addr: IpAddr,
    /// The interface of a link-local address.
    pub scope_id: u32,
}

/// A node's description of a region.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Length of the region.
    pub len: u64,
    /// Rights of the key that the region was opened with.
    pub rights: Rights,
    /// Keys that are not revoked.
    pub keys: u32,
    /// Operations and grants under way.
    pub holds: u32,
}

/// A request for a region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc {
    /// Where.
    pub node: NodeId,
    /// Its length in bytes.
    pub len: u64,
    /// The address of its first byte, as its owner has it.
    pub va: u64,
    /// It stays when the descriptor is closed.
    pub keep: bool,
    /// Time to live in milliseconds; 0: no end.
    pub ttl_ms: u32,
    /// The admission key of the node, or of the broker; zeroes for one that is open.
    pub admission: Admission,
    /// The host of this node, a broker, allocates the region and owns it.
    pub via: Option<NodeId>,
}

/// The scope of a derived key.
#[derive(Clone, Copy, Debug)]
pub struct Derive {
    /// The operations.
    pub rights: Rights,
    /// The bytes: offset and length.
    pub range: (u64, u64),
    /// Operations that may begin with it; 0: any number.
    pub uses: u32,
    /// Time to live in milliseconds; 0: no end.
    pub ttl_ms: u32,
}

/// A region of a memory node.
#[derive(Debug)]
pub struct Region {
    file: File,
    storage: RemoteStorage,
}

fn abi_node(node: NodeId) -> abi::zrs_mem_node {
    abi::zrs_mem_node {
        domain: node.domain,
        node: node.node,
    }
}

fn node_id(node: abi::zrs_mem_node) -> NodeId {
    NodeId {
        domain: node.domain,
        node: node.node,
    }
}

fn abi_key(key: Key) -> abi::zrs_mem_key {
    abi::zrs_mem_key {
        region: key.region,
        gen: key.gen,
        secret: key.secret,
    }
}

fn key_of(key: abi::zrs_mem_key) -> Key {
    Key {
        region: key.region,
        gen: key.gen,
        secret: key.secret,
    }
}

impl Zrs {
    /// Serves `len` bytes of new memory as node `node`; of huge pages if `huge`. Without an admission
    /// key every host may allocate. Needs CAP_NET_ADMIN.
    pub fn mem_serve(
        &self,
        node: NodeId,
        len: u64,
        huge: bool,
        admission: Option<Admission>,
        host_percent: u32,
    ) -> io::Result<Serving> {
        let memory = region::memory(c"zrs-node", len, huge)?;
        let fd = self.device.mem_serve(abi::zrs_ioc_mem_serve {
            node: abi_node(node),
            memfd: memory.as_raw_fd(),
            flags: if admission.is_none() {
                abi::ZRS_MEM_SERVE_OPEN
            } else {
                0
            },
            len,
            admission: admission.unwrap_or_default(),
            host_percent,
            ..Default::default()
        })?;
        Ok(Serving(fd))
    }

    /// Allocates regions of `node` for other hosts, as their broker, `quota` bytes at most: for
    /// those that show `admission`, or for all. The node wants to be shown `node_admission`. Needs
    /// CAP_NET_ADMIN.
    pub fn mem_broker(
        &self,
        node: NodeId,
        quota: u64,
        admission: Option<Admission>,
        node_admission: Admission,
    ) -> io::Result<Broking> {
        let fd = self.device.mem_broker(abi::zrs_ioc_mem_broker {
            node: abi_node(node),
            quota,
            flags: match admission {
                None => abi::ZRS_MEM_SERVE_OPEN,
                Some(_) => 0,
            },
            admission: admission.unwrap_or_default(),
            node_admission,
            ..Default::default()
        })?;
        Ok(Broking(fd))
    }

    /// A node of this host takes no new regions, or takes them again. Needs CAP_NET_ADMIN.
    pub fn mem_drain(&self, node: NodeId, drain: bool) -> io::Result<()> {
        self.device.mem_drain(abi::zrs_ioc_mem_drain {
            node: abi_node(node),
            flags: if drain { 0 } else { abi::ZRS_MEM_DRAIN_UNDO },
            ..Default::default()
        })
    }

    /// The directory of this network namespace.
    pub fn mem_nodes(&self) -> impl Iterator<Item = io::Result<NodeEntry>> + '_ {
        self.mem_known_nodes().map(|entry| entry.map(|e| e.0))
    }

    /// The directory of this network namespace, and what is known of its nodes.
    pub fn mem_known_nodes(&self) -> impl Iterator<Item = io::Result<(NodeEntry, Known)>> + '_ {
        let mut cursor = 0;
        std::iter::from_fn(move || {
            let entry = self.device.mem_node(cursor).transpose()?;
            Some(entry.map(|e| {
                cursor = e.cursor;
                let known = match e.state {
                    abi::ZRS_MEM_NODE_SERVED | abi::ZRS_MEM_NODE_DRAINING => Known::Served {
                        draining: e.state == abi::ZRS_MEM_NODE_DRAINING,
                        incarnation: e.incarnation,
                        free: e.free,
                    },
                    abi::ZRS_MEM_NODE_ABSENT => Known::Absent,
                    _ => Known::Nothing,
                };
                let entry = NodeEntry {
                    node: node_id(e.node),
                    addr: addr::ip(e.addr),
                    scope_id: e.scope_id,
                };
                (entry, known)
            }))
        })
    }

    fn change_nodes(&self, op: u32, node: NodeId) -> io::Result<()> {
        self.device.mem_nodes(abi::zrs_ioc_mem_nodes {
            node: abi_node(node),
            op,
            ..Default::default()
        })
    }

    /// Adds a node to the directory, or changes its address. Needs CAP_NET_ADMIN, as the next ones.
    pub fn mem_set_node(&self, entry: &NodeEntry) -> io::Result<()> {
        let octets = match entry.addr {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        self.device.mem_nodes(abi::zrs_ioc_mem_nodes {
            node: abi_node(entry.node),
            addr: octets,
            scope_id: entry.scope_id,
            op: abi::ZRS_MEM_NODES_SET,
            ..Default::default()
        })
    }

    /// Removes a node from the directory.
    pub fn mem_remove_node(&self, node: NodeId) -> io::Result<()> {
        self.change_nodes(abi::ZRS_MEM_NODES_DEL, node)
    }

    /// Removes all nodes from the directory.
    pub fn mem_clear_nodes(&self) -> io::Result<()> {
        self.change_nodes(abi::ZRS_MEM_NODES_CLEAR, NodeId::default())
    }

    /// Sets the host's own domain; the directory is empty then.
    pub fn mem_own_domain(&self, domain: u32) -> io::Result<()> {
        self.change_nodes(abi::ZRS_MEM_NODES_SELF, NodeId { domain, node: 0 })
    }

    /// The regions of the node that this host serves. Needs CAP_NET_ADMIN.
    pub fn mem_regions(&self) -> impl Iterator<Item = io::Result<ServedRegion>> + '_ {
        let mut cursor = 0;
        std::iter::from_fn(move || {
            let region = self.device.mem_region(cursor).transpose()?;
            Some(region.map(|r| {
                cursor = r.cursor;
                ServedRegion {
                    id: (r.region, r.gen),
                    len: r.len,
                    owner: r.owner,
                    state: r.state,
                    keep: r.flags & abi::ZRS_MEM_KEEP != 0,
                    holds: r.holds,
                    node: (node_id(r.node), r.node_bytes, r.node_free),
                }
            }))
        })
    }

    /// Frees a region of a node of this host, by number and generation, without a key of it; nothing
    /// can land when this returns. Needs CAP_NET_ADMIN.
    pub fn mem_free(&self, node: NodeId, (region, gen): (u32, u32)) -> io::Result<()> {
        self.device.mem_free(abi::zrs_ioc_mem_free {
            node: abi_node(node),
            region,
            gen,
            ..Default::default()
        })
    }
}

impl Region {
    /// Allocates a region, which is zero.
    pub fn alloc(zrs: &Zrs, request: &Alloc) -> io::Result<Self> {
        let (fd, storage) = zrs.device.mem_alloc(abi::zrs_ioc_mem_alloc {
            node: abi_node(request.node),
            len: request.len,
            va: request.va,
            flags: if request.keep { abi::ZRS_MEM_KEEP } else { 0 }
                | request.via.map_or(0, |_| abi::ZRS_MEM_VIA),
            ttl_ms: request.ttl_ms,
            admission: request.admission,
            via: abi_node(request.via.unwrap_or_default()),
            ..Default::default()
        })?;
        Ok(Self {
            file: File::from(fd),
            storage: RemoteStorage {
                node: request.node,
                storage: StorageId {
                    va: storage.va,
                    len: storage.len,
                    key: key_of(storage.key),
                },
            },
        })
    }

    /// Opens a region by a storage id.
    pub fn open(zrs: &Zrs, storage: RemoteStorage) -> io::Result<Self> {
        Self::open_via(zrs, storage, None)
    }

    /// As [`Region::open`], of a region that the host of the node `via` has allocated as the broker, so
    /// that it can be freed.
    pub fn open_via(zrs: &Zrs, storage: RemoteStorage, via: Option<NodeId>) -> io::Result<Self> {
        let id = storage.storage;
        let fd = zrs.device.mem_open(abi::zrs_ioc_mem_open {
            node: abi_node(storage.node),
            storage: abi::zrs_mem_storage {
                va: id.va,
                len: id.len,
                key: abi_key(id.key),
            },
            via: abi_node(via.unwrap_or_default()),
            flags: via.map_or(0, |_| abi::ZRS_MEM_VIA),
            ..Default::default()
        })?;
        Ok(Self {
            file: File::from(fd),
            storage,
        })
    }

    /// The region of a descriptor that was allocated or opened with `storage`, perhaps by another
    /// process that has passed it on.
    pub fn from_parts(fd: OwnedFd, storage: RemoteStorage) -> Self {
        Self {
            file: File::from(fd),
            storage,
        }
    }

    /// The storage id that the region was made or opened with: any holder may do all that its
    /// key allows.
    pub fn storage(&self) -> RemoteStorage {
        self.storage
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        self.storage.storage.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node's description of the region.
    pub fn info(&self) -> io::Result<Info> {
        let info = region::info(self.as_fd())?;
        Ok(Info {
            len: info.storage.len,
            rights: Rights::from_bits(info.rights).unwrap_or_default(),
            keys: info.keys,
            holds: info.holds,
        })
    }

    /// Derives a key; the storage id to hand on.
    pub fn derive(&self, wanted: &Derive) -> io::Result<RemoteStorage> {
        let (off, len) = wanted.range;
        let key = region::key(
            self.as_fd(),
            abi::zrs_region_key {
                rights: wanted.rights.bits(),
                uses: wanted.uses,
                off,
                len,
                ttl_ms: wanted.ttl_ms,
                ..Default::default()
            },
        )?;
        let storage = StorageId {
            va: self.storage.storage.va + off,
            len,
            key: key_of(key),
        };
        Ok(RemoteStorage {
            storage,
            ..self.storage
        })
    }

    /// Revokes a key and those derived from it; nothing that they let in can land any more when this
    /// returns.
    pub fn revoke(&self, key: Key) -> io::Result<()> {
        region::unkey(self.as_fd(), abi_key(key))
    }

    /// Nothing writes the region any more, and nothing can land when this returns.
    pub fn seal(&self) -> io::Result<()> {
        region::seal(self.as_fd())
    }

    /// Frees the region; nothing can land when this returns.
    pub fn free(self) -> io::Result<()> {
        region::free(self.as_fd())
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Region> for OwnedFd {
    fn from(region: Region) -> Self {
        region.file.into()
    }
}

impl FileExt for Region {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(buf, offset)
    }
}

/// The kernel takes no more in one call.
const MOST: usize = isize::MAX as usize;

/// Has the node of `from` write `len` bytes into the region `to`; how many have landed for sure.
pub fn copy(from: impl AsFd, off: u64, to: impl AsFd, to_off: u64, len: u64) -> io::Result<u64> {
    let (mut at, mut to_at, mut done) = (off, to_off, 0);
    while done < len {
        let part = usize::try_from(len - done).map_or(MOST, |n| n.min(MOST));
        match rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), part) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(_) if done != 0 => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}
