// SPDX-License-Identifier: GPL-2.0
//! Connections, one after the other: each is made, and ended at once, or after a request and a
//! response.

use std::io::{self, Read, Write};
use std::time::Instant;

use super::control::{Job, Values};
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// Bytes of a request.
const REQUEST: usize = 64;

fn broken<T>(result: io::Result<T>) -> Result<T> {
    said(result, || "the connection broke off".into())
}

/// The client's part. A job without a size has no requests.
pub fn near(transport: Transport, addr: &str, job: &Job) -> Result<Values> {
    let mut response = vec![0; job.size as usize];
    let start = Instant::now();
    for _ in 0..job.count {
        let conn = transport.connect(addr)?;
        if job.size > 0 {
            broken(ask(&conn, &mut response))?;
        }
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

fn ask(mut conn: &Conn, response: &mut [u8]) -> io::Result<()> {
    conn.set_nodelay()?;
    conn.write_all(&[0x5a; REQUEST])?;
    conn.read_exact(response)
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job) -> Result<Values> {
    let response = vec![0x5a; job.size as usize];
    for _ in 0..job.count {
        let conn = said(listener.accept(), || "cannot accept".into())?;
        if job.size > 0 {
            broken(respond(&conn, &response))?;
        }
    }
    Ok(Values::new())
}

/// Answers, and waits until the client has ended the connection.
fn respond(mut conn: &Conn, response: &[u8]) -> io::Result<()> {
    let mut request = [0; REQUEST];
    conn.set_nodelay()?;
    conn.read_exact(&mut request)?;
    conn.write_all(response)?;
    match conn.read(&mut request) {
        Ok(0) => Ok(()),
        // The client just closes.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Ok(_) => Err(io::Error::other("the client sends more than a request")),
        Err(e) => Err(e),
    }
}
