// SPDX-License-Identifier: GPL-2.0
//! The emulator's usage at the marks: lines `ID WHAT SECONDS [INSTRUCTIONS]`, where WHAT is start,
//! end, or both with base- before it for the cost of starting a program.

use std::collections::HashMap;

use zrs_bench::{Sample, Samples};

/// The usage at one mark.
#[derive(Clone, Copy)]
struct Used {
    seconds: f64,
    instructions: Option<f64>,
}

fn line(line: &str) -> Option<((u64, &str), Used)> {
    let mut words = line.split_whitespace();
    let at = (words.next()?.parse().ok()?, words.next()?);
    let used = Used {
        seconds: words.next()?.parse().ok()?,
        instructions: words.next().and_then(|word| word.parse().ok()),
    };
    Some((at, used))
}

/// Adds the usage of each measurement to the samples that have their marks.
pub fn merge(samples: &mut Samples, marks: &str) {
    let marks: HashMap<(u64, &str), Used> = marks.lines().filter_map(line).collect();
    for sample in &mut samples.0 {
        let at = |what| marks.get(&(sample.id, what)).copied();
        let (Some(start), Some(end)) = (at("start"), at("end")) else {
            continue;
        };
        let base = at("base-start").zip(at("base-end"));
        // From one mark to the other, without the cost of starting a program.
        let spent = |of: &dyn Fn(Used) -> Option<f64>| {
            let base = match base {
                Some((start, end)) => of(end)? - of(start)?,
                None => 0.0,
            };
            Some(of(end)? - of(start)? - base)
        };
        let seconds = spent(&|used| Some(used.seconds));
        let instructions = spent(&|used| used.instructions);
        add(sample, seconds, instructions);
    }
}

fn add(sample: &mut Sample, seconds: Option<f64>, instructions: Option<f64>) {
    let get = |name: &str| sample.values.get(name).copied().filter(|v| *v > 0.0);
    let per = |spent: Option<f64>, by: &str, unit: f64| Some(spent? / get(by)? * unit);
    let (mib, gib) = (f64::from(1 << 20), f64::from(1 << 30));
    let values = [
        ("emulator_s_per_gib", per(seconds, "bytes", gib)),
        ("instructions_per_mib", per(instructions, "bytes", mib)),
        (
            "instructions_per_message",
            per(instructions, "messages", 1.0),
        ),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            sample.values.insert(name.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::{Carrier, Measure};

    #[test]
    fn the_start_is_taken_off() {
        let sample = |id| Sample {
            id,
            round: 1,
            measure: Measure::Cost,
            carrier: Carrier::Verbs,
            size: 1 << 20,
            values: [("bytes".to_string(), f64::from(1 << 30))].into(),
        };
        let mut samples = Samples(vec![sample(1), sample(2), sample(3)]);
        let marks =
            "1 base-start 1.0 100\n1 base-end 2.0 300\n1 start 3.0 1000\n1 end 7.0 2224\njunk\n\
                     2 start 7.0\n2 end 9.5\n3 start 9\n";
        merge(&mut samples, marks);
        let cost = |n: usize| samples.0[n].values.get("emulator_s_per_gib").copied();
        let values = |n: usize| samples.0[n].values.clone();
        assert_eq!(values(0)["instructions_per_mib"], 1.0);
        assert!(!values(1).contains_key("instructions_per_mib"));
        assert_eq!((cost(0), cost(1), cost(2)), (Some(3.0), Some(2.5), None));
    }
}
