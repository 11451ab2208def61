//! The cost of an acknowledgement for each controller, in instructions, counted by callgrind.

use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment};
use erd_e2e::layout::Layout;
use erd_e2e::pingpong::schemes;
use erd_e2e::process::Job;
use erd_e2e::{report, setup};
use std::path::Path;
use std::time::Duration;

/// Acknowledgements before those that are counted, and as many that are.
const ACKS: u64 = 20_000;
/// The functions counted in most columns: acknowledgement handling and path choice, with all their calls.
const HANDLING: &[&str] = &["on_ack", "next_path"];
/// The engine's other calls of a controller, for each burst.
const ASKING: &[&str] = &["on_sent", "window_bytes", "pace_bytes_per_s"];

/// Paths, network and calls of a column.
struct Column {
    title: &'static str,
    paths: u64,
    network: &'static str,
    calls: &'static [&'static str],
}

const COLUMNS: [Column; 5] = [
    Column { title: "1 path", paths: 1, network: "ecn", calls: HANDLING },
    Column { title: "8 paths", paths: 8, network: "ecn", calls: HANDLING },
    Column { title: "64 paths", paths: 64, network: "ecn", calls: HANDLING },
    Column { title: "8 paths, no ECN", paths: 8, network: "noecn", calls: HANDLING },
    Column { title: "8 paths, the other calls", paths: 8, network: "ecn", calls: ASKING },
];

/// Counts and prints a table.
///
/// # Errors
/// If something needed is missing, or the program fails.
pub fn run(layout: &Layout) -> Result<()> {
    setup::packages(layout, setup::TEST_PACKAGES)?;
    let log = layout.logs.join("cost.log");
    let program = setup::build_example(layout, "erd-rd", "controller_cost", &log)?;
    let mut header = vec!["scheme".to_owned()];
    header.extend(COLUMNS.iter().map(|column| column.title.to_owned()));
    let mut table = report::table(header);
    for scheme in schemes(layout)? {
        let mut row = vec![Cell::new(&scheme)];
        for column in &COLUMNS {
            let few = collected(&program, &scheme, column, ACKS, &log)?;
            let many = collected(&program, &scheme, column, 2 * ACKS, &log)?;
            let each = many.saturating_sub(few) / ACKS;
            row.push(Cell::new(each).set_alignment(CellAlignment::Right));
        }
        table.add_row(row);
    }
    println!(
        "Instructions for each acknowledged packet in the controller's {}, with all that they call; \
         in the last column in its {}. The caller's loop is not counted.",
        HANDLING.join(" and "),
        ASKING.join(", ")
    );
    println!("{table}");
    Ok(())
}

fn collected(program: &Path, scheme: &str, column: &Column, acks: u64, log: &Path) -> Result<u64> {
    let calls = column.calls.iter().map(|call| format!("--toggle-collect=*Controller>::{call}*"));
    let output = Job::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=1"])
        .args(calls)
        .args([program])
        .args([scheme, &column.paths.to_string(), &acks.to_string(), column.network])
        .limit(Duration::from_secs(120))
        .run(log)?;
    let count = output.split("Collected : ").nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|count| count.parse().ok()).context("callgrind told no count")
}
