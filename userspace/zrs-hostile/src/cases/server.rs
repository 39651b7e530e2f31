// SPDX-License-Identifier: GPL-2.0
//! The module connects to us.

use std::io::Write;

use zrs_core::wire::{Header, Hello, Refusal, Type};
use zrs_core::ChanId;

use super::{changed, ensure, slow, whole, Act, Case};
use crate::peer::{accept_header, grant_header, hello, said, Chan, Peer};
use crate::world::{expect_end, expect_errno, joined, Outcome, World};

/// We refuse the link with these bytes; what connect() says.
fn refuse(w: &mut World, data: &[u8], errno: i32) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let (ep, _) = w.request(&server)?;
    ep.reject(data)?;
    expect_errno(joined(caller), &[errno])
}

fn hello_with(at: usize, byte: u8) -> [u8; 48] {
    let mut data = hello().encode();
    data[at] = byte;
    data
}

/// We accept the link with these bytes, which the module does not take.
fn accept_wrongly(w: &mut World, data: &[u8]) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let (ep, theirs) = w.request(&server)?;
    let mut peer = Peer::accept(ep, &theirs, data, true, w.limit(10))?;
    expect_errno(joined(caller), &[libc::EPROTO])?;
    peer.closed(w.limit(10))
        .map(drop)
        .ok_or_else(|| said("the link was not closed"))
}

/// Instead of an answer to CONNECT something that closes the link. The attempt is made once more
/// on a new link, as if the link had failed by itself; then it has failed.
fn instead(w: &mut World, act: Act) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    for _ in 0..2 {
        let before = w.stats()?;
        let mut peer = w.take_link(&server)?;
        let mut chan = peer.take_connect(w.limit(10))?;
        act(&mut peer, &mut chan)?;
        w.expect_violation(&mut peer, &before)?;
    }
    expect_errno(joined(caller), &[libc::ECONNRESET])
}

/// An answer that says no.
fn answer(w: &mut World, h: fn(&Chan) -> Header, errno: i32) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let chan = peer.take_connect(w.limit(10))?;
    peer.send(h(&chan), &[])?;
    expect_errno(joined(caller), &[errno])?;
    w.expect_alive(&mut peer, &before)
}

fn reject(chan: &Chan, reason: u32) -> Header {
    let mut h = Header::new(Type::Reject, chan.remote, ChanId::default());
    h.arg0 = reason;
    h
}

/// A channel that the module has opened, and the program's socket.
fn open(w: &mut World) -> std::io::Result<(Peer, Chan, zrs::Stream)> {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let chan = peer.take_connect(w.limit(10))?;
    peer.say_accept(&chan)?;
    Ok((peer, chan, joined(caller)?))
}

/// Something that closes the link when the channel is open.
fn once_open(w: &mut World, act: Act) -> Outcome {
    let (mut peer, mut chan, mut stream) = open(w)?;
    let before = w.stats()?;
    act(&mut peer, &mut chan)?;
    w.expect_violation(&mut peer, &before)?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// The module writes where we say, by a key that is none of ours.
fn bad_grant(w: &mut World, change: fn(&mut Header)) -> Outcome {
    let (mut peer, chan, mut stream) = open(w)?;
    let before = w.stats()?;
    let mut h = grant_header(&peer, &chan, 1);
    change(&mut h);
    peer.send(h, &[])?;
    peer.alive(w.limit(10))?;
    // What the device has not refused yet is taken; sooner or later it says so.
    let mut last = Ok(());
    for _ in 0..100 {
        last = stream.write_all(&[b'x'; 40_000]);
        if last.is_err() {
            break;
        }
    }
    expect_errno(last, &[libc::ECONNRESET, libc::EPIPE])?;
    w.expect_closed(&mut peer, &before)
}

fn limits(set: fn(&mut Header), p: &mut Peer, c: &Chan) -> Outcome {
    let mut h = accept_header(c);
    set(&mut h);
    p.send(h, &[])
}

fn late_accept(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let chan = peer.take_connect(w.limit(10))?;
    expect_errno(joined(caller), &[libc::ETIMEDOUT])?;
    peer.say_accept(&chan)?;
    let (h, _) = peer.expect(Type::Reset, w.limit(10))?;
    ensure(
        h.dst == chan.local && h.src == chan.remote,
        "Reset of another channel",
    )?;
    w.expect_alive(&mut peer, &before)
}

fn silence(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let asked = w.request(&server)?;
    expect_errno(joined(caller), &[libc::ETIMEDOUT])?;
    drop(asked);
    Ok(())
}

/// The link dies before the answer: a new one is made, once.
fn gone_before_the_answer(w: &mut World, after_connect: bool) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    for _ in 0..2 {
        let mut peer = w.take_link(&server)?;
        if after_connect {
            peer.take_connect(w.limit(10))?;
        }
        peer.ep.disconnect()?;
    }
    expect_errno(joined(caller), &[libc::ECONNRESET])
}

/// The backlog is full, `times` times or for ever.
fn busy(w: &mut World, times: Option<u32>) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let first = peer.take_connect(w.limit(10))?;
    let mut said = 0;
    loop {
        peer.send(reject(&first, Refusal::BacklogFull as u32), &[])?;
        said += 1;
        if times == Some(said) {
            let chan = peer.take_connect(w.limit(10))?;
            ensure(chan.remote == first.remote, "another channel")?;
            peer.say_accept(&chan)?;
            joined(caller)?;
            break;
        }
        match peer.take_connect(w.limit(2)) {
            Ok(chan) => ensure(chan.remote == first.remote, "another channel")?,
            Err(_) => {
                expect_errno(joined(caller), &[libc::ETIMEDOUT])?;
                break;
            }
        }
    }
    // In 5 s, at 50 ms and twice as long each time, up to 1 s.
    ensure(said <= 10, "asked again too often")?;
    ensure(said >= 2, "not asked again")?;
    w.expect_alive(&mut peer, &before)
}

/// Everything at once, before the module has had time for anything.
fn all_at_once(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let mut chan = peer.take_connect(w.limit(10))?;
    peer.say_accept(&chan)?;
    peer.send(grant_header(&peer, &chan, 1), &[])?;
    peer.data(&mut chan, b"all at once")?;
    peer.send(chan.header(Type::Fin), &[])?;
    peer.alive(w.limit(10))?;
    let mut stream = joined(caller)?;
    expect_end(&mut stream, b"all at once", &[0])?;
    w.expect_alive(&mut peer, &before)
}

pub const CASES: &[Case] = &[
    whole("server/refused-without-a-word", |w| {
        refuse(w, &[], libc::ECONNREFUSED)
    }),
    whole("server/refused-with-nonsense", |w| {
        refuse(w, &[0xff; 148], libc::ECONNREFUSED)
    }),
    whole("server/refused-for-want-of-room", |w| {
        refuse(w, &hello().encode(), libc::ENOMEM)
    }),
    whole("server/refused-by-another-version", |w| {
        refuse(w, &hello_with(4, 2), libc::EPROTO)
    }),
    whole("server/refused-by-a-broken-hello", |w| {
        refuse(w, &hello_with(6, 2), libc::EPROTO)
    }),
    whole("server/accepted-without-a-hello", |w| {
        accept_wrongly(w, &[])
    }),
    whole("server/accepted-with-ones", |w| {
        accept_wrongly(w, &[0xff; 56])
    }),
    whole("server/accepted-by-another-version", |w| {
        accept_wrongly(w, &hello_with(4, 2))
    }),
    whole("server/accepted-without-credit", |w| {
        accept_wrongly(
            w,
            &Hello {
                link_credit: 0,
                ..hello()
            }
            .encode(),
        )
    }),
    whole("server/accepted-with-too-much-credit", |w| {
        accept_wrongly(
            w,
            &Hello {
                link_credit: u32::MAX,
                ..hello()
            }
            .encode(),
        )
    }),
    slow("server/silence", silence),
    slow("server/late-accept", late_accept),
    whole("server/gone-before-connect", |w| {
        gone_before_the_answer(w, false)
    }),
    whole("server/gone-before-the-answer", |w| {
        gone_before_the_answer(w, true)
    }),
    whole("server/reject-1", |w| {
        answer(w, |c| reject(c, 1), libc::ECONNREFUSED)
    }),
    whole("server/reject-2", |w| {
        answer(w, |c| reject(c, 2), libc::ENOBUFS)
    }),
    whole("server/backlog-full-twice", |w| busy(w, Some(2))),
    slow("server/backlog-full-for-ever", |w| busy(w, None)),
    whole("server/reject-unknown", |w| {
        answer(w, |c| reject(c, u32::MAX), libc::ECONNREFUSED)
    }),
    whole("server/reset-as-answer", |w| {
        answer(
            w,
            |c| Header::new(Type::Reset, c.remote, ChanId::default()),
            libc::ECONNREFUSED,
        )
    }),
    whole("server/accept-with-3-messages", |w| {
        instead(w, |p, c| limits(|h| h.arg1 = 3, p, c))
    }),
    whole("server/accept-with-too-many-bytes", |w| {
        instead(w, |p, c| limits(|h| h.arg2 = u64::MAX, p, c))
    }),
    whole("server/data-before-accept", |w| {
        instead(w, |p, c| p.data(c, b"x"))
    }),
    whole("server/fin-before-accept", |w| {
        instead(w, |p, c| p.send(c.header(Type::Fin), &[]))
    }),
    whole("server/end-before-accept", |w| {
        instead(w, |p, c| p.send(c.header(Type::End), &[]))
    }),
    whole("server/credit-before-accept", |w| {
        instead(w, |p, c| p.send(c.header(Type::Credit), &[]))
    }),
    whole("server/window-before-accept", |w| {
        instead(w, |p, c| p.send(grant_header(p, c, 1), &[]))
    }),
    whole("server/accept-of-another-version", |w| {
        instead(w, |p, c| changed(p, accept_header(c), |b| b[0] = 2, &[]))
    }),
    whole("server/accept-twice", |w| {
        once_open(w, |p, c| p.say_accept(c))
    }),
    whole("server/reject-after-accept", |w| {
        once_open(w, |p, c| p.send(reject(c, 1), &[]))
    }),
    whole("server/connect-from-the-wrong-side", |w| {
        once_open(w, |p, _| {
            let h = p.connect_header(7000);
            p.send(h, &[])
        })
    }),
    whole("server/grant-with-a-wrong-key", |w| {
        bad_grant(w, |h| h.arg0 ^= 0x5500)
    }),
    whole("server/grant-of-an-address-that-is-not", |w| {
        bad_grant(w, |h| h.arg2 += 1 << 40)
    }),
    whole("server/all-at-once", all_at_once),
];
