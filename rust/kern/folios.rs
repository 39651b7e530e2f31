// SPDX-License-Identifier: GPL-2.0

//! Memory of a memfd, pinned for as long as it is served.
//!
//! C: `include/linux/mm.h` (`memfd_pin_folios`, `unpin_folios`), `include/linux/page-flags.h`
//! (`is_page_hwpoison`). The pages belong to the file, and
//! a program or a device may write them at any time: bytes go in and out by copying, and no
//! reference to them is ever made.

use super::contig::PagePtr;
use super::errno::EHWPOISON;
use crate::{
    bindings,
    proto::runs::{runs, Run},
};
use core::ptr::NonNull;
use kernel::{
    iov::{IovIterDest, IovIterSource},
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

/// Most pages that are pinned by one call of the kernel.
const BATCH: usize = 512;

/// Pinned pages of a memfd.
///
/// # Invariants
///
/// Each of `folios` carries a pin of ours, and `pages` are pages of them.
pub struct MemfdPages {
    pages: KVVec<*mut bindings::page>,
    folios: KVVec<*mut bindings::folio>,
    smallest: usize,
}

// SAFETY: pins belong to the pages, not to the task that took them.
unsafe impl Send for MemfdPages {}
// SAFETY: what a shared reference reads never changes after the making.
unsafe impl Sync for MemfdPages {}

/// A reference to an open file.
struct OpenFile(*mut bindings::file);

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: `fget` gave us the reference.
        unsafe { bindings::fput(self.0) };
    }
}

impl MemfdPages {
    /// Pins `len` bytes from `offset` on of the memfd `fd` of the calling task. Pages that the file
    /// does not have yet are allocated, and the task's memory cgroup pays.
    ///
    /// Context: a task's; sleeps, for long. Errors: `EBADF`; `EINVAL` for a file that is no memfd,
    /// a range that is not of whole pages or not in the file; `ENOMEM`; `EINTR`.
    pub fn pin(fd: i32, offset: u64, len: u64) -> Result<Self> {
        let page = PAGE_SIZE as u64;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || offset % page != 0 || len % page != 0 || i64::try_from(end).is_err() {
            return Err(EINVAL);
        }
        let fd = u32::try_from(fd).map_err(|_| EBADF)?;
        // SAFETY: takes any number.
        let file = OpenFile(unsafe { bindings::fget(fd) });
        if file.0.is_null() {
            core::mem::forget(file);
            return Err(EBADF);
        }
        let count = usize::try_from(len >> PAGE_SHIFT).map_err(|_| EINVAL)?;
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL)?,
            folios: KVVec::new(),
            // Where the range begins or ends within a folio, less than the folio is contiguous.
            smallest: 1 << ((offset | len) >> PAGE_SHIFT).trailing_zeros().min(31),
        };
        let mut at = offset;
        while at < end {
            if super::task::fatal_signal_pending() {
                return Err(EINTR);
            }
            at = this.pin_some(&file, at, end)?;
        }
        Ok(this)
    }

    /// Pins the pages of up to [`BATCH`] pages from `at` on; returns where they end.
    fn pin_some(&mut self, file: &OpenFile, at: u64, end: u64) -> Result<u64> {
        let last = end.min(at + (BATCH * PAGE_SIZE) as u64);
        let want = ((last - at) >> PAGE_SHIFT) as usize;
        self.folios.reserve(want, GFP_KERNEL)?;
        let list = self.folios.spare_capacity_mut().as_mut_ptr().cast();
        let mut skip = 0;
        // SAFETY: the file is open, and the list has room for `want` pointers: no more folios than
        // pages are in the range.
        let got = unsafe {
            bindings::memfd_pin_folios(
                file.0,
                at as bindings::loff_t,
                (last - 1) as bindings::loff_t,
                list,
                want as u32,
                &mut skip,
            )
        };
        let got = usize::try_from(got)
            .map_err(|_| Error::from_errno(got as i32))?
            .min(want);
        let before = self.folios.len();
        // SAFETY: within the capacity, and filled just now.
        unsafe { self.folios.inc_len(got) };
        // INVARIANT: they are pinned.
        let (mut skip, mut left) = (skip >> PAGE_SHIFT, want);
        for &folio in self.folios.iter().skip(before) {
            // SAFETY: a pinned folio.
            let pages = unsafe { bindings::folio_nr_pages(folio) };
            self.smallest = self.smallest.min(pages);
            for n in skip..pages {
                if left == 0 {
                    break;
                }
                // SAFETY: `n` is one of its pages.
                let page = unsafe { bindings::folio_page(folio, n) };
                self.pages.push(page, GFP_KERNEL)?;
                left -= 1;
            }
            skip = 0;
        }
        if left != 0 {
            return Err(EINVAL);
        }
        Ok(last)
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() as u64) << PAGE_SHIFT
    }

    /// Pages that are contiguous at least, wherever they begin at such a number; a power of two.
    pub fn contiguous_pages(&self) -> usize {
        self.smallest
    }

    fn page(&self, index: usize) -> Option<PagePtr> {
        let page = self.pages.get(index).copied().and_then(NonNull::new);
        page.map(PagePtr::new)
    }

    /// The physically contiguous runs of `len` bytes from `at` on, neighbours merged: the first
    /// page of each, the offset of its first byte in that page, and the bytes. Stops where the
    /// memory ends.
    pub fn runs(&self, at: u64, len: u64) -> impl Iterator<Item = (PagePtr, usize, usize)> + '_ {
        let first = (at >> PAGE_SHIFT) as usize;
        let pages = self.pages.get(first..).unwrap_or_default();
        let pages = pages
            .iter()
            .copied()
            .filter_map(NonNull::new)
            .map(PagePtr::new);
        let offset = at as usize & (PAGE_SIZE - 1);
        runs(pages.map(PagePtr::pfn), PAGE_SIZE, offset, len as usize).filter_map(
            move |Run {
                      page, offset, len, ..
                  }| Some((self.page(first + page)?, offset, len)),
        )
    }

    /// Whether the kernel knows page `n` as defective.
    fn is_defective(&self, n: usize) -> bool {
        // SAFETY: the pages of `self` are pinned.
        let defective = |page: PagePtr| unsafe { bindings::is_page_hwpoison(page.as_ptr()) };
        self.page(n).is_some_and(defective)
    }

    /// `EHWPOISON` if the kernel knows a page of the range as defective: its memory is not used any
    /// more.
    pub fn check(&self, at: u64, len: u64) -> Result {
        let end = at.saturating_add(len).saturating_add(PAGE_SIZE as u64 - 1);
        let (first, end) = ((at >> PAGE_SHIFT) as usize, (end >> PAGE_SHIFT) as usize);
        match (first..end).any(|n| self.is_defective(n)) {
            true => Err(EHWPOISON),
            false => Ok(()),
        }
    }

    /// Calls `f` with the address and length of each piece of a page of the range. `EINVAL` if not
    /// all of it is inside; then `f` is not called. It ends at a defective page; `EHWPOISON` if
    /// that is the first one.
    fn each(
        &self,
        at: u64,
        len: usize,
        mut f: impl FnMut(*mut u8, usize) -> usize,
    ) -> Result<usize> {
        let end = at.checked_add(len as u64).ok_or(EINVAL)?;
        if end > self.bytes() {
            return Err(EINVAL);
        }
        let mut done = 0;
        while done < len {
            let here = at + done as u64;
            let page = self.page((here >> PAGE_SHIFT) as usize).ok_or(EINVAL)?;
            if self.is_defective((here >> PAGE_SHIFT) as usize) {
                match done {
                    0 => return Err(EHWPOISON),
                    _ => break,
                }
            }
            let offset = here as usize & (PAGE_SIZE - 1);
            let part = (PAGE_SIZE - offset).min(len - done);
            // SAFETY: a page of the direct map, as there is no high memory on 64-bit machines.
            let base = unsafe { bindings::page_address(page.as_ptr()) }.cast::<u8>();
            if base.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: `offset` is within the page.
            let moved = f(unsafe { base.add(offset) }, part);
            done += moved.min(part);
            if moved < part {
                break;
            }
            super::task::cond_resched();
        }
        Ok(done)
    }

    /// As [`Self::each`], where nothing less than all of the range will do.
    fn all(&self, at: u64, len: usize, f: impl FnMut(*mut u8, usize) -> usize) -> Result {
        match self.each(at, len, f)? == len {
            true => Ok(()),
            false => Err(EHWPOISON),
        }
    }

    /// Zeroes `len` bytes from `at` on. Sleeps. `EINVAL` if they are not all inside; `EHWPOISON` if
    /// a page is defective.
    pub fn zero(&self, at: u64, len: usize) -> Result {
        self.all(at, len, |to, part| {
            // SAFETY: `to` is good for `part` bytes of the page, and no reference to them exists.
            unsafe { core::ptr::write_bytes(to, 0, part) };
            part
        })
    }

    /// Copies the bytes from `at` on into `out`. Sleeps. `EINVAL` if they are not all inside;
    /// `EHWPOISON` if a page is defective.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result {
        let (mut to, len) = (out.as_mut_ptr(), out.len());
        self.all(at, len, |from, part| {
            // SAFETY: `from` is good for `part` bytes, and the parts together are `out.len()`.
            unsafe {
                core::ptr::copy_nonoverlapping(from, to, part);
                to = to.add(part);
            }
            part
        })
    }

    /// Copies `data` to `at`. Sleeps. `EINVAL` if that does not all fit; `EHWPOISON` if a page is
    /// defective.
    pub fn write(&self, at: u64, data: &[u8]) -> Result {
        let mut from = data.as_ptr();
        self.all(at, data.len(), |to, part| {
            // SAFETY: `to` is good for `part` bytes, and the parts together are `data.len()`.
            unsafe {
                core::ptr::copy_nonoverlapping(from, to, part);
                from = from.add(part);
            }
            part
        })
    }

    /// Takes `len` bytes of `iter` to `at`, as far as the program's memory is present. The first
    /// page that is not ends the copy, and so does a defective page of this memory. Returns the
    /// number of bytes, which may be 0.
    ///
    /// Context: the program's; sleeps, but not for its memory. Errors: `EINVAL` if they do not all
    /// fit; `EHWPOISON` if the first page is defective.
    pub fn copy_from_iter_nofault(
        &self,
        at: u64,
        len: usize,
        iter: &mut IovIterSource<'_>,
    ) -> Result<usize> {
        let iter = iter.as_raw();
        self.each(at, len, |to, part| {
            // SAFETY: `to` is good for `part` bytes, and the iterator is valid; faults are refused
            // between the two calls.
            unsafe {
                bindings::pagefault_disable();
                let n = bindings::_copy_from_iter(to.cast(), part, iter);
                bindings::pagefault_enable();
                n
            }
        })
    }

    /// As [`Self::copy_from_iter_nofault`], from `at` on to `iter`.
    pub fn copy_to_iter_nofault(
        &self,
        at: u64,
        len: usize,
        iter: &mut IovIterDest<'_>,
    ) -> Result<usize> {
        let iter = iter.as_raw();
        self.each(at, len, |from, part| {
            // SAFETY: `from` is good for `part` bytes, and the iterator is valid; faults are
            // refused between the two calls.
            unsafe {
                bindings::pagefault_disable();
                let n = bindings::_copy_to_iter(from.cast_const().cast(), part, iter);
                bindings::pagefault_enable();
                n
            }
        })
    }
}

impl Drop for MemfdPages {
    /// Context: sleeps.
    fn drop(&mut self) {
        for part in self.folios.chunks_mut(BATCH) {
            // SAFETY: by the type invariant each carries a pin of ours, which goes here.
            unsafe { bindings::unpin_folios(part.as_mut_ptr(), part.len()) };
        }
    }
}
