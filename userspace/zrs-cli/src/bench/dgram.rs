// SPDX-License-Identifier: GPL-2.0
//! Measures of datagrams: round trips, a rate one way, and a flood beside a stream.
//!
//! The first byte of a datagram says whether the server sends the datagram back. A number follows, which tells the answer
//! to a datagram from a late answer to another one. An answer also says that all datagrams before it have arrived, or are lost.
//! The client ends its part by [`Go`].

mod socket;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use zrs_bench::{median, percentile, Measure};

use super::bulk::{beside, sink};
use super::control::{Control, Go, Job, Values};
use super::server::{ready, transport};
use crate::{said, Result};
use socket::{Socket, BATCH};

/// The lengths of datagrams that are measured: with room for a number, and up to UDP's longest by IPv4.
pub const LEAST: u64 = 16;
pub const MOST: u64 = 65_507;

/// The first byte of one that is sent back, and of one that is not.
const ASK: u8 = 1;
const TELL: u8 = 0;
/// How long the client waits for an answer, and how often before it gives up.
const WAIT: Duration = Duration::from_millis(300);
const PATIENCE: u32 = 40;
/// How long the server waits before it looks whether the client has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Round trips before the timed ones.
const WARM: u64 = 8;
/// Bytes in one send of the stream.
const PIECE: usize = 1 << 20;
/// Such pieces before the timed ones: filling the kernels' buffers is no throughput.
const FILL: u64 = 12;

/// The client's end.
struct Client {
    socket: Socket,
    message: Vec<u8>,
    answer: Vec<u8>,
    number: u64,
    /// Datagrams that were sent again.
    lost: u64,
}

impl Client {
    fn new(job: &Job, own: IpAddr, server: SocketAddr) -> Result<Self> {
        let socket = Socket::bind(job.carrier, SocketAddr::new(own, 0), WAIT)?;
        socket.connect(server)?;
        let mut client = Self {
            socket,
            message: vec![0x5a; job.size as usize],
            answer: vec![0; job.size as usize],
            number: 0,
            lost: 0,
        };
        // The way has to be found, and a link to be made.
        for _ in 0..WARM {
            client.trip()?;
        }
        client.lost = 0;
        Ok(client)
    }

    /// A round trip, in microseconds; of a datagram that is lost the next one is taken.
    fn trip(&mut self) -> Result<f64> {
        for _ in 0..PATIENCE {
            self.number += 1;
            self.message[0] = ASK;
            self.message[1..9].copy_from_slice(&self.number.to_be_bytes());
            let start = Instant::now();
            said(self.socket.send(&self.message), cannot_send)?;
            while let Some((len, _)) = said(self.socket.recv(&mut self.answer), cannot_receive)? {
                if len == self.message.len() && self.answer[..9] == self.message[..9] {
                    return Ok(start.elapsed().as_secs_f64() * 1e6);
                }
            }
            self.lost += 1;
        }
        Err("no datagram comes back".into())
    }

    /// Sends `count` datagrams that the server takes.
    fn tell(&mut self, count: u64) -> Result<()> {
        self.message[0] = TELL;
        said(self.socket.send_many(&self.message, count), cannot_send)
    }
}

fn cannot_send() -> String {
    "a datagram cannot be sent".into()
}

fn cannot_receive() -> String {
    "a datagram cannot be received".into()
}

/// The client's part, `own` being its own address.
pub fn near(job: &Job, own: IpAddr, server: SocketAddr, control: &mut Control) -> Result<Values> {
    let mut client = Client::new(job, own, server)?;
    let values = match job.measure {
        Measure::DgramLatency => trips(&mut client, job),
        Measure::DgramRate => rate(&mut client, job),
        _ => flood(&mut client, job, server),
    }?;
    said(control.say(&Go), || "the server is gone".into())?;
    Ok(named(&values))
}

fn named(values: &[(&str, f64)]) -> Values {
    let owned = values.iter().map(|&(name, value)| (name.into(), value));
    owned.collect()
}

fn trips(client: &mut Client, job: &Job) -> Result<Vec<(&'static str, f64)>> {
    let start = Instant::now();
    let times: Vec<f64> = (0..job.count)
        .map(|_| client.trip())
        .collect::<Result<_>>()?;
    Ok(vec![
        ("trips", times.len() as f64),
        ("seconds", start.elapsed().as_secs_f64()),
        ("median_us", median(&times)),
        ("p99_us", percentile(&times, 0.99)),
        ("lost", client.lost as f64),
    ])
}

fn rate(client: &mut Client, job: &Job) -> Result<Vec<(&'static str, f64)>> {
    let start = Instant::now();
    client.tell(job.count)?;
    let sending = start.elapsed().as_secs_f64();
    client.trip()?;
    let sent = (job.count * job.size) as f64 / f64::from(1 << 20);
    Ok(vec![
        ("sent_mib_s", sent / sending),
        ("messages", job.count as f64),
        ("seconds", start.elapsed().as_secs_f64()),
    ])
}

/// Sends `job.count` pieces by a stream alone, and then `job.count` pieces while datagrams are sent.
fn flood(client: &mut Client, job: &Job, server: SocketAddr) -> Result<Vec<(&'static str, f64)>> {
    let conn = [transport(job.carrier).connect(&server.to_string())?];
    said(conn[0].set_nodelay(), || "cannot switch delays off".into())?;
    let start = Instant::now();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (alone, among, per_s) = beside(&conn, PIECE, |stream| {
        let timed = || {
            let waited = stream.rate(0, |_| {
                stream.wait(job.count);
                Ok(())
            })?;
            Ok::<f64, String>(waited.1)
        };
        stream.wait(FILL);
        let alone = timed()?;
        thread::scope(|scope| {
            let flood = scope.spawn(|| -> Result<()> {
                while !stop.load(Relaxed) {
                    client.tell(BATCH)?;
                    sent.fetch_add(BATCH, Relaxed);
                }
                Ok(())
            });
            // The datagrams are under way.
            stream.wait(1);
            let (before, since) = (sent.load(Relaxed), Instant::now());
            let among = timed();
            let per_s = (sent.load(Relaxed) - before) as f64 / since.elapsed().as_secs_f64();
            stop.store(true, Relaxed);
            let died = |_| Err("the thread that sends datagrams died".into());
            flood.join().unwrap_or_else(died)?;
            Ok((alone, among?, per_s))
        })
    })?;
    let mib_s = |pieces_s: f64| pieces_s * PIECE as f64 / f64::from(1 << 20);
    Ok(vec![
        ("seconds", start.elapsed().as_secs_f64()),
        ("alone_mib_s", mib_s(alone)),
        ("beside_mib_s", mib_s(among)),
        ("beside_ratio", among / alone),
        ("sent_per_s", per_s),
    ])
}

/// The datagrams that the server has taken.
#[derive(Default)]
struct Taken {
    datagrams: u64,
    /// From the first to the last one.
    time: Duration,
}

/// Sends back what asks for it and takes all else, until `stop`.
fn serve(socket: &Socket, stop: &AtomicBool) -> Result<Taken> {
    let mut buf = vec![0; MOST as usize];
    let mut taken = Taken::default();
    let mut first = None;
    loop {
        match said(socket.recv(&mut buf), cannot_receive)? {
            None if stop.load(Relaxed) => return Ok(taken),
            None | Some((0, _)) => {}
            Some((len, from)) if buf[0] == ASK => {
                said(socket.send_to(&buf[..len], from), cannot_send)?;
            }
            Some(_) => {
                let now = Instant::now();
                taken.datagrams += 1;
                taken.time = now - *first.get_or_insert(now);
            }
        }
    }
}

/// The server's part.
pub fn far(job: &Job, ip: IpAddr, control: &mut Control) -> Result<Values> {
    if !(LEAST..=MOST).contains(&job.size) {
        return Err(format!("no datagram of {} bytes is measured", job.size));
    }
    let listener = match job.measure {
        Measure::DgramFlood => Some(transport(job.carrier).listen(&format!("{ip}:0"))?),
        _ => None,
    };
    // A stream's port is in use for streams only.
    let port = match &listener {
        Some(listener) => said(listener.local_addr(), || "no own address".into())?.port(),
        None => 0,
    };
    let socket = Socket::bind(job.carrier, SocketAddr::new(ip, port), LOOK)?;
    ready(control, socket.port()?)?;
    let stop = AtomicBool::new(false);
    let taken = thread::scope(|scope| {
        let server = scope.spawn(|| serve(&socket, &stop));
        let mut wait = || -> Result<()> {
            if let Some(listener) = &listener {
                sink(&said(listener.accept(), || "cannot accept".into())?)?;
            }
            let gone = || "the client is gone".to_string();
            said(control.must_hear::<Go>(), gone).map(drop)
        };
        let waited = wait();
        stop.store(true, Relaxed);
        let taken = server
            .join()
            .unwrap_or_else(|_| Err("the thread that takes datagrams died".into()));
        waited.and(taken)
    })?;
    Ok(named(&figures(job, &taken)))
}

/// The server's figures. The first datagram is where the time begins.
fn figures(job: &Job, taken: &Taken) -> Vec<(&'static str, f64)> {
    let per_s = taken.datagrams.saturating_sub(1) as f64 / taken.time.as_secs_f64();
    let per_s = if per_s.is_finite() { per_s } else { 0.0 };
    match job.measure {
        Measure::DgramRate => vec![
            ("mib_s", per_s * job.size as f64 / f64::from(1 << 20)),
            ("per_s", per_s),
            ("lost", 1.0 - taken.datagrams as f64 / job.count as f64),
        ],
        Measure::DgramFlood => vec![("arrived_per_s", per_s)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::Carrier;

    #[test]
    fn what_arrives_and_what_does_not() {
        let job = Job {
            measure: Measure::DgramRate,
            carrier: Carrier::Udp,
            size: 1024,
            count: 4096,
            connections: 1,
        };
        let taken = Taken {
            datagrams: 2049,
            time: Duration::from_secs(1),
        };
        let values = named(&figures(&job, &taken));
        assert_eq!((values["mib_s"], values["per_s"]), (2.0, 2048.0));
        assert!((values["lost"] - 2047.0 / 4096.0).abs() < 1e-12);
        let none = named(&figures(&job, &Taken::default()));
        assert_eq!((none["mib_s"], none["lost"]), (0.0, 1.0));
    }
}
