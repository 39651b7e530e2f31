// SPDX-License-Identifier: GPL-2.0
//! A host of memory links in userspace, and a node of the module's host. As [`crate::peer`], it
//! speaks correctly as long as a case does not tell it otherwise.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use zrs::mem::{Alloc, Key, NodeId, Region, Rights, Serving};
use zrs::Stats;
use zrs_core::mem::payload::{extents, RemoteExtent};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message, Op as MemOp, Type};
use zrs_core::proof::padded;
use zrs_core::wire::{
    self, Header, Hello, Role, HEADER_LEN, HEARTBEAT_ASKS, HELLO_MOST, SMALL_MAX,
};
use zrs_core::ChanId;

use crate::cases::ensure;
use crate::peer::{hello, said, CREDIT};
use crate::verbs::{self, in_net, Endpoint, Op};
use crate::world::{Outcome, World, SERVICE};

const RECVS: usize = CREDIT as usize;
const SENDS: usize = 128;
const SLOT: usize = HEADER_LEN + SMALL_MAX as usize;
const SEND_AT: usize = RECVS * SLOT;
pub const BUFFER_AT: usize = 1 << 20;
/// Most bytes of a WRITE.
pub const BUFFER: usize = 8 << 20;
pub const SENT: u64 = 1 << 63;
/// The domain of the nodes here.
pub const DOMAIN: u32 = 77;

pub fn violated<T>(result: Result<T, zrs_core::Violation>) -> io::Result<T> {
    result.map_err(|e| said(&format!("{e:?} from the module")))
}

/// Our end of a memory link.
pub struct MemPeer {
    pub ep: Endpoint,
    /// Our hello and the module's for the connection manager, as they were sent.
    pub hellos: [[u8; HELLO_MOST]; 2],
    /// Whether questions for life are answered.
    pub answers: bool,
    sent: u32,
    allowed: u32,
    pub arrived: u32,
    pub pending: usize,
    slot: usize,
    next_id: u32,
    pub inbox: VecDeque<(MemHeader, Vec<u8>)>,
    /// Messages of the proof of a key.
    proofs: VecDeque<(wire::Type, Vec<u8>)>,
    pub closed: Option<String>,
    /// Gives the module credit for one message at a time.
    pub stingy: bool,
    /// Whether what has arrived makes room for more at once.
    pub reposts: bool,
    /// Receives that were not posted again.
    kept: Vec<u64>,
}

fn prepare(ep: &mut Endpoint) -> io::Result<()> {
    ep.make_queues(BUFFER_AT + BUFFER, 512)?;
    for slot in 0..RECVS {
        ep.post_recv(slot as u64, slot * SLOT, SLOT)?;
    }
    Ok(())
}

impl MemPeer {
    fn new(ep: Endpoint, ours: &[u8], theirs: &[u8]) -> io::Result<Self> {
        let hellos = [padded(ours), padded(theirs)];
        let (_, theirs) = violated(Hello::decode_with_role(theirs))?;
        Ok(Self {
            ep,
            hellos,
            answers: true,
            sent: 0,
            allowed: theirs.link_credit,
            arrived: 0,
            pending: 0,
            slot: 0,
            next_id: 1,
            inbox: VecDeque::new(),
            proofs: VecDeque::new(),
            closed: None,
            stingy: false,
            reposts: true,
            kept: Vec::new(),
        })
    }

    /// The first message of a link without a proof, or behind one.
    pub fn greet(&mut self) -> Outcome {
        self.send(MemHeader::hello(64, 64, 0), &[])
    }

    /// A link to the node's host, which has said its hello.
    pub fn connect(w: &mut World) -> io::Result<Self> {
        let mut peer = Self::connect_as(w, &hello())?;
        peer.greet()?;
        peer.expect(Type::Hello, w.limit(10))?;
        Ok(peer)
    }

    /// A new link to the node's host, with `ours` as the hello; no message was sent on the link.
    /// ConnectionRefused, if it is refused for that.
    pub fn connect_as(w: &mut World, ours: &Hello) -> io::Result<Self> {
        let end = Instant::now() + w.limit(10);
        let to = SocketAddrV4::new(w.victim, SERVICE + 1);
        let ours = ours.encode_for(Role::Memory);
        loop {
            let mut ep = match Endpoint::resolve(w.source(), to) {
                Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < end => continue,
                ep => ep?,
            };
            prepare(&mut ep)?;
            ep.connect(&ours)?;
            match ep.event(w.limit(10))? {
                Some(event) if event.kind == verbs::ESTABLISHED => {
                    return Self::new(ep, &ours, event.data());
                }
                Some(event)
                    if event.kind == verbs::REJECTED && Hello::denial(event.data()).is_some() =>
                {
                    return Err(ErrorKind::ConnectionRefused.into());
                }
                // Former links are being taken down.
                Some(event) if event.kind == verbs::REJECTED && Instant::now() < end => {
                    sleep(Duration::from_millis(50));
                }
                Some(event) => return Err(said(&format!("event {}", event.kind))),
                None => return Err(ErrorKind::TimedOut.into()),
            }
        }
    }

    /// A link that the module makes to us, as a node's host.
    pub fn accept(w: &World, server: &verbs::Listener) -> io::Result<Self> {
        let mut peer = Self::accept_as(w, server, &hello())?;
        peer.greet()?;
        Ok(peer)
    }

    /// The same with this hello; nothing was said on the link.
    pub fn accept_as(w: &World, server: &verbs::Listener, ours: &Hello) -> io::Result<Self> {
        let (mut ep, theirs) = server.request(w.limit(10))?;
        let ours = ours.encode_for(Role::Memory);
        prepare(&mut ep)?;
        ep.accept(&ours)?;
        match ep.event(w.limit(10))? {
            Some(event) if event.kind == verbs::ESTABLISHED => Self::new(ep, &ours, &theirs),
            _ => Err(said("the link was not established")),
        }
    }

    pub fn pump(&mut self) -> io::Result<()> {
        while let Some(wc) = self.ep.poll()? {
            self.pending -= usize::from(wc.wr_id & SENT != 0);
            if wc.status != 0 {
                let status = wc.status;
                self.closed
                    .get_or_insert_with(|| format!("a request failed with status {status}"));
                continue;
            }
            if wc.wr_id & SENT != 0 {
                continue;
            }
            let slot = wc.wr_id as usize;
            let bytes = self.ep.get(slot * SLOT, wc.len);
            let (head, payload) = bytes
                .split_first_chunk::<HEADER_LEN>()
                .ok_or_else(|| said("a short message from the module"))?;
            let message = violated(Message::decode(head, payload.len() as u32))?;
            self.arrived = self.arrived.wrapping_add(1);
            self.allowed = message.link_credit();
            match self.reposts {
                true => self.ep.post_recv(wc.wr_id, slot * SLOT, SLOT)?,
                false => self.kept.push(wc.wr_id),
            }
            match message {
                Message::Mem(h) => self.inbox.push_back((h, payload.to_vec())),
                Message::Link(h) if matches!(h.kind, wire::Type::Challenge | wire::Type::Proof) => {
                    self.proofs.push_back((h.kind, payload.to_vec()));
                }
                Message::Link(h) => {
                    let asks = h.kind == wire::Type::Heartbeat && h.arg0 == HEARTBEAT_ASKS;
                    if asks && self.answers && self.closed.is_none() {
                        self.heartbeat()?;
                    }
                }
            }
        }
        while let Some(event) = self.ep.event(Duration::ZERO)? {
            if event.kind == verbs::DISCONNECTED {
                self.closed = Some("disconnected".into());
            }
        }
        Ok(())
    }

    /// Whether the device takes no message any more.
    pub fn is_full(&self) -> bool {
        self.kept.len() == RECVS
    }

    /// The device takes one more message.
    pub fn take_one(&mut self) -> Outcome {
        match self.kept.pop() {
            Some(slot) => self.ep.post_recv(slot, slot as usize * SLOT, SLOT),
            None => Ok(()),
        }
    }

    pub fn wait<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> io::Result<T> {
        let end = Instant::now() + limit;
        loop {
            self.pump()?;
            if let Some(found) = done(self) {
                return Ok(found);
            }
            if Instant::now() > end {
                return Err(ErrorKind::TimedOut.into());
            }
            sleep(Duration::from_millis(1));
        }
    }

    pub fn post(&mut self, op: Op, bytes: &[u8], raddr: u64, rkey: u32) -> io::Result<()> {
        let offset = if bytes.len() <= SLOT {
            self.slot = (self.slot + 1) % SENDS;
            SEND_AT + self.slot * SLOT
        } else {
            BUFFER_AT
        };
        self.ep.send_bytes(SENT, op, offset, bytes, (raddr, rkey))?;
        self.pending += 1;
        self.sent += u32::from(op == Op::Send);
        Ok(())
    }

    /// Waits until a message may be posted. A question for life may be answered meanwhile, with more
    /// credit than before, so the credit of the message is known afterwards.
    fn wait_for_room(&mut self) -> Outcome {
        self.wait(Duration::from_secs(20), |p| {
            let room = p.allowed.wrapping_sub(p.sent) > 1 && p.pending < SENDS / 2;
            (room || p.closed.is_some()).then_some(())
        })
    }

    pub fn send_as_is(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wait_for_room()?;
        self.post(Op::Send, bytes, 0, 0)
    }

    pub fn heartbeat(&mut self) -> io::Result<()> {
        let nobody = ChanId::default();
        let mut h = Header::new(wire::Type::Heartbeat, nobody, nobody);
        h.link_credit = CREDIT.wrapping_add(self.arrived);
        self.post(Op::Send, &h.encode(), 0, 0)
    }

    pub fn send(&mut self, h: MemHeader, payload: &[u8]) -> io::Result<()> {
        self.wait_for_room()?;
        let h = MemHeader {
            len: payload.len() as u32,
            link_credit: match self.stingy {
                true => CREDIT.max(self.arrived + 1),
                false => CREDIT.wrapping_add(self.arrived),
            },
            ..h
        };
        self.post(Op::Send, &[&h.encode()[..], payload].concat(), 0, 0)
    }

    /// Says something that is part of the proof of a key, or of links in general.
    pub fn say(&mut self, kind: wire::Type, payload: &[u8]) -> Outcome {
        self.wait_for_room()?;
        let nobody = ChanId::default();
        let mut h = Header::new(kind, nobody, nobody);
        h.len = payload.len() as u32;
        h.link_credit = CREDIT.wrapping_add(self.arrived);
        self.post(Op::Send, &[&h.encode()[..], payload].concat(), 0, 0)
    }

    /// The payload of the next message of the proof, which must be of this type.
    pub fn hear<const N: usize>(
        &mut self,
        kind: wire::Type,
        limit: Duration,
    ) -> io::Result<[u8; N]> {
        let got = self.wait(limit, |p| match p.proofs.pop_front() {
            Some(message) => Some(Ok(message)),
            None => p.closed.clone().map(Err),
        })?;
        match got {
            Ok((found, bytes)) if found == kind => {
                bytes.try_into().map_err(|_| said("of another length"))
            }
            Ok((found, _)) => Err(said(&format!("{found:?} where {kind:?} was expected"))),
            Err(why) => Err(said(&format!("the link is closed: {why}"))),
        }
    }

    /// Whether the module has said anything that was not heard.
    pub fn has_message(&mut self) -> io::Result<bool> {
        self.pump()?;
        Ok(!self.inbox.is_empty() || !self.proofs.is_empty())
    }

    pub fn expect(&mut self, kind: Type, limit: Duration) -> io::Result<(MemHeader, Vec<u8>)> {
        let got = self.wait(limit, |p| match p.inbox.pop_front() {
            Some(message) => Some(Ok(message)),
            None => p.closed.clone().map(Err),
        })?;
        match got {
            Ok((h, payload)) if h.kind == kind => Ok((h, payload)),
            Ok((h, _)) => Err(said(&format!("{:?} where {kind:?} was expected", h.kind))),
            Err(why) => Err(said(&format!("the link is closed: {why}"))),
        }
    }

    /// The next ask's header.
    pub fn new_ask(&mut self, op: MemOp) -> MemHeader {
        self.next_id += 1;
        MemHeader::ask(self.next_id, op)
    }

    /// Asks, and waits for the answer.
    pub fn ask(
        &mut self,
        h: MemHeader,
        payload: &[u8],
        w: &World,
    ) -> io::Result<(MemHeader, Vec<u8>)> {
        self.send(h, payload)?;
        let (answer, payload) = self.expect(Type::Answer, w.limit(10))?;
        ensure(answer.id == h.id, "the answer to another ask")?;
        Ok((answer, payload))
    }

    /// Gets a grant for all of the victim's region: its number and extents.
    pub fn open(&mut self, v: &Victim, rights: Rights, w: &World) -> io::Result<Grant> {
        let h = MemHeader {
            node: v.node,
            key: v.key,
            rights: rights.bits(),
            ..self.new_ask(MemOp::Open)
        };
        let (answer, payload) = self.ask(h, &[], w)?;
        ensure(answer.status == Status::Ok, "OPEN was refused")?;
        let extents: Vec<_> = violated(extents(&payload, answer.bytes))?.collect();
        Ok(Grant {
            number: answer.grant,
            extents,
        })
    }

    /// Whether the link still answers.
    pub fn alive(&mut self, v: &Victim, w: &World) -> Outcome {
        let h = MemHeader {
            node: v.node,
            key: v.key,
            ..self.new_ask(MemOp::Info)
        };
        let (answer, _) = self.ask(h, &[], w)?;
        ensure(answer.status == Status::Ok, "INFO was refused")
    }

    pub fn is_closed(&mut self, limit: Duration) -> Outcome {
        let closed = self.wait(limit, |p| p.closed.is_some().then_some(()));
        closed.map_err(|_| said("the link was not closed"))
    }

    /// The module closes the link because of what we said, and counts it.
    pub fn expect_violation(&mut self, w: &World, before: &Stats) -> Outcome {
        self.is_closed(w.limit(10))?;
        let count = w.stats()?.protocol_errors - before.protocol_errors;
        ensure(
            count == 1,
            &format!("{count} violations counted, expected 1"),
        )
    }

    /// The device closes the link.
    pub fn expect_refused(&mut self, w: &World, before: &Stats) -> Outcome {
        self.is_closed(w.limit(10))?;
        let count = w.stats()?.protocol_errors - before.protocol_errors;
        ensure(
            count == 0,
            &format!("{count} violations counted, expected none"),
        )
    }
}

pub struct Grant {
    pub number: u32,
    pub extents: Vec<RemoteExtent>,
}

/// A node of the module's host, and a region there of a program of that host.
pub struct Victim {
    pub node: NodeId,
    pub key: Key,
    pub region: Region,
    _serving: Serving,
}

impl Victim {
    pub fn new(w: &World, len: u64) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);

        let node = NodeId {
            domain: DOMAIN,
            node: NEXT.fetch_add(1, Relaxed),
        };
        let (zrs, net) = (&w.zrs, &w.net);
        let (serving, region) = in_net(net, || {
            let serving = zrs.mem_serve(node, len, false, None, 100)?;
            let request = Alloc {
                node,
                len,
                ..Default::default()
            };
            Ok((serving, Region::alloc(zrs, &request)?))
        })?;
        Ok(Self {
            node,
            key: region.storage().storage.key,
            region,
            _serving: serving,
        })
    }

    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.region.len() as usize];
        self.region.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Frees the region, which takes no longer than it may; what is allocated then is zero, and stays
    /// so.
    pub fn free(self, w: &World) -> Outcome {
        let Self { node, region, .. } = self;
        let len = region.len();
        let began = Instant::now();
        region.free()?;
        let took = began.elapsed();
        ensure(took < w.limit(10), &format!("free took {took:?}"))?;
        let zrs = &w.zrs;
        let next = in_net(&w.net, || {
            let request = Alloc {
                node,
                len,
                ..Default::default()
            };
            Region::alloc(zrs, &request)
        })?;
        for _ in 0..2 {
            let mut bytes = vec![1; len as usize];
            next.read_exact_at(&mut bytes, 0)?;
            ensure(
                bytes.iter().all(|b| *b == 0),
                "a byte has landed after free",
            )?;
            sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}
