// SPDX-License-Identifier: GPL-2.0

//! Reassembly: the fragments of a datagram arrive one behind the other, so a link has at most one
//! datagram that is not whole.
//!
//! A datagram that is not kept when its first fragment arrives is dropped as a whole; its fragments
//! are checked all the same.

use super::super::Violation;
use super::wire::Fragment;

/// The datagram of a link that is not whole. `T` holds what has arrived of it.
#[derive(Debug)]
pub struct Assembly<T> {
    open: Option<Open<T>>,
}

#[derive(Debug)]
struct Open<T> {
    /// The next fragment.
    next: Fragment,
    /// `None`: it is dropped.
    kept: Option<T>,
}

/// Where the bytes of a fragment belong.
#[derive(PartialEq, Eq, Debug)]
pub enum Arrived<'a, T> {
    /// Nowhere: its datagram is dropped.
    Dropped,
    /// To this; more fragments follow.
    Part(&'a mut T),
    /// To this, which is whole then.
    Whole(T),
}

impl<T> Default for Assembly<T> {
    fn default() -> Self {
        Self { open: None }
    }
}

impl<T> Assembly<T> {
    /// A fragment has arrived. If it is the first of a datagram, `begin` decides whether to keep
    /// the datagram.
    pub fn arrived(
        &mut self,
        f: &Fragment,
        begin: impl FnOnce() -> Option<T>,
    ) -> Result<Arrived<'_, T>, Violation> {
        let kept = match self.open.take() {
            Some(open) if open.next == *f => open.kept,
            None if f.is_first() => begin(),
            open => {
                // The link fails; its teardown releases the partial datagram.
                self.open = open;
                return Err(Violation::Position);
            }
        };
        if f.is_last() {
            return Ok(kept.map_or(Arrived::Dropped, Arrived::Whole));
        }
        let next = Fragment {
            offset: f.end(),
            ..*f
        };
        let open = self.open.insert(Open { next, kept });
        Ok(open.kept.as_mut().map_or(Arrived::Dropped, Arrived::Part))
    }

    /// Drops the rest of the datagram, and returns what was kept of it. For a link that is lost, or
    /// when there is no memory for a fragment.
    pub fn give_up(&mut self) -> Option<T> {
        self.open.as_mut()?.kept.take()
    }
}
