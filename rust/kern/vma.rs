// SPDX-License-Identifier: GPL-2.0

//! Mappings of a socket: a window of contiguous memory, or shared pages.
//!
//! C: `include/linux/mm.h` (`struct vm_operations_struct`, `remap_pfn_range`,
//! `unmap_mapping_range`). A mapping is whole or not at all: it cannot be split, moved, grown,
//! copied to a child or dumped, and a window can never be made writable. It owns an `Arc` of the
//! memory that it shows from the `mmap` to the last unmap; the socket's file, and with it the
//! module, is held by the area itself.
//!
//! The operations here run under the `mmap_lock`: they and the owners' callbacks must not take
//! `lock_sock` nor touch program memory.

use super::{area::Area, contig::ContigPages, shared::SharedPages};
use crate::bindings;
use core::{marker::PhantomData, ops::Range};
use kernel::{
    error::to_result,
    ffi::{c_int, c_ulong},
    mm::virt::{flags, VmaNew},
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::Arc,
};

/// Notified of mappings. Both are called under the program's `mmap_lock` and may sleep, but must
/// not wait for code that faults or maps memory.
pub trait MappedOwner: Send + Sync + 'static {
    /// There is one mapping more.
    fn mapped(&self) {}
    /// There is one mapping less. The memory may be freed or reused once none is left.
    fn unmapped(&self) {}
}

/// Something that shows a range of pages to a program, read-only.
pub trait Window: MappedOwner {
    /// The memory. It has to be the same each time.
    fn memory(&self) -> &ContigPages;
    /// Which of its pages: a mapping shows exactly these.
    fn range(&self) -> Range<usize>;
}

/// A memory area that is being made, in a socket's `mmap`.
///
/// # Invariants
///
/// The area is undergoing its first set-up, under the `mmap_lock` for writing.
pub struct NewVma<'a>(&'a VmaNew);

impl<'a> NewVma<'a> {
    /// # Safety
    ///
    /// `vma` must be undergoing its first set-up, in an `mmap` callback, for all of `'a`.
    pub(super) unsafe fn from_raw(vma: *mut bindings::vm_area_struct) -> Self {
        // INVARIANT: the caller's promise.
        // SAFETY: the same.
        Self(unsafe { VmaNew::from_raw(vma) })
    }

    /// Length in bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.0.end() - self.0.start()
    }

    /// The offset that the program gave, in pages.
    pub fn pgoff(&self) -> usize {
        // SAFETY: the area is being set up by this thread alone (type invariant).
        unsafe { (*self.0.as_ptr()).vm_pgoff }
    }

    /// The offset that the program gave, in bytes.
    pub fn offset(&self) -> u64 {
        (self.pgoff() as u64) << PAGE_SHIFT
    }

    /// Whether it is `MAP_SHARED`.
    pub fn is_shared(&self) -> bool {
        self.0.flags() & flags::SHARED != 0
    }

    /// Whether it is `PROT_WRITE`.
    pub fn wants_write(&self) -> bool {
        self.0.writable()
    }

    /// Maps the whole of a window, read-only.
    ///
    /// Errors: `EINVAL` for a private mapping or a length that is not exactly the window's,
    /// `EACCES` for a writable one, `ENOMEM` (page tables).
    pub fn map_window<W: Window>(self, window: Arc<W>) -> Result {
        if !self.is_shared() {
            return Err(EINVAL);
        }
        if self.wants_write() {
            return Err(EACCES);
        }
        let Range { start, end } = window.range();
        let pages = end.checked_sub(start).filter(|&n| n != 0).ok_or(EINVAL)?;
        if pages.checked_mul(1 << PAGE_SHIFT) != Some(self.len()) {
            return Err(EINVAL);
        }
        // Both ends are pages of that memory, so all between are.
        let (Some(pfn), Some(_)) = (window.memory().pfn(start), window.memory().pfn(end - 1))
        else {
            return Err(EINVAL);
        };
        self.0.try_clear_maywrite()?;
        self.0.set_dontcopy();
        self.0.set_dontexpand();
        self.0.set_dontdump();
        // SAFETY: the area is being set up under the mmap_lock (type invariant); the frames are
        // pages of `window.memory()`, which lives in `window`, and that is kept from here to the
        // last unmap: by this function's argument until `own` hands it to the area.
        to_result(unsafe {
            bindings::remap_pfn_range(
                self.0.as_ptr(),
                self.0.start() as c_ulong,
                pfn as c_ulong,
                self.len() as c_ulong,
                (*self.0.as_ptr()).vm_page_prot,
            )
        })?;
        self.own(window);
        Ok(())
    }

    /// Maps the whole of `pages`, readable and writable as the program asked; `owner` is told of
    /// it. The pages need not outlive the mapping (it counts them one by one).
    ///
    /// Errors: `EINVAL` for a private mapping or a length that is not exactly that of `pages`,
    /// `ENOMEM` (page tables).
    pub fn map_shared<W: MappedOwner>(self, pages: &SharedPages, owner: Arc<W>) -> Result {
        if !self.is_shared() || self.len() != pages.bytes() {
            return Err(EINVAL);
        }
        self.insert(pages)?;
        self.own(owner);
        Ok(())
    }

    /// As [`map_shared`](Self::map_shared), but the program can never write.
    ///
    /// Errors: `EINVAL` for a private mapping or a length that is not exactly that of `pages`,
    /// `EACCES` for a writable one, `ENOMEM` (page tables).
    pub fn map_shared_read_only<W: MappedOwner>(
        self,
        pages: &SharedPages,
        owner: Arc<W>,
    ) -> Result {
        if !self.is_shared() {
            return Err(EINVAL);
        }
        if self.wants_write() {
            return Err(EACCES);
        }
        if self.len() != pages.bytes() {
            return Err(EINVAL);
        }
        self.0.try_clear_maywrite()?;
        self.insert(pages)?;
        self.own(owner);
        Ok(())
    }

    /// Puts `pages`, which are as long as the area, into it.
    fn insert(&self, pages: &SharedPages) -> Result {
        self.0.set_dontcopy();
        self.0.set_dontexpand();
        self.0.set_dontdump();
        // What `remap_vmalloc_range` does; it takes memory of `vmalloc_user` only, which no cgroup
        // pays for.
        self.0.set_mixedmap();
        for at in (0..pages.bytes()).step_by(PAGE_SIZE) {
            // SAFETY: the memory is a live area of vmalloc's, and `at` inside of it.
            let page = unsafe { bindings::vmalloc_to_page(pages.as_ptr().byte_add(at)) };
            let addr = self.0.start() + at;
            // SAFETY: the area is being set up under the mmap_lock (type invariant), and an address
            // outside of it would be refused; the pages are ordinary ones, each counted by its
            // mapping.
            to_result(unsafe { bindings::vm_insert_page(self.0.as_ptr(), addr, page) })?;
        }
        Ok(())
    }

    /// Reserves addresses, read-only, where pages are mapped and unmapped later; see [`Area`].
    ///
    /// Errors: `EINVAL` for a private mapping, `EACCES` for a writable one.
    pub fn map_area(self, area: Arc<Area>) -> Result {
        if !self.is_shared() {
            return Err(EINVAL);
        }
        if self.wants_write() {
            return Err(EACCES);
        }
        self.0.try_clear_maywrite()?;
        self.0.set_mixedmap();
        self.0.set_dontcopy();
        self.0.set_dontexpand();
        self.0.set_dontdump();
        self.own_by(area, Area::ops());
        Ok(())
    }

    fn own<W: MappedOwner>(self, owner: Arc<W>) {
        self.own_by(owner, &Ops::<W>::TABLE);
    }

    /// The last step, which cannot fail: the area owns `owner` from now on. (An area whose `mmap`
    /// fails is taken down without its operations.)
    fn own_by<W: MappedOwner>(self, owner: Arc<W>, ops: &'static Table<W>) {
        owner.mapped();
        let vma = self.0.as_ptr();
        // SAFETY: the area is being set up by this thread alone (type invariant). The operations
        // are 'static and made for a private pointer that came from `Arc<W>`.
        unsafe {
            (*vma).vm_private_data = Arc::into_raw(owner).cast_mut().cast();
            (*vma).vm_ops = ops.as_ptr();
        }
    }
}

/// The operations of areas that a `W` owns.
pub(super) struct Table<W> {
    ops: bindings::vm_operations_struct,
    owner: PhantomData<fn(W)>,
}

// SAFETY: it consists of functions and null pointers, and is never written.
unsafe impl<W> Sync for Table<W> {}

impl<W> Table<W> {
    /// The C pointer.
    pub(super) fn as_ptr(&'static self) -> *const bindings::vm_operations_struct {
        &self.ops
    }
}

/// The operations of an area that [`NewVma::own`] set up for a `W`.
pub(super) struct Ops<W>(PhantomData<W>);

impl<W: MappedOwner> Ops<W> {
    pub(super) const TABLE: Table<W> = Table {
        ops: bindings::vm_operations_struct {
            open: Some(Self::open),
            close: Some(Self::close),
            may_split: Some(Self::may_split),
            mremap: Some(Self::mremap),
            ..pin_init::zeroed()
        },
        owner: PhantomData,
    };

    /// The owner behind an area.
    ///
    /// # Safety
    ///
    /// `vma` must be an area with these operations, and stay one for `'a`.
    unsafe fn owner<'a>(vma: *mut bindings::vm_area_struct) -> &'a W {
        // SAFETY: such an area's private pointer came from `Arc::<W>::into_raw`, and the count that
        // went with it is given back by `close` only.
        unsafe { &*(*vma).vm_private_data.cast::<W>() }
    }

    /// A second area with the same private pointer has come to be (a move that `mremap` below then
    /// refuses).
    ///
    /// # Safety
    ///
    /// Only the memory manager may call this, with an area that has these operations.
    unsafe extern "C" fn open(vma: *mut bindings::vm_area_struct) {
        // SAFETY: the caller's promise.
        unsafe { Self::owner(vma) }.mapped();
        // SAFETY: as in `owner`. The borrow ends before the area does; cloning it makes the count
        // that the new area owns, and `into_raw` leaves it there.
        let owner =
            unsafe { kernel::sync::ArcBorrow::<'_, W>::from_raw((*vma).vm_private_data.cast()) };
        let _ = Arc::into_raw(Arc::from(owner));
    }

    /// The area is gone: give its count back.
    ///
    /// # Safety
    ///
    /// As for `open`.
    unsafe extern "C" fn close(vma: *mut bindings::vm_area_struct) {
        // SAFETY: the pointer came from `Arc::into_raw`, in `own` or in `open`, and `close` is
        // called once for each of them.
        let owner = unsafe { Arc::<W>::from_raw((*vma).vm_private_data.cast()) };
        owner.unmapped();
    }

    /// A mapping is unmapped whole or not at all.
    ///
    /// # Safety
    ///
    /// None: it looks at nothing.
    unsafe extern "C" fn may_split(_: *mut bindings::vm_area_struct, _: c_ulong) -> c_int {
        EINVAL.to_errno()
    }

    /// A mapping stays where it is.
    ///
    /// # Safety
    ///
    /// None: it looks at nothing.
    unsafe extern "C" fn mremap(_: *mut bindings::vm_area_struct) -> c_int {
        EINVAL.to_errno()
    }
}
