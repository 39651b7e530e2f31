// SPDX-License-Identifier: GPL-2.0
//! The C functions. The header describes them and the promises of their callers; here are only
//! types, null pointers and errno.
#![allow(non_camel_case_types)]

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::time::Duration;

use zrs::{PageBuf, RxRing, Segment, Stream};
use zrs_sys::sock;

use crate::errno::{self, error};

pub mod mem;

/// A receive ring, open.
pub struct zrs_rx(RxRing);

/// The result of [`zrs_rx_recv`].
#[repr(C)]
pub struct zrs_segment {
    /// The bytes.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
    /// The owner of the bytes, a box; to C a `struct zrs_held`.
    pub held: *mut Segment,
    /// They are a copy.
    pub copied: u32,
    /// Zero.
    pub reserved: u32,
}

impl zrs_segment {
    const NONE: Self = Self {
        data: ptr::null(),
        len: 0,
        held: ptr::null_mut(),
        copied: 0,
        reserved: 0,
    };
}

impl From<Segment> for zrs_segment {
    fn from(segment: Segment) -> Self {
        let (data, len) = (segment.view().as_ptr().cast(), segment.len());
        let copied = u32::from(!segment.is_zero_copy());
        // The bytes stay where they are when the guard moves.
        let held = Box::into_raw(Box::new(segment));
        Self {
            data,
            len,
            held,
            copied,
            reserved: 0,
        }
    }
}

/// The result of [`zrs_completion_wait`].
#[repr(C)]
pub struct zrs_completion {
    /// The first call that is complete.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// Something of them was copied.
    pub copied: u32,
    /// Zero.
    pub reserved: u32,
}

/// Makes the ring of a connected socket.
#[no_mangle]
pub extern "C" fn zrs_rx_open(fd: c_int) -> *mut zrs_rx {
    let open = || {
        let stream = Stream::from(borrowed(fd)?.try_clone_to_owned()?);
        let ring = stream.rx_ring()?;
        // Then the end of the ring does not shut the socket down, which the program goes on using.
        drop(OwnedFd::try_from(stream)?);
        Ok(Box::into_raw(Box::new(zrs_rx(ring))))
    };
    or(ptr::null_mut(), open())
}

/// Waits for the next segment.
///
/// # Safety
///
/// `rx` is NULL or open; `segment` is NULL or can be written.
#[no_mangle]
pub unsafe extern "C" fn zrs_rx_recv(
    rx: *const zrs_rx,
    segment: *mut zrs_segment,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (rx, segment) = unsafe { (rx.as_ref(), segment.as_mut()) };
    let recv = || {
        let segment = segment.ok_or(error(libc::EFAULT))?;
        *segment = zrs_segment::NONE;
        let rx = rx.ok_or(error(libc::EFAULT))?;
        let found = match timeout(timeout_ms) {
            None => rx.0.recv()?,
            Some(Duration::ZERO) => rx.0.try_recv()?,
            Some(time) => rx.0.recv_timeout(time)?,
        };
        Ok(match found {
            Some(found) => {
                *segment = found.into();
                1
            }
            None => 0,
        })
    };
    or(-1, recv())
}

/// Gives a segment's room back to the peer.
///
/// # Safety
///
/// `segment` is NULL, or zeroes, or was written by [`zrs_rx_recv`] or this function.
#[no_mangle]
pub unsafe extern "C" fn zrs_segment_release(segment: *mut zrs_segment) {
    // SAFETY: the caller's promise.
    let Some(segment) = (unsafe { segment.as_mut() }) else {
        return;
    };
    if let Some(held) = NonNull::new(segment.held) {
        // SAFETY: `zrs_segment::from` made it of a box, and it was not released yet.
        drop(unsafe { Box::from_raw(held.as_ptr()) });
    }
    *segment = zrs_segment::NONE;
}

/// Bytes in the ring's window.
///
/// # Safety
///
/// `rx` is NULL or open.
#[no_mangle]
pub unsafe extern "C" fn zrs_rx_window(rx: *const zrs_rx) -> usize {
    // SAFETY: the caller's promise.
    unsafe { rx.as_ref() }.map_or(0, |rx| rx.0.window_len())
}

/// Closes a ring.
///
/// # Safety
///
/// `rx` is NULL, or open and not in use by other threads.
#[no_mangle]
pub unsafe extern "C" fn zrs_rx_close(rx: *mut zrs_rx) {
    if let Some(rx) = NonNull::new(rx) {
        // SAFETY: `zrs_rx_open` made it of a box; the rest is the caller's promise.
        drop(unsafe { Box::from_raw(rx.as_ptr()) });
    }
}

/// Sends without a copy, and without waiting for the device.
///
/// # Safety
///
/// There are `len` bytes at `buf`. The kernel says EFAULT where memory is not mapped.
#[no_mangle]
pub unsafe extern "C" fn zrs_send_zero_copy(fd: c_int, buf: *const c_void, len: usize) -> isize {
    let iov = libc::iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    };
    // SAFETY: there is one, and the rest is the caller's promise.
    unsafe { zrs_sendv_zero_copy(fd, &raw const iov, 1) }
}

/// As [`zrs_send_zero_copy`], of several buffers.
///
/// # Safety
///
/// There are `count` buffers at `iov`, or it is NULL; each of them as [`zrs_send_zero_copy`] wants
/// it.
#[no_mangle]
pub unsafe extern "C" fn zrs_sendv_zero_copy(
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> isize {
    let send = || {
        let count = usize::try_from(count).map_err(|_| error(libc::EINVAL))?;
        let iov = NonNull::new(iov.cast_mut()).ok_or(error(libc::EFAULT))?;
        // SAFETY: an IoSlice is an iovec, and there are `count` of them, by the caller's promise.
        // Only the kernel reads the bytes, so they need not even be mapped.
        let bufs = unsafe { slice::from_raw_parts(iov.as_ptr().cast::<IoSlice<'_>>(), count) };
        sock::send_zerocopy_vectored(borrowed(fd)?, bufs)
    };
    // Not more than isize::MAX, as it was one in the system call.
    or(-1, send().map(|sent| sent as isize))
}

/// Waits for the device to be done with calls.
///
/// # Safety
///
/// `completion` is NULL or can be written.
#[no_mangle]
pub unsafe extern "C" fn zrs_completion_wait(
    fd: c_int,
    completion: *mut zrs_completion,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let completion = unsafe { completion.as_mut() };
    let wait = || {
        let completion = completion.ok_or(error(libc::EFAULT))?;
        let Some(done) = sock::wait_completion(borrowed(fd)?, timeout(timeout_ms))? else {
            return Ok(0);
        };
        *completion = zrs_completion {
            first: done.first,
            last: done.last,
            copied: u32::from(done.copied),
            reserved: 0,
        };
        Ok(1)
    };
    or(-1, wait())
}

/// Memory in whole pages.
#[no_mangle]
pub extern "C" fn zrs_pages_alloc(len: usize) -> *mut c_void {
    let alloc = || Ok(PageBuf::new(len)?.into_raw().as_ptr().cast());
    or(ptr::null_mut(), alloc())
}

/// Gives it back.
///
/// # Safety
///
/// `pages` is NULL, or [`zrs_pages_alloc`] made it with this `len`, and it is not used any more.
#[no_mangle]
pub unsafe extern "C" fn zrs_pages_free(pages: *mut c_void, len: usize) {
    if let Some(pages) = NonNull::new(pages.cast()) {
        // SAFETY: the caller's promise.
        drop(unsafe { PageBuf::from_raw(pages, len) });
    }
}

/// The value; or `failed`, and the reason in errno.
fn or<T>(failed: T, result: io::Result<T>) -> T {
    result.unwrap_or_else(|e| {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = errno::of(&e) };
        failed
    })
}

/// The caller's descriptor.
fn borrowed<'fd>(fd: c_int) -> io::Result<BorrowedFd<'fd>> {
    if fd < 0 {
        return Err(error(libc::EBADF));
    }
    // SAFETY: it is open during the call, which is the caller's promise; if not, the kernel says
    // EBADF.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// As poll() has it: negative is for ever.
fn timeout(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
