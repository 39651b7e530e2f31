// SPDX-License-Identifier: GPL-2.0

//! A queue in storage of a fixed size, which is passed in.

use core::ops::DerefMut;

/// The queue. Its storage is filled with `None`.
pub struct Fifo<S> {
    slots: S,
    head: usize,
    len: usize,
}

impl<T: 'static, S: DerefMut<Target = [Option<T>]>> Fifo<S> {
    /// An empty queue.
    pub fn new(slots: S) -> Self {
        Self {
            slots,
            head: 0,
            len: 0,
        }
    }

    /// Values in the queue.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most values that the storage takes.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot of the value `n` behind the head.
    fn slot(&self, n: usize) -> usize {
        let at = self.head.wrapping_add(n);
        at.checked_rem(self.slots.len()).unwrap_or(0)
    }

    /// The first value.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The value `n` behind the first.
    pub fn get(&self, n: usize) -> Option<&T> {
        if n >= self.len {
            return None;
        }
        self.slots.get(self.slot(n))?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, n: usize) -> Option<&mut T> {
        if n >= self.len {
            return None;
        }
        let at = self.slot(n);
        self.slots.get_mut(at)?.as_mut()
    }

    /// Adds a value at the end; gives it back if there is no slot.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let at = self.slot(self.len);
        match self.slots.get_mut(at) {
            Some(slot) if slot.is_none() => {
                *slot = Some(value);
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            _ => Err(value),
        }
    }

    /// Adds a value before the first; gives it back if there is no slot.
    pub fn push_front(&mut self, value: T) -> Result<(), T> {
        let last = self.slots.len().wrapping_sub(1);
        let at = match self.head {
            0 => last,
            head => head.wrapping_sub(1),
        };
        match self.slots.get_mut(at) {
            Some(slot) if slot.is_none() => {
                *slot = Some(value);
                self.head = at;
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            _ => Err(value),
        }
    }

    /// Takes the first value out.
    pub fn pop(&mut self) -> Option<T> {
        let value = self.slots.get_mut(self.head)?.take()?;
        self.head = self.slot(1);
        self.len = self.len.wrapping_sub(1);
        Some(value)
    }

    /// Moves to a larger storage; returns the old one, empty. Returns `slots` if it is not larger.
    pub fn move_to(&mut self, mut slots: S) -> S {
        if slots.len() <= self.slots.len() {
            return slots;
        }
        let len = self.len;
        for slot in slots.iter_mut().take(len) {
            *slot = self.pop();
        }
        core::mem::swap(&mut slots, &mut self.slots);
        (self.head, self.len) = (0, len);
        slots
    }
}
