// SPDX-License-Identifier: GPL-2.0
//! Throughput, one way and both ways: phases, each a number of bytes that goes first, the bytes in
//! messages of one size, and an answer when all of them have been taken. The first phase warms up,
//! the last is timed; where costs are measured, they are the difference between the last two. Zero
//! bytes are the end.

use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use zrs_bench::{Carrier, Measure};

use super::client::Marks;
use super::control::{Job, Values};
use super::meter::{self, Meter};
use super::rx::Rx;
use super::tx::Tx;
use crate::transport::Conn;
use crate::{said, Result};

/// Sends while receiving as much, or one after the other's header.
fn exchange(tx: &mut Tx, rx: &mut Rx, size: u64, count: u64) -> io::Result<()> {
    thread::scope(|scope| {
        let sender = scope.spawn(|| tx.send(count));
        let received = rx.skip(count * size);
        let sent = sender
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the sending thread died")));
        received.and(sent)
    })
}

fn broken(result: io::Result<()>) -> Result<()> {
    said(result, || "the connection broke off".into())
}

/// Messages of the phase that warms up: windows are leased, paths are known.
fn warm(size: u64) -> u64 {
    (64 * 1024 / size.max(1)).clamp(2, 256)
}

/// The client's part.
pub fn near(conn: &Conn, job: &Job, marks: &mut Marks) -> Result<Values> {
    let both = job.measure == Measure::BothWays;
    // A side that only receives answers needs no window.
    let carrier = match job.carrier {
        ring if ring.by_ring() && !both => Carrier::Zrs,
        other => other,
    };
    let mut rx = Rx::new(conn, carrier, job.size)?;
    let mut tx = Tx::new(conn, job)?;
    let warm = Job {
        count: warm(job.size),
        ..*job
    };
    broken(phase(conn, &mut rx, &mut tx, &warm))?;
    let cost = job.measure == Measure::Cost;
    let mut part = |count, mark: &str| -> Result<(Values, f64)> {
        let meter = cost.then(|| Meter::start(job.carrier.is_zrs()));
        marks.put(&format!("{mark}start"));
        let start = Instant::now();
        broken(phase(conn, &mut rx, &mut tx, &Job { count, ..*job }))?;
        let seconds = start.elapsed().as_secs_f64();
        marks.put(&format!("{mark}end"));
        Ok((meter.map(Meter::stop).unwrap_or_default(), seconds))
    };
    let (mut values, seconds) = if cost {
        // Of the same memory: how many pages are neighbours is the same in both.
        let base = meter::base(job.count);
        let (before, _) = part(base, "base-")?;
        let (all, seconds) = part(base + job.count, "")?;
        let share = job.count as f64 / (base + job.count) as f64;
        (meter::less(all, &before), seconds * share)
    } else {
        part(job.count, "")?
    };
    broken((&mut &*conn).write_all(&0u64.to_be_bytes()))?;
    let bytes = (job.count * job.size) as f64 * if both { 2.0 } else { 1.0 };
    values.insert("bytes".into(), bytes);
    values.insert("messages".into(), job.count as f64);
    values.insert("seconds".into(), seconds);
    values.insert("mib_s".into(), bytes / f64::from(1 << 20) / seconds);
    Ok(values)
}

/// One phase, the client's part.
pub fn phase(mut conn: &Conn, rx: &mut Rx, tx: &mut Tx, job: &Job) -> io::Result<()> {
    let count = job.count;
    conn.write_all(&count.to_be_bytes())?;
    match job.measure {
        Measure::BothWays => exchange(tx, rx, job.size, count)?,
        _ => tx.send(count)?,
    }
    match rx.number()? {
        answer if answer == count => Ok(()),
        answer => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{count} messages were sent, the answer is {answer}"),
        )),
    }
}

/// The server's part.
pub fn far(conn: &Conn, job: &Job) -> Result<Values> {
    let both = job.measure == Measure::BothWays;
    let mut rx = Rx::new(conn, job.carrier, job.size)?;
    let mut tx = Tx::new(conn, job)?;
    let (mut values, mut before) = (Values::new(), Values::new());
    let cost = job.measure == Measure::Cost;
    loop {
        let count = said(rx.number(), || "the connection broke off".into())?;
        if count == 0 {
            return Ok(values);
        }
        let bytes = count
            .checked_mul(job.size)
            .ok_or("the client asks for too much")?;
        let meter = cost.then(|| Meter::start(job.carrier.is_zrs()));
        broken(match both {
            true => exchange(&mut tx, &mut rx, job.size, count),
            false => rx.skip(bytes),
        })?;
        broken((&mut &*conn).write_all(&count.to_be_bytes()))?;
        let mut now = meter.map(Meter::stop).unwrap_or_default();
        if let Some(&calls) = now.get("calls") {
            now.insert("recv_calls".into(), calls);
        }
        values = meter::less(now.clone(), &before);
        before = now;
    }
}
