// SPDX-License-Identifier: GPL-2.0
//! The targets: ratios of the same round, and which side of a bound their intervals are on. The
//! bound is the goal, unless it is proven that the device leaves less possible;
//! `Documentation/performance.rst` says where, and how.

mod list;

use std::fmt;
use std::fmt::Write as _;

use serde_json::Value;
use zrs_bench::{median, Carrier, Interval, Measure, Samples};

pub use list::TARGETS;

/// Which side of a figure is good.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(figure) => write!(f, ">= {figure}"),
            Self::AtMost(figure) => write!(f, "<= {figure}"),
        }
    }
}

/// Where the whole interval of a figure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// On the good side of the bound.
    Met,
    /// Beyond the bound.
    Missed,
    /// On both sides, of too few rounds, or not there.
    Undecided,
}

impl Verdict {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        }
    }
}

/// The figure of a target.
pub struct Figure {
    pub interval: Interval,
    /// The carrier that it is the ratio to, if there is one.
    pub theirs: Option<Carrier>,
    /// Why it decides nothing, whatever it is.
    pub note: Option<String>,
}

/// One target: our value divided by the same value of the other carrier, or, without one, our value
/// itself. Of several carriers the best one is taken, on both sides.
pub struct Target {
    pub name: &'static str,
    pub rows: &'static str,
    measure: Measure,
    size: u64,
    /// The values to compare by; the first one that has been measured counts.
    values: &'static [&'static str],
    ours: &'static [Carrier],
    pub theirs: &'static [Carrier],
    /// The figure that ZRS should have on any device.
    goal: Bound,
    /// The bound, where a proof says that this device does not allow the goal.
    proven: Option<f64>,
    /// The least that the value of this name has to be, or a measurement says nothing about the
    /// target.
    needs: Option<(&'static str, f64)>,
    /// Why the bound is missed, as far as that is known; in a few words what
    /// `Documentation/performance.rst` explains.
    cause: &'static str,
}

/// Fewer paired rounds meet nothing: their median says too little. Memory hardly changes, and is
/// measured in three.
fn fewest_rounds(measure: Measure) -> usize {
    match measure {
        Measure::Memory => 3,
        _ => 7,
    }
}

/// Defaults of the fields.
const NONE: Target = Target {
    name: "",
    rows: "",
    measure: Measure::Throughput,
    size: 0,
    values: &[],
    ours: &[],
    theirs: &[],
    goal: Bound::AtMost(0.0),
    proven: None,
    needs: None,
    cause: "",
};

impl Target {
    /// The figure, or None if it was not measured.
    pub fn figure(&self, samples: &Samples) -> Option<Figure> {
        self.values.iter().find_map(|value| {
            let rounds = |c: Carrier| samples.by_round(self.measure, c, self.size, value);
            let best = |carriers: &[Carrier]| {
                let medians = carriers.iter().filter_map(|&c| {
                    let values: Vec<f64> = rounds(c).into_values().collect();
                    (!values.is_empty()).then(|| (c, median(&values)))
                });
                match self.goal {
                    Bound::AtLeast(_) => medians.max_by(|a, b| a.1.total_cmp(&b.1)),
                    Bound::AtMost(_) => medians.min_by(|a, b| a.1.total_cmp(&b.1)),
                }
            };
            let ours = best(self.ours)?.0;
            let (interval, theirs) = match self.theirs {
                [] => (samples.of(self.measure, ours, self.size, value)?, None),
                theirs => {
                    let theirs = best(theirs)?.0;
                    (
                        Samples::ratio(&rounds(ours), &rounds(theirs))?,
                        Some(theirs),
                    )
                }
            };
            let note = self.needs.and_then(|(name, least)| {
                let seen = samples.of(self.measure, ours, self.size, name)?.low;
                (seen < least).then(|| format!("{name}: {seen} of {least}"))
            });
            Some(Figure {
                interval,
                theirs,
                note,
            })
        })
    }

    /// Judges the figure.
    pub fn verdict(&self, figure: &Figure) -> Verdict {
        let (low, high) = (figure.interval.low, figure.interval.high);
        let (met, missed) = match self.bound() {
            Bound::AtLeast(bound) => (low >= bound, high < bound),
            Bound::AtMost(bound) => (high <= bound, low > bound),
        };
        let enough = figure.interval.rounds >= fewest_rounds(self.measure);
        match (enough && figure.note.is_none(), met, missed) {
            (true, true, _) => Verdict::Met,
            (true, _, true) => Verdict::Missed,
            _ => Verdict::Undecided,
        }
    }

    fn bound(&self) -> Bound {
        match (self.goal, self.proven) {
            (goal, None) => goal,
            (Bound::AtLeast(_), Some(bound)) => Bound::AtLeast(bound),
            (Bound::AtMost(_), Some(bound)) => Bound::AtMost(bound),
        }
    }

    /// The goal and the bound as text.
    pub fn texts(&self) -> [String; 2] {
        [self.goal, self.bound()].map(|bound| bound.to_string())
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
}

/// Whether results of `theirs` say anything about the code of `now`: a reason if they do not.
fn stale(theirs: &str, now: &str) -> Option<String> {
    let dirty = |commit: &str| commit.ends_with("-dirty");
    if now == theirs && !dirty(now) && now != UNKNOWN {
        return None;
    }
    Some(match theirs {
        "" | UNKNOWN => "the results do not say which commit they are of".into(),
        _ if dirty(theirs) => {
            format!("the results are of {theirs}: of changes that were in no commit")
        }
        _ => format!("the results are of {theirs}, and the code is of {now}"),
    })
}

/// The output of `tests/bench/commit` without a repository.
const UNKNOWN: &str = "unknown";

/// Why the target of this name is missed.
fn cause(name: &str) -> &'static str {
    let target = TARGETS.iter().find(|target| target.name == name);
    match target.map_or("", |target| target.cause) {
        "" => "not known",
        cause => cause,
    }
}

/// A line for each row that has a target, with the cause where it is missed, the sums, and how many were missed. An error if the
/// results are of other code than that of `commit`.
pub fn check(results: &Value, commit: &str) -> Result<(String, usize), String> {
    let rows = results.as_array().ok_or("the results are not an array")?;
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    if let Some(reason) = rows
        .iter()
        .find_map(|row| stale(&word(row, "commit"), commit))
    {
        return Err(format!("{reason}: run make bench"));
    }
    let mut text = String::new();
    let mut sums = [Verdict::Met, Verdict::Missed, Verdict::Undecided].map(|v| (v.name(), 0));
    for row in rows.iter().filter(|row| row["goal"].is_string()) {
        let verdict = word(row, "verdict");
        let sum = sums.iter_mut().find(|sum| sum.0 == verdict);
        sum.ok_or_else(|| format!("{verdict} is no verdict"))?.1 += 1;
        let figure = match row["value"].as_f64() {
            Some(value) => format!(
                "{value:.3} ({:.3} to {:.3})",
                row["low"].as_f64().unwrap_or(f64::NAN),
                row["high"].as_f64().unwrap_or(f64::NAN)
            ),
            None => "not measured".into(),
        };
        let note = match row["note"].as_str() {
            Some(note) => format!("; {note}"),
            None => String::new(),
        };
        let name = word(row, "name");
        let known = row["cause"].as_str().unwrap_or_else(|| cause(&name));
        let cause = match verdict == Verdict::Missed.name() {
            true => format!("; cause: {known}"),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "{verdict:<9}  {name}: {figure}, goal {}, bound {}{note}{cause}",
            word(row, "goal"),
            word(row, "bound"),
        );
    }
    if text.is_empty() {
        return Err("the results have no targets: run make bench".into());
    }
    let sums_text = sums.map(|(name, sum)| format!("{sum} {name}"));
    let _ = writeln!(text, "{}", sums_text.join(", "));
    Ok((text, sums[1].1))
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
        let figure = TARGETS[3].figure(&samples).unwrap();
        assert_eq!(
            (figure.interval.median, figure.theirs),
            (0.5, Some(Carrier::Rsockets))
        );
        assert_eq!(TARGETS[3].verdict(&figure), Verdict::Met);
        assert!(TARGETS[4].figure(&samples).is_none());
    }

    #[test]
    fn a_figure_of_its_own() {
        let samples = Samples(vec![Sample {
            id: 0,
            round: 1,
            measure: Measure::Cost,
            carrier: Carrier::ZrsRing,
            size: 1 << 20,
            values: [("signaled_per_mib".to_string(), 4.5)].into(),
        }]);
        let figure = TARGETS[16].figure(&samples).unwrap();
        assert_eq!((figure.interval.median, figure.theirs), (4.5, None));
        assert_eq!((TARGETS[16].unit(), TARGETS[0].unit()), ("1/MiB", "ratio"));
    }

    fn figure(low: f64, high: f64, rounds: usize) -> Figure {
        Figure {
            interval: Interval {
                median: (low + high) / 2.0,
                low,
                high,
                confidence: 0.98,
                rounds,
            },
            theirs: None,
            note: None,
        }
    }

    #[test]
    fn the_whole_interval_decides() {
        use Verdict::{Met, Missed, Undecided};
        let at_least = Target {
            goal: Bound::AtLeast(1.0),
            ..NONE
        };
        let at_most = Target {
            goal: Bound::AtMost(1.0),
            ..NONE
        };
        for (low, high, least, most) in [
            (1.0, 2.0, Met, Undecided),
            (0.5, 1.0, Undecided, Met),
            (0.5, 2.0, Undecided, Undecided),
            (0.1, 0.99, Missed, Met),
            (1.01, 9.0, Met, Missed),
            (1.0, 1.0, Met, Met),
        ] {
            let figure = figure(low, high, 7);
            assert_eq!(at_least.verdict(&figure), least, "{low} to {high}");
            assert_eq!(at_most.verdict(&figure), most, "{low} to {high}");
        }
        // Too few rounds, or too few connections.
        assert_eq!(at_least.verdict(&figure(2.0, 3.0, 6)), Undecided);
        assert_eq!(at_least.verdict(&figure(0.1, 0.2, 6)), Undecided);
        let other = Figure {
            note: Some("few".into()),
            ..figure(2.0, 3.0, 7)
        };
        assert_eq!(at_least.verdict(&other), Undecided);
        let memory = Target {
            measure: Measure::Memory,
            ..at_least
        };
        assert_eq!(memory.verdict(&figure(2.0, 3.0, 3)), Met);
    }

    #[test]
    fn a_proven_bound_judges_and_the_goal_stays() {
        let target = Target {
            goal: Bound::AtLeast(1.7),
            proven: Some(1.2),
            ..NONE
        };
        assert_eq!(target.texts(), [">= 1.7", ">= 1.2"]);
        assert_eq!(target.verdict(&figure(1.3, 1.4, 7)), Verdict::Met);
        assert_eq!(target.verdict(&figure(1.0, 1.1, 7)), Verdict::Missed);
        // A bound beyond the goal is ignored.
        for target in &TARGETS {
            match (target.goal, target.proven) {
                (Bound::AtLeast(goal), Some(bound)) => assert!(bound < goal, "{}", target.name),
                (Bound::AtMost(goal), Some(bound)) => assert!(bound > goal, "{}", target.name),
                _ => {}
            }
        }
    }

    #[test]
    fn fewer_connections_decide_nothing() {
        let hold = TARGETS.iter().find(|t| t.measure == Measure::Hold).unwrap();
        let held = |idle: f64| -> Samples {
            let sample = |round| Sample {
                id: 0,
                round,
                measure: Measure::Hold,
                carrier: Carrier::Zrs,
                size: hold.size,
                values: [("held_ratio".to_string(), 0.95), ("idle".to_string(), idle)].into(),
            };
            Samples((1..=7).map(sample).collect())
        };
        let few = hold.figure(&held(1000.0)).unwrap();
        assert_eq!(few.note.as_deref(), Some("idle: 1000 of 50000"));
        assert_eq!(hold.verdict(&few), Verdict::Undecided);
        let all = hold.figure(&held(50_000.0)).unwrap();
        assert_eq!(hold.verdict(&all), Verdict::Met);
    }

    fn row(name: &str, verdict: &str) -> Value {
        json!({
            "name": name, "value": 2.0, "low": 1.0, "high": 3.0, "goal": ">= 2", "bound": ">= 1",
            "verdict": verdict, "note": null, "commit": "abc",
        })
    }

    #[test]
    fn a_line_for_each_and_the_sums() {
        let mut none = row("d", "undecided");
        none["value"] = Value::Null;
        let mut few = row("c", "undecided");
        few["note"] = "idle: 1 of 2".into();
        let mut plain = row("e", "met");
        plain["goal"] = Value::Null;
        let rows = json!([row("a", "met"), row("b", "missed"), few, none, plain]);
        let (text, missed) = check(&rows, "abc").unwrap();
        assert_eq!(missed, 1);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "met        a: 2.000 (1.000 to 3.000), goal >= 2, bound >= 1",
                "missed     b: 2.000 (1.000 to 3.000), goal >= 2, bound >= 1; cause: not known",
                "undecided  c: 2.000 (1.000 to 3.000), goal >= 2, bound >= 1; idle: 1 of 2",
                "undecided  d: not measured, goal >= 2, bound >= 1",
                "1 met, 1 missed, 2 undecided",
            ]
        );
        assert!(check(&json!([]), "abc").is_err() && check(&json!({}), "abc").is_err());
        assert!(check(&json!([row("a", "splendid")]), "abc").is_err());
    }

    #[test]
    fn a_missed_bound_has_its_cause_beside_it() {
        let known = TARGETS.iter().find(|t| !t.cause.is_empty()).unwrap();
        let line = |verdict: &str| {
            let (text, _) = check(&json!([row(known.name, verdict)]), "abc").unwrap();
            text.lines().next().unwrap().to_string()
        };
        let mut own = row("of memory nodes", "missed");
        own["cause"] = "its own".into();
        let (text, _) = check(&json!([own]), "abc").unwrap();
        assert!(text.contains("; cause: its own\n"), "{text}");
        let cause = format!("; cause: {}", known.cause);
        assert!(line("missed").ends_with(&cause), "{}", line("missed"));
        assert!(!line("met").contains(&cause) && !line("undecided").contains(&cause));
    }

    /// The targets that the table of explanations has are those with a cause.
    #[test]
    fn causes_are_those_of_the_documentation() {
        const PAGE: &str = include_str!("../../../../Documentation/performance.rst");
        let (_, rest) = PAGE
            .split_once("\nTargets that are missed or undecided\n")
            .unwrap();
        let (table, _) = rest
            .split_once("\nWhere a round trip's time goes\n")
            .unwrap();
        let explained: Vec<_> = table
            .lines()
            .filter_map(|line| line.strip_prefix("   * - "))
            .filter(|name| *name != "target")
            .collect();
        let caused = TARGETS.iter().filter(|t| !t.cause.is_empty());
        assert_eq!(explained, caused.map(|t| t.name).collect::<Vec<_>>());
    }

    #[test]
    fn results_of_other_code_are_refused() {
        let refused = |theirs: Value, now: &str| {
            let mut row = row("a", "met");
            row["commit"] = theirs;
            check(&json!([row]), now).unwrap_err()
        };
        assert!(refused(json!("def"), "abc").contains("are of def, and the code is of abc"));
        assert!(refused(json!("abc"), "abc-dirty").contains("the code is of abc-dirty"));
        assert!(refused(json!("abc-dirty"), "abc-dirty").contains("in no commit"));
        assert!(refused(Value::Null, "abc").contains("do not say"));
        assert!(refused(json!("unknown"), "unknown").contains("do not say"));
    }
}
