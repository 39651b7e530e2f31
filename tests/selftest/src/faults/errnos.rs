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
pub const ACCEPT: &[i32] = &[ENOMEM, ENFILE, EMFILE, EFAULT];
/// send() and sendmsg().
pub const SEND: &[i32] = &[ENOMEM, EFAULT];
/// send() of copied data: there are buffers for it.
pub const SEND_COPIED: &[i32] = &[EFAULT];
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
