// SPDX-License-Identifier: GPL-2.0

//! Addresses that a program has reserved for pages that come and go: lent to it, or made for it.
//!
//! C: `include/linux/mm.h` (`VM_MIXEDMAP`, `vm_insert_pages`, `zap_vma_range`). The pages are
//! ordinary ones, and their mappings are counted: a program can write their bytes to files by
//! `O_DIRECT`, and send them on, in place. Their reference count tells the lender when they are
//! back, whatever was done to the mapping in between. Where there is no page, an access is SIGBUS.

use super::{
    contig::{ContigPages, Payload},
    fault::points,
    vma::{MappedOwner, Ops, Table},
};
use crate::bindings;
use core::{ops::Range, ptr::NonNull};
use kernel::{
    alloc::flags::{GFP_KERNEL_ACCOUNT, __GFP_ZERO},
    error::to_result,
    ffi::c_ulong,
    mm::virt::VmaMixedMap,
    page::{Page, PAGE_MASK, PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::{new_mutex, Arc, Mutex},
};

/// Pages that are handed to the memory manager at once.
const BATCH: usize = 32;

/// Addresses of a program that show received bytes. All mappings of an area belong to one program,
/// as forks do not get it.
///
/// Its lock is taken before the program's `mmap_lock`.
#[pin_data]
pub struct Area {
    /// The page that was made last, which may not be full yet.
    #[pin]
    last: Mutex<Option<Page>>,
}

/// The page that the calling program finds at an address, pinned.
///
/// # Invariants
///
/// It is pinned once by this object, and in the direct map.
struct Found(NonNull<bindings::page>);

impl Found {
    /// The page at `addr`, if there is one. Sleeps; not under the `mmap_lock`.
    fn at(addr: usize) -> Option<Self> {
        let mut page = core::ptr::null_mut();
        // SAFETY: takes any address of the program, and has room for the one page.
        let n = unsafe { bindings::pin_user_pages_fast(addr as c_ulong, 1, 0, &mut page) };
        // INVARIANT: pages of programs are in the direct map on 64-bit machines, which this needs.
        NonNull::new(page).filter(|_| n == 1).map(Self)
    }

    /// The address of its first byte.
    fn address(&self) -> *const u8 {
        // SAFETY: the page is there and in the direct map (type invariant).
        unsafe { bindings::page_address(self.0.as_ptr()) }.cast::<u8>()
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: pinned by this object (type invariant).
        unsafe { bindings::unpin_user_page(self.0.as_ptr()) };
    }
}

impl MappedOwner for Area {}

impl Area {
    /// An area that no program has mapped yet.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { last <- new_mutex!(None, "zrs_area::last") }),
            GFP_KERNEL,
        )
    }

    /// The operations that identify a mapping of an area.
    pub(super) fn ops() -> &'static Table<Self> {
        static TABLE: Table<Area> = Ops::<Area>::TABLE;
        &TABLE
    }

    /// Calls `f` with the mapping that all of `range` is in. `EFAULT` if it is in none of this
    /// area's.
    fn with<R>(
        self: &Arc<Self>,
        range: Range<usize>,
        f: impl FnOnce(&VmaMixedMap) -> Result<R>,
    ) -> Result<R> {
        let task = kernel::current!();
        let mm = task.mm().ok_or(EFAULT)?.mmap_read_lock();
        let vma = mm.vma_lookup(range.start).ok_or(EFAULT)?;
        // SAFETY: the mapping is there while `mm` holds the lock, and these fields never change.
        let ours = unsafe {
            core::ptr::eq((*vma.as_ptr()).vm_ops, Self::ops().as_ptr())
                && core::ptr::eq((*vma.as_ptr()).vm_private_data.cast(), &raw const **self)
        };
        if !ours || range.end > vma.end() || range.start > range.end {
            return Err(EFAULT);
        }
        f(vma.as_mixedmap_vma().ok_or(EFAULT)?)
    }

    /// The end of the mapping that `addr` is in. `EFAULT` if it is in none. Sleeps.
    pub fn end_of(self: &Arc<Self>, addr: usize) -> Result<usize> {
        self.with(addr..addr, |vma| Ok(vma.end()))
    }

    /// The pages that begin in `range` go from the calling program: those lent to it may be back
    /// then. Sleeps. `EFAULT` if they are in no mapping.
    pub fn take_back(self: &Arc<Self>, range: Range<usize>) -> Result {
        let first = range.start.checked_next_multiple_of(PAGE_SIZE);
        let end = range.end.checked_next_multiple_of(PAGE_SIZE);
        let (Some(first), Some(end)) = (first, end) else {
            return Err(EFAULT);
        };
        if first >= end {
            return Ok(());
        }
        self.with(first..end, |vma| {
            vma.zap_vma_range(first, end - first);
            Ok(())
        })
    }

    /// Maps `pages` of `mem` into the calling program, from the page at `addr` on, replacing the
    /// mapped pages. They are lent until [`ContigPages::is_sole_owner`]. Returns their number,
    /// which is less where memory for page tables is short. Sleeps.
    ///
    /// Errors: `EINVAL` if `addr` is within a page or a page is not inside of `mem`, `EFAULT` if
    /// that is in no mapping, `ENOMEM`.
    pub fn map_pages(
        self: &Arc<Self>,
        addr: usize,
        mem: &ContigPages,
        pages: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Result<usize> {
        let count = pages.len();
        let bytes = count.checked_mul(PAGE_SIZE).ok_or(EFAULT)?;
        let end = addr.checked_add(bytes).ok_or(EFAULT)?;
        let inside = pages.clone().all(|page| page < mem.pages());
        if addr & !PAGE_MASK != 0 || !inside {
            return Err(EINVAL);
        }
        points::SHARE.check()?;
        let _alone = self.last.lock();
        self.with(addr..end, |vma| {
            vma.zap_vma_range(addr, bytes);
            let (mut done, mut rest) = (0, pages);
            while done < count {
                let mut batch = [core::ptr::null_mut(); BATCH];
                let mut n = 0_usize;
                for (slot, page) in batch.iter_mut().zip(rest.by_ref().take(BATCH)) {
                    *slot = mem.page(page).ok_or(EINVAL)?.as_ptr();
                    n += 1;
                }
                let mut left = n as c_ulong;
                let at = (addr + (done << PAGE_SHIFT)) as c_ulong;
                // SAFETY: the mapping is ours and locked for reading, MIXEDMAP, and all addresses
                // are inside (`with`); `batch` has `left` pages, none of them anonymous or of a
                // special kind, and all held by `mem`.
                let inserted = to_result(unsafe {
                    bindings::vm_insert_pages(vma.as_ptr(), at, batch.as_mut_ptr(), &mut left)
                });
                done += n.saturating_sub(left as usize);
                match inserted {
                    Ok(()) => {}
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => break,
                }
            }
            Ok(done)
        })
    }

    /// Copies `len` bytes to `addr` in the calling program, into pages made for it. Bytes before
    /// `addr` in its page stay. Returns the number of bytes copied, which may be less. Sleeps.
    ///
    /// Errors: `EFAULT` if that is in no mapping, `EINVAL` if the payload is shorter, `ENOMEM`.
    pub fn copy(self: &Arc<Self>, addr: usize, len: usize, payload: &Payload<'_>) -> Result<usize> {
        let mut last = self.last.lock();
        let mut done = 0;
        while done < len {
            let at = addr.checked_add(done).ok_or(EFAULT)?;
            let n = (PAGE_SIZE - (at & !PAGE_MASK)).min(len - done);
            match self.copy_one(&mut last, at, n, payload, done) {
                Ok(()) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Copies the `len` bytes of the payload behind `done`, as far as the end of the page at
    /// `addr`.
    fn copy_one(
        self: &Arc<Self>,
        last: &mut Option<Page>,
        addr: usize,
        len: usize,
        payload: &Payload<'_>,
        done: usize,
    ) -> Result {
        let page_at = addr & PAGE_MASK;
        let len = len.min(PAGE_SIZE - (addr - page_at));
        let src = payload.at(done, len)?;
        // A partial page goes into the page made for its other bytes, which no other code writes
        // to; else the bytes of the mapped page are copied as well.
        let found = match addr == page_at {
            true => None,
            false => {
                self.with(page_at..page_at + PAGE_SIZE, |_| Ok(()))?;
                Found::at(page_at)
            }
        };
        let same = |page: &Page| {
            found
                .as_ref()
                .is_some_and(|f| f.0.as_ptr() == page.as_ptr())
        };
        let goes_on = last.as_ref().is_some_and(same);
        if !goes_on {
            points::SHARE.check()?;
            let page = Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
            if let Some(found) = &found {
                // SAFETY: both are whole pages, and the new one is ours alone.
                unsafe {
                    bindings::copy_payload(base(&page).cast(), found.address().cast(), PAGE_SIZE)
                };
            }
            *last = Some(page);
        }
        let page = last.as_ref().ok_or(ENOMEM)?;
        // SAFETY: `src` is good for `len` bytes, and so is the page from `addr` on, by the above;
        // it is ours and not the source. A program that maps it may read the changing bytes, which
        // were not delivered to it yet.
        unsafe { bindings::copy_payload(base(page).add(addr - page_at).cast(), src.cast(), len) };
        if goes_on {
            return Ok(());
        }
        self.with(page_at..page_at + PAGE_SIZE, |vma| {
            vma.zap_vma_range(page_at, PAGE_SIZE);
            vma.vm_insert_page(page_at, page)
        })
    }
}

/// The address of the first byte of a page of `GFP_KERNEL` memory.
fn base(page: &Page) -> *mut u8 {
    // SAFETY: the page is not from high memory, so it has an address.
    unsafe { bindings::page_address(page.as_ptr()) }.cast::<u8>()
}
