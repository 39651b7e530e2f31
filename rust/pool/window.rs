// SPDX-License-Identifier: GPL-2.0

//! A window: pages of a pool that one channel's peer may write into, and their registration.
//!
//! A program may map the whole window through a ring; then the window stays until the mapping is
//! removed, also if the channel ends earlier. Or single pages are mapped into the program; they
//! stay with it until their last reference is gone. Any context, where not said otherwise.

#![deny(unsafe_code)]

use core::ops::Range;

use kernel::page::{PAGE_SHIFT, PAGE_SIZE};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::{msecs_to_jiffies, Jiffies};

use super::cache::Cache;
use super::device::Verbs;
use super::extent::Extent;
use super::lessee::KeyHolder;
use super::reserve::Reserved;
use super::Pool;
use crate::ib::mr::Mr;
use crate::kern::area::Area;
use crate::kern::contig::{ContigPages, Payload};
use crate::kern::sock::pipe::Pipe;
use crate::kern::{task, vma};
use crate::proto::ChanId;

/// A new window is not revoked for this long before the first write into it, in milliseconds.
const FRESH_MS: u32 = 1000;

/// Tells whether the pages of a window are the pool's again, without a reference to the window.
pub(crate) struct Gone(Atomic<bool>);

impl Gone {
    /// Whether they are.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// A lease of a part of a pool to a channel, and its registration.
#[pin_data]
pub(crate) struct Window {
    pool: Arc<Pool>,
    extent: Arc<Extent>,
    /// Pages of the extent's memory.
    pages: Range<usize>,
    leased: Atomic<bool>,
    /// Programs that map it, work requests that name its registration ([`WindowUse`]), and copies
    /// out of it that are in progress ([`Reading`]).
    users: Atomic<i32>,
    /// A ring shows the data in it.
    ring: Atomic<bool>,
    /// When data was last written into it, or it was last offered to the peer, in jiffies.
    written: Atomic<usize>,
    /// Nothing was written into it yet.
    fresh: Atomic<bool>,
    /// Its peer was asked to give it back.
    revoking: Atomic<bool>,
    /// Whether its pages count in the budget.
    counts: Atomic<bool>,
    /// Pages of it were mapped into a program, which may still have some of them.
    mapped: Atomic<bool>,
    gone: Arc<Gone>,
    /// Main memory that is promised to the data that arrives in it, also after that data was moved
    /// out.
    promise: Arc<Reserved>,
    /// When its link was asked to make the remote key invalid, in nanoseconds of the monotonic
    /// clock; 0: it was not.
    invalidating: Atomic<u64>,
    /// Its registration could not be removed: its peer may write into it for ever.
    lost: Atomic<bool>,
    /// The channel that leases it.
    #[pin]
    user: SpinLock<ChanId>,
    /// The link whose peer has its remote key.
    #[pin]
    holder: SpinLock<Option<Arc<dyn KeyHolder>>>,
    #[pin]
    mr: SpinLock<Option<Arc<Mr>>>,
}

impl Window {
    /// `pages` of the extent's memory, under `mr`.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        extent: Arc<Extent>,
        pages: Range<usize>,
        mr: Arc<Mr>,
        promise: Reserved,
    ) -> Result<Arc<Self>> {
        let gone = Arc::new(Gone(Atomic::new(false)), GFP_KERNEL)?;
        let promise = Arc::new(promise, GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                pool: pool.clone(),
                extent,
                pages,
                leased: Atomic::new(true),
                users: Atomic::new(0),
                ring: Atomic::new(false),
                written: Atomic::new(task::jiffies() as usize),
                fresh: Atomic::new(true),
                revoking: Atomic::new(false),
                counts: Atomic::new(true),
                mapped: Atomic::new(false),
                gone,
                promise,
                invalidating: Atomic::new(0),
                lost: Atomic::new(false),
                holder <- new_spinlock!(None, "zrs_window::holder"),
                user <- new_spinlock!(ChanId::default(), "zrs_window::user"),
                mr <- new_spinlock!(Some(mr), "zrs_window::mr"),
            }),
            GFP_KERNEL,
        )
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// Drops the record of unread data in it: it will not be read.
    pub(crate) fn forget(&self) {
        self.extent.forget(self.pages.clone());
    }

    /// Returns its pages to the pool, zeroed. Sleeps.
    pub(crate) fn free(&self) {
        let (at, len) = (self.at(), self.bytes());
        let _ = self.extent.memory().zero(at, len);
        if let Some(region) = self.extent.region() {
            let _ = region.sync_for_device(at, len);
        }
        self.extent.free(self.pages.start, self.pages.len());
    }

    /// Removes its pages from the budget. Any context.
    pub(crate) fn give_pages(&self) {
        if self.counts.xchg(false, Full) {
            self.pool.cache.give_window(self.pages.len());
        }
    }

    /// Pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The promise of main memory for the data that arrived in it.
    pub(crate) fn promise(&self) -> Arc<Reserved> {
        self.promise.clone()
    }

    /// The cache of its pool.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.pool.cache
    }

    /// Records that `len` bytes, which arrived at `off` at the time `born`, were read or moved.
    pub(crate) fn left(&self, off: u32, len: u32, born: u64) {
        self.extent.left(self.at() + off as usize, len, born);
    }

    /// Tells the pool that data was moved out of it: it may be revoked now.
    pub(crate) fn emptied(&self) {
        self.pool.look_after();
    }

    /// Where it begins in the pool's memory, in bytes.
    pub(crate) fn at(&self) -> usize {
        self.pages.start << PAGE_SHIFT
    }

    /// The registration, while the device is there.
    pub(crate) fn mr(&self) -> Option<Arc<Mr>> {
        self.mr.lock().clone()
    }

    /// The channel that leases it, or has leased it.
    pub(crate) fn user(&self) -> ChanId {
        *self.user.lock()
    }

    /// Leases it to channel `user`, whose peer gets its remote key by `holder`.
    pub(crate) fn set_user(&self, user: ChanId, holder: Option<Arc<dyn KeyHolder>>) {
        *self.user.lock() = user;
        *self.holder.lock() = holder;
    }

    /// Whether it is in use: a program maps it, a work request names its registration, or data is
    /// being copied out of it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.users.load(Acquire) != 0
    }

    /// The channel that leases it, if nothing was written into it for `least` jiffies, no ring
    /// shows it, and it is not in use.
    pub(crate) fn idle_user(&self, least: Jiffies) -> Option<ChanId> {
        // In this order: a user that ends stores `written` before it is removed from `users`, and
        // data may arrive between the two loads.
        let free = self.leased.load(Relaxed) && !self.is_in_use();
        let written = self.written.load(Acquire) as Jiffies;
        let idle = task::jiffies().wrapping_sub(written);
        // A peer that asked for a window gets to use it, on a slow link too.
        let least = match self.fresh.load(Relaxed) {
            true => least.max(msecs_to_jiffies(FRESH_MS)),
            false => least,
        };
        (free && !self.has_ring() && idle >= least).then(|| *self.user.lock())
    }

    /// Sets whether a ring shows the data in it.
    pub(crate) fn set_ring(&self, ring: bool) {
        self.ring.store(ring, Relaxed);
    }

    /// Its peer was asked to give it back.
    pub(crate) fn set_revoking(&self) {
        self.revoking.store(true, Relaxed);
    }

    /// Whether its peer was asked to give it back.
    pub(crate) fn is_revoking(&self) -> bool {
        self.revoking.load(Relaxed)
    }

    /// Whether a ring shows the data in it.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.load(Relaxed)
    }

    /// Asks whether a ring may show the data in it: false if rings have used up their share of the
    /// pool. Sleeps.
    pub(crate) fn admit_ring(self: &Arc<Self>) -> bool {
        self.pool.admit_ring(Some(self))
    }

    /// The channel needs it no more. It goes back to the pool once it is not in use either.
    pub(crate) fn retire(&self) {
        self.leased.store(false, Release);
        self.pool.look_after();
    }

    pub(crate) fn is_unused(&self) -> bool {
        !self.leased.load(Acquire) && !self.is_in_use()
    }

    /// Whether no mapped page of it has a reference any more.
    pub(crate) fn is_whole(&self) -> bool {
        !self.mapped.load(Acquire) || self.extent.memory().is_sole_owner(self.pages.clone())
    }

    /// A flag that is set when its pages are the pool's again.
    pub(crate) fn gone(&self) -> Arc<Gone> {
        self.gone.clone()
    }

    /// Sets the flag of [`Self::gone`]: the pool takes its pages back.
    pub(crate) fn set_gone(&self) {
        self.gone.0.store(true, Release);
    }

    /// Whether pages of it may be mapped: false if other programs have used up the mappable part of
    /// the pool. Sleeps.
    pub(crate) fn may_map(self: &Arc<Self>) -> bool {
        self.mapped.load(Relaxed) || self.pool.admit_mapped(self)
    }

    /// Marks that pages of it may be mapped from now on.
    pub(crate) fn set_mapped(&self) {
        self.mapped.store(true, Release);
    }

    /// Whether pages of it may have been mapped.
    pub(crate) fn has_mapped(&self) -> bool {
        self.mapped.load(Acquire)
    }

    /// Begins to make the remote key of an unused window invalid, once, if the peer has it and that
    /// is as good on this device as to deregister the region. The caller gives the result to
    /// [`KeyHolder::invalidate`]. Under the pool's `windows`.
    pub(crate) fn begin_invalidation(self: &Arc<Self>) -> Option<(Arc<dyn KeyHolder>, WindowUse)> {
        if self.invalidating.load(Relaxed) != 0 {
            return None;
        }
        let known = |mr: &Arc<Mr>| mr.is_posted() && mr.pd().device().invalidation_is_final();
        let known = self.mr.lock().as_ref().is_some_and(known);
        let holder = self.holder.lock().clone().filter(|_| known)?;
        let key = WindowUse::new(self)?;
        self.invalidating.store(task::now_ns().max(1), Relaxed);
        Some((holder, key))
    }

    /// For how long its remote key is being made invalid, in nanoseconds.
    pub(crate) fn invalidating(&self) -> Option<u64> {
        let since = self.invalidating.load(Relaxed);
        let under_way = since != 0 && self.is_in_use();
        under_way.then(|| task::now_ns().saturating_sub(since))
    }

    /// Its link, whose queue does not come to the invalidation, and which has to end. Once.
    pub(crate) fn late_holder(&self) -> Option<Arc<dyn KeyHolder>> {
        self.holder.lock().take()
    }

    /// Removes the registration, so that the peer cannot write any more; a region whose key is
    /// invalid goes to the device's pool. If that fails, the link to the peer ends, and the window
    /// [is lost](Self::is_lost). Only while the window is unused; if its device is being removed
    /// (`verbs` is `None`), also while a work request names the registration, which goes with that
    /// request then. Sleeps.
    pub(crate) fn deregister(&self, verbs: Option<&Verbs>) {
        // Not under the lock: both sleep.
        let Some(mr) = self.mr.lock().take() else {
            return;
        };
        let holder = self.holder.lock().take();
        let removed = Arc::into_unique_or_drop(mr).map(|mr| {
            let mut mr = Pin::into_inner(mr);
            match verbs {
                Some(verbs) => verbs.mrs.give(mr),
                None => mr.deregister(),
            }
        });
        if let Some(Err(_)) = removed {
            self.lost.store(true, Release);
            if let Some(holder) = holder {
                holder.key_stays("the device does not take it back");
            }
        }
    }

    /// Whether its registration could not be removed. Then its pages must not be used again.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// Makes the `len` bytes that the device wrote at `off` for channel `user` visible to the CPU,
    /// before they are announced. Returns the time of arrival, in nanoseconds of the monotonic
    /// clock.
    pub(crate) fn arrived(&self, off: usize, len: usize, user: ChanId) -> u64 {
        self.written.store(task::jiffies() as usize, Release);
        self.fresh.store(false, Relaxed);
        if let Some(region) = self.extent.region() {
            // Cannot fail: the channel has checked the range.
            let _ = region.sync_for_cpu(self.at() + off, len);
        }
        self.extent.arrived(self.at() + off, len, user)
    }

    /// The pages of the `len` bytes at `off`, counted from the start of the pool's memory.
    fn touched(&self, off: usize, len: usize) -> Option<Range<usize>> {
        let end = off.checked_add(len).filter(|end| *end <= self.bytes())?;
        let first = self.pages.start;
        Some(first + (off >> PAGE_SHIFT)..first + end.div_ceil(PAGE_SIZE))
    }

    /// Maps the pages of `len` bytes at `off`, both multiples of the page size, into the program at
    /// `addr` in `area`. Only after [`Self::may_map`]. Returns the number of bytes. Sleeps. Errors:
    /// as [`Area::map_pages`].
    pub(crate) fn map_to_area(
        &self,
        off: usize,
        len: usize,
        area: &Arc<Area>,
        addr: usize,
    ) -> Result<usize> {
        let pages = self.touched(off, len).ok_or(EINVAL)?;
        let n = area.map_pages(addr, self.extent.memory(), pages)?;
        Ok(n << PAGE_SHIFT)
    }

    /// Adds the pages of `len` bytes at `off` to a pipe, as far as there is room in it. Only after
    /// [`Self::may_map`]. Returns the number of bytes. Errors: as [`Pipe::add_pages`].
    pub(crate) fn map_to_pipe(&self, off: usize, len: usize, pipe: &mut Pipe<'_>) -> Result<usize> {
        self.touched(off, len).ok_or(EINVAL)?;
        pipe.add_pages(self.extent.memory(), self.at() + off, len)
    }

    /// Whether the pages of the `len` bytes at `off` have no other reference any more.
    pub(crate) fn is_back(&self, off: u32, len: u32) -> bool {
        let pages = self.touched(off as usize, len as usize);
        pages.is_some_and(|pages| self.extent.memory().is_sole_owner(pages))
    }

    /// The `len` bytes at `off`. `EINVAL` if they are not all inside.
    pub(crate) fn payload(&self, off: usize, len: usize) -> Result<Payload<'_>> {
        self.touched(off, len).ok_or(EINVAL)?;
        Ok(Payload::Pool(self.extent.memory(), self.at() + off, len))
    }
}

impl vma::MappedOwner for Window {
    fn mapped(&self) {
        self.users.fetch_add(1, Full);
    }

    fn unmapped(&self) {
        if self.users.fetch_sub(1, Full) == 1 {
            self.pool.look_after();
        }
    }
}

impl vma::Window for Window {
    fn memory(&self) -> &ContigPages {
        self.extent.memory()
    }

    fn range(&self) -> Range<usize> {
        self.pages.clone()
    }
}

/// Keeps a window from returning to the pool while data is copied out of it.
pub(crate) struct Reading(Arc<Window>);

impl Reading {
    /// Only while the socket has the window: called under the socket's `inner`.
    pub(crate) fn new(window: &Arc<Window>) -> Self {
        vma::MappedOwner::mapped(&**window);
        Self(window.clone())
    }
}

impl core::ops::Deref for Reading {
    type Target = Arc<Window>;

    fn deref(&self) -> &Arc<Window> {
        &self.0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        vma::MappedOwner::unmapped(&*self.0);
    }
}

/// Keeps a window from returning to the pool while a work request names its registration.
pub(crate) struct WindowUse {
    // Dropped before `window`: a window that is not in use is the only owner of its registration.
    mr: Arc<Mr>,
    window: Written,
}

/// As [`Reading`], while the peer may write; the time of its last write is noted at the end.
struct Written(Reading);

impl WindowUse {
    /// `None` when the device is gone.
    pub(crate) fn new(window: &Arc<Window>) -> Option<Self> {
        let window = Written(Reading::new(window));
        let mr = window.0.mr()?;
        Some(Self { mr, window })
    }

    /// The registration.
    pub(crate) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// The peer has no access any more, as [`Mr::invalidated`].
    pub(crate) fn invalidated(&self) {
        self.mr.invalidated();
    }

    /// The size, address and key that the peer needs to use it.
    pub(crate) fn terms(&self) -> (u32, u64, u32) {
        (self.window.0.bytes() as u32, self.mr.iova(), self.mr.rkey())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let now = task::jiffies() as usize;
        self.0.written.store(now, Release);
    }
}
