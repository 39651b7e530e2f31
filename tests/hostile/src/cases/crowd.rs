// SPDX-License-Identifier: GPL-2.0
//! Requests for links from many addresses: half made in numbers, and more than there are blocks for.
//! Our host has the addresses of a second network (`tests/selftests/hostile/crowd.sh`).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use super::{ensure, slow, Case};
use crate::peer::{hello, Peer};
use crate::world::{Outcome, World};

/// Addresses of the second network.
const ADDRESSES: u32 = 24;

/// Requests that find no blocks.
const REFUSED: u32 = 6;

/// Address number `n` of the second network.
fn stranger(w: &World, n: u32) -> Ipv4Addr {
    let net = (w.local.to_bits() & 0xffff_ff00) + 256;
    Ipv4Addr::from_bits(net + 1 + n % ADDRESSES)
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

pub const CASES: &[Case] = &[
    slow("named/crowd-refused-early", refused_early),
    slow("named/crowd-half-made", half_made),
];
