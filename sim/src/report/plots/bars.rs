//! Bars side by side.

use super::{FONT, HEIGHT, PlotError, WIDTH, colour, drawn, number};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Names below the axis at most; of more, only some are written.
const LABELS_MAX: usize = 16;

/// Bars in groups: each group has a name and as many bars as there are colours.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    /// What errors call the plot.
    pub title: &'a str,
    /// What the groups are.
    pub x: &'a str,
    /// What the height tells.
    pub y: &'a str,
    /// For each group its name and the heights.
    pub groups: Vec<(String, Vec<f64>)>,
    /// The bars of a group stand on each other.
    pub stacked: bool,
    /// For each group a least and a greatest height of its only bar.
    pub ranges: Vec<(f64, f64)>,
}

type Fail = DrawingAreaErrorKind<std::io::Error>;

impl Bars<'_> {
    /// Draws them.
    ///
    /// # Errors
    /// The library refuses.
    pub fn draw(&self) -> Result<String, PlotError> {
        drawn(self.title, (WIDTH, HEIGHT), |area| self.on(area))
    }

    fn most(&self) -> f64 {
        let of = |bars: &Vec<f64>| {
            let most = bars.iter().copied().fold(0.0, f64::max);
            if self.stacked { bars.iter().sum() } else { most }
        };
        let heights = self.groups.iter().map(|(_, bars)| of(bars));
        let most = heights.chain(self.ranges.iter().map(|range| range.1)).fold(0.0, f64::max);
        if most > 0.0 { most * 1.08 } else { 1.0 }
    }

    fn on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Fail> {
        let count = self.groups.len();
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..count.max(1) as f64, 0.0..self.most())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .max_light_lines(0)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc(self.x)
            .y_desc(self.y)
            .y_label_formatter(&|value| number(*value))
            .label_style(FONT)
            .axis_desc_style(FONT)
            .draw()?;
        for (at, (_, bars)) in self.groups.iter().enumerate() {
            chart.draw_series(self.group(at as f64, bars))?;
        }
        let whiskers = self.ranges.iter().enumerate().map(|(at, (least, most))| {
            let middle = at as f64 + 0.5;
            PathElement::new([(middle, *least), (middle, *most)], BLACK)
        });
        chart.draw_series(whiskers)?;
        let each = count.div_ceil(LABELS_MAX).max(1);
        for (at, (name, _)) in self.groups.iter().enumerate().step_by(each) {
            let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
            let style = TextStyle::from(FONT.into_font()).pos(top_centre());
            area.draw(&Text::new(name.as_str(), (x, y + 6), style))?;
        }
        Ok(())
    }

    fn group(&self, left: f64, bars: &[f64]) -> Vec<Rectangle<(f64, f64)>> {
        let width = if self.stacked { 0.8 } else { 0.8 / bars.len().max(1) as f64 };
        let mut foot = 0.0;
        let of = |(at, height): (usize, &f64)| {
            let x = left + 0.1 + if self.stacked { 0.0 } else { width * at as f64 };
            let corners = [(x, foot), (x + width, foot + height)];
            foot += if self.stacked { *height } else { 0.0 };
            Rectangle::new(corners, colour(at).filled())
        };
        bars.iter().enumerate().map(of).collect()
    }
}

/// Text hangs below its place, in the middle.
fn top_centre() -> plotters::style::text_anchor::Pos {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    Pos::new(HPos::Center, VPos::Top)
}
