//! Plots as SVG. [`lines`] draws curves, [`bars`] draws bars, [`heat`] draws links over time, [`chosen`] says which of them
//! show what of a run.

pub mod bars;
pub mod chosen;
pub mod heat;
pub mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;

/// Width of a plot, in pixels.
const WIDTH: u32 = 760;
/// Height of most plots.
const HEIGHT: u32 = 330;
/// Text of all sorts, and its size.
const FONT: (&str, u32) = ("sans-serif", 15);
/// Points of a curve at most.
const POINTS_MAX: usize = 400;

/// Colours that people with colour blindness can tell apart (Okabe and Ito, 2008), and darker ones when there are more
/// curves.
const PALETTE: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(120, 60, 140),
    RGBColor(120, 90, 20),
    RGBColor(150, 20, 40),
    RGBColor(20, 70, 60),
    RGBColor(40, 40, 110),
];

/// Why a plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot {title:?}: {why}")]
pub struct PlotError {
    title: String,
    why: String,
}

/// A finished plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The names of its colours.
    pub legend: Vec<(String, String)>,
    /// The drawing.
    pub svg: String,
}

/// The colour of a curve or bar.
#[must_use]
pub fn colour(at: usize) -> RGBColor {
    PALETTE[at % PALETTE.len()]
}

/// Names with the colours that stand for them, as a page writes those.
fn legend<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let of = |(at, name): (usize, &str)| {
        let RGBColor(red, green, blue) = colour(at);
        (name.to_owned(), format!("#{red:02x}{green:02x}{blue:02x}"))
    };
    names.into_iter().enumerate().map(of).collect()
}

/// Draws on a white sheet.
fn drawn<E: std::fmt::Display>(
    title: &str,
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), E>,
) -> Result<String, PlotError> {
    let error = |why: String| PlotError { title: title.to_owned(), why };
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        root.fill(&WHITE).map_err(|why| error(why.to_string()))?;
        draw(&root).map_err(|why| error(why.to_string()))?;
        root.present().map_err(|why| error(why.to_string()))?;
    }
    Ok(out)
}

/// A number without needless digits.
fn number(value: f64) -> String {
    let size = value.abs();
    let (value, unit) = match size {
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_no_needless_digits() {
        let texts = [0.0, 0.25, 1.0, 12.5, 250.0, 2500.0, 12_000.0, 2e6, 1.5e9].map(number);
        assert_eq!(texts, ["0", "0.25", "1", "12.5", "250", "2500", "12k", "2M", "1.5G"]);
    }
}
