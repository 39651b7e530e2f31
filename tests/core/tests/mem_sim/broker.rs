// SPDX-License-Identifier: GPL-2.0

//! A host's broker: what the core decides is done here.

use zrs_core::mem::broker::{Action, Request};
use zrs_core::mem::id::Key;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as Wire, FLAG_KEEP};

use crate::host::ADMISSION;
use crate::program::Kind;
use crate::requester::Unsent;
use crate::serve::Reply;
use crate::world::{trace, World};

impl World {
    pub fn serve_via(&mut self, host: usize, reply: Reply, h: &MemHeader) {
        let token = self.number();
        let req = Request {
            requester: self.owner(reply),
            token,
            node: h.node,
            len: h.bytes,
            va: h.addr,
            keep: h.flags & FLAG_KEEP != 0,
            ttl_ms: h.arg,
            admission: h.key,
        };
        match self.hosts[host].broker.ask(req, self.now) {
            Ok(()) => {
                self.hosts[host].brokered.insert(token, reply);
            }
            Err(status) => {
                self.stats.via_refused += 1;
                self.answer(host, reply, Wire::Alloc, status);
            }
        }
    }

    pub fn serve_give_back(&mut self, host: usize, reply: Reply, h: &MemHeader) {
        let token = self.number();
        let requester = self.owner(reply);
        let begun = self.hosts[host].broker.give_back(requester, h.key, token);
        match begun {
            Ok(()) => {
                self.hosts[host].brokered.insert(token, reply);
            }
            Err(status) => self.answer(host, reply, Wire::Free, status),
        }
    }

    pub fn broker_actions(&mut self, host: usize) {
        while let Some(action) = self.hosts[host].broker.next_action(self.now) {
            trace!(self, "host {host}: broker: {action:?}");
            match action {
                Action::Alloc { at } => {
                    let admission = Key::decode(ADMISSION);
                    let ask = self.hosts[host].broker.alloc_ask(at, admission);
                    self.broker_asks(host, ask, Kind::BrokerAlloc { at });
                }
                Action::Derive { at } => {
                    let ask = self.hosts[host].broker.key_ask(at);
                    self.broker_asks(host, ask, Kind::BrokerKey { at });
                }
                Action::Free { at } => {
                    let ask = self.hosts[host].broker.free_ask(at);
                    self.broker_asks(host, ask, Kind::BrokerFree { at });
                }
                Action::Answer { req, result } => {
                    let reply = self.hosts[host].brokered.remove(&req.token);
                    let reply = reply.expect("each is answered once");
                    let answer = match result {
                        Ok(key2) => {
                            self.stats.via_given += 1;
                            MemHeader {
                                addr: req.va,
                                bytes: req.len,
                                node: req.node,
                                key2,
                                ..MemHeader::answer(0, Wire::Alloc, Status::Ok)
                            }
                        }
                        Err(status) => MemHeader::answer(0, Wire::Alloc, status),
                    };
                    self.answer_with(host, reply, answer, Vec::new());
                }
                Action::AnswerFree { token, status } => {
                    self.stats.via_given_back += u64::from(status == Status::Ok);
                    let reply = self.hosts[host].brokered.remove(&token);
                    let reply = reply.expect("each is answered once");
                    self.answer(host, reply, Wire::Free, status);
                }
            }
        }
    }

    fn broker_asks(&mut self, host: usize, ask: Option<MemHeader>, kind: Kind) {
        let ask = ask.expect("an entry of the broker");
        let op = self.new_op(host, kind);
        let Some(to) = self.hosts[host].find(ask.node) else {
            self.op_over(op, Status::NoNode);
            return;
        };
        let wire = ask.op.expect("an ask");
        let sent = self.ask(host, to, wire, op, |_| ask, Vec::new());
        match sent {
            Ok(()) => {}
            Err(Unsent::Room) => self.op_over(op, Status::Again),
            Err(Unsent::Unreachable) => self.op_over(op, Status::Unreachable),
        }
    }
}
