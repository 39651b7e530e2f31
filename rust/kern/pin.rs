// SPDX-License-Identifier: GPL-2.0

//! Pages of data that a program sends: pinned while a device reads them, or new ones with a copy.
//!
//! C: `include/linux/uio.h` (`iov_iter_extract_pages`), `include/linux/mm.h` (`FOLL_PIN`). A
//! program's memory is pinned; pages that came through splice or `io_uring` (`ITER_BVEC`) get a
//! reference where the network stack would take one; anything else has to be copied.
//!
//! Pages that a device writes are marked dirty when they are pinned. The thread that unpins them
//! may hold locks: pages that were written back in between, and have to be marked once more, are
//! left to a work queue, as marking waits for the pages' locks, and so for the file system of a
//! mapped file, which may be a program's (FUSE). The block layer does the same
//! (`bio_check_pages_dirty`).

use super::{contig::PagePtr, fault::points, work::Queue};
use crate::{
    bindings,
    proto::runs::{runs, Run},
};
use core::{
    mem::{ManuallyDrop, MaybeUninit},
    ptr::NonNull,
};
use kernel::{
    alloc::{flags::GFP_KERNEL_ACCOUNT, Flags},
    error::to_result,
    ffi::{c_int, c_void},
    iov::{IovIterDest, IovIterSource},
    page::{Page, PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// The most bytes of one [`PinnedPages`].
pub const MAX_BYTES: usize = 256 << 10;
/// The most pages of one: a chunk that begins within a page touches one more.
pub const MAX_PAGES: usize = (MAX_BYTES >> PAGE_SHIFT) + 1;

/// Pages held now by all [`PinnedPages`].
static HELD: Atomic<u64> = Atomic::new(0);

/// Program pages held now, by the whole module.
pub fn pages_held() -> u64 {
    HELD.load(Relaxed)
}

/// Makes the next `len` bytes of `iter` present, as far as that can be done.
///
/// Context: the sending program's; may sleep (page faults). Errors: `EFAULT` if not one byte of
/// them can be had.
pub fn fault_in(iter: &mut IovIterSource<'_>, len: usize) -> Result {
    // SAFETY: the iterator is valid, and is only looked at.
    let missing = unsafe { bindings::fault_in_iov_iter_readable(iter.as_raw(), len) };
    if len != 0 && missing >= len {
        return Err(EFAULT);
    }
    Ok(())
}

/// As [`fault_in`], for memory that the caller will write to.
pub fn fault_in_dest(iter: &mut IovIterDest<'_>, len: usize) -> Result {
    // SAFETY: the iterator is valid, and is only looked at.
    let missing = unsafe { bindings::fault_in_iov_iter_writeable(iter.as_raw(), len) };
    if len != 0 && missing >= len {
        return Err(EFAULT);
    }
    Ok(())
}

/// How many pages of the calling program's memory the bytes of `iter` touch. `None` if they are in
/// other memory, which [`PinnedPages`] does not pin.
pub fn source_pages(iter: &mut IovIterSource<'_>) -> Option<usize> {
    // SAFETY: the iterator is valid, and ours.
    unsafe { program_pages(iter.as_raw()) }
}

/// As [`source_pages`].
pub fn dest_pages(iter: &mut IovIterDest<'_>) -> Option<usize> {
    // SAFETY: the iterator is valid, and ours.
    unsafe { program_pages(iter.as_raw()) }
}

/// # Safety
///
/// `raw` must be a valid iterator, and ours for the call.
unsafe fn program_pages(raw: *mut bindings::iov_iter) -> Option<usize> {
    // SAFETY: the caller's promise; both only look at it.
    let (pins, pages) = unsafe {
        (
            bindings::iov_iter_extract_will_pin(raw),
            bindings::iov_iter_npages(raw, i32::MAX),
        )
    };
    usize::try_from(pages).ok().filter(|_| pins)
}

/// Appends up to `max` of the next bytes of `iter` to `out`, as far as they are present (see
/// [`fault_in`]), and moves `iter` past them. How many came, also none.
///
/// Context: the sending program's; may sleep for memory, not for the program's. Errors: `ENOMEM`.
pub fn copy_present(
    iter: &mut IovIterSource<'_>,
    out: &mut KVec<u8>,
    max: usize,
    flags: Flags,
) -> Result<usize> {
    out.reserve(max, flags)?;
    let dst = out.spare_capacity_mut().as_mut_ptr();
    // SAFETY: `dst` is good for `max` bytes, which are ours, and the iterator is valid; faults are
    // refused between the two calls.
    let n = unsafe {
        bindings::pagefault_disable();
        let n = bindings::_copy_from_iter(dst.cast(), max, iter.as_raw());
        bindings::pagefault_enable();
        n
    };
    // SAFETY: there is capacity for `max` bytes more, and at most `n` have been written just now.
    unsafe { out.inc_len(n.min(max)) };
    Ok(n.min(max))
}

/// The result of [`PinnedPages::extract`].
pub enum Extracted {
    /// These pages, of these bytes.
    Pages(PinnedPages),
    /// Memory that must not be held (the kernel's own, slab): copy it. The iterator has not moved.
    Copy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// By `FOLL_PIN`.
    Pin,
    /// By `FOLL_PIN`, and a device writes them.
    PinToWrite,
    /// By `get_page`.
    Reference,
    /// They are our own.
    Own,
}

/// Pages with data to send, pinned or copied, and the range of bytes in them.
///
/// # Examples
///
/// Holds the pages that a program sends, and maps them for the device run by run.
///
/// ```ignore
/// match PinnedPages::extract(msg.iter(), CHUNK_MAX)? {
///     Extracted::Pages(pages) => {
///         for (page, offset, len) in pages.runs() {
///             map(page, offset, len)?;
///         }
///     }
///     Extracted::Copy => copy(msg.iter())?,
/// }
/// ```
///
/// # Invariants
///
/// Each of `pages` is held once, in the way that `hold` says. The bytes begin at `first_offset`,
/// less than the page size, in the first page; the `len` bytes from there end in the last page.
pub struct PinnedPages {
    pages: KVec<*mut bindings::page>,
    hold: Hold,
    first_offset: usize,
    len: usize,
    /// Where pages that a device has written are marked dirty once more.
    later: Option<Arc<Queue>>,
    locked: Option<Arc<LockedPages>>,
}

// SAFETY: pins and references belong to the pages, not to the task that took them.
unsafe impl Send for PinnedPages {}
// SAFETY: all methods on a shared reference only read what never changes after the making.
unsafe impl Sync for PinnedPages {}

/// The iterator of a program's read or write, whose pages are pinned piece by piece.
pub enum ProgramIter<'i, 'a> {
    /// A device reads it.
    Source(&'i mut IovIterSource<'a>),
    /// A device writes it; see [`PinnedPages::extract_dest`].
    Dest(&'i mut IovIterDest<'a>, &'i Arc<Queue>),
}

/// The pieces of a [`ProgramIter`], each as [`PinnedPages`]. Memory that a device reads and that
/// cannot be pinned is copied.
///
/// # Invariants
///
/// The iterator was moved by `last` bytes by the last call of [`Self::next`], and not since.
pub struct Pieces<'i, 'a> {
    iter: ProgramIter<'i, 'a>,
    last: usize,
}

impl<'i, 'a> Pieces<'i, 'a> {
    /// The pieces of `iter` from where it is.
    pub fn new(iter: ProgramIter<'i, 'a>) -> Self {
        // INVARIANT: nothing was moved yet.
        Self { iter, last: 0 }
    }

    /// The next piece, of at most `max` bytes and at most [`MAX_BYTES`].
    ///
    /// Context and errors: as [`PinnedPages::extract`].
    pub fn next(&mut self, max: usize) -> Result<Extracted> {
        self.last = 0;
        let extracted = match &mut self.iter {
            ProgramIter::Source(iter) => match PinnedPages::extract(iter, max)? {
                Extracted::Copy => PinnedPages::copy(iter, max).map(Extracted::Pages)?,
                pages => pages,
            },
            ProgramIter::Dest(iter, later) => PinnedPages::extract_dest(iter, max, later)?,
        };
        if let Extracted::Pages(pages) = &extracted {
            // INVARIANT: so far both have moved it.
            self.last = pages.len();
        }
        Ok(extracted)
    }

    /// Goes back to the beginning of the last piece.
    pub fn back(&mut self) {
        let raw = match &mut self.iter {
            ProgramIter::Source(iter) => iter.as_raw(),
            ProgramIter::Dest(iter, _) => iter.as_raw(),
        };
        // SAFETY: the iterator is valid and ours; by the type invariant it was moved by `last`.
        unsafe { bindings::iov_iter_revert(raw, self.last) };
        // INVARIANT: it is where it was.
        self.last = 0;
    }
}

impl PinnedPages {
    /// Holds the pages of the next bytes of `iter`, at most `max` and at most [`MAX_BYTES`], and
    /// moves `iter` past them.
    ///
    /// Where the program's memory ends in the middle, or an iovec does, the bytes before that come;
    /// the next call says the rest.
    ///
    /// Context: the sending program's; may sleep (page faults).
    ///
    /// Errors: `EINVAL` if nothing is asked for or left, `EFAULT` if the very first byte cannot be
    /// had, `ENOMEM`, `EINTR` for a task that is being killed.
    pub fn extract(iter: &mut IovIterSource<'_>, max: usize) -> Result<Extracted> {
        let max = max.min(iter.len());
        // SAFETY: the iterator is valid, and ours.
        unsafe { Self::extract_raw(iter.as_raw(), max, Hold::Pin) }
    }

    /// As [`Self::extract`], of memory that a device is going to write. An item of `later` may let
    /// go of it.
    ///
    /// Context: the reading program's; may sleep (page faults, locks of its pages).
    pub fn extract_dest(
        iter: &mut IovIterDest<'_>,
        max: usize,
        later: &Arc<Queue>,
    ) -> Result<Extracted> {
        let max = max.min(iter.len());
        // SAFETY: as above; pages of a destination are pinned for writing.
        let mut extracted = unsafe { Self::extract_raw(iter.as_raw(), max, Hold::PinToWrite) }?;
        if let Extracted::Pages(pages) = &mut extracted {
            pages.will_be_written(later);
        }
        Ok(extracted)
    }

    /// Marks the pages dirty. Sleeps.
    fn will_be_written(&mut self, later: &Arc<Queue>) {
        // Others are not of the program.
        if self.hold == Hold::PinToWrite {
            self.later = Some(later.clone());
            for &page in self.pages.iter() {
                // SAFETY: by the type invariant each page carries a pin of ours.
                unsafe { bindings::set_page_dirty_lock(page) };
            }
        }
    }

    /// The pages count against `locked` until the last one is unpinned.
    pub fn count_against(&mut self, locked: &Arc<LockedPages>) {
        self.locked = Some(locked.clone());
    }

    /// Holds the pages of `len` bytes at `addr` of the calling program, as far as that is possible
    /// and at most [`MAX_BYTES`]. `write`: a device is going to write them; see
    /// [`Self::extract_dest`].
    ///
    /// Context: the program's; may sleep (page faults). Errors: as [`Self::extract`].
    pub fn of_program(addr: usize, len: usize, write: Option<&Arc<Queue>>) -> Result<Self> {
        let (kind, hold) = match write {
            Some(_) => (bindings::ITER_DEST, Hold::PinToWrite),
            None => (bindings::ITER_SOURCE, Hold::Pin),
        };
        let mut iter = MaybeUninit::<bindings::iov_iter>::uninit();
        let to = core::ptr::with_exposed_provenance_mut(addr);
        let len = len.min(MAX_BYTES);
        // SAFETY: any address may be given; it is checked.
        to_result(unsafe { bindings::import_ubuf(kind as c_int, to, len, iter.as_mut_ptr()) })?;
        // SAFETY: an iterator of `len` bytes was made just now, and is ours.
        match unsafe { Self::extract_raw(iter.as_mut_ptr(), len, hold) }? {
            Extracted::Pages(mut pages) => {
                if let Some(later) = write {
                    pages.will_be_written(later);
                }
                Ok(pages)
            }
            Extracted::Copy => Err(EFAULT),
        }
    }

    /// Calls `f` with the address and length of each piece of a page, for the `len` bytes from the
    /// byte `off` on. `EINVAL` if not all are inside; then `f` is not called.
    fn each(&self, off: usize, len: usize, mut f: impl FnMut(*mut u8, usize)) -> Result {
        let end = off.checked_add(len).filter(|end| *end <= self.len);
        let end = self.first_offset + end.ok_or(EINVAL)?;
        let mut at = self.first_offset + off;
        while at < end {
            let page = self.page(at >> PAGE_SHIFT).ok_or(EINVAL)?;
            let offset = at & (PAGE_SIZE - 1);
            let part = (PAGE_SIZE - offset).min(end - at);
            // SAFETY: a page of the direct map, as there is no high memory on 64-bit machines.
            let base = unsafe { bindings::page_address(page.as_ptr()) }.cast::<u8>();
            // SAFETY: `offset` is within the page.
            f(unsafe { base.add(offset) }, part);
            at += part;
        }
        Ok(())
    }

    /// Copies the bytes from `off` on to `out`. Any context. `EINVAL` if not all are inside.
    pub fn read(&self, off: usize, out: &mut [u8]) -> Result {
        let mut to = out.as_mut_ptr();
        self.each(off, out.len(), |from, part| {
            // SAFETY: `from` is good for `part` bytes, and the parts together are `out.len()`.
            unsafe {
                core::ptr::copy_nonoverlapping(from, to, part);
                to = to.add(part);
            }
        })
    }

    /// Copies `data` to the bytes from `off` on, of pages that may be written. Any context.
    /// `EINVAL` if it does not all fit.
    pub fn write(&self, off: usize, data: &[u8]) -> Result {
        if self.hold != Hold::PinToWrite {
            return Err(EINVAL);
        }
        let mut from = data.as_ptr();
        self.each(off, data.len(), |to, part| {
            // SAFETY: `to` is good for `part` bytes of a page that is pinned for writing, and the
            // parts together are `data.len()`.
            unsafe {
                core::ptr::copy_nonoverlapping(from, to, part);
                from = from.add(part);
            }
        })
    }

    /// # Safety
    ///
    /// `raw` must be a valid iterator of at least `max` bytes, and ours for the call.
    unsafe fn extract_raw(
        raw: *mut bindings::iov_iter,
        max: usize,
        pin: Hold,
    ) -> Result<Extracted> {
        let max = max.min(MAX_BYTES);
        if max == 0 {
            return Err(EINVAL);
        }
        // SAFETY: the caller's promise.
        let pins = unsafe { bindings::iov_iter_extract_will_pin(raw) };
        // SAFETY: as above.
        let iter_type = unsafe { (*raw).iter_type };
        let hold = if pins {
            pin
        } else if u32::from(iter_type) == bindings::iter_type_ITER_BVEC {
            Hold::Reference
        } else {
            return Ok(Extracted::Copy);
        };

        points::PIN.check()?;
        // SAFETY: as above; only counts.
        let room = unsafe { bindings::iov_iter_npages(raw, MAX_PAGES as i32) };
        let room = usize::try_from(room)
            .unwrap_or(MAX_PAGES)
            .clamp(1, MAX_PAGES)
            .min((max >> PAGE_SHIFT) + 2);
        let mut pages = KVec::<*mut bindings::page>::with_capacity(room, GFP_KERNEL)?;
        let mut list = pages.as_mut_ptr();
        let mut first_offset = 0_usize;
        // SAFETY: `raw` is valid, `list` has space for `room` pointers and is not null, so that the
        // callee fills it instead of making one.
        let got = unsafe {
            bindings::iov_iter_extract_pages(raw, &mut list, max, room as u32, 0, &mut first_offset)
        };
        let len = match usize::try_from(got) {
            Ok(0) => return Err(EFAULT),
            Ok(n) => n,
            Err(_) => return Err(Error::from_errno(got as i32)),
        };
        let count = (first_offset + len).div_ceil(PAGE_SIZE);
        // SAFETY: extraction filled one pointer for each page that the bytes touch; `count` is
        // their number and so at most `room`, the capacity.
        unsafe { pages.inc_len(count) };

        if hold == Hold::Reference && !take_references(&pages) {
            // SAFETY: extraction moved the iterator forward by `len` just now.
            unsafe { bindings::iov_iter_revert(raw, len) };
            return Ok(Extracted::Copy);
        }
        HELD.fetch_add(count as u64, Relaxed);
        // INVARIANT: FOLL_PIN holds them, or `take_references` does; extraction says that the bytes
        // begin at `first_offset` and are `len`.
        Ok(Extracted::Pages(Self {
            pages,
            hold,
            first_offset,
            len,
            later: None,
            locked: None,
        }))
    }

    /// Copies the next bytes of `iter`, at most `max` and at most [`MAX_BYTES`], to new pages, and
    /// moves `iter` past them. Where the program's memory ends in the middle, or the machine's
    /// does, the bytes before that come.
    ///
    /// Context: the sending program's, whose memory cgroup pays; may sleep (page faults).
    ///
    /// Errors: `EINVAL` if nothing is asked for or left, `EFAULT` if the very first byte cannot be
    /// had, `ENOMEM`.
    pub fn copy(iter: &mut IovIterSource<'_>, max: usize) -> Result<Self> {
        let max = max.min(MAX_BYTES).min(iter.len());
        if max == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: there is no page yet, nor a byte.
        let mut copy = Self {
            pages: KVec::with_capacity(max.div_ceil(PAGE_SIZE), GFP_KERNEL)?,
            hold: Hold::Own,
            first_offset: 0,
            len: 0,
            later: None,
            locked: None,
        };
        while copy.len < max {
            let made = points::PAGES.check();
            let page = match made.and_then(|()| Ok(Page::alloc_page(GFP_KERNEL_ACCOUNT)?)) {
                Ok(page) => page,
                Err(_) if copy.len > 0 => break,
                Err(e) => return Err(e),
            };
            let want = (max - copy.len).min(PAGE_SIZE);
            // SAFETY: the page is ours alone and has room for `want` bytes; the iterator is valid.
            let n = unsafe {
                bindings::copy_page_from_iter(page.as_ptr().cast(), 0, want, iter.as_raw())
            };
            if n > 0 {
                copy.pages.push(page.as_ptr().cast(), GFP_KERNEL)?;
                // INVARIANT: its one reference goes with the object from now on, and the bytes end
                // in it.
                let _ = ManuallyDrop::new(page);
                copy.len += n;
            }
            if n < want {
                break;
            }
        }
        match copy.len {
            0 => Err(EFAULT),
            _ => Ok(copy),
        }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many pages.
    pub fn count(&self) -> usize {
        self.pages.len()
    }

    /// Page `index`. It stays in place while this object does.
    pub fn page(&self, index: usize) -> Option<PagePtr> {
        self.pages
            .get(index)
            .copied()
            .and_then(NonNull::new)
            .map(PagePtr::new)
    }

    /// The pages, in the order of the bytes.
    pub fn pages(&self) -> impl Iterator<Item = PagePtr> + '_ {
        self.pages
            .iter()
            .copied()
            .filter_map(NonNull::new)
            .map(PagePtr::new)
    }

    /// The physically contiguous runs, neighbours merged: the first page of each, the offset of
    /// its first byte in that page, and the bytes, which may reach over many pages. Exactly the
    /// bytes asked for are in them, no neighbouring byte.
    pub fn runs(&self) -> impl Iterator<Item = (PagePtr, usize, usize)> + '_ {
        runs(
            self.pages().map(PagePtr::pfn),
            PAGE_SIZE,
            self.first_offset,
            self.len,
        )
        .filter_map(
            |Run {
                 page, offset, len, ..
             }| Some((self.page(page)?, offset, len)),
        )
    }
}

/// Pages of the calling program that count against its user's `RLIMIT_MEMLOCK`, until this is
/// dropped.
///
/// # Invariants
///
/// `user` is a `struct user_struct` with a reference of ours, and has `pages` pages of ours.
pub struct LockedPages {
    user: NonNull<c_void>,
    pages: usize,
}

// SAFETY: users belong to no task.
unsafe impl Send for LockedPages {}
// SAFETY: there is nothing to do with a shared reference.
unsafe impl Sync for LockedPages {}

impl LockedPages {
    /// Counts `pages` pages. `ENOMEM` if that is more than the user may lock.
    pub fn new(pages: usize) -> Result<Self> {
        // SAFETY: takes any number.
        let user = unsafe { bindings::charge_locked(pages) };
        // INVARIANT: the helper has counted them and taken the reference.
        let user = NonNull::new(user).ok_or(ENOMEM)?;
        Ok(Self { user, pages })
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        // SAFETY: by the type invariants.
        unsafe { bindings::uncharge_locked(self.user.as_ptr(), self.pages) };
    }
}

/// A reference to each page, or to none and `false` if one of them is not for keeping.
fn take_references(pages: &[*mut bindings::page]) -> bool {
    for (i, &page) in pages.iter().enumerate() {
        // SAFETY: the iterator's owner holds its pages while the call runs that got it.
        if unsafe { bindings::sendpage_ok(page) } {
            // SAFETY: as above, and `sendpage_ok` says that it is a counted page in use.
            unsafe { bindings::get_page(page) };
            continue;
        }
        for &taken in &pages[..i] {
            // SAFETY: the reference that an earlier round took.
            unsafe { bindings::put_page(taken) };
        }
        return false;
    }
    true
}

/// Pinned pages; some of them have to be marked dirty.
///
/// # Invariants
///
/// Each page carries a pin of ours.
struct Undirtied {
    pages: KVec<*mut bindings::page>,
    _locked: Option<Arc<LockedPages>>,
}

// SAFETY: pins belong to the pages, not to the task that took them.
unsafe impl Send for Undirtied {}

impl Drop for Undirtied {
    /// Context: sleeps, for the locks of the pages.
    fn drop(&mut self) {
        let count = self.pages.len();
        // SAFETY: by the type invariant each page carries a pin of ours, which goes here.
        unsafe { bindings::unpin_user_pages_dirty_lock(self.pages.as_mut_ptr(), count, true) };
        HELD.fetch_sub(count as u64, Relaxed);
    }
}

impl Drop for PinnedPages {
    /// Context: a task's; does not wait for a lock of a page unless memory is short.
    fn drop(&mut self) {
        let count = self.pages.len();
        match self.hold {
            // SAFETY: by the type invariant each page carries a pin of ours, which goes here.
            Hold::Pin => unsafe { bindings::unpin_user_pages(self.pages.as_mut_ptr(), count) },
            Hold::PinToWrite => {
                // SAFETY: the list has `count` pages, each with a pin of ours.
                if unsafe { bindings::pages_dirty(self.pages.as_mut_ptr(), count) } {
                    // SAFETY: as above; the pins go here.
                    unsafe { bindings::unpin_user_pages(self.pages.as_mut_ptr(), count) };
                } else {
                    // INVARIANT: each page carries a pin of ours, which goes with it.
                    let undirtied = Undirtied {
                        pages: core::mem::take(&mut self.pages),
                        _locked: self.locked.take(),
                    };
                    // If there is no memory it is dropped here.
                    if let Some(later) = &self.later {
                        let _ = later.try_spawn(GFP_KERNEL, move || drop(undirtied));
                    }
                    return;
                }
            }
            Hold::Reference | Hold::Own => {
                for &page in self.pages.iter() {
                    // SAFETY: by the type invariant each page carries a reference of ours.
                    unsafe { bindings::put_page(page) };
                }
            }
        }
        if self.hold != Hold::Own {
            HELD.fetch_sub(count as u64, Relaxed);
        }
    }
}
