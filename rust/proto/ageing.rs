// SPDX-License-Identifier: GPL-2.0

//! What lies in a receive pool and was not read yet, in the order in which it arrived (row C5): one list,
//! so that whoever looks for the oldest finds it at once.
//!
//! A message is known by the page of the pool in which it begins. No other one begins there: what is smaller
//! than a page lies in a block of its own, and what lies in a window is larger.

use core::ops::DerefMut;

use super::ChanId;

/// No page.
const NONE: u32 = u32::MAX;

/// A page's place in the list.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    next: u32,
    prev: u32,
    /// When to look at it, in nanoseconds: `u64::MAX` if it is not in the list.
    since: u64,
    user: ChanId,
    /// Bytes.
    len: u32,
}

impl Node {
    /// Not in the list.
    pub const FREE: Self = Self {
        next: NONE,
        prev: NONE,
        since: u64::MAX,
        user: ChanId { q: 0, gen: 0 },
        len: 0,
    };
}

/// The list; `S` holds a node for each page.
pub struct Ageing<S> {
    nodes: S,
    first: u32,
    last: u32,
}

impl<S: DerefMut<Target = [Node]>> Ageing<S> {
    /// An empty list over as many pages as there are nodes.
    pub fn new(mut nodes: S) -> Self {
        nodes.iter_mut().for_each(|node| *node = Node::FREE);
        Self {
            nodes,
            first: NONE,
            last: NONE,
        }
    }

    fn node(&mut self, page: u32) -> Option<&mut Node> {
        self.nodes.get_mut(page as usize)
    }

    /// `len` bytes for channel `user` have arrived that begin in `page`, at `now`, which is not before what was
    /// added before. Returns whether the list was empty.
    pub fn add(&mut self, page: usize, user: ChanId, len: u32, now: u64) -> bool {
        self.remove(page);
        let page = page as u32;
        let last = self.last;
        let Some(node) = self.node(page) else {
            return false;
        };
        *node = Node {
            next: NONE,
            prev: last,
            since: now.min(u64::MAX - 1),
            user,
            len,
        };
        match self.node(last) {
            Some(before) => before.next = page,
            None => self.first = page,
        }
        self.last = page;
        last == NONE
    }

    /// What begins in `page` is not there any more. Returns how many bytes it were, 0 if there was nothing.
    pub fn remove(&mut self, page: usize) -> u32 {
        let Some(node) = self.node(page as u32).filter(|n| n.since != u64::MAX) else {
            return 0;
        };
        let Node {
            next, prev, len, ..
        } = core::mem::replace(node, Node::FREE);
        match self.node(prev) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
        match self.node(next) {
            Some(after) => after.prev = prev,
            None => self.last = prev,
        }
        len
    }

    /// The oldest: its page, whose it is, and since when.
    pub fn oldest(&mut self) -> Option<(usize, ChanId, u64)> {
        let page = self.first;
        self.node(page).map(|n| (page as usize, n.user, n.since))
    }

    /// What is in `page` is looked at again when all that has arrived until `now` was.
    pub fn postpone(&mut self, page: usize, now: u64) {
        let node = self.node(page as u32).map(|n| *n);
        if let Some(node) = node.filter(|n| n.since != u64::MAX) {
            self.add(page, node.user, node.len, now.max(node.since));
        }
    }
}
