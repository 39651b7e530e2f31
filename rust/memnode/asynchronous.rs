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
use crate::proto::mem::status::Status;

/// Operations that are under way at a time; the others wait in their order.
const UNDER_WAY: usize = 64;

/// A call of a program that is under way, or waits.
struct AsyncOp {
    op: Operation,
    call: AsyncCall,
}

/// All such calls of a host.
pub(super) struct Asyncs {
    shared: Arc<Shared>,
    ops: KVec<KBox<AsyncOp>>,
    /// One of them waits for room, or for another step.
    again: bool,
}

impl Asyncs {
    /// None. ENOMEM.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            shared: Shared::new()?,
            ops: KVec::new(),
            again: false,
        })
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
        if let Err(e) = self.asyncs.ops.reserve(1, GFP_KERNEL) {
            return call.complete(Err(e.into()));
        }
        match Operation::moving(shared, place, write, pages, len, locked) {
            // Without memory the call is dropped, which completes it.
            Ok(op) => {
                if let Ok(op) = KBox::new(AsyncOp { op, call }, GFP_KERNEL) {
                    let _ = self.asyncs.ops.push_within_capacity(op);
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
        let mut ops = core::mem::take(&mut self.asyncs.ops);
        let (mut at, mut ended) = (0, false);
        self.asyncs.again = false;
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
        self.asyncs.ops = ops;
        ended
    }
}
