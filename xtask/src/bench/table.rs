//! The tables that a bench run prints.

use super::results::{Place, Results, Test};
use comfy_table::{Cell, CellAlignment, Table};
use erd_e2e::fabric::bytes_text;
use erd_e2e::report;

/// Bytes that an atomic of the bench changes.
const FETCH_BYTES: u64 = 8;

/// Prints a table for each test, then what the ratios mean and what went wrong.
pub fn print(providers: &[String], tests: &[(Test, &[u64])], results: &Results) {
    println!("libfabric {}, medians:", results.libfabric());
    for (test, sizes) in tests {
        println!("\n{}", title(*test));
        println!("{}", table(providers, *test, sizes, results));
    }
    if let [first, others @ ..] = providers
        && !others.is_empty()
    {
        println!("\n{first}/other: below 1 is better for latency, above 1 for bandwidth and rate.");
        println!("lo: bytes on the loopback interface for each byte of {first}'s payload.");
    }
    let moved = |(test, sizes): &(Test, &[u64])| {
        sizes.iter().any(|size| results.places(*test, *size).len() > 1)
    };
    if tests.iter().any(moved) {
        println!(
            "near, far: the processors shared a cache, or did not; only like runs are compared."
        );
    }
    for name in providers {
        for place in results.places(Test::Fetch, FETCH_BYTES) {
            let p50 = |test| results.median(name, test, FETCH_BYTES, "p50_us", *place);
            if let (Some(fetch), Some(half)) = (p50(Test::Fetch), p50(Test::Latency)) {
                let (share, place) = (fetch / (2.0 * half), place_text(*place));
                println!("{name}{place}: a fetch and add takes {share:.2} round trips of 8 bytes");
            }
        }
    }
    for name in providers {
        let runs: Vec<&str> = results.runs(name).collect();
        if runs.iter().any(|runs| runs != name) {
            println!("{name} runs as {}", runs.join(" and as "));
        }
    }
    for (name, test, why) in results.failures() {
        println!("{name}, {}: {why}", test.name());
    }
}

fn title(test: Test) -> &'static str {
    match test {
        Test::Latency => "Half round trip in us: p50 (p99, p99.9)",
        Test::Sleep => "The same where both sleep in fi_cq_sread: p50 (p99, p99.9)",
        Test::Exchange => {
            "Exchange in us, from the send to both completions of both sides: p50 (p99, p99.9)"
        }
        Test::Bandwidth => "One-way bandwidth in MB/s, 64 messages outstanding",
        Test::Reuse => "The same with one buffer a side, which stays in the cache",
        Test::Rate => "Messages per second in thousands, acknowledged every 64",
        Test::Write => "Writes into the peer's memory in MB/s, 64 outstanding",
        Test::Read => "Reads out of the peer's memory in MB/s, 64 outstanding",
        Test::Fetch => "Atomic fetch and add in us, there and back: p50 (p99, p99.9)",
        Test::Behind => {
            "From a message's send to the peer's word that it has come, while 512 MiB are under way, in us: p50 (p99, p99.9)"
        }
        Test::Bulk => {
            "512 MiB beside such messages, both together, as a share of 512 MiB alone (MB/s alone)"
        }
        Test::Hub => "Round trips of 64 B a second in thousands, of so many endpoints with one",
    }
}

/// Values of the providers, and how the first compares with the others.
#[must_use]
pub fn table(providers: &[String], test: Test, sizes: &[u64], results: &Results) -> Table {
    let mut header = vec!["size".to_owned()];
    header.extend(providers.iter().cloned());
    if let [first, others @ ..] = providers {
        header.extend(others.iter().map(|other| format!("{first}/{other}")));
        header.push("lo".to_owned());
    }
    let mut table = report::table(header);
    let all =
        sizes.iter().flat_map(|size| results.places(test, *size).iter().map(|at| (*size, *at)));
    for (size, place) in all {
        let size_text = if test == Test::Hub { size.to_string() } else { bytes_text(size) };
        let mut row = vec![size_text + place_text(place)];
        row.extend(providers.iter().map(|name| value(results, name, test, size, place)));
        if let [first, others @ ..] = providers {
            row.extend(
                others.iter().map(|other| ratio(results, (first, other), test, size, place)),
            );
            row.push(two_digits(results.lo_share(first, test, size)));
        }
        let right = |text| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row(row.into_iter().map(right));
    }
    table
}

fn place_text(place: Place) -> &'static str {
    match place {
        Place::Any => "",
        Place::Near => ", near",
        Place::Far => ", far",
    }
}

fn value(results: &Results, provider: &str, test: Test, size: u64, place: Place) -> String {
    let median = |name| results.median(provider, test, size, name, place);
    let Some(main) = median(test.main_value()) else { return "-".to_owned() };
    match test {
        Test::Latency | Test::Sleep | Test::Exchange | Test::Fetch | Test::Behind => {
            let tail = |name| median(name).unwrap_or(f64::NAN);
            format!("{main:.2} ({:.1}, {:.1})", tail("p99_us"), tail("p999_us"))
        }
        Test::Bandwidth | Test::Reuse | Test::Write | Test::Read => format!("{:.0}", main / 1e6),
        Test::Bulk => {
            let alone = median("alone_bytes_per_s").unwrap_or(f64::NAN);
            format!("{main:.3} ({:.0})", alone / 1e6)
        }
        Test::Rate | Test::Hub => format!("{:.0}", main / 1e3),
    }
}

fn ratio(
    results: &Results,
    (first, other): (&str, &str),
    test: Test,
    size: u64,
    place: Place,
) -> String {
    let name = test.main_value();
    let first = results.median(first, test, size, name, place);
    let other = results.median(other, test, size, name, place);
    two_digits(first.zip(other).map(|(first, other)| first / other))
}

fn two_digits(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
