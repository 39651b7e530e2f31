// SPDX-License-Identifier: GPL-2.0
//! The plot of the link table's tiers: how often an entry is found hot, and hot or in the second
//! tier.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;
use serde_json::Value;

use crate::Result;

/// Points by slots, for one size of the second tier: slots, and the share that was found.
type Curve = Vec<(f64, f64)>;

/// The test's output: for each number of slots and size of the second tier the two shares.
fn curves(rows: &Value) -> Result<BTreeMap<u64, Curve>> {
    let rows = rows.as_array().ok_or("no array of rows")?;
    let mut curves = BTreeMap::<u64, Curve>::new();
    for row in rows {
        let number = |name: &str| {
            let value = row.get(name).and_then(Value::as_f64);
            value.ok_or_else(|| format!("a row without \"{name}\": {row}"))
        };
        let found = number("hit_rate")? + number("near_hit_rate")?;
        let curve = curves.entry(number("near")? as u64).or_default();
        curve.push((number("hot")?, 100.0 * found));
    }
    for curve in curves.values_mut() {
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    if curves.values().all(|c| c.len() < 2) {
        return Err("too few rows for a plot".into());
    }
    Ok(curves)
}

/// Draws the rows into a file.
pub fn draw(rows: &Value, path: &Path) -> Result<()> {
    let curves = curves(rows)?;
    plot(&curves, path).map_err(|e| format!("cannot draw {}: {e}", path.display()))
}

fn plot(
    curves: &BTreeMap<u64, Curve>,
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    const COLOURS: [RGBColor; 4] = [
        RGBColor(0, 0, 0),
        RGBColor(0, 114, 178),
        RGBColor(0, 158, 115),
        RGBColor(213, 94, 0),
    ];
    let slots = || curves.values().flatten().map(|p| p.0);
    let (low, high) = slots().fold((f64::MAX, 1.0), |(l, h), v| (f64::min(l, v), v.max(h)));
    let root = SVGBackend::new(path, (900, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = "Link table: entries found without going home (%)";
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (low / 1.2..high * 1.2).log_scale().base(2.0),
            0.0..100.0_f64,
        )?;
    chart
        .configure_mesh()
        .x_desc("hot slots")
        .x_label_formatter(&|x| format!("{}", x.round()))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    for ((near, curve), colour) in curves.iter().zip(COLOURS.into_iter().cycle()) {
        let name = match near {
            0 => "in a hot slot".to_string(),
            near => format!("or in a second tier of {near}"),
        };
        chart
            .draw_series(LineSeries::new(
                curve.iter().copied(),
                colour.stroke_width(2),
            ))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        chart.draw_series(curve.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(hot: u32, near: u32, hit_rate: f64, near_hit_rate: f64) -> Value {
        json!({ "hot": hot, "near": near, "hit_rate": hit_rate, "near_hit_rate": near_hit_rate })
    }

    #[test]
    fn shares_add_up() {
        let rows = [
            row(64, 8, 0.5, 0.25),
            row(16, 8, 0.25, 0.5),
            row(16, 0, 0.25, 0.0),
        ];
        let curves = curves(&json!(rows)).unwrap();
        assert_eq!(curves[&8], [(16.0, 75.0), (64.0, 75.0)]);
        assert_eq!(curves[&0], [(16.0, 25.0)]);
    }

    #[test]
    fn no_table() {
        assert!(curves(&json!({})).is_err());
        assert!(curves(&json!([row(1, 0, 0.1, 0.0)])).is_err());
        let err = curves(&json!([{ "hot": 1 }])).unwrap_err();
        assert!(err.contains("hit_rate"), "{err}");
    }

    #[test]
    fn a_picture() {
        let rows = json!([
            row(16, 0, 0.25, 0.0),
            row(64, 0, 0.5, 0.0),
            row(16, 8, 0.25, 0.5)
        ]);
        let path = std::env::temp_dir().join(format!("zrs-table-{}.svg", std::process::id()));
        draw(&rows, &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("second tier of 8"));
    }
}
