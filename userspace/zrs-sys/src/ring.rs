// SPDX-License-Identifier: GPL-2.0
//! The receive ring: descriptors shared with the kernel, each with a state word, the window they
//! point into, and the escape area where the kernel puts small messages, and segments that stay
//! unread for long.
//! `uapi/linux/zrs.h` states the protocol; [`Ring::look`] and the drop of [`Held`] are the
//! program's two steps in it.

use std::fmt;
use std::io;
use std::mem::{align_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::abi::*;
use crate::{sock, Device, Map, View};

/// The kernel calls of a ring.
pub trait Doorbell: Send + Sync {
    /// Descriptors were given back while the kernel waited for room: it looks now. A failure is
    /// ignored: the kernel looks again later.
    fn ring(&self);

    /// Waits for segments: [`sock::ring_wait`].
    fn wait(&self, head: u64, timeout: Option<Duration>) -> io::Result<()>;
}

impl Doorbell for Arc<OwnedFd> {
    fn ring(&self) {
        let _ = sock::doorbell(self.as_fd());
    }

    fn wait(&self, head: u64, timeout: Option<Duration>) -> io::Result<()> {
        sock::ring_wait(self.as_fd(), head, timeout)
    }
}

/// The mappings of a receive ring.
///
/// # Invariants
///
/// - `entries` is a power of two, and the descriptors from `desc_offset` lie in `ring`, aligned.
/// - The other side keeps the protocol of the header: it does not touch the bytes of a descriptor
///   in state HELD.
pub struct Ring {
    ring: Map,
    window: Map,
    /// None: all segments that the ring shows are in the window.
    escape: Option<Map>,
    entries: u32,
    first: u64,
    desc_offset: usize,
    bell: Box<dyn Doorbell>,
}

/// The entry at a place of the ring.
#[derive(Debug)]
pub enum Look {
    /// A segment; it is ours until dropped.
    Held(Held),
    /// This many bytes wait in the kernel, for recv().
    Kernel(usize),
    /// Somebody else has taken it.
    Taken,
}

impl Ring {
    /// Asks the connected ZRS socket `fd` for its ring and maps it, with an escape area, for small
    /// messages too, where the module knows such (and `/dev/zrs` can be opened, to ask it). Errors
    /// as [`sock::rx_ring`] and mmap(2); InvalidData for a ring this program does not understand.
    pub fn open(fd: &Arc<OwnedFd>) -> io::Result<Self> {
        Self::open_with(fd, Box::new(fd.clone()))
    }

    /// The same, with another way to the kernel.
    pub fn open_with(fd: &Arc<OwnedFd>, bell: Box<dyn Doorbell>) -> io::Result<Self> {
        let params = sock::rx_ring(fd.as_fd(), known_flags())?;
        let len = |bytes: u64| usize::try_from(bytes).map_err(|_| bad("too large"));
        let ring = Map::shared_write(fd.as_fd(), params.ring_offset, len(params.ring_bytes)?)?;
        let window = Map::shared_read(fd.as_fd(), params.window_offset, len(params.window_bytes)?)?;
        // A ring that was there already may have been made without it, or with it.
        let escape = match len(params.escape_bytes)? {
            0 => None,
            bytes => Some(Map::shared_read(fd.as_fd(), params.escape_offset, bytes)?),
        };
        // SAFETY: only ZRS sockets know SOL_ZRS, and these are the mappings it named.
        unsafe { Self::new(ring, window, escape, bell) }
    }

    /// # Safety
    ///
    /// The other side of the mappings keeps the protocol of the header.
    pub(crate) unsafe fn new(
        ring: Map,
        window: Map,
        escape: Option<Map>,
        bell: Box<dyn Doorbell>,
    ) -> io::Result<Self> {
        if ring.len() < size_of::<zrs_ring>() {
            return Err(bad("too small"));
        }
        let head: NonNull<zrs_ring> = ring.base().cast();
        // SAFETY: the mapping holds a `zrs_ring`, page-aligned; these fields never change.
        let (version, entries, first, desc_offset) = unsafe {
            let head = head.as_ptr();
            (
                (&raw const (*head).version).read_volatile(),
                (&raw const (*head).entries).read_volatile(),
                (&raw const (*head).first).read_volatile(),
                (&raw const (*head).desc_offset).read_volatile() as usize,
            )
        };
        if version != ZRS_RING_VERSION {
            return Err(bad(&format!(
                "of version {version}, and not {ZRS_RING_VERSION}"
            )));
        }
        let fits = (entries as usize)
            .checked_mul(size_of::<zrs_desc>())
            .and_then(|bytes| bytes.checked_add(desc_offset))
            .is_some_and(|end| end <= ring.len());
        if !entries.is_power_of_two() || !fits || desc_offset % align_of::<zrs_desc>() != 0 {
            return Err(bad("malformed"));
        }
        // INVARIANT: checked just now; the rest is the caller's promise.
        Ok(Self {
            ring,
            window,
            escape,
            entries,
            first,
            desc_offset,
            bell,
        })
    }

    /// Descriptors in the ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Number of the first segment in this ring.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Waits until the ring has had `head` segments, for the end of the stream or its failure, or
    /// for `timeout`; errors as [`sock::ring_wait`].
    pub fn wait(&self, head: u64, timeout: Option<Duration>) -> io::Result<()> {
        self.bell.wait(head, timeout)
    }

    /// Bytes in the window.
    pub fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Segments ever published.
    pub fn head(&self) -> u64 {
        let head = self.ring.base().cast::<zrs_ring>().as_ptr();
        // SAFETY: the field lies in the mapping, is aligned, and is only accessed atomically.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*head).head) };
        // Acquire: pairs with the kernel's write of head after the descriptors.
        head.load(Ordering::Acquire)
    }

    fn desc(&self, n: u64) -> NonNull<zrs_desc> {
        let index = (n & u64::from(self.entries - 1)) as usize;
        // SAFETY: by the invariant descriptor `index` lies in the mapping.
        unsafe {
            self.ring
                .base()
                .add(self.desc_offset)
                .cast::<zrs_desc>()
                .add(index)
        }
    }

    fn state(&self, n: u64) -> &AtomicU32 {
        let desc = self.desc(n).as_ptr();
        // SAFETY: the field lies in the mapping, is aligned, and is only accessed atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*desc).state) }
    }

    /// Takes segment `n`, which must be below [`Ring::head`]. A segment outside the window, or the
    /// escape area, is InvalidData.
    pub fn look(self: &Arc<Self>, n: u64) -> io::Result<Look> {
        let place = loop {
            let state = self.state(n);
            let (from, place) = match state.load(Ordering::Acquire) {
                ZRS_DESC_READY => (ZRS_DESC_READY, Place::Window),
                ZRS_DESC_ESCAPED => (ZRS_DESC_ESCAPED, Place::Escape),
                ZRS_DESC_KERNEL => return Ok(Look::Kernel(self.len_of(n))),
                _ => return Ok(Look::Taken),
            };
            // The kernel may be faster, with recv() or by moving it; then look again. Acquire: the
            // bytes, and where they are, come after.
            let taken =
                state.compare_exchange(from, ZRS_DESC_HELD, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                break place;
            }
        };
        let (off, len) = (self.offset_of(n, place), self.len_of(n));
        // INVARIANT: this thread has just made the descriptor HELD; empty until the range is
        // checked.
        let mut held = Held {
            ring: self.clone(),
            n,
            place,
            off: 0,
            len: 0,
        };
        let end = off.checked_add(len);
        if end.is_none_or(|end| end > self.bytes_at(place)) {
            return Err(bad(match place {
                Place::Window => "pointing outside its window",
                Place::Escape => "pointing outside its escape area",
            }));
        }
        // INVARIANT: it is inside.
        (held.off, held.len) = (off, len);
        Ok(Look::Held(held))
    }

    /// Length of segment `n`.
    fn len_of(&self, n: u64) -> usize {
        let desc = self.desc(n).as_ptr();
        // SAFETY: the field lies in the mapping; the kernel writes it before the state that our
        // caller has seen, and not again until the state is FREE.
        unsafe { (&raw const (*desc).len).read_volatile() as usize }
    }

    /// Where segment `n`, which is HELD and was in this place, begins in it.
    fn offset_of(&self, n: u64, place: Place) -> usize {
        let desc = self.desc(n).as_ptr();
        // SAFETY: the fields lie in the mapping; the kernel writes `off` before READY and
        // `escape_off` before ESCAPED, and neither again until the state is FREE.
        let off = unsafe {
            match place {
                Place::Window => (&raw const (*desc).off).read_volatile(),
                Place::Escape => (&raw const (*desc).escape_off).read_volatile(),
            }
        };
        off as usize
    }

    /// Bytes that can be in that place.
    fn bytes_at(&self, place: Place) -> usize {
        match place {
            Place::Window => self.window.len(),
            Place::Escape => self.escape.as_ref().map_or(0, Map::len),
        }
    }

    /// Where that place begins; a dangling address of one that is not there, where nothing can be.
    fn base_of(&self, place: Place) -> NonNull<u8> {
        match place {
            Place::Window => self.window.base(),
            Place::Escape => self.escape.as_ref().map_or(NonNull::dangling(), Map::base),
        }
    }

    fn give_back(&self, n: u64) {
        // Release: our reads of the bytes come before.
        self.state(n).store(ZRS_DESC_DONE, Ordering::Release);
        // DONE must be visible before need_credit is read: the kernel sets it, then looks again.
        fence(Ordering::SeqCst);
        let head = self.ring.base().cast::<zrs_ring>().as_ptr();
        // SAFETY: the field lies in the mapping, is aligned, and is only accessed atomically.
        let need = unsafe { AtomicU32::from_ptr(&raw mut (*head).need_credit) };
        if need.load(Ordering::Relaxed) != 0 && need.swap(0, Ordering::SeqCst) != 0 {
            self.bell.ring();
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("entries", &self.entries)
            .field("window", &self.window.len())
            .field("escape", &self.bytes_at(Place::Escape))
            .finish_non_exhaustive()
    }
}

/// The features that this library requests from the loaded module: none that it does not know.
fn known_flags() -> u32 {
    let version = Device::open().and_then(|device| device.version());
    let features = version.map_or(0, |version| version.features);
    let flag = |feature, flag| if features & feature != 0 { flag } else { 0 };
    flag(ZRS_FEATURE_ESCAPE, ZRS_RX_RING_ESCAPE) | flag(ZRS_FEATURE_RING_SMALL, ZRS_RX_RING_SMALL)
}

fn bad(what: &str) -> io::Error {
    let text = format!("the receive ring is {what}: module and library do not fit together");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The mapping that a segment lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Window,
    Escape,
}

/// Bytes that are ours until drop, which gives them back. Order is free.
///
/// # Invariants
///
/// Descriptor `n` is in state HELD, put there by this value's maker; `off + len` is within the
/// mapping of `place`.
pub struct Held {
    ring: Arc<Ring>,
    n: u64,
    place: Place,
    off: usize,
    len: usize,
}

impl Held {
    /// Whether the kernel has copied the bytes: when they arrived, as they were few, or out of the
    /// window, before they were taken.
    pub fn has_escaped(&self) -> bool {
        self.place == Place::Escape
    }

    /// The bytes.
    pub fn view(&self) -> View<'_> {
        // SAFETY: by the invariant the range is in the mapping, which `ring` keeps.
        unsafe { View::new(self.ring.base_of(self.place).add(self.off), self.len) }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("n", &self.n)
            .field("place", &self.place)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ring.give_back(self.n);
    }
}

#[cfg(test)]
mod tests;
