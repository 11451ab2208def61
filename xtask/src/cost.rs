//! The cost of an acknowledgement for each controller, in the controller alone and in the engine, in instructions, counted
//! by callgrind.

use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, Table};
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

/// Packets of the engine's stream before those that are counted, and as many that are. The first 126 round trips have 4 in
/// flight.
const PACKETS: u64 = 6_000;
/// Time by which the slowest path is slower than the fastest, where packets are reordered, in nanoseconds: as much as a round
/// trip of the fastest. At 400 Gb/s a packet overtakes up to 244 others.
const SPREAD_NS: u64 = 20_000;

/// Paths of a column of the engine's table, how they differ, and the function that is counted.
struct Ways {
    title: &'static str,
    paths: u64,
    spread_ns: u64,
    counted: &'static str,
}

const WAYS: [Ways; 7] = [
    Ways { title: "1 path", paths: 1, spread_ns: 0, counted: "counted_ack" },
    Ways { title: "8 paths", paths: 8, spread_ns: 0, counted: "counted_ack" },
    Ways { title: "64 paths", paths: 64, spread_ns: 0, counted: "counted_ack" },
    Ways { title: "8 paths, reordered", paths: 8, spread_ns: SPREAD_NS, counted: "counted_ack" },
    Ways { title: "64 paths, reordered", paths: 64, spread_ns: SPREAD_NS, counted: "counted_ack" },
    Ways { title: "writing it, 1 path", paths: 1, spread_ns: 0, counted: "counted_answer" },
    Ways { title: "8 paths, reordered", paths: 8, spread_ns: SPREAD_NS, counted: "counted_answer" },
];

/// Counts and prints the tables.
///
/// # Errors
/// If something needed is missing, or the program fails.
pub fn run(layout: &Layout) -> Result<()> {
    setup::packages(layout, setup::TEST_PACKAGES)?;
    let log = layout.logs.join("cost.log");
    controllers(layout, &log)?;
    engine(layout, &log)
}

fn controllers(layout: &Layout, log: &Path) -> Result<()> {
    let program = setup::build_example(layout, "erd-rd", "controller_cost", log)?;
    let titles = COLUMNS.iter().map(|column| column.title);
    let counted = |scheme: &str, column: &Column| {
        let toggles = column.calls.iter().map(|call| format!("*Controller>::{call}*"));
        let toggles: Vec<String> = toggles.collect();
        let paths = column.paths.to_string();
        let count = |acks: u64| {
            let args = [scheme, &paths, &acks.to_string(), column.network];
            collected(&program, &toggles, &args, log)
        };
        Ok(count(2 * ACKS)?.saturating_sub(count(ACKS)?) / ACKS)
    };
    let table = table(layout, titles, &COLUMNS, counted)?;
    println!(
        "Instructions for each acknowledged packet in the controller's {}, with all that they call; \
         in the last column in its {}. The caller's loop is not counted.",
        HANDLING.join(" and "),
        ASKING.join(", ")
    );
    println!("{table}");
    Ok(())
}

fn engine(layout: &Layout, log: &Path) -> Result<()> {
    let program = setup::build_example(layout, "erd-rd", "engine_cost", log)?;
    let titles = WAYS.iter().map(|ways| ways.title);
    let counted = |scheme: &str, ways: &Ways| {
        let toggles = [format!("*engine_cost::{}*", ways.counted)];
        let (paths, spread_ns) = (ways.paths.to_string(), ways.spread_ns.to_string());
        let args = [scheme, &paths, &spread_ns, &PACKETS.to_string()];
        Ok(collected(&program, &toggles, &args, log)? / PACKETS)
    };
    let table = table(layout, titles, &WAYS, counted)?;
    println!(
        "Engine: whole path of an acknowledgement. Instructions for each acknowledged packet of a stream, in the sender's \
         `handle_packet` with all that it calls; in the last columns in the receiver's `poll_transmit`. Where packets are \
         reordered, the slowest path is {} us slower than the fastest.",
        SPREAD_NS / 1000
    );
    println!("{table}");
    Ok(())
}

/// A row for each scheme, with what `counted` says of each column.
fn table<C>(
    layout: &Layout,
    titles: impl Iterator<Item = &'static str>,
    columns: &[C],
    counted: impl Fn(&str, &C) -> Result<u64>,
) -> Result<Table> {
    let mut header = vec!["scheme".to_owned()];
    header.extend(titles.map(str::to_owned));
    let mut table = report::table(header);
    for scheme in schemes(layout)? {
        let mut row = vec![Cell::new(&scheme)];
        for column in columns {
            let cell = Cell::new(counted(&scheme, column)?);
            row.push(cell.set_alignment(CellAlignment::Right));
        }
        table.add_row(row);
    }
    Ok(table)
}

/// The instructions of a run within the functions that `toggles` name.
fn collected(program: &Path, toggles: &[String], args: &[&str], log: &Path) -> Result<u64> {
    let output = Job::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=1"])
        .args(toggles.iter().map(|toggle| format!("--toggle-collect={toggle}")))
        .args([program])
        .args(args)
        .limit(Duration::from_secs(120))
        .run(log)?;
    let count = output.split("Collected : ").nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|count| count.parse().ok()).context("callgrind told no count")
}
