// SPDX-License-Identifier: GPL-2.0
//! Many connections between two hosts. Shared by the programs here and those of the receive pool: a
//! server that listens on several ports, as one port of a client's host can be connected to each of
//! them, and an additional connection, the *control*, over which the two ends exchange numbers.

pub mod churn;
pub mod crowd;
pub mod fair;

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::checks::{say, Checks};
use crate::support::raw::{self, Result};

/// Which end it is, and over how many ports.
#[derive(clap::Args)]
pub struct Ends {
    #[command(flatten)]
    pub end: crate::support::args::End,
    /// Server: ports to listen on; the client is told
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub ports: u64,
}

/// Numbers to and from the other end.
pub struct Control(OwnedFd);

impl Control {
    /// To the other end.
    pub fn tell(&self, number: u64) -> Result<()> {
        raw::send_all(&self.0, &number.to_be_bytes())
    }

    /// From the other end; EPIPE when it is gone.
    pub fn hear(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        raw::recv_all(&self.0, &mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }
}

/// Listens on `ports` ports, the first one being that of `addr`, and waits for a client.
pub fn serve(
    addr: SocketAddrV4,
    ports: u64,
    checks: &mut Checks,
) -> Option<(Control, Vec<OwnedFd>)> {
    let (first, addr) = checks.need("listen", raw::listener(addr))?;
    let (mut listeners, mut numbers) = (vec![first], vec![addr.port()]);
    for _ in 1..ports {
        let any = SocketAddrV4::new(*addr.ip(), 0);
        let (listener, addr) = checks.need("listen", raw::listener(any))?;
        listeners.push(listener);
        numbers.push(addr.port());
    }
    say(&format!("listening on {addr}"));
    let control = Control(checks.need("accept", raw::accept(&listeners[0]))?);
    checks.need("tell", control.tell(ports))?;
    for port in numbers {
        checks.need("tell", control.tell(port.into()))?;
    }
    Some((control, listeners))
}

/// Calls the server: the control, and where it listens.
pub fn call(addr: SocketAddrV4, checks: &mut Checks) -> Option<(Control, Vec<SocketAddrV4>)> {
    let control = Control(checks.need("connect", raw::connected(addr))?);
    let ports = checks.need("hear", control.hear())?;
    let mut addrs = Vec::new();
    for _ in 0..ports {
        let port = checks.need("hear", control.hear())?;
        addrs.push(SocketAddrV4::new(*addr.ip(), port as u16));
    }
    Some((control, addrs))
}

/// The part that the `index`-th of `parts` has of `all`.
pub fn part(all: u64, parts: usize, index: usize) -> u64 {
    let (parts, index) = (parts as u64, index as u64);
    all / parts + u64::from(index < all % parts)
}

/// Does `work` for each of `of` in a separate thread; returns the results in order.
pub fn each<T: Sync, R: Send>(
    of: &[T],
    checks: &mut Checks,
    work: impl Fn(usize, &T) -> Result<R> + Sync,
) -> Option<Vec<R>> {
    let all: Vec<_> = thread::scope(|s| {
        let work = &work;
        let threads: Vec<_> = of
            .iter()
            .enumerate()
            .map(|(index, one)| s.spawn(move || work(index, one)))
            .collect();
        let join = |t: thread::ScopedJoinHandle<'_, _>| t.join().expect("a thread panicked");
        threads.into_iter().map(join).collect()
    });
    let mut done = Vec::new();
    for (index, one) in all.into_iter().enumerate() {
        done.push(checks.need(&format!("port {index}"), one)?);
    }
    Some(done)
}

/// The module's counters; None on TCP.
pub fn stats(checks: &mut Checks) -> Option<zrs_sys::abi::zrs_ioc_stats> {
    if !raw::is_zrs() {
        return None;
    }
    let stats = zrs_sys::Device::open().and_then(|device| device.stats());
    checks.need("the module's counters", stats.map_err(Into::into))
}

/// The links of the two hosts are few.
fn few_links(checks: &mut Checks, most: u64) {
    if let Some(stats) = stats(checks) {
        let detail = format!("saw {}, at most {most} expected", stats.links);
        checks.yes(
            "few links carry them",
            (1..=most).contains(&stats.links),
            &detail,
        );
    }
}

/// How long closed connections may take to be gone; on any machine much longer than they do.
const GONE: Duration = Duration::from_secs(100);

/// All channels but `rest` end.
fn channels_end(checks: &mut Checks, rest: u64) {
    let start = Instant::now();
    while let Some(stats) = stats(checks) {
        if stats.channels == rest || start.elapsed() > GONE {
            checks.eq("channels in the end", stats.channels, rest);
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn parts_are_all() {
        for all in [0, 1, 7, 8, 1000] {
            let parts: Vec<_> = (0..7).map(|i| super::part(all, 7, i)).collect();
            assert_eq!(parts.iter().sum::<u64>(), all);
            assert!(parts[0] - parts[6] <= 1);
        }
    }
}
