//! The tables of the repository are what the simulator gives. After a change that is meant,
//! `UPDATE_TABLES=1 cargo test -p erd-sim --release --test tables` writes them again.

use erd_sim::schemes;
use erd_sim::tables::Table;
use std::fs;
use std::path::Path;

fn hold(name: &str) {
    let table = Table::by_name(name).expect("a table of that name");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tables").join(format!("{name}.txt"));
    let now = table.text(schemes::NAMES);
    if std::env::var_os("UPDATE_TABLES").is_some() {
        fs::write(&path, now).expect("a writable table");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differ: Vec<String> = kept
        .lines()
        .zip(now.lines())
        .filter(|(kept, now)| kept != now)
        .map(|(kept, now)| format!("- {kept}\n+ {now}"))
        .collect();
    assert!(kept == now, "{name}: UPDATE_TABLES=1 writes it again\n{}", differ.join("\n"));
}

#[test]
fn with_ecn() {
    hold("ecn");
}

#[test]
fn without_ecn() {
    hold("noecn");
}

#[test]
fn with_trimming() {
    hold("trimming");
}

#[test]
fn with_noise() {
    hold("jitter");
}

#[test]
fn with_packets_out_of_order() {
    hold("overtaking");
}

#[test]
fn under_incast() {
    hold("incast");
}

#[test]
fn after_an_exchange() {
    hold("exchange");
}

#[test]
fn at_the_first_contact() {
    hold("first");
}

#[test]
fn of_late_flows() {
    hold("late");
}

#[test]
fn with_broken_paths() {
    hold("faults");
}
