// SPDX-License-Identifier: GPL-2.0
//! The emulator's processor time: lines "ID WHAT SECONDS", where WHAT is start, end, or both with
//! base- before it for what starting a program costs.

use std::collections::HashMap;

use zrs_bench::Samples;

/// Adds `emulator_s_per_gib` to the samples that have their marks.
pub fn merge(samples: &mut Samples, marks: &str) {
    let mut clock: HashMap<(u64, &str), f64> = HashMap::new();
    for line in marks.lines() {
        let mut words = line.split_whitespace();
        let (id, what, seconds) = (words.next(), words.next(), words.next());
        if let (Some(Ok(id)), Some(what), Some(Ok(seconds))) =
            (id.map(str::parse), what, seconds.map(str::parse))
        {
            clock.insert((id, what), seconds);
        }
    }
    for sample in &mut samples.0 {
        let at = |what| clock.get(&(sample.id, what));
        let Some((start, end)) = at("start").zip(at("end")) else {
            continue;
        };
        let base = at("base-end")
            .zip(at("base-start"))
            .map_or(0.0, |(e, s)| e - s);
        if let Some(bytes) = sample.values.get("bytes").filter(|b| **b > 0.0) {
            let gib = bytes / f64::from(1 << 30);
            let cost = (end - start - base) / gib;
            sample.values.insert("emulator_s_per_gib".into(), cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::{Carrier, Measure, Sample};

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
        let marks = "1 base-start 1.0\n1 base-end 2.0\n1 start 3.0\n1 end 7.0\njunk\n\
                     2 start 7.0\n2 end 9.5\n3 start 9\n";
        merge(&mut samples, marks);
        let cost = |n: usize| samples.0[n].values.get("emulator_s_per_gib").copied();
        assert_eq!((cost(0), cost(1), cost(2)), (Some(3.0), Some(2.5), None));
    }
}
