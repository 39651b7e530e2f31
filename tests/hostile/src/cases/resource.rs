// SPDX-License-Identifier: GPL-2.0
//! Taking all there is, and giving nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use zrs::{Listener, Stream};
use zrs_core::link_flow::MIN_CREDIT;
use zrs_core::wire::{Header, Hello, Type};
use zrs_core::ChanId;

use super::{ensure, pose, slow, whole, Case};
use crate::peer::{hello, said, Peer};
use crate::verbs::in_net;
use crate::world::{expect_end, Outcome, World};

/// Connections that wait to be accepted: the backlog of `zrs::Listener`.
const BACKLOG: usize = 128;

/// Links of [`overrun`].
const OVERRUNS: usize = 20;

/// Links of [`half_messages`], and with `TIER=full`.
const HALVES: usize = 200;
const HALVES_FULL: usize = 1000;

/// A CONNECT, and whether it was accepted (else the reason).
fn try_open(w: &World, peer: &mut Peer, port: u16) -> io::Result<Result<(), u32>> {
    let h = peer.connect_header(port);
    peer.send(h, &[])?;
    let (answer, _) = peer.recv(w.limit(10))?;
    ensure(answer.dst == h.src, "an answer for another channel")?;
    match answer.kind {
        Type::Accept => Ok(Ok(())),
        Type::Reject => Ok(Err(answer.arg0)),
        kind => Err(said(&format!("{kind:?} to a CONNECT"))),
    }
}

fn nobody_accepts(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut peer = w.link()?;
    let before = w.stats()?;
    for i in 0..BACKLOG + 50 {
        let expected = if i < BACKLOG { Ok(()) } else { Err(3) };
        let seen = try_open(w, &mut peer, victim.port)?;
        ensure(
            seen == expected,
            &format!("the open number {i} got {seen:?}"),
        )?;
    }
    w.expect_alive(&mut peer, &before)
}

/// Opens until the table of channels is full, and says nothing more.
fn all_channels(w: &mut World) -> Outcome {
    let mut victims = vec![w.listen()?];
    let mut peer = w.link()?;
    let mut opened = 0;
    let end = loop {
        let port = victims.last().expect("one").port;
        match try_open(w, &mut peer, port)? {
            Ok(()) => {
                opened += 1;
                if opened % BACKLOG == 0 {
                    victims.push(w.listen()?);
                }
            }
            Err(reason) => break reason,
        }
        if opened > 4000 {
            return Err(said(
                "the table does not fill: load the module with max_channels=384 net_percent=100",
            ));
        }
    };
    ensure(end == 2, "refused for another reason")?;
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 3))?;
    let other = SocketAddrV4::new(w.victim, 9998);
    let refused = in_net(&w.net, || Stream::connect(other));
    crate::world::expect_errno(refused, &[libc::ENOBUFS])
}

fn flood(w: &mut World, count: usize, next: fn(&mut Peer) -> Header) -> Outcome {
    let _victim = w.listen()?;
    let mut peer = w.link()?;
    let before = w.stats()?;
    for _ in 0..count {
        let h = next(&mut peer);
        peer.send(h, &[])?;
    }
    w.expect_alive(&mut peer, &before)
}

/// A link for which we post no receive, and the program's end of its connection.
fn deaf(w: &mut World) -> io::Result<(Peer, Stream)> {
    let victim = w.listen()?;
    let mut peer = w.link_as(hello(), false)?;
    let h = peer.connect_header(victim.port);
    peer.send(h, &[])?;
    let stream = victim.accept(w)?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    Ok((peer, stream))
}

/// We post no receive: whatever the module says does not get through.
fn no_receives(w: &mut World) -> Outcome {
    let (peer, mut stream) = deaf(w)?;
    let end = Instant::now() + w.limit(10);
    while stream.write_all(&[b'x'; 100]).is_ok() {
        ensure(Instant::now() < end, "the program can send for ever")?;
    }
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 3))?;
    drop(peer);
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// We post no receive, and go on sending; with `fill`, the program sends until the module's credit
/// is used up. The module's `dead_ms` has to be shorter than the limit.
fn takes_nothing(w: &mut World, fill: bool) -> Outcome {
    let (mut peer, mut stream) = deaf(w)?;
    while fill && stream.write_all(&[b'x'; 100]).is_ok() {}
    let beat = Header::new(Type::Heartbeat, NONE, NONE);
    let end = Instant::now() + w.limit(20);
    while peer.closed(Duration::from_millis(200)).is_none() {
        ensure(Instant::now() < end, "its link goes on")?;
        // The queue pair may break in between.
        let _ = peer.send(beat, &[]);
    }
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 3))?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// We never give the link credit again: the module stops sending when it has used up its credit.
fn no_link_credit(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut peer = w.link_as(
        Hello {
            link_credit: MIN_CREDIT,
            ..hello()
        },
        true,
    )?;
    peer.gives_credit = false;
    let mut h = peer.connect_header(victim.port);
    h.link_credit = MIN_CREDIT;
    peer.send_as_is(&h.encode(), &[])?;
    let mut stream = victim.accept(w)?;
    stream.set_nonblocking(true)?;
    let mut sent = 0;
    let end = Instant::now() + w.limit(5);
    while Instant::now() < end && sent < 200 {
        match stream.write(b"x") {
            Ok(_) => sent += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
    }
    ensure(sent < MIN_CREDIT, &format!("{sent} messages were sent"))?;
    peer.wait(w.limit(10), |p| {
        (p.credit_told() >= hello().link_credit + sent).then_some(())
    })?;
    drop(peer);
    stream.set_nonblocking(false)?;
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

/// We receive and never announce freed room.
fn no_channel_credit(w: &mut World) -> Outcome {
    let (mut peer, _chan, mut stream, _victim) = w.channel()?;
    let before = w.stats()?;
    stream.set_nonblocking(true)?;
    let mut sent = 0;
    let end = Instant::now() + w.limit(5);
    while Instant::now() < end && sent < 64 {
        match stream.write(b"x") {
            Ok(_) => sent += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => peer.pump()?,
            Err(e) => return Err(e),
        }
    }
    ensure(sent == 64, &format!("{sent} messages were sent"))?;
    let more = stream.write(b"x");
    ensure(
        more.is_err_and(|e| e.kind() == ErrorKind::WouldBlock),
        "more than was granted",
    )?;
    w.expect_alive(&mut peer, &before)
}

/// A connection between two honest hosts carries bulk data.
pub(super) fn honest(w: &World, from: &str, port: u16) -> Outcome {
    let addr = SocketAddrV4::new(w.victim, port);
    let listener = in_net(&w.net, || Listener::bind(addr))?;
    let mut client = in_net(from, || Stream::connect(addr))?;
    let (mut server, _) = listener.accept()?;
    let (sent, limit) = (vec![b'h'; 300_000], w.limit(20));
    let mut got = vec![0; sent.len()];
    server.set_read_timeout(Some(limit))?;
    client.set_write_timeout(Some(limit))?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| client.write_all(&sent));
        let result = server.read_exact(&mut got);
        result.and(
            sender
                .join()
                .unwrap_or_else(|e| std::panic::resume_unwind(e)),
        )
    })?;
    ensure(got == sent, "other bytes arrived")
}

/// Unread data on many channels: beyond its share of the blocks it is moved away, and nothing of it
/// is lost.
fn unread(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut peer = w.link()?;
    let before = w.stats()?;
    let mut open = Vec::new();
    for _ in 0..6 {
        let chan = peer.open(victim.port, w.limit(10))?;
        open.push((chan, victim.accept(w)?));
    }
    for round in 0..40_u8 {
        for (chan, _) in &mut open {
            peer.data(chan, &[round; 50])?;
        }
    }
    w.expect_alive(&mut peer, &before)?;
    ensure(
        w.stats()?.rx_spilled > before.rx_spilled,
        "nothing was moved away",
    )?;
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 3))?;
    let sent: Vec<u8> = (0..40_u8).flat_map(|round| [round; 50]).collect();
    for (chan, stream) in &mut open {
        peer.send(chan.header(Type::Fin), &[])?;
        expect_end(stream, &sent, &[0])?;
    }
    Ok(())
}

/// Links that end while a program leaves a message unread: their blocks serve further links, and the
/// message is still there.
fn unread_of_former_links(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut left = Vec::new();
    // Twice as many as all blocks serve at a time.
    for round in 0..16_u8 {
        let mut peer = w.link()?;
        let mut chan = peer.open(victim.port, w.limit(10))?;
        peer.data(&mut chan, &[round; 50])?;
        // Every second channel ends before its link.
        let early = round % 2 == 0;
        if early {
            peer.send(chan.header(Type::End), &[])?;
        }
        peer.alive(w.limit(10))?;
        left.push((victim.accept(w)?, round, early));
    }
    for (mut stream, round, early) in left {
        let end = if early { 0 } else { libc::ECONNRESET };
        expect_end(&mut stream, &[round; 50], &[end])?;
    }
    Ok(())
}

/// One link after the other, each left behind with a channel and a window.
fn links(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    for _ in 0..12 {
        let mut peer = w.link()?;
        let mut chan = peer.open(victim.port, w.limit(10))?;
        peer.get_window(&mut chan, w.limit(10))?;
        let mut stream = victim.accept(w)?;
        drop(peer);
        expect_end(&mut stream, &[], &[libc::ECONNRESET])?;
    }
    Ok(())
}

/// The program has closed, and we never say End: after 10 seconds the link goes.
fn no_end(w: &mut World) -> Outcome {
    let (mut peer, mut chan, stream, _victim) = w.channel()?;
    peer.get_window(&mut chan, w.limit(10))?;
    let before = w.stats()?;
    let began = Instant::now();
    drop(stream);
    peer.expect(Type::End, w.limit(10))?;
    peer.closed(w.limit(20))
        .ok_or_else(|| said("the link was not closed"))?;
    ensure(began.elapsed() > Duration::from_secs(8), "closed too early")?;
    ensure(
        w.stats()?.protocol_errors == before.protocol_errors,
        "a violation was counted",
    )
}

/// Links that end in the middle of a message, one after the other, and in the end more of them than
/// the module has blocks. Others' links are there at the same time, or not.
fn half_messages(w: &mut World) -> Outcome {
    // Links are accepted while a socket listens.
    let _victim = w.listen()?;
    let full = std::env::var("TIER").is_ok_and(|tier| tier == "full");
    for _ in 0..if full { HALVES_FULL } else { HALVES } {
        let mut peer = w.link()?;
        peer.send_half()?;
        peer.closed(w.limit(10))
            .ok_or_else(|| said("our queue pair goes on"))?;
    }
    // All the credit of a link is there.
    let (mut peer, mut chan, _stream, _victim) = w.channel()?;
    for _ in 1..peer.credit_left() {
        peer.data(&mut chan, b"x")?;
    }
    peer.alive(w.limit(10))
}

/// Links whose credit is not looked at: messages until the link ends, as fast as they go, and more
/// of them than the module has blocks.
fn overrun(w: &mut World) -> Outcome {
    let _victim = w.listen()?;
    for _ in 0..OVERRUNS {
        let mut peer = w.link()?;
        let beat = Header::new(Type::Heartbeat, NONE, NONE).encode();
        let end = Instant::now() + w.limit(10);
        while peer.closed(Duration::ZERO).is_none() {
            ensure(Instant::now() < end, "it may send for ever")?;
            // The queue pair may break in between.
            let _ = peer.send_as_is(&beat, &[]);
        }
        let bystander = w.bystander.as_ref();
        bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 3))?;
    }
    Ok(())
}

/// The endpoint is killed where it stands.
fn killed(w: &mut World, how: pose::Pose) -> Outcome {
    let victim = w.listen()?;
    for _ in 0..2 {
        let mut child = pose::start(w, how, victim.port)?;
        let stream = how.has_channel().then(|| victim.accept(w)).transpose()?;
        std::thread::sleep(Duration::from_millis(30));
        child.kill()?;
        child.wait()?;
        if let Some(mut stream) = stream {
            expect_end(&mut stream, &[], how.errno())?;
        }
    }
    Ok(())
}

const NONE: ChanId = ChanId { index: 0, gen: 0 };

pub const CASES: &[Case] = &[
    whole("resource/nobody-accepts", nobody_accepts),
    whole("resource/all-channels", all_channels),
    whole("resource/flood-of-refused-opens", |w| {
        flood(w, 1000, |p| p.connect_header(9))
    }),
    whole("resource/flood-of-link-credit", |w| {
        flood(w, 1000, |_| Header::new(Type::LinkCredit, NONE, NONE))
    }),
    whole("resource/flood-of-heartbeats", |w| {
        flood(w, 1000, |_| Header::new(Type::Heartbeat, NONE, NONE))
    }),
    whole("resource/flood-for-nobody", |w| {
        flood(w, 1000, |p| {
            let src = p.connect_header(1).src;
            Header::new(
                Type::WindowRequest,
                ChanId {
                    index: 77,
                    gen: 77_777,
                },
                src,
            )
        })
    }),
    whole("resource/no-receives", no_receives),
    whole("resource/no-link-credit", no_link_credit),
    whole("resource/no-channel-credit", no_channel_credit),
    whole("resource/unread", unread),
    whole("resource/links", links),
    slow("named/half-messages", half_messages),
    slow("named/overrun", overrun),
    slow("named/takes-nothing", |w| takes_nothing(w, true)),
    slow("named/takes-nothing-idle", |w| takes_nothing(w, false)),
    whole("resource/unread-of-former-links", unread_of_former_links),
    slow("resource/no-end", no_end),
    whole("killed/asking", |w| killed(w, pose::Pose::Asking)),
    whole("killed/half-open", |w| killed(w, pose::Pose::HalfOpen)),
    whole("killed/up", |w| killed(w, pose::Pose::Up)),
    whole("killed/channel", |w| killed(w, pose::Pose::Channel)),
    whole("killed/window", |w| killed(w, pose::Pose::Window)),
    whole("killed/writing", |w| killed(w, pose::Pose::Writing)),
    whole("killed/sending", |w| killed(w, pose::Pose::Sending)),
    whole("killed/after-fin", |w| killed(w, pose::Pose::Fin)),
];
