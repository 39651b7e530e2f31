// SPDX-License-Identifier: GPL-2.0

//! The room of a link for programs' WRITEs and READs: how much of them may be under way.
//!
//! Queued operations post what they can as soon as there is room, under the lock of their host. A
//! thread that waits for room comes later. So while one waits, queued operations have half of the
//! room at most.

/// WRITEs and READs under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Bytes.
    pub bytes: u64,
    /// Work requests.
    pub wrs: u32,
}

impl Load {
    fn plus(self, more: Load) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            wrs: self.wrs.saturating_add(more.wrs),
        }
    }

    fn minus(self, less: Load) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(less.bytes),
            wrs: self.wrs.saturating_sub(less.wrs),
        }
    }

    fn half(self) -> Self {
        Self {
            bytes: self.bytes >> 1,
            wrs: self.wrs >> 1,
        }
    }

    /// Whether there is room for `more`: for something, if nothing is under way.
    fn has_room(self, more: Load, most: Load) -> bool {
        let sum = self.plus(more);
        self == Self::default() || (sum.bytes <= most.bytes && sum.wrs <= most.wrs)
    }
}

/// The room.
pub struct CallRoom {
    most: Load,
    all: Load,
    /// The part of queued operations.
    queued: Load,
    /// Threads that wait for room.
    waiting: u32,
}

impl CallRoom {
    /// Room for `most`.
    pub fn new(most: Load) -> Self {
        Self {
            most,
            all: Load::default(),
            queued: Load::default(),
            waiting: 0,
        }
    }

    /// Whether a chunk may be posted; `queued`: it is one of a queued operation.
    pub fn fits(&self, queued: bool, chunk: Load) -> bool {
        let shared = queued && self.waiting != 0;
        let share = !shared || self.queued.has_room(chunk, self.most.half());
        share && self.all.has_room(chunk, self.most)
    }

    /// A chunk is posted.
    pub fn begin(&mut self, queued: bool, chunk: Load) {
        self.all = self.all.plus(chunk);
        if queued {
            self.queued = self.queued.plus(chunk);
        }
    }

    /// A chunk that was posted has completed.
    pub fn end(&mut self, queued: bool, chunk: Load) {
        self.all = self.all.minus(chunk);
        if queued {
            self.queued = self.queued.minus(chunk);
        }
    }

    /// A thread begins to wait for room.
    pub fn wait(&mut self) {
        self.waiting = self.waiting.saturating_add(1);
    }

    /// A thread that waited has posted its chunk, or waits no more.
    pub fn wait_over(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }
}
