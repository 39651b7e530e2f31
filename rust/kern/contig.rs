// SPDX-License-Identifier: GPL-2.0

//! Physically contiguous memory that a device writes into while we read it.
//!
//! C: `include/linux/gfp.h` (`alloc_pages_node`, `split_page`, `alloc_contig_pages`,
//! `free_contig_range`). The pages are counted one by one, so a page with another reference
//! outlives the [`ContigPages`] it came from.
//!
//! A NIC may write any byte at any time. No reference to the memory is ever made: bytes go in and
//! out by copying through raw pointers, and copied bytes are as untrusted as any input.

use super::{barrier::smp_mb, shared::SharedPages};
use crate::bindings;
use core::{ops::Range, ptr::NonNull};
use kernel::{
    alloc::Flags,
    iov::{IovIterDest, IovIterSource},
    page::PAGE_SHIFT,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

kernel::sync::global_lock! {
    // SAFETY: `init` is called before the module can make any memory, and no more than once.
    unsafe(uninit) static SEARCH: Mutex<()> = ();
}

/// Makes the lock that searches take. Called when the module starts, before anything else.
pub fn init() {
    static DONE: Atomic<bool> = Atomic::new(false);
    if !DONE.xchg(true, Relaxed) {
        // SAFETY: this is the first call and the last.
        unsafe { SEARCH.init() };
    }
}

/// A `struct page *`, for a DMA mapping to be made of it.
///
/// It names a page, and does not keep it alive: its source documents how long it is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PagePtr(NonNull<bindings::page>);

// SAFETY: the address of a `struct page` means the same in every context; using it is unsafe.
unsafe impl Send for PagePtr {}
// SAFETY: as for `Send`; there is nothing behind a shared reference but the address.
unsafe impl Sync for PagePtr {}

impl PagePtr {
    pub(super) fn new(page: NonNull<bindings::page>) -> Self {
        Self(page)
    }

    /// The C pointer.
    pub fn as_ptr(self) -> *mut bindings::page {
        self.0.as_ptr()
    }

    /// The page's frame number.
    pub fn pfn(self) -> u64 {
        // SAFETY: a `PagePtr` is only made of pages of the page allocator; their `struct page` and
        // its place, all that `page_to_pfn` looks at, stay while the memory is online.
        unsafe { bindings::page_to_pfn(self.as_ptr()) as u64 }
    }
}

/// A piece of physically contiguous, zeroed memory.
///
/// # Invariants
///
/// `pfn .. pfn + pages` came from the page allocator one by one or as if so (split, or by
/// `alloc_contig_pages`) and are referenced once each by this object;
/// `base` is the address of the first in the kernel's direct map, which covers all of them.
pub struct ContigPages {
    base: NonNull<u8>,
    pfn: usize,
    pages: usize,
}

// SAFETY: the object owns its pages; neither they nor their addresses belong to a task or CPU.
unsafe impl Send for ContigPages {}
// SAFETY: all access through a shared reference is by copying raw bytes that may change at any
// time anyway; no reference to them exists that a race could invalidate.
unsafe impl Sync for ContigPages {}

impl ContigPages {
    /// So many pages the kernel allocates without moving other owners' pages.
    pub const CHEAP: usize = 1 << bindings::PAGE_ALLOC_COSTLY_ORDER;

    /// `pages` pages in a row, zeroed, on NUMA node `node` or, for `None` or where that node has
    /// no room, on the nearest online one that has.
    ///
    /// Where `pages` is a power of two the memory is aligned to its size.
    ///
    /// Context: may sleep; for more than [`Self::CHEAP`] pages for long (other owners' pages are
    /// moved away).
    ///
    /// Errors: `EINVAL` for no pages or a node that is not online, `ENOMEM` if there is no such
    /// range, also for sizes that no machine has.
    pub fn new(pages: usize, node: Option<i32>) -> Result<Self> {
        if pages == 0 {
            return Err(EINVAL);
        }
        // The search does arithmetic on frame numbers with `pages`: keep it far from wrapping.
        // SAFETY: reads a counter.
        if pages > unsafe { bindings::totalram_pages() } {
            return Err(ENOMEM);
        }
        let nid = match node {
            // SAFETY: looks the number up in a bitmap, after checking its range.
            Some(n) if unsafe { bindings::node_online(n) } => n,
            Some(_) => return Err(EINVAL),
            // SAFETY: reads a per-CPU variable; any CPU's answer does.
            None => unsafe { bindings::numa_mem_id() },
        };
        let page = match Self::buddy(pages, nid) {
            Some(page) => page,
            None if pages <= Self::CHEAP => return Err(ENOMEM),
            None => Self::search(pages, nid).ok_or(ENOMEM)?,
        };
        // SAFETY: `page` is the first of the pages that we just got.
        let pfn = unsafe { bindings::page_to_pfn(page) };
        // SAFETY: as above.
        let base = unsafe { bindings::page_address(page) }.cast::<u8>();
        let Some(base) = NonNull::new(base) else {
            // Highmem only, which GFP_KERNEL excludes.
            // SAFETY: the pages are ours, and were not shared.
            unsafe { bindings::free_contig_range(pfn, pages) };
            return Err(ENOMEM);
        };
        // INVARIANT: just allocated; GFP_KERNEL memory is in the direct map.
        Ok(Self { base, pfn, pages })
    }

    /// Free memory that lies together already: much the quicker way, up to the largest order.
    fn buddy(pages: usize, nid: i32) -> Option<*mut bindings::page> {
        let order = pages.next_power_of_two().trailing_zeros();
        if order > bindings::MAX_PAGE_ORDER {
            return None;
        }
        // No program is killed for it.
        let effort = match pages > Self::CHEAP {
            true => bindings::__GFP_NORETRY,
            false => bindings::__GFP_RETRY_MAYFAIL,
        };
        let gfp = bindings::GFP_KERNEL | bindings::__GFP_NOWARN | bindings::__GFP_ZERO | effort;
        // SAFETY: `nid` is an online node, and the order is one that the allocator has.
        let page = unsafe { bindings::alloc_pages_node(nid, gfp, order) };
        if page.is_null() {
            return None;
        }
        let more = (1 << order) - pages;
        // SAFETY: the pages are of this order, ours alone, and not compound; once split, each is
        // counted on its own, and those behind the first `pages` can go back.
        unsafe {
            bindings::split_page(page, order);
            if more != 0 {
                bindings::free_contig_range(bindings::page_to_pfn(page) + pages, more);
            }
        }
        Some(page)
    }

    /// Memory that others are moved out of.
    ///
    /// One search at a time: two that meet in one page block undo each other's isolation. In
    /// `alloc_contig_frozen_range_noprof` (mm/page_alloc.c), a caller that fails to isolate a range
    /// ends the isolation of all of it, including blocks that another caller has isolated.
    fn search(pages: usize, nid: i32) -> Option<*mut bindings::page> {
        let gfp = bindings::GFP_KERNEL | bindings::__GFP_NOWARN | bindings::__GFP_ZERO;
        let _searching = SEARCH.lock();
        // SAFETY: `nid` is an online node, a null mask means all nodes, and `gfp` is within what
        // the allocator takes (reclaim flags, NOWARN, ZERO).
        let page = unsafe { bindings::alloc_contig_pages(pages, gfp, nid, core::ptr::null_mut()) };
        (!page.is_null()).then_some(page)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.pages << PAGE_SHIFT
    }

    /// Size in pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The frame number of page `index`.
    pub fn pfn(&self, index: usize) -> Option<u64> {
        (index < self.pages).then(|| (self.pfn + index) as u64)
    }

    /// Page `index`. It stays while this object does, or while another reference to it exists.
    pub fn page(&self, index: usize) -> Option<PagePtr> {
        let pfn = self.pfn(index)?;
        // SAFETY: the frame is one of ours, so it has a `struct page`.
        let page = unsafe { bindings::pfn_to_page(pfn as usize) };
        NonNull::new(page).map(PagePtr::new)
    }

    /// Whether this object has the only references to `pages`: no program maps one, no device reads
    /// one for a program, and earlier accesses are over. False if they are not all inside.
    ///
    /// Context: any. A temporary reference, by code that only examines the page, may make it false
    /// for a moment.
    pub fn is_sole_owner(&self, mut pages: Range<usize>) -> bool {
        let sole = pages.all(|index| {
            self.page(index).is_some_and(|page| {
                // SAFETY: the page is one of ours, so its `struct page` is there; reads a counter.
                unsafe { bindings::page_ref_count(page.as_ptr()) == 1 }
            })
        });
        // Every dropped reference was dropped after the use of the page; and our later accesses do
        // not come before the check.
        smp_mb();
        sole
    }

    /// The address of byte `off`, if `len` bytes from there on are all inside.
    pub(super) fn at(&self, off: usize, len: usize) -> Result<*mut u8> {
        match off.checked_add(len) {
            // SAFETY: `off <= bytes()`, and by the type invariant the direct map covers that many
            // bytes from `base` on.
            Some(end) if end <= self.bytes() => Ok(unsafe { self.base.as_ptr().add(off) }),
            _ => Err(EINVAL),
        }
    }

    /// The `N` bytes at `off`, a header. `EINVAL` if they are not all inside.
    pub fn read<const N: usize>(&self, off: usize) -> Result<[u8; N]> {
        let src = self.at(off, N)?;
        let mut out = [0; N];
        // SAFETY: `src` is good for `N` bytes (see `at`); `out` is exclusively ours and so does not
        // overlap. The device may write at the same time: the bytes are then a mixture, any of
        // which is a valid `u8`.
        unsafe { core::ptr::copy_nonoverlapping(src, out.as_mut_ptr(), N) };
        Ok(out)
    }

    /// Writes `data`, a header, to `off`. `EINVAL` if that does not all fit.
    pub fn write<const N: usize>(&self, off: usize, data: &[u8; N]) -> Result {
        let dst = self.at(off, N)?;
        // SAFETY: `dst` is good for `N` bytes (see `at`), and no Rust reference to the pool's
        // memory exists, so `data` does not overlap.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), dst, N) };
        Ok(())
    }

    /// Copies payload from `off` on into `out`. `EINVAL` if that is not all inside.
    pub fn copy_payload(&self, off: usize, out: &mut [u8]) -> Result {
        let src = self.at(off, out.len())?;
        // SAFETY: as in `read`, for `out.len()` bytes.
        unsafe { bindings::copy_payload(out.as_mut_ptr().cast(), src.cast(), out.len()) };
        Ok(())
    }

    /// Copies payload, `data`, to `off`. `EINVAL` if that does not all fit.
    pub fn put_payload(&self, off: usize, data: &[u8]) -> Result {
        let dst = self.at(off, data.len())?;
        // SAFETY: as in `write`, for `data.len()` bytes.
        unsafe { bindings::copy_payload(dst.cast(), data.as_ptr().cast(), data.len()) };
        Ok(())
    }

    /// Zeroes `len` bytes from `off` on. `EINVAL` if that is not all inside.
    pub fn zero(&self, off: usize, len: usize) -> Result {
        let dst = self.at(off, len)?;
        // SAFETY: `dst` is good for `len` bytes (see `at`), and no Rust reference to them exists.
        unsafe { core::ptr::write_bytes(dst, 0, len) };
        Ok(())
    }

    /// Copies `len` bytes from the program to `off`, as far as its memory is present: what is not
    /// ends the copy. Returns how many came, also none.
    ///
    /// Context: any in which the program's memory is the current one; does not sleep. Errors:
    /// `EINVAL` if the range is not all inside.
    pub fn copy_from_iter_nofault(
        &self,
        off: usize,
        len: usize,
        iter: &mut IovIterSource<'_>,
    ) -> Result<usize> {
        let dst = self.at(off, len)?;
        // SAFETY: `dst` is good for `len` bytes (see `at`), the iterator is valid, and no Rust
        // reference to the memory exists that this write could invalidate; faults are refused
        // between the two calls.
        let n = unsafe {
            bindings::pagefault_disable();
            let n = bindings::_copy_from_iter(dst.cast(), len, iter.as_raw());
            bindings::pagefault_enable();
            n
        };
        Ok(n)
    }
}

impl Drop for ContigPages {
    /// Context: may sleep.
    fn drop(&mut self) {
        // SAFETY: by the type invariant each page holds one reference of ours, which goes here;
        // pages that others hold stay theirs.
        unsafe { bindings::free_contig_range(self.pfn, self.pages) };
    }
}

/// The source of a copy.
pub enum Payload<'a> {
    /// In this memory: offset and length.
    Pool(&'a ContigPages, usize, usize),
    /// In these pages: offset and length. A program may write them at any time.
    Shared(&'a SharedPages, usize, usize),
    /// These.
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Pool(_, _, len) | Self::Shared(_, _, len) => *len,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// These without the first `n`. `EINVAL` if there are fewer.
    pub fn behind(&self, n: usize) -> Result<Self> {
        let left = self.len().checked_sub(n).ok_or(EINVAL)?;
        Ok(match self {
            Self::Pool(mem, off, _) => Self::Pool(mem, off.checked_add(n).ok_or(EINVAL)?, left),
            Self::Shared(pages, off, _) => {
                Self::Shared(pages, off.checked_add(n).ok_or(EINVAL)?, left)
            }
            Self::Bytes(bytes) => Self::Bytes(bytes.get(n..).ok_or(EINVAL)?),
        })
    }

    /// The address of `len` bytes, `done` from the first. `EINVAL` if they are not all inside.
    pub(super) fn at(&self, done: usize, len: usize) -> Result<*const u8> {
        if done.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(EINVAL);
        }
        match self {
            Self::Pool(mem, off, _) => Ok(mem.at(off.checked_add(done).ok_or(EINVAL)?, len)?),
            Self::Shared(pages, off, _) => {
                Ok(pages.bytes_at(off.checked_add(done).ok_or(EINVAL)?, len)?)
            }
            Self::Bytes(bytes) => Ok(bytes.get(done..).ok_or(EINVAL)?.as_ptr()),
        }
    }

    /// Copies them to the program, straight from where they are. Returns how many went: fewer if
    /// the iterator is full or its memory faults.
    ///
    /// Context: may sleep (page faults) unless the iterator is the kernel's.
    ///
    /// Errors: `EINVAL` if the range is not all inside, `EFAULT` if not one byte went though there
    /// was room for one.
    pub fn copy_to_iter(&self, iter: &mut IovIterDest<'_>) -> Result<usize> {
        let src = self.at(0, self.len())?;
        if self.len() == 0 || iter.is_empty() {
            return Ok(0);
        }
        // SAFETY: `src` is good for that length (see `at`) and the iterator is valid, both for the
        // whole call; copying bytes that change during the copy is as in `ContigPages::read`.
        let n = unsafe { bindings::_copy_to_iter(src.cast(), self.len(), iter.as_raw()) };
        if n == 0 {
            return Err(EFAULT);
        }
        Ok(n)
    }

    /// As [`Self::copy_to_iter`], as far as the program's memory is present: it may be that none
    /// went. Does not wait for that memory.
    ///
    /// Errors: `EINVAL` if the range is not all inside.
    pub fn copy_to_iter_nofault(&self, iter: &mut IovIterDest<'_>) -> Result<usize> {
        let src = self.at(0, self.len())?;
        // SAFETY: as in `copy_to_iter`; faults are refused between the two calls.
        unsafe {
            bindings::pagefault_disable();
            let n = bindings::_copy_to_iter(src.cast(), self.len(), iter.as_raw());
            bindings::pagefault_enable();
            Ok(n)
        }
    }

    /// Copies them to `dst`. `EINVAL` if they are not all inside; then nothing is copied. Any
    /// context.
    ///
    /// # Safety
    ///
    /// `dst` must be good for writing that length, have no references to it, and not overlap these
    /// bytes.
    pub(super) unsafe fn copy_to_raw(&self, dst: *mut u8) -> Result {
        let src = self.at(0, self.len())?;
        // SAFETY: `src` is good for that length (see `at`), `dst` by the caller's promise; copying
        // bytes that change during the copy is as in `ContigPages::read`.
        unsafe { bindings::copy_payload(dst.cast(), src.cast(), self.len()) };
        Ok(())
    }

    /// Copies them to new memory, which need not be contiguous. With
    /// [`CHARGED`](super::memcg::CHARGED) in `flags`, the active memory cgroup pays for it.
    ///
    /// Context: as `flags` say; may sleep in any case where there is more than a few pages.
    ///
    /// Errors: `EINVAL` if they are not all inside, `ENOMEM`.
    pub fn copy_to_vec(&self, flags: Flags) -> Result<KVVec<u8>> {
        let len = self.len();
        let mut bytes = KVVec::with_capacity(len, flags)?;
        // SAFETY: the capacity is sufficient, and the new memory is ours alone.
        unsafe { self.copy_to_raw(bytes.spare_capacity_mut().as_mut_ptr().cast()) }?;
        // SAFETY: within the capacity, and written just now.
        unsafe { bytes.inc_len(len) };
        Ok(bytes)
    }
}

/// Copies payload between memory of the module, as much as both have.
pub fn copy_payload(from: &[u8], to: &mut [u8]) {
    let len = from.len().min(to.len());
    // SAFETY: both are good for `len` bytes, and a slice that may be written overlaps no other.
    unsafe { bindings::copy_payload(to.as_mut_ptr().cast(), from.as_ptr().cast(), len) };
}
