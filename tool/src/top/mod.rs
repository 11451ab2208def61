//! `erd top`: the flows of all processes of this host that the user may observe.

mod prometheus;
mod screen;
mod snapshot;
mod view;

pub use snapshot::{Flow, flow_of};

use crate::system::{System, host};
use crate::{TopArgs, text};
use anyhow::{Context, Result};
use serde_json::json;
use snapshot::Process;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

/// Shows the flows.
///
/// # Errors
/// If /proc is not mounted, or the terminal is unusable.
pub fn run(args: &TopArgs) -> Result<()> {
    let system = System::new();
    let look = || snapshot::look(&system).context("looking for processes");
    let interval = Duration::from_secs_f64(args.interval);
    if args.prometheus {
        return text::print(&prometheus::text(&look()?));
    }
    if args.json {
        return lines(look, interval, args.once);
    }
    let (host, _) = host();
    if args.once || !io::stdout().is_terminal() {
        let before = look()?;
        thread::sleep(interval);
        let rows = view::rows(&host, &before, &look()?);
        let table: String = rows.iter().map(|row| format!("{}\n", row.text)).collect();
        return text::print(&table);
    }
    screen::run(&host, interval, look)
}

/// One line of JSON for each look, until nobody reads them.
fn lines(look: impl Fn() -> Result<Vec<Process>>, interval: Duration, once: bool) -> Result<()> {
    loop {
        let end = Instant::now() + interval;
        text::print(&format!("{}\n", json!({ "processes": look()? })))?;
        if once {
            return Ok(());
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
    }
}
