// SPDX-License-Identifier: GPL-2.0

//! The receive ring: descriptors in memory shared with the program, the mapped window, and two
//! areas next to it: one for data that has moved out of the window, one for small messages, which
//! are copied there when they arrive.
//!
//! Layout and rules: `uapi/linux/zrs.h`. The kernel writes descriptors and never reads back
//! anything but their state words; addresses and lengths it uses are its own.

#![deny(unsafe_code)]

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use kernel::time::msecs_to_jiffies;

use super::area::AREA_OFFSET;
use super::window::has_lasting;
use super::Sock;
use crate::kern::contig::Payload;
use crate::kern::errno::{ENOBUFS, ENOTCONN};
use crate::kern::shared::SharedPages;
use crate::kern::task::now_ns;
use crate::kern::vma::{MappedOwner, NewVma};
use crate::kern::wait::WaitMode;
use crate::params;
use crate::pool::cache::Cache;
use crate::pool::window::Window;
use crate::pool::{Held, Pool};
use crate::proto::area_ring::AreaRing;
use crate::proto::channel::Limits;
use crate::proto::readiness::Phase;
use crate::proto::rx_queue::{Descriptors, EscapeTarget, Moved, Segment, Spent};
use crate::proto::wire::SMALL_MAX;
use crate::uapi;

/// The shared descriptors of a socket.
pub(super) struct Ring {
    pages: SharedPages,
    entries: u32,
    /// The areas, if the program has asked for one.
    areas: Option<Areas>,
}

/// The areas of a ring, in one mapping: the escape area, and the small area behind it. Pieces of
/// each are freed in the order of the stream, those of both together are not.
struct Areas {
    pages: SharedPages,
    sizes: Sizes,
    cache: Arc<Cache>,
    /// Unread bytes in the escape area.
    holds: Atomic<u64>,
}

/// Bytes of the two areas; 0: there is none.
#[derive(Clone, Copy)]
struct Sizes {
    escape: u32,
    small: u32,
}

impl Sizes {
    /// As `flags` ask, for a window of `window` bytes and these limits of small messages. Small
    /// messages within the limits always find room.
    fn new(flags: u32, window: usize, limits: &Limits) -> Self {
        let escapes = flags & uapi::ZRS_RX_RING_ESCAPE != 0 && window <= MOST_AREAS as usize / 2;
        let escape = if escapes { 2 * window as u32 } else { 0 };
        let small = AreaRing::enough_for(limits.small, limits.msgs, SMALL_MAX);
        let fits = flags & uapi::ZRS_RX_RING_SMALL != 0 && small <= MOST_AREAS - escape;
        Self {
            escape,
            small: if fits { small } else { 0 },
        }
    }

    /// The flags that hold.
    fn flags(self) -> u32 {
        let escape = if self.escape > 0 {
            uapi::ZRS_RX_RING_ESCAPE
        } else {
            0
        };
        let small = if self.small > 0 {
            uapi::ZRS_RX_RING_SMALL
        } else {
            0
        };
        escape | small
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        self.cache.read_escaped(self.holds.load(Relaxed) as usize);
    }
}

impl MappedOwner for Ring {}

/// How long making a ring waits for a window that another channel has to give back, in nanoseconds.
const WINDOW_WAIT_NS: u64 = 500_000_000;

/// Descriptors begin behind the head, at a multiple of their size.
const DESC_OFFSET: usize = core::mem::size_of::<uapi::zrs_ring>();
const DESC_SIZE: usize = core::mem::size_of::<uapi::zrs_desc>();

impl Ring {
    /// Allocates a ring of `entries` descriptors, and areas of these sizes for `window`. ENOMEM.
    fn new(entries: u32, sizes: Sizes, window: &Window) -> Result<Arc<Self>> {
        let bytes = DESC_OFFSET + entries as usize * DESC_SIZE;
        let pages = SharedPages::new(bytes.next_multiple_of(kernel::page::PAGE_SIZE))?;
        pages.store_u32(
            core::mem::offset_of!(uapi::zrs_ring, version),
            uapi::ZRS_RING_VERSION,
        )?;
        pages.store_u32(core::mem::offset_of!(uapi::zrs_ring, entries), entries)?;
        pages.store_u32(
            core::mem::offset_of!(uapi::zrs_ring, desc_offset),
            DESC_OFFSET as u32,
        )?;
        let areas = match sizes.escape + sizes.small {
            0 => None,
            bytes => Some(Areas {
                pages: SharedPages::new(bytes as usize)?,
                sizes,
                cache: window.cache().clone(),
                holds: Atomic::new(0),
            }),
        };
        let ring = Self {
            pages,
            entries,
            areas,
        };
        Ok(Arc::new(ring, GFP_KERNEL_ACCOUNT)?)
    }

    fn sizes(&self) -> Sizes {
        let none = Sizes {
            escape: 0,
            small: 0,
        };
        self.areas.as_ref().map_or(none, |areas| areas.sizes)
    }

    /// Whether small messages are copied when they arrive.
    pub(super) fn takes_small(&self) -> bool {
        self.sizes().small > 0
    }

    /// Copies `payload` to the areas at `off`.
    pub(super) fn write_area(&self, off: u32, payload: &Payload<'_>) -> Result {
        let areas = self.areas.as_ref().ok_or(EINVAL)?;
        areas.pages.write_from(off as usize, payload)
    }

    /// `len` bytes of the areas at `off`.
    pub(super) fn area(&self, off: usize, len: usize) -> Result<Payload<'_>> {
        let areas = self.areas.as_ref().ok_or(EINVAL)?;
        Ok(Payload::Shared(&areas.pages, off, len))
    }

    /// The place in the areas of byte `off` of the small area.
    pub(super) fn in_small(&self, off: u32) -> u32 {
        self.sizes().escape.wrapping_add(off)
    }

    /// Counts `len` bytes that were moved to the escape area.
    pub(super) fn holds(&self, len: u32) {
        if let Some(areas) = &self.areas {
            areas.holds.fetch_add(u64::from(len), Relaxed);
            areas.cache.escaped(len as usize);
        }
    }

    /// Counts `len` bytes that have left the escape area.
    pub(super) fn holds_no_more(&self, len: u32) {
        if let Some(areas) = &self.areas {
            areas.holds.fetch_sub(u64::from(len), Relaxed);
            areas.cache.read_escaped(len as usize);
        }
    }

    fn set_first(&self, n: u64) {
        let p = &self.pages;
        let _ = p.store_u64(core::mem::offset_of!(uapi::zrs_ring, first), n);
        let _ = p.store_u64_release(core::mem::offset_of!(uapi::zrs_ring, head), n);
    }

    // The queue's index wraps at 2^32 and `entries` is a power of two, so that it picks the same
    // descriptor as the program's 64-bit count.
    fn at(&self, index: u32) -> usize {
        DESC_OFFSET + (index & (self.entries - 1)) as usize * DESC_SIZE
    }

    fn state_at(&self, index: u32) -> usize {
        self.at(index) + core::mem::offset_of!(uapi::zrs_desc, state)
    }

    fn state(&self, index: u32) -> u32 {
        self.pages
            .load_u32_acquire(self.state_at(index))
            .unwrap_or(uapi::ZRS_DESC_HELD)
    }

    /// Changes the state from `from` to `to`; false if it was not `from`.
    fn swap(&self, index: u32, from: u32, to: u32) -> bool {
        let swapped = self.pages.cmpxchg_u32(self.state_at(index), from, to);
        matches!(swapped, Ok(Ok(_)))
    }

    fn set_state(&self, index: u32, state: u32) {
        // Cannot fail: the offset is inside by construction.
        let _ = self.pages.store_u32_release(self.state_at(index), state);
    }

    /// Shows segment `index` to the program and moves the head behind it.
    pub(super) fn publish<T>(&self, index: u32, head: u64, seg: &Segment<T>) {
        let at = self.at(index);
        let p = &self.pages;
        let state = match (seg.claimed, seg.moved) {
            (true, _) => uapi::ZRS_DESC_KERNEL,
            (false, Moved::Small(off)) => {
                let to = at + core::mem::offset_of!(uapi::zrs_desc, escape_off);
                let _ = p.store_u32(to, self.in_small(off));
                uapi::ZRS_DESC_ESCAPED
            }
            (false, _) => uapi::ZRS_DESC_READY,
        };
        let _ = p.store_u64(at + core::mem::offset_of!(uapi::zrs_desc, pos), seg.pos);
        let _ = p.store_u32(
            at + core::mem::offset_of!(uapi::zrs_desc, off),
            seg.window_off.unwrap_or(0).wrapping_add(seg.taken),
        );
        let _ = p.store_u32(
            at + core::mem::offset_of!(uapi::zrs_desc, len),
            seg.len.wrapping_sub(seg.taken),
        );
        self.set_state(index, state);
        let _ = p.store_u64_release(core::mem::offset_of!(uapi::zrs_ring, head), head);
    }

    /// Asks the program to ring the doorbell when it gives a segment back.
    pub(super) fn need_credit(&self) {
        let _ = self
            .pages
            .store_u32_release(core::mem::offset_of!(uapi::zrs_ring, need_credit), 1);
        crate::kern::barrier::smp_mb();
    }
}

impl Descriptors for Option<Arc<Ring>> {
    fn claim(&self, index: u32) -> bool {
        self.as_ref().is_none_or(|ring| {
            let kernel = uapi::ZRS_DESC_KERNEL;
            ring.swap(index, uapi::ZRS_DESC_READY, kernel)
                || ring.swap(index, uapi::ZRS_DESC_ESCAPED, kernel)
        })
    }

    fn is_done(&self, index: u32) -> bool {
        self.as_ref()
            .is_some_and(|ring| ring.state(index) == uapi::ZRS_DESC_DONE)
    }

    fn is_waiting(&self, index: u32) -> bool {
        self.as_ref().is_none_or(|ring| {
            matches!(
                ring.state(index),
                uapi::ZRS_DESC_READY | uapi::ZRS_DESC_ESCAPED
            )
        })
    }

    fn set_done(&self, index: u32) {
        if let Some(ring) = self {
            ring.set_state(index, uapi::ZRS_DESC_DONE);
        }
    }

    fn clear(&self, index: u32) {
        if let Some(ring) = self {
            ring.set_state(index, uapi::ZRS_DESC_FREE);
        }
    }

    fn escape_target(&self) -> EscapeTarget {
        match self {
            None => EscapeTarget::Anywhere,
            Some(ring) if ring.sizes().escape > 0 => EscapeTarget::Area,
            Some(_) => EscapeTarget::Nowhere,
        }
    }

    fn escape(&self, index: u32, off: u32) -> bool {
        self.as_ref().is_some_and(|ring| {
            let at = ring.at(index) + core::mem::offset_of!(uapi::zrs_desc, escape_off);
            // Stored before the state, which tells the program to use it.
            let _ = ring.pages.store_u32(at, off);
            ring.swap(index, uapi::ZRS_DESC_READY, uapi::ZRS_DESC_ESCAPED)
        })
    }
}

/// Where the window's mapping begins in the socket's address space for mmap().
const WINDOW_OFFSET: u64 = 1 << 32;

/// The most bytes of both areas; a window that would need a larger escape area gets none.
const MOST_AREAS: u32 = 64 << 20;

/// Where the mapping of the areas begins in the socket's address space for mmap().
const ESCAPE_OFFSET: u64 = 3 << 32;

impl super::Inner {
    /// Whether the peer may soon be out of room.
    pub(super) fn is_crowded(&self) -> bool {
        let room = self.window.as_ref().map_or(0, |w| w.bytes()) as u64;
        let in_window = self.conn.chan.with(|c| c.window_unread()).unwrap_or(0);
        // Small messages are all others: those in the window, and those moved out of it, have
        // separate limits.
        let elsewhere = self.rx.in_window().saturating_add(self.rx.moved());
        let small = self.rx.bytes().saturating_sub(elsewhere);
        room > 0 && in_window >= room / 2
            || small >= u64::from(self.limits.small / 2)
            || self.rx.len() >= self.limits.msgs / 2
    }

    /// The same for a socket with a ring, whose program should then return segments.
    pub(crate) fn has_crowded_ring(&self) -> bool {
        self.ring.is_some() && self.is_crowded()
    }

    /// Whether small messages are copied to the ring when they arrive.
    pub(super) fn copies_small(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.takes_small())
    }

    /// Copies the first `len` bytes of `held`, a small message that has just arrived, to the ring's
    /// small area. Without one, or without room in it, the message stays where it is.
    pub(super) fn copy_small(&mut self, held: &Held, len: u32) -> Moved {
        let ring = match &self.ring {
            Some(ring) if ring.takes_small() => ring,
            _ => return Moved::No,
        };
        let Some(off) = self.small_area.alloc(len) else {
            return Moved::No;
        };
        let copied = held
            .payload(0, len as usize)
            .and_then(|payload| ring.write_area(ring.in_small(off), &payload));
        match copied {
            Ok(()) => {
                self.counters.received(0, len as usize);
                Moved::Small(off)
            }
            Err(_) => {
                self.small_area.undo(off);
                Moved::No
            }
        }
    }

    /// Shows the segment that has just arrived to the program, if it has a ring.
    pub(crate) fn publish(&mut self, index: u32) {
        if let (Some(ring), Some(seg)) = (&self.ring, self.rx.get_mut(index)) {
            ring.publish(index, self.arrived, seg);
        }
    }
}

impl Sock {
    /// ZRS_RX_RING: makes the ring and leases the window. See the UAPI for errors. Sleeps.
    pub(super) fn make_ring(self: &Arc<Self>, flags: u32) -> Result {
        {
            let inner = self.inner.lock();
            if !matches!(inner.phase, Phase::Connected) {
                return Err(ENOTCONN);
            }
            if inner.ring.is_some() {
                return Ok(());
            }
        }
        let until = now_ns().saturating_add(WINDOW_WAIT_NS);
        let made = loop {
            match self
                .need_window(until)
                .and_then(|()| self.attach_ring(flags))
            {
                Ok(false) => continue,
                made => break made.map(|_| ()),
            }
        };
        if made.is_err() {
            self.withdraw_ring();
        }
        self.kick();
        // The window may be full already.
        self.ask_for_doorbell();
        made
    }

    /// Publishes the unread segments in a new ring, and attaches it to the socket. Returns false if
    /// the window was released in between.
    fn attach_ring(&self, flags: u32) -> Result<bool> {
        let (window, limits) = {
            let inner = self.inner.lock();
            (inner.window.clone(), inner.limits)
        };
        let Some(window) = window else {
            return Ok(false);
        };
        let sizes = Sizes::new(flags, window.bytes(), &limits);
        let ring = Ring::new(params::LIMITS.msgs, sizes, &window)?;
        if !window.admit_ring() {
            return Err(ENOBUFS);
        }
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.ring.is_some() {
            return Ok(true);
        }
        let same = inner
            .window
            .as_ref()
            .is_some_and(|w| Arc::ptr_eq(w, &window));
        if !same || !has_lasting(inner) {
            // The stream has just ended, and the window was released since it had no ring; or the
            // window is being revoked for another channel.
            window.set_ring(false);
            return Ok(false);
        }
        if inner.rx_locked || inner.rx.spent() != Spent::default() {
            // Another thread's recv() is reading a segment, or the program holds pages of one.
            window.set_ring(false);
            return Err(EBUSY);
        }
        let mut n = inner.arrived - u64::from(inner.rx.len());
        ring.set_first(n);
        for index in inner.rx.indices() {
            if let Some(seg) = inner.rx.get_mut(index) {
                seg.claimed |= seg.window_off.is_none() || seg.taken > 0;
                n += 1;
                ring.publish(index, n, seg);
            }
        }
        // Another thread that tried at the same time may have cleared the mark.
        window.set_ring(true);
        inner.escape_area = AreaRing::new(sizes.escape);
        inner.small_area = AreaRing::new(sizes.small);
        inner.ring = Some(ring);
        Ok(true)
    }

    /// The pool of any device of the network namespace, for a channel that has left its link: its
    /// received data can still be read through a ring, and no WRITE will arrive. Sleeps.
    pub(super) fn any_pool(&self) -> Option<Arc<Pool>> {
        let devices = self.ctx.transport.pools.devices.lock();
        let own = devices.iter().filter(|dev| dev.is_in(&self.net));
        own.filter_map(|dev| dev.existing_pool()).next()
    }

    /// The answer to getsockopt(ZRS_RX_RING).
    pub(super) fn ring_layout(&self) -> Result<uapi::zrs_rx_ring> {
        let inner = self.inner.lock();
        let (ring, window) = match (&inner.ring, &inner.window) {
            (Some(ring), Some(window)) => (ring, window),
            _ => return Err(ENOTCONN),
        };
        let areas = ring.areas.as_ref();
        Ok(uapi::zrs_rx_ring {
            flags: ring.sizes().flags(),
            entries: ring.entries,
            ring_offset: 0,
            ring_bytes: ring.pages.bytes() as u64,
            window_offset: WINDOW_OFFSET,
            window_bytes: window.bytes() as u64,
            escape_offset: areas.map_or(0, |_| ESCAPE_OFFSET),
            escape_bytes: areas.map_or(0, |a| a.pages.bytes() as u64),
        })
    }

    /// mmap() on the socket. EINVAL where there is nothing to map.
    pub(super) fn map(self: &Arc<Self>, vma: NewVma<'_>) -> Result {
        if vma.offset() == AREA_OFFSET {
            return self.map_area(vma);
        }
        let (ring, window): (Option<Arc<Ring>>, Option<Arc<Window>>) = {
            let inner = self.inner.lock();
            (inner.ring.clone(), inner.window.clone())
        };
        let ring = ring.ok_or(EINVAL)?;
        match vma.offset() {
            0 => vma.map_shared(&ring.pages, ring.clone()),
            WINDOW_OFFSET => vma.map_window(window.ok_or(EINVAL)?),
            ESCAPE_OFFSET => {
                let areas = ring.areas.as_ref().ok_or(EINVAL)?;
                vma.map_shared_read_only(&areas.pages, ring.clone())
            }
            _ => Err(EINVAL),
        }
    }

    /// ZRS_IOC_DOORBELL: reaps the segments that the program has finished with.
    pub(super) fn doorbell(self: &Arc<Self>) {
        self.reap();
        self.ask_for_doorbell();
        self.send_pending();
    }

    /// ZRS_IOC_RING_WAIT. See the UAPI for what ends it. Sleeps.
    pub(super) fn await_ring(self: &Arc<Self>, wait: &uapi::zrs_ioc_ring_wait) -> Result {
        if wait.reserved != [0; 2] {
            return Err(EINVAL);
        }
        if self.reap() {
            self.send_pending();
        }
        // A timeout that does not fit is infinite. One tick is added since the current one has
        // begun.
        let ms = wait.timeout_ns.div_ceil(1_000_000);
        let mut timeout = match u32::try_from(ms) {
            Ok(ms @ 1..) => Some(msecs_to_jiffies(ms).saturating_add(1)),
            _ => None,
        };
        self.await_link(WaitMode::Interruptible, &mut timeout, || {
            self.ring_ready(wait.head)
        })
        .unwrap_or_else(|e| Err(e.to_errno(timeout)))
    }

    /// Whether the ring's reader has something to look at; `None` if not yet.
    fn ring_ready(&self, head: u64) -> Option<Result> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.ring.is_none() {
            return Some(Err(EINVAL));
        }
        let failed = inner.sk.as_ref().is_none_or(|sk| sk.err().is_some());
        let ended = inner.conn.chan.read_ended() || inner.shut_read;
        // The peer may be unable to send more until the program gives some of the received data
        // back.
        let full = inner.is_crowded() && inner.rx.readable(&inner.ring);
        (inner.arrived >= head || failed || ended || full).then_some(Ok(()))
    }

    /// While the peer may soon be out of room, reaps the segments that the program has finished
    /// with. If that does not suffice, asks the program to ring the doorbell, and reaps once more,
    /// as the program may have finished with some just before that.
    pub(crate) fn ask_for_doorbell(self: &Arc<Self>) {
        for asks in [false, true] {
            {
                let inner = self.inner.lock();
                match &inner.ring {
                    Some(ring) if inner.is_crowded() => {
                        if asks {
                            ring.need_credit();
                        }
                    }
                    _ => return,
                }
            }
            self.reap();
        }
        // If the program does not ring, the periodic work item reaps its segments, so that the peer
        // does not wait for ever. Without memory to register for that, it may.
        let _ = self.watch_mapped();
    }
}
