// SPDX-License-Identifier: GPL-2.0

//! The broker: a host that allocates regions at memory nodes for other hosts. It owns them, and
//! gives the others a key that reads and writes, and neither derives keys nor frees.
//!
//! ```text
//! Asked ─► Allocating ─ALLOC is answered─► Derive ─► Deriving ─KEY is answered─► Given
//!              └─ refused ─► gone                        └─ refused, requester lost ─► Free
//! Given ─given back, time to live, requester lost, rule ended─► Free
//! Free ─► Freeing ─FREE is answered─► gone
//! ```
//!
//! Rules tell which nodes the broker may allocate at. The bytes of a rule are counted from the
//! request until the node has answered FREE, so that more than the rule's quota is never allocated
//! at the node.

use core::ops::DerefMut;

use super::admission::Admission;
use super::id::{secrets_match, Key, NodeId};
use super::rights::Rights;
use super::slab::{Slab, Slot};
use super::status::Status;
use super::wire::{MemHeader, Op, FLAG_KEEP};

/// Rights of the keys that a broker gives.
pub const GIVEN: Rights = Rights::DATA;

/// Interval at which a FREE that did not reach the node is sent again, in milliseconds.
pub const RETRY_MS: u64 = 1000;

/// A rule: regions of a node may be allocated for other hosts.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The node; its domain is not 0 unless the local domain is.
    pub node: NodeId,
    /// Most bytes in regions of the node that the broker allocates for others.
    pub quota: u64,
    /// The admission key that a request must show, if any.
    pub admission: Admission,
}

/// A request for a region: an ALLOC with VIA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Number of the requester's host.
    pub requester: u32,
    /// Identifies the requester's answer.
    pub token: u64,
    /// The node; its domain is not 0 unless the local domain is.
    pub node: NodeId,
    /// Length in bytes.
    pub len: u64,
    /// Address of the first byte.
    pub va: u64,
    /// The region stays when the requester is gone.
    pub keep: bool,
    /// The region goes after that many milliseconds; 0: it does not.
    pub ttl_ms: u32,
    /// The admission key of the broker that the requester has shown.
    pub admission: Key,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Asked,
    Allocating,
    Derive { root: Key },
    Deriving { root: Key },
    Given { root: Key, key: Key },
    Free { root: Key, not_before_ms: u64 },
    Freeing { root: Key },
    Gone,
}

/// A region that the broker has for a requester, or is about to have.
pub struct Entry {
    req: Request,
    state: State,
    /// The requester waits for the region.
    waits: bool,
    /// The result to send to the requester.
    answer: Option<Status>,
    /// The region is to be freed.
    unwanted: bool,
    /// The token of the requester's FREE, which is not answered yet.
    given_back: Option<u64>,
    freed: Option<Status>,
    expires_ms: Option<u64>,
    /// The region goes at this time unless the requester comes back.
    orphaned_ms: Option<u64>,
    /// The broker stops to try to free the region at this time.
    gives_up_ms: Option<u64>,
}

/// A step that the caller must take now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask the node for the region ([`Broker::alloc_ask`]), then call [`Broker::allocated`].
    Alloc {
        /// The entry.
        at: u32,
    },
    /// Ask the node for the requester's key ([`Broker::key_ask`]), then call [`Broker::derived`].
    Derive {
        /// The entry.
        at: u32,
    },
    /// Ask the node to free the region ([`Broker::free_ask`]), then call [`Broker::freed`].
    Free {
        /// The entry.
        at: u32,
    },
    /// Answer the requester's ALLOC.
    Answer {
        /// The request.
        req: Request,
        /// The key that it gets, or why there is none.
        result: Result<Key, Status>,
    },
    /// Answer the requester's FREE.
    AnswerFree {
        /// The token that was passed to [`Broker::give_back`].
        token: u64,
        /// The result.
        status: Status,
    },
}

/// The broker of a network namespace.
pub struct Broker<R, E> {
    rules: R,
    entries: Slab<E>,
    orphan_ms: u64,
}

impl<R, E> Broker<R, E>
where
    R: DerefMut<Target = [Option<Rule>]>,
    E: DerefMut<Target = [Slot<Entry>]>,
{
    /// No rule and no region. A region goes `orphan_ms` after its requester's host is lost.
    pub fn new(rules: R, entries: E, orphan_ms: u64) -> Self {
        Self {
            rules,
            entries: Slab::new(entries),
            orphan_ms,
        }
    }

    /// Regions that the broker has or is about to have.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no regions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is a region of `requester`, or a request.
    pub fn has_requester(&self, requester: u32) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|(_, entry)| entry.req.requester == requester)
    }

    /// Whether all regions have been given to their requesters.
    #[cfg(not(MODULE))]
    pub fn is_idle(&self) -> bool {
        self.entries.iter().all(|(_, e)| e.is_given())
    }

    fn rule(&self, node: NodeId) -> Option<&Rule> {
        self.rules.iter().flatten().find(|r| r.node == node)
    }

    /// Adds a rule, or changes that of its node. False if there is no room.
    pub fn set_rule(&mut self, rule: Rule) -> bool {
        let same = |r: &&mut Option<Rule>| matches!(&**r, Some(r) if r.node == rule.node);
        if let Some(known) = self.rules.iter_mut().find(same) {
            *known = Some(rule);
            return true;
        }
        let free = self.rules.iter_mut().find(|r| r.is_none());
        free.map(|free| *free = Some(rule)).is_some()
    }

    /// Ends the rule of a node: frees its regions, except for those with `keep`. False if there is
    /// no rule.
    pub fn end_rule(&mut self, node: NodeId) -> bool {
        let rule = self
            .rules
            .iter_mut()
            .find(|r| r.is_some_and(|r| r.node == node));
        let known = rule.map(|rule| *rule = None).is_some();
        if known {
            for (_, entry) in self.entries.iter_mut() {
                if entry.req.node == node && !(entry.req.keep && entry.is_given()) {
                    entry.discard();
                }
            }
        }
        known
    }

    /// Bytes in regions of `node`.
    pub fn bytes_of(&self, node: NodeId) -> u64 {
        let of_it = self.entries.iter().filter(|(_, e)| e.req.node == node);
        of_it.fold(0, |sum, (_, e)| sum.saturating_add(e.req.len))
    }

    /// A requester asks for a region. Its answer follows from [`Self::next_action`].
    ///
    /// Errors, and then there is nothing to follow: `Denied` without a rule for the node, or for a
    /// wrong admission key; `Invalid` for no length or an end beyond the address space; `Quota`;
    /// `Again` if there are too many regions.
    pub fn ask(&mut self, req: Request, now_ms: u64) -> Result<(), Status> {
        let rule = self.rule(req.node).ok_or(Status::Denied)?;
        rule.admission.check(req.admission)?;
        if req.len == 0 || req.va.checked_add(req.len).is_none() {
            return Err(Status::Invalid);
        }
        if self.bytes_of(req.node).saturating_add(req.len) > rule.quota {
            return Err(Status::Quota);
        }
        let ttl = u64::from(req.ttl_ms);
        let entry = Entry {
            req,
            state: State::Asked,
            waits: true,
            answer: None,
            unwanted: false,
            given_back: None,
            freed: None,
            expires_ms: (ttl != 0).then_some(now_ms.saturating_add(ttl)),
            orphaned_ms: None,
            gives_up_ms: None,
        };
        self.entries.insert(entry).map(|_| ()).ok_or(Status::Again)
    }

    /// The next step; call it until it returns `None`.
    pub fn next_action(&mut self, now_ms: u64) -> Option<Action> {
        loop {
            let due = self.entries.iter_mut().find_map(|(at, entry)| {
                entry.look_at(now_ms);
                entry.due(now_ms).then_some(at)
            });
            if let Some(action) = self.action_of(due?) {
                return Some(action);
            }
        }
    }

    /// The step that is due for an entry. `None`: the entry was removed, and no FREE waits for an
    /// answer.
    fn action_of(&mut self, at: u32) -> Option<Action> {
        let entry = self.entries.get_mut(at)?;
        if let Some(status) = entry.answer.take() {
            entry.waits = false;
            let result = match (status, entry.state) {
                (Status::Ok, State::Given { key, .. }) => Ok(key),
                // The region was discarded before the requester got its key.
                (Status::Ok, _) => Err(Status::Denied),
                (why, _) => Err(why),
            };
            let req = entry.req;
            return Some(Action::Answer { req, result });
        }
        match entry.state {
            State::Asked => {
                entry.state = State::Allocating;
                Some(Action::Alloc { at })
            }
            State::Derive { root } => {
                entry.state = State::Deriving { root };
                Some(Action::Derive { at })
            }
            State::Free { root, .. } => {
                entry.state = State::Freeing { root };
                Some(Action::Free { at })
            }
            _ => {
                let entry = self.entries.remove(at)?;
                let token = entry.given_back?;
                let status = entry.freed.unwrap_or(Status::Stale);
                Some(Action::AnswerFree { token, status })
            }
        }
    }

    /// The ALLOC for the node: without VIA, so that no broker asks another one. `admission`: the
    /// node's, as the broker knows it.
    pub fn alloc_ask(&self, at: u32, admission: Key) -> Option<MemHeader> {
        let req = &self.entries.get(at)?.req;
        Some(MemHeader {
            flags: if req.keep { FLAG_KEEP } else { 0 },
            addr: req.va,
            bytes: req.len,
            key: admission,
            arg: req.ttl_ms,
            node: req.node,
            ..MemHeader::ask(0, Op::Alloc)
        })
    }

    /// The node of an entry.
    pub fn node(&self, at: u32) -> Option<NodeId> {
        self.entries.get(at).map(|e| e.req.node)
    }

    /// The KEY for the node.
    pub fn key_ask(&self, at: u32) -> Option<MemHeader> {
        let entry = self.entries.get(at)?;
        let root = entry.root()?;
        Some(MemHeader {
            addr: entry.req.va,
            bytes: entry.req.len,
            key: root,
            rights: GIVEN.bits(),
            node: entry.req.node,
            ..MemHeader::ask(0, Op::Key)
        })
    }

    /// The FREE for the node.
    pub fn free_ask(&self, at: u32) -> Option<MemHeader> {
        let entry = self.entries.get(at)?;
        Some(MemHeader {
            key: entry.root()?,
            node: entry.req.node,
            ..MemHeader::ask(0, Op::Free)
        })
    }

    /// The node has answered ALLOC, or could not be asked.
    pub fn allocated(&mut self, at: u32, result: Result<Key, Status>) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        if entry.state != State::Allocating {
            return;
        }
        match result {
            Ok(root) if entry.unwanted => entry.free(root),
            Ok(root) => entry.state = State::Derive { root },
            Err(why) => {
                entry.tell(why);
                entry.state = State::Gone;
            }
        }
    }

    /// The node has answered KEY, or could not be asked.
    pub fn derived(&mut self, at: u32, result: Result<Key, Status>) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let State::Deriving { root } = entry.state else {
            return;
        };
        match result {
            Ok(_) if entry.unwanted => entry.free(root),
            Ok(key) => {
                entry.state = State::Given { root, key };
                entry.tell(Status::Ok);
            }
            Err(why) => {
                entry.tell(why);
                entry.free(root);
            }
        }
    }

    /// The node has answered FREE, or could not be asked: then it is asked again for `orphan_ms`,
    /// after which a region that is not kept is gone as an orphan of the broker.
    pub fn freed(&mut self, at: u32, status: Status, now_ms: u64) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let State::Freeing { root } = entry.state else {
            return;
        };
        let gives_up = now_ms.saturating_add(self.orphan_ms);
        let gives_up = *entry.gives_up_ms.get_or_insert(gives_up);
        if status.is_temporary() && now_ms < gives_up {
            entry.state = State::Free {
                root,
                not_before_ms: now_ms.saturating_add(RETRY_MS),
            };
            return;
        }
        entry.state = State::Gone;
        entry.freed = Some(match status {
            // The region had expired, or the node serves other memory now: it is free in either
            // case.
            Status::Stale => Status::Ok,
            other => other,
        });
    }

    /// Handles a FREE with a key that the broker has given: frees the region;
    /// [`Action::AnswerFree`] follows. `Stale` for any other key, and for keys that were given to
    /// other hosts.
    pub fn give_back(&mut self, requester: u32, key: Key, token: u64) -> Result<(), Status> {
        let mut found = None;
        for (at, entry) in self.entries.iter() {
            if let State::Given { key: given, .. } = entry.state {
                let same = secrets_match(&given.encode(), &key.encode());
                if same && entry.req.requester == requester {
                    found = Some(at);
                }
            }
        }
        let entry = found.and_then(|at| self.entries.get_mut(at));
        let entry = entry.ok_or(Status::Stale)?;
        entry.given_back = Some(token);
        entry.discard();
        Ok(())
    }

    /// A requester's link is lost. `lost` is true for the tokens of asks that arrived by it: they
    /// get no answer, and the regions that they have not been told of are freed.
    pub fn link_lost(&mut self, lost: impl Fn(u64) -> bool) {
        for (_, entry) in self.entries.iter_mut() {
            entry.given_back = entry.given_back.filter(|token| !lost(*token));
            if entry.waits && lost(entry.req.token) {
                entry.waits = false;
                entry.answer = None;
                entry.discard();
            }
        }
    }

    /// A requester's host is lost: its regions are freed after a while, unless they have `keep` or
    /// the host comes back.
    pub fn requester_lost(&mut self, requester: u32, now_ms: u64) {
        let at = now_ms.saturating_add(self.orphan_ms);
        for (_, entry) in self.entries.iter_mut() {
            if entry.req.requester == requester && !entry.req.keep {
                entry.orphaned_ms.get_or_insert(at);
            }
        }
    }

    /// The host is back.
    pub fn requester_back(&mut self, requester: u32) {
        for (_, entry) in self.entries.iter_mut() {
            if entry.req.requester == requester {
                entry.orphaned_ms = None;
            }
        }
    }

    /// When a timeout makes [`Self::next_action`] return the next step.
    #[cfg(not(MODULE))]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let times = self.entries.iter().filter_map(|(_, e)| match e.state {
            State::Given { .. } => e.ends_ms(),
            State::Free { not_before_ms, .. } => Some(not_before_ms),
            _ => None,
        });
        times.min()
    }
}

impl Entry {
    fn root(&self) -> Option<Key> {
        match self.state {
            State::Derive { root }
            | State::Deriving { root }
            | State::Given { root, .. }
            | State::Free { root, .. }
            | State::Freeing { root } => Some(root),
            State::Asked | State::Allocating | State::Gone => None,
        }
    }

    fn is_given(&self) -> bool {
        matches!(self.state, State::Given { .. }) && !self.waits
    }

    fn ends_ms(&self) -> Option<u64> {
        let ends = [self.expires_ms, self.orphaned_ms];
        ends.into_iter().flatten().min()
    }

    fn free(&mut self, root: Key) {
        self.state = State::Free {
            root,
            not_before_ms: 0,
        };
    }

    /// The requester learns the result, if it still waits.
    fn tell(&mut self, status: Status) {
        if self.waits {
            self.answer = Some(status);
        }
    }

    /// Marks the region to be freed. A request in progress at the node ends first.
    fn discard(&mut self) {
        match self.state {
            State::Asked => {
                self.tell(Status::Denied);
                self.state = State::Gone;
            }
            State::Derive { root } => {
                self.tell(Status::Denied);
                self.free(root);
            }
            State::Allocating | State::Deriving { .. } => {
                self.tell(Status::Denied);
                self.unwanted = true;
            }
            State::Given { root, .. } => self.free(root),
            State::Free { .. } | State::Freeing { .. } | State::Gone => {}
        }
    }

    /// Discards the region if its time is over.
    fn look_at(&mut self, now_ms: u64) {
        let over = self.ends_ms().is_some_and(|at| now_ms >= at);
        if over && self.is_given() {
            self.discard();
        }
    }

    /// Whether the entry has a next step.
    fn due(&self, now_ms: u64) -> bool {
        self.answer.is_some()
            || match self.state {
                State::Asked | State::Derive { .. } | State::Gone => true,
                State::Free { not_before_ms, .. } => now_ms >= not_before_ms,
                State::Allocating | State::Deriving { .. } | State::Given { .. } => false,
                State::Freeing { .. } => false,
            }
    }
}
