// SPDX-License-Identifier: GPL-2.0
//! A mapping that is unmapped when dropped. It gives out no references: what may be read or
//! written in it, and when, is for its user to know.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// A mapping of `len` bytes.
///
/// # Invariants
///
/// `base` to `base + len` is mapped, readable, and has no other owner, until drop.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    len: usize,
    /// Memory that stays for ever; see [`Map::twins`].
    #[cfg(miri)]
    forever: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access is by raw pointers whose
// users state their own rules.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` bytes of `fd` from `offset`, shared, for reading.
    pub fn shared_read(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        Self::new(Some(fd), offset, len, libc::PROT_READ, libc::MAP_SHARED)
    }

    /// Maps `len` bytes of `fd` from `offset`, shared, for reading and writing.
    pub fn shared_write(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        Self::new(Some(fd), offset, len, prot, libc::MAP_SHARED)
    }

    /// Maps `len` bytes of private memory, zeroed, for reading and writing.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        Self::new(None, 0, len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    fn new(
        fd: Option<BorrowedFd<'_>>,
        offset: u64,
        len: usize,
        prot: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: no address is asked for, so no mapping of ours is replaced.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // INVARIANT: the kernel has just made this mapping.
        Ok(Self {
            base,
            len,
            #[cfg(miri)]
            forever: false,
        })
    }

    /// Two mappings of the same memory, which is never freed. Miri knows no files that can be
    /// mapped twice.
    #[cfg(miri)]
    pub(crate) fn twins(len: usize) -> io::Result<(Self, Self)> {
        let mut one = Self::anonymous(len)?;
        one.forever = true;
        let base = one.base;
        // INVARIANT: as that of `one`, for ever.
        let forever = true;
        Ok((one, Self { base, len, forever }))
    }

    /// A mapping that was released with [`std::mem::forget`].
    ///
    /// # Safety
    ///
    /// `base` and `len` are those of such a mapping, which has no other user.
    pub(crate) unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        // INVARIANT: the caller's promise.
        Self {
            base,
            len,
            #[cfg(miri)]
            forever: false,
        }
    }

    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is of no length; the kernel makes no such mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Asks for huge pages; a hint.
    pub(crate) fn advise_huge(&self) {
        #[cfg(not(miri))]
        // SAFETY: by the invariant the range is our mapping, and the advice changes no content.
        unsafe {
            libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE)
        };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        #[cfg(miri)]
        if self.forever {
            return;
        }
        // SAFETY: by the invariant the range is ours, and no pointer into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
