// SPDX-License-Identifier: GPL-2.0
//! The plots: the figures above, below them their ratio to the limit, round by round, with the
//! interval of its median.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use zrs_bench::{number, size, Carrier, Interval, Measure, Samples};

use crate::{load, Result};

/// A plot that was written.
pub struct Picture {
    pub file: String,
    pub title: &'static str,
}

/// The plots: the measure, the value, its unit, and the title.
const PLOTS: [(Measure, &str, &str, &str, &str); 4] = [
    (
        Measure::Throughput,
        "mib_s",
        "MiB/s",
        "throughput.svg",
        "Throughput, one way",
    ),
    (
        Measure::BothWays,
        "mib_s",
        "MiB/s",
        "both-ways.svg",
        "Throughput, both ways at once, the sum",
    ),
    (
        Measure::Latency,
        "median_us",
        "us",
        "latency.svg",
        "Round trips, median",
    ),
    (
        Measure::Latency,
        "p99_us",
        "us",
        "latency-p99.svg",
        "Round trips, 99th percentile",
    ),
];

/// Points of a curve.
struct Curve {
    carrier: Carrier,
    points: Vec<(f64, Interval)>,
}

fn sizes(samples: &Samples, measure: Measure) -> Vec<u64> {
    let kinds = samples.kinds().into_iter();
    let mut sizes: Vec<u64> = kinds.filter(|k| k.0 == measure).map(|k| k.1).collect();
    sizes.dedup();
    sizes
}

fn curves(
    samples: &Samples,
    measure: Measure,
    of: impl Fn(Carrier, u64) -> Option<Interval>,
) -> Vec<Curve> {
    let sizes = sizes(samples, measure);
    let curve = |carrier| Curve {
        carrier,
        points: sizes
            .iter()
            .filter_map(|&s| Some((s as f64, of(carrier, s)?)))
            .filter(|(_, i)| i.low > 0.0 && i.high.is_finite())
            .collect(),
    };
    let all = Carrier::ALL.into_iter().map(curve);
    all.filter(|c| !c.points.is_empty()).collect()
}

/// The result of plain verbs at a size: for round trips the better one of their two modes.
pub fn limit(samples: &Samples, measure: Measure, size: u64, value: &str) -> Option<Carrier> {
    [Carrier::Verbs, Carrier::VerbsEvents]
        .into_iter()
        .filter_map(|c| Some((c, samples.of(measure, c, size, value)?.median)))
        .min_by(|a, b| match measure {
            Measure::Latency | Measure::DgramLatency => a.1.total_cmp(&b.1),
            _ => b.1.total_cmp(&a.1),
        })
        .map(|(carrier, _)| carrier)
}

/// Draws all that there are enough sizes for.
pub fn all(samples: &Samples, folder: &Path) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for (measure, value, unit, file, title) in PLOTS {
        if sizes(samples, measure).len() < 2 {
            continue;
        }
        let figures = curves(samples, measure, |c, s| samples.of(measure, c, s, value));
        let ratios = curves(samples, measure, |c, s| {
            let limit = limit(samples, measure, s, value)?;
            let rounds = |c| samples.by_round(measure, c, s, value);
            Samples::ratio(&rounds(c), &rounds(limit))
        });
        let path = folder.join(file);
        let title_with_unit = format!("{title} ({unit})");
        draw(&path, &title_with_unit, &figures, &ratios)
            .map_err(|e| format!("cannot draw {}: {e}", path.display()))?;
        pictures.push(Picture {
            file: file.to_string(),
            title,
        });
    }
    pictures.extend(load::draw(samples, folder)?);
    Ok(pictures)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw(path: &Path, title: &str, figures: &[Curve], ratios: &[Curve]) -> Drawn {
    let root = SVGBackend::new(path, (900, 800)).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(430);
    panel(&upper, title, figures, true)?;
    if !ratios.is_empty() {
        panel(&lower, "Ratio to plain verbs", ratios, false)?;
    }
    root.present()?;
    Ok(())
}

fn colour(carrier: Carrier) -> RGBColor {
    match carrier {
        Carrier::Verbs => RGBColor(0, 0, 0),
        Carrier::VerbsEvents => RGBColor(130, 130, 130),
        Carrier::Zrs => RGBColor(0, 114, 178),
        Carrier::ZrsRing => RGBColor(86, 180, 233),
        Carrier::ZrsZerocopy => RGBColor(190, 170, 0),
        Carrier::ZrsMapped => RGBColor(0, 90, 60),
        Carrier::ZrsRingSpin => RGBColor(120, 170, 60),
        Carrier::ZrsSpin => RGBColor(0, 158, 115),
        Carrier::Rsockets => RGBColor(213, 94, 0),
        Carrier::RsocketsSpin => RGBColor(230, 159, 0),
        Carrier::Tcp => RGBColor(204, 121, 167),
        Carrier::TcpSpin => RGBColor(148, 0, 211),
        Carrier::Smc => RGBColor(160, 82, 45),
        Carrier::TcpPlain => RGBColor(140, 86, 75),
        Carrier::Udp => RGBColor(90, 60, 160),
        Carrier::UdpPlain => RGBColor(60, 140, 140),
    }
}

/// Least and greatest of all ends, with some room around them.
fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    low / 1.3..high * 1.3
}

fn panel(area: &Area, title: &str, curves: &[Curve], legend: bool) -> Drawn {
    let points = || curves.iter().flat_map(|c| &c.points);
    let x = range(points().map(|p| p.0));
    let y = range(points().flat_map(|p| [p.1.low, p.1.high]));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(x.clone().log_scale().base(4.0), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("bytes in a message")
        .x_label_formatter(&|x| size(x.round() as u64))
        .y_label_formatter(&|y| number(*y))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    if !legend {
        let one = [(x.start, 1.0), (x.end, 1.0)];
        chart.draw_series(LineSeries::new(one, RGBColor(170, 170, 170)))?;
    }
    for curve in curves {
        let colour = colour(curve.carrier);
        let medians = || curve.points.iter().map(|(x, i)| (*x, i.median));
        let series = chart.draw_series(LineSeries::new(medians(), colour.stroke_width(2)))?;
        if legend {
            series
                .label(curve.carrier.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        chart.draw_series(medians().map(|p| Circle::new(p, 3, colour.filled())))?;
        let bars = curve.points.iter();
        chart.draw_series(
            bars.map(|(x, i)| PathElement::new([(*x, i.low), (*x, i.high)], colour)),
        )?;
    }
    if legend {
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zrs_bench::Sample;

    #[test]
    fn a_picture_of_two_sizes() {
        let mut samples = Samples::default();
        for (carrier, figure) in [(Carrier::Verbs, 100.0), (Carrier::Zrs, 80.0)] {
            for (bytes, round) in [(64, 1), (64, 2), (1 << 20, 1), (1 << 20, 2)] {
                samples.0.push(Sample {
                    id: 0,
                    round,
                    measure: Measure::Throughput,
                    carrier,
                    size: bytes,
                    values: [("mib_s".to_string(), figure + f64::from(round))].into(),
                });
            }
        }
        let folder = std::env::temp_dir().join(format!("zrs-plots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pictures = all(&samples, &folder).unwrap();
        assert_eq!(pictures.len(), 1);
        let svg = std::fs::read_to_string(folder.join("throughput.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("zrs") && svg.contains("Ratio"));
        std::fs::remove_dir_all(&folder).unwrap();
        let limit = limit(&samples, Measure::Throughput, 64, "mib_s");
        assert_eq!(limit, Some(Carrier::Verbs));
    }
}
