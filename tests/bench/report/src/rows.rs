// SPDX-License-Identifier: GPL-2.0
//! `results/bench.json`: a row for every median, and one for every target.

use serde_json::{json, Value};
use zrs_bench::{size, Carrier, Interval, Measure, Samples};

use crate::targets::{Verdict, TARGETS};

/// The reported values of a measure: name and unit.
pub fn values(measure: Measure) -> &'static [(&'static str, &'static str)] {
    match measure {
        Measure::Throughput | Measure::BothWays | Measure::Nonblocking => &[("mib_s", "MiB/s")],
        Measure::Latency => &[("median_us", "us"), ("p99_us", "us")],
        Measure::Connect | Measure::Exchange => &[("per_s", "1/s")],
        Measure::Rate => &[
            ("per_s_1_1", "1/s"),
            ("per_s_4_1", "1/s"),
            ("per_s_1_16", "1/s"),
            ("per_s_4_16", "1/s"),
        ],
        Measure::EpollEcho => &[("per_s", "1/s"), ("median_us", "us"), ("p99_us", "us")],
        Measure::Mixed => &[
            ("alone_median_us", "us"),
            ("beside_median_us", "us"),
            ("alone_p99_us", "us"),
            ("beside_p99_us", "us"),
            ("bulk_mib_s", "MiB/s"),
            ("bulk_ratio", "ratio"),
        ],
        Measure::Uploads => &[
            ("sum_17_mib_s", "MiB/s"),
            ("sum_32_mib_s", "MiB/s"),
            ("sum_64_mib_s", "MiB/s"),
            ("ratio_17", "ratio"),
            ("ratio_32", "ratio"),
            ("ratio_64", "ratio"),
        ],
        Measure::Memory => &[
            ("bytes_per_endpoint", "bytes"),
            ("slab_bytes_per_endpoint", "bytes"),
            ("opened_per_s", "1/s"),
        ],
        Measure::Hold => &[
            ("alone_mib_s", "MiB/s"),
            ("held_mib_s", "MiB/s"),
            ("held_ratio", "ratio"),
        ],
        Measure::Fair => &[
            ("alone_p99_us", "us"),
            ("beside_p99_us", "us"),
            ("bulk_mib_s", "MiB/s"),
            ("p99_ratio", "ratio"),
        ],
        Measure::Pool => &[
            ("alone_mib_s", "MiB/s"),
            ("beside_1_mib_s", "MiB/s"),
            ("beside_16_mib_s", "MiB/s"),
            ("ratio_1", "ratio"),
            ("ratio_16", "ratio"),
        ],
        Measure::Load => &[
            ("used_1", "of the pool"),
            ("used_4", "of the pool"),
            ("used_16", "of the pool"),
            ("used_64", "of the pool"),
            ("unread_1", "of the pool"),
            ("unread_4", "of the pool"),
            ("unread_16", "of the pool"),
            ("unread_64", "of the pool"),
            ("most", "of the pool"),
        ],
        Measure::DgramLatency => &[("median_us", "us"), ("p99_us", "us")],
        Measure::DgramRate => &[
            ("mib_s", "MiB/s"),
            ("per_s", "1/s"),
            ("lost", "of the sent"),
        ],
        Measure::DgramFlood => &[
            ("alone_mib_s", "MiB/s"),
            ("beside_mib_s", "MiB/s"),
            ("sent_per_s", "1/s"),
            ("arrived_per_s", "1/s"),
            ("beside_ratio", "ratio"),
        ],
        Measure::Cost => &[
            ("emulator_s_per_gib", "s/GiB"),
            ("busy_s_per_gib", "s/GiB"),
            ("instructions_per_mib", "1/MiB"),
            ("instructions_per_message", "1"),
            ("tx_copied_per_byte", "copies"),
            ("rx_copied_per_byte", "copies"),
            ("work_requests_per_mib", "1/MiB"),
            ("recv_requests_per_mib", "1/MiB"),
            ("completions_per_mib", "1/MiB"),
            ("signaled_per_mib", "1/MiB"),
            ("calls_per_mib", "1/MiB"),
            ("calls_per_message", "1"),
            ("recv_calls_per_mib", "1/MiB"),
            ("switches_per_mib", "1/MiB"),
            ("switches_per_message", "1"),
            ("machine_switches_per_mib", "1/MiB"),
            ("machine_switches_per_message", "1"),
        ],
    }
}

/// The requirements that a figure belongs to.
fn ids(measure: Measure, carrier: Carrier) -> &'static str {
    match (measure, carrier) {
        (_, c) if !c.is_zrs() => "",
        (Measure::Connect, _) => "B4",
        (Measure::Memory, _) => "B5",
        (Measure::Hold, _) => "B5 L3",
        (Measure::Fair | Measure::Mixed, _) => "B4 L3 L4",
        (Measure::EpollEcho, _) => "E1 B4",
        (Measure::Exchange, _) => "B4",
        (Measure::Uploads, _) => "C3",
        (Measure::Pool, _) => "C3 C5",
        (Measure::Load, _) => "C2",
        (Measure::DgramLatency | Measure::DgramRate | Measure::DgramFlood, _) => "Z7",
        (_, Carrier::ZrsRing | Carrier::ZrsRingSpin) => "B3 Z4 Z6",
        (_, Carrier::ZrsZerocopy) => "B2 B3 Z4 Z6",
        (_, Carrier::ZrsMapped) => "Z4 Z6",
        _ => "Z4 Z6",
    }
}

/// All rows.
pub fn rows(samples: &Samples, kernel: &str, commit: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    for (measure, bytes, carrier) in samples.kinds() {
        for (name, unit) in values(measure) {
            let Some(interval) = samples.of(measure, carrier, bytes, name) else {
                continue;
            };
            let of = match bytes {
                0 => String::new(),
                bytes => format!(" {}B", size(bytes)),
            };
            let mut row = row(&format!("{measure}{of} {carrier}: {name}"), Some(&interval));
            row["rows"] = words(ids(measure, carrier));
            row["unit"] = (*unit).into();
            rows.push(row);
        }
    }
    for target in &TARGETS {
        let figure = target.figure(samples);
        let verdict = figure.as_ref().map(|figure| target.verdict(figure));
        let verdict = verdict.unwrap_or(Verdict::Undecided);
        let mut row = row(target.name, figure.as_ref().map(|f| &f.interval));
        let [goal, bound] = target.texts();
        row["rows"] = words(target.rows);
        row["unit"] = target.unit().into();
        row["target"] = bound.clone().into();
        row["goal"] = goal.into();
        row["bound"] = bound.into();
        row["verdict"] = verdict.name().into();
        row["met"] = match verdict {
            Verdict::Met => true.into(),
            Verdict::Missed => false.into(),
            Verdict::Undecided => Value::Null,
        };
        if let Some(figure) = figure {
            row["reference"] = figure.theirs.map(Carrier::name).into();
            row["note"] = figure.note.into();
        }
        rows.push(row);
    }
    for row in &mut rows {
        row["kernel"] = kernel.into();
        row["commit"] = commit.into();
    }
    rows
}

fn words(text: &str) -> Value {
    text.split_whitespace().collect::<Vec<_>>().into()
}

pub fn row(name: &str, interval: Option<&Interval>) -> Value {
    json!({
        "name": name, "rows": [], "value": interval.map(|i| i.median), "unit": null,
        "reference": null, "target": null, "met": null, "kernel": null, "seed": null,
        "goal": null, "bound": null, "verdict": null, "note": null, "commit": null,
        "low": interval.map(|i| i.low), "high": interval.map(|i| i.high),
        "confidence": interval.map(|i| i.confidence), "rounds": interval.map(|i| i.rounds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::Sample;

    #[test]
    fn medians_and_targets() {
        let sample = |round, carrier, per_s| Sample {
            id: 0,
            round,
            measure: Measure::Connect,
            carrier,
            size: 0,
            values: [("per_s".to_string(), per_s)].into(),
        };
        let mut samples = Samples::default();
        for round in 1..=7 {
            samples.0.push(sample(round, Carrier::Zrs, 500.0));
            samples.0.push(sample(round, Carrier::Rsockets, 20.0));
        }
        let rows = rows(&samples, "7.2", "abc");
        assert_eq!(rows.len(), 2 + TARGETS.len());
        assert_eq!(rows[0]["name"], "connect zrs: per_s");
        assert_eq!(
            (&rows[0]["value"], &rows[0]["rows"][0]),
            (&json!(500.0), &json!("B4"))
        );
        let target = rows
            .iter()
            .find(|r| r["name"] == "connections a second, of rsockets");
        let target = target.unwrap();
        assert_eq!(
            (&target["value"], &target["met"]),
            (&json!(25.0), &json!(true))
        );
        assert_eq!(target["reference"], "rsockets");
        assert_eq!(
            (&target["verdict"], &target["goal"], &target["commit"]),
            (&json!("met"), &json!(">= 20"), &json!("abc"))
        );
        let missing = rows
            .iter()
            .filter(|r| r["verdict"] == "undecided" && r["value"].is_null() && r["met"].is_null());
        assert_eq!(missing.count(), TARGETS.len() - 1);
    }
}
