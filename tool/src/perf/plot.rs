//! The plot of `erd perf`: latency and rate over message size.

use super::Point;
use crate::text;
use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (720, 720);
/// Text of all sorts.
const FONT: &str = "sans-serif";

/// Draws two charts, one above the other.
///
/// # Errors
/// If there are no points.
pub fn svg(points: &[Point], title: &str) -> Result<String> {
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        let root = root.titled(title, (FONT, 18)).map_err(|error| anyhow!("{error}"))?;
        let (above, below) = root.split_vertically(SIZE.1 / 2 - 15);
        let of = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
            points.iter().map(|point| (point.bytes as f64, value(point))).collect()
        };
        let latencies = [
            ("median", BLUE, of(|point| point.latency.median_ns as f64 / 1e3)),
            ("p99", RED, of(|point| point.latency.p99_ns as f64 / 1e3)),
        ];
        // The axes' marks are powers of two of these units: 64 us, 128 us.
        chart(&above, ("half round trip", |us| text::time((us * 1e3) as u64)), &latencies)?;
        let rates = [("payload", BLUE, of(|point| point.bytes_per_s / 1e6))];
        chart(&below, ("one way", |mb_per_s| text::rate(mb_per_s * 1e6)), &rates)?;
        root.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(out)
}

/// A named line.
type Series = (&'static str, RGBColor, Vec<(f64, f64)>);

fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    (label, show): (&str, fn(f64) -> String),
    series: &[Series],
) -> Result<()> {
    let fail = |error| anyhow!("the plot: {error}");
    let all = || series.iter().flat_map(|(_, _, line)| line);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) =
            all().map(of).fold((f64::MAX, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        // One point alone has a range, too.
        (low.max(0.001) / 2.0)..(high.max(0.001) * 2.0)
    };
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(
            range(|at| at.0).log_scale().base(4.0),
            range(|at| at.1).log_scale().base(2.0),
        )
        .map_err(fail)?;
    chart
        .configure_mesh()
        .x_desc("message")
        .y_desc(label)
        .x_label_formatter(&|bytes| text::bytes(*bytes as u64))
        .y_label_formatter(&|value| show(*value))
        .label_style((FONT, 13))
        .draw()
        .map_err(fail)?;
    for (name, colour, line) in series {
        let dots = line.iter().map(|at| Circle::new(*at, 3, colour.filled()));
        chart.draw_series(dots).map_err(fail)?;
        chart
            .draw_series(LineSeries::new(line.iter().copied(), colour))
            .map_err(fail)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], *colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .label_font((FONT, 13))
        .draw()
        .map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::super::Latency;
    use super::*;

    #[test]
    fn a_plot_has_both_charts_and_survives_a_single_point() {
        let latency = Latency { min_ns: 1000, median_ns: 2000, p99_ns: 9000, rounds: 5 };
        let point = |bytes| Point { bytes, latency, bytes_per_s: 1e9, messages_per_s: 1e3 };
        for points in [vec![point(64)], vec![point(64), point(1 << 20)]] {
            let svg = svg(&points, "a to b").expect("a plot");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            for text in ["a to b", "half round trip", "one way", "p99"] {
                assert!(svg.contains(text), "{text}");
            }
        }
    }
}
