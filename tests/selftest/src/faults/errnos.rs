// SPDX-License-Identifier: GPL-2.0
//! The errnos that each call may return without memory or because of a fault: those of
//! Documentation/uapi.rst, section "Without memory".

use libc::*;

/// open() of /dev/zrs.
pub const OPEN: &[i32] = &[ENOMEM, ENFILE, EMFILE, EFAULT];
/// ZRS_IOC_VERSION, STATS, POOL, LINK, SOCK.
pub const IOCTL: &[i32] = &[ENOMEM, EFAULT];
/// socket(), ZRS_IOC_SOCKET.
pub const SOCKET: &[i32] = &[ENOMEM, ENOBUFS, ENFILE, EMFILE, EFAULT];
pub const BIND: &[i32] = &[ENOMEM, EFAULT];
pub const LISTEN: &[i32] = &[ENOMEM];
pub const CONNECT: &[i32] = &[ENOMEM, ENOBUFS, EFAULT];
/// Calls of a socket with an inner TCP socket, whose bind() fails with EADDRINUSE when the kernel has
/// no memory for a port.
pub const BIND_BESIDE: &[i32] = &[ENOMEM, ENOBUFS, EFAULT, EADDRINUSE];
pub const LISTEN_BESIDE: &[i32] = &[ENOMEM, ENOBUFS, EADDRINUSE];
pub const CONNECT_BESIDE: &[i32] = &[ENOMEM, ENOBUFS, EFAULT, EADDRNOTAVAIL];
pub const ACCEPT: &[i32] = &[ENOMEM, ENFILE, EMFILE, EFAULT];
/// send() and sendmsg().
pub const SEND: &[i32] = &[ENOMEM, EFAULT];
/// send() of copied data: there are buffers for it.
pub const SEND_COPIED: &[i32] = &[EFAULT];
/// connect() of a datagram socket; EAGAIN: without memory for a port, as UDP has it.
pub const CONNECT_DGRAM: &[i32] = &[ENOMEM, EAGAIN, EFAULT];
/// connect() of a datagram socket with UDP inside.
pub const CONNECT_COMPANION: &[i32] = &[ENOMEM, ENOBUFS, EAGAIN, EFAULT];
/// send() on a datagram socket; ENOBUFS with MSG_ZEROCOPY.
pub const SEND_DGRAM: &[i32] = &[ENOMEM, ENOBUFS, EFAULT];
/// recv() and recvmsg().
pub const RECV: &[i32] = &[ENOMEM, EFAULT];
pub const OPTION: &[i32] = &[ENOMEM, EFAULT];
/// setsockopt(ZRS_RX_RING).
pub const RING: &[i32] = &[ENOMEM, ENOBUFS, EFAULT];
pub const POLL: &[i32] = &[ENOMEM, EFAULT];
pub const MMAP: &[i32] = &[ENOMEM];
pub const NAME: &[i32] = &[EFAULT];
pub const NONE: &[i32] = &[];

/// connect() while something on the way fails.
pub const CONNECT_BROKEN: &[i32] = &[
    ENOMEM,
    ENOBUFS,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    ETIMEDOUT,
];
/// send() on a connection whose link fails.
pub const SEND_BROKEN: &[i32] = &[ENOMEM, ECONNRESET, EPIPE];
/// recv() on a connection whose link fails, or that was broken off for lack of memory.
pub const RECV_BROKEN: &[i32] = &[ENOMEM, ECONNRESET];

/// Calls on regions of memory nodes. ECONNRESET: a message could not be posted.
pub const MEMORY: &[i32] = &[ENOMEM, EFAULT, ECONNRESET];
/// Those that make a descriptor.
pub const MEMORY_FD: &[i32] = &[ENOMEM, EFAULT, ENFILE, EMFILE, ECONNRESET];
/// The same while something on the way fails.
pub const MEMORY_BROKEN: &[i32] = &[ENOMEM, ECONNRESET, EHOSTUNREACH, ECONNREFUSED];
