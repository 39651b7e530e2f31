// SPDX-License-Identifier: GPL-2.0
//! Round trips, alone and during a bulk transfer on another connection: on many connections at
//! once, and on one.

use std::time::Instant;

use zrs_bench::{median, percentile};

use super::bulk::{beside, sink_beside};
use super::control::{Job, Values};
use super::latency;
use super::watched::Watched;
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// Bytes in one send of bulk data.
const PIECE: usize = 1 << 20;
/// Round trips on each connection before the timed ones.
const WARM: u64 = 2;
/// Pieces before the timed ones: filling the kernels' buffers is no throughput.
const FILL: u64 = 12;
/// The fewest pieces that a rate of bulk data is of.
const PIECES: u64 = 8;

fn connect(transport: Transport, addr: &str) -> Result<Conn> {
    let conn = transport.connect(addr)?;
    said(conn.set_nodelay(), || "cannot switch delays off".into())?;
    Ok(conn)
}

fn accept(listener: &Listener) -> Result<Conn> {
    let conn = said(listener.accept(), || "cannot accept".into())?;
    said(conn.set_nodelay(), || "cannot switch delays off".into())?;
    Ok(conn)
}

fn mib_s(pieces_s: f64) -> f64 {
    pieces_s * PIECE as f64 / f64::from(1 << 20)
}

/// The client's part, many connections.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let bulk = [connect(transport, addr)?];
    let all = Watched::connect(transport, addr, job.connections)?;
    all.ask(job.size, WARM, || true)?;
    let start = Instant::now();
    let alone = all.ask(job.size, job.count, || true)?;
    let (beside, rate) = beside(&bulk, PIECE, |bulk| {
        // It is under way, and is in the end.
        bulk.wait(1);
        bulk.rate(1, |enough| all.ask(job.size, job.count, enough))
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
        ("bulk_mib_s", mib_s(rate)),
        ("p99_ratio", beside_p99 / alone_p99),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part: takes the bulk data, and sends all else back, until the ends.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    let bulk = accept(listener)?;
    let all = Watched::accept(listener, job.connections)?;
    sink_beside(&bulk, || all.answer())?;
    Ok(Values::new())
}

/// The client's part, one connection.
pub fn near_one(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let bulk = [connect(transport, addr)?];
    let conn = connect(transport, addr)?;
    let trips = |enough: &dyn Fn() -> bool| latency::trips(&conn, job, enough);
    let start = Instant::now();
    let alone = trips(&|| true)?;
    let ((), bulk_alone, times, bulk_beside) = beside(&bulk, PIECE, |bulk| {
        bulk.wait(FILL);
        let (waited, alone) = bulk.rate(0, |_| {
            bulk.wait(PIECES);
            Ok(())
        })?;
        let (times, rate) = bulk.rate(PIECES, trips)?;
        Ok((waited, alone, times, rate))
    })?;
    Ok([
        ("trips", times.len() as f64),
        ("seconds", start.elapsed().as_secs_f64()),
        ("alone_median_us", median(&alone)),
        ("alone_p99_us", percentile(&alone, 0.99)),
        ("beside_median_us", median(&times)),
        ("beside_p99_us", percentile(&times, 0.99)),
        ("bulk_alone_mib_s", mib_s(bulk_alone)),
        ("bulk_mib_s", mib_s(bulk_beside)),
        ("bulk_ratio", bulk_beside / bulk_alone),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part, one connection.
pub fn far_one(listener: &Listener, job: &Job) -> Result<Values> {
    let bulk = accept(listener)?;
    let conn = accept(listener)?;
    sink_beside(&bulk, || latency::far(&conn, job).map(drop))?;
    Ok(Values::new())
}
