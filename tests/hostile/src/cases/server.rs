// SPDX-License-Identifier: GPL-2.0
//! The module connects to us.

use std::io::{self, Write};
use std::net::{SocketAddrV4, TcpListener};
use std::thread::{sleep, JoinHandle};
use std::time::{Duration, Instant};

use zrs::Stream;
use zrs_core::wire::{Header, Hello, Refusal, Type};
use zrs_core::ChanId;

use super::{changed, ensure, slow, whole, Act, Case};
use crate::peer::{accept_header, grant_header, hello, said, speaks, Chan, Peer};
use crate::world::{expect_end, expect_errno, joined, Outcome, World};

/// We refuse the link with these bytes; what connect() says.
fn refuse(w: &mut World, data: &[u8], errno: i32) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let (ep, _) = w.request(&server)?;
    ep.reject(data)?;
    expect_errno(joined(caller), &[errno])
}

/// We refuse the link with these bytes to a socket that TCP may carry: it does, to a program here.
fn goes_by_tcp(w: &mut World, data: &[u8]) -> Outcome {
    let listener = TcpListener::bind(SocketAddrV4::new(w.local, 7000))?;
    let server = w.serve()?;
    let caller = w.caller_beside_tcp();
    let (ep, _) = w.request(&server)?;
    ep.reject(data)?;
    let mut stream = joined(caller)?;
    listener.accept()?.0.write_all(b"data")?;
    expect_end(&mut stream, b"data", &[0])
}

fn hello_with(at: usize, byte: u8) -> [u8; 48] {
    let mut data = hello().encode();
    data[at] = byte;
    data
}

/// We are newer than the module: the connection carries data as usual.
fn newer(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let (ep, theirs) = w.request(&server)?;
    let mut peer = Peer::accept(ep, &theirs, &speaks(1, 9).encode(), true, w.limit(10))?;
    let before = w.stats()?;
    carries(w, &mut peer, caller)?;
    w.expect_alive(&mut peer, &before)
}

/// The module's CONNECT comes on the link, and its connection carries data.
pub(super) fn carries(
    w: &World,
    peer: &mut Peer,
    caller: JoinHandle<io::Result<Stream>>,
) -> Outcome {
    let mut chan = peer.take_connect(w.limit(10))?;
    peer.say_accept(&chan)?;
    let mut stream = joined(caller)?;
    peer.data(&mut chan, b"data")?;
    peer.send(chan.header(Type::Fin), &[])?;
    expect_end(&mut stream, b"data", &[0])
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

/// Instead of an answer to CONNECT, a message that closes the link. The attempt is made once more
/// on a new link, as after a failure of the link; then it has failed.
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
    // Messages that the device has not refused yet are taken; sooner or later it reports the
    // refusal.
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

/// The backlog is full, twice.
fn busy_twice(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let first = peer.take_connect(w.limit(10))?;
    let again = busy(w, &mut peer, &first, 2)?;
    peer.say_accept(&again)?;
    joined(caller)?;
    w.expect_alive(&mut peer, &before)
}

/// The backlog is full, and then nothing is heard any more: that the peer has answered does not
/// make the module wait for longer than `connect_timeout_ms`.
fn busy_then_silent(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let first = peer.take_connect(w.limit(10))?;
    let again = busy(w, &mut peer, &first, 3)?;
    timed_out(w, caller)?;
    peer.say_accept(&again)?;
    peer.expect(Type::Reset, w.limit(10))?;
    w.expect_alive(&mut peer, &before)
}

/// The same, when the link goes while the module waits before it asks again: by the next one it
/// asks at once.
fn busy_then_gone(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller();
    let mut peer = w.take_link(&server)?;
    let first = peer.take_connect(w.limit(10))?;
    let again = busy(w, &mut peer, &first, 3)?;
    peer.send(reject(&again, Refusal::BacklogFull as u32), &[])?;
    peer.ep.disconnect()?;
    drop(peer);
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let moved = peer.take_connect(w.limit(10))?;
    timed_out(w, caller)?;
    peer.say_accept(&moved)?;
    peer.expect(Type::Reset, w.limit(10))?;
    w.expect_alive(&mut peer, &before)
}

/// connect() says ETIMEDOUT, long before the time is over that it has for a full backlog.
fn timed_out(w: &World, caller: JoinHandle<io::Result<Stream>>) -> Outcome {
    let end = Instant::now() + w.limit(15);
    while !caller.is_finished() {
        ensure(Instant::now() < end, "it waits still")?;
        sleep(Duration::from_millis(50));
    }
    expect_errno(joined(caller), &[libc::ETIMEDOUT])
}

/// The backlog is full for as long as the program waits.
fn busy_for_ever(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let caller = w.caller_with(|to| Stream::connect_timeout(&to.into(), Duration::from_secs(8)));
    let mut peer = w.take_link(&server)?;
    let before = w.stats()?;
    let first = peer.take_connect(w.limit(10))?;
    let mut said = 0;
    loop {
        peer.send(reject(&first, Refusal::BacklogFull as u32), &[])?;
        said += 1;
        match peer.take_connect(w.limit(2)) {
            Ok(chan) => ensure(chan.remote == first.remote, "another channel")?,
            Err(_) => break,
        }
    }
    expect_errno(joined(caller), &[libc::ETIMEDOUT])?;
    // In 8 s, at 50 ms and twice as long each time, up to 1 s.
    ensure(said <= 13, "asked again too often")?;
    ensure(said >= 2, "not asked again")?;
    w.expect_alive(&mut peer, &before)
}

/// Says that the backlog is full to `first`'s CONNECT and to the next ones, `times` in all. Returns
/// the one after.
fn busy(w: &World, peer: &mut Peer, first: &Chan, times: u32) -> io::Result<Chan> {
    let mut chan = None;
    for _ in 0..times {
        peer.send(reject(first, Refusal::BacklogFull as u32), &[])?;
        let next = peer.take_connect(w.limit(10))?;
        ensure(next.remote == first.remote, "another channel")?;
        chan = Some(next);
    }
    chan.ok_or_else(|| said("not once"))
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
    whole("server/refused-by-a-newer-host", |w| {
        refuse(w, &speaks(2, 9).encode(), libc::EPROTO)
    }),
    whole("server/tcp-instead-of-a-newer-host", |w| {
        goes_by_tcp(w, &speaks(2, 9).encode())
    }),
    whole("server/refused-for-want-of-room-by-a-newer-host", |w| {
        refuse(w, &speaks(1, 9).encode(), libc::ENOMEM)
    }),
    whole("server/accepted-by-a-newer-host", newer),
    whole("server/accepted-by-one-that-is-too-new", |w| {
        accept_wrongly(w, &speaks(2, 9).encode())
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
    whole("server/backlog-full-twice", busy_twice),
    slow("server/backlog-full-then-silence", busy_then_silent),
    slow("server/backlog-full-then-gone", busy_then_gone),
    slow("server/backlog-full-for-ever", busy_for_ever),
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
