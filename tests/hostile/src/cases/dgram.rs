// SPDX-License-Identifier: GPL-2.0
//! Datagrams: fragments that break the rules end the link and nothing else, answers that were never
//! asked for have no effect, and floods are counted.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net;
use zrs::DgramInfo;
use zrs_core::dgram::wire::{Body, DgramHeader, Fragment, Message, PortState, Ports, FEATURE};
use zrs_core::wire::{Hello, HEADER_LEN};
use zrs_sys::{Area, Device};

use super::{ensure, whole, Case};
use crate::peer::{hello, said, Peer};
use crate::verbs::in_net;
use crate::world::{Outcome, World};

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
    let make = || Device::open()?.socket(AF_INET, SOCK_DGRAM, 0);
    let socket = UdpSocket::from(in_net(&w.net, make)?);
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

/// A probe is answered, with the state of the port.
fn probes(w: &mut World) -> Outcome {
    let (_socket, ports) = target(w)?;
    let mut peer = w.link_as(with_datagrams(), true)?;
    let other = Ports { dst: 1, ..ports };
    for (ports, state) in [(ports, PortState::Open), (other, PortState::Closed)] {
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
    whole("dgram/answers to nothing", answers),
    whole("dgram/from the acceptor", wrong_way),
];
