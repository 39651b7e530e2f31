// SPDX-License-Identifier: GPL-2.0
//! Round trips: a message goes, and comes back whole.

use std::io::{self, Write};
use std::time::Instant;

use zrs_bench::{median, percentile};

use super::control::{Job, Values};
use super::rx::Rx;
use crate::transport::Conn;
use crate::{said, Result};

/// Round trips before the timed ones.
const WARM: u64 = 8;

/// `job.count` round trips, and more until `enough`; microseconds.
pub fn trips(conn: &Conn, job: &Job, enough: impl Fn() -> bool) -> Result<Vec<f64>> {
    let mut rx = Rx::new(conn, job.carrier, job.size)?;
    let message = vec![0x5a; job.size as usize];
    let mut answer = vec![0; job.size as usize];
    let mut times = Vec::with_capacity(job.count as usize);
    let mut trip = 0;
    while trip < WARM + job.count || !enough() {
        let start = Instant::now();
        let there = (&mut &*conn)
            .write_all(&message)
            .and_then(|()| rx.fill(&mut answer));
        match said(there, || "the connection broke off".into())? {
            true if trip >= WARM => times.push(start.elapsed().as_secs_f64() * 1e6),
            true => {}
            false => return Err("the server ended the connection".into()),
        }
        trip += 1;
    }
    if answer != message {
        return Err("what came back is not what was sent".into());
    }
    Ok(times)
}

/// The client's part.
pub fn near(conn: &Conn, job: &Job) -> Result<Values> {
    let times = trips(conn, job, || true)?;
    Ok([
        ("trips", times.len() as f64),
        ("seconds", times.iter().sum::<f64>() / 1e6),
        ("median_us", median(&times)),
        ("p99_us", percentile(&times, 0.99)),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part: an echo, to the end of the stream.
pub fn far(conn: &Conn, job: &Job) -> Result<Values> {
    let mut rx = Rx::new(conn, job.carrier, job.size)?;
    let mut message = vec![0; job.size as usize];
    loop {
        match rx.fill(&mut message) {
            Ok(true) => {}
            Ok(false) => return Ok(Values::new()),
            // The client closes when it is done.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(Values::new()),
            Err(e) => return Err(format!("the connection broke off: {}", zrs::reason(&e))),
        }
        said((&mut &*conn).write_all(&message), || {
            "the connection broke off".into()
        })?;
    }
}
