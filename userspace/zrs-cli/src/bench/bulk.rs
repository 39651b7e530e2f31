// SPDX-License-Identifier: GPL-2.0
//! Bulk transfers that run during a measurement.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::transport::Conn;
use crate::{said, Result};

/// The interval of checks of the bytes sent.
const LOOK: Duration = Duration::from_millis(1);
/// The receiver's buffer.
const BUFFER: usize = 1 << 20;

/// The running senders.
pub struct Senders<'a> {
    /// Messages that each has sent.
    sent: &'a [AtomicU64],
    /// One of them has failed.
    failed: &'a AtomicBool,
}

impl Senders<'_> {
    /// Messages that each has sent so far.
    pub fn sent(&self) -> Vec<u64> {
        self.sent.iter().map(|n| n.load(Relaxed)).collect()
    }

    fn total(&self) -> u64 {
        self.sent().iter().sum()
    }

    /// Whether they have sent `messages` since their total was `since`, or one has failed.
    fn have(&self, messages: u64, since: u64) -> bool {
        self.total() - since >= messages || self.failed.load(Relaxed)
    }

    /// Waits until they have sent `messages` more.
    pub fn wait(&self, messages: u64) {
        let since = self.total();
        while !self.have(messages, since) {
            thread::sleep(LOOK);
        }
    }

    /// Messages a second while `work` runs; it is told whether they have sent `least` since it
    /// began.
    pub fn rate<T>(
        &self,
        least: u64,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T>,
    ) -> Result<(T, f64)> {
        let (start, since) = (Instant::now(), self.total());
        let result = work(&|| self.have(least, since))?;
        let rate = (self.total() - since) as f64 / start.elapsed().as_secs_f64();
        Ok((result, rate))
    }
}

/// Runs `work` while each of `conns` sends messages of `size` bytes, one after the other.
pub fn beside<T>(
    conns: &[Conn],
    size: usize,
    work: impl FnOnce(&Senders) -> Result<T>,
) -> Result<T> {
    let sent: Vec<_> = conns.iter().map(|_| AtomicU64::new(0)).collect();
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let message = vec![0x5a; size];
    let send = |mut conn: &Conn, sent: &AtomicU64| -> io::Result<()> {
        while !stop.load(Relaxed) {
            conn.write_all(&message)
                .inspect_err(|_| failed.store(true, Relaxed))?;
            sent.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let send = &send;
        let threads: Vec<_> = conns
            .iter()
            .zip(&sent)
            .map(|(conn, sent)| scope.spawn(move || send(conn, sent)))
            .collect();
        let result = work(&Senders {
            sent: &sent,
            failed: &failed,
        });
        stop.store(true, Relaxed);
        for thread in threads {
            let sent = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a sending thread died")));
            said(sent, || "the connection broke off".into())?;
        }
        result
    })
}

/// Receives to the end.
pub fn sink(mut conn: &Conn) -> Result<()> {
    let mut buf = vec![0; BUFFER];
    loop {
        if said(conn.read(&mut buf), || "the connection broke off".into())? == 0 {
            return Ok(());
        }
    }
}

/// Runs `work` while another thread receives on `conn`, to its end.
pub fn sink_beside(conn: &Conn, work: impl FnOnce() -> Result<()>) -> Result<()> {
    thread::scope(|scope| {
        let sink = scope.spawn(|| sink(conn));
        let done = work();
        let taken = sink
            .join()
            .unwrap_or_else(|_| Err("the receiving thread died".into()));
        done.and(taken)
    })
}
