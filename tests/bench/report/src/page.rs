// SPDX-License-Identifier: GPL-2.0
//! The part of the documentation that is made from the results: tables, and where the plots are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use zrs_bench::{median, number, size, Carrier, Interval, Measure, Samples, Table};

use crate::plot::{limit, Picture};
use crate::rows::values;
use crate::targets::TARGETS;

const BEGIN: &str = ".. Written by make performance from here on";
const END: &str = ".. to here";

/// The document with the part between its marks replaced.
pub fn insert(document: &str, part: &str) -> Result<String, String> {
    let find = |mark: &str| {
        let at = document.find(mark);
        at.ok_or_else(|| format!("the document has no line \"{mark}\""))
    };
    let begin = find(BEGIN)? + BEGIN.len();
    let end = find(END)?;
    if end < begin {
        return Err("the marks of the document are in the wrong order".into());
    }
    let (head, tail) = (&document[..begin], &document[end..]);
    Ok(format!("{head}\n\n{}\n\n{tail}", part.trim()))
}

fn with_interval(i: &Interval) -> String {
    format!(
        "{} ({} to {})",
        number(i.median),
        number(i.low),
        number(i.high)
    )
}

fn heading(text: &str) -> String {
    format!("\n{text}\n{}\n\n", "-".repeat(text.len()))
}

/// All of it.
pub fn page(samples: &Samples, pictures: &[Picture], about: &str) -> String {
    let mut text = format!("{about}\n");
    text += &heading("Targets");
    let mut table = Table::new([
        "target",
        "goal",
        "bound",
        "figure (interval)",
        "to",
        "result",
    ]);
    for target in &TARGETS {
        let row = match target.figure(samples) {
            None => [String::new(), String::new(), "not measured".into()],
            Some(figure) => {
                let note = figure.note.as_ref().map(|note| format!("; {note}"));
                [
                    with_interval(&figure.interval) + &note.unwrap_or_default(),
                    figure.theirs.map_or("\\-".into(), |c| c.to_string()),
                    target.verdict(&figure).name().into(),
                ]
            }
        };
        let name = [target.name.to_string()].into_iter();
        table.row(name.chain(target.texts()).chain(row));
    }
    text += &table.rst();
    for measure in Measure::ALL {
        for (value, unit) in values(measure) {
            text += &figures(samples, measure, value, unit);
        }
    }
    text += &tasks(samples);
    for picture in pictures {
        text += &heading(picture.title);
        let _ = writeln!(
            text,
            ".. image:: performance/{}\n   :alt: {}",
            picture.file, picture.title
        );
    }
    text
}

/// One table: sizes down, carriers across, medians and behind them the ratio to plain verbs.
fn figures(samples: &Samples, measure: Measure, value: &str, unit: &str) -> String {
    let has = |c: Carrier, s: u64| samples.of(measure, c, s, value);
    let kinds = samples.kinds();
    let mut carriers: Vec<Carrier> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for (_, bytes, carrier) in kinds.into_iter().filter(|k| k.0 == measure) {
        if has(carrier, bytes).is_some() {
            carriers.push(carrier);
            sizes.push(bytes);
        }
    }
    carriers.sort();
    carriers.dedup();
    sizes.dedup();
    if carriers.is_empty() {
        return String::new();
    }
    let names = carriers.iter().map(|c| c.name().to_string());
    let mut table = Table::new(std::iter::once("bytes".to_string()).chain(names));
    for bytes in sizes {
        let limit = limit(samples, measure, bytes, value);
        let cell = |&carrier: &Carrier| {
            let Some(figure) = has(carrier, bytes) else {
                return "\\-".to_string();
            };
            let rounds = |c| samples.by_round(measure, c, bytes, value);
            let ratio = limit.and_then(|l| Samples::ratio(&rounds(carrier), &rounds(l)));
            let compared = unit == "s/GiB" || value.starts_with("instructions");
            match ratio.filter(|_| measure != Measure::Cost || compared) {
                Some(ratio) => format!("{} ({})", number(figure.median), number(ratio.median)),
                None => number(figure.median),
            }
        };
        let label = if bytes == 0 {
            "\\-".to_string()
        } else {
            size(bytes)
        };
        table.row(std::iter::once(label).chain(carriers.iter().map(cell)));
    }
    heading(&format!("{measure}: {value}, {unit}")) + &table.rst()
}

/// Processor time of programs and kernel threads for each GiB, in messages of 1 MiB: the largest of
/// them.
fn tasks(samples: &Samples) -> String {
    const SIZE: u64 = 1 << 20;
    const MOST: usize = 12;
    let of_it = |s: &&zrs_bench::Sample| s.measure == Measure::Cost && s.size == SIZE;
    // Seconds a GiB of each task, by carrier and round.
    let mut spent: BTreeMap<&str, BTreeMap<Carrier, Vec<f64>>> = BTreeMap::new();
    for sample in samples.0.iter().filter(of_it) {
        let Some(bytes) = sample.values.get("bytes").filter(|b| **b > 0.0) else {
            continue;
        };
        for (name, seconds) in &sample.values {
            if let Some(task) = name.strip_prefix("task:") {
                let per_gib = seconds / bytes * f64::from(1 << 30);
                let by_carrier = spent.entry(task).or_default();
                by_carrier.entry(sample.carrier).or_default().push(per_gib);
            }
        }
    }
    // A task that a round has not seen has taken nothing there.
    for (carrier, times) in spent.values_mut().flatten() {
        let rounds = samples
            .0
            .iter()
            .filter(|s| of_it(s) && s.carrier == *carrier)
            .count();
        times.resize(rounds.max(times.len()), 0.0);
    }
    let most = |by_carrier: &BTreeMap<Carrier, Vec<f64>>| {
        let medians = by_carrier.values().map(|v| median(v));
        medians.fold(0.0, f64::max)
    };
    let mut tasks: Vec<_> = spent
        .iter()
        .map(|(task, by)| (*task, by, most(by)))
        .collect();
    tasks.sort_by(|a, b| b.2.total_cmp(&a.2));
    tasks.truncate(MOST);
    let mut carriers: Vec<Carrier> = tasks.iter().flat_map(|t| t.1.keys().copied()).collect();
    carriers.sort();
    carriers.dedup();
    if carriers.is_empty() {
        return String::new();
    }
    let names = carriers.iter().map(|c| c.name().to_string());
    let mut table = Table::new(std::iter::once("task".to_string()).chain(names));
    for (task, by_carrier, _) in tasks {
        let cell = |c: &Carrier| {
            by_carrier
                .get(c)
                .map_or("\\-".into(), |v| number(median(v)))
        };
        table.row(std::iter::once(task.to_string()).chain(carriers.iter().map(cell)));
    }
    heading("cost, 1 Mi: processor time of programs and kernel threads, s/GiB") + &table.rst()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::Sample;

    #[test]
    fn only_the_part_between_the_marks() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let once = insert(&document, "new\n").unwrap();
        assert_eq!(once, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(insert(&once, "new").unwrap(), once);
        assert!(insert("nothing", "x").is_err());
        assert!(insert(&format!("{END}\n{BEGIN}\n"), "x").is_err());
    }

    #[test]
    fn tables_with_ratios() {
        let mut samples = Samples::default();
        for (carrier, mib_s) in [(Carrier::Verbs, 100.0), (Carrier::ZrsRing, 90.0)] {
            samples.0.push(Sample {
                id: 0,
                round: 1,
                measure: Measure::Throughput,
                carrier,
                size: 4096,
                values: [("mib_s".to_string(), mib_s)].into(),
            });
        }
        let text = page(&samples, &[], "Here and now.");
        assert!(text.starts_with("Here and now.\n\nTargets\n-------\n"));
        assert!(text.contains("4 Ki   100 (1.00)  90.0 (0.900)"), "{text}");
        assert!(text.contains("not measured"));
    }
}
