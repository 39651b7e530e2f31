// SPDX-License-Identifier: GPL-2.0
//! What a ZRS socket has beyond the socket calls: its two options and the doorbell; and one option that
//! every socket has.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

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

/// setsockopt(ZRS_RX_RING), then getsockopt: makes the ring, or finds the one that is there.
///
/// ENOTCONN, EBUSY, ENOMEM, ENOBUFS as the header says; ENOPROTOOPT: not a ZRS socket.
pub fn rx_ring(fd: BorrowedFd<'_>) -> io::Result<zrs_rx_ring> {
    let mut value = zrs_rx_ring::default();
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

/// setsockopt(SO_BUSY_POLL), microseconds. EPERM: more than it was, without CAP_NET_ADMIN; EINVAL: more
/// than `i32::MAX`.
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

/// ZRS_IOC_DOORBELL: the kernel looks for descriptors given back.
pub fn doorbell(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ZRS_IOC_DOORBELL as _) })
}

fn check(r: libc::c_int) -> io::Result<()> {
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
