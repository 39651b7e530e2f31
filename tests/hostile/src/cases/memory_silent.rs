// SPDX-License-Identifier: GPL-2.0
//! We are a node that is alive and does not answer: no program of the module's host waits for ever,
//! and what was made for one that does not wait any more is undone. The module's `dead_ms` is 8000.

use std::io;
use std::net::SocketAddrV4;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use zrs::mem::{Alloc, Key, NodeEntry, NodeId, Queue, Region};
use zrs_core::mem::payload::RemoteExtent;
use zrs_core::mem::status::Status;
use zrs_core::mem::wire::{MemHeader, Op as MemOp, Type};
use zrs_core::wire::SMALL_MAX;

use super::{ensure, whole, Case};
use crate::mem_peer::{MemPeer, Victim, DOMAIN};
use crate::peer::said;
use crate::verbs::{in_net, Aio, Listener};
use crate::world::{Outcome, World, SERVICE};

/// Another node for each case: the module may still be about to free the region of the last one.
fn next_node() -> NodeId {
    static NEXT: AtomicU32 = AtomicU32::new(1_000_001);

    NodeId {
        domain: DOMAIN,
        node: NEXT.fetch_add(1, Relaxed),
    }
}

const LEN: u64 = 1 << 20;
/// Bytes that go by remote keys.
const MANY: usize = 64 << 10;

fn key(secret: u64) -> Key {
    Key {
        region: 1,
        gen: 1,
        secret,
    }
}

/// A link of the module's to us, the node.
fn accept(w: &World, server: &Listener) -> io::Result<MemPeer> {
    let mut peer = MemPeer::accept(w, server)?;
    peer.expect(Type::Hello, w.limit(10))?;
    Ok(peer)
}

/// The next ask, which must be for `op`.
fn asked(w: &World, peer: &mut MemPeer, op: MemOp) -> io::Result<MemHeader> {
    let (mut h, _) = peer.expect(Type::Ask, w.limit(10))?;
    // Regions of former cases, whose links have ended, are freed on the next one.
    while op == MemOp::Alloc && h.op == Some(MemOp::Free) {
        peer.send(MemHeader::answer(h.id, MemOp::Free, Status::Ok), &[])?;
        h = peer.expect(Type::Ask, w.limit(10))?.0;
    }
    let what = format!("{:?} was asked for where {op:?} was expected", h.op);
    ensure(h.op == Some(op), &what)?;
    Ok(h)
}

fn give(peer: &mut MemPeer, asked: &MemHeader, key: Key) -> Outcome {
    let answer = MemHeader {
        addr: asked.addr,
        bytes: asked.bytes,
        node: asked.node,
        key2: key,
        ..MemHeader::answer(asked.id, MemOp::Alloc, Status::Ok)
    };
    peer.send(answer, &[])
}

/// A region of ours of a program of the module's host.
fn region(
    w: &World,
    node: NodeId,
    peer: impl FnOnce() -> io::Result<MemPeer>,
) -> io::Result<(MemPeer, Region)> {
    let (zrs, net) = (&w.zrs, &w.net);
    thread::scope(|scope| {
        let program = scope.spawn(|| {
            in_net(net, || {
                let request = Alloc {
                    node,
                    len: LEN,
                    ..Default::default()
                };
                Region::alloc(zrs, &request)
            })
        });
        let mut peer = peer()?;
        let h = asked(w, &mut peer, MemOp::Alloc)?;
        give(&mut peer, &h, key(u64::from(h.id)))?;
        let region = program.join().map_err(|_| said("a panic"))??;
        Ok((peer, region))
    })
}

/// `case` with us as a node, and a program's region there.
fn as_node(w: &World, case: impl FnOnce(&World, &Listener, MemPeer, Region) -> Outcome) -> Outcome {
    let server = Listener::bind(SocketAddrV4::new(w.local, SERVICE + 1))?;
    let node = next_node();
    let entry = NodeEntry {
        node,
        addr: w.local.into(),
        scope_id: 0,
    };
    in_net(&w.net, || w.zrs.mem_set_node(&entry))?;
    let result = region(w, node, || accept(w, &server))
        .and_then(|(peer, region)| case(w, &server, peer, region));
    in_net(&w.net, || w.zrs.mem_remove_node(node))?;
    result
}

/// A call of libaio that we do not answer, alive as we are: it ends with the link.
fn unanswered(w: &World, write: bool, len: usize, op: MemOp) -> Outcome {
    as_node(w, |w, _, mut peer, region| {
        let before = w.mem_stats()?.silent_links;
        let mut aio = Aio::new()?;
        aio.begin(&region, write, len)?;
        asked(w, &mut peer, op)?;
        let began = Instant::now();
        let res = peer.wait(w.limit(15), |_| aio.ended().transpose());
        if res.is_err() {
            // The end of the context waits for the call, and that ends with the link.
            drop(peer);
            return Err(said("the call waits for ever"));
        }
        let res = res??;
        ensure(
            res == -i64::from(libc::ECONNRESET),
            &format!("the call ended with {res}"),
        )?;
        let took = began.elapsed();
        ensure(took > Duration::from_secs(2), &format!("after {took:?}"))?;
        peer.is_closed(w.limit(10))?;
        let silent = w.mem_stats()?.silent_links - before;
        ensure(silent == 1, &format!("{silent} silent links were counted"))
    })
}

/// We answer the OPEN `open` with the grant of this number; `once`: for one operation.
fn give_grant(peer: &mut MemPeer, open: &MemHeader, grant: u32, once: bool) -> Outcome {
    let extent = RemoteExtent {
        iova: 0,
        len: LEN,
        rkey: 1,
    };
    let answer = MemHeader {
        bytes: LEN,
        grant,
        rights: open.rights,
        arg: once.into(),
        ..MemHeader::answer(open.id, MemOp::Open, Status::Ok)
    };
    peer.send(answer, &extent.encode())
}

/// Whether a queue has a completion.
fn is_done(queue: &Queue) -> bool {
    let mut fds = [PollFd::new(queue, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}

/// We give one grant's number twice: the link ends, and with it the operation that waits for the
/// second grant.
fn one_number_twice(w: &World) -> Outcome {
    as_node(w, |w, _, mut peer, region| {
        let mut queue = in_net(&w.net, || Queue::new(&w.zrs, 8))?;
        let write = queue.write(vec![1; MANY], &region, 0);
        queue.submit()?;
        let first = asked(w, &mut peer, MemOp::Open)?;
        // Nothing is written with that grant.
        queue.cancel(write);
        queue.submit()?;
        for _ in 0..2 {
            queue.completion()?;
        }
        let read = queue.read(&region, 0, vec![0; MANY]);
        queue.submit()?;
        let second = asked(w, &mut peer, MemOp::Open)?;
        give_grant(&mut peer, &first, 5, false)?;
        give_grant(&mut peer, &second, 5, false)?;
        let done = peer.wait(w.limit(2), |_| is_done(&queue).then_some(()));
        done.map_err(|_| said("the operation waits for ever"))?;
        let done = queue.completion()?;
        let what = format!("{:?} of {}", done.result, done.id);
        let error = zrs::os_error(&said_of(done.result));
        ensure(done.id == read && error == Some(libc::ECONNRESET), &what)?;
        peer.is_closed(w.limit(10))
    })
}

/// A queued operation that is canceled, or whose queue is closed, does not wait for our answer to
/// its OPEN. The grant, which was for that operation alone, is given back.
fn grant_for_nobody(w: &World, closes: bool) -> Outcome {
    as_node(w, |w, _, mut peer, region| {
        let before = w.zrs.stats()?.pages_pinned;
        let mut queue = in_net(&w.net, || Queue::new(&w.zrs, 8))?;
        let id = queue.write(vec![1; MANY], &region, 0);
        queue.submit()?;
        let open = asked(w, &mut peer, MemOp::Open)?;
        let began = Instant::now();
        if closes {
            // It waits for the end of what is under way.
            drop(queue);
        } else {
            queue.cancel(id);
            queue.submit()?;
            for _ in 0..2 {
                let done = queue.completion()?;
                let what = format!("{:?} of {}", done.result, done.id);
                ensure(
                    done.id != id || zrs::os_error(&said_of(done.result)) == Some(libc::ECANCELED),
                    &what,
                )?;
            }
        }
        let took = began.elapsed();
        ensure(took < w.limit(2), &format!("it took {took:?}"))?;
        // The bystander's come and go.
        let gone = |_: &mut MemPeer| w.zrs.stats().ok().filter(|s| s.pages_pinned <= before);
        let gone = peer.wait(w.limit(2), gone);
        gone.map_err(|_| said("pages stay pinned"))?;
        give_grant(&mut peer, &open, 5, true)?;
        let close = asked(w, &mut peer, MemOp::Close)?;
        ensure(close.grant == 5, "another grant")
    })
}

fn said_of(result: io::Result<u64>) -> io::Error {
    result.err().unwrap_or_else(|| said("it succeeded"))
}

/// A program is killed while it waits for a region, which we make then: it is freed.
fn killed_alloc(w: &World) -> Outcome {
    as_node(w, |w, _, mut peer, region| {
        let node = region.storage().node;
        let mut program = Command::new("ip")
            .args(["netns", "exec", &w.net, "zrs", "mem", "alloc"])
            .args([&format!("{DOMAIN}:{}", node.node), "1M"])
            .stdout(Stdio::null())
            .spawn()?;
        let h = asked(w, &mut peer, MemOp::Alloc);
        program.kill()?;
        program.wait()?;
        let h = h?;
        give(&mut peer, &h, key(99))?;
        let free = asked(w, &mut peer, MemOp::Free)?;
        ensure(free.key == key(99) && free.node == h.node, "another region")
    })
}

/// The link is lost before we answer the FREE of a descriptor that was closed: we are asked again.
fn free_is_lost(w: &World) -> Outcome {
    as_node(w, |w, server, peer, first| {
        let (mut peer, second) = region(w, first.storage().node, || Ok(peer))?;
        let own = second.storage().storage.key;
        drop(second);
        let free = asked(w, &mut peer, MemOp::Free)?;
        ensure(free.key == own, "another region")?;
        drop(peer);
        let mut peer = accept(w, server)?;
        let free = asked(w, &mut peer, MemOp::Free)?;
        ensure(free.key == own, "another region")?;
        peer.send(MemHeader::answer(free.id, MemOp::Free, Status::Ok), &[])?;
        // Not a third time.
        let more = peer.expect(Type::Ask, Duration::from_secs(3));
        ensure(more.is_err(), "it was asked again")
    })
}

/// A COPY to us, who give no remote key for the region: the bytes come as PUTs. `refuses`: one of
/// these is refused, which ends the copy.
fn copy_by_messages(w: &World, refuses: bool) -> Outcome {
    const BYTES: usize = 400_000;
    as_node(w, |w, _, mut peer, region| {
        let source = Victim::new(w, LEN)?;
        let bytes: Vec<_> = (0..BYTES).map(|n| (n % 251) as u8).collect();
        source.region.write_all_at(&bytes, 7)?;
        let (mut came, mut most) = (vec![0; BYTES], 0);
        let copied = thread::scope(|scope| {
            let (from, to) = (&source.region, &region);
            let copying = scope.spawn(move || {
                let (mut from_off, mut to_off) = (7, 100);
                let off = (Some(&mut from_off), Some(&mut to_off));
                rustix::fs::copy_file_range(from, off.0, to, off.1, BYTES)
            });
            let puts = BYTES.div_ceil(SMALL_MAX as usize);
            // The first key is for one use, which the OPEN is.
            for uses in [1, 1 + puts as u64] {
                let derive = asked(w, &mut peer, MemOp::Key)?;
                let what = format!("a key for {} uses", derive.addr2);
                ensure(derive.addr2 == uses, &what)?;
                let answer = MemHeader {
                    key2: key(uses),
                    ..MemHeader::answer(derive.id, MemOp::Key, Status::Ok)
                };
                peer.send(answer, &[])?;
                let open = asked(w, &mut peer, MemOp::Open)?;
                ensure(open.key == key(uses), "another key")?;
                let no = MemHeader::answer(open.id, MemOp::Open, Status::Unsupported);
                peer.send(no, &[])?;
                if uses == 1 {
                    // One PUT shows that the key has no further use.
                    let put = asked(w, &mut peer, MemOp::Put)?;
                    peer.send(MemHeader::answer(put.id, MemOp::Put, Status::Stale), &[])?;
                }
            }
            let (mut open, mut answered) = (Vec::new(), 0);
            while !copying.is_finished() {
                peer.pump()?;
                while let Some((h, part)) = peer.inbox.pop_front() {
                    let again = h.key == key(1 + puts as u64);
                    ensure(h.op == Some(MemOp::Put) && again, "no PUT")?;
                    let at = (h.addr - region.storage().storage.va) as usize - 100;
                    came[at..at + part.len()].copy_from_slice(&part);
                    open.push(h.id);
                    most = most.max(open.len());
                }
                // Those that have come together are answered together.
                thread::sleep(Duration::from_millis(5));
                for id in open.drain(..) {
                    answered += 1;
                    let status = match answered {
                        4 if refuses => Status::Denied,
                        _ => Status::Ok,
                    };
                    peer.send(MemHeader::answer(id, MemOp::Put, status), &[])?;
                }
            }
            ensure(
                !refuses || answered < puts / 2,
                "it goes on after a refusal",
            )?;
            copying.join().map_err(|_| said("a panic"))
        })?;
        match copied {
            // Cut short behind what was acknowledged.
            Ok(done)
                if done
                    == if refuses {
                        3 * SMALL_MAX as usize
                    } else {
                        BYTES
                    } =>
            {
                ensure(came[..done] == bytes[..done], "other bytes have come")?;
            }
            other => return Err(said(&format!("copy_file_range gave {other:?}"))),
        }
        ensure((2..=16).contains(&most), &format!("{most} PUTs at a time"))?;
        source.free(w)
    })
}

/// A COPY to us is canceled before we answer its OPEN: it ends, and the link stays for others.
fn copy_canceled(w: &World) -> Outcome {
    as_node(w, |w, _, mut peer, region| {
        let source = Victim::new(w, LEN)?;
        let mut queue = in_net(&w.net, || Queue::new(&w.zrs, 8))?;
        let copy = queue.copy(&source.region, 0, &region, 0, MANY as u64);
        queue.submit()?;
        let derive = asked(w, &mut peer, MemOp::Key)?;
        let answer = MemHeader {
            key2: key(77),
            ..MemHeader::answer(derive.id, MemOp::Key, Status::Ok)
        };
        peer.send(answer, &[])?;
        let open = asked(w, &mut peer, MemOp::Open)?;
        queue.cancel(copy);
        queue.submit()?;
        for _ in 0..2 {
            let done = peer.wait(w.limit(1), |_| is_done(&queue).then_some(()));
            done.map_err(|_| said("the copy waits for our answer"))?;
            let done = queue.completion()?;
            let what = format!("{:?} of {}", done.result, done.id);
            let error = zrs::os_error(&said_of(done.result));
            ensure(done.id != copy || error == Some(libc::ECANCELED), &what)?;
        }
        let unkey = asked(w, &mut peer, MemOp::Unkey)?;
        ensure(unkey.key2 == key(77), "another key is revoked")?;
        peer.send(MemHeader::answer(unkey.id, MemOp::Unkey, Status::Ok), &[])?;
        // Longer than a target has that a stopped copy waits for.
        let more = peer.expect(Type::Ask, Duration::from_secs(3));
        ensure(more.is_err(), "it was asked for more")?;
        give_grant(&mut peer, &open, 5, true)?;
        let close = asked(w, &mut peer, MemOp::Close)?;
        ensure(close.grant == 5, "another grant")?;
        source.free(w)
    })
}

/// The programs of the host have all gone when the FREE of a descriptor that was closed is lost: we
/// are asked again.
fn free_outlives_programs(w: &World) -> Outcome {
    as_node(w, |w, server, mut peer, region| {
        let own = region.storage().storage.key;
        drop(region);
        asked(w, &mut peer, MemOp::Free)?;
        drop(peer);
        // Longer than a host stays that nobody uses.
        thread::sleep(Duration::from_secs(4));
        let mut peer = accept(w, server)?;
        let free = asked(w, &mut peer, MemOp::Free)?;
        ensure(free.key == own, "another region")?;
        peer.send(MemHeader::answer(free.id, MemOp::Free, Status::Ok), &[])
    })
}

/// Many calls of libaio that we do not answer: one to another node ends all the same.
fn others_go_on(w: &World) -> Outcome {
    as_node(w, |w, _, mut peer, region| {
        let victim = Victim::new(w, LEN)?;
        let mut calls = Vec::new();
        for _ in 0..100 {
            let mut aio = Aio::new()?;
            aio.begin(&region, true, MANY)?;
            calls.push(aio);
        }
        asked(w, &mut peer, MemOp::Open)?;
        let mut aio = Aio::new()?;
        aio.begin(&victim.region, true, MANY)?;
        let res = peer.wait(w.limit(4), |_| aio.ended().transpose());
        let still = calls.iter_mut().all(|c| matches!(c.ended(), Ok(None)));
        // All calls end with the link.
        drop(peer);
        let res = res.map_err(|_| said("the call to another node waits"))??;
        ensure(res == MANY as i64, &format!("the call ended with {res}"))?;
        ensure(still, "a call to us has ended")?;
        drop(calls);
        victim.free(w)
    })
}

pub const CASES: &[Case] = &[
    whole("memory-silent/one-number-twice", |w| one_number_twice(w)),
    whole("memory-silent/open-of-a-write", |w| {
        unanswered(w, true, MANY, MemOp::Open)
    }),
    whole("memory-silent/open-of-a-read", |w| {
        unanswered(w, false, MANY, MemOp::Open)
    }),
    whole("memory-silent/put", |w| {
        unanswered(w, true, 100, MemOp::Put)
    }),
    whole("memory-silent/get", |w| {
        unanswered(w, false, 100, MemOp::Get)
    }),
    whole("memory-silent/canceled", |w| grant_for_nobody(w, false)),
    whole("memory-silent/queue-closed", |w| grant_for_nobody(w, true)),
    whole("memory-silent/killed-alloc", |w| killed_alloc(w)),
    whole("memory-silent/free-is-lost", |w| free_is_lost(w)),
    whole("memory-silent/copy-by-messages", |w| {
        copy_by_messages(w, false)
    }),
    whole("memory-silent/copy-by-messages-refused", |w| {
        copy_by_messages(w, true)
    }),
    whole("memory-silent/copy-canceled", |w| copy_canceled(w)),
    whole("memory-silent/free-outlives-programs", |w| {
        free_outlives_programs(w)
    }),
    whole("memory-silent/others-go-on", |w| others_go_on(w)),
];
