// SPDX-License-Identifier: GPL-2.0

//! What has arrived on a channel and has not been given back: segments in stream order.
//!
//! A segment lies in the channel's window or in something that is held for it (a block of the
//! shared receive queue, or a copy of one). It is consumed by recv(), or by the program itself
//! through a ring of shared descriptors ([`Descriptors`]), in any order; its room is given back
//! in the stream's order ([`RxQueue::reap`]). Pages of the window may be lent: then the segment is
//! done with when they have come back as well.

use core::ops::DerefMut;

use super::Violation;

/// The states of descriptors that a program shares. Its memory is the program's to scribble on:
/// answers are used for what to offer it and when it is done, never for addresses or lengths.
pub trait Descriptors {
    /// Takes segment `index` for the kernel; false when the program has it.
    fn claim(&self, index: u32) -> bool;
    /// Whether the program has given segment `index` back.
    fn is_done(&self, index: u32) -> bool;
    /// Whether segment `index` waits for anybody to take it.
    fn is_waiting(&self, index: u32) -> bool;
    /// The kernel has consumed segment `index`.
    fn set_done(&self, index: u32);
    /// Segment `index` is out of the queue.
    fn clear(&self, index: u32);
}

/// No ring: everything is the kernel's.
pub struct NoRing;

impl Descriptors for NoRing {
    fn claim(&self, _: u32) -> bool {
        true
    }
    fn is_done(&self, _: u32) -> bool {
        false
    }
    fn is_waiting(&self, _: u32) -> bool {
        true
    }
    fn set_done(&self, _: u32) {}
    fn clear(&self, _: u32) {}
}

/// A piece of the stream that arrived at once.
pub struct Segment<T> {
    /// Position of the first byte in the stream.
    pub pos: u64,
    /// Bytes.
    pub len: u32,
    /// Where it lies in the window, if it does.
    pub window_off: Option<u32>,
    /// Bytes of the window that were left out before it.
    pub pad: u32,
    /// What holds it, if it is not in the window. A reader may borrow it by taking it out.
    pub held: Option<T>,
    /// Bytes that recv() has consumed.
    pub taken: u32,
    /// recv() consumes it; the program's descriptor does not count any more.
    pub claimed: bool,
    /// Of what was consumed: bytes in pages that were lent, and not copied.
    pub lent: u32,
}

/// What leaves the queue.
pub struct Freed<T> {
    /// Bytes of window that the peer gets back.
    pub window: u32,
    /// Bytes of DATA payload that the peer may send again.
    pub small: u32,
    /// Bytes that the program consumed itself, without recv().
    pub by_program: u32,
    /// What held the data.
    pub held: Option<T>,
}

/// What recv() has consumed and the peer does not have back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// Segments.
    pub segments: u32,
    /// Bytes of the window.
    pub window: u64,
    /// Bytes of DATA payload.
    pub small: u64,
}

/// Where a segment is in storage of which a power of two is used.
fn slot<T>(slots: &[Option<Segment<T>>], index: u32) -> usize {
    match slots.len().checked_ilog2() {
        Some(log) => index as usize & (1_usize << log).wrapping_sub(1),
        None => 0,
    }
}

/// The queue. The capacity is the storage's length, rounded down to a power of two.
pub struct RxQueue<S> {
    slots: S,
    /// Index of the oldest segment, wrapping.
    head: u32,
    /// Index of the next segment to come, wrapping.
    tail: u32,
    /// Bytes that wait.
    bytes: u64,
    /// Bytes in pages that are lent.
    lent: u64,
}

impl<T, S: DerefMut<Target = [Option<Segment<T>>]>> RxQueue<S> {
    /// An empty queue.
    pub fn new(slots: S) -> Self {
        Self::starting_at(slots, 0)
    }

    /// An empty queue whose first segment gets index `first`.
    pub fn starting_at(slots: S, first: u32) -> Self {
        Self {
            slots,
            head: first,
            tail: first,
            bytes: 0,
            lent: 0,
        }
    }

    fn slot(&self, index: u32) -> usize {
        slot(&self.slots, index)
    }

    /// Whether the storage has no room for one more segment.
    pub fn is_full(&self) -> bool {
        match self.slots.get(self.slot(self.tail)) {
            Some(slot) => slot.is_some(),
            None => true,
        }
    }

    /// Takes larger storage, and returns what is not needed any more: that, if it is not larger. The
    /// segments keep their indices.
    pub fn move_to(&mut self, slots: S) -> S {
        if slots.len() <= self.slots.len() {
            return slots;
        }
        let mut old = core::mem::replace(&mut self.slots, slots);
        for index in self.indices() {
            let (from, to) = (slot(&old, index), self.slot(index));
            if let (Some(from), Some(to)) = (old.get_mut(from), self.slots.get_mut(to)) {
                core::mem::swap(from, to);
            }
        }
        old
    }

    /// Segments in the queue.
    pub fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether the queue holds no segment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that nobody has consumed yet.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in pages that were lent and have not come back, as far as [`RxQueue::reap`] has seen.
    pub fn lent(&self) -> u64 {
        self.lent
    }

    /// What is consumed but not given back yet, for the sake of something before it that is lent.
    pub fn spent(&mut self) -> Spent {
        let mut spent = Spent::default();
        for index in self.indices() {
            let Some(seg) = self.get_mut(index).filter(|seg| seg.taken == seg.len) else {
                continue;
            };
            let room = u64::from(seg.len).saturating_add(u64::from(seg.pad));
            spent.segments = spent.segments.saturating_add(1);
            let sum = match seg.window_off {
                Some(_) => &mut spent.window,
                None => &mut spent.small,
            };
            *sum = sum.saturating_add(room);
        }
        spent
    }

    /// Indices of the segments, oldest first.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        let head = self.head;
        (0..self.len()).map(move |i| head.wrapping_add(i))
    }

    /// Appends a segment; returns its index. A peer that overfills the queue has broken the
    /// protocol.
    pub fn push(&mut self, seg: Segment<T>) -> Result<u32, Violation> {
        let index = self.tail;
        let len = seg.len;
        let at = self.slot(index);
        match self.slots.get_mut(at) {
            Some(slot @ None) => *slot = Some(seg),
            _ => return Err(Violation::Credit),
        }
        self.tail = index.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(len));
        Ok(index)
    }

    /// The segment at `index`.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Segment<T>> {
        if index.wrapping_sub(self.head) >= self.len() {
            return None;
        }
        let at = self.slot(index);
        self.slots.get_mut(at)?.as_mut()
    }

    /// The oldest segment from index `from` on that recv() may read, claimed for it. Without
    /// `from`, or if that has left the queue, from the beginning.
    pub fn claim_next(&mut self, ring: &impl Descriptors, from: Option<u32>) -> Option<u32> {
        let skip = from
            .map(|f| f.wrapping_sub(self.head))
            .filter(|skip| *skip <= self.len())
            .unwrap_or(0);
        for i in skip..self.len() {
            let index = self.head.wrapping_add(i);
            let seg = self.get_mut(index)?;
            if seg.taken == seg.len {
                continue;
            }
            if seg.claimed || ring.claim(index) {
                seg.claimed = true;
                return Some(index);
            }
        }
        None
    }

    /// Whether anything waits to be taken, by recv() or through the ring.
    pub fn readable(&mut self, ring: &impl Descriptors) -> bool {
        self.indices().any(|index| {
            self.get_mut(index)
                .is_some_and(|seg| seg.taken < seg.len && (seg.claimed || ring.is_waiting(index)))
        })
    }

    /// recv() has consumed `n` more bytes of a segment it claimed.
    pub fn advance(&mut self, ring: &impl Descriptors, index: u32, n: u32) {
        if let Some(seg) = self.get_mut(index) {
            let n = n.min(seg.len.saturating_sub(seg.taken));
            seg.taken = seg.taken.saturating_add(n);
            if seg.taken == seg.len {
                ring.set_done(index);
            }
            self.bytes = self.bytes.saturating_sub(u64::from(n));
        }
    }

    /// The pages of `n` bytes of segment `index` are lent to whoever reads them.
    pub fn lend(&mut self, index: u32, n: u32) {
        if let Some(seg) = self.get_mut(index) {
            let n = n.min(seg.len.saturating_sub(seg.lent));
            seg.lent = seg.lent.saturating_add(n);
            self.lent = self.lent.saturating_add(u64::from(n));
        }
    }

    /// Removes the oldest segment if it is consumed. `is_back` says of a segment that is lent whether
    /// nobody has its pages any more.
    pub fn reap(
        &mut self,
        ring: &impl Descriptors,
        is_back: impl FnOnce(&Segment<T>) -> bool,
    ) -> Option<Freed<T>> {
        let index = self.head;
        let seg = self.get_mut(index)?;
        let by_recv = seg.taken == seg.len;
        if !by_recv && (seg.claimed || !ring.is_done(index)) {
            return None;
        }
        if seg.lent > 0 && !is_back(seg) {
            return None;
        }
        let left = seg.len.saturating_sub(seg.taken);
        let lent = u64::from(seg.lent);
        let in_window = seg.window_off.is_some();
        let freed = Freed {
            window: if in_window {
                seg.len.saturating_add(seg.pad)
            } else {
                0
            },
            small: if in_window { 0 } else { seg.len },
            by_program: left,
            held: seg.held.take(),
        };
        self.drop_head(ring);
        self.bytes = self.bytes.saturating_sub(u64::from(left));
        self.lent = self.lent.saturating_sub(lent);
        Some(freed)
    }

    /// Removes the oldest segment, consumed or not, and returns what held it: the channel is
    /// gone and nobody will read.
    pub fn discard(&mut self, ring: &impl Descriptors) -> Option<Option<T>> {
        let seg = self.get_mut(self.head)?;
        let left = seg.len.saturating_sub(seg.taken);
        let lent = u64::from(seg.lent);
        let held = seg.held.take();
        self.drop_head(ring);
        self.bytes = self.bytes.saturating_sub(u64::from(left));
        self.lent = self.lent.saturating_sub(lent);
        Some(held)
    }

    fn drop_head(&mut self, ring: &impl Descriptors) {
        let index = self.head;
        ring.clear(index);
        let at = self.slot(index);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = None;
        }
        self.head = index.wrapping_add(1);
    }
}
