// SPDX-License-Identifier: GPL-2.0
//! The numbers that have names in programs. The most frequent ones come first.

use crate::desc::Set;
use zrs_sys::abi;

macro_rules! of_libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as u64)),*] };
}

pub const NAMESPACES: Set = &[("A", 0), ("B", 1)];

pub const FAMILIES: Set = of_libc!(AF_INET AF_UNSPEC AF_INET6 AF_UNIX AF_NETLINK);

const STREAM: u64 = libc::SOCK_STREAM as u64;
pub const TYPES: Set = &[
    ("SOCK_STREAM", STREAM),
    ("SOCK_STREAM_NB", STREAM | libc::SOCK_NONBLOCK as u64),
    ("SOCK_STREAM_CE", STREAM | libc::SOCK_CLOEXEC as u64),
    ("SOCK_DGRAM", libc::SOCK_DGRAM as u64),
    ("SOCK_RAW", libc::SOCK_RAW as u64),
    ("SOCK_SEQPACKET", libc::SOCK_SEQPACKET as u64),
];
pub const UNIX_TYPES: Set = of_libc!(SOCK_STREAM SOCK_DGRAM SOCK_SEQPACKET);
pub const SOCK_FLAGS: Set = of_libc!(SOCK_NONBLOCK SOCK_CLOEXEC);
pub const PROTOCOLS: Set = &[
    ("IPPROTO_ZRS", abi::IPPROTO_ZRS as u64),
    ("IPPROTO_IP", 0),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
];

pub const FAMILIES6: Set = of_libc!(AF_INET6 AF_INET AF_UNSPEC);
/// The halves of IPv6 addresses: of the hosts, link-local, loopback, v4-mapped, multicast.
pub const PREFIXES: Set = &[
    ("NET6_HOSTS", 0xfd77_0000_0000_0000),
    ("NET6_ZERO", 0),
    ("NET6_LINK", 0xfe80_0000_0000_0000),
    ("NET6_FAR", 0x2001_0db8_0000_0000),
    ("NET6_MULTI", 0xff02_0000_0000_0000),
];
pub const INTERFACES: Set = &[
    ("HOST6_A", 1),
    ("HOST6_B", 2),
    ("HOST6_ANY", 0),
    ("HOST6_MAPPED_A", 0xffff_0a4d_0001),
    ("HOST6_MAPPED_B", 0xffff_0a4d_0002),
    ("HOST6_MAPPED_ANY", 0xffff_0000_0000),
];

pub const ADDRESSES: Set = &[
    ("ADDR_B", 0x0a4d_0002),
    ("ADDR_A", 0x0a4d_0001),
    ("ADDR_ANY", 0),
    ("ADDR_LO", 0x7f00_0001),
    ("ADDR_NOBODY", 0x0a4d_0009),
    ("ADDR_FAR", 0xc000_0201),
    ("ADDR_ALL", 0xffff_ffff),
    ("ADDR_MULTI", 0xe000_0001),
];

pub const MSG: Set = of_libc!(
    MSG_DONTWAIT MSG_NOSIGNAL MSG_PEEK MSG_WAITALL MSG_MORE MSG_TRUNC MSG_CTRUNC MSG_OOB MSG_EOR
    MSG_ERRQUEUE MSG_DONTROUTE MSG_CONFIRM MSG_ZEROCOPY MSG_FASTOPEN MSG_CMSG_CLOEXEC
    MSG_WAITFORONE
);

pub const LEVELS: Set = &[
    ("SOL_SOCKET", libc::SOL_SOCKET as u64),
    ("SOL_ZRS", abi::SOL_ZRS as u64),
    ("SOL_TCP", 6),
    ("SOL_IP", 0),
    ("SOL_IPV6", 41),
    ("SOL_UDP", 17),
];
/// Of all levels; what 1 to 31 mean depends on it.
pub const OPTIONS: Set = of_libc!(
    SO_DEBUG SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_SNDBUF SO_RCVBUF
    SO_KEEPALIVE SO_OOBINLINE SO_NO_CHECK SO_PRIORITY SO_LINGER SO_REUSEPORT SO_PASSCRED
    SO_PEERCRED SO_RCVLOWAT SO_SNDLOWAT SO_RCVTIMEO SO_SNDTIMEO SO_BINDTODEVICE SO_ATTACH_FILTER
    SO_DETACH_FILTER SO_PEERNAME SO_TIMESTAMP SO_ACCEPTCONN SO_PEERSEC SO_SNDBUFFORCE
    SO_RCVBUFFORCE SO_PASSSEC SO_MARK SO_PROTOCOL SO_DOMAIN SO_RXQ_OVFL SO_PEEK_OFF SO_NOFCS
    SO_BUSY_POLL SO_MAX_PACING_RATE SO_INCOMING_CPU SO_ATTACH_BPF SO_MEMINFO SO_INCOMING_NAPI_ID
    SO_COOKIE SO_ZEROCOPY SO_TXTIME SO_BINDTOIFINDEX SO_PREFER_BUSY_POLL SO_TIMESTAMPING UDP_SEGMENT
);
/// Those of datagram sockets, of the levels SOL_ZRS, SOL_UDP, SOL_IP and SOL_IPV6.
pub const DGRAM_OPTIONS: Set = &[
    ("ZRS_DGRAM_UDP", abi::ZRS_DGRAM_UDP as u64),
    ("ZRS_DGRAM_INFO", abi::ZRS_DGRAM_INFO as u64),
    ("UDP_CORK", 1),
    ("UDP_SEGMENT", libc::UDP_SEGMENT as u64),
    ("IP_RECVERR", libc::IP_RECVERR as u64),
    ("IPV6_RECVERR", libc::IPV6_RECVERR as u64),
    ("IP_PKTINFO", libc::IP_PKTINFO as u64),
    ("IPV6_RECVPKTINFO", libc::IPV6_RECVPKTINFO as u64),
];
pub const TIMEOUTS: Set = of_libc!(SO_RCVTIMEO SO_SNDTIMEO);

pub const IOCTLS: Set = &[
    ("FIONREAD", libc::FIONREAD),
    ("TIOCOUTQ", libc::TIOCOUTQ),
    ("ZRS_IOC_VERSION", abi::ZRS_IOC_VERSION as u64),
    ("ZRS_IOC_SOCKET", abi::ZRS_IOC_SOCKET as u64),
    ("ZRS_IOC_STATS", abi::ZRS_IOC_STATS as u64),
    ("ZRS_IOC_POOL", abi::ZRS_IOC_POOL as u64),
    ("ZRS_IOC_LINK", abi::ZRS_IOC_LINK as u64),
    ("ZRS_IOC_SOCK", abi::ZRS_IOC_SOCK as u64),
    ("ZRS_IOC_TABLE", abi::ZRS_IOC_TABLE as u64),
    ("ZRS_IOC_CACHE", abi::ZRS_IOC_CACHE as u64),
    ("ZRS_IOC_DGRAM", abi::ZRS_IOC_DGRAM as u64),
    ("ZRS_IOC_MEM_SERVE", abi::ZRS_IOC_MEM_SERVE as u64),
    ("ZRS_IOC_MEM_ALLOC", abi::ZRS_IOC_MEM_ALLOC as u64),
    ("ZRS_IOC_MEM_OPEN", abi::ZRS_IOC_MEM_OPEN as u64),
    ("ZRS_REGION_KEY", abi::ZRS_REGION_KEY as u64),
    ("ZRS_REGION_FREE", abi::ZRS_REGION_FREE as u64),
    ("ZRS_QUEUE_SUBMIT", abi::ZRS_QUEUE_SUBMIT as u64),
    ("ZRS_IOC_DOORBELL", abi::ZRS_IOC_DOORBELL as u64),
    ("ZRS_IOC_RING_WAIT", abi::ZRS_IOC_RING_WAIT as u64),
    ("ZRS_IOC_RECV_MAP", abi::ZRS_IOC_RECV_MAP as u64),
    ("FIOASYNC", 0x5452),
    ("FIOSETOWN", 0x8901),
    ("FIOGETOWN", 0x8903),
    ("SIOCATMARK", 0x8905),
    ("SIOCGSTAMP", 0x8906),
    ("SIOCGIFCONF", 0x8912),
    ("SIOCGIFADDR", 0x8915),
    ("SIOCETHTOOL", 0x8946),
    ("SIOCPROTOPRIVATE", 0x89e0),
    ("FIOCLEX", 0x5451),
    ("FIOQSIZE", 0x5460),
];

pub const PROTS: Set = &[
    ("PROT_READ", 1),
    ("PROT_RW", 3),
    ("PROT_NONE", 0),
    ("PROT_WRITE", 2),
    ("PROT_EXEC", 4),
    ("PROT_ALL", 7),
];
pub const MAPS: Set = &[
    ("MAP_SHARED", libc::MAP_SHARED as u64),
    ("MAP_PRIVATE", libc::MAP_PRIVATE as u64),
    (
        "MAP_SHARED_POPULATE",
        (libc::MAP_SHARED | libc::MAP_POPULATE) as u64,
    ),
    (
        "MAP_SHARED_LOCKED",
        (libc::MAP_SHARED | libc::MAP_LOCKED) as u64,
    ),
    (
        "MAP_SHARED_FIXED",
        (libc::MAP_SHARED | libc::MAP_FIXED) as u64,
    ),
    ("MAP_SHARED_VALIDATE", libc::MAP_SHARED_VALIDATE as u64),
    (
        "MAP_ANONYMOUS_PRIVATE",
        (libc::MAP_ANONYMOUS | libc::MAP_PRIVATE) as u64,
    ),
    ("MAP_HUGE", (libc::MAP_SHARED | libc::MAP_HUGETLB) as u64),
];
pub const ADVICE: Set = of_libc!(
    MADV_DONTNEED MADV_WILLNEED MADV_REMOVE MADV_DONTFORK MADV_DOFORK MADV_MERGEABLE MADV_HUGEPAGE
    MADV_DONTDUMP MADV_DODUMP MADV_FREE MADV_WIPEONFORK MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ
    MADV_POPULATE_WRITE MADV_HWPOISON
);

pub const POLL: Set = &[
    ("POLLIN", 1),
    ("POLLOUT", 4),
    ("POLLPRI", 2),
    ("POLLERR", 8),
    ("POLLHUP", 16),
    ("POLLRDHUP", 0x2000),
    ("POLLRDNORM", 0x40),
    ("POLLWRNORM", 0x100),
];
pub const EPOLL: Set = &[
    ("EPOLLIN", 1),
    ("EPOLLOUT", 4),
    ("EPOLLPRI", 2),
    ("EPOLLRDHUP", 0x2000),
    ("EPOLLET", 1 << 31),
    ("EPOLLONESHOT", 1 << 30),
    ("EPOLLEXCLUSIVE", 1 << 28),
];

pub const FCNTLS: Set = of_libc!(
    F_SETFL F_GETFL F_DUPFD F_DUPFD_CLOEXEC F_SETFD F_SETOWN F_SETLEASE F_SETPIPE_SZ
    F_GETPIPE_SZ
);
pub const SPLICE: Set = &[
    ("SPLICE_F_NONBLOCK", 2),
    ("SPLICE_F_MOVE", 1),
    ("SPLICE_F_MORE", 4),
    ("SPLICE_F_GIFT", 8),
];

/// The path that `open` opens: the index in `special::PATHS`.
pub const PATHS: Set = &[
    ("dev_zrs", 0),
    ("links", 1),
    ("param", 2),
    ("param_range", 3),
];
pub const OPEN: Set = &[
    ("O_RDWR", 2),
    ("O_NONBLOCK", 0o4000),
    ("O_WRONLY", 1),
    ("O_CLOEXEC", 0o2_000_000),
    ("O_TRUNC", 0o1000),
    ("O_PATH", 0o10_000_000),
];

/// The operations of `ring` on the descriptors.
pub const RING_OPS: Set = &[
    ("RING_CONSUME", 0),
    ("RING_HOLD", 1),
    ("RING_DONE", 2),
    ("RING_KERNEL", 3),
    ("RING_FREE", 4),
    ("RING_READY", 5),
    ("RING_GARBAGE", 6),
    ("RING_ESCAPED", 7),
];

/// The flags of ZRS_RX_RING.
pub const RX_RING_FLAGS: Set = &[
    ("ZRS_RX_RING_ESCAPE", abi::ZRS_RX_RING_ESCAPE as u64),
    ("ZRS_RX_RING_SMALL", abi::ZRS_RX_RING_SMALL as u64),
];

/// What ZRS_IOC_MEM_NODES does with the directory.
pub const NODE_OPS: Set = &[
    ("NODES_LIST", abi::ZRS_MEM_NODES_LIST as u64),
    ("NODES_SET", abi::ZRS_MEM_NODES_SET as u64),
    ("NODES_DEL", abi::ZRS_MEM_NODES_DEL as u64),
    ("NODES_CLEAR", abi::ZRS_MEM_NODES_CLEAR as u64),
    ("NODES_SELF", abi::ZRS_MEM_NODES_SELF as u64),
];
/// Rights of the key of a region.
pub const MEM_RIGHTS: Set = &[
    ("MEM_READ", abi::ZRS_MEM_READ as u64),
    ("MEM_WRITE", abi::ZRS_MEM_WRITE as u64),
    ("MEM_GRANT", abi::ZRS_MEM_GRANT as u64),
    ("MEM_FREE", abi::ZRS_MEM_FREE as u64),
];
/// Operations of a queue.
pub const MEM_OPS: Set = &[
    ("MEM_OP_COPY", abi::ZRS_MEM_OP_COPY as u64),
    ("MEM_OP_WRITE", abi::ZRS_MEM_OP_WRITE as u64),
    ("MEM_OP_READ", abi::ZRS_MEM_OP_READ as u64),
    ("MEM_OP_CANCEL", abi::ZRS_MEM_OP_CANCEL as u64),
];

/// The actions of the child of `fork`.
pub const FORKS: Set = &[
    ("FORK_EXIT", 0),
    ("FORK_HOLD", 1),
    ("FORK_CLOSE", 2),
    ("FORK_SHUTDOWN", 3),
    ("FORK_SEND", 4),
    ("FORK_RECV", 5),
    ("FORK_ACCEPT", 6),
    ("FORK_KILLED", 7),
];

/// Operations of io_uring (linux/io_uring.h).
pub const URING_OPS: Set = &[
    ("URING_SEND", 26),
    ("URING_RECV", 27),
    ("URING_POLL_ADD", 6),
    ("URING_ACCEPT", 13),
    ("URING_READ", 22),
    ("URING_WRITE", 23),
    ("URING_SHUTDOWN", 34),
    ("URING_CLOSE", 19),
    ("URING_SEND_ZC", 47),
    ("URING_CONNECT", 16),
    ("URING_SENDMSG", 9),
    ("URING_RECVMSG", 10),
];

/// Operations of libaio (linux/aio_abi.h).
pub const AIO_OPS: Set = &[
    ("AIO_PREAD", 0),
    ("AIO_PWRITE", 1),
    ("AIO_FSYNC", 2),
    ("AIO_POLL", 5),
    ("AIO_PREADV", 7),
    ("AIO_PWRITEV", 8),
];

/// How long an operation of libaio is waited for: for no time, 10 ms, until it is canceled, and until its context has
/// ended.
pub const AIO_ENDS: Set = &[
    ("AIO_LEAVE", 0),
    ("AIO_WAIT", 1),
    ("AIO_CANCEL", 2),
    ("AIO_DESTROY", 3),
];

/// All names, for reading programs.
pub const ALL: &[Set] = &[
    NAMESPACES,
    FAMILIES,
    TYPES,
    UNIX_TYPES,
    SOCK_FLAGS,
    PROTOCOLS,
    ADDRESSES,
    FAMILIES6,
    PREFIXES,
    INTERFACES,
    MSG,
    LEVELS,
    OPTIONS,
    DGRAM_OPTIONS,
    TIMEOUTS,
    IOCTLS,
    PROTS,
    MAPS,
    ADVICE,
    POLL,
    EPOLL,
    FCNTLS,
    SPLICE,
    PATHS,
    OPEN,
    RING_OPS,
    RX_RING_FLAGS,
    NODE_OPS,
    MEM_RIGHTS,
    MEM_OPS,
    FORKS,
    URING_OPS,
    AIO_OPS,
    AIO_ENDS,
];

/// The number of that name.
pub fn number(name: &str) -> Option<u64> {
    let mut all = ALL.iter().flat_map(|set| set.iter());
    all.find(|(n, _)| *n == name).map(|(_, v)| *v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_meaning() {
        for (name, value) in ALL.iter().flat_map(|set| set.iter()) {
            assert_eq!(number(name), Some(*value), "{name}");
        }
    }
}
