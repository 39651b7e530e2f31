// SPDX-License-Identifier: GPL-2.0
//! The effect of stopped readers on a running one: the throughput of a connection alone, together
//! with one and with many neighbours whose senders have sent until they could send no more, and
//! alone again when they are gone. Changes in the machine's speed during the measurement are in
//! neither ratio: both are to the mean of the first and the last.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::control::{Answer, Control, Go, Job, Values};
use super::hold::{busy, end};
use super::memory::{expect_held, talk};
use super::stream;
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// Bytes in one send of a neighbour.
const PIECE: usize = 64 << 10;
/// Without progress for this time, the sender cannot send any more.
const STILL: Duration = Duration::from_millis(200);
/// Messages before the timed ones, each time.
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

/// Seconds that the messages on the connection take.
fn phase(conns: &[Conn], job: &Job) -> Result<f64> {
    busy(conns, job, WARM)?;
    busy(conns, job, job.count)
}

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job, control: &mut Control) -> Result<Values> {
    let connect = |count: u64| {
        (0..count)
            .map(|_| transport.connect(addr))
            .collect::<Result<Vec<_>>>()
    };
    let conns = connect(1)?;
    let first = phase(&conns, job)?;
    let neighbours = connect(job.connections)?;
    expect_held(control)?;
    let sent: Vec<_> = neighbours.iter().map(|_| AtomicU64::new(0)).collect();
    let (one, all, last) = thread::scope(|scope| {
        let mut start = neighbours
            .iter()
            .zip(&sent)
            .map(|(conn, sent)| scope.spawn(|| fill(conn, sent)));
        start.next();
        full(&sent[..1]);
        let one = phase(&conns, job);
        start.for_each(drop);
        full(&sent);
        let all = phase(&conns, job);
        // The server ends the neighbours, and so their senders stop.
        talk(control.say(&Go))?;
        expect_held(control)?;
        let last = phase(&conns, job);
        end(&conns)?;
        Ok::<_, String>((one?, all?, last?))
    })?;
    let alone = (first + last) / 2.0;
    let in_mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mib = in_mib(job.count * job.size);
    let unread = sent.iter().map(|n| n.load(Relaxed)).sum();
    Ok([
        ("connections", 1.0 + neighbours.len() as f64),
        ("seconds", first + one + all + last),
        ("neighbours_mib", in_mib(unread)),
        ("alone_first_mib_s", mib / first),
        ("alone_last_mib_s", mib / last),
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
    // So that no thread waits for a sender that could not send at all.
    sent.fetch_max(1, Relaxed);
}

/// The server's part: reads from the first connection only, and ends the others when the client
/// says so.
pub fn far(listener: &Listener, job: &Job, control: &mut Control) -> Result<Values> {
    let accept = || said(listener.accept(), || "cannot accept".into());
    let conn = accept()?;
    thread::scope(|scope| {
        let stream = scope.spawn(|| stream::far(&conn, job).map(drop));
        let stopped = (0..job.connections)
            .map(|_| accept())
            .collect::<Result<Vec<_>>>()?;
        talk(control.say(&Answer::Held))?;
        talk(control.must_hear::<Go>())?;
        drop(stopped);
        talk(control.say(&Answer::Held))?;
        let done = stream.join();
        done.unwrap_or_else(|_| Err("the busy connection's thread died".into()))
    })?;
    Ok(Values::new())
}
