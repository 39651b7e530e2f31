// SPDX-License-Identifier: GPL-2.0
//! A connection's whole life, on a separate link, while something fails somewhere: it succeeds, or
//! both sides get a documented errno, in time.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use zrs_sys::abi::ZRS_CARRIER_ZRS;

use super::errnos;
use super::knobs::{self, Knob};
use super::pair::{Lane, Pair, World};
use crate::support::raw::{self, Errno};

/// The sizes sent by each call, each way.
const SIZES: [&[usize]; 2] = [&[100, 5000, 20_000, 300_000], &[100, 70_000]];

/// How one end fared.
#[derive(Debug)]
struct Fate {
    /// Why it has no receive ring, if it wanted one.
    ring: Option<Errno>,
    sent: u64,
    /// The error that ended sending.
    send: Option<Errno>,
    got: u64,
    /// The error that ended receiving; none: the end of the stream.
    recv: Option<Errno>,
}

type Outcome<T> = Result<T, String>;

/// Sends this end's bytes and receives the other's, in the order of `first`: 0 sends first.
fn live(fd: &OwnedFd, end: usize) -> Outcome<Fate> {
    let mut fate = Fate {
        ring: None,
        sent: 0,
        send: None,
        got: 0,
        recv: None,
    };
    if end == 0 {
        // TCP has none.
        if by_zrs(fd) {
            fate.ring = raw::make_ring(fd).err();
        }
        talk(fd, end, &mut fate)?;
        hear(fd, end, &mut fate)?;
    } else {
        hear(fd, end, &mut fate)?;
        talk(fd, end, &mut fate)?;
    }
    Ok(fate)
}

/// Whether ZRS carries it.
fn by_zrs(fd: &OwnedFd) -> bool {
    zrs_sys::sock::info(fd.as_fd()).is_ok_and(|info| info.carriers == ZRS_CARRIER_ZRS)
}

fn talk(fd: &OwnedFd, end: usize, fate: &mut Fate) -> Outcome<()> {
    let mut lane = Lane::new(end as u64);
    'all: for &size in SIZES[end] {
        let bytes = lane.next(size);
        let mut done = 0;
        while done < size {
            match raw::send(fd, &bytes[done..], libc::MSG_NOSIGNAL) {
                Ok(n) => {
                    done += n;
                    lane.sent += n as u64;
                }
                // The fault hit this very call; nothing of it was sent.
                Err(Errno(libc::ENOMEM)) if fate.send.is_none() => {
                    fate.send = Some(Errno(libc::ENOMEM));
                }
                Err(e) => {
                    fate.send = Some(e);
                    break 'all;
                }
            }
        }
    }
    fate.sent = lane.sent;
    match raw::shutdown(fd, libc::SHUT_WR) {
        // As over TCP: the connection has failed.
        Ok(()) | Err(Errno(libc::ENOTCONN)) => Ok(()),
        Err(e) => Err(format!("shutdown: {e}")),
    }
}

fn hear(fd: &OwnedFd, end: usize, fate: &mut Fate) -> Outcome<()> {
    let mut lane = Lane::new(1 - end as u64);
    lane.sent = SIZES[1 - end].iter().map(|&n| n as u64).sum();
    let mut buf = vec![0; 64 << 10];
    loop {
        match raw::recv(fd, &mut buf, 0) {
            Ok(0) => break,
            Ok(n) => lane.take(&buf[..n])?,
            Err(e) => {
                fate.recv = Some(e);
                break;
            }
        }
    }
    fate.got = lane.got;
    Ok(())
}

/// A session with `knob` armed for its `nth` use, and then the end of its link. Whether that
/// struck, and the errors that programs saw, as "connect ENOMEM".
pub fn run(world: &World, knob: &Knob, nth: u32) -> Outcome<(bool, Vec<String>)> {
    let io = |e: std::io::Error| e.to_string();
    let points = knobs::points().map_err(io)?;
    let post = points.iter().find(|p| p.name == "fail_post");
    let post = post.ok_or("there is no fail_post")?;
    end_links(world, post)?;
    if world.beside {
        // A link that was lost in the last session says that the host has no ZRS.
        world.meet().map_err(|e| format!("meet: {e}"))?;
        end_links(world, post)?;
    }
    let begin = Instant::now();
    knob.arm(nth).map_err(io)?;
    let result = session(world);
    if begin.elapsed() > 4 * world.limit() {
        return Err(format!("took {:?}", begin.elapsed()));
    }
    let struck = if knob.name == post.name {
        let struck = knob.disarm().map_err(io)?;
        end_links(world, post)?;
        struck
    } else {
        end_links(world, post)?;
        knob.disarm().map_err(io)?
    };
    let seen = result?;
    if !struck && !seen.is_empty() {
        return Err(format!("{seen:?} without a fault"));
    }
    Ok((struck, seen))
}

/// Listens, connects, transfers, closes; the errors that programs saw.
fn session(world: &World) -> Outcome<Vec<String>> {
    let mut seen = Vec::new();
    let documented = |call: &str, e: Errno, list: &[i32], seen: &mut Vec<String>| {
        seen.push(format!("{call} {e}"));
        if list.contains(&e.0) {
            Ok(())
        } else {
            Err(format!("{call}: {e} is not documented"))
        }
    };
    // A listener, at the second attempt at the latest.
    let listener = match world.listener() {
        Ok(listener) => listener,
        Err(e) => {
            documented("listen", e, errnos::LISTEN, &mut seen)?;
            world
                .listener()
                .map_err(|e| format!("listen, once more: {e}"))?
        }
    };
    let client = match world.client() {
        Ok(client) => client,
        Err(e) => {
            documented("socket", e, errnos::SOCKET, &mut seen)?;
            return Ok(seen);
        }
    };
    let fates = std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(world, &listener));
        let client = connect(world, client, &listener);
        (client, server.join())
    });
    let server = fates.1.map_err(|_| "the server's thread died")??;
    match fates.0? {
        Err(e) => {
            documented("connect", e, errnos::CONNECT_BROKEN, &mut seen)?;
            if let Some(fate) = server {
                // It was open on the other side; there it ended without a byte.
                if fate.got != 0 || fate.recv.is_some_and(|e| e.0 != libc::ECONNRESET) {
                    return Err(format!("connect: {e}, and the server has {fate:?}"));
                }
            }
        }
        Ok(client) => {
            let server = server.ok_or("connected, but nothing to accept")?;
            for (end, fate, other) in [(0, &client, &server), (1, &server, &client)] {
                if let Some(e) = fate.ring {
                    documented("ring", e, errnos::RING, &mut seen)?;
                }
                if let Some(e) = fate.send {
                    documented("send", e, errnos::SEND_BROKEN, &mut seen)?;
                }
                if let Some(e) = fate.recv {
                    documented("recv", e, errnos::RECV_BROKEN, &mut seen)?;
                }
                if fate.recv.is_none() && fate.got != other.sent {
                    return Err(format!(
                        "a whole stream of {} bytes, of {other:?}",
                        fate.got
                    ));
                }
                let all: u64 = SIZES[end].iter().map(|&n| n as u64).sum();
                if fate.send.is_none() && fate.sent != all {
                    return Err(format!("sent {fate:?} without an error"));
                }
            }
        }
    }
    Ok(seen)
}

/// The server's end: `None` if no connection came. One that broke before its first byte may be
/// followed by another: a connect() is repeated once if its link goes down.
fn serve(world: &World, listener: &(OwnedFd, SocketAddrV4)) -> Outcome<Option<Fate>> {
    let mut last = None;
    loop {
        match world.accept(&listener.0) {
            Ok(fd) => {
                let fate = live(&fd, 1)?;
                let whole = fate.got > 0 || fate.recv.is_none();
                last = Some(fate);
                if whole {
                    return Ok(last);
                }
            }
            // The client is done, see `connect`.
            Err(Errno(libc::EINVAL)) => return Ok(last),
            Err(Errno(libc::ENOMEM)) => {}
            Err(e) => return Err(format!("accept: {e}")),
        }
    }
}

/// The client's end, or why it could not connect.
fn connect(
    world: &World,
    client: OwnedFd,
    listener: &(OwnedFd, SocketAddrV4),
) -> Outcome<Result<Fate, Errno>> {
    let result = match raw::connect(&client, listener.1) {
        Ok(()) => Ok(live(&client, 0)?),
        Err(e) => Err(e),
    };
    // The server stops waiting. It gets the connections in its queue before that.
    let end = Instant::now() + world.limit();
    while Instant::now() < end {
        match raw::poll(&listener.0, libc::POLLIN, 0) {
            Ok(0) => break,
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    raw::shutdown(&listener.0, libc::SHUT_RDWR).map_err(|e| format!("shutdown: {e}"))?;
    Ok(result)
}

/// Ends all links, so that the next connection has to make one: a message that cannot be posted
/// ends its link.
pub fn end_links(world: &World, post: &Knob) -> Outcome<()> {
    let io = |e: std::io::Error| e.to_string();
    world.wait("sockets are left", |s| s.sockets == 0)?;
    for _ in 0..8 {
        if world.stats()?.links == 0 {
            return Ok(());
        }
        // The fault of a session may strike here, too.
        let Ok(listener) = world.listener() else {
            continue;
        };
        let Ok(pair) = Pair::new(world, &listener) else {
            continue;
        };
        post.arm(1).map_err(io)?;
        drop(pair);
        drop(listener);
        post.disarm().map_err(io)?;
        world.wait("links are left", |s| s.links == 0)?;
    }
    Err("the links do not end".into())
}
