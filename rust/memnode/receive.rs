// SPDX-License-Identifier: GPL-2.0

//! Completions of a memory link, and the messages that arrive on it.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{now_ms, Host, Kind, State};
use super::side::{Life, Queues, WR_DATA, WR_LAST, WR_RECV, WR_REG, WR_SEND};
use crate::ib::cq::Wc;
use crate::net_warn_ratelimited;
use crate::params;
use crate::proto::mem::asks::{AskSlot, Asks, ASKS_MAX};
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Message, Op, Type};
use crate::proto::wire::{self, HEADER_LEN, HEARTBEAT_ASKS, SMALL_MAX};
use crate::proto::Violation;
use crate::stats::STATS;

impl State {
    /// Takes all completions of a link.
    pub(super) fn poll(&mut self, host: &Arc<Host>, slot: usize, serial: u64) {
        let mut wcs: [Wc; 16] = core::array::from_fn(|_| Wc::default());
        loop {
            let Some(side) = self.side(slot).filter(|s| s.serial == serial) else {
                return;
            };
            // Until the peer's terms are known, its messages wait.
            let known = side.flow.is_some() || side.life == Life::Down;
            let Some(queues) = side.queues.clone().filter(|_| known) else {
                return;
            };
            let n = queues.cq.poll(&mut wcs);
            STATS.completions.add(n as u64);
            for wc in wcs.iter().take(n) {
                self.completed(host, slot, &queues, wc);
            }
            if n == 0 {
                match queues.cq.arm() {
                    Ok(true) => continue,
                    Ok(false) => return,
                    Err(_) => return self.fail(slot, Status::Lost),
                }
            }
        }
    }

    fn completed(&mut self, host: &Arc<Host>, slot: usize, queues: &Queues, wc: &Wc) {
        let (what, n) = ((wc.wr_id() >> 32) as u32, wc.wr_id() as u32);
        if what == WR_LAST {
            if let Some(side) = self.side(slot) {
                side.drained = true;
            }
            return;
        }
        if !wc.is_ok() {
            return self.fail(slot, Status::Lost);
        }
        let Some(side) = self.side(slot) else {
            return;
        };
        if what != WR_RECV {
            side.sq_stall.moved();
        }
        let result = match what {
            WR_SEND => {
                let ask = side.tx_asks.get(n as usize).copied();
                if let Some(ask) = ask.filter(|ask| *ask != 0) {
                    side.asks.sent(ask, now_ms());
                }
                side.sends = side.sends.saturating_sub(1);
                side.sq_used = side.sq_used.saturating_sub(1);
                let _ = side.free.push(n as u16, GFP_KERNEL);
                Ok(())
            }
            WR_DATA => {
                if let Some(data) = side.take_data(n) {
                    self.moved(slot, data);
                }
                Ok(())
            }
            WR_REG => {
                side.sq_used = side.sq_used.saturating_sub(side.registering);
                side.registering = 0;
                let done = side.to_register.remove(0);
                if let Ok((number, invalidate)) = done {
                    self.registered(slot, number, invalidate);
                }
                Ok(())
            }
            _ => self.arrived(host, slot, queues, n, wc.byte_len()),
        };
        if let Err(what) = result {
            self.violated(slot, what);
        }
    }

    /// Ends the link, whose peer has broken the rule `what` of the protocol.
    fn violated(&mut self, slot: usize, what: Violation) {
        STATS.protocol_errors.add(1);
        if let Some(side) = self.side(slot) {
            let ip = side.ip;
            net_warn_ratelimited!("memory link to {ip:?} closed: protocol violation {what:?}\n");
        }
        self.fail(slot, Status::Lost);
    }

    /// A message has arrived in block `n`.
    fn arrived(
        &mut self,
        host: &Arc<Host>,
        slot: usize,
        queues: &Queues,
        n: u32,
        len: u32,
    ) -> Result<(), Violation> {
        match self.side(slot).ok_or(Violation::State)?.life {
            Life::Down => return Ok(()),
            // The peer's first message may be faster than the connection manager's event.
            Life::Connecting => {
                if self.connected(slot).is_err() {
                    self.fail(slot, Status::NoMemory);
                    return Ok(());
                }
            }
            Life::Proving | Life::Up => {}
        }
        let payload_len = (len as usize)
            .checked_sub(HEADER_LEN)
            .ok_or(Violation::Length)?;
        if payload_len > SMALL_MAX as usize {
            return Err(Violation::Length);
        }
        let taken = Self::take(queues, n, payload_len);
        let reposted = queues.post_recv(n);
        let Ok((bytes, payload)) = taken else {
            self.fail(slot, Status::Lost);
            return Ok(());
        };
        if reposted.is_err() {
            self.fail(slot, Status::Lost);
            return Ok(());
        }
        STATS.recv_requests.add(1);
        self.heard(slot);
        let message = Message::decode(&bytes, payload_len as u32)?;
        let side = self.side(slot).ok_or(Violation::State)?;
        side.heard_ms = now_ms();
        side.asked_ms = None;
        let flow = side.flow.as_mut().ok_or(Violation::State)?;
        flow.arrived(message.link_credit())?;
        flow.reposted();
        if side.proto.is_proving() {
            return self.proof_arrived(host, slot, &message, &payload);
        }
        side.proto.arrived(&message)?;
        match message {
            Message::Link(h) => {
                side.pong |= h.kind == wire::Type::Heartbeat && h.arg0 == HEARTBEAT_ASKS;
                Ok(())
            }
            Message::Mem(h) => self.received(host, slot, &h, payload),
        }
    }

    fn take(queues: &Queues, n: u32, len: usize) -> Result<([u8; HEADER_LEN], KVec<u8>)> {
        let (piece, at) = queues.rx.get(n as usize)?;
        piece.region.sync_for_cpu(at, HEADER_LEN + len)?;
        let bytes = piece.mem.read::<HEADER_LEN>(at)?;
        let mut payload = KVec::from_elem(0, len, GFP_KERNEL)?;
        piece.mem.copy_payload(at + HEADER_LEN, &mut payload)?;
        Ok((bytes, payload))
    }

    fn received(
        &mut self,
        host: &Arc<Host>,
        slot: usize,
        h: &MemHeader,
        payload: KVec<u8>,
    ) -> Result<(), Violation> {
        match h.kind {
            Type::Hello => {
                let mut nodes = KVec::new();
                let mut kept = true;
                for info in crate::proto::mem::payload::nodes(&payload)? {
                    kept &= nodes.push(info?, GFP_KERNEL).is_ok();
                }
                let side = self.side(slot).ok_or(Violation::State)?;
                side.nodes = nodes;
                let limits = side.proto.peer().ok_or(Violation::State)?;
                let places = KVec::from_elem(AskSlot::EMPTY, ASKS_MAX, GFP_KERNEL);
                let Some(places) = places.ok().filter(|_| kept) else {
                    self.fail(slot, Status::NoMemory);
                    return Ok(());
                };
                let share = params::MEM_USER_PERCENT.get();
                side.asks = Asks::new(places, limits.asks, share);
                Ok(())
            }
            Type::Answer => {
                if h.op == Some(Op::Open) && h.status == Status::Ok {
                    drop(crate::proto::mem::payload::extents(&payload, h.bytes)?);
                }
                let side = self.side(slot).ok_or(Violation::State)?;
                let token = side.asks.answered(h)?;
                self.answered(Some(slot), token, h, payload)
            }
            Type::Revoke => {
                if h.status == Status::Sealed {
                    self.target_sealed(slot, h.grant);
                }
                let side = self.side(slot).ok_or(Violation::State)?;
                let leave = side.cache.revoke(h.grant);
                self.leave(slot, leave);
                Ok(())
            }
            Type::Ask | Type::Revoked => self.asked(host, slot, h, &payload),
        }
    }

    /// An ask is over.
    pub(super) fn answered(
        &mut self,
        slot: Option<usize>,
        token: u64,
        h: &MemHeader,
        payload: KVec<u8>,
    ) -> Result<(), Violation> {
        match (self.take_op(token), slot) {
            (Some(Kind::Call(call)), _) => self.tell(&call, *h, payload),
            (Some(Kind::Open(lent)), Some(slot)) => self.opened(slot, lent, h, &payload)?,
            (Some(Kind::Broker(at)), _) => self.broker_answered(at, h),
            (Some(Kind::Errand(at)), _) => self.errands.answered(at, h.status, now_ms()),
            (Some(Kind::Wrote(job, serial)), _) => self.marked(job, serial, h.status),
            (Some(Kind::Put(job, serial, len)), _) => self.put_done(job, serial, len, h.status),
            _ => {}
        }
        Ok(())
    }
}
