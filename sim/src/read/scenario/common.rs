//! What all parts of a scenario need: lines of places, times, defaults.

use crate::read::{ReadError, TIME_NS_MAX};
use crate::time::{PS_PER_NS, Picos};
use toml::Spanned;

/// Longest time on a link: a second.
const DELAY_NS_MAX: f64 = 1e9;

pub(super) fn yes() -> bool {
    true
}

/// The text, to tell the line of a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub(super) file: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl Source {
    pub(super) fn new(file: &str, text: &str) -> Source {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(starts.map(|(at, _)| at + 1)).collect();
        Source { file: file.to_owned(), lines }
    }

    pub(super) fn error<T>(&self, at: &Spanned<T>, what: impl std::fmt::Display) -> ReadError {
        self.error_at(at.span().start, what)
    }

    pub(super) fn error_at(&self, at: usize, what: impl std::fmt::Display) -> ReadError {
        let line = self.lines.partition_point(|start| *start <= at);
        ReadError::line(&self.file, line, what)
    }
}

/// A time in units of so many nanoseconds.
pub(super) fn time(value: f64, unit_ns: f64) -> Option<Picos> {
    let ns = value * unit_ns;
    (0.0..=TIME_NS_MAX as f64).contains(&ns).then_some((ns * PS_PER_NS as f64) as Picos)
}

/// A span of nanoseconds as picoseconds, if it is short enough for a link.
pub(super) fn delay(ns: f64) -> Option<Picos> {
    (0.0..=DELAY_NS_MAX).contains(&ns).then_some((ns * PS_PER_NS as f64) as Picos)
}
