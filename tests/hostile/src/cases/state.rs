// SPDX-License-Identifier: GPL-2.0
//! Messages that the channel's state does not allow, and messages for channels that are not there.

use zrs_core::wire::{Header, Type};
use zrs_core::ChanId;

use super::{after_end, ensure, ignored, violation, whole, Act, Case};
use crate::peer::{accept_header, grant_header, Chan, Peer, WINDOW_AT};
use crate::world::{expect_end, Outcome, World};

fn say(p: &mut Peer, c: &Chan, kind: Type) -> Outcome {
    p.send(c.header(kind), &[])
}

/// A message of each type, as it would be sent on the channel.
fn sample(c: &Chan, kind: Type) -> (Header, Vec<u8>) {
    let mut h = c.header(kind);
    let mut payload = Vec::new();
    match kind {
        Type::Data => (h.len, payload) = (10, vec![b'x'; 10]),
        Type::Written => (h.len, h.arg0) = (10, 1),
        Type::Accept => h = accept_header(c),
        Type::Reject | Type::Revoked => h.arg0 = 1,
        Type::WindowGrant => (h.arg1, h.arg2, h.lease) = (1 << 20, 1 << 32, 1),
        Type::WindowRevoke => h.lease = 1,
        _ => {}
    }
    (h, payload)
}

const ANSWERED: [Type; 7] = [
    Type::Accept,
    Type::Data,
    Type::Written,
    Type::WindowRequest,
    Type::WindowGrant,
    Type::WindowRevoke,
    Type::Revoked,
];
const DROPPED: [Type; 5] = [
    Type::Reject,
    Type::Fin,
    Type::End,
    Type::Reset,
    Type::Credit,
];

/// Messages for a channel that is not there: Reset, or nothing.
fn nobody(w: &World, p: &mut Peer, c: &Chan) -> Outcome {
    for kind in ANSWERED {
        let (h, payload) = sample(c, kind);
        p.send(h, &payload)?;
        let (answer, _) = p.expect(Type::Reset, w.limit(10))?;
        ensure(
            answer.dst == c.local && answer.src == c.remote,
            "the Reset is for another channel",
        )?;
    }
    for kind in DROPPED {
        let (h, payload) = sample(c, kind);
        p.send(h, &payload)?;
        p.alive(w.limit(10))?;
        ensure(!p.has_message()?, "an answer where none belongs")?;
    }
    Ok(())
}

/// The same as `ignored`, for a channel that is near the one that is there.
const STALE: Act = |p, c| {
    for gen in [
        c.remote.gen.wrapping_sub(1),
        c.remote.gen.wrapping_add(1),
        u32::MAX,
    ] {
        let mut other = c.clone();
        other.remote.gen = gen;
        for kind in [Type::Data, Type::Reset, Type::End, Type::WindowGrant] {
            let (h, payload) = sample(&other, kind);
            p.send(h, &payload)?;
        }
    }
    Ok(())
};

fn other_link(w: &mut World) -> Outcome {
    let (mut one, mut chan, mut stream, _victim) = w.channel()?;
    let mut two = w.link()?;
    let before = w.stats()?;
    nobody(w, &mut two, &chan)?;
    let channel = w.bystander.as_ref().map(|b| b.channel);
    if let Some(q) = channel {
        for gen in 0..20 {
            let beside = Chan::new(ChanId { index: 5, gen: 5 }, ChanId { index: q, gen });
            for kind in [Type::Reset, Type::End, Type::Fin] {
                say(&mut two, &beside, kind)?;
            }
        }
    }
    w.expect_alive(&mut two, &before)?;
    w.expect_alive(&mut one, &before)?;
    one.data(&mut chan, b"mine")?;
    say(&mut one, &chan, Type::Fin)?;
    expect_end(&mut stream, b"mine", &[0])
}

fn after_the_end(w: &mut World) -> Outcome {
    let (mut peer, mut chan, mut stream, _victim) = w.channel()?;
    let before = w.stats()?;
    peer.data(&mut chan, b"all")?;
    say(&mut peer, &chan, Type::End)?;
    // Not answered: no window of ours was the victim's.
    nobody(w, &mut peer, &chan)?;
    expect_end(&mut stream, b"all", &[0])?;
    w.expect_alive(&mut peer, &before)
}

fn reset_with_anything(w: &mut World) -> Outcome {
    let (mut peer, chan, mut stream, _victim) = w.channel()?;
    let before = w.stats()?;
    let mut h = chan.header(Type::Reset);
    h.src = ChanId::default();
    (h.pos, h.woff, h.lease) = (u64::MAX, 1, u32::MAX);
    h.credit.msgs = u32::MAX;
    h.credit.small = u64::MAX;
    peer.send(h, &[])?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])?;
    peer.send(h, &[])?;
    peer.send(h, &[])?;
    w.expect_alive(&mut peer, &before)
}

fn nobody_listens(w: &mut World) -> Outcome {
    let _victim = w.listen()?;
    let mut peer = w.link()?;
    let before = w.stats()?;
    for port in [0, 1, 9, u16::MAX] {
        let h = peer.connect_header(port);
        peer.send(h, &[])?;
        let (answer, _) = peer.expect(Type::Reject, w.limit(10))?;
        ensure(
            answer.dst == h.src && answer.src == ChanId::default(),
            "Reject for another",
        )?;
        ensure(answer.arg0 == 1, "another reason")?;
    }
    w.expect_alive(&mut peer, &before)
}

/// The same number of ours twice: that is our own affair.
fn opened_twice(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut peer = w.link()?;
    let h = peer.connect_header(victim.port);
    peer.send(h, &[])?;
    let (one, _) = peer.expect(Type::Accept, w.limit(10))?;
    peer.send(h, &[])?;
    let (two, _) = peer.expect(Type::Accept, w.limit(10))?;
    ensure(one.src != two.src, "the module gave a number twice")?;
    let (mut first, mut second) = (victim.accept(w)?, victim.accept(w)?);
    for (answer, text) in [(one, b"one"), (two, b"two")] {
        let mut chan = Chan::new(h.src, answer.src);
        peer.data(&mut chan, text)?;
        say(&mut peer, &chan, Type::Fin)?;
    }
    expect_end(&mut first, b"one", &[0])?;
    expect_end(&mut second, b"two", &[0])
}

/// The program has closed; the peer takes no notice and goes on sending.
fn closed_by_the_program(w: &mut World) -> Outcome {
    let (mut peer, mut chan, stream, _victim) = w.channel()?;
    let before = w.stats()?;
    peer.data(&mut chan, b"unread")?;
    peer.get_window(&mut chan, w.limit(10))?;
    peer.alive(w.limit(10))?;
    drop(stream);
    peer.expect(Type::Reset, w.limit(10))?;
    for _ in 0..20 {
        peer.data(&mut chan, &[b'x'; 1000])?;
        peer.write(&mut chan, &[b'y'; 10_000])?;
    }
    say(&mut peer, &chan, Type::WindowRequest)?;
    w.expect_alive(&mut peer, &before)?;
    say(&mut peer, &chan, Type::End)?;
    w.expect_alive(&mut peer, &before)?;
    ensure(!peer.has_message()?, "a message behind the last word")
}

/// A window that is offered is used; taken back, it is not written into any more.
fn window_taken_back(w: &mut World) -> Outcome {
    use std::io::Write;
    let (mut peer, mut chan, mut stream, _victim) = w.channel()?;
    let before = w.stats()?;
    let sent = vec![b'w'; 30_000];
    for lease in [5, 5, 9] {
        // Leases are ours to number.
        peer.send(grant_header(&peer, &chan, lease), &[])?;
        peer.alive(w.limit(10))?;
        stream.write_all(&sent)?;
        let (h, _) = peer.expect(Type::Written, w.limit(10))?;
        ensure(
            h.len as usize == sent.len() && h.arg0 == lease && h.woff == 0,
            "another place",
        )?;
        ensure(peer.ep.get(WINDOW_AT, sent.len()) == sent, "other bytes")?;
        chan.freed.msgs += 1;
        let mut revoke = chan.header(Type::WindowRevoke);
        revoke.lease = lease;
        peer.send(revoke, &[])?;
        let (h, _) = peer.expect(Type::Revoked, w.limit(10))?;
        ensure(h.arg0 == lease, "another lease")?;
    }
    w.expect_alive(&mut peer, &before)
}

fn revoke(p: &mut Peer, c: &Chan, lease: u32) -> Outcome {
    let mut h = c.header(Type::WindowRevoke);
    h.lease = lease;
    p.send(h, &[])
}

pub const CASES: &[Case] = &[
    violation("state/accept-of-an-open-channel", |p, c| {
        p.send(accept_header(c), &[])
    }),
    violation("state/reject-of-an-open-channel", |p, c| {
        say(p, c, Type::Reject)
    }),
    violation("state/revoked-never-asked-for", |p, c| {
        let mut h = c.header(Type::Revoked);
        h.arg0 = c.window.expect("a window").lease;
        p.send(h, &[])
    }),
    violation("state/revoked-of-nothing", |p, c| say(p, c, Type::Revoked)),
    violation("state/revoke-without-a-window", |p, c| revoke(p, c, 1)),
    violation("state/revoke-of-none", |p, c| revoke(p, c, 0)),
    violation("state/revoke-of-another-lease", |p, c| {
        p.send(grant_header(p, c, 3), &[])?;
        revoke(p, c, 4)
    }),
    violation("state/revoke-twice", |p, c| {
        p.send(grant_header(p, c, 3), &[])?;
        revoke(p, c, 3)?;
        revoke(p, c, 3)
    }),
    after_end("state/window-wanted-after-fin", |p, c| {
        say(p, c, Type::Fin)?;
        say(p, c, Type::WindowRequest)
    }),
    ignored("state/stale-generations", STALE),
    whole("state/nobody-there", |w| {
        let _victim = w.listen()?;
        let mut peer = w.link()?;
        let before = w.stats()?;
        for q in [1, 1000, 16_384, 16_385, u32::MAX] {
            let chan = Chan::new(
                ChanId { index: 9, gen: 9 },
                ChanId {
                    index: q,
                    gen: 12_345,
                },
            );
            nobody(w, &mut peer, &chan)?;
        }
        w.expect_alive(&mut peer, &before)
    }),
    whole("state/channel-of-another-link", other_link),
    whole("state/after-the-end", after_the_end),
    whole("state/reset-with-anything", reset_with_anything),
    whole("state/nobody-listens", nobody_listens),
    whole("state/opened-twice", opened_twice),
    whole("state/closed-by-the-program", closed_by_the_program),
    whole("state/window-taken-back", window_taken_back),
];
