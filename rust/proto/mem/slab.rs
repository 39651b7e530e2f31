// SPDX-License-Identifier: GPL-2.0

//! A table of values by number, with a free list. Numbers are reused; the most recently freed one
//! first.

use core::ops::DerefMut;

/// A place in the table; storage is filled with empty ones.
pub struct Slot<T> {
    value: Option<T>,
    /// 1 + the next free slot, 0: none.
    next_free: u32,
}

impl<T> Slot<T> {
    /// An empty slot.
    pub const EMPTY: Self = Self {
        value: None,
        next_free: 0,
    };
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The table.
pub struct Slab<S> {
    slots: S,
    /// 1 + the first free slot, 0: none.
    free: u32,
    /// Slots from here on have never been used.
    fresh: u32,
    len: u32,
}

impl<T: 'static, S: DerefMut<Target = [Slot<T>]>> Slab<S> {
    /// An empty table; `slots` are empty.
    pub fn new(slots: S) -> Self {
        Self {
            slots,
            free: 0,
            fresh: 0,
            len: 0,
        }
    }

    /// Values in the table.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most values.
    pub fn room(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no room for another value.
    pub fn is_full(&self) -> bool {
        self.len() >= self.slots.len()
    }

    /// Adds a value; `None`, and the value is dropped, if the table is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let at = match self.free.checked_sub(1) {
            Some(at) => at,
            None => self.fresh,
        };
        let slot = self.slots.get_mut(at as usize)?;
        if self.free == 0 {
            self.fresh = self.fresh.saturating_add(1);
        } else {
            self.free = slot.next_free;
        }
        slot.value = Some(value);
        self.len = self.len.saturating_add(1);
        Some(at)
    }

    /// Takes a value out.
    pub fn remove(&mut self, at: u32) -> Option<T> {
        let slot = self.slots.get_mut(at as usize)?;
        let value = slot.value.take()?;
        slot.next_free = self.free;
        self.free = at.saturating_add(1);
        self.len = self.len.saturating_sub(1);
        Some(value)
    }

    /// The value with that number.
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.value.as_ref()
    }

    /// As [`Self::get`].
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.value.as_mut()
    }

    /// All values with their numbers, in the order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let used = self.slots.iter().take(self.fresh as usize);
        let numbered = (0_u32..).zip(used);
        numbered.filter_map(|(at, slot)| slot.value.as_ref().map(|v| (at, v)))
    }

    /// As [`Self::iter`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let used = self.slots.iter_mut().take(self.fresh as usize);
        let numbered = (0_u32..).zip(used);
        numbered.filter_map(|(at, slot)| slot.value.as_mut().map(|v| (at, v)))
    }
}
