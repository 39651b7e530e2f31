// SPDX-License-Identifier: GPL-2.0
//! The targets: ratios of the same round, their medians compared with a bound. Some bounds are what a
//! software device leaves possible; `Documentation/performance.rst` says which, and why.

use std::fmt::Write as _;

use serde_json::Value;
use zrs_bench::{median, Carrier, Interval, Measure, Samples};

/// Which side of the bound is good.
#[derive(Clone, Copy)]
pub enum Bound {
    AtLeast(f64),
    /// As `AtLeast`, and the interval's lower end counts, not the median.
    SurelyAtLeast(f64),
    AtMost(f64),
}

/// One target: a value of ours by the same value of theirs, or, without theirs, by itself. Of several
/// carriers the best one is taken, on both sides.
pub struct Target {
    pub name: &'static str,
    pub rows: &'static str,
    measure: Measure,
    size: u64,
    /// The values to compare by; the first one that has been measured counts.
    values: &'static [&'static str],
    ours: &'static [Carrier],
    pub theirs: &'static [Carrier],
    bound: Bound,
}

const MIB: u64 = 1 << 20;

/// Fewer paired rounds meet nothing: their median says too little. Memory hardly changes, and is
/// measured in three.
fn fewest_rounds(measure: Measure) -> usize {
    match measure {
        Measure::Memory => 3,
        _ => 7,
    }
}

/// The ring, fed by blocking send() or by MSG_ZEROCOPY.
const RING: &[Carrier] = &[Carrier::ZrsRing, Carrier::ZrsZerocopy];

const CPU: &[&str] = &["emulator_s_per_gib", "busy_s_per_gib"];

/// All of them.
pub const TARGETS: [Target; 21] = [
    Target {
        name: "ring, 1 MiB messages, of ib_write_bw",
        rows: "B3 Z6",
        measure: Measure::Throughput,
        size: MIB,
        values: &["mib_s"],
        ours: RING,
        theirs: &[Carrier::Verbs],
        bound: Bound::SurelyAtLeast(0.97),
    },
    Target {
        name: "ring, 1 MiB messages, of rsockets",
        rows: "B3 Z6",
        measure: Measure::Throughput,
        size: MIB,
        values: &["mib_s"],
        ours: RING,
        theirs: &[Carrier::Rsockets],
        bound: Bound::AtLeast(1.1),
    },
    Target {
        name: "send and recv, 1 MiB messages, of rsockets",
        rows: "Z4 Z6",
        measure: Measure::Throughput,
        size: MIB,
        values: &["mib_s"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        bound: Bound::AtLeast(1.0),
    },
    Target {
        name: "round trip of 64 bytes, best mode, of rsockets",
        rows: "Z6",
        measure: Measure::Latency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::ZrsSpin, Carrier::Zrs],
        theirs: &[Carrier::Rsockets, Carrier::RsocketsSpin],
        bound: Bound::AtMost(1.4),
    },
    Target {
        name: "round trip of 64 bytes, best mode, of ib_send_lat's best",
        rows: "Z6",
        measure: Measure::Latency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::ZrsSpin, Carrier::Zrs],
        theirs: &[Carrier::Verbs, Carrier::VerbsEvents],
        bound: Bound::AtMost(1.4),
    },
    Target {
        name: "round trip of 64 bytes, sleeping, of ib_send_lat by events",
        rows: "Z6",
        measure: Measure::Latency,
        size: 64,
        values: &["median_us"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::VerbsEvents],
        bound: Bound::AtMost(1.5),
    },
    Target {
        name: "processor time a GiB, ring, 1 MiB messages, of ib_write_bw",
        rows: "B3 Z4",
        measure: Measure::Cost,
        size: MIB,
        values: CPU,
        ours: RING,
        theirs: &[Carrier::Verbs],
        bound: Bound::AtMost(1.05),
    },
    Target {
        name: "processor time a GiB, ring, 1 MiB messages, of rsockets",
        rows: "B3 Z4",
        measure: Measure::Cost,
        size: MIB,
        values: CPU,
        ours: RING,
        theirs: &[Carrier::Rsockets],
        bound: Bound::AtMost(0.85),
    },
    Target {
        name: "connections a second, of rsockets",
        rows: "B4",
        measure: Measure::Connect,
        size: 0,
        values: &["per_s"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        bound: Bound::AtLeast(15.0),
    },
    Target {
        name: "connections opened and held a second, of rsockets",
        rows: "B4 B5",
        measure: Measure::Memory,
        size: 0,
        values: &["opened_per_s"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        bound: Bound::AtLeast(20.0),
    },
    Target {
        name: "memory of an idle endpoint, of rsockets",
        rows: "B5",
        measure: Measure::Memory,
        size: 0,
        values: &["bytes_per_endpoint"],
        ours: &[Carrier::Zrs],
        theirs: &[Carrier::Rsockets],
        bound: Bound::AtMost(1.0 / 40.0),
    },
    Target {
        name: "memory of an idle endpoint",
        rows: "B5",
        measure: Measure::Memory,
        size: 0,
        values: &["bytes_per_endpoint"],
        ours: &[Carrier::Zrs],
        theirs: &[],
        bound: Bound::AtMost(6144.0),
    },
    Target {
        name: "16 busy connections beside many idle ones, of the same alone",
        rows: "B5 L3",
        measure: Measure::Hold,
        size: 4 << 10,
        values: &["held_ratio"],
        ours: &[Carrier::Zrs],
        theirs: &[],
        bound: Bound::AtLeast(0.9),
    },
    Target {
        name: "99th percentile of 100 asking connections beside a bulk sender, of the same alone",
        rows: "B4 L3 L4",
        measure: Measure::Fair,
        size: 64,
        values: &["p99_ratio"],
        ours: &[Carrier::Zrs],
        theirs: &[],
        bound: Bound::AtMost(3.0),
    },
    Target {
        name: "a busy reader beside 16 that have stopped, of the same alone",
        rows: "C3 C5",
        measure: Measure::Pool,
        size: MIB,
        values: &["ratio_16"],
        ours: &[Carrier::Zrs],
        theirs: &[],
        bound: Bound::AtLeast(0.95),
    },
    Target {
        name: "the most of the receive pool that is in use, 1 to 64 senders",
        rows: "C2",
        measure: Measure::Load,
        size: 256 << 10,
        values: &["most"],
        ours: &[Carrier::Zrs],
        theirs: &[],
        bound: Bound::AtMost(1.0),
    },
    Target {
        name: "signalled completions a MiB, 1 MiB messages",
        rows: "Z4 Z8",
        measure: Measure::Cost,
        size: MIB,
        values: &["signaled_per_mib"],
        ours: &[Carrier::ZrsRing],
        theirs: &[],
        bound: Bound::AtMost(5.0),
    },
    Target {
        name: "system calls of the receiver a MiB, ring that is polled, 1 MiB messages",
        rows: "B3",
        measure: Measure::Cost,
        size: MIB,
        values: &["recv_calls_per_mib"],
        ours: &[Carrier::ZrsRingSpin],
        theirs: &[],
        bound: Bound::AtMost(0.5),
    },
    Target {
        name: "bytes the receiver copies a byte, ring, 1 MiB messages",
        rows: "B3 Z6",
        measure: Measure::Cost,
        size: MIB,
        values: &["rx_copied_per_byte"],
        ours: &[Carrier::ZrsRing],
        theirs: &[],
        bound: Bound::AtMost(0.001),
    },
    Target {
        name: "bytes the receiver copies a byte, mapped, 1 MiB messages",
        rows: "Z6",
        measure: Measure::Cost,
        size: MIB,
        values: &["rx_copied_per_byte"],
        ours: &[Carrier::ZrsMapped],
        theirs: &[],
        bound: Bound::AtMost(0.001),
    },
    Target {
        name: "bytes the sender copies a byte, MSG_ZEROCOPY, 1 MiB messages",
        rows: "B2 Z4",
        measure: Measure::Cost,
        size: MIB,
        values: &["tx_copied_per_byte"],
        ours: &[Carrier::ZrsZerocopy],
        theirs: &[],
        bound: Bound::AtMost(0.001),
    },
];

impl Target {
    /// The ratio, and the carrier that it is the ratio to, if there is one. None if it was not measured.
    pub fn ratio(&self, samples: &Samples) -> Option<(Interval, Option<Carrier>)> {
        self.values.iter().find_map(|value| {
            let rounds = |c: Carrier| samples.by_round(self.measure, c, self.size, value);
            let best = |carriers: &[Carrier]| {
                let medians = carriers.iter().filter_map(|&c| {
                    let values: Vec<f64> = rounds(c).into_values().collect();
                    (!values.is_empty()).then(|| (c, median(&values)))
                });
                match self.bound {
                    Bound::AtMost(_) => medians.min_by(|a, b| a.1.total_cmp(&b.1)),
                    _ => medians.max_by(|a, b| a.1.total_cmp(&b.1)),
                }
            };
            let ours = best(self.ours)?.0;
            if self.theirs.is_empty() {
                return Some((samples.of(self.measure, ours, self.size, value)?, None));
            }
            let theirs = best(self.theirs)?.0;
            let ratio = Samples::ratio(&rounds(ours), &rounds(theirs))?;
            Some((ratio, Some(theirs)))
        })
    }

    /// Whether a ratio of enough rounds is on the good side.
    pub fn met(&self, ratio: &Interval) -> bool {
        let good = match self.bound {
            Bound::AtLeast(bound) => ratio.median >= bound,
            Bound::SurelyAtLeast(bound) => ratio.low >= bound,
            Bound::AtMost(bound) => ratio.median <= bound,
        };
        good && ratio.rounds >= fewest_rounds(self.measure)
    }

    /// The figure's unit.
    pub fn unit(&self) -> &'static str {
        let own = || {
            crate::rows::values(self.measure)
                .iter()
                .find(|v| v.0 == self.values[0])
        };
        match self.theirs {
            [] => own().map_or("", |v| v.1),
            _ => "ratio",
        }
    }

    /// The bound as text.
    pub fn bound(&self) -> String {
        match self.bound {
            Bound::AtLeast(bound) => format!(">= {bound}"),
            Bound::SurelyAtLeast(bound) => format!(">= {bound} (interval)"),
            Bound::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

/// A line for each row that has a target, the sum, and how many were missed.
pub fn check(results: &Value) -> Result<(String, usize), String> {
    let rows = results.as_array().ok_or("the results are not an array")?;
    let (mut text, mut met, mut missed) = (String::new(), 0, 0);
    for row in rows.iter().filter(|row| row["target"].is_string()) {
        let good = row["met"] == Value::Bool(true);
        *(if good { &mut met } else { &mut missed }) += 1;
        let figure = match row["value"].as_f64() {
            Some(value) => format!(
                "{value:.3} ({:.3} to {:.3})",
                row["low"].as_f64().unwrap_or(f64::NAN),
                row["high"].as_f64().unwrap_or(f64::NAN)
            ),
            None => "not measured".into(),
        };
        let _ = writeln!(
            text,
            "{:<6}  {}: {figure}, target {}",
            if good { "met" } else { "missed" },
            row["name"].as_str().unwrap_or("?"),
            row["target"].as_str().unwrap_or("?"),
        );
    }
    if met + missed == 0 {
        return Err("the results have no targets: run make bench".into());
    }
    let _ = writeln!(text, "{met} met, {missed} missed");
    Ok((text, missed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zrs_bench::Sample;

    fn sample(round: u32, carrier: Carrier, us: f64) -> Sample {
        Sample {
            id: 0,
            round,
            measure: Measure::Latency,
            carrier,
            size: 64,
            values: [("median_us".to_string(), us)].into(),
        }
    }

    #[test]
    fn the_best_of_each_side() {
        let mut samples = Samples::default();
        for round in 1..=7 {
            samples.0.push(sample(round, Carrier::Zrs, 100.0));
            samples.0.push(sample(round, Carrier::ZrsSpin, 40.0));
            samples.0.push(sample(round, Carrier::Rsockets, 80.0));
            samples.0.push(sample(round, Carrier::RsocketsSpin, 400.0));
        }
        let (ratio, theirs) = TARGETS[3].ratio(&samples).unwrap();
        assert_eq!((ratio.median, theirs), (0.5, Some(Carrier::Rsockets)));
        assert!(TARGETS[3].met(&ratio));
        assert!(TARGETS[4].ratio(&samples).is_none());
    }

    #[test]
    fn a_figure_of_its_own() {
        let samples = Samples(vec![Sample {
            id: 0,
            round: 1,
            measure: Measure::Cost,
            carrier: Carrier::ZrsRing,
            size: MIB,
            values: [("signaled_per_mib".to_string(), 4.5)].into(),
        }]);
        let (figure, theirs) = TARGETS[16].ratio(&samples).unwrap();
        assert_eq!((figure.median, theirs), (4.5, None));
        assert_eq!((TARGETS[16].unit(), TARGETS[0].unit()), ("1/MiB", "ratio"));
    }

    #[test]
    fn bounds() {
        let at = |median, low| Interval {
            median,
            low,
            high: 9.0,
            confidence: 0.98,
            rounds: 7,
        };
        assert!(TARGETS[0].met(&at(1.0, 0.98)) && !TARGETS[0].met(&at(1.0, 0.96)));
        assert!(TARGETS[1].met(&at(1.1, 0.1)) && !TARGETS[1].met(&at(1.09, 1.09)));
        assert!(TARGETS[10].met(&at(0.025, 0.0)) && !TARGETS[10].met(&at(0.026, 0.0)));
        let few = Interval {
            rounds: 6,
            ..at(1.7, 1.7)
        };
        assert!(!TARGETS[1].met(&few));
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        let results = json!([
            { "name": "a", "value": 2.0, "low": 1.0, "high": 3.0, "target": ">= 1", "met": true },
            { "name": "b", "value": null, "target": ">= 1", "met": false },
            { "name": "c", "value": 1.0, "target": null, "met": null },
        ]);
        let (text, missed) = check(&results).unwrap();
        assert_eq!(missed, 1);
        assert!(
            text.contains("met     a: 2.000 (1.000 to 3.000), target >= 1\n"),
            "{text}"
        );
        assert!(text.contains("missed  b: not measured") && text.ends_with("1 met, 1 missed\n"));
        assert!(check(&json!([])).is_err() && check(&json!({})).is_err());
    }
}
