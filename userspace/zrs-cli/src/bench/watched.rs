// SPDX-License-Identifier: GPL-2.0
//! Round trips on many connections at once: each asks again as soon as it is answered. One thread
//! with epoll at each end has all of them; the answering one does not block, as in redis.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll;

use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// The answering side's buffer.
const BUFFER: usize = 64 << 10;

fn broken<T>(result: io::Result<T>) -> Result<T> {
    said(result, || "the connection broke off".into())
}

/// Connections, and the epoll instance that watches them.
pub struct Watched {
    epoll: OwnedFd,
    conns: Vec<Conn>,
}

impl Watched {
    /// `count` new connections.
    pub fn connect(transport: Transport, addr: &str, count: u64) -> Result<Self> {
        Self::new(count, || transport.connect(addr))
    }

    /// The next `count` connections of a listener.
    pub fn accept(listener: &Listener, count: u64) -> Result<Self> {
        Self::new(count, || said(listener.accept(), || "cannot accept".into()))
    }

    fn new(count: u64, one: impl Fn() -> Result<Conn>) -> Result<Self> {
        let conns = (0..count).map(|_| one()).collect::<Result<Vec<_>>>()?;
        let epoll = said(
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Into::into),
            || "no epoll".into(),
        )?;
        for (n, conn) in conns.iter().enumerate() {
            said(conn.set_nodelay(), || "cannot switch delays off".into())?;
            let fd = conn.as_fd().ok_or("rsockets have no descriptors")?;
            let data = epoll::EventData::new_u64(n as u64);
            let added = epoll::add(&epoll, fd, data, epoll::EventFlags::IN);
            said(added.map_err(Into::into), || "cannot watch".into())?;
        }
        Ok(Self { epoll, conns })
    }

    /// Which connections something has come to.
    fn ready(&self) -> Result<Vec<usize>> {
        let mut room = [MaybeUninit::uninit(); 64];
        let ready = epoll::wait(&self.epoll, &mut room, None);
        let (ready, _) = said(ready.map_err(Into::into), || "cannot wait".into())?;
        Ok(ready.iter().map(|e| e.data.u64() as usize).collect())
    }

    /// `count` round trips on each connection, and more until `enough`; microseconds.
    pub fn ask(&self, size: u64, count: u64, enough: impl Fn() -> bool) -> Result<Vec<f64>> {
        let question = vec![0x5a; size as usize];
        let mut answer = vec![0; size as usize];
        let mut asked = vec![(0, Instant::now()); self.conns.len()];
        let mut times = Vec::new();
        for (conn, (_, since)) in self.conns.iter().zip(&mut asked) {
            *since = Instant::now();
            broken((&mut &*conn).write_all(&question))?;
        }
        let mut left = self.conns.len();
        while left > 0 {
            for n in self.ready()? {
                let (mut conn, (trips, since)) = (&self.conns[n], &mut asked[n]);
                broken(conn.read_exact(&mut answer))?;
                times.push(since.elapsed().as_secs_f64() * 1e6);
                *trips += 1;
                if *trips < count || !enough() {
                    *since = Instant::now();
                    broken(conn.write_all(&question))?;
                } else {
                    left -= 1;
                }
            }
        }
        if answer != question {
            return Err("what came back is not what was sent".into());
        }
        Ok(times)
    }

    /// An echo, until all connections have ended.
    pub fn answer(&self) -> Result<()> {
        let mut left = self.conns.len();
        let mut buf = vec![0; BUFFER];
        while left > 0 {
            for n in self.ready()? {
                let conn = &self.conns[n];
                match conn.recv_now(&mut buf) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    got => match broken(got)? {
                        0 => {
                            let fd = conn.as_fd().ok_or("rsockets have no descriptors")?;
                            let removed = epoll::delete(&self.epoll, fd);
                            said(removed.map_err(Into::into), || {
                                "cannot stop watching".into()
                            })?;
                            left -= 1;
                        }
                        got => broken(conn.send_polling(&buf[..got]))?,
                    },
                }
            }
        }
        Ok(())
    }
}
