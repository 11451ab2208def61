//! Curves over two axes.

use super::{FONT, HEIGHT, POINTS_MAX, PlotError, WIDTH, colour, drawn, number};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

/// The axes of a plot.
#[derive(Clone, Copy, Debug)]
pub struct Axes<'a> {
    /// What errors call the plot.
    pub title: &'a str,
    /// What the horizontal axis tells.
    pub x: &'a str,
    /// What the vertical axis tells.
    pub y: &'a str,
    /// Equal distances stand for equal ratios.
    pub log: [bool; 2],
    /// Every curve's points are marked.
    pub dots: bool,
}

/// A curve's points.
pub type Curve = Vec<(f64, f64)>;

type Fail = DrawingAreaErrorKind<std::io::Error>;
type Area<'a, 'b> = &'a DrawingArea<SVGBackend<'b>, Shift>;

/// Draws curves, each in its colour.
///
/// # Errors
/// The library refuses.
pub fn lines(axes: Axes<'_>, curves: &[Curve]) -> Result<String, PlotError> {
    let of = |which: fn(&(f64, f64)) -> f64| {
        let values = curves.iter().flatten().map(which);
        values.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)))
    };
    let (x, y) = (of(|at| at.0), of(|at| at.1));
    let thinned: Vec<Curve> = curves.iter().map(thin).collect();
    drawn(axes.title, (WIDTH, HEIGHT), |area| match axes.log {
        [false, false] => on(area, axes, linear(x), linear(y), &thinned),
        [true, false] => on(area, axes, ratio(x).log_scale(), linear(y), &thinned),
        [false, true] => on(area, axes, linear(x), ratio(y).log_scale(), &thinned),
        [true, true] => on(area, axes, ratio(x).log_scale(), ratio(y).log_scale(), &thinned),
    })
}

/// From 0, or less, to a little more than the greatest value.
fn linear((low, high): (f64, f64)) -> Range<f64> {
    let (low, high) = (low.min(0.0), high.max(0.0));
    low..(if high > low { high + (high - low) * 0.05 } else { low + 1.0 })
}

/// The values' range, with room at both ends.
fn ratio((low, high): (f64, f64)) -> Range<f64> {
    let low = low.max(1e-6);
    let room = (high / low).max(1.0).powf(0.05).max(1.1);
    low / room..high.max(low) * room
}

fn on<X, Y>(
    area: Area<'_, '_>,
    axes: Axes<'_>,
    x: impl AsRangedCoord<CoordDescType = X, Value = f64>,
    y: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
    curves: &[Curve],
) -> Result<(), Fail>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_labels(8)
        .y_labels(6)
        .max_light_lines(0)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    for (at, curve) in curves.iter().enumerate() {
        let colour = colour(at);
        chart.draw_series(LineSeries::new(curve.iter().copied(), colour.stroke_width(2)))?;
        if axes.dots || curve.len() == 1 {
            chart.draw_series(curve.iter().map(|at| Circle::new(*at, 4, colour.filled())))?;
        }
    }
    Ok(())
}

/// A curve with few points, the last one among them.
fn thin(curve: &Curve) -> Curve {
    if curve.len() <= POINTS_MAX {
        return curve.clone();
    }
    let last = curve.len() - 1;
    (0..POINTS_MAX).map(|at| curve[at * last / (POINTS_MAX - 1)]).collect()
}
