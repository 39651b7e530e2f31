// SPDX-License-Identifier: GPL-2.0
//! The two hosts, and a connection between them whose every byte is known.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use zrs_sys::abi::{zrs_ioc_stats, ZRS_TCP_AUTO};

use crate::support::pattern::Pattern;
use crate::support::process;
use crate::support::raw::{self, Errno, Result};

/// The two network namespaces. A socket belongs to the namespace in which it is made.
pub struct World {
    a: File,
    b: File,
    ip: Ipv4Addr,
    port: AtomicU16,
    device: zrs_sys::Device,
    /// Whether its sockets have TCP beside ZRS.
    pub beside: bool,
    /// How much slower than usual everything is.
    pub scale: u32,
}

impl World {
    pub fn new(ip: Ipv4Addr, scale: u32, beside: bool) -> std::io::Result<Self> {
        Ok(Self {
            a: File::open("/run/netns/zrsA")?,
            b: File::open("/run/netns/zrsB")?,
            ip,
            port: AtomicU16::new(10_000),
            device: zrs_sys::Device::open()?,
            beside,
            scale,
        })
    }

    /// A socket in host A, whose calls end in time.
    pub fn client(&self) -> Result<OwnedFd> {
        self.enter_a()?;
        self.limited(self.stream()?)
    }

    /// A socket in the network namespace of this thread.
    fn stream(&self) -> Result<OwnedFd> {
        let fd = raw::stream()?;
        if self.beside {
            raw::set_tcp(&fd, ZRS_TCP_AUTO)?;
        }
        Ok(fd)
    }

    pub fn enter_a(&self) -> Result<()> {
        process::set_network(&self.a)
    }

    pub fn enter_b(&self) -> Result<()> {
        process::set_network(&self.b)
    }

    /// A socket that listens in host B, and where.
    pub fn listener(&self) -> Result<(OwnedFd, SocketAddrV4)> {
        self.enter_b()?;
        let fd = self.limited(self.stream()?)?;
        let addr = self.address();
        raw::bind(&fd, addr)?;
        raw::listen(&fd, 16)?;
        Ok((fd, addr))
    }

    /// An unused address of host B.
    pub fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.ip, self.port.fetch_add(1, Ordering::Relaxed))
    }

    /// Nothing may take longer, ever.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(u64::from(10 * self.scale))
    }

    /// Makes a connection that ZRS alone carries, so that each host knows that the other one has it.
    pub fn meet(&self) -> Result<()> {
        self.enter_b()?;
        let there = self.limited(raw::stream()?)?;
        let addr = self.address();
        raw::bind(&there, addr)?;
        raw::listen(&there, 1)?;
        self.enter_a()?;
        let here = self.limited(raw::stream()?)?;
        raw::connect(&here, addr)?;
        self.accept(&there).map(drop)
    }

    /// The connection of an accept() that may have failed: then it waits for the next one.
    pub fn accepted(&self, listener: &OwnedFd, result: Result<OwnedFd>) -> Result<OwnedFd> {
        result.or_else(|_| self.accept(listener))
    }

    /// Waits end by EAGAIN when they take too long, which no table of errnos has.
    pub fn limited(&self, fd: OwnedFd) -> Result<OwnedFd> {
        let ms = self.limit().as_millis() as u32;
        raw::set_recv_timeout(&fd, ms)?;
        raw::set_send_timeout(&fd, ms)?;
        Ok(fd)
    }

    pub fn accept(&self, listener: &OwnedFd) -> Result<OwnedFd> {
        self.limited(raw::accept(listener)?)
    }

    pub fn stats(&self) -> std::result::Result<zrs_ioc_stats, String> {
        self.device.stats().map_err(|e| format!("stats: {e}"))
    }

    /// Waits until `done` holds of the counters.
    pub fn wait(
        &self,
        what: &str,
        done: impl Fn(&zrs_ioc_stats) -> bool,
    ) -> std::result::Result<(), String> {
        let end = Instant::now() + self.limit() + self.limit() / 2;
        loop {
            let stats = self.stats()?;
            if done(&stats) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!(
                    "{what}: sockets={} channels={} links={} pages_pinned={} pool_used={}",
                    stats.sockets, stats.channels, stats.links, stats.pages_pinned, stats.pool_used
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the module holds nothing of the last test.
    pub fn idle(&self) -> std::result::Result<(), String> {
        self.wait("not idle", |s| {
            s.sockets == 0 && s.channels == 0 && s.pages_pinned == 0 && s.pool_used == 0
        })
    }
}

/// One direction of a connection.
pub struct Lane {
    pattern: Pattern,
    pub sent: u64,
    pub got: u64,
}

impl Lane {
    pub fn new(direction: u64) -> Self {
        Self {
            pattern: Pattern::new(7, direction, 0),
            sent: 0,
            got: 0,
        }
    }

    /// The next bytes to send.
    pub fn next(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.pattern.fill(self.sent, &mut bytes);
        bytes
    }

    /// Compares bytes that follow the last received ones.
    pub fn expects(&self, bytes: &[u8]) -> std::result::Result<(), String> {
        match self.pattern.mismatch(self.got, bytes) {
            Some(at) => Err(format!("wrong byte at {at}")),
            None => Ok(()),
        }
    }

    /// These were received.
    pub fn take(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        self.expects(bytes)?;
        self.got += bytes.len() as u64;
        if self.got > self.sent {
            return Err(format!("{} bytes of {}", self.got, self.sent));
        }
        Ok(())
    }
}

/// A connection: the client's end first, the server's second.
pub struct Pair {
    pub ends: [OwnedFd; 2],
    /// Out of the end of the same index.
    pub lanes: [Lane; 2],
}

impl Pair {
    pub fn new(world: &World, listener: &(OwnedFd, SocketAddrV4)) -> Result<Self> {
        let client = world.client()?;
        raw::connect(&client, listener.1)?;
        let server = world.accept(&listener.0)?;
        Ok(Self::of(client, server))
    }

    pub fn of(client: OwnedFd, server: OwnedFd) -> Self {
        Self {
            ends: [client, server],
            lanes: [Lane::new(0), Lane::new(1)],
        }
    }

    /// Sends `len` bytes out of end `from`, all of them.
    pub fn send(&mut self, from: usize, len: usize) -> std::result::Result<(), String> {
        let bytes = self.lanes[from].next(len);
        let mut done = 0;
        while done < len {
            let n = raw::send(&self.ends[from], &bytes[done..], libc::MSG_NOSIGNAL)
                .map_err(|e| format!("send: {e}"))?;
            done += n;
        }
        self.lanes[from].sent += len as u64;
        Ok(())
    }

    /// Sends `len` bytes from the client's end, and waits until all have arrived.
    pub fn arrive(&mut self, len: usize) -> std::result::Result<(), String> {
        self.send(0, len)?;
        for _ in 0..20_000 {
            if raw::ioctl_int(&self.ends[1], libc::FIONREAD) == Ok(len as i32) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("it does not arrive".into())
    }

    /// Receives all that was sent to end `at`.
    pub fn drain(&mut self, at: usize) -> std::result::Result<(), String> {
        let lane = &mut self.lanes[1 - at];
        let mut buf = vec![0; 64 << 10];
        while lane.got < lane.sent {
            let want = buf.len().min((lane.sent - lane.got) as usize);
            match raw::recv(&self.ends[at], &mut buf[..want], 0) {
                Ok(0) => return Err(format!("end after {} of {}", lane.got, lane.sent)),
                Ok(n) => lane.take(&buf[..n])?,
                Err(e) => return Err(format!("recv: {e} after {} of {}", lane.got, lane.sent)),
            }
        }
        // And not a byte more.
        match raw::recv(&self.ends[at], &mut buf[..1], libc::MSG_DONTWAIT) {
            Err(Errno(libc::EAGAIN)) => Ok(()),
            other => Err(format!("after all bytes: {other:?}")),
        }
    }

    /// Data in flight arrives, and more can be sent both ways.
    pub fn works(&mut self) -> std::result::Result<(), String> {
        for (from, len) in [(0, 100), (1, 100), (0, 5000)] {
            self.send(from, len)?;
            self.drain(1 - from)?;
        }
        Ok(())
    }
}
