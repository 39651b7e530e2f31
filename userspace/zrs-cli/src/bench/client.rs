// SPDX-License-Identifier: GPL-2.0
//! The client: runs the rounds, records their results, prints the tables.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use serde_json::json;
use zrs_bench::{number, size, Measure, Sample, Samples, Table};

use super::control::{boot_id, Answer, Control, Job, Values};
use super::plan::{self, Item};
use super::server::transport;
use super::{
    connect, dgram, echo, fair, hold, latency, load, memory, meter, pool, rate, stream, uploads,
    verbs, Args,
};
use crate::progress::Progress;
use crate::report::{json_line, out};
use crate::{said, Result};

/// Marks the begin and end of the timed parts of cost measurements, for an observer outside.
pub struct Marks {
    file: Option<File>,
    id: u64,
    /// Measures the cost of the program's start.
    base: bool,
    on: bool,
}

impl Marks {
    /// Writes one line, if marks are enabled.
    pub fn put(&mut self, what: &str) {
        if let (Some(file), true) = (&mut self.file, self.on) {
            let base = if self.base { "base-" } else { "" };
            let line = format!("zrs-bench: mark {} {base}{what}\n", self.id);
            // In one write, so that no other line comes in between.
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// A measurement that has worked and then fails this number of times is not tried again; one that
/// never worked is tried once.
const FAILURES: usize = 3;

struct Client {
    /// The server's address, and its address on the route without offloads.
    addr: String,
    plain: Option<String>,
    /// Conversations with the server, by its address.
    controls: HashMap<String, Control>,
    marks: Marks,
    /// Of each item: how many a second its last round made.
    rates: HashMap<(Measure, u64, &'static str), f64>,
}

pub fn run(args: &Args, host: &str, items: &[Item]) -> Result<()> {
    let with_port = |host: &str| match host.contains(':') {
        true => host.to_string(),
        false => format!("{host}:7400"),
    };
    let addr = with_port(host);
    let open = |path: &Option<std::path::PathBuf>| -> Result<Option<File>> {
        let Some(path) = path else { return Ok(None) };
        let mut options = File::options();
        // Not truncated: it may be a terminal or a pipe. Its former contents stay.
        let file = options.append(true).create(true).open(path);
        said(file, || format!("cannot write {}", path.display())).map(Some)
    };
    let mut file = open(&args.samples)?;
    let mut client = Client {
        controls: [(addr.clone(), dial(&addr)?)].into(),
        addr,
        plain: args.plain.as_deref().map(with_port),
        marks: Marks {
            file: open(&args.marks)?,
            id: 0,
            base: false,
            on: false,
        },
        rates: HashMap::new(),
    };
    let mut samples = Samples::default();
    let mut failed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let all: usize = (0..args.rounds).map(|r| plan::order(items, r).len()).sum();
    let mut progress = Progress::of_measurements(all as u64);
    for round in 0..args.rounds {
        for item in plan::order(items, round) {
            progress.add(1);
            let name = format!("{} {} {}", item.measure, item.carrier, item.size);
            let seen = samples
                .0
                .iter()
                .any(|s| s.is_of(item.measure, item.carrier, item.size));
            let failures = failed.get(&name).map_or(0, Vec::len);
            if failures >= if seen { FAILURES } else { 1 } {
                continue;
            }
            match client.measure(&item) {
                Ok(values) => {
                    let sample = Sample {
                        id: client.marks.id,
                        round: round + 1,
                        measure: item.measure,
                        carrier: item.carrier,
                        size: item.size,
                        values,
                    };
                    if let Some(file) = &mut file {
                        let line = serde_json::to_string(&sample)
                            .map_err(|e| format!("cannot write a sample: {e}"))?;
                        said(writeln!(file, "{line}"), || "cannot write a sample".into())?;
                    }
                    samples.0.push(sample);
                }
                Err(reason) => {
                    let round = round + 1;
                    eprintln!("zrs bench: {name} is left out in round {round}: {reason}");
                    failed.entry(name).or_default().push(reason);
                }
            }
        }
    }
    progress.finish();
    out(&tables(&samples));
    if args.json {
        json_line(&json!({ "samples": samples.0, "failed": failed }));
    }
    match samples.0.is_empty() {
        true => Err("nothing could be measured".into()),
        false => Ok(()),
    }
}

fn dial(addr: &str) -> Result<Control> {
    let stream = TcpStream::connect(addr).and_then(Control::new);
    said(stream, || {
        format!("cannot reach the server on {addr}; does zrs bench --server run there?")
    })
}

/// The fewest messages, trips or connections of a measurement. A cost is the difference to that of
/// starting programs, or read from coarse clocks: it takes many.
fn least(item: &Item) -> u64 {
    match item.measure {
        Measure::Hold | Measure::Fair | Measure::EpollEcho | Measure::Pool => 10,
        Measure::Connect | Measure::Exchange => 10,
        Measure::Latency | Measure::Mixed | Measure::DgramLatency => 20,
        Measure::DgramFlood => 8,
        // One on each.
        Measure::Load | Measure::Uploads => item.connections,
        Measure::Cost => (96 * 1024 * 1024 / item.size.max(1)).clamp(8, 8192),
        _ => (128 * 1024 / item.size.max(1)).clamp(5, 1024),
    }
}

impl Client {
    /// One item, once; the first time after a short one that says how much can be done in the time.
    fn measure(&mut self, item: &Item) -> Result<Values> {
        let key = (item.measure, item.size, item.carrier.name());
        let job = |count| Job {
            measure: item.measure,
            carrier: item.carrier,
            size: item.size,
            count,
            connections: item.connections,
        };
        // How long messages take is asked without the idle ones.
        let trial = |count| Job {
            connections: match item.measure {
                Measure::Hold => item.connections.min(hold::BUSY),
                _ => item.connections,
            },
            ..job(count)
        };
        let least = least(item);
        let count = match (item.count, self.rates.get(&key)) {
            (Some(count), _) => count,
            (None, Some(rate)) => least.max((rate * item.seconds) as u64),
            (None, None) => {
                let few = least.min(1024);
                let seconds = self.job(&trial(few))?["seconds"];
                least.max((few as f64 / seconds * item.seconds) as u64)
            }
        };
        self.marks.id += 1;
        self.marks.on = item.measure == Measure::Cost;
        // Sockets do both in one job.
        let base = (self.marks.on && item.carrier.is_verbs()).then(|| meter::base(count));
        let sent = count + base.unwrap_or(0);
        self.marks.base = true;
        let base = base.map(|base| self.job(&job(base))).transpose();
        self.marks.base = false;
        let base = base?;
        let values = self.job(&job(sent));
        self.marks.on = false;
        let mut values = values?;
        if let Some(seconds) = values.get("seconds") {
            self.rates.insert(key, sent as f64 / seconds);
        }
        if item.measure == Measure::Cost {
            values = meter::less(values, &base.unwrap_or_default());
            derive(&mut values);
        }
        Ok(values)
    }

    /// One job, both sides of it.
    fn job(&mut self, job: &Job) -> Result<Values> {
        let addr = match (job.carrier.is_plain(), &self.plain) {
            (true, Some(addr)) => addr.clone(),
            (true, None) => return Err("by which address? give --plain HOST".into()),
            _ => self.addr.clone(),
        };
        let mut control = match self.controls.remove(&addr) {
            Some(control) => control,
            None => dial(&addr)?,
        };
        let values = play(job, &mut control, &mut self.marks)?;
        // Only one that ended well can be used again.
        self.controls.insert(addr, control);
        Ok(values)
    }
}

fn play(job: &Job, control: &mut Control, marks: &mut Marks) -> Result<Values> {
    super::enough_descriptors(job)?;
    let gone = || "the server is gone".to_string();
    said(control.say(job), gone)?;
    let (port, boot) = match said(control.must_hear(), gone)? {
        Answer::Ready { port, boot } => (port, boot),
        Answer::Failed(reason) => return Err(format!("the server: {reason}")),
        _ => return Err("the server does not keep to the protocol".into()),
    };
    let (own, peer) = (
        said(control.local_ip(), gone)?,
        said(control.peer_ip(), gone)?,
    );
    let same = boot == boot_id();
    let addr = format!("{peer}:{port}");
    let transport = transport(job.carrier);
    let near = if job.carrier.is_verbs() {
        verbs::near(job, own, peer, port, marks)
    } else if job.measure.is_of_datagrams() {
        dgram::near(job, own, SocketAddr::new(peer, port), control)
    } else {
        match job.measure {
            Measure::Connect | Measure::Exchange => connect::near(transport, &addr, job),
            Measure::Memory => return memory::near(transport, &addr, job, control, same),
            Measure::Hold => hold::near(transport, &addr, job, marks, control),
            Measure::Fair => fair::near(transport, &addr, job),
            Measure::Mixed => fair::near_one(transport, &addr, job),
            Measure::EpollEcho => echo::near(transport, &addr, job),
            Measure::Uploads => uploads::near(transport, &addr, job),
            Measure::Rate => rate::near(transport, &addr, job),
            Measure::Pool => pool::near(transport, &addr, job, control),
            Measure::Load => load::near(transport, &addr, job),
            measure => {
                let conn = transport.connect(&addr)?;
                said(conn.set_nodelay(), || "cannot switch delays off".into())?;
                match measure {
                    Measure::Latency => latency::near(&conn, job),
                    _ => stream::near(&conn, job, marks),
                }
            }
        }
    }?;
    match said(control.must_hear(), gone)? {
        Answer::Done(far) => Ok(meter::together(near, far, same)),
        Answer::Failed(reason) => Err(format!("the server: {reason}")),
        _ => Err("the server does not keep to the protocol".into()),
    }
}

/// Costs for each byte and message.
fn derive(values: &mut Values) {
    let get = |name: &str| values.get(name).copied();
    let Some((bytes, messages)) = get("bytes").zip(get("messages")) else {
        return;
    };
    let (mib, gib) = (f64::from(1 << 20), f64::from(1 << 30));
    let mut more = Values::new();
    for (from, to) in [
        ("calls", "calls"),
        ("recv_calls", "recv_calls"),
        ("switches", "switches"),
        ("kernel_switches", "machine_switches"),
        ("kernel_work_requests", "work_requests"),
        ("kernel_recv_requests", "recv_requests"),
        ("kernel_completions", "completions"),
        ("kernel_signaled", "signaled"),
    ] {
        if let Some(count) = get(from) {
            more.insert(format!("{to}_per_mib"), count / bytes * mib);
            more.insert(format!("{to}_per_message"), count / messages);
        }
    }
    for side in ["tx_copied", "rx_copied"] {
        if let Some(copied) = get(&format!("kernel_{side}")) {
            more.insert(format!("{side}_per_byte"), copied / bytes);
        }
    }
    if let Some(busy) = get("kernel_busy_s") {
        more.insert("busy_s_per_gib".into(), busy / bytes * gib);
    }
    values.extend(more);
}

/// A table for each measure: sizes down, carriers across, medians of the rounds.
fn tables(samples: &Samples) -> String {
    let kinds = samples.kinds();
    let mut text = String::new();
    for measure in Measure::ALL {
        let of_it = || kinds.iter().filter(|(m, _, _)| *m == measure);
        let mut carriers: Vec<_> = of_it().map(|&(_, _, carrier)| carrier).collect();
        let mut sizes: Vec<_> = of_it().map(|&(_, size, _)| size).collect();
        carriers.sort();
        carriers.dedup();
        sizes.dedup();
        if carriers.is_empty() {
            continue;
        }
        let (name, unit) = measure.main_value();
        let header = carriers.iter().map(|c| c.to_string());
        let mut table = Table::new(std::iter::once("bytes".to_string()).chain(header));
        for bytes in sizes {
            let cell = |&c| {
                samples
                    .of(measure, c, bytes, name)
                    .map(|i| number(i.median))
            };
            let cells = carriers.iter().map(|c| cell(c).unwrap_or_default());
            table.row(std::iter::once(size(bytes)).chain(cells));
        }
        text += &format!(
            "\n{measure}, {unit}, median of the rounds\n{}",
            table.text()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::Carrier;

    #[test]
    fn costs_of_bytes_and_messages() {
        let mib = f64::from(1 << 20);
        let mut all: Values = [
            ("bytes", 1024.0 * mib),
            ("messages", 2048.0),
            ("calls", 4096.0),
            ("kernel_busy_s", 2.0),
            ("kernel_tx_copied", 512.0 * mib),
        ]
        .map(|(n, v)| (n.to_string(), v))
        .into();
        derive(&mut all);
        assert_eq!((all["calls_per_message"], all["calls_per_mib"]), (2.0, 4.0));
        assert_eq!(
            (all["busy_s_per_gib"], all["tx_copied_per_byte"]),
            (2.0, 0.5)
        );
        let mut none = Values::new();
        derive(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn a_table_a_measure() {
        let samples = Samples(vec![Sample {
            id: 1,
            round: 1,
            measure: Measure::Throughput,
            carrier: Carrier::Tcp,
            size: 65536,
            values: [("mib_s".to_string(), 123.4)].into(),
        }]);
        let text = tables(&samples);
        assert!(
            text.contains("throughput, MiB/s") && text.contains("64 Ki  123"),
            "{text}"
        );
    }
}
