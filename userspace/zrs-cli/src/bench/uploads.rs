// SPDX-License-Identifier: GPL-2.0
//! Bulk transfers on many connections at once: their sum, and the ratio of the slowest to the
//! fastest.

use std::time::Instant;

use super::bulk::{beside, sink};
use super::control::{Job, Values};
use super::hold::at_once;
use super::memory::open;
use crate::transport::{Listener, Transport};
use crate::{said, Result};

/// Connections that send at once.
const LOADS: [u64; 3] = [17, 32, 64];
/// Messages on each, in the mean, before the timed ones; and the fewest timed ones.
const WARM: u64 = 2;
const LEAST: u64 = 4;

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let conns = open(transport, addr, job.connections)?;
    let mib = job.size as f64 / f64::from(1 << 20);
    let mut values = Values::new();
    let begin = Instant::now();
    for load in LOADS {
        let sending = &conns[..conns.len().min(load as usize)];
        let (sent, rate) = beside(sending, job.size as usize, |all| {
            all.wait(WARM * load);
            let before = all.sent();
            let ((), rate) = all.rate(0, |_| {
                all.wait(job.count.max(LEAST * load));
                Ok(())
            })?;
            let sent: Vec<u64> = all.sent().iter().zip(before).map(|(a, b)| a - b).collect();
            Ok((sent, rate))
        })?;
        let least = sent.iter().min().copied().unwrap_or(0);
        let most = sent.iter().max().copied().unwrap_or(0);
        values.insert(format!("sum_{load}_mib_s"), rate * mib);
        values.insert(format!("ratio_{load}"), least as f64 / most as f64);
    }
    values.insert("connections".into(), conns.len() as f64);
    values.insert("seconds".into(), begin.elapsed().as_secs_f64());
    Ok(values)
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    let conns = (0..job.connections)
        .map(|_| said(listener.accept(), || "cannot accept".into()))
        .collect::<Result<Vec<_>>>()?;
    at_once(&conns, sink)?;
    Ok(Values::new())
}
