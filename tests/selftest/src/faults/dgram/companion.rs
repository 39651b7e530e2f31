// SPDX-License-Identifier: GPL-2.0
//! Datagram sockets with a UDP socket inside (ZRS_DGRAM_UDP).

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use zrs_sys::abi::{SOL_ZRS, ZRS_DGRAM_UDP};
use zrs_sys::sock;

use super::super::calls::{err, Calls, Outcome, Steps};
use super::super::errnos;
use super::super::pair::World;
use super::parts::cork;
use super::{info, socket, Ends};
use crate::support::raw;

fn udp() -> raw::Result<OwnedFd> {
    raw::socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP)
}

fn has_udp(fd: &OwnedFd) -> Outcome<bool> {
    let value = raw::getsockopt_int(fd, SOL_ZRS as i32, ZRS_DGRAM_UDP as i32);
    value.map(|on| on == 1).map_err(err("getsockopt"))
}

/// A socket with UDP inside in A, and one of UDP in B.
struct Mixed {
    near: OwnedFd,
    far: OwnedFd,
    to: SocketAddrV4,
    number: u32,
}

impl Mixed {
    fn new(world: &World) -> Outcome<Self> {
        world.enter_a().map_err(err("setns"))?;
        let near = socket().map_err(err("socket"))?;
        sock::set_dgram_udp(near.as_fd()).map_err(|e| format!("ZRS_DGRAM_UDP: {e}"))?;
        Self::with(world, near)
    }

    fn with(world: &World, near: OwnedFd) -> Outcome<Self> {
        let made = || -> raw::Result<Self> {
            world.enter_b()?;
            let far = world.limited(udp()?)?;
            let to = world.address();
            raw::bind(&far, to)?;
            world.enter_a()?;
            Ok(Self {
                near: world.limited(near)?,
                far,
                to,
                number: 0,
            })
        };
        made().map_err(err("sockets"))
    }

    fn connected(world: &World) -> Outcome<Self> {
        let mut mixed = Self::new(world)?;
        mixed.works(world)?;
        Ok(mixed)
    }

    fn kept(world: &World, kept: Option<Self>) -> Outcome<Self> {
        kept.map_or_else(|| Self::connected(world), Ok)
    }

    /// The next datagram.
    fn next(&mut self) -> [u8; 4] {
        self.number += 1;
        self.number.to_ne_bytes()
    }

    /// A datagram arrives; one that was sent before is an error.
    fn passes(&mut self, world: &World, out: bool) -> Outcome<()> {
        let end = Instant::now() + world.limit();
        let first = self.number + 1;
        while Instant::now() < end {
            let bytes = self.next();
            let (from, at) = match out {
                true => (&self.near, &self.far),
                false => (&self.far, &self.near),
            };
            // It may have the error of the last one.
            let _ = raw::send(from, &bytes, libc::MSG_NOSIGNAL);
            let ms = 200 * world.scale as i32;
            while raw::poll(at, libc::POLLIN, ms).map_err(err("poll"))? & libc::POLLIN != 0 {
                let mut got = [0; 8];
                match raw::recv(at, &mut got, libc::MSG_DONTWAIT) {
                    Ok(4) if got[..4] == bytes => return Ok(()),
                    Ok(4) => {
                        let number = u32::from_ne_bytes([got[0], got[1], got[2], got[3]]);
                        if !(first..self.number).contains(&number) {
                            return Err(format!("number {number} of {first} and more"));
                        }
                    }
                    Ok(n) => return Err(format!("{n} bytes that were not sent")),
                    Err(_) => {}
                }
            }
        }
        Err(format!(
            "nothing arrives {}",
            if out { "there" } else { "here" }
        ))
    }

    /// Datagrams arrive at both ends, which have the ports that they say.
    fn works(&mut self, world: &World) -> Outcome<()> {
        raw::connect(&self.near, self.to).map_err(err("connect, once more"))?;
        let near = raw::getsockname(&self.near).map_err(err("getsockname"))?;
        raw::connect(&self.far, near).map_err(err("connect of UDP"))?;
        self.passes(world, true)?;
        self.passes(world, false)
    }
}

impl Calls<'_> {
    pub fn companion(&mut self) {
        self.companion_made();
        self.companion_named();
        self.companion_used();
        self.companion_options();
        for len in [100, 5000] {
            self.companion_by_rdma(len);
        }
    }

    /// setsockopt(ZRS_DGRAM_UDP).
    fn companion_made(&mut self) {
        self.sweep(
            "companion: setsockopt(ZRS_DGRAM_UDP, 1)",
            errnos::SOCKET,
            Steps {
                setup: |world: &World, kept: Option<OwnedFd>| {
                    world.enter_a().map_err(err("setns"))?;
                    kept.map_or_else(|| socket().map_err(err("socket")), Ok)
                },
                call: |fd: &mut OwnedFd| sock::set_dgram_udp(fd.as_fd()).map_err(Into::into),
                after: |world: &World, fd, result: raw::Result<()>| {
                    if has_udp(&fd)? != result.is_ok() {
                        return Err("another value than was set".into());
                    }
                    if result.is_err() {
                        return Ok(Some(fd));
                    }
                    Mixed::with(world, fd)?.works(world)?;
                    Ok(None)
                },
            },
        );
        self.sweep(
            "companion: setsockopt(ZRS_DGRAM_UDP, 0)",
            errnos::OPTION,
            Steps {
                setup: |world: &World, kept: Option<Mixed>| {
                    kept.map_or_else(|| Mixed::new(world), Ok)
                },
                call: |mixed: &mut Mixed| {
                    let (level, name) = (SOL_ZRS as i32, ZRS_DGRAM_UDP as i32);
                    raw::setsockopt(&mixed.near, level, name, &0_u32.to_ne_bytes())
                },
                after: |_: &World, mixed: Mixed, result: raw::Result<()>| match has_udp(
                    &mixed.near,
                )? == result
                    .is_err()
                {
                    true => Ok(result.err().map(|_| mixed)),
                    false => Err("another value than was set".into()),
                },
            },
        );
    }

    /// bind() and connect(): the port is that of both, or of neither.
    fn companion_named(&mut self) {
        let fresh = |world: &World, kept: Option<Mixed>| kept.map_or_else(|| Mixed::new(world), Ok);
        let port = self.world.address().port();
        let any = SocketAddrV4::new([0, 0, 0, 0].into(), port);
        self.sweep(
            "companion: bind()",
            errnos::BIND_BESIDE,
            Steps {
                setup: fresh,
                call: |mixed: &mut Mixed| raw::bind(&mixed.near, any),
                after: |world: &World, mut mixed: Mixed, result: raw::Result<()>| {
                    if result.is_ok() {
                        mixed.works(world)?;
                        return Ok(None);
                    }
                    // Neither ZRS nor UDP has kept it.
                    for other in [socket(), udp()] {
                        let other = other.map_err(err("socket"))?;
                        raw::bind(&other, any).map_err(err("bind of another socket"))?;
                    }
                    Ok(Some(mixed))
                },
            },
        );
        self.sweep(
            "companion: connect()",
            errnos::CONNECT_COMPANION,
            Steps {
                setup: fresh,
                call: |mixed: &mut Mixed| raw::connect(&mixed.near, mixed.to),
                after: |world: &World, mut mixed: Mixed, result: raw::Result<()>| {
                    if result.is_ok() {
                        mixed.works(world)?;
                        return Ok(None);
                    }
                    Ok(Some(mixed))
                },
            },
        );
        // Another peer: after an error the socket has the former one, or none.
        self.sweep(
            "companion: connect() to another peer",
            errnos::CONNECT_COMPANION,
            Steps {
                setup: Mixed::kept,
                call: |mixed: &mut Mixed| raw::connect(&mixed.near, mixed.to),
                after: |world: &World, mut mixed: Mixed, _: raw::Result<()>| {
                    mixed.works(world)?;
                    Ok(Some(mixed))
                },
            },
        );
    }

    /// send() and recv() by UDP.
    fn companion_used(&mut self) {
        self.sweep(
            "companion: send()",
            errnos::SEND_DGRAM,
            Steps {
                setup: Mixed::kept,
                call: |mixed: &mut Mixed| {
                    let bytes = mixed.next();
                    raw::send(&mixed.near, &bytes, libc::MSG_NOSIGNAL)
                },
                after: |world: &World, mut mixed: Mixed, result: raw::Result<usize>| {
                    let mut got = [0; 8];
                    if result.is_ok() {
                        let n = raw::recv(&mixed.far, &mut got, 0).map_err(err("recv"))?;
                        if got[..n] != mixed.number.to_ne_bytes() {
                            return Err(format!("{n} other bytes"));
                        }
                    }
                    mixed.works(world)?;
                    Ok(Some(mixed))
                },
            },
        );
        let mut got = [0; 8];
        let room = std::cell::RefCell::new(&mut got);
        self.sweep(
            "companion: recv()",
            errnos::RECV,
            Steps {
                setup: |world: &World, kept| {
                    let mut mixed = Mixed::kept(world, kept)?;
                    let bytes = mixed.next();
                    raw::send(&mixed.far, &bytes, 0).map_err(err("send of UDP"))?;
                    let ms = world.limit().as_millis() as i32;
                    match raw::poll(&mixed.near, libc::POLLIN, ms).map_err(err("poll"))? {
                        0 => Err("nothing arrives".into()),
                        _ => Ok(mixed),
                    }
                },
                call: |mixed: &mut Mixed| raw::recv(&mixed.near, &mut room.borrow_mut()[..], 0),
                after: |world: &World, mut mixed: Mixed, result: raw::Result<usize>| {
                    let sent = mixed.number.to_ne_bytes();
                    match result {
                        Ok(n) if room.borrow()[..n] != sent => {
                            return Err(format!("{n} other bytes"))
                        }
                        Ok(_) => {}
                        // UDP drops one that it cannot give to the program.
                        Err(_) => {
                            let mut got = [0; 8];
                            let again = raw::recv(&mixed.near, &mut got, libc::MSG_DONTWAIT);
                            if again.is_ok_and(|n| got[..n] != sent) {
                                return Err("other bytes".into());
                            }
                        }
                    }
                    mixed.works(world)?;
                    Ok(Some(mixed))
                },
            },
        );
    }

    /// Options that both sockets must know: after an error, neither has it.
    fn companion_options(&mut self) {
        self.sweep(
            "companion: setsockopt(UDP_CORK, 1)",
            errnos::OPTION,
            Steps {
                setup: |world: &World, kept| companion_ends(world, kept),
                call: |ends: &mut Ends| cork(ends, 1),
                after: |world: &World, mut ends: Ends, result: raw::Result<()>| {
                    if result.is_err() {
                        // It is not corked.
                        ends.next(100)?;
                        raw::send(&ends.near, &ends.message, 0).map_err(err("send"))?;
                        ends.must_arrive(world)?;
                    }
                    cork(&ends, 0).map_err(err("UDP_CORK"))?;
                    ends.works(world)?;
                    Ok(Some(ends))
                },
            },
        );
    }

    /// send() by RDMA.
    fn companion_by_rdma(&mut self, len: usize) {
        self.sweep(
            &format!("companion: send() of {len} bytes by RDMA"),
            errnos::SEND_DGRAM,
            Steps {
                setup: |world: &World, kept| {
                    let mut ends = companion_ends(world, kept)?;
                    by_rdma(world, &mut ends)?;
                    ends.next(len)?;
                    Ok(ends)
                },
                call: |ends: &mut Ends| raw::send(&ends.near, &ends.message, libc::MSG_NOSIGNAL),
                after: |world: &World, mut ends: Ends, result: raw::Result<usize>| {
                    match result {
                        Ok(_) => ends.must_arrive(world)?,
                        Err(_) => ends.works(world)?,
                    }
                    Ok(Some(ends))
                },
            },
        );
    }
}

/// Two sockets with UDP inside.
fn companion_ends(world: &World, kept: Option<Ends>) -> Outcome<Ends> {
    match kept {
        Some(kept) if kept.posts == super::posts()? => Ok(kept),
        _ => Ends::made(world, true),
    }
}

/// Sends until RDMA has taken over.
fn by_rdma(world: &World, ends: &mut Ends) -> Outcome<()> {
    let end = Instant::now() + 3 * world.limit();
    while Instant::now() < end {
        let before = info(&ends.near)?.tx_datagrams;
        ends.works(world)?;
        if info(&ends.near)?.tx_datagrams > before {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Err("RDMA does not take over".into())
}
