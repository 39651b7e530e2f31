// SPDX-License-Identifier: GPL-2.0
//! Counts that time does not change (copies, work requests, completions, system calls), compared
//! with a baseline: `{KEY: {"MEASURE CARRIER SIZE": {VALUE: [least, most]}}}`. A key "default" is for
//! all that have none of their own.

use std::fmt::Write as _;

use serde_json::Value;
use zrs_bench::{Sample, Samples};

fn name(sample: &Sample) -> String {
    format!("{} {} {}", sample.measure, sample.carrier, sample.size)
}

/// A line for each count, and whether all are within their bounds.
pub fn compare(samples: &Samples, baseline: &Value, key: &str) -> Result<(String, bool), String> {
    let own = baseline.get(key).or_else(|| baseline.get("default"));
    let own = own.and_then(Value::as_object);
    let own = own.ok_or_else(|| format!("the baseline has neither {key} nor default"))?;
    let (mut text, mut good) = (String::new(), true);
    for (kind, bounds) in own {
        let bounds = bounds.as_object();
        for (value, bound) in bounds.ok_or_else(|| format!("{kind}: bounds are missing"))? {
            let (least, most) = match (bound[0].as_f64(), bound[1].as_f64()) {
                (Some(least), Some(most)) => (least, most),
                _ => return Err(format!("{kind} {value}: a bound is [least, most]")),
            };
            let of_kind = samples.0.iter().filter(|s| name(s) == *kind);
            let seen: Vec<f64> = of_kind
                .filter_map(|s| s.values.get(value).copied())
                .collect();
            let fine = !seen.is_empty() && seen.iter().all(|v| (least..=most).contains(v));
            good &= fine;
            let text = &mut text;
            let _ = match fine {
                true => writeln!(text, "ok - {kind}: {value}"),
                false => writeln!(
                    text,
                    "not ok - {kind}: {value}: saw {seen:.3?}, expected {least} to {most}"
                ),
            };
        }
    }
    Ok((text, good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zrs_bench::{Carrier, Measure};

    #[test]
    fn bounds_and_keys() {
        let samples = Samples(vec![Sample {
            id: 0,
            round: 1,
            measure: Measure::Cost,
            carrier: Carrier::ZrsRing,
            size: 64,
            values: [("copies".to_string(), 1.0), ("calls".to_string(), 2.0)].into(),
        }]);
        let baseline = json!({
            "default": { "cost zrs-ring 64": { "copies": [1, 1], "calls": [0, 1.5] } },
            "other": { "cost zrs-ring 64": { "copies": [1, 1] } },
            "third": { "cost zrs 64": { "copies": [1, 1] } },
            "bad": { "cost zrs 64": { "copies": 1 } },
        });
        let (text, good) = compare(&samples, &baseline, "unknown").unwrap();
        assert!(
            !good && text.contains("\nok - ") ^ text.starts_with("ok - "),
            "{text}"
        );
        assert!(text.contains("not ok - cost zrs-ring 64: calls: saw [2.000], expected 0 to 1.5"));
        assert!(compare(&samples, &baseline, "other").unwrap().1);
        assert!(!compare(&samples, &baseline, "third").unwrap().1);
        assert!(compare(&samples, &baseline, "bad").is_err());
        assert!(compare(&samples, &json!({}), "x").is_err());
    }
}
