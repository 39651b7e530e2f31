// SPDX-License-Identifier: GPL-2.0
//! Calls on a region's descriptor, and memory to be served.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

use crate::abi::*;

fn call<T>(fd: BorrowedFd<'_>, request: u32, arg: *mut T) -> io::Result<()> {
    // SAFETY: the callers give one structure that fits the request, or none to a request without.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, arg) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// ZRS_REGION_INFO.
pub fn info(fd: BorrowedFd<'_>) -> io::Result<zrs_region_info> {
    let mut arg = zrs_region_info::default();
    call(fd, ZRS_REGION_INFO, &raw mut arg)?;
    Ok(arg)
}

/// ZRS_REGION_KEY.
pub fn key(fd: BorrowedFd<'_>, mut arg: zrs_region_key) -> io::Result<zrs_mem_key> {
    call(fd, ZRS_REGION_KEY, &raw mut arg)?;
    Ok(arg.key)
}

/// ZRS_REGION_UNKEY.
pub fn unkey(fd: BorrowedFd<'_>, key: zrs_mem_key) -> io::Result<()> {
    let mut arg = zrs_region_key {
        key,
        ..Default::default()
    };
    call(fd, ZRS_REGION_UNKEY, &raw mut arg)
}

/// ZRS_REGION_SEAL.
pub fn seal(fd: BorrowedFd<'_>) -> io::Result<()> {
    call(fd, ZRS_REGION_SEAL, std::ptr::null_mut::<()>())
}

/// ZRS_REGION_FREE.
pub fn free(fd: BorrowedFd<'_>) -> io::Result<()> {
    call(fd, ZRS_REGION_FREE, std::ptr::null_mut::<()>())
}

/// A memfd of `bytes` bytes, with huge pages of 2 MiB if `huge`.
pub fn memory(name: &CStr, bytes: u64, huge: bool) -> io::Result<File> {
    let huge = if huge {
        libc::MFD_HUGETLB | libc::MFD_HUGE_2MB
    } else {
        0
    };
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | huge) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    Ok(file)
}
