// SPDX-License-Identifier: GPL-2.0
//! `zrs bench`: compares ZRS with plain verbs, rsockets, TCP and UDP, in alternating rounds.
//!
//! `client` runs the rounds of `plan`; for each measurement it tells `server` over a TCP
//! connection (`control`) what the other side has to be. Then both play their parts: `stream` and
//! `latency` over a connection with a receiver of `rx` and a sender of `tx`; `connect`, `rate`,
//! `memory`, `hold`, `fair`, `echo`, `uploads`, `pool` and `load` over several, by means of `bulk`
//! and `watched`; `dgram` by datagrams, which may get lost; or `verbs`, which starts perftest's programs. `meter` counts the costs.

mod bulk;
mod client;
mod connect;
mod control;
mod dgram;
mod echo;
mod fair;
mod hold;
mod latency;
mod load;
mod memory;
mod meter;
mod plan;
mod pool;
mod rate;
mod rx;
mod server;
mod stream;
mod tx;
mod uploads;
mod verbs;
mod watched;

use std::path::PathBuf;

use crate::Result;
use control::Job;
use plan::Choice;
use zrs_bench::{Carrier, Measure};

/// Compare ZRS with plain verbs, rsockets, TCP and UDP
///
/// Needs a server on the other machine, perftest on both for what plain verbs reach, and librdmacm
/// for rsockets; what cannot be measured is said and left out. All carriers take turns in every
/// round, so that what disturbs one of them disturbs the others too: compare figures of one run,
/// by the ratios of the same round.
///
/// The server serves every client that can reach its port: run it only while you measure.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("end").required(true).args(["server", "client"])))]
pub struct Args {
    /// Be the other side; "listening on ADDR:PORT" is on stderr when ready
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "0.0.0.0:7400")]
    server: Option<String>,
    /// Measure against the server on this host
    #[arg(long, value_name = "HOST[:PORT]")]
    client: Option<String>,
    /// The server's address on a route without offloads, for tcp-plain and udp-plain
    #[arg(long, value_name = "HOST[:PORT]", requires = "client")]
    plain: Option<String>,
    /// Rounds; an interval of 95% needs at least 6
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of one measurement of one round, about
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Measures to run; default: all
    #[arg(long, value_delimiter = ',', value_parser = measure)]
    only: Vec<Measure>,
    /// Over what; default: everything
    #[arg(long, value_delimiter = ',', value_parser = carrier)]
    carriers: Vec<Carrier>,
    /// Message sizes, such as 64,16k,1M; default: those of the documentation
    #[arg(long, value_delimiter = ',', value_parser = size)]
    sizes: Vec<u64>,
    /// Only the sizes that the targets are about: 1 MiB, 64 bytes for round trips, and 1 KiB and the longest of datagrams
    #[arg(long, conflicts_with = "sizes")]
    quick: bool,
    /// So many messages or round trips in each measurement, instead of --seconds: makes counts
    /// comparable
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    messages: Option<u64>,
    /// Idle connections whose memory is measured; a tenth of it for rsockets; fifty times this
    /// number is held open together with busy ones, with --quick this number
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    connections: u64,
    /// Write every measurement of every round into this file, a JSON object a line
    #[arg(long, value_name = "PATH")]
    samples: Option<PathBuf>,
    /// Write a line into this file where the timed part of a measurement of cost begins and ends
    #[arg(long, value_name = "PATH")]
    marks: Option<PathBuf>,
    /// Print one JSON object as the last line on stdout, after the tables
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds between 0.001 and 3600 are wanted".into()),
    }
}

fn named<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
) -> std::result::Result<T, String> {
    let names: Vec<_> = all.iter().map(|&one| name(one)).collect();
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.ok_or_else(|| format!("give one of {}", names.join(", ")))
}

fn measure(text: &str) -> std::result::Result<Measure, String> {
    named(&Measure::ALL, Measure::name, text)
}

fn carrier(text: &str) -> std::result::Result<Carrier, String> {
    named(&Carrier::ALL, Carrier::name, text)
}

/// The largest message.
const LARGEST: u64 = 64 << 20;

fn size(text: &str) -> std::result::Result<u64, String> {
    let wanted = || "bytes from 1 to 64M are wanted, such as 64, 16k or 1M".to_string();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wanted())?;
    match number.checked_mul(1 << shift) {
        Some(bytes @ 1..=LARGEST) => Ok(bytes),
        _ => Err(wanted()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    allow_descriptors();
    match (&args.server, &args.client) {
        (Some(addr), _) => server::run(addr),
        (None, Some(host)) => {
            let plan = plan::plan(&Choice {
                measures: &args.only,
                carriers: &args.carriers,
                plain: args.plain.is_some(),
                sizes: &args.sizes,
                quick: args.quick,
                seconds: args.seconds,
                connections: args.connections,
                messages: args.messages,
            });
            client::run(args, host, &plan)
        }
        (None, None) => Err("which end? give --server or --client HOST".into()),
    }
}

/// As many descriptors as the process may have: idle connections need some each.
fn allow_descriptors() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // With fewer, what needs more says so.
    let _ = setrlimit(Resource::Nofile, wanted);
}

/// Descriptors in addition to those of a job's connections.
const SPARE: u64 = 64;

/// Fails where the process may not have a descriptor for each connection of a job.
fn enough_descriptors(job: &Job) -> Result<()> {
    use rustix::process::{getrlimit, Resource};
    let wanted = SPARE
        + match job.measure {
            Measure::Memory => job.count,
            _ => job.connections,
        };
    match getrlimit(Resource::Nofile).current {
        Some(most) if most < wanted => Err(format!(
            "{wanted} descriptors are needed, the limit is {most}: raise it (ulimit -n)"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_names() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("16k"), Ok(16 << 10));
        assert_eq!(size("4M"), Ok(4 << 20));
        for bad in ["", "0", "k", "65M", "-1", "99999999999999999999M"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(carrier("zrs-ring"), Ok(Carrier::ZrsRing));
        assert!(carrier("pigeon").unwrap_err().contains("rsockets-spin"));
        assert_eq!(measure("both-ways"), Ok(Measure::BothWays));
    }
}
