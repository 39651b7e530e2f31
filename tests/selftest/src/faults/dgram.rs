// SPDX-License-Identifier: GPL-2.0
//! The calls of datagram sockets, from host A to host B: a datagram whose call succeeds arrives whole, and nothing of one
//! whose call fails.

mod companion;
mod errors;
mod parts;

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use zrs_sys::abi::{zrs_dgram_info, IPPROTO_ZRS, SOL_ZRS, ZRS_DGRAM_INFO};
use zrs_sys::{sock, Area};

use super::calls::{err, Calls, Outcome, Steps};
use super::errnos;
use super::knobs;
use super::pair::World;
use crate::support::raw::{self, Errno};

/// The most that a datagram has by IPv4.
const MOST: usize = 65_507;
/// The bytes that follow those of a call with MSG_MORE.
const TAIL: usize = 100;
const SO_MEMINFO: i32 = 55;
/// The place of the drops in SO_MEMINFO.
const DROPS: usize = 8;

fn socket() -> raw::Result<OwnedFd> {
    raw::socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_ZRS as i32)
}

/// A socket in A that is connected to one in B.
struct Ends {
    near: OwnedFd,
    far: OwnedFd,
    /// The last datagram.
    message: Vec<u8>,
    number: u32,
    /// The receiver's drops before the call.
    drops: u32,
    /// Faults that had struck at posting before the call.
    posts: i64,
}

/// How many faults have struck at posting.
fn posts() -> Outcome<i64> {
    knobs::posts().map_err(|e| e.to_string())
}

fn info(fd: &OwnedFd) -> Outcome<zrs_dgram_info> {
    raw::dgram_info(fd).map_err(err("ZRS_DGRAM_INFO"))
}

/// What the sockets have counted.
#[derive(Clone, Copy)]
struct Counts {
    sent: u64,
    sender_dropped: u32,
    receiver_dropped: u32,
}

impl Counts {
    /// Datagrams that were dropped since.
    fn dropped_since(self, before: Self) -> u64 {
        let by_sender = self.sender_dropped - before.sender_dropped;
        u64::from(by_sender + self.receiver_dropped - before.receiver_dropped)
    }
}

impl Ends {
    fn new(world: &World) -> Outcome<Self> {
        Self::made(world, false)
    }

    /// `udp`: with UDP inside.
    fn made(world: &World, udp: bool) -> Outcome<Self> {
        let one = || -> raw::Result<OwnedFd> {
            let fd = world.limited(socket()?)?;
            if udp {
                sock::set_dgram_udp(fd.as_fd())?;
            }
            Ok(fd)
        };
        let made = || -> raw::Result<Self> {
            world.enter_b()?;
            let far = one()?;
            let addr = world.address();
            raw::bind(&far, addr)?;
            world.enter_a()?;
            let near = one()?;
            raw::connect(&near, addr)?;
            raw::setsockopt(
                &near,
                libc::SOL_SOCKET,
                libc::SO_ZEROCOPY,
                &1i32.to_ne_bytes(),
            )?;
            Ok(Self {
                near,
                far,
                message: Vec::new(),
                number: 0,
                drops: 0,
                posts: 0,
            })
        };
        let mut ends = made().map_err(err("sockets"))?;
        ends.works(world)?;
        Ok(ends)
    }

    /// The sockets of the last round; new ones if a fault at posting has ended the link, which the next call may
    /// report.
    fn kept(world: &World, kept: Option<Self>) -> Outcome<Self> {
        match kept {
            Some(kept) if kept.posts == posts()? => Ok(kept),
            _ => {
                // The end of a link is told to new sockets with the same peer, too.
                world.wait("a link that has ended is left", |s| s.links <= 2)?;
                Self::new(world)
            }
        }
    }

    /// The next datagram, unlike all before.
    fn next(&mut self, len: usize) -> Outcome<()> {
        self.posts = posts()?;
        self.number += 1;
        let number = self.number;
        let byte = |at: usize| (number.wrapping_mul(31) as usize + at) as u8;
        self.message = (0..len).map(byte).collect();
        let head = number.to_ne_bytes();
        self.message[..4].copy_from_slice(&head);
        Ok(())
    }

    /// The next datagram that arrives within `time`; none also if a fault strikes at posting, as that ends the link.
    fn arrived(&self, world: &World, time: Duration) -> Outcome<Option<Vec<u8>>> {
        let end = Instant::now() + time;
        let step = 50 * world.scale as i32;
        while raw::poll(&self.far, libc::POLLIN, step).map_err(err("poll"))? == 0 {
            if Instant::now() > end || posts()? != self.posts {
                return Ok(None);
            }
        }
        let mut buf = vec![0; MOST];
        let len = raw::recv(&self.far, &mut buf, 0).map_err(err("recv"))?;
        buf.truncate(len);
        Ok(Some(buf))
    }

    /// A datagram arrives, on a new link if the last one has ended; what arrives before it is an error.
    fn works(&mut self, world: &World) -> Outcome<()> {
        let end = Instant::now() + world.limit();
        let first = self.number.wrapping_add(1);
        while Instant::now() < end {
            self.next(100)?;
            // It may have the error of the last link.
            if raw::send(&self.near, &self.message, libc::MSG_NOSIGNAL).is_err() {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let a_while = Duration::from_millis(u64::from(300 * world.scale));
            while let Some(got) = self.arrived(world, a_while)? {
                if got == self.message {
                    return Ok(());
                }
                // Those that were sent here before may come late.
                let number = got.first_chunk().map(|n| u32::from_ne_bytes(*n));
                if !number.is_some_and(|n| (first..self.number).contains(&n)) {
                    return Err(format!("{} bytes that were not sent", got.len()));
                }
            }
        }
        Err("nothing arrives".into())
    }

    /// The last datagram of `call` arrives, unless its link has ended.
    fn must_arrive(&self, world: &World) -> Outcome<()> {
        match self.arrived(world, world.limit())? {
            Some(got) if got == self.message => Ok(()),
            Some(got) => Err(format!("other bytes, {} of them", got.len())),
            None => Err("it is lost, as with ECONNRESET".into()),
        }
    }

    fn counts(&self) -> Outcome<Counts> {
        let (near, far) = (info(&self.near)?, info(&self.far)?);
        Ok(Counts {
            sent: near.tx_datagrams,
            sender_dropped: near.tx_drops,
            receiver_dropped: far.rx_drops,
        })
    }

    fn dropped(&self) -> Outcome<u32> {
        let mut info = [0; 36];
        raw::getsockopt(&self.far, libc::SOL_SOCKET, SO_MEMINFO, &mut info)
            .map_err(err("SO_MEMINFO"))?;
        let drops = info[4 * DROPS..].first_chunk();
        Ok(drops.map_or(0, |bytes| u32::from_ne_bytes(*bytes)))
    }

    /// The notification of a call with MSG_ZEROCOPY comes, if there is one.
    fn notified(&self, world: &World, wanted: bool) -> Outcome<()> {
        let fd = self.near.as_fd();
        let told = match wanted {
            true => sock::wait_completion(fd, Some(world.limit())),
            false => sock::completion(fd),
        };
        let told = told.map_err(|e| format!("notification: {e}"))?;
        match told.is_some() == wanted {
            true => Ok(()),
            false => Err(format!("notification: {told:?}")),
        }
    }
}

impl Calls<'_> {
    pub fn datagrams(&mut self) {
        self.unconnected();
        for (name, len, flags) in [
            ("send() of 100 bytes", 100, 0),
            ("send() of 5000 bytes", 5000, 0),
            ("send() of 65507 bytes", MOST, 0),
            (
                "send() of 65507 bytes, MSG_DONTWAIT",
                MOST,
                libc::MSG_DONTWAIT,
            ),
            ("send() of 100 bytes, MSG_ZEROCOPY", 100, libc::MSG_ZEROCOPY),
            (
                "send() of 20000 bytes, MSG_ZEROCOPY",
                20_000,
                libc::MSG_ZEROCOPY,
            ),
            ("send() of 5000 bytes, MSG_MORE", 5000, libc::MSG_MORE),
        ] {
            self.datagram_sent(&format!("datagrams: {name}"), len, flags);
        }
        for (len, want, flags) in [
            (100, 100, 0),
            (MOST, MOST, 0),
            (MOST, 10, libc::MSG_TRUNC),
            (5000, 5000, libc::MSG_PEEK),
        ] {
            self.datagram_received(len, want, flags);
        }
        for len in [100, 20_000, MOST] {
            self.datagram_mapped(len);
        }
        self.in_parts();
        self.errors_read();
        let total = self.total;
        crate::support::checks::say(&format!("# {total} points failed in all calls"));
    }

    /// Sockets without a peer.
    fn unconnected(&mut self) {
        type Kept = (OwnedFd, SocketAddrV4);
        self.sweep(
            "datagrams: socket()",
            errnos::SOCKET,
            Steps {
                setup: |world: &World, _| world.enter_a().map_err(err("setns")),
                call: |(): &mut ()| socket(),
                after: |_: &World, (), _: raw::Result<OwnedFd>| Ok(None),
            },
        );
        let fresh = |world: &World, kept: Option<Kept>| match kept {
            Some(kept) => Ok(kept),
            None => {
                world.enter_a().map_err(err("setns"))?;
                let any = SocketAddrV4::new([0, 0, 0, 0].into(), world.address().port());
                Ok((socket().map_err(err("socket"))?, any))
            }
        };
        self.sweep(
            "datagrams: bind()",
            errnos::BIND,
            Steps {
                setup: fresh,
                call: |(fd, addr): &mut Kept| raw::bind(fd, *addr),
                after: |_: &World, kept, result: raw::Result<()>| Ok(result.err().map(|_| kept)),
            },
        );
        self.sweep(
            "datagrams: connect()",
            errnos::CONNECT_DGRAM,
            Steps {
                setup: |world: &World, kept| {
                    fresh(world, kept).map(|(fd, _)| (fd, world.address()))
                },
                call: |(fd, addr): &mut Kept| raw::connect(fd, *addr),
                after: |_: &World, kept, result: raw::Result<()>| Ok(result.err().map(|_| kept)),
            },
        );
        self.sweep(
            "datagrams: getsockopt(ZRS_DGRAM_INFO)",
            errnos::OPTION,
            Steps {
                setup: Ends::kept,
                call: |ends: &mut Ends| {
                    let (level, name) = (SOL_ZRS as i32, ZRS_DGRAM_INFO as i32);
                    raw::getsockopt(&ends.near, level, name, &mut [0; 512])
                },
                after: |_: &World, ends, _: raw::Result<usize>| Ok(Some(ends)),
            },
        );
    }

    fn datagram_sent(&mut self, name: &str, len: usize, flags: i32) {
        let zerocopy = flags & libc::MSG_ZEROCOPY != 0;
        let more = flags & libc::MSG_MORE != 0;
        self.sweep(
            name,
            errnos::SEND_DGRAM,
            Steps {
                setup: |world: &World, kept| {
                    let mut ends = Ends::kept(world, kept)?;
                    ends.next(len + if more { TAIL } else { 0 })?;
                    Ok(ends)
                },
                call: |ends: &mut Ends| {
                    let flags = flags | libc::MSG_NOSIGNAL;
                    raw::send(&ends.near, &ends.message[..len], flags)
                },
                after: |world: &World, mut ends: Ends, result: raw::Result<usize>| {
                    match result {
                        Ok(n) if n == len => {
                            if more {
                                let tail = &ends.message[len..];
                                raw::send(&ends.near, tail, 0).map_err(err("the tail"))?;
                            }
                            if zerocopy {
                                ends.notified(world, true)?;
                            }
                            ends.must_arrive(world)?;
                        }
                        Ok(n) => return Err(format!("{n} bytes of a datagram of {len}")),
                        Err(_) => {
                            if zerocopy {
                                ends.notified(world, false)?;
                            }
                            ends.works(world)?;
                        }
                    }
                    Ok(Some(ends))
                },
            },
        );
    }

    fn datagram_received(&mut self, len: usize, want: usize, flags: i32) {
        let peek = flags & libc::MSG_PEEK != 0;
        let mut buf = vec![0; want];
        let bytes = std::cell::RefCell::new(&mut buf);
        self.sweep(
            &format!("datagrams: recv() of {len} bytes, {want} wanted, flags {flags}"),
            errnos::RECV,
            Steps {
                setup: |world: &World, kept| {
                    let mut ends = Ends::kept(world, kept)?;
                    ends.next(len)?;
                    raw::send(&ends.near, &ends.message, 0).map_err(err("send"))?;
                    let ms = world.limit().as_millis() as i32;
                    let there = raw::poll(&ends.far, libc::POLLIN, ms);
                    if there.map_err(err("poll"))? == 0 {
                        return Err("nothing arrives".into());
                    }
                    ends.drops = ends.dropped()?;
                    Ok(ends)
                },
                call: |ends: &mut Ends| raw::recv(&ends.far, &mut bytes.borrow_mut(), flags),
                after: |world: &World, ends: Ends, result: raw::Result<usize>| {
                    let drops = ends.dropped()? - ends.drops;
                    match result {
                        Ok(n) => {
                            let whole = if flags & libc::MSG_TRUNC != 0 {
                                len
                            } else {
                                want
                            };
                            if n != whole || bytes.borrow()[..] != ends.message[..want] {
                                return Err(format!("{n} bytes, or others than were sent"));
                            }
                        }
                        // As with UDP, it is dropped where the program's memory is not there.
                        Err(Errno(libc::EFAULT)) if drops == 1 && !peek => return Ok(Some(ends)),
                        Err(_) => ends.must_arrive(world)?,
                    }
                    if peek && result.is_ok() {
                        ends.must_arrive(world)?;
                    }
                    match drops {
                        0 => Ok(Some(ends)),
                        n => Err(format!("{n} drops")),
                    }
                },
            },
        );
    }

    /// A mapped receive; one that fails takes no datagram.
    fn datagram_mapped(&mut self, len: usize) {
        let mapped = std::cell::RefCell::new(None);
        self.sweep(
            &format!("datagrams: ioctl(ZRS_IOC_RECV_MAP) of {len} bytes"),
            errnos::RECV,
            Steps {
                setup: |world: &World, kept| {
                    let mut ends = Ends::kept(world, kept)?;
                    let area = Area::reserve(ends.far.as_fd(), 68 << 10);
                    *mapped.borrow_mut() = Some(area.map_err(|e| format!("area: {e}"))?);
                    ends.next(len)?;
                    raw::send(&ends.near, &ends.message, 0).map_err(err("send"))?;
                    let ms = world.limit().as_millis() as i32;
                    let there = raw::poll(&ends.far, libc::POLLIN, ms);
                    if there.map_err(err("poll"))? == 0 {
                        return Err("nothing arrives".into());
                    }
                    ends.drops = ends.dropped()?;
                    Ok(ends)
                },
                call: |ends: &mut Ends| {
                    let mut mapped = mapped.borrow_mut();
                    let area = mapped.as_mut().expect("made before");
                    area.recv(ends.far.as_fd(), 0, MOST, 0).map_err(Into::into)
                },
                after: |world: &World, ends: Ends, result: raw::Result<zrs_sys::Received>| {
                    let area = mapped.take().expect("made before");
                    match result {
                        Ok(got) if area.bytes(got.range.clone()).to_vec() == ends.message => {}
                        Ok(got) => return Err(format!("{got:?}, or others than were sent")),
                        Err(_) => ends.must_arrive(world)?,
                    }
                    match ends.dropped()? - ends.drops {
                        0 => Ok(Some(ends)),
                        n => Err(format!("{n} drops")),
                    }
                },
            },
        );
    }
}
