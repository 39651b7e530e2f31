// SPDX-License-Identifier: GPL-2.0

//! The unread messages of a receive pool, in the order of their arrival: one list, so that the
//! oldest is found at once. A message that could not be moved is deferred for a while.
//!
//! A message is identified by the pool's page that it begins in. A block is one page. In a window
//! several messages may begin in one page, since the end of a call's data goes there however short
//! it is: they share one node, with the age of the oldest.

use core::ops::DerefMut;

use super::ChanId;

/// No page.
const NONE: u32 = u32::MAX;

/// The list that a page is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Nothing,
    /// In the list by age.
    Active,
    /// In the list of messages that could not be moved.
    Deferred,
}

/// A page's place.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    next: u32,
    prev: u32,
    since: u64,
    user: ChanId,
    /// Bytes of all messages that begin in the page.
    len: u32,
    place: List,
}

impl Node {
    /// In no list.
    pub const FREE: Self = Self {
        next: NONE,
        prev: NONE,
        since: 0,
        user: ChanId { index: 0, gen: 0 },
        len: 0,
        place: List::Nothing,
    };
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
struct ListHead {
    first: u32,
    last: u32,
}

/// The lists; `S` holds a node for each page.
pub struct AgeList<S> {
    nodes: S,
    active: ListHead,
    deferred: ListHead,
}

impl<S: DerefMut<Target = [Node]>> AgeList<S> {
    /// An empty list, with one page for each node.
    pub fn new(mut nodes: S) -> Self {
        nodes.iter_mut().for_each(|node| *node = Node::FREE);
        let empty = ListHead {
            first: NONE,
            last: NONE,
        };
        Self {
            nodes,
            active: empty,
            deferred: empty,
        }
    }

    fn node(&mut self, page: u32) -> Option<&mut Node> {
        self.nodes.get_mut(page as usize)
    }

    fn ends(&mut self, place: List) -> &mut ListHead {
        match place {
            List::Deferred => &mut self.deferred,
            _ => &mut self.active,
        }
    }

    /// Puts `node` at the end of its list, as that of `page`.
    fn link(&mut self, page: u32, mut node: Node) {
        let last = self.ends(node.place).last;
        node.next = NONE;
        node.prev = last;
        let Some(to) = self.node(page) else { return };
        *to = node;
        match self.node(last) {
            Some(before) => before.next = page,
            None => self.ends(node.place).first = page,
        }
        self.ends(node.place).last = page;
    }

    /// Takes `page` out of its list.
    fn unlink(&mut self, page: u32) -> Option<Node> {
        let node = self.node(page).filter(|n| n.place != List::Nothing)?;
        let node = core::mem::replace(node, Node::FREE);
        match self.node(node.prev) {
            Some(before) => before.next = node.next,
            None => self.ends(node.place).first = node.next,
        }
        match self.node(node.next) {
            Some(after) => after.prev = node.prev,
            None => self.ends(node.place).last = node.prev,
        }
        Some(node)
    }

    /// `len` bytes for channel `user` have arrived that begin in `page`, at `now`, which is not
    /// earlier than any `now` before. Another channel's message there is forgotten. Returns whether
    /// the list was empty.
    pub fn add(&mut self, page: usize, user: ChanId, len: u32, now: u64) -> bool {
        let page = page as u32;
        let same = |n: &&mut Node| n.place != List::Nothing && n.user == user;
        if let Some(node) = self.node(page).filter(same) {
            node.len = node.len.saturating_add(len);
            return false;
        }
        let _ = self.unlink(page);
        let first = self.active.first == NONE;
        let node = Node {
            since: now,
            user,
            len,
            place: List::Active,
            ..Node::FREE
        };
        self.link(page, node);
        first && self.active.first != NONE
    }

    /// `len` bytes of messages that began in `page` were read or moved. Returns how many of them
    /// were in the list.
    pub fn left(&mut self, page: usize, len: u32) -> u32 {
        let Some(node) = self.node(page as u32) else {
            return 0;
        };
        let len = len.min(node.len);
        node.len = node.len.saturating_sub(len);
        if node.len == 0 {
            let _ = self.unlink(page as u32);
        }
        len
    }

    /// Removes all messages that begin in `page`. Returns their bytes, 0 if there were none.
    pub fn remove(&mut self, page: usize) -> u32 {
        self.unlink(page as u32).map_or(0, |node| node.len)
    }

    /// The oldest message that is not deferred: its page, its channel, and the start of its age.
    pub fn oldest(&mut self) -> Option<(usize, ChanId, u64)> {
        let page = self.active.first;
        self.node(page).map(|n| (page as usize, n.user, n.since))
    }

    /// The message in `page` cannot be moved now, and is deferred.
    pub fn defer(&mut self, page: usize) {
        if let Some(node) = self.unlink(page as u32) {
            let place = List::Deferred;
            self.link(page as u32, Node { place, ..node });
        }
    }

    /// Puts all deferred messages back into the list, as if they had arrived at `now`, which is not
    /// before those added earlier. Returns whether there were any.
    pub fn retry_deferred(&mut self, now: u64) -> bool {
        let mut any = false;
        // At most once for each node.
        for _ in 0..self.nodes.len() {
            let page = self.deferred.first;
            let Some(node) = self.unlink(page) else { break };
            any = true;
            let place = List::Active;
            let since = now;
            self.link(
                page,
                Node {
                    place,
                    since,
                    ..node
                },
            );
        }
        any
    }

    /// Whether any message is deferred.
    pub fn has_deferred(&self) -> bool {
        self.deferred.first != NONE
    }
}
