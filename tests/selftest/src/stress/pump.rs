// SPDX-License-Identifier: GPL-2.0
//! Moves one direction of a connection, or both, in one of many ways, and verifies it.

use std::os::fd::OwnedFd;
use std::thread;

use super::actor::Actor;
use super::table::{Count, Op};
use crate::support::checks::say;
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::raw::{self, Errno, Result};

/// The data that one side sends.
#[derive(Clone, Copy)]
pub struct Half {
    pub pattern: Pattern,
    pub len: u64,
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// The stream ended in good order, too early.
    Cut,
    /// An error of the connection, or a wrong byte.
    Broken,
}

impl End {
    fn and(self, other: Self) -> Self {
        if self == Self::Done {
            other
        } else {
            self
        }
    }
}

/// The size of a piece of the rest, from 1 byte to all.
fn piece(rng: &mut Rng, left: u64) -> usize {
    let most = match rng.below(6) {
        0 => 100,
        1 => 4096,
        2 => 20_000,
        _ => 300_000,
    };
    (1 + rng.below(most) as u64).min(left) as usize
}

/// Waits by poll() or by epoll.
fn wait(actor: &mut Actor<'_>, fd: &OwnedFd, events: i16) -> Result<()> {
    if actor.rng.one_in(2) {
        actor.call(Op::Poll, || raw::poll(fd, events, -1)).map(drop)
    } else {
        let epoll = raw::epoll()?;
        actor.call(Op::Epoll, || {
            raw::epoll_ctl(&epoll, libc::EPOLL_CTL_ADD, fd, events.into())?;
            raw::epoll_wait(&epoll, -1)
        })?;
        Ok(())
    }
}

pub fn send(actor: &mut Actor<'_>, fd: &OwnedFd, half: Half) -> End {
    let nonblock = actor.rng.one_in(3);
    let flags = if nonblock { libc::MSG_DONTWAIT } else { 0 } | libc::MSG_NOSIGNAL;
    let (mut sent, mut data) = (0, Vec::new());
    while sent < half.len {
        data.resize(piece(&mut actor.rng, half.len - sent), 0);
        half.pattern.fill(sent, &mut data);
        let more = if actor.rng.one_in(4) {
            libc::MSG_MORE
        } else {
            0
        };
        match actor.call(Op::Send, || raw::send(fd, &data, flags | more)) {
            Ok(n) => sent += n as u64,
            Err(Errno(libc::EAGAIN)) => {
                if wait(actor, fd, libc::POLLOUT).is_err() {
                    return End::Broken;
                }
            }
            Err(_) => return End::Broken,
        }
    }
    actor.count(Count::Bytes, sent);
    End::Done
}

pub fn receive(actor: &mut Actor<'_>, fd: &OwnedFd, half: Half) -> End {
    let mut verifier = Verifier::new(half.pattern);
    let end = if raw::is_zrs() && actor.rng.one_in(3) {
        by_ring(actor, fd, &mut verifier, half.len)
    } else {
        by_recv(actor, fd, &mut verifier, half.len)
    };
    if let Some(at) = verifier.wrong {
        say(&format!("# byte {at} of {} is wrong", half.len));
        actor.count(Count::Wrong, 1);
        return End::Broken;
    }
    end
}

fn by_recv(actor: &mut Actor<'_>, fd: &OwnedFd, verifier: &mut Verifier, len: u64) -> End {
    let mut buf = Vec::new();
    while verifier.pos < len {
        buf.resize(piece(&mut actor.rng, len - verifier.pos), 0);
        let flags = match actor.rng.below(8) {
            0 => libc::MSG_PEEK,
            1 => libc::MSG_WAITALL,
            2 | 3 => libc::MSG_DONTWAIT,
            _ => 0,
        };
        match actor.call(Op::Recv, || raw::recv(fd, &mut buf, flags)) {
            Ok(0) => return End::Cut,
            Ok(n) if flags == libc::MSG_PEEK => {
                let mut peeked = Verifier::new(verifier.pattern());
                peeked.pos = verifier.pos;
                let _ = peeked.take(&buf[..n]);
                verifier.wrong = verifier.wrong.or(peeked.wrong);
            }
            Ok(n) => drop(verifier.take(&buf[..n])),
            Err(Errno(libc::EAGAIN)) => {
                if wait(actor, fd, libc::POLLIN).is_err() {
                    return End::Broken;
                }
            }
            Err(_) => return End::Broken,
        }
        if verifier.wrong.is_some() {
            return End::Broken;
        }
    }
    End::Done
}

fn by_ring(actor: &mut Actor<'_>, fd: &OwnedFd, verifier: &mut Verifier, len: u64) -> End {
    let ring = actor.call(Op::Ring, || {
        let fd = fd.try_clone()?;
        zrs::Stream::from(fd).rx_ring().map_err(Errno::from)
    });
    let Ok(ring) = ring else {
        return by_recv(actor, fd, verifier, len);
    };
    let end = through_ring(actor, &ring, verifier, len);
    actor.rings.push(ring);
    end
}

fn through_ring(
    actor: &mut Actor<'_>,
    ring: &zrs::RxRing,
    verifier: &mut Verifier,
    len: u64,
) -> End {
    let mut kept: Vec<zrs::Segment> = Vec::new();
    while verifier.pos < len {
        match actor.call(Op::RingRecv, || ring.recv().map_err(Errno::from)) {
            Ok(None) => return End::Cut,
            Ok(Some(segment)) => {
                let _ = verifier.take(&segment.to_vec());
                actor.count(Count::RingBytes, segment.len() as u64);
                // Given back in another order, some together; a reader that keeps most of the
                // window stops its peer.
                let more = kept.iter().map(|s| s.len()).sum::<usize>() + segment.len();
                let most = ring.window_len() / 2;
                if actor.rng.one_in(2) && kept.len() < 3 && more <= most {
                    kept.push(segment);
                } else {
                    drop(segment);
                    kept.clear();
                }
            }
            Err(_) => return End::Broken,
        }
        if verifier.wrong.is_some() {
            return End::Broken;
        }
    }
    End::Done
}

/// Sends and receives at once, by a thread more or by waiting for both.
pub fn both(actor: &mut Actor<'_>, fd: &OwnedFd, out: Half, inp: Half) -> End {
    if actor.rng.one_in(2) {
        return thread::scope(|s| {
            let mut other = actor.helper();
            let sender = s.spawn(move || send(&mut other, fd, out));
            let received = receive(actor, fd, inp);
            received.and(sender.join().unwrap_or(End::Broken))
        });
    }
    let mut verifier = Verifier::new(inp.pattern);
    let (mut sent, mut data) = (0, Vec::new());
    while sent < out.len || verifier.pos < inp.len {
        let mut events = 0;
        if sent < out.len {
            events |= libc::POLLOUT;
        }
        if verifier.pos < inp.len {
            events |= libc::POLLIN;
        }
        let Ok(ready) = actor.call(Op::Poll, || raw::poll(fd, events, -1)) else {
            return End::Broken;
        };
        if verifier.pos < inp.len && ready & !libc::POLLOUT != 0 {
            data.resize(piece(&mut actor.rng, inp.len - verifier.pos), 0);
            match actor.call(Op::Recv, || raw::recv(fd, &mut data, libc::MSG_DONTWAIT)) {
                Ok(0) => return End::Cut,
                Ok(n) => drop(verifier.take(&data[..n])),
                Err(Errno(libc::EAGAIN)) => {}
                Err(_) => return End::Broken,
            }
        }
        if sent < out.len && ready & !libc::POLLIN != 0 {
            data.resize(piece(&mut actor.rng, out.len - sent), 0);
            out.pattern.fill(sent, &mut data);
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            match actor.call(Op::Send, || raw::send(fd, &data, flags)) {
                Ok(n) => sent += n as u64,
                Err(Errno(libc::EAGAIN)) => {}
                Err(_) => return End::Broken,
            }
        }
    }
    actor.count(Count::Bytes, sent);
    match verifier.wrong {
        None => End::Done,
        Some(at) => {
            say(&format!("# byte {at} of {} is wrong", inp.len));
            actor.count(Count::Wrong, 1);
            End::Broken
        }
    }
}
