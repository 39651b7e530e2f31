// SPDX-License-Identifier: GPL-2.0
//! Round trips on many connections at once, alone and beside one that sends as much as it can: each asks again as
//! soon as it is answered. One thread at each end has all of them.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use rustix::event::epoll;
use zrs_bench::{median, percentile};

use super::control::{Job, Values};
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// Bytes in one send of bulk data.
const PIECE: usize = 1 << 20;
/// Round trips on each connection before the timed ones.
const WARM: u64 = 2;

fn broken<T>(result: std::io::Result<T>) -> Result<T> {
    said(result, || "the connection broke off".into())
}

/// Connections, and what waits for all of them.
struct Watched {
    epoll: std::os::fd::OwnedFd,
    conns: Vec<Conn>,
}

impl Watched {
    fn new(conns: Vec<Conn>) -> Result<Self> {
        let epoll = said(
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Into::into),
            || "no epoll".into(),
        )?;
        for (n, conn) in conns.iter().enumerate() {
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

    /// `count` round trips on each connection, and on until `enough`; microseconds.
    fn ask(&self, size: u64, count: u64, enough: impl Fn() -> bool) -> Result<Vec<f64>> {
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
}

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let connect = || -> Result<Conn> {
        let conn = transport.connect(addr)?;
        said(conn.set_nodelay(), || "cannot switch delays off".into())?;
        Ok(conn)
    };
    let bulk = connect()?;
    let all = Watched::new(
        (0..job.connections)
            .map(|_| connect())
            .collect::<Result<_>>()?,
    )?;
    all.ask(job.size, WARM, || true)?;
    let start = Instant::now();
    let alone = all.ask(job.size, job.count, || true)?;
    let (sent, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (beside, rate) = thread::scope(|scope| {
        let sender = scope.spawn(|| -> std::io::Result<()> {
            let piece = vec![0x5a; PIECE];
            while !stop.load(Relaxed) {
                (&mut &bulk).write_all(&piece)?;
                sent.fetch_add(1, Relaxed);
            }
            Ok(())
        });
        // It is under way, and is in the end.
        while sent.load(Relaxed) == 0 && !sender.is_finished() {
            thread::yield_now();
        }
        let (start, before) = (Instant::now(), sent.load(Relaxed));
        let moved = || sent.load(Relaxed) - before;
        let beside = all.ask(job.size, job.count, || moved() > 0 || sender.is_finished());
        let rate = moved() as f64 * PIECE as f64 / f64::from(1 << 20);
        let rate = rate / start.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        let sent = sender
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the sending thread died")));
        broken(sent)?;
        Ok::<_, String>((beside?, rate))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (alone_p99, beside_p99) = (percentile(&alone, 0.99), percentile(&beside, 0.99));
    Ok([
        ("connections", job.connections as f64),
        ("seconds", seconds),
        ("alone_median_us", median(&alone)),
        ("alone_p99_us", alone_p99),
        ("beside_median_us", median(&beside)),
        ("beside_p99_us", beside_p99),
        ("bulk_mib_s", rate),
        ("p99_ratio", beside_p99 / alone_p99),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part: takes the bulk data, and sends all else back, until the ends.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    let accept = || said(listener.accept(), || "cannot accept".into());
    let bulk = accept()?;
    let conns = (0..job.connections)
        .map(|_| accept())
        .collect::<Result<Vec<_>>>()?;
    for conn in &conns {
        said(conn.set_nodelay(), || "cannot switch delays off".into())?;
    }
    let all = Watched::new(conns)?;
    thread::scope(|scope| {
        let sink = scope.spawn(|| -> std::io::Result<()> {
            let mut buf = vec![0; PIECE];
            while (&mut &bulk).read(&mut buf)? > 0 {}
            Ok(())
        });
        let answered = answer(all, job.size);
        let taken = sink
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the receiving thread died")));
        answered.and(broken(taken))
    })?;
    Ok(Values::new())
}

/// Sends back what comes, until all connections have ended.
fn answer(all: Watched, size: u64) -> Result<()> {
    let mut open: Vec<bool> = vec![true; all.conns.len()];
    let mut message = vec![0; size as usize];
    while open.contains(&true) {
        for n in all.ready()? {
            let mut conn = &all.conns[n];
            match broken(conn.read(&mut message))? {
                0 => {
                    let fd = conn.as_fd().ok_or("rsockets have no descriptors")?;
                    let removed = epoll::delete(&all.epoll, fd);
                    said(removed.map_err(Into::into), || {
                        "cannot stop watching".into()
                    })?;
                    open[n] = false;
                }
                some => {
                    broken(conn.read_exact(&mut message[some..]))?;
                    broken(conn.write_all(&message))?;
                }
            }
        }
    }
    Ok(())
}
