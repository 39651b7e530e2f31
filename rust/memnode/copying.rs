// SPDX-License-Identifier: GPL-2.0

//! The copies that programs of this host ask for, by threads and queues: the asks for the steps of
//! `proto/mem/copying`. `copy` has the copies that this host makes as their source.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{errno_of, now_ms, Call, Host, State};
use super::region::Place;
use super::rw::ask;
use crate::proto::mem::copying::{Copying, Left, Next};
use crate::proto::mem::id::{Key, NodeId};
use crate::proto::mem::rights::Rights;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};

/// A region: its node, number and generation.
pub(super) type RegionName = (NodeId, u32, u32);

/// The next step of a copy.
pub(super) enum Due {
    /// Ask the host of the node, and call [`ProgramCopy::asked`] then.
    Ask(NodeId, MemHeader),
    /// Wait for the answer.
    Wait,
    /// Wait until that time, in milliseconds.
    Later(u64),
    /// The copy is over: the result, and the bytes from the first on that have landed.
    Over(Status, u64),
}

/// A copy that a program has asked for.
pub(super) struct ProgramCopy {
    from: Place,
    to: Place,
    core: Copying,
}

impl ProgramCopy {
    /// A copy of `len` bytes; `derives`: keys can be derived from that of `to`.
    pub(super) fn new(from: Place, to: Place, derives: bool, len: u64) -> Self {
        let core = Copying::new(len, derives);
        Self { from, to, core }
    }

    fn region(&self) -> RegionName {
        (self.to.node, self.to.key.region, self.to.key.gen)
    }

    /// The next step.
    pub(super) fn due(&mut self, st: &mut State, host: &Arc<Host>) -> Due {
        let next = self.core.next(now_ms());
        self.settle_key(st, host);
        match next {
            Next::Key {
                off,
                len,
                uses,
                ttl_ms,
            } => {
                let ask = MemHeader {
                    addr: self.to.addr + off,
                    bytes: len,
                    rights: Rights::WRITE.bits(),
                    arg: ttl_ms,
                    addr2: uses,
                    ..self.target_ask(Op::Key)
                };
                Due::Ask(self.to.node, ask)
            }
            Next::Copy { off, len, key } => Due::Ask(self.from.node, self.copy_ask(off, len, key)),
            Next::Wait => Due::Wait,
            Next::Later(at) => Due::Later(at),
            Next::Over(status, done) => Due::Over(status, done),
        }
    }

    /// An ask to the host of the destination.
    fn target_ask(&self, op: Op) -> MemHeader {
        MemHeader {
            key: self.to.key,
            node: self.to.node,
            ..MemHeader::ask(0, op)
        }
    }

    fn copy_ask(&self, off: u64, len: u64, key: Option<Key>) -> MemHeader {
        let h = MemHeader {
            addr: self.from.addr + off,
            bytes: len,
            key: self.from.key,
            node: self.to.node,
            addr2: self.to.addr + off,
            key2: key.unwrap_or(self.to.key),
            ..MemHeader::ask(0, Op::Copy)
        };
        h.with_source_node(self.from.node)
    }

    /// What [`Self::due`] has said is asked.
    pub(super) fn asked(&mut self) {
        self.core.asked(now_ms());
    }

    /// Whether the source is asked.
    pub(super) fn is_asked(&self) -> bool {
        self.core.is_asked()
    }

    /// Whether the copy is over.
    pub(super) fn is_over(&self) -> bool {
        self.core.is_over()
    }

    /// The host that was asked has answered.
    pub(super) fn answered(&mut self, st: &mut State, host: &Arc<Host>, h: &MemHeader) {
        if self.core.is_asked() {
            self.core.copied(h.status, h.bytes, now_ms());
        } else {
            let region = self.region();
            let others = st.copy_keys.contains(&region);
            let key = match h.status {
                Status::Ok => Ok(h.key2),
                why => Err(why),
            };
            if key.is_ok() {
                // Without memory for it, copies that wait for its end may fail.
                let _ = st.copy_keys.push(region, GFP_KERNEL);
            }
            self.core.key_answered(key, others, now_ms());
        }
        self.settle_key(st, host);
    }

    /// The copy ends with `why`; `call` waits no more for the answer about a key.
    pub(super) fn end(&mut self, st: &mut State, host: &Arc<Host>, call: &Arc<Call>, why: Status) {
        if self.core.is_deriving() {
            st.abandon(call, self.to.node, &self.target_ask(Op::Key));
        }
        self.give_up(st, host, why);
    }

    /// The copy ends with `why`; no answer about a key is due.
    pub(super) fn give_up(&mut self, st: &mut State, host: &Arc<Host>, why: Status) {
        self.core.end(why);
        self.settle_key(st, host);
    }

    /// Revokes a derived key that the copy has left.
    fn settle_key(&mut self, st: &mut State, host: &Arc<Host>) {
        let Some(left) = self.core.take_left() else {
            return;
        };
        let region = self.region();
        if let Some(at) = st.copy_keys.iter().position(|r| *r == region) {
            let _ = st.copy_keys.remove(at);
        }
        if let Left::Alive(key2) = left {
            let ask = MemHeader {
                key2,
                ..self.target_ask(Op::Unkey)
            };
            st.in_the_background(host, self.to.node, ask);
        }
    }

    /// Makes the copy for a thread, which waits. A copy that has moved bytes succeeds with those.
    pub(super) fn run(mut self, host: &Arc<Host>) -> Result<usize> {
        let given_up = |copy: &mut Self, e: Error| {
            host.with(|st| copy.give_up(st, host, Status::Canceled));
            match copy.core.next(now_ms()) {
                Next::Over(_, done @ 1..) => Ok(done as usize),
                _ => Err(e),
            }
        };
        loop {
            let due = self.due(&mut host.state.lock(), host);
            match due {
                Due::Ask(node, h) => {
                    self.asked();
                    match ask(host, node, h, KVec::new()) {
                        Ok(answer) => host.with(|st| self.answered(st, host, &answer.h)),
                        Err(e) => return given_up(&mut self, e),
                    }
                }
                Due::Later(at) => {
                    let ms = at.saturating_sub(now_ms()) as u32;
                    if let Err(e) = host.pause(ms.max(1)) {
                        return given_up(&mut self, e);
                    }
                }
                Due::Wait => return Err(EIO),
                Due::Over(Status::Ok, done) | Due::Over(_, done @ 1..) => return Ok(done as usize),
                Due::Over(why, 0) => return Err(errno_of(why)),
            }
        }
    }
}
