// SPDX-License-Identifier: GPL-2.0

//! Reads and writes of regions for `io_uring` and libaio: queued operations without a queue, which
//! complete the program's call.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{errno_of, Host, State};
use super::operation::{Operation, Outlook};
use super::queue::Shared;
use super::region::Place;
use crate::kern::pin::{LockedPages, PinnedPages};
use crate::kern::regfile::AsyncCall;
use crate::proto::mem::id::NodeId;
use crate::proto::mem::status::Status;

/// Operations for one node that are under way at a time; the others wait in their order. A node
/// that does not answer holds up its own alone.
const UNDER_WAY: usize = 64;

/// A call of a program that is under way, or waits.
struct AsyncOp {
    op: Operation,
    call: AsyncCall,
}

/// The calls for one node, in their order.
struct NodeOps {
    node: NodeId,
    ops: KVec<KBox<AsyncOp>>,
}

/// All such calls of a host.
pub(super) struct Asyncs {
    shared: Arc<Shared>,
    nodes: KVec<NodeOps>,
    /// One of them waits for room, or for another step.
    again: bool,
    /// [`State::posted`] when one of them had posted last.
    posted: u64,
}

impl Asyncs {
    /// None. ENOMEM.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            shared: Shared::new()?,
            nodes: KVec::new(),
            again: false,
            posted: 0,
        })
    }

    /// [`State::posted`] when one of them had posted last.
    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    /// The calls for a node, with room for another one. ENOMEM.
    fn of(&mut self, node: NodeId) -> Result<&mut KVec<KBox<AsyncOp>>> {
        let at = match self.nodes.iter().position(|n| n.node == node) {
            Some(at) => at,
            None => {
                let ops = KVec::new();
                self.nodes.push(NodeOps { node, ops }, GFP_KERNEL)?;
                self.nodes.len() - 1
            }
        };
        let ops = &mut self.nodes.get_mut(at).ok_or(ENOMEM)?.ops;
        ops.reserve(1, GFP_KERNEL)?;
        Ok(ops)
    }
}

impl State {
    /// Begins to move the bytes of `pages`, which count against `locked`, for `call`.
    pub(super) fn begin_async(
        &mut self,
        place: Place,
        write: bool,
        pages: KVec<PinnedPages>,
        locked: LockedPages,
        call: AsyncCall,
    ) {
        let len = pages.iter().map(|p| p.len() as u64).sum();
        let shared = self.asyncs.shared.clone();
        let ops = match self.asyncs.of(place.node) {
            Ok(ops) => ops,
            Err(e) => return call.complete(Err(e)),
        };
        match Operation::moving(shared, place, write, pages, len, locked) {
            // Without memory the call is dropped, which completes it.
            Ok(op) => {
                if let Ok(op) = KBox::new(AsyncOp { op, call }, GFP_KERNEL) {
                    let _ = ops.push_within_capacity(op);
                }
            }
            Err(e) => call.complete(Err(e)),
        }
        self.asyncs.shared.touch();
    }

    /// Takes the steps that are due. Whether an operation has ended.
    pub(super) fn async_actions(&mut self, host: &Arc<Host>) -> bool {
        if !self.asyncs.shared.take_touched() && !self.asyncs.again {
            return false;
        }
        let mut nodes = core::mem::take(&mut self.asyncs.nodes);
        let mut ended = false;
        let before = self.posted;
        self.asyncs.again = false;
        for node in nodes.iter_mut() {
            ended |= self.advance_all(host, &mut node.ops);
        }
        nodes.retain(|node| !node.ops.is_empty());
        self.asyncs.nodes = nodes;
        if self.posted != before {
            self.asyncs.posted = self.posted;
        }
        ended
    }

    /// Takes the steps that are due of the calls for a node. Whether one has ended.
    fn advance_all(&mut self, host: &Arc<Host>, ops: &mut KVec<KBox<AsyncOp>>) -> bool {
        let (mut at, mut ended) = (0, false);
        while let Some(one) = ops.get_mut(at).filter(|_| at < UNDER_WAY) {
            match one.op.advance(self, host) {
                Outlook::Waits => at += 1,
                Outlook::Again => {
                    self.asyncs.again = true;
                    at += 1;
                }
                Outlook::Over(status, done) => {
                    ended = true;
                    if let Ok(one) = ops.remove(at) {
                        let AsyncOp { op, call } = KBox::into_inner(one);
                        // The pages are unpinned before the program sees the completion, but for
                        // pages that have to be marked dirty once more.
                        drop(op);
                        call.complete(match (status, done) {
                            (Status::Ok, _) | (_, 1..) => Ok(done as usize),
                            (why, 0) => Err(errno_of(why)),
                        });
                    }
                }
            }
        }
        ended
    }
}
