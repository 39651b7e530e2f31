// SPDX-License-Identifier: GPL-2.0
//! The description: every call that programs are made of. The interface of ZRS whole
//! (`uapi/linux/zrs.h`, the socket calls), and of the rest of the kernel what may be done with its
//! descriptors and mappings.

mod memory;

use crate::consts::*;
use crate::desc::{big, field, pad, Class, Desc, Field, Kind};
use crate::special::Special;
use zrs_sys::abi;

use Class::{Any, Conn, Dev, Epoll, File, Listener, Map, Pipe, Sock, Unix};
use Kind::{Array, Count, Fd, Fixed, Flags, Len, Mem, Ns, Num, One, Struct};

/// Reserved fields, cursors, and others that are mostly 0.
const ODD: Kind = Num(&[0, 0, 0, 0, 1, 2, 0x8000_0000, u64::MAX]);
const CURSOR: Kind = Num(&[0, 0, 1, 2, 3, 16, 0xffff_ffff, 1 << 32, u64::MAX]);
const TIMEOUT: Kind = Num(&[0, 1, 10, 10, u64::MAX]);

pub const SOCKADDR: &[Field] = &[
    field(2, One(FAMILIES)),
    big(2, Num(&[7000, 7000, 7001, 7002, 0, 1, 80, 340, 65535])),
    big(4, One(ADDRESSES)),
    pad(8),
];
const SOCKADDR_LEN: Kind = Num(&[16, 16, 16, 16, 0, 1, 2, 8, 15, 17, 28, 128, 129, u64::MAX]);
pub const SOCKADDR6: &[Field] = &[
    field(2, One(FAMILIES6)),
    big(2, Num(&[7000, 7000, 7001, 7002, 0, 1, 80, 340, 65535])),
    pad(4),
    big(8, One(PREFIXES)),
    big(8, One(INTERFACES)),
    field(4, Num(&[0, 1, 2, 3, u64::MAX])),
];
const SOCKADDR6_LEN: Kind = Num(&[28, 28, 28, 24, 23, 16, 27, 29, 128, u64::MAX]);
const INOUT_LEN: &[Field] = &[field(
    4,
    Num(&[
        16,
        136,
        56,
        4,
        8,
        0,
        1,
        3,
        55,
        57,
        135,
        4096,
        0x7fff_ffff,
        0xffff_ffff,
    ]),
)];

const IOVEC: &[Field] = &[field(8, Mem), field(8, Len)];
const CONTROL: &[Field] = &[
    field(8, Num(&[20, 20, 16, 17, 18, 24, 0, u64::MAX])),
    field(4, One(LEVELS)),
    // Also IP_PKTINFO, IPV6_PKTINFO, UDP_SEGMENT.
    field(4, Num(&[1, 1, 2, 8, 25, 50, 103, 0xffff_ffff])),
    field(4, Fd(Any)),
    pad(4),
];
const CONTROL_LEN: Kind = Num(&[0, 0, 24, 20, 16, 8, 1, 0x1_0000, u64::MAX]);
pub const MSGHDR: &[Field] = &[
    field(8, Struct(SOCKADDR)),
    field(4, SOCKADDR_LEN),
    pad(4),
    field(8, Array(IOVEC)),
    field(8, Count),
    field(8, Struct(CONTROL)),
    field(8, CONTROL_LEN),
    field(4, Flags(MSG)),
    pad(4),
];
const MMSGHDR: &[Field] = &[
    field(8, Struct(SOCKADDR)),
    field(4, SOCKADDR_LEN),
    pad(4),
    field(8, Array(IOVEC)),
    field(8, Count),
    field(8, Struct(CONTROL)),
    field(8, CONTROL_LEN),
    field(4, Flags(MSG)),
    pad(4),
    pad(8),
];
const TIMESPEC: &[Field] = &[
    field(8, Num(&[0, 0, 1, u64::MAX])),
    field(
        8,
        Num(&[0, 1, 1_000_000, 10_000_000, 999_999_999, 1_000_000_000]),
    ),
];
const TIMEVAL: &[Field] = &[
    field(8, Num(&[0, 0, 0, 1, u64::MAX])),
    field(8, Num(&[0, 1, 5000, 20_000, 999_999, 1_000_000])),
];
const POLLFD: &[Field] = &[field(4, Fd(Any)), field(2, Flags(POLL)), pad(2)];
const EPOLL_EVENT: &[Field] = &[field(4, Flags(EPOLL)), field(8, ODD)];
const INT: &[Field] = &[field(
    4,
    Num(&[0, 1, 1, 2, 4096, 65536, 0x7fff_ffff, 0xffff_ffff]),
)];
const LINGER: &[Field] = &[
    field(4, Num(&[0, 1, 2])),
    field(4, Num(&[0, 1, 10, 0xffff_ffff])),
];
const TWO_INTS: &[Field] = &[pad(8)];
const OFFSET: &[Field] = &[field(8, Num(&[0, 0, 1, 4096, 1 << 40, u64::MAX]))];

pub const VERSION: &[Field] = &[field(4, ODD), field(4, ODD), field(8, ODD)];
pub const SOCKET: &[Field] = &[
    field(4, One(FAMILIES)),
    field(4, One(TYPES)),
    field(4, Flags(SOCK_FLAGS)),
    field(4, ODD),
];
pub const STATS: &[Field] = &[pad(17 * 8), field(8, ODD), pad(6 * 8)];
pub const POOL: &[Field] = &[
    field(8, CURSOR),
    pad(64 + 5 * 8 + 12),
    field(4, ODD),
    field(8, ODD),
    pad(8),
];
pub const CACHE: &[Field] = &[
    field(8, CURSOR),
    pad(16 + 20 * 8 + 24 * 8),
    field(8, ODD),
    pad(7 * 8),
];
pub const LINK: &[Field] = &[field(8, CURSOR), pad(64 + 32 + 24), field(8, ODD), pad(40)];
pub const TABLE: &[Field] = &[pad(28), field(4, ODD), pad(48), field(8, ODD), pad(40)];
pub const RING_WAIT: &[Field] = &[
    field(8, Num(&[0, 1, 2, 5, u64::MAX])),
    field(8, Num(&[1, 1, 1_000_000, 10_000_000, 0])),
    field(8, ODD),
    field(8, ODD),
];
pub const RECV_MAP: &[Field] = &[
    field(8, Mem),
    field(8, Len),
    pad(8),
    field(4, Num(&[1, 3, 0, 2, 4])),
    field(4, ODD),
    field(8, ODD),
    field(8, ODD),
];
pub const SOCK: &[Field] = &[field(8, CURSOR), pad(104), field(8, ODD), pad(24 + 48)];
pub const DGRAM: &[Field] = &[field(8, CURSOR), pad(136), field(8, ODD), pad(24)];
pub const RX_RING: &[Field] = &[
    field(4, Flags(RX_RING_FLAGS)),
    field(4, ODD),
    pad(4 * 8),
    field(8, ODD),
    pad(8),
];

const IOCTL: i64 = libc::SYS_ioctl;
const SET: i64 = libc::SYS_setsockopt;
const GET: i64 = libc::SYS_getsockopt;
const SOL_ZRS: Kind = Fixed(abi::SOL_ZRS as u64);
const SOL_SOCKET: Kind = Fixed(libc::SOL_SOCKET as u64);
const MAP_LEN: Kind = Num(&[
    4096,
    0x10_0000,
    0x20_0000,
    8192,
    0,
    1,
    4095,
    0xf_f000,
    0x10_1000,
    u64::MAX,
]);
const MAP_OFFSET: Kind = Num(&[
    0,
    0,
    0x10_0000,
    1 << 32,
    2 << 32,
    3 << 32,
    4096,
    1,
    1 << 31,
    0x7fff_ffff_ffff_f000,
    0xffff_ffff_ffff_f000,
]);

const fn ioc(cmd: u32) -> Kind {
    Fixed(cmd as u64)
}

/// The calls on sockets, descriptors and memory.
static SOCKETS: &[Desc] = &[
    // /dev/zrs
    Desc::special("open", Special::Open, &[One(PATHS), Flags(OPEN)])
        .makes(Dev)
        .weight(8),
    Desc::call(
        "ioctl_version",
        IOCTL,
        &[Fd(Dev), ioc(abi::ZRS_IOC_VERSION), Struct(VERSION)],
    ),
    Desc::call(
        "ioctl_socket",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_SOCKET), Struct(SOCKET)],
    )
    .makes(Sock)
    .weight(6),
    Desc::call(
        "ioctl_stats",
        IOCTL,
        &[Fd(Dev), ioc(abi::ZRS_IOC_STATS), Struct(STATS)],
    ),
    Desc::call(
        "ioctl_pool",
        IOCTL,
        &[Fd(Dev), ioc(abi::ZRS_IOC_POOL), Struct(POOL)],
    ),
    Desc::call(
        "ioctl_link",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_LINK), Struct(LINK)],
    ),
    Desc::call(
        "ioctl_sock",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_SOCK), Struct(SOCK)],
    ),
    Desc::call(
        "ioctl_dgram",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_DGRAM), Struct(DGRAM)],
    ),
    Desc::call(
        "ioctl_table",
        IOCTL,
        &[Fd(Dev), ioc(abi::ZRS_IOC_TABLE), Struct(TABLE)],
    ),
    Desc::call(
        "ioctl_cache",
        IOCTL,
        &[Fd(Dev), ioc(abi::ZRS_IOC_CACHE), Struct(CACHE)],
    ),
    // The socket's own
    Desc::call(
        "ioctl_doorbell",
        IOCTL,
        &[Fd(Conn), ioc(abi::ZRS_IOC_DOORBELL), Mem],
    )
    .weight(6),
    Desc::call(
        "ioctl_ring_wait",
        IOCTL,
        &[Fd(Conn), ioc(abi::ZRS_IOC_RING_WAIT), Struct(RING_WAIT)],
    )
    .weight(6),
    Desc::call(
        "ioctl_recv_map",
        IOCTL,
        &[Fd(Conn), ioc(abi::ZRS_IOC_RECV_MAP), Struct(RECV_MAP)],
    )
    .weight(8),
    Desc::call(
        "ioctl_fionread",
        IOCTL,
        &[Fd(Sock), Fixed(libc::FIONREAD), Struct(INT)],
    ),
    Desc::call(
        "ioctl_outq",
        IOCTL,
        &[Fd(Sock), Fixed(libc::TIOCOUTQ), Struct(INT)],
    ),
    Desc::call(
        "ioctl_fionbio",
        IOCTL,
        &[Fd(Any), Fixed(libc::FIONBIO), Struct(INT)],
    ),
    Desc::call("ioctl", IOCTL, &[Fd(Any), One(IOCTLS), Mem]),
    Desc::call(
        "setsockopt_ring",
        SET,
        &[
            Fd(Conn),
            SOL_ZRS,
            Fixed(abi::ZRS_RX_RING as u64),
            Struct(RX_RING),
            Num(&[56, 56, 56, 56, 55, 57, 0, 4096, 0x7fff_ffff, u64::MAX]),
        ],
    )
    .weight(12),
    Desc::call(
        "getsockopt_ring",
        GET,
        &[
            Fd(Conn),
            SOL_ZRS,
            Fixed(abi::ZRS_RX_RING as u64),
            Struct(RX_RING),
            Struct(INOUT_LEN),
        ],
    ),
    Desc::call(
        "getsockopt_info",
        GET,
        &[
            Fd(Sock),
            SOL_ZRS,
            Fixed(abi::ZRS_INFO as u64),
            Mem,
            Struct(INOUT_LEN),
        ],
    ),
    Desc::call(
        "setsockopt",
        SET,
        &[Fd(Sock), One(LEVELS), One(OPTIONS), Mem, Len],
    ),
    Desc::call(
        "setsockopt_int",
        SET,
        &[
            Fd(Sock),
            One(LEVELS),
            One(OPTIONS),
            Struct(INT),
            Num(&[4, 4, 0, 3]),
        ],
    ),
    Desc::call(
        "setsockopt_dgram",
        SET,
        &[
            Fd(Sock),
            One(LEVELS),
            One(DGRAM_OPTIONS),
            Struct(INT),
            Num(&[4, 4, 0, 3]),
        ],
    )
    .weight(6),
    Desc::call(
        "setsockopt_v6only",
        SET,
        &[
            Fd(Sock),
            Fixed(libc::SOL_IPV6 as u64),
            Fixed(libc::IPV6_V6ONLY as u64),
            Struct(INT),
            Num(&[4, 4, 0, 3]),
        ],
    ),
    Desc::call(
        "setsockopt_time",
        SET,
        &[
            Fd(Sock),
            SOL_SOCKET,
            One(TIMEOUTS),
            Struct(TIMEVAL),
            Num(&[16, 16, 15]),
        ],
    ),
    Desc::call(
        "setsockopt_linger",
        SET,
        &[
            Fd(Sock),
            SOL_SOCKET,
            Fixed(libc::SO_LINGER as u64),
            Struct(LINGER),
            Num(&[8, 8, 7]),
        ],
    ),
    Desc::call(
        "getsockopt",
        GET,
        &[Fd(Sock), One(LEVELS), One(OPTIONS), Mem, Struct(INOUT_LEN)],
    ),
    // Making and connecting sockets
    Desc::call(
        "socket",
        libc::SYS_socket,
        &[Ns, One(FAMILIES), One(TYPES), One(PROTOCOLS)],
    )
    .makes(Sock)
    .weight(16),
    Desc::special(
        "pair",
        Special::Pair,
        &[Ns, One(NAMESPACES), Flags(SOCK_FLAGS)],
    )
    .makes_two(0, Conn)
    .weight(40),
    Desc::special(
        "listener",
        Special::Listener,
        &[Ns, Num(&[7000, 7001, 7002]), Num(&[1, 0, 5, 4097])],
    )
    .makes(Listener)
    .weight(14),
    Desc::call(
        "socketpair_zrs",
        libc::SYS_socketpair,
        &[
            Ns,
            One(FAMILIES),
            One(TYPES),
            One(PROTOCOLS),
            Struct(TWO_INTS),
        ],
    )
    .weight(1),
    Desc::call(
        "bind",
        libc::SYS_bind,
        &[Fd(Sock), Struct(SOCKADDR), SOCKADDR_LEN],
    )
    .weight(8),
    Desc::call(
        "listen",
        libc::SYS_listen,
        &[Fd(Sock), Num(&[1, 5, 0, 4096, 4097, 0x7fff_ffff, u64::MAX])],
    )
    .weight(8),
    Desc::call(
        "connect",
        libc::SYS_connect,
        &[Fd(Sock), Struct(SOCKADDR), SOCKADDR_LEN],
    )
    .weight(16),
    Desc::call(
        "bind6",
        libc::SYS_bind,
        &[Fd(Sock), Struct(SOCKADDR6), SOCKADDR6_LEN],
    )
    .weight(4),
    Desc::call(
        "connect6",
        libc::SYS_connect,
        &[Fd(Sock), Struct(SOCKADDR6), SOCKADDR6_LEN],
    )
    .weight(6),
    Desc::call(
        "accept4",
        libc::SYS_accept4,
        &[
            Fd(Listener),
            Struct(SOCKADDR),
            Struct(INOUT_LEN),
            Flags(SOCK_FLAGS),
        ],
    )
    .makes(Conn)
    .weight(14),
    Desc::call(
        "shutdown",
        libc::SYS_shutdown,
        &[Fd(Conn), Num(&[0, 1, 2, 3, u64::MAX])],
    )
    .weight(10),
    Desc::call(
        "getsockname",
        libc::SYS_getsockname,
        &[Fd(Sock), Struct(SOCKADDR), Struct(INOUT_LEN)],
    ),
    Desc::call(
        "getpeername",
        libc::SYS_getpeername,
        &[Fd(Sock), Struct(SOCKADDR), Struct(INOUT_LEN)],
    ),
    // Sending and receiving
    Desc::call(
        "sendto",
        libc::SYS_sendto,
        &[
            Fd(Conn),
            Mem,
            Len,
            Flags(MSG),
            Struct(SOCKADDR),
            SOCKADDR_LEN,
        ],
    )
    .weight(16),
    Desc::call(
        "sendmsg",
        libc::SYS_sendmsg,
        &[Fd(Conn), Struct(MSGHDR), Flags(MSG)],
    )
    .weight(12),
    Desc::call(
        "sendmmsg",
        libc::SYS_sendmmsg,
        &[Fd(Conn), Array(MMSGHDR), Count, Flags(MSG)],
    )
    .weight(2),
    Desc::call("write", libc::SYS_write, &[Fd(Any), Mem, Len]).weight(6),
    Desc::call("writev", libc::SYS_writev, &[Fd(Any), Array(IOVEC), Count]).weight(6),
    Desc::call(
        "recvfrom",
        libc::SYS_recvfrom,
        &[
            Fd(Conn),
            Mem,
            Len,
            Flags(MSG),
            Struct(SOCKADDR),
            Struct(INOUT_LEN),
        ],
    )
    .weight(16),
    Desc::call(
        "recvmsg",
        libc::SYS_recvmsg,
        &[Fd(Conn), Struct(MSGHDR), Flags(MSG)],
    )
    .weight(10),
    Desc::call(
        "recvmmsg",
        libc::SYS_recvmmsg,
        &[
            Fd(Conn),
            Array(MMSGHDR),
            Count,
            Flags(MSG),
            Struct(TIMESPEC),
        ],
    )
    .weight(2),
    Desc::call("read", libc::SYS_read, &[Fd(Any), Mem, Len]).weight(6),
    Desc::call("readv", libc::SYS_readv, &[Fd(Any), Array(IOVEC), Count]).weight(6),
    Desc::call("pread64", libc::SYS_pread64, &[Fd(Any), Mem, Len, ODD]).weight(1),
    // The ring
    Desc::call(
        "mmap",
        libc::SYS_mmap,
        &[Mem, MAP_LEN, One(PROTS), One(MAPS), Fd(Conn), MAP_OFFSET],
    )
    .makes(Map)
    .weight(8),
    Desc::special("map_ring", Special::MapRing, &[Fd(Conn)])
        .makes_two(0, Map)
        .weight(14),
    Desc::special("map_escape", Special::MapEscape, &[Fd(Conn)])
        .makes_two(0, Map)
        .weight(10),
    Desc::special(
        "ring",
        Special::Ring,
        &[Mem, One(RING_OPS), Num(&[64, 1, 2, 5])],
    )
    .weight(14),
    Desc::special(
        "store",
        Special::Store,
        &[Mem, Num(&[4, 8, 1]), Num(&[0, 1, 2, 3, 4, 5, u64::MAX])],
    )
    .weight(6),
    Desc::special("load", Special::Load, &[Mem, Len]),
    Desc::call("munmap", libc::SYS_munmap, &[Mem, MAP_LEN]).weight(6),
    Desc::call(
        "mremap",
        libc::SYS_mremap,
        &[Mem, MAP_LEN, MAP_LEN, Num(&[0, 1, 3, 4, 5, 7]), Mem],
    ),
    Desc::call("mprotect", libc::SYS_mprotect, &[Mem, MAP_LEN, One(PROTS)]),
    Desc::call("madvise", libc::SYS_madvise, &[Mem, MAP_LEN, One(ADVICE)]),
    Desc::call("msync", libc::SYS_msync, &[Mem, MAP_LEN, Num(&[1, 2, 4])]).weight(1),
    Desc::call("mlock", libc::SYS_mlock, &[Mem, MAP_LEN]).weight(2),
    // Waiting
    Desc::call("poll", libc::SYS_poll, &[Array(POLLFD), Count, TIMEOUT]).weight(8),
    Desc::call(
        "epoll_create1",
        libc::SYS_epoll_create1,
        &[Num(&[0, 0o2_000_000])],
    )
    .makes(Epoll),
    Desc::call(
        "epoll_ctl",
        libc::SYS_epoll_ctl,
        &[Fd(Epoll), Num(&[1, 1, 2, 3]), Fd(Sock), Struct(EPOLL_EVENT)],
    )
    .weight(8),
    Desc::call(
        "epoll_wait",
        libc::SYS_epoll_wait,
        &[Fd(Epoll), Mem, Num(&[8, 1, 0]), TIMEOUT],
    ),
    Desc::special("sleep", Special::Sleep, &[Num(&[1, 5, 20])]).weight(3),
    Desc::special("alarm", Special::Alarm, &[Num(&[1, 5, 20])]),
    // Calls on all descriptors
    Desc::call("close", libc::SYS_close, &[Fd(Any)]).weight(12),
    Desc::call("dup", libc::SYS_dup, &[Fd(Any)]).makes(Any),
    Desc::call(
        "fcntl",
        libc::SYS_fcntl,
        &[
            Fd(Any),
            One(FCNTLS),
            Num(&[0, 0o4000, 0o20000, 1, 40, 4096]),
        ],
    )
    .weight(6),
    Desc::call("fstat", libc::SYS_fstat, &[Fd(Any), Mem]).weight(1),
    Desc::call("lseek", libc::SYS_lseek, &[Fd(Any), ODD, Num(&[0, 1, 2])]).weight(1),
    Desc::call("ftruncate", libc::SYS_ftruncate, &[Fd(Any), ODD]).weight(1),
    Desc::call("flock", libc::SYS_flock, &[Fd(Any), Num(&[5, 6, 8])]).weight(1),
    Desc::special("fork", Special::Fork, &[One(FORKS), Fd(Any)]),
    Desc::call(
        "socketpair",
        libc::SYS_socketpair,
        &[
            Fixed(libc::AF_UNIX as u64),
            One(UNIX_TYPES),
            Fixed(0),
            Struct(TWO_INTS),
        ],
    )
    .makes_two(3, Unix),
    Desc::special("sendfd", Special::SendFd, &[Fd(Unix), Fd(Sock)]),
    Desc::special("recvfd", Special::RecvFd, &[Fd(Unix)]).makes(Any),
    Desc::call(
        "pipe2",
        libc::SYS_pipe2,
        &[Struct(TWO_INTS), Flags(SOCK_FLAGS)],
    )
    .makes_two(0, Pipe),
    Desc::special("memfd", Special::Memfd, &[Len]).makes(File),
    Desc::call(
        "splice",
        libc::SYS_splice,
        &[
            Fd(Any),
            Struct(OFFSET),
            Fd(Any),
            Struct(OFFSET),
            Len,
            Flags(SPLICE),
        ],
    )
    .weight(8),
    Desc::call(
        "tee",
        libc::SYS_tee,
        &[Fd(Pipe), Fd(Any), Len, Flags(SPLICE)],
    )
    .weight(1),
    Desc::call(
        "vmsplice",
        libc::SYS_vmsplice,
        &[Fd(Pipe), Array(IOVEC), Count, Flags(SPLICE)],
    ),
    Desc::call(
        "sendfile",
        libc::SYS_sendfile,
        &[Fd(Conn), Fd(File), Struct(OFFSET), Len],
    )
    .weight(6),
    Desc::special(
        "uring",
        Special::Uring,
        &[One(URING_OPS), Fd(Sock), Mem, Len, Flags(MSG)],
    )
    .weight(6),
];

/// All calls, in the same order each time.
pub fn all() -> impl Iterator<Item = &'static Desc> {
    SOCKETS.iter().chain(memory::CALLS)
}

/// The call of that name.
pub fn find(name: &str) -> Option<&'static Desc> {
    all().find(|desc| desc.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    fn size(fields: &[Field]) -> usize {
        fields.iter().map(|f| f.size).sum()
    }

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(size(VERSION), size_of::<abi::zrs_ioc_version>());
        assert_eq!(size(SOCKET), size_of::<abi::zrs_ioc_socket>());
        assert_eq!(size(STATS), size_of::<abi::zrs_ioc_stats>());
        assert_eq!(size(POOL), size_of::<abi::zrs_ioc_pool>());
        assert_eq!(size(LINK), size_of::<abi::zrs_ioc_link>());
        assert_eq!(size(SOCK), size_of::<abi::zrs_ioc_sock>());
        assert_eq!(size(DGRAM), size_of::<abi::zrs_ioc_dgram>());
        assert_eq!(size(TABLE), size_of::<abi::zrs_ioc_table>());
        assert_eq!(size(CACHE), size_of::<abi::zrs_ioc_cache>());
        assert_eq!(size(RX_RING), size_of::<abi::zrs_rx_ring>());
        assert_eq!(size(SOCKADDR), size_of::<libc::sockaddr_in>());
        assert_eq!(size(SOCKADDR6), size_of::<libc::sockaddr_in6>());
        assert_eq!(size(IOVEC), size_of::<libc::iovec>());
        assert_eq!(size(MSGHDR), size_of::<libc::msghdr>());
        assert_eq!(size(MMSGHDR), size_of::<libc::mmsghdr>());
        assert_eq!(size(POLLFD), size_of::<libc::pollfd>());
        assert_eq!(size(EPOLL_EVENT), size_of::<libc::epoll_event>());
        assert_eq!(size(CONTROL), 24);
    }

    #[test]
    fn names_are_unique() {
        for desc in all() {
            let same = all().filter(|d| d.name == desc.name).count();
            assert_eq!(same, 1, "{}", desc.name);
        }
    }

    #[test]
    fn calls_have_room_for_their_arguments() {
        for desc in all() {
            let passed = desc.args.iter().filter(|k| !matches!(k, Ns)).count();
            assert!(passed <= 6, "{}", desc.name);
        }
    }
}
