//! Formatting of numbers and tables for people.

use anyhow::Result;
use comfy_table::{Table, presets};
use std::io::{self, Write};

/// A number with three significant digits and its unit: 4.19 MB.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut at) = (value, 0);
    // Avoid 1000 kB, the rounding of 999.7 kB.
    while value >= step * 0.9995 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let digits = match value {
        _ if at == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[at])
}

/// A size in bytes, in powers of 1024 as memory is counted.
#[must_use]
pub fn bytes(count: u64) -> String {
    scaled(count as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A rate in bytes per second, in powers of 1000 as links are counted.
#[must_use]
pub fn rate(bytes_per_s: f64) -> String {
    scaled(bytes_per_s, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// A plain number.
#[must_use]
pub fn count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G"]).trim_end().to_owned()
}

/// The speed of a link.
#[must_use]
pub fn speed(mbit_per_s: u64) -> String {
    scaled(mbit_per_s as f64 * 1e6, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A time in nanoseconds; a dash for none.
#[must_use]
pub fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        ns => scaled(ns as f64, 1000.0, &["ns", "us", "ms", "s"]),
    }
}

/// The age of an event, in whole units.
#[must_use]
pub fn age(ns: u64) -> String {
    match ns / 1_000_000_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// Another process's text, safe for a terminal: without characters that move the cursor, reverse the line or take more
/// or less than one column.
#[must_use]
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// A table without frames.
#[must_use]
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

/// Writes to standard output. Its reader may stop early, as `head` does.
///
/// # Errors
/// Any other failure.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!([0, 512, 1024, 4 << 20].map(bytes), ["0 B", "512 B", "1.00 KiB", "4.00 MiB"]);
        assert_eq!([0.0, 999.7e3, 5.57e9].map(rate), ["0 B/s", "1.00 MB/s", "5.57 GB/s"]);
        assert_eq!([0, 940, 34_200, 2_000_000_000].map(time), ["-", "940 ns", "34.2 us", "2.00 s"]);
        assert_eq!([7.0, 12_345.0].map(count), ["7", "12.3 k"]);
        assert_eq!(speed(400_000), "400 Gbit/s");
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(harmless("eth0\u{1b}[2J\n\u{202e}a"), "eth0?[2J??a");
    }
}
