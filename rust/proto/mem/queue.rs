// SPDX-License-Identifier: GPL-2.0

//! The operations that a program has queued: order, limits, completions, drain and cancel.
//!
//! ```text
//! Waiting ─issue─► Issued ─► Done ─reap─► gone
//!    │                └─cancel─► Canceling ─► Done   (when none of its bytes can land any more)
//!    └─cancel─► Done
//! ```
//!
//! Operations have no order, but for those with *drain*: such an operation begins when all before
//! it are done, and none behind it begins before it is done, as IOSQE_IO_DRAIN of io_uring. An
//! operation keeps its entry until the program has taken its completion, so completions never
//! exceed the entries.

use core::ops::DerefMut;

use super::slab::{Slab, Slot};
use super::status::Status;

/// Most entries of a queue.
pub const ENTRIES_MAX: usize = 4096;

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The program's name of the operation.
    pub user_data: u64,
    /// The result.
    pub status: Status,
    /// Bytes from the beginning that have landed for sure.
    pub done: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    Issued,
    Canceling,
    /// A cancel, which is done with the operation at that place.
    CancelOf(u32),
    Done(Status, u64),
}

/// An operation of a program.
pub struct Entry {
    user_data: u64,
    drain: bool,
    state: State,
    /// Cancels that are done with this.
    cancels: u32,
    /// The next one that waits, or is done.
    next: Option<u32>,
}

/// The step that follows a cancel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelAction {
    /// Nothing: both are done.
    Done,
    /// The operation at this place is under way: have it canceled.
    Cancel(u32),
    /// The operation is being canceled already.
    Under,
}

/// First and last of a list of entries.
#[derive(Clone, Copy, Default)]
struct List {
    first: Option<u32>,
    last: Option<u32>,
}

/// A queue.
pub struct Queue<S> {
    entries: Slab<S>,
    waiting: List,
    done: List,
    /// The operation with drain that is under way.
    barrier: Option<u32>,
    under_way: u32,
    completions: u32,
}

impl<S: DerefMut<Target = [Slot<Entry>]>> Queue<S> {
    /// An empty queue.
    pub fn new(entries: S) -> Self {
        Self {
            entries: Slab::new(entries),
            waiting: List::default(),
            done: List::default(),
            barrier: None,
            under_way: 0,
            completions: 0,
        }
    }

    /// Whether a program can submit: POLLOUT.
    pub fn has_room(&self) -> bool {
        !self.entries.is_full() && self.entries.len() < ENTRIES_MAX
    }

    /// Completions that the program has not taken: POLLIN if there are any.
    pub fn completions(&self) -> u32 {
        self.completions
    }

    /// Operations that are under way.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Number of operations, completed ones included.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn insert(&mut self, user_data: u64, drain: bool, state: State) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        self.entries.insert(Entry {
            user_data,
            drain,
            state,
            cancels: 0,
            next: None,
        })
    }

    /// Puts an entry at the end of a list.
    fn append(&mut self, mut list: List, at: u32) -> List {
        match list.last.and_then(|last| self.entries.get_mut(last)) {
            Some(last) => last.next = Some(at),
            None => list.first = Some(at),
        }
        list.last = Some(at);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.next = None;
        }
        list
    }

    /// Takes an entry out of the waiting list, where it is behind `before`.
    fn unlink(&mut self, before: Option<u32>, at: u32) {
        let next = self.entries.get(at).and_then(|e| e.next);
        match before.and_then(|before| self.entries.get_mut(before)) {
            Some(before) => before.next = next,
            None => self.waiting.first = next,
        }
        if next.is_none() {
            self.waiting.last = before;
        }
    }

    /// Queues an operation; its place. `None` if there is no room.
    pub fn submit(&mut self, user_data: u64, drain: bool) -> Option<u32> {
        let at = self.insert(user_data, drain, State::Waiting)?;
        self.waiting = self.append(self.waiting, at);
        Some(at)
    }

    /// Takes the next operation to begin, the oldest first, among those that `can_begin`.
    pub fn issue(&mut self, can_begin: impl Fn(u32) -> bool) -> Option<u32> {
        if self.barrier.is_some() {
            return None;
        }
        let (mut before, mut next) = (None, self.waiting.first);
        while let Some(at) = next {
            let entry = self.entries.get(at)?;
            let drain = entry.drain;
            // All before it must be done.
            if drain && (before.is_some() || self.under_way != 0) {
                return None;
            }
            if can_begin(at) {
                self.unlink(before, at);
                self.entries.get_mut(at)?.state = State::Issued;
                self.under_way = self.under_way.saturating_add(1);
                self.barrier = drain.then_some(at);
                return Some(at);
            }
            if drain {
                return None;
            }
            (before, next) = (next, self.entries.get(at)?.next);
        }
        None
    }

    /// An operation that was issued is over. False, and nothing is done, if it was before.
    pub fn complete(&mut self, at: u32, status: Status, done: u64) -> bool {
        let state = self.entries.get(at).map(|e| e.state);
        let under_way = matches!(state, Some(State::Issued | State::Canceling));
        if under_way {
            self.under_way = self.under_way.saturating_sub(1);
            if self.barrier == Some(at) {
                self.barrier = None;
            }
            self.finish(at, status, done);
        }
        under_way
    }

    /// An entry, which is in no list, is done, and the cancels of it.
    fn finish(&mut self, at: u32, status: Status, done: u64) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.state = State::Done(status, done);
        let cancels = core::mem::take(&mut entry.cancels);
        self.done = self.append(self.done, at);
        self.completions = self.completions.saturating_add(1);
        for _ in 0..cancels {
            let mut of_it = self.entries.iter_mut();
            let cancel = of_it.find(|(_, e)| e.state == State::CancelOf(at));
            let Some((cancel, entry)) = cancel else {
                return;
            };
            entry.state = State::Done(Status::Ok, 0);
            drop(of_it);
            self.done = self.append(self.done, cancel);
            self.completions = self.completions.saturating_add(1);
        }
    }

    /// Queues the cancel of an operation named `target` that is not done. The cancel, which is
    /// named `user_data`, completes with the operation, or with `NotFound`. `None` if there is no
    /// room.
    pub fn cancel(&mut self, user_data: u64, target: u64) -> Option<CancelAction> {
        let open = |e: &Entry| matches!(e.state, State::Waiting | State::Issued | State::Canceling);
        let mut named = self
            .entries
            .iter()
            .filter(|(_, e)| e.user_data == target && open(e));
        let Some((at, state)) = named.next().map(|(at, e)| (at, e.state)) else {
            drop(named);
            let cancel = self.insert(user_data, false, State::Waiting)?;
            self.finish(cancel, Status::NotFound, 0);
            return Some(CancelAction::Done);
        };
        drop(named);
        self.insert(user_data, false, State::CancelOf(at))?;
        let entry = self.entries.get_mut(at)?;
        entry.cancels = entry.cancels.saturating_add(1);
        match state {
            State::Waiting => {
                self.take_waiting(at);
                self.finish(at, Status::Canceled, 0);
                Some(CancelAction::Done)
            }
            State::Issued => {
                entry.state = State::Canceling;
                Some(CancelAction::Cancel(at))
            }
            _ => Some(CancelAction::Under),
        }
    }

    fn take_waiting(&mut self, at: u32) {
        let (mut before, mut next) = (None, self.waiting.first);
        while let Some(this) = next {
            if this == at {
                self.unlink(before, at);
                return;
            }
            (before, next) = (next, self.entries.get(this).and_then(|e| e.next));
        }
    }

    /// The program closes the queue: takes one of the operations that are under way and not being
    /// canceled, for the caller to cancel. Those that wait are done.
    pub fn close_one(&mut self) -> Option<u32> {
        while let Some(at) = self.waiting.first {
            self.unlink(None, at);
            self.finish(at, Status::Canceled, 0);
        }
        let mut issued = self
            .entries
            .iter_mut()
            .filter(|(_, e)| e.state == State::Issued);
        let (at, entry) = issued.next()?;
        entry.state = State::Canceling;
        Some(at)
    }

    /// Takes a completion, in the order in which the operations were done; and the operation's
    /// place, which is free now.
    pub fn reap(&mut self) -> Option<(u32, Completion)> {
        let at = self.done.first?;
        let entry = self.entries.remove(at)?;
        self.done.first = entry.next;
        if entry.next.is_none() {
            self.done.last = None;
        }
        self.completions = self.completions.saturating_sub(1);
        match entry.state {
            State::Done(status, done) => Some((
                at,
                Completion {
                    user_data: entry.user_data,
                    status,
                    done,
                },
            )),
            _ => None,
        }
    }
}
