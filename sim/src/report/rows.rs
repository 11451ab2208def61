//! A row for each message of each run, as comma-separated values.

use super::{Group, MessageRow};
use serde::Serialize;
use std::io::Write;

/// A message with the run that it is of. The csv crate cannot flatten one structure into another.
#[derive(Serialize)]
struct Row<'a> {
    scheme: &'a str,
    seed: u64,
    message: u32,
    from: u32,
    to: u32,
    bytes: u64,
    began_us: f64,
    completion_us: f64,
    acknowledged_us: f64,
    least_us: f64,
    slowdown: f64,
}

/// Writes a line of names, and a row for each message.
///
/// # Errors
/// `out` takes no more.
pub fn write(out: impl Write, groups: &[Group]) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for Group { name, runs, .. } in groups {
        for run in runs {
            for message in &run.messages {
                writer.serialize(row(name, run.seed, message))?;
            }
        }
    }
    writer.flush()?;
    Ok(())
}

fn row<'a>(scheme: &'a str, seed: u64, message: &MessageRow) -> Row<'a> {
    let MessageRow {
        message,
        from,
        to,
        bytes,
        began_us,
        completion_us,
        acknowledged_us,
        least_us,
        slowdown,
    } = *message;
    Row {
        scheme,
        seed,
        message,
        from,
        to,
        bytes,
        began_us,
        completion_us,
        acknowledged_us,
        least_us,
        slowdown,
    }
}
