// SPDX-License-Identifier: GPL-2.0

//! This host's end of a memory link: what is posted. `receive` has what arrives.
//!
//! Messages wait in `out`, asks in `queue` until the peer takes them; what is in either is posted
//! when a transmit slot and credit are free. On Soft-RoCE, registrations need an idle send queue:
//! it sends again what was not acknowledged, a registration too, which fails the second time. So no
//! message is posted while one waits.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;

use super::grants::Granted;
use super::grants::{Lending, Wanting};
use super::host::{now_ms, Host, State};
use super::link::MemLink;
use super::node::slots;
use super::remote_keys::Registration;
use crate::ib::cq::Cq;
use crate::ib::device::Device;
use crate::ib::dma::{DmaRuns, Mapped, RunSource, Sge};
use crate::ib::mr_pool::MrPool;
use crate::ib::pd::Pd;
use crate::ib::qp::{Qp, SendOp, SendWr};
use crate::kern::errno::ENOTCONN;
use crate::params;
use crate::proto::addr::Ip;
use crate::proto::link_flow::LinkFlow;
use crate::proto::mem::asks::{patience_of, AskSlot, Asks, ASKS_MAX, ENDING_MS};
use crate::proto::mem::grant_cache::GrantCache;
use crate::proto::mem::grant_cache::Lent;
use crate::proto::mem::grants::{Grant, Grants};
use crate::proto::mem::link::{End, Link};
use crate::proto::mem::payload::NodeInfo;
use crate::proto::mem::room::{CallRoom, Load};
use crate::proto::mem::server::{Server, ServerSlot};
use crate::proto::mem::slab::Slot;
use crate::proto::mem::stall::Stall;
use crate::proto::mem::status::Status;
use crate::proto::mem::wire::{MemHeader, Message, Op, Type};
use crate::proto::sizing::{MEM_RECEIVES, SQ_DEPTH};
use crate::proto::wire::{self, Header, HEADER_LEN, HEARTBEAT_ASKS, HELLO_MOST};
use crate::qp_link::buffers::Buffers;
use crate::stats::STATS;

/// Receives of a link, and SENDs that the peer may post.
pub(super) const RX_BLOCKS: u32 = MEM_RECEIVES;
/// SENDs that may be under way.
const TX_SLOTS: u16 = 32;
/// Bytes of a block or transmit slot: a header and the largest payload.
pub(super) const BLOCK: usize = 2 * kernel::page::PAGE_SIZE;
/// Work requests that the WRITEs and READs of programs leave free for messages, registrations and
/// the chunks of copies, which cannot wait.
const SQ_RESERVE: u32 = 300;
/// Bytes of programs' WRITEs and READs that may be under way: what ends a grant waits behind them.
const CALL_BYTES: u64 = 4 << 20;
/// The WRITEs and READs of programs that may be under way.
const CALLS_MOST: Load = Load {
    bytes: CALL_BYTES,
    wrs: SQ_DEPTH - SQ_RESERVE,
};
/// Grants that a requester may have on a link.
pub(super) const GRANTS: usize = 64;
/// Places for grants at the node: a requester uses a grant's place again as soon as it has given
/// the grant back, while the node still ends it.
const GRANT_PLACES: usize = 2 * GRANTS;
/// After this long without a message, a peer that owes something is asked whether it is there.
const QUIET_MS: u64 = 1000;
/// A link that is not up after this long ends. The connection manager alone may try for minutes:
/// for how long is said by its own timers at one end, by the peer's request at the other.
const SETUP_MS: u64 = 10_000;

/// The kind of a work request, in the upper half of its number.
pub(super) const WR_RECV: u32 = 1;
pub(super) const WR_SEND: u32 = 2;
pub(super) const WR_DATA: u32 = 3;
pub(super) const WR_REG: u32 = 4;
/// The last work request of all.
pub(super) const WR_LAST: u32 = 5;

/// The number of a work request.
pub(super) fn wr_id(what: u32, n: u32) -> u64 {
    (u64::from(what) << 32) | u64::from(n)
}

/// The states of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// It is being made.
    Connecting,
    /// Its queue pair is connected, and the hosts prove that they have a key: only the messages of
    /// the proof may be posted.
    Proving,
    /// Messages may be posted.
    Up,
    /// It is being taken down.
    Down,
}

/// The device's objects of a link, in the order of their destruction.
pub(super) struct Queues {
    pub(super) qp: Arc<Qp>,
    pub(super) cq: Arc<Cq>,
    pub(super) rx: Buffers,
    pub(super) tx: Buffers,
    /// For the grants of the peer.
    pub(super) mrs: Arc<MrPool>,
    pub(super) pd: Arc<Pd>,
    /// Elements of a send or WRITE, and of a READ.
    pub(super) max_sge: usize,
    pub(super) max_read_sge: usize,
}

impl Queues {
    /// Posts a receive to a block, which the device may write to. EINVAL, ENOMEM, what the driver
    /// says.
    pub(super) fn post_recv(&self, n: u32) -> Result {
        let (piece, at) = self.rx.get(n as usize)?;
        self.qp
            .post_recv(wr_id(WR_RECV, n), &[piece.sge(at, BLOCK)?])
    }
}

/// A message that was not posted yet.
pub(super) struct Out {
    message: Message,
    payload: KVec<u8>,
}

/// An ask that the peer does not take yet.
pub(super) struct Queued {
    ask: MemHeader,
    payload: KVec<u8>,
    token: u64,
    /// The user whose share it counts against.
    user: Option<u32>,
}

impl Queued {
    /// The operation, and the token of the answer.
    pub(super) fn parts(&self) -> (Op, u64) {
        (self.ask.op.unwrap_or(Op::Info), self.token)
    }
}

/// Bytes under way by remote keys.
pub(super) struct Data {
    _memory: Arc<dyn Mapped>,
    pub(super) wrs: u32,
    bytes: u64,
    pub(super) lent: u32,
    pub(super) what: Moved,
}

impl Data {
    fn load(&self) -> Load {
        Load {
            bytes: self.bytes,
            wrs: self.wrs,
        }
    }
}

/// The owner of bytes under way.
pub(super) enum Moved {
    /// An operation of a program.
    Call(Arc<super::host::Call>),
    /// A chunk of a copy: job, its serial number, bytes.
    Chunk(u32, u64, u64),
}

/// This host's end of a link.
pub(super) struct Side {
    pub(super) link: Arc<MemLink>,
    pub(super) serial: u64,
    pub(super) end: End,
    pub(super) ip: Ip,
    pub(super) peer: usize,
    pub(super) life: Life,
    pub(super) was_up: bool,
    pub(super) why: Status,
    pub(super) proto: Link,
    /// The peer's nodes, as its hello has said.
    pub(super) nodes: KVec<NodeInfo>,
    /// This host's hello as it was sent.
    pub(super) hello: [u8; HELLO_MOST],
    pub(super) flow: Option<LinkFlow>,
    pub(super) queues: Option<Arc<Queues>>,
    pub(super) drained: bool,
    pub(super) free: KVec<u16>,
    /// The ask in each transmit slot; 0: another message.
    pub(super) tx_asks: KVec<u32>,
    /// SENDs under way.
    pub(super) sends: u32,
    /// Work requests in the send queue.
    pub(super) sq_used: u32,
    out: KVec<Out>,
    pub(super) queue: KVec<Queued>,
    pub(super) asks: Asks<KVec<AskSlot>>,
    pub(super) cache: GrantCache<KVVec<Slot<Lent>>>,
    pub(super) lent: KVec<Option<Lending>>,
    /// Those that wait for room for a grant, in their order.
    pub(super) wanting: KVec<Wanting>,
    /// When the node last had no room for a grant.
    pub(super) refused_ms: Option<u64>,
    pub(super) data: KVec<Option<Data>>,
    /// The room for bytes of programs' operations.
    pub(super) call_room: CallRoom,
    pub(super) server: Server<KVec<ServerSlot>>,
    pub(super) grants: Grants<KVVec<Slot<Grant>>>,
    pub(super) registrations: KVec<Registration>,
    /// Registrations to be made, and those to be made invalid: numbers of grants.
    pub(super) to_register: KVec<(u32, bool)>,
    /// Work requests of the one that is under way.
    pub(super) registering: u32,
    /// Work requests that do not complete.
    pub(super) sq_stall: Stall,
    /// Asks that the peer does not take.
    queue_stall: Stall,
    /// When the link was begun.
    pub(super) begun_ms: u64,
    /// When the peer was last heard.
    pub(super) heard_ms: u64,
    pub(super) asked_ms: Option<u64>,
    ping: bool,
    pub(super) pong: bool,
}

impl Side {
    pub(super) fn new(
        host: &Arc<Host>,
        slot: usize,
        serial: u64,
        end: End,
        ip: Ip,
        peer: usize,
    ) -> Result<KBox<Self>> {
        let asks = KVec::from_elem(AskSlot::EMPTY, ASKS_MAX, GFP_KERNEL)?;
        let mut free = KVec::with_capacity(usize::from(TX_SLOTS), GFP_KERNEL)?;
        for slot in 0..TX_SLOTS {
            free.push(slot, GFP_KERNEL)?;
        }
        let side = Self {
            link: MemLink::new(host, slot, serial, ip)?,
            serial,
            end,
            ip,
            peer,
            life: Life::Connecting,
            was_up: false,
            why: Status::Unreachable,
            proto: Link::new(end),
            nodes: KVec::new(),
            hello: [0; HELLO_MOST],
            flow: None,
            queues: None,
            drained: false,
            free,
            tx_asks: KVec::from_elem(0, usize::from(TX_SLOTS), GFP_KERNEL)?,
            sends: 0,
            sq_used: 0,
            out: KVec::new(),
            queue: KVec::new(),
            asks: Asks::new(asks, 0, 100),
            cache: GrantCache::new(slots(GRANTS)?),
            lent: KVec::new(),
            wanting: KVec::new(),
            refused_ms: None,
            data: KVec::new(),
            call_room: CallRoom::new(CALLS_MOST),
            server: Server::new(KVec::from_elem(None, ASKS_MAX, GFP_KERNEL)?),
            grants: Grants::new(slots(GRANT_PLACES)?),
            registrations: KVec::new(),
            to_register: KVec::new(),
            registering: 0,
            sq_stall: Stall::default(),
            queue_stall: Stall::default(),
            begun_ms: now_ms(),
            heard_ms: now_ms(),
            asked_ms: None,
            ping: false,
            pong: false,
        };
        Ok(KBox::new(side, GFP_KERNEL)?)
    }

    /// The link is up; `flow` is what both sides have agreed on. The hello goes first.
    fn up(&mut self, nodes: KVec<u8>) -> Result {
        self.life = Life::Up;
        self.was_up = true;
        self.heard_ms = now_ms();
        let hello = MemHeader::hello(ASKS_MAX as u32, GRANTS as u32, nodes.len() as u32);
        self.say(hello, nodes)
    }

    /// Has a message posted. ENOMEM.
    pub(super) fn say(&mut self, h: MemHeader, payload: KVec<u8>) -> Result {
        self.post_later(Message::Mem(h), payload)
    }

    /// Has a message posted, behind those of before. ENOMEM.
    pub(super) fn post_later(&mut self, message: Message, payload: KVec<u8>) -> Result {
        Ok(self.out.push(Out { message, payload }, GFP_KERNEL)?)
    }

    /// Has the peer asked, for `user`, or for the host itself. ENOMEM. See [`State::ask_peer`].
    pub(super) fn ask(
        &mut self,
        user: Option<u32>,
        ask: MemHeader,
        payload: KVec<u8>,
        token: u64,
    ) -> Result {
        let queued = Queued {
            ask,
            payload,
            token,
            user,
        };
        Ok(self.queue.push(queued, GFP_KERNEL)?)
    }

    /// Takes an ask back that was not posted yet: its operation and token.
    pub(super) fn unqueue(&mut self, token: u64) -> Option<(Op, u64)> {
        let at = self.queue.iter().position(|q| q.token == token)?;
        self.queue.remove(at).ok().map(|q| q.parts())
    }

    /// Asks whether the peer is there; the answer proves that all earlier messages of the peer have
    /// arrived.
    pub(super) fn beat(&mut self) {
        self.ping = true;
    }

    fn post_message(&mut self, message: Message, payload: &[u8]) -> Result {
        let queues = self.queues.clone().ok_or(ENOTCONN)?;
        let slot = self.free.pop().ok_or(EAGAIN)?;
        let credit = self.flow.as_mut().map_or(0, LinkFlow::sending);
        let bytes = match message {
            Message::Link(h) => Header {
                link_credit: credit,
                ..h
            }
            .encode(),
            Message::Mem(h) => MemHeader {
                link_credit: credit,
                ..h
            }
            .encode(),
        };
        let (piece, at) = queues.tx.get(slot.into())?;
        piece.mem.write(at, &bytes)?;
        piece.mem.put_payload(at + HEADER_LEN, payload)?;
        let sges = [piece.sge(at, HEADER_LEN + payload.len())?];
        queues.qp.post(&[SendWr {
            wr_id: wr_id(WR_SEND, u32::from(slot)),
            op: SendOp::Send { sges: &sges },
            signaled: true,
        }])?;
        if let Some(ask) = self.tx_asks.get_mut(usize::from(slot)) {
            *ask = match message {
                Message::Mem(h) if h.kind == Type::Ask => h.id,
                _ => 0,
            };
        }
        self.sends += 1;
        self.sq_used += 1;
        STATS.work_requests.add(1);
        STATS.signaled.add(1);
        Ok(())
    }

    fn room(&self, control: bool) -> bool {
        let credit = self.flow.as_ref().map_or(0, |f| f.available(control));
        credit != 0 && !self.free.is_empty() && self.sq_used < SQ_DEPTH
    }

    /// Posts the first message that waits.
    fn post_first(&mut self) -> Result {
        let out = self.out.remove(0).map_err(|_| EINVAL)?;
        if matches!(&out.message, Message::Mem(h) if h.kind == Type::Answer) {
            self.server.posted();
        }
        self.post_message(out.message, &out.payload)
    }

    /// Posts the messages of the proof, and no other one.
    fn flush_proof(&mut self) -> Result {
        let proves = |out: &Out| matches!(out.message, Message::Link(_));
        while self.room(true) && self.out.first().is_some_and(proves) {
            self.post_first()?;
        }
        Ok(())
    }

    /// Posts what can be posted.
    fn flush(&mut self) -> Result {
        if self.queues.is_none() {
            return Ok(());
        }
        match self.life {
            Life::Up => {}
            Life::Proving => return self.flush_proof(),
            Life::Connecting | Life::Down => return Ok(()),
        }
        self.register()?;
        if !self.to_register.is_empty() || self.registering != 0 {
            return Ok(());
        }
        while self.room(true) && !self.out.is_empty() {
            self.post_first()?;
        }
        if (self.ping || self.pong) && self.room(true) {
            let mut beat = Header::new(
                wire::Type::Heartbeat,
                Default::default(),
                Default::default(),
            );
            beat.arg0 = if self.ping { HEARTBEAT_ASKS } else { 0 };
            self.post_message(Message::Link(beat), &[])?;
            (self.ping, self.pong) = (false, false);
        }
        let mut at = 0;
        while at < self.queue.len() && self.proto.peer().is_some() && self.room(false) {
            let next = self.queue.get(at);
            let next = next.and_then(|q| Some((q.ask.op?, q.user)));
            if next.is_none_or(|(op, user)| self.asks.room(op, user) == 0) {
                at += 1;
                continue;
            }
            let queued = self.queue.remove(at).map_err(|_| EINVAL)?;
            let ask = self.asks.begin(queued.ask, queued.token, queued.user);
            let ask = ask.ok_or(EINVAL)?;
            if patience_of(&ask, 0).is_some() {
                self.queue_stall.moved();
            }
            self.post_message(Message::Mem(ask), &queued.payload)?;
            self.link.host.counts.requests_sent.add(1);
        }
        let due = self.flow.as_ref().is_some_and(LinkFlow::credit_due);
        if due && !self.free.is_empty() {
            let lone = Header::new(
                wire::Type::LinkCredit,
                Default::default(),
                Default::default(),
            );
            self.post_message(Message::Link(lone), &[])?;
        }
        Ok(())
    }

    /// Begins the next registration, if the send queue is idle.
    fn register(&mut self) -> Result {
        let queues = self.queues.as_ref();
        let repeats = queues.is_some_and(|q| q.pd.device().repeats_registrations());
        if self.registering != 0 || repeats && self.sends != 0 {
            return Ok(());
        }
        let Some(&(number, invalidate)) = self.to_register.first() else {
            return Ok(());
        };
        let queues = self.queues.clone().ok_or(ENOTCONN)?;
        let of_it = |r: &&Registration| r.number == number;
        let Some(registration) = self.registrations.iter().find(of_it) else {
            let _ = self.to_register.remove(0);
            return Ok(());
        };
        let (total, access) = (registration.mrs.len(), registration.access);
        if total as u32 > SQ_DEPTH - self.sq_used {
            return Ok(());
        }
        for (i, mr) in registration.mrs.iter().enumerate() {
            let op = match invalidate {
                true => SendOp::Invalidate { mr },
                false => SendOp::Reg { mr, access },
            };
            queues.qp.post(&[SendWr {
                wr_id: wr_id(WR_REG, number),
                op,
                signaled: i + 1 == total,
            }])?;
        }
        STATS.work_requests.add(total as u64);
        self.registering = total as u32;
        self.sq_used += total as u32;
        Ok(())
    }

    /// Whether the peer keeps something waiting that it does not have to: its device what was
    /// posted, or its host the answer to an ask or the room for one. It may be alive all the same.
    fn is_stalled(&mut self, now: u64) -> bool {
        let patience = u64::from(params::DEAD_MS.get());
        let bounded = self.queue.iter().any(|q| patience_of(&q.ask, 0).is_some());
        // The answer whose place a queued ask needs may take the longest time.
        let queued = self
            .queue_stall
            .look(bounded, now, patience.saturating_add(ENDING_MS));
        let posted = self.sq_stall.look(self.sq_used != 0, now, patience);
        queued || posted || self.asks.is_late(now, patience)
    }

    /// Posts WRITEs or READs of all of `runs`, for the bytes from `addr` on of a grant. `Again` if
    /// the send queue has no room now, or, unless it is for a chunk, if enough is under way.
    ///
    /// The caller has begun the use of the grant, and ends it if this fails.
    pub(super) fn post_data<S: RunSource + Send + Sync + 'static>(
        &mut self,
        lent: u32,
        addr: u64,
        runs: &Arc<DmaRuns<S>>,
        write: bool,
        what: Moved,
    ) -> Result<(), Status> {
        let queues = self.queues.clone().ok_or(Status::Lost)?;
        let lending = self.lent.get(lent as usize).and_then(Option::as_ref);
        let lending = lending.ok_or(Status::Stale)?;
        let len = runs.bytes() as u64;
        let max_sge = match write {
            true => queues.max_sge,
            false => queues.max_read_sge,
        };
        // Each end of an extent splits a work request.
        let ends = lending.pieces(addr, len).count() as u32;
        let bound = ends * 2 + (runs.count().div_ceil(max_sge)) as u32;
        let reserve = match what {
            Moved::Call(_) => SQ_RESERVE,
            Moved::Chunk(..) => 0,
        };
        // Whether it is in the region was asked before.
        if lending.pieces(addr, len).map(|p| p.len).sum::<u64>() != len {
            return Err(Status::Denied);
        }
        // The node decides the number of extents.
        if bound + reserve > SQ_DEPTH {
            return Err(Status::Range);
        }
        let chunk = Load {
            bytes: len,
            wrs: bound,
        };
        let fits = match &what {
            Moved::Call(call) => self.call_room.fits(call.is_queued(), chunk),
            Moved::Chunk(..) => true,
        };
        if !fits || self.sq_used + bound + reserve > SQ_DEPTH {
            return Err(Status::Again);
        }
        let at = match self.data.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                let grown = self.data.push(None, GFP_KERNEL);
                grown.map_err(|_| Status::NoMemory)?;
                self.data.len() - 1
            }
        };
        let id = wr_id(WR_DATA, at as u32);
        let (mut done, mut wrs) = (0_u64, 0);
        let mut sges = [Sge::default(); 32];
        let list = sges.get_mut(..max_sge.min(32)).ok_or(Status::Io)?;
        let mut failed = false;
        'all: for piece in lending.pieces(addr, len) {
            let mut off = 0;
            while off < piece.len {
                let filled = runs.fill_sges(done as usize, (piece.len - off) as usize, list);
                let Ok((count, bytes)) = filled else {
                    failed = true;
                    break 'all;
                };
                let sges = list.get(..count).unwrap_or_default();
                let (raddr, rkey) = (piece.iova + off, piece.rkey);
                let op = match write {
                    true => SendOp::Write { sges, raddr, rkey },
                    false => SendOp::Read { sges, raddr, rkey },
                };
                let wr = SendWr {
                    wr_id: id,
                    op,
                    signaled: done + bytes as u64 == len,
                };
                if bytes == 0 || queues.qp.post(&[wr]).is_err() {
                    failed = true;
                    break 'all;
                }
                wrs += 1;
                off += bytes as u64;
                done += bytes as u64;
            }
        }
        self.sq_used += wrs;
        STATS.work_requests.add(u64::from(wrs));
        if failed && wrs == 0 {
            return Err(Status::NoMemory);
        }
        // Posted in part: the memory stays until the queue pair is gone, as the link ends.
        if let Some(place) = self.data.get_mut(at) {
            let data = Data {
                _memory: runs.clone(),
                wrs,
                bytes: len,
                lent,
                what,
            };
            if let Moved::Call(call) = &data.what {
                self.call_room.begin(call.is_queued(), data.load());
            }
            *place = Some(data);
        }
        if failed {
            self.broken();
        }
        Ok(())
    }

    /// The bytes of that number are under way no more.
    pub(super) fn take_data(&mut self, n: u32) -> Option<Data> {
        let data = self.data.get_mut(n as usize).and_then(Option::take)?;
        self.sq_used = self.sq_used.saturating_sub(data.wrs);
        if let Moved::Call(call) = &data.what {
            self.call_room.end(call.is_queued(), data.load());
        }
        Some(data)
    }

    /// Posting has failed half-way: no completion will tell of all. The next completion or tick
    /// ends the link.
    fn broken(&mut self) {
        self.link.broken();
    }

    /// After how many milliseconds of silence the peer is asked whether it is there. `None`: it is
    /// not asked.
    fn asks_after(&self) -> Option<u64> {
        let moving = self.data.iter().any(Option::is_some);
        let owes = self.asks.open() != 0 || moving || self.proto.peer().is_none();
        let idle = u64::from(params::HEARTBEAT_MS.get());
        match self.end {
            _ if owes => Some(QUIET_MS),
            // An idle requester, too: its regions are freed some time after its host is lost.
            End::Node => Some(idle).filter(|ms| *ms != 0),
            End::Requester => None,
        }
    }
}

impl State {
    /// A link is up: a host that was lost is back, and its regions stay. ENOMEM.
    pub(super) fn link_up(&mut self, slot: usize) -> Result {
        let nodes = self.node_infos()?;
        let side = self.side(slot).ok_or(ENOTCONN)?;
        side.up(nodes)?;
        if side.end == End::Node {
            let host = side.peer as u32 + 1;
            for served in self.served.iter_mut().flatten() {
                served.node.owner_back(host);
            }
            if let Some(broker) = &mut self.broker {
                broker.requester_back(host);
            }
        }
        Ok(())
    }

    /// Posts what can be posted on a link.
    pub(super) fn flush(&mut self, slot: usize) {
        if self.side(slot).is_some_and(|side| side.flush().is_err()) {
            self.fail(slot, Status::Lost);
        }
    }

    /// Looks whether a link comes up in time, and whether its peer keeps its times.
    pub(super) fn look_at_link(&mut self, host: &Host, slot: usize, now: u64) {
        let Some(side) = self.side(slot) else {
            return;
        };
        match side.life {
            Life::Up => {}
            Life::Proving => return self.look_at_proof(host, slot),
            Life::Connecting if now.saturating_sub(side.begun_ms) >= SETUP_MS => {
                return self.fail(slot, Status::Unreachable);
            }
            Life::Connecting | Life::Down => return,
        }
        let late = side.grants.overdue_ms(crate::proto::mem::grants::REVOKE_MS);
        let dead = u64::from(params::DEAD_MS.get());
        let silent = side.asked_ms.is_some_and(|at| now >= at + dead);
        let late = late.is_some_and(|at| now >= at);
        if side.link.is_broken() {
            return self.fail(slot, Status::Lost);
        }
        if late {
            self.counts.late_revokes.add(1);
            return self.fail(slot, Status::Lost);
        }
        if silent || side.is_stalled(now) {
            return self.silent(slot);
        }
        let silence = now.saturating_sub(side.heard_ms);
        let quiet = side.asks_after().is_some_and(|after| silence >= after);
        if quiet && side.asked_ms.is_none() {
            side.asked_ms = Some(now);
            side.beat();
        }
        let leave = side
            .cache
            .leave_idle(now, crate::proto::mem::grant_cache::IDLE_MS);
        self.leave(slot, leave);
        self.refuse_late(slot, now);
    }

    /// Ends a link whose peer does not answer in time.
    pub(super) fn silent(&mut self, slot: usize) {
        if self.side(slot).is_some_and(|side| side.life == Life::Up) {
            self.counts.silent_links.add(1);
        }
        self.fail(slot, Status::Lost);
    }

    /// Ends the links on a device that has failed.
    pub(super) fn fail_links_on(&mut self, device: &Device) {
        for slot in 0..self.sides.len() {
            let queues = self.side(slot).and_then(|side| side.queues.as_ref());
            if queues.is_some_and(|queues| queues.pd.device() == device) {
                self.fail(slot, Status::Lost);
            }
        }
    }

    /// A WRITE on the link of that grant gets no acknowledgement: only the end of the link tells
    /// when the last byte has landed. Another link may have the slot by now.
    pub(super) fn fail_unacknowledged(&mut self, granted: Granted) {
        if self.live(granted.slot, granted.serial).is_some() {
            self.fail(granted.slot, Status::Lost);
        }
    }

    /// Ends a link; its item takes it down.
    pub(super) fn fail(&mut self, slot: usize, why: Status) {
        let Some(side) = self.side(slot) else {
            return;
        };
        if side.life != Life::Down {
            side.life = Life::Down;
            side.why = if side.was_up { Status::Lost } else { why };
            side.link.take_down();
        }
    }
}
