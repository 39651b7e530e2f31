// SPDX-License-Identifier: GPL-2.0
//! `uapi/linux/zrs.h` by hand: the same names, the same layout. `tests/layout.rs` compares all of
//! it with the header. The header documents the fields.
#![allow(non_camel_case_types, missing_docs)]

use std::mem::size_of;

pub const IPPROTO_ZRS: u32 = 253;
/// The same with `ZRS_TCP_AUTO`.
pub const IPPROTO_ZRS_AUTO: u32 = 254;
pub const SOL_ZRS: u32 = 0x5a52;
pub const ZRS_UAPI_VERSION: u32 = 2;

pub const ZRS_FEATURE_STREAM: u64 = 1 << 0;
pub const ZRS_FEATURE_RX_RING: u64 = 1 << 1;
pub const ZRS_FEATURE_RING_WAIT: u64 = 1 << 2;
pub const ZRS_FEATURE_RECV_MAP: u64 = 1 << 3;
pub const ZRS_FEATURE_ESCAPE: u64 = 1 << 4;
pub const ZRS_FEATURE_IPV6: u64 = 1 << 5;
pub const ZRS_FEATURE_TCP: u64 = 1 << 6;
pub const ZRS_FEATURE_DGRAM: u64 = 1 << 7;
pub const ZRS_FEATURE_MEM: u64 = 1 << 8;
pub const ZRS_FEATURE_FALLBACK: u64 = 1 << 9;
pub const ZRS_FEATURE_RULES: u64 = 1 << 10;
pub const ZRS_FEATURE_MEM_QUEUE: u64 = 1 << 11;
pub const ZRS_FEATURE_MEM_BROKER: u64 = 1 << 12;
pub const ZRS_FEATURE_MEM_NODES: u64 = 1 << 13;
pub const ZRS_FEATURE_PEERS: u64 = 1 << 14;
pub const ZRS_FEATURE_KEYS: u64 = 1 << 15;
pub const ZRS_FEATURE_DGRAM_MAP: u64 = 1 << 16;
pub const ZRS_FEATURE_MEM_ADMIN: u64 = 1 << 17;
pub const ZRS_FEATURE_MEM_STATS: u64 = 1 << 18;
pub const ZRS_FEATURE_RING_SMALL: u64 = 1 << 19;

pub const ZRS_IOC_MAGIC: u32 = 0xe7;
pub const ZRS_NAME_LEN: usize = 64;
pub const ZRS_RESIDENCY_BUCKETS: usize = 24;

/// An ioctl number as `_IOC()` of asm-generic makes it.
const fn ioc(dir: u32, nr: u32, size: usize) -> u32 {
    (dir << 30) | ((size as u32) << 16) | (ZRS_IOC_MAGIC << 8) | nr
}
const fn io(nr: u32) -> u32 {
    ioc(0, nr, 0)
}
const fn iow<T>(nr: u32) -> u32 {
    ioc(1, nr, size_of::<T>())
}
const fn iowr<T>(nr: u32) -> u32 {
    ioc(3, nr, size_of::<T>())
}

pub const ZRS_IOC_VERSION: u32 = iowr::<zrs_ioc_version>(0x00);
pub const ZRS_IOC_SOCKET: u32 = iow::<zrs_ioc_socket>(0x01);
pub const ZRS_IOC_STATS: u32 = iowr::<zrs_ioc_stats>(0x02);
pub const ZRS_IOC_POOL: u32 = iowr::<zrs_ioc_pool>(0x03);
pub const ZRS_IOC_LINK: u32 = iowr::<zrs_ioc_link>(0x04);
pub const ZRS_IOC_SOCK: u32 = iowr::<zrs_ioc_sock>(0x05);
pub const ZRS_IOC_TABLE: u32 = iowr::<zrs_ioc_table>(0x06);
pub const ZRS_IOC_CACHE: u32 = iowr::<zrs_ioc_cache>(0x07);
pub const ZRS_IOC_RULES: u32 = iowr::<zrs_ioc_rules>(0x08);
pub const ZRS_IOC_FALLBACK: u32 = iowr::<zrs_ioc_fallback>(0x09);
pub const ZRS_IOC_PEERS: u32 = iowr::<zrs_ioc_peers>(0x0a);
pub const ZRS_IOC_KEYS: u32 = iowr::<zrs_ioc_keys>(0x0b);
pub const ZRS_IOC_DGRAM: u32 = iowr::<zrs_ioc_dgram>(0x20);
pub const ZRS_IOC_MEM_SERVE: u32 = iow::<zrs_ioc_mem_serve>(0x10);
pub const ZRS_IOC_MEM_NODES: u32 = iowr::<zrs_ioc_mem_nodes>(0x11);
pub const ZRS_IOC_MEM_ALLOC: u32 = iowr::<zrs_ioc_mem_alloc>(0x12);
pub const ZRS_IOC_MEM_OPEN: u32 = iow::<zrs_ioc_mem_open>(0x13);
pub const ZRS_IOC_MEM_QUEUE: u32 = iow::<zrs_ioc_mem_queue>(0x14);
pub const ZRS_IOC_MEM_BROKER: u32 = iow::<zrs_ioc_mem_broker>(0x17);
pub const ZRS_IOC_MEM_DRAIN: u32 = iow::<zrs_ioc_mem_drain>(0x18);
pub const ZRS_MEM_DRAIN_UNDO: u32 = 1;
pub const ZRS_IOC_MEM_REGION: u32 = iowr::<zrs_ioc_mem_region>(0x15);
pub const ZRS_IOC_MEM_FREE: u32 = iow::<zrs_ioc_mem_free>(0x16);
pub const ZRS_IOC_MEM_STATS: u32 = iowr::<zrs_ioc_mem_stats>(0x19);
pub const ZRS_REGION_INFO: u32 = iowr::<zrs_region_info>(0x50);
pub const ZRS_REGION_KEY: u32 = iowr::<zrs_region_key>(0x51);
pub const ZRS_REGION_UNKEY: u32 = iowr::<zrs_region_key>(0x52);
pub const ZRS_REGION_SEAL: u32 = io(0x53);
pub const ZRS_REGION_FREE: u32 = io(0x54);
pub const ZRS_QUEUE_SUBMIT: u32 = iow::<zrs_queue_submit>(0x58);
pub const ZRS_IOC_DOORBELL: u32 = io(0x40);
pub const ZRS_IOC_RING_WAIT: u32 = iow::<zrs_ioc_ring_wait>(0x41);
pub const ZRS_IOC_RECV_MAP: u32 = iowr::<zrs_ioc_recv_map>(0x42);

pub const ZRS_AREA_OFFSET: u64 = 0x2_0000_0000;
pub const ZRS_RECV_MAP_DONTWAIT: u32 = 1;
pub const ZRS_RECV_MAP_SHIFT: u32 = 2;

pub const ZRS_ESCAPE_NEVER: u32 = 0;
pub const ZRS_ESCAPE_PRESSURE: u32 = 1;
pub const ZRS_ESCAPE_ALWAYS: u32 = 2;

pub const ZRS_RULE_TCP: u32 = 1;
pub const ZRS_RULE_ZRS: u32 = 2;
pub const ZRS_RULE_CONNECT: u32 = 1;
pub const ZRS_RULE_BIND: u32 = 2;
pub const ZRS_RULES_LIST: u32 = 0;
pub const ZRS_RULES_SET: u32 = 1;
pub const ZRS_RULES_ADD: u32 = 2;
pub const ZRS_RULES_DEL: u32 = 3;
pub const ZRS_RULES_MAX: usize = 1024;
pub const ZRS_WHY_MAX: usize = 32;
pub const ZRS_PEER_ALLOW: u32 = 1;
pub const ZRS_PEER_DENY: u32 = 2;
pub const ZRS_PEERS_LIST: u32 = 0;
pub const ZRS_PEERS_SET: u32 = 1;
pub const ZRS_PEERS_PUT: u32 = 2;
pub const ZRS_PEERS_DEL: u32 = 3;
pub const ZRS_PEERS_COUNTS: u32 = 4;
pub const ZRS_PEERS_MAX: usize = 1024;
pub const ZRS_KEY_NAME_LEN: usize = 64;
pub const ZRS_KEYS_LIST: u32 = 0;
pub const ZRS_KEYS_PUT: u32 = 1;
pub const ZRS_KEYS_DEL: u32 = 2;
pub const ZRS_KEYS_COUNTS: u32 = 3;
pub const ZRS_KEYS_MAX: usize = 1024;

pub const ZRS_MEM_READ: u32 = 1;
pub const ZRS_MEM_WRITE: u32 = 2;
pub const ZRS_MEM_GRANT: u32 = 4;
pub const ZRS_MEM_FREE: u32 = 8;
pub const ZRS_MEM_SERVE_OPEN: u32 = 1;
pub const ZRS_MEM_NODES_LIST: u32 = 0;
pub const ZRS_MEM_NODES_SET: u32 = 1;
pub const ZRS_MEM_NODES_DEL: u32 = 2;
pub const ZRS_MEM_NODES_CLEAR: u32 = 3;
pub const ZRS_MEM_NODES_SELF: u32 = 4;
pub const ZRS_MEM_NODE_UNKNOWN: u32 = 0;
pub const ZRS_MEM_NODE_SERVED: u32 = 1;
pub const ZRS_MEM_NODE_DRAINING: u32 = 2;
pub const ZRS_MEM_NODE_ABSENT: u32 = 3;
pub const ZRS_MEM_KEEP: u32 = 1;
pub const ZRS_MEM_VIA: u32 = 2;
pub const ZRS_MEM_QUEUE_MAX: u32 = 4096;
pub const ZRS_MEM_OP_COPY: u8 = 1;
pub const ZRS_MEM_OP_WRITE: u8 = 2;
pub const ZRS_MEM_OP_READ: u8 = 3;
pub const ZRS_MEM_OP_CANCEL: u8 = 4;
pub const ZRS_MEM_F_DRAIN: u8 = 1;
pub const ZRS_MEM_OP_LEN_MAX: u64 = 1 << 30;
pub const ZRS_REGION_LIVE: u32 = 0;
pub const ZRS_REGION_SEALING: u32 = 1;
pub const ZRS_REGION_SEALED: u32 = 2;
pub const ZRS_REGION_CLOSING: u32 = 3;

pub const ZRS_LINK_CONNECTING: u32 = 1;
pub const ZRS_LINK_UP: u32 = 2;
pub const ZRS_LINK_DOWN: u32 = 3;
pub const ZRS_LINK_F_ACCEPTED: u32 = 1;
pub const ZRS_LINK_F_PROVED: u32 = 2;

pub const ZRS_POOL_ALL: u32 = 1;
pub const ZRS_LACK_OTHER: u32 = 1;
pub const ZRS_LACK_REG: u32 = 2;
pub const ZRS_LACK_SEND_SGE: u32 = 3;
pub const ZRS_LACK_RECV_SGE: u32 = 4;
pub const ZRS_LACK_QP_WR: u32 = 5;
pub const ZRS_LACK_CQE: u32 = 6;

pub const ZRS_STATE_CLOSED: u32 = 0;
pub const ZRS_STATE_BOUND: u32 = 1;
pub const ZRS_STATE_LISTEN: u32 = 2;
pub const ZRS_STATE_CONNECTING: u32 = 3;
pub const ZRS_STATE_ESTABLISHED: u32 = 4;
pub const ZRS_STATE_CLOSING: u32 = 5;

pub const ZRS_RING_VERSION: u32 = 2;
pub const ZRS_RX_RING: u32 = 1;
pub const ZRS_INFO: u32 = 2;
pub const ZRS_TCP: u32 = 3;
/// `ZRS_DGRAM_UDP`
pub const ZRS_DGRAM_UDP: u32 = 16;
pub const ZRS_DGRAM_INFO: u32 = 17;

pub const ZRS_TCP_NEVER: u32 = 0;
pub const ZRS_TCP_AUTO: u32 = 1;
pub const ZRS_TCP_REQUIRED: u32 = 2;
pub const ZRS_TCP_ONLY: u32 = 3;

pub const ZRS_WHY_NONE: u32 = 0;
pub const ZRS_WHY_ASKED: u32 = 1;
pub const ZRS_WHY_LOCAL: u32 = 2;
pub const ZRS_WHY_DRAIN: u32 = 3;
pub const ZRS_WHY_KNOWN: u32 = 4;
pub const ZRS_WHY_NO_ZRS: u32 = 5;
pub const ZRS_WHY_SLOW: u32 = 6;
pub const ZRS_WHY_NO_LISTENER: u32 = 7;
pub const ZRS_WHY_NO_RESOURCES: u32 = 8;
pub const ZRS_WHY_RULE: u32 = 9;
pub const ZRS_WHY_ASKING: u32 = 10;
pub const ZRS_WHY_PEER: u32 = 11;
pub const ZRS_WHY_OFF: u32 = 12;
pub const ZRS_WHY_KEY: u32 = 13;
pub const ZRS_WHY_NO_NEW_PRIVS: u32 = 14;

pub const ZRS_CARRIER_ZRS: u32 = 1;
pub const ZRS_CARRIER_TCP: u32 = 2;

pub const ZRS_RX_RING_ESCAPE: u32 = 1;
pub const ZRS_RX_RING_SMALL: u32 = 2;

pub const ZRS_DESC_FREE: u32 = 0;
pub const ZRS_DESC_READY: u32 = 1;
pub const ZRS_DESC_HELD: u32 = 2;
pub const ZRS_DESC_DONE: u32 = 3;
pub const ZRS_DESC_KERNEL: u32 = 4;
pub const ZRS_DESC_ESCAPED: u32 = 5;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_version {
    pub version: u32,
    pub reserved: u32,
    pub features: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_socket {
    pub family: u32,
    pub type_: u32,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_stats {
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub tx_copied: u64,
    pub rx_copied: u64,
    pub rx_spilled: u64,
    pub work_requests: u64,
    pub recv_requests: u64,
    pub completions: u64,
    pub empty_events: u64,
    pub resources_made: u64,
    pub pages_pinned: u64,
    pub sockets: u64,
    pub channels: u64,
    pub links: u64,
    pub pool_bytes: u64,
    pub pool_used: u64,
    pub protocol_errors: u64,
    pub signaled: u64,
    pub windows_revoked: u64,
    pub tcp_known: u64,
    pub tcp_no_zrs: u64,
    pub tcp_slow: u64,
    pub tcp_no_listener: u64,
    pub tcp_no_resources: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zrs_ioc_pool {
    pub cursor: u64,
    pub device: [u8; ZRS_NAME_LEN],
    pub bytes: u64,
    pub block_bytes: u64,
    pub window_bytes: u64,
    pub windows: u64,
    pub blocks_held: u64,
    pub cache: u32,
    pub blocks: u32,
    pub blocks_low: u32,
    pub lack: u32,
    pub lack_has: u32,
    pub lack_needs: u32,
    pub blocks_lent: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zrs_ioc_link {
    pub cursor: u64,
    pub device: [u8; ZRS_NAME_LEN],
    pub local_addr: u32,
    pub remote_addr: u32,
    pub state: u32,
    pub channels: u32,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub flags: u32,
    pub waiting: u32,
    pub bulk: u32,
    pub bulk_max: u32,
    pub waits: u64,
    pub id: u32,
    pub dgram_drops: u32,
    pub local_addr6: [u8; 16],
    pub remote_addr6: [u8; 16],
    pub scope_id: u32,
    pub reserved1: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_info {
    pub state: u32,
    pub channel: u32,
    pub local_addr: u32,
    pub remote_addr: u32,
    pub local_port: u16,
    pub remote_port: u16,
    pub uid: u32,
    pub inode: u64,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub tx_copied: u64,
    pub rx_copied: u64,
    pub tx_queued: u64,
    pub rx_queued: u64,
    pub window: u64,
    pub peer_window: u64,
    pub backlog: u32,
    pub error: u32,
    pub link: u32,
    pub backlog_max: u32,
    pub carriers: u32,
    pub why: u32,
    pub reserved: [u64; 2],
    pub local_addr6: [u8; 16],
    pub remote_addr6: [u8; 16],
    pub family: u32,
    pub local_scope_id: u32,
    pub remote_scope_id: u32,
    pub tcp: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_sock {
    pub cursor: u64,
    pub info: zrs_info,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_dgram_info {
    pub family: u32,
    pub uid: u32,
    pub inode: u64,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub tx_datagrams: u64,
    pub rx_datagrams: u64,
    pub tx_queued: u64,
    pub rx_queued: u64,
    pub rx_waiting: u32,
    pub rx_drops: u32,
    pub tx_drops: u32,
    pub error: u32,
    pub sndbuf: u32,
    pub rcvbuf: u32,
    pub local_addr6: [u8; 16],
    pub remote_addr6: [u8; 16],
    pub local_port: u16,
    pub remote_port: u16,
    pub local_scope_id: u32,
    pub remote_scope_id: u32,
    pub reserved0: u32,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_dgram {
    pub cursor: u64,
    pub info: zrs_dgram_info,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_table {
    pub hot_slots: u32,
    pub near_places: u32,
    pub ways: u32,
    pub most: u32,
    pub entries: u32,
    pub hot: u32,
    pub near: u32,
    pub reserved0: u32,
    pub hits: u64,
    pub near_hits: u64,
    pub faults: u64,
    pub parked: u64,
    pub evicted: u64,
    pub contended: u64,
    pub reserved: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_cache {
    pub cursor: u64,
    pub node: i32,
    pub policy: u32,
    pub devices: u32,
    pub residency_us: u32,
    pub cache_bytes: u64,
    pub rate: u64,
    pub bytes: u64,
    pub small_bytes: u64,
    pub large_bytes: u64,
    pub small_high: u64,
    pub large_high: u64,
    pub small_share: u64,
    pub unread: u64,
    pub unread_high: u64,
    pub escapes: u64,
    pub escaped_bytes: u64,
    pub escaped: u64,
    pub escape_failures: u64,
    pub escape_reserved: u64,
    pub escape_max: u64,
    pub waits: u64,
    pub denied: u64,
    pub refused: u64,
    pub dry: u64,
    pub residency: [u64; ZRS_RESIDENCY_BUCKETS],
    pub reserved: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_rx_ring {
    pub flags: u32,
    pub entries: u32,
    pub ring_offset: u64,
    pub ring_bytes: u64,
    pub window_offset: u64,
    pub window_bytes: u64,
    pub escape_offset: u64,
    pub escape_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_desc {
    pub pos: u64,
    pub off: u32,
    pub len: u32,
    pub state: u32,
    pub escape_off: u32,
    pub reserved1: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ring {
    pub version: u32,
    pub entries: u32,
    pub desc_offset: u32,
    pub reserved0: u32,
    pub first: u64,
    pub reserved1: [u64; 5],
    pub head: u64,
    pub reserved2: [u64; 7],
    pub need_credit: u32,
    pub reserved3: [u32; 15],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_ring_wait {
    pub head: u64,
    pub timeout_ns: u64,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_recv_map {
    pub addr: u64,
    pub len: u64,
    pub copied: u64,
    pub flags: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

impl Default for zrs_ioc_pool {
    fn default() -> Self {
        Self {
            cursor: 0,
            device: [0; ZRS_NAME_LEN],
            bytes: 0,
            block_bytes: 0,
            window_bytes: 0,
            windows: 0,
            blocks_held: 0,
            cache: 0,
            blocks: 0,
            blocks_low: 0,
            lack: 0,
            lack_has: 0,
            lack_needs: 0,
            blocks_lent: 0,
            reserved: 0,
        }
    }
}

impl Default for zrs_ioc_link {
    fn default() -> Self {
        Self {
            cursor: 0,
            device: [0; ZRS_NAME_LEN],
            local_addr: 0,
            remote_addr: 0,
            state: 0,
            channels: 0,
            tx_bytes: 0,
            rx_bytes: 0,
            flags: 0,
            waiting: 0,
            bulk: 0,
            bulk_max: 0,
            waits: 0,
            id: 0,
            dgram_drops: 0,
            local_addr6: [0; 16],
            remote_addr6: [0; 16],
            scope_id: 0,
            reserved1: 0,
        }
    }
}

/// A memory node; domain 0 is the host's own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct zrs_mem_node {
    pub domain: u32,
    pub node: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct zrs_mem_key {
    pub region: u32,
    pub gen: u32,
    pub secret: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct zrs_mem_storage {
    pub va: u64,
    pub len: u64,
    pub key: zrs_mem_key,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_serve {
    pub node: zrs_mem_node,
    pub memfd: i32,
    pub flags: u32,
    pub offset: u64,
    pub len: u64,
    pub admission: [u8; 16],
    pub host_percent: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct zrs_rule {
    pub action: u32,
    pub calls: u32,
    pub family: u32,
    pub prefix_len: u32,
    pub addr: [u8; 16],
    pub first_port: u16,
    pub last_port: u16,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_rules {
    pub cursor: u64,
    pub rules: u64,
    pub op: u32,
    pub count: u32,
    pub rule: zrs_rule,
    pub at: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_fallback {
    pub by_why: [u64; ZRS_WHY_MAX],
    pub known: u32,
    pub known_max: u32,
    pub reserved: [u64; 7],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct zrs_peer {
    pub action: u32,
    pub family: u32,
    pub prefix_len: u32,
    pub reserved: u32,
    pub addr: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_peers {
    pub cursor: u64,
    pub peers: u64,
    pub op: u32,
    pub count: u32,
    pub peer: zrs_peer,
    pub refused: u64,
    pub unasked: u64,
    pub refused_there: u64,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct zrs_key {
    pub family: u32,
    pub prefix_len: u32,
    pub addr: [u8; 16],
    pub name: [u8; ZRS_KEY_NAME_LEN],
}

impl Default for zrs_key {
    fn default() -> Self {
        Self {
            family: 0,
            prefix_len: 0,
            addr: [0; 16],
            name: [0; ZRS_KEY_NAME_LEN],
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_keys {
    pub cursor: u64,
    pub op: u32,
    pub error: u32,
    pub key: zrs_key,
    pub proved: u64,
    pub unoffered: u64,
    pub keyless: u64,
    pub wrong: u64,
    pub unusable: u64,
    pub silent: u64,
    pub refused_there: u64,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_nodes {
    pub cursor: u64,
    pub node: zrs_mem_node,
    pub addr: [u8; 16],
    pub scope_id: u32,
    pub op: u32,
    pub own_domain: u32,
    pub state: u32,
    pub incarnation: u64,
    pub free: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_alloc {
    pub node: zrs_mem_node,
    pub len: u64,
    pub va: u64,
    pub flags: u32,
    pub ttl_ms: u32,
    pub admission: [u8; 16],
    pub storage: zrs_mem_storage,
    pub via: zrs_mem_node,
    pub reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_broker {
    pub node: zrs_mem_node,
    pub quota: u64,
    pub admission: [u8; 16],
    pub node_admission: [u8; 16],
    pub flags: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_drain {
    pub node: zrs_mem_node,
    pub flags: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_queue {
    pub entries: u32,
    pub flags: u32,
    pub reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_mem_sqe {
    pub op: u8,
    pub flags: u8,
    pub reserved0: u16,
    pub fd: i32,
    pub src_fd: i32,
    pub reserved1: u32,
    pub off: u64,
    pub src: u64,
    pub len: u64,
    pub user_data: u64,
    pub reserved2: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_mem_cqe {
    pub user_data: u64,
    pub res: i64,
    pub done: u64,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_queue_submit {
    pub sqes: u64,
    pub count: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_open {
    pub node: zrs_mem_node,
    pub storage: zrs_mem_storage,
    pub via: zrs_mem_node,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_region {
    pub cursor: u64,
    pub node: zrs_mem_node,
    pub len: u64,
    pub region: u32,
    pub gen: u32,
    pub owner: u32,
    pub state: u32,
    pub flags: u32,
    pub holds: u32,
    pub node_bytes: u64,
    pub node_free: u64,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_free {
    pub node: zrs_mem_node,
    pub region: u32,
    pub gen: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_ioc_mem_stats {
    pub regions: u64,
    pub region_bytes: u64,
    pub links: u64,
    pub grants_given: u64,
    pub grants_held: u64,
    pub requests_sent: u64,
    pub requests_served: u64,
    pub requests_refused: u64,
    pub program_write_bytes: u64,
    pub program_read_bytes: u64,
    pub node_write_bytes: u64,
    pub node_read_bytes: u64,
    pub copied_out_bytes: u64,
    pub copied_within_bytes: u64,
    pub late_revokes: u64,
    pub silent_links: u64,
    pub reserved: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_region_info {
    pub node: zrs_mem_node,
    pub storage: zrs_mem_storage,
    pub rights: u32,
    pub keys: u32,
    pub holds: u32,
    pub reserved0: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct zrs_region_key {
    pub rights: u32,
    pub uses: u32,
    pub off: u64,
    pub len: u64,
    pub ttl_ms: u32,
    pub reserved0: u32,
    pub key: zrs_mem_key,
}
