// SPDX-License-Identifier: GPL-2.0
//! The connection manager's events, one after the other: the effect of each on the link that gets
//! it of it, and to the programs with connections on it, or that wait for one.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use libc::*;
use zrs_sys::abi::*;

use super::pair::{Pair, World};
use super::{beside, knobs};
use crate::support::checks::Checks;
use crate::support::process;
use crate::support::raw::{self, Errno};

/// `enum rdma_cm_event_type`.
const ADDR_RESOLVED: u32 = 0;
const ADDR_ERROR: u32 = 1;
const ROUTE_RESOLVED: u32 = 2;
const ROUTE_ERROR: u32 = 3;
const CONNECT_REQUEST: u32 = 4;
const CONNECT_RESPONSE: u32 = 5;
const CONNECT_ERROR: u32 = 6;
const UNREACHABLE: u32 = 7;
const REJECTED: u32 = 8;
const ESTABLISHED: u32 = 9;
const DISCONNECTED: u32 = 10;
const DEVICE_REMOVAL: u32 = 11;
const MULTICAST_JOIN: u32 = 12;
const MULTICAST_ERROR: u32 = 13;
const ADDR_CHANGE: u32 = 14;
const TIMEWAIT_EXIT: u32 = 15;
const ADDRINFO_RESOLVED: u32 = 16;
const ADDRINFO_ERROR: u32 = 17;
/// An event number that no kernel has.
const UNKNOWN: u32 = 99;

/// Statuses of REJECTED, `enum ib_cm_rej_reason`.
const NO_RESOURCES: i32 = 3;
const INVALID_SERVICE_ID: i32 = 8;
const STALE_CONN: i32 = 10;
const CONSUMER_DEFINED: i32 = 28;

/// Instead of the event `.0` a link that is being made is told of `.1` with status `.2`, `.3`
/// times: connect() says `.4`, 0 for success.
type Making = (u32, u32, i32, u32, c_int);

const MAKING: &[Making] = &[
    (ADDR_RESOLVED, ADDR_ERROR, -EHOSTUNREACH, 1, EHOSTUNREACH),
    (ADDR_RESOLVED, ADDR_ERROR, -ENETUNREACH, 1, ENETUNREACH),
    (ADDR_RESOLVED, ADDR_ERROR, -ENODEV, 1, ENODEV),
    (ADDR_RESOLVED, ADDR_ERROR, -EIO, 1, EHOSTUNREACH),
    (ROUTE_RESOLVED, ROUTE_ERROR, -ETIMEDOUT, 1, ETIMEDOUT),
    (ROUTE_RESOLVED, ROUTE_ERROR, -EHOSTUNREACH, 1, EHOSTUNREACH),
    (ROUTE_RESOLVED, ROUTE_ERROR, -EINVAL, 1, EHOSTUNREACH),
    // Without a link on the other side, as with a peer that says no.
    (ROUTE_RESOLVED, CONNECT_ERROR, -EINVAL, 1, EHOSTUNREACH),
    (ROUTE_RESOLVED, UNREACHABLE, -ETIMEDOUT, 1, EHOSTUNREACH),
    (
        ROUTE_RESOLVED,
        REJECTED,
        INVALID_SERVICE_ID,
        1,
        ECONNREFUSED,
    ),
    (ROUTE_RESOLVED, REJECTED, CONSUMER_DEFINED, 1, ECONNREFUSED),
    (ROUTE_RESOLVED, REJECTED, NO_RESOURCES, 1, EHOSTUNREACH),
    (ROUTE_RESOLVED, REJECTED, STALE_CONN, 1, 0),
    (ROUTE_RESOLVED, REJECTED, STALE_CONN, 4, 0),
    (ROUTE_RESOLVED, REJECTED, STALE_CONN, 5, ECONNRESET),
    (ROUTE_RESOLVED, ADDR_CHANGE, 0, 1, 0),
    (ROUTE_RESOLVED, ADDR_CHANGE, 0, 5, ECONNRESET),
    (ROUTE_RESOLVED, DEVICE_REMOVAL, 0, 1, ENODEV),
    (ROUTE_RESOLVED, UNKNOWN, 0, 1, EPROTO),
    // With one, and with queues on this side.
    (ESTABLISHED, CONNECT_ERROR, -ECONNRESET, 1, EHOSTUNREACH),
    (ESTABLISHED, UNREACHABLE, -ETIMEDOUT, 1, EHOSTUNREACH),
    (ESTABLISHED, REJECTED, INVALID_SERVICE_ID, 1, ECONNREFUSED),
    // The event has the peer's hello: it is of our version, and has no room.
    (ESTABLISHED, REJECTED, CONSUMER_DEFINED, 1, ENOMEM),
    (ESTABLISHED, REJECTED, STALE_CONN, 1, 0),
    (ESTABLISHED, DISCONNECTED, 0, 1, ECONNRESET),
    (ESTABLISHED, ADDR_CHANGE, 0, 1, 0),
    (ESTABLISHED, DEVICE_REMOVAL, 0, 1, ENODEV),
    (ESTABLISHED, CONNECT_REQUEST, 0, 1, EPROTO),
    (ESTABLISHED, CONNECT_RESPONSE, 0, 1, EPROTO),
    (ESTABLISHED, MULTICAST_JOIN, 0, 1, EPROTO),
    (ESTABLISHED, MULTICAST_ERROR, -EINVAL, 1, EPROTO),
    (ESTABLISHED, ADDRINFO_RESOLVED, 0, 1, EPROTO),
    (ESTABLISHED, ADDRINFO_ERROR, -EINVAL, 1, EPROTO),
    (ESTABLISHED, UNKNOWN, 0, 1, EPROTO),
    // Out of order: the requested step cannot be done.
    (ESTABLISHED, ADDR_RESOLVED, 0, 1, EHOSTUNREACH),
    (ESTABLISHED, ROUTE_RESOLVED, 0, 1, EHOSTUNREACH),
];

/// Events, with their status, that end a link which waits to be up on the side that accepts.
const ACCEPTING: &[(u32, i32)] = &[
    (CONNECT_ERROR, -ECONNRESET),
    (UNREACHABLE, -ETIMEDOUT),
    (REJECTED, INVALID_SERVICE_ID),
    (REJECTED, STALE_CONN),
    (DISCONNECTED, 0),
    (ADDR_CHANGE, 0),
    (DEVICE_REMOVAL, 0),
    (CONNECT_RESPONSE, 0),
    (MULTICAST_JOIN, 0),
    (UNKNOWN, 0),
];

/// Events, with their status, that end a link which is up.
const UP: &[(u32, i32)] = &[
    (DISCONNECTED, 0),
    (ADDR_CHANGE, 0),
    (DEVICE_REMOVAL, 0),
    (ADDR_RESOLVED, 0),
    (ADDR_ERROR, -ETIMEDOUT),
    (ADDR_ERROR, -EHOSTUNREACH),
    (ROUTE_RESOLVED, 0),
    (ROUTE_ERROR, -EHOSTUNREACH),
    (CONNECT_REQUEST, 0),
    (CONNECT_RESPONSE, 0),
    (CONNECT_ERROR, -ECONNRESET),
    (REJECTED, INVALID_SERVICE_ID),
    (REJECTED, STALE_CONN),
    (MULTICAST_JOIN, 0),
    (MULTICAST_ERROR, -EINVAL),
    (ADDRINFO_RESOLVED, 0),
    (ADDRINFO_ERROR, -EINVAL),
    (UNKNOWN, -EINVAL),
];

/// Events, with their status, that change nothing of a link which is up. UNREACHABLE comes where the
/// peer's last message of the handshake was lost; the link's own messages have made it up by then.
const NOTHING: &[(u32, i32)] = &[
    (ESTABLISHED, 0),
    (TIMEWAIT_EXIT, 0),
    (UNREACHABLE, -ETIMEDOUT),
];

type Outcome<T = ()> = Result<T, String>;
type Listener = (OwnedFd, SocketAddrV4);

fn name(event: u32, status: i32) -> String {
    const NAMES: [&str; 18] = [
        "ADDR_RESOLVED",
        "ADDR_ERROR",
        "ROUTE_RESOLVED",
        "ROUTE_ERROR",
        "CONNECT_REQUEST",
        "CONNECT_RESPONSE",
        "CONNECT_ERROR",
        "UNREACHABLE",
        "REJECTED",
        "ESTABLISHED",
        "DISCONNECTED",
        "DEVICE_REMOVAL",
        "MULTICAST_JOIN",
        "MULTICAST_ERROR",
        "ADDR_CHANGE",
        "TIMEWAIT_EXIT",
        "ADDRINFO_RESOLVED",
        "ADDRINFO_ERROR",
    ];
    let name = NAMES.get(event as usize);
    let name = name.map_or_else(|| format!("event {event}"), |name| (*name).to_string());
    match status {
        0 => name,
        1.. => format!("{name} {status}"),
        _ => format!("{name} {}", Errno(-status)),
    }
}

/// All of them whose description has `only` in it.
pub fn all(world: &World, only: &str, checks: &mut Checks) {
    let mut case = |text: String, run: &dyn Fn() -> Outcome| {
        if !text.contains(only) {
            return;
        }
        process::alarm(100 * world.scale);
        match run() {
            Ok(()) => _ = checks.yes(&text, true, ""),
            Err(e) => {
                checks.fail(&text, &e);
                let _ = knobs::cm_events("connecting", ESTABLISHED, "none", 0, 0);
            }
        }
    };
    if world.beside {
        for making in MAKING {
            let &(at, event, status, times, errno) = making;
            let (came, told) = (name(at, 0), name(event, status));
            let why = reason(errno);
            case(
                format!("connecting: {told} instead of {came}, {times} times: TCP, reason {why}"),
                &|| while_made_beside(world, making),
            );
        }
        return;
    }
    for making in MAKING {
        let &(at, event, status, times, errno) = making;
        let (came, told) = (name(at, 0), name(event, status));
        let says = match errno {
            0 => "it is made anew".to_string(),
            e => Errno(e).to_string(),
        };
        case(
            format!("connecting: {told} instead of {came}, {times} times: {says}"),
            &|| while_made(world, making),
        );
    }
    for &(event, status) in ACCEPTING {
        let told = name(event, status);
        case(
            format!("accepting: {told} instead of ESTABLISHED: ECONNRESET"),
            &|| while_accepted(world, event, status),
        );
    }
    for event in ["none", "15"] {
        let told = if event == "none" {
            "nothing"
        } else {
            "TIMEWAIT_EXIT"
        };
        case(
            format!("accepting: {told} instead of ESTABLISHED: up with the first message"),
            &|| up_without(world, event),
        );
    }
    for side in ["connecting", "accepting"] {
        for &(event, status) in UP {
            let told = name(event, status);
            case(format!("{side}: {told} ends a link that is up"), &|| {
                ends(world, side, event, status)
            });
        }
        for &(event, status) in NOTHING {
            let told = name(event, status);
            case(format!("{side}: {told} changes nothing"), &|| {
                changes_nothing(world, side, event, status)
            });
        }
    }
}

fn made<T>(what: &str, result: raw::Result<T>) -> Outcome<T> {
    result.map_err(|e| format!("{what}: {e}"))
}

fn connected(world: &World, listener: &Listener) -> Outcome<Pair> {
    made("a connection", Pair::new(world, listener))
}

/// Both links, and no more, are there.
fn two_links(world: &World) -> Outcome {
    world.wait("not two links", |s| s.links == 2)
}

/// Nothing is left of a link and its connections.
fn nothing_left(world: &World) -> Outcome {
    world.wait("something is left", |s| {
        s.links == 0 && s.channels == 0 && s.pages_pinned == 0 && s.pool_used == 0
    })
}

fn reset(pair: &Pair, end: usize) -> Outcome {
    match raw::recv(&pair.ends[end], &mut [0], 0) {
        Err(Errno(ECONNRESET)) => Ok(()),
        other => Err(format!("recv of end {end}: {other:?}")),
    }
}

/// A connection works on a new link; the link is ended.
fn works_anew(world: &World, mut pair: Pair) -> Outcome {
    pair.works()?;
    two_links(world)?;
    knobs::cm_event_now("connecting", DISCONNECTED, 0)?;
    reset(&pair, 0)?;
    reset(&pair, 1)?;
    drop(pair);
    nothing_left(world)
}

fn while_made(world: &World, &(at, event, status, times, errno): &Making) -> Outcome {
    nothing_left(world)?;
    let listener = made("listen", world.listener())?;
    let client = made("socket", world.client())?;
    knobs::cm_events("connecting", at, &event.to_string(), status, times)?;
    let result = raw::connect(&client, listener.1);
    let left = knobs::cm_events_left()?;
    if left != 0 {
        return Err(format!("told {} times, connect: {result:?}", times - left));
    }
    match result {
        Ok(()) if errno == 0 => {}
        Err(e) if e.0 == errno && errno != 0 => {
            // Nothing of it is in the way of another attempt of the same socket, on another link.
            made("connect once more", raw::connect(&client, listener.1))?;
        }
        other => return Err(format!("connect: {other:?}")),
    }
    let server = made("accept", world.accept(&listener.0))?;
    works_anew(world, Pair::of(client, server))
}

/// The reason for TCP where connect() by ZRS alone says `errno`, 0 for success: the server is one of
/// TCP.
fn reason(errno: c_int) -> u32 {
    match errno {
        0 => ZRS_WHY_NO_LISTENER,
        ENOMEM | ECONNRESET => ZRS_WHY_NO_RESOURCES,
        _ => ZRS_WHY_NO_ZRS,
    }
}

/// A client in mode AUTO connects to a TCP server: TCP carries the connection, for the expected reason,
/// and the server sees no other one.
fn while_made_beside(world: &World, &(at, event, status, times, errno): &Making) -> Outcome {
    nothing_left(world)?;
    // The last attempt may have marked the host as one without ZRS.
    made("meet", world.meet())?;
    knobs::cm_event_now("connecting", DISCONNECTED, 0)?;
    nothing_left(world)?;
    // Host B takes links while a socket of ZRS listens.
    let _keeps = made("listen", world.listener())?;
    let listener = beside::listening(world, None)?;
    let client = made("socket", world.client())?;
    knobs::cm_events("connecting", at, &event.to_string(), status, times)?;
    let result = raw::connect(&client, listener.1);
    let left = knobs::cm_events_left()?;
    if left != 0 || result.is_err() {
        return Err(format!("told {} times, connect: {result:?}", times - left));
    }
    let info = zrs_sys::sock::info(client.as_fd()).map_err(|e| format!("ZRS_INFO: {e}"))?;
    if (info.carriers, info.why) != (ZRS_CARRIER_TCP, reason(errno)) {
        return Err(format!("carriers {}, reason {}", info.carriers, info.why));
    }
    let server = made("accept", world.accept(&listener.0))?;
    if raw::getpeername(&server) != raw::getsockname(&client) {
        return Err("the server has another connection".into());
    }
    Pair::of(client, server).works()?;
    beside::no_more(&listener.0)?;
    if errno == 0 {
        // The port was asked, on a link that works.
        two_links(world)?;
        knobs::cm_event_now("connecting", DISCONNECTED, 0)?;
    }
    nothing_left(world)
}

/// An attempt on two links, each of which gets the event on the accepting side; or on one, which
/// was up by the first message before that, so that connect() succeeds and the connection is lost
/// (but for UNREACHABLE: then it stays).
fn while_accepted(world: &World, event: u32, status: i32) -> Outcome {
    nothing_left(world)?;
    let listener = made("listen", world.listener())?;
    let client = made("socket", world.client())?;
    knobs::cm_events("accepting", ESTABLISHED, &event.to_string(), status, 2)?;
    let result = match raw::connect(&client, listener.1) {
        Ok(()) => raw::recv(&client, &mut [0], 0).map(drop),
        refused => refused,
    };
    let left = knobs::cm_events_left()?;
    knobs::cm_events("accepting", ESTABLISHED, "none", 0, 0)?;
    match result {
        Err(Errno(ECONNRESET)) if left < 2 => {}
        // It was up by the first message, and stays so; perhaps the second one, after the first
        // was ended.
        Err(Errno(EAGAIN)) if left < 2 && event == UNREACHABLE => {
            knobs::cm_event_now("connecting", DISCONNECTED, 0)?;
        }
        other => return Err(format!("told {} times: {other:?}", 2 - left)),
    }
    drop((client, listener));
    nothing_left(world)?;
    let listener = made("listen", world.listener())?;
    works_anew(world, connected(world, &listener)?)
}

fn up_without(world: &World, event: &str) -> Outcome {
    nothing_left(world)?;
    let listener = made("listen", world.listener())?;
    knobs::cm_events("accepting", ESTABLISHED, event, 0, 1)?;
    let mut pair = connected(world, &listener)?;
    pair.works()?;
    // It may come after the first messages.
    let came = |_: &zrs_ioc_stats| knobs::cm_events_left().is_ok_and(|left| left == 0);
    world.wait("ESTABLISHED did not come", came)?;
    // The event comes late.
    knobs::cm_event_now("accepting", ESTABLISHED, 0)?;
    works_anew(world, pair)
}

fn ends(world: &World, side: &str, event: u32, status: i32) -> Outcome {
    nothing_left(world)?;
    let listener = made("listen", world.listener())?;
    let mut pair = connected(world, &listener)?;
    let idle = connected(world, &listener)?;
    pair.works()?;
    two_links(world)?;
    // Arrived data stays.
    pair.arrive(100)?;
    knobs::cm_event_now(side, event, status)?;
    reset(&pair, 0)?;
    let mut buf = [0; 101];
    let n = made(
        "recv of what had arrived",
        raw::recv(&pair.ends[1], &mut buf, 0),
    )?;
    pair.lanes[0].take(&buf[..n])?;
    if n != 100 {
        return Err(format!("{n} bytes of 100 are left"));
    }
    for (pair, end) in [(&pair, 1), (&idle, 0), (&idle, 1)] {
        reset(pair, end)?;
    }
    drop((pair, idle));
    nothing_left(world)?;
    works_anew(world, connected(world, &listener)?)
}

fn changes_nothing(world: &World, side: &str, event: u32, status: i32) -> Outcome {
    nothing_left(world)?;
    let listener = made("listen", world.listener())?;
    let mut pair = connected(world, &listener)?;
    pair.works()?;
    two_links(world)?;
    knobs::cm_event_now(side, event, status)?;
    pair.works()?;
    // Another connection finds the same link.
    connected(world, &listener)?.works()?;
    let links = world.stats()?.links;
    if links != 2 {
        return Err(format!("{links} links"));
    }
    works_anew(world, pair)
}
