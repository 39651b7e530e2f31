// SPDX-License-Identifier: GPL-2.0
//! Datagrams: fragments that break the rules end the link and nothing else, answers that were never
//! asked for have no effect, floods are counted, and a host without credit holds up no sender.

use std::io::{self, Write};
use std::net::{SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::net;
use zrs::DgramInfo;
use zrs_core::dgram::wire::{Body, DgramHeader, Fragment, Message, PortState, Ports, FEATURE};
use zrs_core::wire::{Hello, Type, HEADER_LEN};
use zrs_sys::sock::set_dgram_udp;
use zrs_sys::{Area, Device};

use super::{ensure, whole, Case};
use crate::peer::{hello, said, Peer, CREDIT};
use crate::verbs::{self, in_net};
use crate::world::{joined, Outcome, World, SERVICE};

const AF_INET: u32 = 2;
const SOCK_DGRAM: u32 = 2;
/// The port that our datagrams come from.
const OURS: u16 = 7777;

fn with_datagrams() -> Hello {
    Hello {
        features: FEATURE,
        ..hello()
    }
}

/// A datagram socket of the module's host, connected to us, and the ports of a datagram to it.
fn target(w: &World) -> io::Result<(UdpSocket, Ports)> {
    connected(w, false)
}

/// As [`target`]; `udp`: with a UDP socket inside.
fn connected(w: &World, udp: bool) -> io::Result<(UdpSocket, Ports)> {
    let make = || Device::open()?.socket(AF_INET, SOCK_DGRAM, 0);
    let socket = UdpSocket::from(in_net(&w.net, make)?);
    if udp {
        in_net(&w.net, || set_dgram_udp(socket.as_fd()))?;
    }
    socket.connect((w.local, OURS))?;
    socket.set_read_timeout(Some(w.limit(10)))?;
    let ports = Ports {
        dst: socket.local_addr()?.port(),
        src: OURS,
    };
    Ok((socket, ports))
}

/// The module's view of a socket with this port.
fn info(w: &World, port: u16) -> io::Result<DgramInfo> {
    let list = in_net(&w.net, || w.zrs.dgrams().collect::<io::Result<Vec<_>>>())?;
    let found = list.into_iter().find(|i| i.local.port() == port);
    found.ok_or_else(|| said("the socket is not listed"))
}

fn expect(socket: &UdpSocket, data: &[u8]) -> Outcome {
    let mut got = vec![0; 70_000];
    let n = socket.recv(&mut got)?;
    ensure(got.get(..n) == Some(data), "another datagram arrived")
}

fn part(ports: Ports, total: u32, offset: u32) -> Fragment {
    Fragment {
        ports,
        id: 1,
        total,
        offset,
    }
}

fn header(f: Fragment) -> DgramHeader {
    DgramHeader {
        link_credit: 0,
        body: Body::Datagram(f),
    }
}

/// Sends a fragment as it should be.
fn send(peer: &mut Peer, f: Fragment) -> Outcome {
    peer.send(Message::Dgram(header(f)), &vec![b'x'; f.len() as usize])
}

/// Sends a fragment whose encoded header is changed, with this number of bytes behind it.
fn changed(
    peer: &mut Peer,
    f: Fragment,
    change: impl FnOnce(&mut [u8; HEADER_LEN]),
    len: usize,
) -> Outcome {
    let mut h = header(f);
    h.link_credit = peer.credit_told();
    let mut bytes = h.encode();
    change(&mut bytes);
    peer.send_as_is(&bytes, &vec![b'x'; len])
}

/// What `act` sends ends the link and is counted. The socket has what had arrived, no part of the
/// rest, and goes on.
fn breaks(w: &mut World, act: fn(&mut Peer, Ports) -> Outcome) -> Outcome {
    let (socket, ports) = target(w)?;
    let mut peer = w.link_as(with_datagrams(), true)?;
    send(&mut peer, part(ports, 5000, 0))?;
    send(&mut peer, part(ports, 5000, 4096))?;
    expect(&socket, &[b'x'; 5000])?;
    let before = w.stats()?;
    act(&mut peer, ports)?;
    w.expect_violation(&mut peer, &before)?;
    let end = Instant::now() + w.limit(10);
    while info(w, ports.dst)?.rx_queued != 0 {
        ensure(Instant::now() < end, "a part of a datagram is kept")?;
        sleep(Duration::from_millis(5));
    }
    let mut next = w.link_as(with_datagrams(), true)?;
    send(&mut next, part(ports, 1, 0))?;
    expect(&socket, b"x")?;
    ensure(info(w, ports.dst)?.rx_drops == 0, "a datagram was dropped")
}

/// Without the feature bit of both, a datagram is a message of an unknown type.
fn without_feature(w: &mut World) -> Outcome {
    let (_socket, ports) = target(w)?;
    let mut peer = w.link()?;
    let before = w.stats()?;
    send(&mut peer, part(ports, 1, 0))?;
    w.expect_violation(&mut peer, &before)
}

/// Datagrams that waited for a link whose peer then says no feature bit are counted as dropped.
fn held_without_feature(w: &mut World) -> Outcome {
    let server = w.serve()?;
    let (socket, ports) = target(w)?;
    let sent = 5;
    for _ in 0..sent {
        socket.send(b"to you")?;
    }
    let mut peer = w.take_link(&server)?;
    let end = Instant::now() + w.limit(10);
    while info(w, ports.dst)?.tx_drops != sent {
        ensure(Instant::now() < end, "a datagram is not counted")?;
        sleep(Duration::from_millis(5));
    }
    // It is told behind that.
    let mut error = socket.take_error()?;
    while error.is_none() && Instant::now() < end {
        sleep(Duration::from_millis(5));
        error = socket.take_error()?;
    }
    let error = error.and_then(|e| e.raw_os_error());
    ensure(error == Some(libc::EHOSTUNREACH), "another error, or none")?;
    peer.alive(w.limit(10))?;
    ensure(peer.dgrams.is_empty(), "a datagram was sent")
}

/// All the links that one address may have leave a datagram unfinished at one socket: another
/// host's datagram arrives there. When all are whole, one of them has no room, and is counted.
fn unfinished(w: &mut World) -> Outcome {
    const LEN: u32 = 65_507;
    const LINKS: u32 = 3;
    let make = || Device::open()?.socket(AF_INET, SOCK_DGRAM, 0);
    let socket = UdpSocket::from(in_net(&w.net, make)?);
    net::bind(&socket, &SocketAddrV4::new(w.victim, 0))?;
    socket.set_read_timeout(Some(w.limit(10)))?;
    let ports = Ports {
        dst: socket.local_addr()?.port(),
        src: OURS,
    };
    let before = w.stats()?;
    let mut bystander = w.link_from(Some(w.other), with_datagrams(), true)?;
    let mut peers = Vec::new();
    for _ in 0..LINKS {
        let mut peer = w.link_as(with_datagrams(), true)?;
        for offset in (0..LEN - 4096).step_by(4096) {
            send(&mut peer, part(ports, LEN, offset))?;
        }
        peer.alive(w.limit(10))?;
        peers.push(peer);
    }
    let i = info(w, ports.dst)?;
    ensure(i.rx_queued == 0, "what is not whole takes room")?;
    let little = i.rcvbuf - LINKS * (LEN + 256);
    send_whole(&mut bystander, ports, little, b'y')?;
    expect(&socket, &vec![b'y'; little as usize])?;
    // As many bytes as with the others are more than the socket takes.
    send_whole(&mut bystander, ports, little, b'y')?;
    bystander.alive(w.limit(10))?;
    for peer in &mut peers {
        send(peer, part(ports, LEN, LEN / 4096 * 4096))?;
        peer.alive(w.limit(10))?;
    }
    let i = info(w, ports.dst)?;
    ensure(
        (i.rx_waiting, i.rx_drops) == (LINKS, 1),
        "a datagram is not counted, or more is held than SO_RCVBUF",
    )?;
    // The next one is unfinished when the link ends.
    send(&mut bystander, part(ports, 5000, 0))?;
    bystander.alive(w.limit(10))?;
    let queued = info(w, ports.dst)?.rx_queued;
    drop((bystander, peers));
    w.settled(&before, 20)?;
    let i = info(w, ports.dst)?;
    ensure(
        (i.rx_queued, i.rx_drops) == (queued, 1),
        "what was lost with a link is counted",
    )
}

/// Sends a datagram whose bytes are all `byte`.
fn send_whole(peer: &mut Peer, ports: Ports, total: u32, byte: u8) -> Outcome {
    for offset in (0..total).step_by(4096) {
        let f = part(ports, total, offset);
        let bytes = vec![byte; f.len() as usize];
        peer.send(Message::Dgram(header(f)), &bytes)?;
    }
    Ok(())
}

/// The blocks that are lent come to this number.
fn expect_lent(w: &World, blocks: u32) -> Outcome {
    let end = Instant::now() + w.limit(20);
    loop {
        let pools = w.zrs.pools().collect::<io::Result<Vec<_>>>()?;
        let lent: u32 = pools.iter().map(|p| p.blocks_lent).sum();
        if lent == blocks {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(said(&format!("{lent} blocks are lent, not {blocks}")));
        }
        sleep(Duration::from_millis(20));
    }
}

/// The link ends, as `ends` has it, while blocks of it are mapped into a program, others wait in
/// the queue, and a datagram is half there: the bytes stay what they were, whatever others send
/// then, and all blocks come back.
fn lent(w: &mut World, ends: fn(&World, Peer, Ports) -> Outcome) -> Outcome {
    const LEN: u32 = 40_000;
    const BLOCKS: u32 = LEN / 4096;
    const ROOM: usize = 16 * 4096;
    let (socket, ports) = target(w)?;
    let mut area = Area::reserve(socket.as_fd(), 2 * ROOM)?;
    let mut peer = w.link_as(with_datagrams(), true)?;
    send_whole(&mut peer, ports, LEN, b'a')?;
    let mapped = area.recv(socket.as_fd(), 0, ROOM, 0)?;
    ensure(
        mapped.range == (0..LEN as usize) && mapped.copied == (LEN % 4096) as usize,
        "not mapped",
    )?;
    send_whole(&mut peer, ports, LEN, b'b')?;
    for n in 0..4 {
        send(&mut peer, part(ports, LEN, n * 4096))?;
    }
    peer.alive(w.limit(10))?;
    // Those of the third are set aside.
    expect_lent(w, 3 * BLOCKS)?;
    ends(w, peer, ports)?;
    expect_lent(w, 2 * BLOCKS)?;
    let all = |area: &Area, range: Range<usize>, byte: u8| {
        let bytes = area.bytes(range).to_vec();
        ensure(bytes.iter().all(|b| *b == byte), "the bytes have changed")
    };
    all(&area, mapped.range.clone(), b'a')?;
    let (_other, others) = target(w)?;
    let mut next = w.link_as(with_datagrams(), true)?;
    for _ in 0..100 {
        send_whole(&mut next, others, LEN, b'c')?;
    }
    next.alive(w.limit(10))?;
    let waited = area.recv(socket.as_fd(), ROOM, ROOM, 0)?;
    ensure(waited.range.len() == LEN as usize, "another length")?;
    all(&area, waited.range.clone(), b'b')?;
    all(&area, mapped.range.clone(), b'a')?;
    area.give_back(0..ROOM);
    expect_lent(w, BLOCKS)?;
    all(&area, waited.range, b'b')?;
    drop((area, socket));
    expect_lent(w, 0)
}

/// Datagrams for ports without a socket: few of them are answered.
fn closed_ports(w: &mut World) -> Outcome {
    let (_socket, ports) = target(w)?;
    let mut peer = w.link_as(with_datagrams(), true)?;
    let before = w.stats()?;
    let begin = Instant::now();
    for n in 0..200 {
        let dst = 20_000 + n % 100;
        send(&mut peer, part(Ports { dst, ..ports }, 100, 0))?;
    }
    w.expect_alive(&mut peer, &before)?;
    let most = 16 * (1 + begin.elapsed().as_millis() / 100);
    let answers = peer.dgrams.len();
    ensure(
        answers > 0 && answers as u128 <= most,
        "too many answers, or none",
    )?;
    let refused =
        |h: &DgramHeader| matches!(h.body, Body::Port(p, PortState::Closed) if p.dst == OURS);
    ensure(peer.dgrams.iter().all(refused), "another answer")
}

/// A probe is answered, with the state of the port: open if its socket has it in UDP, too.
fn probes(w: &mut World) -> Outcome {
    let (_alone, alone) = target(w)?;
    let (_both, both) = connected(w, true)?;
    let mut peer = w.link_as(with_datagrams(), true)?;
    let nobody = Ports { dst: 1, ..both };
    for (ports, state) in [
        (both, PortState::Open),
        (alone, PortState::Closed),
        (nobody, PortState::Closed),
    ] {
        let body = Body::Probe(ports);
        let link_credit = 0;
        peer.send(Message::Dgram(DgramHeader { link_credit, body }), &[])?;
        let answer = peer.wait(w.limit(10), |p| p.dgrams.pop_front())?;
        let right = answer.body == Body::Port(ports.reversed(), state);
        ensure(right, "another answer")?;
    }
    Ok(())
}

/// More datagrams than the socket has room for: each is there, or counted.
fn flood(w: &mut World) -> Outcome {
    let (_socket, ports) = target(w)?;
    let mut peer = w.link_as(with_datagrams(), true)?;
    let before = w.stats()?;
    let sent = 600;
    for _ in 0..sent {
        send(&mut peer, part(ports, 1000, 0))?;
    }
    w.expect_alive(&mut peer, &before)?;
    let i = info(w, ports.dst)?;
    ensure(
        i.rx_drops > 0 && i.rx_waiting > 0,
        "no drop, or no datagram",
    )?;
    ensure(
        i.rx_drops + i.rx_waiting == sent,
        "a datagram is not counted",
    )?;
    ensure(
        i.rx_queued <= u64::from(i.rcvbuf),
        "more is held than SO_RCVBUF",
    )
}

/// The module's host sends to us: the link, and its socket.
fn called(w: &mut World) -> io::Result<(Peer, UdpSocket, Ports)> {
    let server = w.serve()?;
    let (socket, ports) = target(w)?;
    socket.send(b"to you")?;
    let (ep, theirs) = w.request(&server)?;
    let hello = with_datagrams().encode();
    let mut peer = Peer::accept(ep, &theirs, &hello, true, w.limit(10))?;
    let first = peer.wait(w.limit(10), |p| p.dgrams.pop_front())?;
    let is_ours =
        matches!(first.body, Body::Datagram(f) if f.ports == ports.reversed() && f.len() == 6);
    ensure(is_ours, "another message than the datagram")?;
    Ok((peer, socket, ports))
}

fn answer(peer: &mut Peer, ports: Ports, state: PortState) -> Outcome {
    let body = Body::Port(ports, state);
    let link_credit = 0;
    peer.send(Message::Dgram(DgramHeader { link_credit, body }), &[])
}

/// Answers that were never asked for: only one that fits a connected socket is an error of that.
fn answers(w: &mut World) -> Outcome {
    let (mut peer, socket, ports) = called(w)?;
    let before = w.stats()?;
    let other = Ports { src: 1, ..ports };
    answer(&mut peer, other, PortState::Closed)?;
    answer(&mut peer, Ports::default(), PortState::Closed)?;
    answer(&mut peer, ports, PortState::Open)?;
    answer(&mut peer, ports, PortState::Unknown(u32::MAX))?;
    peer.alive(w.limit(10))?;
    ensure(socket.take_error()?.is_none(), "an error without a reason")?;
    answer(&mut peer, ports, PortState::Closed)?;
    let end = Instant::now() + w.limit(10);
    let refused = loop {
        match socket.take_error()? {
            Some(e) => break e,
            None => ensure(Instant::now() < end, "no error")?,
        }
        sleep(Duration::from_millis(5));
    };
    let is_refused = refused.raw_os_error() == Some(libc::ECONNREFUSED);
    ensure(is_refused, "another error")?;
    let counted = w.stats()?.protocol_errors - before.protocol_errors;
    ensure(counted == 0, "a violation was counted")
}

/// A datagram that the module has begun to send us.
fn fragment(h: &DgramHeader) -> io::Result<Fragment> {
    match h.body {
        Body::Datagram(f) => Ok(f),
        _ => Err(said("another message than a datagram")),
    }
}

/// Whole datagrams among the messages that the module has sent. Their parts follow each other.
fn whole_ones(peer: &Peer) -> io::Result<u32> {
    let (mut count, mut next) = (0, 0);
    for h in &peer.dgrams {
        let f = fragment(h)?;
        ensure(f.offset == next, "a part is missing")?;
        next = if f.is_last() { 0 } else { f.end() };
        count += u32::from(f.is_last());
    }
    ensure(next == 0, "a datagram is not whole")?;
    Ok(count)
}

/// A host takes all messages and gives no credit for them: what has no room is dropped and counted,
/// senders are not held up, and datagrams for another host arrive. When it gives credit, datagrams
/// go on.
fn no_credit(w: &mut World) -> Outcome {
    const SENT: u32 = 900;
    const EACH: u32 = 10;
    let servers = [
        w.serve()?,
        verbs::Listener::bind(SocketAddrV4::new(w.other, SERVICE))?,
    ];
    let make = || Device::open()?.socket(AF_INET, SOCK_DGRAM, 0);
    let socket = UdpSocket::from(in_net(&w.net, make)?);
    net::bind(&socket, &SocketAddrV4::new(w.victim, 0))?;
    let port = socket.local_addr()?.port();
    let mut peers = Vec::new();
    for (ip, server) in [w.local, w.other].into_iter().zip(&servers) {
        socket.send_to(b"to you", (ip, OURS))?;
        let (ep, theirs) = w.request(server)?;
        let hello = with_datagrams().encode();
        let mut peer = Peer::accept(ep, &theirs, &hello, true, w.limit(10))?;
        peer.wait(w.limit(10), |p| p.dgrams.pop_front())?;
        peers.push(peer);
    }
    let [silent, other] = &mut peers[..] else {
        return Err(said("two hosts"));
    };
    silent.gives_credit = false;
    let bytes = [b'x'; 60_000];
    let stall = w.limit(1) / 50;
    let (mut late, mut beside, mut refused) = (0, 0, 0);
    for n in 0..SENT {
        // The calls of the last third do not block.
        if n == SENT / 3 * 2 {
            socket.set_nonblocking(true)?;
        }
        let len = [1, 4097, 60_000][n as usize % 3];
        let begin = Instant::now();
        match socket.send_to(&bytes[..len], (w.local, OURS)) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => refused += 1,
            sent => ensure(sent? == len, "a part was sent")?,
        }
        late += u32::from(begin.elapsed() >= stall);
        silent.pump()?;
        if n % EACH == 0 {
            // Its datagrams have the same send buffer.
            let end = Instant::now() + w.limit(10);
            while socket.send_to(b"beside", (w.other, OURS)).is_err() {
                ensure(Instant::now() < end, "no room for another host's datagram")?;
                sleep(Duration::from_millis(1));
            }
            beside += 1;
            let h = other.wait(w.limit(10), |p| p.dgrams.pop_front())?;
            ensure(fragment(&h)?.len() == 6, "another datagram")?;
        }
    }
    ensure(beside == SENT / EACH, "not all arrived at the other host")?;
    if late > SENT / 10 {
        return Err(said(&format!("{late} of {SENT} calls were held up")));
    }
    ensure(
        refused <= 2,
        "calls that do not block are refused again and again",
    )?;
    let drops = info(w, port)?.tx_drops;
    let links = in_net(&w.net, || w.zrs.links().collect::<io::Result<Vec<_>>>())?;
    let of_links: u32 = links.iter().map(|l| l.dgram_drops).sum();
    ensure(
        drops > 0 && of_links == drops,
        "the link has counted others",
    )?;
    let rest = SENT - refused - drops;
    let arrived = silent.wait(w.limit(10), |p| {
        let arrived = whole_ones(p).ok()?;
        (arrived >= rest).then_some(arrived)
    });
    if arrived? != rest {
        return Err(said(&format!(
            "{SENT} sent, {refused} refused, {drops} dropped"
        )));
    }
    ensure(
        silent.dgrams.len() < CREDIT as usize,
        "more than the credit",
    )?;
    silent.gives_credit = true;
    silent.dgrams.clear();
    let end = Instant::now() + w.limit(10);
    while silent.dgrams.is_empty() {
        ensure(Instant::now() < end, "nothing arrives with new credit")?;
        let _ = socket.send_to(&bytes, (w.local, OURS));
        silent.pump()?;
        sleep(Duration::from_millis(1));
    }
    silent.alive(w.limit(10))
}

/// A stream and a flood of datagrams both have something to send at all times. Credit comes back by
/// quarters: the stream gets half of it.
fn shared(w: &mut World) -> Outcome {
    const ROUNDS: u32 = 15;
    const FLOODS: u32 = 4;
    let (mut peer, socket, _) = called(w)?;
    let caller = w.caller();
    let mut chan = peer.take_connect(w.limit(10))?;
    peer.say_accept(&chan)?;
    let mut stream = joined(caller)?;
    peer.gives_credit = false;
    let stop = Arc::new(AtomicBool::new(false));
    let flood: Vec<_> = (0..FLOODS)
        .map(|_| {
            let (socket, stop) = (socket.try_clone()?, stop.clone());
            Ok(thread::spawn(move || -> Outcome {
                while !stop.load(Ordering::Relaxed) {
                    socket.send(&[b'd'; 100])?;
                }
                Ok(())
            }))
        })
        .collect::<io::Result<_>>()?;
    // Until its link ends.
    let writer = thread::spawn(move || while stream.write_all(&[b's'; 100]).is_ok() {});
    let (mut data, mut dgrams) = (0, 0);
    for round in 0..ROUNDS {
        // Until both are without credit.
        let mut quiet = Instant::now();
        while quiet.elapsed() < w.limit(1) / 20 {
            let mut came = peer.dgrams.len() as u32;
            peer.dgrams.clear();
            dgrams += came;
            while peer.has_message()? {
                let (h, payload) = peer.expect(Type::Data, w.limit(1))?;
                chan.freed.msgs = chan.freed.msgs.wrapping_add(1);
                chan.freed.small += payload.len() as u64;
                ensure(h.dst == chan.local, "another channel")?;
                data += 1;
                came += 1;
            }
            if came > 0 {
                quiet = Instant::now();
            }
            sleep(Duration::from_millis(1));
        }
        // At first the link had more credit than a quarter, and one of them came first.
        if round == 0 {
            (data, dgrams) = (0, 0);
        }
        peer.send(chan.header(Type::Credit), &[])?;
    }
    stop.store(true, Ordering::Relaxed);
    drop(peer);
    writer.join().map_err(|_| said("the writer has failed"))?;
    for flood in flood {
        // The link may have ended first.
        if let Err(e) = joined(flood) {
            let lost = e.raw_os_error() == Some(libc::EHOSTUNREACH);
            ensure(lost, "another error of the flood")?;
        }
    }
    if data < dgrams || dgrams == 0 {
        return Err(said(&format!(
            "{data} messages of the stream, {dgrams} datagrams"
        )));
    }
    Ok(())
}

/// The host that accepted a link sends no datagrams on it.
fn wrong_way(w: &mut World) -> Outcome {
    let (mut peer, _socket, ports) = called(w)?;
    let before = w.stats()?;
    send(&mut peer, part(ports, 1, 0))?;
    w.expect_violation(&mut peer, &before)
}

pub const CASES: &[Case] = &[
    whole("dgram/the first is no first", |w| {
        breaks(w, |p, ports| send(p, part(ports, 8192, 4096)))
    }),
    whole("dgram/the second is missing", |w| {
        breaks(w, |p, ports| {
            send(p, part(ports, 12_288, 0))?;
            send(p, part(ports, 12_288, 8192))
        })
    }),
    whole("dgram/the first twice", |w| {
        breaks(w, |p, ports| {
            send(p, part(ports, 8192, 0))?;
            send(p, part(ports, 8192, 0))
        })
    }),
    whole("dgram/other ports", |w| {
        breaks(w, |p, ports| {
            send(p, part(ports, 8192, 0))?;
            let src = ports.src + 1;
            send(p, part(Ports { src, ..ports }, 8192, 4096))
        })
    }),
    whole("dgram/another number", |w| {
        breaks(w, |p, ports| {
            send(p, part(ports, 8192, 0))?;
            let id = 2;
            send(
                p,
                Fragment {
                    id,
                    ..part(ports, 8192, 4096)
                },
            )
        })
    }),
    whole("dgram/another length", |w| {
        breaks(w, |p, ports| {
            send(p, part(ports, 8192, 0))?;
            send(p, part(ports, 12_288, 4096))
        })
    }),
    whole("dgram/another one between", |w| {
        breaks(w, |p, ports| {
            send(p, part(ports, 8192, 0))?;
            send(p, part(ports, 10, 0))
        })
    }),
    whole("dgram/a part that is too short", |w| {
        breaks(w, |p, ports| {
            let len = |b: &mut [u8; HEADER_LEN]| b[4..8].copy_from_slice(&4095_u32.to_le_bytes());
            changed(p, part(ports, 8192, 0), len, 4095)
        })
    }),
    whole("dgram/more bytes than it says", |w| {
        breaks(w, |p, ports| changed(p, part(ports, 10, 0), |_| (), 11))
    }),
    whole("dgram/fewer bytes than it says", |w| {
        breaks(w, |p, ports| changed(p, part(ports, 10, 0), |_| (), 9))
    }),
    whole("dgram/longer than a datagram", |w| {
        breaks(w, |p, ports| send(p, part(ports, 65_528, 0)))
    }),
    whole("dgram/a length of 64 bits", |w| {
        breaks(w, |p, ports| {
            changed(p, part(ports, 10, 0), |b| b[31] = 1, 10)
        })
    }),
    whole("dgram/an odd offset", |w| {
        breaks(w, |p, ports| send(p, part(ports, 100, 1)))
    }),
    whole("dgram/a part without bytes", |w| {
        breaks(w, |p, ports| send(p, part(ports, 4096, 4096)))
    }),
    whole("dgram/a channel", |w| {
        breaks(w, |p, ports| {
            changed(p, part(ports, 10, 0), |b| b[8] = 1, 10)
        })
    }),
    whole("dgram/flags", |w| {
        breaks(w, |p, ports| {
            changed(p, part(ports, 10, 0), |b| b[2] = 1, 10)
        })
    }),
    whole("dgram/a type without a meaning", |w| {
        breaks(w, |p, ports| {
            changed(p, part(ports, 10, 0), |b| b[1] = 35, 10)
        })
    }),
    whole("dgram/an answer from the connector", |w| {
        breaks(w, |p, ports| answer(p, ports, PortState::Closed))
    }),
    whole("dgram/without the feature", without_feature),
    whole(
        "dgram/held for a peer without the feature",
        held_without_feature,
    ),
    whole("dgram/unfinished", unfinished),
    whole("dgram/gone while blocks are lent", |w| {
        lent(w, |_, peer, _| {
            drop(peer);
            Ok(())
        })
    }),
    whole("dgram/a violation while blocks are lent", |w| {
        lent(w, |w, mut peer, ports| {
            let before = w.stats()?;
            send(&mut peer, part(ports, 10, 0))?;
            w.expect_violation(&mut peer, &before)
        })
    }),
    whole("dgram/closed ports", closed_ports),
    whole("dgram/probes", probes),
    whole("dgram/flood", flood),
    whole("dgram/no credit", no_credit),
    whole("dgram/a stream beside a flood", shared),
    whole("dgram/answers to nothing", answers),
    whole("dgram/from the acceptor", wrong_way),
];
