// SPDX-License-Identifier: GPL-2.0
//! Plain verbs, by perftest's programs: what ZRS is compared with where it says "the limit".

use std::fs;
use std::io::Read;
use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use zrs_bench::{Carrier, Measure};

use super::client::Marks;
use super::control::{Job, Values};
use super::meter::Meter;
use crate::{said, Result};

/// Iterations of perftest for a job; it needs at least five.
fn iterations(job: &Job) -> u64 {
    job.count.max(5)
}

fn is_latency(job: &Job) -> bool {
    matches!(job.measure, Measure::Latency | Measure::DgramLatency)
}

/// The program for a job, with the arguments that both sides have.
fn command(job: &Job, ip: IpAddr, port: u16) -> Result<Command> {
    let program = match job.measure {
        Measure::Latency | Measure::DgramLatency => "ib_send_lat",
        Measure::Rate | Measure::DgramRate => "ib_send_bw",
        _ => "ib_write_bw",
    };
    let device = device_of(ip)?;
    let mut command = Command::new(program);
    command
        .args(["--ib-dev", &device.name, "--ib-port", &device.port])
        .args(["--gid-index", &device.gid, "--CPU-freq"])
        .args(["--port", &port.to_string(), "--size", &job.size.to_string()])
        .args(["--iters", &iterations(job).to_string()])
        .stdin(Stdio::null());
    if job.measure == Measure::BothWays {
        command.arg("--bidirectional");
    }
    if job.carrier == Carrier::VerbsEvents {
        command.arg("--events");
        // The queue has 128 entries and so does not run dry between two events.
        if !is_latency(job) {
            command.args(["--cq-mod", "16"]);
        }
    }
    Ok(command)
}

fn started(result: std::io::Result<Child>, command: &Command) -> Result<Child> {
    said(result, || {
        let program = command.get_program().to_string_lossy();
        format!("cannot start {program} (install the package perftest)")
    })
}

/// An RDMA device, one of its ports, and the entry of its table that is an address.
struct Device {
    name: String,
    port: String,
    gid: String,
}

/// The device that `ip` belongs to, by RoCE v2 if it has that.
fn device_of(ip: IpAddr) -> Result<Device> {
    let found = devices(ip);
    found.ok_or_else(|| format!("no RDMA device has the address {ip}; rdma link shows which do"))
}

fn devices(ip: IpAddr) -> Option<Device> {
    let IpAddr::V4(v4) = ip else { return None };
    let wanted = v4.to_ipv6_mapped();
    let list = |path: &str| -> Vec<String> {
        let names = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    };
    let mut second = None;
    for name in list("/sys/class/infiniband") {
        for port in list(&format!("/sys/class/infiniband/{name}/ports")) {
            let dir = format!("/sys/class/infiniband/{name}/ports/{port}");
            for gid in list(&format!("{dir}/gids")) {
                let text = fs::read_to_string(format!("{dir}/gids/{gid}")).unwrap_or_default();
                if text.trim().parse() != Ok(wanted) {
                    continue;
                }
                let kind = fs::read_to_string(format!("{dir}/gid_attrs/types/{gid}"));
                let device = Device {
                    name: name.clone(),
                    port: port.clone(),
                    gid,
                };
                match kind.unwrap_or_default().contains("v2") {
                    true => return Some(device),
                    false => second = second.or(Some(device)),
                }
            }
        }
    }
    second
}

/// A server of perftest's, ended when dropped.
pub struct Far {
    child: Child,
    pub port: u16,
}

impl Far {
    /// Starts it and waits until it listens.
    pub fn start(job: &Job, ip: IpAddr) -> Result<Self> {
        // Free a moment ago; it is unlikely to be taken in between.
        let free = TcpListener::bind((ip, 0)).and_then(|l| l.local_addr());
        let port = said(free, || "cannot find a free port".into())?.port();
        let child = listening(job, ip, port)?;
        Ok(Self { child, port })
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<Values> {
        ended(&mut self.child)?;
        Ok(Values::new())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listening(job: &Job, ip: IpAddr, port: u16) -> Result<Child> {
    let mut command = command(job, ip, port)?;
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let spawned = command.spawn();
    let mut child = started(spawned, &command)?;
    let start = Instant::now();
    while !listens(port) {
        if start.elapsed() > Duration::from_secs(20) || matches!(child.try_wait(), Ok(Some(_))) {
            let _ = child.kill();
            return Err(format!("perftest does not listen: {}", stderr(&mut child)));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn stderr(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut text);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether some program of this network namespace listens on the TCP port.
fn listens(port: u16) -> bool {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let end = format!(":{port:04X}");
    tables.iter().any(|path| {
        let table = fs::read_to_string(path).unwrap_or_default();
        table.lines().any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().is_some_and(|local| local.ends_with(&end));
            local && columns.nth(1) == Some("0A")
        })
    })
}

fn ended(child: &mut Child) -> Result<()> {
    let start = Instant::now();
    // Rarely: checking takes time from the measurement.
    while start.elapsed() < Duration::from_secs(300) {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(_)) => return Err(format!("perftest's server failed: {}", stderr(child))),
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(e) => return Err(format!("cannot wait for perftest: {e}")),
        }
    }
    Err("perftest's server does not end".into())
}

/// The client's part, `ip` being its own address. Costs are those of the whole program.
pub fn near(job: &Job, ip: IpAddr, server: IpAddr, port: u16, marks: &mut Marks) -> Result<Values> {
    let mut command = command(job, ip, port)?;
    command.arg(server.to_string());
    let meter = (job.measure == Measure::Cost).then(|| Meter::start(false));
    marks.put("start");
    let output = said(command.output(), || {
        "cannot start perftest (install the package perftest)".into()
    })?;
    marks.put("end");
    let mut costs = meter.map(Meter::stop).unwrap_or_default();
    // This process only waited: its own calls and switches mean nothing.
    costs.retain(|name, _| name.starts_with("kernel_"));
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "perftest failed: {} {}",
            reason.trim(),
            text.trim()
        ));
    }
    let mut values = match job.measure {
        _ if is_latency(job) => trips(&text, job),
        _ => stream(&text, job),
    }
    .ok_or_else(|| format!("perftest's output is not understood: {text}"))?;
    values.extend(costs);
    Ok(values)
}

/// The numbers of the line that begins with the size.
fn figures(text: &str, size: u64) -> Option<Vec<f64>> {
    text.lines().find_map(|line| {
        let figures: Option<Vec<f64>> = line.split_whitespace().map(|w| w.parse().ok()).collect();
        figures.filter(|f| f.len() >= 5 && f[0] == size as f64)
    })
}

/// bytes, iterations, peak, average MiB/s, million messages a second.
fn stream(text: &str, job: &Job) -> Option<Values> {
    let figures = figures(text, job.size)?;
    let mib = f64::from(1 << 20);
    // Two digits after the point each: the larger number is the more exact one.
    let mib_s = match figures[3] {
        average if average >= 10.0 => average,
        _ => figures[4] * 1e6 * job.size as f64 / mib,
    };
    let ways = match job.measure {
        Measure::BothWays => 2.0,
        _ => 1.0,
    };
    let bytes = (iterations(job) * job.size) as f64 * ways;
    let messages = iterations(job) as f64;
    let seconds = bytes / mib / mib_s;
    let (name, value) = match job.measure {
        Measure::Rate => ("per_s_1_1", messages / seconds),
        _ => ("mib_s", mib_s),
    };
    Some(
        [
            ("bytes", bytes),
            ("messages", messages),
            ("seconds", seconds),
            (name, value),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into(),
    )
}

/// bytes, iterations, least, greatest, typical, average, deviation, 99%, 99.9%: half round trips.
fn trips(text: &str, job: &Job) -> Option<Values> {
    let figures = figures(text, job.size)?;
    let count = iterations(job) as f64;
    let (typical, average, p99) = (*figures.get(4)?, *figures.get(5)?, *figures.get(7)?);
    Some(
        [
            ("trips", count),
            ("seconds", 2.0 * average * count / 1e6),
            ("median_us", 2.0 * typical),
            ("p99_us", 2.0 * p99),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const BW: &str =
        " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
        64         1000             1.31               1.25                 0.020480\n";
    const LAT: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
        64      1000          80.10          900.00       115.25             120.50        10.00  300.00  800.00\n";

    fn job(measure: Measure) -> Job {
        Job {
            measure,
            carrier: Carrier::Verbs,
            size: 64,
            count: 1000,
            connections: 1,
        }
    }

    #[test]
    fn outputs() {
        let values = stream(BW, &job(Measure::Throughput)).unwrap();
        assert!((values["mib_s"] - 1.25).abs() < 1e-9);
        assert_eq!(values["bytes"], 64_000.0);
        assert!((values["seconds"] - 64_000.0 / 1_310_720.0).abs() < 1e-9);
        let rate = stream(BW, &job(Measure::Rate)).unwrap();
        assert!((rate["per_s_1_1"] - 20_480.0).abs() < 1e-6);
        let values = trips(LAT, &job(Measure::Latency)).unwrap();
        assert_eq!((values["median_us"], values["p99_us"]), (230.5, 600.0));
        assert!((values["seconds"] - 0.241).abs() < 1e-9);
        assert!(stream("nothing", &job(Measure::Throughput)).is_none());
        assert!(trips(BW, &job(Measure::Latency)).is_none());
    }

    #[test]
    fn listening_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }

    #[test]
    fn an_address_without_a_device_is_said() {
        let error = command(&job(Measure::Latency), "192.0.2.1".parse().unwrap(), 1);
        assert!(error.unwrap_err().contains("192.0.2.1"));
    }
}
