// SPDX-License-Identifier: GPL-2.0
//! Extensions of a ZRS socket: its options, the doorbell and the wait for the ring; and of all
//! sockets, busy polling and MSG_ZEROCOPY.

use std::io::{self, IoSlice};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::*;

/// getsockopt(ZRS_INFO). ENOPROTOOPT: not a ZRS socket.
pub fn info(fd: BorrowedFd<'_>) -> io::Result<zrs_info> {
    let mut value = zrs_info::default();
    let mut len = size_of::<zrs_info>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes, and any bytes make a `zrs_info`.
    let r = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            SOL_ZRS as _,
            ZRS_INFO as _,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    check(r)?;
    Ok(value)
}

/// setsockopt(ZRS_RX_RING), then getsockopt: makes the ring, or finds the one that is there, which
/// need not have these `flags` (ZRS_RX_RING_*).
///
/// ENOTCONN, EBUSY, ENOMEM, ENOBUFS as the header says; EINVAL: the module does not know one of the
/// flags; ENOPROTOOPT: not a ZRS socket.
pub fn rx_ring(fd: BorrowedFd<'_>, flags: u32) -> io::Result<zrs_rx_ring> {
    let mut value = zrs_rx_ring {
        flags,
        ..Default::default()
    };
    let mut len = size_of::<zrs_rx_ring>() as libc::socklen_t;
    // SAFETY: `value` is `len` bytes long; setsockopt only reads it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            SOL_ZRS as _,
            ZRS_RX_RING as _,
            (&raw const value).cast(),
            len,
        )
    })?;
    // SAFETY: `value` has room for `len` bytes, and any bytes make a `zrs_rx_ring`.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            SOL_ZRS as _,
            ZRS_RX_RING as _,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

/// setsockopt(ZRS_TCP), to one of ZRS_TCP_*.
///
/// EINVAL: an unknown one, or too late; EACCES: the process has no_new_privs; ENOPROTOOPT: not a ZRS
/// socket, or the module does not know it.
pub fn set_tcp(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    set(fd, ZRS_TCP, mode)
}

/// setsockopt(ZRS_DGRAM_UDP): a UDP socket inside a datagram socket. Errors as for [`set_tcp`].
pub fn set_dgram_udp(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, ZRS_DGRAM_UDP, 1)
}

fn set(fd: BorrowedFd<'_>, option: u32, value: u32) -> io::Result<()> {
    // SAFETY: the value is as long as it is said to be; setsockopt only reads it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            SOL_ZRS as _,
            option as _,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    })
}

/// setsockopt(SO_BUSY_POLL), microseconds. EINVAL: more than `i32::MAX`; EPERM: some kernels want
/// CAP_NET_ADMIN for more than it was.
pub fn set_busy_poll(fd: BorrowedFd<'_>, us: u32) -> io::Result<()> {
    // SAFETY: the value is as long as it is said to be; setsockopt only reads it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const us).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    })
}

/// setsockopt(SO_ZEROCOPY).
pub fn set_zerocopy(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let value = libc::c_int::from(on);
    // SAFETY: the value is as long as it is said to be; setsockopt only reads it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
}

/// getsockopt(SO_ZEROCOPY).
pub fn zerocopy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value != 0)
}

/// send() with MSG_ZEROCOPY and MSG_NOSIGNAL. With SO_ZEROCOPY the kernel reads the bytes until the
/// call's [`completion`]: bytes that are overwritten before it may be sent changed.
///
/// Errors: those of send(), and ENOBUFS: RLIMIT_MEMLOCK, or too many calls without a completion.
pub fn send_zerocopy(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: the buffer is of its length. The kernel only reads it, and holds its pages for as
    // long.
    let n = unsafe { libc::send(fd.as_raw_fd(), buf.as_ptr().cast(), buf.len(), flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The most buffers that one call takes (UIO_MAXIOV).
pub const MOST_SLICES: usize = libc::UIO_MAXIOV as usize;

/// As [`send_zerocopy`], of several buffers, which are sent as if they were one. EMSGSIZE: more
/// than [`MOST_SLICES`].
pub fn send_zerocopy_vectored(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: zeroes are a message without anything.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    // An IoSlice is an iovec, and the kernel only reads it.
    msg.msg_iov = bufs.as_ptr().cast_mut().cast();
    msg.msg_iovlen = bufs.len() as _;
    let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
    // SAFETY: the message names `bufs` alone, each of them of its length. The kernel only reads
    // them, and holds their pages for as long.
    let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const msg, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Calls of [`send_zerocopy`] whose bytes the kernel is done with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The number of the first one; the calls of a socket that sent something are numbered from 0
    /// on, modulo 2^32.
    pub first: u32,
    /// The number of the last one.
    pub last: u32,
    /// Something of them was copied.
    pub copied: bool,
}

/// SO_EE_ORIGIN_ZEROCOPY and SO_EE_CODE_ZEROCOPY_COPIED of <linux/errqueue.h>.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// The next completion on the socket's error queue, if there is one. InvalidData: something else
/// was there, and has been thrown away.
pub fn completion(fd: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    let mut control = [0_u64; 32];
    // SAFETY: zeroes are a message without anything.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message has no room but that for control messages, which outlives the call.
    if unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, flags) } < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has filled the control buffer, and said in the message how far.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const msg) };
    while !header.is_null() {
        // SAFETY: a header found by the macros is in the buffer, with the length that it has.
        let (level, kind, len) = unsafe {
            let h = header.read_unaligned();
            (h.cmsg_level, h.cmsg_type, h.cmsg_len as usize)
        };
        // SAFETY: no memory is touched.
        let whole = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32) } as usize;
        let v6 = (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
        if (v6 || (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)) && len >= whole {
            // SAFETY: as above, and long enough.
            let err = unsafe {
                libc::CMSG_DATA(header)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned()
            };
            if err.ee_errno == 0 && err.ee_origin == ORIGIN_ZEROCOPY {
                return Ok(Some(Completion {
                    first: err.ee_info,
                    last: err.ee_data,
                    copied: err.ee_code & CODE_COPIED != 0,
                }));
            }
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const msg, header) };
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Waits for the next [`completion`], for ever without a `timeout`. `None`: none has come in that
/// time. Signals do not end it.
///
/// One must be outstanding, else a wait without end never ends. When the connection ends they come,
/// too.
pub fn wait_completion(
    fd: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<Option<Completion>> {
    // Too far away to be said is for ever.
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let mut woken = false;
    loop {
        if let Some(completion) = completion(fd)? {
            return Ok(Some(completion));
        }
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        if woken {
            // The connection is over, which poll() goes on saying; the completion is on its way.
            thread::sleep(Duration::from_millis(1));
        }
        woken = poll(fd, 0, left)?;
    }
}

/// Waits for one of `events`, POLLERR or POLLHUP, at most for about `timeout`. False: none is there.
pub(crate) fn poll(fd: BorrowedFd<'_>, events: i16, timeout: Option<Duration>) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let ms = timeout.map_or(-1, |t| {
        i32::try_from(t.as_millis()).map_or(i32::MAX, |ms| ms.saturating_add(1))
    });
    // SAFETY: there is one `pollfd`, which outlives the call.
    match check(unsafe { libc::poll(&raw mut poll, 1, ms) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(e),
        Ok(()) => Ok(poll.revents != 0),
    }
}

/// ZRS_IOC_DOORBELL: the kernel looks for descriptors given back.
pub fn doorbell(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ZRS_IOC_DOORBELL as _) })
}

/// ZRS_IOC_RING_WAIT: waits until the ring has had `head` segments, for the end of the stream or
/// its failure, or for `timeout`; `None` waits for ever.
///
/// EAGAIN: the time is over. EINTR, after a signal. EINVAL: no ring.
pub fn ring_wait(fd: BorrowedFd<'_>, head: u64, timeout: Option<Duration>) -> io::Result<()> {
    let wait = zrs_ioc_ring_wait {
        head,
        // Zero means for ever, and so does a value that does not fit.
        timeout_ns: timeout.map_or(0, |t| u64::try_from(t.as_nanos()).map_or(0, |ns| ns.max(1))),
        reserved: [0; 2],
    };
    // SAFETY: the request reads one `zrs_ioc_ring_wait`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ZRS_IOC_RING_WAIT as _, &raw const wait) })
}

fn check(r: libc::c_int) -> io::Result<()> {
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
