// SPDX-License-Identifier: GPL-2.0
//! `results/bench-smc.json`: ZRS, SMC-R and plain TCP between two machines, measured with `zrs
//! bench` and with unmodified programs.

use std::collections::BTreeMap;

use serde_json::Value;
use zrs_bench::{number, size, Carrier, Interval, Samples, Table};

use crate::rows::{row, values};
use crate::Result;

/// The carriers, in the order of the table. TCP's is plain: the machines' NICs have no offloads,
/// and its segments are as large as Soft-RoCE's packets (tests/bench/smc-guest).
const CARRIERS: [(Carrier, &str); 3] = [
    (Carrier::Zrs, "zrs"),
    (Carrier::Smc, "smc"),
    (Carrier::Tcp, "tcp-plain"),
];
const ZRS: &str = "zrs";
/// ZRS is compared with these.
const OTHERS: [&str; 2] = ["smc", "tcp-plain"];

/// A value of each round.
type Rounds = BTreeMap<u32, f64>;

/// One measurement.
struct Figure {
    name: String,
    unit: String,
    rounds: BTreeMap<&'static str, Rounds>,
}

/// All measurements of a run, in their order.
pub struct Figures(Vec<Figure>);

impl Figures {
    pub fn new(samples: &Samples, programs: &str) -> Result<Self> {
        let mut figures = Self(Vec::new());
        for (measure, bytes, carrier) in samples.kinds() {
            let known = CARRIERS.iter().find(|(c, _)| *c == carrier);
            let (_, label) = known.ok_or_else(|| format!("{carrier} is not measured here"))?;
            for (value, unit) in values(measure) {
                let name = match bytes {
                    0 => format!("{measure}: {value}"),
                    bytes if bytes < 1024 => format!("{measure} {bytes} B: {value}"),
                    bytes => format!("{measure} {}B: {value}", size(bytes)),
                };
                for (round, value) in samples.by_round(measure, carrier, bytes, value) {
                    figures.add(&name, unit, label, round, value);
                }
            }
        }
        for (n, line) in programs.lines().enumerate() {
            let bad = || format!("line {} of the programs' figures: {line}", n + 1);
            let (round, name, label, value, unit) = parse(line).ok_or_else(bad)?;
            figures.add(name, unit, label, round, value);
        }
        match figures.0.is_empty() {
            true => Err("nothing was measured".into()),
            false => Ok(figures),
        }
    }

    fn add(&mut self, name: &str, unit: &str, label: &'static str, round: u32, value: f64) {
        let at = self.0.iter().position(|f| f.name == name);
        let at = at.unwrap_or_else(|| {
            self.0.push(Figure {
                name: name.into(),
                unit: unit.into(),
                rounds: BTreeMap::new(),
            });
            self.0.len() - 1
        });
        let rounds = self.0[at].rounds.entry(label).or_default();
        rounds.insert(round, value);
    }

    /// A row for each median, and one for each ratio of ZRS to another carrier.
    pub fn rows(&self, kernel: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        for figure in &self.0 {
            let mut add = |name: String, unit: &str, reference: Option<&str>, interval| {
                let mut row = row(&name, Some(&interval));
                row["unit"] = unit.into();
                row["reference"] = reference.into();
                row["kernel"] = kernel.into();
                rows.push(row);
            };
            for (_, label) in CARRIERS {
                if let Some(interval) = figure.of(label) {
                    add(
                        format!("{}, {label}", figure.name),
                        &figure.unit,
                        None,
                        interval,
                    );
                }
            }
            for other in OTHERS {
                if let Some(ratio) = figure.ratio(other) {
                    let name = format!("{}, {ZRS} of {other}", figure.name);
                    add(name, "ratio", Some(other), ratio);
                }
            }
        }
        rows
    }

    /// Measurements down; carriers' medians and the ratios of ZRS to the others across.
    pub fn table(&self) -> Table {
        let labels = CARRIERS.iter().map(|(_, label)| label.to_string());
        let ratios = OTHERS.iter().map(|other| format!("{ZRS} of {other}"));
        let head = ["measurement", "unit"].map(String::from);
        let mut table = Table::new(head.into_iter().chain(labels).chain(ratios));
        for figure in &self.0 {
            let median = |i: Option<Interval>| i.map_or("\\-".into(), |i| number(i.median));
            let medians = CARRIERS.iter().map(|(_, label)| median(figure.of(label)));
            let ratio = |i: Option<Interval>| {
                i.map_or("\\-".into(), |i| {
                    format!(
                        "{} ({} to {})",
                        number(i.median),
                        number(i.low),
                        number(i.high)
                    )
                })
            };
            let ratios = OTHERS.iter().map(|other| ratio(figure.ratio(other)));
            let head = [figure.name.clone(), figure.unit.clone()];
            table.row(head.into_iter().chain(medians).chain(ratios));
        }
        table
    }
}

impl Figure {
    fn of(&self, label: &str) -> Option<Interval> {
        let rounds = self.rounds.get(label)?;
        Interval::of(&rounds.values().copied().collect::<Vec<_>>())
    }

    fn ratio(&self, other: &str) -> Option<Interval> {
        Samples::ratio(self.rounds.get(ZRS)?, self.rounds.get(other)?)
    }
}

/// One line of the programs' figures.
fn parse(line: &str) -> Option<(u32, &str, &'static str, f64, &str)> {
    let mut words = line.split('\t');
    let round = words.next()?.parse().ok()?;
    let name = words.next()?;
    let label = words.next()?;
    let (_, label) = *CARRIERS.iter().find(|(_, known)| *known == label)?;
    let value = words.next()?.parse().ok()?;
    let unit = words.next()?;
    words
        .next()
        .is_none()
        .then_some((round, name, label, value, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::{Measure, Sample};

    #[test]
    fn sizes_have_units() {
        let mut sample = sample(1, Carrier::Zrs, 1.0);
        sample.size = 64;
        let figures = Figures::new(&Samples(vec![sample]), "").unwrap();
        assert_eq!(figures.0[0].name, "throughput 64 B: mib_s");
    }

    fn sample(round: u32, carrier: Carrier, mib_s: f64) -> Sample {
        Sample {
            id: 0,
            round,
            measure: Measure::Throughput,
            carrier,
            size: 65536,
            values: [("mib_s".to_string(), mib_s)].into(),
        }
    }

    #[test]
    fn rows_and_a_table() {
        let samples = Samples(vec![
            sample(1, Carrier::Zrs, 60.0),
            sample(1, Carrier::Smc, 30.0),
            sample(2, Carrier::Zrs, 80.0),
            sample(2, Carrier::Smc, 20.0),
            sample(1, Carrier::Tcp, 120.0),
        ]);
        let programs = "1\tredis, SET\tzrs\t3000\t1/s\n1\tredis, SET\ttcp-plain\t1500\t1/s\n";
        let figures = Figures::new(&samples, programs).unwrap();
        let rows = figures.rows("7.3-zrs-smc");
        let of = |name: &str| rows.iter().find(|r| r["name"] == name).expect(name);
        let ratio = of("throughput 64 KiB: mib_s, zrs of smc");
        assert_eq!(
            (&ratio["value"], &ratio["reference"]),
            (&3.0.into(), &"smc".into())
        );
        let plain = of("throughput 64 KiB: mib_s, tcp-plain");
        assert_eq!(
            (&plain["value"], &plain["unit"]),
            (&120.0.into(), &"MiB/s".into())
        );
        assert_eq!(of("redis, SET, zrs of tcp-plain")["value"], 2.0);
        // Three carriers and two ratios; two carriers and one ratio.
        assert_eq!(rows.len(), 5 + 3);
        let text = figures.table().text();
        assert!(text.contains("2.00 (2.00 to 2.00)"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let none = Samples::default();
        let error = |programs| Figures::new(&none, programs).err().unwrap();
        assert!(error("1\tredis\tzrs\tx\t1/s").starts_with("line 1 "));
        assert!(error("1\tredis\tpigeon\t1\t1/s").starts_with("line 1 "));
        assert!(error("").contains("nothing"));
        let ring = Samples(vec![sample(1, Carrier::ZrsRing, 1.0)]);
        assert!(Figures::new(&ring, "").is_err());
    }
}
