// SPDX-License-Identifier: GPL-2.0
//! Requests for links from many addresses: half made in numbers, and more than there are blocks for.
//! Our host has the addresses of a second network (`tests/selftests/hostile/crowd.sh`).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use zrs_core::wire::Role;

use super::{ensure, slow, Case};
use crate::mem_peer::Victim;
use crate::peer::{hello, said, Peer};
use crate::verbs;
use crate::world::{Outcome, World, SERVICE};

/// Addresses of the second network that ask for links.
const ADDRESSES: u32 = 24;
/// Addresses that ask for memory links: with two links each, more than may be half made.
const MEMORY_ADDRESSES: u32 = 40;

/// Requests that find no blocks.
const REFUSED: u32 = 6;

/// Address `n` of the second network.
fn second(w: &World, n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits((w.local.to_bits() & 0xffff_ff00) + 256 + n)
}

/// The address number `n` of the hosts that ask for stream links.
fn stranger(w: &World, n: u32) -> Ipv4Addr {
    second(w, 1 + n % ADDRESSES)
}

/// A link from `ip`; `ErrorKind::ConnectionRefused` if it is refused.
fn link_from(w: &mut World, ip: Ipv4Addr) -> io::Result<Peer> {
    let from = SocketAddrV4::new(ip, w.source().port());
    Peer::connect(from, w.service(), hello(), true, w.limit(10))
}

/// Requests from all addresses of a network, which are not gone on with, again before each try of a
/// link from another network: that finds room.
fn half_made(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    // The links of the case before may still have their blocks.
    let end = Instant::now() + w.limit(20);
    let mut asked = VecDeque::new();
    let mut peer = loop {
        for n in 0..ADDRESSES {
            let from = SocketAddrV4::new(stranger(w, n), w.source().port());
            asked.push_back(Peer::ask(from, w.service(), &hello().encode(), 0)?);
        }
        match link_from(w, w.other) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                // Their links have long been refused or ended.
                let old = asked.len().saturating_sub(3 * ADDRESSES as usize);
                asked.drain(..old);
            }
            result => break result?,
        }
    };
    peer.open(victim.port, w.limit(10))?;
    let bystander = w.bystander.as_ref();
    bystander.map_or(Ok(()), |b| b.goes_on(w.limit(10), 2))?;
    peer.alive(w.limit(10))
}

/// Links in use from many addresses take all blocks: further requests are refused before anything is
/// made for them.
fn refused_early(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let mut peers = Vec::new();
    for n in 0..ADDRESSES {
        match link_from(w, stranger(w, n)) {
            Ok(mut peer) => {
                peer.open(victim.port, w.limit(10))?;
                peers.push(peer);
            }
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => break,
            Err(e) => return Err(e),
        }
    }
    ensure(peers.len() > 2, "not even three links")?;
    let before = w.stats()?.resources_made;
    let up = peers.len() as u32;
    for n in up..up + REFUSED {
        let refused = link_from(w, stranger(w, n)).err();
        let refused = refused.is_some_and(|e| e.kind() == ErrorKind::ConnectionRefused);
        ensure(refused, "another link, where none has room")?;
    }
    let made = w.stats()?.resources_made - before;
    ensure(
        made == 0,
        &format!("{made} resources made for refused links"),
    )?;
    for mut peer in peers {
        peer.alive(w.limit(10))?;
    }
    Ok(())
}

/// Links without channels have all blocks but those that are kept for one more link. Requests that are
/// not gone on with take these blocks, and end no link that is up.
fn unused_stay(w: &mut World) -> Outcome {
    let _victim = w.listen()?;
    let mut peers = Vec::new();
    for n in 0..ADDRESSES {
        match link_from(w, stranger(w, n)) {
            Ok(peer) => peers.push(peer),
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => break,
            Err(e) => return Err(e),
        }
    }
    // The one that has been unused for longest ends, so that there is room for another one: after
    // five seconds, and again for the next one.
    let limit = w.limit(2);
    let kept = |peers: &mut Vec<Peer>| peers.retain_mut(|p| p.alive(limit).is_ok());
    let end = Instant::now() + w.limit(20);
    let mut room = loop {
        thread::sleep(Duration::from_millis(300));
        match link_from(w, w.other) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {}
            result => break result?,
        }
    };
    thread::sleep(Duration::from_secs(8));
    kept(&mut peers);
    let up = peers.len();
    ensure(up >= 2, "not even two links stay")?;
    // Longer than unused links stay where there is no room.
    let mut asked = Vec::new();
    for round in 0..16 {
        for n in 0..ADDRESSES {
            let from = SocketAddrV4::new(stranger(w, round + n), w.source().port());
            asked.push(Peer::ask(from, w.service(), &hello().encode(), 0)?);
        }
        thread::sleep(Duration::from_millis(500));
    }
    kept(&mut peers);
    let what = format!("{} of {up} links have ended for requests", up - peers.len());
    ensure(peers.len() == up, &what)?;
    room.alive(w.limit(10))
}

/// As [`half_made`], for memory links, of which 64 may be half made.
fn half_made_for_memory(w: &mut World) -> Outcome {
    let _node = Victim::new(w, 1 << 20)?;
    let to = SocketAddrV4::new(w.victim, SERVICE + 1);
    let data = hello().encode_for(Role::Memory);
    let end = Instant::now() + w.limit(20);
    let mut asked = VecDeque::new();
    loop {
        for n in 0..2 * MEMORY_ADDRESSES {
            let ip = second(w, 1 + n % MEMORY_ADDRESSES);
            let from = SocketAddrV4::new(ip, w.source().port());
            asked.push_back(Peer::ask(from, to, &data, 0)?);
        }
        let from = SocketAddrV4::new(w.other, w.source().port());
        let peer = Peer::ask(from, to, &data, 16)?;
        match peer.event(w.limit(10))? {
            Some(event) if event.kind == verbs::ESTABLISHED => return Ok(()),
            Some(event) if event.kind == verbs::REJECTED && Instant::now() < end => {
                let old = asked.len().saturating_sub(6 * MEMORY_ADDRESSES as usize);
                asked.drain(..old);
            }
            Some(event) => return Err(said(&format!("event {}", event.kind))),
            None => return Err(ErrorKind::TimedOut.into()),
        }
    }
}

pub const CASES: &[Case] = &[
    slow("named/crowd-memory", half_made_for_memory),
    slow("named/crowd-unused-stay", unused_stay),
    slow("named/crowd-refused-early", refused_early),
    slow("named/crowd-half-made", half_made),
];
