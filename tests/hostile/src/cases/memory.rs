// SPDX-License-Identifier: GPL-2.0
//! Memory links: a requester, and a node, that break the rules of `memory-nodes.rst`. The promise
//! holds against them, too: when free has returned, no further byte lands.

use std::io;
use std::net::SocketAddrV4;
use std::process::Command;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use zrs::mem::{Alloc, Key, NodeEntry, NodeId, Region, Rights};
use zrs_core::mem::payload::RemoteExtent;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as MemOp, Type};
use zrs_core::wire::{self, Header, HEADER_LEN};
use zrs_core::ChanId;

use super::{ensure, whole, Case};
use crate::mem_peer::{Grant, MemPeer, Victim, BUFFER, BUFFER_AT, DOMAIN, SENT};
use crate::peer::{said, CREDIT};
use crate::verbs::{self, in_net, Op};
use crate::world::{expect_errno, joined, Outcome, World, SERVICE};

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

/// Asks whose answers get no credit.
fn asks_without_credit(w: &mut World) -> Outcome {
    let (mut peer, victim, _grant) = granted(w)?;
    let before = w.stats()?;
    peer.stingy = true;
    for _ in 0..1000 {
        // Of no region: what is asked does not matter.
        let h = peer.new_ask(MemOp::Info);
        if peer.closed.is_some() || peer.send(h, &[]).is_err() {
            break;
        }
    }
    peer.expect_violation(w, &before)?;
    victim.free(w)
}

/// The grant is taken back by force: the link goes, and the memory is free.
fn no_revoked(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let before = w.mem_stats()?.late_revokes;
    let first = grant.extents[0];
    peer.post(Op::Write, &[3; 5000], first.iova, first.rkey)?;
    peer.alive(&victim, w)?;
    victim.free(w)?;
    peer.is_closed(w.limit(10))?;
    let late = w.mem_stats()?.late_revokes - before;
    ensure(late == 1, &format!("{late} late revokes were counted"))
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

/// CLOSE behind asks whose answers the peer's device takes one in a second and a half: the remote
/// keys become invalid behind these, and free does not wait for all of them.
fn few_receives(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let before = w.mem_stats()?.late_revokes;
    peer.reposts = false;
    while !peer.is_full() {
        peer.alive(&victim, w)?;
    }
    for _ in 0..30 {
        let h = peer.new_ask(MemOp::Info);
        peer.send(h, &[])?;
    }
    let close = MemHeader {
        grant: grant.number,
        ..peer.new_ask(MemOp::Close)
    };
    peer.send(close, &[])?;
    thread::scope(|scope| {
        let freeing = scope.spawn(|| victim.free(w));
        while !freeing.is_finished() {
            peer.take_one()?;
            let until = Instant::now() + Duration::from_millis(1500);
            while !freeing.is_finished() && Instant::now() < until {
                peer.pump()?;
                sleep(Duration::from_millis(1));
            }
        }
        joined_scoped(freeing)
    })?;
    peer.is_closed(w.limit(10))?;
    let late = w.mem_stats()?.late_revokes - before;
    ensure(late == 1, &format!("{late} late revokes were counted"))
}

/// An OPEN that is refused for want of room leaves a key its one use.
fn no_room_keeps_a_use(w: &mut World) -> Outcome {
    let (mut peer, victim, grant) = granted(w)?;
    let derive = MemHeader {
        node: victim.node,
        key: victim.key,
        rights: Rights::WRITE.bits(),
        bytes: SMALL,
        addr2: 1,
        ..peer.new_ask(MemOp::Key)
    };
    let (answer, _) = peer.ask(derive, &[], w)?;
    ensure(answer.status == Status::Ok, "KEY was refused")?;
    let once = answer.key2;
    let open = |peer: &mut MemPeer, key: Key| {
        let h = MemHeader {
            node: victim.node,
            key,
            rights: Rights::WRITE.bits(),
            ..peer.new_ask(MemOp::Open)
        };
        peer.ask(h, &[], w).map(|(answer, _)| answer.status)
    };
    let grants = [grant, peer.open(&victim, Rights::WRITE, w)?];
    let mut opened = grants.len();
    while open(&mut peer, victim.key)? == Status::Ok {
        opened += 1;
        ensure(opened < 10_000, "there is room without end")?;
    }
    let status = open(&mut peer, once)?;
    ensure(
        status == Status::NoSpace,
        &format!("{status:?} where there is no room"),
    )?;
    for (grant, expected) in grants.iter().zip([Status::Ok, Status::Stale]) {
        let close = MemHeader {
            grant: grant.number,
            ..peer.new_ask(MemOp::Close)
        };
        peer.ask(close, &[], w)?;
        let end = Instant::now() + w.limit(10);
        // Until the node has the grant back.
        let status = loop {
            match open(&mut peer, once)? {
                Status::NoSpace if Instant::now() < end => sleep(Duration::from_millis(1)),
                status => break status,
            }
        };
        let what = format!("{status:?} where {expected:?} was expected");
        ensure(status == expected, &what)?;
    }
    drop(peer);
    victim.free(w)
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
    for _ in 0..16 {
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
        let over = peer.wait(Duration::from_secs(w.scale.into()), |p| {
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

/// We are the node that a program of the module's host asks for memory, and serve its link.
pub(super) fn as_node(
    w: &World,
    errno: &[i32],
    serve: impl FnOnce(&verbs::Listener) -> Outcome,
) -> Outcome {
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
        serve(&server)?;
        Ok::<_, io::Error>(joined_scoped(asks))
    });
    in_net(&net, || zrs.mem_remove_node(node))?;
    expect_errno(caller?, errno)
}

fn bad_node(w: &World, errno: &[i32], answer: fn(&mut MemPeer, &MemHeader) -> Outcome) -> Outcome {
    as_node(w, errno, |server| {
        let mut peer = MemPeer::accept(w, server)?;
        peer.expect(Type::Hello, w.limit(10))?;
        let (asked, _) = peer.expect(Type::Ask, w.limit(10))?;
        answer(&mut peer, &asked)?;
        peer.is_closed(w.limit(10))
    })
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
    whole("memory/asks-without-credit", asks_without_credit),
    whole("memory/never-revoked", no_revoked),
    whole("memory/no-answer-behind-revoked", no_answer_behind),
    whole("memory/few-receives", few_receives),
    whole("memory/no-room-keeps-a-use", no_room_keeps_a_use),
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
