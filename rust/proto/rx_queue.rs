// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a channel: segments that have arrived and were not freed, in stream order.
//!
//! A segment lies in the channel's window, in something that is held for it (a block of the
//! receive queue, or a copy of one), or, if it was small, in memory that the program sees
//! ([`Moved::Small`]). It is consumed by recv(), or by the program itself
//! through a ring of shared descriptors ([`Descriptors`]), in any order; its room is given back in
//! the stream's order ([`RxQueue::reap`]). Pages of the window may be mapped into the program: then
//! the segment is finished once they were released as well.
//!
//! Unread segments may escape from the window to main memory, oldest first:
//! [`RxQueue::next_to_move`] chooses one, the caller copies it without holding the queue, and
//! [`RxQueue::move_held`] or [`RxQueue::move_to_area`] completes the move, unless a reader has
//! begun to read it by then. Its room is the peer's again as far as [`RxQueue::give`] allows; moved
//! segments are always older than those in the window.

use core::ops::DerefMut;

use super::Violation;

/// The states of descriptors shared with a program, which may write anything to them: they decide
/// which segments to offer and when one is done, never addresses or lengths.
pub trait Descriptors {
    /// Takes segment `index` for the kernel; false when the program has it.
    fn claim(&self, index: u32) -> bool;
    /// Whether the program has given segment `index` back.
    fn is_done(&self, index: u32) -> bool;
    /// Whether segment `index` has not been taken by any reader.
    fn is_waiting(&self, index: u32) -> bool;
    /// The kernel has consumed segment `index`.
    fn set_done(&self, index: u32);
    /// Segment `index` is out of the queue.
    fn clear(&self, index: u32);
    /// Where segments that the program has not taken may be moved.
    fn escape_target(&self) -> EscapeTarget;
    /// Segment `index` now lies in the escape area at `off`; false when the program has it already.
    fn escape(&self, index: u32, off: u32) -> bool;
}

/// Where segments that the program has not taken may be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EscapeTarget {
    /// Anywhere: recv() reads it.
    Anywhere,
    /// The escape area of the ring.
    Area,
    /// Nowhere: the program finds it in the window.
    Nowhere,
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
    fn escape_target(&self) -> EscapeTarget {
        EscapeTarget::Anywhere
    }
    fn escape(&self, _: u32, _: u32) -> bool {
        false
    }
}

/// Where the bytes of a segment are, if they were copied out of the memory that they came into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Moved {
    /// They were not, or `held` has a copy of a block.
    #[default]
    No,
    /// In main memory: `held` has them. They came into the window.
    Copy,
    /// In the ring's escape area, at this offset. They came into the window.
    Area(u32),
    /// In the ring's small area, at this offset. They came in a block, and were copied when they
    /// arrived.
    Small(u32),
}

/// A segment that may be moved to main memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToMove {
    /// Its index.
    pub index: u32,
    /// Position of its first byte in the stream, which identifies it.
    pub pos: u64,
    /// Bytes.
    pub len: u32,
    /// When it arrived.
    pub born: u64,
    /// Where it lies in the window, if it does.
    pub window_off: Option<u32>,
    /// Whether it moves to the escape area of the program's ring.
    pub to_area: bool,
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
    /// The holder of its bytes, if it is not in the window, or a program has peeked at it. A reader
    /// may borrow it by taking it out.
    pub held: Option<T>,
    /// Bytes that recv() has consumed.
    pub taken: u32,
    /// recv() consumes it; the program's descriptor has no effect any more.
    pub claimed: bool,
    /// Consumed bytes that are in mapped pages, and were not copied.
    pub mapped: u32,
    /// When it arrived, in nanoseconds of any clock.
    pub born: u64,
    /// Where it is now, if it was copied.
    pub moved: Moved,
}

impl<T> Segment<T> {
    /// Bytes of the window that it takes, or took before it was moved.
    fn room(&self) -> u64 {
        match (self.window_off, self.moved) {
            (None, Moved::No | Moved::Small(_)) => 0,
            _ => u64::from(self.len).saturating_add(u64::from(self.pad)),
        }
    }
}

/// A segment removed from the queue.
pub struct Freed<T> {
    /// Bytes of window that the peer gets back.
    pub window: u32,
    /// Bytes of DATA payload that the peer may send again.
    pub small: u32,
    /// Bytes that the program consumed itself, without recv().
    pub by_program: u32,
    /// The holder of the data.
    pub held: Option<T>,
    /// When it had arrived.
    pub born: u64,
    /// Where it lay in the window, until now.
    pub window_off: Option<u32>,
    /// Where it was copied to.
    pub moved: Moved,
    /// Bytes.
    pub len: u32,
}

/// Consumed by recv() and not freed for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// Segments.
    pub segments: u32,
    /// Bytes of the window.
    pub window: u64,
    /// Bytes of DATA payload.
    pub small: u64,
}

/// The index of a segment in storage; a power of two of its slots is used.
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
    /// Unread bytes.
    bytes: u64,
    /// Bytes in mapped pages.
    mapped: u64,
    /// Bytes of the window that belong to segments still in it.
    in_window: u64,
    /// Bytes of the window that belonged to moved segments that are still in the queue.
    moved: u64,
    /// Of `moved`: bytes that were given to the peer.
    given: u64,
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
            mapped: 0,
            in_window: 0,
            moved: 0,
            given: 0,
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

    /// Takes larger storage, and returns the unused one: the new one, if it is not larger. The
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
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that were not consumed yet.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes in mapped pages that were not released yet, as far as [`RxQueue::reap`] has seen.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Consumed segments that are not freed yet, because they or earlier ones have mapped pages, or
    /// earlier ones are unread.
    pub fn spent(&mut self) -> Spent {
        let mut spent = Spent::default();
        for index in self.indices() {
            let Some(seg) = self.get_mut(index).filter(|seg| seg.taken == seg.len) else {
                continue;
            };
            let room = u64::from(seg.len).saturating_add(u64::from(seg.pad));
            spent.segments = spent.segments.saturating_add(1);
            match (seg.window_off, seg.moved) {
                (Some(_), _) => spent.window = spent.window.saturating_add(room),
                (None, Moved::No | Moved::Small(_)) => {
                    spent.small = spent.small.saturating_add(room);
                }
                _ => {}
            }
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
        let room = seg.room();
        let at = self.slot(index);
        match self.slots.get_mut(at) {
            Some(slot @ None) => *slot = Some(seg),
            _ => return Err(Violation::Credit),
        }
        self.in_window = self.in_window.saturating_add(room);
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

    /// Whether there is unread data, for recv() or in the ring.
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

    /// The pages of `n` bytes of segment `index` were mapped into the program.
    pub fn set_mapped(&mut self, index: u32, n: u32) {
        if let Some(seg) = self.get_mut(index) {
            let n = n.min(seg.len.saturating_sub(seg.mapped));
            seg.mapped = seg.mapped.saturating_add(n);
            self.mapped = self.mapped.saturating_add(u64::from(n));
        }
    }

    /// Removes the oldest segment if it is consumed. For a segment with mapped pages, `is_back`
    /// says whether all of them were released.
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
        if seg.mapped > 0 && !is_back(seg) {
            return None;
        }
        let left = seg.len.saturating_sub(seg.taken);
        let mapped = u64::from(seg.mapped);
        let mut freed = Freed {
            window: 0,
            small: if seg.room() > 0 { 0 } else { seg.len },
            by_program: left,
            held: seg.held.take(),
            born: seg.born,
            window_off: seg.window_off,
            moved: seg.moved,
            len: seg.len,
        };
        freed.window = self.drop_head(ring);
        self.bytes = self.bytes.saturating_sub(u64::from(left));
        self.mapped = self.mapped.saturating_sub(mapped);
        Some(freed)
    }

    /// Removes the oldest segment, consumed or not, and returns its holder: the channel is gone and
    /// will not be read.
    pub fn discard(&mut self, ring: &impl Descriptors) -> Option<Option<T>> {
        let seg = self.get_mut(self.head)?;
        let left = seg.len.saturating_sub(seg.taken);
        let mapped = u64::from(seg.mapped);
        let held = seg.held.take();
        self.drop_head(ring);
        self.bytes = self.bytes.saturating_sub(u64::from(left));
        self.mapped = self.mapped.saturating_sub(mapped);
        Some(held)
    }

    /// Removes the oldest segment. Returns the bytes of the window that were not given back to the
    /// peer yet.
    fn drop_head(&mut self, ring: &impl Descriptors) -> u32 {
        let index = self.head;
        ring.clear(index);
        let at = self.slot(index);
        let seg = self.slots.get_mut(at).and_then(Option::take);
        self.head = index.wrapping_add(1);
        let (room, in_window) = seg.map_or((0, true), |s| (s.room(), s.window_off.is_some()));
        if in_window {
            self.in_window = self.in_window.saturating_sub(room);
            return room as u32;
        }
        // Room is given back in the order of the stream, so that of the oldest segment first.
        let given = self.given.min(room);
        self.given = self.given.saturating_sub(given);
        self.moved = self.moved.saturating_sub(room);
        room.saturating_sub(given) as u32
    }

    /// Bytes of the window that belong to segments still in it.
    pub fn in_window(&self) -> u64 {
        self.in_window
    }

    /// Window bytes of segments that were moved and not consumed.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// The next segment that may be moved to main memory: the oldest one that arrived before
    /// `before`, is neither taken nor being read, and is behind no segment that keeps its room in
    /// the window; with `window` false, only segments outside of the window. `in_place` tells of
    /// the holder of such a segment whether the segment should be moved.
    pub fn next_to_move(
        &mut self,
        ring: &impl Descriptors,
        before: u64,
        window: bool,
        in_place: impl Fn(&T) -> bool,
    ) -> Option<ToMove> {
        let mut stuck = !window;
        for index in self.indices() {
            let seg = self.get_mut(index)?;
            if seg.born >= before {
                return None;
            }
            let done = seg.taken == seg.len;
            let to = match (seg.window_off, seg.claimed) {
                (Some(_), false) => ring.escape_target(),
                _ => EscapeTarget::Anywhere,
            };
            let free = match seg.window_off {
                None => !done && seg.held.as_ref().is_some_and(&in_place),
                Some(_) => {
                    let waits = seg.claimed || ring.is_waiting(index);
                    stuck |= done || seg.mapped > 0 || !waits || to == EscapeTarget::Nowhere;
                    !stuck
                }
            };
            if free {
                return Some(ToMove {
                    index,
                    pos: seg.pos,
                    len: seg.len,
                    born: seg.born,
                    window_off: seg.window_off,
                    to_area: to == EscapeTarget::Area,
                });
            }
        }
        None
    }

    /// The segment of `what`, if it was not moved or read since.
    fn still(&mut self, what: &ToMove) -> Option<&mut Segment<T>> {
        let seg = self.get_mut(what.index)?;
        let same = seg.pos == what.pos && seg.window_off == what.window_off;
        (same && seg.taken < seg.len && seg.mapped == 0).then_some(seg)
    }

    fn note_moved(&mut self, room: u64) {
        self.in_window = self.in_window.saturating_sub(room);
        self.moved = self.moved.saturating_add(room);
    }

    /// Makes `copy`, which has the bytes of `what`, their holder; not while recv() reads. Returns
    /// the holder that is not needed: the old one, or the copy if it came too late.
    pub fn move_held(
        &mut self,
        ring: &impl Descriptors,
        what: &ToMove,
        copy: T,
    ) -> Result<Option<T>, T> {
        let index = what.index;
        let Some(seg) = self.still(what) else {
            return Err(copy);
        };
        if seg.window_off.is_none() {
            return match &mut seg.held {
                Some(held) => Ok(Some(core::mem::replace(held, copy))),
                None => Err(copy),
            };
        }
        // A segment that the program may take from its ring must not be reserved for recv().
        let free =
            seg.claimed || ring.escape_target() == EscapeTarget::Anywhere && ring.claim(index);
        if !free {
            return Err(copy);
        }
        seg.claimed = true;
        // The peer may have changed what a program has peeked at: that copy stays.
        let unneeded = match &seg.held {
            Some(_) => Some(copy),
            None => {
                seg.held = Some(copy);
                None
            }
        };
        seg.window_off = None;
        seg.moved = Moved::Copy;
        let room = seg.room();
        self.note_moved(room);
        Ok(unneeded)
    }

    /// The bytes of `what` were copied to the ring's escape area at `off`; the program finds them
    /// there from now on. Returns false if it has begun to read the original.
    pub fn move_to_area(&mut self, ring: &impl Descriptors, what: &ToMove, off: u32) -> bool {
        let index = what.index;
        let Some(seg) = self.still(what) else {
            return false;
        };
        if seg.claimed || seg.window_off.is_none() || !ring.escape(index, off) {
            return false;
        }
        seg.window_off = None;
        seg.moved = Moved::Area(off);
        let room = seg.room();
        self.note_moved(room);
        true
    }

    /// Returns how much room of moved segments to give to the peer, so that it never has more than
    /// `most` of it; it counts as given.
    pub fn give(&mut self, most: u64) -> u64 {
        let owed = self.moved.saturating_sub(self.given);
        let now = owed.min(most.saturating_sub(self.given));
        self.given = self.given.saturating_add(now);
        now
    }
}
