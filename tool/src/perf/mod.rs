//! `erd perf`: latency and rate by message size, against an `erd serve`.

mod measure;
mod plot;

use crate::peer::{self, MESSAGE_BYTES_MAX, Side};
use crate::{PerfArgs, text};
use anyhow::{Result, bail};
use erd::verbs::{ContextOptions, Device};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

pub use measure::Latency;

/// The measurements at one size.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Bytes of a message.
    pub bytes: usize,
    /// Half round trips.
    pub latency: Latency,
    /// Payload, one way.
    pub bytes_per_s: f64,
    pub messages_per_s: f64,
}

/// Measures.
///
/// # Errors
/// The host is not known, nobody serves there, or a file cannot be written.
pub fn run(args: &PerfArgs) -> Result<()> {
    if let Some(size) =
        args.sizes.iter().find(|size| !(peer::HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(size))
    {
        bail!("--sizes has {size}; valid: {} to {MESSAGE_BYTES_MAX}", peer::HEADER_BYTES);
    }
    let server = peer::resolve(&args.server)?;
    let device = Device::towards(server)?;
    let mut options = ContextOptions::new();
    if let Some(controller) = &args.controller {
        options = options.controller(controller);
    }
    if let Some(paths) = args.paths {
        options = options.paths(paths);
    }
    let side = Side::open(&device, &options, (0, 0))?;
    let points = measured(&side, server, args)?;
    if let Some(file) = &args.svg {
        fs::write(file, plot::svg(&points, &title(&side, server))?)?;
    }
    if args.json {
        let all = json!({
            "server": server, "controller": side.controller, "paths": side.paths,
            "outstanding": args.outstanding, "seconds": args.seconds, "points": points,
        });
        return text::print(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    text::print(&format!("{}\n{}\n", title(&side, server), table(&points)))
}

fn title(side: &Side, server: SocketAddr) -> String {
    let s = if side.paths == 1 { "" } else { "s" };
    format!(
        "{} to {server}: controller {}, {} path{s}",
        side.qp.name(),
        side.controller,
        side.paths
    )
}

fn measured(side: &Side, server: SocketAddr, args: &PerfArgs) -> Result<Vec<Point>> {
    let to = side.pd.create_ah(server)?;
    let time = Duration::from_secs_f64(args.seconds);
    // It goes to standard error, if that is a terminal.
    let bar = ProgressBar::new(2 * args.sizes.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?);
    let mut points = Vec::new();
    for &bytes in &args.sizes {
        bar.set_message(format!("latency at {}", text::bytes(bytes as u64)));
        let latency = measure::latency(side, (&to, server), bytes, time)?;
        bar.inc(1);
        bar.set_message(format!("rate at {}", text::bytes(bytes as u64)));
        let rate = measure::rate(side, (&to, server), (bytes, args.outstanding.into()), time)?;
        bar.inc(1);
        points.push(Point {
            bytes,
            latency,
            bytes_per_s: rate * bytes as f64,
            messages_per_s: rate,
        });
    }
    bar.finish_and_clear();
    Ok(points)
}

fn table(points: &[Point]) -> String {
    let mut table =
        text::table(["message", "half round trip", "p99", "least", "one way", "messages/s"]);
    for point in points {
        table.add_row([
            text::bytes(point.bytes as u64),
            text::time(point.latency.median_ns),
            text::time(point.latency.p99_ns),
            text::time(point.latency.min_ns),
            text::rate(point.bytes_per_s),
            text::count(point.messages_per_s),
        ]);
    }
    table.to_string()
}
