// SPDX-License-Identifier: GPL-2.0
//! Round trips a second of many connections at once, with a server of one thread and epoll.

use std::time::Instant;

use zrs_bench::{median, percentile};

use super::control::{Job, Values};
use super::watched::Watched;
use crate::transport::{Listener, Transport};
use crate::Result;

/// Round trips on each connection before the timed ones.
const WARM: u64 = 2;

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let all = Watched::connect(transport, addr, job.connections)?;
    all.ask(job.size, WARM, || true)?;
    let start = Instant::now();
    let times = all.ask(job.size, job.count, || true)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok([
        ("connections", job.connections as f64),
        ("seconds", seconds),
        ("per_s", times.len() as f64 / seconds),
        ("median_us", median(&times)),
        ("p99_us", percentile(&times, 0.99)),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    Watched::accept(listener, job.connections)?.answer()?;
    Ok(Values::new())
}
