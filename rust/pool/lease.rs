// SPDX-License-Identifier: GPL-2.0

//! Leases of a pool's windows: how a channel gets a window, keeps it, and gives it back when there
//! are too few.
//!
//! A channel gets a window when its peer has bulk data for it, or when its program makes a ring,
//! and keeps it. If another channel requests a window and none is free, the window of a channel
//! that has not used it for a while (`window_idle_ms`), and that has no unread data in it, is
//! revoked; the request waits for that, for a limited time. If no window can be revoked, the peer
//! sends without one and asks again later. Windows that rings show are not revoked, so rings may
//! have only a part of the pool. While requests wait, unread data may escape to main memory
//! (`cache.rs`), so that a window that holds nothing else can be revoked. A busy channel whose
//! window is small, because memory was scarce, has it revoked once a much larger one is available:
//! its next data then waits only until its program has read the small window, not for other
//! channels.
//!
//! A peer's request arrives in the thread that drains a link. It only notes it: the pool's worker
//! looks for memory, registers it, and answers.
//!
//! Locks: see `pool.rs`. `waiters` and `requests` are mutexes like `windows`, never held together
//! with it or with each other.

#![deny(unsafe_code)]

use core::ops::Range;

use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::cache::Cache;
use super::device::Verbs;
use super::extent::Extent;
use super::lessee::{same, KeyHolder, Lessee};
use super::reserve::Reserved;
use super::window::{Window, WindowUse};
use super::Pool;
use crate::ib::dma::{Direction, DmaRegion};
use crate::kern::contig::ContigPages;
use crate::kern::fault;
use crate::kern::task::{self, now_ns, random_u64};
use crate::params;
use crate::proto::channel;
use crate::stats::STATS;
use crate::uapi::ZRS_ESCAPE_NEVER;

/// How long the request of a peer waits for a window that another channel has to give back, in
/// nanoseconds.
const PEER_WAIT_NS: u64 = 200_000_000;

/// How long an invalidation waits for what the link has sent before it, in nanoseconds, if its
/// queue pair has not failed before; then the link ends. A peer that takes no messages holds it up.
const KEY_WAIT_NS: u64 = 10_000_000_000;

/// [`KEY_WAIT_NS`], or longer if a queue pair waits longer for a peer that does not answer.
fn key_wait_ns() -> u64 {
    KEY_WAIT_NS.max(u64::from(params::give_up_ms()) * 1_000_000)
}

/// The smallest window, in pages.
const LEAST_PAGES: usize = channel::WINDOW_MIN as usize >> PAGE_SHIFT;

/// The most that a pool grows by at once, in pages.
const GROW_PAGES: usize = 16 << (20 - PAGE_SHIFT);

/// Delay until the next attempt to grow when no memory was found, in milliseconds.
const GROW_AGAIN_MS: u32 = 1000;

/// The side that requests a window for a socket; both may.
#[derive(Clone, Copy)]
pub(crate) struct Requester {
    /// The peer, which waits for the answer.
    pub(crate) peer: bool,
    /// The program, for a ring.
    pub(crate) ring: bool,
}

impl Requester {
    pub(crate) const PEER: Self = Self {
        peer: true,
        ring: false,
    };
    pub(crate) const RING: Self = Self {
        peer: false,
        ring: true,
    };
}

/// The windows that may be revoked.
#[derive(Clone, Copy, PartialEq)]
enum RevokePolicy {
    /// Idle windows without unread data.
    Unused,
    /// Of these, windows from which data had to be moved to main memory.
    Stopped,
    /// Windows in use, too: they are returned when their data was read.
    Any,
    /// Windows in use of at most this many pages.
    Small(usize),
}

/// An unused window, on its way back to the pool.
enum Unused {
    /// The link is to make its remote key invalid.
    Valid(Arc<dyn KeyHolder>, WindowUse),
    /// The peer cannot write into it, and no program has its pages.
    Ended(Arc<Window>),
}

/// The request of a socket for a window, while there is none.
#[derive(Clone)]
pub(crate) struct WindowWaiter {
    lessee: Arc<dyn Lessee>,
    requester: Requester,
    /// When the request expires, in nanoseconds of the monotonic clock.
    until: u64,
}

impl WindowWaiter {
    fn is_of(&self, lessee: &Arc<dyn Lessee>) -> bool {
        same(&self.lessee, lessee)
    }

    /// Whether it waits for other channels, and not for its own program to read the socket's last
    /// window.
    fn is_due(&self) -> bool {
        !self.lessee.reads_window() || now_ns() >= self.until
    }

    /// Merges the request into one that the socket has pending already; false if it has none.
    fn join(
        waiters: &mut KVec<Self>,
        lessee: &Arc<dyn Lessee>,
        requester: Requester,
        until: u64,
    ) -> bool {
        let Some(waiter) = waiters.iter_mut().find(|w| w.is_of(lessee)) else {
            return false;
        };
        waiter.requester.peer |= requester.peer;
        waiter.requester.ring |= requester.ring;
        waiter.until = waiter.until.max(until);
        true
    }
}

impl Pool {
    /// Pages of the largest window.
    fn most_pages(&self) -> usize {
        (Cache::window_bytes(self.rate()) >> PAGE_SHIFT).max(LEAST_PAGES)
    }

    /// Leases a window of at most `most` pages. Sleeps. ENOMEM when no memory is left, EIO when the
    /// device is gone, and the errors of registration.
    fn lease(self: &Arc<Self>, most: usize) -> Result<Arc<Window>> {
        let verbs = self.verbs().ok_or(EIO)?;
        let mut count = self.cache.take_window(LEAST_PAGES, most);
        if count.is_none() {
            // The worker may not have reaped unused windows yet.
            self.reap();
            count = self.cache.take_window(LEAST_PAGES, most);
        }
        let taken = count.ok_or(ENOMEM)?;
        let window = self.place(&verbs, taken);
        let used = window.as_ref().map_or(0, |window| window.pages());
        self.cache.give_window(taken - used);
        if self.cache.is_crowded() {
            self.cache.press();
        }
        window
    }

    /// A window of `count` pages, or fewer if there are not that many in a row. Sleeps. ENOMEM.
    fn place(self: &Arc<Self>, verbs: &Verbs, count: usize) -> Result<Arc<Window>> {
        let mut count = count;
        let mut found = self.find(count).or_else(|| self.grow(verbs, count));
        while found.is_none() && count / 2 >= LEAST_PAGES {
            count /= 2;
            found = self.find(count);
        }
        let (extent, page) = found.ok_or(ENOMEM)?;
        // Twice the size: the window may be filled once more while its former data is in main
        // memory.
        let promise = Reserved::for_window((2 * count << PAGE_SHIFT) as u64);
        let window = promise
            .and_then(|promise| self.register(verbs, extent.clone(), page..page + count, promise));
        if window.is_err() {
            extent.free(page, count);
        }
        window
    }

    /// `count` pages in a row.
    fn find(&self, count: usize) -> Option<(Arc<Extent>, usize)> {
        let extents = self.extents.lock();
        extents
            .iter()
            .find_map(|extent| Some((extent.clone(), extent.lease(count)?)))
    }

    /// Adds an extent if the pool has less memory than it may use, and leases `count` pages of it.
    /// Sleeps.
    fn grow(&self, verbs: &Verbs, count: usize) -> Option<(Arc<Extent>, usize)> {
        let mut not_before = self.growing.lock();
        let have: usize = self.extents.lock().iter().map(|e| e.leasable().0).sum();
        let all = have + self.layout.first_window;
        let mut pages = self.cache.pages().saturating_sub(all).min(GROW_PAGES);
        if pages < count {
            // Another thread may have added one.
            return self.find(count);
        }
        let now = task::jiffies();
        if now.wrapping_sub(*not_before) as isize <= 0 {
            return None;
        }
        let numa_node = verbs.pd.device().numa_node();
        let mem = loop {
            match ContigPages::new(pages, numa_node) {
                Ok(mem) => break mem,
                Err(_) if pages / 2 >= count => pages /= 2,
                Err(_) => {
                    *not_before = now.wrapping_add(msecs_to_jiffies(GROW_AGAIN_MS));
                    return None;
                }
            }
        };
        let mem = Arc::new(mem, GFP_KERNEL).ok()?;
        let region = DmaRegion::map(&verbs.pd, mem.clone(), Direction::FromDevice).ok()?;
        let region = Arc::new(region, GFP_KERNEL).ok()?;
        let extent = Extent::new(mem, region, 0, &self.cache).ok()?;
        let page = extent.lease(count)?;
        self.extents.lock().push(extent.clone(), GFP_KERNEL).ok()?;
        if self.verbs().is_none() {
            // The device was removed, and its removal did not see this extent.
            extent.device_gone();
            return None;
        }
        Some((extent, page))
    }

    /// Frees extents without leased pages, if the pool has more memory than it may use. The first
    /// one stays, for the blocks. Sleeps.
    fn trim(&self) {
        loop {
            let extent = {
                let mut extents = self.extents.lock();
                let have: usize = extents.iter().map(|e| e.leasable().0).sum();
                if have + self.layout.first_window <= self.cache.pages() {
                    return;
                }
                let unused = extents.iter().skip(1).position(|e| e.leasable().1 == 0);
                match unused {
                    Some(at) => extents.remove(at + 1),
                    None => return,
                }
            };
            // Other holders of the extent do not use its mapping.
            if let Ok(extent) = extent {
                extent.device_gone();
            }
        }
    }

    fn register(
        self: &Arc<Self>,
        verbs: &Verbs,
        extent: Arc<Extent>,
        pages: Range<usize>,
        promise: Reserved,
    ) -> Result<Arc<Window>> {
        let region = extent.region().ok_or(EIO)?;
        let count = pages.len();
        // Larger windows than the device can register page by page take larger pages.
        let most = verbs.pd.device().attrs().max_fast_reg_pages;
        let mut mr = verbs.mrs.take((count as u32).min(most))?;
        STATS.resources_made.add(u64::from(mr.registrations() == 0));
        // The peer's addresses begin at a random origin: they do not reveal where the memory is,
        // and a third party that guesses another peer's key has to guess the origin as well.
        let origin = random_u64() >> 2;
        mr.map(
            &region,
            pages.start << PAGE_SHIFT,
            count << PAGE_SHIFT,
            origin,
        )?;
        let window = Window::new(self, extent, pages, mr.into(), promise)?;
        self.windows.lock().push(window.clone(), GFP_KERNEL)?;
        if self.verbs().is_none() {
            // The device was removed, and its removal did not see this registration. The caller
            // frees the pages.
            self.windows.lock().retain(|w| !Arc::ptr_eq(w, &window));
            window.deregister(None);
            return Err(EIO);
        }
        Ok(window)
    }

    /// Leases a window for the lessee's channel and offers it to the peer. If the peer sends no
    /// more, the window serves only the program's ring, which needs one in any case. Sleeps.
    ///
    /// Returns whether the channel took it: it may have a window already, or no use for one. `None`
    /// if there is no window.
    fn grant(self: &Arc<Self>, lessee: &Arc<dyn Lessee>, requester: Requester) -> Option<bool> {
        let most = self.most_pages().min(lessee.max_window() >> PAGE_SHIFT);
        let window = self.lease(most).ok()?;
        let Some(terms) = WindowUse::new(&window) else {
            window.retire();
            return None;
        };
        let kept = lessee
            .clone()
            .take_window(&window, terms.terms(), requester);
        drop(terms);
        if !kept {
            window.retire();
        }
        Some(kept)
    }

    /// The peer of the lessee's channel requests a window. The pool's worker handles the request,
    /// and [`Lessee::window_answered`] reports the result. Sleeps, but waits for a device only if
    /// there is no memory to note the request.
    pub(crate) fn request_window(self: &Arc<Self>, lessee: Arc<dyn Lessee>) {
        let request = WindowWaiter {
            lessee,
            requester: Requester::PEER,
            until: now_ns().saturating_add(PEER_WAIT_NS),
        };
        let noted = {
            let mut requests = self.requests.lock();
            // A peer may repeat its request; an honest one waits for the answer.
            requests.iter().any(|other| other.is_of(&request.lessee))
                || requests.push(request.clone(), GFP_KERNEL).is_ok()
        };
        if noted {
            self.look_after();
        } else {
            self.handle(&request);
        }
    }

    /// Handles the requests of peers. Sleeps.
    fn handle_requests(self: &Arc<Self>) {
        let requests = core::mem::take(&mut *self.requests.lock());
        for request in requests {
            self.handle(&request);
        }
    }

    fn handle(self: &Arc<Self>, request: &WindowWaiter) {
        let WindowWaiter {
            lessee,
            requester,
            until,
        } = request;
        let granted = self.want_window(lessee, *requester, *until);
        lessee.clone().window_answered(granted, *requester);
    }

    /// Requests a window for the lessee's channel. Returns true if it has got one, or may get one
    /// until `until`, in nanoseconds of the monotonic clock; in the latter case
    /// [`Lessee::window_answered`] reports the result. Sleeps.
    pub(crate) fn want_window(
        self: &Arc<Self>,
        lessee: &Arc<dyn Lessee>,
        requester: Requester,
        until: u64,
    ) -> bool {
        // The peer has given a window back that still holds unread data. Data that was not moved to
        // main memory is usually read soon: the request waits for that.
        let reads = requester.peer && lessee.reads_window();
        if !reads && (!lessee.lacks_window() || lessee.has_moved()) {
            if requester.peer {
                self.cache.counts.denied.add(1);
            }
            return false;
        }
        let others = {
            let mut waiters = self.waiters.lock();
            if WindowWaiter::join(&mut waiters, lessee, requester, until) {
                return true;
            }
            waiters.iter().any(WindowWaiter::is_due)
        };
        if !reads {
            // Requests that wait already come first.
            if !others {
                if let Some(kept) = self.grant(lessee, requester) {
                    return kept;
                }
            }
            let pools = self.cache.pools().unwrap_or_default();
            let asked = pools.iter().any(|pool| pool.pages_invalidating() > 0)
                || pools
                    .iter()
                    .any(|pool| pool.revoke_one(RevokePolicy::Unused));
            if !asked && !pools.iter().any(|pool| pool.may_empty_one()) {
                if !others {
                    // One may have come back meanwhile.
                    if let Some(kept) = self.grant(lessee, requester) {
                        return kept;
                    }
                }
                self.cache.counts.denied.add(1);
                return false;
            }
            self.cache.counts.waits.add(1);
        }
        let waiter = WindowWaiter {
            lessee: lessee.clone(),
            requester,
            until,
        };
        let waits = {
            let mut waiters = self.waiters.lock();
            // The link's worker and a thread of the program may be here at the same time.
            WindowWaiter::join(&mut waiters, lessee, requester, until)
                || waiters.push(waiter, GFP_KERNEL).is_ok()
        };
        if self.verbs().is_none() {
            // The device was removed, and its removal may not have seen this request.
            self.fail_waiters();
        } else if waits {
            self.pools.watch_waiters();
            if reads {
                // The data may have been read in between.
                self.look_after();
            } else {
                self.cache.press();
            }
        }
        waits
    }

    /// Revokes the window of a busy channel if the channel would now get one of twice the size; one
    /// window at a time. Sleeps.
    fn widen_one(&self) {
        let pages = self.cache.pages_for_window(LEAST_PAGES, self.most_pages());
        if let (Some(pages), false) = (pages, self.has_revoking()) {
            self.revoke_one(RevokePolicy::Small(pages / 2));
        }
    }

    /// Whether a window was revoked that the peer has not given back yet.
    fn has_revoking(&self) -> bool {
        self.windows
            .lock()
            .iter()
            .any(|w| w.is_revoking() && w.invalidating().is_none_or(|ns| ns < PEER_WAIT_NS))
    }

    /// Pages of windows that will be free soon, when their remote keys are invalid.
    fn pages_invalidating(&self) -> usize {
        let windows = self.windows.lock();
        let soon = windows
            .iter()
            .filter(|w| w.invalidating().is_some_and(|ns| ns < PEER_WAIT_NS));
        soon.map(|w| w.pages()).sum()
    }

    /// Whether a window that cannot be revoked now may be soon, once its data has escaped.
    fn may_empty_one(&self) -> bool {
        let least = msecs_to_jiffies(params::WINDOW_IDLE_MS.get());
        let idle = |window: &Arc<Window>| window.idle_user(least).is_some();
        params::ESCAPE.get() != ZRS_ESCAPE_NEVER && self.windows.lock().iter().any(idle)
    }

    /// The socket needs no window for a ring any more. Sleeps.
    pub(crate) fn withdraw_ring(&self, lessee: &Arc<dyn Lessee>) {
        let mut waiters = self.waiters.lock();
        if let Some(waiter) = waiters.iter_mut().find(|w| w.is_of(lessee)) {
            waiter.requester.ring = false;
        }
        waiters.retain(|w| w.requester.peer || w.requester.ring);
    }

    /// Revokes a window that suits `which`: the one leased longest ago. False if there is none.
    /// Sleeps.
    fn revoke_one(&self, which: RevokePolicy) -> bool {
        let idle = msecs_to_jiffies(params::WINDOW_IDLE_MS.get());
        let least = match which {
            RevokePolicy::Any | RevokePolicy::Small(_) => None,
            RevokePolicy::Unused | RevokePolicy::Stopped => Some(idle),
        };
        let suits = |window: &Window| match which {
            RevokePolicy::Small(pages) => {
                window.pages() <= pages && window.idle_user(idle).is_none()
            }
            _ => true,
        };
        let mut from = 0;
        loop {
            let next = {
                let windows = self.windows.lock();
                let mut rest = windows.iter().enumerate().skip(from);
                rest.find_map(|(n, w)| {
                    let user = w.idle_user(least.unwrap_or(0)).filter(|_| suits(w))?;
                    Some((n, w.clone(), user))
                })
            };
            let Some((n, window, user)) = next else {
                return false;
            };
            from = n + 1;
            let lessee = self.pools.lessee(user).filter(|lessee| {
                let moved = || lessee.has_moved();
                match which {
                    RevokePolicy::Stopped => moved(),
                    // Otherwise its next window would have to wait until that is read, or would be
                    // no larger.
                    RevokePolicy::Small(_) => {
                        !moved() && lessee.max_window() >> PAGE_SHIFT >= 2 * window.pages()
                    }
                    RevokePolicy::Unused | RevokePolicy::Any => true,
                }
            });
            if lessee.is_some_and(|lessee| lessee.revoke_window(&window, least)) {
                window.set_revoking();
                STATS.windows_revoked.add(1);
                return true;
            }
        }
    }

    /// Whether a request waits for a window, or more memory is in use than the budget allows.
    pub(crate) fn wants_room(&self) -> bool {
        self.lacks_queue()
            || self.lacks_limit()
            || !self.waiters.lock().is_empty()
            || self.cache.over() > 0 && !self.windows.lock().is_empty()
    }

    /// Whether a request waits for a window that another channel has.
    pub(crate) fn has_window_waiters(&self) -> bool {
        self.waiters.lock().iter().any(WindowWaiter::is_due)
    }

    /// Serves the waiting requests, oldest first; expired ones are denied. Sleeps.
    fn serve_waiters(self: &Arc<Self>) {
        loop {
            let Some(waiter) = self.waiters.lock().iter().find(|w| w.is_due()).cloned() else {
                return;
            };
            let granted = match self.grant(&waiter.lessee, waiter.requester) {
                None if now_ns() < waiter.until => {
                    // Revoke another window only when no revoked one is still to come: it may be
                    // large enough.
                    let pools = self.cache.pools().unwrap_or_default();
                    let coming =
                        |pool: &Arc<Pool>| pool.has_revoking() || pool.pages_invalidating() > 0;
                    if !pools.iter().any(coming) {
                        let _ = pools
                            .iter()
                            .any(|pool| pool.revoke_one(RevokePolicy::Unused));
                    }
                    return;
                }
                granted => granted == Some(true),
            };
            if !granted {
                self.cache.counts.denied.add(1);
            }
            let mut requester = None;
            self.waiters.lock().retain(|w| {
                let this = w.is_of(&waiter.lessee);
                if this {
                    requester = Some(w.requester);
                }
                !this
            });
            match requester {
                Some(requester) => waiter.lessee.clone().window_answered(granted, requester),
                // The request was withdrawn in between: a window that only a ring needed has no use
                // now.
                None => waiter.lessee.try_release_window(),
            }
        }
    }

    /// Asks whether a ring may be made, of `window` if it is leased already: false if rings have
    /// used up their share of the windows. Sleeps.
    pub(crate) fn admit_ring(&self, window: Option<&Arc<Window>>) -> bool {
        self.admit(window, |window| window.set_ring(true))
    }

    /// Asks whether pages of `window` may be mapped: false if programs have used up their share of
    /// the windows. Sleeps.
    pub(crate) fn admit_mapped(&self, window: &Arc<Window>) -> bool {
        self.admit(Some(window), |window| window.set_mapped())
    }

    /// Whether one more window may become irrevocable; if so, marks it. A window with mapped pages
    /// counts until all of them were released and it is the pool's again.
    fn admit(&self, window: Option<&Arc<Window>>, mark: impl FnOnce(&Window)) -> bool {
        let all: usize = self.extents.lock().iter().map(|e| e.leasable().0).sum();
        let most =
            all.min(self.cache.pages_for_windows()) * params::RING_PERCENT.get() as usize / 100;
        let own = window.map_or(LEAST_PAGES, |own| own.pages());
        let windows = self.windows.lock();
        let others = |w: &&Arc<Window>| {
            let own = window.is_some_and(|own| Arc::ptr_eq(w, own));
            !own && (w.has_mapped() || w.has_ring() && !w.is_unused())
        };
        let used: usize = windows.iter().filter(others).map(|w| w.pages()).sum();
        // One is always admitted.
        let fits = used == 0 || used + own <= most;
        if let (true, Some(window)) = (fits, window) {
            mark(window);
        }
        fits
    }

    /// Whether a window is unused but for pages that a program may still have mapped, or for its
    /// remote key.
    pub(crate) fn keeps_windows(&self) -> bool {
        let windows = self.windows.lock();
        windows
            .iter()
            .any(|w| w.is_unused() || w.invalidating().is_some())
    }

    /// Denies all waiting requests: the device is being removed. Sleeps.
    pub(crate) fn fail_waiters(&self) {
        let waiters = core::mem::take(&mut *self.waiters.lock());
        for waiter in waiters {
            waiter
                .lessee
                .clone()
                .window_answered(false, waiter.requester);
        }
    }

    /// Queues the pool's worker: windows may be free, or a request waits. Any context.
    pub(crate) fn look_after(self: &Arc<Self>) {
        let _ = self.pools.queue.enqueue(self.clone());
    }

    /// Ends the links that have not made the key of an unused window invalid in time.
    fn end_late_holders(&self) {
        let wait = key_wait_ns();
        loop {
            let late = {
                let windows = self.windows.lock();
                let mut late = windows
                    .iter()
                    .filter(|w| w.invalidating().is_some_and(|ns| ns >= wait));
                late.find_map(|window| window.late_holder())
            };
            match late {
                Some(holder) => holder.key_stays("it takes no messages"),
                None => return,
            }
        }
    }

    /// What is to be done for an unused window, if for any. `verbs`: as [`Window::deregister`].
    /// Sleeps.
    fn next_unused(&self, verbs: Option<&Verbs>) -> Option<Unused> {
        let mut windows = self.windows.lock();
        for i in 0..windows.len() {
            // Each window is judged once: it may become unused at any time, and its pages are free
            // only after its registration has ended.
            let Some(window) = windows.get(i).filter(|w| w.is_unused()) else {
                continue;
            };
            if let Some((holder, key)) = window.begin_invalidation() {
                return Some(Unused::Valid(holder, key));
            }
            window.deregister(verbs);
            if verbs.is_none() || window.is_lost() || window.is_whole() {
                return windows.remove(i).ok().map(Unused::Ended);
            }
        }
        None
    }

    /// Returns unused windows to the pool. Their keys are made invalid by their links, where that
    /// is enough: such a window is in use until its link has done it, or has failed. Otherwise the
    /// registrations are removed, so that the peer cannot write; if that fails, the window's pages
    /// are leased for ever. A window with mapped pages is returned when the program has released
    /// them, which a later call checks again; or when the device is gone, as the memory cannot be
    /// leased again then. Sleeps.
    pub(crate) fn reap(&self) {
        self.end_late_holders();
        loop {
            let verbs = self.verbs();
            let window = match self.next_unused(verbs.as_deref()) {
                // Not under the lock: links have locks of their own.
                Some(Unused::Valid(holder, key)) => {
                    holder.invalidate(key);
                    continue;
                }
                Some(Unused::Ended(window)) => window,
                None => return,
            };
            // In this order: the peer cannot write any more, unread data is forgotten, the pages
            // are free for other leases.
            window.set_gone();
            window.forget();
            if verbs.is_none() {
                window.give_pages();
                continue;
            }
            // Pages of a lost window stay leased.
            if !window.is_lost() {
                window.free();
            }
            window.give_pages();
            if self.cache.has_others() {
                self.cache.press();
            }
        }
    }
}

impl WorkItem for Pool {
    type Pointer = Arc<Pool>;

    fn run(pool: Arc<Pool>) {
        fault::asynchronous(|| {
            pool.leave_failed_queue();
            pool.fill_low_queue();
            pool.handle_requests();
            pool.reap();
            pool.serve_waiters();
            let over = pool.cache.over();
            if over > 0 {
                let _ = over <= pool.pages_invalidating()
                    || pool.revoke_one(RevokePolicy::Unused)
                    || pool.revoke_one(RevokePolicy::Any);
            } else if pool.cache.is_crowded() {
                pool.revoke_one(RevokePolicy::Stopped);
            } else {
                pool.widen_one();
            }
            pool.trim();
            if pool.keeps_windows() {
                pool.pools.schedule_reclaim();
            }
        });
    }
}
