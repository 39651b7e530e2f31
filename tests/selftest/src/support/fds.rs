// SPDX-License-Identifier: GPL-2.0
//! Descriptors that one process gives to another.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::c_int;

use super::raw::{check, check_len, raw, Errno, Result};

pub fn unix_pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: the descriptors are new.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Room for one descriptor in a control message.
const CONTROL: usize = 24;

/// A message of one byte and room for a descriptor.
fn fd_message(
    byte: &mut u8,
    iov: &mut libc::iovec,
    control: &mut [u64; CONTROL / 8],
) -> libc::msghdr {
    *iov = libc::iovec {
        iov_base: (&raw mut *byte).cast(),
        iov_len: 1,
    };
    // SAFETY: zeroes are a message without anything.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    msg.msg_iov = iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = CONTROL as _;
    msg
}

/// Sends `fd` through the AF_UNIX socket `unix`.
pub fn send_fd(unix: &OwnedFd, fd: &impl AsFd) -> Result<()> {
    send_fd_flags(unix, fd, 0)
}

/// The same; EAGAIN if it cannot be taken at once.
pub fn send_fd_now(unix: &OwnedFd, fd: &impl AsFd) -> Result<()> {
    send_fd_flags(unix, fd, libc::MSG_DONTWAIT)
}

fn send_fd_flags(unix: &OwnedFd, fd: &impl AsFd, flags: c_int) -> Result<()> {
    let (mut byte, mut control) = (0, [0; CONTROL / 8]);
    let mut iov = libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    };
    let msg = fd_message(&mut byte, &mut iov, &mut control);
    // SAFETY: the control buffer has room for a header and an int; all outlives the call.
    let sent = unsafe {
        assert_eq!(
            libc::CMSG_SPACE(size_of::<c_int>() as u32) as usize,
            CONTROL
        );
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
        libc::CMSG_DATA(header)
            .cast::<c_int>()
            .write_unaligned(raw(fd));
        libc::sendmsg(raw(unix), &raw const msg, libc::MSG_NOSIGNAL | flags)
    };
    check_len(sent).map(drop)
}

/// Receives a descriptor through the AF_UNIX socket `unix`; EPROTO if none came.
pub fn recv_fd(unix: &OwnedFd) -> Result<OwnedFd> {
    recv_fd_flags(unix, 0)
}

/// As [`recv_fd`]; EAGAIN if nothing is there.
pub fn recv_fd_now(unix: &OwnedFd) -> Result<OwnedFd> {
    recv_fd_flags(unix, libc::MSG_DONTWAIT)
}

fn recv_fd_flags(unix: &OwnedFd, flags: c_int) -> Result<OwnedFd> {
    let (mut byte, mut control) = (0, [0; CONTROL / 8]);
    let mut iov = libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    };
    let mut msg = fd_message(&mut byte, &mut iov, &mut control);
    // SAFETY: the message's parts outlive the call.
    check_len(unsafe { libc::recvmsg(raw(unix), &raw mut msg, libc::MSG_CMSG_CLOEXEC | flags) })?;
    // SAFETY: the kernel has filled the control buffer; the descriptor in it is new.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(Errno(libc::EPROTO));
        }
        let fd = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
