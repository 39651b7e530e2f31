// SPDX-License-Identifier: GPL-2.0

//! The module's parameters: units, defaults, and which values make sense. Sysfs shows them under
//! /sys/module/zrs/parameters, where some can be written; the others are read-only after load.

use kernel::prelude::*;

use crate::kern::net::Net;
use crate::kern::param::{names_param, uint_param, writable_uint_param, Group, Uint};
use crate::kern::sysctl::{self, Kind, Setting};
use crate::kern::task;
use crate::proto::sizing::HOT_MOST;
use crate::proto::{channel, link_flow, wire};

/// The parameters of the pools. After a write to one of them the pools are resized.
pub(crate) const POOLS: Group = 0;
/// The shares of the connection table.
pub(crate) const SHARES: Group = 1;
/// The times of checks whether peers are alive.
pub(crate) const KEEPALIVE: Group = 2;
/// Whether ZRS comes to its end.
pub(crate) const END: Group = 3;

writable_uint_param!(
    /// Size of the receive pool of each cache, in MiB; 0: derived from rate, residency and cache.
    POOL_MIB, "pool_mib", 0, 0, 1 << 22,
    "receive pool of each cache, MiB, 0: by rate, residency and cache (default 0)",
    POOLS
);
writable_uint_param!(
    /// How long data stays in the pool before it may be moved to main memory, in microseconds.
    RESIDENCY_US, "residency_us", 200, 1, 1_000_000,
    "time for which data stays in the pool unread, microseconds (default 200)",
    POOLS
);
writable_uint_param!(
    /// Part of the data arriving in that time that the pool has room for, in percent.
    RESIDENT_PERCENT, "resident_percent", 100, 1, 100,
    "part of what arrives in that time that the pool has room for, percent (default 100)",
    POOLS
);
uint_param!(
    /// Size of a last-level cache, in KiB; 0: as the CPU reports it.
    CACHE_KIB, "cache_kib", 0,
    "last-level cache, KiB, 0: as the CPU says (default 0)"
);
names_param!(
    /// When data that was not read for `residency_us` is moved to main memory: never (0), while
    /// other channels want the room (1), in any case (2).
    ESCAPE, "escape", &[c"never", c"under-pressure", c"always"], 1,
    "when unread data goes to main memory: never, under-pressure, always (default under-pressure)",
    POOLS
);
writable_uint_param!(
    /// Main memory for data that left the pools, in MiB; 0: a quarter of all.
    ESCAPE_MIB, "escape_mib", 0, 0, 1 << 24,
    "main memory for data that left the pools, MiB, 0: a quarter of all (default 0)",
    POOLS
);
uint_param!(
    /// Part of a pool that is reserved for small messages, in percent.
    SMALL_PERCENT, "small_percent", 25,
    "part of a pool that small messages have for themselves, percent (default 25)"
);
uint_param!(
    /// Size of the largest window leased to a channel with bulk data, in KiB; 0: four chunks.
    WINDOW_KIB, "window_kib", 0,
    "largest window of a channel with bulk data, KiB, 0: four chunks (default 0)"
);
uint_param!(
    /// How long nothing must have been written into a window before another channel may get it, in
    /// milliseconds.
    WINDOW_IDLE_MS, "window_idle_ms", 100,
    "time without data after which a window may go to another channel, milliseconds (default 100)"
);
uint_param!(
    /// Part of a pool's windows that rings may show, or that may have mapped pages, in percent; one
    /// window in any case.
    RING_PERCENT, "ring_percent", 80,
    "part of a pool's windows that programs may have pages of, percent (default 80)"
);
uint_param!(
    /// Blocks of the receive queues of each device, a page each.
    BLOCKS, "blocks", 512,
    "blocks of the receive queues of each device (default 512)"
);
uint_param!(
    /// 1: each link has a separate receive queue, also on devices that support a shared one. No
    /// peer can use up the blocks of others then.
    OWN_RECEIVES, "own_receives", 0,
    "1: each link has a receive queue of its own (default 0)"
);
uint_param!(
    /// Blocks that the peer of a link may fill: its credit.
    LINK_CREDIT, "link_credit", 64,
    "blocks that the peer of a link may fill (default 64)"
);
uint_param!(
    /// How long a datagram waits for room on its link before it is dropped, in milliseconds.
    DGRAM_STALL_MS, "dgram_stall_ms", 20,
    "how long a datagram waits for room on its link, milliseconds (default 20)"
);
writable_uint_param!(
    /// The part of a device's blocks that may be lent: kept for unread datagrams of sockets with
    /// mapped receives, or mapped into programs, in percent.
    DGRAM_LEND_PERCENT, "dgram_lend_percent", 25, 0, 100,
    "part of a device's blocks that programs may have mapped datagrams in, percent (default 25)"
);
uint_param!(
    /// The most links that datagrams of users other than root, or of one network namespace, have
    /// made at the same time. A user has the part `user_percent` of them, a namespace
    /// `net_percent`.
    DGRAM_LINKS, "dgram_links", 128,
    "links that the datagrams of users can have made (default 128)"
);
uint_param!(
    /// From this many bytes in one blocking send, pages are pinned instead of copied.
    PIN_THRESHOLD, "pin_threshold", 16384,
    "bytes in one send from which pages are pinned, not copied (default 16384)"
);
writable_uint_param!(
    /// How much at the end of a blocking send is copied, in KiB, though the other pages are pinned:
    /// the call does not wait until the device has sent it. 0: nothing.
    COPY_TAIL_KIB, "copy_tail_kib", 64, 0, MOST_COPY_TAIL_KIB,
    "end of a blocking send that is copied, not pinned, KiB, 0: nothing (default 64)"
);
writable_uint_param!(
    /// Whether small messages of a stream wait for the completion of an earlier one, so that they
    /// leave together: 0 or 1.
    AUTOCORKING, "autocorking", 1, 0, 1,
    "small messages wait for an earlier one that is on its way: 0 or 1 (default 1)"
);
writable_uint_param!(
    /// How long a connect waits for the peer's answer, in milliseconds.
    CONNECT_TIMEOUT_MS, "connect_timeout_ms", 1000, 1, 600_000,
    "how long a connect waits for the peer's answer, milliseconds (default 1000)"
);
writable_uint_param!(
    /// How long a blocking call polls before it sleeps, in microseconds, where `SO_BUSY_POLL` is
    /// not set.
    BUSY_POLL_US, "busy_poll_us", 0, 0, MOST_BUSY_POLL_US,
    "time for which a blocking call polls before it sleeps, microseconds (default 0)"
);
uint_param!(
    /// Limit of the bulk data in flight on a link: the amount that the device sends in this time,
    /// in microseconds.
    BULK_US, "bulk_us", 500,
    "bulk data on its way on a link, in microseconds at the device's rate (default 500)"
);
uint_param!(
    /// How long a queue pair waits for the peer's acknowledgement before it sends again, in
    /// milliseconds.
    ACK_TIMEOUT_MS, "ack_timeout_ms", 500,
    "time without an acknowledgement after which a link sends again, milliseconds (default 500)"
);
writable_uint_param!(
    /// The most links to one peer that carry connections of this host, and the most that a peer may
    /// make to this host.
    LINKS_PER_PEER, "links_per_peer", 2, 1, 64,
    "links to one peer, and links that a peer may make (default 2)"
);
uint_param!(
    /// A group of links grows by a link when each of its links has this many channels.
    LINK_CHANNELS, "link_channels", 8192,
    "channels on each link to a peer from which another link is made (default 8192)"
);
uint_param!(
    /// A group of links also grows when senders have found each of its links full this many times.
    LINK_WAITS, "link_waits", 10000,
    "how often senders find each link to a peer without room until another link is made (default 10000)"
);
uint_param!(
    /// How long a link without channels lives on, in milliseconds, while there are sockets.
    LINK_IDLE_MS, "link_idle_ms", 60000,
    "time after which a link without connections ends, milliseconds (default 60000)"
);
writable_uint_param!(
    /// Interval of checks whether a silent peer is alive, in milliseconds; 0: never.
    HEARTBEAT_MS, "heartbeat_ms", 10000, 0, 3_600_000,
    "time without a message after which a peer is asked whether it is there, milliseconds, 0: never (default 10000)",
    KEEPALIVE
);
writable_uint_param!(
    /// How long a peer may leave probes unanswered, or messages without a receive, before its link
    /// is ended, in milliseconds.
    DEAD_MS, "dead_ms", 30000, 1, 86_400_000,
    "time without an answer after which a peer is taken for dead, milliseconds (default 30000)",
    KEEPALIVE
);
uint_param!(
    /// How many times a queue pair sends again before the peer is considered gone.
    RETRY_COUNT, "retry_count", 6,
    "how often a link sends again before its peer is taken for gone (default 6)"
);
uint_param!(
    /// The port of ZRS hosts in the RDMA connection manager's TCP port space. It is privileged, so
    /// that no other program listens on it, and below the source ports of links.
    SERVICE_PORT, "service_port", 340,
    "port of the RDMA connection manager that links are made on (default 340)"
);
uint_param!(
    /// The most channels of the host.
    MAX_CHANNELS, "max_channels", 16384,
    "channels that the host can have (default 16384)"
);
writable_uint_param!(
    /// Part of the channels, and of the links of a device, that a user can have, in percent; one in
    /// any case. Root has no such limit.
    USER_PERCENT, "user_percent", 80, 1, 100,
    "part of the channels and links that one user can have, percent (default 80)",
    SHARES
);
writable_uint_param!(
    /// As `user_percent`, for a network namespace; the initial one has no such limit.
    NET_PERCENT, "net_percent", 80, 1, 100,
    "part of the channels and links that one network namespace can have, percent (default 80)",
    SHARES
);

writable_uint_param!(
    /// Part of the asks of a memory link, and of the regions of a node of this host, that a user
    /// can have, in percent. Root has no such limit. It counts for links and nodes that are made
    /// later.
    MEM_USER_PERCENT, "mem_user_percent", 25, 1, 100,
    "part of a memory link's and node's places that one user can have, percent (default 25)"
);

const SWITCH: &[&CStr] = &[c"off", c"on"];
names_param!(
    /// Whether network namespaces may use ZRS, but for the first one, which may.
    ENABLED, "enabled", SWITCH, 1,
    "ZRS in network namespaces without a setting of their own, the first one apart: off, on (default on)"
);

/// The largest number of a group.
const LAST_GROUP: u32 = u32::MAX - 1;

/// Whether ZRS is on in `net`. It may change.
pub(crate) fn is_on(net: &Net) -> bool {
    NetSetting::Enabled.get(net) != 0
}

/// Whether the groups of the calling task may use ZRS in `net`.
pub(crate) fn may_use(net: &Net) -> bool {
    let (first, last) = (
        NetSetting::FirstGroup.get(net),
        NetSetting::LastGroup.get(net),
    );
    (first, last) == (0, LAST_GROUP) || task::is_in_groups(first, last)
}

const TCP_NAMES: &[&CStr] = &[c"never", c"auto", c"required"];
names_param!(
    /// Whether new sockets have TCP beside ZRS, as `ZRS_TCP_*` are numbered.
    TCP, "tcp", TCP_NAMES, 0,
    "TCP beside ZRS for new sockets: never, auto, required (default never)"
);
writable_uint_param!(
    /// Whether a task with no_new_privs may have TCP beside ZRS.
    TCP_NO_NEW_PRIVS, "tcp_no_new_privs", 0, 0, 1,
    "1: tasks with no_new_privs may have TCP beside ZRS, which Landlock does not see (default 0)"
);
writable_uint_param!(
    /// How long a connect in mode AUTO waits for a link to a host before it uses TCP, in
    /// milliseconds.
    FALLBACK_MS, "fallback_ms", 250, 1, 60_000,
    "time for a link to a host, then a connect that may use TCP does so, milliseconds (default 250)"
);
writable_uint_param!(
    /// How many links may be made at a time for connects in mode AUTO of one user. Root has no such
    /// limit.
    ASKING_PER_USER, "asking_per_user", 64, 1, 65_536,
    "hosts that connects of one user that may use TCP ask for a link at a time (default 64)"
);
writable_uint_param!(
    /// 1: new connections do not use ZRS, so that the module can be unloaded.
    DRAIN, "drain", 0, 0, 1,
    "1: no new sockets and no new connections, so that the module can be unloaded (default 0)",
    END
);

uint_param!(
    /// Hot slots of the link table: channels in them can be worked on without being fetched first.
    /// 0: the number of `max_channels`, within a share of the memory.
    TABLE_HOT, "table_hot", 0,
    "hot slots of the link table, 0: one for each channel, if memory allows (default 0)"
);
uint_param!(
    /// Places in the second tier of the link table.
    TABLE_NEAR, "table_near", 1024,
    "places in the second tier of the link table (default 1024)"
);
uint_param!(
    /// Places in each of its sets.
    TABLE_WAYS, "table_ways", 4,
    "places in each set of the second tier (default 4)"
);
uint_param!(
    /// Interval of parking channels that were idle since the last time, in milliseconds.
    TABLE_SWEEP_MS, "table_sweep_ms", 5000,
    "time after which a channel that nothing happens to is parked, milliseconds (default 5000)"
);

/// The longest time that a call polls, in microseconds: SO_BUSY_POLL needs no privilege, and a
/// thread is not throttled while it polls.
pub(crate) const MOST_BUSY_POLL_US: u32 = 100_000;

/// The longest end of a blocking send that is copied: a chunk, in KiB.
pub(crate) const MOST_COPY_TAIL_KIB: u32 = wire::CHUNK_MAX >> 10;

/// Parameters with a value for each network namespace, in the order of [`NetSetting`]. The
/// parameter itself is the general value.
pub(crate) static NET: &[Setting] = &[
    Setting {
        name: c"connect_timeout_ms",
        general: || CONNECT_TIMEOUT_MS.get(),
        kind: Kind::Number(1, 600_000),
        first: None,
        machine: false,
    },
    Setting {
        name: c"fallback_ms",
        general: || FALLBACK_MS.get(),
        kind: Kind::Number(1, 60_000),
        first: None,
        machine: false,
    },
    Setting {
        name: c"tcp",
        general: || TCP.get(),
        kind: Kind::Names(TCP_NAMES),
        first: None,
        machine: false,
    },
    Setting {
        name: c"tcp_no_new_privs",
        general: || TCP_NO_NEW_PRIVS.get(),
        kind: Kind::Number(0, 1),
        first: None,
        // A task that has restricted itself can be the administrator of a namespace that it makes.
        machine: true,
    },
    Setting {
        name: c"enabled",
        general: || ENABLED.get(),
        kind: Kind::Names(SWITCH),
        first: Some(1),
        machine: true,
    },
    Setting {
        name: c"first_group",
        general: || 0,
        kind: Kind::Number(0, LAST_GROUP),
        first: None,
        machine: true,
    },
    Setting {
        name: c"last_group",
        general: || LAST_GROUP,
        kind: Kind::Number(0, LAST_GROUP),
        first: None,
        machine: true,
    },
];

/// Which of [`NET`].
#[derive(Clone, Copy)]
pub(crate) enum NetSetting {
    /// See [`CONNECT_TIMEOUT_MS`].
    ConnectTimeoutMs,
    /// See [`FALLBACK_MS`].
    FallbackMs,
    /// See [`TCP`].
    Tcp,
    /// See [`TCP_NO_NEW_PRIVS`].
    TcpNoNewPrivs,
    /// See [`ENABLED`].
    Enabled,
    /// The first of the groups whose members may use ZRS.
    FirstGroup,
    /// The last one.
    LastGroup,
}

impl NetSetting {
    /// The value for `net`. It may be another one the next time.
    pub(crate) fn get(self, net: &Net) -> u32 {
        sysctl::value(net, NET, self as usize)
    }
}

/// The limits that a receiver sets for unread data of its peer on a channel.
pub(crate) const LIMITS: channel::Limits = channel::Limits {
    msgs: 64,
    small: 16 * wire::SMALL_MAX,
};

/// The local acknowledge timeout of queue pairs: the least n such that 4.096 us * 2^n is at least
/// `ack_timeout_ms`.
pub(crate) fn ack_timeout() -> u8 {
    let ns = u64::from(ACK_TIMEOUT_MS.get()) * 1_000_000;
    ns.div_ceil(4096).next_power_of_two().trailing_zeros() as u8
}

/// Until when, at the latest, a queue pair has failed whose peer's device does not answer, in
/// milliseconds after the message: devices round the timeout up to a power of two.
pub(crate) fn give_up_ms() -> u32 {
    let attempts = RETRY_COUNT.get().saturating_add(1);
    ACK_TIMEOUT_MS
        .get()
        .saturating_mul(2)
        .saturating_mul(attempts)
}

/// Refuses values that cannot work, and logs the parameter. Writable parameters are checked at each
/// write. A pool that is merely too large is not refused here: making it fails with ENOMEM.
pub(crate) fn check() -> Result {
    let checks: [(&str, &Uint, u32, u32); 23] = [
        // Far above any cache, and its size in bytes does not overflow.
        ("cache_kib", &CACHE_KIB, 0, 1 << 24),
        ("small_percent", &SMALL_PERCENT, 1, 75),
        (
            "window_kib",
            &WINDOW_KIB,
            match WINDOW_KIB.get() {
                0 => 0,
                _ => channel::WINDOW_MIN >> 10,
            },
            channel::WINDOW_MAX >> 10,
        ),
        ("window_idle_ms", &WINDOW_IDLE_MS, 0, 3_600_000),
        ("ring_percent", &RING_PERCENT, 0, 100),
        ("blocks", &BLOCKS, link_flow::MIN_CREDIT, 1 << 15),
        ("link_credit", &LINK_CREDIT, link_flow::MIN_CREDIT, 1 << 15),
        ("own_receives", &OWN_RECEIVES, 0, 1),
        ("dgram_stall_ms", &DGRAM_STALL_MS, 1, 60_000),
        ("dgram_links", &DGRAM_LINKS, 1, 1 << 16),
        ("pin_threshold", &PIN_THRESHOLD, 0, u32::MAX),
        ("link_channels", &LINK_CHANNELS, 1, 1 << 24),
        ("link_waits", &LINK_WAITS, 1, u32::MAX),
        ("link_idle_ms", &LINK_IDLE_MS, 1, 86_400_000),
        ("bulk_us", &BULK_US, 0, 1_000_000),
        ("ack_timeout_ms", &ACK_TIMEOUT_MS, 1, 60_000),
        // Not 7, though a queue pair allows it: Soft-RoCE takes 7 as retrying without end.
        ("retry_count", &RETRY_COUNT, 1, 6),
        ("service_port", &SERVICE_PORT, 1, 511),
        ("max_channels", &MAX_CHANNELS, 1, 1 << 24),
        ("table_hot", &TABLE_HOT, 0, HOT_MOST),
        ("table_near", &TABLE_NEAR, 0, 1 << 20),
        ("table_ways", &TABLE_WAYS, 1, 64),
        ("table_sweep_ms", &TABLE_SWEEP_MS, 10, 3_600_000),
    ];
    for (name, param, min, max) in checks {
        let value = param.get();
        if value < min || value > max {
            pr_err!("{name}={value} is not between {min} and {max}\n");
            return Err(EINVAL);
        }
    }
    if WINDOW_KIB.get() % (kernel::page::PAGE_SIZE as u32 >> 10) != 0 {
        pr_err!("window_kib is not a whole number of pages\n");
        return Err(EINVAL);
    }
    if LINK_CREDIT.get() > BLOCKS.get() {
        pr_err!("link_credit is more than blocks\n");
        return Err(EINVAL);
    }
    Ok(())
}
