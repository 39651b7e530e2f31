// SPDX-License-Identifier: GPL-2.0
//! More system calls with their errno: waiting in every way, several messages at once, descriptors
//! of other processes. `unsafe` is allowed here.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, pid_t};

use crate::support::raw::{Errno, Result};

fn last<T>() -> Result<T> {
    Err(std::io::Error::last_os_error().into())
}

fn check(r: c_int) -> Result<c_int> {
    if r < 0 {
        return last();
    }
    Ok(r)
}

fn raw(fd: &impl AsFd) -> c_int {
    fd.as_fd().as_raw_fd()
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the callers have just made it, or got it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// select() on one descriptor: whether it is in the sets for reading, writing and exceptions
/// afterwards.
pub fn select(fd: &impl AsFd, ms: u32) -> Result<(bool, bool, bool)> {
    let number = raw(fd);
    assert!(usize::try_from(number).is_ok_and(|n| n < libc::FD_SETSIZE));
    let mut time = libc::timeval {
        tv_sec: (ms / 1000).into(),
        tv_usec: libc::suseconds_t::from(ms % 1000) * 1000,
    };
    // SAFETY: zeroes are empty sets, the number fits in them, and all outlives the call.
    unsafe {
        let mut sets: [libc::fd_set; 3] = zeroed();
        let [read, write, except] = &mut sets;
        for set in [&mut *read, &mut *write, &mut *except] {
            libc::FD_SET(number, set);
        }
        check(libc::select(number + 1, read, write, except, &raw mut time))?;
        let is = |set: &libc::fd_set| libc::FD_ISSET(number, set);
        Ok((is(read), is(write), is(except)))
    }
}

/// Waits by select() for data, at most `time`; whether there is some.
pub fn select_read_within(fd: &impl AsFd, time: Duration) -> Result<bool> {
    let number = raw(fd);
    assert!(usize::try_from(number).is_ok_and(|n| n < libc::FD_SETSIZE));
    let mut time = libc::timeval {
        tv_sec: time.as_secs() as libc::time_t,
        tv_usec: time.subsec_micros().into(),
    };
    // SAFETY: zeroes are an empty set, the number fits in it, and set and time outlive the call.
    unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(number, &raw mut set);
        let none = ptr::null_mut::<libc::fd_set>();
        let (set, time) = (&raw mut set, &raw mut time);
        // The C library makes pselect() of it.
        #[cfg(target_arch = "x86_64")]
        let n = libc::syscall(libc::SYS_select, number + 1, set, none, none, time) as c_int;
        #[cfg(not(target_arch = "x86_64"))]
        let n = libc::select(number + 1, set, none, none, time);
        Ok(check(n)? > 0)
    }
}

/// The same by pselect().
pub fn pselect_read_within(fd: &impl AsFd, time: Duration) -> Result<bool> {
    let number = raw(fd);
    assert!(usize::try_from(number).is_ok_and(|n| n < libc::FD_SETSIZE));
    let time = timespec(time);
    // SAFETY: as in `select_read_within`; no signal mask is given.
    unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(number, &raw mut set);
        let (none, set, time) = (ptr::null_mut(), &raw mut set, &raw const time);
        let n = libc::pselect(number + 1, set, none, none, time, ptr::null());
        Ok(check(n)? > 0)
    }
}

/// The same by ppoll().
pub fn ppoll_read_within(fd: &impl AsFd, time: Duration) -> Result<bool> {
    let time = timespec(time);
    let mut one = libc::pollfd {
        fd: raw(fd),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor and a time that outlive the call; no signal mask is given.
    Ok(check(unsafe { libc::ppoll(&raw mut one, 1, &raw const time, ptr::null()) })? > 0)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Waits by select() until the descriptor is in the set for reading; whether it is.
pub fn select_read(fd: &impl AsFd) -> Result<bool> {
    let number = raw(fd);
    assert!(usize::try_from(number).is_ok_and(|n| n < libc::FD_SETSIZE));
    // SAFETY: zeroes are an empty set, the number fits in it, and it outlives the call.
    unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(number, &raw mut set);
        let (none, forever) = (ptr::null_mut(), ptr::null_mut());
        check(libc::select(number + 1, &raw mut set, none, none, forever))?;
        Ok(libc::FD_ISSET(number, &raw const set))
    }
}

/// A timer that is over after `ms` milliseconds.
pub fn timer(ms: u32) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) })?;
    let fd = owned(fd);
    set_timer(&fd, ms)?;
    Ok(fd)
}

/// The same once more.
pub fn set_timer(fd: &impl AsFd, ms: u32) -> Result<()> {
    // SAFETY: zeroes are a time.
    let mut time: libc::itimerspec = unsafe { zeroed() };
    time.it_value.tv_sec = (ms / 1000).into();
    time.it_value.tv_nsec = i64::from(ms % 1000) * 1_000_000;
    // SAFETY: a time, and no room for the old one.
    check(unsafe { libc::timerfd_settime(raw(fd), 0, &raw const time, ptr::null_mut()) }).map(drop)
}

/// read() of a descriptor of any kind.
pub fn read(fd: &impl AsFd, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer has room for its length.
    let n = unsafe { libc::read(raw(fd), buf.as_mut_ptr().cast(), buf.len()) };
    usize::try_from(n).or_else(|_| last())
}

/// write() to a descriptor of any kind.
pub fn write(fd: &impl AsFd, buf: &[u8]) -> Result<usize> {
    // SAFETY: the buffer is of its length.
    let n = unsafe { libc::write(raw(fd), buf.as_ptr().cast(), buf.len()) };
    usize::try_from(n).or_else(|_| last())
}

/// Copies `fd`'s open file from the process `pid`, whose descriptor has the number `number`.
pub fn fd_of(pid: pid_t, number: c_int) -> Result<OwnedFd> {
    let call = |r: libc::c_long| c_int::try_from(r).map_err(|_| Errno(libc::EOVERFLOW));
    // SAFETY: no pointers.
    let process = owned(check(call(unsafe {
        libc::syscall(libc::SYS_pidfd_open, pid, 0)
    })?)?);
    // SAFETY: no pointers.
    let got = call(unsafe { libc::syscall(libc::SYS_pidfd_getfd, raw(&process), number, 0) })?;
    check(got).map(owned)
}

/// Whether the descriptor is closed by exec().
pub fn set_cloexec(fd: &impl AsFd, on: bool) -> Result<()> {
    let flags = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(raw(fd), libc::F_SETFD, flags) }).map(drop)
}

/// Becomes a program that does nothing, for long; close-on-exec closes. Returns only if that
/// failed.
pub fn exec_sleep() -> Result<()> {
    let (path, time) = (c"/bin/sleep", c"1000");
    let args = [path.as_ptr(), time.as_ptr(), ptr::null()];
    // SAFETY: strings, and a list that ends.
    unsafe { libc::execv(path.as_ptr(), args.as_ptr()) };
    last()
}

/// The descriptor that exec() left here, by its number.
///
/// EBADF: the number is not a descriptor.
pub fn inherited(number: c_int) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    Ok(owned(number))
}

/// dup2() to an unused number.
pub fn dup_to(fd: &impl AsFd, number: c_int) -> Result<OwnedFd> {
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0 {
        return Err(Errno(libc::EBUSY));
    }
    // SAFETY: no pointers.
    check(unsafe { libc::dup3(raw(fd), number, libc::O_CLOEXEC) }).map(owned)
}

/// A message for each piece, of [`MOST`] at most, with an empty name.
pub const MOST: usize = 4;

/// sendmmsg(), a message for each of `pieces`, all with the control message `cmsg` (level, type, an
/// int); how many bytes of each were sent.
pub fn send_many(
    fd: &impl AsFd,
    pieces: &[&[u8]],
    cmsg: Option<(c_int, c_int, c_int)>,
) -> Result<Vec<usize>> {
    assert!(pieces.len() <= MOST);
    let mut control = [0_u64; 3];
    // SAFETY: zeroes are vectors and messages without anything.
    let (mut iov, mut all): ([libc::iovec; MOST], [libc::mmsghdr; MOST]) = unsafe { zeroed() };
    for ((message, iov), piece) in all.iter_mut().zip(&mut iov).zip(pieces) {
        iov.iov_base = piece.as_ptr().cast_mut().cast();
        iov.iov_len = piece.len();
        message.msg_hdr.msg_iov = iov;
        message.msg_hdr.msg_iovlen = 1;
        if let Some((level, kind, value)) = cmsg {
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of_val(&control) as _;
            // SAFETY: there is room for a header and an int.
            unsafe {
                let header = libc::CMSG_FIRSTHDR(&raw const message.msg_hdr);
                (*header).cmsg_level = level;
                (*header).cmsg_type = kind;
                (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as _;
                libc::CMSG_DATA(header)
                    .cast::<c_int>()
                    .write_unaligned(value);
            }
        }
    }
    // SAFETY: `count` messages; all that they name outlives the call, and is only read.
    let n = check(unsafe {
        libc::sendmmsg(
            raw(fd),
            all.as_mut_ptr(),
            pieces.len() as u32,
            libc::MSG_NOSIGNAL,
        )
    })?;
    Ok(all[..n as usize]
        .iter()
        .map(|m| m.msg_len as usize)
        .collect())
}

/// A message of recvmmsg(): bytes, flags, and the lengths of its control messages and its name.
#[derive(PartialEq, Eq, Debug)]
pub struct Got {
    pub bytes: usize,
    pub flags: c_int,
    pub control: usize,
    pub name: u32,
}

/// recvmmsg(), a message for each of `pieces`, with room for control messages and names.
pub fn recv_many(fd: &impl AsFd, pieces: &mut [&mut [u8]], flags: c_int) -> Result<Vec<Got>> {
    assert!(pieces.len() <= MOST);
    let mut control = [[0_u64; 8]; MOST];
    // SAFETY: zeroes are names, vectors and messages without anything.
    let mut names: [libc::sockaddr_in; MOST] = unsafe { zeroed() };
    // SAFETY: as above.
    let (mut iov, mut all): ([libc::iovec; MOST], [libc::mmsghdr; MOST]) = unsafe { zeroed() };
    let rooms = control.iter_mut().zip(&mut names);
    for (((message, iov), piece), (control, name)) in
        all.iter_mut().zip(&mut iov).zip(&mut *pieces).zip(rooms)
    {
        iov.iov_base = piece.as_mut_ptr().cast();
        iov.iov_len = piece.len();
        let header = &mut message.msg_hdr;
        header.msg_iov = iov;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(control) as _;
        header.msg_name = (&raw mut *name).cast();
        header.msg_namelen = size_of_val(name) as u32;
    }
    let (all_at, count) = (all.as_mut_ptr(), pieces.len() as u32);
    // SAFETY: `count` messages; all that they name has room for the lengths given, and outlives the
    // call.
    let n = unsafe { libc::recvmmsg(raw(fd), all_at, count, flags, ptr::null_mut()) };
    let n = check(n)?;
    let got = |m: &libc::mmsghdr| Got {
        bytes: m.msg_len as usize,
        flags: m.msg_hdr.msg_flags,
        control: m.msg_hdr.msg_controllen,
        name: m.msg_hdr.msg_namelen,
    };
    Ok(all[..n as usize].iter().map(got).collect())
}

/// readv() into `pieces`, which may be many.
pub fn readv(fd: &impl AsFd, pieces: &mut [Vec<u8>]) -> Result<usize> {
    let iov: Vec<_> = pieces
        .iter_mut()
        .map(|piece| libc::iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: the pieces have room for their lengths and outlive the call.
    let n = unsafe { libc::readv(raw(fd), iov.as_ptr(), iov.len() as c_int) };
    usize::try_from(n).or_else(|_| last())
}

/// writev() of `pieces`.
pub fn writev(fd: &impl AsFd, pieces: &[Vec<u8>]) -> Result<usize> {
    let iov: Vec<_> = pieces
        .iter()
        .map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: the pieces are of their lengths, outlive the call, and are only read.
    let n = unsafe { libc::writev(raw(fd), iov.as_ptr(), iov.len() as c_int) };
    usize::try_from(n).or_else(|_| last())
}
