// SPDX-License-Identifier: GPL-2.0
//! Connections, one after the other: each is made, and ended at once.

use std::time::Instant;

use super::control::{Job, Values};
use crate::transport::{Listener, Transport};
use crate::{said, Result};

/// The client's part.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let start = Instant::now();
    for _ in 0..job.count {
        drop(transport.connect(addr)?);
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok([
        ("connections", job.count as f64),
        ("seconds", seconds),
        ("per_s", job.count as f64 / seconds),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    for _ in 0..job.count {
        drop(said(listener.accept(), || "cannot accept".into())?);
    }
    Ok(Values::new())
}
