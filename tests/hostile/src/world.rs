// SPDX-License-Identifier: GPL-2.0
//! The surroundings of the cases: the module's host with its sockets, its counters, and the way to
//! it.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::thread::{self, sleep, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, Protocol, SocketType};
use zrs::{Listener, MemStats, Stats, Stream, Zrs, IPPROTO_ZRS};
use zrs_core::wire::Hello;
use zrs_sys::abi::ZRS_TCP_AUTO;
use zrs_sys::sock::set_tcp;

use crate::bystander::Bystander;
use crate::peer::{hello, said, Chan, Peer};
use crate::verbs::{self, in_net, Endpoint};

/// The port of the connection manager that ZRS hosts speak to each other on.
pub const SERVICE: u16 = 340;

pub type Outcome = io::Result<()>;

/// The victim of the cases.
pub struct World {
    /// Our address.
    pub local: Ipv4Addr,
    /// Another one of ours: to the module that is another host.
    pub other: Ipv4Addr,
    /// The address of the module's host, and the network namespace where it is.
    pub victim: Ipv4Addr,
    pub net: String,
    /// How much longer everything takes than on a fast machine.
    pub scale: u32,
    /// How much more patience than usual the run has.
    patience: u32,
    pub seed: u64,
    /// How long the random cases run.
    pub seconds: u64,
    pub zrs: Zrs,
    pub bystander: Option<Bystander>,
    next_port: u16,
    next_source: u16,
}

/// A listening ZRS socket of the module's host.
pub struct Victim {
    pub listener: Listener,
    pub port: u16,
}

impl Victim {
    /// The connection that has been accepted on the wire.
    pub fn accept(&self, world: &World) -> io::Result<Stream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_read_timeout(Some(world.limit(10)))?;
        stream.set_write_timeout(Some(world.limit(10)))?;
        Ok(stream)
    }
}

impl World {
    pub fn new(
        local: Ipv4Addr,
        victim: Ipv4Addr,
        net: &str,
        scale: u32,
        seed: u64,
        seconds: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            local,
            other: Ipv4Addr::from_bits(local.to_bits() + 1),
            victim,
            net: net.to_string(),
            scale,
            patience: std::env::var("LIMIT_SCALE")
                .ok()
                .and_then(|n| n.parse().ok())
                .unwrap_or(1),
            seed,
            seconds,
            zrs: Zrs::open()?,
            bystander: None,
            next_port: 0,
            next_source: 0,
        })
    }

    /// A time limit.
    pub fn limit(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds * u64::from(self.scale) * u64::from(self.patience))
    }

    /// An address of ours that ordinary programs may not speak from.
    pub fn source(&mut self) -> SocketAddrV4 {
        self.next_source = (self.next_source + 1) % 500;
        SocketAddrV4::new(self.local, 520 + self.next_source)
    }

    /// Sources of ours from this port on.
    pub fn speak_from(&mut self, port: u16) {
        self.next_source = port.wrapping_sub(521) % 500;
    }

    pub fn service(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.victim, SERVICE)
    }

    /// A listener at the module's host.
    pub fn listen(&mut self) -> io::Result<Victim> {
        self.next_port = (self.next_port + 1) % 20_000;
        let port = 10_000 + self.next_port;
        let addr = SocketAddrV4::new(self.victim, port);
        let listener = in_net(&self.net, || Listener::bind(addr))?;
        Ok(Victim { listener, port })
    }

    /// A link of ours to the module.
    pub fn link(&mut self) -> io::Result<Peer> {
        self.link_as(hello(), true)
    }

    /// A link with another hello, or without receives.
    pub fn link_as(&mut self, hello: Hello, recvs: bool) -> io::Result<Peer> {
        self.link_from(None, hello, recvs)
    }

    /// The same, from another address of ours, if one is given.
    pub fn link_from(
        &mut self,
        from: Option<Ipv4Addr>,
        hello: Hello,
        recvs: bool,
    ) -> io::Result<Peer> {
        let end = Instant::now() + self.limit(10);
        loop {
            let mut source = self.source();
            source.set_ip(from.unwrap_or(*source.ip()));
            match Peer::connect(source, self.service(), hello, recvs, self.limit(10)) {
                // The blocks of links that are being taken down are promised until they are gone;
                // a port may still be in use.
                Err(e)
                    if Instant::now() < end
                        && matches!(
                            e.kind(),
                            ErrorKind::ConnectionRefused | ErrorKind::AddrInUse
                        ) =>
                {
                    sleep(Duration::from_millis(50));
                }
                result => return result,
            }
        }
    }

    /// A link with a channel on it, and the socket at the other end.
    pub fn channel(&mut self) -> io::Result<(Peer, Chan, Stream, Victim)> {
        self.channel_as(hello())
    }

    /// The same, on a link with another hello.
    pub fn channel_as(&mut self, hello: Hello) -> io::Result<(Peer, Chan, Stream, Victim)> {
        let victim = self.listen()?;
        let mut peer = self.link_as(hello, true)?;
        let chan = peer.open(victim.port, self.limit(10))?;
        let stream = victim.accept(self)?;
        Ok((peer, chan, stream, victim))
    }

    /// A program at the module's host connects to us.
    pub fn caller(&self) -> JoinHandle<io::Result<Stream>> {
        self.caller_with(Stream::connect)
    }

    /// One that connects by this.
    pub fn caller_with(
        &self,
        connect: fn(SocketAddrV4) -> io::Result<Stream>,
    ) -> JoinHandle<io::Result<Stream>> {
        let (net, limit) = (self.net.clone(), self.limit(10));
        let to = SocketAddrV4::new(self.local, 7000);
        thread::spawn(move || {
            let stream = in_net(&net, || connect(to))?;
            stream.set_read_timeout(Some(limit))?;
            stream.set_write_timeout(Some(limit))?;
            Ok(stream)
        })
    }

    /// One that TCP may carry instead.
    pub fn caller_beside_tcp(&self) -> JoinHandle<io::Result<Stream>> {
        self.caller_with(|to| {
            let protocol = NonZeroU32::new(IPPROTO_ZRS).map(Protocol::from_raw);
            let fd = net::socket(AddressFamily::INET, SocketType::STREAM, protocol)?;
            set_tcp(fd.as_fd(), ZRS_TCP_AUTO)?;
            net::connect(&fd, &to)?;
            Ok(fd.into())
        })
    }

    /// We take the links of the module's host.
    pub fn serve(&self) -> io::Result<verbs::Listener> {
        verbs::Listener::bind(SocketAddrV4::new(self.local, SERVICE))
    }

    /// The next link that the module makes, not answered yet.
    pub fn request(&self, server: &verbs::Listener) -> io::Result<(Endpoint, Vec<u8>)> {
        server.request(self.limit(10))
    }

    /// The next link that the module makes, accepted.
    pub fn take_link(&self, server: &verbs::Listener) -> io::Result<Peer> {
        let (ep, theirs) = self.request(server)?;
        Peer::accept(ep, &theirs, &hello().encode(), true, self.limit(10))
    }

    /// The module's counters; of the pool, what is used besides the bystander's windows. Those may be
    /// revoked, and exchanged for larger ones, at any time: both are read until two readings agree, or
    /// the last one is taken after a second.
    pub fn stats(&self) -> io::Result<Stats> {
        let read = || -> io::Result<(Stats, u64)> {
            let windows = self.bystander.as_ref().map_or(Ok(0), Bystander::windows)?;
            Ok((self.zrs.stats()?, windows))
        };
        let end = Instant::now() + self.limit(1);
        let mut before = read()?;
        loop {
            let (mut stats, windows) = read()?;
            let same = (stats.pool_used, windows) == (before.0.pool_used, before.1);
            if same || Instant::now() > end {
                stats.pool_used = stats.pool_used.saturating_sub(windows);
                return Ok(stats);
            }
            before = (stats, windows);
        }
    }

    /// The counters of memory nodes of the module's host.
    pub fn mem_stats(&self) -> io::Result<MemStats> {
        in_net(&self.net, || self.zrs.mem_stats())
    }

    /// Waits until the module's resources are the same as before the case. A window of the bystander's
    /// that was given back, but not yet to the pool, may be in use besides in `base` only.
    pub fn settled(&self, base: &Stats, seconds: u64) -> Outcome {
        let end = Instant::now() + self.limit(seconds);
        loop {
            let now = self.stats()?;
            let left: Vec<String> = [
                ("sockets", now.sockets, base.sockets),
                ("channels", now.channels, base.channels),
                ("links", now.links, base.links),
                ("pool_used", now.pool_used, base.pool_used),
                ("pages_pinned", now.pages_pinned, base.pages_pinned),
            ]
            .iter()
            .filter(|(name, now, before)| match *name {
                "pool_used" => now > before,
                _ => now != before,
            })
            .map(|(name, now, before)| format!("{name} {before} -> {now}"))
            .collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(said(&format!("left behind: {}", left.join(", "))));
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// The module closes the link because of what we said: we see it, and it counts it.
    pub fn expect_violation(&self, peer: &mut Peer, before: &Stats) -> Outcome {
        let Some(_) = peer.closed(self.limit(10)) else {
            return Err(said("the link was not closed"));
        };
        let count = self.stats()?.protocol_errors - before.protocol_errors;
        if count != 1 {
            return Err(said(&format!("{count} violations counted, expected 1")));
        }
        Ok(())
    }

    /// The link is closed, by the device: nothing was said that the module could count.
    pub fn expect_closed(&self, peer: &mut Peer, before: &Stats) -> Outcome {
        peer.closed(self.limit(10))
            .ok_or_else(|| said("the link was not closed"))?;
        match self.stats()?.protocol_errors - before.protocol_errors {
            0 => Ok(()),
            n => Err(said(&format!("{n} violations counted, expected none"))),
        }
    }

    /// The module has let it pass: nothing counted, and it answers.
    pub fn expect_alive(&self, peer: &mut Peer, before: &Stats) -> Outcome {
        peer.alive(self.limit(10))?;
        match self.stats()?.protocol_errors - before.protocol_errors {
            0 => Ok(()),
            n => Err(said(&format!("{n} violations counted, expected none"))),
        }
    }
}

/// Reads to the end: what came, and the errno, or 0 at the end of the stream.
pub fn drain(stream: &mut Stream) -> (Vec<u8>, i32) {
    let (mut all, mut buf) = (Vec::new(), vec![0; 65_536]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return (all, 0),
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(e) => return (all, zrs::os_error(&e).unwrap_or(-1)),
        }
    }
}

/// The socket ends with this errno (0: the end of the stream), behind `before`.
pub fn expect_end(stream: &mut Stream, before: &[u8], errno: &[i32]) -> Outcome {
    let (all, end) = drain(stream);
    if !all.starts_with(before) {
        return Err(said("what had arrived before was not delivered"));
    }
    if !errno.contains(&end) {
        return Err(said(&format!(
            "the socket ended with errno {end}, expected {errno:?}"
        )));
    }
    Ok(())
}

/// The call failed with one of these.
pub fn expect_errno<T>(result: io::Result<T>, errno: &[i32]) -> Outcome {
    match result {
        Ok(_) => Err(said("the call succeeded")),
        Err(e) => match zrs::os_error(&e) {
            Some(n) if errno.contains(&n) => Ok(()),
            _ => Err(said(&format!("{e}, expected errno {errno:?}"))),
        },
    }
}

/// The result of a thread.
pub fn joined<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|e| std::panic::resume_unwind(e))
}
