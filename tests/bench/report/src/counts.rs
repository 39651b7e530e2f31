// SPDX-License-Identifier: GPL-2.0
//! Counts that time does not change (copies, work requests, completions, system calls,
//! instructions), compared with the baseline, whose kinds are "MEASURE CARRIER SIZE".

use std::collections::BTreeMap;
use std::fmt::Write as _;

use zrs_bench::{Measure, Sample, Samples};

use crate::baseline::Baseline;

fn name(sample: &Sample) -> String {
    format!("{} {} {}", sample.measure, sample.carrier, sample.size)
}

/// The median of the numbers, the lower one if two are in the middle.
fn median(mut seen: Vec<f64>) -> Option<f64> {
    seen.sort_by(f64::total_cmp);
    seen.get(seen.len().saturating_sub(1) / 2).copied()
}

/// A line for each count, and whether all are within their bounds. The median of the rounds counts: a wait in one round
/// adds to that round's counts.
pub fn compare(samples: &Samples, baseline: &Baseline<'_>) -> (String, bool) {
    let measured = |kind: &str| {
        let first = kind.split(' ').next();
        Measure::ALL.iter().any(|m| first == Some(m.name()))
    };
    let (mut text, mut good) = (baseline.about(), true);
    for (kind, value) in baseline.values(measured) {
        let of_kind = samples.0.iter().filter(|s| name(s) == kind);
        let seen: Vec<f64> = of_kind
            .filter_map(|s| s.values.get(value).copied())
            .collect();
        let _ = writeln!(text, "# {kind}: {value}: {} rounds: {seen:?}", seen.len());
        good &= baseline.judge(kind, value, median(seen).as_slice(), &mut text);
    }
    (text, good)
}

/// Compares lines "KIND VALUE NUMBER"; several lines may have one value.
pub fn figures(lines: &str, baseline: &Baseline<'_>) -> Result<(String, bool), String> {
    let mut all: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for line in lines.lines() {
        let bad = || format!("{line}: KIND VALUE NUMBER is wanted");
        let words: Vec<_> = line.split_whitespace().collect();
        let &[kind, value, number] = &words[..] else {
            return Err(bad());
        };
        let number = number.parse().map_err(|_| bad())?;
        all.entry((kind, value)).or_default().push(number);
    }
    let (mut text, mut good) = (baseline.about(), !all.is_empty());
    for ((kind, value), seen) in all {
        good &= baseline.judge(kind, value, &seen, &mut text);
    }
    baseline.end(&mut text);
    Ok((text, good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zrs_bench::Carrier;

    fn round(round: u32, copies: f64, calls: f64) -> Sample {
        Sample {
            id: 0,
            round,
            measure: Measure::Cost,
            carrier: Carrier::ZrsRing,
            size: 64,
            values: [("copies".to_string(), copies), ("calls".to_string(), calls)].into(),
        }
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        let json =
            json!({ "default": { "cost zrs-ring 64": { "copies": [1, 1], "calls": [0, 1.5] } } });
        let good = |rounds: &[(f64, f64)]| {
            let all = (1..)
                .zip(rounds)
                .map(|(n, &(copies, calls))| round(n, copies, calls));
            compare(&Samples(all.collect()), &Baseline::new(&json, "x").unwrap()).1
        };
        assert!(good(&[(1.0, 1.0), (9.0, 1.0), (1.0, 7.0)]));
        assert!(!good(&[(1.0, 1.0), (9.0, 1.0), (9.0, 1.0)]));
        assert!(!good(&[(1.0, 1.0), (1.0, 7.0), (1.0, 7.0)]));
        assert!(!good(&[]));
    }

    #[test]
    fn bounds_and_keys() {
        let samples = Samples(vec![round(1, 1.0, 2.0)]);
        let json = json!({
            "default": { "cost zrs-ring 64": { "copies": [1, 1], "calls": [0, 1.5] } },
            "other": { "cost zrs-ring 64": { "calls": [2, 2] }, "locks_64": { "zrs": [1, 1] } },
            "third": { "cost zrs 64": { "copies": [1, 1] } },
        });
        let compared = |key| compare(&samples, &Baseline::new(&json, key).unwrap());
        let (text, good) = compared("unknown");
        assert!(
            !good && text.contains("\nok - cost zrs-ring 64: copies\n"),
            "{text}"
        );
        assert!(text.contains("not ok - cost zrs-ring 64: calls: saw [2.0], expected 0 to 1.5"));
        let (text, good) = compared("other");
        assert!(good && !text.contains("locks_64"), "{text}");
        assert!(!compared("third").1);
    }

    #[test]
    fn figures_of_one_value_are_together() {
        let json = json!({ "default": { "locks_64": { "zrs": [1, 2] } } });
        let baseline = Baseline::new(&json, "x").unwrap();
        let (text, good) = figures("locks_64 zrs 1\nlocks_64 zrs 2\na b 3\n", &baseline).unwrap();
        assert!(good && text.contains("# a: b: saw [3.0]\n"), "{text}");
        assert!(
            !figures("locks_64 zrs 1\nlocks_64 zrs 2.5\n", &baseline)
                .unwrap()
                .1
        );
        assert!(
            figures("locks_64 zrs\n", &baseline).is_err() && !figures("", &baseline).unwrap().1
        );
    }
}
