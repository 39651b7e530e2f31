// SPDX-License-Identifier: GPL-2.0
//! Messages a second, one way: one and four threads send on one connection, and on many in turn.
//! The server has a thread for each connection.

use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use super::control::{Job, Values};
use super::hold::end;
use super::rx::Rx;
use super::tx::Tx;
use crate::transport::{Conn, Transport};
use crate::{said, Result};

/// Threads that send.
const THREADS: [usize; 2] = [1, 4];
/// Messages before the timed ones, on each connection.
const WARM: u64 = 16;

/// The part of thread `thread` of `threads`. With fewer connections than threads, the threads share
/// each connection's messages; else they share the connections.
fn send(conns: &[Conn], job: &Job, thread: usize, threads: usize, each: u64) -> Result<()> {
    let (skip, step, count) = match conns.len() < threads {
        true => {
            let more = (thread as u64) < each % threads as u64;
            (0, 1, each / threads as u64 + u64::from(more))
        }
        false => (thread, threads, each),
    };
    let own = conns.iter().skip(skip).step_by(step);
    let mut own = own
        .map(|conn| Tx::new(conn, job))
        .collect::<Result<Vec<_>>>()?;
    for _ in 0..count {
        for tx in &mut own {
            said(tx.send(1), || "the connection broke off".into())?;
        }
    }
    Ok(())
}

/// Sends `each` messages on each connection by `threads` threads; seconds.
fn phase(conns: &[Conn], job: &Job, threads: usize, each: u64) -> Result<f64> {
    let broken = |result: io::Result<()>| said(result, || "the connection broke off".into());
    let start = Instant::now();
    for mut conn in conns {
        broken(conn.write_all(&each.to_be_bytes()))?;
    }
    thread::scope(|scope| {
        let senders: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || send(conns, job, thread, threads, each)))
            .collect();
        let join = |t: thread::ScopedJoinHandle<'_, Result<()>>| {
            t.join()
                .unwrap_or_else(|_| Err("a sending thread died".into()))
        };
        let sent: Vec<_> = senders.into_iter().map(join).collect();
        sent.into_iter().collect::<Result<()>>()
    })?;
    for conn in conns {
        let mut rx = Rx::new(conn, job.carrier, job.size)?;
        match said(rx.number(), || "the connection broke off".into())? {
            answer if answer == each => {}
            answer => return Err(format!("{each} messages were sent, the answer is {answer}")),
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let conns = (0..job.connections)
        .map(|_| transport.connect(addr))
        .collect::<Result<Vec<_>>>()?;
    for conn in &conns {
        said(conn.set_nodelay(), || "cannot switch delays off".into())?;
    }
    phase(&conns, job, 1, WARM)?;
    let mut values = Values::new();
    let mut all = 0.0;
    for conns in [&conns[..1], &conns] {
        let each = job.count.div_ceil(conns.len() as u64);
        for threads in THREADS {
            let seconds = phase(conns, job, threads, each)?;
            let rate = (each * conns.len() as u64) as f64 / seconds;
            values.insert(format!("per_s_{threads}_{}", conns.len()), rate);
            all += seconds;
        }
    }
    end(&conns)?;
    values.insert("connections".into(), conns.len() as f64);
    values.insert("seconds".into(), all);
    Ok(values)
}
