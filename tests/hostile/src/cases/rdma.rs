// SPDX-License-Identifier: GPL-2.0
//! RDMA beyond the grants.

use zrs_core::wire::Type;

use super::{ensure, ignored, refused, whole, Case, BULK};
use crate::peer::{said, Chan, Peer, Window};
use crate::verbs::Op;
use crate::world::{drain, expect_end, Outcome, World};

fn window(c: &Chan) -> Window {
    c.window.expect("a window")
}

/// The other channel's key, at our own window's address; and the other way round.
fn mixed_up(w: &mut World, mix: fn(Window, Window) -> (u64, u32)) -> Outcome {
    let (mut peer, mut chan, mut stream, victim) = w.channel()?;
    let mut other = peer.open(victim.port, w.limit(10))?;
    let _other = victim.accept(w)?;
    let own = peer.get_window(&mut chan, w.limit(10))?;
    let its = peer.get_window(&mut other, w.limit(10))?;
    let before = w.stats()?;
    let (addr, key) = mix(own, its);
    peer.post(Op::Write, &BULK, addr, key)?;
    w.expect_closed(&mut peer, &before)?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// A window that was ours once: the WRITE must fail, and the memory must not change.
fn stale(w: &mut World, end: fn(&World, &mut Peer, &mut Chan) -> Outcome) -> Outcome {
    let (mut peer, mut chan, mut stream, victim) = w.channel()?;
    let old = peer.get_window(&mut chan, w.limit(10))?;
    peer.write(&mut chan, &BULK)?;
    end(w, &mut peer, &mut chan)?;
    let (all, _) = drain(&mut stream);
    ensure(all == BULK, "what had arrived was not delivered")?;
    drop(stream);
    // Perhaps the same pages, for another channel of the same link.
    let mut next = peer.open(victim.port, w.limit(10))?;
    let mut stream = victim.accept(w)?;
    let new = peer.get_window(&mut next, w.limit(10))?;
    ensure(new.key != old.key, "the same key again")?;
    peer.write(&mut next, &[b'n'; 5000])?;
    peer.alive(w.limit(10))?;
    let before = w.stats()?;
    peer.post(Op::Write, &[b'o'; 5000], old.addr, old.key)?;
    w.expect_closed(&mut peer, &before)?;
    expect_end(&mut stream, &[b'n'; 5000], &[libc::ECONNRESET])
}

/// Two links of one peer share a protection domain: as `protocol.rst` says, a key that is known
/// works on either. Nothing else of the other link's is reached.
fn key_of_another_link(w: &mut World) -> Outcome {
    let (mut one, mut chan, mut stream, _victim) = w.channel()?;
    let mut two = w.link()?;
    let own = one.get_window(&mut chan, w.limit(10))?;
    let before = w.stats()?;
    two.post(Op::Write, &[b'2'; 100], own.addr, own.key)?;
    w.expect_alive(&mut two, &before)?;
    let h = Peer::written_header(&chan, 100);
    chan.tx_pos += 100;
    one.send(h, &[])?;
    one.send(chan.header(Type::Fin), &[])?;
    expect_end(&mut stream, &[b'2'; 100], &[0])
}

/// The key of a live window of one link, invalidated by another: the other is closed for it. The
/// window is lost if the device does not look whose it is, and with it the link that uses it.
fn invalidate_of_another_link(w: &mut World) -> Outcome {
    let (mut one, mut chan, _stream, _victim) = w.channel()?;
    let mut two = w.link()?;
    let own = one.get_window(&mut chan, w.limit(10))?;
    let before = w.stats()?;
    let bytes = chan.header(Type::Credit).encode();
    two.post(Op::SendInv, &bytes, 0, own.key)?;
    w.expect_violation(&mut two, &before)?;
    one.alive(w.limit(10))?;
    one.write(&mut chan, &BULK)?;
    match one.alive(w.limit(10)) {
        Ok(()) => Ok(()),
        Err(_) => one
            .closed(w.limit(10))
            .map(drop)
            .ok_or_else(|| said("neither alive nor closed")),
    }
}

pub const CASES: &[Case] = &[
    refused("rdma/write-beyond-the-end", |p, c| {
        let w = window(c);
        p.post(Op::Write, b"xy", w.addr + u64::from(w.size) - 1, w.key)
    }),
    refused("rdma/write-before-the-beginning", |p, c| {
        let w = window(c);
        p.post(Op::Write, b"xy", w.addr - 1, w.key)
    }),
    refused("rdma/write-behind-the-window", |p, c| {
        let w = window(c);
        p.post(Op::Write, &BULK, w.addr + u64::from(w.size), w.key)
    }),
    refused("rdma/write-at-0", |p, c| {
        p.post(Op::Write, &BULK, 0, window(c).key)
    }),
    refused("rdma/write-around-all-addresses", |p, c| {
        p.post(Op::Write, &BULK, u64::MAX - 10, window(c).key)
    }),
    refused("rdma/long-write-beyond-the-end", |p, c| {
        let w = window(c);
        let all = vec![b'x'; 200_000];
        p.post(Op::Write, &all, w.addr + u64::from(w.size) - 199_999, w.key)
    }),
    refused("rdma/write-with-key-0", |p, c| {
        p.post(Op::Write, &BULK, window(c).addr, 0)
    }),
    refused("rdma/write-with-the-next-key", |p, c| {
        let w = window(c);
        p.post(Op::Write, &BULK, w.addr, w.key ^ 1)
    }),
    refused("rdma/write-with-the-next-region", |p, c| {
        let w = window(c);
        p.post(Op::Write, &BULK, w.addr, w.key.wrapping_add(0x100))
    }),
    refused("rdma/write-with-key-max", |p, c| {
        p.post(Op::Write, &BULK, window(c).addr, u32::MAX)
    }),
    refused("rdma/read", |p, c| {
        let w = window(c);
        p.post(Op::Read, &[0; 8], w.addr, w.key)
    }),
    refused("rdma/read-with-key-0", |p, _| {
        p.post(Op::Read, &[0; 8], 0, 0)
    }),
    refused("rdma/compare-and-swap", |p, c| {
        let w = window(c);
        p.post(Op::CompareSwap, &[0; 8], w.addr, w.key)
    }),
    refused("rdma/fetch-and-add", |p, c| {
        let w = window(c);
        p.post(Op::FetchAdd, &[0; 8], w.addr, w.key)
    }),
    refused("rdma/write-with-immediate-beyond", |p, c| {
        let w = window(c);
        p.post(Op::WriteImm, &BULK, w.addr + u64::from(w.size), w.key)
    }),
    refused("rdma/send-longer-than-a-block", |p, c| {
        p.post(
            Op::Send,
            &[c.header(Type::Data).encode().to_vec(), vec![0; 4097]].concat(),
            0,
            0,
        )
    }),
    refused("rdma/send-of-64-kib", |p, _| {
        p.post(Op::Send, &[1; 65_536], 0, 0)
    }),
    refused("rdma/invalidate-key-0", |p, c| {
        p.post(Op::SendInv, &c.header(Type::Credit).encode(), 0, 0)
    }),
    refused("rdma/invalidate-a-key-that-is-not", |p, c| {
        let key = window(c).key.wrapping_add(0x1000);
        p.post(Op::SendInv, &c.header(Type::Credit).encode(), 0, key)
    }),
    ignored("rdma/write-of-nothing", |p, _| p.post(Op::Write, &[], 0, 0)),
    ignored("rdma/write-that-is-not-told-of", |p, c| {
        let w = window(c);
        p.post(Op::Write, &BULK, w.addr + u64::from(w.size) - 1000, w.key)
    }),
    whole("rdma/key-of-another-channel", |w| {
        mixed_up(w, |own, its| (own.addr, its.key))
    }),
    whole("rdma/address-of-another-channel", |w| {
        mixed_up(w, |own, its| (its.addr, own.key))
    }),
    whole("rdma/stale-key-after-fin", |w| {
        stale(w, |_, p, c| p.send(c.header(Type::Fin), &[]))
    }),
    whole("rdma/stale-key-after-end", |w| {
        stale(w, |w, p, c| {
            p.send(c.header(Type::End), &[])?;
            p.alive(w.limit(10))
        })
    }),
    whole("rdma/key-of-another-link", key_of_another_link),
    whole(
        "rdma/invalidate-of-another-link",
        invalidate_of_another_link,
    ),
];
