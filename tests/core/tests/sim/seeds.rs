// SPDX-License-Identifier: GPL-2.0

//! Which seeds are run, on all processors. A seed's run depends on nothing but the seed.

use std::io::Write;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::stats::Stats;
use crate::world::World;

/// Default number of seeds of a run; enough to show every case.
pub const ENOUGH: u64 = 1500;

/// The simulation's name.
const NAME: &str = env!("CARGO_CRATE_NAME");

/// The seeds of a run.
pub struct Plan {
    base: u64,
    /// Seeds at most.
    count: u64,
    /// No seed is begun after this.
    time: Duration,
    trace: bool,
}

fn number(name: &str) -> Option<u64> {
    // Set to nothing is not set: that is how make hands it on.
    let value = std::env::var(name).ok().filter(|v| !v.is_empty())?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value}: not a number")),
    )
}

impl Plan {
    /// SEED=n: that seed alone, and TRACE=1 prints what happens in it. Else the seeds from
    /// SIM_BASE on: for SIM_SECONDS, or SEEDS of them.
    pub fn from_env() -> Self {
        let forever = Duration::from_secs(u64::MAX);
        if let Some(seed) = number("SEED") {
            return Self {
                base: seed,
                count: 1,
                time: forever,
                trace: std::env::var_os("TRACE").is_some(),
            };
        }
        let seconds = number("SIM_SECONDS");
        let most = if seconds.is_some() { u64::MAX } else { ENOUGH };
        Self {
            base: number("SIM_BASE").unwrap_or(0),
            count: number("SEEDS").unwrap_or(most),
            time: seconds.map_or(forever, |s| {
                Duration::from_secs(s * crate::TIME_PERCENT / 100)
            }),
            trace: false,
        }
    }
}

/// Runs the seeds; returns their number and the statistics. Panics if one failed, after it has
/// printed how to run that seed again.
pub fn run(plan: &Plan) -> (u64, Stats) {
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    let failed = Mutex::new(None::<u64>);
    let sum = Mutex::new((0, Stats::default()));
    let one = || {
        let (mut count, mut stats) = (0, Stats::default());
        while begin.elapsed() < plan.time && failed.lock().unwrap().is_none() {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= plan.count {
                break;
            }
            let seed = plan.base.wrapping_add(n);
            match catch_unwind(|| World::new(seed, plan.trace).run()) {
                Ok(s) => stats.add(&s),
                Err(_) => {
                    // Of several the least, so that the answer is more often the same.
                    let mut failed = failed.lock().unwrap();
                    *failed = Some(failed.map_or(seed, |f: u64| f.min(seed)));
                }
            }
            count += 1;
        }
        let mut sum = sum.lock().unwrap();
        sum.0 += count;
        sum.1.add(&stats);
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    thread::scope(|s| {
        for _ in 0..threads.min(plan.count) {
            s.spawn(one);
        }
    });
    let (count, stats) = sum.into_inner().unwrap();
    if let Some(seed) = failed.into_inner().unwrap() {
        eprintln!("{NAME}: seed {seed} failed; to replay it:");
        eprintln!("    tests/vm/in-root -C /zrs/userspace env SEED={seed} TRACE=1 \\");
        eprintln!(
            "        cargo test --release --locked -p zrs-core --test {NAME} {}",
            crate::TEST
        );
        panic!("seed {seed} failed");
    }
    let seconds = begin.elapsed().as_secs_f64();
    report(&format!(
        "{NAME}: {count} seeds from {}: {seconds:.1} s, {:.0} seeds/s\n{stats}\n",
        plan.base,
        count as f64 / seconds
    ));
    (count, stats)
}

/// Prints, and appends to the file SIM_REPORT if that is set: what a test prints is not seen when
/// it passes.
fn report(text: &str) {
    print!("{text}");
    if let Some(path) = std::env::var_os("SIM_REPORT").filter(|p| !p.is_empty()) {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let written = file.and_then(|mut f| f.write_all(text.as_bytes()));
        written.unwrap_or_else(|e| panic!("SIM_REPORT: {e}"));
    }
}
