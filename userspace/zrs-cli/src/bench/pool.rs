// SPDX-License-Identifier: GPL-2.0
//! What readers that have stopped take from one that goes on: the throughput of a connection alone, and beside
//! one and many neighbours, the sender of each of which has sent until it could send no more.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::control::{Answer, Control, Job, Values};
use super::hold::{busy, end};
use super::memory::{expect_held, talk};
use super::stream;
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// Bytes in one send of a neighbour.
const PIECE: usize = 64 << 10;
/// Nothing could be sent for so long: no more can.
const STILL: Duration = Duration::from_millis(200);
/// Messages before the timed ones.
const WARM: u64 = 4;

/// Waits until the neighbours, which have sent so much each, can send no more.
fn full(sent: &[AtomicU64]) {
    let mut last = 0;
    loop {
        thread::sleep(STILL);
        let all: u64 = sent.iter().map(|n| n.load(Relaxed)).sum();
        if all == last && sent.iter().all(|n| n.load(Relaxed) > 0) {
            return;
        }
        last = all;
    }
}

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job, control: &mut Control) -> Result<Values> {
    let connect = |count: u64| {
        (0..count)
            .map(|_| transport.connect(addr))
            .collect::<Result<Vec<_>>>()
    };
    let conns = connect(1)?;
    busy(&conns, job, WARM)?;
    let alone = busy(&conns, job, job.count)?;
    let neighbours = connect(job.connections)?;
    expect_held(control)?;
    let sent: Vec<_> = neighbours.iter().map(|_| AtomicU64::new(0)).collect();
    let (one, all) = thread::scope(|scope| {
        let mut start = neighbours
            .iter()
            .zip(&sent)
            .map(|(conn, sent)| scope.spawn(|| fill(conn, sent)));
        start.next();
        full(&sent[..1]);
        let one = busy(&conns, job, job.count);
        start.for_each(drop);
        full(&sent);
        let all = busy(&conns, job, job.count);
        // The server ends all of them when this one has ended, and so the neighbours stop.
        end(&conns)?;
        Ok::<_, String>((one?, all?))
    })?;
    let in_mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mib = in_mib(job.count * job.size);
    let unread = sent.iter().map(|n| n.load(Relaxed)).sum();
    Ok([
        ("connections", 1.0 + neighbours.len() as f64),
        ("seconds", alone + one + all),
        ("neighbours_mib", in_mib(unread)),
        ("alone_mib_s", mib / alone),
        ("beside_1_mib_s", mib / one),
        ("beside_16_mib_s", mib / all),
        ("ratio_1", alone / one),
        ("ratio_16", alone / all),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// Sends until the connection ends.
fn fill(mut conn: &Conn, sent: &AtomicU64) {
    let piece = vec![0x5a; PIECE];
    while let Ok(n) = conn.write(&piece) {
        sent.fetch_add(n as u64, Relaxed);
    }
    // Nobody is to wait for one that never could.
    sent.fetch_max(1, Relaxed);
}

/// The server's part: reads from the first connection only.
pub fn far(listener: &Listener, job: &Job, control: &mut Control) -> Result<Values> {
    let accept = || said(listener.accept(), || "cannot accept".into());
    let conn = accept()?;
    thread::scope(|scope| {
        let stream = scope.spawn(|| stream::far(&conn, job).map(drop));
        let stopped = (0..job.connections)
            .map(|_| accept())
            .collect::<Result<Vec<_>>>()?;
        talk(control.say(&Answer::Held))?;
        let done = stream.join();
        drop(stopped);
        done.unwrap_or_else(|_| Err("the busy connection's thread died".into()))
    })?;
    Ok(Values::new())
}
