// SPDX-License-Identifier: GPL-2.0
//! `zrs ping`.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::report::{json_line, out};
use crate::transport::{Conn, Transport};
use crate::{said, Result};

/// Measure round trips to `zrs ping --listen`
///
/// Sends messages of one size over one connection and waits for each to come back whole.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["addr", "listen"])))]
pub struct Args {
    /// Where the other side listens
    #[arg(value_name = "ADDR:PORT")]
    addr: Option<String>,
    /// Be the other side: send back what comes, to any number of connections
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Messages to send; 0 is without end
    #[arg(short = 'c', long, default_value_t = 5)]
    count: u64,
    /// Bytes in a message
    #[arg(short = 's', long, default_value_t = 56, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: u32,
    /// Seconds between messages
    #[arg(short = 'i', long, default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print one JSON object as the last line on stdout
    #[arg(long)]
    json: bool,
    /// The transport of the bytes
    #[arg(long, value_enum, default_value = "zrs")]
    transport: Transport,
}

fn interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds between 0 and 86400 are wanted".into()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    match (&args.listen, &args.addr) {
        (Some(addr), _) => listen(args, addr),
        (None, Some(addr)) => ping(args, addr),
        (None, None) => Err("where to? give ADDR:PORT or --listen".into()),
    }
}

fn listen(args: &Args, addr: &str) -> Result<()> {
    let listener = args.transport.listen(addr)?;
    let addr = said(listener.local_addr(), || {
        "cannot tell the own address".into()
    })?;
    eprintln!("listening on {addr}");
    loop {
        let conn = said(listener.accept(), || format!("cannot accept on {addr}"))?;
        thread::spawn(move || echo(conn));
    }
}

/// Sends back what comes, until the end or an error: either way the peer is done.
fn echo(mut conn: Conn) {
    let _ = conn.set_nodelay();
    let mut buf = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = conn.read(&mut buf) {
        if conn.write_all(&buf[..len]).is_err() {
            return;
        }
    }
    let _ = conn.shutdown_write();
}

/// Least, sum and greatest of the round trips.
#[derive(Default)]
struct Times {
    count: u64,
    min: f64,
    sum: f64,
    max: f64,
}

impl Times {
    fn add(&mut self, ms: f64) {
        self.min = if self.count == 0 {
            ms
        } else {
            self.min.min(ms)
        };
        self.max = self.max.max(ms);
        self.sum += ms;
        self.count += 1;
    }

    fn avg(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

fn ping(args: &Args, addr: &str) -> Result<()> {
    let conn = args.transport.connect(addr)?;
    said(conn.set_nodelay(), || "cannot switch delays off".into())?;
    let mut times = Times::default();
    let mut sent = 0;
    let result = messages(args, addr, conn, &mut times, &mut sent);
    if args.json {
        json_line(&json!({
            "sent": sent, "received": times.count, "size": args.size,
            "min_ms": times.min, "avg_ms": times.avg(), "max_ms": times.max,
        }));
    } else {
        out(&format!(
            "\n--- {addr} ping statistics ---\n{sent} sent, {} received\n",
            times.count
        ));
        if times.count > 0 {
            let (min, avg, max) = (times.min, times.avg(), times.max);
            out(&format!(
                "rtt min/avg/max = {min:.3}/{avg:.3}/{max:.3} ms\n"
            ));
        }
    }
    result
}

fn messages(
    args: &Args,
    addr: &str,
    mut conn: Conn,
    times: &mut Times,
    sent: &mut u64,
) -> Result<()> {
    let size = args.size as usize;
    let mut answer = vec![0; size];
    while args.count == 0 || *sent < args.count {
        if *sent > 0 {
            thread::sleep(Duration::from_secs_f64(args.interval));
        }
        *sent += 1;
        let message: Vec<u8> = (0..size).map(|i| (i as u64 ^ *sent) as u8).collect();
        let start = Instant::now();
        said(exchange(&mut conn, &message, &mut answer), || {
            format!("no answer from {addr}")
        })?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if answer != message {
            return Err(format!("{addr} answered with other bytes than it was sent"));
        }
        times.add(ms);
        if !args.json {
            out(&format!(
                "{size} bytes from {addr}: seq={sent} time={ms:.3} ms\n"
            ));
        }
    }
    Ok(())
}

/// Sends `message` and reads as much back. In steps, so that two sides that send at once do not
/// fill each other's buffers and stop.
fn exchange(conn: &mut Conn, message: &[u8], answer: &mut [u8]) -> std::io::Result<()> {
    const STEP: usize = 64 * 1024;
    for (message, answer) in message.chunks(STEP).zip(answer.chunks_mut(STEP)) {
        conn.write_all(message)?;
        conn.read_exact(answer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn least_mean_greatest() {
        let mut times = Times::default();
        assert_eq!(times.avg(), 0.0);
        for ms in [2.0, 1.0, 6.0] {
            times.add(ms);
        }
        assert_eq!((times.min, times.avg(), times.max), (1.0, 3.0, 6.0));
    }
}
