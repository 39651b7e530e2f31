// SPDX-License-Identifier: GPL-2.0

//! Brokers: this host allocates at memory nodes for other hosts, as `proto/mem/broker` decides.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::host::{now_ms, Host, Kind, Route, State};
use super::node::slots;
use super::server::Reply;
use crate::proto::mem::broker::{Action, Broker, Entry, Request, Rule};
use crate::proto::mem::id::{Key, NodeId};
use crate::proto::mem::slab::Slot;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Op, FLAG_KEEP};

/// Most rules of a host.
const RULES: usize = 16;
/// Most regions that are allocated for others.
const REGIONS: usize = 256;
/// How long regions of a lost requester stay, in milliseconds.
const ORPHAN_MS: u64 = 60_000;

/// A requester that waits for an answer.
struct Waiting {
    token: u64,
    reply: Reply,
    /// The node as the requester names it.
    node: NodeId,
}

/// The broker of a host.
pub(super) struct HostBroker {
    core: Broker<KVec<Option<Rule>>, KVVec<Slot<Entry>>>,
    /// The admission keys of the nodes.
    admissions: KVec<(NodeId, Key)>,
    waiting: KVec<Waiting>,
}

impl HostBroker {
    /// Without rules. Sleeps. ENOMEM.
    pub(super) fn new() -> Result<KBox<Self>> {
        let rules = KVec::from_elem(None, RULES, GFP_KERNEL)?;
        let broker = Self {
            core: Broker::new(rules, slots(REGIONS)?, ORPHAN_MS),
            admissions: KVec::with_capacity(RULES, GFP_KERNEL)?,
            waiting: KVec::new(),
        };
        Ok(KBox::new(broker, GFP_KERNEL)?)
    }

    /// A host that was lost is back.
    pub(super) fn requester_back(&mut self, requester: u32) {
        self.core.requester_back(requester);
    }

    /// Whether there is a region, which may outlive its rule, or a request.
    pub(super) fn has_regions(&self) -> bool {
        !self.core.is_empty()
    }

    /// Whether there is a region of `requester`, or a request.
    pub(super) fn knows(&self, requester: u32) -> bool {
        self.core.has_requester(requester)
    }

    fn admission(&self, node: NodeId) -> Key {
        let known = self.admissions.iter().find(|a| a.0 == node);
        known.map_or(Key::default(), |a| a.1)
    }

    fn take(&mut self, token: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| w.token == token)?;
        self.waiting.remove(at).ok()
    }

    /// Remembers a requester. `NoMemory`.
    fn wait(&mut self, token: u64, reply: Reply, node: NodeId) -> Result<(), Status> {
        let waiting = Waiting { token, reply, node };
        let entered = self.waiting.push(waiting, GFP_KERNEL);
        entered.map_err(|_| Status::NoMemory)
    }
}

impl State {
    /// Adds the rule of a node, whose own admission key is `admission`. EEXIST if it has one;
    /// ENOSPC.
    pub(super) fn add_rule(&mut self, rule: Rule, admission: Key) -> Result {
        let broker = self.broker.as_mut().ok_or(ENOMEM)?;
        if broker.admissions.iter().any(|a| a.0 == rule.node) {
            return Err(EEXIST);
        }
        if broker.admissions.len() >= RULES || !broker.core.set_rule(rule) {
            return Err(ENOSPC);
        }
        let _ = broker
            .admissions
            .push_within_capacity((rule.node, admission));
        Ok(())
    }

    /// Ends the rule of a node, and frees what was allocated by it.
    pub(super) fn end_rule(&mut self, node: NodeId) {
        if let Some(broker) = &mut self.broker {
            broker.core.end_rule(node);
            broker.admissions.retain(|a| a.0 != node);
        }
    }

    /// An ALLOC with VIA.
    pub(super) fn serve_via(&mut self, host: &Arc<Host>, reply: Reply, h: &MemHeader) {
        let (requester, token) = (self.owner(&reply), self.number());
        let own = host.memory.own_domain(&host.net);
        let Some(broker) = self.broker.as_mut() else {
            return self.answer_status(reply, Op::Alloc, Status::Denied);
        };
        let request = Request {
            requester,
            token,
            node: h.node.qualified(own),
            len: h.bytes,
            va: h.addr,
            keep: h.flags & FLAG_KEEP != 0,
            ttl_ms: h.arg,
            admission: h.key,
        };
        let asked = broker.wait(token, reply.clone(), h.node);
        let asked = asked.and_then(|()| broker.core.ask(request, now_ms()));
        if let Err(status) = asked {
            broker.take(token);
            self.answer_status(reply, Op::Alloc, status);
        }
    }

    /// A FREE with a key that may be one that this broker has given. False if it is not.
    pub(super) fn give_back(&mut self, reply: &Reply, h: &MemHeader) -> bool {
        let (requester, token) = (self.owner(reply), self.number());
        let Some(broker) = self.broker.as_mut() else {
            return false;
        };
        if broker.wait(token, reply.clone(), h.node).is_err() {
            return false;
        }
        let given = broker.core.give_back(requester, h.key, token).is_ok();
        if !given {
            broker.take(token);
        }
        given
    }

    /// The link of a requester is down; `lost` if it has no other one.
    pub(super) fn broker_link_lost(&mut self, slot: usize, serial: u64, lost: Option<u32>) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let by_it =
            |w: &Waiting| matches!(w.reply, Reply::Peer(a, b, _) if (a, b) == (slot, serial));
        let HostBroker { core, waiting, .. } = &mut **broker;
        core.link_lost(|token| waiting.iter().any(|w| w.token == token && by_it(w)));
        waiting.retain(|w| !by_it(w));
        if let Some(requester) = lost {
            broker.core.requester_lost(requester, now_ms());
        }
    }

    /// Takes the broker's steps that are due. Whether there was one.
    pub(super) fn broker_actions(&mut self, host: &Arc<Host>) -> bool {
        let mut changed = false;
        while let Some(broker) = self.broker.as_mut() {
            let Some(action) = broker.core.next_action(now_ms()) else {
                break;
            };
            changed = true;
            match action {
                Action::Alloc { at } => {
                    let node = broker.core.node(at).unwrap_or_default();
                    let ask = broker.core.alloc_ask(at, broker.admission(node));
                    self.ask_node(host, at, Op::Alloc, ask);
                }
                Action::Derive { at } => {
                    let ask = broker.core.key_ask(at);
                    self.ask_node(host, at, Op::Key, ask);
                }
                Action::Free { at } => {
                    let ask = broker.core.free_ask(at);
                    self.ask_node(host, at, Op::Free, ask);
                }
                Action::Answer { req, result } => {
                    if let Some(waiting) = broker.take(req.token) {
                        let status = result.err().unwrap_or(Status::Ok);
                        let answer = MemHeader::answer(0, Op::Alloc, status);
                        let answer = match result {
                            Ok(key2) => MemHeader {
                                addr: req.va,
                                bytes: req.len,
                                node: waiting.node,
                                key2,
                                ..answer
                            },
                            Err(_) => answer,
                        };
                        self.answer(waiting.reply, answer, KVec::new());
                    }
                }
                Action::AnswerFree { token, status } => {
                    if let Some(waiting) = broker.take(token) {
                        self.answer_status(waiting.reply, Op::Free, status);
                    }
                }
            }
        }
        changed
    }

    /// Sends an ask of the broker to the node; a failure to send is passed on as its answer.
    fn ask_node(&mut self, host: &Arc<Host>, at: u32, op: Op, ask: Option<MemHeader>) {
        let asked = ask
            .ok_or(Status::Stale)
            .and_then(|ask| match self.route(host, ask.node)? {
                Route::Here => {
                    let h = MemHeader { id: 1, ..ask };
                    let served = self.serve(host, Reply::Broker(at), &h, &[]);
                    served.map_err(|_| Status::Invalid)
                }
                Route::Link(slot) => self.ask_peer(slot, None, Kind::Broker(at), ask, KVec::new()),
            });
        if let Err(status) = asked {
            self.broker_answered(at, &MemHeader::answer(0, op, status));
        }
    }

    /// The node has answered the broker.
    pub(super) fn broker_answered(&mut self, at: u32, h: &MemHeader) {
        let Some(broker) = self.broker.as_mut() else {
            return;
        };
        let key = match h.status {
            Status::Ok => Ok(h.key2),
            why => Err(why),
        };
        match h.op {
            Some(Op::Alloc) => broker.core.allocated(at, key),
            Some(Op::Key) => broker.core.derived(at, key),
            _ => broker.core.freed(at, h.status, now_ms()),
        }
    }
}
