// SPDX-License-Identifier: GPL-2.0
//! One measurement of one round, as it goes from the command to a file, a JSON object a line.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A transport, and its mode of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Plain verbs by perftest, which polls: `ib_write_bw`, `ib_send_bw`, `ib_send_lat`.
    Verbs,
    /// The same programs with `--events`: they sleep until a completion event.
    VerbsEvents,
    /// ZRS by `send()` and `recv()`, of streams or datagrams.
    Zrs,
    /// ZRS by `send()` and the receive ring.
    ZrsRing,
    /// ZRS by `send()` and the receive ring, which is looked at again and again.
    ZrsRingSpin,
    /// ZRS by `send()` with MSG_ZEROCOPY and the receive ring.
    ZrsZerocopy,
    /// ZRS by `send()` and mapped receives.
    ZrsMapped,
    /// ZRS with a receiver that asks again and again instead of sleeping.
    ZrsSpin,
    /// rsockets of librdmacm, which poll for 10 us and then sleep.
    Rsockets,
    /// rsockets with a receiver that asks again and again.
    RsocketsSpin,
    /// The kernel's TCP.
    Tcp,
    /// TCP with a receiver that asks again and again.
    TcpSpin,
    /// The kernel's SMC by `send()` and `recv()`.
    Smc,
    /// TCP by a route without offloads, whose packets are as large as Soft-RoCE's.
    TcpPlain,
    /// The kernel's UDP; the stream of `DgramFlood` is TCP.
    Udp,
    /// UDP by the route of `TcpPlain`.
    UdpPlain,
}

impl Carrier {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Verbs,
        Self::VerbsEvents,
        Self::Zrs,
        Self::ZrsRing,
        Self::ZrsRingSpin,
        Self::ZrsZerocopy,
        Self::ZrsMapped,
        Self::ZrsSpin,
        Self::Rsockets,
        Self::RsocketsSpin,
        Self::Tcp,
        Self::TcpSpin,
        Self::Smc,
        Self::TcpPlain,
        Self::Udp,
        Self::UdpPlain,
    ];

    /// The name in files, options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::VerbsEvents => "verbs-events",
            Self::Zrs => "zrs",
            Self::ZrsRing => "zrs-ring",
            Self::ZrsRingSpin => "zrs-ring-spin",
            Self::ZrsZerocopy => "zrs-zerocopy",
            Self::ZrsMapped => "zrs-mapped",
            Self::ZrsSpin => "zrs-spin",
            Self::Rsockets => "rsockets",
            Self::RsocketsSpin => "rsockets-spin",
            Self::Tcp => "tcp",
            Self::TcpSpin => "tcp-spin",
            Self::Smc => "smc",
            Self::TcpPlain => "tcp-plain",
            Self::Udp => "udp",
            Self::UdpPlain => "udp-plain",
        }
    }

    /// Perftest's programs, which `zrs bench` starts.
    pub fn is_verbs(self) -> bool {
        matches!(self, Self::Verbs | Self::VerbsEvents)
    }

    /// ZRS, which has counters.
    pub fn is_zrs(self) -> bool {
        matches!(
            self,
            Self::Zrs
                | Self::ZrsRing
                | Self::ZrsRingSpin
                | Self::ZrsZerocopy
                | Self::ZrsMapped
                | Self::ZrsSpin
        )
    }

    /// Whether it goes by the route without offloads.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::TcpPlain | Self::UdpPlain)
    }

    /// Whether ZRS receives by the ring.
    pub fn by_ring(self) -> bool {
        matches!(self, Self::ZrsRing | Self::ZrsRingSpin | Self::ZrsZerocopy)
    }

    /// Whether a waiting receiver asks again and again.
    pub fn spins(self) -> bool {
        matches!(
            self,
            Self::ZrsSpin | Self::ZrsRingSpin | Self::RsocketsSpin | Self::TcpSpin
        )
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Bytes a second, from the client to the server.
    Throughput,
    /// Bytes a second, both ways at once, the sum.
    BothWays,
    /// As throughput, by a sender that does not block, but polls.
    Nonblocking,
    /// Round trips of one message.
    Latency,
    /// Connections made and ended, one after the other.
    Connect,
    /// Connections with a request and a response on each, one after the other.
    Exchange,
    /// Messages a second one way, by few and many threads on few and many connections.
    Rate,
    /// Memory of connections that do nothing.
    Memory,
    /// As throughput, for longer: processor time and counters.
    Cost,
    /// Throughput of some connections alone, and while many others are open.
    Hold,
    /// Round trips on many connections at once, alone and together with a bulk sender.
    Fair,
    /// Round trips on one connection alone, and during a bulk transfer on another one.
    Mixed,
    /// Round trips a second of many connections with a server of one thread and epoll.
    EpollEcho,
    /// Bulk transfers on many connections at once: their sum and their fairness.
    Uploads,
    /// Throughput of one connection alone, and together with others whose readers have stopped.
    Pool,
    /// Use of the receive pool while few and many connections send at once.
    Load,
    /// Round trips of one datagram.
    DgramLatency,
    /// Datagrams that arrive in a second, one way, and the share of lost datagrams.
    DgramRate,
    /// Throughput of a stream alone, and beside a flood of datagrams.
    DgramFlood,
}

impl Measure {
    /// All measures, in the order in which they are run.
    pub const ALL: [Self; 19] = [
        Self::Throughput,
        Self::BothWays,
        Self::Nonblocking,
        Self::Latency,
        Self::Connect,
        Self::Exchange,
        Self::Rate,
        Self::Cost,
        Self::Fair,
        Self::Mixed,
        Self::EpollEcho,
        Self::Uploads,
        Self::Pool,
        Self::Load,
        Self::DgramLatency,
        Self::DgramRate,
        Self::DgramFlood,
        Self::Hold,
        Self::Memory,
    ];

    /// Whether it is one of datagrams.
    pub fn is_of_datagrams(self) -> bool {
        matches!(
            self,
            Self::DgramLatency | Self::DgramRate | Self::DgramFlood
        )
    }

    /// The name in files, options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::BothWays => "both-ways",
            Self::Nonblocking => "nonblocking",
            Self::Latency => "latency",
            Self::Connect => "connect",
            Self::Exchange => "exchange",
            Self::Rate => "rate",
            Self::Memory => "memory",
            Self::Cost => "cost",
            Self::Hold => "hold",
            Self::Fair => "fair",
            Self::Mixed => "mixed",
            Self::EpollEcho => "epoll-echo",
            Self::Uploads => "uploads",
            Self::Pool => "pool",
            Self::Load => "load",
            Self::DgramLatency => "dgram-latency",
            Self::DgramRate => "dgram-rate",
            Self::DgramFlood => "dgram-flood",
        }
    }

    /// The value that stands for the measurement, and its unit.
    pub fn main_value(self) -> (&'static str, &'static str) {
        match self {
            Self::Throughput | Self::BothWays | Self::Nonblocking => ("mib_s", "MiB/s"),
            Self::Latency => ("median_us", "us"),
            Self::Connect => ("per_s", "connections/s"),
            Self::Exchange => ("per_s", "exchanges/s"),
            Self::Rate => ("per_s_1_1", "messages/s of one thread on one connection"),
            Self::Memory => ("bytes_per_endpoint", "bytes"),
            Self::Cost => ("busy_s_per_gib", "s/GiB"),
            Self::Hold => ("held_ratio", "throughput with idle ones by that without"),
            Self::Fair => (
                "p99_ratio",
                "99th percentile beside bulk data by that without",
            ),
            Self::Mixed => ("beside_median_us", "us beside bulk data"),
            Self::EpollEcho => ("per_s", "round trips/s"),
            Self::Uploads => ("sum_64_mib_s", "MiB/s of 64 connections together"),
            Self::Pool => (
                "ratio_16",
                "throughput beside 16 stopped readers by that without",
            ),
            Self::Load => ("most", "the most that is in use by the pool's size"),
            Self::DgramLatency => ("median_us", "us"),
            Self::DgramRate => ("mib_s", "MiB/s that arrive"),
            Self::DgramFlood => (
                "beside_ratio",
                "throughput beside datagrams by that without",
            ),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The result of one measurement of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counts the measurements of a run.
    pub id: u64,
    /// The round; those of one round may be compared.
    pub round: u32,
    /// The measure.
    pub measure: Measure,
    /// The carrier.
    pub carrier: Carrier,
    /// Bytes in a message; 0 for measures without messages.
    pub size: u64,
    /// Figures by name; the unit is the end of the name.
    pub values: BTreeMap<String, f64>,
}

impl Sample {
    /// Whether it is one of these.
    pub fn is_of(&self, measure: Measure, carrier: Carrier, size: u64) -> bool {
        (self.measure, self.carrier, self.size) == (measure, carrier, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_files() {
        for carrier in Carrier::ALL {
            let text = serde_json::to_string(&carrier).unwrap();
            assert_eq!(text, format!("\"{}\"", carrier.name()));
        }
        for measure in Measure::ALL {
            let text = serde_json::to_string(&measure).unwrap();
            assert_eq!(text, format!("\"{}\"", measure.name()));
        }
    }

    #[test]
    fn there_and_back() {
        let sample = Sample {
            id: 1,
            round: 2,
            measure: Measure::BothWays,
            carrier: Carrier::ZrsRing,
            size: 64,
            values: [("mib_s".to_string(), 1.5)].into(),
        };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }
}
