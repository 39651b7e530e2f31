// SPDX-License-Identifier: GPL-2.0

//! A socket as the transport sees it: the owner of a channel.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::deliver::deliver;
use super::Sock;
use crate::kern::net::Net;
use crate::kern::sock::SkRef;
use crate::kern::trace::EscapedFrom;
use crate::pool::cache::Copied;
use crate::pool::lessee::Lessee;
use crate::pool::window::WindowUse;
use crate::pool::{Held, Pool};
use crate::proto::channel::{Channel, Failure, Plan};
use crate::proto::link_table::{Grant, Recall};
use crate::proto::liveness::Silence;
use crate::proto::quota::Holder;
use crate::proto::wire::{Header, Type};
use crate::proto::{ChanId, Violation};
use crate::transport::conn::{Committed, Conn, ConnOps, Delivery, NextControl, TxBlocked};
use crate::transport::conn_table::ConnWord;
use crate::transport::link::{Link, RetryPolicy};
use crate::transport::sched::{Channels, FlowId};
use crate::transport::tx::Payload;
use crate::uapi::zrs_info;

impl ConnOps for Sock {
    fn holder(&self) -> Holder {
        Sock::holder(self)
    }

    fn info(&self, net: &Net) -> Option<zrs_info> {
        (self.net == *net).then(|| self.listed_info())
    }

    fn lessee(self: Arc<Self>) -> Arc<dyn Lessee> {
        self
    }

    fn word(&self) -> &Arc<ConnWord> {
        &self.word
    }

    fn with(&self, work: &mut dyn FnMut(&mut Conn)) {
        work(&mut self.inner.lock().conn);
    }

    fn recall(&self, id: ChanId, recall: &mut Recall) -> Option<Grant<KBox<Channel>>> {
        self.inner.try_lock()?.conn.chan.give_back(id, recall)
    }

    fn parked(self: Arc<Self>) {
        self.on_parked();
    }

    fn vacate_blocks(self: Arc<Self>) {
        Sock::vacate_blocks(&self);
    }

    fn tx_blocked(&self) -> &TxBlocked {
        &self.tx_blocked
    }

    fn write_space(&self) {
        self.wake_write();
    }

    fn flush(self: Arc<Self>) -> bool {
        Sock::flush(&self)
    }

    fn commit(
        self: &Arc<Self>,
        plan: Plan,
        payload: &Payload,
        seq: u64,
        done: u64,
    ) -> Option<Committed> {
        let corked = matches!(plan, Plan::Corked(_));
        let in_slot = matches!(payload, Payload::Copied);
        let inner = &mut *self.inner.lock();
        if in_slot && !corked && !inner.may_hold(plan.len()) {
            return None;
        }
        let held = corked && inner.cork.is_auto();
        let commit = inner.conn.commit(plan, payload, held, seq, done)?;
        let charge = match (in_slot, corked) {
            (true, true) => inner.charge_corked(self),
            (true, false) => inner.charge_copy(self, plan.len()),
            (false, _) => None,
        };
        // Corked bytes were counted when they were corked.
        if !corked {
            let n = commit.chunk.header.len as usize;
            let copied = if payload.is_copy() { n } else { 0 };
            inner.counters.sent(n, copied);
        }
        let wanted = !corked && inner.unlock_send();
        Some(Committed {
            commit,
            charge,
            wanted,
        })
    }

    fn tx_complete(self: Arc<Self>, pos: u64) {
        Sock::tx_complete(&self, pos);
    }

    fn next_control(&self, flow: FlowId, channels: &mut Channels) -> NextControl {
        let inner = &mut *self.inner.lock();
        let was = inner.state_before();
        let mut next = inner.conn.next_control(flow, channels);
        inner.trace_state_change(was);
        let grants = |h: &Header| h.kind == Type::WindowGrant && h.arg1 != 0;
        if next.header.as_ref().is_some_and(grants) {
            next.window = inner.window.as_ref().and_then(WindowUse::new);
        }
        next
    }

    fn copies_small(&self) -> bool {
        self.inner.lock().copies_small()
    }

    fn copy_payload(&self, pool: &Pool, block: u32, len: usize) -> Result<Copied> {
        let copy = self.promised(|flags| pool.copy_payload(block, len, flags))?;
        self.trace_escape(len as u32, None, EscapedFrom::Block);
        Ok(copy)
    }

    fn deliver(
        &self,
        link: &Arc<Link>,
        h: &Header,
        held: &mut Option<Held>,
        may_grow: bool,
    ) -> Result<Delivery, Violation> {
        deliver(self, link, h, held, may_grow)
    }

    fn make_room(&self, id: ChanId) {
        Sock::make_room(self, id);
    }

    fn data_ready(&self, sk: Option<SkRef>) {
        self.wake_read(sk);
    }

    fn ask_for_doorbell(self: Arc<Self>) {
        Sock::ask_for_doorbell(&self);
    }

    fn reap(&self) {
        Sock::reap(self);
    }

    fn watch(&self) -> (Option<ChanId>, Option<u64>) {
        let mut inner = self.inner.lock();
        (inner.conn.watch(), inner.due())
    }

    fn watch_if_due(&self) -> Option<ChanId> {
        let mut inner = self.inner.lock();
        inner.due()?;
        inner.conn.watch();
        inner.conn.chan.id()
    }

    fn check_timers(self: Arc<Self>, id: ChanId, now: u64) -> Option<u64> {
        Sock::check_timers(&self, id, now)
    }

    fn on_silence(self: Arc<Self>, link: &Arc<Link>, silence: Silence) -> Option<u64> {
        Sock::on_silence(&self, link, silence)
    }

    fn link_lost(self: Arc<Self>, link: &Arc<Link>, why: Failure, retry: RetryPolicy) {
        Sock::link_lost(&self, link, why, retry);
    }

    fn state_change(&self) {
        self.wake_state();
    }

    fn try_finish(self: Arc<Self>) {
        Sock::try_finish(&self);
    }

    fn release_window(&self) {
        self.try_release_window();
    }
}
