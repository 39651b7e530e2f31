// SPDX-License-Identifier: GPL-2.0
//! Calls on sockets with TCP beside ZRS (mode AUTO) with their Nth allocation, copy or point failing:
//! ZRS, TCP or a documented errno; no listener is lost, and there is never a connection too many.

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use zrs_sys::abi::*;

use super::calls::{err, Calls, Outcome, Steps};
use super::errnos;
use super::pair::{Pair, World};
use crate::support::raw::{self, Result};

/// A socket, its address or that of the peer, and its mode.
type Bound = (OwnedFd, SocketAddrV4);
/// A client and a listener.
type Opening = (OwnedFd, Bound);

/// A socket of `mode` in host B, whose calls end in time.
fn there(world: &World, mode: u32) -> Outcome<OwnedFd> {
    world.enter_b().map_err(err("setns"))?;
    let fd = raw::stream().map_err(err("socket"))?;
    raw::set_tcp(&fd, mode).map_err(err("ZRS_TCP"))?;
    world.limited(fd).map_err(err("time limits"))
}

/// A client of `mode`, or of TCP.
fn here(world: &World, mode: Option<u32>) -> Outcome<OwnedFd> {
    world.enter_a().map_err(err("setns"))?;
    let fd = match mode {
        Some(_) => raw::stream(),
        None => raw::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP),
    }
    .map_err(err("socket"))?;
    if let Some(mode) = mode {
        raw::set_tcp(&fd, mode).map_err(err("ZRS_TCP"))?;
    }
    world.limited(fd).map_err(err("time limits"))
}

/// A socket that listens in host B, of `mode` or of TCP, and where.
pub(super) fn listening(world: &World, mode: Option<u32>) -> Outcome<Bound> {
    let fd = match mode {
        Some(mode) => there(world, mode)?,
        None => {
            world.enter_b().map_err(err("setns"))?;
            let fd = raw::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);
            let fd = fd.map_err(err("socket"))?;
            world.limited(fd).map_err(err("time limits"))?
        }
    };
    let addr = world.address();
    raw::bind(&fd, addr).map_err(err("bind"))?;
    raw::listen(&fd, 16).map_err(err("listen"))?;
    Ok((fd, addr))
}

fn carriers(fd: &OwnedFd) -> Outcome<u32> {
    let info = zrs_sys::sock::info(fd.as_fd()).map_err(|e| format!("ZRS_INFO: {e}"))?;
    Ok(info.carriers)
}

/// Clients of TCP, and of ZRS if that listens, are accepted.
fn takes_clients(world: &World, (listener, addr): &Bound) -> Outcome<()> {
    let carriers = carriers(listener)?;
    if carriers & ZRS_CARRIER_TCP == 0 {
        return Err("TCP does not listen".into());
    }
    let mut modes = vec![None];
    if carriers & ZRS_CARRIER_ZRS != 0 {
        modes.push(Some(ZRS_TCP_NEVER));
    }
    for mode in modes {
        let client = here(world, mode)?;
        raw::connect(&client, *addr).map_err(err("a client"))?;
        let server = world.accept(listener).map_err(err("accept"))?;
        Pair::of(client, server).works()?;
    }
    no_more(listener)
}

/// No connection waits for accept().
pub(super) fn no_more(listener: &OwnedFd) -> Outcome<()> {
    match raw::poll(listener, libc::POLLIN, 0) {
        Ok(0) => Ok(()),
        _ => Err("a connection too many".into()),
    }
}

impl Calls<'_> {
    /// All calls of a socket that has an inner TCP socket.
    pub fn beside(&mut self) {
        self.sweep(
            "ZRS_TCP, mode ONLY, bound",
            errnos::BIND_BESIDE,
            Steps {
                setup: |world: &World, kept: Option<Bound>| match kept {
                    Some(kept) => Ok(kept),
                    None => {
                        let fd = there(world, ZRS_TCP_NEVER)?;
                        let addr = world.address();
                        raw::bind(&fd, addr).map_err(err("bind"))?;
                        Ok((fd, addr))
                    }
                },
                call: |(fd, _): &mut Bound| raw::set_tcp(fd, ZRS_TCP_ONLY),
                after: |world: &World, bound: Bound, result: Result<()>| {
                    if result.is_err() {
                        if carriers(&bound.0)? & ZRS_CARRIER_TCP != 0 {
                            return Err("TCP carries it nevertheless".into());
                        }
                        return Ok(Some(bound));
                    }
                    raw::listen(&bound.0, 16).map_err(err("listen"))?;
                    takes_clients(world, &bound)?;
                    Ok(None)
                },
            },
        );
        self.sweep(
            "bind(), TCP beside ZRS",
            errnos::BIND_BESIDE,
            Steps {
                setup: |world: &World, kept: Option<Bound>| match kept {
                    Some(kept) => Ok(kept),
                    None => Ok((there(world, ZRS_TCP_AUTO)?, world.address())),
                },
                call: |(fd, addr): &mut Bound| raw::bind(fd, *addr),
                after: |world: &World, bound: Bound, result: Result<()>| {
                    if result.is_err() {
                        // The same socket is bound next time.
                        return Ok(Some(bound));
                    }
                    raw::listen(&bound.0, 16).map_err(err("listen"))?;
                    takes_clients(world, &bound)?;
                    Ok(None)
                },
            },
        );
        self.sweep(
            "listen(), TCP beside ZRS",
            errnos::LISTEN_BESIDE,
            Steps {
                setup: |world: &World, kept: Option<Bound>| match kept {
                    Some(kept) => Ok(kept),
                    None => {
                        let fd = there(world, ZRS_TCP_AUTO)?;
                        let addr = world.address();
                        raw::bind(&fd, addr).map_err(err("bind"))?;
                        Ok((fd, addr))
                    }
                },
                call: |(fd, _): &mut Bound| raw::listen(fd, 16),
                after: |world: &World, bound: Bound, result: Result<()>| {
                    if result.is_err() {
                        return Ok(Some(bound));
                    }
                    takes_clients(world, &bound)?;
                    Ok(None)
                },
            },
        );
        for (name, mode) in [
            (
                "connect(), TCP beside ZRS, to a server of both",
                Some(ZRS_TCP_AUTO),
            ),
            ("connect(), TCP beside ZRS, to a server of TCP", None),
        ] {
            self.falling(name, mode);
        }
        for (name, mode) in [
            ("accept() of TCP, TCP beside ZRS", None),
            ("accept() of ZRS, TCP beside ZRS", Some(ZRS_TCP_NEVER)),
        ] {
            self.accepting(name, mode);
        }
    }

    fn falling(&mut self, name: &str, mode: Option<u32>) {
        self.sweep(
            name,
            errnos::CONNECT_BESIDE,
            Steps {
                setup: |world: &World, kept: Option<Opening>| match kept {
                    Some(kept) => Ok(kept),
                    None => {
                        // Else a fault of the last round may have left the host without ZRS.
                        world.meet().map_err(err("meet"))?;
                        let listener = listening(world, mode)?;
                        Ok((here(world, Some(ZRS_TCP_AUTO))?, listener))
                    }
                },
                call: |(client, listener): &mut Opening| raw::connect(client, listener.1),
                after: |world: &World, (client, listener): Opening, result: Result<()>| {
                    if result.is_err() {
                        raw::connect(&client, listener.1).map_err(err("connect, once more"))?;
                    }
                    let by = carriers(&client)?;
                    if by != ZRS_CARRIER_ZRS && by != ZRS_CARRIER_TCP {
                        return Err(format!("carriers {by}"));
                    }
                    let server = world.accept(&listener.0).map_err(err("accept"))?;
                    Pair::of(client, server).works()?;
                    no_more(&listener.0)?;
                    Ok(None)
                },
            },
        );
    }

    fn accepting(&mut self, name: &str, mode: Option<u32>) {
        self.sweep(
            name,
            errnos::ACCEPT,
            Steps {
                setup: |world: &World, _: Option<Opening>| {
                    let listener = listening(world, Some(ZRS_TCP_AUTO))?;
                    let client = here(world, mode)?;
                    raw::connect(&client, listener.1).map_err(err("connect"))?;
                    Ok((client, listener))
                },
                call: |(_, listener): &mut Opening| raw::accept(&listener.0),
                after: |world: &World, (client, listener): Opening, result: Result<OwnedFd>| {
                    let server = world.accepted(&listener.0, result);
                    let server = server.map_err(err("accept, once more"))?;
                    Pair::of(client, server).works()?;
                    takes_clients(world, &listener)?;
                    Ok(None)
                },
            },
        );
    }
}
