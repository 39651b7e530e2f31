// SPDX-License-Identifier: GPL-2.0

//! DMA addresses: memory mapped for a device, and the scatter/gather elements made of it.
//!
//! C header: `include/rdma/ib_verbs.h`.
//!
//! A DMA address exists only inside a mapping made by `ib_dma_map_page`, which is undone when the
//! mapping is dropped. Soft-RoCE takes kernel virtual addresses for DMA addresses and would work
//! with all kinds of mistakes; devices behind an IOMMU or with bounce buffers do not, so what is
//! read after a receive, or written before a send, goes through the sync calls.

use super::pd::Pd;
use crate::{bindings, kern::fault::points};
use core::{
    mem::{align_of, offset_of, size_of},
    ptr::NonNull,
};
use kernel::{
    ffi::c_int,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, //
    },
};

/// The writing side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The CPU writes, the device reads.
    ToDevice,
    /// The device writes, the CPU reads.
    FromDevice,
    /// Both of them, one after the other.
    Both,
}

impl Direction {
    /// The value of `enum dma_data_direction`, which is another type in each kernel series.
    fn raw(self) -> c_int {
        match self {
            Direction::ToDevice => bindings::DMA_TO_DEVICE,
            Direction::FromDevice => bindings::DMA_FROM_DEVICE,
            Direction::Both => bindings::DMA_BIDIRECTIONAL,
        }
    }
}

/// A DMA address of one device. Never shown outside of this room, never sent to a peer.
#[derive(Clone, Copy)]
pub(super) struct DmaAddr(u64);

impl DmaAddr {
    /// The number, for work requests and page lists.
    pub(super) fn raw(self) -> u64 {
        self.0
    }
}

/// Maps `len` bytes from byte `offset` of the physically contiguous run that starts at `page`.
///
/// # Safety
///
/// The run must be valid memory for as long as it is mapped, and the mapping be undone by
/// [`unmap`].
unsafe fn map(
    pd: &Pd,
    page: NonNull<bindings::page>,
    offset: usize,
    len: usize,
    dir: Direction,
) -> Result<DmaAddr> {
    let dev = pd.device().as_ptr();
    if len == 0 {
        return Err(EINVAL);
    }
    points::MAP.check()?;
    // SAFETY: The device is valid by its type; the caller guarantees that the run is.
    let addr = unsafe { bindings::ib_dma_map_page(dev, page.as_ptr(), offset, len, dir.raw()) };
    // SAFETY: The device is valid and the address comes from it.
    if unsafe { bindings::ib_dma_mapping_error(dev, addr) } != 0 {
        return Err(ENOMEM);
    }
    Ok(DmaAddr(addr))
}

/// Undoes [`map`]. `sync`: the processor sees what the device has written to a bounce page.
///
/// # Safety
///
/// `addr` must come from [`map`] with the same other arguments, be undone once only, and no device
/// access through it may be outstanding.
unsafe fn unmap(pd: &Pd, addr: DmaAddr, len: usize, dir: Direction, sync: bool) {
    let dev = pd.device().as_ptr();
    if sync {
        // SAFETY: The device is valid by its type; the rest is the caller's promise.
        return unsafe { bindings::ib_dma_unmap_page(dev, addr.0, len, dir.raw()) };
    }
    // SAFETY: The device is valid by its type.
    if unsafe { bindings::ib_uses_virt_dma(dev) } {
        return;
    }
    // SAFETY: As above; it is mapped for the DMA device of the device.
    unsafe { bindings::ib_dma_unmap_unsynced(dev, addr.0, len, dir.raw()) };
}

/// A scatter/gather element: a piece of a mapping.
///
/// It does not keep the mapping alive: the poster of the request does, until the completion.
///
/// # Invariants
///
/// The same fields in the same places as `struct ib_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Sge {
    addr: u64,
    length: u32,
    lkey: u32,
}

static_assert!(size_of::<Sge>() == size_of::<bindings::ib_sge>());
static_assert!(align_of::<Sge>() == align_of::<bindings::ib_sge>());
static_assert!(offset_of!(Sge, addr) == offset_of!(bindings::ib_sge, addr));
static_assert!(offset_of!(Sge, length) == offset_of!(bindings::ib_sge, length));
static_assert!(offset_of!(Sge, lkey) == offset_of!(bindings::ib_sge, lkey));

impl Sge {
    /// The length in bytes.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// A list as the core takes it.
    pub(super) fn as_raw(list: &[Sge]) -> *const bindings::ib_sge {
        // By the type invariants the elements have that layout.
        list.as_ptr().cast()
    }

    fn new(pd: &Pd, addr: DmaAddr, offset: usize, len: usize) -> Result<Self> {
        Ok(Self {
            addr: addr.0.wrapping_add(offset as u64),
            length: u32::try_from(len).map_err(|_| EINVAL)?,
            lkey: pd.local_dma_lkey(),
        })
    }
}

/// `offset + len <= size`, without overflow.
fn within(offset: usize, len: usize, size: usize) -> Result {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(EINVAL),
    }
}

/// Memory of the kernel's that can be mapped for a device.
///
/// # Safety
///
/// `first_page` and `size` always give the same answers: a physically contiguous run of pages that
/// stays allocated, and owned by the implementor, for as long as the implementor lives.
pub(crate) unsafe trait DmaMemory: Send + Sync {
    /// The first page of the run.
    fn first_page(&self) -> NonNull<bindings::page>;

    /// The length of the run in bytes.
    fn size(&self) -> usize;
}

// SAFETY: It is one page, owned by the object and never exchanged.
unsafe impl DmaMemory for kernel::page::Page {
    fn first_page(&self) -> NonNull<bindings::page> {
        // SAFETY: A `Page` always has a page.
        unsafe { NonNull::new_unchecked(self.as_ptr()) }
    }

    fn size(&self) -> usize {
        kernel::page::PAGE_SIZE
    }
}

/// Memory that is mapped for a device, for an owner that only keeps the mapping.
pub(crate) trait Mapped: Send + Sync {
    /// The device may use the `len` bytes at `offset` for ever: their pages never go back to the
    /// kernel, and the mapping stays, so that no other memory gets its DMA addresses.
    fn keep_for_ever(&self, offset: usize, len: usize);
}

impl Mapped for DmaRegion {
    fn keep_for_ever(&self, offset: usize, len: usize) {
        if within(offset, len, self.len).is_ok() {
            self.kept.store(true, Relaxed);
            // SAFETY: By the type invariants the run is there while `_owner` is, and the bytes are
            // inside.
            unsafe { keep_pages(self._owner.first_page(), offset, len) };
        }
    }
}

impl<S: RunSource + Send + Sync> Mapped for DmaRuns<S> {
    /// All of them.
    fn keep_for_ever(&self, _offset: usize, _len: usize) {
        self.kept.store(true, Relaxed);
        for run in self.source.runs() {
            // SAFETY: By the trait's contract the run is valid while `source` lives.
            unsafe { keep_pages(run.page, run.offset as usize, run.len as usize) };
        }
    }
}

/// Takes a reference to each page that the `len` bytes at `offset` from the start of `page` touch.
/// They are never dropped.
///
/// # Safety
///
/// The bytes must be in a valid, physically contiguous run that begins with `page`.
unsafe fn keep_pages(page: NonNull<bindings::page>, offset: usize, len: usize) {
    // SAFETY: The caller guarantees that it is a valid page.
    let first = unsafe { bindings::page_to_pfn(page.as_ptr()) };
    for pfn in first + (offset >> PAGE_SHIFT)..first + (offset + len).div_ceil(PAGE_SIZE) {
        // SAFETY: By the caller's guarantee the frame has a valid page.
        unsafe { bindings::get_page(bindings::pfn_to_page(pfn)) };
    }
}

/// Kernel memory mapped for a device; keeps the memory and the domain.
///
/// Dropped when no posted work request and no registered region names it any more.
///
/// # Invariants
///
/// `addr` comes from `map` with `_owner`'s whole run and `dir`.
pub(crate) struct DmaRegion {
    addr: DmaAddr,
    len: usize,
    dir: Direction,
    _owner: Arc<dyn DmaMemory>,
    /// It stays mapped: see [`Mapped::keep_for_ever`].
    kept: Atomic<bool>,
    pd: Arc<Pd>,
}

impl DmaRegion {
    /// Maps all of `owner`. May sleep on some platforms.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no memory at all, `ENOMEM` if it cannot be mapped.
    pub(crate) fn map(pd: &Arc<Pd>, owner: Arc<dyn DmaMemory>, dir: Direction) -> Result<Self> {
        let len = owner.size();
        // SAFETY: By the trait's contract the run is valid while `owner` lives, which we keep
        // longer than the mapping.
        let addr = unsafe { map(pd, owner.first_page(), 0, len, dir) }?;
        // INVARIANT: Just mapped so.
        Ok(Self {
            addr,
            len,
            dir,
            _owner: owner,
            kept: Atomic::new(false),
            pd: pd.clone(),
        })
    }

    /// The length in bytes.
    pub(crate) fn size(&self) -> usize {
        self.len
    }

    /// The domain.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Where it is for the device.
    pub(super) fn addr(&self) -> DmaAddr {
        self.addr
    }

    /// The element for `len` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside of the region.
    pub(crate) fn sge(&self, offset: usize, len: usize) -> Result<Sge> {
        within(offset, len, self.len)?;
        Sge::new(&self.pd, self.addr, offset, len)
    }

    /// Before the CPU reads what the device wrote. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside of the region.
    pub(crate) fn sync_for_cpu(&self, offset: usize, len: usize) -> Result {
        within(offset, len, self.len)?;
        // SAFETY: The device is valid, and the piece is within a mapping of it made with this
        // direction.
        unsafe {
            bindings::ib_dma_sync_single_for_cpu(
                self.pd.device().as_ptr(),
                self.addr.0.wrapping_add(offset as u64),
                len,
                self.dir.raw(),
            )
        };
        Ok(())
    }

    /// After the CPU wrote, or is done reading, and before the device's turn. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside of the region.
    pub(crate) fn sync_for_device(&self, offset: usize, len: usize) -> Result {
        within(offset, len, self.len)?;
        // SAFETY: As for `sync_for_cpu`.
        unsafe {
            bindings::ib_dma_sync_single_for_device(
                self.pd.device().as_ptr(),
                self.addr.0.wrapping_add(offset as u64),
                len,
                self.dir.raw(),
            )
        };
        Ok(())
    }
}

impl Drop for DmaRegion {
    fn drop(&mut self) {
        if self.kept.load(Relaxed) {
            return;
        }
        // SAFETY: By the type invariants `addr` comes from `map` so; the device access is over by
        // the contract of posting.
        unsafe { unmap(&self.pd, self.addr, self.len, self.dir, true) };
    }
}

/// A physically contiguous piece of memory.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The page of the first byte.
    pub(crate) page: NonNull<bindings::page>,
    /// Where in that page, in bytes.
    pub(crate) offset: u32,
    /// How long; it may go on into the pages that follow physically.
    pub(crate) len: u32,
}

/// Something that keeps runs of memory in place: pinned pages of a program.
///
/// # Safety
///
/// `runs` always gives the same answer: runs of memory that stay valid, and in place, for as long
/// as the implementor lives.
pub(crate) unsafe trait RunSource {
    /// The processor, and devices by other mappings, use the memory while it is mapped. So the end
    /// of a mapping must not write the contents of a bounce page over it, also where no device has
    /// used the mapping, as [`DmaRuns::need_sync`] has told to.
    const SHARED: bool = false;

    /// The runs, in the order of the bytes.
    fn runs(&self) -> &[Run];
}

/// One run as the device sees it.
struct MappedRun {
    addr: DmaAddr,
    len: usize,
}

/// Runs of a program's memory mapped for a device; keeps the pins.
///
/// Dropped when no posted work request names it any more; then the runs are unmapped, and after
/// that the source is dropped.
///
/// # Invariants
///
/// Each of `runs` comes from `map` with the run of the same index of `source` and with `dir`.
pub(crate) struct DmaRuns<S: RunSource> {
    runs: KVec<MappedRun>,
    bytes: usize,
    dir: Direction,
    source: S,
    /// They stay mapped: see [`Mapped::keep_for_ever`].
    kept: Atomic<bool>,
    pd: Arc<Pd>,
}

// SAFETY: DMA mappings may be undone from any thread; the rest is `Send` by the bound.
unsafe impl<S: RunSource + Send> Send for DmaRuns<S> {}
// SAFETY: Shared references only read.
unsafe impl<S: RunSource + Sync> Sync for DmaRuns<S> {}

impl<S: RunSource> DmaRuns<S> {
    /// Maps all runs of `source`. Sleeps (memory for the list). On an error everything is undone
    /// and the source dropped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if a run cannot be mapped; `EINVAL` for an empty run or more than the address
    /// space.
    pub(crate) fn map(pd: &Arc<Pd>, source: S, dir: Direction) -> Result<Self> {
        let mut this = Self {
            runs: KVec::with_capacity(source.runs().len(), GFP_KERNEL)?,
            bytes: 0,
            dir,
            source,
            kept: Atomic::new(false),
            pd: pd.clone(),
        };
        for run in this.source.runs() {
            let len = run.len as usize;
            let bytes = this.bytes.checked_add(len).ok_or(EINVAL)?;
            // SAFETY: By the trait's contract the run is valid while `source` lives: longer
            // than the mapping. An early return drops `this`, which undoes those made so far.
            let addr = unsafe { map(pd, run.page, run.offset as usize, len, dir) }?;
            let mapped = MappedRun { addr, len };
            // INVARIANT: The run of the same index was just mapped so.
            if this.runs.push_within_capacity(mapped).is_err() {
                // Not reached while `runs` keeps its contract; unmap this run, and the drop
                // unmaps the rest.
                // SAFETY: It was mapped just above with these arguments.
                unsafe { unmap(pd, addr, len, dir, !S::SHARED) };
                return Err(EINVAL);
            }
            this.bytes = bytes;
        }
        Ok(this)
    }

    /// Whether the processor sees what the device has written, and the device what the processor
    /// has, only once that is synchronized, as DMA is not coherent or goes by bounce pages.
    pub(crate) fn need_sync(&self) -> bool {
        let device = self.pd.device().as_ptr();
        let mut runs = self.runs.iter();
        // SAFETY: The device is valid, and the address is of a mapping of it.
        runs.any(|run| unsafe { bindings::ib_dma_need_sync(device, run.addr.raw()) })
    }

    /// How many bytes they are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many runs there are.
    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    /// The domain.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Address and length of each run.
    pub(super) fn pieces(&self) -> impl ExactSizeIterator<Item = (u64, usize)> + '_ {
        self.runs.iter().map(|run| (run.addr.raw(), run.len))
    }

    /// Fills `out` with the elements for up to `len` bytes from byte `offset`; says how many
    /// elements and how many bytes. Fewer bytes than asked for means that `out` was too short.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside of the runs.
    pub(crate) fn fill_sges(
        &self,
        offset: usize,
        len: usize,
        out: &mut [Sge],
    ) -> Result<(usize, usize)> {
        within(offset, len, self.bytes)?;
        let (mut skip, mut left) = (offset, len);
        let (mut count, mut bytes) = (0usize, 0usize);
        let mut slots = out.iter_mut();
        for run in &self.runs {
            if left == 0 {
                break;
            }
            if skip >= run.len {
                skip -= run.len;
                continue;
            }
            let part = left.min(run.len - skip);
            let Some(slot) = slots.next() else { break };
            *slot = Sge::new(&self.pd, run.addr, skip, part)?;
            skip = 0;
            left -= part;
            count += 1;
            bytes += part;
        }
        Ok((count, bytes))
    }
}

impl<S: RunSource> Drop for DmaRuns<S> {
    fn drop(&mut self) {
        if self.kept.load(Relaxed) {
            return;
        }
        for run in &self.runs {
            // SAFETY: By the type invariants it comes from `map` so; the device access is over by
            // the contract of posting.
            unsafe { unmap(&self.pd, run.addr, run.len, self.dir, !S::SHARED) };
        }
    }
}
