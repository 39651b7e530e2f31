// SPDX-License-Identifier: GPL-2.0

//! The UAPI as Rust: the structures of `uapi/linux/zrs.h` from our bindgen pass, as plain bytes,
//! and the numbers of the ioctls, which bindgen cannot compute.

use crate::bindings;
pub use crate::bindings::{
    zrs_desc, zrs_dgram_info, zrs_info, zrs_ioc_cache, zrs_ioc_dgram, zrs_ioc_fallback,
    zrs_ioc_keys, zrs_ioc_link, zrs_ioc_mem_alloc, zrs_ioc_mem_broker, zrs_ioc_mem_drain,
    zrs_ioc_mem_free, zrs_ioc_mem_nodes, zrs_ioc_mem_open, zrs_ioc_mem_queue, zrs_ioc_mem_region,
    zrs_ioc_mem_serve, zrs_ioc_mem_stats, zrs_ioc_peers, zrs_ioc_pool, zrs_ioc_recv_map,
    zrs_ioc_ring_wait, zrs_ioc_rules, zrs_ioc_sock, zrs_ioc_socket, zrs_ioc_stats, zrs_ioc_table,
    zrs_ioc_version, zrs_key, zrs_mem_cqe, zrs_mem_key, zrs_mem_node, zrs_mem_sqe, zrs_mem_storage,
    zrs_peer, zrs_queue_submit, zrs_region_info, zrs_region_key, zrs_ring, zrs_rule, zrs_rx_ring,
};
use kernel::{
    ioctl::{_IO, _IOW, _IOWR},
    prelude::*,
    transmute::{AsBytes, FromBytes},
    uaccess::{UserPtr, UserSlice},
};

/// Declares that structures are made of integers only, without padding.
macro_rules! plain {
    ($($name:ident),* $(,)?) => {
        $(
            // SAFETY: integers and arrays of them, every bit pattern is a value. That there is no
            // padding, `zrs-sys`'s layout test and the explicit `reserved` fields assure.
            unsafe impl FromBytes for $name {}
            // SAFETY: as above.
            unsafe impl AsBytes for $name {}
        )*
    };
}

plain!(
    zrs_dgram_info,
    zrs_info,
    zrs_ioc_cache,
    zrs_ioc_dgram,
    zrs_ioc_fallback,
    zrs_ioc_keys,
    zrs_ioc_link,
    zrs_ioc_mem_alloc,
    zrs_ioc_mem_broker,
    zrs_ioc_mem_drain,
    zrs_ioc_mem_free,
    zrs_ioc_mem_nodes,
    zrs_ioc_mem_open,
    zrs_ioc_mem_queue,
    zrs_ioc_mem_region,
    zrs_ioc_mem_serve,
    zrs_ioc_mem_stats,
    zrs_ioc_peers,
    zrs_ioc_pool,
    zrs_ioc_recv_map,
    zrs_ioc_ring_wait,
    zrs_ioc_rules,
    zrs_ioc_sock,
    zrs_ioc_socket,
    zrs_ioc_stats,
    zrs_ioc_table,
    zrs_ioc_version,
    zrs_key,
    zrs_mem_cqe,
    zrs_mem_sqe,
    zrs_peer,
    zrs_queue_submit,
    zrs_region_info,
    zrs_region_key,
    zrs_rule,
    zrs_rx_ring,
);

macro_rules! constants {
    ($($name:ident: $ty:ty),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`")]
            pub const $name: $ty = bindings::$name as $ty;
        )*
    };
}

constants!(
    SOL_ZRS: i32,
    ZRS_RX_RING: i32,
    ZRS_INFO: i32,
    ZRS_DGRAM_INFO: i32,
    ZRS_TCP: i32,
    ZRS_DGRAM_UDP: i32,
    ZRS_TCP_NEVER: u32,
    ZRS_TCP_AUTO: u32,
    ZRS_TCP_ONLY: u32,
    ZRS_TCP_REQUIRED: u32,
    ZRS_CARRIER_ZRS: u32,
    ZRS_CARRIER_TCP: u32,
    ZRS_UAPI_VERSION: u32,
    ZRS_RING_VERSION: u32,
    ZRS_NAME_LEN: usize,
    ZRS_DESC_FREE: u32,
    ZRS_DESC_READY: u32,
    ZRS_DESC_HELD: u32,
    ZRS_DESC_DONE: u32,
    ZRS_DESC_KERNEL: u32,
    ZRS_DESC_ESCAPED: u32,
    ZRS_RX_RING_ESCAPE: u32,
    ZRS_RX_RING_SMALL: u32,
    ZRS_ESCAPE_NEVER: u32,
    ZRS_ESCAPE_ALWAYS: u32,
    ZRS_RESIDENCY_BUCKETS: usize,
    ZRS_STATE_CLOSED: u32,
    ZRS_STATE_BOUND: u32,
    ZRS_STATE_LISTEN: u32,
    ZRS_STATE_CONNECTING: u32,
    ZRS_STATE_ESTABLISHED: u32,
    ZRS_STATE_CLOSING: u32,
    ZRS_LINK_CONNECTING: u32,
    ZRS_LINK_UP: u32,
    ZRS_LINK_DOWN: u32,
    ZRS_LINK_F_ACCEPTED: u32,
    ZRS_LINK_F_PROVED: u32,
    ZRS_POOL_ALL: u32,
    ZRS_LACK_OTHER: u32,
    ZRS_LACK_REG: u32,
    ZRS_LACK_SEND_SGE: u32,
    ZRS_LACK_RECV_SGE: u32,
    ZRS_LACK_QP_WR: u32,
    ZRS_LACK_CQE: u32,
    IPPROTO_ZRS: u16,
    IPPROTO_ZRS_AUTO: u16,
    AF_INET: u32,
    AF_INET6: u32,
    ZRS_AREA_OFFSET: u64,
    ZRS_RECV_MAP_DONTWAIT: u32,
    ZRS_RECV_MAP_SHIFT: u32,
    ZRS_RULE_TCP: u32,
    ZRS_RULE_ZRS: u32,
    ZRS_RULE_CONNECT: u32,
    ZRS_RULE_BIND: u32,
    ZRS_RULES_LIST: u32,
    ZRS_RULES_SET: u32,
    ZRS_RULES_ADD: u32,
    ZRS_RULES_DEL: u32,
    ZRS_RULES_MAX: usize,
    ZRS_PEER_ALLOW: u32,
    ZRS_PEER_DENY: u32,
    ZRS_PEERS_LIST: u32,
    ZRS_PEERS_SET: u32,
    ZRS_PEERS_PUT: u32,
    ZRS_PEERS_DEL: u32,
    ZRS_PEERS_COUNTS: u32,
    ZRS_PEERS_MAX: usize,
    ZRS_KEYS_LIST: u32,
    ZRS_KEYS_PUT: u32,
    ZRS_KEYS_DEL: u32,
    ZRS_KEYS_COUNTS: u32,
    ZRS_MEM_KEEP: u32,
    ZRS_MEM_VIA: u32,
    ZRS_MEM_DRAIN_UNDO: u32,
    ZRS_MEM_SERVE_OPEN: u32,
    ZRS_MEM_NODES_LIST: u32,
    ZRS_MEM_NODES_SET: u32,
    ZRS_MEM_NODES_DEL: u32,
    ZRS_MEM_NODES_CLEAR: u32,
    ZRS_MEM_NODES_SELF: u32,
    ZRS_MEM_NODE_UNKNOWN: u32,
    ZRS_MEM_NODE_SERVED: u32,
    ZRS_MEM_NODE_DRAINING: u32,
    ZRS_MEM_NODE_ABSENT: u32,
    ZRS_MEM_QUEUE_MAX: u32,
    ZRS_MEM_OP_COPY: u8,
    ZRS_MEM_OP_WRITE: u8,
    ZRS_MEM_OP_READ: u8,
    ZRS_MEM_OP_CANCEL: u8,
    ZRS_MEM_F_DRAIN: u8,
    ZRS_REGION_LIVE: u32,
    ZRS_REGION_SEALING: u32,
    ZRS_REGION_SEALED: u32,
    ZRS_REGION_CLOSING: u32,
    O_RDWR: u32,
    O_RDONLY: u32,
    O_WRONLY: u32,
    O_CLOEXEC: u32,
);

/// As `sock_type` has it.
pub const SOCK_STREAM: u32 = bindings::sock_type_SOCK_STREAM;
/// As `sock_type` has it.
pub const SOCK_DGRAM: u32 = bindings::sock_type_SOCK_DGRAM;

/// Feature bits.
pub const ZRS_FEATURES: u64 = (1 << 20) - 1;

const MAGIC: u32 = bindings::ZRS_IOC_MAGIC;

/// See the header.
pub const ZRS_IOC_VERSION: u32 = _IOWR::<zrs_ioc_version>(MAGIC, 0x00);
/// See the header.
pub const ZRS_IOC_SOCKET: u32 = _IOW::<zrs_ioc_socket>(MAGIC, 0x01);
/// See the header.
pub const ZRS_IOC_STATS: u32 = _IOWR::<zrs_ioc_stats>(MAGIC, 0x02);
/// See the header.
pub const ZRS_IOC_POOL: u32 = _IOWR::<zrs_ioc_pool>(MAGIC, 0x03);
/// See the header.
pub const ZRS_IOC_LINK: u32 = _IOWR::<zrs_ioc_link>(MAGIC, 0x04);
/// See the header.
pub const ZRS_IOC_SOCK: u32 = _IOWR::<zrs_ioc_sock>(MAGIC, 0x05);
/// See the header.
pub const ZRS_IOC_TABLE: u32 = _IOWR::<zrs_ioc_table>(MAGIC, 0x06);
/// See the header.
pub const ZRS_IOC_CACHE: u32 = _IOWR::<zrs_ioc_cache>(MAGIC, 0x07);
/// See the header.
pub const ZRS_IOC_RULES: u32 = _IOWR::<zrs_ioc_rules>(MAGIC, 0x08);
/// See the header.
pub const ZRS_IOC_FALLBACK: u32 = _IOWR::<zrs_ioc_fallback>(MAGIC, 0x09);
/// See the header.
pub const ZRS_IOC_PEERS: u32 = _IOWR::<zrs_ioc_peers>(MAGIC, 0x0a);
/// See the header.
pub const ZRS_IOC_KEYS: u32 = _IOWR::<zrs_ioc_keys>(MAGIC, 0x0b);
/// See the header.
pub const ZRS_IOC_DGRAM: u32 = _IOWR::<zrs_ioc_dgram>(MAGIC, 0x20);
/// See the header.
pub const ZRS_IOC_MEM_SERVE: u32 = _IOW::<zrs_ioc_mem_serve>(MAGIC, 0x10);
/// See the header.
pub const ZRS_IOC_MEM_NODES: u32 = _IOWR::<zrs_ioc_mem_nodes>(MAGIC, 0x11);
/// See the header.
pub const ZRS_IOC_MEM_ALLOC: u32 = _IOWR::<zrs_ioc_mem_alloc>(MAGIC, 0x12);
/// See the header.
pub const ZRS_IOC_MEM_OPEN: u32 = _IOW::<zrs_ioc_mem_open>(MAGIC, 0x13);
/// See the header.
pub const ZRS_IOC_MEM_BROKER: u32 = _IOW::<zrs_ioc_mem_broker>(MAGIC, 0x17);
/// See the header.
pub const ZRS_IOC_MEM_DRAIN: u32 = _IOW::<zrs_ioc_mem_drain>(MAGIC, 0x18);
/// See the header.
pub const ZRS_IOC_MEM_QUEUE: u32 = _IOW::<zrs_ioc_mem_queue>(MAGIC, 0x14);
/// See the header.
pub const ZRS_IOC_MEM_REGION: u32 = _IOWR::<zrs_ioc_mem_region>(MAGIC, 0x15);
/// See the header.
pub const ZRS_IOC_MEM_FREE: u32 = _IOW::<zrs_ioc_mem_free>(MAGIC, 0x16);
/// See the header.
pub const ZRS_IOC_MEM_STATS: u32 = _IOWR::<zrs_ioc_mem_stats>(MAGIC, 0x19);
/// See the header.
pub const ZRS_REGION_INFO: u32 = _IOWR::<zrs_region_info>(MAGIC, 0x50);
/// See the header.
pub const ZRS_REGION_KEY: u32 = _IOWR::<zrs_region_key>(MAGIC, 0x51);
/// See the header.
pub const ZRS_REGION_UNKEY: u32 = _IOWR::<zrs_region_key>(MAGIC, 0x52);
/// See the header.
pub const ZRS_REGION_SEAL: u32 = _IO(MAGIC, 0x53);
/// See the header.
pub const ZRS_REGION_FREE: u32 = _IO(MAGIC, 0x54);
/// See the header.
pub const ZRS_QUEUE_SUBMIT: u32 = _IOW::<zrs_queue_submit>(MAGIC, 0x58);
/// See the header.
pub const ZRS_IOC_DOORBELL: u32 = _IO(MAGIC, 0x40);
/// See the header.
pub const ZRS_IOC_RING_WAIT: u32 = _IOW::<zrs_ioc_ring_wait>(MAGIC, 0x41);
/// See the header.
pub const ZRS_IOC_RECV_MAP: u32 = _IOWR::<zrs_ioc_recv_map>(MAGIC, 0x42);

/// Reads a structure once, lets `f` fill it, writes it back.
pub fn answer<T: FromBytes + AsBytes>(
    arg: usize,
    f: impl FnOnce(&mut T) -> Result,
) -> Result<isize> {
    let slice = UserSlice::new(UserPtr::from_addr(arg), size_of::<T>());
    let (mut reader, mut writer) = slice.reader_writer();
    let mut value: T = reader.read()?;
    let before = T::from_bytes_copy(value.as_bytes()).ok_or(EINVAL)?;
    f(&mut value)?;
    // A request that only changes something does not fail once it has.
    if value.as_bytes() != before.as_bytes() {
        writer.write(&value)?;
    }
    Ok(0)
}

/// EINVAL unless all are 0, as reserved fields must be.
pub fn zero(reserved: &[u64]) -> Result {
    let zero = reserved.iter().all(|r| *r == 0);
    zero.then_some(()).ok_or(EINVAL)
}

/// Reads a structure.
pub fn read<T: FromBytes>(arg: usize) -> Result<T> {
    let slice = UserSlice::new(UserPtr::from_addr(arg), size_of::<T>());
    slice.reader().read()
}
