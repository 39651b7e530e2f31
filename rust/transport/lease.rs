// SPDX-License-Identifier: GPL-2.0

//! Who has the windows of a pool: leases, their end, and what happens when there are none left.
//!
//! A channel gets a window when its peer has bulk data for it, or when its program makes a ring, and keeps
//! it. When another one wants a window and there is none, a channel that has not used its own for a
//! while (`window_idle_ms`), with nothing unread in it, is asked to give it back; the wish waits for
//! that, for a moment. When nobody can be asked, the peer sends without a window and asks again later.
//! Windows that rings show are not asked for; rings may have a part of the pool only.
//!
//! Locks: see `pool.rs`. `wishes` is a mutex like `windows`, never held together with it.

#![deny(unsafe_code)]

use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;
use kernel::workqueue::WorkItem;

use super::device::Verbs;
use super::pool::Pool;
use super::window::{Window, WindowUse};
use crate::host::Host;
use crate::ib::mr::Mr;
use crate::kern::fault;
use crate::kern::task::{now_ns, random_u64};
use crate::params;
use crate::proto::channel::Channel;
use crate::socket::Sock;
use crate::stats::STATS;

/// How long a peer waits for a window that another is to give back, in nanoseconds.
const PEER_WAIT_NS: u64 = 200_000_000;

/// Until when a peer that asks now waits.
pub(super) fn peer_waits_until() -> u64 {
    now_ns().saturating_add(PEER_WAIT_NS)
}

/// Who wants a window for a socket.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    /// The peer, which waits for the answer.
    pub(crate) peer: bool,
    /// The program, for a ring.
    pub(crate) ring: bool,
}

impl Wants {
    pub(crate) const PEER: Self = Self {
        peer: true,
        ring: false,
    };
    pub(crate) const RING: Self = Self {
        peer: false,
        ring: true,
    };
}

/// A socket that wants a window while there is none.
#[derive(Clone)]
pub(super) struct Wish {
    sock: Arc<Sock>,
    wants: Wants,
    /// In nanoseconds of the monotonic clock.
    until: u64,
}

impl Wish {
    fn is_of(&self, sock: &Arc<Sock>) -> bool {
        Arc::ptr_eq(&self.sock, sock)
    }

    /// Adds to the wish that the socket has already; false if it has none.
    fn join(wishes: &mut KVec<Self>, sock: &Arc<Sock>, wants: Wants, until: u64) -> bool {
        let Some(wish) = wishes.iter_mut().find(|w| w.is_of(sock)) else {
            return false;
        };
        wish.wants.peer |= wants.peer;
        wish.wants.ring |= wants.ring;
        wish.until = wish.until.max(until);
        true
    }
}

impl Pool {
    /// Leases a window. Sleeps. ENOMEM when none is left, EIO when the device is gone, and what
    /// registration says.
    fn lease(self: &Arc<Self>) -> Result<Arc<Window>> {
        let verbs = self.verbs().ok_or(EIO)?;
        let count = params::window_bytes() >> PAGE_SHIFT;
        let mut start = self.pages.lock().alloc(count);
        if start.is_none() {
            // The worker may not have come to it yet.
            self.reap();
            start = self.pages.lock().alloc(count);
        }
        let start = start.ok_or(ENOMEM)?;
        let window = self.register(&verbs, start, count);
        if window.is_err() {
            self.pages.lock().free(start, count);
        }
        window
    }

    fn register(
        self: &Arc<Self>,
        verbs: &Verbs,
        start: usize,
        count: usize,
    ) -> Result<Arc<Window>> {
        let page = self.layout.first_window + start;
        // Larger windows than the device can register page by page take larger pages.
        let most = verbs.pd.device().attrs().max_fast_reg_pages;
        let mut mr = Mr::new(&verbs.pd, (count as u32).min(most))?;
        // The peer's addresses begin anywhere: they tell nothing of where our memory is, and
        // whoever guesses another peer's key has to guess this too.
        let origin = random_u64() >> 2;
        mr.map(
            &verbs.region,
            page << PAGE_SHIFT,
            count << PAGE_SHIFT,
            origin,
        )?;
        STATS.resources_made.add(1);
        let window = Window::new(self, start, page..page + count, Arc::new(mr, GFP_KERNEL)?)?;
        self.windows.lock().push(window.clone(), GFP_KERNEL)?;
        if self.verbs().is_none() {
            // The device went, and did not see this registration. The caller frees the pages.
            self.windows.lock().retain(|w| !Arc::ptr_eq(w, &window));
            window.deregister();
            return Err(EIO);
        }
        Ok(window)
    }

    /// Leases a window for the socket's channel and offers it to the peer. Once the peer sends no
    /// more, the window is the program's alone: a ring has one in any case. Sleeps.
    ///
    /// Whether the channel took it: it may have one, or have no use for one. `None` if there is none.
    fn grant(self: &Arc<Self>, sock: &Arc<Sock>, wants: Wants) -> Option<bool> {
        let window = self.lease().ok()?;
        let Some(terms) = WindowUse::new(&window) else {
            window.retire();
            return None;
        };
        let (size, addr, key) = terms.terms();
        let kept = {
            let mut inner = sock.inner.lock();
            let inner = &mut *inner;
            let free = inner.window.is_none() && !inner.released;
            let takes = |c: &mut Channel| c.grant(size, addr, key) || wants.ring && c.read_ended();
            let kept = free && inner.chan.with(takes).unwrap_or(false);
            if kept {
                window.set_user(inner.chan.id().unwrap_or_default());
                inner.window = Some(window.clone());
            }
            kept
        };
        drop(terms);
        if !kept {
            window.retire();
        }
        Some(kept)
    }

    /// A window is wanted for the socket's channel: true if it has got one, or may get one until
    /// `until`, in nanoseconds of the monotonic clock, of which [`Sock::window_answered`] tells. Sleeps.
    pub(crate) fn want_window(
        self: &Arc<Self>,
        sock: &Arc<Sock>,
        wants: Wants,
        until: u64,
    ) -> bool {
        // One that the peer has given back may still have something to be read.
        if !sock.lacks_window() {
            return false;
        }
        let others = {
            let mut wishes = self.wishes.lock();
            if Wish::join(&mut wishes, sock, wants, until) {
                return true;
            }
            !wishes.is_empty()
        };
        // Nobody is served before those who wait.
        if !others {
            if let Some(kept) = self.grant(sock, wants) {
                return kept;
            }
        }
        if !self.ask_one_back() {
            return false;
        }
        let wish = Wish {
            sock: sock.clone(),
            wants,
            until,
        };
        let waits = {
            let mut wishes = self.wishes.lock();
            // The link's worker and the program may both be here.
            Wish::join(&mut wishes, sock, wants, until) || wishes.push(wish, GFP_KERNEL).is_ok()
        };
        if self.verbs().is_none() {
            // The device went, and may not have seen this wish.
            self.forget_wishes();
        } else if let (true, Some(host)) = (waits, Host::get()) {
            host.watch_wishes();
        }
        waits
    }

    /// The socket wants no window for a ring any more. Sleeps.
    pub(crate) fn withdraw_ring(&self, sock: &Arc<Sock>) {
        let mut wishes = self.wishes.lock();
        if let Some(wish) = wishes.iter_mut().find(|w| w.is_of(sock)) {
            wish.wants.ring = false;
        }
        wishes.retain(|w| w.wants.peer || w.wants.ring);
    }

    /// Asks a channel that does not use its window to give it back: the one that has had it longest.
    fn ask_one_back(&self) -> bool {
        let Some(host) = Host::get() else {
            return false;
        };
        let least = msecs_to_jiffies(params::WINDOW_IDLE_MS.get());
        for n in 0.. {
            let Some(window) = self.windows.lock().get(n).cloned() else {
                break;
            };
            let Some(user) = window.idle_user(least) else {
                continue;
            };
            let sock = host.table.owner(user);
            if sock.is_some_and(|sock| Sock::ask_back(&sock, &window, least)) {
                STATS.windows_revoked.add(1);
                return true;
            }
        }
        false
    }

    /// Whether somebody waits for a window.
    pub(crate) fn has_wishes(&self) -> bool {
        !self.wishes.lock().is_empty()
    }

    /// Serves those who wait for a window, in the order in which they came; those who have waited
    /// long enough get none. Sleeps.
    fn serve_wishes(self: &Arc<Self>) {
        loop {
            let Some(wish) = self.wishes.lock().first().cloned() else {
                return;
            };
            let granted = match self.grant(&wish.sock, wish.wants) {
                None if now_ns() < wish.until => return,
                granted => granted == Some(true),
            };
            let mut wants = None;
            self.wishes.lock().retain(|w| {
                let this = w.is_of(&wish.sock);
                if this {
                    wants = Some(w.wants);
                }
                !this
            });
            match wants {
                Some(wants) => Sock::window_answered(&wish.sock, granted, wants),
                // Withdrawn meanwhile: a window that only a ring had use for is of no use now.
                None => wish.sock.settle_window(),
            }
        }
    }

    /// A ring is to be made, of `window` if that is there already: false if rings have their share
    /// of the windows. Sleeps.
    pub(crate) fn admit_ring(&self, window: Option<&Arc<Window>>) -> bool {
        self.admit(window, |window| window.set_ring(true))
    }

    /// Pages of `window` are to be lent: false if programs have their share of the windows already. Sleeps.
    pub(crate) fn admit_lender(&self, window: &Arc<Window>) -> bool {
        self.admit(Some(window), |window| window.set_lent())
    }

    /// Whether there may be one more window that is not asked back for others; then it is marked. A window
    /// of which pages were lent counts until all of them are back and it is the pool's again.
    fn admit(&self, window: Option<&Arc<Window>>, mark: impl FnOnce(&Window)) -> bool {
        let all = self.pages.lock().pages() / (params::window_bytes() >> PAGE_SHIFT).max(1);
        let most = all * params::RING_PERCENT.get() as usize / 100;
        let windows = self.windows.lock();
        let others = |w: &&Arc<Window>| {
            let own = window.is_some_and(|own| Arc::ptr_eq(w, own));
            !own && (w.has_lent() || w.has_ring() && !w.is_unused())
        };
        let fits = windows.iter().filter(others).count() < most.max(1);
        if let (true, Some(window)) = (fits, window) {
            mark(window);
        }
        fits
    }

    /// Whether a window would be free if a program had given back what it was lent.
    pub(crate) fn keeps_windows(&self) -> bool {
        self.windows.lock().iter().any(|w| w.is_unused())
    }

    /// Nobody waits for a window of a device that goes. Sleeps.
    pub(super) fn forget_wishes(&self) {
        let wishes = core::mem::take(&mut *self.wishes.lock());
        for wish in wishes {
            Sock::window_answered(&wish.sock, false, wish.wants);
        }
    }

    /// Windows may be free, or somebody may want one: the pool's worker is to look. Any context.
    pub(crate) fn look_after(self: &Arc<Self>) {
        if let Some(host) = Host::get() {
            let _ = host.queue.enqueue(self.clone());
        }
    }

    /// Takes back the windows that nobody uses any more: at once from the peer. Pages that were lent come
    /// back by themselves, and are looked for again; once the device is gone nobody else can get them. Sleeps.
    pub(super) fn reap(&self) {
        loop {
            let gone = self.verbs().is_none();
            let window = {
                let mut windows = self.windows.lock();
                windows
                    .iter()
                    .filter(|w| w.is_unused())
                    .for_each(|w| w.deregister());
                let free = |w: &Arc<Window>| w.is_unused() && (gone || w.is_whole());
                match windows.iter().position(free) {
                    Some(i) => windows.remove(i),
                    None => return,
                }
            };
            let Ok(window) = window else { return };
            // In this order: nobody can write, nothing is left to read, somebody else may have it.
            window.set_gone();
            if gone {
                continue;
            }
            let at = window.at();
            let _ = self.memory().zero(at, window.bytes());
            if let Some(verbs) = self.verbs() {
                let _ = verbs.region.sync_for_device(at, window.bytes());
            }
            let (start, count) = window.pool_pages();
            self.pages.lock().free(start, count);
        }
    }
}

impl WorkItem for Pool {
    type Pointer = Arc<Pool>;

    fn run(pool: Arc<Pool>) {
        fault::asynchronous(|| {
            pool.reap();
            pool.serve_wishes();
            if let (true, Some(host)) = (pool.keeps_windows(), Host::get()) {
                host.look_for_lent();
            }
        });
    }
}
