// SPDX-License-Identifier: GPL-2.0
//! Making a link wrongly.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread::sleep;
use std::time::{Duration, Instant};

use zrs::Zrs;
use zrs_core::proof;
use zrs_core::wire::{Hello, Type, Versions};

use super::{ensure, whole, Case};
use crate::forged::Request;
use crate::peer::{hello, said, speaks, Peer};
use crate::verbs::{self, in_net, Endpoint, Event};
use crate::world::{expect_end, Outcome, World, SERVICE};

/// Asks for a link from this port; the module's answer.
fn answer(w: &mut World, from: SocketAddrV4, data: &[u8]) -> io::Result<(Endpoint, Event)> {
    let ep = Peer::ask(from, w.service(), data, 0)?;
    let event = ep.event(w.limit(10))?.ok_or_else(|| said("no answer"))?;
    Ok((ep, event))
}

/// The module answers with its hello.
fn answered(event: &Event) -> Outcome {
    let theirs = Hello::decode(event.data()).map_err(|e| said(&format!("answered with {e:?}")))?;
    ensure(theirs.versions == Versions::OURS, "other versions")
}

/// The module rejects the link, with its hello.
fn no(w: &mut World, data: &[u8]) -> Outcome {
    let _victim = w.listen()?;
    let before = w.stats()?;
    let from = w.source();
    let (_ep, event) = answer(w, from, data)?;
    ensure(event.kind == verbs::REJECTED, "not refused")?;
    answered(&event)?;
    ensure(
        w.stats()?.protocol_errors == before.protocol_errors,
        "a violation was counted",
    )
}

fn changed(w: &mut World, at: usize, byte: u8) -> Outcome {
    no(w, &with(&[(at, byte)]))
}

fn credit(w: &mut World, credit: u32) -> Outcome {
    no(
        w,
        &Hello {
            link_credit: credit,
            ..hello()
        }
        .encode(),
    )
}

/// The module takes the link.
fn yes(w: &mut World, data: &[u8]) -> Outcome {
    let _victim = w.listen()?;
    let from = w.source();
    let (_ep, event) = answer(w, from, data)?;
    ensure(event.kind == verbs::ESTABLISHED, "not established")?;
    answered(&event)
}

/// A good hello but for these bytes.
fn with(changes: &[(usize, u8)]) -> [u8; 48] {
    let mut data = hello().encode();
    for (at, byte) in changes {
        data[*at] = *byte;
    }
    data
}

/// A link with a newer host, whose hello has more than the module knows, carries data as usual.
fn newer(w: &mut World) -> Outcome {
    let (mut peer, mut chan, mut stream, _victim) = w.channel_as(speaks(1, 9))?;
    peer.data(&mut chan, b"of later")?;
    peer.send(chan.header(Type::Fin), &[])?;
    expect_end(&mut stream, b"of later", &[0])?;
    peer.alive(w.limit(10))
}

/// From another port than a kernel's: refused without a hello.
fn port(w: &mut World, port: u16) -> Outcome {
    let _victim = w.listen()?;
    let from = SocketAddrV4::new(w.local, port);
    let (_ep, event) = answer(w, from, &hello().encode())?;
    ensure(event.kind == verbs::REJECTED, "not refused")?;
    ensure(!Hello::is_from_zrs(event.data()), "refused with a hello")
}

/// Asks for a link and never takes notice of the answer.
fn half_open(w: &mut World) -> io::Result<Endpoint> {
    let from = w.source();
    Peer::ask(from, w.service(), &hello().encode(), 0)
}

fn half_opens(w: &mut World, count: usize) -> Outcome {
    let victim = w.listen()?;
    let mut asked = Vec::new();
    for _ in 0..count {
        asked.push(half_open(w)?);
    }
    // An honest link of ours finds its place: the oldest of those have to go. One of them that was
    // late may be newer than ours, so that ours goes.
    let mut tries = 0;
    loop {
        match honest(w, victim.port) {
            Err(_) if tries < 3 => tries += 1,
            outcome => return outcome,
        }
    }
}

fn honest(w: &mut World, port: u16) -> Outcome {
    let mut peer = w.link()?;
    peer.open(port, w.limit(10))?;
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 2))?;
    peer.alive(w.limit(10))
}

/// A flood from one address leaves room for a link from another.
fn flood_beside_another(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut asked = Vec::new();
    // More than the bound in any case.
    for _ in 0..(40 / w.scale).max(6) {
        asked.push(half_open(w)?);
    }
    let other = SocketAddrV4::new(w.other, w.source().port());
    let end = Instant::now() + w.limit(10);
    let mut peer = loop {
        match Peer::connect(other, w.service(), hello(), true, w.limit(10)) {
            // The links of the case before may still have their blocks. The flood goes on.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                asked.push(half_open(w)?);
                sleep(Duration::from_millis(50));
            }
            result => break result?,
        }
    };
    peer.open(victim.port, w.limit(10))?;
    drop(asked);
    peer.alive(w.limit(10))
}

/// One address may have three links, as `links_per_peer` is 2; a fourth one ends the oldest.
fn fourth_link(w: &mut World) -> Outcome {
    let _victim = w.listen()?;
    let mut oldest = w.link()?;
    let others = [w.link()?, w.link()?, w.link()?];
    oldest
        .closed(w.limit(10))
        .ok_or_else(|| said("the oldest was not closed"))?;
    for mut peer in others {
        peer.alive(w.limit(10))?;
    }
    Ok(())
}

/// A request of ours, from our address as the network has it, that claims another.
fn forged(w: &mut World, claimed: Ipv4Addr, timeout: u8) -> Outcome {
    let from = w.source();
    Request {
        claimed,
        from: w.local,
        to: w.victim,
        from_port: from.port(),
        to_port: SERVICE,
        number: w.seed as u32 ^ (u32::from(from.port()) << 16),
        timeout,
        hello: &hello().encode(),
    }
    .send()
}

/// Whether the module has a link with this address within the time.
fn linked(w: &World, with: Ipv4Addr, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        // Of the namespace of the thread that asks.
        let links = in_net(&w.net, || {
            Zrs::open()?.links().collect::<io::Result<Vec<_>>>()
        })?;
        if links.iter().any(|link| link.remote == with) {
            return Ok(true);
        }
        if Instant::now() > end {
            return Ok(false);
        }
        sleep(Duration::from_millis(5));
    }
}

/// A peer that claims an address which is not that of its path gets no link; one that tells the truth
/// does, and does not say for how long it may leave it half made.
fn claims(w: &mut World) -> Outcome {
    let _victim = w.listen()?;
    let stranger = Ipv4Addr::from_bits(w.local.to_bits() + 100);
    let before = w.stats()?;
    for claimed in [w.other, stranger] {
        forged(w, claimed, 31)?;
    }
    // Requests are looked at one after the other.
    forged(w, w.local, 31)?;
    ensure(
        linked(w, w.local, w.limit(10))?,
        "no link by a forged request",
    )?;
    for claimed in [w.other, stranger] {
        ensure(
            !linked(w, claimed, Duration::ZERO)?,
            "a link to a claimed address",
        )?;
    }
    let counted = w.stats()?.protocol_errors - before.protocol_errors;
    ensure(counted == 2, "another number of violations was counted")
}

/// The queue pair is broken in silence; the module learns of it when we go.
fn broken_in_silence(w: &mut World) -> Outcome {
    let (peer, _chan, mut stream, _victim) = w.channel()?;
    peer.ep.break_off()?;
    drop(peer);
    expect_end(&mut stream, &[], &[libc::ECONNRESET])
}

fn disconnected(w: &mut World, pause: u64) -> Outcome {
    for _ in 0..5 {
        let (peer, _chan, mut stream, _victim) = w.channel()?;
        sleep(Duration::from_millis(pause));
        peer.ep.disconnect()?;
        expect_end(&mut stream, &[], &[libc::ECONNRESET])?;
        drop(peer);
    }
    Ok(())
}

pub const CASES: &[Case] = &[
    whole("handshake/no-hello", |w| no(w, &[])),
    whole("handshake/short-hello", |w| no(w, &hello().encode()[..32])),
    whole("handshake/ones", |w| no(w, &[0xff; 56])),
    whole("handshake/magic", |w| changed(w, 0, b'z')),
    whole("handshake/version-0", |w| changed(w, 4, 0)),
    whole("handshake/version-2", |w| changed(w, 4, 2)),
    whole("handshake/versions-0-to-1", |w| {
        no(w, &with(&[(4, 0), (20, 1)]))
    }),
    whole("handshake/versions-2-to-9", |w| {
        no(w, &speaks(2, 9).encode())
    }),
    whole("handshake/versions-3-to-1", |w| {
        no(w, &with(&[(4, 3), (20, 1)]))
    }),
    whole("handshake/versions-1-to-9", newer),
    whole("handshake/versions-1-to-255", |w| {
        yes(w, &speaks(1, 255).encode())
    }),
    whole("handshake/length-47", |w| changed(w, 5, 47)),
    whole("handshake/length-57", |w| {
        no(w, &[&with(&[(5, 57)])[..], &[0; 8]].concat())
    }),
    whole("handshake/length-56", |w| {
        yes(w, &[&with(&[(5, 56)])[..], &[0xff; 8]].concat())
    }),
    whole("handshake/role-1", |w| changed(w, 6, 1)),
    whole("handshake/role-256", |w| changed(w, 7, 1)),
    whole("handshake/reserved", |w| {
        yes(w, &with(&[(21, 1), (23, 0xff), (40, 1), (47, 0xff)]))
    }),
    whole("handshake/less-small-max", |w| changed(w, 29, 0x0f)),
    whole("handshake/more-small-max", |w| yes(w, &with(&[(29, 0x20)]))),
    whole("handshake/less-chunk-max", |w| changed(w, 34, 3)),
    whole("handshake/more-chunk-max", |w| yes(w, &with(&[(34, 8)]))),
    whole("handshake/credit-0", |w| credit(w, 0)),
    whole("handshake/credit-31", |w| credit(w, 31)),
    whole("handshake/credit-too-much", |w| credit(w, (1 << 20) + 1)),
    whole("handshake/credit-max", |w| credit(w, u32::MAX)),
    whole("handshake/least-credit", |w| {
        yes(
            w,
            &Hello {
                link_credit: 32,
                ..hello()
            }
            .encode(),
        )
    }),
    whole("handshake/most-credit", |w| {
        yes(
            w,
            &Hello {
                link_credit: 1 << 20,
                ..hello()
            }
            .encode(),
        )
    }),
    whole("handshake/features", |w| {
        yes(
            w,
            &Hello {
                features: !proof::FEATURE,
                nonce: 0,
                ..hello()
            }
            .encode(),
        )
    }),
    whole("handshake/proof-without-a-key", |w| {
        no(
            w,
            &Hello {
                features: proof::FEATURE,
                ..hello()
            }
            .encode(),
        )
    }),
    whole("handshake/something-behind-the-hello", |w| {
        yes(w, &[&hello().encode()[..], &[0xff; 8]].concat())
    }),
    whole("handshake/port-511", |w| port(w, 511)),
    whole("handshake/port-1024", |w| port(w, 1024)),
    whole("handshake/port-50000", |w| port(w, 50_000)),
    whole("handshake/nobody-listens", |w| {
        let from = w.source();
        let (_ep, event) = answer(w, from, &hello().encode())?;
        ensure(event.kind == verbs::REJECTED, "not refused")?;
        ensure(!Hello::is_from_zrs(event.data()), "refused with a hello")
    }),
    whole("handshake/resolved-and-gone", |w| {
        let _victim = w.listen()?;
        let from = w.source();
        drop(Endpoint::resolve(from, w.service())?);
        Ok(())
    }),
    whole("handshake/asked-and-gone", |w| {
        let _victim = w.listen()?;
        for _ in 0..5 {
            drop(half_open(w)?);
        }
        Ok(())
    }),
    whole("handshake/up-and-gone", |w| {
        let _victim = w.listen()?;
        for _ in 0..5 {
            drop(w.link()?);
        }
        Ok(())
    }),
    whole("handshake/one-half-open", |w| half_opens(w, 1)),
    whole("handshake/many-half-open", |w| half_opens(w, 20)),
    whole("handshake/claimed-address", claims),
    whole("handshake/flood-beside-another", flood_beside_another),
    whole("handshake/fourth-link", fourth_link),
    whole("handshake/broken-in-silence", broken_in_silence),
    whole("handshake/disconnected-at-once", |w| disconnected(w, 0)),
    whole("handshake/disconnected-later", |w| disconnected(w, 20)),
];
