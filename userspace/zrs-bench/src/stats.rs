// SPDX-License-Identifier: GPL-2.0
//! Medians, and intervals for them by order statistics: nothing is assumed of how the figures are
//! distributed, and nothing is drawn at random.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Carrier, Measure, Sample};

/// A median and the interval that holds the true one with at least `confidence`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median of the rounds.
    pub median: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The confidence, 0 to 1. Few rounds cannot give 0.95: then this is the confidence that they
    /// give.
    pub confidence: f64,
    /// Rounds.
    pub rounds: usize,
}

/// The middle one of `values`, or the mean of the middle two. NaN when there are none.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The least of `values` that at least the share `p` (0 to 1) of them does not exceed.
pub fn percentile(values: &[f64], p: f64) -> f64 {
    let sorted = sorted(values);
    let rank = (p * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

impl Interval {
    /// Of one value a round. None when there are none.
    ///
    /// The k-th least and the k-th greatest of n values hold the median between them with
    /// 1 - 2 P(Bin(n, 1/2) < k); k is the greatest one with at least 0.95, or 1.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        let sorted = sorted(values);
        let (first, last) = (sorted.first()?, sorted.last()?);
        let mut interval = Self {
            median: median(values),
            low: *first,
            high: *last,
            confidence: sure(n, 1),
            rounds: n,
        };
        for k in 2..=n / 2 {
            if sure(n, k) < 0.95 {
                break;
            }
            interval.low = sorted[k - 1];
            interval.high = sorted[n - k];
            interval.confidence = sure(n, k);
        }
        Some(interval)
    }
}

/// 1 - 2 P(Bin(n, 1/2) < k).
fn sure(n: usize, k: usize) -> f64 {
    let mut term = 0.5f64.powi(n as i32); // of exactly i
    let mut below = 0.0;
    for i in 0..k {
        below += term;
        term *= (n - i) as f64 / (i + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

/// The samples of a run, to be asked for one value at a time.
#[derive(Debug, Default)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Reads a file of samples, a JSON object a line. Err: the line and its error.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(n, line)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", n + 1)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The value `name` of each round that has it.
    pub fn by_round(
        &self,
        measure: Measure,
        carrier: Carrier,
        size: u64,
        name: &str,
    ) -> BTreeMap<u32, f64> {
        self.0
            .iter()
            .filter(|s| s.is_of(measure, carrier, size))
            .filter_map(|s| Some((s.round, *s.values.get(name)?)))
            .collect()
    }

    /// The value `name` over all rounds.
    pub fn of(
        &self,
        measure: Measure,
        carrier: Carrier,
        size: u64,
        name: &str,
    ) -> Option<Interval> {
        let values: Vec<f64> = self
            .by_round(measure, carrier, size, name)
            .into_values()
            .collect();
        Interval::of(&values)
    }

    /// The paired ratio of two values: one ratio a round that has both.
    pub fn ratio(above: &BTreeMap<u32, f64>, below: &BTreeMap<u32, f64>) -> Option<Interval> {
        let ratios: Vec<f64> = above
            .iter()
            .filter_map(|(round, a)| Some(a / below.get(round)?))
            .filter(|r| r.is_finite())
            .collect();
        Interval::of(&ratios)
    }

    /// The measures, sizes and carriers of the samples.
    pub fn kinds(&self) -> BTreeSet<(Measure, u64, Carrier)> {
        self.0
            .iter()
            .map(|s| (s.measure, s.size, s.carrier))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 0.99), 99.0);
        assert_eq!(percentile(&hundred, 0.5), 50.0);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert_eq!(percentile(&hundred, 0.0), 1.0);
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // n = 7: the extremes hold the median with 1 - 2/128; n = 9 allows the second ones, with
        // 1 - 2 * 10/512.
        let of = |n: u32| Interval::of(&(1..=n).map(f64::from).collect::<Vec<_>>()).unwrap();
        let seven = of(7);
        assert_eq!((seven.low, seven.median, seven.high), (1.0, 4.0, 7.0));
        assert!((seven.confidence - 126.0 / 128.0).abs() < 1e-12);
        let nine = of(9);
        assert_eq!((nine.low, nine.median, nine.high), (2.0, 5.0, 8.0));
        assert!((nine.confidence - 492.0 / 512.0).abs() < 1e-12);
        let one = of(1);
        assert_eq!((one.low, one.high, one.confidence), (1.0, 1.0, 0.0));
        assert!(of(5).confidence < 0.95);
        assert!(Interval::of(&[]).is_none());
    }

    #[test]
    fn ratios_are_paired_by_round() {
        let above = [(1, 10.0), (2, 30.0), (3, 50.0), (4, 1.0)].into();
        let below = [(1, 10.0), (2, 10.0), (3, 10.0), (5, 1.0)].into();
        let ratio = Samples::ratio(&above, &below).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (1.0, 3.0, 5.0));
        assert_eq!(ratio.rounds, 3);
        assert!(Samples::ratio(&above, &BTreeMap::new()).is_none());
        assert!(Samples::ratio(&[(1, 1.0)].into(), &[(1, 0.0)].into()).is_none());
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = Samples::parse("\n{\"id\": 1}\n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(Samples::parse("").unwrap().0.is_empty());
    }
}
