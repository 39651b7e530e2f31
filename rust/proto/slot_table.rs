// SPDX-License-Identifier: GPL-2.0

//! A table from channel numbers to channels, with generations.
//!
//! Numbers start at 1. A number is handed out again only after its entry was removed, and with
//! the next generation, so that a late message for the old channel finds nothing.

use core::ops::DerefMut;

use super::ChanId;

/// One entry.
pub struct Slot<T> {
    gen: u32,
    next_free: u32,
    value: Option<T>,
}

impl<T> Slot<T> {
    /// An entry that has never been used; storage is filled with these.
    pub const fn empty() -> Self {
        Self {
            gen: 0,
            next_free: 0,
            value: None,
        }
    }
}

/// The table; `S` is its storage, as many entries as it will ever hold.
pub struct SlotTable<S> {
    slots: S,
    /// 1 + index of the first entry of the free list, 0: none.
    free: u32,
    /// Entries from here on have never been used.
    fresh: u32,
    used: u32,
}

impl<T, S: DerefMut<Target = [Slot<T>]>> SlotTable<S> {
    /// An empty table over `slots`.
    pub fn new(slots: S) -> Self {
        Self {
            slots,
            free: 0,
            fresh: 0,
            used: 0,
        }
    }

    fn slot_mut(&mut self, q: u32) -> Option<&mut Slot<T>> {
        self.slots.get_mut(usize::try_from(q.checked_sub(1)?).ok()?)
    }

    /// Takes a free entry; `make` gets its number. `None` when the table is full.
    pub fn insert(&mut self, make: impl FnOnce(ChanId) -> T) -> Option<ChanId> {
        let q = match self.free {
            0 => self.fresh.checked_add(1)?,
            q => q,
        };
        let slot = self.slot_mut(q)?;
        slot.gen = slot.gen.wrapping_add(1);
        let id = ChanId { q, gen: slot.gen };
        slot.value = Some(make(id));
        let next = slot.next_free;
        if self.free == 0 {
            self.fresh = q;
        } else {
            self.free = next;
        }
        self.used = self.used.wrapping_add(1);
        Some(id)
    }

    /// The entry, if number and generation are those of a live one.
    pub fn get(&self, id: ChanId) -> Option<&T> {
        let index = usize::try_from(id.q.checked_sub(1)?).ok()?;
        self.slots
            .get(index)
            .filter(|s| s.gen == id.gen)?
            .value
            .as_ref()
    }

    /// Removes the entry and returns it.
    pub fn remove(&mut self, id: ChanId) -> Option<T> {
        let free = self.free;
        let slot = self.slot_mut(id.q)?;
        if slot.gen != id.gen {
            return None;
        }
        let value = slot.value.take()?;
        slot.next_free = free;
        self.free = id.q;
        self.used = self.used.wrapping_sub(1);
        Some(value)
    }

    /// The first live entry whose number is at least `q`, and its number.
    pub fn next_from(&self, q: u32) -> Option<(u32, &T)> {
        let start = q.max(1);
        (start..=self.fresh).find_map(|q| {
            let index = usize::try_from(q.checked_sub(1)?).ok()?;
            Some((q, self.slots.get(index)?.value.as_ref()?))
        })
    }

    /// Live entries.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Whether there is no live entry.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}
