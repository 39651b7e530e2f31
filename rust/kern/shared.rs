// SPDX-License-Identifier: GPL-2.0

//! Kernel memory shared with a program: the pages that a descriptor ring or copied payload lives
//! in.
//!
//! C: `include/linux/vmalloc.h` (`__vmalloc`, `vmalloc_to_page`). The program maps it by
//! [`NewVma::map_shared`](super::vma::NewVma::map_shared) and may write anything to it at any time:
//! an access is one atomic load or store at a checked place, and loaded values are untrusted; or a
//! copy of raw bytes, without a reference to them. Pages mapped by
//! [`NewVma::map_shared_read_only`](super::vma::NewVma::map_shared_read_only) only the kernel
//! writes.

use crate::{
    bindings,
    kern::{contig::Payload, fault::points},
};
use core::ptr::NonNull;
use kernel::{
    page::page_align,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Full, Relaxed, Release},
};

/// The most bytes of one [`SharedPages`]; far above any ring, far below what wraps.
const MAX_BYTES: usize = 64 << 20;

/// Zeroed pages that the kernel and one program share.
///
/// # Invariants
///
/// `base` points to `bytes` bytes of memory from `__vmalloc`, page aligned; `bytes` is a
/// multiple of the page size.
pub struct SharedPages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to no task, and the address is the same in all of them.
unsafe impl Send for SharedPages {}
// SAFETY: all access is by atomic operations, or copies raw bytes that may change at any time
// anyway.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// At least `bytes` bytes, zeroed: rounded up to whole pages. The calling task's memory cgroup
    /// pays for them.
    ///
    /// Context: may sleep. Errors: `EINVAL` for no bytes, `ENOMEM` also for too many.
    pub fn new(bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(EINVAL);
        }
        let bytes = page_align(bytes)
            .filter(|&b| b <= MAX_BYTES)
            .ok_or(ENOMEM)?;
        points::SHARE.check()?;
        // SAFETY: takes any size.
        let base = unsafe { bindings::vmalloc_account(bytes) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(ENOMEM)?;
        // INVARIANT: just allocated, and vmalloc's areas are whole pages.
        Ok(Self { base, bytes })
    }

    /// Size in bytes, a multiple of the page size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The C pointer to the memory, for mapping it.
    pub(super) fn as_ptr(&self) -> *mut core::ffi::c_void {
        self.base.as_ptr().cast()
    }

    /// The address of byte `off`, if `len` bytes from there on are all inside; else `EINVAL`.
    pub(super) fn bytes_at(&self, off: usize, len: usize) -> Result<*mut u8> {
        match off.checked_add(len) {
            // SAFETY: `off` is inside, or just behind, by the check and the type invariant.
            Some(end) if end <= self.bytes => Ok(unsafe { self.base.as_ptr().add(off) }),
            _ => Err(EINVAL),
        }
    }

    /// Copies all of `payload` to `off`. The CPU does it; no order with other accesses is implied,
    /// so what announces the bytes is stored with release ordering.
    ///
    /// Context: any. Errors: `EINVAL` if it does not all fit, or is not all where it says; nothing
    /// is copied then. Also if it is in these same pages.
    pub fn write_from(&self, off: usize, payload: &Payload<'_>) -> Result {
        if matches!(payload, Payload::Shared(from, ..) if core::ptr::eq(*from, self)) {
            return Err(EINVAL);
        }
        let dst = self.bytes_at(off, payload.len())?;
        // SAFETY: `dst` is good for that length, and no reference to it is ever made; the payload
        // is not in these pages (above), and a slice is separate memory.
        unsafe { payload.copy_to_raw(dst) }
    }

    /// The place of a `T` at `off`; `EINVAL` if it is not all inside or not aligned.
    fn at<T>(&self, off: usize) -> Result<*mut T> {
        if off % align_of::<T>() != 0 {
            return Err(EINVAL);
        }
        Ok(self.bytes_at(off, size_of::<T>())?.cast())
    }

    fn u32_at(&self, off: usize) -> Result<&Atomic<u32>> {
        let place = self.at(off)?;
        // SAFETY: `place` is aligned and inside memory that lives as long as `self`; the kernel
        // side accesses it by atomics only, and the program's writes are not Rust's.
        Ok(unsafe { Atomic::from_ptr(place) })
    }

    fn u64_at(&self, off: usize) -> Result<&Atomic<u64>> {
        let place = self.at(off)?;
        // SAFETY: as in `u32_at`.
        Ok(unsafe { Atomic::from_ptr(place) })
    }

    /// Loads the `u32` at `off` with acquire ordering.
    ///
    /// This and the others: native byte order; `EINVAL` if `off` is outside or not aligned, and
    /// then nothing is touched. Any context.
    pub fn load_u32_acquire(&self, off: usize) -> Result<u32> {
        Ok(self.u32_at(off)?.load(Acquire))
    }

    /// Stores a `u32` at `off`, unordered.
    pub fn store_u32(&self, off: usize, value: u32) -> Result {
        self.u32_at(off)?.store(value, Relaxed);
        Ok(())
    }

    /// Stores a `u32` at `off` with release ordering.
    pub fn store_u32_release(&self, off: usize, value: u32) -> Result {
        self.u32_at(off)?.store(value, Release);
        Ok(())
    }

    /// Replaces `old` by `new` at `off`, fully ordered. The previous value: `Ok(Ok(old))` if it was
    /// `old` and has been replaced, `Ok(Err(other))` if not.
    pub fn cmpxchg_u32(&self, off: usize, old: u32, new: u32) -> Result<Result<u32, u32>> {
        Ok(self.u32_at(off)?.cmpxchg(old, new, Full))
    }

    /// Stores a `u64` at `off`, unordered.
    pub fn store_u64(&self, off: usize, value: u64) -> Result {
        self.u64_at(off)?.store(value, Relaxed);
        Ok(())
    }

    /// Stores a `u64` at `off` with release ordering.
    pub fn store_u64_release(&self, off: usize, value: u64) -> Result {
        self.u64_at(off)?.store(value, Release);
        Ok(())
    }
}

impl Drop for SharedPages {
    /// Pages that a program still maps stay until it unmaps them. Context: may sleep.
    fn drop(&mut self) {
        // SAFETY: by the type invariant this is a live area of vmalloc's, and ours.
        unsafe { bindings::vfree(self.as_ptr()) };
    }
}
