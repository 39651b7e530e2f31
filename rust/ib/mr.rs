// SPDX-License-Identifier: GPL-2.0

//! Memory regions for remote access, by fast registration.
//!
//! C header: `include/rdma/ib_verbs.h`.
//!
//! [`Mr::map`] describes the memory and gives a new key, a REG work request makes it accessible,
//! and [`Mr::deregister`] takes the access away, or dropping the region. So does an invalidation,
//! after which the region can describe other memory (`MrPool`). The extent is exact, whatever the
//! page size.
//!
//! The address that the peer uses is not a DMA address (that would tell it where our memory is):
//! it is an origin that the caller chooses, plus the offset in the first page, as
//! `ib_map_mr_sg_zbva` does with origin zero.

use super::{
    dma::{DmaRegion, DmaRuns, Mapped, RunSource},
    pd::Pd,
};
use crate::{
    bindings,
    kern::{errno::EOPNOTSUPP, fault::points, task::random_u64},
};
use core::{
    ops::Range,
    ptr::{null_mut, NonNull},
};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc, //
    },
};

/// The peer's rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Both.
    ReadWrite,
}

impl Access {
    /// The flags of `enum ib_access_flags`. Remote writing needs local writing as well.
    pub(super) fn raw(self) -> i32 {
        const LOCAL: i32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE as i32;
        const WRITE: i32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE as i32;
        const READ: i32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ as i32;
        match self {
            Access::Write => LOCAL | WRITE,
            Access::Read => READ,
            Access::ReadWrite => LOCAL | WRITE | READ,
        }
    }
}

/// No memory.
const FREE: u32 = 0;
/// Memory described, no access yet.
const MAPPED: u32 = 1;
/// A REG work request has been posted: the peer may have access until the region is invalidated or
/// deregistered.
const POSTED: u32 = 2;
/// Deregistered: there is no region any more.
const ENDED: u32 = 3;
/// Invalidated: the peer has no access any more.
const INVALIDATED: u32 = 4;

/// How often a region is registered. A key has eight bits that change from one registration to the
/// next: a region ends before one of its keys would come again.
const REGISTRATIONS: u32 = u8::MAX as u32 + 1;

/// Bytes that could not be deregistered.
static LOST: Atomic<u64> = Atomic::new(0);

/// The bytes that peers may have access to for ever, since devices have failed to deregister them.
/// Nothing uses them any more.
pub(crate) fn lost_bytes() -> u64 {
    LOST.load(Relaxed)
}

/// A memory region of up to a fixed number of pages.
///
/// Dropping it takes the access away (sleeps), then lets the memory go; [`Mr::deregister`] also
/// tells whether that has succeeded. Do so only when no work request that names it is outstanding:
/// drivers keep its address in their queues.
///
/// # Examples
///
/// Lets the peer write into `area`: the key is good when the REG work request has completed, or for
/// all that is posted to the same queue behind it.
///
/// ```ignore
/// let mut mr = Mr::new(&pd, pages)?;
/// mr.map(&area, 0, len, 0)?;
/// qp.post(&[SendWr {
///     wr_id,
///     op: SendOp::Reg { mr: &mr, access: Access::Write },
///     signaled: true,
/// }])?;
/// tell_peer(mr.iova(), mr.rkey());
/// ```
///
/// # Invariants
///
/// `ptr` is a region allocated in `pd`, owned by this object, unless the state is `ENDED`. While
/// the state is not `FREE`, `region` is the memory that the region describes, its bytes `span`.
pub(crate) struct Mr {
    ptr: NonNull<bindings::ib_mr>,
    max_pages: u32,
    state: Atomic<u32>,
    /// The values of a key's changing bits that it has had.
    keys: [u64; 4],
    region: Option<Arc<dyn Mapped>>,
    span: Range<usize>,
    pd: Arc<Pd>,
}

// SAFETY: Drivers lock what regions share; what this type changes it changes by `&mut`.
unsafe impl Send for Mr {}
// SAFETY: Shared references only read, and post, which drivers lock.
unsafe impl Sync for Mr {}

impl Mr {
    /// Allocates a region of up to `max_pages` pages. Sleeps.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no fast registration, `EINVAL` for more pages than it takes,
    /// `ENOMEM`.
    pub(crate) fn new(pd: &Arc<Pd>, max_pages: u32) -> Result<Self> {
        let attrs = pd.device().attrs();
        if !attrs.fast_registration {
            return Err(EOPNOTSUPP);
        }
        if max_pages == 0 || max_pages > attrs.max_fast_reg_pages {
            return Err(EINVAL);
        }
        points::REGISTER.check()?;
        // SAFETY: The domain is valid.
        let ptr = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(
                pd.as_ptr(),
                bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
                max_pages,
            )
        })?;
        // INVARIANT: The region is ours and in `pd`, and describes nothing.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            max_pages,
            state: Atomic::new(FREE),
            keys: [0; 4],
            region: None,
            span: 0..0,
            pd: pd.clone(),
        })
    }

    /// The raw region.
    pub(super) fn as_ptr(&self) -> *mut bindings::ib_mr {
        self.ptr.as_ptr()
    }

    /// The domain.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The most pages that it can describe.
    pub(super) fn max_pages(&self) -> u32 {
        self.max_pages
    }

    /// Describes `len` bytes at `offset` of `region`, under a new key. Does not sleep on the
    /// devices we know, but may allocate on some: call it in process context.
    ///
    /// `origin` is where the peer's addresses begin; its bits below the page size are replaced by
    /// the offset in the first page. See [`Mr::iova`] for the result.
    ///
    /// # Errors
    ///
    /// `EBUSY` unless the region is free, `EINVAL` outside of `region`, for another domain's, or if
    /// no page size of the device covers it with the pages there are.
    pub(crate) fn map(
        &mut self,
        region: &Arc<DmaRegion>,
        offset: usize,
        len: usize,
        origin: u64,
    ) -> Result {
        if self.state.load(Acquire) != FREE {
            return Err(EBUSY);
        }
        if !Arc::ptr_eq(region.pd(), &self.pd) {
            return Err(EINVAL);
        }
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end > region.size() {
            return Err(EINVAL);
        }
        let sg_len = u32::try_from(len).map_err(|_| EINVAL)?;
        let start = region.addr().raw().wrapping_add(offset as u64);
        let page_size = self.page_size(start, len).ok_or(EINVAL)?;

        points::REGISTER.check()?;
        let mut sg = bindings::scatterlist::default();
        // SAFETY: `sg` is ours; the call initialises it as a list of one mapped segment.
        unsafe { bindings::sg_one_mapped(&mut sg, start, sg_len) };
        // SAFETY: By the type invariants the region is valid, and no work request uses it while it
        // is free. The list has one segment, mapped for this device.
        let n = unsafe { bindings::ib_map_mr_sg(self.as_ptr(), &mut sg, 1, null_mut(), page_size) };
        if n < 0 {
            return Err(Error::from_errno(n));
        }
        let mask = u64::from(page_size) - 1;
        // SAFETY: By the type invariants the region is ours, and free: no other code uses it.
        let raw = unsafe { &mut *self.as_ptr() };
        if n != 1 || raw.length != len as u64 {
            return Err(EINVAL);
        }
        raw.iova = (origin & !mask) | (start & mask);
        self.mapped(region.clone(), offset..end);
        Ok(())
    }

    /// Describes all of `runs` under a new key; the region keeps them. Each run but the first
    /// begins on a page of 2^`page_shift` bytes, and each but the last ends on one. Otherwise as
    /// [`Mr::map`].
    ///
    /// # Errors
    ///
    /// As [`Mr::map`]; `EINVAL` also for runs that do not lie so.
    pub(crate) fn map_runs<S: RunSource + Send + Sync + 'static>(
        &mut self,
        runs: Arc<DmaRuns<S>>,
        page_shift: u32,
        origin: u64,
    ) -> Result {
        if self.state.load(Acquire) != FREE {
            return Err(EBUSY);
        }
        if !Arc::ptr_eq(runs.pd(), &self.pd) {
            return Err(EINVAL);
        }
        let page_size = 1_u32.checked_shl(page_shift).ok_or(EINVAL)?;
        if self.pd.device().attrs().page_size_cap & u64::from(page_size) == 0 {
            return Err(EINVAL);
        }
        points::REGISTER.check()?;
        let pieces = runs.pieces();
        let count = u32::try_from(pieces.len()).map_err(|_| EINVAL)?;
        let mut list = KVec::with_capacity(pieces.len(), GFP_KERNEL)?;
        for _ in 0..count {
            list.push(bindings::scatterlist::default(), GFP_KERNEL)?;
        }
        let first = list.as_mut_ptr();
        let (mut start, mut bytes) = (0, 0);
        for (i, (addr, len)) in pieces.enumerate() {
            let sg_len = u32::try_from(len).map_err(|_| EINVAL)?;
            if i == 0 {
                start = addr;
            }
            bytes += len as u64;
            // SAFETY: The list has `count` elements, and `i` is less.
            unsafe { bindings::sg_set_mapped(first, count, i as u32, addr, sg_len) };
        }
        // SAFETY: By the type invariants the region is valid, and no work request uses it while it
        // is free. The list has `count` segments, mapped for this device.
        let n = unsafe {
            bindings::ib_map_mr_sg(self.as_ptr(), first, count as i32, null_mut(), page_size)
        };
        if n < 0 {
            return Err(Error::from_errno(n));
        }
        // SAFETY: By the type invariants the region is ours, and free: no other code uses it.
        let raw = unsafe { &mut *self.as_ptr() };
        if n as u32 != count || raw.length != bytes {
            return Err(EINVAL);
        }
        let mask = u64::from(page_size) - 1;
        raw.iova = (origin & !mask) | (start & mask);
        self.mapped(runs, 0..bytes as usize);
        Ok(())
    }

    /// The region was mapped just now. It gets a new key with each registration: a leaked key is
    /// worthless after the next registration, and does not tell the next key.
    fn mapped(&mut self, region: Arc<dyn Mapped>, span: Range<usize>) {
        let mut key = random_u64() as u8;
        while self.had(key) && self.registrations() < REGISTRATIONS {
            key = key.wrapping_add(1);
        }
        self.keys[usize::from(key / 64)] |= 1 << (key % 64);
        // SAFETY: By the type invariants the region is ours, and free: no other code uses it.
        unsafe { bindings::ib_update_fast_reg_key(self.as_ptr(), key) };
        // INVARIANT: The caller has just mapped it.
        self.region = Some(region);
        self.span = span;
        self.state.store(MAPPED, Release);
    }

    fn had(&self, key: u8) -> bool {
        self.keys[usize::from(key / 64)] & 1 << (key % 64) != 0
    }

    /// How often it was mapped; 0: it is new.
    pub(crate) fn registrations(&self) -> u32 {
        self.keys.iter().map(|part| part.count_ones()).sum()
    }

    /// Whether a peer may have access.
    pub(crate) fn is_posted(&self) -> bool {
        self.state.load(Acquire) == POSTED
    }

    /// An [invalidation](super::qp::SendOp::Invalidate) of the region has completed with success,
    /// and no access of the peer's that had begun before goes on
    /// ([`Device::invalidation_is_final`](super::device::Device::invalidation_is_final), or the
    /// caller knows).
    pub(crate) fn invalidated(&self) {
        let _ = self.state.cmpxchg(POSTED, INVALIDATED, Full);
    }

    /// Lets the memory go, so that the region can describe another one. Returns whether it can: not
    /// if the peer may have access, or if one of its keys would be used again.
    pub(super) fn recycle(&mut self) -> bool {
        let state = self.state.load(Acquire);
        if !matches!(state, FREE | MAPPED | INVALIDATED) || self.registrations() >= REGISTRATIONS {
            return false;
        }
        // INVARIANT: It is free.
        self.state.store(FREE, Release);
        self.region = None;
        self.span = 0..0;
        true
    }

    /// The smallest page size of the device for which `len` bytes from `start` fit.
    fn page_size(&self, start: u64, len: usize) -> Option<u32> {
        let cap = self.pd.device().attrs().page_size_cap;
        let last = start.checked_add(len as u64)?.checked_sub(1)?;
        (bindings::PAGE_SHIFT..31)
            .filter(|shift| cap & (1 << shift) != 0)
            .find(|shift| (last >> shift) - (start >> shift) < u64::from(self.max_pages))
            .map(|shift| 1 << shift)
    }

    /// Whether the region is there. It stays for as long as `self` is borrowed.
    fn exists(&self) -> bool {
        self.state.load(Relaxed) != ENDED
    }

    /// The key for the peer, of this registration; 0 once it was deregistered.
    pub(crate) fn rkey(&self) -> u32 {
        if !self.exists() {
            return 0;
        }
        // SAFETY: By the type invariants the region is valid; the key changes only by `&mut self`.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The address of the first byte, for the peer; 0 once it was deregistered.
    pub(crate) fn iova(&self) -> u64 {
        if !self.exists() {
            return 0;
        }
        // SAFETY: By the type invariants the region is valid; the address changes only by `&mut
        // self` (Soft-RoCE writes the same value to it when it registers).
        unsafe { (*self.as_ptr()).iova }
    }

    /// Takes the access away. Sleeps.
    ///
    /// # Errors
    ///
    /// The device's. The peer may still have access then, and have it for ever: the memory must
    /// never be used for anything else. It does not go back to the kernel, and stays mapped.
    pub(crate) fn deregister(&mut self) -> Result {
        let before = self.state.xchg(ENDED, Full);
        if before == ENDED {
            return Ok(());
        }
        // INVARIANT: The state has just become `ENDED`, and `&mut` excludes other users.
        // SAFETY: By the type invariants the region was ours.
        let ret = unsafe { bindings::ib_dereg_mr_user(self.as_ptr(), null_mut()) };
        let ended = to_result(ret);
        if before != POSTED {
            // The peer has never had access.
            return Ok(());
        }
        ended
            .and_then(|()| points::DEREGISTER.check_alone())
            .inspect_err(|e| {
                let Range { start, end } = self.span;
                pr_err!(
                    "{}: deregistering {} bytes has failed ({}): they are not used again\n",
                    self.pd.device().name(),
                    end - start,
                    e.to_errno()
                );
                LOST.fetch_add((end - start) as u64, Relaxed);
                if let Some(region) = &self.region {
                    region.keep_for_ever(start, end - start);
                }
            })
    }

    /// A REG is about to be posted: takes the region from mapped to posted.
    pub(super) fn begin_post(&self) -> Result {
        match self.state.cmpxchg(MAPPED, POSTED, Full) {
            Ok(_) => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }

    /// The REG was not taken after all.
    pub(super) fn undo_post(&self) {
        self.state.store(MAPPED, Release);
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // An owner that uses the memory again has called it, and knows the result.
        let _ = self.deregister();
    }
}
