//! What an acknowledgement costs each controller, in instructions, counted by callgrind.

use crate::layout::Layout;
use crate::pingpong::schemes;
use crate::process::Job;
use crate::setup;
use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::path::Path;
use std::time::Duration;

/// Numbers of paths that are tried.
const PATHS: [u64; 3] = [1, 8, 64];
/// Acknowledgements before those that are counted, and as many that are.
const ACKS: u64 = 20_000;

/// Counts and prints a table.
///
/// # Errors
/// What is needed is missing, or the program fails.
pub fn run(layout: &Layout) -> Result<()> {
    setup::packages(layout, setup::TEST_PACKAGES)?;
    let log = layout.logs.join("cost.log");
    Job::new("cargo")
        .args(["build", "--release", "--package", "erd-rd", "--example", "controller_cost"])
        .dir(&layout.root)
        .limit(Duration::from_secs(900))
        .run(&log)?;
    let program = layout.target.join("release/examples/controller_cost");
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let mut header = vec!["scheme".to_owned()];
    header.extend(PATHS.iter().map(|paths| format!("{paths} paths")));
    table.set_header(header);
    for scheme in schemes(layout)? {
        let mut row = vec![Cell::new(&scheme)];
        for paths in PATHS {
            let few = collected(&program, &scheme, paths, ACKS, &log)?;
            let many = collected(&program, &scheme, paths, 2 * ACKS, &log)?;
            let each = many.saturating_sub(few) / ACKS;
            row.push(Cell::new(each).set_alignment(CellAlignment::Right));
        }
        table.add_row(row);
    }
    println!(
        "Instructions for each acknowledged packet, path choice and the caller's loop included"
    );
    println!("{table}");
    Ok(())
}

fn collected(program: &Path, scheme: &str, paths: u64, acks: u64, log: &Path) -> Result<u64> {
    let output = Job::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=1"])
        .args([program])
        .args([scheme, &paths.to_string(), &acks.to_string()])
        .limit(Duration::from_secs(120))
        .run(log)?;
    let count = output.split("Collected : ").nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|count| count.parse().ok()).context("callgrind told no count")
}
