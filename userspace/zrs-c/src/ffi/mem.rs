// SPDX-License-Identifier: GPL-2.0
//! The C functions for regions of memory nodes. The header describes them.

use std::ffi::{c_char, c_int, c_uint, CStr};
use std::io;
use std::mem::offset_of;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::ptr;

use zrs::mem::{Alloc, Derive, Key, NodeId, Region, RemoteStorage, Rights, StorageId};
use zrs::Zrs;
use zrs_sys::abi::{zrs_mem_cqe, zrs_mem_sqe};
use zrs_sys::{queue, Device};

use super::{borrowed, or, timeout};
use crate::errno::error;

/// A storage id with its node.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zrs_storage {
    /// The node's domain.
    pub domain: u32,
    /// The node's number in it.
    pub node: u32,
    /// Address of the first byte, as the owner has it.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// The key: the region,
    pub region: u32,
    /// its generation,
    pub gen: u32,
    /// and the secret.
    pub secret: u64,
}

/// The argument of [`zrs_mem_alloc`].
#[repr(C)]
pub struct zrs_mem_request {
    /// The node's domain.
    pub domain: u32,
    /// The node's number in it.
    pub node: u32,
    /// Bytes.
    pub len: u64,
    /// Address of the first byte, for the storage id.
    pub va: u64,
    /// ZRS_REGION_KEEP.
    pub flags: u32,
    /// Time to live.
    pub ttl_ms: u32,
    /// The node's admission key.
    pub admission: [u8; 16],
}

/// The region stays when its descriptor is closed.
const KEEP: u32 = 1;

/// The argument of [`zrs_mem_key`].
#[repr(C)]
pub struct zrs_mem_scope {
    /// The operations.
    pub rights: u32,
    /// How many may begin.
    pub uses: u32,
    /// The part of the region.
    pub off: u64,
    /// Its bytes.
    pub len: u64,
    /// Time to live.
    pub ttl_ms: u32,
    /// Zero.
    pub reserved: u32,
}

/// An operation for [`zrs_mem_submit`]: a `zrs_mem_sqe` by other names.
#[repr(C)]
pub struct zrs_mem_op {
    /// ZRS_OP_COPY and so on.
    pub op: u8,
    /// ZRS_OP_DRAIN.
    pub flags: u8,
    /// Zero.
    pub reserved0: u16,
    /// The region that is written or read.
    pub region: i32,
    /// The region that is copied from.
    pub from: i32,
    /// Zero.
    pub reserved1: u32,
    /// Where in `region`.
    pub off: u64,
    /// In C a union: where in `from`, or the memory, or the operation to cancel.
    pub from_off: u64,
    /// Bytes.
    pub len: u64,
    /// What the completion is to have.
    pub id: u64,
    /// Zero.
    pub reserved2: [u64; 2],
}

/// A completion that [`zrs_mem_reap`] gives: a `zrs_mem_cqe` by other names.
#[repr(C)]
pub struct zrs_mem_done {
    /// The operation's.
    pub id: u64,
    /// Bytes, or a negative errno.
    pub result: i64,
    /// Bytes that have landed for sure.
    pub landed: u64,
    /// Zero.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

macro_rules! same {
    ($ours:ident, $kernel:ident, $($our:ident $its:ident),*) => {
        const _: () = {
            assert!(size_of::<$ours>() == size_of::<$kernel>());
            $(assert!(offset_of!($ours, $our) == offset_of!($kernel, $its));)*
        };
    };
}
same!(
    zrs_mem_op, zrs_mem_sqe, op op, flags flags, region fd, from src_fd, off off, from_off src,
    len len, id user_data
);
same!(zrs_mem_done, zrs_mem_cqe, id user_data, result res, landed done, flags flags);

impl From<RemoteStorage> for zrs_storage {
    fn from(id: RemoteStorage) -> Self {
        let StorageId { va, len, key } = id.storage;
        Self {
            domain: id.node.domain,
            node: id.node.node,
            va,
            len,
            region: key.region,
            gen: key.gen,
            secret: key.secret,
        }
    }
}

impl From<&zrs_storage> for RemoteStorage {
    fn from(id: &zrs_storage) -> Self {
        let key = Key {
            region: id.region,
            gen: id.gen,
            secret: id.secret,
        };
        Self {
            node: NodeId {
                domain: id.domain,
                node: id.node,
            },
            storage: StorageId {
                va: id.va,
                len: id.len,
                key,
            },
        }
    }
}

/// The object behind a pointer of the caller.
///
/// # Safety
///
/// It is NULL, or there is a `T` for the time of the call.
unsafe fn given<'a, T>(pointer: *const T) -> io::Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| error(libc::EFAULT))
}

/// Writes a result.
///
/// # Safety
///
/// `to` is NULL, or can be written.
unsafe fn give<T>(to: *mut T, value: T) -> io::Result<()> {
    if to.is_null() {
        return Err(error(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    unsafe { ptr::write(to, value) };
    Ok(())
}

/// The region of a descriptor; a second descriptor, which its end closes.
fn region(fd: c_int, storage: RemoteStorage) -> io::Result<Region> {
    Ok(Region::from_parts(
        borrowed(fd)?.try_clone_to_owned()?,
        storage,
    ))
}

/// The storage id of a text.
///
/// # Safety
///
/// `text` is NULL or a C string; `storage` is NULL or can be written.
#[no_mangle]
pub unsafe extern "C" fn zrs_storage_parse(
    text: *const c_char,
    storage: *mut zrs_storage,
) -> c_int {
    let parse = || {
        if text.is_null() {
            return Err(error(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_str().map_err(|_| error(libc::EINVAL))?;
        let id: RemoteStorage = text.parse().map_err(|_| error(libc::EINVAL))?;
        // SAFETY: the caller's promise.
        unsafe { give(storage, id.into()) }
    };
    or(-1, parse().map(|()| 0))
}

/// The text of a storage id.
///
/// # Safety
///
/// `storage` is NULL or there is one; `text` is NULL, or `size` bytes can be written there.
#[no_mangle]
pub unsafe extern "C" fn zrs_storage_format(
    storage: *const zrs_storage,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let format = || {
        // SAFETY: the caller's promise.
        let id = RemoteStorage::from(unsafe { given(storage)? }).to_string();
        if text.is_null() {
            return Err(error(libc::EFAULT));
        }
        if id.len() >= size {
            return Err(error(libc::ENOSPC));
        }
        // SAFETY: there is room for the text and the zero, by the caller's promise.
        unsafe {
            ptr::copy_nonoverlapping(id.as_ptr().cast(), text, id.len());
            text.add(id.len()).write(0);
        }
        Ok(id.len() as c_int)
    };
    or(-1, format())
}

/// Allocates a region.
///
/// # Safety
///
/// `request` is NULL or there is one; `storage` is NULL or can be written.
#[no_mangle]
pub unsafe extern "C" fn zrs_mem_alloc(
    request: *const zrs_mem_request,
    storage: *mut zrs_storage,
) -> c_int {
    let alloc = || {
        // SAFETY: the caller's promise.
        let request = unsafe { given(request)? };
        if storage.is_null() {
            return Err(error(libc::EFAULT));
        }
        if request.flags & !KEEP != 0 {
            return Err(error(libc::EINVAL));
        }
        let region = Region::alloc(
            &Zrs::open()?,
            &Alloc {
                via: None,
                node: NodeId {
                    domain: request.domain,
                    node: request.node,
                },
                len: request.len,
                va: request.va,
                keep: request.flags & KEEP != 0,
                ttl_ms: request.ttl_ms,
                admission: request.admission,
            },
        )?;
        // SAFETY: the caller's promise.
        unsafe { give(storage, region.storage().into())? };
        Ok(OwnedFd::from(region).into_raw_fd())
    };
    or(-1, alloc())
}

/// Opens a region.
///
/// # Safety
///
/// `storage` is NULL or there is one.
#[no_mangle]
pub unsafe extern "C" fn zrs_mem_open(storage: *const zrs_storage) -> c_int {
    let open = || {
        // SAFETY: the caller's promise.
        let id = unsafe { given(storage)? }.into();
        let region = Region::open(&Zrs::open()?, id)?;
        Ok(OwnedFd::from(region).into_raw_fd())
    };
    or(-1, open())
}

/// Derives a key.
///
/// # Safety
///
/// `storage` and `scope` are NULL or there is one; `key` is NULL or can be written.
#[no_mangle]
pub unsafe extern "C" fn zrs_mem_key(
    fd: c_int,
    storage: *const zrs_storage,
    scope: *const zrs_mem_scope,
    key: *mut zrs_storage,
) -> c_int {
    let derive = || {
        // SAFETY: the caller's promise.
        let (storage, scope) = unsafe { (given(storage)?, given(scope)?) };
        if key.is_null() {
            return Err(error(libc::EFAULT));
        }
        let rights = Rights::from_bits(scope.rights).filter(|_| scope.reserved == 0);
        let wanted = Derive {
            rights: rights.ok_or_else(|| error(libc::EINVAL))?,
            range: (scope.off, scope.len),
            uses: scope.uses,
            ttl_ms: scope.ttl_ms,
        };
        let derived = region(fd, storage.into())?.derive(&wanted)?;
        // SAFETY: the caller's promise.
        unsafe { give(key, derived.into()) }
    };
    or(-1, derive().map(|()| 0))
}

/// Revokes a key.
///
/// # Safety
///
/// `key` is NULL or there is one.
#[no_mangle]
pub unsafe extern "C" fn zrs_mem_unkey(fd: c_int, key: *const zrs_storage) -> c_int {
    let revoke = || {
        // SAFETY: the caller's promise.
        let key = RemoteStorage::from(unsafe { given(key)? });
        region(fd, key)?.revoke(key.storage.key)
    };
    or(-1, revoke().map(|()| 0))
}

/// Seals a region.
#[no_mangle]
pub extern "C" fn zrs_mem_seal(fd: c_int) -> c_int {
    let seal = || zrs_sys::region::seal(borrowed(fd)?);
    or(-1, seal().map(|()| 0))
}

/// Frees a region.
#[no_mangle]
pub extern "C" fn zrs_mem_free(fd: c_int) -> c_int {
    let free = || zrs_sys::region::free(borrowed(fd)?);
    or(-1, free().map(|()| 0))
}

/// Copies between regions.
#[no_mangle]
pub extern "C" fn zrs_mem_copy(
    from: c_int,
    from_off: i64,
    to: c_int,
    to_off: i64,
    len: usize,
) -> isize {
    let copy = || {
        let offset = |off| u64::try_from(off).map_err(|_| error(libc::EINVAL));
        let (from, to) = (borrowed(from)?, borrowed(to)?);
        let (from_off, to_off) = (offset(from_off)?, offset(to_off)?);
        zrs::mem::copy(from, from_off, to, to_off, len as u64)
    };
    // Not more than isize::MAX, as the calls were limited to that.
    or(-1, copy().map(|copied| copied as isize))
}

/// Makes a queue.
#[no_mangle]
pub extern "C" fn zrs_mem_queue(entries: c_uint) -> c_int {
    let make = || Ok(Device::open()?.mem_queue_fd(entries)?.into_raw_fd());
    or(-1, make())
}

/// Queues operations.
///
/// # Safety
///
/// There are `count` operations at `ops`, or it is NULL. The memory of a read belongs to the kernel
/// until its completion. The kernel says EFAULT where memory is not mapped.
#[no_mangle]
pub unsafe extern "C" fn zrs_mem_submit(fd: c_int, ops: *const zrs_mem_op, count: c_uint) -> c_int {
    let submit = || {
        // SAFETY: an operation is a `zrs_mem_sqe`; the rest is the caller's promise.
        unsafe { queue::submit(borrowed(fd)?, ops.cast::<zrs_mem_sqe>(), count) }
    };
    // Not more than the entries of a queue.
    or(-1, submit().map(|taken| taken as c_int))
}

/// Takes completions.
///
/// # Safety
///
/// `count` of them can be written at `done`, or it is NULL.
#[no_mangle]
pub unsafe extern "C" fn zrs_mem_reap(
    fd: c_int,
    done: *mut zrs_mem_done,
    count: c_uint,
    timeout_ms: c_int,
) -> c_int {
    let reap = || {
        let (cqes, time) = (done.cast::<zrs_mem_cqe>(), timeout(timeout_ms));
        // SAFETY: a completion is a `zrs_mem_cqe`; the rest is the caller's promise.
        unsafe { queue::reap(borrowed(fd)?, cqes, count, time) }
    };
    // Not more than the entries of a queue.
    or(-1, reap().map(|taken| taken as c_int))
}
