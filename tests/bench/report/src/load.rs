// SPDX-License-Identifier: GPL-2.0
//! The plot of the receive pool under load: the memory in use while few and many connections send.

use std::path::Path;

use plotters::prelude::*;
use zrs_bench::{Carrier, Interval, Measure, Samples};

use crate::plot::Picture;
use crate::Result;

const FILE: &str = "pool-load.svg";
const TITLE: &str = "Receive pool: the most in use, by its size";

/// Numbers of senders, and the values with the memory in use for each.
const USED: [(u32, &str); 4] = [
    (1, "used_1"),
    (4, "used_4"),
    (16, "used_16"),
    (64, "used_64"),
];
const UNREAD: [(u32, &str); 4] = [
    (1, "unread_1"),
    (4, "unread_4"),
    (16, "unread_16"),
    (64, "unread_64"),
];

/// Points by senders.
fn curve(samples: &Samples, values: &[(u32, &str)]) -> Vec<(f64, Interval)> {
    let size = |s: &&zrs_bench::Sample| s.measure == Measure::Load;
    let Some(size) = samples.0.iter().find(size).map(|s| s.size) else {
        return Vec::new();
    };
    let of = |name| samples.of(Measure::Load, Carrier::Zrs, size, name);
    values
        .iter()
        .filter_map(|&(senders, name)| Some((f64::from(senders), of(name)?)))
        .collect()
}

/// Draws it into the folder, if it was measured.
pub fn draw(samples: &Samples, folder: &Path) -> Result<Option<Picture>> {
    let curves = [
        ("windows and blocks", curve(samples, &USED)),
        ("bytes that nobody has read yet", curve(samples, &UNREAD)),
    ];
    if curves.iter().any(|(_, points)| points.len() < 2) {
        return Ok(None);
    }
    let path = folder.join(FILE);
    plot(&curves, &path).map_err(|e| format!("cannot draw {}: {e}", path.display()))?;
    Ok(Some(Picture {
        file: FILE.to_string(),
        title: TITLE,
    }))
}

fn plot(
    curves: &[(&str, Vec<(f64, Interval)>)],
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    const COLOURS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
    let root = SVGBackend::new(path, (900, 430)).into_drawing_area();
    root.fill(&WHITE)?;
    let points = || curves.iter().flat_map(|(_, points)| points);
    let highest = points().fold(1.0, |high: f64, (_, i)| high.max(i.high));
    let mut chart = ChartBuilder::on(&root)
        .caption(TITLE, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((0.8..80.0_f64).log_scale().base(2.0), 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("connections that send at once")
        .x_label_formatter(&|x| format!("{}", x.round()))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    chart.draw_series(LineSeries::new(
        [(0.8, 1.0), (80.0, 1.0)],
        RGBColor(170, 170, 170),
    ))?;
    for ((name, points), colour) in curves.iter().zip(COLOURS) {
        let medians = || points.iter().map(|(x, i)| (*x, i.median));
        chart
            .draw_series(LineSeries::new(medians(), colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        chart.draw_series(medians().map(|p| Circle::new(p, 3, colour.filled())))?;
        let bars = points.iter();
        chart.draw_series(
            bars.map(|(x, i)| PathElement::new([(*x, i.low), (*x, i.high)], colour)),
        )?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::Sample;

    #[test]
    fn a_picture() {
        let folder = std::env::temp_dir().join(format!("zrs-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut samples = Samples::default();
        assert!(draw(&samples, &folder).unwrap().is_none());
        for round in 1..=3 {
            let values = USED.iter().chain(&UNREAD);
            let values = values.map(|(n, name)| (name.to_string(), f64::from(*n) / 64.0));
            samples.0.push(Sample {
                id: 0,
                round,
                measure: Measure::Load,
                carrier: Carrier::Zrs,
                size: 256 << 10,
                values: values.collect(),
            });
        }
        let picture = draw(&samples, &folder).unwrap().unwrap();
        let svg = std::fs::read_to_string(folder.join(picture.file)).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("windows and blocks"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
