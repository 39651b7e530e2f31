// SPDX-License-Identifier: GPL-2.0
//! Memory links: a requester, and a node, that break the rules of `memory-nodes.rst`. The promise
//! holds against them, too: when free has returned, no further byte lands.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use zrs::mem::{Alloc, Key, NodeEntry, NodeId, Region, Rights, Serving};
use zrs::Stats;
use zrs_core::mem::payload::{extents, RemoteExtent};
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Message, Op as MemOp, Type};
use zrs_core::wire::{self, Header, Hello, Role, HEADER_LEN, HEARTBEAT_ASKS, SMALL_MAX};
use zrs_core::ChanId;

use super::{ensure, whole, Case};
use crate::peer::{hello, said, CREDIT};
use crate::verbs::{self, in_net, Endpoint, Op};
use crate::world::{expect_errno, joined, Outcome, World, SERVICE};

const RECVS: usize = CREDIT as usize;
const SENDS: usize = 128;
const SLOT: usize = HEADER_LEN + SMALL_MAX as usize;
const SEND_AT: usize = RECVS * SLOT;
const BUFFER_AT: usize = 1 << 20;
/// Most bytes of a WRITE.
const BUFFER: usize = 8 << 20;
const SENT: u64 = 1 << 63;
/// The domain of the nodes here.
const DOMAIN: u32 = 77;

fn violated<T>(result: Result<T, zrs_core::Violation>) -> io::Result<T> {
    result.map_err(|e| said(&format!("{e:?} from the module")))
}

/// Our end of a memory link.
struct MemPeer {
    ep: Endpoint,
    /// Whether questions for life are answered.
    answers: bool,
    sent: u32,
    allowed: u32,
    arrived: u32,
    pending: usize,
    slot: usize,
    next_id: u32,
    inbox: VecDeque<(MemHeader, Vec<u8>)>,
    closed: Option<String>,
}

fn prepare(ep: &mut Endpoint) -> io::Result<()> {
    ep.make_queues(BUFFER_AT + BUFFER, 512)?;
    for slot in 0..RECVS {
        ep.post_recv(slot as u64, slot * SLOT, SLOT)?;
    }
    Ok(())
}

impl MemPeer {
    fn new(ep: Endpoint, theirs: &[u8]) -> io::Result<Self> {
        let (_, theirs) = violated(Hello::decode_with_role(theirs))?;
        let mut peer = Self {
            ep,
            answers: true,
            sent: 0,
            allowed: theirs.link_credit,
            arrived: 0,
            pending: 0,
            slot: 0,
            next_id: 1,
            inbox: VecDeque::new(),
            closed: None,
        };
        peer.send(MemHeader::hello(64, 64, 0), &[])?;
        Ok(peer)
    }

    /// A link to the node's host, which has said its hello.
    fn connect(w: &mut World) -> io::Result<Self> {
        let end = Instant::now() + w.limit(10);
        let to = SocketAddrV4::new(w.victim, SERVICE + 1);
        loop {
            let mut ep = match Endpoint::resolve(w.source(), to) {
                Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < end => continue,
                ep => ep?,
            };
            prepare(&mut ep)?;
            ep.connect(&hello().encode_for(Role::Memory))?;
            match ep.event(w.limit(10))? {
                Some(event) if event.kind == verbs::ESTABLISHED => {
                    let mut peer = Self::new(ep, event.data())?;
                    peer.expect(Type::Hello, w.limit(10))?;
                    return Ok(peer);
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
    fn accept(w: &World, server: &verbs::Listener) -> io::Result<Self> {
        let (mut ep, theirs) = server.request(w.limit(10))?;
        prepare(&mut ep)?;
        ep.accept(&hello().encode_for(Role::Memory))?;
        match ep.event(w.limit(10))? {
            Some(event) if event.kind == verbs::ESTABLISHED => Self::new(ep, &theirs),
            _ => Err(said("the link was not established")),
        }
    }

    fn pump(&mut self) -> io::Result<()> {
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
            self.ep.post_recv(wc.wr_id, slot * SLOT, SLOT)?;
            match message {
                Message::Mem(h) => self.inbox.push_back((h, payload.to_vec())),
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

    fn wait<T>(
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

    fn post(&mut self, op: Op, bytes: &[u8], raddr: u64, rkey: u32) -> io::Result<()> {
        let offset = if bytes.len() <= SLOT {
            self.slot = (self.slot + 1) % SENDS;
            SEND_AT + self.slot * SLOT
        } else {
            BUFFER_AT
        };
        self.ep.put(offset, bytes);
        let len = bytes.len();
        self.ep.post_send(
            SENT,
            verbs::Send {
                op,
                offset,
                len,
                raddr,
                rkey,
            },
        )?;
        self.pending += 1;
        self.sent += u32::from(op == Op::Send);
        Ok(())
    }

    fn send_as_is(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wait(Duration::from_secs(20), |p| {
            let room = p.allowed.wrapping_sub(p.sent) > 1 && p.pending < SENDS / 2;
            (room || p.closed.is_some()).then_some(())
        })?;
        self.post(Op::Send, bytes, 0, 0)
    }

    fn heartbeat(&mut self) -> io::Result<()> {
        let nobody = ChanId::default();
        let mut h = Header::new(wire::Type::Heartbeat, nobody, nobody);
        h.link_credit = CREDIT.wrapping_add(self.arrived);
        self.post(Op::Send, &h.encode(), 0, 0)
    }

    fn send(&mut self, h: MemHeader, payload: &[u8]) -> io::Result<()> {
        let h = MemHeader {
            len: payload.len() as u32,
            link_credit: CREDIT.wrapping_add(self.arrived),
            ..h
        };
        self.send_as_is(&[&h.encode()[..], payload].concat())
    }

    fn expect(&mut self, kind: Type, limit: Duration) -> io::Result<(MemHeader, Vec<u8>)> {
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
    fn new_ask(&mut self, op: MemOp) -> MemHeader {
        self.next_id += 1;
        MemHeader::ask(self.next_id, op)
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, h: MemHeader, payload: &[u8], w: &World) -> io::Result<(MemHeader, Vec<u8>)> {
        self.send(h, payload)?;
        let (answer, payload) = self.expect(Type::Answer, w.limit(10))?;
        ensure(answer.id == h.id, "the answer to another ask")?;
        Ok((answer, payload))
    }

    /// Gets a grant for all of the victim's region: its number and extents.
    fn open(&mut self, v: &Victim, rights: Rights, w: &World) -> io::Result<Grant> {
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
    fn alive(&mut self, v: &Victim, w: &World) -> Outcome {
        let h = MemHeader {
            node: v.node,
            key: v.key,
            ..self.new_ask(MemOp::Info)
        };
        let (answer, _) = self.ask(h, &[], w)?;
        ensure(answer.status == Status::Ok, "INFO was refused")
    }

    fn is_closed(&mut self, limit: Duration) -> Outcome {
        let closed = self.wait(limit, |p| p.closed.is_some().then_some(()));
        closed.map_err(|_| said("the link was not closed"))
    }

    /// The module closes the link because of what we said, and counts it.
    fn expect_violation(&mut self, w: &World, before: &Stats) -> Outcome {
        self.is_closed(w.limit(10))?;
        let count = w.stats()?.protocol_errors - before.protocol_errors;
        ensure(
            count == 1,
            &format!("{count} violations counted, expected 1"),
        )
    }

    /// The device closes the link.
    fn expect_refused(&mut self, w: &World, before: &Stats) -> Outcome {
        self.is_closed(w.limit(10))?;
        let count = w.stats()?.protocol_errors - before.protocol_errors;
        ensure(
            count == 0,
            &format!("{count} violations counted, expected none"),
        )
    }
}

struct Grant {
    number: u32,
    extents: Vec<RemoteExtent>,
}

/// A node of the module's host, and a region there of a program of that host.
struct Victim {
    node: NodeId,
    key: Key,
    region: Region,
    _serving: Serving,
}

impl Victim {
    fn new(w: &World, len: u64) -> io::Result<Self> {
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

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.region.len() as usize];
        self.region.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Frees the region, which takes no longer than it may; what is allocated then is zero, and stays
    /// so.
    fn free(self, w: &World) -> Outcome {
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

const SMALL: u64 = 1 << 20;

/// A link with a grant to write a region.
fn granted(w: &mut World) -> io::Result<(MemPeer, Victim, Grant)> {
    let victim = Victim::new(w, SMALL)?;
    let mut peer = MemPeer::connect(w)?;
    let grant = peer.open(&victim, Rights::WRITE, w)?;
    Ok((peer, victim, grant))
}

/// Nothing is wrong.
fn correct(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let first = grant.extents[0];
    peer.post(Op::Write, &[7; 5000], first.iova, first.rkey)?;
    let wrote = MemHeader {
        grant: grant.number,
        bytes: 5000,
        ..peer.new_ask(MemOp::Wrote)
    };
    let (answer, _) = peer.ask(wrote, &[], w)?;
    ensure(answer.status == Status::Ok, "WROTE was refused")?;
    let all = victim.bytes()?;
    ensure(all[..5000] == [7; 5000] && all[5000] == 0, "other bytes")?;
    let close = MemHeader {
        grant: grant.number,
        ..peer.new_ask(MemOp::Close)
    };
    let (answer, _) = peer.ask(close, &[], w)?;
    ensure(answer.status == Status::Ok, "CLOSE was refused")?;
    let freeing = thread::spawn({
        let region = victim.region;
        move || region.free()
    });
    // It asks for a message behind the invalidation.
    while !freeing.is_finished() {
        peer.pump()?;
        sleep(Duration::from_millis(1));
    }
    joined(freeing)
}

/// A WRITE that no grant allows ends the writer's link, and changes nothing.
fn outside(w: &mut World, at: fn(&RemoteExtent) -> (u64, u32)) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    // The bystander's link and grant.
    let mut other = MemPeer::connect(w)?;
    let theirs = other.open(&victim, Rights::WRITE, w)?;
    let before = w.stats()?;
    let (addr, key) = at(&grant.extents[0]);
    peer.post(Op::Write, &[9; 5000], addr, key)?;
    peer.expect_refused(w, &before)?;
    other.alive(&victim, w)?;
    let first = theirs.extents[0];
    other.post(Op::Write, &[5; 3000], first.iova + 100_000, first.rkey)?;
    other.alive(&victim, w)?;
    let all = victim.bytes()?;
    let whole = all.iter().filter(|b| **b != 0).count();
    ensure(
        whole == 3000 && all[100_000..103_000] == [5; 3000],
        "the WRITE has changed something",
    )?;
    drop(other);
    victim.free(w)
}

/// What WROTE says of what was not written, or cannot be.
fn wrote_lies(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let asks = [
        (grant.number, 0, SMALL, Status::Ok),
        (grant.number, 1, SMALL, Status::Range),
        (grant.number, u64::MAX - 10, 10, Status::Range),
        (grant.number + 1, 0, 1, Status::Stale),
        (u32::MAX, 0, 1, Status::Stale),
    ];
    for (grant, addr, bytes, expected) in asks {
        let wrote = MemHeader {
            grant,
            addr,
            bytes,
            ..peer.new_ask(MemOp::Wrote)
        };
        let (answer, _) = peer.ask(wrote, &[], w)?;
        let what = format!("{:?} to WROTE of {bytes} at {addr}", answer.status);
        ensure(answer.status == expected, &what)?;
    }
    ensure(victim.bytes()?.iter().all(|b| *b == 0), "bytes have come")?;
    peer.alive(&victim, w)
}

/// An ask that waits as long as the peer has its grant.
fn seal(peer: &mut MemPeer, victim: &Victim) -> MemHeader {
    MemHeader {
        node: victim.node,
        key: victim.key,
        ..peer.new_ask(MemOp::Seal)
    }
}

fn id_twice(w: &mut World) -> Outcome {
    let (mut peer, victim, _grant) = granted(w)?;
    let h = seal(&mut peer, &victim);
    peer.send(h, &[])?;
    peer.expect(Type::Revoke, w.limit(10))?;
    let before = w.stats()?;
    peer.send(h, &[])?;
    peer.expect_violation(w, &before)?;
    victim.free(w)
}

fn asks_65(w: &mut World) -> Outcome {
    let (mut peer, victim, _grant) = granted(w)?;
    let before = w.stats()?;
    for _ in 0..64 {
        let h = seal(&mut peer, &victim);
        peer.send(h, &[])?;
    }
    peer.expect(Type::Revoke, w.limit(10))?;
    let h = seal(&mut peer, &victim);
    peer.send(h, &[])?;
    peer.expect_violation(w, &before)?;
    victim.free(w)
}

/// The grant is taken back by force: the link goes, and the memory is free.
fn no_revoked(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let first = grant.extents[0];
    peer.post(Op::Write, &[3; 5000], first.iova, first.rkey)?;
    peer.alive(&victim, w)?;
    victim.free(w)?;
    peer.is_closed(w.limit(10))
}

/// Revoked is sent, and the question behind it is not answered.
fn no_answer_behind(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    peer.answers = false;
    let freeing = thread::spawn({
        let region = victim.region;
        move || region.free()
    });
    peer.expect(Type::Revoke, w.limit(10))?;
    peer.send(MemHeader::revoked(grant.number), &[])?;
    joined(freeing)?;
    peer.is_closed(w.limit(10))
}

/// A WRITE behind Revoked.
fn write_after_revoked(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let before = w.stats()?;
    let h = seal(&mut peer, &victim);
    peer.send(h, &[])?;
    peer.expect(Type::Revoke, w.limit(10))?;
    peer.send(MemHeader::revoked(grant.number), &[])?;
    let (answer, _) = peer.expect(Type::Answer, w.limit(10))?;
    ensure(answer.status == Status::Ok, "SEAL was refused")?;
    let then = victim.bytes()?;
    let first = grant.extents[0];
    peer.post(Op::Write, &[4; 5000], first.iova, first.rkey)?;
    peer.expect_refused(w, &before)?;
    ensure(victim.bytes()? == then, "a byte has landed after SEAL")?;
    victim.free(w)
}

/// Whether the bridge passes on what comes from and for its port `name`. The interface keeps its
/// carrier: without one, Soft-RoCE's queue pair 1 may go to the error state for good
/// (tests/findings/qp1).
fn forward(name: &str, passes: bool) -> Outcome {
    let state = if passes { "3" } else { "0" };
    let set = Command::new("bridge")
        .args(["-n", "zrsL", "link", "set", "dev", name, "state", state])
        .status()?;
    ensure(set.success(), "bridge link")
}

/// The peer's network ends in the middle of a WRITE: its next packet never comes.
fn stalled_write(w: &mut World) -> Outcome {
    for _ in 0..8 {
        let victim = Victim::new(w, BUFFER as u64)?;
        let mut peer = MemPeer::connect(w)?;
        let grant = peer.open(&victim, Rights::WRITE, w)?;
        peer.answers = false;
        let bytes = vec![0xee; BUFFER];
        // Each extent by a WRITE of its own, all of them at once.
        let mut at = 0;
        peer.ep.put(BUFFER_AT, &bytes);
        for extent in &grant.extents {
            let len = extent.len as usize;
            let send = verbs::Send {
                op: Op::Write,
                offset: BUFFER_AT + at,
                len,
                raddr: extent.iova,
                rkey: extent.rkey,
            };
            peer.ep.post_send(SENT, send)?;
            peer.pending += 1;
            at += len;
        }
        forward("lc", false)?;
        let all = victim.bytes()?;
        let written = all.iter().filter(|b| **b != 0).count();
        let freed = victim.free(w);
        forward("lc", true)?;
        freed?;
        // The module's DREQ may have been lost on the way. A WRITE by the old remote key must fail
        // then, which ends the link here too.
        if let (None, Some(extent)) = (&peer.closed, grant.extents.first()) {
            peer.post(Op::Write, &[0xee], extent.iova, extent.rkey)?;
        }
        peer.is_closed(w.limit(60))?;
        if (1..BUFFER).contains(&written) {
            return Ok(());
        }
    }
    Err(said("no WRITE was met in its middle"))
}

/// Messages that a requester may not send.
fn wrong(w: &mut World, what: fn(&mut MemPeer, &Victim, &Grant) -> Outcome) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let before = w.stats()?;
    what(&mut peer, &victim, &grant)?;
    peer.expect_violation(w, &before)?;
    victim.free(w)
}

/// Headers of all operations, with bytes changed: an answer, or the end of the link.
fn fuzz(w: &mut World) -> Outcome {
    let victim = Victim::new(w, SMALL)?;
    let mut state = w.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % most
    };
    let end = Instant::now() + Duration::from_secs(w.seconds);
    let mut peer = MemPeer::connect(w)?;
    let (mut rounds, mut links) = (0, 1);
    while Instant::now() < end || rounds < 20 {
        rounds += 1;
        let op = MemOp::ALL[random(MemOp::ALL.len())];
        let h = MemHeader {
            node: victim.node,
            // Sometimes the right key; never one that frees or seals the region for real.
            key: Key {
                secret: random(2) as u64,
                ..victim.key
            },
            bytes: random(5000) as u64,
            link_credit: CREDIT.wrapping_add(peer.arrived),
            ..peer.new_ask(op)
        };
        let mut bytes = h.encode();
        for _ in 0..random(4) {
            let at = random(HEADER_LEN);
            // Not the link credit: a peer that withholds it hears nothing.
            if !(60..64).contains(&at) {
                bytes[at] = random(256) as u8;
            }
        }
        let payload = vec![0x11; random(3) * random(2048)];
        peer.send_as_is(&[&bytes[..], &payload].concat())?;
        let over = peer.wait(w.limit(1), |p| {
            (p.closed.is_some() || p.inbox.pop_front().is_some()).then_some(p.closed.is_some())
        });
        if over.unwrap_or(true) {
            peer = MemPeer::connect(w)?;
            links += 1;
        }
    }
    ensure(links > 1, "nothing was a violation")?;
    let mut good = MemPeer::connect(w)?;
    good.alive(&victim, w)?;
    drop((peer, good));
    victim.free(w)
}

/// We are the node that a program of the module's host asks for memory.
fn bad_node(w: &World, errno: &[i32], answer: fn(&mut MemPeer, &MemHeader) -> Outcome) -> Outcome {
    let node = NodeId {
        domain: DOMAIN,
        node: 1_000_000,
    };
    let server = verbs::Listener::bind(SocketAddrV4::new(w.local, SERVICE + 1))?;
    let (zrs, net, local) = (&w.zrs, w.net.clone(), w.local);
    let entry = NodeEntry {
        node,
        addr: local.into(),
        scope_id: 0,
    };
    in_net(&net, || zrs.mem_set_node(&entry))?;
    let caller = thread::scope(|scope| {
        let asks = scope.spawn(|| {
            in_net(&net, || {
                let request = Alloc {
                    node,
                    len: 4096,
                    ..Default::default()
                };
                Region::alloc(zrs, &request).map(drop)
            })
        });
        let mut peer = MemPeer::accept(w, &server)?;
        peer.expect(Type::Hello, w.limit(10))?;
        let (asked, _) = peer.expect(Type::Ask, w.limit(10))?;
        answer(&mut peer, &asked)?;
        let ended = joined_scoped(asks);
        peer.is_closed(w.limit(10))?;
        Ok::<_, io::Error>(ended)
    });
    in_net(&net, || zrs.mem_remove_node(node))?;
    expect_errno(caller?, errno)
}

fn joined_scoped<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|e| std::panic::resume_unwind(e))
}

pub const CASES: &[Case] = &[
    whole("memory/correct", correct),
    whole("memory/write-with-the-next-key", |w| {
        outside(w, |e| (e.iova, e.rkey ^ 1))
    }),
    whole("memory/write-with-key-0", |w| outside(w, |e| (e.iova, 0))),
    whole("memory/write-beyond-the-extent", |w| {
        outside(w, |e| (e.iova + e.len - 1, e.rkey))
    }),
    whole("memory/write-before-the-extent", |w| {
        outside(w, |e| (e.iova.wrapping_sub(1), e.rkey))
    }),
    whole("memory/read-with-a-key-to-write", |w| {
        let (mut peer, victim, grant) = granted(w)?;
        let before = w.stats()?;
        let first = grant.extents[0];
        peer.post(Op::Read, &[0; 100], first.iova, first.rkey)?;
        peer.expect_refused(w, &before)?;
        victim.free(w)
    }),
    whole("memory/wrote-lies", wrote_lies),
    whole("memory/id-twice", id_twice),
    whole("memory/65-asks", asks_65),
    whole("memory/never-revoked", no_revoked),
    whole("memory/no-answer-behind-revoked", no_answer_behind),
    whole("memory/write-after-revoked", write_after_revoked),
    whole("memory/stalled-write", stalled_write),
    whole("memory/hello-twice", |w| {
        wrong(w, |p, _, _| p.send(MemHeader::hello(64, 64, 0), &[]))
    }),
    whole("memory/answer-of-a-requester", |w| {
        wrong(w, |p, _, _| {
            p.send(MemHeader::answer(1, MemOp::Info, Status::Stale), &[])
        })
    }),
    whole("memory/revoke-of-a-requester", |w| {
        wrong(w, |p, _, g| p.send(MemHeader::revoke(g.number), &[]))
    }),
    whole("memory/revoked-unasked", |w| {
        wrong(w, |p, _, g| p.send(MemHeader::revoked(g.number), &[]))
    }),
    whole("memory/close-of-nothing", |w| {
        wrong(w, |p, _, g| {
            let close = MemHeader {
                grant: g.number + 7,
                ..p.new_ask(MemOp::Close)
            };
            p.send(close, &[])
        })
    }),
    whole("memory/message-of-streams", |w| {
        wrong(w, |p, _, _| {
            let nobody = ChanId::default();
            let mut h = Header::new(wire::Type::Credit, nobody, nobody);
            h.link_credit = CREDIT.wrapping_add(p.arrived);
            p.send_as_is(&h.encode())
        })
    }),
    whole("memory/header-fuzz", fuzz),
    whole("memory/node-answers-another-ask", |w| {
        bad_node(w, &[libc::ECONNRESET], |p, asked| {
            p.send(
                MemHeader::answer(asked.id + 64, MemOp::Alloc, Status::Denied),
                &[],
            )
        })
    }),
    whole("memory/node-gives-less", |w| {
        bad_node(w, &[libc::ECONNRESET], |p, asked| {
            let answer = MemHeader {
                bytes: asked.bytes - 1,
                node: asked.node,
                key2: Key {
                    region: 1,
                    gen: 1,
                    secret: 1,
                },
                ..MemHeader::answer(asked.id, MemOp::Alloc, Status::Ok)
            };
            p.send(answer, &[])
        })
    }),
    whole("memory/node-asks", |w| {
        bad_node(w, &[libc::ECONNRESET], |p, _| {
            let ask = p.new_ask(MemOp::Info);
            p.send(ask, &[])
        })
    }),
];
