//! Links over time: a line for each row of links, the hosts' links first, and darker where there is more.

use super::{FONT, PlotError, WIDTH, drawn, number};
use crate::series::{RowSeries, Series};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Columns at most: several intervals share one.
const COLUMNS_MAX: usize = 128;
/// Steps of the colours.
const STEPS: usize = 24;
/// Space around the map, in pixels: left, right, above, below.
const LEFT: i32 = 120;
const RIGHT: i32 = 110;
const ABOVE: i32 = 10;
const BELOW: i32 = 46;
/// Least and greatest height of the map.
const HEIGHTS: [i32; 2] = [160, 520];
/// Height of a row, if the map has room for it.
const ROW_HEIGHT: i32 = 8;

type Area<'a, 'b> = &'a DrawingArea<SVGBackend<'b>, Shift>;
type Fail = DrawingAreaErrorKind<std::io::Error>;

/// A map of something about links.
pub struct Heat<'a> {
    /// What errors call the plot.
    pub title: &'a str,
    /// What a colour tells, with its unit.
    pub unit: &'a str,
    /// The value of a row in an interval.
    pub value: &'a dyn Fn(&RowSeries, usize) -> f64,
    /// The value of the darkest colour; the greatest value there is without it.
    pub most: Option<f64>,
}

/// What is drawn: for each row of links a value for each column.
struct Map {
    columns: Vec<Vec<f64>>,
    most: f64,
    height: i32,
    whole_us: f64,
}

/// From little to much: each is darker than the one before, for eyes that see few colours.
const SHADES: [RGBColor; 5] = [
    RGBColor(254, 240, 217),
    RGBColor(253, 204, 138),
    RGBColor(252, 141, 89),
    RGBColor(200, 40, 40),
    RGBColor(80, 0, 20),
];

/// The colour of a share from 0 to 1; nothing is white.
fn shade(share: f64) -> RGBColor {
    let share = share.clamp(0.0, 1.0);
    if share == 0.0 { WHITE } else { DerivedColorMap::new(&SHADES).get_color(share) }
}

impl Heat<'_> {
    /// Draws the map.
    ///
    /// # Errors
    /// The library refuses.
    pub fn draw(&self, series: &Series) -> Result<String, PlotError> {
        let columns: Vec<Vec<f64>> =
            series.rows.iter().map(|row| self.columns(series, row)).collect();
        let greatest = columns.iter().flatten().copied().fold(0.0, f64::max);
        let rows = columns.len() as i32;
        let map = Map {
            columns,
            most: self.most.unwrap_or(greatest),
            height: (rows * ROW_HEIGHT).clamp(HEIGHTS[0], HEIGHTS[1]),
            whole_us: series.whole_ps as f64 / 1e6,
        };
        let size = (WIDTH, (map.height + ABOVE + BELOW) as u32);
        drawn(self.title, size, |area| {
            map.cells(area)?;
            map.tiers(area, series)?;
            map.times(area)?;
            self.scale(area, &map)
        })
    }

    /// The greatest value of each column's intervals.
    fn columns(&self, series: &Series, row: &RowSeries) -> Vec<f64> {
        let samples: Vec<usize> = (0..series.samples()).collect();
        let each = samples.len().div_ceil(COLUMNS_MAX).max(1);
        let greatest =
            |chunk: &[usize]| chunk.iter().map(|at| (self.value)(row, *at)).fold(0.0, f64::max);
        samples.chunks(each).map(greatest).collect()
    }

    /// The colours and what they stand for.
    fn scale(&self, area: Area<'_, '_>, map: &Map) -> Result<(), Fail> {
        let left = WIDTH as i32 - RIGHT + 16;
        let height = (map.height - 30).min(180);
        let top = ABOVE + 22;
        let style = TextStyle::from(FONT.into_font());
        area.draw(&Text::new(self.unit, (left, ABOVE), style.clone()))?;
        for step in 0..=STEPS {
            let share = 1.0 - step as f64 / STEPS as f64;
            let y = |step: usize| top + height * step as i32 / (STEPS as i32 + 1);
            let corners = [(left, y(step)), (left + 14, y(step + 1))];
            area.draw(&Rectangle::new(corners, shade(share).filled()))?;
        }
        area.draw(&Rectangle::new([(left, top), (left + 14, top + height)], BLACK))?;
        for (share, y) in [(1.0, top + 6), (0.5, top + height / 2), (0.0, top + height - 6)] {
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(number(map.most * share), (left + 20, y), style))?;
        }
        Ok(())
    }
}

impl Map {
    fn width() -> i32 {
        WIDTH as i32 - LEFT - RIGHT
    }

    fn y(&self, row: usize) -> i32 {
        ABOVE + self.height * row as i32 / self.columns.len().max(1) as i32
    }

    fn cells(&self, area: Area<'_, '_>) -> Result<(), Fail> {
        for (row, values) in self.columns.iter().enumerate() {
            let steps: Vec<usize> = values.iter().map(|value| self.step(*value)).collect();
            let x = |column: usize| LEFT + Map::width() * column as i32 / steps.len() as i32;
            let mut from = 0;
            // Equal neighbours are one rectangle.
            for run in steps.chunk_by(|a, b| a == b) {
                let to = from + run.len();
                if run[0] > 0 {
                    let corners = [(x(from), self.y(row)), (x(to), self.y(row + 1))];
                    let colour = shade(run[0] as f64 / STEPS as f64);
                    area.draw(&Rectangle::new(corners, colour.filled()))?;
                }
                from = to;
            }
        }
        let corners = [(LEFT, ABOVE), (LEFT + Map::width(), ABOVE + self.height)];
        area.draw(&Rectangle::new(corners, BLACK))
    }

    /// The step of the colours for a value: only nothing is 0.
    fn step(&self, value: f64) -> usize {
        if value <= 0.0 || self.most <= 0.0 {
            return 0;
        }
        ((value / self.most * STEPS as f64).ceil() as usize).clamp(1, STEPS)
    }

    /// Says at the left which rows are whose links.
    fn tiers(&self, area: Area<'_, '_>, series: &Series) -> Result<(), Fail> {
        let mut first = 0;
        for rows in series.rows.chunk_by(|a, b| a.tiers == b.tiers) {
            let (top, bottom) = (self.y(first), self.y(first + rows.len()));
            let style = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(tier_name(rows[0].tiers), (LEFT - 8, (top + bottom) / 2), style))?;
            let line = [(LEFT - 6, top), (LEFT + Map::width(), top)];
            area.draw(&PathElement::new(line, RGBColor(150, 150, 150)))?;
            first += rows.len();
        }
        Ok(())
    }

    fn times(&self, area: Area<'_, '_>) -> Result<(), Fail> {
        let bottom = ABOVE + self.height;
        let style = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for part in 0..=4 {
            let x = LEFT + Map::width() * part / 4;
            area.draw(&PathElement::new([(x, bottom), (x, bottom + 4)], BLACK))?;
            let text = number(self.whole_us * f64::from(part) / 4.0);
            area.draw(&Text::new(text, (x, bottom + 6), style.clone()))?;
        }
        let middle = (LEFT + Map::width() / 2, bottom + 24);
        area.draw(&Text::new("time, us", middle, style))
    }
}

/// What a person calls the links between two tiers.
#[must_use]
pub fn tier_name(tiers: [u32; 2]) -> String {
    match tiers {
        [0, _] => "hosts up".to_owned(),
        [_, 0] => "down to hosts".to_owned(),
        [from, to] if from < to => format!("tier {from} up"),
        [from, to] if from > to => format!("tier {from} down"),
        [from, _] => format!("within tier {from}"),
    }
}
