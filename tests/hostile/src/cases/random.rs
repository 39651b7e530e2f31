// SPDX-License-Identifier: GPL-2.0
//! Random messages, from a seed: whatever comes, the module lives, its other links do not notice,
//! and nothing is left in the end.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zrs::{Listener, Stream};
use zrs_core::wire::{Header, Type, CHUNK_MAX, HEADER_LEN};
use zrs_core::ChanId;

use super::{whole, Case};
use crate::peer::{accept_header, grant_header, Chan, Peer};
use crate::verbs::Op;
use crate::world::{Outcome, World};

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// Mostly small, sometimes at an edge, sometimes anything.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => (1_u64 << self.below(64)).wrapping_sub(1),
            4 => self.next(),
            _ => self.below(5000),
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Programs that accept, read and answer until they are told to stop.
fn serve(listener: &Listener, stop: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut open: Vec<Stream> = Vec::new();
    let mut buf = vec![0; 20_000];
    let mut turn = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                open.push(stream);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e),
        }
        turn += 1;
        let mut i = 0;
        open.retain_mut(|stream| {
            i += 1;
            // Some are read now and then, some are not read for long, some answer.
            match stream.read(&mut buf[..if (turn + i) % 3 == 0 { 20_000 } else { 10 }]) {
                Ok(0) => false,
                Ok(n) if i % 2 == 0 => match stream.write(&buf[..n]) {
                    Ok(_) => true,
                    Err(e) => e.kind() == ErrorKind::WouldBlock,
                },
                Ok(_) => (turn + i) % 50 != 0,
                Err(e) => e.kind() == ErrorKind::WouldBlock,
            }
        });
    }
    Ok(())
}

const TYPES: [Type; 15] = [
    Type::Connect,
    Type::Accept,
    Type::Reject,
    Type::Data,
    Type::Written,
    Type::Fin,
    Type::End,
    Type::Reset,
    Type::Credit,
    Type::WindowRequest,
    Type::WindowGrant,
    Type::WindowRevoke,
    Type::Revoked,
    Type::LinkCredit,
    Type::Heartbeat,
];

fn near(rng: &mut Rng, id: ChanId) -> ChanId {
    match rng.below(6) {
        0 => ChanId {
            index: rng.number() as u32,
            gen: rng.number() as u32,
        },
        1 => ChanId {
            index: id.index.wrapping_add(1),
            gen: id.gen,
        },
        2 => ChanId {
            index: id.index,
            gen: id.gen.wrapping_sub(1),
        },
        3 => ChanId::default(),
        _ => id,
    }
}

/// A message on a channel, as an honest peer would send it next; then perhaps some field changed.
fn message(
    rng: &mut Rng,
    peer: &mut Peer,
    chan: &mut Chan,
    port: u16,
    wild: bool,
) -> (Header, Vec<u8>) {
    let kind = TYPES[rng.below(TYPES.len() as u64) as usize];
    let mut payload = Vec::new();
    let mut h = match kind {
        Type::Connect => peer.connect_header(port),
        Type::Accept => accept_header(chan),
        Type::WindowGrant => grant_header(peer, chan, rng.below(4) as u32),
        Type::LinkCredit | Type::Heartbeat => {
            Header::new(kind, ChanId::default(), ChanId::default())
        }
        Type::Written if chan.window.is_some() => {
            let len = 1 + rng.below(3000) as u32;
            Peer::written_header(chan, len)
        }
        _ => chan.header(kind),
    };
    if kind == Type::Data {
        let most = if rng.percent(20) { 4096 } else { 50 };
        let len = 1 + rng.below(most) as usize;
        payload = rng.bytes(len);
        h.len = payload.len() as u32;
    }
    if matches!(kind, Type::WindowRevoke | Type::Revoked) {
        (h.lease, h.arg0) = (rng.below(4) as u32, rng.below(4) as u32);
    }
    if wild {
        for _ in 0..1 + rng.below(3) {
            match rng.below(15) {
                0 => h.len = rng.number() as u32 % (2 * CHUNK_MAX),
                1 => h.dst = near(rng, h.dst),
                2 => h.src = near(rng, h.src),
                3 => h.pos = rng.number(),
                4 => h.woff = rng.number(),
                5 => h.credit.window = rng.number(),
                6 => h.credit.small = rng.number(),
                7 => h.credit.msgs = rng.number() as u32,
                8 => h.arg0 = rng.number() as u32,
                9 => h.arg1 = rng.number() as u32,
                10 => h.arg2 = rng.number(),
                11 => h.lease = rng.number() as u32,
                12 => payload.truncate(rng.below(40) as usize),
                13 => payload.resize(rng.below(4097) as usize, 7),
                _ => h.pos = h.pos.wrapping_add(rng.below(3)).wrapping_sub(1),
            }
        }
    } else {
        // So that the next message fits.
        match kind {
            Type::Data => chan.tx_pos += u64::from(h.len),
            Type::Written => {
                if let Some(window) = &mut chan.window {
                    window.written += u64::from(h.len);
                    chan.tx_pos += u64::from(h.len);
                }
            }
            _ => {}
        }
    }
    (h, payload)
}

/// An RDMA request that may be allowed.
fn rdma(rng: &mut Rng, peer: &mut Peer, chan: &Chan) -> Outcome {
    let ops = [
        Op::Write,
        Op::WriteImm,
        Op::Read,
        Op::CompareSwap,
        Op::FetchAdd,
        Op::SendInv,
        Op::SendImm,
    ];
    let op = if rng.percent(60) {
        Op::Write
    } else {
        ops[rng.below(7) as usize]
    };
    let (mut addr, mut key) = chan
        .window
        .map_or((0, 0), |w| (w.addr + w.written % u64::from(w.size), w.key));
    if rng.percent(15) {
        addr = addr.wrapping_add(rng.number());
    }
    if rng.percent(10) {
        key ^= rng.number() as u32;
    }
    let len = match op {
        Op::CompareSwap | Op::FetchAdd | Op::Read => 8,
        _ => rng.below(4000) as usize,
    };
    let bytes = rng.bytes(len);
    peer.post(op, &bytes, addr, key)
}

/// A link's life, until either side closes it.
fn life(w: &mut World, rng: &mut Rng, port: u16, end: Instant) -> io::Result<u64> {
    let mut peer = w.link()?;
    let mut chans: Vec<Chan> = Vec::new();
    let mut count = 0;
    while Instant::now() < end && !peer.is_closed() && count < 400 {
        count += 1;
        if chans.is_empty() || rng.percent(5) && chans.len() < 6 {
            match peer.open(port, w.limit(5)) {
                Ok(chan) => chans.push(chan),
                Err(_) => continue,
            }
            if rng.percent(60) {
                let last = chans.last_mut().expect("just opened");
                let _ = peer.get_window(last, w.limit(5));
            }
            continue;
        }
        let i = rng.below(chans.len() as u64) as usize;
        let chan = &mut chans[i];
        let sent = match rng.below(100) {
            0 => {
                let len = rng.below(5000) as usize;
                let bytes = rng.bytes(len);
                peer.send_as_is(&bytes, &[])
            }
            1..4 => {
                // A valid header with one byte changed.
                let (h, payload) = message(rng, &mut peer, chan, port, false);
                let mut bytes = h.encode();
                bytes[rng.below(HEADER_LEN as u64) as usize] ^= 1 << rng.below(8);
                peer.send_as_is(&bytes, &payload)
            }
            4..8 => rdma(rng, &mut peer, chan),
            n => {
                let (h, payload) = message(rng, &mut peer, chan, port, n < 40);
                peer.send(h, &payload)
            }
        };
        if sent.is_err() {
            break;
        }
        while peer.has_message().unwrap_or(false) {
            let _ = peer.recv(Duration::ZERO);
        }
    }
    match rng.below(3) {
        0 => drop(peer.ep.disconnect()),
        1 => drop(peer.ep.break_off()),
        _ => {}
    }
    Ok(count)
}

fn random(w: &mut World) -> Outcome {
    let victim = w.listen()?;
    let stop = AtomicBool::new(false);
    let mut rng = Rng(w.seed);
    let end = Instant::now() + Duration::from_secs(w.seconds);
    let (mut lives, mut messages) = (0, 0);
    let before = w.stats()?;
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&victim.listener, &stop));
        let mut result = Ok(());
        while result.is_ok() && Instant::now() < end {
            result = life(w, &mut rng, victim.port, end).map(|n| {
                lives += 1;
                messages += n;
            });
        }
        stop.store(true, Ordering::Relaxed);
        let served = server
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e));
        result.and(served)
    })?;
    let violations = w.stats()?.protocol_errors - before.protocol_errors;
    println!("# {lives} links, {messages} steps, {violations} violations");
    Ok(())
}

pub const CASES: &[Case] = &[whole("random/messages", random)];
