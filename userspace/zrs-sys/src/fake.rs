// SPDX-License-Identifier: GPL-2.0
//! A ring in memory and the kernel's side of it, so that the program's side can be tested without
//! the module. Its escape area is as long as its window, and used in the same way, round and round.

use std::collections::VecDeque;
use std::io;
use std::mem::{self, size_of};
#[cfg(not(miri))]
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr;
use std::slice;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::abi::*;
use crate::ring::{Doorbell, Ring};
use crate::Map;

/// The kernel's side: publishes segments as the peer's bytes come in, moves them out of the window,
/// reclaims what is DONE.
#[derive(Debug)]
pub struct Kernel {
    ring: Map,
    window: Area,
    escape: Area,
    entries: u32,
    head: u64,
    tail: u64,
    pos: u64,
    /// The room of each published segment in the window and in the escape area, by order.
    rooms: VecDeque<[usize; 2]>,
}

/// Memory that is used in order, round and round.
#[derive(Debug)]
struct Area {
    map: Map,
    /// Where the next bytes go, and how many are free.
    put: usize,
    free: usize,
}

impl Area {
    fn new(map: Map) -> Self {
        let free = map.len();
        Self { map, put: 0, free }
    }

    /// Copies `data` in, in one piece. Returns where it is, and the room it takes including bytes
    /// skipped at the end. None: no room.
    fn put(&mut self, data: &[u8]) -> Option<(usize, usize)> {
        let len = self.map.len();
        let skip = match self.put + data.len() > len {
            true => len - self.put,
            false => 0,
        };
        let room = skip + data.len();
        if self.free < room {
            return None;
        }
        let off = if skip > 0 { 0 } else { self.put };
        // SAFETY: the range is in the mapping and free: no descriptor in use names it.
        unsafe {
            let to = self.map.base().as_ptr().add(off);
            ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
        self.put = (off + data.len()) % len;
        self.free -= room;
        Some((off, room))
    }
}

/// Counts doorbells, and keeps the heads that were waited for.
#[derive(Clone, Debug, Default)]
pub struct Bell(pub Arc<AtomicU64>, pub Arc<Mutex<Vec<Wait>>>);

/// The head that was waited for, and for how long.
pub type Wait = (u64, Option<Duration>);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A while, whatever comes.
    fn wait(&self, head: u64, timeout: Option<Duration>) -> io::Result<()> {
        let mut waits = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        waits.push((head, timeout));
        drop(waits);
        thread::sleep(Duration::from_millis(1));
        Ok(())
    }
}

/// Both sides of a ring of `entries` descriptors and a window of `window` bytes.
pub fn pair(entries: u32, window: usize, bell: Bell) -> io::Result<(Kernel, Arc<Ring>)> {
    pair_from(0, entries, window, bell)
}

/// As [`pair`], for a stream with `first` segments read before the ring was made.
pub fn pair_from(
    first: u64,
    entries: u32,
    window: usize,
    bell: Bell,
) -> io::Result<(Kernel, Arc<Ring>)> {
    let desc_offset = size_of::<zrs_ring>();
    let ring_len = desc_offset + entries as usize * size_of::<zrs_desc>();
    let (kernel_ring, ring) = twins(ring_len, true)?;
    let (kernel_window, window_map) = twins(window, false)?;
    let (kernel_escape, escape_map) = twins(window, false)?;
    let kernel = Kernel {
        ring: kernel_ring,
        window: Area::new(kernel_window),
        escape: Area::new(kernel_escape),
        entries,
        head: first,
        tail: first,
        pos: 0,
        rooms: VecDeque::new(),
    };
    let start = zrs_ring {
        version: ZRS_RING_VERSION,
        entries,
        desc_offset: desc_offset as u32,
        first,
        head: first,
        ..Default::default()
    };
    // SAFETY: the mapping is large enough, and is not shared yet.
    unsafe { kernel.head_ptr().write(start) };

    // SAFETY: `Kernel` keeps the protocol.
    let ring = unsafe { Ring::new(ring, window_map, Some(escape_map), Box::new(bell))? };
    Ok((kernel, Arc::new(ring)))
}

/// The program's side alone, of a ring of `bytes` bytes that begins with `head`, all else zero,
/// without an escape area. Errors as [`Ring::open`].
pub fn from_head(head: zrs_ring, bytes: usize, window: usize) -> io::Result<Arc<Ring>> {
    let map = Map::anonymous(bytes)?;
    if bytes >= size_of::<zrs_ring>() {
        // SAFETY: it fits into the mapping, which is not shared yet.
        unsafe { map.base().cast::<zrs_ring>().write(head) };
    }
    // SAFETY: there is no other side yet.
    let ring = unsafe {
        Ring::new(
            map,
            Map::anonymous(window)?,
            None,
            Box::new(Bell::default()),
        )?
    };
    Ok(Arc::new(ring))
}

/// Two mappings of the same memory: the kernel's and the program's, which may write or not.
#[cfg(not(miri))]
fn twins(len: usize, writable: bool) -> io::Result<(Map, Map)> {
    let fd = memfd(len)?;
    let kernel = Map::shared_write(fd.as_fd(), 0, len)?;
    let program = match writable {
        true => Map::shared_write(fd.as_fd(), 0, len)?,
        false => Map::shared_read(fd.as_fd(), 0, len)?,
    };
    Ok((kernel, program))
}

#[cfg(miri)]
fn twins(len: usize, _: bool) -> io::Result<(Map, Map)> {
    Map::twins(len)
}

#[cfg(not(miri))]
fn memfd(len: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; the descriptor returned is new.
    let fd = unsafe {
        let fd = libc::memfd_create(c"zrs-fake".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    std::fs::File::from(fd.try_clone()?).set_len(len as u64)?;
    Ok(fd)
}

impl Kernel {
    fn head_ptr(&self) -> *mut zrs_ring {
        self.ring.base().cast().as_ptr()
    }

    fn desc_ptr(&self, n: u64) -> *mut zrs_desc {
        let index = (n % u64::from(self.entries)) as usize;
        // SAFETY: `pair` made the mapping large enough.
        unsafe {
            self.ring
                .base()
                .add(size_of::<zrs_ring>())
                .cast::<zrs_desc>()
                .add(index)
                .as_ptr()
        }
    }

    fn state(&self, n: u64) -> &AtomicU32 {
        // SAFETY: in the mapping, aligned, accessed atomically only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.desc_ptr(n)).state) }
    }

    fn need_credit(&self) -> &AtomicU32 {
        // SAFETY: in the mapping, aligned, accessed atomically only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.head_ptr()).need_credit) }
    }

    /// Publishes `data` as one READY segment. False: no room in the window or no descriptor.
    pub fn put(&mut self, data: &[u8]) -> bool {
        self.put_at(data).is_some()
    }

    /// As [`Kernel::put`]; returns where in the window it is.
    pub fn put_at(&mut self, data: &[u8]) -> Option<usize> {
        if self.full() {
            return None;
        }
        let (off, room) = self.window.put(data)?;
        self.announce(room, off, data.len(), ZRS_DESC_READY);
        Some(off)
    }

    /// Publishes `data` as one segment that is in the escape area from the beginning. False: no
    /// room there, or no descriptor. Not in a ring with [`Kernel::escape`]: the area is freed in the
    /// stream's order.
    pub fn put_small(&mut self, data: &[u8]) -> bool {
        if self.full() {
            return false;
        }
        let Some((to, room)) = self.escape.put(data) else {
            return false;
        };
        self.set_escape_off(self.head, to as u32);
        self.announce(0, 0, data.len(), ZRS_DESC_ESCAPED);
        if let Some(rooms) = self.rooms.back_mut() {
            rooms[1] = room;
        }
        true
    }

    /// Publishes a segment of `len` bytes that wait in the kernel. False: no descriptor.
    pub fn put_kernel(&mut self, len: usize) -> bool {
        if self.full() {
            return false;
        }
        self.publish(0, len, ZRS_DESC_KERNEL);
        true
    }

    /// Publishes a segment as it is told, sound or not, that takes no room.
    pub fn publish(&mut self, off: usize, len: usize, state: u32) {
        self.announce(0, off, len, state);
    }

    fn announce(&mut self, room: usize, off: usize, len: usize, state: u32) {
        self.rooms.push_back([room, 0]);
        let desc = self.desc_ptr(self.head);
        // SAFETY: the descriptor is FREE, so ours; the state is written atomically after.
        unsafe {
            (&raw mut (*desc).pos).write_volatile(self.pos);
            (&raw mut (*desc).off).write_volatile(off as u32);
            (&raw mut (*desc).len).write_volatile(len as u32);
        }
        self.state(self.head).store(state, Ordering::Release);
        self.pos += len as u64;
        self.head += 1;
        // SAFETY: in the mapping, aligned, accessed atomically only.
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.head_ptr()).head) };
        head.store(self.head, Ordering::Release);
    }

    fn full(&self) -> bool {
        self.head - self.tail == u64::from(self.entries)
    }

    /// Moves the oldest segment that has room of the window to the escape area, if it is READY: its
    /// bytes in the window are others soon. Returns its number, and where it is. None: there is
    /// none, the program has it, or the escape area has no room.
    pub fn escape(&mut self) -> Option<(u64, usize)> {
        let at = self.rooms.iter().position(|[room, _]| *room > 0)?;
        let n = self.tail + at as u64;
        let desc = self.desc_ptr(n);
        // SAFETY: the fields lie in the mapping, and only this side writes them.
        let (off, len) = unsafe {
            (
                (&raw const (*desc).off).read_volatile() as usize,
                (&raw const (*desc).len).read_volatile() as usize,
            )
        };
        if off.checked_add(len)? > self.window.map.len() {
            return None;
        }
        // SAFETY: the range is in the mapping, which only this side writes.
        let data = unsafe { slice::from_raw_parts(self.window.map.base().as_ptr().add(off), len) }
            .to_vec();
        let before = (self.escape.put, self.escape.free);
        let (to, room) = self.escape.put(&data)?;
        // SAFETY: in the mapping; the program reads it after it has seen ESCAPED.
        unsafe { (&raw mut (*desc).escape_off).write_volatile(to as u32) };
        let moved = self.state(n).compare_exchange(
            ZRS_DESC_READY,
            ZRS_DESC_ESCAPED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if moved.is_err() {
            (self.escape.put, self.escape.free) = before;
            return None;
        }
        // In the stream's order: bytes before it in the window are free already.
        self.window.free += mem::replace(&mut self.rooms[at], [0, room])[0];
        Some((n, to))
    }

    /// Where segment `n`'s descriptor says that it is in the escape area, if it is there.
    pub fn escape_off_of(&self, n: u64) -> u32 {
        let desc = self.desc_ptr(n);
        // SAFETY: in the mapping; only this side writes it.
        unsafe { (&raw const (*desc).escape_off).read_volatile() }
    }

    /// Puts anything where segment `n`'s descriptor says where in the escape area it is.
    pub fn set_escape_off(&self, n: u64, off: u32) {
        let desc = self.desc_ptr(n);
        // SAFETY: in the mapping; only this side writes it.
        unsafe { (&raw mut (*desc).escape_off).write_volatile(off) };
    }

    /// The program's recv() takes segment `n`, wholly (DONE) or in part.
    pub fn recv(&self, n: u64, wholly: bool) {
        let state = if wholly {
            ZRS_DESC_DONE
        } else {
            ZRS_DESC_KERNEL
        };
        self.state(n).store(state, Ordering::Release);
    }

    /// Puts anything into the state word of segment `n`'s descriptor.
    pub fn set_state(&self, n: u64, state: u32) {
        self.state(n).store(state, Ordering::Release);
    }

    /// The state of segment `n`'s descriptor.
    pub fn state_of(&self, n: u64) -> u32 {
        self.state(n).load(Ordering::Acquire)
    }

    /// Frees DONE segments, in the stream's order; returns their number.
    pub fn reclaim(&mut self) -> usize {
        let mut count = 0;
        while self.tail < self.head && self.state_of(self.tail) == ZRS_DESC_DONE {
            self.state(self.tail)
                .store(ZRS_DESC_FREE, Ordering::Release);
            self.tail += 1;
            let [window, escape] = self.rooms.pop_front().unwrap_or_default();
            self.window.free += window;
            self.escape.free += escape;
            count += 1;
        }
        count
    }

    /// Sets need_credit, then looks again, as the kernel does before it waits for the doorbell.
    pub fn want_credit(&mut self) -> usize {
        self.need_credit().store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.reclaim()
    }

    /// Whether need_credit is set.
    pub fn wants_credit(&self) -> bool {
        self.need_credit().load(Ordering::SeqCst) != 0
    }
}
