// SPDX-License-Identifier: GPL-2.0
//! Each call with its Nth allocation, copy or point failing, for N = 1, 2, ... until nothing is
//! left to fail: a documented errno or success, and the socket works afterwards.

use std::fs::File;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use zrs_sys::abi::*;

use super::errnos;
use super::knobs::{self, FailNth};
use super::pair::{Pair, World};
use crate::support::checks::{say, Checks};
use crate::support::process;
use crate::support::raw::{self, Errno};

pub type Outcome<T> = Result<T, String>;

/// No call has more points than this.
const MOST: u32 = 20_000;

pub struct Calls<'a> {
    pub world: &'a World,
    pub nth: FailNth,
    pub checks: &'a mut Checks,
    /// Points that failed, in all paths.
    pub total: u64,
    /// All N, or fewer and fewer from the 40th on.
    pub full: bool,
    /// Only paths with this in their name.
    pub only: String,
    /// Faults that have struck at posting so far, as far as known.
    pub posts: i64,
}

/// The steps of a path around its call.
pub struct Steps<S, C, A> {
    /// Makes the object of the call, from the state that the last round left.
    pub setup: S,
    pub call: C,
    /// Checks the state after the call, and leaves it to the next round if it is still good.
    pub after: A,
}

impl Calls<'_> {
    /// One path. `errnos`: the errnos that its call may return.
    pub fn sweep<T, R>(
        &mut self,
        name: &str,
        errnos: &[i32],
        mut steps: Steps<
            impl FnMut(&World, Option<T>) -> Outcome<T>,
            impl FnMut(&mut T) -> raw::Result<R>,
            impl FnMut(&World, T, raw::Result<R>) -> Outcome<Option<T>>,
        >,
    ) {
        if !name.contains(&self.only) {
            return;
        }
        process::alarm(300 * self.world.scale);
        let (mut hit, mut errors) = (0, Vec::new());
        let result = self.rounds(errnos, &mut steps, &mut hit, &mut errors);
        let result = result.and_then(|()| self.world.idle());
        self.total += hit;
        errors.sort();
        let mut counts: Vec<(String, u32)> = Vec::new();
        for e in errors {
            match counts.last_mut() {
                Some((name, n)) if *name == e => *n += 1,
                _ => counts.push((e, 1)),
            }
        }
        let seen: Vec<_> = counts.iter().map(|(e, n)| format!("{n} {e}")).collect();
        let seen = match seen.join(", ") {
            seen if seen.is_empty() => "no error".into(),
            seen => seen,
        };
        match result {
            Ok(()) => {
                self.checks.yes(
                    &format!("{name}: {hit} points, {seen}"),
                    hit > 0 || errnos.is_empty(),
                    "no point",
                );
            }
            Err(e) => self
                .checks
                .fail(name, &format!("at point {}: {e} (so far {seen})", hit + 1)),
        }
    }

    fn rounds<T, R>(
        &mut self,
        errnos: &[i32],
        steps: &mut Steps<
            impl FnMut(&World, Option<T>) -> Outcome<T>,
            impl FnMut(&mut T) -> raw::Result<R>,
            impl FnMut(&World, T, raw::Result<R>) -> Outcome<Option<T>>,
        >,
        hit: &mut u64,
        errors: &mut Vec<String>,
    ) -> Outcome<()> {
        let mut kept = None;
        let mut nth = 1;
        while nth < MOST {
            let mut target = match (steps.setup)(self.world, kept.take()) {
                // The link may end later than the call whose message could not be posted.
                Err(_) if self.link_ended()? => (steps.setup)(self.world, None),
                made => made,
            }
            .map_err(|e| format!("setup: {e}"))?;
            let (result, struck) = self
                .nth
                .run(nth, || (steps.call)(&mut target))
                .map_err(|e| format!("fail-nth: {e}"))?;
            if let Err(e) = result {
                if !struck {
                    return Err(format!("{e} without a fault"));
                }
                if !errnos.contains(&e.0) {
                    return Err(format!("{e} is not documented"));
                }
                errors.push(e.to_string());
            }
            match (steps.after)(self.world, target, result) {
                Ok(left) => kept = left,
                Err(e) => {
                    // A message that could not be posted ends its link; both sides get an error.
                    let told = e.contains("ECONNRESET") || e.contains("EPIPE");
                    if !told || !self.link_ended()? {
                        return Err(e);
                    }
                    errors.push("link ended".into());
                }
            }
            if !struck {
                return Ok(());
            }
            *hit += 1;
            nth += if self.full || nth < 40 { 1 } else { nth / 8 };
        }
        Err("it never goes through".into())
    }

    /// Whether a fault at posting has ended a link since this was last asked.
    fn link_ended(&mut self) -> Outcome<bool> {
        let posts = knobs::posts().map_err(|e| e.to_string())?;
        Ok(std::mem::replace(&mut self.posts, posts) != posts)
    }

    pub fn all(&mut self) {
        // The first makes the pools of the devices.
        self.socket("socket(), the first");
        self.socket("socket()");
        self.device();
        self.sockets();
        self.connections();
        let total = self.total;
        say(&format!("# {total} points failed in all calls"));
    }
}

/// The step that leaves nothing.
fn nothing<T, R>(_: &World, _: T, _: raw::Result<R>) -> Outcome<Option<T>> {
    Ok(None)
}

pub fn err(what: &str) -> impl Fn(Errno) -> String + '_ {
    move |e| format!("{what}: {e}")
}

impl Calls<'_> {
    /// /dev/zrs.
    fn device(&mut self) {
        self.sweep(
            "open /dev/zrs",
            errnos::OPEN,
            Steps {
                setup: |_: &World, _| Ok(()),
                call: |(): &mut ()| File::open(zrs_sys::Device::PATH).map_err(Into::into),
                after: nothing,
            },
        );
        for (name, request) in [
            ("VERSION", ZRS_IOC_VERSION),
            ("STATS", ZRS_IOC_STATS),
            ("POOL", ZRS_IOC_POOL),
            ("LINK", ZRS_IOC_LINK),
            ("SOCK", ZRS_IOC_SOCK),
            ("TABLE", ZRS_IOC_TABLE),
            ("MEM_STATS", ZRS_IOC_MEM_STATS),
        ] {
            // With sockets there is something in each list.
            self.sweep(
                &format!("ZRS_IOC_{name}"),
                errnos::IOCTL,
                Steps {
                    setup: |world: &World, kept: Option<(Pair, File, OwnedFd)>| match kept {
                        Some(kept) => Ok(kept),
                        None => {
                            let listener = world.listener().map_err(err("listen"))?;
                            let pair = Pair::new(world, &listener).map_err(err("connect"))?;
                            let dev = File::open(zrs_sys::Device::PATH);
                            Ok((pair, dev.map_err(|e| e.to_string())?, listener.0))
                        }
                    },
                    call: |(_, dev, _): &mut (Pair, File, OwnedFd)| {
                        raw::ioctl(dev, request, &mut [0; 512])
                    },
                    after: |_: &World, kept, result: raw::Result<i32>| match result {
                        Ok(_) => Ok(None),
                        Err(_) => Ok(Some(kept)),
                    },
                },
            );
        }
        self.sweep(
            "ZRS_IOC_SOCKET",
            errnos::SOCKET,
            Steps {
                setup: |_: &World, _| zrs_sys::Device::open().map_err(|e| e.to_string()),
                call: |dev: &mut zrs_sys::Device| {
                    let socket = dev.socket(libc::AF_INET as u32, libc::SOCK_STREAM as u32, 0);
                    socket.map_err(Into::into)
                },
                after: nothing,
            },
        );
    }

    fn socket(&mut self, name: &str) {
        self.sweep(
            name,
            errnos::SOCKET,
            Steps {
                setup: |world: &World, _| world.enter_a().map_err(err("setns")),
                call: |(): &mut ()| raw::stream(),
                after: nothing,
            },
        );
    }

    /// Sockets without a connection.
    fn sockets(&mut self) {
        let fresh = |world: &World, kept: Option<(OwnedFd, SocketAddrV4)>| match kept {
            Some(kept) => Ok(kept),
            None => {
                world.enter_a().map_err(err("setns"))?;
                let fd = raw::stream().map_err(err("socket"))?;
                Ok((
                    fd,
                    SocketAddrV4::new([0, 0, 0, 0].into(), world.address().port()),
                ))
            }
        };
        self.sweep(
            "bind()",
            errnos::BIND,
            Steps {
                setup: fresh,
                call: |(fd, addr): &mut (OwnedFd, SocketAddrV4)| raw::bind(fd, *addr),
                // The same socket is bound next time.
                after: |_: &World, kept, result: raw::Result<()>| Ok(result.err().map(|_| kept)),
            },
        );
        self.sweep(
            "listen()",
            errnos::LISTEN,
            Steps {
                setup: |world: &World, kept: Option<(OwnedFd, SocketAddrV4)>| {
                    let is_new = kept.is_none();
                    let (fd, addr) = fresh(world, kept)?;
                    if is_new {
                        raw::bind(&fd, addr).map_err(err("bind"))?;
                    }
                    Ok((fd, addr))
                },
                call: |(fd, _): &mut (OwnedFd, SocketAddrV4)| raw::listen(fd, 128),
                after: |_: &World, kept, result: raw::Result<()>| Ok(result.err().map(|_| kept)),
            },
        );
        self.sweep(
            "getsockname()",
            errnos::NAME,
            Steps {
                setup: fresh,
                call: |(fd, _): &mut (OwnedFd, SocketAddrV4)| raw::getsockname(fd),
                after: nothing,
            },
        );
    }

    /// connect(), accept(), and all that connections do.
    fn connections(&mut self) {
        self.opening();
        for (name, sizes, flags) in [
            ("send() of 100 bytes", vec![100], 0),
            ("send() of 5000 bytes", vec![5000], 0),
            ("send() of 16 KiB", vec![16 << 10], 0),
            ("send() of 150000 bytes", vec![150_000], 0),
            (
                "send() of 20000 bytes, MSG_DONTWAIT",
                vec![20_000],
                libc::MSG_DONTWAIT,
            ),
            (
                "send() of 20000 bytes, MSG_ZEROCOPY",
                vec![20_000],
                libc::MSG_ZEROCOPY,
            ),
            ("sendmsg() of 100, 0 and 3000 bytes", vec![100, 0, 3000], 0),
            (
                "sendmsg() of 20000, 1 and 30000 bytes",
                vec![20_000, 1, 30_000],
                0,
            ),
        ] {
            self.sending(name, &sizes, flags);
        }
        for (name, sent, want, flags, pieces) in [
            ("recv() of 100 bytes", 100, 100, 0, false),
            ("recv() of 20000 bytes", 20_000, 20_000, 0, false),
            (
                "recv() of 20000 bytes, MSG_WAITALL",
                20_000,
                20_000,
                libc::MSG_WAITALL,
                false,
            ),
            (
                "recv() of 100 bytes, MSG_PEEK",
                100,
                100,
                libc::MSG_PEEK,
                false,
            ),
            (
                "recv() of 20000 bytes, MSG_PEEK",
                20_000,
                20_000,
                libc::MSG_PEEK,
                false,
            ),
            ("recvmsg() of 100 bytes in two", 100, 100, 0, true),
            ("recvmsg() of 20000 bytes in two", 20_000, 20_000, 0, true),
        ] {
            self.receiving(name, sent, want, flags, pieces);
        }
        self.options();
        self.copying();
        self.lending();
        self.ring();
        self.ending();
    }

    fn opening(&mut self) {
        type Opening = (OwnedFd, (OwnedFd, SocketAddrV4));
        let setup = |world: &World, kept: Option<Opening>| match kept {
            Some(kept) => Ok(kept),
            None => {
                let listener = world.listener().map_err(err("listen"))?;
                Ok((world.client().map_err(err("socket"))?, listener))
            }
        };
        // A further connect() on the same socket completes a failed one.
        let finish = |world: &World, (client, listener): Opening, result: raw::Result<()>| {
            if result.is_err() {
                raw::connect(&client, listener.1).map_err(err("connect, once more"))?;
            }
            let server = world.accept(&listener.0).map_err(err("accept"))?;
            Pair::of(client, server).works()?;
            match raw::poll(&listener.0, libc::POLLIN, 0) {
                Ok(0) => Ok(None),
                _ => Err("a connection too many".into()),
            }
        };
        self.sweep(
            "connect()",
            errnos::CONNECT,
            Steps {
                setup,
                call: |(client, listener): &mut Opening| raw::connect(client, listener.1),
                after: finish,
            },
        );
        self.sweep(
            "accept()",
            errnos::ACCEPT,
            Steps {
                setup: |world: &World, kept: Option<Opening>| {
                    let (client, listener) = setup(world, kept)?;
                    raw::connect(&client, listener.1).map_err(err("connect"))?;
                    Ok((client, listener))
                },
                call: |(_, listener): &mut Opening| raw::accept(&listener.0),
                after: |world: &World,
                        (client, listener): Opening,
                        result: raw::Result<OwnedFd>| {
                    let server = world.accepted(&listener.0, result);
                    let server = server.map_err(err("accept, once more"))?;
                    Pair::of(client, server).works()?;
                    Ok(None)
                },
            },
        );
    }

    /// A path on a connection. `call` gets it; `after` checks the effect.
    pub fn on_pair<R>(
        &mut self,
        name: &str,
        errnos: &[i32],
        mut before: impl FnMut(&mut Pair) -> Outcome<()>,
        call: impl FnMut(&mut Pair) -> raw::Result<R>,
        mut after: impl FnMut(&mut Pair, raw::Result<R>) -> Outcome<()>,
    ) {
        self.sweep(
            name,
            errnos,
            Steps {
                setup: |world: &World, kept: Option<Pair>| {
                    let mut pair = match kept {
                        Some(pair) => pair,
                        None => {
                            let listener = world.listener().map_err(err("listen"))?;
                            let mut pair = Pair::new(world, &listener).map_err(err("connect"))?;
                            // With a window from now on.
                            pair.send(0, 20_000)?;
                            pair.drain(1)?;
                            pair
                        }
                    };
                    before(&mut pair)?;
                    Ok(pair)
                },
                call,
                after: |_: &World, mut pair, result: raw::Result<R>| {
                    after(&mut pair, result)?;
                    pair.works()?;
                    Ok(Some(pair))
                },
            },
        );
    }

    fn sending(&mut self, name: &str, sizes: &[usize], flags: i32) {
        let total: usize = sizes.iter().sum();
        let bytes = std::cell::RefCell::new(Vec::new());
        self.on_pair(
            name,
            errnos::SEND,
            |pair| {
                *bytes.borrow_mut() = pair.lanes[0].next(total);
                Ok(())
            },
            |pair| {
                let bytes = bytes.borrow();
                let mut rest = &bytes[..];
                let mut pieces: [&[u8]; 3] = [&[]; 3];
                for (piece, &size) in pieces.iter_mut().zip(sizes) {
                    (*piece, rest) = rest.split_at(size);
                }
                let flags = flags | libc::MSG_NOSIGNAL;
                if sizes.len() == 1 {
                    raw::send(&pair.ends[0], pieces[0], flags)
                } else {
                    raw::send_pieces(&pair.ends[0], &pieces[..sizes.len()], flags)
                }
            },
            |pair, result| {
                pair.lanes[0].sent += result.unwrap_or(0) as u64;
                pair.drain(1)
            },
        );
    }

    fn receiving(&mut self, name: &str, sent: usize, want: usize, flags: i32, pieces: bool) {
        let buf = std::cell::RefCell::new(vec![0; want]);
        self.on_pair(
            name,
            errnos::RECV,
            |pair| pair.arrive(sent),
            |pair| {
                let buf = &mut *buf.borrow_mut();
                if pieces {
                    let (one, two) = buf.split_at_mut(want / 3);
                    raw::recv_pieces(&pair.ends[1], one, two, flags)
                } else {
                    raw::recv(&pair.ends[1], buf, flags)
                }
            },
            |pair, result| {
                let n = result.unwrap_or(0);
                let got = &buf.borrow()[..n];
                if flags & libc::MSG_PEEK != 0 {
                    pair.lanes[0].expects(got)?;
                } else {
                    pair.lanes[0].take(got)?;
                }
                pair.drain(1)
            },
        );
    }

    fn options(&mut self) {
        self.on_pair(
            "getpeername()",
            errnos::NAME,
            |_| Ok(()),
            |pair| raw::getpeername(&pair.ends[0]),
            |_, _| Ok(()),
        );
        self.on_pair(
            "setsockopt(TCP_NODELAY)",
            errnos::OPTION,
            |_| Ok(()),
            |pair| {
                let on = 1_i32.to_ne_bytes();
                raw::setsockopt(&pair.ends[0], libc::IPPROTO_TCP, libc::TCP_NODELAY, &on)
            },
            |_, _| Ok(()),
        );
        self.on_pair(
            "setsockopt(SO_RCVTIMEO)",
            errnos::OPTION,
            |_| Ok(()),
            |pair| raw::set_recv_timeout(&pair.ends[0], 60_000),
            |_, _| Ok(()),
        );
        for (name, level, option, len) in [
            (
                "ZRS_INFO",
                SOL_ZRS as i32,
                ZRS_INFO as i32,
                size_of::<zrs_info>(),
            ),
            ("SO_ERROR", libc::SOL_SOCKET, libc::SO_ERROR, 4),
            ("TCP_NODELAY", libc::IPPROTO_TCP, libc::TCP_NODELAY, 4),
        ] {
            self.on_pair(
                &format!("getsockopt({name})"),
                errnos::OPTION,
                |_| Ok(()),
                |pair| raw::getsockopt(&pair.ends[0], level, option, &mut [0; 256][..len]),
                |_, _| Ok(()),
            );
        }
        self.on_pair(
            "poll()",
            errnos::POLL,
            |_| Ok(()),
            |pair| raw::poll(&pair.ends[0], libc::POLLOUT | libc::POLLIN, 0),
            |_, result| match result {
                Ok(libc::POLLOUT) | Err(_) => Ok(()),
                Ok(other) => Err(format!("poll says {other:#x}")),
            },
        );
        let epoll = std::cell::RefCell::new(None);
        self.on_pair(
            "epoll_ctl(), epoll_wait()",
            errnos::POLL,
            |_| {
                *epoll.borrow_mut() = Some(raw::epoll().map_err(err("epoll_create"))?);
                Ok(())
            },
            |pair| {
                let epoll = epoll.borrow();
                let epoll = epoll.as_ref().ok_or(Errno(libc::EBADF))?;
                raw::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, &pair.ends[0], libc::EPOLLOUT)?;
                raw::epoll_wait(epoll, 0)
            },
            |_, result| match result {
                Ok(events) if events.len() != 1 => Err(format!("epoll says {events:?}")),
                _ => Ok(()),
            },
        );
        for (name, request) in [("FIONREAD", libc::FIONREAD), ("SIOCOUTQ", libc::TIOCOUTQ)] {
            self.on_pair(
                &format!("ioctl({name})"),
                errnos::IOCTL,
                |_| Ok(()),
                |pair| raw::ioctl_int(&pair.ends[0], request),
                |_, _| Ok(()),
            );
        }
    }

    /// The receive ring: made, mapped, doorbell.
    fn ring(&mut self) {
        let with_pair = |world: &World, kept: Option<Pair>| match kept {
            Some(pair) => Ok(pair),
            None => {
                let listener = world.listener().map_err(err("listen"))?;
                Pair::new(world, &listener).map_err(err("connect"))
            }
        };
        let empty = raw::bytes_of(&zrs_rx_ring::default());
        self.sweep(
            "setsockopt(ZRS_RX_RING)",
            errnos::RING,
            Steps {
                setup: with_pair,
                call: |pair: &mut Pair| {
                    raw::setsockopt(&pair.ends[1], SOL_ZRS as i32, ZRS_RX_RING as i32, &empty)
                },
                // A ring that could not be made can be made next time.
                after: |_: &World, mut pair: Pair, result: raw::Result<()>| {
                    pair.works()?;
                    Ok(result.err().map(|_| pair))
                },
            },
        );
        let ring_of = |pair: &mut Pair| {
            let fd = std::os::fd::AsFd::as_fd(&pair.ends[1]);
            let flags = ZRS_RX_RING_ESCAPE | ZRS_RX_RING_SMALL;
            zrs_sys::sock::rx_ring(fd, flags).map_err(|e| format!("ring: {e}"))
        };
        let layout = std::cell::Cell::new(zrs_rx_ring::default());
        for (name, which) in [("the ring", 0), ("the window", 1), ("the escape area", 2)] {
            self.on_pair(
                &format!("mmap() of {name}"),
                errnos::MMAP,
                |pair| {
                    layout.set(ring_of(pair)?);
                    Ok(())
                },
                |pair| {
                    let ring = layout.get();
                    let fd = std::os::fd::AsFd::as_fd(&pair.ends[1]);
                    // Unmapped when nothing fails any more.
                    let read =
                        |offset, bytes| zrs_sys::Map::shared_read(fd, offset, bytes as usize);
                    let map = match which {
                        0 => {
                            let bytes = ring.ring_bytes as usize;
                            zrs_sys::Map::shared_write(fd, ring.ring_offset, bytes)
                        }
                        1 => read(ring.window_offset, ring.window_bytes),
                        _ => read(ring.escape_offset, ring.escape_bytes),
                    };
                    map.map_err(Into::into)
                },
                |_, _| Ok(()),
            );
        }
        self.on_pair(
            "ioctl(ZRS_IOC_DOORBELL)",
            errnos::NONE,
            |pair| ring_of(pair).map(drop),
            |pair| raw::doorbell(&pair.ends[1]),
            |_, _| Ok(()),
        );
        self.on_pair(
            "getsockopt(ZRS_RX_RING)",
            errnos::OPTION,
            |pair| ring_of(pair).map(drop),
            |pair| {
                let (level, name) = (SOL_ZRS as i32, ZRS_RX_RING as i32);
                raw::getsockopt(&pair.ends[1], level, name, &mut [0; 256])
            },
            |_, _| Ok(()),
        );
    }

    /// shutdown() and close().
    fn ending(&mut self) {
        let with_pair = |world: &World, _: Option<Pair>| {
            let listener = world.listener().map_err(err("listen"))?;
            let mut pair = Pair::new(world, &listener).map_err(err("connect"))?;
            pair.send(0, 3000)?;
            Ok(pair)
        };
        // The other end gets the sent bytes, then the end.
        let ended = |pair: &mut Pair| {
            let mut buf = [0; 4096];
            while pair.lanes[0].got < pair.lanes[0].sent {
                let n = raw::recv(&pair.ends[1], &mut buf, 0).map_err(err("recv"))?;
                if n == 0 {
                    return Err("an early end".into());
                }
                pair.lanes[0].take(&buf[..n])?;
            }
            match raw::recv(&pair.ends[1], &mut buf, 0) {
                Ok(0) => Ok(()),
                other => Err(format!("at the end: {other:?}")),
            }
        };
        self.sure(
            "shutdown()",
            Steps {
                setup: with_pair,
                call: |pair: &mut Pair| raw::shutdown(&pair.ends[0], libc::SHUT_WR),
                after: |_: &World, mut pair: Pair, _: raw::Result<()>| {
                    ended(&mut pair)?;
                    Ok(None)
                },
            },
        );
        type Closing = (Option<OwnedFd>, Pair);
        self.sure(
            "close()",
            Steps {
                setup: |world: &World, _: Option<Closing>| {
                    let pair = with_pair(world, None)?;
                    // The pair keeps a descriptor of something else.
                    let other = raw::epoll().map_err(err("epoll_create"))?;
                    let Pair { ends, lanes } = pair;
                    let [client, server] = ends;
                    let ends = [other, server];
                    Ok((Some(client), Pair { ends, lanes }))
                },
                call: |(client, _): &mut Closing| client.take().map_or(Ok(()), raw::close),
                after: |_: &World, (_, mut pair): Closing, _: raw::Result<()>| {
                    ended(&mut pair)?;
                    Ok(None)
                },
            },
        );
    }

    /// A path that cannot fail.
    fn sure<T>(
        &mut self,
        name: &str,
        steps: Steps<
            impl FnMut(&World, Option<T>) -> Outcome<T>,
            impl FnMut(&mut T) -> raw::Result<()>,
            impl FnMut(&World, T, raw::Result<()>) -> Outcome<Option<T>>,
        >,
    ) {
        self.sweep(name, errnos::NONE, steps);
    }
}
