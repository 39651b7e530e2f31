// SPDX-License-Identifier: GPL-2.0
//! The costs of an operation: processor time of the machine and of each task, system calls and
//! context switches of this process (by perf events), the module's counters. Unavailable values are
//! left out.

use std::collections::BTreeMap;
use std::fs;

use perf_event::events::{Event, Software, Tracepoint};
use perf_event::{Builder, Counter};

use super::control::Values;

/// A running measurement.
pub struct Meter {
    busy: Option<f64>,
    switches: Option<f64>,
    tasks: BTreeMap<(u32, String), f64>,
    zrs: Option<zrs::Stats>,
    counters: Vec<(&'static str, Counter)>,
}

/// Counters of the module that mean something as a difference.
const GROWING: [&str; 9] = [
    "tx_bytes",
    "rx_bytes",
    "tx_copied",
    "rx_copied",
    "work_requests",
    "recv_requests",
    "completions",
    "signaled",
    "empty_events",
];

impl Meter {
    /// Starts; with the module's counters if `zrs`.
    pub fn start(zrs: bool) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut meter = Self {
            tasks: tasks(),
            busy: busy(&stat),
            switches: switches(&stat),
            zrs: zrs.then(stats).flatten(),
            counters: Vec::new(),
        };
        let calls = syscall_event().and_then(|id| counter(Tracepoint::with_id(id)));
        let switches = counter(Software::CONTEXT_SWITCHES);
        for (name, counter) in [("calls", calls), ("switches", switches)] {
            if let Some(mut counter) = counter {
                if counter.enable().is_ok() {
                    meter.counters.push((name, counter));
                }
            }
        }
        meter
    }

    /// The result. `kernel_` and `task:` figures are of the whole machine.
    pub fn stop(mut self) -> Values {
        let mut values = Values::new();
        for (name, counter) in &mut self.counters {
            if let Ok(count) = counter.disable().and_then(|()| counter.read()) {
                values.insert((*name).to_string(), count as f64);
            }
        }
        let now = self.zrs.as_ref().and_then(|_| stats());
        if let (Some(before), Some(now)) = (&self.zrs, &now) {
            for ((name, before), (_, now)) in before.fields().zip(now.fields()) {
                if GROWING.contains(&name) {
                    values.insert(format!("kernel_{name}"), now.wrapping_sub(before) as f64);
                }
            }
        }
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        if let (Some(before), Some(now)) = (self.busy, busy(&text)) {
            values.insert("kernel_busy_s".into(), now - before);
        }
        if let (Some(before), Some(now)) = (self.switches, switches(&text)) {
            values.insert("kernel_switches".into(), now - before);
        }
        for (task, seconds) in tasks() {
            let spent = seconds - self.tasks.get(&task).copied().unwrap_or(0.0);
            if spent > 0.0 {
                *values.entry(format!("task:{}", task.1)).or_default() += spent;
            }
        }
        values
    }
}

/// Values of both sides together: those of a whole kernel are counted once if both are on it.
pub fn together(near: Values, far: Values, same_kernel: bool) -> Values {
    let mut all = near;
    for (name, value) in far {
        let whole = name.starts_with("kernel_") || name.starts_with("task:");
        if !(whole && same_kernel) {
            *all.entry(name).or_default() += value;
        }
    }
    all
}

/// Messages of a shorter transfer that goes before one of `count` more: the difference is the cost
/// of `count` messages. One-time work of a transfer is in both.
pub fn base(count: u64) -> u64 {
    count.div_ceil(2)
}

/// The difference of `all` and `base`, which is the same on a smaller scale. Times and rates stay
/// those of `all`.
pub fn less(mut all: Values, base: &Values) -> Values {
    for (name, spent) in base {
        if !["seconds", "mib_s"].contains(&&name[..]) {
            all.entry(name.clone()).and_modify(|v| *v -= spent);
        }
    }
    all
}

fn counter(event: impl Event) -> Option<Counter> {
    Builder::new(event)
        .include_kernel()
        .include_hv()
        .inherit(true)
        .build()
        .ok()
}

/// The number of the event that each system call is.
fn syscall_event() -> Option<u64> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .find_map(|dir| {
            let id = fs::read_to_string(format!("{dir}/events/raw_syscalls/sys_enter/id"));
            id.ok()?.trim().parse().ok()
        })
}

fn stats() -> Option<zrs::Stats> {
    zrs::Zrs::open().ok()?.stats().ok()
}

fn tick() -> f64 {
    1.0 / rustix::param::clock_ticks_per_second() as f64
}

/// Busy seconds of the processors: the sum of all columns but the fourth and fifth.
fn busy(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let columns: Vec<f64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    // user, nice, system; irq, softirq (guests are part of user).
    let sum: f64 = columns.get(..3)?.iter().chain(columns.get(5..7)?).sum();
    Some(sum * tick())
}

/// Context switches of all processors.
fn switches(stat: &str) -> Option<f64> {
    let mut lines = stat.lines();
    lines.find_map(|line| line.strip_prefix("ctxt ")?.parse().ok())
}

/// Processor seconds of each task of the machine, by number and name.
fn tasks() -> BTreeMap<(u32, String), f64> {
    let Ok(dir) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let numbers = dir.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (name, seconds) = task(&stat)?;
            Some(((pid, name), seconds))
        })
        .collect()
}

/// Name and seconds of a task from its stat file. Kernel workers of one kind have one name.
fn task(stat: &str) -> Option<(String, f64)> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let name = head.split_once('(')?.1;
    let name = name.split(['/', ':']).next()?;
    let mut columns = rest.split_whitespace().skip(11);
    let user: f64 = columns.next()?.parse().ok()?;
    let system: f64 = columns.next()?.parse().ok()?;
    Some((name.to_string(), (user + system) * tick()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says() {
        let stat = "cpu  100 1 200 5000 60 7 8 0 50 0\ncpu0 1 2 3\nctxt 17\nbtime 5\n";
        assert_eq!(busy(stat), Some(316.0 * tick()));
        assert_eq!((switches(stat), switches("intr 1")), (Some(17.0), None));
        assert_eq!(busy("intr 1"), None);
        let line = "17 (kworker/0:1 (x) y) I 2 0 0 0 -1 69238880 0 0 0 0 30 12 0 0 20 0 1 0 29 0";
        assert_eq!(task(line), Some(("kworker".to_string(), 42.0 * tick())));
        assert_eq!(task("nonsense"), None);
    }

    #[test]
    fn kernels_count_once() {
        let near: Values = [
            ("kernel_busy_s".to_string(), 1.0),
            ("calls".to_string(), 2.0),
        ]
        .into();
        let far: Values = [
            ("kernel_busy_s".to_string(), 5.0),
            ("calls".to_string(), 3.0),
        ]
        .into();
        let same = together(near.clone(), far.clone(), true);
        assert_eq!((same["kernel_busy_s"], same["calls"]), (1.0, 5.0));
        assert_eq!(together(near, far, false)["kernel_busy_s"], 6.0);
    }

    #[test]
    fn what_is_done_once_is_left_out() {
        let cost = |messages: u64| -> Values {
            let n = messages as f64;
            [
                ("bytes", 64.0 * n),
                ("messages", n),
                ("seconds", n / 10.0),
                ("mib_s", 10.0),
                ("switches", 500.0 + 0.5 * n),
                ("kernel_tx_copied", 16.0 + 64.0 * n),
            ]
            .map(|(name, value)| (name.to_string(), value))
            .into()
        };
        let count = 1000;
        let mut smaller = cost(base(count));
        smaller.insert("task:gone".into(), 1.0);
        let rest = less(cost(count + base(count)), &smaller);
        assert_eq!((rest["messages"], rest["bytes"]), (1000.0, 64_000.0));
        assert_eq!((rest["seconds"], rest["mib_s"]), (150.0, 10.0));
        assert_eq!(
            (rest["switches"], rest["kernel_tx_copied"]),
            (500.0, 64_000.0)
        );
        assert!(!rest.contains_key("task:gone") && base(1) > 0);
        assert_eq!(less(cost(3), &Values::new()), cost(3));
    }

    #[test]
    fn it_runs_where_nothing_may_be_had() {
        let values = Meter::start(true).stop();
        assert!(values.values().all(|v| *v >= 0.0));
    }
}
