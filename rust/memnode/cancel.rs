// SPDX-License-Identifier: GPL-2.0

//! Abandoned operations, whose callers do not wait any more: they are canceled, taken back, or
//! undone, and their hosts asked in the background (errands).

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{now_ms, Answer, Call, Host, Kind, Route, State};
use super::server::Reply;
use crate::proto::mem::errands::undoing;
use crate::proto::mem::id::NodeId;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op};

impl State {
    /// Takes an ask back that was not posted yet; it is answered with `Canceled`. False if there is
    /// none.
    fn unqueue(&mut self, token: u64) -> bool {
        for side in self.sides.iter_mut().flatten() {
            if let Some((op, token)) = side.unqueue(token) {
                let h = MemHeader::answer(0, op, Status::Canceled);
                let _ = self.answered(None, token, &h, KVec::new());
                return true;
            }
        }
        false
    }

    /// Nobody waits any more for the answer to `ask`, which the host of `to` was asked: it is taken
    /// back, or what the node does for it is undone. Call [`Self::cancel_call`] for a COPY.
    pub(super) fn abandon(&mut self, call: &Arc<Call>, to: NodeId, ask: &MemHeader) {
        let answer = call.look(|o| {
            o.abandoned = Some((to, *ask));
            o.answer.take()
        });
        if let Some(answer) = answer {
            return self.undo(to, ask, &answer.h);
        }
        let ours = |o: &&(u64, Kind)| matches!(&o.1, Kind::Call(c) if Arc::ptr_eq(c, call));
        if let Some(token) = self.ops.iter().find(ours).map(|o| o.0) {
            self.unqueue(token);
        }
    }

    /// Tells an operation of a program the answer.
    pub(super) fn tell(&mut self, call: &Arc<Call>, h: MemHeader, payload: KVec<u8>) {
        let abandoned = call.with(|o| {
            if o.abandoned.is_none() {
                o.answer = Some(Answer { h, payload });
            }
            o.abandoned
        });
        if let Some((to, ask)) = abandoned {
            self.undo(to, &ask, &h);
        }
    }

    fn undo(&mut self, to: NodeId, ask: &MemHeader, answer: &MemHeader) {
        if let Some(undoing) = undoing(ask, answer) {
            self.errands.add(to, undoing, now_ms());
        }
    }

    /// Has the host of `to` asked, which is not waited for. It is asked again as long as it cannot
    /// be reached; once only if there are too many such asks.
    pub(super) fn in_the_background(&mut self, host: &Arc<Host>, to: NodeId, ask: MemHeader) {
        if self.errands.add(to, ask, now_ms()) {
            return;
        }
        if let Ok(Route::Link(slot)) = self.route(host, to) {
            let _ = self.ask_peer(slot, None, Kind::Nothing, ask, KVec::new());
        }
    }

    /// Makes the errands that are due.
    pub(super) fn errand_actions(&mut self, host: &Arc<Host>) {
        while let Some((at, to, ask)) = self.errands.next_due(now_ms()) {
            if let Err(why) = self.make_errand(host, at, to, ask) {
                self.errands.answered(at, why, now_ms());
            }
        }
    }

    fn make_errand(
        &mut self,
        host: &Arc<Host>,
        at: u32,
        to: NodeId,
        ask: MemHeader,
    ) -> Result<(), Status> {
        match self.route(host, to)? {
            Route::Here => {
                let call = Call::new().map_err(|_| Status::NoMemory)?;
                let h = MemHeader { id: 1, ..ask };
                let served = self.serve(host, Reply::Local(call.clone()), &h, &[]);
                served.map_err(|_| Status::Invalid)?;
                let status = call.look(|o| o.answer.as_ref().map(|a| a.h.status));
                // Without a status yet: the node has begun the operation, and will complete it.
                let status = status.unwrap_or(Status::Ok);
                self.errands.answered(at, status, now_ms());
                Ok(())
            }
            Route::Link(slot) => self.ask_peer(slot, None, Kind::Errand(at), ask, KVec::new()),
        }
    }

    /// Cancels an operation of a program, which ends as soon as possible: a COPY is canceled, and
    /// so is any ask that was not posted yet.
    pub(super) fn cancel_call(&mut self, call: &Arc<Call>) {
        if let Some(job) = self.local_job_of(call) {
            self.copies.cancel(job, Status::Canceled, now_ms());
            return;
        }
        let ours = |o: &&(u64, Kind)| matches!(&o.1, Kind::Call(c) if Arc::ptr_eq(c, call));
        let Some(token) = self.ops.iter().find(ours).map(|o| o.0) else {
            return;
        };
        if self.unqueue(token) {
            return;
        }
        let mut sides = (0..).zip(self.sides.iter());
        let asked = sides.find_map(|(slot, side)| Some((slot, side.as_ref()?.asks.id_of(token)?)));
        if let Some((slot, id)) = asked {
            let ask = MemHeader {
                arg: id,
                ..MemHeader::ask(0, Op::Cancel)
            };
            let _ = self.ask_peer(slot, None, Kind::Nothing, ask, KVec::new());
        }
    }
}
